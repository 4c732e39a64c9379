"""Validation of the arrays in ranking data: features, numeric columns, labels, ids and names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import Array, FloatArray, in_pieces, numbers
from toprank.data.encoding import Encoding
from toprank.errors import DataError, Remedy


def check_length(array: Array, n: int, name: str, of: str) -> None:
    """Raise an error if an array is not one-dimensional with `n` entries."""
    if array.ndim != 1:
        raise DataError(f"{name} must have one dimension, not {array.ndim}.")
    if len(array) != n:
        raise DataError(f"There are {len(array)} {name} for {n} {of}; give one for each.")


def labels(y: npt.ArrayLike, n: int, first_row: int = 0) -> FloatArray:
    """Validate labels: finite, or NaN for "not judged"; messages count rows from `first_row`."""
    array = numbers(y, "labels").astype(np.float64, copy=False)
    check_length(array, n, "labels", "documents")
    infinite = np.isinf(array)
    if infinite.any():
        row = int(np.argmax(infinite))
        where = f"The label of row {first_row + row} is {array[row]}"
        raise DataError(f"{where}; labels must be finite, or NaN for 'not judged'.")
    return array


def checked_weights(values: npt.ArrayLike | None, n: int, name: str, of: str) -> FloatArray | None:
    """Validate weights: finite, not negative and not all zero; None stays None."""
    if values is None:
        return None
    array = some_weights(values, n, name, of)
    check_any_weight(array, name)
    return array


def check_any_weight(weights: Array, name: str) -> None:
    """Raise an error if all weights are zero."""
    if not weights.any():
        raise DataError(f"{name} are all zero; give at least one positive weight.")


def some_weights(values: npt.ArrayLike, n: int, name: str, of: str, first_row: int = 0) -> FloatArray:
    """Validate weights of a block of rows: finite, not negative. Messages count rows from `first_row`."""
    array = numbers(values, name).astype(np.float64, copy=False)
    check_length(array, n, name, of)
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        place = first_row + int(np.argmax(wrong))
        raise DataError(f"{name} must be finite and not negative; number {place} is {array[wrong][0]}.")
    return array


def positions(values: npt.ArrayLike, n: int, name: str = "positions", first_row: int = 0) -> npt.NDArray[np.int64]:
    """Validate integers, one for each document; messages count rows from `first_row`."""
    array = numbers(values, name)
    check_length(array, n, name, "documents")
    if array.dtype.kind not in "iu":
        raise DataError(f"{name} must be whole numbers, not {array.dtype}.")
    if array.dtype == np.uint64 and len(array) and array.max() >= 2**63:
        row = int(np.argmax(array >= 2**63))
        raise DataError(f"{name} must be below 2^63; row {first_row + row} has {array[row]}.")
    return array.astype(np.int64, copy=False)


def teacher(values: npt.ArrayLike, n: int, first_row: int = 0) -> FloatArray:
    """Validate finite scores of a teacher, one for each document; messages count rows from `first_row`."""
    array = numbers(values, "teacher").astype(np.float64, copy=False)
    check_length(array, n, "scores of the teacher", "documents")
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array)))
        raise DataError(
            f"A teacher's scores must be finite; row {first_row + row} has {array[row]}. Leave out documents that the "
            "teacher did not score."
        )
    return array


def identifiers(ids: npt.ArrayLike, n: int, name: str, first_row: int = 0) -> Array:
    """Return ids as integers (only query ids) or strings; messages count rows from `first_row`."""
    try:
        array = _id_array(ids)
    except ValueError as problem:
        raise DataError(f"{name} must be a one-dimensional list of ids: {problem}.") from None
    check_length(array, n, name, "documents" if name != "qids" else "queries")
    if array.dtype.kind == "O":
        array = _plain_objects(array, name, first_row)
    if array.dtype.kind == "f":
        array = _whole_floats(array, name, first_row)
    fits = array.dtype.kind in "iu" and (array.dtype != np.uint64 or not len(array) or array.max() < 2**63)
    if fits and name != "document_ids":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8", "backslashreplace")  # keeps different bytes different
    if array.dtype.kind != "U":
        return array.astype(str)
    check_surrogates(array, name, first_row)
    return array


def _id_array(ids: npt.ArrayLike) -> Array:
    """Return ids as an array; of objects if NumPy would convert integers to floats or truncate strings."""
    array = np.asarray(ids)
    if array.ndim != 1 or array.dtype.kind not in "fUT" or (isinstance(ids, np.ndarray) and array.dtype.kind != "T"):
        return array
    objects = array.astype(object) if array.dtype.kind == "T" else np.array(ids, dtype=object)
    kept = array.dtype.kind == "f" and not all(isinstance(value, int | np.integer) for value in objects.tolist())
    return array if kept else objects


def _whole_floats(array: Array, name: str, first_row: int) -> npt.NDArray[np.int64]:
    """Convert integral floats to integers; raise an error for floats too large to be exact."""
    exact = 2.0 ** (np.finfo(array.dtype).nmant + 1)
    whole = np.isfinite(array) & (np.trunc(array) == array)
    wrong = ~whole | (np.abs(array) >= exact)
    if wrong.any():
        row = int(np.argmax(wrong))
        example = f"row {first_row + row} has {array[row]}"
        if not whole[row]:
            raise DataError(f"{name} must be whole numbers or strings; {example}.")
        raise DataError(
            f"{name} are {array.dtype}, which is exact only for integers below {exact:.0f}; {example}. Give them as "
            "integers or as text."
        )
    return array.astype(np.int64)


def _plain_objects(array: Array, name: str, first_row: int) -> Array:
    """Return Python objects as integers if all are integers, else as strings; raise an error for missing values."""
    values = array.tolist()
    for row, value in enumerate(values):
        if is_missing(value):
            raise DataError(f"{name} has no value in row {first_row + row}; give a value for every row.")
    whole = all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in values)
    if whole and all(-(2**63) <= value < 2**63 for value in values):
        return np.array([int(value) for value in values], dtype=np.int64)
    return strings([value if isinstance(value, str) else str(value) for value in values], name, first_row)


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or NA; the last three are the values that do not equal themselves."""
    same = None if value is None else value == value
    return not isinstance(same, bool | np.bool_) or not same


def strings(values: Sequence[str], name: str, first_row: int = 0) -> Array:
    """Return text as an array of strings; raise an error for text that NumPy would truncate."""
    for row, value in enumerate(values):
        if value.endswith("\0"):
            raise DataError(
                f"{name} has {value!r} in row {first_row + row}; ids may not end in a zero byte. Remove it there."
            )
    return np.array(values, dtype=str)


def check_surrogates(words: Array, name: str, first_row: int = 0) -> None:
    """Raise an error for strings with an unpaired surrogate, which can be neither written nor hashed."""
    for piece in in_pieces(words):
        letters = np.ascontiguousarray(piece, dtype=piece.dtype.newbyteorder("=")).view(np.uint32)
        if letters.size and letters.max() >= 0xD800 and (letters >> 11 == 0xD800 >> 11).any():
            width = len(letters) // len(piece)
            row = int(np.argmax(letters >> 11 == 0xD800 >> 11)) // width
            raise DataError(
                f"{name} has {str(piece[row])!r} in row {first_row + row}, which cannot be written as UTF-8; "
                "choose another id."
            )
        first_row += len(piece)


def check_utf8(word: str, kind: str) -> None:
    """Raise an error for text with an unpaired surrogate, which no file can store; `kind` names the text."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise DataError(f"The {kind} {word!r} cannot be written as UTF-8; choose another.") from None


def checked_names(feature_names: Sequence[str] | None, width: int) -> tuple[str, ...] | None:
    """Validate feature names: unique, one for each of `width` columns; None without names or columns."""
    if feature_names is None or (width == 0 and len(feature_names) == 0):
        return None
    feature_names = tuple(str(name) for name in feature_names)
    if len(feature_names) != width:
        raise DataError(f"There are {len(feature_names)} feature names for {width} features; give one for each.")
    for name in feature_names:
        check_utf8(name, "feature name")
    return tuple(refuse_repeated(feature_names, "features"))


def refuse_repeated(names: Sequence[str], kind: str = "columns") -> Sequence[str]:
    """Return names; raise an error if they are not unique. `kind` is the noun for them in the message."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"Two {kind} are called '{twice}'; rename one of them.")
    return names


IN_DOUBLE = Remedy("read with {dtype}.", "bring it into a stored copy with toprank convert {dtype}.", dtype="float64")
"""Remedy for a number that is too large for float32."""


def checked_features(X: Any) -> tuple[Any, Sequence[str] | None, Encoding | None]:
    """Return X as a dense array or canonical CSR matrix of floats, with the names and encoding of a frame's columns."""
    if hasattr(X, "tocsr"):
        return sparse_features(X), None, None
    if hasattr(X, "columns") or hasattr(X, "schema"):
        from toprank.data.frames.conversion import matrix_of

        return matrix_of(X)
    array = numbers(X, "X")
    if array.ndim != 2:
        raise DataError(f"X must have two dimensions (documents × features), not {array.ndim}.")
    return (array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)), None, None


def sparse_features(X: Any) -> Any:
    """Convert a SciPy sparse matrix to a float32 or float64 `csr_matrix` with sorted, unique columns."""
    from scipy import sparse

    if len(X.shape) != 2:
        raise DataError(f"X must have two dimensions (documents × features), not {len(X.shape)}.")
    if X.dtype.kind not in "biuf":
        raise DataError(f"X must hold real numbers, not {X.dtype}.")
    check_sparse(X)  # before compiled loops of SciPy use the indices
    matrix = sparse.csr_matrix(X)
    if X.format not in _CHECKED:
        check_sparse(matrix)
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()  # Sorting must not change the matrix of the caller.
        matrix.sum_duplicates()
    return matrix


_CHECKED = ("csr", "csc", "bsr", "coo")


def check_sparse(X: Any) -> None:
    """Raise an error if index arrays point outside of the matrix, since compiled loops do not check bounds."""
    shape = np.array(X.shape)
    if X.format == "coo":
        indices = [(X.row, shape[0]), (X.col, shape[1])]
        fits = all(a.shape == X.data.shape and a.dtype.kind == "i" and not _leave(a, n) for a, n in indices)
    elif X.format in _CHECKED:
        rows, width = (shape // getattr(X, "blocksize", 1)).tolist()[:: -1 if X.format == "csc" else 1]
        starts, columns = X.indptr, X.indices
        fits = starts.shape == (rows + 1,) and columns.shape == X.data.shape[:1] and starts[0] == 0
        fits = fits and starts.dtype.kind == columns.dtype.kind == "i" and not leads_outside(starts, columns, width)
    else:
        return
    if not fits:
        raise DataError(
            f"X is an invalid sparse matrix: its index arrays do not match its shape {X.shape} or point outside of it. "
            "Build it again; X.check_format() gives details."
        )


def leads_outside(starts: Array, indices: Array, width: int) -> str | None:
    """Return the CSR array ("indptr" or "indices") that points outside of `width` columns, or None."""
    begin, end = int(starts[0]), int(starts[-1])
    neighbors = zip(in_pieces(starts[:-1]), in_pieces(starts[1:]), strict=True)
    if begin < 0 or end > len(indices) or any((later < earlier).any() for earlier, later in neighbors):
        return "indptr"
    return "indices" if _leave(indices[begin:end], width) else None


def _leave(indices: Array, end: int) -> bool:
    return any(piece.min() < 0 or piece.max() >= end for piece in in_pieces(indices))


def precision(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return a valid dtype of X."""
    chosen = np.dtype(dtype)
    if chosen not in (np.float32, np.float64):
        raise DataError(f"dtype must be float32 or float64, not {chosen}.")
    return chosen


_OF_DOCUMENTS: dict[str, Callable[..., Array]] = {
    "labels": labels,
    "document_ids": partial(identifiers, name="document_ids"),
    "document_weights": partial(some_weights, name="document_weights", of="documents"),
    "positions": positions,
    "teacher": teacher,
    "source_rows": partial(positions, name="source_rows"),
}


def checked_columns(columns: Mapping[str, npt.ArrayLike | None], n: int, first_row: int = 0) -> dict[str, Array]:
    """Validate the columns with one value per document, by field; None marks an absent column.

    Messages count rows from `first_row`. All weights may be zero, since the rows may be a block of a larger table.
    """
    return {
        name: _OF_DOCUMENTS[name](column, n, first_row=first_row)
        for name, column in columns.items()
        if column is not None
    }


class Grades(NamedTuple):
    """Grades in ascending order, and the index of the grade of each document.

    Small integers are their own codes, so that `values` is 0, 1 … up to the largest label, even if some do not occur.
    Otherwise `values` are the distinct labels. NaN labels (unjudged documents) have the last code.

    >>> Grades.from_labels(np.array([0.0, 2.0, 1.0, 2.0])).codes.tolist()
    [0, 2, 1, 2]
    >>> Grades.from_labels(np.array([0.5, -1.0, 0.5])).values.tolist()
    [-1.0, 0.5]
    """

    values: FloatArray
    codes: npt.NDArray[Any]

    @property
    def some_unjudged(self) -> bool:
        """True if some documents have no judgment (label NaN or -1)."""
        return bool((np.isnan(self.values) | (self.values == -1)).any())

    @classmethod
    def from_labels(cls, labels: FloatArray) -> Grades:
        """Factorize labels: small integers in one pass, other values by sorting."""
        codes = np.empty(len(labels), dtype=np.uint8)
        largest = kernels.small_grades(labels, codes)
        if largest >= 0:
            return cls(np.arange(largest + 1, dtype=np.float64), codes)
        values, inverse = np.unique(labels, return_inverse=True)
        return cls(values, inverse.reshape(-1).astype(np.uint8 if len(values) <= 256 else np.int32))


def index_of(values: Any) -> Any:
    """Return the index of a pandas column or frame; None for other objects."""
    index = getattr(values, "index", None)
    return index if hasattr(index, "get_indexer") else None


def common_index(columns: Mapping[str, Any] | None = None, /, **arguments: Any) -> Any:
    """Return the pandas index that all columns and frames among the arguments share, or None.

    Raises:
        DataError: two of them have the same rows in different orders.
    """
    named = {**arguments, **(columns or {})}
    indexes = {name: index for name, value in named.items() if (index := index_of(value)) is not None}
    first = next(iter(indexes), None)
    if first is None:
        return None
    common, same = indexes[first], True
    for name, index in indexes.items():
        if index is common or index.equals(common):
            continue
        if len(index) == len(common) and index.is_unique and common.is_unique and index.isin(common).all():
            raise DataError(
                f"{first} and {name} have the same index in different orders. Reorder one of them: "
                f"{name} = {name}.loc[{first}.index]."
            )
        same = False  # incomparable labels: treat the rows as aligned, as for arrays
    return common if same else None
