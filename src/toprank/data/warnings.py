"""Warnings about data that are valid but probably not intended."""

from __future__ import annotations

from collections.abc import Callable

from toprank.data.dataset import RankingData
from toprank.data.encoding import listed
from toprank.errors import warn_user

MIN_UNUSUAL_DOCUMENTS = 200
"""Number of documents above which a single query without `qid` is probably a mistake."""


class OneQueryWarning(UserWarning):
    """Many rows without `qid` were treated as one query."""


class CodesWarning(UserWarning):
    """Category codes are written without the names of the categories."""


class SameDataWarning(UserWarning):
    """Hyperparameters are chosen on the training data."""


class SameJudgeWarning(UserWarning):
    """A ranker is evaluated on labels of the same judge as its training labels."""


class SplitQueriesWarning(UserWarning):
    """A ranker is evaluated on unseen rows of queries that it was trained on."""


class WeightsWarning(UserWarning):
    """Weights are written to a file from which they are read as features by default."""


def warn_one_query(n_documents: int, doing: str, warn: Callable[[str, type[Warning]], None] = warn_user) -> None:
    """Warn if many rows without query ids are treated as one query."""
    if n_documents > MIN_UNUSUAL_DOCUMENTS:
        warn(
            f"{doing} treats all {n_documents:,} rows as one query, because no qid was given. Pass the query id of "
            "each row as qid=; if they really belong to one query, give all the same id.",
            OneQueryWarning,
        )


def warn_codes(data: RankingData, where: str) -> None:
    """Warn if category codes are written without their levels."""
    known = data.encoding
    if known is None or not known.categories:
        return
    names = [known.columns[number].name for number in known.categories]
    single = len(names) == 1
    warn_user(
        f"The {'column' if single else 'columns'} {listed(names)} {'holds' if single else 'hold'} codes of categories, "
        f"but {where} does not store the categories, and the codes depend on the table that was read. Keep a table "
        "(.parquet) or a stored copy, which store them; pass like= to get the same codes for other tables.",
        CodesWarning,
    )
