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

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.checks import check_number
from toprank.data.queries import Queries
from toprank.errors import UnknownNameError
from toprank.losses.base import Answer, Block, BoundLoss, Diagonal, Loss, Traits, Want
from toprank.losses.judgments import Judgments
from toprank.metrics.ranking import rank_block

__all__ = ["OWPC"]

_GENERATORS = ("constant", "top", "1/j", "exp", "max")
_CONSTANT, _TOP, _RECIPROCAL, _EXP, _MAX = range(5)


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
        _majoriser(*of_labels, self.generator, self.p, self.scale, self.majoriser)

    @override
    def judge(self, block: Block, scores: FloatArray, grad: FloatArray, want: Want) -> Answer:
        order = rank_block(scores, block.offsets, (0, block.n_queries), None, keep_ties=False).order
        of_labels = self.grades[block.rows], self.n_grades[block.queries], self.weights[block.rows]
        losses = np.empty(block.n_queries)
        _owpc_block(scores, order, block.offsets, *of_labels, self.generator, self.p, block.scale, losses, grad)
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


@kernel
def _fill_weights(generator: int, p: float, alpha: FloatArray) -> None:
    """α_1 … α_n, falling, with sum 1."""
    n = len(alpha)
    decay, total = 2.0 ** (-100.0 / (p * n)), 0.0
    for j in range(n):  # the rank is j + 1
        if generator == _CONSTANT:
            alpha[j] = 1.0
        elif generator == _TOP:
            alpha[j] = 1.0 if j + 1 <= max(1.0, p * n / 100.0) else 0.0
        elif generator == _RECIPROCAL:
            alpha[j] = 1.0 / (j + 1)
        elif generator == _EXP:  # 2^{−(100/p)(j + 1)/n} over its first value, which could underflow
            alpha[j] = alpha[j - 1] * decay if j > 0 else 1.0
        else:
            alpha[j] = 1.0 if j == 0 else 0.0
        total += alpha[j]
    alpha /= total


@kernel
def _share_among_ties(scores: FloatArray, positions: IntArray, alpha: FloatArray) -> None:
    """Give documents of equal score the mean of their weights."""
    start, n = 0, len(alpha)
    for k in range(1, n + 1):
        if k == n or scores[positions[k]] != scores[positions[start]]:
            if k - start > 1:
                alpha[start:k] = alpha[start:k].mean()
            start = k


@kernel
def _owpc_block(
    scores: FloatArray,
    order: IntArray,
    offsets: IntArray,
    grades: IntArray,
    n_grades: IntArray,
    weights: FloatArray,
    generator: int,
    p: float,
    scale: FloatArray,
    losses: FloatArray,
    grad: FloatArray,
) -> None:
    """Loss of each query, and the scaled derivatives for its documents."""
    grad[:] = 0.0
    for q in range(len(losses)):
        ranked = order[offsets[q] : offsets[q + 1]]
        n_thresholds, total = n_grades[q] - 1, 0.0
        for threshold in range(1, n_thresholds + 1):
            better, worse = _two_sides(ranked, grades, threshold)
            alpha = np.empty(len(worse))
            _fill_weights(generator, p, alpha)
            _share_among_ties(scores, worse, alpha)
            total += _walk_down(scores, better, worse, weights, alpha, scale[q] / n_thresholds, grad)
        losses[q] = total / max(n_thresholds, 1)


@kernel
def _two_sides(ranked: IntArray, grades: IntArray, threshold: int) -> tuple[IntArray, IntArray]:
    """The documents of grade `threshold` and more, and the others, each from the highest score to the lowest."""
    better, worse = np.empty(len(ranked), dtype=np.int64), np.empty(len(ranked), dtype=np.int64)
    n_better, n_worse = 0, 0
    for document in ranked:
        if grades[document] >= threshold:
            better[n_better] = document
            n_better += 1
        else:
            worse[n_worse] = document
            n_worse += 1
    return better[:n_better], worse[:n_worse]


@kernel
def _walk_down(
    scores: FloatArray,
    better: IntArray,
    worse: IntArray,
    weights: FloatArray,
    alpha: FloatArray,
    factor: float,
    grad: FloatArray,
) -> float:
    """The loss of one threshold; `factor` times its derivatives is added to `grad`.

    As s_y falls, more irrelevant documents come within its margin. `mass` = Σ α over them, and `short` = Σ α·gap, which
    grows by mass·Δ when s_y falls by Δ: positive numbers only are added, so nothing cancels.
    """
    n_better, n_worse = len(better), len(worse)
    reach = np.zeros(n_worse + 1)  # reach[k]: weight of the relevant documents with exactly k competitors in the margin
    mass, short, total, k = 0.0, 0.0, 0.0, 0
    last_score = scores[better[0]]
    for y in better:
        score = scores[y]
        short += mass * (last_score - score)
        last_score = score
        while k < n_worse and score - scores[worse[k]] < 1.0:
            mass += alpha[k]
            short += alpha[k] * (1.0 - (score - scores[worse[k]]))
            k += 1
        total += weights[y] * short
        grad[y] -= factor * weights[y] * mass / n_better
        reach[k] += weights[y]
    above = 0.0
    for k in range(n_worse - 1, -1, -1):
        above += reach[k + 1]
        grad[worse[k]] += factor * alpha[k] * above / n_better
    return total / n_better


@kernel
def _majoriser(
    offsets: IntArray,
    grades: IntArray,
    n_grades: IntArray,
    weights: FloatArray,
    generator: int,
    p: float,
    scale: FloatArray,
    diagonal: FloatArray,
) -> None:
    """The diagonal stated in `OWPC`."""
    diagonal[:] = 0.0
    for q in range(len(scale)):
        rows = np.arange(offsets[q], offsets[q + 1])
        for threshold in range(1, n_grades[q]):
            better, worse = _two_sides(rows, grades, threshold)
            alpha = np.empty(len(worse))
            _fill_weights(generator, p, alpha)
            factor = 2.0 * scale[q] / (n_grades[q] - 1) / len(better)
            total = 0.0
            for y in better:
                total += weights[y]
                diagonal[y] += factor * weights[y] * min(2.0, len(worse) * alpha[0])
            for document in worse:
                diagonal[document] += factor * alpha[0] * total
