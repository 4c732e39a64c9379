"""First-order methods: L-BFGS, and gradient descent as in the papers.

L-BFGS estimates the curvature from the last steps. It is our own implementation rather than SciPy's, because the line
search must step back from values that are not finite, Ctrl-C must not lose the best weights, and the solution must
describe how the solve ended.

Gradient descent with a fixed learning rate, whose tolerance is itself a hyperparameter, serves to reproduce published
numbers, and losses whose gradient is not the derivative of their value (LambdaRank), for which no line search can work.
For everything else Newton or LBFGS is faster and reaches the optimum.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np

from toprank.compute import FloatArray
from toprank.errors import DataError, UnknownNameError
from toprank.solvers.base import (
    NOISE,
    SUFFICIENT,
    TRIALS,
    Point,
    Solution,
    Solver,
    SolverRun,
    backtrack,
    descend,
    negligible,
    until_finite,
)

CURVATURE = 0.9  # maximum fraction of the initial slope after a step (strong Wolfe)
ADVICE = "Use Bundle if the loss has kinks, or GradientDescent if the gradient is not the derivative of the value."


@dataclass(frozen=True)
class LBFGS(Solver):
    """Limited-memory BFGS with a strong Wolfe line search, for smooth objectives.

    Needs the value and the gradient. Converged if the gradient norm is at most `tolerance` (default 1e-6) times its
    initial scale (``max(‖∇L‖, ‖l2 w‖)`` at the start), or if the predicted decrease of the next step is below rounding.
    At most 1,000 iterations by default.

    Args:
        memory: number of past steps used to estimate the curvature.

    >>> class Parabola:
    ...     n_weights = 2
    ...     def value_and_grad(self, w): return float(w @ w - 2 * w[0]), 2 * w - [2, 0]
    >>> from toprank.solvers import Penalty
    >>> LBFGS().solve(Parabola(), [5.0, 5.0], Penalty.uniform(2, l2=2.0)).weights.round(6).tolist()
    [0.5, 0.0]
    """

    memory: int = 10
    defaults = 1e-6, 1000

    def __post_init__(self) -> None:
        if self.memory < 1:
            raise DataError(f"LBFGS needs a memory of at least 1 step, not {self.memory}.")

    def _solve(self, run: SolverRun, tolerance: float, max_iterations: int) -> Solution:
        return descend(run, _LBFGSSteps(run, self.memory).next, tolerance, max_iterations, ADVICE)


class _LBFGSSteps:
    """Steps along ``-H⁻¹g``, with H⁻¹ estimated from the last steps s and gradient changes y."""

    def __init__(self, run: SolverRun, memory: int) -> None:
        self.run = run
        self.pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=memory)

    def next(self, point: Point, size: float) -> Point | None:  # noqa: ARG002
        """See `descend`. If a direction from the memory fails, clear the memory and try steepest descent."""
        while True:
            step, from_memory = self.direction(point.grad), bool(self.pairs)
            slope = float(point.grad @ step)
            if from_memory and slope <= 0 and negligible(slope, point.value):
                return point
            first = 1.0 if from_memory else min(1.0, 1.0 / float(np.linalg.norm(point.grad)))
            trial = wolfe(self.run, point, step, first) if slope < 0 else None
            if trial is not None:
                self.remember(trial.weights - point.weights, trial.grad - point.grad)
                return trial
            if not from_memory:
                return None
            self.pairs.clear()

    def remember(self, s: FloatArray, y: FloatArray) -> None:
        """Store a step unless its curvature is not positive, so that H stays positive definite."""
        curvature = float(s @ y)
        if curvature > 1e-14 * float(np.linalg.norm(s) * np.linalg.norm(y)):
            self.pairs.append((s, y, curvature))

    def direction(self, grad: FloatArray) -> FloatArray:
        """Return the search direction by the two-loop recursion (Nocedal 1980)."""
        q = -grad
        shares = []
        for s, y, curvature in reversed(self.pairs):
            share = float(s @ q) / curvature
            shares.append(share)
            q = q - share * y
        if self.pairs:
            _, y, curvature = self.pairs[-1]
            q = q * (curvature / float(y @ y))
        for (s, y, curvature), share in zip(self.pairs, reversed(shares), strict=True):
            q = q + (share - float(y @ q) / curvature) * s
        return q


def wolfe(run: SolverRun, point: Point, direction: FloatArray, first: float = 1.0) -> Point | None:
    """Return a point with ``f ≤ f0 + 1e-4 t f0'`` and ``|f'| ≤ 0.9 |f0'|`` along the direction (smooth part only).

    The bracket [low, high] always contains such a point: at `low` the value is low enough but the slope is still steep;
    at `high` the value is too high or not finite, or the slope has changed sign. If rounding hides it, return the best
    step that lowered the value, or None if there was none.
    """
    slope0 = float(point.grad @ direction)
    low, high, low_slope, high_slope = 0.0, math.inf, slope0, math.nan
    lowest: Point | None = None
    step = first
    for _ in range(TRIALS):
        trial = run.at(point.weights + step * direction)
        promised = point.value + SUFFICIENT * step * slope0 + NOISE * abs(point.value)
        slope = float(trial.grad @ direction) if trial.is_finite else math.nan
        if trial.is_finite and trial.value <= promised:
            if lowest is None or trial.value <= lowest.value:
                lowest = trial
            if abs(slope) <= CURVATURE * abs(slope0):
                return trial
            if slope < 0:
                low, low_slope = step, slope
            else:
                high, high_slope = step, slope
        else:
            high, high_slope = step, slope
        step = _between(low, high, low_slope, high_slope)
        if not low < step < high or not np.isfinite(step):
            break
    return lowest


def _between(low: float, high: float, low_slope: float, high_slope: float) -> float:
    """Return the next step length: longer without an upper end, else the zero of the secant inside the bracket."""
    if math.isinf(high):
        return 4.0 * low
    if not math.isfinite(high_slope):
        return low + 0.1 * (high - low)
    part = low_slope / (low_slope - high_slope) if high_slope > 0 else 0.5
    return low + min(0.9, max(0.1, part)) * (high - low)


@dataclass(frozen=True)
class GradientDescent(Solver):
    """``w ← w - learning_rate · gradient`` until the change is small.

    Needs the value and the gradient. Converged if the quantity named by `stop` is below `tolerance` (default 1e-4);
    with a small learning rate that does not imply a point near the optimum, and acts as the early stopping of the
    papers. At most 10,000 iterations by default.

    Args:
        learning_rate: step length as a multiple of the gradient (1e-3 for ListMLE in the cs-RgList paper). A step to a
            value that is not finite is halved until the value is finite.
        stop: ``value`` for the change of the objective between iterations, ``gradient`` for the gradient norm.
        backtracking: whether to shorten a step until it lowers the value, and to increase the learning rate after each
            success.
        keep: ``best`` returns the weights with the lowest value, unless converged; ``last`` returns the last ones, for
            gradients that are not the derivative of the value.

    >>> class Parabola:
    ...     n_weights = 1
    ...     def value_and_grad(self, w): return float(w @ w), 2 * w
    >>> from toprank.solvers import Penalty
    >>> solution = GradientDescent(learning_rate=0.25).solve(Parabola(), [8.0], Penalty.uniform(1), max_iterations=3)
    >>> solution.weights.tolist(), solution.converged
    ([1.0], False)
    """

    learning_rate: float = 1e-3
    stop: Literal["value", "gradient"] = "value"
    backtracking: bool = False
    keep: Literal["best", "last"] = "best"
    defaults = 1e-4, 10_000

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise DataError(f"learning_rate must be positive and finite, not {self.learning_rate}.")
        if self.stop not in ("value", "gradient"):
            raise UnknownNameError("stopping criterion", self.stop, ("value", "gradient"))
        if self.keep not in ("best", "last"):
            raise UnknownNameError("value of keep", self.keep, ("best", "last"))

    def _solve(self, run: SolverRun, tolerance: float, max_iterations: int) -> Solution:
        run.keeps_last = self.keep == "last"
        point, rate = run.begin(), self.learning_rate
        measured = "the value changed by" if self.stop == "value" else "the gradient's norm is"
        change = math.inf if self.stop == "value" else run.gradient_norm(point)
        while change >= tolerance and point.grad.any():
            if run.iterations == max_iterations:
                return run.solution(
                    f"Not converged: after {run.steps} {measured} {change:.1e} (tolerance "
                    f"{tolerance:.1e}). {_advice(run, point)}"
                )
            trial = self._next(run, point, rate)
            if trial is None:
                wanted = "a lower" if self.backtracking else "a finite"
                return run.solution(
                    f"Not converged: after {run.steps} no step with a learning rate up to {rate:g} reaches "
                    f"{wanted} value. Standardize the features, or raise the penalty."
                )
            if self.backtracking:
                rate = 2 * float(np.linalg.norm(trial.weights - point.weights) / np.linalg.norm(point.grad))
            change = abs(trial.value - point.value) if self.stop == "value" else run.gradient_norm(trial)
            point = trial
            run.tell(point, f"{measured} {change:.1e}")
        reason = f"{measured} {change:.1e}" if point.grad.any() else "the gradient is zero"
        return run.solution(f"Converged in {run.steps}: {reason}.", converged=point)

    def _next(self, run: SolverRun, point: Point, rate: float) -> Point | None:
        step = -rate * point.grad
        if self.backtracking:
            return backtrack(run, point, step, float(point.grad @ step))
        return until_finite(run, point, step)


def _advice(run: SolverRun, point: Point) -> str:
    """Return the remedy: more iterations, or a lower learning rate if the value increased."""
    if run.best is not None and point.value > run.best.value:
        return f"The value increased from {run.best.value:.6g} to {point.value:.6g}; lower the learning rate."
    return "Raise max_iterations, or raise the learning rate."
