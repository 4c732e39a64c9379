"""Confidence intervals of the mean difference: bootstrap and Student's t."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, each_block
from toprank.errors import UnknownNameError
from toprank.significance.kernels import resampled_means
from toprank.significance.paired import check_count, check_fraction, differences, moments, rescaled, stream_start
from toprank.significance.results import Interval

__all__ = ["bootstrap_interval", "t_interval"]

_METHODS = ("bca", "percentile")
_DRAWS_PER_BLOCK = 1 << 20  # values drawn between two visits to the pool of threads
_EQUAL = "all differences are equal, so the interval has no width"
_ONE = "one query: its spread is unknown"


def bootstrap_interval(
    a: npt.ArrayLike,
    b: npt.ArrayLike | None = None,
    *,
    confidence: float = 0.95,
    method: str = "bca",
    resamples: int = 10_000,
    seed: int = 0,
    threads: int | None = None,
) -> Interval:
    """The bootstrap interval of the mean difference: queries are drawn again, with replacement.

    `method="percentile"` takes the quantiles of the resampled means as they are. `method="bca"`, the default, moves
    them for bias and skewness (Efron): per-query differences are often skewed (many zeros, few large wins), where
    plain percentiles miss more often on one side than on the other; it costs nothing more.

    One query has no spread: the interval is infinite. Differences that are all equal give an interval of no width.

    >>> low, high = bootstrap_interval([0.2, 0.1, 0.3, -0.1, 0.2], seed=1)
    >>> bool(-0.1 <= low < 0.14 < high <= 0.3)
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
    means = _bootstrap_means(scaled, resamples, start, threads)
    tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    levels = _bca_levels(scaled, means, tails) if method == "bca" else tails
    low, high = np.ldexp(np.quantile(means, levels), exponent)
    name = "BCa" if method == "bca" else "percentile"
    return Interval(float(low), float(high), confidence, n, f"bootstrap, {name}, {resamples:,} resamples, seed {seed}")


def _bootstrap_means(values: FloatArray, resamples: int, start: np.uint64, threads: int | None) -> FloatArray:
    means = np.empty(resamples)
    step = max(1, _DRAWS_PER_BLOCK // len(values))

    def fill(first: int) -> None:
        resampled_means(values, start, first, means[first : first + step])

    each_block(fill, range(0, resamples, step), threads)
    return means


def _bca_levels(values: FloatArray, means: FloatArray, tails: FloatArray) -> FloatArray:
    """Φ(z₀ + (z₀ + z) / (1 - α(z₀ + z))) for z = Φ⁻¹(tail).

    z₀ is Φ⁻¹ of the share of resampled means below the mean (equal ones count half), and for a mean the jackknife's
    acceleration is α = Σ(d - d̄)³ / (6 (Σ(d - d̄)²)^{3/2}).
    """
    normal = NormalDist()
    centred = values - values.mean()
    below = float(np.mean(means < values.mean()) + np.mean(means == values.mean()) / 2)
    shift = normal.inv_cdf(min(max(below, 0.5 / len(means)), 1 - 0.5 / len(means)))
    acceleration = float((centred**3).sum() / (6 * (centred**2).sum() ** 1.5))
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
