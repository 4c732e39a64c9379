"""A damaged stored copy: refused in a sentence when it is opened, verified or used; never a traceback or a crash."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import warnings
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

import toprank as tr
from toprank import compute
from toprank.data.cache import cached
from toprank.data.dataset import RankingData
from toprank.data.store import open_store, write_store
from toprank.data.store import opening as store
from toprank.data.store import sparse as store_sparse
from toprank.doctor import check
from toprank.errors import FormatError, ToprankError

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
        with pytest.raises(FormatError, match=rf"{name}\.npy contains indices outside of X\. Write") as caught:
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
    monkeypatch.setattr(compute, "_PIECE_BYTES", 7 * sparse_data.X.indptr.itemsize)
    X = open_store(sparse_copy).X
    for rows in (slice(3, 50), slice(None), slice(-4, None), slice(9, 2)):
        assert (X[rows] != sparse_data.X[rows]).nnz == 0
    assert (X[5:60:2] != sparse_data.X[5:60:2]).nnz == 0  # which needs the arrays, and so a look at all of them
    monkeypatch.setattr(store_sparse.StoredMatrix, "_check", lambda *args: pytest.fail("checked again"))
    assert X.nnz == sparse_data.X.nnz
    assert (X[3:50] != sparse_data.X[3:50]).nnz == 0


def test_damage_on_the_border_of_pieces_is_seen(sparse_copy, sparse_data, monkeypatch):
    monkeypatch.setattr(compute, "_PIECE_BYTES", 8 * sparse_data.X.indptr.itemsize)
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
    with pytest.raises(FormatError, match="do not match each other"):
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
    with pytest.raises(FormatError, match="do not match each other"):
        open_store(copy)


@pytest.mark.parametrize("value", [0, 99, -7])
def test_verify_looks_at_the_order_of_the_source(copy, value):
    change(copy, "source_rows", 1, value)
    with pytest.raises(FormatError, match="content of 'source_rows' was changed: its hash differs"):
        open_store(copy, verify=True)


@pytest.mark.parametrize("names", [["age", "length"], ["length", "Age"], None])
def test_verify_looks_at_the_names(copy, names):
    change_meta(copy, feature_names=names)
    assert open_store(copy).feature_names == (None if names is None else tuple(names))
    with pytest.raises(FormatError, match="feature names are damaged: the hash differs"):
        open_store(copy, verify=True)


def test_verify_looks_for_names_where_there_were_none(tmp_path):
    write_store(RankingData(np.eye(2), qid=[1, 1]), tmp_path / "copy.toprank-data")
    change_meta(tmp_path / "copy.toprank-data", feature_names=["length", "age"])
    with pytest.raises(FormatError, match="feature names are damaged: the hash differs"):
        open_store(tmp_path / "copy.toprank-data", verify=True)


def test_verify_notices_that_what_the_columns_are_was_taken_out(tmp_path):
    frame = pa.table({"label": [0, 1], "qid": [1, 1], "brand": ["acme", "zenith"]})
    write_store(RankingData.from_frame(frame, features=["brand"]), tmp_path / "copy.toprank-data")
    meta = json.loads((tmp_path / "copy.toprank-data" / "meta.json").read_text())
    del meta["columns"]
    (tmp_path / "copy.toprank-data" / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(FormatError, match="descriptions of features are damaged: the hash differs"):
        open_store(tmp_path / "copy.toprank-data", verify=True)


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


# Any damage at all

FEW_VALUES = [-1, float("inf")]
MANY_VALUES = [
    *FEW_VALUES, None, True, 0, 2**31, 2**63, 10**400, 1.5, float("nan"), "", "X", "<f4", "|O", "\ud800",
    [], [None], [[1]], [-1, 3], [2**40, 2**40], {}, {"dtype": "<f4"},
]  # fmt: skip


def everything(dense):
    """A copy with every array that there may be; its rows have moved."""
    X = np.random.default_rng(0).random((9, 4)).astype(np.float32)
    data = RankingData(
        X,
        np.arange(9) % 3,
        qid=[f"q{row % 3}" for row in range(9)],
        regroup=True,
        document_ids=[f"d{row}" for row in range(9)],
        document_weights=np.ones(9),
        query_weights=np.ones(3),
        positions=np.arange(9),
        feature_names=list("abcd"),
        metadata={"device": ["phone", "desk", "tv"], "rank": np.arange(9), "date": np.arange(9).astype("M8[D]")},
    )
    return data if dense else data.replace(X=sparse.csr_matrix(np.where(X > 0.5, X, 0)))


def places_in(value, place=()):
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places_in(part, (*place, key))


def changed_descriptions(text, values):
    """The description with each of its values replaced by each of some, or taken out."""
    for place in places_in(json.loads(text)):
        for value in (*values, ...):
            meta = {"": json.loads(text)}
            *way, last = ("", *place)
            inner = meta
            for key in way:
                inner = inner[key]
            if value is ...:
                del inner[last]
            else:
                inner[last] = value
            yield json.dumps(meta.get("")).encode()


def changed_bytes(content, chance):
    """The bytes with some flipped, cut off, overwritten, put in between or, in the header, made others."""
    changed, place = bytearray(content), chance.randrange(len(content))
    how = chance.randrange(5)
    if how == 0:
        changed[place] ^= 1 << chance.randrange(8)
    elif how == 1:
        del changed[place:]
    elif how == 2:
        changed[place : place + 8] = chance.choice([b"\0", b"\x7f", b"\x80", b"\xff"]) * 8
    elif how == 3:
        changed[place:place] = chance.randbytes(5)
    else:
        changed[place % 128] = chance.randrange(256)
    return bytes(changed)


def use_all(path, verify):
    data = open_store(path, verify=verify)
    for array in data.arrays(source=True).values():
        array.tolist()
    for use in (str, lambda data: data.X[:1], lambda data: data.X.sum(axis=1), lambda data: data.select([0])):
        use(data)
    data.in_source_order(data.labels)
    data.replace(labels=data.labels)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(
    ("values", "times"), [(FEW_VALUES, 5), pytest.param(MANY_VALUES, 500, marks=pytest.mark.nightly)]
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of sums of numbers that are not those that were written
@pytest.mark.filterwarnings("ignore::UserWarning")  # NumPy tells that it read a header of old
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # or a type by an old name
def test_whatever_is_damaged_is_a_sentence_or_does_no_harm(tmp_path, monkeypatch, dense, values, times):
    monkeypatch.setattr(store.time, "sleep", lambda seconds: None)
    path, chance = tmp_path / "copy.toprank-data", random.Random(0)
    write_store(everything(dense), path)
    use_all(path, verify=True)
    for file in sorted(path.iterdir()):
        whole = file.read_bytes()
        damaged = list(changed_descriptions(whole, values)) if file.name == "meta.json" else []
        for content in damaged + [changed_bytes(whole, chance) for _ in range(times)]:
            file.write_bytes(content)
            for verify in (False, True):
                with suppress(ToprankError):
                    use_all(path, verify)
        file.write_bytes(whole)
    use_all(path, verify=True)


@pytest.mark.parametrize("name", ["qids", "document_ids"])
def test_what_is_no_letter_is_refused_before_it_becomes_a_string(tmp_path, name):
    path = tmp_path / "copy.toprank-data"
    write_store(everything(dense=True), path)
    whole = (path / f"{name}.npy").read_bytes()
    (path / f"{name}.npy").write_bytes(whole[:-5] + b"\x40" + whole[-4:])  # the first letter of the last id
    uses = [
        lambda data: getattr(data, name).tolist(),
        lambda data: getattr(data, name)[-1],
        lambda data: list(getattr(data, name)),
        lambda data: tr.write(data, tmp_path / "out.txt"),
    ]
    for use in uses:
        with pytest.raises(FormatError, match=rf"damaged: {name}\.npy contains invalid text\. Write the copy again"):
            use(open_store(path))
    if name == "document_ids":
        assert open_store(path).document_ids[:8].tolist() == everything(dense=True).document_ids[:8].tolist()


# ---- cut off while it is open ----

_CUT = """
import os, sys, warnings
import numpy as np
import toprank as tr
from toprank.data.concatenation import concatenate
from toprank.errors import FileError

warnings.simplefilter("ignore")
kind, name, path = sys.argv[1:]
whole = tr.read(path)
models = {
    "linear": tr.LinearRanker("ListNet", max_iterations=3),
    "trees": tr.TreeRanker("ListNet", n_trees=2, threads=1),
    "grades": tr.ExpectedGainRanker("Multinomial", max_iterations=2),
}
fitted = models["linear"].fit(whole)
grown = models["trees"].fit(whole)
scores = fitted.predict(whole)
data = tr.read(path)
for file in sorted(os.listdir(path)):
    if file.startswith(f"{name}."):
        os.truncate(f"{path}/{file}", 128)
uses = {
    "fit": lambda: models["linear"].fit(data),
    "grow": lambda: models["trees"].fit(data),
    "grades": lambda: models["grades"].fit(data),
    "predict": lambda: fitted.predict(data),
    "forest": lambda: grown.predict(data),
    "evaluate": lambda: tr.evaluate(scores, data),
    "select": lambda: data.select([3, 1]),
    "write": lambda: tr.write(data, f"{path}.txt"),
    "check": lambda: tr.check(data),
    "split": lambda: tr.split(data),
    "folds": lambda: tr.folds(data),
    "joined": lambda: concatenate([data, data]),
    "frame": lambda: data.to_frame(),
    "shown": lambda: repr(data),
    "rows": lambda: data.X[3:9] if data.is_sparse else data.select([1]),
}
for use, call in uses.items():
    try:
        call()
        print(use, "was done")
    except FileError as refusal:
        print(use, "refused" if "became shorter while it was read" in str(refusal) else refusal)
"""


@pytest.mark.parametrize(("kind", "name"), [("dense", "X"), ("dense", "labels"), ("sparse", "X")])
def test_a_copy_that_is_cut_off_while_it_is_open_is_refused(tmp_path, sparse_data, kind, name):
    """In a process of its own, since to touch what is gone would end it (SIGBUS)."""
    data = sparse_data if kind == "sparse" else sparse_data.replace(X=sparse_data.X.toarray())
    write_store(data, tmp_path / "d.toprank-data")
    words = [sys.executable, "-c", _CUT, kind, name, str(tmp_path / "d.toprank-data")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-2000:])
    assert {line.split(None, 1)[1] for line in done.stdout.splitlines()} == {"refused"}, done.stdout


def test_a_copy_that_is_cut_off_between_two_passes_is_refused(tmp_path):
    """What is cut off while a fit goes on is seen by its next pass."""
    data = tr.synthetic(n_queries=40, n_features=6, seed=0)
    write_store(data, tmp_path / "d.toprank-data")
    code = """
import os, sys
import toprank as tr
from toprank.errors import FileError
data = tr.read(sys.argv[1])
linear = sys.modules[tr.LinearRanker.__module__]
linear._tell = lambda *step: os.truncate(sys.argv[1] + "/X.npy", 128)
try:
    tr.LinearRanker("ListNet", solver="lbfgs", verbose=True).fit(data)
except FileError as refusal:
    print(refusal)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "d.toprank-data")], capture_output=True, text=True
    )
    assert "X.npy became shorter while it was read" in done.stdout, (done.returncode, done.stderr[-2000:])
