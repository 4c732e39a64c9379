"""How click models are fitted.

Expectation and maximization, accelerated: two steps tell where they lead, and the third begins there. Where few
probabilities are shared and each of the others is known once these are, Newton's method on the few: it takes ten steps
where the other takes a hundred, or thousands where hardly a swap joins the places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.clicks.log import ClickLog
from toprank.compute import FloatArray

_MIN_PROBABILITY = 1e-9  # probabilities stay so far from 0 and 1, where a step of the algorithm could not leave again
_BLOCK_SIZE = 1 << 16  # pairs or impressions that a thread takes at a time
_MAX_HALVINGS = 60  # of a step: the sixtieth moves nothing
_CONVERGENCE_TOLERANCE = 1e-5  # of a probability that has no farther to go, it may be said that it has come to rest
# From probabilities to better ones, and the objective at those that were given.
Step = Callable[[FloatArray], tuple[FloatArray, float]]


class FittedPositions(NamedTuple):
    """What a method that learns propensities together with documents gives."""

    values: FloatArray  # the propensity of each position, relative to the first
    at: FloatArray  # all that was fitted, to begin another fit with
    converged: bool
    ranker: Any = None  # what learned the documents, if a ranker did
    offsets: FloatArray | None = None  # β of each position, if the method knows of trust


class Maximum(NamedTuple):
    """Where the algorithm came to rest."""

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
    """Repeat `step` until the objective rises by no more than `tolerance` (SQUAREM: Varadhan and Roland, 2008).

    A leap that leads to a lower objective is taken back, so that the objective never falls. Where it is flat it rises
    by next to nothing while what is read off the probabilities still has far to go: as far as two steps foretell, as a
    geometric series. So there is a second condition: that way is no longer than `still`.
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
    """Return how far the number that has farthest to go still has to go, if all steps shrink as the last one did."""
    x, first, second = np.nan_to_num(x), np.nan_to_num(first), np.nan_to_num(second)  # NaN: nothing tells it
    change, turn = first - x, second - 2 * first + x
    longer = _stretch(change, turn)
    return max(longer, 1.0) * float(np.abs(second - first).max(initial=0.0))


def _stretch(change: FloatArray, turn: FloatArray) -> float:
    """|change| / |turn|."""
    return float(np.sqrt(product(change, change) / max(product(turn, turn), 1e-300)))


def product(a: FloatArray, b: FloatArray) -> float:
    """Σ a b. Not by BLAS: its threads would be woken for it and spin on, and its bits depend on how many they are.

    >>> product(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    return float((a * b).sum())


def climb(step: Step, start: FloatArray, tolerance: float, max_iterations: int) -> Maximum:
    """`maximize` for steps that end in a set which leaps may leave: only where a leap leads after a step is judged.

    So for what a ranker can say of documents: no leap from two of its answers need be one.
    """
    x, value = inside(start), -np.inf
    first, _ = step(x)
    x, (first, value), steps = first, step(first), 2  # the start may be none of the set's
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
    """Newton's method for a few probabilities of which an objective is concave in the logarithms.

    `profile` gives its slope and minus its curvature in the logarithms (the lower half will do). A step ends where the
    next would raise the objective by no more than `tolerance`, and move nothing that is read off by more than
    `_CONVERGENCE_TOLERANCE`.

    Returns the probabilities, the number of steps, and whether they converged.
    """
    x = inside(start)
    slope, curvature = profile(x)
    for steps in range(1, max_iterations + 1):
        way = solved(curvature, slope)
        promised = product(slope, way)
        # A probability goes no farther than nine tenths of the way to 1, where the prior would never let it arrive.
        share = min(1.0, 0.9 * float(np.min(-np.log(x) / np.maximum(way, 1e-300))))
        for _ in range(_MAX_HALVINGS):
            there = inside(x * np.exp(share * way))
            slope, curvature = profile(there)
            if product(slope, way) >= -0.5 * promised:  # beyond the top of the way, it falls; a little is no harm
                break
            share /= 2
        moved = float(np.abs(read(there) - read(x)).max(initial=0.0))
        x = there
        if share == 1.0 and promised <= 2 * tolerance and moved <= _CONVERGENCE_TOLERANCE:
            return x, steps, True
    return x, max_iterations, False


def solved(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """The x of A x = b, where A is symmetric and positive definite; its lower half is looked at.

    By hand, like `product`, since the bits of LAPACK depend on the number of its threads.

    >>> solved(np.array([[4.0, 9.0], [2.0, 2.0]]), np.array([6.0, 4.0])).tolist()
    [1.0, 1.0]
    """
    n, lower, x = len(right), np.tril(matrix), np.array(right, dtype=np.float64)
    for j in range(n):  # Cholesky's root, a column at a time
        lower[j:, j] -= (lower[j:, :j] * lower[j, :j]).sum(axis=1)
        lower[j:, j] /= np.sqrt(max(float(lower[j, j]), 1e-300))
    for j in range(n):
        x[j] = (x[j] - product(lower[j, :j], x[:j])) / lower[j, j]
    for j in reversed(range(n)):
        x[j] = (x[j] - product(lower[j + 1 :, j], x[j + 1 :])) / lower[j, j]
    return x


def inside(probabilities: FloatArray) -> FloatArray:
    """Numbers as probabilities that can still move."""
    return np.clip(probabilities, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)


def rate_prior(
    log: ClickLog, impressions: float = 2.0, looked_at: npt.NDArray[np.bool_] | None = None
) -> tuple[float, float]:
    """A prior of so many impressions with the rate of clicks on what was looked at, as clicks and skips.

    By default that is the first position of the log: all users look there, so that the rate is the mean
    attraction of what was shown. A prior with another mean draws rarely shown documents to it, and so the examination
    of the positions at which they stand the other way. Models that know by themselves what was looked at take the rate
    of that: the rates of clicks all impressions, `Cascade` those down to the first click, `DCM` and `SDBN` those down
    to the last (all of a list without one).

    >>> rate_prior(ClickLog.from_columns(["q"] * 4, ["a"] * 4, [1] * 4, [1, 0, 0, 0]))
    (0.6, 1.4)
    """
    if looked_at is None:
        looked_at = log.position == (log.position.min() if log.n_impressions else 1)
    clicks = log.clicks[looked_at]
    rate = (float(clicks.sum()) + 0.5) / (len(clicks) + 1)
    return impressions * rate, impressions * (1 - rate)


def blocks(n: int) -> list[tuple[int, int]]:
    """Ranges of equally many, whatever the number of threads: sums do not depend on it."""
    return [(first, min(first + _BLOCK_SIZE, n)) for first in range(0, n, _BLOCK_SIZE)]
