/* RankCosine: value at zero − ½·direction·s/√(‖s‖² + ε²) in each query, with s minus its mean if `centered`. */
#include "sums.h"

/* The mean to subtract: 0 if not centered. */
INLINE f8 mean_to_take_off(i8 m, const f8 *values, u1 centered) { return centered ? sum(m, values) / (f8)m : 0.0; }

/* The loss of each query, and its gradient times the query's scale. */
KERNEL(void, cosine)
(i8 n, i8 q, const f8 scores[n], const f8 direction[n], const f8 at_zero[q], const f8 scale[q], const i8 offsets[q + 1],
 u1 centered, f8 epsilon, f8 grad[restrict n], f8 losses[restrict q]) {
    for (i8 k = 0; k < q; k++) {
        const i8 m = offsets[k + 1] - offsets[k];
        const f8 *s = scores + offsets[k], *a = direction + offsets[k], mean = mean_to_take_off(m, s, centered);
        f8 *restrict g = grad + offsets[k], along, squares;
        SUM_OVER(m, along, a[i] * (s[i] - mean));
        SUM_OVER(m, squares, (s[i] - mean) * (s[i] - mean));
        squares += epsilon * epsilon;
        const f8 norm = sqrt(squares), factor = 0.5 * scale[k] / norm, slope = along / squares;
        losses[k] = at_zero[k] - 0.5 * along / norm;
        for (i8 i = 0; i < m; i++) g[i] = factor * (slope * (s[i] - mean) - a[i]);
    }
}

/* ŝ = s/√(‖s‖² + ε²), ½/(‖s‖² + ε²) and 2 − ‖ŝ‖² for each query. */
KERNEL(void, unit_scores)
(i8 n, i8 q, const f8 scores[n], const i8 offsets[q + 1], u1 centered, f8 epsilon, f8 unit[restrict n],
 f8 factors[restrict q],
 f8 shrink[restrict q]) {
    for (i8 k = 0; k < q; k++) {
        const i8 m = offsets[k + 1] - offsets[k];
        const f8 *s = scores + offsets[k], mean = mean_to_take_off(m, s, centered);
        f8 *restrict own = unit + offsets[k], squares;
        SUM_OVER(m, squares, (s[i] - mean) * (s[i] - mean));
        squares += epsilon * epsilon;
        factors[k] = 0.5 / squares;
        shrink[k] = 1.0 + epsilon * epsilon / squares;
        const f8 norm = sqrt(squares);
        for (i8 i = 0; i < m; i++) own[i] = (s[i] - mean) / norm;
    }
}

/* f·(C − h·ŝŝᵀ) V in each query, where C is the identity or the centering matrix. */
KERNEL(i8, cosine_times)
(i8 n, i8 q, i8 width, const f8 unit[n], const f8 factors[q], const f8 shrink[q], const i8 offsets[q + 1], u1 centered,
 const f8 V[n][width], f8 product[restrict n][width]) {
    f8 *mean = scratch(2 * width, sizeof(f8));
    if (!mean) return OUT_OF_MEMORY;
    f8 *along = mean + width;
    for (i8 k = 0; k < q; k++) {
        const i8 start = offsets[k], stop = offsets[k + 1];
        for (i8 c = 0; c < width; c++) mean[c] = along[c] = 0.0;
        for (i8 i = start; i < stop; i++)
            for (i8 c = 0; c < width; c++) {
                mean[c] += V[i][c];
                along[c] += unit[i] * V[i][c];
            }
        for (i8 c = 0; c < width; c++) mean[c] = centered ? mean[c] / (f8)(stop - start) : 0.0;
        for (i8 i = start; i < stop; i++) {
            const f8 part = shrink[k] * unit[i], factor = factors[k];
            for (i8 c = 0; c < width; c++) product[i][c] = factor * (V[i][c] - mean[c] - part * along[c]);
        }
    }
    give_back(mean);
    return 0;
}
