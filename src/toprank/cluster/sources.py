"""Sources of rows: files, ranges of a stored copy, data sent to workers, partitions of a Dask DataFrame.

A source is a recipe from which any worker can load the rows, repeatedly. Rows of a query that spans several partitions
are removed from some of them and merged into another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.cluster.work import WorkerRows, as_toprank_errors
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
    """A file, read as a whole by a worker."""

    path: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.path

    @property
    def kind(self) -> str:
        """File format."""
        return str(self.options.get("format") or format_of(self.path))

    def load(self) -> RankingData | None:
        """Read the rows; return None if a table has none."""
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
    """A range of queries of a stored copy, memory-mapped by a worker without copying."""

    path: str
    first: int
    last: int

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"{self.path}, queries {self.first} to {self.last - 1}"

    def load(self) -> RankingData:
        """Map the rows, which stay on disk."""
        data = open_store(self.path)
        if data.n_queries < self.last:
            raise FormatError("The stored copy has fewer queries than when it was partitioned.", path=self.path)
        return data.select(np.arange(self.first, self.last))


@dataclass(frozen=True, eq=False)
class DataPart:
    """Some queries of data in the client's memory: sent to a worker, and sent again if that worker is lost."""

    data: RankingData
    name: str


@dataclass(frozen=True, eq=False)
class FramePart:
    """A partition of a Dask DataFrame.

    Attributes:
        may_go: Text columns that were not requested: left out if all partitions together have too many levels.
    """

    frame: Any
    name: str
    roles: dict[str, Any]
    may_go: tuple[str, ...] = ()


@as_toprank_errors
def load(source: FilePart | StorePart) -> WorkerRows:
    """Load the rows of a file or of a range of a stored copy; runs on a worker."""
    data = source.load()
    # Predictions follow the lines of a file, even if it was regrouped, but the order of a stored copy.
    by_lines = isinstance(source, FilePart) and source.kind != "store"
    order = data.source_rows if by_lines and data is not None else None
    return WorkerRows(data, source.name, (load, (source,)), order)


@as_toprank_errors
def rows_of_frame(frame: Any, name: str, roles: dict[str, Any]) -> WorkerRows:
    """Convert a partition of a Dask DataFrame to rows; runs on a worker."""
    if len(frame) == 0:
        return WorkerRows(None, name, None)
    try:
        data = from_frame(frame, **roles)
    except ToprankError as problem:
        raise DataError(f"In {name}: {problem}") from None
    return WorkerRows(data, name, None, data.source_rows)


@as_toprank_errors
def agreed(files: Sequence[FilePart]) -> tuple[list[FilePart], list[str]]:
    """Return tabular files to be read with the columns of the first and the levels of all; other files unchanged.

    Also return the warnings about columns that are left out. Runs on a worker.

    Raises:
        FormatError: the columns of a file differ from the first file's, or their types do.
    """
    if files[0].kind not in ("parquet", "arrow", "csv"):
        return list(files), []
    options = files[0].options
    tables = sources_of([file.path for file in files], options.get("format"))
    with about(tables[0].path), held_warnings() as records:  # a worker's output is not visible to the user
        layout = agreed_layout(tables, TableOptions.from_keywords(options))
        layout.refuse_text()
    fixed = options | layout.assigned.keywords() | {"features": layout.features, "dtype": layout.dtype}
    if layout.encoding is not None:
        fixed["like"] = layout.encoding
    return [FilePart(file.path, fixed) for file in files], [str(record.message) for record in records]


Array = npt.NDArray[Any]


class MigratingRows(NamedTuple):
    """Rows on their way to another partition, with their original partition and positions there."""

    data: RankingData
    owner: int
    order: IntArray


@as_toprank_errors
def taken(rows: WorkerRows, owner: int, qids: Array) -> MigratingRows:
    """Take some queries of partition number `owner`."""
    data = rows.present
    chosen = np.isin(data.qids, qids)
    return MigratingRows(data.select(chosen), owner, rows.places[data.queries.broadcast(chosen)])


@as_toprank_errors
def joined(rows: WorkerRows, owner: int, gone: Array | None, *more: MigratingRows) -> WorkerRows:
    """Return partition number `owner` without the queries that left it, and with the rows that arrived.

    Arriving queries follow the remaining ones; rows of a query are in the order of their original partitions.
    """
    data = rows.present
    stays = np.ones(data.n_queries, dtype=bool) if gone is None else ~np.isin(data.qids, gone)
    parts = list(more)
    if stays.any():
        parts.insert(0, MigratingRows(data.select(stays), owner, rows.places[data.queries.broadcast(stays)]))
    if not parts:
        return WorkerRows(None, rows.name, None)
    owners = np.concatenate([np.full(part.data.n_documents, part.owner) for part in parts])
    qid = np.concatenate([part.data.qid for part in parts])
    _, first, inverse = np.unique(qid, return_index=True, return_inverse=True)
    # the sort is stable: rows of one partition keep their order
    sorting = np.lexsort((owners, first[inverse.reshape(-1)]))
    order = np.concatenate([part.order for part in parts])
    return WorkerRows(
        _stacked([part.data for part in parts], qid, sorting), rows.name, None, order[sorting], owners[sorting]
    )


def _spread(data: RankingData, name: str) -> Array:
    """Return a metadata column with one value for each document."""
    column = data.metadata[name]
    return column if len(column) == data.n_documents else data.queries.broadcast(column)


def _stacked(parts: Sequence[RankingData], qid: Array, sorting: IntArray) -> RankingData:
    """Concatenate parts, with rows sorted so that queries are contiguous."""

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
