"""Intervals of any estimate over queries, for how much it would vary with other queries of the same kind.

Queries are left out in turn, or drawn again. The spread of the estimates then makes a t interval whose degrees of
freedom go by the number of queries, draws or groups. Quantiles of the draws would do for many queries; with twenty, a
95 % interval made of them holds the truth in 87 % of the cases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.checks import numbers
from toprank.errors import DataError
from toprank.significance.results import Interval

_SMALLEST = 1e-100  # of the largest weight: less changes no mean, but draws of such queries alone would weigh nothing


def effective_sample(weights: npt.ArrayLike) -> float:
    """``(Σw)² / Σw²``: how many queries of equal weight would give as precise a mean; 0 if no query has a weight.

    >>> effective_sample([1, 1, 1, 1]), effective_sample([1, 1, 0, 0])
    (4.0, 2.0)
    """
    w = checked_weights(weights)
    # Not `w @ w`: a log has many sessions, and the threads of BLAS that a long product wakes then spin for a while.
    return float(w.sum() ** 2 / np.square(w).sum()) if w.any() else 0.0


def checked_weights(weights: npt.ArrayLike) -> FloatArray:
    """Weights as parts of the largest, and no less than `_SMALLEST` unless 0: no square overflows or vanishes."""
    array = numbers(weights, "weights").astype(np.float64, copy=False)
    if array.ndim != 1 or not ((array >= 0) & (array < np.inf)).all():
        raise DataError("weights must be finite and not negative, one number for each query.")
    parts = array / (array.max(initial=0.0) or 1.0)
    return np.where(array > 0, np.maximum(parts, _SMALLEST), 0.0)


def means_without(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted means, each without one of the values."""
    if len(values) < 2:
        return np.empty(0)
    return np.asarray((values @ weights - values * weights) / (weights.sum() - weights))


def jackknife_variance(rests: FloatArray) -> FloatArray:
    """The variance of an estimate, from the estimates without each query (or group of them).

    >>> float(jackknife_variance(np.array([0.25, 0.15, 0.2])))  # of 0.1, 0.3 and 0.2: their variance, by three
    0.00333...
    """
    n = len(rests)
    return np.asarray((n - 1) / n * ((rests - rests.mean(axis=0)) ** 2).sum(axis=0))


def jackknife_interval(
    value: float, rests: FloatArray, shares: FloatArray, confidence: float, of: str = "estimate"
) -> Interval:
    """`jackknife` of one number; the interval of one query, which says nothing of others, is infinite."""
    interval = jackknife(value, rests, shares, confidence)
    known = np.isfinite(interval.low)
    low, high = (float(interval.low), float(interval.high)) if known else (-np.inf, np.inf)
    return Interval(value, low, high, confidence, interval.n, interval.detail, of)


def mean_interval(values: FloatArray, weights: FloatArray, confidence: float, of: str = "estimate") -> Interval:
    """`jackknife_interval` of a weighted mean.

    >>> low, high = mean_interval(np.array([0.1, 0.3, 0.2]), np.ones(3), 0.95)
    >>> round(low, 3), round(high, 3)
    (-0.048, 0.448)
    """
    shares = weights / weights.sum()
    interval = jackknife_interval(float(values @ shares), means_without(values, weights), shares, confidence, of)
    return replace(interval, n=len(values))


def jackknife(
    value: FloatArray | float,
    rests: FloatArray | Sequence[FloatArray],
    shares: FloatArray,
    confidence: float,
    *,
    ratios: bool = False,
    besides: FloatArray | float = 0.0,
) -> Interval[FloatArray]:
    """The intervals of estimates, from the estimates without each query (or group of queries) in turn.

    Student's t with the jackknife's standard error; the degrees of freedom are those of the effective number of
    queries, 1/Σ shares² − 1. One query has no spread, and NaN for ends.

    Args:
        value: one estimate, or several.
        rests: the estimates without each query.
        shares: the weight of each query; they sum to 1.
        confidence: of the interval.
        ratios: whether estimates are 0 or more and their errors are factors; if an estimate is 0, nothing bounds it
            from above, and the upper end is infinite.
        besides: a variance to add, which leaving queries out does not show.

    >>> low, high = jackknife(0.2, np.array([0.25, 0.15, 0.2]), np.full(3, 1 / 3), 0.95)  # of 0.1, 0.3 and 0.2
    >>> round(float(low), 3), round(float(high), 3)
    (-0.048, 0.448)
    """
    n, without = len(rests), np.asarray(rests, dtype=np.float64)
    free = max(1 / float(shares @ shares) - 1, 1.0) if n > 1 else 0.0

    def variance(of: FloatArray) -> FloatArray:
        return jackknife_variance(of) if n else np.zeros(np.shape(value))

    plain = np.asarray(value, dtype=np.float64)
    low, high = _sides(plain, without, variance, np.asarray(free), confidence, ratios, besides)
    return Interval(plain, low, high, confidence, n, "jackknife over queries", "estimate")


def redrawn_interval(
    value: FloatArray, again: Sequence[FloatArray], n_queries: float, confidence: float, *, ratios: bool = False,
    besides: FloatArray | float = 0.0,
) -> Interval[FloatArray]:  # fmt: skip
    """The intervals of estimates, from the estimates of queries drawn again; NaN with fewer than two such estimates.

    Args:
        value: the estimates.
        again: the estimates when queries were drawn again; NaN where a draw has none.
        n_queries: the number of queries to draw from; if their weights differ, the effective number.
        confidence: of the interval.
        ratios: as in `jackknife`.
        besides: a variance to add, which the draws do not show.

    >>> low, high = redrawn_interval(np.array([3.0]), [np.array([1.0]), np.array([3.0])], 2, 0.5)
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

    low, high = _sides(value, drawn, variance, free, confidence, ratios, besides)
    return Interval(value, low, high, confidence, round(n_queries), f"t, {len(drawn):,} draws of queries", "estimate")


def _sides(
    value: FloatArray, estimate: FloatArray, variance: Callable[[FloatArray], FloatArray], free: IntArray | FloatArray,
    confidence: float, ratios: bool, besides: FloatArray | float,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """The ends on both sides of the value: ratios by a factor, if all their estimates are above 0."""
    from scipy.special import stdtrit

    wide = np.where(free > 0, stdtrit(np.maximum(free, 1), (1 + confidence) / 2), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = wide * np.sqrt(variance(estimate) + besides)
        if not ratios:
            return value - spread, value + spread
        # The delta method: the variance of log(value) is the variance of the value over its square.
        factor = np.exp(wide * np.sqrt(variance(np.log(estimate)) + besides / value**2))
        by_factor = (value > 0) & ((estimate > 0) | ~np.isfinite(estimate)).all(axis=0)
        high = np.where(by_factor, value * factor, np.where(value > 0, value + spread, np.inf + wide))
        return np.where(by_factor, value / factor, np.maximum(value - spread, 0.0)), high
