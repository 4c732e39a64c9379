"""Whether propensities differ between contexts at all: a score test whose level does not hang on the users.

Where they do not differ, of C clicks on a document that was shown n_k times at position k, C n_k θ_k / Σ n_j θ_j are
expected at k, in each context with the same θ. What is clicked beyond that, by context and position, is the score. It
is 0 in expectation however much more one context is clicked than another, and, where contexts are those of whole
sessions, whatever its users like: its documents are then compared with themselves alone. Queries are independent, so
the sum of their scores is compared with sums in which each query's has a sign drawn by lot; that θ was learnt from the
same clicks is taken out first, by what the scores of the positions explain (Neyman's orthogonal scores).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from toprank.clicks.contexts import Contexts
from toprank.clicks.harvests import relative_examinations
from toprank.clicks.log import ClickLog, sums, sums_by
from toprank.compute import FloatArray, IntArray

_DEEPEST = 50  # what lies below is clicked too rarely to add anything, and would cost more than all above
_GROUPS = 500  # of queries, whose signs are drawn together where there are more: enough for signs to be normal
_FLIPS = 1_999
_FEWEST = 8  # queries or groups: of fewer, signs cannot tell 1 in 100
_PRIOR = 1e-6  # clicks at each position, as `harvests` has it
_ROUNDING = 1e-9


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
    """Test whether contexts change how likely positions are looked at.

    >>> rng = np.random.default_rng(0)
    >>> n = 4_000
    >>> device, query = rng.integers(0, 2, n), rng.integers(0, 40, n)
    >>> chance = np.where(device == 1, 0.4, np.where(np.arange(n) % 2, 0.1, 0.4))
    >>> log = ClickLog.of(query, query, 1 + np.arange(n) % 2, rng.random(n) < chance, np.arange(n), device=device)
    >>> from toprank.clicks.contexts import contexts_of
    >>> differ(log, contexts_of(log, "device")).p < 0.001
    True
    """
    depth, n_contexts = min(log.depth, _DEEPEST), len(contexts.names)
    cells = _cells(log, contexts, depth)
    if n_contexts < 2 or not len(cells.document):
        return ContextTest(np.nan, 0)
    scores, clicks = _scores(cells, n_contexts, depth)
    speaking = np.flatnonzero(np.abs(scores).max(axis=1, initial=0) > _ROUNDING * max(cells.clicked.sum(), 1))
    if len(speaking) < _FEWEST:
        return ContextTest(np.nan, len(speaking))
    weight = np.repeat(1 / np.maximum(clicks, 1), depth)
    statistic = float(scores.sum(axis=0) ** 2 @ weight)
    if not statistic > 0:
        return ContextTest(np.nan, len(speaking))
    signs = np.random.default_rng(seed).integers(0, 2, (_FLIPS, len(speaking))) * 2.0 - 1
    by_lot = (signs @ scores[speaking]) ** 2 @ weight
    return ContextTest(float((1 + (by_lot >= statistic * (1 - _ROUNDING)).sum()) / (1 + _FLIPS)), len(speaking))


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
    group = number % _GROUPS if int(number.max()) >= _GROUPS else number
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
    return relative_examinations(begins, (key % depth).astype(np.int32), shown, clicked, depth, _PRIOR)[0]
