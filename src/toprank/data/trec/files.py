"""Reading and writing of TREC files: judgments (qrels) and rankings (runs), and conversion to `RankingData`.

Rows of both have a query id, a document id and a number.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import Array, FloatArray
from toprank.data.arrays import check_utf8
from toprank.data.bytesource import ByteSource, PathLike, check_size, open_bytes, output
from toprank.data.dataset import RankingData
from toprank.data.row_order import Order
from toprank.data.trec.tables import Qrels, RepeatedPairError, Run, letters
from toprank.errors import DataError, FormatError, Remedy, join_parts

_BLANKS = np.frombuffer(b" \t\r\v\f", np.uint8)  # separators within a line, as in the kernel
_PIECE = 8 << 20  # bytes of text per block


def _read_rows(
    path: PathLike, layout: str, value_column: int, quantity: str, rest: bool = False
) -> tuple[ByteSource, npt.NDArray[np.int64], Array, Array, FloatArray]:
    """Read a file of lines like `layout` (with `rest`, more words may follow).

    Return the source, the positions of the rows, query ids, document ids and numbers.
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
    """Return the error for a line that does not match `layout`."""
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
    """Return the ids at spans[:, first] from pieces of the text, each with its number of rows."""
    longest = int((spans[:, first + 1] - spans[:, first]).max())

    def at_longest(problem: str) -> FormatError:
        return source.fault(problem, int(spans[np.argmax(spans[:, first + 1] - spans[:, first]), first]))

    what = "The ids, padded to the longest one,"
    check_size(4 * longest * len(spans), source.size, what, "Shorten the longest one.", at_longest)
    words, row, foreign = np.empty(len(spans), dtype=f"U{longest}"), 0, False
    for begin, end, rows in (piece for piece in pieces if piece[2]):
        text, here = source.array(begin, end), slice(row, row + rows)
        zeros = text[spans[here, first + 1] - 1 - begin] == 0
        if zeros.any():  # NumPy strings drop trailing zero bytes, so two ids could become equal
            at = int(spans[row + np.argmax(zeros), first])
            raise source.fault("The id ends in a zero byte, which is not allowed; remove it.", at)
        foreign |= bool(kernels.copy_words(text, spans[here] - begin, first, letters(words[here])))
        row += rows
    if not foreign:
        return words
    try:
        return np.array([word.encode("latin-1").decode() for word in words.tolist()])
    except UnicodeDecodeError as bad:
        row = int(np.argmax(words == bad.object.decode("latin-1")))
        raise source.fault("The id is not UTF-8 text.", int(spans[row, first])) from None


def check_words(words: Iterable[str], kind: str, where: str) -> None:
    """Raise an error for words that would not be read back as one column; `kind` names them in the message."""
    for word in set(words):
        if word.split() != [word]:
            raise DataError(
                f"The {kind} {word!r} cannot be a column of {where}: it must be a word without whitespace, for example "
                f"{'_'.join(word.split()) or '_'!r}."
            )
        check_utf8(word, kind)


def _write_rows(path: PathLike, columns: list[Any]) -> None:
    """Write columns (arrays, or one string for all rows) as lines of words, atomically."""
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


def read_qrels(path: PathLike) -> Qrels:
    """Read judgments: lines ``query iteration document grade`` with any whitespace; also .gz and .zst.

    Rows keep the order of the file; the iteration is ignored.

    Raises:
        FileError: the file cannot be read.
        FormatError: a line has another form, or a pair of query and document occurs twice.
    """
    source, spans, qids, document_ids, grades = _read_rows(path, "query iteration document grade", 3, "grade")
    try:
        return Qrels(qids, document_ids, grades)
    except RepeatedPairError as twice:
        raise source.fault(twice.problem, int(spans[twice.row, 2])) from None


def read_run(path: PathLike) -> Run:
    """Read a ranking: lines ``query Q0 document rank score tag`` with any whitespace; also .gz and .zst.

    Rows keep the order of the file. As in trec_eval, the rank and any text after the tag are ignored. The tag of the
    first line is the name of the run.

    Raises:
        FileError: the file cannot be read.
        FormatError: a line has another form, or a pair of query and document occurs twice.
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
    """Write judgments as ``query 0 document grade``, atomically; compressed if the name ends in .gz or .zst.

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
    """Write a ranking as ``query Q0 document rank score tag``, atomically; also .gz and .zst.

    Documents are written in the order in which trec_eval ranks them, whatever ranks the file has: by score as float32,
    with ties by document id, both descending. `read_run` restores the scores exactly.

    Args:
        data: ranking data with document ids, or a `Run`, whose rows keep their order: ``write_run(run, path)``.
        scores: one score per document, in the order of ``data.X``.
        path: the file.
        tag: name of the system; one word.
        order: order of the scores, if grouping reordered the rows of the data; see `RankingData.aligned`.

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
        raise DataError("write_run needs scores for ranking data; call write_run(data, scores, path).")
    else:
        run, target = run_of(scores, data, tag, order), path
    _write_rows(target, [run.qids, "Q0", run.document_ids, run.ranks(), run.scores, run.tag])


def qrels_of(data: RankingData) -> Qrels:
    """Return the judgments of ranking data, without unjudged documents (label NaN or -1).

    Raises:
        DataError: the data have no document ids, or no judgment.
    """
    ids = _document_ids(data)
    return Qrels(data.qid[data.judged], ids[data.judged], data.labels[data.judged])


def run_of(scores: npt.ArrayLike, data: RankingData, tag: str = "toprank", order: Order | None = None) -> Run:
    """Rank ranking data by scores (see `RankingData.aligned`); queries keep their order, documents are sorted by rank.

    Raises:
        DataError: the data have no document ids, or a document has no finite score.

    >>> data = RankingData(np.zeros((3, 1)), qid=[1, 1, 2], document_ids=["a", "b", "c"])
    >>> run_of([0.1, 0.9, 0.5], data).document_ids.tolist()
    ['b', 'a', 'c']
    """
    ids = _document_ids(data)
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (len(ids),):
        raise DataError(f"There are {values.size} scores for {len(ids)} documents; give one for each.")
    run = Run(data.qid, ids, np.asarray(data.aligned(scores, order), dtype=np.float64), tag)
    ranked = run._order(data.queries.document_query)
    return Run(run.qids[ranked], run.document_ids[ranked], run.scores[ranked], tag)


def data_of_qrels(qrels: Qrels) -> RankingData:
    """Convert judgments to ranking data without features; rows are grouped by query."""
    X = np.empty((len(qrels), 0), dtype=np.float32)
    return RankingData(X, qrels.grades, qid=qrels.qids, document_ids=qrels.document_ids)


def data_of_run(run: Run, qrels: Qrels | None = None) -> RankingData:
    """Convert a run to ranking data with the features score and rank, and the grades in `qrels` as labels.

    Documents without a judgment have the label NaN. Rows are grouped by query and keep the order of the run.

    >>> run = Run.from_source({"q": {"a": 1.0, "b": 2.0}})
    >>> data = data_of_run(run, Qrels.from_source({"q": {"b": 3}}))
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
        column = "name their column in a table with {document_id},"
        give = Remedy("pass document_ids= to RankingData,", column, document_id=...)
        remedy = join_parts(give, "or read a file with comments like 'docid = …'.")
        raise DataError("The data have no document ids, which TREC files need;", remedy=remedy)
    return data.document_ids
