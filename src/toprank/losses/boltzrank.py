"""BoltzRank: a Boltzmann distribution over rankings, compared on a fixed set of rankings for each query.

Volkovs & Zemel give the ranking π (π_j = 1 for the first document) the energy

    E(π | s) = 2/(m(m−1)) Σ_{π_u < π_v} g(π_u − π_v)·(s_u − s_v),    g(x) = κ·x,    P(π | s) ∝ e^{−E(π | s)}.

Summed by documents, −E = Σ_j c_j(π) s_j with c_j(π) = κ·(m + 1 − 2π_j)/(m − 1): linear in the scores, from κ for the
first place to −κ for the last. So no pair is ever visited, and the loss is that of a log-linear model: convex, with
gradient Σ_π (P − Q)(π)·c(π) and Hessian Cov_P[c(π)]. Weights w_u·w_v on the pairs leave it so: then
c_j(π) = 2κ/(m(m−1))·w_j·Σ_v w_v (π_v − π_j).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import permutations
from math import factorial
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.checks import check_number, check_whole
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses.base import Answer, Block, BoundLoss, Curvature, Loss, Traits, Want
from toprank.losses.judgments import Judgments
from toprank.losses.targets import check_psi, psi_of

__all__ = ["BoltzRank"]


@dataclass(frozen=True)
class BoltzRank(Loss):
    """BoltzRank: −Σ_π Q(π)·log P(π), Q ∝ e^{−E(π | ψ(y))} and P ∝ e^{−E(π | s)} over a set of rankings π.

    All m! rankings of a query where they are at most `samples`; otherwise `samples` of them, drawn once when the loss
    is bound, by the seed and the query's number: half uniformly, half from the Plackett–Luce distribution of ψ(y), so
    that there are arbitrary rankings and good ones. Value, gradient and curvature are exact for that set. A drawn set
    depends on the order of the rows; an enumerated one does not. The paper's pairwise potentials, which let a
    document's score depend on the other documents, belong to a set-dependent scorer.

    Args:
        alpha: ψ(y) = α·y or α·(2^y − 1), > 0.
        psi: ``linear`` or ``exponential``.
        coupling: κ > 0, how strongly scores decide the ranking.
        samples: rankings for each query, at least 2.
        seed: seed of the drawn rankings.
        max_documents: a longer query is refused; the rankings take 4·samples·m bytes.

    Weights: w_u·w_v multiplies the pair's part of both energies; the normaliser m(m−1)/2 stays.
    Cost: O(samples·m) time, and as much memory, kept as long as the loss is bound.
    Consistency: none known for a metric; with all rankings and a given y the minimiser is s = ψ(y).
    Source: Volkovs & Zemel 2009, "BoltzRank: learning to maximize expected ranking gain"; its divergence objective.

    >>> eval = BoltzRank().on([1, 0, 0], Queries([0, 3])).at([1.0, 0.0, 0.0])   # the scores already are ψ(y)
    >>> bool(abs(eval.grad).max() < 1e-15)
    True
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True, cost="O(samples·m), memory too")

    alpha: float = 1.0
    psi: str = "linear"
    coupling: float = 1.0
    samples: int = 100
    seed: int = 0
    max_documents: int = 1000

    def __post_init__(self) -> None:
        check_psi(self.psi)
        check_number("BoltzRank's alpha", self.alpha, above=0)
        check_number("BoltzRank's coupling", self.coupling, above=0)
        check_whole("BoltzRank's samples", self.samples, 2)
        check_whole("BoltzRank's seed", self.seed, 0)
        check_whole("BoltzRank's max_documents", self.max_documents, 1)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        queries = judgments.queries
        longest = int(np.argmax(queries.sizes))
        if queries.sizes[longest] > self.max_documents:
            raise DataError(
                f"BoltzRank keeps {self.samples} rankings of every query; query number {longest} (from 0) has "
                f"{queries.sizes[longest]:,} documents, more than max_documents={self.max_documents:,}. Raise "
                "max_documents, or cut the lists."
            )
        wanted = psi_of(judgments, self.psi, self, self.alpha)
        return _BoundBoltzRank(wanted, self._rankings(wanted, queries, judgments.weights), judgments)

    def _rankings(self, wanted: FloatArray, queries: Queries, weights: FloatArray) -> Rankings:
        ranks = [self._ranks(wanted[rows], number) for number, rows in enumerate(queries)]
        totals, sizes = queries.sum(weights), queries.sizes
        divisors = np.where(totals > 0, totals, 1.0)
        means = [part @ weights[rows] / divisors[q] for q, (part, rows) in enumerate(zip(ranks, queries, strict=True))]
        return Rankings(
            np.concatenate([part.reshape(-1) for part in ranks]),
            _cumulative([part.size for part in ranks]),
            _cumulative([len(part) for part in ranks]),
            np.concatenate(means),
            2 * self.coupling * totals / np.maximum(sizes * (sizes - 1), 1),
            weights,
        )

    def _ranks(self, wanted: FloatArray, number: int) -> npt.NDArray[np.int32]:
        """(rankings, m): the rank of each document, from 1."""
        m = len(wanted)
        # 13! exceeds any sensible number of samples; larger factorials need not be computed.
        if m < 13 and factorial(m) <= self.samples:
            return _all_ranks(m)
        uniform = np.random.default_rng([self.seed, number]).random((self.samples, m))
        keys = np.log(-np.log1p(-uniform))  # Gumbel noise turned around: rising order of keys is a random ranking
        keys[::2] -= wanted
        return np.asarray(np.argsort(np.argsort(keys, axis=1), axis=1) + 1, dtype=np.int32)


class Rankings(NamedTuple):
    """Some rankings of every query; a ranking lists the ranks of the query's documents, from 1.

    The coefficient of document j is c_j(π) = step·w_j·(weighted mean rank of π − π_j).
    """

    ranks: npt.NDArray[np.int32]  # query by query, ranking by ranking
    entries: IntArray  # where each query's ranks begin
    starts: IntArray  # where each query's rankings begin, counted in rankings
    means: FloatArray  # weighted mean rank of each ranking
    steps: FloatArray  # of each query
    weights: FloatArray  # of each document


@cache
def _all_ranks(m: int) -> npt.NDArray[np.int32]:
    return np.array(list(permutations(range(1, m + 1))), dtype=np.int32)


def _cumulative(counts: list[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


class _BoundBoltzRank(BoundLoss):
    def __init__(self, wanted: FloatArray, rankings: Rankings, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.rankings = rankings
        n, offsets = len(self.queries), self.queries.offsets
        nothing, no_target = np.zeros(len(wanted)), np.zeros(rankings.starts[-1])
        self.target: FloatArray = np.empty(len(no_target))
        self.expected: FloatArray = np.empty(len(wanted))
        # At s = ψ the model's distribution and expected coefficients are the target's.
        given = (wanted, rankings, no_target, nothing, np.ones(n), offsets, 0, n)
        boltzmann(*given, self.target, self.expected, np.empty(n))

    @override
    def judge(self, block: Block, scores: FloatArray, grad: FloatArray, want: Want) -> Answer:
        losses, starts = np.empty(block.n_queries), self.rankings.starts
        model = np.empty(starts[block.last] - starts[block.first])
        cut = self.scale, self.queries.offsets, block.first, block.last
        boltzmann(scores, self.rankings, self.target, self.expected, *cut, model, grad, losses)
        return losses, _BoltzmannCurvature(self.rankings, model, cut) if want.curvature else None


@dataclass(frozen=True)
class _BoltzmannCurvature(Curvature):
    """The covariance of the coefficients c(π) under P, in each query."""

    rankings: Rankings
    model: FloatArray
    cut: tuple[FloatArray, IntArray, int, int]
    """Scale and offsets of all queries, the first query and the one after the last."""

    def __matmul__(self, V: FloatArray) -> FloatArray:
        columns = np.ascontiguousarray(V, dtype=np.float64).reshape(len(V), -1)
        product = np.zeros_like(columns)
        boltzmann_covariance(self.rankings, self.model, *self.cut, columns, product)
        return product.reshape(V.shape)

    @override
    def diagonal(self) -> FloatArray:
        return boltzmann_variance(self.rankings, self.model, *self.cut)


@kernel
def _coefficients(rankings: Rankings, q: int, r: int, start: int, m: int, out: FloatArray) -> None:
    """c(π) of ranking number r of query q, into out[:m]; `start` is the query's first document."""
    # Made anew by every pass: kept, they would take twice the memory of the ranks.
    entry = rankings.entries[q] + r * m
    mean, step = rankings.means[rankings.starts[q] + r], rankings.steps[q]
    for j in range(m):
        out[j] = step * rankings.weights[start + j] * (mean - rankings.ranks[entry + j])


@kernel
def boltzmann(
    scores: FloatArray,
    rankings: Rankings,
    target: FloatArray,
    expected: FloatArray,
    scale: FloatArray,
    offsets: IntArray,
    first: int,
    last: int,
    model: FloatArray,
    grad: FloatArray,
    losses: FloatArray,
) -> None:
    """P(π) into `model`, scale·(Σ_π P(π) c(π) − expected) into `grad`, −Σ_π target(π) log P(π) into `losses`."""
    base, base_ranking = offsets[first], rankings.starts[first]
    coefficients = np.empty(len(scores))
    for q in range(first, last):
        start, m, begin = offsets[q], offsets[q + 1] - offsets[q], rankings.starts[q]
        n = rankings.starts[q + 1] - begin
        own = model[begin - base_ranking : begin - base_ranking + n]
        top = -np.inf
        for r in range(n):
            _coefficients(rankings, q, r, start, m, coefficients)
            own[r] = 0.0
            for j in range(m):
                own[r] += coefficients[j] * scores[start - base + j]
            top = max(top, own[r])
        total, gap = 0.0, 0.0
        for r in range(n):
            below = top - own[r]
            gap += target[begin + r] * below
            own[r] = np.exp(-below)
            total += own[r]
        losses[q - first] = gap + np.log(total)
        own_grad = grad[start - base : start - base + m]
        own_grad[:] = 0.0
        for r in range(n):
            own[r] /= total
            _coefficients(rankings, q, r, start, m, coefficients)
            for j in range(m):
                own_grad[j] += own[r] * coefficients[j]
        for j in range(m):
            own_grad[j] = scale[q] * (own_grad[j] - expected[start + j])


@kernel
def boltzmann_covariance(
    rankings: Rankings,
    model: FloatArray,
    scale: FloatArray,
    offsets: IntArray,
    first: int,
    last: int,
    V: FloatArray,
    product: FloatArray,
) -> None:
    """scale·Σ_π P(π) c_j(π)·(c(π)·V − Σ P c·V), added to `product`."""
    base, width = offsets[first], V.shape[1]
    coefficients, mean = np.empty(len(V)), np.empty(width)
    for q in range(first, last):
        start, m, n = offsets[q], offsets[q + 1] - offsets[q], rankings.starts[q + 1] - rankings.starts[q]
        own = model[rankings.starts[q] - rankings.starts[first] :]
        projected = np.zeros((n, width))
        mean[:] = 0.0
        for r in range(n):
            _coefficients(rankings, q, r, start, m, coefficients)
            for j in range(m):
                for c in range(width):
                    projected[r, c] += coefficients[j] * V[start - base + j, c]
            for c in range(width):
                mean[c] += own[r] * projected[r, c]
        for r in range(n):
            _coefficients(rankings, q, r, start, m, coefficients)
            for j in range(m):
                factor = scale[q] * own[r] * coefficients[j]
                for c in range(width):
                    product[start - base + j, c] += factor * (projected[r, c] - mean[c])


@kernel
def boltzmann_variance(
    rankings: Rankings, model: FloatArray, scale: FloatArray, offsets: IntArray, first: int, last: int
) -> FloatArray:
    """scale·Var_P[c_j(π)] of each document."""
    base = offsets[first]
    n_documents = offsets[last] - base
    variance, mean, coefficients = np.zeros(n_documents), np.zeros(n_documents), np.empty(n_documents)
    for q in range(first, last):
        start, m, n = offsets[q], offsets[q + 1] - offsets[q], rankings.starts[q + 1] - rankings.starts[q]
        own = model[rankings.starts[q] - rankings.starts[first] :]
        for r in range(n):
            _coefficients(rankings, q, r, start, m, coefficients)
            for j in range(m):
                mean[start - base + j] += own[r] * coefficients[j]
        for r in range(n):
            _coefficients(rankings, q, r, start, m, coefficients)
            for j in range(m):
                variance[start - base + j] += scale[q] * own[r] * (coefficients[j] - mean[start - base + j]) ** 2
    return variance
