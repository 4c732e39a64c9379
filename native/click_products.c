/* Click models whose click is a product: P(click) = attraction of a pair × examination of a place, over cells (pair, place) that
were shown and clicked so often. */
#include "sums.h"

#define PART 512 /* cells at a time: what is computed side by side for them stays in the nearest cache */

/* How often each cell of a table of pairs by places was shown, and clicked. */
KERNEL(void, count_cells)(i8 n, i8 t, const i8 pair[n], const i8 place[n], const u1 clicks[n], i8 places, i4 counts[t][2]) {
    memset(counts, 0, (size_t)t * sizeof *counts);
    for (i8 i = 0; i < n; i++) {
        i4 *cell = counts[pair[i] * places + place[i]];
        cell[0]++;
        cell[1] += clicks[i] != 0;
    }
}

/* What some cells say, each by itself: how often the pair attracted and the place was looked at, and their log-likelihoods. */
INLINE f8 judge_cells(i8 m, const f8 *restrict shown, const f8 *restrict clicked, const f8 *restrict liked,
                      const f8 *restrict looked, bool wanted, f8 *restrict attracted, f8 *restrict examined) {
    f8 value[PART];
    for (i8 k = 0; k < m; k++) {
        const f8 both = liked[k] * looked[k], passed = shown[k] - clicked[k];
        const f8 rest = passed > 0.0 ? passed / (1.0 - both) : 0.0; /* a place always looked at, a pair always liked */
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

/* Adds for each pair of first…last the expected number of impressions in which it attracted (`attracted`), and for each
place those in which it was looked at (`examined`, of this block alone). The return value is the log-likelihood, where it
is wanted. `pair` is that of each cell. */
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
            f8 total = attracted[one]; /* of its cells in the part before */
            for (; k < stop; k++) {
                total += of_pair[k];
                examined[place[at + k]] += of_place[k];
            }
            attracted[one] = total;
        }
    }
    return value;
}

/* Σ a log x + b log(1 − x): the logarithm of a Beta prior's density, but for a constant. */
KERNEL(f8, beta_prior)(i8 n, const f8 x[n], f8 a, f8 b) {
    f8 total;
    SUM_OVER(n, total, a * log1(x[i]) + b * log1(1.0 - x[i]));
    return total;
}
