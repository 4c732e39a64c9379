"""Launching kernels, and ranks within queries."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from toprank.losses.native.frame import Frame
from toprank.losses.native.fused.rank_kernel import rank_pass
from toprank.losses.native.fused.triton_parts import BLOCK_COLUMNS, BLOCK_ROWS
from toprank.losses.native.rank_steps import RankSteps
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


def launch(frame: Frame, kernel: Any, *arguments: Any, **options: Any) -> None:
    """Run a kernel of pairs: a program for every query and every block of its documents."""
    programs = (frame.n_queries, -(-frame.longest // BLOCK_ROWS))
    with torch.cuda.device(frame.device):
        kernel[programs](*arguments, **options, ROWS=BLOCK_ROWS, COLUMNS=BLOCK_COLUMNS)


def launch_queries(frame: Frame, kernel: Any, *arguments: Any, **options: Any) -> None:
    """Run a kernel with a program for every query."""
    with torch.cuda.device(frame.device):
        kernel[(frame.n_queries,)](*arguments, **options, COLUMNS=_LONG_BLOCK)


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
