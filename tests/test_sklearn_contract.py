"""scikit-learn's own checks, and the pieces of its workflow that people use."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

import toprank as tr
from toprank.data.warnings import OneQueryWarning
from toprank.rankers.base import ConvergenceWarning

SMALL_TREES = tr.TreeRanker(n_trees=3, threads=1)  # finds no split in the few rows of a check
RANKERS = [
    tr.LinearRanker(),
    tr.LinearRanker("Squared"),
    tr.ExpectedGainRanker(),
    SMALL_TREES,
    tr.TreeRanker("Multinomial", outputs="grades", n_trees=3, threads=1),
    tr.NeuralRanker("ListNet", hidden=(8,), epochs=2, device="cpu", threads=1),
    tr.NeuralRanker("ListNet", network="attention", width=8, n_heads=2, n_layers=1, epochs=2, device="cpu", threads=1),
    tr.AdaRank(max_rounds=3),
    tr.RankBoost(max_rounds=3),
    tr.CoordinateAscent(restarts=1, max_cycles=1, steps=2),
    tr.BlendRanker([tr.LinearRanker(), tr.TreeRanker(n_trees=3, threads=1)]),
    tr.AutoRanker(
        time_budget=None, max_trials=2, threads=1
    ),  # falls back to the default system: the checks have one query
]
PROBABILITIES = "the check takes whatever has predict_proba for a classifier and asks for its classifier tags"


SET = "scores by attention depend on the other documents of the query, so a part of the rows scores otherwise"


WEIGHTS = "a document with weight 2 is not two documents: in a list of one more, every rank and every pair is another"


NO_WEIGHTS = "the metric of a whole ranking knows no weights of documents, so weights that differ are refused"


def expected_failures(ranker):
    by_document = ranker is SMALL_TREES or getattr(ranker, "outputs", None) == "grades"
    kinds = [] if by_document else ["dense", "sparse"] if ranker.supports_sparse else ["dense"]
    return {f"check_sample_weight_equivalence_on_{kind}_data": WEIGHTS for kind in kinds} | other_failures(ranker)


def other_failures(ranker):
    if getattr(ranker, "network", None) == "attention":
        return {"check_methods_subset_invariance": SET}
    if isinstance(ranker, tr.ExpectedGainRanker) or getattr(ranker, "outputs", None) == "grades":
        return {"check_estimator_sparse_array": PROBABILITIES, "check_estimator_sparse_matrix": PROBABILITIES}
    if isinstance(ranker, tr.AdaRank | tr.CoordinateAscent):
        return {"check_sample_weights_not_overwritten": NO_WEIGHTS}
    return {}


with warnings.catch_warnings():  # rankers keep the contract without its base class, so that they import nothing of it
    warnings.filterwarnings("ignore", "Estimator .* does not inherit from `sklearn.base.BaseEstimator`")
    CHECKS = parametrize_with_checks(RANKERS, expected_failed_checks=expected_failures)


@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConstantScoresWarning")
@pytest.mark.filterwarnings("ignore::toprank.model_selection.default.TooFewQueriesWarning")
@CHECKS
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
        tr.LinearRanker(), {"l2": [1e-3, 10.0]}, cv=GroupKFold(3), scoring=tr.make_scorer("map"), error_score="raise"
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


def test_searches_with_weights_need_no_word_about_the_score(data, routing):
    weights = np.random.default_rng(0).uniform(0.5, 2.0, data.n_documents)
    search = GridSearchCV(tr.LinearRanker("Squared"), {"l2": [1e-3, 10.0]}, cv=GroupKFold(3), error_score="raise")
    search.fit(data.X, data.labels, qid=data.qid, groups=data.qid, sample_weight=weights)
    by_hand = tr.LinearRanker("Squared", **search.best_params_)
    by_hand.fit(data.X, data.labels, qid=data.qid, sample_weight=weights)
    assert np.array_equal(search.best_estimator_.coef_, by_hand.coef_)


def test_searches_validate_a_pipeline_with_weights_to_the_same_numbers(data, routing):
    weights = np.random.default_rng(0).uniform(0.5, 2.0, data.n_documents)
    pipeline = make_pipeline(
        tr.QueryContextFeatures(["rank"]).set_output(transform="pandas"), tr.LinearRanker("Squared")
    )
    grid = {"linearranker__l2": [1e-3, 10.0], "querycontextfeatures__keep": [True, False]}
    search = GridSearchCV(pipeline, grid, cv=GroupKFold(3), scoring=tr.make_scorer("map"), error_score="raise")
    search.fit(data.X, data.labels, qid=data.qid, groups=data.qid, sample_weight=weights)
    train, test = next(GroupKFold(3).split(data.X, groups=data.qid))
    pool = tr.QueryContextFeatures(["rank"])
    wide = pool.fit_transform(data.X[train], qid=data.qid[train])
    ranker = tr.LinearRanker("Squared", l2=1e-3)
    ranker.fit(wide, data.labels[train], qid=data.qid[train], sample_weight=weights[train])
    scores = ranker.predict(pool.transform(data.X[test], qid=data.qid[test]))
    wanted = tr.evaluate(scores, data.labels[test], "map", qid=data.qid[test]).mean["map"]
    row = search.cv_results_["params"].index({"linearranker__l2": 1e-3, "querycontextfeatures__keep": True})
    assert search.cv_results_["split0_test_score"][row] == pytest.approx(wanted)


def test_weights_and_sizes_of_queries_are_those_of_the_data(data):
    weights = np.random.default_rng(0).uniform(0.5, 2.0, data.n_documents)
    wanted = tr.LinearRanker("Squared").fit(data.replace(document_weights=weights)).coef_
    given = (data.X, data.labels)
    for more in ({"qid": data.qid}, {"group": data.queries.sizes}, {"group": data.queries.sizes.tolist()}):
        ranker = tr.LinearRanker("Squared").fit(*given, sample_weight=weights, **more)
        np.testing.assert_array_equal(ranker.coef_, wanted)
    assert not np.array_equal(tr.LinearRanker("Squared").fit(*given, group=data.queries.sizes).coef_, wanted)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"group": [3, 4]}, "that sum to the number of rows, .*cross-validation.*np.repeat"),
        ({"group": [0.5]}, "group must contain the number of rows"),
        ({"group": [3], "qid": [1]}, "group and qid both define"),
        ({"sample_weight": [1.0]}, "1 document_weights for"),
    ],
)
def test_weights_and_sizes_that_do_not_fit_are_refused(data, more, message):
    with pytest.raises(tr.ToprankError, match=message):
        tr.LinearRanker().fit(data.X, data.labels, **({"qid": data.qid} | more if "group" not in more else more))
    with pytest.raises(tr.ToprankError, match=r"group and qid both|contain their weights|contain their labels"):
        tr.LinearRanker().fit(data, **more)


def test_requests_are_set_and_cloned(routing):
    ranker = tr.LinearRanker("ListNet", l2=0.5).set_fit_request(sample_weight=False).set_score_request(qid="queries")
    for one in (ranker, clone(ranker), copy.deepcopy(ranker), pickle.loads(pickle.dumps(ranker))):
        request = one.get_metadata_routing()
        assert request.fit.requests["sample_weight"] is False
        assert request.score.requests["qid"] == "queries"
        assert repr(one) == repr(ranker)
    with pytest.raises(TypeError, match="nonsense"):
        ranker.set_fit_request(nonsense=True)


def test_parameters_within_parameters():
    blend = tr.BlendRanker([tr.LinearRanker(l2=2.0)])
    assert blend.get_params()["rankers"] is blend.rankers
    assert clone(blend).rankers[0] is not blend.rankers[0]
    naive = tr.ExpectedGainRanker(classifier=GaussianNB())
    assert naive.set_params(classifier__var_smoothing=0.5).get_params()["classifier__var_smoothing"] == 0.5
    with pytest.raises(ValueError, match=r"Invalid parameter 'l3'.*Valid parameters are"):
        tr.LinearRanker().set_params(l3=1)


def test_what_is_not_fitted_says_so_in_scikit_learns_class(data):
    for ranker in (tr.LinearRanker(), tr.TreeRanker()):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            ranker.predict(data)
        with pytest.raises(NotFittedError):
            check_is_fitted(ranker)
    check_is_fitted(tr.LinearRanker("Squared").fit(data))
    assert "LinearRanker" in tr.LinearRanker()._repr_html_()


@pytest.mark.parametrize("scoring", [None, tr.make_scorer("map")])
def test_a_forgotten_qid_is_one_error_and_not_a_warning_for_each_fold(scoring):
    data = tr.synthetic(n_queries=60, seed=0)
    given = (data.X, data.labels)
    search = GridSearchCV(tr.LinearRanker(), {"l2": [0.1, 1.0]}, scoring=scoring, cv=3)
    with pytest.raises(ValueError, match=r"(?s)All the 6 fits failed.*passed no qid to fit") as told:
        search.fit(*given)
    assert str(told.value).count("set_config(enable_metadata_routing=True) first") == 1
    search.set_params(error_score="raise")
    missing = "received no qid" if scoring is None else "called without qid"
    with pytest.raises(tr.ToprankError, match=rf"{missing}.*set_config\(enable_metadata_routing=True\)"):
        search.fit(*given, qid=data.qid)
    with pytest.raises(ValueError, match=r"(?s)All the 3 fits failed.*passed no qid to fit"):
        cross_val_score(tr.LinearRanker(), *given, cv=3, scoring=scoring)


def test_a_search_warns_once(data, routing):
    hasty = tr.LinearRanker("Logistic", l2=1e-9, max_iterations=1)
    search = GridSearchCV(hasty, {"l2": [1e-9, 1e-8]}, cv=GroupKFold(3))
    with pytest.warns(ConvergenceWarning) as told:
        search.fit(data.X, data.labels, qid=data.qid, groups=data.qid)
    assert len(told) == 1
    with pytest.warns(ConvergenceWarning):  # outside of it, each fit
        hasty.fit(data)
    with pytest.warns(ConvergenceWarning):
        hasty.fit(data)


def test_only_clones_need_the_queries_of_many_rows_and_warn_once():
    """What a ranker does depends on itself, not on who calls it: no call frame is looked at."""
    data = tr.synthetic(n_queries=1, n_documents=(201, 201), seed=0)
    given = (data.X, data.labels)
    ranker = tr.LinearRanker()
    for _ in range(2):
        with pytest.warns(OneQueryWarning):
            ranker.fit(*given)
    with pytest.raises(tr.ToprankError, match="passed no qid to fit"):
        clone(ranker).fit(*given)
    assert np.array_equal(clone(ranker).fit(*given, qid=np.zeros(201, dtype=int)).coef_, ranker.coef_)
    clone(ranker).fit(data.X[:200], data.labels[:200])
    hasty = tr.BlendRanker([tr.LinearRanker("Logistic", l2=1e-9, max_iterations=1)])
    many = tr.synthetic(n_queries=30, seed=0)
    with pytest.warns(ConvergenceWarning):
        clone(hasty).fit(many)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(clone(hasty)).fit(many)
    with pytest.warns(ConvergenceWarning):
        hasty.fit(many)
    strays = [
        path.name for path in (Path(tr.__file__).parent / "rankers").rglob("*.py") if "_getframe" in path.read_text()
    ]
    assert not strays


def test_rankers_do_not_import_scikit_learn(tmp_path):
    """Training trees does: LightGBM imports it where it is installed. Scoring by trees does not."""
    code = """
import sys, numpy as np, toprank as tr
X, y, qid = np.random.rand(60, 3), np.arange(60) % 3, np.arange(60) // 6
data = tr.RankingData(X, y, qid=qid)
for ranker in (tr.LinearRanker("Squared"), tr.ExpectedGainRanker(), tr.BlendRanker([tr.LinearRanker("Squared")])):
    ranker.fit(X, y, qid=qid).predict(X)
    ranker.fit(data, valid=(X + 1, y, qid)).score(data)
    ranker.save("model.toprank"), tr.load("model.toprank").predict(data), repr(ranker), hasattr(ranker, "nothing")
tr.grid_search("RankSVM", data, data.select([0, 1])), tr.make_scorer("map"), tr.load("trees.toprank").predict(data)
print([name for name in sys.modules if name.startswith("sklearn")])
"""
    made = tr.synthetic(n_queries=10, n_features=3, seed=0)
    tr.TreeRanker(n_trees=2, min_data_in_leaf=2, threads=1).fit(made).save(tmp_path / "trees.toprank")
    command = [sys.executable, "-W", "ignore", "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert out.stdout.strip() == "[]", out.stderr


NAMED_MODELS = {
    "linear": tr.LinearRanker("Squared"),
    "AdaRank": tr.AdaRank(max_rounds=3),
    "trees": tr.TreeRanker(n_trees=3, threads=1),
}


@pytest.mark.parametrize("name", NAMED_MODELS)
def test_arrays_are_scored_by_models_of_named_columns_without_scikit_learn(data, name, tmp_path):
    """An array has no names: its columns are those of training, in their order."""
    import pandas as pd

    ranker, frame = NAMED_MODELS[name], pd.DataFrame(data.X, columns=list("abcd"))
    ranker.fit(frame, data.labels, qid=data.qid).save(tmp_path / "m.toprank")
    np.save(tmp_path / "X.npy", data.X)
    code = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "sklearn":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refused())
import numpy as np, toprank as tr
X, ranker = np.load("X.npy"), tr.load("m.toprank")
np.save("scores.npy", ranker.predict(X))
for wrong in (X[:, :3], np.hstack([X, X])):
    try:
        ranker.predict(wrong)
    except tr.errors.DataError as problem:
        assert f"X has {wrong.shape[1]} features, but" in str(problem), problem
    else:
        raise AssertionError
"""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), ranker.predict(frame))


def test_frames_are_scored_by_models_without_names_by_place(data):
    import pandas as pd

    ranker = tr.LinearRanker().fit(data.X, data.labels, qid=data.qid)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = ranker.predict(pd.DataFrame(data.X, columns=list("abcd")))
    np.testing.assert_array_equal(scores, ranker.predict(data.X))


def test_permutation_importance_of_scikit_learn_by_a_metric_of_queries(data):
    """It passes no qid on, so the scorer holds it; a shuffled feature is scored as by hand."""
    from functools import partial

    from sklearn.inspection import permutation_importance

    ranker = tr.LinearRanker().fit(data.X, data.labels, qid=data.qid)
    scoring = partial(tr.make_scorer("ndcg@10"), qid=data.qid)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = permutation_importance(ranker, data.X, data.labels, scoring=scoring, n_repeats=2, random_state=0)

    def value(X):
        return tr.evaluate(ranker.predict(X), data.labels, "ndcg@10", qid=data.qid).mean["ndcg@10"]

    rng = np.random.RandomState(np.random.RandomState(0).randint(np.iinfo(np.int32).max + 1))
    shuffled, order = data.X.copy(), np.arange(data.n_documents)
    for repeat in range(2):
        rng.shuffle(order)
        shuffled[:, 0] = shuffled[order, 0]
        np.testing.assert_allclose(found.importances[0, repeat], value(data.X) - value(shuffled))
    with pytest.raises(ValueError, match=r"functools\.partial"):
        permutation_importance(ranker, data.X, data.labels, scoring=tr.make_scorer("ndcg@10"), n_repeats=2)


def test_partial_dependence_of_scikit_learn_refuses_rankers(data):
    """A ranker is neither of the two kinds that it takes; rankers have `tr.explanations.partial_dependence`."""
    from sklearn.inspection import partial_dependence

    ranker = tr.LinearRanker().fit(data.X, data.labels, qid=data.qid)
    with pytest.raises(ValueError, match="must be a fitted regressor or classifier"):
        partial_dependence(ranker, data.X, [0])


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
    np.testing.assert_array_equal(ranker.predict(frame[["b", "a", "d", "c"]]), ranker.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        ranker.predict(frame.rename(columns={"a": "e"}))


def test_a_scorer_for_an_error_measure_is_negated(data):
    ranker = tr.LinearRanker().fit(data.X, data.labels, qid=data.qid)
    value = tr.make_scorer("owa")(ranker, data.X, data.labels, qid=data.qid)
    assert value == -tr.evaluate(ranker.predict(data.X), data, "owa").mean["owa"]


def test_an_unfinished_fit_warns(data):
    with pytest.warns(ConvergenceWarning, match="Not converged"):
        tr.LinearRanker("Logistic", l2=1e-9, max_iterations=1).fit(data)
