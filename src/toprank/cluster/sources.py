"""The sources of rows: files, ranges of a stored copy, data sent to workers, partitions of a Dask DataFrame.

A source is a recipe: a worker that gets it can make the rows, and another one can make them again. Rows of a query that
lies in several partitions are taken from some and joined to others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.cluster.work import WorkerRows, in_sentences
from toprank.compute import IntArray
from toprank.data.dataset import RankingData
from toprank.data.files import format_of
from toprank.data.files import read as read_file
from toprank.data.frames import from_frame
from toprank.data.frames.options import TableOptions
from toprank.data.queries import weight_of_each_query
from toprank.data.store import open_store
from toprank.data.tables.reading import agreed_layout
from toprank.data.tables.sources import about, sources_of
from toprank.errors import DataError, FileError, FormatError, ToprankError, held_warnings


@dataclass(frozen=True)
class FilePart:
    """A file, read whole by a worker."""

    path: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in a sentence."""
        return self.path

    @property
    def kind(self) -> str:
        """Its format."""
        return str(self.options.get("format") or format_of(self.path))

    def load(self) -> RankingData | None:
        """Read the rows; None if a table has none."""
        try:
            if self.kind == "parquet" and not any(table.n_rows for table in sources_of(self.path, "parquet")):
                return None
            strict = {"regroup": False} if self.kind in ("parquet", "arrow", "csv") else {}
            return read_file(self.path, **(strict | self.options))
        except (FormatError, FileError):
            raise
        except ToprankError as problem:
            raise FormatError(str(problem), path=self.path) from None


@dataclass(frozen=True)
class StorePart:
    """Some neighboring queries of a stored copy, mapped by a worker and never copied."""

    path: str
    first: int
    last: int

    @property
    def name(self) -> str:
        """Its name in a sentence."""
        return f"{self.path}, queries {self.first} to {self.last - 1}"

    def load(self) -> RankingData:
        """Map the rows, which stay on disk."""
        data = open_store(self.path)
        if data.n_queries < self.last:
            raise FormatError("The stored copy has fewer queries than when it was divided.", path=self.path)
        return data.select(np.arange(self.first, self.last))


@dataclass(frozen=True, eq=False)
class DataPart:
    """Some queries of data in the client's memory: sent to a worker, and sent again if that one is lost."""

    data: RankingData
    name: str


@dataclass(frozen=True, eq=False)
class FramePart:
    """A partition of a Dask DataFrame.

    Attributes:
        may_go: Columns of text that nobody asked for: left out if all partitions together have too many levels.
    """

    frame: Any
    name: str
    roles: dict[str, Any]
    may_go: tuple[str, ...] = ()


@in_sentences
def load(source: FilePart | StorePart) -> WorkerRows:
    """Read the rows of a file or of a range of a stored copy; runs on a worker."""
    data = source.load()
    # Predictions follow the lines of a file, even if it was regrouped, but the order of a stored copy.
    by_lines = isinstance(source, FilePart) and source.kind != "store"
    order = data.source_rows if by_lines and data is not None else None
    return WorkerRows(data, source.name, (load, (source,)), order)


@in_sentences
def rows_of_frame(frame: Any, name: str, roles: dict[str, Any]) -> WorkerRows:
    """Read the rows of a partition of a Dask DataFrame; runs on a worker."""
    if len(frame) == 0:
        return WorkerRows(None, name, None)
    try:
        data = from_frame(frame, **roles)
    except ToprankError as problem:
        raise DataError(f"In {name}: {problem}") from None
    return WorkerRows(data, name, None, data.source_rows)


@in_sentences
def agreed(files: Sequence[FilePart]) -> tuple[list[FilePart], list[str]]:
    """Return files of tables to be read by the columns of the first, with the levels of all; other files as they are.

    Also return the warnings about columns that are left out. Runs on a worker.

    Raises:
        FormatError: a file has other columns than the first, or of other types.
    """
    if files[0].kind not in ("parquet", "arrow", "csv"):
        return list(files), []
    options = files[0].options
    tables = sources_of([file.path for file in files], options.get("format"))
    with about(tables[0].path), held_warnings() as records:  # a worker's output is read by nobody
        layout = agreed_layout(tables, TableOptions.from_keywords(options))
        layout.refuse_text()
    fixed = options | layout.assigned.keywords() | {"features": layout.features, "dtype": layout.dtype}
    if layout.encoding is not None:
        fixed["like"] = layout.encoding
    return [FilePart(file.path, fixed) for file in files], [str(record.message) for record in records]


Array = npt.NDArray[Any]


class Guests(NamedTuple):
    """Rows on their way to another partition: the one that they leave, and where they stood there."""

    data: RankingData
    owner: int
    order: IntArray


@in_sentences
def taken(rows: WorkerRows, owner: int, qids: Array) -> Guests:
    """Take some queries of partition number `owner`."""
    data = rows.present
    chosen = np.isin(data.qids, qids)
    return Guests(data.select(chosen), owner, rows.places[data.queries.broadcast(chosen)])


@in_sentences
def joined(rows: WorkerRows, owner: int, gone: Array | None, *more: Guests) -> WorkerRows:
    """Return partition number `owner` without the queries that left it, and with the rows that came.

    Queries that came stand behind those that stayed; rows of a query stand in the order of the partitions.
    """
    data = rows.present
    stays = np.ones(data.n_queries, dtype=bool) if gone is None else ~np.isin(data.qids, gone)
    parts = list(more)
    if stays.any():
        parts.insert(0, Guests(data.select(stays), owner, rows.places[data.queries.broadcast(stays)]))
    if not parts:
        return WorkerRows(None, rows.name, None)
    owners = np.concatenate([np.full(part.data.n_documents, part.owner) for part in parts])
    qid = np.concatenate([part.data.qid for part in parts])
    _, first, inverse = np.unique(qid, return_index=True, return_inverse=True)
    sorting = np.lexsort((owners, first[inverse.reshape(-1)]))  # stable: rows of one partition keep their order
    order = np.concatenate([part.order for part in parts])
    return WorkerRows(
        _stacked([part.data for part in parts], qid, sorting), rows.name, None, order[sorting], owners[sorting]
    )


def _spread(data: RankingData, name: str) -> Array:
    """Return a metadata column, one value for each document."""
    column = data.metadata[name]
    return column if len(column) == data.n_documents else data.queries.broadcast(column)


def _stacked(parts: Sequence[RankingData], qid: Array, sorting: IntArray) -> RankingData:
    """Stack parts, with their rows sorted so that queries are whole."""

    def rows(pieces: Iterable[Array | None]) -> Array | None:
        present = [piece for piece in pieces if piece is not None]
        return np.concatenate(present)[sorting] if present else None

    if parts[0].is_sparse:
        from scipy import sparse

        X: Any = sparse.vstack([part.X for part in parts], format="csr")[sorting]
    else:
        X = rows(part.X for part in parts)
    whole = RankingData(
        X,
        rows(part.labels for part in parts),
        qid=qid[sorting],
        document_ids=rows(part.document_ids for part in parts),
        document_weights=rows(part.document_weights for part in parts),
        positions=rows(part.positions for part in parts),
        teacher=rows(part.teacher for part in parts),
        metadata={name: np.concatenate([_spread(part, name) for part in parts])[sorting] for name in parts[0].metadata},
        feature_names=parts[0].feature_names,
        encoding=parts[0].encoding,
    )
    weights = rows(None if part.query_weights is None else part.queries.broadcast(part.query_weights) for part in parts)
    if weights is None:
        return whole
    return whole.replace(query_weights=weight_of_each_query(weights, whole.queries, whole.qids))
