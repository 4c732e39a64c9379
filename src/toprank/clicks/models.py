"""The base class of click models, which turn the attraction and the position of a document into a click probability.

The models themselves are in `rates`, `products` and `cascades`.

All probabilities are shrunk: `prior` = (a, b) adds a clicks and b skips to the observed ones, so that a document shown
twice does not get an attraction of 0 or 1. The parameters that all pairs share are estimated best with little
shrinkage. `intervals` therefore fits with a weaker prior and removes the small-sample bias.
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
    "log.select(~log.has_duplicate_positions) drops them.",
    "{drop_duplicate_positions} drops them.",
    "toprank clicks fit {drop_duplicate_positions} drops them.",
    drop_duplicate_positions=True,
)
_WEAK_PRIOR_IMPRESSIONS = 0.2  # weight of the prior when shared parameters are estimated
_N_SIMULATED_LOGS = 16  # simulated logs for the bias correction
_CORRECTION_UNCERTAINTY = 0.25  # relative, because the fitted attractions are estimates


class Perplexity(float):
    """Mean over ranks of 2^(-mean log2 P(observed click or skip)); `by_rank` holds the perplexity of each rank.

    P is marginal over the clicks above. The mean of a rank is over the sessions that have it, and all ranks have equal
    weight. A perfect model has a perplexity of 1, a fair coin 2.
    """

    by_rank: FloatArray

    def __new__(cls, by_rank: FloatArray) -> Self:
        """Create the mean of the perplexities by rank."""
        perplexity = super().__new__(cls, float(np.mean(by_rank)))
        perplexity.by_rank = by_rank
        return perplexity


class ClickModel(ABC):
    """Base class of click models: fit to a log, then predict clicks and relevance.

    Args:
        prior: clicks and skips added to each probability. Default: two impressions with the click rate on the
            impressions that the model treats as examined (`rate_prior`).
        tolerance: the fit stops if a step raises the mean log-likelihood per impression by at most this, and the
            expected further change of the shared parameters is negligible.
        max_iterations: maximum number of steps.
        attraction: ranker for the attraction as a function of features, σ(f(x)). It is fitted by logistic regression in
            every step, without the prior, and `fit` then needs the data with the features. Default: one attraction for
            each pair.

    Attributes:
        attraction_: P(click | examined) of each pair of the log.
        ranker_: f, if the attraction is learned from features.
        parameters_: parameters that all pairs share, by name.
        prior_: clicks and skips that were added.
        n_iter_: number of steps of the fit.
        converged_: whether the fit converged.
    """

    shared: ClassVar[tuple[str, ...]] = ()  # names of the shared parameters

    attraction_: FloatArray
    satisfaction_: FloatArray
    prior_: tuple[float, float]
    n_iter_: int
    converged_: bool
    log_: ClickLog
    data_: RankingData | None
    ranker_: Any
    # Factor moved from examination to attraction; the prior applies before rescaling.
    scale_: float = 1.0
    by_features: ClassVar[bool] = True  # whether `attraction` may be a ranker
    ratios: ClassVar[bool] = False  # whether shared parameters are ratios, which may exceed 1
    _learner: AttractionByFeatures | None = None
    _begin: FloatArray | None = None  # initial parameters, if any
    _rest: FloatArray | None = None  # final parameters
    _weights: FloatArray  # query weights of the fit
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
        """Fit the parameters by maximum likelihood, with the prior.

        Args:
            log: sessions.
            data: features of the log's documents, matched by id, if `attraction` is a ranker.
            query_weights: weight of each query of the log, for example in a bootstrap sample.
            threads: number of threads; the results do not depend on it.

        Warns:
            ConvergenceWarning: the fit stopped before it converged.
            UnidentifiedWarning: the log has no clicks, or does not connect some positions to the first.
        """
        self._learn(log, data, query_weights, threads)
        if not self.converged_:
            warn_user(_restless(self, f"{self.n_iter_:,} steps"), ConvergenceWarning)
        self._look_at_joints(log, data)
        if not log.clicks.any():
            name = type(self).__name__
            warn_user(f"The log has no clicks, so {name} equals its prior.", UnidentifiedWarning)
        return self

    def _learn(
        self, log: ClickLog, data: RankingData | None, query_weights: npt.ArrayLike | None, threads: int | None = None
    ) -> Self:
        """Fit without warnings."""
        check_lists(log)
        check_number("tolerance", self.tolerance, above=0)
        check_whole("max_iterations", self.max_iterations, 1)
        self.prior_ = self._usual_prior(log) if self.prior is None else self.prior
        if np.shape(self.prior_) != (2,) or not all(0 < value < np.inf for value in self.prior_):
            raise DataError(f"prior must be two numbers above 0 (clicks and skips to add), not {self.prior!r}.")
        weights = np.ones(log.n_queries) if query_weights is None else np.asarray(query_weights, dtype=np.float64)
        if not weights.any():
            raise DataError("query_weights are all 0; at least one query needs a positive weight.")
        if weights.shape != (log.n_queries,) or not (weights >= 0).all() or not np.isfinite(weights).all():
            raise DataError(f"query_weights must be nonnegative numbers, one for each of the {log.n_queries} queries.")
        self.n_iter_, self.converged_, self._learner = 1, True, self._learner_of(log, data)
        self._fit(log, weights, threads)
        self.log_, self.data_, self._weights = log, None if self._learner is None else data, weights
        self._corrected = None
        if self._learner is not None:
            self.ranker_, self._learner = self._learner.ranker, None
        return self

    def _end(self, fitted: Maximum) -> None:
        """Store the result of an optimization."""
        self.n_iter_, self.converged_, self._rest = fitted.steps, fitted.converged, fitted.at

    def _usual_prior(self, log: ClickLog) -> tuple[float, float]:
        """Return the default prior, with the click rate at the first position, which all users examine."""
        return rate_prior(log)

    def _look_at_joints(self, log: ClickLog, data: RankingData | None) -> None:
        """Warn about parameters that the log does not identify."""
        del log, data

    def _learner_of(self, log: ClickLog, data: RankingData | None) -> AttractionByFeatures | None:
        name = type(self).__name__
        if self.attraction is None:
            if data is not None:
                raise DataError(f"{name} learns from features only with a ranker: {name}(attraction=ranker).")
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
        """Sample clicks on the impressions of `log`, given the attraction and satisfaction of each; clicks of `log`
        are ignored.
        """

    def relevance(self, log: ClickLog | None = None) -> FloatArray:
        """Return the relevance of each pair of `log`, to rank by. Default: the log of the fit."""
        return self._of_pairs("attraction_", log)

    def predict(self, data: RankingData) -> FloatArray:
        """Return P(click | examined) of each document of `data` from its features; for models with a ranker."""
        self._check_fitted()
        if self.attraction is None:
            name = type(self).__name__
            raise DataError(
                f"This {name} has no features; fit {name}(attraction=ranker) with data to predict from them."
            )
        return logistic(np.asarray(self.ranker_.predict(data), dtype=np.float64)) * self.scale_

    def log_likelihood(self, log: ClickLog) -> float:
        """Return the mean over sessions of the natural log-likelihood of their clicks."""
        return float(self.session_log_likelihoods(log).mean())

    def session_log_likelihoods(self, log: ClickLog) -> FloatArray:
        """Return the natural log-likelihood of the clicks of each session."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.add.reduceat(np.log(_happened(self.click_probabilities(log), log)), log.offsets[:-1]))

    def perplexity(self, log: ClickLog, *, conditional: bool = False) -> Perplexity:
        """Return the perplexity by rank, with ``conditional=True`` given the clicks above."""
        with np.errstate(divide="ignore"):
            surprise = -np.log2(_happened(self.click_probabilities(log, conditional=conditional), log))
        rank = log.sessions.positions_in_query
        return Perplexity(2 ** (np.bincount(rank, surprise) / np.bincount(rank)))

    @property
    def parameters_(self) -> dict[str, FloatArray]:
        """The parameters that all pairs share, by name."""
        self._check_fitted()
        return {name: np.atleast_1d(getattr(self, f"{name}_")) for name in self.shared}

    def intervals(
        self, log: ClickLog, data: RankingData | None = None, *, groups: int = 20, confidence: float = 0.95,
        seed: int = 0,
    ) -> dict[str, Interval[FloatArray]]:  # fmt: skip
        """Return the shared parameters with jackknife intervals over groups of queries.

        Few impressions per document bias the shared parameters in the same way in every fit. The prior is therefore
        weaker here, and the bias is estimated by refitting the model to clicks simulated from the fit, and subtracted.
        The values may differ from `parameters_`. A parameter that no click identifies has the interval from 0 to 1, or
        no upper end if it is relative to another parameter.

        Args:
            log: sessions.
            data: features, if `attraction` is a ranker.
            groups: number of groups of queries for the jackknife.
            confidence: confidence level of the intervals.
            seed: seed of the groups and the simulated clicks.

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
            possible = first > 0  # a parameter of 0 stays 0
            intervals[name] = replace(
                intervals[name], low=np.where(possible, low, 0.0), high=np.where(possible, high, 0.0)
            )
        return intervals

    def bias_corrected(self) -> dict[str, FloatArray]:
        """Return the shared parameters, corrected for small-sample bias.

        They equal the values of `intervals` for the log of the fit, and training divides clicks by them. Those of `PBM`
        are unbiased for any number of impressions per document. If the attraction is learned from features, they are
        `parameters_`.
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
        """Return a fit with a weak prior, refits to clicks simulated from it, and its parameters minus the mean
        error of these.
        """
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
        """Fit the model with a weaker prior, to estimate the shared parameters."""
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
        """Refit the model to sessions simulated from `best`, if each pair has its own attraction."""
        users = best._simulated(log, seed) if self.attraction is None and self.by_features else ()
        return [self._hardly_shrunk(simulated, None, weights, best._rest).parameters_ for simulated in users]

    def _unidentified(self, log: ClickLog, fits: FloatArray, mean: float) -> npt.NDArray[np.bool_]:
        """Return which parameters no click identifies: all fits give the mean of the prior."""
        del log
        return np.asarray(np.isclose(fits, mean, rtol=1e-9, atol=0).all(axis=0))

    def _simulated(self, log: ClickLog, seed: int) -> Iterator[ClickLog]:
        """Yield the log with clicks simulated from the model."""
        rng = np.random.default_rng([seed, 1])  # independent of the draws of queries
        liked, enough = self.attraction_, getattr(self, "satisfaction_", self.attraction_)
        for _ in range(_N_SIMULATED_LOGS):
            yield replace(log, clicks=self.sample_clicks(log, liked[log.pair], enough[log.pair], rng))

    def _of_pairs(self, name: str, log: ClickLog | None) -> FloatArray:
        """Return fitted values for the pairs of another log; unseen pairs get the mean of the prior."""
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
        return np.where(rows >= 0, self.predict(self.data_)[rows], chances)  # for documents of any log

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
    """Raise an error if the log has more positions than the model."""
    if log.depth > known:
        raise DataError(
            f"The log shows position {log.depth}, but this {type(model).__name__} covers {known} positions. Fit it to "
            "longer lists."
        )


def check_lists(log: Any) -> None:
    """Raise an error unless the argument is a log with impressions whose positions are distinct within each session."""
    check_log(log)
    if log.has_duplicate_positions.any():
        count = int(log.has_duplicate_positions.sum())
        raise DataError(
            f"{count:,} {'session has' if count == 1 else 'sessions have'} several documents at one position, so "
            "their order is unknown:",
            remedy=DROP_DUPLICATE_POSITIONS,
        )


def _restless(model: ClickModel, what: str) -> str:
    return (
        f"The fit of {type(model).__name__} did not converge ({what}), so its numbers may be far off. "
        f"Raise max_iterations (now {model.max_iterations:,}) or the tolerance."
    )


def _happened(chances: FloatArray, log: ClickLog) -> FloatArray:
    """Return the probability of the observed click or skip of each impression."""
    return np.where(log.clicks, chances, 1 - chances)


def by_rank(log: ClickLog) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the impressions of each rank and their sessions, from the first rank on."""
    sizes = np.diff(log.offsets)
    for rank in range(int(sizes.max(initial=0))):
        sessions = np.flatnonzero(sizes > rank)
        yield log.offsets[sessions] + rank, sessions
