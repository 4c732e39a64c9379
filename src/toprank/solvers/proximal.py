"""L1 and elastic-net penalties: weights that are exactly zero.

Where the Hessian fits in memory, proximal Newton: the quadratic model of the smooth part plus the L1 penalty is
minimized by coordinate descent, finished by an exact solve on the weights that are not zero, and a line search
follows. Otherwise FISTA: gradient steps, each followed by soft thresholding, with momentum that is dropped as soon as
it points uphill, and a step length found by backtracking.

Both measure how far they are by the shortest subgradient, which is zero at the optimum and only there.
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

ROUNDS = 20
SWEEPS = 25
METHODS = ("auto", "newton", "fista")
FLAT = 1e-15  # less than this part of the largest curvature is rounding; a weight gets at least so much


def minimize_model(
    hessian: FloatArray, grad: FloatArray, weights: FloatArray, l1: FloatArray, accuracy: float
) -> FloatArray:
    """``argmin_z grad·(z - w) + ½ (z - w)ᵀH(z - w) + Σ_i l1_i |z_i|``, until its shortest subgradient is `accuracy`.

    Coordinate descent soon knows which weights are zero, but creeps where features are correlated; so after a few
    sweeps the weights that are not zero are solved for together, which is exact once their signs are right.
    """
    z = weights.copy()
    slope = grad.copy()
    for _ in range(ROUNDS):
        if kernels.descend_coordinates(hessian, l1, z, slope, accuracy, SWEEPS) <= accuracy:
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


@dataclass(frozen=True)
class Proximal(Solver):
    """Proximal Newton or FISTA for a smooth L with L1 and L2 penalties.

    Needs the value and the gradient; proximal Newton also `hessian`. Converged when the shortest subgradient's norm is
    at most `tolerance` (default 1e-6) of what pulled at the start (the largest of ``‖∇L‖, ‖l2 w‖, ‖l1 sign w‖`` there),
    or when the decrease that the next step promises is below rounding. At most 10,000 iterations by default (Newton
    needs about ten).

    Args:
        method: ``newton``, ``fista``, or ``auto``: Newton where the objective has a Hessian and at most `newton_limit`
            weights.
        newton_limit: the largest number of weights for which ``auto`` forms the Hessian.

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
            raise DataError("Proximal Newton needs the curvature, but the objective offers no hessian; use 'fista'.")
        newton = self.method == "newton" or (
            self.method == "auto" and curved and run.objective.n_weights <= self.newton_limit
        )
        steps = _Newton(run) if newton else _Fista(run)
        return descend(run, steps.next, tolerance, max_iterations, "Is the loss smooth, and its gradient exact?")


class _Newton:
    """Each step minimizes ``g·(z - w) + ½ (z - w)ᵀH(z - w) + Σ l1 |z|``; H is shifted as in `Newton`."""

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
    """Accelerated proximal gradient steps; `bend` is the current guess of the gradient's Lipschitz constant."""

    def __init__(self, run: SolverRun) -> None:
        self.run, self.bend, self.momentum = run, 0.0, 1.0
        self.previous: Point | None = None

    def next(self, point: Point, size: float) -> Point | None:  # noqa: ARG002
        """See `descend`. Without momentum a step always goes down, so an uphill one is repeated without."""
        if not self.bend:
            self.bend = _first_bend(self.run, point)
        momentum = _grown(self.momentum)
        trial = None
        if self.previous is not None:
            push = (self.momentum - 1) / momentum * (point.weights - self.previous.weights)
            ahead = self.run.at(point.weights + push, candidate=False)  # its zeros are not exact
            trial = self._thresholded(ahead) if ahead.is_finite else None
            if trial is not None and _uphill(ahead, trial, point):
                trial = None
        if trial is None:
            trial, momentum = self._thresholded(point), _grown(1.0)
        self.previous, self.momentum = point, momentum
        self.bend *= 0.9  # else one bad region would set the pace for ever
        return trial

    def _thresholded(self, ahead: Point) -> Point | None:
        """The proximal step, short enough for the parabola with curvature `bend` to bound the smooth part.

        Where the values differ by rounding only, the change of the gradient along the step decides instead.
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
    """The value has risen, or the proximal step pulls against the momentum: time to restart it."""
    against = float((ahead.weights - trial.weights) @ (trial.weights - point.weights)) > 0
    return against or trial.value > point.value


def _first_bend(run: SolverRun, point: Point) -> float:
    """The curvature along the gradient, seen over a short step."""
    pull = run.penalty.subgradient(point.weights, point.grad)
    norm, length = float(np.linalg.norm(pull)), 1e-4 * (1 + float(np.linalg.norm(point.weights)))
    nearby = run.at(point.weights - (length / norm) * pull, candidate=False)
    change = float(np.linalg.norm(nearby.grad - point.grad)) if nearby.is_finite else 0.0
    return max(change / length, 1e-8 * norm)
