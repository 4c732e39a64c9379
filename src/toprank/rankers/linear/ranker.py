"""`LinearRanker`: a linear scorer under any loss, with a solver chosen by the properties of the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray
from toprank.data.arguments import check_flag, check_number
from toprank.data.dataset import RankingData
from toprank.display.progress import ProgressLine
from toprank.errors import DataError
from toprank.losses import ImportanceWeightedSquared, Loss, Squared
from toprank.losses import make as make_loss
from toprank.metrics.measure import Measure
from toprank.rankers.linear.penalty_path import PathRanker, check_choosable, penalty_path, solver_named, tolerances_of
from toprank.rankers.linear.weighted_sum import WeightedSum, weighted_sums
from toprank.rankers.source import Score, Source, source_of
from toprank.rankers.target_encoding import EncodedCategories
from toprank.scorers.linear import LinearScorer
from toprank.solvers import (
    LBFGS,
    AveragedStochastic,
    Bundle,
    GradientDescent,
    Newton,
    Penalty,
    Proximal,
    Solution,
    Solver,
)
from toprank.solvers.base import Objective

SolverName = Literal["auto", "newton", "lbfgs", "bundle", "proximal", "descent"]
_SOLVERS: dict[str, Solver] = {
    "newton": Newton(),
    "lbfgs": LBFGS(),
    "bundle": Bundle(),
    "proximal": Proximal(),
    "descent": GradientDescent(),
}
_INEXACT_ITERATIONS = 30
_MAX_ROUNDS = 50
_INTERCEPT_SHARE = 1e-3  # of l2; the certificate of the bundle method needs a penalty on every weight


@dataclass(eq=False, repr=False)
class LinearRanker(WeightedSum, PathRanker):
    """Scores s = w·x, learned under any loss of `toprank.losses`.

    Objective: mean over queries of the loss + (l2/2)‖w‖² + l1‖w‖₁ on standardized features. The intercept, for losses
    that are not shift-invariant, is not penalized (under the bundle method it has a thousandth of the penalty, for the
    certificate).

    Args:
        loss: a loss, or its name ("ListNet", "CostSensitiveListMLE" …).
        l2: the penalty (0.1 works well on several data sets), or several: with `valid` data the best on `metric` is
            kept (warm-started along the path).
        l1: weight of ‖w‖₁; makes weights exactly 0.
        solver: a name, a solver of `toprank.solvers`, or "auto": Newton for smooth convex losses, the bundle method for
            losses with kinks, proximal steps with l1, L-BFGS for non-convex losses. For inexact gradients (LambdaRank),
            which have no optimum to converge to: 30 Newton steps that lower the value, from the solution for logistic
            pairs. For stochastic losses (YetiRank) each step has its own draw, and the solution averages the last
            steps.
        standardize: whether to standardize features inside the model. Missing values count as the mean in any case.
        active_set: for ImportanceWeightedSquared with very many documents per query: fit least squares on an active set
            of documents, add the documents that score above δ, and repeat until there are none. Default False.
        init: initial weights for standardized features: None for zeros, a number for all weights, or an array.
        metric: the validation metric.
        convention: the convention of that metric.
        tolerance: tolerance of the solver. None for its default. Several, with `valid` data: each is reached from the
            previous solution, the loosest first, and the best on validation data is kept (early stopping, as in the
            papers).
        max_iterations: iteration limit of the solver, for all tolerances together. None for its default.
        target_encoding: categories to replace by target encodings: ``"auto"`` (categories with many levels, if their
            encoding helps on held-out queries), True (all categories with many levels), False, or a list of names and
            pairs of names; see `toprank.rankers.target_encoding`.
        threads: number of threads; has no effect on results.
        verbose: whether to write each iteration to standard error; in a notebook, in one line that is updated.

    After fitting: `coef_` and `intercept_` for raw features, `solution_` (how the solver ended, in words), `l2_`,
    `path_` (one row per penalty: l2, value, iterations, whether it converged, validation metric), and `on_path`, the
    ranker at any of its rows.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=50, seed=0)
    >>> ranker = LinearRanker(loss="ListNet", l2=1e-3).fit(data)
    >>> ranker.solution_.converged, ranker.coef_.shape
    (True, (10,))
    """

    saved_values: ClassVar[Mapping[str, Any]] = {"intercept_": float, "l2_": float}
    supports_distributed: ClassVar[bool] = True
    uses_duality_gap: ClassVar[bool] = True
    family: ClassVar[str | None] = "linear"

    loss: Loss | str = "ListNet"
    _: KW_ONLY
    l2: float | Sequence[float] = 0.1
    l1: float = 0.0
    solver: SolverName | Solver = "auto"
    standardize: bool = True
    active_set: bool = False
    init: float | FloatArray | None = None
    metric: str | Measure = "ndcg@10"
    convention: str = "standard"
    tolerance: float | Sequence[float] | None = None
    max_iterations: int | None = None
    target_encoding: EncodedCategories = "auto"
    threads: int | None = None
    verbose: bool = False

    @override
    def check_parameters(self) -> None:
        super().check_parameters()
        tolerances_of(self.tolerance)
        check_flag("active_set", self.active_set)
        check_number("l1", self.l1, least=0)

    def _fit(self, data: RankingData | Source, valid: RankingData | Source | None) -> None:
        loss = make_loss(self.loss)
        if loss.traits.space != "score":
            raise DataError(
                f"{type(loss).__name__} needs a score for each grade, but a linear ranker has one score per document; "
                "use ExpectedGainRanker."
            )
        self._standardize(source_of(data))
        if self.active_set:
            if not isinstance(data, RankingData) or isinstance(valid, Source):
                raise DataError("active_set=True selects single documents, which needs data in memory; fit without it.")
            self._fit_active_set(data, loss, valid)
        else:
            self.fit_standardized(data, loss, valid)

    def _fit_active_set(self, data: RankingData, loss: Loss, valid: RankingData | None) -> None:
        """Fit least squares on active documents until no inactive one scores above δ (Cossock & Zhang 2008 §VI).

        The sup term of the loss is then 0 at the solution. `active_` counts the active documents of each round.
        """
        if not isinstance(loss, ImportanceWeightedSquared):
            raise DataError(f"active_set=True needs ImportanceWeightedSquared, not {type(loss).__name__}.")
        top = loss.max_grade if loss.max_grade is not None else float(data.labels.max())
        squared = Squared(gain=loss.gain, max_grade=top, per_document=loss.per_document)
        active = loss.first_active(data.labels, data.queries)
        self.active_: list[int] = []
        for _ in range(_MAX_ROUNDS):
            self.active_.append(int(active.sum()))
            weights = loss.active_weights(data.labels, data.queries, active)
            if data.document_weights is not None:
                weights = weights * data.document_weights
            part = data.replace(document_weights=weights).filter(active)
            self.fit_standardized(part, squared, valid)
            grown = loss.now_active(active, self._scores(data.X))  # the columns of `data` are expanded already
            if (grown == active).all():
                return
            active = grown
        raise DataError(
            f"The active set did not converge in {_MAX_ROUNDS} rounds; raise delta, or fit without active_set."
        )

    def fit_standardized(self, data: RankingData | Source, loss: Loss, valid: RankingData | Source | None) -> None:
        """Fit under a loss with the existing standardization, of these data or a superset."""
        source, standardization, d, traits = source_of(data), self.standardization_, data.n_features, loss.traits
        scorer = LinearScorer(d, intercept=not traits.shift_invariant)
        objective = source.objective(scorer, loss, standardization, self.threads)
        start, limit = self._start(objective.n_weights), self.max_iterations
        penalties, tolerances = penalty_path(self.l2), tolerances_of(self.tolerance)
        check_choosable(valid, penalties=penalties, tolerances=tolerances)
        if self.l1 > 0 and not traits.smooth:
            raise DataError(f"l1 needs a smooth loss, but {type(loss).__name__} has kinks; use SquaredHinge, or l1=0.")
        if self.init is None and not traits.exact_gradient:
            easier = source.objective(scorer, make_loss("Logistic"), standardization, self.threads)
            penalty = Penalty.uniform(len(start), l2=max(float(np.max(self.l2)), 1e-6))
            start = Newton().solve(easier, start, penalty).weights
        if limit is None and not traits.exact_gradient:
            limit = _INEXACT_ITERATIONS
        solver, used = self._solver(loss, objective), 0
        if traits.random:
            solver = AveragedStochastic(solver)
        progress = ProgressLine() if self.verbose else None
        tell = None if progress is None else partial(_tell, progress)

        def solve(weights: FloatArray, l2: float, tolerance: float | None) -> Solution:
            nonlocal used
            used = 0 if tolerance == tolerances[0] else used
            left = None if limit is None else max(1, limit - used)
            penalty = self._penalty(objective.n_weights, d, l2, solver)
            options = {"tolerance": tolerance, "max_iterations": left, "callback": tell}
            solution = solver.solve(objective, weights, penalty, **options)  # type: ignore[arg-type]
            used += solution.iterations
            return solution

        self._walk(solve, start, penalties, valid, tolerances, converges=traits.exact_gradient and not traits.random)
        if progress is not None:
            progress.end()
        self._set(self.solution_.weights)
        if not self.coef_.any():
            self.warn_constant(
                f"LinearRanker: all weights are 0, so all documents have the same score. {self.solution_.message}"
            )
        elif self.solution_.near_zero_solution:
            self.warn_unconverged(f"LinearRanker: {self.solution_.message}")

    def _set(self, weights: FloatArray) -> None:
        spread, center = self.standardization_.spread, self.standardization_.center
        self.coef_ = self.standardization_.without_constants(weights[: len(spread)]) / spread
        free = weights[-1] if len(weights) > len(spread) else 0.0
        self.intercept_ = float(free - self.coef_ @ center)

    @override
    def _scores_at(self, weights: FloatArray) -> Score:
        return partial(weighted_sums, self.standardization_, weights[: self.n_columns_], self.threads)

    def _penalty(self, n: int, d: int, l2: float, solver: Solver) -> Penalty:
        penalty = Penalty.uniform(n, l2=l2, l1=self.l1, free=list(range(d, n)))
        if n > d and isinstance(solver, Bundle):
            penalty.l2[d:] = l2 * _INTERCEPT_SHARE
        return penalty

    def _solver(self, loss: Loss, objective: Objective) -> Solver:
        if not isinstance(self.solver, str):
            return self.solver
        if self.solver != "auto":
            return solver_named(self.solver, _SOLVERS)
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
        if self.init is None:
            return np.zeros(n)
        try:
            start = np.asarray(self.init, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"init must be a number, an array of weights, or None, not {self.init!r}.") from None
        if start.ndim == 0:
            return np.full(n, float(start))
        if start.shape != (n,):
            raise DataError(f"init has {start.size} weights, but the ranker has {n}.")
        return start

    @property
    def feature_importances_(self) -> FloatArray:
        """Absolute weights of the standardized features, with sum 1; a category has the sum of its levels."""
        return self.shares_of_features(np.abs(self.coef_ * self.standardization_.spread))


def _tell(progress: ProgressLine, iteration: int, _: FloatArray, value: float, message: str) -> None:
    progress(f"iteration {iteration:>4}  value {value:.6f}  {message}")
