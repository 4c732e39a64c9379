"""Documents without a judgment (label NaN or -1): the rules that say what that means, and how a refusal puts it."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from toprank.data.dataset import RankingData
from toprank.data.folds import Fold, Folds
from toprank.errors import DataError, Remedy, UnknownNameError

Unjudged = Literal["refuse", "irrelevant", "condense", "drop"]
UNJUDGED: tuple[str, ...] = get_args(Unjudged)
_REST = "condense (take them out of the lists) or drop (leave their queries out)."


def choose_a_rule(*python: str) -> Remedy:
    """What to do about unjudged documents, with another way for Python where that has no argument for it."""
    choice = f"choose what that means: {{unjudged}}, {_REST}"
    return Remedy(*python, choice, "label them, or leave them out of the data.", unjudged="irrelevant")


def settled(data: RankingData, rule: str) -> tuple[RankingData, npt.NDArray[np.bool_] | None]:
    """The data under a rule for unjudged documents, and which documents were kept; None: all.

    >>> data = RankingData(np.zeros((4, 1)), [1, -1, 0, 2], qid=[1, 1, 2, 2])
    >>> for rule in ("irrelevant", "condense", "drop"):
    ...     print(settled(data, rule)[0].labels.tolist())
    [1.0, 0.0, 0.0, 2.0]
    [1.0, 0.0, 2.0]
    [0.0, 2.0]
    """
    if rule not in UNJUDGED:
        raise UnknownNameError("rule for unjudged documents", rule, UNJUDGED)
    if not data.grades.some_unjudged:
        return data, None
    judged = data.judged
    if rule == "refuse":
        raise DataError(
            f"{int((~judged).sum()):,} of {data.n_documents:,} documents are not judged (label NaN or -1);",
            remedy=choose_a_rule(),
        )
    if rule == "irrelevant":
        return data.replace(labels=np.where(judged, data.labels, 0.0)), None
    kept = judged if rule == "condense" else data.queries.broadcast(data.queries.min(judged))
    if not kept.any():
        left = "No document is judged, so" if rule == "condense" else "Every query has unjudged documents, so"
        other = "irrelevant" if rule == "condense" else "condense"
        raise DataError(
            left,
            remedy=Remedy(f"{{unjudged}} leaves none; use {other}.", unjudged=rule),
        )
    return data.filter(kept), kept


def settled_folds(folds: Folds, rule: str) -> Folds:
    """The folds with a rule applied to each part of each, when it is asked for."""
    return folds.each(
        lambda fold: Fold(fold.name, **{name: settled(part, rule)[0] for name, part in fold.parts.items()})
    )
