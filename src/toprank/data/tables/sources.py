"""Uniform access to table files: their columns, and their rows as Arrow record batches.

A file is open only while its columns or rows are read, so a folder may contain any number of files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toprank.data.arrays import IN_DOUBLE
from toprank.data.bytesource import PathLike, delimiter_of, is_float, listed_paths, os_errors, promised_format
from toprank.data.frames.layout import Layout
from toprank.errors import DataError, FileError, FormatError, Remedy, ToprankError, became_shorter

_QUOTED = 2000  # characters of Arrow messages to inspect, since they quote whole values
_STRIP = 16384  # rows per batch, fewer for wide tables:
_STRIP_BYTES = 32 << 20
_CSV_BLOCKS = (1 << 20, 64 << 20)  # bytes of CSV text per block: default, and for longer rows


class TableSource(NamedTuple):
    """A file with its columns and, if known without reading it, its number of rows."""

    path: Path
    kind: str
    schema: Any
    n_rows: int | None

    def typed(self, texts: Collection[str]) -> Any:
        """Return the schema; in CSV, which has no types, columns in `texts` are text."""
        import pyarrow as pa

        if self.kind != "csv":
            return self.schema
        fields = [pa.field(field.name, pa.string()) if field.name in texts else field for field in self.schema]
        return pa.schema(fields, metadata=self.schema.metadata)

    def whole_schema(self) -> Any:
        """Return the schema with all columns; CSV columns are text."""
        return self.typed(self.schema.names)

    def whole_rows(self) -> Iterator[Any]:
        """Iterate over the unchanged rows with all columns."""
        import pyarrow as pa

        with ExitStack() as stack, _arrow_errors(self.path, self.kind):
            if self.kind == "parquet":
                yield from _parquet_file(self.path, stack).iter_batches(_STRIP)
            elif self.kind == "arrow":
                reader = _arrow_file(self.path, stack)
                yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
            else:
                yield from _csv_rows(self.path, dict.fromkeys(self.schema.names, pa.string()), threads=True)

    def batches(self, layout: Layout) -> Iterator[Any]:
        """Iterate over the rows in batches with the columns of a layout; errors name this file.

        Compressed batches of an Arrow file are decompressed as a whole, so memory depends on their size.
        """
        strip = max(1024, min(_STRIP, _STRIP_BYTES // max(1, len(layout.features) * layout.dtype.itemsize)))
        with ExitStack() as stack, _arrow_errors(self.path, self.kind):
            size = os.path.getsize(self.path)
            for whole in _FORMATS[self.kind].batches(self, layout, strip, stack):
                whole.validate(full=True)  # damaged offsets would cause reads outside of the memory of the batch
                for first in range(0, max(1, whole.num_rows), strip):
                    if os.path.getsize(self.path) < size:  # accessing truncated parts of the map would kill the process
                        raise became_shorter(self.path)
                    yield whole.slice(first, strip)


def sources_of(paths: PathLike | Sequence[PathLike], format: str | None = None) -> list[TableSource]:
    """Return the files to read, with folders replaced by their Parquet files."""
    files = listed_paths([file for path in listed_paths(paths) for file in files_in(path)])  # rejects duplicates
    kind = format or promised_format(files[0])
    if kind not in _FORMATS:
        instruction = f"give {{format}} as one of {', '.join(_FORMATS)}."
        remedy = Remedy(instruction, "name it .parquet, .csv … or use toprank convert {format}.", format=...)
        raise DataError(f"The format of {files[0]} is not clear from its name;", remedy=remedy)
    return [_source(file, kind) for file in files]


def _source(path: Path, kind: str) -> TableSource:
    with ExitStack() as stack, _arrow_errors(path, kind):
        schema, n_rows = _FORMATS[kind].described(path, stack)
        schema.names  # noqa: B018  decodes the names, which may not be UTF-8
        return TableSource(path, kind, schema, n_rows)


def files_in(path: Path) -> list[Path]:
    """Return a file itself, or the Parquet files of a folder, including those in subfolders named *.parquet."""
    with os_errors(path, "read"):
        if not path.is_dir():
            return [path]
        inside = sorted(
            (entry for entry in path.iterdir() if entry.suffix.lower() in (".parquet", ".pq")), key=by_number
        )
    visible = [entry for entry in inside if not entry.name.startswith((".", "_"))]
    if not visible:
        raise FileError(f"{path} contains no Parquet files (*.parquet) and is not a stored copy; give a list of files.")
    return [file for entry in visible for file in files_in(entry)]


def by_number(path: Path) -> tuple[Any, ...]:
    """Return a key for natural sorting of names: part.2 before part.10, as Dask and Spark write them.

    >>> sorted([Path("part.10"), Path("part.2"), Path("part.02")], key=by_number)
    [PosixPath('part.02'), PosixPath('part.2'), PosixPath('part.10')]
    """
    pieces = re.split(r"([0-9]+)", path.name)  # alternating texts and numbers
    return tuple(int(piece) if place % 2 else piece for place, piece in enumerate(pieces)), path.name


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Add the file name to errors without one."""
    try:
        yield
    except (FormatError, FileError):
        raise
    except DataError as problem:
        raise FormatError(problem.args[0], path=path) from None


@contextmanager
def _arrow_errors(path: Path, kind: str) -> Iterator[None]:
    """Convert Arrow errors about the content of a file to a `FormatError`, and system errors to a `FileError`."""
    import pyarrow as pa

    try:
        yield
    except ToprankError:
        raise
    except OSError as problem:
        if problem.errno:
            raise FileError(f"{path} cannot be read: {os.strerror(problem.errno)}.") from None
        raise FormatError(_complaint(kind, problem), path=path) from None
    except (pa.ArrowException, UnicodeDecodeError) as problem:
        row = re.search(r"Row #(\d+)", str(problem)[:_QUOTED])
        raise FormatError(_complaint(kind, problem), path=path, line=int(row[1]) if row else None) from None


def _complaint(kind: str, problem: Exception) -> str:
    """Return the message of Arrow as a sentence of limited length."""
    text = " ".join(str(problem)[:_QUOTED].split()) or type(problem).__name__
    text = re.sub(r"^In CSV column #(\d+): ", lambda match: f"in column {int(match[1]) + 1}, ", text)
    text = re.sub(r"Row #\d+: |CSV (parse|conversion) error:? ?", "", text)
    return f"This is not a readable {_FORMATS[kind].title}: {text[:300].rstrip('.')}."


def _parquet_file(path: Path, stack: ExitStack) -> Any:
    from pyarrow import parquet

    return stack.enter_context(parquet.ParquetFile(path, memory_map=True))


def _describe_parquet(path: Path, stack: ExitStack) -> tuple[Any, int | None]:
    file = _parquet_file(path, stack)
    return file.schema_arrow, file.metadata.num_rows


def _parquet_batches(source: TableSource, layout: Layout, strip: int, stack: ExitStack) -> Iterator[Any]:
    yield from _parquet_file(source.path, stack).iter_batches(strip, columns=layout.columns)


def _arrow_file(path: Path, stack: ExitStack, fields: list[int] | None = None) -> Any:
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(included_fields=fields)
    return stack.enter_context(pa.ipc.open_file(stack.enter_context(pa.memory_map(str(path))), options=options))


def _describe_arrow(path: Path, stack: ExitStack) -> tuple[Any, int | None]:
    schema = _arrow_file(path, stack).schema
    reader = _arrow_file(path, stack, [0] if len(schema) else None)  # decompress one column to count the rows
    return schema, sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))


def _arrow_batches(source: TableSource, layout: Layout, strip: int, stack: ExitStack) -> Iterator[Any]:
    del strip  # uncompressed batches are slices of the mapped file, whatever their size
    fields = [source.schema.get_field_index(name) for name in layout.columns]
    reader = _arrow_file(source.path, stack, fields or [0])  # an empty list would mean all fields
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number).select(layout.columns)


def _describe_csv(path: Path, stack: ExitStack) -> tuple[Any, int | None]:
    """Return the columns, and None for the unknown number of rows."""
    import pyarrow as pa

    del stack
    for block in _CSV_BLOCKS:
        try:
            with _csv_reader(path, {}, block, threads=False) as reader:
                return _csv_schema(reader), None
        except pa.ArrowInvalid as problem:
            _refuse_unless_long(problem)
    raise _long_row(path, 0)


def _csv_batches(source: TableSource, layout: Layout, strip: int, stack: ExitStack) -> Iterator[Any]:
    """Yield the rows with the columns of a layout."""
    import pyarrow as pa

    del strip, stack
    types = {name: pa.from_numpy_dtype(layout.dtype) for name in layout.features}
    for column in () if layout.encoding is None else layout.encoding.columns:
        if column.kind != "number":
            known = {"whole": pa.float64(), "duration": pa.float64(), "text": pa.string()}
            types[column.name] = known.get(column.kind) or source.schema.field(column.name).type
    types |= {name: kind for name in layout.features if (kind := source.schema.field(name).type) == pa.bool_()}
    types |= dict.fromkeys(layout.roles.values(), pa.float64())
    texts = [name for role, name in layout.roles.items() if role in ("qid", "document_id")]
    types |= dict.fromkeys(texts, pa.string())
    types |= {name: pa.int64() for role, name in layout.roles.items() if role == "position"}
    types |= dict.fromkeys(layout.metadata, pa.string())
    row, finite = 0, True
    try:
        for batch in _csv_rows(source.path, types, threads=True):
            _refuse_empty_ids(source.path, batch, texts, row)
            if finite and _holds_infinities(batch):
                finite = False
                _refuse_overflow(source.path, types)
            row += batch.num_rows
            yield batch
    except pa.ArrowInvalid:
        yield from _csv_rows(source.path, types, threads=False)  # only the serial reader reports the line number
        raise


def _csv_rows(path: Path, types: dict[str, Any], threads: bool) -> Iterator[Any]:
    """Iterate over batches of a CSV file; if a row does not fit into a block, continue with larger blocks."""
    import pyarrow as pa

    done = 0
    for block in _CSV_BLOCKS:
        known = done
        try:
            for batch in _csv_reader(path, types, block, threads):
                fresh = batch.slice(min(known, batch.num_rows))
                known -= batch.num_rows - fresh.num_rows
                done += fresh.num_rows
                if fresh.num_rows:
                    yield fresh
            return
        except pa.ArrowInvalid as problem:
            _refuse_unless_long(problem)
    raise _long_row(path, done)


def _refuse_unless_long(problem: Exception) -> None:
    """Raise the error unless it is Arrow's error for a row that does not fit into a block."""
    if "straddl" not in str(problem):
        raise problem


def _long_row(path: Path, done: int) -> FormatError:
    return FormatError(
        f"A row at or after line {done + 2} has more than {_CSV_BLOCKS[-1] >> 20} MiB of text. Look for a missing "
        "closing quotation mark, or remove the long column from the file.",
        path=path,
    )


def _refuse_empty_ids(path: Path, batch: Any, texts: Sequence[str], row: int) -> None:
    """Raise an error for an empty id cell; the batch starts at `row` of the file."""
    import pyarrow.compute as pc

    for name in texts:
        empty = pc.index(batch.column(name), "").as_py()
        if empty >= 0:
            raise FormatError(f"Column '{name}' is empty; give every row an id.", path=path, line=row + empty + 2)


def _holds_infinities(batch: Any) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    floats = (column for column in batch.columns if pa.types.is_floating(column.type))
    return any(pc.any(pc.is_inf(column)).as_py() for column in floats)


def _refuse_overflow(path: Path, types: dict[str, Any]) -> None:
    """Raise an error for a number that overflows its type; a literal `inf` is allowed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    floats = {name: kind for name, kind in types.items() if pa.types.is_floating(kind)}
    row = 0
    for batch in _csv_rows(path, dict.fromkeys(floats, pa.string()), threads=False):
        for name, kind in floats.items():
            large = pc.match_substring_regex(batch.column(name), "[eE][+]?[0-9]{2}|[0-9]{38}")
            for place in np.flatnonzero(large.to_numpy(zero_copy_only=False)).tolist():
                text = batch.column(name)[place].as_py()
                if is_float(text) and _overflows(text, kind):
                    single = kind == pa.float32()
                    size, remedy = ("float32;", IN_DOUBLE) if single else ("float64.", "")
                    problem = f"The value {text[:24]!r} in column '{name}' is too large for {size}"
                    raise FormatError(problem, path=path, line=row + place + 2, remedy=remedy)
        row += batch.num_rows


def _overflows(text: str, kind: Any) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isinf(kind.to_pandas_dtype()(float(text))))


def _csv_schema(reader: Any) -> Any:
    """Infer column names and types from the first megabyte.

    A column that starts with a number and contains mostly numbers is numeric: later text is an error with its line.
    """
    import pyarrow as pa

    schema = reader.schema
    for batch in reader:
        for place, field in enumerate(schema):
            if pa.types.is_string(field.type) and _are_numbers(batch.column(place)):
                schema = schema.set(place, pa.field(field.name, pa.float64()))
        break
    return schema


def _are_numbers(column: Any) -> bool:
    if not len(column) or not is_float(column[0].as_py()):
        return False
    return 2 * sum(is_float(text) for text in column.to_pylist()) >= len(column)


def _compression_of(path: Path) -> str | None:
    """Return the compression of a file, detected from its first bytes."""
    with path.open("rb") as stream:
        start = stream.read(4)
    return "gzip" if start.startswith(b"\x1f\x8b") else "zstd" if start == b"\x28\xb5\x2f\xfd" else None


def _csv_reader(path: Path, types: dict[str, Any], block: int, threads: bool) -> Any:
    """Return a streaming CSV reader, with one batch per block of text of `block` bytes."""
    import pyarrow as pa
    from pyarrow import csv

    return csv.open_csv(
        pa.input_stream(str(path), compression=_compression_of(path)),
        read_options=csv.ReadOptions(use_threads=threads, block_size=block),
        parse_options=csv.ParseOptions(delimiter=delimiter_of(path), newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=types, include_columns=list(types)),
    )


class _Format(NamedTuple):
    """Functions that describe (columns, number of rows) and read files of a format, and its name in messages."""

    described: Callable[[Path, ExitStack], tuple[Any, int | None]]
    batches: Callable[[TableSource, Layout, int, ExitStack], Iterator[Any]]
    title: str


_FORMATS = {
    "parquet": _Format(_describe_parquet, _parquet_batches, "Parquet file"),
    "arrow": _Format(_describe_arrow, _arrow_batches, "Arrow IPC (Feather) file"),
    "csv": _Format(_describe_csv, _csv_batches, "CSV table"),
}
