"""No caller of a division learns from what it is judged on, and the check notices if one does.

Features are random numbers, as many as there are documents, and labels are random. So a model that has seen a query
ranks it perfectly, and one that has not ranks it by chance: the out-of-fold quality tells both apart.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import toprank as tr
from toprank.data import division
from toprank.experiment import Experiment
from toprank.fusion import fuse
from toprank.model_selection.default import DEFAULT_SEARCH
from toprank.rankers import target_encoding
from toprank.search import blending
from toprank.search.training import RerankerTraining

N_QUERIES, SIZE, METRIC = 60, 3, "ndcg@1"
CHANCE = 1 / SIZE


def random_data(n_queries=N_QUERIES, n_features=N_QUERIES * SIZE + 20, seed=0):
    """One relevant document in each query, drawn at random."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([rng.permutation([1] + [0] * (SIZE - 1)) for _ in range(n_queries)])
    X = rng.normal(size=(len(labels), n_features))
    names = [f"order {number}" for number in range(n_features)]
    return tr.RankingData(X, labels, qid=np.repeat(np.arange(n_queries), SIZE), feature_names=names)


def quality(scores, data):
    return tr.evaluate(scores, data, METRIC).mean[METRIC]


LINEAR = tr.LinearRanker("ListNet", l2=1e-3, threads=1)


def of_grid():
    return tr.grid_search("ListNet", random_data(), metric=METRIC, alpha=1.0, l2=1e-3, threads=1).value


def of_tuning(**how):
    pytest.importorskip("optuna")
    return tr.tune(LINEAR, random_data(), space={"l2": [1e-3]}, n_trials=1, metric=METRIC, threads=1, **how).value


def of_auto(**how):
    options = {"time_budget": None, "max_trials": 1, **how}
    return tr.auto(random_data(), metric=METRIC, threads=1, verbose=False, **options).value


def of_experiment():
    results = Experiment(random_data(), {"linear": LINEAR}, metrics=METRIC, n_folds=3, threads=1).run(verbose=False)
    return results.pooled(METRIC)["linear"]


def of_search_blend():
    return blending.fit_blend(random_data(30, 110), METRIC, ["order 0"], 0, 1).value


def of_search_training():
    return (
        RerankerTraining("ListNet", (), METRIC, threads=1, options={"alpha": 1.0, "l2": 1e-3}).on(random_data()).value
    )


def of_search_evaluation(system, **options):
    data = random_data(30, 110)
    training = RerankerTraining(system, ("order 0",), METRIC, threads=1, options=options)
    return quality(training.cross_fit(data, 3).out_of_fold(data), data)


def of_fusion(method, n_queries, n_runs, **options):
    data = random_data(n_queries, n_runs, options.get("seed", 0))
    documents = np.arange(data.n_documents).astype(str)
    qids = data.qid.astype(str)
    qrels = {qid: {} for qid in qids}
    runs = {f"run {number}": {qid: {} for qid in qids} for number in range(n_runs)}
    for row, (qid, document) in enumerate(zip(qids, documents, strict=True)):
        qrels[qid][document] = int(data.labels[row])
        for number, run in enumerate(runs.values()):
            run[qid][document] = float(data.X[row, number])
    fused = fuse(runs, method, qrels=qrels, metric=METRIC, threads=1, **options)
    return tr.evaluate_run(qrels, fused, METRIC).mean[METRIC]


def of_fused_weights():
    """Weights of eight runs remember four queries at most, so the mean over several draws is looked at."""
    return np.mean([of_fusion("weighted", 4, 8, folds=2, seed=seed) for seed in range(12)])


def of_target_encoding():
    """A level for each grade of each query: its mean is the grade itself, if it has been seen."""
    rng = np.random.default_rng(0)
    grades = np.concatenate([rng.permutation([1, 0, 0]) for _ in range(N_QUERIES)]).repeat(2)
    qid = np.repeat(np.arange(N_QUERIES), 2 * SIZE)
    names = rng.permutation(10_000)[2 * qid + grades].astype(str)
    frame = pd.DataFrame({"qid": qid, "label": grades, "level": names})
    data = tr.RankingData.from_frame(frame, qid="qid", label="label")
    column = target_encoding.out_of_fold(data, data.encoding, [(0,)], 0)[:, 0]
    return quality(column, data)


def clicked_data():
    """Random data, and a log of clicks in which the relevant document of each query is clicked in every session."""
    data, rng = random_data(30, 110), np.random.default_rng(0)
    sessions = [SIZE * query + rng.permutation(SIZE) for _ in range(20) for query in range(data.n_queries)]
    shown = np.concatenate(sessions)
    ranks = np.tile(np.arange(1, SIZE + 1), len(sessions))
    log = tr.clicks.ClickLog.from_columns(
        data.qid[shown].astype(str), shown.astype(str), ranks, data.labels[shown] == 1
    )
    return data.replace(document_ids=np.arange(data.n_documents).astype(str)), log


def of_regression_of_clicks():
    evidence = pytest.importorskip("toprank.clicks.evidence")
    data, log = clicked_data()
    return quality(evidence.out_of_fold_regression(evidence.bind(log, data, propensities=np.ones(SIZE))), data)


def of_comparison_on_clicks():
    """DCG@10 of the single click is 1 at the first rank and 1/2 at the third; it is stretched to 1 and 0."""
    pytest.importorskip("toprank.clicks.evidence")
    data, log = clicked_data()
    options = {"correction": "snips", "propensities": np.ones(SIZE)}
    result = tr.clicks.train(LINEAR, log, data.replace(labels=np.zeros(data.n_documents)), **options)
    return 2 * result.to_dict()["dcg@10"]["naive"]["value"] - 1


CALLERS = {
    "grid": of_grid,
    "tune on a holdout": of_tuning,
    "tune on folds": lambda: of_tuning(folds=3),
    "auto": of_auto,
    "the default blend": lambda: of_auto(**DEFAULT_SEARCH),
    "Experiment": of_experiment,
    "the blend of a search index": of_search_blend,
    "search training": of_search_training,
    "search evaluation": lambda: of_search_evaluation("ListNet", alpha=1.0, l2=1e-3),
    "search evaluation of a blend": lambda: of_search_evaluation("blend"),
    "fusion by weights": of_fused_weights,
    "fusion by a ranker": lambda: of_fusion("learned", 24, 30, ranker=LINEAR, folds=3),
    "target encoding": of_target_encoding,
    "the regression of clicks": of_regression_of_clicks,
    "the comparison on held-out clicks": of_comparison_on_clicks,
}


@pytest.fixture
def few_rounds(monkeypatch):
    monkeypatch.setattr(blending, "_ROUNDS", (5,))


@pytest.mark.parametrize("caller", CALLERS)
def test_a_query_is_ranked_by_chance_unless_a_leak_is_planted(caller, monkeypatch, few_rounds):
    ask, honest = CALLERS[caller], division.select_round
    assert ask() < CHANCE + 0.3

    def leaking(data, masks):
        return honest(data, masks._replace(train=masks.train | masks.held_out))

    monkeypatch.setattr(division, "select_round", leaking)
    assert ask() > CHANCE + 0.4
