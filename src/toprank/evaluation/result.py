"""Result of an evaluation: one value per query and metric, with means and convention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.arguments import check_whole
from toprank.data.query_values import QueryValues, listed
from toprank.data.slices import MIN_QUERIES, Sliceable, SliceBy, Slices
from toprank.display.pictures import Picture, histogram
from toprank.display.record import Record, to_json
from toprank.display.tables import Part, Table
from toprank.errors import ToprankError, UnknownNameError, count_of
from toprank.evaluation.values import Values
from toprank.metrics.conventions import Convention
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse

if TYPE_CHECKING:
    from toprank.evaluation.sliced import SlicedEvaluation


class ByMetric(Mapping[str, Any]):
    """Mapping by metric that accepts any spelling of the metric."""

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
            except ToprankError:  # names of custom measures cannot be parsed
                continue
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


@dataclass(frozen=True, repr=False)
class Evaluation(Record):
    """Result of `evaluate`, with ``.mean[name]`` and ``.per_query[name]``; `str()` returns a table."""

    measures: Mapping[str, Measure]
    per_query: Mapping[str, FloatArray]
    """Metric → one value per query, in the order of `qids`; NaN for queries that are left out of the mean."""
    convention: Convention
    max_grade: float
    qids: npt.NDArray[Any]
    n_documents: int
    query_weights: FloatArray | None = None
    query_metadata: Sliceable | None = None
    """Columns and weights of the queries, for `slice_by`; None if the data are not known."""
    unanswered: tuple[str, ...] | None = None
    """Judged queries for which the run has no document (no judged one, if condensed); None for scores."""

    def __post_init__(self) -> None:
        named = {name: QueryValues.from_values(values, self.qids) for name, values in self.per_query.items()}
        object.__setattr__(self, "per_query", ByMetric(named))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics, as spelled by the caller."""
        return tuple(self.measures)

    @cached_property
    def values(self) -> Values:
        """Values of this system, as input for statistics."""
        table = np.array([[np.asarray(self.per_query[name]) for name in self.names]])
        errors = frozenset(name for name, measure in self.measures.items() if not measure.higher_is_better)
        return Values(
            systems=("",),
            metrics=self.names,
            table=table,
            units=self.qids,
            weights=self.query_weights,
            metadata=self.query_metadata,
            lower_is_better=errors,
            convention=self.convention.name,
        )

    @property
    def mean(self) -> Mapping[str, float]:
        """Metric → mean over the evaluated queries; NaN if there are none."""
        return ByMetric(self.values.means[""])

    @property
    def n_evaluated(self) -> Mapping[str, int]:
        """Metric → number of queries in the mean."""
        return ByMetric({name: int((~np.isnan(values)).sum()) for name, values in self.per_query.items()})

    def by_slice(
        self,
        slice_by: SliceBy,
        *,
        confidence: float = 0.95,
        min_queries: int = MIN_QUERIES,
        n_resamples: int = 10_000,
        seed: int = 0,
        threads: int | None = None,
    ) -> SlicedEvaluation:
        """Return means and confidence intervals in slices of the queries.

        Args:
            slice_by: a metadata column of the data (``"device"``); ``"head:COLUMN"`` for head and tail queries by a
                numeric column, ``"head:documents"`` by the number of documents or ``"head:weight"`` by query weight; or
                one value per query, in their order or as ``{query id: value}``.
            confidence: confidence level of the studentized bootstrap intervals. Default 0.95.
            min_queries: slices with fewer queries have no interval. Default 20.
            n_resamples: number of bootstrap resamples. Default 10,000.
            seed: seed of the resamples.
            threads: number of threads; the result does not depend on it.

        >>> import toprank as tr
        >>> data = tr.synthetic(n_queries=40, n_documents=(5, 20), seed=0)
        >>> sliced = tr.evaluate(data.X[:, 0], data, "ndcg@10").by_slice("head:documents")
        >>> sliced.slices.sizes
        {'head': 16, 'tail': 24}
        >>> low, high = sliced.intervals["tail"]["ndcg@10"]
        >>> low < sliced["tail"].mean["ndcg@10"] < high
        True
        """
        from toprank.evaluation.sliced import SlicedEvaluation

        check_whole("min_queries", min_queries, 2)
        options: dict[str, Any] = {
            "confidence": confidence,
            "n_resamples": n_resamples,
            "seed": seed,
            "threads": threads,
        }
        return SlicedEvaluation.from_evaluation(self, self.slices(slice_by), int(min_queries), options)

    def slices(self, slice_by: SliceBy) -> Slices:
        """Return the slices of the queries."""
        return self.values.slices(slice_by)

    def select(self, chosen: npt.ArrayLike) -> Evaluation:
        """Return the evaluation of the queries selected by a mask."""
        part, query_metadata = self.values.select(chosen), self.query_metadata
        return replace(
            self,
            per_query=part.by_metric(""),
            qids=part.units,
            n_documents=self.n_documents
            if query_metadata is None
            else int(query_metadata.queries.sizes[np.asarray(chosen)].sum()),
            query_weights=part.weights,
            query_metadata=None,
        )

    def to_dict(self, per_query: bool = False) -> dict[str, Any]:
        """Return the evaluation as plain values for JSON; `per_query` adds the value of every query."""
        result = {
            "mean": self.mean, "convention": self.convention.name, "queries": len(self.qids),
            "documents": self.n_documents, "n_evaluated": self.n_evaluated, "max_grade": self.max_grade,
        }  # fmt: skip
        if self.unanswered is not None:
            result["unanswered"] = self.unanswered
        if per_query:
            qids = self.qids.tolist()
            result["per_query"] = {
                name: dict(zip(qids, values.tolist(), strict=True)) for name, values in self.per_query.items()
            }
        plain: dict[str, Any] = to_json(result)
        return plain

    def _columns(self) -> dict[str, Any]:
        return {"qid": self.qids.tolist(), **{name: of.tolist() for name, of in self.per_query.items()}}

    def plot(self, metric: str | None = None) -> Picture:
        """Plot the distribution of per-query values under one metric, by default the first."""
        name = self.names[0] if metric is None else metric
        try:
            values, mean = self.per_query[name], self.mean[name]
        except KeyError:
            raise UnknownNameError("metric in this evaluation", name, self.names) from None
        return histogram(f"{name} of {count_of(self.n_evaluated[name], 'query')}", values, mean, name)

    def _parts(self) -> Sequence[Part]:
        cells = [(name, f"{value:.4f}", f"{self.n_evaluated[name]:,}") for name, value in self.mean.items()]
        left_out = [len(self.qids) - n for n in self.n_evaluated.values()]
        table = Table(("metric", "mean", "queries"), cells, names=1)
        if any(left_out):
            more = [(*row, f"{out:,}") for row, out in zip(cells, left_out, strict=True)]
            table = Table((*table.header, "left out"), more, names=1)
        return [table, self.summary]

    @property
    def summary(self) -> str:
        """The convention, and the queries that a run does not answer, as sentences."""
        return " ".join([f"Convention {self.convention}; max grade {self.max_grade:g}.", *self._unanswered_note()])

    def _unanswered_note(self) -> list[str]:
        """Return a sentence on the judged queries that the run does not answer, if any."""
        if not self.unanswered:
            return []
        counted = self.unanswered[0] in map(str, self.qids.tolist())
        judged = len(self.qids) + (0 if counted else len(self.unanswered))
        rule = "counted 0" if counted else "left out (the option complete counts 0)"
        return [f"The run lacks {listed(self.unanswered)} of {judged:,} judged; {rule}."]

    def __str__(self) -> str:
        width = max(len(name) for name in (*self.names, "metric"))
        lines = [f"{'metric':<{width}}     mean  queries"]
        for name, value in self.mean.items():
            left_out = len(self.qids) - self.n_evaluated[name]
            note = f"  ({left_out:,} left out)" if left_out else ""
            lines.append(f"{name:<{width}}  {value:>7.4f}  {self.n_evaluated[name]:>7,}{note}")
        lines += [f"convention {self.convention}; max grade {self.max_grade:g}", *self._unanswered_note()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        means = ", ".join(f"{name}={value:.4f}" for name, value in self.mean.items())
        return f"Evaluation({means}; {self.convention.name}, {count_of(len(self.qids), 'query')})"
