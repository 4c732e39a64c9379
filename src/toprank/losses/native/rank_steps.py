"""Δ_ab: what it is worth to DCG that two documents of a ranking change places, ties in expectation.

With c(r) the weight of rank r, Δ = c(a) − c(b), a above b; a LambdaLoss may add mu·δ(b − a), the step of 1/log2(1 + d)
from the distance d to d + 1, or take it alone. Documents of equal score share the ranks begin … end − 1, so each
reading of c is its mean over these ranks, and two documents of one group get the mean over its pairs of ranks. All
such means are differences of running sums over the ranks, in float64 so that what they leave is exact in float32.

With a truncation only pairs whose better rank is within it count: c(a), and the 1 in front of c(b), are 0 beyond it
before means are taken; hence Δ = top_a − slope_a·below_b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from toprank.losses.native.grids import Tile

__all__ = ["Distances", "RankFactors", "RankSteps", "Ties"]


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
