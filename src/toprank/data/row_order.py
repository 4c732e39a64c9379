"""The one rule of row order: everything per document that data hold, give or take is in the order of `data.X`.

Where grouping moved rows, a plain array of scores could be meant in two orders, so it is taken only if something tells
which: that `predict(data)` returned this very array, that it is a pandas column with the index of the frame the data
came from, or the caller's word, `order="data"` or `order="source"`.
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
"""How plain values lie: as the rows of `data.X`, or as the rows of the file, frame or array that the data came from."""


class DocumentValues(AnnotatedArray):
    """One value for each document of some data, in the order of their X: a plain array cannot say that."""

    documents: object = None
    """`RankingData.row_order_token` of the data."""

    @classmethod
    def from_values(cls, values: npt.NDArray[Any], documents: object) -> DocumentValues:
        """Return a copy of the values, marked."""
        marked = cls(values.shape, values.dtype)
        marked[...] = values
        marked.documents = documents
        return marked

    @staticmethod
    def belong_to(values: Any, documents: object) -> bool:
        """Return whether an array is marked with these documents, by itself or as the plain form of a marked one."""
        marked = values if isinstance(values, DocumentValues) else getattr(values, "base", None)
        return isinstance(marked, DocumentValues) and marked.documents is documents


def places_of(data: RankingData, values: Any, order: Order | None) -> IntArray | None:
    """Return where the value of each document stands among `values`; None if they are in the documents' order already.

    Raises:
        DataError: nothing tells the order of the values, or their index does not fit the data.
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
            "Grouping the rows by query moved them, and nothing tells whether these values are in the order of data.X "
            "or in that of the rows as they were given. Say so: order='data' (such as what another library makes of "
            "data.X) or order='source' (such as a column of your own table). What predict(data) returned, and a pandas "
            "column with the index of the frame that the data came from, need no word."
        )
    _refuse_renumbered(index)
    return None


def order_beside_labels(data: RankingData, values: Any, order: Order | None) -> Order | None:
    """Return the order of values beside the plain labels that `data` came from: row by row, unless indexes tell."""
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
            "The index of these values numbers the rows in another order than that in which they stand, and what they "
            "are for came without a pandas index that could settle it. Sort the values (.sort_index()), or say "
            "order='data' to take them as they stand."
        )


def _by_index(data: RankingData, index: Any) -> IntArray | None:
    known = data.source_index
    if (index.is_unique or not data.was_regrouped) and index.equals(known):
        return None
    otherwise = (
        "Give the column of that frame itself, or an array with order='data' (the order of data.X) or order='source' "
        "(that of the rows as they were given)."
    )
    if not index.is_unique:
        label = index[index.duplicated()][0]
        raise DataError(f"The index of these values has {label!r} twice, so it does not tell their rows. {otherwise}")
    try:
        places = np.asarray(index.get_indexer(known), dtype=np.int64)
    except (TypeError, ValueError):  # indexes of different depth
        places = np.full(1, -1)
    if not known.is_unique or (places < 0).any():
        strange = "" if known.is_unique is False else f" (it lacks {known[int(np.argmin(places))]!r}, for example)"
        raise DataError(
            f"The index of these values is not that of the frame that the data came from{strange}. {otherwise}"
        )
    return places


def _renumbers(index: Any) -> bool:
    """Return whether an index is 0 … n - 1 in another order: its column was sorted or shuffled."""
    numbers = np.asarray(index)
    if numbers.dtype.kind not in "iu" or not (np.diff(numbers) < 0).any():
        return False
    return bool(np.array_equal(np.sort(numbers), np.arange(len(numbers))))
