"""What labels would like the scores to be: targets t of regression losses, and ψ of listwise ones.

The target is t = G(y), a gain of the grade, or the label itself with ``gain=None`` (then labels may be negative). Where
targets must lie in [0, 1] they are G(y)/G(max_grade); `max_grade` is the largest label of the data unless it is given,
and never depends on the query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from toprank.compute import FloatArray
from toprank.data.checks import check_number
from toprank.errors import DataError, UnknownNameError
from toprank.losses.base import BoundLoss, Loss
from toprank.losses.judgments import Judgments, non_negative
from toprank.metrics.gains import Gain

__all__ = ["BoundTargets", "GainLike", "Targeted", "check_gain", "check_psi", "psi_of", "targets_of"]

GainLike = Gain | str | Sequence[float] | Callable[[Any], Any] | None

PSI = ("linear", "exponential")


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

    def targets(self, labels: FloatArray, top_grade: float) -> FloatArray:
        """The target of each label, where the labels of the data go up to `top_grade`."""
        return targets_of(
            labels, self.gain, top_grade if self.max_grade is None else self.max_grade, self._unit_targets
        )

    def term_weights(self, judgments: Judgments) -> FloatArray:
        """The factor of each document's term in its query's loss."""
        queries = judgments.queries
        return judgments.weights / queries.spread(queries.sizes) if self.per_document else judgments.weights


class BoundTargets(BoundLoss):
    """Targets and term weights of all documents."""

    def __init__(self, loss: Targeted, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.targets = loss.targets(judgments.labels, judgments.top_grade)
        self.weights = loss.term_weights(judgments)


def check_psi(psi: str) -> None:
    """Refuse a ψ that does not exist."""
    if psi not in PSI:
        raise UnknownNameError("psi", str(psi), PSI)


def psi_of(judgments: Judgments, psi: str, loss: Loss, alpha: float = 1.0) -> FloatArray:
    """ψ of each label: α·y, or α·(2^y − 1), which needs labels of at least 0."""
    labels = judgments.labels
    if psi == "exponential":
        non_negative(labels, loss)
    with np.errstate(over="ignore"):
        wanted = alpha * (labels if psi == "linear" else judgments.gains("exponential"))
    if not np.isfinite(wanted).all():
        row = int(np.argmin(np.isfinite(wanted)))
        raise DataError(
            f"{type(loss).__name__} cannot take the label {labels[row]:g} of document {row}: ψ overflows. "
            "Choose a smaller alpha, psi='linear', or smaller grades."
        )
    return np.ascontiguousarray(wanted)
