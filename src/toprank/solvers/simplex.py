"""A small quadratic programme: ``min ½ αᵀGα - bᵀα`` over ``α ≥ 0, Σα = 1``, by a primal active-set method.

G is a Gram matrix of cuts, as a rule singular (more cuts than weights) and with near copies. Adding a constant σ to
all of G changes nothing on the simplex and makes the support's block positive definite as long as its cuts are
affinely independent. That block is kept factored, ``G_SS + σ = LLᵀ``:

- where the minimum over the support's plane lies inside, the cut with the lowest derivative enters;
- where it lies outside, we go as far as allowed, and the cut that reaches 0 leaves;
- a cut that depends on the support cannot enter; but then the objective is linear along the dependence, and following
  it downhill drives another cut out, whose place it takes.

Steps are computed from the current gradient, so rounding in the factor is corrected by the next step and never piles
up. The result is feasible whatever happens, and any feasible α certifies a lower bound.
"""

from __future__ import annotations

import numpy as np

from toprank.compute import FloatArray, IntArray, kernel

__all__ = ["minimise_on_simplex"]

DEPENDENT = 1e-12  # a pivot below this part of its diagonal entry: the cut depends on the support
REFINEMENTS = 3


@kernel
def minimise_on_simplex(G: FloatArray, b: FloatArray, alpha: FloatArray, accuracy: float) -> int:
    """Improve the feasible `alpha` in place until no derivative lies more than `accuracy` below their mean.

    Args:
        G: (n, n), symmetric positive semi-definite.
        b: (n,).
        alpha: (n,), feasible; its positive entries are the support to start from.
        accuracy: on the derivatives; what it leaves of the optimal value is at most as much.

    Returns:
        The number of steps taken.
    """
    n = len(b)
    sigma = 0.0
    for i in range(n):
        sigma += G[i, i] / n
    if sigma == 0.0:
        sigma = 1.0
    factor = np.empty((n, n))
    support = np.empty(n, np.int64)
    size = 0
    for j in range(n):
        if alpha[j] > 0.0:
            size = _enter(G, b, sigma, factor, support, size, alpha, j)
    grad = np.empty(n)
    refined, entered = 0, -1
    limit = 1000 + 50 * n  # degenerate steps could cycle; whatever we have then is feasible
    _gradient(G, b, support, size, alpha, grad)
    for step in range(limit):
        blocked = _towards_minimum(factor, support, size, alpha, grad)
        _gradient(G, b, support, size, alpha, grad)
        if blocked >= 0:
            left = support[blocked]
            size = _leave(factor, support, size, blocked)
            if left == entered:
                return step  # out again before it carried any weight: its derivative was low by rounding only
            continue
        lowest, mean = 0, 0.0
        for i in range(n):
            mean += alpha[i] * grad[i]
            if grad[i] < grad[lowest]:
                lowest = i
        if grad[lowest] >= mean - accuracy:
            return step
        if _position(support, size, lowest) >= 0:
            refined, entered = refined + 1, -1  # the support's own derivatives are not level yet: rounding
            if refined > REFINEMENTS:
                return step
        else:
            refined, entered = 0, lowest
            size = _enter(G, b, sigma, factor, support, size, alpha, lowest)
    return limit


@kernel
def _gradient(G: FloatArray, b: FloatArray, support: IntArray, size: int, alpha: FloatArray, grad: FloatArray) -> None:
    """Gα - b, by rows of G: they are contiguous, its columns are not."""
    n = len(b)
    for i in range(n):
        grad[i] = -b[i]
    for t in range(size):
        row, share = G[support[t]], alpha[support[t]]
        for i in range(n):
            grad[i] += share * row[i]


@kernel
def _normalise(alpha: FloatArray) -> None:
    total = 0.0
    for i in range(len(alpha)):
        total += alpha[i]
    for i in range(len(alpha)):
        alpha[i] /= total


@kernel
def _position(support: IntArray, size: int, j: int) -> int:
    for t in range(size):
        if support[t] == j:
            return t
    return -1


@kernel
def _towards_minimum(factor: FloatArray, support: IntArray, size: int, alpha: FloatArray, grad: FloatArray) -> int:
    """Newton's step on the support's plane, as far as α ≥ 0 allows; the position that reached 0, or -1."""
    x, ones = np.empty(size), np.empty(size)
    for i in range(size):
        x[i], ones[i] = grad[support[i]], 1.0
    _forward(factor, size, x)
    _backward(factor, size, x)
    _forward(factor, size, ones)
    _backward(factor, size, ones)
    above, below = 0.0, 0.0
    for i in range(size):
        above += x[i]
        below += ones[i]
    level = above / below
    length, blocked = 1.0, -1
    for i in range(size):
        x[i] = level * ones[i] - x[i]
        if x[i] < 0.0 and alpha[support[i]] + length * x[i] <= 0.0:
            length, blocked = alpha[support[i]] / -x[i], i
    for i in range(size):
        alpha[support[i]] = max(0.0, alpha[support[i]] + length * x[i])
    if blocked >= 0:
        alpha[support[blocked]] = 0.0
    _normalise(alpha)
    return blocked


@kernel
def _enter(
    G: FloatArray,
    b: FloatArray,
    sigma: float,
    factor: FloatArray,
    support: IntArray,
    size: int,
    alpha: FloatArray,
    j: int,
) -> int:
    """Take cut j into the support, at the expense of others while it depends on them; the new size."""
    while not _append(G, sigma, factor, support, size, j):
        blocked = _along_dependence(b, factor, support, size, alpha, j)
        if blocked < 0:
            return size
        size = _leave(factor, support, size, blocked)
    return size + 1


@kernel
def _append(G: FloatArray, sigma: float, factor: FloatArray, support: IntArray, size: int, j: int) -> bool:
    """Row `size` of the factor for cut j; False where its pivot vanishes (the rest of the row is then complete)."""
    row = factor[size]
    for i in range(size):
        row[i] = G[support[i], j] + sigma
    _forward(factor, size, row)
    pivot = G[j, j] + sigma
    for i in range(size):
        pivot -= row[i] * row[i]
    support[size] = j
    row[size] = np.sqrt(max(pivot, 0.0))
    independent: bool = pivot > DEPENDENT * (G[j, j] + sigma)
    return independent


@kernel
def _along_dependence(
    b: FloatArray, factor: FloatArray, support: IntArray, size: int, alpha: FloatArray, j: int
) -> int:
    """Go downhill along δ = (d, 1) with (G + σ) δ = 0 until a weight is 0: its position, or -1 if that is j's own.

    Σδ = 0, and since Gδ = 0 the objective is linear along δ, with slope -bᵀδ.
    """
    d = np.empty(size)
    for i in range(size):
        d[i] = -factor[size, i]
    _backward(factor, size, d)
    slope = -b[j]
    for i in range(size):
        slope -= b[support[i]] * d[i]
    if slope <= 0.0:
        sign, length = 1.0, np.inf
    else:
        sign, length = -1.0, alpha[j]
    blocked = -1
    for i in range(size):
        if sign * d[i] < 0.0 and alpha[support[i]] < -sign * d[i] * length:
            length, blocked = alpha[support[i]] / (-sign * d[i]), i
    if np.isfinite(length):  # it is, unless rounding hides that some δ_i must be negative; then j stays out
        for i in range(size):
            alpha[support[i]] = max(0.0, alpha[support[i]] + sign * length * d[i])
        alpha[j] += sign * length
    if blocked >= 0:
        alpha[support[blocked]] = 0.0
    else:
        alpha[j] = 0.0
    _normalise(alpha)
    return blocked


@kernel
def _leave(factor: FloatArray, support: IntArray, size: int, position: int) -> int:
    """Take a row out of the factor; rotations bring it back to triangular form. The new size."""
    for i in range(position, size - 1):
        support[i] = support[i + 1]
        for t in range(i + 2):
            factor[i, t] = factor[i + 1, t]
    for i in range(position, size - 1):
        r = np.hypot(factor[i, i], factor[i, i + 1])
        c, s = factor[i, i] / r, factor[i, i + 1] / r
        for t in range(i, size - 1):
            left, right = factor[t, i], factor[t, i + 1]
            factor[t, i] = c * left + s * right
            factor[t, i + 1] = c * right - s * left
    return size - 1


@kernel
def _forward(factor: FloatArray, size: int, x: FloatArray) -> None:
    """L⁻¹ x, in place."""
    for i in range(size):
        total = x[i]
        for t in range(i):
            total -= factor[i, t] * x[t]
        x[i] = total / factor[i, i]


@kernel
def _backward(factor: FloatArray, size: int, x: FloatArray) -> None:
    """L⁻ᵀ x, in place."""
    for i in range(size - 1, -1, -1):
        x[i] /= factor[i, i]
        for t in range(i):
            x[t] -= factor[i, t] * x[i]
