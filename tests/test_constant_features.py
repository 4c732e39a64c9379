"""A feature with one value gets the weight 0, exactly, whoever looks for weights; sparse features are as dense ones."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import toprank as tr
from toprank.scorers.features import Features, Moments, Standardization, first_row
from toprank.solvers import Newton, Proximal

SOLVERS = {
    "newton": ("ListNet", "newton"),
    "conjugate gradients": ("ListNet", Newton(cholesky_limit=0)),
    "plain newton": ("ListNet", Newton(full_steps=True)),
    "lbfgs": ("ListNet", "lbfgs"),
    "descent": ("ListNet", "descent"),
    "bundle": ("Hinge", "bundle"),
    "proximal newton": ("Squared", Proximal("newton")),
    "fista": ("Squared", Proximal("fista")),
    "an intercept": ("Squared", "newton"),
    "lambdas": ("LambdaRank", "auto"),
}


def with_constants(kind="dense", dtype=np.float64, gap=True):
    """Three features, and three that say nothing: a large constant, a small one, and one with missing values."""
    data = tr.synthetic(n_queries=30, n_features=3, seed=4)
    n = data.n_documents
    X = np.column_stack([np.full(n, 1234567.1), data.X, np.full(n, 0.1), np.full(n, 30000.7)]).astype(dtype)
    if gap:
        X[: n // 2, 5] = np.nan  # the first row too, about which sums are made
    return data.replace(X=sparse.csr_matrix(X) if kind == "sparse" else X, feature_names=None)


CONSTANT = [0, 4, 5]


@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConvergenceWarning")
@pytest.mark.parametrize(
    ("kind", "dtype", "gap"),
    [(kind, dtype, True) for kind in ("dense", "sparse") for dtype in (np.float32, np.float64)]
    + [("dense", np.float64, False)],  # where nothing is missing, the products are others
)
@pytest.mark.parametrize("solver", SOLVERS)
def test_linear_rankers_give_constants_no_weight(kind, dtype, gap, solver):
    loss, by = SOLVERS[solver]
    l2 = 1e-3 if solver == "bundle" else 0.0
    data = with_constants(kind, dtype, gap)
    ranker = tr.LinearRanker(loss, l2=l2, solver=by, max_iterations=30).fit(data)
    assert ranker.coef_[CONSTANT].tolist() == [0, 0, 0]
    assert ranker.feature_importances_[CONSTANT].tolist() == [0, 0, 0]
    assert ranker.coef_[1:4].all()
    here = data.X.toarray() if kind == "sparse" else data.X
    moved = here.copy()
    moved[:, CONSTANT] += 1000
    np.testing.assert_array_equal(ranker.predict(moved), ranker.predict(here))


@pytest.mark.parametrize("standardize", [True, False])
def test_whatever_the_scale_and_the_start(standardize):
    data = with_constants()
    for l2 in (0.0, 1e-12):
        ranker = tr.LinearRanker("Logistic", l2=l2, standardize=standardize, init=0.5).fit(data)
        assert ranker.coef_[CONSTANT].tolist() == [0, 0, 0]
        assert ranker.solution_.converged


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "Multinomial"},
        {"loss": "Ordinal"},
        {"loss": "ListNet", "init": "linear", "max_iterations": 20},
        {"loss": "ListNet", "init": "zeros", "restarts": 1, "max_iterations": 20},
    ],
)
@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_expected_gains_give_constants_no_weight(options, kind):
    ranker = tr.ExpectedGainRanker(l2=0.0, **options).fit(with_constants(kind))
    assert not ranker.coef_[:, CONSTANT].any()
    assert ranker.coef_[:, 1:4].all()


def test_ascent_and_adarank_give_constants_no_weight():
    data = with_constants()
    for ranker in (tr.CoordinateAscent(restarts=2, max_cycles=1), tr.AdaRank(max_rounds=9, max_consecutive=1)):
        assert ranker.fit(data).coef_[CONSTANT].tolist() == [0, 0, 0]
        assert ranker.coef_.any()


def test_a_category_of_one_level():
    data = tr.synthetic(n_queries=30, n_features=3, seed=4)
    frame = pd.DataFrame(data.X.astype(float), columns=list("abc"))
    frame["shop"] = pd.Categorical(["ours"] * len(frame))
    frame["label"], frame["qid"] = data.labels, data.qid
    ranker = tr.LinearRanker("ListNet", l2=0.0).fit(tr.RankingData.from_frame(frame))
    assert ranker.column_names_ == ("a", "b", "c", "shop=ours")
    assert ranker.coef_[3] == 0 == ranker.feature_importances_[3]


def test_the_rounding_of_a_mean_is_no_spread():
    """A thousandth of a tenth summed up is not a tenth; partitions must agree on what is constant."""
    X = np.full((1001, 2), 0.1)
    X[:, 1] = 1e9 + np.arange(1001) % 2  # large, and not constant at all
    parts = [Moments.from_data(X[a:b], np.zeros(2)) for a, b in ((0, 10), (10, 1001))]
    for seen in (Standardization.from_data(X), Standardization.from_moments(Moments.joined(parts))):
        assert seen.constant.tolist() == [True, False]
    beside = np.vstack([X, [[0.2, 1e9]]])  # one partition may be constant where the whole is not
    parts = [Moments.from_data(beside[a:b], first_row(beside)) for a, b in ((0, 1001), (1001, 1002))]
    assert Standardization.from_moments(Moments.joined(parts)).constant.tolist() == [False, False]


# ---- sparse features are standardized as dense ones ----


def some_sparse(seed=0):
    rng = np.random.default_rng(seed)
    X = np.where(rng.uniform(size=(60, 5)) < 0.4, rng.normal(3, 1, size=(60, 5)), 0.0)
    X[:, 1] = rng.normal(100, 1, size=60)  # stored throughout
    X[rng.uniform(size=X.shape) < 0.2] = np.nan
    X[:, 4] = np.where(np.arange(60) < 20, np.nan, 0)  # nothing but zeros
    return X


def test_sparse_and_dense_see_the_same_columns():
    X = some_sparse()
    thin = sparse.csr_matrix(X)
    dense, seen = Standardization.from_data(X), Standardization.from_data(thin)
    for name in ("center", "spread", "constant"):
        np.testing.assert_allclose(getattr(seen, name), getattr(dense, name), rtol=1e-12, atol=1e-13)
    present = np.ma.masked_invalid(X)
    np.testing.assert_allclose(seen.center, present.mean(axis=0), rtol=1e-12)
    Z = ((present - present.mean(axis=0)) / np.where(present.std(axis=0) == 0, 1, present.std(axis=0))).filled(0.0)
    features, rng, every = Features(thin, seen), np.random.default_rng(1), slice(0, 60)
    w, g = rng.normal(size=5), rng.normal(size=60)
    np.testing.assert_allclose(features.dense(every), Z, atol=1e-11)
    np.testing.assert_allclose(features.times(every, w), Z @ w, atol=1e-11)
    np.testing.assert_allclose(features.transposed_times(every, g), Z.T @ g, atol=1e-11)


@pytest.mark.parametrize(
    "ranker",
    [
        tr.LinearRanker("ListNet", l2=0.1),
        tr.ExpectedGainRanker("Multinomial", l2=0.1),
        tr.CoordinateAscent(restarts=1, max_cycles=2),
    ],
    ids=lambda ranker: type(ranker).__name__,
)
def test_missing_values_of_sparse_features_count_as_the_mean(ranker):
    X = some_sparse()
    labels, qid = np.arange(60) * 7 % 3, np.repeat(np.arange(6), 10)
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    ours = ranker.fit(sparse.csr_matrix(X), labels, qid=qid).predict(sparse.csr_matrix(X))
    np.testing.assert_allclose(ours, ranker.predict(filled), rtol=1e-9)
    np.testing.assert_allclose(ours, ranker.fit(X, labels, qid=qid).predict(X), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", ["Logistic", "ListNet", "ListMLE", "SquaredHinge"])
@pytest.mark.parametrize("limit", [500, 0], ids=["factored", "conjugate gradients"])
def test_what_is_constant_within_every_query_gets_no_weight_from_losses_of_differences(loss, limit):
    """Its curvature and its gradient are both rounding; their quotient once was a weight of 136, and "converged"."""
    data = tr.synthetic(n_queries=60, n_features=3, seed=1)
    of_query = np.random.default_rng(1).normal(7, 3, data.n_queries)
    wide = data.replace(X=np.column_stack([data.X, of_query[data.queries.document_query]]), feature_names=None)
    solver = Newton(cholesky_limit=limit)
    weights = tr.LinearRanker(loss, l2=0.0, solver=solver).fit(wide).coef_
    assert abs(weights[3]) < 1e-10
    np.testing.assert_allclose(weights[:3], tr.LinearRanker(loss, l2=0.0, solver=solver).fit(data).coef_, rtol=1e-6)
