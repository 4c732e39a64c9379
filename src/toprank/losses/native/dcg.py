"""What DCG and NDCG read off the labels of a grid."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from toprank.losses.native.frame import Frame
from toprank.losses.native.gains import has_gain
from toprank.metrics.gains import Discount
from toprank.metrics.graded import DCG, NDCG

__all__ = ["FAR_BELOW", "has_dcg", "ideal_dcg"]

FAR_BELOW = -1e30  # the score of padded places: below every other, and differences to it stay finite


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
