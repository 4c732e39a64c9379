"""A cutting-plane (bundle) method for convex losses with kinks, with a certified lower bound of the optimum.

Every evaluation gives a cut, ``L(v) ≥ L(w) + g·(v - w)`` for all v. The maximum of the cuts plus the quadratic penalty
is a model that bounds the objective from below, so its minimum is a lower bound; the lowest value so far is an upper
bound, and the solve ends when they meet. With ``a_j = g_j / √l2`` and ``b_j = L(w_j) - g_j·w_j`` the dual of the model
is ``max_α bᵀα - ½‖Σ_j α_j a_j‖²`` over the simplex, and *every* α in the simplex gives a valid bound: the certificate
does not depend on how accurately the dual was solved (Teo et al. 2010; Franc and Sonnenburg 2008).

The minimizer of the model is a poor point for the next cut, since the first models are inaccurate. The method evaluates
at a fraction of the way from the best point to the minimizer. The fraction grows after a step that ended before the
minimum along the way and shrinks after one that overshot, to no less than 1/20. If such a cut does not improve the
model at its minimizer, the value there must improve the best point, so one of the two bounds always moves. On LETOR
data with small penalties this takes a third of the evaluations of the textbook method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from toprank import kernels
from toprank.compute import FloatArray
from toprank.errors import DataError
from toprank.solvers.base import TRIALS, Penalty, Point, Solution, Solver, SolverRun

MIN_STEP_FRACTION = 0.05  # of the way from the best point to the model's minimizer
FREE_SLOPE = 1e-12  # slopes of unpenalized weights up to this fraction of the largest slope are rounding
ZERO_PATIENCE = 200  # iterations beyond the tolerance to decide whether any weights beat w = 0
ZERO_TOLERANCE = 1e-3  # a gap of at most this fraction of the tolerance decides whether w = 0 is optimal
GAIN_TOLERANCE = 0.01  # a gap of at most this fraction of the possible gain over w = 0 determines the weights


@dataclass(frozen=True)
class Bundle(Solver):
    """Cutting planes for convex objectives, smooth or not, with a certified duality gap.

    Needs the value and a subgradient of a convex L, and ``l2 > 0`` for every weight that L depends on. An unpenalized
    weight (``l2 = 0``) keeps its initial value if L does not depend on it, such as an intercept under a shift-invariant
    loss; otherwise the model has no minimum and the solve is refused. Converged if
    ``value - lower_bound ≤ tolerance · |value|`` (default 1e-6); at most 5,000 iterations by default, with one
    evaluation each. Memory is O(cuts · (d + cuts)). A cut that had no weight in the last `max_idle` models is dropped,
    which never lowers the bound.

    `Solution.zero_is_optimal` is set if no weights beat w = 0 by more than the tolerance. `Solution.near_zero_solution`
    is set if the optimum is below the value at zero by at most a hundred times the gap or the tolerance (at most 1e-6);
    the message reports either. If the gap exceeds a hundredth of the possible gain over w = 0, the method continues
    until it no longer does, until it is a thousandth of the tolerance, or for 200 iterations: weights that gain little
    still rank, and the tolerance should not decide the ranking.

    Args:
        max_idle: number of consecutive models in which a cut may have no weight before it is dropped.

    >>> class Hinge:
    ...     n_weights = 1
    ...     def value_and_grad(self, w): return max(0.0, 1 - w[0]), np.array([-1.0 if w[0] < 1 else 0.0])
    >>> solution = Bundle().solve(Hinge(), [0.0], Penalty.uniform(1, l2=0.5))
    >>> solution.weights.round(4).tolist(), round(solution.lower_bound, 4), solution.converged
    ([1.0], 0.25, True)
    """

    max_idle: int = 10
    defaults = 1e-6, 5000

    def __post_init__(self) -> None:
        if self.max_idle < 1:
            raise DataError(f"max_idle must be at least 1, not {self.max_idle}.")

    def _solve(self, run: SolverRun, tolerance: float, max_iterations: int) -> Solution:
        run.has_kinks = True
        cuts = _Cuts(run.penalty, self.max_idle)
        best, zero = self._first_cuts(run, cuts)
        part, patience = 0.1, ZERO_PATIENCE
        while True:
            target, bound = cuts.minimize(best.weights, 1e-4 * tolerance * abs(best.value))
            run.lower_bound = max(run.lower_bound, bound)
            gap = best.value - run.lower_bound
            if gap < -1e-9 * abs(best.value):
                return run.solution(
                    f"Not converged: after {run.steps} the lower bound {run.lower_bound:.6g} exceeds the "
                    f"value {best.value:.6g}, so the loss is not convex (or its gradient is no subgradient). Use LBFGS."
                )
            if gap <= tolerance * abs(best.value):
                patience -= 1
                settled = _is_settled(best, zero, run.lower_bound, tolerance)
                if settled or patience == 0 or run.iterations == max_iterations:
                    return self._converged(run, best, zero, tolerance)
            if run.iterations == max_iterations:
                return run.solution(
                    f"Not converged: after {run.steps} the value {best.value:.6g} may be "
                    f"{_share(gap, best.value)} above the optimum (tolerance {tolerance:.1e}). Raise max_iterations, "
                    "or raise the penalty."
                )
            trial, part = self._cut(run, cuts, best, target, part)
            if trial is None:
                return run.solution(
                    f"Not converged: after {run.steps} the loss is not finite even close to the best "
                    "weights. Standardize the features, or raise the penalty."
                )
            best = run.best or best
            run.tell(best, f"the value may be {_share(gap, best.value)} above the optimum")

    def _first_cuts(self, run: SolverRun, cuts: _Cuts) -> tuple[Point, Point]:
        """Add cuts at the start and at zero; the value at zero is needed to certify that no weights beat it."""
        start = run.begin()
        cuts.add(start)
        zero = run.at(np.where(run.penalty.l2 > 0, 0.0, start.weights)) if cuts.penalized(start).any() else start
        if zero is not start and zero.is_finite:
            cuts.add(zero)
        return (zero if zero.is_finite and zero.value <= start.value else start), zero

    def _cut(
        self, run: SolverRun, cuts: _Cuts, best: Point, target: FloatArray, part: float
    ) -> tuple[Point | None, float]:
        """Evaluate between the best point and the model's minimizer; also return the next step fraction."""
        way = target - best.weights
        for _ in range(TRIALS):
            trial = run.at(best.weights + part * way)
            if trial.is_finite:
                cuts.add(trial)
                falling = float(trial.grad @ way) < 0
                return trial, (min(1.0, 2 * part) if falling else max(MIN_STEP_FRACTION, 0.7 * part))
            part /= 2
        return None, part

    def _converged(self, run: SolverRun, best: Point, zero: Point, tolerance: float) -> Solution:
        bound = min(run.lower_bound, best.value)
        certified = f"(certified lower bound {bound:.9g})"
        to_gain, gap, at_zero = zero.value - bound, best.value - bound, abs(zero.value)
        if not (zero.is_finite and to_gain * GAIN_TOLERANCE <= max(gap, min(tolerance, self.defaults[0]) * at_zero)):
            message = f"the value {best.value:.6g} is at most {_share(gap, best.value)} above the optimum {certified}."
            return run.solution(f"Converged in {run.steps}: {message}", converged=best)
        advice = ""
        if best.value < zero.value:
            claim = "these weights are hardly better than w = 0"
            advice = (
                " Their ranking depends on the tolerance and on few queries: lower the tolerance and check whether the "
                "ranking changes; if so, use another loss or penalty."
            )
        elif to_gain <= ZERO_TOLERANCE * tolerance * at_zero:
            claim = "the optimum is w = 0"
        else:
            claim = "no better weights than w = 0 were found"
        message = (
            f"{claim}: no weights lower the value {zero.value:.6g} at zero by more than {to_gain:.1e} {certified}."
        )
        beside_zero = {"zero_is_optimal": to_gain <= tolerance * at_zero, "near_zero_solution": True}
        return run.solution(f"Converged in {run.steps}: {message}{advice}", converged=best, **beside_zero)


def _is_settled(best: Point, zero: Point, bound: float, tolerance: float) -> bool:
    """Return whether it is decided that zero is beaten: by weights with nearly all of the possible gain, or by none."""
    to_gain, gap = zero.value - bound, best.value - bound
    return not zero.is_finite or gap <= GAIN_TOLERANCE * to_gain or gap <= ZERO_TOLERANCE * tolerance * abs(zero.value)


def _share(gap: float, value: float) -> str:
    return f"{gap / abs(value):.1e} of itself" if value else f"{gap:.1e}"


class _Cuts:
    """The cuts, their Gram matrix and the dual weights of the last model, in arrays with spare capacity."""

    def __init__(self, penalty: Penalty, max_idle: int) -> None:
        self.free, self.max_idle = penalty.l2 == 0, max_idle
        self.root = np.sqrt(penalty.l2[~self.free])
        if not len(self.root):
            raise DataError("Bundle needs l2 > 0, since its model has no minimum without a penalty. Use a small l2.")
        room = 128
        self.n = 0
        self.slopes, self.offsets = np.zeros((room, len(self.root))), np.zeros(room)
        self.gram = np.zeros((room, room))
        self.alpha, self.unused = np.zeros(room), np.zeros(room, np.int64)

    def penalized(self, point: Point) -> FloatArray:
        weights: FloatArray = point.weights[~self.free]
        return weights

    def add(self, point: Point) -> None:
        """Add the cut at a point; refuse one with a slope along an unpenalized weight."""
        d_free = np.abs(point.d_loss[self.free])
        if (d_free > FREE_SLOPE * np.abs(point.d_loss).max()).any():
            place = int(np.flatnonzero(self.free)[np.argmax(d_free)])
            raise DataError(
                f"Bundle needs l2 > 0 on every weight that the loss depends on, but weight {place} has none. Give it a "
                "small l2, or use LBFGS."
            )
        if self.n == len(self.offsets):
            self._make_room()
        n = self.n
        slope = point.d_loss[~self.free] / self.root
        self.slopes[n] = slope
        self.offsets[n] = point.loss - float(point.d_loss[~self.free] @ self.penalized(point))
        self.gram[n, : n + 1] = self.gram[: n + 1, n] = self.slopes[: n + 1] @ slope
        self.alpha[n] = 0.0 if n else 1.0
        self.unused[n] = 0
        self.n += 1

    def minimize(self, weights: FloatArray, accuracy: float) -> tuple[FloatArray, float]:
        """Return the model's minimizer (unpenalized weights as in `weights`) and a certified lower bound of its
        minimum.
        """
        n = self.n
        alpha, offsets = self.alpha[:n], self.offsets[:n]
        kernels.minimize_on_simplex(self.gram[:n, :n].copy(), offsets, alpha, accuracy)
        self.unused[:n] = np.where(alpha > 0, 0, self.unused[:n] + 1)
        slope = alpha @ self.slopes[:n]
        target = weights.copy()
        target[~self.free] = -slope / self.root
        return target, float(offsets @ alpha) - 0.5 * float(slope @ slope)

    def _make_room(self) -> None:
        """Drop idle cuts; double the capacity if most cuts are in use."""
        kept = np.flatnonzero(self.unused[: self.n] <= self.max_idle)
        room = len(self.offsets) * (2 if len(kept) > 0.7 * self.n else 1)
        gram = np.zeros((room, room))
        gram[: len(kept), : len(kept)] = self.gram[np.ix_(kept, kept)]
        self.gram, self.n = gram, len(kept)
        for name in ("slopes", "offsets", "alpha", "unused"):
            old = getattr(self, name)
            new = np.zeros((room, *old.shape[1:]), old.dtype)
            new[: len(kept)] = old[kept]
            setattr(self, name, new)
