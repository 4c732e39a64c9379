"""Contexts of impressions, such as the device of a session or the module of a page, and whether propensities differ.

A context that is constant within each session (a device, a class of queries) has positions of its own: each of its
lists has a first one. A context that varies within a session (the modules of a page, the columns of a grid) determines
with the position where a document was shown; both together are a cell, and the cells of a page belong to one user.
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

_MAX_CONTEXTS = 100  # positions must have been clicked often in each
_MAX_MIXED_RATE = 0.01  # of the sessions: a context that varies within fewer belongs to sessions, and some are mistaken
_SEPARATOR = " × "
_MAX_POSITION = 50  # of the test: lower positions are clicked too rarely to add anything, and cost the most
_MAX_GROUPS = 500  # of queries, whose signs are drawn together if there are more: enough for a normal limit
_N_SIGN_FLIPS = 1_999
_MIN_GROUPS = 8  # queries or groups: signs of fewer cannot reach a p-value of 1 %
_PRIOR_CLICKS = 1e-6  # clicks at each position, as in `intervention_harvesting`
_ROUNDING = 1e-9
Context = str | Sequence[str]  # a column of the log, or several that are crossed


@dataclass(frozen=True)
class ContextCells:
    """The cell of an impression of any log: a row of cells for each context, after one for all unknown contexts.

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
        return _SEPARATOR.join(self.columns)

    @property
    def sentence(self) -> str:
        """What propensities belong to."""
        if self.varies:
            return f"Propensities are those of each cell of {self.called} and position."
        return f"Propensities are those of each position by {self.called}."

    def rows(self, log: ClickLog) -> IntArray:
        """Return the row of each impression's context; 0 if there is none.

        >>> log = ClickLog.from_columns(["q", "q"], ["a", "a"], [1, 1], [0, 1], session=[1, 2], device=["tv", "phone"])
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
    """Compute `contexts_of`, which caches it."""
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
                f"{_SEPARATOR.join(columns)} has {len(names):,} different values or more, and {_MAX_CONTEXTS} are "
                "the most. A context has few values, such as a device, a surface or a class of queries; merge the rare "
                "ones."
            )
    return Contexts(columns, tuple(names), _varies(log, _SEPARATOR.join(columns), number), log.depth, number)


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
    """Return whether each cell of a column has a value."""
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
    if len(mixed) >= _MAX_MIXED_RATE * several:
        return True
    shown = ", ".join(str(name) for name in log.session_names[mixed[:3]].tolist())
    raise DataError(
        f"{called} varies within {len(mixed):,} of {several:,} sessions (such as {shown}). A device or a class of "
        "queries belongs to a whole session, while modules of a page vary within most sessions. Give these sessions "
        "one value, or leave them out."
    )


# ---- the test whether contexts differ ----


class ContextTest(NamedTuple):
    """Whether contexts differ: the p-value, NaN where the log cannot tell, and how many queries said something."""

    p: float
    queries: int

    @property
    def is_known(self) -> bool:
        """Whether the log can tell at all."""
        return bool(np.isfinite(self.p))


def changes_looks(called: str, p: float) -> str:
    """The sentence on contexts that differ.

    >>> changes_looks("device", 0.0123)
    'device changes how likely users look at a position (p = 0.012).'
    """
    return f"{called} changes how likely users look at a position ({'p < 0.001' if p < 0.001 else f'p = {p:.3f}'})."


class _Cells(NamedTuple):
    """Documents in cells: of each entry the document, cell and position, how often it was shown, and its clicks."""

    document: IntArray
    cell: IntArray
    position: IntArray
    shown: FloatArray
    clicked: FloatArray
    query: IntArray


def differ(log: ClickLog, contexts: Contexts, seed: int = 0) -> ContextTest:
    """Test whether propensities differ between contexts, by a score test whose level holds for any users.

    Where they do not differ, of C clicks on a document that was shown n_k times at position k, C n_k θ_k / Σ n_j θ_j
    are expected at k, in each context with the same θ. What is clicked beyond that, by context and position, is the
    score. It is 0 in expectation however much more one context is clicked than another, and, where contexts are those
    of whole sessions, whatever its users like: its documents are then compared with themselves alone. Queries are
    independent, so the sum of their scores is compared with sums under random signs, one per query. The effect of
    learning θ from the same clicks is removed first, by Neyman's orthogonal scores.

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
    """Documents that were clicked, in cells; contexts of whole sessions have each its own documents."""
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
    """The orthogonal scores of groups of queries, a number for each cell; and the clicks of each context."""
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
        return csr_matrix((of, (cells.document, columns)), shape=(n, width))  # repeated entries add up

    by_position = of_documents(share, cells.position, depth)
    explained = -(of_documents(expected, cells.cell, n_cells).T @ by_position).toarray()
    explained[np.arange(n_cells), np.arange(n_cells) % depth] += sums(cells.cell, expected, n_cells)
    of_positions = explained.reshape(n_contexts, depth, depth).sum(axis=0)
    scores = scores - scores.reshape(-1, n_contexts, depth).sum(axis=1) @ np.linalg.pinv(of_positions) @ explained.T
    return scores, sums(cells.cell // depth, cells.clicked, n_contexts)


def _examinations(cells: _Cells, n: int, depth: int) -> FloatArray:
    """The θ that all contexts have where they do not differ."""
    key, (shown, clicked) = sums_by(cells.document * np.int64(depth) + cells.position, cells.shown, cells.clicked)
    begins = np.searchsorted(key // depth, np.arange(n + 1))
    return relative_examinations(begins, (key % depth).astype(np.int32), shown, clicked, depth, _PRIOR_CLICKS)[0]
