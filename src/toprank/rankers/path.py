"""What rankers share that walk a path of penalties: any stop of it can be taken up without fitting again."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import Any, ClassVar, Self

from toprank.compute import FloatArray
from toprank.rankers.base import Ranker
from toprank.solvers import Solution

__all__ = ["PathRanker"]


class PathRanker(Ranker):
    """A ranker with `path_`, one row for each penalty it tried, and the solution of each."""

    walks_penalties: ClassVar[bool] = True

    l2_: float
    path_: list[dict[str, float]]
    path_solutions_: list[Solution]
    solution_: Solution

    def _begin_path(self) -> None:
        self.path_, self.path_solutions_ = [], []

    def _stop(self, l2: float, solution: Solution, *, converges: bool = True) -> dict[str, float]:
        """A new row of the path; where nothing `converges`, no row is called unconverged."""
        row = {"l2": l2, "value": solution.value, "iterations": float(solution.iterations)}
        row["converged"] = float(solution.converged or not converges)
        row["interrupted"] = float(solution.interrupted)
        self.path_.append(row)
        self.path_solutions_.append(solution)
        return row

    def on_path(self, place: int) -> Self:
        """The ranker as it was at a row of `path_`, without fitting again.

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
        """Take up the weights of a solver."""
