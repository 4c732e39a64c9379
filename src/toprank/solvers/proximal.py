"""L1 and elastic-net penalties, whose solutions have weights that are exactly zero.

If the Hessian fits in memory, proximal Newton: coordinate descent minimizes the quadratic model of the smooth part plus
the L1 penalty, an exact solve over the non-zero weights completes it, and a line search follows. Otherwise FISTA:
gradient steps, each followed by soft thresholding, with momentum that is reset as soon as it points uphill, and a step
length found by backtracking.

Both measure convergence by the shortest subgradient, which is zero exactly at the optimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from toprank import kernels
from toprank.compute import FloatArray
from toprank.errors import DataError, UnknownNameError
from toprank.solvers.base import (
    NOISE,
    Point,
    Solution,
    Solver,
    SolverRun,
    backtrack,
    descend,
    hessian_of,
    negligible,
    offers,
    soft_threshold,
)
from toprank.solvers.newton import LARGEST_SHIFT, levenberg_step

MAX_ROUNDS = 20
MAX_SWEEPS = 25
METHODS = ("auto", "newton", "fista")
FLAT = 1e-15  # minimum curvature of a weight, as a fraction of the largest; less is rounding


def minimize_model(
    hessian: FloatArray, grad: FloatArray, weights: FloatArray, l1: FloatArray, accuracy: float
) -> FloatArray:
    """Minimize ``grad·(z - w) + ½ (z - w)ᵀH(z - w) + Σ_i l1_i |z_i|`` over z.

    Stops when the norm of the shortest subgradient is at most `accuracy`. Coordinate descent finds the zero weights
    quickly but converges slowly for correlated features, so after a few sweeps the non-zero weights are solved for
    jointly, which is exact once their signs are right.
    """
    z = weights.copy()
    slope = grad.copy()
    for _ in range(MAX_ROUNDS):
        if kernels.descend_coordinates(hessian, l1, z, slope, accuracy, MAX_SWEEPS) <= accuracy:
            break
        _solve_support(hessian, l1, z, slope)
    return z


def _solve_support(hessian: FloatArray, l1: FloatArray, z: FloatArray, slope: FloatArray) -> None:
    """Move the non-zero weights to the minimum for their signs; a weight that reaches zero on the way stays zero."""
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


@dataclass(frozen=True)
class Proximal(Solver):
    """Proximal Newton or FISTA for a smooth L with L1 and L2 penalties.

    Needs the value and the gradient; proximal Newton also needs `hessian`. Converged if the norm of the shortest
    subgradient is at most `tolerance` (default 1e-6) times its initial scale (the largest of
    ``‖∇L‖, ‖l2 w‖, ‖l1 sign w‖`` at the start), or if the predicted decrease of the next step is below rounding. At
    most 10,000 iterations by default (Newton needs about ten).

    Args:
        method: ``newton``, ``fista``, or ``auto``: Newton if the objective has a Hessian and at most `newton_limit`
            weights.
        newton_limit: maximum number of weights for which ``auto`` forms the Hessian.

    >>> class Parabola:
    ...     n_weights = 2
    ...     def value_and_grad(self, w): return 0.5 * float((w - [3, 0.5]) @ (w - [3, 0.5])), w - [3, 0.5]
    ...     def hessian(self, w): return np.eye(2)
    >>> from toprank.solvers import Penalty
    >>> Proximal().solve(Parabola(), [0.0, 0.0], Penalty.uniform(2, l1=1.0)).weights.tolist()
    [2.0, 0.0]
    """

    method: Literal["auto", "newton", "fista"] = "auto"
    newton_limit: int = 500
    supports_l1 = True
    defaults = 1e-6, 10_000

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UnknownNameError("proximal method", self.method, METHODS)

    def _solve(self, run: SolverRun, tolerance: float, max_iterations: int) -> Solution:
        curved = offers(run.objective, "hessian")
        if self.method == "newton" and not curved:
            raise DataError("Proximal Newton needs a Hessian, but the objective has none; use method='fista'.")
        newton = self.method == "newton" or (
            self.method == "auto" and curved and run.objective.n_weights <= self.newton_limit
        )
        steps = _Newton(run) if newton else _Fista(run)
        return descend(
            run, steps.next, tolerance, max_iterations, "Check that the loss is smooth and its gradient is exact."
        )


class _Newton:
    """Steps that minimize ``g·(z - w) + ½ (z - w)ᵀH(z - w) + Σ l1 |z|``; H is shifted as in `Newton`."""

    def __init__(self, run: SolverRun) -> None:
        self.run, self.shift = run, 0.0

    def next(self, point: Point, size: float) -> Point | None:
        """See `descend`."""
        hessian, l1 = hessian_of(self.run, point.weights), self.run.penalty.l1
        diagonal = hessian.diagonal().copy()
        largest = float(diagonal.max())
        scale = np.maximum(diagonal, FLAT * largest) if largest > 0 else np.ones_like(diagonal)
        accuracy = min(0.1, size) * self.run.gradient_norm(point)
        while self.shift <= LARGEST_SHIFT:
            np.fill_diagonal(hessian, scale * (1 + self.shift))
            target = minimize_model(hessian, point.grad, point.weights, l1, accuracy)
            step = target - point.weights
            slope = float(point.grad @ step + l1 @ (np.abs(target) - np.abs(point.weights)))
            if negligible(slope, point.value):
                return point if self.shift <= 1 else None
            trial = backtrack(self.run, point, step, slope, trials=10)
            if trial is not None:
                self.shift = self.shift / 100 if self.shift > 1e-8 else 0.0
                return trial
            self.shift = max(100 * self.shift, 1e-6)
        return None


class _Fista:
    """Accelerated proximal gradient steps; `bend` estimates the Lipschitz constant of the gradient."""

    def __init__(self, run: SolverRun) -> None:
        self.run, self.bend, self.momentum = run, 0.0, 1.0
        self.previous: Point | None = None

    def next(self, point: Point, size: float) -> Point | None:  # noqa: ARG002
        """See `descend`. Repeat an uphill step without momentum, which always goes downhill."""
        if not self.bend:
            self.bend = _first_bend(self.run, point)
        momentum = _grown(self.momentum)
        trial = None
        if self.previous is not None:
            push = (self.momentum - 1) / momentum * (point.weights - self.previous.weights)
            ahead = self.run.at(point.weights + push, candidate=False)  # its weights are not exactly zero
            trial = self._thresholded(ahead) if ahead.is_finite else None
            if trial is not None and _uphill(ahead, trial, point):
                trial = None
        if trial is None:
            trial, momentum = self._thresholded(point), _grown(1.0)
        self.previous, self.momentum = point, momentum
        self.bend *= 0.9  # otherwise one steep region would slow down all later steps
        return trial

    def _thresholded(self, ahead: Point) -> Point | None:
        """Return the proximal step, short enough for the parabola with curvature `bend` to bound the smooth part.

        If the values differ only by rounding, the change of the gradient along the step decides instead.
        """
        for _ in range(100):
            target = soft_threshold(ahead.weights - ahead.grad / self.bend, self.run.penalty.l1 / self.bend)
            trial, step = self.run.at(target), target - ahead.weights
            room = 0.5 * self.bend * float(step @ step)
            if trial.is_finite:
                excess = trial.smooth - ahead.smooth - float(ahead.grad @ step)
                if abs(excess) <= NOISE * abs(ahead.smooth):
                    excess = 0.5 * float((trial.grad - ahead.grad) @ step)
                if excess <= room:
                    return trial
            self.bend *= 2
        return None


def _grown(momentum: float) -> float:
    return 0.5 * (1 + math.sqrt(1 + 4 * momentum**2))


def _uphill(ahead: Point, trial: Point, point: Point) -> bool:
    """Return whether the momentum must be reset: the value increased, or the proximal step opposes the momentum."""
    against = float((ahead.weights - trial.weights) @ (trial.weights - point.weights)) > 0
    return against or trial.value > point.value


def _first_bend(run: SolverRun, point: Point) -> float:
    """Estimate the curvature along the gradient by a short step."""
    pull = run.penalty.subgradient(point.weights, point.grad)
    norm, length = float(np.linalg.norm(pull)), 1e-4 * (1 + float(np.linalg.norm(point.weights)))
    nearby = run.at(point.weights - (length / norm) * pull, candidate=False)
    change = float(np.linalg.norm(nearby.grad - point.grad)) if nearby.is_finite else 0.0
    return max(change / length, 1e-8 * norm)
