"""Pairwise losses: functions of score differences between documents of different grades in a query.

    loss_q = 1/P Σ_{y_i > y_j} c_ij φ(s_i − s_j), P = number of such pairs

The margin function φ names the loss; `pair_weight` sets the weights of pairs:

* ``one``: c = 1.
* ``difference``: c = y_i − y_j.
* ``margin``: c = 1 and φ((s_i − s_j) − (t_i − t_j)): scores should differ like the targets t = G(y) (Cossock & Zhang
2008 (9)).

Document weights multiply the term of a pair by w_i·w_j; P remains the number of pairs. A query without pairs
contributes nothing. Labels may be any real numbers; with ``margin``, any that the gain supports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.data.queries import Queries
from toprank.errors import UnknownNameError
from toprank.losses.base import Block, BlockResult, BoundLoss, Curvature, Diagonal, Judgments, Loss, Requested, Traits
from toprank.losses.labels import GainLike, check_gain, groups_of, targets_of
from toprank.metrics.sorting import rank_block

MAX_PAIRS_PER_DOCUMENT = 64.0
"""Above this number of pairs per document, a sweep over sorted scores is faster than a loop over pairs."""

_PAIR_WEIGHTS = ("one", "difference", "margin")
_AUC = "pairwise accuracy on binary labels (Gao & Zhou 2015); none known for graded ones"


class PairFrame(NamedTuple):
    """Label-dependent quantities of pairs; documents are sorted by label within each query.

    `order` holds document indices. For each position, `begin` and `end` bound the documents with the same label,
    relative to the query: its worse partners are 0 … begin − 1, its better ones end … m − 1.
    """

    order: IntArray
    begin: IntArray
    end: IntArray
    labels: FloatArray
    weights: FloatArray
    pairs: FloatArray
    """Number of pairs of different labels in each query."""

    @classmethod
    def from_labels(cls, labels: FloatArray, queries: Queries, document_weights: FloatArray) -> PairFrame:
        """Sort the documents of each query by label, and group equal labels."""
        order, group, starts = groups_of(labels, queries)
        query_start = queries.broadcast(queries.offsets[:-1])
        begin, end = starts[group] - query_start, np.append(starts[1:], len(labels))[group] - query_start
        n_pairs = queries.sum(begin.astype(np.float64))
        return cls(order, begin, end, labels[order], document_weights[order], n_pairs)

    def of_block(self, block: Block) -> PairFrame:
        """Return the part of a block."""
        return PairFrame._make([*(of_documents[block.rows] for of_documents in self[:-1]), self.pairs[block.queries]])


@dataclass(frozen=True)
class _PairLoss(Loss):
    """Base class of pairwise losses: pair weights, and targets of the margin form."""

    pair_weight: str = "one"
    gain: GainLike = "exponential"
    max_grade: float | None = None
    _margin: ClassVar[str]
    """Margin function, as named by the kernels' `Margin`."""

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
        self.kind, self.weighted = vars(kernels.Margin)[loss._margin], judgments.document_weights is not None
        self.frame = PairFrame.from_labels(judgments.labels, self.queries, judgments.weights)
        self.by_difference = loss.pair_weight == "difference"
        # The margin form equals the plain form at the scores s − t.
        self.targets: FloatArray | None = None
        if loss.pair_weight == "margin":
            top = judgments.top_grade if loss.max_grade is None else loss.max_grade
            self.targets = targets_of(judgments.labels, loss.gain, top)
        self.majorizer = self._majorizer() if self.kind == kernels.Margin.HINGE else None

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        frame = self.frame.of_block(block)
        order: IntArray = frame.order - block.rows.start
        margins = (scores if self.targets is None else scores - self.targets[block.rows])[order]
        losses, slopes = np.empty(block.n_queries), np.empty(len(order))
        of_labels = block.offsets, frame.begin, frame.end, frame.labels, frame.weights, frame.pairs
        options = self.kind, self.weighted, self.by_difference, MAX_PAIRS_PER_DOCUMENT
        kernels.pair_losses(margins, self._ranks(block, margins), *of_labels, *options, block.scale, losses, slopes)
        grad[order] = slopes
        if not requested.curvature:
            return losses, None
        if self.majorizer is not None:
            return losses, Diagonal(self.majorizer[block.rows])
        return losses, _PairLaplacian(self, block, margins, order)

    def _ranks(self, block: Block, margins: FloatArray) -> IntArray:
        """Return the block's positions by decreasing score; empty if no query uses a sweep."""
        many = self.frame.pairs[block.queries] >= MAX_PAIRS_PER_DOCUMENT * np.diff(block.offsets)
        if self.kind not in (kernels.Margin.HINGE, kernels.Margin.SQUARED_HINGE) or not many.any():
            return np.empty(0, dtype=np.int64)
        return rank_block(margins, block.offsets, (0, block.n_queries), None, keep_ties=False).order

    def _majorizer(self) -> FloatArray:
        masses = np.empty(len(self.frame.order))
        frame = self.frame
        of_labels = self.queries.offsets, frame.begin, frame.end, frame.labels, frame.weights, frame.pairs
        kernels.pair_masses(*of_labels, self.by_difference, self.scale, masses)
        majorizer = np.empty_like(masses)
        majorizer[self.frame.order] = 2 * masses
        return majorizer


@dataclass(frozen=True)
class _PairLaplacian(Curvature):
    """Σ_pairs h_ij (e_i − e_j)(e_i − e_j)ᵀ, computed with each product, so that only scores are stored."""

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
        """Return the product with V and the diagonal, in row order."""
        block, bound, frame = self.block, self.bound, self.bound.frame.of_block(self.block)
        product, diagonal = np.empty(V.shape), np.empty(len(V))
        sorted_V, sorted_product, sorted_diagonal = V[self.order], np.empty(V.shape), np.empty(len(V))
        of_labels = block.offsets, frame.begin, frame.labels, frame.weights, frame.pairs
        options = bound.kind, bound.by_difference, block.scale
        kernels.pair_laplacian(self.margins, *of_labels, *options, sorted_V, sorted_product, sorted_diagonal)
        product[self.order], diagonal[self.order] = sorted_product, sorted_diagonal
        return product, diagonal


@dataclass(frozen=True)
class Hinge(_PairLoss):
    """RankSVM: φ(z) = max(0, 1 − z), z = s_i − s_j.

    Args:
        pair_weight: ``one``, ``difference`` or ``margin`` (see the module).
        gain, max_grade: targets of ``margin``, as in `Squared`.

    Source: Joachims 2002. Weights: w_i·w_j. Cost O(m log m) for any number of grades; queries with few pairs are summed
    pair by pair, which is faster.

    The loss has no useful second derivative. Its majorizer is the diagonal D_ii = 2/P Σ over the pairs of i of c·w·w,
    with loss(s + d) ≤ loss(s) + grad·d + ½ dᵀD d + ½ C, C = 1/P Σ over pairs of c·w·w (since |x| ≤ ½x² + ½, and (d_i −
    d_j)² ≤ 2d_i² + 2d_j²).

    >>> from toprank import Queries
    >>> bound = Hinge().on([1, 0, 0], Queries([0, 3]))
    >>> bound.at([0.5, 0.0, -1.0]).value  # (0.5 + 0)/2
    0.25
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=False, curvature="majorizer", cost="O(m log m)")
    _margin: ClassVar[str] = "HINGE"


@dataclass(frozen=True)
class SquaredHinge(_PairLoss):
    """Squared hinge: φ(z) = max(0, 1 − z)², z = s_i − s_j.

    Args: as `Hinge`. Weights: w_i·w_j. Cost O(m log m) for any number of grades; products with the curvature cost
    O(pairs) per column. The second derivative jumps at z = 1, where it is set to 0.

    >>> from toprank import Queries
    >>> bound = SquaredHinge().on([1, 0, 0], Queries([0, 3]))
    >>> bound.at([0.5, 0.0, -1.0]).value
    0.125
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, cost="O(m log m), its curvature O(pairs)", consistent=_AUC
    )
    _margin: ClassVar[str] = "SQUARED_HINGE"


@dataclass(frozen=True)
class Logistic(_PairLoss):
    """RankNet: φ(z) = log(1 + e^{−z}), z = s_i − s_j.

    Args: as `Hinge`. Source: Burges et al. 2005. Weights: w_i·w_j. Cost O(pairs), with one exponential per document. It
    takes one per pair for queries whose scores span more than 299, for document weights, and for ``difference`` with
    almost distinct labels.

    >>> from toprank import Queries
    >>> bound = Logistic().on([1, 0], Queries([0, 2]))
    >>> bool(np.isclose(bound.at([0.0, 0.0]).value, np.log(2)))
    True
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True, cost="O(pairs)", consistent=_AUC)
    _margin: ClassVar[str] = "LOGISTIC"


@dataclass(frozen=True)
class Exponential(_PairLoss):
    """RankBoost: φ(z) = e^{−z}, z = s_i − s_j; below z = −600 it is continued by its tangent to stay finite.

    Args: as `Hinge`. Source: Freund et al. 2003. Weights: w_i·w_j. Cost O(m) through sums over grades (O(pairs) if some
    pair has z < −600); products with the curvature cost O(pairs) per column.

    >>> from toprank import Queries
    >>> bound = Exponential().on([1, 0], Queries([0, 2]))
    >>> bool(np.isclose(bound.at([1.0, 0.0]).value, np.exp(-1)))
    True
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True, cost="O(m), its curvature O(pairs)", consistent=_AUC)
    _margin: ClassVar[str] = "EXPONENTIAL"
