"""Empirical-Bayes shrinkage of the propensities of contexts toward those of the whole log, on the log scale.

Let d be the log ratio of a context's own estimate and that of the whole log, with the variance w over queries, so that
d = δ + noise. Contexts vary about a common mean with the variance τ². The whole log is their mean, weighted by the
shares s of the clicks, so the deviations δ have the variance τ² g with g = (1 - s)² + Σ s_j² over the other contexts.
Given τ, the posterior mean of δ is own · d with own = τ² g / (τ² g + w): 1 with much data, and 0 with none.

A point estimate of τ is often 0 with few contexts, which would give all contexts the same curve and too narrow
intervals. Estimates are therefore averaged over the posterior of τ, with a half-normal prior of scale 1 (a factor of e)
and a likelihood with one degree of freedom less than there are contexts.

A position without clicks in a context has d = -∞. If E clicks are expected there, the posterior mode maximizes -E e^δ -
δ²/(2 τ² g), which gives δ = -W(E τ² g) with Lambert's W.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toprank.compute import FloatArray

_GRID_SIZE = 400  # points of the sum over τ; twice as many change the fourth digit
_MAX_SCALE = 4.0  # the half-normal prior has less than 0.01 % of its mass above it


class Shrunk(NamedTuple):
    """Shrunken deviations.

    Attributes:
        deviation: posterior means.
        own: weight of the context's own data, between 0 and 1.
        unknown: posterior variance, in addition to that of own · d.
        variance: prior variance of the deviations of each context, τ² g, averaged over τ.
        between: τ², averaged likewise.
    """

    deviation: FloatArray
    own: FloatArray
    unknown: FloatArray
    variance: FloatArray
    between: float

    def with_first_position(self) -> Shrunk:
        """Return the deviations with a first position prepended, whose deviation is 0 by definition."""
        deviation, own, unknown = (np.pad(of, ((0, 0), (1, 0))) for of in self[:3])
        own[:, 0] = 1.0
        return self._replace(deviation=deviation, own=own, unknown=unknown)


def shrunk(deviation: FloatArray, noise: FloatArray, expected: FloatArray, shares: FloatArray) -> Shrunk:
    """Shrink the deviations of contexts.

    Args:
        deviation: estimates, one row for each context; NaN if unidentified, -∞ without clicks.
        noise: sampling variances of the estimates; ∞ without information.
        expected: expected clicks if the context were like the whole log.
        shares: each context's share of the clicks.

    >>> curves = shrunk(np.array([[1.0], [np.nan]]), np.array([[1e-9], [np.inf]]), np.zeros((2, 1)), np.array([0.5, 0]))
    >>> curves.deviation.ravel().round(3).tolist(), curves.own.ravel().round(3).tolist()
    ([1.0, 0.0], [1.0, 0.0])
    """
    known = np.isfinite(deviation) & np.isfinite(noise)
    spread = (1 - shares) ** 2 + (shares**2).sum() - shares**2
    of_cell = np.broadcast_to(spread[:, None], deviation.shape)
    d, w, g = deviation[known], noise[known], of_cell[known]
    tau, weight = _plausible(d, w, g, int((shares > 0).sum()))
    between = float(weight @ tau**2)
    part = tau[:, None] ** 2 * g / (tau[:, None] ** 2 * g + w)
    own = np.zeros(deviation.shape)
    own[known] = weight @ part
    unknown = between * of_cell.copy()
    left = weight @ (part * w) + (weight @ part**2 - own[known] ** 2) * d**2  # variance given τ, and of τ
    unknown[known] = np.maximum(left - own[known] ** 2 * w, 0.0)
    variance = between * spread[:, None]
    unclicked = np.isneginf(deviation) & (expected > 0)
    guess = drawn(deviation, own, expected, variance)
    if unclicked.any():
        most = np.broadcast_to(variance, deviation.shape)[unclicked]
        precision = expected[unclicked] * np.exp(guess[unclicked]) + 1 / most
        unknown[unclicked], own[unclicked] = 1 / precision, 1 - 1 / (precision * most)
    return Shrunk(guess, own, unknown, variance, between)


def drawn(deviation: FloatArray, own: FloatArray, expected: FloatArray, variance: FloatArray) -> FloatArray:
    """Shrink deviations with known weights of the contexts' own data."""
    from scipy.special import lambertw

    guess = np.where(np.isfinite(deviation), own * np.where(np.isfinite(deviation), deviation, 0.0), 0.0)
    unclicked = np.isneginf(deviation) & (expected > 0)
    most = np.broadcast_to(variance, deviation.shape)
    guess[unclicked] = -np.real(lambertw(expected[unclicked] * most[unclicked]))
    return np.asarray(guess)


def _plausible(d: FloatArray, w: FloatArray, g: FloatArray, contexts: int) -> tuple[FloatArray, FloatArray]:
    """Return a grid of τ, denser near 0, and its posterior weights; the prior weights without deviations."""
    step = (np.arange(_GRID_SIZE) + 0.5) / _GRID_SIZE
    tau = _MAX_SCALE * step**2
    free = (contexts - 1) / max(contexts, 1)
    variance = tau[:, None] ** 2 * g + w
    likely = -0.5 * free * (np.log(variance) + d**2 / variance).sum(axis=1) - 0.5 * tau**2 + np.log(step)
    weight = np.exp(likely - likely.max())
    return tau, weight / weight.sum()
