"""Categories in engines that know numbers only: sets of codes as thresholds, levels by query, and what is refused."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toprank as tr
from export_mutants import Check, of_forest, of_trees
from toprank.data.encoding import Column, Encoding
from toprank.errors import DataError
from toprank.exporters import code_ranges, export, get_format
from toprank.exporters.code_ranges import numbers_by_effect, replace_category_sets
from toprank.exporters.exporter import ParityWarning
from toprank.exporters.probe_rows import probe_rows
from toprank.rankers.formula import ExpandedFeatures, Formula, LinearFunction, formula_of
from toprank.rankers.trees.forest import MISSING_NAN, MISSING_ZERO, Forest, Tree

NEWEST = {"elasticsearch": "8.15", "opensearch": "3.8", "solr": "9.7", "vespa": None}
ENGINES = [
    ("elasticsearch", None), ("elasticsearch", "7.10"), ("elasticsearch", "8.15"), ("opensearch", None),
    ("opensearch", "2.19"), ("opensearch", "3.5"), ("opensearch", "3.8"), ("solr", None), ("solr", "9.1"),
    ("solr", "9.7"), ("vespa", None), ("ranklib", None),
]  # fmt: skip
TAKE_MISSING_FOR_ZERO = (
    ("elasticsearch", None), ("elasticsearch", "7.10"), ("opensearch", None), ("opensearch", "2.19"), ("solr", "9.1"),
    ("ranklib", None),
)  # fmt: skip
BRANDS = ["Acme", "it's", "Öl & Söhne", "a^=3 b:c", "a||b", "${x}", "{y}", "two  blanks ", "Zenith"]


# ---- sets of codes are ranges ----


def node_of(wanted: Any, feature: int = 0) -> Tree:
    """A tree of one split: 1 where the category is one of a set, else 0."""
    one = np.ones(1, dtype=np.int64)
    where = (one * feature, np.zeros(1), one == 0, one * MISSING_NAN, (np.array(sorted(wanted), dtype=np.int64),))
    return Tree(*where, np.array([-1]), np.array([-2]), np.array([1.0, 0.0]), np.zeros(1))


def edges(codes: Any, kind: type = np.float64) -> np.ndarray:
    """Whole numbers about some codes, what lies next to them and between them, and what is no code at all."""
    whole = np.unique([code + shift for code in codes for shift in (-1, 0, 1)]).astype(kind)
    beside = [np.nextafter(whole, kind(side)) for side in (-np.inf, np.inf)]
    other = np.array([np.nan, -0.0, -0.5, -1.0, -1e30, 1e30, 3e38, 1e-40, -1e-40], dtype=kind)
    return np.concatenate([whole, *beside, whole + kind(0.5), other]).astype(np.float64)


def is_one_of(wanted: Any, X: np.ndarray) -> np.ndarray:
    """LightGBM's rule, a value at a time: it takes the whole part, and nothing from -1 down or missing."""
    return np.array([float(x > -1 and int(x) in wanted) if x == x else 0.0 for x in X])


codes = st.sets(st.integers(0, 12) | st.sampled_from([31, 32, 33, 1000, 16_777_214, 16_777_215]), max_size=12)


@given(codes)
def test_a_set_of_codes_is_as_thresholds_what_it_was(wanted: set[int]) -> None:
    X = edges(wanted | {0, 5})
    plain = replace_category_sets(Forest.from_trees([node_of(wanted)], 1, np.zeros(1)))
    assert plain is not None
    assert not plain.by_category
    np.testing.assert_array_equal(plain.predict(X[:, None]), is_one_of(wanted, X))
    ranges = len([code for code in wanted if code - 1 not in wanted])
    assert len(plain.feature) == 2 * ranges, "two thresholds for a range"
    if ranges:
        [tree] = plain.trees
        assert tree.depth <= np.log2(2 * ranges) + 1, "and as few of them on each way as can be"


@given(codes, st.sampled_from(ENGINES))
@settings(max_examples=150)
def test_every_engine_reads_the_set(wanted: set[int], server: tuple[str, str | None]) -> None:
    engine, version = server
    formula = Formula(("a",), Forest.from_trees([node_of(wanted)], 1, np.zeros(1)))
    X = edges(wanted | {0, 5}, np.float64 if engine == "vespa" else np.float32)
    if engine == "solr":  # where its slack cannot be undone
        beside_one = np.nextafter(np.float32(-1), np.float32(0))
        X = X[((np.abs(X) >= 1e-6) | (X == 0.0) | np.isnan(X)) & (beside_one != X)]
    reason = get_format(engine).unsupported_reason(formula, version)
    if server in TAKE_MISSING_FOR_ZERO and 0 in wanted:
        assert "left and right" in (reason or ""), "category 0 is in the set, a missing value is not"
        assert ("categories are numbered from 1 on" in (reason or "")) == (version is not None or engine == "ranklib")
        return
    assert reason is None
    np.testing.assert_array_equal(scores_of(engine, formula, version, X[:, None]), is_one_of(wanted, X))


def scores_of(engine: str, formula: Formula, version: str | None, X: np.ndarray) -> np.ndarray:
    prepared = get_format(engine).prepare(formula, version)
    assert prepared.score is not None
    with tempfile.TemporaryDirectory() as folder:
        for beside, content in prepared.files.items():
            (Path(folder) / (f"m{beside}" if beside else "m.json")).write_bytes(content)
        return np.asarray(prepared.score(Path(folder) / "m.json", X, formula.features)) + prepared.constant


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    """Trees of up to eight splits by sets and by thresholds, of two features; leaves are powers of 2."""
    trees = []
    for _ in range(draw(st.integers(1, 2))):
        n = draw(st.integers(1, 8))
        left, right = np.full(n, -1), np.full(n, -2)
        ends = [(left, 0), (right, 0)]
        for node in range(1, n):
            side, place = ends.pop(draw(st.integers(0, len(ends) - 1)))
            side[place] = node
            ends += [(left, node), (right, node)]
        for leaf, (side, place) in enumerate(ends):
            side[place] = -1 - leaf
        sets = [draw(st.none() | st.sets(st.integers(0, 9), min_size=1)) for _ in range(n)]
        cuts = [0.0 if wanted is not None else draw(st.sampled_from([-0.5, 0.0, 2.0, 2.5, 7.0])) for wanted in sets]
        trees.append(
            Tree(
                np.array([draw(st.integers(0, 1)) for _ in range(n)]),
                np.array(cuts),
                np.array([draw(st.booleans()) for _ in range(n)]),
                np.array([draw(st.sampled_from([0, 1, 2])) for _ in range(n)]),
                tuple(None if wanted is None else np.array(sorted(wanted)) for wanted in sets),
                left,
                right,
                2.0 ** np.arange(n + 1),
                np.zeros(n),
            )
        )
    return Forest.from_trees(trees, 2, np.array([draw(st.sampled_from([0.0, 0.5]))]))


@given(forests())
def test_forests_are_what_they_were(forest: Forest) -> None:
    plain = replace_category_sets(forest)
    assert plain is not None
    values = edges(range(10))
    X = np.column_stack([np.repeat(values, len(values)), np.tile(values, len(values))])
    np.testing.assert_array_equal(plain.predict(X, 1), forest.predict(X, 1))


@given(forests(), st.permutations(range(1, 11)), st.permutations(range(1, 11)))
def test_levels_may_have_any_numbers(forest: Forest, first: list[int], second: list[int]) -> None:
    """Whatever the numbers, a document has the score of its levels; 0 and none are the same."""
    by_set = of_trees(forest, [tree for tree in forest.trees if all(one is not None for one in tree.categories)])
    numbers = {0: np.array(first), 1: np.array(second)}
    plain = replace_category_sets(by_set, numbers)
    assert plain is not None
    known = np.append(np.arange(10.0), np.nan)
    X = np.column_stack([np.repeat(known, 11), np.tile(known, 11)])
    for none in (0.0, np.nan):
        numbered = np.column_stack(
            [np.append(own, none)[np.nan_to_num(X[:, j], nan=10).astype(int)] for j, own in numbers.items()]
        )
        np.testing.assert_array_equal(plain.predict(numbered, 1), by_set.predict(X, 1))


def test_what_is_settled_further_up_is_not_asked_again() -> None:
    """{1, 3} below {1, 3, 5} on the left, and below {1} on the right: one of three, and nothing twice."""
    none = np.zeros(3, dtype=np.int64)
    sets = (np.array([1, 3, 5]), np.array([1, 3]), np.array([3, 5]))
    tree = Tree(
        none,
        np.zeros(3),
        none == 1,
        none,
        sets,
        np.array([1, -1, -3]),
        np.array([2, -2, -4]),
        2.0 ** np.arange(4),
        np.zeros(3),
    )
    plain = replace_category_sets(Forest.from_trees([tree], 1, np.zeros(1)))
    assert plain is not None
    assert len(plain.feature) == 6, "the six ends of three ranges, each once"
    X = edges(range(8))[:, None]
    np.testing.assert_array_equal(plain.predict(X), Forest.from_trees([tree], 1, np.zeros(1)).predict(X))


def test_numbers_make_neighbors_of_levels_that_go_the_same_ways() -> None:
    """Twelve levels by turns good and bad: two ranges by effect, twelve by name."""
    good = set(range(0, 12, 2))
    forest = Forest.from_trees([node_of(good), node_of(good - {0}), node_of({*good, 1})], 1, np.zeros(1))
    numbers = numbers_by_effect(forest, 0, 14)
    assert sorted(numbers.tolist()) == list(range(1, 15))
    plain, by_code = replace_category_sets(forest, {0: numbers}), replace_category_sets(forest)
    assert plain is not None
    assert by_code is not None
    assert len(plain.feature) <= 6 < 30 <= len(by_code.feature)


# ---- rankers of tables and of codes ----


@cache
def frame(rows: int = 600) -> Any:
    import pandas as pd

    rng = np.random.default_rng(0)
    made = tr.synthetic(n_queries=rows // 10, n_documents=10, n_grades=3, n_features=2, seed=0)
    n = made.n_documents
    brand, size = rng.integers(0, len(BRANDS), n), rng.choice([36, 38, 40, 42], n)
    grades = made.labels + np.isin(brand, [0, 2, 5, 7]) + (size == 40)
    table = pd.DataFrame({"qid": made.queries.document_query, "label": grades, "price": np.abs(made.X[:, 0])})
    table["brand"] = pd.Series(np.array(BRANDS, dtype=object)[brand]).where(rng.random(n) > 0.1)
    table["size"] = pd.Categorical(size)
    table.loc[rng.random(n) < 0.1, "price"] = np.nan
    return table


@cache
def table(holes: bool = True) -> tr.RankingData:
    rows = frame() if holes else frame().assign(price=frame().price.fillna(0.0))
    return tr.RankingData.from_frame(rows, qid="qid", label="label")


@cache
def sellers() -> tr.RankingData:
    """A category of so many levels that their columns are sparse, some of them rare."""
    rows = frame(2500).drop(columns="size")
    seller = (np.random.default_rng(1).integers(0, 150, len(rows)) ** 1.05).astype(int)
    return tr.RankingData.from_frame(rows.assign(seller=[f"s{n}" for n in seller]), qid="qid", label="label")


@cache
def coded() -> tr.RankingData:
    """The same as numbers."""
    X = np.asarray(table().X, dtype=np.float64)
    return tr.RankingData(
        X, table().labels, qid=table().queries.document_query, feature_names=["price", "brand", "size"]
    )


def trees(**more: Any) -> tr.TreeRanker:
    small = {"min_data_per_group": 5, "cat_smooth": 1.0, "max_cat_to_onehot": 1}
    return tr.TreeRanker(
        n_trees=6,
        num_leaves=8,
        threads=1,
        min_data_in_leaf=5,
        target_encoding=False,
        **{"lightgbm_params": small, **more},
    )


@cache
def ranker(name: str) -> Any:
    return {
        "table": lambda: trees().fit(table()),
        "table without holes": lambda: trees().fit(table(False)),
        "codes": lambda: trees(categorical=[1, 2]).fit(coded()),
        "blend": lambda: tr.BlendRanker.from_fitted([ranker("table"), trees(seed=1).fit(table())], table()),
        "grades": lambda: trees(loss="Multinomial", outputs="grades").fit(table()),
        "linear": lambda: tr.LinearRanker().fit(table()),
        "sparse": lambda: tr.LinearRanker().fit(sellers()),
        "gains": lambda: tr.ExpectedGainRanker("Ordinal").fit(table()),
        "means": lambda: tr.TreeRanker(n_trees=5, num_leaves=8, threads=1, target_encoding=["brand"]).fit(table()),
    }[name]()


def test_what_the_rankers_are_there_for() -> None:
    for name in ("table", "table without holes", "codes", "blend"):
        forest = formula_of(ranker(name)).forest
        assert forest is not None
        assert forest.categories == {1, 2} or forest.categories == {0, 1, 2} - {table().feature_names.index("price")}
        assert max(len(wanted) for tree in forest.trees for wanted in tree.categories if wanted is not None) > 2
    assert formula_of(ranker("codes")).encoding is None


@pytest.mark.parametrize(("engine", "version"), ENGINES)
@pytest.mark.parametrize("name", ["table", "table without holes", "codes", "blend"])
def test_refused_with_a_reason_or_the_same_scores(name: str, engine: str, version: str | None, tmp_path: Path) -> None:
    model = ranker(name)
    reason = get_format(engine).unsupported_reason(formula_of(model), version)
    if reason is not None:
        assert "left and right" in reason, reason
        assert name != "table without holes", "0 is no level, whatever the version takes a missing value for"
        assert (engine, version) not in NEWEST.items()
        with pytest.raises(DataError, match="left and right"):
            export(model, engine, tmp_path / "m.json", server_version=version)
        assert not list(tmp_path.iterdir())
        return
    data = {"codes": coded, "table without holes": lambda: table(False)}.get(name, table)()
    parity = export(model, engine, tmp_path / "m.json", server_version=version, check=data)
    assert parity.passed, str(parity)
    counted = {kind.kind for kind in parity.kinds if not kind.excluded}
    assert {"data", "usual", "categories", "thresholds", "missing"} <= counted
    assert ("negative" in counted) == (name == "codes"), "no text is between two levels"
    assert (tmp_path / "m.levels.json").exists() == (name != "codes" and engine != "vespa")


@pytest.mark.parametrize("engine", [*NEWEST, "ranklib"])
@pytest.mark.parametrize(
    ("name", "word"), [("grades", "several grades"), ("gains", "columns of 0 and 1"), ("means", "has no tables")]
)
def test_what_is_no_forest_of_thresholds_is_refused(name: str, word: str, engine: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=word if engine != "vespa" else "ONNX without text inputs"):
        export(ranker(name), engine, tmp_path / "m.json", server_version=NEWEST.get(engine))


# ---- lines of tables ----


@pytest.mark.parametrize("name", ["linear", "sparse"])
@pytest.mark.parametrize("engine", ["elasticsearch", "opensearch", "solr"])
def test_a_linear_ranker_has_a_feature_for_each_level(name: str, engine: str, tmp_path: Path) -> None:
    model, data = ranker(name), {"linear": table, "sparse": sellers}[name]()
    parity = export(model, engine, tmp_path / "m.json", check=data)
    assert parity.passed, str(parity)
    assert {"data", "categories", "missing"} <= {kind.kind for kind in parity.kinds if not kind.excluded}
    text = json.loads((tmp_path / "m.json").read_text())
    weights = text["params"] if engine == "solr" else json.loads(text["model"]["model"]["definition"])
    weights = weights.get("weights", weights)
    brands = {f"brand={level}" for level in BRANDS}
    assert brands <= weights.keys()
    expected = dict(zip(model.column_names_, model.coef_, strict=True))
    assert weights["brand=Acme"] - weights["brand=Zenith"] == pytest.approx(
        expected["brand=Acme"] - expected["brand=Zenith"], rel=1e-5
    )
    assert ("seller=(other)" in weights) == (name == "sparse")
    fields = "'brand' and 'seller'" if name == "sparse" else "'brand' and 'size'"
    assert any(f"levels of {fields} in the document field" in remark for remark in parity.caveats)
    assert not (tmp_path / "m.levels.json").exists()


def test_what_the_sparse_ranker_is_there_for() -> None:
    part = formula_of(ranker("sparse")).part
    assert isinstance(part, ExpandedFeatures)
    assert part.center is not None
    assert np.isnan(sellers().X).any()


@pytest.mark.parametrize("engine", ["elasticsearch", "solr"])
def test_weights_of_levels_that_are_wrong_are_found(engine: str) -> None:
    check = Check.of(ranker("linear"), engine)
    part = check.right.formula.part
    assert isinstance(part, ExpandedFeatures)
    assert isinstance(part.part, LinearFunction)
    for column in range(len(part.numbers), part.width):
        weights = part.part.weights.copy()
        weights[0, column] *= 1.05
        parity = check.parity(replace(part, part=replace(part.part, weights=weights)))
        assert parity is not None
        assert not parity.passed, column
    swapped = [(place, where[::-1]) for place, where in part.categories]
    parity = check.parity(replace(part, categories=tuple(swapped)))
    assert parity is not None
    assert not parity.passed


def test_lines_whose_levels_cannot_be_asked_for(tmp_path: Path) -> None:
    def fitted(**columns: Any) -> Any:
        return tr.LinearRanker().fit(tr.RankingData.from_frame(frame().assign(**columns), qid="qid", label="label"))

    odd = fitted(brand=frame()["brand"].replace("Acme", "{{x}}"))
    with pytest.raises(DataError, match="would be read as a parameter"):
        export(odd, "elasticsearch", tmp_path / "m.json")
    twice = fitted(**{"brand=Acme": frame()["price"]})
    with pytest.raises(DataError, match="two of its features are called 'brand=Acme'"):
        export(twice, "solr", tmp_path / "m.json")


def test_lines_of_too_many_levels(tmp_path: Path, monkeypatch: Any) -> None:
    from toprank.exporters import levels

    monkeypatch.setattr(levels, "MOST_TERMS", 12)
    with pytest.raises(DataError, match="each of 13 levels, each of which is a query"):
        export(ranker("linear"), "solr", tmp_path / "m.json")
    monkeypatch.setattr(levels, "MOST_TERMS", 13)
    assert export(ranker("linear"), "solr", tmp_path / "m.json").passed


# ---- mistakes are found ----


@pytest.mark.parametrize("engine", NEWEST)
@pytest.mark.parametrize("name", ["table", "codes"])
def test_a_category_too_many_or_too_few_is_found(name: str, engine: str) -> None:
    check = Check.of(ranker(name), engine, NEWEST[engine])
    forest, tried = check.right.formula.part, 0
    assert isinstance(forest, Forest)
    assert check.parity(forest) is None, "the same file"
    for what, part, bound in of_forest(forest, np.random.default_rng(0), 8, check.right.single):
        parity = check.parity(part) if "category" in what else None
        if parity is None or bound <= parity.tolerance * np.abs(check.rows.expected).max():
            continue
        tried += 1
        assert not parity.passed, what
    assert tried >= 10


def spoil(change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Any]:
    right = code_ranges._range_ends
    return lambda wanted, own: change(right(wanted, own))


MISTAKES = {
    "first code left out": lambda ends: ends + (np.arange(len(ends)) == 0),
    "last code left out": lambda ends: ends - (np.arange(len(ends)) == len(ends) - 1),
    "a code more": lambda ends: ends + (np.arange(len(ends)) == len(ends) - 1),
    "a range left out": lambda ends: ends[:-2] if len(ends) > 2 else ends,
    "gaps closed": lambda ends: ends[[0, -1]] if len(ends) else ends,
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize(("name", "engine"), [("codes", "elasticsearch"), ("codes", "vespa"), ("table", "solr")])
def test_wrong_ranges_are_found(mistake: str, name: str, engine: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(code_ranges, "_range_ends", spoil(MISTAKES[mistake]))
    _is_caught(name, engine, tmp_path)


@pytest.mark.parametrize(("name", "engine"), [("codes", "elasticsearch"), ("codes", "vespa"), ("codes", "solr")])
def test_thresholds_at_codes_are_found(name: str, engine: str, tmp_path: Path, monkeypatch: Any) -> None:
    """On a code itself, where x <= t is one too many; and half a code too early, which only what is between shows."""
    monkeypatch.setattr(code_ranges, "_range_ends", spoil(lambda ends: np.ceil(ends)))
    _is_caught(name, engine, tmp_path)
    monkeypatch.setattr(code_ranges, "_range_ends", spoil(lambda ends: np.ceil(ends) - 0.5))
    _is_caught(name, engine, tmp_path)


@pytest.mark.parametrize(("name", "engine"), [("codes", "elasticsearch"), ("codes", "solr"), ("codes", "vespa")])
def test_the_other_side_for_missing_values_is_found(name: str, engine: str, tmp_path: Path, monkeypatch: Any) -> None:
    """At the lower end of ranges that begin with category 0 or 1: a missing value is then in the set."""
    right = code_ranges._WrittenTree._split

    def swapped(tree: Any, feature: int, threshold: float, default_left: bool, missing: int, wanted: Any) -> int:
        lowest = feature in (1, 2) and threshold < 1.0
        return right(tree, feature, threshold, default_left and not lowest, missing, wanted)

    monkeypatch.setattr(code_ranges._WrittenTree, "_split", swapped)
    _is_caught(name, engine, tmp_path)


def _is_caught(name: str, engine: str, folder: Path) -> None:
    if engine == "vespa":
        with pytest.raises(DataError, match="its scores differ from the model's"):
            export(ranker(name), engine, folder / "m.json")
        return
    with pytest.warns(ParityWarning):
        export(ranker(name), engine, folder / "m.json", server_version=NEWEST[engine])


def test_numbers_in_another_order_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    """The feature set, the table of levels and the trees take their numbers from one place; were it two …"""
    from toprank.exporters import levels

    right = levels.LevelNumbers._by_number

    def turned(self: Any, place: int) -> dict[Any, int]:
        known = right(self, place)
        return dict(zip(known, reversed(known.values()), strict=True))

    monkeypatch.setattr(levels.LevelNumbers, "_by_number", turned)
    for engine in ("elasticsearch", "solr"):
        with pytest.warns(ParityWarning):
            export(ranker("table"), engine, tmp_path / "m.json", server_version=NEWEST[engine])


# ---- bounds ----


def alternating(n: int, depth: int = 1) -> Forest:
    """A tree of a chain of splits by every other of n levels, each of its own feature."""
    number = np.arange(depth)
    tree = Tree(
        number, np.zeros(depth), number < 0, number * 0, (np.arange(0, n, 2),) * depth, -1 - number,
        np.append(number[1:], -1 - depth), np.arange(depth + 1.0), np.zeros(depth),
    )  # fmt: skip
    return Forest.from_trees([tree], depth, np.zeros(1))


def test_trees_that_would_grow_too_much_are_refused_before_they_do() -> None:
    names = tuple(f"f{j}" for j in range(190))
    for engine in ("elasticsearch", "solr", "vespa", "ranklib"):
        formula = Formula(names[:1], alternating(31_000))
        assert get_format(engine).unsupported_reason(formula, NEWEST.get(engine)) is None or engine == "ranklib"
        for forest in (alternating(33_000), alternating(60, 40), alternating(300, 190)):  # the last: deeper than calls
            reason = get_format(engine).unsupported_reason(
                Formula(names[: forest.n_features], forest), NEWEST.get(engine)
            )
            assert reason is not None
            assert "leaves become more than 32,000" in reason
            assert "max_cat_threshold" in reason


def test_codes_that_single_precision_cannot_tell_apart() -> None:
    for engine in ("elasticsearch", "solr", "ranklib"):
        large = Formula(("a",), Forest.from_trees([node_of({1, 1 << 24})], 1, np.zeros(1)))
        assert "16,777,216 of 'a'" in (get_format(engine).unsupported_reason(large, NEWEST.get(engine)) or "")


def test_a_category_that_is_also_compared_has_no_numbers() -> None:
    encoding = Encoding((Column("a", "text", ("x", "y", "z")),))
    stump = replace(node_of({1}), categories=(None,), threshold=np.array([0.5]))
    both = Formula(("a",), Forest.from_trees([node_of({1}), stump], 1, np.zeros(1)), encoding)
    for engine in (*NEWEST, "ranklib"):
        assert "treats the category 'a' as a number" in (
            get_format(engine).unsupported_reason(both, NEWEST.get(engine)) or ""
        )
    plain = replace(both, encoding=None)
    assert get_format("elasticsearch").unsupported_reason(plain, "8.15") is None, (
        "codes that are given as such are both"
    )


def test_zeros_that_are_missing_beside_sets() -> None:
    """Both kinds of splits in one model."""
    zero = replace(node_of({1}), categories=(None,), threshold=np.array([-0.5]), missing=np.array([MISSING_ZERO]))
    formula = Formula(("a",), Forest.from_trees([node_of({1, 4}), zero], 1, np.zeros(1)))
    X = edges({1, 4}, np.float32)[:, None]
    np.testing.assert_array_equal(scores_of("elasticsearch", formula, "8.15", X), formula.part.predict(X))


# ---- what users are given ----


def test_a_feature_of_elasticsearch_asks_for_levels(tmp_path: Path) -> None:
    parity = export(ranker("table"), "elasticsearch", tmp_path / "m.json", server_version="8.15", check=table())
    features = json.loads((tmp_path / "m.features.json").read_text())["featureset"]["features"]
    numbers = json.loads((tmp_path / "m.levels.json").read_text())
    assert set(numbers["brand"]) == set(BRANDS)
    assert set(numbers["size"]) == {"36", "38", "40", "42"}
    by_name = {feature["name"]: feature["template"]["function_score"] for feature in features}
    for name in ("brand", "size"):
        *asked, last = by_name[name]["functions"]
        assert last == {"weight": 0}
        assert {str(one["filter"]["term"][name]): one["weight"] for one in asked} == numbers[name]
    assert all(isinstance(one["filter"]["term"]["size"], int) for one in by_name["size"]["functions"][:-1])
    assert "field_value_factor" in by_name["price"]
    [said] = [remark for remark in parity.caveats if "the level of 'brand' and 'size'" in remark]
    assert said.startswith("m.features.json looks up")
    assert "the level in m.levels.json, and 0 for any other" in said
    assert not any("as its code" in remark for remark in parity.caveats)
    kept = json.loads((tmp_path / "m.json.check.json").read_text())
    assert {row[kept["features"].index("brand")] for row in kept["rows"]} <= {*BRANDS, None}


def test_a_feature_of_solr_asks_for_levels(tmp_path: Path) -> None:
    export(ranker("table"), "solr", tmp_path / "m.json", server_version="9.7")
    store = {one["name"]: one for one in json.loads((tmp_path / "m.features.json").read_text())}
    numbers = json.loads((tmp_path / "m.levels.json").read_text())
    assert store["brand"]["class"].endswith("SolrFeature")
    assert f'brand:"Acme"^={numbers["brand"]["Acme"]}' in store["brand"]["params"]["q"]
    assert "defaultValue" not in store["brand"]["params"], "0 where no level matches"
    assert store["price"]["params"]["defaultValue"] == "NaN"


def test_vespa_is_given_texts(tmp_path: Path) -> None:
    parity = export(ranker("table"), "vespa", tmp_path / "m.json", check=table())
    assert parity.passed
    assert parity.max_difference == 0.0
    text = json.loads((tmp_path / "m.json").read_text())
    assert list(text["feature_infos"]) == ["brand", "size"]
    assert text["pandas_categorical"] == [sorted(BRANDS), ["36", "38", "40", "42"]]
    assert any("Give 'brand' as its level, as a string attribute." in remark for remark in parity.caveats)


def test_texts_in_large_models_of_vespa(tmp_path: Path, monkeypatch: Any) -> None:
    from toprank.exporters.interpreters import vespa

    monkeypatch.setattr(vespa, "_PATH", 10.0)
    monkeypatch.setattr(vespa, "_TREE", 4)
    parity = export(ranker("table"), "vespa", tmp_path / "m.json", check=table())
    assert parity.passed
    assert any("single precision" in remark for remark in parity.caveats)


@pytest.mark.parametrize("odd", ['Big "B"', "back\\slash", "{{x}}", 'x"^=7 brand:"y', "line\nbreak"])
def test_levels_of_any_characters(odd: str, tmp_path: Path) -> None:
    data = tr.RankingData.from_frame(frame().replace({"brand": {"Acme": odd}}), qid="qid", label="label")
    model = trees().fit(data)
    for engine in ("elasticsearch", "solr"):
        assert export(model, engine, tmp_path / "m.json", server_version=NEWEST[engine], check=data).passed
    asks = "match_all" in (tmp_path / "m.features.json").read_text() or odd != "{{x}}"
    assert asks or "{{" not in (tmp_path / "m.features.json").read_text(), (
        "what would be read as a parameter is not asked for"
    )
    if odd == "{{x}}":
        assert export(model, "vespa", tmp_path / "m.json").passed
    else:
        with pytest.raises(DataError, match="contains a quote or a backslash"):
            export(model, "vespa", tmp_path / "m.json")


def test_many_levels_are_numbers_in_the_index(tmp_path: Path, monkeypatch: Any) -> None:
    from toprank.exporters import levels

    monkeypatch.setattr(levels, "MOST_TERMS", 5)
    for engine in ("elasticsearch", "solr"):
        parity = export(ranker("table"), engine, tmp_path / "m.json", server_version=NEWEST[engine], check=table())
        assert parity.passed
        assert any("Pass 'brand' as the number of the level in m.levels.json" in remark for remark in parity.caveats)
        assert any("looks up the level of 'size' in the document field" in remark for remark in parity.caveats)


def test_ranklib_is_given_numbers(tmp_path: Path) -> None:
    parity = export(ranker("table without holes"), "ranklib", tmp_path / "m.txt")
    assert any(
        "Pass 'brand' and 'size' as the number of the level in m.levels.json" in remark for remark in parity.caveats
    )
    assert sorted(json.loads((tmp_path / "m.levels.json").read_text())["size"].values()) == [1, 2, 3, 4]


def test_probe_rows_of_codes_hold_every_kind() -> None:
    rows = probe_rows(formula_of(ranker("codes")), single=True)
    own = rows.X[:, 1]
    assert (own > 8).any(), "unknown"
    assert (np.mod(own, 1.0) == 0.5).any(), "between"
    assert (own <= -1).any(), "negative"
    assert np.isnan(own).any(), "missing"
