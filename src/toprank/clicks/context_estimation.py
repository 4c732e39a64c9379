"""Estimation of propensities by context: a curve for each device, surface or class of queries, or a number for each
cell.

A context of whole sessions has a curve relative to its own first position, shrunk toward the curve of the whole log if
data are scarce (`empirical_bayes`). Contexts that vary within sessions form cells with the positions. Documents shown
in cells of several contexts connect these, and all values are relative to the first cell. Both use the methods of
`intervention_harvesting`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.clicks.context_propensities import ContextPropensities, of_layout
from toprank.clicks.contexts import Context, ContextCells, Contexts, ContextTest, contexts_of, differ
from toprank.clicks.curves import PropensityCurves
from toprank.clicks.empirical_bayes import Shrunk, drawn, shrunk
from toprank.clicks.intervention_harvesting import (
    HARVESTED,
    Propensities,
    PropensityEstimator,
    components,
    harvested,
    is_explored,
    least_noise,
    prepared,
    refuse_one_order,
    relative_examinations,
    shuffled,
)
from toprank.clicks.log import MAX_COMPARED_POSITIONS, ClickLog, bootstrap_weights, sums, sums_by
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number, check_whole
from toprank.errors import DataError, held_warnings
from toprank.rankers.base import ConvergenceWarning
from toprank.significance import Interval, bootstrap_t_interval

_N_SHRINKAGE_RESAMPLES = 50  # if they only determine the weight of a context's own data
_CONNECTING_CLICKS = 1e-6  # negligible, so that only documents connect contexts


@dataclass(frozen=True)
class _Resampling:
    """Settings of the bootstrap over queries and of the test for differences."""

    n_resamples: int
    confidence: float
    seed: int
    tested: bool

    def difference(self, log: ClickLog, contexts: Contexts) -> ContextTest:
        """Test whether contexts differ, if a test is requested."""
        return differ(log, contexts, self.seed) if self.tested else ContextTest(np.nan, 0)


def by_context(
    log: ClickLog, context: Context, method: str = "all-pairs", *, n_resamples: int = 200, confidence: float = 0.95,
    seed: int = 0, tested: bool = True,
) -> ContextPropensities:  # fmt: skip
    """Estimate the propensities of each context, and test whether they differ; see `toprank.clicks.propensities`."""
    check_whole("n_resamples", n_resamples, 2)
    check_number("confidence", confidence, above=0, below=1)
    _check_method(method)
    contexts = contexts_of(log, context)
    if len(contexts.names) < 2:
        raise DataError(
            f"All impressions of the log have the same {contexts.called}, '{contexts.names[0]}', so there is nothing "
            "to compare. Omit the context."
        )
    estimate = _of_cells if contexts.varies else _of_sessions
    return estimate(log, contexts, method, _Resampling(n_resamples, confidence, seed, tested))


def curves_by_context(
    log: ClickLog, context: Context, method: str, least: float, like: PropensityCurves | None = None
) -> PropensityCurves:
    """Return the curves of a log's contexts; a part of a log uses the shrinkage of `like`."""
    _check_method(method)
    if like is None or like.layout is None or like.shrunk is None:
        # Cells are not shrunk, and their intervals are not used, so they need the fewest draws.
        draws = 2 if contexts_of(log, context).varies else _N_SHRINKAGE_RESAMPLES
        by_value = by_context(log, context, method, n_resamples=draws, tested=False)
        refuse_one_order(log, by_value.whole.identified)
        return by_value.curves(least)
    layout, shrinkage = like.layout, like.shrunk
    number = layout.rows(log) - 1
    ready = _Prepared.from_log(log, Contexts(layout.columns, layout.names, False, layout.depth, number), method)
    refuse_one_order(log, ready.whole.identified)
    whole, each = ready.estimate(np.ones(log.n_queries))
    deviation = drawn(_deviations(whole, each), shrinkage.own, ready.expected(), shrinkage.variance)
    values = whole * np.exp(deviation)
    slopes = values * scales(ready.whole.log, ready.contexts.number, values)[:, None]
    return of_layout(whole, slopes, layout, method, least, shrinkage)


def _check_method(method: str) -> None:
    if method not in HARVESTED:
        raise DataError(
            f"Propensities by context are estimated by {', '.join(HARVESTED[:-1])} or {HARVESTED[-1]}; {method} does "
            "not support contexts. Use one of these methods, or select the sessions of one context."
        )


class _Prepared(NamedTuple):
    """A log and the sessions of each context in it, prepared for a method."""

    whole: PropensityEstimator
    parts: dict[int, PropensityEstimator]
    contexts: Contexts

    @classmethod
    def from_log(cls, log: ClickLog, contexts: Contexts, method: str) -> _Prepared:
        if method == "randomization" and "explored" in log.columns:
            kept = is_explored(log)
            contexts = replace(contexts, number=contexts.number[np.repeat(kept, np.diff(log.offsets))])
            log = shuffled(log)
        whole, of_session = prepared(log, method), contexts.number[log.offsets[:-1]]
        with held_warnings():  # warnings about the whole log were given before
            present = np.unique(of_session[of_session >= 0]).tolist()
            parts = {number: prepared(log.select(of_session == number), method) for number in present}
        return cls(whole, parts, contexts)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of contexts and of positions."""
        return len(self.contexts.names), self.contexts.depth

    def estimate(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the curve of the whole log and one row for each context; NaN if unidentified."""
        table = np.full((1 + self.shape[0], self.shape[1]), np.nan)
        with held_warnings(ConvergenceWarning):  # contexts with few sessions are shrunk anyway
            for row, part in [(0, self.whole), *((number + 1, part) for number, part in self.parts.items())]:
                table[row, : len(part.identified)] = np.where(part.identified, part.estimate(weights), np.nan)
        return table[0], table[1:]

    def least_noise(self, each: FloatArray) -> FloatArray:
        """Return the minimum variance of each log estimate, by context and position; ∞ without data."""
        noise = np.full(each.shape, np.inf)
        for number, part in self.parts.items():
            noise[number] = least_noise(part.log, each[number])
        return noise

    def counts(self) -> tuple[FloatArray, FloatArray]:
        """Return the clicks of each context at each position, and its impressions there."""
        clicks, shown = np.zeros((2, *self.shape))
        for number, part in self.parts.items():
            position, weight = part.log.position - 1, part.log.impression_weights
            clicks[number] = sums(position, part.log.clicks * weight, self.shape[1])
            shown[number] = sums(position, weight, self.shape[1])
        return clicks, shown

    def expected(self) -> FloatArray:
        """Return the expected clicks of each context at each position if all contexts had the curve of the whole
        log.
        """
        clicks, shown = self.counts()
        like_whole = shown * (clicks.sum(axis=0) / np.maximum(shown.sum(axis=0), 1))
        ratio = clicks.sum(axis=1) / np.maximum(like_whole.sum(axis=1), 1e-300)
        return np.asarray(like_whole * ratio[:, None])


def _deviations(whole: FloatArray, each: FloatArray) -> FloatArray:
    """Return the log ratios of the estimates of contexts and of the whole log."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(each) - np.log(whole))


def _of_sessions(log: ClickLog, contexts: Contexts, method: str, resampling: _Resampling) -> ContextPropensities:
    """Estimate a curve for each context, shrunk toward the curve of the whole log."""
    ready = _Prepared.from_log(log, contexts, method)
    log, number = ready.whole.log, ready.contexts.number
    whole, each = ready.estimate(np.ones(log.n_queries))
    draws = [ready.estimate(weights) for weights in bootstrap_weights(log, resampling.n_resamples, resampling.seed)]
    wholes = np.array([curve for curve, _ in draws])
    deviations = np.array([_deviations(*draw) for draw in draws])
    queries = np.zeros(ready.shape[0], np.int64)
    for row, part in ready.parts.items():
        queries[row] = len(np.unique(part.log.session_query))
    deviation, (clicks, _) = _deviations(whole, each), ready.counts()
    click_shares = clicks.sum(axis=1) / max(clicks.sum(), 1e-300)
    beside_whole = (1 - click_shares[:, None]) ** 2  # variance of the difference from a whole that includes the context
    noise = _noise(deviations, ready.least_noise(each) * beside_whole, queries)
    # All curves are 1 at the first position.
    shrinkage = shrunk(deviation[:, 1:], noise[:, 1:], ready.expected()[:, 1:], click_shares).with_first_position()
    own = shrinkage.own
    values = whole * np.exp(shrinkage.deviation)
    values[:, 0] = whole[0]
    whole_alone = (own == 0) | ~np.isfinite(deviation)
    whole_alone[:, 0] = True
    pulled = np.where(whole_alone, 0.0, own * np.where(np.isfinite(deviations), deviations, np.nan))
    n = len(np.unique(log.session_query))
    n_queries = np.where(own[:, 1:].any(axis=1), queries, n)
    intervals = _intervals(values, wholes[:, None, :] * np.exp(pulled), shrinkage, n_queries, resampling.confidence)
    of_whole = bootstrap_t_interval(whole, list(wholes), n, resampling.confidence, log_scale=True)
    identified = np.isfinite(values)
    return ContextPropensities(
        layout=ContextCells(contexts.columns, contexts.names, False, log.depth),
        values=values,
        intervals=intervals,
        own=np.where(identified, own, 0.0),
        identified=identified,
        whole=Propensities(
            whole, of_whole, ready.whole.identified, ready.whole.graph, method, resampling.confidence,
            resampling.n_resamples,
        ),
        scales=scales(log, number, values),
        sizes=np.bincount(number[log.offsets[:-1]], minlength=len(contexts.names)),
        clicks=sums(number, log.clicks, len(contexts.names)).astype(np.int64),
        difference=resampling.difference(log, ready.contexts),
        between=shrinkage.between,
        variance=shrinkage.variance,
        method=method,
        confidence=resampling.confidence,
        n_resamples=resampling.n_resamples,
    )  # fmt: skip


def _noise(deviations: FloatArray, least: FloatArray, queries: IntArray) -> FloatArray:
    """Return the variance of deviations over queries, at least that of the clicks themselves.

    Few bootstrap samples or few queries can underestimate the variance, hence the lower bound. The variance is ∞ if
    fewer than two queries, or fewer than half of the samples, identify the deviation.
    """
    known = np.isfinite(deviations)
    count = known.sum(axis=0)
    mean = np.where(known, deviations, 0.0).sum(axis=0) / np.maximum(count, 1)
    few = queries / np.maximum(queries - 1, 1)  # bootstrap variances are too small by this factor
    spread = np.where(known, (deviations - mean) ** 2, 0.0).sum(axis=0) / np.maximum(count - 1, 1) * few[:, None]
    measurable = (2 * count >= len(deviations)) & (queries >= 2)[:, None]
    return np.where(measurable, np.maximum(spread, least), np.inf)


def _intervals(
    values: FloatArray, draws: FloatArray, shrinkage: Shrunk, queries: IntArray, confidence: float
) -> Interval[FloatArray]:
    """Return intervals from the bootstrap samples and the posterior variance of the shrinkage."""
    low, high = np.full((2, *values.shape), np.nan)
    for row, n in enumerate(queries.tolist()):
        besides = shrinkage.unknown[row] * values[row] ** 2
        low[row], high[row] = bootstrap_t_interval(
            values[row], list(draws[:, row]), n, confidence, log_scale=True, extra_variance=besides
        )
    return Interval(
        values, low, high, confidence, int(queries.max()), f"t, {len(draws):,} draws of queries", "estimate"
    )


# ---- cells of contexts and positions ----


def in_cells(log: ClickLog, contexts: Contexts) -> tuple[ClickLog, IntArray]:
    """Return the log with cells as positions, and context × depth + position - 1 for each cell.

    Cells are numbered by position and then by context.

    >>> module = ["main", "ads", "main"]
    >>> log = ClickLog.from_columns(["q"] * 3, list("abc"), [1, 1, 2], [0, 0, 1], ["s"] * 3, module=module)
    >>> celled, cells = in_cells(log, contexts_of(log, "module"))
    >>> celled.position.tolist(), celled.document_ids[celled.pair].tolist(), cells.tolist()
    ([1, 2, 3], ['b', 'a', 'c'], [0, 2, 3])
    """
    n_contexts, depth = np.int64(len(contexts.names)), log.depth
    places, number = np.unique((log.position - 1) * n_contexts + contexts.number, return_inverse=True)
    if len(places) > MAX_COMPARED_POSITIONS:
        raise DataError(
            f"{contexts.called} and positions form {len(places):,} cells, but at most {MAX_COMPARED_POSITIONS:,} can "
            "be compared. log.top(k) keeps the first positions only."
        )
    order = np.lexsort((number, log.session))
    return log.take(order, position=number[order] + 1), (places % n_contexts) * depth + places // n_contexts


def _of_cells(log: ClickLog, contexts: Contexts, method: str, resampling: _Resampling) -> ContextPropensities:
    """Estimate a number for each cell, like a position."""
    celled, cells = in_cells(log, contexts)
    estimate = harvested(
        celled, method, n_resamples=resampling.n_resamples, confidence=resampling.confidence, seed=resampling.seed
    )
    n_contexts, depth = len(contexts.names), log.depth

    def table(of: npt.NDArray[Any], empty: float) -> npt.NDArray[Any]:
        cells_of_contexts = np.full(n_contexts * depth, empty, dtype=of.dtype)
        cells_of_contexts[cells[: len(of)]] = of
        return cells_of_contexts.reshape(n_contexts, depth)

    values, (low, high) = table(estimate.values, np.nan), (table(end, np.nan) for end in estimate.intervals)
    in_session = np.unique(log.session * np.int64(n_contexts) + contexts.number) % n_contexts
    return ContextPropensities(
        layout=ContextCells(contexts.columns, contexts.names, True, depth),
        values=values,
        intervals=replace(estimate.intervals, value=values, low=low, high=high),
        own=table(np.ones(len(estimate.values)), 0.0),
        identified=table(estimate.identified, False),
        whole=estimate,
        scales=np.ones(n_contexts),
        sizes=np.bincount(in_session, minlength=n_contexts),
        clicks=sums(contexts.number, log.clicks, n_contexts).astype(np.int64),
        difference=resampling.difference(log, contexts),
        between=0.0,
        variance=np.zeros((n_contexts, 1)),
        method=method,
        confidence=resampling.confidence,
        n_resamples=resampling.n_resamples,
    )


# ---- how often the first position of each context is clicked ----


def scales(log: ClickLog, number: IntArray, values: FloatArray) -> FloatArray:
    """Estimate how often the first position of each context is clicked, from documents shown in several contexts.

    The expected clicks of a document in a context are its relevance × the scale × the propensities of its positions
    there. Contexts without shared documents, such as classes of queries, cannot be compared and keep 1. Scales from few
    clicks are shrunk toward 1, and their mean over sessions is 1.
    """
    n_contexts = len(values)
    of_session = number[log.offsets[:-1]]
    known = of_session >= 0
    sessions = sums(of_session[known], log.session_weights[known], n_contexts)
    looks = np.where(number >= 0, values[np.maximum(number, 0), log.position - 1], np.nan)
    used, weight = looks > 0, log.impression_weights
    key, (shown, clicked) = sums_by(
        log.pair[used] * np.int64(n_contexts) + number[used], (looks * weight)[used], (log.clicks * weight)[used]
    )
    document, context = np.unique(key // n_contexts, return_inverse=True)[1], key % n_contexts
    shared = np.bincount(document)[document] > 1
    found = np.ones(n_contexts)
    if not shared.any():
        return found
    document, context, shown, clicked = document[shared], context[shared], shown[shared], clicked[shared]
    for group in _groups(document, context, n_contexts):
        rows = np.isin(context, group)
        place = np.searchsorted(group, context[rows])
        scale = _relative(document[rows], place, shown[rows], clicked[rows], len(group))
        share = sessions[group] / max(sessions[group].sum(), 1)
        found[group] = scale / max(float(scale @ share), 1e-300)
    return found


def _groups(document: IntArray, context: IntArray, n_contexts: int) -> list[IntArray]:
    """Return the groups of two or more contexts that share documents."""
    from scipy.sparse import csr_matrix

    of = csr_matrix((np.ones(len(document)), (document, context)), shape=(int(document.max()) + 1, n_contexts))
    label = components(of.T @ of)
    groups = [np.flatnonzero(label == group) for group in np.unique(label[np.unique(context)])]
    return [group for group in groups if len(group) > 1]


def _relative(
    document: IntArray, context: IntArray, shown: FloatArray, clicked: FloatArray, n_contexts: int
) -> FloatArray:
    """Return the scales of contexts relative to each other."""
    document = np.unique(document, return_inverse=True)[1]
    begins = np.searchsorted(document, np.arange(int(document.max()) + 2))
    scale, _ = relative_examinations(begins, context.astype(np.int32), shown, clicked, n_contexts, _CONNECTING_CLICKS)
    clicks = sums(context, clicked, n_contexts)
    if not clicks.any():
        return np.ones(n_contexts)
    expected = sums(context, shown, n_contexts) * (clicks.sum() / shown.sum())
    with np.errstate(divide="ignore"):
        deviation = np.where(clicks > 0, np.log(scale) - np.average(np.log(scale), weights=clicks), -np.inf)
        noise = np.where(clicks > 0, 1 / clicks, np.inf)
    shrinkage = shrunk(deviation[:, None], noise[:, None], expected[:, None], clicks / clicks.sum())
    return np.exp(shrinkage.deviation[:, 0])
