"""Conversion of metadata columns between Arrow tables and arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from toprank.compute import Array
from toprank.data.arrays import strings
from toprank.data.encoding import is_text
from toprank.data.metadata import checked_column
from toprank.data.texts import text_column
from toprank.errors import DataError

_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[nN]a[nN]|")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?|")


def metadata_values(name: str, pieces: Sequence[Any], from_text: bool, is_words: bool = False) -> Array:
    """Convert the chunks of an Arrow column to one array.

    Args:
        name: the name of the column.
        pieces: the chunks of the column, in order.
        from_text: whether the column comes from a file without types (CSV), so that types are inferred from the text.
        is_words: whether the column is text for matching queries with documents.
    """
    import pyarrow as pa
    import pyarrow.types as kinds

    whole = pa.chunked_array(pieces)
    if kinds.is_dictionary(whole.type):
        whole = whole.cast(whole.type.value_type)
    kind = whole.type
    holds_text = is_text(kind) or kinds.is_null(kind)
    if is_words:
        if not holds_text:
            raise DataError(f"The text column '{name}' must hold text, but has the type {kind}.")
        return text_column(whole.to_pylist(), name)
    if holds_text:
        text = strings([value or "" for value in whole.to_pylist()], f"Column '{name}'")
        return infer_types(text) if from_text else checked_column(text, name)
    if kinds.is_boolean(kind):
        return checked_column(np.array(whole.to_pylist(), dtype=object), name)
    if kinds.is_decimal(kind):
        whole = whole.cast(pa.float64())
    elif not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_date(kind) or kinds.is_timestamp(kind)):
        raise DataError(
            f"Column '{name}' holds {kind} and cannot be metadata; metadata are text, numbers, booleans or dates."
        )
    return checked_column(whole.to_numpy(), name)


def infer_types(text: Array) -> Array:
    """Convert text to integers, dates or floats if all cells have that form; empty cells are missing values.

    Integers that neither int64 nor float64 represents exactly stay text.

    >>> [infer_types(np.array(words)).dtype.kind for words in (["7", "12"], ["2024-05-31", ""], ["1.5", ""], ["a"])]
    ['i', 'M', 'f', 'U']
    """
    distinct = np.unique(text).tolist()
    forms: tuple[tuple[re.Pattern[str], Callable[[str], Any], str], ...] = (
        (_WHOLE, int, "int64"),
        (_DATE, lambda word: word or "NaT", f"datetime64[{'D' if max(map(len, distinct)) <= 10 else 'us'}]"),
        (_NUMBER, lambda word: float(word or "nan"), "float64"),
    )
    for pattern, value, kind in forms:
        if any(distinct) and all(pattern.fullmatch(word) for word in distinct):
            if kind == "float64" and any(map(_loses_digits, distinct)):
                break
            try:
                return np.array([value(word) for word in text.tolist()], dtype=kind)
            except (ValueError, OverflowError):  # Impossible dates such as 31 February stay text.
                continue
    return text


def _loses_digits(word: str) -> bool:
    """Return whether a word is an integer that float64 would round."""
    return _INTEGER.fullmatch(word) is not None and Decimal(word) != float(word)


def type_of(column: Array) -> Any:
    """Return the Arrow type for a metadata column."""
    import pyarrow as pa

    return pa.string() if column.dtype.kind in "UO" else pa.from_numpy_dtype(column.dtype)
