"""Does a loss keep its promises? `check_loss` tries each of them on a little data and says what does not hold.

Rankers believe what a loss says of itself: a solver is chosen by its traits, a Newton step by its curvature, blocks of
queries run on several threads. A slip in any of these does not crash; it trains a slightly wrong model. So every
promise of `toprank.losses.base` is compared here with something computed in another way.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from toprank.data.queries import Queries
from toprank.losses.base import Loss
from toprank.losses.promises import CHECKS, Trial, answers, said

__all__ = ["check_loss"]


def check_loss(
    loss: Loss,
    labels: npt.ArrayLike | None = None,
    queries: Queries | None = None,
    *,
    scores: npt.ArrayLike | None = None,
    seed: int = 0,
) -> list[str]:
    """Sentences that say which promises a loss does not keep; an empty list where it keeps all.

    Checked: the gradient against central differences of the value (unless `exact_gradient` is not claimed); the
    curvature for symmetry, positive semi-definiteness and, where it claims to be exact, against differences of the
    gradient; convexity where claimed; invariance to shifts where claimed, and that it is claimed where it holds; that
    the order of rows in a query does not matter; that blocks of queries add up to the whole; weights of queries and
    documents; that scores of ±1e8 give finite numbers.

    Nothing is raised for a faulty loss: an exception becomes a sentence, too.

    Args:
        loss: the loss to examine.
        labels: labels that it takes; by default grades 0 to 4 in queries of 1 to 7 documents.
        queries: their queries; by default all labels are one query. Whole queries up to about 200 documents are used.
        scores: where to examine it, (n,), or (n, columns) for a loss in class space; by default random normal.
        seed: decides everything random.

    >>> from toprank.losses import ListNet
    >>> check_loss(ListNet(alpha=2.0))
    []
    """
    try:
        trial = Trial.of(loss, labels, queries, scores, np.random.default_rng(seed))
    except Exception as trouble:  # noqa: BLE001 - somebody else's code: what it raises is a finding
        return [f"The loss could not be bound to the labels: {said(trouble)}"]
    found: list[str] = []
    for check in CHECKS:
        try:
            with np.errstate(all="ignore"):  # what counts is the result; that it is finite is a check of its own
                found += check(trial)
        except Exception as trouble:  # noqa: BLE001
            found.append(f"{(check.__doc__ or '').rstrip('.')}: this could not be checked. {said(trouble)}")
            if check is answers:
                break  # it would only be said again and again
    return found
