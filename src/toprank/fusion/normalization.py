"""Score normalization per run and query, to make scores of different systems comparable.

| name | normalized score s, given all scores S of the run for the query |
|---|---|
| ``none`` | s |
| ``min-max`` | (s − min S) / (max S − min S) |
| ``max`` | s / max S |
| ``sum`` | (s − min S) / Σ (S − min S) |
| ``z-score`` | (s − mean S) / std S |
| ``rank`` | 1 − (rank − 1) / n |

A document missing from a run has the normalized score 0. Divisors are at least 10⁻⁹, so ``min-max``, ``sum`` and
``z-score`` are 0 if all scores of a query are equal, as in ranx. The normalization ``max`` raises an error for negative
scores of a query without positive scores, because the quotients would be meaningless.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from toprank.compute import FloatArray
from toprank.errors import DataError, UnknownNameError
from toprank.fusion.query_runs import QueryRuns

_MIN_DIVISOR = 1e-9


def _min_max(query_runs: QueryRuns) -> FloatArray:
    low, high = _extremes(query_runs, np.minimum, np.inf), _extremes(query_runs, np.maximum, -np.inf)
    return (query_runs.scores - low) / np.maximum(high - low, _MIN_DIVISOR)


def _max(query_runs: QueryRuns) -> FloatArray:
    largest = _extremes(query_runs, np.maximum, -np.inf)
    pairs, runs = np.nonzero((largest <= 0) & (query_runs.scores < 0))
    if len(pairs):
        raise DataError(
            f"The normalization 'max' needs a positive score, but run {query_runs.names[runs[0]]} has none for query "
            f"{query_runs.qids[query_runs.query[pairs[0]]]}. Use 'min-max' or 'rank'."
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
    """Return the smallest or largest score of each run for each query; 0 if a run has none."""
    extremes = query_runs.over_queries(reduced, np.where(query_runs.is_retrieved, query_runs.scores, absent))
    return np.where(np.isfinite(extremes), extremes, 0.0)


NORMALIZATIONS: dict[str, Callable[[QueryRuns], FloatArray]] = {
    "none": lambda query_runs: query_runs.scores, "min-max": _min_max, "max": _max, "sum": _sum, "z-score": _z_score,
    "rank": _rank,
}  # fmt: skip


def normalize(query_runs: QueryRuns, name: str) -> FloatArray:
    """Normalize the scores by the named method; 0 if a run did not retrieve the document.

    >>> query_runs = QueryRuns.from_runs({"a": {"q": {"x": 3.0, "y": 1.0}}, "b": {"q": {"y": 7.0}}})
    >>> normalize(query_runs, "min-max").tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    if name not in NORMALIZATIONS:
        raise UnknownNameError("score normalization", str(name), NORMALIZATIONS)
    return np.where(query_runs.is_retrieved, NORMALIZATIONS[name](query_runs), 0.0)
