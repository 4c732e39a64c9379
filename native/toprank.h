/* Common header of kernel files: the types, the declaration of kernels, and scratch memory.

A kernel is declared only by its C prototype: `build.py` extracts it from the preprocessed source, the library
contains it as text, and `toprank.kernels` checks every argument against it before taking a pointer.

    KERNEL(void, softmax)(i8 n, i8 q, const f8 scores[n], const i8 offsets[q + 1], f8 probabilities[n]) { … }

is called from Python as `kernels.softmax(scores, offsets, probabilities)`:
  * the leading integers that occur in brackets are sizes: they are deduced from the arrays, not passed;
  * `[n]` is exactly n elements, `[static n]` at least n; `[n][k]` is a matrix in C order;
  * `const` arrays are inputs; all others are outputs, and must be writable;
  * `name__u1`, `name__f4` … are one kernel for several types, dispatched on the arrays' types.
Enumerations are declared only here, too: CODES(Margin, HINGE, LOGISTIC) is an enum in C, and in Python
`kernels.Margin.LOGISTIC` is 1.

The outputs of a kernel share no memory with its other arrays, which the binding checks, so kernels may use `restrict`. A
kernel that needs scratch memory returns i8, and OUT_OF_MEMORY if the allocation fails (MemoryError in Python).

Every kernel is compiled once for each instruction set (`build.py`), with bit-identical results: sums run
over fixed lanes (`vectors.h`), products are never fused with sums, and e^x and log are implemented here. */
#ifndef TOPRANK_H
#define TOPRANK_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef float f4;
typedef double f8;
typedef int8_t i1;
typedef int16_t i2;
typedef int32_t i4;
typedef int64_t i8;
typedef uint8_t u1;
typedef uint16_t u2;
typedef uint32_t u4;
typedef uint64_t u8;

#if defined(_WIN32)
#define TOPRANK_PUBLIC __declspec(dllexport)
#else
#define TOPRANK_PUBLIC __attribute__((visibility("default")))
#endif

#define TOPRANK_JOIN_(a, b) a##b
#define TOPRANK_JOIN(a, b) TOPRANK_JOIN_(a, b)
#ifdef TOPRANK_PROTOTYPES
#define KERNEL(type, name) @kernel type name
#define CODES(name, ...) @codes name { __VA_ARGS__ };
#else
#define KERNEL(type, name) TOPRANK_PUBLIC type TOPRANK_JOIN(TOPRANK_JOIN(name, _on_), TOPRANK_VARIANT)
#define CODES(name, ...) enum name { __VA_ARGS__ };
#endif

#define INLINE static inline __attribute__((always_inline))
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

#define OUT_OF_MEMORY INT64_MIN

INLINE i8 least(i8 a, i8 b) { return a < b ? a : b; }
INLINE i8 most(i8 a, i8 b) { return a > b ? a : b; }
INLINE f8 smaller(f8 a, f8 b) { return a < b ? a : b; }
INLINE f8 larger(f8 a, f8 b) { return a > b ? a : b; }

INLINE f8 float_of(u8 bits) {
    f8 x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
INLINE u8 bits_of(f8 x) {
    u8 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Randomness is a counter, not a state: word i of a stream is mixed(start + i GOLDEN). The finish of SplitMix64 is a
bijection in which every bit of the word moves every bit of the result; 2^64 over the golden ratio takes steps that are
far apart in all bits. */
#define GOLDEN 0x9e3779b97f4a7c15u
INLINE u8 mixed(u8 word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return word ^ (word >> 31);
}

/* Allocate memory for `count` items of `size` bytes, aligned to a cache line; NULL if out of memory. Release with
   give_back. */
INLINE void *scratch(i8 count, size_t size) {
    if (count < 0 || (u8)count > (SIZE_MAX - 64 - sizeof(void *)) / size) return NULL;
    char *whole = malloc((size_t)count * size + 64 + sizeof(void *));
    if (!whole) return NULL;
    char *aligned = (char *)(((uintptr_t)whole + sizeof(void *) + 63) & ~(uintptr_t)63);
    memcpy(aligned - sizeof(void *), &whole, sizeof(void *));
    return aligned;
}
INLINE void give_back(void *aligned) {
    if (!aligned) return;
    void *whole;
    memcpy(&whole, (char *)aligned - sizeof(void *), sizeof(void *));
    free(whole);
}

/* The length of the longest query. */
INLINE i8 longest_query(i8 q, const i8 *offsets) {
    i8 longest = 0;
    for (i8 i = 0; i < q; i++) longest = most(longest, offsets[i + 1] - offsets[i]);
    return longest;
}

#endif
