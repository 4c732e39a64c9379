/* e^x, log and erfc of one number, without branches: compilers vectorize loops over them for any width, with
   identical bits. The error is below 1 ulp (tests/test_kernels.py). */
#ifndef TOPRANK_VECTORS_H
#define TOPRANK_VECTORS_H

#include "toprank.h"

#define LANES 8

/* e^x. x = k log 2 + r with |r| ≤ log(2)/2, and e^r = 1 + r + r² (1/2! + r/3! + … + r¹¹/13!). log 2 is split into
   two parts, the first short enough that its product with k is exact; the second is added last, together with the
   small terms. */
INLINE f8 exp1(f8 x) {
    const f8 round_to_whole = 0x1.8p52;
    f8 inside = x < -746.0 ? -746.0 : x > 710.0 ? 710.0 : x; /* beyond, e^x is 0 or infinite */
    f8 shifted = inside * 0x1.71547652b82fep0 + round_to_whole, k = shifted - round_to_whole;
    f8 high = inside - k * 0x1.62e42feep-1, low = k * 0x1.a39ef35793c76p-33;
    f8 r = high - low, r2 = r * r, r4 = r2 * r2;
    f8 a = (0.5 + r * (1.0 / 6)) + r2 * (1.0 / 24 + r * (1.0 / 120));
    f8 b = (1.0 / 720 + r * (1.0 / 5040)) + r2 * (1.0 / 40320 + r * (1.0 / 362880));
    f8 c = (1.0 / 3628800 + r * (1.0 / 39916800)) + r2 * (1.0 / 479001600 + r * (1.0 / 6227020800));
    f8 y = 1.0 + (high + (r2 * (a + r4 * (b + r4 * c)) - low));
    /* 2^k in two factors: k may be as small as −1076 and as large as 1025. */
    u8 whole = bits_of(shifted) - 0x4338000000000000 + 2048, half = whole >> 1;
    return y * float_of((half - 1024 + 1023) << 52) * float_of((whole - half - 1024 + 1023) << 52);
}

/* log(1 + f) for √½ ≤ 1 + f < √2, plus k log 2 and a small correction. With s = f/(2 + f), log(1 + f) = 2 atanh s =
f − (f²/2 − s (f²/2 + R)), R = 2 (s²/3 + s⁴/5 + …): the large term f is not rounded. */
INLINE f8 log_of_parts(f8 f, f8 k, f8 correction) {
    f8 s = f / (2.0 + f), z = s * s, w = z * z;
    f8 even = w * (2.0 / 5 + w * (2.0 / 9 + w * (2.0 / 13 + w * (2.0 / 17 + w * (2.0 / 21)))));
    f8 odd = z * (2.0 / 3 + w * (2.0 / 7 + w * (2.0 / 11 + w * (2.0 / 15 + w * (2.0 / 19 + w * (2.0 / 23))))));
    f8 R = even + odd, half_square = 0.5 * f * f;
    f8 small = s * (half_square + R) + (k * 0x1.a39ef35793c76p-33 + correction);
    return k * 0x1.62e42feep-1 - ((half_square - small) - f);
}

/* x = 2^k (1 + f) with √½ ≤ 1 + f < √2, for normal x > 0. k is brought to a float by its bits: AVX2 cannot convert it. */
INLINE f8 split_power(f8 x, f8 *k) {
    const u8 root_half = 0x3fe6a09e667f3bcd, one = 0x3ff0000000000000, two_52 = 0x4330000000000000;
    u8 biased = (bits_of(x) - root_half + one) >> 52; /* k + 1023 */
    *k = float_of(biased | two_52) - (0x1p52 + 1023.0);
    return float_of(bits_of(x) - (biased << 52) + one) - 1.0;
}

INLINE f8 log1(f8 x) {
    f8 k, f = split_power(x < 0x1p-1022 ? x * 0x1p54 : x, &k);
    f8 y = log_of_parts(f, k - (x < 0x1p-1022 ? 54.0 : 0.0), 0.0);
    y = x == INFINITY ? x : y;
    y = x == 0.0 ? -INFINITY : y;
    return x >= 0.0 ? y : NAN;
}

INLINE f8 log1p1(f8 x) {
    f8 u = 1.0 + x, k, f = split_power(u, &k);
    f8 lost = (x > 1.0 ? 1.0 - (u - x) : x - (u - 1.0)) / u; /* the rounding error of 1 + x */
    f8 y = log_of_parts(k == 0.0 ? x : f, k, k == 0.0 ? 0.0 : lost);
    y = fabs(x) < 0x1p-54 ? x : y;
    y = x == INFINITY ? x : y;
    y = x == -1.0 ? -INFINITY : y;
    return x >= -1.0 ? y : NAN;
}

/* Vectors for comparisons, no wider than a register: compilers split wider ones into single numbers. Comparisons are
   exact, so their grouping changes no bit. (512 bits have no advantage: a mask there is not a vector.) */
#if defined(__AVX__)
#define WIDTH 4
#else
#define WIDTH 2
#endif
typedef f8 f8xw __attribute__((vector_size(8 * WIDTH)));
typedef i8 i8xw __attribute__((vector_size(8 * WIDTH)));

INLINE f8xw load_w(const f8 *from) {
    f8xw v;
    memcpy(&v, from, sizeof v);
    return v;
}
INLINE f8xw all_w(f8 x) { return x - (f8xw){0}; }
INLINE f8xw choose_w(i8xw mask, f8xw a, f8xw b) { return (f8xw)(((i8xw)a & mask) | ((i8xw)b & ~mask)); }

/* erfc(x) = e^(−x²) f(t)/(1 + 2x) for x ≥ 0, and 2 − erfc(−x) below. With t = (x − 4)/(x + 4), f is smooth on −1 ≤ t
< 1, and a polynomial of degree 23 through its values at the Chebyshev nodes is right to rounding. x² would lose
digits in the exponent: with the first half of the bits of x in h, e^(−x²) = e^(−h²) e^(−(x − h)(x + h)), where h² is
exact and the second exponent small. */
INLINE f8 erfc1(f8 x) {
    static const f8 even[] = {
        1.2329951186255526, 0.015379652102610162, -0.10103906603585294, -0.066330365820503667, -0.016197733979924259,
        -0.00075777371418388846, 0.0001506231178516207, -1.1225140354449658e-05, 2.9805960553227689e-07,
        7.111912428010423e-08, -1.6357383982124768e-08, 1.5712153638319064e-09};
    static const f8 odd[] = {
        -0.1396211168405625, 0.068097054254686207, 0.093732834998651718, 0.0371675155318432, 0.0050319700325486948,
        -0.00019925700412184815, -2.439811794207995e-05, 5.7072395736932571e-06, -8.2180206548130444e-07,
        1.0683442926744586e-07, -1.2544825403855518e-08, 9.6554082254828631e-10};
    f8 a = fabs(x), b = a > 30.0 ? 30.0 : a; /* beyond, it is 0 or 2 */
    f8 t = (b - 4.0) / (b + 4.0), w = t * t, p = even[11], q = odd[11];
    for (int i = 10; i >= 0; i--) p = p * w + even[i], q = q * w + odd[i];
    f8 h = float_of(bits_of(b) & ~(u8)0x7ffffff), d = (b - h) * (b + h);
    f8 power = exp1(-h * h) * (1.0 - d * (1.0 - d * (0.5 - d * (1.0 / 6))));
    f8 y = power * (p + t * q) / (1.0 + 2.0 * b);
    return x < 0.0 ? 2.0 - y : y;
}

/* Round a number of elements up to whole vectors. */
INLINE i8 whole_vectors(i8 n) { return (n + LANES - 1) & ~(i8)(LANES - 1); }

/* A loop over rows is a separate function, since gcc ignores `restrict` after inlining. */
#define ROW_FUNCTION static __attribute__((noinline))

#endif
