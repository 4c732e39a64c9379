"""Intervals and tests that hold whenever one looks, however often: for what is watched while it grows.

A 95 % interval of a fixed size, looked at every day, leaves out the truth some day far more often than it says. These
do not (Robbins 1970; Howard and others 2021): the chance that any of all looks leaves it out is 5 % at most, for which
they are about one and a half to two times as wide.
"""

from __future__ import annotations

from math import lgamma

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray

_BEST_AT = 5_000  # units at which intervals are narrowest beside those of a fixed size; far from it they lose little
_RATIO = 8.0  # of the mixture's variance to the estimate's, there: near the least of √((1 + 1/r) log((1 + r)/α²))
_PRIOR = 100.0  # units that the plan of a split is taken to be worth; a break of some percent is seen soonest so


def always_half_width(variance: npt.ArrayLike, units: npt.ArrayLike, confidence: float = 0.95) -> FloatArray:
    """Half the width of an interval around an estimate that holds at all times at once.

    The likelihood ratio against the truth, mixed over normal effects, is a martingale; Ville's inequality says how
    likely it is ever to exceed 1/α. Exact for normal estimates whose errors add up independently; asymptotic for means
    of others, and wider than need be where the same units come again.

    Args:
        variance: of the estimate.
        units: how many independent units it is the mean of; of a difference of two means n·m/(n + m).
        confidence: that no look ever leaves out the truth.

    >>> widths = always_half_width([0.01, 0.0001], [100, 10_000])
    >>> (widths / [0.1, 0.01]).round(2).tolist()  # standard errors, where 1.96 would do for one look
    [6.67, 3.06]
    """
    ratio = _RATIO * np.asarray(units, dtype=np.float64) / _BEST_AT
    with np.errstate(divide="ignore", invalid="ignore"):
        looks = (1 + 1 / ratio) * np.log((1 + ratio) / (1 - confidence) ** 2)
        return np.asarray(np.sqrt(np.asarray(variance, dtype=np.float64) * looks))


def ratio_p(count: float, total: float, share: float) -> float:
    """How likely a count among a total would ever differ as much from its share: the p of a sample ratio.

    The inverse of the likelihood ratio of a beta mixture around the share; it holds whenever one looks.

    >>> ratio_p(500, 10_000, 0.05) > 0.5, ratio_p(400, 10_000, 0.05) < 0.001
    (True, True)
    """
    rest = total - count
    if share >= 1 or share <= 0:
        return 1.0 if (rest if share >= 1 else count) == 0 else 0.0
    a, b = _PRIOR * share, _PRIOR * (1 - share)
    beta = lgamma(a + count) + lgamma(b + rest) - lgamma(a + b + total) - (lgamma(a) + lgamma(b) - lgamma(a + b))
    evidence = beta - count * np.log(share) - rest * np.log1p(-share)
    return float(min(1.0, np.exp(min(-evidence, 0.0))))
