"""Written text reads back as the same data, bit for bit."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

import toprank as tr
from support import shared_data
from toprank.data.dataset import RankingData
from toprank.data.letor import read_letor, write_letor
from toprank.data.letor import writing as letor_writing
from toprank.data.warnings import CodesWarning
from toprank.errors import DataError, FileError, FormatError, UnknownNameError


def same_bits(a, b):
    """Equal values, zeros with equal signs, NaN where NaN."""
    return (
        a.dtype == b.dtype
        and np.array_equal(a, b, equal_nan=True)
        and np.array_equal(np.signbit(a[a == 0]), np.signbit(b[b == 0]))
    )


word = st.text(
    st.characters(codec="utf-8", exclude_characters=" \t\r\n#", exclude_categories=["Cs"]), min_size=1
).filter(lambda w: not w.endswith("\0"))


@st.composite
def data_sets(draw):
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    n, width = sum(sizes), draw(st.integers(1, 5))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    X = draw(hnp.arrays(dtype, (n, width), elements=st.floats(width=8 * dtype().itemsize, allow_infinity=True)))
    if draw(st.booleans()):
        kept = draw(hnp.arrays(bool, (n, width)))
        rows, columns = np.nonzero(kept)
        X = sparse.csr_matrix((X[kept], (rows, columns)), shape=(n, width))
    qids = draw(
        st.one_of(
            st.lists(st.integers(-(10**17), 10**17), min_size=len(sizes), max_size=len(sizes), unique=True),
            st.lists(word.map("q{}".format), min_size=len(sizes), max_size=len(sizes), unique=True),
        )
    )
    labels = draw(hnp.arrays(np.float64, n, elements=st.floats(allow_nan=False, allow_infinity=False)))
    weights = st.lists(st.floats(0, 1e300), min_size=n, max_size=n).filter(any)
    return RankingData(
        X,
        labels,
        qid=np.repeat(np.array(qids), sizes),
        document_ids=draw(st.none() | st.lists(word, min_size=n, max_size=n)),
        document_weights=draw(st.none() | weights),
        positions=draw(st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=n, max_size=n)),
        teacher=draw(st.none() | st.lists(st.floats(-1e300, 1e300), min_size=n, max_size=n)),
    )


@settings(max_examples=200, deadline=None)
@given(
    data=data_sets(),
    first=st.sampled_from([0, 1]),
    batch=st.integers(1, 8),
    suffix=st.sampled_from(["", ".gz", ".zst"]),
)
def test_what_is_written_is_read(tmp_path_factory, data, first, batch, suffix):
    path = tmp_path_factory.mktemp("trip") / f"data.txt{suffix}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor_writing, "_BATCH", batch)
        write_letor(data, path, first_feature_id=first)
    back = read_letor(
        path,
        dtype=data.X.dtype,
        layout="sparse" if data.is_sparse else "dense",
        first_feature_id=first,
        n_features=data.n_features,
    )
    assert back.arrays().keys() == data.arrays().keys()
    for name, array in data.arrays().items():
        got = back.arrays()[name]
        assert same_bits(array, got) if array.dtype.kind == "f" else np.array_equal(array, got), name


@settings(max_examples=50, deadline=None)
@given(data=data_sets().filter(lambda data: not data.is_sparse))
def test_nan_may_be_left_out(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("omit") / "data.txt"
    write_letor(data, path, missing="omit")
    features = [line.split("#")[0].split()[2:] for line in path.read_bytes().decode().split("\n")]
    assert not any(word.endswith(":NULL") for words in features for word in words)
    back = read_letor(path, dtype=data.X.dtype, n_features=data.n_features, first_feature_id=1)
    assert same_bits(data.X, back.X)


@pytest.mark.parametrize("name", ["OHSUMED-null", "MQ2008"])
def test_real_data_survive(tmp_path, name):
    data = read_letor(shared_data("letor", name, "S1.txt"))
    write_letor(data, tmp_path / "copy.txt")
    assert read_letor(tmp_path / "copy.txt").equals(data)


def test_the_text_is_the_shortest(tmp_path):
    X = np.array([[0.1, 1e-7, 2.0, np.nan, -np.inf, 123456.0]], dtype=np.float32)
    write_letor(RankingData(X, [np.nan], qid=["x"], document_ids=["d"]), tmp_path / "a")
    assert (tmp_path / "a").read_text() == "NULL qid:x 1:0.1 2:1e-7 3:2 4:NULL 5:-inf 6:123456 #docid = d\n"


def test_equal_data_give_equal_bytes(tmp_path):
    data = RankingData(np.ones((3, 2)), [0, 1, 2])
    for name in ("a.gz", "b.gz"):
        write_letor(data, tmp_path / name)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()).count(b"\n") == 3


def test_rows_of_a_sparse_matrix_are_written_sorted_and_summed(tmp_path):
    X = sparse.csr_matrix((np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    write_letor(RankingData(X, [0]), tmp_path / "a")
    assert (tmp_path / "a").read_text() == "0 qid:0 1:2 3:5\n"
    assert X.indices.tolist() == [2, 0, 2]


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        ({"qid": ["a b", "c"]}, {}, DataError, "query id 'a b' contains whitespace"),
        ({"qid": ["a#", "c"]}, {}, DataError, "query id 'a#'"),
        ({"qid": ["", "c"]}, {}, DataError, "query id '' is empty"),
        ({"document_ids": ["a\n", "c"]}, {}, DataError, "document id"),
        ({"document_ids": ["\ud800", "c"]}, {}, DataError, "UTF-8"),
        ({}, {"missing": "null"}, UnknownNameError, "did you mean"),
        ({}, {"first_feature_id": 2}, DataError, "first_feature_id"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, data, options, error, message):
    with pytest.raises(error, match=message):
        write_letor(RankingData(np.ones((2, 1)), [0, 1], **data), tmp_path / "a", **options)
    assert list(tmp_path.iterdir()) == []


def test_nan_in_a_sparse_matrix_cannot_be_left_out(tmp_path):
    X = sparse.csr_matrix(np.array([[np.nan, 1.0]]))
    with pytest.raises(DataError, match="into zeros"):
        write_letor(RankingData(X, [0]), tmp_path / "a", missing="omit")


def test_foreign_side_files_are_not_adopted(tmp_path):
    data = RankingData(np.ones((2, 1)), [0, 1])
    (tmp_path / "a.weight").write_text("1\n2\n")
    with pytest.raises(FileError, match="would be read as part of the new"):
        write_letor(data, tmp_path / "a")
    write_letor(data.replace(document_weights=[0.1, 2.0]), tmp_path / "a")
    assert (tmp_path / "a.weight").read_text() == "0.1\n2.0\n"


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_text("old")
    data = RankingData(np.ones((2, 1)), [0, 1], document_weights=[1, 2])

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(letor_writing, "_lines", fail)
    with pytest.raises(FileError, match="cannot be written: No space left on device"):
        write_letor(data, path)
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
    assert path.read_text() == "old"
    with pytest.raises(FileError, match="cannot be written"):
        write_letor(data, tmp_path / "absent" / "a")


# What text has no place for


def full_data(**changes):
    fields = {
        "qid": ["b", "b", "a"], "query_weights": [0.25, 3.0], "document_weights": [1.0, 2.0, 0.5],
        "positions": [1, 2, 1], "teacher": [0.1, -3.0, 1e-9], "document_ids": ["x", "y", "z"],
        "feature_names": ["bm25", "the price, in €"],
    }  # fmt: skip
    return RankingData(np.array([[1.0, 2.0], [3.0, np.nan], [np.nan, 0.5]]), [np.nan, 2.0, -1.0], **(fields | changes))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("omit", [False, True])
def test_what_data_hold_comes_back_from_text_and_side_files(tmp_path, name, first, omit):
    data = full_data().select([1, 0])
    write_letor(data, tmp_path / name, first_feature_id=first, missing="omit" if omit else "NULL")
    assert read_letor(tmp_path / name, dtype=np.float64).equals(data)
    assert tr.read(tmp_path / name, dtype=np.float64).equals(data)
    assert tr.convert(tmp_path / name, tmp_path / "a.toprank-data", dtype=np.float64).equals(data)


def test_text_that_is_regrouped_keeps_the_weights_of_its_queries(tmp_path):
    (tmp_path / "a.txt").write_text("1 qid:1 1:1\nNULL qid:2 1:2\n0 qid:1 1:3\n")
    (tmp_path / "a.txt.query_weight").write_text("5\n7\n5\n")
    data = read_letor(tmp_path / "a.txt", regroup=True)
    assert data.query_weights.tolist() == [5, 7]
    np.testing.assert_array_equal(data.labels, [1, 0, np.nan])
    (tmp_path / "a.txt.query_weight").write_text("5\n7\n6\n")
    with pytest.raises(DataError, match="Query 1 has several query weights"):
        read_letor(tmp_path / "a.txt", regroup=True)


def test_several_texts_with_names_are_read_as_one(tmp_path):
    data = full_data(qid=[1, 1, 2])
    for number in range(2):
        write_letor(data.select([number]), tmp_path / f"{number}.txt")
    paths = [tmp_path / "0.txt", tmp_path / "1.txt"]
    assert read_letor(paths, dtype=np.float64).equals(data)
    assert tr.convert(paths, tmp_path / "a.toprank-data", dtype=np.float64).equals(data)
    (tmp_path / "1.txt.names").write_text("1 bm25\n2 price\n")
    with pytest.raises(FormatError, match="feature names differ"):
        read_letor(paths)
    (tmp_path / "1.txt.names").unlink()
    with pytest.raises(FormatError, match="is missing, but"):
        read_letor(paths)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no names"),
        ("1 a\n3 b\n", "Expected feature id 2"),
        ("bm25\nprice\n", "Expected feature id 1"),
        ("1 a\n", "file names the features 1 to 1, but the text is read with 1 to 2"),
    ],
)
def test_bad_names_are_refused(tmp_path, text, message):
    write_letor(full_data(), tmp_path / "a.txt")
    (tmp_path / "a.txt.names").write_text(text)
    with pytest.raises(FormatError, match=message):
        read_letor(tmp_path / "a.txt", n_features=2)


def test_names_that_could_not_be_read_back_and_stale_ones_are_refused(tmp_path):
    with pytest.raises(DataError, match="line break"):
        write_letor(full_data(feature_names=["a\nb", "c"]), tmp_path / "a.txt")
    write_letor(full_data(), tmp_path / "a.txt")
    with pytest.raises(FileError, match=r"a\.txt\.names exists"):
        write_letor(full_data(feature_names=None), tmp_path / "a.txt")


def test_codes_of_categories_do_not_leave_without_a_word(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"qid": [1, 1, 2], "label": [0, 1, 1], "f": [1.0, 2.0, 3.0], "color": list("rgr")})
    roles = {"features": ["f", "color"]}
    data = RankingData.from_frame(frame, **roles)
    with pytest.warns(CodesWarning, match=r"'color' holds codes of categories.*depend on the table.*like="):
        write_letor(data, tmp_path / "a.txt")
    codes = {RankingData.from_frame(part, **roles).X[0, 1] for part in (frame.iloc[:2], frame.iloc[2:])}
    assert len(codes) == 2  # the same level, read with other rows
    same = {RankingData.from_frame(part, like=data).X[0, 1] for part in (frame.iloc[:2], frame.iloc[2:])}
    assert len(same) == 1
