"""`wrap`: an estimator of scikit-learn, LightGBM, XGBoost or CatBoost as a ranker."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from typing_extensions import override

from toprank.compute import FloatArray
from toprank.data.arguments import check_whole
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.rankers.base import Ranker
from toprank.rankers.estimator import check_is_fitted, unfitted
from toprank.rankers.foreign.ranker import ImportedRanker
from toprank.rankers.formula import Part
from toprank.rankers.wrapping.libraries import library_of


def wrap(estimator: Any, *, early_stopping: int | None = 50) -> Ranker:
    """Convert an estimator to a ranker, to fit, evaluate, cross-validate and report like any other.

    Rankers (`LGBMRanker`, `XGBRanker`, `CatBoostRanker`) receive the queries; regressors and classifiers learn from
    rows alone. Scores are the predictions of a regressor; boosted trees return raw sums, before any final function. A
    classifier of two classes scores by its decision function (or P of the second class, if it has none), one of more
    classes by the expected grade Σ k P(k), with the labels as classes.

    Args:
        estimator: an unfitted estimator with `fit`, `predict` and `get_params`; a ranker of toprank is returned
            unchanged.
        early_stopping: with `valid` data, boosting ends after this many rounds without a better metric of the
            estimator, and the best round is kept. None for the estimator's own setting, which also takes precedence if
            set. Ignored by estimators without early stopping.

    Returns:
        a `WrappedRanker`.

    >>> import toprank as tr
    >>> from sklearn.linear_model import Ridge
    >>> train, test = tr.split(tr.synthetic(n_queries=60, seed=0), (0.7, 0.3))
    >>> ridge = tr.wrap(Ridge(alpha=1.0)).fit(train)
    >>> ridge.predict(test).shape == (test.n_documents,), ridge.get_params()["alpha"]
    (True, 1.0)
    """
    if isinstance(estimator, Ranker):
        return estimator
    if isinstance(estimator, type) or not all(
        hasattr(estimator, method) for method in ("fit", "predict", "get_params")
    ):
        raise DataError(
            f"{estimator!r} is not an estimator; pass an instance with fit, predict and get_params, such as "
            "scikit-learn's Ridge(alpha=1.0)."
        )
    return WrappedRanker(estimator, early_stopping=early_stopping)


class WrappedRanker(Ranker):
    """An estimator of another library as a ranker; created by `toprank.wrap`, which documents training and scores.

    Args:
        estimator: the estimator; `fit` trains a copy of it.
        early_stopping: rounds without a better metric on validation data; see `toprank.wrap`.

    After fitting: `estimator_` (the fitted copy), `feature_importances_` if the estimator has them, with sum 1.
    """

    propagates_infinity: ClassVar[bool] = False

    def __init__(self, estimator: Any = None, *, early_stopping: int | None = 50) -> None:
        self.estimator = estimator
        self.early_stopping = early_stopping

    @property
    def called(self) -> str:
        """The name in tables: the class of the estimator."""
        return type(self.estimator).__name__

    @property
    def supports_categories(self) -> bool:  # type: ignore[override]
        """True if the estimator accepts category codes (LightGBM, XGBoost, CatBoost); others get one-hot columns."""
        return library_of(self.as_fitted.estimator).supports_categories

    @property
    def supports_sparse(self) -> bool:  # type: ignore[override]
        """True if sparse features are supported; XGBoost would treat values that are not stored as missing."""
        return library_of(self.as_fitted.estimator).supports_sparse

    # ---- parameters ----

    @override
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the estimator, and its parameters by name, also as ``estimator__name``."""
        parameters = super().get_params(deep)
        return {**self.estimator.get_params(), **parameters} if deep else parameters

    @override
    def set_params(self, **parameters: Any) -> Self:
        """Set parameters of the estimator by name, or the estimator itself."""
        own = {name: value for name, value in parameters.items() if name.partition("__")[0] in self._parameters()}
        super().set_params(**own)
        theirs = {name: value for name, value in parameters.items() if name not in own}
        if theirs:
            self.estimator.set_params(**theirs)
        return self

    # ---- fitting, scoring ----

    def _fit(self, data: RankingData, valid: RankingData | None) -> None:
        if not isinstance(data, RankingData):
            raise DataError(f"{self.called} needs data in memory and cannot be trained on a cluster.")
        if self.early_stopping is not None:
            check_whole("early_stopping", self.early_stopping, 0)
        library = library_of(unfitted(self.estimator))
        library.fit(data, valid, self.early_stopping)
        self.estimator_ = library.estimator

    def _scores(self, X: Any) -> FloatArray:
        return library_of(self.estimator_).scores(X)

    @property
    def feature_importances_(self) -> FloatArray:
        """The estimator's importances, with sum 1, if it has them."""
        return self.shares_of_features(library_of(self.estimator_).importances())

    # ---- files ----

    def saved_ranker(self) -> ImportedRanker:
        """Return a `ForestRanker` or `ImportedLinearRanker` with the same scores, which cannot be fitted again."""
        ranker = self._as("saved").draft()
        facts = {name: value for name, value in ranker.training_.items() if name not in ("queries", "features")}
        ranker.n_features_in_ = self.n_features_in_
        vars(ranker).pop("feature_names_in_", None)
        for name in ("feature_names_in_", "first_feature_id_"):
            if hasattr(self, name):
                setattr(ranker, name, getattr(self, name))
        ranker.encoding_, ranker.columns_, ranker.text_ = self.encoding_, self.columns_, self.text_
        ranker.training_ = {**self.training_, **facts}
        return ranker.finalized()

    def _as(self, action: str) -> ImportedRanker:
        """Return a ranker with the same trees or weights; raise if there is none, naming the failed action."""
        check_is_fitted(self)
        try:
            return library_of(self.estimator_).as_saved()
        except DataError as problem:
            reason = str(problem).removesuffix(".")
            raise DataError(f"A fitted {self.called} cannot be {action}: {reason}.") from None

    @override
    def _formula(self) -> Part:
        return self._as("exported")._formula()
