"""Models of other libraries out again: every pair of model and format is refused with a reason, or checked."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import foreign_models as other
import toprank as tr
from toprank.errors import DataError
from toprank.exporters import c_source, get_format, names, unsupported_reasons
from toprank.rankers.formula import before_rounding, formula_of

VERSIONS = {"elasticsearch": "8.15", "opensearch": "3.8.0", "solr": "9.7"}  # which know missing values
TREES = {"elasticsearch", "opensearch", "solr", "vespa", "xgboost", "lightgbm"}
LINES = {"elasticsearch", "opensearch", "solr", "ranklib", "json"}
EVERYTHING = {"onnx", "c", "python"}
SINGLE = {"elasticsearch", "opensearch", "solr", "xgboost", "ranklib"}


def data(holes: bool = True) -> tr.RankingData:
    X = other.X if holes else np.nan_to_num(other.X)
    return tr.RankingData(X.astype(np.float32), other.Y, qid=other.QID)


def loaded(name: str, write: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        write(str(Path(folder) / name))
        return tr.load(Path(folder) / name)


def wrapped(library: str, kind: str, holes: bool = True, **options: Any) -> Any:
    return tr.wrap(getattr(pytest.importorskip(library), kind)(**options)).fit(data(holes))


def text(content: str) -> Any:
    return lambda path: Path(path).write_text(content)


def by_xgboost(**options: Any) -> Any:
    pytest.importorskip("xgboost")
    return loaded("m.json", other.xgboost_model(**options).get_booster().save_model)


def by_catboost(**options: Any) -> Any:
    pytest.importorskip("catboost")
    return loaded("m.json", lambda path: other.catboost_model(**options).save_model(path, format="json"))


FEW = {"n_estimators": 6, "n_jobs": 1}
RANKERS = {
    "LightGBM": lambda: loaded("m.txt", other.lightgbm_model().save_model),
    "LightGBM, zeros missing": lambda: loaded("m.txt", other.lightgbm_model(zero_as_missing=True).save_model),
    "XGBoost": by_xgboost,
    "XGBoost, DART": lambda: by_xgboost(booster="dart", rate_drop=0.5),
    "CatBoost": by_catboost,
    "CatBoost, leaf by leaf": lambda: by_catboost(grow_policy="Lossguide", max_leaves=8),
    "RankLib": lambda: loaded("m.txt", text(other.ranklib_text())),
    "RankLib, a line": lambda: loaded("m.txt", text("## Coordinate Ascent\n\n1:0.5 2:-0.25 3:0.125 4:0.75 5:1.0")),
    "LGBMRanker": lambda: wrapped("lightgbm", "LGBMRanker", **FEW, min_child_samples=5),
    "XGBRanker": lambda: wrapped("xgboost", "XGBRanker", **FEW),
    "CatBoostRanker": lambda: wrapped("catboost", "CatBoostRanker", iterations=6, thread_count=1),
    "Ridge": lambda: wrapped("sklearn.linear_model", "Ridge", holes=False),
    "trees of three": lambda: tr.BlendRanker.from_fitted(
        [ranker("XGBoost"), ranker("CatBoost"), ranker("LightGBM")], data()
    ),
    "trees and a line": lambda: tr.BlendRanker.from_fitted(
        [ranker("XGBRanker"), tr.LinearRanker().fit(data())], data()
    ),
}
A_LINE = {"RankLib, a line", "Ridge"}
HELD = {
    **{name: EVERYTHING | (LINES if name in A_LINE else TREES) for name in RANKERS},
    "RankLib": EVERYTHING | TREES | {"ranklib"},  # which takes missing values for 0
    "LightGBM, zeros missing": EVERYTHING | TREES | {"ranklib"},
    "trees and a line": EVERYTHING,
}


@cache
def ranker(name: str) -> Any:
    return RANKERS[name]()


@pytest.mark.parametrize("format", names())
@pytest.mark.parametrize("name", RANKERS)
def test_the_same_scores_or_a_reason(name: str, format: str, tmp_path: Path) -> None:
    model, formula = ranker(name), formula_of(ranker(name))
    path, version = tmp_path / f"model{get_format(format).suffix}", VERSIONS.get(format)
    if format not in HELD[name]:
        with pytest.raises(DataError, match=r"cannot hold this model: .*(Export it to|Train on)"):
            tr.export(model, format, path, server_version=version)
        assert not list(tmp_path.iterdir())
        return
    parity = tr.export(model, format, path, check=data(holes=name != "Ridge"), server_version=version)
    assert (parity.n_mismatches, parity.rankings_changed) == (0, 0), str(parity)
    single = format in SINGLE
    sums_differ = formula.single_sums and format not in ("c", "python")
    assert parity.tolerance == (1e-5 if single or sums_differ else 1e-9)
    assert any("rounds its sum" in remark for remark in parity.caveats) == (sums_differ and not single)
    if format in ("c", "python") and formula.forest is not None:
        assert parity.max_difference == 0.0
    found = {kind.kind: kind.excluded for kind in parity.kinds}
    assert "missing" in found or name == "Ridge", "a missing value is part of the model"
    assert found["usual"] is False
    if formula.forest is not None:
        assert found["thresholds"] is False


def test_what_the_models_above_are_there_for() -> None:
    for library, single_sums in (("XGBoost", True), ("CatBoost", False), ("RankLib", True)):
        forest = ranker(library).forest_
        assert (forest.flushes, forest.single_rows, forest.single_sums) == (False, True, single_sums)
    assert formula_of(ranker("XGBRanker")).single_sums
    assert formula_of(ranker("trees and a line")).single_sums
    assert not formula_of(ranker("LightGBM")).single_sums
    assert formula_of(ranker("RankLib, a line")).linear is not None


def test_a_library_reads_its_own_model_again_with_the_same_bits(tmp_path: Path) -> None:
    rows = other.near(other.xgboost_cuts(other.xgboost_model()))
    tr.export(ranker("XGBoost"), "xgboost", tmp_path / "x.json")
    np.testing.assert_array_equal(tr.load(tmp_path / "x.json").forest_.predict(rows), ranker("XGBoost").predict(rows))
    tr.export(ranker("LightGBM"), "lightgbm", tmp_path / "l.txt")
    np.testing.assert_array_equal(tr.load(tmp_path / "l.txt").forest_.predict(rows), ranker("LightGBM").predict(rows))


def test_sums_in_double_precision_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rounding after each tree c would be as far away as the formats that add in double precision."""
    right = get_format("c")
    made = right.prepare(formula_of(ranker("XGBoost")))
    content = made.files[""].replace(b"(double)(float)out", b"out")
    wrong = replace(right, writer=lambda *_: replace(made, files={"": content}))
    monkeypatch.setattr(c_source, "FORMATS", [wrong])
    with pytest.raises(DataError, match="was not written"):
        tr.export(ranker("XGBoost"), "c", tmp_path / "m.c")
    assert not list(tmp_path.iterdir())


def test_what_a_search_found_is_exported_as_its_ranker(tmp_path: Path) -> None:
    class Found:
        ranker = tr.LinearRanker().fit(data())

    tr.export(Found(), "python", tmp_path / "a.py")
    tr.export(Found.ranker, "python", tmp_path / "b.py")
    assert (tmp_path / "a.py").read_text().replace("model a", "model b") == (tmp_path / "b.py").read_text()
    assert unsupported_reasons(Found()) == unsupported_reasons(Found.ranker)


singles = st.floats(width=32, allow_nan=False)


@given(singles, st.one_of(st.floats(allow_nan=False), singles))
@example(float(np.finfo(np.float32).max), 2.0**128 - 2.0**103)
@example(-np.inf, -(2.0**128) + 2.0**103)
@example(-np.inf, -np.inf)
@example(0.0, 2.0**-150)
@example(np.inf, np.inf)
def test_thresholds_before_rounding_decide_as_those_after(t: float, x: float) -> None:
    limit = float(before_rounding(np.array([t]))[0])
    around = [limit, np.nextafter(limit, np.inf), np.nextafter(limit, -np.inf), x]
    with np.errstate(over="ignore"):
        for value in around:
            assert (np.float32(value) <= t) == (value <= limit), (t, value)


def test_models_that_no_format_has_words_for(tmp_path: Path) -> None:
    pandas, xgboost = pytest.importorskip("pandas"), pytest.importorskip("xgboost")
    frame = pandas.DataFrame(other.X, columns=list("abcde"))
    frame["d"] = pandas.Categorical(np.nan_to_num(other.X[:, 3]).astype(int).astype(str))
    by_category = xgboost.XGBRanker(**FEW, enable_categorical=True).fit(frame, other.Y, qid=other.QID)
    categories = loaded("m.json", by_category.get_booster().save_model)
    forest = wrapped("sklearn.ensemble", "RandomForestRegressor", holes=False, n_estimators=2)
    tr.export(ranker("CatBoost"), "onnx", tmp_path / "m.onnx")
    for model, why in (
        (categories, "categories by XGBoost's own rules"),
        (forest, "A fitted RandomForestRegressor cannot be exported: "),
        (tr.load(tmp_path / "m.onnx"), "is an ONNX file, whose graph cannot be converted"),
    ):
        with pytest.raises(DataError, match=why):
            tr.export(model, "c", tmp_path / "m.c")
        with pytest.raises(DataError, match=why):
            unsupported_reasons(model)
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


LINE = "## Linear Regression\n## Lambda = 0.0\n0:0.5 1:1.0 2:-2.0"
TREE = """## LambdaMART
## No. of trees = 1

<ensemble>
<tree id="1" weight="0.1"><split><feature>2</feature><threshold>0.5</threshold><split pos="left"><output>1.0</output>
</split><split pos="right"><output>2.0</output></split></split></tree>
</ensemble>
"""


@pytest.mark.parametrize(
    ("text", "formats"),
    [
        (LINE, ("python", "c", "json", "onnx", "elasticsearch", "solr", "ranklib")),
        (TREE, ("python", "c", "onnx", "elasticsearch", "solr", "vespa", "xgboost", "lightgbm", "ranklib")),
    ],
)
def test_a_model_of_ranklib_is_checked_on_data_of_more_features(tmp_path, text, formats):
    """It knows the first ones alone, and so does what is exported."""
    (tmp_path / "model.txt").write_text(text)
    ranker, data = tr.load(tmp_path / "model.txt"), tr.synthetic(n_queries=10, seed=0)
    for to in formats:
        parity = tr.export(ranker, to, tmp_path / "m.json", check=data)
        assert parity.rows > data.n_documents
        assert parity.n_mismatches == 0


@pytest.mark.parametrize(("levels", "leaves"), [(500, True), (501, False)])
def test_trees_too_deep_for_onnx_runtimes_do_not_leave(tmp_path, levels, leaves):
    """onnxruntime calls itself for each level: a chain of 30,000 would end the process that loads it."""
    text = "".join(
        ('<split pos="right">' if n else "<split>") + f"<feature>1</feature><threshold>{n}</threshold>"
        f'<split pos="left"><output>{n}</output></split>'
        for n in range(levels)
    )
    text += '<split pos="right"><output>-1</output></split>' + "</split>" * levels
    (tmp_path / "m.xml").write_text(f'## LambdaMART\n<ensemble><tree id="1" weight="1">{text}</tree></ensemble>')
    ranker = tr.load(tmp_path / "m.xml")
    if leaves:
        assert tr.export(ranker, "onnx", tmp_path / "m.onnx").passed
    else:
        with pytest.raises(DataError, match="501 levels"):
            tr.export(ranker, "onnx", tmp_path / "m.onnx")
        assert not (tmp_path / "m.onnx").exists()
    assert (unsupported_reasons(ranker)["onnx"] is None) == leaves
