"""Unsupervised fusion methods.

| method | score of a document d | source |
|---|---|---|
| ``rrf`` | Σ over runs 1 / (k + rank of d) | Cormack, Clarke & Büttcher 2009 |
| ``combsum`` | Σ of normalized scores | Fox & Shaw 1994 |
| ``combmnz`` | ``combsum`` times the number of runs that retrieved d | Fox & Shaw 1994 |
| ``combmax``, ``combmin`` | largest or smallest normalized score of the runs that retrieved d | Fox & Shaw 1994 |
| ``weighted`` | Σ weight · normalized score | |
| ``borda`` | Σ of points: n for the first of n documents, n − 1 for the second …; documents missing from a run share the remaining points | Aslam & Montague 2001 |
| ``condorcet`` | number of documents that d beats in a majority of the runs, plus half the number of ties (Copeland's rule) | Montague & Aslam 2002 |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from toprank.compute import FloatArray
from toprank.fusion.normalization import normalize
from toprank.fusion.query_runs import QueryRuns

RRF_K = 60.0
"""Default constant of ``rrf``, from Cormack, Clarke & Büttcher."""
_PAIRS_PER_BLOCK = 1 << 20  # pairs of documents compared at a time


def reciprocal_ranks(query_runs: QueryRuns, rrf_k: float = RRF_K) -> FloatArray:
    """Return 1 / (rrf_k + rank) of each document in each run; 0 if not retrieved."""
    return np.where(query_runs.is_retrieved, 1.0 / (rrf_k + query_runs.ranks), 0.0)


def _borda(query_runs: QueryRuns) -> FloatArray:
    n = np.repeat(np.diff(query_runs.offsets), np.diff(query_runs.offsets))[:, None]
    ranked = query_runs.over_queries(np.add, query_runs.is_retrieved.astype(np.float64))
    # A run that does not answer a query gives no points for it.
    points = np.where(query_runs.is_retrieved, n - (query_runs.ranks - 1.0), (n - ranked + 1.0) / 2.0)
    total: FloatArray = np.where(ranked > 0, points, 0.0).sum(axis=1)
    return total


def _condorcet(query_runs: QueryRuns) -> FloatArray:
    worst = np.iinfo(np.int64).max
    ranks = np.where(query_runs.is_retrieved, query_runs.ranks, worst)
    out = np.zeros(len(ranks))
    for first, last in zip(query_runs.offsets[:-1].tolist(), query_runs.offsets[1:].tolist(), strict=True):
        own = ranks[first:last]
        step = max(1, _PAIRS_PER_BLOCK // len(own))
        for start in range(0, len(own), step):
            rows = own[start : start + step]
            votes = np.zeros((len(rows), len(own)), dtype=np.int64)
            for run in range(own.shape[1]):
                votes += np.sign(own[None, :, run] - rows[:, None, run])
            out[first + start : first + start + len(rows)] = (votes > 0).sum(axis=1) + (
                (votes == 0).sum(axis=1) - 1
            ) / 2
    return out


_SCORE_METHODS: dict[str, Callable[[QueryRuns, FloatArray], FloatArray]] = {
    "combsum": lambda _, scores: scores.sum(axis=1),
    "combmnz": lambda query_runs, scores: scores.sum(axis=1) * query_runs.is_retrieved.sum(axis=1),
    "combmax": lambda query_runs, scores: np.where(query_runs.is_retrieved, scores, -np.inf).max(axis=1),
    "combmin": lambda query_runs, scores: np.where(query_runs.is_retrieved, scores, np.inf).min(axis=1),
}
RANK_METHODS = ("rrf", "borda", "condorcet")
"""Methods that use only ranks, and therefore no normalization."""
METHODS = ("rrf", *_SCORE_METHODS, "weighted", "borda", "condorcet", "learned")


def combine(
    query_runs: QueryRuns, method: str, normalization: str, weights: Sequence[float] | None, rrf_k: float
) -> FloatArray:
    """Return one fused score per pair; `weights` of the runs are used by ``weighted``."""
    if method == "rrf":
        return np.asarray(reciprocal_ranks(query_runs, rrf_k).sum(axis=1))
    if method == "borda":
        return _borda(query_runs)
    if method == "condorcet":
        return _condorcet(query_runs)
    scores = normalize(query_runs, normalization)
    if method == "weighted":
        return scores @ np.asarray(weights, dtype=np.float64)
    return _SCORE_METHODS[method](query_runs, scores)
