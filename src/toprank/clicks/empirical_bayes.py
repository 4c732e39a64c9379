"""Curves of contexts drawn toward that of the whole where data are few, on the log scale.

With d the logarithm of what a context's own data say of a position over what the whole says, and w the variance of d
over queries, d = δ + noise. Contexts vary about a common mean with the variance τ², and the whole is their mean by
shares s of the clicks, so that the deviations δ of a context from the whole have the variance τ² g, with
g = (1 - s)² + Σ s_j² over the others: what is nearly the whole lies near it. Given τ, the best guess of δ is own · d
with own = τ² g / (τ² g + w): with much data w is small, and the context has its own curve; with little or none it has
that of the whole. On the log scale, since propensities are ratios: half as often is as far as twice as often, and
nothing falls below 0.

τ is not known, and a single best guess of it is often 0 where contexts are few: all would have the same curve, with
intervals that know of no others. So guesses are averaged over τ, by how likely it makes the deviations that were found
(of as many contexts as are free: all but one), and beforehand half-normal with the scale 1, a factor of e.

A position of a context without a click has d = -∞. It still says something where E clicks would be expected by the
whole: the most likely δ, -E e^δ - δ²/(2 τ² g), is -W(E τ² g), W being Lambert's function.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toprank.compute import FloatArray

_GRID_SIZE = 400  # of the sum over τ; sums over twice as many differ in the fourth digit
_MAX_SCALE = 4.0  # scales of the half-normal: beyond it less than 1 in 10,000 lies


class Shrunk(NamedTuple):
    """How much of each deviation is its own (0 to 1), what that leaves unknown, and what contexts vary by.

    Attributes:
        deviation: the best guesses.
        own: how much of each is its own.
        unknown: a variance, besides that of own · d.
        variance: of the deviations of each context, τ² g; the mean over τ.
        between: τ², likewise.
    """

    deviation: FloatArray
    own: FloatArray
    unknown: FloatArray
    variance: FloatArray
    between: float

    def with_first_position(self) -> Shrunk:
        """Return the same after a first position that is known: its deviation is 0, and it is not shrunk."""
        deviation, own, unknown = (np.pad(of, ((0, 0), (1, 0))) for of in self[:3])
        own[:, 0] = 1.0
        return self._replace(deviation=deviation, own=own, unknown=unknown)


def shrunk(deviation: FloatArray, noise: FloatArray, expected: FloatArray, shares: FloatArray) -> Shrunk:
    """The best guesses of deviations.

    Args:
        deviation: as they were found, a row for each context; NaN where nothing was, -∞ where nothing was clicked.
        noise: variances of the deviations; ∞ where nothing is known.
        expected: clicks that would be expected if the context were like the whole.
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
    left = weight @ (part * w) + (weight @ part**2 - own[known] ** 2) * d**2  # what is unknown with τ, and of τ
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
    """Deviations drawn to 0, where it is known how much of each is its own."""
    from scipy.special import lambertw

    guess = np.where(np.isfinite(deviation), own * np.where(np.isfinite(deviation), deviation, 0.0), 0.0)
    unclicked = np.isneginf(deviation) & (expected > 0)
    most = np.broadcast_to(variance, deviation.shape)
    guess[unclicked] = -np.real(lambertw(expected[unclicked] * most[unclicked]))
    return np.asarray(guess)


def _plausible(d: FloatArray, w: FloatArray, g: FloatArray, contexts: int) -> tuple[FloatArray, FloatArray]:
    """Values of τ, closer to each other near 0, and how plausible each is; of no deviations, as plausible as before."""
    step = (np.arange(_GRID_SIZE) + 0.5) / _GRID_SIZE
    tau = _MAX_SCALE * step**2
    free = (contexts - 1) / max(contexts, 1)
    variance = tau[:, None] ** 2 * g + w
    likely = -0.5 * free * (np.log(variance) + d**2 / variance).sum(axis=1) - 0.5 * tau**2 + np.log(step)
    weight = np.exp(likely - likely.max())
    return tau, weight / weight.sum()
