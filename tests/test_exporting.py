"""Models out: whatever a format takes, it scores as `predict` does, at every split; and the check can fail."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import subprocess
import sys
import tempfile
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import toprank as tr
from export_mutants import of_trees
from support import toprank
from toprank.data.queries import Queries
from toprank.errors import DataError, FileError, MissingExtraError, UnknownNameError
from toprank.exporters import c_source, get_format, names, onnx_graph, split_probes, xgboost_json
from toprank.exporters import probe_rows as probe_rows_room
from toprank.exporters.exporter import ParityError, ParityWarning
from toprank.exporters.float32 import next_single, single_below
from toprank.exporters.interpreters import xgboost
from toprank.exporters.parity import changed_rankings
from toprank.exporters.probe_rows import probe_rows
from toprank.rankers.formula import Formula, LinearFunction, formula_of
from toprank.rankers.trees.forest import MISSING_NAN, MISSING_NONE, MISSING_ZERO, TINY, Forest, Tree

EVERYTHING = ("onnx", "c", "python")  # take every formula
TREES = ("xgboost", "lightgbm")
OURS = (*EVERYTHING, *TREES, "json")


@cache
def data(holes: bool = True) -> tr.RankingData:
    made = tr.synthetic(n_queries=30, truth="nonlinear", n_grades=3, seed=0)
    rng, X = np.random.default_rng(0), made.X.copy()
    X[:, 3] = np.floor(made.labels + rng.integers(0, 4, len(X)))  # something for a category to find
    X[:, 5] = np.round(X[:, 5])
    if holes:
        X[rng.random(X.shape) < 0.1] = np.nan
    return made.replace(X=X.astype(np.float32))


@cache
def table() -> tr.RankingData:
    import pandas as pd

    rng, like = np.random.default_rng(1), data()
    levels = np.array(["acme", "zenith", 'a "b", c', "öl", "rare"])
    places = (like.labels.astype(int) + rng.integers(0, 3, like.n_documents)) % 4
    brand = levels[np.where(rng.random(len(places)) < 0.01, 4, places)].astype(object)
    brand[rng.random(len(brand)) < 0.1] = None
    price = like.labels + rng.normal(100, 2, len(brand))
    price[rng.random(len(brand)) < 0.1] = np.nan
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, len(brand)), unit="D")
    frame = pd.DataFrame({"price in €": price, "brand": brand, "day": day, "y": like.labels})
    frame["qid"] = like.queries.document_query
    return tr.RankingData.from_frame(frame, label="y", qid="qid")


def trees(**more: Any) -> tr.TreeRanker:
    return tr.TreeRanker(**({"n_trees": 8, "num_leaves": 8, "threads": 1, "min_data_in_leaf": 5} | more))


def network(**more: Any) -> Any:
    return tr.NeuralRanker(more.pop("loss", "ListNet"), **({"hidden": (6, 3), "epochs": 1, "threads": 1} | more))


def half(name: str) -> tr.RankingData:
    return tr.split(data(), (0.5, 0.5))[0 if name == "first" else 1]


RANKERS = {
    "linear": lambda: tr.LinearRanker().fit(data()),
    "ada": lambda: tr.AdaRank(max_rounds=20).fit(data()),
    "coordinates": lambda: tr.CoordinateAscent(restarts=1, max_cycles=1).fit(data()),
    "two lines": lambda: tr.BlendRanker.from_fitted([ranker("linear"), ranker("ada")], data()),
    "boost": lambda: tr.RankBoost(max_rounds=15).fit(data()),
    "trees": lambda: trees().fit(data(False)),
    "trees with holes": lambda: trees().fit(data()),
    "zeros are missing": lambda: trees(lightgbm_params={"zero_as_missing": True}).fit(data()),
    "squares": lambda: trees(loss="Squared").fit(data()),  # with an intercept
    "categories": lambda: trees(categorical=[3, 5], lightgbm_params={"min_data_per_group": 5, "cat_smooth": 1.0}).fit(
        whole()
    ),
    "two forests": lambda: tr.BlendRanker.from_fitted([ranker("squares"), ranker("zeros are missing")], data()),
    "boost and trees": lambda: tr.BlendRanker.from_fitted([ranker("boost"), ranker("zeros are missing")], data()),
    "table, trees": lambda: trees(lightgbm_params={"min_data_per_group": 5}).fit(table()),
    "expected gain": lambda: tr.ExpectedGainRanker().fit(data()),
    "ordinal": lambda: tr.ExpectedGainRanker("Ordinal").fit(data()),
    "calibrated": lambda: tr.ExpectedGainRanker("ListNet", l2=0.1).fit(half("first")).calibrate(half("second")),
    "calibrated ordinal": lambda: tr.ExpectedGainRanker("Ordinal").fit(half("first")).calibrate(half("second")),
    "grades of trees": lambda: trees(loss="Multinomial", outputs="grades").fit(half("first")).calibrate(half("second")),
    "mlp": lambda: network().fit(data()),
    "mlp of quantiles": lambda: network(input_transform="quantile", norm="layer", activation="gelu").fit(data()),
    "mlp of batches": lambda: network(input_transform="none", norm="batch", activation="silu").fit(data()),
    "mlp of grades": lambda: network(loss="Multinomial", outputs="grades", activation="tanh", hidden=(4,)).fit(data()),
    "no hidden layer": lambda: network(hidden=(), norm="batch", input_transform="standard").fit(data()),
    "blend": lambda: tr.BlendRanker.from_fitted(
        [ranker("linear"), ranker("trees"), ranker("calibrated"), ranker("mlp")], data()
    ),
    "table, linear": lambda: tr.LinearRanker().fit(table()),
    "table, thresholds": lambda: tr.RankBoost(max_rounds=15).fit(table()),
    "table, blend": lambda: tr.BlendRanker.from_fitted([ranker("table, linear"), ranker("table, trees")], table()),
}
HELD = {
    **{(name, format): None for name in RANKERS for format in EVERYTHING},
    **{(name, "json"): None for name in ("linear", "ada", "coordinates", "two lines")},
    **{
        (name, format): None
        for name in (
            "boost",
            "trees",
            "trees with holes",
            "zeros are missing",
            "squares",
            "two forests",
            "boost and trees",
        )
        for format in TREES
    },
    **{(name, format): None for name in ("categories", "table, trees") for format in TREES},
}


def whole() -> tr.RankingData:
    """Categories must be whole numbers from 0 on."""
    X = data().X.copy()
    X[:, 5] = np.abs(X[:, 5])
    return data().replace(X=X)


@cache
def ranker(name: str) -> Any:
    if "mlp" in name or name in ("blend", "no hidden layer"):
        pytest.importorskip("torch")
    return RANKERS[name]()


def given_data(name: str) -> tr.RankingData:
    return table() if name.startswith("table") else whole() if name == "categories" else data()


# ---- every pair ----


@pytest.mark.parametrize("format", OURS)
@pytest.mark.parametrize("name", RANKERS)
def test_the_same_scores_or_a_reason(name: str, format: str, tmp_path: Path) -> None:
    model, path = ranker(name), tmp_path / f"model{get_format(format).suffix}"
    if (name, format) not in HELD:
        with pytest.raises(DataError, match=r"cannot hold this model: .*(Export it to|Rename)"):
            tr.export(model, format, path)
        assert not list(tmp_path.iterdir())
        return
    parity = tr.export(model, format, path, check=given_data(name))
    assert parity.n_mismatches == 0, str(parity)
    assert parity.rankings_changed == 0, str(parity)
    assert parity.max_difference < (1e-5 if format == "xgboost" else 1e-9)
    found = {kind.kind: kind.rows for kind in parity.kinds}
    assert found["data"] == given_data(name).n_documents
    assert found.keys() >= {"usual", "missing", "zeros", "tiny", "huge"}
    apart = {kind.kind for kind in parity.kinds if kind.excluded}
    sets_of_levels = format == "xgboost" and name in ("categories", "table, trees")
    assert apart == (
        {"tiny"} if format == "lightgbm" and "boost" in name else {"negative"} if sets_of_levels else set()
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == [path.name, f"{path.name}.check.json"]


def test_every_format_is_known_and_says_what_it_is() -> None:
    assert set(names()) == {*OURS, "elasticsearch", "opensearch", "solr", "vespa", "ranklib"}
    for name in names():
        assert get_format(name).name == name
        assert get_format(name.upper()).title


def test_what_the_rankers_above_are_there_for() -> None:
    def forest(name: str) -> Forest:
        found = formula_of(ranker(name)).forest
        assert found is not None
        return found

    assert set(forest("trees").missing.tolist()) == {MISSING_NONE}
    assert MISSING_NAN in set(forest("trees with holes").missing.tolist())
    assert set(forest("zeros are missing").missing.tolist()) == {MISSING_ZERO}
    assert forest("categories").by_category
    assert forest("table, trees").by_category
    assert forest("squares").intercepts[0] != 0
    assert ranker("calibrated").calibration_.by_score
    assert not ranker("grades of trees").calibration_.by_score
    assert ranker("table, linear").columns_ is not None
    assert formula_of(ranker("two lines")).linear is not None


# ---- any forest ----


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    """Small trees with every kind of node."""
    odd = [0.0, -0.0, 1e-36, -1e-36, TINY, -TINY, 0.1, -0.3, 1e300, 2.5, float(np.float32(0.1)), 16777217.0]
    thresholds = st.sampled_from(odd) | st.floats(-5, 5)
    made = []
    for _ in range(draw(st.integers(1, 4))):
        nodes = draw(st.integers(0, 4))
        left, right = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
        ends = [(left, 0), (right, 0)] if nodes else []
        for node in range(1, nodes):  # hang the next node on any open end
            side, place = ends.pop(draw(st.integers(0, len(ends) - 1)))
            side[place] = node
            ends += [(left, node), (right, node)]
        for leaf, (side, place) in enumerate(ends):
            side[place] = -1 - leaf
        sets = tuple(
            np.array(sorted(draw(st.sets(st.sampled_from([0, 1, 3, 31, 32, 70]), min_size=1))))
            if draw(st.integers(0, 4)) == 0
            else None
            for _ in range(nodes)
        )
        numbers = [draw(thresholds) if wanted is None else 0.0 for wanted in sets]
        made.append(
            Tree(
                np.array([draw(st.integers(0, 2)) for _ in range(nodes)], dtype=np.int64),
                np.array(numbers, dtype=np.float64),
                np.array([draw(st.booleans()) for _ in range(nodes)], dtype=bool),
                np.array([draw(st.sampled_from([0, 1, 2])) for _ in range(nodes)], dtype=np.int64),
                sets,
                left,
                right,
                np.array([draw(st.floats(-1, 1).map(lambda x: round(x, 3))) for _ in range(nodes + 1)]),
                np.zeros(nodes),
            )
        )
    return Forest.from_trees(made, 3, np.array([draw(st.sampled_from([0.0, 0.7]))]))


def by_kernel(forest: Forest, X: np.ndarray) -> np.ndarray:
    return forest.predict(X, 1)


def scores(formula: Formula, format: str, X: np.ndarray) -> np.ndarray:
    prepared = get_format(format).prepare(formula)
    assert prepared.score is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"m{get_format(format).suffix}"
        path.write_bytes(prepared.files[""])
        return np.asarray(prepared.score(path, X, formula.features))


def exact_on(forest: Forest, format: str) -> None:
    formula = Formula(("a", "b", "c"), forest)
    if get_format(format).unsupported_reason(formula) is not None:
        assert forest.by_category
        assert format == "xgboost"
        return
    made = probe_rows(formula, single=format == "xgboost")
    rows = made.X[~np.isin(made.kinds, list(get_format(format).prepare(formula).excluded))]
    assert len(rows)
    np.testing.assert_allclose(scores(formula, format, rows), by_kernel(forest, rows), rtol=1e-6, atol=1e-6)


@given(forests())
@settings(max_examples=60)
@pytest.mark.parametrize("format", ["python", "onnx", "lightgbm", "xgboost"])
def test_any_forest(format: str, forest: Forest) -> None:
    exact_on(forest, format)


@pytest.mark.parametrize("default_left", [False, True])
@pytest.mark.parametrize("missing", [MISSING_NONE, MISSING_ZERO, MISSING_NAN])
@pytest.mark.parametrize("threshold", [1e300, np.inf])
def test_splits_that_ask_whether_there_is_a_value(threshold: float, missing: int, default_left: bool) -> None:
    one = np.ones(1, dtype=np.int64)
    node = (one * 0, np.array([threshold]), np.array([default_left]), one * missing, (None,))
    tree = Tree(*node, np.array([-1]), np.array([-2]), np.array([1.0, 2.0]), np.zeros(1))
    formula = Formula(("a",), Forest.from_trees([tree], 1, np.zeros(1)))
    X = np.array([[np.nan], [0.0], [1.0], [-3e38], [3e38]])
    for format in (*EVERYTHING, *TREES):
        np.testing.assert_array_equal(scores(formula, format, X), by_kernel(formula.part, X), err_msg=format)


@pytest.mark.parametrize("format", [*EVERYTHING, "json"])
def test_linear_functions_whose_missing_values_add_something(format: str) -> None:
    rng = np.random.default_rng(0)
    center, scale, missing = rng.normal(size=3), rng.uniform(1, 2, 3), rng.normal(size=(1, 3))
    part = LinearFunction(center, scale, rng.normal(size=(1, 3)), np.array([0.3]), missing)
    X = np.where(rng.random((50, 3)) < 0.4, np.nan, rng.normal(size=(50, 3)))
    terms = np.where(np.isnan(X), missing, (X - center) * scale * part.weights)
    np.testing.assert_allclose(scores(Formula(("a", "b", "c"), part), format, X), 0.3 + terms.sum(axis=1), rtol=1e-12)


@given(forests())
@settings(max_examples=12)
def test_any_forest_in_c(forest: Forest) -> None:
    exact_on(forest, "c")


@given(forests())
@settings(max_examples=15)
def test_other_readers_of_the_same_files_agree(forest: Forest) -> None:
    """onnx's own evaluator beside onnxruntime, and our reader of XGBoost's files beside XGBoost."""
    from onnx.reference import ReferenceEvaluator

    formula = Formula(("a", "b", "c"), forest)
    X = probe_rows(formula).X[::7]
    content = get_format("onnx").prepare(formula).files[""]
    [found] = ReferenceEvaluator(content).run(None, {"features": X})
    np.testing.assert_allclose(found, by_kernel(forest, X), rtol=1e-12, atol=1e-12)
    if not forest.by_category:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.json"
            X = probe_rows(formula, single=True).X
            path.write_bytes(get_format("xgboost").prepare(formula).files[""])
            theirs = xgboost_json._scores(path, X, formula.features)
            np.testing.assert_array_equal(xgboost.score(path.read_text(), X), theirs)


@given(st.floats(allow_nan=False) | st.floats(-1, 1), st.floats(width=32, allow_nan=False))
@example(0.1, float(np.float32(0.1)))
@example(-TINY, 0.0)
@example(3.4028234663852886e38, 3.4028234663852886e38)
def test_thresholds_in_single_precision_decide_the_same(threshold: float, x: float) -> None:
    near = [np.float32(x), single_below(threshold), next_single(threshold)]
    for value in near:
        left = float(value) <= threshold
        if np.isfinite(value):
            assert (value <= single_below(threshold)) == left
            assert (value < next_single(threshold)) == left


# ---- the check ----


def nearest(threshold: Any) -> Any:
    with np.errstate(over="ignore"):
        return np.float32(threshold)


def test_thresholds_rounded_to_the_nearest_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the data pass: they lie on no threshold. The made ones do not."""
    monkeypatch.setattr(xgboost_json, "upper_single", nearest)
    with pytest.warns(ParityWarning, match=r"does not score every row as the model does: \d+ of"):
        parity = tr.export(ranker("trees"), "xgboost", tmp_path / "m.json", check=data(False))
    found = {kind.kind: kind for kind in parity.kinds}
    assert found["data"].n_mismatches == 0
    assert found["thresholds"].n_mismatches > 0
    assert found["thresholds"].rankings_changed > 0
    assert parity.n_mismatches >= found["thresholds"].n_mismatches
    assert not parity.passed


def _rounded(tree: Tree) -> Tree:
    return Tree(**{**vars(tree), "threshold": nearest(tree.threshold).astype(np.float64)})


def _other_default(tree: Tree) -> Tree:
    return Tree(**{**vars(tree), "default_left": ~tree.default_left})


def _none_missing(tree: Tree) -> Tree:
    return Tree(**{**vars(tree), "missing": np.full_like(tree.missing, MISSING_NONE)})


@pytest.mark.parametrize("format", EVERYTHING)
@pytest.mark.parametrize("broken", [_rounded, _other_default, _none_missing])
def test_a_writer_that_is_wrong_writes_nothing(format: str, broken: Any, tmp_path: Path) -> None:
    """A formula that is not the ranker's stands for a writer that does not write what it is given."""
    model = ranker("trees with holes")
    right = formula_of(model).part
    wrong = of_trees(right, [broken(tree) for tree in right.trees])
    model = _Telling(model, wrong)
    with pytest.raises(DataError, match="was not written: its scores differ from the model's"):
        tr.export(model, format, tmp_path / "m", check=data())
    assert not list(tmp_path.iterdir())


class _Telling(tr.TreeRanker):
    """A ranker that tells another formula than its own."""

    def __init__(self, model: Any, formula: Forest) -> None:
        self.__dict__.update(vars(model))
        self._told = formula

    def _formula(self) -> Forest:
        return self._told


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=12))
def test_changed_rankings_are_those_of_pairs(rows: list[tuple[int, int, int]]) -> None:
    rows = sorted(rows, key=lambda row: row[2])
    before, after, query = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    queries = Queries(np.append(np.flatnonzero(np.append(True, np.diff(query) > 0)), len(query)))
    for gap in (0.0, 1.5):
        expected = [
            any(
                before[i] > before[j] + gap * max(1.0, before[j]) and not after[i] > after[j]
                for i in range(a, b)
                for j in range(a, b)
            )
            for a, b in zip(queries.offsets[:-1], queries.offsets[1:], strict=True)
        ]  # fmt: skip
        assert changed_rankings(before, after, queries, gap or 1e-12).tolist() == expected
    assert not changed_rankings(before, before * (1 + 1e-15), queries).any(), "rounding changes nothing"


def walked(tree: Tree, flushes: bool, row: np.ndarray) -> list[tuple[int, bool]]:
    """The splits of a tree that a row comes to, and whether it goes left there; by LightGBM's rule, one at a time."""
    node, found = 0 if len(tree.feature) else -1, []
    while node >= 0:
        x, kind, wanted = row[tree.feature[node]], tree.missing[node], tree.categories[node]
        if flushes and abs(x) <= TINY:
            x = 0.0
        if wanted is not None:
            left = bool(np.trunc(x) in wanted)
        elif (kind == MISSING_NAN and np.isnan(x)) or (kind == MISSING_ZERO and not abs(x) > TINY):
            left = bool(tree.default_left[node])
        else:
            left = bool((0.0 if np.isnan(x) else x) <= tree.threshold[node])
        found.append((node, left))
        node = int((tree.left if left else tree.right)[node])
    return found


@given(forests(), st.booleans())
@settings(max_examples=25)
def test_rows_stand_at_every_split_that_a_row_can_come_to(forest: Forest, single: bool) -> None:
    """No row of any kind comes to a split, or leaves it on a side, where no row that was made for it does."""
    made = probe_rows(Formula(("a", "b", "c"), forest), single=single)
    own = np.isin(made.kinds, ["thresholds", "categories", "missing", "zeros", "tiny"])
    total = sum(len(tree.feature) for tree in forest.trees)
    assert sum(made.nodes) - made.nodes.covered == total
    for tree in forest.trees:
        by_own = {step for row in made.X[own] for step in walked(tree, forest.flushes, row)}
        assert {step for row in made.X[~own] for step in walked(tree, forest.flushes, row)} <= by_own
    met = {(id(tree), node) for tree in forest.trees for row in made.X for node, _ in walked(tree, forest.flushes, row)}
    assert len(met) == made.nodes.covered == made.nodes.reachable


def test_rows_stand_on_both_sides_of_every_threshold() -> None:
    formula = formula_of(ranker("trees with holes"))
    for single in (False, True):
        made = probe_rows(formula, single=single)
        rows = made.X[made.kinds == "thresholds"]
        if single:
            np.testing.assert_array_equal(rows, rows.astype(np.float32))
        for tree in formula.part.trees:
            steps = [dict(walked(tree, True, row)) for row in rows]
            for node, (feature, t) in enumerate(zip(tree.feature, tree.threshold, strict=True)):
                at = (single_below(t), next_single(t)) if single else (t, np.nextafter(t, np.inf))
                if abs(t) < 1e-30:
                    continue  # zero is the value beside it
                for value, left in zip(at, (True, False), strict=True):
                    here = [s.get(node) for s, row in zip(steps, rows, strict=True) if row[feature] == float(value)]
                    assert left in here


def test_splits_are_drawn_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole_check = tr.export(ranker("trees"), "python", tmp_path / "m.py")
    assert whole_check.nodes == (56, 56, 0)
    assert not whole_check.sampled
    monkeypatch.setattr(probe_rows_room, "MAX_SPLIT_ROWS", 60)
    parity = tr.export(ranker("trees"), "python", tmp_path / "m.py")
    assert (parity.nodes, parity.sampled) == ((20, 56, 0), True)
    assert parity.rows < whole_check.rows
    assert "Generated rows cover 20 of the 56 reachable splits. This is a sample" in str(parity)
    assert parity.to_dict()["nodes"] == {"covered": 20, "reachable": 56, "unreachable": 0, "sampled": True}


def test_splits_that_nothing_comes_to_are_told(tmp_path: Path) -> None:
    """In single precision there is nothing between the two thresholds, and in neither below the second one."""
    numbers = np.arange(3)
    node = (numbers * 0, np.array([0.1, 0.1 + 1e-12, 0.05]), numbers < 0, numbers * 0, (None,) * 3)
    tree = Tree(*node, np.array([-1, 2, -2]), np.array([1, -3, -4]), np.array([1.0, 2.0, 4.0, 8.0]), np.zeros(3))
    formula = Formula(("a",), Forest.from_trees([tree], 1, np.zeros(1)))
    assert probe_rows(formula).nodes == (3, 3, 0)
    assert probe_rows(formula, single=True).nodes == (2, 2, 1)


def test_what_a_parity_says(tmp_path: Path) -> None:
    parity = tr.export(ranker("trees"), "onnx", tmp_path / "m.onnx", check=data(False))
    said = parity.to_dict()
    assert json.loads(json.dumps(said)) == said
    assert said["rows"] == sum(kind["rows"] for kind in said["kinds"].values())
    assert said["rankings"] == parity.rankings > data().n_queries
    assert f"{parity.rows:,} rows checked against predict" in str(parity)
    assert "onnxruntime" in parity.interpreter
    assert parity.passed
    assert "<table" in parity._repr_html_()


def test_rows_that_the_model_refuses_are_not_compared(tmp_path: Path) -> None:
    """A feature that hardly varies makes infinities of huge values, which predict refuses."""
    pytest.importorskip("torch")
    small = data(False).replace(X=data(False).X * 1e-12)
    model = network(input_transform="standard").fit(small)
    parity = tr.export(model, "python", tmp_path / "m.py", check=small)
    assert "huge" not in {kind.kind for kind in parity.kinds}
    assert parity.passed


def test_large_and_sparse_data_are_compared_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy import sparse

    from toprank.exporters import parity as room

    X = np.nan_to_num(data().X)
    X[X < 0.5] = 0.0
    thin = data().replace(X=sparse.csr_matrix(X))
    model = tr.LinearRanker().fit(thin)
    monkeypatch.setattr(room, "_BLOCK_ROWS", 100)
    parity = tr.export(model, "json", tmp_path / "m.json", check=thin)
    assert {kind.kind: kind.rows for kind in parity.kinds}["data"] == thin.n_documents
    assert (parity.n_mismatches, parity.rankings_changed) == (0, 0)


def test_data_beyond_single_precision_are_counted(tmp_path: Path) -> None:
    """Half-way between two values of the training a threshold lies between two single precision numbers."""
    tree = formula_of(ranker("trees")).part.trees[0]
    X = np.repeat(data(False).X[:1].astype(np.float64), 2, axis=0)
    feature, threshold = tree.feature[0], tree.threshold[0]
    X[:, feature] = threshold, np.nextafter(threshold, np.inf)
    assert np.float32(X[0, feature]) == np.float32(X[1, feature])
    close = tr.RankingData(X, feature_names=data().feature_names)
    assert len(set(ranker("trees").predict(close))) == 2
    with pytest.warns(ParityWarning, match="does not score every row"):
        parity = tr.export(ranker("trees"), "xgboost", tmp_path / "m.json", check=close)
    found = {kind.kind: kind for kind in parity.kinds}
    assert (found["data"].n_mismatches, found["data"].rankings_changed) == (1, 1)
    assert parity.n_mismatches == 1, "and no made row"


def test_infinite_values_are_refused_as_by_the_ranker(tmp_path: Path) -> None:
    X = data().X.copy()
    X[::3, 2], X[1::3, 3] = np.inf, -np.inf
    for format in (*EVERYTHING, "lightgbm", "xgboost"):
        with pytest.raises(DataError, match="holds infinite values"):
            tr.export(ranker("trees with holes"), format, tmp_path / "m", check=data().replace(X=X))
    assert not (tmp_path / "m").exists()


def test_probabilities_that_are_almost_nothing_are_calibrated_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their logarithms tell the last bits of a sigmoid apart; the runtime's own is not as exact, and is found out."""
    model = copy(ranker("calibrated ordinal"))
    flat = tuple((a, 0.05) for a, _ in model.calibration_.steps)
    model.calibration_ = dataclasses.replace(model.calibration_, steps=flat)
    parity = tr.export(model, "onnx", tmp_path / "m.onnx")
    assert parity.passed
    assert parity.max_difference < 1e-12
    monkeypatch.setattr(onnx_graph._Graph, "_sigmoid", lambda graph, Z: graph.nodes("Sigmoid", Z))
    with pytest.raises(ParityError, match="was not written"):
        tr.export(model, "onnx", tmp_path / "m.onnx")


# ---- the files ----


def test_the_self_test_holds_rows_with_their_scores(tmp_path: Path) -> None:
    model = ranker("trees with holes")
    tr.export(model, "python", tmp_path / "m.py", check=data())
    told = json.loads((tmp_path / "m.py.check.json").read_text())
    X = np.array([[np.nan if value is None else value for value in row] for row in told["rows"]])
    predicted = model.predict(tr.RankingData(X, feature_names=told["features"]))
    np.testing.assert_allclose(predicted, told["scores"], rtol=told["tolerance"])
    assert told["features"] == list(formula_of(model).features)
    assert np.isnan(X).any()
    assert 20 < len(X) < 100
    (tmp_path / "m.py.check.json").unlink()
    tr.export(model, "python", tmp_path / "m.py")
    assert not (tmp_path / "m.py.check.json").exists()


def test_the_python_file_needs_numpy_alone(tmp_path: Path) -> None:
    rows = np.nan_to_num(table().X[:5], nan=np.nan)
    tr.export(ranker("table, blend"), "python", tmp_path / "model.py")
    np.save(tmp_path / "rows.npy", rows)
    code = (
        "import sys, numpy as np; sys.path.insert(0, '.'); import model; before = set(sys.modules); "
        "print(model.score(np.load('rows.npy')).tolist()); "
        "print([name for name in sys.modules if name.split('.')[0] in ('toprank', 'scipy', 'lightgbm', 'torch')]); "
        "print(model.LEVELS['brand'])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    found, loaded, levels = map(eval, done.stdout.splitlines())
    np.testing.assert_allclose(found, ranker("table, blend").predict(table())[:5], rtol=1e-9)
    assert loaded == []
    assert tuple(levels) == formula_of(ranker("table, blend")).levels["brand"]
    wrong = "import sys; sys.path.insert(0, '.'); import model; model.score([[1.0]])"
    done = subprocess.run(
        [sys.executable, "-I", "-c", wrong], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "X must have a column for each of the 3 features" in done.stderr


def test_the_c_file_says_its_features_and_levels(tmp_path: Path) -> None:
    tr.export(ranker("table, linear"), "c", tmp_path / "2nd model.c")
    library = tmp_path / "m.so"
    compiler = c_source._compiler()
    assert compiler is not None
    source = str(tmp_path / "2nd model.c")
    subprocess.run([compiler, "-std=c99", "-shared", "-fPIC", source, "-o", library, "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    names = (ctypes.c_char_p * 3).in_dll(loaded, "m2nd_model_features")
    assert [name.decode() for name in names] == ["price in €", "brand", "day"]
    levels = formula_of(ranker("table, linear")).levels["brand"]
    found = (ctypes.c_char_p * len(levels)).in_dll(loaded, "m2nd_model_levels_1")
    assert tuple(level.decode() for level in found) == levels
    loaded.m2nd_model_score.restype = ctypes.c_double
    row = (ctypes.c_double * 3)(*table().X[0].tolist())
    assert loaded.m2nd_model_score(row) == pytest.approx(ranker("table, linear").predict(table())[0], rel=1e-12)


@pytest.mark.parametrize("name", ["blend", "table, blend", "ordinal", "categories", "mlp of quantiles"])
def test_compilers_have_nothing_to_say_about_the_c_file(name: str, tmp_path: Path) -> None:
    content = get_format("c").prepare(formula_of(ranker(name))).files[""]
    (tmp_path / "m.c").write_bytes(content)
    compiler = c_source._compiler()
    assert compiler is not None
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Werror", "-c"]
    done = subprocess.run(
        [compiler, *strict, "m.c", "-o", "m.o"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_names_that_a_target_does_not_take(tmp_path: Path) -> None:
    import lightgbm
    import xgboost

    odd = ["bm25 title", "a[0]", "x<y", *(f"f{j}" for j in range(7))]
    model = trees().fit(data().replace(feature_names=odd))
    parity = tr.export(model, "lightgbm", tmp_path / "m.txt")
    assert "2 features are renamed, 'bm25 title' to 'bm25_title'" in str(parity)
    assert lightgbm.Booster(model_file=tmp_path / "m.txt").feature_name()[:3] == ["bm25_title", "a_0_", "x<y"]
    tr.export(model, "xgboost", tmp_path / "m.json")
    assert xgboost.Booster(model_file=tmp_path / "m.json").feature_names[:3] == ["bm25 title", "a_0_", "x_y"]
    clash = trees().fit(data().replace(feature_names=["a b", "a_b", *(f"f{j}" for j in range(8))]))
    with pytest.raises(DataError, match="two names become equal"):
        tr.export(clash, "lightgbm", tmp_path / "other.txt")


def test_names_with_control_characters_and_halves(tmp_path: Path) -> None:
    """LightGBM never comes back from a file with the first ones, and XGBoost reads other names than were written."""
    odd = ["a\x01b", "c\nd", "e\x00f", "g\u2028h", *(f"f{j}" for j in range(6))]
    model = trees().fit(data().replace(feature_names=odd))
    for format, kept in (("lightgbm", "g_h"), ("xgboost", "g\u2028h")):
        assert get_format(format).prepare(formula_of(model)).files[""].count(b"a_b")
        parity = tr.export(model, format, tmp_path / "m.json")
        assert parity.passed
        assert any("renamed, 'a\x01b' to 'a_b'" in remark for remark in parity.caveats)
        assert kept.encode() in (tmp_path / "m.json").read_bytes()
    for format in ("c", "python", "onnx"):
        assert tr.export(model, format, tmp_path / "m.x").passed
    half = copy(model)
    half.feature_names_in_ = np.array(["a\ud800", *odd[1:]], dtype=object)
    with pytest.raises(DataError, match=r"feature 'a\\ud800' contains a lone surrogate"):
        tr.export(half, "xgboost", tmp_path / "other.json")
    assert not (tmp_path / "other.json").exists()


def test_lightgbm_keeps_what_the_splits_gained(tmp_path: Path) -> None:
    import lightgbm

    model = ranker("trees")
    tr.export(model, "lightgbm", tmp_path / "m.txt")
    gains = lightgbm.Booster(model_file=tmp_path / "m.txt").feature_importance("gain")
    np.testing.assert_allclose(gains / gains.sum(), model.feature_importances_, rtol=1e-4)


def test_the_weights_as_json(tmp_path: Path) -> None:
    model = ranker("linear")
    tr.export(model, "json", tmp_path / "m.json")
    told = json.loads((tmp_path / "m.json").read_text())
    np.testing.assert_allclose(list(told["weights"].values()), model.coef_)
    assert told["intercept"] == pytest.approx(model.intercept_)
    np.testing.assert_allclose(list(told["missing"].values()), model.coef_ * model.standardization_.center)


def test_the_onnx_graph_says_its_features(tmp_path: Path) -> None:
    import onnxruntime

    tr.export(ranker("table, trees"), "onnx", tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    told = session.get_modelmeta().custom_metadata_map
    assert json.loads(told["features"]) == ["price in €", "day"]
    assert json.loads(told["categories"]) == ["brand"]
    assert "zenith" in json.loads(told["levels"])["brand"]
    found = [(one.name, one.type, one.shape) for one in (*session.get_inputs(), *session.get_outputs())]
    numbers, texts = (
        ("features", "tensor(double)", ["documents", 2]),
        ("categories", "tensor(string)", ["documents", 1]),
    )
    assert found == [numbers, texts, ("scores", "tensor(double)", ["documents"])]


@pytest.mark.parametrize("name", ["table, trees", "table, linear", "table, thresholds", "table, blend"])
def test_the_onnx_graph_takes_categories_as_texts(name: str, tmp_path: Path) -> None:
    """Codes of another file of the same table are others, and nobody has to know them."""
    import onnxruntime
    import pandas as pd

    tr.export(ranker(name), "onnx", tmp_path / "m.onnx", check=table())
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    frame = table().to_frame().iloc[::7]
    frame = frame[~frame["brand"].astype(object).isin(["acme"])]
    days = (frame["day"].dt.tz_localize(None) - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    numbers = np.column_stack([frame["price in €"], days]).astype(float)
    texts = frame["brand"].astype(object).where(frame["brand"].notna(), "").to_numpy()[:, None]
    [scores] = session.run(None, {"features": numbers, "categories": texts})
    other = tr.RankingData.from_frame(frame, label=None, qid=None)
    assert (
        other.encoding.columns[other.encoding.names.index("brand")].levels != formula_of(ranker(name)).levels["brand"]
    )
    np.testing.assert_allclose(scores, ranker(name).predict(other), rtol=1e-9, atol=1e-9)
    unknown, missing = (
        session.run(None, {"features": numbers, "categories": np.full_like(texts, text)})[0]
        for text in ("never seen", "")
    )
    np.testing.assert_array_equal(unknown, missing)
    told = json.loads((tmp_path / "m.onnx.check.json").read_text())
    assert {row[1] for row in told["rows"]} >= {"zenith", None}


@pytest.mark.parametrize("name", ["blend", "table, blend"])
def test_a_model_file_is_exported_as_the_ranker_was(name: str, tmp_path: Path) -> None:
    model, files = ranker(name), []
    model.save(tmp_path / "m.toprank")
    for one in (model, tr.load(tmp_path / "m.toprank")):
        tr.export(one, "python", tmp_path / "m.py")
        files.append((tmp_path / "m.py").read_bytes())
    assert files[0] == files[1]


# ---- what cannot be ----


def test_without_a_compiler_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_source, "_compiler", lambda: None)
    parity = tr.export(ranker("linear"), "c", tmp_path / "m.c", check=data())
    assert (parity.rows, parity.kinds) == (0, ())
    assert "not checked, since there is no C compiler here" in str(parity)
    assert not parity.passed
    assert (tmp_path / "m.c").exists()
    with pytest.raises(ParityError, match="could not be checked: there is no C compiler here"):
        tr.export(ranker("linear"), "c", tmp_path / "other.c", allow_mismatches=False)
    assert not (tmp_path / "other.c").exists()


def test_without_onnx_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"toprank\[export\]"):
        tr.export(ranker("linear"), "onnx", tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_without_onnxruntime_onnx_itself_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_graph, "installed", lambda _: None)
    parity = tr.export(ranker("linear"), "onnx", tmp_path / "m.onnx", check=data())
    assert parity.interpreter == "onnx's reference evaluator"
    assert parity.passed


def test_rankers_without_a_formula_are_told_so(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    def refused(model: Any, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            tr.export(model, "onnx", tmp_path / "m.onnx")
        assert not list(tmp_path.iterdir())

    refused(make_pipeline(tr.LinearRanker()), "Only rankers of toprank can be exported, not a Pipeline")
    refused(tr.LinearRanker(), "not fitted")
    plugin = tr.ExpectedGainRanker(classifier=LogisticRegression()).fit(data())
    refused(plugin, "scikit-learn's LogisticRegression")


def test_networks_that_look_at_whole_queries_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    attention = tr.NeuralRanker("ListNet", network="attention", width=4, n_heads=1, n_layers=1, epochs=1, threads=1)
    blend = tr.BlendRanker.from_fitted([ranker("linear"), attention.fit(data())], data())
    for model in (attention, blend):
        with pytest.raises(DataError, match="by the other documents of its query"):
            tr.export(model, "onnx", tmp_path / "m.onnx")


def test_wrong_arguments_are_sentences(tmp_path: Path) -> None:
    model = ranker("linear")
    with pytest.raises(UnknownNameError, match="did you mean 'onnx'"):
        tr.export(model, "onx", tmp_path / "m")
    with pytest.raises(DataError, match="does not depend on a server"):
        tr.export(model, "python", tmp_path / "m.py", server_version="3.0")
    with pytest.raises(DataError, match="check must be a RankingData"):
        tr.export(model, "python", tmp_path / "m.py", check=data().X)
    with pytest.raises(DataError, match="expecting 10 features"):
        tr.export(model, "python", tmp_path / "m.py", check=data().replace(X=data().X[:, :4], feature_names=None))
    with pytest.raises(FileError, match="is a folder; name a file in it"):
        tr.export(model, "python", tmp_path)
    with pytest.raises(FileError, match="cannot be written"):
        tr.export(model, "python", tmp_path / "nowhere" / "m.py")
    with pytest.raises(DataError, match="name of the file to write"):
        tr.export(model, "python", 3)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


# ---- the command ----


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ranker("trees").save("m.toprank")
    ranker("linear").save("linear.toprank")
    tr.write(data(False), "test.parquet")
    return tmp_path


def test_the_command_says_what_was_compared(folder: Path) -> None:
    done = toprank("export", "m.toprank", "--to", "python", "-o", "m.py", "--check", "test.parquet")
    assert "0 rows beyond 1e-09; 0 of" in done.stdout
    assert "rows of the data that were given" in done.stdout
    assert {file.name for file in folder.iterdir()} >= {"m.py", "m.py.check.json"}
    done = toprank("export", "linear.toprank", "--to", "json", "-o", "m.json", "--json")
    told = json.loads(done.stdout)
    assert (told["file"], told["n_mismatches"], told["rankings_changed"]) == ("m.json", 0, 0)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("m.toprank", "--to", "json", "-o", "out"), 1, "not a weighted sum"),
        (("m.toprank", "--to", "jsn", "-o", "out"), 2, "did you mean 'json'"),
        (("m.toprank", "--to", "c", "-o", "out", "--server-version", "3"), 1, "does not depend on a server"),
        (("test.parquet", "--to", "c", "-o", "out"), 1, "This is not a model"),
        (("m.toprank", "--to", "c", "-o", "nowhere/out"), 1, "does not exist"),
        (("m.toprank", "--to", "c", "-o", "."), 1, "is a folder"),
        (("m.toprank", "--to", "c", "-o", "out", "--check", "linear.toprank"), 1, "linear.toprank"),
        (("m.toprank", "-o", "out"), 2, "--to"),
    ],
)
def test_bad_input_is_a_sentence_and_a_status(
    folder: Path, arguments: tuple[str, ...], status: int, words: str
) -> None:
    before = set(folder.rglob("*"))
    done = toprank("export", *arguments, status=status)
    assert done.stdout == ""
    assert words in done.stderr
    assert set(folder.rglob("*")) == before


def test_the_way_to_a_split_is_noted_once_for_all_of_its_rows(tmp_path, monkeypatch):
    """Of a chain over n features that is n(n − 1)/2 times, which is most of the memory that a check takes."""
    n, noted = 40, []
    ends = "".join(
        f'<feature>{i + 1}</feature><threshold>{i}</threshold><split pos="left"><output>{i}</output></split>'
        '<split pos="right">'
        for i in range(n)
    )
    closed = "</split>" * n
    whole = f'<ensemble><tree id="1" weight="0.1"><split>{ends}<output>9</output>{closed}</split></tree></ensemble>'
    (tmp_path / "m.txt").write_text(f"## LambdaMART\n{whole}")
    within = split_probes._clipped
    monkeypatch.setattr(split_probes, "_clipped", lambda *given: noted.append(len(given[0])) or within(*given))
    parity = tr.export(tr.load(tmp_path / "m.txt"), "python", tmp_path / "m.py")
    assert parity.passed
    assert parity.nodes.covered == n
    assert noted == [n * (n - 1) // 2]


def test_what_xgboost_cannot_say_of_categories_is_refused() -> None:
    """A feature is a category or a number there, and categories are below 2²⁴."""
    one, other = (
        trees(categorical=named, lightgbm_params={"min_data_per_group": 5}).fit(whole()) for named in ([3], [])
    )
    assert 3 in one.forest_.categories
    assert other.forest_.feature_gains[3] > 0
    both = tr.BlendRanker.from_fitted([one, other], whole())
    with pytest.raises(DataError, match="as a category and some as a number"):
        get_format("xgboost").prepare(formula_of(both))
    X = whole().X.copy()
    X[:, 3] += 2**24
    far = trees(categorical=[3], lightgbm_params={"min_data_per_group": 5}).fit(whole().replace(X=X))
    if far.forest_.categories:  # LightGBM may bin such codes together
        with pytest.raises(DataError, match="16,777,216"):
            get_format("xgboost").prepare(formula_of(far))
