"""Warnings point at the line of whoever asked, however deep inside they are found out."""

from __future__ import annotations

import ast
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GroupKFold, cross_val_score

import toprank as tr
from toprank.compute import each_block
from toprank.errors import held_warnings, warn_user

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
    "a start": lambda data: tr.ExpectedGainRanker("ListMLE", init="linear", max_iterations=1).fit(data),
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


class OwnWarning(UserWarning):
    """Of this test."""


def test_held_warnings_are_those_of_the_block_and_of_its_threads():
    both = threading.Barrier(2)

    def warn(number):
        both.wait(10)  # so that two threads take part
        warn_user(f"{number}", OwnWarning)

    with held_warnings(OwnWarning) as outer, held_warnings(UnicodeWarning) as inner:
        each_block(warn, range(2), 2)
        with held_warnings() as innermost:
            warn_user("all of ours")
    assert sorted(str(warning.message) for warning in outer) == ["0", "1"]
    assert inner == []
    assert [(str(warning.message), warning.filename) for warning in innermost] == [("all of ours", __file__)]
    with pytest.warns(OwnWarning, match="shown"), held_warnings(UnicodeWarning):
        warn_user("shown", OwnWarning)


def test_threads_that_hold_warnings_at_a_time_change_no_filter_of_the_process():
    """Filters of `warnings.catch_warnings` stay changed if the thread that came first leaves first."""
    before, shows = list(warnings.filters), warnings._showwarnmsg_impl
    entered, leave = threading.Event(), threading.Event()

    def other():
        with held_warnings(OwnWarning):
            entered.set()
            assert leave.wait(10)

    thread = threading.Thread(target=other)
    with held_warnings(OwnWarning):
        thread.start()
        assert entered.wait(10)
    leave.set()
    thread.join(10)
    assert (list(warnings.filters), warnings._showwarnmsg_impl) == (before, shows)


@pytest.mark.filterwarnings("default")
def test_a_search_on_several_threads_keeps_the_filters_of_the_process(data):
    train, valid = tr.split(data, (0.6, 0.4))
    before, shows = list(warnings.filters), warnings._showwarnmsg_impl
    for _ in range(3):
        tr.grid_search("ListNet", train, valid, threads=4)
    assert (list(warnings.filters), warnings._showwarnmsg_impl) == (before, shows)
