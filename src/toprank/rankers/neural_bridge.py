"""Any loss of ours as a function that PyTorch can differentiate.

The loss says its value and its gradient in one pass when it is asked for the value; the way back only hands the
gradient on. Scores on another device are copied to the CPU, and the gradient back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toprank.compute import blocks_of, each_block
from toprank.errors import DataError
from toprank.losses.base import BoundLoss, Want

__all__ = ["NotFinite", "bridged"]

_BLOCK = 1 << 12  # documents that a thread takes at a time: for fewer, calling it costs more than it does


class NotFinite(DataError):  # noqa: N818 - what it says of a score
    """A score is infinite or no number."""


class _Bridge(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, bound: BoundLoss, first: int, last: int, threads: int | None) -> Tensor:
        values = np.ascontiguousarray(scores.detach().cpu().double().numpy())
        if not np.isfinite(values).all():
            raise NotFinite("A score is not finite; no loss can judge it.")
        whole = bound.cut(first, last)
        grad, losses = np.zeros_like(values), np.empty(whole.n_queries)

        def work(ends: tuple[int, int]) -> None:
            block = bound.cut(first + ends[0], first + ends[1])
            rows = slice(*whole.offsets[list(ends)])
            losses[slice(*ends)] = bound.judge(block, values[rows], grad[rows], Want())[0]

        each_block(work, blocks_of(whole.offsets, _BLOCK), threads)
        ctx.save_for_backward(torch.from_numpy(grad).to(scores.dtype).to(scores.device))
        return scores.new_tensor(float(np.sum(losses * whole.scale)))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_value: Tensor) -> tuple[Tensor, None, None, None, None]:
        (grad,) = ctx.saved_tensors
        return grad * d_value, None, None, None, None


def bridged(
    bound: BoundLoss, first: int = 0, last: int | None = None, *, threads: int | None = None
) -> Callable[[Tensor], Tensor]:
    """The part of a bound loss's value that the queries first … last − 1 contribute, as a function of their scores.

    Args:
        bound: a loss on data.
        first: the first query.
        last: the query after the last; None: all.
        threads: number of threads; results do not depend on it.

    >>> from toprank import Queries, losses
    >>> value = bridged(losses.ListNet().on([1, 0], Queries([0, 2])))
    >>> scores = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    >>> value(scores).backward()
    >>> [round(slope, 4) for slope in scores.grad.tolist()]
    [-0.2311, 0.2311]
    """
    end = len(bound.queries) if last is None else last

    def value(scores: Tensor) -> Tensor:
        expected = int(bound.queries.offsets[end] - bound.queries.offsets[first])
        if len(scores) != expected:
            raise DataError(f"There are {len(scores)} scores for {expected} documents; there must be one for each.")
        result: Tensor = _Bridge.apply(scores, bound, first, end, threads)  # type: ignore[no-untyped-call]
        return result

    return value
