"""`toprank.wrap`: estimators of other libraries are trained as by their own hands, and stand beside our rankers."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier, CatBoostRanker, CatBoostRegressor, Pool
from lightgbm import LGBMClassifier, LGBMRanker, LGBMRegressor, early_stopping
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC, LinearSVR, OneClassSVM
from xgboost import XGBClassifier, XGBRanker, XGBRegressor

import toprank as tr
from toprank.errors import DataError
from toprank.rankers.estimator import unfitted

QUIET = {"iterations": 8, "thread_count": 1, "allow_writing_files": False}
FEW = {"n_estimators": 8, "n_jobs": 1}


@pytest.fixture(scope="module")
def parts():
    data = tr.synthetic(n_queries=60, n_grades=3, truth="nonlinear", seed=0)
    data = data.replace(X=data.X.astype(np.float64))  # scikit-learn computes in the precision of X
    return tr.split(data, (0.5, 0.25, 0.25))


def qid(data):
    return np.repeat(np.arange(data.n_queries), data.queries.sizes)


def test_rankers_are_told_the_queries_as_they_want_it(parts):
    train, _, test = parts
    theirs = [
        (LGBMRanker(**FEW, verbose=-1), {"group": train.queries.sizes}),
        (XGBRanker(**FEW), {"qid": qid(train)}),
        (CatBoostRanker(**QUIET), {"group_id": qid(train), "verbose": False}),
    ]
    for estimator, told in theirs:
        wrapped, own = tr.wrap(estimator).fit(train), clone(estimator).fit(train.X, train.labels, **told)
        np.testing.assert_array_equal(wrapped.predict(test), own.predict(test.X))
        assert not hasattr(estimator, "booster_")  # the one that was given is left as it is


def test_rows_in_any_order_are_grouped_first(parts):
    """Queries in the order of their first rows, documents in that of theirs: LightGBM sees just these rows."""
    train, _, test = parts
    order = np.random.default_rng(0).permutation(train.n_documents)
    queries = qid(train)[order]
    mixed = tr.wrap(LGBMRanker(**FEW, verbose=-1)).fit(train.X[order], train.labels[order], qid=queries)
    met = list(dict.fromkeys(queries.tolist()))
    rows = np.concatenate([order[queries == query] for query in met])
    sizes = np.bincount(queries)[met]
    expected = LGBMRanker(**FEW, verbose=-1).fit(train.X[rows], train.labels[rows], group=sizes).predict(test.X)
    np.testing.assert_array_equal(mixed.predict(test), expected)
    assert mixed.training_["queries"] == train.n_queries


def test_validation_data_stop_the_boosting(parts):
    train, valid, test = parts
    many = {"n_estimators": 200, "n_jobs": 1}
    sizes = {"group": train.queries.sizes, "eval_group": [valid.queries.sizes]}
    lgbm = LGBMRanker(**many, verbose=-1).fit(
        train.X,
        train.labels,
        eval_X=valid.X,
        eval_y=valid.labels,
        callbacks=[early_stopping(5, verbose=False)],
        **sizes,
    )
    xgb = XGBRanker(**many, early_stopping_rounds=5).fit(
        train.X, train.labels, qid=qid(train), eval_set=[(valid.X, valid.labels)], eval_qid=[qid(valid)], verbose=False
    )
    cat = CatBoostRanker(**{**QUIET, "iterations": 200}, verbose=False).fit(
        Pool(train.X, train.labels, group_id=qid(train)),
        eval_set=Pool(valid.X, valid.labels, group_id=qid(valid)),
        early_stopping_rounds=5,
    )
    assert max(lgbm.best_iteration_, xgb.best_iteration + 1, cat.tree_count_) < 200
    for theirs in (lgbm, xgb, cat):
        wrapped = tr.wrap(clone(theirs), early_stopping=5).fit(train, valid=valid)
        np.testing.assert_array_equal(wrapped.predict(test), theirs.predict(test.X))
    regressors = [
        LGBMRegressor(**many, verbose=-1),
        XGBRegressor(**many),
        CatBoostRegressor(**{**QUIET, "iterations": 200}),
    ]
    for estimator in regressors:
        stopped = tr.wrap(estimator, early_stopping=3).fit(train, valid=valid)
        trees = stopped.saved_ranker().training_["trees"]
        assert trees < 200
        free = tr.wrap(estimator, early_stopping=None).fit(train).saved_ranker()
        assert free.training_["trees"] >= 200


def test_classifiers_score_by_the_margin_or_the_expected_grade(parts):
    train, _, test = parts
    two = train.replace(labels=(train.labels > 0).astype(float))
    logistic = LogisticRegression().fit(two.X, two.labels)
    np.testing.assert_allclose(tr.wrap(LogisticRegression()).fit(two).predict(test), logistic.decision_function(test.X))
    bayes = GaussianNB().fit(two.X, two.labels)
    np.testing.assert_allclose(tr.wrap(GaussianNB()).fit(two).predict(test), bayes.predict_proba(test.X)[:, 1])
    for estimator in (
        LogisticRegression(),
        RandomForestClassifier(5, random_state=0),
        LGBMClassifier(**FEW, verbose=-1),
        XGBClassifier(**FEW),
        CatBoostClassifier(**QUIET),
    ):
        scores = tr.wrap(estimator).fit(train).predict(test)
        same = clone(estimator)
        same.fit(train.X, train.labels, **({"verbose": False} if isinstance(same, CatBoostClassifier) else {}))
        np.testing.assert_allclose(scores, same.predict_proba(test.X) @ same.classes_, rtol=1e-6)
    with pytest.raises(DataError, match="no predict_proba for its 3 classes"):
        tr.wrap(LinearSVC()).fit(train).predict(test)


def test_weights_go_to_those_who_take_them(parts):
    train, _, test = parts
    rng = np.random.default_rng(0)
    weights, of_queries = rng.random(train.n_documents) + 0.1, rng.random(train.n_queries) + 0.1
    weighted = train.replace(document_weights=weights, query_weights=of_queries)
    both = weights * np.repeat(of_queries, train.queries.sizes)
    expected = Ridge().fit(train.X, train.labels, sample_weight=both).predict(test.X)
    np.testing.assert_allclose(tr.wrap(Ridge()).fit(weighted).predict(test), expected)
    with pytest.raises(DataError, match="does not support sample_weight"):
        tr.wrap(make_pipeline(StandardScaler(), Ridge())).fit(weighted)
    with pytest.raises(DataError, match="supports only query weights"):
        tr.wrap(XGBRanker(**FEW)).fit(weighted)
    by_query = train.replace(query_weights=of_queries)
    same = XGBRanker(**FEW).fit(train.X, train.labels, qid=qid(train), sample_weight=of_queries)
    np.testing.assert_array_equal(tr.wrap(XGBRanker(**FEW)).fit(by_query).predict(test), same.predict(test.X))


def test_a_patience_below_zero_is_refused(parts):
    with pytest.raises(DataError, match="early_stopping must be a whole number of at least 0"):
        tr.wrap(LGBMRanker(**FEW, verbose=-1), early_stopping=-3).fit(parts[0], valid=parts[1])


def test_parameters_pass_through():
    wrapped = tr.wrap(make_pipeline(StandardScaler(), Ridge(alpha=2.0)))
    assert wrapped.get_params()["ridge__alpha"] == wrapped.get_params()["estimator__ridge__alpha"] == 2.0
    wrapped.set_params(ridge__alpha=3.0)
    assert wrapped.estimator[-1].alpha == 3.0
    wrapped = tr.wrap(LGBMRanker(num_leaves=7))
    assert wrapped.set_params(num_leaves=9, early_stopping=3).get_params()["num_leaves"] == 9
    assert wrapped.estimator.num_leaves == 9
    assert wrapped.set_params(estimator__num_leaves=5).estimator.num_leaves == 5
    for copied in (clone(wrapped), unfitted(wrapped), pickle.loads(pickle.dumps(wrapped))):
        assert copied.estimator is not wrapped.estimator
        assert copied.get_params()["num_leaves"] == 5
        assert copied.early_stopping == 3
    ours = tr.LinearRanker()
    assert tr.wrap(ours) is ours
    for wrong in (Ridge, 3, "Ridge"):
        with pytest.raises(DataError, match="is not an estimator"):
            tr.wrap(wrong)


SAVED = {
    "lgbm": LGBMRanker(**FEW, verbose=-1),
    "lgbm-regressor": LGBMRegressor(**FEW, verbose=-1, objective="poisson"),
    "xgb": XGBRanker(**FEW),
    "xgb-regressor": XGBRegressor(**FEW, objective="count:poisson"),
    "cat": CatBoostRanker(**QUIET),
    "ridge": Ridge(),
    "svr": LinearSVR(),
}


@pytest.mark.parametrize("name", SAVED)
def test_saved_ones_give_the_same_scores(parts, tmp_path, name):
    train, valid, test = parts
    wrapped = tr.wrap(SAVED[name]).fit(train, valid=valid)
    wrapped.save(tmp_path / "m.toprank")
    loaded, scores = tr.load(tmp_path / "m.toprank"), wrapped.predict(test)
    if name in ("ridge", "svr"):
        np.testing.assert_allclose(loaded.predict(test), scores, rtol=1e-12, atol=1e-12)
    else:
        np.testing.assert_array_equal(loaded.predict(test), scores)
    assert loaded.training_["queries"] == train.n_queries
    with pytest.raises(DataError, match="can only predict"):
        loaded.fit(train)
    blend = tr.BlendRanker([wrapped, tr.LinearRanker()]).fit(train)
    blend.save(tmp_path / "b.toprank")
    np.testing.assert_allclose(tr.load(tmp_path / "b.toprank").predict(test), blend.predict(test), rtol=1e-9, atol=1e-9)


def test_two_classes_are_saved_and_others_refused_in_a_sentence(parts, tmp_path):
    train, _, test = parts
    two = train.replace(labels=(train.labels > 0).astype(float))
    sgd = SGDClassifier(random_state=0)
    for estimator in (
        LogisticRegression(),
        sgd,
        LGBMClassifier(**FEW, verbose=-1),
        XGBClassifier(**FEW),
        CatBoostClassifier(**QUIET),
    ):
        wrapped = tr.wrap(estimator).fit(two)
        wrapped.save(tmp_path / "m.toprank")
        np.testing.assert_allclose(tr.load(tmp_path / "m.toprank").predict(test), wrapped.predict(test), rtol=1e-12)
    for estimator in (
        LogisticRegression(),
        LGBMClassifier(**FEW, verbose=-1),
        XGBClassifier(**FEW),
        CatBoostClassifier(**QUIET),
    ):
        with pytest.raises(DataError, match=f"A fitted {type(estimator).__name__} cannot be saved"):
            tr.wrap(estimator).fit(train).save(tmp_path / "n.toprank")
    for estimator in (
        HistGradientBoostingRegressor(max_iter=3),
        make_pipeline(StandardScaler(), Ridge()),
        PoissonRegressor(),
    ):
        with pytest.raises(DataError, match="no pickled objects"):
            tr.wrap(estimator).fit(train).save(tmp_path / "n.toprank")
    assert not (tmp_path / "n.toprank").exists()


def test_what_predicts_signs_is_not_saved_as_the_sum_behind_them(parts, tmp_path):
    outliers = tr.wrap(OneClassSVM(kernel="linear")).fit(parts[0])
    assert set(outliers.predict(parts[2])) <= {-1.0, 1.0}
    with pytest.raises(DataError, match="A fitted OneClassSVM cannot be saved"):
        outliers.save(tmp_path / "m.toprank")


def test_experiments_take_wrapped_estimators_by_the_names_of_their_classes(tmp_path):
    data = tr.synthetic(n_queries=45, n_grades=3, seed=0)
    systems = [tr.wrap(Ridge()), tr.wrap(LGBMRanker(**FEW, verbose=-1)), tr.wrap(XGBRanker(**FEW)), "LeastSquares"]
    folder = tmp_path / "cells"
    results = tr.Experiment(data, systems, n_folds=3, threads=1, cache_dir=folder, save_models=True).run()
    means = results.fold_means("ndcg@10")
    assert set(means) == {"Ridge", "LGBMRanker", "XGBRanker", "LeastSquares"}
    again = tr.Experiment(data, systems, n_folds=3, threads=1, cache_dir=folder, save_models=True).run()
    assert again.fold_means("ndcg@10") == means
    assert "LGBMRanker" in str(results)
    tr.report.write_html(tmp_path / "report.html", tr.report.from_results(results))
    assert "LGBMRanker" in (tmp_path / "report.html").read_text()


def test_categories_of_frames(parts, tmp_path):
    import pandas as pd

    train, _, _ = parts
    rng = np.random.default_rng(0)
    brands = np.array(["acme", "zenith", "other"])[rng.integers(0, 3, train.n_documents)]
    labels = (brands == "acme") * 2 + (train.X[:, 0] > 0)
    frame = pd.DataFrame({"price": train.X[:, 0], "brand": pd.Categorical(brands)})
    turned = frame.assign(brand=pd.Categorical(brands, categories=["zenith", "other", "acme"]))
    for estimator in (
        LGBMRanker(**FEW, verbose=-1, min_child_samples=2, min_data_per_group=2),
        XGBRanker(**FEW),
        CatBoostRanker(**QUIET),
        Ridge(),
    ):
        wrapped = tr.wrap(estimator).fit(frame, labels, qid=qid(train))
        assert wrapped.score(frame, labels, qid=qid(train)) > 0.85
        np.testing.assert_array_equal(wrapped.predict(turned), wrapped.predict(frame))
        if isinstance(estimator, CatBoostRanker):
            continue  # its tables of categories are not for a file of ours, see below
        wrapped.save(tmp_path / "m.toprank")
        loaded = tr.load(tmp_path / "m.toprank")
        np.testing.assert_allclose(loaded.predict(turned), wrapped.predict(frame), rtol=1e-12, atol=1e-12)


def test_what_a_saved_linear_model_is_explained_by_are_its_features_not_its_columns(tmp_path):
    """Categories come behind the numbers among its columns, whatever their order in the table."""
    rng = np.random.default_rng(0)
    table = {"brand": rng.choice(["a", "b", "c"], 200), "price": rng.normal(size=200)}
    table |= {"label": np.clip(np.round(1 + 2 * table["price"]), 0, 3), "qid": np.repeat(np.arange(20), 10)}
    data = tr.RankingData.from_frame(pd.DataFrame(table))
    ridge = tr.wrap(Ridge()).fit(data)
    ridge.save(tmp_path / "m.toprank")
    saved = tr.load(tmp_path / "m.toprank")
    assert saved.score_profile(1).slope == ridge.estimator_.coef_[0]
    searched, exact = (tr.explanations.counterfactuals(one, data, qid="0") for one in (ridge, saved))
    assert [one.feature for one in exact.changes] == [one.feature for one in searched.changes] == ["price"]
    assert exact.exact
    assert exact.changes[0].value == pytest.approx(searched.changes[0].value, rel=1e-6)


def test_a_saved_model_refuses_the_missing_values_that_the_estimator_refused(parts, tmp_path):
    train, _, test = parts
    ridge = tr.wrap(Ridge()).fit(train)
    ridge.save(tmp_path / "m.toprank")
    saved, X = tr.load(tmp_path / "m.toprank"), test.X.copy()
    np.testing.assert_allclose(saved.predict(test), ridge.predict(test))
    X[3, 1] = np.nan
    for one, words in (
        (ridge, "NaN"),
        (saved, "A Ridge does not support missing values, but there are 1; impute them"),
    ):
        with pytest.raises(ValueError, match=words):
            one.predict(test.replace(X=X))
    blend = tr.BlendRanker.from_fitted([saved, tr.LinearRanker().fit(train)], test)
    assert not blend.supports_missing
    assert [model.name for model in tr.serving.application([tmp_path / "m.toprank"]).models] == ["m"]


def test_xgboost_is_not_misread(parts, tmp_path):
    from scipy.sparse import csr_matrix

    train, _, test = parts
    with pytest.raises(DataError, match="does not support sparse features"):
        tr.wrap(XGBRanker(**FEW)).fit(train.replace(X=csr_matrix(train.X)))
    sparse = tr.wrap(LGBMRanker(**FEW, verbose=-1)).fit(train.replace(X=csr_matrix(train.X)))
    dense = tr.wrap(LGBMRanker(**FEW, verbose=-1)).fit(train)
    np.testing.assert_array_equal(sparse.predict(test.replace(X=csr_matrix(test.X))), dense.predict(test))
    with pytest.raises(DataError, match="uses -1 for missing values"):
        tr.wrap(XGBRanker(**FEW, missing=-1)).fit(train).save(tmp_path / "m.toprank")


def test_importances_are_those_of_the_estimator(parts):
    train, _, _ = parts
    wrapped = tr.wrap(LGBMRanker(**FEW, verbose=-1)).fit(train)
    theirs = wrapped.estimator_.feature_importances_
    np.testing.assert_allclose(wrapped.feature_importances_, theirs / theirs.sum())
    assert not hasattr(tr.wrap(Ridge()).fit(train), "feature_importances_")


@pytest.mark.parametrize("levels", [4, 1500])
def test_catboost_gets_categories_as_categories(parts, levels, tmp_path):
    """As CatBoost trains by hand on the same frame; with many levels, too, of which most are rare."""
    train = parts[0]
    rng = np.random.default_rng(0)
    codes = rng.integers(0, levels, train.n_documents)
    codes[:levels] = np.arange(levels)[: train.n_documents]
    frame = pd.DataFrame({"a": train.X[:, 0], "shop": pd.Categorical([f"shop {code:04}" for code in codes])})
    frame.loc[3, "shop"] = None
    data = tr.RankingData.from_frame(frame.assign(label=train.labels, qid=qid(train)))
    ranker = tr.wrap(CatBoostRanker(**QUIET)).fit(data)
    assert ranker.columns_ is None
    assert ranker.estimator_.get_cat_feature_indices() == [1]
    theirs = frame.assign(shop=frame["shop"].cat.codes.astype(int))
    pool = Pool(theirs, train.labels, group_id=qid(train), cat_features=["shop"])
    by_hand = CatBoostRanker(**QUIET, verbose=False).fit(pool)
    np.testing.assert_allclose(ranker.predict(data), by_hand.predict(theirs), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ranker.predict(frame), ranker.predict(data))
    assert ranker.feature_importances_.shape == (2,)
    assert ranker.feature_importances_.sum() == pytest.approx(1.0)
    with pytest.raises(DataError, match=r"cannot be saved: it was trained on categories"):
        ranker.save(tmp_path / "m.toprank")


def test_catboost_takes_sparse_features(parts):
    from scipy import sparse

    train = parts[0].replace(X=np.where(parts[0].X > 0, parts[0].X, 0.0))
    thin = train.replace(X=sparse.csr_matrix(train.X))
    ranker = tr.wrap(CatBoostRanker(**QUIET))
    np.testing.assert_allclose(ranker.fit(thin).predict(thin), ranker.fit(train).predict(train), rtol=1e-6, atol=1e-9)
