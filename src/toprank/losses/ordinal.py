"""Losses in class space: likelihoods of the grade, from several score columns per document.

`Multinomial` uses one column per grade. `Ordinal` (proportional odds) uses K − 1 cumulative logits c_k = s − θ_k, the
log-odds of a grade of k or more, k = 1 … K − 1. The score s and the increasing thresholds θ are parameters of a
separate scorer, which computes the columns and applies the chain rule. The loss thus remains a plain function of its
columns, and thresholds are learned like other weights.

Directions V multiplied by the curvature have the shape of the scores, (n, columns).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray
from toprank.data.arguments import check_whole
from toprank.errors import DataError
from toprank.losses.base import Block, BlockResult, BoundLoss, Curvature, Judgments, Loss, Requested, Traits

Codes = npt.NDArray[np.int64]

_ANY_GAIN = "DCG with any gain, when ranked by Σ_k G(k) P(k|x)"
_ANY_GAIN_OF_ODDS = "DCG with any gain where proportional odds hold"
_MIN_GAP = 1e-6  # smaller gaps between neighboring logits use a quadratic barrier


@dataclass(frozen=True)
class _ClassLoss(Loss):
    """Base class of likelihoods of the grade."""

    n_grades: int | None = None
    per_document: bool = False

    def __post_init__(self) -> None:
        if self.n_grades is not None:
            check_whole("n_grades", self.n_grades, 2)

    def codes(self, judgments: Judgments) -> tuple[Codes, int]:
        """Return the grades as integers, and the number of grades K."""
        name, labels = type(self).__name__, judgments.labels
        codes = labels.astype(np.int64)
        wrong = (codes != labels) | (codes < 0)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"{name} needs whole grades 0, 1, 2 …, but document {row} has the label {labels[row]:g}. "
                "Round the labels, or choose a loss for real-valued grades."
            )
        n_grades = max(int(judgments.top_grade) + 1, 2) if self.n_grades is None else self.n_grades
        if codes.max() >= n_grades:
            raise DataError(
                f"{name} has n_grades={n_grades} (0 to {n_grades - 1}), but the labels go up to {codes.max()}. Raise "
                "n_grades."
            )
        return codes, n_grades


class _BoundClass(BoundLoss):
    """Grades and term weights of all documents, and the number of score columns."""

    n_columns: int

    def __init__(self, loss: _ClassLoss, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.codes, self.n_columns = loss.codes(judgments)
        self.weights = judgments.term_weights(loss.per_document)

    def part(self, block: Block, scores: FloatArray) -> tuple[Codes, FloatArray, FloatArray]:
        """Return grades and weights of the block's documents, and their weights in the mean, as a column."""
        if scores.ndim != 2 or scores.shape[1] != self.n_columns:
            raise DataError(
                f"This loss needs scores with {self.n_columns} columns, not of shape "
                f"{scores.shape}. Use a scorer with one column per grade (or threshold)."
            )
        weights = self.weights[block.rows]
        return self.codes[block.rows], weights, (weights * block.broadcast(block.scale))[:, None]


@dataclass(frozen=True)
class Multinomial(_ClassLoss):
    """Multinomial likelihood: Σ_j w_j (log Σ_k e^{s_jk} − s_{j,y_j}), one column of scores for each grade.

    Args:
        n_grades: number of grades K (default: the largest label + 1).
        per_document: divide a query's loss by its number of documents.

    Source: Yang et al. 2010 §5.2, Algorithm 1. Weights multiply terms. Cost O(m K).

    >>> from toprank import Queries
    >>> bound = Multinomial().on([0, 1], Queries([0, 2]))
    >>> bool(np.isclose(bound.at(np.zeros((2, 2))).value, 2 * np.log(2)))
    True
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True, space="class", cost="O(m K)", consistent=_ANY_GAIN)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundMultinomial(self, judgments)


class _BoundMultinomial(_BoundClass):
    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        codes, weights, factor = self.part(block, scores)
        rows = np.arange(len(codes))
        shifted = scores - scores.max(axis=1, keepdims=True)
        np.exp(shifted, out=grad)
        mass = grad.sum(axis=1)
        losses = np.log(mass) - shifted[rows, codes]
        grad /= mass[:, None]
        curvature = _SoftmaxRows(grad.copy(), factor) if requested.curvature else None
        grad[rows, codes] -= 1.0
        grad *= factor
        return block.sum(weights * losses), curvature


@dataclass(frozen=True)
class _SoftmaxRows(Curvature):
    """factor·(diag(p) − p pᵀ) for the columns of each document."""

    chances: FloatArray
    factor: FloatArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        mean: FloatArray = np.sum(self.chances * V, axis=1, keepdims=True)
        return self.factor * self.chances * (V - mean)

    @override
    def diagonal(self) -> FloatArray:
        return self.factor * self.chances * (1 - self.chances)


@dataclass(frozen=True)
class Ordinal(_ClassLoss):
    """Proportional odds: Σ_j −w_j log P(y_j), P(k) = σ(c_k) − σ(c_{k+1}), from cumulative logits c_1 > … > c_{K−1}.

    With a = c_y and b = c_{y+1} (absent at the ends) the term is log(1 + e^{−a}) + log(1 + e^b) − log(1 − e^{−(a−b)}),
    which is convex and has a barrier against coinciding logits. For gaps a − b below 1e-6, including negative ones, the
    barrier is continued by its second-order expansion, so the loss is finite, convex and smooth for any columns.

    Args:
        n_grades: number of grades K (default: the largest label + 1); scores have K − 1 columns.
        per_document: divide a query's loss by its number of documents.

    Source: McCullagh 1980. Weights multiply terms. Cost O(m K).

    >>> from toprank import Queries
    >>> bound = Ordinal(n_grades=3).on([1], Queries([0, 1]))
    >>> float(np.exp(-bound.at([[np.log(3), -np.log(3)]]).value).round(12))  # 3/4 − 1/4
    0.5
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, shift_invariant=False, space="class", columns="thresholds", cost="O(m K)",
        consistent=_ANY_GAIN_OF_ODDS,
    )  # fmt: skip

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundOrdinal(self, judgments)


class _BoundOrdinal(_BoundClass):
    def __init__(self, loss: Ordinal, judgments: Judgments) -> None:
        super().__init__(loss, judgments)
        self.n_columns -= 1  # one column per threshold between grades

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        codes, weights, factor = self.part(block, scores)
        losses, diagonal, coupling = np.empty(len(codes)), np.empty_like(scores), np.empty(len(codes))
        kernels.ordinal(scores, codes, _MIN_GAP, losses, grad, diagonal, coupling)
        grad *= factor
        curvature = _Neighbors(diagonal * factor, coupling * factor[:, 0], codes) if requested.curvature else None
        return block.sum(weights * losses), curvature


@dataclass(frozen=True)
class _Neighbors(Curvature):
    """A diagonal, and one coupling between the columns y − 1 and y of each document."""

    values: FloatArray
    coupling: FloatArray
    codes: Codes

    def __matmul__(self, V: FloatArray) -> FloatArray:
        out: FloatArray = self.values * V
        inner = np.flatnonzero((self.codes > 0) & (self.codes < V.shape[1]))
        upper, lower, coupling = self.codes[inner] - 1, self.codes[inner], self.coupling[inner]
        out[inner, upper] += coupling * V[inner, lower]
        out[inner, lower] += coupling * V[inner, upper]
        return out

    @override
    def diagonal(self) -> FloatArray:
        return self.values
