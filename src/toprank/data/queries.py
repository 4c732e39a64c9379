"""`Queries`: which documents belong to which query, and how rows are grouped into queries."""

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

    Queries are never empty: offsets increase strictly from 0 to the number of documents.

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
            raise DataError("Query offsets must be a list of at least two integers, [0, ..., number of documents].")
        if not np.issubdtype(bounds.dtype, np.integer):
            raise DataError(f"Query offsets must be integers, not {bounds.dtype}.")
        if bounds[0] != 0:
            raise DataError(f"Query offsets must start at 0, not {bounds[0]}.")
        rises = bounds[1:] > bounds[:-1]  # Compare instead of subtracting: a difference may overflow.
        if not rises.all():
            query = int(np.argmin(rises))
            raise DataError(
                f"Query offsets must increase strictly; query number {query} (from 0) would have "
                f"{int(bounds[query + 1]) - int(bounds[query])} documents. Leave out empty queries."
            )
        if bounds[-1] > _MAX_DOCUMENTS:
            raise DataError(f"Query offsets must end at the number of documents; {bounds[-1]} is too large.")
        self.offsets = _frozen(np.array(bounds, dtype=np.int64))

    @classmethod
    def from_sizes(cls, sizes: npt.ArrayLike) -> Queries:
        """Build queries from the number of documents in each, LightGBM's `group`.

        >>> Queries.from_sizes([2, 3]).offsets.tolist()
        [0, 2, 5]
        """
        counts = _array(sizes, "Query sizes")
        if counts.ndim != 1 or len(counts) == 0 or not np.issubdtype(counts.dtype, np.integer):
            raise DataError("Query sizes must be a non-empty list of integers.")
        if counts.min() < 1:
            empty = int(np.argmax(counts < 1))
            raise DataError(f"Query number {empty} (from 0) has size {counts[empty]}; leave out empty queries.")
        if counts.sum(dtype=np.float64) > _MAX_DOCUMENTS:  # Sum as floats: integers may overflow.
            raise DataError(
                f"Query sizes must add up to the number of documents; {counts.max()} is too large for a size."
            )
        return cls(offsets_of(counts))

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Number of documents in each query."""
        return _frozen(np.diff(self.offsets))

    @cached_property
    def document_query(self) -> npt.NDArray[np.int64]:
        """Number of the query of each document."""
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
        """Position of each document within its query, from 0.

        >>> Queries([0, 2, 5]).positions_in_query.tolist()
        [0, 1, 0, 1, 2]
        """
        return positions_within(self.sizes)

    def sum(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the sum over the documents of each query."""
        return np.add.reduceat(self._documents(values), self.offsets[:-1], axis=0)

    def mean(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the mean over the documents of each query."""
        total = self.sum(values)
        return total / self.sizes.reshape((-1,) + (1,) * (total.ndim - 1))

    def max(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the largest value in each query."""
        return np.maximum.reduceat(self._documents(values), self.offsets[:-1], axis=0)

    def min(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the smallest value in each query."""
        return np.minimum.reduceat(self._documents(values), self.offsets[:-1], axis=0)

    def broadcast(self, per_query: npt.ArrayLike) -> npt.NDArray[Any]:
        """Repeat the value of each query for all of its documents.

        >>> Queries([0, 1, 3]).broadcast([7, 8]).tolist()
        [7, 8, 8]
        """
        return np.repeat(_one_for_each(per_query, len(self), "queries"), self.sizes, axis=0)

    def _documents(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        return _one_for_each(values, self.n_documents, "documents")

    def __len__(self) -> int:
        return self.n_queries

    def __iter__(self) -> Iterator[slice]:
        """Iterate over the slices of documents, one for each query."""
        for start, stop in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            yield slice(start, stop)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Queries) and np.array_equal(self.offsets, other.offsets)

    def __hash__(self) -> int:
        return hash(self.offsets.tobytes())

    def __repr__(self) -> str:
        return f"Queries({self.n_queries} queries, {self.n_documents} documents)"


def positions_within(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return 0, 1, … for the members of each of several consecutive lists, which may be empty.

    >>> positions_within(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = np.cumsum(sizes)
    return np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)


def _array(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as problem:
        raise DataError(f"{name} must be a one-dimensional list: {problem}.") from None


def _one_for_each(values: npt.ArrayLike, n: int, of: str) -> npt.NDArray[Any]:
    array = _array(values, "The values")
    size = len(array) if array.ndim else 1
    if size != n or not array.ndim:
        raise DataError(f"There are {size} values for {n} {of}; give one for each.")
    return array


def _frozen(array: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Make an array read-only, since queries are shared and hashed."""
    array.flags.writeable = False
    return array


IN_MEMORY = Remedy("convert with {regroup}, which holds all data in memory.", regroup=True)
"""Remedy for scattered rows in a stream of blocks."""


def first_repeat(ids: Array) -> int | None:
    """Return the index of the first id that appeared before, or None."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    repeats = first[inverse.reshape(-1)] != np.arange(len(ids))
    return int(np.argmax(repeats)) if repeats.any() else None


def joined_queries(ids: Array) -> tuple[Array, int | None]:
    """Return where queries start in a sequence of ids, and the first start of a query that appeared before, or None.

    Contiguous rows with the same id are one query, even across the boundary of two files that are read as one. A query
    whose rows are not contiguous is an error unless the rows are regrouped (`regrouped`). Complete data sets that are
    joined by `concatenate` may not share a query at all.

    >>> joined_queries(np.array([7, 7, 8])), joined_queries(np.array([7, 8, 7]))
    ((array([0, 2]), None), (array([0, 1, 2]), 2))
    """
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    repeated = first_repeat(ids[starts])
    return starts, None if repeated is None else int(starts[repeated])


def group_rows(
    qid: npt.ArrayLike | None, queries: Queries | None, qids: npt.ArrayLike | None, n: int, regroup: bool
) -> tuple[Array | None, Queries, Array]:
    """Return the new order of the rows (None if unchanged), the queries, and the id of each query."""
    if queries is not None:
        if qid is not None:
            raise DataError("Both qid and queries are given; give only one of them.")
        if queries.n_documents != n:
            raise DataError(f"The queries have {queries.n_documents} documents, but X has {n} rows.")
        ids = np.arange(len(queries)) if qids is None else identifiers(qids, len(queries), "qids")
        repeated = first_repeat(ids)
        if repeated is not None:
            raise DataError(f"Two queries have the id {ids[repeated]}; query ids must be unique.")
        return None, queries, ids
    if qids is not None:
        raise DataError("qids (one id for each query) needs queries=. Give qid= for one id for each document.")
    if qid is None:
        return None, Queries([0, n]), np.zeros(1, dtype=np.int64)
    row_ids = identifiers(qid, n, "qid")
    starts, row = joined_queries(row_ids)
    if row is None:
        return None, Queries(np.append(starts, n)), row_ids[starts]
    if not regroup:
        raise DataError(
            f"The rows of query {row_ids[row]} are not contiguous: it starts again at row {row} (from 0). Sort the "
            "rows by query, or use",
            remedy=Remedy("{regroup}.", regroup=True),
        )
    return regrouped(row_ids)


def regrouped(row_ids: Array) -> tuple[Array, Queries, Array]:
    """Return the stable order that groups the rows by query, the queries by first appearance, and their ids."""
    query_of_row, ids = factorize(row_ids)
    return np.argsort(query_of_row, kind="stable"), Queries.from_sizes(np.bincount(query_of_row)), ids


def factorize(values: Array) -> tuple[IntArray, Array]:
    """Return the code of each value, by first appearance, and the distinct values."""
    different, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[inverse.reshape(-1)], different[order]


def weight_of_each_query(per_row: Array, queries: Queries, qids: Array) -> Array:
    """Return the weight of each query from one weight per row; raise an error if the weight varies within a query."""
    smallest, largest = queries.min(per_row), queries.max(per_row)
    if not np.array_equal(smallest, largest):
        raise several_weights(qids[np.argmax(smallest != largest)])
    return smallest


def several_weights(qid: Any) -> DataError:
    """Return the error for a query with several weights."""
    return DataError(f"Query {qid} has several query weights; give all of its rows the same weight.")


def checked_regroup(regroup: bool | None, *, default: bool) -> bool:
    """Return whether to group scattered rows of a query: the argument, or the default of the reader if it is None."""
    if regroup is None:
        return default
    check_flag("regroup", regroup)
    return bool(regroup)
