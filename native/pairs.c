/* Pairs of a query: value, slopes and curvature of Σ_{y_i > y_j} c_ij w_i w_j φ(s_i − s_j), c_ij = 1 or y_i − y_j.

All arrays are in the order of `PairFrame`: within a query, documents rise by label, so that the worse partners of a
document are one contiguous range (0 … begin − 1) and the better ones another (end … m − 1).

`plain_pairs` works for every margin function φ, with an exponential for each pair where φ has one. There are faster
methods:

  * Logistic: with E = e^s, σ(s_j − s_i) = E_j/(E_i + E_j), and a sum of log(1 + E_j/E_i) is the logarithm of a product:
    one exponential for each document, half a division for each pair.
  * Exponential: e^{−(s_i − s_j)} factorizes, so sums over grades do: O(m), no pairs at all.
  * Hinges of queries with many pairs: one sweep along the scores with running sums for each grade, O(m log m). */
#include "sums.h"

CODES(Margin, HINGE, SQUARED_HINGE, LOGISTIC, EXPONENTIAL)

#define STEEPEST 600.0 /* e^600 times any number of pairs is finite */
#define STEEPEST_EXP 0x1.88a122d234b39p865 /* e^600 */
#define WIDEST 299.0   /* (1 + e^299)² < e^600 */
#define STEP 16        /* pairs at once: two in each lane share a division */
#define LONGEST_PRODUCT 32 /* steps before the logarithm of a product is taken */
#define NARROW 4       /* minimum documents of a grade for which ranges of equal grades fill the lanes */
#define SUMS 3         /* Σw, Σw·gap, Σw·gap² */
#define VECTORS 3      /* number of arrays of the query's length that it needs in addition to the tree */

typedef struct {
    i8 m;
    const f8 *scores, *labels, *weights;
    const i8 *begin, *end;
    bool by_difference;
    f8 *slopes;
} Query;

static f8 lowest_of(i8 n, const f8 *x) {
    f8 low = x[0];
    for (i8 i = 1; i < n; i++) low = smaller(low, x[i]);
    return low;
}

/* c_ij w_i w_j for the worse partners j < n of a document. */
static void pair_factors(i8 n, f8 label, f8 weight, const f8 *labels, const f8 *weights, bool by_difference,
                         f8 *restrict factors) {
    if (by_difference)
        for (i8 j = 0; j < n; j++) factors[j] = weight * weights[j] * (label - labels[j]);
    else
        for (i8 j = 0; j < n; j++) factors[j] = weight * weights[j];
}

/* φ and −φ' of the margins score − scores[j], times the factors; the values take the place of the factors. */
static void margin_terms(i8 kind, i8 n, f8 score, const f8 *scores, f8 *restrict values, f8 *restrict slopes) {
    if (kind == LOGISTIC)
        for (i8 j = 0; j < n; j++) {
            f8 margin = score - scores[j], decay = exp1(-fabs(margin)), factor = values[j];
            slopes[j] = factor * ((margin > 0.0 ? decay : 1.0) / (1.0 + decay));
            values[j] = factor * (log1p1(decay) + larger(-margin, 0.0));
        }
    else if (kind == EXPONENTIAL)
        for (i8 j = 0; j < n; j++) { /* beyond STEEPEST it continues as its tangent */
            f8 margin = score - scores[j], value = exp1(smaller(-margin, STEEPEST)), factor = values[j];
            slopes[j] = factor * value;
            values[j] = factor * (-margin <= STEEPEST ? value : STEEPEST_EXP * (1.0 - margin - STEEPEST));
        }
    else if (kind == HINGE)
        for (i8 j = 0; j < n; j++) {
            f8 gap = 1.0 - (score - scores[j]), factor = values[j];
            slopes[j] = gap > 0.0 ? factor : 0.0;
            values[j] = gap > 0.0 ? factor * gap : 0.0;
        }
    else
        for (i8 j = 0; j < n; j++) {
            f8 gap = larger(0.0, 1.0 - (score - scores[j])), factor = values[j];
            slopes[j] = factor * 2.0 * gap;
            values[j] = factor * (gap * gap);
        }
}

/* φ'' of the margins; σ(1 − σ) = E_i E_j/(E_i + E_j)² where the keys are masses E. */
static void margin_bends(i8 kind, bool by_mass, i8 n, f8 key, const f8 *keys, f8 *restrict bends) {
    if (by_mass)
        for (i8 j = 0; j < n; j++) {
            f8 both = key + keys[j];
            bends[j] = key * keys[j] / (both * both);
        }
    else if (kind == LOGISTIC)
        for (i8 j = 0; j < n; j++) {
            f8 decay = exp1(-fabs(key - keys[j]));
            bends[j] = decay / ((1.0 + decay) * (1.0 + decay));
        }
    else if (kind == EXPONENTIAL)
        for (i8 j = 0; j < n; j++) {
            f8 margin = key - keys[j];
            bends[j] = -margin <= STEEPEST ? exp1(-margin) : 0.0;
        }
    else
        for (i8 j = 0; j < n; j++) bends[j] = kind == SQUARED_HINGE && 1.0 - (key - keys[j]) > 0.0 ? 2.0 : 0.0;
}

/* Σ c w w φ(s_i − s_j) over the pairs of one query; its derivatives are added to the slopes. */
static f8 plain_pairs(i8 kind, const Query *of, f8 *values, f8 *terms) {
    f8 total = 0.0, *restrict slopes = of->slopes;
    for (i8 i = 0; i < of->m; i++) {
        i8 n = of->begin[i];
        if (n == 0) continue;
        pair_factors(n, of->labels[i], of->weights[i], of->labels, of->weights, of->by_difference, values);
        margin_terms(kind, n, of->scores[i], of->scores, values, terms);
        for (i8 j = 0; j < n; j++) slopes[j] += terms[j];
        slopes[i] -= sum(n, terms);
        total += sum(n, values);
    }
    return total;
}

/* Numbers proportional to e^s, from e^{−r/2} to e^{r/2} for scores within a range of r. */
static void relative_masses(i8 m, const f8 *scores, f8 low, f8 high, f8 *restrict masses) {
    f8 middle = 0.5 * (low + high);
    for (i8 i = 0; i < m; i++) masses[i] = exp1(scores[i] - middle);
}

/* Add the logarithms of the products to the sums, and restart the products. */
static __attribute__((noinline)) void take_logs(f8 *restrict products, f8 *restrict logs) {
    for (int lane = 0; lane < LANES; lane++) {
        logs[lane] += log1(products[lane]);
        products[lane] = 1.0;
    }
}

/* Process one document with n worse ones, a multiple of STEP: their terms σ(s_j − s_i) are added to `gathered` and,
   by lanes, to `pull`; factors 1 + E_j/E_i are multiplied, and the logarithms of the products are taken when `steps`
   is reached; return the steps left. Two divisions by b_1 and b_2 are one by b_1 b_2 and three products. */
INLINE i8 logistic_row(i8 n, f8 mass, const f8 *restrict masses, f8 *restrict gathered, f8 *restrict pull,
                       f8 *restrict products, f8 *restrict logs, i8 left, i8 steps) {
    f8 inverses = 1.0 / (mass * mass);
    for (i8 first = 0; first < n; first += STEP) {
        EACH_LANE(lane) {
            i8 j = first + lane;
            f8 one = masses[j], two = masses[j + LANES];
            f8 with_one = mass + one, with_two = mass + two, both = with_one * with_two, inverse = 1.0 / both;
            f8 share_one = one * (with_two * inverse), share_two = two * (with_one * inverse);
            gathered[j] += share_one;
            gathered[j + LANES] += share_two;
            pull[lane] += share_one + share_two;
            products[lane] *= both * inverses;
        }
        if (--left == 0) {
            take_logs(products, logs);
            left = steps;
        }
    }
    return left;
}

/* Σ log(1 + E_j/E_i) and Σ σ(s_j − s_i) over better ≤ i < better_end and worse ≤ j < worse_end, times the factor.
   Products continue from one i to the next. Beyond the last j masses are 0, which adds nothing to the slopes and
   factors of 1 to products. */
static f8 logistic_range(const Query *of, const f8 *masses, i8 worse, i8 worse_end, i8 better, i8 better_end, i8 steps,
                         f8 factor, f8 *padded, f8 *gathered) {
    i8 n = worse_end - worse, whole = (n + STEP - 1) / STEP * STEP, left = steps;
    memcpy(padded, masses + worse, (size_t)n * sizeof(f8));
    memset(padded + n, 0, (size_t)(whole - n) * sizeof(f8));
    memset(gathered, 0, (size_t)whole * sizeof(f8));
    f8 logs[LANES] = {0}, products[LANES] = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}, *restrict slopes = of->slopes;
    for (i8 i = better; i < better_end; i++) {
        f8 pull[LANES] = {0};
        left = logistic_row(whole, masses[i], padded, gathered, pull, products, logs, left, steps);
        slopes[i] -= factor * joined(pull);
    }
    take_logs(products, logs);
    for (i8 j = 0; j < n; j++) slopes[worse + j] += factor * gathered[j];
    return factor * joined(logs);
}

/* Σ c log(1 + e^{−(s_i − s_j)}); needs scores within a range of WIDEST, and no document weights (they would be powers
inside the products). Very safe pairs (1 + E_j/E_i rounds to 1) add nothing to the value: an absolute error of about
1e-16 a pair. The slopes are accurate to the last digits. */
static f8 logistic_pairs(const Query *of, f8 low, f8 high, f8 *masses, f8 *padded, f8 *gathered) {
    relative_masses(of->m, of->scores, low, high, masses);
    i8 steps = least(LONGEST_PRODUCT, (i8)(STEEPEST / (2.0 * (high - low + 1.0)))); /* no product overflows */
    f8 total = 0.0;
    for (i8 better = 0, end = 0; better < of->m; better = end) {
        end = of->end[better];
        /* If all pairs have equal weights, all worse documents are one range; otherwise each label is a separate
           range. */
        for (i8 worse = 0, stop = 0; worse < of->begin[better]; worse = stop) {
            stop = of->by_difference ? of->end[worse] : of->begin[better];
            f8 factor = of->by_difference ? of->labels[better] - of->labels[worse] : 1.0;
            total += logistic_range(of, masses, worse, stop, better, end, steps, factor, padded, gathered);
        }
    }
    return total;
}

/* Return whether a query uses masses: not if scores are too far apart, nor if ranges of equal labels are all short. */
static bool by_masses(const Query *of, f8 low, f8 high) {
    if (!(high - low <= WIDEST)) return false;
    if (!of->by_difference) return true;
    i8 grades = 0;
    for (i8 i = 0; i < of->m; i = of->end[i]) grades++;
    return grades * NARROW <= of->m;
}

/* The largest s_j − s_i over pairs, in O(m). */
static f8 steepest_pair(const Query *of) {
    f8 steepest = -INFINITY, highest = -INFINITY;
    for (i8 start = 0, stop = 0; start < of->m; start = stop) {
        stop = of->end[start];
        if (start > 0) steepest = larger(steepest, highest - lowest_of(stop - start, of->scores + start));
        highest = larger(highest, largest(stop - start, of->scores + start));
    }
    return steepest;
}

/* sums[d] = w_d Σ_e c_de w_e e^{k_e − k_d} over the worse partners e of d (rising) or the better ones (falling); k =
   sign·s. Groups of equal label are processed in order. `mass` is Σ w e^{k − peak} over the previous groups, and
   `spread` the same sum with each group weighted by its distance in label: a step by a gap adds gap·mass to it, so
   there is no cancellation. */
static void partner_sums(const Query *of, f8 sign, bool rising, f8 *restrict sums) {
    const f8 *keys = of->scores, *weights = of->weights;
    f8 peak = -INFINITY, mass = 0.0, spread = 0.0;
    i8 at = rising ? 0 : of->m - 1;
    f8 last_label = of->labels[at];
    while (0 <= at && at < of->m) {
        i8 start = of->begin[at], stop = of->end[at];
        spread += fabs(of->labels[at] - last_label) * mass;
        last_label = of->labels[at];
        f8 reach = of->by_difference ? spread : mass;
        if (reach > 0.0)
            for (i8 d = start; d < stop; d++) sums[d] = weights[d] * reach * exp1(peak - sign * keys[d]);
        else
            for (i8 d = start; d < stop; d++) sums[d] = 0.0;
        f8 highest = sign > 0.0 ? largest(stop - start, keys + start) : sign * lowest_of(stop - start, keys + start);
        if (highest > peak) { /* sums are relative to the largest key so far: at most their number of terms */
            f8 shrink = exp1(peak - highest);
            peak = highest;
            mass *= shrink;
            spread *= shrink;
        }
        for (i8 d = start; d < stop; d++) mass += weights[d] * exp1(sign * keys[d] - peak);
        at = rising ? stop : start - 1;
    }
}

/* Σ c w w e^{−(s_i − s_j)}; needs every s_j − s_i to be at most STEEPEST. */
static f8 exponential_pairs(const Query *of, f8 *pull, f8 *push) {
    partner_sums(of, 1.0, true, pull);
    partner_sums(of, -1.0, false, push);
    for (i8 d = 0; d < of->m; d++) of->slopes[d] += push[d] - pull[d];
    return sum(of->m, pull);
}

/* State of the sweep over hinges: a binary indexed tree over the grades, each node with its sums and the key at
   which they are valid. */
typedef struct {
    f8 *tree, *reached;
    i8 grades, width;
} Sweep;

/* Update the sums of a node from its previous key to this one: gaps grow by the step. */
static void move_on(const Sweep *sweep, i8 node, f8 key) {
    f8 step = key - sweep->reached[node], *sums = sweep->tree + node * sweep->width;
    sweep->reached[node] = key;
    for (i8 part = 0; part < sweep->width; part += SUMS) {
        sums[part + 2] += step * (2.0 * sums[part + 1] + step * sums[part]);
        sums[part + 1] += step * sums[part];
    }
}

/* A pair (i, j), y_i > y_j, is active if s_i − s_j < 1. Documents d are processed by rising key k = sign·s: the set
   of keys below k_d + 1 only grows, and the tree returns the number of those with a higher grade, and their total
   gap to k_d + 1, in O(log grades). The running sums are Σw, Σw·gap and Σw·gap² with gap = 1 − (k_e − k_d) ≥ 0: only
   positive numbers are added, so there is no cancellation for any range of scores. For c = y_e − y_d there is a
   second triple, with weights w·|y − y of the first grade|. found[power] of each document is added to `sums`, and
   found[power − 1] times power to the slopes, with the sign. Grades are numbered 1, 2 … from the best in the
   direction of the sign, so that the grades better than d are a prefix. */
static void sweep_along(const Sweep *sweep, const Query *of, const i8 *visit, const i8 *numbers, f8 sign, i8 power,
                        f8 *restrict sums) {
    i8 width = sweep->width, grades = sweep->grades, head = 0;
    f8 lowest = sign > 0.0 ? of->labels[0] : -of->labels[of->m - 1];
    memset(sweep->tree, 0, (size_t)((grades + 1) * width) * sizeof(f8));
    memset(sweep->reached, 0, (size_t)(grades + 1) * sizeof(f8));
    for (i8 turn = 0; turn < of->m; turn++) {
        i8 d = sign > 0.0 ? visit[of->m - 1 - turn] : visit[turn];
        f8 key = sign * of->scores[d];
        for (; head < of->m; head++) {
            i8 e = sign > 0.0 ? visit[of->m - 1 - head] : visit[head];
            f8 above = sign * of->scores[e] - key;
            if (!(above < 1.0)) break;
            f8 gap = 1.0 - above, height = sign * of->labels[e] - lowest;
            /* node & −node is its lowest bit: adding it leads to the nodes that cover this one … */
            for (i8 node = sign > 0.0 ? grades - numbers[e] : numbers[e] + 1; node <= grades; node += node & -node) {
                f8 weight = of->weights[e], *at = sweep->tree + node * width;
                move_on(sweep, node, key);
                for (i8 part = 0; part < width; part += SUMS, weight *= height) {
                    at[part] += weight;
                    at[part + 1] += weight * gap;
                    at[part + 2] += weight * gap * gap;
                }
            }
        }
        f8 found[2 * SUMS] = {0};
        /* … and subtracting it to the nodes that make up the prefix. */
        for (i8 node = sign > 0.0 ? grades - numbers[d] - 1 : numbers[d]; node > 0; node -= node & -node) {
            move_on(sweep, node, key);
            for (i8 r = 0; r < width; r++) found[r] += sweep->tree[node * width + r];
        }
        f8 height = sign * of->labels[d] - lowest;
        if (of->by_difference)
            for (i8 r = 0; r < SUMS; r++) found[r] = found[SUMS + r] - height * found[r];
        sums[d] = of->weights[d] * found[power];
        of->slopes[d] += sign * (f8)power * of->weights[d] * found[power - 1];
    }
}

/* Σ c w w gap^power over the pairs of one query, power 1 or 2. `falling` lists the documents from the highest score
   down; the sweep over −s, with reversed grades, computes for each better document the sums over its worse partners. */
static f8 hinge_sweep(i8 power, const Query *of, const i8 *falling, i8 *numbers, f8 *room, f8 *sums) {
    Sweep sweep = {.grades = 0, .width = of->by_difference ? 2 * SUMS : SUMS};
    for (i8 start = 0; start < of->m; start = of->end[start], sweep.grades++)
        for (i8 d = start; d < of->end[start]; d++) numbers[d] = sweep.grades;
    sweep.reached = room;
    sweep.tree = room + sweep.grades + 1;
    sweep_along(&sweep, of, falling, numbers, 1.0, power, sums);
    f8 total = sum(of->m, sums);
    sweep_along(&sweep, of, falling, numbers, -1.0, power, sums);
    return total;
}

/* Loss of each query (mean over its pairs), and the scaled derivatives for its documents. `falling` lists the
   positions of the block from the highest score to the lowest within each query; it is used for hinges of queries
   with `many_pairs` per document, and empty otherwise. */
KERNEL(i8, pair_losses)(i8 n, i8 q, i8 f, const f8 scores[n], const i8 falling[f], const i8 offsets[q + 1],
                        const i8 begin[n], const i8 end[n], const f8 labels[n], const f8 weights[n], const f8 pairs[q],
                        i8 kind, u1 weighted, u1 by_difference, f8 many_pairs, const f8 scale[q], f8 losses[q],
                        f8 slopes[n]) {
    const i8 room = longest_query(q, offsets) + STEP, tree = f ? (2 * SUMS + 1) * (room + 1) : 0;
    f8 *space = scratch(VECTORS * room + tree, sizeof(f8));
    i8 *numbers = scratch(f ? 2 * room : 0, sizeof(i8));
    if (!space || !numbers) {
        give_back(space);
        give_back(numbers);
        return OUT_OF_MEMORY;
    }
    i8 *visit = numbers + (f ? room : 0);
    f8 *one = space, *two = space + room, *three = space + 2 * room, *nodes = space + VECTORS * room;
    for (i8 i = 0; i < q; i++) {
        i8 at = offsets[i], m = offsets[i + 1] - at;
        losses[i] = 0.0;
        memset(slopes + at, 0, (size_t)m * sizeof(f8));
        if (pairs[i] == 0.0) continue;
        Query of = {m, scores + at, labels + at, weights + at, begin + at, end + at, by_difference, slopes + at};
        bool hinges = kind == HINGE || kind == SQUARED_HINGE;
        f8 total, low = 0.0, high = 0.0;
        if (kind == LOGISTIC) low = lowest_of(m, of.scores), high = largest(m, of.scores);
        if (kind == LOGISTIC && !weighted && by_masses(&of, low, high))
            total = logistic_pairs(&of, low, high, one, two, three);
        else if (kind == EXPONENTIAL && steepest_pair(&of) <= STEEPEST)
            total = exponential_pairs(&of, one, two);
        else if (hinges && f == n && pairs[i] >= many_pairs * (f8)m) {
            for (i8 d = 0; d < m; d++) visit[d] = falling[at + d] - at;
            total = hinge_sweep(kind == HINGE ? 1 : 2, &of, visit, numbers, nodes, one);
        } else
            total = plain_pairs(kind, &of, one, two);
        losses[i] = total / pairs[i];
        f8 factor = scale[i] / pairs[i];
        for (i8 d = at; d < at + m; d++) slopes[d] *= factor;
    }
    give_back(space);
    give_back(numbers);
    return 0;
}

/* masses[d] = scale/pairs · Σ c w w over all pairs of document d, better or worse. */
KERNEL(i8, pair_masses)(i8 n, i8 q, const i8 offsets[q + 1], const i8 begin[n], const i8 end[n], const f8 labels[n],
                        const f8 weights[n], const f8 pairs[q], u1 by_difference, const f8 scale[q], f8 masses[n]) {
    const i8 longest = longest_query(q, offsets);
    f8 *level = scratch(2 * longest, sizeof(f8));
    if (!level) return OUT_OF_MEMORY;
    f8 *sums = level + longest;
    for (i8 d = 0; d < longest; d++) level[d] = 0.0;
    for (i8 i = 0; i < q; i++) {
        i8 at = offsets[i], m = offsets[i + 1] - at;
        memset(masses + at, 0, (size_t)m * sizeof(f8));
        if (pairs[i] == 0.0) continue;
        Query of = {m, level, labels + at, weights + at, begin + at, end + at, by_difference, NULL};
        for (int rising = 0; rising < 2; rising++) {
            partner_sums(&of, 1.0, rising == 1, sums);
            for (i8 d = 0; d < m; d++) masses[at + d] += sums[d] * (scale[i] / pairs[i]);
        }
    }
    give_back(level);
    return 0;
}

/* Add the pairs of document i. Differences are taken before products, so that constant columns yield exactly 0. */
static void spread_row(i8 n, i8 i, i8 c, const f8 *bends, const f8 *V, f8 *restrict out, f8 *restrict diagonal,
                       f8 *restrict changes) {
    for (i8 j = 0; j < n; j++) diagonal[j] += bends[j];
    diagonal[i] += sum(n, bends);
    if (c == 1) {
        for (i8 j = 0; j < n; j++) changes[j] = bends[j] * (V[i] - V[j]);
        for (i8 j = 0; j < n; j++) out[j] -= changes[j];
        out[i] += sum(n, changes);
        return;
    }
    f8 *own = out + i * c;
    for (i8 j = 0; j < n; j++) {
        f8 *other = out + j * c;
        for (i8 k = 0; k < c; k++) {
            f8 change = bends[j] * (V[i * c + k] - V[j * c + k]);
            own[k] += change;
            other[k] -= change;
        }
    }
}

/* H V and the diagonal of H for H = Σ_pairs h_ij (e_i − e_j)(e_i − e_j)ᵀ, h = scale/pairs · c w w φ''. V has no
   columns if only the diagonal is requested. */
KERNEL(i8, pair_laplacian)(i8 n, i8 q, i8 c, const f8 scores[n], const i8 offsets[q + 1], const i8 begin[n],
                           const f8 labels[n], const f8 weights[n], const f8 pairs[q], i8 kind, u1 by_difference,
                           const f8 scale[q], const f8 V[n][c], f8 out[n][c], f8 diagonal[n]) {
    const i8 longest = longest_query(q, offsets);
    f8 *masses = scratch(3 * longest, sizeof(f8));
    if (!masses) return OUT_OF_MEMORY;
    f8 *bends = masses + longest, *factors = bends + longest;
    memset(diagonal, 0, (size_t)n * sizeof(f8));
    if (c) memset(out, 0, (size_t)(n * c) * sizeof(f8));
    const f8 *values = (const f8 *)V;
    f8 *products = (f8 *)out;
    for (i8 i = 0; i < q; i++) {
        i8 at = offsets[i], m = offsets[i + 1] - at;
        if (pairs[i] == 0.0) continue;
        const f8 *s = scores + at, factor = scale[i] / pairs[i];
        f8 low = lowest_of(m, s), high = largest(m, s);
        bool by_mass = kind == LOGISTIC && high - low <= STEEPEST;
        if (by_mass) relative_masses(m, s, low, high, masses);
        const f8 *keys = by_mass ? masses : s;
        for (i8 a = 0; a < m; a++) {
            i8 worse = begin[at + a];
            f8 weight = weights[at + a] * factor;
            pair_factors(worse, labels[at + a], weight, labels + at, weights + at, by_difference, factors);
            margin_bends(kind, by_mass, worse, keys[a], keys, bends);
            for (i8 j = 0; j < worse; j++) bends[j] *= factors[j];
            spread_row(worse, a, c, bends, values + at * c, products + at * c, diagonal + at, factors);
        }
    }
    give_back(masses);
    return 0;
}
