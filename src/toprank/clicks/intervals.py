"""Intervals over queries: what would be found, had other queries of the same kind been asked.

Queries are drawn again with all their sessions, and the spread of what is found then makes a t interval with as many
degrees of freedom as there are queries or draws. Quantiles of the draws would do for many queries; of twenty they hold
the truth in 87 % of logs where they say 95 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from toprank.clicks.log import ClickLog
from toprank.compute import FloatArray

__all__ = ["Interval", "ends", "in_words", "plain", "redrawn"]


class Interval(NamedTuple):
    """What was found, and the ends of its interval."""

    value: FloatArray
    low: FloatArray
    high: FloatArray


def redrawn(log: ClickLog, resamples: int, seed: int) -> Iterator[FloatArray]:
    """How often each query of the log counts, `resamples` times; as many queries are drawn as have sessions."""
    rng, present = np.random.default_rng(seed), np.unique(log.session_query)
    for _ in range(resamples):
        yield np.bincount(rng.choice(present, len(present)), minlength=log.n_queries).astype(np.float64)


def ends(
    value: FloatArray,
    again: Sequence[FloatArray],
    n_queries: int,
    confidence: float,
    *,
    ratios: bool = False,
    besides: FloatArray | float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends of the interval of each value; NaN where fewer than two queries or draws tell.

    Args:
        value: what was found.
        again: what was found when queries were drawn again; NaN where such a draw does not tell.
        n_queries: how many were drawn from.
        confidence: of the interval.
        ratios: values are 0 or more, and their errors are factors. Where no click was ever seen, the upper end is
            infinite.
        besides: a variance that the draws do not have.

    >>> low, high = ends(np.array([3.0]), [np.array([1.0]), np.array([3.0])], 2, 0.5)
    >>> print(np.round([low[0], high[0]], 6))  # √2 is the spread of the draws, and √2 is for two queries
    [1. 5.]
    """
    from scipy.special import stdtrit

    drawn = np.asarray(again, dtype=np.float64)
    told = np.isfinite(drawn)
    free = np.minimum(told.sum(axis=0), n_queries) - 1
    wide = stdtrit(np.maximum(free, 1), (1 + confidence) / 2) * np.sqrt(n_queries / max(n_queries - 1, 1))
    wide = np.where(free > 0, wide, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = wide * np.sqrt(_variance(drawn, told) + besides)
        if not ratios:
            return value - spread, value + spread
        factor = np.exp(wide * np.sqrt(_variance(np.log(drawn), told) + besides / value**2))
        by_factor = (value > 0) & ((drawn > 0) | ~told).all(axis=0)
        high = np.where(by_factor, value * factor, np.where(value > 0, value + spread, np.inf + wide))
        return np.where(by_factor, value / factor, np.maximum(value - spread, 0.0)), high


def _variance(drawn: FloatArray, told: np.ndarray) -> FloatArray:
    """Of the draws that tell."""
    count = np.maximum(told.sum(axis=0), 2)
    mean = np.where(told, drawn, 0.0).sum(axis=0) / count
    return np.asarray(np.where(told, (drawn - mean) ** 2, 0.0).sum(axis=0) / (count - 1))


def in_words(low: float | None, high: float | None) -> str:
    """An interval in brackets; nothing where it is not known.

    >>> in_words(0.25, 0.5), in_words(0.0, np.inf), in_words(np.nan, np.nan)
    ('[0.250, 0.500]', '[0.000, ∞]', '')
    """
    if low is None or high is None or np.isnan(low) or np.isnan(high):
        return ""
    return f"[{low:.3f}, {'∞' if np.isinf(high) else f'{high:.3f}'}]"


def plain(value: Any) -> Any:
    """Numbers, or lists of them, for JSON: what is infinite or not known is None.

    >>> plain([0.5, [np.inf, np.nan]])
    [0.5, [None, None]]
    """
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value if isinstance(value, str) or np.isfinite(value) else None
