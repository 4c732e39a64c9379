"""Click models: how a document's attraction and its place become a click.

The rates (`GlobalCTR`, `RankCTR`, `DocumentCTR`) are the floor that every model must beat on sessions it has not seen.
`PBM` and `UBM` are products: a click is a document that attracts at a place that is looked at. Users who read from the
top are in `cascades`.

Every probability is shrunk: `prior` = (a, b) stands for a clicks and b skips besides those that were seen. It keeps
a document that was shown twice from an attraction of 0 or 1. What all documents share is estimated best if they
are hardly shrunk; so `intervals` fits with a weaker prior, and takes out the bias of few impressions of each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank import kernels
from toprank.clicks.features import AttractionByFeatures, logistic, same_features
from toprank.clicks.fitting import Maximum, ascend, climb, inside, maximise
from toprank.clicks.harvests import SWAP, components, relative_examinations
from toprank.clicks.log import ClickLog, UnidentifiedWarning, check_compared, check_log, left_out_in_turn, sums, sums_by
from toprank.compute import FloatArray, IntArray, each_block
from toprank.data.checks import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.errors import DataError, Remedy, warn_user
from toprank.rankers.base import ConvergenceWarning
from toprank.significance import Interval, jackknife

WITHOUT_DOUBLED = Remedy(
    "log.select(~log.doubled) leaves them out.",
    "{skip_doubled} leaves them out.",
    "toprank clicks fit {skip_doubled} leaves them out.",
    skip_doubled=True,
)
_BLOCK = 1 << 16  # pairs or impressions that a thread takes at a time
_FEW_PLACES = 1 << 12  # a table of all pairs of them takes less memory than sorting would
_FEW_SHARED = 256  # examinations whose curvature is a table; beyond, it would cost more than it spares
_HARDLY = 0.2  # impressions of the prior where it is about what documents share
_SIMULATED = 16  # logs of users who are as the model says, to see what it makes of them
_DOUBT = 0.25  # of a correction: documents are not quite what the fit holds them for


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
        max_steps: and after so many steps in any case.
        attraction: a ranker; the attraction of a document is then a function of its features, σ(f(x)), learnt under
            logistic regression in every step, without the prior. `fit` then needs the data with the features.

    Attributes:
        attraction_: of each pair of the log, P(click | looked at).
        ranker_: f, where the attraction is learnt from features.
        parameters_: the probabilities that all pairs share, by name.
        prior_: the clicks and skips that were added.
        steps_: number of steps of the fit.
        converged_: whether it came to rest.
    """

    shared: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters that all pairs share."""

    attraction_: FloatArray
    satisfaction_: FloatArray
    prior_: tuple[float, float]
    steps_: int
    converged_: bool
    log_: ClickLog
    data_: RankingData | None
    ranker_: Any
    scale_: float = 1.0
    """What examinations were divided by and attractions multiplied: the prior is about probabilities before that."""
    by_features: ClassVar[bool] = True
    """Whether there are attractions, so that `attraction` may be a ranker."""
    ratios: ClassVar[bool] = False
    """Whether the shared parameters are relative to one of them, and may exceed 1."""
    _learner: AttractionByFeatures | None = None
    _begin: FloatArray | None = None
    """Where the fit is to begin, where it is known."""
    _rest: FloatArray | None = None
    """Where it ended."""
    _weights: FloatArray
    """How often each query counted."""
    _corrected: dict[str, FloatArray] | None = None

    def __init__(
        self,
        *,
        prior: tuple[float, float] | None = None,
        tolerance: float = 1e-9,
        max_steps: int = 5_000,
        attraction: Any = None,
    ) -> None:
        self.prior, self.tolerance, self.max_steps, self.attraction = prior, tolerance, max_steps, attraction

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
            warn_user(_restless(self, f"{self.steps_:,} steps"), ConvergenceWarning)
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
        check_whole("max_steps", self.max_steps, 1)
        self.prior_ = self._usual_prior(log) if self.prior is None else self.prior
        if np.shape(self.prior_) != (2,) or not all(0 < value < np.inf for value in self.prior_):
            raise DataError(f"prior must be two numbers above 0, clicks and skips to add, not {self.prior!r}.")
        weights = np.ones(log.n_queries) if query_weights is None else np.asarray(query_weights, dtype=np.float64)
        if not weights.any():
            raise DataError("query_weights are all 0: no query counts, so nothing can be learnt.")
        if weights.shape != (log.n_queries,) or not (weights >= 0).all() or not np.isfinite(weights).all():
            raise DataError(f"query_weights must be one number, 0 or more, for each of the {log.n_queries} queries.")
        self.steps_, self.converged_, self._learner = 1, True, self._learner_of(log, data)
        self._fit(log, weights, threads)
        self.log_, self.data_, self._weights = log, None if self._learner is None else data, weights
        self._corrected = None
        if self._learner is not None:
            self.ranker_, self._learner = self._learner.ranker, None
        return self

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
    def chances(self, log: ClickLog, *, given: bool = True) -> FloatArray:
        """P(click) of each impression: given the clicks above it, or (``given=False``) whatever happened there."""

    @abstractmethod
    def draw(
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
            return np.asarray(np.add.reduceat(np.log(_happened(self.chances(log), log)), log.offsets[:-1]))

    def perplexity(self, log: ClickLog, *, given: bool = False) -> Perplexity:
        """Return how surprised the model is at each rank; with ``given=True``, it knows the clicks above."""
        with np.errstate(divide="ignore"):
            surprise = -np.log2(_happened(self.chances(log, given=given), log))
        rank = log.sessions.places
        return Perplexity(2 ** (np.bincount(rank, surprise) / np.bincount(rank)))

    @property
    def parameters_(self) -> dict[str, FloatArray]:
        """The probabilities that all pairs share, by name."""
        self._check_fitted()
        return {name: np.atleast_1d(getattr(self, f"{name}_")) for name in self.shared}

    def intervals(
        self,
        log: ClickLog,
        data: RankingData | None = None,
        *,
        groups: int = 20,
        confidence: float = 0.95,
        seed: int = 0,
    ) -> dict[str, Interval[FloatArray]]:
        """The shared parameters with intervals: each group of queries is left out in turn, and the model fitted anew.

        Of documents that were shown a few times each, a fit knows little, and what they share suffers from it in the
        same way in every fit. So the prior weighs less here, and the fit is asked what it makes of users who are as
        it says: by how much it misses them, the values are corrected. They may differ from `parameters_`. What no click
        of the log tells may be anything: from 0 to 1, or without an upper end where it is relative to another.

        >>> log = ClickLog.of(["q", "q", "r", "r"], ["a", "b", "a", "c"], [1, 2, 1, 2], [1, 0, 1, 1])
        >>> interval = PBM().intervals(log)["examination"]
        >>> bool(interval.low[1] < interval.value[1] < interval.high[1])
        True
        """
        check_whole("groups", groups, 2)
        check_number("confidence", confidence, above=0, below=1)
        check_lists(log)
        best = self._hardly_shrunk(log, data)
        weights, shares = left_out_in_turn(log, groups, seed)
        fits = [self._hardly_shrunk(log, data, kept, best._rest) for kept in (weights if len(weights) > 1 else ())]
        rests = [fit.parameters_ for fit in fits]
        refits = self._refits(best, log, None, seed)
        if restless := sum(not fit.converged_ for fit in (best, *fits)):
            warn_user(_restless(self, f"{restless} of {len(fits) + 1} fits"), ConvergenceWarning)
        most, intervals = np.inf if self.ratios else 1.0, dict[str, Interval[FloatArray]]()
        for name, first in best.parameters_.items():
            value, noise = self._without_misses(name, first, refits), np.zeros_like(first)
            if refits:
                refitted = np.array([refit[name] for refit in refits])
                noise = refitted.var(axis=0, ddof=1) / len(refits) + (_DOUBT * (refitted.mean(axis=0) - first)) ** 2
            without = np.array([rest[name] for rest in rests])
            intervals[name] = jackknife(value, without, shares, confidence, ratios=self.ratios, besides=noise)
            low, high = np.maximum(intervals[name].low, 0.0), np.minimum(intervals[name].high, most)
            if len(rests):
                unidentified = self._unidentified(log, np.stack([first, *without]), best.prior_[0] / sum(best.prior_))
                low, high = np.where(unidentified, 0.0, low), np.where(unidentified, most, high)
            possible = first > 0  # what cannot happen stays so
            intervals[name] = replace(
                intervals[name], low=np.where(possible, low, 0.0), high=np.where(possible, high, 0.0)
            )
        return intervals

    def corrected(self) -> dict[str, FloatArray]:
        """The shared parameters, with what few impressions of each document do to them taken out.

        They are the values of `intervals`, of the log of the fit; training divides by them. Those of `PBM` are without
        bias however few impressions a document has. Where the attraction is
        learnt from features nothing is to be corrected, and they are `parameters_`.
        """
        self._check_fitted()
        if self.attraction is not None or not self.by_features:
            return self.parameters_
        if self._corrected is None:
            best = self._hardly_shrunk(self.log_, None, self._weights)
            refits = self._refits(best, self.log_, self._weights, 0)
            corrected = {name: self._without_misses(name, first, refits) for name, first in best.parameters_.items()}
            self._corrected = corrected
        return self._corrected

    def _hardly_shrunk(
        self,
        log: ClickLog,
        data: RankingData | None,
        weights: FloatArray | None = None,
        begin: FloatArray | None = None,
    ) -> Self:
        """The model fitted to a log with a weaker prior, for what all documents share."""
        weak = self._weak_prior(log)
        model = type(self)(prior=weak, tolerance=self.tolerance, max_steps=self.max_steps, attraction=self.attraction)
        model._begin = begin
        return model._learn(log, data, weights)

    def _weak_prior(self, log: ClickLog) -> tuple[float, float]:
        clicks, skips = self._usual_prior(log) if self.prior is None else self.prior
        less = min(1.0, _HARDLY / (clicks + skips))
        return less * clicks, less * skips

    def _refits(self, best: Self, log: ClickLog, weights: FloatArray | None, seed: int) -> list[dict[str, FloatArray]]:
        """What fits make of users who are as `best` says, where documents have attractions of their own."""
        users = best._simulated(log, seed) if self.attraction is None and self.by_features else ()
        return [self._hardly_shrunk(simulated, None, weights, best._rest).parameters_ for simulated in users]

    def _without_misses(self, name: str, first: FloatArray, refits: list[dict[str, FloatArray]]) -> FloatArray:
        """A parameter less what fits miss such users by."""
        missed = np.mean([refit[name] for refit in refits], axis=0) - first if refits else 0.0
        return np.asarray(np.clip(first - missed, 0.0, np.inf if self.ratios else 1.0))

    def _unidentified(self, log: ClickLog, fits: FloatArray, mean: float) -> npt.NDArray[np.bool_]:
        """Which parameters no click of the log tells: all fits say of them what the prior does."""
        del log
        return np.asarray(np.isclose(fits, mean, rtol=1e-9, atol=0).all(axis=0))

    def _simulated(self, log: ClickLog, seed: int) -> Iterator[ClickLog]:
        """The lists of the log, clicked by users who are as the model says."""
        rng = np.random.default_rng([seed, 1])  # other numbers than those that draw queries
        liked, enough = self.attraction_, getattr(self, "satisfaction_", self.attraction_)
        for _ in range(_SIMULATED):
            yield replace(log, clicks=self.draw(log, liked[log.pair], enough[log.pair], rng))

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
            + ("." if self.converged_ else f"; not converged after {self.steps_} steps.")
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
    if log.doubled.any():
        count = int(log.doubled.sum())
        raise DataError(
            f"{count:,} {'session has' if count == 1 else 'sessions have'} several documents at one position, so that "
            "their order is not known:",
            remedy=WITHOUT_DOUBLED,
        )


def rate_prior(
    log: ClickLog, impressions: float = 2.0, looked_at: npt.NDArray[np.bool_] | None = None
) -> tuple[float, float]:
    """A prior of so many impressions with the rate of clicks on what was looked at, as clicks and skips.

    By default that is the first position of the log: all users look there, so that the rate is the mean
    attraction of what was shown. A prior with another mean draws rarely shown documents to it, and so the examination
    of the positions at which they stand the other way. Models that know by themselves what was looked at take the rate
    of that: the rates of clicks all impressions, `Cascade` those down to the first click, `DCM` and `SDBN` those down
    to the last (all of a list without one).

    >>> rate_prior(ClickLog.of(["q"] * 4, ["a"] * 4, [1] * 4, [1, 0, 0, 0]))
    (0.6, 1.4)
    """
    if looked_at is None:
        looked_at = log.position == (log.position.min() if log.n_impressions else 1)
    clicks = log.clicks[looked_at]
    rate = (float(clicks.sum()) + 0.5) / (len(clicks) + 1)
    return impressions * rate, impressions * (1 - rate)


def _restless(model: ClickModel, what: str) -> str:
    return (
        f"The fit of {type(model).__name__} had not converged when it ended ({what}), so its numbers may be far off. "
        f"Raise max_steps (it is {model.max_steps:,}), or the tolerance."
    )


def _happened(chances: FloatArray, log: ClickLog) -> FloatArray:
    """The probability of what happened at each impression."""
    return np.where(log.clicks, chances, 1 - chances)


def blocks(n: int) -> list[tuple[int, int]]:
    """Ranges of equally many, whatever the number of threads: sums do not depend on it."""
    return [(first, min(first + _BLOCK, n)) for first in range(0, n, _BLOCK)]


def by_rank(log: ClickLog) -> Iterator[tuple[IntArray, IntArray]]:
    """The impressions of the first rank and their sessions, then those of the second …"""
    sizes = np.diff(log.offsets)
    for rank in range(int(sizes.max(initial=0))):
        sessions = np.flatnonzero(sizes > rank)
        yield log.offsets[sessions] + rank, sessions


# ---- rates ----


class _Rate(ClickModel):
    """A rate of clicks: the mean of its Beta posterior."""

    rate_: FloatArray
    by_features: ClassVar[bool] = False

    @abstractmethod
    def _group(self, log: ClickLog) -> IntArray:
        """What the rate is of, for each impression: a number."""

    def _usual_prior(self, log: ClickLog) -> tuple[float, float]:
        return rate_prior(log, looked_at=np.ones(log.n_impressions, dtype=bool))

    @override
    def _fit(self, log: ClickLog, weights: FloatArray, threads: int | None) -> None:
        group, weight = self._group(log), log.weighed(weights)
        self._shown = np.bincount(group, weight)
        self._clicked = np.bincount(group, weight * log.clicks)
        a, b = self.prior_
        self.rate_ = (self._clicked + a) / (self._shown + a + b)
        self._learnt(log)

    def _learnt(self, log: ClickLog) -> None:
        self.attraction_ = np.full(log.n_pairs, float(self.rate_.mean()))

    def posterior_interval(self, confidence: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of each rate, from its Beta posterior.

        They are no `Interval`: that promises how often its ends hold the truth, log after log, while these say where a
        rate lies for who believes the prior, which is itself learned from the log where none is given.
        """
        from scipy.special import betaincinv

        self._check_fitted()
        a, b = self.prior_[0] + self._clicked, self.prior_[1] + self._shown - self._clicked
        return betaincinv(a, b, (1 - confidence) / 2), betaincinv(a, b, (1 + confidence) / 2)

    @override
    def chances(self, log: ClickLog, *, given: bool = True) -> FloatArray:
        """The rate of each impression's group."""
        self._check_fitted()
        group = self._group(log)
        unseen = self.prior_[0] / sum(self.prior_)
        return np.append(self.rate_, unseen)[np.minimum(group, len(self.rate_))]

    @override
    def draw(
        self, log: ClickLog, attraction: FloatArray, satisfaction: FloatArray, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """Clicks at the rates; what the documents are does not matter, but for `DocumentCTR`."""
        return rng.random(log.n_impressions) < self.chances(log)


class GlobalCTR(_Rate):
    """One rate for all.

    >>> log = ClickLog.of(["q", "q"], ["a", "b"], [1, 2], [1, 0])
    >>> float(GlobalCTR(prior=(1, 1)).fit(log).rate_[0])
    0.5
    """

    shared: ClassVar[tuple[str, ...]] = ("rate",)

    def _group(self, log: ClickLog) -> IntArray:
        return np.zeros(log.n_impressions, dtype=np.int64)


class RankCTR(_Rate):
    """A rate for each position."""

    shared: ClassVar[tuple[str, ...]] = ("rate",)

    def _group(self, log: ClickLog) -> IntArray:
        return log.position - 1


class DocumentCTR(_Rate):
    """A rate for each document of a query, wherever it stood."""

    def _group(self, log: ClickLog) -> IntArray:
        return log.pair

    def _learnt(self, log: ClickLog) -> None:
        a, b = self.prior_
        self.attraction_ = np.append(self.rate_, np.full(log.n_pairs - len(self.rate_), a / (a + b)))

    @override
    def chances(self, log: ClickLog, *, given: bool = True) -> FloatArray:
        """The rate of each impression's document."""
        return self._of_pairs("attraction_", log)[log.pair]

    @override
    def draw(
        self, log: ClickLog, attraction: FloatArray, satisfaction: FloatArray, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """Clicks on what attracts, wherever it stands."""
        return rng.random(log.n_impressions) < attraction


# ---- products ----


class ProductCells(NamedTuple):
    """How often each pair was shown and clicked at each place, pair by pair; queries count as often as they weigh."""

    begins: IntArray
    """Where the cells of each pair begin, and the end."""
    pair: npt.NDArray[np.int32]
    place: npt.NDArray[np.int32]
    shown: FloatArray
    clicked: FloatArray
    n_places: int

    @classmethod
    def of(cls, log: ClickLog, place: IntArray, n_places: int, weights: FloatArray) -> Self:
        """The cells of a log whose impressions stand at these places."""
        if log.weights is not None:
            return cls._weighed(log, place, n_places, log.weighed(weights))
        if log.n_pairs * n_places <= log.n_impressions < 2**31:  # a table takes less memory than the impressions do
            counts = np.empty((log.n_pairs * n_places, 2), dtype=np.int32)
            kernels.count_cells(log.pair, place, log.clicks.view(np.uint8), n_places, counts)
            cell = np.flatnonzero(counts[:, 0])
            shown, clicked = counts[cell].T.astype(np.float64)
        else:
            key = np.sort((log.pair * n_places + place) * 2 + log.clicks)
            begins = np.flatnonzero(np.r_[True, np.diff(key >> 1) > 0])
            cell = key[begins] >> 1
            shown = np.diff(np.append(begins, len(key))).astype(np.float64)
            clicked = np.add.reduceat((key & 1).astype(np.float64), begins)
        weight = weights[log.pair_query[cell // n_places]]
        return cls._made(cell, shown * weight, clicked * weight, log.n_pairs, n_places)

    @classmethod
    def _weighed(cls, log: ClickLog, place: IntArray, n_places: int, weight: FloatArray) -> Self:
        """Count the cells of a log whose impressions weigh differently."""
        cells, (shown, clicked) = sums_by(log.pair * n_places + place, weight, weight * log.clicks)
        return cls._made(cells, shown, clicked, log.n_pairs, n_places)

    @classmethod
    def _made(cls, cells: IntArray, shown: FloatArray, clicked: FloatArray, n_pairs: int, n_places: int) -> Self:
        """Make them of cells that are numbered pair by pair, and place by place."""
        pair, place = (cells // n_places).astype(np.int32), (cells % n_places).astype(np.int32)
        return cls(np.searchsorted(pair, np.arange(n_pairs + 1)), pair, place, shown, clicked, n_places)

    def fit(
        self,
        prior: tuple[float, float],
        tolerance: float,
        max_steps: int,
        threads: int | None = None,
        learner: AttractionByFeatures | None = None,
        start: FloatArray | None = None,
    ) -> Maximum:
        """The attraction of each pair and then the examination of each place that are most likely."""
        n, m, (a, b) = len(self.begins) - 1, self.n_places, prior
        shown = np.concatenate([sums(self.pair, self.shown, n), sums(self.place, self.shown, self.n_places)])
        parts = blocks(n)

        def step(both: FloatArray) -> tuple[FloatArray, float]:
            attracted, examined = np.empty(n), np.zeros((len(parts), self.n_places))

            def part(number: int) -> float:
                parameters = (both[:n], both[n:], *parts[number], True, attracted, examined[number])
                return float(kernels.product_sums(*self[:5], *parameters))

            value = sum(each_block(part, range(len(parts)), threads))
            shrunk = both if learner is None else both[n:]
            value += float(kernels.beta_prior(shrunk, a, b))
            better = (np.concatenate([attracted, examined.sum(axis=0)]) + a) / (shown + a + b)
            if learner is not None:
                better[:n] = learner(attracted, shown[:n])
            return inside(better), value

        if start is None:
            rates = (sums(self.pair, self.clicked, n) + a) / (shown[:n] + a + b)
            start = np.concatenate([rates, np.full(self.n_places, 0.5)])
        if learner is not None:
            return climb(step, start, tolerance, max_steps)
        counts = self.shown > 0
        joined = joined_places(self.pair[counts], self.place[counts], self.n_places)

        def read(both: FloatArray) -> FloatArray:
            """Only ratios of examinations are in a log, and only of places that documents join."""
            examined = both[-self.n_places :][joined]
            return np.asarray(examined / examined.max())

        if self.n_places > _FEW_SHARED:
            return maximise(step, start, tolerance, max_steps, read)
        attraction = inside(start[:n])

        def profile(examination: FloatArray) -> tuple[FloatArray, FloatArray]:
            """Slope and curvature in the logarithms of the examinations, each pair's attraction at its best."""
            slopes, curvatures = np.zeros((len(parts), m)), np.zeros((len(parts), m, m))

            def part(number: int) -> None:
                cells = self.begins, self.place, self.shown, self.clicked
                results = attraction, slopes[number], curvatures[number], np.empty((3, m))
                kernels.profile_of_places(*cells, examination, a, b, *parts[number], *results)

            each_block(part, range(len(parts)), threads)
            own = b * examination / (1 - examination)
            slope, curvature = slopes.sum(axis=0) + a - own, curvatures.sum(axis=0)
            curvature[np.diag_indices(m)] += own / (1 - examination)
            return slope, curvature

        examination, steps, converged = ascend(profile, inside(start[n:]), tolerance, max_steps, read)
        at = np.concatenate([inside(attraction), examination])
        return Maximum(at, step(at)[1], steps, converged)


class _Product(ClickModel):
    """P(click) = attraction of the document × examination of the place.

    `identified_` says which examinations the log can compare with that of the first position: those of places to which
    documents lead, from one that they share to the next. The others are what the prior makes of them (or the form of
    the ranker, where the attraction is learnt from features), and no better than that.
    """

    shared: ClassVar[tuple[str, ...]] = ("examination",)
    ratios: ClassVar[bool] = True
    examination_: FloatArray
    identified_: npt.NDArray[np.bool_]

    @classmethod
    def known(cls, examination: npt.ArrayLike) -> Self:
        """A model whose examinations are given, to simulate with."""
        model = cls()
        model.examination_ = np.asarray(examination, dtype=np.float64)
        return model

    @abstractmethod
    def _places(self, log: ClickLog) -> tuple[IntArray, int]:
        """The number of each impression's place, and how many there are."""

    @abstractmethod
    def _keep(self, attraction: FloatArray, examination: FloatArray, depth: int) -> None:
        """Take what was learnt, with what is not identified set to its custom."""

    def _fit(self, log: ClickLog, weights: FloatArray, threads: int | None) -> None:
        cells = ProductCells.of(log, *self._places(log), weights)
        tolerance = self.tolerance * log.n_impressions
        fitted = cells.fit(self.prior_, tolerance, self.max_steps, threads, self._learner, self._begin)
        self.steps_, self.converged_, self._rest = fitted.steps, fitted.converged, fitted.at
        self._keep(fitted.at[: log.n_pairs], fitted.at[log.n_pairs :], log.depth)

    @override
    def _unidentified(self, log: ClickLog, fits: FloatArray, mean: float) -> npt.NDArray[np.bool_]:
        """Places without a click or a way to the first; and all where that has no click: they are relative to it."""
        place, n_places = self._places(log)
        silent = sums(place, log.clicks, n_places) == 0
        if self.attraction is None:
            silent |= ~joined_places(log.pair, place, n_places)
        return np.asarray(silent | silent[0]).reshape(fits.shape[1:])

    def _look_at_joints(self, log: ClickLog, data: RankingData | None) -> None:
        place, n_places = self._places(log)
        by_features = self.attraction is not None and data is not None
        pair = same_features(log, data)[log.pair] if by_features and data is not None else log.pair
        joined = joined_places(pair, place, n_places)
        self.identified_ = joined.reshape(self.examination_.shape)
        seen, compared = (np.bincount(log.position[of], minlength=log.depth + 1) > 0 for of in (..., joined[place]))
        lost = np.flatnonzero(seen & ~compared).tolist()
        if not lost:
            return
        several, rests = len(lost) > 1, "the form of the ranker" if by_features else "its prior"
        which = f"position{'s' if several else ''} {', '.join(map(str, lost[:10]))}{' …' if len(lost) > 10 else ''}"
        warn_user(
            f"No document{' and no feature vector' if by_features else ''} joins {which} to the first: what "
            f"{type(self).__name__} says of {'them' if several else 'it'} rests on {rests} alone. {SWAP}",
            UnidentifiedWarning,
        )

    def _looked(self, log: ClickLog) -> FloatArray:
        check_depth(self, log, len(self.examination_))
        return self.examination_[log.position - 1]

    @override
    def chances(self, log: ClickLog, *, given: bool = True) -> FloatArray:
        """Attraction times examination."""
        return self._of_pairs("attraction_", log)[log.pair] * self._looked(log)


def joined_places(
    pair: npt.NDArray[np.signedinteger[Any]], place: npt.NDArray[np.signedinteger[Any]], n_places: int
) -> npt.NDArray[np.bool_]:
    """Return which places pairs join to the first one, from impressions of these pairs at these places.

    >>> joined_places(np.array([0, 0, 1, 1, 2]), np.array([0, 2, 2, 1, 3]), 4).tolist()
    [True, True, True, False]
    """
    from scipy.sparse import coo_array

    place_of = np.zeros(int(pair.max(initial=-1)) + 1, dtype=np.int64)
    place_of[pair] = place  # one of its places: whatever a pair joins, it joins to that
    joined = place.astype(np.int64) * n_places + place_of[pair]
    if n_places <= _FEW_PLACES:
        table = np.zeros(n_places**2, dtype=bool)
        table[joined] = True
        edges = np.flatnonzero(table)
    else:
        edges = np.unique(joined)
    ends = edges // n_places, edges % n_places
    label = components(coo_array((np.ones(len(edges), dtype=bool), ends), shape=(n_places, n_places)))
    return np.asarray(label == label[0])


class PBM(_Product):
    """The position-based model: a place is looked at with a probability of its own, whatever stands there.

    Only the ratios of the examinations are in a log: that of the first position is set to 1.

    >>> log = ClickLog.of(["q"] * 4, ["a", "b", "b", "a"], [1, 2, 1, 2], [1, 0, 1, 0])
    >>> bool(PBM().fit(log).examination_[0] == 1)
    True
    """

    def _places(self, log: ClickLog) -> tuple[IntArray, int]:
        return log.position - 1, log.depth

    @override
    def _keep(self, attraction: FloatArray, examination: FloatArray, depth: int) -> None:
        self.scale_ = float(examination[0])
        self.examination_, self.attraction_ = examination / self.scale_, attraction * self.scale_

    @override
    def _hardly_shrunk(
        self,
        log: ClickLog,
        data: RankingData | None,
        weights: FloatArray | None = None,
        begin: FloatArray | None = None,
    ) -> Self:
        """By where the clicks of each document fell: however few its impressions are, that is without bias."""
        if self.attraction is not None:
            return super()._hardly_shrunk(log, data, weights, begin)
        model = type(self)()
        model.prior_ = self._weak_prior(log)
        counted = np.ones(log.n_queries) if weights is None else weights
        cells = ProductCells.of(log, *self._places(log), counted)
        counts = (cells.begins, cells.place, cells.shown, cells.clicked, cells.n_places)
        model.examination_, model.converged_ = relative_examinations(*counts, model.prior_[0])
        model.log_ = log
        return model

    @override
    def _refits(self, best: Self, log: ClickLog, weights: FloatArray | None, seed: int) -> list[dict[str, FloatArray]]:
        """Nothing is missed, and nothing to be corrected."""
        return []

    @override
    def draw(
        self, log: ClickLog, attraction: FloatArray, satisfaction: FloatArray, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """Every impression by itself."""
        return rng.random(log.n_impressions) < attraction * self._looked(log)


class UBM(_Product):
    """The user browsing model: a place is looked at depending on where the last click above it was.

    `examination_[k, j]`: position k + 1, the last click at position j ≤ k; 0: none. That of the first position is 1.
    """

    def _places(self, log: ClickLog) -> tuple[IntArray, int]:
        check_compared(log)
        return (log.position - 1) * (log.depth + 1) + last_click(log), log.depth * (log.depth + 1)

    def _keep(self, attraction: FloatArray, examination: FloatArray, depth: int) -> None:
        self.scale_ = float(examination[0])
        self.attraction_ = attraction * self.scale_
        self.examination_ = np.tril((examination / self.scale_).reshape(depth, depth + 1))

    def _looked(self, log: ClickLog) -> FloatArray:
        check_depth(self, log, len(self.examination_))
        return self.examination_[log.position - 1, last_click(log)]

    def chances(self, log: ClickLog, *, given: bool = True) -> FloatArray:
        """Attraction times examination; without the clicks above, over all places where the last one may have been."""
        if given:
            return super().chances(log)
        attraction, chance = self._of_pairs("attraction_", log), np.empty(log.n_impressions)
        table = np.zeros((len(self.examination_) + 1, len(self.examination_) + 1))
        table[1:] = self.examination_[:, : len(self.examination_) + 1]
        self._looked(log)
        each_block(
            lambda part: kernels.browsing_chances(
                log.offsets, log.pair, log.position, attraction, table, *part, chance
            ),
            blocks(log.n_sessions),
        )
        return chance

    @override
    def draw(
        self, log: ClickLog, attraction: FloatArray, satisfaction: FloatArray, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """From the top on, remembering the last click."""
        last, clicks = np.zeros(log.n_sessions, dtype=np.int64), np.zeros(log.n_impressions, dtype=bool)
        uniform = rng.random(log.n_impressions)
        for rows, sessions in by_rank(log):
            chance = self.examination_[log.position[rows] - 1, last[sessions]] * attraction[rows]
            clicks[rows] = uniform[rows] < chance
            last[sessions] = np.where(clicks[rows], log.position[rows], last[sessions])
        return clicks


def last_click(log: ClickLog) -> IntArray:
    """Return for each impression the position of the last click above it in its session; 0 if there is none.

    >>> last_click(ClickLog.of(["q"] * 4, list("abcd"), [1, 2, 3, 4], [0, 1, 0, 1])).tolist()
    [0, 0, 2, 2]
    """
    span = np.int64(log.depth + 1)
    here = log.session * span + np.where(log.clicks, log.position, 0)
    before = np.maximum.accumulate(np.r_[0, here[:-1]]) if len(here) else here
    return np.maximum(before - log.session * span, 0)
