"""Pairs of different grades: `Logistic` (RankNet), `Hinge` (RankSVM) and `SquaredHinge`.

Documents stand worst grade first, so that a tile holds the pairs of a worse document a (rows) with better ones b
(columns). x = s_a − s_b says how wrong the order is; where b is not better than a, x is −∞ and every φ(x) is 0.
`Exponential` has no native version: e^x overflows float32 from x = 89 on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from toprank.losses.native.frame import Frame, Judge
from toprank.losses.native.gains import gains_of, has_gain
from toprank.losses.native.grids import Grid, Tile, collected, grids_of
from toprank.losses.pairwise import Hinge, Logistic, SquaredHinge

__all__ = ["SOFTPLUS_TAIL", "has_pairs", "pairs"]

PairLoss = Logistic | Hinge | SquaredHinge

SOFTPLUS_TAIL = 40.0  # log(1 + e^x) = x to the last bit of a float64 from here on

# φ and dφ/dx at x = s_worse − s_better; x may be overwritten
_Terms = Callable[[Tensor], tuple[Tensor, Tensor]]
_TERMS: dict[type[PairLoss], _Terms] = {
    Logistic: lambda x: (functional.softplus(x, threshold=SOFTPLUS_TAIL), x.sigmoid_()),
    Hinge: lambda x: (functional.relu(1.0 + x), (x > -1.0).to(x.dtype)),
    SquaredHinge: lambda x: _squared_hinge(functional.relu(1.0 + x)),
}


def has_pairs(loss: PairLoss) -> bool:
    """All pair weights; the targets of ``margin`` by any gain but a function of the user."""
    return loss.pair_weight != "margin" or loss.gain is None or has_gain(loss.gain)


def pairs(loss: PairLoss, frame: Frame) -> Judge:
    """See `toprank.losses.pairwise`."""
    targets = None
    if loss.pair_weight == "margin":
        targets = frame.labels if loss.gain is None else gains_of(frame, loss.gain, loss.max_grade)
    by_difference, terms = loss.pair_weight == "difference", _TERMS[type(loss)]
    layouts = [_layout(frame, grid, targets) for grid in grids_of(frame, pairs=True)]

    def judge(scores: Tensor) -> tuple[Tensor, Tensor]:
        value, parts = torch.zeros((), dtype=frame.dtype, device=frame.device), []
        for layout in layouts:
            totals, slopes = layout.sums(scores, terms, by_difference)
            value = value + torch.dot(layout.factors, totals)
            parts.append((layout.targets, slopes * layout.factors[:, None]))
        return value, collected(frame, parts)

    return judge


def _squared_hinge(short: Tensor) -> tuple[Tensor, Tensor]:
    return short.square(), 2.0 * short


@dataclass(frozen=True)
class _Layout:
    """What the labels say about one grid; (B, M) in the order of rising labels."""

    grid: Grid
    documents: Tensor
    targets: Tensor
    as_worse: Tensor
    """Labels; infinite in padded places, so that nobody is better …"""
    as_better: Tensor
    """… and here minus infinity, so that nobody is worse."""
    margins: Tensor | None
    """Targets t; a pair should differ in score by the difference of these."""
    weights: Tensor | None
    factors: Tensor
    """(B,) scale of the query over its number of pairs; 0 where there are none."""

    def sums(self, scores: Tensor, terms: _Terms, by_difference: bool) -> tuple[Tensor, Tensor]:
        """(B,) Σ c w w φ, and (B, M) its derivatives."""
        s = _read(scores, self.documents)
        totals, slopes = s.new_zeros(len(s)), torch.zeros_like(s)
        for tile in self.grid.tiles():
            values, pushes = self._tile(s, tile, terms, by_difference)
            totals += values.sum((1, 2))
            slopes[:, tile.first : tile.last] += pushes.sum(2)
            slopes[:, tile.first :] -= pushes.sum(1)
        return totals, slopes

    def _tile(self, s: Tensor, tile: Tile, terms: _Terms, by_difference: bool) -> tuple[Tensor, Tensor]:
        rows, columns = slice(tile.first, tile.last), slice(tile.first, None)
        y_a, y_b = self.as_worse[:, rows, None], self.as_better[:, None, columns]
        x = s[:, rows, None] - s[:, None, columns]
        if self.margins is not None:
            x -= self.margins[:, rows, None] - self.margins[:, None, columns]
        x.masked_fill_(y_a >= y_b, -torch.inf)
        values, pushes = terms(x)
        if by_difference:
            gaps = (y_b - y_a).clamp_min_(0.0)
            values, pushes = values * gaps, pushes * gaps
        if self.weights is not None:
            both = self.weights[:, rows, None] * self.weights[:, None, columns]
            values, pushes = values * both, pushes * both
        return values, pushes


def _layout(frame: Frame, grid: Grid, margins: Tensor | None) -> _Layout:
    labels, order = grid.read(frame.labels).masked_fill(~grid.valid, torch.inf).sort(dim=1)
    documents = grid.documents.gather(1, order)
    lower = torch.searchsorted(labels, labels).masked_fill(~grid.valid, 0)  # worse partners of each document
    n_pairs = lower.sum(1).to(frame.dtype)
    scale = frame.scale.index_select(0, grid.queries)
    weights = frame.document_weights
    return _Layout(
        grid,
        documents,
        grid.targets(documents),
        labels,
        labels.masked_fill(~grid.valid, -torch.inf),
        None if margins is None else _read(margins, documents),
        None if weights is None else _read(weights, documents),
        torch.where(n_pairs > 0, scale / n_pairs, 0.0),
    )


def _read(values: Tensor, documents: Tensor) -> Tensor:
    return values.index_select(0, documents.view(-1)).view(documents.shape)
