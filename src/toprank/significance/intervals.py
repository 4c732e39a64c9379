"""Confidence intervals of the mean difference: bootstrap and Student's t."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, each_block
from toprank.errors import UnknownNameError
from toprank.significance.results import Interval
from toprank.significance.tests import (
    ROUNDING,
    check_count,
    check_fraction,
    differences,
    moments,
    rescaled,
    stream_start,
)

__all__ = ["bootstrap_interval", "t_interval"]

_METHODS = {"studentised": "studentised", "bca": "BCa", "percentile": "percentile"}
_DRAWS_PER_BLOCK = 1 << 20  # values drawn between two visits to the pool of threads
_EQUAL = "all differences are equal, so the interval has no width"
_ONE = "one query: its spread is unknown"


def bootstrap_interval(
    a: npt.ArrayLike,
    b: npt.ArrayLike | None = None,
    *,
    confidence: float = 0.95,
    method: str = "studentised",
    resamples: int = 10_000,
    seed: int = 0,
    threads: int | None = None,
) -> Interval:
    """The bootstrap interval of the mean difference: queries are drawn again, with replacement.

    `method="studentised"`, the default, takes the quantiles of ``t = (mean of the resample - mean) / (s / √n)``, s
    being the resample's own standard deviation, instead of Student's, which hold for normal differences. Per-query
    differences are often skewed (many zeros, few large wins), and on those it covers the true mean more often than the
    other methods and than `t_interval`, though it may be the widest (``benchmarks/coverage.py``). A resample's variance
    counts at least 1/n of the sample's, so that n equal draws, whose variance is 0, do not make the interval infinite.

    `method="percentile"` takes the quantiles of the resampled means as they are, `method="bca"` moves them for bias
    and skewness (Efron); both stay within the range of the differences, and are too short for few queries.

    One query has no spread: the interval is infinite. Differences that are all equal give an interval of no width.

    >>> low, high = bootstrap_interval([0.2, 0.1, 0.3, -0.1, 0.2], seed=1)
    >>> bool(low < 0.14 < high)
    True
    """
    check_fraction(confidence, "confidence")
    resamples = check_count(resamples, "resamples")
    if method not in _METHODS:
        raise UnknownNameError("bootstrap method", method, _METHODS)
    start = stream_start(seed, 2)
    values = differences(a, b)
    n = len(values)
    mean, spread = moments(values)
    if spread is None:
        return Interval(-math.inf, math.inf, confidence, n, _ONE)
    if spread == 0:
        return Interval(mean, mean, confidence, n, _EQUAL)
    scaled, exponent = rescaled(values)
    centre, deviation = scaled.mean(), scaled.std(ddof=1)
    standard = (scaled - centre) / deviation  # whatever the unit of the differences, the rest is the same
    means, variances = _resampled(standard, resamples, start, threads)
    tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    if method == "studentised":
        ends = -np.quantile(means / np.sqrt(np.maximum(variances, 1 / n)), tails[::-1])
    else:
        rounding = ROUNDING * np.abs(scaled).max() / deviation
        ends = np.quantile(means, _bca_levels(standard, means, tails, rounding) if method == "bca" else tails)
    ends = centre + deviation * ends
    low, high = np.ldexp(np.where(np.abs(ends) <= ROUNDING, 0.0, ends), exponent)
    detail = f"bootstrap, {_METHODS[method]}, {resamples:,} resamples, seed {seed}"
    return Interval(float(low), float(high), confidence, n, detail)


def _resampled(
    values: FloatArray, resamples: int, start: np.uint64, threads: int | None
) -> tuple[FloatArray, FloatArray]:
    """Means and variances of the resamples."""
    means, variances = np.empty(resamples), np.empty(resamples)
    step = max(1, _DRAWS_PER_BLOCK // len(values))

    def fill(first: int) -> None:
        last = first + step
        kernels.resampled_moments(values, start, first, means[first:last], variances[first:last])

    each_block(fill, range(0, resamples, step), threads)
    return means, variances


def _bca_levels(values: FloatArray, means: FloatArray, tails: FloatArray, rounding: float) -> FloatArray:
    """Φ(z₀ + (z₀ + z) / (1 - α(z₀ + z))) for z = Φ⁻¹(tail), of values that are standardised.

    z₀ is Φ⁻¹ of the share of resampled means below the mean, 0 (those within `rounding` of it count half), and for a
    mean the jackknife's acceleration is α = Σd³ / (6 (Σd²)^{3/2}).
    """
    normal = NormalDist()
    below = float(np.mean(means < -rounding) + np.mean(np.abs(means) <= rounding) / 2)
    shift = normal.inv_cdf(min(max(below, 0.5 / len(means)), 1 - 0.5 / len(means)))
    acceleration = float((values**3).sum() / (6 * (values**2).sum() ** 1.5))
    levels = []
    for tail in tails.tolist():
        z = shift + normal.inv_cdf(tail)
        # 1 - αz ≤ 0 is beyond the map's range; its limit is the far end of the side that z lies on.
        room = 1 - acceleration * z
        levels.append(normal.cdf(shift + z / room) if room > 0 else float(z > 0))
    return np.array(levels)


def t_interval(a: npt.ArrayLike, b: npt.ArrayLike | None = None, *, confidence: float = 0.95) -> Interval:
    """``mean(d) ± t · sd(d) / √n``, t being the quantile with n - 1 degrees of freedom.

    One query has no spread: the interval is infinite. Differences that are all equal give an interval of no width.

    >>> low, high = t_interval([0.2, 0.1, 0.3])
    >>> round(low, 3), round(high, 3)
    (-0.048, 0.448)
    """
    from scipy.special import stdtrit

    check_fraction(confidence, "confidence")
    values = differences(a, b)
    n = len(values)
    mean, spread = moments(values)
    if spread is None:
        return Interval(-math.inf, math.inf, confidence, n, _ONE)
    if spread == 0:
        return Interval(mean, mean, confidence, n, _EQUAL)
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * spread / math.sqrt(n)
    return Interval(mean - half, mean + half, confidence, n, f"t, {n - 1} degrees of freedom")
