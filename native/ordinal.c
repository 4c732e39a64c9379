/* Proportional odds: log(1 + e^{−a}) + log(1 + e^b) − log(1 − e^{−(a−b)}) with the logits a and b around a document's grade. */
#include "vectors.h"

/* 1 − e^{−x} for x > 0. Near 0 the rounding of e^{−x} is undone: (1 − v)/−log v changes slowly, so its value at the rounded
v = e^{−x} is as good as at the true one (Kahan). */
INLINE f8 one_less_decay(f8 x, f8 decay) { return x < 1.0 ? (1.0 - decay) * x / -log1(decay) : 1.0 - decay; }

/* Loss, gradient and second derivatives of each document's columns: a diagonal, and one coupling between the logits around its
grade. For gaps below `least_gap` the barrier goes on as a parabola. */
KERNEL(void, ordinal)
(i8 n, i8 columns, const f8 logits[n][columns], const i8 codes[n], f8 least_gap, f8 losses[n], f8 grad[n][columns],
 f8 diagonal[n][columns], f8 coupling[n]) {
    for (i8 j = 0; j < n; j++) {
        const i8 grade = codes[j];
        f8 loss = 0.0, *g = grad[j], *h = diagonal[j];
        for (i8 c = 0; c < columns; c++) g[c] = h[c] = 0.0;
        coupling[j] = 0.0;
        if (grade > 0) { /* log(1 + e^{−a}) */
            const f8 a = logits[j][grade - 1], decay = exp1(-fabs(a)), whole = 1.0 + decay;
            loss += log1p1(decay) + larger(-a, 0.0);
            g[grade - 1] -= (a > 0.0 ? decay : 1.0) / whole;
            h[grade - 1] += decay / (whole * whole);
        }
        if (grade < columns) { /* log(1 + e^b) */
            const f8 b = logits[j][grade], decay = exp1(-fabs(b)), whole = 1.0 + decay;
            loss += log1p1(decay) + larger(b, 0.0);
            g[grade] += (b > 0.0 ? 1.0 : decay) / whole;
            h[grade] += decay / (whole * whole);
        }
        if (grade > 0 && grade < columns) { /* −log(1 − e^{−gap}) = log(1 + odds), odds = 1/(e^gap − 1) */
            const f8 gap = logits[j][grade - 1] - logits[j][grade], near = larger(gap, least_gap), decay = exp1(-near);
            const f8 odds = decay / one_less_decay(near, decay), bend = odds * (1.0 + odds), short_of = gap - near;
            loss += log1p1(odds) - odds * short_of + 0.5 * bend * short_of * short_of;
            const f8 slope = bend * short_of - odds;
            g[grade - 1] += slope;
            g[grade] -= slope;
            h[grade - 1] += bend;
            h[grade] += bend;
            coupling[j] = -bend;
        }
        losses[j] = loss;
    }
}
