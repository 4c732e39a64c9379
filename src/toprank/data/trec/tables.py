"""Judgments and rankings as columns with a query id, a document id and a number in each row."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import Array, FloatArray, IntArray
from toprank.data.arrays import identifiers
from toprank.data.queries import positions_within
from toprank.data.roles import ROLES
from toprank.errors import DataError

_QUERIES = ("qid", "query_id", "q_id", "query")
_NUMBERS = {"grade": (*ROLES["label"].inferred_from, "rel"), "score": ("score", "scores", "sim")}


class RepeatedPairError(DataError):
    """A document occurs twice for a query; `row` is the first repeated row."""

    def __init__(self, qid: str, document_id: str, row: int) -> None:
        self.row = row
        self.problem = f"Document {document_id} appears twice for query {qid}; remove one of the two rows."
        super().__init__(f"Row {row}: {self.problem}")


def _check(table: Qrels | Run, quantity: str) -> None:
    """Validate the columns of a table and convert them to read-only arrays of strings, strings and float64."""
    values = np.array(getattr(table, f"{quantity}s"), dtype=np.float64)
    if values.ndim != 1 or len(values) == 0:
        none = f"There are no {quantity}s; give at least one."
        raise DataError(none if values.ndim == 1 else f"The {quantity}s must be one-dimensional.")
    wrong = ~np.isfinite(values)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"The {quantity} of row {row} is {values[row]}; it must be finite.")
    queries = _words(table.qids, len(values), "query ids")
    documents = _words(table.document_ids, len(values), "document ids")
    row_again = _first_repeated_pair(queries, documents)
    if row_again is not None:
        raise RepeatedPairError(str(queries[row_again]), str(documents[row_again]), row_again)
    for name, array in (("qids", queries), ("document_ids", documents), (f"{quantity}s", values)):
        array.flags.writeable = False
        object.__setattr__(table, name, array)


def _words(ids: Any, n: int, name: str) -> Array:
    array = identifiers(ids, n, name)
    return array.astype(str) if array.dtype.kind != "U" else np.ascontiguousarray(array).view()


def letters(words: Array) -> npt.NDArray[np.uint32]:
    """Return strings as a matrix of code points, one row for each string."""
    return words.astype(words.dtype.newbyteorder("="), copy=False).view(np.uint32).reshape(len(words), -1)


def _first_repeated_pair(qids: Array, document_ids: Array) -> int | None:
    """Return the first row whose pair of ids occurred before; found by hash and confirmed by comparison."""
    hashes = np.empty(len(qids), dtype=np.uint64)
    kernels.hash_pairs(letters(qids), letters(document_ids), hashes)
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


def _columns_of(source: Any, number: str) -> tuple[Any, Any, Any]:
    """Return the three columns of ``{query: {document: number}}`` or of a frame with the usual column names."""
    if isinstance(source, Mapping):
        for qid, inner in source.items():
            if not isinstance(inner, Mapping):
                raise DataError(
                    f"Query {qid} has a {type(inner).__name__} instead of {{document: {number}}}; give "
                    f"{{query: {{document: {number}}}}}, a data frame, or the name of a file."
                )
        triples = [(str(qid), str(name), value) for qid, inner in source.items() for name, value in inner.items()]
        qids, document_ids, numbers = zip(*triples, strict=True) if triples else ((), (), ())
        return qids, document_ids, numbers
    columns = getattr(source, "column_names", None) or getattr(source, "columns", None)
    if columns is None:
        wanted = f"{{query: {{document: {number}}}}}, a data frame or the name of a file"
        raise DataError(f"Expected {wanted}, not {type(source).__name__}.")

    def column(kind: str, usual: tuple[str, ...]) -> Array:
        # Earlier names have precedence: if there is an id column, "query" contains text.
        name = next((name for word in usual for name in columns if str(name).lower() == word), None)
        if name is None:
            raise DataError(f"The frame has no column for the {kind}; name one of its columns {usual[0]!r}.")
        return np.asarray(source[name])

    ids = column("query", _QUERIES), column("document", ROLES["document_id"].inferred_from)
    return *ids, column(number, _NUMBERS[number])


@dataclass(frozen=True, eq=False, repr=False)
class Qrels:
    """Judgments: one row for each judged pair of query and document (ids as strings), without duplicates.

    >>> Qrels.from_source({"q1": {"d1": 1, "d2": 0}, "q2": {"d1": 2}})
    Qrels(2 queries, 3 judgments)
    """

    qids: Array
    document_ids: Array
    grades: FloatArray

    def __post_init__(self) -> None:
        _check(self, "grade")

    @classmethod
    def from_source(cls, source: Any) -> Qrels:
        """Convert ``{query: {document: grade}}``, a file, or a frame with columns like query_id, doc_id, relevance."""
        if isinstance(source, str | os.PathLike):
            from toprank.data.trec.files import read_qrels

            return read_qrels(source)
        return source if isinstance(source, Qrels) else cls(*_columns_of(source, "grade"))

    def grades_of(self, qids: Array, document_ids: Array, unjudged: float = np.nan) -> FloatArray:
        """Return the grade of each pair of query and document, or `unjudged` for pairs without a judgment.

        >>> Qrels.from_source({"q": {"a": 2}}).grades_of(np.array(["q", "q"]), np.array(["a", "b"])).tolist()
        [2.0, nan]
        """
        judged = zip(self.qids.tolist(), self.document_ids.tolist(), strict=True)
        grades = dict(zip(judged, self.grades.tolist(), strict=True))
        pairs = zip(qids.tolist(), document_ids.tolist(), strict=True)
        return np.array([grades.get(pair, unjudged) for pair in pairs])

    def __len__(self) -> int:
        return len(self.grades)

    def __repr__(self) -> str:
        return f"Qrels({len(np.unique(self.qids)):,} queries, {len(self):,} judgments)"


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """Ranking of the system `tag`: rows of query, document (ids as strings) and score in any order, no pair twice.

    >>> Run.from_source({"q1": {"d1": 0.5, "d2": 1.5}})
    Run('toprank', 1 queries, 2 documents)
    """

    qids: Array
    document_ids: Array
    scores: FloatArray
    tag: str = "toprank"

    def __post_init__(self) -> None:
        _check(self, "score")

    @classmethod
    def from_source(cls, source: Any, tag: str = "toprank") -> Run:
        """Convert ``{query: {document: score}}``, a file, or a frame with columns like query_id, doc_id and score."""
        if isinstance(source, str | os.PathLike):
            from toprank.data.trec.files import read_run

            return read_run(source)
        return source if isinstance(source, Run) else cls(*_columns_of(source, "score"), tag)

    def ranks(self) -> IntArray:
        """Return the rank of each row within its query, from 1: by score as float32, then document id, descending.

        >>> Run.from_source({"q": {"a": 1.0, "b": 2.0, "c": 1.0}}).ranks().tolist()
        [3, 1, 2]
        """
        query = np.unique(self.qids, return_inverse=True)[1].reshape(-1)
        order = self._order(query)
        starts = np.flatnonzero(np.append(True, query[order][1:] != query[order][:-1]))
        sizes = np.diff(np.append(starts, len(self)))
        ranks = np.empty(len(self), dtype=np.int64)
        ranks[order] = positions_within(sizes) + 1
        return ranks

    def _order(self, query: IntArray) -> IntArray:
        """Return the rows sorted by query number and, within a query, as trec_eval ranks them."""
        document = np.unique(self.document_ids, return_inverse=True)[1].reshape(-1)
        with np.errstate(over="ignore"):
            return np.lexsort((-document, -self.scores.astype(np.float32), query))

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        return f"Run({self.tag!r}, {len(np.unique(self.qids)):,} queries, {len(self):,} documents)"
