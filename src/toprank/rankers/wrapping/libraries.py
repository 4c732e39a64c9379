"""Adapters for each library: queries, weights and validation data, scores, and conversion to model files."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError, refuse_if
from toprank.rankers.foreign.ranker import ImportedLinearRanker, ImportedRanker
from toprank.rankers.outputs import weights_to_fit


class WrappedLibrary:
    """Adapter for any scikit-learn-compatible estimator."""

    supports_categories = False
    supports_sparse = True

    def __init__(self, estimator: Any) -> None:
        self.estimator, self.name = estimator, type(estimator).__name__
        ancestors = {kind.__name__ for kind in type(estimator).__mro__}
        self.ranks = bool(ancestors & {"LGBMRanker", "XGBRanker", "CatBoostRanker"})

    # ---- fitting ----

    def fit(self, data: RankingData, valid: RankingData | None, early_stopping: int | None) -> None:
        """Fit the estimator; validation data and early stopping are used by estimators that support them."""
        del valid, early_stopping
        arguments = inspect.signature(self.estimator.fit).parameters
        ways = {
            "qid": data.queries.document_query,
            "group": data.queries.sizes,
            "group_id": data.queries.document_query,
        }
        options = {name: value for name, value in ways.items() if name in arguments}
        self.estimator.fit(data.X, data.labels, **options, **weights_to_fit(self.estimator, _weights(data)))

    # ---- scoring ----

    def scores(self, X: Any) -> FloatArray:
        """Return one score per row; for classifiers, the decision function of two classes or the expected grade of
        more.
        """
        if hasattr(self.estimator, "coef_"):  # sums in double precision for any dtype of the features
            X = X.astype(np.float64, copy=False)
        classes = getattr(self.estimator, "classes_", ())
        if len(classes) <= 2:
            return _column(self._numbers(X), self.name)
        if not hasattr(self.estimator, "predict_proba"):
            raise DataError(
                f"{self.name} has no predict_proba for its {len(classes)} classes, so documents of one class would be "
                "tied; use a classifier that has it, or a regressor."
            )
        grades = np.asarray(classes, np.float64)
        return np.asarray(np.asarray(self.estimator.predict_proba(X), np.float64) @ grades)

    def _numbers(self, X: Any) -> Any:
        """Return a prediction, or for two classes the evidence for the second."""
        if len(getattr(self.estimator, "classes_", ())) != 2:
            return self.estimator.predict(X)
        if hasattr(self.estimator, "decision_function"):
            return self.estimator.decision_function(X)
        return self.estimator.predict_proba(X)[:, 1]

    def importances(self) -> FloatArray:
        """Return the estimator's importance of each column."""
        return np.asarray(self.estimator.feature_importances_, np.float64)

    # ---- files ----

    def as_saved(self) -> ImportedRanker:
        """Return a ranker of ours with the same scores, for a model file; refuse estimators without one."""
        module, coef = type(self.estimator).__module__, getattr(self.estimator, "coef_", None)
        linear = module.startswith(("sklearn.linear_model.", "sklearn.svm.")) and "_glm" not in module
        linear = linear and not hasattr(self.estimator, "offset_")  # outlier detectors have an offset_
        if not linear or coef is None or np.size(coef) != getattr(self.estimator, "n_features_in_", -1):
            raise DataError(
                "model files support trees of LightGBM, XGBoost and CatBoost, and linear models with one output, but "
                "no pickled objects. Save the estimator in the format of its library"
            )
        intercept = np.ravel(getattr(self.estimator, "intercept_", 0.0))
        flat = np.asarray(coef.toarray() if hasattr(coef, "toarray") else coef, np.float64).ravel()
        return ImportedLinearRanker.from_weights(
            self.name, flat, float(intercept[0]), facts={"library": "scikit-learn"}
        )


class _LightGBM(WrappedLibrary):
    supports_categories = True

    def fit(self, data: RankingData, valid: RankingData | None, early_stopping: int | None) -> None:
        options: dict[str, Any] = {"sample_weight": _weights(data)}
        if self.ranks:
            options["group"] = data.queries.sizes
        if data.encoding is not None and data.encoding.categories:
            options["categorical_feature"] = list(data.encoding.categories)
        if valid is not None:
            newer = "eval_X" in inspect.signature(self.estimator.fit).parameters  # newer versions warn about eval_set
            options |= {"eval_X": valid.X, "eval_y": valid.labels} if newer else {"eval_set": [(valid.X, valid.labels)]}
            if (of_valid := _weights(valid)) is not None:
                options["eval_sample_weight"] = [of_valid]
            if self.ranks:
                options["eval_group"] = [valid.queries.sizes]
            own = {"early_stopping_round", "early_stopping_rounds", "n_iter_no_change"} & set(
                self.estimator.get_params()
            )
            if early_stopping and not own and self.estimator.get_params()["boosting_type"] != "dart":
                from lightgbm import early_stopping as stopping

                options["callbacks"] = [stopping(early_stopping, verbose=False)]
        if "verbose" not in self.estimator.get_params():
            self.estimator.set_params(verbose=-1)
        self.estimator.fit(data.X, data.labels, **options)

    def _numbers(self, X: Any) -> Any:
        return self.estimator.predict(X, raw_score=True, validate_features=False)

    def as_saved(self) -> ImportedRanker:
        from toprank.rankers.foreign.lightgbm_text import read

        booster = self.estimator.booster_
        return read(booster.model_to_string(num_iteration=self.estimator.best_iteration_ or -1).encode())


class _XGBoost(WrappedLibrary):
    supports_categories = True
    supports_sparse = False  # values that are not stored are 0 here, but missing in XGBoost

    def fit(self, data: RankingData, valid: RankingData | None, early_stopping: int | None) -> None:
        if data.encoding is not None and data.encoding.categories:
            kinds = ["c" if column.is_category else "q" for column in data.encoding.columns]
            self.estimator.set_params(enable_categorical=True, feature_types=kinds)
        options: dict[str, Any] = {"sample_weight": self._weights(data)}
        if self.ranks:
            options["qid"] = data.queries.document_query
        if valid is not None:
            options |= {"eval_set": [(valid.X, valid.labels)], "sample_weight_eval_set": None, "verbose": False}
            if (of_valid := self._weights(valid)) is not None:
                options["sample_weight_eval_set"] = [of_valid]
            if self.ranks:
                options["eval_qid"] = [valid.queries.document_query]
            if early_stopping and self.estimator.get_params().get("early_stopping_rounds") is None:
                self.estimator.set_params(early_stopping_rounds=early_stopping)
        elif self.estimator.get_params().get("early_stopping_rounds") is not None:
            raise DataError(f"{self.name} has early stopping, which needs validation data: fit(train, valid=valid).")
        self.estimator.fit(data.X, data.labels, **options)

    def _weights(self, data: RankingData) -> FloatArray | None:
        """Return query weights for XGBoost's ranker, document weights for its other estimators."""
        if not self.ranks:
            return _weights(data)
        refuse_if(
            data.document_weights is not None,
            f"{self.name} supports only query weights, but the data have document weights; drop them.",
        )
        return data.query_weights

    def _numbers(self, X: Any) -> Any:
        return self.estimator.predict(X, output_margin=True)

    def as_saved(self) -> ImportedRanker:
        from toprank.rankers.foreign.xgboost_model import read_binary

        missing = self.estimator.get_params().get("missing")
        refuse_if(
            missing is not None and not np.isnan(missing),
            f"it uses {missing} for missing values, which its file does not contain; mark them by NaN instead",
        )
        return read_binary(bytes(self.estimator.get_booster().save_raw("ubj")))


class _CatBoost(WrappedLibrary):
    supports_categories = True

    def fit(self, data: RankingData, valid: RankingData | None, early_stopping: int | None) -> None:
        parameters = self.estimator.get_params()
        if "allow_writing_files" not in parameters:
            self.estimator.set_params(allow_writing_files=False)
        if not {"verbose", "silent", "logging_level", "verbose_eval"} & set(parameters):
            self.estimator.set_params(verbose=False)
        options: dict[str, Any] = {}
        if valid is not None:
            options["eval_set"] = self._pool(valid)
            if early_stopping and not {"early_stopping_rounds", "od_wait", "od_pval", "od_type"} & set(parameters):
                options["early_stopping_rounds"] = early_stopping
        self.estimator.fit(self._pool(data), **options)

    def _pool(self, data: RankingData) -> Any:
        from catboost import Pool

        of_queries = {"group_id": data.queries.document_query} if self.ranks else {}
        weights = _weights(data)
        more: dict[str, Any] = {} if weights is None else {"weight": weights}
        if self.ranks and data.query_weights is not None:
            spread = data.queries.broadcast(data.query_weights)
            more = {"group_weight": spread}
            refuse_if(
                data.document_weights is not None,
                f"{self.name} supports document weights or query weights, but the data have both.",
            )
        categories = () if data.encoding is None else data.encoding.categories
        return Pool(_for_catboost(data.X, categories), data.labels, cat_features=list(categories), **of_queries, **more)

    def scores(self, X: Any) -> FloatArray:
        return super().scores(_for_catboost(X, self.estimator.get_cat_feature_indices()))

    def _numbers(self, X: Any) -> Any:
        raw = {} if self.ranks else {"prediction_type": "RawFormulaVal"}  # rankers have no other type
        return self.estimator.predict(X, **raw)

    def importances(self) -> FloatArray:
        """Return CatBoost's importances of type PredictionValuesChange; the default for rankers would need the data."""
        return np.asarray(self.estimator.get_feature_importance(type="PredictionValuesChange"), np.float64)

    def as_saved(self) -> ImportedRanker:
        import json

        from toprank.rankers.foreign.catboost_json import read

        refuse_if(
            self.estimator.get_cat_feature_indices(),
            "it was trained on categories, which CatBoost encodes by tables of the training data that a model file "
            "does not contain. Save the estimator in the format of its library, or encode the categories yourself",
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.json"
            self.estimator.save_model(str(path), format="json")
            return read(json.loads(path.read_bytes()))


def _for_catboost(X: Any, categories: Sequence[int]) -> Any:
    """Return rows in CatBoost's format: integer categories with −1 for missing values, and writable sparse matrices."""
    if not isinstance(X, np.ndarray):
        return X.copy()
    if not categories:
        return X
    import pandas as pd

    frame = pd.DataFrame(X)
    for place in categories:
        frame[place] = np.nan_to_num(X[:, place], nan=-1.0).astype(np.int64)
    return frame


def library_of(estimator: Any) -> WrappedLibrary:
    """Return the adapter of an estimator, by the names of its base classes."""
    for kind in type(estimator).__mro__:
        room = kind.__module__.partition(".")[0]
        if room == "lightgbm" and kind.__name__ == "LGBMModel":
            return _LightGBM(estimator)
        if room == "xgboost" and kind.__name__ == "XGBModel":
            return _XGBoost(estimator)
        if room == "catboost" and kind.__name__ == "CatBoost":
            return _CatBoost(estimator)
    return WrappedLibrary(estimator)


def _weights(data: RankingData) -> FloatArray | None:
    """Return the weight of each document, multiplied by the weight of its query."""
    own, of_query = data.document_weights, data.query_weights
    if of_query is None:
        return own
    spread: FloatArray = data.queries.broadcast(of_query)
    return spread if own is None else spread * own


def _column(values: Any, name: str) -> FloatArray:
    scores = np.asarray(values, np.float64)
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    refuse_if(scores.ndim != 1, f"{name} returned an array of shape {scores.shape}, not one score for each row.")
    return scores
