"""`LambdaRank` for NDCG and DCG, and `LambdaLoss`: logistic pairs weighted by the current ranks.

Documents stand in rank order, a above b. Of a pair one should win: x = ±σ(s_b − s_a), positive where the wrong one
stands above, and with W = (G_b − G_a)·Δ_ab

    loss   |W|·log(1 + e^x)          d/dz_a   W·e^x/(1 + e^x);  d/dz_b is its opposite

Two-sided schemes (each of the two should win, by its own gain) are α·log(1 + e^v) + β·(log(1 + e^v) − v) with
v = σ(s_b − s_a) ≤ 0, α = G_a·Δ and β = G_b·Δ.

Padded places stand so far below that e^x is 0 for them: their gain is less than any other (0 where two-sided).

Δ_ab: what it is worth to DCG that two documents of a ranking change places, ties in expectation.

With c(r) the weight of rank r, Δ = c(a) − c(b), a above b; a LambdaLoss may add mu·δ(b − a), the step of 1/log2(1 + d)
from the distance d to d + 1, or take it alone. Documents of equal score share the ranks begin … end − 1, so each
reading of c is its mean over these ranks, and two documents of one group get the mean over its pairs of ranks. All
such means are differences of running sums over the ranks, in float64 so that what they leave is exact in float32.

With a truncation only pairs whose better rank is within it count: c(a), and the 1 in front of c(b), are 0 beyond it
before means are taken; hence Δ = top_a − slope_a·below_b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from toprank.losses.lambdas import LambdaLoss, LambdaRank
from toprank.losses.native.frame import Frame, Judge
from toprank.losses.native.gains import FAR_BELOW, gains_of, has_dcg, ideal_dcg
from toprank.losses.native.grids import Grid, Tile, collected, grids_of
from toprank.losses.native.pairs import SOFTPLUS_TAIL
from toprank.metrics.gains import Discount
from toprank.metrics.graded import DCG, NDCG
from toprank.metrics.parsing import parse

__all__ = ["Distances", "RankSteps", "has_lambdarank", "lambdaloss", "lambdarank"]


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


class Ties(NamedTuple):
    """(B, M) the ranks, from 0, at which the group of equal scores of each document begins and ends."""

    begin: Tensor
    end: Tensor

    @classmethod
    def of(cls, keys: Tensor) -> Ties:
        """Of keys (B, M) that rise along each row."""
        return cls(torch.searchsorted(keys, keys), torch.searchsorted(keys, keys, right=True))


class RankFactors(NamedTuple):
    """(B, M) the parts of Δ that depend on one document."""

    top: Tensor
    slope: Tensor | None
    """None: 1 everywhere."""
    below: Tensor
    tie: Tensor
    """Δ for two documents of the same group."""

    def tile(self, tile: Tile, tied: Tensor) -> Tensor:
        """Δ of the pairs of a tile, given which of them are tied."""
        below = self.below[:, None, tile.first :]
        if self.slope is not None:
            below = self.slope[:, tile.first : tile.last, None] * below
        change = (self.top[:, tile.first : tile.last, None] - below).clamp_min_(0.0)  # below 0 is rounding
        return torch.where(tied, self.tie[:, tile.first : tile.last, None], change)


@dataclass(frozen=True)
class RankSteps:
    """Weights of the ranks, (M,) in float64, and where the better rank of a pair must end (None: nowhere)."""

    weights: Tensor
    last: int | None

    def factors(self, ties: Ties, dtype: torch.dtype) -> RankFactors:
        """The parts of Δ for a ranking with these ties."""
        table = self.table()
        at_begin, at_end = table[ties.begin], table[ties.end]
        tops, slopes, belows, steps = (at_end - at_begin).unbind(2)
        size = (ties.end - ties.begin).double()
        inside = steps - size * at_begin[:, :, 0] + at_begin[:, :, 1] * belows  # Σ over a < b in the group
        tie = inside / (0.5 * size * (size - 1.0)).clamp_min(1.0)
        slope = None if self.last is None else (slopes / size).to(dtype)
        return RankFactors((tops / size).to(dtype), slope, (belows / size).to(dtype), tie.to(dtype))

    def table(self) -> Tensor:
        """(M + 1, 4) running sums of c and 1 within the truncation, of c, and of Σ_{a < b} (top_a − slope_a·c(b))."""
        reached = torch.ones_like(self.weights)
        if self.last is not None:
            reached[self.last :] = 0.0
        tops, slopes = _running(self.weights * reached), _running(reached)
        pairs = _running(tops[:-1] - slopes[:-1] * self.weights)
        return torch.stack([tops, slopes, _running(self.weights), pairs], 1)


@dataclass(frozen=True)
class Distances:
    """mu·δ; `inverse` holds 1/log2(1 + d) for d = 1 … M + 1, in float64."""

    inverse: Tensor
    mu: float

    def tile(self, ties: Ties, tile: Tile, tied: Tensor, dtype: torch.dtype) -> Tensor:
        """mu·δ of the pairs of a tile: for two groups Σ_p Σ_r δ(r − p) telescopes in r and is a running sum in p."""
        sums, rows = self.sums(), slice(tile.first, tile.last)
        low, high = ties.begin[:, rows, None], ties.end[:, rows, None]
        lower, upper = ties.begin[:, None, tile.first :], ties.end[:, None, tile.first :]
        # Negative distances belong to pairs below the diagonal, which nobody reads.
        total = sums[(lower - low).clamp_min_(0)] - sums[(lower - high).clamp_min_(0)]
        total += sums[(upper - high).clamp_min_(0)] - sums[(upper - low).clamp_min_(0)]
        total /= (high - low) * (upper - lower)
        return (self.mu * torch.where(tied, self.within()[high - low], total)).to(dtype)

    def sums(self) -> Tensor:
        """(M + 2,) the running sums of `inverse`."""
        return _running(self.inverse)

    def within(self) -> Tensor:
        """(M + 2,) the mean of δ over the pairs of g ranks, by g: g − d of them lie at the distance d."""
        steps = -self.inverse.diff()
        d = torch.arange(1, len(steps) + 1, device=steps.device)
        counts = torch.arange(len(steps) + 2, device=steps.device)
        sums, moments = _running(steps), _running(steps * d)
        reach = (counts - 1).clamp(0, len(steps))
        return (counts * sums[reach] - moments[reach]) / (0.5 * counts * (counts - 1)).clamp_min(1.0)


def _running(values: Tensor) -> Tensor:
    """(M + 1,) sums of the first 0, 1 … M values."""
    return torch.nn.functional.pad(values.cumsum(0), (1, 0))


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
