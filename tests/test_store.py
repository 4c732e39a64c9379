"""The stored copy: exact, whole or absent, refused in a sentence where it is not what it claims."""

from __future__ import annotations

import errno
import json
import os
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from scipy import sparse

import toprank as tr
from ragged import ranking_data
from toprank.data import files as files_door
from toprank.data.cache import cached
from toprank.data.dataset import RankingData
from toprank.data.store import is_store, open_store, write_store
from toprank.data.store import opening as store
from toprank.errors import DataError, FileError, FormatError


def example(**changes) -> RankingData:
    X = np.arange(12, dtype=np.float32).reshape(6, 2)
    data = RankingData(X, [0, 1, 2, 0, 1, 2], qid=["a", "a", "b", "b", "b", "c"], document_ids=list("uvwxyz"))
    return data.replace(**changes)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "example.toprank-data"
    write_store(example(), path)
    return path


@given(ranking_data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_copy_reads_back_exactly(tmp_path, data):
    path = tmp_path / "copy.toprank-data"
    write_store(data, path)  # from the second example on, over an older copy
    for verify in (False, True):
        again = open_store(path, verify=verify)
        assert again.equals(data)
        assert again.fingerprint == data.fingerprint
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_arrays_are_mapped_and_not_read(folder, monkeypatch):
    monkeypatch.setattr(store, "digest", lambda array: pytest.fail("the content was read"))
    data = open_store(folder)
    base = data.X
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    assert type(base).__name__ == "mmap"
    assert not data.X.flags.writeable


def test_a_sparse_copy_works_in_products_and_parts(tmp_path):
    X = sparse.random(6, 5, 0.4, "csr", random_state=0)
    data = example(X=X)
    write_store(data, tmp_path / "s.toprank-data")
    again = open_store(tmp_path / "s.toprank-data", verify=True)
    np.testing.assert_array_equal(again.X @ np.arange(5.0), X @ np.arange(5.0))
    assert again.select([2, 0]).equals(data.select([2, 0]))


def test_an_open_copy_survives_its_replacement(folder):
    before = open_store(folder)
    write_store(before.replace(labels=before.labels + 1), folder)  # from the map of the copy that is replaced
    np.testing.assert_array_equal(open_store(folder).labels, example().labels + 1)
    assert before.equals(example())


def test_a_copy_that_is_replaced_while_it_is_opened_is_not_mixed(folder, monkeypatch):
    open_array, new = store._open_array, example(labels=np.full(6, 7.0), document_ids=list("abcdef"))

    def replacing(*args):
        array = open_array(*args)
        if replacing.times:
            replacing.times -= 1
            write_store(new, folder)
        return array

    replacing.times = 1
    monkeypatch.setattr(store, "_open_array", replacing)
    assert open_store(folder, verify=True).equals(new)
    replacing.times = 1000
    with pytest.raises(FileError, match="constantly being replaced"):
        open_store(folder)


def test_a_failed_replacement_leaves_the_old_copy(folder, monkeypatch):
    rename = os.rename

    def failing(source, target):
        if os.fspath(target) == os.fspath(folder) and (os.path.exists(f"{source}/meta.json")) and failing.times > 0:
            failing.times -= 1
            raise OSError(errno.ENOTEMPTY if failing.times else errno.EIO, "no")
        rename(source, target)

    failing.times = 2
    monkeypatch.setattr(store.os, "rename", failing)
    with pytest.raises(FileError, match="cannot be written: Input/output error"):
        write_store(example(labels=np.ones(6)), folder)
    assert open_store(folder, verify=True).equals(example())
    assert os.listdir(folder.parent) == [folder.name]


def test_only_stored_copies_are_replaced(tmp_path):
    (tmp_path / "mine.toprank-data").mkdir()
    (tmp_path / "mine.toprank-data" / "thesis.tex").touch()
    (tmp_path / "file.toprank-data").touch()
    for name in ("mine", "file"):
        with pytest.raises(FileError, match="exists and is not a stored copy"):
            write_store(example(), tmp_path / f"{name}.toprank-data")
    assert (tmp_path / "mine.toprank-data" / "thesis.tex").exists()
    with pytest.raises(DataError, match=r"suffix \.toprank-data"):
        write_store(example(), tmp_path / "copy")
    with pytest.raises(FileError, match="cannot be written: No such file"):
        write_store(example(), tmp_path / "absent" / "copy.toprank-data")


def test_what_is_a_store(folder, tmp_path):
    assert is_store(folder)
    assert not is_store(tmp_path)
    assert not is_store(folder / "X.npy")


# Damage


def change_meta(folder, **changes):
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | changes))


def refused(folder, message, **options):
    with pytest.raises(FormatError, match=message) as caught:
        open_store(folder, **options)
    assert str(folder) in str(caught.value)
    assert str(caught.value).endswith(".")


def test_another_version_is_refused(folder):
    change_meta(folder, version=6)
    refused(folder, r"newer toprank \(format 6; this one reads up to 5\)")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"x"', "{}", '{"format": "other", "version": 1}', "\xff", "[" * 100_000]
)
def test_foreign_descriptions_are_refused(folder, text):
    (folder / "meta.json").write_text(text, encoding="latin-1")
    refused(folder, "not a stored copy: toprank did not write its meta.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"arrays": None},
        {"arrays": {}},
        {"arrays": {"X": 3}},
        {"arrays": {"../secret": {"dtype": "<f4", "shape": [1]}}},
        {"X_shape": [6, 3]},
        {"X_shape": [7, 2]},
        {"X_shape": 6},
        {"feature_names": ["a"]},
        {"feature_names": "ab"},
        {"feature_names": [1, 2]},
    ],
)
def test_descriptions_that_do_not_fit_are_refused(folder, changes):
    change_meta(folder, **changes)
    refused(folder, "damaged")


@pytest.mark.parametrize("name", ["X", "labels", "offsets", "qids", "document_ids"])
def test_damaged_arrays_are_refused(folder, name):
    file = folder / f"{name}.npy"
    whole = file.read_bytes()
    array = np.load(file)
    for content in (whole[:-1], whole[:50], b"", b"junk" * 40):
        file.write_bytes(content)
        refused(folder, f"damaged: {name}.npy is truncated or not a valid array file")
    for other in (array[:-1], array.astype("U9"), np.array([array, None], object)[:1]):
        np.save(file, other, allow_pickle=True)
        refused(folder, f"damaged: {name}.npy")
    file.unlink()
    refused(folder, f"damaged: {name}.npy is missing")


@pytest.mark.parametrize(
    "changes", [{"shape": [6, 3]}, {"shape": [5, 2]}, {"shape": []}, {"dtype": "<f8"}, {"dtype": 4}]
)
def test_an_edited_description_of_an_array_is_refused(folder, changes):
    meta = json.loads((folder / "meta.json").read_text())
    change_meta(folder, arrays=meta["arrays"] | {"X": meta["arrays"]["X"] | changes})
    refused(folder, r"damaged: X\.npy contains float32 \(6, 2\), which differs from meta\.json")


def test_an_edited_hash_is_refused_by_verify(folder):
    meta = json.loads((folder / "meta.json").read_text())
    change_meta(folder, arrays=meta["arrays"] | {"X": meta["arrays"]["X"] | {"hash": "0" * 32}})
    refused(folder, "content of 'X' was changed: its hash differs", verify=True)


def test_a_file_that_was_shortened_is_refused(folder):
    for name in ("X", "labels", "offsets"):
        size = (folder / f"{name}.npy").stat().st_size
        for kept in (size - 4, 128, 0):
            os.truncate(folder / f"{name}.npy", kept)
            refused(folder, f"damaged: {name}.npy is truncated or not a valid array file")
        write_store(example(), folder)


def test_arrays_of_different_lengths_are_refused_even_if_described(folder, tmp_path):
    other = tmp_path / "other.toprank-data"
    write_store(example().select([0, 1]), other)
    meta, theirs = (json.loads((path / "meta.json").read_text()) for path in (folder, other))
    for name in ("labels", "offsets", "qids"):
        (folder / f"{name}.npy").write_bytes((other / f"{name}.npy").read_bytes())
        change_meta(folder, arrays=meta["arrays"] | {name: theirs["arrays"][name]})
        refused(folder, "do not match each other")
        write_store(example(), folder)


@pytest.mark.parametrize("name", ["X", "labels", "qids", "document_ids"])
def test_verify_names_the_array_that_changed(folder, name):
    content = bytearray((folder / f"{name}.npy").read_bytes())
    content[-4] ^= 1
    (folder / f"{name}.npy").write_bytes(content)
    open_store(folder)
    refused(folder, f"content of '{name}' was changed: its hash differs", verify=True)


def test_verify_finds_sparse_indices_out_of_range(tmp_path):
    path = tmp_path / "s.toprank-data"
    bad = sparse.csr_matrix(np.eye(6, 3))
    bad.indices[0] = 7
    write_store(RankingData._from_validated(**{**vars(example()), "X": bad}), path)
    refused(path, "damaged: .*indices", verify=True)


def test_folders_that_are_no_copies(tmp_path):
    with pytest.raises(FileError, match="cannot be opened: No such file"):
        open_store(tmp_path / "absent.toprank-data")
    refused(tmp_path, "has no meta.json")
    (tmp_path / "file").touch()
    refused(tmp_path / "file", "This is a file")


# The cache


class Reader:
    """A reader that counts its calls."""

    def __init__(self):
        self.calls = []

    def __call__(self, path, **options):
        self.calls.append(options)
        return example(labels=[float(len(self.calls))] * 6)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("one")
    return path


def test_the_cache_serves_until_something_changes(text):
    read = Reader()

    def labels(**options):
        return cached(text, options, read).labels[0]

    assert [labels(), labels(), labels(threads=2)] == [1, 1, 1]
    assert is_store(f"{text}.toprank-data")
    assert [labels(missing="zero"), labels(missing="zero"), labels(dtype="f4"), labels(dtype=np.float32)] == [
        2,
        2,
        3,
        3,
    ]
    text.write_text("three")
    assert [labels(dtype="f4"), labels(dtype="f4")] == [4, 4]
    status = text.stat()
    os.utime(text, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert [labels(dtype="f4"), labels(dtype="f4")] == [5, 5]
    text.write_text("of another size")
    os.utime(text, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert [labels(dtype="f4"), labels(dtype="f4")] == [6, 6]
    text.with_name("train.txt.query").write_text("6")
    assert [labels(dtype="f4"), labels(dtype="f4")] == [7, 7]
    text.rename(text.with_name("moved.txt"))
    text.with_name("train.txt.query").unlink()
    text.with_name("train.txt.toprank-data").rename(text.with_name("moved.txt.toprank-data"))
    cached(text.with_name("moved.txt"), {"dtype": "f4"}, read)
    assert len(read.calls) == 8


def test_a_cache_that_another_process_replaces_is_not_trusted(text, monkeypatch):
    def write_and_lose(data, path, **described):
        write_store(data, path, **described)
        write_store(example(labels=np.full(6, 99.0)), path, source={"options": "other"})

    monkeypatch.setattr(files_door, "write_store", write_and_lose)
    assert cached(text, {}, Reader()).labels[0] == 1


def test_a_damaged_cache_is_written_again_but_verify_refuses_changed_content(text):
    read = Reader()
    copy = text.with_name("train.txt.toprank-data")
    cached(text, {}, read)
    (copy / "X.npy").write_bytes(b"")
    assert cached(text, {}, read).labels[0] == 2
    change_meta(copy, version=99)
    assert cached(text, {}, read).labels[0] == 3
    content = bytearray((copy / "labels.npy").read_bytes())
    content[-8] ^= 1
    (copy / "labels.npy").write_bytes(content)
    assert cached(text, {}, read).n_documents == 6
    with pytest.raises(FormatError, match="content of 'labels'"):
        cached(text, {}, read, verify=True)


def test_a_cache_that_cannot_be_written_is_an_error(text, monkeypatch):
    blocker = text.with_name("train.txt.toprank-data")
    blocker.touch()
    with pytest.raises(FileError, match=r"The cache .*train\.txt\.toprank-data exists.* read without cache"):
        cached(text, {}, Reader())
    blocker.unlink()

    def denied(self, *rest, **options):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(store.Path, "mkdir", denied)
    with pytest.raises(FileError, match=r"The cache .* Permission denied\. Make the folder writable"):
        cached(text, {}, Reader())
    with pytest.raises(FileError, match=re.escape("absent.txt cannot be read: No such file")):
        cached(text.with_name("absent.txt"), {}, Reader())


@pytest.mark.parametrize("width", [1, 4, 8])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_copies_of_few_columns_are_joined(tmp_path, width, kind):
    """How many rows make a block follows from the bytes of a row, which are never none."""
    parts = [tr.synthetic(n_queries=5, n_features=width, seed=seed) for seed in (0, 1)]
    parts = [part.replace(X=part.X.astype(kind), qids=np.arange(5) + 5 * n) for n, part in enumerate(parts)]
    for n, part in enumerate(parts):
        tr.write(part, tmp_path / f"{n}.toprank-data")
    both = tr.read([tmp_path / "0.toprank-data", tmp_path / "1.toprank-data"])
    assert both.X.tobytes() == b"".join(part.X.tobytes() for part in parts)
