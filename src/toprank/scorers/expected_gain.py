"""The expected-gain scorer: P(r = k | x) = softmax_k(w_k·z + b_k), s = Σ_k G(k) P(r = k | x) (Yang et al. 2010 §5.2).

E[G(y) | x] is the optimal order for DCG with gain G (not always for NDCG, whose normalizer depends on the grades).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from toprank.compute import FloatArray, row_parts
from toprank.scorers.features import Features

_MAX_BYTES = 8 << 20  # of the rows of a block that are kept in double precision


def grade_probabilities(logits: FloatArray) -> FloatArray:
    """Return the softmax over the grades of each row, (documents, grades), without overflow for large logits."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: FloatArray = shifted / shifted.sum(axis=1, keepdims=True)
    return result


def expected_gains(probabilities: FloatArray, gains: FloatArray) -> FloatArray:
    """Return Σ_k G(k) P(k) for each row, summed grade by grade, so that equal rows get equal sums at any position.

    BLAS does not guarantee that: it sums the last rows of a matrix in another order, and rounding would then break
    ties.
    """
    total = np.zeros(len(probabilities))
    for gain, share in zip(gains, probabilities.T, strict=True):
        total += gain * share
    return total


class _Rows:
    """Z[rows] and its products with the weights of the grades, (w_k, b_k) concatenated.

    Up to `_MAX_BYTES` bytes of rows are kept in double precision. The rows of larger queries are recomputed in parts
    for each product, so no query needs a copy of all its features.
    """

    def __init__(self, features: Features, rows: slice) -> None:
        self._features, self._rows = features, rows
        self._parts = row_parts(rows, max(64, _MAX_BYTES // (8 * max(features.n_columns, 1))))
        self._held = features.dense(rows) if len(self._parts) == 1 else None

    def logits(self, weights: FloatArray, n_grades: int) -> FloatArray:
        """Return w_k·z + b_k, (documents, grades)."""
        table = weights.reshape(n_grades, -1)
        result = np.concatenate([Z @ table[:, :-1].T for _, Z in self._each()])
        result += table[:, -1]
        return result

    def vjp(self, d_logits: FloatArray) -> FloatArray:
        """Return the gradient of the weights from the gradient of the logits."""
        d_table = sum(d_logits[part].T @ Z for part, Z in self._each())
        return np.column_stack([d_table, d_logits.sum(axis=0)]).ravel()

    def with_one(self) -> FloatArray:
        """Return (Z, 1) for all rows, whatever its size."""
        Z = self._features.dense(self._rows) if self._held is None else self._held
        return np.column_stack([Z, np.ones(len(Z))])

    def hessian(self, by_class: FloatArray) -> FloatArray:
        """Return Jᵀ H J for curvatures (documents, grades, grades): a block (Z, 1)ᵀ diag(H_jk) (Z, 1) for each pair j,
        k.
        """
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
        saturation: ε of the paper. If some P(k) exceeds it, P(k) is set to 1 and the others to 0 during training, so
            the document has the score G(k) and no gradient. 1.0 for no saturation.
    """

    n_features: int
    gains: FloatArray
    saturation: float = 1.0

    @property
    def n_weights(self) -> int:
        """Number of weights: the features and an intercept for each grade."""
        return len(self.gains) * (self.n_features + 1)

    def forward(self, weights: FloatArray, features: Features, rows: slice) -> ExpectedGainScored:
        """Score a block of rows."""
        Z = _Rows(features, rows)
        P = grade_probabilities(Z.logits(weights, len(self.gains)))
        if self.saturation < 1.0:
            sure = P.max(axis=1) > self.saturation
            P[sure] = np.eye(len(self.gains))[P[sure].argmax(axis=1)]
        scores = expected_gains(P, self.gains)
        # ∂s/∂logit_k = P_k (G_k − s): zero if one grade is certain.
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
    """A scorer with the same weights whose scores are the logits, (documents, grades), for likelihood training."""

    n_features: int
    n_grades: int

    @property
    def n_weights(self) -> int:
        """Number of weights: the features and an intercept for each grade."""
        return self.n_grades * (self.n_features + 1)

    def forward(self, weights: FloatArray, features: Features, rows: slice) -> LogitsScored:
        """Score a block of rows."""
        return LogitsScored(features, rows, weights, self.n_grades)

    @property
    def free(self) -> slice:
        """The indices of the intercepts, which are not penalized."""
        return slice(self.n_features, None, self.n_features + 1)

    def start(self, shares: FloatArray) -> FloatArray:
        """Return initial weights that predict the grade frequencies for any features."""
        weights = np.zeros(self.n_weights)
        weights[self.free] = np.log(shares)
        return weights

    def split(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Split weights into coefficients, (grades, features), and intercepts."""
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
