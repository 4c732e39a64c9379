/* Products with standardized features, straight from X: column j of Z is (x_j − center_j) / spread_j, and 0 where x_j
is missing.

The caller divides by the spread; what is here sees Z·spread = X − center. Sums are in double precision whatever the
type of X. Where X is known to have no missing values (`complete`), Σ (x − c) w is taken as Σ x w − Σ c w: the inner
loop then has nothing to ask. */
#include "cross_entropy.h"

#define CHUNK 256   /* terms of a row that lie in the first-level cache */
#define AHEAD 24576 /* bytes: rows so far behind are fetched while one is multiplied; the processor alone stops where a loop does */

#define X f4
#include "features.inc"
#undef X
#define X f8
#include "features.inc"
