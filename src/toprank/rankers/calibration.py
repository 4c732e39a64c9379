"""Calibration of P(grade | x) on held-out queries, and the dependence between the grades of a query.

Probabilities are corrected by a chain of steps, logit P(y ≥ k | y ≥ k − 1) = a_k + b_k·h_k(x) with b_k > 0. If the
ranker was trained by likelihood, h_k are its own log odds of that step. A ranking loss decides nothing but the score,
and leaves the grades behind it anywhere; there h are the log odds of the score within the range of the gains, so the
order stays as it was.

The grades of a query share what the features do not show (a hard topic, a strict judge). Behind each grade is a normal
variable, cut at the quantiles of P(grade | x), the sum of three independent parts: one of the document, one that the
documents of a query have in common (`shared`, a share of the variance), and one that all queries have in common
(`common`: the level itself is known from the held-out queries only).
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

_TINY = 1e-12  # a probability of 0 has no log odds
_MAX_SHARED = 0.95  # beyond it all documents of a query would have practically one grade


@dataclass(frozen=True)
class Calibration:
    """What held-out queries show: a line (a_k, b_k) for each step between grades, and how their grades depend."""

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
        """For a model file."""
        return asdict(self) | {"steps": [list(step) for step in self.steps]}

    @classmethod
    def from_plain(cls, plain: dict[str, Any], n_grades: int) -> Self:
        """Return the calibration that `plain` described; refuse values that it cannot have."""
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
            "the calibration does not fit the grades",
        )
        return calibration


def fit_calibration(
    P: FloatArray, gains: FloatArray, labels: FloatArray, queries: Queries, weights: FloatArray, *, by_score: bool
) -> Calibration:
    """The map by weighted likelihood, the dependence by moments; weights are those of DCG in the ranker's own order.

    A document counts by its weight in DCG, and by the mean of its query: probabilities are to be right above all where
    DCG looks, and a long list is no better witness than a short one. `shared` is such that the DCGs of the queries
    spread around their expectations as they did (two degrees of freedom went into level and slope of the map).
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
    # What a shared part of the variance does to DCG's; the mean of n queries is known up to 1/n of what one spreads.
    effect = (mean_variance(0.1) - alone) / 0.1
    return Calibration(tuple(steps), by_score, shared, max(seen, alone) / (n * effect) if effect > 0 else 0.0, n)


def _evidence(P: FloatArray, gains: FloatArray, k: int, by_score: bool) -> FloatArray:
    """Log odds, to be trusted up to a line, that a document that has reached grade k − 1 goes further."""
    if by_score:
        up, down = expected_gains(P, gains - gains.min()), expected_gains(P, gains.max() - gains)
    else:
        up, down = P[:, k:].sum(axis=1), P[:, k - 1]
    return np.log(np.maximum(up, _TINY)) - np.log(np.maximum(down, _TINY))


def _line(h: FloatArray, happened: FloatArray, importance: FloatArray) -> tuple[float, float]:
    """The a and b of P = σ(a + b·h). Platt's targets, a document short of certainty, keep them finite on any data."""
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

    # A slope of 0 would make all scores equal; this one changes next to nothing and keeps their order.
    a, b = minimize(cost, np.array([0.0, 1.0]), jac=True, method="L-BFGS-B", bounds=[(None, None), (1e-3, None)]).x
    return float(a - b * center / width), float(b / width)


def cuts_of(P: FloatArray) -> FloatArray:
    """Where the normal variable behind a grade is cut: above the k-th the grade is larger than k."""
    from scipy.special import ndtri

    cuts: FloatArray = ndtri(np.clip(np.cumsum(P, axis=1)[:, :-1], 1e-15, 1 - 1e-15))
    return cuts


def variances(P: FloatArray, weights: FloatArray, gains: FloatArray, queries: Queries, shared: float) -> FloatArray:
    """Variance of each query's Σ weight·gain, where its grades have a share of their variance in common."""
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
    """For each bin of predicted probability: their mean, the observed share, and how many documents fell there."""

    predicted: FloatArray
    observed: FloatArray
    documents: FloatArray

    @property
    def error(self) -> float:
        """Expected calibration error: mean |predicted − observed|, weighted by the documents."""
        total = self.documents.sum()
        return float((np.abs(self.predicted - self.observed) * self.documents).sum() / total) if total else 0.0


def calibration_curve(predicted: FloatArray, happened: FloatArray, bins: int = 10) -> CalibrationCurve:
    """Predicted probabilities against what happened (0 or 1), in bins of equally many documents."""
    check_whole("bins", bins, 1)
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, bins + 1)))
    place = np.clip(np.searchsorted(edges, predicted, side="right") - 1, 0, max(len(edges) - 2, 0))
    count = np.bincount(place).astype(np.float64)
    used = count > 0
    return CalibrationCurve(
        np.bincount(place, predicted)[used] / count[used], np.bincount(place, happened)[used] / count[used], count[used]
    )
