/* Boosted trees: scores of documents, in the bits of LightGBM's own `predict`, or of another library's (see the rules below).

A document's features become ranks, one byte each: the number of thresholds of that feature in the whole forest below
the value. So x <= t is a comparison of bytes, of 32 documents in a register, and everything that depends on the type
of the features and on missing values is done once for each value, not at every node.

No path is followed (Lucchese et al., QuickScorer, 2015). A node determines which leaves a document cannot reach: the
leaves of its smaller child if the document goes to the other one. With the smaller child's leaves first at every
node, the leaf that a
document ends in is the first one that no node excludes. Leaves come in planes of eight, one bit each, so that a plane of 32
documents is one register; a node has an entry in every plane in which it excludes leaves, and mostly that is one. The work is
the same for all documents, without branches. Few documents in a large tree each follow their path.

Either way the values of the leaves are added tree by tree, in their order. */
#include "toprank.h"

enum { BLOCK = 128, MOST_PLANES = 255 };
#if defined(__AVX2__)
enum { WIDTH = 32 };
#else
enum { WIDTH = 16 };
#endif
typedef i1 bytes __attribute__((vector_size(WIDTH)));

/* Treatment of missing values in a column of ranks: the missing type of a LightGBM split, and its default side. In a
   column of categories the rank is 0 if the category is in the column's set, else 1: with LightGBM's conversion of
   numbers to categories, or XGBoost's, where NaN may belong to the set. */
CODES(ColumnKind, NO_MISSING, ZERO_LEFT, ZERO_RIGHT, NAN_LEFT, NAN_RIGHT, CATEGORIES, CATEGORIES_FROM_0, CATEGORIES_OR_NAN)

/* Rule flags: values that LightGBM considers zero are 0, as in its own reading of dense rows; sums are floats. */
CODES(ForestRule, FLUSHED = 1, SINGLE = 2)

/* A column: its feature, its kind, whether it is inverted (see `fill_column`), and the start and number of its
   thresholds, or of the words of its set. An entry: 4 bytes with its column, a rank, and the leaves that it excludes
   if the document's rank is above. A node: its column, its rank, and its successors if the document's rank is not
   above, or above: a node, or the index of a leaf as −1, −2 … A tree: its first plane and its first node. */
enum { FEATURE_OF, KIND, SWAPPED, FROM, COUNT, COLUMN_PARTS };
enum { ENTRY_RANK = 4, ENTRY_LEAVES, ENTRY_PARTS = 6 };
enum { NODE_COLUMN, NODE_RANK, NEXT, NODE_PARTS = 4 };
enum { FIRST_PLANE, FIRST_NODE, TREE_PARTS };
typedef struct {
    const i8 (*columns)[COLUMN_PARTS];
    const f8 *cuts;
    const u4 *sets;
    const i8 (*trees)[TREE_PARTS];
    const i8 *planes; /* the first entry of each */
    const u1 (*entries)[ENTRY_PARTS];
    const i4 (*nodes)[NODE_PARTS];
    const f8 *values; /* of the leaves: eight per plane */
} forest;

/* Compute the first leaf of each node if the smaller child's leaves come first (the left one's in case of a tie),
   and the number of leaves of that child; `swapped`: it is the right one. `next`: this child and the other.
   `places`: the resulting position of each leaf. Children are numbered within their tree, and have larger numbers
   than their parent. */
KERNEL(i8, forest_layout)(i8 t, i8 m, i8 l, const i8 first_node[t + 1], const i8 first_leaf[t + 1], const i4 left[m],
                          const i4 right[m], i4 starts[m], i4 counts[m], u1 swapped[m], i4 next[m][2], i4 places[l]) {
    i4 *sizes = scratch(m + 1, sizeof *sizes);
    if (!sizes) return OUT_OF_MEMORY;
    for (i8 tree = 0; tree < t; tree++) {
        const i8 from = first_node[tree], nodes = first_node[tree + 1] - from;
        const i4 *a = left + from, *b = right + from;
        i4 *place = places + first_leaf[tree], *start = starts + from;
        for (i8 i = nodes - 1; i >= 0; i--) sizes[i] = (a[i] < 0 ? 1 : sizes[a[i]]) + (b[i] < 0 ? 1 : sizes[b[i]]);
        *(nodes ? start : place) = 0;
        for (i8 i = 0; i < nodes; i++) {
            const i4 of_a = a[i] < 0 ? 1 : sizes[a[i]], of_b = b[i] < 0 ? 1 : sizes[b[i]];
            const bool swap = of_b < of_a;
            const i4 children[2] = {swap ? b[i] : a[i], swap ? a[i] : b[i]}, count = swap ? of_b : of_a;
            swapped[from + i] = swap;
            counts[from + i] = count;
            for (int second = 0; second < 2; second++) {
                const i4 child = children[second], begin = start[i] + (second ? count : 0);
                *(child < 0 ? &place[~child] : &start[child]) = begin;
                next[from + i][second] = child < 0 ? ~begin : child;
            }
        }
    }
    give_back(sizes);
    return 0;
}

/* Rows of a sparse matrix with only the used features: `slots` contains the target of a feature, or −1. For
   duplicate entries the last one counts, as in LightGBM. */
KERNEL(void, rows_of_sparse)(i8 n, i8 z, i8 d, i8 f, const i8 offsets[n + 1], const i8 indices[z], const f8 data[z],
                             const i4 slots[d], f8 rows[n][f]) {
    for (i8 i = 0; i < n; i++) {
        for (i8 j = 0; j < f; j++) rows[i][j] = 0.0;
        for (i8 j = most(offsets[i], 0); j < least(offsets[i + 1], z); j++)
            if (indices[j] >= 0 && indices[j] < d && slots[indices[j]] >= 0) rows[i][slots[indices[j]]] = data[j];
    }
}

/* ---- ranks ---- */

/* LightGBM's zero threshold; its kZeroThreshold is a float. */
INLINE bool near_zero(f8 x) { return x >= -(f8)1e-35f && x <= (f8)1e-35f; }

/* Count the sorted cuts below each value, by a binary search with the same steps for all. */
INLINE void rank_values(i8 n, i8 count, const f8 *cuts, const f8 *values, u4 *ranks) {
    memset(ranks, 0, (size_t)n * sizeof *ranks);
    for (; count > 1; count -= count / 2) {
        const u4 half = (u4)(count / 2);
        for (i8 i = 0; i < n; i++) ranks[i] += half & -(u4)(cuts[ranks[i] + half - 1] < values[i]);
    }
    for (i8 i = 0; i < n; i++) ranks[i] += cuts[ranks[i]] < values[i];
}

/* (int)x as in LightGBM: NaN, −1 and less, and values too large for 32 bits, are in no set. In XGBoost, no value
   below 0 or from 2^24 on is in a set. */
INLINE bool in_set(i8 kind, f8 x, i8 words, const u4 *set) {
    if (x != x) return kind == CATEGORIES_OR_NAN;
    if (kind == CATEGORIES ? !(x > -1.0 && x < 2147483648.0) : !(x >= 0.0 && x < 16777216.0)) return false;
    const i8 category = (i8)x;
    return category / 32 < words && (set[category / 32] >> (category % 32) & 1);
}

/* Fill one column from the ranks of the values; NaN has the rank of 0. A byte is the rank minus 128, or in an
   inverted column its complement, which decreases with the rank: there the smaller child is the right one, excluded
   by a low rank. */
INLINE void fill_column(i8 n, const i8 *column, const f8 *values, const u4 *ranks, i1 *out) {
    const i8 kind = column[KIND];
    const u4 turned = column[SWAPPED] ? 0x7f : 0x80, side = kind == ZERO_LEFT || kind == NAN_LEFT ? 0 : (u4)column[COUNT];
    u4 sides[BLOCK];
    if (kind == NO_MISSING || kind >= CATEGORIES)
        memcpy(sides, ranks, (size_t)n * sizeof *ranks);
    else if (kind == NAN_LEFT || kind == NAN_RIGHT)
        for (i8 i = 0; i < n; i++) sides[i] = values[i] != values[i] ? side : ranks[i];
    else
        for (i8 i = 0; i < n; i++) sides[i] = values[i] != values[i] || near_zero(values[i]) ? side : ranks[i];
    for (i8 i = 0; i < n; i++) out[i] = (i1)(u1)(sides[i] ^ turned);
}

/* Fill all columns of n documents, `lanes` bytes apart. Columns of one feature are adjacent, as are those with the
   same thresholds, so the values are read and ranked once. */
INLINE void fill_columns(const forest *f, i8 c, i8 n, i8 d, i8 lanes, const void *X, bool doubles, bool flushed,
                         i1 *columns) {
    f8 values[BLOCK], numbers[BLOCK];
    u4 ranks[BLOCK];
    for (i8 j = 0; j < c; j++) {
        const i8 *column = f->columns[j], *before = f->columns[j ? j - 1 : 0], feature = column[FEATURE_OF];
        if (j == 0 || feature != before[FEATURE_OF]) {
            if (doubles)
                for (i8 i = 0; i < n; i++) values[i] = ((const f8 *)X)[i * d + feature];
            else
                for (i8 i = 0; i < n; i++) values[i] = (f8)((const f4 *)X)[i * d + feature];
            for (i8 i = 0; i < n; i++) values[i] = flushed && near_zero(values[i]) ? 0.0 : values[i];
            for (i8 i = 0; i < n; i++) numbers[i] = values[i] != values[i] ? 0.0 : values[i];
        }
        if (column[KIND] >= CATEGORIES)
            for (i8 i = 0; i < n; i++) ranks[i] = !in_set(column[KIND], values[i], column[COUNT], f->sets + column[FROM]);
        else if (j == 0 || column[FROM] != before[FROM] || before[KIND] >= CATEGORIES)
            rank_values(n, column[COUNT], f->cuts + column[FROM], numbers, ranks);
        fill_column(n, column, values, ranks, columns + j * lanes);
    }
}

/* ---- trees ---- */

INLINE bytes load_bytes(const i1 *from) {
    bytes v;
    memcpy(&v, from, sizeof v);
    return v;
}
INLINE bytes all_bytes(u1 x) { return (bytes){} + (i1)x; }

/* Add the tree's value for each document: the first leaf, in the first plane that contains one, that no entry
   excludes. */
INLINE void add_by_planes(int registers, const forest *f, i8 tree, i8 rows, const i1 *columns, f8 *sums) {
    const i8 first = f->trees[tree][FIRST_PLANE];
    bytes leaves[BLOCK / WIDTH], where[BLOCK / WIDTH];
    for (int r = 0; r < registers; r++) leaves[r] = where[r] = (bytes){};
    for (i8 p = f->trees[tree + 1][FIRST_PLANE] - first - 1; p >= 0; p--) {
        bytes excluded[BLOCK / WIDTH];
        for (int r = 0; r < registers; r++) excluded[r] = (bytes){};
        const u1(*last)[ENTRY_PARTS] = f->entries + f->planes[first + p + 1];
        for (const u1(*entry)[ENTRY_PARTS] = f->entries + f->planes[first + p]; entry < last; entry++) {
            i4 column;
            memcpy(&column, *entry, sizeof column);
            const i1 *ranks = columns + (i8)column * registers * WIDTH;
            const bytes rank = all_bytes((*entry)[ENTRY_RANK]), those = all_bytes((*entry)[ENTRY_LEAVES]);
            for (int r = 0; r < registers; r++) excluded[r] |= (bytes)(load_bytes(ranks + r * WIDTH) > rank) & those;
        }
        for (int r = 0; r < registers; r++) {
            const bytes none = (bytes)(excluded[r] == all_bytes(255));
            leaves[r] = (leaves[r] & none) | (~excluded[r] & ~none);
            where[r] = (where[r] & none) | (all_bytes((u1)p) & ~none);
        }
    }
    u1 leaf[BLOCK], plane[BLOCK];
    memcpy(leaf, leaves, (size_t)registers * WIDTH);
    memcpy(plane, where, (size_t)registers * WIDTH);
    const f8 *values = f->values + 8 * first;
    for (i8 i = 0; i < rows; i++) sums[i] += values[8 * plane[i] + __builtin_ctz(leaf[i])];
}

/* The same by following the path of each document. */
INLINE void add_by_paths(i8 lanes, const forest *f, i8 tree, i8 rows, const i1 *columns, f8 *sums) {
    const i4(*nodes)[NODE_PARTS] = f->nodes + f->trees[tree][FIRST_NODE];
    const f8 *values = f->values + 8 * f->trees[tree][FIRST_PLANE];
    const i4 root = f->trees[tree + 1][FIRST_NODE] > f->trees[tree][FIRST_NODE] ? 0 : -1;
    for (i8 i = 0; i < rows; i++) {
        i4 node = root;
        while (node >= 0) {
            const i4 *here = nodes[node];
            node = here[NEXT + (columns[here[NODE_COLUMN] * lanes + i] > here[NODE_RANK])];
        }
        sums[i] += values[~node];
    }
}

/* Measured cost in cycles: a path of a tree with 2^h leaves takes 3 h², since larger trees are in slower memory; an
   entry takes 3, plus 1 for each register. */
INLINE bool paths_are_shorter(int registers, const forest *f, i8 tree, i8 rows) {
    const i8 first = f->trees[tree][FIRST_PLANE], end = f->trees[tree + 1][FIRST_PLANE];
    i8 height = 3;
    while (end - first > (i8)1 << (height - 3)) height++;
    return end - first > MOST_PLANES || rows * 3 * height * height < (3 + registers) * (f->planes[end] - f->planes[first]);
}

/* Sum all trees for documents whose columns fill this number of registers; tree i belongs to output i modulo k. */
INLINE void add_trees(int registers, const forest *f, i8 t, i8 k, i8 rows, u1 rules, const i1 *columns, f8 *sums) {
    memset(sums, 0, (size_t)(k * BLOCK) * sizeof *sums);
    for (i8 tree = 0, output = 0; tree < t; tree++, output = output + 1 == k ? 0 : output + 1) {
        if (paths_are_shorter(registers, f, tree, rows))
            add_by_paths(registers * WIDTH, f, tree, rows, columns, sums + output * BLOCK);
        else
            add_by_planes(registers, f, tree, rows, columns, sums + output * BLOCK);
        if (rules & SINGLE)
            for (i8 i = 0; i < rows; i++) sums[output * BLOCK + i] = (f8)(f4)sums[output * BLOCK + i];
    }
}

/* Scores of rows of features, floats or doubles. */
static i8 score_rows(const forest *f, i8 n, i8 d, i8 k, i8 c, i8 t, const void *X, bool doubles, u1 rules, f8 *scores) {
    i1 *columns = scratch(c * BLOCK, 1);
    f8 *sums = scratch(k * BLOCK, sizeof *sums);
    const bool room = columns && sums;
    if (room) memset(columns, 0, (size_t)(c * BLOCK)); /* lanes without a document are compared as well */
    for (i8 first = 0; first < n && room; first += BLOCK) {
        const i8 rows = least(BLOCK, n - first);
        int registers = 1;
        while (registers * WIDTH < rows) registers *= 2;
        const void *here = (const char *)X + (size_t)(first * d) * (doubles ? sizeof(f8) : sizeof(f4));
        fill_columns(f, c, rows, d, registers * WIDTH, here, doubles, rules & FLUSHED, columns);
        if (registers == 1) add_trees(1, f, t, k, rows, rules, columns, sums);
        else if (registers == 2) add_trees(2, f, t, k, rows, rules, columns, sums);
        else if (registers == 4) add_trees(4, f, t, k, rows, rules, columns, sums);
        else add_trees(BLOCK / WIDTH, f, t, k, rows, rules, columns, sums);
        for (i8 i = 0; i < rows; i++)
            for (i8 output = 0; output < k; output++) scores[(first + i) * k + output] = sums[output * BLOCK + i];
    }
    give_back(columns);
    give_back(sums);
    return room ? 0 : OUT_OF_MEMORY;
}

#define FOREST_SCORES(type)                                                                                                    \
    KERNEL(i8, forest_scores__##type)                                                                                          \
    (i8 n, i8 d, i8 k, i8 c, i8 m, i8 w, i8 t, i8 p, i8 e, i8 s, const type X[n][d], u1 rules, const i8 columns[c][5],         \
     const f8 cuts[m], const u4 sets[w], const i8 trees[t + 1][2], const i8 planes[p + 1], const u1 entries[e][6],             \
     const i4 nodes[s][4], const f8 values[8 * p], f8 scores[n][k]) {                                                          \
        const forest f = {columns, cuts, sets, trees, planes, entries, nodes, values};                                         \
        return score_rows(&f, n, d, k, c, t, X, sizeof(type) == sizeof(f8), rules, &scores[0][0]);                             \
    }
FOREST_SCORES(f4)
FOREST_SCORES(f8)

/* ---- contributions ---- */

/* Shapley values of the game whose players are the features: a coalition has document a's values, the others b's, and earns
the trees' score. A path to a leaf requires u features from a and v from b; the leaf then adds value·(u − 1)!v!/(u +
v)! to each of the former and subtracts value·u!(v − 1)!/(u + v)! from each of the latter. So one walk through the
nodes that some
coalition reaches is enough, and a feature by which no node distinguishes the documents gets exactly 0. */
typedef struct {
    i4 node;
    i4 fork;             /* the nearest ancestor visit at which the documents part; −1: none */
    u1 taken;            /* the direction taken there: 0 for a's, 1 for b's */
    u1 forks;            /* whether they part here, by a feature that is not yet decided */
    f8 u, v, share;      /* u!v!/(u + v)! */
    f8 gain[2], loss[2]; /* gain and loss of a feature in a's and b's direction */
} visit;

/* Return the direction taken above for this feature; −1 if undecided. */
INLINE int decided(const forest *f, const i4 (*nodes)[NODE_PARTS], const visit *visits, const visit *here, i8 feature) {
    for (i4 at = here->fork, side = here->taken; at >= 0; side = visits[at].taken, at = visits[at].fork)
        if (f->columns[nodes[visits[at].node][NODE_COLUMN]][FEATURE_OF] == feature) return side;
    return -1;
}

/* The same for all nodes of a tree that some coalition reaches and at which the documents part: `known`. One
   traversal stores the decisions by feature in `sides` (0 before and after; else the side, from 1), whereas the
   search above would take as many steps per node as the tree has levels. `stack` has room for two numbers per node. */
enum { SEARCHED = 256 }; /* maximum number of nodes of a tree for which the search is fast enough */
static void decide_all(const forest *f, const i4 (*nodes)[NODE_PARTS], const i1 *a, const i1 *b, i8 *stack, u1 *sides, i1 *known) {
    i8 depth = 0;
    stack[depth++] = 0;
    while (depth > 0) {
        const i8 top = stack[--depth], number = top / 3, phase = top % 3;
        const i4 *node = nodes[number];
        const int ways[2] = {a[node[NODE_COLUMN]] > node[NODE_RANK], b[node[NODE_COLUMN]] > node[NODE_RANK]};
        u1 *side = sides + f->columns[node[NODE_COLUMN]][FEATURE_OF];
        int taken = 0;
        if (ways[0] != ways[1] && (phase > 0 || *side == 0)) { /* a's direction, then b's, then restore the state */
            known[number] = -1;
            *side = phase == 2 ? 0 : (u1)(phase + 1);
            if (phase == 2) continue;
            stack[depth++] = top + 1;
            taken = (int)phase;
        } else if (ways[0] != ways[1]) {
            known[number] = (i1)(taken = *side - 1);
        }
        const i4 next = node[NEXT + ways[taken]];
        if (next >= 0) stack[depth++] = 3 * (i8)next;
    }
}

/* Add a tree's contributions for documents whose ranks are a and b; `visits` has room for all nodes of the tree, and
   `table` is the result of `decide_all`, or null. */
static void add_contributions(const forest *f, i8 tree, const i1 *a, const i1 *b, const i1 *table, visit *visits, f8 *added) {
    const i8 first = f->trees[tree][FIRST_NODE];
    const i4(*nodes)[NODE_PARTS] = f->nodes + first;
    const f8 *values = f->values + 8 * f->trees[tree][FIRST_PLANE];
    if (f->trees[tree + 1][FIRST_NODE] == first) return; /* a single leaf makes no difference */
    i8 count = 1;
    visits[0] = (visit){.fork = -1, .share = 1.0};
    for (i8 i = 0; i < count; i++) {
        visit *here = visits + i;
        const i4 *node = nodes[here->node];
        const int ways[2] = {a[node[NODE_COLUMN]] > node[NODE_RANK], b[node[NODE_COLUMN]] > node[NODE_RANK]};
        const i8 feature = f->columns[node[NODE_COLUMN]][FEATURE_OF];
        const int known = ways[0] == ways[1] ? 0 : table ? table[here->node] : decided(f, nodes, visits, here, feature);
        here->forks = known < 0;
        for (int side = known < 0 ? 0 : known; side <= (known < 0 ? 1 : known); side++) {
            visit next = {.fork = here->fork, .taken = here->taken, .u = here->u, .v = here->v, .share = here->share};
            if (known < 0) {
                next.share *= (side ? next.v : next.u) + 1.0;
                next.share /= next.u + next.v + 1.0;
                *(side ? &next.v : &next.u) += 1.0;
                next.fork = (i4)i;
                next.taken = (u1)side;
            }
            next.node = node[NEXT + ways[side]];
            if (next.node >= 0) {
                visits[count++] = next;
            } else if (next.fork >= 0) {
                const f8 worth = values[~next.node] * next.share;
                if (next.u > 0.0) visits[next.fork].gain[next.taken] += worth / next.u;
                if (next.v > 0.0) visits[next.fork].loss[next.taken] += worth / next.v;
            }
        }
    }
    for (i8 i = count - 1; i >= 0; i--) {
        const visit *here = visits + i;
        if (!here->forks) continue;
        added[f->columns[nodes[here->node][NODE_COLUMN]][FEATURE_OF]] += here->gain[0] - here->loss[1];
        if (here->fork >= 0) {
            visits[here->fork].gain[here->taken] += here->gain[0] + here->gain[1];
            visits[here->fork].loss[here->taken] += here->loss[0] + here->loss[1];
        }
    }
}

/* For each pair of rows (a, b), compute the contributions to the score difference of a and b: added for a,
   subtracted for b. Trees of one output. */
KERNEL(i8, forest_contributions)(i8 n, i8 d, i8 c, i8 m, i8 w, i8 t, i8 p, i8 e, i8 s, i8 q, const f8 X[n][d], u1 flushed,
                                 const i8 columns[c][5], const f8 cuts[m], const u4 sets[w], const i8 trees[t + 1][2],
                                 const i8 planes[p + 1], const u1 entries[e][6], const i4 nodes[s][4], const f8 values[8 * p],
                                 const i8 pairs[q][2], f8 contributions[n][d]) {
    const forest f = {columns, cuts, sets, trees, planes, entries, nodes, values};
    i8 largest = 0;
    for (i8 tree = 0; tree < t; tree++) largest = most(largest, trees[tree + 1][FIRST_NODE] - trees[tree][FIRST_NODE]);
    i1 *block = scratch(c * BLOCK, 1), *ranks = scratch(n * c, 1);
    visit *visits = scratch(largest, sizeof *visits);
    f8 *added = scratch(d, sizeof *added);
    i8 *stack = scratch(2 * largest + 2, sizeof *stack);
    u1 *sides = scratch(d, 1);
    i1 *known = scratch(largest, 1);
    const bool room = block && ranks && visits && added && stack && sides && known;
    if (room) memset(sides, 0, (size_t)d);
    for (i8 first = 0; first < n && room; first += BLOCK) {
        const i8 rows = least(BLOCK, n - first);
        fill_columns(&f, c, rows, d, BLOCK, X[first], true, flushed, block);
        for (i8 i = 0; i < rows; i++)
            for (i8 j = 0; j < c; j++) ranks[(first + i) * c + j] = block[j * BLOCK + i];
    }
    for (i8 pair = 0; pair < q && room; pair++) {
        const i8 a = pairs[pair][0], b = pairs[pair][1];
        if (a < 0 || a >= n || b < 0 || b >= n) continue;
        memset(added, 0, (size_t)d * sizeof *added);
        for (i8 tree = 0; tree < t; tree++) {
            const bool large = trees[tree + 1][FIRST_NODE] - trees[tree][FIRST_NODE] > SEARCHED;
            if (large) decide_all(&f, nodes + trees[tree][FIRST_NODE], ranks + a * c, ranks + b * c, stack, sides, known);
            add_contributions(&f, tree, ranks + a * c, ranks + b * c, large ? known : NULL, visits, added);
        }
        for (i8 j = 0; j < d; j++) contributions[a][j] += added[j];
        for (i8 j = 0; j < d; j++) contributions[b][j] -= added[j];
    }
    give_back(block);
    give_back(ranks);
    give_back(visits);
    give_back(added);
    give_back(stack);
    give_back(sides);
    give_back(known);
    return room ? 0 : OUT_OF_MEMORY;
}
