"""Supervised fusion: cross-validated weights, or a ranker trained on scores and ranks of the runs.

Scores of judged queries are out of fold. Queries without judgments get the mean score of the models of all folds.
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

_N_STEPS = {2: 20, 3: 10, 4: 6}  # grid steps of each weight, by the number of runs
_MIN_STEPS = 4  # for more runs


class LearnedScores(NamedTuple):
    """Fused scores of all pairs.

    Attributes:
        scores: fused scores.
        sentence: description of the fusion.
        weights: weights of the runs, by fold.
    """

    scores: FloatArray
    sentence: str
    weights: tuple[tuple[float, ...], ...] = ()


def _data(query_runs: QueryRuns, qrels: Qrels, features: FloatArray, names: tuple[str, ...]) -> RankingData:
    """Return the pairs as ranking data; unjudged pairs and negative grades count as irrelevant."""
    qid = query_runs.qids[query_runs.query]
    labels = np.maximum(qrels.grades_of(qid, query_runs.documents, 0.0), 0.0)
    return RankingData(features, labels, qid=qid, document_ids=query_runs.documents, feature_names=names)


def _judged(data: RankingData, qrels: Qrels, k: int) -> RankingData:
    """Return the judged queries; raise an error if there are too few for k folds."""
    judged = np.isin(data.qids, qrels.qids)
    if judged.sum() < max(k, 3):
        raise DataError(
            f"Queries of the runs with judgments: {int(judged.sum())}, but cross-validation in {k} folds needs at "
            f"least {max(k, 3)}. Judge more queries, or reduce folds."
        )
    return data.select(judged)


class FusionLearning(NamedTuple):
    """Settings of supervised fusion: ranker of ``learned``, metric for selection, and folds."""

    ranker: str | Ranker
    metric: str
    n_folds: int
    seed: int = 0
    threads: int | None = None


def learned_weights(query_runs: QueryRuns, qrels: Qrels, normalization: str, learning: FusionLearning) -> LearnedScores:
    """Return weighted sums; the weights of each fold are the best grid point on the other folds."""
    scores = normalize(query_runs, normalization)
    metric, n_runs = learning.metric, len(query_runs.names)
    data = _judged(_data(query_runs, qrels, scores, query_runs.names), qrels, learning.n_folds)
    grid = simplex(n_runs, _N_STEPS.get(n_runs, _MIN_STEPS))
    judge = BoundMetric(data, metric).for_selection()
    sign = 1 if judge.higher_is_better else -1
    values = np.array([sign * judge.per_query(data.X @ weights) for weights in grid])
    division = divided_in_folds(data, learning.n_folds, seed=learning.seed)
    fitted = cross_fit(
        _GridValues(data.queries, values),
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
    sentence = f"Weights chosen by {metric} on the other folds, {normalization}; mean weights {shown}."
    best = tuple(tuple(weights.tolist()) for weights in fitted.models)
    return LearnedScores(np.einsum("ij,ij->i", scores, by_query[query_runs.query]), sentence, best)


class _GridValues(NamedTuple):
    """Metric values by grid point (rows) and query (columns), in the form that `cross_fit` needs."""

    queries: Queries
    values: FloatArray

    def select(self, which: npt.ArrayLike) -> _GridValues:
        """Select queries by mask."""
        return self._replace(values=self.values[:, np.asarray(which)])


def learned_order(query_runs: QueryRuns, qrels: Qrels, learning: FusionLearning) -> LearnedScores:
    """Return predictions of a ranker trained on scores and ranks, with hyperparameters chosen by validation."""
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
    )  # one fold for evaluation, one for validation, the others for training
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
    sentence = f"{called} trained on scores and ranks of {len(query_runs.names)} runs; scores are out of fold."
    return LearnedScores(scores, sentence)
