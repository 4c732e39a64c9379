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
from toprank.fusion.query_runs import QueryRuns

_MIN_DIVISOR = 1e-9  # of a divisor


def _min_max(query_runs: QueryRuns) -> FloatArray:
    low, high = _extremes(query_runs, np.minimum, np.inf), _extremes(query_runs, np.maximum, -np.inf)
    return (query_runs.scores - low) / np.maximum(high - low, _MIN_DIVISOR)


def _max(query_runs: QueryRuns) -> FloatArray:
    largest = _extremes(query_runs, np.maximum, -np.inf)
    pairs, runs = np.nonzero((largest <= 0) & (query_runs.scores < 0))
    if len(pairs):
        raise DataError(
            f"The normalization 'max' divides by the largest score, and those of {query_runs.names[runs[0]]} for query "
            f"{query_runs.qids[query_runs.query[pairs[0]]]} are not above 0; take 'min-max', or 'rank'."
        )
    return query_runs.scores / np.maximum(largest, _MIN_DIVISOR)


def _sum(query_runs: QueryRuns) -> FloatArray:
    shifted = query_runs.scores - _extremes(query_runs, np.minimum, np.inf)
    return shifted / np.maximum(query_runs.over_queries(np.add, np.nan_to_num(shifted)), _MIN_DIVISOR)


def _z_score(query_runs: QueryRuns) -> FloatArray:
    n = np.maximum(query_runs.over_queries(np.add, query_runs.is_retrieved.astype(np.float64)), 1.0)
    mean = query_runs.over_queries(np.add, np.nan_to_num(query_runs.scores)) / n
    distance = query_runs.scores - mean
    spread = np.sqrt(query_runs.over_queries(np.add, np.nan_to_num(distance) ** 2) / n)
    return distance / np.maximum(spread, _MIN_DIVISOR)


def _rank(query_runs: QueryRuns) -> FloatArray:
    n = np.maximum(query_runs.over_queries(np.add, query_runs.is_retrieved.astype(np.float64)), 1.0)
    return np.where(query_runs.is_retrieved, 1.0 - (query_runs.ranks - 1) / n, np.nan)


def _extremes(query_runs: QueryRuns, reduced: np.ufunc, absent: float) -> FloatArray:
    """The least or largest score of each run for each query; 0 where it has none."""
    extremes = query_runs.over_queries(reduced, np.where(query_runs.is_retrieved, query_runs.scores, absent))
    return np.where(np.isfinite(extremes), extremes, 0.0)


NORMALIZATIONS: dict[str, Callable[[QueryRuns], FloatArray]] = {
    "none": lambda query_runs: query_runs.scores, "min-max": _min_max, "max": _max, "sum": _sum, "z-score": _z_score,
    "rank": _rank,
}  # fmt: skip


def normalize(query_runs: QueryRuns, name: str) -> FloatArray:
    """The scores under a normalization by name; 0 where a run does not have the document.

    >>> query_runs = QueryRuns.from_runs({"a": {"q": {"x": 3.0, "y": 1.0}}, "b": {"q": {"y": 7.0}}})
    >>> normalize(query_runs, "min-max").tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    if name not in NORMALIZATIONS:
        raise UnknownNameError("normalization of scores", str(name), NORMALIZATIONS)
    return np.where(query_runs.is_retrieved, NORMALIZATIONS[name](query_runs), 0.0)
