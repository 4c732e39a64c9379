"""The linear ranker: it reaches the optimum of what it says it minimizes, whatever the loss and the data."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import toprank as tr
from support import shared_data
from toprank import losses
from toprank.errors import DataError, UnknownNameError
from toprank.rankers.base import ConstantScoresWarning, ConvergenceWarning
from toprank.rankers.source import RankingObjective
from toprank.scorers.expected_gain import ExpectedGain, Logits
from toprank.scorers.features import Features, Standardization
from toprank.scorers.linear import LinearScorer, Thresholds

SMOOTH = [
    "Squared",
    "QuerySquared",
    "ModifiedSquared",
    "Logistic",
    "Exponential",
    "ListNet",
    "ListMLE",
    "Multicategory",
]
SMOOTH += ["CostSensitiveListMLE", "PListMLE", "XENDCG"]


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=40, n_documents=(2, 15), n_features=4, n_grades=3, seed=3)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["linear", "expected gain"])
def test_objective_derivatives_through_the_whole_stack(data, kind, intercept):
    rng = np.random.default_rng(0)
    features = Features(data.X, Standardization.from_data(data.X))
    scorer = LinearScorer(4, intercept) if kind == "linear" else ExpectedGain(4, np.array([0.0, 1.0, 3.0]))
    objective = RankingObjective(scorer, features, losses.ListNet().on(data.labels, data.queries))
    w = rng.normal(size=scorer.n_weights) * 0.5
    grad = objective.value_and_grad(w)[1]
    eps = 1e-6
    numeric = [
        (objective.value_and_grad(w + eps * e)[0] - objective.value_and_grad(w - eps * e)[0]) / (2 * eps)
        for e in np.eye(len(w))
    ]
    np.testing.assert_allclose(grad, numeric, atol=1e-8)
    v = rng.normal(size=len(w))
    np.testing.assert_allclose(objective.hessian(w) @ v, objective.hessian_product(w)(v), atol=1e-10)
    if kind == "linear":
        second = (objective.value_and_grad(w + eps * v)[1] - objective.value_and_grad(w - eps * v)[1]) / (2 * eps)
        np.testing.assert_allclose(objective.hessian(w) @ v, second, atol=1e-6)


@pytest.mark.parametrize(
    ("scorer", "loss"), [(Logits(4, 3), losses.Multinomial(n_grades=3)), (Thresholds(4, 3), losses.Ordinal(n_grades=3))]
)
def test_likelihood_derivatives(data, scorer, loss, monkeypatch):
    monkeypatch.setattr("toprank.scorers.expected_gain._MAX_BYTES", 64 * 8 * 4)  # a query's rows come in parts
    rng = np.random.default_rng(0)
    features = Features(data.X, Standardization.from_data(data.X))
    objective = RankingObjective(scorer, features, loss.on(data.labels, data.queries))
    n, eps = scorer.n_weights, 1e-6
    w, v = rng.normal(size=n), rng.normal(size=n)
    w[-2:] = -0.5, 0.5  # thresholds rise
    grad = objective.value_and_grad(w)[1]
    slope = (objective.value_and_grad(w + eps * v)[0] - objective.value_and_grad(w - eps * v)[0]) / (2 * eps)
    assert grad @ v == pytest.approx(slope, abs=1e-6)
    second = (objective.value_and_grad(w + eps * v)[1] - objective.value_and_grad(w - eps * v)[1]) / (2 * eps)
    np.testing.assert_allclose(objective.hessian_product(w)(v), second, rtol=1e-6, atol=1e-6)
    hessian = objective.hessian(w)
    np.testing.assert_allclose(
        hessian, [objective.hessian_product(w)(unit) for unit in np.eye(n)], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-12, atol=1e-14)


@given(rows=st.integers(1, 40), columns=st.integers(1, 6), seed=st.integers(0, 999), missing=st.booleans())
@settings(max_examples=60, deadline=None)
def test_features_equal_plain_standardization(rows, columns, seed, missing):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(rows, columns)) * 10 + rng.normal(size=columns) * 100).astype(np.float32)
    if missing:
        X[rng.uniform(size=X.shape) < 0.3] = np.nan
    X[:, 0] = X[0, 0] if np.isfinite(X[0, 0]) else 1.0  # a constant column
    seen = Standardization.from_data(X)
    wide = X.astype(np.float64)
    with np.errstate(all="ignore"):
        Z = np.nan_to_num((wide - seen.center) / seen.spread)
    present = ~np.isnan(wide)
    for j in range(columns):
        values = wide[present[:, j], j]
        if len(values):
            assert seen.center[j] == pytest.approx(values.mean(), rel=1e-9, abs=1e-9)
            assert seen.spread[j] == pytest.approx(values.std() if values.std() > 1e-6 else 1.0, rel=1e-5)
    features, w, g = Features(X, seen), rng.normal(size=columns), rng.normal(size=rows)
    every = slice(0, rows)
    np.testing.assert_allclose(features.dense(every), Z, atol=1e-9)
    np.testing.assert_allclose(features.times(every, w), Z @ w, atol=1e-7)
    np.testing.assert_allclose(features.transposed_times(every, g), Z.T @ g, atol=1e-7)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    columns=st.integers(1, 20),
    seed=st.integers(0, 999),
    missing=st.booleans(),
    single=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_sums_of_rows_are_taken_row_after_row(sizes, columns, seed, missing, single):
    """However many rows a kernel takes at a time, and however a query begins."""
    rng, n = np.random.default_rng(seed), sum(sizes)
    X = rng.normal(size=(n, columns)).astype(np.float32 if single else np.float64)
    X[rng.uniform(size=X.shape) < 0.2 * missing] = np.nan
    values, by_row = rng.normal(size=n), np.zeros(columns)
    features = Features(X, Standardization(np.zeros(columns), np.ones(columns)), complete=not missing)
    for row, value in zip(np.nan_to_num(X.astype(np.float64)), values, strict=True):
        by_row += row * value
    assert features.transposed_times(slice(0, n), values).tobytes() == by_row.tobytes()


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    loss=st.sampled_from([losses.ListNet(), losses.Multicategory(), losses.XENDCG()]),
    seed=st.integers(0, 999),
    missing=st.booleans(),
    single=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_kernel_of_scores_loss_and_gradient_has_the_bits_of_the_three(sizes, loss, seed, missing, single):
    rng, queries = np.random.default_rng(seed), tr.Queries.from_sizes(sizes)
    n = queries.n_documents
    X = rng.normal(size=(n, 11)).astype(np.float32 if single else np.float64) * 3 + 1
    X[rng.uniform(size=X.shape) < 0.2 * missing] = np.nan
    labels = rng.integers(0, 3, n) * rng.integers(0, 2, len(sizes))[queries.document_query]  # some have no mass
    weights = {"document_weights": rng.uniform(0.1, 1, n), "query_weights": rng.uniform(0.1, 1, len(sizes))}
    features, w = Features(X, seen := Standardization.from_data(X), complete=seen.complete), rng.normal(size=11) * 10
    joined = RankingObjective(LinearScorer(11), features, loss.on(labels, queries, **weights))
    assert joined._cross_entropy() is not None
    by_three = RankingObjective(LinearScorer(11), features, loss.on(labels, queries, **weights))
    by_three._cross_entropy = lambda: None
    value, grad = joined.value_and_grad(w)
    expected = by_three.value_and_grad(w)
    assert (value, grad.tobytes()) == (expected[0], expected[1].tobytes())


@pytest.mark.parametrize("name", SMOOTH)
def test_the_gradient_vanishes_at_the_fit(data, name):
    ranker = tr.LinearRanker(name, l2=0.01).fit(data)
    assert ranker.solution_.converged
    loss = losses.make(name)
    scorer = LinearScorer(4, not loss.traits.shift_invariant)
    objective = RankingObjective(scorer, Features(data.X, ranker.standardization_), loss.on(data.labels, data.queries))
    w = ranker.solution_.weights
    grad = objective.value_and_grad(w)[1]
    grad[:4] += 0.01 * w[:4]
    start = np.abs(objective.value_and_grad(np.zeros_like(w))[1]).max()
    assert np.abs(grad).max() < 1e-6 * max(start, 1.0)


def test_raw_coefficients_score_like_the_model(data):
    ranker = tr.LinearRanker("Squared", l2=1e-3).fit(data)
    np.testing.assert_allclose(ranker.predict(data), data.X @ ranker.coef_ + ranker.intercept_, rtol=1e-5, atol=1e-5)
    assert ranker.feature_importances_.sum() == pytest.approx(1.0)


def test_least_squares_is_ridge_regression(data):
    from sklearn.linear_model import Ridge

    gains, n_queries = 2.0**data.labels - 1, data.n_queries
    Z = (data.X - data.X.astype(float).mean(axis=0)) / data.X.astype(float).std(axis=0)
    ridge = Ridge(alpha=0.01 * n_queries / 2).fit(Z, gains)
    ours = tr.LinearRanker("Squared", l2=0.01).fit(data)
    np.testing.assert_allclose(ours.predict(data), ridge.predict(Z), atol=1e-5)


def test_rows_in_any_order_give_the_same_model(data):
    rng = np.random.default_rng(1)
    order = np.concatenate([rng.permutation(np.arange(rows.start, rows.stop)) for rows in data.queries])
    shuffled = tr.RankingData(data.X[order], data.labels[order], queries=data.queries)
    for name in [*SMOOTH[:-1], "Hinge", "OWPC"]:
        options = {"tolerance": 1e-9} if name in ("Hinge", "OWPC") else {}
        here, there = (tr.LinearRanker(name, l2=0.1, **options).fit(part) for part in (data, shuffled))
        np.testing.assert_allclose(here.coef_, there.coef_, atol=2e-4 if options else 1e-7, err_msg=name)


def test_the_same_bits_on_any_number_of_threads(data):
    for name in ("ListNet", "CostSensitiveListMLE", "Hinge"):
        one, two = (tr.LinearRanker(name, l2=0.1, threads=threads).fit(data) for threads in (1, 3))
        assert one.coef_.tobytes() == two.coef_.tobytes()


def test_sparse_and_dense_features_agree(data):
    dense = tr.LinearRanker("ListNet", l2=0.01, standardize=False).fit(data)
    thin = tr.LinearRanker("ListNet", l2=0.01, standardize=False).fit(data.replace(X=sparse.csr_matrix(data.X)))
    np.testing.assert_allclose(dense.coef_, thin.coef_, atol=1e-6)


def test_missing_values_count_as_the_mean(data):
    X = data.X.copy()
    X[::7, 1] = np.nan
    holes = data.replace(X=X)
    filled = X.astype(np.float64)
    filled[::7, 1] = np.nanmean(filled[:, 1])
    with_holes = tr.LinearRanker("ListNet", l2=0.01, standardize=False).fit(holes)
    without = tr.LinearRanker("ListNet", l2=0.01, standardize=False).fit(data.replace(X=filled))
    np.testing.assert_allclose(with_holes.coef_, without.coef_, atol=1e-6)
    assert np.isfinite(with_holes.predict(holes)).all()


def test_a_path_of_penalties_is_chosen_on_validation_data(data):
    valid = data.resample(7)
    path = [10.0, 1.0, 0.1, 1e-3]
    ranker = tr.LinearRanker("ListNet", l2=path, metric="map").fit(data, valid=valid)
    alone = {
        l2: tr.evaluate(tr.LinearRanker("ListNet", l2=l2).fit(data).predict(valid), valid, "map").mean["map"]
        for l2 in path
    }
    assert ranker.l2_ == max(alone, key=alone.__getitem__)
    for row in ranker.path_:
        assert row["valid"] == pytest.approx(alone[row["l2"]], abs=1e-6)
    with pytest.raises(DataError, match="need valid= data"):
        tr.LinearRanker("ListNet", l2=path).fit(data)


def test_l1_makes_zeros(data):
    noise = np.random.default_rng(0).normal(size=(data.n_documents, 6))
    noisy = data.replace(X=np.column_stack([data.X, noise]), feature_names=None)
    ranker = tr.LinearRanker("ListNet", l1=0.1, l2=0.0).fit(noisy)
    assert (ranker.coef_[4:] == 0).sum() >= 4
    assert (ranker.coef_[:4] != 0).any()


def test_interruption_returns_a_usable_model(data, monkeypatch):
    calls = iter(range(100))
    real = RankingObjective.value_and_grad

    def interrupted(self, weights):
        if next(calls) == 4:
            raise KeyboardInterrupt
        return real(self, weights)

    monkeypatch.setattr(RankingObjective, "value_and_grad", interrupted)
    with pytest.warns(ConvergenceWarning, match="Interrupted"):
        ranker = tr.LinearRanker("Logistic", l2=1e-6).fit(data)
    assert np.isfinite(ranker.predict(data)).all()
    assert ranker.solution_.interrupted


@pytest.mark.parametrize("loss", ["Hinge", "OWPC"])
def test_kinked_losses_come_with_a_certificate(data, loss):
    ranker = tr.LinearRanker(loss, l2=0.05).fit(data)
    assert ranker.solution_.converged
    assert ranker.solution_.gap <= 1e-6 * ranker.solution_.value * 1.01


def test_owpc_says_when_nothing_beats_zero():
    data = tr.RankingData([[1.0], [-1.0], [-1.0], [1.0]], [1, 0, 1, 0], qid=[1, 1, 2, 2])  # contradicting queries
    with pytest.warns(ConstantScoresWarning, match="w = 0"):
        ranker = tr.LinearRanker("OWPC", l2=0.1, standardize=False).fit(data)
    assert ranker.solution_.zero_is_optimal
    assert ranker.coef_.tolist() == [0.0]
    with pytest.warns(ConstantScoresWarning, match="returned in the order of the rows"):
        ranker.rank(data)


def nearly_contradicting(share):
    """Every query has a twin with the labels exchanged; the one weighs `share` more than the other."""
    X = np.random.default_rng(0).normal(size=(400, 4))
    labels, queries = np.tile([1, 0], 200), np.repeat(np.arange(200), 2)
    weights = np.repeat([1 + share, 1.0], 200)
    twins = np.vstack([X, X]), np.r_[labels, 1 - labels]
    return tr.RankingData(*twins, qid=np.r_[queries, queries + 200], query_weights=weights)


def test_owpc_says_when_the_tolerance_decides():
    """The optimum is 1e-5 below w = 0: too little to call it learned, and what is learned hangs on no tolerance."""
    data = nearly_contradicting(1e-3)
    rankers = {}
    for tolerance in (1e-4, None):
        with pytest.warns(ConvergenceWarning, match="hardly better than w = 0"):
            rankers[tolerance] = tr.LinearRanker("OWPC", l2=1e-5, tolerance=tolerance).fit(data)
    rough, usual = rankers[1e-4].predict(data), rankers[None].predict(data)
    assert np.corrcoef(rough, usual)[0, 1] > 0.99
    clear = tr.LinearRanker("OWPC", l2=1e-5).fit(nearly_contradicting(0.1))  # a gain that is none of the tolerance's
    assert not clear.solution_.near_zero_solution


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"loss": "ListNext"}, UnknownNameError, "ListNet"),
        ({"loss": 3}, DataError, "loss"),
        ({"l2": -1.0}, DataError, "numbers of 0 or larger"),
        ({"l1": -1.0}, DataError, "l1 must be a number of at least 0"),
        ({"solver": "newtown"}, UnknownNameError, "newton"),
        ({"loss": "Multinomial"}, DataError, "ExpectedGainRanker"),
        ({"init": [1.0]}, DataError, "init"),
        ({"loss": "Hinge", "solver": "newton", "l1": 1.0}, DataError, "smooth loss"),
    ],
)
def test_wrong_settings_are_sentences(data, change, error, words):
    with pytest.raises(error, match=words):
        tr.LinearRanker(**change).fit(data)


def test_wrong_data_are_sentences(data):
    X = data.X.copy()
    X[3, 2] = np.inf
    with pytest.raises(DataError, match="infinite"):
        tr.LinearRanker().fit(data.replace(X=X, feature_names=["a", "b", "c", "d"]))
    with pytest.raises(DataError, match="judged"):
        tr.LinearRanker().fit(data.replace(labels=np.where(np.arange(data.n_documents) == 2, np.nan, data.labels)))
    ranker = tr.LinearRanker().fit(data.replace(feature_names=["a", "b", "c", "d"]))
    with pytest.raises(DataError, match="expecting 4 features"):
        ranker.predict(data.replace(X=data.X[:, :3], feature_names=None))
    with pytest.raises(DataError, match="training data had no column 'e'"):
        ranker.predict(data.replace(feature_names=["a", "c", "e", "d"]))
    moved = data.replace(X=data.X[:, [0, 2, 1, 3]], feature_names=["a", "c", "b", "d"])
    assert np.array_equal(ranker.predict(moved), ranker.predict(data.replace(feature_names=None)))
    with pytest.raises(DataError, match="infinite"):
        ranker.predict(data.replace(X=X, feature_names=["a", "b", "c", "d"]))
    constant = tr.RankingData(np.ones((4, 2)), [0, 1, 0, 1], qid=[1, 1, 2, 2])
    with pytest.warns(ConstantScoresWarning):
        assert tr.LinearRanker().fit(constant).predict(constant).std() == 0
    equal = tr.RankingData(np.arange(4.0)[:, None], [1, 1, 1, 1], qid=[1, 1, 2, 2])
    with pytest.warns(ConstantScoresWarning):
        assert np.isfinite(tr.LinearRanker("Logistic").fit(equal).coef_).all()


def test_rank_lists_documents(data):
    ranker = tr.LinearRanker().fit(data)
    lists = ranker.rank(data, k=3)
    scores = ranker.predict(data)
    for qid, rows in zip(data.qids.tolist(), data.queries, strict=True):
        best = rows.start + np.argsort(-scores[rows], kind="stable")[:3]
        assert lists[qid] == best.tolist()


@pytest.mark.parametrize("name", ["MQ2008", "OHSUMED"])
def test_newton_converges_fast_on_letor(name):
    for fold in tr.folds(shared_data("letor", name)):
        for loss in ("ListNet", "ListMLE", "CostSensitiveListMLE"):
            ranker = tr.LinearRanker(loss, l2=1e-2).fit(fold.train)
            assert ranker.solution_.converged
            assert ranker.solution_.iterations <= 10


@pytest.mark.parametrize(("name", "at_least"), [("MQ2008", 0.438), ("OHSUMED", 0.455)])
def test_cs_rglist_reaches_the_published_figure(name, at_least):
    values = []
    for fold in tr.folds(shared_data("letor", name)):
        chosen = tr.grid_search("cs-RgList", fold.train, fold.valid, pcf=3.0)
        values.append(tr.evaluate(chosen.ranker.predict(fold.test), fold.test, "avgndcg").mean["avgndcg"])
    assert at_least <= np.mean(values) < at_least + 0.035


def test_without_exact_gradients_there_are_thirty_steps():
    ranker = tr.LinearRanker("LambdaRank").fit(tr.synthetic(n_queries=60, seed=0))
    assert ranker.solution_.iterations == 30
    assert not ranker.solution_.converged


def test_under_the_bundle_method_an_intercept_carries_a_thousandth_of_the_penalty():
    data, l2 = tr.synthetic(n_queries=40, n_grades=3, seed=0), 10.0
    ranker = tr.LinearRanker("ImportanceWeightedSquared", l2=l2).fit(data)
    loss = losses.make("ImportanceWeightedSquared").on(data.labels, data.queries).at(ranker.predict(data)).value
    *weights, intercept = ranker.solution_.weights
    assert abs(intercept) > 0.1
    penalty = l2 / 2 * (np.sum(np.square(weights)) + intercept**2 / 1000)
    assert ranker.solution_.value == pytest.approx(loss + penalty, rel=1e-9)


def test_refinement_solves_on_few_documents_and_comes_to_rest():
    data = tr.synthetic(n_queries=12, n_documents=150, n_features=4, n_grades=3, skew=2.0, seed=2)
    loss = losses.ImportanceWeightedSquared(scheme="grade", gain="exponential", delta=1.0)
    ranker = tr.LinearRanker(loss, l2=1e-3, active_set=True).fit(data)
    assert ranker.active_[0] < data.n_documents / 2
    assert (np.diff(ranker.active_) >= 0).all()
    active = loss.first_active(data.labels, data.queries)
    for _ in ranker.active_[1:]:
        part = data.replace(document_weights=loss.active_weights(data.labels, data.queries, active)).filter(active)
        ridge = tr.LinearRanker(losses.Squared(gain="exponential", max_grade=data.labels.max()), l2=1e-3)
        ridge.standardization_ = ranker.standardization_
        ridge.n_features_in_, ridge.training_ = 4, {}
        ridge.fit_standardized(part, ridge.loss, None)
        active = loss.now_active(active, ridge.predict(data))
    ignored = ~active
    assert (ranker.predict(data)[ignored] <= 1.0).all()  # so the sup term is 0
    with pytest.raises(DataError, match="ImportanceWeightedSquared"):
        tr.LinearRanker("Squared", active_set=True).fit(data)


def test_the_first_fit_of_a_process_has_the_bits_of_the_next():
    """A library of linear algebra that is loaded within a fit is not among those that the fit sets to one thread."""
    program = """
import sys
import numpy as np
import toprank as tr
data = tr.synthetic(n_queries=40, n_features=300, seed=0)
first, again = (tr.LinearRanker("ListNet", l2=0.01, threads=1).fit(data).coef_ for _ in range(2))
print(np.array_equal(first, again), "scipy.linalg" in sys.modules)
"""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.split() == ["True", "False"]
