"""`OwnLoss`: what a model file says of a loss that is not toprank's, so that the model can be read and predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from toprank.errors import DataError
from toprank.losses.base import Judgments, Loss, Traits


@dataclass(frozen=True)
class OwnLoss(Loss):
    """The name of a loss that only its author has: a file cannot hold code, and so not the loss.

    Args:
        name: what its class is called.
        space: ``score`` or ``class``; see `Traits`.
        columns: ``grades`` or ``thresholds``.
    """

    name: str = ""
    space: Literal["score", "class"] = "score"
    columns: Literal["grades", "thresholds"] = "grades"

    @property
    def traits(self) -> Traits:  # type: ignore[override]
        """Nothing is claimed but the space."""
        return Traits(convex=False, smooth=False, shift_invariant=False, space=self.space, columns=self.columns)

    def bind(self, judgments: Judgments) -> NoReturn:
        """Refuses, since what the loss computes is not known."""
        del judgments
        raise DataError(
            f"This ranker was trained under {self.name}, a loss that toprank does not have: its file tells the name, "
            "not the code, so it predicts, but is not trained further. Set the loss itself first: "
            "ranker.set_params(loss=...)."
        )


def named(loss: Loss) -> dict[str, Any]:
    """What a file says of it."""
    name = loss.name if isinstance(loss, OwnLoss) else type(loss).__name__
    return {"name": name, "space": loss.traits.space, "columns": loss.traits.columns}
