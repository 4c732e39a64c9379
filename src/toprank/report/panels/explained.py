"""Explanation of the best ranker: permutation importance, and one misranked pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from toprank.data.dataset import RankingData
from toprank.display.svg import Markup, shortened, tag
from toprank.errors import DataError
from toprank.explanations import Importance, counterfactuals, permutation_importance
from toprank.explanations.explained_query import ExplainedQuery
from toprank.explanations.pairs import Explanation, explain_pair
from toprank.rankers.base import Ranker
from toprank.rankers.contributions import Sampling
from toprank.report.content import Explained, RankedCollection
from toprank.report.parts import Panel, panel, side_by_side

_MAX_NAME_CHARACTERS = 60  # of an id and its text
_REPEATS = 3
_MAX_SCORED = 1_000_000  # documents scored for permutation importance, which takes a few seconds
_MIN_QUERIES = 10  # fewer queries give meaningless importances


def explained_ranker(
    part: RankedCollection, data: RankingData, rankers: Mapping[str, Any], options: Mapping[str, Any]
) -> Explained | None:
    """Explain the best system with a ranker: importance of its features, and a misranked pair."""
    known = [name for name in part.ranked_systems if isinstance(rankers.get(name), Ranker)]
    if not known:
        return None
    ranker = rankers[known[0]]
    pair = _pair(ranker, data, part.hardest)
    importances = _importance(ranker, data, part.comparison.metrics[0], options)
    change = "" if pair is None else counterfactuals(ranker, data, pair.query, pair.a.name, pair.b.name).summary
    heading = "" if pair is None else _heading(part, known[0], pair)
    return None if importances is None and pair is None else Explained(known[0], importances, pair, change, heading)


def _heading(part: RankedCollection, system: str, pair: Explanation) -> str:
    """Return the heading of a pair: query and documents, with their texts if available."""
    query = [str(qid) for qid in part.qids.tolist()].index(pair.query)
    a, b = pair.a.name, pair.b.name
    if part.documents is not None:
        start, stop = part.documents.queries.offsets[query : query + 2].tolist()
        rows = {str(part.documents.names[row]): row for row in range(start, stop)}
        a, b = (shortened(part.documents.name_of(rows[name]), _MAX_NAME_CHARACTERS) for name in (a, b))
    name = shortened(part.query_name(query), _MAX_NAME_CHARACTERS)
    return f"{system}, query {name}: {a} above {b}, which is more relevant"


def _importance(ranker: Ranker, data: RankingData, metric: str, options: Mapping[str, Any]) -> Importance | None:
    """Compute permutation importance on a sample of queries that takes seconds; None if it is too small."""
    each = _REPEATS * ranker.n_features_in_ * data.n_documents / data.n_queries
    queries = min(data.n_queries, int(_MAX_SCORED / each))
    if queries < _MIN_QUERIES:
        return None
    chosen = np.sort(np.random.default_rng(0).choice(data.n_queries, queries, replace=False))
    return permutation_importance(ranker, data.select(chosen), metric, n_repeats=_REPEATS, **options)


def _pair(ranker: Ranker, data: RankingData, hardest: Sequence[int]) -> Explanation | None:
    """Explain the top misranked document of a hard query against the best document ranked below it."""
    grades = np.where(data.judged, data.labels, np.nan)  # comparisons with NaN are always false
    for number in hardest:
        labels = grades[data.queries.offsets[number] : data.queries.offsets[number + 1]]
        try:
            query = ExplainedQuery(ranker, data, data.qids[number])
        except DataError:  # the query is too large to be explained, so try the next one
            continue
        if len(set(query.names)) < len(query.names):
            continue
        for place, row in enumerate(query.order):
            later = [other for other in query.order[place + 1 :] if labels[other] > labels[row]]
            if later:
                better = max(later, key=lambda other: labels[other])
                return explain_pair(query, row, better, Sampling())
    return None


def _shown(part: RankedCollection, _: str) -> Markup | None:
    shown = part.explained
    if shown is None:
        return None
    panels = []
    if shown.importance is not None:
        words = tag("p", f"{shown.importance.summary} {shown.importance.description}", cls="remark")
        panels.append(panel(f"Importance of features to {shown.system}", shown.importance.plot().figure(), words))
    pair = shown.pair
    if pair is not None:
        words = tag("p", f"{pair.summary} {shown.change} {' '.join(pair.caveats)}", cls="remark")
        drawn = [pair.plot().figure()] if pair.values.any() else []
        panels.append(panel(shown.heading, *drawn, words))
    return side_by_side(*panels)


_REMARK = (
    "Explanation of the best system with a model: drop in the metric when a feature is shuffled within queries, and "
    "feature contributions for a pair in the wrong order."
)
EXPLAINED = Panel("explained", "Explanation", "Explanation of the best system", _REMARK, _shown)
