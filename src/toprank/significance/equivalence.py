"""Evidence that two systems do not differ by more than a margin."""

from __future__ import annotations

import math

import numpy.typing as npt

from toprank.errors import DataError
from toprank.significance.intervals import t_interval
from toprank.significance.paired import check_fraction, differences, moments
from toprank.significance.results import EquivalenceResult

__all__ = ["equivalence_test"]


def equivalence_test(
    a: npt.ArrayLike, b: npt.ArrayLike | None = None, *, margin: float, alpha: float = 0.05
) -> EquivalenceResult:
    """Two one-sided paired t-tests (TOST): is the mean difference inside ±margin?

    A large p of a test of difference proves nothing; equivalence is shown when both "the mean is ≤ -margin" and "the
    mean is ≥ +margin" are rejected: ``p = max(P(T ≥ (mean + margin)/se), P(T ≤ (mean - margin)/se))`` with n - 1
    degrees of freedom. One query gives p = 1; differences that are all equal give p = 0 inside the margin, 1 outside.

    >>> print(equivalence_test([0.001, -0.002, 0.0, 0.002, -0.001, 0.001], margin=0.01))
    Equivalent within ±0.01: mean difference 0.000167 on 6 queries, p = 7.77e-06
    (two one-sided t-tests at level 0.05).
    """
    if not (margin > 0 and math.isfinite(margin)):
        raise DataError(f"margin must be a positive number, the largest difference that does not matter, not {margin}.")
    check_fraction(alpha, "alpha")
    if alpha >= 0.5:
        raise DataError(f"alpha must be below 0.5 for an equivalence test, not {alpha}.")
    values = differences(a, b)
    mean, spread = moments(values)
    p = _larger_p(mean, spread, len(values), margin)
    interval = t_interval(values, confidence=1 - 2 * alpha)
    return EquivalenceResult(margin, p, p <= alpha, interval, mean, len(values), alpha)


def _larger_p(mean: float, spread: float | None, n: int, margin: float) -> float:
    if spread is None:
        return 1.0
    if spread == 0:
        return 0.0 if abs(mean) < margin else 1.0
    from scipy.special import stdtr

    return float(stdtr(n - 1, (abs(mean) - margin) / spread * math.sqrt(n)))
