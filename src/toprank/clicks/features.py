"""Attraction from features: a ranker whose score is the log-odds of a click on an examined document.

The M-step is a logistic regression: the ranker is fitted to P(attracted | clicks) of each document, weighted by its
impressions (regression EM; Wang et al., 2018). It predicts documents without clicks from their features.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toprank.clicks.log import ClickLog
from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData, check_data, dense_rows
from toprank.errors import DataError
from toprank.losses import CrossEntropy, Loss
from toprank.rankers.base import Ranker
from toprank.rankers.estimator import unfitted


class AttractionByFeatures:
    """The M-step of attractions by features: fit σ(f(x)) to the expected attractions and examinations of each pair.

    Args:
        ranker: ranker that learns f; a copy with the loss `CrossEntropy` is fitted.
        log: log whose pairs are learned.
        data: features, with document ids.
    """

    def __init__(self, ranker: Any, log: ClickLog, data: RankingData | None) -> None:
        self._new = under(CrossEntropy(gain=None), ranker, "attraction")
        grouped, rows = rows_of_all(log, data, "attraction")
        known = np.zeros(grouped.n_documents, dtype=bool)
        known[rows] = True
        self._data, self._place = grouped.filter(known), (np.cumsum(known) - 1)[rows]

    def __call__(self, part: FloatArray, whole: FloatArray) -> FloatArray:
        """Fit f to part / whole, weighted by the whole, and return σ(f) of each pair."""
        n = self._data.n_documents
        likes, looks = np.bincount(self._place, part, n), np.bincount(self._place, whole, n)
        liked = np.divide(likes, looks, out=np.zeros(n), where=looks > 0)
        self.ranker = unfitted(self._new)  # the previous one may be in use
        self.ranker.fit(self._data.replace(labels=np.clip(liked, 0.0, 1.0), document_weights=looks))
        chances: FloatArray = logistic(np.asarray(self.ranker.predict(self._data), dtype=np.float64))[self._place]
        return chances


def under(loss: Loss, ranker: Any, role: str) -> Any:
    """Return a copy of a ranker with this loss."""
    if not isinstance(ranker, Ranker) or "loss" not in ranker.get_params(deep=False):
        raise DataError(
            f"The {role} is learned by a ranker that takes any loss (tr.LinearRanker(), tr.TreeRanker(), "
            f"tr.NeuralRanker()), not by {'nothing' if ranker is None else f'a {type(ranker).__name__}'}; give ranker=."
        )
    copy = unfitted(ranker)
    copy.set_params(loss=loss)
    return copy


def rows_of_all(log: ClickLog, data: RankingData | None, role: str) -> tuple[RankingData, IntArray]:
    """Return the data with contiguous queries, and the row of each pair of the log; raise an error if one is
    missing.
    """
    if data is None:
        raise DataError(
            f"The {role} is learned from features; give the data that hold the features of the log's documents."
        )
    check_data("a click log with features", data)
    rows = log.rows(data)
    missing = np.flatnonzero(rows < 0)
    if len(missing):
        query, document = log.qids[log.pair_query[missing[0]]], log.document_ids[missing[0]]
        raise DataError(
            f"{len(missing):,} of the log's {log.n_pairs:,} documents are not in the data (query {query}, document "
            f"{document} for one), so their features are missing. Add them, or leave out their sessions."
        )
    return data, rows


def same_features(log: ClickLog, data: RankingData) -> IntArray:
    """Return an index of the feature vector of each pair; pairs with equal features have equal indices."""
    grouped, rows = rows_of_all(log, data, "graph")
    X = grouped.X[rows]
    dense = dense_rows(X) + 0.0  # -0 is 0
    whole = dense.view(np.dtype((np.void, dense.dtype.itemsize * dense.shape[1]))).reshape(-1)
    return np.unique(whole, return_inverse=True)[1]


def logistic(scores: FloatArray) -> FloatArray:
    """Return 1 / (1 + e^-s) without overflow."""
    small = np.exp(-np.abs(scores))
    return np.asarray(np.where(scores >= 0, 1.0, small) / (1.0 + small))
