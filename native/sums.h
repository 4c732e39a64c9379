/* Definition of a sum: element i is added to lane i mod 8, the lanes are combined in `joined`, and the elements
   behind the last whole eight are added one by one and combined last. Rows padded with zeros to a whole eight have
   no remainder. The lanes are a plain array, added to by a loop of eight: compilers keep it in registers of any
   width, while GCC moves a vector wider than the machine's registers through memory (measured on AVX2: 16 times
   slower). */
#ifndef TOPRANK_SUMS_H
#define TOPRANK_SUMS_H

#include "vectors.h"

INLINE f8 joined(const f8 *lanes) {
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}
INLINE f8 joined_product(const f8 *lanes) {
    return ((lanes[0] * lanes[4]) * (lanes[2] * lanes[6])) * ((lanes[1] * lanes[5]) * (lanes[3] * lanes[7]));
}

/* A loop over lanes where a kernel keeps several sums: EACH_LANE(lane) { total[lane] += x[first + lane]; }
GCC would unroll a short loop before it looks for vectors. */
#if defined(__clang__)
#define EACH_LANE(lane) for (i8 lane = 0; lane < LANES; lane++)
#else
#define EACH_LANE(lane) _Pragma("GCC unroll 1") for (i8 lane = 0; lane < LANES; lane++)
#endif

/* Σ of `term`, an expression in i, over 0 ≤ i < n. */
#define SUM_OVER(n, result, term)                                  \
    do {                                                           \
        f8 lanes_[LANES] = {0}, rest_ = 0.0;                       \
        i8 done_ = 0;                                              \
        for (; done_ + LANES <= (n); done_ += LANES)               \
            for (int lane_ = 0; lane_ < LANES; lane_++) {          \
                const i8 i = done_ + lane_;                        \
                lanes_[lane_] += (term);                           \
            }                                                      \
        for (i8 i = done_; i < (n); i++) rest_ += (term);          \
        (result) = joined(lanes_) + rest_;                         \
    } while (0)

INLINE f8 sum(i8 n, const f8 *a) {
    f8 total;
    SUM_OVER(n, total, a[i]);
    return total;
}

INLINE f8 dot(i8 n, const f8 *a, const f8 *b) {
    f8 total;
    SUM_OVER(n, total, a[i] * b[i]);
    return total;
}

/* The largest of n ≥ 1 numbers. */
INLINE f8 largest(i8 n, const f8 *a) {
    f8 lanes[LANES], top = a[0];
    for (int l = 0; l < LANES; l++) lanes[l] = top;
    i8 i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lanes[l] = a[i + l] > lanes[l] ? a[i + l] : lanes[l];
    for (; i < n; i++) top = larger(a[i], top);
    for (int l = 0; l < LANES; l++) top = larger(lanes[l], top);
    return top;
}

/* to = e^{s − top}; the sum. */
INLINE f8 exponentials_below(i8 m, const f8 *restrict scores, f8 top, f8 *restrict to) {
    for (i8 i = 0; i < m; i++) to[i] = exp1(scores[i] - top);
    return sum(m, to);
}

/* Σ t (top − s): of −t·s and T·log Σ e^s, the large parts would cancel. */
INLINE f8 gap_below(i8 m, const f8 *scores, f8 top, const f8 *targets) {
    f8 gap;
    SUM_OVER(m, gap, targets[i] * (top - scores[i]));
    return gap;
}

#endif
