"""Malformed text gives one sentence that says where and what was expected."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from toprank.data.converting import convert
from toprank.data.letor import read_letor
from toprank.errors import DataError, FileError, FormatError, UnknownNameError


@pytest.fixture
def text_file(tmp_path):
    def write(text, name="data.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


GOOD = "1 qid:1 1:0.5\n"


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("hello qid:1 1:1", 1, "Expected the label, a number, at the start of the line; found 'hello'"),
        ("  1x qid:1 1:1", 3, "Expected the label"),
        ("-inf qid:1 1:1", 1, "write -1 or NULL for a document that is not judged"),
        ("-inf qid:1 1:1", 1, "'-inf' is not finite"),
        ("1e999 qid:1 1:1", 1, "too large for float64"),
        ("1 qid: 1:1", 7, "Expected the id of the query right after 'qid:'"),
        ("1 qid:1 x:1", 9, "Expected a feature as 'id:value'"),
        ("1 qid:1 1:1 7", 13, "found '7'"),
        ("1 qid:1 1:1 :7", 13, "Expected a feature"),
        ("1 qid:1 -3:1", 9, "negative"),
        ("1 qid:1 +3:1", 9, "Expected a feature"),
        ("1 qid:1 1.5:1", 9, "Expected a feature"),
        ("1 qid:1 4294967295:1", 9, "larger than the maximum, 2147483647"),
        ("1 qid:1 99999999999999999999999:1", 9, "larger than the maximum"),
        ("1 qid:1 2:1 1:1 2:5", 17, "occurs twice in this line"),
        ("1 qid:1 2:1 2:5", 13, "occurs twice in this line"),
        ("1 qid:1 2:1 1:NULL 5:2 1:4", 24, "occurs twice in this line"),
        ("1 qid:1 1:", 11, "Expected the value of the feature, a number or NULL; the line ends here"),
        ("1 qid:1 1: 2:3", 11, "Expected the value"),
        ("1 qid:1 1:1:2", 11, "Expected the value"),
        ("1 qid:1 1:1e39", 11, "too large for float32; read with dtype='float64'"),
        ("1 qid:1 1:1e999", 11, "too large for float32"),
        ("1 qid:1 1:1\x002", 12, "Expected a feature"),
        ("1 qid:1 1:0.5\x0b2:1", 14, "Expected a feature"),
        ("1 1:0.5", 3, "Expected 'qid:' and the id of the query after the label, as in the previous lines"),
        ("1 qid:2 1:1\n1 qid:1 1:1", 7, "Query 1 starts again here.*regroup=True"),
        ("1 qid:\u00fc\u00fc x", 10, "Expected a feature"),
    ],
)
def test_a_bad_line_is_named(text_file, layout, line, column, message):
    path = text_file("# header\n" + GOOD + "\r\n" + line + "\n" + GOOD)
    number = 4 + line.count("\n")
    with pytest.raises(FormatError, match=message) as caught:
        read_letor(path, layout=layout)
    assert (caught.value.line, caught.value.column) == (number, column)
    assert str(caught.value).startswith(f"{path}:{number}:{column}: ")
    assert "\n" not in str(caught.value)


def test_a_bad_byte_in_a_query_id(text_file):
    with pytest.raises(FormatError, match="not UTF-8") as caught:
        read_letor(text_file(b"0 qid:a 1:1\n0 qid:\xff 1:1\n"))
    assert (caught.value.line, caught.value.column) == (2, 7)


@pytest.mark.parametrize(
    ("line", "column", "what"),
    [("0 qid:a\0 1:1 # x", 7, "id of the query"), ("0 qid:a 1:1 # x\0", 16, "document id")],
)
def test_ids_may_not_end_in_a_zero_byte(text_file, tmp_path, line, column, what):
    path = text_file(f"0 qid:a 1:1 # x\n{line}\n")
    for reading in (read_letor, lambda path: convert(path, tmp_path / "copy.toprank-data")):
        with pytest.raises(FormatError, match=f"The {what} ends in a zero byte") as caught:
            reading(path)
        assert (caught.value.line, caught.value.column) == (2, column)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("1 qid:1 1:0.5 # a\r0 qid:1 1:0.3 # b\r", 1, 18),
        ("1 qid:1 1:0.5\r0 qid:1 1:0.3\r", 1, 14),
        ("1 qid:1 1:0.5\r\n0 qid:1\r1:0.3\r\n", 2, 8),
        ("# " + "x" * 5000 + "\r1 qid:1 1:0.5\n", 1, 5003),
    ],
)
def test_line_ends_of_old_macs_are_refused(text_file, text, line, column):
    with pytest.raises(FormatError, match=r"line contains a carriage return, .* Convert the file") as caught:
        read_letor(text_file(text))
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\r\n"])
@pytest.mark.parametrize("last", ["", "\r", "\n", "\r\n"])
def test_carriage_returns_at_the_end_of_a_line_are_fine(text_file, end, last):
    data = read_letor(text_file(f"1 qid:1 1:0.5 # a{end}{end}0 qid:1 1:0.25 # b{last}"))
    assert data.X.tolist() == [[0.5], [0.25]]
    assert data.document_ids.tolist() == ["a", "b"]


def test_a_byte_order_mark_takes_no_column(text_file):
    with pytest.raises(FormatError) as caught:
        read_letor(text_file("\ufeffx qid:1\n"))
    assert (caught.value.line, caught.value.column) == (1, 1)


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        ({"n_features": 3}, "1 qid:1 4:1\n", "'4:1' is beyond the 3 features requested"),
        ({"n_features": 3, "first_feature_id": 0}, "1 qid:1 3:1\n", "is beyond the 3 features"),
        ({"n_features": 3}, "1 qid:1 3:1 0:1\n", "is beyond the 3 features"),
        ({"first_feature_id": 1}, "1 qid:1 1:1 0:1\n", "'0:1' is 0, but first_feature_id is 1"),
    ],
)
def test_ids_outside_the_wanted_range(text_file, options, text, message):
    with pytest.raises(FormatError, match=message):
        read_letor(text_file(text), **options)


@pytest.mark.parametrize("feature", [2_000_000_000, 2_147_483_647])
def test_one_huge_id_does_not_eat_the_memory(text_file, feature):
    path = text_file(f"1 qid:1 {feature}:1\n")
    with pytest.raises(FormatError, match=r"would need .* MiB for .* Read with layout='sparse'") as caught:
        read_letor(path)
    assert (caught.value.line, caught.value.column) == (1, 9)
    with pytest.raises(FormatError, match=rf"^{path}: .*would need"):
        read_letor(path, n_features=feature)
    assert read_letor(path, layout="sparse").X.shape == (1, feature)


def test_a_huge_id_hidden_behind_a_smaller_one_is_refused_too(text_file):
    with pytest.raises(DataError, match="layout='sparse'"):
        read_letor(text_file("1 qid:1 1:1 2000000000:1 2:1\n"))


def test_one_long_query_id_among_many_does_not_eat_the_memory(text_file):
    lines = [f"0 qid:q{i} 1:1" for i in range(30_000)] + ["0 qid:" + "x" * 10_000 + " 1:1"]
    with pytest.raises(DataError, match="query ids, padded to the longest one"):
        read_letor(text_file("\n".join(lines)))


def test_one_long_document_id_among_many_is_left_out_with_a_warning(text_file):
    lines = [f"0 qid:1 1:1 # d{i}" for i in range(30_000)] + ["0 qid:1 1:1 # " + "x" * 10_000]
    with pytest.warns(UserWarning, match="document ids.*The document ids are left out"):
        assert read_letor(text_file("\n".join(lines))).document_ids is None


def test_a_query_may_go_on_in_the_next_file_but_not_come_back(text_file):
    paths = [text_file(GOOD, "a"), text_file(GOOD + "0 qid:2 1:3\n", "b"), text_file(GOOD, "c")]
    assert read_letor(paths[:2]).equals(read_letor(text_file(GOOD + GOOD + "0 qid:2 1:3\n")))
    with pytest.raises(FormatError, match=r"Query 1 starts again here.*or read with regroup=True") as caught:
        read_letor(paths)
    assert (caught.value.path, caught.value.line) == (paths[2], 1)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"", FormatError, "The file is empty; expected lines"),
        (b"\n \r\n# c\n", FormatError, "only blank lines and comments"),
        (b"\0" * 5000, FormatError, "Expected the label"),
        (bytes(set(range(256)) - {13}) * 200, FormatError, "Expected the label"),
        (bytes(range(256)) * 200, FormatError, "The line contains a carriage return"),
        (b"x" * 10_000_000, FormatError, r":1:1: Expected the label, .*found 'x+…'"),
        (b"0 qid:1 1:" + b"7" * 10_000_000, FormatError, "too large for float32"),
        (b"0 qid:1 " + b"1" * 10_000_000, FormatError, "Expected a feature"),
        (b"0 1:1\n", FormatError, "add 'qid:ID' after the labels, or write .* to data.txt.query"),
        (b"0 1:1\n0 qid:1 1:1\n", FormatError, ":2:7: This line has a 'qid:', but previous lines do not"),
        (gzip.compress(GOOD.encode() * 1000, mtime=0)[:-9], FormatError, "gzip data ends too early"),
        (gzip.compress(GOOD.encode() * 1000, mtime=0)[:15], FormatError, "gzip data ends too early"),
        (gzip.compress(GOOD.encode() * 1000, mtime=0) + b"tail", FormatError, "gzip data is damaged"),
        (b"\x1f\x8b" + b"junk" * 30, FormatError, "gzip data is damaged"),
        (b"\x28\xb5\x2f\xfd" + b"junk" * 30, FormatError, "zstd data is damaged or truncated"),
        (gzip.compress(b"", mtime=0), FormatError, "The file is empty"),
    ],
)
def test_hopeless_files(text_file, content, error, message):
    path = text_file(content)
    with pytest.raises(error, match=message) as caught:
        read_letor(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))


def test_truncated_zstd(text_file):
    import pyarrow as pa

    whole = pa.compress(np.random.default_rng(1).bytes(5000), "zstd", asbytes=True)
    with pytest.raises(FormatError, match="zstd data is damaged or truncated"):
        read_letor(text_file(whole[:-1]))


def test_a_duplicate_in_a_later_row_of_a_sparse_file_is_found(text_file):
    text = "".join(f"0 qid:{'ab'[i % 2]} 9:1 {i + 1}:1\n# c\n" for i in range(6)) + "0 qid:c 7:1 3:1 007:2\n"
    with pytest.raises(FormatError, match="occurs twice") as caught:
        read_letor(text_file(text), layout="sparse", regroup=True)
    assert (caught.value.line, caught.value.column) == (13, 17)


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        (".query", "2\n2\n", "add up to 4, but .* has 3 rows"),
        (".query", "2\nx\n", "Expected a size, a whole number above 0; found 'x'"),
        (".query", "3\n0\n", "data.txt.query:2: Expected a size"),
        (".query", "", "add up to 0"),
        (".query", f"{2**63 - 1}\n{2**63 - 1}\n5\n", f"add up to {2**64 + 3}, but .* has 3 rows"),  # 3 in 64 bits
        (".group", "1\n2\n", "differ from the file data.txt.query"),
        (".weight", "1\n2\n", "There are 2 lines for the 3 rows"),
        (".weight", "1\n-2\n3\n", "data.txt.weight:2: Expected a weight"),
        (".weight", "1\nnan\n3\n", "Expected a weight"),
        (".weight", "1\n1_0\n3\n", "Expected a weight"),
        (".position", "1\n1.5\n3\n", "Expected a position"),
        (".position", "1\n99999999999999999999\n3\n", "Expected a position"),
    ],
)
def test_side_files_must_fit(text_file, suffix, content, message):
    path = text_file("0 1:1\n0 1:2\n0 1:3\n")
    text_file("2\n1\n", "data.txt.query")
    text_file(content, "data.txt" + suffix)
    with pytest.raises(FormatError, match=message):
        read_letor(path)


def test_side_files_must_agree_with_the_text_and_exist_for_all(text_file):
    path = text_file("0 qid:4 1:1\n0 qid:5 1:2\n")
    text_file("2\n", "data.txt.query")
    with pytest.raises(FormatError, match="differ from the qid: tokens"):
        read_letor(path)
    paths = [text_file("0 qid:1 1:1\n", "a"), text_file("0 qid:2 1:1\n", "b")]
    text_file("1\n", "a.weight")
    with pytest.raises(FormatError, match=r"b\.weight is missing, but .*a\.weight exists"):
        read_letor(paths)


def test_trouble_with_the_file_itself(tmp_path):
    with pytest.raises(FileError, match="There is no file"):
        read_letor(tmp_path / "absent")
    with pytest.raises(FileError, match="is a folder"):
        read_letor(tmp_path)
    with pytest.raises(FileError, match="contains a zero byte"):
        read_letor(tmp_path / "nul\0byte")
    with pytest.raises(DataError, match="list of paths is empty"):
        read_letor([])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"missing": "Nan"}, UnknownNameError),
        ({"layout": "csr"}, UnknownNameError),
        ({"dtype": np.int32}, DataError),
        ({"first_feature_id": 2}, DataError),
        ({"n_features": 0}, DataError),
        ({"threads": 0}, DataError),
    ],
)
def test_wrong_options(text_file, options, error):
    with pytest.raises(error):
        read_letor(text_file(GOOD), **options)
