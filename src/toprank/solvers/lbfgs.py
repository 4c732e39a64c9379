"""L-BFGS: value and gradient only, curvature guessed from the last steps (limited memory).

Our own rather than SciPy's: the line search must step back from values that are not finite, Ctrl-C must not lose the
best weights, and the end must be said in words. Compact, since the two-loop recursion is twenty lines.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from toprank.compute import FloatArray
from toprank.errors import DataError
from toprank.solvers.base import Solution
from toprank.solvers.line_search import wolfe
from toprank.solvers.run import Point, Run, Solver, descend, negligible

__all__ = ["LBFGS"]

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

    def _solve(self, run: Run, tolerance: float, max_iterations: int) -> Solution:
        return descend(run, _Steps(run, self.memory).next, tolerance, max_iterations, ADVICE)


class _Steps:
    """Steps along ``-H⁻¹g``, where H⁻¹ is what the last steps s and the changes y of the gradient imply."""

    def __init__(self, run: Run, memory: int) -> None:
        self.run = run
        self.pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=memory)

    def next(self, point: Point, size: float) -> Point | None:  # noqa: ARG002
        """See `descend`. A direction from memory that fails is given up, with the memory, for steepest descent."""
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
