"""Which queries a trial learns from and which judge it. A query is never divided."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toprank.data.dataset import RankingData
from toprank.data.folds import split
from toprank.errors import DataError

__all__ = ["Division", "Part", "divide"]

_HELD_OUT = 0.2


class Part(NamedTuple):
    """To learn from, and to judge by."""

    train: RankingData
    valid: RankingData


class Division(NamedTuple):
    """The parts of the data, and what they are in words."""

    parts: tuple[Part, ...]
    words: str
    folded: bool
    """Whether every query judges once: then the answer may learn from all of them."""


def divide(train: RankingData, valid: RankingData | None, folds: int | None, seed: int) -> Division:
    """The given validation data; or so many folds; or a fifth of the queries held out, drawn by seed."""
    for name, data in (("train", train), ("valid", valid)):
        if data is not None and not isinstance(data, RankingData):
            raise DataError(f"{name} must be a RankingData: tr.RankingData(X, y, qid=qid), or tr.read(path).")
    if valid is not None:
        if folds is not None:
            raise DataError("Trials are judged on valid data or on folds, not on both; leave one of them out.")
        if valid.n_features != train.n_features:
            raise DataError(
                f"The validation data have {valid.n_features} features, but the training data {train.n_features}. "
                "Read the file with n_features= of the training data where trailing features are absent."
            )
        return Division((Part(train, valid),), f"{_count(valid.n_queries)} of validation data", False)
    if folds is None:
        _check_enough(train, 2)
        fraction = max(_HELD_OUT, 1 / train.n_queries)
        kept, held_out = split(train, (1 - fraction, fraction), seed=seed)
        words = f"{_count(held_out.n_queries)} held out of {train.n_queries:,}"
        return Division((Part(kept, held_out),), words, False)
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2:
        raise DataError(f"folds must be a whole number of at least 2, not {folds!r}.")
    folds = int(folds)
    _check_enough(train, folds)
    judges = split(train, [1 / folds] * folds, seed=seed)
    parts = tuple(Part(train.select(~np.isin(train.qids, judge.qids)), judge) for judge in judges)
    return Division(parts, f"{_count(train.n_queries)} in {folds} folds", True)


def _check_enough(data: RankingData, parts: int) -> None:
    if data.n_queries < parts:
        raise DataError(
            f"{_count(data.n_queries)} cannot be divided into {parts} parts; give valid= data, or more queries."
        )


def _count(queries: int) -> str:
    return f"{queries:,} {'query' if queries == 1 else 'queries'}"
