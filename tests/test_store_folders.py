"""The folder of a stored copy: what is replaced, what is left behind, what is cleared away, what there is room for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from toprank.data import bytesource as remains
from toprank.data.dataset import RankingData
from toprank.data.files import read
from toprank.data.store import is_store, open_store, write_store
from toprank.data.store import writing as store_folders
from toprank.data.store import writing as store_writing
from toprank.data.store.writing import StoreWriter
from toprank.errors import DataError, FileError


def example(label=0.0) -> RankingData:
    return RankingData(np.arange(12, dtype=np.float32).reshape(6, 2), np.full(6, label), qid=[1, 1, 2, 2, 2, 3])


@pytest.fixture
def copy(tmp_path):
    path = tmp_path / "copy.toprank-data"
    write_store(example(), path)
    return path


# What is replaced


def test_a_folder_with_some_other_description_is_not_replaced(tmp_path):
    folder = tmp_path / "mine.toprank-data"
    folder.mkdir()
    (folder / "thesis.tex").touch()
    for description in ('{"mine": 1}', "[]", "{", '{"format": "other"}'):
        (folder / "meta.json").write_text(description)
        with pytest.raises(FileError, match="exists and is not a stored copy"):
            write_store(example(), folder)
    assert sorted(os.listdir(folder)) == ["meta.json", "thesis.tex"]


def test_a_copy_with_something_else_in_it_is_not_replaced(copy):
    for name in ("thesis.tex", "Y.npy", ".hidden"):
        (copy / name).touch()
        with pytest.raises(FileError, match=rf"is not replaced, because it also contains {name}"):
            StoreWriter(copy)
        (copy / name).unlink()
    with StoreWriter(copy) as writer:
        writer.put_all(example(1).arrays())
        (copy / "thesis.tex").touch()  # meanwhile
        with pytest.raises(FileError, match=r"it also contains thesis\.tex"):
            writer.finish((6, 2), None)
    assert (copy / "thesis.tex").exists()
    assert open_store(copy).equals(example())
    assert os.listdir(copy.parent) == [copy.name]


def test_a_link_to_another_name_is_told_as_it_is(tmp_path):
    (tmp_path / "other").mkdir()
    link = tmp_path / "link.toprank-data"
    link.symlink_to(tmp_path / "other")
    with pytest.raises(
        DataError, match=r"link\.toprank-data is a link to .*other, which lacks the suffix \.toprank-data"
    ):
        write_store(example(), link)
    with pytest.raises(DataError, match=r"plain lacks the suffix \.toprank-data of a stored copy"):
        write_store(example(), tmp_path / "plain")
    link.unlink()
    link.symlink_to(tmp_path / "real.toprank-data")
    write_store(example(), link)
    assert open_store(tmp_path / "real.toprank-data").equals(example())


def test_what_may_not_be_looked_at_is_refused_in_a_sentence(tmp_path, monkeypatch):
    stat = os.stat

    def denied(path, *rest, **options):
        if "locked" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *rest, **options)

    monkeypatch.setattr(os, "stat", denied)
    path = tmp_path / "locked" / "x.toprank-data"
    for done, use in (
        ("written", lambda: StoreWriter(path)),
        ("read", lambda: is_store(path)),
        ("opened", lambda: open_store(path)),
    ):
        with pytest.raises(FileError, match=rf"x\.toprank-data cannot be {done}: Permission denied\."):
            use()


def test_a_store_is_told_by_its_content(tmp_path, copy):
    folder = tmp_path / "tables"
    folder.mkdir()
    parquet.write_table(pa.table({"qid": [1, 1], "label": [0, 1], "f": [1.0, 2.0]}), folder / "a.parquet")
    for description in ('{"mine": 1}', "[]", "?"):
        (folder / "meta.json").write_text(description)
        assert not is_store(folder)
    assert read(folder).n_documents == 2
    copy.rename(tmp_path / "renamed")
    assert is_store(tmp_path / "renamed")
    assert read(tmp_path / "renamed").equals(example())


# What is left behind


def test_an_interrupt_while_the_old_copy_is_deleted_leaves_the_new_one_alone(copy, monkeypatch):
    rmtree, calls = store_folders.shutil.rmtree, []

    def interrupted(path, **options):
        if os.fspath(path).endswith(".old.tmp") and os.path.exists(path):
            calls.append(path)
            if len(calls) == 1:
                os.unlink(os.path.join(path, "labels.npy"))
                raise KeyboardInterrupt
        rmtree(path, **options)

    monkeypatch.setattr(store_folders.shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_store(example(1), copy)
    assert len(calls) == 2
    assert open_store(copy, verify=True).equals(example(1))
    assert os.listdir(copy.parent) == [copy.name]


def test_an_interrupt_just_after_the_new_copy_took_its_place(copy, monkeypatch):
    rename = os.rename

    def interrupting(source, target):
        rename(source, target)
        if os.fspath(target) == os.fspath(copy):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupting)
    with pytest.raises(KeyboardInterrupt):
        write_store(example(1), copy)
    assert open_store(copy, verify=True).equals(example(1))
    assert os.listdir(copy.parent) == [copy.name]


KILLED = """
import os, signal, sys
import numpy as np
from toprank.data.dataset import RankingData
from toprank.data.store.writing import StoreWriter

when, rename = sys.argv[2], os.rename

def killing(source, target):
    rename(source, target)
    if str(target).endswith(".old.tmp"):
        os.kill(os.getpid(), signal.SIGKILL)

with StoreWriter(sys.argv[1]) as writer:
    writer.put_all(RankingData(np.ones((2, 1))).arrays())
    if when == "writing":
        os.kill(os.getpid(), signal.SIGKILL)
    os.rename = killing
    writer.finish((2, 1), None)
"""


@pytest.mark.parametrize("when", ["writing", "renaming"])
def test_the_remains_of_a_killed_process_are_cleared_away(copy, when):
    done = subprocess.run([sys.executable, "-c", KILLED, str(copy), when], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert len(os.listdir(copy.parent)) == 2
    assert copy.exists() == (when == "writing")
    with pytest.raises(ZeroDivisionError), StoreWriter(copy):
        raise ZeroDivisionError  # a conversion that fails: the old copy is back all the same
    assert open_store(copy, verify=True).equals(example())
    assert os.listdir(copy.parent) == [copy.name]


def test_the_work_of_others_is_not_touched(copy, monkeypatch):
    other = copy.with_name("other.toprank-data")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with monkeypatch.context() as patch:
        patch.setattr(remains.os, "getpid", lambda: gone.pid)
        of_another_copy = remains.temporary_sibling(other, ".tmp")
        of_this_one = remains.temporary_sibling(copy, ".tmp")
        patch.setattr(remains, "_machine", lambda: "00000000")
        elsewhere = remains.temporary_sibling(copy, ".tmp")
    running = remains.temporary_sibling(copy, ".tmp")
    theirs = [of_another_copy, elsewhere, running, copy.with_name(f".{copy.name}.mine.tmp")]
    for folder in (*theirs, of_this_one):
        folder.mkdir()
        (folder / "X.npy").touch()
    write_store(example(1), copy)
    assert sorted(os.listdir(copy.parent)) == sorted([copy.name, *(folder.name for folder in theirs)])


@pytest.mark.parametrize("letter", ["x", "ä", "語", "😀"])
def test_names_as_long_as_the_disk_allows(tmp_path, letter):
    count = (255 - len(store_folders.SUFFIX)) // len(letter.encode())
    for name in (letter * count, letter * (count - 1)):  # which begin alike
        path = tmp_path / f"{name}{store_folders.SUFFIX}"
        for label in (0.0, 1.0):
            write_store(example(label), path)
        assert open_store(path, verify=True).equals(example(1.0))
    prefixes = {remains._label(path) for path in tmp_path.iterdir()}
    assert len(prefixes) == 2


# Room


@pytest.fixture
def disk_of(monkeypatch):
    """A disk of so many bytes, of which the files in the folder have taken some."""

    def set_size(size):
        def usage(folder):
            taken = sum(file.stat().st_size for file in folder.iterdir())
            return shutil_usage(folder)._replace(free=size - taken)

        shutil_usage = store_writing.shutil.disk_usage
        monkeypatch.setattr(store_writing.shutil, "disk_usage", usage)

    return set_size


def test_room_is_asked_for_all_arrays_together(tmp_path, disk_of):
    disk_of(4_500)
    with StoreWriter(tmp_path / "a.toprank-data") as writer:
        writer.start("X", np.dtype("f4"), (10,), 100)
        with pytest.raises(FileError, match=r"it needs another 0\.0 MB, but only 0\.0 MB are free"):
            writer.start("labels", np.dtype("f8"), (), 100)
    data = RankingData(np.zeros((100, 10), dtype=np.float32))
    with StoreWriter(tmp_path / "a.toprank-data") as writer:
        with pytest.raises(FileError, match="Free some space"):
            writer.put_all(data.arrays())
        assert os.listdir(writer.folder) == []


def test_an_array_that_starts_again_gives_its_room_back(tmp_path, disk_of):
    disk_of(5_500)
    with StoreWriter(tmp_path / "a.toprank-data") as writer:
        for _ in range(2):
            writer.start("X", np.dtype("f4"), (10,), 100)
            writer.start("labels", np.dtype("f8"), (), 100)
            writer.start("document_ids", None)
            writer.append("X", np.zeros((100, 10), dtype="f4"))
            writer.append("document_ids", np.array(["a"]))


def test_ids_that_one_long_id_would_blow_up_are_refused(tmp_path):
    with StoreWriter(tmp_path / "a.toprank-data") as writer:
        writer.start("document_ids", None)
        writer.append("document_ids", np.array([f"d{i}" for i in range(20_000)]))
        writer.append("document_ids", np.array(["x" * 4_000]))
        with pytest.raises(DataError, match=r"The document ids, padded to the longest one, would need 305 MiB"):
            writer.finish((20_001, 0), None)
    assert os.listdir(tmp_path) == []


def test_padded_ids_need_room(tmp_path, disk_of):
    with StoreWriter(tmp_path / "a.toprank-data") as writer:
        writer.start("document_ids", None)
        writer.append("document_ids", np.array(["a"] * 100))
        writer.append("document_ids", np.array(["x" * 100]))
        disk_of(30_000)
        with pytest.raises(FileError, match="Free some space"):
            writer.finish((101, 0), None)


def test_the_description_tells_what_was_written(copy):
    meta = json.loads((copy / "meta.json").read_text())
    assert set(meta["arrays"]) == {"X", "labels", "offsets", "qids"}
    assert {f"{name}.npy" for name in meta["arrays"]} | {"meta.json"} == set(os.listdir(copy))
