"""The cells of a column of a log: ids, numbers, and what is refused for being neither."""

from __future__ import annotations

from typing import Any

import numpy as np

from toprank.clicks.log import Array, RowOf
from toprank.data.frames.layout import unreadable
from toprank.errors import DataError

__all__ = ["column", "first_odd", "ids_in", "numbers_of", "plain", "refuse_mixed", "refuse_nulls"]


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


def refuse_nulls(values: Any, name: str, role: str, row_of: RowOf) -> None:
    """Refuse an empty cell where every row needs a value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    refuse_mixed(values, name)
    empty = pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))
    if pa.types.is_string(values.type):
        empty = pc.or_(empty, pc.equal(values, "").fill_null(True))
    row = pc.index(empty, True).as_py()
    if row >= 0:
        raise DataError(
            f"Column '{name}' ({role}) is empty in row {row_of(row)} (counted from 0); every impression needs one."
        )


def refuse_mixed(values: Any, name: str) -> None:
    """Refuse a column of a frame that Arrow cannot hold."""
    if values.type == unreadable():
        raise DataError(f"Column '{name}' holds values of several kinds; make all of them text, or numbers.")


def plain(values: Any) -> Any:
    """Cells without a code in between, text as one type: categories and large strings are as good as others."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        return values.cast(pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            return values
    return values


def numbers_of(values: Any, name: str, role: str, row_of: RowOf) -> Array:
    """Cells as numbers; text may hold them, and of clicks true and false."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = "0 and 1, true and false, or how often it was clicked" if role == "click" else "numbers"
    if pa.types.is_string(values.type):
        words = pc.utf8_trim_whitespace(values)
        if role == "click":
            words = pc.utf8_lower(words)
            words = pc.if_else(pc.equal(words, "true"), "1", pc.if_else(pc.equal(words, "false"), "0", words))
        try:
            values = words.cast(pa.float64())
        except pa.ArrowInvalid:
            row = first_odd(words, pa.float64())
            raise DataError(
                f"Column '{name}' ({role}) must hold {wanted}, and has {_short(values[row].as_py())} in row "
                f"{row_of(row)} (counted from 0)."
            ) from None
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    fits = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if not fits and not (role == "click" and pa.types.is_boolean(values.type)):
        raise DataError(f"Column '{name}' ({role}) must hold {wanted}, not {values.type}.")
    return np.asarray(values.to_numpy(zero_copy_only=False))


def first_odd(words: Any, kind: Any) -> int:
    """Where the first text stands that Arrow cannot take for one of a type; there is one."""
    import pyarrow as pa

    for place, word in enumerate(words):
        try:
            word.cast(kind)
        except pa.ArrowInvalid:
            return place
    raise AssertionError("all can be taken for it")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def ids_in(values: Any, name: str, role: str) -> Any:
    """Ids as text or whole numbers; pandas makes floats of whole numbers where a cell is empty."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_string(kind):
        return values
    try:
        if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            return values.cast(pa.int64())
    except pa.ArrowInvalid as problem:
        if pa.types.is_integer(kind):  # beyond what 64 bits with a sign hold
            return values.cast(pa.string())
        raise DataError(
            f"Column '{name}' ({role}) must hold whole numbers or text, not fractions: {problem}."
        ) from None
    raise DataError(f"Column '{name}' ({role}) must hold whole numbers or text, not {kind}.")
