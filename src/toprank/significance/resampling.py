"""Jackknife and bootstrap confidence intervals over queries.

Intervals of means are studentized bootstrap intervals. For other estimates, the spread of the jackknife or bootstrap
estimates makes a t interval whose degrees of freedom depend on the number of queries, resamples or groups. With twenty
queries, a 95 % interval of bootstrap quantiles contains the true value in only 87 % of the cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray, each_block, numbers
from toprank.data.arguments import check_number, check_whole
from toprank.errors import DataError, UnknownNameError
from toprank.significance.effects import ALL_EQUAL, ONE_QUERY, t_interval
from toprank.significance.results import Interval
from toprank.significance.tests import ROUNDING, column, differences, moments, rescaled, stream_start

_METHODS = {"studentized": "studentized", "bca": "BCa", "percentile": "percentile"}
_STREAM = 2  # random stream for resampling queries; sign flips use stream 1
_DRAWS_PER_BLOCK = 1 << 20  # values drawn per task of the thread pool
_MIN_QUERIES = 5  # with 2, 3 or 4 queries, nominal 95 % studentized intervals cover only 61, 88 and 93 %
_WEIGHT_STEP = 0.5  # change of the group weights, in standard errors, for the numerical second derivative
_MIN_WEIGHT = 1e-100  # relative to the largest: no effect on a mean, but resamples keep a positive total weight


def effective_sample_size(weights: npt.ArrayLike) -> float:
    """Return Kish's effective sample size ``(Σw)² / Σw²``; 0 if all weights are 0.

    >>> effective_sample_size([1, 1, 1, 1]), effective_sample_size([1, 1, 0, 0])
    (4.0, 2.0)
    """
    w = checked_weights(weights)
    # Not `w @ w`: for many sessions, BLAS would wake threads that keep spinning afterwards.
    return float(w.sum() ** 2 / np.square(w).sum()) if w.any() else 0.0


def checked_weights(weights: npt.ArrayLike) -> FloatArray:
    """Return weights relative to the largest, at least `_MIN_WEIGHT` unless 0, so that squares stay finite."""
    array = numbers(weights, "weights").astype(np.float64, copy=False)
    if array.ndim != 1 or not ((array >= 0) & (array < np.inf)).all():
        raise DataError("weights must be finite and non-negative, one number per query.")
    parts = array / (array.max(initial=0.0) or 1.0)
    return np.where(array > 0, np.maximum(parts, _MIN_WEIGHT), 0.0)


def bootstrap_interval(
    a: npt.ArrayLike,
    b: npt.ArrayLike | None = None,
    *,
    confidence: float = 0.95,
    method: str = "studentized",
    n_resamples: int = 10_000,
    seed: int = 0,
    threads: int | None = None,
) -> Interval:
    """Return the bootstrap confidence interval of the mean difference over queries.

    The studentized interval uses the bootstrap quantiles of ``t = (mean of the resample - mean) / (s / √n)``, with s
    the standard deviation of the resample, in place of Student's quantiles. Per-query differences are often skewed
    (many zeros, few large wins); on such data it covers the true mean more often than the other methods and than
    `t_interval`, though it may be the widest (``benchmarks/coverage.py``). The variance of a resample is at least 1/n
    of the sample variance, so that a resample of n equal values does not make the interval infinite.

    Args:
        a: values of the first system, one per query; or the differences if `b` is None.
        b: values of the second system on the same queries.
        confidence: confidence level. Default 0.95.
        method: ``"studentized"`` (default), ``"percentile"``, the quantiles of the resampled means, or ``"bca"``, the
            same corrected for bias and skewness (Efron). The latter two are too short for few queries.
        n_resamples: number of bootstrap resamples. Default 10,000.
        seed: seed of the resamples.
        threads: number of threads; the result does not depend on it.

    Returns:
        The interval. With fewer than five queries, the studentized interval is that of `t_interval`; for one query it
        is infinite. It has zero width if all differences are equal.

    >>> low, high = bootstrap_interval([0.2, 0.1, 0.3, -0.1, 0.2], seed=1)
    >>> bool(low < 0.14 < high)
    True
    """
    check_number("confidence", confidence, above=0, below=1)
    check_whole("n_resamples", n_resamples, 1)
    if method not in _METHODS:
        raise UnknownNameError("bootstrap method", method, _METHODS)
    start = stream_start(seed, _STREAM)
    values = differences(a, b)
    n = len(values)
    mean, spread = moments(values)
    if not spread:
        return t_interval(values, confidence=confidence)  # unknown or zero spread: nothing to resample
    if method == "studentized" and n < _MIN_QUERIES:
        student = t_interval(values, confidence=confidence)
        return replace(student, detail=f"{student.detail}: too few queries for a bootstrap")
    scaled, exponent = rescaled(values)
    center, deviation = scaled.mean(), scaled.std(ddof=1)
    standard = (scaled - center) / deviation  # makes the rest independent of the unit of the differences
    means, variances = _resampled(standard, n_resamples, start, threads)
    if method == "studentized":
        ends = _studentized(means, variances, n, confidence)
    else:
        tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
        rounding = ROUNDING * np.abs(scaled).max() / deviation
        ends = np.quantile(means, _bca_levels(standard, means, tails, rounding) if method == "bca" else tails)
    ends = center + deviation * ends
    low, high = np.ldexp(np.where(np.abs(ends) <= ROUNDING, 0.0, ends), exponent)
    detail = f"bootstrap, {_METHODS[method]}, {n_resamples:,} resamples, seed {seed}"
    return Interval(mean, float(low), float(high), confidence, n, detail)


def weighted_interval(
    values: npt.ArrayLike,
    weights: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
    threads: int | None = None,
) -> Interval:
    """Return the studentized bootstrap interval of a weighted mean ``Σwv / Σw``, resampling queries with their weights.

    Weights vary with the queries, so the mean is a ratio of two random sums, which is recomputed for each resample. The
    standard error is that of the jackknife. With equal weights the interval equals that of `bootstrap_interval`. If few
    queries carry most of the weight, intervals are unreliable; the interval's `detail` reports the effective sample
    size. With fewer than five queries, Student's t with effective degrees of freedom is used.

    Args:
        values: one value per query; NaN for a query that is left out.
        weights: one non-negative weight per query; queries of weight 0 are left out.
        confidence: confidence level. Default 0.95.
        n_resamples: number of bootstrap resamples. Default 10,000.
        seed: seed of the resamples.
        threads: number of threads; the result does not depend on it.

    >>> low, high = weighted_interval([0.2, 0.1, 0.3, -0.1, 0.2], [1, 2, 1, 1, 5])
    >>> bool(low < 0.16 < high)
    True
    """
    check_number("confidence", confidence, above=0, below=1)
    check_whole("n_resamples", n_resamples, 1)
    start = stream_start(seed, _STREAM)
    plain, w = column(values, "values"), checked_weights(weights)
    if len(plain) != len(w):
        raise DataError(f"{len(w)} weights were given for {len(plain)} values; give one weight per query.")
    counts = ~np.isnan(plain) & (w > 0)
    if not counts.any():
        raise DataError("No query has both a value and a positive weight, so the mean is undefined.")
    plain, w = plain[counts], w[counts] / w[counts].mean()
    n, effective = len(plain), effective_sample_size(w)
    scaled, exponent = rescaled(plain)
    center = float(w @ scaled / n)
    mean, away = float(np.ldexp(center, exponent)), scaled - center
    if n == 1:
        return Interval(mean, -math.inf, math.inf, confidence, n, ONE_QUERY, "weighted mean")
    if moments(plain)[1] == 0:
        return Interval(mean, mean, mean, confidence, n, ALL_EQUAL, "weighted mean")
    missed = w * away / np.maximum(n - w, 1e-12)  # change of the mean if this query is left out
    error = math.sqrt(float((missed - missed.mean()) @ (missed - missed.mean())) * (n - 1) / n)
    if n < _MIN_QUERIES:
        from scipy.special import stdtrit

        ends = np.array([-1.0, 1.0]) * stdtrit(max(effective - 1, 1), (1 + confidence) / 2)
        method = "t: too few queries for a bootstrap"
    else:
        first_order = math.sqrt(float((w * away) @ (w * away)) / (n - 1))
        means, variances = _resampled(away / first_order, n_resamples, start, threads, w)
        ends = _studentized(np.sqrt(n) * means, variances, n, confidence)
        method = f"bootstrap, studentized, {n_resamples:,} resamples, seed {seed}"
    low, high = np.ldexp(center + error * ends, exponent)
    detail = f"{method}, {effective:.1f} of {n:,} queries effective"
    return Interval(mean, float(low), float(high), confidence, n, detail, "weighted mean")


def _resampled(
    values: FloatArray, n_resamples: int, start: np.uint64, threads: int | None, weights: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the means and variances of the resamples."""
    means, variances = np.empty(n_resamples), np.empty(n_resamples)
    step = max(1, _DRAWS_PER_BLOCK // len(values))

    def fill(first: int) -> None:
        out = means[first : first + step], variances[first : first + step]
        if weights is None:
            kernels.resampled_moments(values, start, first, *out)
        else:
            kernels.resampled_ratios(values, weights, start, first, *out)

    each_block(fill, range(0, n_resamples, step), threads)
    return means, variances


def _studentized(means: FloatArray, variances: FloatArray, n: int, confidence: float) -> FloatArray:
    """Return the distance of both bounds from the estimate in standard errors: minus the upper and lower t quantiles.

    The variance of a resample is at least 1/n; the t of n equal values would be infinite otherwise.
    """
    tails = [(1 + confidence) / 2, (1 - confidence) / 2]
    return np.asarray(-np.quantile(means / np.sqrt(np.maximum(variances, 1 / n)), tails))


def _bca_levels(values: FloatArray, means: FloatArray, tails: FloatArray, rounding: float) -> FloatArray:
    """Return the BCa quantile levels Φ(z₀ + (z₀ + z) / (1 - α(z₀ + z))), z = Φ⁻¹(tail), for standardized values.

    z₀ is Φ⁻¹ of the share of resampled means below 0 (those within `rounding` of 0 count half). For a mean, the
    jackknife estimate of the acceleration is α = Σd³ / (6 (Σd²)^{3/2}).
    """
    normal = NormalDist()
    below = float(np.mean(means < -rounding) + np.mean(np.abs(means) <= rounding) / 2)
    shift = normal.inv_cdf(min(max(below, 0.5 / len(means)), 1 - 0.5 / len(means)))
    acceleration = float((values**3).sum() / (6 * (values**2).sum() ** 1.5))
    levels = []
    for tail in tails.tolist():
        z = shift + normal.inv_cdf(tail)
        # 1 - αz ≤ 0 is outside the domain of the transformation; use its limit, 0 or 1.
        room = 1 - acceleration * z
        levels.append(normal.cdf(shift + z / room) if room > 0 else float(z > 0))
    return np.array(levels)


def leave_one_out_means(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the weighted means without each of the values (leave-one-out)."""
    if len(values) < 2:
        return np.empty(0)
    return np.asarray((values @ weights - values * weights) / (weights.sum() - weights))


def jackknife_variance(leave_one_out: FloatArray) -> FloatArray:
    """Return the jackknife variance from leave-one-out estimates (without each query or group of queries).

    >>> float(jackknife_variance(np.array([0.25, 0.15, 0.2])))  # leave-one-out means of 0.1, 0.3 and 0.2
    0.00333...
    """
    n = len(leave_one_out)
    return np.asarray((n - 1) / n * ((leave_one_out - leave_one_out.mean(axis=0)) ** 2).sum(axis=0))


def jackknife_interval(
    value: float, leave_one_out: FloatArray, weights: FloatArray, confidence: float, quantity: str = "estimate"
) -> Interval:
    """Return the `jackknife` interval of one number; it is infinite for a single query."""
    interval = jackknife(value, leave_one_out, weights, confidence)
    known = np.isfinite(interval.low)
    low, high = (float(interval.low), float(interval.high)) if known else (-np.inf, np.inf)
    return Interval(value, low, high, confidence, interval.n, interval.detail, quantity)


def second_order_interval(
    value: float,
    leave_one_out: FloatArray,
    weights: FloatArray,
    reweighted: Callable[[FloatArray], float],
    confidence: float,
    quantity: str = "estimate",
) -> Interval:
    """Return the interval of a nonlinear estimate, such as one with ratios; its value is corrected for bias.

    The jackknife over groups gives the standard error s and the bias b. The estimate is evaluated with group weights
    moved by half a standard error in both directions along the gradient, which gives the quadratic coefficient q of
    DiCiccio and Efron's ABC intervals. The ends are value - b + s q (1 + z²) ± t √(s² + 2 b²), with z the normal
    quantile: 2 b² is the variance of a squared normal error whose mean is b. If the estimate is linear, b and q are 0
    and the ends are those of `jackknife_interval`.

    Args:
        value: the estimate.
        leave_one_out: estimates without each group.
        weights: weight of each group; they sum to 1.
        reweighted: function that returns the estimate for given group weights (1 each for `value`).
        confidence: confidence level of the interval.
        quantity: name of the estimated quantity.

    >>> x = np.array([1.0, 2.0, 3.0, 6.0])
    >>> rests = np.array([np.delete(x, i).mean() ** 2 for i in range(4)])
    >>> squared = second_order_interval(9.0, rests, np.full(4, 0.25), lambda w: np.average(x, weights=w) ** 2, 0.95)
    >>> round(squared.value, 4)  # 9 minus the variance of the mean: unbiased
    7.8333
    """
    from scipy.special import ndtri, stdtrit

    n = len(leave_one_out)
    if n < 2 or not np.isfinite(leave_one_out).all():
        return Interval(value, -np.inf, np.inf, confidence, n, "jackknife over queries", quantity)
    error = float(np.sqrt(jackknife_variance(leave_one_out)))
    if error <= 1e-12 * abs(value):  # only rounding error
        return jackknife_interval(value, leave_one_out, weights, confidence, quantity)
    bias = float((1 - weights) @ (leave_one_out - value))
    steps = (
        (n - 1) / n * (leave_one_out.mean() - leave_one_out) / error
    )  # at most 1 in absolute value, so no weight becomes negative
    quadratic = sum(reweighted(1 + side * _WEIGHT_STEP * steps) - value for side in (1, -1)) / (
        2 * _WEIGHT_STEP**2 * error
    )
    center = value - bias + error * quadratic * (1 + float(ndtri((1 + confidence) / 2)) ** 2)
    free = max(1 / float(weights @ weights) - 1, 1.0)
    half = float(stdtrit(free, (1 + confidence) / 2)) * np.sqrt(error**2 + 2 * bias**2)
    low, high = (center - half, center + half) if np.isfinite(center) else (-np.inf, np.inf)
    return Interval(value - bias, low, high, confidence, n, "second-order jackknife over queries", quantity)


def mean_interval(values: FloatArray, weights: FloatArray, confidence: float, quantity: str = "estimate") -> Interval:
    """Return the `jackknife_interval` of a weighted mean.

    >>> low, high = mean_interval(np.array([0.1, 0.3, 0.2]), np.ones(3), 0.95)
    >>> round(low, 3), round(high, 3)
    (-0.048, 0.448)
    """
    shares = weights / weights.sum()
    interval = jackknife_interval(
        float(values @ shares), leave_one_out_means(values, weights), shares, confidence, quantity
    )
    return replace(interval, n=len(values))


def jackknife(
    value: FloatArray | float,
    leave_one_out: FloatArray | Sequence[FloatArray],
    weights: FloatArray,
    confidence: float,
    *,
    log_scale: bool = False,
    extra_variance: FloatArray | float = 0.0,
) -> Interval[FloatArray]:
    """Return jackknife confidence intervals over queries or groups of queries.

    The interval is Student's t with the jackknife standard error. Degrees of freedom are the effective sample size
    minus one, 1/Σ weights² − 1. With a single query, the bounds are NaN.

    Args:
        value: one estimate, or an array of estimates.
        leave_one_out: estimates without each query.
        weights: weight of each query; they sum to 1.
        confidence: confidence level.
        log_scale: for non-negative estimates with multiplicative errors: compute the interval on the log scale. The
            upper bound is infinite if the estimate is 0.
        extra_variance: additional variance that the jackknife cannot capture. Default 0.

    >>> low, high = jackknife(0.2, np.array([0.25, 0.15, 0.2]), np.full(3, 1 / 3), 0.95)  # values 0.1, 0.3 and 0.2
    >>> round(float(low), 3), round(float(high), 3)
    (-0.048, 0.448)
    """
    n, without = len(leave_one_out), np.asarray(leave_one_out, dtype=np.float64)
    free = max(1 / float(weights @ weights) - 1, 1.0) if n > 1 else 0.0

    def variance(of: FloatArray) -> FloatArray:
        return jackknife_variance(of) if n else np.zeros(np.shape(value))

    plain = np.asarray(value, dtype=np.float64)
    low, high = _interval_bounds(plain, without, variance, np.asarray(free), confidence, log_scale, extra_variance)
    return Interval(plain, low, high, confidence, n, "jackknife over queries", "estimate")


def bootstrap_t_interval(
    value: FloatArray, replicates: Sequence[FloatArray], n_queries: float, confidence: float, *,
    log_scale: bool = False, extra_variance: FloatArray | float = 0.0,
) -> Interval[FloatArray]:  # fmt: skip
    """Return t intervals with bootstrap standard errors; NaN with fewer than two bootstrap estimates.

    Args:
        value: the estimates.
        replicates: the estimate of each bootstrap resample; NaN if undefined.
        n_queries: number of queries, or their effective sample size if weights differ.
        confidence: confidence level.
        log_scale: as in `jackknife`.
        extra_variance: additional variance that the bootstrap cannot capture. Default 0.

    >>> low, high = bootstrap_t_interval(np.array([3.0]), [np.array([1.0]), np.array([3.0])], 2, 0.5)
    >>> print(np.round([low[0], high[0]], 6))  # standard deviation √2 times √2 for two queries
    [1. 5.]
    """
    drawn = np.asarray(replicates, dtype=np.float64)
    known = np.isfinite(drawn)
    free = np.minimum(known.sum(axis=0), n_queries) - 1
    few = n_queries / max(n_queries - 1, 1)  # the bootstrap variance is (n − 1)/n of the sampling variance
    count = np.maximum(known.sum(axis=0), 2)

    def variance(of: FloatArray) -> FloatArray:
        mean = np.where(known, of, 0.0).sum(axis=0) / count
        return np.asarray(few * np.where(known, (of - mean) ** 2, 0.0).sum(axis=0) / (count - 1))

    low, high = _interval_bounds(value, drawn, variance, free, confidence, log_scale, extra_variance)
    return Interval(value, low, high, confidence, round(n_queries), f"t, {len(drawn):,} draws of queries", "estimate")


def _interval_bounds(
    value: FloatArray, estimate: FloatArray, variance: Callable[[FloatArray], FloatArray], free: IntArray | FloatArray,
    confidence: float, log_scale: bool, extra_variance: FloatArray | float,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Return both bounds; on the log scale they are multiples of the value, if all estimates are positive."""
    from scipy.special import stdtrit

    wide = np.where(free > 0, stdtrit(np.maximum(free, 1), (1 + confidence) / 2), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = wide * np.sqrt(variance(estimate) + extra_variance)
        if not log_scale:
            return value - spread, value + spread
        # Delta method: the variance of log(value) is the variance of the value divided by its square.
        factor = np.exp(wide * np.sqrt(variance(np.log(estimate)) + extra_variance / value**2))
        by_factor = (value > 0) & ((estimate > 0) | ~np.isfinite(estimate)).all(axis=0)
        high = np.where(by_factor, value * factor, np.where(value > 0, value + spread, np.inf + wide))
        return np.where(by_factor, value / factor, np.maximum(value - spread, 0.0)), high
