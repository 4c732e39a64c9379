"""Why the best ranker orders as it does: which features its metric depends on, and one pair that it got wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from toprank.data.dataset import RankingData
from toprank.drawing import Markup, tag
from toprank.errors import DataError
from toprank.explaining import Importance, changes, importance
from toprank.rankers.base import Ranker
from toprank.rankers.contributions import Sampling
from toprank.rankers.explanation import AskedQuery, Explanation, explained
from toprank.report.content import Explained, RankedCollection
from toprank.report.parts import Panel, panel, side_by_side

_REPEATS = 3
_SCORED = 1_000_000  # documents that are scored for importance at most: some seconds
_LEAST = 10  # queries, below which their losses say nothing


def explained_ranker(
    part: RankedCollection, data: RankingData, rankers: Mapping[str, Any], options: Mapping[str, Any]
) -> Explained | None:
    """Of the best system whose ranker is known: the importance of its features, and a pair."""
    known = [name for name in part.ranked_systems if isinstance(rankers.get(name), Ranker)]
    if not known:
        return None
    ranker = rankers[known[0]]
    pair = _pair(ranker, data, part.hardest)
    importances = _importance(ranker, data, part.comparison.metrics[0], options)
    change = "" if pair is None else changes(ranker, data, pair.query, pair.a.name, pair.b.name).summary
    return None if importances is None and pair is None else Explained(known[0], importances, pair, change)


def _importance(ranker: Ranker, data: RankingData, metric: str, options: Mapping[str, Any]) -> Importance | None:
    """On as many queries as can be scored in some seconds; None where these are too few to say anything."""
    each = _REPEATS * data.n_features * data.n_documents / data.n_queries
    queries = min(data.n_queries, int(_SCORED / each))
    if queries < _LEAST:
        return None
    chosen = np.sort(np.random.default_rng(0).choice(data.n_queries, queries, replace=False))
    return importance(ranker, data.select(chosen), metric, repeats=_REPEATS, **options)


def _pair(ranker: Ranker, data: RankingData, hardest: Sequence[int]) -> Explanation | None:
    """The first document of a hard query that stands above a better one, and the best that it stands above."""
    grades = np.where(data.judged, data.labels, np.nan)  # compares as neither more nor less
    for number in hardest:
        labels = grades[data.queries.offsets[number] : data.queries.offsets[number + 1]]
        try:
            query = AskedQuery(ranker, data, data.qids[number])
        except DataError:  # too large to be explained: an example is welcome, not worth the report
            continue
        if len(set(query.names)) < len(query.names):
            continue
        for place, row in enumerate(query.order):
            later = [other for other in query.order[place + 1 :] if labels[other] > labels[row]]
            if later:
                better = max(later, key=lambda other: labels[other])
                return explained(query, row, better, Sampling())
    return None


def _shown(part: RankedCollection, _: str) -> Markup | None:
    shown = part.explained
    if shown is None:
        return None
    panels = []
    if shown.importance is not None:
        words = tag("p", f"{shown.importance.summary} {shown.importance.how}", cls="remark")
        panels.append(panel(f"Importance of features to {shown.system}", shown.importance.plot().figure(), words))
    pair = shown.pair
    if pair is not None:
        words = tag("p", f"{pair.summary} {shown.change} {' '.join(pair.caveats)}", cls="remark")
        drawn = [pair.plot().figure()] if pair.values.any() else []
        heading = f"{shown.system}, query {pair.query}: {pair.a.name} above {pair.b.name}, which is more relevant"
        panels.append(panel(heading, *drawn, words))
    return side_by_side(*panels)


_REMARK = (
    "What the best system with a known model depends on: how much its metric loses when a feature is shuffled within "
    "queries, and what made it put a document above a better one."
)
EXPLAINED = Panel("explained", "Why", "Why it ranks so", _REMARK, _shown)
