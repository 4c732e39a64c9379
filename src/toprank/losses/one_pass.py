"""Bound losses whose gradient and curvature come out of the same pass over a block."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.queries import Queries
from toprank.losses.base import BoundLoss, Curvature, Eval

__all__ = ["OnePassBound"]


class OnePassBound(BoundLoss):
    """A bound loss that says everything about a block in one call of `judge`."""

    def __init__(self, queries: Queries, query_weights: FloatArray | None = None) -> None:
        super().__init__(queries, query_weights)
        self._kept: dict[int, Curvature] | None = None

    @abstractmethod
    def judge(self, scores: FloatArray, first: int, last: int, grad: FloatArray) -> tuple[FloatArray, Curvature]:
        """What `BoundLoss.block` and `BoundLoss.curvature_block` give, together."""

    def block(self, scores: FloatArray, first: int, last: int, grad: FloatArray) -> FloatArray:
        """See `BoundLoss.block`."""
        losses, curvature = self.judge(scores, first, last, grad)
        if self._kept is not None:
            self._kept[first] = curvature
        return losses

    def curvature_block(self, scores: FloatArray, first: int, last: int) -> Curvature:
        """See `BoundLoss.curvature_block`."""
        if self._kept is not None:
            return self._kept.pop(first)
        return self.judge(scores, first, last, np.empty_like(scores))[1]

    def at(self, scores: npt.ArrayLike, *, curvature: bool = False, threads: int | None = None) -> Eval:
        """See `BoundLoss.at`."""
        if not curvature:
            return super().at(scores, threads=threads)
        once = copy(self)  # its own store: `at` may be called from several threads
        once._kept = {}
        return super(OnePassBound, once).at(scores, curvature=True, threads=threads)
