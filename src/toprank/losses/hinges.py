"""Listwise hinge losses: OWPC, and the structured hinge loss of average precision.

Ordered weighted pairwise classification (Usunier et al. 2009) gives more weight to errors near the top. For each
relevant document, the hinge losses against all irrelevant ones are sorted in decreasing order and averaged with weights
α_1 ≥ α_2 ≥ … that sum to 1. All relevant documents share one order of the irrelevant ones (Proposition 3 of Usunier et
al. 2009), so one pass over two sorted lists gives value and gradient.

SVM-map (Yue, Finley, Radlinski & Joachims 2007):

    loss_q = max over rankings π of  1 − AP(π) + 2/(R·N) Σ over relevant i below irrelevant j in π of (s_j − s_i)

with R relevant and N irrelevant documents. Some optimal π keeps each class in the order of its scores, so π is
determined by the number of relevant documents above each irrelevant one. Counting the irrelevant documents j = 1 … N
and the relevant ones i = 1 … R from the top, moving the j-th above the i-th costs AP exactly i/((i + j − 1)(i + j))/R.
Each j therefore chooses its best place independently, and the choices are consistent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number
from toprank.errors import DataError, UnknownNameError
from toprank.losses.base import Block, BlockResult, BoundLoss, Diagonal, Judgments, Loss, Requested, Traits
from toprank.losses.labels import groups_of
from toprank.metrics.pairs import ORDERED_WEIGHTS
from toprank.metrics.sorting import rank_block

_WEIGHTS = {**ORDERED_WEIGHTS, "max": "MAX"}


@dataclass(frozen=True)
class OWPC(Loss):
    """1/|rel| Σ_{y rel} w_y Σ_k α_k max(0, 1 − (s_y − s_(k))), s_(1) ≥ s_(2) ≥ … the n irrelevant documents' scores.

    Args:
        weights: α before normalization: ``constant`` 1 (RankSVM), ``top`` 1 for j ≤ p·n/100 (at least the first),
            ``1/j``, ``exp`` 2^{−(100/p)·j/n}, ``max`` the first alone (multiclass SVM).
        p: percentage of ``top`` and ``exp``.

    Graded labels: the loss is averaged over the thresholds g with documents on both sides ("grade at least g" is
    relevant). A query of equal labels contributes nothing.

    Source: Usunier et al. 2009. Document weights multiply the terms of relevant documents; irrelevant documents have no
    weights, since weights inside an ordered average would break convexity. Cost O(m log m + m·grades). Tied scores
    share their weights α equally, so the order of rows does not matter.

    The loss has no useful second derivative. Its majorizer is diagonal, with loss(s + d) ≤ loss(s) + grad·d + ½dᵀDd +
    C: for each threshold 2M/|rel|·w for a relevant document and 2α_1 times the mean w for an irrelevant one, where M =
    min(2, n·α_1) and C is M/2 times the mean w of the relevant documents, averaged over thresholds.

    >>> from toprank import Queries
    >>> bound = OWPC(weights="max").on([1, 0, 0], Queries([0, 3]))
    >>> bound.at([0.5, 0.0, 0.25]).value  # the worst offender alone
    0.75
    """

    weights: str = "1/j"
    p: float = 10.0
    traits: ClassVar[Traits] = Traits(convex=True, smooth=False, curvature="majorizer", cost="O(m log m + m·grades)")

    def __post_init__(self) -> None:
        if self.weights not in _WEIGHTS:
            raise UnknownNameError("OWPC weighting", self.weights, tuple(_WEIGHTS))
        check_number("OWPC's p, a percentage,", self.p, above=0, most=100)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundOWPC(self, judgments)


class _BoundOWPC(BoundLoss):
    def __init__(self, loss: OWPC, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.generator, self.p = vars(kernels.OrderedWeight)[_WEIGHTS[loss.weights]], float(loss.p)
        self.weights = judgments.weights
        # For each document, the rank of its label among the distinct labels of its query, from 0.
        order, group, _ = groups_of(judgments.labels, self.queries)
        self.grades = np.empty(len(order), dtype=np.int64)
        self.grades[order] = group - self.queries.broadcast(group[self.queries.offsets[:-1]])
        self.n_grades: IntArray = self.queries.max(self.grades) + 1
        self.majorizer = np.empty(len(self.grades))
        of_labels = self.queries.offsets, self.grades, self.n_grades, self.weights
        kernels.owpc_majorizer(*of_labels, self.generator, self.p, self.scale, self.majorizer)

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        order = rank_block(scores, block.offsets, (0, block.n_queries), None, keep_ties=False).order
        of_labels = self.grades[block.rows], self.n_grades[block.queries], self.weights[block.rows]
        losses = np.empty(block.n_queries)
        options = self.generator, self.p, block.scale
        kernels.owpc_losses(scores, order, block.offsets, *of_labels, *options, losses, grad)
        return losses, Diagonal(self.majorizer[block.rows]) if requested.curvature else None


@dataclass(frozen=True)
class SVMmap(Loss):
    """Structured hinge loss of average precision; see the module for the formula.

    Args:
        threshold: labels from this value on are relevant.

    Source: Yue et al. 2007, with the pair features divided by R·N. A query without relevant or without irrelevant
    documents contributes nothing. Document weights are not supported, because average precision is not a sum over
    documents; `query_weights` are. Cost O(m log m + R·N). Tied scores share their subgradient, so the order of rows
    does not matter.

    The loss has no useful second derivative. Its majorizer is the diagonal 4/R for relevant and 4/N for irrelevant
    documents, with loss(s + d) ≤ loss(s) + grad·d + ½ dᵀD d + 1.

    >>> from toprank import Queries
    >>> bound = SVMmap().on([1, 0], Queries([0, 2]))
    >>> bound.at([0.0, 0.0]).value  # the wrong order has AP ½
    0.5
    """

    threshold: float = 1.0
    traits: ClassVar[Traits] = Traits(convex=True, smooth=False, curvature="majorizer", cost="O(m log m + R·N)")

    def __post_init__(self) -> None:
        check_number("threshold", self.threshold)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        if judgments.document_weights is not None:
            raise DataError("SVMmap does not support document weights. Omit document_weights, or pass query_weights.")
        return _BoundSVMmap(self, judgments)


class _BoundSVMmap(BoundLoss):
    def __init__(self, loss: SVMmap, judgments: Judgments) -> None:
        super().__init__(judgments)
        relevant, queries = judgments.labels >= loss.threshold, self.queries
        self.relevant = relevant.astype(np.uint8)
        n_relevant = queries.broadcast(queries.sum(relevant.astype(np.float64)))
        n_irrelevant = queries.broadcast(queries.sizes) - n_relevant
        group = np.where(relevant, n_relevant, n_irrelevant)
        both_sides = (n_relevant > 0) & (n_irrelevant > 0)
        self.majorizer: FloatArray = np.where(both_sides, 4.0 * queries.broadcast(self.scale) / group, 0.0)

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        order = rank_block(scores, block.offsets, (0, block.n_queries), None, keep_ties=False).order
        losses = np.empty(block.n_queries)
        kernels.svm_map(scores, order, block.offsets, self.relevant[block.rows], block.scale, grad, losses)
        return losses, Diagonal(self.majorizer[block.rows]) if requested.curvature else None
