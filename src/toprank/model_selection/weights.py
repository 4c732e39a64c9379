"""Weights of the members of a blend, chosen on held-out queries, and the standard-error rule (Breiman et al. 1984).

The best of many candidates on few queries is partly luck. So a candidate that was chosen beforehand is kept unless
another one is better by more than a given number of standard errors of the paired differences.
"""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.significance import Interval


class PairedGain(NamedTuple):
    """The mean of paired differences over queries, above 0 if it is a gain, and its standard error.

    The error is NaN if fewer than two queries count, and the gain is then 0 in units of it.
    """

    mean: float
    error: float

    @property
    def in_errors(self) -> float:
        """The gain in standard errors."""
        if math.isnan(self.error):
            return 0.0
        return self.mean / self.error if self.error else math.copysign(math.inf, self.mean) if self.mean else 0.0


def paired_gain(values: FloatArray, others: FloatArray, sign: float = 1.0) -> PairedGain:
    """Return the gain of some values over others, query by query; `sign` is -1 if less is better.

    >>> paired_gain(np.array([0.5, 0.7]), np.array([0.4, 0.4])).in_errors
    2.0
    """
    differences = sign * (values - others)
    differences = differences[~np.isnan(differences)]
    if len(differences) < 2:
        return PairedGain(float(differences.mean()) if len(differences) else 0.0, math.nan)
    return PairedGain(float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(len(differences)))


def best_weights(values: FloatArray, se_rule: float | None = None) -> int:
    """Return the row of the best weights; `values` are a row of numbers by query for each, where more is better.

    With `se_rule`, the first row is kept unless the best is better by more than that number of standard errors.
    """
    best = int(np.argmax(np.nanmean(values, axis=1)))
    return best if se_rule is None or paired_gain(values[best], values[0]).in_errors > se_rule else 0


def simplex(n_members: int, n_steps: int) -> FloatArray:
    """Return all weights of `n_members` members that are multiples of 1 / `n_steps` and add up to 1.

    >>> simplex(2, 2).tolist()
    [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]
    """
    whole = (parts for parts in product(range(n_steps + 1), repeat=n_members - 1) if sum(parts) <= n_steps)
    return np.array([[*parts, n_steps - sum(parts)] for parts in whole], dtype=np.float64) / n_steps


def plausibility(interval: Interval, sign: float) -> float:
    """1 − g/h for a difference of −g ± h (`sign` −1: of +g, where less is better), between 0 and 1.

    >>> plausibility(Interval(-0.01, -0.03, 0.01, 0.95, 20, ""), 1.0)
    0.5
    """
    low, high = sorted((sign * interval.low, sign * interval.high))
    half = (high - low) / 2
    if half == 0:  # the best itself, or a difference that is the same on every query
        return float(low >= 0)
    if math.isinf(half):  # a single query has no interval
        return 1.0
    return round(min(max(high / half, 0.0), 1.0), 6)
