"""Propensities by context: a curve for each device, surface or class of query, or one number for each cell of a page.

Contexts of whole sessions have each a curve, relative to its own first position, which is drawn towards that of the
whole log where data are few (`shrinking`). Contexts that vary within sessions make cells with the positions; documents
that stood in cells of several contexts join these, and all are relative to the first cell. In either case the methods
are those of `harvests`.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.clicks.context_differences import ContextTest, differ
from toprank.clicks.context_propensities import ContextPropensities, of_layout
from toprank.clicks.context_scales import scales
from toprank.clicks.contexts import Context, ContextCells, Contexts, contexts_of
from toprank.clicks.curves import Curves
from toprank.clicks.harvests import (
    HARVESTED,
    Propensities,
    PropensityEstimator,
    harvested,
    least_noise,
    prepared,
    refuse_one_order,
    shuffled,
)
from toprank.clicks.log import COMPARED, ClickLog, redrawn, sums
from toprank.clicks.shrinking import drawn, shrunk
from toprank.compute import FloatArray, IntArray
from toprank.data.checks import check_number, check_whole
from toprank.errors import DataError
from toprank.rankers.base import ConvergenceWarning
from toprank.significance import Interval, redrawn_interval

_DRAWS = 50  # of queries, where they only say how much of a curve is its own


def by_context(
    log: ClickLog, context: Context, method: str = "all-pairs", *, resamples: int = 200, confidence: float = 0.95,
    seed: int = 0, tested: bool = True,
) -> ContextPropensities:  # fmt: skip
    """Propensities of each context, and a test whether they differ; see `toprank.clicks.propensities`."""
    check_whole("resamples", resamples, 2)
    check_number("confidence", confidence, above=0, below=1)
    _check_method(method)
    contexts = contexts_of(log, context)
    if len(contexts.names) < 2:
        raise DataError(
            f"All impressions of the log have the same {contexts.called}, '{contexts.names[0]}': so there is nothing "
            "to compare; leave it out."
        )
    options = _Options(method, resamples, confidence, seed, tested)
    return _of_cells(log, contexts, options) if contexts.varies else _of_sessions(log, contexts, options)


class _Options(NamedTuple):
    """The arguments of `by_context` that its two ways share."""

    method: str
    resamples: int
    confidence: float
    seed: int
    tested: bool

    def difference(self, log: ClickLog, contexts: Contexts) -> ContextTest:
        return differ(log, contexts, self.seed) if self.tested else ContextTest(np.nan, 0)


def curves_by_context(log: ClickLog, context: Context, method: str, least: float, like: Curves | None = None) -> Curves:
    """Curves of the contexts of a log; those of a part of one are drawn towards the whole as much as `like`."""
    _check_method(method)
    if like is None or like.layout is None or like.shrunk is None:
        # Cells are drawn towards nothing: their intervals, which nobody asked for here, take as few draws as may be.
        draws = 2 if contexts_of(log, context).varies else _DRAWS
        by_value = by_context(log, context, method, resamples=draws, tested=False)
        refuse_one_order(log, by_value.whole.identified)
        return by_value.curves(least)
    layout, shrinkage = like.layout, like.shrunk
    number = layout.rows(log) - 1
    ready = _Ready.of(log, Contexts(layout.columns, layout.names, number, False), method, layout.depth)
    refuse_one_order(log, ready.whole.identified)
    whole, each = ready.estimate(np.ones(log.n_queries))
    pulled = drawn(_deviations(whole, each), shrinkage.own, ready.expected(), shrinkage.variance)
    values = whole * np.exp(pulled)
    slopes = values * scales(log, number, values)[:, None]
    return of_layout(whole, slopes, layout, method, least, shrinkage)


def _check_method(method: str) -> None:
    if method not in HARVESTED:
        raise DataError(
            f"Propensities by context are estimated by {', '.join(HARVESTED[:-1])} or {HARVESTED[-1]}; {method} has no "
            "contexts. Use one of these methods, or fit the sessions of one context alone."
        )


class _Ready(NamedTuple):
    """The log, and the sessions of each context, made ready for a method."""

    whole: PropensityEstimator
    parts: tuple[PropensityEstimator | None, ...]
    contexts: Contexts
    depth: int

    @classmethod
    def of(cls, log: ClickLog, contexts: Contexts, method: str, depth: int) -> _Ready:
        column = log.columns.get("explored")
        if method == "randomisation" and column is not None:
            kept = column.astype(bool)[log.offsets[:-1]]
            log, contexts = (
                shuffled(log),
                replace(contexts, number=contexts.number[np.repeat(kept, np.diff(log.offsets))]),
            )
        whole, of_session = prepared(log, method), contexts.number[log.offsets[:-1]]
        with warnings.catch_warnings():  # what is worth saying was said of the whole
            warnings.simplefilter("ignore")
            parts = tuple(
                prepared(log.select(of_session == number), method) if (of_session == number).any() else None
                for number in range(len(contexts.names))
            )
        return cls(whole, parts, contexts, depth)

    def estimate(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The curve of the whole, and a row for each context; NaN where the log does not tell."""
        whole = np.full(self.depth, np.nan)
        each = np.full((len(self.parts), self.depth), np.nan)
        with warnings.catch_warnings():  # few sessions of a context need not come to rest: they are drawn to the whole
            warnings.simplefilter("ignore", ConvergenceWarning)
            for row, part in zip((whole, *each), (self.whole, *self.parts), strict=True):
                if part is not None:
                    row[: len(part.identified)] = np.where(part.identified, part.estimate(weights), np.nan)
        return whole, each

    def least_noise(self, each: FloatArray) -> FloatArray:
        """Return the least variance of the logarithm of each estimate, by context and position; ∞ of none."""
        noise = np.full(each.shape, np.inf)
        for number, part in enumerate(self.parts):
            if part is not None:
                noise[number] = least_noise(part.log, each[number])
        return noise

    def counts(self) -> tuple[FloatArray, FloatArray]:
        """Clicks of each context at each position, and how often it was shown."""
        table = np.zeros((2, len(self.parts), self.depth))
        for number, part in enumerate(self.parts):
            if part is not None:
                position = part.log.position - 1
                weight = part.log.impression_weights
                table[0, number] = sums(position, part.log.clicks * weight, self.depth)
                table[1, number] = sums(position, weight, self.depth)
        return table[0], table[1]

    def expected(self) -> FloatArray:
        """The clicks of each context at each position, if they were spread as those of the whole are."""
        clicks, shown = self.counts()
        like_whole = shown * (clicks.sum(axis=0) / np.maximum(shown.sum(axis=0), 1))
        as_many: FloatArray = clicks.sum(axis=1) / np.maximum(like_whole.sum(axis=1), 1e-300)
        return np.asarray(like_whole * as_many[:, None])


def _deviations(whole: FloatArray, each: FloatArray) -> FloatArray:
    """Logarithms of what contexts say over what the whole says."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(each) - np.log(whole))


def _of_sessions(log: ClickLog, contexts: Contexts, options: _Options) -> ContextPropensities:
    """A curve for each context, drawn towards that of the whole."""
    method, resamples, confidence, seed, _ = options
    ready = _Ready.of(log, contexts, method, log.depth)
    log = ready.whole.log
    number = ready.contexts.number
    whole, each = ready.estimate(np.ones(log.n_queries))
    draws = [ready.estimate(weights) for weights in redrawn(log, resamples, seed)]
    wholes = np.array([curve for curve, _ in draws])
    apart = np.array([_deviations(*draw) for draw in draws])
    queries = np.array([0 if part is None else len(np.unique(part.log.session_query)) for part in ready.parts])
    deviation = _deviations(whole, each)
    clicks, _ = ready.counts()
    click_shares = clicks.sum(axis=1) / max(clicks.sum(), 1e-300)
    beside_whole = (1 - click_shares[:, None]) ** 2  # of which the context is so large a part
    noise = _noise(apart, ready.least_noise(each) * beside_whole, queries)
    shrinkage = shrunk(deviation[:, 1:], noise[:, 1:], ready.expected()[:, 1:], click_shares)
    own, unknown = (np.pad(of, ((0, 0), (1, 0))) for of in (shrinkage.own, shrinkage.unknown))
    own[:, 0] = 1.0  # the first is what all are relative to
    values = whole * np.exp(np.pad(shrinkage.deviation, ((0, 0), (1, 0))))
    values[:, 0] = whole[0]
    pulled = own * np.where(np.isfinite(apart), apart, np.nan)
    whole_alone = (own == 0) | ~np.isfinite(deviation)
    whole_alone[:, 0] = True
    redrawn_values = wholes[:, None, :] * np.exp(np.where(whole_alone, 0.0, pulled))
    n = len(np.unique(log.session_query))
    few = np.where(own[:, 1:].any(axis=1), queries, n)
    intervals = _intervals(values, redrawn_values, unknown, few, confidence)
    of_whole = redrawn_interval(whole, list(wholes), n, confidence, ratios=True)
    pooled = ready.whole
    layout = ContextCells(contexts.columns, contexts.names, False, log.depth)
    own = np.where(np.isfinite(values), own, 0.0)
    return ContextPropensities(
        layout, values, intervals, own, np.isfinite(values),
        Propensities(whole, of_whole, pooled.identified, pooled.graph, method, confidence, resamples),
        scales(log, number, values), np.bincount(number[log.offsets[:-1]], minlength=len(contexts.names)),
        sums(number, log.clicks, len(contexts.names)).astype(np.int64), options.difference(log, ready.contexts),
        shrinkage.between, shrinkage.variance, method, confidence, resamples,
    )  # fmt: skip


def _noise(apart: FloatArray, least: FloatArray, queries: IntArray) -> FloatArray:
    """The variance of the deviations over queries; ∞ where fewer than two, or fewer than half of the draws, tell.

    It is never less than that of the clicks themselves, which few draws, or few queries, may not show.
    """
    known = np.isfinite(apart)
    count = known.sum(axis=0)
    mean = np.where(known, apart, 0.0).sum(axis=0) / np.maximum(count, 1)
    few = queries / np.maximum(queries - 1, 1)  # so much less do draws of few queries spread
    spread = np.where(known, (apart - mean) ** 2, 0.0).sum(axis=0) / np.maximum(count - 1, 1) * few[:, None]
    measurable = (2 * count >= len(apart)) & (queries >= 2)[:, None]
    return np.where(measurable, np.maximum(spread, least), np.inf)


def _intervals(
    values: FloatArray, redrawn_values: FloatArray, unknown: FloatArray, queries: IntArray, confidence: float
) -> Interval[FloatArray]:
    """The spread of the draws, and what shrinking leaves unknown besides: (1 - own)² τ² of the logarithm."""
    low, high = np.full(values.shape, np.nan), np.full(values.shape, np.nan)
    for row, n in enumerate(queries.tolist()):
        besides = unknown[row] * values[row] ** 2
        ends = redrawn_interval(values[row], list(redrawn_values[:, row]), n, confidence, ratios=True, besides=besides)
        low[row], high[row] = ends.low, ends.high
    return Interval(
        values, low, high, confidence, int(queries.max()), f"t, {len(redrawn_values):,} draws of queries", "estimate"
    )


def in_cells(log: ClickLog, contexts: Contexts) -> tuple[ClickLog, IntArray]:
    """The log with cells in the place of positions, and of each cell, context × depth + position - 1.

    Cells are numbered by position and then by context.

    >>> log = ClickLog.of(["q"] * 3, list("abc"), [1, 1, 2], [0, 0, 1], ["s"] * 3, module=["main", "ads", "main"])
    >>> celled, cells = in_cells(log, contexts_of(log, "module"))
    >>> celled.position.tolist(), celled.document_ids[celled.pair].tolist(), cells.tolist()
    ([1, 2, 3], ['b', 'a', 'c'], [0, 2, 3])
    """
    n_contexts, depth = np.int64(len(contexts.names)), log.depth
    places, number = np.unique((log.position - 1) * n_contexts + contexts.number, return_inverse=True)
    if len(places) > COMPARED:
        raise DataError(
            f"{contexts.called} and positions make {len(places):,} cells. Every pair of cells would need a number, so "
            f"{COMPARED:,} cells are the most; log.top(k) keeps the first positions only."
        )
    order = np.lexsort((number, log.session))
    celled = replace(
        log, position=number[order] + 1, pair=log.pair[order], clicks=log.clicks[order],
        columns={name: of[order] for name, of in log.columns.items()},
    )  # fmt: skip
    return celled, (places % n_contexts) * depth + places // n_contexts


def _of_cells(log: ClickLog, contexts: Contexts, options: _Options) -> ContextPropensities:
    """A number for each cell, by what finds those of positions."""
    method, resamples, confidence, seed, _ = options
    celled, cells = in_cells(log, contexts)
    estimate = harvested(celled, method, resamples=resamples, confidence=confidence, seed=seed)
    n_contexts, depth = len(contexts.names), log.depth

    def table(of: npt.NDArray[Any], empty: float) -> npt.NDArray[Any]:
        cells_of_contexts = np.full(n_contexts * depth, empty, dtype=of.dtype)
        cells_of_contexts[cells[: len(of)]] = of
        return cells_of_contexts.reshape(n_contexts, depth)

    low, high = (table(end, np.nan) for end in estimate.intervals)
    values, of = table(estimate.values, np.nan), estimate.intervals
    in_session = np.unique(log.session * np.int64(n_contexts) + contexts.number) % n_contexts
    return ContextPropensities(
        ContextCells(contexts.columns, contexts.names, True, depth), values,
        Interval(values, low, high, confidence, of.n, of.detail, of.of), table(np.ones(len(estimate.values)), 0.0),
        table(estimate.identified, False), estimate, np.ones(n_contexts), np.bincount(in_session, minlength=n_contexts),
        sums(contexts.number, log.clicks, n_contexts).astype(np.int64), options.difference(log, contexts), 0.0,
        np.zeros((n_contexts, 1)), method, confidence, resamples,
    )  # fmt: skip
