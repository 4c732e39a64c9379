"""The ragged frame: which documents belong to which query, and how rows become queries."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import Array, IntArray, offsets_of
from toprank.data.arguments import check_flag
from toprank.data.arrays import identifiers
from toprank.errors import DataError, Remedy

_MAX_DOCUMENTS = 2**62  # documents: more than any memory holds, and far enough from where 64 bits end


class Queries:
    """Consecutive documents grouped by query: query ``q`` owns the documents ``offsets[q]:offsets[q + 1]``.

    An empty query cannot exist: offsets rise strictly from 0 to the number of documents.

    >>> queries = Queries([0, 2, 5])
    >>> len(queries), queries.n_documents, queries.sizes.tolist()
    (2, 5, [2, 3])
    >>> queries.sum([1.0, 2.0, 3.0, 4.0, 5.0]).tolist()
    [3.0, 12.0]
    """

    __slots__ = ("__dict__", "offsets")
    offsets: npt.NDArray[np.int64]

    def __init__(self, offsets: npt.ArrayLike) -> None:
        bounds = _array(offsets, "Query offsets")
        if bounds.ndim != 1 or len(bounds) < 2:
            raise DataError("Query offsets must be a list of at least two numbers, [0, ..., number of documents].")
        if not np.issubdtype(bounds.dtype, np.integer):
            raise DataError(f"Query offsets must be integers, not {bounds.dtype}.")
        if bounds[0] != 0:
            raise DataError(f"Query offsets must start at 0, not {bounds[0]}.")
        rises = bounds[1:] > bounds[:-1]  # compared, not subtracted: a difference may be too large for its type
        if not rises.all():
            query = int(np.argmin(rises))
            raise DataError(
                f"Query offsets must rise strictly; query number {query} (from 0) would hold "
                f"{int(bounds[query + 1]) - int(bounds[query])} documents. Leave empty queries out."
            )
        if bounds[-1] > _MAX_DOCUMENTS:
            raise DataError(f"Query offsets must end at the number of documents; {bounds[-1]} cannot be one.")
        self.offsets = _frozen(np.array(bounds, dtype=np.int64))

    @classmethod
    def from_sizes(cls, sizes: npt.ArrayLike) -> Queries:
        """Queries from the number of documents in each (LightGBM's `group`).

        >>> Queries.from_sizes([2, 3]).offsets.tolist()
        [0, 2, 5]
        """
        counts = _array(sizes, "Query sizes")
        if counts.ndim != 1 or len(counts) == 0 or not np.issubdtype(counts.dtype, np.integer):
            raise DataError("Query sizes must be a non-empty list of integers.")
        if counts.min() < 1:
            empty = int(np.argmax(counts < 1))
            raise DataError(f"Query number {empty} (from 0) has size {counts[empty]}; leave empty queries out.")
        if counts.sum(dtype=np.float64) > _MAX_DOCUMENTS:  # as floats: the sum may be too large for whole numbers
            raise DataError(f"Query sizes must add up to the number of documents; one of {counts.max()} cannot be.")
        return cls(offsets_of(counts))

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Number of documents in each query."""
        return _frozen(np.diff(self.offsets))

    @cached_property
    def document_query(self) -> npt.NDArray[np.int64]:
        """For each document, the number of its query."""
        return _frozen(np.repeat(np.arange(len(self)), self.sizes))

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.offsets) - 1

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return int(self.offsets[-1])

    @property
    def positions_in_query(self) -> npt.NDArray[np.int64]:
        """For each document, its place within its query, from 0.

        >>> Queries([0, 2, 5]).positions_in_query.tolist()
        [0, 1, 0, 1, 2]
        """
        return positions_within(self.sizes)

    def sum(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        """Sum over the documents of each query."""
        return np.add.reduceat(self._documents(values), self.offsets[:-1], axis=0)

    def mean(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        """Mean over the documents of each query."""
        total = self.sum(values)
        return total / self.sizes.reshape((-1,) + (1,) * (total.ndim - 1))

    def max(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        """Largest value in each query."""
        return np.maximum.reduceat(self._documents(values), self.offsets[:-1], axis=0)

    def min(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        """Smallest value in each query."""
        return np.minimum.reduceat(self._documents(values), self.offsets[:-1], axis=0)

    def broadcast(self, per_query: npt.ArrayLike) -> npt.NDArray[Any]:
        """Give every document the value of its query.

        >>> Queries([0, 1, 3]).broadcast([7, 8]).tolist()
        [7, 8, 8]
        """
        return np.repeat(_one_for_each(per_query, len(self), "queries"), self.sizes, axis=0)

    def _documents(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        return _one_for_each(values, self.n_documents, "documents")

    def __len__(self) -> int:
        return self.n_queries

    def __iter__(self) -> Iterator[slice]:
        """The slice of documents of each query, in order."""
        for start, stop in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            yield slice(start, stop)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Queries) and np.array_equal(self.offsets, other.offsets)

    def __hash__(self) -> int:
        return hash(self.offsets.tobytes())

    def __repr__(self) -> str:
        return f"Queries({self.n_queries} queries, {self.n_documents} documents)"


def positions_within(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """0, 1, … for the members of each of several lists that follow one another; a list may be empty.

    >>> positions_within(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = np.cumsum(sizes)
    return np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)


def _array(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as problem:
        raise DataError(f"{name} must be a plain list: {problem}.") from None


def _one_for_each(values: npt.ArrayLike, n: int, of: str) -> npt.NDArray[Any]:
    array = _array(values, "The values")
    size = len(array) if array.ndim else 1
    if size != n or not array.ndim:
        raise DataError(f"{size} values for {n} {of}: there must be one for each.")
    return array


def _frozen(array: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The same array, read-only: queries are shared and hashed, so nobody may change them."""
    array.flags.writeable = False
    return array


IN_MEMORY = Remedy("convert with {regroup}, which holds all data in memory.", regroup=True)
"""What to do about scattered rows in a stream of blocks."""


def first_repeat(ids: Array) -> int | None:
    """Index of the first id that appeared before, or None."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    repeats = first[inverse.reshape(-1)] != np.arange(len(ids))
    return int(np.argmax(repeats)) if repeats.any() else None


def joined_queries(ids: Array) -> tuple[Array, int | None]:
    """Return where queries begin in a sequence of ids, and the first place where an earlier one begins again, or None.

    The rule for rows that come one behind the other, in one file or in several that are read as one: neighbors with
    the same id are one query, also where a file ends between them. A query that comes back later is refused, unless its
    rows are to be brought together (`regrouped`). Only data sets that are whole by themselves (`concatenate`) may not
    share a query at all.

    >>> joined_queries(np.array([7, 7, 8])), joined_queries(np.array([7, 8, 7]))
    ((array([0, 2]), None), (array([0, 1, 2]), 2))
    """
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    repeated = first_repeat(ids[starts])
    return starts, None if repeated is None else int(starts[repeated])


def group_rows(
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
    starts, row = joined_queries(row_ids)
    if row is None:
        return None, Queries(np.append(starts, n)), row_ids[starts]
    if not regroup:
        raise DataError(
            f"The rows of query {row_ids[row]} are not neighbors: it starts again at row {row} (counted from 0). "
            "Sort the rows by query, or ask for",
            remedy=Remedy("{regroup}.", regroup=True),
        )
    return regrouped(row_ids)


def regrouped(row_ids: Array) -> tuple[Array, Queries, Array]:
    """The stable order that brings the rows of each query together, queries by first appearance."""
    query_of_row, ids = factorize(row_ids)
    return np.argsort(query_of_row, kind="stable"), Queries.from_sizes(np.bincount(query_of_row)), ids


def factorize(values: Array) -> tuple[IntArray, Array]:
    """Return the number of each value among the distinct ones, counted by first appearance, and the distinct ones."""
    different, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[inverse.reshape(-1)], different[order]


def weight_of_each_query(per_row: Array, queries: Queries, qids: Array) -> Array:
    """The weight of each query from a column of them, which must hold one value in all rows of a query."""
    smallest, largest = queries.min(per_row), queries.max(per_row)
    if not np.array_equal(smallest, largest):
        raise several_weights(qids[np.argmax(smallest != largest)])
    return smallest


def several_weights(qid: Any) -> DataError:
    """The error for a query whose rows do not agree on its weight."""
    return DataError(f"Query {qid} has several query weights; all its rows must have the same.")


def checked_regroup(regroup: bool | None, *, default: bool) -> bool:
    """Return whether scattered rows of a query are to be brought together; None: the reader's own default."""
    if regroup is None:
        return default
    check_flag("regroup", regroup)
    return bool(regroup)
