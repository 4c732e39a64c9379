"""Scores of different systems made comparable, query by query.

| name | a score s of a run with the scores S for the query |
|---|---|
| ``none`` | s |
| ``min-max`` | (s − min S) / (max S − min S) |
| ``max`` | s / max S |
| ``sum`` | (s − min S) / Σ (S − min S) |
| ``z-score`` | (s − mean S) / std S |
| ``rank`` | 1 − (rank − 1) / n |

A document that a run does not have counts 0, whatever the normalization. Divisors are at least 10⁻⁹: where all scores
of a query are equal, ``min-max``, ``sum`` and ``z-score`` are 0. (ranx does both in the same way.) Only ``max`` is
refused where it means nothing: of scores below 0 that no score above 0 gives a measure.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from toprank.compute import FloatArray
from toprank.errors import DataError, UnknownNameError
from toprank.fusion.ballots import Ballots

_LEAST = 1e-9  # of a divisor


def _min_max(ballots: Ballots) -> FloatArray:
    low, high = _extreme(ballots, np.minimum, np.inf), _extreme(ballots, np.maximum, -np.inf)
    return (ballots.scores - low) / np.maximum(high - low, _LEAST)


def _max(ballots: Ballots) -> FloatArray:
    largest = _extreme(ballots, np.maximum, -np.inf)
    pairs, runs = np.nonzero((largest <= 0) & (ballots.scores < 0))
    if len(pairs):
        raise DataError(
            f"The normalization 'max' divides by the largest score, and those of {ballots.names[runs[0]]} for query "
            f"{ballots.qids[ballots.query[pairs[0]]]} are not above 0; take 'min-max', or 'rank'."
        )
    return ballots.scores / np.maximum(largest, _LEAST)


def _sum(ballots: Ballots) -> FloatArray:
    shifted = ballots.scores - _extreme(ballots, np.minimum, np.inf)
    return shifted / np.maximum(ballots.over_queries(np.add, np.nan_to_num(shifted)), _LEAST)


def _z_score(ballots: Ballots) -> FloatArray:
    n = np.maximum(ballots.over_queries(np.add, ballots.there.astype(np.float64)), 1.0)
    mean = ballots.over_queries(np.add, np.nan_to_num(ballots.scores)) / n
    distance = ballots.scores - mean
    spread = np.sqrt(ballots.over_queries(np.add, np.nan_to_num(distance) ** 2) / n)
    return distance / np.maximum(spread, _LEAST)


def _rank(ballots: Ballots) -> FloatArray:
    n = np.maximum(ballots.over_queries(np.add, ballots.there.astype(np.float64)), 1.0)
    return np.where(ballots.there, 1.0 - (ballots.ranks - 1) / n, np.nan)


def _extreme(ballots: Ballots, reduced: np.ufunc, absent: float) -> FloatArray:
    """The least or largest score of each run for each query; 0 where it has none."""
    extremes = ballots.over_queries(reduced, np.where(ballots.there, ballots.scores, absent))
    return np.where(np.isfinite(extremes), extremes, 0.0)


NORMALIZATIONS: dict[str, Callable[[Ballots], FloatArray]] = {
    "none": lambda ballots: ballots.scores, "min-max": _min_max, "max": _max, "sum": _sum, "z-score": _z_score,
    "rank": _rank,
}  # fmt: skip


def normalized(ballots: Ballots, name: str) -> FloatArray:
    """The scores under a normalization by name; 0 where a run does not have the document.

    >>> ballots = Ballots.of({"a": {"q": {"x": 3.0, "y": 1.0}}, "b": {"q": {"y": 7.0}}})
    >>> normalized(ballots, "min-max").tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    if name not in NORMALIZATIONS:
        raise UnknownNameError("normalization of scores", str(name), NORMALIZATIONS)
    return np.where(ballots.there, NORMALIZATIONS[name](ballots), 0.0)
