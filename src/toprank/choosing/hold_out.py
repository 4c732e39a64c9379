"""Which queries judge: those of validation data, a held-out part of the training data, or each fold in turn."""

from __future__ import annotations

from typing import Any

import numpy as np

from toprank.choosing.search import Division, HoldOut
from toprank.data.checks import check_whole
from toprank.data.dataset import RankingData
from toprank.data.folds import split
from toprank.data.periods import periods
from toprank.errors import DataError, Remedy
from toprank.significance.results import queries


def as_data(data: Any, name: str) -> RankingData:
    """Return ranking data, also from (X, y, qid)."""
    if isinstance(data, tuple) and len(data) == 3:
        X, y, qid = data
        return RankingData(X, y, qid=qid)
    if not isinstance(data, RankingData):
        raise DataError(
            f"{name} must be a RankingData, tr.RankingData(X, y, qid=qid) or tr.read(path), or (X, y, qid)."
        )
    return data


def divide(
    train: RankingData,
    valid: RankingData | None,
    *,
    folds: int | None = None,
    seed: int = 0,
    by: str | None = None,
    holdout: float = 0.2,
) -> Division:
    """Judge on validation data, or on so many folds, or on a share of the queries, drawn by the seed or the latest."""
    if valid is not None:
        _check_given(train, valid, folds, by)
        return Division.of(train, valid)
    if folds is None:
        _check_enough(train, 2)
        fraction = max(holdout, 1 / train.n_queries)  # one query at least
        drawn: dict[str, Any] = {"seed": seed} if by is None else {"by": by}
        kept, held_out = split(train, (1 - fraction, fraction), **drawn)
        latest = "" if by is None else f", the latest by '{by}'"
        words = f"{queries(held_out.n_queries)} held out of {train.n_queries:,}{latest}"
        return Division((HoldOut(kept, held_out),), words, held_out=held_out.n_queries)
    check_whole("folds", folds, 2)
    folds = int(folds)
    _check_enough(train, folds)
    if by is not None:
        number = periods(train, by, [1 / (folds + 1)] * (folds + 1))
        windows = [(number < end, number == end) for end in range(1, folds + 1)]
        parts = tuple(HoldOut(train.select(past), train.select(period)) for past, period in windows)
        words = f"{queries(sum(part.valid.n_queries for part in parts))} in {folds} folds by '{by}'"
        return Division(parts, words, folded=True)
    judges = split(train, [1 / folds] * folds, seed=seed)
    parts = tuple(HoldOut(train.select(~np.isin(train.qids, judge.qids)), judge) for judge in judges)
    return Division(parts, f"{queries(train.n_queries)} in {folds} folds", folded=True)


def _check_given(train: RankingData, valid: RankingData, folds: int | None, by: str | None) -> None:
    if by is not None:
        raise DataError(
            "Validation data are given, so nothing is held out by time; leave one of the two out:",
            remedy=Remedy("{valid} or {by}.", valid=..., by=...),
        )
    if folds is not None:
        raise DataError("Trials are judged on valid data or on folds, not on both; leave one of them out.")
    if valid.n_features != train.n_features:
        raise DataError(
            f"The validation data have {valid.n_features} features, but the training data {train.n_features}. They "
            "must be the same.",
            remedy=Remedy(
                "Read the file with {n_features} where trailing features are absent.",
                "",
                n_features=train.n_features,
            ),
        )


def _check_enough(data: RankingData, parts: int) -> None:
    if data.n_queries < parts:
        raise DataError(
            f"{queries(data.n_queries)} cannot be divided into {parts} parts; give",
            remedy=Remedy("{valid} data, or more queries.", valid=...),
        )
