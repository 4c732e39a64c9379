"""Confidence intervals, effect sizes, required numbers of queries, and corrections for multiple tests."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, numbers
from toprank.data.arguments import check_number
from toprank.errors import DataError
from toprank.significance.results import EffectSize, Interval, WinTieLoss
from toprank.significance.tests import ROUNDING, differences, moments

ALL_EQUAL = "all differences are equal, so the interval has no width"
ONE_QUERY = "one query: its spread is unknown"


def t_interval(a: npt.ArrayLike, b: npt.ArrayLike | None = None, *, confidence: float = 0.95) -> Interval:
    """Return Student's t interval ``mean(d) ± t · sd(d) / √n`` with n - 1 degrees of freedom.

    The interval is infinite for a single query, whose spread is unknown, and has zero width if all differences are
    equal.

    >>> low, high = t_interval([0.2, 0.1, 0.3])
    >>> round(low, 3), round(high, 3)
    (-0.048, 0.448)
    """
    check_number("confidence", confidence, above=0, below=1)
    values = differences(a, b)
    n = len(values)
    mean, spread = moments(values)
    if spread is None:
        return Interval(mean, -math.inf, math.inf, confidence, n, ONE_QUERY)
    if spread == 0:
        return Interval(mean, mean, mean, confidence, n, ALL_EQUAL)
    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * spread / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, confidence, n, f"t, {n - 1} degrees of freedom")


_MAX_EXACT_QUERIES = 1_000_000  # with more queries the normal approximation equals the noncentral t distribution


def effect_size(a: npt.ArrayLike, b: npt.ArrayLike | None = None) -> EffectSize:
    """Return Cohen's ``d_z = mean(d) / sd(d)`` and its bias-corrected form, Hedges' g.

    ``g = d_z · Γ(ν/2) / (√(ν/2) Γ((ν-1)/2))`` with ν = n - 1. The effect size is 0 if all differences are zero,
    ±infinity if they are equal and not zero, and None for a single query.

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
    """Count the queries with ``a - b`` above `tolerance`, within ±`tolerance`, and below -`tolerance`.

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
    """Return the number of queries that a two-sided paired t-test needs to detect the observed difference.

    If the true mean and standard deviation are the observed ones, a test on that many new queries is significant with
    the correct sign with probability `power` (noncentral t distribution). The number is as uncertain as the observed
    effect size: use it to plan the next experiment, not to interpret this one.

    Args:
        a: values of the first system, one per query; or the differences if `b` is None.
        b: values of the second system on the same queries.
        power: probability of a significant result. Default 0.8.
        alpha: level of the test. Default 0.05.

    Returns:
        The number of queries, at least 2 (2 if all differences are equal and not zero). None if no number suffices,
        because the mean difference is zero, or if the spread is unknown, because there is only one query.

    >>> queries_needed([0.2, 0.1, 0.3, -0.1, 0.0, 0.1])
    18
    """
    return queries_for_effect(effect_size(a, b).d, power=power, alpha=alpha)


def queries_for_effect(size: float | None, *, power: float = 0.8, alpha: float = 0.05) -> int | None:
    """Return `queries_needed` for a known effect size d_z.

    The search starts from the normal approximation ``((z_{1-α/2} + z_power) / d)² + z²_{1-α/2} / 2``, which is rarely
    wrong by more than one.
    """
    check_number("power", power, above=0, below=1)
    check_number("alpha", alpha, above=0, below=1)
    if power <= alpha:
        raise DataError(
            f"power is {power:g}, but must be larger than alpha ({alpha:g}), the probability of a false positive."
        )
    if size is None or abs(size) <= ROUNDING:
        return None
    if math.isinf(size):
        return 2
    normal = NormalDist()
    z = normal.inv_cdf(1 - alpha / 2)
    n = max(2, math.ceil(((z + normal.inv_cdf(power)) / size) ** 2 + z**2 / 2))
    if n > _MAX_EXACT_QUERIES:
        return n
    while _t_power(size, n, alpha) < power:
        n += 1
    while n > 2 and _t_power(size, n - 1, alpha) >= power:
        n -= 1
    return n


def _t_power(size: float, n: int, alpha: float) -> float:
    """Return the power with n queries and effect size |`size`|: P(significant with the correct sign)."""
    from scipy.special import nctdtr, stdtrit

    missed = nctdtr(n - 1, abs(size) * math.sqrt(n), stdtrit(n - 1, 1 - alpha / 2))
    return 1.0 if math.isnan(missed) else float(1 - missed)  # SciPy returns NaN for some probabilities near 0


def bonferroni(p: npt.ArrayLike) -> FloatArray:
    """Return Bonferroni-adjusted p-values: ``min(1, m · p)`` for m tests.

    >>> bonferroni([0.01, 0.25, 0.5]).tolist()
    [0.03, 0.75, 1.0]
    """
    values = _p_values(p)
    return np.minimum(1.0, len(values) * values)


def holm(p: npt.ArrayLike) -> FloatArray:
    """Return Holm-adjusted p-values (step-down), which control the familywise error under any dependence.

    They are never larger than Bonferroni's. The i-th smallest (from 0) of m p-values becomes the maximum of
    ``min(1, (m - j) · p_(j))`` over j ≤ i.

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
        raise DataError(f"p-values must be a one-dimensional list of numbers; this array has {values.ndim} dimensions.")
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError("p-values must be between 0 and 1. Leave out tests that were not performed.")
    return values
