"""SVM-map: the structured hinge on average precision (Yue, Finley, Radlinski & Joachims 2007).

loss_q = max over rankings π of  1 − AP(π) + 2/(R·N) Σ over relevant i below irrelevant j in π of (s_j − s_i)

with R relevant and N irrelevant documents. Some best π keeps each class in the order of its scores, so π is fixed by
how many relevant documents stand above each irrelevant one. Counting the irrelevant documents j = 1 … N and the
relevant ones i = 1 … R from the top, moving the j-th above the i-th costs AP exactly i/((i + j − 1)(i + j))/R; so each
j chooses its own best place, and the choices agree with each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray
from toprank.data.checks import check_number
from toprank.errors import DataError
from toprank.losses.base import Answer, Block, BoundLoss, Diagonal, Loss, Traits, Want
from toprank.losses.judgments import Judgments
from toprank.metrics.ranking import rank_block

__all__ = ["SVMmap"]


@dataclass(frozen=True)
class SVMmap(Loss):
    """Structured hinge on average precision; see the module for the formula.

    Args:
        threshold: labels from here on are relevant.

    Source: Yue et al. 2007, with the pair features divided by R·N. A query with nothing relevant, or nothing else,
    contributes nothing. Document weights are refused: average precision has no terms to weigh; `query_weights` are
    fine. Cost O(m log m + R·N). Tied scores share their subgradient, so the order of rows never shows.

    It has no curvature of its own. The stated majoriser is the diagonal 4/R for relevant and 4/N for irrelevant
    documents, with loss(s + d) ≤ loss(s) + grad·d + ½ dᵀD d + 1.

    >>> from toprank import Queries
    >>> bound = SVMmap().on([1, 0], Queries([0, 2]))
    >>> bound.at([0.0, 0.0]).value  # the wrong order has AP ½
    0.5
    """

    threshold: float = 1.0
    traits: ClassVar[Traits] = Traits(convex=True, smooth=False, curvature="majoriser", cost="O(m log m + R·N)")

    def __post_init__(self) -> None:
        check_number("threshold", self.threshold)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        if judgments.document_weights is not None:
            raise DataError(
                "SVMmap judges whole rankings and cannot weigh single documents. Leave document_weights out, or give "
                "query_weights."
            )
        return _BoundSVMmap(self, judgments)


class _BoundSVMmap(BoundLoss):
    def __init__(self, loss: SVMmap, judgments: Judgments) -> None:
        super().__init__(judgments)
        relevant, queries = judgments.labels >= loss.threshold, self.queries
        self.relevant = relevant.astype(np.uint8)
        n_relevant = queries.spread(queries.sum(relevant.astype(np.float64)))
        n_irrelevant = queries.spread(queries.sizes) - n_relevant
        group = np.where(relevant, n_relevant, n_irrelevant)
        both_sides = (n_relevant > 0) & (n_irrelevant > 0)
        self.majoriser: FloatArray = np.where(both_sides, 4.0 * queries.spread(self.scale) / group, 0.0)

    @override
    def judge(self, block: Block, scores: FloatArray, grad: FloatArray, want: Want) -> Answer:
        order = rank_block(scores, block.offsets, (0, block.n_queries), None, keep_ties=False).order
        losses = np.empty(block.n_queries)
        kernels.svm_map(scores, order, block.offsets, self.relevant[block.rows], block.scale, grad, losses)
        return losses, Diagonal(self.majoriser[block.rows]) if want.curvature else None
