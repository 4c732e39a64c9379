"""SoftRank: the expectation of NDCG when every score is drawn from a normal distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray, IntArray, summing_kernel
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
    Cost: O(m³) time and O(m²) memory a query: the recursion runs once for each document with a gain, forwards and back.
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
        _expected_ndcg(scores / width, block.offsets, worth, self.rank_weights, expected, grad, diagonal)
        scale = block.spread(block.scale)
        grad *= scale / width
        curvature = Diagonal(diagonal * (scale / width**2)) if want.curvature else None
        return self.best[block.queries] - expected, curvature


@summing_kernel
def _expected_ndcg(
    z: FloatArray,
    offsets: IntArray,
    worth: FloatArray,
    rank_weights: FloatArray,
    expected: FloatArray,
    grad: FloatArray,
    diagonal: FloatArray,
) -> None:
    """E[NDCG] of each query; −d/dz of it, and the diagonal bound, for each document; z = scores over 2·noise."""
    longest = np.max(offsets[1:] - offsets[:-1])
    stages, after = np.zeros((longest, longest + 1)), np.zeros(longest + 2)
    beats, slope = np.empty(longest), np.empty(longest)
    grad[:] = 0.0
    diagonal[:] = 0.0
    for q in range(len(expected)):
        first, m = offsets[q], offsets[q + 1] - offsets[q]
        expected[q] = 0.0
        for j in range(m):
            if worth[first + j] == 0.0:
                continue
            for i in range(m):
                beats[i] = 0.5 * math.erfc(z[first + j] - z[first + i]) if i != j else 0.0
            mean = _rank_distribution(m, beats, rank_weights, stages)
            expected[q] += worth[first + j] * mean
            _slopes_back(m, beats, rank_weights, stages, after, slope)
            _contests(first, m, j, z, worth[first + j], slope, grad, diagonal)


@summing_kernel
def _rank_distribution(m: int, beats: FloatArray, rank_weights: FloatArray, stages: FloatArray) -> float:
    """stages[i, r]: the chance that r of the documents 0 … i − 1 beat j; Σ_r p(r)/F(r) at the end."""
    stages[0, 0] = 1.0
    for i in range(m - 1):
        _add_competitor(i, beats[i], stages[i], stages[i + 1])
    total, win = 0.0, beats[m - 1]
    for r in range(m):
        chance = stages[m - 1, r] * (1.0 - win) + (stages[m - 1, r - 1] * win if r > 0 else 0.0)
        total += chance * rank_weights[r]
    return total


@summing_kernel
def _add_competitor(n: int, win: float, before: Any, after: Any) -> None:
    """after[r] = before[r]·(1 − win) + before[r − 1]·win, for counts up to n before and n + 1 after."""
    before[n + 1] = 0.0
    after[0] = before[0] * (1.0 - win)
    for r in range(n + 1):
        after[r + 1] = before[r + 1] * (1.0 - win) + before[r] * win


@summing_kernel
def _slopes_back(
    m: int, beats: FloatArray, rank_weights: FloatArray, stages: FloatArray, after: FloatArray, slope: FloatArray
) -> None:
    """slope[i] = d E[1/F(rank of j)] / d beats[i] ≤ 0, by walking the recursion backwards.

    after[r] is the expectation given that r documents among those up to i beat j; one competitor less is
    after[r]·(1 − win) + after[r + 1]·win.
    """
    after[:m] = rank_weights[:m]
    after[m] = 0.0
    for i in range(m - 1, -1, -1):
        total, win = 0.0, beats[i]
        for r in range(i + 1):
            total += stages[i, r] * (after[r + 1] - after[r])
        for r in range(i + 1):
            after[r] = after[r] * (1.0 - win) + after[r + 1] * win
        slope[i] = total


@summing_kernel
def _contests(
    first: int, m: int, j: int, z: FloatArray, worth: float, slope: FloatArray, grad: FloatArray, diagonal: FloatArray
) -> None:
    """From d/dπ_ij to the scores: dπ_ij/dz_i = e^{−u²}/√π, u = z_i − z_j."""
    for i in range(m):
        if i != j:
            u = min(abs(z[first + i] - z[first + j]), 30.0)  # beyond, the density is 0
            density = math.exp(-u * u) / math.sqrt(math.pi)
            force = -worth * slope[i] * density
            grad[first + i] += force
            grad[first + j] -= force
            bend = 2.0 * abs(force) * (1.0 + u * u)
            diagonal[first + i] += bend
            diagonal[first + j] += bend
