/* Sorting: largest first, stable. Only comparisons decide, so the order is the same on every machine. NaN cannot be
   ordered: callers must exclude it; otherwise only the result is affected. */
#ifndef TOPRANK_SORTING_H
#define TOPRANK_SORTING_H

#include "sorting_network.h"
#include "vectors.h"

#define COUNTED 32     /* maximum number of values for which comparing all pairs without a branch is fastest */
#define SPREAD 3       /* buckets for each value */
#define FULL_BUCKET 32 /* values in one bucket before merging beats insertion */
#define MOST_DEALT (1 << 28) /* maximum number of values: buckets are numbered in 32 bits */

/* Memory for sorting up to `n` values: the results of `sort_down` in `sorted` and `order`, and its scratch. */
typedef struct {
    f8 *sorted, *other_sorted;
    i8 *order, *other_order;
    i4 *buckets;
} Sorter;

INLINE void end_sorter(Sorter *sorter) { give_back(sorter->sorted); }
INLINE bool make_sorter(Sorter *sorter, i8 n) {
    i8 room = (n + 7) / 8 * 8;
    f8 *all = scratch(room > INT64_MAX / 64 ? -1 : (4 + SPREAD) * room, sizeof(f8));
    *sorter = (Sorter){0};
    if (!all) return false;
    i8 *whole = (i8 *)(all + 2 * room);
    *sorter = (Sorter){all, all + room, whole, whole + room, (i4 *)(whole + 2 * room)};
    return true;
}

/* The rank of a value is the number of values above it, and of equal ones before it. */
static void sort_by_counting(i8 n, const f8 *restrict values, const i8 *restrict numbers, f8 *restrict sorted,
                             i8 *restrict order) {
    f8 all[COUNTED + WIDTH];
    i8 places[COUNTED + WIDTH];
    for (i8 i = 0; i < n; i++) all[i] = values[i];
    for (i8 i = n; i < n + WIDTH; i++) all[i] = -INFINITY;
    i8xw lanes;
    for (int lane = 0; lane < WIDTH; lane++) lanes[lane] = lane;
    for (i8 first = 0; first < n; first += WIDTH) {
        const f8xw these = load_w(all + first);
        i8xw above = {0}; /* minus the number of values above these */
        for (i8 j = 0; j < first; j++) above += all_w(all[j]) >= these;
        for (i8 j = first; j < n; j++) above += all_w(all[j]) > these;
        for (int j = 0; j < WIDTH; j++) above += (all_w(these[j]) == these) & (lanes > j);
        above = -above;
        memcpy(places + first, &above, sizeof above);
    }
    for (i8 i = 0; i < n; i++) {
        sorted[places[i]] = all[i];
        order[places[i]] = numbers[i];
    }
}

/* counts[b] = number of values in buckets before b, of the n ≤ 255 that are counted: eight bytes are added at a
   time, by a product. Return whether no bucket contains more than `full`. */
INLINE bool add_up_bytes(i8 words, u1 *counts, u1 full) {
    u1 fullest = 0;
    for (i8 b = 0; b < 8 * words; b++) fullest = counts[b] > fullest ? counts[b] : fullest;
    u8 before = 0;
    for (i8 word = 0; word < words; word++) {
        u8 here;
        memcpy(&here, counts + 8 * word, 8);
        const u8 up_to = here * 0x0101010101010101, firsts = (up_to << 8) + before * 0x0101010101010101;
        memcpy(counts + 8 * word, &firsts, 8);
        before += up_to >> 56;
    }
    return fullest <= full;
}

INLINE bool add_up(i8 buckets, i4 *counts, i4 full) {
    i4 before = 0, fullest = 0;
    for (i8 b = 0; b < buckets; b++) {
        const i4 here = counts[b];
        fullest = here > fullest ? here : fullest;
        counts[b] = before;
        before += here;
    }
    return fullest <= full;
}

/* Insertion sort for nearly sorted values. */
INLINE void insert_misplaced(i8 n, f8 *restrict sorted, i8 *restrict order) {
    for (i8 i = 1; i < n; i++) {
        const f8 value = sorted[i];
        if (LIKELY(!(sorted[i - 1] < value))) continue;
        const i8 number = order[i];
        i8 j = i;
        for (; j > 0 && sorted[j - 1] < value; j--) {
            sorted[j] = sorted[j - 1];
            order[j] = order[j - 1];
        }
        sorted[j] = value;
        order[j] = number;
    }
}

/* SPREAD · n buckets of equal width, highest values first, then insertion sort within them: linear for spread-out
   values. Return false if one bucket is so full that insertion would be slow. */
static bool sort_by_buckets(i8 n, const f8 *restrict values, const i8 *restrict numbers, f8 high, f8 scale,
                            f8 *restrict sorted, i8 *restrict order, i4 *restrict buckets) {
    const f8 last = (f8)(SPREAD * n - 1);
    for (i8 i = 0; i < n; i++) buckets[i] = (i4)smaller((high - values[i]) * scale, last);
    const i8 words = (SPREAD * n + 7) / 8;
#define DEAL(counts)                                \
    for (i8 i = 0; i < n; i++) {                    \
        const i8 place = (counts)[buckets[i]]++;    \
        sorted[place] = values[i];                  \
        order[place] = numbers[i];                  \
    }
    if (n <= 255) {
        u1 *counts = (u1 *)(buckets + n);
        memset(counts, 0, (size_t)(8 * words));
        for (i8 i = 0; i < n; i++) counts[buckets[i]]++;
        if (!add_up_bytes(words, counts, FULL_BUCKET)) return false;
        DEAL(counts)
    } else {
        i4 *counts = buckets + n;
        memset(counts, 0, (size_t)(SPREAD * n) * sizeof(i4));
        for (i8 i = 0; i < n; i++) counts[buckets[i]]++;
        if (!add_up(SPREAD * n, counts, FULL_BUCKET)) return false;
        DEAL(counts)
    }
#undef DEAL
    /* Most buckets contain one or two values, and the order of two is unpredictable: one pass without a branch
       carries the smaller one on. Then little is left for insertion, whose branch is nearly always the same. */
    f8 carried = sorted[0];
    i8 carried_number = order[0];
    for (i8 i = 1; i < n; i++) {
        const f8 value = sorted[i];
        const i8 number = order[i];
        const i8 turned = -(i8)(carried < value), changes = (number ^ carried_number) & turned;
        sorted[i - 1] = larger(value, carried);
        carried = smaller(value, carried);
        order[i - 1] = carried_number ^ changes;
        carried_number = number ^ changes;
    }
    sorted[n - 1] = carried;
    order[n - 1] = carried_number;
    insert_misplaced(n, sorted, order);
    return true;
}

/* Merge runs of 1, 2, 4 … from one array into the other; copy the result back at the end if needed. */
static void sort_by_merging(i8 n, const f8 *values, const i8 *numbers, Sorter *sorter) {
    f8 *from = sorter->sorted, *to = sorter->other_sorted;
    i8 *from_order = sorter->order, *to_order = sorter->other_order;
    memcpy(from, values, (size_t)n * sizeof(f8));
    memcpy(from_order, numbers, (size_t)n * sizeof(i8));
    for (i8 width = 1; width < n; width *= 2) {
        for (i8 start = 0; start < n; start += 2 * width) {
            i8 middle = least(start + width, n), stop = least(start + 2 * width, n), left = start, right = middle;
            for (i8 at = start; at < stop; at++) {
                bool take_right = left == middle || (right < stop && from[right] > from[left]);
                i8 taken = take_right ? right : left;
                to[at] = from[taken];
                to_order[at] = from_order[taken];
                right += take_right;
                left += !take_right;
            }
        }
        f8 *swapped = from;
        from = to, to = swapped;
        i8 *swapped_order = from_order;
        from_order = to_order, to_order = swapped_order;
    }
    if (from != sorter->sorted) {
        memcpy(sorter->sorted, from, (size_t)n * sizeof(f8));
        memcpy(sorter->order, from_order, (size_t)n * sizeof(i8));
    }
}

/* sorter->sorted and sorter->order: the values and their numbers, largest first. */
static void sort_down(i8 n, const f8 *values, const i8 *numbers, Sorter *sorter) {
    if (n <= COUNTED) {
        sort_by_counting(n, values, numbers, sorter->sorted, sorter->order);
        return;
    }
#ifdef __AVX512F__
    if (n <= NETWORK) {
        sort_by_network(n, values, numbers, sorter->sorted, sorter->order);
        i8 misplaced = 0;
        for (i8 i = 1; i < n; i++) misplaced |= sorter->sorted[i - 1] < sorter->sorted[i];
        if (UNLIKELY(misplaced)) insert_misplaced(n, sorter->sorted, sorter->order);
        return;
    }
#endif
    f8 highs[8], lows[8];
    for (int lane = 0; lane < 8; lane++) highs[lane] = lows[lane] = values[0];
    i8 i = 0;
    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; lane++) {
            highs[lane] = larger(values[i + lane], highs[lane]);
            lows[lane] = smaller(values[i + lane], lows[lane]);
        }
    for (; i < n; i++) highs[0] = larger(values[i], highs[0]), lows[0] = smaller(values[i], lows[0]);
    f8 high = highs[0], low = lows[0];
    for (int lane = 1; lane < 8; lane++) high = larger(high, highs[lane]), low = smaller(low, lows[lane]);
    f8 scale = (f8)(SPREAD * n - 1) / (high - low); /* 0 or NaN if the range is infinite, infinite if it is 0 */
    if (!(scale > 0.0 && scale < INFINITY) || n > MOST_DEALT ||
        !sort_by_buckets(n, values, numbers, high, scale, sorter->sorted, sorter->order, sorter->buckets))
        sort_by_merging(n, values, numbers, sorter);
}

#endif
