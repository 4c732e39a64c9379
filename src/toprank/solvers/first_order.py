"""Methods that know the value and the gradient only: L-BFGS, and gradient descent as in the papers.

L-BFGS guesses the curvature from the last steps. It is our own rather than SciPy's: the line search must step back from
values that are not finite, Ctrl-C must not lose the best weights, and the end must be said in words.

Gradient descent, with a fixed rate and a tolerance that is itself a hyper-parameter, is here to reproduce published
numbers, and for losses whose gradient is not the derivative of their value (LambdaRank), where no line search can work.
For everything else Newton or LBFGS is faster and ends at the optimum.
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

CURVATURE = 0.9  # a step must leave at most this part of the slope (strong Wolfe)
ADVICE = "If the loss has kinks, use Bundle; if its gradient is not the derivative of its value, GradientDescent."


@dataclass(frozen=True)
class LBFGS(Solver):
    """Limited-memory BFGS with a strong Wolfe line search, for smooth objectives.

    Needs the value and the gradient. Converged when the gradient's norm is at most `tolerance` (default 1e-6) of what
    pulled at the start (``max(‖∇L‖, ‖l2 w‖)`` there), or when the decrease that the next step promises is below
    rounding. At most 1,000 iterations by default.

    Args:
        memory: how many past steps shape the next one.

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
    """Steps along ``-H⁻¹g``, where H⁻¹ is what the last steps s and the changes y of the gradient imply."""

    def __init__(self, run: SolverRun, memory: int) -> None:
        self.run = run
        self.pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=memory)

    def next(self, point: Point, size: float) -> Point | None:  # noqa: ARG002
        """See `descend`. If a direction from memory fails, the memory is dropped and steepest descent tried."""
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
        """Learn from a step, unless the gradient changed against it: H must stay positive definite."""
        curvature = float(s @ y)
        if curvature > 1e-14 * float(np.linalg.norm(s) * np.linalg.norm(y)):
            self.pairs.append((s, y, curvature))

    def direction(self, grad: FloatArray) -> FloatArray:
        """The two-loop recursion (Nocedal 1980)."""
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
    """A point with ``f ≤ f0 + 1e-4 t f0'`` and ``|f'| ≤ 0.9 |f0'|`` along the direction (smooth part only).

    The bracket [low, high] always holds such a point: at `low` the value is low enough but the slope is still steep,
    at `high` the value is too high, or not finite, or the slope has turned. When rounding hides it, the best step
    that lowered the value is returned; None when there was none.
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
    """The next step to try: farther out while nothing stops us, else the secant's zero kept off the bracket's ends."""
    if math.isinf(high):
        return 4.0 * low
    if not math.isfinite(high_slope):
        return low + 0.1 * (high - low)
    part = low_slope / (low_slope - high_slope) if high_slope > 0 else 0.5
    return low + min(0.9, max(0.1, part)) * (high - low)


@dataclass(frozen=True)
class GradientDescent(Solver):
    """``w ← w - learning_rate · gradient`` until little changes.

    Needs the value and the gradient. Converged when the `stop` quantity is below `tolerance` (default 1e-4), which
    with a small rate does not mean that the optimum is near: that is the papers' early stopping. At most 10,000
    iterations by default.

    Args:
        learning_rate: length of a step as a multiple of the gradient (1e-3 for ListMLE in the cs-RgList paper). A step
            to a value that is not finite is halved until the value is finite.
        stop: ``value``: the change of the objective from one iteration to the next; ``gradient``: the gradient's norm.
        backtracking: shorten a step until it lowers the value, and let the rate grow again after each success.
        keep: ``best``: return the weights with the lowest value, unless converged; ``last``: the last ones, as where
            the value is not what the gradient descends on.

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
            raise DataError(f"The rate of gradient descent must be positive and finite, not {self.learning_rate}.")
        if self.stop not in ("value", "gradient"):
            raise UnknownNameError("criterion to stop", self.stop, ("value", "gradient"))
        if self.keep not in ("best", "last"):
            raise UnknownNameError("choice of what to keep", self.keep, ("best", "last"))

    def _solve(self, run: SolverRun, tolerance: float, max_iterations: int) -> Solution:
        run.keeps_last = self.keep == "last"
        point, rate = run.begin(), self.learning_rate
        measured = "the value changed by" if self.stop == "value" else "the gradient's norm is"
        change = math.inf if self.stop == "value" else run.gradient_norm(point)
        while change >= tolerance and point.grad.any():
            if run.iterations == max_iterations:
                return run.solution(
                    f"Not converged: after {run.steps} {measured} {change:.1e} ({tolerance:.1e} was "
                    f"asked for). {_advice(run, point)}"
                )
            trial = self._next(run, point, rate)
            if trial is None:
                wanted = "a lower" if self.backtracking else "a finite"
                return run.solution(
                    f"Not converged: after {run.steps} no step of rate {rate:g} or less leads to "
                    f"{wanted} value. Scale the features, or raise the penalty."
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
    """More iterations help, unless the value grows."""
    if run.best is not None and point.value > run.best.value:
        return f"The value has risen from {run.best.value:.6g} to {point.value:.6g}: lower the rate."
    return "Allow more iterations, or raise the rate."
