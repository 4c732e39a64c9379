/* Products with standardized features, directly from X: column j of Z is (x_j − center_j) / spread_j, and 0 if x_j
   is missing. The caller divides by the spread; this code uses Z·spread = X − center. Sums are in double precision
   for any type of X. If X is known to have no missing values (`complete`), Σ (x − c) w is computed as Σ x w − Σ c w,
   so that the inner loop has no branches. */
#include "cross_entropy.h"

#define CHUNK 256   /* terms of a row that fit in the first-level cache */
#define AHEAD 24576 /* bytes: rows this far ahead are prefetched */

#define X f4
#include "features.inc"
#undef X
#define X f8
#include "features.inc"
