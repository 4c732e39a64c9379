"""The common shape of qrels and runs: a query id, a document id and a number on each row."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data import checks
from toprank.data.bytesource import ByteSource, check_size, open_bytes, output
from toprank.data.frames.layout import USUAL_NAMES
from toprank.data.letor.kernels import lone_return
from toprank.data.trec import kernels
from toprank.errors import DataError, FormatError

__all__ = ["RepeatedPairError", "check_table", "check_words", "line_from", "read_table", "table_of", "write_table"]

Array = npt.NDArray[Any]
_NUMBERS = {"grade": USUAL_NAMES["label"], "score": ("score", "scores", "sim")}


class RepeatedPairError(DataError):
    """A document that appears twice for one query; `row` is where it does so first."""

    def __init__(self, qid: str, document_id: str, row: int) -> None:
        self.row = row
        self.problem = f"Document {document_id} appears twice for query {qid}; remove one of the two."
        super().__init__(f"Row {row}: {self.problem}")


def check_table(qids: Any, document_ids: Any, numbers: Any, what: str) -> tuple[Array, Array, FloatArray]:
    """The three columns as read-only arrays of strings, strings and float64, after the checks that all tables pass."""
    values = np.array(numbers, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0:
        raise DataError(
            f"There are no {what}s; at least one is needed." if values.ndim == 1 else f"{what}s: one column."
        )
    wrong = ~np.isfinite(values)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"The {what} of row {row} is {values[row]}; it must be finite.")
    queries = _words(qids, len(values), "query ids")
    documents = _words(document_ids, len(values), "document ids")
    row_again = _first_repeated_pair(queries, documents)
    if row_again is not None:
        raise RepeatedPairError(str(queries[row_again]), str(documents[row_again]), row_again)
    for array in (queries, documents, values):
        array.flags.writeable = False
    return queries, documents, values


def _words(ids: Any, n: int, name: str) -> Array:
    array = checks.identifiers(ids, n, name)
    return array.astype(str) if array.dtype.kind != "U" else np.ascontiguousarray(array).view()


def _letters(words: Array) -> npt.NDArray[np.uint32]:
    return words.astype(words.dtype.newbyteorder("="), copy=False).view(np.uint32).reshape(len(words), -1)


def _first_repeated_pair(qids: Array, document_ids: Array) -> int | None:
    """The first row whose pair of ids appeared before. Hashes find the suspects, the words themselves decide."""
    hashes = np.empty(len(qids), dtype=np.uint64)
    kernels.hash_pairs(_letters(qids), _letters(document_ids), hashes)
    order = np.argsort(hashes)
    again = hashes[order][1:] == hashes[order][:-1]
    if not again.any():
        return None
    suspects = np.unique(np.concatenate([order[1:][again], order[:-1][again]]))
    seen = set()
    for row in suspects.tolist():
        pair = (qids[row], document_ids[row])
        if pair in seen:
            return int(row)
        seen.add(pair)
    return None


def table_of(given: Any, number: str) -> tuple[Any, Any, Any]:
    """The three columns of ``{query: {document: number}}`` or of a data frame with the usual column names."""
    if isinstance(given, Mapping):
        triples = [
            (str(qid), str(document), value) for qid, inner in given.items() for document, value in inner.items()
        ]
        qids, document_ids, numbers = zip(*triples, strict=True) if triples else ((), (), ())
        return qids, document_ids, numbers
    columns = getattr(given, "column_names", None) or getattr(given, "columns", None)
    if columns is None:
        raise DataError(f"Expected {{query: {{document: {number}}}}} or a data frame, not {type(given).__name__}.")

    def column(kind: str, usual: tuple[str, ...]) -> Array:
        name = next((name for name in columns if str(name).lower() in usual), None)
        if name is None:
            raise DataError(f"The frame has no column for the {kind}; name one of its columns {usual[0]!r}.")
        return np.asarray(given[name])

    return (
        column("query", USUAL_NAMES["qid"]),
        column("document", USUAL_NAMES["document_id"]),
        column(number, _NUMBERS[number]),
    )


def read_table(
    path: str | os.PathLike[str], layout: str, value_column: int, what: str, rest: bool = False
) -> tuple[ByteSource, npt.NDArray[np.int64], Array, Array, FloatArray]:
    """Read a file of lines like `layout`: the source, where each row stands, query ids, document ids, numbers.

    With `rest`, more words may follow on a line.

    Raises:
        FileError: the file cannot be read.
        FormatError: a line is not like the layout.
    """
    source = open_bytes(path)
    lone = lone_return(source.text, source.start, len(source.text))
    if lone >= 0:
        raise source.lone_return(lone)
    room = kernels.count_lines(source.text)
    spans, values = np.empty((room, 4), dtype=np.int64), np.empty(room)
    n_columns = len(layout.split())
    rows, fault, at = kernels.read_table(source.text, source.start, n_columns, rest, value_column, spans, values)
    if fault == kernels.COLUMNS:
        found = len(line_from(source, at).split())
        raise source.fault(f"Expected {n_columns} columns, '{layout}'; found {found}.", at)
    if fault != kernels.FINE:
        word = source.bytes(at, at + 96).split()[0][:24].decode("utf-8", "replace")
        wanted = "a number" if fault == kernels.VALUE else "a finite number"
        raise source.fault(f"Expected the {what}, {wanted}; found {word!r}.", at)
    if rows == 0:
        raise FormatError(f"The file is empty; expected lines '{layout}'.", path=source.path)
    spans, values = spans[:rows], values[:rows]
    for row in np.flatnonzero(np.isnan(values)).tolist():
        values[row] = _exact(source, int(spans[row, 3]), value_column - 3, what)
    return source, spans, _column(source, spans, 0), _column(source, spans, 2), values


def line_from(source: ByteSource, at: int) -> bytes:
    """The bytes from `at` to the end of the line."""
    return source.bytes(at, source.newline(at))


def _exact(source: ByteSource, at: int, words_between: int, what: str) -> float:
    """The number that stands some words behind `at`, converted without shortcuts."""
    line = line_from(source, at)
    word = line.split()[words_between]
    value = float(word)
    if not np.isfinite(value):
        raise source.fault(f"The {what} is too large for float64.", at + line.find(word))
    return value


def _column(source: ByteSource, spans: npt.NDArray[np.int64], first: int) -> Array:
    longest = int((spans[:, first + 1] - spans[:, first]).max())
    zeros = source.text[spans[:, first + 1] - 1] == 0
    if zeros.any():  # which arrays of strings drop: two ids could become one
        at = int(spans[np.argmax(zeros), first])
        raise source.fault("The id ends in a zero byte, which ids may not; remove it.", at)

    def at_longest(problem: str) -> FormatError:
        return source.fault(problem, int(spans[np.argmax(spans[:, first + 1] - spans[:, first]), first]))

    what = "The ids, padded to the longest one,"
    check_size(4 * longest * len(spans), source.size, what, "Shorten that one.", at_longest)
    words = np.empty(len(spans), dtype=f"U{longest}")
    if not kernels.copy_words(source.text, spans, first, _letters(words)):
        return words
    try:
        return np.array([word.encode("latin-1").decode() for word in words.tolist()])
    except UnicodeDecodeError as bad:
        row = int(np.argmax(words == bad.object.decode("latin-1")))
        raise source.fault("The id is not UTF-8 text.", int(spans[row, first])) from None


def check_words(words: Iterable[str], where: str) -> None:
    """Refuse what could not be read back as one column of a line."""
    for word in set(words):
        if word.split() != [word]:
            raise DataError(f"{word!r} cannot be a column of {where}: it must be one word without blanks.")
        checks.check_utf8(word, "word")


def write_table(path: str | os.PathLike[str], columns: list[Any]) -> None:
    """Write columns (arrays, or one string for all rows) as lines of words, all or nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for column in columns:
        words = [column] if isinstance(column, str) else column.tolist() if column.dtype.kind == "U" else []
        check_words(words, Path(path).name)
    columns = [c.tolist() if not isinstance(c, str) and c.dtype.kind == "U" else c for c in columns]
    texts = [c if isinstance(c, str) else pc.cast(pa.array(c), pa.string()) for c in columns]
    lines = pc.binary_join_element_wise(*texts, " ").to_pylist()
    with output(path) as stream:
        stream.write(("\n".join(lines) + "\n").encode())
