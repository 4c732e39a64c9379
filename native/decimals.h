/* Decimal text to binary numbers, correctly rounded, at the speed of the memory.

`read_number` turns the text of one number into the nearest f8 (or, with `single`, an f8 that holds the nearest f4). It
has three steps, each used only if the previous one cannot guarantee the correct result:

1. The digits form an integer m < 2^53 and the power of ten is at most 10^22: both are exact, so m / 10^k or m · 10^k is
   rounded once and therefore right.
2. m < 2^64 and the power is at most 10^27: m · 5^k fits in 128 bits, and so does the quotient of m · 2^64 by 5^k, whose
   remainder shows whether the quotient is exact; rounding needs only this and the leading 64 bits.
3. The same with integers of any length, of the first 800 digits (a border between two f8 has 767 at most).

Digits are read eight at a time: the bytes of a 64-bit word are tested and combined by ordinary integer arithmetic. */
#ifndef TOPRANK_DECIMALS_H
#define TOPRANK_DECIMALS_H

#include <float.h>

#include "toprank.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

typedef unsigned __int128 u128;

/* Result of `read_number`. HUGE_NUMBER: too large for its type. */
enum { NUMBER, MISSING, INFINITE, HUGE_NUMBER, BAD };

#define WINDOW 40 /* bytes that the fast paths may read: sign, 8 + 24 digits, the point and the byte after them */
#define MOST_DIGITS 800
#define LIMBS 256 /* of 32 bits: 800 digits need 84, and 10^-1181 brings 151 more */

static const f8 TEN_TO[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
static const u8 FIVE_TO[28] = {
    1, 5, 25, 125, 625, 3125, 15625, 78125, 390625, 1953125, 9765625, 48828125, 244140625, 1220703125, 6103515625,
    30517578125, 152587890625, 762939453125, 3814697265625, 19073486328125, 95367431640625, 476837158203125,
    2384185791015625, 11920928955078125, 59604644775390625, 298023223876953125, 1490116119384765625,
    7450580596923828125};
static const u8 SMALL_TENS[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

/* Load eight bytes as one little-endian integer. */
INLINE u8 word_at(const u1 *text) {
    u8 word;
    memcpy(&word, text, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Return the number with these eight digits (bytes from 0 to 9, the first in the lowest byte): combined by pairs,
   fours and eights. */
INLINE u8 eight_digits(u8 x) {
    u8 pairs = x * 10 + (x >> 8);
    u8 upper = (pairs & 0x000000FF000000FF) * 0x000F424000000064;
    u8 lower = ((pairs >> 16) & 0x000000FF000000FF) * 0x0000271000000001;
    return (upper + lower) >> 32;
}

/* Return the number of digits among the eight bytes before the first other byte, and their value. After xor with '0'
   a digit is a byte from 0 to 9, and adding 0x76 sets the top bit of any other byte; a carry only affects bytes
   behind the first one found. The digits are then shifted to the end of the word, with leading zeros. */
INLINE i8 digits_at(const u1 *text, u8 *number) {
    u8 x = word_at(text) ^ 0x3030303030303030;
    u8 others = ((x + 0x7676767676767676) | x) & 0x8080808080808080;
    int n = others ? __builtin_ctzll(others) >> 3 : 8;
    *number = n ? eight_digits(x << (64 - 8 * n)) : 0;
    return n;
}

/* Return whether a number may end before this byte: a blank, any control byte, or the start of a comment. */
INLINE bool ends_token(u1 byte) { return byte <= 32 || byte == '#'; }

/* Compute three masks of sixteen bytes, bit i for byte i: end of a line or word (or any control byte), non-digits,
   and points. */
typedef struct {
    u4 ends, others, points;
} masks;

/* Gather the top bit of each byte: a product by 2^56 + 2^49 + … + 2^7 moves bit 8i to 56 + i. */
INLINE u4 top_bits(u8 tops) { return (u4)(((tops >> 7) * 0x0102040810204080) >> 56); }

INLINE masks masks_of_16(const u1 *text) {
#ifdef __SSE2__
    __m128i bytes = _mm_loadu_si128((const __m128i *)text), from_zero = _mm_sub_epi8(bytes, _mm_set1_epi8('0'));
    __m128i end = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(' ')), bytes);
    __m128i digit = _mm_cmpeq_epi8(_mm_min_epu8(from_zero, _mm_set1_epi8(9)), from_zero);
    __m128i point = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('.'));
    return (masks){(u4)_mm_movemask_epi8(end), (u4)_mm_movemask_epi8(digit) ^ 0xFFFF, (u4)_mm_movemask_epi8(point)};
#else
    const u8 ones = 0x0101010101010101, low = 0x7F * ones, top = 0x80 * ones;
    masks found = {0, 0, 0};
    for (int half = 0; half < 2; half++) {
        u8 bytes = word_at(text + 8 * half), digit = bytes ^ '0' * ones, point = bytes ^ '.' * ones;
        found.ends |= top_bits(~(((bytes & low) + 0x5F * ones) | bytes) & top) << 8 * half;
        found.others |= top_bits((((digit & low) + 0x76 * ones) | digit) & top) << 8 * half;
        found.points |= top_bits(~(((point & low) + low) | point) & top) << 8 * half;
    }
    return found;
#endif
}

/* Parse the usual number, with up to eight digits and followed by a blank; return its length, or 0 for other
   numbers. WINDOW bytes must be readable. The end of the number is known after one look at sixteen bytes, so that
   the next one can begin while this one is still being computed. The point is removed by blending the word at the
   first digit with the word one byte behind it. A quotient near the boundary of two f4 may come from a decimal on
   either side of it; the low 29 bits of the f8 detect this case. */
INLINE i8 quick_number(const u1 *text, bool single, f8 *value) {
    masks found = masks_of_16(text);
    i8 stop = __builtin_ctzll(found.ends | 0x10000);
    /* A comparison would write part of a register, and so wait for its previous value, from the number before. */
    u4 negative = (((u4)text[0] ^ '-') - 1) >> 31, before = (1u << stop) - 1, points = found.points & before;
    int whole = __builtin_ctz(points | (1u << stop)) - (int)negative;
    int digits = (int)stop - (int)negative - (points != 0);
    u4 odd = ((found.others & before) ^ (points | negative)) | (points & (points - 1));
    if (UNLIKELY(odd || (u4)(digits - 1) > 7)) return 0;
    u8 one = word_at(text + negative), two = word_at(text + negative + 1);
    u8 before_point = (((u8)1 << (4 * whole)) << (4 * whole)) - 1;
    u8 x = (two ^ ((one ^ two) & before_point)) ^ 0x3030303030303030;
    u8 bits = bits_of((f8)(i8)eight_digits(x << (64 - 8 * digits)) / TEN_TO[digits - whole]);
    if (UNLIKELY(single && (bits & 0x1FFFFFFF) == 0x10000000)) return 0;
    *value = float_of(bits | (u8)negative << 63);
    return stop;
}

/* Round (top + a fraction below 1 if `more`) · 2^power with top ≥ 2^63 to even; return false if it is too large. */
static bool round_to_type(u8 top, bool more, i8 power, bool single, f8 *value) {
    i8 drop = most(single ? 40 : 11, (single ? -149 : -1074) - power); /* bits below the last place */
    *value = 0.0;
    if (drop > 64) return true;
    u8 kept = drop == 64 ? 0 : top >> drop, rest = drop == 64 ? top : top << (64 - drop), half = (u8)1 << 63;
    kept += rest > half || (rest == half && (more || (kept & 1)));
    *value = ldexp((f8)kept, (int)(power + drop));
    return *value <= (single ? FLT_MAX : DBL_MAX);
}

INLINE bool round_whole(u128 whole, bool more, i8 power, bool single, f8 *value) {
    u8 high = (u8)(whole >> 64);
    int shift = high ? __builtin_clzll(high) : 64 + __builtin_clzll((u8)whole);
    whole <<= shift;
    return round_to_type((u8)(whole >> 64), more || (u8)whole, power + 64 - shift, single, value);
}

/* Step 2: mantissa · 10^exponent for |exponent| ≤ 27. */
static bool round_exactly(u8 mantissa, i8 exponent, bool single, f8 *value) {
    u8 five = FIVE_TO[exponent < 0 ? -exponent : exponent];
    if (exponent >= 0) return round_whole((u128)mantissa * five, false, exponent, single, value);
    int shift = __builtin_clzll(mantissa);
    u128 numerator = (u128)(mantissa << shift) << 64, quotient = numerator / five;
    return round_whole(quotient, quotient * five != numerator, exponent - shift - 64, single, value);
}

typedef struct {
    i8 size;
    u4 limbs[LIMBS]; /* the lowest first */
} whole_number;

static void times_plus(whole_number *a, u4 factor, u4 summand) {
    u8 carry = summand;
    for (i8 i = 0; i < a->size; i++) {
        carry += (u8)a->limbs[i] * factor;
        a->limbs[i] = (u4)carry;
        carry >>= 32;
    }
    if (carry) a->limbs[a->size++] = (u4)carry;
}

static bool divided(whole_number *a, u4 divisor) {
    u8 rest = 0;
    for (i8 i = a->size - 1; i >= 0; i--) {
        rest = (rest << 32) | a->limbs[i];
        a->limbs[i] = (u4)(rest / divisor);
        rest %= divisor;
    }
    if (a->size && a->limbs[a->size - 1] == 0) a->size--;
    return rest != 0;
}

/* Step 3: the digits and the point in [text, stop), times 10^exponent, between 10^-400 and 10^350. A quotient by
   10^k is computed by successive divisions by 10^8; each removes less than one limb, so as many limbs are appended
   first. */
static bool round_any(const u1 *text, const u1 *stop, i8 exponent, bool single, f8 *value) {
    whole_number a = {0};
    i8 used = 0;
    bool more = false, pointed = false;
    for (; text < stop; text++) {
        if (*text == '.') {
            pointed = true;
        } else if (used < MOST_DIGITS) {
            times_plus(&a, 10, *text - '0');
            used += a.size > 0;
            exponent -= pointed;
        } else {
            more |= *text != '0';
            exponent += !pointed;
        }
    }
    for (; exponent > 0; exponent -= least(exponent, 8)) times_plus(&a, (u4)SMALL_TENS[least(exponent, 8)], 0);
    i8 below = -exponent / 8 + 4;
    memmove(a.limbs + below, a.limbs, (size_t)a.size * sizeof(u4));
    memset(a.limbs, 0, (size_t)below * sizeof(u4));
    a.size += below;
    for (; exponent < 0; exponent += least(-exponent, 8)) more |= divided(&a, (u4)SMALL_TENS[least(-exponent, 8)]);
    u128 top = 0;
    for (i8 i = a.size - 1; i >= a.size - 4; i--) top = (top << 32) | a.limbs[i];
    for (i8 i = 0; i < a.size - 4; i++) more |= a.limbs[i] != 0;
    return round_whole(top, more, 32 * (a.size - 4 - below), single, value);
}

/* mantissa · 10^exponent; if `cut`, the mantissa is truncated to 19 digits; [text, stop) contains all of them, with
   exponent 10^power. */
static bool scaled(u8 mantissa, i8 exponent, bool cut, const u1 *text, const u1 *stop, i8 power, bool single,
                   f8 *value) {
    *value = 0.0;
    if (mantissa == 0 || exponent < -400) return true;
    if (exponent > 330) return false;
    if (!cut && !single && mantissa < (u8)1 << 53 && exponent >= -22 && exponent <= 22) {
        *value = exponent < 0 ? (f8)mantissa / TEN_TO[-exponent] : (f8)mantissa * TEN_TO[exponent];
        return true;
    }
    if (!cut && single && exponent < 0 && exponent >= -22) {
        /* Two roundings are off by less than two units of the last place: precise enough far from a boundary of two
           f4. */
        f8 quotient = (f8)mantissa / TEN_TO[-exponent];
        if ((bits_of(quotient) & 0x1FFFFFFF) - 0x0FFFFFFC > 8) {
            *value = (f8)(f4)quotient;
            return true;
        }
    }
    if (!cut && exponent >= -27 && exponent <= 27) return round_exactly(mantissa, exponent, single, value);
    return round_any(text, stop, power, single, value);
}

/* Up to 7 digits before the point and any number behind it, 19 in all; false for anything else. Needs WINDOW bytes. */
static bool read_plain_number(const u1 *text, bool single, f8 *value, i8 *length) {
    const u1 *at = text + (*text == '-');
    u8 mantissa, more;
    i8 whole = digits_at(at, &mantissa), decimals = 0;
    const u1 *digits = at;
    at += whole;
    if (*at == '.') {
        at++;
        for (int words = 0; words < 3; words++) {
            i8 n = digits_at(at, &more);
            mantissa = mantissa * SMALL_TENS[n] + more;
            at += n;
            decimals += n;
            if (n < 8) break;
        }
    }
    if (whole == 8 || whole + decimals < 1 || whole + decimals > 19 || !ends_token(*at)) return false;
    if (!scaled(mantissa, -decimals, false, digits, at, 0, single, value)) return false;
    *value = *text == '-' ? -*value : *value;
    *length = at - text;
    return true;
}

INLINE bool spells(const u1 *text, i8 length, const char *word) {
    if (length != (i8)strlen(word)) return false;
    for (i8 k = 0; k < length; k++)
        if ((text[k] | 32) != word[k]) return false;
    return true;
}

/* Parse NULL, NaN, inf or infinity in any case. */
static int read_word(const u1 *text, i8 start, i8 end, bool negative, f8 *value, i8 *after) {
    i8 stop = start;
    while (stop < end && stop - start < 9 && !ends_token(text[stop])) stop++;
    i8 length = stop - start;
    *after = stop;
    *value = NAN;
    if (spells(text + start, length, "null") || spells(text + start, length, "nan")) return MISSING;
    *value = negative ? -INFINITY : INFINITY;
    return spells(text + start, length, "inf") || spells(text + start, length, "infinity") ? INFINITE : BAD;
}

/* Like `read_number`, byte by byte: signs, any number of digits, exponents, and words. */
static int read_any_number(const u1 *text, i8 at, i8 end, bool single, f8 *value, i8 *after) {
    bool negative = at < end && text[at] == '-', pointed = false, cut = false;
    at += at < end && (text[at] == '-' || text[at] == '+');
    i8 start = at, exponent = 0, power = 0, significant = 0, n_digits = 0;
    u8 mantissa = 0;
    for (; at < end; at++) {
        u1 byte = text[at], digit = (u1)(byte - '0');
        if (byte == '.' && !pointed) {
            pointed = true;
        } else if (digit <= 9) {
            n_digits++;
            if (significant < 19) {
                mantissa = mantissa * 10 + digit;
                significant += mantissa > 0;
                exponent -= pointed;
            } else {
                cut |= digit != 0;
                exponent += !pointed;
            }
        } else {
            break;
        }
    }
    if (n_digits == 0) return read_word(text, start, end, negative, value, after);
    i8 stop = at;
    if (at < end && (text[at] | 32) == 'e') {
        at++;
        bool below = at < end && text[at] == '-';
        at += at < end && (text[at] == '-' || text[at] == '+');
        i8 first = at;
        for (; at < end && (u1)(text[at] - '0') <= 9; at++) power = least(power * 10 + (text[at] - '0'), 1000000000000);
        if (at == first) return BAD;
        power = below ? -power : power;
    }
    if (at < end && !ends_token(text[at])) return BAD;
    *after = at;
    bool fits = scaled(mantissa, exponent + power, cut, text + start, text + stop, power, single, value);
    *value = negative ? -*value : *value;
    return fits ? NUMBER : HUGE_NUMBER;
}

/* Parse the number whose text starts at `at` and ends before `end`: return its value, the position after it, and its
   kind. */
INLINE int read_number(const u1 *text, i8 at, i8 end, bool single, f8 *value, i8 *after) {
    if (at + WINDOW <= end) {
        i8 length = quick_number(text + at, single, value);
        if (length || read_plain_number(text + at, single, value, &length)) {
            *after = at + length;
            return NUMBER;
        }
    }
    return read_any_number(text, at, end, single, value, after);
}

#endif
