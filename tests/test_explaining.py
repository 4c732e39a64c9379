"""Explanations as people read them: pairs, queries, changes, importance, effects; as text, frame, plot, JSON, page."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

import toprank as tr
from test_contributions import RANKERS, few_trees, small
from toprank.cli.commands import app
from toprank.data.dataset import RankingData
from toprank.errors import DataError, ToprankError, UnknownNameError
from toprank.explanations.explained_query import ExplainedDocument, ExplainedQuery
from toprank.explanations.pairs import Explanation
from toprank.rankers.foreign.ranker import ImportedLinearRanker
from toprank.report.explanations import explanations_page
from toprank.report.page import page as report_page

NAMES = ["sales", "price", "<b>age</b>"]


def shop(**more):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).round(3)
    X[::11, 2] = np.nan
    y = np.clip(np.round(2 * X[:, 0] - X[:, 1]), 0, 3)
    ids = [f"d{row % 6}" if row % 6 else "<script>&" for row in range(60)]
    qid = [f"q{row // 6}" for row in range(60)]
    return RankingData(X, y, qid=qid, document_ids=ids, feature_names=NAMES, **more)


@pytest.fixture(scope="module")
def linear():
    data = shop()
    return data, tr.LinearRanker("ListNet").fit(data)


@pytest.fixture(scope="module")
def trees():
    data = shop()
    return data, few_trees().fit(data)


# ---- a pair ----


def test_a_linear_explanation_is_weight_times_difference(linear):
    data, ranker = linear
    found = ranker.explain(data, "q3", "d1", "d2")
    a, b = data.X[19], data.X[20]
    expected = dict(zip(NAMES, ranker.coef_ * (a - b), strict=True))
    assert found.contributions == pytest.approx(expected)
    scores = ranker.predict(data)
    assert found.total == scores[19] - scores[20]
    assert sum(found.contributions.values()) == pytest.approx(found.total)
    assert list(found.contributions) == sorted(expected, key=lambda name: -abs(expected[name]))
    assert found.errors is None


def test_a_missing_value_counts_as_the_mean_of_training(linear):
    data, ranker = linear
    found = ranker.explain(data, "q0", "<script>&", "d1")  # row 0, where the age is missing
    expected = ranker.coef_[2] * (ranker.standardization_.center[2] - data.X[1, 2])
    assert found.contributions["<b>age</b>"] == pytest.approx(expected)
    assert found.a_values[2] == "missing"


def test_what_is_said(linear):
    data, ranker = linear
    asked = ExplainedQuery(ranker, data, "q3")
    first, last = asked.order[0], asked.order[-1]
    above = str(ranker.explain(data, "q3", asked.names[first], asked.names[last]))
    assert f"{asked.names[first]} ranks above {asked.names[last]} because " in above
    assert "(rank 1, score" in above
    below = str(ranker.explain(data, "q3", asked.names[last], asked.names[first]))
    assert f"{asked.names[last]} ranks below {asked.names[first]} because " in below
    same = RankingData([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], feature_names=NAMES)
    found = ranker.explain(same, a=0, b=1)
    assert "0 and 1 have the same score: no feature makes a difference." in str(found)
    assert set(found.contributions.values()) == {0.0}
    with pytest.raises(DataError, match="nothing to plot"):
        found.plot()


def test_values_of_both_documents_stand_beside_the_contribution(linear):
    data, ranker = linear
    found = ranker.explain(data, "q3", "d1", "d2")
    [line] = [line for line in str(found).splitlines() if line.startswith("sales ")]
    assert line.split()[1:3] == [f"{data.X[19, 0]:g}", f"{data.X[20, 0]:g}"]
    frame = found.to_frame()
    assert frame.contribution.tolist() == list(found.contributions.values())
    assert frame.set_index("feature").loc["sales", "a"] == f"{data.X[19, 0]:g}"


def test_names_with_markup_are_escaped(linear):
    data, ranker = linear
    found = ranker.explain(data, "q3", "<script>&", "d2")
    changes = tr.explanations.counterfactuals(ranker, data, "q3", "<script>&", "d2")
    query = tr.explanations.explain_query(ranker, data, "q3")
    shown = [found._repr_html_(), found.plot().svg(), changes._repr_html_(), query._repr_html_(), query.plot().svg()]
    shown.append(explanations_page("<script>", {"Explanation": found, "Changes": changes, "Query": query}))
    assert shown[-1].count("<script") == 1  # the page's own, whose hash its policy names
    for text in shown:
        assert "<script>&" not in text
        assert "<b>age" not in text
    assert "&lt;script&gt;&amp;" in shown[0]
    assert "<script>&" in str(found)


def test_json_holds_everything_said(linear):
    data, ranker = linear
    found = ranker.explain(data, "q3", "d1", "d2")
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert {row["feature"]: row["contribution"] for row in read["contributions"]} == found.contributions
    assert (read["query"], read["a"]["name"], read["total"], read["exact"]) == ("q3", "d1", found.total, True)
    assert read["summary"] in str(found)


def test_documents_are_chosen_where_none_are_named(linear):
    data, ranker = linear
    order = ExplainedQuery(ranker, data, "q3").order
    names = ExplainedQuery(ranker, data, "q3").names
    found = ranker.explain(data, "q3")
    assert (found.a.name, found.b.name) == (names[order[0]], names[order[1]])
    assert (found.a.place, found.b.place) == (1, 2)
    assert ranker.explain(data, "q3", a=names[order[-1]]).b.name == names[order[-2]]
    assert ranker.explain(data, "q3", b=names[order[0]]).a.name == names[order[1]]


def test_rows_name_documents_without_ids_in_the_order_of_the_source():
    X = np.array([[1.0], [5.0], [2.0], [3.0]])
    data = RankingData(X, [0, 1, 1, 0], qid=[1, 2, 1, 2], regroup=True)
    found = tr.LinearRanker("ListNet").fit(data).explain(data, 1, a=2, b=0)
    assert (found.a_values, found.b_values, found.features) == (("2",), ("1",), ("feature 1",))


def test_sparse_data_are_explained_as_dense_ones():
    from scipy import sparse

    data = small(4, missing=False)
    X = np.where(data.X > 0.3, data.X, 0.0)
    dense, bare = data.replace(X=X), data.replace(X=sparse.csr_matrix(X))
    for make in (RANKERS["linear"], RANKERS["trees"]):
        ranker = make().fit(bare)
        for of in (dense, bare):
            found = ranker.explain(of, data.qids[1])
            assert sum(found.contributions.values()) == pytest.approx(found.total)
        assert ranker.explain(bare, data.qids[1]).contributions == ranker.explain(dense, data.qids[1]).contributions
        assert tr.explanations.counterfactuals(ranker, bare, data.qids[1]).features <= 4


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"qid": "q33"}, "The query 'q33' does not exist in these data; did you mean 'q3'"),
        ({"qid": "zzzz"}, r"The query 'zzzz' does not exist in these data; existing ids: 'q0', 'q1', 'q2' …\."),
        ({"qid": "q3", "a": "d11"}, "The document 'd11' does not exist in query q3; did you mean 'd1'"),
        ({"qid": "q3", "a": "d1", "b": "d1"}, "'d1' was passed twice"),
        ({}, r"The data have 10 queries; pass the qid of the query to explain\."),
    ],
)
def test_what_is_not_there_is_refused_with_near_names(linear, asked, message):
    data, ranker = linear
    with pytest.raises(DataError, match=message):
        ranker.explain(data, **asked)


def test_other_doors(linear):
    data, ranker = linear
    with pytest.raises(NotFittedError):
        tr.LinearRanker().explain(data, "q3")
    with pytest.raises(DataError, match="RankingData"):
        ranker.explain(data.X)
    with pytest.raises(DataError, match="has only one document"):
        ranker.explain(RankingData(data.X[:1], feature_names=NAMES))
    with pytest.raises(DataError, match="2 documents with id 'd'"):
        ranker.explain(RankingData(data.X[:2], document_ids=["d", "d"], feature_names=NAMES), a="d")
    with pytest.raises(ToprankError, match="3 features"):
        ranker.explain(RankingData(np.zeros((2, 2))))


# ---- a query ----


@pytest.mark.parametrize("name", RANKERS)
def test_what_moved_each_document_sums_to_its_score_less_the_mean(name):
    data = small()
    ranker = RANKERS[name]().fit(data)
    found = tr.explanations.explain_query(ranker, data, data.qids[2], top=1)
    scores = ranker.predict(data)[data.queries.document_query == 2]
    assert [one.score for one in found.documents] == pytest.approx(sorted(scores.tolist(), reverse=True))
    assert found.mean == pytest.approx(scores.mean())
    np.testing.assert_allclose(found.values.sum(axis=1), [one.score - found.mean for one in found.documents], atol=1e-9)
    np.testing.assert_allclose(found.values.sum(axis=0), 0.0, atol=1e-9)
    assert len(found.changes) == 1
    json.dumps(found.to_dict(), allow_nan=False)
    assert len(found.to_frame()) == found.values.size
    moved = found.contributions(found.documents[0].name)
    assert list(map(abs, moved.values())) == sorted(map(abs, moved.values()), reverse=True)
    with pytest.raises(KeyError):
        found.contributions("nobody")


def test_a_large_query_is_compared_with_some_documents_where_it_is_estimated():
    data = tr.synthetic(n_queries=3, n_documents=30, n_features=12, seed=0)
    ranker = tr.ExpectedGainRanker("Multinomial").fit(data)
    found = tr.explanations.explain_query(ranker, data, data.qids[0], top=0)
    assert "8 documents of the query, sampled with seed 0" in str(found)
    assert found.errors is not None
    sums = found.values.sum(axis=1) + found.mean
    np.testing.assert_allclose(sums, [one.score for one in found.documents], atol=1e-9)
    assert "lists 10 more documents" in str(found)


# ---- what would change an order ----


def nearest_by_brute_force(ranker, data, a, b, feature, grid):
    """The value nearest to b's own, among many, that lifts b above a."""
    X = np.repeat(data.X[b][None], len(grid), axis=0)
    X[:, feature] = grid
    lifted = grid[ranker.predict(RankingData(X, feature_names=data.feature_names)) > ranker.predict(data)[a]]
    return None if not len(lifted) else lifted[np.argmin(np.abs(lifted - data.X[b, feature]))]


def test_a_linear_change_is_the_gap_over_the_weight(linear):
    data, ranker = linear
    found = tr.explanations.counterfactuals(ranker, data, "q3")
    asked = ExplainedQuery(ranker, data, "q3")
    a, b = (18 + row for row in asked.order[:2])
    scores = ranker.predict(data)
    assert found.exact
    for change in found.changes:
        j = NAMES.index(change.feature)
        present = data.X[:, j][~np.isnan(data.X[:, j])]
        now = present.mean() if np.isnan(data.X[b, j]) else data.X[b, j]  # a missing value counts as the mean
        crossing = now + (scores[a] - scores[b]) / ranker.coef_[j]
        assert change.value == pytest.approx(crossing)
        assert change.wanted.split()[0] == ("above" if crossing > now else "below")
        assert change.size == pytest.approx(abs(crossing - now) / present.std())
    assert [one.size for one in found.changes] == sorted(one.size for one in found.changes)


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 9), st.integers(0, 5), st.integers(0, 5), st.sampled_from(["trees", "blend", "RankBoost", "grades"])
)
def test_changes_of_trees_and_blends_are_the_smallest(query, one, other, name):
    """Against a dense grid: nothing on it is nearer, and what is told does lift the document."""
    if one == other:
        return
    data, ranker = exact_rankers(name)
    asked = ExplainedQuery(ranker, data, f"q{query}")
    found = tr.explanations.counterfactuals(ranker, data, f"q{query}", asked.names[one], asked.names[other])
    assert found.exact
    a, b = (6 * query + row for row in sorted((one, other), key=lambda row: asked.places[row]))
    told = {change.feature: change for change in found.changes}
    scores = ranker.predict(data)
    for j, feature in enumerate(data.feature_names):
        grid = np.linspace(-4, 4, 4001)
        nearest = nearest_by_brute_force(ranker, data, a, b, j, grid)
        if nearest is not None:
            step = abs(told[feature].value - data.X[b, j])
            assert step <= abs(nearest - data.X[b, j]) + 1e-9
        if feature in told:
            row = data.X[b].copy()
            row[j] = told[feature].value
            assert ranker.predict(RankingData(row[None], feature_names=data.feature_names))[0] > scores[a]


def test_thresholds_that_are_values_of_the_data_are_crossed():
    """The thresholds of RankBoost are values of the data: a document at one of them must go beyond it."""
    rng = np.random.default_rng(3)
    X = rng.integers(0, 6, size=(80, 3)).astype(float)
    data = RankingData(X, np.clip(X[:, 0] + rng.integers(-1, 2, 80), 0, 4), qid=np.repeat(np.arange(20), 4))
    ranker = tr.RankBoost(max_rounds=30).fit(data)
    at_threshold = 0
    for qid in data.qids:
        for above, below in pairwise(ExplainedQuery(ranker, data, qid).order):
            asked = ExplainedQuery(ranker, data, qid)
            for change in tr.explanations.counterfactuals(
                ranker, data, qid, asked.names[above], asked.names[below]
            ).changes:
                word, _, number = change.wanted.rpartition(" ")
                at_threshold += number == change.now
                assert word in ("above", "at most"), change
                assert (change.value > float(change.now)) == (word == "above")
    assert at_threshold > 10


def test_a_tie_is_broken_in_the_direction_of_the_weight():
    data = RankingData([[1.0, 1.0], [2.0, 2.0], [0.0, 3.0]], [2, 0, 1], feature_names=["age", "sales"])
    ranker = ImportedLinearRanker.from_weights("RankLib", np.array([-1.0, 1.0]))  # the first two documents score 0
    found = tr.explanations.counterfactuals(ranker, data, a=0, b=1)
    assert {change.feature: change.wanted for change in found.changes} == {"age": "below 2", "sales": "above 2"}


def test_features_of_the_query_are_not_changed():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.repeat(rng.normal(size=10), 4), rng.normal(size=40), np.repeat([np.nan, 1.0], 20)])
    names = ["idf", "bm25", "blank"]
    data = RankingData(X, rng.integers(0, 3, 40), qid=np.repeat(np.arange(10), 4), feature_names=names)
    for ranker in (tr.RankBoost(max_rounds=20), few_trees(), tr.LinearRanker("Squared")):
        for qid in data.qids:
            found = tr.explanations.counterfactuals(ranker.fit(data), data, qid)
            assert {change.feature for change in found.changes} <= {"bm25"}
            assert found.features == 1
            assert "constant within the query" in found.caveats[0]


_MADE = {}


def exact_rankers(name):
    if not _MADE:
        rng = np.random.default_rng(1)
        X = rng.normal(size=(60, 3))
        y = np.clip(np.round(2 * X[:, 0] - X[:, 1] * X[:, 2]), 0, 3)
        _MADE["data"] = RankingData(X, y, qid=[f"q{row // 6}" for row in range(60)], feature_names=["a", "b", "c"])
        two = [tr.LinearRanker("ListNet"), few_trees()]
        makers = {"trees": few_trees(), "blend": tr.BlendRanker(two), "RankBoost": tr.RankBoost(max_rounds=20)}
        makers["grades"] = few_trees(loss="Multinomial", outputs="grades")
        _MADE.update({key: ranker.fit(_MADE["data"]) for key, ranker in makers.items()})
    return _MADE["data"], _MADE[name]


def test_no_single_feature_can():
    data = RankingData([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [1, 0, 2], feature_names=["used", "unused"])
    flat = tr.TreeRanker(n_trees=1, num_leaves=2, min_data_in_leaf=1, threads=1).fit(data)
    same = [flat.predict(data)[i] for i in range(3)]
    lower, higher = int(np.argmin(same)), int(np.argmax(same))
    said = tr.explanations.counterfactuals(flat, data, a=higher, b=lower)
    assert said.changes == ()  # a stump: the lower one can be made equal, never higher
    assert said.summary.startswith("No change of a single feature")


def test_a_value_beyond_the_data_is_told_as_such():
    data = RankingData([[10.0], [0.0], [5.0]], [2, 0, 1], feature_names=["sales"])
    ranker = tr.LinearRanker("ListNet").fit(data)
    found = tr.explanations.counterfactuals(ranker, data, a=0, b=1)
    assert not found.changes[0].seen
    assert (
        "No value within these data ranks 1 above 0; 1 would rank above 0 if its sales were above 10" in found.summary
    )


def test_other_rankers_are_searched_within_the_data():
    data = small(3, missing=False)
    ranker = tr.ExpectedGainRanker("Multinomial").fit(data)
    qid = data.qids[1]
    found = tr.explanations.counterfactuals(ranker, data, qid)
    assert not found.exact
    assert "grid search over 65 values" in str(found)
    asked = ExplainedQuery(ranker, data, qid)
    a, b = asked.order[:2]
    for change in found.changes:
        j = int(change.feature.removeprefix("feature ")) - 1
        row = asked.X[b].copy()
        row[j] = change.value
        assert ranker.predict(RankingData(row[None]))[0] > asked.scores[a]
        row[j] += 1e-5 * np.ptp(data.X[:, j]) * np.sign(asked.X[b, j] - change.value)
        assert ranker.predict(RankingData(row[None]))[0] <= asked.scores[a]


# ---- categories ----


def products(n=240):
    rng = np.random.default_rng(0)
    brand = rng.choice(["acme", "borg", "<i>"], n)
    frame = pd.DataFrame({"query_id": np.repeat(np.arange(n // 8), 8), "brand": brand, "price": rng.gamma(2, 10, n)})
    frame["product_id"] = [f"p{row}" for row in range(n)]
    frame["label"] = np.clip(np.round(2 * (brand == "acme") - frame.price / 40 + 1), 0, 3)
    return frame


@pytest.mark.parametrize("make", [RANKERS["linear"], RANKERS["trees"], RANKERS["expected gain"]])
def test_categories_by_their_names(make):
    frame = products()
    data = RankingData.from_frame(frame)
    ranker = make().fit(data)
    rows = frame[frame.query_id == 2]
    other = rows[rows.brand != "acme"].product_id.iloc[0]
    best = ranker.rank(data)[2][0]
    found = tr.explanations.counterfactuals(ranker, data, 2, best, other)
    brand = [change for change in found.changes if change.feature == "brand"]
    assert all(change.wanted == "acme" and change.size == 1 for change in brand)
    effect = tr.explanations.partial_dependence(ranker, data, "brand")
    assert effect.is_category
    assert set(effect.shown) == {"acme", "borg", "<i>"}
    assert effect.shown[int(np.argmax(effect.means))] == "acme"
    assert "<i>" not in effect.plot().svg()


# ---- importance ----


def test_importance_against_a_loop(linear):
    """Shuffles drawn as documented, metric by metric."""
    data, ranker = linear
    found = tr.permutation_importance(ranker, data, n_repeats=2, seed=3)
    before = tr.evaluate(ranker.predict(data), data, "ndcg@10").per_query["ndcg@10"]
    for place, name in enumerate(found.features):
        number, after = NAMES.index(name), []
        for repeat in range(2):
            rng = np.random.default_rng((3, number, repeat))
            X, drawn = data.X.copy(), rng.random(data.n_documents)
            for rows in data.queries:
                X[rows, number] = data.X[rows, number][np.argsort(drawn[rows])]
            after.append(tr.evaluate(ranker.predict(data.replace(X=X)), data, "ndcg@10").per_query["ndcg@10"])
        expected = np.asarray(before) - np.mean(after, axis=0)
        np.testing.assert_allclose(found.per_query[place], expected, atol=1e-12)
        assert found.importances[place] == pytest.approx(np.mean(expected))
        low, high = tr.significance.bootstrap_interval(found.per_query[place], n_resamples=2000, seed=3)
        assert (found.intervals.low[place], found.intervals.high[place]) == (low, high)
    raw = [tr.significance.randomization_test(row, seed=3).p for row in found.per_query]
    np.testing.assert_array_equal(found.p, tr.significance.holm(raw))
    assert list(found.importances) == sorted(found.importances, reverse=True)
    assert found.features[0] == "sales"
    json.dumps(found.to_dict(), allow_nan=False)
    assert "sales matters most" in str(found)
    assert found.plot().svg()


def test_a_feature_that_is_constant_in_every_query_matters_only_across():
    data = small(3, missing=False)
    X = np.array(data.X)
    X[:, 2] = data.queries.broadcast(np.arange(data.n_queries))
    data = data.replace(X=X)
    ranker = few_trees().fit(data)
    within, across = (
        tr.permutation_importance(ranker, data, features=[2], shuffle=rule) for rule in ("within", "across")
    )
    assert within.importances.tolist() == [0.0]
    assert (within.per_query == 0).all()
    assert across.features == ("feature 3",)
    assert (across.per_query != 0).any()


def test_importance_of_an_error_is_its_growth(linear):
    data, ranker = linear
    found = tr.permutation_importance(ranker, data, "owa", n_repeats=1)
    assert found.importances[0] > 0


def test_importance_does_not_change_the_data_and_takes_sparse_ones(linear):
    from scipy import sparse

    data, ranker = linear
    filled = data.replace(X=np.nan_to_num(data.X))
    kept = filled.X.copy()
    dense = tr.permutation_importance(ranker, filled, n_repeats=1)
    np.testing.assert_array_equal(filled.X, kept)
    bare = tr.permutation_importance(ranker, filled.replace(X=sparse.csr_matrix(filled.X)), n_repeats=1)
    np.testing.assert_allclose(bare.per_query, dense.per_query)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"shuffle": "withn"}, UnknownNameError, "did you mean 'within'"),
        ({"n_repeats": 0}, DataError, "n_repeats"),
        ({"features": ["sale"]}, UnknownNameError, "did you mean 'sales'"),
        ({"features": [7]}, DataError, "valid numbers are 0 to 2"),
        ({"features": []}, DataError, "features is empty"),
        ({"confidence": 2}, DataError, "confidence"),
    ],
)
def test_importance_refuses(linear, options, kind, message):
    data, ranker = linear
    with pytest.raises(kind, match=message):
        tr.permutation_importance(ranker, data, **options)


# ---- effects ----


def test_the_effect_of_a_linear_feature_is_a_line(linear):
    data, ranker = linear
    found = tr.explanations.partial_dependence(ranker, data, "sales", grid_resolution=7)
    expected = ranker.coef_[0] * (found.values - data.X[:, 0].mean())
    np.testing.assert_allclose(found.means, expected, atol=1e-12)
    spread = ranker.coef_[0] * (found.values[:, None] - data.X[:, 0])
    np.testing.assert_allclose(found.p10, np.quantile(spread, 0.1, axis=1), atol=1e-12)
    assert found.plot().svg()
    assert len(found.to_frame()) == 7
    json.dumps(found.to_dict(), allow_nan=False)


def test_missing_is_a_value_too(linear):
    data, ranker = linear
    found = tr.explanations.partial_dependence(ranker, data, "<b>age</b>", grid_resolution=4, n_documents=20, seed=1)
    assert found.shown[-1] == "missing"
    assert "20 documents sampled with seed 1" in found.description
    assert "<b>age" not in found.plot().svg()
    assert "<b>age" not in found._repr_html_()


def test_a_network_that_sees_the_query_is_asked_one_document_at_a_time():
    data = small(3, missing=False)
    options = {"network": "attention", "width": 8, "n_heads": 2, "n_layers": 1, "epochs": 1, "device": "cpu"}
    ranker = tr.NeuralRanker(**options, threads=1).fit(data)
    found = tr.explanations.partial_dependence(ranker, data, 1, grid_resolution=3, n_documents=2, seed=0)
    drawn = np.sort(np.random.default_rng(0).choice(data.n_documents, 2, replace=False))
    changes = []
    for row in drawn:
        X = np.array(data.X)
        X[row, 1] = found.values[2]
        changes.append(ranker.predict(data.replace(X=X))[row] - ranker.predict(data)[row])
    assert found.means[2] == pytest.approx(np.mean(changes), abs=1e-9)
    assert tr.explanations.explain_query(ranker, data, data.qids[0], top=1).changes[0].exact is False
    sparse = data.replace(X=csr_matrix(np.where(data.X > 0.5, data.X, 0.0)))
    dense = data.replace(X=sparse.X.toarray())
    ranker = tr.NeuralRanker(**options, threads=1).fit(sparse)
    both = [
        tr.explanations.partial_dependence(ranker, one, 1, grid_resolution=3, n_documents=2).means
        for one in (sparse, dense)
    ]
    np.testing.assert_allclose(*both, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["score", "low", "high"])
def test_an_effect_keeps_its_values_whatever_the_feature_is_called(name):
    data = tr.RankingData([[1.0], [2.0], [4.0]], [0, 1, 2], feature_names=[name])
    found = tr.explanations.partial_dependence(tr.LinearRanker().fit(data), data, name, grid_resolution=3)
    frame = found.to_frame()
    assert list(frame.columns) == ["value", "score", "low", "high"]
    assert frame["value"].tolist() == list(found.shown) == ["1", "2", "4"]


def test_a_long_query_is_compared_with_some_of_its_documents_by_trees(monkeypatch):
    """All pairs of ten thousand documents would take hours; a linear ranker has its terms at once."""
    monkeypatch.setattr("toprank.explanations.queries._MAX_PAIRS", 300)
    rng = np.random.default_rng(0)
    data = tr.RankingData(rng.normal(size=(30, 3)), rng.integers(0, 3, 30))
    for ranker, said in ((few_trees(), "the mean of 10 documents"), (tr.LinearRanker(), "the mean of all documents")):
        ranker.fit(data)
        found = tr.explanations.explain_query(ranker, data, seed=2)
        assert said in found.against
        assert found.errors is None
        less = [document.score - found.mean for document in found.documents]
        np.testing.assert_allclose(found.values.sum(axis=1), less, atol=1e-12)
        some = np.random.default_rng(2).choice(30, 10, replace=False)
        mean = ranker.predict(data)[some].mean() if "10" in said else ranker.predict(data).mean()
        assert found.mean == pytest.approx(mean)


def test_what_a_search_found_is_not_its_ranker(linear):
    """`select`, `tune` and `auto` give results that hold one; it is not said to be unfitted."""
    data, _ = linear
    found = tr.grid_search("LeastSquares", data, data.select(range(5)))
    for ask in (
        tr.permutation_importance,
        tr.explanations.explain_query,
        lambda ranker, data: tr.monitor(ranker, data, data),
    ):
        with pytest.raises(DataError, match="A SelectionResult is the result of a search; use its `ranker`"):
            ask(found, data)
    assert tr.permutation_importance(found.ranker, data, n_repeats=1).features


def test_importance_is_judged_by_one_metric(linear):
    data, ranker = linear
    for several in ("ndcg@10,map", ["ndcg@10", "map"]):
        with pytest.raises(DataError, match="takes one metric, not ndcg@10, map"):
            tr.permutation_importance(ranker, data, several, n_repeats=1)


def test_importance_of_one_feature_need_not_be_a_list(linear):
    data, ranker = linear
    for one in ("price", 1):
        assert tr.permutation_importance(ranker, data, features=one, n_repeats=1).features == ("price",)


def test_a_difference_that_no_feature_makes_is_called_rounding():
    """Sums that are rounded after each tree may differ where the contributions do not."""
    a, b = ExplainedDocument("a", 1.0 + 1e-7, 1), ExplainedDocument("b", 1.0, 2)
    values = {"values": np.zeros(2), "errors": None, "a_values": ("1", "2"), "b_values": ("1", "2"), "method": "exact"}
    found = Explanation("q", a, b, ("x", "y"), **values)
    assert found.summary == "a ranks above b only by rounding errors of the scores."
    assert Explanation("q", b, a, ("x", "y"), **values).summary.startswith("b ranks below a only by rounding")


# ---- the command line ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("explained")
    data = shop()
    tr.write(data, where / "data.csv")
    tr.write(small(missing=False), where / "data.txt")
    tr.LinearRanker("ListNet").fit(data).save(where / "m.toprank")
    few_trees().fit(tr.read(where / "data.txt")).save(where / "t.toprank")
    return where


def asked(folder, *arguments, status=0):
    result = CliRunner().invoke(app, ["explain", str(folder / "m.toprank"), str(folder / "data.csv"), *arguments])
    assert result.exit_code == status, (result.output, result.exception)
    return result


def test_the_command_says_what_python_says(folder):
    data, ranker = tr.read(folder / "data.csv"), tr.load(folder / "m.toprank")
    pair = asked(folder, "--qid", "q3", "--docs", "d1", "d2").stdout
    assert pair.startswith(str(ranker.explain(data, "q3", "d1", "d2")))
    assert str(tr.explanations.counterfactuals(ranker, data, "q3", "d1", "d2")) in pair
    assert asked(folder, "--qid", "q3").stdout.strip() == str(tr.explanations.explain_query(ranker, data, "q3"))
    assert asked(folder, "--n-repeats", "2").stdout.strip() == str(tr.permutation_importance(ranker, data, n_repeats=2))
    assert asked(folder, "--feature", "price").stdout.strip() == str(
        tr.explanations.partial_dependence(ranker, data, "price")
    )


def test_the_command_prints_json(folder):
    read = json.loads(asked(folder, "--qid", "q3", "--docs", "d1", "d2", "--json").stdout)
    assert read["total"] == pytest.approx(sum(row["contribution"] for row in read["contributions"]))
    assert read["counterfactuals"]["exact"]
    assert len(json.loads(asked(folder, "--qid", "q3", "--json").stdout)["documents"]) == 6
    assert {row["feature"] for row in json.loads(asked(folder, "--json").stdout)["features"]} == set(NAMES)
    assert json.loads(asked(folder, "--feature", "price", "--json").stdout)["feature"] == "price"


def test_the_command_writes_a_page(folder):
    for number, options in enumerate((["--qid", "q3", "--docs", "<script>&", "d2"], ["--qid", "q3"], [])):
        where = folder / f"{number}.html"
        assert asked(folder, *options, "--html", str(where)).stdout == ""
        text = where.read_text()
        assert text.startswith("<!doctype html>")
        assert "<svg" in text
        assert text.count("<script") == 1  # the page's own, whose hash its policy names
        assert "<script>&amp;" not in text
        assert "<b>age" not in text
    asked(folder, "--qid", "q3", "--html", str(folder / "nowhere" / "x.html"), status=1)
    assert not Path(folder / "nowhere").exists()


def test_features_of_text_are_called_by_their_numbers(folder):
    command = ["explain", str(folder / "t.toprank"), str(folder / "data.txt"), "--feature", "2"]
    assert "feature 2" in CliRunner().invoke(app, command).stdout


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--qid", "q33"], 1, "The query 'q33' does not exist in these data; did you mean 'q3'"),
        (["--qid", "q3", "--docs", "d1", "d9"], 1, "The document 'd9' does not exist in query q3; did you mean"),
        (["--docs", "d1", "d2"], 1, "pass the qid of the query to explain."),
        (["--feature", "prise"], 1, "did you mean 'price'?"),
        (["--feature", "price", "--qid", "q3"], 2, "omit --qid and --docs"),
    ],
)
def test_the_command_refuses_in_sentences(folder, arguments, status, message):
    result = asked(folder, *arguments, status=status)
    assert message in (result.stderr + str(result.exception))


# ---- the report ----


def test_a_report_explains_the_best_ranker_and_a_pair_that_it_got_wrong():
    data = tr.synthetic(n_queries=40, n_documents=8, n_features=3, noise=2.0, seed=0)
    ranker = tr.LinearRanker("ListNet").fit(data)
    scores = {"worst": -ranker.predict(data), "ours": ranker.predict(data)}
    result = tr.compare(scores, data)
    content = tr.report.from_comparison(result, data, scores, rankers={"ours": ranker})
    found = content.parts[0].explained
    assert found.system == "ours"
    assert set(found.importance.features) == set(data.feature_names)
    labels = {str(row): label for row, label in enumerate(data.labels.tolist())}
    assert labels[found.pair.a.name] < labels[found.pair.b.name]
    assert found.pair.total > 0
    shown = report_page(content)
    assert "Explanation of the best system" in shown
    assert found.change.split(" ")[0] in shown
    assert tr.report.from_comparison(result, data, scores).parts[0].explained is None


def test_a_report_takes_no_unjudged_document_for_a_mistake():
    """An unjudged document above a relevant one shows no error of the ranker; a judged one does."""
    ranker = tr.LinearRanker("Squared", l2=1.0).fit([[1.0], [2.0], [3.0]], [0, 1, 2])
    data = tr.RankingData([[3.0], [2.0], [1.0]] * 2, [-1, 0, 1] * 2, qid=["q1"] * 3 + ["q2"] * 3)
    scores = {"ours": ranker.predict(data), "level": np.zeros(6)}
    result = tr.compare(scores, data, unjudged="irrelevant")
    content = tr.report.from_comparison(result, data, scores, rankers={"ours": ranker}, unjudged="irrelevant")
    pair = content.parts[0].explained.pair
    assert (pair.a.name, pair.b.name) == (str(data.row_names[1]), str(data.row_names[2]))


def test_a_report_does_without_a_query_that_is_too_large_to_explain(monkeypatch):
    data = tr.synthetic(n_queries=40, n_documents=8, n_features=3, noise=2.0, seed=0)
    ranker = tr.LinearRanker("ListNet").fit(data)
    scores = {"worst": -ranker.predict(data), "ours": ranker.predict(data)}
    monkeypatch.setattr("toprank.explanations.explained_query._MAX_VALUES", 8 * 3 - 1)
    content = tr.report.from_comparison(tr.compare(scores, data), data, scores, rankers={"ours": ranker})
    assert content.parts[0].explained.pair is None


# ---- what is told is what was scored ----


def told_value(change):
    """The number that a change names, and whether it is itself one that does it."""
    *word, number = change.wanted.split()
    word = " ".join(word)
    return float(number), word.startswith("at "), 1.0 if word in ("above", "at least") else -1.0


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["linear", "AdaRank", "CoordinateAscent", "trees", "blend", "network"])
def test_a_change_turns_the_order_as_it_is_printed(kind, name):
    """Put into the data by hand, both the value and what is printed lift the document, in the precision of the data."""
    rng = np.random.default_rng(7)
    X = (rng.normal(size=(60, 3)) * [1.0, 1e-3, 1e4] + [0.0, 3.3, 0.0]).astype(kind)
    y = np.clip(np.round(X[:, 0] - X[:, 2] / 1e4), 0, 3)
    data = RankingData(X, y, qid=np.repeat(np.arange(10), 6), feature_names=["a", "b", "c"])
    makers = {
        "linear": tr.LinearRanker("ListNet"),
        "AdaRank": tr.AdaRank(max_rounds=20),
        "CoordinateAscent": tr.CoordinateAscent(restarts=1, max_cycles=2),
        "trees": few_trees(),
        "blend": tr.BlendRanker([tr.LinearRanker("ListNet"), few_trees()]),
        "network": tr.NeuralRanker("ListNet", hidden=(4,), epochs=3, device="cpu", threads=1),
    }
    ranker = makers[name].fit(data)
    tried = 0
    for query in range(10):
        asked = ExplainedQuery(ranker, data, query)
        rows = 6 * query + np.array(asked.order[:2])
        found = tr.explanations.counterfactuals(ranker, data, query, int(rows[0]), int(rows[1]))
        for change in found.changes:
            number, itself, side = told_value(change)
            assert abs(number - change.value) <= 1e-4 * abs(change.value)
            farther = max(kind(number), kind(change.value)) if side > 0 else min(kind(number), kind(change.value))
            beyond = kind(number) if itself else np.nextafter(farther, kind(side * np.inf))
            for value in (change.value, beyond):
                changed = data.X.copy()
                changed[rows[1], "abc".index(change.feature)] = value
                scores = ranker.predict(data.replace(X=changed))
                assert scores[rows[1]] > scores[rows[0]]
                tried += 1
    assert tried > 5


def test_dense_data_are_tried_in_every_feature(linear):
    """A feature that neither document has, which is 0 in both, may still turn the order."""
    from scipy import sparse

    data, ranker = linear
    for one in (data, data.replace(X=np.nan_to_num(data.X))):
        found = tr.explanations.counterfactuals(ranker, one, one.qids[0])
        assert found.features == data.n_features
        assert not any("Only features that one" in note for note in found.caveats)
    thin = data.replace(X=sparse.csr_matrix(np.where(np.arange(data.n_features) == 0, 0.0, np.nan_to_num(data.X))))
    found = tr.explanations.counterfactuals(ranker, thin, thin.qids[0])
    assert found.features < data.n_features
    assert found.caveats[-1].startswith("Only features that are nonzero in one of the two documents")


def test_explanations_of_text_show_query_text_and_titles():
    pd = pytest.importorskip("pandas")
    rows = [
        (f"q{q}", f"p{q}{d}", "red shoes" if q % 2 else "blue lamp", title, 10.0 * d + q, int(title in wanted))
        for q in range(6)
        for wanted in [("Red  shoes",) if q % 2 else ("A blue lamp",)]
        for d, title in enumerate(["Red  shoes", "A blue lamp", "Green chair"])
    ]
    frame = pd.DataFrame(rows, columns=["query_id", "product_id", "search_term", "title", "price", "relevance"])
    data = tr.RankingData.from_frame(frame, text={"query": "search_term", "document": ["title"]})
    ranker = tr.LinearRanker("ListNet", l2=0.1).fit(data)
    explanation = tr.explanations.explain_query(ranker, data, "q1")
    assert str(explanation).startswith("Query q1 'red shoes': contributions")
    assert "q1 'red shoes'" in explanation.summary
    assert "p10 'Red shoes'" in explanation.summary
    assert explanation.to_dict()["query_text"] == "red shoes"
    assert explanation.to_dict()["documents"][0]["title"] == "Red  shoes"
    pair = ranker.explain(data, "q1", "p10", "p12")
    assert pair.summary.startswith("p10 'Red shoes' ranks above p12 'Green chair' because")
    assert "Query q1 'red shoes': p10 'Red shoes' (rank 1" in str(pair)
    assert pair.to_dict()["query_text"] == "red shoes"
