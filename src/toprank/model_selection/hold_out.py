"""Split data for model selection: validation data, a holdout of the training data, or cross-validation folds."""

from __future__ import annotations

from typing import Any

from toprank.data.arguments import check_whole
from toprank.data.dataset import RankingData
from toprank.data.division import DividedData, Division
from toprank.data.folds import part_numbers
from toprank.errors import DataError, Remedy, count_of
from toprank.significance.results import queries


def as_data(data: Any, name: str) -> RankingData:
    """Return a `RankingData`, converting a tuple (X, y, qid)."""
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
    """Divide training data for a model selection.

    Args:
        train: training data.
        valid: validation data; if passed, nothing of `train` is held out.
        folds: number of cross-validation folds; None holds out one part.
        seed: seed of the random division.
        time_column: metadata column to divide by, so that held-out queries are later than training queries.
        holdout: fraction of the queries that is held out without folds. Default 0.2.
    """
    if valid is not None:
        _check_given(train, valid, folds, time_column)
        description = f"{count_of(valid.n_queries, 'query')} of validation data"
        return DividedData.given(train, valid, description).for_selection()
    if folds is not None:
        check_whole("folds", folds, 2)
    n_parts = 2 if folds is None else int(folds)
    if train.n_queries < n_parts:
        raise DataError(
            f"{queries(train.n_queries)} cannot be divided into {n_parts} parts; pass",
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
            "A time column has no effect if validation data are passed; omit one of the two:",
            remedy=Remedy("{valid} or {time_column}.", valid=..., time_column=...),
        )
    if folds is not None:
        raise DataError("Trials are evaluated either on valid data or on folds; omit one of the two.")
    if valid.n_features != train.n_features:
        raise DataError(
            f"The validation data have {valid.n_features} features, but the training data have "
            f"{train.n_features}. They must have the same features.",
            remedy=Remedy(
                "If trailing features are absent from the file, read it with {n_features}.",
                "",
                n_features=train.n_features,
            ),
        )
