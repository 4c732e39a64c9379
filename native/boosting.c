/* Convert a loss's gradient and curvature to LightGBM's format: single precision, column-major, for every output. */
#include "vectors.h"

/* Copy with scaling; rows with a gradient get a curvature of at least `floor`. Return whether all values are finite.
   `grad_out` and `curvature_out` contain the columns one after another. */
KERNEL(i8, pack_gradients)(i8 n, i8 k, const f8 grad[n][k], const f8 diagonal[n][k], f8 factor, f8 curvature_factor,
                           f8 floor, f4 grad_out[k][n], f4 curvature_out[k][n]) {
    const f8 *restrict slopes = (const f8 *)grad, *restrict bends = (const f8 *)diagonal;
    i8 bad = 0;
    for (i8 c = 0; c < k; c++) {
        f4 *restrict slope_out = (f4 *)grad_out + c * n, *restrict bend_out = (f4 *)curvature_out + c * n;
        f4 least_bend = (f4)floor;
        for (i8 i = 0; i < n; i++) {
            f4 slope = (f4)(factor * slopes[i * k + c]), bend = (f4)(curvature_factor * bends[i * k + c]);
            bend = slope != 0.0f && bend < least_bend ? least_bend : bend;
            slope_out[i] = slope;
            bend_out[i] = bend;
        }
        for (i8 i = 0; i < n; i++) bad |= !(fabsf(slope_out[i]) < INFINITY) | !(fabsf(bend_out[i]) < INFINITY);
    }
    return !bad;
}

/* Compute gradient and curvature of every output from the derivatives by the score s = Σ_k G_k P_k, see
   `ExpectedGainObjective`; return whether all values are finite. */
KERNEL(i8, chain_gradients)(i8 n, i8 k, const f8 chances[n][k], const f8 scores[n], const f8 gains[k], const f8 grad[n],
                            const f8 diagonal[n], f8 factor, f4 grad_out[k][n], f4 curvature_out[k][n]) {
    const f8 *P = (const f8 *)chances;
    f4 *slopes = (f4 *)grad_out, *bends = (f4 *)curvature_out;
    i8 bad = 0;
    for (i8 i = 0; i < n; i++) {
        f8 size = 0.0;
        for (i8 c = 0; c < k; c++) size += P[i * k + c] * fabs(gains[c] - scores[i]);
        f8 bend = factor * (size * diagonal[i] + fabs(grad[i]));
        for (i8 c = 0; c < k; c++) {
            f8 share = P[i * k + c] * (gains[c] - scores[i]);
            f4 slope = (f4)(factor * share * grad[i]), bent = (f4)(fabs(share) * bend);
            slopes[c * n + i] = slope;
            bends[c * n + i] = bent;
            bad |= !(fabsf(slope) < INFINITY) | !(fabsf(bent) < INFINITY);
        }
    }
    return !bad;
}
