"""What an evaluation found in each slice of the queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.data.slices import Slices
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of

if TYPE_CHECKING:
    from toprank.metrics.result import Evaluation

__all__ = ["SlicedEvaluation"]


class SlicedEvaluation(Shown, Mapping[str, "Evaluation"]):
    """Slice → its evaluation; `str()` is a table. Every query is in one slice."""

    def __init__(self, whole: Evaluation, slices: Slices) -> None:
        self.whole, self.slices = whole, slices
        self._of = {name: _part(whole, slices.codes == number) for number, name in enumerate(slices.names)}

    def __getitem__(self, name: str) -> Evaluation:
        return self._of[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        slices = {name: part.to_dict() for name, part in self.items()}
        return {"by": self.slices.by, "rule": self.slices.rule, "all": self.whole.to_dict(), "slices": slices}

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each slice: how many queries it has, and their means; a frame of pandas or polars, or Arrow's."""
        means = {metric: [part.mean[metric] for part in self.values()] for metric in self.whole.names}
        sizes = [len(part.qids) for part in self.values()]
        return frame_of({"slice": list(self), "queries": sizes, **means}, kind)

    def _parts(self) -> Sequence[Part]:
        rows = [
            (name, f"{len(part.qids):,}", *(f"{part.mean[metric]:.4f}" for metric in part.names))
            for name, part in (*self.items(), ("all", self.whole))
        ]
        table = Table((self.slices.by, "queries", *self.whole.names), rows, names=1)
        return [table, f"{self.slices.rule} Convention {self.whole.convention.name}."]

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
