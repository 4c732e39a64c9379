"""Conversion of pandas and polars frames to Arrow tables and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toprank.data.arrays import check_utf8, refuse_repeated
from toprank.data.frames.layout import is_number, unreadable
from toprank.errors import DataError, UnknownNameError


def is_mixed(frame: Any) -> bool:
    """Return whether this is a frame with a non-numeric column."""
    if not hasattr(frame, "columns") and not hasattr(frame, "schema"):
        return False
    kinds = getattr(frame, "dtypes", None)
    if kinds is not None and all(getattr(kind, "kind", "O") in "biuf" for kind in kinds):
        return False  # a pandas frame of numbers, the usual case
    try:
        return any(not is_number(kind) for kind in table_of(frame).schema.types)
    except DataError:
        return True  # the reader reports the error


def as_frame(table: Any, kind: str) -> Any:
    """Convert an Arrow table to the requested kind of frame."""
    if kind not in ("arrow", "pandas", "polars"):
        raise UnknownNameError("kind of frame", kind, ("arrow", "pandas", "polars"))
    try:
        if kind == "pandas":
            return table.to_pandas()
        if kind == "polars":
            import polars

            return polars.from_arrow(table)
    except ImportError as problem:
        raise DataError(
            f"A {kind} frame needs {kind}, which is not installed ({problem}). Run pip install {kind}, or use "
            "kind='arrow' for an Arrow table."
        ) from None
    return table


def table_of(frame: Any) -> Any:
    """Convert any supported frame to an Arrow table, without a copy if possible."""
    import pyarrow as pa

    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        return frame
    try:
        if type(frame).__module__.partition(".")[0] == "pandas" and hasattr(frame, "columns"):
            return _table_of_pandas(frame)
        if hasattr(frame, "to_arrow"):
            return table_of(frame.to_arrow())
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
    except pa.ArrowException as problem:
        raise DataError(f"The frame cannot be read: {problem}. Convert every column to one type.") from None
    raise DataError(
        f"The type {type(frame).__name__} is not a supported frame; give a pandas or polars DataFrame (collect a lazy "
        "one first) or an Arrow table."
    )


def _table_of_pandas(frame: Any) -> Any:
    import pyarrow as pa

    names = refuse_repeated([str(name) for name in frame.columns])
    for name in names:
        check_utf8(name, "column name")
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, NotImplementedError, ValueError):
        wrong = [place for place in range(len(names)) if not _is_readable(frame.iloc[:, place])]
        if not wrong:
            raise
    right = [place for place in range(len(names)) if place not in wrong]
    table = pa.Table.from_pandas(frame.iloc[:, right], preserve_index=False)
    for place in wrong:  # `layout_of` raises one error for all of them that are used
        table = table.add_column(place, names[place], pa.nulls(len(frame), unreadable()))
    return table


def _is_readable(column: Any) -> bool:
    import pyarrow as pa

    try:
        pa.Array.from_pandas(column)
    except (pa.ArrowException, TypeError, NotImplementedError, ValueError):
        return False
    return True


def words_of(frame: Any) -> Callable[[str], str] | None:
    """Return a function that describes column types as pandas or polars does; None for Arrow tables."""
    kinds, names = getattr(frame, "dtypes", None), getattr(frame, "columns", None)
    if kinds is None or names is None:
        return None
    places = {str(name): place for place, name in enumerate(names)}

    def words(name: str) -> str:
        kind = list(kinds)[places[name]]
        inside = getattr(getattr(kind, "categories", None), "dtype", None)  # dtype of pandas categories
        if str(kind) == "object":
            inside = ", ".join(sorted({type(value).__name__ for value in frame.iloc[:, places[name]].dropna()})[:3])
        return f"{kind} of {inside}" if inside and str(kind) in ("object", "category") else str(kind)

    return words
