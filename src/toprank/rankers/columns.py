"""Mapping of rows and data to the columns that a ranker was trained on, in their order and with their codes.

`Ranker` uses data with exactly these columns directly, without this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from toprank.data.arrays import common_index, sparse_features
from toprank.data.dataset import RankingData, check_finite
from toprank.data.encoding import Column, Encoding, listed
from toprank.data.frames.arrow import is_mixed, table_of
from toprank.data.frames.conversion import matrix_of
from toprank.data.frames.metadata import metadata_values
from toprank.data.roles import is_inferable
from toprank.data.unjudged import choose_a_rule
from toprank.data.warnings import MIN_UNUSUAL_DOCUMENTS, warn_one_query
from toprank.errors import DataError, Remedy, refuse_if
from toprank.rankers.estimator import is_clone, is_fitted
from toprank.rankers.source import Source, source_of
from toprank.text.tables import TextFeatures, append_columns

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker


# ---- training rows ----


def labeled_rows(
    ranker: Ranker, X: Any, y: npt.ArrayLike | None, qid: npt.ArrayLike | None, weights: npt.ArrayLike | None
) -> RankingData:
    """Return features and labels as training data; scikit-learn clones must receive the queries of many rows."""
    if y is None:
        hint = "; a table with its labels is tr.RankingData.from_frame(table)." if hasattr(X, "columns") else "."
        raise ValueError(f"{type(ranker).__name__} requires y to be passed, but the target y is None{hint}")
    common_index(X=X, y=y, qid=qid, sample_weight=weights)
    y_values = np.asarray(y)
    if y_values.dtype.kind == "f" and np.isnan(y_values).any():
        raise DataError(
            f"Input y contains NaN: {int(np.isnan(y_values).sum()):,} documents are unjudged; drop their rows."
        )
    _refuse_answer(X, y_values)
    ranker.encoding_, ranker.columns_ = None, None
    mixed = is_mixed(X)
    matrix, labels = (X, y_values) if mixed else validate(ranker, X, y, reset=True, sparse=ranker.supports_sparse)
    if qid is None:
        _check_one_query(ranker, len(labels))
    more: dict[str, Any] = {"document_weights": weights}
    more |= {} if mixed else {"feature_names": getattr(ranker, "feature_names_in_", None)}
    return RankingData(matrix, labels, qid=qid, **more)


def _check_one_query(ranker: Ranker, n_rows: int) -> None:
    """Warn that rows without queries form one query; refuse it in cross-validation, which has lost the queries."""
    refuse_if(
        n_rows > MIN_UNUSUAL_DOCUMENTS and is_clone(ranker),
        "Cross-validation of rankers must split by query, but scikit-learn passed no qid to fit. Call "
        "sklearn.set_config(enable_metadata_routing=True) first, then search.fit(X, y, qid=qid, groups=qid), or "
        "cross_val_score(..., params={'qid': qid, 'groups': qid}), with cv=GroupKFold(), which keeps queries "
        "together. To train a clone on one query, pass the same qid for all rows.",
    )
    warn_one_query(n_rows, "Training", ranker.warn_once)


def _refuse_answer(X: Any, y: npt.NDArray[Any]) -> None:
    """Refuse a frame that contains the labels among the features, in a column with a common label name."""
    if not (hasattr(X, "columns") and hasattr(X, "dtypes")):
        return
    names = [name for name in X.columns if is_inferable("label", str(name))]
    for name in names:
        refuse_if(
            list(X.columns).count(name) == 1 and np.array_equal(np.asarray(X[name]), y),
            f"Column '{name}' of X equals y, so the labels would leak into the features. Drop it from X, or use "
            "tr.RankingData.from_frame(table), which treats it as the label.",
        )


def elsewhere() -> DataError:
    """Return the error for data on which only a cluster can fit rankers."""
    return DataError(
        "Data on a cluster need toprank.cluster.connect(address).fit(ranker, train, valid=valid). Read data that fit "
        "into memory with toprank.read, and frames with tr.RankingData.from_frame."
    )


def unjudged(count: int) -> DataError:
    """Return the error for documents without labels."""
    return DataError(
        f"{count:,} documents are unjudged (label NaN or -1);",
        remedy=choose_a_rule(
            "drop them: fit(data.filter(data.judged)); or treat them as irrelevant: "
            "fit(data.replace(labels=np.where(data.judged, data.labels, 0)))."
        ),
    )


def sparse(ranker: Ranker) -> DataError:
    """Return the error for sparse features and a ranker that needs dense ones."""
    return DataError(
        f"{type(ranker).__name__} does not support sparse features; pass X.toarray(), or "
        "data.replace(X=data.X.toarray())."
    )


def with_matches(ranker: Any, data: RankingData) -> RankingData:
    """Add match features of queries and documents to training data, and keep how they are computed."""
    before = getattr(getattr(ranker, "init_model", None), "text_", None)  # training continues with its columns
    matched: RankingData
    ranker.text_, matched = TextFeatures.fit(data) if before is None else (before, before.transform(data))
    return matched


def validation_tuple(ranker: Ranker, valid: Any) -> RankingData:
    """Return (X, y) or (X, y, qid) as data."""
    if not isinstance(valid, tuple) or not 2 <= len(valid) <= 3:
        raise DataError("valid must be a RankingData, tr.RankingData(X, y, qid=qid), or a tuple (X, y, qid).")
    X, y, qid = valid if len(valid) == 3 else (*valid, None)
    common_index(X=X, y=y, qid=qid)
    return ranker._data_of(ranker._rows(X), y, qid=qid)


def qid_from_sizes(group: npt.ArrayLike, qid: Any, X: Any) -> npt.NDArray[np.int64]:
    """Return the query of each row from the number of rows of each query."""
    if qid is not None or isinstance(X, RankingData):
        raise DataError("group and qid both define the queries; pass only one of them, and neither with a RankingData.")
    sizes = np.asarray(group)
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    refuse_if(
        sizes.ndim != 1 or sizes.dtype.kind not in "iu" or not len(sizes) or sizes.min() < 1 or sizes.sum() != n,
        f"group must contain the number of rows of each query: integers from 1 that sum to the number of rows, {n}. "
        "If rows are split later (cross-validation, searches), pass the query of each row instead: "
        "qid=np.repeat(np.arange(len(group)), group).",
    )
    return np.repeat(np.arange(len(sizes)), sizes)


def check_init_model(ranker: Any, data: RankingData | Source) -> None:
    """Refuse an `init_model` that is not a fitted ranker of this kind, or has other columns; `data` may be expanded."""
    before = ranker.init_model
    if not isinstance(before, type(ranker)):
        raise DataError(f"init_model must be a fitted {type(ranker).__name__}, not a {type(before).__name__}.")
    refuse_if(not is_fitted(before), "init_model is not fitted. (scikit-learn's clone discards fitted attributes.)")
    refuse_if(
        before.encoding_ != ranker.encoding_,
        "The data have other category levels than init_model; read them with like=init_model.",
    )
    if before.columns_ is None:
        before._check_features(data)


# ---- other data ----


def translated(ranker: Ranker, data: Any) -> Any:
    """Return data with the columns of training, in their order and with their codes; other columns are dropped.

    Unknown columns are refused if known ones are absent, since they may be renamed columns.
    """
    if ranker.text_ is not None and isinstance(data, RankingData):
        data = _matched(ranker.text_, data)
    mine, theirs = getattr(ranker, "feature_names_in_", None), data.feature_names
    encoding = ranker.encoding_
    if mine is None or theirs is None or (tuple(mine) == theirs and data.encoding == encoding):
        ranker._check_features(data)
        return data
    unknown = [name for name in theirs if name not in set(mine)]
    if unknown and not set(mine) <= set(theirs):
        raise DataError(
            f"The training data had no {'column' if len(unknown) == 1 else 'columns'} {listed(unknown)}. Drop "
            f"{'it' if len(unknown) == 1 else 'them'}, or",
            remedy=Remedy(
                "read the data with the columns of training: like=ranker.",
                "pass the table itself, from which the training columns are read.",
            ),
        )
    return source_of(data).translated(encoding or Encoding(tuple(Column(name) for name in mine)))


def check_features(ranker: Ranker, data: RankingData | Source) -> None:
    """Refuse data with another number of features, another feature numbering in their text, or other names."""
    expected = ranker.n_features_in_
    if data.n_features != expected:
        raise DataError(
            f"X has {data.n_features} features, but {type(ranker).__name__} is expecting {expected} features as input.",
            remedy=Remedy(
                "If the first or the last features are absent from the file, read it with n_features= and "
                "first_feature_id= of the training data.",
                "Both numbers must be equal.",
            ),
        )
    known_first, first = getattr(ranker, "first_feature_id_", None), data.first_feature_id
    if known_first is not None and first is not None and known_first != first:
        raise DataError(
            f"The first column of the data is feature {first} of their text, but the first column of the training "
            f"data was feature {known_first}, so all columns would be shifted.",
            remedy=Remedy(
                f"Read the text with first_feature_id={known_first} and n_features={expected}; if the files "
                "number their features differently, use data.replace(first_feature_id=None).",
                "Pass the text itself, which is read with the feature ids of the training data.",
            ),
        )
    mine, theirs = getattr(ranker, "feature_names_in_", None), data.feature_names
    if mine is not None and theirs is not None and tuple(mine) != theirs:
        place = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
        raise DataError(
            f"Feature {place} (from 0) is '{theirs[place]}', but the model was trained with '{mine[place]}' at this "
            "position; reorder the columns as in training."
        )


def with_queries(ranker: Ranker, X: Any, qid: npt.ArrayLike | str | None) -> RankingData:
    """Return a frame, or features with their queries, as data without labels."""
    names = getattr(ranker, "feature_names_in_", None)
    unread: Any = dict.fromkeys(("label", "weight", "query_weight", "teacher"), False)
    if isinstance(qid, str):
        return RankingData.from_frame(X, like=ranker, qid=qid, **unread)
    if qid is not None:
        common_index(X=X, qid=qid)
        return ranker._data_of(ranker._rows(X), qid=qid)
    refuse_if(
        names is None or not (hasattr(X, "columns") or hasattr(X, "schema")),
        "rank needs queries: pass a RankingData, or features with qid=.",
    )
    return RankingData.from_frame(X, like=ranker, **unread)


# ---- rows ----


def rows(ranker: Ranker, X: Any) -> Any:
    """Return features as an array or sparse matrix; other columns of a frame are dropped."""
    names = list(getattr(ranker, "feature_names_in_", ()))
    if ranker.text_ is not None and (hasattr(X, "columns") or hasattr(X, "schema")):
        present = getattr(X, "column_names", None) or list(getattr(X, "columns", ()))
        if not set(ranker.text_.names) <= set(map(str, present)):
            return _text_rows(ranker, ranker.text_, X)
    mixed = is_mixed(X)
    refuse_if(
        mixed and not names,
        "The ranker was trained on numeric columns without names, but this frame has other columns; pass only the "
        "features, as numbers in the order of training.",
    )
    arrow = hasattr(X, "column_names")
    if names and (mixed or arrow or (ranker.encoding_ is not None and hasattr(X, "columns"))):
        return matrix_of(X, like=ranker)[0]
    columns = getattr(X, "columns", None)
    if names and columns is not None and list(columns) != names and set(names) <= set(columns):
        X = X[names]  # drop other columns, and restore the order of training
    return validate(ranker, X, reset=False, sparse=ranker.supports_sparse)


# ---- numeric rows ----


_DTYPES = (np.float64, np.float32)


def validate(estimator: Any, X: Any, y: Any = None, *, reset: bool, sparse: bool) -> Any:
    """Return X as a matrix of floats, with y as labels. `reset` stores number and names of the columns, else compares
    them.

    Columns are compared by name if both X and the training data have names, otherwise by position. Plain arrays and
    numeric frames are checked here; scikit-learn validates everything else, with its own messages.
    """
    matrix, names = _plain_matrix(X)
    names_before = getattr(estimator, "feature_names_in_", None)
    if matrix is not None and (y is None or _is_plain_column(y, len(matrix))):
        if reset:
            estimator.__dict__.pop("feature_names_in_", None)
            estimator.n_features_in_ = matrix.shape[1]
            if names is not None:
                estimator.feature_names_in_ = names
            return (matrix, np.asarray(y))
        if names is None or names_before is None:
            if matrix.shape[1] != estimator.n_features_in_:
                raise DataError(
                    f"X has {matrix.shape[1]} features, but {type(estimator).__name__} is expecting "
                    f"{estimator.n_features_in_} features as input."
                )
            return matrix
        if np.array_equal(names, names_before):
            return matrix
    from sklearn.utils.validation import validate_data

    options: dict[str, Any] = {"accept_sparse": "csr" if sparse else False, "dtype": list(_DTYPES)}
    options |= {"ensure_all_finite": False, "reset": reset}  # our own message names the infinite feature
    if sparse and hasattr(X, "toarray"):
        X = sparse_features(X)  # scikit-learn, SciPy and our kernels do not check index arrays
        check_finite(X, None)
    checked = (
        validate_data(estimator, X, **options)
        if y is None
        else validate_data(estimator, X, y, y_numeric=True, **options)
    )
    check_finite(checked if y is None else checked[0], getattr(estimator, "feature_names_in_", None))
    return checked


def _plain_matrix(X: Any) -> tuple[Any, Any]:
    """Return a matrix of floats and its column names, or None for other inputs; refuse infinite values."""
    names = None
    if type(X).__module__.partition(".")[0] == "pandas" and hasattr(X, "columns"):
        names = np.array(list(X.columns), dtype=object)
        if not all(isinstance(name, str) for name in names) or not all(kind.kind in "fiu" for kind in X.dtypes):
            return None, None
        X = X.to_numpy()
    if type(X) is not np.ndarray or X.ndim != 2 or X.dtype.kind not in "fiu" or 0 in X.shape:
        return None, None
    matrix = X if X.dtype in _DTYPES else X.astype(np.float64)
    check_finite(matrix, names)
    return matrix, names


def _is_plain_column(y: Any, n: int) -> bool:
    column = np.asarray(y) if isinstance(y, list | np.ndarray) or type(y).__module__.startswith("pandas.") else None
    return (
        column is not None and column.shape == (n,) and column.dtype.kind in "fiu" and bool(np.isfinite(column).all())
    )


# ---- match features ----


def _matched(text: TextFeatures, data: RankingData) -> RankingData:
    """Add the match features of the text to data, unless the data have these columns already."""
    if data.text is not None:
        return text.transform(data)
    roles = text.roles
    if data.feature_names is None and data.first_feature_id is not None:
        raise DataError(
            f"{_matches_of(text)}, but LETOR text has neither text columns nor names;",
            remedy=Remedy("pass a table that has these columns, read with like=ranker.", "pass a table."),
        )
    if set(text.names) <= set(data.feature_names or ()) or data.feature_names is None:
        return data
    raise DataError(
        f"{_matches_of(text)}, but these data have no text columns;",
        remedy=Remedy(
            "read the table with like=ranker, or with {text}.",
            "name them with {query_text} and {document_text}.",
            "pass a table that has these columns.",
            text=roles.plain(),
            query_text=roles.query,
            document_text=list(roles.document),
        ),
    )


def _matches_of(text: TextFeatures) -> str:
    """Return a description of the matched texts, as the start of a sentence."""
    roles = text.roles
    return f"The ranker matches the query text ('{roles.query}') with {listed(roles.document)}"


def _text_rows(ranker: Ranker, text: TextFeatures, frame: Any) -> Any:
    """Return the rows of a frame with text: its own features and the match features."""
    table, roles = table_of(frame), text.roles
    absent = [name for name in roles.columns if name not in table.column_names]
    if absent:
        raise DataError(f"Column {listed(absent)} is missing: {_matches_of(text).replace('The', 'the', 1)}.")
    texts: dict[str, list[str]] = {
        name: metadata_values(name, table.column(name).chunks, False, True).tolist() for name in roles.columns
    }
    own = matrix_of(frame, like=ranker)[0] if text.n_original else np.zeros((table.num_rows, 0))
    return append_columns(own, text.columns(texts.pop(roles.query), texts))
