"""What every ranker is: a scikit-learn estimator that knows about queries.

`fit(X, y, qid=...)` or `fit(data)`; `predict` gives scores, `rank` gives documents in order, `save` writes one file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, one_blas_thread
from toprank.data.carried import NOTHING, judges_of
from toprank.data.checks import check_files, check_finite, common_index, identifiers
from toprank.data.dataset import RankingData, same_content
from toprank.data.encoding import Column, Encoding, listed
from toprank.data.frames.carrying import carried_values
from toprank.data.frames.conversion import is_mixed, matrix_of, table_of
from toprank.data.frames.layout import USUAL_NAMES
from toprank.data.level_means import Asked, refuse_unknown
from toprank.data.row_hashes import QUERIES, ROWS, KnownQueries, KnownRows, is_numbering, row_hashes
from toprank.data.row_order import Order
from toprank.data.seen_columns import TABLE, SeenColumns
from toprank.data.unjudged import choose_a_rule
from toprank.data.warnings import SameDataWarning, SameJudgeWarning, SplitQueriesWarning, warn_one_query
from toprank.errors import DataError, Remedy, joined, warn_user
from toprank.metrics.evaluation import evaluate
from toprank.metrics.sorting import best_rows
from toprank.rankers.contributions import EXACTLY, Contributions, Course, Sampling, shapley
from toprank.rankers.estimator import Recorded, check_is_fitted, check_validation, is_fitted, validate
from toprank.rankers.formula import Blend, Part, Wide
from toprank.rankers.model_files import State, save
from toprank.rankers.schema import OF_THE_MACHINE, Numbers, needed, plain, read_parameters, read_value
from toprank.rankers.source import Source, source_of
from toprank.scorers.features import Standardisation
from toprank.text.tables import TextFeatures, joined_columns

if TYPE_CHECKING:
    from toprank.rankers.explanation import Explanation

_OF_FEATURES = Numbers("features")
_KNOWN, _MOSTLY, _STRANGERS, _FEW = 5, 0.5, 3, 0.03  # queries that are known, and of them those with other rows


class ConvergenceWarning(UserWarning):
    """The solver stopped before it reached the optimum."""


class ConstantScoresWarning(UserWarning):
    """The ranker gives every document the same score."""


class Rounds(NamedTuple):
    """What a ranker that learns in rounds calls them; it takes `callbacks`, and reports each round if `verbose`."""

    option: str
    """The parameter for the number of rounds to make."""
    kept: str
    """The fitted attribute for the number of rounds kept."""
    nested: bool
    """Whether a training of fewer rounds is the beginning of one of more."""


class Ranker(Recorded):
    """Base of all rankers; each is a dataclass, whose fields are the parameters.

    A fitted ranker has `n_features_in_`, `feature_names_in_` if the features had names, and `training_`: where it
    comes from (fingerprint of the data, sizes, validation metric), which is saved with the model.
    """

    saved_arrays: ClassVar[Mapping[str, Numbers]] = {}
    """Fitted arrays that a model file holds, and what they must be."""
    saved_values: ClassVar[Mapping[str, Any]] = {}
    """Fitted plain values that a model file holds, and their types."""
    standardises: ClassVar[bool] = False
    """Whether a model file holds the standardisation of the features."""

    former_parameters: ClassVar[Mapping[str, str]] = {}
    """Names of parameters in earlier model files, and their names now."""

    takes_categories: ClassVar[bool] = False
    """Whether it takes codes of categories; other rankers see a column of zeros and ones for each frequent level."""
    takes_sparse: ClassVar[bool] = True
    """Whether features may be a SciPy sparse matrix."""
    takes_missing: ClassVar[bool] = True
    """Whether features may be missing; otherwise missing values are refused."""
    shows_infinity: ClassVar[bool] = True
    """Whether an infinite feature shows in the score, which is then refused; otherwise rows are checked."""
    learns_from_parts: ClassVar[bool] = False
    """Whether it can be trained on a cluster, from partitions of the data."""
    walks_penalties: ClassVar[bool] = False
    """Whether it takes several penalties at once and starts each from the solution before; see `PathRanker`."""
    solves_to_a_gap: ClassVar[bool] = False
    """Whether `tolerance` is a duality gap where the loss has kinks, so that a rough solution tells rankers apart."""
    trains_alone: ClassVar[bool] = False
    """Whether trainings run one after the other, because they would share a device or a setting."""
    can_be_calibrated: ClassVar[bool] = False
    """Whether it may give P(grade | x), which is calibrated on rows that it was not trained on."""
    rounds: ClassVar[Rounds | None] = None
    """What it calls its rounds; None if it does not learn in rounds."""
    family: ClassVar[str | None] = None
    """Its family: ``linear``, ``trees`` or ``networks``."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages that it needs beyond those of every ranker; other versions of them may give other numbers."""

    n_features_in_: int
    encoding_: Encoding | None
    """The kinds of the features, if some of them are categories, dates or durations."""
    columns_: SeenColumns | None
    """The columns that it sees, if categories become zeros and ones or means of their levels."""
    level_means: Asked = False
    """Which categories are seen as means of their levels; see `toprank.data.level_means`."""
    text_: TextFeatures | None
    """The statistics of words that it learnt, from which queries and documents get columns of what they share."""
    training_: dict[str, Any]
    standardisation_: Standardisation
    interrupted_: bool

    def search_space(self) -> dict[str, Any] | None:
        """Return the hyper-parameters that `toprank.tune` searches, as plain values; None for the system's grid."""
        return None

    def check_parameters(self) -> None:
        """Refuse parameters that are wrong for any data; called by `fit` before training, and by searches."""

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
        """Learn from labelled queries.

        Args:
            X: a `RankingData`, or the features of the documents.
            y: the labels, if X are features.
            qid: the query of each document, if X are features; rows need not be grouped. None for one query.
            sample_weight: the weight of each document, if X are features; see `document_weights` of `RankingData`.
            group: instead of `qid`, the number of rows of each query, one query after the other (as in LightGBM).
            valid: a `RankingData`, or (X, y, qid), to choose by (a penalty along its path, a number of rounds); it is
                never trained on.
        """
        _refuse_parts(X, y, valid)
        if group is not None:
            qid = _qid_of_sizes(group, qid, X)
        return self.fit_source(X, y, qid, valid, sample_weight)

    def fit_source(self, X: Any, y: Any = None, qid: Any = None, valid: Any = None, weights: Any = None) -> Self:
        """Do what `fit` does, also for a `Source`, which is what a cluster hands to its rankers."""
        draft = self.drafted()
        draft._fit_checked(X, y, qid, valid, weights)
        return self.adopt(draft)

    def _fit_checked(self, X: Any, y: Any, qid: Any, valid: Any, weights: Any) -> None:
        data = self._training_data(X, y, qid, weights)
        for part in (data, valid):
            if isinstance(part, RankingData):
                check_files(part)
        if data.n_features == 0 and getattr(data, "text", None) is None:
            raise DataError("There are no features; a ranker needs at least one.")
        unjudged = data.n_unjudged
        unread = unjudged > 0 and isinstance(data, RankingData) and not self._reads_labels
        if unjudged and not unread:
            raise DataError(
                f"{unjudged:,} documents are not judged (label NaN or -1);",
                remedy=choose_a_rule(
                    "train without them: fit(data.keep(data.judged)); or call them irrelevant: "
                    "fit(data.replace(labels=np.where(data.judged, data.labels, 0)))."
                ),
            )
        if valid is not None:
            valid = self._validation_data(valid)
            if same_content(data, valid):
                warn_user(
                    joined(
                        "The validation data are the training data: whatever is chosen on them says nothing about new "
                        "queries. Hold some queries",
                        Remedy("back: train, valid = tr.split(data).", "back."),
                    ),
                    SameDataWarning,
                )
        for part in (None if self.standardises else data, valid):  # a standardisation refuses infinite values itself
            if isinstance(part, RankingData):
                check_finite(part.X, part.feature_names)
        self.training_ = {
            "fingerprint": X.fingerprint if isinstance(X, RankingData) else data.fingerprint,
            "queries": data.n_queries,
            "documents": data.n_documents,
            "features": data.n_features,
            **(self._remembered(data) if isinstance(data, RankingData) else {}),
        }
        if not (isinstance(self.level_means, bool) or self.level_means == "auto"):
            refuse_unknown(self.level_means)
        if self.encoding_ is not None and self.encoding_.categories:
            self.columns_ = self._columns_to_see(source_of(data), valid)
        if self.columns_ is not None:
            data = source_of(data).widened(self.columns_, folds=self._folds_of_means)
            valid = None if valid is None else source_of(valid).widened(self.columns_)
        if unread and isinstance(data, RankingData):  # any number would do; means of levels look at the judged
            data = data.replace(labels=np.where(data.judged, data.labels, 0.0))
        self.check_parameters()
        with one_blas_thread():
            self._fit(data, valid)

    def _columns_to_see(self, source: Source, valid: Any) -> SeenColumns | None:
        """Return the columns to learn from, or None for the features as they are."""
        assert self.encoding_ is not None
        before = getattr(self, "init_model", None)  # whose columns are those to go on with
        columns_before: SeenColumns | None = getattr(before, "columns_", None)
        goes_on = before is not None and getattr(before, "encoding_", None) == self.encoding_
        wanted_means = self._asked_of_levels()
        if goes_on:
            wanted_means = [] if columns_before is None else columns_before.names_of_means
        if wanted_means is not False and wanted_means != []:
            learnt = source.level_means(valid, wanted_means, self._folds_of_means)
            if learnt.tables or learnt.examined:
                self.training_["level_means"] = learnt.plain(self.encoding_)
            means = learnt.tables
        else:
            means = ()
        if goes_on:  # tables are those of the data at hand, which the model before may have seen in part
            return None if columns_before is None else replace(columns_before, means=means)
        if not self.takes_categories:
            return source.one_hot(self.encoding_, self.takes_sparse, means)
        return SeenColumns.of_codes(self.encoding_, means) if means else None

    def _asked_of_levels(self) -> Asked:
        """Return which categories to see as means of their levels."""
        return self.level_means

    @property
    def _folds_of_means(self) -> int:
        """The seed of the folds in which training data get their means of levels."""
        return int(getattr(self, "seed", 0))

    @property
    def column_names_(self) -> tuple[str, ...] | None:
        """The names of the columns that the ranker sees: of the features, or of the levels of categories too."""
        names = getattr(self, "feature_names_in_", None)
        return self.columns_.names if self.columns_ is not None else None if names is None else tuple(names)

    @property
    def n_columns_(self) -> int:
        """Number of the columns that the ranker sees."""
        return self.n_features_in_ if self.columns_ is None else self.columns_.width

    @property
    def _reads_labels(self) -> bool:
        """Whether training reads the labels; it does not if the loss learns from a teacher alone."""
        from toprank import losses

        if getattr(self, "outputs", "score") == "grades":
            return True
        loss = getattr(self, "loss", None)
        if isinstance(loss, losses.Loss) or (isinstance(loss, str) and ":" not in loss):  # with a colon: LightGBM's
            return losses.make(loss).traits.labels
        return True

    def _remembered(self, data: RankingData) -> dict[str, Any]:
        """Return what else `training_` keeps of the training data, for checks of other data later."""
        remembered: dict[str, Any] = {QUERIES: KnownQueries.of(data).plain()}
        if data.carried is not NOTHING and (judged_by := judges_of(data.carried)):
            remembered["judges"] = list(judged_by)
        if self.can_be_calibrated and getattr(self, "outputs", "grades") == "grades":
            remembered[ROWS] = KnownRows.of(row_hashes(data.X), data.labels).plain()
        return remembered

    @abstractmethod
    def _fit(self, data: Any, valid: Any) -> None:
        """Learn from a `RankingData`, or from any `Source` if it `learns_from_parts`; the data are checked.

        `self` is a draft with the parameters of this fit; whatever is set on it becomes part of the record.
        """

    @abstractmethod
    def _scores(self, X: Any) -> FloatArray:
        """Return the scores of rows, whose number of columns is checked already."""

    def query_scores(self, X: FloatArray) -> FloatArray:
        """Return the scores of one query's documents, without the checks of `predict`: for callers that score often.

        X must be float64 in C order, with NaN for missing values and the columns and codes of training.
        """
        return finite(self._scores(X if self.columns_ is None else self.columns_.columns(X)))

    def predict(self, X: Any, qid: npt.ArrayLike | None = None) -> FloatArray:
        """Scores, one for each document, higher is better.

        Args:
            X: a `RankingData`, or features: an array, or a frame that has the columns of training among others.
            qid: the query of each row, if X are features and the ranker looks at whole queries.

        Returns:
            one score for each row: in the order of the features, or of `data.X`, whose rows grouping may have moved;
            `data.in_source_order(scores)` brings scores into the order of the source.
        """
        del qid  # scores of this ranker do not depend on the other documents of the query
        return by_row(X, finite(self._scores(self._prediction_rows(X))))

    def formula(self) -> Part:
        """Return the score as a function of a document's own features, in plain numbers: what `toprank.export` writes.

        Raises:
            DataError: there is no such formula, with the reason.
        """
        check_is_fitted(self)
        part = self._formula()
        if self.columns_ is None:
            return part
        assert not isinstance(part, Blend | Wide)  # a blend leaves categories to its members
        return Wide.of(self.columns_, part)

    def _formula(self) -> Part:
        """Return the formula over the columns that the ranker sees."""
        raise DataError(f"A {type(self).__name__} has no formula that could be exported; save it, and serve the file.")

    def rank(self, data: Any, k: int | None = 10, *, qid: npt.ArrayLike | str | None = None) -> dict[Any, list[Any]]:
        """The best k documents of each query, best first: their ids, or row numbers where they have none.

        Args:
            data: a `RankingData`; a frame with the columns of training, queries and document ids, which are told by
                their names as in `RankingData.from_frame`; or features, with `qid`.
            k: how many documents of each query; None for all.
            qid: the query of each row of features, or the column of a frame that holds the queries; rows need not be
                grouped.
        """
        if not isinstance(data, RankingData):
            data = self._with_queries(data, qid)
        elif qid is not None:
            raise DataError("The data know their queries already; leave qid out.")
        scores = self.predict(data)
        if len(scores) > 1 and (scores == scores[0]).all():
            self.warn_constant("All documents have the same score; the order given is that of the rows, not a ranking.")
        names, best = data.row_names, best_rows(scores, data.queries, k)
        return {query: names[rows].tolist() for query, rows in zip(data.qids.tolist(), best, strict=True)}

    def _with_queries(self, X: Any, qid: npt.ArrayLike | str | None) -> RankingData:
        """Return a frame, or features with their queries, as data without labels."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if isinstance(qid, str):
            return RankingData.from_frame(X, like=self, label=False, qid=qid)
        if qid is not None:
            common_index(X=X, qid=qid)
            return self._data_of(self._rows(X), qid=qid)
        if names is None or not (hasattr(X, "columns") or hasattr(X, "schema")):
            raise DataError("rank needs the queries: give a RankingData, or features with qid=.")
        return RankingData.from_frame(X, like=self, label=False)

    def _data_of(self, rows: Any, labels: npt.ArrayLike | None = None, qid: npt.ArrayLike | None = None) -> RankingData:
        """Rows with the columns of training, in their order and codes, as data that have their names and levels."""
        names = getattr(self, "feature_names_in_", None)
        return RankingData(rows, labels, qid=qid, feature_names=names, encoding=self.encoding_)

    def score(
        self, X: Any, y: npt.ArrayLike | None = None, qid: npt.ArrayLike | None = None, sample_weight: Any = None
    ) -> float:
        """NDCG@10 under the `standard` convention; other metrics: `toprank.scorer`.

        `sample_weight` is there for scikit-learn's pipelines and searches, which pass on what `fit` was given. It
        changes nothing: a ranking is judged by query, and has no weights of single documents.

        Warns if queries that `fit` saw come with other rows, as they do if rows were split at random instead of by
        query: the number is then too high. Queries are recognised by their ids, so there is no warning if these are
        0 … n - 1 or 1 … n, which every file may give to its own queries, nor after training on a cluster, nor if a
        query comes back with rows that `fit` saw.
        """
        del sample_weight
        data = X if isinstance(X, RankingData) else y
        if data is None:
            raise DataError("score needs labels: give y, or a RankingData.")
        check_is_fitted(self)
        common_index(X=X, y=y, qid=qid)
        if qid is None and not isinstance(X, RankingData) and self.training_["queries"] > 1:
            raise DataError(
                "score was given no qid, but the ranker learned from many queries: all rows as one query would give "
                "another number. Give score the qid of each row; under scikit-learn's pipelines, searches and "
                "cross-validation, call sklearn.set_config(enable_metadata_routing=True) first and pass qid on."
            )
        order: Order = "data" if isinstance(X, RankingData) else "source"
        self.warn_of_split_queries(X, qid)
        if isinstance(X, RankingData):
            self.warn_of_same_judge(X)
        return evaluate(self.predict(X, qid), data, "ndcg@10", qid=qid, order=order).mean["ndcg@10"]

    def warn_of_same_judge(self, data: RankingData) -> None:
        """Warn if the labels are of a judge whose labels were trained on, according to a carried column ``judge``."""
        shared = sorted({*judges_of(data.carried)} & {*self.training_.get("judges", ())})
        if shared:
            self.warn_once(
                f"These labels are of {', '.join(shared)}, whose labels the ranker was trained on: it looks better "
                "than it is, since it learned the judge's mistakes, too. Evaluate on labels of somebody else.",
                SameJudgeWarning,
            )

    def warn_of_split_queries(self, X: Any, qid: Any = None) -> None:
        """Warn if queries that `fit` saw come with other rows; see `score`."""
        kept = KnownQueries.from_plain(self.training_.get(QUERIES))
        if kept is None or (qid is None and not isinstance(X, RankingData)):
            return
        of_rows = None if isinstance(X, RankingData) else identifiers(qid, np.size(qid), "qid")
        qids = X.qids if of_rows is None else np.unique(of_rows)
        places, n_known = kept.places(qids)
        if is_numbering(qids) or n_known < _KNOWN or (places >= 0).sum() < _MOSTLY * n_known:
            return
        data = self.translated(X) if of_rows is None else RankingData(self._rows(X), qid=of_rows)
        places, _ = kept.places(data.qids)
        strangers = kept.strangers(data.select(places >= 0), places[places >= 0])
        if strangers >= max(_STRANGERS, _FEW * n_known):
            self.warn_once(
                "Most of these queries were trained on, with other rows than here: the data were split through the "
                "queries, and the ranker looks better than it is. Split by query: train, test = tr.split(data, (0.8, "
                "0.2)); in scikit-learn, GroupKFold() or GroupShuffleSplit() with groups=qid.",
                SplitQueriesWarning,
            )

    def warn_constant(self, message: str) -> None:
        """Warn that the ranker cannot tell documents apart, so that nobody takes the order of rows for a ranking."""
        self.warn_once(message, ConstantScoresWarning)

    def warn_unconverged(self, message: str) -> None:
        """Warn that the optimum was not reached."""
        self.warn_once(message, ConvergenceWarning)

    # ---- explanations ----

    def explain(
        self,
        data: Any,
        qid: Any = None,
        a: Any = None,
        b: Any = None,
        *,
        permutations: int | None = None,
        seed: int = 0,
    ) -> Explanation:
        """Explain why document a stands above document b: what each feature adds to the difference of their scores.

        The contributions sum to f(a) − f(b); `toprank.rankers.contributions` defines them. They are exact for linear
        rankers, trees and blends of these, and estimates with a standard error for others. If the ranker looks at the
        other documents of the query, these are held fixed.

        Args:
            data: a `RankingData` that holds the query.
            qid: the id of the query; None if there is only one.
            a: a document, by its id, or by its row if documents have no ids; None for the first of the ranking.
            b: another document of the query; None for the one after a, or the one before it if a is the last.
            permutations: how many orders of the features are drawn if contributions are estimated; None for 16 to
                1024, depending on their cost.
            seed: decides these orders.

        >>> import toprank as tr
        >>> data = tr.RankingData([[3.0, 1.0], [1.0, 1.0], [2.0, 5.0]], [1, 0, 0], feature_names=["sales", "price"])
        >>> ranker = tr.LinearRanker("ListNet").fit(data)
        >>> explanation = ranker.explain(data, a=0, b=1)
        >>> explanation.contributions["price"], explanation.contributions["sales"] == explanation.total
        (0.0, True)
        """
        from toprank.rankers.explanation import AskedQuery, explained

        sampling, query = Sampling(permutations, seed).checked(), AskedQuery(self, data, qid)
        return explained(query, *query.pair(a, b), sampling)

    @property
    def sees_queries(self) -> bool:
        """Whether the score of a document depends on the other documents of its query."""
        return False

    @property
    def explains_exactly(self) -> bool:
        """Whether `contributions` are exact, not estimates."""
        return False

    def contributions(
        self, query: RankingData, of: IntArray, against: IntArray, sampling: Sampling = EXACTLY
    ) -> Contributions:
        """Return what each feature adds to f(a) less the mean of f(b), for each a in `of` over the b in `against`.

        `query` is one query with dense features, whose columns are those of training; documents are its rows.
        """
        return shapley(self, query, of, against, sampling)

    @property
    def category_columns(self) -> frozenset[int]:
        """The features known to hold codes of categories."""
        return frozenset(() if self.encoding_ is None else self.encoding_.categories)

    def shares_of_features(self, of_columns: FloatArray) -> FloatArray:
        """Return the importance of each feature, as a share of 1, from those of columns; a category sums its own."""
        counts = of_columns if self.columns_ is None else self.columns_.by_feature(of_columns)
        total = counts.sum()
        return np.asarray(counts / total if total > 0 else counts)

    def course(self, feature: int) -> Course | None:
        """Return how the score runs along a numerical feature, or None if that is not known exactly."""
        del feature
        return None

    @property
    def was_interrupted(self) -> bool:
        """Whether the training was ended from the keyboard."""
        return bool(getattr(self, "interrupted_", False))

    def keep_value(self, value: float | None, metric: str, convention: str, *, data: str = "valid") -> None:
        """Keep in `training_` the metric on the data that the model was chosen by."""
        self.training_[data] = {metric: value, "convention": convention}

    def to_save(self) -> Ranker:
        """Return the ranker that a model file holds: this one, or one with the same scores."""
        return self

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to one file; see `toprank.load`."""
        check_is_fitted(self)
        save(self.to_save(), path)

    def state(self) -> State:
        """Return everything that `restore` needs, as plain values, arrays and texts."""
        parameters_of_fit = self._saved_parameters().items()
        parameters = {name: plain(name, value) for name, value in parameters_of_fit if name not in OF_THE_MACHINE}
        arrays = {name.rstrip("_"): np.asarray(getattr(self, name)) for name in self.saved_arrays}
        if self.standardises:
            arrays |= {"centre": self.standardisation_.centre, "spread": self.standardisation_.spread}
        arrays |= {} if self.columns_ is None else self.columns_.arrays()
        values = {name.rstrip("_"): getattr(self, name) for name in self.saved_values}
        return State({"parameters": parameters, "fitted": values}, arrays, {})

    def _saved_parameters(self) -> dict[str, Any]:
        """Return the parameters that a model file holds: those of the fit."""
        return self.as_fitted.get_params(deep=False)

    def check_restored(self) -> None:
        """Refuse arrays that do not fit the number of features, or each other."""
        if "_tables_of_file" in vars(self):
            raise DataError("there are means of levels, but no categories that have them")
        lengths = {"features": self.n_columns_}
        for name, numbers in self.saved_arrays.items():
            numbers.check_lengths(name.rstrip("_"), getattr(self, name), lengths)
        if self.standardises:
            centre, spread = self.standardisation_.centre, self.standardisation_.spread
            for name, array in (("centre", centre), ("spread", spread)):
                _OF_FEATURES.check_lengths(name, array, lengths)
            if not (spread > 0).all():
                raise DataError("the standardisation divides by a spread that is not above 0")

    def encode(self, encoding: Encoding | None, columns: Any) -> None:
        """Set the kinds of a restored ranker's features; `columns`: what the file says of the levels of categories."""
        self.encoding_ = encoding
        if encoding is not None and encoding.categories and (columns is not None or not self.takes_categories):
            tables = vars(self).pop("_tables_of_file", [])
            self.columns_ = SeenColumns.from_plain(encoding, columns, tables, self.takes_categories)

    @classmethod
    def restore(cls, state: State) -> Self:
        """Return the ranker that `state` described: a draft, to be `settled` once the rest of the file is read."""
        ranker = cls(**read_parameters(cls, needed(state.values, "parameters"), cls.former_parameters))
        for name, numbers in cls.saved_arrays.items():
            part = name.rstrip("_")
            setattr(ranker, name, numbers.read(part, needed(state.arrays, part)))
        fitted = needed(state.values, "fitted")
        for name, hint in cls.saved_values.items():
            setattr(ranker, name, read_value(fitted, name.rstrip("_"), hint))
        if cls.standardises:
            centre, spread = (_OF_FEATURES.read(name, needed(state.arrays, name)) for name in ("centre", "spread"))
            ranker.standardisation_ = Standardisation(centre, spread)
        if f"{TABLE}0" in state.arrays:
            ranker._tables_of_file = [state.arrays[name] for name in SeenColumns.tables(state.arrays)]
        return ranker

    def _training_data(
        self, X: Any, y: npt.ArrayLike | None, qid: npt.ArrayLike | None, weights: npt.ArrayLike | None
    ) -> RankingData | Source:
        self._check_dense(X)
        if isinstance(X, RankingData | Source):
            if y is not None or qid is not None:
                raise DataError("The data hold their labels and queries already; leave y and qid out.")
            if weights is not None:
                raise DataError("The data hold their weights: data.replace(document_weights=...), not sample_weight.")
            seen: RankingData | Source = self._with_matches(X)
            self.encoding_, self.columns_ = seen.encoding, None
            self.n_features_in_ = seen.n_features
            if seen.feature_names is not None:
                self.feature_names_in_ = np.array(seen.feature_names, dtype=object)
            if seen.first_feature_id is not None:
                self.first_feature_id_ = seen.first_feature_id
            return seen
        if y is None:
            hint = "; a table with its labels is tr.RankingData.from_frame(table)." if hasattr(X, "columns") else "."
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None{hint}")
        common_index(X=X, y=y, qid=qid, sample_weight=weights)
        y_values = np.asarray(y)
        if y_values.dtype.kind == "f" and np.isnan(y_values).any():
            raise DataError(
                f"Input y contains NaN: {int(np.isnan(y_values).sum()):,} documents are not judged; leave their rows "
                "out."
            )
        _refuse_answer(X, y_values)
        self.encoding_, self.columns_ = None, None
        mixed = is_mixed(X)
        matrix, labels = (X, y_values) if mixed else validate(self, X, y, reset=True, sparse=self.takes_sparse)
        check_validation(qid, len(labels))
        if qid is None:
            warn_one_query(len(labels), "Training", self.warn_once)
        more: dict[str, Any] = {"document_weights": weights}
        more |= {} if mixed else {"feature_names": getattr(self, "feature_names_in_", None)}
        data = RankingData(matrix, labels, qid=qid, **more)
        return self._training_data(data, None, None, None) if mixed else data

    def _with_matches(self, data: Any) -> Any:
        """Return training data with the matches of queries and documents as columns, if they hold text."""
        self.text_ = None
        if not isinstance(data, RankingData) or data.text is None:
            return data
        before = getattr(getattr(self, "init_model", None), "text_", None)  # whose columns are those to go on with
        if before is not None:
            self.text_ = before
            return self.text_.expanded(data)
        self.text_, matched = TextFeatures.learnt(data)
        return matched

    def _validation_data(self, valid: Any) -> RankingData | Source:
        if isinstance(valid, tuple) and 2 <= len(valid) <= 3:
            X, y, *qid = valid
            common_index(X=X, y=y, qid=qid[0] if qid else None)
            valid = self._data_of(self._rows(X), y, qid=qid[0] if qid else None)
        if not isinstance(valid, RankingData | Source):
            raise DataError("valid must be a RankingData, tr.RankingData(X, y, qid=qid), or a tuple (X, y, qid).")
        self._check_dense(valid)
        translated: RankingData | Source = self.translated(valid)
        return translated

    def _prediction_rows(self, X: Any) -> Any:
        check_is_fitted(self)
        if isinstance(X, RankingData):
            check_files(X)
            self._check_dense(X)
            rows = self.translated(X).X
            if not self.shows_infinity:
                check_finite(rows, getattr(self, "feature_names_in_", None))
        else:
            rows = self._rows(X)
        return rows if self.columns_ is None else self.columns_.columns(rows)

    def translated(self, data: RankingData | Source) -> Any:
        """Return data with the columns of training, in their order and with their codes; further columns are left out.

        Unknown columns are refused if known ones are absent: they may be the same under another name.
        """
        if self.text_ is not None and isinstance(data, RankingData):
            data = self._matched(data)
        mine, theirs = getattr(self, "feature_names_in_", None), data.feature_names
        encoding = self.encoding_
        if mine is None or theirs is None or (tuple(mine) == theirs and data.encoding == encoding):
            self._check_features(data)
            return data
        unknown = [name for name in theirs if name not in set(mine)]
        if unknown and not set(mine) <= set(theirs):
            raise DataError(
                f"The training data had no {'column' if len(unknown) == 1 else 'columns'} {listed(unknown)}. Leave "
                f"{'it' if len(unknown) == 1 else 'them'} out, or",
                remedy=Remedy(
                    "read the data with the columns of training: like=ranker.",
                    "give the table itself, of which the columns of training are read.",
                ),
            )
        target = encoding or Encoding(tuple(Column(name) for name in mine))
        return source_of(data).translated(target)

    def _matched(self, data: RankingData) -> RankingData:
        """Return data with the columns computed from their words, unless they have these columns already."""
        assert self.text_ is not None
        if data.text is not None:
            return self.text_.expanded(data)
        roles = self.text_.roles
        if data.feature_names is None and data.first_feature_id is not None:
            raise DataError(
                f"The ranker matches the words of the query ('{roles.query}') with those of {listed(roles.document)}, "
                "but LETOR text holds numbers without words or names;",
                remedy=Remedy("give it a table that has these columns, read with like=ranker.", "give it a table."),
            )
        if set(self.text_.names) <= set(data.feature_names or ()) or data.feature_names is None:
            return data
        raise DataError(
            f"The ranker matches the words of the query ('{roles.query}') with those of {listed(roles.document)}, but "
            "these data do not say which columns hold them;",
            remedy=Remedy(
                "read the table with like=ranker, or with {text}.",
                "name them with {query_text} and {document_text}.",
                "give a table that has these columns.",
                text=roles.plain(),
                query_text=roles.query,
                document_text=list(roles.document),
            ),
        )

    def _text_rows(self, frame: Any) -> Any:
        """Return the rows of a frame with words: its own features, and the matches of its words."""
        assert self.text_ is not None
        table, roles = table_of(frame), self.text_.roles
        absent = [name for name in roles.columns if name not in table.column_names]
        if absent:
            raise DataError(
                f"There is no column {listed(absent)}: the ranker matches the words of the query ('{roles.query}') "
                f"with those of {listed(roles.document)}."
            )
        texts: dict[str, list[str]] = {
            name: carried_values(name, table.column(name).chunks, False, True).tolist() for name in roles.columns
        }
        own = matrix_of(frame, like=self)[0] if self.text_.n_own else np.zeros((table.num_rows, 0))
        return joined_columns(own, self.text_.columns(texts.pop(roles.query), texts))

    def _rows(self, X: Any) -> Any:
        """Return features as an array or sparse matrix; columns of a frame that are no features are left out."""
        self._check_dense(X)
        names = list(getattr(self, "feature_names_in_", ()))
        if self.text_ is not None and (hasattr(X, "columns") or hasattr(X, "schema")):
            present = getattr(X, "column_names", None) or list(getattr(X, "columns", ()))
            if not set(self.text_.names) <= set(map(str, present)):
                return self._text_rows(X)
        mixed = is_mixed(X)
        if mixed and not names:
            raise DataError(
                "The ranker learned from plain numbers whose columns had no names, and this frame holds more than "
                "numbers; give it the features alone, as numbers in the order of training."
            )
        arrow = hasattr(X, "column_names")
        if names and (mixed or arrow or (self.encoding_ is not None and hasattr(X, "columns"))):
            return matrix_of(X, like=self)[0]
        columns = getattr(X, "columns", None)
        if names and columns is not None and list(columns) != names and set(names) <= set(columns):
            X = X[names]  # whatever else it holds, and in whatever order
        return validate(self, X, reset=False, sparse=self.takes_sparse)

    def _check_dense(self, X: Any) -> None:
        """Refuse sparse features, in a `RankingData` or bare, where the ranker cannot take them."""
        matrix = X.X if isinstance(X, RankingData) else X
        if not self.takes_sparse and hasattr(matrix, "toarray"):
            raise DataError(
                f"{type(self).__name__} needs dense features, but these are sparse; give it X.toarray(), or "
                "data.replace(X=data.X.toarray())."
            )

    def _check_start(self, data: RankingData | Source) -> None:
        """Refuse an `init_model` that is no such fitted ranker, or has other columns; `data` may be widened."""
        before = self.init_model
        if before is None:
            return
        if not isinstance(before, type(self)):
            raise DataError(f"init_model must be a fitted {type(self).__name__}, not a {type(before).__name__}.")
        if not is_fitted(before):
            raise DataError("init_model is not fitted. (scikit-learn's clone forgets what an estimator has learnt.)")
        if before.encoding_ != self.encoding_:
            raise DataError(
                "The data have other levels of categories than the model that training goes on from; read them with "
                "like=init_model."
            )
        if before.columns_ is None:
            before._check_features(data)

    def _check_features(self, data: RankingData | Source) -> None:
        expected = self.n_features_in_
        if data.n_features != expected:
            raise DataError(
                f"X has {data.n_features} features, but {type(self).__name__} is expecting {expected} features as "
                "input.",
                remedy=Remedy(
                    "Read the file with n_features= and first_feature_id= of the training data where the last or the "
                    "first features are absent.",
                    "They must be the same.",
                ),
            )
        known_first, first = getattr(self, "first_feature_id_", None), data.first_feature_id
        if known_first is not None and first is not None and known_first != first:
            raise DataError(
                f"The first column of the data is feature {first} of their text, but that of the training data was "
                f"feature {known_first}: every column would be taken for its neighbour.",
                remedy=Remedy(
                    f"Read the text with first_feature_id={known_first} and n_features={expected}; where the files "
                    "count from different numbers, say so by data.replace(first_feature_id=None).",
                    "Give the text itself, whose ids are read as those of the training data.",
                ),
            )
        mine, theirs = getattr(self, "feature_names_in_", None), data.feature_names
        if mine is not None and theirs is not None and tuple(mine) != theirs:
            place = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
            raise DataError(
                f"Feature number {place} (from 0) is called '{theirs[place]}', but the model was trained with "
                f"'{mine[place]}' there; bring the columns into the order of training."
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = self.takes_sparse
        tags.target_tags.required = True
        return tags


def _refuse_parts(X: Any, y: Any, valid: Any) -> None:
    """Refuse data in parts and Dask collections, which a cluster fits rankers on."""
    if (y is None and _in_parts(X)) or _in_parts(valid):
        raise DataError(
            "A cluster fits rankers on its own data: toprank.cluster.connect(address).fit(ranker, train, valid=valid). "
            "Data that fit into memory are read by toprank.read, and a frame by tr.RankingData.from_frame."
        )


def _refuse_answer(X: Any, y: npt.NDArray[Any]) -> None:
    """Refuse a frame that holds the labels beside the features, in a column with a usual name of labels."""
    if not (hasattr(X, "columns") and hasattr(X, "dtypes")):
        return
    names = [name for name in X.columns if str(name).lower() in USUAL_NAMES["label"]]
    for name in names:
        if list(X.columns).count(name) == 1 and np.array_equal(np.asarray(X[name]), y):
            raise DataError(
                f"Column '{name}' of X is y itself: the ranker would read the answer. Leave it out of X, or give the "
                "table by tr.RankingData.from_frame, which knows it as the label."
            )


def _qid_of_sizes(group: npt.ArrayLike, qid: Any, X: Any) -> npt.NDArray[np.int64]:
    """Return the query of each row, from the number of rows of each query."""
    if qid is not None or isinstance(X, RankingData):
        raise DataError("group and qid both say which rows belong together; give one of them (data know it already).")
    sizes = np.asarray(group)
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or not len(sizes) or sizes.min() < 1 or sizes.sum() != n:
        raise DataError(
            f"group must be how many rows each query has: whole numbers from 1 on, whose sum is that of the rows, {n}. "
            "Where rows are divided later (cross-validation, searches), give qid, the query of each row: "
            "qid=np.repeat(np.arange(len(group)), group)."
        )
    return np.repeat(np.arange(len(sizes)), sizes)


def _in_parts(data: Any) -> bool:
    """Return whether data are described for a cluster, lie on one, or are a Dask collection."""
    return isinstance(data, Source) or hasattr(data, "for_a_cluster") or hasattr(data, "__dask_graph__")


def by_row(X: Any, values: FloatArray) -> FloatArray:
    """Return values of rows in their order, marked so that the data recognise them (`RankingData.aligned`)."""
    return X.returning(values) if isinstance(X, RankingData) else values


def finite(scores: FloatArray) -> FloatArray:
    """Return the scores; refuse infinite ones and NaN, which come from infinite or enormous features."""
    if not np.isfinite(scores).all():
        row = int(np.argmin(np.isfinite(scores)))
        raise DataError(f"The score of row {row} is {scores[row]}: its features hold infinite or enormous values.")
    return scores
