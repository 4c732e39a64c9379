"""Launches of kernels, and ranks within queries by counting, with means over tied ranks."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from toprank.losses.triton.frame import BatchPart
from toprank.losses.triton.triton_parts import BLOCK_COLUMNS, BLOCK_ROWS, constexpr, kernel, program_part, tensor, tl

_LONG_BLOCK = 256  # documents per program in kernels without pairs


def launch(part: BatchPart, compiled: Any, *arguments: Any, **options: Any) -> None:
    """Run a pair kernel with one program per query and block of its documents."""
    programs = (part.n_queries, -(-part.longest // BLOCK_ROWS))
    with _device(part):
        compiled[programs](*arguments, **options, ROWS=BLOCK_ROWS, COLUMNS=BLOCK_COLUMNS)


def launch_queries(part: BatchPart, compiled: Any, *arguments: Any, **options: Any) -> None:
    """Run a kernel with one program per query."""
    with _device(part):
        compiled[(part.n_queries,)](*arguments, **options, COLUMNS=_LONG_BLOCK)


def _device(part: BatchPart) -> Any:
    return torch.cuda.device(part.offsets.device) if part.offsets.is_cuda else nullcontext()


def pointer(values: Tensor | None, dummy: Tensor) -> Tensor:
    """Return an array argument of a kernel, which needs a pointer even for unused arrays."""
    return dummy if values is None else values


def by_rank(part: BatchPart, keys: Tensor, table: Tensor) -> Tensor:
    """Return (7, n) of `rank_pass` by decreasing keys."""
    out = torch.zeros(7, part.n_documents, dtype=keys.dtype, device=keys.device)
    launch(part, rank_pass, keys, part.offsets, table, out, part.n_documents)
    return out


@kernel
def rank_pass(
    keys: tensor, offsets: tensor, table: tensor, out: tensor, n: tensor, ROWS: constexpr, COLUMNS: constexpr
) -> None:
    """Fill out (7, n): top, slope, below, tie; begin and end of the group of equal keys, and the index in it from 1.

    `table` is that of `gains.rank_table`. A higher key has a better rank.
    """
    start, stop, first = program_part(offsets, ROWS)
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    key = tl.load(keys + rows, mask=valid, other=0.0)
    better, same, place = tl.zeros((ROWS,), tl.int32), tl.zeros((ROWS,), tl.int32), tl.zeros((ROWS,), tl.int32)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        other = tl.load(keys + columns, mask=inside, other=0.0)
        better += tl.sum((inside[None, :] & (other[None, :] > key[:, None])).to(tl.int32), 1)
        equal = inside[None, :] & (other[None, :] == key[:, None])
        same += tl.sum(equal.to(tl.int32), 1)
        place += tl.sum((equal & (columns[None, :] <= rows[:, None])).to(tl.int32), 1)
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
    tl.store(out + 6 * n + rows, place.to(kind), mask=valid)
