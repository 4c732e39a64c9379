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
_STREAM = 2  # the stream of random words that draws queries; that of sign flips has the number 1
_DRAWS_PER_BLOCK = 1 << 20  # values drawn between two visits to the pool of threads
_MIN_QUERIES = (
    5  # below, resamples are too much alike: of the studentized intervals of 2, 3, 4 queries .61, .88, .93 held
)
_WEIGHT_STEP = 0.5  # standard errors, by which group weights are moved to find the curvature
_MIN_WEIGHT = 1e-100  # of the largest weight: less changes no mean, but draws of such queries alone would weigh nothing


def effective_sample_size(weights: npt.ArrayLike) -> float:
    """``(Σw)² / Σw²``: how many queries of equal weight would give as precise a mean; 0 if no query has a weight.

    >>> effective_sample_size([1, 1, 1, 1]), effective_sample_size([1, 1, 0, 0])
    (4.0, 2.0)
    """
    w = checked_weights(weights)
    # Not `w @ w`: a log has many sessions, and the threads of BLAS that a long product wakes then spin for a while.
    return float(w.sum() ** 2 / np.square(w).sum()) if w.any() else 0.0


def checked_weights(weights: npt.ArrayLike) -> FloatArray:
    """Weights as parts of the largest, and no less than `_MIN_WEIGHT` unless 0: no square overflows or vanishes."""
    array = numbers(weights, "weights").astype(np.float64, copy=False)
    if array.ndim != 1 or not ((array >= 0) & (array < np.inf)).all():
        raise DataError("weights must be finite and not negative, one number for each query.")
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
    """The bootstrap interval of the mean difference: queries are drawn again, with replacement.

    `method="studentized"`, the default, takes the quantiles of ``t = (mean of the resample - mean) / (s / √n)``, s
    being the resample's own standard deviation, instead of Student's, which hold for normal differences. Per-query
    differences are often skewed (many zeros, few large wins), and on those it covers the true mean more often than the
    other methods and than `t_interval`, though it may be the widest (``benchmarks/coverage.py``). A resample's variance
    counts at least 1/n of the sample's, so that n equal draws, whose variance is 0, do not make the interval infinite.

    `method="percentile"` takes the quantiles of the resampled means as they are, `method="bca"` moves them for bias
    and skewness (Efron); both stay within the range of the differences, and are too short for few queries.

    Fewer than five queries are too few to draw anew, and the studentized interval is `t_interval`. One query has no
    spread: the interval is infinite. Differences that are all equal give an interval of no width.

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
        return t_interval(values, confidence=confidence)  # unknown or 0: there is nothing to draw
    if method == "studentized" and n < _MIN_QUERIES:
        student = t_interval(values, confidence=confidence)
        return replace(student, detail=f"{student.detail}: too few queries to draw anew")
    scaled, exponent = rescaled(values)
    center, deviation = scaled.mean(), scaled.std(ddof=1)
    standard = (scaled - center) / deviation  # whatever the unit of the differences, the rest is the same
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
    """The studentized bootstrap interval of a weighted mean ``Σwv / Σw``: queries are drawn again with their weights.

    Other queries would have other weights, too, so the mean is a ratio of two random sums, and each resample has its
    own. Its standard error is the jackknife's. With equal weights the interval is that of `bootstrap_interval`. If few
    queries carry the weight, no interval can be trusted: `effective_sample_size` and the interval's `detail` say how
    many queries the weights leave. Fewer than five queries get Student's t with the degrees of freedom of the effective
    sample.

    Args:
        values: one per query; NaN for a query that does not count.
        weights: one per query, not negative; a query of weight 0 does not count.
        confidence: of the interval.
        n_resamples: how often queries are drawn again.
        seed: of the draws.
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
        raise DataError(f"There are {len(w)} weights for {len(plain)} values; each query needs one.")
    counts = ~np.isnan(plain) & (w > 0)
    if not counts.any():
        raise DataError("No query has both a value and a weight above 0, so there is no mean.")
    plain, w = plain[counts], w[counts] / w[counts].mean()
    n, effective = len(plain), effective_sample_size(w)
    scaled, exponent = rescaled(plain)
    center = float(w @ scaled / n)
    mean, away = float(np.ldexp(center, exponent)), scaled - center
    if n == 1:
        return Interval(mean, -math.inf, math.inf, confidence, n, ONE_QUERY, "weighted mean")
    if moments(plain)[1] == 0:
        return Interval(mean, mean, mean, confidence, n, ALL_EQUAL, "weighted mean")
    missed = w * away / np.maximum(n - w, 1e-12)  # how far the mean moves when this query is left out
    error = math.sqrt(float((missed - missed.mean()) @ (missed - missed.mean())) * (n - 1) / n)
    if n < _MIN_QUERIES:
        from scipy.special import stdtrit

        ends = np.array([-1.0, 1.0]) * stdtrit(max(effective - 1, 1), (1 + confidence) / 2)
        method = "t: too few queries to draw anew"
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
    """Means and variances of the resamples."""
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
    """How many standard errors the ends lie from the estimate: minus the quantiles of t, the upper one first.

    A resample's variance counts at least 1/n: n equal draws have none, and their t would be infinite.
    """
    tails = [(1 + confidence) / 2, (1 - confidence) / 2]
    return np.asarray(-np.quantile(means / np.sqrt(np.maximum(variances, 1 / n)), tails))


def _bca_levels(values: FloatArray, means: FloatArray, tails: FloatArray, rounding: float) -> FloatArray:
    """Φ(z₀ + (z₀ + z) / (1 - α(z₀ + z))) for z = Φ⁻¹(tail), of values that are standardized.

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


def leave_one_out_means(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted means, each without one of the values."""
    if len(values) < 2:
        return np.empty(0)
    return np.asarray((values @ weights - values * weights) / (weights.sum() - weights))


def jackknife_variance(leave_one_out: FloatArray) -> FloatArray:
    """The variance of an estimate, from the estimates without each query (or group of them).

    >>> float(jackknife_variance(np.array([0.25, 0.15, 0.2])))  # of 0.1, 0.3 and 0.2: their variance, by three
    0.00333...
    """
    n = len(leave_one_out)
    return np.asarray((n - 1) / n * ((leave_one_out - leave_one_out.mean(axis=0)) ** 2).sum(axis=0))


def jackknife_interval(
    value: float, leave_one_out: FloatArray, weights: FloatArray, confidence: float, quantity: str = "estimate"
) -> Interval:
    """`jackknife` of one number; the interval of one query, which says nothing of others, is infinite."""
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
        leave_one_out: the estimates without each group.
        weights: the weight of each group; they sum to 1.
        reweighted: returns the estimate if the groups have these weights instead of 1.
        confidence: confidence level of the interval.
        quantity: what is estimated.

    >>> x = np.array([1.0, 2.0, 3.0, 6.0])
    >>> rests = np.array([np.delete(x, i).mean() ** 2 for i in range(4)])
    >>> squared = second_order_interval(9.0, rests, np.full(4, 0.25), lambda w: np.average(x, weights=w) ** 2, 0.95)
    >>> round(squared.value, 4)  # unbiased: 9 less the variance of the mean
    7.8333
    """
    from scipy.special import ndtri, stdtrit

    n = len(leave_one_out)
    if n < 2 or not np.isfinite(leave_one_out).all():
        return Interval(value, -np.inf, np.inf, confidence, n, "jackknife over queries", quantity)
    error = float(np.sqrt(jackknife_variance(leave_one_out)))
    if error <= 1e-12 * abs(value):  # rounding alone
        return jackknife_interval(value, leave_one_out, weights, confidence, quantity)
    bias = float((1 - weights) @ (leave_one_out - value))
    steps = (
        (n - 1) / n * (leave_one_out.mean() - leave_one_out) / error
    )  # at most 1 in size: no weight becomes negative
    quadratic = sum(reweighted(1 + side * _WEIGHT_STEP * steps) - value for side in (1, -1)) / (
        2 * _WEIGHT_STEP**2 * error
    )
    center = value - bias + error * quadratic * (1 + float(ndtri((1 + confidence) / 2)) ** 2)
    free = max(1 / float(weights @ weights) - 1, 1.0)
    half = float(stdtrit(free, (1 + confidence) / 2)) * np.sqrt(error**2 + 2 * bias**2)
    low, high = (center - half, center + half) if np.isfinite(center) else (-np.inf, np.inf)
    return Interval(value - bias, low, high, confidence, n, "second-order jackknife over queries", quantity)


def mean_interval(values: FloatArray, weights: FloatArray, confidence: float, quantity: str = "estimate") -> Interval:
    """`jackknife_interval` of a weighted mean.

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
    """The intervals of estimates, from the estimates without each query (or group of queries) in turn.

    Student's t with the jackknife's standard error; the degrees of freedom are those of the effective number of
    queries, 1/Σ shares² − 1. One query has no spread, and NaN for ends.

    Args:
        value: one estimate, or several.
        leave_one_out: the estimates without each query.
        weights: the weight of each query; they sum to 1.
        confidence: of the interval.
        log_scale: whether estimates are 0 or more and their errors are factors; if an estimate is 0, nothing bounds it
            from above, and the upper end is infinite.
        extra_variance: a variance to add, which leaving queries out does not show.

    >>> low, high = jackknife(0.2, np.array([0.25, 0.15, 0.2]), np.full(3, 1 / 3), 0.95)  # of 0.1, 0.3 and 0.2
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
    value: FloatArray, again: Sequence[FloatArray], n_queries: float, confidence: float, *, log_scale: bool = False,
    extra_variance: FloatArray | float = 0.0,
) -> Interval[FloatArray]:  # fmt: skip
    """The intervals of estimates, from the estimates of queries drawn again; NaN with fewer than two such estimates.

    Args:
        value: the estimates.
        again: the estimates when queries were drawn again; NaN where a draw has none.
        n_queries: the number of queries to draw from; if their weights differ, the effective number.
        confidence: of the interval.
        log_scale: as in `jackknife`.
        extra_variance: a variance to add, which the draws do not show.

    >>> low, high = bootstrap_t_interval(np.array([3.0]), [np.array([1.0]), np.array([3.0])], 2, 0.5)
    >>> print(np.round([low[0], high[0]], 6))  # √2 is the spread of the draws, and √2 is for two queries
    [1. 5.]
    """
    drawn = np.asarray(again, dtype=np.float64)
    known = np.isfinite(drawn)
    free = np.minimum(known.sum(axis=0), n_queries) - 1
    few = n_queries / max(n_queries - 1, 1)  # draws from n queries have (n − 1)/n of the variance of new queries
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
    """The ends on both sides of the value: ratios by a factor, if all their estimates are above 0."""
    from scipy.special import stdtrit

    wide = np.where(free > 0, stdtrit(np.maximum(free, 1), (1 + confidence) / 2), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = wide * np.sqrt(variance(estimate) + extra_variance)
        if not log_scale:
            return value - spread, value + spread
        # The delta method: the variance of log(value) is the variance of the value over its square.
        factor = np.exp(wide * np.sqrt(variance(np.log(estimate)) + extra_variance / value**2))
        by_factor = (value > 0) & ((estimate > 0) | ~np.isfinite(estimate)).all(axis=0)
        high = np.where(by_factor, value * factor, np.where(value > 0, value + spread, np.inf + wide))
        return np.where(by_factor, value / factor, np.maximum(value - spread, 0.0)), high
