"""Ways to make one score of several that need no labels.

| method | score of a document d | source |
|---|---|---|
| ``rrf`` | Σ over runs 1 / (k + rank of d) | Cormack, Clarke & Büttcher 2009 |
| ``combsum`` | Σ of normalized scores | Fox & Shaw 1994 |
| ``combmnz`` | the same, times the number of runs that have d | Fox & Shaw 1994 |
| ``combmax``, ``combmin`` | the largest, the least of the normalized scores of the runs that have d | Fox & Shaw 1994 |
| ``weighted`` | Σ weight · normalized score | |
| ``borda`` | Σ of points: n for the first of n documents, n − 1 for the second …; those a run lacks share the rest | Aslam & Montague 2001 |
| ``condorcet`` | documents that d beats in a majority of the runs, and half of those it ties with (Copeland's rule) | Montague & Aslam 2002 |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from toprank.compute import FloatArray
from toprank.fusion.ballots import Ballots
from toprank.fusion.normalizing import normalized

K = 60.0
"""Of ``rrf``, as Cormack, Clarke & Büttcher chose it."""
_ROWS = 1 << 20  # pairs of documents that are compared at a time


def reciprocal_ranks(ballots: Ballots, k: float = K) -> FloatArray:
    """Return 1 / (k + rank) of each document in each run; 0 if the run does not have it."""
    return np.where(ballots.there, 1.0 / (k + ballots.ranks), 0.0)


def _borda(ballots: Ballots) -> FloatArray:
    n = np.repeat(np.diff(ballots.offsets), np.diff(ballots.offsets))[:, None]
    ranked = ballots.over_queries(np.add, ballots.there.astype(np.float64))
    # A run that does not answer a query at all has no say there.
    points = np.where(ballots.there, n - (ballots.ranks - 1.0), (n - ranked + 1.0) / 2.0)
    total: FloatArray = np.where(ranked > 0, points, 0.0).sum(axis=1)
    return total


def _condorcet(ballots: Ballots) -> FloatArray:
    worst = np.iinfo(np.int64).max
    ranks = np.where(ballots.there, ballots.ranks, worst)
    out = np.zeros(len(ranks))
    for first, last in zip(ballots.offsets[:-1].tolist(), ballots.offsets[1:].tolist(), strict=True):
        own = ranks[first:last]
        step = max(1, _ROWS // len(own))
        for start in range(0, len(own), step):
            rows = own[start : start + step]
            votes = np.zeros((len(rows), len(own)), dtype=np.int64)
            for run in range(own.shape[1]):
                votes += np.sign(own[None, :, run] - rows[:, None, run])
            out[first + start : first + start + len(rows)] = (votes > 0).sum(axis=1) + (
                (votes == 0).sum(axis=1) - 1
            ) / 2
    return out


_OF_SCORES: dict[str, Callable[[Ballots, FloatArray], FloatArray]] = {
    "combsum": lambda _, scores: scores.sum(axis=1),
    "combmnz": lambda ballots, scores: scores.sum(axis=1) * ballots.there.sum(axis=1),
    "combmax": lambda ballots, scores: np.where(ballots.there, scores, -np.inf).max(axis=1),
    "combmin": lambda ballots, scores: np.where(ballots.there, scores, np.inf).min(axis=1),
}
OF_RANKS = ("rrf", "borda", "condorcet")
"""Methods that look at ranks alone, and so need no normalization."""
METHODS = ("rrf", *_OF_SCORES, "weighted", "borda", "condorcet", "learned")


def combined(
    ballots: Ballots, method: str, normalization: str, weights: Sequence[float] | None, k: float
) -> FloatArray:
    """One score for every pair; `weights` of the runs are for ``weighted``."""
    if method == "rrf":
        return np.asarray(reciprocal_ranks(ballots, k).sum(axis=1))
    if method == "borda":
        return _borda(ballots)
    if method == "condorcet":
        return _condorcet(ballots)
    scores = normalized(ballots, normalization)
    if method == "weighted":
        return scores @ np.asarray(weights, dtype=np.float64)
    return _OF_SCORES[method](ballots, scores)
