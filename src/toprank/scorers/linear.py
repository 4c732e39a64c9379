"""The scorer protocol: scores from weights and a block of rows, and the Jacobian-vector products of the chain rule.

This module also holds the scorers that are linear in their weights: s = w·z + b, and one score with K − 1 thresholds
for proportional odds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from toprank.compute import FloatArray
from toprank.scorers.features import Features


class Scored(Protocol):
    """Scores of a block of rows, and their derivative with respect to the weights."""

    holds_rows: ClassVar[bool]
    """Whether it keeps a copy of the rows; the copies of all blocks together would be a copy of X."""

    @property
    def scores(self) -> FloatArray:
        """One score for each document, or a row of scores for each document, one per grade."""

    def vjp(self, d_scores: FloatArray) -> FloatArray:
        """Return Jᵀ · d_scores, the gradient of the weights from a gradient of the scores."""

    def jvp(self, d_weights: FloatArray) -> FloatArray:
        """Return J · d_weights, the change of the scores from a change of the weights."""


class ScoredOnce(Scored, Protocol):
    """Scores of a block with one score for each document."""

    def jacobian(self) -> FloatArray:
        """Return J, (documents, weights)."""


class ScoredByClass(Scored, Protocol):
    """Scores of a block with several scores for each document, one per grade or threshold, linear in the weights."""

    def hessian(self, by_class: FloatArray) -> FloatArray:
        """Return Jᵀ H J, (weights, weights), from the curvature H of each document, (documents, columns, columns)."""


class Scorer(Protocol):
    """A family of scoring functions."""

    @property
    def n_weights(self) -> int:
        """Number of weights."""

    def forward(self, weights: FloatArray, features: Features, rows: slice) -> Scored:
        """Score a block of rows."""


@dataclass(frozen=True)
class LinearScorer:
    """s = w·z + b with weights (w, b); without b for shift-invariant losses."""

    n_features: int
    intercept: bool = False

    @property
    def n_weights(self) -> int:
        """Number of features, plus 1 with an intercept."""
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

    def vjp(self, d_scores: FloatArray) -> FloatArray:
        """See `Scored.vjp`."""
        d_weights = self.features.transposed_times(self.rows, d_scores)
        return np.append(d_weights, d_scores.sum()) if self.intercept else d_weights

    def jvp(self, d_weights: FloatArray) -> FloatArray:
        """See `Scored.jvp`."""
        d_scores = self.features.times(self.rows, d_weights[: self.features.n_columns])
        return d_scores + d_weights[-1] if self.intercept else d_scores

    def jacobian(self) -> FloatArray:
        """See `Scored.jacobian`."""
        Z = self.features.dense(self.rows)
        return np.column_stack([Z, np.ones(len(Z))]) if self.intercept else Z


@dataclass(frozen=True)
class Thresholds:
    """Cumulative logits c_k = w·z − θ_k for k = 1 … K − 1; weights (w, θ)."""

    n_features: int
    n_grades: int

    @property
    def n_weights(self) -> int:
        """Number of features and thresholds."""
        return self.n_features + self.n_grades - 1

    def forward(self, weights: FloatArray, features: Features, rows: slice) -> ThresholdsScored:
        """Score a block of rows."""
        common = features.times(rows, weights[: self.n_features])
        return ThresholdsScored(common[:, None] - weights[self.n_features :], features, rows)

    @property
    def free(self) -> slice:
        """The indices of the thresholds, which are not penalized."""
        return slice(self.n_features, None)

    def start(self, shares: FloatArray) -> FloatArray:
        """Return initial weights that predict the grade frequencies for any features."""
        at_least = np.cumsum(shares[::-1])[::-1][1:]
        return np.concatenate([np.zeros(self.n_features), np.log1p(-at_least) - np.log(at_least)])

    def split(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Split weights into one row of coefficients and the negated thresholds."""
        return weights[None, : self.n_features].copy(), -weights[self.n_features :]

    @staticmethod
    def probabilities(cumulative: FloatArray) -> FloatArray:
        """Return P(k) = σ(c_k) − σ(c_{k+1}) from cumulative logits (n, K − 1); never negative, with sum 1."""
        from scipy.special import expit

        n = len(cumulative)
        at_least = np.column_stack([np.ones(n), expit(cumulative), np.zeros(n)])
        P = np.maximum(at_least[:, :-1] - at_least[:, 1:], 0.0)
        result: FloatArray = P / P.sum(axis=1, keepdims=True)
        return result


@dataclass(frozen=True)
class ThresholdsScored:
    """Cumulative logits of a block, (documents, K − 1)."""

    holds_rows: ClassVar[bool] = False

    scores: FloatArray
    features: Features
    rows: slice

    def vjp(self, d_scores: FloatArray) -> FloatArray:
        """See `Scored.vjp`."""
        d_common = np.ascontiguousarray(d_scores.sum(axis=1))
        return np.concatenate([self.features.transposed_times(self.rows, d_common), -d_scores.sum(axis=0)])

    def jvp(self, d_weights: FloatArray) -> FloatArray:
        """See `Scored.jvp`."""
        d = self.features.n_columns
        change: FloatArray = self.features.times(self.rows, d_weights[:d])[:, None] - d_weights[d:]
        return change

    def hessian(self, by_class: FloatArray) -> FloatArray:
        """See `ScoredByClass.hessian`."""
        d, by_threshold = self.features.n_columns, by_class.sum(axis=2)
        Z = self.features.dense(self.rows)
        result = np.empty((d + by_class.shape[1],) * 2)
        result[:d, :d] = Z.T @ (by_threshold.sum(axis=1)[:, None] * Z)
        result[:d, d:] = -Z.T @ by_threshold
        result[d:, :d] = result[:d, d:].T
        result[d:, d:] = by_class.sum(axis=0)
        return result
