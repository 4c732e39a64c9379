"""Labels and queries on one device, and the conversion of explicit gradients for autograd.

Label-dependent quantities of a document depend on its own query only. They are therefore computed once for all data, as
columns with one entry per document (`PreparedLoss`); a batch is a selection of entries with the boundaries of its
queries (`BatchPart`). A batch may have unused documents and queries, so that batches of all sizes have tensors of one
shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Columns = tuple[Any, ...]
"""Label-dependent quantities of a loss, as tensors; None for unused ones."""


@dataclass(frozen=True)
class BatchPart:
    """Whole queries of a batch, in the form that kernels need.

    Args:
        offsets: (Q + 1,) index of the first document of each query, on the device; unused queries are empty.
        scale: (Q,) weight of each query's loss.
        n_documents: length of the tensors; documents after the last query are unused.
        longest: upper bound of the length of queries.
    """

    offsets: Tensor
    scale: Tensor
    n_documents: int
    longest: int

    @property
    def n_queries(self) -> int:
        """Q, including unused queries."""
        return len(self.scale)

    @cached_property
    def query(self) -> Tensor:
        """(n,) index of each document's query; Q for unused documents."""
        places = torch.arange(self.n_documents, device=self.offsets.device)
        return torch.searchsorted(self.offsets[1:], places, right=True)

    def sum(self, values: Tensor) -> Tensor:
        """Return (Q,) sums over the documents of each query, in a fixed order."""
        sums: Tensor = torch.segment_reduce(values, "sum", offsets=self.offsets, unsafe=True)
        return sums

    def broadcast(self, per_query: Tensor) -> Tensor:
        """Return (n,) the value of each document's query; 0 for unused documents."""
        return torch.nn.functional.pad(per_query, (0, 1)).index_select(0, self.query)


class Frame:
    """Labels, weights and query boundaries of all data, on one device, in the dtype of the labels (at least float32).

    Args:
        labels: (n,), all finite.
        offsets: (Q + 1,) whole numbers rising strictly from 0 to n, on the device of the labels or on the CPU.
        document_weights: (n,) or None.
    """

    def __init__(self, labels: Tensor, offsets: Tensor, document_weights: Tensor | None = None) -> None:
        self.dtype, self.device = torch.promote_types(labels.dtype, torch.float32), labels.device
        self.labels, self.n_documents = labels.detach().to(self.dtype), len(labels)
        self.document_weights = document_weights
        if document_weights is not None:
            self.document_weights = document_weights.detach().to(self.device, self.dtype)
        longest = int(offsets.diff().max())
        on_device = offsets.detach().to(self.device, torch.int64)
        self.part = BatchPart(on_device, self.labels.new_ones(len(offsets) - 1), self.n_documents, longest)

    def tensor(self, values: Any) -> Tensor:
        """Convert numbers of the host to a type and tensor of the device."""
        return torch.as_tensor(np.asarray(values)).to(self.dtype).to(self.device)

    def max(self, values: Tensor) -> Tensor:
        """Return (Q,) the largest value of each query."""
        lowest = torch.full((self.part.n_queries,), -torch.inf, dtype=values.dtype, device=self.device)
        return lowest.scatter_reduce(0, self.part.query, values, "amax")

    def over_sum(self, values: Tensor) -> Tensor:
        """Return values over their sum in each query; 0 if the sum is 0."""
        totals = self.part.sum(values)
        return values * self.part.broadcast(torch.where(totals > 0, 1.0 / totals, 0.0))

    def weighted(self, values: Tensor) -> Tensor:
        """Return values times the document weights."""
        return values if self.document_weights is None else values * self.document_weights


ValueAndGradient = Callable[[Tensor, BatchPart, Columns], tuple[Tensor, Tensor]]
"""Scores to (value, d value / d scores), both in closed form, so that autograd need not keep intermediate results."""


class PreparedLoss(NamedTuple):
    """A loss bound to the labels of all data."""

    columns: Columns
    """Label-dependent quantities, (n,) or (k, n)."""
    evaluate: ValueAndGradient

    def take(self, rows: Tensor) -> Columns:
        """Return the columns of the selected documents."""
        return tuple(None if column is None else column.index_select(-1, rows) for column in self.columns)

    def value(self, scores: Tensor, part: BatchPart, columns: Columns) -> Tensor:
        """Return Σ scale · loss over the queries of a batch, differentiable by autograd."""
        value: Tensor = _LossOnDevice.apply(scores.to(part.scale.dtype), self.evaluate, part, columns)  # type: ignore[no-untyped-call]
        return value


class _LossOnDevice(torch.autograd.Function):
    """A scalar with an explicit gradient."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, evaluate: ValueAndGradient, part: BatchPart, columns: Columns) -> Tensor:
        """Compute the value and store its gradient for `backward`."""
        value, grad = evaluate(scores.detach().contiguous(), part, columns)
        ctx.save_for_backward(grad)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the stored gradient times the incoming one."""
        (grad,) = ctx.saved_tensors
        return grad * upstream[0], None, None, None
