"""Assembly of click logs from columns: rows in any order become sessions, and invalid values are reported by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toprank.clicks.log import DUPLICATE_IMPRESSIONS, MAX_POSITION, Array, ClickLog, Numbered, first_odd, numbered
from toprank.compute import FloatArray, IntArray
from toprank.data.queries import positions_within
from toprank.errors import DataError, Remedy

RowOf = Callable[[int], int]  # the row of the source for an index into an array


def from_columns(
    query: npt.ArrayLike,
    document: npt.ArrayLike,
    position: npt.ArrayLike,
    click: npt.ArrayLike,
    session: npt.ArrayLike | None,
    columns: Mapping[str, npt.ArrayLike],
) -> ClickLog:
    """Return the log of impressions, one per row; see `ClickLog.from_columns` for the rules."""
    places = positions_of(position)
    n = len(places)
    return assembled(
        numbered(_ids("query", query, n)),
        numbered(_ids("document", document, n)),
        None if session is None else numbered(_ids("session", session, n)),
        places,
        clicks_of(_column("click", click, n)),
        {name: _column(name, values, n) for name, values in columns.items()},
    )


def assembled(
    query: Numbered,
    document: Numbered,
    session: Numbered | None,
    places: IntArray,
    clicks: npt.NDArray[np.bool_],
    columns: Mapping[str, Array],
    dropped: Mapping[str, int] | None = None,
) -> ClickLog:
    """Return the log of numbered impressions in any order; see `ClickLog.from_columns` for the rules."""
    n, counts = len(places), dict(dropped or {})
    if places.max(initial=0) > MAX_POSITION:
        raise DataError(
            f"A list has {places.max():,} documents, but at most {MAX_POSITION:,} are supported. Drop the rest."
        )
    if session is None:
        begins = np.r_[True, (np.diff(query.number) != 0) | (np.diff(places) <= 0)] if n else np.empty(0, bool)
        session_of: IntArray = np.cumsum(begins, dtype=np.int64) - 1
    else:
        session_of = session.number
    pair = numbered(query.number * np.int64(len(document.ids)) + document.number)
    order = _in_lists(session_of, places, pair.number)
    if order is not None:
        session_of, places, clicks = session_of[order], places[order], clicks[order]
        pair, columns = (
            pair._replace(number=pair.number[order]),
            {name: column[order] for name, column in columns.items()},
        )
    repeated = (np.diff(session_of) == 0) & (np.diff(places) == 0) & (np.diff(pair.number) == 0)
    if repeated.any():
        first = np.r_[True, ~repeated]
        clicks = np.logical_or.reduceat(clicks, np.flatnonzero(first))
        session_of, places, columns = (
            session_of[first],
            places[first],
            {k: column[first] for k, column in columns.items()},
        )
        pair = pair._replace(number=pair.number[first])
        counts[DUPLICATE_IMPRESSIONS] = int(repeated.sum())
    starts = np.flatnonzero(np.r_[True, np.diff(session_of) > 0]) if len(places) else np.empty(0, np.int64)
    pair_query = pair.ids // max(len(document.ids), 1)
    query_of = pair_query[pair.number]
    _refuse_mixed(session, session_of, query_of, query.ids)
    return ClickLog(
        offsets=np.append(starts, len(places)).astype(np.int64),
        session_query=query_of[starts],
        qids=query.ids,
        pair=pair.number,
        pair_query=pair_query,
        document_ids=document.ids[pair.ids % max(len(document.ids), 1)],
        position=places,
        clicks=clicks,
        columns=columns,
        session_ids=None if session is None else session.ids[session_of[starts]],
        dropped=counts,
    )


def _in_lists(session: IntArray, places: IntArray, pair: IntArray) -> IntArray | None:
    """Return the order of impressions by session, position and document; None if they are already in this order."""
    if not len(places):
        return None
    span = int(places.max()) + 1
    if span * (int(session.max()) + 1) < 2**62:
        key = session * np.int64(span) + places
        step = np.diff(key)
        if (step > 0).all():
            return None
        order = np.argsort(key)
        if (np.diff(key[order]) > 0).all():
            return order
    return np.lexsort((pair, places, session))


def _refuse_mixed(session: Numbered | None, session_of: IntArray, query_of: IntArray, qids: Array) -> None:
    mixed = np.flatnonzero((np.diff(session_of) == 0) & (np.diff(query_of) != 0))
    if len(mixed):
        assert session is not None  # without one, a session ends where the query changes
        first, second = qids[query_of[mixed[0]]], qids[query_of[mixed[0] + 1]]
        raise DataError(
            f"Session {session.ids[session_of[mixed[0]]]} has several queries, such as '{first}' and '{second}', but a "
            "session is one list of results. Give each list its own",
            remedy=Remedy(
                "id; or, if the lists are consecutive in the file, read without a session: {session}.",
                "id.",
                session=False,
            ),
        )


def _column(role: str, values: npt.ArrayLike, n: int) -> Array:
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"{role} must be a column with one value per row.") from None
    if array.shape != (n,):
        raise DataError(f"{role} has the shape {array.shape}, but there are {n:,} positions. Give one value per row.")
    return array


def _ids(role: str, values: npt.ArrayLike, n: int) -> Array:
    """Return ids of rows: text or whole numbers, which pandas converts to floats if cells are empty."""
    array = _column(role, values, n)
    kind = array.dtype.kind
    empty = np.array([cell is None or cell != cell or cell == "" for cell in array]) if kind == "O" else array != array
    if kind == "U":
        empty = array == ""
    if np.any(empty):
        raise DataError(f"Row {np.argmax(empty)} (counted from 0) has no {role}. Every impression needs one.")
    if kind == "f":
        if not (np.abs(array) < 2**53).all() or (array != np.floor(array)).any():
            raise DataError(f"The {role} must be whole numbers or text, not fractions.")
        return array.astype(np.int64)
    return array


def positions_of(position: npt.ArrayLike, row_of: RowOf = int, first: int = 1) -> IntArray:
    """Return positions as whole numbers from 1, given positions that start at `first`; invalid ones are reported by
    row.
    """
    array = np.asarray(position)
    if array.ndim != 1:
        raise DataError("Positions must be a column of whole numbers from 1.")
    whole = array.dtype.kind in "iu"
    try:
        numbers = array if whole else array.astype(np.float64)
    except (TypeError, ValueError) as problem:
        raise DataError(f"Positions must be whole numbers from 1: {problem}.") from None
    fine = (numbers >= first) & (numbers < first + MAX_POSITION)
    bad = np.flatnonzero(~(fine if whole else fine & (numbers == np.floor(numbers))))
    if len(bad):
        others = f", and {len(bad) - 1:,} later rows have positions out of range too" if len(bad) > 1 else ""
        raise DataError(
            f"Row {row_of(int(bad[0]))} (counted from 0) has the position {numbers[bad[0]]:.16g}{others}. Positions "
            f"are whole numbers from {first} to {first + MAX_POSITION - 1:,}. Drop rows that were not in a list.",
            remedy=_FROM_ZERO if first and (numbers == 0).any() else "",
        )
    return numbers.astype(np.int64) + (1 - first)


_FROM_ZERO = Remedy(
    "If the log counts from 0, add 1, or read it with {first_position}.", "If the log counts from 0, add 1.",
    first_position=0,
)  # fmt: skip


def clicks_of(array: Array, row_of: RowOf = int) -> npt.NDArray[np.bool_]:
    """Return whether each row was clicked, from booleans or numbers of clicks; other values are reported by row."""
    if array.dtype.kind == "b":
        return array
    try:
        numbers: FloatArray = array.astype(np.float64)
    except (TypeError, ValueError) as problem:
        raise DataError(f"Clicks must be 0 or 1, or numbers of clicks: {problem}.") from None
    bad = np.flatnonzero(~((numbers >= 0) & (numbers < np.inf) & (numbers == np.floor(numbers))))
    if len(bad):
        raise DataError(
            f"Row {row_of(int(bad[0]))} (counted from 0) has the click {numbers[bad[0]]:.16g}. Clicks must be 0 or 1, "
            "or numbers of clicks."
        )
    return numbers > 0


# ---- cells: ids and numbers ----


def refuse_nulls(values: Any, name: str, role: str, row_of: RowOf) -> None:
    """Reject empty cells in a column that needs a value in every row."""
    empty = pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))
    if pa.types.is_string(values.type):
        empty = pc.or_(empty, pc.equal(values, "").fill_null(True))
    row = pc.index(empty, True).as_py()
    if row >= 0:
        raise DataError(
            f"Column '{name}' ({role}) is empty in row {row_of(row)} (counted from 0). Every impression needs a value."
        )


def plain(values: Any) -> Any:
    """Return cells without dictionary encoding, and text as one type."""
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
    """Return cells as numbers; text may contain numbers, and for clicks true and false."""
    wanted = "0 and 1, true and false, or numbers of clicks" if role == "click" else "numbers"
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
                f"Column '{name}' ({role}) must contain {wanted}, but has {_short(values[row].as_py())} in row "
                f"{row_of(row)} (counted from 0)."
            ) from None
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    fits = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if not fits and not (role == "click" and pa.types.is_boolean(values.type)):
        raise DataError(f"Column '{name}' ({role}) must contain {wanted}, not {values.type}.")
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def ids_in(values: Any, name: str, role: str) -> Any:
    """Return ids as text or whole numbers, which pandas converts to floats if cells are empty."""
    kind = values.type
    if pa.types.is_string(kind):
        return values
    try:
        if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            return values.cast(pa.int64())
    except pa.ArrowInvalid as problem:
        if pa.types.is_integer(kind):  # outside of the range of int64
            return values.cast(pa.string())
        raise DataError(
            f"Column '{name}' ({role}) must contain whole numbers or text, not fractions: {problem}."
        ) from None
    raise DataError(f"Column '{name}' ({role}) must contain whole numbers or text, not {kind}.")


def column(batch: Any, name: str) -> Any | None:
    """Return a column of a batch by name, or a nested one by a path with dots; None if it does not exist."""
    if name in batch.schema.names:
        return batch.column(name)
    first, *rest = name.split(".")
    if first not in batch.schema.names:
        return None
    values, kind = batch.column(first), batch.schema.field(first).type
    for step in rest:
        if not pa.types.is_struct(kind) or kind.get_field_index(step) < 0:
            return None
        values, kind = pc.struct_field(values, step), kind.field(step).type
    return values


def is_list(kind: Any) -> bool:
    """Return whether an Arrow type is a list type."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def exploded(columns: dict[str, Any], first_row: int) -> tuple[dict[str, Any], IntArray, IntArray]:
    """Return rows of lists as impressions, with the row and the rank of each impression."""
    sizes = pc.list_value_length(columns["document"]).fill_null(0)
    lengths = np.asarray(sizes.to_numpy(zero_copy_only=False), dtype=np.int64)
    parent = np.repeat(np.arange(len(lengths)), lengths)
    rank = positions_within(lengths) + 1
    if not is_list(columns["click"].type):
        raise DataError("Documents are lists, but clicks are not. Give a list of clicks for each list of documents.")
    impressions = {}
    for role, values in columns.items():
        if not is_list(values.type):
            impressions[role] = values.take(pa.array(parent))
            continue
        other = pc.list_value_length(values).fill_null(0)
        differs = pc.index(pc.not_equal(other, sizes), True).as_py()
        if differs >= 0:
            raise DataError(
                f"Row {first_row + differs} has {lengths[differs]} documents, but {other[differs]} values of {role}."
            )
        impressions[role] = pc.list_flatten(values)
    return impressions, parent, rank
