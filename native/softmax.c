/* Σ_j t_j (−s_j + log Σ_k e^{s_k}) in each query, and its curvature c (diag(p) − p pᵀ), p = softmax(s). */
#include "cross_entropy.h"

/* The loss of each query, and its gradient times the query's scale. `mass` is the sum of its targets. */
KERNEL(void, cross_entropy)
(i8 n, i8 q, const f8 scores[n], const f8 targets[n], const f8 mass[q], const f8 scale[q], const i8 offsets[q + 1],
 f8 grad[restrict n], f8 losses[restrict q]) {
    for (i8 k = 0; k < q; k++) {
        const i8 start = offsets[k], m = offsets[k + 1] - start;
        losses[k] = query_cross_entropy(m, scores + start, targets + start, mass[k], scale[k], grad + start);
    }
}

KERNEL(void, softmax)(i8 n, i8 q, const f8 scores[n], const i8 offsets[q + 1], f8 probabilities[restrict n]) {
    for (i8 k = 0; k < q; k++) {
        const i8 m = offsets[k + 1] - offsets[k];
        const f8 *s = scores + offsets[k];
        f8 *restrict p = probabilities + offsets[k];
        const f8 total = exponentials_below(m, s, largest(m, s), p);
        for (i8 i = 0; i < m; i++) p[i] /= total;
    }
}

/* c p_i (V_i − Σ_j p_j V_j): the difference is taken before it is scaled, so a constant V gives nearly nothing. */
KERNEL(i8, softmax_times)
(i8 n, i8 q, i8 width, const f8 p[n], const f8 masses[q], const i8 offsets[q + 1], const f8 V[n][width],
 f8 product[restrict n][width]) {
    f8 *restrict mean = scratch(width, sizeof(f8));
    if (!mean) return OUT_OF_MEMORY;
    for (i8 k = 0; k < q; k++) {
        const i8 start = offsets[k], stop = offsets[k + 1];
        for (i8 c = 0; c < width; c++) mean[c] = 0.0;
        for (i8 i = start; i < stop; i++)
            for (i8 c = 0; c < width; c++) mean[c] += p[i] * V[i][c];
        for (i8 i = start; i < stop; i++) {
            const f8 share = masses[k] * p[i];
            for (i8 c = 0; c < width; c++) product[i][c] = share * (V[i][c] - mean[c]);
        }
    }
    give_back(mean);
    return 0;
}
