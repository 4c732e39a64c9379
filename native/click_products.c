/* Click models in which the click probability is a product, P(click) = attraction of a pair × examination of a
   position, over cells (pair, position) with counts of impressions and clicks. */
#include "sums.h"

#define PART 512 /* cells at a time, so that their intermediate results stay in the first-level cache */

/* Count the impressions and clicks of each cell of a table of pairs by positions. */
KERNEL(void, count_cells)(i8 n, i8 t, const i8 pair[n], const i8 place[n], const u1 clicks[n], i8 places, i4 counts[t][2]) {
    memset(counts, 0, (size_t)t * sizeof *counts);
    for (i8 i = 0; i < n; i++) {
        i4 *cell = counts[pair[i] * places + place[i]];
        cell[0]++;
        cell[1] += clicks[i] != 0;
    }
}

/* Expectation step for some cells: expected numbers of attractions and examinations, and log-likelihoods. */
INLINE f8 judge_cells(i8 m, const f8 *restrict shown, const f8 *restrict clicked, const f8 *restrict liked,
                      const f8 *restrict looked, bool wanted, f8 *restrict attracted, f8 *restrict examined) {
    f8 value[PART];
    for (i8 k = 0; k < m; k++) {
        const f8 both = liked[k] * looked[k], passed = shown[k] - clicked[k];
        const f8 rest = passed > 0.0 ? passed / (1.0 - both) : 0.0; /* always examined, always attractive */
        attracted[k] = clicked[k] + rest * (liked[k] - both);
        examined[k] = clicked[k] + rest * (looked[k] - both);
    }
    if (!wanted) return 0.0;
    for (i8 k = 0; k < m; k++) {
        const f8 both = liked[k] * looked[k], passed = shown[k] - clicked[k];
        const f8 of_clicks = clicked[k] * log1(both), of_skips = passed * log1(1.0 - both);
        value[k] = (clicked[k] > 0.0 ? of_clicks : 0.0) + (passed > 0.0 ? of_skips : 0.0);
    }
    return sum(m, value);
}

/* Add for each pair of first…last the expected number of impressions in which it attracted (`attracted`), and for
   each position the expected number of examinations (`examined`, of this block only). Return the log-likelihood if
   requested. `pair` maps cells to pairs. */
KERNEL(f8, product_sums)(i8 c, i8 p, i8 b, const i8 begins[p + 1], const i4 pair[c], const i4 place[c], const f8 shown[c],
                         const f8 clicked[c], const f8 attraction[p], const f8 examination[b], i8 first, i8 last,
                         bool wanted, f8 attracted[p], f8 examined[b]) {
    f8 liked[PART], looked[PART], of_pair[PART], of_place[PART], value = 0.0;
    for (i8 one = first; one < last; one++) attracted[one] = 0.0;
    for (i8 at = begins[first]; at < begins[last]; at += PART) {
        const i8 m = least(PART, begins[last] - at);
        for (i8 k = 0; k < m; k++) liked[k] = attraction[pair[at + k]], looked[k] = examination[place[at + k]];
        value += judge_cells(m, shown + at, clicked + at, liked, looked, wanted, of_pair, of_place);
        for (i8 k = 0; k < m;) {
            const i8 one = pair[at + k], stop = least(m, begins[one + 1] - at);
            f8 total = attracted[one]; /* of its cells in the previous part */
            for (; k < stop; k++) {
                total += of_pair[k];
                examined[place[at + k]] += of_place[k];
            }
            attracted[one] = total;
        }
    }
    return value;
}

#define STEPS 100      /* maximum steps: outside the bracket, Newton is replaced by bisection */
#define NEAR_ENOUGH 1e-7 /* the last step, relative to the distance from 0 or 1 */

/* Find the most likely attraction of a pair, given the examinations: the zero of the likelihood's slope, which is
   decreasing. The slope in a is C − Σ passed · a e/(1 − a e) − b a/(1 − a), where C is the number of clicks,
   including those of the prior. */
INLINE f8 most_likely(f8 a, i8 n, const f8 *passed, const f8 *e, f8 clicks, f8 skips) {
    f8 low = 0.0, high = 1.0;
    for (int step = 0; step < STEPS; step++) {
        const f8 own = 1.0 / (1.0 - a);
        f8 slope = clicks - skips * a * own, fall = skips * own * own;
        for (i8 k = 0; k < n; k++) {
            const f8 inverse = 1.0 / (1.0 - a * e[k]), some = passed[k] * e[k] * inverse;
            slope -= a * some;
            fall += some * inverse;
        }
        if (slope > 0.0) low = a;
        else high = a;
        const f8 by_newton = a + slope / fall, next = by_newton > low && by_newton < high ? by_newton : 0.5 * (low + high);
        const f8 moved = fabs(next - a);
        a = next;
        if (moved <= NEAR_ENOUGH * smaller(a, 1.0 - a)) break;
    }
    return a;
}

/* Set the attraction of each pair of first…last to its most likely value at these examinations (starting from the
   current one), and compute how the likelihood then depends on the logarithms of the examinations: its slope, and
   minus its curvature (the lower half), with attractions following. With u = log a + log e, a cell's likelihood is
   clicked · u + passed · log(1 − e^u), which is concave. If h is the curvature in the attraction and w its mixed
   derivatives with the cells, the cells' curvature is reduced by w wᵀ/h. `room` is scratch memory with one row per
   position. */
KERNEL(void, profile_of_places)(i8 c, i8 p, i8 b, const i8 begins[p + 1], const i4 place[c], const f8 shown[c],
                                const f8 clicked[c], const f8 examination[b], f8 clicks, f8 skips, i8 first, i8 last,
                                f8 attraction[p], f8 slope[b], f8 curvature[b][b], f8 room[3][b]) {
    f8 *passed = room[0], *e = room[1], *w = room[2];
    for (i8 pair = first; pair < last; pair++) {
        const i8 begin = begins[pair], n = least(begins[pair + 1] - begin, b);
        f8 all = clicks;
        for (i8 k = 0; k < n; k++) {
            all += clicked[begin + k];
            passed[k] = shown[begin + k] - clicked[begin + k];
            e[k] = examination[place[begin + k]];
        }
        const f8 a = most_likely(attraction[pair], n, passed, e, all, skips);
        f8 own = skips * a / ((1.0 - a) * (1.0 - a));
        for (i8 k = 0; k < n; k++) {
            const f8 inverse = 1.0 / (1.0 - a * e[k]), lost = passed[k] * a * e[k] * inverse;
            slope[place[begin + k]] += clicked[begin + k] - lost;
            w[k] = lost * inverse;
            own += w[k];
        }
        for (i8 k = 0; k < n; k++) {
            f8 *row = curvature[place[begin + k]];
            const f8 share = w[k] / own;
            row[place[begin + k]] += w[k];
            for (i8 j = 0; j <= k; j++) row[place[begin + j]] -= share * w[j]; /* positions of a pair are ascending */
        }
        attraction[pair] = a;
    }
}

/* Σ a log x + b log(1 − x): the log density of a Beta prior up to a constant. */
KERNEL(f8, beta_prior)(i8 n, const f8 x[n], f8 a, f8 b) {
    f8 total;
    SUM_OVER(n, total, a * log1(x[i]) + b * log1(1.0 - x[i]));
    return total;
}
