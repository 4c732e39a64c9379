"""Slices of queries: by a metadata column, or into head and tail by frequency or size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import Array, IntArray
from toprank.data.dataset import RankingData
from toprank.data.metadata import Metadata, checked_column, one_per_query
from toprank.data.queries import Queries
from toprank.data.query_values import listed
from toprank.errors import DataError, Remedy, UnknownNameError, join_parts

MIN_QUERIES = 20
"""Minimum number of queries for tests in a slice: with fewer, coverage of intervals and power of tests are too low."""
SliceBy = str | npt.ArrayLike | Mapping[Any, Any]
_HEAD = "head:"
_MAX_SLICES = 50  # more distinct values are probably a numeric column


@dataclass(frozen=True, eq=False)
class Slices:
    """A partition of the queries.

    Attributes:
        column: name of the column that defines the slices.
        names: names of the slices, in alphabetical, numeric or chronological order.
        codes: slice number of each query.
        rule: definition of the slices as a sentence.
    """

    column: str
    names: tuple[str, ...]
    codes: IntArray
    rule: str

    @property
    def sizes(self) -> dict[str, int]:
        """Number of queries in each slice."""
        return dict(zip(self.names, np.bincount(self.codes, minlength=len(self.names)).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Sliceable:
    """Columns, ids and weights of queries by which they can be sliced."""

    metadata: Metadata
    queries: Queries
    qids: Array
    query_weights: Array | None

    @classmethod
    def from_data(cls, data: RankingData) -> Sliceable:
        """Take the columns, ids and weights of data."""
        return cls(data.metadata, data.queries, data.qids, data.query_weights)

    def slices(self, by: SliceBy) -> Slices:
        """Slice the queries by a metadata column, by ``head:COLUMN``, or by one value for each query.

        The head consists of the queries with the largest values of the column that together make up half of its sum;
        the tail are all others. Queries with equal values stay together. ``head:documents`` uses the number of
        documents of each query, ``head:weight`` the query weights.

        >>> data = RankingData(np.zeros((5, 1)), np.zeros(5), qid=range(5), metadata={"asked": [9, 1, 2, 1, 4]})
        >>> Sliceable.from_data(data).slices("head:asked").sizes
        {'head': 1, 'tail': 4}
        """
        return pooled_slices([self], by) if isinstance(by, str) else slices_of_values(by, len(self.queries))

    def column(self, by: str) -> Array:
        """Return the value of each query that `slices` uses."""
        return self._column(by.removeprefix(_HEAD), numbers=True) if self.is_head(by) else self._column(by)

    def is_head(self, by: str) -> bool:
        """Return whether `by` means head and tail, and is not the name of a column."""
        return by.startswith(_HEAD) and by not in self.metadata

    def _column(self, name: str, numbers: bool = False) -> Array:
        if name in self.metadata:
            return one_per_query(name, self.metadata[name], self.queries, self.qids)
        if numbers and name == "documents":
            return self.queries.sizes
        if numbers and name == "weight" and self.query_weights is not None:
            return self.query_weights
        if self.metadata:
            raise UnknownNameError("metadata column", name, (*self.metadata, "head:documents"))
        raise DataError(
            f"The data have no metadata column '{name}' to slice by. Read them from a table with",
            remedy=join_parts(
                Remedy("{metadata},", metadata=[name]),
                Remedy("give one value for each query,", ""),
                "or slice by head:documents.",
            ),
        )


def columns_of(by: str | None) -> tuple[str, ...]:
    """Return the metadata columns that a table needs for slicing.

    >>> columns_of("device"), columns_of("head:asked"), columns_of("head:documents")
    (('device',), ('asked',), ())
    """
    return () if by in (None, "head:documents", "head:weight") else (str(by).removeprefix(_HEAD),)


def pooled_slices(parts: Sequence[Sliceable], by: str) -> Slices:
    """Slice the queries of several data sets jointly; head and tail are computed over all of them."""
    column = np.concatenate([part.column(by) for part in parts])
    return _head_and_tail(by.removeprefix(_HEAD), column) if parts[0].is_head(by) else _by_value(by, column)


def slices_of_queries(by: SliceBy, qids: Array, metadata: Sliceable | None) -> Slices:
    """Slice queries with known ids; `by` may also be a mapping ``{query id: value}``.

    `metadata` has their columns; None if they are unknown, as for a run.
    """
    if isinstance(by, Mapping):
        known = {str(qid): value for qid, value in by.items()}
        absent = np.array([qid for qid in map(str, qids.tolist()) if qid not in known], dtype=str)
        if len(absent):
            raise DataError(f"The value to slice by is missing for {listed(absent)}; give one for each query.")
        by = [known[str(qid)] for qid in qids.tolist()]
    return slices_of_values(by, len(qids)) if metadata is None else metadata.slices(by)


def slices_of_values(by: SliceBy | Slices, n: int) -> Slices:
    """Slice n queries by one value for each, without further columns."""
    if isinstance(by, Slices) and len(by.codes) == n:
        return by
    if isinstance(by, Slices):
        raise DataError(
            f"The slices have {len(by.codes):,} queries, but there are {n:,}; give slices of the same queries."
        )
    if isinstance(by, str):
        raise DataError(
            f"These queries have no metadata and therefore no column '{by}'; give one value for each query."
        )
    if isinstance(by, Mapping):
        raise DataError("The queries have no ids; give one value for each query, in their order.")
    column = checked_column(by, "slice")
    if len(column) != n:
        raise DataError(f"There are {len(column)} values to slice {n} queries by; give one for each query.")
    return _by_value("slice", column)


def _by_value(by: str, column: Array) -> Slices:
    values, codes = np.unique(column, return_inverse=True)
    if len(values) > _MAX_SLICES:
        further = f" To split into head and tail by its size, use 'head:{by}'." if column.dtype.kind in "if" else ""
        raise DataError(
            f"'{by}' has {len(values):,} distinct values, and each would be a slice; group them into at most "
            f"{_MAX_SLICES} classes.{further}"
        )
    if len(values) < 2:
        raise DataError(
            f"'{by}' is {_word(values[0])} for every query, so there would be only one slice; use another column."
        )
    words = [_word(value) for value in values]
    names = {word: number for number, word in enumerate(dict.fromkeys(words))}
    places = np.array([names[word] for word in words], dtype=np.int64)
    return Slices(by, tuple(names), places[codes.reshape(-1)], f"Slices are the values of '{by}'.")


def _word(value: Any) -> str:
    if value == "" or value != value:
        return "(none)"
    return str(value).removesuffix(".0") if isinstance(value, np.floating) else str(value)


def _head_and_tail(name: str, column: Array) -> Slices:
    if column.dtype.kind not in "if" or not np.isfinite(column).all() or column.min() < 0 or not column.any():
        raise DataError(
            f"Head and tail need a column of frequencies or sizes: '{name}' must contain numbers that are neither "
            "missing nor negative nor all zero."
        )
    values, counts = np.unique(column, return_counts=True)
    from_here = np.cumsum((values * counts)[::-1])[::-1]  # sum over the queries with at least this value
    least = values[np.flatnonzero(2 * from_here >= from_here[0])[-1]]
    head = column >= least
    if head.all():
        raise DataError(
            f"'{name}' does not separate head and tail: half of its sum needs all {len(column):,} queries, because "
            "queries with equal values stay together. Use another column."
        )
    what = {"documents": "documents", "weight": "weight"}.get(name, f"'{name}'")
    rule = (
        f"Head: the queries with the largest {what} that together make up half of the total ({least:g} or more); tail: "
        "all others."
    )
    return Slices(f"{_HEAD}{name}", ("head", "tail"), np.where(head, 0, 1).astype(np.int64), rule)
