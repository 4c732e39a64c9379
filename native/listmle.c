/* Plackett–Luce likelihood of an ideal order with tied groups; the formulas are in losses/listmle.py.

Documents are in the ideal order (best grade first), cut into groups of tied documents. A term of a group with l < d has
the risk sum Z_l = below + c_l·tied, where `tied` sums e^s over the group, `below` over everything of lower grade, and
c_l = 1 − l/d (Efron) or 1 (Breslow, or groups of one document). There are no subtractions.

All exponentials of a group are relative to the largest score in its risk set, so 1/d ≤ Z_l ≤ m. From a group to the
next better one that reference can only rise; `ratio` ≤ 1 carries sums over lower documents upwards and sums over better
groups' terms downwards, so nothing overflows in either direction.

A block of queries comes as slices of arrays over all data: `order` holds rows of the data, `starts` places in the ideal
order of the data, `groups` numbers of groups; their first entries give the start of the block. */
#include "sums.h"

#define FACTORS 16 /* risk sums multiplied before one logarithm is taken: each is between 1/m and m */

enum { RATIO, BELOW_1, TIED_1, BELOW_2, MIXED_2, TIED_2 }; /* rows of a curvature's sums: Σ_l w̄·c_l^a / Z_l^b */

typedef struct {
    const i8 *order, *starts, *groups;
    i8 base, first_group;
} Layout;

INLINE Layout layout_of(const i8 *order, const i8 *starts, const i8 *groups) {
    return (Layout){order, starts, groups, starts[0], groups[0]};
}
INLINE i8 first_of(const Layout *at, i8 k) { return at->groups[k] - at->first_group; }
INLINE i8 start_of(const Layout *at, i8 g) { return at->starts[g] - at->base; }
INLINE i8 row_of(const Layout *at, i8 i) { return at->order[i] - at->base; }

/* From the lowest group of query k upwards; ratio[g] = exp(reference of the group after g − reference of g). The
   exponents are computed first, so that e^x is evaluated for many values at a time, for any group size. */
static void suffix_sums(const Layout *at, i8 k, const f8 *scores, f8 *e, f8 *ratio, f8 *top, f8 *below, f8 *tied) {
    const i8 first = first_of(at, k), last = first_of(at, k + 1);
    f8 reference = -INFINITY, lower = 0.0;
    for (i8 g = last - 1; g >= first; g--) {
        const i8 start = start_of(at, g), d = start_of(at, g + 1) - start;
        f8 *own = e + start;
        for (i8 i = 0; i < d; i++) own[i] = scores[row_of(at, start + i)];
        top[g] = larger(reference, largest(d, own));
        ratio[g] = reference - top[g];
        reference = top[g];
        for (i8 i = 0; i < d; i++) own[i] -= reference;
    }
    const i8 begin = start_of(at, first), end = start_of(at, last); /* local copies, for vectorization */
    for (i8 i = begin; i < end; i++) e[i] = exp1(e[i]);
    for (i8 g = first; g < last; g++) ratio[g] = exp1(ratio[g]);
    for (i8 g = last - 1; g >= first; g--) {
        below[g] = lower * ratio[g];
        tied[g] = sum(start_of(at, g + 1) - start_of(at, g), e + start_of(at, g));
        lower = below[g] + tied[g];
    }
}

typedef struct {
    f8 logs, for_below, for_tied; /* Σ_l log Z_l, Σ_l 1/Z_l and Σ_l c_l/Z_l */
} Terms;

INLINE f8 logs_of(f8 *products) {
    for (int lane = 0; lane < LANES; lane++) products[lane] = log1(products[lane]);
    return joined(products);
}

static Terms efron_terms(f8 below, f8 tied, i8 d) {
    f8 products[LANES], inverses[LANES] = {0}, shares[LANES] = {0}, logs = 0.0;
    for (int lane = 0; lane < LANES; lane++) products[lane] = 1.0;
    i8 l = 0, factors = 0;
    for (; l + LANES <= d; l += LANES) {
        const f8 left = (f8)(d - l), all = (f8)d;
        for (int lane = 0; lane < LANES; lane++) {
            f8 share = (left - (f8)lane) / all, total = below + share * tied, inverse = 1.0 / total;
            inverses[lane] += inverse;
            shares[lane] += share * inverse;
            products[lane] *= total;
        }
        if (++factors < FACTORS) continue;
        logs += logs_of(products);
        for (int lane = 0; lane < LANES; lane++) products[lane] = 1.0;
        factors = 0;
    }
    if (factors > 0) logs += logs_of(products);
    Terms found = {logs, joined(inverses), joined(shares)};
    f8 product = 1.0;
    for (; l < d; l++) {
        f8 share = (f8)(d - l) / (f8)d, total = below + share * tied, inverse = 1.0 / total;
        found.for_below += inverse;
        found.for_tied += share * inverse;
        product *= total;
    }
    found.logs += log1(product);
    return found;
}

/* `log_of_all` is log(below + tied), which is sufficient if no part of a group is subtracted. */
INLINE Terms terms_of(f8 below, f8 tied, f8 log_of_all, i8 d, u1 efron) {
    if (efron && d > 1) return efron_terms(below, tied, d);
    const f8 inverse = (f8)d / (below + tied);
    return (Terms){(f8)d * log_of_all, inverse, inverse};
}

/* Like `likelihood` without ties, with identical bits: the relevant documents of all queries are contiguous in
   `rooms`, so that e^x, logarithms and quotients are computed for many values at a time, even for short queries. */
static void likelihood_of_orders(const Layout *at, i8 q, const f8 *scores, const f8 *weights, const f8 *mass,
                                 const f8 *scale, const f8 *group_weights, f8 *const rooms[6], f8 *grad, f8 *losses) {
    f8 *e = rooms[0], *ratio = rooms[1], *top = rooms[2], *total = rooms[3], *logs = rooms[4], *inverse = rooms[5];
    i8 n = 0;
    for (i8 k = 0; k < q; k++) {
        const i8 start = first_of(at, k), stop = first_of(at, k + 1);
        f8 reference = -INFINITY;
        losses[k] = 0.0;
        for (i8 i = stop - 1; i >= start; i--) {
            if (mass[k] == 0.0) {
                grad[row_of(at, i)] = 0.0;
                continue;
            }
            const f8 own = scores[row_of(at, i)], largest_so_far = larger(reference, own);
            const i8 place = n + i - start;
            top[place] = largest_so_far;
            ratio[place] = reference - largest_so_far;
            e[place] = own - largest_so_far;
            reference = largest_so_far;
        }
        n += mass[k] == 0.0 ? 0 : stop - start;
    }
    for (i8 i = 0; i < n; i++) e[i] = exp1(e[i]);
    for (i8 i = 0; i < n; i++) ratio[i] = exp1(ratio[i]);
    for (i8 k = 0, begin = 0; k < q; k++) {
        const i8 m = mass[k] == 0.0 ? 0 : first_of(at, k + 1) - first_of(at, k);
        f8 lower = 0.0;
        for (i8 i = begin + m - 1; i >= begin; i--) total[i] = lower = lower * ratio[i] + e[i];
        begin += m;
    }
    for (i8 i = 0; i < n; i++) logs[i] = log1(total[i]);
    for (i8 i = 0; i < n; i++) inverse[i] = 1.0 / total[i];
    for (i8 k = 0, begin = 0; k < q; k++) {
        if (mass[k] == 0.0) continue;
        const i8 start = first_of(at, k), m = first_of(at, k + 1) - start;
        f8 loss = 0.0, above = 0.0;
        for (i8 j = 0; j < m; j++) {
            const i8 i = begin + j, row = row_of(at, start + j);
            const f8 mean = group_weights[start + j], weight = weights[start + j];
            if (j > 0) above *= ratio[i - 1];
            f8 share = above, more = 0.0;
            if (mean > 0.0) {
                loss += mean * logs[i];
                share += mean * inverse[i];
                more = mean * inverse[i];
            }
            loss += weight * (top[i] - scores[row]);
            grad[row] = scale[k] * (e[i] * share - weight);
            above += more;
        }
        losses[k] = loss;
        begin += m;
    }
}

/* The losses of a block's queries and their gradients times the queries' scales. */
KERNEL(i8, likelihood)
(i8 n, i8 q, i8 g, const f8 scores[n], const i8 order[n], const f8 weights[n], const f8 mass[q], const f8 scale[q],
 const i8 starts[g + 1], const f8 group_weights[g], const i8 groups[q + 1], u1 efron, f8 grad[n], f8 losses[q]) {
    f8 *e = scratch(n + 5 * g, sizeof(f8));
    if (!e) return OUT_OF_MEMORY;
    f8 *ratio = e + n, *top = ratio + g, *below = top + g, *tied = below + g, *logs = tied + g;
    const Layout at = layout_of(order, starts, groups);
    if (g == n) {
        f8 *const rooms[6] = {e, ratio, top, below, tied, logs};
        likelihood_of_orders(&at, q, scores, weights, mass, scale, group_weights, rooms, grad, losses);
        give_back(e);
        return 0;
    }
    for (i8 k = 0; k < q; k++) {
        const i8 first = first_of(&at, k), last = first_of(&at, k + 1);
        losses[k] = 0.0;
        if (mass[k] == 0.0) {
            for (i8 i = start_of(&at, first); i < start_of(&at, last); i++) grad[i] = 0.0;
            continue;
        }
        suffix_sums(&at, k, scores, e, ratio, top, below, tied);
        for (i8 group = first; group < last; group++) logs[group] = log1(below[group] + tied[group]);
        f8 loss = 0.0, above = 0.0;
        for (i8 group = first; group < last; group++) {
            const i8 start = start_of(&at, group), stop = start_of(&at, group + 1);
            const f8 mean = group_weights[group];
            if (group > first) above *= ratio[group - 1];
            f8 share = above, more = 0.0;
            if (mean > 0.0) {
                const Terms terms = terms_of(below[group], tied[group], logs[group], stop - start, efron);
                loss += mean * terms.logs;
                share += mean * terms.for_tied;
                more = mean * terms.for_below;
            }
            for (i8 i = start; i < stop; i++) {
                const i8 row = row_of(&at, i);
                loss += weights[i] * (top[group] - scores[row]);
                grad[row] = scale[k] * (e[i] * share - weights[i]);
            }
            above += more;
        }
        losses[k] = loss;
    }
    give_back(e);
    return 0;
}

/* The state of a curvature: e^s in the ideal order, and for each group the rows named above, times the query's scale.
*/
KERNEL(i8, risk_sums)
(i8 n, i8 q, i8 g, const f8 scores[n], const i8 order[n], const f8 scale[q], const i8 starts[g + 1],
 const f8 group_weights[g],
 const i8 groups[q + 1], u1 efron, f8 e[n], f8 sums[6][g]) {
    f8 *top = scratch(3 * g, sizeof(f8));
    if (!top) return OUT_OF_MEMORY;
    f8 *below = top + g, *tied = below + g;
    const Layout at = layout_of(order, starts, groups);
    for (i8 k = 0; k < q; k++) {
        suffix_sums(&at, k, scores, e, sums[RATIO], top, below, tied);
        for (i8 group = first_of(&at, k); group < first_of(&at, k + 1); group++) {
            const i8 d = start_of(&at, group + 1) - start_of(&at, group);
            const f8 mean = scale[k] * group_weights[group];
            for (int row = BELOW_1; row <= TIED_2; row++) sums[row][group] = 0.0;
            for (i8 left = mean > 0.0 ? d : 0; left > 0; left--) {
                const f8 share = efron ? (f8)left / (f8)d : 1.0, total = below[group] + share * tied[group];
                const f8 once = mean / total, twice = once / total;
                sums[BELOW_1][group] += once;
                sums[TIED_1][group] += once * share;
                sums[BELOW_2][group] += twice;
                sums[MIXED_2][group] += twice * share;
                sums[TIED_2][group] += twice * share * share;
            }
        }
    }
    give_back(top);
    return 0;
}

/* Upwards: a risk set holds its own group and all below it. The reference rises on the way, hence the ratios. */
static void sums_below(const Layout *at, i8 k, i8 width, const f8 *e, const f8 *ratio, const f8 *V, f8 *product,
                       f8 *below) {
    for (i8 c = 0; c < width; c++) below[c] = 0.0;
    for (i8 g = first_of(at, k + 1) - 1; g >= first_of(at, k); g--) {
        f8 *keep = product + row_of(at, start_of(at, g)) * width;
        for (i8 c = 0; c < width; c++) keep[c] = below[c] *= ratio[g];
        for (i8 i = start_of(at, g); i < start_of(at, g + 1); i++) {
            const f8 *v = V + row_of(at, i) * width;
            for (i8 c = 0; c < width; c++) below[c] += e[i] * v[c];
        }
    }
}

/* Σ over terms of weight·p_i·(V_i − Σ_j p_j V_j), without a loop over the terms of a group.

The row of `product` that belongs to a group's first document keeps Σ e^s V over everything below the group until the
pass downwards replaces it by the result. */
KERNEL(i8, risk_times)
(i8 n, i8 q, i8 g, i8 width, const f8 e[n], const f8 sums[6][g], const i8 order[n], const f8 mass[q],
 const i8 starts[g + 1],
 const i8 groups[q + 1], const f8 V[n][width], f8 product[n][width]) {
    f8 *below = scratch(3 * width, sizeof(f8));
    if (!below) return OUT_OF_MEMORY;
    f8 *tied = below + width, *above = tied + width;
    const Layout at = layout_of(order, starts, groups);
    for (i8 k = 0; k < q; k++) {
        const i8 first = first_of(&at, k), last = first_of(&at, k + 1);
        if (mass[k] == 0.0) {
            for (i8 i = start_of(&at, first); i < start_of(&at, last); i++)
                for (i8 c = 0; c < width; c++) product[i][c] = 0.0;
            continue;
        }
        sums_below(&at, k, width, e, sums[RATIO], (const f8 *)V, (f8 *)product, below);
        /* Downwards: a document is in the risk sets of its own group's terms and of all better groups' terms. */
        for (i8 c = 0; c < width; c++) above[c] = 0.0;
        f8 terms = 0.0;
        for (i8 group = first; group < last; group++) {
            const i8 start = start_of(&at, group), stop = start_of(&at, group + 1);
            const f8 carried = group > first ? sums[RATIO][group - 1] : 1.0, *lower = product[row_of(&at, start)];
            const f8 below_2 = sums[BELOW_2][group], mixed_2 = sums[MIXED_2][group], tied_2 = sums[TIED_2][group];
            terms *= carried;
            for (i8 c = 0; c < width; c++) tied[c] = 0.0;
            for (i8 i = start; i < stop; i++)
                for (i8 c = 0; c < width; c++) tied[c] += e[i] * V[row_of(&at, i)][c];
            for (i8 c = 0; c < width; c++) {
                above[c] *= carried;
                below[c] = above[c] + mixed_2 * lower[c] + tied_2 * tied[c]; /* this group's own mean */
                above[c] += below_2 * lower[c] + mixed_2 * tied[c];
            }
            const f8 own = terms + sums[TIED_1][group];
            for (i8 i = start; i < stop; i++) {
                const i8 row = row_of(&at, i);
                for (i8 c = 0; c < width; c++) product[row][c] = e[i] * (own * V[row][c] - below[c]);
            }
            terms += sums[BELOW_1][group];
        }
    }
    give_back(below);
    return 0;
}

/* Σ over terms of weight·p_i·(1 − p_i); rounding never makes it negative. */
KERNEL(void, risk_diagonal)
(i8 n, i8 q, i8 g, const f8 e[n], const f8 sums[6][g], const i8 order[n], const i8 starts[g + 1],
 const i8 groups[q + 1],
 f8 diagonal[n]) {
    const Layout at = layout_of(order, starts, groups);
    for (i8 k = 0; k < q; k++) {
        f8 once = 0.0, twice = 0.0;
        for (i8 group = first_of(&at, k); group < first_of(&at, k + 1); group++) {
            const f8 carried = group > first_of(&at, k) ? sums[RATIO][group - 1] : 1.0;
            once *= carried;
            twice *= carried * carried;
            for (i8 i = start_of(&at, group); i < start_of(&at, group + 1); i++) {
                const f8 value = e[i] * (once + sums[TIED_1][group]) - e[i] * e[i] * (twice + sums[TIED_2][group]);
                diagonal[row_of(&at, i)] = larger(value, 0.0);
            }
            once += sums[BELOW_1][group];
            twice += sums[BELOW_2][group];
        }
    }
}
