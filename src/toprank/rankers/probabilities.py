"""What relevance probabilities are good for: expected gains, expected DCG without labels, calibration."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.queries import Queries
from toprank.metrics.gains import Discount
from toprank.metrics.ranking import rank_block

__all__ = ["CalibrationCurve", "ExpectedValue", "calibration_curve", "expected_dcg", "fit_scaling"]


class ExpectedValue(NamedTuple):
    """A value that is not observed: its expectation and standard deviation, per query."""

    mean: FloatArray
    deviation: FloatArray

    def overall(self) -> tuple[float, float]:
        """Expectation and standard deviation of the mean over queries."""
        return float(self.mean.mean()), float(np.sqrt((self.deviation**2).sum()) / len(self.mean))


def expected_dcg(
    scores: FloatArray,
    probabilities: FloatArray,
    gains: FloatArray,
    queries: Queries,
    k: int | None,
    discount: Discount,
) -> ExpectedValue:
    """Expectation and standard deviation of DCG@k of a ranking whose grades are drawn from `probabilities`.

    DCG = Σ_j G(y_j) c_j with c_j the weight of the document's rank (the mean weight of its tied group), so with
    grades independent given the features E = Σ c_j E[G_j] and Var = Σ c_j² Var[G_j].
    """
    offsets = queries.offsets
    ranked = rank_block(np.ascontiguousarray(scores), offsets, (0, len(queries)), None, keep_ties=True)
    longest = int(queries.sizes.max())
    weights = discount.weights(longest)
    if k is not None:
        weights[k:] = 0.0
    position = np.arange(queries.n_documents) - np.repeat(offsets[:-1], queries.sizes)
    group = np.concatenate([[0], np.cumsum(ranked.ends)[:-1]])
    by_rank = weights[position]
    of_group = np.bincount(group, by_rank) / np.bincount(group)
    of_document = np.empty(queries.n_documents)
    of_document[ranked.order] = of_group[group]
    mean = probabilities @ gains
    variance = np.maximum(probabilities @ gains**2 - mean**2, 0.0)
    return ExpectedValue(queries.sum(of_document * mean), np.sqrt(queries.sum(of_document**2 * variance)))


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
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, bins + 1)))
    place = np.clip(np.searchsorted(edges, predicted, side="right") - 1, 0, max(len(edges) - 2, 0))
    count = np.bincount(place).astype(np.float64)
    used = count > 0
    return CalibrationCurve(
        np.bincount(place, predicted)[used] / count[used],
        np.bincount(place, happened)[used] / count[used],
        count[used],
    )


def fit_scaling(
    logits: FloatArray, grades: FloatArray, probabilities: Callable[[FloatArray], FloatArray]
) -> tuple[float, FloatArray]:
    """A scale and one shift per column such that probabilities(scale · logits + shift) suit held-out grades best.

    Maximum likelihood from scale 1 and shift 0, so the held-out likelihood never gets worse. A scale alone (a
    temperature) cannot mend scores that ranking losses leave centred anywhere.
    """
    from scipy.optimize import minimize

    own = np.arange(len(grades)), grades.astype(np.int64)

    def cost(parameters: FloatArray) -> float:
        chosen = probabilities(np.exp(parameters[0]) * logits + parameters[1:])[own]
        return float(-np.log(np.maximum(chosen, 1e-300)).mean())

    start = np.zeros(logits.shape[1] + 1)
    found = minimize(cost, start, method="L-BFGS-B").x
    best = found if cost(found) <= cost(start) else start
    return float(np.exp(best[0])), best[1:]
