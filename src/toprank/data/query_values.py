"""`QueryValues`: one number for each query with the query ids, so that several systems can be paired by query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.annotated_array import AnnotatedArray
from toprank.errors import DataError

_NAMED = 5  # query ids listed in a message

Column = TypeVar("Column", bound=npt.ArrayLike)


class QueryValues(AnnotatedArray):
    """Array with one number per query and the query ids, so that evaluations are paired by id instead of position.

    Arrays computed or sliced from it have no ids.
    """

    qids: npt.NDArray[Any] | None = None

    @classmethod
    def from_values(cls, values: npt.ArrayLike, qids: npt.ArrayLike) -> QueryValues:
        """Attach query ids to values."""
        result = np.asarray(values, dtype=np.float64).view(cls)
        result.qids = np.asarray(qids)
        return result

    def __reduce__(self) -> Any:
        return super().__reduce__() if self.qids is None else (QueryValues.from_values, (np.asarray(self), self.qids))


def by_query(columns: Mapping[str, Column]) -> dict[str, Column | FloatArray]:
    """Reorder columns to the query order of the first one; columns without ids stay unchanged.

    Raises:
        DataError: the columns have different queries.
    """
    ordered: dict[str, Column | FloatArray] = dict(columns)
    known = {name: qids for name, values in columns.items() if (qids := getattr(values, "qids", None)) is not None}
    first = next(iter(known), "")
    for name, qids in known.items():
        if qids is known[first]:  # evaluated on the same data
            continue
        order, ids = _text(known[first]), _text(qids)
        if not np.array_equal(ids, order):
            ordered[name] = np.asarray(columns[name], dtype=np.float64)[_places(first, order, name, ids)]
    return ordered


def _text(qids: npt.NDArray[Any]) -> npt.NDArray[np.str_]:
    return np.array([str(qid) for qid in qids.tolist()], dtype=str)


def _places(first: str, order: npt.NDArray[np.str_], name: str, ids: npt.NDArray[np.str_]) -> npt.NDArray[np.intp]:
    """Return the positions of the queries of the first column in another one."""
    mine, theirs = np.setdiff1d(order, ids), np.setdiff1d(ids, order)
    if len(mine) or len(theirs):
        lacks = [f"{of} lacks {listed(missing)}" for of, missing in ((name, mine), (first, theirs)) if len(missing)]
        raise DataError(
            f"{first} and {name} have different queries: {'; '.join(lacks)}. Comparisons are paired by query; evaluate "
            "both on the same queries. For runs, evaluate_run(..., complete=True) counts an unanswered query as 0."
        )
    if len(np.unique(order)) < len(order) or len(ids) != len(order):
        raise DataError(
            f"{first} or {name} has a query id twice, so their queries cannot be paired; make the ids unique."
        )
    sorter = np.argsort(ids)
    return sorter[np.searchsorted(ids, order, sorter=sorter)]


def listed(qids: npt.NDArray[np.str_] | Sequence[str]) -> str:
    """Describe queries by their number and the first ids.

    >>> listed(np.array(["q1"])), listed("abcdef")
    ('query q1', '6 queries (a, b, c, d, e …)')
    """
    words = ", ".join(map(str, qids[:_NAMED])) + (" …" if len(qids) > _NAMED else "")
    return f"query {words}" if len(qids) == 1 else f"{len(qids):,} queries ({words})"
