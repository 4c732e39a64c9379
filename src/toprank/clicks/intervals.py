"""What intervals over the queries of a log are made of: queries drawn again, or left out in turn, with all sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toprank.clicks.log import ClickLog
from toprank.compute import FloatArray
from toprank.significance import Interval

__all__ = ["in_words", "left_out_in_turn", "numbers", "plain", "redrawn"]


def redrawn(log: ClickLog, resamples: int, seed: int) -> Iterator[FloatArray]:
    """How often each query of the log counts, `resamples` times; as many queries are drawn as have sessions."""
    rng, present = np.random.default_rng(seed), np.unique(log.session_query)
    for _ in range(resamples):
        yield np.bincount(rng.choice(present, len(present)), minlength=log.n_queries).astype(np.float64)


def left_out_in_turn(log: ClickLog, groups: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """How often each query counts, 0 or 1, where each group of queries is left out in turn; and the groups' shares.

    >>> weights, shares = left_out_in_turn(ClickLog.of(["q", "q", "r"], ["a"] * 3, [1] * 3, [0, 1, 1]), 20, 0)
    >>> weights.sum(axis=1).tolist(), sorted(shares.round(2).tolist())
    ([1.0, 1.0], [0.33, 0.67])
    """
    present, sessions = np.unique(log.session_query, return_counts=True)
    number = np.random.default_rng(seed).permutation(len(present)) % min(groups, len(present))
    group = np.full(log.n_queries, -1)
    group[present] = number
    weights = (group != np.arange(number.max(initial=0) + 1)[:, None]).astype(np.float64)
    return weights, np.bincount(number, sessions) / sessions.sum()


def in_words(low: float | None, high: float | None, digits: int = 3) -> str:
    """An interval in brackets; nothing where it is not known, or all numbers are in it.

    >>> in_words(0.25, 0.5), in_words(0.0, np.inf), in_words(np.nan, np.nan), in_words(-np.inf, np.inf)
    ('[0.250, 0.500]', '[0.000, ∞]', '', '')
    """
    if low is None or high is None or not np.isfinite(low) or np.isnan(high):
        return ""
    return f"[{low:.{digits}f}, {'∞' if np.isinf(high) else f'{high:.{digits}f}'}]"


def numbers(interval: Interval[Any]) -> dict[str, Any]:
    """The estimate and its ends, for JSON.

    >>> numbers(Interval(0.5, 0.25, np.inf, 0.95, 9, ""))
    {'value': 0.5, 'low': 0.25, 'high': None}
    """
    sides = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: plain(np.asarray(side).tolist()) for name, side in sides.items()}


def plain(value: Any) -> Any:
    """Numbers, or lists of them, for JSON: what is infinite or not known is None.

    >>> plain([0.5, [np.inf, np.nan]])
    [0.5, [None, None]]
    """
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value if isinstance(value, str) or np.isfinite(value) else None
