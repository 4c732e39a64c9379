"""TREC qrels and runs: reading, writing, and the way to and from ranking data."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import shared_data
from toprank import kernels
from toprank.data.dataset import RankingData
from toprank.data.trec import (
    Qrels,
    Run,
    data_of_qrels,
    data_of_run,
    qrels_of,
    read_qrels,
    read_run,
    run_of,
    write_qrels,
    write_run,
)
from toprank.errors import DataError, FileError, FormatError


@pytest.fixture
def text_file(tmp_path):
    def write(text, name="file"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_files_of_trec_eval():
    folder = shared_data("oracle", "trec_eval-test")
    qrels, run = read_qrels(folder / "qrels.test"), read_run(folder / "results.test")
    judged = [line.split() for line in (folder / "qrels.test").read_text().splitlines()]
    retrieved = [line.split() for line in (folder / "results.test").read_text().splitlines()]
    assert [qrels.qids.tolist(), qrels.document_ids.tolist()] == [
        [row[0] for row in judged],
        [row[2] for row in judged],
    ]
    assert qrels.grades.tolist() == [float(row[3]) for row in judged]
    assert run.document_ids.tolist() == [row[2] for row in retrieved]
    assert run.scores.tolist() == [float(row[4]) for row in retrieved]
    assert run.tag == "STANDARD"


def test_words_behind_the_tag_of_a_run_do_not_count(text_file):
    run = read_run(text_file("q Q0 a 1 0.5 mine and more\nq Q0 b 2 0.25 mine\n"))
    assert (run.tag, run.scores.tolist()) == ("mine", [0.5, 0.25])


def test_any_blanks_separate_and_blank_lines_do_not_count(text_file):
    path = text_file("\ufeff\r\n q1\t0  d\u00e91\t 2 \r\n\n  \t\nq1 0 d2 -1\n\x0b\x0cq2 0 d1 0.5")
    qrels = read_qrels(path)
    assert qrels.qids.tolist() == ["q1", "q1", "q2"]
    assert qrels.document_ids.tolist() == ["dé1", "d2", "d1"]
    assert qrels.grades.tolist() == [2, -1, 0.5]
    assert read_qrels(text_file(gzip.compress(path.read_bytes(), mtime=0), "file.gz")).grades.tolist() == [2, -1, 0.5]


def test_scores_are_read_exactly(text_file):
    scores = ["1e-310", "0.1", "-123456789.123456789123456789", "12345678901234567890e3", "7"]
    run = read_run(text_file("".join(f"q Q0 d{i} {i} {score} tag\n" for i, score in enumerate(scores))))
    assert run.scores.tolist() == [float(score) for score in scores]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("q 0 d 1\nq 0 d\n", 2, 1, r"Expected 4 columns, 'query iteration document grade'; found 3"),
        ("q 0 d 1\n\n  q 0 d 1 5", 3, 3, "found 5"),
        ("q 0 d x\n", 1, 7, "Expected the grade, a number; found 'x'"),
        ("q 0 d 1#2\n", 1, 7, "Expected the grade, a number"),
        ("q 0 d nan\n", 1, 7, "Expected the grade, a finite number; found 'nan'"),
        ("q 0 d NULL\n", 1, 7, "a finite number"),
        ("q 0 d -inf\n", 1, 7, "a finite number"),
        ("q 0 d 1e999\n", 1, 7, "too large for float64"),
        ("q 0 d 1\nq 0 e 1\nr 0 d 1\nq 0 d 0\n", 4, 5, "Document d appears twice for query q"),
        (b"q 0 d 1\nq 0 \xff 1\n", 2, 5, "not UTF-8"),
        (b"\x00\x01\x02", 1, 1, "Expected 4 columns"),
    ],
)
def test_bad_lines_are_named(text_file, text, line, column, message):
    path = text_file(text)
    with pytest.raises(FormatError, match=message) as caught:
        read_qrels(path)
    assert (caught.value.path, caught.value.line, caught.value.column) == (path, line, column)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q Q0 d 1 0.5\n", "Expected 6 columns, 'query Q0 document rank score tag'; found 5"),
        ("q Q0 d 1 high t\n", ":1:10: Expected the score, a number; found 'high'"),
        ("q Q0 d 1 1e999 t\n", ":1:10: The score is too large"),
        ("q Q0 d 1 1 t\nq Q0 d 2 0 t\n", ":2:6: Document d appears twice"),
        ("", "The file is empty"),
        ("\n\n", "The file is empty"),
        (gzip.compress(b"q Q0 d 1 1 t\n" * 100, mtime=0)[:-10], "gzip data ends too early"),
        ("x" * 3_000_000, "Expected 6 columns"),
    ],
)
def test_bad_runs(text_file, text, message):
    with pytest.raises(FormatError, match=message):
        read_run(text_file(text))


def test_one_long_id_among_many_does_not_eat_the_memory(text_file):
    lines = [f"q 0 d{i} 1" for i in range(30_000)] + ["q 0 " + "x" * 10_000 + " 1"]
    with pytest.raises(DataError, match="padded to the longest one"):
        read_qrels(text_file("\n".join(lines)))


@pytest.mark.parametrize(
    ("reader", "text"), [(read_run, "q Q0 d 1 0.5 t\rq Q0 e 2 0.4 t\r"), (read_qrels, "q 0 d 1\rq 0 e 2\r")]
)
def test_line_ends_of_old_macs_are_refused(text_file, reader, text):
    with pytest.raises(FormatError, match=r":1:\d+: The line contains a carriage return"):
        reader(text_file(text))


@pytest.mark.parametrize("line", ["q 0 d\0 1\n", "q\0 0 d 1\n"])
def test_ids_may_not_end_in_a_zero_byte(text_file, line):
    with pytest.raises(FormatError, match=r":2:.*ends in a zero byte"):
        read_qrels(text_file("q 0 d 1\n" + line))


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(FileError, match="There is no file"):
        read_run(tmp_path / "absent")
    with pytest.raises(FileError, match="is a folder"):
        read_qrels(tmp_path)


@settings(max_examples=300, deadline=None)
@given(
    text=st.one_of(
        st.binary(max_size=80),
        st.lists(st.sampled_from([b" ", b"\n", b"q", b"0", b"d", b"1.5", b"\xff", b"e"])).map(b"".join),
    )
)
def test_any_bytes_give_columns_or_our_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "trec-fuzz"
    path.write_bytes(text)
    for read, most in ((read_qrels, 4), (read_run, 1000)):
        try:
            table = read(path)
        except (DataError, FileError):
            continue
        assert len(table) == sum(0 < len(line.split()) <= most for line in text.split(b"\n"))


word = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=6)
pairs = st.lists(st.tuples(word, word), min_size=1, max_size=12, unique=True)


@settings(max_examples=100, deadline=None)
@given(pairs=pairs, draw=st.data(), suffix=st.sampled_from(["", ".gz", ".zst"]))
def test_what_is_written_is_read(tmp_path_factory, pairs, draw, suffix):
    folder = tmp_path_factory.mktemp("trip")
    numbers = draw.draw(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=len(pairs), max_size=len(pairs))
    )
    qids, ids = [q for q, _ in pairs], [d for _, d in pairs]
    write_qrels(Qrels(qids, ids, numbers), folder / f"qrels{suffix}")
    write_run(Run(qids, ids, numbers, "system"), folder / f"run{suffix}")
    qrels, run = read_qrels(folder / f"qrels{suffix}"), read_run(folder / f"run{suffix}")
    for table, values in ((qrels, qrels.grades), (run, run.scores)):
        assert list(zip(table.qids.tolist(), table.document_ids.tolist(), strict=True)) == pairs
        assert values.tolist() == numbers
    assert run.tag == "system"


def test_the_written_text(tmp_path):
    write_qrels(Qrels.from_source({"a": {"x": 2, "y": 0.5}}), tmp_path / "qrels")
    assert (tmp_path / "qrels").read_text() == "a 0 x 2\na 0 y 0.5\n"
    write_run(Run.from_source({"a": {"x": 1, "y": 2}, "b": {"x": -0.25}}, tag="bm25"), tmp_path / "run")
    assert (tmp_path / "run").read_text() == "a Q0 x 2 1 bm25\na Q0 y 1 2 bm25\nb Q0 x 1 -0.25 bm25\n"


@pytest.mark.parametrize("run", [Run(["a b"], ["x"], [1]), Run(["a"], [""], [1]), Run(["a"], ["x"], [1], "two words")])
def test_columns_must_be_words(tmp_path, run):
    with pytest.raises(DataError, match="must be a word without whitespace"):
        write_run(run, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_ranks_follow_trec_eval():
    """By score as float32, then by document id, both descending."""
    close = 1 + 2.0**-30  # equals 1 in float32
    run = Run(["q", "q", "p", "q", "q"], ["a", "c", "a", "b", "d"], [1.0, close, 0.0, close, 2.0])
    assert run.ranks().tolist() == [4, 2, 1, 3, 1]


@pytest.mark.parametrize(
    "frame",
    [
        lambda: pytest.importorskip("pandas").DataFrame(
            {"query_id": [1, 1, 2], "doc_id": ["x", "y", "x"], "relevance": [1, 0, 2]}
        ),
        lambda: pytest.importorskip("polars").DataFrame(
            {"qid": ["1", "1", "2"], "docno": ["x", "y", "x"], "label": [1, 0, 2]}
        ),
        lambda: __import__("pyarrow").table({"qid": ["1", "1", "2"], "docno": ["x", "y", "x"], "label": [1, 0, 2]}),
        lambda: {1: {"x": 1, "y": 0}, 2: {"x": 2}},
    ],
)
def test_qrels_of_frames_and_dicts(frame):
    qrels = Qrels.from_source(frame())
    assert qrels.qids.tolist() == ["1", "1", "2"]
    assert qrels.document_ids.tolist() == ["x", "y", "x"]
    assert qrels.grades.tolist() == [1, 0, 2]
    assert Qrels.from_source(qrels) is qrels
    with pytest.raises(ValueError, match="read-only"):
        qrels.grades[0] = 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Qrels(["a", "a"], ["x", "x"], [1, 0]), "appears twice for query a"),
        (lambda: Qrels(["a", "a"], ["x"], [1, 0]), "1 document ids for 2"),
        (lambda: Run(["a"], ["x"], [np.nan]), "row 0 is nan"),
        (lambda: Run.from_source({}), "no scores"),
        (lambda: Qrels.from_source(5), "not int"),
        (
            lambda: Qrels.from_source(pytest.importorskip("pandas").DataFrame({"qid": [1]})),
            "no column for the document",
        ),
        (lambda: run_of([1.0], RankingData([[1.0]])), "no document ids"),
        (lambda: run_of([1.0], RankingData([[1.0]] * 2, document_ids=["a", "b"])), "1 scores for 2"),
        (lambda: run_of([np.inf], RankingData([[1.0]], document_ids=["a"])), "must be finite"),
        (lambda: qrels_of(RankingData([[1.0]], [-1], document_ids=["a"])), "no grades"),
    ],
)
def test_contradictions_are_refused(make, message):
    with pytest.raises(DataError, match=message):
        make()


def test_ids_with_equal_hashes_are_told_apart(monkeypatch):
    def no_difference(_one, _other, hashes):
        hashes[:] = 7

    monkeypatch.setattr(kernels, "hash_pairs", no_difference)
    assert len(Qrels(["a", "a", "b"], ["x", "y", "x"], [1, 2, 3])) == 3
    with pytest.raises(DataError, match="Row 3"):
        Qrels(["a", "a", "b", "a"], ["x", "y", "x", "y"], [1, 2, 3, 4])


def test_ranking_data_and_back():
    data = RankingData(
        np.zeros((5, 1)), [1, -1, np.nan, 0, 2], qid=[7, 7, 7, 3, 3], document_ids=["a", "b", "c", "a", "b"]
    )
    qrels = qrels_of(data)
    assert (qrels.qids.tolist(), qrels.document_ids.tolist(), qrels.grades.tolist()) == (
        ["7", "3", "3"],
        ["a", "a", "b"],
        [1, 0, 2],
    )
    run = run_of([0.5, 0.5, 0.9, 1, 2], data, tag="mine")
    assert run.qids.tolist() == ["7", "7", "7", "3", "3"]
    assert run.document_ids.tolist() == ["c", "b", "a", "b", "a"]
    assert run.tag == "mine"
    back = data_of_run(run, qrels)
    assert back.feature_names == ("score", "rank")
    assert back.X.tolist() == [[0.9, 1], [0.5, 2], [0.5, 3], [2, 1], [1, 2]]
    np.testing.assert_array_equal(back.labels, [np.nan, np.nan, 1, 2, 0])
    assert np.isnan(data_of_run(run).labels).all()
    judged = data_of_qrels(qrels)
    assert (judged.qids.tolist(), judged.labels.tolist(), judged.n_features) == (["7", "3"], [1, 0, 2], 0)


def test_a_run_whose_queries_are_scattered_is_regrouped():
    run = Run(["q", "p", "q"], ["a", "a", "b"], [1, 2, 3])
    data = data_of_run(run)
    assert data.qids.tolist() == ["q", "p"]
    assert data.document_ids.tolist() == ["a", "b", "a"]
    assert data.X[:, 1].tolist() == [2, 1, 1]
