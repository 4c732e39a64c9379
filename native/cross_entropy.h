/* The cross entropy of one query: Σ_j t_j (−s_j + log Σ_k e^{s_k}). */
#ifndef TOPRANK_CROSS_ENTROPY_H
#define TOPRANK_CROSS_ENTROPY_H

#include "sums.h"

/* The loss of a query of m documents, and its gradient times `scale`. `mass` is the sum of the targets. */
INLINE f8 query_cross_entropy(i8 m, const f8 *s, const f8 *t, f8 mass, f8 scale, f8 *restrict grad) {
    if (mass == 0.0) {
        for (i8 i = 0; i < m; i++) grad[i] = 0.0;
        return 0.0;
    }
    const f8 top = largest(m, s), total = exponentials_below(m, s, top, grad);
    const f8 share = scale * mass / total;
    for (i8 i = 0; i < m; i++) grad[i] = share * grad[i] - scale * t[i];
    return gap_below(m, s, top, t) + mass * log1(total);
}

#endif
