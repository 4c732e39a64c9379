/* Coordinate descent on a quadratic model with L1 penalties. One instruction set is sufficient. */
#include "toprank.h"

/* Return the minimizer of (½ bend x² − …) + l1 |x|: the unconstrained minimizer, moved toward 0 by the threshold. */
INLINE f8 thresholded(f8 free, f8 threshold) {
    return free > threshold ? free - threshold : free < -threshold ? free + threshold : 0.0;
}

/* The square of the shortest subgradient's norm. */
INLINE f8 pull_squared(i8 d, const f8 *l1, const f8 *z, const f8 *slope) {
    f8 total = 0.0;
    for (i8 i = 0; i < d; i++) {
        f8 pull = z[i] > 0.0 ? slope[i] + l1[i] : z[i] < 0.0 ? slope[i] - l1[i] : larger(fabs(slope[i]) - l1[i], 0.0);
        total += pull * pull;
    }
    return total;
}

/* Coordinate descent on z in place, with `slope` updated to the smooth part's gradient, until the shortest
   subgradient's norm is at most `accuracy`; return that norm. */
KERNEL(f8, descend_coordinates)
(i8 d, const f8 hessian[d][d], const f8 l1[d], f8 z[d], f8 slope[restrict d], f8 accuracy, i8 sweeps) {
    f8 left = INFINITY;
    for (i8 sweep = 0; sweep < sweeps && !(left <= accuracy); sweep++) {
        for (i8 i = 0; i < d; i++) {
            const f8 bend = hessian[i][i], target = thresholded(z[i] - slope[i] / bend, l1[i] / bend);
            const f8 change = target - z[i];
            if (change == 0.0) continue;
            z[i] = target;
            for (i8 t = 0; t < d; t++) slope[t] += change * hessian[i][t];
        }
        left = sqrt(pull_squared(d, l1, z, slope));
    }
    return left;
}
