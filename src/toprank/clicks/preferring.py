"""Clicked above skipped: a document that was clicked is preferred to those above it that were not (Joachims 2002).

The user has looked at what stands above a click, so such a pair says something whatever the positions are worth; what
stands below is left alone. Preferences never say that the order shown was right, so rankers trained on them alone turn
lists around: they belong beside other data.
"""

from __future__ import annotations

import numpy as np

from toprank.clicks.corrections import rows_of
from toprank.clicks.log import ClickLog
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.errors import DataError

__all__ = ["preferences"]


def preferences(log: ClickLog, data: RankingData) -> RankingData:
    """Every two documents of which one was clicked below the other, as a query of two: labels 1 and 0.

    Its weight is how often that happened. Any ranker takes them; under `Logistic` or `Hinge` it is RankSVM's way to
    learn from clicks. Documents that the data do not have are left out.

    Returns:
        data whose queries are called ``query:preferred>other`` by row numbers of `data`.

    >>> data = RankingData([[0.0], [1.0]], qid=["q", "q"], document_ids=["x", "y"])
    >>> log = ClickLog.of(["q"] * 2, ["x", "y"], [1, 2], [0, 1])
    >>> pairs = preferences(log, data)
    >>> pairs.X.tolist(), pairs.labels.tolist(), pairs.query_weights.tolist()
    ([[1.0], [0.0]], [1.0, 0.0], [1.0])
    """
    row = rows_of(log, data)
    place = np.arange(log.n_impressions) - np.repeat(log.offsets[:-1], np.diff(log.offsets))
    better, worse = [], []
    for up in range(1, int(place.max()) + 1):  # a click and the document so many places above it
        below = np.flatnonzero((place >= up) & log.clicks)
        below = below[~log.clicks[below - up] & (row[below] >= 0) & (row[below - up] >= 0)]
        better.append(row[below])
        worse.append(row[below - up])
    pairs = np.stack([np.concatenate(better), np.concatenate(worse)], axis=1) if better else np.empty((0, 2), np.int64)
    if not len(pairs):
        raise DataError("No document was clicked below one that was skipped: the log has no such preferences.")
    pairs, counts = np.unique(pairs, axis=0, return_counts=True)
    rows, query = pairs.reshape(-1), data.queries.document_query[pairs[:, 0]]
    return RankingData(
        data.X[rows], np.tile([1.0, 0.0], len(pairs)), queries=Queries.from_sizes(np.full(len(pairs), 2)),
        qids=np.array([f"{data.qids[q]}:{one}>{other}" for q, (one, other) in zip(query, pairs, strict=True)]),
        query_weights=counts.astype(np.float64), feature_names=data.feature_names, encoding=data.encoding,
    )  # fmt: skip
