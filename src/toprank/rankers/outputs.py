"""Outputs and grades: the outputs that a loss requires, their initial values, and classifiers as a replacement.

Trees and networks have one output, the score, or one for each grade (softmax). Any scikit-learn classifier can replace
them (the plug-in of Algorithm 1).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError, UnknownNameError
from toprank.losses import Loss
from toprank.losses import make as make_loss
from toprank.metrics.conventions import Gain
from toprank.rankers.estimator import unfitted
from toprank.scorers.features import Features, Standardization, row_blocks


def reads_labels(loss: Any) -> bool:
    """Return whether a loss, an instance or a name, uses the labels; None and LightGBM's losses do."""
    if isinstance(loss, Loss) or (isinstance(loss, str) and ":" not in loss):  # names with a colon are LightGBM's
        return make_loss(loss).traits.labels
    return True


def whole_grades(labels: FloatArray, remedy: str) -> int:
    """Return the number of grades in the labels, at least two; refuse labels that are not integers, with a remedy."""
    wrong = labels[(labels != np.floor(labels)) | (labels < 0)]
    if len(wrong):
        raise DataError(f"Grades must be integers from 0, but a document has {wrong[0]:g}; {remedy}")
    return max(int(labels.max()) + 1, 2)


def gain_table(gain: str | Sequence[float], n_grades: int) -> FloatArray:
    """Return G of each grade."""
    return Gain.from_spec(gain).table(np.arange(n_grades, dtype=np.float64), n_grades - 1.0)


def row_weights(data: RankingData) -> FloatArray | None:
    """Return the weight of each document, with query weights scaled to a mean of 1; None without weights."""
    if data.document_weights is None and data.query_weights is None:
        return None
    weights = np.ones(data.n_documents) if data.document_weights is None else np.array(data.document_weights)
    if data.query_weights is not None:
        weights *= data.queries.broadcast(data.query_weights / data.query_weights.mean())
    return weights


def weights_to_fit(estimator: Any, weights: FloatArray | None) -> dict[str, FloatArray]:
    """Return the weight argument for scikit-learn's `fit`; refuse an estimator that does not support weights."""
    if weights is None:
        return {}
    if "sample_weight" not in inspect.signature(estimator.fit).parameters:
        name = type(estimator).__name__
        raise DataError(f"{name}.fit does not support sample_weight, but the data have weights; drop them.")
    return {"sample_weight": weights}


def weighted_grades(data: RankingData) -> tuple[FloatArray, FloatArray]:
    """Return the unique labels in ascending order, and the weighted number of documents with each."""
    values, places = np.unique(data.labels, return_inverse=True)
    return values, np.bincount(places.reshape(-1), row_weights(data)).astype(np.float64)


def grade_shares(grades: FloatArray, counts: FloatArray, n_grades: int) -> FloatArray:
    """Return the frequency of each grade, with one added to every count."""
    often = np.bincount(grades.astype(np.int64), counts, minlength=n_grades) + 1.0
    shares: FloatArray = often / often.sum()
    return shares


def loss_and_gains(
    loss: Loss,
    outputs: str,
    gain: str | Sequence[float],
    labels: FloatArray,
    gains_before: FloatArray | None,
    without_thresholds: str,
) -> tuple[Loss, FloatArray]:
    """Return the loss, configured with the number of grades, and the gain of each grade (empty if the output is the
    score).

    Invalid combinations are refused. `labels` may be all labels or the unique ones; `gains_before` are the gains of the
    model that training continues, if any; `without_thresholds` names the learner in messages about losses with
    thresholds: "trees do".
    """
    name = type(loss).__name__
    if loss.traits.columns == "thresholds":
        raise DataError(
            f"{name} needs thresholds, which {without_thresholds} not learn; use Multinomial with outputs='grades'."
        )
    if loss.traits.space == "class" and outputs != "grades":
        raise DataError(f"{name} needs an output for each grade; set outputs='grades'.")
    if outputs != "grades":
        return loss, np.zeros(0)
    count = whole_grades(labels, "with outputs='grades' each is a class. Round the labels, or use outputs='score'.")
    if gains_before is not None:
        if count > len(gains_before):
            raise DataError(f"init_model has {len(gains_before)} grades, but the largest label is {count - 1}.")
        count = len(gains_before)
    if loss.traits.space == "class":
        loss = replace(loss, n_grades=count)  # type: ignore[call-arg]
    return loss, gain_table(gain, count)


def first_outputs(
    loss: Loss, n_grades: int, grades: FloatArray, counts: FloatArray, value: Callable[[float], float]
) -> FloatArray | None:
    """Return the initial outputs: the log frequencies of the grades, or the best constant score.

    The constant is 0 for shift-invariant losses, and None for losses that are not convex. `n_grades` is 0 if the output
    is the score; `value` is the loss if all documents have the same score.
    """
    if n_grades:
        return np.log(grade_shares(grades, counts, n_grades))
    if loss.traits.shift_invariant:
        return np.zeros(1)
    if not loss.traits.convex:
        return None
    from scipy.optimize import minimize_scalar

    return np.array([float(minimize_scalar(value).x)])


@dataclass(frozen=True)
class PluginProbabilities:
    """A fitted classifier that predicts grades."""

    classifier: Any
    standardization: Standardization
    n_grades: int

    @classmethod
    def fit(
        cls, classifier: Any, method: str | None, data: RankingData, standardization: Standardization, n_grades: int
    ) -> PluginProbabilities:
        """Fit a clone of the classifier; calibration is cross-fitted by query.

        Documents are weighted by `row_weights`.
        """
        if not hasattr(classifier, "predict_proba"):
            raise DataError(f"{type(classifier).__name__} has no predict_proba; use a classifier that has one.")
        model = unfitted(classifier)
        if method is not None:
            from sklearn.calibration import CalibratedClassifierCV
            from sklearn.model_selection import GroupKFold

            if method not in ("sigmoid", "isotonic"):
                raise UnknownNameError("calibration", method, ["sigmoid", "isotonic"])
            folds = min(5, data.n_queries)
            if folds < 2:
                raise DataError("Calibration holds out whole queries, so it needs at least two queries.")
            groups = data.queries.document_query
            parts = list(GroupKFold(folds).split(np.zeros(data.n_documents), groups=groups))
            model = CalibratedClassifierCV(model, method=method, cv=parts)
        Z = Features(data.X, standardization).dense(slice(0, data.n_documents))
        model.fit(Z, data.labels.astype(np.int64), **weights_to_fit(classifier, row_weights(data)))
        return cls(model, standardization, n_grades)

    def predict(self, X: Any) -> FloatArray:
        """Return P(grade | x), with 0 for grades that the classifier has not seen."""
        features = Features(X, self.standardization)
        full = np.zeros((X.shape[0], self.n_grades))
        for rows in row_blocks(X, 1 << 26):  # large blocks, because classifiers have a high overhead per call
            full[rows, self.classifier.classes_] = self.classifier.predict_proba(features.dense(rows))
        return full
