"""The work behind the endpoints: from a request that was understood to what is sent back. Nothing here waits."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.serving.models import Served
from toprank.serving.requests import ExplainRequest, RankRequest, RefusedError, check_ids

__all__ = ["both", "explained", "ranked"]


class _Scored(Struct, gc=False):
    id: Any
    score: float


class _Ranked(Struct, gc=False):
    id: Any
    score: float
    rank: int


class _Ranking(Struct):
    model: str
    version: str
    ranking: list[_Ranked]


class _Scores(Struct):
    model: str
    version: str
    scores: list[_Scored]


_encode = msgspec.json.Encoder().encode


def read(model: Served, asked: RankRequest | ExplainRequest, limit: int) -> tuple[list[Any], FloatArray]:
    """The ids of the documents and their rows."""
    ids = check_ids(asked.documents, limit)
    if asked.query is None and model.looks_at_queries:
        raise RefusedError(
            422,
            f"The model '{model.name}' looks at the other documents of the query, so say which query these are of: "
            "give query, and all of its documents in one request.",
        )
    return ids, model.columns.matrix(asked.documents, asked.features)


def ranked(
    model: Served, asked: RankRequest, limit: int, ordered: bool
) -> tuple[list[Any], FloatArray, FloatArray, bytes]:
    """Ids, rows, scores, and the answer: in order of rank, or in that of the request."""
    ids, X = read(model, asked, limit)
    scores = model.scores(X) if ids else np.empty(0)
    if not ordered:
        if asked.top is not None:
            raise RefusedError(
                422, "/v1/score gives all scores, in the order of the documents; top belongs to /v1/rank."
            )
        found = [_Scored(one, score) for one, score in zip(ids, scores.tolist(), strict=True)]
        return ids, X, scores, _encode(_Scores(model.name, model.version, found))
    order = model.order(scores, asked.top) if ids else []
    values = scores.tolist()
    listed = [_Ranked(ids[row], values[row], rank) for rank, row in enumerate(order, start=1)]
    return ids, X, scores, _encode(_Ranking(model.name, model.version, listed))


def both(models: tuple[Served, Served], asked: RankRequest, limit: int) -> tuple[list[Any], list[int], list[int]]:
    """The ids, and how two models rank them."""
    if not asked.documents:
        return [], [], []
    ids, X = read(models[0], asked, limit)
    check_same(models)
    rankings = [model.order(model.scores(X)) for model in models]
    return ids, rankings[0], rankings[1]


def check_same(models: tuple[Served, Served]) -> None:
    """Refuse to interleave models of different columns."""
    a, b = (model.columns for model in models)
    if (a.names, a.count) != (b.names, b.count):
        raise RefusedError(
            422, f"'{models[0].name}' and '{models[1].name}' take different columns and cannot be interleaved."
        )


def explained(model: Served, asked: ExplainRequest, limit: int) -> bytes:
    """Why document a has another score than document b."""
    ids, X = read(model, asked, limit)
    for one in (asked.a, asked.b):
        if one not in ids:
            raise RefusedError(422, f"Document {one!r} is not among the documents of the request.")
    if asked.a == asked.b:
        raise RefusedError(422, "An explanation compares two documents; a and b are the same.")
    if not hasattr(model.ranker, "explain"):
        raise RefusedError(501, f"A {type(model.ranker).__name__} cannot be explained.")
    keys = [str(number) for number in range(len(ids))]  # ids of a request may be numbers and words; data have one kind
    data = RankingData(X, document_ids=keys, feature_names=model.columns.names)
    a, b = ids.index(asked.a), ids.index(asked.b)
    explanation = model.ranker.explain(data, qid=data.qids.tolist()[0], a=keys[a], b=keys[b])
    scores = model.scores(X)
    return _encode(
        {
            "model": model.name,
            "version": model.version,
            "a": {"id": asked.a, "score": float(scores[a])},
            "b": {"id": asked.b, "score": float(scores[b])},
            "total": float(explanation.total),
            "contributions": [
                {"feature": str(name), "contribution": float(value)}
                for name, value in explanation.contributions.items()
            ],
        }
    )
