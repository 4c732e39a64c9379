"""The data doctor: every finding has a case that shows it and data that do not, and counts are counts."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import toprank as tr
from ragged import ranking_data
from support import shared_data
from toprank.data.dataset import RankingData
from toprank.data.folds import split
from toprank.data.queries import Queries
from toprank.data.synthetic import synthetic
from toprank.data.tables import write_table
from toprank.doctor import check, check_file
from toprank.doctor.findings import Report
from toprank.doctor.scan import scan
from toprank.errors import DataError, FileError, FormatError


def healthy(n_queries=30, n_documents=12, **changes) -> RankingData:
    """Data with nothing to say about: every query has a document of each grade."""
    rng = np.random.default_rng(0)
    n = n_queries * n_documents
    grades = np.concatenate([rng.permutation(np.arange(n_documents) % 3) for _ in range(n_queries)])
    data = RankingData(rng.normal(size=(n, 4)), grades, qid=np.arange(n) // n_documents + 100)
    return data.replace(**changes)


def found(report: Report, code: str):
    matching = [finding for finding in report.findings if finding.code == code]
    assert len(matching) == 1, [finding.code for finding in report.findings]
    return matching[0]


def changed(array, *changes):
    copy = np.array(array)
    for place, value in changes:
        copy[place] = value
    return copy


def test_healthy_data_have_no_findings():
    report = check(healthy())
    assert report.findings == ()
    assert str(report) == "data: 30 queries, 360 documents, 4 features\nNothing was found."


# Queries and labels


def test_short_and_single_lists():
    rng = np.random.default_rng(1)
    sizes = [1, 3, 12, 1, 12]
    grades = np.concatenate([[1], [0, 1, 2], np.arange(12) % 3, [2], np.arange(12) % 3])
    report = check(RankingData(rng.normal(size=(29, 2)), grades, qid=np.repeat(list("abcde"), sizes)), cutoffs=(10, 3))
    single = found(report, "one-document-queries")
    assert (single.count, single.examples, single.severity) == (2, ("a", "d"), "warning")
    assert single.summary.startswith("2 of 5 queries have a single document")
    short = [finding for finding in report.findings if finding.code == "short-lists"]
    assert [(finding.count, "fewer than 3 " in finding.summary) for finding in short] == [(2, True), (3, False)]


def test_blank_and_equal_queries():
    data = healthy()
    labels = changed(data.labels, (slice(0, 12), 0), (slice(12, 24), 2), (slice(24, 36), -1))
    report = check(data.replace(labels=labels))
    assert found(report, "blank-queries").examples == ("100", "102")  # nothing judged is nothing relevant
    assert found(report, "equal-labels").examples == ("101",)
    assert found(report, "unjudged").count == 12
    assert "12 of 360 documents are not judged" in found(report, "unjudged").summary


def test_label_ranges():
    data = healthy()
    for value, code, severity in ((-2, "negative-labels", "problem"), (0.5, "fractional-labels", "note")):
        finding = found(check(data.replace(labels=changed(data.labels, (7, value)))), code)
        assert (finding.count, finding.examples, finding.severity) == (1, (f"{value:g}",), severity)
    assert found(check(data.replace(labels=changed(data.labels, (7, 32), (8, 40)))), "large-labels").count == 2
    assert check(data.replace(labels=changed(data.labels, (7, 31)))).findings == ()
    assert found(check(data.replace(labels=np.ones(360))), "one-grade").severity == "problem"


def test_wholly_unjudged_data_are_only_noted():
    report = check(healthy(labels=np.full(360, np.nan)))
    assert [(finding.code, finding.severity) for finding in report.findings] == [("unjudged", "note")]


def test_an_order_that_is_a_ranking():
    data = healthy()
    order = np.lexsort((-data.labels, data.queries.document_query))
    ranked = RankingData(data.X[order], data.labels[order], qid=data.qid)
    gains = np.array([3.0] * 4 + [1.0] * 4 + [0.0] * 4)
    discounts = 1 / np.log2(np.arange(2, 7))
    at_random = gains.mean() * discounts.sum() / (gains[:5] @ discounts)
    finding = found(check(ranked, cutoffs=(5,)), "file-order")
    assert f"NDCG@5 1.00, in random order {at_random:.2f}" in finding.summary
    assert finding.count == 30


def test_the_worth_of_an_order_is_finite_where_sums_of_labels_are_not():
    labels = np.tile([1.7e308, 1.7e308, 1.0, 0.0], 30)
    ranked = RankingData(np.random.default_rng(0).normal(size=(120, 2)), labels, qid=np.arange(120) // 4)
    discounts = 1 / np.log2([2, 3, 4, 5])
    finding = found(check(ranked), "file-order")
    assert f"NDCG@10 1.00, in random order {discounts.sum() / 2 / discounts[:2].sum():.2f}" in finding.summary


def test_the_order_of_shuffled_rows_says_nothing():
    for seed in range(20):
        assert "file-order" not in {f.code for f in check(synthetic(50, (5, 40), seed=seed)).findings}


# Features


def test_constant_features():
    data = healthy()
    X = changed(data.X, ((slice(None), 1), 7), ((slice(None), 3), np.nan))
    finding = found(check(data.replace(X=X)), "constant-features")
    assert (finding.count, finding.examples) == (2, ("2", "4"))
    named = found(check(data.replace(X=X, feature_names=list("abcd"))), "constant-features")
    assert named.examples == ("b", "d")


def test_categories_that_name_the_query():
    """The text of the query, kept as a feature; a device is one per query too, but not its own."""
    size, n = 6, 40
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"query_id": np.repeat(np.arange(n), size), "label": rng.integers(0, 3, n * size)})
    frame["query"] = [f"words {number}" if number else None for number in frame["query_id"]]
    frame["device"] = np.where(frame["query_id"] % 2 == 0, "phone", "desk")
    frame["brand"] = rng.choice([f"brand {number}" for number in range(n)], len(frame))
    finding = found(check(RankingData.from_frame(frame, qid="query_id")), "names-of-queries")
    assert (finding.severity, finding.examples) == ("warning", ("query",))
    frame.loc[7, "query"] = "words 3"  # now it tells two documents of a query apart
    codes = {one.code for one in check(RankingData.from_frame(frame, qid="query_id")).findings}
    assert "names-of-queries" not in codes


def test_duplicate_features():
    data = healthy()
    X = np.column_stack([data.X, data.X[:, 2], -data.X[:, 0], data.X[:, 2], np.zeros(360), np.zeros(360)])
    report = check(data.replace(X=X))
    assert (found(report, "duplicate-features").count, found(report, "duplicate-features").examples) == (
        2,
        ("5 = 3", "7 = 3"),
    )
    assert found(report, "constant-features").count == 2
    shuffled = np.column_stack([data.X, data.X[::-1, 0]])
    assert check(data.replace(X=shuffled)).findings == ()


def test_missing_and_infinite_values():
    data = healthy()
    X = changed(data.X, ((3, 0), np.nan), ((4, 0), np.nan), ((5, 2), np.inf), ((6, 2), -np.inf), ((7, 1), np.inf))
    report = check(data.replace(X=X))
    missing, infinite = found(report, "missing-values"), found(report, "infinite-features")
    assert (missing.count, missing.examples) == (1, ("1",))
    assert f"2 NaN, {2 / 1440:.1%} of all" in missing.summary
    assert (infinite.count, infinite.examples, infinite.severity) == (2, ("2", "3"), "problem")
    assert "3 in total" in infinite.summary


def test_different_scales():
    data = healthy()
    ranges = data.X.max(axis=0) - data.X.min(axis=0)
    report = check(data.replace(X=data.X * [1, 1e6, 1, 1e-1]))
    assert [finding.code for finding in report.findings] == ["scales"]
    assert f"{ranges[3] / 10:.3g} for 4, {ranges[1] * 1e6:.3g} for 2" in report.findings[0].summary
    extreme = check(data.replace(X=data.X * [1, 1e307, 1, 1e-300]))
    assert [finding.code for finding in extreme.findings] == ["scales"]


# Documents


def test_duplicate_documents_and_conflicting_labels():
    data = healthy()
    X = changed(data.X, (1, data.X[0]), (2, data.X[0]), (14, data.X[13]), (40, data.X[0]))  # row 40: another query
    labels = changed(data.labels, (0, 1), (1, 1), (2, 0), (13, 1), (14, -1))
    report = check(data.replace(X=X, labels=labels))
    twice = found(report, "duplicate-documents")
    assert twice.count == 3
    assert twice.examples == ("row 1 of query 100", "row 2 of query 100", "row 14 of query 101")
    assert "in 2 queries" in twice.summary
    conflict = found(report, "conflicting-labels")
    assert (conflict.count, conflict.examples) == (1, ("query 100",))  # an unjudged document contradicts nobody


def test_duplicate_document_ids():
    data = healthy()
    ids = changed(np.array([f"d{row}" for row in range(360)]), (5, "d3"), (20, "d3"))
    finding = found(check(data.replace(document_ids=ids)), "duplicate-document-ids")
    assert (finding.count, finding.examples) == (1, ("d3 of query 100",))


def test_zero_and_minus_zero_are_the_same_value():
    data = healthy()
    X = changed(data.X, (0, 0.0), (1, -0.0))
    assert found(check(data.replace(X=X)), "duplicate-documents").count == 1


# Splits


def test_splits_that_share_queries_or_documents():
    data = healthy()
    train, test = data.select(range(20)), data.select(range(18, 30))
    report = check(train, test, names=["train", "test"])
    shared = found(report, "shared-queries")
    assert (shared.count, shared.examples, shared.severity) == (2, ("118", "119"), "problem")
    assert shared.summary == "2 of 12 queries of test occur in train, too."
    assert found(report, "shared-documents").count == 24
    assert check(*split(data)).findings == ()


def test_ids_of_another_type_are_the_same_ids():
    data = healthy()
    text = data.select([3]).replace(qids=["103"])
    assert found(check(data, text), "shared-queries").count == 1


def test_queries_that_are_only_counted_are_not_shared():
    first, second = healthy().replace(qids=range(30)), synthetic(30, 12, 4)
    assert "shared-queries" not in {finding.code for finding in check(first, second).findings}


def test_splits_of_different_widths():
    data = healthy()
    narrow = data.select([0]).replace(X=data.X[:12, :3], qids=[7])
    assert found(check(data, narrow, names=["a", "b"]), "different-widths").summary == "a has 4 features, b has 3."


def test_findings_about_several_data_sets_say_which():
    data = healthy()
    bad = data.select([0]).replace(qids=[1], X=-data.X[:12], labels=np.zeros(12))
    sentences = [finding.summary for finding in check(data, bad, names=["good", "bad"]).findings]
    assert sentences
    assert all(sentence.startswith("bad: ") for sentence in sentences)


# The report


def test_a_report_is_readable_and_becomes_json():
    data = healthy()
    report = check(data.replace(labels=np.zeros(360), X=data.X * [0, 1, 1, 1]))
    severities = [finding.severity for finding in report.findings]
    assert severities == sorted(severities, key=["problem", "warning", "note"].index)
    assert len(str(report).splitlines()) == 1 + len(report.findings)
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["data"] == [{"name": "data", "queries": 30, "documents": 360, "features": 4}]
    assert [finding["code"] for finding in plain["findings"]] == [finding.code for finding in report.findings]


@given(ranking_data(), st.lists(ranking_data(), max_size=2))
def test_anything_legal_can_be_examined(data, others):
    report = check(data, *others, cutoffs=(1, 3))
    for finding in report.findings:
        assert finding.count >= 1
        assert finding.summary.endswith(".")
        assert finding.remedy.endswith(".")
        assert len(finding.examples) <= min(finding.count, 5)
    json.dumps(report.to_dict(), allow_nan=False)


@given(ranking_data(sparse=st.just(False)))
def test_the_scan_agrees_with_numpy_dense_or_sparse_on_any_number_of_threads(data):
    first = scan(data, 1)
    finite = np.where(np.isfinite(data.X), data.X, np.nan)
    for column, values in enumerate(finite.T):
        present = values[~np.isnan(values)]
        assert first.smallest[column] == min(present, default=np.inf)
        assert first.largest[column] == max(present, default=-np.inf)
    np.testing.assert_array_equal(first.missing, np.isnan(data.X).sum(axis=0))
    np.testing.assert_array_equal(first.infinite, np.isinf(data.X).sum(axis=0))
    X = data.X + 0.0  # -0.0 becomes 0.0
    rows = [tuple(np.where(np.isnan(row), "nan", row.astype(str))) for row in X]
    assert sorted(Counter(rows).values()) == sorted(Counter(first.row_hash.tolist()).values())
    columns = [tuple(np.where(np.isnan(column), "nan", column.astype(str))) for column in X.T]
    assert sorted(Counter(columns).values()) == sorted(Counter(first.column_hash.tolist()).values())
    alike = [
        scan(data, 3),
        scan(data.replace(X=sparse.csr_matrix(data.X)), 2),
        scan(data.replace(X=data.X.astype(float))),
    ]
    for other in alike:
        for name, values in vars(first).items():
            np.testing.assert_array_equal(getattr(other, name), values, err_msg=name)


def test_the_scan_reads_any_layout_in_pieces():
    rng = np.random.default_rng(0)
    X = np.where(rng.uniform(size=(9000, 3)) < 0.5, 0.0, rng.normal(size=(9000, 3)))
    queries = Queries.from_sizes([100] * 90)
    wide = sparse.csr_matrix(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    first = scan(RankingData(X, queries=queries), 1)
    np.testing.assert_array_equal(first.smallest, X.min(axis=0))
    for other in (np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], wide):
        for name, values in vars(scan(RankingData(other, queries=queries), 2)).items():
            np.testing.assert_array_equal(getattr(first, name), values, err_msg=name)


def test_bad_arguments_are_refused():
    with pytest.raises(DataError, match="1 names for 2 data sets"):
        check(healthy(), healthy(), names=["a"])
    for cutoffs in ((), (0,)):
        with pytest.raises(DataError, match="at least 1"):
            check(healthy(), cutoffs=cutoffs)
    with pytest.raises(DataError, match="list of paths is empty"):
        check_file([])


# Files


SCATTERED = "2 qid:1 1:0.5\n0 qid:2 1:0.25 # qid:9\n1 qid:1 1:1\n0 qid:2 1:2\n1 qid:3 1:3\n"


def test_scattered_queries_are_reported_and_the_rest_is_examined(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text(SCATTERED)
    report = check_file(path)
    finding = found(report, "split-queries")
    assert (finding.count, finding.examples, finding.severity) == (2, ("1", "2"), "problem")
    assert finding.summary.startswith("data.txt: 2 of 3 queries have rows that are not contiguous")
    assert "first at line 3" in finding.summary
    assert found(report, "one-document-queries").examples == ("3",)
    assert str(report.subjects[0]) == "data.txt: 3 queries, 5 documents, 1 feature"


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_scattered_queries_in_tables(tmp_path, suffix):
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = pa.table({"query_id": [1, 2, 1], "label": [0, 1, 2], "f": [1.0, 2.0, 3.0]})
    writer = {"parquet": parquet.write_table, "csv": csv.write_csv}[suffix]
    writer(table, tmp_path / f"data.{suffix}")
    assert found(check_file(tmp_path / f"data.{suffix}"), "split-queries").examples == ("1",)


def test_scattered_ids_that_are_floats_are_shown_as_the_data_have_them(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({"query_id": [1.0, 2.0, 1.0], "label": [0, 1, 2], "f": [1.0, 2.0, 3.0]})
    parquet.write_table(table, tmp_path / "data.parquet")
    assert found(check_file(tmp_path / "data.parquet"), "split-queries").examples == ("1",)


def test_names_are_counted_before_files_are_read(tmp_path):
    with pytest.raises(DataError, match="1 names for 2 data sets"):
        check_file([tmp_path / "a.txt", tmp_path / "b.txt"], names=["a"])
    with pytest.raises(DataError, match="cutoffs must be a list"):
        check_file(tmp_path / "a.txt", cutoffs=[0])


def test_what_cannot_be_read_is_refused_as_by_the_reader(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text(SCATTERED + "oops qid:4 1:1\n")
    with pytest.raises(FormatError) as caught:
        check_file(path)
    assert caught.value.line == 6
    with pytest.raises(FileError):
        check_file(tmp_path / "absent.txt")


def test_several_files_are_splits(tmp_path):
    data = healthy()
    for name, part in zip(["a/x", "b/x"], [data.select(range(20)), data.select(range(19, 30))], strict=True):
        (tmp_path / name).parent.mkdir()
        write_table(part, tmp_path / f"{name}.parquet")
    paths = [tmp_path / "a" / "x.parquet", tmp_path / "b" / "x.parquet"]
    report = check_file(paths)
    assert [subject.name for subject in report.subjects] == [str(path) for path in paths]
    assert found(report, "shared-queries").examples == ("119",)


def test_the_rows_of_ohsumed_are_a_ranking():
    report = check_file(shared_data("letor", "OHSUMED", "S1.txt"))
    assert found(report, "constant-features").count == 9
    found(report, "file-order")


def test_splits_of_text_have_the_same_columns(tmp_path):
    (tmp_path / "train.txt").write_text("1 qid:1 0:5 1:6 2:7\n0 qid:1 0:4 1:8 2:1\n")
    (tmp_path / "test.txt").write_text("1 qid:2 1:6 2:7\n0 qid:2 1:8 2:1\n")
    report = check_file([tmp_path / "train.txt", tmp_path / "test.txt"], missing="zero")
    constant = next(one for one in report.findings if one.code == "constant-features" and "test.txt" in one.summary)
    assert (constant.count, len(constant.examples)) == (1, 1)  # feature 0 alone, not the last one


# What remedies say of training


def largest_gradient(loss, labels):
    scores, queries = np.array([0.3, -1.0, 2.0]), tr.Queries([0, 3])
    return np.abs(loss.on(np.array(labels, dtype=float), queries).at(scores).grad).max()


def test_what_is_said_of_equal_labels_is_what_losses_do():
    data = tr.RankingData(np.arange(6.0)[:, None], [1, 1, 1, 0, 1, 2], qid=[1, 1, 1, 2, 2, 2])
    remedy = found(tr.check(data), "equal-labels").remedy
    assert "Pairwise losses skip them" in remedy
    assert largest_gradient(tr.losses.Logistic(), [1, 1, 1]) == largest_gradient(tr.losses.Hinge(), [1, 1, 1]) == 0
    assert "ListNet, learn equal scores from them" in remedy
    assert largest_gradient(tr.losses.ListNet(), [1, 1, 1]) > 0


def test_what_is_said_of_missing_values_and_scales_is_what_rankers_do():
    X = np.array([[1.0, 1e9], [2.0, 3e9], [np.nan, 2e9], [4.0, 0.0]])
    data = tr.RankingData(X, [0, 1, 0, 2], qid=[1, 1, 2, 2])
    report = tr.check(data)
    assert "linear models and networks replace them by the mean" in found(report, "missing-values").remedy
    assert "linear models and networks standardize features" in found(report, "scales").remedy
    ranker = tr.LinearRanker("Squared", l2=1.0).fit(data)
    filled = data.replace(X=np.where(np.isnan(X), np.nanmean(X[:, 0]), X))
    np.testing.assert_allclose(ranker.predict(filled), ranker.predict(data))
    halved = data.replace(X=X * [1.0, 1e-9])
    np.testing.assert_allclose(tr.LinearRanker("Squared", l2=1.0).fit(halved).predict(halved), ranker.predict(data))


def test_rows_that_lie_worst_first_are_a_ranking_too():
    data = synthetic(60, (5, 40), seed=3)
    order = np.lexsort([data.labels, data.queries.document_query])
    worst = RankingData(data.X[order], data.labels[order], qid=data.qid[order])
    assert "worst first" in found(check(worst), "file-order").summary
    best = RankingData(data.X[order[::-1]], data.labels[order[::-1]], qid=data.qid[order[::-1]])
    assert "best first" in found(check(best), "file-order").summary


@pytest.mark.parametrize("sign", [1, -1])
def test_a_column_that_is_the_label_or_nearly_orders_it(sign):
    data = synthetic(60, (5, 40), n_features=4, seed=3)
    rng = np.random.default_rng(0)
    nearly = sign * (data.labels + rng.normal(0, 0.2, data.n_documents))
    X = np.column_stack([data.X, data.labels, nearly, np.where(rng.random(data.n_documents) < 0.5, np.nan, 1.0)])
    leak = found(check(data.replace(X=X, feature_names=None)), "label-leak")
    assert leak.count == 2
    assert "5 (the label itself)" in leak.examples
    assert leak.examples[1].startswith("6 (")
    thin = data.replace(X=sparse.csr_array(np.nan_to_num(X)), feature_names=None)
    assert found(check(thin), "label-leak").count == 2
    assert "label-leak" not in {finding.code for finding in check(data).findings}


def test_near_copies_across_splits():
    first, second = synthetic(40, (5, 20), n_features=6, seed=1), synthetic(30, (5, 20), n_features=6, seed=2)
    codes = {finding.code for finding in check(first, second).findings}
    assert "near-copies" not in codes
    copied = first.select(np.arange(5))
    X = copied.X.astype(np.float64) * (1 + 1e-6)
    rounded = copied.replace(X=X, qids=[f"n{number}" for number in range(5)])
    near = found(check(first, rounded), "near-copies")
    assert near.count >= 0.95 * copied.n_documents
    few = synthetic(40, (5, 20), n_features=1, seed=4)  # features that are coarse agree by chance
    coarse = [one.replace(X=np.round(one.X, 1)) for one in (few, synthetic(40, (5, 20), n_features=1, seed=5))]
    assert "near-copies" not in {finding.code for finding in check(*coarse).findings}
