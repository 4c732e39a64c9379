"""Where the rows of a click log come from: files of tables, JSON lines, frames; all as Arrow record batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toprank.data.bytesource import ByteSource, PathLike, head_of, open_bytes, promised_format
from toprank.data.frames.conversion import table_of
from toprank.data.frames.layout import Layout
from toprank.data.tables.sources import Source, about, sources_of
from toprank.errors import DataError, FormatError, UnknownNameError

__all__ = ["FORMATS", "Rows", "opened"]

FORMATS = ("parquet", "arrow", "csv", "jsonl", "yandex")
_JSON_BLOCK = 8 << 20  # bytes of text at a time
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")


class Rows(NamedTuple):
    """A table: the types of its columns, and its rows a strip at a time."""

    schema: Any
    batches: Callable[[Sequence[str], Sequence[str]], Iterator[Any]]
    """Rows with these columns, those of the second list as text where the format has no types."""
    path: Path | None
    from_text: bool
    inside: bool = False
    """Whether columns may be asked for that lie inside of others, by paths with dots."""

    def about(self) -> Any:
        """Errors within this block name the file."""
        return nullcontext() if self.path is None else about(self.path)


def opened(source: Any, format: str | None = None) -> list[Rows]:
    """The tables of a file, a folder of Parquet files, or a frame."""
    if not isinstance(source, str | os.PathLike):
        return [_of_frame(source)]
    kind = kind_of(source, format)
    if kind == "jsonl":
        return [_of_json(Path(source))]
    return [_of_source(one) for one in sources_of(source, kind)]


def kind_of(path: PathLike, given: str | None = None) -> str:
    """The format of a file of clicks: as given, else by content, else by name."""
    if given is not None:
        if given not in FORMATS:
            raise UnknownNameError("format of click logs", given, FORMATS)
        return given
    if Path(path).is_dir():
        return "parquet"
    head = head_of(path)
    for start, kind in ((b"PAR1", "parquet"), (b"ARROW1", "arrow")):
        if head.startswith(start):
            return kind
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0]
    if first.startswith(b"{"):
        return "jsonl"
    if first.startswith(b"["):
        raise FormatError("This is one JSON list; write JSON lines, an object on each line.", path=path)
    words = first.split(b"\t")
    if len(words) >= 4 and words[2] in (b"Q", b"C") and words[1].isdigit():
        return "yandex"
    promised = promised_format(path)
    return promised if promised in ("parquet", "arrow") else "csv"


def _of_frame(frame: Any) -> Rows:
    import pyarrow as pa

    table = pa.table(dict(frame)) if isinstance(frame, dict) else table_of(frame)

    def batches(columns: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        del texts
        yield from table.select(list(columns)).to_batches(max_chunksize=1 << 18)

    return Rows(table.schema, batches, None, False)


def _of_source(source: Source) -> Rows:
    def batches(columns: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        # In CSV, columns that are carried along are text, whatever the first rows look like.
        del texts
        layout = Layout({}, (), np.dtype(np.float64), tuple(columns))
        yield from _widened(source.batches(layout), 1 << 18)

    return Rows(source.schema, batches, source.path, source.kind == "csv")


def _widened(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """The same rows in larger batches: ids that return are then kept once for many."""
    import pyarrow as pa

    kept: list[Any] = []
    for batch in batches:
        kept.append(batch)
        if sum(one.num_rows for one in kept) >= rows:
            yield from pa.Table.from_batches(kept).combine_chunks().to_batches()
            kept = []
    if kept:
        yield from pa.Table.from_batches(kept).combine_chunks().to_batches()


# ---- JSON lines ----


def _of_json(path: Path) -> Rows:
    schema = next(_json_batches(path, None), None)
    if schema is None:
        raise FormatError("The file is empty.", path=path)
    found = schema.schema

    def batches(columns: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa

        kinds = {name: _kind_in(found, name, name in texts) for name in columns}
        yield from _json_batches(path, pa.schema(_nested(kinds)))

    return Rows(found, batches, path, False, inside=True)


def _kind_in(schema: Any, name: str, text: bool) -> Any:
    """The type of a column, or of one inside of another (a path with dots), as the first lines have it."""
    import pyarrow as pa

    at: Any = schema
    for step in name.split("."):
        place = at.get_field_index(step) if isinstance(at, pa.Schema) or pa.types.is_struct(at) else -1
        if place < 0:
            return pa.string() if text else pa.float64()
        at = at.field(place).type
    if text and (pa.types.is_list(at) or pa.types.is_large_list(at)):
        return at if pa.types.is_integer(at.value_type) else pa.list_(pa.string())
    return pa.string() if text and not pa.types.is_integer(at) else at


def _nested(kinds: dict[str, Any]) -> list[Any]:
    """The fields of a schema, where names with dots stand for fields inside of others."""
    import pyarrow as pa

    within: dict[str, dict[str, Any]] = {}
    fields = []
    for name, kind in kinds.items():
        first, _, rest = name.partition(".")
        if rest:
            within.setdefault(first, {})[rest] = kind
        else:
            fields.append(pa.field(name, kind))
    return fields + [pa.field(name, pa.struct(_nested(inner))) for name, inner in within.items()]


def _json_batches(path: Path, schema: Any | None) -> Iterator[Any]:
    """The objects of the lines; without a schema with that of the first lines."""
    import pyarrow as pa
    from pyarrow import json

    text = open_bytes(path)
    at = text.start
    while at < text.size:
        end = min(text.newline(min(at + _JSON_BLOCK, text.size)) + 1, text.size)
        block = text.array(at, end)
        _check_utf8(block, text, at, path)
        options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore" if schema else "infer")
        try:
            table = json.read_json(
                pa.BufferReader(pa.py_buffer(block)), json.ReadOptions(block_size=len(block) + 1), options
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
            line, _ = text.line_and_column(at)
            said = str(problem).replace("JSON parse error: ", "").partition("\n")[0].rstrip(".")
            raise FormatError(
                f"The JSON lines from here on cannot be read as the first ones were: {said}. Every line is an object, "
                "and a field has one type in all of them.",
                path=path, line=line,
            ) from None  # fmt: skip
        at = end
        yield from table.combine_chunks().to_batches()


def _check_utf8(block: Any, text: ByteSource, at: int, path: Path) -> None:
    """Arrow's reader of JSON takes any bytes for text, and fails when somebody looks at it."""
    try:
        str(block, "utf-8")
    except UnicodeDecodeError as problem:
        line, _ = text.line_and_column(at + problem.start)
        raise FormatError("The text is not UTF-8.", path=path, line=line) from None


def column(batch: Any, name: str) -> Any | None:
    """A column of a batch by its name, or one inside of another by a path with dots; None where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if name in batch.schema.names:
        return batch.column(name)
    first, *rest = name.split(".")
    if first not in batch.schema.names:
        return None
    found, kind = batch.column(first), batch.schema.field(first).type
    for step in rest:
        if not pa.types.is_struct(kind) or kind.get_field_index(step) < 0:
            return None
        found, kind = pc.struct_field(found, step), kind.field(step).type
    return found


def refuse_nulls(values: Any, name: str, role: str, first_row: int) -> None:
    """Refuse an empty cell where every row needs a value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    empty = pc.is_null(values)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        empty = pc.or_(empty, pc.equal(values, "").fill_null(True))
    row = pc.index(empty, True).as_py()
    if row >= 0:
        raise DataError(
            f"Column '{name}' ({role}) is empty in row {first_row + row} (counted from 0); every impression needs one."
        )
