/* ListNet beyond the first place: a walk over all prefixes, ordered choices of fewer than k documents
(losses/softmax.py).

The sum of exponentials over the documents outside a prefix A is a total less the few members of A. It is taken relative
to the largest value outside A, which is the first of the query's values, in falling order, that A leaves out: what
remains is at least 1 and the total at most m, so the subtraction loses nothing, however far the values lie apart. */
#include "sums.h"

/* Exponentials of one list of m values, relative to each of its largest ones. */
typedef struct {
    i8 *rank;          /* of each document, 0 for the largest value; all beyond the first `steps` share the last rank */
    f8 *tops;          /* the values in falling order, `steps` of them */
    f8 *exponentials;  /* [r][j] = exp(value_j − tops[r]) for documents of rank r or later, else 0 */
    f8 *totals;        /* the sum of each row */
} Side;

/* A query, and the state of the traversal of its prefixes; entries with index `depth` belong to the current prefix. */
typedef struct {
    i8 m, steps, depth;
    Side target, side;
    i8 *prefix, *candidate, *used; /* chosen documents, the next to append, whether a document is chosen */
    i8 *row;                       /* the first rank of the target that the prefix leaves out */
    f8 *probability, *left;        /* P(A); Σ_{j ∉ A} e^ψ, relative to that rank's */
    f8 *weighted;                  /* Σ_j target.exponentials[r][j]·weight_j */
    f8 *sums, *squares;            /* over the prefixes that leave out a rank first */
    const f8 *weights;
} Walk;

static Side side_in(f8 **numbers, i8 **integers, i8 m, i8 steps) {
    Side side = {*integers, *numbers, *numbers + 2 * steps, *numbers + steps};
    *numbers += steps * (m + 2);
    *integers += m;
    return side;
}

/* Allocate memory for the longest list; return false if out of memory. `numbers` and `integers` must be freed. */
static bool make_room(Walk *walk, i8 m, i8 steps, f8 **numbers, i8 **integers) {
    f8 *number = *numbers = scratch(2 * steps * (m + 2) + 5 * steps, sizeof(f8));
    i8 *integer = *integers = scratch(3 * m + 3 * steps, sizeof(i8));
    if (!number || !integer) return false;
    walk->target = side_in(&number, &integer, m, steps);
    walk->side = side_in(&number, &integer, m, steps);
    f8 **floats[] = {&walk->probability, &walk->left, &walk->weighted, &walk->sums, &walk->squares};
    for (int i = 0; i < 5; i++, number += steps) *floats[i] = number;
    i8 **places[] = {&walk->prefix, &walk->candidate, &walk->row};
    for (int i = 0; i < 3; i++, integer += steps) *places[i] = integer;
    walk->used = integer;
    return true;
}

/* O(steps·m). */
static void fill_side(const Side *side, i8 m, i8 steps, const f8 *values) {
    for (i8 j = 0; j < m; j++) side->rank[j] = steps;
    for (i8 r = 0; r < steps; r++) {
        i8 best = -1;
        for (i8 j = 0; j < m; j++)
            if (side->rank[j] == steps && (best < 0 || values[j] > values[best])) best = j;
        side->rank[best] = r;
        const f8 top = side->tops[r] = values[best];
        f8 *restrict e = side->exponentials + r * m;
        for (i8 j = 0; j < m; j++) e[j] = exp1(values[j] - top);
        for (i8 j = 0; j < m; j++) e[j] = side->rank[j] >= r ? e[j] : 0.0;
        side->totals[r] = sum(m, e);
    }
}

/* The first rank that the prefix leaves out, and the sum of exponentials outside the prefix relative to it. */
INLINE i8 outside(const Walk *walk, const Side *side, f8 *left) {
    i8 row = 0;
    for (i8 i = 0; i < walk->depth;)
        if (side->rank[walk->prefix[i]] == row) {
            row++;
            i = 0;
        } else {
            i++;
        }
    f8 rest = side->totals[row];
    for (i8 i = 0; i < walk->depth; i++) rest -= side->exponentials[row * walk->m + walk->prefix[i]];
    *left = larger(rest, 1.0);
    return row;
}

/* The empty prefix of a query. */
static void start_walk(Walk *walk, i8 m, i8 steps, const f8 *psi, const f8 *scores, const f8 *weights) {
    walk->m = m;
    walk->steps = steps;
    walk->depth = 0;
    walk->weights = weights;
    fill_side(&walk->target, m, steps, psi);
    fill_side(&walk->side, m, steps, scores);
    for (i8 r = 0; r < steps; r++) {
        walk->weighted[r] = dot(m, walk->target.exponentials + r * m, weights);
        walk->sums[r] = walk->squares[r] = 0.0;
    }
    for (i8 j = 0; j < m; j++) walk->used[j] = false;
    walk->candidate[0] = walk->row[0] = 0;
    walk->probability[0] = 1.0;
    walk->left[0] = walk->target.totals[0];
}

/* Advance to the next prefix; return false after the last. Prefixes of probability 0 are skipped. */
static bool advance(Walk *walk) {
    while (walk->depth >= 0) {
        const i8 depth = walk->depth;
        if (depth == walk->steps - 1 || walk->candidate[depth] == walk->m) {
            walk->depth--;
            if (depth > 0) walk->used[walk->prefix[depth - 1]] = false;
            continue;
        }
        const i8 document = walk->candidate[depth]++;
        if (walk->used[document]) continue;
        const f8 chosen = walk->target.exponentials[walk->row[depth] * walk->m + document] / walk->left[depth];
        const f8 probability = walk->probability[depth] * chosen;
        if (probability == 0.0) continue;
        walk->prefix[depth] = document;
        walk->used[document] = true;
        walk->depth = depth + 1;
        walk->probability[depth + 1] = probability;
        walk->candidate[depth + 1] = 0;
        walk->row[depth + 1] = outside(walk, &walk->target, &walk->left[depth + 1]);
        return true;
    }
    return false;
}

/* P(A) times the expected weight of the document that the target chooses next. */
INLINE f8 weight_of_prefix(const Walk *walk) {
    const i8 row = walk->row[walk->depth];
    const f8 *e = walk->target.exponentials + row * walk->m;
    f8 total = walk->weighted[row];
    for (i8 i = 0; i < walk->depth; i++) total -= walk->weights[walk->prefix[i]] * e[walk->prefix[i]];
    return walk->probability[walk->depth] * (larger(total, 0.0) / walk->left[walk->depth]);
}

/* Add one query's moments; return its Σ_A c_A·(log Σ_{j ∉ A} e^{s_j} − max s). Each prefix adds to its row's sums as
   if it left nothing out, and then subtracts its members. */
static f8 add_moments(Walk *walk, f8 *restrict once, f8 *restrict twice) {
    f8 value = 0.0, left;
    do {
        const f8 factor = weight_of_prefix(walk);
        const i8 row = outside(walk, &walk->side, &left);
        const f8 *e = walk->side.exponentials + row * walk->m;
        value += factor * (walk->side.tops[row] - walk->side.tops[0] + log1(left));
        walk->sums[row] += factor / left;
        walk->squares[row] += factor / (left * left);
        for (i8 i = 0; i < walk->depth; i++) {
            const f8 share = e[walk->prefix[i]] / left;
            once[walk->prefix[i]] -= factor * share;
            twice[walk->prefix[i]] -= factor * (share * share);
        }
    } while (advance(walk));
    for (i8 r = 0; r < walk->steps; r++) {
        const f8 *e = walk->side.exponentials + r * walk->m, factor = walk->sums[r], square = walk->squares[r];
        for (i8 j = 0; j < walk->m; j++) {
            once[j] += factor * e[j];
            twice[j] += square * (e[j] * e[j]);
        }
    }
    return value;
}

/* The loss of each query; for each document scale·(Σ_A c_A·q_A(j) − target_j) and scale·Σ_A c_A·q_A(j)².

q_A is the softmax outside A and c_A = P(A) times the expected weight of the next choice. */
KERNEL(i8, top_k_moments)
(i8 n, i8 q, const f8 scores[n], const f8 psi[n], const f8 weights[n], const f8 targets[n], const f8 scale[q], i8 top_k,
 const i8 offsets[q + 1], f8 losses[q], f8 once[n], f8 twice[n]) {
    const i8 longest = longest_query(q, offsets), most_steps = most(least(top_k, longest - 1), 0);
    Walk walk;
    f8 *numbers;
    i8 *integers;
    const bool room = make_room(&walk, longest, most_steps, &numbers, &integers);
    for (i8 k = 0; room && k < q; k++) {
        const i8 start = offsets[k], m = offsets[k + 1] - start, steps = least(top_k, m - 1);
        for (i8 j = start; j < start + m; j++) once[j] = twice[j] = 0.0;
        losses[k] = 0.0;
        if (steps <= 0) continue;
        start_walk(&walk, m, steps, psi + start, scores + start, weights + start);
        losses[k] = add_moments(&walk, once + start, twice + start);
        for (i8 j = start; j < start + m; j++) {
            losses[k] += targets[j] * (walk.side.tops[0] - scores[j]);
            once[j] = scale[k] * (once[j] - targets[j]);
            twice[j] *= scale[k];
        }
    }
    give_back(numbers);
    give_back(integers);
    return room ? 0 : OUT_OF_MEMORY;
}

/* One query's part of `top_k_times`, as in `add_moments`; `columns` has room for 2·steps + 1 rows. */
static void add_product(Walk *walk, f8 scale, i8 width, const f8 *V, f8 *columns, f8 *product) {
    f8 *mean = columns, *totals = mean + width, *means = totals + walk->steps * width, left;
    for (i8 c = 0; c < (2 * walk->steps + 1) * width; c++) columns[c] = 0.0;
    for (i8 r = 0; r < walk->steps; r++)
        for (i8 j = 0; j < walk->m; j++) {
            const f8 e = walk->side.exponentials[r * walk->m + j];
            for (i8 c = 0; c < width; c++) totals[r * width + c] += e * V[j * width + c];
        }
    do {
        const i8 row = outside(walk, &walk->side, &left);
        const f8 *e = walk->side.exponentials + row * walk->m, factor = scale * weight_of_prefix(walk) / left;
        walk->sums[row] += factor;
        for (i8 c = 0; c < width; c++) mean[c] = totals[row * width + c]; /* minus the few members of the prefix */
        for (i8 i = 0; i < walk->depth; i++) {
            const i8 j = walk->prefix[i];
            for (i8 c = 0; c < width; c++) mean[c] -= e[j] * V[j * width + c];
        }
        for (i8 c = 0; c < width; c++) {
            mean[c] /= left;
            means[row * width + c] += factor * mean[c];
        }
        for (i8 i = 0; i < walk->depth; i++) {
            const i8 j = walk->prefix[i];
            for (i8 c = 0; c < width; c++) product[j * width + c] -= factor * e[j] * (V[j * width + c] - mean[c]);
        }
    } while (advance(walk));
    for (i8 r = 0; r < walk->steps; r++)
        for (i8 j = 0; j < walk->m; j++) {
            const f8 e = walk->side.exponentials[r * walk->m + j], factor = walk->sums[r];
            for (i8 c = 0; c < width; c++)
                product[j * width + c] += e * (factor * V[j * width + c] - means[r * width + c]);
        }
}

/* scale·Σ_A c_A·q_A(j)·(V_j − Σ_i q_A(i) V_i). */
KERNEL(i8, top_k_times)
(i8 n, i8 q, i8 width, const f8 scores[n], const f8 psi[n], const f8 weights[n], const f8 scale[q], i8 top_k,
 const i8 offsets[q + 1], const f8 V[n][width], f8 product[n][width]) {
    const i8 longest = longest_query(q, offsets), most_steps = most(least(top_k, longest - 1), 0);
    Walk walk;
    f8 *numbers, *columns = scratch((2 * most_steps + 1) * width, sizeof(f8));
    i8 *integers;
    const bool room = make_room(&walk, longest, most_steps, &numbers, &integers) && columns;
    for (i8 k = 0; room && k < q; k++) {
        const i8 start = offsets[k], m = offsets[k + 1] - start, steps = least(top_k, m - 1);
        for (i8 j = start; j < start + m; j++)
            for (i8 c = 0; c < width; c++) product[j][c] = 0.0;
        if (steps <= 0) continue;
        start_walk(&walk, m, steps, psi + start, scores + start, weights + start);
        add_product(&walk, scale[k], width, V[start], columns, product[start]);
    }
    give_back(columns);
    give_back(numbers);
    give_back(integers);
    return room ? 0 : OUT_OF_MEMORY;
}
