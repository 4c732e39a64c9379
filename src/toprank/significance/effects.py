"""How large a difference is: its interval, its effect size, the queries it takes to see it; p-values of many tests."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, each_block
from toprank.data.checks import check_number, check_whole, numbers
from toprank.errors import DataError, UnknownNameError
from toprank.significance.leaving_out import checked_weights, effective_sample
from toprank.significance.results import EffectSize, Interval, WinTieLoss
from toprank.significance.tests import ROUNDING, column, differences, moments, rescaled, stream_start

_METHODS = {"studentised": "studentised", "bca": "BCa", "percentile": "percentile"}
_RESAMPLING = 2  # the stream of random words that draws queries; that of sign flips has the number 1
_DRAWS_PER_BLOCK = 1 << 20  # values drawn between two visits to the pool of threads
_FEWEST = 5  # below, resamples are too much alike: of the studentised intervals of 2, 3, 4 queries .61, .88, .93 held
_EQUAL = "all differences are equal, so the interval has no width"
_ONE_QUERY = "one query: its spread is unknown"
_WEIGHTED = "weighted mean"


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

    Fewer than five queries are too few to draw anew, and the studentised interval is `t_interval`. One query has no
    spread: the interval is infinite. Differences that are all equal give an interval of no width.

    >>> low, high = bootstrap_interval([0.2, 0.1, 0.3, -0.1, 0.2], seed=1)
    >>> bool(low < 0.14 < high)
    True
    """
    check_number("confidence", confidence, above=0, below=1)
    check_whole("resamples", resamples, 1)
    if method not in _METHODS:
        raise UnknownNameError("bootstrap method", method, _METHODS)
    start = stream_start(seed, _RESAMPLING)
    values = differences(a, b)
    n = len(values)
    mean, spread = moments(values)
    if not spread:
        return t_interval(values, confidence=confidence)  # unknown or 0: there is nothing to draw
    if method == "studentised" and n < _FEWEST:
        student = t_interval(values, confidence=confidence)
        return replace(student, detail=f"{student.detail}: too few queries to draw anew")
    scaled, exponent = rescaled(values)
    centre, deviation = scaled.mean(), scaled.std(ddof=1)
    standard = (scaled - centre) / deviation  # whatever the unit of the differences, the rest is the same
    means, variances = _resampled(standard, resamples, start, threads)
    if method == "studentised":
        ends = _studentised(means, variances, n, confidence)
    else:
        tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
        rounding = ROUNDING * np.abs(scaled).max() / deviation
        ends = np.quantile(means, _bca_levels(standard, means, tails, rounding) if method == "bca" else tails)
    ends = centre + deviation * ends
    low, high = np.ldexp(np.where(np.abs(ends) <= ROUNDING, 0.0, ends), exponent)
    detail = f"bootstrap, {_METHODS[method]}, {resamples:,} resamples, seed {seed}"
    return Interval(mean, float(low), float(high), confidence, n, detail)


def weighted_interval(
    values: npt.ArrayLike,
    weights: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    threads: int | None = None,
) -> Interval:
    """The studentised bootstrap interval of a weighted mean ``Σwv / Σw``: queries are drawn again with their weights.

    Other queries would have other weights, too, so the mean is a ratio of two random sums, and each resample has its
    own. Its standard error is the jackknife's. With equal weights the interval is that of `bootstrap_interval`. If few
    queries carry the weight, no interval can be trusted: `effective_sample` and the interval's `detail` say how many
    queries the weights leave. Fewer than five queries get Student's t with the degrees of freedom of the effective
    sample.

    Args:
        values: one per query; NaN for a query that does not count.
        weights: one per query, not negative; a query of weight 0 does not count.
        confidence: of the interval.
        resamples: how often queries are drawn again.
        seed: of the draws.
        threads: number of threads; the result does not depend on it.

    >>> low, high = weighted_interval([0.2, 0.1, 0.3, -0.1, 0.2], [1, 2, 1, 1, 5])
    >>> bool(low < 0.16 < high)
    True
    """
    check_number("confidence", confidence, above=0, below=1)
    check_whole("resamples", resamples, 1)
    start = stream_start(seed, _RESAMPLING)
    plain, w = column(values, "values"), checked_weights(weights)
    if len(plain) != len(w):
        raise DataError(f"There are {len(w)} weights for {len(plain)} values; each query needs one.")
    counts = ~np.isnan(plain) & (w > 0)
    if not counts.any():
        raise DataError("No query has both a value and a weight above 0, so there is no mean.")
    plain, w = plain[counts], w[counts] / w[counts].mean()
    n, effective = len(plain), effective_sample(w)
    scaled, exponent = rescaled(plain)
    centre = float(w @ scaled / n)
    mean, away = float(np.ldexp(centre, exponent)), scaled - centre
    if n == 1:
        return Interval(mean, -math.inf, math.inf, confidence, n, _ONE_QUERY, _WEIGHTED)
    if moments(plain)[1] == 0:
        return Interval(mean, mean, mean, confidence, n, _EQUAL, _WEIGHTED)
    missed = w * away / np.maximum(n - w, 1e-12)  # how far the mean moves when this query is left out
    error = math.sqrt(float((missed - missed.mean()) @ (missed - missed.mean())) * (n - 1) / n)
    if n < _FEWEST:
        from scipy.special import stdtrit

        ends = np.array([-1.0, 1.0]) * stdtrit(max(effective - 1, 1), (1 + confidence) / 2)
        method = "t: too few queries to draw anew"
    else:
        first_order = math.sqrt(float((w * away) @ (w * away)) / (n - 1))
        means, variances = _resampled(away / first_order, resamples, start, threads, w)
        ends = _studentised(np.sqrt(n) * means, variances, n, confidence)
        method = f"bootstrap, studentised, {resamples:,} resamples, seed {seed}"
    low, high = np.ldexp(centre + error * ends, exponent)
    detail = f"{method}, {effective:.1f} of {n:,} queries effective"
    return Interval(mean, float(low), float(high), confidence, n, detail, _WEIGHTED)


def _resampled(
    values: FloatArray, resamples: int, start: np.uint64, threads: int | None, weights: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Means and variances of the resamples."""
    means, variances = np.empty(resamples), np.empty(resamples)
    step = max(1, _DRAWS_PER_BLOCK // len(values))

    def fill(first: int) -> None:
        out = means[first : first + step], variances[first : first + step]
        if weights is None:
            kernels.resampled_moments(values, start, first, *out)
        else:
            kernels.resampled_ratios(values, weights, start, first, *out)

    each_block(fill, range(0, resamples, step), threads)
    return means, variances


def _studentised(means: FloatArray, variances: FloatArray, n: int, confidence: float) -> FloatArray:
    """How many standard errors the ends lie from the estimate: minus the quantiles of t, the upper one first.

    A resample's variance counts at least 1/n: n equal draws have none, and their t would be infinite.
    """
    tails = [(1 + confidence) / 2, (1 - confidence) / 2]
    return np.asarray(-np.quantile(means / np.sqrt(np.maximum(variances, 1 / n)), tails))


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
    check_number("confidence", confidence, above=0, below=1)
    values = differences(a, b)
    n = len(values)
    mean, spread = moments(values)
    if spread is None:
        return Interval(mean, -math.inf, math.inf, confidence, n, _ONE_QUERY)
    if spread == 0:
        return Interval(mean, mean, mean, confidence, n, _EQUAL)
    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * spread / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, confidence, n, f"t, {n - 1} degrees of freedom")


_EXACT_POWER = 1_000_000  # queries up to which the noncentral t is evaluated; beyond it the normal formula is exact


def effect_size(a: npt.ArrayLike, b: npt.ArrayLike | None = None) -> EffectSize:
    """Cohen's ``d_z = mean(d) / sd(d)``, and Hedges' g, its bias-corrected form.

    ``g = d_z · Γ(ν/2) / (√(ν/2) Γ((ν-1)/2))`` with ν = n - 1. Zero differences everywhere give 0; equal differences
    that are not zero give ±infinity; one query gives None.

    >>> print(effect_size([0.2, 0.1, 0.3]))
    Effect size d_z = 2.0000 (Hedges' g = 1.1284) on 3 queries.
    """
    values = differences(a, b)
    n = len(values)
    mean, spread = moments(values)
    if spread is None:
        return EffectSize(None, None, n)
    if spread == 0:
        size = 0.0 if mean == 0 else math.copysign(math.inf, mean)
        return EffectSize(size, size, n)
    d, half = mean / spread, (n - 1) / 2
    correction = math.exp(math.lgamma(half) - math.lgamma(half - 0.5)) / math.sqrt(half) if n > 2 else 0.0
    return EffectSize(d, d * correction, n)


def win_tie_loss(a: npt.ArrayLike, b: npt.ArrayLike | None = None, *, tolerance: float = ROUNDING) -> WinTieLoss:
    """Queries with ``a - b`` above `tolerance`, within ±`tolerance`, and below -`tolerance`.

    >>> win_tie_loss([0.5, 0.4, 0.1 + 0.2], [0.4, 0.6, 0.3])
    WinTieLoss(wins=1, ties=1, losses=1)
    """
    check_number("tolerance", tolerance, least=0)
    values = differences(a, b)
    wins, losses = int(np.sum(values > tolerance)), int(np.sum(values < -tolerance))
    return WinTieLoss(wins, len(values) - wins - losses, losses)


def queries_needed(
    a: npt.ArrayLike, b: npt.ArrayLike | None = None, *, power: float = 0.8, alpha: float = 0.05
) -> int | None:
    """How many queries a two-sided paired t-test at level `alpha` needs to see such a difference.

    If the true mean and spread were those observed, a test on so many new queries would be significant, and on the
    right side, with probability `power` (noncentral t distribution). The answer is as uncertain as the observed
    effect size: a plan for the next experiment, not a comment on this one. Differences that are all equal and not
    zero need 2 queries.

    Returns:
        The number of queries, at least 2; None where no number would do (the mean is zero) or none can be found
        (one query, whose spread is unknown).

    >>> queries_needed([0.2, 0.1, 0.3, -0.1, 0.0, 0.1])
    18
    """
    return queries_for_effect(effect_size(a, b).d, power=power, alpha=alpha)


def queries_for_effect(size: float | None, *, power: float = 0.8, alpha: float = 0.05) -> int | None:
    """`queries_needed` for a known effect size d_z.

    The search starts at the normal approximation ``((z_{1-α/2} + z_power) / d)² + z²_{1-α/2} / 2``, which is seldom
    off by more than one.
    """
    check_number("power", power, above=0, below=1)
    check_number("alpha", alpha, above=0, below=1)
    if power <= alpha:
        raise DataError(f"power must be above alpha ({alpha:g}), the chance of a false alarm, not {power:g}.")
    if size is None or abs(size) <= ROUNDING:
        return None
    if math.isinf(size):
        return 2
    normal = NormalDist()
    z = normal.inv_cdf(1 - alpha / 2)
    n = max(2, math.ceil(((z + normal.inv_cdf(power)) / size) ** 2 + z**2 / 2))
    if n > _EXACT_POWER:
        return n
    while _t_power(size, n, alpha) < power:
        n += 1
    while n > 2 and _t_power(size, n - 1, alpha) >= power:
        n -= 1
    return n


def _t_power(size: float, n: int, alpha: float) -> float:
    """P(t > critical value) for n queries of effect size |`size`|: the chance of a significant and right answer."""
    from scipy.special import nctdtr, stdtrit

    missed = nctdtr(n - 1, abs(size) * math.sqrt(n), stdtrit(n - 1, 1 - alpha / 2))
    return 1.0 if math.isnan(missed) else float(1 - missed)  # SciPy gives NaN for some chances near 0


def bonferroni(p: npt.ArrayLike) -> FloatArray:
    """``min(1, m · p)`` for a family of m p-values.

    >>> bonferroni([0.01, 0.25, 0.5]).tolist()
    [0.03, 0.75, 1.0]
    """
    values = _p_values(p)
    return np.minimum(1.0, len(values) * values)


def holm(p: npt.ArrayLike) -> FloatArray:
    """Holm's step-down form: never larger than Bonferroni's, and as safe, whatever the dependence of the tests.

    The i-th smallest (from 0) of m p-values becomes the largest of ``min(1, (m - j) · p_(j))`` over j ≤ i.

    >>> holm([0.25, 0.01, 0.25]).tolist()
    [0.5, 0.03, 0.5]
    """
    values = _p_values(p)
    order = np.argsort(values, kind="stable")
    stepped = np.minimum(1.0, values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(stepped)
    return adjusted


def _p_values(p: npt.ArrayLike) -> FloatArray:
    values = numbers(p, "p-values").astype(np.float64, copy=False)
    if values.ndim != 1:
        raise DataError(f"p-values must be a list of numbers, not an array of {values.ndim} dimensions.")
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError("p-values must lie between 0 and 1; correct only tests that were made.")
    return values
