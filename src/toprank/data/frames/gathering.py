"""Filling arrays from a stream of Arrow record batches whose columns' roles are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.data import checks
from toprank.data.dataset import RankingData
from toprank.data.frames.layout import Layout, is_number
from toprank.data.queries import Queries
from toprank.errors import DataError

__all__ = [
    "ROWS_AT_A_TIME",
    "fill",
    "fill_rows",
    "gather",
    "one_for_each_query",
    "role_values",
    "several_weights",
    "whole_numbers",
]

Array = npt.NDArray[Any]
ROWS_AT_A_TIME = 8192


def gather(
    batches: Iterable[Any], layout: Layout, n_rows: int, *, regroup: bool, ids_from_text: bool = False
) -> RankingData:
    """Ranking data from record batches.

    Args:
        batches: the batches; each holds at least the columns of the layout.
        layout: what the columns mean.
        n_rows: how many rows to expect (more are welcome, at the cost of a copy).
        regroup: bring scattered rows of a query together.
        ids_from_text: take query ids that are all plain whole numbers for numbers (text files have no types).
    """
    X, columns = fill(batches, layout, n_rows)
    n = len(X)
    if n == 0:
        raise DataError("The table has no rows.")
    values = {role: role_values(role, name, columns[role]) for role, name in layout.roles.items()}
    qid = values.pop("qid", None)
    if ids_from_text and qid is not None:
        qid = whole_numbers(qid)
    order, queries, qids = checks.grouping(qid, None, None, n, regroup)
    if order is not None:
        X, values = X[order], {role: column[order] for role, column in values.items()}
    query_weights = values.get("query_weight")
    if query_weights is not None:
        query_weights = one_for_each_query(query_weights, queries, qids)
    return RankingData(
        X,
        values.get("label"),
        queries=queries,
        qids=qids,
        document_ids=values.get("document_id"),
        document_weights=values.get("weight"),
        query_weights=query_weights,
        positions=values.get("position"),
        source_rows=order,
        feature_names=layout.feature_names,
    )


def one_for_each_query(per_row: Array, queries: Queries, qids: Array) -> Array:
    """The weight of each query from a column of them, which must hold one value in all rows of a query."""
    smallest, largest = queries.min(per_row), queries.max(per_row)
    if not np.array_equal(smallest, largest):
        raise several_weights(qids[np.argmax(smallest != largest)])
    return smallest


def several_weights(query: Any) -> DataError:
    """The error for a query whose rows do not agree on its weight."""
    return DataError(f"Query {query} has several query weights; all its rows must have the same.")


def fill(batches: Iterable[Any], layout: Layout, n_rows: int) -> tuple[Array, dict[str, list[Any]]]:
    """The feature matrix, and the pieces of each role's column."""
    try:
        X = np.empty((n_rows, len(layout.features)), dtype=layout.dtype)
    except (MemoryError, ValueError):  # a number of rows that is damaged may also be negative
        raise DataError(f"{n_rows} rows of {len(layout.features)} features do not fit into memory.") from None
    columns: dict[str, list[Any]] = {role: [] for role in layout.roles}
    filled = 0
    for batch in batches:
        for role, name in layout.roles.items():
            columns[role].append(batch.column(name))
        if filled + batch.num_rows > len(X):
            X.resize((max(filled + batch.num_rows, len(X) * 3 // 2), X.shape[1]), refcheck=False)
        fill_rows(X[filled : filled + batch.num_rows], batch, layout)
        filled += batch.num_rows
    if filled < len(X):
        X.resize((filled, X.shape[1]), refcheck=False)
    return X, columns


def fill_rows(rows: Array, batch: Any, layout: Layout) -> None:
    """The features of a record batch, into as many rows of a matrix."""
    columns = [batch.column(name) for name in layout.features]
    # A few thousand rows at a time: a strip of the matrix that stays in cache while its columns are written.
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        part = rows[start : start + ROWS_AT_A_TIME]
        for place, column in enumerate(columns):
            part[:, place] = _floats(column.slice(start, ROWS_AT_A_TIME))


def _floats(column: Any) -> Array:
    """An Arrow array of numbers as floats; empty cells are NaN."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.float64(), safe=False)
    floats: Array = column.to_numpy(zero_copy_only=False)
    return floats


def role_values(role: str, name: str, pieces: list[Any], first_row: int = 0) -> Array:
    """The column of a role as an array: ids as they are, everything else as floats.

    Args:
        role: the role.
        name: the name of the column.
        pieces: the column, in order.
        first_row: the number of its first row in the file, for messages.
    """
    import pyarrow as pa

    kind = pieces[0].type
    if pa.types.is_dictionary(kind):
        pieces = [piece.dictionary_decode() for piece in pieces]
        kind = pieces[0].type
    is_id = role in ("qid", "document_id")
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    if not (is_number(kind) or (is_id and text)):
        expected = "whole numbers or text" if is_id else "numbers"
        raise DataError(f"Column '{name}' plays the role '{role}' and must hold {expected}, not {kind}.")
    missing = _first_null(pieces)
    if missing is not None and role != "label":
        raise DataError(
            f"Column '{name}' ({role}) is empty in row {first_row + missing} (counted from 0); every row needs a value."
        )
    if text:
        return checks.strings([value for piece in pieces for value in piece.to_pylist()], f"Column '{name}'", first_row)
    if is_id and pa.types.is_decimal(kind):  # as floats, large ones would become one
        return _whole_decimals([value for piece in pieces for value in piece.to_pylist()], name, first_row)
    if pa.types.is_integer(kind) and role != "label":
        return np.concatenate([piece.to_numpy(zero_copy_only=False) for piece in pieces])
    return np.concatenate([_floats(piece) for piece in pieces])


def _whole_decimals(values: list[Any], name: str, first_row: int) -> Array:
    """Decimals that are whole numbers, exactly, as Python's integers."""
    for row, value in enumerate(values):
        if value != value.to_integral_value():
            where = f"row {first_row + row} (counted from 0)"
            raise DataError(f"Column '{name}' holds ids, which must be whole numbers or text; {where} has {value}.")
    return np.array([int(value) for value in values], dtype=object)


def _first_null(pieces: list[Any]) -> int | None:
    before = 0
    for piece in pieces:
        if piece.null_count:
            return before + int(np.argmax(piece.is_null().to_numpy(zero_copy_only=False)))
        before += len(piece)
    return None


def whole_numbers(ids: Array) -> Array:
    """Text ids as integers where each is written exactly as the integer would be, else unchanged."""
    try:
        numbers = ids.astype(np.int64)
    except (ValueError, OverflowError):
        return ids
    return numbers if np.array_equal(numbers.astype(str), ids) else ids
