"""The result of an evaluation: one number per query and metric, their means, and the convention they obey."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.query_values import QueryValues, listed
from toprank.data.slices import LEAST, By, Sliceable, Slices, slices_of_values
from toprank.errors import DataError, ToprankError, UnknownNameError, count_of
from toprank.metrics.conventions import Convention
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse
from toprank.showing.pictures import Picture, histogram
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of

if TYPE_CHECKING:
    from toprank.metrics.slices import SlicedEvaluation


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
                if parse(label) == wanted:
                    return value
            except ToprankError:  # a custom measure has a name that only its owner understands
                continue
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


@dataclass(frozen=True, repr=False)
class Evaluation(Shown):
    """The result of `evaluate`. ``.mean[name]``, ``.per_query[name]``; `str()` is a table that names its convention."""

    measures: Mapping[str, Measure]
    per_query: Mapping[str, FloatArray]
    """One number per query, in the order of `qids`, which each column knows; NaN where it is left out of the mean."""
    convention: Convention
    max_grade: float
    qids: npt.NDArray[Any]
    n_documents: int
    query_weights: FloatArray | None = None
    about: Sliceable | None = None
    """Columns and weights of the queries, for `by`; None if the data are not known."""

    def __post_init__(self) -> None:
        named = {name: QueryValues.of(values, self.qids) for name, values in self.per_query.items()}
        object.__setattr__(self, "per_query", ByMetric(named))

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics, as the caller spelled them."""
        return tuple(self.measures)

    @property
    def mean(self) -> Mapping[str, float]:
        """Mean over the queries that count; NaN where none does."""
        return ByMetric({name: self._mean(values) for name, values in self.per_query.items()})

    @property
    def counted(self) -> Mapping[str, int]:
        """How many queries the mean of each metric is taken over."""
        return ByMetric({name: int((~np.isnan(values)).sum()) for name, values in self.per_query.items()})

    def by(
        self,
        by: By,
        *,
        confidence: float = 0.95,
        least: int = LEAST,
        resamples: int = 10_000,
        seed: int = 0,
        threads: int | None = None,
    ) -> SlicedEvaluation:
        """The same numbers in slices of the queries, each mean with its interval.

        Args:
            by: a column that the data carry along (``"device"``); ``"head:COLUMN"`` for head and tail queries by a
                column of numbers, by ``"head:documents"`` or by ``"head:weight"``; or one value for each query, in
                their order or as ``{query id: value}``.
            confidence: of the intervals (bootstrap, studentised).
            least: slices with fewer queries have no interval.
            resamples: of the bootstrap.
            seed: of the resamples.
            threads: number of threads; the result does not depend on it.

        >>> import toprank as tr
        >>> data = tr.synthetic(n_queries=40, n_documents=(5, 20), seed=0)
        >>> sliced = tr.evaluate(data.X[:, 0], data, "ndcg@10").by("head:documents")
        >>> sliced.slices.sizes
        {'head': 16, 'tail': 24}
        >>> low, high = sliced.intervals["tail"]["ndcg@10"]
        >>> low < sliced["tail"].mean["ndcg@10"] < high
        True
        """
        from toprank.metrics.slices import SlicedEvaluation

        options = {"confidence": confidence, "resamples": resamples, "seed": seed, "threads": threads}
        return SlicedEvaluation(self, self.slices(by), least, options)

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
        return histogram(f"{name} of {count_of(self.counted[name], 'query')}", values, mean, name)

    def _parts(self) -> Sequence[Part]:
        cells = [(name, f"{value:.4f}", f"{self.counted[name]:,}") for name, value in self.mean.items()]
        left_out = [len(self.qids) - counted for counted in self.counted.values()]
        table = Table(("metric", "mean", "queries"), cells, names=1)
        if any(left_out):
            more = [(*row, f"{out:,}") for row, out in zip(cells, left_out, strict=True)]
            table = Table((*table.header, "left out"), more, names=1)
        return [table, self.summary]

    @property
    def summary(self) -> str:
        """The convention of the means, in words."""
        return f"Convention {self.convention}; max grade {self.max_grade:g}."

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
        return f"Evaluation({means}; {self.convention.name}, {count_of(len(self.qids), 'query')})"


def _json(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
