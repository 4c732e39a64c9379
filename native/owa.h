/* Decreasing weights of ordered weighted averages, for the loss (owpc.c) and the metric (metrics.inc). */
#ifndef TOPRANK_OWA_H
#define TOPRANK_OWA_H

#include "vectors.h"

/* α_j of Usunier et al. 2009 before normalization to sum 1: 1; 1 on the top `p` percent, at least the first; 1/j;
   2^{−(100/p)·j/n}; 1 for the first only. */
CODES(OrderedWeight, CONSTANT, TOP, RECIPROCAL, EXP, MAX)

/* α_1 … α_n, where the first is 1: the exponential's own first value could underflow. */
static void ordered_weights(i8 generator, f8 p, i8 n, f8 *restrict alpha) {
    const f8 top = larger(1.0, p * (f8)n / 100.0), fall = -(100.0 / p) / (f8)n * M_LN2;
    if (generator == CONSTANT)
        for (i8 j = 0; j < n; j++) alpha[j] = 1.0;
    else if (generator == TOP)
        for (i8 j = 0; j < n; j++) alpha[j] = (f8)(j + 1) <= top ? 1.0 : 0.0;
    else if (generator == RECIPROCAL)
        for (i8 j = 0; j < n; j++) alpha[j] = 1.0 / (f8)(j + 1);
    else if (generator == EXP)
        for (i8 j = 0; j < n; j++) alpha[j] = exp1(fall * (f8)j);
    else
        for (i8 j = 0; j < n; j++) alpha[j] = j == 0 ? 1.0 : 0.0;
}

#endif
