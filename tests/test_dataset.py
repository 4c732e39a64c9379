"""Queries, grades and RankingData: what they promise about any ragged shape, and what they refuse."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from ragged import ranking_data, sizes
from toprank.data.arrays import Grades
from toprank.data.concatenation import concatenate
from toprank.data.dataset import RankingData
from toprank.data.hashes import digest
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError

# Queries


@given(sizes, st.data())
def test_queries_reduce_like_a_loop(counts, data):
    queries = Queries.from_sizes(counts)
    values = np.array(data.draw(st.lists(st.integers(-9, 9), min_size=sum(counts), max_size=sum(counts))))
    lists = [values[part] for part in queries]
    assert [len(part) for part in lists] == counts == queries.sizes.tolist()
    assert queries.sum(values).tolist() == [part.sum() for part in lists]
    assert queries.max(values).tolist() == [part.max() for part in lists]
    assert queries.min(values).tolist() == [part.min() for part in lists]
    np.testing.assert_allclose(queries.mean(values), [part.mean() for part in lists], rtol=1e-15)
    assert queries.broadcast(range(len(counts))).tolist() == queries.document_query.tolist()
    assert Counter(queries.document_query.tolist()) == dict(enumerate(counts))


@given(sizes)
def test_queries_are_values(counts):
    queries = Queries.from_sizes(counts)
    assert queries == Queries(queries.offsets) == pickle.loads(pickle.dumps(queries))
    assert hash(queries) == hash(Queries(queries.offsets.tolist()))
    assert queries != Queries.from_sizes([*counts, 1])


def test_queries_count_truth_values_and_rows_of_a_matrix():
    queries = Queries([0, 2, 5])
    assert queries.sum([True, True, False, True, True]).tolist() == [2, 2]
    matrix = np.arange(10.0).reshape(5, 2)
    assert queries.sum(matrix).tolist() == [[0 + 2, 1 + 3], [4 + 6 + 8, 5 + 7 + 9]]
    assert queries.mean(matrix).tolist() == [[1, 2], [6, 7]]


@pytest.mark.parametrize("name", ["offsets", "sizes", "document_query"])
def test_queries_cannot_be_changed(name):
    with pytest.raises(ValueError, match="read-only"):
        getattr(Queries([0, 2, 5]), name)[0] = 1


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0], "at least two"),
        ([[0, 1]], "at least two"),
        ([0.0, 1.0], "integers"),
        ([1, 2], "start at 0"),
        ([0, 2, 2], "number 1 .* 0 documents"),
        ([0, 3, 2], "number 1 .* -1 documents"),
        ([[0], [1, 2]], "one-dimensional list"),
        (
            [0, 2**63 - 1, -2, 10],
            "number 1 .* -9223372036854775809 documents",
        ),  # whose difference is above 0 in 64 bits
        (np.array([0, 200, 100, 250], dtype=np.uint8), "number 1 .* -100 documents"),
        ([0, 2**63 - 1], "9223372036854775807 is too large"),
        (np.array([0, 2**63], dtype=np.uint64), "9223372036854775808 is too large"),
    ],
)
def test_bad_offsets_are_refused(offsets, message):
    with pytest.raises(DataError, match=message):
        Queries(offsets)


@pytest.mark.parametrize("sizes", [[], [0], [2, -1], [1.5], [[1]], [2**63 - 1, 2**63 - 1, 12], [2**63, 2**63]])
def test_bad_sizes_are_refused(sizes):
    with pytest.raises(DataError, match="size"):
        Queries.from_sizes(sizes)


@pytest.mark.parametrize("values", [[1.0], 3.0, [1.0, 2.0, 3.0, 4.0]])
def test_values_must_match_the_documents(values):
    with pytest.raises(DataError, match=r"values for 3 documents"):
        Queries([0, 3]).sum(values)
    with pytest.raises(DataError, match=r"values for 2 queries"):
        Queries([0, 1, 3]).broadcast(values)


# Grades


@given(st.lists(st.one_of(st.sampled_from([0.0, 1.0, 2.0, 63.0, 64.0, 0.5, -1.0, np.nan, -0.0]), st.floats(-5, 300))))
def test_grades_are_codes_of_the_labels(labels):
    labels = np.array(labels)
    grades = Grades.from_labels(labels)
    np.testing.assert_array_equal(grades.values[grades.codes], labels)
    assert (np.diff(grades.values[~np.isnan(grades.values)]) > 0).all()
    assert not np.isnan(grades.values[:-1]).any()


def test_more_than_256_grades_need_wider_codes():
    labels = np.arange(300) / 2
    np.testing.assert_array_equal(Grades.from_labels(labels).codes, np.arange(300))


# RankingData: shapes, parts, equality


@given(ranking_data())
def test_parts_by_query_are_what_the_slices_say(data):
    for number, part in enumerate(data.queries):
        one = data.select([number])
        np.testing.assert_array_equal(one.labels, data.labels[part])
        np.testing.assert_array_equal(_dense(one.X), _dense(data.X)[part])
        assert one.qids.tolist() == [data.qids[number]]
        assert one.qid.tolist() == data.qid[part].tolist()


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.uint64, np.int64])
def test_queries_are_selected_by_numbers_of_any_type(kind):
    data = RankingData(np.zeros((127, 0)), np.arange(127), qid=np.arange(127))
    for order in ([126, 0], [5, 4, 3], [0, 126], list(range(126, -1, -1)), [7]):
        chosen = data.select(np.array(order, dtype=kind))
        assert chosen.labels.tolist() == chosen.qids.tolist() == order


def test_the_first_feature_id_is_kept_and_must_be_the_same_in_all_parts():
    data = RankingData(np.zeros((3, 1)), qid=[1, 2, 3], first_feature_id=0)
    parts = [data.select([0]), data.select([2, 1]), data.filter([False, True, False]).replace(qids=[9])]
    assert {part.first_feature_id for part in (*parts, data.without_features(), concatenate(parts))} == {0}
    unknown = parts[1].replace(first_feature_id=None)
    assert concatenate([parts[0], unknown]).first_feature_id == 0
    with pytest.raises(DataError, match="first column is feature 0 in some parts and feature 1 in others"):
        concatenate([parts[0], parts[1].replace(first_feature_id=1)])
    assert data.equals(data.replace(first_feature_id=None))


def test_neighbors_are_neighbors_whatever_the_type():
    data = RankingData(np.zeros((300, 0)), np.arange(300), qid=np.arange(300))
    assert data.select(np.array([255, 0], dtype=np.uint8)).labels.tolist() == [255, 0]  # 0 - 255 = 1 in 8 bits


# The order of the source


def rows_of_text(data):
    """Which row of the text each document is: X says it."""
    return np.asarray(data.X)[:, 0]


@given(ranking_data(), st.data())
def test_whatever_is_made_of_data_knows_the_order_of_its_source(data, draw):
    rows = np.arange(data.n_documents, dtype=np.float64)
    scattered = draw.draw(st.permutations(range(data.n_documents)))
    given = RankingData(rows[:, None], qid=data.qid[scattered], regroup=True)
    order = draw.draw(st.permutations(range(given.n_queries)))
    part = given.select(order[: draw.draw(st.integers(1, len(order)))])
    mask = np.array(draw.draw(st.lists(st.booleans(), min_size=len(part), max_size=len(part))))
    parts = [given, part] if not mask.any() else [given, part, part.filter(mask)]

    def source_of(one):  # the rows of the text that are left, in their order; rows that were not moved are as they lie
        return rows_of_text(one) if given.source_rows is None else np.sort(rows_of_text(one))

    for one in parts:
        there = source_of(one)
        np.testing.assert_array_equal(one.aligned(there, order="source"), rows_of_text(one))
        np.testing.assert_array_equal(one.in_source_order(rows_of_text(one)), there)
    renamed = [one.replace(qids=[f"{number}/{qid}" for qid in one.qids]) for number, one in enumerate(parts)]
    whole = concatenate(renamed)
    there = np.concatenate([source_of(one) for one in parts])
    np.testing.assert_array_equal(whole.aligned(there, order="source"), rows_of_text(whole))
    np.testing.assert_array_equal(whole.in_source_order(rows_of_text(whole)), there)


@pytest.mark.parametrize("values", [7.0, [1, 2], [1, 2, 3, 4]])
@pytest.mark.parametrize("regroup", [False, True])
def test_values_for_other_rows_than_those_of_a_part_are_refused(values, regroup):
    data = RankingData(np.zeros((4, 1)), qid=["a", "b", "a", "b"] if regroup else list("aabb"))
    part = data.filter([True, True, True, False])
    for method in (part.aligned, part.in_source_order):
        with pytest.raises(DataError, match=r"values for 3 documents; give one value for each document"):
            method(values)


@given(ranking_data(), st.randoms(use_true_random=False))
def test_concatenate_undoes_select(data, random):
    order = random.sample(range(data.n_queries), data.n_queries)
    parts = [data.select([number]) for number in order]
    joined = concatenate(parts)
    assert joined.equals(data.select(order))
    assert joined.fingerprint == data.select(order).fingerprint
    back = np.argsort(order)
    assert joined.select(back).equals(data)
    assert joined.select(back).fingerprint == data.fingerprint


@given(ranking_data())
def test_the_constructor_accepts_what_it_gave(data):
    again = RankingData(
        data.X,
        data.labels,
        qid=data.qid,
        document_ids=data.document_ids,
        document_weights=data.document_weights,
        query_weights=data.query_weights,
        positions=data.positions,
        teacher=data.teacher,
        feature_names=data.feature_names,
    )
    assert again.equals(data)
    assert data.replace().equals(data)
    assert pickle.loads(pickle.dumps(data)).equals(data)


@given(ranking_data(), st.randoms(use_true_random=False))
def test_regroup_is_stable_and_by_first_appearance(data, random):
    rows = list(range(data.n_documents))
    random.shuffle(rows)
    shuffled = RankingData(_dense(data.X)[rows], np.array(rows, float), qid=data.qid[rows], regroup=True)
    assert shuffled.qids.tolist() == list(dict.fromkeys(data.qid[rows].tolist()))
    expected = [row for qid in shuffled.qids for row in rows if data.qid[row] == qid]
    assert shuffled.labels.tolist() == expected
    np.testing.assert_array_equal(shuffled.X, _dense(data.X)[expected])


@given(ranking_data(), st.data())
def test_keep_drops_documents_and_empty_queries(data, draw):
    mask = np.array(draw.draw(st.lists(st.booleans(), min_size=len(data), max_size=len(data))))
    if not mask.any():
        with pytest.raises(DataError, match="The mask selects no document"):
            data.filter(mask)
        return
    kept = data.filter(mask)
    np.testing.assert_array_equal(kept.labels, data.labels[mask])
    assert kept.qid.tolist() == data.qid[mask].tolist()
    np.testing.assert_array_equal(_dense(kept.X), _dense(data.X)[mask])


def _dense(X):
    return X if isinstance(X, np.ndarray) else X.toarray()


def small(**changes):
    values = {"X": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "y": [0, 1, 2], "qid": ["a", "a", "b"]} | changes
    return RankingData(values.pop("X"), values.pop("y"), **values)


def test_every_difference_shows_in_equals_and_in_the_fingerprint():
    base = small()
    different = [
        small(X=[[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]),
        small(X=np.float32([[1, 2], [3, 4], [5, 6]])),
        small(X=sparse.csr_matrix([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])),
        small(y=[0, 1, 1]),
        small(qid=["a", "b", "b"]),
        small(qid=["a", "a", "c"]),
        small(document_ids=["x", "y", "z"]),
        small(document_weights=[1, 1, 1]),
        small(query_weights=[1, 1]),
        small(positions=[1, 2, 1]),
        small(teacher=[1.0, 2.0, 1.0]),
        small(feature_names=["f", "g"]),
    ]
    assert base.equals(small())
    assert base.fingerprint == small().fingerprint
    assert not any(base.equals(other) for other in different)
    assert len({data.fingerprint for data in [base, *different]}) == len(different) + 1


def test_sparse_data_of_another_width_are_other_data():
    narrow, wide = (small(X=sparse.csr_matrix(np.eye(3, width))) for width in (3, 4))
    assert not narrow.equals(wide)
    assert narrow.fingerprint != wide.fingerprint


def test_floats_are_kept_without_a_copy_and_cannot_be_changed():
    for dtype in (np.float32, np.float64):
        X = np.ones((3, 2), dtype)
        data = small(X=X)
        assert np.shares_memory(data.X, X)
        with pytest.raises(ValueError, match="read-only"):
            data.X[0, 0] = 2
        X[0, 0] = 7  # the caller's own array stays writable
    matrix = sparse.csr_matrix(np.eye(3))
    data = small(X=matrix)
    assert np.shares_memory(data.X.data, matrix.data)
    with pytest.raises(ValueError, match="read-only"):
        data.X.data[0] = 2


def test_any_sparse_format_becomes_canonical_csr():
    repeated = sparse.coo_matrix(([1.0, 2.0, 4.0], ([0, 0, 2], [1, 1, 0])), shape=(3, 2))
    unsorted = sparse.csr_matrix((np.array([1.0, 2.0]), np.array([1, 0]), np.array([0, 2, 2, 2])), shape=(3, 2))
    for matrix in (
        repeated,
        unsorted,
        unsorted.astype(int),
        repeated.tocsc(),
        sparse.csr_array(repeated),
        sparse.lil_matrix(repeated),
    ):
        data = small(X=matrix)
        assert data.is_sparse
        assert data.X.has_canonical_format
        np.testing.assert_array_equal(data.X.toarray(), matrix.toarray())
    assert unsorted.indices.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("kind", "part", "value"),
    [
        ("csr", "indices", np.array([0, 2, 1], np.int32)),  # as wide as the matrix, or wider
        ("csr", "indices", np.array([0, -1, 1], np.int32)),
        ("csr", "indices", np.array([0.0, 1.0, 1.0])),
        ("csr", "indices", np.array([0, 1], np.int32)),  # shorter than the values
        ("csr", "indptr", np.array([0, 1, 2, 1 << 30], np.int32)),
        ("csr", "indptr", np.array([0, 2, 1, 3], np.int32)),
        ("csr", "indptr", np.array([1, 1, 2, 3], np.int32)),
        ("csr", "indptr", np.array([0, 1, 3], np.int32)),  # of fewer rows
        ("csc", "indices", np.array([0, 1, 3], np.int32)),
        ("csc", "indptr", np.array([0, 1 << 30, 3], np.int32)),
        ("bsr", "indices", np.array([0, 1, 1 << 30], np.int32)),
        ("coo", "row", np.array([0, 1, 3], np.int32)),
        ("coo", "col", np.array([0, -2, 1], np.int32)),
        ("lil", "rows", np.array([[0], [1 << 30], [1]])),
    ],
)
@pytest.mark.parametrize("type_of", [sparse.coo_matrix, sparse.coo_array])
def test_a_sparse_matrix_whose_indices_lead_outside_is_refused(kind, part, value, type_of):
    matrix = type_of(([1.0, 2.0, 4.0], ([0, 1, 2], [0, 1, 1])), shape=(3, 2)).asformat(kind)
    if part == "rows":
        matrix.rows[:] = value.tolist()
    elif kind == "coo" and type_of is sparse.coo_array:
        matrix.coords = (value, matrix.col) if part == "row" else (matrix.row, value)
    else:
        setattr(matrix, part, value)
    with pytest.raises(DataError, match=r"invalid sparse matrix: its index arrays do not match its shape \(3, 2\) or"):
        small(X=matrix)


def test_neighboring_queries_are_selected_without_a_copy():
    data = small(qid=["a", "b", "c"])
    assert np.shares_memory(data.select([1, 2]).X, data.X)
    assert not np.shares_memory(data.select([0, 2]).X, data.X)


def test_frames_as_features():
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    columns = {"f": np.float32([1, 2, 3]), "g": np.array([4, 5, 6], np.int16)}
    mixed = [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns), pa.RecordBatch.from_pydict(columns)):
        data = small(X=frame)
        assert data.feature_names == ("f", "g")
        assert data.X.dtype == np.float32
        assert data.X.tolist() == mixed
    uniform = pd.DataFrame({"f": [1.0, 2.0, 3.0]})
    assert small(X=uniform).X.dtype == np.float64
    missing = pd.DataFrame({"f": pd.array([1, None, 3], dtype="Int64")})
    np.testing.assert_array_equal(small(X=missing).X[:, 0], [1, np.nan, 3])


def test_ids_in_all_their_spellings():
    for qid in ([7, 7, 9], np.array([7, 7, 9], np.uint8), [7.0, 7.0, 9.0], np.array([7, 7, 9], object)):
        assert small(qid=qid).qids.tolist() == [7, 9]
    for qid in (["x", "x", "é"], np.array(["x", "x", "é"], object), [b"x", b"x", "é".encode()]):
        assert small(qid=qid).qids.tolist() == ["x", "é"]
    assert small(qid=np.array([2**63, 2**63, 1], np.uint64)).qids.tolist() == [str(2**63), "1"]
    assert small(document_ids=[1, 2, 3]).document_ids.tolist() == ["1", "2", "3"]


def test_unjudged_documents_have_no_label_or_minus_one():
    assert small(y=[np.nan, -1, 0]).judged.tolist() == [False, False, True]
    assert not small(y=None).judged.any()
    assert repr(small(y=None)) == "RankingData(2 queries, 3 documents, 2 features, dense float64, no judgments)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": []}, "two dimensions"),
        ({"X": np.empty((0, 2)), "y": []}, "X has no rows"),
        ({"X": [[1.0], [2.0, 3.0], [4.0]]}, "X must hold numbers"),
        ({"X": [["a"], ["b"], ["c"]]}, "Encode text"),
        ({"X": sparse.csr_matrix(np.eye(3) * 1j)}, "real numbers"),
        ({"y": [0, 1]}, "2 labels for 3 documents"),
        ({"y": [[0], [1], [2]]}, "one dimension"),
        ({"y": [0, 1, np.inf]}, "row 2 is inf"),
        ({"y": ["high", "low", "low"]}, "labels must hold numbers"),
        ({"qid": ["a", "b", "a"], "regroup": False}, "query a .* starts again at row 2"),
        ({"qid": [1.5, 1.5, 2]}, r"whole numbers or strings; row 0 has 1\.5"),
        ({"qid": [1, 1, np.nan]}, "row 2 has nan"),
        ({"qid": [1.0, 1.0, 1e19]}, "row 2"),
        ({"qid": ["a", None, "b"]}, "no value in row 1"),
        ({"qid": [["a"], ["a", "b"], ["c"]]}, "one-dimensional list"),
        ({"qid": None, "qids": ["a"]}, "qids .* needs queries="),
        ({"queries": Queries([0, 3])}, "Both qid and queries are given"),
        ({"qid": None, "queries": Queries([0, 2])}, "2 documents, but X has 3 rows"),
        ({"qid": None, "queries": Queries([0, 1, 3]), "qids": [1, 1]}, "Two queries have the id 1"),
        ({"document_ids": ["x"]}, "1 document_ids for 3 documents"),
        ({"document_weights": [1, -1, 1]}, "number 1 is -1"),
        ({"document_weights": [0, 0, 0]}, "all zero"),
        ({"document_weights": ["a", "b", "c"]}, "document_weights must hold numbers"),
        ({"query_weights": [1, np.nan]}, "finite"),
        ({"query_weights": [1, 2, 3]}, "3 query_weights for 2 queries"),
        ({"positions": [1.0, 2.0, 3.0]}, "whole numbers"),
        ({"teacher": [1.0, np.nan, 3.0]}, "teacher's scores must be finite; row 1 has nan"),
        ({"teacher": [1.0, 2.0]}, "teacher"),
        ({"feature_names": ["f"]}, "1 feature names for 2 features"),
        ({"feature_names": ["f", "f"]}, "Two features are called 'f'"),
    ],
)
def test_what_cannot_be_ranked_is_refused(changes, message):
    with pytest.raises(DataError, match=message):
        small(**changes)


def test_missing_values_of_pandas_are_missing_ids():
    import pandas as pd

    with pytest.raises(DataError, match="no value in row 1"):
        small(qid=np.array(["a", pd.NA, "b"], object))


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ([], "No query"),
        ([False, False], "No query"),
        ([True], "mask has 1 values for 2"),
        ([2], "Query number 2 does not exist"),
        ([-1], "Query number -1 does not exist"),
        ([0, 0], "twice"),
        ([0.0], "list of numbers"),
        (["a"], "list of numbers"),
        (np.array([2**64 - 1], dtype=np.uint64), f"Query number {2**64 - 1}"),
        ([2**70], "list of numbers"),
    ],
)
def test_bad_selections_are_refused(which, message):
    with pytest.raises(DataError, match=message):
        small().select(which)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([2**53 + 1, 2**53, 1], [2**53 + 1, 2**53, 1]),
        ([2**63, 2**63 + 1, 1], [str(2**63), str(2**63 + 1), "1"]),  # NumPy would make floats of these
        ([2**70, 2**70 + 1, 1], [str(2**70), str(2**70 + 1), "1"]),
        (np.array([2**63, 2**63 + 1, 1], dtype=np.uint64), [str(2**63), str(2**63 + 1), "1"]),
        (np.array([2**53 - 1, 2.0, 1.0]), [2**53 - 1, 2, 1]),
        (np.array([2**24 - 1, 2, 1], dtype=np.float32), [2**24 - 1, 2, 1]),
        ([3.0, 2.0, 1.0], [3, 2, 1]),
        (["a", "a\0b", "c"], ["a", "a\0b", "c"]),
    ],
)
def test_different_ids_stay_different(ids, expected):
    assert small(qid=ids).qids.tolist() == expected
    assert small(document_ids=ids, qid=[1, 1, 1]).document_ids.tolist() == list(map(str, expected))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.array([1.0, 2.0**53, 3.0]), "float64, which is exact only for integers below 9007199254740992; row 1 "),
        (np.array([1, 2, -(2**24)], dtype=np.float32), "float32, .* below 16777216; row 2 has -16777216.0"),
        ([0.0, 1e300, 1.5], "below 9007199254740992; row 1 has 1e[+]300"),
        ([0.0, 1.5, 1e300], "whole numbers or strings; row 1 has 1.5"),
        (["b", "a", "a\0"], "'a.x00' in row 2; ids may not end in a zero byte"),
        (np.array(["a\0", "a", "b"], dtype=object), "in row 0; ids may not end in a zero byte"),
        (np.array(["a", "a\0", "b"], dtype=np.dtypes.StringDType()), "in row 1; ids may not end in a zero byte"),
        (["a", "b", "c\ud800"], "in row 2, which cannot be written as UTF-8"),
        (np.array(["a\udfff", "b", "c"]), "in row 0, which cannot be written as UTF-8"),
    ],
)
@pytest.mark.parametrize("role", ["qid", "document_ids"])
def test_ids_that_could_become_one_or_cannot_be_written_are_refused(ids, message, role):
    with pytest.raises(DataError, match=message):
        small(**{"qid": [1, 1, 1], role: ids})


def test_letters_beyond_the_surrogates_are_letters():
    words = ["\ud7ff", "\ue000", "\U0001f600"]  # right below, right above, and one that takes two in UTF-16
    assert small(qid=words).qids.tolist() == words


@pytest.mark.parametrize("name", ["positions", "source_rows"])
def test_numbers_of_rows_beyond_64_bits_are_refused(name):
    with pytest.raises(DataError, match=f"{name} must be below 2.63; row 1 has {2**63}"):
        small(**{name: np.array([1, 2**63, 3], dtype=np.uint64)})


@pytest.mark.parametrize("mask", [[True], [1, 0, 1], "all"])
def test_bad_masks_are_refused(mask):
    with pytest.raises(DataError, match="mask of 3 booleans"):
        small().filter(mask)


def test_replace_checks_again_and_knows_its_fields():
    assert small().replace(labels=[2, 2, 2]).labels.tolist() == [2, 2, 2]
    with pytest.raises(DataError, match="2 labels for 3"):
        small().replace(labels=[1, 2])
    with pytest.raises(UnknownNameError, match="did you mean 'labels'"):
        small().replace(label=[1, 2, 3])


def test_concatenate_refuses_what_does_not_fit():
    other = small(qid=["c", "c", "d"])
    assert concatenate([small(), other]).qids.tolist() == ["a", "b", "c", "d"]
    with pytest.raises(DataError, match="concatenate got no data"):
        concatenate([])
    with pytest.raises(DataError, match="Query a occurs in two parts"):
        concatenate([small(), small()])
    with pytest.raises(DataError, match=r"different numbers of features: \[1, 2\]"):
        concatenate([small(), small(X=[[1.0]] * 3, qid=[1, 1, 2])])
    with pytest.raises(DataError, match="Some parts have document_ids"):
        concatenate([small(), other.replace(document_ids=["x", "y", "z"])])
    with pytest.raises(DataError, match="feature names"):
        concatenate([small(), other.replace(feature_names=["f", "g"])])


def test_concatenate_mixes_kinds_of_ids_and_of_matrices():
    numbered = small(qid=[1, 1, 2], X=sparse.csr_matrix(np.eye(3, 2)))
    both = concatenate([small(), numbered])
    assert both.qids.tolist() == ["a", "b", "1", "2"]
    assert both.is_sparse
    np.testing.assert_array_equal(both.X.toarray(), np.concatenate([small().X, np.eye(3, 2)]))


@given(ranking_data(sparse=st.just(False)))
def test_a_digest_ignores_layout_but_no_value(data):
    reference = digest(data.X)
    assert digest(np.asfortranarray(data.X)) == reference
    assert digest(np.repeat(data.X, 2, axis=0)[::2]) == reference
    if data.X.size:
        changed = data.X.copy()
        changed.view(np.uint8)[-1, -1] ^= 1
        assert digest(changed) != reference


def test_nothing_one_dimensional_is_shared_with_the_caller():
    given = {
        "y": np.array([0.0, 1.0, 2.0]), "document_weights": np.array([1.0, 2.0, 3.0]), "positions": np.array([1, 2, 1]),
        "query_weights": np.array([1.0, 2.0]), "document_ids": np.array(["a", "b", "c"]), "qids": np.array([7, 8]),
        "source_rows": np.array([0, 1, 2]),
    }  # fmt: skip
    metadata = {"device": np.array(["phone", "desk"]), "rank": np.array([1, 2, 3])}
    data = RankingData(np.zeros((3, 1)), queries=Queries([0, 2, 3]), metadata=metadata, **given)
    by_row = RankingData(np.zeros((3, 1)), given["y"], qid=given["positions"])
    before, grades = pickle.loads(pickle.dumps(data)), data.grades.values.tolist()
    for array in (*given.values(), *metadata.values()):
        array[:] = array[::-1].copy() if array.dtype.kind != "f" else 0
        array[0] = array[-1]
    assert data.equals(before)
    assert data.source_rows.tolist() == [0, 1, 2]
    assert data.grades.values.tolist() == grades == [0, 1, 2]
    assert by_row.labels.tolist() == [0, 2, 1]
