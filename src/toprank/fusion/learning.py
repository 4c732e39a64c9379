"""Fusion that learns from judgments: weights of a sum, or a ranker over the runs' scores and ranks.

No query is scored by what was learnt from its own judgments: queries are divided into folds, and each fold is scored by
what was learnt from the others. Queries without judgments are scored by the mean over the folds.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.folds import folds
from toprank.data.trec import Qrels
from toprank.errors import DataError
from toprank.fusion.ballots import Ballots
from toprank.fusion.combining import reciprocal_ranks
from toprank.fusion.normalizing import normalized
from toprank.metrics.evaluation import Judge
from toprank.metrics.parsing import parse

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

_STEPS = {2: 20, 3: 10, 4: 6}  # of each weight between 0 and 1, by the number of runs
_FEWEST = 4  # of more runs


class Learnt(NamedTuple):
    """Scores of all pairs, and how they came about."""

    scores: FloatArray
    sentence: str
    weights: tuple[tuple[float, ...], ...] = ()
    """Of each fold."""


def _data(ballots: Ballots, qrels: Qrels, features: FloatArray, names: tuple[str, ...]) -> RankingData:
    """Return the pairs as ranking data; a pair without a judgment, or with a grade below 0, is irrelevant."""
    qid = ballots.qids[ballots.query]
    labels = np.maximum(qrels.grades_of(qid, ballots.documents, 0.0), 0.0)
    return RankingData(features, labels, qid=qid, document_ids=ballots.documents, feature_names=names)


def _judged(data: RankingData, qrels: Qrels, k: int) -> RankingData:
    """Return the judged queries, of which there must be enough for k folds."""
    judged = np.isin(data.qids, qrels.qids)
    if judged.sum() < max(k, 3):
        raise DataError(
            f"The judgments are about {int(judged.sum())} of the queries that the runs answer; learning from them in "
            f"{k} folds takes at least {max(k, 3)}."
        )
    return data.select(judged)


def learnt_weights(ballots: Ballots, qrels: Qrels, normalization: str, metric: str, k: int, seed: int) -> Learnt:
    """Return a weighted sum; the weights of each fold are those on a grid that are best on the other folds."""
    scores = normalized(ballots, normalization)
    data = _judged(_data(ballots, qrels, scores, ballots.names), qrels, k)
    runs = len(ballots.names)
    grid, sign = simplex(runs, _STEPS.get(runs, _FEWEST)), 1 if parse(metric).higher_is_better else -1
    judge = Judge(data, metric).for_choosing()
    values = np.array([sign * judge.per_query(data.X @ weights) for weights in grid])
    chosen: dict[Any, FloatArray] = {}
    best = []
    for fold in folds(data, k, seed=seed):
        others = ~np.isin(data.qids, fold.test.qids)
        weights = grid[int(np.argmax(np.nanmean(values[:, others], axis=1)))]
        best.append(tuple(weights.tolist()))
        chosen |= dict.fromkeys(fold.test.qids.tolist(), weights)
    middle = np.mean(best, axis=0)
    by_query = np.array([chosen.get(qid, middle) for qid in ballots.qids.tolist()])
    shown = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(ballots.names, middle, strict=True))
    sentence = f"Weights by {metric} on the other folds, {normalization}; on average {shown}."
    return Learnt(np.einsum("ij,ij->i", scores, by_query[ballots.query]), sentence, tuple(best))


def simplex(members: int, steps: int) -> FloatArray:
    """Return all weights of so many members that are multiples of 1 / `steps` and add up to 1.

    >>> simplex(2, 2).tolist()
    [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]
    """
    whole = (parts for parts in product(range(steps + 1), repeat=members - 1) if sum(parts) <= steps)
    return np.array([[*parts, steps - sum(parts)] for parts in whole], dtype=np.float64) / steps


def learnt_order(
    ballots: Ballots, qrels: Qrels, system: str | Ranker, metric: str, k: int, seed: int, threads: int | None
) -> Learnt:
    """Return scores by a ranker over scores and ranks; validation queries of each fold choose hyper-parameters."""
    from toprank.choosing.grid import select
    from toprank.rankers.estimator import unfitted

    columns = [normalized(ballots, name) for name in ("none", "min-max", "z-score")]
    reciprocal = reciprocal_ranks(ballots)
    features = np.column_stack([*columns, reciprocal, ballots.there, reciprocal.sum(axis=1)])
    of_run = ("score", "min-max", "z-score", "reciprocal rank", "there")
    names = (*(f"{run} {what}" for what in of_run for run in ballots.names), "rrf")
    data = _data(ballots, qrels, features, names)
    k = max(k, 3)  # one fold judges, one chooses, the others train
    judged = _judged(data, qrels, k)
    total, count = np.zeros(data.n_documents), np.zeros(data.n_documents)
    for fold in folds(judged, k, seed=seed):
        if isinstance(system, str):
            ranker = select(system, fold.train, fold.valid, metric=metric, threads=threads).ranker
        else:
            ranker = unfitted(system).fit(fold.train, valid=fold.valid)
        scores = ranker.predict(data)
        own = data.queries.spread(np.isin(data.qids, fold.test.qids))
        nobody = data.queries.spread(~np.isin(data.qids, judged.qids))
        total[own | nobody] += scores[own | nobody]
        count[own | nobody] += 1
    called = system if isinstance(system, str) else type(system).__name__
    sentence = (
        f"{called} over scores and ranks of {len(ballots.names)} runs, each fold scored by a ranker trained on the "
        "others."
    )
    return Learnt(total / count, sentence)
