"""The refinement scheme of importance-weighted regression: the loop over active documents (Cossock & Zhang 2008
§VI).
"""

from __future__ import annotations

from typing import Protocol

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.losses import ImportanceWeightedSquared, Loss, Squared

__all__ = ["refine"]

_MAX_ROUNDS = 50


class Refinable(Protocol):
    """A ranker that can be fitted again and again on parts of the data."""

    active_: list[int]

    def fit_standardised(self, data: RankingData, loss: Loss, valid: RankingData | None) -> None:
        """Fit."""

    def predict(self, X: RankingData) -> FloatArray:
        """Score."""


def refine(ranker: Refinable, data: RankingData, loss: Loss, valid: RankingData | None) -> None:
    """Fit least squares on the active documents until no ignored one scores above δ; `active_` counts them.

    Afterwards no ignored document scores above δ, so the sup term of the loss is 0 at the solution.
    """
    if not isinstance(loss, ImportanceWeightedSquared):
        raise DataError(f"refine=True belongs to ImportanceWeightedSquared, not to {type(loss).__name__}.")
    top = loss.max_grade if loss.max_grade is not None else float(data.labels.max())
    squared = Squared(gain=loss.gain, max_grade=top, per_document=loss.per_document)
    active = loss.first_active(data.labels, data.queries)
    ranker.active_ = []
    for _ in range(_MAX_ROUNDS):
        ranker.active_.append(int(active.sum()))
        weights = loss.active_weights(data.labels, data.queries, active)
        if data.document_weights is not None:
            weights = weights * data.document_weights
        part = data.replace(document_weights=weights).keep(active)
        ranker.fit_standardised(part, squared, valid)
        grown = loss.now_active(active, ranker.predict(data))
        if (grown == active).all():
            return
        active = grown
    raise DataError(f"Refinement did not come to rest in {_MAX_ROUNDS} rounds; raise delta, or fit without refine.")
