"""Gains of labels on any device: the same formulas as `toprank.metrics.gains`, without a look at the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from toprank.losses.native.frame import Frame
from toprank.metrics.gains import Gain

__all__ = ["gains_of", "has_gain"]

_NAMED: dict[str, Callable[[Tensor], Tensor]] = {
    "exponential": lambda y: torch.exp2(y) - 1,
    "linear": lambda y: y,
    "clipped": lambda y: y.clamp_min(0),
    "exponential/31": lambda y: (torch.exp2(y) - 1) / 31,
}


def has_gain(gain: Any) -> bool:
    """Whether `gains_of` knows this gain: every one but functions of the user, which want NumPy arrays.

    >>> has_gain("exponential"), has_gain((0.0, 1.0)), has_gain(lambda y: y)
    (True, True, False)
    """
    known = Gain.of(gain)
    return known.steps is not None or (known.function is None and known.name in (*_NAMED, "err"))


def gains_of(frame: Frame, gain: Any, max_grade: float | None = None) -> Tensor:
    """The gain of each label; the largest label of the batch is the top grade unless `max_grade` says otherwise."""
    known = Gain.of(gain)
    if known.steps is not None:
        return frame.tensor(known.steps).index_select(0, frame.labels.long())
    if known.name == "err":
        top = frame.labels.max() if max_grade is None else frame.tensor(max_grade)
        return (torch.exp2(frame.labels) - 1) / torch.exp2(top)
    return _NAMED[known.name](frame.labels)
