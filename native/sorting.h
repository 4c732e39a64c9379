/* The only sort: largest first, equal values in the order in which they came. Comparisons alone decide, so the order is the
same on every machine. NaN has no place in an order: callers leave it out, and it does no harm but in the result. */
#ifndef TOPRANK_SORTING_H
#define TOPRANK_SORTING_H

#include "vectors.h"

#define COUNTED 32     /* up to so many values, comparing all pairs without a branch is fastest */
#define SPREAD 2       /* buckets for each value */
#define FULL_BUCKET 32 /* values in one bucket before merging beats insertion */

/* Memory to sort up to `n` values: what `sort_down` leaves in `sorted` and `order`, and its scratch. */
typedef struct {
    f8 *sorted, *other_sorted;
    i8 *order, *other_order, *heads;
} Sorter;

INLINE void end_sorter(Sorter *sorter) { give_back(sorter->sorted); }
INLINE bool make_sorter(Sorter *sorter, i8 n) {
    i8 room = (n + 7) / 8 * 8;
    f8 *all = scratch(room > INT64_MAX / 64 ? -1 : (4 + SPREAD) * room, sizeof(f8));
    *sorter = (Sorter){0};
    if (!all) return false;
    i8 *whole = (i8 *)(all + 2 * room);
    *sorter = (Sorter){all, all + room, whole, whole + room, whole + 2 * room};
    return true;
}

/* The place of a value is the number of values above it, and of equal ones before it. */
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

/* SPREAD · n buckets of equal width, highest values first, then insertion mends the order inside them: linear for values that
spread. False where one bucket is so full that insertion would be slow. */
static bool sort_by_buckets(i8 n, const f8 *restrict values, const i8 *restrict numbers, f8 high, f8 scale,
                            f8 *restrict sorted, i8 *restrict order, i8 *restrict heads) {
    const f8 last = (f8)(SPREAD * n - 1);
#define BUCKET_OF(value) ((i8)smaller((high - (value)) * scale, last))
    memset(heads, 0, (size_t)(SPREAD * n) * sizeof(i8));
    for (i8 i = 0; i < n; i++) heads[BUCKET_OF(values[i])]++;
    i8 before = 0, fullest = 0;
    for (i8 b = 0; b < SPREAD * n; b++) {
        const i8 here = heads[b];
        fullest = most(fullest, here);
        heads[b] = before;
        before += here;
    }
    if (fullest > FULL_BUCKET) return false;
    for (i8 i = 0; i < n; i++) {
        i8 place = heads[BUCKET_OF(values[i])]++;
        sorted[place] = values[i];
        order[place] = numbers[i];
    }
#undef BUCKET_OF
    for (i8 i = 1; i < n; i++) {
        f8 value = sorted[i];
        i8 number = order[i], j = i;
        for (; j > 0 && sorted[j - 1] < value; j--) {
            sorted[j] = sorted[j - 1];
            order[j] = order[j - 1];
        }
        sorted[j] = value;
        order[j] = number;
    }
    return true;
}

/* Runs of 1, 2, 4 … are merged from one array into the other; the result is brought home at the end. */
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
    f8 scale = (f8)(SPREAD * n - 1) / (high - low); /* 0 or NaN where the range is infinite, infinite where it is nothing */
    if (!(scale > 0.0 && scale < INFINITY) ||
        !sort_by_buckets(n, values, numbers, high, scale, sorter->sorted, sorter->order, sorter->heads))
        sort_by_merging(n, values, numbers, sorter);
}

#endif
