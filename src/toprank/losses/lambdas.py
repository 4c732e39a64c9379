"""Lambda losses: logistic losses of pairs whose weights depend on the current ranks.

`LambdaRank` weights a pair by the change of the metric if its documents exchange ranks. `LambdaLoss` uses weights that
bound NDCG or the average relevance position, in bits. Both rank by the current scores and hold the weights constant in
the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, IntArray, blocks_of, offsets_of
from toprank.data.arguments import check_number, check_whole
from toprank.errors import UnknownNameError
from toprank.losses.base import Block, BlockResult, BoundLoss, Curvature, Judgments, Loss, Requested, Traits, by_columns
from toprank.losses.labels import ideal_dcg, metric_terms, readable
from toprank.metrics.conventions import Discount, Gain
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse
from toprank.metrics.sorting import rank_block

_SCHEMES = {"ndcg1": "discounted", "ndcg2": "nothing", "ndcg2++": "dcg", "arp1": "one", "arp2": "one"}

_PAIRS_PER_DOCUMENT = 16  # cost of ranking a document, in pairs
_MIN_BLOCKS, _MIN_BLOCK_PAIRS = (
    16,
    1 << 13,
)  # balances threads without tiny blocks


@dataclass(frozen=True)
class LambdaRank(Loss):
    """LambdaRank: Σ_{y_i > y_j} |ΔZ_ij| · log(1 + e^{−σ(s_i − s_j)}), with |ΔZ| held constant.

    |ΔZ_ij| is the change of the metric Z if i and j exchange ranks in the current ranking. With ρ = 1/(1 + e^{σ(s_i −
    s_j)}), a pair adds −σ·ρ·|ΔZ| to ∂/∂s_i and its opposite to ∂/∂s_j. This is not the derivative of the value, whose
    weights jump with the ranks. The curvature is the Laplacian of the pairs with the weights σ²·ρ(1 − ρ)·|ΔZ|; its
    diagonal is the Hessian of LightGBM.

    Args:
        metric: NDCG, DCG, AP (``map``), ERR or RR (``mrr``), also with a cut-off or options, as `toprank.metrics.parse`
            reads them. Its cut-off applies to the discounts and the ideal.
        truncation: use only pairs whose better rank is at most this. Default (None): all pairs. As in LightGBM, it is
            also the cut-off of the ideal DCG if the metric has none, and does not affect the discounts.
        sigma: slope σ of the logistic function.
        norm: LightGBM's ``lambdarank_norm``: |ΔZ| is divided by 0.01 + |s_i − s_j|, and a query's losses are multiplied
            by log2(1 + Λ)/Λ, Λ = Σ |∂/∂s| over both documents of all pairs.
        gain: gain of NDCG and DCG (a name, a table or a callable), unless the metric names its own. Documents of equal
            gain form no pairs.

    Ties: the order of rows never matters. DCG and NDCG use the expectation of |ΔZ| over all orders of the tied
    documents. AP, ERR and RR rank tied documents worst grade first, and average over those of equal grade.
    Weights: a pair's term is multiplied by w_i·w_j.
    Cost: O(m²), with truncation O(t·m); memory O(m).
    Consistency: none known.
    Source: Burges, Ragno & Le 2006; Burges 2010, "From RankNet to LambdaRank to LambdaMART"; Donmez et al. 2009.

    >>> from toprank import Queries
    >>> bound = LambdaRank("ndcg@10").on([2, 0, 1], Queries([0, 3]))
    >>> (bound.at([0.1, 0.2, 0.3]).grad < 0).tolist()   # who should rise
    [True, False, False]
    """

    traits: ClassVar[Traits] = Traits(
        convex=False, smooth=False, exact_gradient=False, curvature="gauss-newton", cost="O(m²), or O(truncation·m)"
    )

    metric: str | Measure = "ndcg"
    truncation: int | None = None
    sigma: float = 1.0
    norm: bool = False
    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] = "exponential"

    def __post_init__(self) -> None:
        readable(self.metric, self, "needs the change of a metric when two documents exchange ranks")
        if self.truncation is not None:
            check_whole("LambdaRank's truncation", self.truncation, 1)
        check_number("LambdaRank's sigma", self.sigma, above=0)
        Gain.from_spec(self.gain)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return LambdaRankBound(self, judgments)


@dataclass(frozen=True)
class LambdaLoss(Loss):
    """LambdaLoss: Σ over pairs of −weight · log2 P, P = 1/(1 + e^{−σ(s_i − s_j)}).

    With G = (2^y − 1)/ideal DCG, ranks r of the current scores, D(r) = log2(1 + r), and the step of 1/D at the distance
    of two documents, δ_ij = 1/D(|r_i − r_j|) − 1/D(|r_i − r_j| + 1):

    ==========  =============================================  ==================
    scheme      weight                                         pairs
    ==========  =============================================  ==================
    ``arp1``    y_i                                            all i ≠ j
    ``arp2``    y_i − y_j                                      y_i > y_j
    ``ndcg1``   G_i / D(r_i)                                   all i ≠ j
    ``ndcg2``   δ_ij·(G_i − G_j)                               y_i > y_j
    ``ndcg2++`` (|1/D(r_i) − 1/D(r_j)| + μ·δ_ij)·(G_i − G_j)   y_i > y_j
    ==========  =============================================  ==================

    Where ``−log2 P ≥ 1`` counts a pair in the wrong order, the value is an upper bound at the current ranks: ``arp1``
    on Σ y_i (r_i − 1); ``arp2`` on what that sum exceeds its least possible value by; ``ndcg1`` on
    Σ G_i − NDCG; ``ndcg2`` on Σ G_i − NDCG − Σ_pairs δ_ij·min(G_i, G_j). The weights of the NDCG schemes are held
    constant by the gradient, as in LambdaRank.

    Under the ARP schemes labels may be any real numbers. Under ``arp1`` the loss is not convex where one is negative.
    Boosting then divides by the curvature of the positive ones.

    Args:
        scheme: see above.
        sigma: slope σ of the logistic function.
        mu: μ of ``ndcg2++``.

    Ties: D and δ are means over the orders of tied documents, so the order of rows does not matter.
    Weights: a pair's term is multiplied by w_i·w_j.
    Cost: O(m²), memory O(m).
    Curvature: that of the pairs with constant weights, exact for the ARP schemes.
    Consistency: none known.
    Source: Wang, Li, Golbandi, Bendersky & Najork 2018, "The LambdaLoss framework for ranking metric optimization".

    >>> from toprank import Queries
    >>> round(LambdaLoss("arp2").on([1, 0], Queries([0, 2])).at([0.0, 0.0]).value, 12)   # one pair, P = 1/2
    1.0
    """

    scheme: str = "ndcg2++"
    sigma: float = 1.0
    mu: float = 10.0

    def __post_init__(self) -> None:
        if self.scheme not in _SCHEMES:
            raise UnknownNameError("scheme of LambdaLoss", self.scheme, tuple(_SCHEMES))
        check_number("LambdaLoss's sigma", self.sigma, above=0)
        check_number("LambdaLoss's mu", self.mu, above=0)

    @property
    def traits(self) -> Traits:  # type: ignore[override]
        """Properties; the weights of the ARP schemes do not depend on ranks, so these are convex."""
        fixed = self.scheme.startswith("arp")
        curvature: Literal["exact", "gauss-newton"] = "exact" if fixed else "gauss-newton"
        linear = self.scheme == "arp1"
        return Traits(fixed, fixed, exact_gradient=fixed, curvature=curvature, cost="O(m²)", linear_in_gain=linear)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return LambdaLossBound(self, judgments)


class LambdaBound(BoundLoss):
    """Weighted logistic losses of pairs on data; `native/lambdas.c` has the formulas.

    Args:
        judgments: labels, queries and weights.
        sigma: slope of the logistic function.
        unit: factor of the natural logarithm (1/log 2 for losses in bits).

    Subclasses set the weights of pairs: the kind of Δ (`delta`), the gains, the metric's number for each document, and
    the weight of each rank. With `ordered_ties`, equal scores are ranked worst grade first.
    """

    delta: str
    gains: FloatArray
    reads: FloatArray
    rank_weights: FloatArray
    ordered_ties = False
    last = 0
    mu = 0.0
    distance = distance_sums = np.zeros(0)
    two_sided = False
    norm = False

    def __init__(self, judgments: Judgments, sigma: float, unit: float = 1.0) -> None:
        super().__init__(judgments)
        self.sigma, self.unit = sigma, unit
        self.document_weights = np.zeros(0) if judgments.document_weights is None else judgments.document_weights
        self._blocks: dict[int, list[Block]] = {}
        self._worst_first: IntArray | None = None
        if self.ordered_ties:
            self._worst_first = np.lexsort((judgments.labels, self.queries.document_query))

    @override
    def blocks(self, size: int) -> list[Block]:
        if size not in self._blocks:
            sizes = self.queries.sizes
            above = np.minimum(self.last, sizes) if self.last else sizes
            pairs = above * (2 * sizes - above) // (2 * _PAIRS_PER_DOCUMENT)
            work = offsets_of(np.maximum(sizes, pairs))
            ends = blocks_of(work, min(size, max(_MIN_BLOCK_PAIRS, int(work[-1]) // _MIN_BLOCKS)))
            self._blocks[size] = [self.slice(*pair) for pair in ends]
        return self._blocks[size]

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        losses, diagonal = np.empty(block.n_queries), np.empty_like(scores)
        scale = block.scale * (self.unit * self.sigma)
        # Skip the logarithms of the value if not requested: they take a third of the time. The diagonal is free.
        kernels.lambda_sums(scores, *self.ranked(block, scores), requested.value, scale, grad, diagonal, losses)
        losses *= self.unit
        if not requested.curvature:
            return losses, None
        return losses, PairCurvature(self, block, scores.copy(), scale * self.sigma, diagonal)

    def ranked(self, block: Block, scores: FloatArray) -> tuple[Any, ...]:
        """Return further arguments of the kernels: the ranking of a block, and the weights of its pairs."""
        rows, whole = block.rows, (0, block.n_queries)
        rising = None if self._worst_first is None else self._worst_first[rows] - rows.start
        ranked = rank_block(scores if rising is None else scores[rising], block.offsets, whole, None, False)
        order = ranked.order if rising is None else rising[ranked.order]
        gains, reads, weights = self.gains[rows], self.reads[rows], self.document_weights[rows]
        of_ranks = self.rank_weights, self.distance, self.distance_sums
        kind, norm = vars(kernels.Delta)[self.delta.upper()], 1.0 / self.sigma if self.norm else 0.0
        options = kind, self.last, self.sigma, self.mu, norm
        return order, ranked.starts, gains, reads, weights, *of_ranks, *options, self.two_sided


@dataclass(frozen=True)
class PairCurvature(Curvature):
    """A Laplacian over the pairs of a block: (H·V)_i = Σ_j c_ij (V_i − V_j).

    Boosting needs only its diagonal, so each product computes the ranking again instead of storing it.
    """

    bound: LambdaBound
    block: Block
    scores: FloatArray
    scale: FloatArray
    values: FloatArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        ranked = self.bound.ranked(self.block, self.scores)
        return by_columns(V, kernels.lambda_product, self.scores, *ranked, self.scale)

    @override
    def diagonal(self) -> FloatArray:
        return self.values


class LambdaRankBound(LambdaBound):
    """LambdaRank on data."""

    def __init__(self, loss: LambdaRank, judgments: Judgments) -> None:
        self.last, self.norm = loss.truncation or 0, loss.norm
        terms = metric_terms(parse(loss.metric), judgments, loss.gain, ideal_cut=loss.truncation)
        self.delta, self.reads, self.rank_weights = terms.kind, terms.reads, terms.rank_weights
        self.gains = terms.reads * judgments.queries.broadcast(terms.inverse)
        self.ordered_ties = self.delta != "dcg"
        super().__init__(judgments, loss.sigma)


class LambdaLossBound(LambdaBound):
    """LambdaLoss on data."""

    def __init__(self, loss: LambdaLoss, judgments: Judgments) -> None:
        super().__init__(judgments, loss.sigma, unit=1.0 / np.log(2.0))
        queries = judgments.queries
        self.delta, self.two_sided = _SCHEMES[loss.scheme], loss.scheme in ("arp1", "ndcg1")
        self.rank_weights = Discount.from_spec("log2").weights(int(queries.sizes.max()) + 1)
        if loss.scheme.startswith("ndcg2"):
            self.mu = loss.mu if loss.scheme == "ndcg2++" else 1.0
            self.distance = np.append(0.0, self.rank_weights)
            self.distance_sums = np.cumsum(self.distance)
        if loss.scheme.startswith("ndcg"):
            gains = judgments.checked_gains("exponential", loss)
            ideal = queries.broadcast(ideal_dcg(gains, queries, self.rank_weights))
            self.gains = np.divide(gains, ideal, out=np.zeros_like(gains), where=ideal > 0)
        else:
            self.gains = judgments.labels
        self.reads = self.gains
