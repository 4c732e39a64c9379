"""How large a difference is: its interval, its effect size, the queries it takes to see it; p-values of many tests."""

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
        return Interval(mean, -math.inf, math.inf, confidence, n, ONE_QUERY)
    if spread == 0:
        return Interval(mean, mean, mean, confidence, n, ALL_EQUAL)
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
