"""Rankers that change one feature at a time.

AdaRank (Xu & Li 2007) and coordinate ascent (Metzler & Croft 2007) maximize a metric directly; RankBoost (Freund et al.
2003) minimizes the exponential loss of pairs by thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.errors import DataError, refuse_if
from toprank.evaluation.scores import BoundMetric
from toprank.losses import make as make_loss
from toprank.metrics.measure import Measure
from toprank.rankers.base import Ranker
from toprank.rankers.contributions import AdditiveTerms, ScoreProfile, column_of
from toprank.rankers.early_stopping import LoopStopping, TrainingProgress
from toprank.rankers.formula import Part, stump
from toprank.rankers.linear.weighted_sum import WeightedSum
from toprank.rankers.schema import Numbers
from toprank.rankers.target_encoding import EncodedCategories
from toprank.rankers.trees.forest import Forest
from toprank.scorers.features import Features, Standardization

_MIN_GAIN = 1e-12  # smaller improvements of a metric of order 1 are rounding errors of its mean
_MIN_EDGE = 1e-9  # smaller |r| of a threshold are rounding errors of the sum of potentials


class _TrainingMetric:
    """The training metric to maximize: a weighted mean over queries."""

    def __init__(self, ranker: AdaRank | CoordinateAscent, data: RankingData) -> None:
        self.ranker, self.kind, self.judge = ranker, type(ranker).__name__, ranker._judge(data)
        of_documents = data.document_weights
        refuse_if(
            of_documents is not None and (of_documents != of_documents[0]).any(),
            f"{self.kind} maximizes a metric of whole rankings, which does not support document weights. Use "
            "query_weights, or drop the weights: data.replace(document_weights=None); drop documents with weight 0 "
            "with data.filter(weights > 0).",
        )
        weights = np.ones(data.n_queries) if data.query_weights is None else data.query_weights
        self.weights: FloatArray = weights / weights.sum()
        self.best, self.worst = self.judge.extremes()

    @property
    def name(self) -> str:
        """The metric as given by the user."""
        return self.judge.name

    def is_constant(self) -> bool:
        """Return whether all orders of the training documents have the same metric, with a warning."""
        counts = self.weights > 0
        if not np.array_equal(self.best[counts], self.worst[counts], equal_nan=True):
            return False
        labels = self.judge.data.labels
        self.ranker.warn_constant(
            f"{self.kind}: {self.name} is the same for every order of the training documents (labels from "
            f"{labels.min():g} to {labels.max():g}), so all documents have the same score."
        )
        return True

    def per_query(self, scores: FloatArray) -> FloatArray:
        """Return the value of each query; 0 if undefined."""
        return np.nan_to_num(self.judge.per_query(scores))

    def __call__(self, scores: FloatArray) -> float:
        """Return the mean over the queries whose value is defined."""
        values = self.judge.per_query(scores)
        known = ~np.isnan(values)
        return float(self.weights[known] @ values[known] / self.weights[known].sum())

    @property
    def sign(self) -> float:
        """The factor after which larger values of the metric are better."""
        return 1.0 if self.judge.higher_is_better else -1.0

    def signed(self, scores: FloatArray) -> float:
        """Return the metric times `sign`."""
        return self.sign * self(scores)


class RoundBasedRanker(Ranker):
    """Base of rankers trained in rounds by a loop of ours, with early stopping."""

    history_: dict[str, list[float]]
    stopped_: str

    metric: str | Measure
    convention: str
    threads: int | None
    verbose: bool

    def _judge(self, data: RankingData) -> BoundMetric:
        """Return the training or validation metric on these data, for repeated evaluation."""
        return BoundMetric(data, self.metric, convention=self.convention, threads=self.threads)

    def _watch(self, steps: int, **options: Any) -> LoopStopping:
        return LoopStopping(steps=steps, callbacks=[TrainingProgress(self.metric)] if self.verbose else [], **options)

    def _note(self, watch: LoopStopping) -> None:
        """Keep the history of a training; warn if it was interrupted."""
        self.history_, self.stopped_, self.interrupted_ = watch.history, watch.stopped, watch.interrupted
        if watch.interrupted:
            self.warn_unconverged(f"{type(self).__name__}: {watch.stopped} The best model until then is kept.")


@dataclass(kw_only=True, eq=False, repr=False)
class AdaRank(WeightedSum, RoundBasedRanker):
    """A weighted sum of single features, added one by one, with the highest weights on queries that are ranked badly so
    far.

    Round t picks the feature (or its negative) with the best Σ_q P(q) E_q, with E the metric of the query ranked by
    that feature alone; its weight is α = ½ ln(Σ P(1 + E) / Σ P(1 − E)); then P(q) ∝ exp(−E_q of the sum so far).

    E is in [0, 1], so no query ever weighs more than e times another, and one strong feature may win every round. The
    sum then ranks as before, P does not change, and the published algorithm does not progress. Therefore a feature that
    wins `max_consecutive` rounds in a row keeps its weight and is excluded, and the next best follows.

    Args:
        metric: the metric E, with values in [−1, 1], as α requires; "map" and "ndcg@10" in the literature.
        convention: its convention.
        max_rounds: maximum number of rounds.
        max_consecutive: maximum number of consecutive rounds for one feature (`max_rounds` for the published
            algorithm).
        early_stopping: stop after this many rounds without a better metric, on the validation data if given, else on
            the training data.
        target_encoding: categories to replace by target encodings: ``"auto"`` (categories with many levels, if their
            encoding helps on held-out queries), True (all categories with many levels), False, or a list of names and
            pairs of names; see `toprank.rankers.target_encoding`.
        threads: number of threads; has no effect on results.
        verbose: whether to write the metric and the time left to standard error.

    After fitting: `coef_` for raw features; `rounds_`; `history_` (round, train or valid) and `stopped_` (the reason,
    in words). The best round on `valid` is kept if given. An interrupt from the keyboard ends the training with a
    warning, and the best round until then is kept.

    Query weights are supported: P starts from them, P(q) ∝ w_q exp(−E_q), and the training metric is their weighted
    mean. Document weights are refused.
    """

    saved_values: ClassVar[Mapping[str, Any]] = {"rounds_": int}

    metric: str | Measure = "map"
    convention: str = "standard"
    max_rounds: int = 500
    max_consecutive: int = 2
    early_stopping: int = 50
    target_encoding: EncodedCategories = "auto"
    threads: int | None = None
    verbose: bool = False

    @override
    def check_parameters(self) -> None:
        for name in ("max_rounds", "max_consecutive", "early_stopping"):
            check_whole(name, getattr(self, name), 1)

    def _fit(self, data: RankingData, valid: RankingData | None) -> None:
        self.standardization_ = Standardization.from_data(data.X, data.feature_names, self.threads)
        objective = self._training_metric(data)
        selection = objective if valid is None else self._judge(valid).for_selection()
        self.coef_, self.rounds_ = np.zeros(data.n_features), 0
        decides: Literal["valid", "train"] = "train" if valid is None else "valid"
        watch = self._watch(self.max_rounds, patience=self.early_stopping, decides=decides, min_gain=_MIN_GAIN)
        if objective.is_constant():
            watch.stop("All orders of the training documents have the same metric.")
            return self._note(watch)
        features = self._features(data)
        candidates = _CandidateFeatures(_single_features(features, objective), self.max_consecutive)
        constant = self.standardization_.without_constants(np.ones(data.n_features)) == 0
        candidates.open[np.repeat(constant, 2)] = False  # constant columns have no effect at any weight
        if candidates.open.any():
            self._boost(
                objective, candidates, features, selection, features if valid is None else self._features(valid), watch
            )
            self.keep_value(watch.best_value, objective.name, objective.judge.convention.name, data=decides)
        else:
            watch.stop("All features are constant.")
            self.warn_constant("AdaRank: all features are constant, so all documents have the same score.")
        return self._note(watch)

    def _boost(
        self,
        objective: _TrainingMetric,
        candidates: _CandidateFeatures,
        features: Features,
        selection: Any,
        judged: Features,
        watch: LoopStopping,
    ) -> None:
        """Run the rounds; `selection` evaluates each on `judged`, the features of the validation data, if any."""
        worth, weights = objective.weights, np.zeros(features.n_columns)
        scores, judged_scores = np.zeros(features.X.shape[0]), np.zeros(judged.X.shape[0])
        with watch.interruptible():
            while not watch.over and watch.done < watch.last:
                column, step = candidates.winner(worth)
                weights[column] += step
                scores += step * features.column(column)
                judged_scores += step * judged.column(column)
                watch.note({watch.decides: selection(judged_scores)}, weights.copy())
                if not candidates.open.any():
                    watch.stop("Every feature has won max_consecutive rounds in a row.")
                worth = objective.weights * np.exp(-objective.per_query(scores))
                worth /= worth.sum()
        best, self.rounds_, _ = watch.kept()
        self.coef_ = best / self.standardization_.spread

    def _training_metric(self, data: RankingData) -> _TrainingMetric:
        objective = _TrainingMetric(self, data)
        refuse_if(
            not objective.judge.higher_is_better,
            f"AdaRank needs a metric whose larger values are better; '{self.metric}' is an error.",
        )
        values = np.concatenate([objective.best, objective.worst])
        largest = float(np.nan_to_num(np.abs(values)).max())
        if largest > 1 + 1e-9:
            raise DataError(
                f"AdaRank needs a metric between -1 and 1, since its weights are logarithms of (1 + E) / (1 - E), but "
                f"'{self.metric}' reaches {largest:g} on the training data; use one that is normalized, such as ndcg."
            )
        return objective

    def _features(self, data: RankingData) -> Features:
        """Return the features for access by column; sparse matrices are converted to CSC."""
        X = data.X if isinstance(data.X, np.ndarray) else data.X.tocsc()
        return Features(X, self.standardization_)


def _single_features(features: Features, objective: _TrainingMetric) -> FloatArray:
    """Return E of each query ranked by each feature and by its negative, in rows 2j and 2j + 1."""
    table = np.empty((2 * features.n_columns, len(objective.weights)))
    for column in range(features.n_columns):
        values = features.column(column)
        table[2 * column] = objective.per_query(values)
        table[2 * column + 1] = objective.per_query(-values)
    return table


class _CandidateFeatures:
    """The features that may win, each with both signs, until they have won too many consecutive rounds."""

    def __init__(self, alone: FloatArray, max_consecutive: int) -> None:
        self.alone, self.max_consecutive = alone, max_consecutive
        self.open = np.ones(len(alone), dtype=bool)
        self.last, self.in_a_row = -1, 0

    def winner(self, worth: FloatArray) -> tuple[int, float]:
        """Return the best column for these query weights, and its weight, which is negative for its negative."""
        correct = self.alone @ worth
        choice = int(np.argmax(np.where(self.open, correct, -np.inf)))
        column, negative = divmod(choice, 2)
        self.in_a_row = self.in_a_row + 1 if column == self.last else 1
        self.last = column
        if self.in_a_row == self.max_consecutive:
            self.open[2 * column : 2 * column + 2] = False
        right, wrong = max(1 + correct[choice], 1e-12), max(1 - correct[choice], 1e-12)
        step = 0.5 * float(np.log(right / wrong))
        return column, -step if negative else step


_MAX_EDGE = 1 - 1e-6  # r of a perfect threshold, whose α would be infinite; limits α to 7.25


@dataclass(kw_only=True, eq=False, repr=False)
class RankBoost(AdditiveTerms, RoundBasedRanker):
    """s(x) = Σ_t α_t · 1[x_{f(t)} > θ_t].

    The pair distribution D of the paper is not stored: the potential of a document, π_i = Σ_j D(i, j) − Σ_j D(j, i), is
    the negative gradient of the exponential pair loss at the scores so far. Round t picks the threshold with the
    largest |r|, r = Σ_i π_i h(x_i), and α = ½ ln((1 + r)/(1 − r)), with D normalized over all pairs.

    Args:
        max_rounds: maximum number of rounds.
        n_thresholds: candidate thresholds per feature, at quantiles of the training data.
        metric: the validation metric; with `valid` data the best number of rounds is kept.
        convention: the convention of that metric.
        target_encoding: categories to replace by target encodings: ``"auto"`` (categories with many levels, if their
            encoding helps on held-out queries), True (all categories with many levels), False, or a list of names and
            pairs of names; see `toprank.rankers.target_encoding`.
        threads: number of threads; has no effect on results.
        verbose: whether to write the rounds, the metric on `valid` and the time left to standard error.

    After fitting: `features_`, `thresholds_`, `alphas_`, one entry per round; `history_` (round, valid) and `stopped_`
    (the reason, in words). Missing values are below every threshold. An interrupt from the keyboard ends the training
    with a warning, and the rounds until then are kept.
    """

    supports_sparse: ClassVar[bool] = False
    propagates_infinity: ClassVar[bool] = False
    saved_arrays: ClassVar[Mapping[str, Numbers]] = {
        "features_": Numbers("rounds", whole=True),
        "thresholds_": Numbers("rounds"),
        "alphas_": Numbers("rounds"),
    }

    max_rounds: int = 300
    n_thresholds: int = 64
    metric: str | Measure = "map"
    convention: str = "standard"
    target_encoding: EncodedCategories = "auto"
    threads: int | None = None
    verbose: bool = False

    @override
    def check_parameters(self) -> None:
        check_whole("max_rounds", self.max_rounds, 1)
        check_whole("n_thresholds", self.n_thresholds, 1, 256)

    def _fit(self, data: RankingData, valid: RankingData | None) -> None:
        bound = make_loss("Exponential").on(
            data.labels, data.queries, document_weights=data.document_weights, query_weights=data.query_weights
        )
        cuts = self._cuts(data.X)
        bins = np.empty(data.X.shape, dtype=np.uint8)
        for j, cut_points in enumerate(cuts):
            column = data.X[:, j]
            bins[:, j] = np.where(np.isnan(column), 0, np.searchsorted(cut_points, column, side="left"))
        judge = None if valid is None else self._judge(valid).for_selection()
        watch = self._watch(self.max_rounds, higher_is_better=judge is None or judge.higher_is_better)
        scores, judged_scores = np.zeros(data.n_documents), np.zeros(0 if valid is None else valid.n_documents)
        chosen: list[tuple[int, np.float64, float]] = []
        with watch.interruptible():
            while not watch.over and watch.done < watch.last:
                now = bound.at(scores, threads=self.threads)
                potentials = -now.grad / now.value if now.value > 0 else -now.grad  # value = Σ D before normalization
                column, cut, r = _best_threshold(bins, potentials, max(len(c) for c in cuts))
                if not abs(r) > _MIN_EDGE:
                    watch.stop("No threshold separates better documents from worse ones.")
                    break
                sure = min(max(r, -_MAX_EDGE), _MAX_EDGE)
                alpha = 0.5 * np.log((1 + sure) / (1 - sure))
                threshold = cuts[column][
                    cut
                ]  # a NumPy float64, because a Python float would be compared in float32 with float32 features
                chosen.append((column, threshold, alpha))
                scores += alpha * (bins[:, column] > cut)
                metrics: dict[str, float] = {}
                if judge is not None and valid is not None:
                    judged_scores += alpha * (valid.X[:, column] > threshold)
                    metrics["valid"] = judge(judged_scores)
                watch.note(metrics, None)
        kept = chosen[: watch.done if judge is None else watch.best]
        self.features_ = np.array([column for column, _, _ in kept], dtype=np.int64)
        self.thresholds_ = np.array([threshold for _, threshold, _ in kept], dtype=np.float64)
        self.alphas_ = np.array([alpha for _, _, alpha in kept], dtype=np.float64)
        if not kept:
            self.warn_constant(
                "RankBoost: no threshold of any feature separates better documents from worse ones (labels from "
                f"{data.labels.min():g} to {data.labels.max():g}), so all documents have the same score."
            )
        if judge is not None:
            self.keep_value(watch.best_value, judge.name, judge.convention.name)
        self._note(watch)

    @override
    def check_restored(self) -> None:
        super().check_restored()
        refuse_if(
            len(self.features_) and not 0 <= self.features_.min() <= self.features_.max() < self.n_columns_,
            "a round uses a feature that does not exist",
        )

    def _cuts(self, X: Any) -> list[FloatArray]:
        """Return candidate thresholds of each feature: unique quantiles of its values, at least one."""
        shares = np.linspace(0, 1, self.n_thresholds + 2)[1:-1]
        columns = (np.asarray(X[:, j], dtype=np.float64) for j in range(X.shape[1]))
        present = (column[np.isfinite(column)] for column in columns)
        return [np.unique(np.quantile(c, shares, method="lower")) if len(c) else np.zeros(1) for c in present]

    def _scores(self, X: Any) -> FloatArray:
        scores = np.zeros(len(X))
        for column, threshold, alpha in zip(self.features_, self.thresholds_, self.alphas_, strict=True):
            scores += alpha * (X[:, column] > threshold)
        return scores

    def _terms(self, X: Any) -> FloatArray:
        terms = np.zeros(X.shape)
        for column, threshold, alpha in zip(self.features_, self.thresholds_, self.alphas_, strict=True):
            terms[:, column] += alpha * (X[:, column] > threshold)
        return terms

    @override
    def score_profile(self, feature: int) -> ScoreProfile:
        column = column_of(feature, self.columns_)
        return ScoreProfile(0.0, np.unique(self.thresholds_[self.features_ == column]))

    @override
    def _formula(self) -> Part:
        rounds = zip(self.features_.tolist(), self.thresholds_.tolist(), self.alphas_.tolist(), strict=True)
        return Forest.from_trees([stump(*step) for step in rounds], self.n_columns_, np.zeros(1), flushes=False)


def _best_threshold(bins: npt.NDArray[np.uint8], potentials: FloatArray, n_cuts: int) -> tuple[int, int, float]:
    """Return the (feature, cut, r) with the largest |r|, the sum of the potentials of the documents above the cut."""
    sums = np.zeros((bins.shape[1], n_cuts + 1))
    kernels.add_potentials(bins, potentials, sums)
    above = np.cumsum(sums[:, :0:-1], axis=1)  # the highest cut first
    column, place = divmod(int(np.argmax(np.abs(above))), n_cuts)
    return column, n_cuts - 1 - place, float(above[column, place])


@dataclass(kw_only=True, eq=False, repr=False)
class CoordinateAscent(WeightedSum, RoundBasedRanker):
    """Maximize a metric over w by line searches along the coordinates, with several restarts.

    Each search tries steps of increasing size in both directions and keeps the best. A cycle over all features (in
    random order) is repeated until it gains less than `tolerance`. The metric is not smooth, so the result is a local
    optimum.

    Args:
        metric: the metric to maximize.
        convention: its convention.
        restarts: number of starts; the first has equal weights, the others random ones.
        max_cycles: maximum number of cycles per start.
        tolerance: minimum gain of a cycle to start another.
        steps: number of step sizes in each direction.
        first_step: the smallest step, relative to the weight (or to 1 if it is 0); each further step is twice as long.
        seed: seed of orders and random starts.
        target_encoding: categories to replace by target encodings: ``"auto"`` (categories with many levels, if their
            encoding helps on held-out queries), True (all categories with many levels), False, or a list of names and
            pairs of names; see `toprank.rankers.target_encoding`.
        threads: number of threads; has no effect on results.
        verbose: whether to write the metric and the time left to standard error after each cycle.

    After fitting: `coef_` for raw features; `history_` (round: one cycle of a start, train) and `stopped_` (the reason,
    in words). The best start on `valid` is kept if given. An interrupt from the keyboard ends the training with a
    warning, and the best weights until then are kept, including those of the unfinished cycle.

    The training metric is the mean weighted by query weights; document weights are refused.
    """

    metric: str | Measure = "ndcg@10"
    convention: str = "standard"
    restarts: int = 3
    max_cycles: int = 25
    tolerance: float = 1e-3
    steps: int = 10
    first_step: float = 0.05
    seed: int = 0
    target_encoding: EncodedCategories = "auto"
    threads: int | None = None
    verbose: bool = False

    @override
    def check_parameters(self) -> None:
        for name in ("restarts", "max_cycles", "steps"):
            check_whole(name, getattr(self, name), 1)
        check_number("first_step", self.first_step, above=0)
        check_number("tolerance", self.tolerance, least=0)

    def _fit(self, data: RankingData, valid: RankingData | None) -> None:
        self.standardization_ = Standardization.from_data(data.X, data.feature_names, self.threads)
        features = Features(data.X, self.standardization_)
        objective = _TrainingMetric(self, data)
        selection = None if valid is None else self._judge(valid)
        if selection is not None and self.restarts > 1:
            selection.for_selection()
        watch = self._watch(self.restarts * self.max_cycles, higher_is_better=objective.judge.higher_is_better)
        if objective.is_constant():
            self.coef_ = np.zeros(data.n_features)
            watch.stop("All orders of the training documents have the same metric.")
            return self._note(watch)
        rng = np.random.default_rng(self.seed)
        best_value = -np.inf
        for restart in range(self.restarts):
            d = data.n_features
            start = np.full(d, 1 / d) if restart == 0 else rng.uniform(-1, 1, d) / d
            start = self.standardization_.without_constants(start)
            weights, value = self._climb(features, objective, start, rng, watch)
            if selection is not None and valid is not None:
                scores = Features(valid.X, self.standardization_).times(slice(0, valid.n_documents), weights)
                value = selection.signed(scores)
            if value > best_value or restart == 0:
                best_value, best = value, weights
            if watch.over:
                break
        self.coef_ = best / self.standardization_.spread
        data_of = "train" if valid is None else "valid"
        self.keep_value(objective.sign * best_value, objective.name, objective.judge.convention.name, data=data_of)
        return self._note(watch)

    def _climb(
        self,
        features: Features,
        objective: _TrainingMetric,
        start: FloatArray,
        rng: np.random.Generator,
        watch: LoopStopping,
    ) -> tuple[FloatArray, float]:
        every = slice(0, features.X.shape[0])
        weights, scores = start.copy(), features.times(every, start)
        value = objective.signed(scores)
        for _ in range(self.max_cycles):
            before = value
            try:
                for j in rng.permutation(len(weights)):
                    column = features.column(j)
                    changes = self._changes(weights[j], len(weights))
                    gains = [objective.signed(scores + change * column) for change in changes]
                    best = int(np.argmax(gains))
                    if gains[best] > value + _MIN_GAIN:
                        value = gains[best]
                        weights[j] += changes[best]
                        scores = scores + changes[best] * column
            except KeyboardInterrupt:
                watch.interrupted = True
            watch.note({"train": objective.sign * value}, None)
            if watch.over:
                return weights, value
            scale = np.abs(weights).sum()
            if scale > 0:  # the metric depends only on the direction of the weights; normalize them for the step sizes
                weights, scores = weights / scale, scores / scale
            if value - before < self.tolerance:
                break
        return weights, value

    def _changes(self, weight: float, d: int) -> list[float]:
        """Return the changes to try: steps of increasing size in both directions, and to 0."""
        unit = abs(weight) if weight != 0 else 1.0 / d
        steps = [unit * self.first_step * 2.0**i for i in range(self.steps)]
        return [*steps, *(-step for step in steps), *([-weight] if weight != 0 else [])]
