"""Response types, and the functions that compute responses from parsed requests. None of them waits for I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Self

import msgspec
import numpy as np
from msgspec import Meta, Struct

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.serving.models import LoadedModel
from toprank.serving.requests import (
    ExplainRequest,
    Id,
    InterleaveRequest,
    RankRequest,
    RefusedError,
    ScoreRequest,
    check_ids,
)
from toprank.serving.rows import RequestRows


class ScoredDocument(Struct, gc=False):
    """A document and its score."""

    id: Id
    score: float


class RankedDocument(Struct, gc=False):
    """A document with its score and its rank, from 1."""

    id: Id
    score: float
    rank: int


class Ranking(Struct, omit_defaults=True):
    """Documents by rank, and the model that ranked them."""

    model: str
    version: str
    ranking: list[RankedDocument]
    request: Annotated[
        str | None, Meta(description="Id of the list, to be sent with its events; null without a log.")
    ] = None


class Scores(Struct):
    """Documents in the order of the request, and the model that scored them."""

    model: str
    version: str
    scores: list[ScoredDocument]


class PairMember(Struct):
    """A document of the explained pair."""

    id: Id
    name: str
    score: float
    place: int


class FeatureContribution(Struct):
    """Contribution of a feature to the difference of the scores, and its values for both documents."""

    feature: str
    a: str
    b: str
    contribution: float
    error: float


class PairExplanation(Struct):
    """Explanation of the difference between the scores of documents a and b."""

    model: str
    version: str
    query: Id | None
    a: PairMember
    b: PairMember
    total: float
    summary: str
    contributions: list[FeatureContribution]
    exact: bool
    method: str
    caveats: list[str]


class InterleavedDocument(Struct):
    """A document of an interleaved list."""

    id: Id
    rank: int


class InterleavedList(Struct):
    """A list of two models, and its id, to be sent with its clicks."""

    impression: str
    ranking: list[InterleavedDocument]


class CountedEvents(Struct):
    """Number of new events, and number of events received before."""

    counted: int
    again: int


class ModelList(Struct):
    """The models of the service."""

    primary: str
    models: list[dict[str, Any]]


class Status(Struct):
    """State of the process."""

    status: str


class Refusal(Struct):
    """Reason for rejecting a request."""

    error: Annotated[str, Meta(description="The reason, as a sentence.")]


class ScoredRequest(NamedTuple):
    """A scored request: `order` contains the rows shown, best first; `ids` and `values` are for all rows."""

    X: FloatArray
    scores: FloatArray
    unseen: Mapping[str, int]
    missing: int
    written: bytes
    order: list[int]
    ids: list[Any]
    values: list[float]


_encode = msgspec.json.Encoder().encode
_MAX_QUOTED = 1000  # Number of characters kept from the beginning and the end of a long message.
JSON = b"application/json"
PLAIN = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""Headers of every response."""
LEAVE = ((b"connection", b"close"),)
"""Headers of a response after which the connection is closed."""
_AGAIN = ((b"retry-after", b"1"),)


class HttpAnswer(NamedTuple):
    """A response, and facts about it for the log."""

    status: int
    body: bytes
    kind: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    facts: Mapping[str, Any] = {}

    @classmethod
    def from_value(cls, value: Any, facts: Mapping[str, Any] = {}) -> Self:
        """Return a value as a JSON response."""
        return cls(200, _encode(value), facts=facts)


def refused(status: int, sentence: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> HttpAnswer:
    """Return a response with the reason for rejecting a request."""
    # After 408 and 413, the rest of the body may still arrive.
    more = LEAVE if status in (408, 413) else _AGAIN if status == 503 else ()
    if len(sentence) > 2 * _MAX_QUOTED:  # Ids and words may be as long as the body.
        sentence = f"{sentence[:_MAX_QUOTED]} … {sentence[-_MAX_QUOTED:]}"
    return HttpAnswer(status, _encode(Refusal(sentence)), headers=(*headers, *more))


def read_rows(
    model: LoadedModel, request: ScoreRequest | InterleaveRequest, limit: int
) -> tuple[list[Any], RequestRows]:
    """Return the ids of the documents and their rows."""
    ids = check_ids(request.documents, limit)
    check_query(model, request)
    return ids, model.columns.rows(request.documents, request.features, request.query_text)


def check_query(model: LoadedModel, request: ScoreRequest | InterleaveRequest) -> None:
    """Reject a request without a query id to a model whose scores depend on the whole query."""
    if request.query is None and model.ranker.uses_query_context:
        raise RefusedError(
            422,
            f"The scores of model '{model.name}' depend on the whole query. Give query, and all of its documents in "
            "one request.",
        )


def score(model: LoadedModel, request: ScoreRequest, limit: int) -> ScoredRequest:
    """Score the documents in the order of the request."""
    ids, (X, unseen) = read_rows(model, request, limit)
    scores = model.scores(X) if ids else np.empty(0)
    listed = [ScoredDocument(name, score) for name, score in zip(ids, scores.tolist(), strict=True)]
    return ScoredRequest(
        X=X,
        scores=scores,
        unseen=unseen,
        missing=int(np.isnan(X).sum()),
        written=_encode(Scores(model.name, model.version, listed)),
        order=[],
        ids=ids,
        values=[],
    )


def rank(
    model: LoadedModel, request: RankRequest, limit: int, list_id: str | None = None, swap: int | None = None
) -> ScoredRequest:
    """Rank the documents; the one at index `swap` is exchanged with the next."""
    ids, (X, unseen) = read_rows(model, request, limit)
    scores = model.scores(X) if ids else np.empty(0)
    order, values = model.order(scores, request.top) if ids else [], scores.tolist()
    if swap is not None:
        order[swap : swap + 2] = order[swap : swap + 2][::-1]
    listed = [RankedDocument(ids[row], values[row], rank) for rank, row in enumerate(order, start=1)]
    written = _encode(Ranking(model.name, model.version, listed, list_id))
    return ScoredRequest(
        X=X,
        scores=scores,
        unseen=unseen,
        missing=int(np.isnan(X).sum()),
        written=written,
        order=order,
        ids=ids,
        values=values,
    )


def rank_by_both(
    models: tuple[LoadedModel, LoadedModel], request: InterleaveRequest, limit: int
) -> tuple[list[Any], list[int], list[int]]:
    """Return the ids, and the rankings of two models."""
    if not request.documents:
        return [], [], []
    first, second = models
    if not first.columns.accepts_same_requests(second.columns):
        raise RefusedError(422, f"'{first.name}' and '{second.name}' use different columns and cannot be interleaved.")
    check_query(second, request)
    ids, rows = read_rows(first, request, limit)
    same = first.columns.encoding == second.columns.encoding and first.columns.text is None
    _, others = (ids, rows) if same else read_rows(second, request, limit)
    return ids, first.order(first.scores(rows.X)), second.order(second.scores(others.X))


def explain(model: LoadedModel, request: ExplainRequest, limit: int) -> bytes:
    """Explain the difference between the scores of documents a and b."""
    ids, (X, _) = read_rows(model, request, limit)
    for document in (request.a, request.b):
        if document not in ids:
            raise RefusedError(422, f"Document {document!r} is not among the documents of the request.")
    if request.a == request.b:
        raise RefusedError(422, "An explanation compares two documents, but a and b are the same.")
    names = [str(document) for document in ids]
    if len(set(names)) < len(names):  # the number 1 and the text "1" are two ids
        names = [repr(document) for document in ids]
    called = getattr(model.ranker, "feature_names_in_", None)
    data = RankingData(X, document_ids=names, feature_names=called, encoding=model.ranker.encoding_)
    explanation = model.ranker.explain(data, a=names[ids.index(request.a)], b=names[ids.index(request.b)]).to_dict()
    explanation |= {"model": model.name, "version": model.version, "query": request.query}
    explanation["a"] |= {"id": request.a}
    explanation["b"] |= {"id": request.b}
    return _encode(msgspec.convert(explanation, PairExplanation))
