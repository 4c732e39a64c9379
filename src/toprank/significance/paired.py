"""From two columns of per-query values to clean differences, and the checks that all statistics share."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.errors import DataError
from toprank.metrics.result import by_query

__all__ = [
    "check_count",
    "check_fraction",
    "check_seed",
    "column",
    "differences",
    "moments",
    "rescaled",
    "stream_start",
]

ROUNDING = 1e-12  # relative size below which a difference is the rounding of equal numbers
_LARGEST = 1e250  # beyond it sums could overflow; no metric comes near


def differences(a: npt.ArrayLike, b: npt.ArrayLike | None = None) -> FloatArray:
    """``a - b`` (or `a`) without the NaN pairs; a difference of 1e-12 of the larger value or less becomes 0.

    Columns of evaluations know their queries and are paired by them, plain numbers by their place.

    Raises:
        DataError: for other than numbers in one dimension, other queries or unequal lengths, infinite values, or no
            pair left.
    """
    if b is not None:
        paired = by_query({"a": a, "b": b})
        a, b = paired["a"], paired["b"]
    values = column(a, "a")
    if b is not None:
        others = column(b, "b")
        if len(values) != len(others):
            raise DataError(
                f"a has {len(values)} values and b has {len(others)}; a paired test needs both on the same queries."
            )
        largest = np.maximum(np.abs(values), np.abs(others))
        values = values - others
        values[np.abs(values) <= ROUNDING * largest] = 0.0
    kept = values[~np.isnan(values)]
    if len(kept) == 0:
        raise DataError(
            "There is no query with a value for both systems, so nothing can be compared; "
            "check that the metric is defined on these data."
        )
    return kept


def column(values: npt.ArrayLike, name: str) -> FloatArray:
    """One value per query as an array; NaN is allowed, infinity is not."""
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise DataError(f"{name} must hold numbers, one per query: {problem}.") from None
    if column.ndim != 1:
        raise DataError(f"{name} must have one dimension (one number per query), not {column.ndim}.")
    too_large = np.abs(column) > _LARGEST  # false for NaN
    if too_large.any():
        query = int(np.argmax(too_large))
        raise DataError(
            f"{name} is {column[query]} for query number {query} (from 0); values must be finite and at "
            f"most {_LARGEST:g} in size, or NaN for a query that does not count."
        )
    return column


def rescaled(values: FloatArray) -> tuple[FloatArray, int]:
    """`values` divided by a power of two so that the largest lies in [½, 1): exact, and squares cannot underflow."""
    exponent = int(np.frexp(np.abs(values).max())[1])
    return np.ldexp(values, -exponent), exponent


def moments(values: FloatArray) -> tuple[float, float | None]:
    """Mean and standard deviation (n - 1 in the denominator; None for one value, 0 where only rounding differs)."""
    scaled, exponent = rescaled(values)
    mean = float(np.ldexp(scaled.mean(), exponent))
    if len(values) == 1:
        return mean, None
    if scaled.max() - scaled.min() <= ROUNDING * np.abs(scaled).max():
        return float(values[0]), 0.0
    return mean, float(np.ldexp(scaled.std(ddof=1), exponent))


def check_fraction(value: float, name: str) -> None:
    """Refuse a confidence, level or power outside the open interval (0, 1)."""
    if not 0 < value < 1:
        raise DataError(f"{name} must lie between 0 and 1 (such as 0.95), not {value}.")


def check_count(value: Any, name: str) -> int:
    """A whole number of at least 1."""
    try:
        count = operator.index(value)
    except TypeError:
        raise DataError(f"{name} must be a whole number, not {value!r}.") from None
    if count < 1:
        raise DataError(f"{name} must be at least 1, not {count}.")
    return count


def check_seed(seed: Any) -> int:
    """A whole number that is not negative."""
    try:
        checked = operator.index(seed)
    except TypeError:
        raise DataError(f"seed must be a whole number, not {seed!r}.") from None
    if checked < 0:
        raise DataError(f"seed must not be negative, not {checked}.")
    return checked


def stream_start(seed: int, purpose: int) -> np.uint64:
    """Where the random stream of a seed begins; another purpose gives an unrelated stream."""
    sequence = np.random.SeedSequence(check_seed(seed), spawn_key=(purpose,))
    return np.uint64(sequence.generate_state(1, np.uint64)[0])
