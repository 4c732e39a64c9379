"""What features contribute to a difference of two scores, against the enumeration of all coalitions."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toprank as tr
from test_forest import forged, grown, mixed, strange_rows, text_of
from toprank import kernels
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.explanations.explained_query import ExplainedQuery
from toprank.rankers import contributions
from toprank.rankers.contributions import Sampling
from toprank.rankers.foreign import building
from toprank.rankers.trees.text import read_trees

ONE, OTHER = np.array([0]), np.array([1])


def enumerated(value, n):
    """Shapley's formula, word by word: value takes a tuple of n truth values."""
    shares = np.zeros(n)
    for coalition in product((False, True), repeat=n):
        size = sum(coalition)
        for j in range(n):
            if not coalition[j]:
                joined = (*coalition[:j], True, *coalition[j + 1 :])
                weight = factorial(size) * factorial(n - size - 1) / factorial(n)
                shares[j] += weight * (value(joined) - value(coalition))
    return shares


def by_enumeration(score, a, b):
    """Of a function of single rows."""
    known = {c: float(score(np.where(c, a, b)[None])[0]) for c in product((False, True), repeat=len(a))}
    return enumerated(known.__getitem__, len(a))


def close(found, expected, size=1.0):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * max(1.0, size))


# ---- trees ----


@pytest.mark.parametrize("categorical", [[], [3], [3, 4]])
@pytest.mark.parametrize("missing", [{}, {"zero_as_missing": True}, {"use_missing": False}])
def test_trees_against_all_coalitions(missing, categorical):
    """Every missing type, categories, and values at which the rules of LightGBM change."""
    rng = np.random.default_rng(len(categorical))
    X, y = mixed(rng)
    if 4 in categorical:
        X[:, 4] += 2
    forest = read_trees(text_of(grown(X, y, num_leaves=17, categorical=categorical, **missing)))
    rows = strange_rows(X, rng, 24)
    for a, b in zip(rows[::2], rows[1::2], strict=True):
        found = forest.contributions(np.array([a, b]), ONE, OTHER)[0]
        close(found, by_enumeration(forest.predict, a, b), 10)
        agree = (a == b) | (np.isnan(a) & np.isnan(b))
        assert (found[agree] == 0).all()


@pytest.mark.parametrize("leaves", [2, 9, 300])
def test_trees_of_any_size_add_up(leaves):
    rng = np.random.default_rng(leaves)
    X = rng.normal(size=(4 * leaves + 200, 40))
    y = np.sin(9 * X[:, 0]) * X[:, 1] + X[:, 2:].sum(axis=1) + rng.normal(size=len(X))
    forest = read_trees(text_of(grown(X, y, rounds=20, num_leaves=leaves, min_sum_hessian_in_leaf=0.0)))
    rows, every = X[:150], np.arange(150)  # more than the kernel ranks at a time
    scores = forest.predict(rows)
    against_all = forest.contributions(rows, every, every, threads=2)
    close(against_all.sum(axis=1), scores - scores.mean(), 100)
    close(against_all.sum(axis=0), 0.0, 100)  # what one document gains the others lose
    some = forest.contributions(rows, every[:3], every[5:9])
    close(some.sum(axis=1), scores[:3] - scores[5:9].mean(), 100)
    pairs = [forest.contributions(rows, every[:1], every[[j]])[0] for j in range(5, 9)]
    close(some[0], np.mean(pairs, axis=0), 100)
    np.testing.assert_array_equal(against_all, forest.contributions(rows, every, every, threads=1))


def test_a_chain_that_asks_one_feature_again_and_again():
    x = np.arange(60.0)
    forest = read_trees(text_of(grown(np.column_stack([x, -x]), x**3, rounds=3, num_leaves=60, min_data_in_bin=1)))
    a, b = np.array([55.0, -3.0]), np.array([2.0, -40.0])
    found = forest.contributions(np.array([a, b]), ONE, OTHER)[0]
    close(found, by_enumeration(forest.predict, a, b), 1e5)


def test_swapping_two_documents_changes_every_sign():
    rng = np.random.default_rng(0)
    X, y = mixed(rng)
    forest = read_trees(text_of(grown(X, y, categorical=[3])))
    forth, back = (forest.contributions(X[:2], *pair)[0] for pair in ((ONE, OTHER), (OTHER, ONE)))
    close(forth, -back, 10)


def test_several_outputs_have_no_one_score():
    rng = np.random.default_rng(0)
    X, y = mixed(rng)
    forest = read_trees(text_of(grown(X, np.clip(np.round(y), 0, 2), objective="multiclass", num_class=3)))
    with pytest.raises(DataError, match="one output"):
        forest.contributions(X[:2], ONE, OTHER)


def test_thresholds_are_where_scores_change():
    forest = read_trees(forged("1.5"))
    assert forest.thresholds(0).tolist() == [1.5]
    assert forest.thresholds(1).tolist() == []
    assert forest.categories == frozenset()


# ---- every ranker ----


def small(n_features=5, seed=0, missing=True):
    rng = np.random.default_rng(seed)
    data = tr.synthetic(n_queries=25, n_documents=(4, 8), n_features=n_features, truth="nonlinear", seed=seed)
    X = np.array(data.X, dtype=np.float64)
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return RankingData(X, data.labels, queries=data.queries, qids=data.qids)


def few_trees(**options):
    return tr.TreeRanker(n_trees=8, num_leaves=6, min_data_in_leaf=3, threads=1, **options)


RANKERS = {
    "linear": lambda: tr.LinearRanker("ListNet"),
    "unscaled": lambda: tr.LinearRanker("ListNet", standardize=False),
    "trees": few_trees,
    "grades": lambda: few_trees(loss="Multinomial", outputs="grades"),
    "expected gain": lambda: tr.ExpectedGainRanker("Multinomial"),
    "AdaRank": lambda: tr.AdaRank(max_rounds=10),
    "RankBoost": lambda: tr.RankBoost(max_rounds=20),
    "CoordinateAscent": lambda: tr.CoordinateAscent(restarts=1, max_cycles=2),
    "network": lambda: tr.NeuralRanker(hidden=(8,), epochs=2, device="cpu", threads=1),
    "blend": lambda: tr.BlendRanker([tr.LinearRanker("ListNet"), few_trees(), tr.ExpectedGainRanker()], [1, 2, 1]),
}
EXACT = {"linear", "unscaled", "trees", "AdaRank", "RankBoost", "CoordinateAscent"}


@pytest.fixture(scope="module")
def fitted():
    data = small()
    return data, {name: make().fit(data) for name, make in RANKERS.items()}


@pytest.mark.parametrize("name", RANKERS)
def test_every_ranker_against_all_coalitions(fitted, name):
    data, rankers = fitted
    ranker = rankers[name]
    query = data.select([3])
    assert ranker.explains_exactly == (name in EXACT)
    found = ranker.contributions(query, ONE, OTHER)
    assert found.errors is None
    expected = by_enumeration(ranker.predict, query.X[0], query.X[1])
    close(found.values[0], expected, 10)
    scores = ranker.predict(query)
    close(found.values.sum(), scores[0] - scores[1], 10)


@pytest.mark.parametrize("name", RANKERS)
def test_the_mean_over_backgrounds_sums_to_the_score_less_their_mean(fitted, name):
    data, rankers = fitted
    query = data.select([4])
    every, scores = np.arange(query.n_documents), rankers[name].predict(query)
    found = rankers[name].contributions(query, every, every)
    close(found.values.sum(axis=1), scores - scores.mean(), 10)
    close(found.values.sum(axis=0), 0.0, 10)


def test_a_network_that_sees_the_query_exchanges_values_and_leaves_the_others():
    data = small(4, missing=False)
    options = {"network": "attention", "width": 8, "n_heads": 2, "n_layers": 1, "epochs": 2, "device": "cpu"}
    ranker = tr.NeuralRanker(**options, threads=1).fit(data)
    assert ranker.uses_query_context
    query = data.select([2])

    def exchanged(coalition):
        X = query.X.copy()
        X[0], X[1] = np.where(coalition, query.X[0], query.X[1]), np.where(coalition, query.X[1], query.X[0])
        scores = ranker.predict(RankingData(X))
        return float(scores[0] - scores[1]) / 2

    known = {c: exchanged(c) for c in product((False, True), repeat=4)}
    found = ranker.contributions(query, ONE, OTHER).values[0]
    close(found, enumerated(known.__getitem__, 4))
    scores = ranker.predict(query)
    close(found.sum(), scores[0] - scores[1])
    assert "held fixed" in str(ranker.explain(query, a=0, b=1))
    blend = tr.BlendRanker.from_fitted([ranker, tr.LinearRanker("ListNet").fit(data)], data)
    assert blend.uses_query_context
    assert not tr.BlendRanker.from_fitted(
        [ranker, tr.LinearRanker("ListNet").fit(data)], data, [0, 1]
    ).uses_query_context
    blended = blend.predict(query)
    close(blend.contributions(query, ONE, OTHER).values.sum(), blended[0] - blended[1])


# ---- estimates ----


def test_estimates_scatter_about_the_truth_as_their_errors_say(monkeypatch):
    """The mean of many estimates is the enumeration, and the mean square of their errors the variance seen."""
    data = small(8, missing=False)
    ranker = tr.ExpectedGainRanker("Multinomial").fit(data)
    query = data.select([0])
    truth, scores = ranker.contributions(query, ONE, OTHER).values[0], ranker.predict(query)
    monkeypatch.setattr(contributions, "_MAX_ENUMERATED", 0)
    found = [ranker.contributions(query, ONE, OTHER, Sampling(20, seed)) for seed in range(300)]
    values, errors = np.array([one.values[0] for one in found]), np.array([one.errors[0] for one in found])
    close(values.sum(axis=1), scores[0] - scores[1], 10)
    variance = values.var(axis=0, ddof=1)
    np.testing.assert_allclose((errors**2).mean(axis=0).sum(), variance.sum(), rtol=0.15)
    assert (np.abs(values.mean(axis=0) - truth) < 4 * np.sqrt(variance / len(found))).all()
    assert "20 random orders" in found[14].method
    assert "seed 14" in found[14].method


def test_the_seed_decides_an_estimate_and_nothing_else():
    data = small(14, missing=False)
    ranker = tr.ExpectedGainRanker("Multinomial").fit(data)
    first, again, other = (ranker.explain(data, data.qids[0], seed=seed, permutations=16) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.values, again.values)
    assert (first.values != other.values).any()
    assert (first.errors > 0).all()
    assert ranker.explain(data, data.qids[0]).errors.max() < first.errors.max()  # more orders by default
    with pytest.raises(DataError, match="permutations"):
        ranker.explain(data, data.qids[0], permutations=1)


def test_errors_of_members_add_up_as_squares():
    data = small(14, missing=False)
    gain = tr.ExpectedGainRanker("Multinomial").fit(data)
    blend = tr.BlendRanker.from_fitted([gain, tr.LinearRanker("ListNet").fit(data)], data, [1, 3])
    query, sampling = data.select([0]), Sampling(16, 5)
    factor = blend.weights_[0] / blend.scales_[0]
    found = blend.contributions(query, ONE, OTHER, sampling)
    close(found.errors, factor * gain.contributions(query, ONE, OTHER, sampling).errors)


# ---- properties ----


@st.composite
def tables(draw):
    """Three documents of four features, with equal values and missing ones."""
    value = st.sampled_from([0.0, 1.0, -2.5, 3.0, float("nan")])
    return np.array(draw(st.lists(st.lists(value, min_size=4, max_size=4), min_size=3, max_size=3)))


@settings(deadline=None, max_examples=40)
@given(tables())
def test_properties_of_contributions(X):
    """Efficiency, features that agree get 0, and antisymmetry; for trees, a sum and a product of features."""
    for ranker in properties():
        query = RankingData(X)
        scores = ranker.predict(query)
        found = ranker.contributions(query, ONE, OTHER).values[0]
        close(found.sum(), scores[0] - scores[1], 10)
        agree = (X[0] == X[1]) | (np.isnan(X[0]) & np.isnan(X[1]))
        assert (found[agree] == 0).all()
        close(found, -ranker.contributions(query, OTHER, ONE).values[0], 10)


def test_features_that_play_the_same_part_get_the_same():
    """Symmetry: a ranker that does not tell two features apart gives them equal shares of an equal change."""

    class Product(tr.LinearRanker):
        explains_exactly = False

        def _scores(self, X):
            return X[:, 0] * X[:, 1] + X[:, 2]

    data = RankingData([[3.0, 3.0, 1.0], [1.0, 1.0, 5.0]], [1, 0])
    ranker = Product("ListNet").fit(data)
    close(ranker.contributions(data, ONE, OTHER).values[0], [4.0, 4.0, -4.0])


_KEPT = []


def properties():
    if not _KEPT:
        data = small(4)
        _KEPT.extend(RANKERS[name]().fit(data) for name in ("linear", "trees", "expected gain", "RankBoost"))
    return _KEPT


# ---- tables with categories ----


@pytest.mark.parametrize("name", ["linear", "trees", "expected gain", "RankBoost", "blend"])
def test_a_category_is_one_feature_however_many_columns_it_has(name):
    import pandas as pd

    rng = np.random.default_rng(0)
    n = 300
    frame = pd.DataFrame(
        {
            "qid": np.repeat(np.arange(30), 10),
            "brand": pd.Series(rng.choice(["acme", "borg", "cola"], n)).where(rng.random(n) > 0.1),
            "price": rng.gamma(2.0, 10.0, n),
            "added": pd.Timestamp("2024-03-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
        }
    )
    frame["label"] = np.clip(np.round((frame.brand == "acme") * 2 - frame.price / 30 + 1), 0, 3)
    data = RankingData.from_frame(frame)
    ranker = RANKERS[name]().fit(data)
    assert ranker.category_columns == {0}
    query = data.select([1])
    a, b = query.X[0], query.X[1]

    def score(rows):
        return ranker.predict(query.filter(np.arange(10) == 0).replace(X=rows))

    close(ranker.contributions(query, ONE, OTHER).values[0], by_enumeration(score, a, b), 10)
    found = ranker.explain(data, 1, a=10, b=11)
    assert list(found.features) == ["brand", "price", "added"]
    assert found.a_values[0] == (frame.brand[10] if isinstance(frame.brand[10], str) else "missing")
    assert found.a_values[2] == str(frame.added[10].date())
    scores = ranker.predict(query)
    close(sum(found.contributions.values()), scores[0] - scores[1], 10)


def test_all_variants_give_the_same_bits(tmp_path):
    rng = np.random.default_rng(2)
    X, y = mixed(rng)
    (tmp_path / "trees.txt").write_text(text_of(grown(X, y, num_leaves=40, categorical=[3])))
    np.save(tmp_path / "rows.npy", strange_rows(X, rng, 30))
    code = (
        "import sys, numpy as np; from pathlib import Path; from toprank.rankers.trees.text import read_trees;"
        "folder = Path(sys.argv[1]); forest = read_trees((folder / 'trees.txt').read_text()); every = np.arange(30);"
        "print(forest.contributions(np.load(folder / 'rows.npy'), every, every).tobytes().hex())"
    )
    library = kernels.library()
    found = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            env=os.environ | {"TOPRANK_KERNELS": variant},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for variant in library.variants[: library.variants.index(library.machine) + 1]
    }
    assert len(found) == 1


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
def test_models_of_other_libraries(library, tmp_path):
    """Trees that round features, and sums, to single precision: the sum is exact as far as their scores are."""
    data = small(5)
    X, y = np.asarray(data.X), data.labels
    options = {"n_estimators": 10, "max_depth": 3, "random_state": 0}
    if library == "lightgbm":
        model = pytest.importorskip("lightgbm").LGBMRegressor(**options, min_child_samples=3, verbose=-1).fit(X, y)
        model.booster_.save_model(tmp_path / "m.txt")
        path = tmp_path / "m.txt"
    elif library == "xgboost":
        model = pytest.importorskip("xgboost").XGBRegressor(**options).fit(X, y)
        path = tmp_path / "m.json"
        model.save_model(path)
    else:
        model = pytest.importorskip("catboost").CatBoostRegressor(**options, verbose=False, allow_writing_files=False)
        path = tmp_path / "m.json"
        model.fit(X, y).save_model(str(path), format="json")
    ranker = tr.load(path)
    assert ranker.explains_exactly
    query = data.select([3])
    found = ranker.contributions(query, ONE, OTHER).values[0]
    np.testing.assert_allclose(found, by_enumeration(ranker.predict, query.X[0], query.X[1]), atol=2e-6)
    scores = ranker.predict(query)
    np.testing.assert_allclose(found.sum(), scores[0] - scores[1], atol=2e-6)
    changes = tr.explanations.counterfactuals(ranker, data, data.qids[3])
    assert changes.exact
    row = ExplainedQuery(ranker, data, data.qids[3])
    for change in changes.changes:
        lifted = row.X[row.order[1]].copy()
        lifted[row.features.index(change.feature)] = change.value
        assert ranker.predict(lifted[None])[0] > changes.a.score


def test_as_many_orders_as_score_a_quarter_of_a_million_documents():
    """2n orders of p players score 2n (p + 1) documents for each pair; drawn in twos, 16 to 1024 of them."""
    several = Sampling()
    assert several.n_antithetic_pairs(players=1, documents=1) == 512
    assert several.n_antithetic_pairs(players=10_000, documents=50) == 8
    for players, documents in ((9, 100), (31, 20), (99, 7)):
        orders = 2 * several.n_antithetic_pairs(players, documents)
        assert 16 < orders < 1024
        assert orders * (players + 1) * documents <= 1 << 18 < (orders + 2) * (players + 1) * documents
    assert [Sampling(orders).n_antithetic_pairs(3, 3) for orders in (4, 5, 10, 5000)] == [2, 2, 5, 2500]


# ---- large trees, in which what is decided is looked up ----


def chain(features):
    """Node i asks for feature i: 0 ends in a leaf worth 0, 1 goes on, and behind the last stands the leaf worth 1."""
    places = np.arange(features)
    left = [*(features + places).tolist(), *[-1] * (features + 1)]
    right = [*(places[1:]).tolist(), 2 * features, *[-1] * (features + 1)]
    every = np.zeros(2 * features + 1)
    value = every.copy()
    value[-1] = 1.0
    feature = np.concatenate([places, np.zeros(features + 1, np.int64)])
    nodes = building.RawNodes(left, right, feature, every + 0.5, every + building.NAN_LEFT, value)
    return building.forest([building.tree(0, nodes, features)], features)


def test_a_chain_over_many_features_takes_steps_in_proportion():
    """All features must be the first row's for its score: each has 1/n; four times as many, four times as long."""
    seconds = {}
    for n in (15_000, 60_000):
        forest, rows = chain(n), np.stack([np.ones(n), np.zeros(n)])
        taken = []
        for _ in range(3):
            start = time.process_time()
            found = forest.contributions(rows, np.array([0]), np.array([1]), threads=1)
            taken.append(time.process_time() - start)
        np.testing.assert_allclose(found[0], 1 / n, rtol=1e-9)
        seconds[n] = min(taken)
    assert seconds[60_000] < 10 * seconds[15_000]  # the square would be 16


@pytest.mark.parametrize("seed", range(3))
def test_large_trees_are_explained_as_small_ones(seed):
    """Trees of 700 leaves over six features, each asked for again and again on a way down; every coalition."""
    rng = np.random.default_rng(seed)
    inner, features = 699, 6
    left, right, open_leaves = [-1], [-1], [0]
    while len(left) < 2 * inner + 1:
        node = open_leaves.pop(rng.integers(len(open_leaves)))
        left[node], right[node] = len(left), len(left) + 1
        left += [-1, -1]
        right += [-1, -1]
        open_leaves += [left[node], right[node]]
    count = len(left)
    feature, threshold = rng.integers(features, size=count), rng.normal(size=count)
    nodes = building.RawNodes(
        left, right, feature, threshold, np.full(count, building.NAN_LEFT), rng.normal(size=count)
    )
    forest = building.forest([building.tree(0, nodes, features)], features)
    a, b = rng.normal(size=(2, features))
    masks = (np.arange(1 << features)[:, None] >> np.arange(features) & 1).astype(bool)
    earned = forest.predict(np.where(masks, a, b))
    expected = np.zeros(features)
    for number, mask in enumerate(masks):
        size = int(mask.sum())
        for j in np.flatnonzero(~mask):
            share = factorial(size) * factorial(features - size - 1) / factorial(features)
            expected[j] += share * (earned[number | 1 << j] - earned[number])
    found = forest.contributions(np.stack([a, b]), np.array([0]), np.array([1]))
    np.testing.assert_allclose(found[0], expected, atol=1e-12)


def test_contributions_that_differ_by_rounding_alone_keep_the_order_of_the_features():
    X = np.random.default_rng(0).normal(size=(20, 4))
    ranker = tr.LinearRanker().fit(X, np.tile([0, 1], 10), qid=np.repeat(np.arange(10), 2))
    explained = ranker.explain(tr.RankingData(X[:2], qid=[0, 0]), 0, a=0, b=1)
    half = -0.5
    explained = replace(explained, values=np.array([half, np.nextafter(half, -1.0), 2.0, 0.0]))
    assert list(explained.contributions) == [explained.features[place] for place in (2, 0, 1, 3)]
