/* Ordered weighted pairwise classification: a merge of two sorted lists for each threshold between grades (see
   losses/hinges.py). */
#include "owa.h"

/* α_1 … α_n, decreasing, with sum 1. */
static void fill_weights(i8 generator, f8 p, i8 n, f8 *restrict alpha) {
    ordered_weights(generator, p, n, alpha);
    f8 total = 0.0;
    for (i8 j = 0; j < n; j++) total += alpha[j]; /* from the largest on, in decreasing order */
    for (i8 j = 0; j < n; j++) alpha[j] /= total;
}

/* Assign the mean of their weights to documents with equal scores. */
static void share_among_ties(const f8 *scores, const i8 *worse, i8 n, f8 *alpha) {
    for (i8 k = 1, start = 0; k <= n; k++) {
        if (k < n && scores[worse[k]] == scores[worse[start]]) continue;
        if (k - start > 1) {
            f8 sum = 0.0;
            for (i8 j = start; j < k; j++) sum += alpha[j];
            for (i8 j = start; j < k; j++) alpha[j] = sum / (f8)(k - start);
        }
        start = k;
    }
}

/* List the documents of grade `threshold` and more, followed by the others, each in the given order; return the
   number of the former. */
static i8 two_sides(i8 m, const i8 *ranked, const i8 *grades, i8 threshold, i8 *sides) {
    i8 n_better = 0, n_worse = 0;
    for (i8 r = 0; r < m; r++) n_better += grades[ranked[r]] >= threshold;
    for (i8 r = 0, at = 0; r < m; r++)
        if (grades[ranked[r]] >= threshold)
            sides[at++] = ranked[r];
        else
            sides[n_better + n_worse++] = ranked[r];
    return n_better;
}

/* Compute the loss of one threshold; `factor` times its derivatives is added to `grad`. As s_y decreases, more
   irrelevant documents enter its margin. `mass` = Σ α over them, and `shortfall` = Σ α·gap, which grows by mass·Δ
   when s_y decreases by Δ: only positive numbers are added, so there is no cancellation. reach[k] is the weight of
   the relevant documents with exactly k competitors in the margin. */
static f8 walk_down(const f8 *scores, const i8 *better, i8 n_better, const i8 *worse, i8 n_worse, const f8 *weights,
                    const f8 *alpha, f8 factor, f8 *reach, f8 *grad) {
    memset(reach, 0, (size_t)(n_worse + 1) * sizeof(f8));
    f8 mass = 0.0, shortfall = 0.0, total = 0.0, above = 0.0;
    f8 last_score = scores[better[0]], share = factor / (f8)n_better;
    i8 k = 0;
    for (i8 r = 0; r < n_better; r++) {
        i8 y = better[r];
        f8 score = scores[y];
        shortfall += mass * (last_score - score);
        last_score = score;
        for (; k < n_worse && score - scores[worse[k]] < 1.0; k++) {
            mass += alpha[k];
            shortfall += alpha[k] * (1.0 - (score - scores[worse[k]]));
        }
        total += weights[y] * shortfall;
        grad[y] -= share * weights[y] * mass;
        reach[k] += weights[y];
    }
    for (k = n_worse - 1; k >= 0; k--) {
        above += reach[k + 1];
        grad[worse[k]] += share * alpha[k] * above;
    }
    return total / (f8)n_better;
}

/* Loss of each query, and the scaled derivatives for its documents; `order` ranks them by falling score, and grades are
the ranks 0, 1 … of the labels among the `n_grades` distinct ones of their query. */
KERNEL(i8, owpc_losses)(i8 n, i8 q, const f8 scores[n], const i8 order[n], const i8 offsets[q + 1], const i8 grades[n],
                        const i8 n_grades[q], const f8 weights[n], i8 generator, f8 p, const f8 scale[q], f8 losses[q],
                        f8 grad[n]) {
    const i8 longest = longest_query(q, offsets);
    i8 *sides = scratch(longest, sizeof(i8));
    f8 *alpha = scratch(2 * longest + 1, sizeof(f8));
    memset(grad, 0, (size_t)n * sizeof(f8));
    for (i8 i = 0; sides && alpha && i < q; i++) {
        i8 m = offsets[i + 1] - offsets[i], thresholds = n_grades[i] - 1;
        f8 total = 0.0;
        for (i8 threshold = 1; threshold <= thresholds; threshold++) {
            i8 n_better = two_sides(m, order + offsets[i], grades, threshold, sides), n_worse = m - n_better;
            fill_weights(generator, p, n_worse, alpha);
            share_among_ties(scores, sides + n_better, n_worse, alpha);
            total += walk_down(scores, sides, n_better, sides + n_better, n_worse, weights, alpha,
                               scale[i] / (f8)thresholds, alpha + longest, grad);
        }
        losses[i] = total / (f8)most(thresholds, 1);
    }
    i8 done = sides && alpha ? 0 : OUT_OF_MEMORY;
    give_back(sides);
    give_back(alpha);
    return done;
}

/* The diagonal defined in `OWPC`. */
KERNEL(i8, owpc_majorizer)(i8 n, i8 q, const i8 offsets[q + 1], const i8 grades[n], const i8 n_grades[q],
                           const f8 weights[n], i8 generator, f8 p, const f8 scale[q], f8 diagonal[n]) {
    f8 *alpha = scratch(longest_query(q, offsets), sizeof(f8));
    if (!alpha) return OUT_OF_MEMORY;
    memset(diagonal, 0, (size_t)n * sizeof(f8));
    for (i8 i = 0; i < q; i++)
        for (i8 threshold = 1; threshold < n_grades[i]; threshold++) {
            f8 total = 0.0;
            i8 n_better = 0, n_worse = 0;
            for (i8 d = offsets[i]; d < offsets[i + 1]; d++) {
                bool better = grades[d] >= threshold;
                n_better += better;
                n_worse += !better;
                total += better ? weights[d] : 0.0;
            }
            fill_weights(generator, p, n_worse, alpha);
            f8 factor = 2.0 * scale[i] / (f8)(n_grades[i] - 1) / (f8)n_better;
            f8 steepest = smaller(2.0, (f8)n_worse * alpha[0]);
            for (i8 d = offsets[i]; d < offsets[i + 1]; d++)
                diagonal[d] += factor * (grades[d] >= threshold ? weights[d] * steepest : alpha[0] * total);
        }
    give_back(alpha);
    return 0;
}
