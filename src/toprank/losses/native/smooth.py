"""Smooth ranks r_j = 1 + Σ_{k≠j} σ((s_k − s_j)/T): `ApproxNDCG`, and `ApproxMetric` for NDCG and DCG.

With p_jk = σ(z_k − z_j), dp_jk/dz_k = p_jk·p_kj is symmetric, so the gradient is dL/dz_k = Σ_j p_jk·p_kj·(u_j − u_k),
u_j = dL/dr_j.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from toprank.losses.approx import ApproxMetric, ApproxNDCG
from toprank.losses.native.frame import Frame, Judge
from toprank.losses.native.gains import FAR_BELOW, gains_of, has_dcg, ideal_dcg
from toprank.losses.native.grids import Grid, collected, grids_of
from toprank.metrics.graded import DCG, NDCG
from toprank.metrics.parsing import parse

__all__ = ["has_smooth", "smooth"]


def has_smooth(loss: ApproxNDCG | ApproxMetric) -> bool:
    """NDCG and DCG with the discount log2(1 + rank)."""
    measure = _measure(loss)
    if not has_dcg(measure, loss.gain):
        return False
    discount = measure.discount  # type: ignore[attr-defined]
    return discount is None or discount.name == "log2"


def smooth(loss: ApproxNDCG | ApproxMetric, frame: Frame) -> Judge:
    """See `ApproxMetric`."""
    measure = _measure(loss)
    assert isinstance(measure, DCG)
    gains = gains_of(frame, measure.gain or loss.gain)
    layouts = [_layout(measure, frame, grid, gains, loss.temperature) for grid in grids_of(frame, pairs=True)]

    def judge(scores: Tensor) -> tuple[Tensor, Tensor]:
        value, parts = torch.zeros((), dtype=frame.dtype, device=frame.device), []
        for layout in layouts:
            part, grad = layout.judge(scores)
            value = value + part
            parts.append((layout.targets, grad))
        return value, collected(frame, parts)

    return judge


def _measure(loss: ApproxNDCG | ApproxMetric) -> object:
    return NDCG(loss.k) if isinstance(loss, ApproxNDCG) else parse(loss.metric)


@dataclass(frozen=True)
class _Layout:
    """What the labels say about one grid; (B, M) in the order of the documents."""

    grid: Grid
    targets: Tensor
    worth: Tensor
    """Gain · weight · scale over the normaliser; 0 in padded places and in queries of equal gains."""
    best: Tensor
    """Scalar: Σ scale over the queries that count (0 for DCG)."""
    temperature: float
    cut: int | None

    def judge(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        z = (self.grid.read(scores) / self.temperature).masked_fill(~self.grid.valid, FAR_BELOW)
        tiles = list(self.grid.tiles())
        kept = _above(z, *tiles[0]) if len(tiles) == 1 else None  # else it is made twice: memory is what tiles are for
        sums = [(_above(z, *tile) if kept is None else kept).sum(2) for tile in tiles]
        rank = torch.cat(sums, 1) + 0.5  # 1, and less the ½ that a document counts for itself
        c, slope = _discount(rank, self.cut)
        u = -self.worth * slope
        flows = [self._flow(z, u, kept, *tile) for tile in tiles]
        return self.best - torch.sum(self.worth * c), torch.cat(flows, 1) / self.temperature

    def _flow(self, z: Tensor, u: Tensor, kept: Tensor | None, first: int, last: int) -> Tensor:
        """(B, last − first): dL/dz of the tile's rows."""
        if kept is None:
            steep = _above(z, first, last).mul_((z[:, first:last, None] - z[:, None, :]).sigmoid_())
        else:
            steep = kept * kept.mT
        return steep.mul_(u[:, None, :] - u[:, first:last, None]).sum(2)


def _above(z: Tensor, first: int, last: int) -> Tensor:
    """(B, last − first, M): how much each k counts as standing above j."""
    return (z[:, None, :] - z[:, first:last, None]).sigmoid_()


def _discount(rank: Tensor, cut: int | None) -> tuple[Tensor, Tensor]:
    """c(r) = 1/log2(1 + r) and its slope; beyond a cut-off, times a smooth step down to 0 within one rank."""
    value = 1.0 / torch.log2(1.0 + rank)
    slope = -(value.square()) / (math.log(2.0) * (1.0 + rank))
    if cut is None:
        return value, slope
    t = (rank - cut).clamp(0.0, 1.0)
    step, fall = 1.0 - t * t * (3.0 - 2.0 * t), -6.0 * t * (1.0 - t)
    return value * step, slope * step + value * fall


def _layout(measure: DCG, frame: Frame, grid: Grid, gains: Tensor, temperature: float) -> _Layout:
    gain, scale = grid.read(gains), frame.scale.index_select(0, grid.queries)[:, None]
    # Padded places repeat a document, so they change neither the largest nor the smallest gain.
    speaking = gain.amax(1, keepdim=True) > gain.amin(1, keepdim=True)
    gain = gain * grid.valid
    factor, best = torch.where(speaking, scale, 0.0), torch.zeros((), dtype=frame.dtype, device=frame.device)
    if isinstance(measure, NDCG):
        best = factor.sum()
        factor = factor * ideal_dcg(frame, measure, gain, None)[1]
    worth = gain * factor
    if frame.document_weights is not None:
        worth = worth * grid.read(frame.document_weights)
    return _Layout(grid, grid.targets(), worth, best, temperature, measure.depth)
