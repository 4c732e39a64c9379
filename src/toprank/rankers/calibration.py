"""Calibration of P(grade | x) on held-out queries, and the dependence between the grades of a query.

Probabilities are corrected by a chain of steps, logit P(y ≥ k | y ≥ k − 1) = a_k + b_k·h_k(x) with b_k > 0. For rankers
trained by likelihood, h_k are their own log odds of that step. A ranking loss determines only the score and not the
grade probabilities, so there h are the log odds of the score within the range of the gains, which preserves the order.

The grades of a query share factors that the features do not show (a hard topic, a strict judge). A latent normal
variable, cut at the quantiles of P(grade | x), determines each grade. It is the sum of three independent parts: one for
the document, one shared by the documents of a query (`shared`, a fraction of the variance), and one common to all
queries (`common`, since the level itself is estimated from the held-out queries only).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from toprank.compute import FloatArray
from toprank.data.arguments import check_whole
from toprank.data.queries import Queries
from toprank.errors import refuse_if
from toprank.scorers.expected_gain import expected_gains

_MIN_PROBABILITY = 1e-12  # keeps log odds finite
_MAX_SHARED = 0.95  # above, all documents of a query would have practically the same grade


@dataclass(frozen=True)
class Calibration:
    """Estimates from held-out queries: a line (a_k, b_k) for each step between grades, and the dependence of grades."""

    steps: tuple[tuple[float, float], ...]
    by_score: bool
    shared: float
    common: float
    queries: int

    def probabilities(self, P: FloatArray, gains: FloatArray) -> FloatArray:
        """Return P(grade | x), calibrated."""
        from scipy.special import expit

        evidence = [_evidence(P, gains, k, self.by_score) for k in range(1, P.shape[1])]
        odds = [a + b * h for (a, b), h in zip(self.steps, evidence, strict=True)]
        reached = np.cumprod(np.column_stack([np.ones(len(P)), *map(expit, odds)]), axis=1)
        stopped = np.column_stack([*(expit(-each) for each in odds), np.ones(len(P))])
        result: FloatArray = reached * stopped
        return result

    def plain(self) -> dict[str, Any]:
        """Return the values for a model file."""
        return asdict(self) | {"steps": [list(step) for step in self.steps]}

    @classmethod
    def from_plain(cls, plain: dict[str, Any], n_grades: int) -> Self:
        """Return the calibration that `plain` described; refuse invalid values."""
        calibration = cls(
            tuple((float(a), float(b)) for a, b in plain["steps"]),
            bool(plain["by_score"]),
            float(plain["shared"]),
            float(plain["common"]),
            int(plain["queries"]),
        )
        lines = np.array(calibration.steps)
        sound = lines.shape == (n_grades - 1, 2) and np.isfinite(lines).all() and (lines[:, 1] > 0).all()
        refuse_if(
            not (sound and 0 <= calibration.shared <= _MAX_SHARED and 0 <= calibration.common < np.inf),
            "the calibration does not match the grades",
        )
        return calibration


def fit_calibration(
    P: FloatArray, gains: FloatArray, labels: FloatArray, queries: Queries, weights: FloatArray, *, by_score: bool
) -> Calibration:
    """Fit the map by weighted likelihood and the dependence by moments; `weights` are the DCG weights in the ranker's
    order.

    Each document is weighted by its DCG weight plus the mean of its query: probabilities matter most at the ranks that
    DCG weights, and a long list carries no more information than a short one. `shared` is chosen so that the DCGs of
    the queries vary around their expectations as observed (two degrees of freedom belong to level and slope of the
    map).
    """
    grades = labels.astype(np.int64)
    importance = weights + queries.broadcast(queries.sum(weights) / queries.sizes)
    steps = []
    for k in range(1, P.shape[1]):
        there = grades >= k - 1
        h = _evidence(P[there], gains, k, by_score)
        steps.append(_line(h, (grades[there] >= k).astype(np.float64), importance[there]))
    n = len(queries)
    bare = Calibration(tuple(steps), by_score, 0.0, 0.0, n)
    right = bare.probabilities(P, gains)
    missed = queries.sum(weights * (gains[grades] - right @ gains))
    seen = float((missed**2).mean()) * n / (n - 2)

    def mean_variance(shared: float) -> float:
        return float(variances(right, weights, gains, queries, shared).mean())

    alone = mean_variance(0.0)
    shared = 0.0
    if seen > alone:
        from scipy.optimize import brentq

        shared = (
            _MAX_SHARED
            if mean_variance(_MAX_SHARED) <= seen
            else float(brentq(lambda s: mean_variance(s) - seen, 0, _MAX_SHARED))
        )
    # The effect of shared variance on the variance of DCG; a mean over n queries has 1/n of the variance.
    effect = (mean_variance(0.1) - alone) / 0.1
    return Calibration(tuple(steps), by_score, shared, max(seen, alone) / (n * effect) if effect > 0 else 0.0, n)


def _evidence(P: FloatArray, gains: FloatArray, k: int, by_score: bool) -> FloatArray:
    """Return the log odds, up to a linear map, that a document with grade at least k − 1 has grade at least k."""
    if by_score:
        up, down = expected_gains(P, gains - gains.min()), expected_gains(P, gains.max() - gains)
    else:
        up, down = P[:, k:].sum(axis=1), P[:, k - 1]
    return np.log(np.maximum(up, _MIN_PROBABILITY)) - np.log(np.maximum(down, _MIN_PROBABILITY))


def _line(h: FloatArray, happened: FloatArray, importance: FloatArray) -> tuple[float, float]:
    """Fit a and b of P = σ(a + b·h). Platt's smoothed targets keep them finite for any data."""
    from scipy.optimize import minimize
    from scipy.special import expit

    if len(h) == 0:
        return 0.0, 1.0
    yes = happened.sum()
    target = np.where(happened > 0, (yes + 1) / (yes + 2), 1 / (len(h) - yes + 2))
    share = importance / importance.sum()
    center = float(share @ h)
    width = float(np.sqrt(share @ (h - center) ** 2)) or 1.0
    x = (h - center) / width

    def cost(line: FloatArray) -> tuple[float, FloatArray]:
        odds = line[0] + line[1] * x
        gap = share * (expit(odds) - target)
        return float(share @ (np.logaddexp(0, odds) - target * odds)), np.array([gap.sum(), gap @ x])

    # A slope of 0 would make all scores equal; this lower bound changes little and preserves their order.
    a, b = minimize(cost, np.array([0.0, 1.0]), jac=True, method="L-BFGS-B", bounds=[(None, None), (1e-3, None)]).x
    return float(a - b * center / width), float(b / width)


def cuts_of(P: FloatArray) -> FloatArray:
    """Return the cut points of the latent normal variable: above the k-th, the grade is larger than k."""
    from scipy.special import ndtri

    cuts: FloatArray = ndtri(np.clip(np.cumsum(P, axis=1)[:, :-1], 1e-15, 1 - 1e-15))
    return cuts


def variances(P: FloatArray, weights: FloatArray, gains: FloatArray, queries: Queries, shared: float) -> FloatArray:
    """Return the variance of each query's Σ weight·gain if its grades share a fraction of their variance."""
    from scipy.special import ndtr

    used = np.flatnonzero(weights != 0)
    of_query, c = queries.document_query[used], weights[used]
    nodes, chances = np.polynomial.hermite_e.hermegauss(32) if shared else (np.zeros(1), np.ones(1))
    cuts, rises, square_rises = cuts_of(P[used]), np.diff(gains), np.diff(gains**2)
    first, second = np.zeros(len(queries)), np.zeros(len(queries))
    for node, chance in zip(nodes, chances / chances.sum(), strict=True):
        above = ndtr((np.sqrt(shared) * node - cuts) / np.sqrt(1 - shared))
        gain = gains[0] + above @ rises
        variance = np.maximum(gains[0] ** 2 + above @ square_rises - gain**2, 0.0)
        mean = np.bincount(of_query, c * gain, len(queries))
        first += chance * mean
        second += chance * (mean**2 + np.bincount(of_query, c**2 * variance, len(queries)))
    return np.maximum(second - first**2, 0.0)


class CalibrationCurve(NamedTuple):
    """Mean predicted probability, observed frequency and number of documents for each bin of predictions."""

    predicted: FloatArray
    observed: FloatArray
    documents: FloatArray

    @property
    def error(self) -> float:
        """Expected calibration error: mean |predicted − observed|, weighted by the documents."""
        total = self.documents.sum()
        return float((np.abs(self.predicted - self.observed) * self.documents).sum() / total) if total else 0.0


def calibration_curve(predicted: FloatArray, happened: FloatArray, bins: int = 10) -> CalibrationCurve:
    """Compare predicted probabilities with outcomes (0 or 1), in bins with equal numbers of documents."""
    check_whole("bins", bins, 1)
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, bins + 1)))
    place = np.clip(np.searchsorted(edges, predicted, side="right") - 1, 0, max(len(edges) - 2, 0))
    count = np.bincount(place).astype(np.float64)
    used = count > 0
    return CalibrationCurve(
        np.bincount(place, predicted)[used] / count[used], np.bincount(place, happened)[used] / count[used], count[used]
    )
