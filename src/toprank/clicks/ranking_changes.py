"""Ranking changes that users would notice: how many lists change, by how much, and the most affected queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData
from toprank.display.tables import Table
from toprank.errors import DataError

_REASONS = 3  # Number of features named for each query.


class AffectedQuery(NamedTuple):
    """A query whose list changes."""

    query: str
    sessions: int
    current: tuple[str, ...]
    """The top of the current list."""
    new: tuple[str, ...]
    """The top of the new list."""
    why: str
    """The features that favor the document that gains most over the one that loses most; empty if unknown."""

    def table(self) -> Table:
        """Return both lists side by side, with documents marked that enter the list."""
        rows = [
            (str(place + 1), before, after if after in self.current else f"{after} (comes in)")
            for place, (before, after) in enumerate(zip(self.current, self.new, strict=True))
        ]
        return Table(("place", "current", "new"), rows, names=3)


@dataclass(frozen=True)
class RankingChanges:
    """Changes of the lists in the sessions of a log.

    Attributes:
        k: depth of the comparison.
        changed: fraction of sessions whose top k changes in any way.
        first: fraction of sessions whose first document changes.
        exchanged: fraction of the documents in the top k that are replaced.
        moved: mean number of ranks that a document which stays in the top k moves.
        affected: queries with the largest changes in exposure, the most affected first.
    """

    k: int
    changed: float
    first: float
    exchanged: float
    moved: float
    affected: tuple[AffectedQuery, ...]

    def __str__(self) -> str:
        return (
            f"The top {self.k} changes in {self.changed:.1%} of the sessions, and the first document in "
            f"{self.first:.1%}; {self.exchanged:.1%} of the documents in the top {self.k} are new, and the others move "
            f"by {self.moved:.1f} ranks on average."
        )


class RankingPair(NamedTuple):
    """Ranks of the documents by two rankers.

    Attributes:
        data: documents.
        new: rank of each document by the new ranker.
        current: rank of each document by the current ranker.
        looks: change in the exposure of each document.
        k: depth of the comparison.
    """

    data: RankingData
    new: IntArray
    current: IntArray
    looks: FloatArray
    k: int


def compare_rankings(
    changes: RankingPair, sessions: FloatArray, ranker: Any = None, n_examples: int = 5
) -> RankingChanges:
    """Compare the ranks of two rankers.

    Args:
        changes: the ranks.
        sessions: number of sessions of each query.
        ranker: the new ranker, to explain its lists; None for no explanation.
        n_examples: number of queries to show. Default: 5.
    """
    data, new, current, looks, k = changes
    query, n, in_log = data.queries.document_query, data.n_queries, sessions > 0
    before, after = current <= k, new <= k
    lists = np.minimum(data.queries.sizes, k)
    stays = before & after

    def of_query(rows: Any, weights: Any = None) -> FloatArray:
        return np.bincount(query[rows], None if weights is None else weights[rows], n).astype(np.float64)

    differs = of_query((before | after) & (new != current)) > 0
    other = of_query((current == 1) & (new != 1))
    kept = of_query(stays)
    share = sessions / sessions.sum()
    moved = of_query(stays, np.abs(new - current).astype(np.float64))
    upset = sessions * of_query(np.ones(len(query), dtype=bool), np.abs(looks))
    order = np.argsort(-upset, kind="stable")[:n_examples]
    affected = tuple(
        _affected(changes, int(q), int(sessions[q]), ranker) for q in order.tolist() if in_log[q] and upset[q] > 0
    )
    return RankingChanges(
        k, float(share @ differs), float(share @ other), float(share @ (1 - kept / lists)),
        float(share @ moved / max(float(share @ kept), 1e-300)), affected,  # If no document stays, the mean move is 0.
    )  # fmt: skip


def _affected(changes: RankingPair, q: int, sessions: int, ranker: Any) -> AffectedQuery:
    data, new, current, looks, k = changes
    rows = np.arange(data.queries.offsets[q], data.queries.offsets[q + 1])
    names = np.asarray(data.row_names)
    tops = [rows[np.argsort(ranks[rows], kind="stable")][:k] for ranks in (current, new)]
    lists = [tuple(str(name) for name in names[top].tolist()) for top in tops]
    up, down = rows[np.argmax(looks[rows])], rows[np.argmin(looks[rows])]
    return AffectedQuery(str(data.qids[q]), sessions, lists[0], lists[1], _why(ranker, data, q, int(up), int(down)))


def _why(ranker: Any, data: RankingData, q: int, up: int, down: int) -> str:
    if not hasattr(ranker, "explain") or up == down:
        return ""
    names = np.asarray(data.row_names)
    try:
        explanation = ranker.explain(data, data.qids[q], names[up], names[down])
    except DataError:  # A ranker of another library, which has no explanations.
        return ""
    largest = sorted(explanation.contributions.items(), key=lambda pair: -abs(pair[1]))[:_REASONS]
    reasons = ", ".join(f"{name} {value:+.3g}" for name, value in largest if value)
    return f"{names[up]} over {names[down]}: {reasons}" if reasons else ""
