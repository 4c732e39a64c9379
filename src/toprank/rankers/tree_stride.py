"""How long the steps of trees are where a loss does not know its curvature but a bound of it.

A bound may be loose by any factor, and trees that go by it crawl: hinges and smoothed metrics are nearly straight where
boosting starts, so that one tree is grown again and again. Friedman (2001) asks the loss itself, by a search along each
tree; LightGBM gives a tree its values before anyone can look, so here each tree is searched for the sake of the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.losses.base import BoundLoss, Loss

if TYPE_CHECKING:
    from toprank.rankers.tree_objective import Together

__all__ = ["Judged", "Stride", "needs_search"]

_DOUBLINGS = 30  # a loss without a lower bound would have the steps doubled for ever


class Judged(NamedTuple):
    """A loss at some scores."""

    scores: FloatArray
    value: float
    grad: FloatArray
    diagonal: FloatArray


def needs_search(loss: Loss) -> bool:
    """Whether the loss has a value to search by, and a curvature that may be far from its own."""
    return loss.traits.exact_gradient and loss.traits.curvature != "exact"


class Stride:
    """By which share of the bound steps may go, from how the loss fell along the last tree.

    Along the tree h from the scores s the bound c promises the length t = −g·h/(h·c·h), and that the loss falls by half
    of what its slope says, ½·t·|g·h|: that is where a parabola has its minimum. As long as twice the length keeps the
    same promise, the bound is too large by another factor of 2.

    Args:
        bound: the loss on the training data.
        before: the scores without the last tree, where training goes on from a model.
        factor: what a mean over these queries is multiplied by to be a part of the sum over all.
        threads: number of threads; results do not depend on it.
        together: the other trainers, where there are any.
    """

    def __init__(
        self,
        bound: BoundLoss,
        before: FloatArray | None,
        *,
        factor: float,
        threads: int | None = None,
        together: Together | None = None,
    ) -> None:
        self.bound, self.factor, self.threads, self.together = bound, factor, threads, together
        self.last = None if before is None else self.judge(before)

    def judge(self, scores: FloatArray) -> Judged:
        """The loss at these scores, with the bound of its curvature."""
        now = self.bound.at(scores, curvature=True, threads=self.threads)
        assert now.curvature is not None
        return Judged(np.array(scores), now.value, now.grad, now.curvature.diagonal())

    def share(self, now: Judged) -> float:
        """What the bound is multiplied by for the next tree: 1, ½, ¼ …"""
        last, self.last = self.last, now
        if last is None:
            return 1.0
        tree = now.scores - last.scores
        value, slope, bend = self._sum(last.value, float(last.grad @ tree), float(tree @ (last.diagonal * tree)))
        if not (slope < 0 and bend > 0):
            return 1.0
        length, share = -slope / bend, 1.0
        for _ in range(_DOUBLINGS):
            there = last.scores + 2.0 * length * tree
            if not self._value(there) <= value + length * slope:
                break
            length, share = 2.0 * length, share / 2.0
        return share

    def _value(self, scores: FloatArray) -> float:
        # A trainer that refused its scores alone would leave the others waiting.
        usable = np.isfinite(scores).all()
        return float(self._sum(self.bound.at(scores, threads=self.threads).value if usable else np.inf)[0])

    def _sum(self, *parts: float) -> FloatArray:
        own = self.factor * np.array(parts, dtype=np.float64)
        return own if self.together is None else self.together.sum(own)
