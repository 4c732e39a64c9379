"""Queries of similar length side by side: padded grids with little padding, and tiles of their pairs.

A grid of B queries of at most M documents is a tensor (B, M); its pairs are (B, M, M). Queries are sorted by length
and cut into grids: a grid ends where padding the next query to it would waste more cells than another grid costs in
calls, or where it grows beyond the memory meant for it. What such a grid weighs differs by device: a call costs a GPU
as much as a million cells, and a CPU works best while the cells stay in its cache.

A padded place repeats the last document of its query (so that nothing read there is out of range); each loss makes
sure that it counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from toprank.compute import IntArray
from toprank.losses.native.frame import Frame

__all__ = ["Grid", "Tile", "collected", "grids_of"]

_TILES = 4  # a grid may be this many times as large as a tile


@dataclass(frozen=True)
class _Budget:
    """Cells that a further grid is worth, and cells of one tile."""

    another: int
    tile: int


_CPU, _ACCELERATOR = _Budget(another=1 << 14, tile=1 << 17), _Budget(another=1 << 21, tile=1 << 23)


class Tile(NamedTuple):
    """Pairs of the documents at first … last − 1 with those at first … M − 1: all pairs (a, b) with a < b, in turn."""

    first: int
    last: int


@dataclass(frozen=True)
class Grid:
    """Some queries of similar length, padded to the longest of them."""

    queries: Tensor
    """(B,) numbers of the queries."""
    documents: Tensor
    """(B, M) rows of the batch; padded places repeat the last one."""
    valid: Tensor
    """(B, M) False in padded places, which come last."""
    sizes: Tensor
    """(B, 1) documents of each query."""
    tile_rows: int
    n_documents: int
    """Documents of the whole batch."""

    @property
    def width(self) -> int:
        """M."""
        return self.documents.shape[1]

    def tiles(self, rows: int | None = None) -> Iterator[Tile]:
        """Tiles that cover the first `rows` rows (all unless said)."""
        rows = self.width if rows is None else min(rows, self.width)
        for first in range(0, rows, self.tile_rows):
            yield Tile(first, min(first + self.tile_rows, rows))

    def read(self, values: Tensor) -> Tensor:
        """(B, M) of values (n,)."""
        return values.index_select(0, self.documents.view(-1)).view(self.documents.shape)

    def targets(self, documents: Tensor | None = None) -> Tensor:
        """Where `write` puts each place: its document (in the order given), or a place that is thrown away."""
        rows = self.documents if documents is None else documents
        return torch.where(self.valid, rows, self.n_documents).view(-1)


def collected(frame: Frame, parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """(n,) of (B, M) values and their `Grid.targets`: every document is in one grid, so there is nothing to add up."""
    out = torch.empty(frame.n_documents + 1, dtype=frame.dtype, device=frame.device)
    for targets, values in parts:
        out.scatter_(0, targets, values.reshape(-1))
    return out[:-1]


def grids_of(frame: Frame, *, pairs: bool) -> list[Grid]:
    """All queries in grids; `pairs`: for work on (B, M, M) cells instead of (B, M)."""
    sizes = np.diff(frame.host_offsets)
    by_length = np.argsort(-sizes, kind="stable")
    budget = _CPU if frame.device.type == "cpu" else _ACCELERATOR
    grids, first = [], 0
    while first < len(by_length):
        last = first + _reach(sizes[by_length[first:]], budget, 2 if pairs else 1)
        grids.append(_grid(frame, by_length[first:last], int(sizes[by_length[first]]), budget))
        first = last
    return grids


def _reach(falling: IntArray, budget: _Budget, power: int) -> int:
    """How many of the queries, longest first, make one grid."""
    cells = int(falling[0]) ** power
    wasted = np.cumsum(cells - falling**power)
    by_waste = int(np.searchsorted(wasted, budget.another, side="right"))
    return int(max(1, min(by_waste, _TILES * budget.tile // cells)))


def _grid(frame: Frame, queries: IntArray, width: int, budget: _Budget) -> Grid:
    chosen = torch.from_numpy(queries).to(frame.device, non_blocking=True)
    sizes = frame.sizes.index_select(0, chosen)[:, None]
    places = torch.arange(width, device=frame.device)
    documents = frame.offsets.index_select(0, chosen)[:, None] + torch.minimum(places, sizes - 1)
    tile_rows = min(width, max(1, budget.tile // (len(queries) * width)))
    return Grid(chosen, documents, places < sizes, sizes, tile_rows, frame.n_documents)
