/* Labels as codes. One instruction set is sufficient. */
#include "toprank.h"

/* Fill `codes` if all labels are integers from 0 to 63; return the largest label, or -1 for other labels. */
KERNEL(i8, small_grades)(i8 n, const f8 labels[restrict n], u1 codes[restrict n]) {
    i4 largest = 0, odd = 0;
    for (i8 i = 0; i < n; i++) {
        f8 label = labels[i];
        i4 fits = label >= 0.0 && label <= 63.0, code = (i4)(fits ? label : 0.0);
        odd |= !fits | ((f8)code != label);
        largest = code > largest ? code : largest;
        codes[i] = (u1)code;
    }
    return odd ? -1 : largest;
}
