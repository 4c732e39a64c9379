"""Expected DCG of a ranking without labels: expectation, standard deviation and simulated intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.queries import Queries
from toprank.errors import DataError, Remedy
from toprank.metrics.conventions import Discount
from toprank.metrics.sorting import rank_block
from toprank.rankers.calibration import Calibration, cuts_of, variances
from toprank.scorers.expected_gain import expected_gains
from toprank.significance import Interval

_N_DRAWS = 2000
_DETAIL = "simulated from calibrated grade probabilities"
_SEED = 0  # fixed, so that results are reproducible
_MAX_QUERIES, _MAX_DOCUMENTS = 512, 1024  # processed at a time, for all draws
CALIBRATE = Remedy(
    "Calibrate the ranker on data that it was not trained on first: ranker.calibrate(valid).",
    "Train it with {calibrate} and separate data first.",
    calibrate=...,
)


class SimulatedGains(NamedTuple):
    """Shortest interval of each query's value at a confidence level, and simulated means over queries."""

    low: FloatArray
    high: FloatArray
    means: FloatArray
    confidence: float


def simulate(
    P: FloatArray, weights: FloatArray, gains: FloatArray, queries: Queries, calibration: Calibration, confidence: float
) -> SimulatedGains:
    """Simulate grades from the calibration and return intervals of Σ weight·gain at a confidence level."""
    rng, shared = np.random.default_rng(_SEED), calibration.shared
    everywhere = rng.standard_normal(_N_DRAWS) * np.sqrt(calibration.common)
    low, high, total = np.empty(len(queries)), np.empty(len(queries)), np.zeros(_N_DRAWS)
    for first in range(0, len(queries), _MAX_QUERIES):
        last = min(first + _MAX_QUERIES, len(queries))
        begin, end = queries.offsets[[first, last]]
        used = begin + np.flatnonzero(weights[begin:end] != 0)
        level = everywhere + np.sqrt(shared) * rng.standard_normal((last - first, _N_DRAWS))
        values = np.zeros((last - first, _N_DRAWS))
        for place in range(0, len(used), _MAX_DOCUMENTS):
            rows = used[place : place + _MAX_DOCUMENTS]
            of_query = queries.document_query[rows] - first
            behind = rng.standard_normal((len(rows), _N_DRAWS)) * np.sqrt(1 - shared) + level[of_query]
            cuts = cuts_of(P[rows]) * np.sqrt(1 + calibration.common)
            drawn = np.full(behind.shape, gains[0])
            for k, rise in enumerate(np.diff(gains)):
                drawn += rise * (behind > cuts[:, k, None])
            drawn *= weights[rows, None]
            begins = np.flatnonzero(np.r_[True, np.diff(of_query) > 0])
            values[of_query[begins]] += np.add.reduceat(drawn, begins, axis=0)
        low[first:last], high[first:last] = _shortest(values, confidence)
        total += values.sum(axis=0)
    return SimulatedGains(low, high, total / len(queries), confidence)


def _shortest(values: FloatArray, share: float) -> tuple[FloatArray, FloatArray]:
    """Return the shortest interval that contains a fraction of each row, since DCG is skewed and often 0."""
    ranked = np.sort(values, axis=1)
    inside = int(np.ceil(share * ranked.shape[1]))
    begin = (ranked[:, inside - 1 :] - ranked[:, : ranked.shape[1] - inside + 1]).argmin(axis=1)
    row = np.arange(len(ranked))
    return ranked[row, begin], ranked[row, begin + inside - 1]


@dataclass(frozen=True)
class ExpectedValue:
    """Expectation and standard deviation of an unobserved value, per query (``mean, deviation = value``).

    Intervals are available if the ranker was calibrated on held-out queries, which show how the grades of a query
    depend on each other. Otherwise grades count as independent given the features, and the deviation is a lower bound.
    """

    mean: FloatArray
    deviation: FloatArray
    spread: SimulatedGains | None = None

    def __iter__(self) -> Iterator[FloatArray]:
        return iter((self.mean, self.deviation))

    def interval(self) -> Interval[FloatArray]:
        """Return the shortest interval for each query at the confidence level."""
        simulated = self._known()
        return Interval(self.mean, simulated.low, simulated.high, simulated.confidence, len(self.mean), _DETAIL, "DCG")

    def overall(self) -> tuple[float, float]:
        """Return expectation and standard deviation of the mean over queries."""
        if self.spread is None:
            return float(self.mean.mean()), float(np.sqrt((self.deviation**2).sum()) / len(self.mean))
        return float(self.mean.mean()), float(self.spread.means.std())

    def overall_interval(self) -> Interval:
        """Return the interval of the mean over queries, which are independent except for the level of the
        calibration.
        """
        simulated, (mean, _) = self._known(), self.overall()
        low, high = np.quantile(simulated.means, [(1 - simulated.confidence) / 2, (1 + simulated.confidence) / 2])
        return Interval(mean, float(low), float(high), simulated.confidence, len(self.mean), _DETAIL, "mean DCG")

    def _known(self) -> SimulatedGains:
        if self.spread is None:
            raise DataError(
                "An interval needs the dependence between the grades of a query, estimated on held-out queries.",
                remedy=CALIBRATE,
            )
        return self.spread


def rank_weights(scores: FloatArray, queries: Queries, k: int | None, discount: Discount) -> FloatArray:
    """Return the c_j of DCG@k = Σ_j c_j G(y_j): the discount at each document's rank, averaged over ties."""
    ranked = rank_block(np.ascontiguousarray(scores), queries.offsets, (0, len(queries)), None, keep_ties=True)
    weights = discount.weights(int(queries.sizes.max()))
    if k is not None:
        weights[k:] = 0.0
    group = np.concatenate([[0], np.cumsum(ranked.ends)[:-1]])
    of_group = np.bincount(group, weights[queries.positions_in_query]) / np.bincount(group)
    of_document = np.empty(queries.n_documents)
    of_document[ranked.order] = of_group[group]
    return of_document


def expected_dcg(
    weights: FloatArray,
    probabilities: FloatArray,
    gains: FloatArray,
    queries: Queries,
    calibration: Calibration | None = None,
    confidence: float = 0.95,
) -> ExpectedValue:
    """Return expectation and standard deviation of DCG = Σ_j c_j G(y_j) with c_j = weights and grades from
    `probabilities`.

    E = Σ c_j E[G_j] under any dependence; Var = Σ c_j² Var[G_j] for independent grades.
    """
    mean = queries.sum(weights * expected_gains(probabilities, gains))
    if calibration is None:
        return ExpectedValue(mean, np.sqrt(variances(probabilities, weights, gains, queries, 0.0)))
    together = (calibration.shared + calibration.common) / (1 + calibration.common)
    deviation = np.sqrt(variances(probabilities, weights, gains, queries, together))
    return ExpectedValue(mean, deviation, simulate(probabilities, weights, gains, queries, calibration, confidence))
