"""Reading click logs from tables, and writing them: columns get roles, batches of rows become integer codes, and
these a log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from toprank.clicks.assembly import (
    RowOf,
    assembled,
    clicks_of,
    exploded,
    ids_in,
    is_list,
    numbers_of,
    plain,
    positions_of,
    refuse_nulls,
)
from toprank.clicks.log import Array, ClickLog, Numbered, numbered
from toprank.clicks.sources import LogRows, is_ubi, kind_of, opened
from toprank.clicks.values import numbers_in
from toprank.compute import IntArray
from toprank.data.arrays import refuse_repeated
from toprank.data.bytesource import PathLike, promised_format
from toprank.data.files import as_plain_files
from toprank.data.roles import in_short
from toprank.data.tables.writing import write_batches
from toprank.errors import DataError, Remedy, UnknownNameError

Choice = str | Literal[False] | None
USUAL_NAMES = {
    "query": ("query", "query_id", "qid", "q_id", "user_query", "search_term"),
    "document": (
        "document", "document_id", "doc_id", "docid", "docno", "did", "url", "object_id", "item", "item_id",
        "product_id", "sku", "asin",
    ),
    "position": ("position", "rank", "pos", "ordinal"),
    "click": ("click", "clicks", "clicked", "is_click", "is_clicked"),
    "session": ("session", "session_id", "sid", "search_id", "serp_id", "request_id"),
    "dwell": ("dwell", "dwell_time"),
    "time": ("time", "timestamp"),
    "user": ("user", "user_id", "client", "client_id"),
    "value": ("value",),
}  # fmt: skip
_REQUIRED_ROLES = ("query", "document", "click")
_ID_ROLES = ("query", "document", "session")
_SERVICE_COLUMNS = (
    "ranker",
    "explored",
    "team",
    "arm",
    "share",
    "propensity",
    "version",
)  # columns of the logs that toprank writes
_CONTEXT_COLUMNS = ("device", "surface", "module")  # kept for the test of contexts
_ROWS_PER_BATCH = 1 << 18


def read(
    source: Any,
    *,
    query: Choice = None,
    document: Choice = None,
    position: Choice = None,
    click: Choice = None,
    session: Choice = None,
    dwell: Choice = None,
    time: Choice = None,
    user: Choice = None,
    value: Choice = None,
    values: str | Mapping[str, float | str] | None = None,
    metadata: str | Sequence[str] = (),
    first_position: int = 1,
    format: str | None = None,
) -> ClickLog:
    """Read a click log from a file or frame with one row per impression, or from files of events.

    Columns that are not named are found by usual names in any case: ``query``, ``query_id``, ``qid`` … Several
    candidates raise an error, and so does a missing column of queries, documents, positions or clicks. `False` means
    that there is no such column. If the column of documents holds lists, each row is a session: clicks are lists of the
    same length, and positions count from 1 unless they are lists, too.

    Args:
        source: a file (Parquet, Arrow, CSV or TSV, JSON lines; text may be compressed), a folder of Parquet files, a
            list of files of one log, a pandas or polars frame, or an Arrow table; a pair of files or frames
            ``ubi_queries`` and ``ubi_events`` of OpenSearch's User Behavior Insights; the log folder of ``toprank
            serve``, of one or several replicas; or a file in Yandex' format (``session⇥time⇥Q⇥query⇥region⇥urls …`` and
            ``session⇥time⇥C⇥url``).
        query: column of queries, as ids or text.
        document: column of documents.
        position: column of positions, up to 10,000.
        click: column of clicks, as truth values or counts; with UBI the name of the action that counts as a click.
        session: column that identifies lists of results. Without one, rows must be in the order of the log, and a list
            ends where the query changes or the position does not increase.
        dwell: column of dwell times of clicks.
        time: column of times.
        user: column of users.
        value: column of the value of each impression, such as money; empty cells are 0.
        values: value of each kind of event, for logs of events, such as ``"click=1,cart=5,purchase=value"``: a number,
            or ``value`` for the value that the event states. Their sum is the column ``value``, and a return subtracts
            the value of its purchase. Default: purchases count in logs of a service.
        metadata: further columns to keep. ``ranker``, ``explored``, ``team``, ``arm``, ``share``, ``propensity``,
            ``version``, ``device``, ``surface`` and ``module`` are always kept. For the log of a service: logged
            features, and ``score``.
        first_position: number of the first position, 1 or 0.
        format: parquet, arrow, csv, jsonl or yandex. Default: detected from content and name.

    Returns:
        the log; rows and events that could not be used are counted in `ClickLog.dropped`.

    >>> import pyarrow as pa
    >>> frame = pa.table({"qid": ["a", "a"], "url": ["x", "y"], "rank": [1, 2], "clicked": [False, True]})
    >>> read(frame)
    ClickLog(1 sessions, 2 impressions, 1 clicks, 1 queries, 2 documents)
    """
    if first_position not in (0, 1):
        raise DataError(f"first_position must be 0 or 1, not {first_position!r}.")
    choices: dict[str, Choice] = dict(zip(
        USUAL_NAMES, (query, document, position, click, session, dwell, time, user, value), strict=True
    ))  # fmt: skip
    metadata = (metadata,) if isinstance(metadata, str) else tuple(metadata)
    sources = list(source) if isinstance(source, list | tuple) else [source]
    if not sources:
        raise DataError("source is empty; pass a file, a frame, or a list of them.")
    if not all(isinstance(source, str | os.PathLike) for source in sources):
        tables = [table for source in sources for table in opened(source, format)]
        return _read_tables(tables, choices, metadata, first_position, values)
    with as_plain_files(sources) as files:  # pipes are read once, but formats are detected by content
        if all(kind_of(file, format) == "yandex" for file in files):
            from toprank.clicks.yandex import read_yandex

            _refuse_columns("Yandex' format", choices, metadata)
            _refuse_values(values)
            return read_yandex(files)
        tables = [table for file in files for table in opened(file, format)]
        return _read_tables(tables, choices, metadata, first_position, values)


def _read_tables(
    tables: Sequence[LogRows],
    choices: Mapping[str, Choice],
    metadata: Sequence[str],
    first_position: int,
    values: str | Mapping[str, float | str] | None,
) -> ClickLog:
    if any(is_ubi(table) for table in tables):
        from toprank.clicks.ubi import read_ubi

        served = all(table.served for table in tables)
        _refuse_columns("User Behavior Insights", {**choices, "click": None}, () if served else metadata)
        return read_ubi(tables, choices["click"] or None, first_position, values, metadata)
    _refuse_values(values)
    return _Strips(tables, choices, metadata, first_position).log()


def _refuse_columns(format: str, choices: Mapping[str, Choice], metadata: Sequence[str]) -> None:
    """Raise an error if columns are named for a format that fixes them."""
    named = [role for role, choice in choices.items() if choice is not None]
    leave_out = Remedy("{metadata}.", "{context}.", metadata=..., context=...)
    if named or metadata:
        raise DataError(
            f"The columns of {format} are fixed and cannot be chosen; leave out",
            remedy=Remedy(f"{{{named[0]}}}.", **{named[0]: ...}) if named else leave_out,
        )


def _refuse_values(values: Any) -> None:
    if values is not None:
        raise DataError(
            "values gives the value of each kind of event, but this log is a table of impressions.",
            remedy=Remedy(
                "Name the column that holds the value of each impression: {value}.",
                "Omit {values} to learn from clicks.",
                value="COLUMN",
                values=...,
            ),
        )


class _Strips:
    """Columns of the tables of one log, collected in batches of rows."""

    def __init__(
        self, tables: Sequence[LogRows], choices: Mapping[str, Choice], metadata: Sequence[str], first_position: int
    ) -> None:
        self._tables, self._first = tables, first_position
        with tables[0].about():
            names = refuse_repeated(list(tables[0].schema.names))
            for name in (*metadata, *(choice for choice in choices.values() if choice)):
                if name not in names:
                    raise UnknownNameError("column", name, names)
            self._roles = _roles(names, choices, metadata)
            self._lists = is_list(tables[0].schema.field(self._roles["document"]).type)
            if "position" not in self._roles and not self._lists:
                raise _no_column("position", names)
        kept = [
            name
            for name in names
            if name.lower() in (*_SERVICE_COLUMNS, *_CONTEXT_COLUMNS) and name not in self._roles.values()
        ]
        self._columns = {name: name for name in (*kept, *metadata)}
        self._columns |= {
            role: name for role, name in self._roles.items() if role in ("dwell", "time", "user", "value")
        }
        self._pieces: dict[str, list[Any]] = {role: [] for role in (*_ID_ROLES, "position", "click", *self._columns)}
        self._n = self._empty = 0  # rows, and empty lists

    def log(self) -> ClickLog:
        """Return all rows as a log."""
        used = list(dict.fromkeys([*self._roles.values(), *self._columns.values()]))
        texts = [self._roles[role] for role in (*_ID_ROLES, "user") if role in self._roles]
        for table in self._tables:
            row = 0
            with table.about():
                absent = [name for name in used if name not in table.schema.names]
                if absent:
                    raise DataError(f"Column '{absent[0]}' of the first table is missing here.")
                for batch in table.batches(used, texts):
                    self._take(batch, row)
                    row += batch.num_rows
        with self._tables[0].about() if len(self._tables) == 1 else nullcontext():
            return self._assembled()

    def _take(self, batch: Any, first_row: int) -> None:
        columns = {role: batch.column(name) for role, name in {**self._columns, **self._roles}.items()}
        row_of: RowOf = first_row.__add__
        places: IntArray | None = None
        if self._lists:
            columns, row, places = exploded(columns, first_row)
            columns = {"session": pa.array(self._n + row), **columns}
            row_of = (first_row + row).__getitem__
            self._empty += batch.num_rows - len(np.unique(row))
        self._n += batch.num_rows

        def cells(role: str) -> tuple[Any, str, str]:
            """Return the cells of a role, with the names of column and role; raise an error for empty cells."""
            values, name = plain(columns[role]), self._roles.get(role, role)
            refuse_nulls(values, name, role, row_of)
            return values, name, role

        for role in _ID_ROLES:
            if role in columns:
                self._pieces[role].append(ids_in(*cells(role)).dictionary_encode())
        if "position" in columns:
            places = positions_of(numbers_of(*cells("position"), row_of), row_of, self._first)
        assert places is not None
        self._pieces["position"].append(places.astype(np.int32))
        self._pieces["click"].append(clicks_of(numbers_of(*cells("click"), row_of), row_of))
        for name in self._columns:
            values = plain(columns[name])
            self._pieces[name].append(values.dictionary_encode() if pa.types.is_string(values.type) else values)

    def _assembled(self) -> ClickLog:
        from_text = any(table.from_text for table in self._tables)
        if not sum(map(len, self._pieces["click"])):
            raise DataError("The table has no rows." if not self._n else "All lists are empty.")
        ids: dict[str, Numbered] = {}
        for role in _ID_ROLES:
            if self._pieces[role]:
                written = from_text and role != "document"  # document ids are text in data, too
                ids[role] = numbered(pa.chunked_array(_alike(self._pieces[role])), from_text=written)
                self._pieces[role] = []
        columns = {name: _values(_whole(name, self._pieces.pop(name)), from_text) for name in self._columns}
        if "value" in columns:
            columns["value"] = numbers_in(columns["value"])
        places = np.concatenate(self._pieces["position"]).astype(np.int64)
        clicks = np.concatenate(self._pieces["click"])
        left = {"lists without a document": self._empty} if self._empty else {}
        return assembled(ids["query"], ids["document"], ids.get("session"), places, clicks, columns, left)


def _roles(names: Sequence[str], choices: Mapping[str, Choice], metadata: Sequence[str]) -> dict[str, str]:
    """Assign columns to roles."""
    taken = {choice for choice in choices.values() if choice} | set(metadata)
    roles: dict[str, str] = {}
    for role, choice in choices.items():
        if choice is not None:
            if choice:
                roles[role] = choice
            elif role in _REQUIRED_ROLES:
                raise DataError(f"A click log needs a column for the {role}.")
            continue
        free = [name for name in names if name not in taken]
        matches = [name for name in free if name.lower() in USUAL_NAMES[role]]
        if len(matches) > 1:
            candidates = ", ".join(f"'{name}'" for name in matches)
            say = Remedy(f"Choose one with {{{role}}}.", "Keep only one of them in the file.", **{role: "COLUMN"})
            raise DataError(f"Several columns could be the {role}: {candidates}.", remedy=say)
        if matches:
            roles[role] = matches[0]
        elif role in _REQUIRED_ROLES:
            raise _no_column(role, names)
    repeated = [name for name in roles.values() if list(roles.values()).count(name) > 1]
    if repeated:
        raise DataError(f"Column '{repeated[0]}' is assigned to two roles; assign a separate column to each role.")
    return roles


def _no_column(role: str, names: Sequence[str]) -> DataError:
    for sign, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if len(names) == 1 and sign in names[0]:
            return DataError(f"The columns seem to be separated by {word}; use commas in .csv and tabs in .tsv.")
    give = Remedy(f"Give {{{role}}}.", f"Call the one that holds it '{role}'.", **{role: "COLUMN"})
    return DataError(f"No column looks like the {role}. The columns are: {in_short(names)}.", remedy=give)


def _alike(pieces: list[Any]) -> list[Any]:
    """Convert chunks to one type, because files can differ in their categories."""
    kinds = {piece.type.value_type for piece in pieces}
    inside = kinds.pop() if len(kinds) == 1 else pa.string()
    wanted = pa.dictionary(pa.int32(), inside)
    return [piece if piece.type == wanted else piece.cast(inside).dictionary_encode() for piece in pieces]


def _whole(name: str, pieces: list[Any]) -> Any:
    """Concatenate the chunks of a kept column, whose type may differ between files."""
    if pa.types.is_dictionary(pieces[0].type):
        pieces = _alike(pieces)
    try:
        return pa.chunked_array([piece.cast(pieces[0].type) for piece in pieces])
    except pa.ArrowInvalid as problem:
        raise DataError(f"Column '{name}' does not hold the same in all files: {problem}.") from None


def _values(column: Any, from_text: bool) -> Array:
    """Return a kept column; equal texts share one object."""
    if not pa.types.is_dictionary(column.type):
        if column.null_count and pa.types.is_integer(column.type):
            column = column.cast(pa.float64())
        return np.asarray(column.to_numpy())
    whole = column.unify_dictionaries()
    codes = np.concatenate([np.asarray(chunk.indices.fill_null(-1)) for chunk in whole.chunks])
    known = whole.chunk(0).dictionary
    for kind in (pa.int64(), pa.float64(), pa.bool_()) if from_text and (codes >= 0).all() else ():
        try:
            values: Array = known.cast(kind).to_numpy(zero_copy_only=False)[codes]
            return values
        except pa.ArrowInvalid:
            continue
    words = np.append(np.asarray(known.to_pylist(), dtype=object), [""])
    return np.asarray(words[codes])


# ---- writing ----


def write(log: ClickLog, path: PathLike) -> None:
    """Write a log as Parquet, Arrow or CSV, by the suffix of `path`; the file is written completely or not at all.

    `read` restores the same sessions. Name columns that it does not keep by default in `metadata`. Weights by age and
    the counts of dropped rows are not written.

    >>> import tempfile
    >>> log = ClickLog.from_columns(["a", "a"], ["x", "y"], [1, 2], [0, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(log, f"{folder}/log.parquet")
    ...     read(f"{folder}/log.parquet").clicks.tolist()
    [False, True]
    """
    if not isinstance(log, ClickLog):
        raise DataError(f"write takes a ClickLog, not a {type(log).__name__}.")
    kind = written_as(path)
    if log.n_impressions == 0:
        raise DataError("The log has no impressions to write.")
    taken = {"session", "query", "document", "position", "click"} & set(log.columns)
    if taken:
        raise DataError(
            f"The log has a further column '{min(taken)}', the name of a standard column of the file; rename it."
        )
    strip = _strips_of(log)
    write_batches(path, kind, strip(0).schema, map(strip, range(0, log.n_impressions, _ROWS_PER_BATCH)))


def written_as(path: PathLike) -> str:
    """Return the format for a file name."""
    kind = promised_format(path)
    if kind not in ("parquet", "arrow", "csv"):
        raise DataError(f"{path}: the suffix must be .parquet, .arrow, .csv or .csv.gz.")
    return kind


def _strips_of(log: ClickLog) -> Callable[[int], Any]:
    """Return a function from the first row of a batch to its impressions, as a record batch."""
    ids_of_roles = zip(_ID_ROLES, (log.qids, log.document_ids, log.session_names), strict=True)
    ids = {name: _as_arrow(name, column) for name, column in ids_of_roles}
    further = {name: _as_arrow(name, values) for name, values in log.columns.items()}

    def strip(start: int) -> Any:
        rows = slice(start, start + _ROWS_PER_BATCH)
        pair, session = log.pair[rows], log.session[rows]
        places = {"session": session, "query": log.pair_query[pair], "document": pair}
        columns = {name: ids[name].take(pa.array(place)) for name, place in places.items()}
        columns |= {"position": pa.array(log.position[rows]), "click": pa.array(log.clicks[rows])}
        columns |= {name: values.slice(start, _ROWS_PER_BATCH) for name, values in further.items()}
        (batch,) = pa.table(columns).combine_chunks().to_batches()  # Arrow splits long text columns
        return batch

    return strip


def _as_arrow(name: str, values: Array) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError) as problem:
        raise DataError(f"Column '{name}' of the log cannot be written: {problem}.") from None
