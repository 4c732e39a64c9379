/* BoltzRank: a Boltzmann distribution over given rankings of each query, P(π) ∝ e^{c(π)·s} (losses/boltzrank.py).
   c_j(π) = step·w_j·(weighted mean rank of π − π_j). Every pass recomputes the coefficients: storing them would take
   twice the memory of the ranks. Ranks are stored by query and ranking, from 1; `starts` counts rankings and, like a
   block's other indices, need not begin at 0. */
#include "sums.h"

/* One ranking of a query with m documents. */
typedef struct {
    const i4 *ranks;
    const f8 *weights;
    f8 step, mean;
} Ranking;

#define COEFFICIENT(of, j) ((of).step * (of).weights[j] * ((of).mean - (f8)(of).ranks[j]))

/* P(π) into `model`, scale·(Σ_π P(π) c(π) − expected) into `grad`, −Σ_π target(π) log P(π) into `losses`. */
KERNEL(void, boltzmann)
(i8 n, i8 q, i8 r, i8 entries, const f8 scores[n], const i4 ranks[entries], const i8 starts[q + 1], const f8 means[r],
 const f8 steps[q], const f8 weights[n], const f8 target[r], const f8 expected[n], const f8 scale[q],
 const i8 offsets[q + 1],
 f8 model[restrict r], f8 grad[restrict n], f8 losses[restrict q]) {
    const i4 *next = ranks;
    for (i8 k = 0; k < q; k++) {
        const i8 m = offsets[k + 1] - offsets[k], first = starts[k] - starts[0], count = starts[k + 1] - starts[k];
        const f8 *s = scores + offsets[k], *wanted = expected + offsets[k];
        f8 *restrict p = model + first, *restrict g = grad + offsets[k];
        Ranking own = {next, weights + offsets[k], steps[k], 0.0};
        for (i8 ranking = 0; ranking < count; ranking++, own.ranks += m) {
            own.mean = means[first + ranking];
            SUM_OVER(m, p[ranking], COEFFICIENT(own, i) * s[i]);
        }
        /* The loss is a softmax loss over the rankings; the products c(π)·s are replaced by their exponentials. */
        const f8 top = largest(count, p), gap = gap_below(count, p, top, target + first);
        for (i8 ranking = 0; ranking < count; ranking++) p[ranking] = exp1(p[ranking] - top);
        const f8 total = sum(count, p);
        losses[k] = gap + log1(total);
        for (i8 j = 0; j < m; j++) g[j] = 0.0;
        own.ranks = next;
        for (i8 ranking = 0; ranking < count; ranking++, own.ranks += m) {
            const f8 chance = p[ranking] /= total;
            own.mean = means[first + ranking];
            for (i8 j = 0; j < m; j++) g[j] += chance * COEFFICIENT(own, j);
        }
        for (i8 j = 0; j < m; j++) g[j] = scale[k] * (g[j] - wanted[j]);
        next = own.ranks;
    }
}

/* scale·Σ_π P(π) c_j(π)·(c(π)·V − Σ P c·V). */
KERNEL(i8, boltzmann_covariance)
(i8 n, i8 q, i8 r, i8 entries, i8 width, const i4 ranks[entries], const i8 starts[q + 1], const f8 means[r],
 const f8 steps[q],
 const f8 weights[n], const f8 model[r], const f8 scale[q], const i8 offsets[q + 1], const f8 V[n][width],
 f8 product[restrict n][width]) {
    f8 *mean = scratch((longest_query(q, starts) + 1) * width, sizeof(f8));
    if (!mean) return OUT_OF_MEMORY;
    f8 *projected = mean + width;
    const i4 *next = ranks;
    for (i8 k = 0; k < q; k++) {
        const i8 start = offsets[k], m = offsets[k + 1] - start;
        const i8 first = starts[k] - starts[0], count = starts[k + 1] - starts[k];
        Ranking own = {next, weights + start, steps[k], 0.0};
        for (i8 c = 0; c < (count + 1) * width; c++) mean[c] = 0.0; /* and projected */
        for (i8 ranking = 0; ranking < count; ranking++, own.ranks += m) {
            f8 *along = projected + ranking * width;
            own.mean = means[first + ranking];
            for (i8 j = 0; j < m; j++) {
                const f8 coefficient = COEFFICIENT(own, j);
                for (i8 c = 0; c < width; c++) along[c] += coefficient * V[start + j][c];
            }
            for (i8 c = 0; c < width; c++) mean[c] += model[first + ranking] * along[c];
        }
        for (i8 j = start; j < start + m; j++)
            for (i8 c = 0; c < width; c++) product[j][c] = 0.0;
        own.ranks = next;
        for (i8 ranking = 0; ranking < count; ranking++, own.ranks += m) {
            const f8 *along = projected + ranking * width;
            own.mean = means[first + ranking];
            for (i8 j = 0; j < m; j++) {
                const f8 factor = scale[k] * model[first + ranking] * COEFFICIENT(own, j);
                for (i8 c = 0; c < width; c++) product[start + j][c] += factor * (along[c] - mean[c]);
            }
        }
        next = own.ranks;
    }
    give_back(mean);
    return 0;
}

/* scale·Var_P[c_j(π)] of each document. */
KERNEL(i8, boltzmann_variance)
(i8 n, i8 q, i8 r, i8 entries, const i4 ranks[entries], const i8 starts[q + 1], const f8 means[r], const f8 steps[q],
 const f8 weights[n], const f8 model[r], const f8 scale[q], const i8 offsets[q + 1], f8 variance[restrict n]) {
    f8 *restrict mean = scratch(longest_query(q, offsets), sizeof(f8));
    if (!mean) return OUT_OF_MEMORY;
    const i4 *next = ranks;
    for (i8 k = 0; k < q; k++) {
        const i8 m = offsets[k + 1] - offsets[k], first = starts[k] - starts[0], count = starts[k + 1] - starts[k];
        f8 *restrict v = variance + offsets[k];
        Ranking own = {next, weights + offsets[k], steps[k], 0.0};
        for (i8 j = 0; j < m; j++) mean[j] = v[j] = 0.0;
        for (i8 ranking = 0; ranking < count; ranking++, own.ranks += m) {
            const f8 chance = model[first + ranking];
            own.mean = means[first + ranking];
            for (i8 j = 0; j < m; j++) mean[j] += chance * COEFFICIENT(own, j);
        }
        own.ranks = next;
        for (i8 ranking = 0; ranking < count; ranking++, own.ranks += m) {
            const f8 chance = scale[k] * model[first + ranking];
            own.mean = means[first + ranking];
            for (i8 j = 0; j < m; j++) {
                const f8 off = COEFFICIENT(own, j) - mean[j];
                v[j] += chance * (off * off);
            }
        }
        next = own.ranks;
    }
    give_back(mean);
    return 0;
}
