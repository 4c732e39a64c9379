"""Which queries judge: those of validation data, a held-out part of the training data, or each fold in turn."""

from __future__ import annotations

from typing import Any

from toprank.data.arguments import check_whole
from toprank.data.dataset import RankingData
from toprank.data.division import DividedData, Division
from toprank.data.folds import part_numbers
from toprank.errors import DataError, Remedy, count_of
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
    time_column: str | None = None,
    holdout: float = 0.2,
) -> DividedData:
    """Judge on validation data, or on so many folds, or on a share of the queries, drawn by the seed or the latest."""
    if valid is not None:
        _check_given(train, valid, folds, time_column)
        description = f"{count_of(valid.n_queries, 'query')} of validation data"
        return DividedData.given(train, valid, description).for_selection()
    if folds is not None:
        check_whole("folds", folds, 2)
    n_parts = 2 if folds is None else int(folds)
    if train.n_queries < n_parts:
        raise DataError(
            f"{queries(train.n_queries)} cannot be divided into {n_parts} parts; give",
            remedy=Remedy("{valid} data, or more queries.", valid=...),
        )
    drawn: dict[str, Any] = {"seed": seed} if time_column is None else {"time_column": time_column}
    if folds is None:
        fraction = max(holdout, 1 / train.n_queries)  # one query at least
        part = part_numbers(train, (1 - fraction, fraction), **drawn)
        latest = "" if time_column is None else f", the latest by '{time_column}'"
        words = f"{queries(int((part == 1).sum()))} held out of {train.n_queries:,}{latest}"
        division = Division.holdout(part == 1, words)
    elif time_column is None:
        part = part_numbers(train, [1 / n_parts] * n_parts, **drawn)
        division = Division.folds(part, f"{queries(train.n_queries)} in {n_parts} folds")
    else:
        period = part_numbers(train, [1 / (n_parts + 1)] * (n_parts + 1), **drawn)
        division = Division.expanding(
            period, f"{queries(int((period > 0).sum()))} in {n_parts} folds by '{time_column}'"
        )
    return division.on(train).for_selection()


def _check_given(train: RankingData, valid: RankingData, folds: int | None, time_column: str | None) -> None:
    if time_column is not None:
        raise DataError(
            "Validation data are given, so nothing is held out by time; leave one of the two out:",
            remedy=Remedy("{valid} or {time_column}.", valid=..., time_column=...),
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
