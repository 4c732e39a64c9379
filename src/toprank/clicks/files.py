"""Click logs from tables, and back: which column is what, strips of rows become small integers, those become a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from toprank.clicks.log import Array, ClickLog, Numbered, assembled, clicks_of, numbered, positions_of
from toprank.clicks.sources import Rows, kind_of, opened, refuse_nulls
from toprank.compute import IntArray
from toprank.data.bytesource import PathLike, promised_format
from toprank.data.frames.layout import refuse_repeated
from toprank.data.tables.writing import write_batches
from toprank.errors import DataError, Remedy, UnknownNameError

__all__ = ["USUAL_NAMES", "read", "write"]

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
}  # fmt: skip
_NEEDED = ("query", "document", "click")
_IDS = ("query", "document", "session")
_OURS = ("ranker", "explored")  # what simulated logs carry
_STRIP = 1 << 18


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
    carry: Sequence[str] = (),
    first_position: int = 1,
    format: str | None = None,
) -> ClickLog:
    """A click log from a file or frame with a row for each impression, or from files of events.

    Where a column is not given, one with a usual name (in any case) is taken, ``query``, ``query_id``, ``qid`` …; two
    candidates, or none for query, document, position or click, are an error. `False` says that there is none. Where the
    column of documents holds lists, a row is a session: clicks are lists as long, and positions count from 1 unless
    they are lists too.

    Args:
        source: a file (Parquet, Arrow, CSV or TSV, JSON lines; text may be compressed), a folder of Parquet files, a
            list of files that make one log, a pandas or polars frame, an Arrow table; a pair of files or frames
            ``ubi_queries`` and ``ubi_events`` of OpenSearch's User Behavior Insights; a file in Yandex' format
            (``session⇥time⇥Q⇥query⇥region⇥urls …`` and ``session⇥time⇥C⇥url``).
        query: column of queries, ids or words.
        document: column of documents.
        position: column of positions, down to 10,000.
        click: column of clicks, truth values or how many; with UBI the name of the action that counts as one.
        session: column that tells lists of results apart; without one, rows stand in the order of the log, and a list
            ends where the query changes or the position does not rise.
        dwell: column of the time that a click lasted.
        time: column of times.
        user: column of users.
        carry: further columns to keep; ``ranker`` and ``explored`` are kept in any case.
        first_position: the number of the first position, 1 or 0.
        format: parquet, arrow, csv, jsonl or yandex, where neither content nor name tells.

    Returns:
        the log. What could not become an impression or a click is counted in `ClickLog.left_out`.

    >>> import pyarrow as pa
    >>> frame = pa.table({"qid": ["a", "a"], "url": ["x", "y"], "rank": [1, 2], "clicked": [False, True]})
    >>> read(frame)
    ClickLog(1 sessions, 2 impressions, 1 clicks, 1 queries, 2 documents)
    """
    if first_position not in (0, 1):
        raise DataError(f"first_position is the number of the first position, 0 or 1, not {first_position!r}.")
    given: dict[str, Choice] = dict(zip(
        USUAL_NAMES, (query, document, position, click, session, dwell, time, user), strict=True
    ))  # fmt: skip
    sources = list(source) if isinstance(source, list | tuple) else [source]
    if not sources:
        raise DataError("There is nothing to read: give a file, a frame, or a list of them.")
    if len(sources) == 1 and isinstance(sources[0], str | Path) and kind_of(sources[0], format) == "yandex":
        from toprank.clicks.events import read_yandex

        return read_yandex(sources[0])
    tables = [table for one in sources for table in opened(one, format)]
    if any(_is_events(table) for table in tables):
        from toprank.clicks.events import read_ubi

        return read_ubi(tables, click, first_position)
    return _Strips(tables, given, tuple(carry), first_position).log()


def _is_events(table: Rows) -> bool:
    names = table.schema.names
    if "_source" in names:
        names = [one.name for one in table.schema.field("_source").type]
    return "action_name" in names


class _Strips:
    """The columns of tables that are one log, collected a strip of rows at a time."""

    def __init__(
        self, tables: Sequence[Rows], given: Mapping[str, Choice], carry: tuple[str, ...], first_position: int
    ) -> None:
        self._tables, self._first = tables, first_position
        names = refuse_repeated(list(tables[0].schema.names))
        for name in (*carry, *(choice for choice in given.values() if choice)):
            if name not in names:
                raise UnknownNameError("column", name, names)
        with tables[0].about():
            self._roles = _roles(names, given, carry)
        self._lists = _is_list(tables[0].schema.field(self._roles["document"]).type)
        if "position" not in self._roles and not self._lists:
            raise _no_column("position", names)
        kept = [name for name in names if name.lower() in _OURS and name not in self._roles.values()]
        self._columns = {name: name for name in (*kept, *carry)}
        self._columns |= {role: name for role, name in self._roles.items() if role in ("dwell", "time", "user")}
        self._pieces: dict[str, list[Any]] = {role: [] for role in (*_IDS, "position", "click", *self._columns)}
        self._n = 0

    def log(self) -> ClickLog:
        """All rows as a log."""
        used = list(dict.fromkeys([*self._roles.values(), *self._columns.values()]))
        texts = [self._roles[role] for role in (*_IDS, "user") if role in self._roles]
        for table in self._tables:
            absent = [name for name in used if name not in table.schema.names]
            if absent:
                raise DataError(f"{table.path}: there is no column '{absent[0]}', which the first table has.")
            row = 0
            with table.about():
                for batch in table.batches(used, texts):
                    self._take(batch, row, table.from_text)
                    row += batch.num_rows
        with self._tables[0].about():
            return self._assembled()

    def _take(self, batch: Any, first_row: int, from_text: bool) -> None:
        import pyarrow as pa

        columns = {role: batch.column(name) for role, name in {**self._columns, **self._roles}.items()}
        places: IntArray | None = None
        if self._lists:
            columns, row, places = _exploded(columns, first_row)
            columns = {"session": pa.array(self._n + row), **columns}
        self._n += batch.num_rows
        for role in _IDS:
            if role in columns:
                refuse_nulls(columns[role], self._roles.get(role, role), role, first_row)
                self._pieces[role].append(_coded(_ids(columns[role], self._roles.get(role, role), role)))
        if "position" in columns:
            refuse_nulls(columns["position"], self._roles["position"], "position", first_row)
            told = _numbers(columns["position"], self._roles["position"])
            places = positions_of(told + (1 - self._first), first_row)
        assert places is not None
        self._pieces["position"].append(places.astype(np.int32))
        refuse_nulls(columns["click"], self._roles["click"], "click", first_row)
        click = columns["click"]
        if from_text:
            click = _truth(click)
        self._pieces["click"].append(clicks_of(_numbers(click, self._roles["click"]), first_row))
        for name in self._columns:
            values = columns[name]
            is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
            self._pieces[name].append(_coded(values.cast(pa.string())) if is_text else values)

    def _assembled(self) -> ClickLog:
        import pyarrow as pa

        from_text = any(table.from_text for table in self._tables)
        if not self._pieces["click"]:
            raise DataError("The table has no rows.")
        ids: dict[str, Numbered] = {}
        for role in _IDS:
            if self._pieces[role]:
                written = from_text and role != "document"  # whose ids are text in data, too
                ids[role] = numbered(pa.chunked_array(_alike(self._pieces[role])), from_text=written)
                self._pieces[role] = []
        columns = {name: _values(_one(name, self._pieces.pop(name)), from_text) for name in self._columns}
        places = np.concatenate(self._pieces["position"]).astype(np.int64)
        clicks = np.concatenate(self._pieces["click"])
        return assembled(ids["query"], ids["document"], ids.get("session"), places, clicks, columns)


def _roles(names: Sequence[str], given: Mapping[str, Choice], carry: Sequence[str]) -> dict[str, str]:
    """Which column plays which role."""
    taken = {choice for choice in given.values() if choice} | set(carry)
    roles: dict[str, str] = {}
    for role, choice in given.items():
        if choice is not None:
            if choice:
                roles[role] = choice
            elif role in _NEEDED:
                raise DataError(f"A click log needs a column for the {role}.")
            continue
        free = [name for name in names if name not in taken]
        found = [name for name in free if name.lower() in USUAL_NAMES[role]]
        if len(found) > 1:
            several = ", ".join(f"'{name}'" for name in found)
            raise DataError(
                f"Several columns could be the {role}: {several}. Say which with",
                remedy=Remedy(f"{role}='...'.", f"--{role} COLUMN."),
            )
        if found:
            roles[role] = found[0]
        elif role in _NEEDED:
            raise _no_column(role, names)
    twice = [name for name in roles.values() if list(roles.values()).count(name) > 1]
    if twice:
        raise DataError(f"Column '{twice[0]}' is asked to play two roles; give each role a column of its own.")
    return roles


def _no_column(role: str, names: Sequence[str]) -> DataError:
    shown = ", ".join(names[:30]) + (f" … and {len(names) - 30} more" if len(names) > 30 else "")
    return DataError(
        f"No column looks like the {role}. The columns are: {shown}. Give",
        remedy=Remedy(f"{role}='...'.", f"--{role} COLUMN."),
    )


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _exploded(columns: dict[str, Any], first_row: int) -> tuple[dict[str, Any], IntArray, IntArray]:
    """Rows that hold lists as impressions; and of each its row and its rank."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = pc.list_value_length(columns["document"]).fill_null(0)
    lengths = np.asarray(sizes.to_numpy(zero_copy_only=False), dtype=np.int64)
    parent = np.repeat(np.arange(len(lengths)), lengths)
    rank = np.arange(len(parent)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    if not _is_list(columns["click"].type):
        raise DataError("Documents come in lists, and clicks do not: give a list of clicks for each list of documents.")
    found = {}
    for role, values in columns.items():
        if not _is_list(values.type):
            found[role] = values.take(pa.array(parent))
            continue
        other = pc.list_value_length(values).fill_null(0)
        differs = pc.index(pc.not_equal(other, sizes), True).as_py()
        if differs >= 0:
            raise DataError(
                f"Row {first_row + differs} has {lengths[differs]} documents, but {other[differs]} values of {role}."
            )
        found[role] = pc.list_flatten(values)
    return found, parent, rank


def _ids(values: Any, name: str, role: str) -> Any:
    """Ids as text or whole numbers; pandas makes floats of whole numbers where a cell is empty."""
    import pyarrow as pa

    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if pa.types.is_floating(kind):
        try:
            return values.cast(pa.int64())
        except pa.ArrowInvalid:
            raise DataError(f"Column '{name}' ({role}) must hold whole numbers or text, not fractions.") from None
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        return values.cast(pa.string())
    if pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if not pa.types.is_string(kind):
        raise DataError(f"Column '{name}' ({role}) must hold whole numbers or text, not {kind}.")
    return values


def _coded(values: Any) -> Any:
    import pyarrow as pa

    return values if pa.types.is_dictionary(values.type) else values.dictionary_encode()


def _alike(pieces: list[Any]) -> list[Any]:
    """Pieces of one type, so that they are one column; files may differ in how they number categories."""
    import pyarrow as pa

    kinds = {piece.type.value_type for piece in pieces}
    inside = kinds.pop() if len(kinds) == 1 else pa.string()
    wanted = pa.dictionary(pa.int32(), inside)
    return [piece if piece.type == wanted else piece.cast(inside).dictionary_encode() for piece in pieces]


def _one(name: str, pieces: list[Any]) -> Any:
    """Pieces of a column that is kept, as one; files of one log may hold whole numbers here and others there."""
    import pyarrow as pa

    if pa.types.is_dictionary(pieces[0].type):
        pieces = _alike([_coded(piece) for piece in pieces])
    try:
        return pa.chunked_array([piece.cast(pieces[0].type) for piece in pieces])
    except pa.ArrowInvalid as problem:
        raise DataError(f"Column '{name}' does not hold the same in all files: {problem}.") from None


def _numbers(values: Any, name: str) -> Array:
    import pyarrow as pa

    if pa.types.is_string(values.type):
        try:
            values = values.cast(pa.float64())
        except pa.ArrowInvalid as problem:
            raise DataError(f"Column '{name}' must hold numbers: {problem}.") from None
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_boolean(values.type)):
        raise DataError(f"Column '{name}' must hold numbers, not {values.type}.")
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _truth(values: Any) -> Any:
    """Truth values in words as 0 and 1, where text is to hold clicks."""
    import pyarrow.compute as pc

    words = pc.utf8_lower(values)
    words = pc.if_else(pc.equal(words, "true"), "1", words)
    return pc.if_else(pc.equal(words, "false"), "0", words)


def _values(column: Any, from_text: bool) -> Array:
    """A column that is kept as it is; of text, every word once."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        if column.null_count and pa.types.is_integer(column.type):
            column = column.cast(pa.float64())
        return np.asarray(column.to_numpy())
    whole = column.unify_dictionaries()
    codes = np.concatenate([np.asarray(one.indices.fill_null(-1)) for one in whole.chunks])
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
    """Write a log as Parquet, Arrow or CSV by the suffix of `path`, whole or not at all; `read` gives the same log.

    >>> import tempfile
    >>> log = ClickLog.of(["a", "a"], ["x", "y"], [1, 2], [0, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(log, f"{folder}/log.parquet")
    ...     read(f"{folder}/log.parquet").clicks.tolist()
    [False, True]
    """
    kind = promised_format(path)
    if kind not in ("parquet", "arrow", "csv"):
        raise DataError(f"{path}: name it .parquet, .arrow or .csv (.csv.gz); the name tells how a log is written.")
    taken = {"session", "query", "document", "position", "click"} & set(log.columns)
    if taken:
        raise DataError(f"The log carries a column '{min(taken)}', which is what a column of the file is called.")
    batches = _batches(log)
    first = next(batches, None)
    if first is None:
        raise DataError("The log has no impressions; there is nothing to write.")
    write_batches(path, kind, first.schema, _chained(first, batches))


def _chained(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _batches(log: ClickLog) -> Iterator[Any]:
    import pyarrow as pa

    ids = np.arange(log.n_sessions) if log.session_ids is None else log.session_ids
    for start in range(0, log.n_impressions, _STRIP):
        rows = slice(start, start + _STRIP)
        pair = log.pair[rows]
        columns: dict[str, Array] = {"session": ids[log.session[rows]], "query": log.qids[log.pair_query[pair]]}
        columns |= {"document": log.document_ids[pair], "position": log.position[rows], "click": log.clicks[rows]}
        columns |= {name: values[rows] for name, values in log.columns.items()}
        yield pa.record_batch({name: pa.array(values) for name, values in columns.items()})
