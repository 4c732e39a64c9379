"""TREC files: judgments (qrels) and rankings (runs), as columns, and to and from `RankingData`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData
from toprank.data.trec.tables import RepeatedPairError, check_table, line_from, read_table, table_of, write_table
from toprank.errors import DataError, Remedy, joined

__all__ = [
    "Qrels",
    "Run",
    "data_of_qrels",
    "data_of_run",
    "qrels_of",
    "read_qrels",
    "read_run",
    "run_of",
    "write_qrels",
    "write_run",
]

PathLike = str | os.PathLike[str]
Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Qrels:
    """Judgments: one row for each judged pair of query and document; no pair twice.

    Attributes:
        qids: the query of each row, strings.
        document_ids: the document of each row, strings.
        grades: its grade, float64.

    >>> Qrels.of({"q1": {"d1": 1, "d2": 0}, "q2": {"d1": 2}})
    Qrels(2 queries, 3 judgments)
    """

    qids: Array
    document_ids: Array
    grades: FloatArray

    def __post_init__(self) -> None:
        columns = check_table(self.qids, self.document_ids, self.grades, "grade")
        for name, column in zip(("qids", "document_ids", "grades"), columns, strict=True):
            object.__setattr__(self, name, column)

    @classmethod
    def of(cls, given: Any) -> Qrels:
        """From ``{query: {document: grade}}``, or a frame with columns like query_id, doc_id and relevance."""
        if isinstance(given, Qrels):
            return given
        qids, document_ids, grades = table_of(given, "grade")
        return cls(qids, document_ids, grades)

    def __len__(self) -> int:
        return len(self.grades)

    def __repr__(self) -> str:
        return f"Qrels({len(np.unique(self.qids)):,} queries, {len(self):,} judgments)"


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A ranking: one row for each retrieved pair of query and document, in any order; no pair twice.

    Attributes:
        qids: the query of each row, strings.
        document_ids: the document of each row, strings.
        scores: its score, float64, higher is better.
        tag: the name of the system.

    >>> Run.of({"q1": {"d1": 0.5, "d2": 1.5}})
    Run('toprank', 1 queries, 2 documents)
    """

    qids: Array
    document_ids: Array
    scores: FloatArray
    tag: str = "toprank"

    def __post_init__(self) -> None:
        columns = check_table(self.qids, self.document_ids, self.scores, "score")
        for name, column in zip(("qids", "document_ids", "scores"), columns, strict=True):
            object.__setattr__(self, name, column)

    @classmethod
    def of(cls, given: Any, tag: str = "toprank") -> Run:
        """From ``{query: {document: score}}``, or a frame with columns like query_id, doc_id and score."""
        if isinstance(given, Run):
            return given
        qids, document_ids, scores = table_of(given, "score")
        return cls(qids, document_ids, scores, tag)

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
        ranks[order] = np.arange(len(self)) - np.repeat(starts, sizes) + 1
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
    source, spans, qids, document_ids, grades = read_table(path, "query iteration document grade", 3, "grade")
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
    source, spans, qids, document_ids, scores = read_table(
        path, "query Q0 document rank score tag", 4, "score", rest=True
    )
    tag = line_from(source, int(spans[0, 3])).split()[2].decode("utf-8", "replace")
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
    write_table(path, [qrels.qids, "0", qrels.document_ids, qrels.grades])


def write_run(run: Run, path: PathLike) -> None:
    """Write a ranking as ``query Q0 document rank score tag``, rows in their order; else as `write_qrels`."""
    write_table(path, [run.qids, "Q0", run.document_ids, run.ranks(), run.scores, run.tag])


def qrels_of(data: RankingData) -> Qrels:
    """The judgments in ranking data; documents that are not judged (label NaN or -1) are left out.

    Raises:
        DataError: the data have no document ids, or no judgment.
    """
    ids = _document_ids(data)
    return Qrels(data.qid[data.judged], ids[data.judged], data.labels[data.judged])


def run_of(scores: npt.ArrayLike, data: RankingData, tag: str = "toprank") -> Run:
    """The ranking of ranking data by scores: queries in the order of the data, documents by rank.

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
    run = Run(data.qid, ids, values, tag)
    order = run._order(data.queries.document_query)
    return Run(run.qids[order], run.document_ids[order], run.scores[order], tag)


def data_of_qrels(qrels: Qrels) -> RankingData:
    """Ranking data without features whose documents and labels are the judgments, rows of a query brought together.

    >>> data_of_qrels(Qrels.of({"q": {"a": 1, "b": 0}})).X.shape
    (2, 0)
    """
    return RankingData(
        np.empty((len(qrels), 0), dtype=np.float32),
        qrels.grades,
        qid=qrels.qids,
        document_ids=qrels.document_ids,
        regroup=True,
    )


def data_of_run(run: Run, qrels: Qrels | None = None) -> RankingData:
    """Ranking data whose features are the score and the rank in a run, and whose labels are the grades in `qrels`.

    Documents without a judgment have the label NaN. Rows of a query are brought together, in the order of the run.

    >>> run = Run.of({"q": {"a": 1.0, "b": 2.0}})
    >>> data = data_of_run(run, Qrels.of({"q": {"b": 3}}))
    >>> data.X.tolist(), data.labels.tolist(), data.feature_names
    ([[1.0, 2.0], [2.0, 1.0]], [nan, 3.0], ('score', 'rank'))
    """
    labels = None
    if qrels is not None:
        judged = zip(qrels.qids.tolist(), qrels.document_ids.tolist(), strict=True)
        grades = dict(zip(judged, qrels.grades.tolist(), strict=True))
        retrieved = zip(run.qids.tolist(), run.document_ids.tolist(), strict=True)
        labels = np.array([grades.get(pair, np.nan) for pair in retrieved])
    return RankingData(
        np.column_stack([run.scores, run.ranks()]),
        labels,
        qid=run.qids,
        document_ids=run.document_ids,
        feature_names=("score", "rank"),
        regroup=True,
    )


def _document_ids(data: RankingData) -> Array:
    if data.document_ids is None:
        raise DataError(
            "The data have no document ids, which TREC files need;",
            remedy=joined(
                Remedy(
                    "give document_ids= to RankingData,",
                    "name the column of a table that holds them with --document-id,",
                ),
                "or read a file whose comments say 'docid = …'.",
            ),
        )
    return data.document_ids
