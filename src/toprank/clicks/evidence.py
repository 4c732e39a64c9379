"""`Evidence`: a log joined with data once, so that all questions about the two are answered from sums.

The join sums impressions by document and cell (a position, or a position in a context). Documents belong to queries, so
leaving out, reweighting or splitting queries only drops or scales these sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.clicks.contexts import Context, columns_of, contexts_of
from toprank.clicks.corrections import (
    CellSums,
    Correction,
    JoinedCells,
    Relevance,
    check_known,
    correct,
    data_queries,
    refuse_trust,
    resolve_curves,
)
from toprank.clicks.curves import PropensityCurves
from toprank.clicks.intervention_harvesting import (
    HARVESTED,
    PropensityEstimator,
    components,
    is_explored,
    prepared,
    refuse_one_order,
)
from toprank.clicks.log import ClickLog, check_log, jackknife_groups, numbered, sums, sums_by
from toprank.clicks.policies import LoggedQueries, Metric, PolicyValues, policy_value
from toprank.clicks.recency import ChosenSessions, Sessions
from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData, check_data
from toprank.data.division import BoolArray, Division, cross_fit
from toprank.data.queries import Queries
from toprank.errors import DataError, Remedy
from toprank.rankers.linear.ranker import LinearRanker

_N_GROUPS = 20  # Number of groups of queries in the jackknife of estimates that depend on estimated propensities.
_N_FOLDS = 5  # Number of folds of queries for the regression of `dr`.
_IDS = Remedy("Give document_ids.", "Name the column that holds them with {document_id}.", document_id=...)


class PropensitySource(NamedTuple):
    """Source of propensities: given values, or the method that estimates them from the log."""

    propensities: Any = None
    context: Context | None = None
    ranker: Any = None

    @property
    def is_log(self) -> bool:
        """True if propensities are estimated from the log."""
        return self.propensities is None or isinstance(self.propensities, str)

    @property
    def method(self) -> str:
        """Name of the estimation method."""
        return self.propensities or "all-pairs"

    @property
    def is_harvested(self) -> bool:
        """True if propensities are estimated by position with intervention harvesting."""
        return self.is_log and self.context is None and self.method in HARVESTED

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the log that define the context."""
        layout = getattr(self.propensities, "layout", None)
        if self.context is not None:
            return columns_of(self.context)
        return () if layout is None else tuple(layout.columns)


@dataclass(frozen=True, eq=False)
class _Origin:
    """State shared by all parts of bound evidence: the whole log and data, and estimates from them."""

    log: ClickLog
    data: RankingData
    source: PropensitySource
    context_names: tuple[str, ...] = ()
    estimators: dict[str, PropensityEstimator] = field(default_factory=dict)

    @cached_property
    def sessions(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """For each query of the log: number of its sessions, sum of their weights, and sum of the squared weights."""
        weights, query, n = self.log.session_weights, self.log.session_query, self.log.n_queries
        return sums(query, None, n), sums(query, weights, n), sums(query, weights**2, n)

    @cached_property
    def curves(self) -> PropensityCurves:
        """Propensities of the whole log."""
        propensities, context, ranker = self.source
        return resolve_curves(propensities, self.log, self.data, ranker, context)

    @cached_property
    def folds(self) -> IntArray:
        """Fold of each query of the log in the regression of ``dr``; -1 if no impression is in the data."""
        rows = self.log.rows(self.data)[np.unique(self.log.pair)]
        joined = np.unique(self.data.queries.document_query[rows[rows >= 0]])
        of_data = np.full(self.data.n_queries, -1)
        of_data[joined] = np.arange(len(joined)) % _N_FOLDS
        number = data_queries(self.log, self.data)
        return np.where(number >= 0, of_data[number], -1)

    def estimator(self, method: str) -> PropensityEstimator:
        """Return the cached estimator of a method."""
        if method not in self.estimators:
            self.estimators[method] = prepared(self.log, method)
        return self.estimators[method]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Sessions of a log joined with data and propensities, created by `bind`.

    Attributes:
        data: documents and features.
        cells: impressions, summed by document and cell.
        counts: weight of each query of the log; 0 if it is left out.
        data_query: for each query of the log, its index in the data, or -1.
        chosen: the selected sessions of the log and how they were selected.
        regression: R̂ of each row for ``dr``; None to learn it from the clicks on other queries.
    """

    data: RankingData
    cells: CellSums
    counts: FloatArray
    data_query: IntArray
    chosen: ChosenSessions
    regression: FloatArray | None
    _origin: _Origin
    _is_part: bool = False

    # ---- the data, its parts and their weights ----

    @property
    def queries(self) -> Queries:
        """The documents of each query of the data."""
        return self.data.queries

    @property
    def source(self) -> PropensitySource:
        """Source of the propensities."""
        return self._origin.source

    @property
    def depth(self) -> int:
        """The last position in these sessions."""
        return int(self.cells.position.max())

    @cached_property
    def log(self) -> ClickLog:
        """The selected sessions, with their weights."""
        log, counts = self._origin.log, self.counts
        if not self._is_part:
            return log
        if not counts.all():
            log = log.select(counts[log.session_query] > 0)
        of_session = counts[log.session_query]
        return log if (of_session == 1).all() else replace(log, weights=log.session_weights * of_session)

    @cached_property
    def sessions(self) -> FloatArray:
        """Total session weight of each query of the data."""
        return self._by_query(self._origin.sessions[1] * self.counts)

    @cached_property
    def n_sessions(self) -> FloatArray:
        """Number of sessions of each query of the data."""
        return self._by_query(self._origin.sessions[0] * (self.counts > 0))

    def _by_query(self, values: FloatArray) -> FloatArray:
        known = self.data_query >= 0
        return sums(self.data_query[known], values[known], self.data.n_queries)

    @property
    def asked(self) -> BoolArray:
        """True if each query of the data has sessions."""
        return self.sessions > 0

    @cached_property
    def groups(self) -> tuple[FloatArray, FloatArray]:
        """Jackknife groups of queries: weights of the queries without each group, and the share of sessions of each
        group.
        """
        return jackknife_groups(self.log, _N_GROUPS, 0)

    def without(self, group: int) -> Evidence:
        """Return the evidence without a group of queries; propensities are estimated again."""
        return self.reweighted(self.groups[0][group])

    def reweighted(self, weights: FloatArray) -> Evidence:
        """Return the evidence with other weights of the log's queries; propensities are estimated again."""
        return self._part(weights)

    def select(self, which: npt.ArrayLike) -> Evidence:
        """Return the evidence for the queries of a mask over the data; queries of the log that are not in the data
        stay.
        """
        mask = np.asarray(which, dtype=bool)
        kept = (self.data_query < 0) | mask[self.data_query]
        return self._part(kept * 1.0)._on(self.data.select(mask), self.queries.broadcast(mask), mask)

    def filter(self, documents: BoolArray) -> Evidence:
        """Return the same sessions joined with some documents of the data, by a mask."""
        return self._on(self.data.filter(documents), documents, self.queries.sum(documents) > 0)

    def _on(self, data: RankingData, rows: BoolArray, queries: BoolArray) -> Evidence:
        """Return the same sessions joined with a part of the data, given by masks of rows and queries."""
        return replace(
            self, data=data, cells=replace(self.cells, row=_renumbered(self.cells.row, rows)),
            data_query=_renumbered(self.data_query, queries),
            regression=None if self.regression is None else self.regression[rows],
        )  # fmt: skip

    def with_propensities(self, source: PropensitySource) -> Evidence:
        """Return the same evidence with other propensities of the same contexts."""
        return replace(self, _origin=replace(self._origin, source=source))

    def _part(self, weights: FloatArray) -> Evidence:
        scale = weights[self.cells.query]
        cells = self.cells.select(scale > 0).scaled(scale[scale > 0])
        return replace(self, cells=cells, counts=self.counts * weights, _is_part=True)

    # ---- propensities ----

    @cached_property
    def curves(self) -> PropensityCurves:
        """The propensities: given, or estimated from these sessions."""
        origin, source = self._origin, self.source
        if source.is_harvested:
            return self._harvested(source.method)
        if not self._is_part or not source.is_log:
            return origin.curves
        propensities, context, ranker = source
        return resolve_curves(propensities, self.log, origin.data, ranker, context, origin.curves)

    @property
    def whole_curves(self) -> PropensityCurves:
        """Propensities of the evidence that this is a part of."""
        return self._origin.curves

    def _harvested(self, method: str) -> PropensityCurves:
        ready = self._origin.estimator(method)
        slope = ready.estimate(self.counts)
        known = np.isfinite(slope)
        if not self._is_part:
            known = ready.identified
        elif not known[1:].any() or (method == "randomization" and "explored" not in ready.log.columns):
            known = self._joined(method)[: len(slope)]
        refuse_one_order(self._origin.log, known)
        if len(slope) < self.depth:
            raise DataError("The shuffled sessions have fewer positions than the log. Use log.top(k).")
        curves = PropensityCurves.from_values(np.where(known, slope, np.nan), method)
        check_known(curves, self.cells.position - 1)
        return replace(curves, least=self.least)

    def _joined(self, method: str) -> BoolArray:
        """Return whether documents of these sessions connect each position to the first, as the method requires."""
        from scipy.sparse import csr_matrix

        depth = self._origin.log.depth
        place = self.cells.position - 1
        shown = csr_matrix((np.ones(len(place)), (self.cells.pair, place)), shape=(self._origin.log.n_pairs, depth))
        shared = (shown.T @ shown).toarray() > 0
        if method == "pivot":
            return np.asarray(shared[0] | (np.arange(depth) == 0))
        if method == "chain":
            return np.logical_and.accumulate(np.append(True, np.diag(shared, 1)))
        label = components(shared)
        return np.asarray(label == label[0])

    @property
    def folds(self) -> IntArray:
        """Fold of each query of the data in the regression of ``dr``, the same in all parts; -1 without exposure."""
        fold = np.full(self.data.n_queries, -1)
        known = self.data_query >= 0
        fold[self.data_query[known]] = self._origin.folds[known]
        return fold

    @property
    def least(self) -> float:
        """Smallest propensity to divide by, if propensities or a regression are estimated from this log."""
        n = float(self._origin.sessions[1] @ self.counts) * self.effective_share
        return min(1.0, 10 / float(np.sqrt(max(n, 1))))

    @property
    def effective_share(self) -> float:
        """Effective number of sessions, as a fraction of the sum of their weights."""
        _, weight, squared = self._origin.sessions
        return float(weight @ self.counts) / max(float(squared @ self.counts**2), 1e-300)

    @cached_property
    def informing_weights(self) -> FloatArray:
        """For each of the cells, the effective number of impressions that inform the propensities.

        Randomization estimates them from the sessions that the log marks as explored; the other methods from all.
        """
        log, counts, cells = self._origin.log, self.counts, self.cells
        if self.source.method != "randomization" or "explored" not in log.columns:
            return cells.weight * self.effective_share
        weight = log.session_weights * counts[log.session_query] * is_explored(log)
        keys, (known,) = sums_by(_cell_keys(log, self.source), np.repeat(weight, np.diff(log.offsets)))
        n_contexts = max(len(self._origin.context_names), 1)
        own = (cells.pair * np.int64(n_contexts) + cells.context) * log.depth + cells.position - 1
        share = float(weight.sum()) / max(float(weight @ weight), 1e-300)
        return np.asarray(known[np.searchsorted(keys, own)] * share)

    # ---- estimates ----

    def relevance(self, correction: Correction, reward: str = "click") -> Relevance:
        """Return the corrected relevance of each document."""
        correction.check()
        curves = None if correction.name == "none" else self.curves
        if curves is not None and reward == "value":
            refuse_trust(curves, correction)
        self._check_joined()
        cell = self.cells.position - 1 if curves is None else self.index_of(curves)
        predicted = None
        if correction.name == "dr":
            predicted = out_of_fold_regression(self, reward) if self.regression is None else self.regression
            if correction.clip is None:
                correction = correction._replace(clip=self.least)
        joined = JoinedCells(self.cells, cell, self.cells.rewards[reward], self.queries, self.sessions)
        return correct(joined, correction, curves, predicted)

    def index_of(self, curves: PropensityCurves) -> IntArray:
        """Return the index of α and β for each cell."""
        if curves.layout is None:
            return self.cells.position - 1
        row = {name: number for number, name in enumerate(curves.layout.names, 1)}
        rows = np.array([row.get(name, 0) for name in self._origin.context_names])
        return rows[self.cells.context] * curves.depth + self.cells.position - 1

    def _check_joined(self) -> None:
        if (self.cells.row >= 0).any():
            return
        problem = "No impression of the log matches a document of the data"
        if self.data.document_ids is None:
            raise DataError(f"{problem}, which has no document ids.", remedy=_IDS)
        raise DataError(f"{problem}: check that both use the same query and document ids.")

    def policy_values(
        self, correction: Correction, ranks: Mapping[str, IntArray], metrics: Sequence[Metric]
    ) -> PolicyValues:
        """Return the values of rankers, given by the ranks of the documents, for each query with sessions."""
        known = {reward: self.relevance(correction, reward) for reward in dict.fromkeys(of.reward for of in metrics)}
        curves = self.curves if any(metric.needs_curves for metric in metrics) else None
        log = self._origin.log if curves is None or curves.layout is None else self.log
        queries = LoggedQueries(self.data, self.asked, self.sessions, curves, log)
        parts = {
            name: {metric.name: policy_value(queries, metric, of, known[metric.reward]) for metric in metrics}
            for name, of in ranks.items()
        }
        return PolicyValues(queries, {metric.name: known[metric.reward] for metric in metrics}, parts)


def _cell_keys(log: ClickLog, source: PropensitySource) -> IntArray:
    """Number each impression by its pair, context and position, in this order."""
    if not source.columns:
        return log.pair * np.int64(log.depth) + log.position - 1
    contexts = contexts_of(log, source.columns)
    return (log.pair * np.int64(len(contexts.names)) + contexts.number) * log.depth + log.position - 1


def _renumbered(number: IntArray, kept: BoolArray) -> IntArray:
    """Renumber rows or queries after dropping those outside of the mask; dropped ones become -1."""
    place = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    return np.asarray(place[number])


def bind(
    log: ClickLog, data: RankingData, *, reward: str | Sequence[str] = "click", sessions: Sessions | None = None,
    propensities: Any = None, context: Context | None = None, ranker: Any = None, regression: Any = None,
) -> Evidence:  # fmt: skip
    """Join a log with data.

    Args:
        log: sessions whose queries are in `data`.
        data: documents with features.
        reward: reward to estimate: ``click``, ``value``, or both. Default: ``click``.
        sessions: selection of sessions. Default: all, with equal weights.
        propensities: given propensities, or the name of a method. Default: ``all-pairs``.
        context: columns whose contexts have separate propensities.
        ranker: ranker of the methods that learn propensities from features. Default: a linear ranker.
        regression: R̂ of ``dr``: a number for each document, or a fitted ranker. Default: learned from other queries.

    >>> data = RankingData([[0.0], [1.0]], qid=["q", "q"], document_ids=["x", "y"])
    >>> log = ClickLog.from_columns(["q"] * 4, ["x", "y"] * 2, [1, 2] * 2, [1, 0, 0, 1])
    >>> bind(log, data, propensities=[1.0, 0.5]).relevance(Correction("snips")).relevance.tolist()
    [0.5, 1.0]
    """
    check_log(log)
    check_data("learning from clicks", data)
    chosen = (sessions or Sessions()).evaluation(log)
    log = chosen.log
    source = PropensitySource(propensities, context, LinearRanker() if ranker is None else ranker)
    contexts = contexts_of(log, source.columns) if source.columns else None
    n_contexts = np.int64(1 if contexts is None else len(contexts.names))
    keys = numbered(_cell_keys(log, source))
    of, n = keys.number, len(keys.ids)
    pair, cell = np.divmod(keys.ids, n_contexts * log.depth)
    weight, rewards = log.impression_weights, (reward,) if isinstance(reward, str) else tuple(reward)
    alike = sums(of, None, n)
    cells = CellSums(
        pair=pair, row=log.rows(data)[pair], query=log.pair_query[pair], position=cell % log.depth + 1,
        context=cell // log.depth, impressions=alike, weight=alike if log.weights is None else sums(of, weight, n),
        squared=alike if log.weights is None else sums(of, weight**2, n),
        rewards={name: sums(of, log.rewards(name) * weight, n) for name in rewards},
    )  # fmt: skip
    origin = _Origin(log, data, source, () if contexts is None else contexts.names)
    predicted = None if regression is None else _predicted(regression, data)
    return Evidence(data, cells, np.ones(log.n_queries), data_queries(log, data), chosen, predicted, origin)


def _predicted(regression: Any, data: RankingData) -> FloatArray:
    values = regression.predict(data) if hasattr(regression, "predict") else data.aligned(regression)
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (data.n_documents,) or not np.isfinite(array).all():
        raise DataError(f"regression must be a fitted ranker, or a number for each of {data.n_documents:,} rows.")
    return array


def out_of_fold_regression(evidence: Evidence, reward: str = "click") -> FloatArray:
    """Return R̂ of each row, a linear regression on the corrected clicks of other queries; 0 if there is only one
    query.

    Documents are weighted by their exposure, to which the variance of their relevance is inversely proportional.
    Predictions of clicks are clipped to [0, 1], predictions of values to the range of the observed values.
    """
    from toprank.losses import Squared

    known = evidence.relevance(Correction("snips"), reward)
    ends = (0.0, 1.0) if reward == "click" else (np.nanmin(known.relevance), np.nanmax(known.relevance))
    exposure = known.exposure
    is_exposed = evidence.queries.sum(exposure > 0) > 0
    if is_exposed.sum() < 2:
        return np.zeros(evidence.data.n_documents)
    fold = np.where(is_exposed, evidence.folds, -1)
    present, number = np.unique(fold[is_exposed], return_inverse=True)
    # Few queries may all be in one fold: then make new folds.
    fold[is_exposed] = number if len(present) > 1 else np.arange(is_exposed.sum()) % _N_FOLDS
    part = evidence.data.replace(labels=known.labels, document_weights=exposure, query_weights=None)

    def fit(train: RankingData, _: None) -> LinearRanker:
        return LinearRanker(Squared(gain=None), l2=1e-3).fit(train.filter(np.asarray(train.document_weights) > 0))

    done = cross_fit(part, Division.folds(fold), fit, lambda ranker, rest: np.clip(ranker.predict(rest), *ends))
    return np.nan_to_num(done.out_of_fold(part))
