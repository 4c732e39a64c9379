/* RankBoost's sums: the total weight of the documents in each bin, feature by feature. One instruction set is
   sufficient. */
#include "toprank.h"

/* sums[feature][bin] += the potentials of the documents of that bin; bins are below c. */
KERNEL(void, add_potentials)(i8 n, i8 d, i8 c, const u1 bins[n][d], const f8 potentials[n], f8 sums[restrict d][c]) {
    for (i8 i = 0; i < n; i++)
        for (i8 j = 0; j < d; j++) sums[j][bins[i][j]] += potentials[i];
}
