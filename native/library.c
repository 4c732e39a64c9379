/* Metadata of the library, and detection of the machine's instruction sets. Compiled once, for the baseline. */
#include "toprank.h"

#ifndef TOPRANK_IDENTITY
#define TOPRANK_IDENTITY "unknown"
#endif
#include "prototypes.h" /* written by build.py: TOPRANK_TEXT and TOPRANK_VARIANTS */

TOPRANK_PUBLIC const char *toprank_identity(void) { return TOPRANK_IDENTITY; }
TOPRANK_PUBLIC const char *toprank_prototypes(void) { return TOPRANK_TEXT; }
TOPRANK_PUBLIC const char *toprank_variants(void) { return TOPRANK_VARIANTS; }

#if defined(__x86_64__)
#include <cpuid.h>

/* 0 baseline, 1 AVX2, 2 AVX-512: supported by both the processor and the operating system. */
TOPRANK_PUBLIC i8 toprank_machine(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    const unsigned fma = 1u << 12, popcnt = 1u << 23, osxsave = 1u << 27, avx = 1u << 28;
    const unsigned needed = fma | popcnt | osxsave | avx;
    if ((c & needed) != needed) return 0;
    /* A processor without LZCNT executes it as BSR, and silently counts from the wrong end. */
    const unsigned lzcnt = 1u << 5;
    if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !(c & lzcnt)) return 0;
    unsigned saved, high;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if ((saved & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    const unsigned bmi1 = 1u << 3, avx2 = 1u << 5, bmi2 = 1u << 8;
    if ((b & (bmi1 | avx2 | bmi2)) != (bmi1 | avx2 | bmi2)) return 0;
    const unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31; /* F, DQ, CD, BW, VL */
    return (b & avx512) == avx512 && (saved & 0xe6) == 0xe6 ? 2 : 1;
}
#else
TOPRANK_PUBLIC i8 toprank_machine(void) { return 0; }
#endif
