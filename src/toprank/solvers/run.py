"""One solve under way: what all solvers share.

`SolverRun` evaluates the penalised objective and remembers the best point; `Solver` wraps every method in the same
promises about interruption; `descend` is the loop of the methods that go down until the gradient vanishes. How far to
go along a direction is said by backtracking for Newton steps and by strong Wolfe conditions for quasi-Newton steps:
both take a value that is not finite for "too far", and both forgive an increase that is mere rounding, since close to
the optimum the sums behind a value are noisier than the decrease that a step promises.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, out_of_time
from toprank.errors import DataError
from toprank.solvers.base import Callback, Objective, Penalty, Solution, StopSolving, WithHessian

__all__ = ["Point", "SolverRun", "Solver", "backtrack", "counted", "descend", "hessian_of", "until_finite", "wolfe"]

ROUNDING = 1e-15  # a change of the value by less than this part of it is beyond what its floating-point sum can show

OUT_OF_TIME = "the time was over; these are the best weights so far."


class Point(NamedTuple):
    """All that is known at some weights."""

    weights: FloatArray
    loss: float
    """L."""
    d_loss: FloatArray
    """Its gradient."""
    smooth: float
    """L plus the quadratic penalty."""
    grad: FloatArray
    """The gradient of `smooth`."""
    value: float
    """The whole objective."""

    @property
    def is_finite(self) -> bool:
        """Whether value and gradient can be used."""
        return math.isfinite(self.value) and bool(np.isfinite(self.grad).all())


class Stuck(Exception):  # noqa: N818 - never leaves a solve
    """A method that cannot go on; the text says why, and what to do."""


class SolverRun:
    """One solve under way: evaluates the penalised objective and remembers the best point."""

    def __init__(
        self, objective: Objective, start: npt.ArrayLike, penalty: Penalty, callback: Callback | None = None
    ) -> None:
        self.objective, self.penalty, self.callback = objective, penalty, callback
        self.start = np.array(start, dtype=np.float64)
        n = objective.n_weights
        if self.start.shape != (n,) or penalty.l2.shape != (n,):
            raise DataError(
                f"The objective has {n} weights, but the start has shape {self.start.shape} and the penalty "
                f"{penalty.l2.shape}."
            )
        if not np.isfinite(self.start).all():
            raise DataError("The weights to start from must be finite; start from zeros instead.")
        self.iterations = self.evaluations = 0
        self.best: Point | None = None
        self.last: Point | None = None
        self.keeps_last = self.has_kinks = False
        self.lower_bound = -math.inf
        self.reference = 0.0

    def at(self, weights: FloatArray, *, candidate: bool = True) -> Point:
        """Evaluate, and remember the point if it is the best, finite, and a `candidate` for the solution."""
        if self.best is not None and out_of_time():
            raise Stuck(OUT_OF_TIME)
        if not np.isfinite(weights).all():  # a trial may go too far; the objective need not know what to do then
            return Point(weights, math.nan, weights, math.nan, weights, math.nan)
        loss, grad = self.objective.value_and_grad(weights)
        loss, d_loss = float(loss), np.array(grad, dtype=np.float64)
        if d_loss.shape != weights.shape:
            raise DataError(f"The objective's gradient has shape {d_loss.shape}; it must be {weights.shape}.")
        smooth = loss + self.penalty.quadratic(weights)
        value = smooth + float(self.penalty.l1 @ np.abs(weights))
        point = Point(weights, loss, d_loss, smooth, d_loss + self.penalty.l2 * weights, value)
        self.evaluations += 1
        if candidate and point.is_finite and (self.best is None or value <= self.best.value):
            self.best = point
        return point

    def begin(self) -> Point:
        """The first point: the start, or zeros where the objective is not finite at the start."""
        point = self.at(self.start)
        if not point.is_finite and self.start.any():
            point = self.at(np.zeros_like(self.start))
        if not point.is_finite:
            raise DataError(
                f"The objective is not finite at the start (value {point.value:g}); check the features and labels for "
                "huge or missing values, and scale the features."
            )
        pulls = point.d_loss, self.penalty.l2 * point.weights, self.penalty.l1 * np.sign(point.weights)
        self.reference = max(float(np.linalg.norm(pull)) for pull in pulls)
        return point

    def gradient_norm(self, point: Point) -> float:
        """Length of the shortest subgradient."""
        return float(np.linalg.norm(self.penalty.subgradient(point.weights, point.grad)))

    def relative_gradient(self, point: Point) -> float:
        """The same as a part of what pulled at the start: the loss or a penalty, whichever pulled most."""
        norm = self.gradient_norm(point)
        return norm / self.reference if norm else 0.0

    def tell(self, point: Point, message: str) -> None:
        """One more iteration is complete."""
        self.iterations += 1
        self.last = point
        if self.callback is not None:
            self.callback(self.iterations, point.weights.copy(), point.value, message)
        if self.keeps_last and out_of_time():  # elsewhere the next evaluation asks, unless this point is the end
            raise Stuck(OUT_OF_TIME)

    def solution(self, message: str, *, converged: Point | None = None, **further: bool) -> Solution:
        """The end: at the point that `converged`, else at the best one (the last, in a run that keeps that).

        `further`: what else a `Solution` says that is not so by default.
        """
        point = converged or (self.last if self.keeps_last else None) or self.best
        bound = min(self.lower_bound, point.value) if point and math.isfinite(self.lower_bound) else None
        return Solution(
            weights=self.start if point is None else point.weights,
            value=math.inf if point is None else point.value,
            iterations=self.iterations,
            converged=converged is not None,
            message=message,
            gradient_norm=None if point is None or self.has_kinks else self.gradient_norm(point),
            lower_bound=bound,
            evaluations=self.evaluations,
            **further,
        )


class Solver(ABC):
    """Base of all solvers: a frozen dataclass of settings and one method."""

    takes_l1: ClassVar[bool] = False

    @property
    @abstractmethod
    def defaults(self) -> tuple[float, int]:
        """The tolerance and the largest number of iterations where none are given."""

    def solve(
        self,
        objective: Objective,
        start: npt.ArrayLike,
        penalty: Penalty,
        *,
        tolerance: float | None = None,
        max_iterations: int | None = None,
        callback: Callback | None = None,
    ) -> Solution:
        """Minimise ``objective + penalty`` from `start`.

        Args:
            objective: L; which optional methods it must have is said by the solver.
            start: weights to start from, (d,).
            penalty: l2 and l1 for each weight.
            tolerance: when to stop; its meaning and default are said by the solver.
            max_iterations: at most so many iterations; the default is the solver's.
            callback: called after each iteration; see `Callback`.
        """
        tolerance = self.defaults[0] if tolerance is None else tolerance
        limit = self.defaults[1] if max_iterations is None else max_iterations
        if not 0 <= tolerance < math.inf:
            raise DataError(f"tolerance must be 0 or more and finite, not {tolerance}.")
        if limit < 1:
            raise DataError(f"max_iterations must be at least 1, not {limit}.")
        if penalty.l1.any() and not self.takes_l1:
            raise DataError(f"{type(self).__name__} cannot handle an L1 penalty; use Proximal.")
        run = SolverRun(objective, start, penalty, callback)
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a trial may go too far; we look
                return self._solve(run, tolerance, limit)
        except StopSolving as stop:
            reason = f": {stop}" if str(stop) else ""
            return run.solution(f"Stopped by the callback after {counted(run.iterations)}{reason}.")
        except Stuck as stuck:
            return run.solution(f"Not converged: after {counted(run.iterations)} {stuck}")
        except KeyboardInterrupt:
            return run.solution(
                f"Interrupted after {counted(run.iterations)}; these are the best weights so far.", interrupted=True
            )

    @abstractmethod
    def _solve(self, run: SolverRun, tolerance: float, max_iterations: int) -> Solution:
        """The method itself."""


def counted(iterations: int) -> str:
    """The number of iterations, in words.

    >>> counted(1), counted(2)
    ('1 iteration', '2 iterations')
    """
    return f"{iterations} iteration{'' if iterations == 1 else 's'}"


def hessian_of(run: SolverRun, weights: FloatArray) -> FloatArray:
    """The Hessian of L plus the quadratic penalty, (d, d), a fresh array."""
    if out_of_time():
        raise Stuck(OUT_OF_TIME)
    hessian = np.array(cast(WithHessian, run.objective).hessian(weights), dtype=np.float64)
    if not np.isfinite(hessian).all():
        raise Stuck("the curvature is not finite. Scale the features, or use LBFGS.")
    hessian[np.diag_indices_from(hessian)] += run.penalty.l2
    return hessian


def descend(
    run: SolverRun,
    next_point: Callable[[Point, float], Point | None],
    tolerance: float,
    max_iterations: int,
    advice: str,
) -> Solution:
    """Go from point to point until the shortest subgradient is `tolerance` of what pulled at the start.

    `next_point(point, size)`, with the subgradient's relative size, gives a lower point, the point itself when only
    rounding is left to gain, or None when no step helps, for which case `advice` is the remedy.
    """
    point = run.begin()
    while True:
        size, steps = run.relative_gradient(point), counted(run.iterations)
        if size <= tolerance:
            return _ended(run, point, f"the gradient is {size:.1e} of what pulled at the start.")
        if run.iterations == max_iterations:
            return run.solution(
                f"Not converged: after {steps} the gradient is still {size:.1e} of what pulled at the start "
                f"({tolerance:.1e} was asked for). Allow more iterations, or raise the penalty."
            )
        trial = next_point(point, size)
        if trial is None:
            return run.solution(f"Not converged: after {steps} no step lowers the value {point.value:.6g}. {advice}")
        if trial is point:
            return _ended(run, point, "the next step would change the value by rounding only.")
        point = trial
        run.tell(point, f"gradient {run.relative_gradient(point):.1e} of what pulled at the start")


def _ended(run: SolverRun, point: Point, reason: str) -> Solution:
    """Converged, unless there is nothing to converge to.

    Where a plane separates what a loss wants apart, and nothing holds the weights, the loss falls for ever, and its
    gradient vanishes on the way. Twice the weights are then better still, as they never are at an optimum.
    """
    steps = counted(run.iterations)
    if not (run.penalty.l2.any() or run.penalty.l1.any()) and point.weights.any():
        twice = run.at(2 * point.weights, candidate=False)
        if twice.is_finite and twice.value < point.value - NOISE * abs(point.value):
            return run.solution(
                f"Not converged: after {steps} {reason.removesuffix('.')}, but twice the weights have a lower value: "
                "it falls for ever, as where the labels can be separated, and there is no optimum. Set l2 above 0."
            )
    return run.solution(f"Converged in {steps}: {reason}", converged=point)


def negligible(slope: float, value: float) -> bool:
    """Whether half the decrease that a Newton-like step promises, ``-slope / 2``, is below rounding."""
    return -slope <= 2 * ROUNDING * abs(value)


SUFFICIENT = 1e-4  # a step must achieve this part of the decrease that its slope promises (Armijo)
CURVATURE = 0.9  # and leave at most this part of the slope (strong Wolfe)
NOISE = 1e-14
TRIALS = 50


def backtrack(run: SolverRun, point: Point, direction: FloatArray, slope: float, trials: int = TRIALS) -> Point | None:
    """The first of the steps 1, shorter, shorter … that lowers the value enough; None when none does.

    `slope` is the decrease per unit of the step that the caller's model promises, a negative number.
    """
    step = 1.0
    for _ in range(trials):
        trial = run.at(point.weights + step * direction)
        if trial.is_finite and _is_enough(run, point, trial, direction, step, slope):
            return trial
        step *= _shorter(trial.value - point.value, step * slope) if trial.is_finite else 0.1
    return None


def _is_enough(run: SolverRun, point: Point, trial: Point, direction: FloatArray, step: float, slope: float) -> bool:
    """Whether the value fell enough or, where it changed by rounding only, the slope has not turned as steeply.

    For a parabola the two conditions are the same (Hager and Zhang 2005), and slopes are exact where values are not.
    """
    change = trial.value - point.value
    if abs(change) > NOISE * abs(point.value):
        return change <= SUFFICIENT * step * slope
    new_slope = float((trial.grad + run.penalty.l1 * np.sign(trial.weights)) @ direction)
    return new_slope <= (2 * SUFFICIENT - 1) * slope


def _shorter(change: float, promised: float) -> float:
    """Where the parabola through the two values, with the given slope, has its minimum, within [0.1, 0.5]."""
    bend = change - promised
    return min(0.5, max(0.1, -0.5 * promised / bend)) if bend > 0 else 0.5


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


def until_finite(run: SolverRun, point: Point, step: FloatArray) -> Point | None:
    """The point after the whole step, or after a part of it where the objective is not finite; None without luck."""
    for _ in range(TRIALS):
        trial = run.at(point.weights + step)
        if trial.is_finite:
            return trial
        step = 0.5 * step
    return None
