/* Sampling label vectors from known probabilities. Randomness is a counter without state (splitmix64). One
   instruction set is sufficient. */
#include "toprank.h"

/* The ideal DCG for these numbers of documents per grade: the ideal order takes the grades in blocks, so sorting is
   unnecessary. */
INLINE f8 ideal_of(i8 g, i8 cut, const i8 *counts, const f8 *gains, const i8 *by_gain, const f8 *depth) {
    f8 ideal = 0.0;
    for (i8 i = 0, rank = 0; i < g; i++) {
        i8 reached = least(rank + counts[by_gain[i]], cut);
        ideal += gains[by_gain[i]] * (depth[reached] - depth[rank]);
        rank = reached;
    }
    return ideal;
}

/* Accumulate G(y_j) / IDCG(y), and its square, over label vectors y sampled for the queries `first` to `last`
   (exclusive). `cumulative` is P(grade ≤ g) by document and grade, `gains` G by grade, `by_gain` the grades, largest
   gain first, `depth` Σ_{j ≤ r} 1/F(j) for r = 0 … cut-off. The seed and the query's number determine the samples. */
KERNEL(i8, sample_ratios)(i8 n, i8 g, i8 d, i8 q, const f8 cumulative[n][g], const f8 gains[g], const i8 by_gain[g],
                          const f8 depth[d], const i8 offsets[q + 1], i8 first, i8 last, i8 samples, u8 seed,
                          f8 total[n], f8 squares[n]) {
    first = least(most(first, 0), q);
    last = most(first, least(last, q));
    i8 *counts = scratch(g + longest_query(last - first, offsets + first), sizeof(i8)), *drawn;
    if (!counts) return OUT_OF_MEMORY;
    drawn = counts + g;
    for (i8 query = first; query < last; query++) {
        i8 start = offsets[query], stop = offsets[query + 1];
        u8 state = mixed(mixed(seed + GOLDEN) + (u8)query * GOLDEN);
        for (i8 sample = 0; sample < samples; sample++) {
            memset(counts, 0, (size_t)g * sizeof(i8));
            for (i8 j = start; j < stop; j++) {
                state += GOLDEN;
                f8 u = (f8)(mixed(state) >> 11) * 0x1p-53;
                i8 grade = 0;
                while (grade < g - 1 && u >= cumulative[j][grade]) grade++;
                drawn[j - start] = grade;
                counts[grade]++;
            }
            f8 ideal = ideal_of(g, d - 1, counts, gains, by_gain, depth);
            if (!(ideal > 0.0)) continue;
            for (i8 j = start; j < stop; j++) {
                f8 ratio = gains[drawn[j - start]] / ideal;
                total[j] += ratio;
                squares[j] += ratio * ratio;
            }
        }
    }
    give_back(counts);
    return 0;
}
