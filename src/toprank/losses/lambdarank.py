"""LambdaRank: pairs weighted by what the metric would change if they changed places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.queries import Queries
from toprank.losses.base import Loss, Traits
from toprank.losses.lambda_bound import LambdaBound
from toprank.losses.reading import readable, reading_of
from toprank.losses.swap_deltas import SwapDeltas, swap_deltas
from toprank.metrics.gains import Gain
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse

__all__ = ["LambdaRank"]


@dataclass(frozen=True)
class LambdaRank(Loss):
    """LambdaRank: Σ_{y_i > y_j} |ΔZ_ij| · log(1 + e^{−σ(s_i − s_j)}), with |ΔZ| held constant.

    |ΔZ_ij| is how much the metric Z changes when i and j change places in the current ranking. With
    ρ = 1/(1 + e^{σ(s_i − s_j)}), a pair adds −σ·ρ·|ΔZ| to ∂/∂s_i and its opposite to ∂/∂s_j; this is no derivative of
    the value, whose weights jump with the ranks. The curvature is the Laplacian of the pairs with the weights
    σ²·ρ(1 − ρ)·|ΔZ|; its diagonal is LightGBM's hessian.

    Args:
        metric: NDCG, DCG, AP (``map``), ERR or RR (``mrr``), also with a cut-off or options, as `toprank.metrics.parse`
            reads them. Its own cut-off cuts the discounts and the ideal.
        truncation: only pairs whose better rank is at most this count (None: all). As in LightGBM, it is also the
            cut-off of the ideal DCG where the metric has none, and leaves the discounts alone.
        sigma: slope σ of the logistic function.
        norm: LightGBM's ``lambdarank_norm``: |ΔZ| is divided by 0.01 + |s_i − s_j|, and a query's losses are multiplied
            by log2(1 + Λ)/Λ, Λ = Σ |∂/∂s| over both documents of all pairs.
        gain: gain of NDCG and DCG (a name, a table or a callable), unless the metric names its own. Pairs go by gain:
            grades of equal gain do not compete.

    Ties: tied scores never leak the order of rows. DCG and NDCG take the expectation of |ΔZ| over all orders of the
    tied documents; for AP, ERR and RR tied documents stand worst grade first, those of one grade in expectation.
    Weights: a pair's term is multiplied by w_i·w_j.
    Cost: O(m²), with truncation O(t·m); memory O(m).
    Consistency: none known.
    Source: Burges, Ragno & Le 2006; Burges 2010, "From RankNet to LambdaRank to LambdaMART"; Donmez et al. 2009.

    >>> bound = LambdaRank("ndcg@10").on([2, 0, 1], Queries([0, 3]))
    >>> (bound.at([0.1, 0.2, 0.3]).grad < 0).tolist()   # who should rise
    [True, False, False]
    """

    traits: ClassVar[Traits] = Traits(
        convex=False,
        smooth=False,
        exact_gradient=False,
        curvature="gauss-newton",
        cost="O(m²), or O(truncation·m)",
    )

    metric: str | Measure = "ndcg"
    truncation: int | None = None
    sigma: float = 1.0
    norm: bool = False
    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] = "exponential"

    def __post_init__(self) -> None:
        readable(self.metric, self, "needs to know what a metric gains when two documents change places")
        if self.truncation is not None:
            check_whole("LambdaRank's truncation", self.truncation, 1)
        check_number("LambdaRank's sigma", self.sigma, above=0)
        Gain.of(self.gain)

    def bind(
        self,
        labels: FloatArray,
        queries: Queries,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
    ) -> LambdaRankBound:
        """See `Loss.bind`."""
        return LambdaRankBound(self, labels, queries, document_weights, query_weights)


class LambdaRankBound(LambdaBound):
    """LambdaRank on data."""

    def __init__(
        self,
        loss: LambdaRank,
        labels: FloatArray,
        queries: Queries,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
    ) -> None:
        self.last, self.norm = loss.truncation or 0, loss.norm
        self.reading = reading_of(parse(loss.metric), labels, queries, loss.gain, ideal_cut=loss.truncation)
        self.gains = self.reading.reads * queries.spread(self.reading.inverse)
        self.ordered_ties = self.reading.kind != "dcg"
        super().__init__(labels, queries, document_weights, query_weights, loss.sigma)

    def weigh(self, rows: IntArray, z: FloatArray, starts: IntArray) -> tuple[FloatArray, SwapDeltas]:
        """See `LambdaBound.weigh`."""
        kind, reads, _, rank_weights = self.reading
        gains = self.gains[rows]
        read = gains if kind == "dcg" else reads[rows]
        return gains, swap_deltas(kind, z, read, starts, rank_weights, self.last)
