"""`TreeRanker`: gradient-boosted trees under any loss.

LambdaMART is trees under LambdaRank; McRank is trees under the multinomial likelihood; expected-gain trees predict
grade probabilities and are trained under any loss of the score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray, row_parts
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.data.encoding import listed
from toprank.errors import DataError, UnknownNameError, count_of, warn_user
from toprank.losses import Loss
from toprank.metrics.measure import Measure
from toprank.rankers.base import by_row
from toprank.rankers.columns import check_init_model
from toprank.rankers.contributions import ForestTerms
from toprank.rankers.early_stopping import Round, Rounds
from toprank.rankers.estimator import available_if, check_is_fitted
from toprank.rankers.formula import Part
from toprank.rankers.probabilities import GradeProbabilities, has_grades
from toprank.rankers.schema import Numbers, State, needed, plain
from toprank.rankers.source import Source
from toprank.rankers.target_encoding import EncodedCategories
from toprank.rankers.trees.directions import verified_monotonicity
from toprank.rankers.trees.forest import Forest
from toprank.rankers.trees.parameters import (
    BY_FEATURE,
    BareColumns,
    categorical_columns,
    check_combination,
    monotone_directions,
    place_of,
)
from toprank.rankers.trees.text import read_trees, written_trees
from toprank.rankers.trees.training import booster_of, only_trees, train_trees
from toprank.scorers.expected_gain import expected_gains, grade_probabilities

_ROWS_PER_BLOCK = 1 << 18


class MonotoneWarning(UserWarning):
    """Trees violate a constraint of `monotone`."""


@dataclass(eq=False, repr=False)
class TreeRanker(ForestTerms, GradeProbabilities):
    """Gradient-boosted trees (LightGBM) whose gradient and curvature come from any loss of `toprank.losses`.

    The objective is the sum of the loss over queries. The value of a leaf is −Σ gradient / (Σ curvature + l2), with the
    diagonal of the loss's curvature, which is at least 1e-6 of its mean for rows with a gradient. If the loss has only
    an upper bound of its curvature (`traits.curvature` is not ``exact``), a line search along each tree scales the
    bound for the next tree by a power of 2 (Friedman 2001). This does not apply to DART, nor to LambdaRank, whose
    gradient has no value to search on.

    Args:
        loss: a loss, its name, or LightGBM's own ``"lightgbm:lambdarank"`` or ``"lightgbm:rank_xendcg"``. A name
            selects the loss with its defaults, except that ``"LambdaRank"`` is
            ``LambdaRank(truncation=30, norm=True)``, as in the system LambdaMART. LightGBM's losses support only
            integer labels from 0 to 30, and weight the gradient of a document by its weight (our LambdaRank weights a
            pair by both).
        n_trees: maximum number of boosting rounds; each adds one tree, or one tree per grade.
        num_leaves: maximum number of leaves per tree.
        learning_rate: factor of the values of each tree.
        min_data_in_leaf: minimum number of documents in a leaf.
        l2: penalty on the values of the leaves.
        feature_fraction: fraction of the features sampled for each tree.
        row_fraction: fraction of the documents sampled for each tree.
        query_fraction: fraction of whole queries sampled for each tree. (Under our losses, documents of the other
            queries still count for `min_data_in_leaf`.)
        boosting: ``gbdt``, or ``dart``, which drops random earlier trees in each round.
        monotone: 1 (the score may only increase with the feature), −1 (only decrease) or 0 for each feature; or a
            dictionary from names or indices of features to ±1. Violations in the finished trees cause a warning.
        categorical: indices or names of further categorical features, with integers from 0. Categorical columns of
            tables need not be listed.
        outputs: ``score`` for one output per document. ``grades`` for one per grade: P = softmax, and the score is the
            expected gain Σ_k G(k) P(k), trained under a loss of the score or under ``Multinomial`` (McRank).
        gain: G for ``outputs="grades"``, a name or a table.
        metric: the metric of the history and of validation.
        convention: the convention of that metric.
        early_stopping: with `valid` data, stop after this many rounds without a better metric, and keep the best round.
            None to run and keep all rounds.
        max_bin: maximum number of bins per feature.
        init_model: a fitted `TreeRanker` to continue from, with the same features and outputs.
        callbacks: functions of a `Round`, called after each; one that returns True ends the training.
        lightgbm_params: further LightGBM parameters by name, such as ``{"max_depth": 6}``.
        seed: seed of all sampling. The same data, seed and number of threads give the same model.
        target_encoding: categories to replace by target encodings: ``"auto"`` (categories with many levels, if their
            encoding helps on held-out queries), True (all categories with many levels), False, or a list of names and
            pairs of names; see `toprank.rankers.target_encoding`.
        threads: number of threads; None for all cores, or fewer on small data. Training uses one thread in a process
            forked from one that has used LightGBM, whose threads do not survive a fork.
        verbose: whether to write the metric and the time left to standard error: about once a second on a terminal, in
            one line that is updated in a notebook, every ten seconds elsewhere.

    Every split sends missing features (NaN) in the direction that lowers the loss. An interrupt from the keyboard ends
    the training with a warning, and the best model so far is kept. If scores or gradients cease to be finite, training
    fails with an error.

    Scores come from our own kernel, with the bits of LightGBM's `predict`; loaded models do not need LightGBM.

    After fitting: `booster_` (LightGBM's booster, without `intercept_`, the initial score), `forest_` (the same trees
    for scoring), `best_iteration_` (rounds in the model), `history_` (round, train, valid: the metric after each round;
    "train" only if the metric supports the training labels, and not for DART, whose training scores exclude the dropped
    trees), `stopped_` (the reason, in words), `feature_importances_` (shares of the gain of all splits), `directions_`
    (the constraints of `monotone` that the finished trees satisfy).

    Cost: that of LightGBM, and of the loss once per round. Source: Friedman 2001; Burges 2010 (LambdaMART); Li, Burges
    & Wu 2007 (McRank).

    >>> import toprank as tr
    >>> train, valid = tr.split(tr.synthetic(n_queries=120, truth="nonlinear", seed=0), (0.7, 0.3))
    >>> ranker = TreeRanker("LambdaRank", n_trees=20, num_leaves=7, threads=1).fit(train, valid=valid)
    >>> ranker.best_iteration_ <= 20, len(ranker.history_["valid"])
    (True, 20)
    """

    saved_arrays: ClassVar[Mapping[str, Numbers]] = {"intercept_": Numbers("outputs"), "gains_": Numbers("grades")}
    saved_values: ClassVar[Mapping[str, Any]] = {
        "best_iteration_": int,
        "history_": dict[str, list[float | None]],
        "stopped_": str,
        **GradeProbabilities.saved_values,
    }
    supports_categories: ClassVar[bool] = True
    supports_distributed: ClassVar[bool] = True
    rounds: ClassVar[Rounds | None] = Rounds("n_trees", "best_iteration_", nested=True)
    family: ClassVar[str | None] = "trees"

    loss: Loss | str = "LambdaRank"
    _: KW_ONLY
    n_trees: int = 300
    num_leaves: int = 31
    learning_rate: float = 0.1
    min_data_in_leaf: int = 20
    l2: float = 0.0
    feature_fraction: float = 1.0
    row_fraction: float = 1.0
    query_fraction: float = 1.0
    boosting: Literal["gbdt", "dart"] = "gbdt"
    monotone: Sequence[int] | Mapping[str | int, int] | None = None
    categorical: Sequence[int | str] = ()
    outputs: Literal["score", "grades"] = "score"
    gain: str | Sequence[float] = "exponential"
    metric: str | Measure = "ndcg@10"
    convention: str = "standard"
    early_stopping: int | None = 50
    max_bin: int = 255
    init_model: TreeRanker | None = None
    callbacks: Sequence[Callable[[Round], Any]] = ()
    lightgbm_params: Mapping[str, Any] | None = None
    seed: int = 0
    target_encoding: EncodedCategories = "auto"
    threads: int | None = None
    verbose: bool = False
    _trees: _TrainedTrees = field(init=False)

    @override
    def search_space(self) -> dict[str, Any]:
        return {
            "num_leaves": (4, 128, "log"),
            "learning_rate": (0.02, 0.3, "log"),
            "min_data_in_leaf": (5, 200, "log"),
            "l2": [0.0, 0.1, 1.0, 10.0],  # values, because a logarithmic range excludes the default of 0
            "feature_fraction": (0.3, 1.0),
            "row_fraction": (
                0.5,
                1.0,
            ),  # all objectives support row sampling; not all of LightGBM's support query sampling
        }

    # ---- training ----

    @override
    def check_parameters(self) -> None:
        whole = {"n_trees": 1, "num_leaves": 2, "min_data_in_leaf": 0, "max_bin": 2, "seed": 0}
        for name, least in whole.items():
            check_whole(name, getattr(self, name), least, below=2**31)
        if self.early_stopping is not None:
            check_whole("early_stopping, a number of rounds or None for never,", self.early_stopping, 1)
        check_number("learning_rate", self.learning_rate, above=0)
        check_number("l2", self.l2, least=0)
        for name in ("feature_fraction", "row_fraction", "query_fraction"):
            check_number(name, getattr(self, name), above=0, most=1)
        for name, choices in (("boosting", ("gbdt", "dart")), ("outputs", ("score", "grades"))):
            if getattr(self, name) not in choices:
                raise UnknownNameError(f"kind of {name}", str(getattr(self, name)), choices)

    def _fit(self, data: RankingData | Source, valid: RankingData | Source | None) -> None:
        if self.init_model is not None:
            check_init_model(self, data)
        check_combination(self)
        directions = self.directions_of_columns(data)
        if directions is not None and self.init_model is not None:
            self._refuse_turned(directions, self.init_model)
        start, boosted = train_trees(data, self, valid)
        self.intercept_, self.gains_, self.calibration_ = start.intercept, start.gains, None
        self._trees, self.best_iteration_ = _TrainedTrees(booster=boosted.booster), boosted.rounds
        self.history_, self.stopped_ = boosted.history, boosted.stopped
        self.l2_ = float(self.l2)
        self.interrupted_ = boosted.interrupted
        self.path_: list[dict[str, Any]] = [
            {"l2": self.l2_, "iterations": boosted.rounds, "interrupted": boosted.interrupted}
        ]
        self.directions_ = None if directions is None else self._of_features(self._held(directions))
        if boosted.valid is not None:
            self.path_[0]["valid"] = boosted.valid
            self.keep_value(boosted.valid, boosted.metric, boosted.convention)
        if boosted.interrupted:
            self.warn_unconverged(f"TreeRanker: {boosted.stopped} The best {boosted.rounds} rounds are kept.")
        elif not self.booster_.feature_importance().any():
            self.warn_constant(
                f"TreeRanker: no tree found a split, so all documents have the same score. {self._why_none(data)}"
            )

    def _why_none(self, data: RankingData | Source) -> str:
        """Return a likely reason why no tree found a split, as a sentence."""
        if (
            isinstance(data, RankingData)
            and self._reads_labels
            and np.array_equal(data.queries.max(data.labels), data.queries.min(data.labels))
        ):
            return "All documents of each query have the same label."
        if self.min_data_in_leaf == 1:
            return "No split of any feature lowers the loss."
        return (
            f"With {count_of(data.n_documents, 'document')}, try a lower min_data_in_leaf than {self.min_data_in_leaf}."
        )

    @override
    def categories_to_encode(self) -> EncodedCategories:
        by_feature = [name for name in BY_FEATURE if name in (self.lightgbm_params or {})]
        if not by_feature or self.target_encoding is False:
            return self.target_encoding
        if self.target_encoding == "auto":
            return False
        raise DataError(
            f"lightgbm_params['{by_feature[0]}'] refers to features by position, but target_encoding changes the "
            "columns. Drop one of the two."
        )

    def directions_of_columns(self, data: RankingData | Source) -> list[int] | None:
        """Return the direction that `monotone` sets for each input column."""
        if self.columns_ is None:
            return monotone_directions(self.monotone, data)
        directions = monotone_directions(self.monotone, self._features)
        if directions is None:
            return None
        gone = [
            place for place, direction in enumerate(directions) if direction and place not in self.columns_.unchanged
        ]
        if gone:
            raise DataError(f"Feature {gone[0]} (from 0) cannot be both categorical and monotone.")
        return self.columns_.by_column(directions)

    def _of_features(self, directions: list[int]) -> list[int]:
        """Return the directions of features, from the directions of input columns."""
        if self.columns_ is None:
            return directions
        by_place = dict(zip(self.columns_.unchanged, directions, strict=False))
        return [by_place.get(place, 0) for place in range(self.n_features_in_)]

    def categorical_of_columns(self, data: RankingData) -> list[int]:
        """Return the input columns that are split by sets of values."""
        if self.columns_ is None:
            return categorical_columns(self.categorical, data)
        places = {place_of(feature, self._features, "categorical") for feature in self.categorical}
        kept = [column for column, place in enumerate(self.columns_.unchanged) if place in places]
        return categorical_columns(kept, data)

    @property
    def _features(self) -> BareColumns:
        names = getattr(self, "feature_names_in_", None)
        return BareColumns(self.n_features_in_, None if names is None else tuple(names))

    def _held(self, directions: list[int]) -> list[int]:
        """Return the directions that the finished trees satisfy; warn about the others."""
        held = verified_monotonicity(self.forest_, directions)
        turned = [place for place, direction in enumerate(directions) if held[place] != direction]
        if turned:
            warn_user(
                f"TreeRanker: the trees violate the monotone constraint of feature {self._named(turned)}; its entry of "
                "`directions_` is 0. LightGBM cannot enforce it with these lightgbm_params (zero_as_missing treats "
                "zeros as missing; monotone_constraints_method 'advanced' is not exact). Train without them.",
                MonotoneWarning,
            )
        return held

    def _refuse_turned(self, directions: list[int], before: TreeRanker) -> None:
        held = verified_monotonicity(before.forest_, directions)
        turned = [place for place, direction in enumerate(directions) if held[place] != direction]
        if turned:
            raise DataError(
                f"init_model violates the monotone constraint of feature {self._named(turned)}, and its trees do not "
                "change. Train it with the same monotone, or omit monotone."
            )

    def _named(self, places: Sequence[int]) -> str:
        names = self.column_names_
        return listed([str(place) if names is None else str(names[place]) for place in places])

    # ---- prediction ----

    def _scores(self, X: Any) -> FloatArray:
        if len(self.gains_):
            return _joined(expected_gains(self._calibrated(P), self.gains_) for P in self._grade_blocks(X))
        raw = self.raw_scores(X)
        if self.intercept_[0]:
            raw += self.intercept_[0]
        return raw

    @override
    def _formula(self) -> Part:
        forest = replace(self.forest_, intercepts=np.array(self.intercept_))
        return self._expected(forest) if len(self.gains_) else forest

    def _grade_blocks(self, X: Any) -> Iterator[FloatArray]:
        """Yield P(grade | x) before calibration in blocks of rows, which limits memory."""
        parts = row_parts(slice(0, X.shape[0]), _ROWS_PER_BLOCK)
        return (grade_probabilities(self.raw_scores(X[rows]) + self.intercept_) for rows in parts)

    def _own_probabilities(self, X: Any) -> FloatArray:
        return _joined(self._grade_blocks(self._prediction_rows(X)))

    def raw_scores(self, X: Any) -> FloatArray:
        """Return the sums of the trees without the intercept, (n,) or (n, grades), for rows of input columns."""
        return self._trees.forest.predict(X, self.threads)

    @property
    @override
    def forest_(self) -> Forest:
        check_is_fitted(self)
        return self._trees.forest

    @property
    def booster_(self) -> Any:
        """LightGBM's booster; for a loaded model it is created at its first use."""
        check_is_fitted(self)
        return self._trees.booster

    @available_if(has_grades)
    def predict_proba(self, X: Any) -> FloatArray:
        """Return P(grade | x), one column for each grade 0 … K − 1; only with ``outputs="grades"``."""
        check_is_fitted(self)
        return by_row(X, _joined(self._calibrated(P) for P in self._grade_blocks(self._prediction_rows(X))))

    @property
    def feature_importances_(self) -> FloatArray:
        """The loss reduction of each feature's splits, with sum 1."""
        return self.shares_of_features(self.forest_.feature_gains)

    # ---- files ----

    def state(self) -> State:
        """See `Ranker.state`. Callbacks and `init_model` are not part of the model."""
        state, lightgbm_params = super().state(), self.as_fitted.lightgbm_params
        if lightgbm_params is not None:
            further = {name: plain(f"lightgbm_params['{name}']", value) for name, value in lightgbm_params.items()}
            state.values["parameters"]["lightgbm_params"] = further
        return state._replace(texts={"trees": written_trees(self.forest_)})

    @override
    def _saved_parameters(self) -> dict[str, Any]:
        plainest = {"callbacks": (), "init_model": None, "lightgbm_params": None, "monotone": self.directions_}
        return super()._saved_parameters() | plainest

    @classmethod
    @override
    def restore(cls, state: State) -> Self:
        ranker = super().restore(state)
        ranker.callbacks, ranker.categorical = (), tuple(ranker.categorical)
        if isinstance(ranker.monotone, Mapping):
            raise DataError("monotone is not a list of directions")
        ranker.directions_ = None if ranker.monotone is None else list(ranker.monotone)
        ranker.l2_ = float(ranker.l2)
        ranker._trees = _TrainedTrees(text=needed(state.texts, "trees"))
        _ = (
            ranker._trees.forest.packed
        )  # parse the text now, so that a forged one is refused and the first prediction is fast
        return ranker

    @override
    def check_restored(self) -> None:
        super().check_restored()
        if self.forest_.n_features != self.n_columns_:
            raise DataError("the trees do not match the number of features")
        outputs = self.forest_.outputs
        if self.intercept_.shape != (outputs,) or self.gains_.shape != (outputs if self.outputs == "grades" else 0,):
            raise DataError("the trees do not match the number of outputs")
        if self.directions_ is not None:
            monotone_directions(self.directions_, self._features)


class _TrainedTrees:
    """LightGBM's booster or the text of a file, and the other representations, created at their first use."""

    def __init__(self, booster: Any = None, text: str | None = None) -> None:
        if booster is not None:
            self.booster = booster
        if text is not None:
            self.text = text

    @cached_property
    def text(self) -> str:
        """LightGBM's text, as stored in the model file."""
        return only_trees(self.booster.model_to_string())

    @cached_property
    def booster(self) -> Any:
        return booster_of(written_trees(self.forest))

    @cached_property
    def forest(self) -> Forest:
        return read_trees(self.text)


def _joined(blocks: Iterable[FloatArray]) -> FloatArray:
    """Concatenate the blocks; a single one is not copied."""
    arrays = list(blocks)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
