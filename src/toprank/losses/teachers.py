"""Losses that learn from a teacher, a ranker that is larger, slower or has more features (distillation).

They use the teacher's scores t and no labels, so they can also learn from unjudged queries. `Mix` combines one with a
loss on labels.

Each is the Bregman divergence of a convex function F of the scores, D(s, t) = F(s) − F(t) − ∇F(t)·(s − t). F is the
variance within a query (`MarginMSE`), the sum of log(1 + e^{−(s_i − s_j)}) over all pairs (`SoftLogistic`, without
terms that do not depend on s), or log Σ e^s (`SoftmaxKL`).

`MarginMSE` and `SoftmaxKL`, at any temperature τ, are minimal at s = t. `SoftLogistic` uses the tangent at t/τ and is
minimal at s = t/τ. All are invariant to a constant added to the scores of a query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, each_block
from toprank.data.arguments import check_number
from toprank.errors import DataError, Remedy
from toprank.losses.base import BLOCK, Block, BlockResult, BoundLoss, Judgments, Loss, Requested, Traits
from toprank.losses.pairwise import Logistic
from toprank.losses.pointwise import CenteredBound
from toprank.losses.softmax import SoftmaxBound


def teacher_of(judgments: Judgments, loss: Loss) -> FloatArray:
    """Return the teacher's scores; raise an error if there are none."""
    if judgments.teacher is None:
        raise DataError(
            f"{type(loss).__name__} learns from a teacher's scores, but the data have none;",
            remedy=Remedy(
                "pass them: RankingData(…, teacher=scores), or data.replace(teacher=scores).",
                "name their column by {teacher}.",
                teacher=...,
            ),
        )
    return judgments.teacher


@dataclass(frozen=True)
class MarginMSE(Loss):
    """MarginMSE: mean over all pairs of documents of ((s_i − s_j) − (t_i − t_j))², with the teacher's scores t.

    It fits the teacher's margins, so the scores get the teacher's scale.

    Weights: a pair's term is multiplied by w_i·w_j; the number of pairs does not change.
    Cost: O(m), because the mean over pairs is twice a variance.
    Consistency: the minimizer is E[t | X], up to a constant for each query.
    Source: Hofstätter et al. 2020, "Improving efficient neural ranking models with cross-architecture knowledge
    distillation", which uses pairs of a relevant and a sampled document instead of all pairs.

    >>> from toprank import Queries
    >>> bound = MarginMSE().on([0, 0], Queries([0, 2]), teacher=[3.0, 1.0])   # the labels are not read
    >>> bound.at([0.0, 0.0]).value, bound.at([5.0, 3.0]).value
    (4.0, 0.0)
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True, teacher=True, labels=False)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        # Σ_{i<j} w_i w_j (d_i − d_j)² = W Σ w (d − d̄)², of m(m − 1)/2 pairs; a single document has none.
        weights, queries = judgments.weights, judgments.queries
        factors = 2.0 * queries.sum(weights) / np.maximum(queries.sizes * (queries.sizes - 1), 1)
        return CenteredBound(teacher_of(judgments, self), weights, judgments, factors)


@dataclass(frozen=True)
class SoftLogistic(Loss):
    """RankNet with soft targets: mean over all pairs of the cross entropy between σ((t_i − t_j)/τ) and σ(s_i − s_j).

    Args:
        temperature: τ > 0. Larger values move the targets toward ½. Pairs with equal teacher's scores have the target
            ½.

    Weights: a pair's term is multiplied by w_i·w_j; the number of pairs does not change.
    Cost: O(pairs), as `Logistic`.
    Consistency: with a given teacher the minimizer is s = t/τ, up to a constant for each query.
    Source: Burges et al. 2005, "Learning to rank using gradient descent", whose targets are probabilities.

    >>> from toprank import Queries
    >>> eval = SoftLogistic(temperature=2.0).on([0, 0], Queries([0, 2]), teacher=[3.0, 1.0]).at([1.0, 0.0])
    >>> bool(abs(eval.grad).max() < 1e-15)   # the difference already is (3 − 1)/2
    True
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True, cost="O(pairs)", teacher=True, labels=False)

    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_number("SoftLogistic's temperature", self.temperature, above=0)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundSoftPairs(teacher_of(judgments, self) / self.temperature, judgments)


class _BoundSoftPairs(BoundLoss):
    """F(s) − ∇F(t)·s, F the mean of log(1 + e^{−(s_i − s_j)}) over all pairs in which the teacher prefers i."""

    def __init__(self, targets: FloatArray, judgments: Judgments) -> None:
        super().__init__(judgments)
        best_last = np.lexsort((targets, self.queries.document_query))
        places = np.empty(len(targets))
        places[best_last] = np.arange(len(targets))  # distinct labels, so that every pair counts
        self.pairs = Logistic().bind(replace(judgments, labels=places, grades=None))
        self.slopes = np.empty(len(targets))

        def work(block: Block) -> None:
            each = replace(block, scale=np.ones(block.n_queries))
            self.pairs.evaluate_block(each, targets[block.rows], self.slopes[block.rows], Requested(value=False))

        each_block(work, self.blocks(BLOCK), None)

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        losses, curvature = self.pairs.evaluate_block(block, scores, grad, requested)
        slopes = self.slopes[block.rows]
        grad -= block.broadcast(block.scale) * slopes
        # Subtract the first score, which reduces rounding; the slopes of a query sum to zero.
        return losses - block.sum(slopes * (scores - block.broadcast(scores[block.offsets[:-1]]))), curvature


@dataclass(frozen=True)
class SoftmaxKL(Loss):
    """τ²·KL(softmax(t/τ) ‖ softmax(s/τ)): divergence of the top-one probabilities from the teacher's.

    Args:
        temperature: τ > 0. Larger values give more weight to differences among lower documents; the factor τ² keeps the
            scale of the gradient, and thus the balance of a `Mix`.

    Weights: a document's weight multiplies its term of the divergence, not the normalizing sums.
    Cost: O(m).
    Consistency: with a given teacher the minimizer is s = t, up to a constant for each query.
    Source: Hinton, Vinyals & Dean 2015, "Distilling the knowledge in a neural network", over the documents of a query.

    >>> from toprank import Queries
    >>> bound = SoftmaxKL().on([0, 0], Queries([0, 2]), teacher=[1.0, 0.0])
    >>> bound.at([4.0, 3.0]).value < 1e-15 < bound.at([0.0, 0.0]).value
    True
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True, teacher=True, labels=False)

    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_number("SoftmaxKL's temperature", self.temperature, above=0)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundKL(teacher_of(judgments, self), self.temperature, judgments)


class _BoundKL(SoftmaxBound):
    def __init__(self, teacher: FloatArray, temperature: float, judgments: Judgments) -> None:
        queries, chances, wanted = judgments.queries, np.empty(len(teacher)), teacher / temperature
        kernels.softmax(wanted, queries.offsets, chances)
        super().__init__(chances, judgments)
        self.temperature = temperature
        # Σ p log p from log p, so that terms with p rounded to 0 are 0.
        logs = wanted - queries.broadcast(queries.max(wanted))
        logs -= queries.broadcast(np.log(queries.sum(np.exp(logs))))
        self.least: FloatArray = queries.sum(self.targets * logs)

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        losses, curvature = super().evaluate_block(block, scores / self.temperature, grad, requested)
        grad *= self.temperature  # τ² of the loss over τ of the chain rule; both cancel in the curvature
        return self.temperature**2 * (losses + self.least[block.queries]), curvature
