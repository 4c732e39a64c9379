"""What an evaluation found: one number per query and metric, their means, and the convention they obey."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.errors import ToprankError
from toprank.metrics.conventions import Convention
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse

__all__ = ["ByMetric", "Evaluation"]


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
class Evaluation:
    """What `evaluate` found. ``.mean[name]``, ``.per_query[name]``; `str()` is a table that names its convention."""

    measures: Mapping[str, Measure]
    per_query: Mapping[str, FloatArray]
    """One number per query; NaN where the query is left out of the mean."""
    convention: Convention
    max_grade: float
    qids: npt.NDArray[Any]
    n_documents: int
    query_weights: FloatArray | None = None

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
