"""From files to a stored copy in blocks: the bytes that reading and writing give, or a sentence and nothing at all."""

from __future__ import annotations

import errno
import gzip
import json
import mmap
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from scipy.sparse import csr_matrix
from typer.testing import CliRunner

from ragged import ranking_data
from support import toprank
from toprank.cli.commands import app
from toprank.data import converting
from toprank.data.bytesource import open_bytes
from toprank.data.converting import convert
from toprank.data.dataset import RankingData
from toprank.data.files import read, write
from toprank.data.letor import streaming as letor_streaming
from toprank.data.letor import survey as letor_survey
from toprank.data.scores import write_scores
from toprank.data.store import files as store_files
from toprank.data.store import open_store
from toprank.data.store import streaming as store_streaming
from toprank.data.store import writing as store_writing
from toprank.data.tables import sources as table_sources
from toprank.data.warnings import WeightsWarning
from toprank.errors import DataError, FileError, FormatError, ToprankError, UnknownNameError

LINES = [f"{i % 3} qid:{i // 3} 1:{i} 3:{-i}.5 # docid = d{i}" for i in range(20)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of a line or two, so that small files have many."""
    monkeypatch.setattr(letor_survey, "_CHUNK", 40)
    monkeypatch.setattr(letor_streaming, "_PART", 30)
    read_strips = table_sources.TableSource.batches
    monkeypatch.setattr(
        table_sources.TableSource,
        "batches",
        lambda self, layout: (
            part for whole in read_strips(self, layout) for part in (whole.slice(0, 3), whole.slice(3)) if part.num_rows
        ),
    )


def content(folder):
    """The bytes of all arrays, and what the description says of them."""
    meta = json.loads((folder / "meta.json").read_text())
    meta.pop("id")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "meta.json"}, meta


def assert_as_read_and_written(source, **options):
    folder = (source[0] if isinstance(source, list) else source).parent
    write(read(source, **options), folder / "read.toprank-data")
    converted = convert(source, folder / "converted.toprank-data", **options)
    assert content(folder / "converted.toprank-data") == content(folder / "read.toprank-data")
    assert converted.equals(open_store(folder / "read.toprank-data", verify=True))
    assert not list(folder.glob(".*"))


IDS = st.text(st.characters(categories=["L", "N"], exclude_characters="\0"), min_size=1, max_size=6)


@given(ranking_data(ids=IDS), st.sampled_from([".txt", ".txt.gz", ".txt.zst"]), st.sampled_from(["dense", "sparse"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_text_becomes_the_copy_of_what_is_read(tmp_path_factory, data, suffix, layout):
    assume(np.isfinite(data.labels).all() and np.isfinite(data.X.data if data.is_sparse else data.X).all())
    path = tmp_path_factory.mktemp("text") / f"data{suffix}"
    try:
        write(data.replace(query_weights=None, feature_names=None), path)
    except DataError:  # what LETOR text cannot say
        assume(False)
    for missing in ("nan", "zero"):
        assert_as_read_and_written(path, layout=layout, missing=missing, dtype="float64")


@given(ranking_data(), st.sampled_from([".parquet", ".arrow", ".csv"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_tables_become_the_copy_of_what_is_read(tmp_path_factory, data, suffix):
    path = tmp_path_factory.mktemp("table") / f"data{suffix}"
    roles = {}
    if suffix == ".csv":  # which keeps no roles of columns
        names = {"weight": data.document_weights, "query_weight": data.query_weights}
        roles = {name: name for name, weights in names.items() if weights is not None}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WeightsWarning)
            write(data, path)
        read(path, **roles)
    except ToprankError:  # what a CSV table cannot say
        assume(False)
    assert_as_read_and_written(path, **roles)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_awkward_text(tmp_path, layout):
    path = tmp_path / "data.txt"
    lines = ["# a comment", *LINES[:7], "", "\t", "# another", *LINES[7:], "0 qid:6 5:NULL # docid = zoë"]
    path.write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8")
    for missing in ("nan", "zero"):
        assert_as_read_and_written(path, layout=layout, missing=missing)
    assert open_store(tmp_path / "converted.toprank-data").document_ids[-1] == "zoë"


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_ids_that_prove_the_survey_wrong(tmp_path, layout):
    lines = [*LINES, "1 qid:99 2:1 9:4 0:7 3:1", "1 qid:99 2:1 12:4 3:1"]  # the survey looks at the ends of a line
    path = tmp_path / "data.txt"
    path.write_text("\n".join(lines))
    assert_as_read_and_written(path, layout=layout)
    assert open_store(tmp_path / "converted.toprank-data").n_features == 13


def test_side_files(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("".join(f"{i % 3} 1:{i}\n" for i in range(20)))
    (tmp_path / "data.txt.query").write_text("5\n7\n8\n")
    (tmp_path / "data.txt.weight").write_text("0.5\n" * 20)
    (tmp_path / "data.txt.position").write_text("".join(f"{i}\n" for i in range(20)))
    assert_as_read_and_written(path)
    assert open_store(tmp_path / "converted.toprank-data").qids.tolist() == [0, 1, 2]


def test_document_ids_that_are_numbers_and_weights_of_queries(tmp_path):
    table = {"qid": np.repeat([7, 8], 8), "label": np.arange(16) % 3, "f": np.arange(16.0), "docid": np.arange(16) ** 5}
    table |= {"query_weight": np.repeat([0.5, 2.0], 8), "weight": np.arange(16), "position": np.arange(16)}
    parquet.write_table(pa.table(table), tmp_path / "data.parquet")
    assert_as_read_and_written(tmp_path / "data.parquet")


def test_tables_without_labels_queries_or_features(tmp_path):
    parquet.write_table(pa.table({"f": np.arange(16.0)}), tmp_path / "data.parquet")
    write(read(tmp_path / "data.parquet", label=False, qid=False), tmp_path / "data.csv")
    assert_as_read_and_written(tmp_path / "data.parquet", label=False, qid=False)
    assert_as_read_and_written(tmp_path / "data.csv", label=False, qid=False, features=[])


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_does_not_matter(tmp_path, threads):
    path = tmp_path / "data.txt"
    path.write_text("\n".join(LINES))
    write(read(path), tmp_path / "read.toprank-data")
    convert(path, tmp_path / "converted.toprank-data", threads=threads)
    assert content(tmp_path / "converted.toprank-data") == content(tmp_path / "read.toprank-data")


def test_a_pipe_passes_through(tmp_path):
    text = "\n".join(LINES).encode()
    (tmp_path / "data.txt").write_bytes(text)
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(gzip.compress(text)))
    writer.start()
    data = convert(tmp_path / "pipe", tmp_path / "data.toprank-data")
    writer.join()
    assert data.equals(read(tmp_path / "data.txt"))
    assert sorted(os.listdir(tmp_path / "data.toprank-data")) == [
        "X.npy", "document_ids.npy", "labels.npy", "meta.json", "offsets.npy", "qids.npy",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "row_bytes"),
    [
        ("0 qid:1 1:2 # docid = " + "i" * 40, 4 + 8 + 4 * 40),
        ("0 qid:1 1:2 # docid = " + "ä" * 20, 4 + 8 + 4 * 20),
        ("0 qid:1", 8),
    ],
)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_blocks_are_small_whatever_rows_are_made_of(tmp_path, monkeypatch, line, row_bytes, layout):
    monkeypatch.setattr(letor_streaming, "_PART", 1000)
    (tmp_path / "data.txt").write_text(f"{line}\n" * 500)
    blocks = list(letor_streaming.LetorStream(tmp_path / "data.txt", threads=1, layout=layout).blocks())
    rows_in_a_chunk = 40 // len(line) + 1
    assert max(sum(array.nbytes for array in block.values()) for block in blocks) <= 1000 + rows_in_a_chunk * (
        row_bytes + 24
    )
    assert sum(len(block["labels"]) for block in blocks) == 500


def test_threads_do_not_make_blocks_large(tmp_path, monkeypatch):
    monkeypatch.setattr(letor_streaming, "_PART", 1000)
    (tmp_path / "data.txt").write_text("0 qid:1 9:2\n" * 500)
    blocks = list(letor_streaming.LetorStream(tmp_path / "data.txt", threads=200).blocks())
    assert max(block["X"].nbytes for block in blocks) <= 2 * 1000 + 4 * 9 * 4


# Other formats


def test_one_function_converts_whatever_the_formats(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    data = read(tmp_path / "a.txt")
    assert convert(tmp_path / "a.txt", tmp_path / "a.parquet").equals(data)
    assert read(tmp_path / "a.parquet").equals(data)
    assert convert(tmp_path / "a.parquet", tmp_path / "table", to="arrow").equals(data)
    assert read(tmp_path / "table").equals(data)
    write_scores(np.arange(data.n_documents), tmp_path / "scores")
    convert(tmp_path / "a.txt", tmp_path / "a.run", scores=tmp_path / "scores")
    assert read(tmp_path / "a.run").n_documents == data.n_documents
    for target, scores in (("b.run", None), ("b.csv", tmp_path / "scores")):
        with pytest.raises(DataError, match="scores= is needed for a TREC run, and only for a TREC run"):
            convert(tmp_path / "a.txt", tmp_path / target, scores=scores)
    with pytest.raises(UnknownNameError, match="format for the suffix"):
        convert(tmp_path / "a.txt", tmp_path / "a.unknown")


# Several files


def parts(tmp_path, *tables):
    folder = tmp_path / "parts"
    folder.mkdir(exist_ok=True)
    for number, table in enumerate(tables):
        parquet.write_table(pa.table(table), folder / f"part-{number}.parquet")
    return folder


def part(qids, **more):
    return {"qid": qids, "label": [0] * len(qids), "f": np.arange(len(qids), dtype=np.float32)} | more


def test_queries_that_meet_at_the_border_of_files_are_joined(tmp_path):
    folder = parts(tmp_path, part([1, 1, 2]), part([2] * 9), part([2, 3]))
    assert convert(folder, tmp_path / "a.toprank-data").queries.sizes.tolist() == [2, 11, 1]
    write(read(folder), tmp_path / "b.toprank-data")
    assert content(tmp_path / "a.toprank-data") == content(tmp_path / "b.toprank-data")
    for name, lines in (("a", LINES[:4]), ("b", LINES[4:5]), ("c", LINES[5:])):
        (tmp_path / name).write_text("\n".join(lines))
    data = convert([tmp_path / name for name in "abc"], tmp_path / "text.toprank-data")
    (tmp_path / "whole").write_text("\n".join(LINES))
    assert data.equals(read(tmp_path / "whole"))


def test_a_query_that_comes_back_is_refused_by_file_and_place(tmp_path):
    folder = parts(tmp_path, part([1, 1, 2]), part([2, 3, 4, 4, 1, 1]))
    with pytest.raises(
        FormatError, match=r"Query 1 starts again at row 4 .* regroup=True, which holds all data in memory"
    ):
        convert(folder, tmp_path / "a.toprank-data")
    with pytest.raises(FormatError) as caught:
        convert(folder, tmp_path / "a.toprank-data")
    assert caught.value.path == folder / "part-1.parquet"
    assert convert(folder, tmp_path / "a.toprank-data", regroup=True).queries.sizes.tolist() == [4, 2, 1, 2]
    (tmp_path / "a.txt").write_text("\n".join([*LINES, LINES[0]]))
    with pytest.raises(FormatError, match=r"Query 0 starts again here.* regroup=True, which holds all data") as caught:
        convert(tmp_path / "a.txt", tmp_path / "b.toprank-data")
    assert (caught.value.path, caught.value.line, caught.value.column) == (tmp_path / "a.txt", 21, 7)
    assert not (tmp_path / "b.toprank-data").exists()


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"qid": [2], "label": [0]}, "The column 'f' of .*part-0.parquet is missing here"),
        (part([2], g=[1.0]), ".*part-0.parquet does not have the column 'g' of this file"),
        ({"qid": [2], "label": [0], "F": np.float32([1])}, "The column 'f' of .*part-0.parquet is missing here"),
        (part([2], f=np.float64([1])), "Column 'f' holds double, but float in .*part-0.parquet.*dtype="),
        (
            part(["2"]),
            r"Column 'qid' holds string, but int64 in .*part-0.parquet\. Write all files with the same types",
        ),
        (part([2], label=[0.5]), "Column 'label' holds double, but int64 in .*part-0.parquet"),
        (part([2], f=["high"]), "Column 'f' holds string, not numbers, as in .*part-0.parquet"),
    ],
)
def test_columns_that_drift_from_file_to_file_are_refused(tmp_path, second, message):
    folder = parts(tmp_path, part([1]), second)
    with pytest.raises(FormatError, match=rf"part-1.parquet: {message}"):
        convert(folder, tmp_path / "a.toprank-data")
    assert os.listdir(tmp_path) == ["parts"]


def test_drift_that_the_options_settle_is_fine(tmp_path):
    folder = parts(tmp_path, part([1]), part([2], f=np.float64([1]), g=["?"]))
    data = convert(folder, tmp_path / "a.toprank-data", features=["f"], dtype="float32")
    assert data.X.tolist() == [[0], [1]]
    assert data.X.dtype == np.float32


def test_more_files_than_may_be_open(tmp_path):
    folder = parts(tmp_path, *(part([number]) for number in range(80)))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, before[1]))
    try:
        assert convert(folder, tmp_path / "a.toprank-data").n_queries == 80
        assert read(folder).n_queries == 80
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_weights_of_queries_that_go_on(tmp_path):
    qids = np.repeat([1, 2, 3], [2, 11, 4])
    tables = [
        part(list(qids[rows]), query_weight=qids[rows] / 2) for rows in (slice(0, 5), slice(5, 9), slice(9, None))
    ]
    folder = parts(tmp_path, *tables)
    roles = {"query_weight": "query_weight"}
    assert convert(folder, tmp_path / "a.toprank-data", **roles).query_weights.tolist() == [0.5, 1, 1.5]
    tables[1]["query_weight"] = [1.0, 1, 1, 2]
    with pytest.raises(FormatError, match=r"part-1.parquet: Query 2 has several query weights"):
        convert(parts(tmp_path, *tables), tmp_path / "a.toprank-data", **roles)
    tables[1]["query_weight"] = [3.0] * 4  # its own rows agree
    with pytest.raises(FormatError, match=r"part-1.parquet: Query 2 has several query weights"):
        convert(parts(tmp_path, *tables), tmp_path / "a.toprank-data", **roles)


def test_regroup_refuses_drift_too(tmp_path):
    folder = parts(tmp_path, part([1, 2]), part([1], g=[1.0]))
    with pytest.raises(FormatError, match=r"part-1.parquet: .*does not have the column 'g'"):
        convert(folder, tmp_path / "a.toprank-data", regroup=True)
    assert os.listdir(tmp_path) == ["parts"]


def test_several_folders(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, qid in ((one, 1), (other, 2)):
        folder.mkdir()
        parts(folder, part([qid] * 9))
    data = convert([one / "parts", other / "parts"], tmp_path / "a.toprank-data")
    assert data.queries.sizes.tolist() == [9, 9]


# Stored copies


def stored(tmp_path, *some):
    for number, data in enumerate(some):
        write(data, tmp_path / f"{number}.toprank-data")
    return [tmp_path / f"{number}.toprank-data" for number in range(len(some))]


@given(ranking_data(), st.sampled_from(["dense", "sparse", "mixed"]), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_copies_of_parts_become_the_copy_of_the_whole(tmp_path_factory, data, layout, draw):
    """Also where a query is cut in two."""
    tmp_path = tmp_path_factory.mktemp("stored")
    n = data.n_documents
    if data.is_sparse:
        data = data.replace(X=data.X.toarray())
    borders = sorted({0, n, *draw.draw(st.lists(st.integers(1, n), max_size=3))})
    pieces = []
    for number, (first, last) in enumerate(pairwise(borders)):
        some = data.filter((np.arange(n) >= first) & (np.arange(n) < last))
        is_sparse = layout == "sparse" or (layout == "mixed" and number == 0)
        pieces.append(some.replace(X=csr_matrix(some.X)) if is_sparse else some)
    whole = data if layout == "dense" else data.replace(X=csr_matrix(data.X))
    copies = stored(tmp_path, *pieces)
    together = convert(copies, tmp_path / "all.toprank-data", verify=True)
    assert together.equals(whole)
    assert open_store(tmp_path / "all.toprank-data", verify=True).fingerprint == whole.fingerprint
    assert read(copies).equals(whole)
    write(read(copies), tmp_path / "read.toprank-data")
    assert content(tmp_path / "all.toprank-data") == content(tmp_path / "read.toprank-data")


def plain(qids, **more):
    return RankingData(np.arange(float(len(qids))).reshape(-1, 1), np.zeros(len(qids)), qid=qids, **more)


def test_copies_pass_in_views_of_the_map(tmp_path, monkeypatch):
    monkeypatch.setattr(store_streaming, "_PART", 200)
    copies = stored(tmp_path, plain([1] * 9), plain([2] * 9))
    blocks = list(store_streaming.StoreStream(copies).blocks())
    assert len(blocks) > 4
    for block in blocks:
        base = block["X"]
        while isinstance(base.base, np.ndarray):
            base = base.base
        assert isinstance(base.base, mmap.mmap)


def test_copies_of_moved_rows_remember_all_sources(tmp_path):
    moved = plain([1, 2, 1, 2], regroup=True)
    data = convert(stored(tmp_path, plain([5, 5]), moved, moved.replace(qids=[3, 4])), tmp_path / "all.toprank-data")
    rows = np.arange(10)
    np.testing.assert_array_equal(data.aligned(rows, order="source"), [0, 1, 2, 4, 3, 5, 6, 8, 7, 9])
    np.testing.assert_array_equal(data.in_source_order(data.aligned(rows, order="source")), rows)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (plain([3, 1]), r"Query 1 already occurs in .*0\.toprank-data"),
        (plain([2, 3], query_weights=[5, 1]), r"Query 2 continues here with another weight"),
        (plain([2, 3]), r"There are no query weights, which .*0\.toprank-data has\."),
        (
            plain([2, 3], query_weights=[1, 1], positions=[1, 2]),
            r"There are positions, which .*0\.toprank-data does not have\.",
        ),
        (plain([2, 3], feature_names=["g"]), "The feature names differ from those in .*0"),
        (RankingData(np.zeros((1, 2)), [0], qid=[2]), "There are 2 features, but 1 in .*0"),
    ],
)
def test_copies_that_are_not_alike_are_refused_by_name(tmp_path, second, message):
    first = plain([1, 1, 2], query_weights=[1, 1])
    if second.qids.tolist() == [3, 1]:
        second = second.replace(query_weights=[1, 1])
    copies = stored(tmp_path, first, second)
    for attempt in (read, lambda source: convert(source, tmp_path / "a.toprank-data")):
        with pytest.raises(FormatError, match=rf"1\.toprank-data: {message}"):
            attempt(copies)
    assert not (tmp_path / "a.toprank-data").exists()


def test_copies_are_verified_on_request(tmp_path):
    [copy] = stored(tmp_path, plain([1, 2]))
    content = bytearray((copy / "labels.npy").read_bytes())
    content[-1] ^= 1
    (copy / "labels.npy").write_bytes(content)
    convert(copy, tmp_path / "a.toprank-data")
    with pytest.raises(FormatError, match="hash differs"):
        convert(copy, tmp_path / "b.toprank-data", verify=True)
    (tmp_path / "data.txt").write_text("\n".join(LINES))
    with pytest.raises(DataError, match="verify=True needs a stored copy"):
        convert(tmp_path / "data.txt", tmp_path / "b.toprank-data", verify=True)


# Bad content


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"label": [0.0, 1, 2, 3, np.inf]}, "The label of row 4 is inf"),
        ({"weight": [1, 1, 1, 1, -1]}, "number 4 is -1"),
        ({"weight": [0] * 5}, "document_weights are all zero"),
        ({"query_weight": [1, 1, 1, 1, 2]}, "Query 2 has several query weights"),
        ({"docid": ["a", "b", "c", "d", None]}, r"'docid' \(document_id\) is empty in row 4"),
        ({"qid": pa.array([1, 1, 1, 1, None])}, r"'qid' \(qid\) is empty in row 4"),
        ({"qid": [1.0, 1, 1, 2, 2.5]}, "row 4 has 2.5"),
        ({"position": [0.5] * 5}, "positions must be whole numbers"),
    ],
)
def test_bad_values_in_tables(tmp_path, more, message):
    folder = parts(tmp_path, part([1, 1, 1, 2, 2]) | more)
    roles = {name: name for name in ("weight", "query_weight") if name in more}
    with pytest.raises(FormatError, match=rf"part-0.parquet: .*{message}"):
        convert(folder, tmp_path / "a.toprank-data", **roles)
    assert os.listdir(tmp_path) == ["parts"]


def test_bad_lines(tmp_path):
    path, target = tmp_path / "data.txt", tmp_path / "a.toprank-data"
    path.write_text("\n".join([*LINES, "1 qid:9 1:high"]))
    with pytest.raises(FormatError, match=r"data.txt:21:11: Expected the value"):
        convert(path, target)
    path.write_text("\n".join(["1 qid:1 1:high", *LINES, LINES[0]]))  # rather this than the query that comes back
    with pytest.raises(FormatError, match=r"data.txt:1:11: Expected the value"):
        convert(path, target)
    path.write_text("")
    with pytest.raises(FormatError, match="The file is empty"):
        convert(path, target, format="letor")
    path.write_text("1 1:1\n")
    with pytest.raises(FormatError, match=r"write the query sizes.*data\.txt\.query"):
        convert(path, target)
    path.write_text("1 qid:1 1:1 2147483647:1\n")
    with pytest.raises(DataError, match=r"A dense array of 1 rows .* would need"):
        convert(path, target)
    (tmp_path / "empty.csv").write_text("qid,label,f\n")
    with pytest.raises(FormatError, match="no rows"):
        convert(tmp_path / "empty.csv", target)
    with pytest.raises(UnknownNameError, match="no option for reading letor called 'sparse'"):
        convert(path, target, sparse=True)
    with pytest.raises(DataError, match="list of paths is empty"):
        convert([], target)
    with pytest.raises(FileError, match="There is no file"):
        convert(tmp_path / "absent.txt", target)
    assert sorted(os.listdir(tmp_path)) == ["data.txt", "empty.csv"]


# Faults of the disk, and of people


@pytest.fixture
def old_copy(tmp_path):
    """A text, and an older stored copy under the name of the new one."""
    (tmp_path / "old.txt").write_text(LINES[0])
    convert(tmp_path / "old.txt", tmp_path / "data.toprank-data")
    (tmp_path / "data.txt").write_text("\n".join(LINES))
    yield tmp_path
    assert open_store(tmp_path / "data.toprank-data", verify=True).n_documents == 1
    assert sorted(os.listdir(tmp_path)) == ["data.toprank-data", "data.txt", "old.txt"]


@pytest.mark.parametrize("call", [0, 5, 12])
def test_a_full_disk_leaves_the_old_copy(old_copy, monkeypatch, call):
    append, calls = store_files.ArrayFile.append, []

    def full(self, block):
        calls.append(self)
        if len(calls) > call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(self, block)

    monkeypatch.setattr(store_files.ArrayFile, "append", full)
    with pytest.raises(FileError, match=r"data.toprank-data cannot be written: No space left on device\."):
        convert(old_copy / "data.txt", old_copy / "data.toprank-data")


def test_too_little_room_is_seen_before_anything_is_written(old_copy, monkeypatch):
    usage = store_writing.shutil.disk_usage
    monkeypatch.setattr(store_writing.shutil, "disk_usage", lambda path: usage(path)._replace(free=100))
    with pytest.raises(FileError, match=r"needs another 0\.0 MB, but only 0\.0 MB are free\. Free some space"):
        convert(old_copy / "data.txt", old_copy / "data.toprank-data")


@pytest.mark.parametrize("block", [0, 1, 3])
def test_an_interrupt_leaves_the_old_copy(old_copy, monkeypatch, block):
    blocks = letor_streaming.LetorStream.blocks

    def interrupted(self):
        for number, one in enumerate(blocks(self)):
            if number == block:
                raise KeyboardInterrupt
            yield one

    monkeypatch.setattr(letor_streaming.LetorStream, "blocks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert(old_copy / "data.txt", old_copy / "data.toprank-data")


def test_an_interrupt_while_the_names_change_leaves_the_old_copy(old_copy, monkeypatch):
    rename = os.rename

    def interrupting(source, target):
        rename(source, target)
        if os.fspath(target).endswith(".tmp"):  # the old copy has just stepped aside
            raise KeyboardInterrupt

    monkeypatch.setattr(store_writing.os, "rename", interrupting)
    with pytest.raises(KeyboardInterrupt):
        convert(old_copy / "data.txt", old_copy / "data.toprank-data")


def test_a_source_that_changes_meanwhile_is_refused(tmp_path, monkeypatch):
    folder = parts(tmp_path, part([1] * 9))
    survey = converting._stream

    def surveyed(*args):
        stream = survey(*args)
        parts(tmp_path, part([1] * 8))
        return stream

    monkeypatch.setattr(converting, "_stream", surveyed)
    with pytest.raises(FileError, match=r"got 8 rows instead of 9: the source changed while it was read"):
        convert(folder, tmp_path / "a.toprank-data")
    assert os.listdir(tmp_path) == ["parts"]


def test_text_that_becomes_shorter_is_refused(tmp_path, monkeypatch):
    """While it is surveyed, and between the survey and the reading: what is mapped and gone ends the process."""
    path = tmp_path / "data.txt"
    path.write_text("\n".join(LINES))
    survey = converting._stream

    def surveyed(*args):
        stream = survey(*args)
        os.truncate(path, 200)
        return stream

    monkeypatch.setattr(converting, "_stream", surveyed)
    with pytest.raises(FileError, match=r"data.txt became shorter while it was read"):
        convert(path, tmp_path / "a.toprank-data")
    chunks = letor_survey._chunks(open_bytes(path), 0)
    os.truncate(path, 100)
    with pytest.raises(FileError, match=r"data.txt became shorter while it was read"):
        [letor_survey._survey(chunk) for chunk in chunks]
    assert os.listdir(tmp_path) == ["data.txt"]


CUT_IN_A_PIECE = """
import os, sys
import toprank as tr
from toprank import kernels
from toprank.errors import FileError

path, survey = sys.argv[1], kernels.letor_survey

def surveyed(*args):
    os.truncate(path, 0)  # the piece has been asked for, and now it is gone
    survey(*args)

kernels.letor_survey = surveyed
try:
    tr.read(path)
except FileError as problem:
    print(problem)
"""


def test_text_that_is_cut_within_a_piece_does_not_end_the_process(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("1 qid:1 1:0.5 2:0.25\n" * 10_000)
    done = subprocess.run(
        [sys.executable, "-c", CUT_IN_A_PIECE, str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{path} became shorter while it was read. Read it again after all writers have finished.\n"


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ("1 qid:1 1:0.5   \n", "1 qid:1\n1 qid:2 \n", {"dense", "sparse"}),  # more rows
        ("1 qid:1 1:0.5\n1 qid:1 1:0.5\n", "1 qid:1 1:0.5\n#            \n", {"dense", "sparse"}),  # fewer
        ("1 qid:1 1:0.5   \n", "1 qid:1 1:1 2:1 \n", {"sparse"}),  # more entries
        ("1 qid:1 1:0.5\n1 qid:2 1:0.5\n", "1 qid:1      \n1 qid:2 1:0.5\n", {"sparse"}),  # fewer
        ("1 qid:1 1:0.5\n1 qid:1 1:0.5\n", "1 qid:1 1:0.5\n1 qid:2 1:0.5\n", set()),
    ],
)
def test_text_that_changes_between_the_passes_is_read_or_refused(tmp_path, monkeypatch, layout, before, after, refused):
    """Never are rows or entries put where there is no room for them."""
    path = tmp_path / "data.txt"
    path.write_text(before)
    survey = letor_survey.survey_chunks

    def surveyed(*args):
        found = survey(*args)
        path.write_text(after)
        return found

    monkeypatch.setattr(letor_survey, "survey_chunks", surveyed)
    if layout not in refused:
        assert read(path, layout=layout, n_features=2).n_documents == before.count("qid")
        return
    with pytest.raises(FileError, match=r"data\.txt changed while it was read\. Read it again"):
        read(path, layout=layout, n_features=2)


def test_a_pipe_that_does_not_fit_blames_the_disk(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text("\n".join(LINES)))
    writer.start()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(
            FileError, match=r"content of .*pipe cannot be stored in the folder of the target: File too large\. Free"
        ):
            convert(tmp_path / "pipe", tmp_path / "a.toprank-data")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    writer.join()
    assert os.listdir(tmp_path) == ["pipe"]


def test_folders_that_may_not_be_read_are_named(tmp_path, monkeypatch):
    locked = tmp_path / "locked"
    locked.mkdir()

    def forbidden(self):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    for method in ("iterdir", "is_dir"):
        with monkeypatch.context() as patched:
            patched.setattr(Path, method, forbidden)
            with pytest.raises(FileError, match=r"locked cannot be read: Permission denied"):
                read(locked)
            with pytest.raises(FileError, match=r"locked cannot be read: Permission denied"):
                read(locked, format="parquet")


def test_places_where_no_copy_can_be(tmp_path):
    (tmp_path / "data.txt").write_text("\n".join(LINES))
    with pytest.raises(DataError, match=r"suffix \.toprank-data"):
        convert(tmp_path / "data.txt", tmp_path / "data.bin", to="store")
    with pytest.raises(FileError, match="cannot be written: No such file"):
        convert(tmp_path / "data.txt", tmp_path / "absent" / "data.toprank-data")
    (tmp_path / "mine.toprank-data").mkdir()
    with pytest.raises(FileError, match="exists and is not a stored copy"):
        convert(tmp_path / "data.txt", tmp_path / "mine.toprank-data")


# The command


def test_the_command(tmp_path):
    folder = parts(tmp_path, part([1, 1]), part([1, 3], f=np.float32([5, 6])))
    done = toprank("convert", folder, tmp_path / "a.toprank-data")
    assert f": {read(folder)}\n" in done.stderr
    assert open_store(tmp_path / "a.toprank-data", verify=True).equals(read(folder))
    again = shutil.copy(folder / "part-0.parquet", tmp_path / "again.parquet")
    done = toprank("convert", *folder.iterdir(), again, tmp_path / "b.toprank-data", status=1)
    assert "regroup" in done.stderr
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["Inferred", "toprank:"]


def test_the_command_says_which_columns_are_what(tmp_path):
    def converted(*arguments):
        return CliRunner().invoke(app, ["convert", *map(str, arguments)])

    table = {"session": [1, 1, 2], "clicks": [0, 1, 2], "id": ["x", "y", "z"], "f": [1.0, 2, 3], "tags": [["a"]] * 3}
    parquet.write_table(pa.table(table | {"w": [1, 2, 3], "qw": [4, 4, 5], "at": [1, 2, 1]}), tmp_path / "log.parquet")
    source, target = tmp_path / "log.parquet", tmp_path / "a.toprank-data"
    refused = str(converted(source, target).exception)
    assert "Give --label COLUMN, or --label '' for unjudged documents." in refused
    refused = str(converted(source, target, "--label", "clicks", "--qid", "session").exception)
    assert "'tags' (list<element: string>)" in refused
    assert "leave it out with --features A,B,...." in refused
    roles = {"label": "clicks", "qid": "session", "document_id": "id", "query_weight": "qw", "position": "at"}
    options = [word for role, name in roles.items() for word in ("--" + role.replace("_", "-"), name)]
    assert converted(source, target, *options, "--features", "f", "--weight", "w", "--dtype", "float32").exit_code == 0
    assert open_store(target).equals(read(source, **roles, weight="w", features=["f"], dtype="float32"))
    assert converted(source, tmp_path / "a.parquet", "--label", "", "--qid", "", "--features", "f").exit_code == 0
    assert not read(tmp_path / "a.parquet").judged.any()
    (tmp_path / "data.txt").write_text("\n".join(LINES))
    assert converted(tmp_path / "data.txt", target, "--n-features", "7").exit_code == 0
    assert open_store(target).n_features == 7
    assert isinstance(converted(tmp_path / "data.txt", target, "--label", "clicks").exception, UnknownNameError)


@pytest.mark.parametrize(
    ("number", "status", "words"), [("SIGTERM", 143, "Terminated"), ("SIGINT", 130, "Interrupted")]
)
def test_signals_end_the_command_and_leave_nothing(tmp_path, number, status, words):
    os.mkfifo(tmp_path / "pipe")
    target = tmp_path / "a.toprank-data"
    command = [sys.executable, "-m", "toprank", "convert", str(tmp_path / "pipe"), str(target)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with open(tmp_path / "pipe", "w"):  # opens when the command does, and then lets it wait
        # A signal that comes between Python's last look for one and the read itself does not end the read: then the
        # thread that listens ends the command, after 4 s and in other words (once in 25 runs of Python 3.13).
        time.sleep(0.3)
        process.send_signal(getattr(signal, number))
        _, said = process.communicate(timeout=60)
    assert process.returncode == status
    assert words in said
    assert len(said.splitlines()) == 1
    assert os.listdir(tmp_path) == ["pipe"]


def test_an_interrupt_before_the_command_begins_is_a_sentence():
    script = """
import sys, types
class Interrupting(types.ModuleType):
    def __getattr__(self, name):
        raise KeyboardInterrupt
from toprank.cli import main
sys.modules["toprank.cli.commands"] = Interrupting("toprank.cli.commands")
main.run()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "toprank: Interrupted.\n")
    script = "import sys, toprank.cli.main; print([name for name in ('typer', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_interrupt_of_any_command_is_a_sentence(monkeypatch):
    class Interrupting(dict):
        def values(self):
            raise KeyboardInterrupt

    monkeypatch.setattr("toprank.metrics.CONVENTIONS", Interrupting())
    result = CliRunner().invoke(app, ["conventions"])
    assert (result.exit_code, result.stderr) == (130, "toprank: Interrupted.\n")


def test_an_interrupt_behind_the_last_step_says_that_the_copy_is_there(tmp_path, monkeypatch):
    def interrupted(path):
        raise KeyboardInterrupt

    (tmp_path / "data.txt").write_text("\n".join(LINES))
    target = tmp_path / "data.toprank-data"
    monkeypatch.setattr(converting, "open_store", interrupted)
    for _ in range(2):  # also where it takes the place of another
        result = CliRunner().invoke(app, ["convert", str(tmp_path / "data.txt"), str(target)])
        assert (result.exit_code, result.stderr) == (130, f"Interrupted, but {target} is complete.\n")


def test_errors_of_the_system_name_the_file(monkeypatch, capsys, run_command):
    from toprank.cli import commands

    def forbidden():
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "locked/x")

    monkeypatch.setattr(commands, "app", forbidden)
    with pytest.raises(SystemExit):
        run_command()
    assert capsys.readouterr().err == "toprank: locked/x: Permission denied.\n"


def test_an_interrupt_of_the_command_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "data.txt").write_text("\n".join(LINES))

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(letor_streaming.LetorStream, "blocks", interrupted)
    target = tmp_path / "data.toprank-data"
    result = CliRunner().invoke(app, ["convert", str(tmp_path / "data.txt"), str(target)])
    assert result.exit_code == 130
    assert result.stderr == f"Interrupted: {target} is unchanged.\n"
    assert os.listdir(tmp_path) == ["data.txt"]
