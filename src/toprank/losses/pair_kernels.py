"""Loops over the pairs of a query: value, slopes and curvature of Σ_{y_i > y_j} c_ij w_i w_j φ(s_i − s_j).

c_ij is 1 or y_i − y_j. All arrays here are in the order of `PairFrame`: within a query, documents rise by label, so
that the worse partners of a document are one contiguous range, and the better ones another.

`plain_pairs` works for every margin function φ, with an exponential for each pair where φ has one. The logistic and
exponential losses have shortcuts (`pair_shortcuts`), and the hinges of long queries a sweep along the scores
(`pair_sweeps`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.queries import Queries
from toprank.losses.pair_shortcuts import (
    STEEPEST,
    exponential_pairs,
    logistic_pairs,
    partner_sums,
    relative_masses,
    steepest_pair,
)
from toprank.losses.pair_sweeps import hinge_sweep

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
    def of(cls, labels: FloatArray, queries: Queries, document_weights: FloatArray | None) -> PairFrame:
        """Sort the documents of each query by label, and find the groups of equal labels."""
        query = queries.document_query
        order = np.lexsort((labels, query))
        label = labels[order]
        is_new = np.r_[True, (query[1:] != query[:-1]) | (label[1:] != label[:-1])]
        group, starts = np.cumsum(is_new) - 1, np.flatnonzero(is_new)
        query_start = queries.offsets[query]
        begin, end = starts[group] - query_start, np.append(starts[1:], len(labels))[group] - query_start
        weights = np.ones(len(labels)) if document_weights is None else document_weights[order]
        return cls(queries.offsets, order, begin, end, label, weights, queries.sum(begin.astype(np.float64)))


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
