"""When an exported file passes: each side of the rule alone, limits at their exact sizes, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import toprank as tr
from toprank.data.queries import Queries
from toprank.errors import DataError, FileError
from toprank.exporters import parity as module
from toprank.exporters.formats import PreparedModel
from toprank.exporters.parity import (
    ComparedRows,
    Parity,
    ProbeResult,
    _run_lengths,
    _sample_rows,
    _score_probes,
    changed_rankings,
    measure_parity,
)
from toprank.exporters.split_probes import SplitCounts


def of_kind(kind="data", rows=10, largest=0.0, beyond=0, rankings=2, changed=0, rounded=0, excluded=False):
    return ProbeResult(kind, rows, largest, beyond, rankings, changed, rounded, excluded)


def parity(*kinds, **more):
    return Parity("json", "somebody", 1e-6, kinds, **more)


@pytest.mark.parametrize(
    ("kind", "passed"),
    [
        (of_kind(), True),
        (of_kind(rows=1), True),
        (of_kind(rounded=1), True),
        (of_kind(beyond=1), False),
        (of_kind(changed=1), False),
        (of_kind(rows=0), False),
        (of_kind(excluded=True), False),  # nothing is left to hold
    ],
)
def test_a_file_holds_where_rows_were_compared_none_is_beyond_and_no_ranking_changed(kind, passed):
    assert parity(kind).passed is passed


def test_what_is_counted_apart_is_left_out_of_totals():
    found = parity(
        of_kind(largest=0.25, rounded=1), of_kind("usual", 5, 0.5, rankings=1),
        of_kind("huge", 7, 9.0, 3, 4, 2, 2, excluded=True),
    )  # fmt: skip
    assert found.passed
    assert (found.rows, found.max_difference, found.n_mismatches) == (15, 0.5, 0)
    assert (found.rankings, found.rankings_changed, found.near_ties_reordered) == (3, 0, 1)
    assert parity().max_difference == 0.0
    assert not parity().passed
    assert str(found).count("(excluded)") == 1


def test_what_a_parity_says_of_splits_and_of_rounding():
    plain = parity(of_kind())
    assert plain._result() == (
        "json, scored by somebody: 10 rows checked against predict, largest difference 0, 0 rows beyond 1e-06; "
        "0 of 2 rankings changed."
    )
    assert plain.to_dict()["nodes"] is None
    rounded = parity(of_kind(rounded=2), nodes=SplitCounts(3, 4, 0))
    assert rounded._result().endswith(
        "rankings changed, 2 by documents closer than that. Generated rows cover 3 of the 4 reachable splits."
    )
    drawn = parity(of_kind(), nodes=SplitCounts(3, 4, 5), sampled=True)
    assert "splits (5 more cannot be reached). This is a sample" in drawn._result()
    assert drawn.to_dict()["nodes"] == {"covered": 3, "reachable": 4, "unreachable": 5, "sampled": True}
    assert drawn.summary == drawn._result()
    nobody = parity(caveats=("A remark.",))
    assert nobody.summary == "json: not checked, since there is no somebody here to score it.\nA remark."
    assert str(nobody).startswith("json: not checked, since there is no somebody here to score it.")
    assert "A remark." in str(nobody)


def test_a_parity_as_a_frame_has_a_row_for_each_kind():
    frame = parity(of_kind(largest=0.25), of_kind("huge", 7, 9.0, 3, 4, 2, 2, excluded=True)).to_frame()
    assert frame.kind.tolist() == ["data", "huge"]
    assert frame.columns.tolist() == list(ProbeResult._fields)
    assert frame.iloc[1].tolist() == ["huge", 7, 9.0, 3, 4, 2, 2, True]


def prepared(scores, **more):
    score = None if scores is None else lambda _path, X, _features: scores(X)
    return PreparedModel(formula=FORMULA, files={}, score=score, interpreter="somebody", **more)


def rows_of(expected, sizes, kinds, made=0):
    """Rows whose first feature is the score to expect; the last `made` of them are made rows."""
    X = np.array(expected, dtype=float)[:, None]
    n = len(X) - made
    queries = Queries(np.concatenate([[0], np.cumsum(sizes)]))
    return ComparedRows(X[:n], X[n:], np.array(kinds), queries, X[:, 0], None, False)


FORMULA = SimpleNamespace(features=("a",), has_network=False, single_sums=False)


def compare_with(rows, scores, **more):
    return measure_parity("json", prepared(scores, **more), Path("none"), rows)


def test_differences_are_shares_of_the_score_or_of_one():
    rows = rows_of([0.0, 0.5, -8.0, 8.0], [2, 2], ["data"] * 4)
    assert compare_with(rows, lambda X: X[:, 0] + 0.125).max_difference == 0.125
    assert compare_with(rows, lambda X: np.where(np.abs(X[:, 0]) > 1, X[:, 0] + 4, X[:, 0])).max_difference == 0.5
    assert compare_with(rows, lambda X: X[:, 0] - 3.0, constant=3.0).max_difference == 0.0


def test_what_differs_by_the_tolerance_is_not_beyond_it():
    rows = rows_of([0.0, 1.0], [1, 1], ["data"] * 2)
    limit = prepared(None).tolerance
    assert compare_with(rows, lambda X: np.where(X[:, 0] == 0, limit, X[:, 0])).n_mismatches == 0
    found = compare_with(rows, lambda X: np.where(X[:, 0] == 0, 1.001 * limit, X[:, 0]))
    assert (found.n_mismatches, found.passed) == (1, False)


def test_scores_that_are_none_or_too_few_do_not_pass():
    rows = rows_of([0.0, 1.0], [1, 1], ["data", "usual"], made=1)
    found = compare_with(rows, lambda X: np.where(X[:, 0] == 0, np.nan, X[:, 0]))
    assert (found.n_mismatches, found.max_difference) == (1, np.inf)
    with pytest.raises(DataError, match=r"returned \(4,\) scores for 2 rows"):
        compare_with(rows, lambda X: np.repeat(X[:, 0], 2))


def test_each_kind_has_its_own_rows_and_rankings(monkeypatch):
    kinds = ["data"] * 4 + ["huge"] * 2 + ["usual"] * 3
    rows = rows_of([1, 2, 3, 4, 1, 2, 1, 2, 3], [2, 2, 2, 3], kinds, made=5)
    monkeypatch.setattr(module, "_BLOCK_ROWS", 3)
    asked = []

    def wrong_for_the_made(X):
        asked.append(len(X))
        return X[:, 0] if len(asked) < 3 else -X[:, 0]

    found = compare_with(rows, wrong_for_the_made, excluded=frozenset(["huge"]))
    assert asked == [3, 1, 5]  # data by blocks, then what was made
    by_kind = {one.kind: one for one in found.kinds}
    assert list(by_kind) == ["data", "usual", "huge"]
    assert by_kind["data"] == ProbeResult("data", 4, 0.0, 0, 2, 0, 0, False)
    assert by_kind["usual"] == ProbeResult("usual", 3, 2.0, 3, 1, 1, 0, False)
    assert by_kind["huge"] == ProbeResult("huge", 2, 2.0, 2, 1, 1, 0, True)
    assert rows.take(np.array([0, 3, 4, 8]))[:, 0].tolist() == [1, 4, 1, 3]


def test_a_ranking_is_rounded_where_only_close_documents_change_places():
    close = 1 + 0.5 * prepared(None).tolerance
    rows = rows_of([1.0, close, 1.0, 2.0], [2, 2], ["data"] * 4)
    found = compare_with(rows, lambda X: np.where(X[:, 0] == close, 1.0, X[:, 0]))
    assert (found.rankings_changed, found.near_ties_reordered, found.passed) == (0, 1, True)


@pytest.mark.parametrize(
    ("before", "after", "tolerance", "changed"),
    [
        ([0.0, 0.5], [0.0, 0.0], 0.25, True),  # a new tie counts
        ([0.0, 0.25], [1.0, 0.0], 0.25, False),  # not more than the tolerance
        ([0.0, 0.2501], [1.0, 0.0], 0.25, True),
        ([4.0, 5.0], [5.0, 4.0], 0.25, False),  # a share of the score
        ([4.0, 5.01], [5.0, 4.0], 0.25, True),
        ([1.0], [7.0], 0.25, False),
        ([0.0, 1.0], [0.0, np.nan], 0.25, True),
    ],
)
def test_a_ranking_changes_by_documents_further_apart_than_the_tolerance(before, after, tolerance, changed):
    queries = Queries(np.array([0, len(before)]))
    assert changed_rankings(np.array(before), np.array(after), queries, tolerance).tolist() == [changed]


def test_nobody_to_score_means_nothing_was_compared():
    rows = rows_of([1.0], [1], ["data"])
    found = compare_with(rows, None)
    assert (found.kinds, found.passed, found.interpreter) == ((), False, "somebody")


def test_neighbors_of_one_kind_are_counted():
    assert _run_lengths(np.array(["a", "a", "b", "a"])) == [2, 1, 1]
    assert _run_lengths(np.array([], dtype=str)) == []


@pytest.mark.parametrize(("n", "step"), [(1, 1), (1999, 1), (3999, 1), (4000, 2), (6000, 3)])
def test_some_rows_come_from_all_over_the_data(n, step):
    assert _sample_rows(np.arange(n)[:, None]).ravel().tolist() == list(range(0, n, step))
    assert _sample_rows(np.zeros((0, 1))) is None


@pytest.mark.parametrize(
    ("refused", "left"),
    [
        ((), ["huge", "large", "missing", "usual"]),
        (("huge",), ["large", "missing", "usual"]),
        (("large",), ["missing", "usual"]),
        (("missing",), ["huge", "large", "usual"]),
        (("missing", "large"), ["usual"]),
    ],
)
def test_kinds_that_the_ranker_refuses_are_left_out_and_no_others(refused, left):
    kinds = np.array(["huge", "large", "missing", "usual"])
    made = SimpleNamespace(X=np.arange(4.0)[:, None], kinds=kinds)
    made._replace = lambda X, kinds: SimpleNamespace(X=X, kinds=kinds)

    def predict(data):
        if np.isin(kinds[data.X[:, 0].astype(int)], refused).any():
            raise DataError("no")
        return data.X[:, 0]

    rest, scores = _score_probes(SimpleNamespace(predict=predict, encoding_=None), made)
    assert rest.kinds.tolist() == left
    assert len(scores) == len(left)


def test_a_path_with_a_zero_byte_is_named_as_it_was_given(tmp_path):
    ranker = tr.LinearRanker(max_iterations=1000).fit(tr.synthetic(n_queries=10, n_features=3, seed=0))
    with pytest.raises(FileError, match=r"^'m\\x00\.py' is not a valid file name: it contains a zero byte"):
        tr.export(ranker, "python", "m\0.py")
