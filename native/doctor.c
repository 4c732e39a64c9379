/* One pass over the features for the data doctor: extremes, missing and infinite values, and hashes of rows and columns that
add up over their non-zero values, so that dense and sparse data agree. */
#include "vectors.h"

/* The bits of a number; every NaN has the same. */
INLINE u8 word_of(f8 x) { return x == x ? bits_of(x) : 0x7FF8000000000000u; }

#define VALUE f4
#define NAMED(name) name##__f4
#include "doctor.inc"
#undef VALUE
#undef NAMED
#define VALUE f8
#define NAMED(name) name##__f8
#include "doctor.inc"
