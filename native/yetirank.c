/* YetiRank: neighbors in noisy orders of a query, as logistic pairs (losses/yetirank.py).

Each of P orders sorts s + log(u/(1 − u)), u from a counter: a word that mixes the order's key with the document's place in
its query, so that results do not depend on the order of computation. Neighbors at ranks k and k + 1 (from 0) whose gains
differ are a pair of weight |difference of gains| · drop_k · state / P. `drops` contains the weight of a step down at
each rank; `state` is the factor due to the documents above:

    PLAIN      1 (YetiRank itself, NDCG)
    HITS       the number of relevant documents down to rank k, as if the pair's better one were there (AP)
    FIRST      1 until a relevant document has passed, then 0 (RR)
    READING    the probability that a reader reaches rank k, Π (1 − R) (ERR)

These are the changes of the metrics if the two neighbors are swapped.

With d = s_better − s_worse a pair's loss is log(1 + e^(−d)); its slope −ξ and curvature ξ(1 − ξ), ξ = 1/(1 + e^d). The
orders come from `base`, the losses from `scores`: two arrays, so that a line search can hold the pairs fixed. */
#include "sorting.h"

CODES(RankState, PLAIN, HITS, FIRST, READING)

/* A number for each position of a query, uniform in (0, 1): 52 bits and a half, so strictly inside, without
   rounding. */
INLINE f8 uniform_at(u8 key, i8 place) {
    return ((f8)(i8)(mixed(key + (u8)(place + 1) * GOLDEN) >> 12) + 0.5) * 0x1p-52;
}

/* The key of order (or sample) `number` of a query. */
INLINE u8 key_of(u8 key, i8 number) { return mixed(key + (u8)(number + 1) * GOLDEN); }

/* Gumbel noise −log(−log u) of a sample, by query key and document position (losses/composed.py). */
KERNEL(void, gumbel_noise)
(i8 n, i8 q, const i8 offsets[q + 1], const u8 keys[q], i8 number, f8 noise[n]) {
    for (i8 i = 0; i < q; i++) {
        const i8 m = offsets[i + 1] - offsets[i];
        const u8 key = key_of(keys[i], number);
        f8 *restrict at = noise + offsets[i];
        for (i8 j = 0; j < m; j++) at[j] = uniform_at(key, j);
        for (i8 j = 0; j < m; j++) at[j] = -log1(-log1(at[j]));
    }
}

/* The pairs of one order: documents and weights. */
typedef struct {
    f8 *noisy, *weight, *slope, *loss;
    i8 *place, *better, *worse;
    Sorter sorter;
} Room;

static bool make_room(Room *room, i8 m) {
    *room = (Room){0};
    room->noisy = scratch(4 * m, sizeof(f8));
    room->place = scratch(3 * m, sizeof(i8));
    if (!room->noisy || !room->place || !make_sorter(&room->sorter, m)) return false;
    room->weight = room->noisy + m, room->slope = room->noisy + 2 * m, room->loss = room->noisy + 3 * m;
    room->better = room->place + m, room->worse = room->place + 2 * m;
    for (i8 j = 0; j < m; j++) room->place[j] = j;
    return true;
}

static i8 leave(Room *room, i8 answer) {
    give_back(room->noisy);
    give_back(room->place);
    end_sorter(&room->sorter);
    return answer;
}

typedef struct {
    i8 kind, orders;
    bool weighted;
    const f8 *drops;
} Options;

/* One query: base scores, gains, the metric's terms, and weights of its documents. */
typedef struct {
    i8 m;
    u8 key;
    const f8 *base, *gains, *reads, *weights;
} Query;

/* Compute the pairs of order `number`; return their number. */
static i8 pairs_of(const Options *options, const Query *of, i8 number, Room *room) {
    const i8 m = of->m;
    const u8 key = key_of(of->key, number);
    for (i8 j = 0; j < m; j++) {
        const f8 u = uniform_at(key, j);
        room->noisy[j] = u / (1.0 - u);
    }
    for (i8 j = 0; j < m; j++) room->noisy[j] = of->base[j] + log1(room->noisy[j]);
    sort_down(m, room->noisy, room->place, &room->sorter);
    const i8 *order = room->sorter.order;
    f8 state = 1.0;
    i8 count = 0;
    for (i8 k = 0; k + 1 < m; k++) {
        const i8 a = order[k], b = order[k + 1];
        const f8 difference = of->gains[a] - of->gains[b], weight = fabs(difference) * options->drops[k] * state;
        if (weight > 0.0) {
            room->better[count] = difference > 0.0 ? a : b;
            room->worse[count] = difference > 0.0 ? b : a;
            room->weight[count++] = options->weighted ? weight * of->weights[a] * of->weights[b] : weight;
        }
        const f8 read = of->reads[a];
        if (options->kind == HITS) state += read;
        if (options->kind == FIRST) state = read > 0.0 ? 0.0 : state;
        if (options->kind == READING) state *= 1.0 - read;
    }
    return count;
}

static Query query_at(i8 i, bool weighted, const i8 *offsets, const u8 *keys, const f8 *base, const f8 *gains,
                      const f8 *reads, const f8 *weights) {
    const i8 from = offsets[i];
    return (Query){offsets[i + 1] - from, keys[i], base + from, gains + from, reads + from, weighted ? weights + from : weights};
}

/* Slope ξ of each pair, and its loss if requested: log(1 + e^(−d)) = max(−d, 0) + log(1 + e^(−|d|)). */
static void judge(i8 count, const f8 *scores, bool with_losses, Room *room) {
    f8 *restrict slope = room->slope, *restrict loss = room->loss;
    for (i8 p = 0; p < count; p++) slope[p] = scores[room->better[p]] - scores[room->worse[p]];
    if (with_losses)
        for (i8 p = 0; p < count; p++) loss[p] = (slope[p] < 0.0 ? -slope[p] : 0.0) + log1p1(exp1(-fabs(slope[p])));
    for (i8 p = 0; p < count; p++) {
        f8 small = exp1(-fabs(slope[p])), share = 1.0 / (1.0 + small);
        slope[p] = slope[p] > 0.0 ? small * share : share;
    }
}

/* Compute the loss of each query, and d/ds and the diagonal of d²/ds² of each document, times the query's `scale`.
   `weights` may be empty: all are 1. `drops` is as long as the longest query. */
KERNEL(i8, yeti_sums)(i8 n, i8 q, i8 w, i8 r, const f8 scores[n], const f8 base[n], const i8 offsets[q + 1],
                      const u8 keys[q], const f8 gains[n], const f8 reads[n], const f8 weights[w], const f8 drops[r],
                      i8 kind, i8 orders, u1 with_losses, const f8 scale[q], f8 grad[n], f8 diagonal[n], f8 losses[q]) {
    const Options options = {kind, orders, w == n, drops};
    Room room;
    if (!make_room(&room, longest_query(q, offsets))) return leave(&room, OUT_OF_MEMORY);
    for (i8 i = 0; i < q; i++) {
        const Query of = query_at(i, options.weighted, offsets, keys, base, gains, reads, weights);
        f8 *restrict force = grad + offsets[i], *restrict bend = diagonal + offsets[i], total = 0.0;
        const f8 each = scale[i] / (f8)orders;
        memset(force, 0, (size_t)of.m * sizeof(f8));
        memset(bend, 0, (size_t)of.m * sizeof(f8));
        for (i8 number = 0; number < orders; number++) {
            const i8 count = pairs_of(&options, &of, number, &room);
            judge(count, scores + offsets[i], with_losses, &room);
            for (i8 p = 0; p < count; p++) {
                const i8 better = room.better[p], worse = room.worse[p];
                const f8 slope = room.slope[p], push = each * room.weight[p] * slope, curve = push * (1.0 - slope);
                force[better] -= push;
                force[worse] += push;
                bend[better] += curve;
                bend[worse] += curve;
            }
            if (with_losses)
                for (i8 p = 0; p < count; p++) total += room.weight[p] * room.loss[p];
        }
        losses[i] = total / (f8)orders;
    }
    return leave(&room, 0);
}

/* H·V: a pair of curvature c adds c·(V_better − V_worse) to the better one. */
KERNEL(i8, yeti_product)(i8 n, i8 q, i8 w, i8 r, i8 c, const f8 scores[n], const f8 base[n], const i8 offsets[q + 1],
                         const u8 keys[q], const f8 gains[n], const f8 reads[n], const f8 weights[w], const f8 drops[r],
                         i8 kind, i8 orders, const f8 scale[q], const f8 V[n][c], f8 out[n][c]) {
    const Options options = {kind, orders, w == n, drops};
    Room room;
    if (!make_room(&room, longest_query(q, offsets))) return leave(&room, OUT_OF_MEMORY);
    memset(out, 0, (size_t)(n * c) * sizeof(f8));
    for (i8 i = 0; i < q; i++) {
        const Query of = query_at(i, options.weighted, offsets, keys, base, gains, reads, weights);
        const f8 each = scale[i] / (f8)orders;
        for (i8 number = 0; number < orders; number++) {
            const i8 count = pairs_of(&options, &of, number, &room);
            judge(count, scores + offsets[i], false, &room);
            for (i8 p = 0; p < count; p++) {
                const f8 slope = room.slope[p], curve = each * room.weight[p] * slope * (1.0 - slope);
                const f8 *up = V[offsets[i] + room.better[p]], *down = V[offsets[i] + room.worse[p]];
                f8 *to_better = out[offsets[i] + room.better[p]], *to_worse = out[offsets[i] + room.worse[p]];
                for (i8 k = 0; k < c; k++) {
                    const f8 flow = curve * (up[k] - down[k]);
                    to_better[k] += flow;
                    to_worse[k] -= flow;
                }
            }
        }
    }
    return leave(&room, 0);
}
