"""Files of tables: Parquet (one file or a folder of them), Arrow IPC / Feather, CSV; read in strips.

Memory stays near the size of the arrays: a strip of rows is converted, copied to its place, and forgotten.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.data.dataset import RankingData
from toprank.data.frames.gathering import gather, role_values
from toprank.data.frames.layout import USUAL_NAMES, Choice, Layout, layout_of
from toprank.data.oserrors import os_errors
from toprank.data.tables.writing import delimiter_of, table_format, write_table
from toprank.errors import DataError, FileError, FormatError, ToprankError

__all__ = ["read_table", "table_format", "write_table"]

PathLike = str | os.PathLike[str]
_STRIP = 16384


def read_table(
    paths: PathLike | Sequence[PathLike],
    *,
    format: str | None = None,
    label: Choice = None,
    qid: Choice = None,
    features: Sequence[str] | None = None,
    document_id: Choice = None,
    weight: Choice = None,
    query_weight: Choice = None,
    position: Choice = None,
    dtype: npt.DTypeLike | None = None,
    regroup: bool = False,
) -> RankingData:
    """Ranking data from Parquet, Arrow IPC (Feather) or CSV files, or from a folder of Parquet files.

    The columns' roles are found as in `toprank.data.frames.from_frame`. Several files are read as one table, in
    order, by the columns of the first. A CSV file needs a header line; it may be compressed (.gz, .zst); numbers are
    float64 unless `dtype` says otherwise; query ids that are all written as plain whole numbers are numbers.
    """
    given: dict[str, Choice] = {
        "label": label,
        "qid": qid,
        "document_id": document_id,
        "weight": weight,
        "query_weight": query_weight,
        "position": position,
    }
    with _streamed(paths, format, given, features, dtype) as (layout, batches, n_rows, kind):
        return gather(batches, layout, n_rows, regroup=regroup, ids_from_text=kind == "csv")


def query_ids(
    paths: PathLike | Sequence[PathLike], *, format: str | None = None, qid: Choice = None
) -> npt.NDArray[Any]:
    """The query id of each row, in the order of the files, however the rows are grouped."""
    given: dict[str, Choice] = {role: qid if role == "qid" else False for role in USUAL_NAMES}
    with _streamed(paths, format, given, [], None) as (layout, batches, _, _):
        name = layout.roles["qid"]
        return role_values("qid", name, [batch.column(name) for batch in batches])


@contextmanager
def _streamed(
    paths: PathLike | Sequence[PathLike],
    format: str | None,
    given: dict[str, Choice],
    features: Sequence[str] | None,
    dtype: npt.DTypeLike | None,
) -> Iterator[tuple[Layout, Iterator[Any], int, str]]:
    """The layout of files, their batches as one stream, how many rows to expect, and the format."""
    files = _files_of(paths)
    kind = format or table_format(files[0])
    if kind not in _READERS:
        raise DataError(f"{files[0]}: give format= as one of {', '.join(_READERS)}; the name does not tell.")
    with ExitStack() as stack, _about(files[0]):
        sources = [stack.enter_context(_opened(file, kind)) for file in files]
        layout = _common_layout(sources, given, features, dtype)
        batches = (batch for source in sources for batch in source.checked_batches(layout))
        yield layout, batches, sum(source.n_rows for source in sources), kind


def _files_of(paths: PathLike | Sequence[PathLike]) -> list[Path]:
    """The files to read: those given, or the Parquet files of a folder by name."""
    given = [Path(paths)] if isinstance(paths, str | os.PathLike) else [Path(path) for path in paths]
    if not given:
        raise DataError("There is no file to read: the list of paths is empty.")
    if len(given) > 1 or not given[0].is_dir():
        return given
    with os_errors(given[0], "read"):
        inside = sorted(path for path in given[0].iterdir() if path.suffix.lower() in (".parquet", ".pq"))
    visible = [path for path in inside if not path.name.startswith((".", "_"))]
    if not visible:
        raise FileError(f"{given[0]} holds no Parquet files (*.parquet); give the folder that does.")
    return visible


@contextmanager
def _about(path: Path) -> Iterator[None]:
    """Put the file's name in front of an error that does not know it."""
    try:
        yield
    except (FormatError, FileError):
        raise
    except DataError as problem:
        raise FormatError(str(problem), path=path) from None


@contextmanager
def _arrow_errors(path: Path, kind: str) -> Iterator[None]:
    """Turn Arrow's complaints about a file's content into a `FormatError`, the system's into a `FileError`."""
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
        row = re.search(r"Row #(\d+)", str(problem))
        raise FormatError(_complaint(kind, problem), path=path, line=int(row[1]) if row else None) from None


def _complaint(kind: str, problem: Exception) -> str:
    """Arrow's message as a sentence of bounded length."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    text = re.sub(r"^In CSV column #(\d+): ", lambda found: f"in column {int(found[1]) + 1}, ", text)
    text = re.sub(r"Row #\d+: |CSV (parse|conversion) error:? ?", "", text)
    return f"This is not a readable {_TITLES[kind]}: {text[:300].rstrip('.')}."


class _Source(NamedTuple):
    """An open file: its columns, a guess at its number of rows, and its batches for given columns."""

    path: Path
    kind: str
    schema: Any
    n_rows: int
    batches: Callable[[Layout], Iterator[Any]]

    def checked_batches(self, layout: Layout) -> Iterator[Any]:
        """The batches, with errors that name this file."""
        with _arrow_errors(self.path, self.kind):
            for batch in self.batches(layout):
                batch.validate(full=True)  # damaged offsets inside a batch would be read outside its memory
                yield batch


@contextmanager
def _opened(path: Path, kind: str) -> Iterator[_Source]:
    with ExitStack() as stack:
        with _arrow_errors(path, kind):
            source = _READERS[kind](path, stack)
            source.schema.names  # noqa: B018  decodes the names, which may not be UTF-8
        yield source


def _open_parquet(path: Path, stack: ExitStack) -> _Source:
    from pyarrow import parquet

    file = stack.enter_context(parquet.ParquetFile(path, memory_map=True))

    def batches(layout: Layout) -> Iterator[Any]:
        yield from file.iter_batches(_STRIP, columns=layout.columns)

    return _Source(path, "parquet", file.schema_arrow, file.metadata.num_rows, batches)


def _open_arrow(path: Path, stack: ExitStack) -> _Source:
    import pyarrow as pa

    reader = stack.enter_context(pa.ipc.open_file(stack.enter_context(pa.memory_map(str(path)))))

    def batches(layout: Layout) -> Iterator[Any]:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number).select(layout.columns)

    n_rows = sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
    return _Source(path, "arrow", reader.schema, n_rows, batches)


def _open_csv(path: Path, stack: ExitStack) -> _Source:
    import pyarrow as pa

    def batches(layout: Layout) -> Iterator[Any]:
        types = {name: pa.from_numpy_dtype(layout.dtype) for name in layout.features}
        types |= {name: kind for name in layout.features if (kind := schema.field(name).type) == pa.bool_()}
        types |= dict.fromkeys(layout.roles.values(), pa.float64())
        texts = [name for role, name in layout.roles.items() if role in ("qid", "document_id")]
        types |= dict.fromkeys(texts, pa.string())
        types |= {name: pa.int64() for role, name in layout.roles.items() if role == "position"}
        try:
            yield from _csv_reader(path, types, threads=True)
        except pa.ArrowInvalid:
            yield from _csv_reader(path, types, threads=False)  # only the slow reader knows the line
            raise

    schema = _csv_schema(stack.enter_context(_csv_reader(path, {}, threads=False)))
    return _Source(path, "csv", schema, 0, batches)


def _csv_schema(reader: Any) -> Any:
    """Column names and types as the first megabyte suggests them.

    A column that opens with a number is one of numbers: text that follows is an error with its line, not a text column.
    """
    import pyarrow as pa

    schema = reader.schema
    for batch in reader:
        for place, field in enumerate(schema):
            if pa.types.is_string(field.type) and _is_float(batch.column(place)[0].as_py()):
                schema = schema.set(place, pa.field(field.name, pa.float64()))
        break
    return schema


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _csv_reader(path: Path, types: dict[str, Any], threads: bool) -> Any:
    """A streaming CSV reader; a batch is what one megabyte of text holds."""
    import pyarrow as pa
    from pyarrow import csv

    return csv.open_csv(
        pa.input_stream(str(path), compression="detect"),
        read_options=csv.ReadOptions(use_threads=threads, block_size=1 << 20),
        parse_options=csv.ParseOptions(delimiter=delimiter_of(path), newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=types, include_columns=list(types)),
    )


_READERS = {"parquet": _open_parquet, "arrow": _open_arrow, "csv": _open_csv}
_TITLES = {"parquet": "Parquet file", "arrow": "Arrow IPC (Feather) file", "csv": "CSV table"}


def _common_layout(
    sources: list[_Source], given: dict[str, Choice], features: Sequence[str] | None, dtype: npt.DTypeLike | None
) -> Layout:
    """The first file's layout, with a precision that suits all files."""
    first = layout_of(sources[0].schema, given, features, dtype)
    roles: dict[str, Choice] = {role: first.roles.get(role, False) for role in USUAL_NAMES}
    precisions = []
    for source in sources:
        absent = [name for name in first.columns if name not in source.schema.names]
        if absent:
            raise FormatError(f"There is no column '{absent[0]}', which {sources[0].path} has.", path=source.path)
        with _about(source.path):
            precisions.append(layout_of(source.schema, roles, first.features, dtype).dtype)
    return Layout(first.roles, first.features, np.result_type(*precisions))
