"""Pairs of a ranked query: losses, forces and curvature of lambda-weighted logistic pairs.

Documents of a query stand in rank order; a is above b, z = σ·s, and x = exp(z_b − z_a) ≤ 1. A pair carries a weight α
for "a should win" and a weight β for "b should win":

    loss         α·log(1 + x) + β·(log(1 + x) + z_a − z_b)
    d/dz_a       β − (α + β)·ξ,  ξ = x/(1 + x);  d/dz_b is its opposite
    d²/dz_a²     (α + β)·ξ·(1 − ξ) = −d²/dz_a dz_b

The weights are gains times Δ_ab = top_a − slope_a·below_b (below) + mu·δ_ab (LambdaLoss):

    one-sided    the document with the larger gain should win: α or β = |G_a − G_b|·Δ_ab, the other is 0
    two-sided    α = G_a·Δ_ab, β = G_b·Δ_ab

In rank order a row (one a, all b below it) is contiguous whatever the grades. With E = exp(z − max z) for each
document, x = E_b·(1/E_a) costs no exponential. Pairs of equal gains weigh nothing and are computed all the same: to
step over them would cost more than they do.

**|ΔZ|** is how much a metric changes when two documents of a ranking change places.

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

from toprank.compute import FloatArray, IntArray, kernel, row_kernel, summing_kernel

__all__ = ["KINDS", "RankedPairs", "SwapDeltas", "pair_product", "pair_sums", "swap_deltas"]

KINDS = {"dcg": 0, "ap": 1, "rr": 2, "err": 3}

_ONE = np.uint64(1)
_WIDEST = 600.0  # E = exp(z - max z) may fall to exp(-600): 1/E and every product then stay finite

# log(1 + x) = s·f(s²) with s = x/(2 + x) ≤ 1/3 and f(y) = 2·artanh(√y)/√y, as a polynomial on [0, 1/9] that is right to
# rounding: a logarithm that fits into vector registers.
_LOG1P = tuple(
    np.polynomial.Chebyshev.interpolate(lambda y: 2.0 * np.arctanh(np.sqrt(y)) / np.sqrt(y), 9, domain=[0.0, 1.0 / 9.0])
    .convert(kind=np.polynomial.Polynomial)
    .coef.tolist()
)


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


class RankedPairs(NamedTuple):
    """Some queries in rank order with what their pairs weigh; arrays are aligned with `order`."""

    order: IntArray
    """Row of each document, best first, query by query."""
    starts: IntArray
    """Where each query begins, and the end of the last."""
    z: FloatArray
    gains: FloatArray
    weights: FloatArray
    """Document weights; empty: all are 1."""
    deltas: SwapDeltas
    last: int
    """Pairs whose better rank is at most this count; 0: all."""
    mu: float
    distance: FloatArray
    """1/log2(1 + d) at index d = 1, 2 …, and 0 at index 0 (read where mu > 0)."""
    distance_sums: FloatArray
    """Its running sums."""
    two_sided: bool
    norm: float
    """LightGBM's normalisation: Δ is divided by 0.01 + norm·(z_a − z_b) and the query is rescaled; 0: none."""


@summing_kernel
def pair_sums(
    pairs: Any, scale: FloatArray, with_losses: bool, grad: FloatArray, diagonal: FloatArray, losses: FloatArray
) -> None:
    """Per query the loss; per row d/dz and the diagonal of d²/dz², times `scale` of the query.

    LightGBM's normalisation multiplies `scale` by the factor of the query.
    """
    n, special = len(pairs.z), pairs.mu > 0 or pairs.norm > 0 or pairs.weights.size > 0
    E, inverse, delta, force, bend = np.empty(n), np.empty(n), np.empty(n), np.zeros(n), np.zeros(n)
    for q in range(len(pairs.starts) - 1):
        first, end = np.uint64(pairs.starts[q]), np.uint64(pairs.starts[q + 1])
        wide = _exponentials(first, end, pairs.z, E, inverse)
        loss, moved = 0.0, 0.0
        for a in range(first, _reach(pairs.last, first, end, pairs.deltas.group_end)):
            if wide:
                _exponentials_below(a, end, pairs.z, E, inverse)
            _fill_delta(first, a, end, pairs.deltas, delta)
            if special:  # rare options pass over the row once more, so that the usual loops have no branches
                _adjust_delta(first, a, end, pairs, delta)
            row_moved, row_loss = _row(a, end, E, inverse, pairs, delta, with_losses, force, bend)
            moved += row_moved
            loss += row_loss
        if pairs.norm > 0 and moved > 0:
            total = 2.0 * moved / pairs.norm  # |d/ds|, s = z·norm, over both documents of every pair
            factor = np.log2(1.0 + total) / total
            scale[q] *= factor
            loss *= factor
        losses[q] = loss
        for r in range(first, end):
            grad[pairs.order[r]] = scale[q] * force[r]
            diagonal[pairs.order[r]] = scale[q] * bend[r]


@summing_kernel
def pair_product(pairs: Any, scale: FloatArray, V: FloatArray, out: FloatArray) -> None:
    """H·V, H = d²/dz² times `scale` of the query, added to `out`: a pair of curvature c moves c·(V_a − V_b) to a."""
    n, special = len(pairs.z), pairs.mu > 0 or pairs.norm > 0 or pairs.weights.size > 0
    E, inverse, delta, curve = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for q in range(len(pairs.starts) - 1):
        first, end = np.uint64(pairs.starts[q]), np.uint64(pairs.starts[q + 1])
        wide = _exponentials(first, end, pairs.z, E, inverse)
        for a in range(first, _reach(pairs.last, first, end, pairs.deltas.group_end)):
            if wide:
                _exponentials_below(a, end, pairs.z, E, inverse)
            _fill_delta(first, a, end, pairs.deltas, delta)
            if special:
                _adjust_delta(first, a, end, pairs, delta)
            _curves(a, end, E, inverse, pairs, delta, scale[q], curve)
            _flow(a, end, pairs.order, curve, V, out)


@summing_kernel
def _reach(last: int, first: Any, end: Any, group_end: IntArray) -> Any:
    """The end of the ranks that are the better one of some pair: a tied group at the border belongs to them."""
    if 0 < last < np.int64(end - first):
        return first + np.uint64(group_end[first + np.uint64(last - 1)])
    return end


@summing_kernel
def _exponentials(first: Any, end: Any, z: FloatArray, E: FloatArray, inverse: FloatArray) -> bool:
    """E = exp(z − max z) and 1/E; True where they would underflow, so that every row needs its own exponentials."""
    if z[first] - z[end - _ONE] > _WIDEST:
        return True
    for r in range(first, end):
        E[r] = np.exp(z[r] - z[first])
        inverse[r] = 1.0 / E[r]
    return False


@summing_kernel
def _exponentials_below(a: Any, end: Any, z: FloatArray, E: FloatArray, inverse: FloatArray) -> None:
    """Here E is x itself, for the row of a: where scores lie too far apart for one exponential a document."""
    inverse[a] = 1.0
    for b in range(a + _ONE, end):
        E[b] = np.exp(z[b] - z[a])


@row_kernel
def _fill_delta(first: Any, a: Any, end: Any, deltas: Any, delta: FloatArray) -> None:
    """top_a − slope_a·below_b for every b below a, at delta[b]; ``tie`` within the group of a."""
    top, slope, below = deltas.top[a], deltas.slope[a], deltas.below
    for b in range(a + _ONE, end):
        change = top - slope * below[b]
        delta[b] = change if change > 0.0 else 0.0  # below 0 is rounding
    for b in range(a + _ONE, first + np.uint64(deltas.group_end[a])):
        delta[b] = deltas.tie[a]


@summing_kernel
def _adjust_delta(first: Any, a: Any, end: Any, pairs: Any, delta: FloatArray) -> None:
    """The options that Δ does not always have: distances in rank, LightGBM's normalisation, document weights."""
    if pairs.mu > 0:
        _add_distances(first, a, end, pairs, delta)
    if pairs.norm > 0 and pairs.z[first] != pairs.z[end - _ONE]:
        for b in range(a + _ONE, end):
            delta[b] /= 0.01 + pairs.norm * (pairs.z[a] - pairs.z[b])
    if pairs.weights.size > 0:
        for b in range(a + _ONE, end):
            delta[b] *= pairs.weights[a] * pairs.weights[b]


@summing_kernel
def _add_distances(first: Any, a: Any, end: Any, pairs: Any, delta: FloatArray) -> None:
    """Add mu·δ, δ = 1/D(d) − 1/D(d + 1) with d = the distance in rank; for tied documents its mean over their ranks.

    Over the ranks p of one group and r of a later one, Σ_p Σ_r δ(r − p) telescopes in r and is a difference of running
    sums in p. Within a group of g documents, g − d pairs of ranks lie at the distance d.
    """
    inv, sums = pairs.distance, pairs.distance_sums
    group_start, group_end = pairs.deltas.group_start, pairs.deltas.group_end
    low, high, rank = group_start[a], group_end[a], np.int64(a - first)
    size, inside = high - low, 0.0
    for d in range(1, size):
        inside += (size - d) * (inv[d] - inv[d + 1])
    for b in range(a + _ONE, end):
        lower, upper = group_start[b], group_end[b]
        if lower == low:
            delta[b] += pairs.mu * inside / (0.5 * size * (size - 1))
        elif size == 1 and upper - lower == 1:
            delta[b] += pairs.mu * (inv[lower - rank] - inv[lower - rank + 1])
        else:
            total = sums[lower - low] - sums[lower - high] - sums[upper - low] + sums[upper - high]
            delta[b] += pairs.mu * total / (size * (upper - lower))


@row_kernel
def _row(
    a: Any,
    end: Any,
    E: FloatArray,
    inverse: FloatArray,
    pairs: Any,
    delta: FloatArray,
    with_losses: bool,
    force: FloatArray,
    bend: FloatArray,
) -> tuple[float, float]:
    """Add d/dz and d²/dz² of the pairs of a to `force` and `bend`; the sums of |d/dz_a| and of the losses."""
    z, gains, two_sided = pairs.z, pairs.gains, pairs.two_sided
    gain, scale, z_a = gains[a], inverse[a], z[a]
    force_a, bend_a, moved, loss = 0.0, 0.0, 0.0, 0.0
    for b in range(a + _ONE, end):
        x = E[b] * scale
        win = 1.0 / (1.0 + x)  # 1 − ξ
        weight = (gain - gains[b]) * delta[b]
        beta, both = (-weight if weight < 0 else 0.0), abs(weight)
        if two_sided:
            beta, both = gains[b] * delta[b], (gain + gains[b]) * delta[b]
        pull = both * (x * win)
        push = beta - pull
        force[b] -= push
        bend[b] += pull * win
        force_a += push
        bend_a += pull * win
        moved += abs(push)
        if with_losses:
            loss += both * _log1p(x) + beta * (z_a - z[b])
    force[a] += force_a
    bend[a] += bend_a
    return moved, loss


@row_kernel
def _log1p(x: float) -> float:
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9 = _LOG1P
    s = x / (2.0 + x)
    y = s * s
    w = y * y  # even and odd powers apart: two short chains of products instead of a long one
    even = c0 + w * (c2 + w * (c4 + w * (c6 + w * c8)))
    odd = c1 + w * (c3 + w * (c5 + w * (c7 + w * c9)))
    return float(s * (even + y * odd))


@row_kernel
def _curves(
    a: Any, end: Any, E: FloatArray, inverse: FloatArray, pairs: Any, delta: FloatArray, scale: float, curve: FloatArray
) -> None:
    """d²/dz_a² of each pair of a times `scale`, at curve[b]."""
    gains, gain, x_a = pairs.gains, pairs.gains[a], inverse[a]
    for b in range(a + _ONE, end):
        x = E[b] * x_a
        win = 1.0 / (1.0 + x)
        both = (gain + gains[b]) if pairs.two_sided else abs(gain - gains[b])
        curve[b] = scale * both * delta[b] * (x * win) * win


@summing_kernel
def _flow(a: Any, end: Any, order: IntArray, curve: FloatArray, V: FloatArray, out: FloatArray) -> None:
    row = order[a]
    for b in range(a + _ONE, end):
        if curve[b] != 0.0:
            other = order[b]
            for k in range(V.shape[1]):
                flow = curve[b] * (V[row, k] - V[other, k])
                out[row, k] += flow
                out[other, k] -= flow
