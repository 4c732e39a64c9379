"""Lambda losses bound to data: rank by the current scores, weigh the pairs, sum them up."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, blocks_of, each_block, writable
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses.base import BLOCK, Curvature
from toprank.losses.lambda_kernels import RankedPairs, pair_product, pair_sums
from toprank.losses.one_pass import OnePassBound
from toprank.losses.swap_deltas import SwapDeltas
from toprank.metrics.ranking import rank_block

__all__ = ["LambdaBound", "PairCurvature"]


class LambdaBound(OnePassBound):
    """Weighted logistic pairs whose weights depend on the current ranks.

    Args:
        labels: where `ordered_ties`, equal scores are ranked worst grade first.
        sigma: slope of the logistic function.
        unit: what the natural logarithm is multiplied by (1/log 2 for losses in bits).
    """

    ordered_ties = False
    last = 0
    mu = 0.0
    distance: FloatArray = np.zeros(0)
    two_sided = False
    norm = False

    def __init__(
        self,
        labels: FloatArray,
        queries: Queries,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
        sigma: float,
        unit: float = 1.0,
    ) -> None:
        super().__init__(queries, query_weights)
        self.sigma, self.unit, self.document_weights = sigma, unit, document_weights
        self._worst_first: IntArray | None = None
        if self.ordered_ties:
            self._worst_first = np.lexsort((labels, queries.document_query))

    @abstractmethod
    def weigh(self, rows: IntArray, z: FloatArray, starts: IntArray) -> tuple[FloatArray, SwapDeltas]:
        """Gains and Δ factors of ranked documents; `rows` are their rows in the data, `z` their scores times sigma."""

    def judge(self, scores: FloatArray, first: int, last: int, grad: FloatArray) -> tuple[FloatArray, Curvature]:
        """See `OnePassBound.judge`."""
        return self._sums(scores, first, last, grad, with_losses=True)

    def gradient_and_diagonal(
        self, scores: npt.ArrayLike, *, threads: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """What boosting asks for: the gradient and the curvature's diagonal. Leaving the value out saves a third."""
        values, offsets = writable(np.ascontiguousarray(scores, dtype=np.float64)), self.queries.offsets
        if values.shape != (self.queries.n_documents,):
            raise DataError(f"There are {values.size} scores for {self.queries.n_documents} documents.")
        grad, diagonal = np.empty_like(values), np.empty_like(values)

        def work(block: tuple[int, int]) -> None:
            rows = slice(int(offsets[block[0]]), int(offsets[block[1]]))
            diagonal[rows] = self._sums(values[rows], *block, grad[rows], with_losses=False)[1].diagonal()

        each_block(work, blocks_of(offsets, BLOCK), threads)
        return grad, diagonal

    def _sums(
        self, scores: FloatArray, first: int, last: int, grad: FloatArray, with_losses: bool
    ) -> tuple[FloatArray, Curvature]:
        pairs = self.ranked(scores, first, last)
        losses, diagonal = np.empty(last - first), np.empty_like(scores)
        scale = self.scale[first:last] * (self.unit * self.sigma)
        pair_sums(pairs, scale, with_losses, grad, diagonal, losses)
        curvature = PairCurvature(self, scores.copy(), first, last, scale * self.sigma, diagonal * self.sigma)
        return losses * self.unit, curvature

    def ranked(self, scores: FloatArray, first: int, last: int) -> RankedPairs:
        """The documents of some queries in rank order, with what their pairs weigh."""
        offsets = self.queries.offsets[first : last + 1]
        start = offsets[0]
        if self._worst_first is None:
            ranked = rank_block(scores, offsets - start, (0, last - first), None, False)
            order = ranked.order
        else:
            rows = self._worst_first[start : offsets[-1]] - start
            ranked = rank_block(scores[rows], offsets - start, (0, last - first), None, False)
            order = rows[ranked.order]
        z = self.sigma * scores[order]
        gains, deltas = self.weigh(order + start, z, ranked.starts)
        weights = np.zeros(0) if self.document_weights is None else self.document_weights[order + start]
        return RankedPairs(
            order,
            ranked.starts,
            z,
            gains,
            weights,
            deltas,
            self.last,
            self.mu,
            self.distance,
            np.cumsum(self.distance),
            self.two_sided,
            1.0 / self.sigma if self.norm else 0.0,
        )


@dataclass(frozen=True)
class PairCurvature(Curvature):
    """A Laplacian over the pairs of a block: (H·V)_i = Σ_j c_ij (V_i − V_j).

    Boosting wants its diagonal alone, so the ranking is not kept but made again when the matrix is asked for.
    """

    bound: LambdaBound
    scores: FloatArray
    first: int
    last: int
    scale: FloatArray
    values: FloatArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        columns = np.array(V.reshape(len(V), -1), dtype=np.float64, order="C")
        out = np.zeros_like(columns)
        pair_product(self.bound.ranked(self.scores, self.first, self.last), self.scale, columns, out)
        return out.reshape(V.shape)

    def diagonal(self) -> FloatArray:
        """See `Curvature.diagonal`."""
        return self.values
