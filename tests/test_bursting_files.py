"""Text made to burst: a line has a limit, and memory is bounded by what is kept, plain or unpacked."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest

from confined import outcomes
from toprank.data import bytesource
from toprank.data.bytesource import open_bytes
from toprank.data.scores import read_scores
from toprank.data.trec.files import read_qrels
from toprank.errors import FormatError

STARTS = {
    "letor": b"2 qid:1 1:0.5 # ",
    "run": b"q Q0 d 1 0.5 tag ",
    "qrels": b"q 0 d 1 ",
    "scores": b"0.5\n1",
    "clicks": b'{"query": "a", "url": "b", "rank": 1, "click": 0, "x": "',
}
LETTERS = {"letor": b"x", "clicks": b"x"}


def packed(path, start, letter, size):
    """A file that unpacks to `start` and then one letter so many times: members follow each other, a megabyte each."""
    if path.suffix not in (".gz", ".zst"):
        with path.open("wb") as stream:  # zeros that take no room on the disk
            stream.write(start)
            stream.truncate(size)
        return path
    pack = gzip.compress if path.suffix == ".gz" else lambda content: pa.compress(content, "zstd", asbytes=True)
    path.write_bytes(pack(start) + pack(letter * (1 << 20)) * (size >> 20))
    return path


@pytest.mark.parametrize("size", [96 << 20, pytest.param(2 << 30, marks=pytest.mark.nightly)])
def test_a_line_without_an_end_is_refused_in_little_memory(tmp_path, size):
    cases = []
    for reader, start in STARTS.items():
        letter = LETTERS.get(reader, b"1")
        for suffix in (".gz", ".zst", ""):
            name = "log.jsonl" if reader == "clicks" else reader
            cases.append((reader, packed(tmp_path / f"{name}{suffix}", start, letter, size)))
    for (_, path), found in zip(cases, outcomes(cases, 400 << 20), strict=True):
        assert "MiB; the file is damaged or not text" in found, (path.name, found)
        assert found.startswith(f"refused: {path}:"), (path.name, found)


@pytest.mark.parametrize("size", [20 << 20, pytest.param(2 << 30, marks=pytest.mark.nightly)])
def test_blank_lines_take_no_memory(tmp_path, size):
    expected = {"letor": "blank lines", "run": "empty", "qrels": "empty", "scores": "empty", "clicks": "empty"}
    cases = [(reader, packed(tmp_path / f"{reader}.gz", b"\n", b"\n", size)) for reader in expected]
    cases[-1][1].rename(tmp_path / "log.jsonl.gz")
    cases[-1] = ("clicks", tmp_path / "log.jsonl.gz")
    for (reader, _), found in zip(cases, outcomes(cases, 400 << 20), strict=True):
        assert found.startswith("refused: "), (reader, found)
        assert expected[reader] in found, (reader, found)


def test_a_qrels_line_of_many_words_is_counted_in_little_memory(tmp_path):
    """8,000,000 words, which as a list would take some 450 MB."""
    words = 8 << 20
    (tmp_path / "q").write_bytes(b"q 0 d 1\n" + b"11 " * words)
    [found] = outcomes([("qrels", tmp_path / "q")], 256 << 20)
    assert f"q:2:1: Expected 4 columns, 'query iteration document grade'; found {words}." in found


def test_pieces_are_whole_lines_and_all_of_them(tmp_path):
    text = b"\xef\xbb\xbfab\n\ncdefgh\nij\nk"
    (tmp_path / "t").write_bytes(text)
    source = open_bytes(tmp_path / "t")
    for size in range(1, 25):
        found = [source.bytes(*piece) for piece in source.pieces(size)]
        assert b"".join(found) == text[3:]
        assert all(piece.endswith(b"\n") for piece in found[:-1])
        assert all(len(piece.rstrip(b"\n").rpartition(b"\n")[0]) < size for piece in found)
    assert list(source.lines()) == [(1, b"ab"), (2, b""), (3, b"cdefgh"), (4, b"ij"), (5, b"k")]


def test_what_is_read_does_not_depend_on_the_pieces(tmp_path, monkeypatch):
    rows = [(f"q{n // 3}", f"d{'x' * (n % 7)}{n}", n / 4) for n in range(200)]
    (tmp_path / "q").write_text("".join(f"{q} 0 {d} {g}\n{' ' * (n % 3)}\n" for n, (q, d, g) in enumerate(rows)))
    (tmp_path / "s").write_text("".join(f"{g}\n" for _, _, g in rows) + "\n  \n\n")
    for size in (1, 50, 1 << 20):
        monkeypatch.setattr("toprank.data.trec.files._PIECE", size)
        monkeypatch.setattr("toprank.data.scores._PIECE", size)
        read = read_qrels(tmp_path / "q")
        assert list(zip(read.qids.tolist(), read.document_ids.tolist(), read.grades.tolist(), strict=True)) == rows
        assert read_scores(tmp_path / "s").tolist() == [g for _, _, g in rows]


@pytest.mark.parametrize(("text", "line"), [("1\n\n\n2\n", 2), ("1\n2\nx\n", 3), ("1\n2\n\n\n\n1_0", 3), ("\n1\n", 1)])
def test_the_line_of_a_score_that_is_none_is_told(tmp_path, monkeypatch, text, line):
    (tmp_path / "s").write_text(text)
    for size in (1, 1 << 20):
        monkeypatch.setattr("toprank.data.scores._PIECE", size)
        with pytest.raises(FormatError, match=f"s:{line}: Expected one finite number"):
            read_scores(tmp_path / "s")


def test_the_limit_of_a_line_is_what_it_says(tmp_path, monkeypatch):
    monkeypatch.setattr(bytesource, "MAX_LINE_BYTES", 1 << 20)
    for size, fits in ((1 << 20, True), ((1 << 20) + 1, False)):
        with gzip.open(tmp_path / "s.gz", "wb", 1) as stream:
            stream.write(b"1\n2\n" + b"0" * size)
        if fits:
            assert open_bytes(tmp_path / "s.gz").size == size + 4
        else:
            with pytest.raises(FormatError, match=r"s\.gz:3: This line is longer than 1 MiB"):
                open_bytes(tmp_path / "s.gz")
