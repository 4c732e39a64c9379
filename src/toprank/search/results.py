"""Search results: hits with titles, passages and ranks before and after reranking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from toprank.display.record import JsonObject, Record, columns_of
from toprank.display.svg import Markup, join, tag
from toprank.display.tables import Part, Table
from toprank.search.snippets import Snippet


@dataclass(frozen=True)
class Hit(JsonObject):
    """A retrieved document.

    Attributes:
        rank: Final rank, from 1.
        id: Document id.
        score: Score of the reranking model, or of the first stage if no model is trained.
        first_stage_rank: Rank in the first stage, from 1.
        title: Title, possibly truncated; empty if documents have no titles.
        snippet: Passage with the query words marked.
    """

    rank: int
    id: str
    score: float
    first_stage_rank: int
    title: str
    snippet: Snippet

    json_names: ClassVar[Mapping[str, str]] = {
        "snippet.text": "snippet",
        "snippet.marks": "marks",
    }
    json_hidden = frozenset({"snippet"})
    json_properties = ("snippet.text", "snippet.marks")

    @property
    def moved(self) -> int:
        """Number of ranks gained by reranking; negative if the document fell."""
        return self.first_stage_rank - self.rank

    def marked(self) -> Markup:
        """Return the passage as HTML, with query words in ``<mark>``."""
        pieces = self.snippet.pieces()
        return join([tag("mark", piece) if place % 2 else piece for place, piece in enumerate(pieces)])


@dataclass(frozen=True, repr=False)
class SearchResults(Record):
    """The top documents for a query, as a sequence of hits.

    Attributes:
        query: Query text.
        hits: Top documents, best first.
        found: Number of first-stage candidates. All of them are ranked.
        reranked: True if a trained model ranked the candidates.
        milliseconds: Time of the first stage, the features, the ranking and the passages.
        note: Remark on the query, for example that it contains only stop words; usually empty.
        rows: Row numbers of all candidates in the index, in first-stage order.
        scores: Final score of each candidate.
    """

    query: str
    hits: tuple[Hit, ...]
    found: int
    reranked: bool
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    scores: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    json_names: ClassVar[Mapping[str, str]] = {"hits": "results"}
    json_hidden = frozenset({"rows", "scores"})
    json_properties = ()

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __getitem__(self, place: int) -> Hit:
        return self.hits[place]

    def _columns(self) -> dict[str, list[Any]]:
        names = ("rank", "id", "score", "first_stage_rank", "title", "snippet")
        return columns_of([hit.to_dict() for hit in self.hits], names)

    def _parts(self) -> Sequence[Part]:
        by = "a reranking model" if self.reranked else "the first stage (not reranked)"
        took = sum(self.milliseconds.values())
        sentence = f"{self.query!r:.80}: {self.found:,} candidates in {took:.0f} ms, ranked by {by}."
        rows = [
            (str(hit.rank), _movement(hit), hit.id, f"{hit.score:.3f}", hit.snippet.text[:100]) for hit in self.hits
        ]
        table = Table(("rank", "first stage", "document", "score", "passage"), rows, names=5)
        return [sentence, *([self.note] if self.note else []), *([table] if rows else [])]

    def _repr_html_(self) -> str:
        from toprank.display.pictures import framed

        sentence = next(part for part in self._parts() if isinstance(part, str))
        items = [
            tag("li", tag("b", hit.title or hit.id), f" {_movement(hit)} ", tag("br"), hit.marked())
            for hit in self.hits
        ]
        return framed(tag("p", sentence), *([tag("p", self.note)] if self.note else []), tag("ol", *items))


def _movement(hit: Hit) -> str:
    if hit.moved == 0:
        return f"{hit.first_stage_rank}"
    return f"{hit.first_stage_rank} {'↑' if hit.moved > 0 else '↓'}{abs(hit.moved)}"
