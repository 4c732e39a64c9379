/* Pairs of a ranked query: losses, forces and curvature of lambda-weighted logistic pairs.

Documents of a query are in rank order; a is above b, z = σ·s, and x = exp(z_b − z_a) ≤ 1. A pair carries a weight α
for "a should win" and a weight β for "b should win":

    loss         α·log(1 + x) + β·(log(1 + x) + z_a − z_b)
    d/dz_a       β − (α + β)·ξ,  ξ = x/(1 + x);  d/dz_b is its opposite
    d²/dz_a²     (α + β)·ξ·(1 − ξ) = −d²/dz_a dz_b

The weights are gains times Δ_ab = top_a − slope_a·below_b (below) + mu·δ_ab (LambdaLoss):

    one-sided    the document with the larger gain should win: α or β = |G_a − G_b|·Δ_ab, the other is 0
    two-sided    α = G_a·Δ_ab, β = G_b·Δ_ab; gains may be negative, and then pairs bend down: the diagonal of the
                 curvature is that of the positive gains (boosting divides by it), its product that of all

In rank order a row (one a, all b below it) is contiguous whatever the grades, and is read 16 pairs at a time. With E =
exp(z − max z) for each document, x = E_b·(1/E_a) costs no exponential. One-sided pairs of equal gains weigh nothing.
Most of them are pairs of two documents of the lowest gain of the query: those rows read a copy of the other documents
(the "rest"), in rank order too. The few equal pairs among the rest are computed: skipping them would cost more.

|ΔZ| is the change of a metric when two documents of a ranking are swapped.

For the four metrics of LambdaRank the change has one form. Let a be the better of two ranks, b the worse, and G the
metric's term of a document (a gain, 0/1 relevance, a stopping probability). Then

    |ΔZ_ab| = |G_a − G_b| · (top_a − slope_a · below_b)

where top, slope and below depend on one rank each, so that they cost O(m) a query. With c(r) = the weight of rank r
(1/F(r) for DCG, 1/r otherwise; 0 beyond the metric's cut-off):

DCG      linear in the weights of the two ranks: top = below = c, slope = 1.
AP       times the normalizer N. With h(r) relevant documents down to rank r, and one of the two relevant: it counts
         (h(a) or h(a) + 1)·c(a) at rank a and h(b)·c(b) at rank b, and lifts the count of every relevant document
         between them by one. With S(r) = Σ_{relevant p ≤ r} c(p):
         top = (h(a − 1) + 1)·c(a) − S(a), below = h(b)·c(b) − S(b − 1), slope = 1.
RR       f and g: ranks of the first and the second relevant document. A relevant document that moves up to a < f gains
         c(a) − c(f); the first one, moving down from a = f to b, loses c(f) − c(min(b, g)); other swaps change nothing.
         top = c(a) and slope = 1 for a ≤ f, both 0 after; below = c(f) for relevant b, c(min(b, g)) for others.
ERR      with Q(r) = Π_{p<r}(1 − R_p) and T(r) = Σ_{p≤r} Q(p)·R_p·c(p), a swap replaces R_a by R_b at rank a, scales all
         between by (1 − R_b)/(1 − R_a), and leaves what follows b as it was; collecting terms, the factor R_b − R_a
         comes out and leaves Q(a)·c(a) − [T(b−1) − T(a) + Q(b)·c(b)] / (1 − R_a):
         slope = 1/(1 − R_a), top = Q(a)·c(a) + slope·T(a), below = T(b − 1) + Q(b)·c(b).

Ties. Documents with the same score and the same grade can be exchanged, so each gets the mean over their ranks. DCG
takes the expectation over all orders of the tied documents, whatever their grades: a mean again for documents of
different groups, and within a group the mean of c(a) − c(b) over its pairs of ranks, called `tie`. For the other
metrics tied documents of different grades are sorted worst first by the caller.

Truncation. Only pairs whose better rank is at most `last` count: top and slope are 0 beyond it, before means are taken.
*/
#include "sums.h"

/* Source of Δ. The last three belong to LambdaLoss: Δ = 1; Δ = 1 with gains times c, in expectation over ties; Δ = 0
   (only the distances have weight). */
CODES(Delta, DCG, AP, RR, ERR, ONE, DISCOUNTED, NOTHING)

#define WIDEST 600.0 /* E = exp(z − max z) may fall to exp(−600), so 1/E and every product stay finite */
#define FARTHEST 1e20 /* a score difference whose product with e^600 is finite, with a margin */
#define STEP (2 * LANES)
#define FLOATS 20 /* number of float arrays of a query's length, and of integer arrays */
#define WHOLES 3

/* Documents in rank order that are the lower ones of pairs; arrays are padded with STEP zeros. */
typedef struct {
    i8 count;
    f8 *E, *z, *gain, *below, *weight, *force, *bend;
} Partners;

typedef struct {
    i8 kind, last;
    f8 sigma, mu, norm; /* norm: 1/σ for LightGBM's normalization, else 0 */
    bool two_sided, weighted;
    const f8 *rank_weights, *distance, *distance_sums;
} Options;

/* One query in rank order. */
typedef struct {
    i8 m;
    bool wide, normed, fused; /* separate exponentials for every row; norm used; … in the loop */
    Partners all, rest;
    f8 *inverse, *read, *top, *slope, *tie, *delta;
    i8 *group_start, *group_end; /* the ranks (from 0) of the tied group */
    i8 *rest_before;             /* number of the rest with a smaller rank; m + 1 entries */
} Query;

/* The row of a: the documents below, and a's own terms. */
typedef struct {
    const Partners *partners;
    i8 from;
    f8 z, gain, inverse;
} Row;

typedef struct {
    f8 *floats;
    i8 *wholes;
} Room;

static Room make_room(Query *of, i8 longest) {
    i8 width = (longest + STEP + LANES) / LANES * LANES;
    Room room = {scratch(FLOATS * width, sizeof(f8)), scratch(WHOLES * width, sizeof(i8))};
    if (!room.floats || !room.wholes) return room;
    memset(room.floats, 0, (size_t)(FLOATS * width) * sizeof(f8));
    Partners *all = &of->all, *rest = &of->rest;
    f8 **places[FLOATS] = {&all->E,       &all->z,       &all->gain,    &all->below,    &all->weight,
                           &all->force,   &all->bend,    &rest->E,      &rest->z,       &rest->gain,
                           &rest->below,  &rest->weight, &rest->force,  &rest->bend,    &of->inverse,
                           &of->read,     &of->top,      &of->slope,    &of->tie,       &of->delta};
    for (int i = 0; i < FLOATS; i++) *places[i] = room.floats + i * width;
    of->group_start = room.wholes;
    of->group_end = room.wholes + width;
    of->rest_before = room.wholes + 2 * width;
    return room;
}

static i8 leave(Room room, i8 answer) {
    give_back(room.floats);
    give_back(room.wholes);
    return answer;
}

static void average_precision(Query *of, const f8 *c) {
    f8 hits = 0.0, passed = 0.0;
    for (i8 r = 0; r < of->m; r++) {
        f8 relevant = of->read[r];
        of->all.below[r] = (hits + relevant) * c[r] - passed;
        of->top[r] = (hits + 1.0) * c[r] - (passed + relevant * c[r]);
        of->slope[r] = 1.0;
        hits += relevant;
        passed += relevant * c[r];
    }
}

static void reciprocal_rank(Query *of, const f8 *c) {
    i8 first = of->m, second = of->m;
    for (i8 r = 0; r < of->m && second == of->m; r++)
        if (of->read[r] > 0.0) *(first == of->m ? &first : &second) = r;
    for (i8 r = 0; r < of->m; r++) {
        bool counts = r <= first;
        /* If no document is relevant no pair has a weight; if there is only one, `r` is smaller. */
        of->all.below[r] = c[of->read[r] > 0.0 ? first : least(r, second)];
        of->top[r] = counts ? c[r] : 0.0;
        of->slope[r] = counts ? 1.0 : 0.0;
    }
}

static void expected_reciprocal_rank(Query *of, const f8 *c) {
    f8 reading = 1.0, total = 0.0; /* Q(r) and T(r − 1) */
    for (i8 r = 0; r < of->m; r++) {
        f8 stop = of->read[r];
        of->all.below[r] = total + reading * c[r];
        total += reading * stop * c[r];
        of->slope[r] = 1.0 / (1.0 - stop);
        of->top[r] = reading * c[r] + of->slope[r] * total;
        reading *= 1.0 - stop;
    }
}

/* The documents start … end − 1 are tied: assign their mean to each; `tie` = mean over a < b of top_a −
   slope_a·below_b. */
static void join_group(Query *of, i8 start, i8 end) {
    f8 *top = of->top, *slope = of->slope, *below = of->all.below;
    f8 size = (f8)(end - start), tops = 0.0, slopes = 0.0, belows = 0.0, pairs = 0.0;
    for (i8 r = start; r < end; r++) {
        pairs += tops - slopes * below[r];
        tops += top[r];
        slopes += slope[r];
        belows += below[r];
    }
    for (i8 r = start; r < end; r++) {
        of->tie[r] = 2.0 * pairs / (size * (size - 1.0));
        top[r] = tops / size;
        slope[r] = slopes / size;
        below[r] = belows / size;
        of->group_start[r] = start;
        of->group_end[r] = end;
    }
}

/* Tied groups: equal scores, and equal gains unless groups span grades. Most groups contain one document. */
static void find_groups(Query *of, bool across_grades) {
    const f8 *z = of->all.z, *read = of->read;
    i8 *restrict group_start = of->group_start, *restrict group_end = of->group_end, m = of->m;
    for (i8 r = 0; r < m; r++) {
        group_start[r] = r;
        group_end[r] = r + 1;
    }
    for (i8 start = 0, end = 1; start < m; start = end++) {
        while (end < m && z[end] == z[start] && (across_grades || read[end] == read[start])) end++;
        if (end - start > 1) join_group(of, start, end);
    }
}

/* Compute all parts of Δ except the gains: top, slope, below, tie and the groups. */
static void swap_deltas(const Options *options, Query *of) {
    i8 kind = options->kind, m = of->m;
    if (kind == AP)
        average_precision(of, options->rank_weights);
    else if (kind == RR)
        reciprocal_rank(of, options->rank_weights);
    else if (kind == ERR)
        expected_reciprocal_rank(of, options->rank_weights);
    else {
        memcpy(of->top, options->rank_weights, (size_t)m * sizeof(f8));
        memcpy(of->all.below, options->rank_weights, (size_t)m * sizeof(f8));
        for (f8 *slope = of->slope, *end = slope + m; slope < end; slope++) *slope = 1.0;
    }
    if (options->last > 0)
        for (i8 r = options->last; r < m; r++) of->top[r] = of->slope[r] = 0.0;
    find_groups(of, kind != AP && kind != RR && kind != ERR);
    if (kind < ONE) return;
    for (i8 r = 0; r < m; r++) {
        if (kind == DISCOUNTED) of->all.gain[r] *= of->all.below[r];
        of->top[r] = of->tie[r] = kind == NOTHING ? 0.0 : 1.0;
        of->slope[r] = 0.0;
    }
}

/* Clear the forces; pad behind the last partner with documents that are far below, at a finite distance. */
static void pad(Partners *partners, f8 z) {
    i8 n = partners->count;
    for (i8 b = n; b < n + STEP; b++) {
        partners->E[b] = 0.0;
        partners->z[b] = z;
    }
    memset(partners->force, 0, (size_t)(n + STEP) * sizeof(f8));
    memset(partners->bend, 0, (size_t)(n + STEP) * sizeof(f8));
}

/* Collect the documents with more than the lowest gain. */
static void gather_rest(Query *of, bool weighted) {
    const Partners all = of->all;
    Partners rest = of->rest;
    f8 *restrict E = rest.E, *restrict z = rest.z, *restrict gain = rest.gain, *restrict below = rest.below;
    i8 *restrict before = of->rest_before, n = 0, m = all.count;
    f8 lowest = all.gain[0];
    for (i8 r = 1; r < m; r++) lowest = smaller(lowest, all.gain[r]);
    for (i8 r = 0; r < m; r++) {
        before[r] = n;
        E[n] = all.E[r]; /* kept where n moves on */
        z[n] = all.z[r];
        gain[n] = all.gain[r];
        below[n] = all.below[r];
        if (weighted) rest.weight[n] = all.weight[r];
        n += all.gain[r] != lowest;
    }
    before[m] = of->rest.count = n;
    pad(&of->rest, all.z[m - 1]);
}

/* Sort a query by rank: `order` lists its rows, best first. */
static void rank_query(const Options *options, Query *of, i8 m, const i8 *order, const f8 *scores, const f8 *gains,
                       const f8 *reads, const f8 *weights) {
    Partners *all = &of->all;
    of->m = all->count = m;
    f8 *restrict z = all->z, *restrict E = all->E, *restrict inverse = of->inverse, sigma = options->sigma;
    f8 *restrict gain = all->gain, *restrict read = of->read;
    for (i8 r = 0; r < m; r++) {
        z[r] = sigma * scores[order[r]];
        gain[r] = gains[order[r]];
        read[r] = reads[order[r]];
    }
    if (options->weighted)
        for (i8 r = 0; r < m; r++) all->weight[r] = weights[order[r]];
    f8 first = z[0], range = first - z[m - 1];
    of->wide = !(range <= WIDEST);
    of->normed = options->norm > 0.0 && range != 0.0;
    of->fused = of->normed && !of->wide && options->norm * range < FARTHEST;
    if (!of->wide)
        for (i8 r = 0; r < m; r++) {
            E[r] = exp1(z[r] - first);
            inverse[r] = 1.0 / E[r];
        }
    pad(all, all->z[m - 1]);
    swap_deltas(options, of);
    of->rest.count = -1;
    if (!options->two_sided && !(options->mu > 0.0)) gather_rest(of, options->weighted);
}

/* Return the end of the ranks that are the better one of some pair; a tied group at the boundary is included. */
static i8 reach(const Options *options, const Query *of) {
    return 0 < options->last && options->last < of->m ? of->group_end[options->last - 1] : of->m;
}

/* mu·δ, δ = 1/D(d) − 1/D(d + 1) with d = the distance in rank; for tied documents its mean over their ranks.

Over the ranks p of one group and r of a later one, Σ_p Σ_r δ(r − p) telescopes in r and is a difference of running sums
in p. Within a group of g documents, g − d pairs of ranks lie at the distance d. */
static void add_distances(const Options *options, const Query *of, i8 rank) {
    const f8 *inverse = options->distance, *sums = options->distance_sums;
    i8 low = of->group_start[rank], high = of->group_end[rank], size = high - low;
    f8 inside = 0.0;
    for (i8 d = 1; d < size; d++) inside += (f8)(size - d) * (inverse[d] - inverse[d + 1]);
    for (i8 b = rank + 1; b < of->m; b++) {
        i8 lower = of->group_start[b], upper = of->group_end[b];
        if (lower == low)
            of->delta[b] += options->mu * inside / (0.5 * (f8)(size * (size - 1)));
        else if (size == 1 && upper - lower == 1)
            of->delta[b] += options->mu * (inverse[lower - rank] - inverse[lower - rank + 1]);
        else {
            f8 total = sums[lower - low] - sums[lower - high] - sums[upper - low] + sums[upper - high];
            of->delta[b] += options->mu * total / (f8)(size * (upper - lower));
        }
    }
}

static const f8 AFTER[2 * LANES] = {[LANES] = 1, 1, 1, 1, 1, 1, 1, 1};

/* Compute the row of rank a, with Δ of its pairs at delta[b]; before the first and beyond the last of them Δ is 0. */
static Row begin_row(const Options *options, Query *of, i8 a) {
    bool to_rest = of->rest.count >= 0 && (of->rest_before[a + 1] == of->rest_before[a]);
    const Partners *partners = to_rest ? &of->rest : &of->all;
    i8 from = to_rest ? of->rest_before[a] : a + 1, n = partners->count, group = of->group_end[a];
    f8 top = of->top[a], slope = of->slope[a], *restrict delta = of->delta, *restrict E = partners->E;
    i8 aligned = from / LANES * LANES; /* a load across earlier stores would stall */
    const f8 *restrict below = partners->below, *after = AFTER + LANES - (from - aligned);
    for (i8 first = aligned; first < n; first += LANES)
        for (i8 b = first; b < first + LANES; b++) delta[b] = larger(0.0, top - slope * below[b]); /* < 0 is rounding */
    for (i8 lane = 0; lane < LANES; lane++) delta[aligned + lane] *= after[lane];
    memset(delta + n, 0, STEP * sizeof(f8));
    for (i8 b = from, end = to_rest ? of->rest_before[group] : group; b < end; b++) delta[b] = of->tie[a];
    f8 z = of->all.z[a];
    if (of->wide) /* if scores are too far apart for one exponential per document, E is x itself */
        for (i8 b = from; b < n; b++) E[b] = exp1(partners->z[b] - z);
    if (options->mu > 0.0) add_distances(options, of, a);
    if (of->normed && !of->fused)
        for (i8 b = from; b < n; b++) delta[b] /= 0.01 + options->norm * (z - partners->z[b]);
    if (options->weighted)
        for (i8 b = from; b < n; b++) delta[b] *= of->all.weight[a] * partners->weight[b];
    return (Row){partners, aligned, z, of->all.gain[a], of->wide ? 1.0 : of->inverse[a]};
}

/* log(1 + x) for 0 ≤ x ≤ 1: s·f(s²) with s = x/(2 + x) ≤ 1/3 and f(y) = 2·artanh(√y)/√y, as the polynomial that
   interpolates it in the 10 Chebyshev nodes of [0, 1/9]: accurate to rounding. */
INLINE f8 log1p_below_one(f8 x) {
    f8 s = x / (2.0 + x), y = s * s, w = y * y;
    f8 even = 0x1.0000000000006p1 + w * (0x1.9999999fdb469p-2 + w * (0x1.c71cc1fc882e3p-3
             + w * (0x1.3afd2f2d1acccp-3 + w * 0x1.997fcc1f9999ap-4)));
    f8 odd = 0x1.5555555550491p-1 + w * (0x1.249247ac437c6p-2 + w * (0x1.7459d40fb6ca8p-3
             + w * (0x1.14ab832046665p-3 + w * 0x1.7179149000000p-3)));
    return s * (even + y * odd);
}

/* Sums over the pairs of a row and of a query; pair number i is in lane i mod 8. */
typedef struct {
    f8 force[LANES], bend[LANES], moved[LANES], loss[LANES];
} Sums;

/* One pair: x, 1/(1 + x) and Δ in; gradient and curvature out. */
INLINE void one_pair(f8 own_gain, f8 gain, f8 own_z, f8 z, f8 x, f8 win, f8 delta, bool two_sided, bool with_losses,
                     f8 *restrict push, f8 *restrict bent, f8 *restrict loss) {
    f8 weight = (own_gain - gain) * delta, both = fabs(weight), beta = 0.5 * (both - weight), up = both;
    if (two_sided) {
        beta = gain * delta;
        both = (own_gain + gain) * delta;
        up = (larger(own_gain, 0.0) + larger(gain, 0.0)) * delta;
    }
    *push = beta - both * (x * win);
    *bent = up * (x * win) * win;
    *loss = with_losses ? both * log1p_below_one(x) + beta * (own_z - z) : 0.0;
}

/* All pairs of a row, 16 at a time; gradients and losses are added to the sums of the query. Divisions are combined:
   1/u and 1/v are v·(1/uv) and u·(1/uv). */
INLINE void sum_row(const Row *row, const f8 *restrict deltas, const f8 *restrict E, const f8 *restrict z,
                    const f8 *restrict gains, f8 *restrict force, f8 *restrict bend, bool normed, f8 norm,
                    bool two_sided, bool with_losses, Sums *restrict into) {
    const f8 own_z = row->z, gain = row->gain, scale = row->inverse;
    const i8 n = row->partners->count;
    memset(into->force, 0, sizeof into->force);
    memset(into->bend, 0, sizeof into->bend);
    for (i8 first = row->from; first < n; first += STEP)
        EACH_LANE(lane) {
            i8 b = first + lane, c = b + LANES;
            f8 x = E[b] * scale, y = E[c] * scale, u = 1.0 + x, v = 1.0 + y, delta = deltas[b], next = deltas[c];
            f8 win, win_next, push, push_next, bent, bent_next, loss, loss_next;
            if (normed) {
                f8 far = 0.01 + norm * fabs(own_z - z[b]), farther = 0.01 + norm * fabs(own_z - z[c]);
                f8 one = u * far, two = v * farther, inverse = 1.0 / (one * two);
                f8 of_one = two * inverse, of_two = one * inverse;
                delta *= u * of_one;
                next *= v * of_two;
                win = far * of_one;
                win_next = farther * of_two;
            } else {
                f8 inverse = 1.0 / (u * v);
                win = v * inverse;
                win_next = u * inverse;
            }
            one_pair(gain, gains[b], own_z, z[b], x, win, delta, two_sided, with_losses, &push, &bent, &loss);
            one_pair(gain, gains[c], own_z, z[c], y, win_next, next, two_sided, with_losses, &push_next, &bent_next,
                     &loss_next);
            force[b] -= push;
            force[c] -= push_next;
            bend[b] += bent;
            bend[c] += bent_next;
            into->force[lane] += push + push_next;
            into->bend[lane] += bent + bent_next;
            into->moved[lane] += fabs(push) + fabs(push_next);
            if (with_losses) into->loss[lane] += loss + loss_next;
        }
}

/* Instantiate the loop once for each combination of options. */
static void row_sums(const Options *options, const Query *of, const Row *row, bool with_losses, Sums *into) {
    const Partners at = *row->partners;
#define SUM_ROW(normed, two_sided, with_losses) \
    sum_row(row, of->delta, at.E, at.z, at.gain, at.force, at.bend, normed, options->norm, two_sided, with_losses, into)
    if (options->two_sided && with_losses)
        SUM_ROW(false, true, true);
    else if (options->two_sided)
        SUM_ROW(false, true, false);
    else if (of->fused && with_losses)
        SUM_ROW(true, false, true);
    else if (of->fused)
        SUM_ROW(true, false, false);
    else if (with_losses)
        SUM_ROW(false, false, true);
    else
        SUM_ROW(false, false, false);
}

/* Compute gradient, curvature and loss of a ranked query. LightGBM's normalization multiplies `scale`. */
static f8 sum_query(const Options *options, Query *of, bool with_losses, f8 *scale) {
    Sums sums = {0};
    f8 *force = of->all.force, *bend = of->all.bend;
    for (i8 a = 0, end = reach(options, of); a < end; a++) {
        Row row = begin_row(options, of, a);
        row_sums(options, of, &row, with_losses, &sums);
        force[a] += joined(sums.force);
        bend[a] += joined(sums.bend);
    }
    const f8 *rest_force = of->rest.force, *rest_bend = of->rest.bend;
    const i8 *before = of->rest_before, stop = of->rest.count >= 0 ? of->m : 0;
    for (i8 a = 0; a < stop; a++) {
        bool is_rest = before[a + 1] > before[a];
        force[a] += is_rest ? rest_force[before[a]] : 0.0;
        bend[a] += is_rest ? rest_bend[before[a]] : 0.0;
    }
    f8 loss = joined(sums.loss), moved = joined(sums.moved);
    if (!(options->norm > 0.0 && moved > 0.0)) return loss;
    f8 total = 2.0 * moved / options->norm; /* |d/ds|, s = z·norm, over both documents of every pair */
    f8 factor = log1(1.0 + total) * (1.0 / M_LN2) / total;
    *scale *= factor;
    return loss * factor;
}

/* Add a ranked query's part of H·V; curvatures of pairs replace Δ. */
static void multiply_query(const Options *options, Query *of, const i8 *rows, f8 scale, i8 c, const f8 *V, f8 *out) {
    const f8 *gain = of->all.gain, *E = of->all.E;
    of->fused = false;
    of->rest.count = -1;
    for (i8 a = 0, end = reach(options, of); a < end; a++) {
        Row row = begin_row(options, of, a);
        f8 *restrict curve = of->delta;
        for (i8 b = a + 1; b < of->m; b++) {
            f8 x = E[b] * row.inverse, win = 1.0 / (1.0 + x);
            f8 both = options->two_sided ? row.gain + gain[b] : fabs(row.gain - gain[b]);
            curve[b] *= scale * both * (x * win) * win;
        }
        const f8 *restrict upper = V + rows[a] * c;
        f8 *restrict up = out + rows[a] * c;
        for (i8 b = a + 1; b < of->m; b++) {
            const f8 *restrict lower = V + rows[b] * c, bend = curve[b];
            f8 *restrict down = out + rows[b] * c;
            if (bend == 0.0) continue;
            for (i8 k = 0; k < c; k++) {
                f8 flow = bend * (upper[k] - lower[k]);
                up[k] += flow;
                down[k] -= flow;
            }
        }
    }
}

/* Compute the loss of each query, and d/ds and the diagonal of d²/ds² of each row, both times `scale` of the query
   (which contains one factor σ). LightGBM's normalization multiplies `scale` by the factor of the query. `order`
   lists rows, best first, query by query; gains and the metric's terms are in the order of the rows. Weights may be
   empty: all are 1. rank_weights contains c(1), c(2) … for all ranks of the longest query; distance[d] = 1/log2(1 +
   d), 0 at index 0, and its running sums are read if mu > 0. */
KERNEL(i8, lambda_sums)(i8 n, i8 q, i8 w, i8 r, i8 d, const f8 scores[n], const i8 order[n], const i8 starts[q + 1],
                        const f8 gains[n], const f8 reads[n], const f8 weights[w], const f8 rank_weights[r],
                        const f8 distance[d], const f8 distance_sums[d], i8 kind, i8 last, f8 sigma, f8 mu, f8 norm,
                        u1 two_sided, u1 with_losses, f8 scale[q], f8 grad[n], f8 diagonal[n], f8 losses[q]) {
    Options options = {kind, last, sigma, mu, norm, two_sided, w == n, rank_weights, distance, distance_sums};
    Query of;
    Room room = make_room(&of, longest_query(q, starts));
    if (!room.floats || !room.wholes) return leave(room, OUT_OF_MEMORY);
    for (i8 i = 0; i < q; i++) {
        const i8 *rows = order + starts[i];
        rank_query(&options, &of, starts[i + 1] - starts[i], rows, scores, gains, reads, weights);
        losses[i] = sum_query(&options, &of, with_losses, scale + i);
        const f8 *force = of.all.force, *bend = of.all.bend, first = scale[i], second = scale[i] * sigma;
        for (i8 a = 0, m = of.m; a < m; a++) {
            grad[rows[a]] = first * force[a];
            diagonal[rows[a]] = second * bend[a];
        }
    }
    return leave(room, 0);
}

/* H·V, H = d²/dz² times `scale` of the query: a pair of curvature c adds c·(V_a − V_b) to a. */
KERNEL(i8, lambda_product)(i8 n, i8 q, i8 w, i8 r, i8 d, i8 c, const f8 scores[n], const i8 order[n],
                           const i8 starts[q + 1], const f8 gains[n], const f8 reads[n], const f8 weights[w],
                           const f8 rank_weights[r], const f8 distance[d], const f8 distance_sums[d], i8 kind, i8 last,
                           f8 sigma, f8 mu, f8 norm, u1 two_sided, const f8 scale[q], const f8 V[n][c], f8 out[n][c]) {
    Options options = {kind, last, sigma, mu, norm, two_sided, w == n, rank_weights, distance, distance_sums};
    Query of;
    Room room = make_room(&of, longest_query(q, starts));
    if (!room.floats || !room.wholes) return leave(room, OUT_OF_MEMORY);
    memset(out, 0, (size_t)(n * c) * sizeof(f8));
    for (i8 i = 0; i < q; i++) {
        const i8 *rows = order + starts[i];
        rank_query(&options, &of, starts[i + 1] - starts[i], rows, scores, gains, reads, weights);
        multiply_query(&options, &of, rows, scale[i], c, (const f8 *)V, (f8 *)out);
    }
    return leave(room, 0);
}
