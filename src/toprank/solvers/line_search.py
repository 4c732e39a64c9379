"""How far to go along a direction: backtracking for Newton steps, strong Wolfe for quasi-Newton steps.

Both take a value that is not finite for "too far", and both forgive an increase that is mere rounding: close to the
optimum the sums behind a value are noisier than the decrease that a step promises.
"""

from __future__ import annotations

import math

import numpy as np

from toprank.compute import FloatArray
from toprank.solvers.run import Point, Run

__all__ = ["backtrack", "until_finite", "wolfe"]

SUFFICIENT = 1e-4  # a step must achieve this part of the decrease that its slope promises (Armijo)
CURVATURE = 0.9  # and leave at most this part of the slope (strong Wolfe)
NOISE = 1e-14
TRIALS = 50


def backtrack(run: Run, point: Point, direction: FloatArray, slope: float, trials: int = TRIALS) -> Point | None:
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


def _is_enough(run: Run, point: Point, trial: Point, direction: FloatArray, step: float, slope: float) -> bool:
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


def wolfe(run: Run, point: Point, direction: FloatArray, first: float = 1.0) -> Point | None:
    """A point with ``f ≤ f0 + 1e-4 t f0'`` and ``|f'| ≤ 0.9 |f0'|`` along the direction (smooth part only).

    The bracket [low, high] always holds such a point: at `low` the value is low enough but the slope is still steep,
    at `high` the value is too high, or not finite, or the slope has turned. When rounding hides it, the best step
    that lowered the value is returned; None when there was none.
    """
    slope0 = float(point.grad @ direction)
    low, high, low_slope, high_slope = 0.0, math.inf, slope0, math.nan
    found: Point | None = None
    step = first
    for _ in range(TRIALS):
        trial = run.at(point.weights + step * direction)
        promised = point.value + SUFFICIENT * step * slope0 + NOISE * abs(point.value)
        slope = float(trial.grad @ direction) if trial.is_finite else math.nan
        if trial.is_finite and trial.value <= promised:
            if found is None or trial.value <= found.value:
                found = trial
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
    return found


def _between(low: float, high: float, low_slope: float, high_slope: float) -> float:
    """The next step to try: farther out while nothing stops us, else the secant's zero kept off the bracket's ends."""
    if math.isinf(high):
        return 4.0 * low
    if not math.isfinite(high_slope):
        return low + 0.1 * (high - low)
    part = low_slope / (low_slope - high_slope) if high_slope > 0 else 0.5
    return low + min(0.9, max(0.1, part)) * (high - low)


def until_finite(run: Run, point: Point, step: FloatArray) -> Point | None:
    """The point after the whole step, or after a part of it where the objective is not finite; None without luck."""
    for _ in range(TRIALS):
        trial = run.at(point.weights + step)
        if trial.is_finite:
            return trial
        step = 0.5 * step
    return None
