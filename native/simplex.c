/* A small quadratic program: min ½ αᵀGα − bᵀα over α ≥ 0, Σα = 1, by a primal active-set method.

G is a Gram matrix of cuts, as a rule singular (more cuts than weights) and with near copies. Adding a constant σ to all
of G changes nothing on the simplex and makes the support's block positive definite as long as its cuts are affinely
independent. That block is kept factored, G_SS + σ = LLᵀ:

- where the minimum over the support's plane lies inside, the cut with the lowest derivative enters;
- where it lies outside, we go as far as allowed, and the cut that reaches 0 leaves;
- a cut that depends on the support cannot enter; but then the objective is linear along the dependence, and following
  it downhill drives another cut out, whose place it takes.

Steps are computed from the current gradient, so the next step corrects rounding in the factor. The result is always
feasible, and any feasible α certifies a lower bound.
One set of instructions is enough. */
#include "sums.h"

#define DEPENDENT 1e-12 /* a pivot below this fraction of its diagonal entry: the cut depends on the support */
#define REFINEMENTS 3

typedef struct {
    i8 n, size;        /* cuts, and how many of them are in the support */
    const f8 *G, *b;
    f8 *alpha, sigma;
    f8 *factor, *grad; /* L, n numbers a row; Gα − b */
    f8 *x, *ones;      /* of the support's size */
    i8 *support;
} Programme;

/* L⁻¹ x and L⁻ᵀ x, in place. */
static void solve_forward(const Programme *at, f8 *x) {
    for (i8 i = 0; i < at->size; i++) {
        const f8 *row = at->factor + i * at->n;
        x[i] = (x[i] - dot(i, row, x)) / row[i];
    }
}
static void solve_backward(const Programme *at, f8 *restrict x) {
    for (i8 i = at->size - 1; i >= 0; i--) {
        const f8 *row = at->factor + i * at->n, own = x[i] / row[i];
        x[i] = own;
        for (i8 t = 0; t < i; t++) x[t] -= row[t] * own;
    }
}

/* Gα − b, by rows of G: they are contiguous, its columns are not. */
static void find_gradient(const Programme *at) {
    f8 *restrict grad = at->grad;
    for (i8 i = 0; i < at->n; i++) grad[i] = -at->b[i];
    for (i8 t = 0; t < at->size; t++) {
        const f8 *row = at->G + at->support[t] * at->n, share = at->alpha[at->support[t]];
        for (i8 i = 0; i < at->n; i++) grad[i] += share * row[i];
    }
}

static void normalize(const Programme *at) {
    const f8 total = sum(at->n, at->alpha);
    for (i8 i = 0; i < at->n; i++) at->alpha[i] /= total;
}

/* Newton's step on the support's plane, as far as α ≥ 0 allows; the position that reached 0, or −1. */
static i8 go_to_minimum(const Programme *at) {
    f8 *x = at->x, *ones = at->ones, *alpha = at->alpha;
    const i8 size = at->size, *support = at->support;
    for (i8 i = 0; i < size; i++) {
        x[i] = at->grad[support[i]];
        ones[i] = 1.0;
    }
    solve_forward(at, x);
    solve_backward(at, x);
    solve_forward(at, ones);
    solve_backward(at, ones);
    const f8 level = sum(size, x) / sum(size, ones);
    f8 length = 1.0;
    i8 blocked = -1;
    for (i8 i = 0; i < size; i++) {
        x[i] = level * ones[i] - x[i];
        if (x[i] < 0.0 && alpha[support[i]] + length * x[i] <= 0.0) {
            length = alpha[support[i]] / -x[i];
            blocked = i;
        }
    }
    for (i8 i = 0; i < size; i++) alpha[support[i]] = larger(0.0, alpha[support[i]] + length * x[i]);
    if (blocked >= 0) alpha[support[blocked]] = 0.0;
    normalize(at);
    return blocked;
}

/* Compute the next row of the factor, for cut j; return false if its pivot vanishes (the rest of the row is then
   complete). */
static bool append(const Programme *at, i8 j) {
    f8 *row = at->factor + at->size * at->n;
    const f8 *cut = at->G + j * at->n, whole = cut[j] + at->sigma;
    for (i8 i = 0; i < at->size; i++) row[i] = cut[at->support[i]] + at->sigma;
    solve_forward(at, row);
    const f8 pivot = whole - dot(at->size, row, row);
    at->support[at->size] = j;
    row[at->size] = sqrt(larger(pivot, 0.0));
    return pivot > DEPENDENT * whole;
}

/* Descend along δ = (d, 1) with (G + σ) δ = 0 until a weight is 0; return its position, or −1 if it is j itself. Σδ
   = 0, and since Gδ = 0 the objective is linear along δ, with slope −bᵀδ. */
static i8 go_along_dependence(const Programme *at, i8 j) {
    f8 *d = at->x, *alpha = at->alpha, slope = -at->b[j];
    const f8 *row = at->factor + at->size * at->n;
    const i8 size = at->size, *support = at->support;
    for (i8 i = 0; i < size; i++) d[i] = -row[i];
    solve_backward(at, d);
    for (i8 i = 0; i < size; i++) slope -= at->b[support[i]] * d[i];
    const f8 sign = slope <= 0.0 ? 1.0 : -1.0;
    f8 length = slope <= 0.0 ? INFINITY : alpha[j];
    i8 blocked = -1;
    for (i8 i = 0; i < size; i++)
        if (sign * d[i] < 0.0 && alpha[support[i]] < -sign * d[i] * length) {
            length = alpha[support[i]] / (-sign * d[i]);
            blocked = i;
        }
    if (isfinite(length)) { /* it is, unless rounding hides a negative δ_i; then j stays out */
        for (i8 i = 0; i < size; i++) alpha[support[i]] = larger(0.0, alpha[support[i]] + sign * length * d[i]);
        alpha[j] += sign * length;
    }
    alpha[blocked >= 0 ? support[blocked] : j] = 0.0;
    normalize(at);
    return blocked;
}

/* Remove a row from the factor; rotations restore its triangular form. */
static void leave(Programme *at, i8 position) {
    const i8 n = at->n, size = at->size;
    f8 *factor = at->factor;
    for (i8 i = position; i < size - 1; i++) {
        at->support[i] = at->support[i + 1];
        memcpy(factor + i * n, factor + (i + 1) * n, (size_t)(i + 2) * sizeof(f8));
    }
    for (i8 i = position; i < size - 1; i++) {
        const f8 here = factor[i * n + i], next = factor[i * n + i + 1], r = sqrt(here * here + next * next);
        const f8 c = here / r, s = next / r, minus_s = -s;
        /* GCC fuses a sum next to a difference of products despite -ffp-contract, so both are sums here. */
        for (i8 t = i; t < size - 1; t++) {
            const f8 left = factor[t * n + i], right = factor[t * n + i + 1];
            factor[t * n + i] = c * left + s * right;
            factor[t * n + i + 1] = c * right + minus_s * left;
        }
    }
    at->size--;
}

/* Add cut j to the support, removing others while it depends on them. */
static void enter(Programme *at, i8 j) {
    while (!append(at, j)) {
        i8 blocked = go_along_dependence(at, j);
        if (blocked < 0) return;
        leave(at, blocked);
    }
    at->size++;
}

INLINE bool in_support(const Programme *at, i8 j) {
    for (i8 t = 0; t < at->size; t++)
        if (at->support[t] == j) return true;
    return false;
}

/* Run from the first gradient to the end; return the number of steps. */
static i8 descend(Programme *at, f8 accuracy) {
    const i8 limit = 1000 + 50 * at->n; /* degenerate steps could cycle; the current point is feasible */
    i8 refined = 0, entered = -1;
    find_gradient(at);
    for (i8 step = 0; step < limit; step++) {
        const i8 blocked = go_to_minimum(at);
        find_gradient(at);
        if (blocked >= 0) {
            const i8 left = at->support[blocked];
            leave(at, blocked);
            if (left == entered) return step; /* removed before it carried weight: its derivative was low by rounding */
            continue;
        }
        i8 lowest = 0;
        for (i8 i = 1; i < at->n; i++)
            if (at->grad[i] < at->grad[lowest]) lowest = i;
        if (at->grad[lowest] >= dot(at->n, at->alpha, at->grad) - accuracy) return step;
        if (in_support(at, lowest)) { /* the derivatives of the support are not yet equal: rounding */
            entered = -1;
            if (++refined > REFINEMENTS) return step;
        } else {
            refined = 0;
            entered = lowest;
            enter(at, lowest);
        }
    }
    return limit;
}

/* Improve the feasible `alpha` in place until no derivative is more than `accuracy` below their mean, which also
   bounds the remaining suboptimality. Its positive entries are the initial support. Return the number of steps. */
KERNEL(i8, minimize_on_simplex)(i8 n, const f8 G[n][n], const f8 b[n], f8 alpha[n], f8 accuracy) {
    f8 *numbers = scratch(n * (n + 3), sizeof(f8));
    i8 *support = scratch(n, sizeof(i8));
    if (!numbers || !support) {
        give_back(numbers);
        give_back(support);
        return OUT_OF_MEMORY;
    }
    f8 *after = numbers + n * n, sigma = 0.0;
    for (i8 i = 0; i < n; i++) sigma += G[i][i] / (f8)n;
    if (sigma == 0.0) sigma = 1.0;
    Programme at = {n, 0, (const f8 *)G, b, alpha, sigma, numbers, after, after + n, after + 2 * n, support};
    for (i8 j = 0; j < n; j++)
        if (alpha[j] > 0.0) enter(&at, j);
    const i8 steps = n > 0 ? descend(&at, accuracy) : 0;
    give_back(numbers);
    give_back(support);
    return steps;
}
