"""The expected-gain scorer: P(r = k | x) = softmax_k(w_k·z + b_k), s = Σ_k G(k) P(r = k | x) (Yang et al. 2010 §5.2).

E[G(y) | x] orders optimally for DCG with gain G (not always for NDCG, whose normalizer depends on the grades).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from toprank.compute import FloatArray, row_parts
from toprank.scorers.features import Features

_HELD = 8 << 20  # bytes: rows of a block that are held in double precision


def grade_probabilities(logits: FloatArray) -> FloatArray:
    """Softmax over the grades of each row, (documents, grades), safe for any size of logits."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: FloatArray = shifted / shifted.sum(axis=1, keepdims=True)
    return result


def expected_gains(probabilities: FloatArray, gains: FloatArray) -> FloatArray:
    """Σ_k G(k) P(k) of each row, added grade by grade: equal rows have equal sums, wherever they stand.

    BLAS promises no such thing: it adds the last rows of a table in another order, which breaks ties by rounding.
    """
    total = np.zeros(len(probabilities))
    for gain, share in zip(gains, probabilities.T, strict=True):
        total += gain * share
    return total


class _Rows:
    """Z[rows] and its products with the weights of the grades, (w_k, b_k) one after the other.

    Rows up to `_HELD` bytes are held in double precision; those of a larger query are made anew for each product, part
    by part, so that no query needs a copy of its features.
    """

    def __init__(self, features: Features, rows: slice) -> None:
        self._features, self._rows = features, rows
        self._parts = row_parts(rows, max(64, _HELD // (8 * max(features.n_columns, 1))))
        self._held = features.dense(rows) if len(self._parts) == 1 else None

    def logits(self, weights: FloatArray, n_grades: int) -> FloatArray:
        """w_k·z + b_k, (documents, grades)."""
        table = weights.reshape(n_grades, -1)
        result = np.concatenate([Z @ table[:, :-1].T for _, Z in self._each()])
        result += table[:, -1]
        return result

    def vjp(self, d_logits: FloatArray) -> FloatArray:
        """The gradient of the weights, from that of the logits."""
        d_table = sum(d_logits[part].T @ Z for part, Z in self._each())
        return np.column_stack([d_table, d_logits.sum(axis=0)]).ravel()

    def with_one(self) -> FloatArray:
        """(Z, 1), whatever its size."""
        Z = self._features.dense(self._rows) if self._held is None else self._held
        return np.column_stack([Z, np.ones(len(Z))])

    def hessian(self, by_class: FloatArray) -> FloatArray:
        """Jᵀ H J for curvatures (documents, grades, grades): a block (Z, 1)ᵀ diag(H_jk) (Z, 1) for each j, k."""
        grades, width = by_class.shape[1], self._features.n_columns + 1
        result = np.zeros((grades, width, grades, width))
        for part, Z in self._each():
            rows = np.column_stack([Z, np.ones(len(Z))])
            for j in range(grades):
                for k in range(j + 1):
                    result[j, :, k] += rows.T @ (by_class[part, j, k, None] * rows)
        for j in range(grades):
            for k in range(j):
                result[k, :, j] = result[j, :, k].T
        return result.reshape(grades * width, grades * width)

    def _each(self) -> Iterator[tuple[slice, FloatArray]]:
        for part in self._parts:
            Z = self._features.dense(part) if self._held is None else self._held
            yield slice(part.start - self._rows.start, part.stop - self._rows.start), Z


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
        Z = _Rows(features, rows)
        P = grade_probabilities(Z.logits(weights, len(self.gains)))
        if self.saturation < 1.0:
            sure = P.max(axis=1) > self.saturation
            P[sure] = np.eye(len(self.gains))[P[sure].argmax(axis=1)]
        scores = expected_gains(P, self.gains)
        # ∂s/∂logit_k = P_k (G_k − s): zero where one grade is certain.
        return ExpectedGainScored(scores, Z, P * (self.gains - scores[:, None]))


@dataclass(frozen=True)
class ExpectedGainScored:
    """Expected gains of a block, and their derivative with respect to the logits."""

    holds_rows: ClassVar[bool] = True

    scores: FloatArray
    Z: _Rows
    d_logits: FloatArray

    def vjp(self, d_scores: FloatArray) -> FloatArray:
        """See `Scored.vjp`."""
        return self.Z.vjp(self.d_logits * d_scores[:, None])

    def jvp(self, d_weights: FloatArray) -> FloatArray:
        """See `Scored.jvp`."""
        d_scores: FloatArray = (self.Z.logits(d_weights, self.d_logits.shape[1]) * self.d_logits).sum(axis=1)
        return d_scores

    def jacobian(self) -> FloatArray:
        """See `Scored.jacobian`."""
        return (self.d_logits[:, :, None] * self.Z.with_one()[:, None, :]).reshape(len(self.scores), -1)


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
        return LogitsScored(features, rows, weights, self.n_grades)

    @property
    def free(self) -> slice:
        """Places of the intercepts, which are not penalized."""
        return slice(self.n_features, None, self.n_features + 1)

    def start(self, shares: FloatArray) -> FloatArray:
        """Weights that predict the shares of the grades, whatever the features."""
        weights = np.zeros(self.n_weights)
        weights[self.free] = np.log(shares)
        return weights

    def split(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coefficients (grades, features) and intercepts."""
        table = weights.reshape(self.n_grades, -1)
        return table[:, :-1].copy(), table[:, -1].copy()

    probabilities = staticmethod(grade_probabilities)


class LogitsScored(_Rows):
    """Logits of a block, (documents, grades); linear in the weights."""

    holds_rows: ClassVar[bool] = True

    def __init__(self, features: Features, rows: slice, weights: FloatArray, n_grades: int) -> None:
        super().__init__(features, rows)
        self.scores = self.logits(weights, n_grades)

    def jvp(self, d_weights: FloatArray) -> FloatArray:
        """See `Scored.jvp`."""
        return self.logits(d_weights, self.scores.shape[1])
