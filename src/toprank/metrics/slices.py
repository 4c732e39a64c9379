"""What an evaluation found in each slice of the queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.data.slices import Slices

if TYPE_CHECKING:
    from toprank.metrics.result import Evaluation

__all__ = ["SlicedEvaluation"]


class SlicedEvaluation(Mapping[str, "Evaluation"]):
    """Slice → its evaluation; `str()` is a table. Every query is in one slice."""

    def __init__(self, whole: Evaluation, slices: Slices) -> None:
        self.whole, self.slices = whole, slices
        self._parts = {name: _part(whole, slices.codes == number) for number, name in enumerate(slices.names)}

    def __getitem__(self, name: str) -> Evaluation:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        slices = {name: part.to_dict() for name, part in self.items()}
        return {"by": self.slices.by, "rule": self.slices.rule, "all": self.whole.to_dict(), "slices": slices}

    def __str__(self) -> str:
        rows = [(name, part) for name, part in self.items()] + [("all", self.whole)]
        width = max(len(name) for name in (self.slices.by, *(name for name, _ in rows)))
        cells = [max(len(name), 6) for name in self.whole.names]
        head = [f"{self.slices.by:<{width}}", "queries"]
        head += [f"{name:>{cell}}" for name, cell in zip(self.whole.names, cells, strict=True)]
        lines = ["  ".join(head)]
        for name, part in rows:
            means = [f"{part.mean[metric]:>{cell}.4f}" for metric, cell in zip(part.names, cells, strict=True)]
            lines.append("  ".join([f"{name:<{width}}", f"{len(part.qids):>7,}", *means]))
        return "\n".join([*lines, f"{self.slices.rule} Convention {self.whole.convention.name}."])

    def __repr__(self) -> str:
        return f"SlicedEvaluation({self.slices.by}: {', '.join(self)})"


def _part(whole: Evaluation, chosen: Any) -> Evaluation:
    """The evaluation of some of the queries."""
    weights, about = whole.query_weights, whole.about
    documents = whole.n_documents if about is None else int(about.queries.sizes[chosen].sum())
    return replace(
        whole,
        per_query={name: np.asarray(values)[chosen] for name, values in whole.per_query.items()},
        qids=whole.qids[chosen],
        n_documents=documents,
        query_weights=None if weights is None else weights[chosen],
        about=None,
    )
