"""How likely a position is looked at, by any method: harvested, or learnt together with what documents are worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from toprank.clicks.context_curves import by_context
from toprank.clicks.context_propensities import ContextPropensities
from toprank.clicks.contexts import Context
from toprank.clicks.curves import Curves, contradiction
from toprank.clicks.dual import Dual
from toprank.clicks.features import AttractionByFeatures, same_features
from toprank.clicks.fitting import FittedPositions
from toprank.clicks.harvests import HARVESTED, Graph, Propensities, assumed, graph, harvested
from toprank.clicks.log import ClickLog, UnidentifiedWarning, check_log, redrawn
from toprank.clicks.models import ProductCells
from toprank.clicks.recency import Span, recent
from toprank.clicks.trust import affine
from toprank.compute import FloatArray
from toprank.data.checks import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.errors import DataError, UnknownNameError, warn_user
from toprank.rankers.base import ConvergenceWarning
from toprank.significance import redrawn_interval

METHODS: dict[str, int] = {**dict.fromkeys(HARVESTED, 200), "regression-em": 20, "dual": 20, "trust": 50}
"""How often each method draws queries again by default: training again is expensive."""
_PRIOR = (0.01, 0.01)  # of the relevances under trust, which a larger one would draw together


Mask = npt.NDArray[np.bool_]
Estimator = Callable[[FloatArray, FloatArray | None], FittedPositions]
"""From how often each query counts, and where to begin, to propensities."""


@overload
def propensities(
    log: ClickLog, method: str = ..., data: RankingData | None = ..., ranker: Any = ..., *, context: None = ...,
    resamples: int | None = ..., confidence: float = ..., seed: int = ..., clip: float = ...,
    tolerance: float | None = ..., max_steps: int | None = ..., half_life: Span | None = ...,
    window: Span | None = ...,
) -> Propensities: ...  # fmt: skip


@overload
def propensities(
    log: ClickLog, method: str = ..., data: RankingData | None = ..., ranker: Any = ..., *, context: Context,
    resamples: int | None = ..., confidence: float = ..., seed: int = ..., clip: float = ...,
    tolerance: float | None = ..., max_steps: int | None = ..., half_life: Span | None = ...,
    window: Span | None = ...,
) -> ContextPropensities: ...  # fmt: skip


def propensities(
    log: ClickLog,
    method: str = "all-pairs",
    data: RankingData | None = None,
    ranker: Any = None,
    *,
    context: Context | None = None,
    resamples: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    clip: float = 0.01,
    tolerance: float | None = None,
    max_steps: int | None = None,
    half_life: Span | None = None,
    window: Span | None = None,
) -> Propensities | ContextPropensities:
    """How likely each position is looked at, relative to the first, with intervals over queries.

    Args:
        log: sessions.
        method: ``all-pairs``, ``pivot``, ``chain``, ``randomisation`` (from documents that stood at several positions,
            see `harvested`); ``regression-em`` (the position-based model whose attractions a ranker learns);
            ``dual`` (a ranker and propensities that correct each other); ``trust`` (P(click) = value × relevance +
            offset).
        data: features of the log's documents, by ids, for ``regression-em`` and ``dual``; with a ranker for ``trust``
            too.
        ranker: learns what documents are worth: any that takes a loss; its own loss is replaced.
        context: column of the log, or several that are crossed, whose contexts have propensities of their own (of
            methods that harvest them). One that is the same throughout each session, such as the device or a class of
            query, has a curve for each, drawn towards that of the whole where data are few; one that varies within
            sessions, such as the module or the column of a grid, has a number for each cell of context and position.
        resamples: how often queries are drawn again for the intervals; None: 200 where propensities are harvested, 50
            for ``trust``, 20 where a ranker learns.
        confidence: confidence level of the intervals.
        seed: seed of the random draws.
        clip: the least ratio of propensities that ``dual`` divides a click by, so that none counts more than 1/clip.
        tolerance: where fits end; None: an impression gets no more likely than by 1e-7 (``trust``: 1e-9) in logarithms,
            in ``dual`` no propensity moves by more than 1e-4 of itself.
        max_steps: and after so many steps in any case; None: 200 (``trust``: 5,000).
        half_life: a session counts half for every such time that it is older than the newest: ``"14d"``, ``"36h"``, or
            seconds; None: for its age none counts less. Needs the column ``time``.
        window: leave out sessions that are older than this.

    Positions that nothing joins to the first are not identified: NaN, but for methods that learn from features, which
    then rest on the form of the ranker and warn (`UnidentifiedWarning`). They also warn if documents that stood at
    several positions surely contradict them.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=50, seed=0)
    >>> rankers = {"a": data.X[:, 0], "b": data.X[:, 1]}
    >>> log = tr.clicks.simulate(data, rankers, tr.clicks.PBM.known([1, 0.5, 0.25]), sessions=20_000, k=3)
    >>> curve = tr.clicks.propensities(log)
    >>> curve.values.shape, curve.identified.tolist()
    ((3,), [True, True, True])
    """
    if method not in METHODS:
        raise UnknownNameError("method of propensities", method, METHODS)
    check_log(log)
    log, recency = recent(log, half_life, window)
    count = METHODS[method] if resamples is None else resamples
    if context is not None:
        crossed = by_context(log, context, method, resamples=count, confidence=confidence, seed=seed)
        return replace(crossed, recency=recency)
    if method in HARVESTED:
        if data is not None or ranker is not None:
            raise DataError(f"The method {method} uses no features; leave out data= and ranker=.")
        estimated = harvested(log, method, resamples=count, confidence=confidence, seed=seed)
        return replace(estimated, recency=recency)
    check_whole("resamples", count, 2)
    check_number("confidence", confidence, above=0, below=1)
    check_number("clip", clip, above=0, most=1)
    tolerance = {"trust": 1e-9, "dual": 1e-4}.get(method, 1e-7) if tolerance is None else tolerance
    check_number("tolerance", tolerance, above=0)
    max_steps = (5_000 if method == "trust" else 200) if max_steps is None else max_steps
    check_whole("max_steps", max_steps, 1)
    if method == "trust":
        learner = AttractionByFeatures(ranker, log, data) if ranker is not None or data is not None else None
        estimate, of_log = _trust(log, learner, tolerance, max_steps), graph(log)
        identified = of_log.joined(2)  # two documents tell a slope and an offset
    else:
        limits = tolerance, max_steps
        estimate = (
            _dual(log, data, ranker, clip, *limits) if method == "dual" else _regression(log, data, ranker, *limits)
        )
        of_log = _graph_of_features(log, data)
        identified = of_log.identified
    estimated = _with_intervals(log, estimate, method, of_log, identified, (count, confidence, seed))
    if method != "trust" and not identified.all():
        lost = [str(k + 1) for k in np.flatnonzero(~identified)]
        warn_user(assumed(method, lost), UnidentifiedWarning)
    if method != "trust" and (problem := contradiction(Curves.of(estimated.values, method), log, seed)):
        warn_user(problem, UnidentifiedWarning)
    return replace(estimated, recency=recency)


def _graph_of_features(log: ClickLog, data: RankingData | None) -> Graph:
    """Positions joined by feature vectors: documents that the ranker cannot tell apart are one document to it."""
    assert data is not None  # the estimator has refused
    group = same_features(log, data)
    n = int(group.max()) + 1
    return graph(replace(log, pair=group[log.pair], pair_query=np.zeros(n, dtype=np.int64), document_ids=np.arange(n)))


def _regression(log: ClickLog, data: RankingData | None, ranker: Any, tolerance: float, max_steps: int) -> Estimator:
    learner = AttractionByFeatures(ranker, log, data)

    def estimate(weights: FloatArray, start: FloatArray | None) -> FittedPositions:
        cells = ProductCells.of(log, log.position - 1, log.depth, weights)
        fit = cells.fit((1e-6, 1e-6), tolerance * log.n_impressions, max_steps, learner=learner, start=start)
        looked = fit.at[log.n_pairs :]
        return FittedPositions(looked / looked[0], fit.at, fit.converged, learner.ranker)

    return estimate


def _dual(
    log: ClickLog, data: RankingData | None, ranker: Any, clip: float, tolerance: float, max_steps: int
) -> Estimator:
    both = Dual(log, data, ranker, clip)

    def estimate(weights: FloatArray, start: FloatArray | None) -> FittedPositions:
        return both.solve(weights, np.ones(log.depth) if start is None else start, tolerance, max_steps)

    return estimate


def _trust(log: ClickLog, learner: AttractionByFeatures | None, tolerance: float, max_steps: int) -> Estimator:
    def estimate(weights: FloatArray, start: FloatArray | None) -> FittedPositions:
        return affine(log, weights, _PRIOR, tolerance, max_steps, start, learner)

    return estimate


def _with_intervals(
    log: ClickLog, estimate: Estimator, method: str, of_log: Graph, identified: Mask, ask: tuple[int, float, int]
) -> Propensities:
    """The estimate, and the intervals of propensities and offsets."""
    resamples, confidence, seed = ask
    best = estimate(np.ones(log.n_queries), None)
    if not best.converged:
        warn_user(
            f"The fit of {method} had not converged when it ended; raise max_steps, or the tolerance.",
            ConvergenceWarning,
        )
    draws = [estimate(weights, best.at) for weights in redrawn(log, resamples, seed)]  # close to where they end
    unknown, queries = np.where(identified | (best.offsets is None), 0.0, np.nan), len(np.unique(log.session_query))
    values = best.values + unknown
    ratios = best.offsets is None
    over_queries = redrawn_interval(values, [draw.values for draw in draws], queries, confidence, ratios=ratios)
    result = Propensities(values, over_queries, identified, of_log, method, confidence, resamples, ranker=best.ranker)
    if best.offsets is None:
        return result
    offsets = best.offsets + unknown
    drawn = [draw.offsets for draw in draws if draw.offsets is not None]
    return replace(result, offsets=offsets, offset_intervals=redrawn_interval(offsets, drawn, queries, confidence))
