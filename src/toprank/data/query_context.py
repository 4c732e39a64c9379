"""Set-dependent features g(S): columns that compare a document with the other documents of its query.

A ranker that scores each document separately cannot know whether a BM25 of 12 is the best or the worst of its query.
With these columns, every ranker is a function of the document and its candidate set (Cossock & Zhang 2008, §III).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from toprank import kernels
from toprank.compute import IntArray, blocks_of, each_block
from toprank.data.dataset import RankingData
from toprank.data.encoding import Column, Encoding
from toprank.data.query_statistics import PER_COLUMN, statistic_codes
from toprank.errors import DataError, UnknownNameError

Array = npt.NDArray[Any]

_BLOCK = 1 << 16  # values per block: 0.5 MB, which fits into the cache


_SIZE = "size"
_STATISTICS = (*PER_COLUMN, _SIZE)


@dataclass(eq=False, repr=False)
class QueryContextFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Add columns that compare each document with the other documents of its query; for use before any ranker.

    | statistic | for a column x and a document of a query with m documents |
    |---|---|
    | ``mean``, ``std``, ``min``, ``max`` | of x in the query; std divides by m |
    | ``rank`` | 1 for the largest x of the query, equal values share the mean of their ranks |
    | ``zscore`` | (x − mean) / std; 0 where all values of the query are equal |
    | ``size`` | m, once |

    Statistics ignore missing values (NaN). The rank and z-score of a missing x are missing; if x is missing in the
    whole query, all of its statistics are. In a query with one document, mean, min and max equal x, the rank is 1, and
    std and z-score are 0. Infinite values raise an error.

    Labels are not used, and only the columns are fitted: statistics always come from the query being transformed. The
    result does not depend on the order of the rows.

    Args:
        statistics: names of the statistics, in the order of the new columns.
        columns: numbers or names of the columns to use. None uses all columns.
        keep: whether to keep the original columns, before the new ones.
        threads: number of threads. None uses all cores. The result does not depend on it.

    Fitted attributes: `columns_` (numbers of the columns used), `n_features_in_`, `feature_names_in_`.

    New columns follow the order of `columns`, with all statistics of a column next to each other; the size comes last.
    float32 input gives float32 output, computed in double precision. The cost per column and query is O(m log m); only
    the result is stored. Sparse features raise an error, because the result is not sparse.

    >>> data = RankingData([[3.0], [1.0], [3.0]], qid=[7, 7, 7], feature_names=["bm25"])
    >>> wide = QueryContextFeatures(["max", "rank", "size"]).fit_transform(data)
    >>> wide.feature_names
    ('bm25', 'bm25_max_in_query', 'bm25_rank_in_query', 'documents_in_query')
    >>> wide.X.tolist()
    [[3.0, 3.0, 1.5, 3.0], [1.0, 3.0, 3.0, 3.0], [3.0, 3.0, 1.5, 3.0]]
    """

    # Request `qid` for fit and transform in scikit-learn's metadata routing.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"qid": True}
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"qid": True}

    statistics: Sequence[str] = ("mean", "max", "rank", "zscore", "size")
    columns: Sequence[int | str] | None = None
    keep: bool = True
    _: KW_ONLY
    threads: int | None = None

    def fit(self, X: Any, y: npt.ArrayLike | None = None, qid: npt.ArrayLike | None = None) -> Self:
        """Validate and store the columns to use.

        Args:
            X: a `RankingData`, or the features of the documents.
            y: ignored.
            qid: query id of each document; required if X is a feature matrix.

        Raises:
            DataError: X is a feature matrix without query ids.
        """
        del y
        for name in ("columns_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                delattr(self, name)
        if isinstance(X, RankingData):
            self._refuse_sparse(X)
            self.n_features_in_ = X.n_features
            if X.feature_names is not None:
                self.feature_names_in_ = np.array(X.feature_names, dtype=object)
        else:
            self._feature_matrix(X, reset=True)
        self._checked_statistics()
        self.columns_ = self._column_numbers()
        if isinstance(X, RankingData) and X.encoding is not None and self.columns is None:
            self.columns_ = np.setdiff1d(
                self.columns_, X.encoding.categories
            )  # Category codes have no mean and no order.
        if not isinstance(X, RankingData):
            self._refuse_without_queries(qid)
        return self

    def transform(self, X: Any, qid: npt.ArrayLike | None = None) -> Any:
        """Return the data with the new columns: a `RankingData` for a `RankingData`, an array for a feature matrix.

        After ``set_output(transform="pandas")`` (or ``"polars"``) a feature matrix becomes a frame with named columns.

        Args:
            X: a `RankingData`, or the features of the documents.
            qid: query id of each document; required if X is a feature matrix. Rows need not be grouped.

        Raises:
            DataError: X is a feature matrix without query ids.
        """
        check_is_fitted(self, "columns_")
        matrix = self._feature_matrix(X, reset=False)
        self._refuse_without_queries(qid)
        grouped = RankingData(matrix, qid=qid)
        return grouped.in_source_order(self._with_statistics(grouped))

    @staticmethod
    def _refuse_without_queries(qid: Any) -> None:
        if qid is None:
            raise DataError(
                "QueryContextFeatures needs the query id of each row: give qid, or a RankingData. If all rows belong "
                "to one query, give all the same id. In a Pipeline, call "
                "sklearn.set_config(enable_metadata_routing=True), then fit(X, y, qid=qid) and predict(X, qid=qid)."
            )

    def _with_columns(self, data: RankingData, qid: Any) -> RankingData:
        check_is_fitted(self, "columns_")
        if qid is not None:
            raise DataError("A RankingData contains its queries; leave out qid.")
        self._check_columns(data)
        names = None if data.feature_names is None else self.get_feature_names_out(data.feature_names).tolist()
        known = data.encoding and Encoding(
            tuple(
                {column.name: column for column in data.encoding.columns}.get(name, Column(name))
                for name in names or ()
            )
        )
        return data.replace(X=self._with_statistics(data), feature_names=names, encoding=known)

    def get_feature_names_out(self, input_features: Iterable[str] | None = None) -> Array:
        """Return the names of the output columns: ``bm25``, ``bm25_mean_in_query`` …, ``documents_in_query``."""
        check_is_fitted(self, "columns_")
        own = getattr(self, "feature_names_in_", None)
        if input_features is not None:
            names = [str(name) for name in input_features]
            if len(names) != self.n_features_in_:
                raise DataError(
                    f"input_features should have length equal to number of features ({self.n_features_in_}), "
                    f"got {len(names)}."
                )
            if own is not None and names != list(own):
                raise DataError("input_features is not equal to feature_names_in_; leave out input_features.")
        else:
            names = [f"x{i}" for i in range(self.n_features_in_)] if own is None else list(own)
        per_column, with_size = self._checked_statistics()
        new = [f"{names[c]}_{statistic}_in_query" for c in self.columns_ for statistic in per_column]
        new += ["documents_in_query"] if with_size else []
        return np.array([*(names if self.keep else ()), *new], dtype=object)

    def _with_statistics(self, data: RankingData) -> Array:
        """Return the output columns for all documents; bitwise the same for any number of threads."""
        per_column, with_size = self._checked_statistics()
        columns, offsets = self.columns_, data.queries.offsets
        kept, new = (self.n_features_in_ if self.keep else 0), len(columns) * len(per_column)
        result = np.empty((data.n_documents, kept + new + with_size), dtype=data.X.dtype)
        result[:, :kept] = data.X[:, :kept]
        if with_size:
            result[:, -1] = data.queries.broadcast(data.queries.sizes)
        codes = statistic_codes(per_column)

        def fill(block: tuple[int, int]) -> int:
            first, last = block
            start, stop = offsets[first], offsets[last]
            values = np.array(data.X[start:stop, columns].T, dtype=np.float64, order="C")
            own = offsets[first : last + 1] - start
            return int(kernels.fill_statistics(values, own, codes, kept, result[start:stop]))

        blocks = blocks_of(offsets, max(1, _BLOCK // max(1, len(columns))))
        for (first, _), place in zip(blocks, each_block(fill, blocks, self.threads), strict=True):
            if place >= 0:  # index of the first statistic that is not finite
                query, column = divmod(place, len(columns))
                raise DataError(
                    f"Feature {self._feature_label(int(columns[column]))} has infinite or extremely large values in "
                    f"query {data.qids[first + query]}; replace them, for example by NaN (missing)."
                )
        return result

    # ---- validation ----

    def _checked_statistics(self) -> tuple[tuple[str, ...], bool]:
        """Validate `statistics`; return the column statistics, and whether the query size is requested."""
        if isinstance(self.statistics, str):
            raise DataError(f"statistics must be a list of names, such as ['{self.statistics}'], not a string.")
        if not isinstance(self.statistics, Sequence | np.ndarray):
            raise DataError(f"statistics must be a list of names, such as ['mean'], not {self.statistics!r}.")
        wanted = tuple(self.statistics)
        for name in wanted:
            if not isinstance(name, str) or name not in _STATISTICS:
                raise UnknownNameError("statistic of QueryContextFeatures", str(name), _STATISTICS)
        if not wanted or len(set(wanted)) < len(wanted):
            raise DataError(f"statistics must be a non-empty list of distinct names, not {list(wanted)}.")
        return tuple(name for name in wanted if name != _SIZE), _SIZE in wanted

    def _column_numbers(self) -> IntArray:
        if self.columns is None:
            return np.arange(self.n_features_in_)
        if isinstance(self.columns, str) or not isinstance(self.columns, Sequence | np.ndarray):
            raise DataError(f"columns must be a list of numbers or names, or None for all, not {self.columns!r}.")
        names = list(getattr(self, "feature_names_in_", ()))
        numbers = []
        for column in self.columns:
            if isinstance(column, str):
                if column not in names:
                    nameless = f"columns contains '{column}', but the features have no names; give column numbers."
                    raise UnknownNameError("feature", column, names) if names else DataError(nameless)
                numbers.append(names.index(column))
            elif not isinstance(column, int | np.integer) or not 0 <= column < self.n_features_in_:
                raise DataError(f"Column {column!r} does not exist; columns run from 0 to {self.n_features_in_ - 1}.")
            else:
                numbers.append(int(column))
        if len(set(numbers)) < len(numbers):
            raise DataError("A column occurs twice in columns; list each column once.")
        return np.array(numbers, dtype=np.int64)

    def _check_columns(self, data: RankingData) -> None:
        self._refuse_sparse(data)
        if data.n_features != self.n_features_in_:
            raise DataError(
                f"X has {data.n_features} features, but QueryContextFeatures is expecting {self.n_features_in_} "
                "features as input. If trailing features are absent from a file, read it with the n_features= of the "
                "training data."
            )
        mine, theirs = getattr(self, "feature_names_in_", None), data.feature_names
        if mine is not None and theirs is not None and tuple(mine) != theirs:
            place = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
            raise DataError(
                f"Feature number {place} (from 0) is called '{theirs[place]}', but '{mine[place]}' when "
                "QueryContextFeatures was fitted; reorder the columns."
            )

    def _feature_matrix(self, X: Any, *, reset: bool) -> Array:
        kinds = [np.float64, np.float32]
        return np.asarray(validate_data(self, X, reset=reset, dtype=kinds, ensure_all_finite="allow-nan"))

    def _feature_label(self, column: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return f"number {column} (from 0)" if names is None else f"'{names[column]}'"

    @staticmethod
    def _refuse_sparse(data: RankingData) -> None:
        if data.is_sparse:
            raise DataError(
                "QueryContextFeatures needs dense features, because its new columns are dense. If memory allows, use "
                "data.replace(X=data.X.toarray())."
            )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _keep_ranking_data(of_features: Callable[..., Any]) -> Callable[..., Any]:
    """Let `transform` return ranking data for ranking data, bypassing the frames of `set_output`."""

    @wraps(of_features)
    def transform(self: QueryContextFeatures, X: Any, qid: npt.ArrayLike | None = None) -> Any:
        return self._with_columns(X, qid) if isinstance(X, RankingData) else of_features(self, X, qid)

    return transform


def _fit_transform(
    self: QueryContextFeatures, X: Any, y: npt.ArrayLike | None = None, qid: npt.ArrayLike | None = None
) -> Any:
    """Fit to data and transform the same data."""
    return self.fit(X, y, qid).transform(X, qid)


# Set after the class is created: scikit-learn wraps the methods in the class body to convert their output to frames.
QueryContextFeatures.transform = _keep_ranking_data(QueryContextFeatures.transform)  # type: ignore[method-assign]
QueryContextFeatures.fit_transform = _fit_transform
