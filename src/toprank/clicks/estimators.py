"""Propensity estimation by any method: intervention harvesting, or a model fitted together with relevance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt

from toprank.clicks.context_estimation import by_context
from toprank.clicks.context_propensities import ContextPropensities
from toprank.clicks.contexts import Context
from toprank.clicks.curves import PropensityCurves, contradiction
from toprank.clicks.dual import Dual
from toprank.clicks.em import FittedPositions
from toprank.clicks.features import AttractionByFeatures, same_features
from toprank.clicks.intervention_harvesting import HARVESTED, Graph, Propensities, assumed, graph, harvested
from toprank.clicks.log import ClickLog, UnidentifiedWarning, bootstrap_weights, check_log
from toprank.clicks.products import ProductCells
from toprank.clicks.recency import Sessions, Span, options_of
from toprank.clicks.trust import affine
from toprank.compute import FloatArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.errors import DataError, UnknownNameError, warn_user
from toprank.rankers.base import ConvergenceWarning
from toprank.significance import Interval, bootstrap_t_interval

METHODS: dict[str, int] = {**dict.fromkeys(HARVESTED, 200), "regression-em": 20, "dual": 20, "trust": 50}
"""Default number of bootstrap resamples of each method; methods that train a ranker use fewer."""
_TRUST_PRIOR = (0.01, 0.01)  # Prior of relevance under trust; a stronger one would shrink relevances toward each other.
Mask = npt.NDArray[np.bool_]
Estimator = Callable[[FloatArray, FloatArray | None], FittedPositions]
"""A function of the weights of queries and the initial parameters that returns propensities."""


class PropensityOptions(TypedDict, total=False):
    """Keyword arguments of `propensities`."""

    n_resamples: int | None
    confidence: float
    seed: int
    clip: float
    tolerance: float | None
    max_iterations: int | None
    half_life: Span | None
    window: Span | None


@dataclass(frozen=True)
class _EstimationSettings:
    """Options of the estimation, with their defaults."""

    n_resamples: int | None = None
    confidence: float = 0.95
    seed: int = 0
    clip: float = 0.01
    tolerance: float | None = None
    max_iterations: int | None = None

    def limits(self, method: str) -> tuple[float, float, int]:
        """Return the smallest ratio, the tolerance and the maximum number of iterations of a method that
        fits a model.
        """
        check_number("clip", self.clip, above=0, most=1)
        tolerance = {"trust": 1e-9, "dual": 1e-4}.get(method, 1e-7) if self.tolerance is None else self.tolerance
        check_number("tolerance", tolerance, above=0)
        max_iterations = (5_000 if method == "trust" else 200) if self.max_iterations is None else self.max_iterations
        check_whole("max_iterations", max_iterations, 1)
        return self.clip, tolerance, max_iterations


@overload
def propensities(
    log: ClickLog, method: str = ..., data: RankingData | None = ..., ranker: Any = ..., *, context: None = ...,
    **options: Unpack[PropensityOptions],
) -> Propensities: ...  # fmt: skip


@overload
def propensities(
    log: ClickLog, method: str = ..., data: RankingData | None = ..., ranker: Any = ..., *, context: Context,
    **options: Unpack[PropensityOptions],
) -> ContextPropensities: ...  # fmt: skip


def propensities(
    log: ClickLog,
    method: str = "all-pairs",
    data: RankingData | None = None,
    ranker: Any = None,
    *,
    context: Context | None = None,
    **options: Unpack[PropensityOptions],
) -> Propensities | ContextPropensities:
    """Estimate the propensity of each position, relative to the first, with intervals over queries.

    Args:
        log: sessions.
        method: ``all-pairs``, ``pivot``, ``chain`` or ``randomization`` (from documents shown at several positions, see
            `harvested`); ``regression-em`` (position-based model whose attractions a ranker learns); ``dual`` (a ranker
            and propensities that correct each other); ``trust`` (P(click) = slope × relevance + offset). Default:
            ``all-pairs``.
        data: features of the documents in the log, by ids, for ``regression-em`` and ``dual``; also for ``trust`` with
            a ranker.
        ranker: ranker that learns relevance; any ranker with a loss, which is replaced.
        context: column of the log, or several crossed columns, whose contexts have separate propensities (for
            methods that harvest). A context that is constant within sessions, such as the device or a class of queries,
            has one curve per context, shrunk toward the overall curve if data are scarce; one that varies within
            sessions, such as the module or the column of a grid, has one number per cell of context and position.
        n_resamples: number of bootstrap resamples of queries for the intervals. Default: 200 for harvesting, 50 for
            ``trust``, 20 if a ranker is trained.
        confidence: confidence level of the intervals. Default: 0.95.
        seed: seed of the random generator.
        clip: smallest ratio of propensities that ``dual`` divides a click by, which limits its weight to 1/clip.
            Default: 0.01.
        tolerance: convergence tolerance. Default: log-likelihood per impression increases by less than 1e-7 (``trust``:
            1e-9); for ``dual``, propensities change by less than 1e-4 relatively.
        max_iterations: maximum number of iterations. Default: 200 (``trust``: 5,000).
        half_life: age at which a session has half the weight of the newest: ``"14d"``, ``"36h"``, or seconds. Needs the
            column ``time``. Default: all sessions have the same weight.
        window: drop sessions older than this.

    Positions that are not connected to the first are not identified: their propensity is NaN. Methods that learn from
    features estimate them nevertheless, depending on the form of the ranker, and warn (`UnidentifiedWarning`). These
    methods also warn if documents shown at several positions significantly contradict the propensities.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=50, seed=0)
    >>> rankers = {"a": data.X[:, 0], "b": data.X[:, 1]}
    >>> log = tr.clicks.simulate(data, rankers, tr.clicks.PBM.from_parameters([1, 0.5, 0.25]), sessions=20_000, k=3)
    >>> curve = tr.clicks.propensities(log)
    >>> curve.values.shape, curve.identified.tolist()
    ((3,), [True, True, True])
    """
    if method not in METHODS:
        raise UnknownNameError("method of propensities", method, METHODS)
    check_log(log)
    settings, sessions = options_of("propensities", options, PropensityOptions, _EstimationSettings, Sessions)
    log, recency, _ = sessions.evaluation(log)
    draws = {
        "n_resamples": METHODS[method] if settings.n_resamples is None else settings.n_resamples,
        "confidence": settings.confidence, "seed": settings.seed,
    }  # fmt: skip
    if context is not None:
        return replace(by_context(log, context, method, **draws), recency=recency)
    if method in HARVESTED:
        if data is not None or ranker is not None:
            raise DataError(f"The method {method} uses no features. Remove data= and ranker=.")
        return replace(harvested(log, method, **draws), recency=recency)
    check_whole("n_resamples", draws["n_resamples"], 2)
    check_number("confidence", settings.confidence, above=0, below=1)
    fit = _Fit.of(log, method, data, ranker, settings)
    best = fit.best()
    fit.warn(best, settings.seed)
    return replace(fit.with_intervals(best, **draws), recency=recency)


def point_estimate(log: ClickLog, method: str, data: RankingData | None = None, ranker: Any = None) -> Propensities:
    """Return the propensities of a method that fits a model, with intervals of NaN."""
    if method not in METHODS:
        raise UnknownNameError("method of propensities", method, METHODS)
    fit = _Fit.of(log, method, data, ranker)
    best = fit.best()
    fit.warn(best, 0)
    return fit.with_intervals(best, 0, 0.95, 0)


class _Fit(NamedTuple):
    """A log prepared for a method that fits a model."""

    log: ClickLog
    method: str
    estimate: Estimator
    graph: Graph
    identified: Mask

    @classmethod
    def of(
        cls,
        log: ClickLog,
        method: str,
        data: RankingData | None,
        ranker: Any,
        settings: _EstimationSettings | None = None,
    ) -> Self:
        clip, tolerance, max_iterations = (settings or _EstimationSettings()).limits(method)
        if method == "trust":
            learner = AttractionByFeatures(ranker, log, data) if ranker is not None or data is not None else None
            of_log = graph(log)
            # Two documents identify a slope and an offset.
            return cls(log, method, _trust(log, learner, tolerance, max_iterations), of_log, of_log.joined(2))
        if method == "dual":
            estimate = _dual(log, data, ranker, clip, tolerance, max_iterations)
        else:
            estimate = _regression(log, data, ranker, tolerance, max_iterations)
        of_log = _graph_of_features(log, data)
        return cls(log, method, estimate, of_log, of_log.identified)

    def best(self) -> FittedPositions:
        """Fit the model to the log."""
        best = self.estimate(np.ones(self.log.n_queries), None)
        if not best.converged:
            warn_user(
                f"The fit of {self.method} did not converge. Increase max_iterations or the tolerance.",
                ConvergenceWarning,
            )
        return best

    def warn(self, best: FittedPositions, seed: int) -> None:
        """Warn about positions that only the ranker identifies, and documents that contradict the propensities."""
        if self.method == "trust":
            return
        if not self.identified.all():
            lost = [str(k + 1) for k in np.flatnonzero(~self.identified)]
            warn_user(assumed(self.method, lost), UnidentifiedWarning)
        if problem := contradiction(PropensityCurves.from_values(best.values, self.method), self.log, seed):
            warn_user(problem, UnidentifiedWarning)

    def with_intervals(self, best: FittedPositions, n_resamples: int, confidence: float, seed: int) -> Propensities:
        """Return propensities and offsets, with intervals from a bootstrap of the queries."""
        log, n = self.log, len(np.unique(self.log.session_query))
        draws = [
            self.estimate(weights, best.at) for weights in bootstrap_weights(log, n_resamples, seed)
        ]  # initialized at the solution
        unknown = np.where(self.identified | (best.offsets is None), 0.0, np.nan)

        def interval(value: FloatArray, drawn: list[FloatArray], ratios: bool = False) -> Interval[FloatArray]:
            if not n_resamples:
                nothing = np.full(len(value), np.nan)
                return Interval(value, nothing, nothing, confidence, n, "no interval", "estimate")
            return bootstrap_t_interval(value, drawn, n, confidence, log_scale=ratios)

        values = best.values + unknown
        result = Propensities(
            values, interval(values, [draw.values for draw in draws], best.offsets is None), self.identified,
            self.graph, self.method, confidence, n_resamples, ranker=best.ranker,
        )  # fmt: skip
        if best.offsets is None:
            return result
        offsets = best.offsets + unknown
        drawn = [draw.offsets for draw in draws if draw.offsets is not None]
        return replace(result, offsets=offsets, offset_intervals=interval(offsets, drawn))


def _graph_of_features(log: ClickLog, data: RankingData | None) -> Graph:
    """Return the graph of positions connected by feature vectors: equal feature vectors are one document to
    the ranker.
    """
    assert data is not None  # The estimator has checked this.
    group = same_features(log, data)
    n = int(group.max()) + 1
    return graph(replace(log, pair=group[log.pair], pair_query=np.zeros(n, dtype=np.int64), document_ids=np.arange(n)))


def _regression(
    log: ClickLog, data: RankingData | None, ranker: Any, tolerance: float, max_iterations: int
) -> Estimator:
    learner = AttractionByFeatures(ranker, log, data)

    def estimate(weights: FloatArray, start: FloatArray | None) -> FittedPositions:
        cells = ProductCells.from_log(log, log.position - 1, log.depth, weights)
        fit = cells.fit((1e-6, 1e-6), tolerance * log.n_impressions, max_iterations, learner=learner, start=start)
        looked = fit.at[log.n_pairs :]
        return FittedPositions(looked / looked[0], fit.at, fit.converged, learner.ranker)

    return estimate


def _dual(
    log: ClickLog, data: RankingData | None, ranker: Any, clip: float, tolerance: float, max_iterations: int
) -> Estimator:
    both = Dual(log, data, ranker, clip)

    def estimate(weights: FloatArray, start: FloatArray | None) -> FittedPositions:
        return both.solve(weights, np.ones(log.depth) if start is None else start, tolerance, max_iterations)

    return estimate


def _trust(log: ClickLog, learner: AttractionByFeatures | None, tolerance: float, max_iterations: int) -> Estimator:
    def estimate(weights: FloatArray, start: FloatArray | None) -> FittedPositions:
        return affine(log, weights, _TRUST_PRIOR, tolerance, max_iterations, start, learner)

    return estimate
