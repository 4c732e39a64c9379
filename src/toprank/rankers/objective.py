"""The objective that a solver sees: a loss of the scores that a scorer gives to some features.

Value, gradient and curvature are sums over blocks of whole queries, added in the order of the blocks: the same bits on
any number of threads. X crosses memory once for value and gradient together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from toprank.compute import FloatArray, each_block
from toprank.losses.base import BoundLoss
from toprank.scorers.base import Scored, Scorer
from toprank.scorers.features import Features

__all__ = ["RankingObjective"]

Block = tuple[int, int]


class RankingObjective:
    """L(weights) = loss(scorer(weights, features)), without penalty."""

    def __init__(self, scorer: Scorer, features: Features, loss: BoundLoss, threads: int | None = None) -> None:
        self.scorer, self.features, self.loss, self.threads = scorer, features, loss, threads
        self.offsets = loss.queries.offsets
        self.blocks = features.blocks(self.offsets)
        if hasattr(loss, "n_columns"):  # several scores a document: products of the curvature only
            self.hessian = None  # type: ignore[assignment,method-assign]

    @property
    def n_weights(self) -> int:
        """Number of weights."""
        return self.scorer.n_weights

    def value_and_grad(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """The mean loss and its gradient."""

        def work(block: Block) -> tuple[FloatArray, FloatArray]:
            scored = self._forward(weights, block)
            d_scores = np.zeros_like(scored.scores)
            losses = self.loss.block(scored.scores, *block, d_scores)
            return losses, scored.back(d_scores)

        parts = each_block(work, self.blocks, self.threads)
        losses = np.concatenate([part[0] for part in parts])
        return float(np.sum(losses * self.loss.scale)), _sum([part[1] for part in parts])

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Jᵀ H J: exact for a linear scorer, Gauss-Newton for others."""

        def work(block: Block) -> FloatArray:
            scored = self._forward(weights, block)
            jacobian = scored.jacobian()
            curvature = self.loss.curvature_block(scored.scores, *block)
            result: FloatArray = jacobian.T @ (curvature @ jacobian)
            return result

        return _sum(each_block(work, self.blocks, self.threads))

    def hessian_times(self, weights: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """The map v ↦ Jᵀ H J v, with scores and curvature computed once."""

        def prepare(block: Block) -> tuple[Scored, object]:
            scored = self._forward(weights, block)
            return scored, self.loss.curvature_block(scored.scores, *block)

        prepared = each_block(prepare, self.blocks, self.threads)

        def times(vector: FloatArray) -> FloatArray:
            return _sum(
                each_block(lambda part: part[0].back(part[1] @ part[0].forth(vector)), prepared, self.threads)  # type: ignore[operator]
            )

        return times

    def scores(self, weights: FloatArray) -> FloatArray:
        """Scores of all documents."""
        return np.concatenate(each_block(lambda block: self._forward(weights, block).scores, self.blocks, self.threads))

    def _forward(self, weights: FloatArray, block: Block) -> Scored:
        first, last = block
        rows = slice(int(self.offsets[first]), int(self.offsets[last]))
        return self.scorer.forward(weights, self.features, rows)


def _sum(parts: list[FloatArray]) -> FloatArray:
    """Sum in the order of the parts."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total
