"""What a search finds: hits with their titles, passages and both ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.drawing import Markup, join, tag
from toprank.search.snippets import Snippet
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of


@dataclass(frozen=True)
class Hit:
    """A document that was found."""

    rank: int
    id: str
    score: float
    """Of the learned order; of the first stage, where nothing is trained."""
    first_rank: int
    """Where the first stage had it."""
    title: str
    snippet: Snippet

    @property
    def moved(self) -> int:
        """How many ranks it rose; negative where it fell."""
        return self.first_rank - self.rank

    def marked(self) -> Markup:
        """The passage as HTML, with the words of the query in <mark>."""
        pieces = self.snippet.pieces()
        return join([tag("mark", piece) if place % 2 else piece for place, piece in enumerate(pieces)])

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "rank": self.rank, "id": self.id, "score": self.score, "first_stage_rank": self.first_rank,
            "title": self.title, "snippet": self.snippet.text, "marks": [list(mark) for mark in self.snippet.marks],
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class SearchResults(Shown):
    """The best documents for a query; a sequence of hits, and `str` is a table."""

    query: str
    hits: tuple[Hit, ...]
    found: int
    """Candidates of the first stage, all of which were ranked."""
    learned: bool
    """Whether a trained model ordered the hits."""
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    """Of the first stage, the features, the ranking and the passages."""
    note: str = ""
    """What to know about the query; empty if there is nothing."""
    rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """All candidates by row of the index, in the order of the first stage."""
    scores: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """The final score of each candidate."""

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __getitem__(self, place: int) -> Hit:
        return self.hits[place]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {
            "query": self.query, "learned": self.learned, "found": self.found, "note": self.note,
            "milliseconds": dict(self.milliseconds), "results": [hit.to_dict() for hit in self.hits],
        }  # fmt: skip

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """A row for each hit; a frame of pandas or polars, or Arrow's."""
        names = ("rank", "id", "score", "first_stage_rank", "title", "snippet")
        rows = [hit.to_dict() for hit in self.hits]
        return frame_of({name: [row[name] for row in rows] for name in names}, kind)

    def _parts(self) -> Sequence[Part]:
        by = "a learned order" if self.learned else "the first stage (no model is trained yet)"
        took = sum(self.milliseconds.values())
        sentence = f"{self.query!r:.80}: {self.found:,} candidates in {took:.0f} ms, by {by}."
        rows = [
            (str(hit.rank), _movement(hit), hit.id, f"{hit.score:.3f}", hit.snippet.text[:100]) for hit in self.hits
        ]
        table = Table(("rank", "first stage", "document", "score", "passage"), rows, names=5)
        return [sentence, *([self.note] if self.note else []), *([table] if rows else [])]

    def _repr_html_(self) -> str:
        from toprank.showing.pictures import framed

        sentence = next(part for part in self._parts() if isinstance(part, str))
        items = [
            tag("li", tag("b", hit.title or hit.id), f" {_movement(hit)} ", tag("br"), hit.marked())
            for hit in self.hits
        ]
        return framed(tag("p", sentence), *([tag("p", self.note)] if self.note else []), tag("ol", *items))


def _movement(hit: Hit) -> str:
    if hit.moved == 0:
        return f"{hit.first_rank}"
    return f"{hit.first_rank} {'↑' if hit.moved > 0 else '↓'}{abs(hit.moved)}"
