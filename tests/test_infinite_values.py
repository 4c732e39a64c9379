"""Infinite values are refused wherever a ranker meets them, in our words; trees take them in plain arrays alone."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge

import toprank as tr
from toprank.errors import DataError

RANKERS = {
    "linear": tr.LinearRanker(),
    "expected gain": tr.ExpectedGainRanker(),
    "classifier": tr.ExpectedGainRanker(classifier=LogisticRegression()),
    "trees": tr.TreeRanker(n_trees=3, threads=1),
    "network": tr.NeuralRanker("ListNet", hidden=(4,), epochs=2, device="cpu", threads=1),
    "network of quantiles": tr.NeuralRanker(
        "ListNet", hidden=(4,), epochs=2, device="cpu", threads=1, input_transform="quantile"
    ),
    "AdaRank": tr.AdaRank(max_rounds=3),
    "RankBoost": tr.RankBoost(max_rounds=3),
    "CoordinateAscent": tr.CoordinateAscent(restarts=1, max_cycles=1),
    "blend": tr.BlendRanker([tr.LinearRanker(), tr.TreeRanker(n_trees=3, threads=1)]),
    "wrapped": tr.wrap(Ridge()),
}


@pytest.fixture(scope="module")
def data():
    made = tr.synthetic(n_queries=30, n_features=3, seed=0)
    return tr.RankingData(np.array(made.X), made.labels, qid=made.qid)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("name", RANKERS)
def test_infinite_values_are_refused(data, name, value):
    ranker, X = RANKERS[name], np.array(data.X)
    X[5, 1] = value
    bad = data.replace(X=X)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    column = r"Feature number 1 \(from 0\) holds infinite values"
    with pytest.raises(DataError, match=column):
        ranker.fit(bad)
    with pytest.raises(DataError, match=column):
        ranker.fit(X, data.labels, qid=data.qid)
    with pytest.raises(DataError, match="Feature 'b' holds infinite values"):
        ranker.fit(frame, data.labels, qid=data.qid)
    with pytest.raises(DataError, match=column):
        ranker.fit(data, valid=bad)
    ranker.fit(data)
    with pytest.raises(DataError, match="infinite"):
        ranker.predict(bad)
    if ranker.supports_sparse:
        thin = sparse.csr_matrix(X)
        with pytest.raises(DataError, match=column):
            ranker.fit(data.replace(X=thin))
        with pytest.raises(DataError, match=column):
            ranker.predict(thin, qid=data.qid)
    _check_arrays(ranker, X, data, column)
    ranker.fit(data.replace(feature_names=["a", "b", "c"]))
    _check_arrays(ranker, X, data, "(Feature number 1 \\(from 0\\)|Feature 'b') holds infinite values")


def _check_arrays(ranker, X, data, column):
    """Names of the training columns make no difference to arrays, which have none."""
    if isinstance(ranker, tr.TreeRanker):
        assert np.isfinite(ranker.predict(X)).all()
    else:
        with pytest.raises(DataError, match=column):
            ranker.predict(X, qid=data.qid)


@pytest.mark.parametrize("given", [pd.DataFrame, np.ndarray.tolist], ids=["frame", "lists"])
def test_what_scikit_learn_reads_is_refused_in_our_words_too(data, given):
    """A frame whose columns are numbered, and lists of lists."""
    X = np.array(data.X)
    ranker = tr.LinearRanker("ListNet").fit(X, data.labels, qid=data.qid)
    X[5, 1] = np.inf
    with pytest.raises(DataError, match=r"Feature number 1 \(from 0\) holds infinite values"):
        ranker.fit(given(X), data.labels, qid=data.qid)
    with pytest.raises(DataError, match=r"Feature number 1 \(from 0\) holds infinite values"):
        ranker.predict(given(X), qid=data.qid)


def _table(form):
    rng, n = np.random.default_rng(0), 200
    frame = pd.DataFrame({"qid": np.arange(n) // 10, "a": rng.normal(size=n), "b": rng.normal(size=n)})
    frame["label"] = (frame["a"] + rng.normal(size=n) > 0).astype(int)
    if form == "mixed":
        frame["kind"] = rng.choice(["new", "used"], n)
    text = None
    if form == "text":
        frame["query"], frame["title"] = "red shoes", rng.choice(["red shoes", "blue hat", "red hat"], n)
        text = {"query": "query", "document": "title"}
    return frame, tr.RankingData.from_frame(frame, qid="qid", label="label", text=text)


@pytest.mark.parametrize("form", ["Arrow", "mixed", "text"])
@pytest.mark.parametrize("name", ["linear", "expected gain", "trees", "network of quantiles", "RankBoost", "wrapped"])
def test_rows_of_tables_follow_the_rule_of_data(name, form):
    """Frames of every kind are checked for infinite values as `RankingData` are."""
    frame, train = _table(form)
    ranker = RANKERS[name].fit(train)
    features = frame.drop(columns=["qid", "label"])
    features.loc[5, "b"] = np.inf
    with pytest.raises(DataError, match="infinite"):
        ranker.predict(pa.Table.from_pandas(features) if form == "Arrow" else features)
