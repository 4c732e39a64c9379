"""The inner problem of proximal Newton: a quadratic model plus an L1 penalty, by coordinate descent."""

from __future__ import annotations

import numpy as np

from toprank.compute import FloatArray, kernel
from toprank.solvers.newton import levenberg_step

__all__ = ["minimise_model"]

ROUNDS = 20
SWEEPS = 25


def minimise_model(
    hessian: FloatArray, grad: FloatArray, weights: FloatArray, l1: FloatArray, accuracy: float
) -> FloatArray:
    """``argmin_z grad·(z - w) + ½ (z - w)ᵀH(z - w) + Σ_i l1_i |z_i|``, until its shortest subgradient is `accuracy`.

    Coordinate descent soon knows which weights are zero, but creeps where features are correlated; so after a few
    sweeps the weights that are not zero are solved for together, which is exact once their signs are right.
    """
    z = weights.copy()
    slope = grad.copy()
    for _ in range(ROUNDS):
        left = _sweep(hessian, l1, z, slope, accuracy, SWEEPS)
        if left <= accuracy:
            break
        _solve_support(hessian, l1, z, slope)
    return z


def _solve_support(hessian: FloatArray, l1: FloatArray, z: FloatArray, slope: FloatArray) -> None:
    """Move the non-zero weights to the minimum for their signs; one that reaches zero on the way stays there."""
    crossing = True
    while crossing and z.any():
        support = np.flatnonzero(z)
        values = z[support]
        block = hessian[np.ix_(support, support)]
        step, _ = levenberg_step(block, slope[support] + l1[support] * np.sign(values))
        turned = np.flatnonzero((l1[support] > 0) & ((values + step) * values < 0))
        crossing = len(turned) > 0
        parts = -values[turned] / step[turned]
        part = float(parts.min()) if crossing else 1.0
        moved = values + part * step
        moved[turned[parts == part]] = 0.0
        slope += hessian[:, support] @ (moved - values)
        z[support] = moved


@kernel
def _sweep(
    hessian: FloatArray, l1: FloatArray, z: FloatArray, slope: FloatArray, accuracy: float, sweeps: int
) -> float:
    """Coordinate descent on z in place, `slope` kept at the smooth part's gradient; the shortest subgradient's norm."""
    d = len(z)
    left = np.inf
    for _ in range(sweeps):
        for i in range(d):
            bend = hessian[i, i]
            free = z[i] - slope[i] / bend
            threshold = l1[i] / bend
            if free > threshold:
                target = free - threshold
            elif free < -threshold:
                target = free + threshold
            else:
                target = 0.0
            change = target - z[i]
            if change != 0.0:
                z[i] = target
                for t in range(d):
                    slope[t] += change * hessian[i, t]
        left = 0.0
        for i in range(d):
            if z[i] > 0.0:
                pull = slope[i] + l1[i]
            elif z[i] < 0.0:
                pull = slope[i] - l1[i]
            else:
                pull = max(abs(slope[i]) - l1[i], 0.0)
            left += pull * pull
        left = np.sqrt(left)
        if left <= accuracy:
            break
    return left
