"""ListNet beyond the first place: cross entropy between two Plackett–Luce distributions of the first k documents.

A choice of k documents in order costs Σ_i (−s_{j_i} + log Σ_{not chosen before i} e^s). So the expectation needs no
sum over all choices of k: it is the expected cost of one step, summed over the *prefixes* A (ordered choices of fewer
than k documents), each with its probability P(A) under the target:

    Σ_A P(A)·log Σ_{j ∉ A} e^{s_j} − Σ_j P(j among the first k)·s_j.

About m^(k−1) prefixes instead of m^k choices, visited one after the other and never stored.

The sum of exponentials over the documents *outside* a prefix A is a total less the few members of A. It is taken
relative to the largest value outside A, which is the first of the query's values, in falling order, that A leaves out:
what remains is at least 1 and the total at most m, so the subtraction loses nothing, however far the values lie apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray, IntArray, kernel
from toprank.errors import DataError
from toprank.losses.base import Answer, Block, BoundLoss, Curvature, Want
from toprank.losses.judgments import Judgments

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
        top_k: how many places count.
        judgments: a document's weight multiplies the step in which it is chosen.
    """

    def __init__(self, psi: FloatArray, top_k: int | None, judgments: Judgments) -> None:
        super().__init__(judgments)
        queries, n = self.queries, len(psi)
        _refuse_long_lists(queries.sizes, top_k)
        self.psi, self.weights = psi, judgments.weights
        self.top_k = int(queries.sizes.max()) if top_k is None else top_k
        # At s = ψ the model's expected choices are the target's: P(j among the first k).
        ones, chosen, whole = np.ones(n), np.empty(n), (queries.offsets, 0, len(queries))
        everywhere, losses = np.ones(len(queries)), np.empty(len(queries))
        _moments(psi, psi, ones, np.zeros(n), everywhere, self.top_k, *whole, losses, chosen, np.empty(n))
        self.targets: FloatArray = chosen * self.weights

    @override
    def judge(self, block: Block, scores: FloatArray, grad: FloatArray, want: Want) -> Answer:
        losses = np.empty(block.n_queries)
        self.moments(block, scores, self.targets, losses, grad, np.empty(len(scores)))
        return losses, _TopKCurvature(self, block, scores.copy()) if want.curvature else None

    def moments(
        self,
        block: Block,
        scores: FloatArray,
        targets: FloatArray,
        losses: FloatArray,
        once: FloatArray,
        twice: FloatArray,
    ) -> None:
        """See `_moments`."""
        of_labels, cut = (self.psi, self.weights, targets), (self.queries.offsets, block.first, block.last)
        _moments(scores, *of_labels, self.scale, self.top_k, *cut, losses, once, twice)


@dataclass(frozen=True)
class _TopKCurvature(Curvature):
    """Σ_A P(A)·(diag(q) − q qᵀ) with q the softmax outside A; the prefixes A are visited anew for each product."""

    bound: TopKBound
    block: Block
    scores: FloatArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        bound, columns = self.bound, np.ascontiguousarray(V, dtype=np.float64).reshape(len(self.scores), -1)
        product, cut = np.zeros_like(columns), (bound.queries.offsets, self.block.first, self.block.last)
        _times(self.scores, bound.psi, bound.weights, bound.scale, bound.top_k, *cut, columns, product)
        return product.reshape(V.shape)

    @override
    def diagonal(self) -> FloatArray:
        once, twice = np.empty(len(self.scores)), np.empty(len(self.scores))
        losses, nothing = np.empty(self.block.n_queries), np.zeros_like(self.bound.targets)
        self.bound.moments(self.block, self.scores, nothing, losses, once, twice)
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
        mean[:] = totals[row]  # of the whole row; the few members of the prefix are taken out again
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


class Side(NamedTuple):
    """Exponentials of one list of values, relative to each of its largest ones."""

    rank: IntArray  # of each document, 0 for the largest value; all beyond the first `steps` share the last rank
    tops: FloatArray  # the values in falling order, `steps` of them
    exponentials: FloatArray  # [r, j] = exp(value_j − tops[r]) for documents of rank r or later, else 0
    totals: FloatArray  # sum of each row


class Walk(NamedTuple):
    """Where the visit of all prefixes stands; entries with index `depth` belong to the present prefix."""

    prefix: IntArray
    candidate: IntArray  # next document to append
    used: npt.NDArray[np.bool_]
    probability: FloatArray  # P(A)
    row: IntArray  # first rank of the target that A leaves out
    left: FloatArray  # Σ_{j ∉ A} e^ψ, relative to that rank's


@kernel
def side_of(values: FloatArray, steps: int) -> Side:
    """The exponentials of `values`; O(steps·m)."""
    m = len(values)
    rank, tops = np.full(m, steps, np.int64), np.empty(steps)
    exponentials, totals = np.zeros((steps, m)), np.zeros(steps)
    for r in range(steps):
        best = -1
        for j in range(m):
            if rank[j] == steps and (best < 0 or values[j] > values[best]):
                best = j
        rank[best] = r
        tops[r] = values[best]
        for j in range(m):
            if rank[j] >= r:
                exponentials[r, j] = np.exp(values[j] - tops[r])
                totals[r] += exponentials[r, j]
    return Side(rank, tops, exponentials, totals)


@kernel
def row_sums(side: Side, factors: FloatArray) -> FloatArray:
    """Σ_j exponentials[r, j]·factors[j] for each r."""
    sums = np.zeros(len(side.tops))
    for r in range(len(sums)):
        for j in range(len(factors)):
            sums[r] += side.exponentials[r, j] * factors[j]
    return sums


@kernel
def outside(side: Side, prefix: IntArray, depth: int) -> tuple[int, float]:
    """The first rank that the prefix leaves out, and the sum of exponentials outside the prefix relative to it."""
    row, found = 0, True
    while found:
        found = False
        for i in range(depth):
            if side.rank[prefix[i]] == row:
                row += 1
                found = True
                break
    left = side.totals[row]
    for i in range(depth):
        left -= side.exponentials[row, prefix[i]]
    return row, max(left, 1.0)


@kernel
def start_walk(target: Side, m: int, steps: int) -> Walk:
    """The empty prefix."""
    walk = Walk(
        np.zeros(steps, np.int64),
        np.zeros(steps, np.int64),
        np.zeros(m, np.bool_),
        np.ones(steps),
        np.zeros(steps, np.int64),
        np.empty(steps),
    )
    walk.left[0] = target.totals[0]
    return walk


@kernel
def advance(walk: Walk, target: Side, depth: int, m: int, steps: int) -> int:
    """Go to the next prefix and return its length; −1 after the last. Prefixes of probability 0 are passed over."""
    while depth >= 0:
        if depth == steps - 1 or walk.candidate[depth] == m:
            depth -= 1
            if depth >= 0:
                walk.used[walk.prefix[depth]] = False
            continue
        document = walk.candidate[depth]
        walk.candidate[depth] += 1
        if walk.used[document]:
            continue
        chosen = target.exponentials[walk.row[depth], document] / walk.left[depth]
        if walk.probability[depth] * chosen == 0.0:
            continue
        walk.prefix[depth] = document
        walk.used[document] = True
        depth += 1
        walk.probability[depth] = walk.probability[depth - 1] * chosen
        walk.candidate[depth] = 0
        walk.row[depth], walk.left[depth] = outside(target, walk.prefix, depth)
        return depth
    return depth


@kernel
def mean_weight(walk: Walk, target: Side, weights: FloatArray, weighted: FloatArray, depth: int) -> float:
    """The expected weight of the document that the target chooses next; `weighted` is ``row_sums(target, weights)``."""
    row = walk.row[depth]
    total = weighted[row]
    for i in range(depth):
        total -= weights[walk.prefix[i]] * target.exponentials[row, walk.prefix[i]]
    return float(max(total, 0.0) / walk.left[depth])
