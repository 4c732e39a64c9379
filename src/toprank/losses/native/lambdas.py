"""`LambdaRank` for NDCG and DCG, and `LambdaLoss`: logistic pairs weighted by the current ranks.

Documents stand in rank order, a above b. Of a pair one should win: x = ±σ(s_b − s_a), positive where the wrong one
stands above, and with W = (G_b − G_a)·Δ_ab

    loss   |W|·log(1 + e^x)          d/dz_a   W·e^x/(1 + e^x);  d/dz_b is its opposite

Two-sided schemes (each of the two should win, by its own gain) are α·log(1 + e^v) + β·(log(1 + e^v) − v) with
v = σ(s_b − s_a) ≤ 0, α = G_a·Δ and β = G_b·Δ. What Δ is, see `rank_steps`.

Padded places stand so far below that e^x is 0 for them: their gain is less than any other (0 where two-sided).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from toprank.losses.lambdaloss import LambdaLoss
from toprank.losses.lambdarank import LambdaRank
from toprank.losses.native.dcg import FAR_BELOW, has_dcg, ideal_dcg
from toprank.losses.native.frame import Frame, Judge
from toprank.losses.native.gains import gains_of
from toprank.losses.native.grids import Grid, Tile, collected, grids_of
from toprank.losses.native.pairs import SOFTPLUS_TAIL
from toprank.losses.native.rank_steps import Distances, RankFactors, RankSteps, Ties
from toprank.metrics.gains import Discount
from toprank.metrics.graded import DCG, NDCG
from toprank.metrics.parsing import parse

__all__ = ["has_lambdarank", "lambdaloss", "lambdarank"]


@dataclass(frozen=True)
class _Rules:
    """What is common to all grids of a batch."""

    sigma: float
    unit: float = 1.0
    """What the natural logarithm is multiplied by."""
    two_sided: bool = False
    discounted: bool = False
    """Gains are divided by log2(1 + rank) first (``ndcg1``)."""
    norm: bool = False


def has_lambdarank(loss: LambdaRank) -> bool:
    """NDCG and DCG, with any gain but a function of the user."""
    return has_dcg(parse(loss.metric), loss.gain)


def lambdarank(loss: LambdaRank, frame: Frame) -> Judge:
    """See `LambdaRank`."""
    measure, rules = parse(loss.metric), _Rules(loss.sigma, norm=loss.norm)
    assert isinstance(measure, DCG)
    gains, layouts = gains_of(frame, measure.gain or loss.gain), []
    for grid in grids_of(frame, pairs=True):
        gain = grid.read(gains)
        rank_weights, inverse = ideal_dcg(frame, measure, gain * grid.valid, loss.truncation)
        layouts.append(_layout(frame, grid, rules, gain * inverse, RankSteps(rank_weights, loss.truncation), None))
    return _judge(frame, layouts)


def lambdaloss(loss: LambdaLoss, frame: Frame) -> Judge:
    """See `LambdaLoss`."""
    of_ndcg, two_sided = loss.scheme.startswith("ndcg"), loss.scheme in ("arp1", "ndcg1")
    rules = _Rules(loss.sigma, 1.0 / math.log(2.0), two_sided, discounted=loss.scheme == "ndcg1")
    gains, layouts = gains_of(frame, "exponential") if of_ndcg else frame.labels, []
    for grid in grids_of(frame, pairs=True):
        gain, steps, distances = grid.read(gains), None, None
        if of_ndcg:
            rank_weights, inverse = ideal_dcg(frame, NDCG(), gain * grid.valid, None)
            gain = gain * inverse
            steps = RankSteps(rank_weights, None) if loss.scheme in ("ndcg1", "ndcg2++") else None
        if loss.scheme in ("ndcg2", "ndcg2++"):
            inverses = frame.tensor(Discount.of("log2").weights(grid.width + 1), torch.float64)
            distances = Distances(inverses, loss.mu if loss.scheme == "ndcg2++" else 1.0)
        layouts.append(_layout(frame, grid, rules, gain, steps, distances))
    return _judge(frame, layouts)


def _judge(frame: Frame, layouts: list[_Layout]) -> Judge:
    def judge(scores: Tensor) -> tuple[Tensor, Tensor]:
        value, parts = torch.zeros((), dtype=frame.dtype, device=frame.device), []
        for layout in layouts:
            part, targets, grad = layout.judge(scores)
            value = value + part
            parts.append((targets, grad))
        return value, collected(frame, parts)

    return judge


class _Ranked(NamedTuple):
    """A grid at given scores, in rank order."""

    keys: Tensor
    """(B, M) the scores, negated."""
    gains: Tensor
    weights: Tensor | None
    ties: Ties | None
    factors: RankFactors | None
    near: Tensor | None
    """(B, 1, 1) what `norm` adds to the distance in score: 0.01, or 1 where all scores of a query are equal."""


@dataclass(frozen=True)
class _Layout:
    """What the labels say about one grid, in the order of the documents."""

    grid: Grid
    targets: Tensor
    rules: _Rules
    gains: Tensor
    """(B, M) over the ideal DCG."""
    weights: Tensor | None
    scale: Tensor
    """(B,)"""
    steps: RankSteps | None
    distances: Distances | None

    def judge(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The grid's part of the value, and where which gradient belongs."""
        ranked, order = self._rank(scores)
        totals, moved, forces = self._sums(ranked)
        scale = self.scale * self.rules.unit
        if self.rules.norm:
            moved = 2.0 * self.rules.sigma * moved  # |d/ds| over both documents of every pair
            scale = torch.where(moved > 0, scale * torch.log1p(moved) / (math.log(2.0) * moved), scale)
        return (
            torch.dot(scale, totals),
            self.targets.gather(1, order).view(-1),
            forces * (self.rules.sigma * scale)[:, None],
        )

    def _rank(self, scores: Tensor) -> tuple[_Ranked, Tensor]:
        keys = self.grid.read(scores).neg_().masked_fill_(~self.grid.valid, -FAR_BELOW)
        keys, order = keys.sort(dim=1, stable=True)
        gains = self.gains.gather(1, order)
        weights = None if self.weights is None else self.weights.gather(1, order)
        ties = Ties.of(keys) if self.steps is not None or self.distances is not None else None
        factors = self.steps.factors(ties, keys.dtype) if self.steps is not None and ties is not None else None
        if self.rules.discounted and factors is not None:
            gains, factors, ties = gains * factors.below, None, None
        near = None
        if self.rules.norm:
            equal = keys[:, :1] == keys.gather(1, self.grid.sizes - 1)
            near = torch.full_like(keys[:, :1], 0.01).masked_fill_(equal, 1.0)[:, :, None]
        return _Ranked(keys, gains, weights, ties, factors, near), order

    def _sums(self, ranked: _Ranked) -> tuple[Tensor, Tensor, Tensor]:
        """(B,) losses, (B,) Σ |d/dz_a| and (B, M) d/dz, not scaled."""
        totals = ranked.keys.new_zeros(len(ranked.keys))
        moved, forces = torch.zeros_like(totals), torch.zeros_like(ranked.keys)
        for tile in self.grid.tiles(self._reach(ranked)):
            values, pushes = self._tile(ranked, tile)
            totals += values.sum((1, 2))
            if self.rules.norm:
                moved += pushes.abs().sum((1, 2))
            forces[:, tile.first : tile.last] += pushes.sum(2)
            forces[:, tile.first :] -= pushes.sum(1)
        return totals, moved, forces

    def _reach(self, ranked: _Ranked) -> int | None:
        """Ranks that may be the better one of a pair; ties at the border decide, and a GPU is not made to wait."""
        last = None if self.steps is None else self.steps.last
        if last is None or ranked.ties is None or last >= self.grid.width or ranked.keys.device.type != "cpu":
            return None
        return int(ranked.ties.end[:, last - 1].max())

    def _tile(self, ranked: _Ranked, tile: Tile) -> tuple[Tensor, Tensor]:
        """Losses and d/dz_a of the pairs of a tile."""
        rows, columns = slice(tile.first, tile.last), slice(tile.first, None)
        gap = ranked.keys[:, rows, None] - ranked.keys[:, None, columns]  # s_b − s_a ≤ 0
        delta = self._delta(ranked, tile, gap)
        if self.rules.two_sided:
            return _two_sided(
                gap * self.rules.sigma, ranked.gains[:, rows, None], ranked.gains[:, None, columns], delta
            )
        weight = ranked.gains[:, None, columns] - ranked.gains[:, rows, None]
        if delta is not None:
            weight *= delta
        _above_diagonal(weight)
        x = torch.copysign(gap if self.rules.sigma == 1.0 else gap * self.rules.sigma, weight)
        values = functional.softplus(x, threshold=SOFTPLUS_TAIL).mul_(weight.abs())
        return values, weight.mul_(x.sigmoid_())

    def _delta(self, ranked: _Ranked, tile: Tile, gap: Tensor) -> Tensor | None:
        """Δ with all options; None: 1."""
        delta, tied = None, gap == 0 if ranked.ties is not None else None
        if ranked.factors is not None and tied is not None:
            delta = ranked.factors.tile(tile, tied)
        if self.distances is not None and ranked.ties is not None and tied is not None:
            far = self.distances.tile(ranked.ties, tile, tied, gap.dtype)
            delta = far if delta is None else delta + far
        if ranked.near is not None and delta is not None:
            delta = delta / (gap.abs() + ranked.near)
        if ranked.weights is not None:
            both = ranked.weights[:, tile.first : tile.last, None] * ranked.weights[:, None, tile.first :]
            delta = both if delta is None else delta * both
        return delta


def _two_sided(v: Tensor, gain_a: Tensor, gain_b: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
    both, beta = gain_a + gain_b, gain_b.expand(v.shape)
    both, beta = (both, beta.clone()) if delta is None else (both * delta, beta * delta)
    _above_diagonal(both)
    _above_diagonal(beta)
    return both * functional.softplus(v, threshold=SOFTPLUS_TAIL) - beta * v, beta - both * v.sigmoid()


def _above_diagonal(tile: Tensor) -> None:
    """Leave only the pairs in which the column stands below the row."""
    tile[:, :, : tile.shape[1]].triu_(1)


def _layout(
    frame: Frame, grid: Grid, rules: _Rules, gains: Tensor, steps: RankSteps | None, distances: Distances | None
) -> _Layout:
    nothing = torch.zeros_like(gains[:, :1]) if rules.two_sided else gains.amin(1, keepdim=True) - 1.0
    return _Layout(
        grid,
        grid.targets().view(gains.shape),
        rules,
        torch.where(grid.valid, gains, nothing),
        None if frame.document_weights is None else grid.read(frame.document_weights),
        frame.scale.index_select(0, grid.queries),
        steps,
        distances,
    )
