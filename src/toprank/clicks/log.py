"""A log of what was shown and what was clicked: sessions, each a list of documents in the order of their positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.checks import check_data
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.errors import DataError

__all__ = ["ClickLog"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class ClickLog:
    """Impressions as flat arrays; session s owns the impressions ``offsets[s]:offsets[s + 1]``, by position.

    A pair is a query with one of its documents; what click models learn belongs to pairs.

    Attributes:
        offsets: where each session begins, and the end.
        session_query: the number of each session's query.
        qids: the ids of the queries.
        pair: of each impression, the number of its pair.
        pair_query: of each pair, the number of its query.
        document_ids: of each pair, the id of its document.
        position: of each impression, from 1, rising within a session.
        clicks: of each impression.
        columns: what else is known of each impression: ``dwell``, ``time``, ``ranker`` …
    """

    offsets: IntArray
    session_query: IntArray
    qids: Array
    pair: IntArray
    pair_query: IntArray
    document_ids: Array
    position: IntArray
    clicks: npt.NDArray[np.bool_]
    columns: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        query: npt.ArrayLike,
        document: npt.ArrayLike,
        position: npt.ArrayLike,
        click: npt.ArrayLike,
        session: npt.ArrayLike | None = None,
        **columns: npt.ArrayLike,
    ) -> ClickLog:
        """A log of impressions, one row each, in any order; the rows of a session become neighbours.

        Without `session`, rows stand in the order of the log, and a session ends where the query changes or the
        position does not rise.

        >>> log = ClickLog.of(["a", "a", "a", "a"], ["x", "y", "y", "x"], [1, 2, 1, 2], [0, 1, 1, 0])
        >>> log.n_sessions, log.n_pairs, log.clicks.tolist()
        (2, 2, [False, True, True, False])
        """
        places = _places(position)
        qids, query_of = _numbered(query, "query", len(places))
        named, document_of = _numbered(document, "document", len(places))
        clicks = _clicks(click, len(places))
        if session is None:
            begins = (
                np.r_[True, (np.diff(query_of) != 0) | (np.diff(places) <= 0)] if len(places) else np.empty(0, bool)
            )
            session_of = np.cumsum(begins) - 1
        else:
            _, session_of = _numbered(session, "session", len(places))
        order = np.lexsort((places, session_of))
        session_of, query_of, document_of = session_of[order], query_of[order], document_of[order]
        starts = np.flatnonzero(np.r_[True, np.diff(session_of) > 0]) if len(order) else np.empty(0, np.int64)
        offsets = np.append(starts, len(order)).astype(np.int64)
        mixed = np.flatnonzero((np.diff(session_of) == 0) & (np.diff(query_of) != 0))
        if len(mixed):
            raise DataError(
                f"A session has several queries, {qids[query_of[mixed[0]]]!r} and {qids[query_of[mixed[0] + 1]]!r} "
                "for one: give every list of results a session of its own, or leave the session out."
            )
        pairs, pair = np.unique(query_of * np.int64(len(named)) + document_of, return_inverse=True)
        return cls(
            offsets, query_of[starts], qids, pair.reshape(-1), pairs // len(named), named[pairs % len(named)],
            places[order], clicks[order],
            {name: _column(name, values, len(order))[order] for name, values in columns.items()},
        )  # fmt: skip

    @property
    def n_impressions(self) -> int:
        """Number of rows."""
        return len(self.pair)

    @property
    def n_sessions(self) -> int:
        """Number of lists that were shown."""
        return len(self.session_query)

    @property
    def n_queries(self) -> int:
        """Number of different queries."""
        return len(self.qids)

    @property
    def n_pairs(self) -> int:
        """Number of different documents of queries."""
        return len(self.pair_query)

    @property
    def depth(self) -> int:
        """The lowest position that was shown."""
        return int(self.position.max(initial=0))

    @cached_property
    def sessions(self) -> Queries:
        """The sessions as ragged arrays are split."""
        return Queries(self.offsets)

    @cached_property
    def session(self) -> IntArray:
        """Of each impression, the number of its session."""
        return np.repeat(np.arange(self.n_sessions), np.diff(self.offsets))

    @cached_property
    def query(self) -> IntArray:
        """Of each impression, the number of its query."""
        return self.session_query[self.session]

    def select(self, sessions: npt.ArrayLike) -> ClickLog:
        """The log of some sessions (numbers or a mask), in their order; queries and pairs keep their numbers."""
        chosen = np.asarray(sessions)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        sizes = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], sizes)
        return ClickLog(
            offsets, self.session_query[chosen], self.qids, self.pair[rows], self.pair_query, self.document_ids,
            self.position[rows], self.clicks[rows], {name: values[rows] for name, values in self.columns.items()},
        )  # fmt: skip

    def rows(self, data: RankingData) -> IntArray:
        """Of each pair the row of `data` that has its query and document, by ids; -1 where there is none.

        >>> data = RankingData([[0.5], [0.7]], qid=["a", "a"], document_ids=["y", "x"])
        >>> ClickLog.of(["a", "a"], ["x", "z"], [1, 2], [0, 1]).rows(data).tolist()
        [1, -1]
        """
        check_data("the join with a click log", data)
        if data.document_ids is None:
            raise DataError("The data have no document ids to find the documents of the log by; read them with ids.")
        queries = {str(qid): number for number, qid in enumerate(data.qids.tolist())}
        numbers = np.array([queries.get(str(qid), -1) for qid in self.qids.tolist()], dtype=np.int64)
        of_query = zip(data.queries.document_query.tolist(), data.document_ids.tolist(), strict=True)
        where = {(query, str(name)): row for row, (query, name) in enumerate(of_query)}
        wanted = zip(numbers[self.pair_query].tolist(), self.document_ids.tolist(), strict=True)
        return np.array([where.get((query, str(name)), -1) for query, name in wanted], dtype=np.int64)

    def __repr__(self) -> str:
        return (
            f"ClickLog({self.n_sessions:,} sessions, {self.n_impressions:,} impressions, "
            f"{int(self.clicks.sum()):,} clicks, {self.n_queries:,} queries, {self.n_pairs:,} documents)"
        )


def _numbered(values: npt.ArrayLike, role: str, n: int) -> tuple[Array, IntArray]:
    """The different ids, in order, and the number of each row's."""
    array = _column(role, values, n)
    ids, number = np.unique(array.astype(str) if array.dtype.kind == "O" else array, return_inverse=True)
    return ids, number.reshape(-1).astype(np.int64)


def _column(role: str, values: npt.ArrayLike, n: int) -> Array:
    array = np.asarray(values)
    if array.shape != (n,):
        raise DataError(f"There are {n:,} positions, but {role} has the shape {array.shape}; give one for each row.")
    return array


def _places(position: npt.ArrayLike) -> IntArray:
    array = np.asarray(position)
    if array.ndim != 1:
        raise DataError("Positions must be a column of whole numbers from 1.")
    numbers = array.astype(np.float64)
    bad = np.flatnonzero(~((numbers >= 1) & (numbers == np.floor(numbers)) & (numbers < 2**31)))
    if len(bad):
        raise DataError(
            f"Row {bad[0]} has the position {array[bad[0]]}, and so have {len(bad) - 1:,} others none from 1 on: "
            "positions are whole numbers that count from 1. Add 1 where the log counts from 0; leave the rows out "
            "where nothing was shown."
        )
    return numbers.astype(np.int64)


def _clicks(click: npt.ArrayLike, n: int) -> npt.NDArray[np.bool_]:
    array = _column("click", click, n)
    numbers: FloatArray = array.astype(np.float64)
    bad = np.flatnonzero(~(numbers >= 0))
    if len(bad):
        raise DataError(f"Row {bad[0]} has the click {array[bad[0]]}; give 0 or 1, or how often it was clicked.")
    return numbers > 0
