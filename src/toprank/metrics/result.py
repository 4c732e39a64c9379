"""What an evaluation found: one number per query and metric, their means, and the convention they obey."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.slices import By, Sliceable, Slices, slices_of_values
from toprank.errors import DataError, ToprankError, UnknownNameError
from toprank.metrics.conventions import Convention
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse
from toprank.showing.pictures import Picture, histogram
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of

if TYPE_CHECKING:
    from toprank.metrics.slices import SlicedEvaluation

__all__ = ["ByMetric", "Evaluation", "QueryValues", "by_query", "listed"]

_NAMED = 5  # ids of queries that a message lists

Column = TypeVar("Column", bound=npt.ArrayLike)


# Not of the alias NDArray: NumPy 2.5 lets nobody inherit from it.
class QueryValues(np.ndarray[Any, np.dtype[np.float64]]):
    """One number per query that knows its queries: two evaluations meet query by query, not place by place.

    Whatever is computed from it, or taken out of it, is about other queries or none, and has no ids.
    """

    qids: npt.NDArray[Any] | None = None

    @classmethod
    def of(cls, values: npt.ArrayLike, qids: npt.ArrayLike) -> QueryValues:
        """The values of these queries."""
        found = np.asarray(values, dtype=np.float64).view(cls)
        found.qids = np.asarray(qids)
        return found

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if np.ndim(array) == 0 else np.asarray(array)

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__() if self.qids is None else (QueryValues.of, (np.asarray(self), self.qids))

    def __repr__(self) -> str:
        return repr(np.asarray(self))


def by_query(columns: Mapping[str, Column]) -> dict[str, Column | FloatArray]:
    """The columns with their queries in the order of the first one's; a column without ids stays as it is.

    Raises:
        DataError: where they are not about the same queries.
    """
    found: dict[str, Column | FloatArray] = dict(columns)
    known = {name: qids for name, values in columns.items() if (qids := getattr(values, "qids", None)) is not None}
    first = next(iter(known), "")
    for name, qids in known.items():
        if qids is known[first]:  # evaluated on the same data
            continue
        order, ids = _text(known[first]), _text(qids)
        if not np.array_equal(ids, order):
            found[name] = np.asarray(columns[name], dtype=np.float64)[_places(first, order, name, ids)]
    return found


def _text(qids: npt.NDArray[Any]) -> npt.NDArray[np.str_]:
    return np.array([str(qid) for qid in qids.tolist()], dtype=str)


def _places(first: str, order: npt.NDArray[np.str_], name: str, ids: npt.NDArray[np.str_]) -> npt.NDArray[np.intp]:
    """Where the queries of the first column stand in another one."""
    mine, theirs = np.setdiff1d(order, ids), np.setdiff1d(ids, order)
    if len(mine) or len(theirs):
        lacks = [f"{of} lacks {listed(missing)}" for of, missing in ((name, mine), (first, theirs)) if len(missing)]
        raise DataError(
            f"{first} and {name} are not about the same queries: {'; '.join(lacks)}. A comparison is made query by "
            "query: evaluate both on the same ones. For runs, evaluate_run(..., complete=True) counts 0 where a run "
            "does not answer a query."
        )
    if len(np.unique(order)) < len(order) or len(ids) != len(order):
        raise DataError(f"{first} or {name} has a query id twice, so their queries cannot be paired.")
    sorter = np.argsort(ids)
    return sorter[np.searchsorted(ids, order, sorter=sorter)]


def listed(qids: npt.NDArray[np.str_]) -> str:
    """How many queries, and the ids of the first.

    >>> listed(np.array(["q1"])), listed(np.array(list("abcdef")))
    ('query q1', '6 queries (a, b, c, d, e …)')
    """
    words = ", ".join(qids[:_NAMED].tolist()) + (" …" if len(qids) > _NAMED else "")
    return f"query {words}" if len(qids) == 1 else f"{len(qids):,} queries ({words})"


class ByMetric(Mapping[str, Any]):
    """Values by metric; any spelling of the metric finds its value."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        try:
            wanted = parse(name)
        except ToprankError:
            raise KeyError(name) from None
        for label, value in self._values.items():
            try:
                found = parse(label) == wanted
            except ToprankError:  # a custom measure has a name that only its owner understands
                found = False
            if found:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


@dataclass(frozen=True, repr=False)
class Evaluation(Shown):
    """What `evaluate` found. ``.mean[name]``, ``.per_query[name]``; `str()` is a table that names its convention."""

    measures: Mapping[str, Measure]
    per_query: Mapping[str, FloatArray]
    """One number per query, in the order of `qids`, which each column knows; NaN where it is left out of the mean."""
    convention: Convention
    max_grade: float
    qids: npt.NDArray[Any]
    n_documents: int
    query_weights: FloatArray | None = None
    about: Sliceable | None = None
    """What is known of the queries beside their values, for `by`; None where the data are not known."""

    def __post_init__(self) -> None:
        named = {name: QueryValues.of(values, self.qids) for name, values in self.per_query.items()}
        object.__setattr__(self, "per_query", ByMetric(named))

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics, as they were asked for."""
        return tuple(self.measures)

    @property
    def mean(self) -> Mapping[str, float]:
        """Mean over the queries that count; NaN where none does."""
        return ByMetric({name: self._mean(values) for name, values in self.per_query.items()})

    @property
    def counted(self) -> Mapping[str, int]:
        """How many queries the mean of each metric is taken over."""
        return ByMetric({name: int((~np.isnan(values)).sum()) for name, values in self.per_query.items()})

    def by(self, by: By) -> SlicedEvaluation:
        """The same numbers in slices of the queries.

        Args:
            by: a column that the data carry along (``"device"``); ``"head:COLUMN"`` for head and tail queries by a
                column of numbers, by ``"head:documents"`` or by ``"head:weight"``; or one value for each query, in
                their order or as ``{query id: value}``.

        >>> import toprank as tr
        >>> data = tr.synthetic(n_queries=40, n_documents=(5, 20), seed=0)
        >>> tr.evaluate(data.X[:, 0], data, "ndcg@10").by("head:documents").slices.sizes
        {'head': 16, 'tail': 24}
        """
        from toprank.metrics.slices import SlicedEvaluation

        return SlicedEvaluation(self, self.slices(by))

    def slices(self, by: By) -> Slices:
        """The slices that `by` divides the queries into."""
        if isinstance(by, Mapping):
            known = {str(qid): value for qid, value in by.items()}
            absent = np.array([qid for qid in map(str, self.qids.tolist()) if qid not in known], dtype=str)
            if len(absent):
                raise DataError(f"There is no value to slice by for {listed(absent)}; give one for each query.")
            by = [known[str(qid)] for qid in self.qids.tolist()]
        if self.about is None:  # a run, whose data nobody gave
            return slices_of_values(by, len(self.qids))
        return self.about.slices(by)

    def _mean(self, values: FloatArray) -> float:
        counts = ~np.isnan(values)
        if not counts.any():
            return float("nan")
        if self.query_weights is None:
            return float(values[counts].mean())
        weights = self.query_weights[counts]
        return float((values[counts] * weights).sum() / weights.sum()) if weights.any() else float("nan")

    def to_dict(self, per_query: bool = False) -> dict[str, Any]:
        """Plain values for JSON."""
        result: dict[str, Any] = {
            "mean": {name: _json(value) for name, value in self.mean.items()},
            "convention": self.convention.name,
            "queries": len(self.qids),
            "documents": self.n_documents,
            "counted": dict(self.counted),
            "max_grade": self.max_grade,
        }
        if per_query:
            qids = [str(qid) for qid in self.qids.tolist()]
            result["per_query"] = {
                name: {qid: _json(value) for qid, value in zip(qids, values.tolist(), strict=True)}
                for name, values in self.per_query.items()
            }
        return result

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each query: its id, and a column for each metric; a frame of pandas or polars, or Arrow's."""
        return frame_of({"qid": self.qids.tolist(), **{name: of.tolist() for name, of in self.per_query.items()}}, kind)

    def plot(self, metric: str | None = None) -> Picture:
        """How the values of the queries spread under one metric, the first if none is named."""
        name = self.names[0] if metric is None else metric
        try:
            values, mean = self.per_query[name], self.mean[name]
        except KeyError:
            raise UnknownNameError("metric in this evaluation", name, self.names) from None
        counted = self.counted[name]
        return histogram(f"{name} of {'1 query' if counted == 1 else f'{counted:,} queries'}", values, mean, name)

    def _parts(self) -> Sequence[Part]:
        cells = [(name, f"{value:.4f}", f"{self.counted[name]:,}") for name, value in self.mean.items()]
        left_out = [len(self.qids) - counted for counted in self.counted.values()]
        table = Table(("metric", "mean", "queries"), cells, names=1)
        if any(left_out):
            more = [(*row, f"{out:,}") for row, out in zip(cells, left_out, strict=True)]
            table = Table((*table.header, "left out"), more, names=1)
        return [table, f"Convention {self.convention}; max grade {self.max_grade:g}."]

    def __str__(self) -> str:
        width = max(len(name) for name in (*self.names, "metric"))
        lines = [f"{'metric':<{width}}     mean  queries"]
        for name, value in self.mean.items():
            left_out = len(self.qids) - self.counted[name]
            note = f"  ({left_out:,} left out)" if left_out else ""
            lines.append(f"{name:<{width}}  {value:>7.4f}  {self.counted[name]:>7,}{note}")
        lines.append(f"convention {self.convention}; max grade {self.max_grade:g}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        means = ", ".join(f"{name}={value:.4f}" for name, value in self.mean.items())
        queries = "1 query" if len(self.qids) == 1 else f"{len(self.qids):,} queries"
        return f"Evaluation({means}; {self.convention.name}, {queries})"


def _json(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
