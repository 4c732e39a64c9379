"""Value of a ranking policy: DCG and clicks are sums over documents of relevance times a weight of the rank."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from toprank.clicks.corrections import Relevance, session_queries
from toprank.clicks.curves import PropensityCurves
from toprank.clicks.log import ClickLog
from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData
from toprank.data.division import BoolArray
from toprank.errors import UnknownNameError
from toprank.evaluation.values import Values
from toprank.metrics.conventions import Discount
from toprank.metrics.sorting import ranking


class Metric(NamedTuple):
    """A parsed metric: ``dcg@10``, ``ctr@10``, ``clicks@10``, ``value@10`` or ``value-dcg@10``."""

    name: str
    kind: str
    depth: int | None
    reward: str = "click"

    @classmethod
    def from_name(cls, name: str) -> Metric:
        """Parse the name of a metric, such as "dcg@10" or "value-dcg@10"."""
        match = re.fullmatch(r"(value-)?(dcg|ctr|clicks|value)(?:@(\d+))?", name.strip().lower())
        kind = "" if match is None else match[2]
        if match is None or match[3] == "0" or (kind != "dcg" and (match[1] or match[3] is None)):
            known = ("dcg@10", "dcg", "ctr@10", "clicks@10", "value@10", "value-dcg@10")
            raise UnknownNameError("click metric", name, known)
        depth = None if match[3] is None else int(match[3])
        return cls(name.strip().lower(), kind, depth, "value" if match[1] or kind == "value" else "click")

    @property
    def needs_curves(self) -> bool:
        """True if the metric counts clicks, which requires the propensity of each rank."""
        return self.kind != "dcg"


@dataclass(frozen=True, eq=False)
class PolicyValue:
    """One metric of one ranker.

    Attributes:
        values: value of the metric for each query with sessions.
        weights: weight of each document of the data.
        known: the relevance used for the metric.
        looks: weight of each document, summed over sessions.
        within: whether each document is within the depth of the metric and its query has sessions.
    """

    values: FloatArray
    weights: FloatArray
    known: Relevance
    looks: FloatArray
    within: BoolArray

    @cached_property
    def effective_sample_size(self) -> float:
        """Effective number of impressions."""
        return self.known.effective_sample_size(self.looks)

    @property
    def contributing_impressions(self) -> int:
        """Number of impressions whose clicks contribute to the metric."""
        return int(self.known.cells.impressions[self.known.added(self.looks) > 0].sum())

    @property
    def ranked(self) -> int:
        """Number of documents within the depth."""
        return int(self.within.sum())

    @property
    def never_shown(self) -> int:
        """Number of documents within the depth that were never shown at a position with a known propensity."""
        return int((self.within & (self.known.shown == 0)).sum())


class LoggedQueries(NamedTuple):
    """Data, the queries with sessions, and the propensities of ranks."""

    data: RankingData
    asked: BoolArray
    sessions: FloatArray
    curves: PropensityCurves | None
    log: ClickLog

    @property
    def weights(self) -> FloatArray:
        """Total session weight of each query with sessions."""
        return self.sessions[self.asked]


@dataclass(frozen=True)
class PolicyValues:
    """Metrics of rankers by name, for each query with sessions, and the relevance behind each metric."""

    queries: LoggedQueries
    relevance: Mapping[str, Relevance]
    parts: Mapping[str, Mapping[str, PolicyValue]]

    @property
    def means(self) -> FloatArray:
        """Mean over sessions, by ranker and metric."""
        weights = self.queries.weights
        return np.array([[part.values @ weights / weights.sum() for part in of.values()] for of in self.parts.values()])

    @property
    def values(self) -> Values:
        """The values per query, weighted by sessions."""
        return Values(
            systems=tuple(self.parts),
            metrics=tuple(self.relevance),
            table=np.array([[part.values for part in of.values()] for of in self.parts.values()]),
            units=np.asarray(self.queries.data.qids)[self.queries.asked],
            weights=self.queries.weights,
        )


def ranks_of(scores: FloatArray, data: RankingData) -> IntArray:
    """Return the rank of each document within its query, from 1."""
    ranked = ranking(scores, data.queries)
    rank = np.empty(len(scores), dtype=np.int64)
    rank[ranked.order] = data.queries.positions_in_query + 1
    return rank


def policy_value(queries: LoggedQueries, metric: Metric, ranks: IntArray, known: Relevance) -> PolicyValue:
    """Return Σ weight of the rank × relevance (+ offset of the rank) for each query with sessions."""
    data, asked = queries.data, queries.asked
    longest = int(data.queries.sizes.max())
    always: FloatArray | float = 0.0
    within = ranks <= (metric.depth or longest)
    if queries.curves is None or not metric.needs_curves:
        weights = np.where(within, Discount.from_spec("log2").weights(longest)[ranks - 1], 0.0)
    else:
        weights, always = _clicks_at_ranks(queries, queries.curves, metric, np.where(within, ranks, 0))
    judged = np.where(np.isfinite(known.relevance), known.relevance, 0.0)
    values = data.queries.sum(weights * judged + always)[asked]
    looks = weights * data.queries.broadcast(queries.sessions)
    return PolicyValue(values, weights, known, looks, within & data.queries.broadcast(asked))


def _clicks_at_ranks(
    queries: LoggedQueries, curves: PropensityCurves, metric: Metric, ranks: IntArray
) -> tuple[FloatArray, FloatArray | float]:
    """Return α and β of each document at its rank; 0 for documents below the depth of the metric, whose rank is 0."""
    data, within = queries.data, ranks > 0
    lists = np.minimum(data.queries.sizes, metric.depth or 0)
    # ctr is per document, the other metrics are per list
    shared = data.queries.broadcast(lists) if metric.kind == "ctr" else 1.0
    slope, trust = curves.at_ranks(
        log=queries.log, session_queries=lambda: session_queries(queries.log, data),
        query=data.queries.document_query, ranks=np.maximum(ranks, 1), deepest=int(lists.max()), metric=metric.name,
    )  # fmt: skip
    if metric.reward == "value":  # Equal to the correction by ips.
        return np.where(within, slope + trust, 0.0) / shared, 0.0
    return np.where(within, slope, 0.0) / shared, np.where(within, trust, 0.0) / shared
