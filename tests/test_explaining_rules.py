"""The rules of explanations one by one: what is said at exact sizes, ties and ends, and each side of a rule alone."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import toprank as tr
from test_contributions import few_trees
from toprank.errors import DataError, UnknownNameError
from toprank.explanations.columns import Feature, feature_number, find_feature
from toprank.explanations.dependence import PartialDependence
from toprank.explanations.explained_query import ExplainedDocument
from toprank.explanations.feature_changes import Counterfactuals, FeatureChange
from toprank.explanations.permutations import Importance
from toprank.explanations.queries import QueryExplanation, _backgrounds
from toprank.significance import Interval

A, B = ExplainedDocument("a", 2.0, 1), ExplainedDocument("b", 1.0, 2)


def an_importance(p, drops, confidence=0.95):
    n = len(p)
    names, drops = tuple(f"f{i:02}" for i in range(n)), np.array(drops)
    return Importance(
        "ndcg",
        0.5,
        names,
        drops,
        Interval(drops, drops - 0.01, drops + 0.01, confidence, 3, ""),
        np.array(p),
        np.zeros((n, 3)),
        confidence,
        "How.",
    )


def test_a_feature_matters_where_its_loss_is_both_significant_and_above_nothing():
    found = an_importance([0.05, 0.0501, 0.01, 0.01], [0.3, 0.2, 0.0, -0.1])
    assert found.significant == ("f00",)
    assert found.summary == (
        "f00 matters most: when it is shuffled, ndcg drops by 0.3000 [0.2900, 0.3100] from 0.5000. "
        "1 of 4 features are significant."
    )
    assert an_importance([0.01], [0.3]).summary.endswith("1 of 1 feature is significant.")
    assert an_importance([0.01], [0.0]).summary == "No feature has a significant importance for ndcg on these queries."
    second = an_importance([0.9, 0.01, 0.02], [0.3, 0.2, 0.1])
    assert second.summary.startswith(
        "f01 matters most: when it is shuffled, ndcg drops by 0.2000 [0.1900, 0.2100] from 0.5000. 2 of"
    )
    assert an_importance([0.1], [0.3], confidence=0.9).significant == ("f00",)  # 1 - 0.9 is a little below 0.1


@pytest.mark.parametrize(("n", "more"), [(20, ""), (21, " 1 more features"), (25, " 5 more features")])
def test_twenty_features_are_shown_and_the_rest_is_counted(n, more):
    found = an_importance([0.01] * n, [0.1] * n)
    text = str(found)
    assert "f19" in text
    assert "f20" not in text
    assert ("more features" in text) == bool(more)
    assert more in text
    assert "f19" in found.plot()._repr_svg_()
    assert "f20" not in found.plot()._repr_svg_()
    assert "95 % interval" in text


def test_an_interval_without_an_end_is_null_in_json():
    found = an_importance([0.5], [0.1])
    found.intervals.high[0], found.intervals.low[0] = np.inf, np.nan
    (row,) = found.to_dict()["features"]
    assert row == {"feature": "f00", "drop": 0.1, "low": None, "high": None, "p": 0.5}


@pytest.fixture(scope="module")
def fitted():
    data = tr.synthetic(n_queries=8, n_documents=(3, 6), n_features=3, seed=2)
    return data, tr.LinearRanker("ListNet").fit(data)


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
@pytest.mark.parametrize("rule", ["within", "across"])
def test_a_feature_is_shuffled_with_all_others_in_their_places(fitted, rule, kind):
    data, ranker = fitted
    data = data.replace(X=kind(data.X))
    options = {"shuffle": rule, "n_repeats": 2, "seed": 5, "threads": 1}
    together = tr.permutation_importance(ranker, data, "ndcg@3", **options)
    for name, losses in zip(together.features, together.per_query, strict=True):
        alone = tr.permutation_importance(ranker, data, "ndcg@3", features=name, **options)
        np.testing.assert_array_equal(alone.per_query[0], losses)
    assert f"2 times {rule} {'queries' if rule == 'within' else 'all documents'} (seed 5)" in together.description
    assert list(together.importances) == sorted(together.importances, reverse=True)


@pytest.mark.parametrize(
    "wrong", [{"n_repeats": 0}, {"confidence": 0.5}, {"confidence": 1.0}, {"seed": -1}, {"features": []}]
)
def test_limits_of_importance(fitted, wrong):
    data, ranker = fitted
    with pytest.raises(DataError, match=next(iter(wrong))):
        tr.permutation_importance(ranker, data, **wrong)


def test_least_that_importance_takes(fitted):
    data, ranker = fitted
    found = tr.permutation_importance(ranker, data, features=0, n_repeats=1, confidence=0.51, seed=0)
    assert (len(found.features), found.confidence) == (1, 0.51)


@pytest.mark.parametrize("n_more", [0, 1])
def test_effects_are_over_all_documents_where_so_many_are_asked_for(fitted, n_more):
    data, ranker = fitted
    n = data.n_documents
    every = tr.explanations.partial_dependence(ranker, data, 1, grid_resolution=2, n_documents=n + n_more)
    assert every.description == f"Mean over {n:,} documents."
    assert every.values.tolist() == [data.X[:, 1].min(), data.X[:, 1].max()]
    at_ends = ranker.coef_[1] * (every.values[:, None] - data.X[:, 1])
    np.testing.assert_allclose(every.means, at_ends.mean(axis=1))
    np.testing.assert_allclose(every.p10, np.quantile(at_ends, 0.1, axis=1))
    np.testing.assert_allclose(every.p90, np.quantile(at_ends, 0.9, axis=1))
    some = tr.explanations.partial_dependence(ranker, data, 1, grid_resolution=2, n_documents=n - 1, seed=3)
    assert some.description == f"Mean over {n - 1:,} documents sampled with seed 3."
    one = tr.explanations.partial_dependence(ranker, data, 1, grid_resolution=2, n_documents=1, seed=0)
    assert one.p10.tolist() == one.p90.tolist()


@pytest.mark.parametrize("wrong", [{"grid_resolution": 1}, {"n_documents": 0}, {"seed": -1}])
def test_limits_of_effects(fitted, wrong):
    data, ranker = fitted
    with pytest.raises(DataError, match=next(iter(wrong))):
        tr.explanations.partial_dependence(ranker, data, 0, **wrong)


def test_an_effect_in_words():
    means = np.array([0.5, -0.25, 0.125])
    found = PartialDependence(
        "price", np.array([1.0, 2.0, 3.0]), ("1", "2", "3"), means, means - 1, means + 1, False, "How."
    )
    assert str(found).startswith(
        "With other features unchanged, the score is highest at price = 1 (+0.5) and lowest at 2 (−0.25)."
    )
    level = PartialDependence(
        "price", np.array([1.0, 2.0]), ("1", "2"), np.ones(2), np.ones(2), np.ones(2), False, "How."
    )
    assert str(level).startswith("The score does not depend on price if other features are unchanged.")


@pytest.mark.parametrize(
    ("values", "is_category", "curve"),
    [
        ([1.0, 2.0], False, True),
        ([1.0, np.nan], False, False),
        ([1.0, 2.0], True, False),
        ([1.0, 2.0, np.nan], False, True),
    ],
)
def test_an_effect_is_a_curve_from_two_known_numbers_on(values, is_category, curve):
    means = np.linspace(0, 1, len(values))
    shown = tuple(str(value) for value in values)
    found = PartialDependence("price", np.array(values), shown, means, means - 1, means + 1, is_category, "How.")
    assert ('class="band"' in found.plot()._repr_svg_()) == curve


def a_query(n, values=None):
    documents = tuple(ExplainedDocument(f"d{i:02}", float(n - i), i + 1) for i in range(n))
    features = tuple("abcde")
    values = np.tile([0.5, -2.0, 0.0, 0.25, 1.0], (n, 1)) if values is None else values
    return QueryExplanation("q", documents, features, values, None, 1.0, "the mean", "exact")


def test_what_moved_a_document_the_three_largest_first():
    found = a_query(2)
    assert list(found.contributions("d01").items()) == [("b", -2.0), ("e", 1.0), ("a", 0.5), ("d", 0.25), ("c", 0.0)]
    assert "b −2, e +1, a +0.5" in str(found)
    assert "d +0.25" not in str(found)
    one = a_query(1, np.array([[0.0, 0.0, 3.0, 0.0, 0.0]]))
    assert "c +3 " in str(one)
    assert "b 0" not in str(one)
    assert "nothing" in str(a_query(1, np.zeros((1, 5))))
    assert "c: 0" not in found.plot()._repr_svg_()
    assert "Contributions to d00" in found.plot()._repr_svg_()
    assert "Contributions to d01" in found.plot("d01")._repr_svg_()
    with pytest.raises(KeyError, match="d02"):
        found.contributions("d02")
    assert found.to_frame("arrow").column("error").to_pylist() == [0.0] * 10


@pytest.mark.parametrize(("n", "left"), [(20, None), (21, " 1 more documents"), (30, " 10 more documents")])
def test_twenty_documents_are_shown_and_the_rest_is_counted(n, left):
    text = str(a_query(n))
    assert "d19" in text
    assert "d20" not in text
    assert ("more documents" in text) == (left is not None)
    assert (left or "") in text


@pytest.mark.parametrize("top", [0, 1, 3, 9])
def test_as_many_places_as_asked_for_are_told_how_the_next_gets_there(fitted, top):
    data, ranker = fitted
    query = data.select([0])
    found = tr.explanations.explain_query(ranker, query, top=top)
    assert len(found.changes) == min(top, query.n_documents - 1)
    order = [document.name for document in found.documents]
    for place, change in enumerate(found.changes):
        assert (change.a.name, change.b.name) == (order[place], order[place + 1])
    with pytest.raises(DataError, match="top"):
        tr.explanations.explain_query(ranker, query, top=-1)


def test_how_many_documents_all_are_compared_with():
    data = tr.synthetic(n_queries=6, n_documents=4, n_features=2, n_grades=2, seed=0)
    linear, trees = tr.LinearRanker().fit(data), few_trees().fit(data)
    assert _backgrounds(linear, 100_000) == 100_000
    assert [_backgrounds(trees, n) for n in (1, 256, 257, 8192, 9000)] == [65_536, 256, 255, 8, 8]
    assert _backgrounds(SimpleNamespace(explains_exactly=False), 4) == 8


def some_changes(*seen, exact=True):
    found = tuple(FeatureChange(f"f{i}", "1", f"above {i}", float(i), 0.5, one) for i, one in enumerate(seen))
    return Counterfactuals("q", A, B, found, 9, exact)


def test_the_smallest_change_with_a_value_of_the_data_is_told():
    assert some_changes().summary == "No change of a single feature ranks b above a."
    assert some_changes(False, True, True).summary == "b would rank above a if its f1 were above 1 (now 1)."
    assert some_changes(False, False).summary == (
        "No value within these data ranks b above a; b would rank above a if its f0 were above 0 (now 1)."
    )
    text = str(some_changes(*[True] * 7))
    assert "f4" in text
    assert "f5" not in text
    assert "7 of 9 features suffice alone (exact)." in text
    assert "grid search over 65 values" in str(some_changes(True, exact=False))
    assert "refined to 1e-08 of that range" in str(some_changes(True, exact=False))  # 1 / (64 · 16⁵)


def test_one_feature_of_the_data(fitted):
    data, ranker = fitted
    X = np.array(data.X)
    X[:, 0], X[:, 1] = 7.0, np.nan
    X[:, 2] = np.r_[[5.0, 5.0, 1.0, 1.0, 1.0], np.full(len(X) - 5, np.nan)]
    alike, nothing, some = (Feature(ranker, data.replace(X=X), number) for number in range(3))
    assert alike.spread == 1.0
    assert nothing.present.tolist() == [0.0]
    assert some.present.tolist() == [5, 5, 1, 1, 1]
    assert some.spread == pytest.approx(np.std([5, 5, 1, 1, 1]))
    assert some.levels.tolist() == [1, 5]
    ways = dict(some.rounded(1.23456789, 1.0))
    assert ways["1.23457"] == 1.23457
    assert ways["1.234568"] == 1.234568
    assert "1.23456" in dict(some.rounded(1.23456789, -1.0))


def test_features_by_number_and_name(fitted):
    data, ranker = fitted
    names = data.feature_names
    assert [feature_number(ranker, data, one) for one in (0, np.int64(2), names[1])] == [0, 2, 1]
    for wrong in (-1, 3, True, 1.0):
        with pytest.raises(DataError, match="valid numbers are 0 to 2"):
            feature_number(ranker, data, wrong)
    with pytest.raises(UnknownNameError):
        feature_number(ranker, data, "none")
    plain = tr.RankingData(data.X, data.labels, qid=data.qid)
    unnamed = tr.LinearRanker().fit(plain)
    assert find_feature(unnamed, plain, "2") == "feature 2"
    assert find_feature(unnamed, plain, "feature 2") == "feature 2"
    assert find_feature(unnamed, plain, "9") == "9"
    assert find_feature(ranker, data, names[0]) == names[0]
