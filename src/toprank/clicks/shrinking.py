"""Curves of contexts drawn towards that of the whole where data are few: empirical Bayes on the log scale.

With d the logarithm of what a context's own data say of a position over what the whole says, and w its variance over
queries, d = δ + noise. The deviations δ are taken to come from N(0, τ²), and τ² is what makes Σ d²/(τ² + w) as large as
there are terms (Paule and Mandel), never below 0. The best guess of δ is then τ²/(τ² + w) · d: with much data w is
small, and the context has its own curve; with little or none it has that of the whole; and where contexts differ no
more than noise would have it, τ² is 0 and all have the whole. On the log scale, since propensities are ratios: half as
often is as far as twice as often, and nothing falls below 0.

A position of a context without a click has d = -∞. It still says something where E clicks would be expected by the
whole: the most likely δ, -E e^δ - δ²/(2τ²), is -W(E τ²), W being Lambert's function.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toprank.compute import FloatArray

__all__ = ["Shrunk", "between", "shrunk"]


class Shrunk(NamedTuple):
    """Deviations on the log scale, how much of each is its own (0 to 1), and what that leaves unknown (a variance)."""

    deviation: FloatArray
    own: FloatArray
    unknown: FloatArray


def between(deviation: FloatArray, noise: FloatArray) -> float:
    """τ², the variance of what deviates but for the noise.

    >>> round(between(np.array([0.5, -0.5, 0.1]), np.full(3, 1e-9)), 6)
    0.17
    >>> between(np.array([0.5, -0.5]), np.array([1.0, 1.0]))
    0.0
    """
    from scipy.optimize import brentq

    known = np.isfinite(deviation) & np.isfinite(noise)
    squares, noise = deviation[known] ** 2, noise[known]

    def excess(variance: float) -> float:
        return float((squares / (variance + noise)).sum()) - len(squares)

    if not len(squares) or not (noise > 0).all() or excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, float(squares.max()), xtol=1e-12, rtol=1e-10))


def shrunk(deviation: FloatArray, noise: FloatArray, expected: FloatArray, variance: float) -> Shrunk:
    """The best guesses of deviations from N(0, variance).

    Args:
        deviation: as they were found; NaN where nothing was, -∞ where nothing was clicked.
        noise: their variances; ∞ where nothing is known.
        expected: clicks that the whole would expect.
        variance: τ².

    >>> shrunk(np.array([1.0, np.nan]), np.array([0.1, np.inf]), np.zeros(2), 0.3).deviation.round(6).tolist()
    [0.75, 0.0]
    """
    from scipy.special import lambertw

    known = np.isfinite(deviation) & np.isfinite(noise)
    own = np.zeros(deviation.shape)
    own[known] = variance / (variance + noise[known]) if variance > 0 else 0.0
    best = np.where(known, own * np.where(known, deviation, 0.0), 0.0)
    unknown = (1 - own) ** 2 * variance
    never = np.isneginf(deviation) & (expected > 0)
    if variance > 0 and never.any():
        best[never] = -np.real(lambertw(expected[never] * variance))
        precision = expected[never] * np.exp(best[never]) + 1 / variance
        unknown[never] = 1 / precision
        own[never] = 1 - 1 / (precision * variance)
    return Shrunk(best, own, unknown)
