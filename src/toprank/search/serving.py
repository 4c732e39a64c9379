"""The search page, and the endpoints behind it, as an extension of the scoring service.

Lists that are shown get signed ids like any other list of the service, so what users do with them goes to /v1/events
and into the same log, from which the index can be trained.
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
from toprank.search.model_file import learned_from
from toprank.search.results import Hit
from toprank.search.search_index import Index, open_index
from toprank.search.storage import META, MODEL
from toprank.serving.event_log import ShownAttributes
from toprank.serving.extension import Endpoint
from toprank.serving.page import read_pages
from toprank.serving.recorder import Recorder
from toprank.serving.requests import Id, RefusedError

_MOST = 100  # results of a page
_LETTERS = 2_000  # of a query; a page that is longer is pasted by mistake, and the index would cut it anyway
_TEXT = 20_000  # letters of a document that are shown
_EXAMPLES = 5
_SHORT = 60  # letters of an example; those that are longer look like no query that somebody would type
_REASONS = 8  # features of an explanation

Words = Annotated[str, Meta(max_length=_LETTERS, description="Plain words; there is no query syntax.")]


class SearchRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Words to look for."""

    query: Words
    top: Annotated[int, Meta(ge=1, le=_MOST)] = 10
    key: Annotated[Id | None, Meta(description="Whose request it is; logged hashed.")] = None


class FoundDocument(Struct):
    """A document of a list: where it stands in the learned order and where the first stage had it, from 1."""

    id: str
    title: str
    passage: Annotated[list[str], Meta(description="Every other piece, from the second on, matches the query.")]
    rank: int
    first_stage_rank: int
    score: float


class SearchAnswer(Struct):
    """The learned order and that of the first stage, side by side."""

    query: str
    learned: Annotated[bool, Meta(description="Whether a model made the order; otherwise both lists are the same.")]
    found: Annotated[int, Meta(description="Candidates of the first stage, all of which were ranked.")]
    note: str
    milliseconds: dict[str, float]
    ranking: list[FoundDocument]
    first_stage: list[FoundDocument]
    request: Annotated[str | None, Meta(description="What events of this list name; of a service with a log.")] = None


class WhyRequest(Struct, forbid_unknown_fields=True):
    """Two candidates of a query whose order is to be explained."""

    query: Words
    a: str
    b: str
    top: Annotated[int, Meta(ge=1, le=_MOST, description="How many documents the list had.")] = 10


class Reason(Struct):
    """What a feature contributes to the difference of the scores, and its value for both."""

    feature: str
    meaning: Annotated[str, Meta(description="What the feature is, in words.")]
    a: str
    b: str
    contribution: float


class WhyAnswer(Struct):
    """Why a has another score than b."""

    summary: str
    total: float
    exact: bool
    reasons: Annotated[list[Reason], Meta(description="The largest first.")]
    others: Annotated[float, Meta(description="What all other features contribute together.")]


class DocumentRequest(Struct, forbid_unknown_fields=True):
    """A document by its id."""

    id: str


class DocumentAnswer(Struct):
    """The texts of a document by field; very long ones are cut."""

    id: str
    title: str
    fields: dict[str, str]
    cut: bool


class CollectionRequest(Struct, forbid_unknown_fields=True):
    """Nothing."""


class CollectionAnswer(Struct):
    """What is searched."""

    name: str
    documents: int
    fields: list[str]
    first_stage: str
    model: Annotated[str | None, Meta(description="What made the learned order; null: nothing is trained yet.")]
    features: int
    pool: int
    examples: list[str]
    logs: Annotated[bool, Meta(description="Whether the service keeps what users do.")]


class SearchService:
    """An index behind HTTP; satisfies `toprank.serving.extension.Extension`.

    Args:
        path: the index; it is opened again where it, or the model in it, is replaced.
        **options: of `toprank.search.open`.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self._path, self._options = path, options
        self._state = _Opened(path, options)
        self.pages: Mapping[str, tuple[bytes, bytes]] = read_pages("toprank.search", _PAGES)

    def endpoints(self, recorder: Recorder) -> Mapping[str, Endpoint]:
        """What can be asked."""
        self._recorder = recorder
        return {
            "/v1/search": Endpoint(SearchRequest, SearchAnswer, "Search the index.", self._search),
            "/v1/search/why": Endpoint(
                WhyRequest, WhyAnswer, "Why a candidate stands above another.", self._why, rare=True
            ),
            "/v1/search/document": Endpoint(DocumentRequest, DocumentAnswer, "The text of a document.", self._document),
            "/v1/search/about": Endpoint(
                CollectionRequest, CollectionAnswer, "What is searched, and how.", self._about
            ),
        }

    def versions(self) -> Mapping[str, str]:
        """The index, by the version of what makes its order."""
        return {self._state.index.name: self._state.version}

    def reload(self) -> tuple[str, ...]:
        """Open the index again where it or its model is another; until then the old one answers."""
        if self._state.signature == _signature(self._path):
            return ()
        self._state = _Opened(self._path, self._options)
        return (self._state.index.name,)

    # ---- the work, on threads of the service ----

    def _search(self, request: SearchRequest) -> SearchAnswer:
        state, query = self._state, request.query.strip()
        if not query:
            raise RefusedError(422, "Type some words to search for.")
        results = state.index.search(query, request.top)
        n = len(results.rows)
        order = np.argsort(-results.scores, kind="stable") if results.learned else np.arange(n)
        ranks = np.empty(n, dtype=np.int64)
        ranks[order] = np.arange(1, n + 1)
        first = state.index.hits(query, results.rows, results.scores, np.arange(min(request.top, n)))
        ranking = [_listed(hit, hit.rank) for hit in results]
        list_id = self._kept(state, query, ranking, request.key) if ranking and self._recorder.event_log else None
        return SearchAnswer(
            query=query,
            learned=results.learned,
            found=results.found,
            note=results.note,
            milliseconds=dict(results.milliseconds),
            ranking=ranking,
            first_stage=[_listed(hit, int(ranks[hit.first_rank - 1])) for hit in first],
            request=list_id,
        )

    def _kept(self, state: _Opened, query: str, ranking: list[FoundDocument], key: Id | None) -> str:
        """The id of a list in the log; where the service explores, two neighbors may be exchanged in it."""
        swap = self._recorder.draw_swap(len(ranking))
        if swap.place is not None:
            _exchange(ranking, swap.place)
        list_id = self._recorder.new_list_id(state.version)
        attributes = ShownAttributes(
            state.index.name, state.version, [document.score for document in ranking], explored=swap.place is not None,
            propensity=None if swap.propensity == 1 else swap.propensity,
        )  # fmt: skip
        self._recorder.record_list(list_id, query, [document.id for document in ranking], attributes, key)
        return list_id

    def _why(self, request: WhyRequest) -> WhyAnswer:
        if request.a == request.b:
            raise RefusedError(422, "An explanation compares two documents; a and b are the same.")
        index = self._state.index
        try:
            explanation = index.explain(request.query.strip(), request.a, request.b, request.top)
        except DataError as problem:
            raise RefusedError(422, str(problem)) from None
        plain = explanation.to_dict()
        rows = [row for row in plain["contributions"] if row["contribution"] != 0.0]
        rows.sort(key=lambda row: -abs(row["contribution"]))
        meanings = index.features.meanings
        reasons = [
            Reason(row["feature"], meanings[row["feature"]], row["a"], row["b"], row["contribution"])
            for row in rows[:_REASONS]
        ]
        others = float(sum(row["contribution"] for row in rows[_REASONS:]))
        return WhyAnswer(explanation.summary, float(explanation.total), bool(plain["exact"]), reasons, others)

    def _document(self, request: DocumentRequest) -> DocumentAnswer:
        documents = self._state.index.documents
        row = int(documents.rows([request.id])[0])
        if row < 0:
            raise RefusedError(404, f"There is no document '{request.id[:100]}' in this index.")
        # One letter more than is shown tells whether there are others.
        texts = {field: documents.start(row, field, _TEXT + 1) for field in documents.fields}
        cut = any(len(text) > _TEXT for text in texts.values())
        texts = {field: text[:_TEXT] for field, text in texts.items()}
        title = texts.pop(documents.title, "") if documents.title else ""
        return DocumentAnswer(request.id, title, texts, cut)

    def _about(self, request: CollectionRequest) -> CollectionAnswer:
        del request
        index = self._state.index
        topics = () if index.topics is None else index.topics.texts
        examples = [text for text in topics if len(text) <= _SHORT][:_EXAMPLES]
        model = index.model
        return CollectionAnswer(
            name=index.name,
            documents=len(index),
            fields=list(index.documents.fields),
            first_stage=str(index.folder.entry("first_stage", str)),
            model=None if model is None else learned_from(model).system or type(model).__name__,
            features=len(index.features.names),
            pool=index.depth,
            examples=examples,
            logs=self._recorder.event_log is not None,
        )


class _Opened:
    """An index that answers, and what tells it from the next one."""

    def __init__(self, path: str | os.PathLike[str], options: Mapping[str, Any]) -> None:
        self.signature = _signature(path)
        self.index: Index = open_index(path, **options)
        self.index.pin_model()
        known_by = self.index.folder.meta["id"] if self.index.model is None else digest_of(self.index.path / MODEL)
        self.version = str(known_by)[:12]
        if self.index.runs is None:  # what is made at first use is made before the first request
            self.index.search(self.index.documents.start(0, self.index.documents.fields[0], 100) or "a")
        if _signature(path) != self.signature:  # the log would name a model that did not make its lists
            raise FileError(f"{path} was replaced while it was opened; try again.")


def _signature(path: str | os.PathLike[str]) -> tuple[Any, ...]:
    """Return what changes when the index or the model in it is replaced."""
    return tuple(file_signature(Path(path) / name) for name in (META, MODEL))


def _listed(hit: Hit, rank: int) -> FoundDocument:
    return FoundDocument(hit.id, hit.title, hit.snippet.pieces(), rank, hit.first_rank, hit.score)


def _exchange(ranking: list[FoundDocument], place: int) -> None:
    """Exchange a document with the next."""
    ranking[place], ranking[place + 1] = ranking[place + 1], ranking[place]
    for rank, document in enumerate(ranking[place : place + 2], place + 1):
        document.rank = rank


_PAGES = {
    "/": ("search.html", b"text/html; charset=utf-8"),
    "/search.js": ("search.js", b"text/javascript; charset=utf-8"),
    "/search.css": ("search.css", b"text/css; charset=utf-8"),
}
