"""Models of other libraries, read by `toprank.load`: scores are those of the library, at borders and with NaN too."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest

import toprank as tr
from foreign_models import (
    QID,
    SIZES,
    X,
    Y,
    catboost_cuts,
    catboost_model,
    lightgbm_cuts,
    lightgbm_model,
    near,
    ranklib_cuts,
    ranklib_scores,
    ranklib_text,
    xgboost_cuts,
    xgboost_model,
)  # fmt: skip
from support import invoked
from toprank.data.encoding import UnknownCategoriesWarning
from toprank.errors import DataError, FormatError
from toprank.rankers.estimator import unfitted
from toprank.rankers.foreign.ranker import ImportedLinearRanker


def check(path, rows, expected, exact=True):
    """The scores of the file are the expected ones, in arrays of both kinds and sparse, and after a save as ours."""
    ranker = tr.load(path)
    scores = ranker.predict(rows)
    if exact:
        np.testing.assert_array_equal(scores, np.asarray(expected, np.float64))
    else:
        np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-14)
    again = path.with_suffix(".toprank")
    ranker.save(again)
    loaded = tr.load(again)
    assert loaded.predict(rows).tobytes() == scores.tobytes()
    assert loaded.training_ == ranker.training_
    from scipy.sparse import csr_matrix

    whole = rows[np.isfinite(rows).all(axis=1)]
    whole = np.where(np.abs(whole) < 1e-30, 0.0, whole)  # LightGBM reads tiny numbers of sparse rows as they are
    assert ranker.predict(csr_matrix(whole)).tobytes() == ranker.predict(whole).tobytes()
    return ranker


# ---- parity ----


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"zero_as_missing": True},
        {"use_missing": False},
        {"boosting": "dart"},
        {"objective": "binary"},
        {"objective": "regression"},
        {"objective": "rank_xendcg"},
        {"categorical": [3], "min_data_per_group": 1, "cat_smooth": 1},
        {"num_leaves": 2},
        {"boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_lightgbm(tmp_path, options, line_end):
    booster, path = lightgbm_model(**options), tmp_path / "m.txt"
    path.write_bytes(booster.model_to_string().replace("\n", line_end).encode())
    rows = near(lightgbm_cuts(booster))
    rows[:4, 3] = [-0.5, 3.7, 1e9, -3]
    expected = booster.predict(rows, raw_score=options.get("objective") == "binary")
    check(path, rows, expected, exact=options.get("boosting") != "rf")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"booster": "dart", "rate_drop": 0.3, "base_score": 0.3},
        {"num_parallel_tree": 3, "subsample": 0.5},
        {"objective": "rank:pairwise", "max_depth": 6, "base_score": 7.25},
        {"max_depth": 0, "max_leaves": 9, "grow_policy": "lossguide", "tree_method": "hist"},
        {"max_depth": 1, "gamma": 1e9},
    ],
    ids=str,
)
@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_xgboost(tmp_path, options, suffix):
    model, path = xgboost_model(**options), tmp_path / f"m.{suffix}"
    model.save_model(path)
    rows = near(xgboost_cuts(model))
    check(path, rows, model.predict(rows))


@pytest.mark.parametrize("objective", ["reg:squarederror", "reg:gamma", "reg:tweedie", "reg:logistic"])
def test_xgboost_dart_from_any_base_score(tmp_path, objective):
    """XGBoost's estimators and its Booster add the trees of DART in two ways; the bits are those of the estimators."""
    import xgboost

    y = (Y > 2).astype(float) if "logi" in objective else Y + 0.54
    model = xgboost.XGBRegressor(objective=objective, booster="dart", rate_drop=0.5, n_estimators=10, n_jobs=1).fit(
        X, y
    )
    model.save_model(tmp_path / "m.json")
    ranker = check(tmp_path / "m.json", X, model.predict(X, output_margin=True))
    theirs = model.get_booster().predict(xgboost.DMatrix(X), output_margin=True)
    np.testing.assert_allclose(ranker.predict(X), theirs, atol=2e-6)


def test_weights_of_dart_are_found_where_each_xgboost_writes_them(tmp_path):
    """Up to 3.3 beside the trees, from 3.4 on among them: there they went unread, and every score was wrong."""
    model, path = xgboost_model(booster="dart", rate_drop=0.5, one_drop=1), tmp_path / "m.json"
    model.save_model(path)
    written = json.loads(path.read_text())
    booster = written["learner"]["gradient_booster"]
    part = booster["gbtree"]["model"] if booster["name"] == "dart" else booster["model"]
    trees = {name: value for name, value in part.items() if name != "weight_drop"}
    weights = booster.get("weight_drop") or part["weight_drop"]
    assert min(weights) < 1
    forms = {
        "before": {"name": "dart", "gbtree": {"name": "gbtree", "model": trees}, "weight_drop": weights},
        "now": {"name": "gbtree", "model": trees | {"weight_drop": weights}},
        "unweighted": {"name": "gbtree", "model": trees},
    }
    scores = {}
    for name, form in forms.items():
        written["learner"]["gradient_booster"] = form
        path.write_text(json.dumps(written))
        scores[name] = tr.load(path).predict(X)
    np.testing.assert_allclose(scores["before"], model.predict(X), atol=2e-6)
    np.testing.assert_allclose(scores["now"], scores["before"], atol=2e-6)
    assert np.abs(scores["unweighted"] - scores["now"]).max() > 0.01
    for wrong in (weights[:-1], [], [1e300] * len(weights), [float("nan")] * len(weights), ["x"] * len(weights), 3):
        written["learner"]["gradient_booster"] = {"name": "gbtree", "model": trees | {"weight_drop": wrong}}
        path.write_text(json.dumps(written))
        with pytest.raises(DataError, match=r"weight_drop is not a list|tree weights are not finite"):
            tr.load(path)


def test_xgboost_levels_that_it_cut_off_itself(tmp_path):
    """It counts characters and writes bytes; so the model is read, and takes codes."""
    pandas, xgboost = pytest.importorskip("pandas"), pytest.importorskip("xgboost")
    words = np.array(["Öl", "naïve", "日本", "plain"])
    frame = pandas.DataFrame({"a": X[:, 0], "b": pandas.Categorical(words[np.arange(len(X)) % 4])})
    model = xgboost.XGBRanker(n_estimators=4, n_jobs=1, enable_categorical=True).fit(frame, Y, qid=QID)
    codes = frame.assign(b=frame["b"].cat.codes)
    for suffix in ("json", "ubj"):
        model.save_model(tmp_path / f"m.{suffix}")
        with pytest.warns(UnknownCategoriesWarning, match="truncated the levels of 'b'"):
            ranker = tr.load(tmp_path / f"m.{suffix}")
        np.testing.assert_array_equal(ranker.predict(codes), model.predict(frame))


@pytest.mark.parametrize(
    "objective", ["binary:logistic", "binary:logitraw", "count:poisson", "reg:gamma", "reg:logistic"]
)
def test_xgboost_scores_are_margins(tmp_path, objective):
    import xgboost

    y = (Y > 2).astype(float) if "logi" in objective else Y + 1.0
    model = xgboost.XGBRegressor(objective=objective, n_estimators=5, n_jobs=1, base_score=0.25).fit(X, y)
    model.save_model(tmp_path / "m.json")
    check(tmp_path / "m.json", X, model.predict(X, output_margin=True))


def test_xgboost_early_stopping_keeps_the_rounds_that_its_ranker_predicts_with(tmp_path):
    import xgboost

    noise = np.random.default_rng(3).integers(0, 3, len(Y))
    model = xgboost.XGBRanker(n_estimators=40, early_stopping_rounds=3, n_jobs=1)
    model.fit(X, Y, qid=QID, eval_set=[(X, noise)], eval_qid=[QID], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    for suffix in ("json", "ubj"):
        model.save_model(tmp_path / f"m.{suffix}")
        ranker = check(tmp_path / f"m.{suffix}", X, model.predict(X))
        assert ranker.training_["trees"] == model.best_iteration + 2  # and the constant


def test_xgboost_categories(tmp_path):
    import xgboost

    kinds = ["q", "q", "q", "c", "q"]
    options = {"n_estimators": 12, "enable_categorical": True, "feature_types": kinds, "n_jobs": 1}
    for most in (1, 100):
        model = xgboost.XGBRanker(max_cat_to_onehot=most, **options).fit(X, Y, qid=QID)
        model.save_model(tmp_path / "m.json")
        rows = X.copy()
        rows[:6, 3] = [-0.5, 3.7, 50, -1, 2**24, np.nan]
        ranker = check(tmp_path / "m.json", rows, model.predict(rows))
        assert ranker.forest_.by_category


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nan_mode": "Max"},
        {"depth": 1, "loss_function": "QueryRMSE"},
        {"grow_policy": "Lossguide", "loss_function": "QueryRMSE"},
        {"grow_policy": "Depthwise", "loss_function": "QueryRMSE"},
    ],
    ids=str,
)
def test_catboost(tmp_path, options):
    model, path = catboost_model(**options), tmp_path / "m.json"
    model.save_model(str(path), format="json")
    rows = near(catboost_cuts(model))
    check(path, rows, model.predict(rows))


def test_catboost_scale_and_bias(tmp_path):
    import catboost

    model = catboost.CatBoostRegressor(iterations=5, verbose=0, allow_writing_files=False).fit(X, Y)
    model.save_model(str(tmp_path / "m.json"), format="json")
    check(tmp_path / "m.json", X, model.predict(X))
    model.set_scale_and_bias(2.5, -1.0)
    model.save_model(str(tmp_path / "m.json"), format="json")
    check(tmp_path / "m.json", X, model.predict(X), exact=False)


@pytest.mark.parametrize("kind", ["LambdaMART", "MART"])
def test_ranklib(tmp_path, kind):
    text, path = ranklib_text(kind=kind), tmp_path / "m.xml"
    path.write_text(text)
    rows = near(ranklib_cuts(text), most=60)[-600:]
    ranker = check(path, rows, ranklib_scores(text, rows))
    wide = np.column_stack([rows, rows])
    assert ranker.predict(wide).tobytes() == ranker.predict(rows).tobytes()
    data = tr.RankingData(wide, qid=np.zeros(len(wide), int))
    assert ranker.predict(data).tobytes() == ranker.predict(rows).tobytes()
    with pytest.raises((DataError, ValueError), match="5 features"):
        ranker.predict(rows[:, :4])


def test_ranklib_random_forests(tmp_path):
    text = ranklib_text(trees=1, bags=6, kind="Random Forests")
    (tmp_path / "m.xml").write_text(text)
    check(tmp_path / "m.xml", X[:50], ranklib_scores(text, X[:50]), exact=False)
    (tmp_path / "m.xml").write_text(ranklib_text(trees=2, bags=3, kind="Random Forests"))
    with pytest.raises(FormatError, match="bags with several trees"):
        tr.load(tmp_path / "m.xml")


@pytest.mark.parametrize(
    ("text", "intercept"),
    [
        ("## Coordinate Ascent\n## Restart = 5\n1:0.25 3:-1.5 2:1.0E-1", 0.0),
        ("## Linear Regression\n## Lambda = 1.0E-10\n0:-2.5 1:0.25 2:.1 3:-1.5 \n", -2.5),
    ],
)
def test_ranklib_linear_models(tmp_path, text, intercept):
    path = tmp_path / "m.txt"
    path.write_text(text)
    ranker = tr.load(path)
    rows = np.nan_to_num(X[:, :3])
    np.testing.assert_allclose(ranker.predict(X), rows @ [0.25, 0.1, -1.5] + intercept, rtol=1e-13)
    ranker.save(tmp_path / "m.toprank")
    assert tr.load(tmp_path / "m.toprank").predict(X).tobytes() == ranker.predict(X).tobytes()


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_categories_of_frames_are_those_of_training(tmp_path, library):
    import lightgbm
    import pandas as pd
    import xgboost

    frame = pd.DataFrame(X, columns=list("abcde"))
    words = np.array(["low", "middle", "high"])[np.digitize(np.nan_to_num(X[:, 3]), [4, 8])]
    frame["d"] = pd.Categorical(np.where(np.isnan(X[:, 3]), None, words), categories=["low", "middle", "high"])
    frame["f"] = pd.Categorical((Y * 10) % 70)
    path = tmp_path / "m"
    if library == "lightgbm":
        model = lightgbm.LGBMRanker(n_estimators=5, verbose=-1, min_child_samples=2).fit(frame, Y, group=SIZES)
        model.booster_.save_model(path)
    else:
        model = xgboost.XGBRanker(n_estimators=5, enable_categorical=True, max_cat_to_onehot=1).fit(frame, Y, qid=QID)
        model.save_model(path.with_suffix(".ubj"))
        path = path.with_suffix(".ubj")
    expected, ranker = model.predict(frame), tr.load(path)
    np.testing.assert_array_equal(ranker.predict(frame), expected.astype(np.float64))
    # The same levels, coded otherwise and in other columns: what counts is the level.
    other = frame[list("fdcbae")].assign(d=frame["d"].astype(str).where(frame["d"].notna()), label=Y, qid=QID)
    data = tr.RankingData.from_frame(other, label="label", qid="qid")
    np.testing.assert_array_equal(ranker.predict(data), expected.astype(np.float64))
    ranker.save(tmp_path / "m.toprank")
    np.testing.assert_array_equal(tr.load(tmp_path / "m.toprank").predict(data), expected.astype(np.float64))


# ---- what they are good for ----


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each library."""
    folder = tmp_path_factory.mktemp("files")
    lightgbm_model().save_model(folder / "lightgbm.txt")
    xgboost_model().save_model(folder / "xgboost.json")
    xgboost_model().save_model(folder / "xgboost.ubj")
    catboost_model().save_model(str(folder / "catboost.json"), format="json")
    (folder / "ranklib.xml").write_text(ranklib_text())
    (folder / "weights.txt").write_text("## Coordinate Ascent\n1:0.25 2:0.5 3:1\n")
    return sorted(folder.iterdir())


def test_foreign_rankers_evaluate_compare_and_blend(files, tmp_path):
    data = tr.RankingData(X, Y, qid=QID)
    rankers = {path.name: tr.load(path) for path in files}
    scores = {name: ranker.predict(data) for name, ranker in rankers.items()}
    compared = tr.compare(scores, data, ["ndcg@10"], seed=0)
    assert set(compared.systems) == set(rankers)
    blend = tr.BlendRanker.from_fitted(rankers.values(), data)
    blend.save(tmp_path / "blend.toprank")
    assert tr.load(tmp_path / "blend.toprank").predict(data).tobytes() == blend.predict(data).tobytes()
    for name, ranker in rankers.items():
        assert ranker.score(data) == tr.evaluate(scores[name], data, "ndcg@10").mean["ndcg@10"]


def test_foreign_rankers_refuse_to_be_fitted_and_can_be_cloned(files):
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError

    for path in files:
        ranker = tr.load(path)
        with pytest.raises(DataError, match=r"can only predict.*tr\.wrap"):
            ranker.fit(X, Y, qid=QID)
        for copy in (clone(ranker), unfitted(ranker)):
            assert copy.get_params() == ranker.get_params()
            with pytest.raises(NotFittedError):
                copy.predict(X)
        assert ranker.predict(X).shape == (len(X),)


def test_names_of_features_are_kept_and_checked(tmp_path):
    import catboost
    import lightgbm
    import pandas as pd
    import xgboost

    frame = pd.DataFrame(X, columns=["bm25", "pagerank", "length", "age", "clicks"])
    lightgbm.LGBMRanker(n_estimators=3, verbose=-1).fit(frame, Y, group=SIZES).booster_.save_model(tmp_path / "l.txt")
    xgboost.XGBRanker(n_estimators=3).fit(frame, Y, qid=QID).save_model(tmp_path / "x.json")
    model = catboost.CatBoostRanker(iterations=3, verbose=0, allow_writing_files=False).fit(frame, Y, group_id=QID)
    model.save_model(str(tmp_path / "c.json"), format="json")
    for path in tmp_path.iterdir():
        ranker = tr.load(path)
        assert ranker.feature_names_in_.tolist() == list(frame.columns)
        expected = ranker.predict(frame)
        assert ranker.predict(frame.assign(other=1.0)).tobytes() == expected.tobytes()
        turned = tr.RankingData(X[:, ::-1], Y, qid=QID, feature_names=frame.columns[::-1])
        assert ranker.predict(turned).tobytes() == expected.tobytes()
        wrong = tr.RankingData(X, Y, qid=QID, feature_names=[*frame.columns[:4], "other"])
        with pytest.raises(DataError, match="no column 'other'"):
            ranker.predict(wrong)


def test_importances_are_those_of_the_library(tmp_path):
    booster = lightgbm_model()
    booster.save_model(tmp_path / "m.txt")
    gains = booster.feature_importance("gain")
    np.testing.assert_allclose(tr.load(tmp_path / "m.txt").feature_importances_, gains / gains.sum(), rtol=1e-6)
    model = xgboost_model()
    model.save_model(tmp_path / "m.json")
    gains = model.get_booster().get_score(importance_type="total_gain")
    expected = np.array([gains.get(f"f{n}", 0.0) for n in range(5)])
    shares = tr.load(tmp_path / "m.json").feature_importances_
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=1e-5)
    (tmp_path / "m.xml").write_text(ranklib_text())
    assert not hasattr(tr.load(tmp_path / "m.xml"), "feature_importances_")


def test_scoring_needs_none_of_the_libraries(files):
    code = (
        "import sys, numpy as np, toprank as tr\n"
        "for path in sys.argv[1:]: tr.load(path).predict(np.zeros((3, 5)))\n"
        "print([name for name in ('lightgbm', 'xgboost', 'catboost', 'sklearn', 'onnx') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *map(str, files)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_commands_take_models_of_other_libraries(files, tmp_path):
    data = tr.RankingData(np.nan_to_num(X), Y, qid=QID)
    tr.write(data, tmp_path / "d.txt")
    for path in files:
        invoked("predict", path, tmp_path / "d.txt", "-o", tmp_path / "s.txt")
        expected = tr.load(path).predict(tr.read(tmp_path / "d.txt", n_features=5, first_feature_id=1))
        np.testing.assert_array_equal(tr.read_scores(tmp_path / "s.txt"), expected)
        told = json.loads(invoked("inspect", path, "--json").stdout)
        assert told["kind"] in ("ForestRanker", "ImportedLinearRanker")
        assert told["features"]["count"] == (3 if path.name == "weights.txt" else 5)
        assert "training.library" in invoked("inspect", path).stdout


# ---- refusals ----


def test_what_cannot_be_read_exactly_is_refused_in_a_sentence(tmp_path):
    import catboost
    import lightgbm
    import pandas as pd
    import xgboost

    path = tmp_path / "m"
    lightgbm.train({"linear_tree": True, "verbose": -1}, lightgbm.Dataset(X, Y), 2).save_model(path)
    _refused(path, "linear models in its leaves")
    lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, Y).booster_.save_model(path)
    _refused(path, "5 numbers for each row")
    for suffix in (".json", ".ubj"):
        xgboost.XGBClassifier(n_estimators=2).fit(X, Y).save_model(tmp_path / f"m{suffix}")
        _refused(tmp_path / f"m{suffix}", "5 numbers for each row")
    xgboost.XGBRegressor(n_estimators=2).fit(X, np.column_stack([Y, Y])).save_model(tmp_path / "m.json")
    _refused(tmp_path / "m.json", "2 targets")
    xgboost.XGBRegressor(n_estimators=2, booster="gblinear").fit(np.nan_to_num(X), Y).save_model(tmp_path / "m.json")
    _refused(tmp_path / "m.json", "gblinear")
    quiet = {"iterations": 2, "verbose": 0, "allow_writing_files": False}
    catboost.CatBoostClassifier(**quiet).fit(X, Y).save_model(str(path), format="json")
    _refused(path, "numbers for each row")
    frame = pd.DataFrame(X).assign(kind=np.where(Y > 1, "a", "b"))
    catboost.CatBoostRegressor(**quiet, cat_features=["kind"]).fit(frame.rename(columns=str), Y).save_model(
        str(path), format="json", pool=catboost.Pool(frame.rename(columns=str), Y, cat_features=["kind"])
    )
    _refused(path, "it uses categories")
    catboost.CatBoostRegressor(**quiet).fit(X, Y).save_model(str(path))
    _refused(path, "format='json'")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x80\x04\x95", "reading a pickle executes its code"),
        (b"binf", "save_model"),
        (b"[]", "neither a model of XGBoost"),
        (b"{}", "neither a model of XGBoost"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"learner": {}}', "learner_model_param is missing"),
        (b'{"a": ' + b"9" * 5000 + b"}", "damaged"),
        (b"tree\nversion=v2\n\nend of trees\n", "version 'v2'"),
        (b"## AdaRank\n1:1", "of the kind 'AdaRank'"),
        (b"## LambdaMART\n<!DOCTYPE x [<!ENTITY a 'b'>]><ensemble>&a;</ensemble>", "does not write"),
        (b'<?xml version="1.0"?><ensemble/>', "damaged"),
        (b"", "This is not a model"),
        (b"nonsense", "This is not a model"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, content, why):
    (tmp_path / "m").write_bytes(content)
    _refused(tmp_path / "m", why)


def _refused(path, why):
    with pytest.raises(FormatError, match=why) as caught:
        tr.load(path)
    assert str(caught.value).startswith(f"{path}:")
    assert str(caught.value).endswith(".")


def test_equal_rows_have_equal_scores_by_foreign_weights():
    """BLAS adds the last rows of a table in another order: ties would break."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=13)
    ranker = ImportedLinearRanker.from_weights("RankLib", weights, 0.5)
    for n in range(2, 60):
        row = rng.normal(size=13)
        scores = ranker.predict(np.tile(row, (n, 1)))
        assert len({*scores.tolist(), *ranker.predict(row[None]).tolist()}) == 1
        np.testing.assert_allclose(scores[0], math.fsum([*(row * weights), 0.5]))
