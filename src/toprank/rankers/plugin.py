"""The plug-in of Algorithm 1: grade probabilities from any scikit-learn classifier, calibrated over whole queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError, UnknownNameError
from toprank.scorers.features import Features, Standardisation, row_blocks

__all__ = ["PluginProbabilities"]


@dataclass(frozen=True)
class PluginProbabilities:
    """A fitted classifier that speaks of grades."""

    classifier: Any
    standardisation: Standardisation
    n_grades: int

    @classmethod
    def fit(
        cls,
        classifier: Any,
        calibration: str | None,
        data: RankingData,
        standardisation: Standardisation,
        n_grades: int,
    ) -> PluginProbabilities:
        """Fit a clone of the classifier; calibration is cross-fitted so that no query is on both sides."""
        if not hasattr(classifier, "predict_proba"):
            raise DataError(f"{type(classifier).__name__} has no predict_proba; choose a classifier that has.")
        model = clone(classifier)
        if calibration is not None:
            from sklearn.calibration import CalibratedClassifierCV
            from sklearn.model_selection import GroupKFold

            if calibration not in ("sigmoid", "isotonic"):
                raise UnknownNameError("calibration", calibration, ["sigmoid", "isotonic"])
            folds = min(5, data.n_queries)
            if folds < 2:
                raise DataError("Calibration holds out whole queries, so it needs at least two.")
            groups = data.queries.document_query
            parts = list(GroupKFold(folds).split(np.zeros(data.n_documents), groups=groups))
            model = CalibratedClassifierCV(model, method=calibration, cv=parts)
        Z = Features(data.X, standardisation).dense(slice(0, data.n_documents))
        model.fit(Z, data.labels.astype(np.int64))
        return cls(model, standardisation, n_grades)

    def predict(self, X: Any) -> FloatArray:
        """P(grade | x); a grade the classifier never saw has probability 0."""
        features = Features(X, self.standardisation)
        full = np.zeros((X.shape[0], self.n_grades))
        for rows in row_blocks(X, 1 << 26):  # classifiers are slow to start
            full[rows, self.classifier.classes_] = self.classifier.predict_proba(features.dense(rows))
        return full
