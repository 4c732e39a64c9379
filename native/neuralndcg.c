/* NeuralNDCG; src/toprank/losses/smooth.py explains the computation. Matrices have m rows of `width`, m rounded up
   to whole vectors; P is 0 beyond m, and the factors of columns are 1 there, so that rows need no special end. */
#include "sums.h"

#define SETTLED 1e-14 /* Sinkhorn scaling has converged to rounding */

INLINE f8 sign_of(f8 x) { return (x > 0.0 ? 1.0 : 0.0) - (x < 0.0 ? 1.0 : 0.0); }

typedef struct {
    i8 m, width, iterations, done;
    f8 *whole, *z, *apart, *lead, *worth, *row, *d_u, *d_v, *d_next, *grad, *diagonal;
    f8 *P, *rows, *columns, *d_sums, *d_columns;
} Work;

ROW_FUNCTION void add_times(i8 n, f8 factor, const f8 a[restrict n], f8 to[restrict n]) {
    for (i8 j = 0; j < n; j++) to[j] += factor * a[j];
}
ROW_FUNCTION void add_both(i8 n, f8 factor, const f8 a[restrict n], f8 other, const f8 b[restrict n],
                           f8 to[restrict n]) {
    for (i8 j = 0; j < n; j++) to[j] += factor * a[j] + other * b[j];
}

/* apart_j += |z_j − z_k| and lead_j += sign(z_j − z_k), for one k. */
ROW_FUNCTION void distances(i8 m, f8 of_k, const f8 z[restrict m], f8 apart[restrict m], f8 lead[restrict m]) {
    for (i8 j = 0; j < m; j++) {
        apart[j] += fabs(z[j] - of_k);
        lead[j] += sign_of(z[j] - of_k);
    }
}

/* A row of logits slope·z_j − apart_j, and the largest of them. */
ROW_FUNCTION f8 logits(i8 m, f8 slope, const f8 z[restrict m], const f8 apart[restrict m], f8 row[restrict m]) {
    for (i8 j = 0; j < m; j++) row[j] = slope * z[j] - apart[j];
    return largest(m, row);
}
ROW_FUNCTION f8 powers(i8 m, f8 high, f8 row[restrict m]) {
    for (i8 j = 0; j < m; j++) row[j] = exp1(row[j] - high);
    return sum(whole_vectors(m), row);
}

/* P, whose row r is softmax_j((m − 1 − 2r)·z_j − apart_j), and lead_j = Σ_k sign(z_j − z_k). */
static void neural_sort(const Work *work) {
    const i8 m = work->m;
    for (i8 k = 0; k < m; k++) distances(m, work->z[k], work->z, work->apart, work->lead);
    for (i8 r = 0; r < m; r++) {
        f8 *row = work->P + r * work->width;
        f8 high = logits(m, (f8)(m - 1 - 2 * r), work->z, work->apart, row), total = powers(m, high, row);
        for (i8 j = 0; j < m; j++) row[j] /= total;
    }
}

/* The factors 1/sum of the columns, and by how much the largest has changed since the round before. */
ROW_FUNCTION f8 column_factors(i8 m, const f8 sums[restrict m], const f8 before[restrict m], f8 now[restrict m]) {
    f8 change = 0.0;
    for (i8 j = 0; j < m; j++) now[j] = 1.0 / sums[j];
    for (i8 j = 0; j < m; j++) change = larger(change, fabs(now[j] - before[j]) * sums[j]);
    return change;
}

/* Compute the factors u, v of every round, such that X_t = diag(u_t)·P·diag(v_t), and the number of rounds. The
   backward pass needs every round; two factors of length m are stored for each, not a matrix. A row of P yields its
   factor of this round, and its part of the next round's column sums. */
static void sinkhorn(Work *work) {
    const i8 m = work->m, width = work->width;
    f8 *sums = work->d_v, *next = work->d_next;
    for (i8 j = 0; j < width; j++) work->rows[j] = work->columns[j] = 1.0;
    memset(sums, 0, (size_t)width * sizeof(f8));
    for (i8 r = 0; r < m; r++) add_times(width, 1.0, work->P + r * width, sums);
    for (work->done = 0; work->done < work->iterations;) {
        f8 *u = work->rows + ++work->done * width, *v = work->columns + work->done * width;
        f8 change = column_factors(m, sums, v - width, v);
        for (i8 j = m; j < width; j++) u[j] = v[j] = 1.0;
        memset(next, 0, (size_t)width * sizeof(f8));
        for (i8 r = 0; r < m; r++) {
            u[r] = 1.0 / dot(width, work->P + r * width, v);
            add_times(width, u[r], work->P + r * width, next);
        }
        f8 *swap = sums;
        sums = next;
        next = swap;
        if (change < SETTLED) return;
    }
}

/* Backpropagate through the factors of every round t, stored as vectors: d P_rj = … + d_sums_t[r]·v_t[j] +
   u_{t−1}[r]·d_columns_t[j] (row 0 of both: the value itself). There is one pass over P per round: a row yields its
   d_u of this round, and its part of the next d_v. */
static f8 sinkhorn_back(const Work *work, const f8 *rank_weights) {
    const i8 m = work->m, width = work->width, done = work->done;
    const f8 *u = work->rows + done * width, *v = work->columns + done * width;
    f8 *d_u = work->d_u, *d_v = work->d_v, *d_next = work->d_next, value = 0.0;
    memset(d_v, 0, (size_t)width * sizeof(f8));
    for (i8 j = 0; j < width; j++) work->d_columns[j] = v[j] * work->worth[j];
    for (i8 r = 0; r < m; r++) {
        d_u[r] = rank_weights[r] * dot(width, work->P + r * width, work->d_columns);
        work->d_sums[r] = rank_weights[r] * u[r];
        value += d_u[r] * u[r];
        add_times(width, work->d_sums[r], work->P + r * width, d_v);
    }
    for (i8 j = 0; j < width; j++) d_v[j] *= work->worth[j];
    for (i8 t = done; t > 0; t--) {
        f8 *d_sums = work->d_sums + t * width, *d_columns = work->d_columns + t * width;
        u = work->rows + t * width;
        v = work->columns + t * width;
        if (t == done)
            for (i8 r = 0; r < m; r++) { /* u_r = 1 / Σ_j P_rj v_j */
                d_sums[r] = -d_u[r] * (u[r] * u[r]);
                add_times(width, d_sums[r], work->P + r * width, d_v);
            }
        for (i8 j = 0; j < width; j++) d_columns[j] = -d_v[j] * (v[j] * v[j]); /* v_j = 1 / Σ_r u_r P_rj, previous u */
        if (t == 1) break;
        memset(d_next, 0, (size_t)width * sizeof(f8));
        for (i8 r = 0; r < m; r++) {
            const f8 before = u[r - width];
            d_sums[r - width] = -dot(width, work->P + r * width, d_columns) * (before * before);
            add_times(width, d_sums[r - width], work->P + r * width, d_next);
        }
        f8 *swap = d_v;
        d_v = d_next;
        d_next = swap;
    }
    return value;
}

/* Row r of dZ/dP, from the results of sinkhorn_back. */
static void slopes_of_row(const Work *work, i8 r) {
    const i8 width = work->width;
    memset(work->row, 0, (size_t)width * sizeof(f8));
    add_times(width, work->d_sums[r], work->d_columns, work->row);
    for (i8 t = 1; t <= work->done; t++)
        add_both(width, work->d_sums[t * width + r], work->columns + t * width, work->rows[(t - 1) * width + r],
                 work->d_columns + t * width, work->row);
}

/* Backpropagate through a softmax and its logits slope·z_j − apart_j. */
ROW_FUNCTION void logits_back(i8 n, f8 slope, f8 mean, const f8 P[restrict n], const f8 d_P[restrict n],
                              const f8 lead[restrict n], f8 grad[restrict n], f8 d_apart[restrict n],
                              f8 diagonal[restrict n]) {
    for (i8 j = 0; j < n; j++) {
        f8 d_logit = P[j] * (d_P[j] - mean), b = slope - lead[j];
        grad[j] -= slope * d_logit;
        d_apart[j] -= d_logit;
        diagonal[j] += fabs(d_logit) * (1.0 + b * b);
    }
}
ROW_FUNCTION void distances_back(i8 m, f8 of_k, f8 d_apart_k, const f8 z[restrict m], const f8 d_apart[restrict m],
                                 f8 grad[restrict m]) {
    for (i8 j = 0; j < m; j++) grad[j] -= sign_of(z[j] - of_k) * (d_apart[j] + d_apart_k);
}

static void neural_sort_back(const Work *work) {
    const i8 m = work->m, width = work->width;
    f8 *d_apart = work->d_u;
    memset(d_apart, 0, (size_t)width * sizeof(f8));
    for (i8 r = 0; r < m; r++) {
        const f8 *P = work->P + r * width;
        slopes_of_row(work, r);
        logits_back(width, (f8)(m - 1 - 2 * r), dot(width, work->row, P), P, work->row, work->lead, work->grad, d_apart,
                    work->diagonal);
    }
    for (i8 k = 0; k < m; k++) distances_back(m, work->z[k], d_apart[k], work->z, d_apart, work->grad);
}

/* Allocate memory for the longest query; return false if out of memory. */
static bool prepare(Work *work, i8 longest, i8 iterations) {
    const i8 width = whole_vectors(longest), vectors = 10;
    work->whole = scratch((vectors + longest + 4 * (iterations + 1)) * width, sizeof(f8));
    if (!work->whole) return false;
    f8 **rows[] = {&work->z,   &work->apart, &work->lead,   &work->worth, &work->row,
                   &work->d_u, &work->d_v,   &work->d_next, &work->grad,  &work->diagonal};
    for (int i = 0; i < vectors; i++) *rows[i] = work->whole + i * width;
    f8 **tables[] = {&work->rows, &work->columns, &work->d_sums, &work->d_columns};
    for (int i = 0; i < 4; i++) *tables[i] = work->whole + (vectors + i * (iterations + 1)) * width;
    work->P = work->whole + (vectors + 4 * (iterations + 1)) * width;
    work->iterations = iterations;
    return true;
}

/* Compute NDCG of the relaxed sort for each query; −d/dz of it and the diagonal for each document. z = scores over
   T. */
KERNEL(i8, relaxed_ndcgs)
(i8 n, i8 q, i8 w, const f8 z[n], const i8 offsets[q + 1], const f8 worth[n], const f8 rank_weights[w], i8 iterations,
 f8 relaxed[q], f8 grad[n], f8 diagonal[n]) {
    Work work;
    const i8 longest = least(longest_query(q, offsets), w);
    if (iterations > (i8)1 << 30 || !prepare(&work, longest, most(iterations, 0))) return OUT_OF_MEMORY;
    memset(grad, 0, (size_t)n * sizeof(f8));
    memset(diagonal, 0, (size_t)n * sizeof(f8));
    for (i8 i = 0; i < q; i++) {
        const i8 first = offsets[i], m = least(offsets[i + 1] - first, longest);
        bool counts = false;
        relaxed[i] = 0.0;
        for (i8 j = 0; j < m; j++) counts |= worth[first + j] > 0.0;
        if (!counts) continue;
        work.m = m;
        work.width = whole_vectors(m);
        memset(work.whole, 0, (size_t)(work.P - work.whole) * sizeof(f8));
        memset(work.P, 0, (size_t)(m * work.width) * sizeof(f8));
        memcpy(work.z, z + first, (size_t)m * sizeof(f8));
        memcpy(work.worth, worth + first, (size_t)m * sizeof(f8));
        neural_sort(&work);
        sinkhorn(&work);
        relaxed[i] = sinkhorn_back(&work, rank_weights);
        neural_sort_back(&work);
        memcpy(grad + first, work.grad, (size_t)m * sizeof(f8));
        memcpy(diagonal + first, work.diagonal, (size_t)m * sizeof(f8));
    }
    give_back(work.whole);
    return 0;
}
