/* Statistics of the columns of a query, as additional columns. */
#include "sorting.h"

CODES(ColumnStatistic, MEAN, STD, MIN, MAX, RANK, ZSCORE)

typedef struct {
    f8 mean, deviation;
} Moments;

/* Mean and standard deviation (divided by m) of values in decreasing order, summed from the smallest; equal values
   have exactly that mean, and deviation 0. NaN without values. */
static Moments moments(i8 m, const f8 *sorted) {
    if (m == 0) return (Moments){NAN, NAN};
    const f8 high = sorted[0], low = sorted[m - 1];
    if (low == high) return (Moments){low, 0.0};
    f8 total = 0.0, squares = 0.0;
    for (i8 i = m - 1; i >= 0; i--) total += sorted[i];
    if (!(fabs(total) < INFINITY)) return (Moments){INFINITY, INFINITY};
    const f8 mean = smaller(larger(total / (f8)m, low), high);
    /* Scale by a power of two near high − low, so that squares neither underflow nor overflow, without rounding. */
    int exponent;
    frexp(high - low, &exponent);
    const f8 unit = ldexp(1.0, exponent - 1);
    for (i8 i = m - 1; i >= 0; i--) {
        const f8 distance = (sorted[i] - mean) / unit;
        squares += distance * distance;
    }
    return (Moments){mean, unit * sqrt(squares / (f8)m)};
}

#define RESULT f4
#define NAMED(name) name##__f4
#include "pool.inc"
#undef RESULT
#undef NAMED
#define RESULT f8
#define NAMED(name) name##__f8
#include "pool.inc"
