"""Numerical checks of consistency: the scores that minimize the expected loss, and whether they rank optimally.

The setting is one set of documents whose grades are random with a known distribution. With unlimited data and free
scores, training finds the minimizer of the expected loss. The loss is consistent with a metric if that minimizer ranks
like the metric's optimum: by E[G(y) | x] for DCG (Theorem 1 of Cossock & Zhang 2008, Proposition 1 of Yang et al.
2010), by E[G(y)/IDCG | x] for NDCG.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product
from math import factorial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.evaluation import evaluate
from toprank.losses.base import Loss
from toprank.metrics import Gain, Measure, parse

_MAX_ROWS = 20_000_000  # maximum number of documents in one enumeration of all orders


class Population:
    """Distribution of the grade vectors of one set of m documents.

    Args:
        outcomes: grades, (r, m), one possible outcome in each row.
        probabilities: (r,), non-negative, with sum 1.

    A certain grade 1 against a rare grade 3:

    >>> population = Population([[1, 0], [1, 3]], [0.8, 0.2])
    >>> population.expected_gains().round(12).tolist()
    [1.0, 1.4]
    """

    def __init__(self, outcomes: npt.ArrayLike, probabilities: npt.ArrayLike) -> None:
        grades = np.asarray(outcomes, dtype=np.float64)
        chances = np.asarray(probabilities, dtype=np.float64)
        if grades.ndim != 2 or grades.size == 0 or not np.isfinite(grades).all():
            raise DataError(
                "outcomes must be a table of finite grades, with a row for each outcome and a column for each document."
            )
        if chances.shape != (len(grades),):
            raise DataError(f"There are {chances.size} probabilities for {len(grades)} outcomes.")
        if not (chances >= 0).all() or not np.isclose(chances.sum(), 1.0, rtol=0, atol=1e-9):
            raise DataError(f"Probabilities must be non-negative and sum to 1, not to {chances.sum():g}.")
        possible = chances > 0
        self.outcomes: FloatArray = np.ascontiguousarray(grades[possible])
        self.probabilities: FloatArray = chances[possible] / chances.sum()

    @classmethod
    def independent(cls, chances: npt.ArrayLike, grades: npt.ArrayLike | None = None) -> Population:
        """Return a population of independently graded documents: P(y_j = grades[g]) = chances[j, g], grades 0, 1, 2 …
        by default.

        >>> Population.independent([[0.5, 0.5], [0.0, 1.0]]).outcomes.tolist()
        [[0.0, 1.0], [1.0, 1.0]]
        """
        table = np.asarray(chances, dtype=np.float64)
        if table.ndim != 2 or table.size == 0:
            raise DataError("chances must be a table with one row for each document and one column for each grade.")
        values = np.arange(table.shape[1], dtype=np.float64) if grades is None else np.asarray(grades, dtype=np.float64)
        if values.shape != (table.shape[1],):
            raise DataError(f"There are {values.size} grades for {table.shape[1]} columns of chances.")
        picks = np.array(list(product(*(np.flatnonzero(row) for row in table))), dtype=np.int64)
        return cls(values[picks], np.prod(table[np.arange(len(table)), picks], axis=1))

    @property
    def n_documents(self) -> int:
        """Number of documents, m."""
        return int(self.outcomes.shape[1])

    def expected_gains(self, gain: Gain | str = "exponential", max_grade: float | None = None) -> FloatArray:
        """Return E[G(y_j)] for each document, (m,): the optimal scores for DCG."""
        top = float(self.outcomes.max()) if max_grade is None else max_grade
        gains = Gain.from_spec(gain).table(self.outcomes.ravel(), top).reshape(self.outcomes.shape)
        return np.asarray(self.probabilities @ gains)

    def expected(self, scores: npt.ArrayLike, metric: str | Measure, convention: str = "standard") -> FloatArray:
        """Return E[metric] of the rankings by `scores`, one ranking in each row: (m,) -> (1,), (s, m) -> (s,).

        Outcomes on which the metric is undefined are left out.
        """
        rankings = np.atleast_2d(np.asarray(scores, dtype=np.float64))
        r, m, s = len(self.outcomes), self.n_documents, len(rankings)
        if rankings.shape != (s, m):
            raise DataError(f"Each ranking needs {m} scores, not {rankings.shape[-1]}.")
        data = RankingData(
            np.empty((s * r * m, 0)), np.tile(self.outcomes.ravel(), s), queries=Queries.from_sizes([m] * (s * r))
        )
        evaluation = evaluate(np.repeat(rankings, r, axis=0).ravel(), data, [metric], convention=convention)
        values = evaluation.per_query[evaluation.names[0]].reshape(s, r)
        chances = np.where(np.isnan(values), 0.0, self.probabilities)
        return np.asarray((np.nan_to_num(values) * chances).sum(axis=1) / chances.sum(axis=1))


def order_agrees(scores: npt.ArrayLike, target: npt.ArrayLike, tolerance: float = 1e-6) -> bool:
    """Return whether ranking by `scores` ranks by `target`: target_i > target_j implies scores_i > scores_j.

    This is the condition before (7) of Yang et al. 2010. Differences of at most `tolerance` are ties, on both sides:
    equal targets may be in any order, but equal scores on different targets do not agree.

    >>> order_agrees([0.1, 0.9, 0.5], [1, 3, 1]), order_agrees([0.1, 0.9, 0.9], [1, 3, 2])
    (True, False)
    """
    s, t = np.asarray(scores, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if s.shape != t.shape or s.ndim != 1:
        raise DataError(f"scores and target must be lists of one length, not of shapes {s.shape} and {t.shape}.")
    better = t[:, None] - t[None, :] > tolerance
    above = s[:, None] - s[None, :] > tolerance
    return bool(above[better].all())


def optimal_order(
    population: Population, metric: str | Measure, convention: str = "standard"
) -> tuple[IntArray, float]:
    """Return the order of documents (best first) with the best expected metric, and its value, from all m! orders.

    The certain grade 1 beats the rare grade 3 under NDCG, but not under DCG:

    >>> population = Population([[1, 0], [1, 3]], [0.8, 0.2])
    >>> optimal_order(population, "dcg@1")[0].tolist(), optimal_order(population, "ndcg@1")[0].tolist()
    ([1, 0], [0, 1])
    """
    m, measure = population.n_documents, parse(metric)
    rows = factorial(m) * population.outcomes.size if m <= 12 else _MAX_ROWS + 1
    if rows > _MAX_ROWS:
        raise DataError(
            f"Trying all orders of {m} documents under {len(population.outcomes)} outcomes takes too long; m! × m × "
            f"outcomes may be at most {_MAX_ROWS:,}."
        )
    orders = np.array(list(permutations(range(m))), dtype=np.int64)
    scores = np.empty(orders.shape)
    np.put_along_axis(scores, orders, np.arange(m, 0, -1, dtype=np.float64)[None, :], axis=1)
    values = population.expected(scores, measure, convention)
    best = int(np.argmax(values if measure.higher_is_better else -values))
    return orders[best], float(values[best])


Expected = Callable[[FloatArray], tuple[float, FloatArray]]


class Minimum(NamedTuple):
    """Minimum of the expected loss."""

    scores: FloatArray
    """One score for each document, (m,), with mean 0 if a shift changes nothing. For a loss with several minimizers
    (the hinge) this is one of them; for a loss without any (logistic pairs in a certain order) it is at the border of
    the box."""
    value: float
    """The expected loss at the minimum."""
    gap: float
    """Upper bound on the distance of `value` to the minimum over the box if the loss is convex, else NaN."""


def population_minimizer(
    loss: Loss | Callable[[FloatArray, FloatArray], tuple[float, FloatArray]],
    population: Population,
    *,
    convex: bool | None = None,
    radius: float = 30.0,
    tolerance: float = 1e-7,
    seed: int = 0,
) -> Minimum:
    """Minimize E[loss(y, s)] over free scores s, |s_j| ≤ radius.

    The search starts with quasi-Newton steps; if they stall at a kink (hinge, a supremum), cutting planes continue.
    Both end with a bound on the remaining gap.

    Args:
        loss: anything with ``.on(labels, queries, query_weights=…).at(scores)`` that returns `.value` and `.grad`
            (all of toprank's losses in score space), or a function ``loss(labels, scores) -> (value, gradient)`` on
            one grade vector (m,).
        population: the documents and the distribution of their grades.
        convex: whether the loss is convex in the scores. Default: according to its traits, else True. A non-convex loss
            is minimized from 16 random starts, without a certificate.
        radius: half the width of the box. Default 30.
        tolerance: the gap to reach. Default 1e-7.
        seed: seed of the random starts. Default 0.

    >>> squared = lambda labels, scores: (((scores - labels) ** 2).sum(), 2 * (scores - labels))
    >>> population_minimizer(squared, Population([[0, 1], [2, 1]], [0.5, 0.5])).scores.round(6).tolist()
    [1.0, 1.0]
    """
    check_number("radius", radius, above=0)
    check_number("tolerance", tolerance, above=0)
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
        scores, value, _ = min((_descend(expected, start, radius) for start in starts), key=lambda descent: descent[1])
        gap = float("nan")
    centered = scores - scores.mean()
    shift_is_free = expected(centered)[0] <= value + 1e-12 * abs(value)
    return Minimum(centered if shift_is_free else scores, value, gap)


def _expected_loss(loss: Any, population: Population) -> Expected:
    """Return S -> (E[loss(y, s)], its gradient): each outcome is a separate query, weighted by its probability."""
    outcomes, chances = population.outcomes, population.probabilities
    r, m = outcomes.shape
    if hasattr(loss, "on"):
        bound = loss.on(outcomes.ravel(), Queries.from_sizes([m] * r), query_weights=chances)

        def by_queries(scores: FloatArray) -> tuple[float, FloatArray]:
            answer = bound.at(np.tile(scores, r))
            return float(answer.value), np.asarray(answer.grad).reshape(r, m).sum(axis=0)

        return by_queries
    if not callable(loss):
        raise DataError("loss must be a loss of toprank, or a function (labels, scores) -> (value, gradient).")

    def by_outcomes(scores: FloatArray) -> tuple[float, FloatArray]:
        pairs = [loss(labels, scores) for labels in outcomes]
        values, grads = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
        return float(chances @ values), chances @ grads

    return by_outcomes


def _descend(expected: Expected, start: FloatArray, radius: float) -> tuple[FloatArray, float, float]:
    """Minimize inside the box by quasi-Newton, then Newton steps; the gap follows from the final tangent plane."""
    from scipy.optimize import minimize

    box = [(-radius, radius)] * len(start)
    solved = minimize(expected, start, jac=True, method="L-BFGS-B", bounds=box, options={"ftol": 0.0, "gtol": 1e-13})
    scores = np.asarray(solved.x, dtype=np.float64)
    gap = _tangent_gap(expected, scores, radius)
    # A line search on values cannot resolve gradients below √ε; Newton steps on the gradient can.
    for _ in range(5):
        step = np.linalg.lstsq(_jacobian(expected, scores), expected(scores)[1], rcond=1e-6)[0]
        trial = np.clip(scores - step, -radius, radius)
        trial_gap = _tangent_gap(expected, trial, radius)
        if not trial_gap < gap:
            break
        scores, gap = trial, trial_gap
    return scores, expected(scores)[0], gap


def _tangent_gap(expected: Expected, scores: FloatArray, radius: float) -> float:
    """Return the maximum decrease of the tangent plane inside the box; a convex loss cannot decrease further."""
    grad = expected(scores)[1]
    return float((grad * scores + np.abs(grad) * radius).sum())


def _jacobian(expected: Expected, scores: FloatArray) -> FloatArray:
    """Return the derivatives of the gradient by central differences, (m, m)."""
    step = 1e-5  # the error of the formula is step² = 1e-10, and rounding adds 1e-16 / step = 1e-11
    shifts = step * np.eye(len(scores))
    columns = [(expected(scores + shift)[1] - expected(scores - shift)[1]) / (2 * step) for shift in shifts]
    return np.stack(columns, axis=1)


def _cut(expected: Expected, start: FloatArray, radius: float, tolerance: float) -> tuple[FloatArray, float, float]:
    """Minimize by Kelley's cutting planes: the maximum of all tangent planes is a lower bound on the loss."""
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
            break  # A value below the lower bound shows that the function is not convex or its gradient is wrong.
        if lowest - floor <= tolerance:
            return best, lowest, max(lowest - floor, 0.0)
        planes.append(np.append(grad, -1.0))
        heights.append(float(grad @ point - value))
        exact = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        solved = linprog(goal, np.array(planes), np.array(heights), bounds=bounds, method="highs", options=exact)
        if solved.x is None:
            break
        point, floor = np.asarray(solved.x[:m]), float(solved.x[m])
    raise DataError(
        f"The expected loss could not be minimized to within {tolerance:g}: it reached {lowest:g}, and its lower "
        f"bound is {floor:g}. Check that it is convex and its gradient exact; otherwise pass convex=False, or raise "
        "the tolerance."
    )
