"""Row order: all values per document, stored, accepted or returned, are in the order of the rows of `data.X`.

If grouping reordered the rows, the order of a plain array of scores is ambiguous. It is accepted only if
`predict(data)` returned it, if it is a pandas column with the index of the original frame, or with `order="data"` or
`order="source"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from toprank.compute import IntArray
from toprank.data.annotated_array import AnnotatedArray
from toprank.data.arrays import index_of
from toprank.errors import DataError, UnknownNameError

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData


Order = Literal["data", "source"]
"""Order of plain values: the rows of `data.X`, or the rows of the original file, frame or array."""


class DocumentValues(AnnotatedArray):
    """Array with one value for each document, marked with the data whose row order it has."""

    documents: object = None
    """The `RankingData.row_order_token` of the data."""

    @classmethod
    def from_values(cls, values: npt.NDArray[Any], documents: object) -> DocumentValues:
        """Return a marked copy of the values."""
        marked = cls(values.shape, values.dtype)
        marked[...] = values
        marked.documents = documents
        return marked

    @staticmethod
    def belong_to(values: Any, documents: object) -> bool:
        """Return whether an array, or the array that it is a view of, is marked with these documents."""
        marked = values if isinstance(values, DocumentValues) else getattr(values, "base", None)
        return isinstance(marked, DocumentValues) and marked.documents is documents


def places_of(data: RankingData, values: Any, order: Order | None) -> IntArray | None:
    """Return the index into `values` for each document; None if the values are in the order of the documents.

    Raises:
        DataError: the order of the values is ambiguous, or their index does not match the data.
    """
    _check_order(order)
    if order == "data" or (data.was_regrouped and DocumentValues.belong_to(values, data.row_order_token)):
        return None
    if order == "source":
        return data.source_places if data.was_regrouped else None
    index = index_of(values)
    if index is not None and data.source_index is not None:
        return _by_index(data, index)
    if data.was_regrouped:
        raise DataError(
            "Grouping by query reordered the rows, so the order of these values is ambiguous. Pass order='data' if "
            "they are in the order of data.X (such as the output of another library for data.X), or order='source' if "
            "they are in the order of the original rows (such as a column of your own table). The output of "
            "predict(data) and a pandas column with the index of the original frame need neither."
        )
    _refuse_renumbered(index)
    return None


def order_beside_labels(data: RankingData, values: Any, order: Order | None) -> Order | None:
    """Return the order of values given together with plain labels: the source order, unless an index decides."""
    _check_order(order)
    index = index_of(values)
    if order is None and index is not None:
        if data.source_index is not None:
            return None
        _refuse_renumbered(index)
    return "source"


def _check_order(order: Any) -> None:
    if order not in (None, "data", "source"):
        raise UnknownNameError("order of rows", str(order), ("data", "source"))


def _refuse_renumbered(index: Any) -> None:
    if index is not None and _renumbers(index):
        raise DataError(
            "The index of these values numbers the rows in a different order, but the data have no pandas index to "
            "align with. Sort the values (.sort_index()), or pass order='data' to ignore the index."
        )


def _by_index(data: RankingData, index: Any) -> IntArray | None:
    known = data.source_index
    if (index.is_unique or not data.was_regrouped) and index.equals(known):
        return None
    otherwise = (
        "Give a column of the original frame, or an array with order='data' (the order of data.X) or order='source' "
        "(the order of the original rows)."
    )
    if not index.is_unique:
        label = index[index.duplicated()][0]
        raise DataError(f"The index of these values has {label!r} twice, so they cannot be aligned. {otherwise}")
    try:
        places = np.asarray(index.get_indexer(known), dtype=np.int64)
    except (TypeError, ValueError):  # The indexes have different depths.
        places = np.full(1, -1)
    if not known.is_unique or (places < 0).any():
        missing = known.tolist()[int(np.argmin(places))]  # a plain value of Python, whose repr names no type of NumPy
        strange = "" if known.is_unique is False else f" (for example, {missing!r} is missing)"
        raise DataError(f"The index of these values differs from the original frame{strange}. {otherwise}")
    return places


def _renumbers(index: Any) -> bool:
    """Return whether an index is a permutation of 0 … n - 1, as after sorting or shuffling a column."""
    numbers = np.asarray(index)
    if numbers.dtype.kind not in "iu" or not (np.diff(numbers) < 0).any():
        return False
    return bool(np.array_equal(np.sort(numbers), np.arange(len(numbers))))
