/* The functions of vectors.h over arrays: for tests of their accuracy, and for Python. */
#include "vectors.h"

#define OVER_ARRAY(name, function)                                 \
    KERNEL(void, name)(i8 n, const f8 x[n], f8 y[n]) {             \
        for (i8 i = 0; i < n; i++) y[i] = function(x[i]);          \
    }

OVER_ARRAY(exponentials, exp1)
OVER_ARRAY(logarithms, log1)
OVER_ARRAY(logarithms_1p, log1p1)
OVER_ARRAY(complementary_errors, erfc1)
