"""Warnings about data that are allowed but probably not what was meant."""

from __future__ import annotations

from collections.abc import Callable

from toprank.data.dataset import RankingData
from toprank.data.encoding import listed
from toprank.errors import warn_user

MIN_UNUSUAL_DOCUMENTS = 200
"""Documents: a single list of more than that is rare where `qid` was left out on purpose."""


class OneQueryWarning(UserWarning):
    """Many rows without `qid` were taken as one query."""


class CodesWarning(UserWarning):
    """Codes of categories are written without the categories that they stand for."""


class SameDataWarning(UserWarning):
    """Hyper-parameters are chosen on the training data."""


class SameJudgeWarning(UserWarning):
    """A ranker is evaluated by the labels of a judge that it was trained on."""


class SplitQueriesWarning(UserWarning):
    """Queries of the training data are evaluated on other rows of theirs."""


class WeightsWarning(UserWarning):
    """Weights are written to a file whose readers take them for features unless told otherwise."""


def warn_one_query(n_documents: int, doing: str, warn: Callable[[str, type[Warning]], None] = warn_user) -> None:
    """Warn that rows without query ids were taken as one query, if there are many."""
    if n_documents > MIN_UNUSUAL_DOCUMENTS:
        warn(
            f"{doing} takes all {n_documents:,} rows as one query, since no qid was given. Give the query of each row "
            "with qid=; if they are one query indeed, give all the same.",
            OneQueryWarning,
        )


def warn_codes(data: RankingData, where: str) -> None:
    """Warn that codes of categories are written without their levels."""
    known = data.encoding
    if known is None or not known.categories:
        return
    names = [known.columns[number].name for number in known.categories]
    single = len(names) == 1
    warn_user(
        f"The {'column' if single else 'columns'} {listed(names)} {'holds' if single else 'hold'} codes of categories, "
        f"and {where} cannot say what they mean: that depends on the table that was read. Keep a table (.parquet) or a "
        "stored copy, which remember it; other tables get the same codes by like=.",
        CodesWarning,
    )
