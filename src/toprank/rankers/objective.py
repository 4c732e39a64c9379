"""The objective that a solver sees: a loss of the scores that a scorer gives to some features.

Value, gradient and curvature are sums over blocks of whole queries, added in the order of the blocks: the same bits on
any number of threads. X crosses memory once for value and gradient together, and no copy of it is ever held: beyond X
there are numbers of documents and queries, and a few blocks' worth of terms that wait to be added.

No query is cut, so one query of all documents is one block. Value, gradient and products of the curvature take its rows
part by part; `hessian`, which solvers ask for where there are few weights, needs its Jacobian as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import numpy as np

from toprank.compute import FloatArray, available_threads, each_block
from toprank.losses.base import Block, BoundLoss, Curvature, Want
from toprank.scorers.base import Scored, ScoredByClass, ScoredOnce, Scorer
from toprank.scorers.features import Features

__all__ = ["RankingObjective"]

Item = TypeVar("Item")

_WAITING = 16 << 20  # bytes of terms that wait to be added
_AT_LEAST = 4  # terms a thread that wait whatever their size, or threads would stand idle


class RankingObjective:
    """L(weights) = loss(scorer(weights, features)), without penalty."""

    def __init__(self, scorer: Scorer, features: Features, loss: BoundLoss, threads: int | None = None) -> None:
        self.scorer, self.features, self.loss, self.threads = scorer, features, loss, threads
        self.blocks = [loss.cut(*ends) for ends in features.blocks(loss.queries.offsets)]

    @property
    def n_weights(self) -> int:
        """Number of weights."""
        return self.scorer.n_weights

    def value_and_grad(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """The mean loss and its gradient."""
        losses = np.empty(len(self.loss.queries))

        def work(block: Block) -> FloatArray:
            scored = self._forward(weights, block)
            d_scores = np.zeros_like(scored.scores)
            losses[block.queries] = self.loss.judge(block, scored.scores, d_scores, Want())[0]
            return scored.back(d_scores)

        grad = self._sum(work, self.blocks, self.n_weights)
        return float(np.sum(losses * self.loss.scale)), grad

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Jᵀ H J: exact for a linear scorer, Gauss-Newton for others. Holds J of a block at a time."""

        def work(block: Block) -> FloatArray:
            scored = self._forward(weights, block)
            curvature = self._curvature(block, scored)
            if scored.scores.ndim == 2:
                return cast(ScoredByClass, scored).curved(_by_class(curvature, scored.scores))
            jacobian = cast(ScoredOnce, scored).jacobian()
            result: FloatArray = jacobian.T @ (curvature @ jacobian)
            return result

        return self._sum(work, self.blocks, self.n_weights**2)

    def hessian_times(self, weights: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """The map v ↦ Jᵀ H J v, with the curvature computed once; scores too, unless they come with a copy of X."""

        def prepare(block: Block) -> tuple[Block, Scored | None, Curvature]:
            scored = self._forward(weights, block)
            curvature = self._curvature(block, scored)
            return block, None if scored.holds_rows else scored, curvature

        prepared = each_block(prepare, self.blocks, self.threads)

        def times(vector: FloatArray) -> FloatArray:
            def work(part: tuple[Block, Scored | None, Curvature]) -> FloatArray:
                block, kept, curvature = part
                scored = self._forward(weights, block) if kept is None else kept
                return scored.back(curvature @ scored.forth(vector))

            return self._sum(work, prepared, self.n_weights)

        return times

    def scores(self, weights: FloatArray) -> FloatArray:
        """Scores of all documents."""
        return np.concatenate(each_block(lambda block: self._forward(weights, block).scores, self.blocks, self.threads))

    def _forward(self, weights: FloatArray, block: Block) -> Scored:
        return self.scorer.forward(weights, self.features, block.rows)

    def _curvature(self, block: Block, scored: Scored) -> Curvature:
        unread = np.zeros_like(scored.scores)
        curvature = self.loss.judge(block, scored.scores, unread, Want(value=False, curvature=True))[1]
        assert curvature is not None
        return curvature

    def _sum(self, term: Callable[[Item], FloatArray], items: Sequence[Item], size: int) -> FloatArray:
        """Σ term(item), added in the order of the items; few terms, of `size` numbers each, are held at a time."""
        at_once = max(_AT_LEAST * available_threads(self.threads), _WAITING // (8 * size))
        total = None
        for first in range(0, len(items), at_once):
            for part in each_block(term, items[first : first + at_once], self.threads):
                total = part.copy() if total is None else np.add(total, part, out=total)
        assert total is not None  # there is at least one query
        return total


def _by_class(curvature: Curvature, scores: FloatArray) -> FloatArray:
    """The curvature of each document's columns, (documents, columns, columns), a column at a time."""
    columns = scores.shape[1]
    result = np.empty((len(scores), columns, columns))
    for column in range(columns):
        unit = np.zeros_like(scores)
        unit[:, column] = 1.0
        result[:, :, column] = curvature @ unit
    return result
