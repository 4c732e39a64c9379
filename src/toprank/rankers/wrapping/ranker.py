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
    """An estimator as a ranker: to fit, evaluate, cross-validate and report like any other.

    Rankers (`LGBMRanker`, `XGBRanker`, `CatBoostRanker`) are told the queries, each in its own way; regressors and
    classifiers learn from rows alone. Scores are what a regressor predicts; boosted trees give their raw sums, before
    any last function. A classifier of two classes scores by its decision function (or P of the second class, where it
    has none), one of more classes by the expected grade Σ k P(k), with the labels as classes.

    Args:
        estimator: an unfitted estimator with `fit`, `predict` and `get_params`; a ranker of toprank is given back as
            it is.
        early_stopping: with `valid` data, boosting ends after so many rounds without a better metric of the
            estimator's own, and the best round is kept. None, or an estimator that was told itself when to stop: as it
            is set. Those that cannot watch validation data do not look at them.

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
            f"{estimator!r} is not an estimator: give an instance with fit, predict and get_params, such as "
            "Ridge(alpha=1.0) of scikit-learn."
        )
    return WrappedRanker(estimator, early_stopping=early_stopping)


class WrappedRanker(Ranker):
    """An estimator of another library as a ranker; made by `toprank.wrap`, which says how it learns and scores.

    Args:
        estimator: the estimator; `fit` trains a copy of it.
        early_stopping: rounds without a better metric on validation data; see `toprank.wrap`.

    After fitting: `estimator_` (the fitted copy), `feature_importances_` where that has them, as shares of 1.
    """

    propagates_infinity: ClassVar[bool] = False

    def __init__(self, estimator: Any = None, *, early_stopping: int | None = 50) -> None:
        self.estimator = estimator
        self.early_stopping = early_stopping

    @property
    def called(self) -> str:
        """The name in tables: that of the estimator's class."""
        return type(self.estimator).__name__

    @property
    def supports_categories(self) -> bool:  # type: ignore[override]
        """LightGBM, XGBoost and CatBoost take codes of categories; others see a column for each level."""
        return library_of(self.as_fitted.estimator).supports_categories

    @property
    def supports_sparse(self) -> bool:  # type: ignore[override]
        """XGBoost takes what a sparse matrix leaves out for missing, and everybody here for 0."""
        return library_of(self.as_fitted.estimator).supports_sparse

    # ---- parameters ----

    @override
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The estimator and its own parameters by their names, also as ``estimator__name``."""
        parameters = super().get_params(deep)
        return {**self.estimator.get_params(), **parameters} if deep else parameters

    @override
    def set_params(self, **parameters: Any) -> Self:
        """Change parameters of the estimator by their names, or the estimator itself."""
        own = {name: value for name, value in parameters.items() if name.partition("__")[0] in self._parameters()}
        super().set_params(**own)
        theirs = {name: value for name, value in parameters.items() if name not in own}
        if theirs:
            self.estimator.set_params(**theirs)
        return self

    # ---- fitting, scoring ----

    def _fit(self, data: RankingData, valid: RankingData | None) -> None:
        if not isinstance(data, RankingData):
            raise DataError(f"{self.called} learns from data in memory, not on a cluster.")
        if self.early_stopping is not None:
            check_whole("early_stopping", self.early_stopping, 0)
        library = library_of(unfitted(self.estimator))
        library.fit(data, valid, self.early_stopping)
        self.estimator_ = library.estimator

    def _scores(self, X: Any) -> FloatArray:
        return library_of(self.estimator_).scores(X)

    @property
    def feature_importances_(self) -> FloatArray:
        """The estimator's own, as shares of 1; not every estimator has them."""
        return self.shares_of_features(library_of(self.estimator_).importances())

    # ---- files ----

    def saved_ranker(self) -> ImportedRanker:
        """The `ForestRanker` or `ImportedLinearRanker` that gives the same scores, and cannot be fitted again."""
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
        """The same trees or weights; where there are none it cannot be saved, or whatever is to be done."""
        check_is_fitted(self)
        try:
            return library_of(self.estimator_).as_saved()
        except DataError as problem:
            reason = str(problem).removesuffix(".")
            raise DataError(f"A fitted {self.called} cannot be {action}: {reason}.") from None

    @override
    def _formula(self) -> Part:
        return self._as("exported")._formula()
