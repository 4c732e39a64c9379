"""The search page and its endpoints, as an extension of the scoring service.

Result lists get signed ids like all lists of the service. User events are sent to /v1/events with these ids and are
logged, so the index can be trained on them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from toprank.data.bytesource import file_signature
from toprank.errors import DataError, FileError
from toprank.rankers.model_files import digest_of
from toprank.search.model_file import training_record
from toprank.search.results import Hit
from toprank.search.search_index import Index, open_index
from toprank.search.storage import META, MODEL
from toprank.serving.event_log import ShownAttributes
from toprank.serving.extension import Endpoint
from toprank.serving.page import read_pages
from toprank.serving.recorder import Recorder
from toprank.serving.requests import Id, RefusedError

_MAX_RESULTS = 100
_MAX_QUERY_CHARACTERS = 2_000  # longer queries are pasted by mistake
_MAX_TEXT_CHARACTERS = 20_000  # of a displayed document
_N_EXAMPLES = 5
_MAX_EXAMPLE_CHARACTERS = 60  # longer queries do not look like typed ones
_N_REASONS = 8  # features in an explanation

Words = Annotated[str, Meta(max_length=_MAX_QUERY_CHARACTERS, description="Plain text without query operators.")]


class SearchRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """A search query."""

    query: Words
    top: Annotated[int, Meta(ge=1, le=_MAX_RESULTS)] = 10
    key: Annotated[Id | None, Meta(description="Key of the user or session; stored as a hash.")] = None


class FoundDocument(Struct):
    """A retrieved document with its final rank and its first-stage rank, both from 1."""

    id: str
    title: str
    passage: Annotated[list[str], Meta(description="Pieces of the passage; every second piece matches the query.")]
    rank: int
    first_stage_rank: int
    score: float


class SearchAnswer(Struct):
    """The final ranking and the first-stage ranking."""

    query: str
    reranked: Annotated[
        bool, Meta(description="Whether a model reranked the candidates; otherwise both lists are identical.")
    ]
    found: Annotated[int, Meta(description="Number of first-stage candidates. All of them are ranked.")]
    note: str
    milliseconds: dict[str, float]
    ranking: list[FoundDocument]
    first_stage: list[FoundDocument]
    request: Annotated[str | None, Meta(description="List id to send with events, if the service keeps a log.")] = None


class WhyRequest(Struct, forbid_unknown_fields=True):
    """Two candidates of a query, to explain their order."""

    query: Words
    a: str
    b: str
    top: Annotated[int, Meta(ge=1, le=_MAX_RESULTS, description="Number of documents in the list.")] = 10


class Reason(Struct):
    """Contribution of a feature to the score difference, and its value for both documents."""

    feature: str
    meaning: Annotated[str, Meta(description="Description of the feature.")]
    a: str
    b: str
    contribution: float


class WhyAnswer(Struct):
    """Explanation of the score difference between a and b."""

    summary: str
    total: float
    exact: bool
    reasons: Annotated[list[Reason], Meta(description="Largest contributions first.")]
    others: Annotated[float, Meta(description="Total contribution of all other features.")]


class DocumentRequest(Struct, forbid_unknown_fields=True):
    """Request for the text of one document."""

    id: str


class DocumentAnswer(Struct):
    """The texts of a document by field; long texts are truncated."""

    id: str
    title: str
    fields: dict[str, str]
    cut: bool


class CollectionRequest(Struct, forbid_unknown_fields=True):
    """An empty request."""


class CollectionAnswer(Struct):
    """Description of the index and its model."""

    name: str
    documents: int
    fields: list[str]
    first_stage: str
    model: Annotated[str | None, Meta(description="Name of the reranking model; null if none is trained.")]
    features: int
    n_candidates: int
    examples: list[str]
    logs: Annotated[bool, Meta(description="Whether the service logs user events.")]


class SearchService:
    """An index behind HTTP; satisfies `toprank.serving.extension.Extension`.

    Args:
        path: index folder. The index is reopened when it or its model is replaced.
        **options: options of `toprank.search.open`.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self._path, self._options = path, options
        self._state = _OpenIndex(path, options)
        self.pages: Mapping[str, tuple[bytes, bytes]] = read_pages("toprank.search", _PAGES)

    def endpoints(self, recorder: Recorder) -> Mapping[str, Endpoint]:
        """Return the endpoints by path; `recorder` logs the lists."""
        self._recorder = recorder
        return {
            "/v1/search": Endpoint(SearchRequest, SearchAnswer, "Search the index.", self._search),
            "/v1/search/why": Endpoint(
                WhyRequest, WhyAnswer, "Explain the order of two candidates.", self._why, rare=True
            ),
            "/v1/search/document": Endpoint(
                DocumentRequest, DocumentAnswer, "Return the text of a document.", self._document
            ),
            "/v1/search/about": Endpoint(
                CollectionRequest, CollectionAnswer, "Describe the index and its model.", self._about
            ),
        }

    def versions(self) -> Mapping[str, str]:
        """Return the version of the model, or of the index if it has no model, by index name."""
        return {self._state.index.name: self._state.version}

    def reload(self) -> tuple[str, ...]:
        """Reopen the index if it or its model was replaced; the old one serves requests until then."""
        if self._state.signature == _signature(self._path):
            return ()
        self._state = _OpenIndex(self._path, self._options)
        return (self._state.index.name,)

    # ---- handlers, which run on threads of the service ----

    def _search(self, request: SearchRequest) -> SearchAnswer:
        state, query = self._state, request.query.strip()
        if not query:
            raise RefusedError(422, "The query is empty. Type some words.")
        results = state.index.search(query, request.top)
        n = len(results.rows)
        order = np.argsort(-results.scores, kind="stable") if results.reranked else np.arange(n)
        ranks = np.empty(n, dtype=np.int64)
        ranks[order] = np.arange(1, n + 1)
        first = state.index.hits(query, results.rows, results.scores, np.arange(min(request.top, n)))
        ranking = [_to_document(hit, hit.rank) for hit in results]
        list_id = self._log_list(state, query, ranking, request.key) if ranking and self._recorder.event_log else None
        return SearchAnswer(
            query=query,
            reranked=results.reranked,
            found=results.found,
            note=results.note,
            milliseconds=dict(results.milliseconds),
            ranking=ranking,
            first_stage=[_to_document(hit, int(ranks[hit.first_stage_rank - 1])) for hit in first],
            request=list_id,
        )

    def _log_list(self, state: _OpenIndex, query: str, ranking: list[FoundDocument], key: Id | None) -> str:
        """Log a list and return its id; exploration may swap two neighbors in the list."""
        swap = self._recorder.draw_swap(len(ranking))
        if swap.place is not None:
            _swap(ranking, swap.place)
        list_id = self._recorder.new_list_id(state.version)
        attributes = ShownAttributes(
            state.index.name, state.version, [document.score for document in ranking], explored=swap.place is not None,
            propensity=None if swap.propensity == 1 else swap.propensity,
        )  # fmt: skip
        self._recorder.record_list(list_id, query, [document.id for document in ranking], attributes, key)
        return list_id

    def _why(self, request: WhyRequest) -> WhyAnswer:
        if request.a == request.b:
            raise RefusedError(422, "a and b are the same document. Pass two different documents.")
        index = self._state.index
        try:
            explanation = index.explain(request.query.strip(), request.a, request.b, request.top)
        except DataError as problem:
            raise RefusedError(422, str(problem)) from None
        plain = explanation.to_dict()
        rows = [row for row in plain["contributions"] if row["contribution"] != 0.0]
        rows.sort(key=lambda row: -abs(row["contribution"]))
        meanings = index.features.descriptions
        reasons = [
            Reason(row["feature"], meanings[row["feature"]], row["a"], row["b"], row["contribution"])
            for row in rows[:_N_REASONS]
        ]
        others = float(sum(row["contribution"] for row in rows[_N_REASONS:]))
        return WhyAnswer(explanation.summary, float(explanation.total), bool(plain["exact"]), reasons, others)

    def _document(self, request: DocumentRequest) -> DocumentAnswer:
        documents = self._state.index.documents
        row = int(documents.rows([request.id])[0])
        if row < 0:
            raise RefusedError(404, f"This index contains no document '{request.id[:100]}'.")
        # Read one character more than is shown, to detect truncation.
        texts = {field: documents.start(row, field, _MAX_TEXT_CHARACTERS + 1) for field in documents.fields}
        cut = any(len(text) > _MAX_TEXT_CHARACTERS for text in texts.values())
        texts = {field: text[:_MAX_TEXT_CHARACTERS] for field, text in texts.items()}
        title = texts.pop(documents.title, "") if documents.title else ""
        return DocumentAnswer(request.id, title, texts, cut)

    def _about(self, request: CollectionRequest) -> CollectionAnswer:
        del request
        index = self._state.index
        topics = () if index.topics is None else index.topics.texts
        examples = [text for text in topics if len(text) <= _MAX_EXAMPLE_CHARACTERS][:_N_EXAMPLES]
        model = index.model
        return CollectionAnswer(
            name=index.name,
            documents=len(index),
            fields=list(index.documents.fields),
            first_stage=str(index.folder.entry("first_stage", str)),
            model=None if model is None else training_record(model).system or type(model).__name__,
            features=len(index.features.names),
            n_candidates=index.depth,
            examples=examples,
            logs=self._recorder.event_log is not None,
        )


class _OpenIndex:
    """An open index with the signature and version of its files."""

    def __init__(self, path: str | os.PathLike[str], options: Mapping[str, Any]) -> None:
        self.signature = _signature(path)
        self.index: Index = open_index(path, **options)
        self.index.pin_model()
        known_by = self.index.folder.meta["id"] if self.index.model is None else digest_of(self.index.path / MODEL)
        self.version = str(known_by)[:12]
        if self.index.runs is None:  # warm up lazily created parts before the first request
            self.index.search(self.index.documents.start(0, self.index.documents.fields[0], 100) or "a")
        if _signature(path) != self.signature:  # otherwise the log would record the wrong model version
            raise FileError(f"{path} was replaced while it was being opened. Try again.")


def _signature(path: str | os.PathLike[str]) -> tuple[Any, ...]:
    """Return a value that changes whenever the index or its model is replaced."""
    return tuple(file_signature(Path(path) / name) for name in (META, MODEL))


def _to_document(hit: Hit, rank: int) -> FoundDocument:
    return FoundDocument(hit.id, hit.title, hit.snippet.pieces(), rank, hit.first_stage_rank, hit.score)


def _swap(ranking: list[FoundDocument], place: int) -> None:
    """Swap a document with the next one."""
    ranking[place], ranking[place + 1] = ranking[place + 1], ranking[place]
    for rank, document in enumerate(ranking[place : place + 2], place + 1):
        document.rank = rank


_PAGES = {
    "/": ("search.html", b"text/html; charset=utf-8"),
    "/search.js": ("search.js", b"text/javascript; charset=utf-8"),
    "/search.css": ("search.css", b"text/css; charset=utf-8"),
}
