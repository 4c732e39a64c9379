"""Adjusted p-values for a family of tests: the chance of one false alarm or more stays at the level."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.errors import DataError

__all__ = ["bonferroni", "holm"]


def bonferroni(p: npt.ArrayLike) -> FloatArray:
    """``min(1, m · p)`` for a family of m p-values.

    >>> bonferroni([0.01, 0.25, 0.5]).tolist()
    [0.03, 0.75, 1.0]
    """
    values = _p_values(p)
    return np.minimum(1.0, len(values) * values)


def holm(p: npt.ArrayLike) -> FloatArray:
    """Holm's step-down form: never larger than Bonferroni's, and as safe, whatever the dependence of the tests.

    The i-th smallest (from 0) of m p-values becomes the largest of ``min(1, (m - j) · p_(j))`` over j ≤ i.

    >>> holm([0.25, 0.01, 0.25]).tolist()
    [0.5, 0.03, 0.5]
    """
    values = _p_values(p)
    order = np.argsort(values, kind="stable")
    stepped = np.minimum(1.0, values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(stepped)
    return adjusted


def _p_values(p: npt.ArrayLike) -> FloatArray:
    try:
        values = np.asarray(p, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise DataError(f"p-values must be numbers: {problem}.") from None
    if values.ndim != 1:
        raise DataError(f"p-values must be a list of numbers, not an array of {values.ndim} dimensions.")
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError("p-values must lie between 0 and 1; correct only tests that were made.")
    return values
