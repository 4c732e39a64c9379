"""Click models: how a document's attraction and its place become a click.

The models are in `rates`, `products` and `cascades`; here is what all of them do.

Every probability is shrunk: `prior` = (a, b) stands for a clicks and b skips besides those that were seen. It keeps
a document that was shown twice from an attraction of 0 or 1. What all documents share is estimated best if they
are hardly shrunk; so `intervals` fits with a weaker prior, and takes out the bias of few impressions of each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from toprank.clicks.em import Maximum, rate_prior
from toprank.clicks.features import AttractionByFeatures, logistic
from toprank.clicks.log import ClickLog, UnidentifiedWarning, check_log, jackknife_groups
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.errors import DataError, Remedy, warn_user
from toprank.rankers.base import ConvergenceWarning
from toprank.significance import Interval, jackknife

DROP_DUPLICATE_POSITIONS = Remedy(
    "log.select(~log.has_duplicate_positions) leaves them out.",
    "{drop_duplicate_positions} leaves them out.",
    "toprank clicks fit {drop_duplicate_positions} leaves them out.",
    drop_duplicate_positions=True,
)
_WEAK_PRIOR_IMPRESSIONS = 0.2  # impressions of the prior where it is about what documents share
_N_SIMULATED_LOGS = 16  # logs of users who are as the model says, to see what it makes of them
_CORRECTION_UNCERTAINTY = 0.25  # of a correction: documents are not quite what the fit holds them for


class Perplexity(float):
    """The mean over ranks of 2^(-mean log2 P(what happened)); `by_rank` has each, from the first rank on.

    Convention: P is of a click at that rank whatever happened above it, a rank's mean is over the sessions that have
    it, and all ranks weigh the same. 1 is perfect, 2 a coin.
    """

    by_rank: FloatArray

    def __new__(cls, by_rank: FloatArray) -> Self:
        """The mean of those by rank."""
        perplexity = super().__new__(cls, float(np.mean(by_rank)))
        perplexity.by_rank = by_rank
        return perplexity


class ClickModel(ABC):
    """What all models do: `fit` to a log, then say how likely clicks are and how relevant documents.

    Args:
        prior: clicks and skips that are added to each probability; None: two impressions with the rate of clicks on
            what the model holds for looked at (`rate_prior`).
        tolerance: the fit ends where a step makes an impression more likely by no more than this (in logarithms), and
            the probabilities that pairs share have next to no way to go, by their last steps.
        max_iterations: and after so many steps in any case.
        attraction: a ranker; the attraction of a document is then a function of its features, σ(f(x)), learned under
            logistic regression in every step, without the prior. `fit` then needs the data with the features.

    Attributes:
        attraction_: of each pair of the log, P(click | looked at).
        ranker_: f, where the attraction is learned from features.
        parameters_: the probabilities that all pairs share, by name.
        prior_: the clicks and skips that were added.
        n_iter_: number of steps of the fit.
        converged_: whether it came to rest.
    """

    shared: ClassVar[tuple[str, ...]] = ()  # names of the parameters that all pairs share

    attraction_: FloatArray
    satisfaction_: FloatArray
    prior_: tuple[float, float]
    n_iter_: int
    converged_: bool
    log_: ClickLog
    data_: RankingData | None
    ranker_: Any
    # What examinations were divided by and attractions multiplied: the prior is about probabilities before that.
    scale_: float = 1.0
    by_features: ClassVar[bool] = True  # whether there are attractions, so that `attraction` may be a ranker
    ratios: ClassVar[bool] = False  # whether the shared parameters are relative to one of them, and may exceed 1
    _learner: AttractionByFeatures | None = None
    _begin: FloatArray | None = None  # where the fit is to begin, where it is known
    _rest: FloatArray | None = None  # where it ended
    _weights: FloatArray  # how often each query counted
    _corrected: dict[str, FloatArray] | None = None

    def __init__(
        self, *, prior: tuple[float, float] | None = None, tolerance: float = 1e-9, max_iterations: int = 5_000,
        attraction: Any = None,
    ) -> None:  # fmt: skip
        self.prior, self.tolerance, self.max_iterations, self.attraction = prior, tolerance, max_iterations, attraction

    def fit(
        self,
        log: ClickLog,
        data: RankingData | None = None,
        *,
        query_weights: npt.ArrayLike | None = None,
        threads: int | None = None,
    ) -> Self:
        """Learn the parameters that make the log most likely (with the prior).

        Args:
            log: sessions.
            data: features of the log's documents, by ids, where `attraction` is a ranker.
            query_weights: how often each query of the log counts; the bootstrap draws queries by it.
            threads: number of threads; the results do not depend on it.

        A fit that ends before it came to rest warns (`ConvergenceWarning`), and so do positions that the log cannot
        compare with the first, and a log without clicks (`UnidentifiedWarning`).
        """
        self._learn(log, data, query_weights, threads)
        if not self.converged_:
            warn_user(_restless(self, f"{self.n_iter_:,} steps"), ConvergenceWarning)
        self._look_at_joints(log, data)
        if not log.clicks.any():
            name = type(self).__name__
            warn_user(f"Nothing was clicked, so {name} rests on its prior alone.", UnidentifiedWarning)
        return self

    def _learn(
        self, log: ClickLog, data: RankingData | None, query_weights: npt.ArrayLike | None, threads: int | None = None
    ) -> Self:
        """`fit`, without a word."""
        check_lists(log)
        check_number("tolerance", self.tolerance, above=0)
        check_whole("max_iterations", self.max_iterations, 1)
        self.prior_ = self._usual_prior(log) if self.prior is None else self.prior
        if np.shape(self.prior_) != (2,) or not all(0 < value < np.inf for value in self.prior_):
            raise DataError(f"prior must be two numbers above 0, clicks and skips to add, not {self.prior!r}.")
        weights = np.ones(log.n_queries) if query_weights is None else np.asarray(query_weights, dtype=np.float64)
        if not weights.any():
            raise DataError("query_weights are all 0: no query counts, so nothing can be learned.")
        if weights.shape != (log.n_queries,) or not (weights >= 0).all() or not np.isfinite(weights).all():
            raise DataError(f"query_weights must be one number, 0 or more, for each of the {log.n_queries} queries.")
        self.n_iter_, self.converged_, self._learner = 1, True, self._learner_of(log, data)
        self._fit(log, weights, threads)
        self.log_, self.data_, self._weights = log, None if self._learner is None else data, weights
        self._corrected = None
        if self._learner is not None:
            self.ranker_, self._learner = self._learner.ranker, None
        return self

    def _end(self, fitted: Maximum) -> None:
        """Keep where a fit ended, and whether it converged."""
        self.n_iter_, self.converged_, self._rest = fitted.steps, fitted.converged, fitted.at

    def _usual_prior(self, log: ClickLog) -> tuple[float, float]:
        """The prior if none is given: users may have stopped anywhere, and all looked at the first position."""
        return rate_prior(log)

    def _look_at_joints(self, log: ClickLog, data: RankingData | None) -> None:
        """Warn of what the log cannot tell."""
        del log, data  # here: nothing

    def _learner_of(self, log: ClickLog, data: RankingData | None) -> AttractionByFeatures | None:
        name = type(self).__name__
        if self.attraction is None:
            if data is not None:
                raise DataError(f"{name} learns from features where it has a ranker: {name}(attraction=ranker).")
            return None
        if not self.by_features:
            raise DataError(f"{name} has no attraction to learn from features.")
        return AttractionByFeatures(self.attraction, log, data)

    @abstractmethod
    def _fit(self, log: ClickLog, weights: FloatArray, threads: int | None) -> None: ...

    @abstractmethod
    def click_probabilities(self, log: ClickLog, *, conditional: bool = True) -> FloatArray:
        """Return P(click) of each impression, given the clicks above it, or marginally with ``conditional=False``."""

    @abstractmethod
    def sample_clicks(
        self, log: ClickLog, attraction: FloatArray, satisfaction: FloatArray, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """Clicks on the impressions of `log`, whose own are not looked at; of each impression its attraction …"""

    def relevance(self, log: ClickLog | None = None) -> FloatArray:
        """Return what to rank each pair of `log` by; without one, of the log of the fit."""
        return self._of_pairs("attraction_", log)

    def predict(self, data: RankingData) -> FloatArray:
        """P(click | looked at) of each document of `data`, by its features; for models with a ranker."""
        self._check_fitted()
        if self.attraction is None:
            name = type(self).__name__
            raise DataError(f"This {name} knows documents by their ids only; fit {name}(attraction=ranker) with data.")
        return logistic(np.asarray(self.ranker_.predict(data), dtype=np.float64)) * self.scale_

    def log_likelihood(self, log: ClickLog) -> float:
        """The mean over sessions of log P(the clicks of the session), natural, by the chain of ranks."""
        return float(self.session_log_likelihoods(log).mean())

    def session_log_likelihoods(self, log: ClickLog) -> FloatArray:
        """The natural logarithm of P(its clicks) of each session."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.add.reduceat(np.log(_happened(self.click_probabilities(log), log)), log.offsets[:-1]))

    def perplexity(self, log: ClickLog, *, conditional: bool = False) -> Perplexity:
        """Return how surprised the model is at each rank; with ``conditional=True``, it knows the clicks above."""
        with np.errstate(divide="ignore"):
            surprise = -np.log2(_happened(self.chances(log, given=given), log))
        rank = log.sessions.positions_in_query
        return Perplexity(2 ** (np.bincount(rank, surprise) / np.bincount(rank)))

    @property
    def parameters_(self) -> dict[str, FloatArray]:
        """The probabilities that all pairs share, by name."""
        self._check_fitted()
        return {name: np.atleast_1d(getattr(self, f"{name}_")) for name in self.shared}

    def intervals(
        self, log: ClickLog, data: RankingData | None = None, *, groups: int = 20, confidence: float = 0.95,
        seed: int = 0,
    ) -> dict[str, Interval[FloatArray]]:  # fmt: skip
        """The shared parameters with intervals: each group of queries is left out in turn, and the model fitted anew.

        Of documents that were shown a few times each, a fit knows little, and what they share suffers from it in the
        same way in every fit. So the prior weighs less here, and the fit is asked what it makes of users who are as
        it says: by how much it misses them, the values are corrected. They may differ from `parameters_`. What no click
        of the log tells may be anything: from 0 to 1, or without an upper end where it is relative to another.

        >>> from toprank.clicks import PBM
        >>> log = ClickLog.from_columns(["q", "q", "r", "r"], ["a", "b", "a", "c"], [1, 2, 1, 2], [1, 0, 1, 1])
        >>> interval = PBM().intervals(log)["examination"]
        >>> bool(interval.low[1] < interval.value[1] < interval.high[1])
        True
        """
        check_whole("groups", groups, 2)
        check_number("confidence", confidence, above=0, below=1)
        check_lists(log)
        best, refits, values = self._bias_corrected(log, data, None, seed)
        weights, shares = jackknife_groups(log, groups, seed)
        fits = [self._hardly_shrunk(log, data, kept, best._rest) for kept in (weights if len(weights) > 1 else ())]
        if restless := sum(not fit.converged_ for fit in (best, *fits)):
            warn_user(_restless(self, f"{restless} of {len(fits) + 1} fits"), ConvergenceWarning)
        most, intervals = np.inf if self.ratios else 1.0, dict[str, Interval[FloatArray]]()
        for name, first in best.parameters_.items():
            noise = np.zeros_like(first)
            if refits:
                refitted = np.array([refit[name] for refit in refits])
                noise = (
                    refitted.var(axis=0, ddof=1) / len(refits)
                    + (_CORRECTION_UNCERTAINTY * (refitted.mean(axis=0) - first)) ** 2
                )
            without = np.array([fit.parameters_[name] for fit in fits])
            intervals[name] = jackknife(
                values[name], without, shares, confidence, log_scale=self.ratios, extra_variance=noise
            )
            low, high = np.maximum(intervals[name].low, 0.0), np.minimum(intervals[name].high, most)
            if len(fits):
                unidentified = self._unidentified(log, np.stack([first, *without]), best.prior_[0] / sum(best.prior_))
                low, high = np.where(unidentified, 0.0, low), np.where(unidentified, most, high)
            possible = first > 0  # what cannot happen stays so
            intervals[name] = replace(
                intervals[name], low=np.where(possible, low, 0.0), high=np.where(possible, high, 0.0)
            )
        return intervals

    def bias_corrected(self) -> dict[str, FloatArray]:
        """The shared parameters, with what few impressions of each document do to them taken out.

        They are the values of `intervals`, of the log of the fit; training divides by them. Those of `PBM` are without
        bias however few impressions a document has. If the attraction is learned from features, they are `parameters_`.
        """
        self._check_fitted()
        if self.attraction is not None or not self.by_features:
            return self.parameters_
        if self._corrected is None:
            self._corrected = self._bias_corrected(self.log_, None, self._weights, 0)[2]
        return self._corrected

    def _bias_corrected(
        self, log: ClickLog, data: RankingData | None, weights: FloatArray | None, seed: int
    ) -> tuple[Self, list[dict[str, FloatArray]], dict[str, FloatArray]]:
        """Return a fit with a weak prior, fits of users who behave as it says, and its values less their mean error."""
        best, values = self._hardly_shrunk(log, data, weights), dict[str, FloatArray]()
        refits = self._refits(best, log, weights, seed)
        for name, first in best.parameters_.items():
            missed = np.mean([refit[name] for refit in refits], axis=0) - first if refits else 0.0
            values[name] = np.clip(first - missed, 0.0, np.inf if self.ratios else 1.0)
        return best, refits, values

    def _hardly_shrunk(
        self,
        log: ClickLog,
        data: RankingData | None,
        weights: FloatArray | None = None,
        begin: FloatArray | None = None,
    ) -> Self:
        """The model fitted to a log with a weaker prior, for what all documents share."""
        weak = self._weak_prior(log)
        model = type(self)(
            prior=weak, tolerance=self.tolerance, max_iterations=self.max_iterations, attraction=self.attraction
        )
        model._begin = begin
        return model._learn(log, data, weights)

    def _weak_prior(self, log: ClickLog) -> tuple[float, float]:
        clicks, skips = self._usual_prior(log) if self.prior is None else self.prior
        less = min(1.0, _WEAK_PRIOR_IMPRESSIONS / (clicks + skips))
        return less * clicks, less * skips

    def _refits(self, best: Self, log: ClickLog, weights: FloatArray | None, seed: int) -> list[dict[str, FloatArray]]:
        """What fits make of users who are as `best` says, where documents have attractions of their own."""
        users = best._simulated(log, seed) if self.attraction is None and self.by_features else ()
        return [self._hardly_shrunk(simulated, None, weights, best._rest).parameters_ for simulated in users]

    def _unidentified(self, log: ClickLog, fits: FloatArray, mean: float) -> npt.NDArray[np.bool_]:
        """Which parameters no click of the log tells: all fits say of them what the prior does."""
        del log
        return np.asarray(np.isclose(fits, mean, rtol=1e-9, atol=0).all(axis=0))

    def _simulated(self, log: ClickLog, seed: int) -> Iterator[ClickLog]:
        """The lists of the log, clicked by users who are as the model says."""
        rng = np.random.default_rng([seed, 1])  # other numbers than those that draw queries
        liked, enough = self.attraction_, getattr(self, "satisfaction_", self.attraction_)
        for _ in range(_N_SIMULATED_LOGS):
            yield replace(log, clicks=self.sample_clicks(log, liked[log.pair], enough[log.pair], rng))

    def _of_pairs(self, name: str, log: ClickLog | None) -> FloatArray:
        """Values of the pairs of the fit, for the pairs of another log; what was not seen has the prior's mean."""
        self._check_fitted()
        values: FloatArray = getattr(self, name)
        if log is None or log.document_ids is self.log_.document_ids:
            return values
        unseen = self.prior_[0] / sum(self.prior_)
        place = log.pairs_in(self.log_)
        chances = np.where(place >= 0, values[place], unseen)
        if name != "attraction_" or self.attraction is None or self.data_ is None:
            return chances
        rows = log.rows(self.data_)
        return np.where(rows >= 0, self.predict(self.data_)[rows], chances)  # whatever the log of the fit had shown

    def _check_fitted(self) -> None:
        if not hasattr(self, "log_"):
            raise DataError(f"This {type(self).__name__} is not fitted yet; call fit(log) first.")

    def __str__(self) -> str:
        self._check_fitted()
        a, b = self.prior_
        lines = [
            f"{type(self).__name__} of {self.log_.n_sessions:,} sessions, {self.log_.n_pairs:,} pairs of query and "
            f"document; {a:g} clicks and {b:g} skips are added to each probability"
            + ("." if self.converged_ else f"; not converged after {self.n_iter_} steps.")
        ]
        for name, values in self.parameters_.items():
            shown = ", ".join(f"{value:.3f}" for value in np.ravel(values)[:10])
            lines.append(f"{name}: {shown}{' …' if values.size > 10 else ''}")
        return "\n".join(lines)


def check_depth(model: ClickModel, log: ClickLog, known: int) -> None:
    """Refuse positions that a model has not seen."""
    if log.depth > known:
        raise DataError(
            f"The log shows position {log.depth}, but this {type(model).__name__} knows {known}; fit it on lists that "
            "long."
        )


def check_lists(log: Any) -> None:
    """Refuse what is no log, one without impressions, and one whose lists are not known."""
    check_log(log)
    if log.has_duplicate_positions.any():
        count = int(log.has_duplicate_positions.sum())
        raise DataError(
            f"{count:,} {'session has' if count == 1 else 'sessions have'} several documents at one position, so that "
            "their order is not known:",
            remedy=DROP_DUPLICATE_POSITIONS,
        )


def _restless(model: ClickModel, what: str) -> str:
    return (
        f"The fit of {type(model).__name__} had not converged when it ended ({what}), so its numbers may be far off. "
        f"Raise max_iterations (it is {model.max_iterations:,}), or the tolerance."
    )


def _happened(chances: FloatArray, log: ClickLog) -> FloatArray:
    """The probability of what happened at each impression."""
    return np.where(log.clicks, chances, 1 - chances)


def by_rank(log: ClickLog) -> Iterator[tuple[IntArray, IntArray]]:
    """The impressions of the first rank and their sessions, then those of the second …"""
    sizes = np.diff(log.offsets)
    for rank in range(int(sizes.max(initial=0))):
        sessions = np.flatnonzero(sizes > rank)
        yield log.offsets[sessions] + rank, sessions
