"""Queries in slices: by a column that is carried along, or head and tail, by how often they come or their size."""

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
"""Queries that a slice needs to be tested: with fewer, intervals promise more than they keep, and tests miss much."""
SliceBy = str | npt.ArrayLike | Mapping[Any, Any]
_HEAD = "head:"
_MAX_SLICES = 50  # slices; more are values of a number, not slices


@dataclass(frozen=True, eq=False)
class Slices:
    """A partition of the queries.

    Attributes:
        column: What the queries were divided by.
        names: The slices; of text in the order of the alphabet, of numbers and dates in theirs.
        codes: For each query the number of its slice.
        rule: Which query falls into which slice, in a sentence.
    """

    column: str
    names: tuple[str, ...]
    codes: IntArray
    rule: str

    @property
    def sizes(self) -> dict[str, int]:
        """How many queries each slice has."""
        return dict(zip(self.names, np.bincount(self.codes, minlength=len(self.names)).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Sliceable:
    """What is known of queries that may be divided into slices later."""

    metadata: Metadata
    queries: Queries
    qids: Array
    query_weights: Array | None

    @classmethod
    def from_data(cls, data: RankingData) -> Sliceable:
        """The queries of some data."""
        return cls(data.metadata, data.queries, data.qids, data.query_weights)

    def slices(self, by: SliceBy) -> Slices:
        """The slices by a metadata column, by ``head:COLUMN``, or by one value for each query.

        Head are the queries with the largest values of the column that together make half of its sum, tail all others;
        queries of equal value stay together. ``head:documents`` goes by the number of documents of a query,
        ``head:weight`` by the query weights.

        >>> data = RankingData(np.zeros((5, 1)), np.zeros(5), qid=range(5), metadata={"asked": [9, 1, 2, 1, 4]})
        >>> Sliceable.from_data(data).slices("head:asked").sizes
        {'head': 1, 'tail': 4}
        """
        return pooled_slices([self], by) if isinstance(by, str) else slices_of_values(by, len(self.queries))

    def column(self, by: str) -> Array:
        """The value of each query that `slices` would go by."""
        return self._column(by.removeprefix(_HEAD), numbers=True) if self.is_head(by) else self._column(by)

    def is_head(self, by: str) -> bool:
        """Whether head and tail are asked for, and no column has that name."""
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
            f"The data carry no column '{name}' to slice by. Read them from a table with",
            remedy=join_parts(
                Remedy("{metadata},", metadata=[name]),
                Remedy("give one value for each query,", ""),
                "or slice by head:documents.",
            ),
        )


def columns_of(by: str | None) -> tuple[str, ...]:
    """The column that a table must carry along to be sliced by it.

    >>> columns_of("device"), columns_of("head:asked"), columns_of("head:documents")
    (('device',), ('asked',), ())
    """
    return () if by in (None, "head:documents", "head:weight") else (str(by).removeprefix(_HEAD),)


def pooled_slices(parts: Sequence[Sliceable], by: str) -> Slices:
    """The slices of the queries of several sets as one, set after set: head and tail are found over all of them."""
    column = np.concatenate([part.column(by) for part in parts])
    return _head_and_tail(by.removeprefix(_HEAD), column) if parts[0].is_head(by) else _by_value(by, column)


def slices_of_queries(by: SliceBy, qids: Array, metadata: Sliceable | None) -> Slices:
    """Return the slices of queries that are known by id, by ``{query id: value}`` too.

    `metadata` holds their columns; None if these are unknown, as those of a run.
    """
    if isinstance(by, Mapping):
        known = {str(qid): value for qid, value in by.items()}
        absent = np.array([qid for qid in map(str, qids.tolist()) if qid not in known], dtype=str)
        if len(absent):
            raise DataError(f"There is no value to slice by for {listed(absent)}; give one for each query.")
        by = [known[str(qid)] for qid in qids.tolist()]
    return slices_of_values(by, len(qids)) if metadata is None else metadata.slices(by)


def slices_of_values(by: SliceBy | Slices, n: int) -> Slices:
    """The slices by one value for each of n queries, of which nothing else is known."""
    if isinstance(by, Slices) and len(by.codes) == n:
        return by
    if isinstance(by, Slices):
        raise DataError(f"The slices are of {len(by.codes):,} queries, but there are {n:,}.")
    if isinstance(by, str):
        raise DataError(f"Nothing is known of these queries, so they have no '{by}'; give one value for each query.")
    if isinstance(by, Mapping):
        raise DataError("These queries have no ids; give one value for each query, in their order.")
    column = checked_column(by, "slice")
    if len(column) != n:
        raise DataError(f"There are {len(column)} values to slice {n} queries by; there must be one for each query.")
    return _by_value("slice", column)


def _by_value(by: str, column: Array) -> Slices:
    values, codes = np.unique(column, return_inverse=True)
    if len(values) > _MAX_SLICES:
        further = f" For head and tail by its size, say 'head:{by}'." if column.dtype.kind in "if" else ""
        raise DataError(
            f"'{by}' has {len(values):,} different values, and each would be a slice; make at most {_MAX_SLICES} "
            f"classes of them.{further}"
        )
    if len(values) < 2:
        raise DataError(f"'{by}' is {_word(values[0])} for every query, so there is only one slice: all of them.")
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
            f"Head and tail go by how often a query comes or how large it is: '{name}' must hold numbers, none of them "
            "missing or negative, and not all zero."
        )
    values, counts = np.unique(column, return_counts=True)
    from_here = np.cumsum((values * counts)[::-1])[::-1]  # the sum over the queries of at least this value
    least = values[np.flatnonzero(2 * from_here >= from_here[0])[-1]]
    head = column >= least
    if head.all():
        raise DataError(
            f"'{name}' does not tell head from tail: half of its sum takes all {len(column):,} queries, since those of "
            "equal value stay together."
        )
    what = {"documents": "documents", "weight": "weight"}.get(name, f"'{name}'")
    rule = (
        f"Head: the queries with the most {what} that together make half of the whole, those of {least:g} and "
        "more; tail: all others."
    )
    return Slices(f"{_HEAD}{name}", ("head", "tail"), np.where(head, 0, 1).astype(np.int64), rule)
