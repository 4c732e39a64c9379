"""scikit-learn's own checks, and the pieces of its workflow that people use."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import toprank as tr
from toprank.rankers.base import ConvergenceWarning

RANKERS = [
    tr.LinearRanker(),
    tr.LinearRanker("Squared"),
    tr.ExpectedGainRanker(),
    tr.TreeRanker(n_trees=3, threads=1),
    tr.TreeRanker("Multinomial", outputs="grades", n_trees=3, threads=1),
    tr.NeuralRanker("ListNet", hidden=(8,), epochs=2, device="cpu", threads=1),
    tr.NeuralRanker("ListNet", network="attention", width=8, n_heads=2, n_layers=1, epochs=2, device="cpu", threads=1),
    tr.AdaRank(max_rounds=3),
    tr.RankBoost(max_rounds=3),
    tr.CoordinateAscent(restarts=1, max_cycles=1, steps=2),
    tr.BlendRanker([tr.LinearRanker(), tr.TreeRanker(n_trees=3, threads=1)]),
]
PROBABILITIES = "the check takes whatever has predict_proba for a classifier and asks for its classifier tags"


SET = "scores by attention depend on the other documents of the query, so a part of the rows scores otherwise"


def expected_failures(ranker):
    if getattr(ranker, "network", None) == "attention":
        return {"check_methods_subset_invariance": SET}
    if isinstance(ranker, tr.ExpectedGainRanker) or getattr(ranker, "outputs", None) == "grades":
        return {"check_estimator_sparse_array": PROBABILITIES, "check_estimator_sparse_matrix": PROBABILITIES}
    return {}


@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConstantScoresWarning")
@parametrize_with_checks(RANKERS, expected_failed_checks=expected_failures)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=60, n_documents=(3, 12), n_features=4, n_grades=3, seed=0)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_qid_is_routed_through_search_and_validation(data, routing):
    search = GridSearchCV(
        tr.LinearRanker(), {"l2": [1e-3, 10.0]}, cv=GroupKFold(3), scoring=tr.scorer("map"), error_score="raise"
    )
    search.fit(data.X, data.labels, qid=data.qid, groups=data.qid)
    assert search.best_params_["l2"] in (1e-3, 10.0)
    parts = list(GroupKFold(3).split(data.X, groups=data.qid))
    wanted = []
    for train, test in parts:
        ranker = tr.LinearRanker(l2=1e-3).fit(data.X[train], data.labels[train], qid=data.qid[train])
        scores = ranker.predict(data.X[test])
        wanted.append(tr.evaluate(scores, data.labels[test], "map", qid=data.qid[test]).mean["map"])
    row = search.cv_results_["params"].index({"l2": 1e-3})
    found = [search.cv_results_[f"split{i}_test_score"][row] for i in range(3)]
    np.testing.assert_allclose(found, wanted)
    by_default = cross_val_score(
        tr.LinearRanker(), data.X, data.labels, cv=GroupKFold(3), params={"qid": data.qid, "groups": data.qid}
    )
    assert len(by_default) == 3


def test_pipeline_and_clone(data, routing):
    pipeline = make_pipeline(MinMaxScaler(), tr.LinearRanker("ListNet", l2=0.1))
    pipeline.fit(data.X, data.labels, qid=data.qid)
    assert pipeline.predict(data.X).shape == (data.n_documents,)
    ranker = tr.LinearRanker(tr.losses.ListNet(alpha=2.0), l2=[1.0, 0.1])
    copy = clone(ranker)
    assert copy.get_params()["loss"] == ranker.loss
    assert copy is not ranker


def test_scattered_rows_train_the_same_model(data):
    order = np.random.default_rng(0).permutation(data.n_documents)
    here = tr.LinearRanker().fit(data.X, data.labels, qid=data.qid)
    there = tr.LinearRanker().fit(data.X[order], data.labels[order], qid=data.qid[order])
    np.testing.assert_allclose(here.coef_, there.coef_, atol=1e-7)


def test_frames_are_checked_by_name(data):
    import pandas as pd

    frame = pd.DataFrame(data.X, columns=["a", "b", "c", "d"])
    ranker = tr.LinearRanker().fit(frame, data.labels, qid=data.qid)
    assert ranker.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(ranker.predict(frame), ranker.predict(data.replace(feature_names=list("abcd"))))
    with pytest.raises(ValueError, match="feature names"):
        ranker.predict(frame[["b", "a", "c", "d"]])


def test_a_scorer_for_an_error_measure_is_negated(data):
    ranker = tr.LinearRanker().fit(data.X, data.labels, qid=data.qid)
    value = tr.scorer("owa")(ranker, data.X, data.labels, qid=data.qid)
    assert value == -tr.evaluate(ranker.predict(data.X), data, "owa").mean["owa"]


def test_an_unfinished_fit_warns(data):
    with pytest.warns(ConvergenceWarning, match="Not converged"):
        tr.LinearRanker("Logistic", l2=1e-9, max_iterations=1).fit(data)
