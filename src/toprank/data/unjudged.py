"""Rules for documents without a judgment (label NaN or -1)."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from toprank.data.dataset import RankingData
from toprank.data.folds import Fold, Folds
from toprank.errors import DataError, Remedy, UnknownNameError

Unjudged = Literal["refuse", "irrelevant", "condense", "drop"]
UNJUDGED: tuple[str, ...] = get_args(Unjudged)
_REST = "condense (remove them from the lists) or drop (remove their queries)."


def choose_a_rule(*python: str) -> Remedy:
    """Return the remedy for unjudged documents, with another text for Python functions without the argument."""
    choice = f"choose a rule for them: {{unjudged}}, {_REST}"
    return Remedy(*python, choice, "label them, or remove them from the data.", unjudged="irrelevant")


def apply_rule(data: RankingData, rule: str) -> tuple[RankingData, npt.NDArray[np.bool_] | None]:
    """Apply a rule for unjudged documents; return the data and a mask of the kept documents (None if all).

    >>> data = RankingData(np.zeros((4, 1)), [1, -1, 0, 2], qid=[1, 1, 2, 2])
    >>> for rule in ("irrelevant", "condense", "drop"):
    ...     print(apply_rule(data, rule)[0].labels.tolist())
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


def apply_rule_to_folds(folds: Folds, rule: str) -> Folds:
    """Return folds with a rule for unjudged documents applied lazily to each part."""
    return folds.each(
        lambda fold: Fold(fold.name, **{name: apply_rule(part, rule)[0] for name, part in fold.parts.items()})
    )
