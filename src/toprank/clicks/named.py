"""Click models by their names, and a prior that suits a log."""

from __future__ import annotations

from toprank.clicks.cascades import CCM, DBN, DCM, SDBN, Cascade
from toprank.clicks.log import ClickLog
from toprank.clicks.models import PBM, UBM, ClickModel, DocumentCTR, GlobalCTR, RankCTR
from toprank.errors import UnknownNameError

__all__ = ["MODELS", "RATES", "model_named", "rate_prior"]

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


def rate_prior(log: ClickLog, impressions: float = 2.0) -> tuple[float, float]:
    """A prior of so many impressions with the rate of clicks at the first position of the log, as clicks and skips.

    There everything is looked at, so that the rate is the mean attraction of what was shown. A prior with another mean
    draws rarely shown documents to it, and so the examination of the positions at which they stand the other way.

    >>> rate_prior(ClickLog.of(["q"] * 4, ["a"] * 4, [1] * 4, [1, 0, 0, 0]))
    (0.6, 1.4)
    """
    first = log.clicks[log.position == (log.position.min() if log.n_impressions else 1)]
    rate = (float(first.sum()) + 0.5) / (len(first) + 1)
    return impressions * rate, impressions * (1 - rate)
