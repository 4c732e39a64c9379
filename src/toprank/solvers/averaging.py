"""Averaged stochastic optimization: one solver step for each resampled objective."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray
from toprank.errors import DataError, count_of
from toprank.solvers.base import Objective, Point, Solution, Solver, SolverRun, offers
from toprank.solvers.newton import Newton

_N_DRAWS = 30


class StochasticObjective(Objective, Protocol):
    """An objective that depends on random draws."""

    def resampled(self, draw: int, weights: FloatArray) -> Objective:
        """Return the objective of one draw at these weights: a fixed function, as a line search requires."""


@dataclass(frozen=True)
class AveragedStochastic(Solver):
    """One solver iteration for each draw of the objective; the solution averages the second half of the iterates.

    With a different objective at each step the weights do not converge: they fluctuate around the minimum of the
    expected objective. Their average estimates it better than the last iterate (Polyak & Juditsky 1992).

    Needs `resampled`, and whatever the inner solver needs. Never reports convergence; 30 draws by default.

    Args:
        solver: the solver that makes the steps.

    >>> from toprank.solvers import Penalty
    >>> class Noisy:  # (w - 3 - noise)² / 2
    ...     n_weights = 1
    ...     def value_and_grad(self, w): return 0.5 * float((w[0] - 3) ** 2), w - 3
    ...     def resampled(self, draw, weights):
    ...         noise = np.random.default_rng(draw).normal()
    ...         class Drawn(Noisy):
    ...             def value_and_grad(self, w): return 0.5 * float((w[0] - 3 - noise) ** 2), w - 3 - noise
    ...             def hessian(self, w): return np.eye(1)
    ...         return Drawn()
    >>> solution = AveragedStochastic().solve(Noisy(), np.zeros(1), Penalty.uniform(1), max_iterations=1000)
    >>> bool(abs(solution.weights[0] - 3) < 4 / np.sqrt(500)), solution.message
    (True, '1,000 draws with one step each; the weights are the mean of the last 500.')
    """

    solver: Solver = field(default_factory=Newton)
    supports_l1 = True  # the inner solver refuses penalties that it does not support

    @property
    @override
    def defaults(self) -> tuple[float, int]:
        return self.solver.defaults[0], _N_DRAWS

    @override
    def _solve(self, run: SolverRun, tolerance: float, max_iterations: int) -> Solution:
        if not offers(run.objective, "resampled"):
            raise DataError(
                f"AveragedStochastic needs a stochastic objective; use {type(self.solver).__name__} directly."
            )
        objective, weights, visited = cast(StochasticObjective, run.objective), run.start, []
        run.keeps_last = run.has_kinks = (
            True  # values of different draws are not comparable, and no gradient belongs to the mean
        )
        while run.iterations < max_iterations:
            resampled = objective.resampled(run.iterations, weights)
            step = self.solver.solve(resampled, weights, run.penalty, tolerance=tolerance, max_iterations=1)
            if step.interrupted:
                raise KeyboardInterrupt
            weights, no_grad = step.weights, np.zeros_like(step.weights)
            visited.append(weights)
            # If the time limit, Ctrl-C or a callback ends the run here, the solution is the mean so far.
            mean = np.mean(visited[len(visited) // 2 :], axis=0)
            run.tell(Point(mean, step.value, no_grad, step.value, no_grad, step.value), f"draw {run.iterations + 1}")
        run.last = run.at(mean)
        n = len(visited)
        return run.solution(
            f"{count_of(n, 'draw')} with one step each; the weights are the mean of the last {n - n // 2:,}."
        )
