"""Why the best ranker orders as it does: which features its metric depends on, and one pair that it got wrong."""

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

_NAME = 60  # letters of an id and its text
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
    change = "" if pair is None else counterfactuals(ranker, data, pair.query, pair.a.name, pair.b.name).summary
    heading = "" if pair is None else _heading(part, known[0], pair)
    return None if importances is None and pair is None else Explained(known[0], importances, pair, change, heading)


def _heading(part: RankedCollection, system: str, pair: Explanation) -> str:
    """Which documents of which query are explained, with their texts if the data have any."""
    query = [str(qid) for qid in part.qids.tolist()].index(pair.query)
    a, b = pair.a.name, pair.b.name
    if part.documents is not None:
        start, stop = part.documents.queries.offsets[query : query + 2].tolist()
        rows = {str(part.documents.names[row]): row for row in range(start, stop)}
        a, b = (shortened(part.documents.name_of(rows[name]), _NAME) for name in (a, b))
    return f"{system}, query {shortened(part.query_name(query), _NAME)}: {a} above {b}, which is more relevant"


def _importance(ranker: Ranker, data: RankingData, metric: str, options: Mapping[str, Any]) -> Importance | None:
    """On as many queries as can be scored in some seconds; None where these are too few to say anything."""
    each = _REPEATS * ranker.n_features_in_ * data.n_documents / data.n_queries
    queries = min(data.n_queries, int(_SCORED / each))
    if queries < _LEAST:
        return None
    chosen = np.sort(np.random.default_rng(0).choice(data.n_queries, queries, replace=False))
    return permutation_importance(ranker, data.select(chosen), metric, n_repeats=_REPEATS, **options)


def _pair(ranker: Ranker, data: RankingData, hardest: Sequence[int]) -> Explanation | None:
    """The first document of a hard query that stands above a better one, and the best that it stands above."""
    grades = np.where(data.judged, data.labels, np.nan)  # compares as neither more nor less
    for number in hardest:
        labels = grades[data.queries.offsets[number] : data.queries.offsets[number + 1]]
        try:
            query = ExplainedQuery(ranker, data, data.qids[number])
        except DataError:  # too large to be explained: an example is welcome, not worth the report
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
    "What the best system with a known model depends on: how much its metric loses when a feature is shuffled within "
    "queries, and what made it put a document above a better one."
)
EXPLAINED = Panel("explained", "Why", "Why it ranks so", _REMARK, _shown)
