/* SVM-map: the worst ranking of each query under the structured hinge on average precision (losses/hinges.py). One
   instruction set is sufficient. */
#include "toprank.h"

typedef struct {
    i8 *good, *bad;                 /* documents, by decreasing score */
    f8 *good_scores, *turned;       /* turned[i]: irrelevant documents just above the i-th relevant one */
    f8 *places, *gains;             /* 1, 2, …; gain for each relevant document passed */
} Room;

/* The loss of one query; factor/(R·N) is added to `grad` for each pair that the worst ranking inverts. */
static f8 worst_ranking(const Room *room, i8 n_good, i8 n_bad, const f8 *scores, f8 factor, f8 *grad) {
    const f8 R = (f8)n_good, N = (f8)n_bad, step = factor / R / N;
    const f8 *restrict place = room->places, *restrict good = room->good_scores;
    f8 *restrict gains = room->gains, total = 0.0;
    for (i8 i = 0; i < n_good; i++) room->good_scores[i] = scores[room->good[i]];
    for (i8 i = 0; i <= n_good; i++) room->turned[i] = 0.0;
    for (i8 j = 0; j < n_bad; j++) {
        const f8 own = scores[room->bad[j]], above = (f8)j;
        for (i8 i = 0; i < n_good; i++) {
            f8 lost = place[i] / ((place[i] + above) * (place[i] + above + 1.0)); /* of AP, times R */
            gains[i] = (lost + 2.0 * (own - good[i]) / N) / R;
        }
        f8 gain = 0.0, best = 0.0;
        i8 stand = n_good;
        for (i8 i = n_good - 1; i >= 0; i--) {
            gain += gains[i];
            if (gain > best) {
                best = gain;
                stand = i;
            }
        }
        total += best;
        room->turned[stand] += 1.0;
        grad[room->bad[j]] += step * (f8)(n_good - stand);
    }
    f8 above = 0.0;
    for (i8 i = 0; i < n_good; i++) {
        above += room->turned[i];
        grad[room->good[i]] -= step * above;
    }
    return total;
}

/* Assign the mean of their subgradients to documents with equal scores: still a subgradient, by symmetry. */
static void share_among_ties(const f8 *scores, i8 n, const i8 *documents, f8 *grad) {
    i8 start = 0;
    for (i8 k = 1; k <= n; k++) {
        if (k < n && scores[documents[k]] == scores[documents[start]]) continue;
        f8 mean = 0.0;
        for (i8 i = start; i < k; i++) mean += grad[documents[i]] / (f8)(k - start);
        for (i8 i = start; i < k; i++) grad[documents[i]] = mean;
        start = k;
    }
}

/* The loss of each query, and its subgradient times the query's scale. `order` ranks each query's documents. */
KERNEL(i8, svm_map)
(i8 n, i8 q, const f8 scores[n], const i8 order[static n], const i8 offsets[q + 1], const u1 relevant[n],
 const f8 scale[q],
 f8 grad[n], f8 losses[q]) {
    const i8 longest = longest_query(q, offsets);
    i8 *documents = scratch(2 * longest, sizeof(i8));
    f8 *numbers = scratch(4 * longest + 1, sizeof(f8));
    if (!documents || !numbers) {
        give_back(documents);
        give_back(numbers);
        return OUT_OF_MEMORY;
    }
    f8 *places = numbers + longest, *gains = places + longest, *turned = gains + longest;
    const Room room = {documents, documents + longest, numbers, turned, places, gains};
    for (i8 i = 0; i < longest; i++) room.places[i] = (f8)(i + 1);
    for (i8 i = 0; i < n; i++) grad[i] = 0.0;
    for (i8 k = 0; k < q; k++) {
        i8 n_good = 0, n_bad = 0;
        for (i8 i = offsets[k]; i < offsets[k + 1]; i++) {
            if (relevant[order[i]]) room.good[n_good++] = order[i];
            else room.bad[n_bad++] = order[i];
        }
        losses[k] = 0.0;
        if (n_good == 0 || n_bad == 0) continue;
        losses[k] = worst_ranking(&room, n_good, n_bad, scores, 2.0 * scale[k], grad);
        share_among_ties(scores, n_good, room.good, grad);
        share_among_ties(scores, n_bad, room.bad, grad);
    }
    give_back(documents);
    give_back(numbers);
    return 0;
}
