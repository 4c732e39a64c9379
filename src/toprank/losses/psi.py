"""ψ(y): what a listwise loss would like the scores to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.grades import Grades
from toprank.errors import DataError, UnknownNameError
from toprank.losses.base import Loss, non_negative
from toprank.metrics.gains import Gain

__all__ = ["PSI", "check_psi", "gains_of", "psi_of"]

PSI = ("linear", "exponential")


def check_psi(psi: str) -> None:
    """Refuse a ψ that does not exist."""
    if psi not in PSI:
        raise UnknownNameError("psi", str(psi), PSI)


def psi_of(labels: FloatArray, psi: str, loss: Loss, alpha: float = 1.0) -> FloatArray:
    """ψ of each label: α·y, or α·(2^y − 1), which needs labels of at least 0."""
    values = labels if psi == "linear" else gains_of(non_negative(labels, loss), "exponential")
    with np.errstate(over="ignore"):
        wanted = alpha * values
    if not np.isfinite(wanted).all():
        row = int(np.argmin(np.isfinite(wanted)))
        raise DataError(
            f"{type(loss).__name__} cannot take the label {labels[row]:g} of document {row}: ψ overflows. "
            "Choose a smaller alpha, psi='linear', or smaller grades."
        )
    return np.ascontiguousarray(wanted)


def gains_of(labels: FloatArray, gain: Gain | str | Sequence[float] | Callable[[Any], Any]) -> FloatArray:
    """The gain of each label, looked up by grade; the largest label is the top grade.

    >>> gains_of(np.array([0.0, 2.0, 1.0]), "exponential").tolist()
    [0.0, 3.0, 1.0]
    """
    grades = Grades.of(labels)
    table: FloatArray = Gain.of(gain).table(grades.values, float(labels.max()))
    return np.take(table, grades.codes)
