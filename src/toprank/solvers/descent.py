"""Gradient descent as in the papers: a fixed rate, and a tolerance that is itself a hyper-parameter.

It is here to reproduce published numbers, and for losses whose gradient is not the derivative of their value
(LambdaRank), where no line search can work. For everything else Newton or LBFGS is faster and ends at the optimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from toprank.errors import DataError, UnknownNameError
from toprank.solvers.base import Solution
from toprank.solvers.line_search import backtrack, until_finite
from toprank.solvers.run import Point, Run, Solver, counted

__all__ = ["GradientDescent"]


@dataclass(frozen=True)
class GradientDescent(Solver):
    """``w ← w - rate · gradient`` until little changes.

    Needs the value and the gradient. Converged when the `stop` quantity is below `tolerance` (default 1e-4), which
    with a small rate does not mean that the optimum is near: that is the papers' early stopping. At most 10,000
    iterations by default.

    Args:
        rate: length of a step as a multiple of the gradient (1e-3 for ListMLE in the cs-RgList paper). A step that
            leads to a value that is not finite is halved until it does not.
        stop: ``value``: the change of the objective from one iteration to the next; ``gradient``: the gradient's norm.
        backtracking: shorten a step until it lowers the value, and let the rate grow again after each success.
        keep: ``best``: return the weights with the lowest value, unless converged; ``last``: the last ones, as where
            the value is not what the gradient descends on.

    >>> class Parabola:
    ...     n_weights = 1
    ...     def value_and_grad(self, w): return float(w @ w), 2 * w
    >>> from toprank.solvers import Penalty
    >>> solution = GradientDescent(rate=0.25).solve(Parabola(), [8.0], Penalty.uniform(1), max_iterations=3)
    >>> solution.weights.tolist(), solution.converged
    ([1.0], False)
    """

    rate: float = 1e-3
    stop: Literal["value", "gradient"] = "value"
    backtracking: bool = False
    keep: Literal["best", "last"] = "best"
    defaults = 1e-4, 10_000

    def __post_init__(self) -> None:
        if not 0 < self.rate < math.inf:
            raise DataError(f"The rate of gradient descent must be positive and finite, not {self.rate}.")
        if self.stop not in ("value", "gradient"):
            raise UnknownNameError("criterion to stop", self.stop, ("value", "gradient"))
        if self.keep not in ("best", "last"):
            raise UnknownNameError("choice of what to keep", self.keep, ("best", "last"))

    def _solve(self, run: Run, tolerance: float, max_iterations: int) -> Solution:
        run.keeps_last = self.keep == "last"
        point, rate = run.begin(), self.rate
        what = "the value changed by" if self.stop == "value" else "the gradient's norm is"
        change = math.inf if self.stop == "value" else run.gradient_norm(point)
        while change >= tolerance and point.grad.any():
            if run.iterations == max_iterations:
                return run.solution(
                    f"Not converged: after {counted(run.iterations)} {what} {change:.1e} ({tolerance:.1e} was asked "
                    f"for). {_advice(run, point)}"
                )
            trial = self._next(run, point, rate)
            if trial is None:
                wanted = "a lower" if self.backtracking else "a finite"
                return run.solution(
                    f"Not converged: after {counted(run.iterations)} no step of rate {rate:g} or less leads to "
                    f"{wanted} value. Scale the features, or raise the penalty."
                )
            if self.backtracking:
                rate = 2 * float(np.linalg.norm(trial.weights - point.weights) / np.linalg.norm(point.grad))
            change = abs(trial.value - point.value) if self.stop == "value" else run.gradient_norm(trial)
            point = trial
            run.tell(point, f"{what} {change:.1e}")
        reason = f"{what} {change:.1e}" if point.grad.any() else "the gradient is zero"
        return run.solution(f"Converged in {counted(run.iterations)}: {reason}.", converged=point)

    def _next(self, run: Run, point: Point, rate: float) -> Point | None:
        step = -rate * point.grad
        if self.backtracking:
            return backtrack(run, point, step, float(point.grad @ step))
        return until_finite(run, point, step)


def _advice(run: Run, point: Point) -> str:
    """A growing value is no lack of iterations."""
    if run.best is not None and point.value > run.best.value:
        return f"The value has risen from {run.best.value:.6g} to {point.value:.6g}: lower the rate."
    return "Allow more iterations, or raise the rate."
