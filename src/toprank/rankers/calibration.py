"""Probabilities set right on held-out queries, and how much the grades of a query hang together.

The map is a chain of steps, logit P(y ≥ k | y ≥ k − 1) = a_k + b_k·h_k(x) with b_k > 0. Where the ranker was trained by
likelihood, h_k are its own log odds of that step. A ranking loss decides nothing but the score, and leaves the grades
behind it anywhere; there h are the log odds of the score within the range of the gains, so the order stays as it was.

The grades of a query share what the features do not show (a hard topic, a strict judge). Behind each grade stands a
normal variable, cut at the quantiles of P(grade | x) and made of three independent parts: one of the document, one that
the documents of a query have in common (`shared`, a share of the variance), and one that all queries have in common
(`common`: the level itself is known from the held-out queries only). P(grade | x) stays what it is; DCG spreads more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from toprank.compute import FloatArray
from toprank.data.queries import Queries
from toprank.errors import DataError

__all__ = ["Calibration", "Spread", "fit_calibration", "simulate", "variances"]

_TINY = 1e-12  # a probability of 0 has no log odds
_MOST = 0.95  # beyond it all documents of a query would have practically one grade
_DRAWS = 2000
_SEED = 0  # the same question gets the same answer
_QUERIES, _DOCUMENTS = 512, 1024  # held at a time, times the draws


@dataclass(frozen=True)
class Calibration:
    """What held-out queries taught: a line (a_k, b_k) for each step between grades, and how grades hang together."""

    steps: tuple[tuple[float, float], ...]
    by_score: bool
    shared: float
    common: float
    queries: int

    def probabilities(self, P: FloatArray, gains: FloatArray) -> FloatArray:
        """P(grade | x), set right."""
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
    def of(cls, plain: dict[str, Any], n_grades: int) -> Self:
        """What `plain` wrote down; refused where it cannot be."""
        found = cls(
            tuple((float(a), float(b)) for a, b in plain["steps"]),
            bool(plain["by_score"]),
            float(plain["shared"]),
            float(plain["common"]),
            int(plain["queries"]),
        )
        lines = np.array(found.steps)
        sound = lines.shape == (n_grades - 1, 2) and np.isfinite(lines).all() and (lines[:, 1] > 0).all()
        if not (sound and 0 <= found.shared <= _MOST and 0 <= found.common < np.inf):
            raise DataError("the calibration does not fit the grades")
        return found


def fit_calibration(
    P: FloatArray, gains: FloatArray, labels: FloatArray, queries: Queries, weights: FloatArray, *, by_score: bool
) -> Calibration:
    """The map by weighted likelihood, the dependence by moments; weights are those of DCG in the ranker's own order.

    A document counts by its weight in DCG, and by the mean of its query: probabilities are to be right above all where
    DCG looks, and a long list is no better witness than a short one. `shared` is such that the DCGs of the queries
    spread around their expectations as they did (two degrees of freedom went into level and slope of the map).
    """
    grades = labels.astype(np.int64)
    importance = weights + queries.spread(queries.sum(weights) / queries.sizes)
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

        shared = _MOST if mean_variance(_MOST) <= seen else float(brentq(lambda s: mean_variance(s) - seen, 0, _MOST))
    # What a shared part of the variance does to DCG's; the mean of n queries is known up to 1/n of what one spreads.
    effect = (mean_variance(0.1) - alone) / 0.1
    return Calibration(tuple(steps), by_score, shared, max(seen, alone) / (n * effect) if effect > 0 else 0.0, n)


def _evidence(P: FloatArray, gains: FloatArray, k: int, by_score: bool) -> FloatArray:
    """Log odds, to be trusted up to a line, that a document that has reached grade k − 1 goes further."""
    if by_score:
        up, down = P @ (gains - gains.min()), P @ (gains.max() - gains)
    else:
        up, down = P[:, k:].sum(axis=1), P[:, k - 1]
    odds: FloatArray = np.log(np.maximum(up, _TINY)) - np.log(np.maximum(down, _TINY))
    return odds


def _line(h: FloatArray, happened: FloatArray, importance: FloatArray) -> tuple[float, float]:
    """The a and b of P = σ(a + b·h). Platt's targets, a document short of certainty, keep them finite on any data."""
    from scipy.optimize import minimize
    from scipy.special import expit

    if len(h) == 0:
        return 0.0, 1.0
    yes = happened.sum()
    target = np.where(happened > 0, (yes + 1) / (yes + 2), 1 / (len(h) - yes + 2))
    share = importance / importance.sum()
    centre = float(share @ h)
    width = float(np.sqrt(share @ (h - centre) ** 2)) or 1.0
    x = (h - centre) / width

    def cost(line: FloatArray) -> tuple[float, FloatArray]:
        odds = line[0] + line[1] * x
        gap = share * (expit(odds) - target)
        return float(share @ (np.logaddexp(0, odds) - target * odds)), np.array([gap.sum(), gap @ x])

    # A slope of 0 would make all scores equal; this one changes next to nothing and keeps their order.
    a, b = minimize(cost, np.array([0.0, 1.0]), jac=True, method="L-BFGS-B", bounds=[(None, None), (1e-3, None)]).x
    return float(a - b * centre / width), float(b / width)


def _cuts(P: FloatArray) -> FloatArray:
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
    cuts, rises, square_rises = _cuts(P[used]), np.diff(gains), np.diff(gains**2)
    first, second = np.zeros(len(queries)), np.zeros(len(queries))
    for node, chance in zip(nodes, chances / chances.sum(), strict=True):
        above = ndtr((np.sqrt(shared) * node - cuts) / np.sqrt(1 - shared))
        gain = gains[0] + above @ rises
        variance = np.maximum(gains[0] ** 2 + above @ square_rises - gain**2, 0.0)
        mean = np.bincount(of_query, c * gain, len(queries))
        first += chance * mean
        second += chance * (mean**2 + np.bincount(of_query, c**2 * variance, len(queries)))
    return np.maximum(second - first**2, 0.0)


class Spread(NamedTuple):
    """The shortest interval of each query's value at a level, and draws of the mean over queries."""

    low: FloatArray
    high: FloatArray
    means: FloatArray
    level: float


def simulate(
    P: FloatArray, weights: FloatArray, gains: FloatArray, queries: Queries, calibration: Calibration, chance: float
) -> Spread:
    """Grades drawn as the calibration says, and what becomes of Σ weight·gain; `chance`: the level of the intervals."""
    rng, shared = np.random.default_rng(_SEED), calibration.shared
    everywhere = rng.standard_normal(_DRAWS) * np.sqrt(calibration.common)
    low, high, total = np.empty(len(queries)), np.empty(len(queries)), np.zeros(_DRAWS)
    for first in range(0, len(queries), _QUERIES):
        last = min(first + _QUERIES, len(queries))
        begin, end = queries.offsets[[first, last]]
        used = begin + np.flatnonzero(weights[begin:end] != 0)
        level = everywhere + np.sqrt(shared) * rng.standard_normal((last - first, _DRAWS))
        values = np.zeros((last - first, _DRAWS))
        for place in range(0, len(used), _DOCUMENTS):
            rows = used[place : place + _DOCUMENTS]
            of_query = queries.document_query[rows] - first
            behind = rng.standard_normal((len(rows), _DRAWS)) * np.sqrt(1 - shared) + level[of_query]
            cuts = _cuts(P[rows]) * np.sqrt(1 + calibration.common)
            drawn = np.full(behind.shape, gains[0])
            for k, rise in enumerate(np.diff(gains)):
                drawn += rise * (behind > cuts[:, k, None])
            drawn *= weights[rows, None]
            begins = np.flatnonzero(np.r_[True, np.diff(of_query) > 0])
            values[of_query[begins]] += np.add.reduceat(drawn, begins, axis=0)
        low[first:last], high[first:last] = _shortest(values, chance)
        total += values.sum(axis=0)
    return Spread(low, high, total / len(queries), chance)


def _shortest(values: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """The shortest interval that holds a share `level` of each row: DCG is skewed, and often 0."""
    ranked = np.sort(values, axis=1)
    inside = int(np.ceil(level * ranked.shape[1]))
    begin = (ranked[:, inside - 1 :] - ranked[:, : ranked.shape[1] - inside + 1]).argmin(axis=1)
    row = np.arange(len(ranked))
    return ranked[row, begin], ranked[row, begin + inside - 1]
