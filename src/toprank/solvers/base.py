"""The problem that solvers minimize, its solution, and the code that all solvers share.

The problem is always ``min_w L(w) + Σ_i (l2_i / 2) w_i² + Σ_i l1_i |w_i|``. The `Objective` is L alone; the `Penalty`
holds l2 and l1 for each weight, so an intercept is simply a weight whose penalties are 0. A solver has no access to
queries, labels or losses: it only evaluates L, its gradient and, if it needs it, its curvature.

Every solve keeps three promises. Ctrl-C (or a callback that raises `StopOptimization`) returns the best weights so far.
The value at the returned weights is always finite. `Solution.message` describes how the solve ended; the caller decides
whether to warn.

`Solver` implements these promises for every method. `SolverRun` represents one solve: it evaluates the penalized
objective and remembers the best point. `descend` is the main loop of the methods that run until the gradient vanishes.
Step lengths come from backtracking for Newton steps and from the strong Wolfe conditions for quasi-Newton steps. Both
treat a value that is not finite as a step that is too long, and both accept an increase within rounding error, because
close to the optimum the sums behind a value are noisier than the decrease that a step predicts.
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

ROUNDING = 1e-15  # relative changes of the value below this are rounding errors of its floating-point sum
NOISE = 1e-14  # the same for differences of two values, which both have rounding errors
SUFFICIENT = 1e-4  # minimum fraction of the predicted decrease that a step must achieve (Armijo)
TRIALS = 50  # after this many halvings a step is below rounding
OUT_OF_TIME = "the time limit was reached; these are the best weights so far."

Callback = Callable[[int, FloatArray, float, str], None]
"""Called as ``callback(iteration, weights, value, message)`` after each iteration; may raise `StopOptimization`."""


class Objective(Protocol):
    """L(w), without the penalty. The gradient may be a subgradient if the solver accepts one."""

    @property
    def n_weights(self) -> int:
        """The number of weights d."""

    def value_and_grad(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """Return L and its gradient, (d,)."""


class HasHessian(Objective, Protocol):
    """An objective whose Hessian fits in memory."""

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Return a symmetric positive semi-definite matrix (d, d): the Hessian or an approximation."""


class HasHessianProduct(Objective, Protocol):
    """An objective that computes products with its Hessian."""

    def hessian_product(self, weights: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return the map v -> H v at these weights."""


def offers(objective: Objective, method: str) -> bool:
    """Return whether the objective has an optional method; an attribute that is None does not count."""
    return callable(getattr(objective, method, None))


class StopOptimization(Exception):  # noqa: N818 - a control-flow signal, not an error
    """Raised by a callback to end a solve early; its text becomes part of the solution's message."""


@dataclass(frozen=True, eq=False)
class Penalty:
    """``Σ_i (l2_i / 2) w_i² + Σ_i l1_i |w_i|`` with non-negative l2 and l1 for each weight; 0 for unpenalized weights.

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
                raise DataError(f"The penalty {name} must be finite and 0 or larger, not {worst:g}.")
            object.__setattr__(self, name, numbers)
        if self.l2.ndim != 1 or self.l1.shape != self.l2.shape:
            raise DataError(
                f"A penalty needs one l2 and one l1 for each weight, but their shapes are {self.l2.shape} and "
                f"{self.l1.shape}."
            )

    @classmethod
    def uniform(cls, n_weights: int, *, l2: float = 0.0, l1: float = 0.0, free: Sequence[int] | slice = ()) -> Penalty:
        """Return a penalty with the same `l2` and `l1` for all weights except the `free` ones, such as an intercept."""
        kept = np.ones(n_weights)
        kept[free if isinstance(free, slice) else list(free)] = 0.0
        return cls(l2 * kept, l1 * kept)

    def quadratic(self, weights: FloatArray) -> float:
        """Return ``Σ_i (l2_i / 2) w_i²``."""
        return 0.5 * float(self.l2 @ (weights * weights))

    def value(self, weights: FloatArray) -> float:
        """Return the sum of both penalties."""
        return self.quadratic(weights) + float(self.l1 @ np.abs(weights))

    def subgradient(self, weights: FloatArray, grad: FloatArray) -> FloatArray:
        """Return the shortest element of ``grad + ∂ Σ_i l1_i |w_i|``, which is zero exactly at a minimum."""
        return np.where(weights == 0, soft_threshold(grad, self.l1), grad + self.l1 * np.sign(weights))


def soft_threshold(values: FloatArray, threshold: FloatArray) -> FloatArray:
    """Shrink values toward zero by the threshold; smaller ones become zero."""
    return np.sign(values) * np.maximum(np.abs(values) - threshold, 0.0)


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of a solve.

    Args:
        weights: the best weights found; always finite.
        value: the objective at these weights, penalty included; infinite if interrupted before the first evaluation.
        iterations: number of completed iterations.
        converged: whether the solver's convergence criterion was met.
        message: how the solve ended, in words.
        gradient_norm: norm of the shortest subgradient; None if it does not measure optimality (the bundle method,
            whose objective has kinks).
        lower_bound: lower bound of the objective, if the solver certifies one.
        interrupted: whether Ctrl-C ended the solve.
        zero_is_optimal: whether the certificate excludes weights that beat w = 0 by more than the tolerance.
        near_zero_solution: the same for a hundred times the tolerance; the ranking then depends on when the solver
            stopped.
        evaluations: number of evaluations of L.
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
        """``value - lower_bound``, an upper bound of the distance to the optimal value."""
        return None if self.lower_bound is None else max(0.0, self.value - self.lower_bound)


class Point(NamedTuple):
    """The objective and its parts at some weights."""

    weights: FloatArray
    loss: float
    """The loss L."""
    d_loss: FloatArray
    """The gradient of L."""
    smooth: float
    """L plus the quadratic penalty."""
    grad: FloatArray
    """The gradient of `smooth`."""
    value: float
    """The whole objective."""

    @property
    def is_finite(self) -> bool:
        """True if value and gradient are finite."""
        return math.isfinite(self.value) and bool(np.isfinite(self.grad).all())


class Stuck(Exception):  # noqa: N818 - caught inside every solve
    """Raised if a method cannot continue; the text gives the reason and the remedy."""


class SolverRun:
    """One solve: evaluates the penalized objective and remembers the best point."""

    def __init__(
        self, objective: Objective, start: npt.ArrayLike, penalty: Penalty, callback: Callback | None = None
    ) -> None:
        self.objective, self.penalty, self.callback = objective, penalty, callback
        self.start = np.array(start, dtype=np.float64)
        n = objective.n_weights
        if self.start.shape != (n,) or penalty.l2.shape != (n,):
            raise DataError(
                f"The objective has {n} weights, but the initial weights have shape {self.start.shape} and the penalty "
                f"has {penalty.l2.shape}."
            )
        if not np.isfinite(self.start).all():
            raise DataError("The initial weights must be finite; use zeros instead.")
        self.iterations = self.evaluations = 0
        self.best: Point | None = None
        self.last: Point | None = None
        self.keeps_last = self.has_kinks = False
        self.lower_bound = -math.inf
        self.reference = 0.0

    def at(self, weights: FloatArray, *, candidate: bool = True) -> Point:
        """Evaluate the objective; remember the point if it is a finite `candidate` with the lowest value so far."""
        if self.best is not None and out_of_time():
            raise Stuck(OUT_OF_TIME)
        if not np.isfinite(weights).all():  # a trial step may be too long; objectives need not handle such weights
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
        """Return the first point: the initial weights, or zeros if the objective is not finite at these."""
        point = self.at(self.start)
        if not point.is_finite and self.start.any():
            point = self.at(np.zeros_like(self.start))
        if not point.is_finite:
            raise DataError(
                f"The objective is not finite at the start (value {point.value:g}); check the features and labels for "
                "huge or missing values, and standardize the features."
            )
        pulls = point.d_loss, self.penalty.l2 * point.weights, self.penalty.l1 * np.sign(point.weights)
        self.reference = max(float(np.linalg.norm(pull)) for pull in pulls)
        return point

    def gradient_norm(self, point: Point) -> float:
        """Return the norm of the shortest subgradient."""
        return float(np.linalg.norm(self.penalty.subgradient(point.weights, point.grad)))

    def relative_gradient(self, point: Point) -> float:
        """Return the gradient norm relative to its initial scale: the largest gradient of the loss or a penalty at the
        start.
        """
        norm = self.gradient_norm(point)
        return norm / self.reference if norm else 0.0

    @property
    def steps(self) -> str:
        """The number of iterations so far, in words (without `count_of`, which would load one more module)."""
        return f"{self.iterations:,} iteration{'' if self.iterations == 1 else 's'}"

    def tell(self, point: Point, message: str) -> None:
        """Count a completed iteration and call the callback."""
        self.iterations += 1
        self.last = point
        if self.callback is not None:
            self.callback(self.iterations, point.weights.copy(), point.value, message)
        if self.keeps_last and out_of_time():  # other runs check the time at their next evaluation
            raise Stuck(OUT_OF_TIME)

    def solution(self, message: str, *, converged: Point | None = None, **further: bool) -> Solution:
        """Return the solution at the point `converged`, else at the best point (or the last, if the run keeps the
        last).

        `further` sets fields of the `Solution` that differ from their defaults.
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
    """Base class of all solvers: a frozen dataclass of settings and one method."""

    supports_l1: ClassVar[bool] = False

    @property
    @abstractmethod
    def defaults(self) -> tuple[float, int]:
        """The default tolerance and the default limit of iterations."""

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
            objective: L; the class of the solver states which optional methods it must have.
            start: initial weights, (d,).
            penalty: l2 and l1 for each weight.
            tolerance: convergence tolerance; the class of the solver states the criterion and the default.
            max_iterations: limit of iterations. None for the solver's default.
            callback: function called after each iteration; see `Callback`.
        """
        tolerance = self.defaults[0] if tolerance is None else tolerance
        limit = self.defaults[1] if max_iterations is None else max_iterations
        if not 0 <= tolerance < math.inf:
            raise DataError(f"tolerance must be finite and 0 or larger, not {tolerance}.")
        if limit < 1:
            raise DataError(f"max_iterations must be at least 1, not {limit}.")
        if penalty.l1.any() and not self.supports_l1:
            raise DataError(f"{type(self).__name__} does not support an L1 penalty; use Proximal.")
        run = SolverRun(objective, start, penalty, callback)
        try:
            with np.errstate(
                over="ignore", invalid="ignore", divide="ignore"
            ):  # trial steps may overflow; results are checked
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
        """Run the method."""


def hessian_of(run: SolverRun, weights: FloatArray) -> FloatArray:
    """Return the Hessian of L plus the quadratic penalty, (d, d), as a new array."""
    if out_of_time():
        raise Stuck(OUT_OF_TIME)
    hessian = np.array(cast(HasHessian, run.objective).hessian(weights), dtype=np.float64)
    if not np.isfinite(hessian).all():
        raise Stuck("the Hessian is not finite. Standardize the features, or use LBFGS.")
    hessian[np.diag_indices_from(hessian)] += run.penalty.l2
    return hessian


def descend(
    run: SolverRun,
    next_point: Callable[[Point, float], Point | None],
    tolerance: float,
    max_iterations: int,
    advice: str,
) -> Solution:
    """Iterate until the norm of the shortest subgradient is at most `tolerance` times its initial scale.

    `next_point(point, size)`, where size is the relative gradient norm, returns a lower point; the point itself if only
    rounding is left to gain; or None if no step lowers the value, in which case `advice` is the remedy.
    """
    point = run.begin()
    while True:
        size = run.relative_gradient(point)
        if size <= tolerance:
            return _ended(run, point, f"the gradient norm fell to {size:.1e} of its initial scale.")
        if run.iterations == max_iterations:
            return run.solution(
                f"Not converged: after {run.steps} the gradient norm is {size:.1e} of its initial scale "
                f"(tolerance {tolerance:.1e}). Raise max_iterations, or raise the penalty."
            )
        trial = next_point(point, size)
        if trial is None:
            return run.solution(
                f"Not converged: after {run.steps} no step lowers the value {point.value:.6g}. {advice}"
            )
        if trial is point:
            return _ended(run, point, "the next step would change the value only by rounding.")
        point = trial
        run.tell(point, f"gradient {run.relative_gradient(point):.1e} of its initial scale")


def _ended(run: SolverRun, point: Point, reason: str) -> Solution:
    """Return a converged solution, or an unconverged one if the objective is unbounded.

    If the labels are separable and no weight is penalized, the loss decreases forever while its gradient vanishes.
    Doubling the weights then lowers the value, which cannot happen at an optimum.
    """
    if not (run.penalty.l2.any() or run.penalty.l1.any()) and point.weights.any():
        twice = run.at(2 * point.weights, candidate=False)
        if twice.is_finite and twice.value < point.value - NOISE * abs(point.value):
            return run.solution(
                f"Not converged: after {run.steps} {reason.removesuffix('.')}, but doubling the weights lowers the "
                "value further, so there is no optimum (the labels may be separable). Set l2 above 0."
            )
    return run.solution(f"Converged in {run.steps}: {reason}", converged=point)


def negligible(slope: float, value: float) -> bool:
    """Return whether half the decrease that a Newton-like step predicts, ``-slope / 2``, is below rounding."""
    return -slope <= 2 * ROUNDING * abs(value)


def backtrack(run: SolverRun, point: Point, direction: FloatArray, slope: float, trials: int = TRIALS) -> Point | None:
    """Return the first point on a step that shrinks from 1 that lowers the value enough; None if there is none.

    `slope` is the change per unit step that the caller's model predicts, a negative number.
    """
    step = 1.0
    for _ in range(trials):
        trial = run.at(point.weights + step * direction)
        if trial.is_finite and _is_enough(run, point, trial, direction, step, slope):
            return trial
        step *= _shorter(trial.value - point.value, step * slope) if trial.is_finite else 0.1
    return None


def _is_enough(run: SolverRun, point: Point, trial: Point, direction: FloatArray, step: float, slope: float) -> bool:
    """Return whether the value fell enough; if it changed only by rounding, whether the slope did not reverse as
    steeply.

    For a parabola the two conditions are the same (Hager and Zhang 2005), and slopes are more accurate than values
    here.
    """
    change = trial.value - point.value
    if abs(change) > NOISE * abs(point.value):
        return change <= SUFFICIENT * step * slope
    new_slope = float((trial.grad + run.penalty.l1 * np.sign(trial.weights)) @ direction)
    return new_slope <= (2 * SUFFICIENT - 1) * slope


def _shorter(change: float, promised: float) -> float:
    """Return the minimizer of the parabola through both values with the given slope, clipped to [0.1, 0.5]."""
    bend = change - promised
    return min(0.5, max(0.1, -0.5 * promised / bend)) if bend > 0 else 0.5


def until_finite(run: SolverRun, point: Point, step: FloatArray) -> Point | None:
    """Return the point after the whole step, or after the longest halved step with a finite objective, if any."""
    for _ in range(TRIALS):
        trial = run.at(point.weights + step)
        if trial.is_finite:
            return trial
        step = 0.5 * step
    return None
