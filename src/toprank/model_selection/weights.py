"""Blend weights selected on held-out queries, and the standard-error rule (Breiman et al. 1984).

The rule keeps a default candidate unless another one is better by more than a given number of standard errors of the
paired differences, since the best of many candidates on few queries is partly luck.
"""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.significance import Interval


class PairedGain(NamedTuple):
    """Mean of paired differences over queries, positive for a gain, and its standard error.

    With fewer than two queries the error is NaN and `in_errors` is 0.
    """

    mean: float
    error: float

    @property
    def in_errors(self) -> float:
        """Gain divided by its standard error."""
        if math.isnan(self.error):
            return 0.0
        return self.mean / self.error if self.error else math.copysign(math.inf, self.mean) if self.mean else 0.0


def paired_gain(values: FloatArray, others: FloatArray, sign: float = 1.0) -> PairedGain:
    """Return the paired gain of `values` over `others`; `sign` is -1 if smaller values are better.

    >>> paired_gain(np.array([0.5, 0.7]), np.array([0.4, 0.4])).in_errors
    2.0
    """
    differences = sign * (values - others)
    differences = differences[~np.isnan(differences)]
    if len(differences) < 2:
        return PairedGain(float(differences.mean()) if len(differences) else 0.0, math.nan)
    return PairedGain(float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(len(differences)))


def best_weights(values: FloatArray, se_rule: float | None = None) -> int:
    """Return the index of the best weights.

    Args:
        values: metric with one row per candidate and one column per query; larger is better.
        se_rule: if passed, keep the first row unless the best is better by more than this many standard errors.
    """
    best = int(np.argmax(np.nanmean(values, axis=1)))
    return best if se_rule is None or paired_gain(values[best], values[0]).in_errors > se_rule else 0


def simplex(n_members: int, n_steps: int) -> FloatArray:
    """Return all weight vectors of `n_members` multiples of 1 / `n_steps` that sum to 1.

    >>> simplex(2, 2).tolist()
    [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]
    """
    whole = (parts for parts in product(range(n_steps + 1), repeat=n_members - 1) if sum(parts) <= n_steps)
    return np.array([[*parts, n_steps - sum(parts)] for parts in whole], dtype=np.float64) / n_steps


def plausibility(interval: Interval, sign: float) -> float:
    """Return 1 − g/h for a difference of −g ± h, clipped to [0, 1]; `sign` is −1 if smaller values are better.

    >>> plausibility(Interval(-0.01, -0.03, 0.01, 0.95, 20, ""), 1.0)
    0.5
    """
    low, high = sorted((sign * interval.low, sign * interval.high))
    half = (high - low) / 2
    if half == 0:  # the best itself, or a constant difference
        return float(low >= 0)
    if math.isinf(half):  # a single query has no interval
        return 1.0
    return round(min(max(high / half, 0.0), 1.0), 6)
