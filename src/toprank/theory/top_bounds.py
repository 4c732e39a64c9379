"""Theorem 4 of Cossock & Zhang 2008 and bound (11), which bound the regret by errors at the top of the list."""

from __future__ import annotations

import sys
from typing import NamedTuple, Required, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.metrics.conventions import Discount
from toprank.metrics.sorting import ranking
from toprank.theory.bounds import (
    Discounts,
    PerQuery,
    Problem,
    conjugate,
    doubled_norms,
    joint_norms,
    norms,
    position_weights,
)


class Focus(TypedDict, total=False):
    """Important documents in Theorem 4, and its constants; see `cossock_zhang_theorem4`."""

    K: Required[npt.ArrayLike]
    gamma: Required[float]
    u: Required[float]
    discounts: Discounts
    k: int | None


def cossock_zhang_theorem4(
    scores: npt.ArrayLike,
    bayes_scores: npt.ArrayLike,
    queries: Queries | None = None,
    *,
    p: float = 2.0,
    q: float | None = None,
    **focus: Unpack[Focus],
) -> PerQuery:
    """Theorem 4: only the documents of K need accurate scores, the others must merely not be overestimated.

    regret ≤ C_p(γ, u) (Σ_{j ∈ K} |f(x_j) − f_B(x_j)|^q + u sup_{j ∉ K} (f(x_j) − f'_B(x_j))₊^q)^{1/q}, where f'_B = f_B
    + γ (M − f_B)₊ and M is the k-th largest f_B of the query (its smallest if m < k). k is the number of ranks with c_i
    > 0. The supremum over the empty set is 0.

    Args:
        scores: f, (n,).
        bayes_scores: f_B, (n,).
        queries: the queries of the documents. Default: all documents belong to one query.
        K: the important documents, as a mask (n,) or as document indices; it must contain the k best of every query by
            f_B (of documents tied at rank k, enough to make up k).
        gamma: γ in [0, 1).
        u: weight of the supremum, u > 0.
        discounts: as in `regret`.
        k: cut-off. Default: no cut-off.
        p: exponent of the discounts, 1 ≤ p ≤ ∞. Default 2.
        q: the conjugate exponent. Default: computed from `p`.

    >>> bound = cossock_zhang_theorem4([0.9, 0.1, 0.0], [1.0, 0.0, 0.0], K=[0], gamma=0.5, u=1.0, k=1)
    >>> round(bound.mean, 12) == round(2 * 3**0.5 * 0.1, 12)
    True
    """
    p, q = conjugate(p, q)
    top = _top(Problem.from_scores(scores, bayes_scores, queries), **focus)
    f_B = top.problem.bayes_scores
    lifted = f_B + _gamma(top.gamma) * np.maximum(top.problem.queries.broadcast(top.M) - f_B, 0)
    return top.bound(lifted, p, q)


def cossock_zhang_equation11(
    scores: npt.ArrayLike,
    bayes_scores: npt.ArrayLike,
    queries: Queries | None = None,
    **focus: Unpack[Focus],
) -> PerQuery:
    """Bound (11): Theorem 4 for p = q = 2 with the threshold γM instead of f'_B; needs f_B ≥ 0.

    regret ≤ C_2(γ, u) (Σ_{j ∈ K} (f(x_j) − f_B(x_j))² + u sup_{j ∉ K} (f(x_j) − γM)₊²)^{1/2}. It is never below Theorem
    4, but outside K it needs only a threshold; the importance-weighted loss (13) is based on it. Arguments as in
    `cossock_zhang_theorem4`.
    """
    top = _top(Problem.from_scores(scores, bayes_scores, queries), **focus)
    f_B = top.problem.bayes_scores
    if (f_B < 0).any():
        row = int(np.argmax(f_B < 0))
        raise DataError(
            f"Bound (11) needs bayes_scores of at least 0, but document {row} has {f_B[row]:g}; use "
            "cossock_zhang_theorem4, which accepts any."
        )
    return top.bound(top.problem.queries.broadcast(_gamma(top.gamma) * top.M), 2.0, 2.0)


def cossock_zhang_theorem4_constant(
    gamma: float, u: float, *, discounts: Discounts = "log2", k: int | None = None, p: float = 2.0
) -> float:
    """Return C_p(γ, u) = (2 Σ_{i ≤ k} c_i^p + u^{−p/q} (Σ_{i ≤ k} c_i)^p)^{1/p} / (1 − γ) of Theorem 4.

    It applies to a query with at least k documents; a shorter one has fewer terms, hence a smaller constant.

    >>> round(cossock_zhang_theorem4_constant(0.5, 0.5, discounts=[1.0]), 12)
    4.0
    """
    if k is None and (isinstance(discounts, Discount | str) or callable(discounts)):
        raise DataError("C(γ, u) needs a cut-off: pass k, or the discounts c_1 … c_k as a list.")
    c = position_weights(discounts, k, longest=sys.maxsize)
    return float(_constants(c, np.array([len(c)]), gamma, u, *conjugate(p))[0])


class _Top(NamedTuple):
    """Validated arguments of Theorem 4: K as a mask (n,), c_1 … c_k > 0, and M, the k-th largest f_B of each query."""

    problem: Problem
    members: npt.NDArray[np.bool_]
    c: FloatArray
    M: FloatArray
    gamma: float
    u: float

    def bound(self, ceiling: FloatArray, p: float, q: float) -> PerQuery:
        """Return C_p(γ, u) (Σ_{j ∈ K} |f − f_B|^q + u sup_{j ∉ K} (f − ceiling)₊^q)^{1/q}."""
        queries = self.problem.queries
        constants = _constants(self.c, queries.sizes, self.gamma, self.u, p, q)
        inside = norms(np.where(self.members, self.problem.errors, 0.0), queries, q)
        overrated = queries.max(np.where(self.members, 0.0, np.maximum(self.problem.scores - ceiling, 0)))
        return PerQuery(constants * joint_norms(inside, self.u ** (1 / q) * overrated, q))


def _top(
    problem: Problem,
    *,
    K: npt.ArrayLike,
    gamma: float,
    u: float,
    discounts: Discounts = "log2",
    k: int | None = None,
) -> _Top:
    frame, f_B = problem.queries, problem.bayes_scores
    c = position_weights(discounts, k, int(frame.sizes.max()))
    reach = np.minimum(frame.sizes, len(c))
    best_first = ranking(f_B, frame).order
    top = _Top(problem, _mask(K, len(f_B)), c, f_B[best_first[frame.offsets[:-1] + reach - 1]], gamma, u)
    _check_holds_best(top, reach)
    return top


def _mask(K: npt.ArrayLike, n: int) -> npt.NDArray[np.bool_]:
    """Return K as a mask over the documents, from a mask or from document indices."""
    members = np.asarray(K)
    if members.dtype == np.bool_ and members.shape == (n,):
        return members
    whole = members.ndim == 1 and len(members) > 0 and np.issubdtype(members.dtype, np.integer)
    if not whole or members.min() < 0 or members.max() >= n:
        raise DataError(f"K must be a mask of {n} truth values, or a list of document indices from 0 to {n - 1}.")
    mask = np.zeros(n, dtype=np.bool_)
    mask[members] = True
    return mask


def _check_holds_best(top: _Top, reach: IntArray) -> None:
    """Check that K contains every document better than the k-th, and enough ties to make up k."""
    queries, f_B, M = top.problem.queries, top.problem.bayes_scores, top.problem.queries.broadcast(top.M)
    held = queries.sum((top.members & (f_B >= M)).astype(np.int64))
    missing = queries.sum((~top.members & (f_B > M)).astype(np.int64))
    short = (held < reach) | (missing > 0)
    if short.any():
        query = int(np.argmax(short))
        raise DataError(
            f"K must contain the {reach[query]} best documents of every query by bayes_scores, but in query number "
            f"{query} (from 0) it does not; add them, or lower the cut-off k."
        )


def _constants(c: FloatArray, sizes: IntArray, gamma: float, u: float, p: float, q: float) -> FloatArray:
    """Return C_p(γ, u) for each query; Σ c and Σ c^p end with the query."""
    check_number("u", u, above=0)
    sums = np.cumsum(c)[np.minimum(sizes, len(c)) - 1]
    return joint_norms(doubled_norms(c, sizes, p), u ** (-1 / q) * sums, p) / (1 - _gamma(gamma))


def _gamma(gamma: float) -> float:
    check_number("gamma", gamma, least=0, below=1)
    return float(gamma)
