"""Reading of table files: Parquet (files or folders), Arrow IPC / Feather and CSV.

Tables are read in blocks of rows, so memory is close to the size of the resulting arrays. For a stored copy of tables
larger than memory, a first pass reads only the query ids: it counts rows and queries, and raises an error for a query
whose rows are not contiguous before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from toprank.compute import Array, FloatArray, IntArray
from toprank.data.arrays import checked_columns, checked_weights, identifiers, some_weights
from toprank.data.bytesource import PathLike
from toprank.data.dataset import PER_DOCUMENT, RankingData
from toprank.data.encoding import Column, Encoding, UnknownLevelTracker, kind_of, listed
from toprank.data.frames.categories import layout_to_learn, learn_levels
from toprank.data.frames.conversion import fill_rows, gather, role_values, whole_numbers
from toprank.data.frames.layout import FIELDS, Layout, index_columns, is_number, known_columns, layout_of
from toprank.data.frames.metadata import metadata_values
from toprank.data.frames.options import TableKeywords, TableOptions, check_keywords
from toprank.data.metadata import Metadata
from toprank.data.queries import IN_MEMORY, Queries, joined_queries, several_weights
from toprank.data.roles import Choice, Roles
from toprank.data.store.stream import Block, ColumnDescription, Started
from toprank.data.tables.sources import TableSource, about, sources_of
from toprank.errors import DataError, FormatError, Remedy

if TYPE_CHECKING:
    from toprank.data.tables.sources import TableSource


class TableStream:
    """Stream over the files of `read_table` after a first pass; all files must have the same columns and types."""

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        options: TableOptions,
        format: str | None = None,
    ) -> None:
        self._sources = sources_of(paths, format)
        with about(self._sources[0].path):
            self._layout = agreed_layout(self._sources, options)
            self._queries, self._qids = _survey(self._sources, self._layout)
            columns = _metadata_columns(self._sources, self._layout)
            self._metadata = Metadata.from_columns(columns, self._queries, None, self._layout.text)
        self.description = ColumnDescription(
            feature_names=self._layout.feature_names,
            metadata=self._layout.metadata,
            text=self._layout.text,
            encoding=self._layout.encoding,
            roles=self._layout.assigned,
        )
        self._query_weights: FloatArray = np.zeros(len(self._queries))
        self._weighed = 0  # number of queries whose weight is known
        self._any_weight = False

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and features."""
        return self._queries.n_documents, len(self._layout.features)

    def arrays(self) -> dict[str, Started]:
        """Describe the arrays in the blocks."""
        n, width = self.shape
        arrays = {"X": Started(self._layout.dtype, (width,), n)}
        for role, field in FIELDS.items():
            if role == "label" or role in self._layout.roles:
                kind = PER_DOCUMENT[field]  # the length of text is unknown until all rows are read
                arrays[field] = Started(None if kind is str else np.dtype(kind), (), n)
        return arrays

    def blocks(self) -> Iterator[Block]:
        """Iterate over the rows in order; raise an error with file and row for an invalid value."""
        self._weighed = before = 0
        unknown = UnknownLevelTracker(self._layout.encoding or Encoding(()))
        for source in self._sources:
            row = 0
            for batch in source.batches(self._layout):
                with about(source.path):
                    block = self._block(batch, row, before, unknown)
                yield block
                row += batch.num_rows
                before += batch.num_rows
        unknown.warn()

    def _block(self, batch: Any, row: int, before: int, unknown: UnknownLevelTracker) -> Block:
        """Convert a batch that starts at `row` in its file, after `before` rows of all files."""
        n, layout = batch.num_rows, self._layout
        values = {
            role: role_values(role, name, [batch.column(name)], layout, row)
            for role, name in layout.roles.items()
            if role != "qid"
        }
        X = np.empty((n, len(layout.features)), dtype=layout.dtype)
        fill_rows(X, batch, layout, unknown)
        values.setdefault("label", np.full(n, np.nan))
        columns = checked_columns({field: values.get(role) for role, field in FIELDS.items()}, n, row)
        self._any_weight |= "weight" in values and bool(columns["document_weights"].any())
        if "query_weight" in values:
            self._weigh(some_weights(values["query_weight"], n, "query_weights", "queries", row), before)
        return {"X": X} | columns

    def _weigh(self, per_row: FloatArray, before: int) -> None:
        """Store the query weights of a batch of rows; its first query may have started in an earlier batch."""
        if not len(per_row):
            return
        starts = self._queries.offsets[:-1]
        first = int(np.searchsorted(starts, before, side="right")) - 1
        last = max(first + 1, int(np.searchsorted(starts, before + len(per_row))))
        places = np.maximum(starts[first:last] - before, 0)
        weights = np.minimum.reduceat(per_row, places)
        wrong = weights != np.maximum.reduceat(per_row, places)
        wrong[0] |= first < self._weighed and weights[0] != self._query_weights[first]
        if wrong.any():
            raise several_weights(self._qids[first + int(np.argmax(wrong))])
        self._query_weights[first:last] = weights
        self._weighed = last

    def rest(self) -> Block:
        """Return the arrays that fit into memory: queries, their weights and metadata."""
        if "weight" in self._layout.roles and not self._any_weight:
            raise FormatError(
                "document_weights are all zero; give at least one positive weight.", path=self._sources[0].path
            )
        arrays = {"offsets": self._queries.offsets, "qids": self._qids} | self._metadata.arrays()
        if "query_weight" in self._layout.roles:
            with about(self._sources[0].path):
                checked = checked_weights(self._query_weights, len(self._queries), "query_weights", "queries")
                assert checked is not None
                arrays["query_weights"] = checked
        return arrays


def _refuse_drift(sources: Sequence[TableSource], layout: Layout, any_column: bool, any_number: bool) -> None:
    """Raise an error for files whose column names or types differ from the first file.

    Additional columns are allowed if the features are given by name (`any_column`), and numeric features may have
    different types if the dtype is given (`any_number`).
    """
    first = sources[0]
    for source in sources[1:]:
        known = {*first.schema.names, *index_columns(source.schema)}
        extra = [name for name in source.schema.names if name not in known]
        if extra and not any_column:
            raise FormatError(
                f"{first.path} does not have the {'column' if len(extra) == 1 else 'columns'} {listed(extra)} of this "
                "file. Give all files the same columns, or name the ones to use with",
                path=source.path,
                remedy=Remedy("{features}.", features=[...]),
            )
        if source.kind == "csv":  # CSV columns are untyped
            continue
        for name in layout.columns:
            here, there = (table.schema.field(name).type for table in (source, first))
            fits = any_number and name in layout.features and is_number(here) and is_number(there)
            fits |= name in layout.features and kind_of(here) == kind_of(there) != "number"
            if here != there and not fits:
                end, remedy = ".", ""
                if name in layout.features:
                    end = ", or choose the precision with"
                    remedy = Remedy("{dtype}.", "toprank convert {dtype}.", dtype=...)
                problem = f"Column '{name}' holds {here}, but {there} in {first.path}. Write all files with the same"
                raise FormatError(f"{problem} types{end}", path=source.path, remedy=remedy)


def agreed_layout(sources: Sequence[TableSource], options: TableOptions) -> Layout:
    """Return the common layout of all files, with the levels of its categories."""
    layout = common_layout(sources, options)
    any_column = options.features is not None or known_columns(options.like)[0] is not None
    _refuse_drift(sources, layout, any_column=any_column, any_number=options.dtype is not None)
    return with_levels(layout, sources)


def _survey(sources: Sequence[TableSource], layout: Layout) -> tuple[Queries, Array]:
    """Return the queries of all files as one table, and their ids."""
    if "qid" not in layout.roles:
        n = sum(_count_rows(source, layout) for source in sources)
        if n == 0:
            raise DataError("The table has no rows.")
        return Queries([0, n]), np.zeros(1, dtype=np.int64)
    ids, starts, file_starts, n = list[Array](), list[IntArray](), [0], 0
    for source in sources:
        for values in _query_ids(source, layout):
            changes = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
            ids.append(values[changes])
            starts.append(n + changes)
            n += len(values)
        file_starts.append(n)
    if n == 0:
        raise DataError("The table has no rows.")
    raw = np.concatenate(ids)
    pieces = identifiers(whole_numbers(raw) if sources[0].kind == "csv" else raw, len(raw), "qids")
    places = np.concatenate(starts)
    begins, again = joined_queries(pieces)
    if again is not None:
        raise _starts_again(sources, file_starts, pieces[again], int(places[again]))
    return Queries(np.append(places[begins], n)), pieces[begins]


def _query_ids(source: TableSource, layout: Layout) -> Iterator[Array]:
    """Iterate over the query ids of a file in batches."""
    name, row = layout.roles["qid"], 0
    for batch in source.batches(Layout(Roles(query=name), (), layout.dtype)):
        if batch.num_rows:
            with about(source.path):
                values = role_values("qid", name, [batch.column(name)], layout, row)
                if values.dtype.kind == "f":
                    values = identifiers(values, len(values), "qid", row)
            yield values
            row += batch.num_rows


def _metadata_columns(sources: Sequence[TableSource], layout: Layout) -> dict[str, Array]:
    """Return the metadata columns of all files as one table."""
    if not layout.metadata:
        return {}
    alone = Layout(Roles(metadata=layout.assigned.metadata, text=layout.text), (), layout.dtype)
    batches = [batch for source in sources for batch in source.batches(alone)]
    from_text = sources[0].kind == "csv"
    return {
        name: metadata_values(name, [batch.column(name) for batch in batches], from_text, layout.is_text(name))
        for name in layout.metadata
    }


def _count_rows(source: TableSource, layout: Layout) -> int:
    if source.n_rows is not None:
        return source.n_rows
    return sum(batch.num_rows for batch in source.batches(layout))


def _starts_again(sources: Sequence[TableSource], file_starts: list[int], qid: Any, row: int) -> FormatError:
    file = int(np.searchsorted(file_starts, row, side="right")) - 1
    return FormatError(
        f"Query {qid} starts again at row {row - file_starts[file]} (counted from 0): its rows are not contiguous. "
        "Sort the rows by query, or",
        remedy=IN_MEMORY,
        path=sources[file].path,
    )


def read_table(
    paths: PathLike | Sequence[PathLike],
    *,
    format: str | None = None,
    **keywords: Unpack[TableKeywords],
) -> RankingData:
    """Read ranking data from Parquet, Arrow IPC (Feather) or CSV files, or from a folder of Parquet files.

    The keywords and the inference of roles are those of `toprank.data.frames.from_frame`. Several files are read as one
    table, in order, and must have the same columns and types, unless `features` selects columns or `dtype` sets the
    precision of the features. A CSV file needs a header line and may be compressed (.gz, .zst). Its numbers are float64
    unless `dtype` is given; query ids and metadata columns that are all integers become integers, and metadata columns
    of dates such as 2024-05-31 or 2024-05-31 23:59:00 become dates. Text columns are categories, with empty cells as
    missing values.
    """
    check_keywords("read_table", keywords)
    options = TableOptions.from_keywords(keywords)
    sources = sources_of(paths, format)
    with about(sources[0].path):
        layout = agreed_layout(sources, options)
        batches = (batch for source in sources for batch in source.batches(layout))
        n_rows = sum(source.n_rows or 0 for source in sources)
        return gather(batches, layout, n_rows, regroup=options.regroup, ids_from_text=sources[0].kind == "csv")


def query_ids(
    paths: PathLike | Sequence[PathLike], *, format: str | None = None, qid: Choice = None
) -> npt.NDArray[Any]:
    """Return the query id of each row, in the order of the files, even if the rows of a query are scattered."""
    sources = sources_of(paths, format)
    with about(sources[0].path):
        layout = common_layout(sources, TableOptions(roles=replace(Roles.none(), query=qid), features=[]))
    return np.concatenate([ids for source in sources for ids in _query_ids(source, layout)])


def common_layout(sources: Sequence[TableSource], options: TableOptions) -> Layout:
    """Return the layout of the first file, with a precision suitable for all files."""
    texts = {
        column.name for column in (known_columns(options.like)[1] or Encoding(())).columns if column.kind == "text"
    }
    first = layout_of(sources[0].typed(texts), options)
    texts |= {column.name for column in (first.encoding or Encoding(())).columns if column.kind == "text"}
    precisions = []
    for source in sources:
        absent = [name for name in first.columns if name not in source.schema.names]
        if absent:
            raise FormatError(f"The column {listed(absent)} of {sources[0].path} is missing here.", path=source.path)
        with about(source.path):
            kinds = first.encoding or Encoding(tuple(Column(name) for name in first.features))
            as_first = replace(options, roles=first.assigned, features=first.features, like=kinds)
            layout = layout_of(source.typed(texts), as_first, where=str(sources[0].path))
            precisions.append(layout.dtype)
    return replace(first, dtype=np.result_type(*precisions))


def with_levels(layout: Layout, sources: Sequence[TableSource]) -> Layout:
    """Return the layout with the levels of its categories, after a pass over their columns in all files."""
    if not layout.to_learn:
        return layout
    return learn_levels(layout, (batch for source in sources for batch in source.batches(layout_to_learn(layout))))
