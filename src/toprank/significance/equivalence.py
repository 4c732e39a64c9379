"""Evidence that two systems differ by no more than a margin, from a sample that may not have met the worst query yet.

Per-query differences are mostly zero or small and seldom large. A sample in which the large ones did not occur has
next to no spread, and Student's t then calls two systems equal although one of them fails on every fiftieth query. So
the bound here is Gaffke's, for means of numbers that have a largest possible value: one more query, with the worst
possible difference, is added, and all n + 1 get random weights (Dirichlet, all equally likely). If all differences are
0 it is Clopper and Pearson's exact bound for an event that was never seen: 1 - α^(1/n) of the worst, about 3/n at 5 %.
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

_STEP, _MOST_STEPS, _AT_ONCE = 0.04, 1_000, 100  # of the contour, in its own unit; the sum ends where nothing is added
_CELLS = 2048  # more distinct differences than this are counted in so many cells of equal width, by their means


def equivalence_test(
    a: npt.ArrayLike,
    b: npt.ArrayLike | None = None,
    *,
    margin: float,
    alpha: float = 0.05,
    max_difference: float | None = None,
) -> EquivalenceResult:
    """Test whether the mean difference lies within ±margin: two one-sided tests (TOST), valid for sparse differences.

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
    >>> equivalence_test([0.0] * 50, margin=0.01).equivalent  # a query in fifty may well fail unseen
    False
    """
    if not (margin > 0 and math.isfinite(margin)):
        raise DataError(f"margin must be a positive number, the largest difference that does not matter, not {margin}.")
    check_number("alpha", alpha, above=0, below=0.5)
    values = differences(a, b)
    largest = float(np.abs(values).max())
    if max_difference is None:
        max_difference = _worst_of(
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


def _worst_of(values: FloatArray, margin: float) -> float:
    """The largest difference to reckon with: what metrics between 0 and 1 can have, else the range of what is seen."""
    low, high = min(float(np.nanmin(values)), 0.0), max(float(np.nanmax(values)), 0.0)
    return 1.0 if low >= 0 and high <= 1 and margin < 1 else max(high - low, 2 * margin)


class _ExponentialWeights:
    """The mean of the differences and the worst one, weighted at random: P(mean ≥ m), and where it is α.

    With weights E / ΣE, E exponential, the mean reaches m where Σ E (x - m) ≥ 0. Its moment generating function is
    known, and P is its integral along a line through the saddle point, where the integrand does not oscillate: right
    to many digits however small P is.
    """

    def __init__(self, values: FloatArray, max_difference: float) -> None:
        distinct, counts = np.unique(values, return_counts=True)
        if len(distinct) > _CELLS:
            cell = np.minimum(
                ((distinct - distinct[0]) * (_CELLS / (distinct[-1] - distinct[0]))).astype(np.int64), _CELLS - 1
            )
            sums, counts = np.bincount(cell, distinct * counts), np.bincount(cell, counts)
            distinct, counts = sums[counts > 0] / counts[counts > 0], counts[counts > 0]
        self.values, self.counts = np.append(distinct, max_difference), np.append(counts, 1).astype(np.float64)

    def reaches(self, m: float) -> float:
        """P(mean ≥ m)."""
        distance = self.values - m
        if distance.min() >= 0 or distance.max() <= 0:
            return 1.0 if distance.min() >= 0 else 0.0
        distance /= np.abs(distance).max()
        if self.counts @ distance > 0:  # the nearer tail is the one that is known to all digits
            return 1 - _positive(-distance, self.counts)
        return _positive(distance, self.counts)

    def end(self, alpha: float) -> float:
        """The m with P(mean ≥ m) = α."""
        from scipy.optimize import brentq

        low, high = float(self.counts @ self.values / self.counts.sum()), float(self.values.max())
        if self.values.min() == high:
            return high
        while self.reaches(low) < alpha:  # α above the chance to be beyond the mean: heavy tails and few queries
            low -= (high - low) / 4
        return float(brentq(lambda m: self.reaches(m) - alpha, low, high, xtol=1e-9 * (high - low)))


def _positive(scales: FloatArray, counts: FloatArray) -> float:
    """P(Σ scale · E > 0) for exponential E, `counts` of each scale; of both signs, and negative on the whole."""
    top = float(scales.max())
    from scipy.optimize import brentq

    def slope(s: float) -> float:
        return float((counts * scales / (1 - s * scales)).sum() - 1 / s)

    saddle = float(brentq(slope, 1e-12 / top, (1 - 1e-12) / top))
    left = 1 - saddle * scales
    height = -float((counts * np.log(left)).sum()) - math.log(saddle)
    width = 1 / math.sqrt(float((counts * (scales / left) ** 2).sum()) + 1 / saddle**2)
    ratios, total = scales / left, -0.5 * width
    for first in range(0, _MOST_STEPS, _AT_ONCE):
        u = _STEP * np.arange(first, first + _AT_ONCE)
        t = width * np.sinh(u)
        turns = t[:, None] * ratios
        size = -0.5 * (np.log1p(turns**2) @ counts + np.log1p((t / saddle) ** 2))
        added = np.exp(size) * width * np.cosh(u)
        total += float(added @ np.cos(np.arctan(turns) @ counts - np.arctan(t / saddle)))
        if added[-1] < 1e-16 * total:
            break
    return min(1.0, math.exp(height) * total * _STEP / math.pi)
