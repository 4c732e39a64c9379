"""Trees trained with a position bias in the loss, which is omitted when they predict.

The expected clicks of a document at a position are its impressions there × e^{f(x)} × e^{b_k}, with relevance f and
position bias b_k. Given the number of clicks of a query, their distribution over its documents and positions is the
softmax of log(shown) + f + b. Trees f and biases b maximize its likelihood together: a damped Newton step of b follows
each tree. No propensities are needed, but documents (or feature vectors) must have been shown at several positions, as
for estimating propensities.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.clicks.evidence import Evidence
from toprank.clicks.log import sums_by
from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.losses.base import Block, BlockResult, BoundLoss, Judgments, Loss, Requested, Traits
from toprank.losses.softmax import SoftmaxBound

_NEWTON_DAMPING = 0.3  # of a simultaneous Newton step of all biases, which ignores their interactions


@dataclass(frozen=True)
class PositionCells:
    """Documents at positions: the position and impressions of each cell, and the data of the cells.

    Copies share the biases, so the biases learned by a copy of the loss are available here.
    """

    position: IntArray
    shown: FloatArray
    data: RankingData
    biases: FloatArray

    def __deepcopy__(self, _: Any) -> PositionCells:
        return self

    @classmethod
    def from_evidence(cls, evidence: Evidence) -> PositionCells:
        """Return the cells of a log, labeled with clicks that are scaled to a mean of one per query."""
        data, cells, depth = evidence.data, evidence.cells, evidence.depth
        known = cells.row >= 0
        keys, (shown, clicks) = sums_by(
            cells.row[known] * np.int64(depth) + cells.position[known] - 1, cells.weight[known],
            cells.rewards["click"][known],
        )  # fmt: skip
        rows, position = keys // depth, keys % depth
        sizes = np.bincount(data.queries.document_query[rows], minlength=data.n_queries)
        kept = np.flatnonzero(sizes)
        part = RankingData(
            data.X[rows], clicks * len(kept) / max(float(clicks.sum()), 1.0), queries=Queries.from_sizes(sizes[kept]),
            qids=data.qids[kept], feature_names=data.feature_names, encoding=data.encoding,
        )  # fmt: skip
        return cls(position, shown, part, np.zeros(depth))


@dataclass(frozen=True)
class PositionSoftmax(Loss):
    """`Multicategory` of scores + log(shown) + position bias."""

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True)

    cells: PositionCells = field(repr=False)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _Bound(self.cells, judgments)


class _Bound(SoftmaxBound):
    def __init__(self, cells: PositionCells, judgments: Judgments) -> None:
        super().__init__(judgments.labels, judgments)
        self.cells, self.log_shown = cells, np.log(cells.shown)

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        rows = block.rows
        besides = self.log_shown[rows] + self.cells.biases[self.cells.position[rows]]
        return super().evaluate_block(block, scores + besides, grad, requested)

    @override
    def derivatives(self, scores: npt.ArrayLike, *, threads: int | None = None) -> tuple[FloatArray, FloatArray]:
        grad, diagonal = super().derivatives(scores, threads=threads)
        cells, depth = self.cells, len(self.cells.biases)
        slope, bend = (np.bincount(cells.position, of, minlength=depth) for of in (grad, diagonal))
        step = np.divide(slope, bend, out=np.zeros(depth), where=bend > 0)
        moved = cells.biases - _NEWTON_DAMPING * step
        np.subtract(moved, moved[0], out=cells.biases)
        return grad, diagonal
