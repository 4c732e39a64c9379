/* Rankings: documents of a query by score, highest first, down to the requested depth and to the end of a tied
   group. A cut-off needs no full sort. The documents are split into groups; `depth` groups have a best score of at
   least the depth-th largest of these, so no document below that bound can be among the best, and only few are above
   it (about 15 for a depth of 10, for any length of the list). These are sorted; they include everything tied with
   the last one. */
#include "sorting.h"
#include "vectors.h"

#define DEEPEST 64                    /* beyond this depth the whole query is sorted */
#define GROUPS(depth) (((depth) * 3 / 2 + 8) / 8 * 8)

/* Return a number that at least `depth` of the n ≥ depth scores reach, as large as the groups imply. */
INLINE f8 bound_by_groups(i8 n, const f8 *scores, i8 depth, const i8 groups) {
    f8xw best[GROUPS(DEEPEST) / WIDTH], bounds = all_w(INFINITY);
    f8 each[GROUPS(DEEPEST)], rest[GROUPS(DEEPEST)];
    const i8 vectors = groups / WIDTH, whole = n / groups * groups;
    for (i8 g = 0; g < groups; g++) rest[g] = -INFINITY;
    memcpy(rest, scores + whole, (size_t)(n - whole) * sizeof(f8));
    for (i8 v = 0; v < vectors; v++) best[v] = load_w(rest + v * WIDTH);
    for (i8 i = 0; i < whole; i += groups)
        for (i8 v = 0; v < vectors; v++) {
            const f8xw now = load_w(scores + i + v * WIDTH);
            best[v] = choose_w(now > best[v], now, best[v]);
        }
    memcpy(each, best, (size_t)groups * sizeof(f8));
    for (i8 v = 0; v < vectors; v++) {
        i8xw above = {0}; /* minus the number of groups above these */
        for (i8 g = 0; g < groups; g++) above += all_w(each[g]) > best[v];
        const f8xw candidates = choose_w(above > -depth, best[v], all_w(INFINITY));
        bounds = choose_w(candidates < bounds, candidates, bounds);
    }
    f8 bound = bounds[0];
    for (int lane = 1; lane < WIDTH; lane++) bound = smaller(bounds[lane], bound);
    return bound;
}

static f8 bound_of_best(i8 n, const f8 *scores, i8 depth) {
    switch (GROUPS(depth)) { /* loops of known size are unrolled and kept in registers */
        case 8: return bound_by_groups(n, scores, depth, 8);
        case 16: return bound_by_groups(n, scores, depth, 16);
        case 24: return bound_by_groups(n, scores, depth, 24);
        case 32: return bound_by_groups(n, scores, depth, 32);
        default: return bound_by_groups(n, scores, depth, GROUPS(depth));
    }
}

/* Collect the documents of a query whose scores are at least the bound, or NaN. */
INLINE i8 reaching(i8 n, const f8 *restrict scores, i8 start, f8 bound, f8 *restrict found, i8 *restrict numbers) {
    i8 count = 0;
    for (i8 i = 0; i < n; i++) {
        found[count] = scores[i];
        numbers[count] = start + i;
        count += !(scores[i] < bound);
    }
    return count;
}

/* Rank some queries; -1, or the number of a document whose score is NaN. `offsets` count from the first of the scores. */
KERNEL(i8, rank_queries)(i8 n, i8 q, i8 room, const f8 scores[n], const i8 offsets[q + 1], i8 depth, bool keep_ties,
                         i8 order[restrict room], bool ends[restrict room], i8 starts[restrict q + 1]) {
    i8 longest = longest_query(q, offsets), bad = -1, at = 0;
    Sorter sorter;
    f8 *found = scratch(longest, sizeof(f8));
    i8 *numbers = scratch(longest, sizeof(i8));
    if (!make_sorter(&sorter, longest) || !found || !numbers) bad = OUT_OF_MEMORY;
    starts[0] = 0;
    for (i8 query = 0; query < q && bad == -1; query++) {
        i8 start = offsets[query], m = offsets[query + 1] - start, wanted = least(depth, m);
        f8 bound = depth <= DEEPEST && 4 * depth <= m ? bound_of_best(m, scores + start, depth) : -INFINITY;
        const bool all = bound == -INFINITY;
        const f8 *candidates = all ? scores + start : found;
        i8 count = m, missing = 0;
        if (all)
            for (i8 i = 0; i < m; i++) numbers[i] = start + i;
        else
            count = reaching(m, scores + start, start, bound, found, numbers);
        for (i8 i = 0; i < count; i++) missing |= candidates[i] != candidates[i];
        if (UNLIKELY(missing)) {
            for (i8 i = count; i-- > 0;) bad = candidates[i] != candidates[i] ? numbers[i] : bad;
            break;
        }
        sort_down(count, candidates, numbers, &sorter);
        while (keep_ties && wanted < count && sorter.sorted[wanted] == sorter.sorted[wanted - 1]) wanted++;
        memcpy(order + at, sorter.order, (size_t)wanted * sizeof(i8));
        for (i8 i = 0; i < wanted - 1; i++) ends[at + i] = !keep_ties | (sorter.sorted[i] != sorter.sorted[i + 1]);
        ends[at + wanted - 1] = true; /* at least one is requested: no query is empty, and no depth is 0 */
        at += wanted;
        starts[query + 1] = at;
    }
    end_sorter(&sorter);
    give_back(found);
    give_back(numbers);
    return bad;
}
