"""Weights are used, or refused; what weighs nothing changes nothing."""

import numpy as np
import pytest

import toprank as tr
from toprank.errors import DataError
from toprank.rankers.base import ConstantScoresWarning

NEURAL = {"hidden": (4,), "epochs": 2, "device": "cpu", "threads": 1}
LEARNERS = {
    "AdaRank": tr.AdaRank(max_rounds=20),
    "RankBoost": tr.RankBoost(max_rounds=5),
    "CoordinateAscent": tr.CoordinateAscent(restarts=1, max_cycles=2),
    "linear": tr.LinearRanker("ListNet"),
    "linear lambdas": tr.LinearRanker("LambdaRank", max_iterations=3),
    "expected gain": tr.ExpectedGainRanker("Multinomial"),
    "expected gain of a score": tr.ExpectedGainRanker("Squared", max_iterations=3),
    "trees": tr.TreeRanker("LambdaRank", n_trees=3, threads=1),
    "trees of grades": tr.TreeRanker("Multinomial", outputs="grades", n_trees=2, threads=1),
    "trees of LightGBM": tr.TreeRanker("lightgbm:lambdarank", n_trees=2, threads=1),
    "network of grades": tr.NeuralRanker("Multinomial", outputs="grades", **NEURAL),
    "blend": tr.BlendRanker([tr.AdaRank(max_rounds=5), tr.CoordinateAscent(restarts=1, max_cycles=1)]),
}
quiet = pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConvergenceWarning")


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=40, n_documents=(8, 14), n_features=4, n_grades=3, seed=3)


@pytest.fixture(scope="module")
def half(data):
    """Query weights: every second query weighs nothing."""
    return np.where(np.arange(data.n_queries) % 2 == 0, 1.5, 0.0)


@quiet
@pytest.mark.parametrize("name", LEARNERS)
def test_labels_of_queries_that_weigh_nothing_change_nothing(data, half, name):
    reverse = np.where(data.queries.broadcast(half) > 0, data.labels, data.labels.max() - data.labels)
    scores = [
        LEARNERS[name].fit(data.replace(labels=labels, query_weights=half)).predict(data)
        for labels in (data.labels, reverse)
    ]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-9, atol=1e-12)
    unweighted = LEARNERS[name].fit(data).predict(data)
    assert not np.allclose(scores[0], unweighted)  # and the weights were looked at


@quiet
@pytest.mark.parametrize("name", ["expected gain", "trees of grades", "network of grades"])
def test_labels_of_documents_that_weigh_nothing_change_nothing(data, name):
    weights = (np.arange(data.n_documents) % 3 > 0).astype(float)
    other = np.where(weights > 0, data.labels, data.labels.max() - data.labels)
    scores = [
        LEARNERS[name].fit(data.replace(labels=labels, document_weights=weights)).predict(data)
        for labels in (data.labels, other)
    ]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("calibration", [None, "sigmoid"])
def test_a_classifier_gets_the_weights(data, calibration):
    """The labels of documents that weigh nothing change nothing."""
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.tree import DecisionTreeClassifier

    ranker = tr.ExpectedGainRanker(classifier=DecisionTreeClassifier(max_depth=2), calibration=calibration)
    weights = (np.arange(data.n_documents) % 3 > 0).astype(float)
    other = np.where(weights > 0, data.labels, data.labels.max() - data.labels)
    scores = [
        ranker.fit(data.replace(labels=labels, document_weights=weights)).predict(data)
        for labels in (data.labels, other)
    ]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-9, atol=1e-12)
    assert not np.allclose(scores[0], ranker.fit(data).predict(data))
    with pytest.raises(DataError, match=r"KNeighborsClassifier\.fit does not support sample_weight"):
        tr.ExpectedGainRanker(classifier=KNeighborsClassifier()).fit(data.replace(document_weights=weights))


@pytest.mark.parametrize("name", ["AdaRank", "CoordinateAscent", "blend"])
def test_weights_of_documents_are_refused_by_who_climbs_a_metric(data, name):
    weights = np.linspace(0.5, 1.5, data.n_documents)
    with pytest.raises(DataError, match=r"does not support document weights.*query_weights"):
        LEARNERS[name].fit(data.X, data.labels, qid=data.qid, sample_weight=weights)
    even = LEARNERS[name].fit(data.X, data.labels, qid=data.qid, sample_weight=np.full(data.n_documents, 2.0))
    np.testing.assert_array_equal(
        even.predict(data.X), LEARNERS[name].fit(data.X, data.labels, qid=data.qid).predict(data.X)
    )


def test_coordinate_ascent_climbs_the_weighted_mean(data):
    weights = np.random.default_rng(0).uniform(0.2, 3.0, data.n_queries)
    ranker = tr.CoordinateAscent(restarts=1, max_cycles=3).fit(data.replace(query_weights=weights))
    per_query = tr.evaluate(ranker.predict(data), data, "ndcg@10").per_query["ndcg@10"]
    known = ~np.isnan(per_query)
    wanted = np.average(per_query[known], weights=weights[known])
    assert ranker.training_["train"]["ndcg@10"] == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("given", ["documents", "queries", "both"])
def test_objectives_of_lightgbm_get_every_kind_of_weight(data, given, monkeypatch):
    """A weight for each row, queries at a mean of 1: of each kind alone, and of both."""
    import lightgbm

    rng, told = np.random.default_rng(5), []
    of_documents, of_queries = rng.uniform(0.2, 2, data.n_documents), rng.uniform(0.2, 2, data.n_queries)
    wanted, more = np.ones(data.n_documents), {}
    if given != "queries":
        wanted, more["document_weights"] = wanted * of_documents, of_documents
    if given != "documents":
        wanted = wanted * np.repeat(of_queries / of_queries.mean(), data.queries.sizes)
        more["query_weights"] = of_queries

    class Dataset(lightgbm.Dataset):
        def __init__(self, *args, **options):
            told.append(options.get("weight"))
            super().__init__(*args, **options)

    monkeypatch.setattr(lightgbm, "Dataset", Dataset)
    LEARNERS["trees of LightGBM"].fit(data.replace(**more))
    np.testing.assert_allclose(told[-1], wanted, rtol=1e-12)


# ---- metrics that AdaRank cannot boost, labels that nobody can learn from ----


def test_adarank_refuses_a_metric_beyond_one(data):
    with pytest.raises(DataError, match=r"between -1 and 1.*'dcg@5' reaches .*ndcg"):
        tr.AdaRank(metric="dcg@5").fit(data)
    ranker = tr.AdaRank(metric="tau", max_rounds=20).fit(data)  # from -1 to 1, which the formula allows
    assert np.isfinite(ranker.coef_).all()
    assert np.abs(ranker.coef_).max() < 20


@pytest.mark.parametrize("name", ["AdaRank", "RankBoost", "CoordinateAscent"])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_labels_that_are_all_alike_are_told(data, name, label):
    same = data.replace(labels=np.full(data.n_documents, label))
    with pytest.warns(ConstantScoresWarning, match=rf"{name}: .*labels.* from {label:g} to {label:g}"):
        ranker = LEARNERS[name].fit(same)
    assert (ranker.predict(data) == 0).all()


def test_adarank_without_a_feature_that_varies(data):
    with pytest.warns(ConstantScoresWarning, match="all features are constant"):
        ranker = tr.AdaRank().fit(data.replace(X=np.ones((data.n_documents, 2)), feature_names=None))
    assert ranker.coef_.tolist() == [0, 0]
