"""Intervals and tests that stay valid however often one looks, for experiments that are watched while they run.

A 95 % interval for a fixed sample, looked at every day, misses the truth on some day far more often than in 5 % of the
experiments. These intervals (Robbins 1970; Howard and others 2021) miss it at any look in at most 5 %, at the price of
being wider: 1.5 to 2 times from about 500 units on, and more with fewer units (4.6 times with 50).
"""

from __future__ import annotations

from math import lgamma

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray

_BEST_AT = 5_000  # units at which intervals are narrowest beside those of a fixed size; far from it they lose little
_RATIO = 8.0  # of the mixture's variance to the estimate's, there: near the least of √((1 + 1/r) log((1 + r)/α²))
_PRIOR = 100.0  # units that the planned share counts as; so a deviation of some percent is seen soonest


def confidence_sequence_half_width(
    variance: npt.ArrayLike, units: npt.ArrayLike, confidence: float = 0.95
) -> FloatArray:
    """Half the width of an interval around an estimate that holds at all times together.

    The likelihood ratio against the truth, mixed over normal effects, is a martingale; Ville's inequality says how
    likely it is ever to exceed 1/α. Exact for normal estimates whose errors add up independently; asymptotic for means
    of others, and wider than need be where the same units come again.

    Args:
        variance: of the estimate.
        units: the number of independent units that the estimate is the mean of; n·m/(n + m) for a difference of two
            means.
        confidence: the probability that no look ever misses the truth.

    >>> widths = confidence_sequence_half_width([0.01, 0.0001], [100, 10_000])
    >>> (widths / [0.1, 0.01]).round(2).tolist()  # standard errors, where 1.96 would do for one look
    [6.67, 3.06]
    """
    ratio = _RATIO * np.asarray(units, dtype=np.float64) / _BEST_AT
    with np.errstate(divide="ignore", invalid="ignore"):
        looks = (1 + 1 / ratio) * np.log((1 + ratio) / (1 - confidence) ** 2)
        return np.asarray(np.sqrt(np.asarray(variance, dtype=np.float64) * looks))


def sample_ratio_p(count: float, total: float, share: float) -> float:
    """The p-value of a count among a total whose expected share is known, valid however often one looks.

    It is the inverse of the likelihood ratio of a beta mixture around the share.

    >>> sample_ratio_p(500, 10_000, 0.05) > 0.5, sample_ratio_p(400, 10_000, 0.05) < 0.001
    (True, True)
    """
    rest = total - count
    if share >= 1 or share <= 0:
        return 1.0 if (rest if share >= 1 else count) == 0 else 0.0
    a, b = _PRIOR * share, _PRIOR * (1 - share)
    beta = lgamma(a + count) + lgamma(b + rest) - lgamma(a + b + total) - (lgamma(a) + lgamma(b) - lgamma(a + b))
    evidence = beta - count * np.log(share) - rest * np.log1p(-share)
    return float(min(1.0, np.exp(min(-evidence, 0.0))))
