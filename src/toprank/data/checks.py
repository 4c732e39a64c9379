"""The checks at the door: each turns one argument into a clean value or array, or says what is wrong with it."""

from __future__ import annotations

import hashlib
import math
import mmap
import os
from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.bytesource import became_shorter, check_name
from toprank.data.encoding import Encoding
from toprank.data.queries import Queries
from toprank.errors import DataError, Remedy

IN_DOUBLE = Remedy("read with {dtype}.", "bring it into a stored copy with toprank convert {dtype}.", dtype="float64")
"""What to do about a number that is too large for float32."""
IN_MEMORY = Remedy("convert with {regroup}, which holds all data in memory.", regroup=True)
"""What to do about scattered rows in a stream of blocks."""


def plainer(value: Any) -> Any:
    """NumPy's numbers as Python's, lists and arrays as tuples, which are equal and hashed by what they hold.

    >>> plainer((np.int64(3), np.bool_(False), "a")), plainer([0, np.array([1.0, 3.0])])
    ((3, False, 'a'), (0, (1.0, 3.0)))
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if type(value) in (list, tuple):
        return tuple(plainer(item) for item in value)
    return value


class PlainArguments(ABCMeta):
    """The metaclass of classes whose instances are defined by their arguments, which it makes `plainer`: instances are
    compared, hashed and read back from their repr by them. A class defined elsewhere gets its arguments unchanged: it
    may compute with an array.
    """

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        """Make a value."""
        if not cls.__module__.startswith("toprank."):
            return super().__call__(*arguments, **named)
        plain = {name: plainer(value) for name, value in named.items()}
        return super().__call__(*(plainer(value) for value in arguments), **plain)


def is_whole(value: Any, least: int, below: int | None = None) -> bool:
    """Return whether the value is a whole number in that range; True and False are not."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return bool(whole and least <= value and (below is None or value < below))


def unfit(name: str, value: Any, wanted: str) -> DataError:
    """Return the error for a value that an argument must not have; the command line names the option instead."""
    rest = f"must be {wanted}, not {value!r}."
    plain = f"{name} {rest}"
    return DataError(remedy=Remedy(plain, f"{{{name}}} {rest}", plain, **{name: ...}))


def check_whole(name: str, value: Any, least: int, below: int | None = None) -> None:
    """Refuse anything but a whole number of at least `least` (and, if given, below `below`)."""
    if not is_whole(value, least, below):
        end = "" if below is None or not is_whole(value, below) else f" and below {below}"
        raise unfit(name, value, f"a whole number of at least {least}{end}")


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> None:
    """Refuse anything but a finite number within the bounds; `above` and `below` are themselves outside."""
    plain = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if (
        plain
        and math.isfinite(value)
        and (above is None or value > above)
        and (least is None or value >= least)
        and (below is None or value < below)
        and (most is None or value <= most)
    ):
        return
    bounds = (("above", above), ("of at least", least), ("below", below), ("at most", most))
    words = " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
    wanted = {"": "finite number", "above 0": "positive number"}.get(words, f"number {words}")
    raise unfit(name, value, f"a {wanted}")


def check_flag(name: str, value: Any) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool | np.bool_):
        raise unfit(name, value, "True or False")


def checked_regroup(regroup: bool | None, *, default: bool) -> bool:
    """Return whether scattered rows of a query are to be brought together; None: the reader's own default."""
    if regroup is None:
        return default
    check_flag("regroup", regroup)
    return bool(regroup)


def check_callbacks(callbacks: Any, seen: str) -> None:
    """Refuse anything but a list of functions; `seen` is what they are called with, such as "a Round"."""
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise DataError(f"callbacks takes a list of functions, each of which is called with {seen}.")
    for callback in callbacks:
        if not callable(callback):
            raise DataError(f"{callback!r} is no callback: it cannot be called with {seen}.")


def check_data(caller: str, data: Any) -> None:
    """Refuse anything but a `RankingData`, and say how to make one; `caller` is the function that needs it.

    >>> check_data("split", "train.txt")
    Traceback (most recent call last):
    toprank.errors.DataError: split needs a RankingData, not a str. Read the file first: tr.read('train.txt').
    """
    from toprank.data.dataset import RankingData  # which these checks are the door of

    if isinstance(data, RankingData):
        check_files(data)
        return
    if isinstance(data, str | os.PathLike):
        remedy = f"Read the file first: tr.read({str(data)!r})."
    elif hasattr(data, "columns"):
        remedy = "Make one of the frame first: tr.RankingData.from_frame(frame)."
    else:
        remedy = "Make one first: tr.RankingData(X, y, qid=qid)."
    raise DataError(f"{caller} needs a RankingData, not a {type(data).__name__}. {remedy}")


def listed_paths(paths: Any) -> list[Path]:
    """Return one path or several as a list; refuse an empty one, and a file that is named twice."""
    several = [paths] if isinstance(paths, str | os.PathLike) or not isinstance(paths, Iterable) else list(paths)
    if not all(isinstance(path, str | os.PathLike) for path in several):
        raise DataError(f"Files are named by a path, such as 'train.txt', or a list of paths, not by {paths!r}.")
    if not several:
        raise DataError("There is no file to read: the list of paths is empty.")
    listed = [Path(path) for path in several]
    seen: set[str] = set()
    for path in listed:
        check_name(path)
        real = os.path.realpath(path)
        if real in seen:
            raise DataError(f"The file {path} is given twice; name each file once.")
        seen.add(real)
    return listed


Array = npt.NDArray[Any]


def features(X: Any) -> tuple[Any, Sequence[str] | None, Encoding | None]:
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
    """Any SciPy sparse matrix as `csr_matrix` in float32 or float64, columns sorted and without duplicates."""
    from scipy import sparse

    if len(X.shape) != 2:
        raise DataError(f"X must have two dimensions (documents × features), not {len(X.shape)}.")
    if X.dtype.kind not in "biuf":
        raise DataError(f"X must hold real numbers, not {X.dtype}.")
    check_sparse(X)  # before SciPy's compiled loops follow the indices
    matrix = sparse.csr_matrix(X)
    if X.format not in _CHECKED:
        check_sparse(matrix)
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()  # the caller's matrix is not ours to sort
        matrix.sum_duplicates()
    return matrix


_CHECKED = ("csr", "csc", "bsr", "coo")


def check_sparse(X: Any) -> None:
    """Refuse a matrix whose index arrays lead outside of it: compiled loops follow them unchecked."""
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
            f"X is a damaged sparse matrix: its index arrays do not fit its shape {X.shape}, or lead outside of it. "
            "Make it again from its entries; X.check_format() says more."
        )


def leads_outside(starts: Array, indices: Array, width: int) -> str | None:
    """Return the array of compressed rows that leads outside of `width` columns ("indptr" or "indices"), or None."""
    begin, end = int(starts[0]), int(starts[-1])
    neighbours = zip(in_pieces(starts[:-1]), in_pieces(starts[1:]), strict=True)
    if begin < 0 or end > len(indices) or any((later < earlier).any() for earlier, later in neighbours):
        return "indptr"
    return "indices" if _leave(indices[begin:end], width) else None


def _leave(indices: Array, end: int) -> bool:
    return any(piece.min() < 0 or piece.max() >= end for piece in in_pieces(indices))


def numbers(values: Any, name: str) -> Array:
    """`values` as an array of real numbers, whatever its shape."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c":  # NumPy would drop the imaginary part with no more than a warning
            raise DataError(f"{name} must hold real numbers, not {array.dtype}.")
        return array if array.dtype.kind in "biuf" else array.astype(np.float64)
    except (TypeError, ValueError) as problem:
        raise DataError(f"{name} must hold numbers: {problem}. Encode text and categories as numbers first.") from None


def labels(y: npt.ArrayLike, n: int, first_row: int = 0) -> FloatArray:
    """One finite label for each of `n` documents, or NaN for "not judged"; messages count rows from `first_row`."""
    array = numbers(y, "labels").astype(np.float64, copy=False)
    check_length(array, n, "labels", "documents")
    infinite = np.isinf(array)
    if infinite.any():
        row = int(np.argmax(infinite))
        where = f"The label of row {first_row + row} is {array[row]}"
        raise DataError(f"{where}; labels must be finite, or NaN for 'not judged'.")
    return array


def check_length(array: Array, n: int, name: str, of: str) -> None:
    """Refuse an array that is not a list of `n` entries."""
    if array.ndim != 1:
        raise DataError(f"{name} must have one dimension, not {array.ndim}.")
    if len(array) != n:
        raise DataError(f"There are {len(array)} {name} for {n} {of}; there must be one for each.")


def index_of(values: Any) -> Any:
    """The index of a pandas column or frame; None for anything else."""
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
                f"{first} and {name} have the same index in different orders, and are taken row by row; bring them "
                f"into one order first: {name} = {name}.loc[{first}.index]."
            )
        same = False  # other labels: row by row, as arrays
    return common if same else None


def identifiers(ids: npt.ArrayLike, n: int, name: str, first_row: int = 0) -> Array:
    """Ids as whole numbers (query ids only) or as strings; messages count rows from `first_row`."""
    try:
        array = _id_array(ids)
    except ValueError as problem:
        raise DataError(f"{name} must be a plain list of ids: {problem}.") from None
    check_length(array, n, name, "documents" if name != "qids" else "queries")
    if array.dtype.kind == "O":
        array = _plain_objects(array, name, first_row)
    if array.dtype.kind == "f":
        array = _whole_floats(array, name, first_row)
    fits = array.dtype.kind in "iu" and (array.dtype != np.uint64 or not len(array) or array.max() < 2**63)
    if fits and name != "document_ids":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8", "backslashreplace")  # different bytes stay different ids
    if array.dtype.kind != "U":
        return array.astype(str)
    check_surrogates(array, name, first_row)
    return array


def _id_array(ids: npt.ArrayLike) -> Array:
    """Return ids as an array: of objects if NumPy would make floats of whole numbers, or cut strings short."""
    array = np.asarray(ids)
    if array.ndim != 1 or array.dtype.kind not in "fUT" or (isinstance(ids, np.ndarray) and array.dtype.kind != "T"):
        return array
    objects = array.astype(object) if array.dtype.kind == "T" else np.array(ids, dtype=object)
    kept = array.dtype.kind == "f" and not all(isinstance(value, int | np.integer) for value in objects.tolist())
    return array if kept else objects


def _whole_floats(array: Array, name: str, first_row: int) -> npt.NDArray[np.int64]:
    """Return floats that are whole numbers as integers; refuse those so large that the float is not exact any more."""
    exact = 2.0 ** (np.finfo(array.dtype).nmant + 1)
    whole = np.isfinite(array) & (np.trunc(array) == array)
    wrong = ~whole | (np.abs(array) >= exact)
    if wrong.any():
        row = int(np.argmax(wrong))
        example = f"row {first_row + row} has {array[row]}"
        if not whole[row]:
            raise DataError(f"{name} must be whole numbers or strings; {example}.")
        raise DataError(
            f"{name} are {array.dtype}, which tells whole numbers apart below {exact:.0f} only; {example}. Give them "
            "as integers or as text."
        )
    return array.astype(np.int64)


def _plain_objects(array: Array, name: str, first_row: int) -> Array:
    """Return Python objects as whole numbers if all are, else as strings; refuse missing ones."""
    values = array.tolist()
    for row, value in enumerate(values):
        if is_missing(value):
            raise DataError(f"{name} has no value in row {first_row + row}; every row needs one.")
    whole = all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in values)
    if whole and all(-(2**63) <= value < 2**63 for value in values):
        return np.array([int(value) for value in values], dtype=np.int64)
    return strings([value if isinstance(value, str) else str(value) for value in values], name, first_row)


def is_missing(value: Any) -> bool:
    """Whether a value is None, or a NaN / NaT / NA: the only values that do not plainly equal themselves."""
    same = None if value is None else value == value
    return not isinstance(same, bool | np.bool_) or not same


def strings(values: Sequence[str], name: str, first_row: int = 0) -> Array:
    """Return text as an array of strings; refuse a text that NumPy would cut short."""
    for row, value in enumerate(values):
        if value.endswith("\0"):
            raise DataError(
                f"{name} has {value!r} in row {first_row + row}; ids may not end in a zero byte. Remove it there."
            )
    return np.array(values, dtype=str)


def check_surrogates(words: Array, name: str, first_row: int = 0) -> None:
    """Refuse strings with half a surrogate pair: they can be neither written nor hashed."""
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
    """Refuse text with half a surrogate pair, which no file can hold; `kind` is what the word is."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise DataError(f"The {kind} {word!r} cannot be written as UTF-8; choose another.") from None


def weights(values: npt.ArrayLike | None, n: int, name: str, of: str) -> FloatArray | None:
    """Finite weights, none negative and not all zero; None stays None."""
    if values is None:
        return None
    array = some_weights(values, n, name, of)
    check_any_weight(array, name)
    return array


def check_any_weight(weights: Array, name: str) -> None:
    """Refuse weights that are all zero."""
    if not weights.any():
        raise DataError(f"{name} are all zero; nothing would count.")


def some_weights(values: npt.ArrayLike, n: int, name: str, of: str, first_row: int = 0) -> FloatArray:
    """Finite weights, none negative; of a part of the data all may be zero. Messages count rows from `first_row`."""
    array = numbers(values, name).astype(np.float64, copy=False)
    check_length(array, n, name, of)
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        place = first_row + int(np.argmax(wrong))
        raise DataError(f"{name} must be finite and not negative; number {place} is {array[wrong][0]}.")
    return array


def weight_of_each_query(per_row: Array, queries: Queries, qids: Array) -> Array:
    """The weight of each query from a column of them, which must hold one value in all rows of a query."""
    smallest, largest = queries.min(per_row), queries.max(per_row)
    if not np.array_equal(smallest, largest):
        raise several_weights(qids[np.argmax(smallest != largest)])
    return smallest


def several_weights(qid: Any) -> DataError:
    """The error for a query whose rows do not agree on its weight."""
    return DataError(f"Query {qid} has several query weights; all its rows must have the same.")


def positions(values: npt.ArrayLike, n: int, name: str = "positions", first_row: int = 0) -> npt.NDArray[np.int64]:
    """Whole numbers, one for each document; messages count rows from `first_row`."""
    array = numbers(values, name)
    check_length(array, n, name, "documents")
    if array.dtype.kind not in "iu":
        raise DataError(f"{name} must be whole numbers, not {array.dtype}.")
    if array.dtype == np.uint64 and len(array) and array.max() >= 2**63:
        row = int(np.argmax(array >= 2**63))
        raise DataError(f"{name} must be below 2^63; row {first_row + row} has {array[row]}.")
    return array.astype(np.int64, copy=False)


def teacher(values: npt.ArrayLike, n: int, first_row: int = 0) -> FloatArray:
    """Finite scores, one for each document; messages count rows from `first_row`."""
    array = numbers(values, "teacher").astype(np.float64, copy=False)
    check_length(array, n, "scores of the teacher", "documents")
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array)))
        raise DataError(
            f"A teacher's scores must be finite; row {first_row + row} has {array[row]}. Leave out documents that the "
            "teacher did not score."
        )
    return array


_OF_DOCUMENTS: dict[str, Callable[..., Array]] = {
    "labels": labels,
    "document_ids": partial(identifiers, name="document_ids"),
    "document_weights": partial(some_weights, name="document_weights", of="documents"),
    "positions": positions,
    "teacher": teacher,
    "source_rows": partial(positions, name="source_rows"),
}


def documents(columns: Mapping[str, npt.ArrayLike | None], n: int, first_row: int = 0) -> dict[str, Array]:
    """The columns with one value for each document, by the name of their field; None: there is no such column.

    Messages count rows from `first_row`. The rows may be part of more, so that all of their weights may be zero.
    """
    return {
        name: _OF_DOCUMENTS[name](column, n, first_row=first_row)
        for name, column in columns.items()
        if column is not None
    }


def names(feature_names: Sequence[str] | None, width: int) -> tuple[str, ...] | None:
    """Feature names, all different, one for each of `width` columns; None where there is nothing to name."""
    if feature_names is None or (width == 0 and len(feature_names) == 0):
        return None
    feature_names = tuple(str(name) for name in feature_names)
    if len(feature_names) != width:
        raise DataError(
            f"There are {len(feature_names)} feature names for {width} features; there must be one for each."
        )
    for name in feature_names:
        check_utf8(name, "feature name")
    return tuple(refuse_repeated(feature_names, "features"))


def refuse_repeated(names: Sequence[str], kind: str = "columns") -> Sequence[str]:
    """Return names, which must differ; `kind` is what they are the names of."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"Two {kind} are called '{twice}'; rename one of them.")
    return names


def first_repeat(ids: Array) -> int | None:
    """Index of the first id that appeared before, or None."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    repeats = first[inverse.reshape(-1)] != np.arange(len(ids))
    return int(np.argmax(repeats)) if repeats.any() else None


def joined_queries(ids: Array) -> tuple[Array, int | None]:
    """Return where queries begin in a sequence of ids, and the first place where an earlier one begins again, or None.

    The rule for rows that come one behind the other, in one file or in several that are read as one: neighbours with
    the same id are one query, also where a file ends between them. A query that comes back later is refused, unless its
    rows are to be brought together (`regrouped`). Only data sets that are whole by themselves (`concatenate`) may not
    share a query at all.

    >>> joined_queries(np.array([7, 7, 8])), joined_queries(np.array([7, 8, 7]))
    ((array([0, 2]), None), (array([0, 1, 2]), 2))
    """
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    repeated = first_repeat(ids[starts])
    return starts, None if repeated is None else int(starts[repeated])


def grouping(
    qid: npt.ArrayLike | None, queries: Queries | None, qids: npt.ArrayLike | None, n: int, regroup: bool
) -> tuple[Array | None, Queries, Array]:
    """How to reorder the rows (None: as they are), the queries, and one id for each query."""
    if queries is not None:
        if qid is not None:
            raise DataError("Give qid or queries, not both.")
        if queries.n_documents != n:
            raise DataError(f"The queries hold {queries.n_documents} documents, X has {n} rows.")
        ids = np.arange(len(queries)) if qids is None else identifiers(qids, len(queries), "qids")
        repeated = first_repeat(ids)
        if repeated is not None:
            raise DataError(f"Two queries have the id {ids[repeated]}; ids must differ.")
        return None, queries, ids
    if qids is not None:
        raise DataError("qids (one id for each query) goes with queries=; give qid= with one id for each document.")
    if qid is None:
        return None, Queries([0, n]), np.zeros(1, dtype=np.int64)
    row_ids = identifiers(qid, n, "qid")
    starts, row = joined_queries(row_ids)
    if row is None:
        return None, Queries(np.append(starts, n)), row_ids[starts]
    if not regroup:
        raise DataError(
            f"The rows of query {row_ids[row]} are not neighbours: it starts again at row {row} (counted from 0). "
            "Sort the rows by query, or ask for",
            remedy=Remedy("{regroup}.", regroup=True),
        )
    return regrouped(row_ids)


def regrouped(row_ids: Array) -> tuple[Array, Queries, Array]:
    """The stable order that brings the rows of each query together, queries by first appearance."""
    query_of_row, ids = by_appearance(row_ids)
    return np.argsort(query_of_row, kind="stable"), Queries.from_sizes(np.bincount(query_of_row)), ids


def by_appearance(values: Array) -> tuple[IntArray, Array]:
    """Return the number of each value among the distinct ones, counted by first appearance, and the distinct ones."""
    different, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[inverse.reshape(-1)], different[order]


def precision(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """A type that X may have."""
    chosen = np.dtype(dtype)
    if chosen not in (np.float32, np.float64):
        raise DataError(f"dtype must be float32 or float64, not {chosen}.")
    return chosen


def same(a: Array, b: Array) -> bool:
    """Whether two arrays hold the same values: NaN equals NaN, floats also have the same precision."""
    if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
        return False
    if a.dtype.kind == "f":
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "M"))


class Digest:
    """The hash of an array that comes in blocks of rows: BLAKE2b over its type, its whole shape and its values.

    The type of strings is as wide as the longest one there is (at least 1).
    """

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._dtype = np.dtype("<i8") if dtype.kind in "iu" else dtype.newbyteorder("<")
        self._hash = hashlib.blake2b(f"{self._dtype.str} {shape};".encode(), digest_size=16)

    def update(self, block: Array) -> None:
        """Go on with the next rows."""
        for rows in in_pieces(block):
            plain = np.ascontiguousarray(rows, dtype=self._dtype)
            if plain.size:
                self._hash.update(plain.reshape(-1).view(np.uint8).data)

    def hexdigest(self) -> str:
        """The hash of what came so far."""
        return self._hash.hexdigest()


def digest(array: Array) -> str:
    """A BLAKE2b hash of an array's shape and values, whatever its memory layout, string width or integer size.

    >>> digest(np.array(["a", "b"])) == digest(np.array(["a", "b", "long"])[:2])
    True
    """
    dtype = np.dtype(f"<U{longest_text(array)}") if array.dtype.kind == "U" else array.dtype
    result = Digest(dtype, array.shape)
    result.update(array)
    return result.hexdigest()


def longest_text(array: Array) -> int:
    """The length of the longest string, at least 1."""
    return max([1, *(int(np.char.str_len(piece).max(initial=1)) for piece in in_pieces(array))])


_PIECE = 1 << 26  # bytes: with a mask and a copy or two of a piece, still small beside data that need pieces


Matrix = TypeVar("Matrix")


def unshortened(X: Matrix) -> Matrix:
    """Return the array or sparse matrix; FileError if it is mapped and another program has cut off its file.

    Reading mapped bytes that are gone ends the process. So this is checked before each pass, and before each block of
    long passes; a file that is cut off between the check and the loop behind it still ends the process.
    """
    array = getattr(X, "data", X) if hasattr(X, "tocsr") else X
    path: Any = "A stored copy"
    while isinstance(array, np.ndarray):
        path, array = getattr(array, "filename", None) or path, array.base
    if isinstance(array, mmap.mmap) and array.size() < len(array):
        raise became_shorter(path)
    return X


_MAPPED = (
    "X",
    "labels",
    "qids",
    "document_ids",
    "document_weights",
    "query_weights",
    "positions",
    "teacher",
    "source_rows",
)


def check_files(data: Any) -> None:
    """Refuse data whose files another program has cut off; see `unshortened`."""
    for name in _MAPPED:
        unshortened(getattr(data, name))
    unshortened(data.queries.offsets)


def in_pieces(array: Array) -> Iterator[Array]:
    """Yield the rows of an array in pieces small enough for temporary copies."""
    unshortened(array)
    rows = max(1, _PIECE // max(1, array[:1].nbytes))
    return (array[first : first + rows] for first in range(0, len(array), rows))


def refuse_infinite(infinite: npt.NDArray[Any], names: Any) -> None:
    """Refuse features, by the name of the first column where `infinite` is true."""
    if infinite.any():
        column = int(np.flatnonzero(infinite)[0])
        feature = f"'{names[column]}'" if names is not None else f"number {column} (from 0)"
        raise DataError(f"Feature {feature} holds infinite values; replace them, or make them NaN (missing).")


def check_finite(X: Any, names: Any) -> None:
    """Refuse features with infinite values, by the name of their first column."""
    if not isinstance(X, np.ndarray):
        infinite = np.isinf(unshortened(X).data)
        if infinite.any():
            refuse_infinite(np.bincount(X.indices[infinite], minlength=X.shape[1]) > 0, names)
        return
    for piece in in_pieces(X):
        infinite = np.isinf(piece)
        if infinite.any():
            refuse_infinite(np.logical_or.reduce(infinite, axis=0), names)
