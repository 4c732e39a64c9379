"""Bounds of Cossock & Zhang 2008 that need nothing but f and f_B (Theorems 2 and 3), and the generalisation factor of
Theorem 6.

Theorems 2, 3, 4 and (11) hold for every query, every f and every f_B. Theorem 6 holds on the mean over training draws.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.theory.norms import conjugate, doubled_norms, norms
from toprank.theory.regret import Discounts, Problem, QueryValues, position_weights

__all__ = ["theorem2_bound", "theorem3_bound", "theorem6_factor"]


def theorem2_bound(
    scores: npt.ArrayLike,
    bayes_scores: npt.ArrayLike,
    queries: Queries | None = None,
    *,
    discounts: Discounts = "log2",
    k: int | None = None,
    p: float = 2.0,
    q: float | None = None,
) -> QueryValues:
    """Theorem 2: regret ≤ (2 Σ_i c_i^p)^{1/p} (Σ_j |f(x_j) − f_B(x_j)|^q)^{1/q}, with 1/p + 1/q = 1.

    At p = 1 this reads 2 Σ c_i · max |f − f_B|, at p = ∞ it reads c_1 Σ |f − f_B|. Arguments as in `regret`; `q` need
    not be given.

    >>> theorem2_bound([0.5, 0.5], [1.0, 0.0], k=1, p=1).per_query.tolist()
    [1.0]
    """
    p, q = conjugate(p, q)
    problem = Problem.of(scores, bayes_scores, queries)
    c = position_weights(discounts, k, int(problem.queries.sizes.max()))
    return QueryValues(doubled_norms(c, problem.queries.sizes, p) * norms(problem.errors, problem.queries, q))


def theorem3_bound(scores: npt.ArrayLike, bayes_scores: npt.ArrayLike, queries: Queries | None = None) -> QueryValues:
    """Theorem 3: the regret in the T criterion (`t_regret`) is at most (4/√m) (Σ_j (f(x_j) − f_B(x_j))²)^{1/2}.

    >>> round(theorem3_bound([0.5, 0.5], [1.0, 0.0]).mean, 12)
    2.0
    """
    problem = Problem.of(scores, bayes_scores, queries)
    return QueryValues(4 / np.sqrt(problem.queries.sizes) * norms(problem.errors, problem.queries, 2.0))


def theorem6_factor(W: float, B: float, penalty: float, n: int, published: bool = False) -> float:
    """Theorem 6: E Q(f_β̂) ≤ (1 + W B²/(λ n))² · inf_β [Q(f_β) + λ βᵀβ], the mean over n independent training queries.

    β̂ minimises (1/n) Σ_i L(β, S_i) + λ βᵀβ with the importance-weighted loss L of (13), and Q = E L.

    Args:
        W: sup over queries of Σ_j w_j + u · max_j w'_j.
        B: sup of ‖x‖₂ (of the feature map, where there is one).
        penalty: λ, which multiplies βᵀβ itself: half of toprank's `l2`.
        n: number of training queries.
        published: the factor as printed, (1 + W B²/(√2 λ n))². Its proof fails: the squared gradient of a square
            carries 4 where the appendix writes 2. No independent draws are known that exceed it; see docs/theory.md.

    >>> theorem6_factor(W=2.0, B=1.0, penalty=0.5, n=4)
    4.0
    """
    for name, value in (("W", W), ("B", B)):
        if not 0 <= value < np.inf:
            raise DataError(f"{name} must be finite and not negative, not {value}.")
    if not 0 < penalty < np.inf:
        raise DataError(f"The penalty λ must be positive and finite, not {penalty}: without it there is no bound.")
    if n < 1:
        raise DataError(f"The number of training queries must be at least 1, not {n}.")
    return float((1 + W * B**2 / ((np.sqrt(2) if published else 1.0) * penalty * n)) ** 2)
