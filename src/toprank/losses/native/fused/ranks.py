"""Launching kernels; ranks of documents within their queries by counting, and means over the ranks that ties share."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from toprank.losses.native.frame import Frame
from toprank.losses.native.fused.triton_parts import BLOCK_COLUMNS, BLOCK_ROWS, constexpr, kernel, tensor, tl
from toprank.losses.native.lambdas import RankSteps
from toprank.metrics.gains import Discount

__all__ = [
    "LOG2",
    "by_rank",
    "groups_only",
    "launch",
    "launch_queries",
    "pointer",
    "rank_table",
    "width_of",
]

LOG2 = Discount.of("log2")
_LONG_BLOCK = 256  # documents of a query that a program reads at once where there are no pairs


def launch(frame: Frame, compiled: Any, *arguments: Any, **options: Any) -> None:
    """Run a kernel of pairs: a program for every query and every block of its documents."""
    programs = (frame.n_queries, -(-frame.longest // BLOCK_ROWS))
    with torch.cuda.device(frame.device):
        compiled[programs](*arguments, **options, ROWS=BLOCK_ROWS, COLUMNS=BLOCK_COLUMNS)


def launch_queries(frame: Frame, compiled: Any, *arguments: Any, **options: Any) -> None:
    """Run a kernel with a program for every query."""
    with torch.cuda.device(frame.device):
        compiled[(frame.n_queries,)](*arguments, **options, COLUMNS=_LONG_BLOCK)


def pointer(values: Tensor | None, dummy: Tensor) -> Tensor:
    """What a kernel is given for an array: it wants a pointer even for one that it does not read."""
    return dummy if values is None else values


def width_of(frame: Frame) -> int:
    """Ranks that tables cover: a power of two, so that batches of other lengths find them made."""
    return max(64, 1 << (frame.longest - 1).bit_length())


def rank_table(frame: Frame, discount: Discount, depth: int | None = None, last: int | None = None) -> Tensor:
    """The table of `RankSteps` for a discount that ends at `depth`, and pairs whose better rank is at most `last`."""
    return _table(discount, depth, last, width_of(frame), frame.device)


@lru_cache(maxsize=64)
def _table(discount: Discount, depth: int | None, last: int | None, width: int, device: torch.device) -> Tensor:
    weights = discount.weights(width)
    if depth is not None:
        weights[depth:] = 0.0
    return RankSteps(torch.from_numpy(weights), last).table().to(device)


def groups_only(frame: Frame) -> Tensor:
    """A table for callers of `by_rank` who want the groups of equal keys alone."""
    return rank_table(frame, LOG2)


def by_rank(frame: Frame, keys: Tensor, table: Tensor) -> Tensor:
    """(6, n), see `rank_pass`: falling keys are rising ranks."""
    out = torch.empty(6, frame.n_documents, dtype=frame.dtype, device=frame.device)
    launch(frame, rank_pass, keys, frame.offsets, table, out, frame.n_documents)
    return out


@kernel
def rank_pass(
    keys: tensor, offsets: tensor, table: tensor, out: tensor, n: tensor, ROWS: constexpr, COLUMNS: constexpr
) -> None:
    """Fill out (6, n): top, slope, below and tie (see `RankSteps`), begin and end of the group of equal keys.

    `table` (M + 1, 4) holds running sums over the ranks, in float64. A higher key is a better rank.
    """
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    first = start + tl.program_id(1) * ROWS
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    key = tl.load(keys + rows, mask=valid, other=0.0)
    better, same = tl.zeros((ROWS,), tl.int32), tl.zeros((ROWS,), tl.int32)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        other = tl.load(keys + columns, mask=inside, other=0.0)
        better += tl.sum((inside[None, :] & (other[None, :] > key[:, None])).to(tl.int32), 1)
        same += tl.sum((inside[None, :] & (other[None, :] == key[:, None])).to(tl.int32), 1)
    low, high = table + 4 * better, table + 4 * (better + same)
    size = same.to(tl.float64)
    tops, slopes = tl.load(low, mask=valid, other=0.0), tl.load(low + 1, mask=valid, other=0.0)
    belows = tl.load(high + 2, mask=valid, other=0.0) - tl.load(low + 2, mask=valid, other=0.0)
    steps = tl.load(high + 3, mask=valid, other=0.0) - tl.load(low + 3, mask=valid, other=0.0)
    tie = (steps - size * tops + slopes * belows) / tl.maximum(0.5 * size * (size - 1.0), 1.0)
    kind = out.dtype.element_ty
    size = tl.maximum(size, 1.0)
    tl.store(out + rows, ((tl.load(high, mask=valid, other=0.0) - tops) / size).to(kind), mask=valid)
    tl.store(out + n + rows, ((tl.load(high + 1, mask=valid, other=0.0) - slopes) / size).to(kind), mask=valid)
    tl.store(out + 2 * n + rows, (belows / size).to(kind), mask=valid)
    tl.store(out + 3 * n + rows, tie.to(kind), mask=valid)
    tl.store(out + 4 * n + rows, better.to(kind), mask=valid)
    tl.store(out + 5 * n + rows, (better + same).to(kind), mask=valid)
