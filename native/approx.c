/* Pairs of smooth ranks; src/toprank/losses/smooth.py explains the computation. For a document j, the later
   documents form one row: p_jk = σ(z_k − z_j), and the contribution of the pair to both documents follows from it. A
   query is copied into rows of whole vectors, padded with zeros, and every row begins at a multiple of 8: the next
   row reads the sums that the previous one has just written, and a read across two recent writes would stall the
   processor. `later` is 1 behind j, else 0. */
#include "sums.h"

/* Quantities that a metric accumulates in addition to the ranks: none, hits, or the probability that the reader
   continues. */
CODES(Extra, NO_EXTRA, HITS, SURVIVAL)

#define WIDEST 600.0 /* E = exp(z − max z) may fall to exp(−600), so no quotient of two of them is 0/0 */
#define ROWS 10

typedef struct {
    i8 m, extra;
    bool wide; /* E would underflow */
    f8 *whole, *z, *E, *p, *reads, *rank_slope, *extra_slope, *down, *up, *one, *two, *steps;
} Query;

/* Allocate memory for queries up to the longest, in rows of whole vectors, plus `more` rows; return false if out of
   memory. */
static bool prepare(Query *query, i8 q, const i8 *offsets, i8 extra, i8 more, i8 *width) {
    *width = (longest_query(q, offsets) + 2 * LANES) & ~(i8)(LANES - 1);
    query->extra = extra;
    query->whole = scratch(*width * (ROWS + more + 1) + LANES, sizeof(f8));
    if (!query->whole) return false;
    f8 **rows[] = {&query->z,           &query->E,    &query->p,  &query->reads, &query->rank_slope,
                   &query->extra_slope, &query->down, &query->up, &query->one,   &query->two};
    for (int i = 0; i < ROWS; i++) *rows[i] = query->whole + i * *width;
    f8 *zeros = query->whole + (ROWS + more) * *width;
    query->steps = zeros + LANES - 1;
    for (i8 i = 0; i < LANES; i++) zeros[i] = 0.0;
    for (i8 i = 0; i < *width; i++) zeros[LANES + i] = 1.0;
    return true;
}

INLINE void fill(f8 *row, i8 m, const f8 *from) {
    memcpy(row, from, (size_t)m * sizeof(f8));
    memset(row + m, 0, LANES * sizeof(f8));
}

/* Return the start of the row of j: the vector that contains j + 1. */
INLINE i8 begin(i8 j) { return (j + 1) & ~(i8)(LANES - 1); }

/* z and E = exp(z − max z) of the next query, and zeros beyond it. */
static void enter(Query *query, i8 m, const f8 *z, const f8 *reads) {
    f8 high = z[0], low = z[0];
    for (i8 j = 0; j < m; j++) high = larger(high, z[j]), low = smaller(low, z[j]);
    query->m = m;
    query->wide = high - low > WIDEST;
    fill(query->z, m, z);
    fill(query->reads, m, reads);
    memset(query->E + m, 0, LANES * sizeof(f8));
    memset(query->p + m, 0, LANES * sizeof(f8));
    if (!query->wide)
        for (i8 j = 0; j < m; j++) query->E[j] = exp1(z[j] - high);
}

/* p_jk for every later k: E_k/(E_j + E_k), or computed by a separate exponential if the scores are too far apart. */
INLINE void probabilities(const Query *query, i8 j) {
    f8 *restrict p = query->p;
    const f8 *restrict E = query->E, *restrict z = query->z, *restrict later = query->steps - j, own = E[j];
    if (query->wide) {
        for (i8 k = begin(j); k < query->m; k++) p[k] = later[k] / (1.0 + exp1(z[j] - z[k]));
        return;
    }
    for (i8 k = begin(j); k < query->m; k += LANES)
        for (int i = 0; i < LANES; i++) p[k + i] = later[k + i] * E[k + i] / (own + E[k + i]);
}

/* above_j += Σ_k p_jk and above_k += p_kj; if `weighted`, multiplied by the metric's term of the document above. */
INLINE void ranks(const Query *query, i8 j, bool weighted) {
    const f8 *restrict p = query->p, *restrict reads = query->reads, *restrict later = query->steps - j;
    f8 *restrict above = weighted ? query->two : query->one;
    f8 total[LANES] = {0}, own = reads[j];
    for (i8 k = begin(j); k < query->m; k += LANES)
        for (int i = 0; i < LANES; i++) {
            f8 rest = later[k + i] - p[k + i];
            total[i] += weighted ? reads[k + i] * p[k + i] : p[k + i];
            above[k + i] += weighted ? own * rest : rest;
        }
    above[j] += joined(total);
}

/* The probability for j that no document above stops the reader. */
INLINE void survival(const Query *query, i8 j) {
    const f8 *restrict p = query->p, *restrict reads = query->reads, *restrict later = query->steps - j;
    f8 *restrict chance = query->two;
    f8 product[LANES] = {1, 1, 1, 1, 1, 1, 1, 1}, own = reads[j];
    for (i8 k = begin(j); k < query->m; k += LANES)
        for (int i = 0; i < LANES; i++) {
            product[i] *= 1.0 - reads[k + i] * p[k + i];
            chance[k + i] *= 1.0 - own * (later[k + i] - p[k + i]);
        }
    chance[j] *= joined_product(product);
}

/* Compute `above` and `extra` of every document; z are the scores over T, `reads` the metric's term of each
   document. */
KERNEL(i8, smooth_ranks)
(i8 n, i8 q, const f8 z[n], const i8 offsets[q + 1], const f8 reads[n], i8 extra_kind, f8 above[n], f8 extra[n]) {
    Query query;
    i8 width;
    if (!prepare(&query, q, offsets, extra_kind, 0, &width)) return OUT_OF_MEMORY;
    for (i8 i = 0; i < q; i++) {
        const i8 first = offsets[i], m = offsets[i + 1] - first;
        if (m <= 0) continue;
        enter(&query, m, z + first, reads + first);
        for (i8 k = 0; k < m + LANES; k++) query.one[k] = 0.0, query.two[k] = extra_kind == SURVIVAL ? 1.0 : 0.0;
        for (i8 j = 0; j < m; j++) {
            probabilities(&query, j);
            ranks(&query, j, false);
            if (extra_kind == HITS) ranks(&query, j, true);
            if (extra_kind == SURVIVAL) survival(&query, j);
        }
        memcpy(above + first, query.one, (size_t)m * sizeof(f8));
        memcpy(extra + first, query.two, (size_t)m * sizeof(f8));
    }
    give_back(query.whole);
    return 0;
}

/* For the pair (j, k) of every k of a row: down = dL/dp_jk · dp/dz and up = dL/dp_kj · dp/dz. */
ROW_FUNCTION void rank_slopes(i8 n, f8 own_rank, const f8 p[restrict n], const f8 later[restrict n],
                         const f8 rank_slope[restrict n], f8 down[restrict n], f8 up[restrict n]) {
    for (i8 k = 0; k < n; k++) {
        f8 steep = p[k] * (later[k] - p[k]);
        down[k] = own_rank * steep;
        up[k] = rank_slope[k] * steep;
    }
}

ROW_FUNCTION void hit_slopes(i8 n, f8 own_extra, f8 own_read, const f8 p[restrict n], const f8 later[restrict n],
                        const f8 extra_slope[restrict n], const f8 reads[restrict n], f8 down[restrict n],
                        f8 up[restrict n]) {
    for (i8 k = 0; k < n; k++) {
        f8 steep = p[k] * (later[k] - p[k]);
        down[k] += own_extra * reads[k] * steep;
        up[k] += extra_slope[k] * own_read * steep;
    }
}

/* R·p(1 − p)/(1 − R·p), which is p for R = 1 even if 1 − p has rounded to 0; one division for both directions. */
ROW_FUNCTION void survival_slopes(i8 n, f8 own_extra, f8 own_read, const f8 p[restrict n], const f8 later[restrict n],
                             const f8 extra_slope[restrict n], const f8 reads[restrict n], f8 down[restrict n],
                             f8 up[restrict n]) {
    for (i8 k = 0; k < n; k++) {
        f8 rest = later[k] - p[k], back = 1.0 - rest;
        f8 one = (1.0 - reads[k]) + reads[k] * rest, other = (1.0 - own_read) + own_read * back;
        f8 above_one = one > 0.0 ? rest : 1.0, above_other = other > 0.0 ? back : 1.0;
        one = one > 0.0 ? one : 1.0;
        other = other > 0.0 ? other : 1.0;
        f8 both = 1.0 / (one * other);
        down[k] += own_extra * (reads[k] * p[k]) * (above_one * other * both);
        up[k] += extra_slope[k] * (own_read * rest) * (above_other * one * both);
    }
}

/* Compute `down` and `up` of the row of j, from its start. */
static void slopes(const Query *query, i8 j) {
    const i8 from = begin(j), n = whole_vectors(query->m - from);
    const f8 *p = query->p + from, *later = query->steps - j + from, *reads = query->reads + from;
    const f8 *extra_slope = query->extra_slope + from, own_extra = query->extra_slope[j], own_read = query->reads[j];
    f8 *down = query->down + from, *up = query->up + from;
    rank_slopes(n, query->rank_slope[j], p, later, query->rank_slope + from, down, up);
    if (query->extra == HITS) hit_slopes(n, own_extra, own_read, p, later, extra_slope, reads, down, up);
    if (query->extra == SURVIVAL) survival_slopes(n, own_extra, own_read, p, later, extra_slope, reads, down, up);
}

/* Replace them by down − up and |down| + |up|. */
ROW_FUNCTION void differences(i8 n, f8 down[restrict n], f8 up[restrict n]) {
    for (i8 k = 0; k < n; k++) {
        f8 one = down[k], other = up[k];
        down[k] = one - other;
        up[k] = fabs(one) + fabs(other);
    }
}

/* Add the row to `to`, and return its sum. */
ROW_FUNCTION f8 added(i8 n, const f8 row[restrict n], f8 to[restrict n]) {
    f8 total[LANES] = {0};
    for (i8 k = 0; k < n; k += LANES)
        for (int i = 0; i < LANES; i++) {
            total[i] += row[k + i];
            to[k + i] += row[k + i];
        }
    return joined(total);
}

ROW_FUNCTION void flow(i8 from, i8 m, i8 j, const f8 *restrict down, const f8 *restrict up, const f8 *restrict v,
                  f8 *restrict result) {
    f8 total[LANES] = {0}, own = v[j];
    for (i8 k = from; k < m; k += LANES)
        for (int i = 0; i < LANES; i++) {
            f8 passes = (fabs(down[k + i]) + fabs(up[k + i])) * (own - v[k + i]);
            total[i] += passes;
            result[k + i] -= passes;
        }
    result[j] += joined(total);
}

/* Compute dL/dz, and the diagonal of the curvature in z. */
KERNEL(i8, smooth_rank_push)
(i8 n, i8 q, const f8 z[n], const i8 offsets[q + 1], const f8 reads[n], i8 extra_kind, const f8 rank_slope[n],
 const f8 extra_slope[n], f8 grad[n], f8 diagonal[n]) {
    Query query;
    i8 width;
    if (!prepare(&query, q, offsets, extra_kind, 0, &width)) return OUT_OF_MEMORY;
    for (i8 i = 0; i < q; i++) {
        const i8 first = offsets[i], m = offsets[i + 1] - first;
        if (m <= 0) continue;
        enter(&query, m, z + first, reads + first);
        fill(query.rank_slope, m, rank_slope + first);
        fill(query.extra_slope, m, extra_slope + first);
        memset(query.one, 0, (size_t)(2 * width) * sizeof(f8));
        for (i8 j = 0; j < m; j++) {
            probabilities(&query, j);
            slopes(&query, j);
            const i8 from = begin(j), count = whole_vectors(m - from);
            differences(count, query.down + from, query.up + from);
            query.one[j] -= added(count, query.down + from, query.one + from);
            query.two[j] += added(count, query.up + from, query.two + from);
        }
        memcpy(grad + first, query.one, (size_t)m * sizeof(f8));
        memcpy(diagonal + first, query.two, (size_t)m * sizeof(f8));
    }
    give_back(query.whole);
    return 0;
}

/* Compute H·V for the curvature H in z. Columns of V and of the result are consecutive rows of scratch memory. */
KERNEL(i8, smooth_rank_flow)
(i8 n, i8 q, i8 c, const f8 z[n], const i8 offsets[q + 1], const f8 reads[n], i8 extra_kind, const f8 rank_slope[n],
 const f8 extra_slope[n], const f8 V[n][c], f8 out[n][c]) {
    Query query;
    i8 width;
    if (!prepare(&query, q, offsets, extra_kind, 2 * c, &width)) return OUT_OF_MEMORY;
    f8 *of_V = query.whole + ROWS * width, *of_out = of_V + c * width;
    for (i8 i = 0; i < q; i++) {
        const i8 first = offsets[i], m = offsets[i + 1] - first;
        if (m <= 0) continue;
        enter(&query, m, z + first, reads + first);
        fill(query.rank_slope, m, rank_slope + first);
        fill(query.extra_slope, m, extra_slope + first);
        memset(of_V, 0, (size_t)(2 * c * width) * sizeof(f8));
        for (i8 j = 0; j < m; j++)
            for (i8 column = 0; column < c; column++) of_V[column * width + j] = V[first + j][column];
        for (i8 j = 0; j < m; j++) {
            probabilities(&query, j);
            slopes(&query, j);
            for (i8 column = 0; column < c; column++)
                flow(begin(j), m, j, query.down, query.up, of_V + column * width, of_out + column * width);
        }
        for (i8 j = 0; j < m; j++)
            for (i8 column = 0; column < c; column++) out[first + j][column] = of_out[column * width + j];
    }
    give_back(query.whole);
    return 0;
}
