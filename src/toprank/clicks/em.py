"""Optimizers of click models.

`maximize` is expectation-maximization with SQUAREM acceleration: two steps give the direction of an extrapolation, from
which the next step starts. `ascend` is Newton's method on a profile likelihood, for models with few shared parameters.
It takes about ten steps, compared with a hundred for `maximize`, or thousands if few documents connect the places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.clicks.log import ClickLog
from toprank.compute import FloatArray

_MIN_PROBABILITY = 1e-9  # distance kept from 0 and 1, from which EM cannot move
_BLOCK_SIZE = 1 << 16  # pairs or impressions per task of a thread
_MAX_HALVINGS = 60  # after them, a step is below rounding
_CONVERGENCE_TOLERANCE = 1e-5  # remaining change below which a probability counts as converged
# Maps probabilities to improved ones and the objective at the given ones.
Step = Callable[[FloatArray], tuple[FloatArray, float]]


class FittedPositions(NamedTuple):
    """The result of a method that learns propensities together with documents."""

    values: FloatArray  # propensities relative to the first position
    at: FloatArray  # all fitted parameters, to initialize another fit
    converged: bool
    ranker: Any = None  # the ranker of the documents, if any
    offsets: FloatArray | None = None  # β of each position, if the method models trust bias


class Maximum(NamedTuple):
    """The result of an optimization."""

    at: FloatArray
    value: float
    steps: int
    converged: bool


def maximize(
    step: Step,
    start: FloatArray,
    tolerance: float,
    max_iterations: int,
    read: Callable[[FloatArray], FloatArray] = np.asarray,
    still: float = _CONVERGENCE_TOLERANCE,
) -> Maximum:
    """Repeat `step` until the objective rises by at most `tolerance` (SQUAREM: Varadhan and Roland, 2008).

    An extrapolation that lowers the objective is undone, so the objective never falls. Where the objective is flat, the
    parameters may still be far from the maximum. A second condition therefore limits the remaining change of the
    quantities that `read` returns, extrapolated as a geometric series, to `still`.
    """
    x = inside(start)
    first, value = step(x)
    steps = 1
    while steps < max_iterations:
        second, risen = step(first)
        steps += 1
        if risen - value <= tolerance and _way(read(x), read(first), read(second)) <= still:
            return Maximum(second, risen, steps, True)
        change, turn = first - x, second - 2 * first + x
        stretch = _stretch(change, turn)
        x, value, ahead = first, risen, second
        if stretch > 1 and steps < max_iterations:
            leap = inside(x - change + 2 * stretch * change + stretch**2 * turn)
            there, reached = step(leap)
            steps += 1
            if reached > risen:
                x, value, ahead = leap, reached, there
        first = inside(ahead)
    return Maximum(first, value, steps, False)


def _way(x: FloatArray, first: FloatArray, second: FloatArray) -> float:
    """Return the largest remaining change, if all further steps shrink at the same rate as the last one."""
    x, first, second = np.nan_to_num(x), np.nan_to_num(first), np.nan_to_num(second)  # NaN marks unidentified numbers
    change, turn = first - x, second - 2 * first + x
    longer = _stretch(change, turn)
    return max(longer, 1.0) * float(np.abs(second - first).max(initial=0.0))


def _stretch(change: FloatArray, turn: FloatArray) -> float:
    """Return |change| / |turn|."""
    return float(np.sqrt(product(change, change) / max(product(turn, turn), 1e-300)))


def product(a: FloatArray, b: FloatArray) -> float:
    """Return Σ a b without BLAS, whose threads would wake up and whose rounding depends on their number.

    >>> product(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    return float((a * b).sum())


def climb(step: Step, start: FloatArray, tolerance: float, max_iterations: int) -> Maximum:
    """Maximize like `maximize`, for steps whose results form a set that extrapolations may leave.

    Only the objective after a further step is compared. An example is the set of functions that a ranker can represent:
    an extrapolation of two of them need not be one.
    """
    x, value = inside(start), -np.inf
    first, _ = step(x)
    x, (first, value), steps = first, step(first), 2  # the start may lie outside the set
    while steps + 3 <= max_iterations:
        second, risen = step(inside(first))
        change, turn = first - x, second - 2 * first + x
        stretch = _stretch(change, turn)
        there, _ = step(inside(x + 2 * stretch * change + stretch**2 * turn))
        ahead, reached = step(inside(there))
        steps += 3
        best = (there, ahead, reached) if reached > risen else (first, second, risen)
        if best[2] - value <= tolerance:
            return Maximum(best[1], best[2], steps, True)
        x, first, value = best
    return Maximum(first, value, steps, False)


def ascend(
    profile: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    start: FloatArray,
    tolerance: float,
    max_iterations: int,
    read: Callable[[FloatArray], FloatArray] = np.asarray,
) -> tuple[FloatArray, int, bool]:
    """Maximize by Newton's method an objective that is concave in the logarithms of a few probabilities.

    `profile` returns the gradient and the negative Hessian in the logarithms; only the lower triangle is read. The
    iteration converges if the next step would raise the objective by at most `tolerance` and change what `read` returns
    by at most `_CONVERGENCE_TOLERANCE`.

    Returns the probabilities, the number of steps, and whether they converged.
    """
    x = inside(start)
    slope, curvature = profile(x)
    for steps in range(1, max_iterations + 1):
        way = solved(curvature, slope)
        promised = product(slope, way)
        # Move at most nine tenths of the way to 1, which the prior excludes.
        share = min(1.0, 0.9 * float(np.min(-np.log(x) / np.maximum(way, 1e-300))))
        for _ in range(_MAX_HALVINGS):
            there = inside(x * np.exp(share * way))
            slope, curvature = profile(there)
            if product(slope, way) >= -0.5 * promised:  # accept a slight overshoot along the step
                break
            share /= 2
        moved = float(np.abs(read(there) - read(x)).max(initial=0.0))
        x = there
        if share == 1.0 and promised <= 2 * tolerance and moved <= _CONVERGENCE_TOLERANCE:
            return x, steps, True
    return x, max_iterations, False


def solved(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Solve A x = b for a symmetric positive definite A; only its lower triangle is read.

    LAPACK is not used, because its rounding depends on the number of its threads.

    >>> solved(np.array([[4.0, 9.0], [2.0, 2.0]]), np.array([6.0, 4.0])).tolist()
    [1.0, 1.0]
    """
    n, lower, x = len(right), np.tril(matrix), np.array(right, dtype=np.float64)
    for j in range(n):  # Cholesky factorization by columns
        lower[j:, j] -= (lower[j:, :j] * lower[j, :j]).sum(axis=1)
        lower[j:, j] /= np.sqrt(max(float(lower[j, j]), 1e-300))
    for j in range(n):
        x[j] = (x[j] - product(lower[j, :j], x[:j])) / lower[j, j]
    for j in reversed(range(n)):
        x[j] = (x[j] - product(lower[j + 1 :, j], x[j + 1 :])) / lower[j, j]
    return x


def inside(probabilities: FloatArray) -> FloatArray:
    """Clip probabilities to the open interval (0, 1), from whose ends EM cannot move."""
    return np.clip(probabilities, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)


def rate_prior(
    log: ClickLog, impressions: float = 2.0, looked_at: npt.NDArray[np.bool_] | None = None
) -> tuple[float, float]:
    """Return a prior worth `impressions` impressions with the click rate on examined impressions, as clicks and
    skips.

    By default the examined impressions are those of the first position, which all users examine, so that the rate is
    the mean attraction of the shown documents. A prior with another mean would bias the attraction of rarely shown
    documents, and the examination of their positions in the opposite direction. Models that know which impressions were
    examined use the click rate of these: click rates use all impressions, `Cascade` those down to the first click, and
    `DCM` and `SDBN` those down to the last click (all impressions of a session without a click).

    >>> rate_prior(ClickLog.from_columns(["q"] * 4, ["a"] * 4, [1] * 4, [1, 0, 0, 0]))
    (0.6, 1.4)
    """
    if looked_at is None:
        looked_at = log.position == (log.position.min() if log.n_impressions else 1)
    clicks = log.clicks[looked_at]
    rate = (float(clicks.sum()) + 0.5) / (len(clicks) + 1)
    return impressions * rate, impressions * (1 - rate)


def blocks(n: int) -> list[tuple[int, int]]:
    """Return ranges of equal size, independent of the number of threads, so that sums are too."""
    return [(first, min(first + _BLOCK_SIZE, n)) for first in range(0, n, _BLOCK_SIZE)]
