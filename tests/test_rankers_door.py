"""What rankers make of arrays, frames, forgotten queries and validation data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy import sparse
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import toprank as tr
from toprank.data.dataset import same_content
from toprank.data.warnings import OneQueryWarning, SameDataWarning
from toprank.errors import DataError


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=40, n_features=3, n_grades=3, seed=0)


@pytest.fixture(scope="module")
def fitted(data):
    return tr.LinearRanker().fit(data.X, data.labels, qid=data.qid)


# ---- queries that were forgotten ----


def test_a_score_without_queries_is_refused(data, fitted):
    with pytest.raises(DataError, match=r"score received no qid.*enable_metadata_routing"):
        fitted.score(data.X, data.labels)
    assert fitted.score(data.X, data.labels, qid=data.qid) == fitted.score(data)
    few = slice(0, int(data.queries.offsets[1]))
    one = tr.LinearRanker().fit(data.X[few], data.labels[few])  # one query from the start
    assert one.score(data.X[few], data.labels[few]) <= 1.0


def test_a_pipeline_that_drops_the_queries_is_refused(data):
    pipeline = make_pipeline(StandardScaler(), tr.LinearRanker())
    pipeline.fit(data.X, data.labels, linearranker__qid=data.qid)  # metadata routing is off: score gets no qid
    with pytest.raises(DataError, match="score received no qid"):
        pipeline.score(data.X, data.labels, qid=data.qid)
    with pytest.raises(DataError, match="was called without qid"):
        tr.make_scorer("map")(pipeline, data.X, data.labels)


def test_a_search_that_forgets_the_queries_is_refused(data):
    search = GridSearchCV(
        tr.LinearRanker(), {"l2": [1.0]}, cv=GroupKFold(2), scoring=tr.make_scorer("map"), error_score="raise"
    )
    with pytest.raises(DataError, match=r"search\.fit\(X, y, qid=qid, groups=qid\)"):
        search.fit(data.X, data.labels, groups=data.qid, qid=data.qid)
    options = {"cv": GroupKFold(2), "error_score": "raise"}
    with (
        sklearn.config_context(enable_metadata_routing=True),
        pytest.raises(DataError, match="scikit-learn passed no qid to fit"),
    ):
        cross_val_score(
            tr.LinearRanker(),
            data.X,
            data.labels,
            params={"groups": data.qid},
            scoring=tr.make_scorer("map"),
            **options,
        )


def test_many_rows_without_queries_get_a_remark(data, fitted):
    with pytest.warns(OneQueryWarning, match=f"Training treats all {data.n_documents:,} rows as one query") as told:
        tr.LinearRanker().fit(data.X, data.labels)
    assert told[0].filename == __file__
    with pytest.warns(OneQueryWarning, match="evaluate treats all") as told:
        tr.evaluate(fitted.predict(data), data.labels)
    assert told[0].filename == __file__
    tr.evaluate(fitted.predict(data), data.labels, qid=np.zeros(data.n_documents))  # one query, and said so


# ---- labels ----


@pytest.mark.parametrize(
    "ranker", [tr.LinearRanker(), tr.systems.make("RankBoost"), tr.TreeRanker(), tr.ExpectedGainRanker()]
)
def test_documents_without_a_judgment_are_refused_in_arrays_too(data, ranker):
    with pytest.raises(DataError, match="documents are unjudged"):
        ranker.fit(data.X, np.where(data.labels == 0, -1, data.labels), qid=data.qid)
    with pytest.raises(DataError, match=r"Input y contains NaN: .* documents are unjudged"):
        ranker.fit(data.X, np.where(data.labels == 0, np.nan, data.labels), qid=data.qid)


@pytest.mark.parametrize(
    "ranker", [tr.LinearRanker(), tr.TreeRanker(), tr.systems.make("AdaRank-NDCG"), tr.systems.make("CoordinateAscent")]
)
def test_data_without_features_are_refused(ranker):
    with pytest.raises(DataError, match="The data have no features"):
        ranker.fit(tr.RankingData(np.zeros((4, 0)), [0, 1, 0, 1], qid=[1, 1, 2, 2]))


# ---- validation data ----


@pytest.mark.parametrize("ranker", [tr.LinearRanker(l2=[1.0, 0.1]), tr.TreeRanker(), tr.systems.make("AdaRank-NDCG")])
def test_validation_data_must_be_judged(data, ranker):
    valid = data.replace(labels=np.where(data.labels == 0, -1, data.labels))
    with pytest.raises(DataError, match=r"documents for model selection are unjudged.*data\.filter\(data\.judged\)"):
        ranker.fit(data, valid=valid)


def test_validation_data_as_arrays(data):
    train, valid = tr.split(data, (0.6, 0.4))
    path = [1.0, 0.1, 0.01]
    whole = tr.LinearRanker(l2=path).fit(train, valid=valid)
    arrays = tr.LinearRanker(l2=path).fit(
        train.X, train.labels, qid=train.qid, valid=(valid.X, valid.labels, valid.qid)
    )
    assert arrays.path_ == whole.path_
    names = ["a", "b", "c"]
    frame, other = (pd.DataFrame(part.X, columns=names) for part in (train, valid))
    frames = tr.LinearRanker(l2=path).fit(frame, train.labels, qid=train.qid, valid=(other, valid.labels, valid.qid))
    assert frames.path_ == whole.path_
    with pytest.raises(DataError, match=r"valid must be a RankingData.*or a tuple \(X, y, qid\)"):
        tr.LinearRanker().fit(train, valid=valid.X)


def test_choosing_on_the_training_data(data):
    with pytest.warns(SameDataWarning, match="The validation data are the training data") as told:
        tr.LinearRanker(l2=[1.0, 0.1]).fit(data, valid=data.select(np.arange(data.n_queries)))
    assert told[0].filename == __file__
    with pytest.raises(DataError, match="Omit valid="):
        tr.auto(data, data, time_budget=5)


def test_same_content(data):
    assert same_content(data, data.select(np.arange(data.n_queries)))
    assert not same_content(data, data.select(np.arange(data.n_queries - 1)))
    assert not same_content(data, data.replace(labels=data.labels + 1))
    assert not same_content(data, data.replace(X=data.X + 1))
    assert not same_content(data, "data")


# ---- frames with more columns than the features ----


def test_a_frame_with_labels_and_queries_can_be_ranked_as_it_is(data):
    frame = pd.DataFrame(data.X, columns=["a", "b", "c"]).assign(label=data.labels, qid=data.qid, url="x")
    ranker = tr.LinearRanker().fit(tr.RankingData.from_frame(frame, features=["a", "b", "c"]))
    scores = ranker.predict(data.replace(feature_names=list("abc")))
    np.testing.assert_array_equal(ranker.predict(frame), scores)
    np.testing.assert_array_equal(ranker.predict(pl.from_pandas(frame)), scores)
    np.testing.assert_array_equal(ranker.predict(frame[["qid", "c", "a", "b"]]), scores)  # by name, not by place
    with pytest.raises(ValueError, match="yet now missing"):
        ranker.predict(frame[["a", "b", "label", "qid"]])


def test_features_with_queries_can_be_ranked(data, fitted):
    order = np.random.default_rng(0).permutation(data.n_documents)
    found = fitted.rank(data.X[order], 3, qid=data.qid[order])
    wanted = fitted.rank(data, 3)
    assert {qid: order[rows].tolist() for qid, rows in found.items()} == wanted
    with pytest.raises(DataError, match="rank needs queries"):
        fitted.rank(data.X)
    with pytest.raises(DataError, match="omit qid"):
        fitted.rank(data, qid=data.qid)


# ---- sparse features ----

RANKERS = {
    "linear": lambda: tr.LinearRanker("ListNet"),
    "expected-gain": lambda: tr.ExpectedGainRanker("Squared", max_iterations=20, tolerance=0.1),
    "trees": lambda: tr.TreeRanker(n_trees=3, threads=1),
    "grades": lambda: tr.TreeRanker("Multinomial", outputs="grades", n_trees=3, threads=1),
    "ascent": lambda: tr.CoordinateAscent(restarts=1, max_cycles=1),
    "blend": lambda: tr.BlendRanker([tr.LinearRanker("ListNet"), tr.TreeRanker(n_trees=3, threads=1)]),
    "adarank": lambda: tr.AdaRank(max_rounds=3),
    "rankboost": lambda: tr.RankBoost(max_rounds=3),
}
SPARSE = {"matrix": sparse.csr_matrix, "array": sparse.csr_array, "columns": sparse.csc_matrix}


@pytest.fixture(scope="module")
def holey():
    """Data with many zeros, and a value that is missing."""
    data = tr.synthetic(n_queries=20, n_documents=6, n_features=3, n_grades=3, seed=0)
    X = np.where(data.X > 0, data.X + 1.0, 0.0)
    X[3, 1] = np.nan
    return tr.RankingData(X, data.labels, qid=data.qid)


@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConvergenceWarning")
@pytest.mark.parametrize("name", RANKERS)
def test_sparse_features_score_as_dense_ones_or_are_refused_in_one_sentence(holey, name):
    ranker = RANKERS[name]().fit(holey)
    X, y, qid, scores = holey.X, holey.labels, holey.qid, ranker.predict(holey)
    held = holey.replace(X=sparse.csr_matrix(X))
    doors = [lambda: ranker.predict(held), lambda: ranker.rank(held, None), lambda: ranker.score(held)]
    doors += [lambda: RANKERS[name]().fit(held), lambda: RANKERS[name]().fit(holey, valid=held)]
    for form in SPARSE.values():
        doors += [
            lambda form=form: ranker.predict(form(X), qid),
            lambda form=form: ranker.rank(form(X), None, qid=qid),
            lambda form=form: ranker.score(form(X), y, qid),
            lambda form=form: RANKERS[name]().fit(form(X), y, qid),
            lambda form=form: RANKERS[name]().fit(X, y, qid, valid=(form(X), y, qid)),
        ]
    if not ranker.supports_sparse:
        for door in doors:
            with pytest.raises(DataError, match=f"{type(ranker).__name__} does not support sparse features"):
                door()
        return
    for door in doors:
        answer = door()
        if isinstance(answer, np.ndarray):
            np.testing.assert_allclose(answer, scores, rtol=1e-9, atol=1e-9)
        elif isinstance(answer, dict):
            assert answer == ranker.rank(holey, None)
        elif isinstance(answer, float):
            assert answer == pytest.approx(ranker.score(holey), abs=1e-12)
    if hasattr(ranker, "predict_proba"):
        np.testing.assert_allclose(ranker.predict_proba(held), ranker.predict_proba(holey), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("make", [tr.LinearRanker, lambda: tr.TreeRanker(n_trees=2, min_data_in_leaf=2)])
def test_sparse_rows_that_lead_outside_are_refused_by_every_door(make):
    """Compiled loops follow the indices without a question; a bare matrix comes past no `RankingData`."""
    data = tr.synthetic(n_queries=12, n_features=3, seed=0)
    ranker, crafted = make().fit(data.X, data.labels, qid=data.qid), sparse.csr_matrix(data.X)
    crafted.indices = crafted.indices.copy()
    crafted.indices[-1] = 10**6
    for door in (ranker.predict, lambda X: make().fit(X, data.labels, qid=data.qid)):
        with pytest.raises(DataError, match="invalid sparse matrix"):
            door(crafted)


# ---- frames of more than numbers, for a ranker that knows numbers alone ----


def test_a_frame_with_further_columns_of_any_kind_is_scored_by_its_numbers(data):
    frame = pd.DataFrame(data.X, columns=["a", "b", "c"])
    ranker = tr.LinearRanker().fit(frame, data.labels, qid=data.qid)
    more = frame.assign(name="x", day=pd.Timestamp("2024-01-01"), page=7)
    for given in (more, more[more.columns[::-1]], pl.from_pandas(more), pl.from_pandas(more).to_arrow()):
        assert np.array_equal(ranker.predict(given), ranker.predict(frame))
    for column in ("b", "c"):
        with pytest.raises(DataError, match=rf"Column '{column}' holds .*, not numbers, as in the training data"):
            ranker.predict(frame.assign(**{column: pd.Timestamp("2024-01-01")}))
    nameless = tr.LinearRanker().fit(data.X, data.labels, qid=data.qid)
    with pytest.raises(DataError, match=r"without names.*only the features, as numbers"):
        nameless.predict(frame.assign(b="x"))


def test_a_ranker_in_the_place_of_its_scores_is_told(data, fitted):
    with pytest.raises(
        DataError, match=r"scores is a LinearRanker\. Give its predictions instead: .*\.predict\(data\)"
    ):
        tr.evaluate(fitted, data)
    with pytest.raises(DataError, match=r"scores is a LinearRanker"):
        tr.compare({"a": fitted, "b": fitted.predict(data)}, data)
