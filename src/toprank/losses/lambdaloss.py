"""LambdaLoss: logistic bounds on NDCG and on the average relevance position, in bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number
from toprank.data.queries import Queries
from toprank.errors import UnknownNameError
from toprank.losses.base import Loss, Traits, non_negative
from toprank.losses.lambda_bound import LambdaBound
from toprank.losses.psi import gains_of
from toprank.losses.reading import ideal_dcg
from toprank.losses.swap_deltas import SwapDeltas, swap_deltas
from toprank.metrics.gains import Discount

__all__ = ["LambdaLoss"]

SCHEMES = ("ndcg1", "ndcg2", "ndcg2++", "arp1", "arp2")


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

    >>> round(LambdaLoss("arp2").on([1, 0], Queries([0, 2])).at([0.0, 0.0]).value, 12)   # one pair, P = 1/2
    1.0
    """

    scheme: str = "ndcg2++"
    sigma: float = 1.0
    mu: float = 10.0

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise UnknownNameError("scheme of LambdaLoss", str(self.scheme), SCHEMES)
        check_number("LambdaLoss's sigma", self.sigma, above=0)
        check_number("LambdaLoss's mu", self.mu, above=0)

    @property
    def traits(self) -> Traits:  # type: ignore[override]
        """The weights of the ARP schemes do not depend on ranks, so these are ordinary convex losses."""
        fixed = self.scheme.startswith("arp")
        return Traits(
            convex=fixed,
            smooth=fixed,
            exact_gradient=fixed,
            curvature="exact" if fixed else "gauss-newton",
            cost="O(m²)",
        )

    def bind(
        self,
        labels: FloatArray,
        queries: Queries,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
    ) -> LambdaLossBound:
        """See `Loss.bind`."""
        return LambdaLossBound(self, labels, queries, document_weights, query_weights)


class LambdaLossBound(LambdaBound):
    """LambdaLoss on data."""

    def __init__(
        self,
        loss: LambdaLoss,
        labels: FloatArray,
        queries: Queries,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
    ) -> None:
        super().__init__(labels, queries, document_weights, query_weights, loss.sigma, unit=1.0 / np.log(2.0))
        self.scheme, self.two_sided = loss.scheme, loss.scheme in ("arp1", "ndcg1")
        self.rank_weights = Discount.of("log2").weights(int(queries.sizes.max()) + 1)
        if loss.scheme.startswith("ndcg2"):
            self.mu = loss.mu if loss.scheme == "ndcg2++" else 1.0
            self.distance = np.append(0.0, self.rank_weights)
        if loss.scheme.startswith("ndcg"):
            gains = gains_of(non_negative(labels, loss), "exponential")
            ideal = queries.spread(ideal_dcg(gains, queries, self.rank_weights))
            self.gains = np.divide(gains, ideal, out=np.zeros_like(gains), where=ideal > 0)
        else:
            self.gains = non_negative(labels, loss) if self.two_sided else labels

    def weigh(self, rows: IntArray, z: FloatArray, starts: IntArray) -> tuple[FloatArray, SwapDeltas]:
        """See `LambdaBound.weigh`."""
        gains = self.gains[rows]
        deltas = swap_deltas("dcg", z, gains, starts, self.rank_weights, 0)
        if self.scheme == "ndcg2++":
            return gains, deltas
        if self.scheme == "ndcg1":
            gains = gains * deltas.below  # G/D, with 1/D in expectation over ties
        constant = np.full_like(gains, 0.0 if self.scheme == "ndcg2" else 1.0)
        return gains, deltas._replace(top=constant, slope=np.zeros_like(gains), tie=constant)
