"""Click rates: baselines that every click model should beat on held-out sessions."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.clicks.em import rate_prior
from toprank.clicks.log import ClickLog
from toprank.clicks.models import ClickModel
from toprank.compute import FloatArray, IntArray


class _Rate(ClickModel):
    """Base class of click rates, the means of Beta posteriors."""

    rate_: FloatArray
    by_features: ClassVar[bool] = False

    @abstractmethod
    def _group(self, log: ClickLog) -> IntArray:
        """Return the group of each impression, whose rate is estimated."""

    def _usual_prior(self, log: ClickLog) -> tuple[float, float]:
        return rate_prior(log, looked_at=np.ones(log.n_impressions, dtype=bool))

    @override
    def _fit(self, log: ClickLog, weights: FloatArray, threads: int | None) -> None:
        group, weight = self._group(log), log.reweighted(weights)
        self._shown = np.bincount(group, weight)
        self._clicked = np.bincount(group, weight * log.clicks)
        a, b = self.prior_
        self.rate_ = (self._clicked + a) / (self._shown + a + b)
        self._learned(log)

    def _learned(self, log: ClickLog) -> None:
        self.attraction_ = np.full(log.n_pairs, float(self.rate_.mean()))

    def posterior_interval(self, confidence: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper ends of credible intervals from the Beta posteriors.

        These are not instances of `Interval`, which are confidence intervals. Credible intervals depend on the prior,
        which is learned from the log by default.
        """
        from scipy.special import betaincinv

        self._check_fitted()
        a, b = self.prior_[0] + self._clicked, self.prior_[1] + self._shown - self._clicked
        return betaincinv(a, b, (1 - confidence) / 2), betaincinv(a, b, (1 + confidence) / 2)

    @override
    def click_probabilities(self, log: ClickLog, *, conditional: bool = True) -> FloatArray:
        """Return the click rate of the group of each impression."""
        self._check_fitted()
        group = self._group(log)
        unseen = self.prior_[0] / sum(self.prior_)
        return np.append(self.rate_, unseen)[np.minimum(group, len(self.rate_))]

    @override
    def sample_clicks(
        self, log: ClickLog, attraction: FloatArray, satisfaction: FloatArray, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """Sample clicks at the rates; the attraction only matters to `DocumentCTR`."""
        return rng.random(log.n_impressions) < self.click_probabilities(log)


class GlobalCTR(_Rate):
    """One click rate for all impressions.

    >>> log = ClickLog.from_columns(["q", "q"], ["a", "b"], [1, 2], [1, 0])
    >>> float(GlobalCTR(prior=(1, 1)).fit(log).rate_[0])
    0.5
    """

    shared: ClassVar[tuple[str, ...]] = ("rate",)

    def _group(self, log: ClickLog) -> IntArray:
        return np.zeros(log.n_impressions, dtype=np.int64)


class RankCTR(_Rate):
    """One click rate for each position."""

    shared: ClassVar[tuple[str, ...]] = ("rate",)

    def _group(self, log: ClickLog) -> IntArray:
        return log.position - 1


class DocumentCTR(_Rate):
    """One click rate for each pair of query and document, at any position."""

    def _group(self, log: ClickLog) -> IntArray:
        return log.pair

    def _learned(self, log: ClickLog) -> None:
        a, b = self.prior_
        self.attraction_ = np.append(self.rate_, np.full(log.n_pairs - len(self.rate_), a / (a + b)))

    @override
    def click_probabilities(self, log: ClickLog, *, conditional: bool = True) -> FloatArray:
        """Return the click rate of the pair of each impression."""
        return self._of_pairs("attraction_", log)[log.pair]

    @override
    def sample_clicks(
        self, log: ClickLog, attraction: FloatArray, satisfaction: FloatArray, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """Sample clicks with the attraction of each document, at any position."""
        return rng.random(log.n_impressions) < attraction
