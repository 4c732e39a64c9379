/* Measures of tied rankings in closed form: the exact mean over all orders of the tied documents.

Every kernel walks the tied groups of a query in rank order. A group of g documents that starts after rank r holds each of its
documents at each of the ranks r + 1 … r + g with probability 1/g. Where no scores are tied all groups have one document, and
the formulas reduce to the plain definitions.

All share their first arguments: `order, ends, starts` (see `Ranked` in metrics/sorting.py), `codes` (the grade of each
document, as an index) and a table with one entry per grade. */
#include "owa.h"
#include "sorting.h"
#include "vectors.h"

/* Expected sum of precisions over the first `places` of a group of `size` with `hits` relevant documents. */
INLINE f8 precisions(i8 above, f8 hits_above, i8 size, f8 hits, i8 places) {
    if (size == 1) return hits * (hits_above + 1.0) / ((f8)above + 1.0); /* no branch on unpredictable conditions */
    if (hits == 0.0) return 0.0;
    f8 total = 0.0, slope = (hits - 1.0) / ((f8)size - 1.0);
    for (i8 t = 0; t < places; t++) total += (hits_above + 1.0 + slope * (f8)t) / ((f8)(above + t) + 1.0);
    return total * hits / (f8)size;
}

static f8 log_choose(i8 n, i8 k) {
    f8 total = 0.0;
    for (i8 i = 0; i < least(k, n - k); i++) total += log1((f8)(n - i) / ((f8)i + 1.0));
    return total;
}

/* The cut-off is inside a tied group: mean over the (hypergeometric) number h of hits within it. */
static f8 straddling_precision(f8 total, i8 above, f8 hits_above, i8 size, f8 hits, i8 places) {
    const i8 n_hits = (i8)hits;
    const f8 all = log_choose(size, places);
    f8 expected = 0.0;
    for (i8 h = most(0, places - (size - n_hits)); h <= least(places, n_hits); h++) {
        if (hits_above + (f8)h == 0.0) continue;
        const f8 probability = exp1(log_choose(n_hits, h) + log_choose(size - n_hits, places - h) - all);
        const f8 reached = total + precisions(above, hits_above, places, (f8)h, places);
        expected += probability * reached / (hits_above + (f8)h);
    }
    return expected;
}

#define NOBODY 1e-18 /* probabilities this small are negligible */

/* means[h]: the mean product over h-subsets of the x < 1, for h = 0, 1, … until it is negligible; return their
   number. */
static i8 mean_products(i8 size, const f8 *go_on, i8 r, f8 *means) {
    means[0] = 1.0;
    for (i8 h = 1; h <= r; h++) means[h] = 0.0;
    for (i8 i = 0, n = 0, top = 0; i < size; i++) {
        const f8 x = go_on[i];
        if (x >= 1.0) continue;
        n++;
        top = least(top + 1, r);
        for (i8 h = top; h > 0; h--) means[h] = means[h] * (f8)(n - h) / (f8)n + means[h - 1] * x * (f8)h / (f8)n;
        while (top > 1 && means[top] < NOBODY && means[top - 1] < NOBODY && n > 64) top--;
    }
    while (r > 0 && means[r] < NOBODY) r--;
    return r + 1;
}

/* Contribution of a tied group to ERR for a reader who enters it. Only documents that can satisfy (x = 1 − R < 1)
   matter, r of g. With ē_h the mean product over h of them, and P_t(h) the probability that h of them are among the
   first t documents, q_t = Σ_h P_t(h) ē_h. Both follow from recurrences without subtraction, so there is no
   cancellation; ē decreases, so large h are negligible. O((r + depth) · relevant h). */
static f8 err_of_group(i8 size, const f8 *go_on, i8 above, i8 limit, f8 *products, f8 *chances) {
    i8 r = 0;
    for (i8 i = 0; i < size; i++) r += go_on[i] < 1.0;
    const i8 n = mean_products(size, go_on, r, products);
    chances[0] = 1.0;
    for (i8 h = 1; h < n; h++) chances[h] = 0.0;
    f8 gained = 0.0, before = 1.0;
    for (i8 t = 1; t <= least(size, limit - above) && before >= NOBODY; t++) {
        const f8 left = (f8)(size - t + 1); /* documents that may be at position t */
        for (i8 h = n - 1; h >= 0; h--) {
            const f8 drawn = h > 0 ? chances[h - 1] * (f8)(r - h + 1) / left : 0.0;
            chances[h] = chances[h] * larger(0.0, left - (f8)(r - h)) / left + drawn;
        }
        f8 still = 0.0;
        for (i8 h = 0; h < n; h++) still += chances[h] * products[h];
        gained += (before - still) / (f8)(above + t);
        before = still;
    }
    return gained;
}

/* A Fenwick tree over the grades: count `amount` documents of a grade. */
INLINE void count_in(i8 grades, i8 *tree, i8 code, i8 amount) {
    for (i8 i = code + 1; i <= grades; i += i & -i) tree[i] += amount;
}

/* Count the documents with a grade code smaller than `code`. */
INLINE i8 counted_below(const i8 *tree, i8 code) {
    i8 total = 0;
    for (i8 i = code; i > 0; i -= i & -i) total += tree[i];
    return total;
}

/* cumulative[k] = Σ_{j≤k} α_j, see `owa_error`. */
static void add_up_weights(i8 n, i8 generator, f8 share, f8 *cumulative) {
    cumulative[0] = 0.0;
    ordered_weights(generator, share, n, cumulative + 1);
    for (i8 j = 1; j <= n; j++) cumulative[j] += cumulative[j - 1];
}

/* Results of `pair_counts`: pairs of different grades that are concordant, discordant, or tied in score; then the
   pairs of different grades, the pairs of different scores, and Spearman's ρ on mean ranks (NaN if a side is
   constant). */
CODES(PairCount, CONCORDANT, DISCORDANT, SCORE_TIES, LABEL_PAIRS, SCORE_PAIRS, SPEARMAN)

/* The largest possible Σ weights[j] · table[grade at j] of lists with these numbers of documents per grade;
   `best_first` lists the grades by their entry. */
KERNEL(void, ideal_sum)(i8 g, i8 w, i8 q, const i8 counts[q][g], const f8 table[g], const i8 best_first[g],
                        const f8 weights[w], f8 out[restrict q]) {
    for (i8 query = 0; query < q; query++) {
        f8 total = 0.0;
        for (i8 i = 0, rank = 0; i < g && rank < w; i++) {
            const f8 gain = table[best_first[i]];
            for (i8 stop = least(w, rank + counts[query][best_first[i]]); rank < stop; rank++)
                total += gain * weights[rank];
        }
        out[query] = total;
    }
}

/* Σ relevant[grade] over documents: integers, so the order of the sum does not matter. */
KERNEL(void, count_relevant)(i8 g, i8 q, const i8 counts[q][g], const f8 relevant[g], f8 out[restrict q]) {
    for (i8 query = 0; query < q; query++) {
        f8 total = 0.0;
        for (i8 grade = 0; grade < g; grade++) total += relevant[grade] * (f8)counts[query][grade];
        out[query] = total;
    }
}

#define CODE u1
#define NAMED(name) name##__u1
#include "metrics.inc"
#undef CODE
#undef NAMED
#define CODE i4
#define NAMED(name) name##__i4
#include "metrics.inc"
