"""What linear rankers share: a path of penalties, the options of their solvers, and refinement.

Any stop of a path can be taken up without fitting again. The refinement scheme of importance-weighted regression is the
loop over active documents (Cossock & Zhang 2008 §VI).
"""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from toprank.compute import FloatArray
from toprank.data.checks import check_flag, check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.errors import DataError, Remedy
from toprank.losses import ImportanceWeightedSquared, Loss, Squared
from toprank.metrics.conventions import Convention
from toprank.metrics.parsing import parse
from toprank.rankers.base import Ranker
from toprank.solvers import Solution

__all__ = ["PathRanker", "penalty_path", "refine", "tolerances_of"]

_TO_CHOOSE = Remedy("valid= data to choose among them.", "--valid data to choose among them.")


class PathRanker(Ranker):
    """A ranker with `path_`, one row for each penalty it tried, and the solution of each."""

    walks_penalties: ClassVar[bool] = True

    l2_: float
    path_: list[dict[str, float]]
    path_solutions_: list[Solution]
    solution_: Solution

    metric: str
    convention: str
    scale: bool
    max_iterations: int | None

    def _check_solver_options(self) -> None:
        """Refuse what means nothing, also where there are no validation data and nothing would be judged by it."""
        parse(self.metric)
        Convention.of(self.convention)
        check_flag("scale", self.scale)
        if self.max_iterations is not None:
            check_whole("max_iterations", self.max_iterations, 1)

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


def penalty_path(l2: Any, valid: Any) -> list[float]:
    """The penalties to try, largest first; several need data to choose among them."""
    try:
        path = sorted((float(value) for value in np.atleast_1d(np.asarray(l2)).ravel()), reverse=True)
    except (TypeError, ValueError):
        path = []
    if not path or not all(0 <= value < np.inf for value in path):
        raise DataError(f"l2 must be a number of 0 or more, or several, not {l2!r}.")
    if len(path) > 1 and valid is None:
        raise DataError("Several penalties were given, but no", remedy=_TO_CHOOSE)
    return path


def tolerances_of(tolerance: Any, valid: Any) -> list[float | None]:
    """The tolerances to reach one after another, the loosest first; several need data to choose among them.

    >>> tolerances_of([1e-6, 1e-2], valid="some data")
    [0.01, 1e-06]
    """
    if tolerance is None:
        return [None]
    several = [tolerance] if np.ndim(tolerance) == 0 else list(tolerance)
    for one in several:
        check_number("tolerance", one, least=0)
    if not several:
        raise DataError("tolerance must be a number, several, or None, not an empty list.")
    if len(several) > 1 and valid is None:
        raise DataError("Several tolerances were given, but no", remedy=_TO_CHOOSE)
    return sorted(several, reverse=True)


_MAX_ROUNDS = 50


class Refinable(Protocol):
    """A ranker that can be fitted again and again on parts of the data."""

    active_: list[int]

    def fit_standardised(self, data: RankingData, loss: Loss, valid: RankingData | None) -> None:
        """Fit."""

    def predict(self, X: RankingData) -> FloatArray:
        """Score."""


def refine(ranker: Refinable, data: RankingData, loss: Loss, valid: RankingData | None) -> None:
    """Fit least squares on the active documents until no ignored one scores above δ; `active_` counts them.

    Afterwards no ignored document scores above δ, so the sup term of the loss is 0 at the solution.
    """
    if not isinstance(loss, ImportanceWeightedSquared):
        raise DataError(f"refine=True belongs to ImportanceWeightedSquared, not to {type(loss).__name__}.")
    top = loss.max_grade if loss.max_grade is not None else float(data.labels.max())
    squared = Squared(gain=loss.gain, max_grade=top, per_document=loss.per_document)
    active = loss.first_active(data.labels, data.queries)
    ranker.active_ = []
    for _ in range(_MAX_ROUNDS):
        ranker.active_.append(int(active.sum()))
        weights = loss.active_weights(data.labels, data.queries, active)
        if data.document_weights is not None:
            weights = weights * data.document_weights
        part = data.replace(document_weights=weights).keep(active)
        ranker.fit_standardised(part, squared, valid)
        grown = loss.now_active(active, ranker.predict(data))
        if (grown == active).all():
            return
        active = grown
    raise DataError(f"Refinement did not come to rest in {_MAX_ROUNDS} rounds; raise delta, or fit without refine.")
