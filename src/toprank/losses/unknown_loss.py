"""`UnknownLoss`: the placeholder for a custom loss in a model file, with which the model can be loaded and predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from toprank.errors import DataError
from toprank.losses.base import Judgments, Loss, Traits


@dataclass(frozen=True)
class UnknownLoss(Loss):
    """The name of a loss that toprank does not provide; model files contain no code.

    Args:
        name: name of its class.
        space: ``score`` or ``class``; see `Traits`.
        columns: ``grades`` or ``thresholds``.
    """

    name: str = ""
    space: Literal["score", "class"] = "score"
    columns: Literal["grades", "thresholds"] = "grades"

    @property
    def traits(self) -> Traits:  # type: ignore[override]
        """Properties; only the space is declared."""
        return Traits(convex=False, smooth=False, shift_invariant=False, space=self.space, columns=self.columns)

    def bind(self, judgments: Judgments) -> NoReturn:
        """Raise an error, because the code of the loss is unknown."""
        del judgments
        raise DataError(
            f"This ranker was trained under {self.name}, a loss that toprank does not have: its file holds the name, "
            "not the code, so it predicts, but is not trained further. Set the loss itself first: "
            "ranker.set_params(loss=...)."
        )


def named(loss: Loss) -> dict[str, Any]:
    """Return the entry of such a loss in a model file."""
    name = loss.name if isinstance(loss, UnknownLoss) else type(loss).__name__
    return {"name": name, "space": loss.traits.space, "columns": loss.traits.columns}
