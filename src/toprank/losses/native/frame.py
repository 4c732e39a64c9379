"""A batch of whole queries as tensors, and the bridge from explicit gradients to autograd."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from toprank.compute import IntArray
from toprank.errors import DataError

__all__ = ["BoundNative", "Frame", "Judge"]

Judge = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Scores to (value, d value / d scores): both are known in closed form, so autograd need not keep what led there."""


class Frame:
    """Labels, weights and query boundaries of a batch, on one device.

    Everything is computed in the dtype of the labels (at least float32). Only the query boundaries are ever read by
    the host, so a batch whose `offsets` stay on the CPU never makes the host wait for the device.

    Args:
        labels: (n,), all finite.
        offsets: (Q + 1,) whole numbers rising strictly from 0 to n, on the device of the labels or on the CPU.
        document_weights: (n,) or None.
        query_weights: (Q,) or None.
        max_grade: the largest label of all data; None: of this batch.
    """

    def __init__(
        self,
        labels: Tensor,
        offsets: Tensor,
        document_weights: Tensor | None = None,
        query_weights: Tensor | None = None,
        max_grade: float | None = None,
    ) -> None:
        self.max_grade = max_grade
        dtype = torch.promote_types(labels.dtype, torch.float32)
        self.labels, self.device, self.dtype = labels.detach().to(dtype), labels.device, dtype
        self.n_documents, self.n_queries = len(labels), len(offsets) - 1
        self._given_offsets = offsets
        self.document_weights = self._weights(document_weights, self.n_documents, "document_weights")
        weights = self._weights(query_weights, self.n_queries, "query_weights")
        self.scale = self.full(self.n_queries, 1.0 / self.n_queries) if weights is None else weights / weights.sum()

    def _weights(self, weights: Tensor | None, n: int, name: str) -> Tensor | None:
        if weights is not None and weights.shape != (n,):
            raise DataError(f"{name} must have the shape ({n},), not {tuple(weights.shape)}.")
        return None if weights is None else weights.detach().to(self.device, self.dtype)

    @cached_property
    def host_offsets(self) -> IntArray:
        """The query boundaries as NumPy sees them."""
        return np.asarray(self._given_offsets.detach().cpu().numpy(), dtype=np.int64)

    @cached_property
    def offsets(self) -> Tensor:
        """The query boundaries on the device."""
        return self._given_offsets.detach().to(self.device, torch.int64)

    @cached_property
    def sizes(self) -> Tensor:
        """(Q,) documents in each query."""
        return self.offsets.diff()

    @cached_property
    def query(self) -> Tensor:
        """(n,) number of each document's query."""
        numbers = torch.arange(self.n_queries, device=self.device)
        return numbers.repeat_interleave(self.sizes, output_size=self.n_documents)

    @cached_property
    def longest(self) -> int:
        """Documents in the longest query."""
        return int(np.diff(self.host_offsets).max())

    def full(self, n: int, value: float) -> Tensor:
        """(n,) times the same number."""
        return torch.full((n,), value, dtype=self.dtype, device=self.device)

    def tensor(self, values: Any, dtype: torch.dtype | None = None) -> Tensor:
        """Numbers of the host, on the device, which may not know the host's type."""
        return torch.as_tensor(np.asarray(values)).to(dtype or self.dtype).to(self.device)

    def sum(self, values: Tensor) -> Tensor:
        """(Q,) sums over the documents of each query, always in the same order of additions."""
        sums: Tensor = torch.segment_reduce(values, "sum", offsets=self.offsets, unsafe=True)
        return sums

    def max(self, values: Tensor) -> Tensor:
        """(Q,) largest value of each query."""
        lowest = torch.full((self.n_queries,), -torch.inf, dtype=values.dtype, device=self.device)
        return lowest.scatter_reduce(0, self.query, values, "amax")

    def spread(self, per_query: Tensor) -> Tensor:
        """(n,) the value of each document's query."""
        return per_query.index_select(0, self.query)

    def weighted(self, values: Tensor) -> Tensor:
        """Values times the document weights, where there are any."""
        return values if self.document_weights is None else values * self.document_weights


class BoundNative:
    """A native loss on the labels of one batch: scores (n,) to the scalar mean over queries, differentiable once.

    Scores of another dtype are taken to that of the labels, and their gradient back.
    """

    def __init__(self, frame: Frame, judge: Judge) -> None:
        self._frame, self._judge = frame, judge

    def __call__(self, scores: Tensor) -> Tensor:
        """The value at these scores."""
        if len(scores) != self._frame.n_documents:
            raise DataError(
                f"There are {len(scores)} scores for {self._frame.n_documents} documents; there must be one for each."
            )
        value: Tensor = _Judged.apply(scores.to(self._frame.dtype), self._judge)  # type: ignore[no-untyped-call]
        return value


class _Judged(torch.autograd.Function):
    """A scalar with a known gradient."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, judge: Judge) -> Tensor:
        """The value; its gradient is kept for `backward`."""
        value, grad = judge(scores.detach())
        ctx.save_for_backward(grad)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        """The kept gradient, times that of what follows."""
        (grad,) = ctx.saved_tensors
        return grad * upstream[0], None
