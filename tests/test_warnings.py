"""Warnings point at the line of whoever asked, however deep inside they are found out."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GroupKFold, cross_val_score

import toprank as tr

SOURCE = Path(tr.__file__).parent
HARD = {"max_iterations": 1, "l2": 1e-6}
FLAT = {"n_trees": 2, "min_data_in_leaf": 10**6, "threads": 1}


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=30, n_features=4, seed=0).replace(feature_names=None)


def validated(data):
    with sklearn.config_context(enable_metadata_routing=True):
        return cross_val_score(
            tr.LinearRanker("ListMLE", **HARD), data.X, data.labels,
            params={"qid": data.qid, "groups": data.qid}, cv=GroupKFold(2),
        )  # fmt: skip


ASKED = {
    "linear": lambda data: tr.LinearRanker("ListMLE", **HARD).fit(data),
    "expected gain": lambda data: tr.ExpectedGainRanker(max_iterations=1).fit(data),
    "arrays": lambda data: tr.LinearRanker("ListMLE", **HARD).fit(data.X, data.labels, qid=data.qid),
    "no queries": lambda data: tr.LinearRanker().fit(data.X, data.labels),
    "the same data": lambda data: tr.LinearRanker().fit(data, valid=data),
    "trees": lambda data: tr.TreeRanker(**FLAT).fit(data),
    "a member of a blend": lambda data: tr.BlendRanker([tr.TreeRanker(**FLAT)]).fit(data),
    "a start": lambda data: tr.ExpectedGainRanker("ListMLE", start="linear", max_iterations=1).fit(data),
    "rank": lambda data: tr.LinearRanker().fit(data).rank(data.replace(X=np.zeros(data.X.shape))),
    "evaluate": lambda data: tr.evaluate(np.zeros(data.n_documents), data.labels),
    "scikit-learn": validated,
}


@pytest.mark.parametrize("name", ASKED)
def test_warnings_point_at_the_line_that_asked(name, data):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ASKED[name](data)
    ours = [one for one in told if one.category.__module__.startswith("toprank.")]
    assert ours
    assert {one.filename for one in ours} == {__file__}


def test_every_warning_is_given_by_the_one_function_that_finds_that_line():
    strays = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            asked = node.func if isinstance(node, ast.Call) else None
            if isinstance(asked, ast.Attribute) and asked.attr == "warn" and ast.unparse(asked.value) == "warnings":
                strays.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert [stray.partition(":")[0] for stray in strays] == ["errors.py"], strays
