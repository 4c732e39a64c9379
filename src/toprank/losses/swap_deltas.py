"""|ΔZ|: how much a metric changes when two documents of a ranking change places.

For the four metrics of LambdaRank the change has one form. Let a be the better of two ranks, b the worse, and G what
the metric reads off a document (a gain, 0/1 relevance, a stopping probability). Then

    |ΔZ_ab| = |G_a − G_b| · (top_a − slope_a · below_b)

where top, slope and below depend on one rank each, so that they cost O(m) a query. With c(r) = the weight of rank r
(1/F(r) for DCG, 1/r otherwise; 0 beyond the metric's cut-off):

DCG      linear in the weights of the two ranks: top = below = c, slope = 1.
AP       times the normaliser N. With h(r) relevant documents down to rank r, and one of the two relevant: it counts
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
different groups, and within a group the mean of c(a) − c(b) over its pairs of ranks, called ``tie``. For the other
metrics tied documents of different grades stand worst first (the caller sorts them so).

Truncation. Only pairs whose better rank is at most `last` count: top and slope are 0 beyond it, before means are taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray, IntArray, kernel

__all__ = ["KINDS", "SwapDeltas", "swap_deltas"]

KINDS = {"dcg": 0, "ap": 1, "rr": 2, "err": 3}


class SwapDeltas(NamedTuple):
    """Everything about |ΔZ| but the gains, for the documents of some queries in rank order; see the module's text."""

    top: FloatArray
    slope: FloatArray
    below: FloatArray
    tie: FloatArray
    """The factor for two documents of the same group."""
    group_start: IntArray
    """Ranks (from 0, within the query) at which the document's tied group begins …"""
    group_end: IntArray
    """… and ends (exclusive)."""


def swap_deltas(
    kind: str, scores: FloatArray, gains: FloatArray, starts: IntArray, weights: FloatArray, last: int
) -> SwapDeltas:
    """The factors of |ΔZ| for queries in rank order.

    Args:
        kind: one of `KINDS`.
        scores: falling within each query; equal scores worst grade first.
        gains: what the metric reads off each document, in the same order.
        starts: where each query begins, and the end of the last.
        weights: c(1), c(2) … for as many ranks as the longest query has.
        last: pairs whose better rank is at most this count (0: all).
    """
    n = len(scores)
    top, slope, below, tie = np.zeros((4, n))
    group_start, group_end = np.empty((2, n), dtype=np.int64)
    deltas = SwapDeltas(top, slope, below, tie, group_start, group_end)
    _fill(KINDS[kind], scores, gains, starts, weights, last, deltas)
    return deltas


@kernel
def _fill(
    kind: int,
    scores: FloatArray,
    gains: FloatArray,
    starts: IntArray,
    weights: FloatArray,
    last: int,
    deltas: Any,
) -> None:
    for q in range(len(starts) - 1):
        first, end = starts[q], starts[q + 1]
        m = end - first
        top, slope, below = deltas.top[first:end], deltas.slope[first:end], deltas.below[first:end]
        gain = gains[first:end]
        if kind == 0:
            top[:], below[:], slope[:] = weights[:m], weights[:m], 1.0
        elif kind == 1:
            _average_precision(gain, weights, top, slope, below)
        elif kind == 2:
            _reciprocal_rank(gain, weights, top, slope, below)
        else:
            _expected_reciprocal_rank(gain, weights, top, slope, below)
        if 0 < last < m:
            top[last:] = 0.0
            slope[last:] = 0.0
        tie, starting, ending = deltas.tie[first:end], deltas.group_start[first:end], deltas.group_end[first:end]
        _groups(scores[first:end], gain, kind == 0, starting, ending)
        _means(top, slope, below, tie, ending)


@kernel
def _average_precision(gain: Any, weights: Any, top: Any, slope: Any, below: Any) -> None:
    hits, passed = 0.0, 0.0
    for r in range(len(gain)):
        c = weights[r]
        below[r] = (hits + gain[r]) * c - passed
        top[r] = (hits + 1.0) * c - (passed + gain[r] * c)
        slope[r] = 1.0
        hits += gain[r]
        passed += gain[r] * c


@kernel
def _reciprocal_rank(gain: Any, weights: Any, top: Any, slope: Any, below: Any) -> None:
    m = len(gain)
    first, second = m, m
    for r in range(m):
        if gain[r] > 0:
            if first == m:
                first = r
            else:
                second = r
                break
    for r in range(m):
        if gain[r] > 0:
            below[r] = weights[first]
        else:
            below[r] = weights[min(r, second)]
        if r <= first:
            top[r], slope[r] = weights[r], 1.0


@kernel
def _expected_reciprocal_rank(gain: Any, weights: Any, top: Any, slope: Any, below: Any) -> None:
    reading, total = 1.0, 0.0  # Q(r) and T(r - 1)
    for r in range(len(gain)):
        c, stop = weights[r], gain[r]
        below[r] = total + reading * c
        total += reading * stop * c
        slope[r] = 1.0 / (1.0 - stop)
        top[r] = reading * c + slope[r] * total
        reading *= 1.0 - stop


@kernel
def _groups(score: Any, gain: Any, across_grades: bool, starting: Any, ending: Any) -> None:
    """Tied groups: equal scores, and equal gains unless groups go across grades."""
    m, start = len(score), 0
    for r in range(1, m + 1):
        if r == m or score[r] != score[start] or not (across_grades or gain[r] == gain[start]):
            for k in range(start, r):
                starting[k], ending[k] = start, r
            start = r


@kernel
def _means(top: Any, slope: Any, below: Any, tie: Any, ending: Any) -> None:
    """Give the documents of a group their mean; ``tie`` = mean over a < b in the group of top_a − slope_a·below_b."""
    start = 0
    while start < len(top):
        end = ending[start]
        size = end - start
        if size > 1:
            tops, slopes, sum_below, pairs = 0.0, 0.0, 0.0, 0.0
            for r in range(start, end):
                pairs += tops - slopes * below[r]
                tops, slopes, sum_below = tops + top[r], slopes + slope[r], sum_below + below[r]
            tie[start:end] = 2.0 * pairs / (size * (size - 1))
            top[start:end], slope[start:end], below[start:end] = tops / size, slopes / size, sum_below / size
        start = end
