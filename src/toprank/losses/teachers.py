"""Losses that learn from a teacher, another ranker that is larger, slower or sees more (distillation).

They read the teacher's scores t and no labels, so they also learn from queries that nobody judged. `Mix` combines one
with a loss on labels.

Each is the gap between a convex function of the scores and its tangent at the teacher's: D(s, t) = F(s) − F(t) −
∇F(t)·(s − t), with F the variance within a query (`MarginMSE`), the sum of log(1 + e^{−(s_i − s_j)}) over all pairs
(`SoftLogistic`, which leaves out what does not depend on s), or log Σ e^s (`SoftmaxKL`). F alone decides the cost: O(m)
for two of them.

The minimum of `MarginMSE` and of `SoftmaxKL`, at any temperature τ, is at s = t. `SoftLogistic` takes its tangent at
t/τ, so its minimum is at s = t/τ. Any constant may be added to the scores of a query.
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
    """The teacher's scores; refused if there are none."""
    if judgments.teacher is None:
        raise DataError(
            f"{type(loss).__name__} learns from a teacher's scores, and the data hold none;",
            remedy=Remedy(
                "give them: RankingData(…, teacher=scores), or data.replace(teacher=scores).",
                "name their column by {teacher}.",
                teacher=...,
            ),
        )
    return judgments.teacher


@dataclass(frozen=True)
class MarginMSE(Loss):
    """MarginMSE: mean over all pairs of documents of ((s_i − s_j) − (t_i − t_j))², t the teacher's scores.

    It asks for the teacher's margins themselves, so the scores get the teacher's scale.

    Weights: a pair's term is multiplied by w_i·w_j; the number of pairs stays.
    Cost: O(m): the mean over pairs is twice a variance.
    Consistency: the minimizer is E[t | X], up to a constant for each query: as good an order as the teacher's mean.
    Source: Hofstätter et al. 2020, "Improving efficient neural ranking models with cross-architecture knowledge
    distillation"; there over pairs of a relevant and a sampled document, here over all.

    >>> from toprank import Queries
    >>> bound = MarginMSE().on([0, 0], Queries([0, 2]), teacher=[3.0, 1.0])   # the labels are not read
    >>> bound.at([0.0, 0.0]).value, bound.at([5.0, 3.0]).value
    (4.0, 0.0)
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True, teacher=True, labels=False)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        # Σ_{i<j} w_i w_j (d_i − d_j)² = W Σ w (d − d̄)², of m(m − 1)/2 pairs; a document alone has none.
        weights, queries = judgments.weights, judgments.queries
        factors = 2.0 * queries.sum(weights) / np.maximum(queries.sizes * (queries.sizes - 1), 1)
        return CenteredBound(teacher_of(judgments, self), weights, judgments, factors)


@dataclass(frozen=True)
class SoftLogistic(Loss):
    """RankNet with soft targets: mean over all pairs of the cross entropy between σ((t_i − t_j)/τ) and σ(s_i − s_j).

    Args:
        temperature: τ > 0. The larger, the nearer the targets are to ½. Pairs that the teacher scores alike should be
            scored alike.

    Weights: a pair's term is multiplied by w_i·w_j; the number of pairs stays.
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
    """F(s) − ∇F(t)·s, F the mean of log(1 + e^{−(s_i − s_j)}) over all pairs, i the one that the teacher prefers."""

    def __init__(self, targets: FloatArray, judgments: Judgments) -> None:
        super().__init__(judgments)
        best_last = np.lexsort((targets, self.queries.document_query))
        places = np.empty(len(targets))
        places[best_last] = np.arange(len(targets))  # labels that differ: every pair counts
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
        # The slopes of a query sum to zero, so its first score may be taken off all: less is lost to rounding.
        return losses - block.sum(slopes * (scores - block.broadcast(scores[block.offsets[:-1]]))), curvature


@dataclass(frozen=True)
class SoftmaxKL(Loss):
    """τ²·KL(softmax(t/τ) ‖ softmax(s/τ)): how far the chances of the first place are from the teacher's.

    Args:
        temperature: τ > 0. The larger, the more the teacher's differences among the lower documents count; the factor
            τ² keeps the gradient's size, so that a `Mix` keeps its balance.

    Weights: a document's weight multiplies its term of the divergence, never the normalizing sums.
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
        # Σ p log p, from log p itself: where p is rounded to nothing, its term is nothing, too.
        logs = wanted - queries.broadcast(queries.max(wanted))
        logs -= queries.broadcast(np.log(queries.sum(np.exp(logs))))
        self.least: FloatArray = queries.sum(self.targets * logs)

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        losses, curvature = super().evaluate_block(block, scores / self.temperature, grad, requested)
        grad *= self.temperature  # τ² of the loss, over τ of the chain rule; the curvature's two cancel
        return self.temperature**2 * (losses + self.least[block.queries]), curvature
