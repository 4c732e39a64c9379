"""Sources of click logs: files of tables, JSON lines and frames, read as Arrow record batches."""

from __future__ import annotations

import json
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import json as reader

from toprank.clicks.log import TRUNCATED_LINES
from toprank.data.bytesource import (
    MAX_LINE_BYTES,
    PathLike,
    head_of,
    open_bytes,
    os_errors,
    plain_name,
    promised_format,
)
from toprank.data.frames.arrow import table_of
from toprank.data.frames.layout import Layout, unreadable
from toprank.data.roles import Roles
from toprank.data.tables.sources import TableSource, about, by_number, sources_of
from toprank.errors import DataError, FormatError, UnknownNameError

FORMATS = ("parquet", "arrow", "csv", "jsonl", "yandex")
_BLOCK_BYTES = 8 << 20  # bytes of text per block
_BLOCKS_AHEAD = 2  # blocks that are read ahead
_MAX_JSON_LINE_BYTES = 8 << 20  # parsed objects need about 20 times as much memory
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_SERVED_PREFIX = b'{"application":"toprank",'  # prefix of every line in the log of a service
_FEATURES = b'"features":{'
_OF_FEATURES = "query_attributes.features."
_UBI_RESPONSE = {"query_response_id", "query_response_hit_ids"}
_EVERY_LINE = "Every line must be an object, and each field must have one type."


class LogRows(NamedTuple):
    """A table: its schema and its rows in batches."""

    schema: Any
    # Yields rows with these columns; the second list names columns to read as text if the format has no types.
    batches: Callable[[Sequence[str], Sequence[str]], Iterator[Any]]
    path: Path | None
    from_text: bool
    inside: bool = False  # whether nested columns can be read, by paths with dots
    served: bool = False  # whether a service wrote it, with known attributes of lists
    lost: Counter[str] | None = None  # counts of unreadable records, updated while reading

    def about(self) -> Any:
        """Add the name of the file to errors within this block."""
        return nullcontext() if self.path is None else about(self.path)


def opened(source: Any, format: str | None = None) -> list[LogRows]:
    """Return the tables of a file, a folder of files, or a frame."""
    if not isinstance(source, str | os.PathLike):
        return [_of_frame(source)]
    path = Path(source)
    if path.is_dir() and (inside := _files_in(path)):
        return [table for file in inside for table in opened(file, format)]
    kind = kind_of(path, format)
    if kind == "yandex":
        raise FormatError(("A log in Yandex' format can only be combined with others in that format."), path=path)
    return [_of_json(path)] if kind == "jsonl" else [_of_source(source) for source in sources_of(path, kind)]


def _files_in(folder: Path) -> list[Path]:
    """Return the log files in a folder, in natural order; none if it holds only Parquet files."""
    with os_errors(folder, "read"):
        files = sorted((file for file in folder.iterdir() if not file.name.startswith((".", "_"))), key=by_number)
        files = [file for file in files if not _is_begun(file)]
    if not files:
        raise FormatError("The folder is empty; nothing has been logged yet.", path=folder)
    kinds = {file: _by_name(file) for file in files}
    return [file for file in files if kinds[file]] if set(kinds.values()) - {None, "parquet"} else []


def _is_begun(path: Path) -> bool:
    """Return whether a file is empty because a service was killed before it wrote the first line."""
    return (
        path.suffix == ".jsonl"
        and path.stat().st_size < len(_SERVED_PREFIX)
        and _SERVED_PREFIX.startswith(path.read_bytes())
    )


def _by_name(path: Path) -> str | None:
    """Return the format of a log by its file name."""
    promised = "jsonl" if plain_name(path).suffix.lower() in _JSON_SUFFIXES else promised_format(path)
    return promised if promised in FORMATS else None


def kind_of(path: PathLike, format: str | None = None) -> str:
    """Return the format of a log: as given, or detected by content or name."""
    if format is not None:
        if format not in FORMATS:
            raise UnknownNameError("format of click logs", format, FORMATS)
        return format
    if os.path.isdir(path):
        return "parquet"
    head = head_of(path)
    for start, kind in ((b"PAR1", "parquet"), (b"ARROW1", "arrow")):
        if head.startswith(start):
            return kind
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FormatError("The file is UTF-16; convert it to UTF-8.", path=path)
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0]
    if first.startswith(b"{"):
        return "jsonl"
    if first.startswith(b"["):
        raise FormatError("The file is a JSON list; write JSON lines instead, with one object per line.", path=path)
    words = first.split(b"\t")
    if len(words) >= 4 and words[2] in (b"Q", b"C") and words[1].isdigit():
        return "yandex"
    from toprank.data.letor.reading import looks_like_letor

    if looks_like_letor(head):
        raise FormatError(
            "This is LETOR text, the features and labels of documents. A log of clicks has a row for each document "
            "that was shown.",
            path=path,
        )
    return _by_name(Path(path)) or "csv"


def _of_frame(frame: Any) -> LogRows:
    try:
        table = pa.table(frame) if isinstance(frame, dict) else table_of(frame)
    except (pa.ArrowException, TypeError, ValueError) as problem:
        if isinstance(problem, DataError):
            raise
        raise DataError(f"The columns cannot be read: {problem}.") from None

    def batches(columns: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        del texts
        chosen = table.select(list(columns))
        for field in chosen.schema:
            if field.type == unreadable():
                raise DataError(
                    f"Column '{field.name}' holds values of several kinds; convert all to text, or all to numbers."
                )
        yield from chosen.to_batches(max_chunksize=1 << 18)

    return LogRows(table.schema, batches, None, False)


def _of_source(source: TableSource) -> LogRows:
    def batches(columns: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        # Metadata columns of CSV files are text, whatever their first rows contain.
        del texts
        layout = Layout(Roles(metadata=tuple(columns)), (), np.dtype(np.float64))
        yield from _widened(source.batches(layout), 1 << 18)

    return LogRows(source.schema, batches, source.path, source.kind == "csv")


def _widened(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """Yield the same rows in larger batches, so that repeated ids are stored once."""
    kept: list[Any] = []
    count = 0
    for batch in batches:
        kept.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield from pa.Table.from_batches(kept).combine_chunks().to_batches()
            kept, count = [], 0
    if kept:
        yield from pa.Table.from_batches(kept).combine_chunks().to_batches()


# ---- JSON lines ----


def _of_json(path: Path) -> LogRows:
    served, lost = head_of(path).startswith(_SERVED_PREFIX), Counter[str]()
    known: dict[str, Any] = {}
    for line, block in _json_blocks(path, served):
        content = bytes(block)
        if served:  # types are known; names of features are in every line with features
            line, content = _line_at(content, max(content.find(_FEATURES), 0), line)
        for number, text in enumerate(content.split(b"\n") if content.strip() else (), line):
            _learn(known, _object(text, path, number))
        if known:
            break
    if served:
        known = _served_types(known)
    if not known:
        raise FormatError("The file is empty.", path=path)
    learned = pa.schema(_fields(known))

    def batches(columns: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        wanted: dict[str, Any] = {}
        for name in columns:
            within, (*outer, last) = wanted, [name] if name in known else name.split(".")
            for step in outer:
                within = within.setdefault(step, {})
            unseen: Any = [float] if name.startswith(_OF_FEATURES) else str if name in texts else float
            within[last] = _inside(known, name) or unseen
        schema = pa.schema(_fields(wanted))
        tables = _in_turn(
            lambda block: _json_table(block[1], schema, path, block[0]).combine_chunks(),
            _json_blocks(path, served, lost),
        )
        for table in tables:
            yield from table.to_batches()

    return LogRows(learned, batches, path, False, inside=True, served=served, lost=lost)


def _line_at(text: bytes, place: int, first: int) -> tuple[int, bytes]:
    """Return the line at an offset and its number, given the number of the first line."""
    start = text.rfind(b"\n", 0, place) + 1
    return first + text.count(b"\n", 0, start), text[start:].partition(b"\n")[0]


def _in_turn(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """Yield the results of a function for each item in order, and compute the next few in other threads."""
    with ThreadPoolExecutor(_BLOCKS_AHEAD, thread_name_prefix="toprank-reader") as pool:
        waiting: deque[Future[Any]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > _BLOCKS_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _served_types(known: dict[str, Any]) -> dict[str, Any]:
    """Return the types of all fields that a service can write."""
    if "action_name" in known:
        attributes = {"object": {"object_id": str}, "value": float, "event_id": str}
        return {"application": str, "action_name": str, "query_id": str, "timestamp": int,
                "event_attributes": attributes}  # fmt: skip
    features = (known.get("query_attributes") or {}).get("features") or {}
    attributes = {
        "model": str, "version": str, "scores": [float], "teams": [str], "explored": bool, "propensity": float,
        "arm": str, "share": float, "device": str, "surface": str, "features": {name: [float] for name in features},
    }  # fmt: skip
    return {"application": str, "query_id": str, "timestamp": int, "user_query": str, "client_id": str,
            "query_response_hit_ids": [str], "query_attributes": attributes}  # fmt: skip


def _json_blocks(path: Path, served: bool = False, lost: Counter[str] | None = None) -> Iterator[tuple[int, Any]]:
    """Yield blocks of whole lines, and the number of the first line of each.

    The last line of a service's log may be truncated, which is counted in `lost`.
    """
    for line, block in line_blocks(path, _MAX_JSON_LINE_BYTES):
        if served and len(block) and block[-1] != ord("\n"):
            ends = np.flatnonzero(block == ord("\n"))
            block = block[: ends[-1] + 1 if len(ends) else 0]
            if lost is not None:
                lost[TRUNCATED_LINES] += 1
            if not len(block):
                return
        yield line, block


def line_blocks(path: PathLike, longest: int = MAX_LINE_BYTES) -> Iterator[tuple[int, Any]]:
    """Yield blocks of whole lines of a file, and the number of the first line of each."""
    text, line = open_bytes(path), 1
    for first, last in text.pieces(_BLOCK_BYTES, longest):
        block = text.array(first, last)
        yield line, block
        line += int(np.count_nonzero(block == ord("\n")))


def _object(text: bytes, path: Path, line: int) -> dict[str, Any]:
    """Parse the object of a line; return None for a blank line."""
    try:
        value = json.loads(text) if text.strip() else {}
    except UnicodeDecodeError:
        raise FormatError("The text is not UTF-8.", path=path, line=line) from None
    except (ValueError, RecursionError) as problem:
        fault, column = getattr(problem, "msg", problem), getattr(problem, "colno", None)
        raise FormatError(f"This is not JSON: {fault}. {_EVERY_LINE}", path=path, line=line, column=column) from None
    if not isinstance(value, dict):
        raise FormatError(f"This line is not an object. {_EVERY_LINE}", path=path, line=line)
    return value


def _learn(known: dict[str, Any], seen: dict[str, Any]) -> None:
    """Infer the types of fields: a Python type, a dictionary of fields, or a list with the type of its elements.

    If the values of a field differ in type, the first counts; integers among other numbers become floats.
    """
    for name, value in seen.items():
        before = known.get(name)
        if isinstance(value, dict) and isinstance(before, dict | None):
            known[name] = {} if before is None else before
            _learn(known[name], value)
        elif isinstance(value, list) and isinstance(before, list | None):
            inner = {"": before[0]} if before else {}
            for member in value:
                _learn(inner, {"": member})
            known[name] = [inner.get("")]
        elif value is not None and (before is None or (before is int and isinstance(value, float))):
            known[name] = type(value)
        else:
            known.setdefault(name, None)


def _fields(known: dict[str, Any]) -> list[Any]:
    plain = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string(), None: pa.string()}

    def kind(of: Any) -> Any:
        if isinstance(of, dict):
            return pa.struct(_fields(of))
        return pa.list_(kind(of[0])) if isinstance(of, list) else plain[of]

    text = (
        name for name in known if not any("\ud800" <= letter <= "\udfff" for letter in name)
    )  # without lone surrogates
    return [pa.field(name, kind(known[name])) for name in text]


def _inside(known: Any, name: str) -> Any:
    """Return the inferred type of a field, or of a nested one (a path with dots); None if it was not seen."""
    for step in [name] if name in known else name.split("."):
        known = known.get(step) if isinstance(known, dict) else None
    return known


def _json_table(block: Any, schema: Any, path: Path, line: int) -> Any:
    """Parse lines into a table with the fields of a schema."""
    options = reader.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    whole = reader.ReadOptions(block_size=len(block) + 1)
    try:
        table = reader.read_json(pa.BufferReader(pa.py_buffer(block)), whole, options)
        table.validate(full=True)
        return table
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        lines = bytes(block).split(b"\n")
        for number, text in enumerate(lines, line):
            _object(text, path, number)  # report invalid JSON with its line
        fault = str(problem).removeprefix("JSON parse error: ").partition("\n")[0]
        fault = re.sub(r"Column\(/?(.*?)\)", lambda match: f"field '{match[1].replace('/', '.')}'", fault)
        row = re.search(r" in row (\d+)", fault)
        filled = [number for number, text in enumerate(lines, line) if text.strip()]
        where = filled[int(row[1])] if row and int(row[1]) < len(filled) else line
        fault = (fault[: row.start()] if row else fault).rstrip(".")
        raise FormatError(
            f"This line does not match the fields of the first lines: {fault}. {_EVERY_LINE}", path=path, line=where
        ) from None


# ---- OpenSearch's User Behavior Insights ----


def is_ubi(table: LogRows) -> bool:
    """Return whether a table is ``ubi_events`` or ``ubi_queries``."""
    names = set(field_names(table))
    return are_events(table) or ({"query_id", "user_query"} <= names and bool(names & _UBI_RESPONSE))


def are_events(table: LogRows) -> bool:
    """Return whether a table is ``ubi_events``."""
    return {"query_id", "action_name"} <= set(field_names(table))


def field_names(table: LogRows) -> list[str]:
    """Return the column names of a table; documents wrapped by an engine are unwrapped."""
    inside = table.schema.field("_source").type if "_source" in table.schema.names else pa.null()
    return [field.name for field in inside] if pa.types.is_struct(inside) else list(table.schema.names)
