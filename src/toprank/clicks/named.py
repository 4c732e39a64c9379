"""Click models by their names."""

from __future__ import annotations

from toprank.clicks.cascades import CCM, DBN, DCM, SDBN, Cascade
from toprank.clicks.models import PBM, UBM, ClickModel, DocumentCTR, GlobalCTR, RankCTR
from toprank.errors import UnknownNameError

__all__ = ["MODELS", "RATES", "model_named"]

_ALL: tuple[type[ClickModel], ...] = (GlobalCTR, RankCTR, DocumentCTR, PBM, UBM, Cascade, DCM, SDBN, DBN, CCM)
MODELS: dict[str, type[ClickModel]] = {one.__name__: one for one in _ALL}
RATES = ("GlobalCTR", "RankCTR", "DocumentCTR")
"""What every model must beat."""


def model_named(name: str) -> type[ClickModel]:
    """A click model by its name, in any case.

    >>> model_named("pbm").__name__
    'PBM'
    """
    found = {known.lower(): model for known, model in MODELS.items()}.get(name.lower())
    if found is None:
        raise UnknownNameError("click model", name, MODELS)
    return found
