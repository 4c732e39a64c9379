"""From a linear map of the features to grade probabilities: softmax over grades, or one score cut by thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.scorers.expected_gain import Logits, grade_probabilities
from toprank.scorers.linear import Thresholds, ordinal_probabilities

__all__ = ["OrdinalHead", "SoftmaxHead", "head_of"]


@dataclass(frozen=True)
class SoftmaxHead:
    """P(k) = softmax_k(w_k·z + b_k); weights laid out grade by grade, (w_k, b_k)."""

    n_grades: int

    def scorer(self, d: int) -> Any:
        """The scorer of likelihood training."""
        return Logits(d, self.n_grades)

    def free(self, d: int) -> list[int]:
        """Places of the intercepts, which are not penalised."""
        return list(range(d, self.n_grades * (d + 1), d + 1))

    def start(self, d: int, shares: FloatArray) -> FloatArray:
        """Weights that predict the shares of the grades, whatever the features."""
        table = np.zeros((self.n_grades, d + 1))
        table[:, -1] = np.log(shares)
        return table.ravel()

    def split(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coefficients (grades, d) and intercepts."""
        table = weights.reshape(self.n_grades, -1)
        return table[:, :-1].copy(), table[:, -1].copy()

    def probabilities(self, logits: FloatArray) -> FloatArray:
        """P(grade) from logits (n, grades)."""
        return grade_probabilities(logits)


@dataclass(frozen=True)
class OrdinalHead:
    """P(y ≥ k) = σ(w·z − θ_k); weights (w, θ)."""

    n_grades: int

    def scorer(self, d: int) -> Any:
        """The scorer of likelihood training."""
        return Thresholds(d, self.n_grades)

    def free(self, d: int) -> list[int]:
        """Places of the thresholds, which are not penalised."""
        return list(range(d, d + self.n_grades - 1))

    def start(self, d: int, shares: FloatArray) -> FloatArray:
        """Weights that predict the shares of the grades, whatever the features."""
        at_least = np.cumsum(shares[::-1])[::-1][1:]
        return np.concatenate([np.zeros(d), np.log1p(-at_least) - np.log(at_least)])

    def split(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """One row of coefficients, and minus the thresholds."""
        d = len(weights) - self.n_grades + 1
        return weights[None, :d].copy(), -weights[d:]

    def probabilities(self, logits: FloatArray) -> FloatArray:
        """P(grade) from cumulative logits (n, grades − 1)."""
        return ordinal_probabilities(logits)


def head_of(loss_name: str, n_grades: int) -> SoftmaxHead | OrdinalHead:
    """Ordinal for the ordinal likelihood, softmax for everything else."""
    return OrdinalHead(n_grades) if loss_name == "Ordinal" else SoftmaxHead(n_grades)
