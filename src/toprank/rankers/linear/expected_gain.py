"""`ExpectedGainRanker`: relevance probabilities P(grade | x), and the score E[G(grade) | x].

That score is the optimal order for DCG with gain G if the probabilities are correct; the optimum of NDCG can differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray, each_block
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.errors import DataError, UnknownNameError, refuse_if
from toprank.losses import Loss
from toprank.losses import make as make_loss
from toprank.metrics.measure import Measure
from toprank.rankers.base import by_row, finite
from toprank.rankers.formula import LinearFunction, Part
from toprank.rankers.linear.penalty_path import PathRanker, check_choosable, penalty_path, solver_named
from toprank.rankers.outputs import PluginProbabilities, gain_table, grade_shares, whole_grades
from toprank.rankers.probabilities import GradeProbabilities
from toprank.rankers.schema import Numbers, State
from toprank.rankers.source import Source, source_of
from toprank.rankers.target_encoding import EncodedCategories
from toprank.scorers.expected_gain import ExpectedGain, Logits, expected_gains
from toprank.scorers.features import Features, row_blocks
from toprank.scorers.linear import Thresholds
from toprank.solvers import LBFGS, AveragedStochastic, GradientDescent, Newton, Penalty, Solution, Solver

_INITS = ("likelihood", "linear", "zeros")
_CHOLESKY_LIMIT = 1000  # weights; MSLR's 136 features and five grades need 685
_SOLVERS: dict[str, Solver] = {
    "newton": Newton(cholesky_limit=_CHOLESKY_LIMIT),
    "lbfgs": LBFGS(),
    "descent": GradientDescent(learning_rate=0.1),
}


@dataclass(eq=False, repr=False)
class ExpectedGainRanker(GradeProbabilities, PathRanker):
    """P(r = k | x) = softmax_k(w_k·x + b_k), s = Σ_k G(k) P(r = k | x).

    Trained under any loss of the score (Algorithm 2 of the paper), by maximum likelihood (`loss="Multinomial"`, the
    plug-in of Algorithm 1, or `loss="Ordinal"`: proportional odds, one score and K − 1 thresholds), or from a
    scikit-learn classifier (`classifier=`). The probabilities are calibrated by likelihood training, or by `calibrate`
    on held-out data; ranking losses alone do not calibrate them.

    Args:
        loss: a loss, or its name.
        gain: G, for training and as the default for prediction.
        n_grades: number of grades; None for the largest training label + 1. If it is given and the loss uses labels as
            gains (``Squared(gain=None)``), labels may be any real numbers, which the expected gains approximate.
        l2: penalty on the w_k (never on the b_k), or several: with `valid` data the best on `metric` is kept.
        init: initial weights: the ``likelihood`` solution, the best ``linear`` ranker under the same loss (its
            direction, scaled over the grades), or ``zeros``.
        restarts: number of additional starts from random weights; the best objective is kept.
        saturation: ε of the paper: a P that exceeds it counts as 1 during gradient descent. 1.0 for no saturation. Only
            for gradient descent (solver="descent").
        solver: "newton", "lbfgs", "descent", a solver of `toprank.solvers`, or "auto": Newton for likelihoods, L-BFGS
            for losses of the score (which are not convex in these weights) and for more than 1,000 weights.
        classifier: a scikit-learn classifier with `predict_proba`; `loss`, `l2`, `init` and `solver` are then unused.
        calibration: for a classifier: None, "sigmoid" (Platt) or "isotonic", cross-fitted by query.
        standardize: whether to standardize features inside the model. Missing values count as the mean in any case.
        metric: the validation metric.
        convention: the convention of that metric.
        tolerance: tolerance of the solver. None for its default.
        max_iterations: iteration limit of the solver. None for its default.
        seed: seed of the random starts.
        target_encoding: categories to replace by target encodings: ``"auto"`` (categories with many levels, if their
            encoding helps on held-out queries), True (all categories with many levels), False, or a list of names and
            pairs of names; see `toprank.rankers.target_encoding`.
        threads: number of threads; has no effect on results.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=60, n_grades=3, seed=0)
    >>> ranker = ExpectedGainRanker(loss="Multinomial").fit(data)
    >>> ranker.predict_proba(data).shape == (data.n_documents, 3)
    True
    """

    saved_arrays: ClassVar[Mapping[str, Numbers]] = {
        "coef_": Numbers("rows of weights", "features"),
        "intercept_": Numbers("intercepts"),
        "gains_": Numbers("grades"),
    }
    saved_values: ClassVar[Mapping[str, Any]] = {"n_grades_": int, "l2_": float, **GradeProbabilities.saved_values}
    standardizes: ClassVar[bool] = True
    propagates_infinity: ClassVar[bool] = False
    supports_distributed: ClassVar[bool] = True

    loss: Loss | str = "Multinomial"
    _: KW_ONLY
    gain: str | Sequence[float] = "exponential"
    n_grades: int | None = None
    l2: float | Sequence[float] = 1e-3
    init: Literal["likelihood", "linear", "zeros"] = "likelihood"
    restarts: int = 0
    saturation: float = 1.0
    solver: Literal["auto", "newton", "lbfgs", "descent"] | Solver = "auto"
    classifier: Any = None
    calibration: Literal["sigmoid", "isotonic"] | None = None
    standardize: bool = True
    metric: str | Measure = "ndcg@10"
    convention: str = "standard"
    tolerance: float | None = None
    max_iterations: int | None = None
    seed: int = 0
    target_encoding: EncodedCategories = "auto"
    threads: int | None = None

    # ---- training ----

    def _fit(self, data: RankingData | Source, valid: RankingData | Source | None) -> None:
        source = source_of(data)
        labels = source.grades()[0]
        self.n_grades_ = self._count_grades(labels)
        self.calibration_ = None
        self._standardize(source)
        self.gains_ = gain_table(self.gain, self.n_grades_)
        if len(labels) == 1:
            self.warn_constant(
                f"ExpectedGainRanker: all training documents have the label {labels[0]:g}, so the scores are "
                "meaningless."
            )
        self.plugin_: PluginProbabilities | None = None
        if self.classifier is not None:
            if not isinstance(data, RankingData):
                raise DataError("A classifier needs data in memory; train under a loss on a cluster.")
            self.plugin_ = PluginProbabilities.fit(
                self.classifier, self.calibration, data, self.standardization_, self.n_grades_
            )
            return
        penalties = penalty_path(self.l2)
        check_choosable(valid, penalties=penalties)
        converges = not make_loss(self.loss).traits.random
        self._walk(partial(self._solve, source), None, penalties, valid, converges=converges)
        self._set(self.solution_.weights)

    @property
    @override
    def _reads_labels(self) -> bool:
        return True  # the grades are the classes

    @override
    def check_parameters(self) -> None:
        super().check_parameters()
        if self.init not in _INITS:
            raise UnknownNameError("init", str(self.init), _INITS)
        check_whole("restarts", self.restarts, 0)
        check_whole("seed", self.seed, 0)
        check_number("saturation", self.saturation, above=0, most=1)
        if self.tolerance is not None:
            check_number("tolerance", self.tolerance, least=0)
        if self.n_grades is not None:
            check_whole("n_grades", self.n_grades, 1)
        if self.calibration is not None and self.classifier is None:
            raise DataError(
                "calibration applies only to classifier=. Calibrate a ranker trained under a loss with its method "
                "calibrate, on held-out data."
            )

    @property
    def _learns_gains(self) -> bool:
        """True if labels are gains, any real numbers, to be approximated by expected gains over the given grades."""
        loss = make_loss(self.loss)
        takes = loss.traits.linear_in_gain or loss.traits.labels_are_gains
        return self.n_grades is not None and takes and getattr(loss, "gain", None) is None

    def _count_grades(self, grades: FloatArray) -> int:
        if self.n_grades is not None and self._learns_gains:
            return max(int(self.n_grades), 2)
        least = whole_grades(grades, "P(grade | x) needs discrete grades. Round the labels, or use LinearRanker.")
        count = least if self.n_grades is None else int(self.n_grades)
        if count <= grades.max():
            raise DataError(f"n_grades is {count}, but the largest training label is {grades.max():g}.")
        return max(count, 2)

    def _set(self, weights: FloatArray) -> None:
        coef, self.intercept_ = self._head.split(weights)
        self.coef_ = self.standardization_.without_constants(coef)  # for standardized features

    @property
    def _head(self) -> Logits | Thresholds:
        """The mapping from weights to P(grade | x)."""
        by_threshold = make_loss(self.as_fitted.loss).traits.columns == "thresholds"
        return (Thresholds if by_threshold else Logits)(self.n_columns_, self.n_grades_)

    def _solve(self, source: Source, start: FloatArray | None, l2: float, _: float | None) -> Solution:
        loss, head = make_loss(self.loss), self._head
        by_class = loss.traits.space == "class"
        if by_class:
            loss = replace(loss, n_grades=self.n_grades_)  # type: ignore[call-arg]
        scorer: Any = head if by_class else ExpectedGain(source.n_features, self.gains_, self.saturation)
        objective = source.objective(scorer, loss, self.standardization_, self.threads)
        penalty = Penalty.uniform(objective.n_weights, l2=l2, free=head.free)
        starts = [self._first(source, l2, by_class) if start is None else start]
        rng = np.random.default_rng(self.seed)
        starts += [rng.normal(0, 0.1, objective.n_weights) for _ in range(self.restarts)]
        options = {"tolerance": self.tolerance, "max_iterations": self.max_iterations}
        solver = self._solver(by_class or loss.traits.random, objective.n_weights)
        if loss.traits.random:
            solver = AveragedStochastic(solver)
        solutions = [solver.solve(objective, first, penalty, **options) for first in starts]  # type: ignore[arg-type]
        return min(solutions, key=lambda solution: solution.value)

    def _first(self, source: Source, l2: float, by_class: bool) -> FloatArray:
        """Return initial weights: grade frequencies as intercepts, and directions as requested by `init`."""
        d, grades = source.n_features, self.n_grades_
        labels, counts = source.grades()
        plain = self._learns_gains and self.init == "likelihood"  # a likelihood needs classes
        shares = np.full(grades, 1 / grades) if self._learns_gains else grade_shares(labels, counts, grades)
        first = self._head.start(shares)
        if by_class or plain or self.init == "zeros":
            return first
        table = first.reshape(grades, d + 1)
        if self.init == "linear":
            from toprank.rankers.linear.ranker import LinearRanker

            linear = LinearRanker(self.loss, l2=l2, standardize=self.standardize, threads=self.threads).fit_source(
                source
            )
            direction = linear.coef_ * self.standardization_.spread
            spread = source.score_spread(self.standardization_, direction)
            steps = np.arange(grades) - (grades - 1) / 2
            table[:, :-1] = np.outer(steps, direction / (spread if spread > 0 else 1.0))
            return table.ravel()
        likelihood = make_loss("Multinomial", n_grades=grades)
        objective = source.objective(Logits(d, grades), likelihood, self.standardization_, self.threads)
        penalty = Penalty.uniform(objective.n_weights, l2=max(l2, 1e-6), free=self._head.free)
        return LBFGS().solve(objective, table.ravel(), penalty, tolerance=1e-4).weights

    def _solver(self, curved: bool, n_weights: int) -> Solver:
        if self.saturation < 1.0 and self.solver != "descent" and not isinstance(self.solver, GradientDescent):
            raise DataError(
                "saturation makes the objective discontinuous, so it needs gradient descent (solver='descent')."
            )
        if not isinstance(self.solver, str):
            return self.solver
        if self.solver == "auto":
            return _SOLVERS["newton" if curved and n_weights <= _CHOLESKY_LIMIT else "lbfgs"]
        return solver_named(self.solver, _SOLVERS)

    @classmethod
    @override
    def restore(cls, state: State) -> ExpectedGainRanker:
        ranker = super().restore(state)
        ranker.plugin_ = None
        return ranker

    @override
    def check_restored(self) -> None:
        super().check_restored()
        head, grades = self._head, self.n_grades_
        rows, intercepts = (1, grades - 1) if isinstance(head, Thresholds) else (grades, grades)
        refuse_if(
            grades < 2 or (len(self.gains_), len(self.coef_), len(self.intercept_)) != (grades, rows, intercepts),
            "the weights do not match the number of grades",
        )

    # ---- prediction ----

    def _probabilities(self, X: Any, gains: FloatArray | None = None, *, own: bool = False) -> FloatArray:
        """Return P(grade | x), calibrated or as trained, or only the expected gains."""

        def finished(P: FloatArray) -> FloatArray:
            chances = P if own else self._calibrated(P)
            return chances if gains is None else expected_gains(chances, gains)

        if self.plugin_ is not None:
            return finished(self.plugin_.predict(X))
        head, features = self._head, Features(X, self.standardization_)
        result = np.empty(X.shape[0] if gains is not None else (X.shape[0], self.n_grades_))

        def work(rows: slice) -> None:
            # BLAS matrix products sum the last rows of a block in another order, and rounding would break ties.
            logits = np.column_stack([features.times(rows, weights) for weights in self.coef_])
            result[rows] = finished(head.probabilities(logits + self.intercept_))

        each_block(work, row_blocks(X), self.threads)  # in blocks, so that only the result has the length of X
        return result

    def _own_probabilities(self, X: Any) -> FloatArray:
        return self._probabilities(self._prediction_rows(X), own=True)

    @property
    def _by_likelihood(self) -> bool:
        return self.plugin_ is not None or super()._by_likelihood

    def _scores(self, X: Any) -> FloatArray:
        return self._probabilities(X, self.gains_)

    @override
    def _formula(self) -> Part:
        refuse_if(
            self.plugin_ is not None,
            f"The probabilities come from scikit-learn's {type(self.as_fitted.classifier).__name__}, which cannot be "
            "exported. Train under a loss (loss='Multinomial'), or export the classifier with other tools.",
        )
        standard, ordinal = self.standardization_, isinstance(self._head, Thresholds)
        weights = np.repeat(self.coef_, len(self.intercept_), axis=0) if ordinal else self.coef_
        linear = LinearFunction(
            standard.center, 1.0 / standard.spread, weights, self.intercept_, np.zeros(weights.shape)
        )
        return self._expected(linear, "cumulative" if ordinal else "softmax")

    def predict(
        self, X: Any, qid: npt.ArrayLike | None = None, *, gain: str | Sequence[float] | None = None
    ) -> FloatArray:
        """Return expected gains, under the gain of training or any other gain."""
        del qid
        rows = self._prediction_rows(X)
        return by_row(X, finite(self._probabilities(rows, self._gains(gain))))

    def predict_proba(self, X: Any) -> FloatArray:
        """Return P(grade | x), one column for each grade 0 … n_grades − 1."""
        return by_row(X, self._probabilities(self._prediction_rows(X)))
