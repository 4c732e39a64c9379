"""Mutated texts of LETOR, TREC and JSON: the kernels say what plain Python says, and never look past the end.

The text lies at the end of a page behind which nothing may be touched: a kernel that reads one byte too many ends here.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import re
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from toprank import kernels
from toprank.data.letor.faults import LARGEST_ID

LETOR = (
    b"2 qid:10 1:0.5 2:-1e-3 5:NULL #docid = GX1 inc = 1\n0 qid:10 1:1 2:0.123456789012345678 #docid = GX2\r\n"
    b"\n# comment\n1.5 qid:abc 3:7 1:4\n-1 qid:7 4:1e5 # x\n",
    b"0 1:0.25 2:17 3:-3.125\n1 1:0.75 2:18 3:-2.5\n1 1:0.875001 2:20.123456 3:.5",
    b"1 qid:1 " + b" ".join(b"%d:0.%06d" % (i, 7919 * i) for i in range(1, 9)) + b"\n0 qid:1 2:1 4:+2 6:inf 7:nan\n",
    b"3 qid:-4 0:1 1:2.\n3\tqid:-4\t0:1e22 2:123456789 # docid=a\n0 qid:0 0:12345678.12345678 1:16777217\n",
)
LETOR_PIECES = b" |\n|\t|\r|#|:|qid:|qid:1|0|1|7|-|+|.|e|e5|nan|NULL|-inf| 1:2| 2:0.5| 9:-0.001| docid = a".split(b"|")
LETOR_PIECES += [b"\0", b"\v", b"\xff", b"99999999999", b"1e400", b"3e38", b"5e-324", b"0.1234567890123456789"]
LETOR_PIECES += [b"9007199254740993", b" 600:1"]
TREC = (
    b"q1 0 d1 2\nq1 0 d2 0\n\nq2\t0 d1 1.5\r\n",
    b"a 0 \xc3\xa9t\xc3\xa9 -1\nb 0 0123456789 1e-3\nb 0 x 12345678901234567890",
)
TREC_PIECES = b" |\n|\t|\r|\f|\v|#|q|0|7|.|e|-|nan|\0|\xff| 0 d 1|1e400|inf".split(b"|")
JSON = (
    b"[0.25,17,-3.125],[0.75,null,-2.5e3],[1E-7, 0 ,1.7976931348623157e308]",
    b"[ 1 , 2 , 3 ],\n[0.1234567890123456789,12345678901234567890,-0.0],[4.9e-324,9007199254740993,1e22]",
    b"[12345678.12345678,0.000000000000000000000001,5],[null,null,null],[100000000,0.00000001,-1]",
)
JSON_PIECES = b" |\n|\t|\r|\f|\0|[|]|,|,,|.|-|+|e|E5|e-|0|00|7|null|nul|true|NaN|Infinity|{}|[1,2,3],|\xff".split(b"|")
JSON_PIECES += [b'"a"', b"1e400", b"1e-400"]
JSON_PIECES += [b"|", b"123456789012345678901234567890", b"0.5", b"\xc2\xa0"]
FEW, MANY = 4_000, 1_000_000


def mutated(rng: random.Random, texts: tuple[bytes, ...], pieces: list[bytes]) -> bytes:
    """One of the texts with a few bytes cut out, put in, repeated or changed; now and then cut off."""
    text = rng.choice(texts)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 5))):
        at, what = rng.randrange(len(text) + 1), rng.random()
        if what < 0.45:
            text = text[:at] + rng.choice(pieces) + text[at + rng.choice((0, 0, 1, 2)) :]
        elif what < 0.65:
            text = text[:at] + text[at + rng.randrange(1, 8) :]
        elif what < 0.8:
            text = text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
        elif what < 0.9:
            text = text[:at] + text[max(0, at - rng.randrange(40)) : at] + text[at:]
        else:
            text = text[:at]
    return text


class GuardedText:
    """Memory whose last byte is the last of a page; the page behind it may not be touched."""

    def __init__(self, size: int = 1 << 16) -> None:
        self._pages = mmap.mmap(-1, size + mmap.PAGESIZE)
        self._bytes = np.frombuffer(self._pages, dtype=np.uint8)
        self._end = size
        if os.name == "posix":
            behind = ctypes.c_void_p(self._bytes.ctypes.data + size)
            assert ctypes.CDLL(None).mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0

    def holding(self, text: bytes) -> np.ndarray:
        place = self._bytes[self._end - len(text) : self._end]
        place[:] = np.frombuffer(text, dtype=np.uint8)
        return place


class WrongError(Exception):
    """The reference refuses a line."""


NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
WORD = re.compile(rb"([+-]?)(null|nan|inf|infinity)", re.IGNORECASE)
FEATURE = re.compile(rb"([0-9]+):([^ \t\r]*)")


def number(token: bytes, kind: type, missing: float | None = None) -> float:
    """The nearest number of a type, or `missing` for NULL; without `missing` it must be finite."""
    if (word := WORD.fullmatch(token)) is not None:
        if missing is None:
            raise WrongError
        if word[2].lower().startswith(b"n"):
            return missing
        return -np.inf if word[1] == b"-" else np.inf
    if NUMBER.fullmatch(token) is None:
        raise WrongError
    value = float(token)
    if kind is np.float32:
        with np.errstate(over="ignore"):
            near = np.float32(value)
            if (
                value != 0 and np.float64(value).view(np.uint64) & 0x1FFFFFFF == 0x10000000
            ):  # rounding twice may be wrong
                around = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
                exact = Fraction(token.decode())
                finite = [one for one in around if np.isfinite(one)]
                near = min(finite, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.uint32)) & 1))
        value = float(near)
    if not np.isfinite(value):
        raise WrongError
    return value


def document_id(comment: bytes) -> bytes:
    """The word behind `docid =`, or the only word."""
    words = list(re.finditer(rb"[^ \t\r]+", comment))
    for word in words:
        rest = comment[word.start() + 5 :].lstrip(b" \t\r")
        if word[0].startswith(b"docid") and rest.startswith(b"="):
            return re.match(rb"[^ \t\r]*", rest[1:].lstrip(b" \t\r"))[0]
    return words[0][0] if len(words) == 1 else b""


class Options(NamedTuple):
    first_id: int
    width: int
    first_is_given: bool
    width_is_given: bool
    missing: float
    kind: type
    dense: bool


class Row(NamedTuple):
    label: float
    qid: bytes | None
    features: list[tuple[int, float]]
    outside: list[int]
    document_id: bytes


def reference_row(line: bytes, given: Options) -> Row | None:
    """What a line says; None for a blank one."""
    body, _, comment = line.partition(b"#")
    tokens = re.findall(rb"[^ \t\r]+", body)
    if not tokens:
        return None
    label, qid = number(tokens.pop(0), np.float64, np.nan), None
    if np.isinf(label):  # NULL is "not judged"; infinity is no grade
        raise WrongError
    if tokens and tokens[0].startswith(b"qid:"):
        qid = tokens.pop(0)[4:]
        if not qid:
            raise WrongError
    features, outside, largest = [], [], -1
    for token in tokens:
        found = FEATURE.fullmatch(token)
        if found is None or int(found[1]) > LARGEST_ID:
            raise WrongError
        value, column = number(found[2], given.kind, given.missing), int(found[1]) - given.first_id
        if not 0 <= column < given.width:
            if given.first_is_given if column < 0 else given.width_is_given:
                raise WrongError
            outside.append(int(found[1]))
            continue
        # Of a sparse row only the last column is compared; the reader looks for the others when it sorts them.
        if column in dict(features) if given.dense else column == largest:
            raise WrongError
        largest = max(largest, column)
        features.append((column, value))
    return Row(label, qid, features, outside, document_id(comment))


def surveyed(text: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """The run table and the state of the survey, in a table that has too little room at first."""
    runs, state = np.empty((room, 5), dtype=np.int64), np.zeros(10, dtype=np.int64)
    state[kernels.LetorSurvey.LEAST_ID], state[kernels.LetorSurvey.MOST_ID] = np.iinfo(np.int64).max, -1
    while state[kernels.LetorSurvey.AT] < len(text):
        if state[kernels.LetorSurvey.N_RUNS] == len(runs):
            runs = np.concatenate([runs, np.empty_like(runs)])
        kernels.letor_survey(text, runs, state)
    return runs[: state[kernels.LetorSurvey.N_RUNS]].copy(), state


def check_letor(text: bytes, place: np.ndarray, given: Options) -> bool:
    """Compare the kernels with the reference; whether it accepts the text."""
    lone = re.search(rb"\r(?![\r\n]|\Z)", text)
    assert kernels.lone_return(place) == (-1 if lone is None else lone.start())
    runs, state = surveyed(place, 1)
    n, entries = int(state[kernels.LetorSurvey.N_ROWS]), int(runs[:, kernels.LetorRun.ENTRIES].sum())
    sizes = runs[:, [kernels.LetorRun.ROWS, kernels.LetorRun.ENTRIES]]
    places = np.ascontiguousarray(np.cumsum(sizes, axis=0) - sizes)
    length = int(state[kernels.LetorSurvey.ID_LENGTH])
    values = np.empty(n * given.width if given.dense else entries, dtype=given.kind)
    columns = np.empty(0 if given.dense else entries, dtype=np.int32)
    ends, labels = np.zeros(0 if given.dense else n, dtype=np.int32), np.empty(n)
    ids, found = np.empty((n, length), dtype=np.uint32), np.zeros(4, dtype=np.int64)
    fault = kernels.letor_parse(place, runs, places, *given[:5], values, columns, ends, labels, ids, found)

    rows = []
    for line, content in enumerate(text.split(b"\n")):
        try:
            row = reference_row(content, given)
        except WrongError:
            assert kernels.LetorFault.FINE < fault < kernels.LetorFault.CHANGED
            assert text.count(b"\n", 0, int(found[3])) == line
            return False
        if row is not None:
            rows.append(row)
    assert fault == kernels.LetorFault.FINE
    np.testing.assert_array_equal(labels, [row.label for row in rows])
    letters = [bytes(row[row > 0].astype(np.uint8)) for row in ids]
    assert letters == [row.document_id.replace(b"\0", b"") for row in rows]
    check_runs(text, runs, state, rows)
    outside = [feature for row in rows for feature in row.outside]
    assert found[:2].tolist() == [min(outside, default=np.iinfo(np.int64).max), max(outside, default=-1)]
    if given.dense:
        expected = np.full((n, given.width), given.missing, dtype=given.kind)
        for i, row in enumerate(rows):
            for column, value in row.features:
                expected[i, column] = value
        assert values.tobytes() == expected.tobytes()
    else:
        if not outside:  # else the entries are in a place of a wider matrix
            kept = [feature for row in rows for feature in row.features]
            assert columns.tolist() == [column for column, _ in kept]
            assert values.tobytes() == np.array([value for _, value in kept], dtype=given.kind).tobytes()
            assert ends.tolist() == np.cumsum([len(row.features) for row in rows]).tolist()
        ascend = all(a[0] < b[0] for row in rows for a, b in zip(row.features, row.features[1:], strict=False))
        assert bool(found[2]) != ascend
    return True


def check_runs(text: bytes, runs: np.ndarray, state: np.ndarray, rows: list[Row]) -> None:
    expected: list[list] = []
    for row in rows:
        if not expected or expected[-1][0] != row.qid:
            expected.append([row.qid, 0, 0])
        expected[-1][1] += 1
        expected[-1][2] += len(row.features) + len(row.outside)
    found = [
        [None if start < 0 else text[start:stop], n_rows, entries] for start, stop, _, n_rows, entries in runs.tolist()
    ]
    assert found == expected
    integers = [re.fullmatch(rb"0|-?[1-9][0-9]{0,17}", qid or b"") for qid, _, _ in expected]
    assert runs[:, kernels.LetorRun.TOKEN_NUMBER].tolist() == [0 if one is None else int(one[0]) for one in integers]
    assert state[kernels.LetorSurvey.N_WORDS] == integers.count(None)
    ids = [row.document_id for row in rows if row.document_id]
    assert state[kernels.LetorSurvey.N_IDENTIFIED] == len(ids)
    assert state[kernels.LetorSurvey.ID_LENGTH] == max(map(len, ids), default=0)


def check_trec(text: bytes, place: np.ndarray, n_columns: int, rest: bool) -> bool:
    """Compare the kernels with the reference; whether it accepts the text."""
    room = kernels.count_lines(place)
    assert room == sum(line != b"" for line in text.split(b"\n"))
    spans, values, found = np.empty((room, 4), dtype=np.int64), np.empty(room), np.empty(2, dtype=np.int64)
    fault = kernels.trec_table(place, 0, n_columns, rest, n_columns - 1, spans, values, found)
    rows = []
    for line, content in enumerate(text.split(b"\n")):
        words = content.split()
        if not words:
            continue
        try:
            if len(words) < n_columns or (len(words) > n_columns and not rest):
                raise WrongError
            rows.append((words[0], words[2], number(words[n_columns - 1], np.float64)))
        except WrongError:
            assert fault != 0
            assert text.count(b"\n", 0, int(found[1])) == line
            return False
    assert fault == 0
    assert found[0] == len(rows)
    spans = spans[: len(rows)]
    assert [(text[a:b], text[c:d], v) for (a, b, c, d), v in zip(spans.tolist(), values, strict=False)] == rows
    letters = []
    for first in (0, 2):
        words = [row[first // 2] for row in rows]
        letters.append(np.empty((len(rows), max(map(len, words), default=1)), dtype=np.uint32))
        foreign = kernels.copy_words(place, spans, first, letters[-1])
        assert bool(foreign) == (max(b"".join(words), default=0) > 127)
        padded = [word.ljust(letters[-1].shape[1], b"\0") for word in words]
        assert letters[-1].astype(np.uint8).tobytes() == b"".join(padded)
    hashes = np.empty(len(rows), dtype=np.uint64)
    kernels.hash_pairs(*letters, hashes)
    pairs = [tuple(word.split(b"\0")[0] for word in row[:2]) for row in rows]
    assert len(set(hashes.tolist())) == len(set(pairs))
    return True


def check_json(text: bytes, memory: GuardedText, n: int, d: int) -> bool:
    """Compare the kernel with Python's reader; whether it accepts the text."""
    values = np.full((n, d), 7.0)
    first = kernels.json_rows(memory.holding(text + b"," + bytes(40)), values)
    try:
        rows = json.loads(b"[" + text + b"]", parse_constant=str, parse_int=float)
        wanted = [[np.nan if one is None else float(one) for one in row if type(one) in NUMBERS] for row in rows]
        fits = [len(row) for row in wanted] == [d] * n == [len(row) for row in rows]
        fits = fits and all(type(row) is list for row in rows) and not np.isinf(wanted).any()
    except (ValueError, TypeError, OverflowError):
        fits = False
    if fits:
        assert first == -1
        assert values.tobytes() == np.array(wanted).tobytes()
    else:
        assert 0 <= first <= n
    return fits


NUMBERS = (float, bool, type(None))
times = pytest.mark.parametrize("times", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)])


@times
def test_mutated_letor_texts(times):
    rng, memory, accepted = random.Random(times), GuardedText(), 0
    for _ in range(times):
        text, first_id = mutated(rng, LETOR, LETOR_PIECES), rng.randrange(2)
        width, missing = rng.choice((1, 4, 9, 700)), rng.choice((np.nan, 0.0))
        given, kind = (rng.random() < 0.2, rng.random() < 0.2), rng.choice((np.float32, np.float64))
        options = Options(first_id, width, *given, missing, kind, rng.random() < 0.6)
        accepted += check_letor(text, memory.holding(text), options)
    assert times / 5 < accepted < 4 * times / 5


@times
def test_mutated_trec_texts(times):
    rng, memory, accepted = random.Random(times), GuardedText(), 0
    for _ in range(times // 4):
        text = mutated(rng, TREC, TREC_PIECES)
        accepted += check_trec(text, memory.holding(text), 4, rng.random() < 0.3)
    assert times / 20 < accepted < times / 5


@times
def test_mutated_rows_of_json(times):
    rng, memory, accepted = random.Random(times), GuardedText(), 0
    for _ in range(times // 4):
        accepted += check_json(mutated(rng, JSON, JSON_PIECES), memory, rng.choice((2, 3, 3, 3, 4)), 3)
    assert times / 40 < accepted < times / 5
