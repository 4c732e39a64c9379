"""NeuralNDCG: NDCG of a relaxed sorting matrix."""

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

__all__ = ["NeuralNDCG"]


@dataclass(frozen=True)
class NeuralNDCG(Loss):
    """NeuralNDCG: 1 − Σ_r (X·G)_r / log2(1 + r) / ideal DCG, X a relaxed permutation matrix that sorts the scores.

    NeuralSort gives the rows P_r = softmax_j(((m + 1 − 2r)·s_j − Σ_k |s_j − s_k|)/T), r = 1 … m, which sum to 1 and
    tend to the sorting permutation as T → 0. Sinkhorn scaling then divides by the sums of columns and of rows in turn,
    so that no document counts more than once. The gradient goes through every step of the scaling. Where scores are
    tied |s_j − s_k| has a kink, and the gradient is the mean of those on its two sides.

    Args:
        temperature: T.
        k: cut-off of NDCG@k; None: the whole list.
        gain: a name, a table or a callable.
        iterations: rounds of Sinkhorn scaling, fewer where it has converged to rounding; 0: the bare NeuralSort.
        max_documents: queries longer than this are refused.

    Queries of equal gains contribute nothing.
    Weights: a document's weight multiplies its own term of the sum, never the sorting or the ideal.
    Curvature: a diagonal of the size of the softmaxes' own curvature, Σ_r P_rj·|dL/dP_rj − mean|·(1 + b_rj²)/T² with
    b_rj = T·dlogit_rj/ds_j; a scale for steps, not a proven bound.
    Cost: O(iterations·m²) time and O(m²) memory a query.
    Consistency: none known; the loss is not convex.
    Source: Pobrotyn & Białobrzeski 2021, "NeuralNDCG"; Grover et al. 2019, "Stochastic optimization of sorting networks
    via continuous relaxations".

    >>> from toprank import Queries
    >>> sharp = NeuralNDCG(temperature=1e-3).on([0, 1], Queries([0, 2]))
    >>> bool(np.isclose(sharp.at([1.0, 0.0]).value, 1 - 1 / np.log2(3)))   # the relevant document is second
    True
    """

    traits: ClassVar[Traits] = Traits(
        convex=False, smooth=False, curvature="majoriser", cost="O(iterations·m²), memory O(m²)"
    )

    temperature: float = 1.0
    k: int | None = None
    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] = "exponential"
    iterations: int = 50
    max_documents: int = 1000

    def __post_init__(self) -> None:
        check_number("NeuralNDCG's temperature", self.temperature, above=0)
        if self.k is not None:
            check_whole("NeuralNDCG's k", self.k, 1)
        check_whole("NeuralNDCG's iterations", self.iterations, 0)
        check_whole("NeuralNDCG's max_documents", self.max_documents, 1)
        Gain.of(self.gain)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        refuse_long_queries(
            self, self.max_documents, judgments.queries, "memory grows with the square of a query's length"
        )
        return NeuralNDCGBound(self, judgments)


class NeuralNDCGBound(BoundLoss):
    """NeuralNDCG on data."""

    def __init__(self, loss: NeuralNDCG, judgments: Judgments) -> None:
        super().__init__(judgments)
        reading = reading_of(NDCG(loss.k), judgments, loss.gain)
        self.loss, self.rank_weights = loss, reading.rank_weights
        self.best, self.worth = worth_of(reading, judgments)

    @override
    def judge(self, block: Block, scores: FloatArray, grad: FloatArray, want: Want) -> Answer:
        relaxed, diagonal, temperature = np.empty(block.n_queries), np.empty_like(scores), self.loss.temperature
        given = block.offsets, self.worth[block.rows], self.rank_weights, self.loss.iterations
        kernels.relaxed_ndcgs(scores / temperature, *given, relaxed, grad, diagonal)
        scale = block.spread(block.scale) / temperature
        grad *= scale
        curvature = Diagonal(diagonal * (scale / temperature)) if want.curvature else None
        return self.best[block.queries] - relaxed, curvature
