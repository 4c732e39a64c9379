"""Exact regret, its bounds by Cossock & Zhang 2008, and the generalization factor of Theorem 6.

The regret is the loss in DCG of a ranking compared with the ranking by expected gains. Theorems 2 and 3 need only f and
f_B; Theorem 4, its constant C(γ, u) and (11) focus on the top. Theorems 2, 3, 4 and (11) hold for every query, every f
and every f_B; Theorem 6 holds for the mean over training samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray, numbers
from toprank.data.arguments import check_number, check_whole
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.metrics.conventions import Discount
from toprank.metrics.sorting import rank_block

Discounts = Discount | str | Callable[[Any], Any] | npt.ArrayLike


@dataclass(frozen=True, eq=False)
class PerQuery:
    """One number for each query, and their mean.

    >>> PerQuery(np.array([1.0, 3.0])).mean
    2.0
    """

    per_query: FloatArray

    @property
    def mean(self) -> float:
        """Mean over the queries."""
        return float(self.per_query.mean())

    def __repr__(self) -> str:
        return f"PerQuery(mean={self.mean:.6g}, {len(self.per_query):,} queries)"


class Problem(NamedTuple):
    """Validated arguments: scores f (n,), Bayes scores f_B (n,) and the queries of the n documents."""

    scores: FloatArray
    bayes_scores: FloatArray
    queries: Queries

    @classmethod
    def from_scores(cls, scores: npt.ArrayLike, bayes_scores: npt.ArrayLike, queries: Queries | None) -> Problem:
        """Validate both columns; without `queries`, all documents belong to one query."""
        f, f_B = _column(scores, "scores"), _column(bayes_scores, "bayes_scores")
        if len(f) != len(f_B):
            raise DataError(
                f"There are {len(f)} scores and {len(f_B)} bayes_scores; there must be one of each for every document."
            )
        frame = Queries([0, len(f)]) if queries is None else queries
        if frame.n_documents != len(f):
            raise DataError(f"There are {len(f)} scores for {frame.n_documents} documents; there must be one for each.")
        return cls(f, f_B, frame)

    @property
    def errors(self) -> FloatArray:
        """Absolute errors |f − f_B| (n,)."""
        return np.abs(self.scores - self.bayes_scores)


def regret(
    scores: npt.ArrayLike,
    bayes_scores: npt.ArrayLike,
    queries: Queries | None = None,
    *,
    discounts: Discounts = "log2",
    k: int | None = None,
) -> PerQuery:
    """Return DCG(r_B, S) − DCG(r_f, S) for each query S: (3) of Cossock & Zhang 2008.

    DCG(r, S) = Σ_i c_i f_B(document at rank i). The regret is never negative. Documents with equal scores f share their
    ranks: the regret is the expectation over their orders, as under the `standard` convention. Ties in f_B do not
    matter.

    Args:
        scores: f, (n,).
        bayes_scores: f_B = E[G(y) | x, S], (n,), known or estimated; negative values are allowed.
        queries: the queries of the documents. Default: all documents belong to one query.
        discounts: c_1 ≥ c_2 ≥ … ≥ 0 as an array (later ranks have weight 0); or a discount F by name, as a `Discount`
            or as a callable on ranks, for c_i = 1/F(i). Default: log2.
        k: cut-off; c_i = 0 for i > k. Default: no cut-off.

    >>> regret([1.0, 2.0], [0.75, 0.25], discounts=[1.0, 0.5]).per_query.tolist()
    [0.25]
    >>> regret([1.0, 1.0], [0.75, 0.25], discounts=[1.0, 0.5]).per_query.tolist()
    [0.125]
    """
    problem = Problem.from_scores(scores, bayes_scores, queries)
    return PerQuery(_lost(problem, position_weights(discounts, k, int(problem.queries.sizes.max()))))


def t_regret(scores: npt.ArrayLike, bayes_scores: npt.ArrayLike, queries: Queries | None = None) -> PerQuery:
    """Return T(r_B, S) − T(r_f, S) for each query S: (5) of Cossock & Zhang 2008.

    T(r, S) = 2/(m(m−1)) Σ_{i<i'} (f_B at rank i − f_B at rank i'). The regret of a query with one document is 0.
    Arguments as in `regret`.

    >>> t_regret([1.0, 2.0], [0.75, 0.25]).per_query.tolist()
    [1.0]
    """
    problem = Problem.from_scores(scores, bayes_scores, queries)
    m = problem.queries.sizes.astype(np.float64)
    ranks = np.arange(1, problem.queries.sizes.max() + 1, dtype=np.float64)
    # Σ_{i<i'} (a_i − a_i') = Σ_i (m + 1 − 2i) a_i, so only −2 Σ_i i·a_i depends on the order.
    return PerQuery(4 * _lost(problem, -ranks) / np.maximum(m * (m - 1), 1))


def position_weights(discounts: Discounts, k: int | None, longest: int) -> FloatArray:
    """Return c_1 … c_k' without trailing zeros, k' ≤ min(k, longest), after checking that they are valid discounts."""
    if k is not None:
        check_whole("The cut-off k", k, 1)
    depth = longest if k is None else min(int(k), longest)
    if isinstance(discounts, Discount | str) or callable(discounts):
        weights = Discount.from_spec(discounts).weights(depth)
    else:
        weights = _column(discounts, "discounts")[:depth]
    if (weights < 0).any() or (np.diff(weights) > 0).any() or weights[0] <= 0:
        raise DataError(
            "The discounts c_1, c_2 … must be positive at the first rank, non-increasing and non-negative. They "
            "multiply the gains; to use a table of divisors F, pass Discount.from_spec(table)."
        )
    return np.ascontiguousarray(weights[: np.count_nonzero(weights)])


def _lost(problem: Problem, weights: FloatArray) -> FloatArray:
    """Return Σ_i weights_i f_B under the order of f_B, minus the same under the order of f, (number of queries,)."""
    queries = problem.queries
    # A shift of f_B changes no regret; gains that start at 0 keep the difference of the two sums accurate.
    gains = problem.bayes_scores - queries.broadcast(queries.min(problem.bayes_scores))
    documents = np.arange(len(gains), dtype=np.int32)
    best, reached = np.empty((2, len(queries)))
    for by, out in ((problem.bayes_scores, best), (problem.scores, reached)):
        ranked = rank_block(by, queries.offsets, (0, len(queries)), len(weights), keep_ties=True)
        kernels.weighted_sum(*ranked, documents, gains, weights, queries.sizes, out)
    return np.maximum(best - reached, 0.0)


def _column(values: npt.ArrayLike, name: str) -> FloatArray:
    """Return a non-empty array of finite numbers."""
    array = numbers(values, name)
    if array.ndim != 1 or len(array) == 0:
        raise DataError(f"{name} must be a non-empty one-dimensional list, not of shape {array.shape}.")
    if not np.isfinite(array).all():
        place = int(np.argmin(np.isfinite(array)))
        raise DataError(f"{name} must be finite; number {place} (from 0) is {array[place]}.")
    return np.ascontiguousarray(array, dtype=np.float64)


def conjugate(p: float, q: float | None = None) -> tuple[float, float]:
    """Return (p, q) with 1/p + 1/q = 1."""
    if not p >= 1:
        raise DataError(f"The exponent p must be at least 1 (math.inf is allowed), not {p}.")
    partner = np.inf if p == 1 else 1.0 if p == np.inf else p / (p - 1)
    if q is not None and not np.isclose(1 / q if q else np.inf, 1 / partner, rtol=0, atol=1e-12):
        raise DataError(f"The exponents must satisfy 1/p + 1/q = 1; for p = {p:g}, q is {partner:g}, not {q:g}.")
    return float(p), float(partner)


def doubled_norms(c: FloatArray, sizes: IntArray, p: float) -> FloatArray:
    """Return (2 Σ_{i ≤ m} c_i^p)^{1/p} for each query, scaled by c_1 to prevent over- and underflow for large p."""
    if p == np.inf:
        return np.full(len(sizes), c[0])
    totals = np.cumsum((c / c[0]) ** p)[np.minimum(sizes, len(c)) - 1]
    return np.asarray(c[0] * (2 * totals) ** (1 / p))


def norms(errors: FloatArray, queries: Queries, q: float) -> FloatArray:
    """Return (Σ_j errors_j^q)^{1/q} for each query, scaled by the largest error."""
    largest: FloatArray = queries.max(errors)
    if q == np.inf:
        return largest
    scaled = errors / queries.broadcast(np.where(largest > 0, largest, 1.0))
    return np.asarray(largest * queries.sum(scaled**q) ** (1 / q))


def joint_norms(a: FloatArray, b: FloatArray, exponent: float) -> FloatArray:
    """Return (a^e + b^e)^{1/e}, elementwise."""
    largest = np.maximum(a, b)
    if exponent == np.inf:
        return largest
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(largest * ((a / unit) ** exponent + (b / unit) ** exponent) ** (1 / exponent))


def cossock_zhang_theorem2(
    scores: npt.ArrayLike,
    bayes_scores: npt.ArrayLike,
    queries: Queries | None = None,
    *,
    discounts: Discounts = "log2",
    k: int | None = None,
    p: float = 2.0,
    q: float | None = None,
) -> PerQuery:
    """Theorem 2: regret ≤ (2 Σ_i c_i^p)^{1/p} (Σ_j |f(x_j) − f_B(x_j)|^q)^{1/q}, with 1/p + 1/q = 1.

    For p = 1 this is 2 Σ c_i · max |f − f_B|, for p = ∞ it is c_1 Σ |f − f_B|. Arguments as in `regret`; `q` is
    optional.

    >>> cossock_zhang_theorem2([0.5, 0.5], [1.0, 0.0], k=1, p=1).per_query.tolist()
    [1.0]
    """
    p, q = conjugate(p, q)
    problem = Problem.from_scores(scores, bayes_scores, queries)
    c = position_weights(discounts, k, int(problem.queries.sizes.max()))
    return PerQuery(doubled_norms(c, problem.queries.sizes, p) * norms(problem.errors, problem.queries, q))


def cossock_zhang_theorem3(
    scores: npt.ArrayLike, bayes_scores: npt.ArrayLike, queries: Queries | None = None
) -> PerQuery:
    """Theorem 3: the regret in the T criterion (`t_regret`) is at most (4/√m) (Σ_j (f(x_j) − f_B(x_j))²)^{1/2}.

    >>> round(cossock_zhang_theorem3([0.5, 0.5], [1.0, 0.0]).mean, 12)
    2.0
    """
    problem = Problem.from_scores(scores, bayes_scores, queries)
    return PerQuery(4 / np.sqrt(problem.queries.sizes) * norms(problem.errors, problem.queries, 2.0))


def cossock_zhang_theorem6_factor(W: float, B: float, penalty: float, n: int, published: bool = False) -> float:
    """Theorem 6: E Q(f_β̂) ≤ (1 + W B²/(λ n))² · inf_β [Q(f_β) + λ βᵀβ], the mean over n independent training queries.

    β̂ minimizes (1/n) Σ_i L(β, S_i) + λ βᵀβ with the importance-weighted loss L of (13), and Q = E L.

    Args:
        W: sup over queries of Σ_j w_j + u · max_j w'_j.
        B: sup of ‖x‖₂ (of the feature map, if there is one).
        penalty: λ, the factor of βᵀβ: half of toprank's `l2`.
        n: number of training queries.
        published: if True, return the factor as printed, (1 + W B²/(√2 λ n))². Its proof is incorrect: the squared
            gradient of a square has the factor 4 where the appendix writes 2. No independent samples are known that
            exceed it. Default False.

    >>> cossock_zhang_theorem6_factor(W=2.0, B=1.0, penalty=0.5, n=4)
    4.0
    """
    check_number("W", W, least=0)
    check_number("B", B, least=0)
    check_number("The penalty λ, without which there is no bound,", penalty, above=0)
    check_whole("The number n of training queries", n, 1)
    return float((1 + W * B**2 / ((np.sqrt(2) if published else 1.0) * penalty * n)) ** 2)
