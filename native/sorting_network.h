/* Sort up to 256 values in registers, on machines with AVX-512, in the same order as `sort_down`. A value and its
   index fit into one integer: 56 bits that order like the values, the largest first, and eight bits of the index, so
   that the sort is stable. Sixty-four of them are sorted by a network without branches: columns of eight registers,
   then merges of two, four and eight registers; longer lists are merged from these. Values with equal 56 bits are
   fixed afterwards. */
#ifndef TOPRANK_SORTING_NETWORK_H
#define TOPRANK_SORTING_NETWORK_H

#include "toprank.h"

#ifdef __AVX512F__
#include <immintrin.h>

#define NETWORK 256 /* maximum number of values: indices have eight bits */

INLINE void exchange(__m512i *a, __m512i *b) {
    const __m512i low = _mm512_min_epu64(*a, *b);
    *b = _mm512_max_epu64(*a, *b);
    *a = low;
}

/* Merge two ascending halves of `n` registers into one ascending list: the second is reversed, so that the whole
   first rises and then falls; exchanges at successively halved distances sort such a list. */
INLINE void merge_halves(__m512i *v, const int n) {
    const __m512i backwards = _mm512_setr_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    for (int i = 0; i < n / 4; i++) {
        const __m512i turned = _mm512_permutexvar_epi64(backwards, v[n / 2 + i]);
        v[n / 2 + i] = _mm512_permutexvar_epi64(backwards, v[n - 1 - i]);
        v[n - 1 - i] = turned;
    }
    if (n == 2) v[1] = _mm512_permutexvar_epi64(backwards, v[1]);
    for (int distance = n / 2; distance > 0; distance /= 2)
        for (int i = 0; i < n; i++)
            if (!(i & distance)) exchange(v + i, v + i + distance);
    for (int i = 0; i < n; i++) { /* then within registers, at distances of four, two and one */
        const __m512i far = _mm512_shuffle_i64x2(v[i], v[i], 0x4E);
        v[i] = _mm512_mask_max_epu64(_mm512_min_epu64(v[i], far), 0xF0, v[i], far);
        const __m512i near = _mm512_permutex_epi64(v[i], 0x4E);
        v[i] = _mm512_mask_max_epu64(_mm512_min_epu64(v[i], near), 0xCC, v[i], near);
        const __m512i next = _mm512_shuffle_epi32(v[i], 0x4E);
        v[i] = _mm512_mask_max_epu64(_mm512_min_epu64(v[i], next), 0xAA, v[i], next);
    }
}

/* Sixty-four integers, ascending. */
static void sort_64(__m512i *keys) {
    static const u1 pairs[19][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2}, {1, 3}, {4, 6}, {5, 7}, {1, 2}, {5, 6},
                                    {0, 4}, {3, 7}, {1, 5}, {2, 6}, {1, 4}, {3, 6}, {2, 4}, {3, 5}, {3, 4}};
    __m512i v[8], w[8];
    for (int i = 0; i < 8; i++) v[i] = keys[i];
#pragma GCC unroll 19
    for (int i = 0; i < 19; i++) exchange(v + pairs[i][0], v + pairs[i][1]);
    for (int i = 0; i < 8; i += 2) { /* transpose: in pairs, fours and eights */
        w[i] = _mm512_unpacklo_epi64(v[i], v[i + 1]);
        w[i + 1] = _mm512_unpackhi_epi64(v[i], v[i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        v[i] = _mm512_shuffle_i64x2(w[i], w[i + 2], 0x88);
        v[i + 2] = _mm512_shuffle_i64x2(w[i], w[i + 2], 0xDD);
        v[i + 4] = _mm512_shuffle_i64x2(w[i + 4], w[i + 6], 0x88);
        v[i + 6] = _mm512_shuffle_i64x2(w[i + 4], w[i + 6], 0xDD);
    }
    for (int i = 0; i < 4; i++) {
        w[i] = _mm512_shuffle_i64x2(v[i], v[i + 4], 0x88);
        w[i + 4] = _mm512_shuffle_i64x2(v[i], v[i + 4], 0xDD);
    }
    for (int i = 0; i < 8; i += 2) merge_halves(w + i, 2);
    merge_halves(w, 4), merge_halves(w + 4, 4);
    merge_halves(w, 8);
    for (int i = 0; i < 8; i++) keys[i] = w[i];
}

/* sorted and order: n ≤ NETWORK values and their numbers, largest first. */
static void sort_by_network(i8 n, const f8 *restrict values, const i8 *restrict numbers, f8 *restrict sorted,
                            i8 *restrict order) {
    __m512i keys[NETWORK / 8];
    const i8 vectors = n <= 64 ? 8 : n <= 128 ? 16 : 32;
    const __m512i lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    for (i8 i = 0; i < vectors; i++) {
        const i8 left = most(0, least(8, n - 8 * i));
        const __mmask8 there = (__mmask8)((1u << left) - 1);
        /* Adding 0 turns −0 into 0. Positive numbers order by all bits but the sign, largest first after inversion;
           for negative ones the sign is set, and they are already in order. */
        const __m512d value = _mm512_add_pd(_mm512_maskz_loadu_pd(there, values + 8 * i), _mm512_setzero_pd());
        const __m512i bits = _mm512_castpd_si512(value);
        const __m512i turned = _mm512_andnot_si512(_mm512_srai_epi64(bits, 63), _mm512_set1_epi64(INT64_MAX));
        const __m512i high = _mm512_and_si512(_mm512_xor_si512(bits, turned), _mm512_set1_epi64(~INT64_C(255)));
        const __m512i key = _mm512_or_si512(high, _mm512_add_epi64(lanes, _mm512_set1_epi64(8 * i)));
        keys[i] = _mm512_mask_mov_epi64(_mm512_set1_epi64(-1), there, key);
    }
    for (i8 first = 0; first < n; first += 64) sort_64(keys + first / 8);
    if (n > 64) merge_halves(keys, 16);
    if (n > 192) merge_halves(keys + 16, 16);
    if (n > 128) merge_halves(keys, 32);
    const u8 *places = (const u8 *)keys;
    for (i8 i = 0; i < n; i++) {
        const i8 place = (i8)(places[i] & 255);
        sorted[i] = values[place];
        order[i] = numbers[place];
    }
}
#endif
#endif
