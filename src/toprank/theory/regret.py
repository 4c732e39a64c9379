"""Exact regret: what a ranking loses against the ranking by the expected gains, query by query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.metrics.gains import Discount
from toprank.metrics.ranking import rank_block

__all__ = ["Discounts", "Problem", "QueryValues", "position_weights", "regret", "t_regret"]

Discounts = Discount | str | Callable[[Any], Any] | npt.ArrayLike


@dataclass(frozen=True, eq=False)
class QueryValues:
    """One number for each query, and their mean.

    >>> QueryValues(np.array([1.0, 3.0])).mean
    2.0
    """

    per_query: FloatArray

    @property
    def mean(self) -> float:
        """Mean over the queries."""
        return float(self.per_query.mean())

    def __repr__(self) -> str:
        return f"QueryValues(mean={self.mean:.6g}, {len(self.per_query):,} queries)"


class Problem(NamedTuple):
    """Checked arguments: scores f (n,), Bayes scores f_B (n,) and the queries that hold the n documents."""

    scores: FloatArray
    bayes_scores: FloatArray
    queries: Queries

    @classmethod
    def of(cls, scores: npt.ArrayLike, bayes_scores: npt.ArrayLike, queries: Queries | None) -> Problem:
        """Check both columns; without `queries` all documents belong to one."""
        f, f_B = _column(scores, "scores"), _column(bayes_scores, "bayes_scores")
        if len(f) != len(f_B):
            raise DataError(f"There are {len(f)} scores and {len(f_B)} bayes_scores; every document needs one of each.")
        frame = Queries([0, len(f)]) if queries is None else queries
        if frame.n_documents != len(f):
            raise DataError(f"There are {len(f)} scores for {frame.n_documents} documents; there must be one for each.")
        return cls(f, f_B, frame)

    @property
    def errors(self) -> FloatArray:
        """|f − f_B| (n,)."""
        return np.abs(self.scores - self.bayes_scores)


def regret(
    scores: npt.ArrayLike,
    bayes_scores: npt.ArrayLike,
    queries: Queries | None = None,
    *,
    discounts: Discounts = "log2",
    k: int | None = None,
) -> QueryValues:
    """DCG(r_B, S) − DCG(r_f, S) with DCG(r, S) = Σ_i c_i f_B(document at rank i), for each query S: (3) of Cossock &
    Zhang 2008.

    Never negative. Documents with equal scores f share their ranks: the expectation over their orders, as under the
    `standard` convention. Ties in f_B do not matter.

    Args:
        scores: f, (n,).
        bayes_scores: f_B = E[G(y) | x, S], (n,), known or estimated; negative values are legal.
        queries: which documents belong together; None: one query.
        discounts: c_1 ≥ c_2 ≥ … ≥ 0 as an array (ranks beyond it weigh 0); or a discount F by name, as a `Discount` or
            as a callable on ranks, which stands for c_i = 1/F(i).
        k: cut-off, c_i = 0 for i > k.

    >>> regret([1.0, 2.0], [0.75, 0.25], discounts=[1.0, 0.5]).per_query.tolist()
    [0.25]
    >>> regret([1.0, 1.0], [0.75, 0.25], discounts=[1.0, 0.5]).per_query.tolist()
    [0.125]
    """
    problem = Problem.of(scores, bayes_scores, queries)
    return QueryValues(_lost(problem, position_weights(discounts, k, int(problem.queries.sizes.max()))))


def t_regret(scores: npt.ArrayLike, bayes_scores: npt.ArrayLike, queries: Queries | None = None) -> QueryValues:
    """T(r_B, S) − T(r_f, S) with T(r, S) = 2/(m(m−1)) Σ_{i<i'} (f_B at rank i − f_B at rank i'): (5) of Cossock &
    Zhang 2008.

    A query of one document has regret 0: there is no worse order. Arguments as in `regret`.

    >>> t_regret([1.0, 2.0], [0.75, 0.25]).per_query.tolist()
    [1.0]
    """
    problem = Problem.of(scores, bayes_scores, queries)
    m = problem.queries.sizes.astype(np.float64)
    ranks = np.arange(1, problem.queries.sizes.max() + 1, dtype=np.float64)
    # Σ_{i<i'} (a_i − a_i') = Σ_i (m + 1 − 2i) a_i, so only −2 Σ_i i·a_i depends on the order.
    return QueryValues(4 * _lost(problem, -ranks) / np.maximum(m * (m - 1), 1))


def position_weights(discounts: Discounts, k: int | None, longest: int) -> FloatArray:
    """c_1 … c_k' without trailing zeros, k' ≤ min(k, longest); refused unless 0 ≤ c, not rising, and c_1 > 0."""
    if k is not None and (not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1):
        raise DataError(f"The cut-off k must be a whole number of at least 1, not {k}.")
    depth = longest if k is None else min(int(k), longest)
    if isinstance(discounts, Discount | str) or callable(discounts):
        weights = Discount.of(discounts).weights(depth)
    else:
        weights = _column(discounts, "discounts")[:depth]
    if (weights < 0).any() or (np.diff(weights) > 0).any() or weights[0] <= 0:
        raise DataError(
            "The discounts c_1, c_2 … must be positive at the first rank, never rise and never be negative. They "
            "multiply the gains; give a table of divisors F as Discount.of(table)."
        )
    return np.ascontiguousarray(weights[: np.count_nonzero(weights)])


def _lost(problem: Problem, weights: FloatArray) -> FloatArray:
    """Σ_i weights_i f_B under the order of f_B, minus the same under the order of f, (number of queries,)."""
    queries = problem.queries
    # A shift of f_B changes no regret; gains that start at 0 keep the difference of the two sums accurate.
    gains = problem.bayes_scores - queries.spread(queries.min(problem.bayes_scores))
    documents = np.arange(len(gains), dtype=np.int32)
    reached = []
    for by in (problem.bayes_scores, problem.scores):
        ranked = rank_block(by, queries.offsets, (0, len(queries)), len(weights), keep_ties=True)
        out = np.empty(len(queries))
        kernels.weighted_sum(*ranked, documents, gains, weights, queries.sizes, out)
        reached.append(out)
    return np.maximum(reached[0] - reached[1], 0.0)


def _column(given: npt.ArrayLike, name: str) -> FloatArray:
    """A non-empty list of finite numbers."""
    try:
        values = np.ascontiguousarray(given, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise DataError(f"{name} must be a list of numbers: {problem}.") from None
    if np.ndim(given) != 1 or len(values) == 0:
        raise DataError(f"{name} must be a non-empty list with one dimension, not of shape {np.shape(given)}.")
    if not np.isfinite(values).all():
        place = int(np.argmin(np.isfinite(values)))
        raise DataError(f"{name} must be finite; number {place} (from 0) is {values[place]}.")
    return values
