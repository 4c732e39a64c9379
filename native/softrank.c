/* SoftRank; src/toprank/losses/smooth.py explains the computation. For each document j with a gain, the distribution
   of its rank is built by adding one competitor at a time, and traversed backwards for the slopes. */
#include "sums.h"

#define INV_SQRT_PI 0.56418958354775628695

typedef struct {
    i8 width; /* per stage: the ranks with nonzero weight in whole vectors, and a vector of zeros for before[−1] */
    f8 *whole, *beats, *slope, *force, *bend, *after, *stages;
} Work;

/* beats[i] = Φ(√2 (z_i − z_j)). */
ROW_FUNCTION void contests(i8 m, f8 own, const f8 z[restrict m], f8 beats[restrict m]) {
    for (i8 i = 0; i < m; i++) beats[i] = 0.5 * erfc1(own - z[i]);
}

/* after[r] = before[r]·(1 − win) + before[r − 1]·win for the first n counts; before[−1] and after[−1] are 0. */
ROW_FUNCTION void add_competitor(i8 n, f8 win, const f8 *restrict before, f8 *restrict after) {
    const f8 lose = 1.0 - win;
    for (i8 r = 0; r < n; r++) after[r] = before[r] * lose + before[r - 1] * win;
}

/* Σ_r stage[r]·(after[r + 1] − after[r]), and remove one competitor: after[r] becomes after[r]·(1 − win) + after[r +
   1]·win. */
ROW_FUNCTION f8 step_back(i8 n, f8 win, const f8 *restrict stage, f8 *restrict after) {
    const f8 lose = 1.0 - win;
    f8 total[LANES] = {0};
    for (i8 r = 0; r < n; r += LANES)
        for (int i = 0; i < LANES; i++) total[i] += stage[r + i] * (after[r + i + 1] - after[r + i]);
    for (i8 r = 0; r < n; r++) after[r] = after[r] * lose + after[r + 1] * win;
    return joined(total);
}

/* stages[i][r]: the probability that r of the documents 0 … i − 1 beat j, for all r with nonzero weight; return Σ_r
   p(r)/F(r). */
static f8 rank_distribution(i8 m, i8 depth, const f8 *rank_weights, const Work *work) {
    f8 total = 0.0;
    work->stages[0] = 1.0;
    for (i8 i = 0; i < m; i++) {
        f8 *before = work->stages + i * work->width;
        add_competitor(whole_vectors(least(i + 2, depth)), work->beats[i], before, before + work->width);
    }
    for (i8 r = 0; r < least(m, depth); r++) total += work->stages[m * work->width + r] * rank_weights[r];
    return total;
}

/* slope[i] = d E[1/F(rank of j)] / d beats[i] ≤ 0, by the backward recursion: after[r] is the expectation given that
   r documents among those up to i beat j. */
static void slopes_back(i8 m, i8 depth, const f8 *rank_weights, const Work *work) {
    memset(work->after, 0, (size_t)(work->width + LANES) * sizeof(f8));
    memcpy(work->after, rank_weights, (size_t)least(m, depth) * sizeof(f8));
    for (i8 i = m - 1; i >= 0; i--)
        work->slope[i] = step_back(whole_vectors(least(i + 1, depth)), work->beats[i], work->stages + i * work->width,
                                   work->after);
}

/* Convert d/dπ_ij to derivatives by the scores: dπ_ij/dz_i = e^{−u²}/√π, u = z_i − z_j. */
ROW_FUNCTION void forces(i8 m, f8 own, f8 worth, const f8 z[restrict m], const f8 slope[restrict m],
                         f8 force[restrict m], f8 bend[restrict m]) {
    for (i8 i = 0; i < m; i++) {
        f8 u = smaller(fabs(z[i] - own), 30.0); /* beyond, the density is 0 */
        force[i] = -worth * slope[i] * (exp1(-u * u) * INV_SQRT_PI);
        bend[i] = 2.0 * fabs(force[i]) * (1.0 + u * u);
    }
}

/* Add the row to `to`, and return its sum; rows are padded with zeros to a whole vector. */
ROW_FUNCTION f8 added(i8 m, const f8 *restrict row, f8 *restrict to) {
    const f8 total = sum(whole_vectors(m), row);
    for (i8 i = 0; i < m; i++) to[i] += row[i];
    return total;
}

/* E[NDCG] of each query; −d/dz of it, and the diagonal bound, for each document; z = scores over 2·noise. */
KERNEL(i8, expected_ndcg)
(i8 n, i8 q, i8 w, const f8 z[n], const i8 offsets[q + 1], const f8 worth[n], const f8 rank_weights[w], f8 expected[q],
 f8 grad[n], f8 diagonal[n]) {
    const i8 longest = longest_query(q, offsets), row = whole_vectors(longest) + LANES;
    i8 depth = least(w, longest);
    while (depth > 0 && rank_weights[depth - 1] == 0.0) depth--;
    Work work = {.width = whole_vectors(depth) + LANES};
    work.whole = scratch(7 * row + (longest + 1) * work.width, sizeof(f8));
    if (!work.whole) return OUT_OF_MEMORY;
    f8 **rows[] = {&work.beats, &work.slope, &work.force, &work.bend, &work.after};
    for (int i = 0; i < 5; i++) *rows[i] = work.whole + i * row;
    work.stages = work.whole + 6 * row + LANES;
    memset(work.whole, 0, (size_t)(7 * row + (longest + 1) * work.width) * sizeof(f8));
    memset(grad, 0, (size_t)n * sizeof(f8));
    memset(diagonal, 0, (size_t)n * sizeof(f8));
    for (i8 i = 0; i < q; i++) {
        const i8 first = offsets[i], m = offsets[i + 1] - first;
        expected[i] = 0.0;
        memset(work.whole, 0, (size_t)(5 * row) * sizeof(f8));
        for (i8 j = 0; j < m; j++) {
            const f8 own = z[first + j], gain = worth[first + j];
            if (gain == 0.0) continue;
            contests(m, own, z + first, work.beats);
            work.beats[j] = 0.0;
            expected[i] += gain * rank_distribution(m, depth, rank_weights, &work);
            slopes_back(m, depth, rank_weights, &work);
            work.slope[j] = 0.0;
            forces(m, own, gain, z + first, work.slope, work.force, work.bend);
            grad[first + j] -= added(m, work.force, grad + first);
            diagonal[first + j] += added(m, work.bend, diagonal + first);
        }
    }
    give_back(work.whole);
    return 0;
}
