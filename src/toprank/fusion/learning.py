"""Fusion that learns from judgments: weights of a sum, or a ranker over the runs' scores and ranks.

Scores are out of fold: queries are divided into folds, and each fold is scored by the model fitted on the others.
Queries without judgments are scored by the mean over the folds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.division import cross_fit
from toprank.data.folds import divided_in_folds
from toprank.data.queries import Queries
from toprank.data.trec import Qrels
from toprank.errors import DataError
from toprank.evaluation.scores import BoundMetric
from toprank.fusion.combination import reciprocal_ranks
from toprank.fusion.normalization import normalize
from toprank.fusion.query_runs import QueryRuns
from toprank.model_selection.weights import best_weights, simplex
from toprank.rankers.base import Ranker

_STEPS = {2: 20, 3: 10, 4: 6}  # of each weight between 0 and 1, by the number of runs
_FEWEST = 4  # of more runs


class LearnedScores(NamedTuple):
    """Scores of all pairs, and how they came about.

    Attributes:
        weights: of each fold.
    """

    scores: FloatArray
    sentence: str
    weights: tuple[tuple[float, ...], ...] = ()


def _data(query_runs: QueryRuns, qrels: Qrels, features: FloatArray, names: tuple[str, ...]) -> RankingData:
    """Return the pairs as ranking data; a pair without a judgment, or with a grade below 0, is irrelevant."""
    qid = query_runs.qids[query_runs.query]
    labels = np.maximum(qrels.grades_of(qid, query_runs.documents, 0.0), 0.0)
    return RankingData(features, labels, qid=qid, document_ids=query_runs.documents, feature_names=names)


def _judged(data: RankingData, qrels: Qrels, k: int) -> RankingData:
    """Return the judged queries, of which there must be enough for k folds."""
    judged = np.isin(data.qids, qrels.qids)
    if judged.sum() < max(k, 3):
        raise DataError(
            f"The judgments are about {int(judged.sum())} of the queries that the runs answer; learning from them in "
            f"{k} folds takes at least {max(k, 3)}."
        )
    return data.select(judged)


class FusionLearning(NamedTuple):
    """How a fusion learns: the system or ranker of `learned`, the metric to choose by, and the folds."""

    ranker: str | Ranker
    metric: str
    n_folds: int
    seed: int = 0
    threads: int | None = None


def learned_weights(query_runs: QueryRuns, qrels: Qrels, normalization: str, learning: FusionLearning) -> LearnedScores:
    """Return a weighted sum; the weights of each fold are those on a grid that are best on the other folds."""
    scores = normalize(query_runs, normalization)
    metric, n_runs = learning.metric, len(query_runs.names)
    data = _judged(_data(query_runs, qrels, scores, query_runs.names), qrels, learning.n_folds)
    grid = simplex(n_runs, _STEPS.get(n_runs, _FEWEST))
    judge = BoundMetric(data, metric).for_selection()
    sign = 1 if judge.higher_is_better else -1
    values = np.array([sign * judge.per_query(data.X @ weights) for weights in grid])
    division = divided_in_folds(data, learning.n_folds, seed=learning.seed)
    fitted = cross_fit(
        _WeighedQueries(data.queries, values),
        division,
        lambda train, _: grid[best_weights(train.values)],
        lambda weights, _: weights,
    )
    chosen = {
        qid: weights
        for weights, round in zip(fitted.models, division.rounds, strict=True)
        for qid in data.qids[round.held_out].tolist()
    }
    middle = np.mean(fitted.models, axis=0)
    by_query = np.array([chosen.get(qid, middle) for qid in query_runs.qids.tolist()])
    shown = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(query_runs.names, middle, strict=True))
    sentence = f"Weights by {metric} on the other folds, {normalization}; on average {shown}."
    best = tuple(tuple(weights.tolist()) for weights in fitted.models)
    return LearnedScores(np.einsum("ij,ij->i", scores, by_query[query_runs.query]), sentence, best)


class _WeighedQueries(NamedTuple):
    """The value of each weighting of the runs, a row of queries for each, for `cross_fit`."""

    queries: Queries
    values: FloatArray

    def select(self, which: npt.ArrayLike) -> _WeighedQueries:
        """Return the values of some queries, by a mask."""
        return self._replace(values=self.values[:, np.asarray(which)])


def learned_order(query_runs: QueryRuns, qrels: Qrels, learning: FusionLearning) -> LearnedScores:
    """Return scores by a ranker over scores and ranks; validation queries of each fold choose hyper-parameters."""
    from toprank.model_selection.grid import choose

    columns = [normalize(query_runs, name) for name in ("none", "min-max", "z-score")]
    reciprocal = reciprocal_ranks(query_runs)
    features = np.column_stack([*columns, reciprocal, query_runs.is_retrieved, reciprocal.sum(axis=1)])
    kinds = ("score", "min-max", "z-score", "reciprocal rank", "there")
    names = (*(f"{run} {what}" for what in kinds for run in query_runs.names), "rrf")
    data = _data(query_runs, qrels, features, names)
    k, system = (
        max(learning.n_folds, 3),
        learning.ranker,
    )  # one fold is held out, one chooses hyper-parameters, the others train
    judged = _judged(data, qrels, k)

    division = divided_in_folds(judged, k, seed=learning.seed, validation=True)
    by_fold = cross_fit(
        judged,
        division,
        lambda train, valid: choose(system, train, valid, metric=learning.metric, threads=learning.threads),
        lambda choice, part: choice.ranker.predict(part),
    )
    has_judgments = np.isin(data.qids, judged.qids)
    scores = np.empty(data.n_documents)
    scores[data.queries.broadcast(has_judgments)] = by_fold.out_of_fold(judged)
    if not has_judgments.all():
        rest = data.select(~has_judgments)
        scores[data.queries.broadcast(~has_judgments)] = np.mean(
            [choice.ranker.predict(rest) for choice in by_fold.models], axis=0
        )
    called = system if isinstance(system, str) else type(system).__name__
    sentence = (
        f"{called} over scores and ranks of {len(query_runs.names)} runs, each fold scored by a ranker trained on the "
        "others."
    )
    return LearnedScores(scores, sentence)
