"""The linear scorer s = w·z + b, with or without the intercept b."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from toprank.compute import FloatArray
from toprank.scorers.features import Features

__all__ = ["Linear"]


@dataclass(frozen=True)
class Linear:
    """s = w·z + b. The weights are (w, b); b is left out where the loss does not see shifts."""

    n_features: int
    intercept: bool = False

    @property
    def n_weights(self) -> int:
        """Features, and the intercept."""
        return self.n_features + self.intercept

    def forward(self, weights: FloatArray, features: Features, rows: slice) -> LinearScored:
        """Score a block of rows."""
        scores = features.times(rows, weights[: self.n_features])
        if self.intercept:
            scores += weights[-1]
        return LinearScored(scores, features, rows, self.intercept)


@dataclass(frozen=True)
class LinearScored:
    """Linear scores of a block; J = (Z, 1)."""

    holds_rows: ClassVar[bool] = False

    scores: FloatArray
    features: Features
    rows: slice
    intercept: bool

    def back(self, d_scores: FloatArray) -> FloatArray:
        """See `Scored.back`."""
        d_weights = self.features.transposed_times(self.rows, d_scores)
        return np.append(d_weights, d_scores.sum()) if self.intercept else d_weights

    def forth(self, d_weights: FloatArray) -> FloatArray:
        """See `Scored.forth`."""
        d_scores = self.features.times(self.rows, d_weights[: self.features.n_columns])
        return d_scores + d_weights[-1] if self.intercept else d_scores

    def jacobian(self) -> FloatArray:
        """See `Scored.jacobian`."""
        Z = self.features.dense(self.rows)
        return np.column_stack([Z, np.ones(len(Z))]) if self.intercept else Z
