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
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.checks import check_number
from toprank.errors import DataError
from toprank.losses.base import Answer, Block, BoundLoss, Diagonal, Loss, Traits, Want
from toprank.losses.judgments import Judgments
from toprank.metrics.ranking import rank_block

__all__ = ["SVMmap"]

Flags = npt.NDArray[np.bool_]


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
        self.relevant = relevant
        n_relevant = queries.spread(queries.sum(relevant.astype(np.float64)))
        n_irrelevant = queries.spread(queries.sizes) - n_relevant
        group = np.where(relevant, n_relevant, n_irrelevant)
        both_sides = (n_relevant > 0) & (n_irrelevant > 0)
        self.majoriser: FloatArray = np.where(both_sides, 4.0 * queries.spread(self.scale) / group, 0.0)

    @override
    def judge(self, block: Block, scores: FloatArray, grad: FloatArray, want: Want) -> Answer:
        order = rank_block(scores, block.offsets, (0, block.n_queries), None, keep_ties=False).order
        losses = np.empty(block.n_queries)
        _svm_map_block(scores, order, block.offsets, self.relevant[block.rows], block.scale, losses, grad)
        return losses, Diagonal(self.majoriser[block.rows]) if want.curvature else None


@kernel
def _svm_map_block(
    scores: FloatArray,
    order: IntArray,
    offsets: IntArray,
    relevant: Flags,
    scale: FloatArray,
    losses: FloatArray,
    grad: FloatArray,
) -> None:
    """Loss of each query, and the scaled subgradient for its documents."""
    grad[:] = 0.0
    for q in range(len(losses)):
        ranked = order[offsets[q] : offsets[q + 1]]
        flags = relevant[ranked]
        good, bad = ranked[flags], ranked[~flags]
        losses[q] = 0.0
        if len(good) > 0 and len(bad) > 0:
            losses[q] = _worst_ranking(scores[good], scores[bad], good, bad, 2.0 * scale[q], grad)
            _share_among_ties(scores, good, grad)
            _share_among_ties(scores, bad, grad)


@kernel
def _worst_ranking(
    good_scores: FloatArray, bad_scores: FloatArray, good: IntArray, bad: IntArray, factor: float, grad: FloatArray
) -> float:
    """The loss of one query; factor/(R·N) is added to `grad` for each pair that the worst ranking turns round."""
    n_good, n_bad = len(good), len(bad)
    turned = np.zeros(n_good + 1)  # turned[i]: irrelevant documents that stand just above the i-th relevant one
    total, step = 0.0, factor / n_good / n_bad
    for j in range(n_bad):
        gain, best, place = 0.0, 0.0, n_good
        for i in range(n_good - 1, -1, -1):
            lost = (i + 1) / ((i + j + 1.0) * (i + j + 2.0))  # of AP, times R; the formula counts from 1
            gain += (lost + 2.0 * (bad_scores[j] - good_scores[i]) / n_bad) / n_good
            if gain > best:
                best, place = gain, i
        total += best
        turned[place] += 1.0
        grad[bad[j]] += step * (n_good - place)
    above = 0.0
    for i in range(n_good):
        above += turned[i]
        grad[good[i]] -= step * above
    return total


@kernel
def _share_among_ties(scores: FloatArray, documents: IntArray, grad: FloatArray) -> None:
    """Give documents of equal score the mean of their subgradients: still one, by symmetry."""
    start, n = 0, len(documents)
    for k in range(1, n + 1):
        if k == n or scores[documents[k]] != scores[documents[start]]:
            mean = 0.0
            for d in documents[start:k]:
                mean += grad[d] / (k - start)
            for d in documents[start:k]:
                grad[d] = mean
            start = k
