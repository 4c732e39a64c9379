"""What relevance probabilities are good for: expected gains, expected DCG without labels, calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils.metaestimators import available_if

from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_data, check_whole
from toprank.data.checks import numbers
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.metrics.gains import Discount, Gain
from toprank.metrics.ranking import rank_block

__all__ = [
    "CalibrationCurve",
    "ExpectedValue",
    "GradeProbabilities",
    "calibration_curve",
    "expected_dcg",
    "fit_scaling",
    "has_grades",
]


class ExpectedValue(NamedTuple):
    """A value that is not observed: its expectation and standard deviation, per query."""

    mean: FloatArray
    deviation: FloatArray

    def overall(self) -> tuple[float, float]:
        """Expectation and standard deviation of the mean over queries."""
        return float(self.mean.mean()), float(np.sqrt((self.deviation**2).sum()) / len(self.mean))


def has_grades(ranker: Any) -> bool:
    """Whether a ranker has P(grade | x): by what it has learnt, or before that by what it is asked for."""
    gains = getattr(ranker, "gains_", None)
    return getattr(ranker, "outputs", "grades") == "grades" if gains is None else len(gains) > 0


class GradeProbabilities:
    """What rankers with P(grade | x) can tell besides; they have `predict_proba`, and `gains_` once they are fitted."""

    gains_: FloatArray
    predict_proba: Callable[..., FloatArray]

    @property
    def classes_(self) -> IntArray:
        """The grades that the columns of `predict_proba` stand for: 0, 1, 2 …"""
        if not has_grades(self) or not hasattr(self, "gains_"):
            raise AttributeError(f"This {type(self).__name__} has no classes_: it is not fitted with grades.")
        return np.arange(len(self.gains_))

    @available_if(has_grades)  # type: ignore[untyped-decorator]
    def expected_dcg(
        self,
        data: RankingData,
        scores: npt.ArrayLike | None = None,
        *,
        k: int | None = 10,
        gain: str | Sequence[float] | None = None,
        discount: str = "log2",
    ) -> ExpectedValue:
        """What DCG@k to expect of a ranking (this ranker's own, where no scores are given), without any labels.

        As good as the probabilities: calibrate first. Grades are taken as independent given the features.
        """
        check_data("expected_dcg", data)
        if k is not None:
            check_whole("k", k, 1)
        probabilities = self.predict_proba(data)
        gains = self.gains_ if gain is None else self._gains(gain)
        values = probabilities @ gains if scores is None else numbers(scores, "scores").astype(np.float64)
        if values.shape != (data.n_documents,) or not np.isfinite(values).all():
            raise DataError("expected_dcg needs one finite score for each document.")
        return expected_dcg(values, probabilities, gains, data.queries, k, Discount.of(discount))

    @available_if(has_grades)  # type: ignore[untyped-decorator]
    def calibration_curve(self, data: RankingData, *, at_least: int = 1, bins: int = 10) -> CalibrationCurve:
        """Predicted P(grade ≥ at_least) against what happened, in bins of equally many documents."""
        check_data("calibration_curve", data)
        if not data.judged.all():
            raise DataError("calibration_curve compares with judgments; take data.keep(data.judged).")
        predicted = self.predict_proba(data)
        check_whole("at_least", at_least, 1, below=predicted.shape[1])
        happened = (data.labels >= at_least).astype(np.float64)
        return calibration_curve(predicted[:, at_least:].sum(axis=1), happened, bins)

    def _gains(self, gain: str | Sequence[float]) -> FloatArray:
        """G of each grade."""
        grades = np.arange(len(self.gains_), dtype=np.float64)
        return Gain.of(gain).table(grades, grades[-1])


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
    check_whole("bins", bins, 1)
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
