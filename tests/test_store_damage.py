"""A damaged stored copy: refused in a sentence when it is opened, verified or used; never a traceback or a crash."""

from __future__ import annotations

import json
import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse

import toprank as tr
from toprank.data import store, store_sparse
from toprank.data.cache import cached
from toprank.data.dataset import RankingData
from toprank.data.doctor import check
from toprank.data.store import open_store, write_store
from toprank.errors import FormatError

# Sparse indices


@pytest.fixture(scope="module")
def sparse_data():
    data = tr.synthetic(n_queries=40, n_features=6, n_grades=3, seed=0)
    return data.replace(X=sparse.csr_matrix(np.where(np.asarray(data.X) > 0.5, data.X, 0)), feature_names=None)


@pytest.fixture(scope="module")
def models(sparse_data):
    return [
        tr.LinearRanker("ListNet").fit(sparse_data),
        tr.ExpectedGainRanker("Multinomial").fit(sparse_data),
        tr.TreeRanker("ListNet", n_trees=2, threads=1).fit(sparse_data),
    ]


@pytest.fixture
def sparse_copy(sparse_data, tmp_path):
    path = tmp_path / "sparse.toprank-data"
    write_store(sparse_data, path)
    return path


def change(path, name, place, value):
    array = np.load(path / f"{name}.npy", mmap_mode="r+")
    array[place] = value
    array.flush()


@pytest.mark.parametrize(
    ("name", "share", "value"),
    [
        ("X.indptr", 0.5, 1 << 30),
        ("X.indptr", 0.5, -7),
        ("X.indptr", 0.5, 0),
        ("X.indices", 0.5, 1 << 30),
        ("X.indices", 0.5, 6),
        ("X.indices", 0.999, -1),
    ],
)
def test_indices_outside_of_the_matrix_are_refused_where_they_are_used(sparse_copy, models, name, share, value):
    size = len(np.load(sparse_copy / f"{name}.npy"))
    change(sparse_copy, name, int(share * size), value)
    uses = [lambda data: tr.write(data, sparse_copy.with_name("out.txt")), check, lambda data: data.select([39, 0])]
    uses += [lambda data: data.X @ np.ones(6), lambda data: data.replace(labels=data.labels)]
    uses += [lambda data, model=model: model.predict(data) for model in models]
    uses += [lambda data, model=model: type(model)(model.loss).fit(data) for model in models]
    for use in uses:
        data = open_store(sparse_copy)
        with pytest.raises(FormatError, match=rf"{name}\.npy holds indices that lie outside of X\. Make") as caught:
            use(data)
        assert caught.value.path == sparse_copy
    with pytest.raises(FormatError):
        open_store(sparse_copy, verify=True)


def test_rows_are_checked_by_themselves(sparse_copy, sparse_data):
    half = int(np.flatnonzero(np.diff(sparse_data.X.indptr))[200])
    change(sparse_copy, "X.indices", sparse_data.X.indptr[half], 6)
    X = open_store(sparse_copy).X
    assert (X[:half] != sparse_data.X[:half]).nnz == 0
    assert (X[half + 1 :] != sparse_data.X[half + 1 :]).nnz == 0
    assert X[half:half].shape == (0, 6)
    with pytest.raises(FormatError):
        X[half : half + 1]


def test_a_check_happens_once_and_in_pieces(sparse_copy, sparse_data, monkeypatch):
    monkeypatch.setattr(store_sparse, "_PIECE", 7)
    X = open_store(sparse_copy).X
    for rows in (slice(3, 50), slice(None), slice(-4, None), slice(9, 2)):
        assert (X[rows] != sparse_data.X[rows]).nnz == 0
    assert (X[5:60:2] != sparse_data.X[5:60:2]).nnz == 0  # which needs the arrays, and so a look at all of them
    monkeypatch.setattr(store_sparse.StoredMatrix, "_check", lambda *args: pytest.fail("checked again"))
    assert X.nnz == sparse_data.X.nnz
    assert (X[3:50] != sparse_data.X[3:50]).nnz == 0


def test_damage_on_the_border_of_pieces_is_seen(sparse_copy, sparse_data, monkeypatch):
    monkeypatch.setattr(store_sparse, "_PIECE", 8)
    row = int(np.flatnonzero(np.diff(sparse_data.X.indptr)[8::8])[0]) * 8 + 8
    change(sparse_copy, "X.indptr", row, 0)  # falls from the last number of a piece to the first of the next
    with pytest.raises(FormatError):
        open_store(sparse_copy).X.sum()


def test_what_is_computed_from_a_stored_matrix_is_ordinary(sparse_copy, sparse_data):
    X = open_store(sparse_copy).X
    expected = sparse_data.X
    for one, other in (
        (X * 2, expected * 2),
        (X.T, expected.T),
        (X.copy(), expected),
        (X[:, [1, 2]], expected[:, 1:3]),
    ):
        assert abs(one - other).nnz == 0
    again = pickle.loads(pickle.dumps(open_store(sparse_copy).X))
    assert abs(again - expected).nnz == 0


@pytest.mark.parametrize(("place", "value"), [(0, 1), (-1, 3)])
def test_ends_of_a_sparse_matrix_are_looked_at_on_opening(sparse_copy, place, value):
    change(sparse_copy, "X.indptr", place, value)
    with pytest.raises(FormatError, match="do not fit together"):
        open_store(sparse_copy)


# Order of rows, and names


@pytest.fixture
def copy(tmp_path):
    X = np.arange(12, dtype=np.float32).reshape(6, 2)
    data = RankingData(X, qid=[1, 2, 1, 2, 3, 3], regroup=True, feature_names=["length", "age"])
    write_store(data, tmp_path / "copy.toprank-data")
    return tmp_path / "copy.toprank-data"


def change_meta(folder, **changes):
    meta = json.loads((folder / "meta.json").read_text()) | changes
    (folder / "meta.json").write_text(json.dumps(meta))


def test_offsets_whose_differences_overflow_are_refused_on_opening(copy):
    n = len(open_store(copy))
    change(copy, "offsets", slice(1, 3), [2**63 - 1, n - 2])  # the first query too large, the next one negative
    with pytest.raises(FormatError, match="do not fit together"):
        open_store(copy)


@pytest.mark.parametrize("value", [0, 99, -7])
def test_verify_looks_at_the_order_of_the_source(copy, value):
    change(copy, "source_rows", 1, value)
    with pytest.raises(FormatError, match="content of 'source_rows' is not what was written"):
        open_store(copy, verify=True)


@pytest.mark.parametrize("names", [["age", "length"], ["length", "Age"], None])
def test_verify_looks_at_the_names(copy, names):
    change_meta(copy, feature_names=names)
    assert open_store(copy).feature_names == (None if names is None else tuple(names))
    with pytest.raises(FormatError, match="feature names are not what was written"):
        open_store(copy, verify=True)


def test_names_that_repeat_are_refused_on_opening(copy):
    change_meta(copy, feature_names=["a", "a"])
    with pytest.raises(FormatError, match="damaged: Two features are called 'a'"):
        open_store(copy)


def test_older_copies_have_no_hash_of_names(copy):
    meta = json.loads((copy / "meta.json").read_text())
    del meta["feature_names_hash"]
    (copy / "meta.json").write_text(json.dumps(meta))
    assert open_store(copy, verify=True).feature_names == ("length", "age")


# Headers


def header(text, size=118):
    return b"\x93NUMPY\x01\x00" + bytes([size, 0]) + text.ljust(size - 1) + b"\n"


@pytest.mark.parametrize(
    "start",
    [
        b"PK\x03\x04",  # NumPy's archives begin so
        b"PK\x05\x06" + bytes(18),
        b"\x80\x04",
        header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (6, 2"),
        header(b"{'descr': '''<f4"),
        header(b"(" * 110),
        header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-6, -2)}"),
        header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (0, %d)}" % 10**40),
        header(b"{'descr': '<U0', 'fortran_order': False, 'shape': (%d,)}" % 10**15),
        header(b"{'descr': '|O', 'fortran_order': False, 'shape': (6,)}"),
        header(b"{'descr': [('a', '<f4', (1, 2))], 'fortran_order': False, 'shape': (6,)}"),
        header(b"[1, 2"),
        b"\x93NUMPY\x03\x00\xff\xff\xff\xff",
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_damaged_headers_are_refused(copy, start, cut):
    whole = (copy / "X.npy").read_bytes()
    (copy / "X.npy").write_bytes(start if cut else start + whole[128:])
    with pytest.raises(FormatError, match=r"damaged: X\.npy"):
        open_store(copy)


def test_any_byte_of_a_header_may_be_damaged(copy, monkeypatch):
    monkeypatch.setattr(store.time, "sleep", lambda seconds: None)
    whole = (copy / "X.npy").read_bytes()
    expected = open_store(copy)
    for place in range(128):
        for flip in (1, 2, 8, 0x80):
            content = bytearray(whole)
            content[place] ^= flip
            (copy / "X.npy").write_bytes(content)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # NumPy tells that it read a header of old
                    data = open_store(copy)
            except FormatError:
                continue
            assert data.equals(expected)  # a change of blanks


def test_a_cache_with_a_damaged_header_is_made_again(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("?")
    data = RankingData(np.eye(3), [0, 1, 2])
    for _ in range(2):
        assert cached(text, {}, lambda path: data).equals(data)
        (tmp_path / "a.txt.toprank-data" / "X.npy").write_bytes(b"PK\x03\x04junk")
