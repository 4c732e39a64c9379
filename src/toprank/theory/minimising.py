"""The population minimiser: the scores that a loss would give to documents after endless data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.theory.population import Population

__all__ = ["Minimum", "population_minimiser"]

Expected = Callable[[FloatArray], tuple[float, FloatArray]]


class Minimum(NamedTuple):
    """Where the expected loss is smallest."""

    scores: FloatArray
    """One score for each document, (m,), with mean 0 where a shift changes nothing. A loss with several minimisers (the
    hinge) gives one of them; a loss without any (logistic pairs that are sure) ends at the border of the box."""
    value: float
    """The expected loss there."""
    gap: float
    """`value` is at most this much above the minimum over the box: a certificate where the loss is convex, else NaN."""


def population_minimiser(
    loss: Any,
    population: Population,
    *,
    convex: bool | None = None,
    radius: float = 30.0,
    tolerance: float = 1e-7,
    seed: int = 0,
) -> Minimum:
    """Minimise E[loss(y, s)] over free scores s, |s_j| ≤ radius.

    Quasi-Newton steps first; where they stall at a kink (hinge, a supremum), cutting planes finish the work. Both end
    with a bound on what is left to gain.

    Args:
        loss: anything with ``.on(labels, queries, query_weights=…).at(scores)`` that returns `.value` and `.grad`
            (all of toprank's losses in score space), or a function ``loss(labels, scores) -> (value, gradient)`` on
            one grade vector (m,).
        population: the documents and the distribution of their grades.
        convex: whether the loss is convex in the scores. Default: what its traits say, else True. A loss that is not
            is minimised from 16 random starts, without a certificate.
        radius: half the width of the box.
        tolerance: the gap to reach.
        seed: for the random starts.

    >>> squared = lambda labels, scores: (((scores - labels) ** 2).sum(), 2 * (scores - labels))
    >>> population_minimiser(squared, Population([[0, 1], [2, 1]], [0.5, 0.5])).scores.round(6).tolist()
    [1.0, 1.0]
    """
    if not 0 < radius < np.inf or not 0 < tolerance < np.inf:
        raise DataError("radius and tolerance must be positive and finite.")
    expected = _expected_loss(loss, population)
    if convex is None:
        convex = bool(getattr(getattr(loss, "traits", None), "convex", True))
    zero = np.zeros(population.n_documents)
    if convex:
        scores, value, gap = _descend(expected, zero, radius)
        if gap > tolerance:
            scores, value, gap = _cut(expected, scores, radius, tolerance)
    else:
        starts = np.random.default_rng(seed).normal(size=(16, len(zero)))
        scores, value, _ = min((_descend(expected, start, radius) for start in starts), key=lambda found: found[1])
        gap = float("nan")
    centred = scores - scores.mean()
    shift_is_free = expected(centred)[0] <= value + 1e-12 * abs(value)
    return Minimum(centred if shift_is_free else scores, value, gap)


def _expected_loss(loss: Any, population: Population) -> Expected:
    """S -> (E[loss(y, s)], its gradient): each outcome is a query of its own, weighted by its probability."""
    outcomes, chances = population.outcomes, population.probabilities
    r, m = outcomes.shape
    if hasattr(loss, "on"):
        bound = loss.on(outcomes.ravel(), Queries.from_sizes([m] * r), query_weights=chances)

        def by_queries(scores: FloatArray) -> tuple[float, FloatArray]:
            found = bound.at(np.tile(scores, r))
            return float(found.value), np.asarray(found.grad).reshape(r, m).sum(axis=0)

        return by_queries
    if not callable(loss):
        raise DataError("loss must be a loss of toprank, or a function (labels, scores) -> (value, gradient).")

    def by_outcomes(scores: FloatArray) -> tuple[float, FloatArray]:
        pairs = [loss(labels, scores) for labels in outcomes]
        values, grads = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
        return float(chances @ values), chances @ grads

    return by_outcomes


def _descend(expected: Expected, start: FloatArray, radius: float) -> tuple[FloatArray, float, float]:
    """Quasi-Newton inside the box, then Newton; the gap is that of the one tangent plane at the end."""
    from scipy.optimize import minimize

    box = [(-radius, radius)] * len(start)
    found = minimize(expected, start, jac=True, method="L-BFGS-B", bounds=box, options={"ftol": 0.0, "gtol": 1e-13})
    scores = np.asarray(found.x, dtype=np.float64)
    gap = _tangent_gap(expected, scores, radius)
    # A line search on values cannot see gradients below √ε; Newton steps on the gradient can.
    for _ in range(5):
        step = np.linalg.lstsq(_jacobian(expected, scores), expected(scores)[1], rcond=1e-6)[0]
        trial = np.clip(scores - step, -radius, radius)
        trial_gap = _tangent_gap(expected, trial, radius)
        if not trial_gap < gap:
            break
        scores, gap = trial, trial_gap
    return scores, expected(scores)[0], gap


def _tangent_gap(expected: Expected, scores: FloatArray, radius: float) -> float:
    """How far the tangent plane falls inside the box; a convex loss cannot fall further."""
    grad = expected(scores)[1]
    return float((grad * scores + np.abs(grad) * radius).sum())


def _jacobian(expected: Expected, scores: FloatArray, step: float = 1e-5) -> FloatArray:
    """Derivatives of the gradient by central differences, (m, m)."""
    shifts = step * np.eye(len(scores))
    columns = [(expected(scores + shift)[1] - expected(scores - shift)[1]) / (2 * step) for shift in shifts]
    return np.stack(columns, axis=1)


def _cut(expected: Expected, start: FloatArray, radius: float, tolerance: float) -> tuple[FloatArray, float, float]:
    """Kelley's cutting planes: the maximum of all tangent planes is a lower bound, and says where to look next."""
    from scipy.optimize import linprog

    m, best, lowest = len(start), start, np.inf
    planes: list[FloatArray] = []
    heights: list[float] = []
    bounds = [(-radius, radius)] * m + [(None, None)]
    goal, point, floor = np.append(np.zeros(m), 1.0), start, -np.inf
    for _ in range(2000):
        value, grad = expected(point)
        if value < lowest:
            best, lowest = point, value
        if lowest < floor - max(tolerance, 1e-8 * abs(lowest)):
            break  # a value below the floor: these are no tangent planes of a convex function
        if lowest - floor <= tolerance:
            return best, lowest, max(lowest - floor, 0.0)
        planes.append(np.append(grad, -1.0))
        heights.append(float(grad @ point - value))
        exact = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        found = linprog(goal, np.array(planes), np.array(heights), bounds=bounds, method="highs", options=exact)
        if found.x is None:
            break
        point, floor = np.asarray(found.x[:m]), float(found.x[m])
    raise DataError(
        f"The expected loss could not be minimised to within {tolerance:g}: it reached {lowest:g}, its lower bound "
        f"{floor:g}. Is it convex, with an exact gradient? Otherwise say convex=False, or raise the tolerance."
    )
