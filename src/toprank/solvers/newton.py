"""Newton's method, with exact or Gauss-Newton curvature.

Up to `cholesky_limit` weights the Hessian is formed and factorized; above, conjugate gradients use Hessian-vector
products and are solved only as accurately as the outer iteration requires. A line search makes the method robust far
from the optimum. A Levenberg shift handles curvature that is singular, indefinite or only an approximation
(Gauss-Newton): if no step along the Newton direction lowers the value, the shift grows and the direction approaches
steepest descent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray, out_of_time
from toprank.errors import DataError
from toprank.solvers.base import (
    OUT_OF_TIME,
    HasHessianProduct,
    Point,
    Solution,
    Solver,
    SolverRun,
    Stuck,
    backtrack,
    descend,
    hessian_of,
    negligible,
    offers,
    until_finite,
)

FLAT = 1e-15  # curvature below this fraction of the largest is the rounding error of terms that cancel
SAFE_PIVOT = 1e-13  # a Cholesky pivot below this fraction of its diagonal entry is rounding, not curvature
FIRST_SHIFT = 1e-10
LARGEST_SHIFT = 1e12
HOPELESS_SHIFT = 1e30
CG_LIMIT = 1000
ADVICE = "Use GradientDescent if the gradient is not the derivative of the value, or Bundle if the loss has kinks."

Curved = Callable[[FloatArray, float, float], tuple[FloatArray, float]]
"""The curvature at some weights, as a function of a gradient, a shift and the required accuracy of the step.

Returns ``-(H + shift·D)⁻¹ grad`` and the shift used, which is larger if the given one is too small.
"""


@dataclass(frozen=True)
class Newton(Solver):
    """Newton's method with a line search, or with `full_steps` as in the cs-RgList paper.

    Needs `hessian`, or `hessian_product` above `cholesky_limit` weights. Converged if the gradient norm is at most
    `tolerance` (default 1e-8) times its initial scale (``max(‖∇L‖, ‖l2 w‖)`` at the start), or if the predicted
    decrease of the next step is below rounding. At most 100 iterations by default.

    Args:
        full_steps: take full Newton steps without a line search, shortened only if the value is not finite and shifted
            only if the Hessian is singular. Converged if ``‖step‖₁ < tolerance``, 1e-4 by default; at most 20
            iterations.
        cholesky_limit: maximum number of weights for which the Hessian is formed.

    >>> class Parabola:
    ...     n_weights = 2
    ...     def value_and_grad(self, w): return float(w @ w - 2 * w[0]), 2 * w - [2, 0]
    ...     def hessian(self, w): return 2 * np.eye(2)
    >>> from toprank.solvers import Penalty
    >>> solution = Newton().solve(Parabola(), [5.0, 5.0], Penalty.uniform(2, l2=2.0))
    >>> solution.weights.tolist(), solution.iterations, solution.converged
    ([0.5, 0.0], 1, True)
    """

    full_steps: bool = False
    cholesky_limit: int = 500

    @property
    @override
    def defaults(self) -> tuple[float, int]:
        return (1e-4, 20) if self.full_steps else (1e-8, 100)

    def _solve(self, run: SolverRun, tolerance: float, max_iterations: int) -> Solution:
        curvature = self._curvature(run)
        if self.full_steps:
            return _full_steps(run, curvature, tolerance, max_iterations)
        return descend(run, _NewtonSteps(run, curvature).next, tolerance, max_iterations, ADVICE)

    def _curvature(self, run: SolverRun) -> Callable[[FloatArray], Curved]:
        objective, n = run.objective, run.objective.n_weights
        if offers(objective, "hessian") and n <= self.cholesky_limit:
            return partial(_by_matrix, run)
        if offers(objective, "hessian_product"):
            return partial(_by_products, run)
        if offers(objective, "hessian"):
            raise DataError(
                f"Newton would form a Hessian of {n} × {n}, above cholesky_limit = {self.cholesky_limit}, and the "
                "objective has no hessian_product. Raise the limit or use LBFGS."
            )
        raise DataError("Newton needs a Hessian, but the objective has none; use LBFGS.")


def _by_matrix(run: SolverRun, weights: FloatArray) -> Curved:
    hessian = hessian_of(run, weights)
    return lambda grad, shift, _: levenberg_step(hessian, grad, shift)


def _by_products(run: SolverRun, weights: FloatArray) -> Curved:
    times, l2 = cast(HasHessianProduct, run.objective).hessian_product(weights), run.penalty.l2

    def step(grad: FloatArray, shift: float, accuracy: float) -> tuple[FloatArray, float]:
        ridge = shift * abs(float(grad @ (times(grad) + l2 * grad))) / float(grad @ grad) if shift else 0.0

        def shifted(v: FloatArray) -> FloatArray:
            if out_of_time():  # a product takes as long as an evaluation, and there may be up to CG_LIMIT of them
                raise Stuck(OUT_OF_TIME)
            product: FloatArray = times(v) + (l2 + ridge) * v
            return product

        return _conjugate_gradients(shifted, grad, accuracy), shift

    return step


def levenberg_step(hessian: FloatArray, grad: FloatArray, shift: float = 0.0) -> tuple[FloatArray, float]:
    """Return ``-(H + shift·D)⁻¹ grad`` with D = diag(H), and the smallest safe shift that is at least the given one.

    D instead of the identity makes the step independent of the units of the features. If the diagonal is (almost) zero,
    so is the gradient in reasonable problems; the floor of D only keeps the factorization possible. If the diagonal is
    zero up to rounding (a feature that is constant within every query, under a loss of score differences), so is the
    gradient, and their quotient would be noise: the largest curvature is used instead, so the step is 0 up to rounding.

    This function uses NumPy, whose BLAS is loaded already. SciPy brings its own BLAS, which would be loaded here, after
    a fit has limited the loaded BLAS libraries to one thread; the first fit of a process would then use more threads
    than the next.
    """
    diagonal = np.abs(hessian.diagonal())
    largest = float(diagonal.max())
    scale = np.maximum(diagonal, 1e-8 * largest) if largest > 0 else np.ones_like(diagonal)
    places = np.diag_indices_from(hessian)
    flat = np.where(diagonal < FLAT * largest, largest, 0.0)
    while True:
        shifted = hessian.copy()
        shifted[places] += flat
        shifted[places] += shift * scale
        try:
            if (np.linalg.cholesky(shifted).diagonal() ** 2 >= SAFE_PIVOT * scale).all():
                return np.asarray(np.linalg.solve(shifted, -grad), dtype=np.float64), shift
        except np.linalg.LinAlgError:
            pass
        shift = max(10 * shift, FIRST_SHIFT)
        if shift > HOPELESS_SHIFT:
            raise Stuck("no shift makes the Hessian positive definite; check that it is symmetric, or use LBFGS.")


def _conjugate_gradients(times: Callable[[FloatArray], FloatArray], grad: FloatArray, accuracy: float) -> FloatArray:
    """Solve ``H step = -grad`` until the residual is `accuracy` times the gradient, or until H has no positive
    curvature.
    """
    step = np.zeros_like(grad)
    residual = -grad
    direction = residual
    squared = first = float(residual @ residual)
    strongest = 0.0
    if not first:
        return step
    for _ in range(min(2 * len(grad), CG_LIMIT)):
        product = times(direction)
        length = float(direction @ direction)
        bend = float(direction @ product) / length
        strongest = max(strongest, bend)
        if not bend > SAFE_PIVOT * strongest:  # zero or negative curvature, or NaN
            return step if step.any() else -grad
        t = squared / (bend * length)
        step = step + t * direction
        residual = residual - t * product
        previous, squared = squared, float(residual @ residual)
        if squared <= accuracy**2 * first:
            break
        direction = residual + (squared / previous) * direction
    return step


class _NewtonSteps:
    """Newton steps with a line search; the shift carries over to the next iteration."""

    def __init__(self, run: SolverRun, curvature: Callable[[FloatArray], Curved]) -> None:
        self.run, self.curvature, self.shift = run, curvature, 0.0

    def next(self, point: Point, size: float) -> Point | None:
        """See `descend`."""
        accuracy = min(0.1, math.sqrt(size))  # increasing accuracy gives superlinear convergence at little cost
        curved = self.curvature(point.weights)
        while self.shift <= LARGEST_SHIFT:
            step, self.shift = curved(point.grad, self.shift, accuracy)
            slope = float(point.grad @ step)
            if negligible(slope, point.value):
                return point if slope <= 0 and self.shift <= 1 else None
            trial = backtrack(self.run, point, step, slope, trials=10)
            if trial is not None:
                self.shift = self.shift / 100 if self.shift > FIRST_SHIFT else 0.0
                return trial
            self.shift = max(100 * self.shift, 1e-6)
        return None


def _full_steps(
    run: SolverRun, curvature: Callable[[FloatArray], Curved], tolerance: float, max_iterations: int
) -> Solution:
    point = run.begin()
    length = math.inf
    while run.iterations < max_iterations:
        step, _ = curvature(point.weights)(point.grad, 0.0, 1e-10)
        trial = until_finite(run, point, step)
        if trial is None:
            return run.solution(
                f"Not converged: after {run.steps} the value is not finite, even for very short steps. "
                "Standardize the features, or raise the penalty."
            )
        point, length = trial, float(np.abs(step).sum())
        run.tell(point, f"step of length {length:.1e}")
        if length < tolerance:
            return run.solution(f"Converged in {run.steps}: the last step had length {length:.1e}.", converged=point)
    return run.solution(
        f"Not converged: after {run.steps} the last step has length {length:.1e} "
        f"(tolerance {tolerance:.1e}). Use a line search (full_steps=False), or raise the penalty."
    )
