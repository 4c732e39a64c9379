"""Whether users click what stands first because it stands there, which propensities without offsets do not know.

P(click) is α_k R + β_k where they do (`toprank.clicks.trust`), and a multiple of R where they do not. So β is fitted to
a part of the log; where that of any position is surely not 0, propensities alone mislead.
"""

from __future__ import annotations

import warnings

import numpy as np

from toprank.clicks.cascading import some_queries
from toprank.clicks.estimators import propensities
from toprank.clicks.log import ClickLog

__all__ = ["trusting_users"]

_DEEPEST = 10  # what stands lower is clicked too rarely to tell slopes from offsets
_LEAST = 200  # sessions, below which nothing is said of users
_LEVEL = 0.002  # of the doubt that any position is found by chance: 50 draws do not know the far ends well
_SMALL = 0.05  # clicks, beside those at the first position: less would hardly turn a decision


def trusting_users(log: ClickLog, seed: int) -> list[str]:
    """A sentence on users who trust positions, where the log surely has them."""
    part = some_queries(log.top(_DEEPEST), seed)
    if part.n_sessions < _LEAST or part.depth < 2:
        return []
    with warnings.catch_warnings():  # what cannot be told apart, or does not come to rest, is not found
        warnings.simplefilter("ignore")
        found = propensities(part, "trust", confidence=1 - _LEVEL / (part.depth - 1), seed=seed)
    if found.offsets is None or found.offset_intervals is None:
        return []
    low, high = found.offset_intervals
    with np.errstate(invalid="ignore"):
        sure = np.flatnonzero(((low > 0) | (high < 0)) & (np.abs(found.offsets) > _SMALL))
    if not len(sure):
        return []
    places = ", ".join(str(place + 1) for place in sure.tolist())
    noun = "position" if len(sure) == 1 else "positions"
    return [
        f"Users trust positions: at {noun} {places} clicks go otherwise by what documents are worth than at the first. "
        "The estimates may mislead; the propensities of the method 'trust' know such users."
    ]
