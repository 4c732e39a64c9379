"""Pairwise losses: every pair of documents of different grades in a query should be scored apart.

loss_q = 1/P Σ_{y_i > y_j} c_ij φ(s_i − s_j), P = number of such pairs

The margin function φ names the loss; `pair_weight` says how pairs count:

* ``one``: c = 1.
* ``difference``: c = y_i − y_j.
* ``margin``: c = 1 and φ((s_i − s_j) − (t_i − t_j)): scores should differ as the targets t = G(y) do (Cossock & Zhang
  2008 (9)).

Document weights multiply the term of a pair by w_i·w_j; P stays the number of pairs. A query without pairs contributes
nothing. Labels may be any real numbers (with ``margin``: any that the gain takes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray, IntArray
from toprank.errors import UnknownNameError
from toprank.losses.base import Answer, Block, BoundLoss, Curvature, Diagonal, Loss, Traits, Want
from toprank.losses.judgments import Judgments
from toprank.losses.pair_kernels import (
    EXPONENTIAL,
    HINGE,
    LOGISTIC,
    MANY_PAIRS,
    SQUARED_HINGE,
    PairFrame,
    laplacian,
    pair_block,
    pair_masses,
)
from toprank.losses.targets import GainLike, check_gain, targets_of
from toprank.metrics.ranking import rank_block

__all__ = ["Exponential", "Hinge", "Logistic", "SquaredHinge"]

_PAIR_WEIGHTS = ("one", "difference", "margin")
_AUC = "pairwise accuracy on binary labels (Gao & Zhou 2015); none known for graded ones"


@dataclass(frozen=True)
class _PairLoss(Loss):
    """What pairwise losses share: how pairs count, and the targets of the margin form."""

    pair_weight: str = "one"
    gain: GainLike = "exponential"
    max_grade: float | None = None
    _kind: ClassVar[int]

    def __post_init__(self) -> None:
        if self.pair_weight not in _PAIR_WEIGHTS:
            raise UnknownNameError("pair weight", self.pair_weight, _PAIR_WEIGHTS)
        check_gain(self.gain, self.max_grade)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundPairs(self, judgments)


class _BoundPairs(BoundLoss):
    def __init__(self, loss: _PairLoss, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.kind, self.weighted = loss._kind, judgments.document_weights is not None
        self.frame = PairFrame.of(judgments.labels, self.queries, judgments.weights)
        self.by_difference = loss.pair_weight == "difference"
        # The margin form is the plain one at the scores s − t.
        self.targets: FloatArray | None = None
        if loss.pair_weight == "margin":
            top = judgments.top_grade if loss.max_grade is None else loss.max_grade
            self.targets = targets_of(judgments.labels, loss.gain, top)
        self.majoriser = self._majoriser() if self.kind == HINGE else None

    @override
    def judge(self, block: Block, scores: FloatArray, grad: FloatArray, want: Want) -> Answer:
        order: IntArray = self.frame.order[block.rows] - block.rows.start
        margins = (scores if self.targets is None else scores - self.targets[block.rows])[order]
        losses, slopes = np.empty(block.n_queries), np.empty(len(order))
        pair_block(
            margins,
            self._ranks(block, margins),
            self.kind,
            self.weighted,
            self.frame,
            self.by_difference,
            block.first,
            self.scale,
            losses,
            slopes,
        )
        grad[order] = slopes
        if not want.curvature:
            return losses, None
        if self.majoriser is not None:
            return losses, Diagonal(self.majoriser[block.rows])
        return losses, _PairLaplacian(self, block, margins, order)

    def _ranks(self, block: Block, margins: FloatArray) -> IntArray:
        """The block's positions by falling score, where a sweep will ask for them."""
        many = self.frame.pairs[block.queries] >= MANY_PAIRS * np.diff(block.offsets)
        if self.kind not in (HINGE, SQUARED_HINGE) or not many.any():
            return np.empty(0, dtype=np.int64)
        return rank_block(margins, block.offsets, (0, block.n_queries), None, keep_ties=False).order

    def _majoriser(self) -> FloatArray:
        masses = np.empty(len(self.frame.order))
        pair_masses(self.frame, self.by_difference, self.scale, masses)
        majoriser = np.empty_like(masses)
        majoriser[self.frame.order] = 2 * masses
        return majoriser


@dataclass(frozen=True)
class _PairLaplacian(Curvature):
    """Σ_pairs h_ij (e_i − e_j)(e_i − e_j)ᵀ; its entries are computed when asked for, so it stores the scores alone."""

    bound: _BoundPairs
    block: Block
    margins: FloatArray
    order: IntArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        return self._apply(V.reshape(len(V), -1))[0].reshape(V.shape)

    @override
    def diagonal(self) -> FloatArray:
        return self._apply(np.empty((len(self.order), 0)))[1]

    def _apply(self, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The product with V and the diagonal, in the order of the rows."""
        bound, product, diagonal = self.bound, np.empty(V.shape), np.empty(len(V))
        sorted_product, sorted_diagonal = np.empty(V.shape), np.empty(len(V))
        laplacian(
            self.margins,
            bound.kind,
            bound.frame,
            bound.by_difference,
            self.block.first,
            self.block.last,
            bound.scale,
            np.ascontiguousarray(V[self.order]),
            sorted_product,
            sorted_diagonal,
        )
        product[self.order], diagonal[self.order] = sorted_product, sorted_diagonal
        return product, diagonal


@dataclass(frozen=True)
class Hinge(_PairLoss):
    """RankSVM: φ(z) = max(0, 1 − z), z = s_i − s_j.

    Args:
        pair_weight: ``one``, ``difference`` or ``margin`` (see the module).
        gain, max_grade: the targets of ``margin``, as in `Squared`.

    Source: Joachims 2002. Weights: w_i·w_j. Cost O(m log m) for any number of grades (queries
    with few pairs are summed pair by pair, which is faster there).

    It has no curvature of its own. The stated majoriser is the diagonal D_ii = 2/P Σ over the pairs of i of c·w·w, with
    loss(s + d) ≤ loss(s) + grad·d + ½ dᵀD d + ½ C, C = 1/P Σ over pairs of c·w·w (since |x| ≤ ½x² + ½, and
    (d_i − d_j)² ≤ 2d_i² + 2d_j²).

    >>> from toprank import Queries
    >>> bound = Hinge().on([1, 0, 0], Queries([0, 3]))
    >>> bound.at([0.5, 0.0, -1.0]).value  # (0.5 + 0)/2
    0.25
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=False, curvature="majoriser", cost="O(m log m)")
    _kind: ClassVar[int] = HINGE


@dataclass(frozen=True)
class SquaredHinge(_PairLoss):
    """Squared hinge: φ(z) = max(0, 1 − z)², z = s_i − s_j.

    Args: as `Hinge`. Weights: w_i·w_j. Cost O(m log m) for any number of grades; the curvature
    costs O(pairs) for each column it meets. Its second derivative jumps at z = 1, where it is taken as 0.

    >>> from toprank import Queries
    >>> bound = SquaredHinge().on([1, 0, 0], Queries([0, 3]))
    >>> bound.at([0.5, 0.0, -1.0]).value
    0.125
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, cost="O(m log m), its curvature O(pairs)", consistent=_AUC
    )
    _kind: ClassVar[int] = SQUARED_HINGE


@dataclass(frozen=True)
class Logistic(_PairLoss):
    """RankNet: φ(z) = log(1 + e^{−z}), z = s_i − s_j.

    Args: as `Hinge`. Source: Burges et al. 2005. Weights: w_i·w_j. Cost O(pairs), with one exponential for
    each document; queries whose scores span more than 600, and document weights, take one for each pair.

    >>> from toprank import Queries
    >>> bound = Logistic().on([1, 0], Queries([0, 2]))
    >>> bool(np.isclose(bound.at([0.0, 0.0]).value, np.log(2)))
    True
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True, cost="O(pairs)", consistent=_AUC)
    _kind: ClassVar[int] = LOGISTIC


@dataclass(frozen=True)
class Exponential(_PairLoss):
    """RankBoost: φ(z) = e^{−z}, z = s_i − s_j; below z = −600 it goes on as its tangent, to stay finite.

    Args: as `Hinge`. Source: Freund et al. 2003. Weights: w_i·w_j. Cost O(m) through sums over grades
    (O(pairs) where some pair has z < −600); the curvature costs O(pairs) for each column it meets.

    >>> from toprank import Queries
    >>> bound = Exponential().on([1, 0], Queries([0, 2]))
    >>> bool(np.isclose(bound.at([1.0, 0.0]).value, np.exp(-1)))
    True
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True, cost="O(m), its curvature O(pairs)", consistent=_AUC)
    _kind: ClassVar[int] = EXPONENTIAL
