"""Contexts of impressions, such as the device of a session or the module of a page, and a test whether propensities
differ.

A context that is constant within each session (a device, a class of queries) has its own positions, from a first one
on. A context that varies within a session (the modules of a page, the columns of a grid) locates a document together
with the position. Both together form a cell, and one user sees all cells of a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from toprank.clicks.intervention_harvesting import relative_examinations
from toprank.clicks.log import Array, ClickLog, Numbered, ids_of, numbered, sums, sums_by, words_of
from toprank.compute import FloatArray, IntArray
from toprank.errors import DataError, UnknownNameError

_MAX_CONTEXTS = 100  # each context needs many clicks at each position
_MAX_MIXED_RATE = 0.01  # fewer sessions with several contexts are mistakes in the log
_SEPARATOR = " × "
_MAX_POSITION = 50  # lower positions add cost but few clicks to the test
_MAX_GROUPS = 500  # more queries share random signs in groups
_N_SIGN_FLIPS = 1_999
_MIN_GROUPS = 8  # random signs of fewer groups cannot reach p = 1 %
_PRIOR_CLICKS = 1e-6  # at each position, as in `intervention_harvesting`
_ROUNDING = 1e-9
Context = str | Sequence[str]  # a column of the log, or several crossed columns


@dataclass(frozen=True)
class ContextCells:
    """The cells of contexts and positions: a row for each context, after one for unknown contexts.

    Attributes:
        columns: columns of the log that hold the context.
        names: names of the contexts.
        varies: whether they vary within sessions.
        depth: number of cells of each context, one per position.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    varies: bool
    depth: int

    @property
    def called(self) -> str:
        """The columns, as text."""
        return _SEPARATOR.join(self.columns)

    @property
    def sentence(self) -> str:
        """A sentence on how propensities are grouped."""
        if self.varies:
            return f"Propensities are those of each cell of {self.called} and position."
        return f"Propensities are those of each position by {self.called}."

    def rows(self, log: ClickLog) -> IntArray:
        """Return the row of the context of each impression; 0 if it is unknown.

        >>> log = ClickLog.from_columns(["q", "q"], ["a", "a"], [1, 1], [0, 1], session=[1, 2], device=["tv", "phone"])
        >>> ContextCells(("device",), ("desktop", "phone"), False, 3).rows(log).tolist()
        [0, 2]
        """
        contexts = contexts_of(log, self.columns)
        if contexts.varies and not self.varies:
            raise DataError(
                f"{self.called} varies within sessions of this log, but the propensities are those of whole "
                "sessions. Use a column that is constant within sessions."
            )
        place = {name: number + 1 for number, name in enumerate(self.names)}
        return np.array([place.get(name, 0) for name in contexts.names], dtype=np.int64)[contexts.number]

    def cells(self, log: ClickLog) -> IntArray:
        """Return the index of the cell of each impression."""
        return self.rows(log) * self.depth + log.position - 1

    def unknown(self, log: ClickLog) -> list[str]:
        """Return the contexts of a log without a row."""
        return [name for name in contexts_of(log, self.columns).names if name not in self.names]

    def at_ranks(
        self, log: ClickLog, session_query: IntArray, n_queries: int, deepest: int, values: Sequence[FloatArray]
    ) -> Iterator[FloatArray]:
        """Yield the mean over sessions of a quantity of cells, for each query and rank down to the deepest.

        If contexts are those of sessions, a rank is a position. If they vary within sessions, ranks fill the cells of a
        session by position and then by context, which is row by row for columns of a grid. Ranks beyond them are not
        shown and count 0. The mean is NaN if a value is.
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
        rank[order] = log.sessions.positions_in_query
        query = session_query[log.session]
        used = (rank < deepest) & (query >= 0)
        key, cell = query[used] * deepest + rank[used], (rows * self.depth + log.position - 1)[used]
        weight = log.impression_weights[used]
        for of in values:
            yield np.bincount(key, of[cell] * weight, n_queries * deepest).reshape(n_queries, deepest) / n_sessions


@dataclass(frozen=True, eq=False)
class Contexts(ContextCells):
    """The context of each impression of one log.

    Attributes:
        number: index into `names` for each impression; -1 for contexts without a name.
    """

    number: IntArray


def columns_of(context: Context) -> tuple[str, ...]:
    """Return the distinct names of the columns.

    >>> columns_of("device"), columns_of(["device", "surface", "device"])
    (('device',), ('device', 'surface'))
    """
    columns = (context,) if isinstance(context, str) else tuple(context)
    if not columns or not all(isinstance(name, str) and name for name in columns):
        raise DataError(f"context takes the name of a column of the log, or several names, not {context!r}.")
    return tuple(dict.fromkeys(columns))


def contexts_of(log: ClickLog, context: Context) -> Contexts:
    """Return the contexts of a log by its columns; several columns are crossed.

    >>> log = ClickLog.from_columns(["q", "q", "r"], list("abc"), [1, 2, 1], [0, 1, 0], device=["tv", "tv", "phone"])
    >>> contexts = contexts_of(log, "device")
    >>> contexts.names, contexts.number.tolist(), contexts.varies
    (('phone', 'tv'), [1, 1, 0], False)
    """
    columns = columns_of(context)
    contexts: Contexts | None = log.cache.get(("contexts", columns))
    if contexts is None:
        contexts = log.cache["contexts", columns] = _contexts_of(log, columns)
    return contexts


def _contexts_of(log: ClickLog, columns: tuple[str, ...]) -> Contexts:
    """Compute the result of `contexts_of`, which caches it."""
    number, names = np.zeros(log.n_impressions, np.int64), [""]
    for column in columns:
        values = _numbered(log, column)
        crossed = numbered(number * np.int64(len(values.ids)) + values.number)
        pairs = [divmod(int(code), len(values.ids)) for code in crossed.ids]
        words = words_of(values.ids).to_pylist()
        names = [_SEPARATOR.join(filter(None, (names[first], words[second]))) for first, second in pairs]
        number = crossed.number
        if len(names) > _MAX_CONTEXTS:
            raise DataError(
                f"{_SEPARATOR.join(columns)} has {len(names):,} or more different values, but at most {_MAX_CONTEXTS} "
                "are allowed. A context has few values, such as a device, a surface or a class of queries; merge rare "
                "values."
            )
    return Contexts(columns, tuple(names), _varies(log, _SEPARATOR.join(columns), number), log.depth, number)


def _numbered(log: ClickLog, column: str) -> Numbered:
    """Factorize a column; raise an error for missing and fractional values."""
    if column not in log.columns:
        raise UnknownNameError("column of the log", column, log.columns)
    every = log.columns[column]
    heads = np.flatnonzero(np.append(True, every[1:] != every[:-1])[: len(every)])  # most sessions have one context
    values, runs = every[heads], np.diff(np.append(heads, len(every)))
    missing = ~filled(values)
    if missing.any():
        first = int(log.session[heads[np.argmax(missing)]])
        raise DataError(
            f"{int(runs[missing].sum()):,} of {log.n_impressions:,} impressions have no {column} (the first in session "
            f"{log.session_names[first]}). Fill them in, for example with 'unknown'."
        )
    if values.dtype.kind == "f":
        if (values != np.floor(values)).any():
            raise DataError(f"{column} holds fractions, which cannot be contexts; bin them into a few classes.")
        values = values.astype(np.int64)
    coded = numbered(values)
    ids = coded.ids if values.dtype.kind in "iu" else ids_of(words_of(coded.ids))
    return Numbered(ids, np.repeat(coded.number, runs))


def filled(column: Array) -> Array:
    """Return whether each cell of a column has a value."""
    if column.dtype.kind == "U":
        return np.asarray(column != "")
    if column.dtype.kind != "O":
        return np.asarray(column == column)
    return np.asarray((column != "") & (column == column) & (column != np.array(None)))


def _varies(log: ClickLog, called: str, number: IntArray) -> bool:
    """Return whether contexts vary within sessions; raise an error if they do in only a few."""
    mixed = np.unique(log.session[1:][(np.diff(log.session) == 0) & (np.diff(number) != 0)])
    several = int((np.diff(log.offsets) > 1).sum())
    if not len(mixed):
        return False
    if len(mixed) >= _MAX_MIXED_RATE * several:
        return True
    shown = ", ".join(str(name) for name in log.session_names[mixed[:3]].tolist())
    raise DataError(
        f"{called} varies within {len(mixed):,} of {several:,} sessions (such as {shown}). A device or a class of "
        "queries belongs to a whole session, while modules of a page vary within most sessions. Give these sessions "
        "one value, or drop them."
    )


# ---- test whether contexts differ ----


class ContextTest(NamedTuple):
    """The test whether contexts differ: the p-value, NaN if unidentified, and the number of informative queries."""

    p: float
    queries: int

    @property
    def is_known(self) -> bool:
        """True if the log identifies whether contexts differ."""
        return bool(np.isfinite(self.p))


def changes_looks(called: str, p: float) -> str:
    """Return the sentence that contexts differ.

    >>> changes_looks("device", 0.0123)
    'device changes how likely users examine a position (p = 0.012).'
    """
    return f"{called} changes how likely users examine a position ({'p < 0.001' if p < 0.001 else f'p = {p:.3f}'})."


class _Cells(NamedTuple):
    """Documents in cells: document, cell, position, impressions and clicks of each entry."""

    document: IntArray
    cell: IntArray
    position: IntArray
    shown: FloatArray
    clicked: FloatArray
    query: IntArray


def differ(log: ClickLog, contexts: Contexts, seed: int = 0) -> ContextTest:
    """Test whether propensities differ between contexts, by a score test that is valid for any users.

    Under the null hypothesis, a document with C clicks that was shown n_k times at position k has C n_k θ_k / Σ n_j θ_j
    expected clicks there, with the same θ in each context. The score is the excess of clicks by context and position.
    Its expectation is 0 even if one context is clicked more often than another. If contexts are those of whole
    sessions, it is 0 whatever their users like, because documents are then only compared within a context. The sum of
    the scores is compared with sums under random signs of whole queries, which are independent. Neyman's orthogonal
    scores remove the effect of estimating θ from the same clicks.

    >>> rng = np.random.default_rng(0)
    >>> n = 4_000
    >>> device, query = rng.integers(0, 2, n), rng.integers(0, 40, n)
    >>> chance = np.where(device == 1, 0.4, np.where(np.arange(n) % 2, 0.1, 0.4))
    >>> position, click = 1 + np.arange(n) % 2, rng.random(n) < chance
    >>> log = ClickLog.from_columns(query, query, position, click, np.arange(n), device=device)
    >>> differ(log, contexts_of(log, "device")).p < 0.001
    True
    """
    depth, n_contexts = min(log.depth, _MAX_POSITION), len(contexts.names)
    cells = _cells(log, contexts, depth)
    if n_contexts < 2 or not len(cells.document):
        return ContextTest(np.nan, 0)
    scores, clicks = _scores(cells, n_contexts, depth)
    speaking = np.flatnonzero(np.abs(scores).max(axis=1, initial=0) > _ROUNDING * max(cells.clicked.sum(), 1))
    if len(speaking) < _MIN_GROUPS:
        return ContextTest(np.nan, len(speaking))
    weight = np.repeat(1 / np.maximum(clicks, 1), depth)
    statistic = float(scores.sum(axis=0) ** 2 @ weight)
    if not statistic > 0:
        return ContextTest(np.nan, len(speaking))
    signs = np.random.default_rng(seed).integers(0, 2, (_N_SIGN_FLIPS, len(speaking))) * 2.0 - 1
    by_lot = (signs @ scores[speaking]) ** 2 @ weight
    return ContextTest(float((1 + (by_lot >= statistic * (1 - _ROUNDING)).sum()) / (1 + _N_SIGN_FLIPS)), len(speaking))


def _cells(log: ClickLog, contexts: Contexts, depth: int) -> _Cells:
    """Return the clicked documents in cells; contexts of whole sessions have separate documents."""
    used = log.position <= depth
    n_contexts = np.int64(len(contexts.names))
    document = log.pair if contexts.varies else log.pair * n_contexts + contexts.number
    cell = contexts.number * np.int64(depth) + log.position - 1
    weight = log.impression_weights
    key, (shown, clicked) = sums_by(
        document[used] * (n_contexts * depth) + cell[used], weight[used], (weight * log.clicks)[used]
    )
    of, cell = key // (n_contexts * depth), key % (n_contexts * depth)
    pair = of if contexts.varies else of // n_contexts
    total = sums(of, clicked, int(of.max(initial=0)) + 1)
    kept = total[of] > 0
    document = np.unique(of[kept], return_inverse=True)[1]
    return _Cells(document, cell[kept], cell[kept] % depth, shown[kept], clicked[kept], log.pair_query[pair[kept]])


def _scores(cells: _Cells, n_contexts: int, depth: int) -> tuple[FloatArray, FloatArray]:
    """Return the orthogonal scores of groups of queries, one for each cell, and the clicks of each context."""
    from scipy.sparse import csr_matrix

    n, n_cells = int(cells.document.max()) + 1, n_contexts * depth
    mass = cells.shown * _examinations(cells, n, depth)[cells.position]
    total, clicks = sums(cells.document, mass, n), sums(cells.document, cells.clicked, n)
    share = mass / total[cells.document]
    expected = clicks[cells.document] * share
    number = np.unique(cells.query, return_inverse=True)[1]
    group = number % _MAX_GROUPS if int(number.max()) >= _MAX_GROUPS else number
    excess = sums(group * np.int64(n_cells) + cells.cell, cells.clicked - expected, (int(group.max()) + 1) * n_cells)
    scores = excess.reshape(-1, n_cells)

    def of_documents(of: FloatArray, columns: IntArray, width: int) -> Any:
        return csr_matrix((of, (cells.document, columns)), shape=(n, width))  # duplicate entries add up

    by_position = of_documents(share, cells.position, depth)
    explained = -(of_documents(expected, cells.cell, n_cells).T @ by_position).toarray()
    explained[np.arange(n_cells), np.arange(n_cells) % depth] += sums(cells.cell, expected, n_cells)
    of_positions = explained.reshape(n_contexts, depth, depth).sum(axis=0)
    scores = scores - scores.reshape(-1, n_contexts, depth).sum(axis=1) @ np.linalg.pinv(of_positions) @ explained.T
    return scores, sums(cells.cell // depth, cells.clicked, n_contexts)


def _examinations(cells: _Cells, n: int, depth: int) -> FloatArray:
    """Return the common θ of all contexts under the null hypothesis."""
    key, (shown, clicked) = sums_by(cells.document * np.int64(depth) + cells.position, cells.shown, cells.clicked)
    begins = np.searchsorted(key // depth, np.arange(n + 1))
    return relative_examinations(begins, (key % depth).astype(np.int32), shown, clicked, depth, _PRIOR_CLICKS)[0]
