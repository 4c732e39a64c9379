"""Ordered weighted pairwise classification: hinge losses that count the more, the higher the offender is ranked
(Usunier et al. 2009).

For each relevant document the hinge losses against all irrelevant ones are sorted, largest first, and averaged with
weights α_1 ≥ α_2 ≥ … that sum to 1. The losses of one relevant document fall with the score of the irrelevant one, so
one order of the irrelevant documents serves all (Proposition 3 of Usunier et al. 2009), and one walk down two sorted
lists gives value and gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.data.checks import check_number
from toprank.data.queries import Queries
from toprank.errors import UnknownNameError
from toprank.losses.base import Answer, Block, BoundLoss, Diagonal, Loss, Traits, Want
from toprank.losses.judgments import Judgments
from toprank.metrics.ranking import rank_block

__all__ = ["OWPC"]

_GENERATORS = ("constant", "top", "1/j", "exp", "max")  # as in native/owpc.c


@dataclass(frozen=True)
class OWPC(Loss):
    """1/|rel| Σ_{y rel} w_y Σ_k α_k max(0, 1 − (s_y − s_(k))), s_(1) ≥ s_(2) ≥ … the n irrelevant documents' scores.

    Args:
        weights: how α falls, before it is scaled to sum 1: ``constant`` 1 (RankSVM), ``top`` 1 for j ≤ p·n/100 (at
            least the first), ``1/j``, ``exp`` 2^{−(100/p)·j/n}, ``max`` the first alone (multiclass SVM).
        p: percentage of ``top`` and ``exp``.

    Graded labels: the loss is taken for each threshold that has documents on both sides ("grade at least g" is
    relevant), and averaged over them. A query of equal labels contributes nothing.

    Source: Usunier et al. 2009. Document weights multiply the term of a relevant document; as a competitor every
    document counts fully, since weights inside an ordered average would break its convexity. Cost O(m log m +
    m·grades). Tied scores share their weights α equally, so the order of rows never shows.

    It has no curvature of its own. The stated majoriser is diagonal, with loss(s + d) ≤ loss(s) + grad·d + ½dᵀDd + C:
    for each threshold 2M/|rel|·w on a relevant document and 2α_1 times the mean w on an irrelevant one, where
    M = min(2, n·α_1) and C is M/2 times the mean w of the relevant documents, averaged over thresholds.

    >>> bound = OWPC(weights="max").on([1, 0, 0], Queries([0, 3]))
    >>> bound.at([0.5, 0.0, 0.25]).value  # the worst offender alone
    0.75
    """

    weights: str = "1/j"
    p: float = 10.0
    traits: ClassVar[Traits] = Traits(convex=True, smooth=False, curvature="majoriser", cost="O(m log m + m·grades)")

    def __post_init__(self) -> None:
        if self.weights not in _GENERATORS:
            raise UnknownNameError("OWPC weighting", self.weights, _GENERATORS)
        check_number("OWPC's p, a percentage,", self.p, above=0, most=100)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundOWPC(self, judgments)


class _BoundOWPC(BoundLoss):
    def __init__(self, loss: OWPC, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.generator, self.p, self.weights = _GENERATORS.index(loss.weights), float(loss.p), judgments.weights
        self.grades = _grades_within_queries(judgments.labels, self.queries)
        self.n_grades: IntArray = self.queries.max(self.grades) + 1
        self.majoriser = np.empty(len(self.grades))
        of_labels = self.queries.offsets, self.grades, self.n_grades, self.weights
        kernels.owpc_majoriser(*of_labels, self.generator, self.p, self.scale, self.majoriser)

    @override
    def judge(self, block: Block, scores: FloatArray, grad: FloatArray, want: Want) -> Answer:
        order = rank_block(scores, block.offsets, (0, block.n_queries), None, keep_ties=False).order
        of_labels = self.grades[block.rows], self.n_grades[block.queries], self.weights[block.rows]
        losses = np.empty(block.n_queries)
        options = self.generator, self.p, block.scale
        kernels.owpc_losses(scores, order, block.offsets, *of_labels, *options, losses, grad)
        return losses, Diagonal(self.majoriser[block.rows]) if want.curvature else None


def _grades_within_queries(labels: FloatArray, queries: Queries) -> IntArray:
    """For each document, the rank of its label among the distinct labels of its query, from 0."""
    query = queries.document_query
    order = np.lexsort((labels, query))
    label = labels[order]
    same_query = query[1:] == query[:-1]
    steps = np.cumsum(np.r_[0, same_query & (label[1:] != label[:-1])])
    grades = np.empty(len(labels), dtype=np.int64)
    grades[order] = steps - queries.spread(steps[queries.offsets[:-1]])
    return grades
