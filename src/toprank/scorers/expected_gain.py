"""The expected-gain scorer: P(r = k | x) = softmax_k(w_k·z + b_k), s = Σ_k G(k) P(r = k | x) (Yang et al. 2010 §5.2).

E[G(y) | x] orders optimally for DCG with gain G (not always for NDCG, whose normaliser depends on the grades).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from toprank.compute import FloatArray
from toprank.scorers.features import Features

__all__ = ["ExpectedGain", "Logits", "grade_probabilities"]


def grade_probabilities(logits: FloatArray) -> FloatArray:
    """Softmax over the last axis, safe for any size of logits."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: FloatArray = shifted / shifted.sum(axis=1, keepdims=True)
    return result


def _logits(weights: FloatArray, Z: FloatArray, n_grades: int) -> FloatArray:
    """Weights are laid out grade by grade: (w_k, b_k)."""
    table = weights.reshape(n_grades, -1)
    result: FloatArray = Z @ table[:, :-1].T + table[:, -1]
    return result


@dataclass(frozen=True)
class ExpectedGain:
    """s = Σ_k G(k) P(k | x); weights (w_k, b_k) for each grade k.

    Args:
        n_features: number of features.
        gains: G(k) for each grade.
        saturation: ε of the paper: where some P(k) exceeds it, P(k) counts as 1 and the others as 0 while descending,
            so that the document has the score G(k) and no gradient. 1.0: never.
    """

    n_features: int
    gains: FloatArray
    saturation: float = 1.0

    @property
    def n_weights(self) -> int:
        """One row of weights and an intercept for each grade."""
        return len(self.gains) * (self.n_features + 1)

    def forward(self, weights: FloatArray, features: Features, rows: slice) -> ExpectedGainScored:
        """Score a block of rows."""
        Z = features.dense(rows)
        P = grade_probabilities(_logits(weights, Z, len(self.gains)))
        if self.saturation < 1.0:
            sure = P.max(axis=1) > self.saturation
            P[sure] = np.eye(len(self.gains))[P[sure].argmax(axis=1)]
        scores = P @ self.gains
        # ∂s/∂logit_k = P_k (G_k − s): zero where one grade is certain.
        return ExpectedGainScored(scores, Z, P * (self.gains - scores[:, None]))


@dataclass(frozen=True)
class ExpectedGainScored:
    """Expected gains of a block, and their derivative with respect to the logits."""

    holds_rows: ClassVar[bool] = True

    scores: FloatArray
    Z: FloatArray
    d_logits: FloatArray

    def back(self, d_scores: FloatArray) -> FloatArray:
        """See `Scored.back`."""
        pulled = self.d_logits * d_scores[:, None]
        return np.column_stack([pulled.T @ self.Z, pulled.sum(axis=0)]).ravel()

    def forth(self, d_weights: FloatArray) -> FloatArray:
        """See `Scored.forth`."""
        d_scores: FloatArray = (_logits(d_weights, self.Z, self.d_logits.shape[1]) * self.d_logits).sum(axis=1)
        return d_scores

    def jacobian(self) -> FloatArray:
        """See `Scored.jacobian`."""
        with_one = np.column_stack([self.Z, np.ones(len(self.Z))])
        return (self.d_logits[:, :, None] * with_one[:, None, :]).reshape(len(self.Z), -1)


@dataclass(frozen=True)
class Logits:
    """The same weights, but the scores are the logits themselves, (documents, grades): for likelihood training."""

    n_features: int
    n_grades: int

    @property
    def n_weights(self) -> int:
        """One row of weights and an intercept for each grade."""
        return self.n_grades * (self.n_features + 1)

    def forward(self, weights: FloatArray, features: Features, rows: slice) -> LogitsScored:
        """Score a block of rows."""
        Z = features.dense(rows)
        return LogitsScored(_logits(weights, Z, self.n_grades), Z)


@dataclass(frozen=True)
class LogitsScored:
    """Logits of a block, (documents, grades); linear in the weights."""

    holds_rows: ClassVar[bool] = True

    scores: FloatArray
    Z: FloatArray

    def back(self, d_scores: FloatArray) -> FloatArray:
        """See `Scored.back`."""
        return np.column_stack([d_scores.T @ self.Z, d_scores.sum(axis=0)]).ravel()

    def forth(self, d_weights: FloatArray) -> FloatArray:
        """See `Scored.forth`."""
        return _logits(d_weights, self.Z, self.scores.shape[1])

    def jacobian(self) -> FloatArray:
        """Z with a column of ones: what multiplies the weights of each grade."""
        return np.column_stack([self.Z, np.ones(len(self.Z))])
