"""The OpenAPI document, generated from the types of requests and responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.json import schema_components

from toprank import __version__
from toprank.serving import answers, requests
from toprank.serving.extension import Endpoint

_REFUSALS = {
    400: "The body is not JSON.",
    401: "The token is missing or wrong.",
    404: "The model, list or endpoint does not exist.",
    405: "The endpoint uses another method.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or has too many documents.",
    415: "The content type is not JSON.",
    422: "Columns, ids or values of the request are invalid.",
    501: "The model does not support this.",
    503: "The service is overloaded or stopping; retry after the seconds in Retry-After.",
}
_POSTS: dict[str, tuple[type, type, str]] = {
    "/v1/rank": (requests.RankRequest, answers.Ranking, "Rank the documents of a query."),
    "/v1/score": (requests.ScoreRequest, answers.Scores, "Score documents, in the order given."),
    "/v1/explain": (
        requests.ExplainRequest,
        answers.PairExplanation,
        "Explain the difference between the scores of two documents.",
    ),
    "/v1/interleave": (
        requests.InterleaveRequest,
        answers.InterleavedList,
        "Return a list interleaved from two models.",
    ),
    "/v1/events": (requests.Events, answers.CountedEvents, "Report user events on the documents of a list."),
}
_GETS: dict[str, tuple[type, str]] = {
    "/v1/models": (answers.ModelList, "The models of the service."),
    "/healthz": (answers.Status, "Whether the process is alive."),
    "/readyz": (answers.Status, "Whether the service accepts requests."),
}
_TYPES = dict.fromkeys([answers.Refusal, *(kind for row in (*_POSTS.values(), *_GETS.values()) for kind in row[:-1])])
_OPEN = ("/healthz", "/readyz")


def _posts(more: Mapping[str, Endpoint]) -> dict[str, tuple[type, type, str]]:
    return _POSTS | {path: (endpoint.request, endpoint.answer, endpoint.summary) for path, endpoint in more.items()}


def _content(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}


def _operation(path: str, summary: str, answer: type, *, body: type | None = None, token: bool) -> dict[str, Any]:
    statuses = [401, 404, 405, 503] if body is None else list(_REFUSALS)
    responses = {"200": {"description": "The answer.", "content": _content(answer)}}
    responses |= {
        str(status): {"description": _REFUSALS[status], "content": _content(answers.Refusal)} for status in statuses
    }
    operation: dict[str, Any] = {
        "summary": summary, "operationId": path.strip("/").replace("/", "_"), "responses": responses,
    }  # fmt: skip
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _content(body)}
    if token and path not in _OPEN:
        operation["security"] = [{"token": []}]
    return operation


def document(*, token: bool, more: Mapping[str, Endpoint] = {}) -> dict[str, Any]:
    """Return the document; `token` is whether the service requires a token, `more` contains the endpoints of an
    extension.

    >>> sorted(document(token=False)["paths"])[:2]
    ['/healthz', '/metrics']
    """
    paths: dict[str, Any] = {
        path: {"post": _operation(path, summary, answer, body=body, token=token)}
        for path, (body, answer, summary) in _posts(more).items()
    }
    for path, (answer, summary) in _GETS.items():
        paths[path] = {"get": _operation(path, summary, answer, token=token)}
    metrics = _operation("/metrics", "Counters, for Prometheus.", answers.Status, token=token)
    metrics["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    paths["/metrics"] = {"get": metrics}
    types = dict.fromkeys(
        [*_TYPES, *(kind for endpoint in more.values() for kind in (endpoint.request, endpoint.answer))]
    )
    _, schemas = schema_components(types, ref_template="#/components/schemas/{name}")
    components: dict[str, Any] = {"schemas": schemas}
    if token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "toprank",
            "version": __version__,
            "description": "Ranks documents with toprank models. A missing value is null; JSON has no NaN.",
        },
        "paths": paths,
        "components": components,
    }
