"""Rankers that other libraries trained: `ForestRanker` and `ImportedLinearRanker` predict but cannot be fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Literal, NoReturn, Self

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray
from toprank.data.encoding import Encoding
from toprank.errors import DataError, refuse_if
from toprank.rankers.base import Ranker
from toprank.rankers.contributions import ForestTerms
from toprank.rankers.estimator import check_is_fitted
from toprank.rankers.formula import Part, before_rounding
from toprank.rankers.linear.weighted_sum import WeightedSum
from toprank.rankers.schema import State, needed
from toprank.rankers.trees.forest import Forest
from toprank.rankers.trees.text import read_trees, written_trees
from toprank.scorers.features import Standardization

Library = Literal["LightGBM", "XGBoost", "CatBoost", "RankLib"]


class ImportedRanker(Ranker):
    """Base of rankers that another library trained: they predict, and refuse to be fitted."""

    source: str

    @property
    def allows_extra_features(self) -> bool:
        """True if rows may have more columns than the model uses; the first ones are used.

        RankLib's files state only which features are used, not how many there are.
        """
        return bool(self.as_fitted.source == "RankLib")

    def _describe(self, features: int, names: Sequence[str] | None, facts: Mapping[str, Any]) -> None:
        """Set features and provenance from a model file; other libraries do not store the number of queries."""
        self.n_features_in_ = features
        if names is not None:
            self.feature_names_in_ = np.array(list(names), dtype=object)
        self.training_ = {"queries": 0, "features": features, **facts}

    @override
    def fit_source(self, X: Any, y: Any = None, qid: Any = None, valid: Any = None, weights: Any = None) -> NoReturn:
        raise DataError(
            f"This {type(self).__name__} was trained by {self.source} and can only predict. To train, use "
            f"tr.wrap(estimator) with an estimator of {self.source}, or a ranker of toprank."
        )

    def _fit(self, data: Any, valid: Any) -> NoReturn:
        self.fit_source(data, valid=valid)

    @override
    def _check_features(self, data: Any) -> None:
        if not self._has_more(data.n_features):
            super()._check_features(data)

    @override
    def _prediction_rows(self, X: Any) -> Any:
        rows = super()._prediction_rows(X)
        return rows[:, : self.n_features_in_] if self._has_more(rows.shape[1]) else rows

    @override
    def _rows(self, X: Any) -> Any:
        shape: tuple[int, ...] = getattr(X, "shape", ())
        if len(shape) == 2 and self._has_more(shape[1]) and not hasattr(X, "columns"):
            X = X[:, : self.n_features_in_]
        return super()._rows(X)

    def _keep_own_width(self, columns: int) -> None:
        """Use the first features in a blend whose other members have more."""
        if columns and self._has_more(self.n_features_in_, columns):
            self.n_features_in_ = columns

    def _has_more(self, columns: int, own_columns: int | None = None) -> bool:
        return self.allows_extra_features and columns > (self.n_features_in_ if own_columns is None else own_columns)


@dataclass(eq=False, repr=False)
class ForestRanker(ForestTerms, ImportedRanker):
    """Trees trained by LightGBM, XGBoost, CatBoost or RankLib, which `toprank.load` reads from that library's file.

    Scores are the sums of the trees, before any monotone function that the library's `predict` applies (such as a
    logistic function). They come from our own kernel, without any of the libraries.

    Args:
        source: the library, which decides how values are compared and added: all but LightGBM round features to single
            precision first.
        sums: ``single`` rounds the sum to single precision after each tree, as XGBoost and RankLib do.
        threads: number of threads; None for all cores.

    After loading: `forest_` (the trees in LightGBM's representation: x <= threshold goes left, and a tree with one leaf
    is a constant), `feature_importances_` (shares of the gain of all splits, if the file contains gains), `training_`
    (library, version, objective).

    >>> from toprank.rankers.trees.forest import Tree
    >>> ranker = ForestRanker.from_forest("XGBoost", Forest.from_trees([Tree.constant(0.5)], 2, np.zeros(1)))
    >>> ranker.predict(np.zeros((3, 2))).tolist()
    [0.5, 0.5, 0.5]
    """

    family: ClassVar[str | None] = "trees"
    outputs: ClassVar[str] = "score"

    source: Library = "LightGBM"
    _: KW_ONLY
    sums: Literal["double", "single"] = "double"
    threads: int | None = None
    _forest: Forest = field(init=False)

    @classmethod
    def from_forest(
        cls,
        source: Library,
        forest: Forest,
        *,
        sums: Literal["double", "single"] = "double",
        names: Sequence[str] | None = None,
        encoding: Encoding | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Self:
        """Build a ranker from parsed trees."""
        ranker = cls(source, sums=sums)
        ranker._adopt(forest)
        ranker.encoding_ = encoding
        ranker._describe(forest.n_features, names, {"trees": len(forest.n_leaves), **(facts or {})})
        return ranker.finalized()

    def _adopt(self, forest: Forest) -> None:
        """Set the trees; all libraries but LightGBM round features first, and do not flush values near 0."""
        single = self.source != "LightGBM"
        self._forest = replace(forest, flushes=not single, single_rows=single, single_sums=self.sums == "single")
        largest = np.maximum.reduceat(np.abs(forest.values), np.cumsum(forest.n_leaves) - forest.n_leaves).sum()
        refuse_if(not largest < (1e38 if self.sums == "single" else 1e300), "the scores of the trees may not be finite")
        self.intercept_ = np.zeros(1)

    @property
    def supports_categories(self) -> bool:  # type: ignore[override]
        """True if the library supports category codes (LightGBM and XGBoost); for others, levels become columns."""
        return self.as_fitted.source in ("LightGBM", "XGBoost")

    def _scores(self, X: Any) -> FloatArray:
        return self._forest.predict(X, self.threads)

    @override
    def _formula(self) -> Part:
        forest = self.forest_
        refuse_if(
            not forest.flushes and forest.by_category,
            f"The trees split categories by {self.as_fitted.source}'s own rules (a set may contain missing values), "
            "which no export format supports. Train with one-hot columns instead of categories.",
        )
        if not forest.single_rows:
            return forest
        return replace(forest, threshold=before_rounding(forest.threshold), single_rows=False)

    @property
    @override
    def forest_(self) -> Forest:
        check_is_fitted(self)
        return self._forest

    @property
    def feature_importances_(self) -> FloatArray:
        """The loss reduction of each feature's splits, with sum 1; not every format contains gains."""
        gains = self.forest_.feature_gains
        if not gains.any():
            raise AttributeError(f"The file of {self.as_fitted.source} does not contain the gains of its splits.")
        return self.shares_of_features(gains)

    def state(self) -> State:
        """See `Ranker.state`. The trees are written in LightGBM's text format."""
        return super().state()._replace(texts={"trees": written_trees(self.forest_)})

    @classmethod
    @override
    def restore(cls, state: State) -> Self:
        ranker = super().restore(state)
        trees = read_trees(needed(state.texts, "trees"))
        refuse_if(trees.outputs != 1, "the trees have several outputs")
        ranker._adopt(trees)
        return ranker

    @override
    def check_restored(self) -> None:
        self._keep_own_width(self.forest_.n_features)
        super().check_restored()
        refuse_if(self.forest_.n_features != self.n_columns_, "the trees do not match the number of features")


@dataclass(eq=False, repr=False)
class ImportedLinearRanker(WeightedSum, ImportedRanker):
    """Scores s = w·x + b with weights that another program learned.

    Args:
        source: the program. Missing values count as 0 for RankLib, and are refused for estimators of scikit-learn,
            which do not support them.
        threads: number of threads; None for all cores.

    After loading: `coef_`, `intercept_`, `training_`.

    >>> ranker = ImportedLinearRanker.from_weights("RankLib", np.array([1.0, -2.0]), 0.5)
    >>> ranker.predict(np.array([[1.0, 1.0], [np.nan, 1.0]])).tolist()
    [-0.5, -1.5]
    """

    saved_values: ClassVar[Mapping[str, Any]] = {"intercept_": float}
    standardizes: ClassVar[bool] = False
    family: ClassVar[str | None] = "linear"

    source: str = "RankLib"
    _: KW_ONLY
    threads: int | None = None
    coef_: FloatArray = field(init=False)
    intercept_: float = field(init=False)

    @classmethod
    def from_weights(
        cls,
        source: str,
        coef: FloatArray,
        intercept: float = 0.0,
        *,
        names: Sequence[str] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Self:
        """Build a ranker with these weights."""
        ranker = cls(source)
        ranker.coef_, ranker.intercept_ = np.asarray(coef, np.float64), float(intercept)
        refuse_if(
            not (np.isfinite(ranker.coef_).all() and np.isfinite(ranker.intercept_)),
            "its weights are not all finite numbers",
        )
        ranker._describe(len(ranker.coef_), names, facts or {})
        return ranker.finalized()

    @override
    def check_restored(self) -> None:
        self._keep_own_width(len(self.coef_))
        super().check_restored()

    @property
    def supports_missing(self) -> bool:  # type: ignore[override]
        """True if missing values count as 0 (RankLib); scikit-learn's estimators refuse them."""
        return self.as_fitted.source == "RankLib"

    @property
    def standardization_(self) -> Standardization:  # type: ignore[override]
        """The identity; missing values count as the center, which is 0."""
        return Standardization(np.zeros(len(self.coef_)), np.ones(len(self.coef_)))

    @override
    def _scores(self, X: Any) -> FloatArray:
        missing = np.isnan(X if isinstance(X, np.ndarray) else X.data)
        refuse_if(
            missing.any() and not self.supports_missing,
            f"A {self.as_fitted.source} does not support missing values, but there are {int(missing.sum()):,}; impute "
            "them as in its training data.",
        )
        return super()._scores(X)
