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
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, IntArray, offsets_of
from toprank.data.arguments import check_number, check_whole
from toprank.data.queries import Queries
from toprank.losses.base import Block, BlockResult, BoundLoss, Curvature, Judgments, Loss, Requested, Traits, by_columns
from toprank.losses.labels import refuse_long_queries
from toprank.losses.softmax import check_psi, psi_of


@dataclass(frozen=True)
class BoltzRank(Loss):
    """BoltzRank: −Σ_π Q(π)·log P(π), Q ∝ e^{−E(π | ψ(y))} and P ∝ e^{−E(π | s)} over a set of rankings π.

    The set holds all m! rankings of a query if there are at most `samples`. Otherwise `samples` rankings are sampled
    once, when the loss is bound, with the seed and the index of the query: half uniformly, half from the Plackett–Luce
    distribution of ψ(y), so that the set contains both arbitrary and good rankings. Value, gradient and curvature are
    exact for the set. A sampled set depends on the order of the rows. The paper's pairwise potentials, which make a
    document's score depend on the other documents, belong to a set-dependent scorer and are not included.

    Args:
        alpha: ψ(y) = α·y or α·(2^y − 1), > 0.
        psi: ``linear`` or ``exponential``.
        coupling: κ > 0, the influence of the scores on the ranking.
        samples: rankings for each query, at least 2.
        seed: seed of the sampled rankings.
        max_documents: longest query allowed; the rankings take 4·samples·m bytes.

    Weights: w_u·w_v multiplies the pair's part of both energies; the normalizer m(m−1)/2 does not change.
    Cost: O(samples·m) time and memory while the loss is bound.
    Consistency: none known for a metric; with all rankings and given y the minimizer is s = ψ(y).
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
        why = f"memory holds {self.samples:,} rankings of every query"
        refuse_long_queries(self, self.max_documents, queries, why, instead="ListNet")
        wanted = psi_of(judgments, self.psi, self, self.alpha)
        return _BoundBoltzRank(wanted, self._rankings(wanted, queries, judgments.weights), judgments)

    def _rankings(self, wanted: FloatArray, queries: Queries, weights: FloatArray) -> Rankings:
        ranks = [self._ranks(wanted[rows], number) for number, rows in enumerate(queries)]
        totals, sizes = queries.sum(weights), queries.sizes
        divisors = np.where(totals > 0, totals, 1.0)
        means = [part @ weights[rows] / divisors[q] for q, (part, rows) in enumerate(zip(ranks, queries, strict=True))]
        return Rankings(
            np.concatenate([part.reshape(-1) for part in ranks]),
            offsets_of([part.size for part in ranks]),
            offsets_of([len(part) for part in ranks]),
            np.concatenate(means),
            2 * self.coupling * totals / np.maximum(sizes * (sizes - 1), 1),  # a single document has no pairs
            weights,
        )

    def _ranks(self, wanted: FloatArray, number: int) -> npt.NDArray[np.int32]:
        """Return the ranks of the documents in each ranking, from 1, as (rankings, m)."""
        m = len(wanted)
        # 13! exceeds any sensible number of samples; larger factorials need not be computed.
        if m < 13 and factorial(m) <= self.samples:
            return _all_ranks(m)
        uniform = np.random.default_rng([self.seed, number]).random((self.samples, m))
        keys = np.log(-np.log1p(-uniform))  # negated Gumbel noise; increasing keys give a random ranking
        keys[::2] -= wanted
        return np.asarray(np.argsort(np.argsort(keys, axis=1), axis=1) + 1, dtype=np.int32)


class Rankings(NamedTuple):
    """Rankings of every query, each as the ranks of the query's documents, from 1.

    The coefficient of document j is c_j(π) = step·w_j·(weighted mean rank of π − π_j).
    """

    ranks: npt.NDArray[np.int32]  # concatenated by query and ranking
    entries: IntArray  # first rank of each query
    starts: IntArray  # first ranking of each query
    means: FloatArray  # weighted mean rank of each ranking
    steps: FloatArray  # step of each query
    weights: FloatArray  # document weights

    def of(self, block: Block) -> slice:
        """Return the rankings of a block's queries, as an index into arrays with one entry per ranking."""
        return slice(int(self.starts[block.first]), int(self.starts[block.last]))

    def slice(self, block: Block) -> tuple[npt.NDArray[Any], ...]:
        """Return the part of a block: ranks, starts, means, steps and weights, as the kernels expect them."""
        ranks = self.ranks[self.entries[block.first] : self.entries[block.last]]
        starts = self.starts[block.first : block.last + 1]
        return ranks, starts, self.means[self.of(block)], self.steps[block.queries], self.weights[block.rows]


@cache
def _all_ranks(m: int) -> npt.NDArray[np.int32]:
    return np.array(list(permutations(range(1, m + 1))), dtype=np.int32)


class _BoundBoltzRank(BoundLoss):
    def __init__(self, wanted: FloatArray, rankings: Rankings, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.rankings = rankings
        whole = self.slice(0, len(self.queries))
        self.target: FloatArray = np.zeros(rankings.starts[-1])
        self.expected: FloatArray = np.zeros(len(wanted))
        # At s = ψ the model's distribution and expected coefficients are the target's.
        nothing, ones = (self.target.copy(), self.expected.copy()), np.ones(len(self.queries))
        filled = self.target, self.expected, np.empty(len(self.queries))
        kernels.boltzmann(wanted, *rankings.slice(whole), *nothing, ones, whole.offsets, *filled)

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        rankings, of_rankings = self.rankings.slice(block), self.rankings.of(block)
        losses, model = np.empty(block.n_queries), np.empty(of_rankings.stop - of_rankings.start)
        target, expected = self.target[of_rankings], self.expected[block.rows]
        kernels.boltzmann(scores, *rankings, target, expected, block.scale, block.offsets, model, grad, losses)
        return losses, _BoltzmannCurvature(
            (*rankings, model, block.scale, block.offsets)
        ) if requested.curvature else None


@dataclass(frozen=True)
class _BoltzmannCurvature(Curvature):
    """The covariance of the coefficients c(π) under P in each query."""

    arguments: tuple[npt.NDArray[Any], ...]
    """Arguments of the kernels: rankings of a block, their P, scale and offsets of the queries."""

    def __matmul__(self, V: FloatArray) -> FloatArray:
        return by_columns(V, kernels.boltzmann_covariance, *self.arguments)

    @override
    def diagonal(self) -> FloatArray:
        variance = np.empty(int(self.arguments[-1][-1]))
        kernels.boltzmann_variance(*self.arguments, variance)
        return variance
