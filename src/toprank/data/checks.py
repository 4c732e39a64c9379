"""The checks at the door of `RankingData`: each turns one argument into a clean array or says what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.queries import Queries
from toprank.errors import DataError

Array = npt.NDArray[Any]


def features(X: Any) -> tuple[Any, Sequence[str] | None]:
    """X as a dense array or CSR matrix in float32 or float64, and the column names of a frame."""
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    if hasattr(X, "tocsr"):
        matrix = X.tocsr()
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float64)
        return matrix, names
    if hasattr(X, "to_pandas") and hasattr(X, "schema") and not hasattr(X, "to_numpy"):  # an Arrow table
        names, X = list(X.column_names), np.column_stack([X.column(i).to_numpy() for i in range(X.num_columns)])
    array = np.asarray(X)
    if array.ndim != 2:
        raise DataError(f"X must have two dimensions (documents × features), not {array.ndim}.")
    if array.dtype not in (np.float32, np.float64):
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as problem:
            raise DataError(f"X must hold numbers: {problem}. Encode text and category columns first.") from None
    return array, names


def labels(y: npt.ArrayLike, n: int) -> FloatArray:
    try:
        array = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise DataError(f"Labels must be numbers: {problem}.") from None
    check_length(array, n, "labels", "documents")
    infinite = np.isinf(array)
    if infinite.any():
        row = int(np.argmax(infinite))
        raise DataError(f"The label of row {row} is {array[row]}; labels must be finite, or NaN for 'not judged'.")
    return array


def check_length(array: Array, n: int, name: str, of: str) -> None:
    if array.ndim != 1:
        raise DataError(f"{name} must have one dimension, not {array.ndim}.")
    if len(array) != n:
        raise DataError(f"There are {len(array)} {name} for {n} {of}; there must be one for each.")


def identifiers(ids: npt.ArrayLike, n: int, name: str) -> Array:
    """Ids as whole numbers (query ids only) or as strings."""
    array = np.asarray(ids)
    check_length(array, n, name, "documents" if name != "qids" else "queries")
    if array.dtype.kind == "f":
        whole = array.astype(np.int64, copy=True) if np.isfinite(array).all() else None
        if whole is None or not np.array_equal(whole, array):
            raise DataError(f"{name} must be whole numbers or strings; found fractions or missing values.")
        array = whole
    if array.dtype.kind in "iu" and name != "document_ids":
        return array.astype(np.int64)
    if array.dtype.kind == "O":
        missing = [i for i, value in enumerate(array.tolist()) if value is None or value != value]
        if missing:
            raise DataError(f"{name} has no value in row {missing[0]}; every row needs one.")
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8", "replace")
    return array if array.dtype.kind == "U" else np.array([str(value) for value in array.tolist()])


def weights(given: npt.ArrayLike | None, n: int, name: str, of: str) -> FloatArray | None:
    if given is None:
        return None
    array = np.asarray(given, dtype=np.float64)
    check_length(array, n, name, of)
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        raise DataError(f"{name} must be finite and not negative; number {int(np.argmax(wrong))} is {array[wrong][0]}.")
    if not array.any():
        raise DataError(f"{name} are all zero; nothing would count.")
    return array


def positions(given: npt.ArrayLike | None, n: int) -> npt.NDArray[np.int64] | None:
    if given is None:
        return None
    array = np.asarray(given)
    check_length(array, n, "positions", "documents")
    if array.dtype.kind not in "iu":
        raise DataError(f"positions must be whole numbers, not {array.dtype}.")
    return array.astype(np.int64)


def names(given: Sequence[str] | None, width: int) -> tuple[str, ...] | None:
    if given is None:
        return None
    given = tuple(str(name) for name in given)
    if len(given) != width:
        raise DataError(f"There are {len(given)} feature names for {width} features; there must be one for each.")
    if len(set(given)) < width:
        twice = next(name for name in given if given.count(name) > 1)
        raise DataError(f"Two features are called '{twice}'; names must differ.")
    return given


def first_repeat(ids: Array) -> int | None:
    """Index of the first id that appeared before, or None."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    repeats = first[inverse.reshape(-1)] != np.arange(len(ids))
    return int(np.argmax(repeats)) if repeats.any() else None


def grouping(
    qid: npt.ArrayLike | None, queries: Queries | None, qids: npt.ArrayLike | None, n: int, regroup: bool
) -> tuple[Array | None, Queries, Array]:
    """How to reorder the rows (None: as they are), the queries, and one id for each query."""
    if queries is not None:
        if qid is not None:
            raise DataError("Give qid or queries, not both.")
        if queries.n_documents != n:
            raise DataError(f"The queries hold {queries.n_documents} documents, X has {n} rows.")
        ids = np.arange(len(queries)) if qids is None else identifiers(qids, len(queries), "qids")
        repeated = first_repeat(ids)
        if repeated is not None:
            raise DataError(f"Two queries have the id {ids[repeated]}; ids must differ.")
        return None, queries, ids
    if qids is not None:
        raise DataError("qids (one id for each query) goes with queries=; give qid= with one id for each document.")
    if qid is None:
        return None, Queries([0, n]), np.zeros(1, dtype=np.int64)
    row_ids = identifiers(qid, n, "qid")
    starts = np.concatenate([[0], np.flatnonzero(row_ids[1:] != row_ids[:-1]) + 1])
    repeated = first_repeat(row_ids[starts])
    if repeated is None:
        return None, Queries(np.append(starts, n)), row_ids[starts]
    if not regroup:
        row = int(starts[repeated])
        raise DataError(
            f"The rows of query {row_ids[row]} are not neighbours: it starts again at row {row}. "
            "Sort the rows by query, or ask for regroup=True."
        )
    ids, first, inverse = np.unique(row_ids, return_index=True, return_inverse=True)
    by_appearance = np.argsort(first, kind="stable")
    place = np.empty(len(ids), dtype=np.int64)
    place[by_appearance] = np.arange(len(ids))
    order = np.argsort(place[inverse.reshape(-1)], kind="stable")
    sizes = np.bincount(place[inverse.reshape(-1)])
    return order, Queries.from_sizes(sizes), ids[by_appearance]


def same(a: Array, b: Array) -> bool:
    if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
        return False
    if a.dtype.kind == "f":
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)
    return bool(np.array_equal(a, b))
