/* Network inputs: features transformed by f (the identity, or sign(x)·log(1 + |x|)), standardized, with missing
   values filled. A column is summed over its rows in order, so results do not depend on the width of registers;
   columns are processed side by side. */
#include "vectors.h"

INLINE f8 signed_log(f8 x) { return copysign(log1p1(fabs(x)), x); }

/* Each loop computes both versions of f and selects one at the end: otherwise it is not vectorized. */
#define EITHER(logarithm, LOOP) \
    if (logarithm)              \
        LOOP(signed_log)        \
    else                        \
        LOOP(itself)
INLINE f8 itself(f8 x) { return x; }

/* For each column: Σ f(x) and the count, without missing values; and the number of infinite values. */
#define SUM_ROW(F)                                                          \
    for (i8 j = 0; j < d; j++) {                                            \
        f8 x = row[j], y = F(x);                                            \
        sums[j] += x == x ? y : 0.0;                                        \
        counts[j] += x == x ? 1.0 : 0.0;                                    \
        infinite[j] += fabs(x) == INFINITY ? 1.0 : 0.0;                     \
    }
#define MAPPED_SUMS(TYPE)                                                                                           \
    KERNEL(void, mapped_sums__##TYPE)(i8 n, i8 d, const TYPE X[n][d], bool logarithm, f8 sums[restrict d],          \
                                      f8 counts[restrict d], f8 infinite[restrict d]) {                             \
        for (i8 j = 0; j < d; j++) sums[j] = counts[j] = infinite[j] = 0.0;                                         \
        for (i8 i = 0; i < n; i++) {                                                                                \
            const TYPE *restrict row = X[i];                                                                        \
            EITHER(logarithm, SUM_ROW)                                                                              \
        }                                                                                                           \
    }

/* For each column: Σ (f(x) − center)², without missing values. */
#define SQUARE_ROW(F)                                                       \
    for (i8 j = 0; j < d; j++) {                                            \
        f8 x = row[j], off = F(x) - center[j];                              \
        squares[j] += x == x ? off * off : 0.0;                             \
    }
#define MAPPED_SQUARES(TYPE)                                                                                        \
    KERNEL(void, mapped_squares__##TYPE)(i8 n, i8 d, const TYPE X[n][d], bool logarithm,                            \
                                         const f8 center[restrict d], f8 squares[restrict d]) {                     \
        for (i8 j = 0; j < d; j++) squares[j] = 0.0;                                                                \
        for (i8 i = 0; i < n; i++) {                                                                                \
            const TYPE *restrict row = X[i];                                                                        \
            EITHER(logarithm, SQUARE_ROW)                                                                           \
        }                                                                                                           \
    }

/* out = (f(x) − center)/spread, with `missing` for missing values. */
#define FILL_ROW(F)                                                         \
    for (i8 j = 0; j < d; j++) {                                            \
        f8 x = row[j], y = (F(x) - center[j]) / spread[j];                  \
        to[j] = (f4)(x == x ? y : missing[j]);                              \
    }
#define MAPPED_ROWS(TYPE)                                                                                           \
    KERNEL(void, mapped_rows__##TYPE)(i8 n, i8 d, const TYPE X[n][d], bool logarithm, const f8 center[restrict d],  \
                                      const f8 spread[restrict d], const f8 missing[restrict d], f4 out[n][d]) {    \
        for (i8 i = 0; i < n; i++) {                                                                                \
            const TYPE *restrict row = X[i];                                                                        \
            f4 *restrict to = out[i];                                                                               \
            EITHER(logarithm, FILL_ROW)                                                                             \
        }                                                                                                           \
    }

MAPPED_SUMS(f4)
MAPPED_SUMS(f8)
MAPPED_SQUARES(f4)
MAPPED_SQUARES(f8)
MAPPED_ROWS(f4)
MAPPED_ROWS(f8)
