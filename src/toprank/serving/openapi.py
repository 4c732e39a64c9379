"""The OpenAPI document: what can be asked, and every answer that may come."""

from __future__ import annotations

from typing import Any

from toprank import __version__

__all__ = ["document"]

_SAFE = 2**53 - 1
_ID: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": -_SAFE, "maximum": _SAFE}]}
_VALUE: dict[str, Any] = {"anyOf": [{"type": kind} for kind in ("number", "boolean", "string", "null")]}
_NUMBER = {"type": "number"}
_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(
    required: dict[str, Any], optional: dict[str, Any] | None = None, *, closed: bool = False
) -> dict[str, Any]:
    told: dict[str, Any] = {"type": "object", "properties": {**required, **(optional or {})}}
    told["required"] = list(required)
    if closed:
        told["additionalProperties"] = False
    return told


def _list(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


def _named(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_VALUES = {
    "description": "An array in the order of training (or of `features`), or an object by name; null: missing.",
    "anyOf": [_list(_VALUE), {"type": "object", "additionalProperties": _VALUE}],
}
_OF_QUERY = {
    "model": _or_null({**_TEXT, "description": "Its name; the primary model where none is given."}),
    "query": _or_null({**_ID, "description": "Models that look at whole queries ask for it."}),
    "features": _or_null(
        {**_list(_TEXT), "description": "Names of the values, where they are arrays in another order."}
    ),
}
_TOP = _or_null(
    {"type": "integer", "minimum": 1, "maximum": _SAFE, "description": "So many of the best; all by default."}
)
_DOCUMENTS = {"documents": _list(_named("Document"))}
_MADE_BY = {"model": _TEXT, "version": _TEXT}

_SCHEMAS: dict[str, Any] = {
    "Document": _object({"id": _ID, "values": _VALUES}, closed=True),
    "RankRequest": _object(_DOCUMENTS, {**_OF_QUERY, "top": _TOP}, closed=True),
    "ScoreRequest": _object(_DOCUMENTS, _OF_QUERY, closed=True),
    "ExplainRequest": _object({**_DOCUMENTS, "a": _ID, "b": _ID}, _OF_QUERY, closed=True),
    "InterleaveRequest": _object(
        _DOCUMENTS, {"query": _OF_QUERY["query"], "features": _OF_QUERY["features"], "top": _TOP}, closed=True
    ),
    "Clicks": _object({"impression": _TEXT, "clicked": _list(_ID)}, closed=True),
    "Ranking": _object({**_MADE_BY, "ranking": _list(_object({"id": _ID, "score": _NUMBER, "rank": _COUNT}))}),
    "Scores": _object({**_MADE_BY, "scores": _list(_object({"id": _ID, "score": _NUMBER}))}),
    "Explanation": _object(
        {
            **_MADE_BY,
            "query": _or_null(_ID),
            "a": _object({"id": _ID, "score": _NUMBER, "place": _COUNT}),
            "b": _object({"id": _ID, "score": _NUMBER, "place": _COUNT}),
            "total": _NUMBER,
            "sentence": _TEXT,
            "contributions": _list(
                _object({"feature": _TEXT, "a": _TEXT, "b": _TEXT, "contribution": _NUMBER, "error": _NUMBER})
            ),
            "exact": {"type": "boolean"},
            "method": _TEXT,
            "notes": _list(_TEXT),
        }
    ),
    "InterleavedList": _object({"impression": _TEXT, "ranking": _list(_object({"id": _ID, "rank": _COUNT}))}),
    "Counted": _object({"counted": {"type": "boolean"}}),
    "Interleaving": _object(
        {
            "models": _list(_TEXT),
            "comparisons": _list(
                _object(
                    {
                        "versions": _list(_TEXT),
                        **dict.fromkeys(("lists", "wins", "losses", "ties", "unclicked"), _COUNT),
                        "share": _or_null(_NUMBER),
                        "interval": _or_null(_list(_NUMBER)),
                        "p": _or_null(_NUMBER),
                        "words": _TEXT,
                    }
                )
            ),
        }
    ),
    "Models": _object({"primary": _TEXT, "models": _list({"type": "object"})}),
    "Status": _object({"status": _TEXT}),
    "Error": _object({"error": {**_TEXT, "description": "What is wrong, in a sentence."}}),
}
_REFUSALS = {
    400: "The body is not JSON.",
    401: "The token is missing or wrong.",
    404: "There is no such model, list or endpoint.",
    405: "The endpoint takes another method.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or has too many documents.",
    415: "The body does not say that it is JSON.",
    422: "What is asked cannot be answered: columns, ids or values are wrong.",
    501: "This model cannot do that.",
    503: "There is too much to do, or the service is stopping; Retry-After says in how many seconds to ask again.",
}
_POSTS = {
    "/v1/rank": ("RankRequest", "Ranking", "Rank the documents of a query."),
    "/v1/score": ("ScoreRequest", "Scores", "Score documents, in the order given."),
    "/v1/explain": ("ExplainRequest", "Explanation", "Why one document has another score than another."),
    "/v1/interleave": ("InterleaveRequest", "InterleavedList", "One list of two models, to be shown to a user."),
    "/v1/clicks": ("Clicks", "Counted", "Tell which documents of an interleaved list were clicked."),
}
_GETS = {
    "/v1/models": ("Models", "The models that serve."),
    "/v1/interleaving": ("Interleaving", "Which of the interleaved models users prefer."),
    "/healthz": ("Status", "Whether the process is alive."),
    "/readyz": ("Status", "Whether requests are welcome."),
}
_OPEN = ("/healthz", "/readyz")


def _content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": _named(name)}}


def _operation(path: str, summary: str, answer: str, *, body: str | None = None, token: bool) -> dict[str, Any]:
    statuses = [401, 404, 405, 503] if body is None else list(_REFUSALS)
    responses = {"200": {"description": "The answer.", "content": _content(answer)}}
    responses |= {str(status): {"description": _REFUSALS[status], "content": _content("Error")} for status in statuses}
    told: dict[str, Any] = {
        "summary": summary, "operationId": path.strip("/").replace("/", "_"), "responses": responses,
    }  # fmt: skip
    if body is not None:
        told["requestBody"] = {"required": True, "content": _content(body)}
    if token and path not in _OPEN:
        told["security"] = [{"token": []}]
    return told


def document(*, token: bool) -> dict[str, Any]:
    """The document; `token` says whether the service asks for one.

    >>> sorted(document(token=False)["paths"])[:2]
    ['/healthz', '/metrics']
    """
    paths: dict[str, Any] = {
        path: {"post": _operation(path, summary, answer, body=body, token=token)}
        for path, (body, answer, summary) in _POSTS.items()
    }
    for path, (answer, summary) in _GETS.items():
        paths[path] = {"get": _operation(path, summary, answer, token=token)}
    metrics = _operation("/metrics", "Counters, for Prometheus.", "Status", token=token)
    metrics["responses"]["200"]["content"] = {"text/plain": {"schema": _TEXT}}
    paths["/metrics"] = {"get": metrics}
    components: dict[str, Any] = {"schemas": _SCHEMAS}
    if token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "toprank",
            "version": __version__,
            "description": "Ranks documents by models that toprank trained. A missing value is null; JSON has no NaN.",
        },
        "paths": paths,
        "components": components,
    }
