"""`Ranker`, the base class of all rankers: a scikit-learn estimator that handles queries.

`fit(X, y, qid=...)` or `fit(data)` trains; `predict` returns scores, `rank` returns documents in order, and `save`
writes one file.
"""

from __future__ import annotations

from abc import abstractmethod
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, one_blas_thread
from toprank.data.arrays import common_index
from toprank.data.dataset import RankingData, check_files, check_finite, same_content
from toprank.data.encoding import Encoding
from toprank.data.frames.arrow import is_mixed
from toprank.data.hashes import training_record
from toprank.data.row_order import Order
from toprank.errors import DataError
from toprank.evaluation.scores import evaluate
from toprank.metrics.sorting import best_rows
from toprank.rankers import columns, leakage
from toprank.rankers.contributions import Explainable
from toprank.rankers.early_stopping import Rounds
from toprank.rankers.estimator import check_is_fitted
from toprank.rankers.formula import Expressible
from toprank.rankers.model_files import save
from toprank.rankers.outputs import reads_labels
from toprank.rankers.schema import Savable
from toprank.rankers.seen_columns import SeenColumns, choose_columns
from toprank.rankers.source import Source, source_of
from toprank.rankers.target_encoding import EncodedCategories, check_categories
from toprank.scorers.features import Standardization
from toprank.text.tables import TextFeatures


class ConvergenceWarning(UserWarning):
    """The solver stopped before it reached the optimum."""


class ConstantScoresWarning(UserWarning):
    """The ranker assigns the same score to every document."""


class Ranker(Explainable, Expressible, Savable):
    """Base class of all rankers; each is a dataclass whose fields are its parameters.

    A fitted ranker has `n_features_in_`, `feature_names_in_` if the features have names, and `training_`, the
    provenance that is saved with the model (fingerprint of the data, sizes, validation metric).
    """

    supports_categories: ClassVar[bool] = False
    """Whether the ranker accepts category codes; other rankers get a column of zeros and ones for each frequent
    level.
    """
    supports_sparse: ClassVar[bool] = True
    """Whether features may be a SciPy sparse matrix."""
    supports_missing: ClassVar[bool] = True
    """Whether features may be missing; otherwise missing values are refused."""
    propagates_infinity: ClassVar[bool] = True
    """Whether an infinite feature makes the score infinite or NaN, which is refused; otherwise rows are checked."""
    supports_distributed: ClassVar[bool] = False
    """Whether the ranker can be trained on a cluster, from partitions of the data."""
    has_penalty_path: ClassVar[bool] = False
    """Whether the ranker accepts several penalties and warm-starts each from the previous solution; see
    `PathRanker`.
    """
    uses_duality_gap: ClassVar[bool] = False
    """Whether `tolerance` is a duality gap for losses with kinks, so that even rough solutions can be compared."""
    needs_exclusive_training: ClassVar[bool] = False
    """Whether trainings must run one after another, because they share a device or a global setting."""
    can_be_calibrated: ClassVar[bool] = False
    """Whether the ranker can predict P(grade | x), which is calibrated on rows that it was not trained on."""
    rounds: ClassVar[Rounds | None] = None
    """The names of its number of rounds; None if it does not learn in rounds."""
    family: ClassVar[str | None] = None
    """The model family: ``linear``, ``trees`` or ``networks``."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages that it needs in addition to those of every ranker; other versions of them may give other numbers."""

    n_features_in_: int
    encoding_: Encoding | None
    """The types of the features, if some are categories, dates or durations."""
    columns_: SeenColumns | None
    """The input columns, if categories are one-hot or target encoded."""
    target_encoding: EncodedCategories = False
    """Which categories to replace by target encodings; see `toprank.rankers.target_encoding`."""
    text_: TextFeatures | None
    """The word statistics from the training data, which match features of queries and documents are computed from."""
    training_: dict[str, Any]
    standardization_: Standardization
    interrupted_: bool

    def search_space(self) -> dict[str, Any] | None:
        """Return the hyperparameters that `toprank.tune` searches, as plain values; None for the grid of the system."""
        return None

    def check_parameters(self) -> None:
        """Refuse parameters that are invalid for any data; called by `fit` before training, and by searches."""

    def fit(
        self,
        X: Any,
        y: npt.ArrayLike | None = None,
        qid: npt.ArrayLike | None = None,
        *,
        sample_weight: npt.ArrayLike | None = None,
        group: npt.ArrayLike | None = None,
        valid: Any = None,
    ) -> Self:
        """Learn from labeled queries.

        Args:
            X: a `RankingData`, or the features of the documents.
            y: the labels, if X are features.
            qid: the query of each document, if X are features; rows need not be grouped. None for one query.
            sample_weight: the weight of each document, if X are features; see `document_weights` of `RankingData`.
            group: alternative to `qid`: the number of rows of each query, in order (as in LightGBM).
            valid: validation data, a `RankingData` or (X, y, qid), to select a penalty or a number of rounds. Never
                used for training.
        """
        if (y is None and _is_elsewhere(X)) or _is_elsewhere(valid):
            raise columns.elsewhere()
        if group is not None:
            qid = columns.qid_from_sizes(group, qid, X)
        return self.fit_source(X, y, qid, valid, sample_weight)

    def fit_source(self, X: Any, y: Any = None, qid: Any = None, valid: Any = None, weights: Any = None) -> Self:
        """Fit like `fit`, also from a `Source`, which a cluster passes to its rankers."""
        draft = self.unfitted_copy()
        draft._fit_checked(X, y, qid, valid, weights)
        return self.commit(draft)

    def _fit_checked(self, X: Any, y: Any, qid: Any, valid: Any, weights: Any) -> None:
        data = self._training_data(X, y, qid, weights)
        valid = None if valid is None else self._validation_data(valid)
        self._check_data(data, valid)
        self.training_ = {
            "fingerprint": X.fingerprint if isinstance(X, RankingData) else data.fingerprint,
            "queries": data.n_queries,
            "documents": data.n_documents,
            "features": data.n_features,
            **({"columns": data.roles.plain()} if data.roles is not None else {}),
        }
        if isinstance(data, RankingData):
            rows = self.can_be_calibrated and getattr(self, "outputs", "grades") == "grades"
            self.training_ |= training_record(data, rows=rows)
        if not (isinstance(self.target_encoding, bool) or self.target_encoding == "auto"):
            check_categories(self.target_encoding)
        if self.encoding_ is not None and self.encoding_.categories:
            self.columns_ = choose_columns(self, self.encoding_, source_of(data), valid)
        if self.columns_ is not None:
            data = source_of(data).widened(self.columns_, folds=self.encoding_seed)
            valid = None if valid is None else source_of(valid).widened(self.columns_)
        if isinstance(data, RankingData) and data.n_unjudged:  # no loss reads these labels, so any number is valid
            data = data.replace(labels=np.where(data.judged, data.labels, 0.0))
        self.check_parameters()
        with one_blas_thread():
            self._fit(data, valid)

    def _check_data(self, data: RankingData | Source, valid: RankingData | Source | None) -> None:
        """Refuse training data without features, with unjudged documents or with infinite values."""
        if data.n_features == 0 and getattr(data, "text", None) is None:
            raise DataError("The data have no features; a ranker needs at least one.")
        if data.n_unjudged and (self._reads_labels or not isinstance(data, RankingData)):
            raise columns.unjudged(data.n_unjudged)
        if valid is not None and same_content(data, valid):
            leakage.warn_of_same_data()
        for part in (None if self.standardizes else data, valid):  # the standardization refuses infinite values itself
            if isinstance(part, RankingData):
                check_finite(part.X, part.feature_names)

    def categories_to_encode(self) -> EncodedCategories:
        """Return which categories to replace by target encodings."""
        return self.target_encoding

    @property
    def encoding_seed(self) -> int:
        """The seed of the folds for the target encoding of training data."""
        return int(getattr(self, "seed", 0))

    @property
    def _reads_labels(self) -> bool:
        """True if training uses the labels; false for losses that learn only from a teacher."""
        return reads_labels(getattr(self, "loss", None)) or getattr(self, "outputs", "score") == "grades"

    @abstractmethod
    def _fit(self, data: Any, valid: Any) -> None:
        """Learn from a `RankingData`, or from any `Source` if the ranker `supports_distributed`; the data are checked.

        `self` is a draft with the parameters of this fit; attributes set on it become the fitted record.
        """

    @abstractmethod
    def _scores(self, X: Any) -> FloatArray:
        """Return the scores of rows whose number of columns has been checked."""

    def query_scores(self, X: FloatArray) -> FloatArray:
        """Return the scores of one query's documents without the checks of `predict`, for callers that score often.

        X must be float64 in C order, with NaN for missing values and the columns and codes of training.
        """
        return finite(self._scores(X if self.columns_ is None else self.columns_.columns(X)))

    def predict(self, X: Any, qid: npt.ArrayLike | None = None) -> FloatArray:
        """Return one score for each document; higher is better.

        Args:
            X: a `RankingData`, or features: an array, or a frame that contains the columns of training.
            qid: the query of each row, if X are features and the ranker `uses_query_context`.

        Scores are in the order of the features or of `data.X`; see `data.in_source_order(scores)`.
        """
        del qid  # this ranker scores each document independently
        return by_row(X, finite(self._scores(self._prediction_rows(X))))

    def rank(self, data: Any, k: int | None = 10, *, qid: npt.ArrayLike | str | None = None) -> dict[Any, list[Any]]:
        """Return the best k documents of each query, best first, as ids (or row numbers, if documents have no ids).

        Args:
            data: a `RankingData`; a frame with the columns of training, queries and document ids, read like the
                training data (see `like` in `RankingData.from_frame`); or features, with `qid`.
            k: number of documents per query; None for all.
            qid: the query of each row of features in any order, or the name of the query column of a frame.
        """
        if not isinstance(data, RankingData):
            check_is_fitted(self)
            data = columns.with_queries(self, data, qid)
        elif qid is not None:
            raise DataError("The data contain their queries; omit qid.")
        scores = self.predict(data)
        if len(scores) > 1 and (scores == scores[0]).all():
            self.warn_constant(
                "All documents have the same score; they are returned in the order of the rows, not ranked."
            )
        names, best = data.row_names, best_rows(scores, data.queries, k)
        return {query: names[rows].tolist() for query, rows in zip(data.qids.tolist(), best, strict=True)}

    def _data_of(self, rows: Any, labels: npt.ArrayLike | None = None, qid: npt.ArrayLike | None = None) -> RankingData:
        """Return rows with the columns of training, in their order and codes, as data with their names and levels."""
        names = getattr(self, "feature_names_in_", None)
        return RankingData(rows, labels, qid=qid, feature_names=names, encoding=self.encoding_)

    def score(
        self, X: Any, y: npt.ArrayLike | None = None, qid: npt.ArrayLike | None = None, sample_weight: Any = None
    ) -> float:
        """Return NDCG@10 under the `standard` convention; for other metrics see `toprank.make_scorer`.

        `sample_weight` is ignored; scikit-learn's pipelines and searches pass on the weights that `fit` received.

        Warns if queries of the training data reappear with other rows, as after a random split of rows; the value is
        then too high. Queries are recognized by their ids, unless these are 0 … n - 1 or 1 … n, as in many files.
        """
        del sample_weight
        data = X if isinstance(X, RankingData) else y
        if data is None:
            raise DataError("score needs labels: pass y, or a RankingData.")
        check_is_fitted(self)
        common_index(X=X, y=y, qid=qid)
        if qid is None and not isinstance(X, RankingData) and self.training_["queries"] > 1:
            raise DataError(
                "score received no qid, but the ranker was trained on several queries; scoring all rows as one query "
                "would give another number. Pass the qid of each row; in scikit-learn's pipelines, searches and "
                "cross-validation, call sklearn.set_config(enable_metadata_routing=True) first and pass qid on."
            )
        order: Order = "data" if isinstance(X, RankingData) else "source"
        leakage.warn_of_split_queries(self, X, qid)
        if isinstance(X, RankingData):
            leakage.warn_of_same_judge(self, X)
        return evaluate(self.predict(X, qid), data, "ndcg@10", qid=qid, order=order).mean["ndcg@10"]

    def warn_constant(self, message: str) -> None:
        """Warn that all scores are equal, so the order of the rows must not be mistaken for a ranking."""
        self.warn_once(message, ConstantScoresWarning)

    def warn_unconverged(self, message: str) -> None:
        """Warn that the optimum was not reached."""
        self.warn_once(message, ConvergenceWarning)

    @property
    def uses_query_context(self) -> bool:
        """True if the score of a document depends on the other documents of its query."""
        return False

    @property
    def was_interrupted(self) -> bool:
        """True if the training was interrupted from the keyboard."""
        return bool(getattr(self, "interrupted_", False))

    def keep_value(self, value: float | None, metric: str, convention: str, *, data: str = "valid") -> None:
        """Record the metric on the data that the model was selected on in `training_`."""
        self.training_[data] = {metric: value, "convention": convention}

    def saved_ranker(self) -> Ranker:
        """Return the ranker that a model file contains: this one, or one with the same scores."""
        return self

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to one file; see `toprank.load`."""
        check_is_fitted(self)
        save(self.saved_ranker(), path)

    def _training_data(
        self, X: Any, y: npt.ArrayLike | None, qid: npt.ArrayLike | None, weights: npt.ArrayLike | None
    ) -> RankingData | Source:
        self._check_dense(X)
        if isinstance(X, RankingData | Source):
            if y is not None or qid is not None:
                raise DataError("The data contain their labels and queries; omit y and qid.")
            if weights is not None:
                raise DataError(
                    "The data contain their weights; use data.replace(document_weights=...) instead of sample_weight."
                )
            if isinstance(X, RankingData):
                check_files(X)
            seen: RankingData | Source = self._with_matches(X)
            self.encoding_, self.columns_ = seen.encoding, None
            self.n_features_in_ = seen.n_features
            if seen.feature_names is not None:
                self.feature_names_in_ = np.array(seen.feature_names, dtype=object)
            if seen.first_feature_id is not None:
                self.first_feature_id_ = seen.first_feature_id
            return seen
        data = columns.labeled_rows(self, X, y, qid, weights)
        return self._training_data(data, None, None, None) if is_mixed(X) else data

    def _with_matches(self, data: Any) -> Any:
        """Add match features of queries and documents to training data that contain text."""
        self.text_ = None
        return columns.with_matches(self, data) if isinstance(data, RankingData) and data.text is not None else data

    def _validation_data(self, valid: Any) -> RankingData | Source:
        if not isinstance(valid, RankingData | Source):
            valid = columns.validation_tuple(self, valid)
        self._check_dense(valid)
        if isinstance(valid, RankingData):
            check_files(valid)
        translated: RankingData | Source = self.translated(valid)
        return translated

    def _prediction_rows(self, X: Any) -> Any:
        check_is_fitted(self)
        if isinstance(X, RankingData):
            check_files(X)
            self._check_dense(X)
            rows = self.translated(X).X
        else:
            rows = self._rows(X)
        if not self.propagates_infinity:
            check_finite(rows, getattr(self, "feature_names_in_", None))
        return rows if self.columns_ is None else self.columns_.columns(rows)

    def translated(self, data: RankingData | Source) -> Any:
        """Return data with the columns of training, in their order and codes; other columns are dropped."""
        return data if self._has_columns(data) else columns.translated(self, data)

    def _has_columns(self, data: RankingData | Source) -> bool:
        """Return whether data have exactly the columns of training, in their order and with their codes."""
        names, first = getattr(self, "feature_names_in_", None), getattr(self, "first_feature_id_", None)
        return (
            (data.n_features, data.encoding) == (self.n_features_in_, self.encoding_)
            and data.feature_names == (None if names is None else tuple(names))
            and (first is None or data.first_feature_id in (None, first))
            and self.text_ is None
        )

    def _rows(self, X: Any) -> Any:
        """Return features as an array or sparse matrix; other columns of a frame are dropped."""
        self._check_dense(X)
        return columns.rows(self, X)

    def _check_dense(self, X: Any) -> None:
        """Refuse sparse features, also in a `RankingData`, if the ranker does not support them."""
        matrix = X.X if isinstance(X, RankingData) else X
        if not self.supports_sparse and hasattr(matrix, "toarray"):
            raise columns.sparse(self)

    def _check_features(self, data: RankingData | Source) -> None:
        """Refuse data whose features differ from the training features."""
        columns.check_features(self, data)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = self.supports_sparse
        tags.target_tags.required = True
        return tags


def _is_elsewhere(data: Any) -> bool:
    """Return whether data belong to a cluster: described for one, held by one, or a Dask collection."""
    return isinstance(data, Source) or hasattr(data, "for_a_cluster") or hasattr(data, "__dask_graph__")


def by_row(X: Any, values: FloatArray) -> FloatArray:
    """Return values in the order of the rows, marked so that the data recognize them (`RankingData.aligned`)."""
    return X.mark_predictions(values) if isinstance(X, RankingData) else values


def finite(scores: FloatArray) -> FloatArray:
    """Return the scores; refuse infinities and NaN, which come from infinite or extremely large features."""
    if not np.isfinite(scores).all():
        row = int(np.argmin(np.isfinite(scores)))
        raise DataError(
            f"The score of row {row} is {scores[row]}: its features contain infinite or extremely large values."
        )
    return scores
