/* Resampling loops: sign flips and the bootstrap. Randomness is a counter without state (splitmix64). */
#include "vectors.h"

/* GROUP: differences whose 256 signed sums are tabulated; one byte of randomness selects one. FLIPS_PER_BLOCK: 16 KB
   of running sums, which fit in the first-level cache together with the 2 KB table. */
CODES(Flips, GROUP = 8, FLIPS_PER_BLOCK = 2048)

/* Random word number i of the stream that begins at `start`. */
INLINE u8 word(u8 start, u8 i) {
    return mixed(start + i * GOLDEN);
}

/* table[m] = Σ_j ±differences[j], the sign of j being bit j of m; added in the order of j. */
INLINE void signed_sums(const f8 *differences, f8 *table) {
    table[0] = 0.0;
    for (int j = 0, filled = 1; j < GROUP; j++, filled *= 2)
        for (int m = 0; m < filled; m++) {
            table[m + filled] = table[m] + differences[j];
            table[m] -= differences[j];
        }
}

/* The sum of the differences in the order used by `flip_hits`. */
KERNEL(f8, ordered_sum)(i8 g, const f8 differences[8 * g]) {
    f8 table[1 << GROUP], total = 0.0;
    for (i8 first = 0; first < GROUP * g; first += GROUP) {
        signed_sums(differences + first, table);
        total += table[(1 << GROUP) - 1];
    }
    return total;
}

/* Count the first `flips` random sign flips of a block whose absolute sum is at least `threshold`. */
KERNEL(i8, flip_hits)(i8 g, const f8 differences[8 * g], f8 threshold, u8 start, i8 block, i8 flips) {
    f8 totals[FLIPS_PER_BLOCK] = {0}, table[1 << GROUP];
    const i8 words = FLIPS_PER_BLOCK / 8;
    u8 position = (u8)block * (u8)g * (u8)words;
    for (i8 first = 0; first < GROUP * g; first += GROUP) {
        signed_sums(differences + first, table);
        for (i8 w = 0; w < words; w++) {
            u8 bits = word(start, position + (u8)w);
            for (int byte = 0; byte < 8; byte++) totals[8 * w + byte] += table[(bits >> (8 * byte)) & 0xFF];
        }
        position += (u8)words;
    }
    i8 hits = 0;
    for (i8 flip = 0; flip < flips; flip++) hits += fabs(totals[flip]) >= threshold;
    return hits;
}

/* Mean and variance (n − 1 in the denominator) of the bootstrap samples number `first`, `first` + 1, … One word
   yields two draws: the product of n and 32 random bits, without its low half, is a number below n whose bias is
   under n/2³². Values should be centered near 0: the variance is computed from the sum of squares. */
KERNEL(void, resampled_moments)(i8 n, i8 r, const f8 values[n], u8 start, i8 first, f8 means[r], f8 variances[r]) {
    const i8 words = (n + 1) / 2;
    for (i8 sample = 0; sample < r; sample++) {
        u8 position = (u8)(first + sample) * (u8)words;
        f8 even = 0.0, odd = 0.0, even_squares = 0.0, odd_squares = 0.0;
        for (i8 w = 0; w < n / 2; w++) {
            u8 bits = word(start, position + (u8)w);
            f8 one = values[((bits & 0xFFFFFFFF) * (u8)n) >> 32], two = values[((bits >> 32) * (u8)n) >> 32];
            even += one;
            odd += two;
            even_squares += one * one;
            odd_squares += two * two;
        }
        if (n % 2 == 1) {
            f8 one = values[((word(start, position + (u8)words - 1) & 0xFFFFFFFF) * (u8)n) >> 32];
            even += one;
            even_squares += one * one;
        }
        f8 mean = (even + odd) / (f8)n;
        means[sample] = mean;
        variances[sample] = larger(0.0, (even_squares + odd_squares - (f8)n * mean * mean) / (f8)(n - 1));
    }
}

/* Weighted mean and n times its squared error of the bootstrap samples number `first`, `first` + 1, …: a query is
   drawn together with its weight, with the same draws as `resampled_moments`. The error of the mean m = Σwv / Σw is
   √(Σw²(v − m)² n/(n − 1)) / Σw, to first order. Weights must be positive. */
KERNEL(void, resampled_ratios)(i8 n, i8 r, const f8 values[n], const f8 weights[n], u8 start, i8 first, f8 means[r],
                               f8 variances[r]) {
    const i8 words = (n + 1) / 2;
    for (i8 sample = 0; sample < r; sample++) {
        u8 position = (u8)(first + sample) * (u8)words;
        f8 total = 0.0, sum = 0.0, squares = 0.0, once = 0.0, twice = 0.0;
        for (i8 drawn = 0; drawn < n; drawn++) {
            u8 bits = word(start, position + (u8)(drawn / 2)) >> (32 * (drawn % 2));
            i8 at = (i8)(((bits & 0xFFFFFFFF) * (u8)n) >> 32);
            f8 w = weights[at], v = values[at];
            total += w;
            sum += w * v;
            squares += w * w;
            once += w * w * v;
            twice += w * w * v * v;
        }
        f8 mean = sum / total, n8 = (f8)n;
        means[sample] = mean;
        f8 spread = larger(0.0, twice - 2 * mean * once + mean * mean * squares);
        variances[sample] = spread * n8 / (n8 - 1) * n8 / (total * total);
    }
}
