"""The problem that solvers solve, its solution, and what all solvers share.

The problem is always ``min_w L(w) + Σ_i (l2_i / 2) w_i² + Σ_i l1_i |w_i|``. The `Objective` is L alone; the `Penalty`
holds one number of each kind per weight, so an intercept is simply a weight whose numbers are 0. A solver never sees
a query, a label or a loss: it sees L's value and gradient, and its curvature if it needs it.

Every solve keeps three promises. Ctrl-C (or a callback that raises `StopOptimization`) returns the best weights so far.
The value at the returned weights is always finite. `Solution.message` describes how the solve ended; the
caller decides whether to warn.

`Solver` wraps every method in these promises, and `SolverRun`, one solve under way, evaluates the penalized objective
and remembers the best point. `descend` is the loop of the methods that go down until the gradient vanishes. How far to
go along a direction is found by backtracking for Newton steps and by strong Wolfe conditions for quasi-Newton steps:
both take a value that is not finite for "too far", and both accept an increase that is mere rounding, since close to
the optimum the sums behind a value are noisier than the decrease that a step promises.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, out_of_time
from toprank.errors import DataError

ROUNDING = 1e-15  # a change of the value by less than this part of it is beyond what its floating-point sum can show
NOISE = 1e-14  # the same where two values are compared, each a sum with an error of its own
SUFFICIENT = 1e-4  # a step must achieve this part of the decrease that its slope promises (Armijo)
TRIALS = 50  # halved so often, a step is below rounding
OUT_OF_TIME = "the time was over; these are the best weights so far."

Callback = Callable[[int, FloatArray, float, str], None]
"""Called as ``callback(iteration, weights, value, message)`` after each iteration; may raise `StopOptimization`."""


class Objective(Protocol):
    """L(w), without the penalty. Smooth or not: the gradient may be a subgradient where a solver allows it."""

    @property
    def n_weights(self) -> int:
        """Number d of weights."""

    def value_and_grad(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """L and its gradient (d,)."""


class HasHessian(Objective, Protocol):
    """An objective whose curvature fits in memory."""

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Symmetric positive semi-definite (d, d); exact or not."""


class HasHessianProduct(Objective, Protocol):
    """An objective whose curvature is known through products."""

    def hessian_product(self, weights: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """The map v -> H v at these weights."""


def offers(objective: Objective, method: str) -> bool:
    """Whether the objective has this optional method; an attribute that is None does not count."""
    return callable(getattr(objective, method, None))


class StopOptimization(Exception):  # noqa: N818 - a request, not an error
    """Raised by a callback to end a solve early; its text becomes part of the solution's message."""


@dataclass(frozen=True, eq=False)
class Penalty:
    """``Σ_i (l2_i / 2) w_i² + Σ_i l1_i |w_i|``: two non-negative numbers for each weight, 0 where it is free.

    >>> penalty = Penalty.uniform(3, l2=0.5, free=[2])
    >>> penalty.l2.tolist(), penalty.value(np.array([2.0, 0.0, 9.0]))
    ([0.5, 0.5, 0.0], 1.0)
    """

    l2: FloatArray
    l1: FloatArray

    def __post_init__(self) -> None:
        for name in ("l2", "l1"):
            numbers = np.array(getattr(self, name), dtype=np.float64, ndmin=1)
            if not (np.isfinite(numbers).all() and (numbers >= 0).all()):
                worst = numbers[~((numbers >= 0) & np.isfinite(numbers))][0]
                raise DataError(f"The penalty {name} must be 0 or more and finite, not {worst:g}.")
            object.__setattr__(self, name, numbers)
        if self.l2.ndim != 1 or self.l1.shape != self.l2.shape:
            raise DataError(
                f"A penalty has one l2 and one l1 for each weight, but their shapes are {self.l2.shape} and "
                f"{self.l1.shape}."
            )

    @classmethod
    def uniform(cls, n_weights: int, *, l2: float = 0.0, l1: float = 0.0, free: Sequence[int] | slice = ()) -> Penalty:
        """The same `l2` and `l1` for all weights but the `free` ones (an intercept's place, say), which get 0."""
        kept = np.ones(n_weights)
        kept[free if isinstance(free, slice) else list(free)] = 0.0
        return cls(l2 * kept, l1 * kept)

    def quadratic(self, weights: FloatArray) -> float:
        """``Σ_i (l2_i / 2) w_i²``."""
        return 0.5 * float(self.l2 @ (weights * weights))

    def value(self, weights: FloatArray) -> float:
        """Both parts together."""
        return self.quadratic(weights) + float(self.l1 @ np.abs(weights))

    def subgradient(self, weights: FloatArray, grad: FloatArray) -> FloatArray:
        """The shortest element of ``grad + ∂ Σ_i l1_i |w_i|``: zero exactly at a minimum of the penalized objective."""
        return np.where(weights == 0, soft_threshold(grad, self.l1), grad + self.l1 * np.sign(weights))


def soft_threshold(values: FloatArray, threshold: FloatArray) -> FloatArray:
    """Values moved toward zero by the threshold, and zero where they are no larger."""
    return np.sign(values) * np.maximum(np.abs(values) - threshold, 0.0)


@dataclass(frozen=True, eq=False)
class Solution:
    """Where a solve ended, and how.

    Args:
        weights: the best weights found; always finite.
        value: the objective there, penalty included (infinite when interrupted before the first evaluation).
        iterations: iterations completed.
        converged: whether the solver's own criterion was met.
        message: the same in words, for people.
        gradient_norm: length of the shortest subgradient of the objective; None if it says nothing about the optimum
            (the bundle method's objective has kinks).
        lower_bound: a lower bound of the objective, if the solver certifies one.
        interrupted: ended by Ctrl-C.
        zero_is_optimal: the certificate says that no weights beat w = 0 by more than the tolerance.
        near_zero_solution: the same for a hundred tolerances: the ranking depends on where the solve stopped.
        evaluations: how often L was evaluated.
    """

    weights: FloatArray
    value: float
    iterations: int
    converged: bool
    message: str
    gradient_norm: float | None = None
    lower_bound: float | None = None
    interrupted: bool = False
    zero_is_optimal: bool = False
    near_zero_solution: bool = False
    evaluations: int = 0

    @property
    def gap(self) -> float | None:
        """``value - lower_bound``: how far, at most, the value lies above the optimum."""
        return None if self.lower_bound is None else max(0.0, self.value - self.lower_bound)


class Point(NamedTuple):
    """The objective and its parts at some weights."""

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
    """One solve under way: evaluates the penalized objective and remembers the best point."""

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
        if not np.isfinite(weights).all():  # a trial may go too far; the objective need not handle that
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

    @property
    def steps(self) -> str:
        """The number of iterations so far, in words: without `count_of`, a fit runs through one module less."""
        return f"{self.iterations:,} iteration{'' if self.iterations == 1 else 's'}"

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

        `further`: fields of the `Solution` that differ from their defaults.
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

    supports_l1: ClassVar[bool] = False

    @property
    @abstractmethod
    def defaults(self) -> tuple[float, int]:
        """The default tolerance and the default of the largest number of iterations."""

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
        """Minimize ``objective + penalty`` from `start`.

        Args:
            objective: L; the solver's class says which optional methods it must have.
            start: weights to start from, (d,).
            penalty: l2 and l1 for each weight.
            tolerance: when to stop; the solver's class says what it measures, and the default.
            max_iterations: at most so many iterations; the default is the solver's.
            callback: called after each iteration; see `Callback`.
        """
        tolerance = self.defaults[0] if tolerance is None else tolerance
        limit = self.defaults[1] if max_iterations is None else max_iterations
        if not 0 <= tolerance < math.inf:
            raise DataError(f"tolerance must be 0 or more and finite, not {tolerance}.")
        if limit < 1:
            raise DataError(f"max_iterations must be at least 1, not {limit}.")
        if penalty.l1.any() and not self.supports_l1:
            raise DataError(f"{type(self).__name__} cannot handle an L1 penalty; use Proximal.")
        run = SolverRun(objective, start, penalty, callback)
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a trial may go too far; we look
                return self._solve(run, tolerance, limit)
        except StopOptimization as stop:
            reason = f": {stop}" if str(stop) else ""
            return run.solution(f"Stopped by the callback after {run.steps}{reason}.")
        except Stuck as stuck:
            return run.solution(f"Not converged: after {run.steps} {stuck}")
        except KeyboardInterrupt:
            return run.solution(f"Interrupted after {run.steps}; these are the best weights so far.", interrupted=True)

    @abstractmethod
    def _solve(self, run: SolverRun, tolerance: float, max_iterations: int) -> Solution:
        """The method itself."""


def hessian_of(run: SolverRun, weights: FloatArray) -> FloatArray:
    """The Hessian of L plus the quadratic penalty, (d, d), a fresh array."""
    if out_of_time():
        raise Stuck(OUT_OF_TIME)
    hessian = np.array(cast(HasHessian, run.objective).hessian(weights), dtype=np.float64)
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
        size = run.relative_gradient(point)
        if size <= tolerance:
            return _ended(run, point, f"the gradient is {size:.1e} of what pulled at the start.")
        if run.iterations == max_iterations:
            return run.solution(
                f"Not converged: after {run.steps} the gradient is still {size:.1e} of what pulled at the start "
                f"({tolerance:.1e} was asked for). Allow more iterations, or raise the penalty."
            )
        trial = next_point(point, size)
        if trial is None:
            return run.solution(
                f"Not converged: after {run.steps} no step lowers the value {point.value:.6g}. {advice}"
            )
        if trial is point:
            return _ended(run, point, "the next step would change the value by rounding only.")
        point = trial
        run.tell(point, f"gradient {run.relative_gradient(point):.1e} of what pulled at the start")


def _ended(run: SolverRun, point: Point, reason: str) -> Solution:
    """Converged, unless there is no optimum to converge to.

    If a plane separates the labels and no penalty holds the weights, the loss falls for ever while its gradient
    vanishes. Then twice the weights have a lower value still, which is never so at an optimum.
    """
    if not (run.penalty.l2.any() or run.penalty.l1.any()) and point.weights.any():
        twice = run.at(2 * point.weights, candidate=False)
        if twice.is_finite and twice.value < point.value - NOISE * abs(point.value):
            return run.solution(
                f"Not converged: after {run.steps} {reason.removesuffix('.')}, but twice the weights have a lower "
                "value: it falls for ever, as where the labels can be separated, and there is no optimum. Set l2 "
                "above 0."
            )
    return run.solution(f"Converged in {run.steps}: {reason}", converged=point)


def negligible(slope: float, value: float) -> bool:
    """Whether half the decrease that a Newton-like step promises, ``-slope / 2``, is below rounding."""
    return -slope <= 2 * ROUNDING * abs(value)


def backtrack(run: SolverRun, point: Point, direction: FloatArray, slope: float, trials: int = TRIALS) -> Point | None:
    """Go by the first of the steps 1, shorter, shorter … that lowers the value enough; None if none does.

    `slope` is the change per unit of the step that the caller's model promises, a negative number.
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


def until_finite(run: SolverRun, point: Point, step: FloatArray) -> Point | None:
    """The point after the whole step, or after a part of it short enough for a finite objective; None if none is."""
    for _ in range(TRIALS):
        trial = run.at(point.weights + step)
        if trial.is_finite:
            return trial
        step = 0.5 * step
    return None
