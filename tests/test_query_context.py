"""Features of the pool: equal to a plain loop, blind to the order of rows, and at home before any ranker."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import toprank as tr
from toprank.errors import DataError, UnknownNameError

ALL = ("mean", "std", "min", "max", "rank", "zscore", "size")
WIDE = st.sampled_from([np.nan, -2.5, -0.0, 0.0, 0.1, 0.1, 3.0, 1e6])


def plain(x):
    """The statistics of one column of one query, by NumPy and SciPy, as a table of documents × statistics."""
    there = ~np.isnan(x)
    table = np.full((len(x), 6), np.nan)
    if there.any():
        known = x[there]
        spread = known.std() if np.ptp(known) > 0 else 0.0
        table[:, :4] = known.mean(), spread, known.min(), known.max()
        table[there, 4] = rankdata(-known)
        table[there, 5] = (known - known.mean()) / spread if spread else 0.0
    return table


def by_a_plain_loop(data):
    parts = []
    for rows in data.queries:
        columns = [plain(data.X[rows, c].astype(np.float64)) for c in range(data.n_features)]
        size = np.full((rows.stop - rows.start, 1), rows.stop - rows.start)
        parts.append(np.hstack([data.X[rows], *columns, size]))
    return np.vstack(parts)


@st.composite
def pools(draw):
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    n, d = sum(sizes), draw(st.integers(1, 3))
    values = draw(st.lists(WIDE, min_size=n * d, max_size=n * d))
    return tr.RankingData(np.reshape(values, (n, d)), queries=tr.Queries.from_sizes(sizes))


@settings(max_examples=60, deadline=None)
@given(pools())
def test_every_statistic_is_that_of_a_plain_loop(data):
    wide = tr.QueryContextFeatures(ALL).fit_transform(data).X
    np.testing.assert_allclose(wide, by_a_plain_loop(data), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e-30, 1e30, 1e200, 1e307])
def test_tiny_and_enormous_values_have_a_spread(size):
    x = np.array([1.0, 2.0, 6.0, 2.0])
    pool = tr.QueryContextFeatures(("mean", "std", "zscore"), keep=False)
    mean, std, zscore = pool.fit_transform(size * x[:, None], qid=[0, 0, 0, 0]).T
    precision = 0.01 if size < 1e-300 else 1e-12  # the smallest numbers have few digits
    np.testing.assert_allclose(mean, size * x.mean(), rtol=precision)
    np.testing.assert_allclose(std, size * x.std(), rtol=precision)
    np.testing.assert_allclose(zscore, (x - x.mean()) / x.std(), rtol=precision)


@pytest.mark.parametrize("values", [[1.7e308, 1.7e308, 1e308], [-1.7e308, 1.7e308]])
def test_values_whose_mean_or_spread_overflows_are_refused(values):
    with pytest.raises(DataError, match="infinite or extremely large values"):
        tr.QueryContextFeatures().fit_transform(np.array(values)[:, None], qid=np.zeros(len(values)))


@settings(max_examples=60, deadline=None)
@given(pools(), st.integers(0, 1000))
def test_the_order_of_rows_does_not_matter_to_the_last_bit(data, seed):
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(np.arange(rows.start, rows.stop)) for rows in data.queries])
    new = tr.QueryContextFeatures(ALL, keep=False)
    shuffled = data.replace(X=data.X[order])
    assert new.fit_transform(data).X[order].tobytes() == new.fit_transform(shuffled).X.tobytes()


@pytest.fixture(scope="module")
def data():
    data = tr.synthetic(n_queries=700, n_documents=(1, 20), n_features=12, n_grades=3, seed=0)
    X = np.array(data.X)
    X[::5, 3] = np.nan
    X[:, 4] = 7.3  # its sum over a query is not a multiple of it in floating point
    return tr.RankingData(X, data.labels, queries=data.queries, feature_names=[f"f{i}" for i in range(12)])


def test_float32_stays_and_threads_do_not_matter(data):
    one, two = (tr.QueryContextFeatures(ALL, threads=threads).fit_transform(data).X for threads in (1, 2))
    assert one.tobytes() == two.tobytes()
    assert one.dtype == np.float32
    double = tr.QueryContextFeatures(ALL).fit_transform(data.replace(X=data.X.astype(np.float64))).X
    np.testing.assert_array_equal(one, double.astype(np.float32))


def test_a_constant_column_is_exactly_that(data):
    wide = (
        tr.QueryContextFeatures(ALL, columns=["f4"], keep=False)
        .fit_transform(data.replace(X=data.X.astype(np.float64)))
        .X
    )
    value = np.float64(np.float32(7.3))
    np.testing.assert_array_equal(wide[:, :4], np.broadcast_to([value, 0.0, value, value], (len(wide), 4)))
    np.testing.assert_array_equal(wide[:, 4], data.queries.broadcast((data.queries.sizes + 1) / 2))
    assert not wide[:, 5].any()


def test_names_columns_and_what_stays(data):
    pool = tr.QueryContextFeatures(["rank", "size", "mean"], columns=["f3", 0]).fit(data)
    wide = pool.transform(data)
    new = ("f3_rank_in_query", "f3_mean_in_query", "f0_rank_in_query", "f0_mean_in_query", "documents_in_query")
    assert wide.feature_names == (*data.feature_names, *new)
    np.testing.assert_array_equal(wide.X[:, :12], data.X)
    np.testing.assert_array_equal(wide.labels, data.labels)
    assert wide.queries == data.queries
    alone = clone(pool).set_params(keep=False).fit_transform(data)
    assert alone.feature_names == new
    np.testing.assert_array_equal(alone.X, wide.X[:, 12:])
    nameless = tr.QueryContextFeatures(["max"], columns=[1]).fit(data.replace(feature_names=None))
    assert nameless.transform(data.replace(feature_names=None)).feature_names is None
    assert nameless.get_feature_names_out().tolist()[-1] == "x1_max_in_query"
    size = tr.QueryContextFeatures(["size"], keep=False).fit_transform(data)
    np.testing.assert_array_equal(size.X[:, 0], data.queries.broadcast(data.queries.sizes))


def test_scattered_rows_come_back_in_their_places(data):
    order = np.random.default_rng(0).permutation(data.n_documents)
    pool = tr.QueryContextFeatures(ALL)
    there = pool.fit_transform(data.X[order], qid=data.qid[order])
    np.testing.assert_array_equal(there, pool.fit_transform(data).X[order])
    regrouped = tr.RankingData(data.X[order], data.labels[order], qid=data.qid[order], regroup=True)
    np.testing.assert_array_equal(regrouped.in_source_order(pool.fit_transform(regrouped).X), there)


def test_features_become_frames_where_they_are_asked_for(data):
    import pandas as pd
    import polars as pl

    names = [f"f{i}" for i in range(data.n_features)]
    frame = pd.DataFrame(data.X, columns=names, index=np.arange(data.n_documents)[::-1])
    pool = tr.QueryContextFeatures(["rank", "size"]).set_output(transform="pandas")
    for found in (
        pool.fit_transform(frame, qid=data.qid),
        pool.fit(frame, qid=data.qid).transform(frame, qid=data.qid),
    ):
        assert found.columns.tolist() == pool.get_feature_names_out().tolist()
        assert found.index.equals(frame.index)
        np.testing.assert_array_equal(found, tr.QueryContextFeatures(["rank", "size"]).fit_transform(data).X)
    assert isinstance(pool.set_output(transform="polars").transform(frame, qid=data.qid), pl.DataFrame)
    assert isinstance(pool.fit_transform(data), tr.RankingData)  # data are no frame, and stay what they are


def test_queries_are_strangers(data):
    """What one query holds says nothing about another: served alone, it gets the same columns."""
    pool = tr.QueryContextFeatures().fit(data)
    whole = pool.transform(data).X
    for q in (0, 17, 699):
        rows = slice(*data.queries.offsets[q : q + 2].tolist())
        np.testing.assert_array_equal(pool.transform(tr.RankingData(data.X[rows])).X, whole[rows])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"statistics": ["mean", "avg"]}, "no statistic of QueryContextFeatures called 'avg'"),
        ({"statistics": "mean"}, r"\['mean'\]"),
        ({"statistics": []}, "non-empty list of distinct names, not \\[\\]"),
        ({"statistics": 5}, "list of names, such as .*, not 5"),
        ({"statistics": [np.zeros(2)]}, "no statistic of QueryContextFeatures"),
        ({"columns": 5}, "columns must be a list"),
        ({"columns": "f1"}, "columns must be a list"),
        ({"statistics": ["mean", "mean"]}, "non-empty list of distinct names"),
        ({"columns": ["f99"]}, "no feature called 'f99'"),
        ({"columns": [12]}, "run from 0 to 11"),
        ({"columns": [-1]}, "run from 0 to 11"),
        ({"columns": [1, "f1"]}, "occurs twice"),
        ({"threads": 0}, "at least 1"),
    ],
)
def test_wrong_options_are_sentences(data, options, message):
    with pytest.raises((DataError, UnknownNameError), match=message):
        tr.QueryContextFeatures(**options).fit_transform(data)


def test_wrong_data_are_sentences(data):
    pool = tr.QueryContextFeatures().fit(data)
    with pytest.raises(DataError, match="expecting 12 features"):
        pool.transform(tr.RankingData(data.X[:, :5]))
    swapped = data.replace(feature_names=["f1", "f0", *data.feature_names[2:]])
    with pytest.raises(DataError, match="is called 'f1', but 'f0'"):
        pool.transform(swapped)
    with pytest.raises(DataError, match="needs dense features"):
        tr.QueryContextFeatures().fit(data.replace(X=sparse.csr_matrix(np.nan_to_num(data.X))))
    with pytest.raises(DataError, match="needs dense features"):
        pool.transform(data.replace(X=sparse.csr_matrix(np.nan_to_num(data.X))))
    infinite = np.array(data.X)
    infinite[data.queries.offsets[5], 2] = np.inf
    with pytest.raises(DataError, match=r"Feature 'f2' has infinite or extremely large values in query 5;"):
        pool.transform(data.replace(X=infinite))
    with pytest.raises(DataError, match="leave out qid"):
        pool.transform(data, qid=data.qid)
    with pytest.raises(DataError, match="features have no names"):
        tr.QueryContextFeatures(columns=["f1"]).fit(data.X)
    with pytest.raises(DataError, match="Two features are called"):
        tr.QueryContextFeatures().fit_transform(pool.transform(data))


def test_a_forgotten_qid_is_refused(data):
    pool = tr.QueryContextFeatures().fit(data.X, qid=data.qid)
    for call in (pool.transform, tr.QueryContextFeatures().fit, tr.QueryContextFeatures().fit_transform):
        with pytest.raises(DataError, match=r"needs the query id of each row.*enable_metadata_routing"):
            call(data.X)
    one = tr.QueryContextFeatures(["size"], keep=False).fit_transform(data.X, qid=np.zeros(data.n_documents))
    assert set(one.ravel()) == {data.n_documents}


# ---- at home in scikit-learn ----


class OneQuery(tr.QueryContextFeatures):
    """Takes all rows as one query, since scikit-learn's checks know no queries."""

    def fit(self, X, y=None, qid=None):
        return super().fit(X, y, qid=True)

    def transform(self, X, qid=None):
        return super().transform(X, qid=np.zeros(X.shape[0] if hasattr(X, "shape") else len(np.asarray(X))))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [OneQuery()],
    expected_failed_checks=lambda _: {
        "check_methods_subset_invariance": "what the pool is, is what the transformer is about"
    },
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def trees(**options):
    return tr.TreeRanker("Squared", **{"n_trees": 15, "num_leaves": 7, "threads": 1} | options)


def test_a_pipeline_takes_ranking_data(data):
    pipeline = make_pipeline(tr.QueryContextFeatures(), trees()).fit(data)
    wide = tr.QueryContextFeatures().fit_transform(data)
    by_hand = trees().fit(wide)
    np.testing.assert_array_equal(pipeline.predict(data), by_hand.predict(wide))
    assert pipeline[-1].feature_names_in_.tolist() == list(wide.feature_names)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_qid_is_routed_through_a_pipeline(data, routing):
    wide = tr.QueryContextFeatures().fit_transform(data)
    by_hand = trees().fit(wide)
    pipeline = make_pipeline(tr.QueryContextFeatures(), trees()).fit(data.X, data.labels, qid=data.qid)
    np.testing.assert_array_equal(pipeline.predict(data.X, qid=data.qid), by_hand.predict(wide))
    assert pipeline.score(data.X, data.labels, qid=data.qid) == by_hand.score(wide)
    with pytest.raises(DataError, match="needs the query id of each row"):
        pipeline.predict(data.X)


def test_a_search_over_a_pipeline_sees_the_pool(data, routing):
    pipeline = make_pipeline(tr.QueryContextFeatures(["rank"]), trees())
    search = GridSearchCV(
        pipeline, {"treeranker__n_trees": [3]}, scoring=tr.make_scorer("map"), cv=GroupKFold(3), error_score="raise"
    )
    search.fit(data.X, data.labels, qid=data.qid, groups=data.qid)
    wide = tr.QueryContextFeatures(["rank"]).fit_transform(data).X
    for part, (train, test) in enumerate(GroupKFold(3).split(data.X, groups=data.qid)):
        by_hand = trees(n_trees=3).fit(wide[train], data.labels[train], qid=data.qid[train])
        wanted = tr.evaluate(by_hand.predict(wide[test]), data.labels[test], "map", qid=data.qid[test]).mean["map"]
        assert search.cv_results_[f"split{part}_test_score"][0] == wanted
    nested = tr.make_scorer("map")(search, data.X, data.labels, qid=data.qid)
    assert nested == search.score(data.X, data.labels, qid=data.qid)


def test_weights_of_documents_change_no_score(data):
    ranker = trees().fit(data)
    assert ranker.score(data, sample_weight=np.arange(data.n_documents)) == ranker.score(data)


@pytest.mark.parametrize("threads", ["x", 0, 1.5, True])
def test_threads_are_a_whole_number(data, threads):
    with pytest.raises(DataError, match="threads must be a whole number of at least 1, or None"):
        tr.QueryContextFeatures(threads=threads).fit_transform(data)


def test_validation_data_pass_through_a_pipeline(data, routing):
    train, valid = tr.split(data, (0.7, 0.3))
    ranker = trees(early_stopping=3).set_fit_request(valid=True)
    pipeline = Pipeline([("pool", tr.QueryContextFeatures()), ("ranker", ranker)], transform_input=["valid"])
    pipeline.fit(train, valid=valid)
    pool = tr.QueryContextFeatures().fit(train)
    by_hand = trees(early_stopping=3).fit(pool.transform(train), valid=pool.transform(valid))
    assert pipeline[-1].history_ == by_hand.history_


def test_frames_keep_their_names_and_global_settings_do_no_harm(data):
    import pandas as pd

    frame = pd.DataFrame(data.X, columns=list(data.feature_names))
    pool = tr.QueryContextFeatures().fit(frame, qid=data.qid)
    np.testing.assert_array_equal(pool.transform(frame, qid=data.qid), pool.transform(data).X)
    with pytest.raises(ValueError, match="feature names"):
        pool.transform(frame[frame.columns[::-1]], qid=data.qid)
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(pool.transform(data), tr.RankingData)


def test_trees_learn_what_only_the_pool_can_tell():
    """Every query has a scale of its own; which document is best is only to be seen beside the others."""
    rng = np.random.default_rng(0)
    n, m = 300, 12
    worth = rng.normal(size=(n, m))
    level = rng.normal(size=(n, 1)) * 30
    labels = (np.abs(worth) > 1.5).astype(float).ravel()  # far from the query's own level, on either side
    whole = tr.RankingData((level + worth).reshape(-1, 1), labels, queries=tr.Queries.from_sizes([m] * n))
    train, test = tr.split(whole, (0.6, 0.4))

    def value(train, test):
        ranker = tr.TreeRanker("Squared", n_trees=40, num_leaves=7, threads=1).fit(train)
        return tr.evaluate(ranker.predict(test), test).mean["ndcg@10"]

    pool = tr.QueryContextFeatures().fit(train)
    random = tr.evaluate(np.zeros(test.n_documents), test).mean["ndcg@10"]
    assert value(train, test) < random + 0.1
    assert value(pool.transform(train), pool.transform(test)) > random + 0.3
