"""What a solver asks for, and what it gives back.

The problem is always ``min_w L(w) + Σ_i (l2_i / 2) w_i² + Σ_i l1_i |w_i|``. The `Objective` is L alone; the `Penalty`
holds one number of each kind per weight, so an intercept is simply a weight whose numbers are 0. A solver never sees
a query, a label or a loss: it sees L's value and gradient, and its curvature where it says that it needs it.

Every solve keeps three promises. Ctrl-C (or a callback that raises `StopSolving`) returns the best weights so far. No
weights are returned at which the value is not finite. How the solve ended is said in words in `Solution.message`; to
warn or not to warn is up to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from toprank.compute import FloatArray
from toprank.errors import DataError

__all__ = [
    "Callback", "Objective", "Penalty", "Solution", "StopSolving", "WithHessian", "WithHessianTimes", "offers",
]  # fmt: skip

Callback = Callable[[int, FloatArray, float, str], None]
"""Called as ``callback(iteration, weights, value, message)`` after each iteration; raises `StopSolving` to stop."""


class Objective(Protocol):
    """L(w), without the penalty. Smooth or not: the gradient may be a subgradient where a solver allows it."""

    @property
    def n_weights(self) -> int:
        """Number d of weights."""

    def value_and_grad(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """L and its gradient (d,)."""


class WithHessian(Objective, Protocol):
    """An objective whose curvature fits in memory."""

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Symmetric positive semi-definite (d, d); exact or not."""


class WithHessianTimes(Objective, Protocol):
    """An objective whose curvature is known through products."""

    def hessian_times(self, weights: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """The map v -> H v at these weights."""


def offers(objective: Objective, method: str) -> bool:
    """Whether the objective has this optional method (absent, or None, where it has not)."""
    return callable(getattr(objective, method, None))


class StopSolving(Exception):  # noqa: N818 - a request, not an error
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
        """The shortest element of ``grad + ∂ Σ_i l1_i |w_i|``: zero exactly where no weight wants to move."""
        at_zero = np.sign(grad) * np.maximum(np.abs(grad) - self.l1, 0.0)
        return np.where(weights == 0, at_zero, grad + self.l1 * np.sign(weights))


@dataclass(frozen=True, eq=False)
class Solution:
    """Where a solve ended, and how.

    Args:
        weights: the best weights found; always finite.
        value: the objective there, penalty included (infinite when interrupted before the first evaluation).
        iterations: iterations completed.
        converged: whether the solver's own criterion was met.
        message: the same in words, for people.
        gradient_norm: length of the shortest subgradient of the objective; None where that says nothing (the bundle
            method's objective has kinks).
        lower_bound: a number that no weights can get below, where the solver certifies one.
        interrupted: ended by Ctrl-C.
        zero_is_optimal: the certificate says that no weights beat w = 0 by more than the tolerance.
        hardly_beats_zero: the same for a hundred tolerances: how the weights rank hangs on where the solve stopped.
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
    hardly_beats_zero: bool = False
    evaluations: int = 0

    @property
    def gap(self) -> float | None:
        """``value - lower_bound``: how far, at most, the value lies above the optimum."""
        return None if self.lower_bound is None else max(0.0, self.value - self.lower_bound)
