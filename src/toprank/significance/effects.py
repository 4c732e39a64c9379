"""How large a difference is, how many queries it takes to see it, and what many tests make of it.

Effect sizes, evidence that two systems differ by no more than a margin, and p-values adjusted for a family of tests.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.errors import DataError
from toprank.significance.intervals import t_interval
from toprank.significance.results import EffectSize, EquivalenceResult, WinTieLoss
from toprank.significance.tests import ROUNDING, check_fraction, differences, moments

__all__ = [
    "bonferroni",
    "effect_size",
    "equivalence_test",
    "holm",
    "queries_for_effect",
    "queries_needed",
    "win_tie_loss",
]

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


def win_tie_loss(a: npt.ArrayLike, b: npt.ArrayLike | None = None, *, tolerance: float = 1e-12) -> WinTieLoss:
    """Queries with ``a - b`` above `tolerance`, within ±`tolerance`, and below -`tolerance`.

    >>> win_tie_loss([0.5, 0.4, 0.1 + 0.2], [0.4, 0.6, 0.3])
    WinTieLoss(wins=1, ties=1, losses=1)
    """
    if not tolerance >= 0:
        raise DataError(f"tolerance must be 0 or more, not {tolerance}.")
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
    check_fraction(power, "power")
    check_fraction(alpha, "alpha")
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
    """P(t > critical value) for n queries of effect size |`size`|: the chance to see it, and on the right side."""
    from scipy.special import nctdtr, stdtrit

    missed = nctdtr(n - 1, abs(size) * math.sqrt(n), stdtrit(n - 1, 1 - alpha / 2))
    return 1.0 if math.isnan(missed) else float(1 - missed)  # SciPy says NaN for some chances that are as good as 0


def equivalence_test(
    a: npt.ArrayLike, b: npt.ArrayLike | None = None, *, margin: float, alpha: float = 0.05
) -> EquivalenceResult:
    """Two one-sided paired t-tests (TOST): is the mean difference inside ±margin?

    A large p of a test of difference proves nothing; equivalence is shown when both "the mean is ≤ -margin" and "the
    mean is ≥ +margin" are rejected: ``p = max(P(T ≥ (mean + margin)/se), P(T ≤ (mean - margin)/se))`` with n - 1
    degrees of freedom. One query gives p = 1; differences that are all equal give p = 0 inside the margin, 1 outside.

    >>> print(equivalence_test([0.001, -0.002, 0.0, 0.002, -0.001, 0.001], margin=0.01))
    Equivalent within ±0.01: mean difference 0.000167 on 6 queries, p = 7.77e-06
    (two one-sided t-tests at level 0.05).
    """
    if not (margin > 0 and math.isfinite(margin)):
        raise DataError(f"margin must be a positive number, the largest difference that does not matter, not {margin}.")
    check_fraction(alpha, "alpha")
    if alpha >= 0.5:
        raise DataError(f"alpha must be below 0.5 for an equivalence test, not {alpha}.")
    values = differences(a, b)
    mean, spread = moments(values)
    p = _larger_p(mean, spread, len(values), margin)
    interval = t_interval(values, confidence=1 - 2 * alpha)
    return EquivalenceResult(margin, p, p <= alpha, interval, mean, len(values), alpha)


def _larger_p(mean: float, spread: float | None, n: int, margin: float) -> float:
    if spread is None:
        return 1.0
    if spread == 0:
        return 0.0 if abs(mean) < margin else 1.0
    from scipy.special import stdtr

    return float(stdtr(n - 1, (abs(mean) - margin) / spread * math.sqrt(n)))


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
    try:
        values = np.asarray(p, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise DataError(f"p-values must be numbers: {problem}.") from None
    if values.ndim != 1:
        raise DataError(f"p-values must be a list of numbers, not an array of {values.ndim} dimensions.")
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError("p-values must lie between 0 and 1; correct only tests that were made.")
    return values
