"""Pairs of a ranked query: losses, forces and curvature of lambda-weighted logistic pairs.

Documents of a query stand in rank order; a is above b, z = σ·s, and x = exp(z_b − z_a) ≤ 1. A pair carries a weight α
for "a should win" and a weight β for "b should win":

    loss         α·log(1 + x) + β·(log(1 + x) + z_a − z_b)
    d/dz_a       β − (α + β)·ξ,  ξ = x/(1 + x);  d/dz_b is its opposite
    d²/dz_a²     (α + β)·ξ·(1 − ξ) = −d²/dz_a dz_b

The weights are gains times Δ_ab = top_a − slope_a·below_b (`swap_deltas`) + mu·δ_ab (LambdaLoss):

    one-sided    the document with the larger gain should win: α or β = |G_a − G_b|·Δ_ab, the other is 0
    two-sided    α = G_a·Δ_ab, β = G_b·Δ_ab

In rank order a row (one a, all b below it) is contiguous whatever the grades. With E = exp(z − max z) for each
document, x = E_b·(1/E_a) costs no exponential. Pairs of equal gains weigh nothing and are computed all the same: to
step over them would cost more than they do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray, IntArray, summing_kernel
from toprank.losses.rows import row_kernel
from toprank.losses.swap_deltas import SwapDeltas

__all__ = ["RankedPairs", "pair_product", "pair_sums"]

_ONE = np.uint64(1)
_WIDEST = 600.0  # E = exp(z - max z) may fall to exp(-600): 1/E and every product then stay finite

# log(1 + x) = s·f(s²) with s = x/(2 + x) ≤ 1/3 and f(y) = 2·artanh(√y)/√y, as a polynomial on [0, 1/9] that is right to
# rounding: a logarithm that fits into vector registers.
_LOG1P = tuple(
    np.polynomial.Chebyshev.interpolate(lambda y: 2.0 * np.arctanh(np.sqrt(y)) / np.sqrt(y), 9, domain=[0.0, 1.0 / 9.0])
    .convert(kind=np.polynomial.Polynomial)
    .coef.tolist()
)


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
            if special:
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
