"""NeuralNDCG: NDCG of a relaxed sorting matrix."""

from __future__ import annotations

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

__all__ = ["NeuralNDCG"]

_SETTLED = 1e-14  # Sinkhorn scaling has converged to rounding


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
        _relaxed_ndcgs(scores / temperature, *given, relaxed, grad, diagonal)
        scale = block.spread(block.scale) / temperature
        grad *= scale
        curvature = Diagonal(diagonal * (scale / temperature)) if want.curvature else None
        return self.best[block.queries] - relaxed, curvature


@summing_kernel
def _relaxed_ndcgs(
    z: FloatArray,
    offsets: IntArray,
    worth: FloatArray,
    rank_weights: FloatArray,
    iterations: int,
    relaxed: FloatArray,
    grad: FloatArray,
    diagonal: FloatArray,
) -> None:
    """Per query NDCG of the relaxed sort; per document −d/dz of it and the diagonal. z = scores over T."""
    grad[:] = 0.0
    diagonal[:] = 0.0
    for q in range(len(relaxed)):
        first, end = offsets[q], offsets[q + 1]
        relaxed[q] = 0.0
        if np.any(worth[first:end] > 0):
            query, gains = z[first:end], worth[first:end]
            relaxed[q] = _relaxed_ndcg(query, gains, rank_weights, iterations, grad[first:end], diagonal[first:end])


@summing_kernel
def _relaxed_ndcg(
    z: FloatArray, worth: FloatArray, rank_weights: FloatArray, iterations: int, grad: FloatArray, diagonal: FloatArray
) -> float:
    """The same for one query."""
    m = len(z)
    P, lead = np.empty((m, m)), np.zeros(m)
    _neural_sort(z, P, lead)
    rows, columns = np.ones((iterations + 1, m)), np.ones((iterations + 1, m))
    done = _sinkhorn(P, iterations, rows, columns)
    value, d_P = 0.0, np.empty((m, m))
    for r in range(m):
        for j in range(m):
            d_P[r, j] = rank_weights[r] * rows[done, r] * columns[done, j] * worth[j]
            value += d_P[r, j] * P[r, j]
    _sinkhorn_back(P, worth, rank_weights, done, rows, columns, d_P)
    _neural_sort_back(z, P, lead, d_P, grad, diagonal)
    return value


@summing_kernel
def _neural_sort(z: FloatArray, P: FloatArray, lead: FloatArray) -> None:
    """P, and lead_j = Σ_k sign(z_j − z_k)."""
    m = len(z)
    apart = np.zeros(m)
    for j in range(m):
        for k in range(m):
            apart[j] += abs(z[j] - z[k])
            lead[j] += np.sign(z[j] - z[k])
    for r in range(m):
        high, total = -np.inf, 0.0
        for j in range(m):
            P[r, j] = (m - 1 - 2 * r) * z[j] - apart[j]
            high = max(high, P[r, j])
        for j in range(m):
            P[r, j] = np.exp(P[r, j] - high)
            total += P[r, j]
        for j in range(m):
            P[r, j] /= total


@summing_kernel
def _sinkhorn(P: FloatArray, iterations: int, rows: FloatArray, columns: FloatArray) -> int:
    """Factors u, v of every round, such that X_t = diag(u_t)·P·diag(v_t); the number of rounds done."""
    # The way back needs every round; two factors of length m are kept of each, not a matrix.
    m = len(P)
    sums = np.empty(m)
    for t in range(1, iterations + 1):
        sums[:] = 0.0
        for r in range(m):
            for j in range(m):
                sums[j] += rows[t - 1, r] * P[r, j]
        change = 0.0
        for j in range(m):
            columns[t, j] = 1.0 / sums[j]
            change = max(change, abs(columns[t, j] - columns[t - 1, j]) * sums[j])
        for r in range(m):
            total = 0.0
            for j in range(m):
                total += P[r, j] * columns[t, j]
            rows[t, r] = 1.0 / total
        if change < _SETTLED:
            return t
    return iterations


@summing_kernel
def _sinkhorn_back(
    P: FloatArray,
    worth: FloatArray,
    rank_weights: FloatArray,
    done: int,
    rows: FloatArray,
    columns: FloatArray,
    d_P: FloatArray,
) -> None:
    """Add to d_P what reaches P through the factors u = rows[t], v = columns[t] of every round."""
    m = len(P)
    d_u, d_v = np.zeros(m), np.zeros(m)
    for r in range(m):
        for j in range(m):
            d_u[r] += rank_weights[r] * P[r, j] * columns[done, j] * worth[j]
            d_v[j] += rank_weights[r] * rows[done, r] * P[r, j] * worth[j]
    for t in range(done, 0, -1):
        for r in range(m):  # u_r = 1 / Σ_j P_rj v_j
            d_sum = -d_u[r] * rows[t, r] ** 2
            for j in range(m):
                d_P[r, j] += d_sum * columns[t, j]
                d_v[j] += d_sum * P[r, j]
        for j in range(m):  # v_j = 1 / Σ_r u_r P_rj, with u of the round before
            d_v[j] *= -(columns[t, j] ** 2)
        for r in range(m):
            total, u = 0.0, rows[t - 1, r]
            for j in range(m):
                d_P[r, j] += u * d_v[j]
                total += P[r, j] * d_v[j]
            d_u[r] = total
        d_v[:] = 0.0


@summing_kernel
def _neural_sort_back(
    z: FloatArray, P: FloatArray, lead: FloatArray, d_P: FloatArray, grad: FloatArray, diagonal: FloatArray
) -> None:
    """Through the softmaxes, the logits (m − 1 − 2r)·z_j − apart_j and the distances, to −d/dz."""
    m = len(z)
    d_apart = np.zeros(m)
    for r in range(m):
        mean, slope = 0.0, float(m - 1 - 2 * r)
        for j in range(m):
            mean += d_P[r, j] * P[r, j]
        for j in range(m):
            d_logit = P[r, j] * (d_P[r, j] - mean)
            grad[j] -= slope * d_logit
            d_apart[j] -= d_logit
            diagonal[j] += abs(d_logit) * (1.0 + (slope - lead[j]) ** 2)
    for j in range(m):
        for k in range(m):
            grad[j] -= np.sign(z[j] - z[k]) * (d_apart[j] + d_apart[k])
