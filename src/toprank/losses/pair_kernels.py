"""Loops over the pairs of a query: value, slopes and curvature of Σ_{y_i > y_j} c_ij w_i w_j φ(s_i − s_j).

c_ij is 1 or y_i − y_j. All arrays here are in the order of `PairFrame`: within a query, documents rise by label, so
that the worse partners of a document are one contiguous range, and the better ones another.

`plain_pairs` works for every margin function φ, with an exponential for each pair where φ has one. There are ways
around that:

* Logistic: with E = e^s, σ(s_j − s_i) = E_j/(E_i + E_j), and a sum of log(1 + E_j/E_i) is the logarithm of a product,
  taken chunk by chunk: one exponential for each document, one division for each pair.
* Exponential: e^{−(s_i − s_j)} factorises, so sums over grades do: O(m), no pairs at all.
* Hinges of queries with many pairs: one sweep along the scores with running sums for each grade, O(m log m).

A hinge pair (i, j), y_i > y_j, is active when s_i − s_j < 1. Visit the documents d by rising score: the set of scores
below s_d + 1 only grows, and a binary indexed tree over the grades answers "how many of them have a better grade, and
by how much do they fall short of s_d + 1?" in O(log grades). The same sweep over −s, with the grades turned round,
gives each better document the sums over its worse partners.

The running sums are Σw, Σw·gap and Σw·gap² with gap = 1 − (s_i − s_j) ≥ 0. Moving on by Δ changes gap to gap + Δ, so
they are updated by adding positive numbers only: no cancellation, whatever the range of the scores.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.queries import Queries

__all__ = [
    "EXPONENTIAL",
    "HINGE",
    "LOGISTIC",
    "MANY_PAIRS",
    "SQUARED_HINGE",
    "PairFrame",
    "laplacian",
    "pair_block",
    "pair_masses",
    "plain_pairs",
]

HINGE, SQUARED_HINGE, LOGISTIC, EXPONENTIAL = 0, 1, 2, 3

MANY_PAIRS = 64.0  # pairs for each document from which a sweep is faster than a hinge for each pair

STEEPEST = 600.0  # e^600 times any number of pairs is finite

_CHUNK = 16  # factors in one product before its logarithm is taken
_N_SUMS = 3  # Σw, Σw·gap, Σw·gap²
_STEEPEST_EXP = float(np.exp(STEEPEST))


class PairFrame(NamedTuple):
    """What the labels say about pairs, once for all scores. Documents are sorted by label within each query.

    `order` holds document numbers; `begin` and `end` bound, for each position, the documents of its own label, counted
    from the start of its query: its worse partners are 0 … begin − 1, its better ones end … m − 1.
    """

    offsets: IntArray
    order: IntArray
    begin: IntArray
    end: IntArray
    labels: FloatArray
    weights: FloatArray
    pairs: FloatArray
    """Number of pairs of different labels in each query."""

    @classmethod
    def of(cls, labels: FloatArray, queries: Queries, document_weights: FloatArray) -> PairFrame:
        """Sort the documents of each query by label, and find the groups of equal labels."""
        query = queries.document_query
        order = np.lexsort((labels, query))
        label = labels[order]
        is_new = np.r_[True, (query[1:] != query[:-1]) | (label[1:] != label[:-1])]
        group, starts = np.cumsum(is_new) - 1, np.flatnonzero(is_new)
        query_start = queries.offsets[query]
        begin, end = starts[group] - query_start, np.append(starts[1:], len(labels))[group] - query_start
        n_pairs = queries.sum(begin.astype(np.float64))
        return cls(queries.offsets, order, begin, end, label, document_weights[order], n_pairs)


@kernel
def margin_terms(kind: int, margin: float) -> tuple[float, float, float]:
    """φ(z), −φ'(z) and φ''(z) of a margin function."""
    if kind == LOGISTIC:
        decay = np.exp(-abs(margin))
        miss = (decay if margin > 0 else 1.0) / (1.0 + decay)
        return np.log1p(decay) + max(-margin, 0.0), miss, decay / (1.0 + decay) ** 2
    if kind == EXPONENTIAL:
        if -margin <= STEEPEST:
            value = np.exp(-margin)
            return value, value, value
        return _STEEPEST_EXP * (1.0 - margin - STEEPEST), _STEEPEST_EXP, 0.0
    short = 1.0 - margin
    if short <= 0:
        return 0.0, 0.0, 0.0
    if kind == HINGE:
        return short, 1.0, 0.0
    return short * short, 2.0 * short, 2.0


@kernel
def pair_block(
    scores: FloatArray,
    ranks: IntArray,
    kind: int,
    weighted: bool,
    frame: PairFrame,
    by_difference: bool,
    first: int,
    scale: FloatArray,
    losses: FloatArray,
    slopes: FloatArray,
) -> None:
    """Loss of each query (mean over its pairs), and the scaled derivatives for its documents.

    `ranks` lists the positions of the block from the highest score to the lowest within each query; only hinges of
    queries with `MANY_PAIRS` look at it.
    """
    at = 0
    for q in range(len(losses)):
        start, stop = frame.offsets[first + q], frame.offsets[first + q + 1]
        m, rows = stop - start, slice(at, at + stop - start)
        s, slope = scores[rows], slopes[rows]
        at += m
        losses[q] = 0.0
        slope[:] = 0.0
        n_pairs = frame.pairs[first + q]
        if n_pairs == 0:
            continue
        begin, end = frame.begin[start:stop], frame.end[start:stop]
        labels, weights = frame.labels[start:stop], frame.weights[start:stop]
        if kind == LOGISTIC and not weighted and s.max() - s.min() <= STEEPEST:
            total = logistic_pairs(s, begin, end, labels, by_difference, slope)
        elif kind == EXPONENTIAL and steepest_pair(s, begin, end) <= STEEPEST:
            total = exponential_pairs(s, begin, end, labels, weights, by_difference, slope)
        elif kind in (HINGE, SQUARED_HINGE) and n_pairs >= MANY_PAIRS * m:
            falling = ranks[rows] - rows.start
            total = hinge_sweep(1 if kind == HINGE else 2, s, falling, labels, weights, by_difference, slope)
        else:
            total = plain_pairs(kind, s, begin, labels, weights, by_difference, slope)
        losses[q] = total / n_pairs
        slope *= scale[first + q] / n_pairs


@kernel
def plain_pairs(
    kind: int,
    scores: FloatArray,
    begin: IntArray,
    labels: FloatArray,
    weights: FloatArray,
    by_difference: bool,
    slopes: FloatArray,
) -> float:
    """Σ c w w φ(s_i − s_j) over the pairs of one query; its derivatives are added to `slopes`."""
    total = 0.0
    for i in range(len(scores)):
        pull = 0.0
        for j in range(begin[i]):
            value, slope, _ = margin_terms(kind, scores[i] - scores[j])
            factor = weights[i] * weights[j] * (labels[i] - labels[j] if by_difference else 1.0)
            total += factor * value
            pull += factor * slope
            slopes[j] += factor * slope
        slopes[i] -= pull
    return total


@kernel
def pair_masses(frame: PairFrame, by_difference: bool, scale: FloatArray, masses: FloatArray) -> None:
    """masses[d] = scale/pairs · Σ c w w over all pairs of document d, better or worse."""
    for q in range(len(scale)):
        start, stop = frame.offsets[q], frame.offsets[q + 1]
        masses[start:stop] = 0.0
        if frame.pairs[q] == 0:
            continue
        begin, end = frame.begin[start:stop], frame.end[start:stop]
        labels, weights = frame.labels[start:stop], frame.weights[start:stop]
        level, sums = np.zeros(stop - start), np.zeros(stop - start)
        for rising in (True, False):
            sums[:] = 0.0
            partner_sums(level, begin, end, labels, weights, by_difference, rising, sums)
            masses[start:stop] += sums * (scale[q] / frame.pairs[q])


@kernel
def laplacian(
    scores: FloatArray,
    kind: int,
    frame: PairFrame,
    by_difference: bool,
    first: int,
    last: int,
    scale: FloatArray,
    V: FloatArray,
    out: FloatArray,
    diagonal: FloatArray,
) -> None:
    """H V and the diagonal of H for H = Σ_pairs h_ij (e_i − e_j)(e_i − e_j)ᵀ, h = scale/pairs · c w w φ''.

    V may have no columns, when only the diagonal is wanted.
    """
    out[:] = 0.0
    diagonal[:] = 0.0
    at = 0
    for q in range(first, last):
        start, stop = frame.offsets[q], frame.offsets[q + 1]
        rows = slice(at, at + stop - start)
        at += stop - start
        if frame.pairs[q] == 0:
            continue
        s, begin = scores[rows], frame.begin[start:stop]
        # A pair is weighed by the product of its documents' weights, so each carries the root of the query's factor.
        labels, weights = frame.labels[start:stop], frame.weights[start:stop] * np.sqrt(scale[q] / frame.pairs[q])
        by_mass = kind == LOGISTIC and s.max() - s.min() <= STEEPEST
        keys, bends = relative_masses(s) if by_mass else s, np.empty(stop - start)
        for i in range(stop - start):
            worse = bends[: begin[i]]
            _bends(kind, by_mass, keys, i, worse)
            for j in range(begin[i]):
                worse[j] *= weights[i] * weights[j] * (labels[i] - labels[j] if by_difference else 1.0)
            _spread_row(worse, i, V[rows], out[rows], diagonal[rows])


@kernel
def _bends(kind: int, by_mass: bool, keys: FloatArray, i: int, bends: FloatArray) -> None:
    """φ'' for document i and its worse partners; σ(1 − σ) = E_i E_j/(E_i + E_j)² where the keys are masses E."""
    for j in range(len(bends)):
        if by_mass:
            bends[j] = keys[i] * keys[j] / (keys[i] + keys[j]) ** 2
        else:
            bends[j] = margin_terms(kind, keys[i] - keys[j])[2]


@kernel
def _spread_row(bends: FloatArray, i: int, V: FloatArray, out: FloatArray, diagonal: FloatArray) -> None:
    """Add the pairs of document i. Differences come before products, so that constant columns give exactly nothing."""
    total = 0.0
    for j in range(len(bends)):
        total += bends[j]
        diagonal[j] += bends[j]
    diagonal[i] += total
    if V.shape[1] == 0:
        return
    for j in range(len(bends)):
        for c in range(V.shape[1]):
            change = bends[j] * (V[i, c] - V[j, c])
            out[i, c] += change
            out[j, c] -= change


@kernel
def relative_masses(scores: FloatArray) -> FloatArray:
    """Numbers proportional to e^s, from e^−300 to e^300 for scores within a range of 600."""
    masses: FloatArray = np.exp(scores - 0.5 * (scores.min() + scores.max()))
    return masses


@kernel
def logistic_pairs(
    scores: FloatArray, begin: IntArray, end: IntArray, labels: FloatArray, by_difference: bool, slopes: FloatArray
) -> float:
    """Σ c log(1 + e^{−(s_i − s_j)}); its derivatives are added to `slopes`.

    Needs scores within a range of 600, and no document weights (they would be powers inside the products).

    Very safe pairs (1 + E_j/E_i rounds to 1) add nothing to the value: an absolute error of 1e-16 a pair. The slopes
    are accurate to the last digits.
    """
    masses = relative_masses(scores)
    chunk = max(1, min(_CHUNK, int(STEEPEST / (scores.max() - scores.min() + 1.0))))  # no product overflows
    total = 0.0
    for i in range(len(scores)):
        start = 0
        while start < begin[i]:
            # Where all pairs count the same, all worse documents are one range; else those of equal label are.
            stop = end[start] if by_difference else begin[i]
            logs, pull = _logistic_range(
                masses, i, start, stop, chunk, labels[i] - labels[start], by_difference, slopes
            )
            total += logs
            slopes[i] -= pull
            start = stop
    return total


@kernel
def _logistic_range(
    masses: FloatArray,
    i: int,
    start: int,
    stop: int,
    chunk: int,
    difference: float,
    by_difference: bool,
    slopes: FloatArray,
) -> tuple[float, float]:
    """Σ log(1 + E_j/E_i) and Σ σ(s_j − s_i) over start ≤ j < stop; each σ is added to the slope of its j."""
    mass, inverse, factor = masses[i], 1.0 / masses[i], difference if by_difference else 1.0
    logs, pull = 0.0, 0.0
    for head in range(start, stop, chunk):
        product = 1.0
        for j in range(head, min(head + chunk, stop)):
            both = mass + masses[j]
            share = masses[j] / both
            slopes[j] += factor * share
            pull += share
            product *= both * inverse
        logs += np.log(product)
    return factor * logs, factor * pull


@kernel
def steepest_pair(scores: FloatArray, begin: IntArray, end: IntArray) -> float:
    """The largest s_j − s_i over pairs, in O(m)."""
    steepest, highest, start = -np.inf, -np.inf, 0
    while start < len(scores):
        stop = end[start]
        if begin[start] > 0:
            steepest = max(steepest, highest - scores[start:stop].min())
        highest = max(highest, scores[start:stop].max())
        start = stop
    return float(steepest)


@kernel
def exponential_pairs(
    scores: FloatArray,
    begin: IntArray,
    end: IntArray,
    labels: FloatArray,
    weights: FloatArray,
    by_difference: bool,
    slopes: FloatArray,
) -> float:
    """Σ c w w e^{−(s_i − s_j)}; its derivatives are added to `slopes`. Needs every s_j − s_i to be at most 600."""
    pull, push = np.zeros(len(scores)), np.zeros(len(scores))
    partner_sums(scores, begin, end, labels, weights, by_difference, True, pull)
    partner_sums(-scores, begin, end, labels, weights, by_difference, False, push)
    slopes += push
    slopes -= pull
    return float(pull.sum())


@kernel
def partner_sums(
    keys: FloatArray,
    begin: IntArray,
    end: IntArray,
    labels: FloatArray,
    weights: FloatArray,
    by_difference: bool,
    rising: bool,
    sums: FloatArray,
) -> None:
    """sums[d] = w_d Σ_e c_de w_e e^{k_e − k_d} over the worse partners e of d (rising) or the better ones (falling).

    Groups of equal label are visited in turn. `mass` is Σ w e^{k − peak} over the groups behind, and `spread` the same
    sum with each group weighed by its distance in label: moving on by a gap adds gap·mass to it, so nothing cancels.
    """
    n = len(keys)
    peak, mass, spread = -np.inf, 0.0, 0.0
    at, last_label = (0 if rising else n - 1), labels[0 if rising else n - 1]
    while 0 <= at < n:
        start, stop = begin[at], end[at]
        spread += abs(labels[at] - last_label) * mass
        last_label = labels[at]
        reach = spread if by_difference else mass
        if reach > 0:
            for d in range(start, stop):
                sums[d] = weights[d] * reach * np.exp(peak - keys[d])
        highest = keys[start:stop].max()
        if highest > peak:  # sums stay relative to the largest key so far: at most their number of terms
            shrink = np.exp(peak - highest)
            peak, mass, spread = highest, mass * shrink, spread * shrink
        for d in range(start, stop):
            mass += weights[d] * np.exp(keys[d] - peak)
        at = stop if rising else start - 1


@kernel
def hinge_sweep(
    power: int,
    scores: FloatArray,
    falling: IntArray,
    labels: FloatArray,
    weights: FloatArray,
    by_difference: bool,
    slopes: FloatArray,
) -> float:
    """Σ c w w gap^power over the pairs of one query, power 1 or 2; its derivatives are added to `slopes`.

    Documents stand in the order of rising labels; `falling` lists them from the highest score to the lowest.
    """
    grades, n_grades = _grade_numbers(labels)
    sums = np.zeros((len(scores), _N_SUMS))
    _sweep(scores, falling[::-1].copy(), grades, labels, weights, n_grades, by_difference, sums)
    total = np.sum(weights * sums[:, power])
    slopes += power * weights * sums[:, power - 1]
    _sweep(-scores, falling, n_grades - 1 - grades, -labels, weights, n_grades, by_difference, sums)
    slopes -= power * weights * sums[:, power - 1]
    return float(total)


@kernel
def _grade_numbers(labels: FloatArray) -> tuple[IntArray, int]:
    """The rank of each label among the distinct ones (the labels are sorted), and how many there are."""
    grades = np.empty(len(labels), dtype=np.int64)
    grade = 0
    for p in range(len(labels)):
        if p > 0 and labels[p] != labels[p - 1]:
            grade += 1
        grades[p] = grade
    return grades, grade + 1


@kernel
def _sweep(
    keys: FloatArray,
    order: IntArray,
    grades: IntArray,
    labels: FloatArray,
    weights: FloatArray,
    n_grades: int,
    by_difference: bool,
    sums: FloatArray,
) -> None:
    """sums[d, r] = Σ_e c_de w_e gap^r over the partners e of a higher grade with gap = 1 − (k_e − k_d) > 0.

    `order` visits the documents by rising key. The tree stores better grades first, so that "better than d" is a
    prefix. For c = y_e − y_d a second triple of sums, with weights w·(y − lowest y), stands beside the first.
    """
    width = 2 * _N_SUMS if by_difference else _N_SUMS
    tree, reached, found = np.zeros((n_grades + 1, width)), np.zeros(n_grades + 1), np.zeros(width)
    lowest, head = labels.min(), 0
    for d in order:
        key = keys[d]
        while head < len(order) and keys[order[head]] - key < 1.0:
            e = order[head]
            gap, node = 1.0 - (keys[e] - key), n_grades - grades[e]
            while node <= n_grades:  # node & −node is its lowest bit: added, it leads to the nodes that cover this one
                _move_on(tree, reached, node, key)
                _add(tree, node, weights[e], labels[e] - lowest, gap)
                node += node & -node
            head += 1
        found[:] = 0.0
        node = n_grades - grades[d] - 1
        while node > 0:  # … and taken off, to those that make up the prefix
            _move_on(tree, reached, node, key)
            for r in range(width):
                found[r] += tree[node, r]
            node -= node & -node
        for r in range(_N_SUMS):
            sums[d, r] = found[_N_SUMS + r] - (labels[d] - lowest) * found[r] if by_difference else found[r]


@kernel
def _add(tree: FloatArray, node: int, weight: float, height: float, gap: float) -> None:
    for part in range(0, tree.shape[1], _N_SUMS):
        tree[node, part] += weight
        tree[node, part + 1] += weight * gap
        tree[node, part + 2] += weight * gap * gap
        weight *= height


@kernel
def _move_on(tree: FloatArray, reached: FloatArray, node: int, key: float) -> None:
    """Bring the sums of a node from the key they were last seen at to this one."""
    step = key - reached[node]
    reached[node] = key
    for part in range(0, tree.shape[1], _N_SUMS):
        tree[node, part + 2] += step * (2.0 * tree[node, part + 1] + step * tree[node, part])
        tree[node, part + 1] += step * tree[node, part]
