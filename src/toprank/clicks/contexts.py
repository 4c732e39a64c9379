"""Contexts of impressions, such as the device of a session or the module of a page, and the cells that they make.

A context that is the same throughout each session (a device, a class of query) has positions of its own: each of its
lists has a first one. A context that varies within a session (the modules of a page, the columns of a grid) says with
the position where a document stood; both together are a cell, and the cells of a page are looked at by one user.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from toprank.clicks.log import Array, ClickLog, Numbered, ids_of, numbered, words_of
from toprank.compute import FloatArray, IntArray
from toprank.errors import DataError, UnknownNameError

MOST = 100
"""Contexts that are told apart: of each, positions must have been clicked often."""
_SLIP = 0.01  # a context that varies within fewer of the lists is that of whole sessions, and some are mistaken
_BETWEEN = " × "
Context = str | Sequence[str]
"""A column of the log, or several that are crossed."""


@dataclass(frozen=True, eq=False)
class Contexts:
    """The context of each impression.

    Attributes:
        columns: columns of the log that hold the context.
        names: names of the contexts, in order.
        number: of each impression, the number of its context among the names.
        varies: whether it varies within sessions, so that contexts and positions make cells.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    number: IntArray
    varies: bool

    @property
    def called(self) -> str:
        """The columns in words."""
        return _BETWEEN.join(self.columns)


def columns_of(context: Context) -> tuple[str, ...]:
    """The names of the columns, each once.

    >>> columns_of("device"), columns_of(["device", "surface", "device"])
    (('device',), ('device', 'surface'))
    """
    columns = (context,) if isinstance(context, str) else tuple(context)
    if not columns or not all(isinstance(name, str) and name for name in columns):
        raise DataError(f"context takes the name of a column of the log, or several names, not {context!r}.")
    return tuple(dict.fromkeys(columns))


def contexts_of(log: ClickLog, context: Context) -> Contexts:
    """The contexts of a log, by its columns; several columns are crossed.

    >>> log = ClickLog.of(["q", "q", "r"], list("abc"), [1, 2, 1], [0, 1, 0], device=["tv", "tv", "phone"])
    >>> contexts = contexts_of(log, "device")
    >>> contexts.names, contexts.number.tolist(), contexts.varies
    (('phone', 'tv'), [1, 1, 0], False)
    """
    columns = columns_of(context)
    if ("contexts", columns) not in log.worked_out:
        log.worked_out["contexts", columns] = _contexts_of(log, columns)
    contexts: Contexts = log.worked_out["contexts", columns]
    return contexts


def _contexts_of(log: ClickLog, columns: tuple[str, ...]) -> Contexts:
    """`contexts_of`, worked out."""
    number, names = np.zeros(log.n_impressions, np.int64), [""]
    for column in columns:
        values = _numbered(log, column)
        crossed = numbered(number * np.int64(len(values.ids)) + values.number)
        pairs = [divmod(int(code), len(values.ids)) for code in crossed.ids]
        words = words_of(values.ids).to_pylist()
        names = [_BETWEEN.join(filter(None, (names[first], words[second]))) for first, second in pairs]
        number = crossed.number
        if len(names) > MOST:
            raise DataError(
                f"{_BETWEEN.join(columns)} has {len(names):,} different values or more, and {MOST} are the most. A "
                "context has few values, such as a device, a surface or a class of queries; merge the rare ones."
            )
    return Contexts(columns, tuple(names), number, _varies(log, _BETWEEN.join(columns), number))


def _numbered(log: ClickLog, column: str) -> Numbered:
    """The values of a column; where one is missing, or is a fraction, it is refused."""
    if column not in log.columns:
        raise UnknownNameError("column of the log", column, log.columns)
    every = log.columns[column]
    heads = np.flatnonzero(np.append(True, every[1:] != every[:-1])[: len(every)])  # sessions are mostly of one context
    values, runs = every[heads], np.diff(np.append(heads, len(every)))
    missing = ~filled(values)
    if missing.any():
        first = int(log.session[heads[np.argmax(missing)]])
        raise DataError(
            f"{int(runs[missing].sum()):,} of {log.n_impressions:,} impressions have no {column} (the first in session "
            f"{log.session_names[first]}). Give each of them a value, such as 'unknown' where it is not known."
        )
    if values.dtype.kind == "f":
        if (values != np.floor(values)).any():
            raise DataError(f"{column} holds fractions, which cannot be contexts; cut them into a few classes.")
        values = values.astype(np.int64)
    coded = numbered(values)
    ids = coded.ids if values.dtype.kind in "iu" else ids_of(words_of(coded.ids))
    return Numbered(ids, np.repeat(coded.number, runs))


def filled(column: Array) -> Array:
    """Whether each cell of a column holds anything."""
    if column.dtype.kind == "U":
        return np.asarray(column != "")
    if column.dtype.kind != "O":
        return np.asarray(column == column)
    return np.asarray((column != "") & (column == column) & (column != np.array(None)))


def _varies(log: ClickLog, called: str, number: IntArray) -> bool:
    """Whether contexts vary within sessions; where they do in a few alone, it is taken for a mistake."""
    mixed = np.unique(log.session[1:][(np.diff(log.session) == 0) & (np.diff(number) != 0)])
    several = int((np.diff(log.offsets) > 1).sum())
    if not len(mixed):
        return False
    if len(mixed) >= _SLIP * several:
        return True
    shown = ", ".join(str(name) for name in log.session_names[mixed[:3]].tolist())
    raise DataError(
        f"{called} varies within {len(mixed):,} of {several:,} sessions (such as {shown}). A device or a class of "
        "queries belongs to a whole session, while modules of a page vary within most sessions. Give these sessions "
        "one value, or leave them out."
    )


@dataclass(frozen=True)
class ContextCells:
    """Which cell an impression stood in, whatever the log: a row of cells for each context, the first for all others.

    Attributes:
        columns: columns of the log that hold the context.
        names: names of the contexts.
        varies: whether they vary within sessions.
        depth: cells of each context, one for each position.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    varies: bool
    depth: int

    @property
    def called(self) -> str:
        """The columns in words."""
        return _BETWEEN.join(self.columns)

    @property
    def sentence(self) -> str:
        """What propensities belong to."""
        if self.varies:
            return f"Propensities are those of each cell of {self.called} and position."
        return f"Propensities are those of each position by {self.called}."

    def rows(self, log: ClickLog) -> IntArray:
        """Return the row of each impression's context; 0 if there is none.

        >>> log = ClickLog.of(["q", "q"], ["a", "a"], [1, 1], [0, 1], session=[1, 2], device=["tv", "phone"])
        >>> ContextCells(("device",), ("desktop", "phone"), False, 3).rows(log).tolist()
        [0, 2]
        """
        contexts = contexts_of(log, self.columns)
        if contexts.varies and not self.varies:
            raise DataError(
                f"{self.called} varies within sessions of this log, and the propensities are those of whole sessions: "
                "it must be a column of the same kind."
            )
        place = {name: number + 1 for number, name in enumerate(self.names)}
        return np.array([place.get(name, 0) for name in contexts.names], dtype=np.int64)[contexts.number]

    def cells(self, log: ClickLog) -> IntArray:
        """Return the number of each impression's cell."""
        return self.rows(log) * self.depth + log.position - 1

    def unknown(self, log: ClickLog) -> list[str]:
        """Contexts of a log that have no row of their own."""
        return [name for name in contexts_of(log, self.columns).names if name not in self.names]

    def at_ranks(
        self, log: ClickLog, session_query: IntArray, n_queries: int, deepest: int, values: Sequence[FloatArray]
    ) -> Iterator[FloatArray]:
        """Return for each query and rank, down to the deepest, the mean over its sessions of a number that cells have.

        Where contexts are those of sessions, a rank is a position. Where they vary within, the ranks fill the cells
        that a session had, by position and then by context: row by row, where contexts are columns. Ranks beyond them
        are not shown, and count 0. It is NaN where a number is.
        """
        rows = self.rows(log)
        in_data = session_query >= 0
        counts = log.session_weights
        sessions = np.bincount(session_query[in_data], counts[in_data], n_queries)
        n_sessions = np.where(sessions > 0, sessions, 1.0)[:, None]
        if not self.varies:
            key = session_query * (len(self.names) + 1) + rows[log.offsets[:-1]]
            size = (len(self.names) + 1) * n_queries
            shares = np.bincount(key[in_data], counts[in_data], size).reshape(n_queries, -1) / n_sessions
            for of in values:
                table = of.reshape(len(self.names) + 1, self.depth)[:, :deepest]
                unknown = (shares > 0) @ np.isnan(table)
                yield np.where(unknown, np.nan, shares @ np.nan_to_num(table))
            return
        order = np.lexsort((rows, log.position, log.session))
        rank = np.empty(log.n_impressions, np.int64)
        rank[order] = log.sessions.places
        query = session_query[log.session]
        used = (rank < deepest) & (query >= 0)
        key, cell = query[used] * deepest + rank[used], (rows * self.depth + log.position - 1)[used]
        weight = log.impression_weights[used]
        for of in values:
            yield np.bincount(key, of[cell] * weight, n_queries * deepest).reshape(n_queries, deepest) / n_sessions
