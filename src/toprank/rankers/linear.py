"""`LinearRanker`: a linear scorer under any loss, by the solver that fits it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np

from toprank.compute import FloatArray, each_block
from toprank.data.checks import check_flag, check_number
from toprank.data.dataset import RankingData
from toprank.errors import DataError, UnknownNameError
from toprank.losses import Loss
from toprank.losses import make as make_loss
from toprank.rankers.base import warn_constant, warn_unconverged
from toprank.rankers.path import PathRanker, penalty_path, refine, tolerances_of
from toprank.rankers.schema import Numbers
from toprank.rankers.source import Source, source_of
from toprank.scorers.features import Features, Standardisation
from toprank.scorers.linear import Linear
from toprank.solvers import LBFGS, Bundle, GradientDescent, Newton, Penalty, Proximal, Solver
from toprank.solvers.base import Objective

__all__ = ["LinearRanker"]

SolverName = Literal["auto", "newton", "lbfgs", "bundle", "proximal", "descent"]
_SOLVERS: dict[str, Solver] = {
    "newton": Newton(),
    "lbfgs": LBFGS(),
    "bundle": Bundle(),
    "proximal": Proximal(),
    "descent": GradientDescent(),
}
_ROWS = 1 << 14
_INEXACT_ITERATIONS = 30
_INTERCEPT_SHARE = 1e-3  # the bundle method's certificate needs every weight penalised; an intercept hardly is


@dataclass(eq=False, repr=False)
class LinearRanker(PathRanker):
    """Scores s = w·x, learned under any loss of `toprank.losses`.

    Objective: mean over queries of the loss + (l2/2)‖w‖² + l1‖w‖₁ on standardised features; an intercept, where the
    loss needs one, is free (under the bundle method it carries a thousandth of the penalty, for the certificate).

    Args:
        loss: a loss, or its name ("ListNet", "CostSensitiveListMLE" …).
        l2: the penalty (0.1 did well on the validation parts of several sets), or several: with `valid` data the best
            on `metric` is kept (warm-started along the path).
        l1: weight of ‖w‖₁; makes weights exactly 0.
        solver: a name, a solver of `toprank.solvers`, or "auto": Newton for smooth convex losses, the bundle method for
            kinked ones, proximal steps with l1, L-BFGS for non-convex ones. Where gradients are not exact (LambdaRank)
            there is nothing to converge on: 30 Newton steps that lower the value, from the logistic pair solution.
        scale: standardise features inside the model; missing values count as the mean either way.
        refine: for ImportanceWeightedSquared: least squares on few documents of each query, then again with the ignored
            ones whose score came out above δ, until none does; a pass over all documents per round, solves on the
            active ones only. For queries of very many documents.
        start: weights to start from on the standardised scale: zeros (None), a number for all, or an array.
        metric: what validation is judged by.
        convention: the rules of that metric.
        tolerance: handed to the solver; None: its own default. Several, with `valid` data: each is reached from the
            one before, the loosest first, and the best on validation data is kept (early stopping, as in the papers).
        max_iterations: handed to the solver, for all tolerances together; None: its own default.
        threads: number of threads; results do not depend on it.
        verbose: tell each iteration on standard error.

    After fitting: `coef_` and `intercept_` on the scale of the raw features, `solution_` (how the solver ended, in
    words), `l2_`, `path_` (one row per penalty tried: l2, value, iterations, whether it converged, validation metric),
    and `on_path`, the ranker at any of its rows.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=50, seed=0)
    >>> ranker = LinearRanker(loss="ListNet", l2=1e-3).fit(data)
    >>> ranker.solution_.converged, ranker.coef_.shape
    (True, (10,))
    """

    saved_arrays: ClassVar[Mapping[str, Numbers]] = {"coef_": Numbers("features")}
    saved_values: ClassVar[Mapping[str, Any]] = {"intercept_": float, "l2_": float}
    standardises: ClassVar[bool] = True
    learns_from_parts: ClassVar[bool] = True
    solves_to_a_gap: ClassVar[bool] = True
    family: ClassVar[str | None] = "linear"

    loss: Loss | str = "ListNet"
    _: KW_ONLY
    l2: float | Sequence[float] = 0.1
    l1: float = 0.0
    solver: SolverName | Solver = "auto"
    scale: bool = True
    refine: bool = False
    start: float | FloatArray | None = None
    metric: str = "ndcg@10"
    convention: str = "standard"
    tolerance: float | Sequence[float] | None = None
    max_iterations: int | None = None
    threads: int | None = None
    verbose: bool = False

    def _fit(self, data: RankingData | Source, valid: RankingData | Source | None) -> None:
        self._check_solver_options()
        check_flag("refine", self.refine)
        check_number("l1", self.l1, least=0)
        loss = make_loss(self.loss)
        if loss.traits.space != "score":
            raise DataError(
                f"{type(loss).__name__} needs a score for each grade, but a linear ranker gives one score a document; "
                "use ExpectedGainRanker."
            )
        seen = source_of(data).standardisation(self.threads)
        self.standardisation_ = seen if self.scale else replace(seen, spread=np.ones(data.n_features))
        if self.refine:
            if not isinstance(data, RankingData) or isinstance(valid, Source):
                raise DataError("refine=True chooses documents one by one, which needs them in memory; fit without it.")
            refine(self, data, loss, valid)
        else:
            self.fit_standardised(data, loss, valid)

    def fit_standardised(self, data: RankingData | Source, loss: Loss, valid: RankingData | Source | None) -> None:
        """Fit under a loss, with the standardisation of these data (or more of the same) already known."""
        source, standardisation = source_of(data), self.standardisation_
        scorer = Linear(data.n_features, intercept=not loss.traits.shift_invariant)
        objective = source.objective(scorer, loss, standardisation, self.threads)
        start = self._start(objective.n_weights)
        if self.start is None and not loss.traits.exact_gradient:
            easier = source.objective(scorer, make_loss("Logistic"), standardisation, self.threads, weighted=False)
            penalty = Penalty.uniform(len(start), l2=max(float(np.max(self.l2)), 1e-6))
            start = Newton().solve(easier, start, penalty).weights
        self._set(self._walk(objective, loss, start, data.n_features, valid))

    def _set(self, weights: FloatArray) -> None:
        spread, centre = self.standardisation_.spread, self.standardisation_.centre
        self.coef_ = weights[: len(spread)] / spread
        free = weights[-1] if len(weights) > len(spread) else 0.0
        self.intercept_ = float(free - self.coef_ @ centre)

    def _walk(
        self, objective: Objective, loss: Loss, start: FloatArray, d: int, valid: RankingData | Source | None
    ) -> FloatArray:
        """Solve along the path of penalties, largest first, each from the last; keep the best on validation data."""
        penalties = penalty_path(self.l2, valid)
        if self.l1 > 0 and not loss.traits.smooth:
            raise DataError(f"l1 needs a smooth loss, but {type(loss).__name__} has kinks; use SquaredHinge, or l1=0.")
        judge = None if valid is None else source_of(valid).judge(self.metric, self.convention, self.threads)
        solver, weights = self._solver(loss, objective), start
        limit = self.max_iterations
        if limit is None and not loss.traits.exact_gradient:
            limit = _INEXACT_ITERATIONS
        tolerances = tolerances_of(self.tolerance, valid)
        if judge is not None and len(penalties) * len(tolerances) > 1:
            judge.check()
        best, best_value, used = None, -np.inf, 0
        self._begin_path()
        for l2, tolerance in product(penalties, tolerances):
            used = 0 if tolerance == tolerances[0] else used
            solution = solver.solve(
                objective,
                weights,
                self._penalty(objective.n_weights, d, l2, solver),
                tolerance=tolerance,
                max_iterations=None if limit is None else max(1, limit - used),
                callback=self._tell if self.verbose else None,
            )
            weights, used = solution.weights, used + solution.iterations
            row = self._stop(l2, solution, converges=loss.traits.exact_gradient)
            if tolerance is not None and len(tolerances) > 1:
                row["tolerance"] = tolerance
            if judge is not None:
                row["valid"] = judge.value(partial(_linear_scores, self.standardisation_, weights[:d], self.threads))
            value = row.get("valid", 0.0) * (1 if judge is None or judge.higher_is_better else -1)
            if best is None or value > best_value:
                best, best_value, self.solution_, self.l2_ = weights, value, solution, l2
            if solution.interrupted:
                break
        if not self.solution_.converged and (loss.traits.exact_gradient or self.solution_.interrupted):
            warn_unconverged(f"LinearRanker: {self.solution_.message}")
        if judge is not None:
            reached = best_value if judge.higher_is_better else -best_value
            self.training_["valid"] = {judge.name: reached, "convention": judge.convention.name}
        self.training_["solver"] = self.solution_.message
        if not self.solution_.weights[:d].any():
            warn_constant(
                f"LinearRanker: all weights are 0, so every document gets the same score. {self.solution_.message}"
            )
        elif self.solution_.hardly_beats_zero:
            warn_unconverged(f"LinearRanker: {self.solution_.message}")
        return self.solution_.weights

    def _penalty(self, n: int, d: int, l2: float, solver: Solver) -> Penalty:
        penalty = Penalty.uniform(n, l2=l2, l1=self.l1, free=list(range(d, n)))
        if n > d and isinstance(solver, Bundle):
            penalty.l2[d:] = l2 * _INTERCEPT_SHARE
        return penalty

    def _solver(self, loss: Loss, objective: Objective) -> Solver:
        if not isinstance(self.solver, str):
            return self.solver
        if self.solver != "auto":
            if self.solver not in _SOLVERS:
                raise UnknownNameError("solver", self.solver, ["auto", *_SOLVERS])
            return _SOLVERS[self.solver]
        traits = loss.traits
        if self.l1 > 0:
            return Proximal()
        if not traits.exact_gradient:
            return Newton()
        if traits.convex and not traits.smooth:
            return Bundle()
        if traits.convex and traits.curvature == "exact" and objective.n_weights <= Newton().cholesky_limit:
            return Newton()
        return LBFGS()

    def _start(self, n: int) -> FloatArray:
        if self.start is None:
            return np.zeros(n)
        try:
            given = np.asarray(self.start, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"start must be a number, an array of weights, or None, not {self.start!r}.") from None
        if given.ndim == 0:
            return np.full(n, float(given))
        if given.shape != (n,):
            raise DataError(f"start has {given.size} weights, but the ranker has {n}.")
        return given

    def _tell(self, iteration: int, weights: FloatArray, value: float, message: str) -> None:
        del weights
        sys.stderr.write(f"iteration {iteration:>4}  value {value:.6f}  {message}\n")

    def _scores(self, X: Any) -> FloatArray:
        unscaled = Standardisation(self.standardisation_.centre, np.ones(X.shape[1]))
        centred = self.intercept_ + float(self.coef_ @ self.standardisation_.centre)
        scores = _linear_scores(unscaled, self.coef_, self.threads, X)
        scores += centred
        return scores

    @property
    def feature_importances_(self) -> FloatArray:
        """|w| on the standardised scale, as shares of 1: how much a usual change of each feature moves the score."""
        size = np.abs(self.coef_ * self.standardisation_.spread)
        total = size.sum()
        return size / total if total > 0 else size


def _linear_scores(standardisation: Standardisation, weights: FloatArray, threads: int | None, X: Any) -> FloatArray:
    features, n = Features(X, standardisation), X.shape[0]
    scores = np.empty(n)

    def work(rows: slice) -> None:
        scores[rows] = features.times(rows, weights)

    each_block(work, [slice(start, min(start + _ROWS, n)) for start in range(0, n, _ROWS)], threads)
    return scores
