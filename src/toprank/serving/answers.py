"""The work behind the endpoints: from a request that was understood to what is sent back. Nothing here waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.serving.models import Served
from toprank.serving.requests import ExplainRequest, RankRequest, RefusedError, check_ids
from toprank.serving.rows import Rows

__all__ = ["Done", "both", "explained", "ranked"]


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


class Done(NamedTuple):
    """A request that was answered."""

    X: FloatArray
    scores: FloatArray
    unseen: Mapping[str, int]
    missing: int
    written: bytes


_encode = msgspec.json.Encoder().encode


def read(model: Served, asked: RankRequest | ExplainRequest, limit: int) -> tuple[list[Any], Rows]:
    """The ids of the documents and their rows."""
    ids = check_ids(asked.documents, limit)
    if asked.query is None and model.ranker.sees_queries:
        raise RefusedError(
            422,
            f"The model '{model.name}' looks at the other documents of the query, so say which query these are of: "
            "give query, and all of its documents in one request.",
        )
    return ids, model.columns.rows(asked.documents, asked.features)


def ranked(model: Served, asked: RankRequest, limit: int, ordered: bool) -> Done:
    """The documents in order of rank, or the scores in the order of the request."""
    ids, (X, unseen) = read(model, asked, limit)
    scores = model.scores(X) if ids else np.empty(0)
    values, missing = scores.tolist(), int(np.isnan(X).sum())
    if not ordered:
        if asked.top is not None:
            raise RefusedError(
                422, "/v1/score gives all scores, in the order of the documents; top belongs to /v1/rank."
            )
        found = [_Scored(one, score) for one, score in zip(ids, values, strict=True)]
        return Done(X, scores, unseen, missing, _encode(_Scores(model.name, model.version, found)))
    order = model.order(scores, asked.top) if ids else []
    listed = [_Ranked(ids[row], values[row], rank) for rank, row in enumerate(order, start=1)]
    return Done(X, scores, unseen, missing, _encode(_Ranking(model.name, model.version, listed)))


def both(models: tuple[Served, Served], asked: RankRequest, limit: int) -> tuple[list[Any], list[int], list[int]]:
    """The ids, and how two models rank them."""
    if not asked.documents:
        return [], [], []
    first, second = models
    if not first.columns.take_the_same(second.columns):
        raise RefusedError(422, f"'{first.name}' and '{second.name}' take different columns and cannot be interleaved.")
    ids, rows = read(first, asked, limit)
    _, others = (ids, rows) if first.columns.encoding == second.columns.encoding else read(second, asked, limit)
    return ids, first.order(first.scores(rows.X)), second.order(second.scores(others.X))


def explained(model: Served, asked: ExplainRequest, limit: int) -> bytes:
    """Why document a has another score than document b."""
    ids, (X, _) = read(model, asked, limit)
    for one in (asked.a, asked.b):
        if one not in ids:
            raise RefusedError(422, f"Document {one!r} is not among the documents of the request.")
    if asked.a == asked.b:
        raise RefusedError(422, "An explanation compares two documents; a and b are the same.")
    names = [str(one) for one in ids]
    if len(set(names)) < len(names):  # the number 1 and the word "1"
        names = [repr(one) for one in ids]
    data = RankingData(X, document_ids=names, feature_names=model.columns.names, encoding=model.columns.encoding)
    told = model.ranker.explain(data, a=names[ids.index(asked.a)], b=names[ids.index(asked.b)]).to_dict()
    told |= {"model": model.name, "version": model.version, "query": asked.query}
    told["a"] |= {"id": asked.a}
    told["b"] |= {"id": asked.b}
    return _encode(told)
