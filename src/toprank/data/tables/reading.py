"""Files of tables: Parquet (one file or a folder of them), Arrow IPC / Feather, CSV; read in strips.

Read whole, memory stays near the size of the arrays: a strip of rows is converted, copied to its place, and forgotten.
Read block by block, for a stored copy of tables that are larger than memory, a first pass reads the column of query ids
alone: it counts rows and queries, and refuses a query that starts again, before anything is written.
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
    """The files of `read_table`, surveyed; its options. All files must have the same columns of the same types."""

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
        self._weighed = 0  # so many queries have a weight by now
        self._any_weight = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self._queries.n_documents, len(self._layout.features)

    def arrays(self) -> dict[str, Started]:
        """What the blocks are made of."""
        n, width = self.shape
        arrays = {"X": Started(self._layout.dtype, (width,), n)}
        for role, field in FIELDS.items():
            if role == "label" or role in self._layout.roles:
                kind = PER_DOCUMENT[field]  # of text only once all rows are read: how long it is
                arrays[field] = Started(None if kind is str else np.dtype(kind), (), n)
        return arrays

    def blocks(self) -> Iterator[Block]:
        """The rows, in order; refuses a value that ranking data cannot hold, by file and row."""
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
        """A strip of rows that starts at `row` in its file, with so many rows `before` it in all files."""
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
        """Note the weights of the queries of a strip of rows; the first of them may have begun in an earlier one."""
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
        """The arrays that are small enough to be held: queries and their weights, and what is carried along."""
        if "weight" in self._layout.roles and not self._any_weight:
            raise FormatError("document_weights are all zero; nothing would count.", path=self._sources[0].path)
        arrays = {"offsets": self._queries.offsets, "qids": self._qids} | self._metadata.arrays()
        if "query_weight" in self._layout.roles:
            with about(self._sources[0].path):
                checked = checked_weights(self._query_weights, len(self._queries), "query_weights", "queries")
                assert checked is not None
                arrays["query_weights"] = checked
        return arrays


def _refuse_drift(sources: Sequence[TableSource], layout: Layout, any_column: bool, any_number: bool) -> None:
    """Refuse files whose columns differ from the first file's in name or type: nobody wrote them to be one table.

    Further columns do not matter where the features were given by name (`any_column`), nor do types of features that
    are numbers where the precision was given (`any_number`).
    """
    first = sources[0]
    for source in sources[1:]:
        known = {*first.schema.names, *index_columns(source.schema)}
        extra = [name for name in source.schema.names if name not in known]
        if extra and not any_column:
            raise FormatError(
                f"There {'is a column' if len(extra) == 1 else 'are columns'} {listed(extra)}, which {first.path} does "
                "not have. Give all files the same columns, or name those to use with",
                path=source.path,
                remedy=Remedy("{features}.", features=[...]),
            )
        if source.kind == "csv":  # text has no types but those it is read with
            continue
        for name in layout.columns:
            here, there = (table.schema.field(name).type for table in (source, first))
            fits = any_number and name in layout.features and is_number(here) and is_number(there)
            fits |= name in layout.features and kind_of(here) == kind_of(there) != "number"
            if here != there and not fits:
                end, remedy = ".", ""
                if name in layout.features:
                    end = ", or say which precision to use with"
                    remedy = Remedy("{dtype}.", "toprank convert {dtype}.", dtype=...)
                problem = f"Column '{name}' holds {here}, but {there} in {first.path}. Write all files with the same"
                raise FormatError(f"{problem} types{end}", path=source.path, remedy=remedy)


def agreed_layout(sources: Sequence[TableSource], options: TableOptions) -> Layout:
    """The layout that all files have in common, with the levels of its categories."""
    layout = common_layout(sources, options)
    any_column = options.features is not None or known_columns(options.like)[0] is not None
    _refuse_drift(sources, layout, any_column=any_column, any_number=options.dtype is not None)
    return with_levels(layout, sources)


def _survey(sources: Sequence[TableSource], layout: Layout) -> tuple[Queries, Array]:
    """The queries of all files as one table, and their ids."""
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
    """The query ids of a file, a strip of rows at a time."""
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
    """The columns that are carried along, of all files as one table."""
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
        f"Query {qid} starts again at row {row - file_starts[file]} (counted from 0): its rows are not neighbors. "
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
    """Ranking data from Parquet, Arrow IPC (Feather) or CSV files, or from a folder of Parquet files.

    The columns' roles are found as in `toprank.data.frames.from_frame`. Several files are read as one table, in
    order, and must have the same columns of the same types; `features` says which columns count, `dtype` settles the
    precision of the features. A CSV file needs a header line; it may be compressed (.gz, .zst); numbers are
    float64 unless `dtype` says otherwise; query ids that are all written as plain whole numbers are numbers, and so are
    columns to `metadata`, or dates where all are written as 2024-05-31 or 2024-05-31 23:59:00. In CSV a column of text
    is a category, and an empty cell of it a missing value.
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
    """The query id of each row, in the order of the files, however the rows are grouped."""
    sources = sources_of(paths, format)
    with about(sources[0].path):
        layout = common_layout(sources, TableOptions(roles=replace(Roles.none(), query=qid), features=[]))
    return np.concatenate([ids for source in sources for ids in _query_ids(source, layout)])


def common_layout(sources: Sequence[TableSource], options: TableOptions) -> Layout:
    """The first file's layout, with a precision that suits all files; the levels of its categories, from all files."""
    texts = {
        column.name for column in (known_columns(options.like)[1] or Encoding(())).columns if column.kind == "text"
    }
    first = layout_of(sources[0].typed(texts), options)
    texts |= {column.name for column in (first.encoding or Encoding(())).columns if column.kind == "text"}
    precisions = []
    for source in sources:
        absent = [name for name in first.columns if name not in source.schema.names]
        if absent:
            raise FormatError(f"There is no column {listed(absent)}, which {sources[0].path} has.", path=source.path)
        with about(source.path):
            kinds = first.encoding or Encoding(tuple(Column(name) for name in first.features))
            as_first = replace(options, roles=first.assigned, features=first.features, like=kinds)
            layout = layout_of(source.typed(texts), as_first, where=str(sources[0].path))
            precisions.append(layout.dtype)
    return replace(first, dtype=np.result_type(*precisions))


def with_levels(layout: Layout, sources: Sequence[TableSource]) -> Layout:
    """The layout once the levels of its categories are known: a pass over their columns in all files."""
    if not layout.to_learn:
        return layout
    return learn_levels(layout, (batch for source in sources for batch in source.batches(layout_to_learn(layout))))
