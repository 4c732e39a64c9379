/* Eight decimal numbers at once, for machines with AVX-512; others read them one by one (`quick_number`).

Each number occupies sixteen bytes, from its first byte on, and ends before the first blank in them. Read as a
number of sixteen digits (the point taken out, the minus for a 0, zeros behind it), it is 10^(16 − w) times its value,
with w bytes before the point. With fifteen bytes at most that integer is a multiple of 2 below 10^16, so an f8
holds it; 10^(16 − w) is exact too, and the quotient is rounded once and therefore right.

Masks with a bit for each byte give the bounds of the parts, four numbers in a word of 64: a lane of sixteen bits
that is not 0 loses its lowest bit, and gains those below it, by a subtraction of 1 that no other lane feels. */
#ifndef TOPRANK_EIGHT_DECIMALS_H
#define TOPRANK_EIGHT_DECIMALS_H

#include "decimals.h"

#ifdef __AVX512BW__
#include <immintrin.h>

/* Four parsed numbers: their digits in groups of four, a mask of the byte behind the integer part (the point, or the
   end) with the lowest bit for a minus, and an error mask: any bit means that the number needs the slow path. */
typedef struct {
    __m512i digits;
    u8 marks, odd;
} four_numbers;

#define FIRST_BITS 0x0001000100010001u
#define LAST_BITS 0x8000800080008000u

INLINE four_numbers read_four(__m512i bytes) {
    const __m512i from_zero = _mm512_sub_epi8(bytes, _mm512_set1_epi8('0'));
    const u8 digits = _mm512_cmple_epu8_mask(from_zero, _mm512_set1_epi8(9));
    const u8 ends = _mm512_cmple_epu8_mask(bytes, _mm512_set1_epi8(' '));
    const u8 points = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('.'));
    const u8 minus = _mm512_mask_cmpeq_epi8_mask(FIRST_BITS, bytes, _mm512_set1_epi8('-'));
    const u8 ends_at_last = ends | LAST_BITS, stops = points | ends_at_last;
    const u8 number = (ends_at_last - FIRST_BITS) & ~ends_at_last, whole = (stops - FIRST_BITS) & ~stops;
    const u8 mark = whole + FIRST_BITS, end = number + FIRST_BITS;
    u8 odd = number & ~(digits | minus | mark);         /* another byte, or a second point */
    odd |= (number << 1 & LAST_BITS) & ~ends;           /* longer than fifteen bytes */
    odd |= ((end >> 1) & ~digits) | (mark & FIRST_BITS); /* no digit before the end, or none before the point */
    const __m512i before = _mm512_maskz_mov_epi8(whole & digits, from_zero);
    const u8 behind = ((number & ~whole) >> 1) & ~whole; /* positions of the fractional digits */
    const __m512i sixteen = _mm512_mask_mov_epi8(before, behind, _mm512_bsrli_epi128(from_zero, 1));
    const __m512i pairs = _mm512_maddubs_epi16(sixteen, _mm512_set1_epi16(0x010a));
    return (four_numbers){_mm512_madd_epi16(pairs, _mm512_set1_epi32(0x00010064)), mark | minus, odd};
}

/* Load sixteen bytes each from four addresses. */
INLINE __m512i four_texts(const u1 *a, const u1 *b, const u1 *c, const u1 *d) {
    const __m512i first = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)a));
    const __m512i two = _mm512_inserti32x4(first, _mm_loadu_si128((const __m128i *)b), 1);
    const __m512i three = _mm512_inserti32x4(two, _mm_loadu_si128((const __m128i *)c), 2);
    return _mm512_inserti32x4(three, _mm_loadu_si128((const __m128i *)d), 3);
}

/* The numbers of two fours in turns, 0 and 1 being the first of each, and a bit for each that must be read otherwise.

They may be rounded once more, to f4. That goes wrong only for a decimal that is no border between two f4, but within
2^(e − 53) of one, an odd multiple m of 2^(e − 24). With d places behind the point it is at least 10^−d away where the
border has no more places; else r · 2^(e − 24) / 5^d, r odd: too far for d ≤ 12, and for r > 1 at d = 13, all that fifteen
bytes have room for. There remains r = 1: 5^d is 1 modulo 4, so m is 3 modulo 4 where the decimal is above, 1 where it is
below, and the even neighbor, to which the border is rounded, is the nearer one. */
INLINE __m512d join_fours(four_numbers even, four_numbers uneven, u4 *unread) {
    const __m512i eights = _mm512_packus_epi32(even.digits, uneven.digits);
    const __m512i halves = _mm512_madd_epi16(eights, _mm512_set1_epi32(0x00012710)); /* 10,000 and 1 */
    const __m512i high = _mm512_mul_epu32(halves, _mm512_set1_epi64(100000000));
    const __m512d all = _mm512_cvtepu64_pd(_mm512_add_epi64(high, _mm512_srli_epi64(halves, 32)));
    const __m128i marks = _mm_unpacklo_epi16(_mm_cvtsi64_si128((long long)even.marks),
                                             _mm_cvtsi64_si128((long long)uneven.marks));
    const __m512i wide = _mm512_cvtepu16_epi64(marks); /* 2^w, and 1 for a minus */
    /* Indexed by the number of zeros above 2^w: 63 − w, using four of its bits. */
    const __m512d tens = _mm512_permutex2var_pd(_mm512_setr_pd(1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8),
                                                _mm512_lzcnt_epi64(wide),
                                                _mm512_setr_pd(1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16));
    const __m512i quotients = _mm512_castpd_si512(_mm512_div_pd(all, tens));
    *unread = 0;
    if (UNLIKELY(even.odd | uneven.odd))
        for (int lane = 0; lane < 4; lane++) {
            *unread |= (u4)((even.odd >> 16 * lane & 0xFFFF) != 0) << 2 * lane;
            *unread |= (u4)((uneven.odd >> 16 * lane & 0xFFFF) != 0) << (2 * lane + 1);
        }
    return _mm512_castsi512_pd(_mm512_or_si512(quotients, _mm512_slli_epi64(wide, 63)));
}

/* Find the beginnings of tokens in a line: the blanks (or control bytes) up to the newline, counted from `text`; at
   least `wanted` of them unless the line ends. Eight more entries are written, all of them valid positions. */
INLINE i8 find_starts(const u1 *text, i8 end, i8 wanted, u4 *starts) {
    const i8 safe = least(end, 1 << 30) - 64 - 24; /* words and numbers may be read from there on */
    const __m512i sixteen = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    i8 found = 0;
    u8 newlines = 0;
    for (i8 seen = 0; seen <= safe && found < wanted && !newlines; seen += 64) {
        const __m512i bytes = _mm512_loadu_si512(text + seen);
        const u8 blanks = _mm512_cmple_epu8_mask(bytes, _mm512_set1_epi8(' '));
        newlines = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\n'));
        for (int part = 0; part < 64; part += 16) {
            const __m512i places = _mm512_add_epi32(sixteen, _mm512_set1_epi32((int)seen + part));
            const u4 here = (u4)(blanks >> part) & 0xFFFF;
            _mm512_storeu_si512(starts + found, _mm512_maskz_compress_epi32((__mmask16)here, places));
            found += __builtin_popcount(here);
        }
    }
    memset(starts + found, 0, 8 * sizeof *starts);
    return found;
}

/* Prevents the compiler from combining addresses in a wide register, from which each would have to be extracted
   again. */
INLINE const u1 *in_register(const u1 *place) {
    __asm__("" : "+r"(place));
    return place;
}

/* A bit for each of eight positions with another word than the expected one, as far as masks can detect it. */
INLINE u4 other_words(const u1 *text, const u4 *places, const u8 *known, const u8 *masks) {
    const __m512i even = four_texts(text + places[0], text + places[2], text + places[4], text + places[6]);
    const __m512i uneven = four_texts(text + places[1], text + places[3], text + places[5], text + places[7]);
    const __m512i words = _mm512_unpacklo_epi64(even, uneven);
    const __m512i off = _mm512_xor_si512(words, _mm512_loadu_si512(known));
    return _mm512_test_epi64_mask(off, _mm512_loadu_si512(masks));
}
#endif
#endif
