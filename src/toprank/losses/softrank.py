"""SoftRank: the expectation of NDCG when every score is drawn from a normal distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray
from toprank.data.checks import check_number, check_whole
from toprank.losses.base import Answer, Block, BoundLoss, Diagonal, Loss, Traits, Want
from toprank.losses.judgments import Judgments
from toprank.losses.reading import reading_of, refuse_long_queries, worth_of
from toprank.metrics.gains import Gain
from toprank.metrics.graded import NDCG

__all__ = ["SoftRank"]


@dataclass(frozen=True)
class SoftRank(Loss):
    """SoftRank: 1 − E[NDCG] when document j scores N(s_j, noise²), independently; ranks by pairwise contests.

    Document i beats j with probability π_ij = Φ((s_i − s_j)/(√2·noise)). Taking these contests as independent, the rank
    of j is 1 plus a Poisson-binomial count of those who beat it, whose distribution p_j(r) a recursion builds by adding
    one competitor at a time. The loss is 1 − Σ_j G_j Σ_r p_j(r)/log2(1 + r) / ideal DCG, and tends to 1 − NDCG as the
    noise goes to 0.

    Args:
        noise: standard deviation of a score.
        k: cut-off of NDCG@k; None: the whole list.
        gain: a name, a table or a callable.
        max_documents: queries longer than this are refused.

    Queries of equal gains contribute nothing.
    Weights: a document's weight multiplies its own term of the sum, never the ideal.
    Curvature: a diagonal that bounds the curvature of the contests, with the metric taken as linear in π. With
    u = (s_i − s_j)/(2·noise), |d²π/du²| ≤ (1 + u²)·dπ/du; the Laplacian of the pairs with these weights is at most
    twice its diagonal.
    Cost: O(m³) time and O(m²) memory a query, O(m²·k) and O(m·k) with a cut-off: the recursion runs once for each
    document with a gain, forwards and back.
    Consistency: none known; the loss is not convex.
    Source: Taylor, Guiver, Robertson & Minka 2008, "SoftRank: optimizing non-smooth rank metrics".

    >>> from toprank import Queries
    >>> quiet = SoftRank(noise=1e-3).on([0, 1], Queries([0, 2]))
    >>> bool(np.isclose(quiet.at([1.0, 0.0]).value, 1 - 1 / np.log2(3)))   # the relevant document is second
    True
    """

    traits: ClassVar[Traits] = Traits(convex=False, smooth=True, curvature="majoriser", cost="O(m³), memory O(m²)")

    noise: float = 1.0
    k: int | None = None
    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] = "exponential"
    max_documents: int = 500

    def __post_init__(self) -> None:
        check_number("SoftRank's noise", self.noise, above=0)
        if self.k is not None:
            check_whole("SoftRank's k", self.k, 1)
        check_whole("SoftRank's max_documents", self.max_documents, 1)
        Gain.of(self.gain)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        refuse_long_queries(self, self.max_documents, judgments.queries, "time grows with the cube of a query's length")
        return SoftRankBound(self, judgments)


class SoftRankBound(BoundLoss):
    """SoftRank on data."""

    def __init__(self, loss: SoftRank, judgments: Judgments) -> None:
        super().__init__(judgments)
        reading = reading_of(NDCG(loss.k), judgments, loss.gain)
        self.noise, self.rank_weights = loss.noise, reading.rank_weights
        self.best, self.worth = worth_of(reading, judgments)

    @override
    def judge(self, block: Block, scores: FloatArray, grad: FloatArray, want: Want) -> Answer:
        expected, diagonal = np.empty(block.n_queries), np.empty_like(scores)
        width = 2.0 * self.noise  # Φ(√2·u) = erfc(−u)/2
        worth = self.worth[block.rows]
        kernels.expected_ndcg(scores / width, block.offsets, worth, self.rank_weights, expected, grad, diagonal)
        scale = block.spread(block.scale)
        grad *= scale / width
        curvature = Diagonal(diagonal * (scale / width**2)) if want.curvature else None
        return self.best[block.queries] - expected, curvature
