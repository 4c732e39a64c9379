"""Single precision: thresholds and numbers that are equivalent in it, bit for bit, and features that it cannot
represent.

For x in single precision, x <= t is equivalent to x <= f, where f is the largest single ≤ t, and to x < L, where L is
the next single above f. The single nearest to t may be above t, and would send documents to the wrong side.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.errors import first_of
from toprank.rankers.formula import Formula, LinearFunction
from toprank.rankers.trees.forest import Forest

LARGEST_SINGLE = float(np.finfo(np.float32).max)
MISSING_TEST_LIMIT = 1e30
"""Thresholds beyond this test whether a value is missing: LightGBM writes ±1e300 or ∞, others the largest single."""
MAX_EXACT_INTEGER = 1 << 24
"""Single precision represents every integer up to this one: its mantissa has 24 bits."""
_MAX_SHOWN_FEATURES = 3  # maximum number of features named in a remark


def single_below(threshold: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return the largest single ≤ t; the maximum if t is beyond it, −∞ if t is below all.

    >>> float(single_below(0.1)) <= 0.1 < float(next_single(0.1))
    True
    """
    exact = np.asarray(threshold, dtype=np.float64)
    with np.errstate(over="ignore"):
        nearest = exact.astype(np.float32)
        below = np.where(nearest.astype(np.float64) > exact, np.nextafter(nearest, np.float32(-np.inf)), nearest)
    return np.where(exact >= LARGEST_SINGLE, LARGEST_SINGLE, below).astype(np.float32)


def next_single(threshold: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return the smallest single > t, for readers that test x < L; ∞ if t is beyond all."""
    with np.errstate(over="ignore"):
        return np.nextafter(single_below(threshold), np.float32(np.inf))


def upper_single(threshold: float) -> np.float32:
    """Return L for files that cannot represent ∞: the maximum if no single is above t.

    >>> float(upper_single(1e300)) == LARGEST_SINGLE
    True
    """
    return np.float32(min(float(next_single(threshold)), LARGEST_SINGLE))


def single_text(value: float | np.floating) -> str:
    """Write a number as text that parses to the same single, with or without a double in between.

    >>> single_text(0.1), single_text(1.0)
    ('0.1', '1.0')
    """
    rounded = np.float32(value)
    short = str(rounded)
    return short if np.float32(float(short)) == rounded else repr(float(rounded))


def single_number(value: float | np.floating) -> float:
    """Return the number with the fewest digits that rounds to the same single, for a JSON writer.

    >>> single_number(np.float32(0.1))
    0.1
    """
    return float(single_text(value))


# ---- features ----


def imprecise_feature_remarks(formula: Formula) -> tuple[str, ...]:
    """Return a warning about features that single precision rounds, if any."""
    sizes = [(j, size) for j in range(formula.n_features) if (size := _coarse(formula, j))]
    if not sizes:
        return ()
    steps = [
        f"'{formula.features[j]}' (about {size:.4g}, in steps of {np.spacing(np.float32(size)):.2g})"
        for j, size in sizes
    ]
    return (
        "Single precision cannot represent the distinctions that the model makes in "
        f"{first_of(steps, _MAX_SHOWN_FEATURES)}: values within a step of each other become equal, and may end up on "
        "the other side of a threshold. Subtract a constant near them before training and in the index, or check on "
        "data.",
    )


def _coarse(formula: Formula, feature: int) -> float:
    """Return the magnitude of a feature's values if single precision cannot represent them, else 0."""
    features, thresholds = formula.thresholds
    own = np.unique(thresholds[features == feature])
    own = own[np.abs(own) < MISSING_TEST_LIMIT]
    expected = _centers(formula, feature)
    size = float(np.abs(np.concatenate([own, expected])).max(initial=0.0))
    collapse = len(np.unique(single_below(own))) < len(own) and size > 1.0
    kind = "number" if formula.encoding is None else formula.encoding.columns[feature].kind
    middles = np.nextafter(own, -np.inf)  # LightGBM's thresholds are the next numbers above.
    of_days = np.isin(np.mod(np.concatenate([own, middles]) * 2.0, 1.0).reshape(2, -1), 0.0).any(axis=0).all()
    timed = kind in ("date", "duration") and (len(expected) > 0 or not of_days)
    return size if size >= MAX_EXACT_INTEGER or collapse or timed else 0.0


def _centers(formula: Formula, feature: int) -> FloatArray:
    """Return the centers of a feature in linear functions and networks."""
    centers: list[float] = []
    for part, features, *_ in formula.functions:
        if isinstance(part, Forest):
            continue
        for column in np.flatnonzero(features == feature).tolist():
            middle = float(part.center[column])
            if isinstance(part, LinearFunction):
                centers += [middle] if part.weights[:, column].any() else []
            elif part.transform == "quantile":
                centers.append(float(np.abs(part.knots[:, column]).max()))
            else:
                # e^80 exceeds every integer that single precision represents, and expm1 does not overflow.
                centers.append(float(np.expm1(min(abs(middle), 80.0))) if part.transform == "log1p" else middle)
    return np.array(centers)
