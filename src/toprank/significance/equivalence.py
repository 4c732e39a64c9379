"""Equivalence tests that stay valid if large differences are rare.

Most per-query differences are zero or small. A sample without a large one has almost no spread, so Student's t would
declare two systems equivalent although one of them fails on every fiftieth query. The tests therefore use Gaffke's
bound for the mean of bounded values: one query with the largest possible difference is added, and all n + 1 queries
get random weights (uniform Dirichlet). If all differences are 0, this is the exact Clopper-Pearson bound for an event
that was never observed: 1 - α^(1/n) of the largest difference, about 3/n at the 5 % level.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.arguments import check_number
from toprank.errors import DataError
from toprank.significance.results import EquivalenceResult, Interval, number
from toprank.significance.tests import column, differences

_STEP, _MAX_STEPS, _STEPS_PER_CHUNK = 0.04, 1_000, 100  # trapezoidal rule along the contour; stops on convergence
_MAX_CELLS = 2048  # more distinct differences than this are binned into cells of equal width, at their means


def equivalence_test(
    a: npt.ArrayLike,
    b: npt.ArrayLike | None = None,
    *,
    margin: float,
    alpha: float = 0.05,
    max_difference: float | None = None,
) -> EquivalenceResult:
    """Test whether the mean difference is within ±margin: two one-sided tests (TOST), valid for sparse differences.

    A large p-value of a test of difference proves nothing. Equivalence is shown if both "the mean is ≤ -margin" and
    "the mean is ≥ +margin" are rejected. Each one-sided test adds one query with the difference `max_difference`; p is
    the probability that the mean reaches the margin if all queries get random (Dirichlet) weights. Systems that are
    equal on every query are therefore shown to be equivalent only from
    log(alpha) / log(1 - margin / max_difference) queries on.

    Args:
        a: values of the first system, one per query; or the differences if `b` is None.
        b: values of the second system on the same queries.
        margin: the equivalence margin: the largest difference of means that counts as equal.
        alpha: level of the test. Default 0.05.
        max_difference: the largest possible difference on one query. Default: 1 if all values lie between 0 and 1
            (differences between -1 and 1); otherwise the observed range of the values, extended to include 0 (for
            differences, the largest one), and at least twice the margin. Pass it if the metric can exceed the
            observed range.

    >>> print(equivalence_test([0.001, -0.002, 0.0, 0.002, -0.001] * 100, margin=0.01))
    Equivalent within ±0.01: mean difference 0.0000 on 500 queries, p = 0.00657
    (two one-sided tests at level 0.05, an unseen query of ±1 counted).
    >>> equivalence_test([0.0] * 50, margin=0.01).equivalent  # a failure on every fiftieth query could have been missed
    False
    """
    if not (margin > 0 and math.isfinite(margin)):
        raise DataError(
            f"margin is {margin}, but must be a positive number: the largest difference that counts as equal."
        )
    check_number("alpha", alpha, above=0, below=0.5)
    values = differences(a, b)
    largest = float(np.abs(values).max())
    if max_difference is None:
        max_difference = _default_max_difference(
            np.abs(values) if b is None else np.concatenate([column(a, "a"), column(b, "b")]), margin
        )
    elif not (largest <= max_difference < math.inf):
        raise DataError(
            f"max_difference is {max_difference}, but one query has a difference of {number(largest)}. It must be the "
            "largest difference that a query can have."
        )
    sides = [_ExponentialWeights(values, max_difference), _ExponentialWeights(-values, max_difference)]
    p = max(side.reaches(margin) for side in sides)
    low, high = -sides[1].end(alpha), sides[0].end(alpha)
    detail = f"an unseen query of ±{max_difference:g} counted"
    mean, n = float(values.mean()), len(values)
    interval = Interval(mean, low, high, 1 - 2 * alpha, n, detail)
    return EquivalenceResult(margin, p, p <= alpha, interval, mean, n, alpha=alpha, max_difference=max_difference)


def _default_max_difference(values: FloatArray, margin: float) -> float:
    """Return the assumed largest difference: 1 for metrics between 0 and 1, otherwise the observed range."""
    low, high = min(float(np.nanmin(values)), 0.0), max(float(np.nanmax(values)), 0.0)
    return 1.0 if low >= 0 and high <= 1 and margin < 1 else max(high - low, 2 * margin)


class _ExponentialWeights:
    """Distribution of the randomly weighted mean of the differences and the largest possible one.

    With weights E / ΣE, E exponential, the mean is at least m if Σ E (x - m) ≥ 0. The moment generating function of
    this sum is known, and the probability is its integral along a line through the saddle point. The integrand does not
    oscillate there, so the relative accuracy holds for arbitrarily small probabilities.
    """

    def __init__(self, values: FloatArray, max_difference: float) -> None:
        distinct, counts = np.unique(values, return_counts=True)
        if len(distinct) > _MAX_CELLS:
            cell = np.minimum(
                ((distinct - distinct[0]) * (_MAX_CELLS / (distinct[-1] - distinct[0]))).astype(np.int64),
                _MAX_CELLS - 1,
            )
            sums, counts = np.bincount(cell, distinct * counts), np.bincount(cell, counts)
            distinct, counts = sums[counts > 0] / counts[counts > 0], counts[counts > 0]
        self.values, self.counts = np.append(distinct, max_difference), np.append(counts, 1).astype(np.float64)

    def reaches(self, m: float) -> float:
        """Return P(mean ≥ m)."""
        distance = self.values - m
        if distance.min() >= 0 or distance.max() <= 0:
            return 1.0 if distance.min() >= 0 else 0.0
        distance /= np.abs(distance).max()
        if self.counts @ distance > 0:  # compute the smaller tail: it has full relative accuracy
            return 1 - _positive(-distance, self.counts)
        return _positive(distance, self.counts)

    def end(self, alpha: float) -> float:
        """Return the m with P(mean ≥ m) = α."""
        from scipy.optimize import brentq

        low, high = float(self.counts @ self.values / self.counts.sum()), float(self.values.max())
        if self.values.min() == high:
            return high
        while self.reaches(low) < alpha:  # α exceeds the probability to be above the mean: heavy tails, few queries
            low -= (high - low) / 4
        return float(brentq(lambda m: self.reaches(m) - alpha, low, high, xtol=1e-9 * (high - low)))


def _positive(scales: FloatArray, counts: FloatArray) -> float:
    """Return P(Σ scale · E > 0) for exponential E, `counts` of each scale; the scales have a negative sum."""
    top = float(scales.max())
    from scipy.optimize import brentq

    def slope(s: float) -> float:
        return float((counts * scales / (1 - s * scales)).sum() - 1 / s)

    saddle = float(brentq(slope, 1e-12 / top, (1 - 1e-12) / top))
    left = 1 - saddle * scales
    height = -float((counts * np.log(left)).sum()) - math.log(saddle)
    width = 1 / math.sqrt(float((counts * (scales / left) ** 2).sum()) + 1 / saddle**2)
    slopes, total = scales / left, -0.5 * width
    for first in range(0, _MAX_STEPS, _STEPS_PER_CHUNK):
        u = _STEP * np.arange(first, first + _STEPS_PER_CHUNK)
        t = width * np.sinh(u)
        angles = t[:, None] * slopes
        size = -0.5 * (np.log1p(angles**2) @ counts + np.log1p((t / saddle) ** 2))
        added = np.exp(size) * width * np.cosh(u)
        total += float(added @ np.cos(np.arctan(angles) @ counts - np.arctan(t / saddle)))
        if added[-1] < 1e-16 * total:
            break
    return min(1.0, math.exp(height) * total * _STEP / math.pi)
