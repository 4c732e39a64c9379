"""One door for all files: formats are recognized, options reach their reader, scores are one number a line."""

from __future__ import annotations

import gzip
import io
import os
import signal
import stat
import subprocess
import sys
import threading
import zlib
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyarrow import parquet

import toprank as tr
from ragged import ranking_data
from support import shared_data
from toprank.data import bytesource as remains
from toprank.data import decompression, letor
from toprank.data.bytesource import open_bytes, output, temporary_sibling
from toprank.data.dataset import RankingData
from toprank.data.files import format_of, read, write
from toprank.data.scores import read_scores, write_scores
from toprank.errors import DataError, FileError, FormatError, ToprankError, UnknownNameError
from toprank.rankers import LinearRanker

SUFFIXES = [".txt", ".letor", ".svm", ".dat", ".txt.gz", ".txt.zst", ".parquet", ".pq", ".arrow", ".feather", ".csv"]
SUFFIXES += [".tsv", ".csv.gz", ".toprank-data"]
LETOR = "2 qid:7 1:0.5 3:1 # docid = a\n0 qid:7 2:NULL 3:2 # docid = b\n1 qid:9 1:4 # docid = c\n"
QRELS = "q1 0 d1 1\nq1 0 d2 0\nq2 0 d1 2\n"
RUN = "q1 Q0 d1 1 2.5 me\nq1 Q0 d3 2 1.5 me\n"


def example() -> RankingData:
    X = np.float32([[0.5, 1], [0.25, -1e-30], [3, 1e30], [0.1, 2]])
    return RankingData(X, [0, 1, 2, 1], qid=[4, 4, 7, 7], document_ids=list("wxyz"))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(LETOR)
    return path


# Round trips and recognition


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_recognized_and_read_back(tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    write(example(), path)
    options = {"dtype": np.float32} if ".csv" in suffix or ".tsv" in suffix else {}
    assert read(path, **options).equals(example())
    write(example().select([1]), path)
    assert read(path, **options).equals(example().select([1]))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [suffix for suffix in SUFFIXES if ".csv" not in suffix and ".tsv" not in suffix])
def test_content_tells_where_the_name_does_not(tmp_path, suffix):
    known, unknown = tmp_path / f"data{suffix}", tmp_path / "data"
    write(example(), known)
    known.rename(unknown)
    assert format_of(unknown) == {".p": "parquet", ".a": "arrow", ".f": "arrow", ".to": "store"}.get(
        suffix[: 3 if suffix == ".toprank-data" else 2], "letor"
    )
    assert read(unknown).equals(example())


def test_formats_can_be_given(tmp_path):
    for name in ("letor", "parquet", "arrow", "csv"):
        write(example(), tmp_path / "data.x", format=name)
        options = {"dtype": "float32"} if name == "csv" else {}
        assert read(tmp_path / "data.x", format=name, **options).equals(example())
    with pytest.raises(UnknownNameError, match="format called 'parket'; did you mean 'parquet'"):
        read(tmp_path / "data.x", format="parket")
    with pytest.raises(UnknownNameError, match="did you mean 'letor'"):
        write(example(), tmp_path / "data.x", format="leto")


def test_trec_files(tmp_path):
    (tmp_path / "qrels.test").write_text(QRELS)
    (tmp_path / "results").write_text(RUN)
    judgments = read(tmp_path / "qrels.test")
    assert (judgments.qids.tolist(), judgments.labels.tolist()) == (["q1", "q2"], [1, 0, 2])
    run = read(tmp_path / "results", qrels=tmp_path / "qrels.test")
    np.testing.assert_array_equal(run.labels, [1, np.nan])
    assert run.X[:, 0].tolist() == [2.5, 1.5]
    assert not read(tmp_path / "results").judged.any()
    write(judgments, tmp_path / "copy.qrels")
    assert (tmp_path / "copy.qrels").read_text() == QRELS
    assert read(tmp_path / "copy.qrels").equals(judgments)
    with pytest.raises(DataError, match="write cannot write a run, which needs scores"):
        write(judgments, tmp_path / "copy.run")


def test_trec_evals_own_files():
    folder = shared_data("oracle", "trec_eval-test")
    assert format_of(folder / "qrels.test") == "qrels"
    assert format_of(folder / "results.test") == "run"


def test_several_files_are_one_data_set(tmp_path):
    data = example()
    for suffix in (".txt", ".parquet", ".toprank-data"):
        for number in (0, 1):
            write(data.select([number]), tmp_path / f"{number}{suffix}")
        assert read([tmp_path / f"0{suffix}", tmp_path / f"1{suffix}"]).equals(data)
    (tmp_path / "0.qrels").write_text("a 0 d 1\n")
    (tmp_path / "1.qrels").write_text("b 0 d 1\n")
    assert read([tmp_path / "0.qrels", tmp_path / "1.qrels"]).qids.tolist() == ["a", "b"]
    with pytest.raises(DataError, match=r"0\.txt is letor, but .*1\.parquet is parquet"):
        read([tmp_path / "0.txt", tmp_path / "1.parquet"])
    with pytest.raises(DataError, match="list of paths is empty"):
        read([])


@pytest.mark.parametrize("suffix", [".txt", ".parquet", ".csv", ".qrels", ".run", ".toprank-data"])
def test_a_file_given_twice_is_refused(tmp_path, monkeypatch, suffix):
    """A single query would join with itself, and look like a longer one."""
    path = tmp_path / f"one{suffix}"
    lines = {".csv": "label,qid,a\n1,7,0.5\n", ".qrels": "a 0 d 1\n", ".run": "a Q0 d 1 2.5 tag\n"}
    if suffix in lines:
        path.write_text(lines[suffix])
    else:
        write(example().select([0]), path)
    link = tmp_path / f"link{suffix}"
    link.symlink_to(path)
    assert len(read(path).queries) == 1
    monkeypatch.chdir(tmp_path)
    for again in (path, path.name, tmp_path / "." / path.name, link):
        with pytest.raises(DataError, match=rf"The file .*{again.name if again == link else path.name} is given twice"):
            read([path, again])


def test_a_file_beside_its_folder_is_given_twice(tmp_path):
    (tmp_path / "parts").mkdir()
    write(example(), tmp_path / "parts" / "0.parquet")
    with pytest.raises(DataError, match=r"The file .*0\.parquet is given twice"):
        read([tmp_path / "parts", tmp_path / "parts" / "0.parquet"])


def test_folders(tmp_path):
    data = example()
    (tmp_path / "parts").mkdir()
    write(data, tmp_path / "parts" / "0.parquet")
    assert read(tmp_path / "parts").equals(data)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FileError, match=r"neither a stored copy nor a folder of Parquet files; for LETOR folds use folds\(\)"
    ):
        read(tmp_path / "empty")


def test_files_that_tell_nothing(tmp_path):
    for content in (b"", b"\x00\x01\x02" * 99, b"hello world\n", b"a,b,c\n1,2,3\n"):
        (tmp_path / "data").write_bytes(content)
        with pytest.raises(FormatError, match="Neither content nor name determines the format"):
            read(tmp_path / "data")
        (tmp_path / "data.txt").write_bytes(content)
        with pytest.raises(FormatError, match=r"data\.txt"):
            read(tmp_path / "data.txt")
    (tmp_path / "data").write_bytes(b"FEA1....")
    with pytest.raises(FormatError, match="old Feather format"):
        read(tmp_path / "data")
    with pytest.raises(FileError, match="no file"):
        read(tmp_path / "absent.txt")
    with pytest.raises(UnknownNameError, match=r"format for the suffix called '\.xls'"):
        write(example(), tmp_path / "data.xls")


# Options


def test_options_reach_their_reader(text, tmp_path):
    assert read(text, missing="zero", dtype=np.float64).X.tolist() == [[0.5, 0, 1], [0, 0, 2], [4, 0, 0]]
    assert read(text, layout="sparse").is_sparse
    table = pa.table({"a": [1, 2], "b": [0, 1], "c": [0.5, 1.5]})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet", qid="a", label="b", threads=1).feature_names == ("c",)
    write(example(), tmp_path / "zero.txt", first_feature_id=0)
    assert (tmp_path / "zero.txt").read_text().startswith("0 qid:4 0:0.5 1:1")


@pytest.mark.parametrize(
    ("suffix", "option", "message"),
    [
        (".txt", "mising", "option for reading letor called 'mising'; did you mean 'missing'"),
        (".txt", "label", "option for reading letor called 'label'"),
        (".parquet", "missing", "option for reading parquet called 'missing'"),
        (".csv", "lable", "option for reading csv called 'lable'; did you mean 'label'"),
        (".toprank-data", "dtype", "option for reading store called 'dtype'"),
    ],
)
def test_options_that_a_format_has_not_are_refused(tmp_path, suffix, option, message):
    write(example(), tmp_path / f"data{suffix}")
    with pytest.raises(UnknownNameError, match=message):
        read(tmp_path / f"data{suffix}", **{option: "x"})


def test_options_that_a_writer_has_not_are_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="option for writing letor called 'mising'; did you mean 'missing'"):
        write(example(), tmp_path / "data.txt", mising="omit")
    for internal in ("source", "source_hash"):
        with pytest.raises(UnknownNameError, match=f"option for writing store called '{internal}'") as refused:
            write(example(), tmp_path / "data.toprank-data", **{internal: {}})
        assert "none" in str(refused.value)  # and no internal option is offered
    assert list(tmp_path.iterdir()) == []


# Cache


def test_the_cache_is_used_until_the_file_changes(text, monkeypatch):
    first = read(text, cache=True)
    assert text.with_name("train.txt.toprank-data").is_dir()
    with monkeypatch.context() as patched:
        patched.setattr(letor.survey, "open_bytes", lambda *_: pytest.fail("the text was read again"))
        assert read(text, cache=True).equals(first)
        assert read(text, cache=True, verify=True, threads=1).equals(first)
    text.write_text(LETOR + "1 qid:11 1:1 # docid = d\n")
    assert read(text, cache=True).n_queries == 3
    assert read(text, cache=True, missing="zero").X[0].tolist() == [0.5, 0, 1]
    assert read(text).n_queries == 3


def test_side_files_count_for_the_cache(tmp_path):
    path = tmp_path / "rank.train"
    path.write_text("1 1:0.5\n0 1:1\n1 1:2\n")
    side = tmp_path / "rank.train.query"
    side.write_text("1\n2\n")
    assert read(path, cache=True).queries.sizes.tolist() == [1, 2]
    side.write_text("2\n1\n\n")
    assert read(path, cache=True).queries.sizes.tolist() == [2, 1]


def test_judgments_count_for_the_cache_of_a_run(tmp_path):
    (tmp_path / "a.run").write_text(RUN)
    (tmp_path / "a.qrels").write_text(QRELS)
    assert read(tmp_path / "a.run", cache=True, qrels=tmp_path / "a.qrels").labels[0] == 1
    (tmp_path / "a.qrels").write_text("q1 0 d1 33\n")
    assert read(tmp_path / "a.run", cache=True, qrels=tmp_path / "a.qrels").labels[0] == 33


def test_words_of_what_a_table_is_like_count_for_its_cache(tmp_path):
    words = {"qid": [1, 1], "label": [0, 1], "f": [0.5, 0.25], "asked": ["a", "a"], "title": ["a", "b"]}
    parquet.write_table(pa.table(words), tmp_path / "t.parquet")
    plain = read(tmp_path / "t.parquet", features=["f"])
    matched = read(tmp_path / "t.parquet", features=["f"], text={"query": "asked", "document": "title"})
    assert read(tmp_path / "t.parquet", cache=True, like=plain).text is None
    assert read(tmp_path / "t.parquet", cache=True, like=matched).text == matched.text


def test_a_cache_moves_with_its_file(tmp_path):
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "a.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:1\n")
    read(tmp_path / "before" / "a.txt", cache=True)
    (tmp_path / "before").rename(tmp_path / "after")
    copy = tmp_path / "after" / "a.txt.toprank-data"
    when = copy.stat().st_mtime_ns
    assert read(tmp_path / "after" / "a.txt", cache=True).n_documents == 2
    assert copy.stat().st_mtime_ns == when


def test_verify_and_cache_need_something_to_work_on(text, tmp_path):
    with pytest.raises(DataError, match="verify=True needs a stored copy"):
        read(text, verify=True)
    write(example(), tmp_path / "other.txt")
    with pytest.raises(DataError, match="for a single file only"):
        read([text, tmp_path / "other.txt"], cache=True)
    write(example(), tmp_path / "c.toprank-data")
    assert read(tmp_path / "c.toprank-data", cache=True, verify=True).equals(example())


def test_an_unreadable_file_leaves_no_cache(tmp_path):
    path = tmp_path / "bad.txt"
    path.write_text("1 qid:1 1:x\n")
    with pytest.raises(FormatError):
        read(path, cache=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.txt"]


def test_a_new_version_reads_anew(text, monkeypatch):
    read(text, cache=True)
    calls = []
    monkeypatch.setattr("toprank.__version__", "999")
    monkeypatch.setattr("toprank.data.cache.write_store", lambda *args, **options: calls.append(args))
    read(text, cache=True)
    assert len(calls) == 1


# Scores


@given(hnp.arrays(np.float64, st.integers(1, 20), elements=st.floats(allow_nan=False, allow_infinity=False)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_scores_read_back_exactly(tmp_path, scores):
    for name in ("s.txt", "s.npy", "s.txt.gz", "s.zst"):
        write_scores(scores, tmp_path / name)
        np.testing.assert_array_equal(read_scores(tmp_path / name, len(scores)), scores)


def test_scores_of_numpy_are_unpacked_as_text_is(tmp_path):
    np.save(tmp_path / "s.npy", [0.5, -1.0])
    (tmp_path / "s.npy.gz").write_bytes(gzip.compress((tmp_path / "s.npy").read_bytes()))
    assert read_scores(tmp_path / "s.npy.gz").tolist() == [0.5, -1.0]


def test_scores_of_numpy_come_from_a_pipe(tmp_path):
    packed = io.BytesIO()
    np.save(packed, [0.5, -1.0])
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(packed.getvalue(),))
    writer.start()
    assert read_scores(tmp_path / "pipe").tolist() == [0.5, -1.0]
    writer.join()


def test_scores_in_all_their_spellings(tmp_path):
    path = tmp_path / "scores"
    path.write_bytes(b"\xef\xbb\xbf 1\r\n-2.5e3\t\n+.5\n1e-320\n\n  \n")
    assert read_scores(path).tolist() == [1, -2500, 0.5, 1e-320]
    path.write_bytes(gzip.compress(b"1\n2", mtime=0))
    assert read_scores(path, 2).tolist() == [1, 2]
    write_scores(np.float32([0.1]), path)
    assert read_scores(path).tolist() == [float(np.float32(0.1))]
    write_scores([3, 4], path)
    assert read_scores(path).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", None, "empty"),
        (b"\n \n", None, "empty"),
        (b"1\n\n2\n", 2, "Expected one finite number, not ''"),
        (b"1\nx\n", 2, "not 'x'"),
        (b"1 2\n", 1, "not '1 2'"),
        (b"0.5,\n", 1, "not '0.5,'"),
        (b"1\nnan\n", 2, "not 'nan'"),
        (b"inf\n", 1, "not 'inf'"),
        (b"1e999\n", 1, "not '1e999'"),
        (b"1_000\n", 1, "not '1_000'"),
        (b"\x00\xff\n", 1, "Expected one finite number"),
        (b"7 Q0 d6 1 3.2 bm25\n", 1, "Use tr.read_run for a TREC run"),
        (b"9" * 10_000_000, 1, "…"),
        (b"\x93NUMPY\x01\x00", None, "NumPy file is damaged"),
    ],
)
def test_bad_scores_are_refused(tmp_path, content, line, message):
    path = tmp_path / "scores.txt"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as caught:
        read_scores(path)
    assert caught.value.line == line
    assert len(str(caught.value)) < 300


def test_bad_counts_and_arrays_are_refused(tmp_path):
    path = tmp_path / "scores.txt"
    path.write_text("1\n2\n")
    with pytest.raises(FormatError, match="There are 2 scores for 3 documents"):
        read_scores(path, 3)
    with pytest.raises(FileError, match="no file"):
        read_scores(tmp_path / "absent")
    for array, message in (
        (np.ones((2, 2)), "not float64 of shape"),
        (np.array(["a"]), "not <U1"),
        (np.array([1.0, np.nan]), r"number 1 \(from 0\) is nan"),
        (np.array([None]), "contains objects"),
    ):
        np.save(tmp_path / "s.npy", array, allow_pickle=True)
        with pytest.raises(FormatError, match=message):
            read_scores(tmp_path / "s.npy")
    for scores in ([np.nan], [[1.0]], ["a"], [None], 3.0):
        with pytest.raises(DataError, match="list of finite numbers"):
            write_scores(scores, tmp_path / "out.txt")
    assert not (tmp_path / "out.txt").exists()


@given(st.binary(max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_scores_or_refused(tmp_path, content):
    path = tmp_path / "scores"
    path.write_bytes(content)
    with suppress(ToprankError):
        assert np.isfinite(read_scores(path)).all()


@given(ranking_data(sparse=st.just(False)), st.sampled_from([".parquet", ".arrow", ".toprank-data"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_any_data_go_through_the_door(tmp_path, data, suffix):
    path = tmp_path / f"data{suffix}"
    write(data, path)
    again = read(path)
    assert again.equals(data if data.n_features else data.replace(X=again.X))


# Compressed bytes


def test_a_small_file_that_unpacks_to_a_large_one_is_unpacked_in_blocks(tmp_path):
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(20 << 20)) + gzip.compress(b"end"))
    with path.open("rb") as stream:
        sizes = [len(block) for block in decompression.gunzip(path, stream)]
    assert max(sizes) <= decompression._BLOCK
    assert sum(sizes) == (20 << 20) + len(b"end")


def test_many_small_members_are_not_copied_for_each_of_them(tmp_path, monkeypatch):
    fed, make = 0, zlib.decompressobj

    class Counting:
        def __init__(self, wbits):
            self.inner = make(wbits=wbits)

        def decompress(self, piece, most):
            nonlocal fed
            fed += len(piece)
            return self.inner.decompress(piece, most)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    monkeypatch.setattr(decompression.zlib, "decompressobj", Counting)
    count = 5_000
    content = gzip.compress(b"x") * count
    list(decompression.gunzip("many.gz", io.BytesIO(content)))
    assert fed <= count * (len(gzip.compress(b"x")) + decompression._FIRST_STEP)


@given(st.lists(st.tuples(st.binary(max_size=3000), st.integers(0, 40)), min_size=1, max_size=6), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=50)
def test_members_and_their_padding_unpack_as_gzip_unpacks_them(tmp_path, members, data):
    whole = b"".join(gzip.compress(content, mtime=0) + bytes(zeros) for content, zeros in members)
    path = tmp_path / "members.gz"
    path.write_bytes(whole)
    assert open_bytes(path).text.tobytes() == gzip.decompress(whole) == b"".join(content for content, _ in members)
    last = gzip.compress(members[-1][0], mtime=0)
    path.write_bytes(whole + last[: data.draw(st.integers(1, len(last) - 1))])
    with pytest.raises(FormatError, match="ends too early"):
        open_bytes(path)


# What is written into, and what is replaced


def test_links_stay_and_what_they_lead_to_is_replaced(tmp_path):
    (tmp_path / "deep").mkdir()
    target, link, second = tmp_path / "deep" / "scores.txt", tmp_path / "link.txt", tmp_path / "second.txt"
    link.symlink_to("deep/scores.txt")
    second.symlink_to(link)
    for number in (1.0, 2.0):  # at first the link leads nowhere
        write_scores([number], second)
        assert target.read_text() == f"{number}\n"
        assert link.is_symlink()
        assert second.is_symlink()
    before = target.stat().st_ino
    write_scores([3.0], link)
    assert target.stat().st_ino != before
    assert os.listdir(target.parent) == [target.name]
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    with pytest.raises(FileError, match=r"loop\.txt cannot be written: Too many levels of symbolic links"):
        write_scores([1.0], tmp_path / "loop.txt")


def into_pipe(path, writer):
    """What arrives at the other end."""
    os.mkfifo(path)
    found = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()))
    reader.start()
    writer(path)
    reader.join(60)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert os.listdir(path.parent) == [path.name]
    return found[0]


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz", "x.txt.zst", "x.csv", "x.parquet", "x.arrow"])
def test_pipes_are_written_into(tmp_path, name):
    (tmp_path / "pipe").mkdir()
    content = into_pipe(tmp_path / "pipe" / name, lambda path: write(example(), path))
    (tmp_path / name).write_bytes(content)
    options = {"dtype": np.float32} if name == "x.csv" else {}
    assert read(tmp_path / name, **options).equals(example())


@pytest.mark.parametrize("name", ["s.txt", "s.npy"])
def test_scores_are_written_into_pipes(tmp_path, name):
    (tmp_path / "pipe").mkdir()
    scores = np.arange(70_000) / 3
    (tmp_path / name).write_bytes(into_pipe(tmp_path / "pipe" / name, lambda path: write_scores(scores, path)))
    np.testing.assert_array_equal(read_scores(tmp_path / name), scores)


def test_models_are_written_into_pipes(tmp_path):
    (tmp_path / "pipe").mkdir()
    ranker = LinearRanker("ListNet").fit(example())
    ranker.save(tmp_path / "plain.toprank")
    assert into_pipe(tmp_path / "pipe" / "m.toprank", ranker.save) == (tmp_path / "plain.toprank").read_bytes()


def device(path, major, minor):
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(major, minor))
        path.open("wb").close()
    except OSError as problem:
        pytest.skip(f"devices cannot be made here: {problem.strerror}")
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="the numbers of devices are those of Linux")
@pytest.mark.parametrize("name", ["full.txt", "full.gz", "full.zst", "full.csv", "full.parquet", "full.npy"])
def test_a_full_device_is_told_in_a_sentence_and_stays(tmp_path, name):
    full = device(tmp_path / name, 1, 7)
    writer, content = (write, example()) if name in ("full.csv", "full.parquet") else (write_scores, np.arange(10.0))
    with pytest.raises(FileError, match=f"{name} cannot be written: .*No space left on device"):
        writer(content, full)
    assert stat.S_ISCHR(full.stat().st_mode)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.skipif(sys.platform != "linux", reason="the numbers of devices are those of Linux")
def test_a_device_takes_what_is_written(tmp_path):
    null = device(tmp_path / "null.txt", 1, 3)
    write_scores([1.0], null)
    assert stat.S_ISCHR(null.stat().st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_our_own_output_goes_on_where_it_is(tmp_path, name):
    """As the shell's `>>` has it: what is there stays, and what others write comes behind."""
    script = f"from toprank.data.scores import write_scores\nprint('a')\nwrite_scores([1.0], {name!r})\nprint('b')"
    if not os.path.exists(name):
        pytest.skip(f"there is no {name} here")
    log = tmp_path / "log"
    log.write_text("before\n")
    with log.open("ab") as stream:
        subprocess.run([sys.executable, "-c", script], stdout=stream, check=True, timeout=120)
    assert log.read_text() == "before\na\n1.0\nb\n"
    piped = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=120)
    assert piped.stdout == b"a\n1.0\nb\n"


def test_folders_and_impossible_names_are_refused(tmp_path):
    with pytest.raises(FileError, match="cannot be written: Is a directory"):
        write_scores([1.0], tmp_path)
    with pytest.raises(FileError, match=r"cannot be written: .*null"):
        write_scores([1.0], f"{tmp_path}/a\0b")
    with pytest.raises(FileError, match="cannot be written: No such file or directory"):
        write_scores([1.0], tmp_path / "absent" / "a.txt")
    write_scores([1.0], tmp_path / ("x" * 255))
    assert os.listdir(tmp_path) == ["x" * 255]


# What a killed process leaves


def test_files_of_killed_processes_are_cleared_away_by_the_next_writer(tmp_path):
    script = (
        "import os, signal, sys\nfrom toprank.data.bytesource import output\n"
        "with output(sys.argv[1]) as stream:\n    stream.write(b'half')\n    stream.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    for name in ("a.txt", "b.txt"):
        done = subprocess.run([sys.executable, "-c", script, str(tmp_path / name)], check=False, timeout=120)
        assert done.returncode == -signal.SIGKILL
    assert all(name.endswith(".part") for name in os.listdir(tmp_path))
    write_scores([1.0], tmp_path / "c.txt")
    assert os.listdir(tmp_path) == ["c.txt"]


def test_files_of_running_processes_and_other_machines_stay(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(remains, "_machine", lambda: "00000000")
        patch.setattr(remains.os, "getpid", lambda: 2**22 + 1)
        elsewhere = temporary_sibling(tmp_path / "a.txt", ".part")
    mine = tmp_path / ".a.txt.part"
    for path in (elsewhere, mine):
        path.touch()
    with output(tmp_path / "a.txt"):
        write_scores([1.0], tmp_path / "b.txt")
    assert sorted(os.listdir(tmp_path)) == sorted([elsewhere.name, mine.name, "a.txt", "b.txt"])


# ---- names that files cannot have ----


@pytest.mark.parametrize("name", ["a\0b", "a" * 300])
def test_names_that_no_file_can_have_are_refused_in_a_sentence(tmp_path, name):
    data = tr.synthetic(n_queries=3, n_features=2, seed=0)
    ranker = tr.LinearRanker().fit(data)
    scores = ranker.predict(data)
    identified = data.replace(document_ids=np.arange(data.n_documents).astype(str))
    uses = [
        lambda: tr.read(tmp_path / f"{name}.txt"),
        lambda: tr.write(data, tmp_path / f"{name}.txt"),
        lambda: tr.write(data, tmp_path / f"{name}.parquet"),
        lambda: tr.write(data, tmp_path / f"{name}.toprank-data"),
        lambda: tr.convert(tmp_path / f"{name}.txt", tmp_path / "x.toprank-data"),
        lambda: tr.load(tmp_path / f"{name}.toprank"),
        lambda: ranker.save(tmp_path / f"{name}.toprank"),
        lambda: tr.read_scores(tmp_path / name),
        lambda: tr.write_scores(scores, tmp_path / name),
        lambda: tr.read_run(tmp_path / name),
        lambda: tr.write_run(identified, scores, tmp_path / name),
        lambda: tr.clicks.read(tmp_path / f"{name}.jsonl"),
        lambda: tr.export(ranker, "json", tmp_path / f"{name}.json"),
        lambda: tr.folds(tmp_path / name),
    ]
    for use in uses:
        with pytest.raises(FileError):
            use()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".csv", ".parquet", ".toprank-data"])
def test_names_as_long_as_file_systems_allow(tmp_path, suffix):
    """255 bytes: nothing that lies beside the file while it is written or read has a longer name."""
    data = tr.synthetic(n_queries=3, n_features=2, seed=0).replace(feature_names=None)
    path = tmp_path / ("a" * (255 - len(suffix)) + suffix)
    tr.write(data, path)
    assert tr.read(path).n_documents == data.n_documents
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
