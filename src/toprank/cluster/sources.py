"""Where partitions come from: files, ranges of a stored copy, parts of data in memory, a Dask DataFrame.

A source is a recipe: a worker that gets it can make the rows, and another one can make them again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from toprank.cluster.work import Rows, in_sentences
from toprank.compute import IntArray
from toprank.data.checks import check_whole, listed_paths
from toprank.data.dataset import RankingData
from toprank.data.files import format_of
from toprank.data.files import read as read_file
from toprank.data.frames import from_frame
from toprank.data.frames.layout import USUAL_NAMES, layout_of
from toprank.data.store import is_store, open_store
from toprank.data.tables.reading import refuse_drift
from toprank.data.tables.sources import about, common_layout, files_in, sources_of
from toprank.errors import DataError, FileError, FormatError, ToprankError, UnknownNameError

__all__ = [
    "DataPart",
    "FilePart",
    "FramePart",
    "Parts",
    "StorePart",
    "agreed",
    "parts_of",
    "read",
    "tables_of",
    "with_tables",
]

PathLike = str | os.PathLike[str]
Repair = Literal["neighbours", "all", "none"]
REPAIRS = ("neighbours", "all", "none")


@dataclass(frozen=True)
class FilePart:
    """A file, read whole by a worker."""

    path: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What to call it in a sentence."""
        return self.path

    @property
    def kind(self) -> str:
        """Its format."""
        return str(self.options.get("format") or format_of(self.path))

    def load(self) -> RankingData | None:
        """The rows; None where a table has none."""
        try:
            if self.kind == "parquet" and not any(table.n_rows for table in sources_of(self.path, "parquet")):
                return None
            return read_file(self.path, **self.options)
        except (FormatError, FileError):
            raise
        except ToprankError as problem:
            raise FormatError(str(problem), path=self.path) from None


@dataclass(frozen=True)
class StorePart:
    """Some neighbouring queries of a stored copy, mapped by a worker and never copied."""

    path: str
    first: int
    last: int

    @property
    def name(self) -> str:
        """What to call it in a sentence."""
        return f"{self.path}, queries {self.first} to {self.last - 1}"

    def load(self) -> RankingData:
        """The rows, on disk."""
        data = open_store(self.path)
        if data.n_queries < self.last:
            raise FormatError("The stored copy has fewer queries than when it was divided.", path=self.path)
        return data.select(np.arange(self.first, self.last))


@dataclass(frozen=True, eq=False)
class DataPart:
    """Some queries of data in the client's memory; sent to a worker, and sent again where that one is lost."""

    data: RankingData
    name: str


@dataclass(frozen=True, eq=False)
class FramePart:
    """A partition of a Dask DataFrame."""

    frame: Any
    name: str
    roles: dict[str, Any]


class Parts:
    """Data in partitions, described and not yet read: what `Cluster.fit` learns from.

    Args:
        sources: one for each partition, in order.
        repair: what to do about a query whose rows lie in several partitions. ``neighbours``: move it to one where it
            is cut by the border between two, as when a table is cut by rows; refuse it elsewhere, where the same id
            more likely names two queries. ``all``: bring the rows together wherever they are. ``none``: refuse both.
        whole: the data that these are the parts of, in order, where they are in memory.
    """

    for_a_cluster = True

    def __init__(
        self, sources: Sequence[Any], repair: Repair = "neighbours", *, whole: RankingData | None = None
    ) -> None:
        if repair not in REPAIRS:
            raise UnknownNameError("kind of repair", str(repair), REPAIRS)
        if not sources:
            raise DataError("There is nothing to distribute: no partition was given.")
        self.sources, self.repair, self.whole = tuple(sources), repair, whole

    def replace(self, sources: Sequence[Any] | None = None, repair: Repair | None = None) -> Parts:
        """The same with other sources of the same rows, or with another kind of repair."""
        return Parts(self.sources if sources is None else sources, repair or self.repair, whole=self.whole)

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the data that these are the parts of, where it is known without a look at the rows."""
        if self.whole is not None:
            return self.whole.fingerprint
        stores = [source for source in self.sources if isinstance(source, StorePart)]
        ends = [0, *(source.last for source in stores)]
        if (
            len(stores) < len(self)
            or len({one.path for one in stores}) > 1
            or [one.first for one in stores] != ends[:-1]
        ):
            return None
        data = open_store(stores[0].path)
        return data.fingerprint if data.n_queries == ends[-1] else None

    def __len__(self) -> int:
        return len(self.sources)

    def __repr__(self) -> str:
        return f"Parts({len(self)} partitions, repair='{self.repair}')"


def read(
    paths: PathLike | Sequence[PathLike],
    *,
    partitions: int | None = None,
    repair: Repair = "neighbours",
    **options: Any,
) -> Parts:
    """Data for a cluster, by path; nothing is read yet. Workers must see the same paths.

    Args:
        paths: a folder of Parquet files (a partition each), a stored copy (cut into ranges of whole queries), or a list
            of files of any format that `toprank.read` reads (a partition each).
        partitions: how many ranges to cut a stored copy into. Default: about 64 MB of features each, at least 8.
        repair: what to do about queries whose rows lie in several partitions; see `Parts`.
        **options: for the reader of the files, such as ``label=`` and ``qid=``; see `toprank.read`.
    """
    if isinstance(paths, str | os.PathLike):
        path = Path(paths)
        if is_store(path):
            if partitions is not None:
                check_whole("partitions", partitions, 1)
            if options:
                raise UnknownNameError("option for reading a stored copy", next(iter(options)), ["partitions"])
            return Parts(_ranges(path, partitions), repair)
        files = files_in(path) if path.is_dir() else [path]
    else:
        files = listed_paths(paths)
    if partitions is not None:
        raise DataError("A file is a partition; partitions= belongs to a stored copy (toprank convert makes one).")
    return Parts([FilePart(os.path.abspath(file), options) for file in files], repair)


def parts_of(data: Any, *, partitions: int, repair: Repair | None = None, **roles: Any) -> Parts:
    """Data that are already in memory, or a Dask DataFrame, as partitions.

    Args:
        data: a `RankingData`, `Parts`, or a Dask DataFrame.
        partitions: into how many parts to cut a `RankingData`.
        repair: see `Parts`. Default: what they say themselves, else ``neighbours``.
        **roles: for a frame, the columns as in `RankingData.from_frame`.
    """
    is_frame = hasattr(data, "to_delayed") and hasattr(getattr(data, "_meta", None), "columns")
    if roles and not is_frame and isinstance(data, Parts | RankingData):
        raise DataError(
            f"{next(iter(roles))}= names a column of a frame, but these data know their columns already; leave it out, "
            "or give it to toprank.cluster.read."
        )
    if isinstance(data, Parts):
        return data if repair is None else data.replace(repair=repair)
    if isinstance(data, RankingData):
        ranges = even_ranges(data.queries.offsets, partitions)
        parts = [DataPart(data.select(np.arange(a, b)), f"queries {a} to {b - 1}") for a, b in ranges]
        return Parts(parts, repair or "neighbours", whole=data)
    if is_frame:
        return Parts(_frame_parts(data, roles), repair or "neighbours")
    raise DataError(
        f"Data of type {type(data).__name__} cannot be distributed; give what toprank.cluster.read gives, a Dask "
        "DataFrame, or a RankingData."
    )


@in_sentences
def load(source: FilePart | StorePart) -> Rows:
    """The rows of a file or of a range of a stored copy; runs on a worker."""
    data = source.load()
    # A file that was regrouped is known to its owner by its lines; a stored copy by its own order.
    by_lines = isinstance(source, FilePart) and source.kind != "store"
    order = data.source_rows if by_lines and data is not None else None
    return Rows(data, source.name, (load, (source,)), order)


@in_sentences
def rows_of_frame(frame: Any, name: str, roles: dict[str, Any]) -> Rows:
    """The rows of a partition of a Dask DataFrame; runs on a worker."""
    if len(frame) == 0:
        return Rows(None, name, None)
    try:
        data = from_frame(frame, **roles)
    except ToprankError as problem:
        raise DataError(f"In {name}: {problem}") from None
    return Rows(data, name, None, data.source_rows)


def _ranges(path: Path, partitions: int | None) -> list[StorePart]:
    data = open_store(path)
    width = max(1, data.n_features * data.X.dtype.itemsize)
    wanted = max(8, data.n_documents * width >> 26) if partitions is None else partitions
    return [StorePart(os.path.abspath(path), first, last) for first, last in even_ranges(data.queries.offsets, wanted)]


def even_ranges(offsets: IntArray, count: int) -> list[tuple[int, int]]:
    """At most `count` ranges of whole queries with about equally many documents.

    >>> even_ranges(np.array([0, 3, 5, 9, 10]), 2)
    [(0, 2), (2, 4)]
    """
    marks = np.linspace(0, offsets[-1], count + 1)
    cuts = np.unique(np.searchsorted((offsets[1:] + offsets[:-1]) / 2, marks))
    return [(int(a), int(b)) for a, b in pairwise(np.unique([0, *cuts, len(offsets) - 1]))]


def _frame_parts(frame: Any, roles: dict[str, Any]) -> list[FramePart]:
    """Partitions read by the columns of the frame as a whole."""
    import pyarrow as pa

    known = (*USUAL_NAMES, "features", "dtype")
    for name in roles:
        if name not in known:
            raise UnknownNameError("role of a column", name, known)
    given = {role: roles.get(role) for role in USUAL_NAMES}
    schema = pa.Schema.from_pandas(frame._meta, preserve_index=False)
    layout = layout_of(schema, given, roles.get("features"), roles.get("dtype"))
    fixed = roles | {role: layout.roles.get(role, False) for role in USUAL_NAMES}
    fixed |= {"features": layout.features, "dtype": layout.dtype, "regroup": True}
    pieces = frame.to_delayed()
    return [FramePart(piece, f"partition {number} of the frame", fixed) for number, piece in enumerate(pieces)]


def tables_of(parts: Parts) -> list[FilePart]:
    """The partitions that are files, where there are several, whose columns must agree."""
    files = [source for source in parts.sources if isinstance(source, FilePart)]
    return files if len(files) > 1 else []


@in_sentences
def agreed(files: Sequence[FilePart]) -> list[FilePart]:
    """Files of tables, to be read by the columns of the first; others as they are. Runs on a worker.

    Raises:
        FormatError: a file has other columns than the first, or of other types.
    """
    if files[0].kind not in ("parquet", "arrow", "csv"):
        return list(files)
    options = files[0].options
    given, features, dtype = (
        {role: options.get(role) for role in USUAL_NAMES},
        options.get("features"),
        options.get("dtype"),
    )
    tables = sources_of([file.path for file in files], options.get("format"))
    with about(tables[0].path):
        layout = common_layout(tables, given, features, dtype)
        refuse_drift(tables, layout, any_column=features is not None, any_number=dtype is not None)
    fixed = options | {role: layout.roles.get(role, False) for role in USUAL_NAMES}
    fixed |= {"features": layout.features, "dtype": layout.dtype}
    return [FilePart(file.path, fixed) for file in files]


def with_tables(parts: Parts, tables: Sequence[FilePart]) -> Parts:
    """The partitions with the files among them replaced, in their order."""
    others = iter(tables)
    return parts.replace([next(others) if isinstance(one, FilePart) else one for one in parts.sources])
