"""Targets t of regression losses, and the bound form of losses that have one for each document.

The target is t = G(y), a gain of the grade, or the label itself with ``gain=None`` (then labels may be negative). Where
targets must lie in [0, 1] they are G(y)/G(max_grade); `max_grade` is the largest label of the data unless it is given,
and never depends on the query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses.base import BoundLoss, Loss
from toprank.metrics.gains import Gain

__all__ = ["BoundTargets", "GainLike", "Targeted", "check_gain", "targets_of"]

GainLike = Gain | str | Sequence[float] | Callable[[Any], Any] | None


def check_gain(gain: GainLike, max_grade: float | None) -> None:
    """Refuse a gain that does not exist, and a largest grade that is no number."""
    if gain is not None:
        Gain.of(gain)
    if max_grade is not None:
        check_number("max_grade", max_grade)


def targets_of(labels: FloatArray, gain: GainLike, max_grade: float | None, unit: bool = False) -> FloatArray:
    """Regression targets t = G(y), or the labels where `gain` is None; with `unit`, G(y)/G(max_grade) in [0, 1].

    >>> targets_of(np.array([0.0, 1.0, 2.0]), "exponential", None).tolist()
    [0.0, 1.0, 3.0]
    >>> targets_of(np.array([0.0, 1.0, 2.0]), "linear", 4, unit=True).tolist()
    [0.0, 0.25, 0.5]
    """
    top = float(labels.max()) if max_grade is None else float(max_grade)
    if labels.max() > top:
        raise DataError(f"max_grade is {top:g}, but the labels go up to {labels.max():g}. Raise max_grade.")
    if gain is None:
        targets = labels.copy()
        if unit and not ((targets >= 0) & (targets <= 1)).all():
            raise DataError("With gain=None the labels are the targets, and here they must lie between 0 and 1.")
        return targets
    table = Gain.of(gain)
    targets = table.table(labels, top)
    if unit:
        largest = float(table.table(np.array([top]), top)[0])
        if targets.max() > largest:
            raise DataError(f"The gain '{table}' falls with the grade; targets in [0, 1] need one that rises.")
        targets = targets / (largest or 1.0)  # where even the largest gain is nothing, so is every target
    return targets


@dataclass(frozen=True)
class Targeted(Loss):
    """What losses with a target for each document share."""

    gain: GainLike = "exponential"
    max_grade: float | None = None
    per_document: bool = False
    _unit_targets: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_gain(self.gain, self.max_grade)

    def targets(self, labels: FloatArray) -> FloatArray:
        """The target of each document."""
        return targets_of(labels, self.gain, self.max_grade, self._unit_targets)

    def term_weights(self, queries: Queries, document_weights: FloatArray | None) -> FloatArray:
        """The factor of each document's term in its query's loss."""
        weights = np.ones(queries.n_documents) if document_weights is None else document_weights
        return weights / queries.spread(queries.sizes) if self.per_document else weights


class BoundTargets(BoundLoss):
    """Targets and term weights of all documents, cut to blocks."""

    def __init__(
        self, targets: FloatArray, weights: FloatArray, queries: Queries, query_weights: FloatArray | None
    ) -> None:
        super().__init__(queries, query_weights)
        self.targets, self.weights = targets, weights

    def rows(self, first: int, last: int) -> slice:
        """The documents of the block."""
        return slice(int(self.queries.offsets[first]), int(self.queries.offsets[last]))

    def starts(self, first: int, last: int) -> IntArray:
        """Where the queries of the block start, counted from its first document."""
        starts: IntArray = self.queries.offsets[first:last] - self.queries.offsets[first]
        return starts

    def spread_scale(self, first: int, last: int) -> FloatArray:
        """The scale of each document's query."""
        return np.repeat(self.scale[first:last], self.queries.sizes[first:last])
