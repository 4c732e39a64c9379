"""`TreeRanker`: gradient-boosted trees under any loss. LambdaMART = trees under LambdaRank; McRank = trees under the
multinomial likelihood; expected-gain trees = grade probabilities from trees, under any loss of the score.
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

_ROWS = 1 << 18


class MonotoneWarning(UserWarning):
    """Trees break a direction of `monotone`."""


@dataclass(eq=False, repr=False)
class TreeRanker(ForestTerms, GradeProbabilities):
    """Gradient-boosted trees (LightGBM) whose gradient and curvature come from any loss of `toprank.losses`.

    The objective is the sum over queries of the loss. A leaf's value is −Σ gradient / (Σ curvature + l2), with the
    diagonal of the loss's curvature, never less than 1e-6 of its mean where there is a gradient. Where the loss has
    only a bound of its curvature (`traits.curvature` is not ``exact``), a search along each tree says by which power of
    2 it is too large for the next (Friedman 2001); not under DART, and not under LambdaRank, whose gradient has no
    value to search by.

    Args:
        loss: a loss, its name, or LightGBM's own ``"lightgbm:lambdarank"`` or ``"lightgbm:rank_xendcg"``. A name means
            the loss with its defaults, but ``"LambdaRank"`` means ``LambdaRank(truncation=30, norm=True)``, as in the
            system LambdaMART. LightGBM's take whole labels from 0 to 30 only, and weigh a document's gradient by its
            weight (our LambdaRank weighs a pair by both).
        n_trees: most rounds of boosting; each makes a tree, or one for each grade.
        num_leaves: most leaves of a tree.
        learning_rate: the factor of a tree's values.
        min_data_in_leaf: fewest documents in a leaf.
        l2: penalty on the values of the leaves.
        feature_fraction: share of the features that a tree may use, drawn by seed.
        row_fraction: share of the documents that a tree is grown on, drawn by seed.
        query_fraction: share of the queries, whole ones, that a tree is grown on, drawn by seed. (Under losses of ours
            the documents of the others still count for `min_data_in_leaf`.)
        boosting: ``gbdt``, or ``dart``: each round leaves out some of the earlier trees at random.
        monotone: 1 (scores may only rise with the feature), −1 (only fall) or 0 for each feature; or a dictionary from
            names or numbers of features to ±1. You are warned of directions that the finished trees break.
        categorical: numbers or names of further features that hold categories: whole numbers from 0 on. Columns of
            tables that are categories need not be named.
        outputs: ``score``: one output a document. ``grades``: one for each grade, P = softmax, and the score is the
            expected gain Σ_k G(k) P(k), trained under a loss of the score or under ``Multinomial`` (McRank).
        gain: G of ``outputs="grades"``: a name or a table.
        metric: the metric of the history and of validation.
        convention: the rules of that metric.
        early_stopping: with `valid` data, stop after so many rounds without a better metric, and keep the best round;
            None to make all rounds and keep them.
        max_bin: bins of a feature.
        init_model: a fitted `TreeRanker` to go on from, on the same features and outputs.
        callbacks: functions of a `Round`, called after each; one that returns True ends the training.
        lightgbm_params: further parameters of LightGBM by name, such as ``{"max_depth": 6}``.
        seed: decides all sampling. The same data, seed and number of threads give the same model.
        target_encoding: categories to replace by target encodings: ``"auto"`` (categories with many levels, if their
            encoding helps on held-out queries), True (all categories with many levels), False, or a list of names and
            pairs of names; see `toprank.rankers.target_encoding`.
        threads: number of threads; None for all cores, or fewer on small data. Training has one thread in a process
            forked from one that has used LightGBM, whose threads do not survive a fork.
        verbose: write the metric and the time left to standard error: about once a second on a terminal, in one line
            that is updated in a notebook, every ten seconds elsewhere.

    Missing features (NaN) go the way that lowers the loss, at every split. An interrupt from the keyboard ends the
    training with a warning; the best model so far is kept. If scores or gradients cease to be finite, training fails
    with an error.

    Scores come from our own kernel, in the bits of LightGBM's `predict`; a model that was read needs no LightGBM.

    After fitting: `booster_` (LightGBM's, without `intercept_`, which the trees start from), `forest_` (the same trees
    as they score), `best_iteration_` (rounds in the model), `history_` (round, train, valid: the metric after each
    round; "train" only where the metric takes the training labels, and not with DART, which shows its training scores
    without the trees it left out), `stopped_` (why, in words), `feature_importances_` (shares of the gain of all
    splits), `directions_` (the directions of `monotone` that the finished trees are found to keep).

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
            "l2": [0.0, 0.1, 1.0, 10.0],  # values, because a logarithmic range cannot hold the default of 0
            "feature_fraction": (0.3, 1.0),
            "row_fraction": (0.5, 1.0),  # every objective can sample rows; not every one of LightGBM's samples queries
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
                f"TreeRanker: no tree found a split, so all documents score alike. {self._why_none(data)}"
            )

    def _why_none(self, data: RankingData | Source) -> str:
        """Return what may keep trees from a split, as a sentence."""
        if (
            isinstance(data, RankingData)
            and self._reads_labels
            and np.array_equal(data.queries.max(data.labels), data.queries.min(data.labels))
        ):
            return "In no query do the labels differ."
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
            f"lightgbm_params['{by_feature[0]}'] refers to features by position, but target_encoding gives the trees "
            "other columns. Leave one of the two out."
        )

    def directions_of_columns(self, data: RankingData | Source) -> list[int] | None:
        """Return the direction that `monotone` gives each column that the trees see."""
        if self.columns_ is None:
            return monotone_directions(self.monotone, data)
        directions = monotone_directions(self.monotone, self._features)
        if directions is None:
            return None
        gone = [
            place for place, direction in enumerate(directions) if direction and place not in self.columns_.unchanged
        ]
        if gone:
            raise DataError(f"Feature number {gone[0]} (from 0) cannot be both categorical and monotone.")
        return self.columns_.by_column(directions)

    def _of_features(self, directions: list[int]) -> list[int]:
        """Return the directions of features from those of columns."""
        if self.columns_ is None:
            return directions
        by_place = dict(zip(self.columns_.unchanged, directions, strict=False))
        return [by_place.get(place, 0) for place in range(self.n_features_in_)]

    def categorical_of_columns(self, data: RankingData) -> list[int]:
        """Return the columns that are split by sets of values."""
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
        """Return the directions that the finished trees keep; warn of the others."""
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
                f"init_model does not keep to what monotone says of feature {self._named(turned)}, and its trees stay "
                "as they are. Train it under the same monotone, or leave that out."
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
        """Yield P(grade | x) before calibration, in blocks of rows, since each grade needs several numbers a row."""
        parts = row_parts(slice(0, X.shape[0]), _ROWS)
        return (grade_probabilities(self.raw_scores(X[rows]) + self.intercept_) for rows in parts)

    def _own_probabilities(self, X: Any) -> FloatArray:
        return _joined(self._grade_blocks(self._prediction_rows(X)))

    def raw_scores(self, X: Any) -> FloatArray:
        """Return the trees' sums without the intercept, (n,) or (n, grades), of rows with the columns that they see."""
        return self._trees.forest.predict(X, self.threads)

    @property
    @override
    def forest_(self) -> Forest:
        check_is_fitted(self)
        return self._trees.forest

    @property
    def booster_(self) -> Any:
        """LightGBM's booster; if the model was read from a file, it is made at its first use."""
        check_is_fitted(self)
        return self._trees.booster

    @available_if(has_grades)
    def predict_proba(self, X: Any) -> FloatArray:
        """P(grade | x), one column for each grade 0 … K − 1; only with ``outputs="grades"``."""
        check_is_fitted(self)
        return by_row(X, _joined(self._calibrated(P) for P in self._grade_blocks(self._prediction_rows(X))))

    @property
    def feature_importances_(self) -> FloatArray:
        """How much each feature's splits lowered the objective, as shares of 1."""
        return self.shares_of_features(self.forest_.feature_gains)

    # ---- files ----

    def state(self) -> State:
        """See `Ranker.state`. Callbacks and `init_model` served the training and are not part of the model."""
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
        _ = ranker._trees.forest.packed  # reads the text: a forged one is refused here, and no request waits for it
        return ranker

    @override
    def check_restored(self) -> None:
        super().check_restored()
        if self.forest_.n_features != self.n_columns_:
            raise DataError("the trees do not fit the number of features")
        outputs = self.forest_.outputs
        if self.intercept_.shape != (outputs,) or self.gains_.shape != (outputs if self.outputs == "grades" else 0,):
            raise DataError("the trees do not fit the number of outputs")
        if self.directions_ is not None:
            monotone_directions(self.directions_, self._features)


class _TrainedTrees:
    """LightGBM's booster or the text of a file, and what is made of either at its first use."""

    def __init__(self, booster: Any = None, text: str | None = None) -> None:
        if booster is not None:
            self.booster = booster
        if text is not None:
            self.text = text

    @cached_property
    def text(self) -> str:
        """LightGBM's text, as it stands in the file of the model."""
        return only_trees(self.booster.model_to_string())

    @cached_property
    def booster(self) -> Any:
        return booster_of(written_trees(self.forest))

    @cached_property
    def forest(self) -> Forest:
        return read_trees(self.text)


def _joined(blocks: Iterable[FloatArray]) -> FloatArray:
    """The blocks one below the other; a single one is not copied."""
    arrays = list(blocks)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
