"""`PathRanker`: a penalty path whose solutions are all available after one fit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray, out_of_time
from toprank.data.arguments import check_flag, check_number, check_whole
from toprank.errors import DataError, Remedy, UnknownNameError
from toprank.metrics.conventions import Convention
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse
from toprank.rankers.base import Ranker
from toprank.rankers.source import Score, Source, source_of
from toprank.solvers import Solution, Solver

_NEEDS_VALID = Remedy("{valid} data to choose on.", valid=...)


class PathRanker(Ranker):
    """A ranker with `path_`, one row for each penalty it tried, and the solution of each."""

    has_penalty_path: ClassVar[bool] = True

    l2_: float
    path_: list[dict[str, float]]
    path_solutions_: list[Solution]
    solution_: Solution

    l2: float | Sequence[float]
    metric: str | Measure
    convention: str
    standardize: bool
    max_iterations: int | None
    threads: int | None

    @override
    def check_parameters(self) -> None:
        penalty_path(self.l2)
        parse(self.metric)  # also without validation data, when it is unused
        Convention.from_name(self.convention)
        check_flag("standardize", self.standardize)
        if self.max_iterations is not None:
            check_whole("max_iterations", self.max_iterations, 1)

    def _standardize(self, source: Source) -> None:
        """Estimate the standardization of features; without `standardize` each keeps its scale."""
        seen = source.standardization(self.threads)
        self.standardization_ = seen if self.standardize else replace(seen, spread=np.ones(source.n_features))

    def _walk(
        self,
        solve: Callable[[Any, float, float | None], Solution],
        weights: FloatArray | None,
        penalties: Sequence[float],
        valid: Any,
        tolerances: Sequence[float | None] = (None,),
        *,
        converges: bool = True,
    ) -> None:
        """Call `solve(weights, l2, tolerance)` along the path, warm-started; keep the best solution on validation data.

        Without `converges`, for losses that never report convergence, all rows count as converged.
        """
        judge = None if valid is None else source_of(valid).judge(self.metric, self.convention, self.threads)
        stops = list(product(penalties, tolerances))
        if judge is not None and len(stops) > 1:
            judge.check()
        sign, best = 1.0 if judge is None or judge.higher_is_better else -1.0, -np.inf
        self.path_, self.path_solutions_ = [], []
        for l2, tolerance in stops:
            solution = solve(weights, l2, tolerance)
            weights = solution.weights
            row = {"l2": l2, "value": solution.value, "iterations": float(solution.iterations)}
            row["converged"] = float(solution.converged or not converges)
            row["interrupted"] = float(solution.interrupted)
            if tolerance is not None and len(tolerances) > 1:
                row["tolerance"] = tolerance
            if judge is not None:
                row["valid"] = judge.value(self._scores_at(weights))
            value = sign * row.get("valid", 0.0)
            if not self.path_ or value > best:
                best, self.solution_, self.l2_ = value, solution, l2
            self.path_.append(row)
            self.path_solutions_.append(solution)
            self.interrupted_ = solution.interrupted
            if solution.interrupted or out_of_time():
                break
        if judge is not None:
            self.keep_value(sign * best, judge.name, judge.convention.name)
        self.training_["solver"] = self.solution_.message
        if not self.solution_.converged and (converges or self.solution_.interrupted):
            self.warn_unconverged(f"{type(self).__name__}: {self.solution_.message}")

    def _scores_at(self, weights: FloatArray) -> Score:
        """Return the scoring function of these weights; on a cluster it is sent to the workers."""
        self._set(weights)
        return self._scores

    def on_path(self, place: int) -> Self:
        """Return the ranker at a row of `path_`, without fitting again.

        >>> import toprank as tr
        >>> train, valid = tr.split(tr.synthetic(n_queries=40, seed=0), (0.5, 0.5))
        >>> ranker = tr.LinearRanker(l2=[1.0, 0.1]).fit(train, valid=valid)
        >>> [ranker.on_path(place).l2_ for place in range(2)]
        [1.0, 0.1]
        """
        other, row = copy(self), self.path_[place]
        other.l2_, other.solution_ = row["l2"], self.path_solutions_[place]
        other._set(other.solution_.weights)
        training: dict[str, Any] = {**self.training_, "solver": other.solution_.message}
        if "valid" in row:
            training["valid"] = {
                name: row["valid"] if isinstance(value, float) else value for name, value in training["valid"].items()
            }
        other.training_ = training
        return other

    @abstractmethod
    def _set(self, weights: FloatArray) -> None:
        """Set the fitted attributes from the weights of a solver."""


def penalty_path(l2: Any) -> list[float]:
    """Return the penalties to try, largest first."""
    try:
        values = np.atleast_1d(np.asarray(l2)).ravel()
        # float() would accept True and numeric strings.
        path = [] if values.dtype.kind in "bSU" else sorted(map(float, values), reverse=True)
    except (TypeError, ValueError):
        path = []
    if not path or not all(0 <= value < np.inf for value in path):
        raise DataError(f"l2 must be one or several numbers of 0 or larger, not {l2!r}.")
    return path


def tolerances_of(tolerance: Any) -> list[float | None]:
    """Return the tolerances to reach in sequence, the loosest first.

    >>> tolerances_of([1e-6, 1e-2])
    [0.01, 1e-06]
    """
    if tolerance is None:
        return [None]
    several = [tolerance] if np.ndim(tolerance) == 0 else list(tolerance)
    for value in several:
        check_number("tolerance", value, least=0)
    if not several:
        raise DataError("tolerance must be one or several numbers, or None, not an empty list.")
    return sorted(several, reverse=True)


def solver_named(name: str, known: Mapping[str, Solver]) -> Solver:
    """Return one of a ranker's solvers by name."""
    if name not in known:
        raise UnknownNameError("solver", name, ["auto", *known])
    return known[name]


def check_choosable(valid: Any, **several: Sequence[Any]) -> None:
    """Refuse several values of a parameter without data to choose on."""
    for name, values in several.items():
        if valid is None and len(values) > 1:
            raise DataError(f"Several {name} need", remedy=_NEEDS_VALID)
