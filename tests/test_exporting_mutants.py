"""One mistake anywhere in an exported file is caught by the check: trees, weights, networks, members of a blend."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import toprank as tr
from export_mutants import Check, changes, of_forest, of_trees
from toprank.exporters import names
from toprank.rankers.trees.forest import Forest

VERSIONS = {"elasticsearch": "8.15", "opensearch": "3.8", "solr": "9.7"}
COMPILED = ("c",)  # a file takes long to compile


@cache
def data(categories: bool = False) -> tr.RankingData:
    made = tr.synthetic(n_queries=30, truth="nonlinear", n_grades=3, n_features=6, seed=0)
    rng, X = np.random.default_rng(0), made.X.copy()
    X[:, 3] = made.labels + rng.integers(0, 5, len(X)) if categories else X[:, 3]
    X[rng.random(X.shape) < 0.1] = np.nan
    return made.replace(X=X.astype(np.float32))


def trees(**more: Any) -> tr.TreeRanker:
    return tr.TreeRanker(**({"n_trees": 5, "num_leaves": 8, "threads": 1, "min_data_in_leaf": 5} | more))


def network(**more: Any) -> Any:
    pytest.importorskip("torch")
    return tr.NeuralRanker("ListNet", hidden=(4,), epochs=1, threads=1, **more).fit(data())


@cache
def ranker(name: str) -> Any:
    return {
        "trees": lambda: trees().fit(data()),
        "trees without holes": lambda: trees().fit(data().replace(X=np.nan_to_num(data().X))),
        "categories": lambda: trees(categorical=[3], lightgbm_params={"min_data_per_group": 5}).fit(data(True)),
        "linear": lambda: tr.LinearRanker().fit(data()),
        "grades": lambda: tr.ExpectedGainRanker("Ordinal").fit(data()),
        "grades of trees": lambda: trees(loss="Multinomial", outputs="grades").fit(data()),
        "network": lambda: network(input_transform="standard"),
        "blend": lambda: tr.BlendRanker.from_fitted([ranker("trees"), ranker("linear")], data()),
        "blend of trees": lambda: tr.BlendRanker.from_fitted([ranker("trees"), trees(seed=1).fit(data())], data()),
        "blend of lines": lambda: tr.BlendRanker.from_fitted(
            [ranker("linear"), tr.CoordinateAscent(restarts=1, max_cycles=1).fit(data())], data()
        ),
    }[name]()


TREES = ("onnx", "elasticsearch", "opensearch", "solr", "vespa", "xgboost", "lightgbm", "c", "python")
LINES = ("onnx", "elasticsearch", "opensearch", "solr", "ranklib", "c", "python", "json")
CASES = [
    *(("trees", to) for to in TREES), ("trees without holes", "ranklib"), *(("linear", to) for to in LINES),
    ("categories", "onnx"), ("categories", "lightgbm"), ("categories", "c"), ("categories", "python"),
    ("categories", "elasticsearch"), ("categories", "opensearch"), ("categories", "solr"), ("categories", "vespa"),
    ("grades", "onnx"), ("grades", "solr"), ("grades", "python"), ("grades of trees", "onnx"),
    ("network", "onnx"), ("network", "solr"), ("network", "python"), ("blend", "onnx"), ("blend", "python"),
    ("blend of trees", "elasticsearch"), ("blend of trees", "xgboost"), ("blend of lines", "solr"),
    ("blend of lines", "json"),
]  # fmt: skip


def survivors(name: str, to: str, each: int, given: Any = None) -> tuple[int, list[str]]:
    """How many mistakes were made, and those that the check did not find though they can move a score."""
    check = Check.of(ranker(name), to, VERSIONS.get(to), given)
    single, tried, left = check.right.single, 0, []
    size = np.maximum(1.0, np.abs(check.rows.expected)).min()
    for what, part, bound in changes(check.right.formula.part, np.random.default_rng(0), each, single):
        parity = check.parity(part)
        if parity is None or bound <= parity.tolerance * size:
            continue  # the same file, or below the tolerance wherever it is met
        tried += 1
        if parity.passed:
            left.append(what)
    return tried, left


def test_every_format_is_among_the_cases() -> None:
    assert {to for _, to in CASES} == set(names())


@pytest.mark.parametrize(("name", "to"), CASES)
def test_a_single_mistake_is_found(name: str, to: str) -> None:
    tried, left = survivors(name, to, each=1)
    assert tried >= (4 if name in ("linear", "grades") else 6)
    assert not left


@pytest.mark.parametrize("to", ["elasticsearch", "python"])
def test_data_to_check_on_hide_no_mistake(to: str) -> None:
    """The rows at splits do not depend on the data; those of the data come on top."""
    tried, left = survivors("trees", to, each=3, given=data())
    assert tried > 15
    assert not left


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "to"), CASES)
def test_many_single_mistakes_are_found(name: str, to: str) -> None:
    tried, left = survivors(name, to, each=4 if to in COMPILED else 25)
    assert tried > 10
    assert not left


@cache
def large(holes: bool) -> Any:
    made = tr.synthetic(n_queries=200, truth="nonlinear", n_grades=3, n_features=30, seed=0)
    rng, X = np.random.default_rng(0), made.X.copy()
    if holes:
        X[rng.random(X.shape) < 0.1] = np.nan
    return tr.TreeRanker(n_trees=300, num_leaves=31, threads=2).fit(made.replace(X=X.astype(np.float32)))


@pytest.mark.nightly
@pytest.mark.parametrize("to", [*TREES, "ranklib"])
def test_hundreds_of_mistakes_in_a_large_model(to: str) -> None:
    """300 trees of 31 leaves. Mistakes that no leaf of which is further away than the tolerance are listed."""
    check = Check.of(large(to != "ranklib"), to, VERSIONS.get(to))
    assert check.rows.nodes is not None
    assert check.rows.nodes.covered == check.rows.nodes.reachable
    forest, rng = check.right.formula.part, np.random.default_rng(0)
    assert isinstance(forest, Forest)
    single, tolerance = check.right.single, check.right.tolerance
    tried, caught, listed = Counter[str](), Counter[str](), []
    for place in rng.permutation(len(forest.trees))[: 8 if to in COMPILED else 60].tolist():
        one = of_trees(replace(forest, intercepts=np.zeros(1)), [forest.trees[place]])
        for what, part, bound in of_forest(one, rng, 1, single):
            moved = check.moved(one, part)
            if moved is None:
                continue
            if bound <= tolerance * np.abs(check.rows.expected).max():
                listed.append((what, place, bound))
                continue
            tried[what] += 1
            caught[what] += moved
    print(
        to,
        len(check.rows.probes),
        {what: f"{caught[what]}/{tried[what]}" for what in tried},
        "below tolerance:",
        listed,
    )
    assert sum(tried.values()) > (40 if to in COMPILED else 300)
    for what, count in tried.items():
        assert caught[what] >= (0.95 if what == "missing side" else 0.99) * count, what
