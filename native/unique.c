/* Unique softmax: each document against all documents of lower grades (losses/unique.py).

Documents are sorted by rising label within each query; begin[i] counts the documents of lower grades than document i
(from its query's start), the document set of i consists of these and i itself, and c_i its weight: Σ_i c_i·log(1 +
Σ_{j<begin} e^{s_j − s_i}).

All exponentials of a group of equal labels are relative to the largest score below the group, so the sum over what lies
below is between 1 and m. From a group to the next better one that reference can only rise; `ratio` ≤ 1 carries sums over
lower documents upwards and sums over better documents' terms downwards, so nothing overflows in either direction. */
#include "sums.h"

/* Arrays over the documents of one query, in the order of their labels. */
typedef struct {
    f8 *e;      /* e^(s_j − the reference of the next better group) */
    f8 *ratio;  /* at a group's first place: e^(its reference − the next better group's) */
    f8 *below;  /* at a group's first place: the sum over everything below it */
    f8 *excess; /* s_i minus the reference of its group */
} Sums;

/* Return the position behind the group that begins at `first`. */
INLINE i8 group_end(i8 m, i8 first, const i8 *begin) {
    i8 end = first + 1;
    while (end < m && begin[end] == first) end++;
    return end;
}

static void sums_of(i8 m, const f8 *s, const i8 *begin, Sums at) {
    f8 reference = -INFINITY, lower = 0.0;
    for (i8 first = 0, end; first < m; first = end) {
        end = group_end(m, first, begin);
        f8 next = larger(reference, largest(end - first, s + first));
        for (i8 i = first; i < end; i++) at.excess[i] = first ? s[i] - reference : 0.0;
        for (i8 i = first; i < end; i++) at.e[i] = exp1(s[i] - next);
        at.ratio[first] = first ? exp1(reference - next) : 0.0;
        at.below[first] = lower;
        lower = lower * at.ratio[first] + sum(end - first, at.e + first);
        reference = next;
    }
}

/* A document's probability in its own set, and the factor of e^s of the others: 1/(below + e^excess). If the excess
   is large, e^excess is never computed. */
typedef struct {
    f8 own, each, loss;
} Share;

INLINE Share share_of(f8 below, f8 excess) {
    const f8 small = exp1(-fabs(excess));
    if (excess > 0.0) {
        const f8 others = below * small; /* relative to the document itself */
        return (Share){1.0 / (1.0 + others), small / (1.0 + others), log1p1(others)};
    }
    const f8 total = below + small;
    return (Share){small / total, 1.0 / total, log1(total) - excess};
}

/* Compute the loss of each query, and the gradient and the curvature's diagonal times the query's scale. */
KERNEL(i8, unique_sums)
(i8 n, i8 q, const f8 scores[n], const i8 offsets[q + 1], const i8 begin[n], const f8 weights[n], const f8 scale[q],
 f8 grad[n], f8 diagonal[n], f8 losses[q]) {
    const i8 longest = longest_query(q, offsets);
    f8 *room = scratch(4 * longest, sizeof(f8));
    if (!room) return OUT_OF_MEMORY;
    const Sums at = {room, room + longest, room + 2 * longest, room + 3 * longest};
    for (i8 k = 0; k < q; k++) {
        const i8 start = offsets[k], m = offsets[k + 1] - start;
        const i8 *from = begin + start;
        const f8 *c = weights + start;
        sums_of(m, scores + start, from, at);
        f8 *g = grad + start, *h = diagonal + start, loss = 0.0, once = 0.0, twice = 0.0;
        i8 end = m;
        while (end > 0) { /* from the best group downwards */
            const i8 first = from[end - 1];
            f8 more = 0.0, squares = 0.0;
            for (i8 i = first; i < end; i++) {
                const f8 e = at.e[i];
                g[i] = scale[k] * (e * once);
                h[i] = scale[k] * larger(e * (once - e * twice), 0.0);
                if (first == 0 || c[i] == 0.0) continue; /* alone in its set */
                const Share share = share_of(at.below[first], at.excess[i]);
                loss += c[i] * share.loss;
                g[i] += scale[k] * c[i] * (share.own - 1.0);
                h[i] += scale[k] * c[i] * share.own * (1.0 - share.own);
                more += c[i] * share.each;
                squares += c[i] * share.each * share.each;
            }
            once = once * at.ratio[first] + more;
            twice = twice * at.ratio[first] * at.ratio[first] + squares;
            end = first;
        }
        losses[k] = loss;
    }
    give_back(room);
    return 0;
}

/* The product of the curvature Σ_i c_i (diag(p) − p pᵀ), p the softmax over the set of i, and the columns of V. */
KERNEL(i8, unique_times)
(i8 n, i8 q, i8 width, const f8 scores[n], const i8 offsets[q + 1], const i8 begin[n], const f8 weights[n],
 const f8 scale[q], const f8 V[n][width], f8 product[n][width]) {
    const i8 longest = longest_query(q, offsets);
    f8 *room = scratch(4 * longest + 2 * width, sizeof(f8));
    if (!room) return OUT_OF_MEMORY;
    const Sums at = {room, room + longest, room + 2 * longest, room + 3 * longest};
    f8 *lower = room + 4 * longest, *means = lower + width;
    for (i8 k = 0; k < q; k++) {
        const i8 start = offsets[k], m = offsets[k + 1] - start;
        const i8 *from = begin + start;
        const f8 *c = weights + start;
        const f8(*v)[width] = V + start;
        f8(*out)[width] = product + start;
        sums_of(m, scores + start, from, at);
        /* Upwards: the row of a group's first document stores Σ e^s V over everything below the group. */
        for (i8 d = 0; d < width; d++) lower[d] = 0.0;
        for (i8 first = 0, end; first < m; first = end) {
            end = group_end(m, first, from);
            for (i8 d = 0; d < width; d++) out[first][d] = lower[d];
            for (i8 d = 0; d < width; d++) lower[d] *= at.ratio[first];
            for (i8 i = first; i < end; i++)
                for (i8 d = 0; d < width; d++) lower[d] += at.e[i] * v[i][d];
        }
        /* Downwards: a document is in its own set and in the sets of all better ones. */
        f8 once = 0.0;
        for (i8 d = 0; d < width; d++) means[d] = 0.0;
        i8 end = m;
        while (end > 0) {
            const i8 first = from[end - 1];
            f8 more = 0.0;
            for (i8 d = 0; d < width; d++) lower[d] = out[first][d];
            for (i8 i = first; i < end; i++)
                for (i8 d = 0; d < width; d++) out[i][d] = scale[k] * at.e[i] * (once * v[i][d] - means[d]);
            once *= at.ratio[first];
            for (i8 d = 0; d < width; d++) means[d] *= at.ratio[first];
            for (i8 i = first; first > 0 && i < end; i++) {
                if (c[i] == 0.0) continue;
                const Share share = share_of(at.below[first], at.excess[i]);
                for (i8 d = 0; d < width; d++) {
                    const f8 mean = share.own * v[i][d] + share.each * lower[d];
                    out[i][d] += scale[k] * c[i] * share.own * (v[i][d] - mean);
                    means[d] += c[i] * share.each * mean;
                }
                more += c[i] * share.each;
            }
            once += more;
            end = first;
        }
    }
    give_back(room);
    return 0;
}
