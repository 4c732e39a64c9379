"""What users would notice of a new ranker: how many lists change and how far, and the most affected, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData
from toprank.display.tables import Table
from toprank.errors import DataError

_REASONS = 3  # features that are named for each query


class AffectedQuery(NamedTuple):
    """One query whose list changes."""

    query: str
    sessions: int
    current: tuple[str, ...]
    """The top of its list now."""
    new: tuple[str, ...]
    """The top of its new list."""
    why: str
    """Which features lift the document that gains most over the one that loses most; empty where nobody can tell."""

    def table(self) -> Table:
        """Both lists, place by place; a document that comes in is marked."""
        rows = [
            (str(place + 1), before, after if after in self.current else f"{after} (comes in)")
            for place, (before, after) in enumerate(zip(self.current, self.new, strict=True))
        ]
        return Table(("place", "current", "new"), rows, names=3)


@dataclass(frozen=True)
class RankingChanges:
    """Lists that change, of the sessions of a log.

    Attributes:
        k: the depth that is compared.
        changed: the share of sessions whose top k differs in any way.
        first: the share of sessions with another first document.
        exchanged: the share of the documents in the top k that the new ranker leaves out.
        moved: how many places a document that stays in the top k moves, mean.
        affected: queries whose users are shown the most other things, the most affected first.
    """

    k: int
    changed: float
    first: float
    exchanged: float
    moved: float
    affected: tuple[AffectedQuery, ...]

    def __str__(self) -> str:
        return (
            f"{self.changed:.1%} of the sessions would see another top {self.k}, and {self.first:.1%} another first "
            f"document; {self.exchanged:.1%} of the documents in the top {self.k} would be new, and the others would "
            f"move by {self.moved:.1f} places."
        )


class RankPairs(NamedTuple):
    """Ranks of the documents by two rankers.

    Attributes:
        data: documents.
        new: rank of each document by the new ranker.
        current: its rank now.
        looks: how much more each document would be examined than now.
        k: the depth that is compared.
    """

    data: RankingData
    new: IntArray
    current: IntArray
    looks: FloatArray
    k: int


def compare_rankings(
    changes: RankPairs, sessions: FloatArray, ranker: Any = None, n_examples: int = 5
) -> RankingChanges:
    """Compare ranks of two rankers.

    Args:
        changes: the ranks.
        sessions: number of sessions of each query.
        ranker: the new one, to explain its lists; None: no explanation.
        n_examples: number of queries to show.
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
        float(share @ moved / max(float(share @ kept), 1e-300)), affected,  # no document stays: none of them moves
    )  # fmt: skip


def _affected(changes: RankPairs, q: int, sessions: int, ranker: Any) -> AffectedQuery:
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
    except DataError:  # a ranker of another library that cannot be asked
        return ""
    largest = sorted(explanation.contributions.items(), key=lambda pair: -abs(pair[1]))[:_REASONS]
    reasons = ", ".join(f"{name} {value:+.3g}" for name, value in largest if value)
    return f"{names[up]} over {names[down]}: {reasons}" if reasons else ""
