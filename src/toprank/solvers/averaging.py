"""Objectives that are drawn: a step of another solver for each draw, and the mean of the later steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray
from toprank.errors import DataError, count_of
from toprank.solvers.base import Objective, Point, Solution, Solver, SolverRun, offers
from toprank.solvers.newton import Newton

_STEPS = 30


class StochasticObjective(Objective, Protocol):
    """An objective that is drawn at random."""

    def resampled(self, draw: int, weights: FloatArray) -> Objective:
        """The objective of a draw made at these weights: one function of all weights, as a line search needs."""


@dataclass(frozen=True)
class AveragedStochastic(Solver):
    """One iteration of a solver for each draw; the answer is the mean of the weights after the second half of them.

    With another objective for each step, weights never come to rest: they wander about the minimum of the mean
    objective. Their average is a better estimate of it than the last of them (Polyak & Juditsky 1992).

    Needs `resampled`, and what the inner solver needs. Never reports convergence; 30 draws by default.

    Args:
        solver: makes the steps.

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
    (True, '1,000 draws, a step for each; the weights are the mean of the last 500.')
    """

    solver: Solver = field(default_factory=Newton)
    supports_l1 = True  # the inner solver refuses what it cannot do

    @property
    @override
    def defaults(self) -> tuple[float, int]:
        return self.solver.defaults[0], _STEPS

    @override
    def _solve(self, run: SolverRun, tolerance: float, max_iterations: int) -> Solution:
        if not offers(run.objective, "resampled"):
            raise DataError(
                f"AveragedStochastic is for objectives that are drawn; use {type(self.solver).__name__} by itself."
            )
        objective, weights, visited = cast(StochasticObjective, run.objective), run.start, []
        run.keeps_last = run.has_kinks = True  # values of two draws do not compare, and no gradient tells of the mean
        while run.iterations < max_iterations:
            drawn = objective.resampled(run.iterations, weights)
            step = self.solver.solve(drawn, weights, run.penalty, tolerance=tolerance, max_iterations=1)
            if step.interrupted:
                raise KeyboardInterrupt
            weights, no_grad = step.weights, np.zeros_like(step.weights)
            visited.append(weights)
            # If the time limit, Ctrl-C or a callback ends the run here, its solution is the mean so far.
            mean = np.mean(visited[len(visited) // 2 :], axis=0)
            run.tell(Point(mean, step.value, no_grad, step.value, no_grad, step.value), f"draw {run.iterations + 1}")
        run.last = run.at(mean)
        n = len(visited)
        return run.solution(
            f"{count_of(n, 'draw')}, a step for each; the weights are the mean of the last {n - n // 2:,}."
        )
