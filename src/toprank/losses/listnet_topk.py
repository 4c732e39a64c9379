"""ListNet beyond the first place: cross entropy between two Plackett–Luce distributions of the first k documents.

A choice of k documents in order costs Σ_i (−s_{j_i} + log Σ_{not chosen before i} e^s). So the expectation needs no
sum over all choices of k: it is the expected cost of one step, summed over the *prefixes* A (ordered choices of fewer
than k documents), each with its probability P(A) under the target:

    Σ_A P(A)·log Σ_{j ∉ A} e^{s_j} − Σ_j P(j among the first k)·s_j.

About m^(k−1) prefixes instead of m^k choices, visited one after the other and never stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses.base import BoundLoss, Curvature
from toprank.losses.prefixes import Side, advance, mean_weight, outside, row_sums, side_of, start_walk

__all__ = ["MAX_PREFIXES", "TopKBound", "count_prefixes"]

MAX_PREFIXES = 1_000_000  # in one query: 65 to 110 ns each when measured, so about 0.1 s for each evaluation


def count_prefixes(m: int, top_k: int | None) -> int:
    """Ordered choices of fewer than k of m documents; the last document needs no choice.

    >>> count_prefixes(100, 2), count_prefixes(100, 3), count_prefixes(5, None)
    (101, 10001, 86)
    """
    total, choices = 0, 1
    for length in range(_steps(m, top_k)):
        total += choices
        choices *= m - length
    return total


def _steps(m: int, top_k: int | None) -> int:
    """Choices that are choices: k of them, but the last of m documents comes by itself."""
    return m - 1 if top_k is None else min(top_k, m - 1)


class TopKBound(BoundLoss):
    """ListNet for the first `top_k` documents (None: all) with the target strengths ψ.

    Args:
        psi: ψ(y) of each document.
        queries: the queries.
        top_k: how many places count.
        document_weights: multiply the step in which the document is chosen.
        query_weights: weights of the queries in the mean.
    """

    def __init__(
        self,
        psi: FloatArray,
        queries: Queries,
        top_k: int | None,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
    ) -> None:
        super().__init__(queries, query_weights)
        _refuse_long_lists(queries.sizes, top_k)
        self.psi = psi
        self.top_k = int(queries.sizes.max()) if top_k is None else top_k
        self.weights = np.ones(len(psi)) if document_weights is None else np.array(document_weights)
        # At s = ψ the model's expected choices are the target's: P(j among the first k).
        self.targets: FloatArray = np.zeros(len(psi))
        chosen, unused = np.empty(len(psi)), np.empty(len(psi))
        everywhere = np.ones(len(queries))
        _moments(
            psi,
            psi,
            np.ones(len(psi)),
            self.targets,
            everywhere,
            self.top_k,
            queries.offsets,
            0,
            len(queries),
            np.empty(len(queries)),
            chosen,
            unused,
        )
        self.targets = chosen * self.weights

    def block(self, scores: FloatArray, first: int, last: int, grad: FloatArray) -> FloatArray:
        """See `BoundLoss.block`."""
        losses, unused = np.empty(last - first), np.empty(len(scores))
        self.moments(scores, first, last, self.targets, losses, grad, unused)
        return losses

    def moments(
        self,
        scores: FloatArray,
        first: int,
        last: int,
        targets: FloatArray,
        losses: FloatArray,
        once: FloatArray,
        twice: FloatArray,
    ) -> None:
        """See `_moments`."""
        offsets = self.queries.offsets
        _moments(
            scores, self.psi, self.weights, targets, self.scale, self.top_k, offsets, first, last, losses, once, twice
        )

    def curvature_block(self, scores: FloatArray, first: int, last: int) -> Curvature:
        """See `BoundLoss.curvature_block`."""
        return _TopKCurvature(self, scores.copy(), first, last)


@dataclass(frozen=True)
class _TopKCurvature(Curvature):
    """Σ_A P(A)·(diag(q) − q qᵀ) with q the softmax outside A; the prefixes A are visited anew for each product."""

    bound: TopKBound
    scores: FloatArray
    first: int
    last: int

    def __matmul__(self, V: FloatArray) -> FloatArray:
        bound, columns = self.bound, np.ascontiguousarray(V, dtype=np.float64).reshape(len(self.scores), -1)
        product, offsets = np.zeros_like(columns), bound.queries.offsets
        _times(
            self.scores,
            bound.psi,
            bound.weights,
            bound.scale,
            bound.top_k,
            offsets,
            self.first,
            self.last,
            columns,
            product,
        )
        return product.reshape(V.shape)

    def diagonal(self) -> FloatArray:
        """See `Curvature.diagonal`."""
        once, twice = np.empty(len(self.scores)), np.empty(len(self.scores))
        losses, nothing = np.empty(self.last - self.first), np.zeros_like(self.bound.targets)
        self.bound.moments(self.scores, self.first, self.last, nothing, losses, once, twice)
        return np.maximum(once - twice, 0.0)


def _refuse_long_lists(sizes: IntArray, top_k: int | None) -> None:
    longest = int(np.argmax(sizes))
    m = int(sizes[longest])
    if _steps(m, top_k) <= 1 or (prefixes := count_prefixes(m, top_k)) <= MAX_PREFIXES:
        return
    feasible = max(k for k in range(1, 4) if count_prefixes(m, k) <= MAX_PREFIXES)
    raise DataError(
        f"ListNet with top_k={top_k} would visit {_rounded(prefixes)} ordered choices for query number {longest} "
        f"(from 0) with its {m:,} documents; at most {MAX_PREFIXES:,} are allowed. "
        f"Choose top_k={feasible}, or cut the lists."
    )


def _rounded(count: int) -> str:
    return f"{count:,}" if count < 10**15 else f"about 10^{len(str(count)) - 1}"


@kernel
def _moments(
    scores: FloatArray,
    psi: FloatArray,
    weights: FloatArray,
    targets: FloatArray,
    scale: FloatArray,
    top_k: int,
    offsets: IntArray,
    first: int,
    last: int,
    losses: FloatArray,
    once: FloatArray,
    twice: FloatArray,
) -> None:
    """The loss of each query; for each document scale·(Σ_A c_A·q_A(j) − target_j) and scale·Σ_A c_A·q_A(j)².

    q_A is the softmax outside A and c_A = P(A) times the expected weight of the next choice.
    """
    base = offsets[first]
    for q in range(first, last):
        start, m = offsets[q] - base, offsets[q + 1] - offsets[q]
        own_once, own_twice = once[start : start + m], twice[start : start + m]
        own_once[:] = 0.0
        own_twice[:] = 0.0
        losses[q - first] = 0.0
        steps = min(top_k, m - 1)
        if steps == 0:
            continue
        rows = slice(offsets[q], offsets[q + 1])
        target, side = side_of(psi[rows], steps), side_of(scores[start : start + m], steps)
        losses[q - first] = _moments_one(target, side, weights[rows], own_once, own_twice)
        for j in range(m):
            wanted = targets[offsets[q] + j]
            losses[q - first] += wanted * (side.tops[0] - scores[start + j])
            own_once[j] = scale[q] * (own_once[j] - wanted)
            own_twice[j] *= scale[q]


@kernel
def _moments_one(target: Side, side: Side, weights: FloatArray, once: FloatArray, twice: FloatArray) -> float:
    """Add one query's moments; its Σ_A c_A·(log Σ_{j ∉ A} e^{s_j} − max s).

    Each prefix adds to its row's sums as if it left nothing out, and takes its members out again.
    """
    steps, m = side.exponentials.shape
    weighted, sums, squares = row_sums(target, weights), np.zeros(steps), np.zeros(steps)
    value = 0.0
    walk, depth = start_walk(target, m, steps), 0
    while depth >= 0:
        factor = walk.probability[depth] * mean_weight(walk, target, weights, weighted, depth)
        row, left = outside(side, walk.prefix, depth)
        value += factor * (side.tops[row] - side.tops[0] + np.log(left))
        sums[row] += factor / left
        squares[row] += factor / left**2
        for i in range(depth):
            j = walk.prefix[i]
            share = side.exponentials[row, j] / left
            once[j] -= factor * share
            twice[j] -= factor * share**2
        depth = advance(walk, target, depth, m, steps)
    for r in range(steps):
        for j in range(m):
            once[j] += sums[r] * side.exponentials[r, j]
            twice[j] += squares[r] * side.exponentials[r, j] ** 2
    return value


@kernel
def _times(
    scores: FloatArray,
    psi: FloatArray,
    weights: FloatArray,
    scale: FloatArray,
    top_k: int,
    offsets: IntArray,
    first: int,
    last: int,
    V: FloatArray,
    product: FloatArray,
) -> None:
    """scale·Σ_A c_A·q_A(j)·(V_j − Σ_i q_A(i) V_i), added to `product`."""
    base = offsets[first]
    for q in range(first, last):
        rows, own = slice(offsets[q], offsets[q + 1]), slice(offsets[q] - base, offsets[q + 1] - base)
        steps = min(top_k, offsets[q + 1] - offsets[q] - 1)
        if steps > 0:
            target, side = side_of(psi[rows], steps), side_of(scores[own], steps)
            _times_one(target, side, weights[rows], scale[q], V[own], product[own])


@kernel
def _times_one(target: Side, side: Side, weights: FloatArray, scale: float, V: FloatArray, product: FloatArray) -> None:
    """One query, as in `_moments_one`."""
    (steps, m), width = side.exponentials.shape, V.shape[1]
    weighted, totals = row_sums(target, weights), np.zeros((steps, width))
    for r in range(steps):
        for j in range(m):
            for c in range(width):
                totals[r, c] += side.exponentials[r, j] * V[j, c]
    sums, means, mean = np.zeros(steps), np.zeros((steps, width)), np.empty(width)
    walk, depth = start_walk(target, m, steps), 0
    while depth >= 0:
        row, left = outside(side, walk.prefix, depth)
        factor = scale * walk.probability[depth] * mean_weight(walk, target, weights, weighted, depth) / left
        sums[row] += factor
        mean[:] = totals[row]
        for i in range(depth):
            j = walk.prefix[i]
            for c in range(width):
                mean[c] -= side.exponentials[row, j] * V[j, c]
        for c in range(width):
            mean[c] /= left
            means[row, c] += factor * mean[c]
        for i in range(depth):
            j = walk.prefix[i]
            for c in range(width):
                product[j, c] -= factor * side.exponentials[row, j] * (V[j, c] - mean[c])
        depth = advance(walk, target, depth, m, steps)
    for r in range(steps):
        for j in range(m):
            for c in range(width):
                product[j, c] += side.exponentials[r, j] * (sums[r] * V[j, c] - means[r, c])
