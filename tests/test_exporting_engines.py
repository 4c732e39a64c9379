"""Models for search engines: every pair of ranker and engine is refused with a reason, or checked."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toprank as tr
from support import toprank
from toprank.errors import DataError
from toprank.exporters import elastic, export, float32, get_format, solr, vespa
from toprank.exporters.exporter import ParityError, ParityWarning
from toprank.exporters.float32 import single_below
from toprank.exporters.parity import ComparedRows, changed_rankings, measure_parity
from toprank.exporters.probe_rows import probe_rows
from toprank.rankers.formula import Formula, LinearFunction, formula_of
from toprank.rankers.trees.forest import MISSING_NAN, MISSING_NONE, MISSING_ZERO, TINY, Forest, Tree

ENGINES = [
    ("elasticsearch", None), ("elasticsearch", "7.10"), ("elasticsearch", "8.11"), ("elasticsearch", "8.15.2"),
    ("opensearch", None), ("opensearch", "2.19"), ("opensearch", "3.5.0"), ("opensearch", "3.8.0"),
    ("solr", None), ("solr", "9.1"), ("solr", "9.7"), ("vespa", None), ("ranklib", None),
]  # fmt: skip
RANKERS = (
    "linear", "linear far from zero", "coordinates", "boost", "trees", "trees with holes", "zeros", "two trees",
    "two lines", "ordinal", "two grades", "relu", "tanh of batches",
)  # fmt: skip


@cache
def data(holes: bool, grades: int = 3) -> tr.RankingData:
    made = tr.synthetic(n_queries=30, truth="nonlinear", n_grades=grades, seed=0)
    rng, X = np.random.default_rng(0), made.X.copy()
    X[:, 3] = rng.integers(0, 6, len(X)) - 2.0
    X[:, 5] = np.round(X[:, 5], 1)
    if holes:
        X[rng.random(X.shape) < 0.1] = np.nan
    return made.replace(X=X.astype(np.float32).astype(np.float64))


def trees(**more: Any) -> tr.TreeRanker:
    return tr.TreeRanker(n_trees=8, num_leaves=8, threads=1, **more)


@cache
def ranker(name: str) -> Any:
    return {
        "linear": lambda: tr.LinearRanker().fit(data(True)),
        "linear far from zero": lambda: tr.LinearRanker().fit(data(True).replace(X=data(True).X * 100.0 + 1e5)),
        "coordinates": lambda: tr.CoordinateAscent(restarts=1, max_cycles=2).fit(data(True)),
        "boost": lambda: tr.RankBoost(max_rounds=10).fit(data(True)),
        "trees": lambda: trees().fit(data(False)),
        "trees with holes": lambda: trees().fit(data(True)),
        "zeros": lambda: trees(lightgbm_params={"zero_as_missing": True}).fit(data(True)),
        "two trees": lambda: tr.BlendRanker.from_fitted([ranker("trees"), ranker("zeros")], data(True)),
        "two lines": lambda: tr.BlendRanker.from_fitted([ranker("linear"), ranker("coordinates")], data(True)),
        "ordinal": lambda: tr.ExpectedGainRanker("Ordinal").fit(data(True)),
        "two grades": lambda: tr.ExpectedGainRanker("Multinomial").fit(data(True, 2)),
        "relu": lambda: network().fit(data(True)),
        "tanh of batches": lambda: network(norm="batch", activation="tanh", input_transform="none").fit(data(True)),
    }[name]()


def network(**more: Any) -> tr.NeuralRanker:
    pytest.importorskip("torch")
    told = {"hidden": (6, 3), "epochs": 2, "threads": 1, "input_transform": "standard", **more}
    return tr.NeuralRanker("ListNet", **told)


def predicted(name: str, X: np.ndarray) -> np.ndarray:
    return np.asarray(ranker(name).predict(tr.RankingData(X, feature_names=formula_of(ranker(name)).features)))


# ---- every pair ----


@pytest.mark.parametrize(("engine", "version"), ENGINES)
@pytest.mark.parametrize("name", RANKERS)
def test_refused_with_a_reason_or_the_same_scores(name: str, engine: str, version: str | None, tmp_path: Path) -> None:
    model = ranker(name)
    reason = get_format(engine).unsupported_reason(formula_of(model), version)
    if reason is not None:
        with pytest.raises(DataError, match=REFUSED[name, engine]):
            export(model, engine, tmp_path / "m.json", server_version=version)
        assert not list(tmp_path.iterdir())
        return
    parity = export(model, engine, tmp_path / "m.json", server_version=version)
    assert (parity.n_mismatches, parity.rankings_changed) == (0, 0), str(parity)
    counted = {kind.kind for kind in parity.kinds if not kind.excluded}
    assert {"usual", "zeros"} <= counted
    if engine != "ranklib" or isinstance(formula_of(model).part, Forest):
        assert "missing" in counted, "a missing value is part of the model"
    if isinstance(formula_of(model).part, Forest):
        assert "thresholds" in counted
        assert ("tiny" in counted) == (engine != "solr")


_LTR = ("elasticsearch", "opensearch", "ranklib")
_NO_TREES = tuple(name for name in RANKERS if name not in ("boost", "trees", "trees with holes", "zeros", "two trees"))
REFUSED: dict[tuple[str, str], str] = {
    **{(name, e): "left and right" for name in ("boost", "trees with holes") for e in (*_LTR, "solr")},
    **{(name, e): "probabilities of several grades" for name in ("ordinal", "two grades") for e in _LTR},
    **{(name, e): "neural network" for name in ("relu", "tanh of batches") for e in _LTR},
    **{(name, "vespa"): "as ONNX" for name in _NO_TREES},
}


def test_which_versions_take_models_of_missing_values() -> None:
    formula = formula_of(ranker("trees with holes"))

    def taken(engine: str, version: str | None) -> bool:
        return get_format(engine).unsupported_reason(formula, version) is None

    expected = {
        ("elasticsearch", None): False, ("elasticsearch", "7.10"): False, ("elasticsearch", "8.11"): False,
        ("elasticsearch", "8.12.2"): False, ("elasticsearch", "8.13"): True, ("elasticsearch", "9"): True,
        ("opensearch", None): False, ("opensearch", "2.19.1"): False, ("opensearch", "3.1"): False,
        ("opensearch", "3.2"): True, ("opensearch", "3.7.9"): True, ("opensearch", "v3.8.0"): True,
        ("opensearch", "3.9.1"): True, ("elasticsearch", "9.3.5"): True,
        ("solr", None): True, ("solr", "9.1.1"): False, ("solr", "9.2"): True, ("solr", "10"): True,
    }  # fmt: skip
    assert {key: taken(*key) for key in expected} == expected
    for engine in ("elasticsearch", "opensearch", "solr"):
        with pytest.raises(DataError, match="The version of a server must be like"):
            get_format(engine).prepare(formula, "latest")
    with pytest.raises(DataError, match="does not depend on a server"):
        get_format("vespa").prepare(formula, "8")


@pytest.mark.parametrize(
    ("engine", "version", "known"),
    [("opensearch", "3.10", "3.9"), ("opensearch", "4.0.0", "3.9"), ("elasticsearch", "10.1", "9.3")],
)
@pytest.mark.parametrize("name", ["linear", "trees with holes"])
def test_versions_whose_rules_are_not_known_are_refused(
    name: str, engine: str, version: str, known: str, tmp_path: Path
) -> None:
    """The rule for missing values changed three times in OpenSearch: a new version may have another one."""
    message = rf"{version} is not supported.*up to {known}.*server_version='{known}'"
    with pytest.raises(DataError, match=message):
        export(ranker(name), engine, tmp_path / "m.json", server_version=version)
    assert export(ranker(name), engine, tmp_path / "m.json", server_version=known).passed


def test_models_for_opensearch_leave_missing_as_zero_off(tmp_path: Path) -> None:
    """Its parser takes `missing_as_zero` beside `objective` and `splits`, and a model without it follows each split."""
    export(ranker("trees with holes"), "opensearch", tmp_path / "m.json", server_version="3.9")
    body = json.loads((tmp_path / "m.json").read_text())
    assert set(json.loads(body["model"]["model"]["definition"])) == {"objective", "splits"}


# ---- random forests ----

CUTS = [0.0, -0.0, TINY, -TINY, 1e-40, -1e-40, 0.1, 0.5, -0.3, 1e-7, -1e-7, 3.0, -2.5, 1e30, 1e300]


@st.composite
def forests(draw: st.DrawFn, kinds: tuple[int, ...] = (MISSING_NONE, MISSING_ZERO, MISSING_NAN)) -> Forest:
    """Up to three trees of up to six splits over two features; leaves are powers of 2, so that sums are exact."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        n = draw(st.integers(0, 6))
        left, right, leaves = np.zeros(n, int), np.zeros(n, int), 1
        for node in range(n):  # node takes the place of a leaf
            if node:
                at = draw(st.integers(0, leaves - 1))
                for side in (left, right):
                    side[:node][side[:node] == -1 - at] = node
                left[node], right[node] = -1 - at, -1 - leaves
            else:
                left[0], right[0] = -1, -2
            leaves += 1
        of = lambda values, n=n: np.array(draw(st.lists(st.sampled_from(values), min_size=n, max_size=n)))  # noqa: E731
        found.append(
            Tree(
                of([0, 1]).astype(int),
                of(CUTS).astype(float),
                of([False, True]).astype(bool),
                of(kinds).astype(int),
                (None,) * n,
                left,
                right,
                2.0 ** np.array(draw(st.permutations(range(leaves)))),
                np.zeros(n),
            )
        )
    return Forest.from_trees(found, 2, np.array([draw(st.sampled_from([0.0, 0.5]))]), flushes=draw(st.booleans()))


def by_the_rule(forest: Forest, X: np.ndarray) -> np.ndarray:
    """Scores by LightGBM's rule, written out for one document at a time."""
    scores = []
    for row in X:
        total = forest.intercepts[0]
        for tree in forest.trees:
            node = 0 if len(tree.feature) else -1
            while node >= 0:
                x, kind = row[tree.feature[node]], tree.missing[node]
                if forest.flushes and abs(x) <= TINY:
                    x = 0.0
                by_default = (kind == MISSING_NAN and np.isnan(x)) or (kind == MISSING_ZERO and not abs(x) > TINY)
                goes_left = (
                    tree.default_left[node] if by_default else (0.0 if np.isnan(x) else x) <= tree.threshold[node]
                )
                node = (tree.left if goes_left else tree.right)[node]
            total += tree.values[-1 - node]
        scores.append(total)
    return np.array(scores)


def scores_of(engine: str, formula: Formula, version: str | None, X: np.ndarray) -> np.ndarray | None:
    """What the engine makes of the files of a formula; None where it refuses it."""
    format = get_format(engine)
    if format.unsupported_reason(formula, version) is not None:
        return None
    prepared = format.prepare(formula, version)
    assert prepared.score is not None
    with tempfile.TemporaryDirectory() as folder:
        for beside, content in prepared.files.items():
            (Path(folder) / (f"m{beside}" if beside else "m.json")).write_bytes(content)
        return np.asarray(prepared.score(Path(folder) / "m.json", X, formula.features)) + prepared.constant


@pytest.mark.parametrize(("engine", "version"), [(e, v) for e, v in ENGINES if v is None or e != "elasticsearch"])
@given(forest=forests())
def test_forests_of_all_missing_types(engine: str, version: str | None, forest: Forest) -> None:
    formula = Formula(("a", "b"), forest)
    rows = probe_rows(formula, single=engine != "vespa")
    # where Solr's slack can be undone to 1e-13 alone, and beyond the last threshold that JSON can hold
    fine = np.abs(rows.X) < np.finfo(np.float32).max
    if engine == "solr":
        fine &= (np.abs(rows.X) > 1e-6) | (rows.X == 0.0)
    X = rows.X[(fine | np.isnan(rows.X)).all(axis=1)]
    found = scores_of(engine, formula, version, X)
    if found is None:
        assert engine != "vespa"
        assert (engine, version) not in [("solr", None), ("solr", "9.7"), ("opensearch", "3.8.0")]
    else:
        np.testing.assert_array_equal(found, by_the_rule(forest, X))


@given(forest=forests((MISSING_NONE, MISSING_ZERO)))
def test_engines_without_missing_values_take_what_needs_none(forest: Forest) -> None:
    formula = Formula(("a", "b"), forest)
    for engine, version in ENGINES:
        assert get_format(engine).unsupported_reason(formula, version) is None, (engine, version)


# ---- numbers ----


def nearest_single(text: str) -> np.float32:
    """Decimal text to the nearest single, ties to even, in exact arithmetic: as Java parses a float."""
    exact, near = Fraction(text), np.float32(float(text))
    with np.errstate(over="ignore"):  # beside the largest of all
        candidates = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    finite = [one for one in candidates if np.isfinite(one)]
    return min(finite, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.uint32)) & 1))


singles = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(singles)
def test_texts_of_singles_are_read_alike_with_and_without_doubles(value: float) -> None:
    text = float32.single_text(value)
    assert nearest_single(text) == np.float32(float(text)) == np.float32(value)


@given(singles)
def test_the_slack_of_solr_is_undone(value: float) -> None:
    slack = np.float32(1e-6)
    p = solr.before_slack(value)
    assert (p + slack >= 0) == (value >= 0)
    if value < -1e-6 and np.frexp(value)[0] == -0.5:  # singles lie further apart below it than above
        assert p + slack in (np.float32(value), np.nextafter(np.float32(value), np.float32(0)))
        return
    assert p + slack <= np.float32(value) < np.nextafter(p, np.float32(np.inf)) + slack or value > 3.4e38
    assert abs(float(p + slack) - value) <= (0.0 if abs(value) >= 1e-6 else 1.2e-13)


@pytest.mark.parametrize("value", [-(2.0**power) for power in range(-19, 24)])
def test_the_slack_of_solr_at_negative_powers_of_two(value: float) -> None:
    """The value itself goes left, as it should; one in a number of them takes its neighbor with it."""
    slack, above = np.float32(1e-6), np.nextafter(np.float32(value), np.float32(0))
    assert np.float32(value) <= solr.before_slack(value) + slack <= above


@given(st.floats(-1e38, 1e38))
def test_thresholds_split_singles_where_doubles_do(t: float) -> None:
    above = float32.upper_single(t)
    assert float(single_below(t)) <= t < float(above)
    assert np.nextafter(above, np.float32(-np.inf)) == single_below(t)


# ---- the check catches mistakes ----


def beyond(name: str, engine: str, version: str | None, folder: Path) -> dict[str, int]:
    """How many rows of each kind the check finds to differ, in an export that it warns of."""
    with pytest.warns(ParityWarning, match="does not score every row as the model does"):
        parity = export(ranker(name), engine, folder / "m", check=data(False), server_version=version)
    return {kind.kind: kind.n_mismatches for kind in parity.kinds}


def test_thresholds_that_are_copied_are_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(elastic, "upper_single", np.float32)
    found = beyond("trees", "elasticsearch", None, tmp_path)
    assert found["thresholds"] > 0
    assert found["data"] == 0, "the rows of training would not have told"
    monkeypatch.setattr(vespa.np, "nextafter", lambda value, _: value)
    with pytest.raises(DataError, match="not written"):
        export(ranker("trees"), "vespa", tmp_path / "v.json")
    assert not (tmp_path / "v.json").exists()


def test_default_sides_that_are_copied_are_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Tree, "nan_left", property(lambda tree: tree.default_left))
    for engine, version in (("elasticsearch", "8.15"), ("opensearch", "3.8")):
        found = beyond("trees", engine, version, tmp_path)
        assert found["missing"] > 0
        assert found["data"] == found["thresholds"] == 0
    with pytest.raises(DataError, match="not written"):
        export(ranker("trees"), "vespa", tmp_path / "v.json")


def test_slack_that_is_not_undone_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(solr, "before_slack", lambda t: single_below(t)[()])
    assert beyond("trees", "solr", None, tmp_path)["thresholds"] > 0


def test_a_server_that_sends_missing_values_right_is_caught(tmp_path: Path) -> None:
    formula = formula_of(ranker("trees with holes"))
    for beside, content in get_format("opensearch").prepare(formula, "3.8").files.items():
        (tmp_path / (f"m{beside}" if beside else "m.json")).write_bytes(content)
    X = probe_rows(formula, single=True).X
    found = {
        rule: elastic._scores(frozenset({rule}), formula, tmp_path / "m.json", X, formula.features)
        for rule in ("node", "right")
    }
    expected = predicted("trees with holes", X)
    assert np.abs(found["node"] - expected).max() < 1e-5
    assert np.abs(found["right"] - expected).max() > 1e-2
    both = elastic._scores(frozenset({"node", "right"}), formula, tmp_path / "m.json", X, formula.features)
    assert np.isnan(both[found["node"] != found["right"]]).all()


# ---- what is refused ----


def refusal(part: Any, engine: str, names: tuple[str, ...] = ("a", "b"), version: str | None = None) -> str:
    return get_format(engine).unsupported_reason(Formula(names, part), version) or ""


def chain(depth: int, kind: int = MISSING_NONE) -> Forest:
    """A tree that is as deep as it can be."""
    number = np.arange(depth)
    right = np.append(number[1:], -1 - depth)
    tree = Tree(
        number % 2,
        number - 0.5,
        number < 0,
        number * 0 + kind,
        (None,) * depth,
        -1 - number,
        right,
        number.repeat(2)[: depth + 1] * 1.0,
        np.zeros(depth),
    )
    return Forest.from_trees([tree], 2, np.zeros(1))


def test_trees_that_are_too_deep() -> None:
    for engine in ("elasticsearch", "opensearch", "solr", "vespa", "ranklib"):
        assert "201 splits deep" in refusal(chain(201), engine)
        assert not refusal(chain(200), engine)
        X = np.array([[5.2, 5.2], [1e6, 1e6]])
        found = scores_of(engine, Formula(("a", "b"), chain(200)), None, X)
        assert found is not None
        assert found.tolist() == by_the_rule(chain(200), X).tolist()


def test_zeros_that_double_too_much() -> None:
    for engine in ("elasticsearch", "solr", "vespa", "ranklib"):
        assert "zero_as_missing" in refusal(chain(40, MISSING_ZERO), engine)


def test_missing_values_right_only_where_that_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    formula = formula_of(ranker("trees with holes"))
    assert not refusal(formula.part, "opensearch", formula.features, "3.5")
    monkeypatch.setattr(elastic, "_GROWTH", 1)
    assert "sends every missing value to the right" in refusal(formula.part, "opensearch", formula.features, "3.5")


def test_grades_and_names() -> None:
    grades = formula_of(trees(loss="Multinomial", outputs="grades").fit(data(False))).part
    for engine in ("elasticsearch", "opensearch", "solr", "vespa", "ranklib"):
        assert "grades" in refusal(grades, engine) or "ONNX" in refusal(grades, engine)
    tree = chain(2)
    assert not refusal(tree, "vespa", ("attribute(price)", "bm25(title)"))
    assert "'in' can be no name" in refusal(tree, "vespa", ("in", "price"))
    assert "'title length' can be no name" in refusal(tree, "vespa", ("price", "title length"))


def test_ten_thousand_features() -> None:
    def linear(d: int) -> LinearFunction:
        return LinearFunction(np.zeros(d), np.ones(d), np.ones((1, d)), np.zeros(1), np.zeros((1, d)))

    for engine in ("elasticsearch", "opensearch"):
        assert not refusal(linear(10_000), engine, tuple(map(str, range(10_000))))
        assert "10,001 features" in refusal(linear(10_001), engine, tuple(map(str, range(10_001))))


@pytest.mark.parametrize(
    ("more", "word"),
    [({"input_transform": "log1p"}, "log1p"), ({"norm": "layer"}, "layer norms"), ({"activation": "gelu"}, "'gelu'")],
)
def test_networks_that_solr_does_not_know(more: Any, word: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=word):
        export(network(**more).fit(data(True)), "solr", tmp_path / "m.json")


def test_probabilities_that_solr_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="3 grades, and Solr has no softmax"):
        export(tr.ExpectedGainRanker("Multinomial").fit(data(True)), "solr", tmp_path / "m.json")
    first, second = tr.split(data(True), (0.5, 0.5))
    with pytest.raises(DataError, match="calibrated"):
        export(tr.ExpectedGainRanker("Ordinal").fit(first).calibrate(second), "solr", tmp_path / "m.json")


def test_attention_depends_on_the_query(tmp_path: Path) -> None:
    model = network(network="attention", width=8, n_heads=2, n_layers=1).fit(data(True))
    with pytest.raises(DataError, match="other documents"):
        export(model, "elasticsearch", tmp_path / "m.json")


# ---- files and remarks ----


def test_the_body_of_a_request(tmp_path: Path) -> None:
    parity = export(ranker("linear"), "elasticsearch", tmp_path / "my.model.json", check=data(True))
    body = json.loads((tmp_path / "my.model.json").read_text())["model"]
    names = list(formula_of(ranker("linear")).features)
    assert (body["name"], body["model"]["type"]) == ("my.model", "model/linear")
    assert (tmp_path / "my.model.features.json").exists()
    assert any(
        remark.startswith("my.model.features.json creates a feature set 'my.model'") for remark in parity.caveats
    )
    assert list(json.loads(body["model"]["definition"])) == names
    negative = int((data(True).X < 0).any(axis=1).sum())
    assert any(f"{negative:,} of {data(True).n_documents:,} rows" in remark for remark in parity.caveats)
    kept = json.loads((tmp_path / "my.model.json.check.json").read_text())
    rows = np.array(kept["rows"], dtype=float)
    found = elastic._scores(
        frozenset({"node"}), formula_of(ranker("linear")), tmp_path / "my.model.json", rows, tuple(names)
    )
    np.testing.assert_allclose(found, kept["scores"], atol=1e-5, err_msg="scores as the engine gives them")


def test_data_to_check_on_may_have_their_columns_in_another_order(tmp_path: Path) -> None:
    """The remark names the feature that is below 0, not the one in its place among the model's."""
    X = np.abs(data(False).X[:, :3])
    trained = data(False).replace(X=X, feature_names=["a", "b", "c"])
    X = X[:, ::-1].copy()
    X[4, 2] = -1.0
    turned = trained.replace(X=X, feature_names=["c", "b", "a"])
    parity = export(tr.LinearRanker().fit(trained), "elasticsearch", tmp_path / "m.json", check=turned)
    assert any("row 4 from 0, 'a'" in remark for remark in parity.caveats)


def test_a_constant_is_left_out_and_said(tmp_path: Path) -> None:
    model = ranker("linear far from zero")
    parity = export(model, "solr", tmp_path / "m.json")
    assert any("omit the constant" in remark for remark in parity.caveats)
    far = get_format("solr").prepare(formula_of(model))
    folded = formula_of(model).part.folded()
    means = np.float32(formula_of(model).part.center).astype(float)
    assert far.constant == pytest.approx(folded.intercepts[0] + folded.weights[0] @ means)


def test_means_keep_the_digits_that_raw_features_would_lose() -> None:
    formula = formula_of(ranker("linear far from zero"))
    X = (data(False).X * 100.0 + 1e5).astype(np.float32).astype(float)
    exact = predicted("linear far from zero", X)
    found = scores_of("elasticsearch", formula, "8.15", X)
    assert found is not None
    raw = np.zeros(len(X), dtype=np.float32)
    for column, weight in enumerate(formula.part.folded().weights[0].astype(np.float32)):
        raw += weight * X[:, column].astype(np.float32)
    lost = raw - raw.mean() - (exact - exact.mean())
    assert np.abs(found - exact).max() < 0.01 * np.abs(lost).max()


def test_models_that_outgrow_the_cache_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for held in (elastic._LARGE, 1000):
        monkeypatch.setattr(elastic, "_LARGE", held)
        parity = export(trees().fit(data(False)), "elasticsearch", tmp_path / "m.json")
        too_large = (tmp_path / "m.json").stat().st_size > held
        assert any("ltr.caches.max_mem" in remark for remark in parity.caveats) == too_large == (held == 1000)


def test_large_models_of_solr_get_a_wrapper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    export(ranker("trees"), "solr", tmp_path / "small.json")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["small.features.json", "small.json"]
    monkeypatch.setattr(solr, "_ZOOKEEPER", 100)
    parity = export(ranker("trees"), "solr", tmp_path / "large.json")
    wrapper = json.loads((tmp_path / "large.wrapper.json").read_text())
    model = json.loads((tmp_path / "large.json").read_text())
    assert wrapper == {
        "class": "org.apache.solr.ltr.model.DefaultWrapperModel", "name": "large_wrapper", "store": model["store"],
        "params": {"resource": "large.json"},
    }  # fmt: skip
    assert any("ZooKeeper's limit is 1 MB" in remark for remark in parity.caveats)


def test_large_models_of_vespa_are_right_in_both_precisions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from toprank.exporters.interpreters import vespa

    assert export(ranker("trees"), "vespa", tmp_path / "m.json").tolerance == 1e-9
    monkeypatch.setattr(vespa, "_PATH", 10.0)
    monkeypatch.setattr(vespa, "_TREE", 4)
    parity = export(ranker("trees with holes"), "vespa", tmp_path / "m.json")
    assert (parity.tolerance, parity.n_mismatches, parity.rankings_changed) == (1e-5, 0, 0)
    assert any("single precision" in remark for remark in parity.caveats)


def test_vespa_needs_an_objective_and_takes_intercepts() -> None:
    part = formula_of(ranker("trees")).part
    raised = replace(part, intercepts=np.array([0.75]))
    formula = Formula(formula_of(ranker("trees")).features, raised)
    text = json.loads(get_format("vespa").prepare(formula).files[""])
    assert text["objective"] == "lambdarank"
    X = data(False).X
    for engine in ("vespa", "elasticsearch", "solr", "ranklib"):
        found = scores_of(engine, formula, None, X)
        assert found is not None
        np.testing.assert_allclose(found, predicted("trees", X) + 0.75, atol=1e-6)


def test_ranklib_numbers_features_from_one(tmp_path: Path) -> None:
    parity = export(ranker("trees"), "ranklib", tmp_path / "m.txt")
    names = formula_of(ranker("trees")).features
    assert any(f"1 is '{names[0]}', {len(names)} is '{names[-1]}'" in remark for remark in parity.caveats)
    parity = export(ranker("linear"), "ranklib", tmp_path / "m.txt")
    assert [kind.kind for kind in parity.kinds if kind.excluded] == ["missing"]
    assert any("treats a missing value as 0" in remark for remark in parity.caveats)


def test_tables_are_given_as_numbers(tmp_path: Path) -> None:
    import pandas as pd

    frame = data(False).to_frame()
    rng = np.random.default_rng(0)
    frame["added"] = pd.Timestamp("2024-05-01") + pd.to_timedelta(rng.integers(0, 300, len(frame)), unit="D")
    table = tr.RankingData.from_frame(frame)
    for engine in ("elasticsearch", "solr", "vespa", "ranklib"):
        parity = export(trees().fit(table), engine, tmp_path / "m.json", check=table)
        [remark] = [remark for remark in parity.caveats if remark.startswith("Give 'added' as days since 1970-01-01")]
        assert ("a field of dates gives milliseconds" in remark) == (engine in ("elasticsearch", "solr"))
        assert parity.n_mismatches == 0
    frame["brand"] = rng.choice(["Acme", "Borg"], len(frame))
    with pytest.raises(DataError, match="columns of 0 and 1"):
        export(tr.LinearRanker().fit(tr.RankingData.from_frame(frame)), "ranklib", tmp_path / "m.json")


# ---- what does not hold ----


def test_rows_of_the_data_are_never_counted_apart(tmp_path: Path) -> None:
    """Solr's slack swallows features near 1e-14: the made rows so small are apart, those of the data are not."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 400).astype(float)
    X = (labels + rng.random(400))[:, None] * 1e-14
    small = tr.RankingData(X, labels, qid=np.repeat(np.arange(40), 10))
    model = tr.TreeRanker("LambdaRank", n_trees=5, num_leaves=8, threads=1, min_data_in_leaf=5).fit(small)
    with pytest.warns(ParityWarning, match=r"[1-9]\d* of \d+ rankings change"):
        parity = export(model, "solr", tmp_path / "m.json", check=small)
    found = {kind.kind: kind for kind in parity.kinds}
    assert found["data"].rows == 400
    assert not found["data"].excluded
    assert found["data"].rankings_changed > 30
    assert not parity.passed
    with pytest.raises(ParityError, match="Nothing was written") as caught:
        export(model, "solr", tmp_path / "other.json", check=small, allow_mismatches=False)
    assert caught.value.parity.rankings_changed == parity.rankings_changed
    assert not (tmp_path / "other.json").exists()


def test_documents_closer_than_the_tolerance_are_rounding(tmp_path: Path) -> None:
    """Scores a millionth apart become one in single precision: told, and no change."""
    X = np.repeat(np.arange(1.0, 6.0), 2)[:, None] * 1e3
    X[1::2] += 2.0**-6  # which single precision holds
    weights = np.array([[1e-7]])
    part = LinearFunction(np.zeros(1), np.ones(1), weights, np.array([1.0]), np.zeros((1, 1)))
    close = tr.RankingData(X, qid=np.repeat(np.arange(5), 2))
    expected = 1.0 + X[:, 0] * 1e-7
    found = changed_rankings(expected, np.float32(expected).astype(float), close.queries)
    assert found.all()
    assert not changed_rankings(expected, np.float32(expected).astype(float), close.queries, 1e-5).any()
    rows = ComparedRows(X, np.zeros((0, 1)), np.full(10, "data"), close.queries, expected, None, False)
    (tmp_path / "m.json").write_text("{}")
    exact = get_format("ranklib").prepare(Formula(("a",), part))
    rounding = replace(exact, score=lambda path, X, features: np.float32(1.0 + X[:, 0] * 1e-7))
    parity = measure_parity("ranklib", rounding, tmp_path / "m.json", rows)
    assert (parity.rankings_changed, parity.near_ties_reordered, parity.passed) == (0, 5, True)
    assert "0 of 5 rankings changed, 5 by documents closer than that." in str(parity)


def test_a_command_that_changes_rankings_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ranker("linear").save("m.toprank")
    tr.write(data(True), "test.parquet")

    command = ("export", "m.toprank", "--to", "ranklib", "-o", "m.txt")
    done = toprank(*command, "--check", "test.parquet", "--json", status=1)
    told = json.loads(done.stdout)
    assert (told["file"], told["passed"]) == (None, False)
    assert told["kinds"]["data"]["rankings_changed"] > 0
    assert "Nothing was written; --allow-mismatches writes it anyway." in done.stderr
    assert not Path("m.txt").exists()
    done = toprank(*command, "--check", "test.parquet", "--allow-mismatches")
    assert "rankings change" in done.stderr
    assert Path("m.txt").exists()
    Path("m.txt").unlink()
    toprank(*command)  # without missing values in the data it holds


def test_values_that_single_precision_cannot_hold_are_told(tmp_path: Path) -> None:
    import pandas as pd

    rng, made = np.random.default_rng(0), data(False)
    X = made.X.copy()
    X[:, 0] = 1.7e9 + np.round(1e5 * X[:, 1] + 10 * rng.random(len(X)))
    late = made.replace(X=X, feature_names=["time", *(f"f{j}" for j in range(1, X.shape[1]))])
    for model in (trees().fit(late), tr.LinearRanker().fit(late)):
        [said] = [remark for remark in export(model, "solr", tmp_path / "m.json").caveats if "Single" in remark]
        assert "'time' (about 1.7e+09, in steps of 1.3e+02)" in said
        assert not any("Single" in remark for remark in export(model, "python", tmp_path / "m.py").caveats)
    assert not any("Single" in remark for remark in export(ranker("trees"), "solr", tmp_path / "m.json").caveats)
    frame = made.to_frame()
    for unit, told in (("D", 0), ("s", 1)):
        frame["added"] = pd.Timestamp("2024-05-01") + pd.to_timedelta(rng.integers(0, 300, len(frame)), unit="D")
        frame["added"] += pd.to_timedelta(np.round(made.labels * 100) * (unit == "s"), unit="s")
        remarks = export(trees().fit(tr.RankingData.from_frame(frame)), "solr", tmp_path / "m.json").caveats
        assert sum("'added' (about" in remark for remark in remarks) == told
