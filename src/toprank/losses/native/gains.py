"""What metrics read off labels, on any device: the formulas of `toprank.metrics.gains`, without a look at the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from toprank.losses.native.frame import Frame
from toprank.metrics.gains import Discount, Gain
from toprank.metrics.graded import DCG, NDCG

__all__ = ["FAR_BELOW", "gains_of", "has_dcg", "has_gain", "ideal_dcg"]

FAR_BELOW = -1e30  # the score of padded places: below every other, and differences to it stay finite

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
    """The gain of each label; the largest label of the data is the top grade unless `max_grade` says otherwise."""
    known = Gain.of(gain)
    if known.steps is not None:
        return frame.tensor(known.steps).index_select(0, frame.labels.long())
    if known.name == "err":
        grade = frame.max_grade if max_grade is None else max_grade
        top = frame.labels.max() if grade is None else frame.tensor(grade)
        return (torch.exp2(frame.labels) - 1) / torch.exp2(top)
    return _NAMED[known.name](frame.labels)


def has_dcg(measure: object, gain: Any) -> bool:
    """NDCG and DCG with any gain but a function of the user."""
    return type(measure) in (DCG, NDCG) and has_gain(measure.gain or gain)  # type: ignore[attr-defined]


def ideal_dcg(frame: Frame, measure: DCG, gains: Tensor, ideal_cut: int | None) -> tuple[Tensor, Tensor]:
    """(M,) weights of the ranks (float64), and (B, 1) one over the ideal DCG, 0 where that is 0 (1 for plain DCG).

    Args:
        frame: the batch.
        measure: NDCG or DCG.
        gains: (B, M), 0 in padded places.
        ideal_cut: where the ideal DCG ends, unless the measure has a cut-off.
    """
    weights = (measure.discount or Discount.of("log2")).weights(gains.shape[1])
    if measure.depth is not None:
        weights[measure.depth :] = 0.0
    rank_weights = frame.tensor(weights, torch.float64)
    if not isinstance(measure, NDCG):
        return rank_weights, gains.new_ones(len(gains), 1)
    counted = rank_weights.to(frame.dtype)[: ideal_cut if measure.k is None else None]
    ideal = torch.sum(gains.sort(dim=1, descending=True).values[:, : len(counted)] * counted, 1, keepdim=True)
    return rank_weights, torch.where(ideal > 0, 1.0 / ideal, 0.0)
