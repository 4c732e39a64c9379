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
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, IntArray
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
        chosen, whole = np.empty(n), self.cut(0, len(queries))
        of_labels, everywhere = (psi, np.ones(n), np.zeros(n)), np.ones(len(queries))
        spare = np.empty(len(queries)), chosen, np.empty(n)
        kernels.top_k_moments(psi, *of_labels, everywhere, self.top_k, whole.offsets, *spare)
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
        """Losses, gradient and what the curvature's diagonal subtracts; see `native/listnet_topk.c`."""
        of_labels = self.psi[block.rows], self.weights[block.rows], targets[block.rows]
        kernels.top_k_moments(scores, *of_labels, block.scale, self.top_k, block.offsets, losses, once, twice)


@dataclass(frozen=True)
class _TopKCurvature(Curvature):
    """Σ_A P(A)·(diag(q) − q qᵀ) with q the softmax outside A; the prefixes A are visited anew for each product."""

    bound: TopKBound
    block: Block
    scores: FloatArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        bound, block = self.bound, self.block
        columns = np.ascontiguousarray(V, dtype=np.float64).reshape(len(self.scores), -1)
        product, of_labels = np.empty_like(columns), (bound.psi[block.rows], bound.weights[block.rows])
        kernels.top_k_times(self.scores, *of_labels, block.scale, bound.top_k, block.offsets, columns, product)
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
