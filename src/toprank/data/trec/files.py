"""TREC files: judgments (qrels) and rankings (runs), as columns, and to and from `RankingData`.

Both have the same shape: a query id, a document id and a number on each row.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.data import checks
from toprank.data.bytesource import ByteSource, PathLike, check_size, open_bytes, output
from toprank.data.checks import Array
from toprank.data.dataset import RankingData
from toprank.data.frames.layout import USUAL_NAMES
from toprank.data.queries import places_within
from toprank.data.row_order import Order
from toprank.errors import DataError, FormatError, Remedy, joined

_BLANKS = np.frombuffer(b" \t\r\v\f", np.uint8)  # within a line, as there
_PIECE = 8 << 20  # bytes of text at a time
_NUMBERS = {"grade": USUAL_NAMES["label"], "score": ("score", "scores", "sim")}


class RepeatedPairError(DataError):
    """A document that appears twice for one query; `row` is where it does so first."""

    def __init__(self, qid: str, document_id: str, row: int) -> None:
        self.row = row
        self.problem = f"Document {document_id} appears twice for query {qid}; remove one of the two."
        super().__init__(f"Row {row}: {self.problem}")


def _check(table: Qrels | Run, quantity: str) -> None:
    """Make the columns read-only arrays of strings, strings and float64, after the checks that all tables pass."""
    values = np.array(getattr(table, f"{quantity}s"), dtype=np.float64)
    if values.ndim != 1 or len(values) == 0:
        none = f"There are no {quantity}s; at least one is needed."
        raise DataError(none if values.ndim == 1 else f"{quantity}s: one column.")
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


def _columns_of(source: Any, number: str) -> tuple[Any, Any, Any]:
    """The three columns of ``{query: {document: number}}`` or of a data frame with the usual column names."""
    if isinstance(source, Mapping):
        for qid, inner in source.items():
            if not isinstance(inner, Mapping):
                raise DataError(
                    f"Query {qid} has no {{document: {number}}} but {type(inner).__name__}; give "
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
        name = next((name for name in columns if str(name).lower() in usual), None)
        if name is None:
            raise DataError(f"The frame has no column for the {kind}; name one of its columns {usual[0]!r}.")
        return np.asarray(source[name])

    ids = column("query", USUAL_NAMES["qid"]), column("document", USUAL_NAMES["document_id"])
    return *ids, column(number, _NUMBERS[number])


def _read_rows(
    path: PathLike, layout: str, value_column: int, quantity: str, rest: bool = False
) -> tuple[ByteSource, npt.NDArray[np.int64], Array, Array, FloatArray]:
    """Read a file of lines like `layout` (with `rest`, more words may follow).

    Returns the source, where each row stands, query ids, document ids and numbers.
    """
    source, n_columns = open_bytes(path), len(layout.split())
    spans, values, pieces = [np.empty((0, 4), dtype=np.int64)], [np.empty(0)], []
    for first, last in source.pieces(_PIECE):
        text = source.array(first, last)
        lone = kernels.lone_return(text)
        if lone >= 0:
            raise source.lone_return(first + lone)
        room = kernels.count_lines(text)
        places, numbers, counts = np.empty((room, 4), dtype=np.int64), np.empty(room), np.empty(2, dtype=np.int64)
        fault = kernels.trec_table(text, 0, n_columns, rest, value_column, places, numbers, counts)
        rows, at = counts.tolist()
        if fault != kernels.TrecFault.FINE:
            raise _fault(source, first + at, fault, layout, quantity)
        spans.append(places[:rows] + first)
        values.append(numbers[:rows].copy())
        pieces.append((first, last, rows))
    all_spans = np.concatenate(spans)
    if len(all_spans) == 0:
        raise FormatError(f"The file is empty; expected lines '{layout}'.", path=source.path)
    qids, document_ids = (_column(source, pieces, all_spans, first) for first in (0, 2))
    return source, all_spans, qids, document_ids, np.concatenate(values)


def _fault(source: ByteSource, at: int, fault: int, layout: str, quantity: str) -> FormatError:
    """The error for a line that is not like `layout`."""
    if fault == kernels.TrecFault.COLUMNS:
        blank = np.isin(source.array(at, source.newline(at)), _BLANKS)
        n_words = int(np.count_nonzero(np.diff(blank, prepend=True) & ~blank))
        return source.fault(f"Expected {len(layout.split())} columns, '{layout}'; found {n_words}.", at)
    if fault == kernels.TrecFault.SIZE:
        return source.fault(f"The {quantity} is too large for float64.", at)
    word = source.bytes(at, at + 96).split()[0][:24].decode("utf-8", "replace")
    wanted = "a number" if fault == kernels.TrecFault.VALUE else "a finite number"
    return source.fault(f"Expected the {quantity}, {wanted}; found {word!r}.", at)


def _column(source: ByteSource, pieces: list[tuple[int, int, int]], spans: npt.NDArray[np.int64], first: int) -> Array:
    """The ids at spans[:, first], from pieces of the text, each with its number of rows."""
    longest = int((spans[:, first + 1] - spans[:, first]).max())

    def at_longest(problem: str) -> FormatError:
        return source.fault(problem, int(spans[np.argmax(spans[:, first + 1] - spans[:, first]), first]))

    what = "The ids, padded to the longest one,"
    check_size(4 * longest * len(spans), source.size, what, "Shorten that one.", at_longest)
    words, row, foreign = np.empty(len(spans), dtype=f"U{longest}"), 0, False
    for begin, end, rows in (piece for piece in pieces if piece[2]):
        text, here = source.array(begin, end), slice(row, row + rows)
        zeros = text[spans[here, first + 1] - 1 - begin] == 0
        if zeros.any():  # which arrays of strings drop: two ids could become one
            at = int(spans[row + np.argmax(zeros), first])
            raise source.fault("The id ends in a zero byte, which ids may not; remove it.", at)
        foreign |= bool(kernels.copy_words(text, spans[here] - begin, first, _letters(words[here])))
        row += rows
    if not foreign:
        return words
    try:
        return np.array([word.encode("latin-1").decode() for word in words.tolist()])
    except UnicodeDecodeError as bad:
        row = int(np.argmax(words == bad.object.decode("latin-1")))
        raise source.fault("The id is not UTF-8 text.", int(spans[row, first])) from None


def check_words(words: Iterable[str], kind: str, where: str) -> None:
    """Refuse what could not be read back as one column of a line; `kind` is what the words are."""
    for word in set(words):
        if word.split() != [word]:
            raise DataError(
                f"The {kind} {word!r} cannot be a column of {where}: it must be one word without blanks; call it "
                f"{'_'.join(word.split()) or '_'!r}, for instance."
            )
        checks.check_utf8(word, kind)


def _write_rows(path: PathLike, columns: list[Any]) -> None:
    """Write columns (arrays, or one string for all rows) as lines of words, all or nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for kind, column in zip(("query id", "iteration", "document id", "", "", "tag"), columns, strict=False):
        words = [column] if isinstance(column, str) else column.tolist() if column.dtype.kind == "U" else []
        check_words(words, kind, Path(path).name)
    columns = [c.tolist() if not isinstance(c, str) and c.dtype.kind == "U" else c for c in columns]
    texts = [c if isinstance(c, str) else pc.cast(pa.array(c), pa.string()) for c in columns]
    lines = pc.binary_join_element_wise(*texts, " ").to_pylist()
    with output(path) as stream:
        stream.write(("\n".join(lines) + "\n").encode())


@dataclass(frozen=True, eq=False, repr=False)
class Qrels:
    """Judgments: one row for each judged pair of query and document (ids as strings); no pair twice.

    >>> Qrels.of({"q1": {"d1": 1, "d2": 0}, "q2": {"d1": 2}})
    Qrels(2 queries, 3 judgments)
    """

    qids: Array
    document_ids: Array
    grades: FloatArray

    def __post_init__(self) -> None:
        _check(self, "grade")

    @classmethod
    def of(cls, source: Any) -> Qrels:
        """From ``{query: {document: grade}}``, a file, or a frame with columns like query_id, doc_id and relevance."""
        if isinstance(source, str | os.PathLike):
            return read_qrels(source)
        return source if isinstance(source, Qrels) else cls(*_columns_of(source, "grade"))

    def grades_of(self, qids: Array, document_ids: Array, unjudged: float = np.nan) -> FloatArray:
        """Return the grade of each pair of a query and a document, `unjudged` for a pair without a judgment.

        >>> Qrels.of({"q": {"a": 2}}).grades_of(np.array(["q", "q"]), np.array(["a", "b"])).tolist()
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
    """A ranking by the system `tag`: rows of query, document (ids as strings) and score, in any order; no pair twice.

    >>> Run.of({"q1": {"d1": 0.5, "d2": 1.5}})
    Run('toprank', 1 queries, 2 documents)
    """

    qids: Array
    document_ids: Array
    scores: FloatArray
    tag: str = "toprank"

    def __post_init__(self) -> None:
        _check(self, "score")

    @classmethod
    def of(cls, source: Any, tag: str = "toprank") -> Run:
        """From ``{query: {document: score}}``, a file, or a frame with columns like query_id, doc_id and score."""
        if isinstance(source, str | os.PathLike):
            return read_run(source)
        return source if isinstance(source, Run) else cls(*_columns_of(source, "score"), tag)

    def ranks(self) -> IntArray:
        """The rank of each row within its query, from 1: by score as float32, then by document id, both descending.

        >>> Run.of({"q": {"a": 1.0, "b": 2.0, "c": 1.0}}).ranks().tolist()
        [3, 1, 2]
        """
        query = np.unique(self.qids, return_inverse=True)[1].reshape(-1)
        order = self._order(query)
        starts = np.flatnonzero(np.append(True, query[order][1:] != query[order][:-1]))
        sizes = np.diff(np.append(starts, len(self)))
        ranks = np.empty(len(self), dtype=np.int64)
        ranks[order] = places_within(sizes) + 1
        return ranks

    def _order(self, query: IntArray) -> IntArray:
        """The rows by query number, and within a query as trec_eval ranks them."""
        document = np.unique(self.document_ids, return_inverse=True)[1].reshape(-1)
        with np.errstate(over="ignore"):
            return np.lexsort((-document, -self.scores.astype(np.float32), query))

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        return f"Run({self.tag!r}, {len(np.unique(self.qids)):,} queries, {len(self):,} documents)"


def read_qrels(path: PathLike) -> Qrels:
    """Read judgments: lines ``query iteration document grade``, separated by any blanks; also .gz and .zst.

    Rows stay in the order of the file; the iteration is not used.

    Raises:
        FileError: the file cannot be read.
        FormatError: a line is not like that, or a pair of query and document appears twice.
    """
    source, spans, qids, document_ids, grades = _read_rows(path, "query iteration document grade", 3, "grade")
    try:
        return Qrels(qids, document_ids, grades)
    except RepeatedPairError as twice:
        raise source.fault(twice.problem, int(spans[twice.row, 2])) from None


def read_run(path: PathLike) -> Run:
    """Read a ranking: lines ``query Q0 document rank score tag``, separated by any blanks; also .gz and .zst.

    Rows stay in the order of the file. As in trec_eval the rank and anything behind the tag are not used. The tag of
    the first line names the run.

    Raises:
        FileError: the file cannot be read.
        FormatError: a line is not like that, or a pair of query and document appears twice.
    """
    layout = "query Q0 document rank score tag"
    source, spans, qids, document_ids, scores = _read_rows(path, layout, 4, "score", rest=True)
    behind = int(spans[0, 3])
    tag = source.bytes(behind, source.newline(behind)).split(None, 3)[2].decode("utf-8", "replace")
    try:
        return Run(qids, document_ids, scores, tag)
    except RepeatedPairError as twice:
        raise source.fault(twice.problem, int(spans[twice.row, 2])) from None


def write_qrels(judgments: Qrels | RankingData, path: PathLike) -> None:
    """Write judgments as ``query 0 document grade``, all or nothing; a name that ends in .gz or .zst is compressed.

    Raises:
        DataError: an id is not a single word, or the data have no document ids.
        FileError: the file cannot be written.
    """
    qrels = judgments if isinstance(judgments, Qrels) else qrels_of(judgments)
    _write_rows(path, [qrels.qids, "0", qrels.document_ids, qrels.grades])


@overload
def write_run(data: Run, scores: PathLike, /) -> None: ...
@overload
def write_run(
    data: RankingData, scores: npt.ArrayLike, path: PathLike, tag: str = "toprank", *, order: Order | None = None
) -> None: ...
def write_run(
    data: RankingData | Run,
    scores: Any,
    path: PathLike | None = None,
    tag: str = "toprank",
    *,
    order: Order | None = None,
) -> None:
    """Write a ranking as ``query Q0 document rank score tag``, all or nothing; also .gz and .zst.

    Documents are written best first and ranked as trec_eval reads them, whatever ranks a file has: by score as float32,
    ties by document id, both descending. `read_run` gives the same scores back, bit for bit.

    Args:
        data: ranking data with document ids. Or a `Run`, whose rows stay in their order: ``write_run(run, path)``.
        scores: one score per document, in the order of ``data.X``.
        path: the file.
        tag: the name of the system; one word.
        order: how the scores stand, where grouping moved the rows of the data: see `RankingData.aligned`.

    Raises:
        DataError: an id or the tag is not a single word, the data have no document ids, or a score is missing.
        FileError: the file cannot be written.

    >>> import tempfile
    >>> data = RankingData(np.zeros((3, 1)), qid=[1, 1, 1], document_ids=["a", "b", "c"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_run(data, [0.5, 0.9, 0.5], Path(folder, "my.run"), tag="mine")
    ...     print(Path(folder, "my.run").read_text(), end="")
    1 Q0 b 1 0.9 mine
    1 Q0 c 2 0.5 mine
    1 Q0 a 3 0.5 mine
    """
    if isinstance(data, Run):
        run, target = data, scores if path is None else path
    elif path is None:
        raise DataError("Ranking data need scores to be a run: write_run(data, scores, path).")
    else:
        run, target = run_of(scores, data, tag, order), path
    _write_rows(target, [run.qids, "Q0", run.document_ids, run.ranks(), run.scores, run.tag])


def qrels_of(data: RankingData) -> Qrels:
    """The judgments in ranking data; documents that are not judged (label NaN or -1) are left out.

    Raises:
        DataError: the data have no document ids, or no judgment.
    """
    ids = _document_ids(data)
    return Qrels(data.qid[data.judged], ids[data.judged], data.labels[data.judged])


def run_of(scores: npt.ArrayLike, data: RankingData, tag: str = "toprank", order: Order | None = None) -> Run:
    """The ranking of ranking data by scores (see `RankingData.aligned`): queries as in the data, documents by rank.

    Raises:
        DataError: the data have no document ids, or there is not one finite score for each document.

    >>> data = RankingData(np.zeros((3, 1)), qid=[1, 1, 2], document_ids=["a", "b", "c"])
    >>> run_of([0.1, 0.9, 0.5], data).document_ids.tolist()
    ['b', 'a', 'c']
    """
    ids = _document_ids(data)
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (len(ids),):
        raise DataError(f"There are {values.size} scores for {len(ids)} documents; there must be one for each.")
    run = Run(data.qid, ids, np.asarray(data.aligned(scores, order), dtype=np.float64), tag)
    ranked = run._order(data.queries.document_query)
    return Run(run.qids[ranked], run.document_ids[ranked], run.scores[ranked], tag)


def data_of_qrels(qrels: Qrels) -> RankingData:
    """Ranking data without features whose documents and labels are the judgments, rows of a query brought together."""
    X = np.empty((len(qrels), 0), dtype=np.float32)
    return RankingData(X, qrels.grades, qid=qrels.qids, document_ids=qrels.document_ids)


def data_of_run(run: Run, qrels: Qrels | None = None) -> RankingData:
    """Ranking data whose features are the score and the rank in a run, and whose labels are the grades in `qrels`.

    Documents without a judgment have the label NaN. Rows of a query are brought together, in the order of the run.

    >>> run = Run.of({"q": {"a": 1.0, "b": 2.0}})
    >>> data = data_of_run(run, Qrels.of({"q": {"b": 3}}))
    >>> data.X.tolist(), data.labels.tolist(), data.feature_names
    ([[1.0, 2.0], [2.0, 1.0]], [nan, 3.0], ('score', 'rank'))
    """
    return RankingData(
        np.column_stack([run.scores, run.ranks()]),
        None if qrels is None else qrels.grades_of(run.qids, run.document_ids),
        qid=run.qids,
        document_ids=run.document_ids,
        feature_names=("score", "rank"),
    )


def _document_ids(data: RankingData) -> Array:
    if data.document_ids is None:
        column = "name the column of a table that holds them with {document_id},"
        give = Remedy("give document_ids= to RankingData,", column, document_id=...)
        remedy = joined(give, "or read a file whose comments say 'docid = …'.")
        raise DataError("The data have no document ids, which TREC files need;", remedy=remedy)
    return data.document_ids
