/* Proportional odds: log(1 + e^{−a}) + log(1 + e^b) − log(1 − e^{−(a−b)}) with the logits a and b around a document's
grade.

Documents are taken some at a time: their logits are gathered, the terms computed side by side, and the derivatives put
back. */
#include "vectors.h"

#define TOGETHER 64
#define ABSENT 750.0 /* a logit, or a gap between two, beyond which terms and derivatives vanish: e^−750 is 0 */

/* 1 − e^{−x} for x > 0. Near 0 the rounding of e^{−x} is compensated: (1 − v)/−log v varies slowly, so its value at
   the rounded v = e^{−x} is as accurate as at the true one (Kahan). */
INLINE f8 one_less_decay(f8 x, f8 decay) {
    f8 plain = 1.0 - decay, mended = plain * x / -log1(decay);
    return x < 1.0 ? mended : plain;
}

typedef struct {
    f8 a[TOGETHER], b[TOGETHER], gap[TOGETHER];
    f8 slope_a[TOGETHER], slope_b[TOGETHER], bend_a[TOGETHER], bend_b[TOGETHER];
} Chunk;

INLINE void gather(i8 m, i8 columns, const f8 *logits, const i8 *codes, Chunk *of) {
    for (i8 i = 0; i < m; i++) {
        const i8 grade = codes[i];
        const f8 *own = logits + i * columns;
        of->a[i] = grade > 0 ? own[grade - 1] : ABSENT;
        of->b[i] = grade < columns ? own[grade] : -ABSENT;
        of->gap[i] = grade > 0 && grade < columns ? of->a[i] - of->b[i] : ABSENT;
    }
}

INLINE void find_terms(i8 m, f8 least_gap, Chunk *restrict of, f8 *restrict losses, f8 *restrict coupling) {
    for (i8 i = 0; i < m; i++) {
        const f8 a = of->a[i], decay_a = exp1(-fabs(a)), whole_a = 1.0 + decay_a;
        const f8 b = of->b[i], decay_b = exp1(-fabs(b)), whole_b = 1.0 + decay_b;
        const f8 outer = log1p1(decay_a) + larger(-a, 0.0) + (log1p1(decay_b) + larger(b, 0.0));
        /* −log(1 − e^{−gap}) = log(1 + odds) with odds = 1/(e^gap − 1); extended below the smallest gap as a
           parabola. */
        const f8 near = larger(of->gap[i], least_gap), short_of = of->gap[i] - near, decay = exp1(-near);
        const f8 odds = decay / one_less_decay(near, decay), bend = odds * (1.0 + odds), slope = bend * short_of - odds;
        losses[i] = outer + (log1p1(odds) - odds * short_of + 0.5 * bend * short_of * short_of);
        of->slope_a[i] = slope - (a > 0.0 ? decay_a : 1.0) / whole_a;
        of->slope_b[i] = (b > 0.0 ? 1.0 : decay_b) / whole_b - slope;
        of->bend_a[i] = decay_a / (whole_a * whole_a) + bend;
        of->bend_b[i] = decay_b / (whole_b * whole_b) + bend;
        coupling[i] = -bend;
    }
}

INLINE void scatter(i8 m, i8 columns, const Chunk *of, const i8 *codes, f8 *grad, f8 *diagonal) {
    for (i8 i = 0; i < m * columns; i++) grad[i] = diagonal[i] = 0.0;
    for (i8 i = 0; i < m; i++) {
        const i8 grade = codes[i], at = i * columns + grade;
        if (grade > 0) {
            grad[at - 1] = of->slope_a[i];
            diagonal[at - 1] = of->bend_a[i];
        }
        if (grade < columns) {
            grad[at] = of->slope_b[i];
            diagonal[at] = of->bend_b[i];
        }
    }
}

/* Loss, gradient and second derivatives of each document's columns: a diagonal, and one coupling between the logits
   around its grade, which is between 0 and the number of columns. */
KERNEL(void, ordinal)
(i8 n, i8 columns, const f8 logits[n][columns], const i8 codes[n], f8 least_gap, f8 losses[restrict n],
 f8 grad[n][columns],
 f8 diagonal[n][columns], f8 coupling[restrict n]) {
    Chunk chunk;
    for (i8 first = 0; first < n; first += TOGETHER) {
        const i8 m = least(TOGETHER, n - first);
        gather(m, columns, logits[first], codes + first, &chunk);
        find_terms(m, least_gap, &chunk, losses + first, coupling + first);
        scatter(m, columns, &chunk, codes + first, grad[first], diagonal[first]);
    }
}
