"""The ragged frame: which documents belong to which query."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.errors import DataError

_MOST = 2**62  # documents: more than any memory holds, and far enough from where 64 bits end


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
        if bounds[-1] > _MOST:
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
        if counts.sum(dtype=np.float64) > _MOST:  # as floats: the sum may be too large for whole numbers
            raise DataError(f"Query sizes must add up to the number of documents; one of {counts.max()} cannot be.")
        return cls(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]))

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
    def places(self) -> npt.NDArray[np.int64]:
        """For each document, its place within its query, from 0.

        >>> Queries([0, 2, 5]).places.tolist()
        [0, 1, 0, 1, 2]
        """
        return places_within(self.sizes)

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

    def spread(self, per_query: npt.ArrayLike) -> npt.NDArray[Any]:
        """Give every document the value of its query.

        >>> Queries([0, 1, 3]).spread([7, 8]).tolist()
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


def places_within(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """0, 1, … for the members of each of several lists that follow one another; a list may be empty.

    >>> places_within(np.array([2, 0, 3])).tolist()
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
