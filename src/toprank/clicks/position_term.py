"""Trees with a term for each position inside the loss, which is dropped where they score.

Clicks of a document at a position are as many as it was shown there × e^{f(x)} × e^{b_k}: what it is worth, and how
likely the position is looked at. Given the clicks of a query, they fall on its documents and positions as a softmax of
log(shown) + f + b, whose likelihood trees and biases b climb together: a damped Newton step of b after each tree. No
propensities are needed; but as for them, documents must have stood at several positions, or features must tell as much.
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

_NEWTON_DAMPING = 0.3  # of a Newton step of all biases at once, which know nothing of each other


@dataclass(frozen=True)
class PositionCells:
    """Documents at positions: of each cell its position, how often it was shown; and the data of the cells.

    Copies share the biases, so that what a copy of the loss learns is known here.
    """

    position: IntArray
    shown: FloatArray
    data: RankingData
    biases: FloatArray

    def __deepcopy__(self, _: Any) -> PositionCells:
        return self

    @classmethod
    def from_evidence(cls, evidence: Evidence) -> PositionCells:
        """The cells of a log; their labels are the clicks, on the scale of one a query."""
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
    """Multicategory of the scores + log(shown) + the bias of the position."""

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
