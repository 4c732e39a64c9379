"""Neural scorers: a multilayer perceptron, and self-attention over the documents of a query.

Documents are flat rows, query after query; only attention pads. Random numbers come from a generator argument, never
from PyTorch's global one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from toprank.compute import IntArray

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,  # in place, because neither a linear layer nor a norm needs its output for the gradient
    "gelu": functional.gelu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}


@dataclass(frozen=True)
class Architecture:
    """The shape of a network. `n_outputs` is 1 (a score) or the number of grades; `NeuralRanker` documents the
    others.
    """

    network: Literal["mlp", "attention"]
    n_inputs: int
    n_outputs: int
    hidden: tuple[int, ...]
    activation: str
    norm: Literal["none", "batch", "layer"]
    dropout: float
    width: int
    n_heads: int
    n_layers: int


class QueryTable:
    """Mapping between flat document rows and a padded table with one row per query, as long as the longest query.

    >>> layout = QueryTable(np.array([2, 1]))
    >>> layout.slots.tolist(), layout.present.flatten().tolist()
    ([0, 1, 2], [True, True, True, False])
    """

    def __init__(self, sizes: IntArray, device: torch.device | str = "cpu") -> None:
        self.n_queries, self.longest = len(sizes), int(sizes.max())
        starts = np.cumsum(sizes) - sizes
        slots = np.arange(int(sizes.sum())) + np.repeat(np.arange(len(sizes)) * self.longest - starts, sizes)
        self.full = len(slots) == self.n_queries * self.longest
        self.slots = torch.from_numpy(slots).to(device)
        present = np.arange(self.longest) < sizes[:, None]
        self.present = torch.from_numpy(present[:, None, None, :]).to(device)

    def table(self, rows: Tensor) -> Tensor:
        """Pad (documents, width) to (queries, longest, width) with zeros."""
        if not self.full:
            empty = rows.new_zeros(self.n_queries * self.longest, rows.shape[1])
            rows = empty.index_copy(0, self.slots, rows)
        return rows.view(self.n_queries, self.longest, -1)

    def rows(self, table: Tensor) -> Tensor:
        """Remove the padding: (queries, longest, width) -> (documents, width)."""
        flat = table.reshape(self.n_queries * self.longest, -1)
        return flat if self.full else flat.index_select(0, self.slots)


class BatchNorm(nn.Module):
    """Batch normalization that treats a batch of a single document, which has no spread, as in prediction.

    PyTorch's own implementation refuses such a batch.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(width)), nn.Parameter(torch.empty(width))
        self.register_buffer("running_mean", torch.empty(width))
        self.register_buffer("running_var", torch.empty(width))

    def reset_parameters(self) -> None:
        """Initialize to the identity."""
        for part, value in ((self.weight, 1.0), (self.bias, 0.0), (self.running_mean, 0.0), (self.running_var, 1.0)):
            nn.init.constant_(part, value)

    def forward(self, rows: Tensor) -> Tensor:
        """Normalize rows, (documents, width)."""
        of_batch = self.training and len(rows) > 1
        return functional.batch_norm(
            rows, self.running_mean, self.running_var, self.weight, self.bias, training=of_batch
        )


def _norm(kind: str, width: int) -> nn.Module:
    if kind == "none":
        return nn.Identity()
    return BatchNorm(width) if kind == "batch" else nn.LayerNorm(width)


def _dropout(rows: Tensor, share: float, rng: torch.Generator | None) -> Tensor:
    """Set a fraction of the values to 0 and rescale the others to compensate; without `rng` return the rows
    unchanged.
    """
    if rng is None or share == 0.0:
        return rows
    kept = torch.empty_like(rows).bernoulli_(1.0 - share, generator=rng)
    return rows * kept.div_(1.0 - share)


class MLP(nn.Module):
    """x -> dropout(activation(norm(W x + b))) for each hidden layer, then a linear output."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        sizes = (shape.n_inputs, *shape.hidden)
        self.shape, self.activate = shape, ACTIVATIONS[shape.activation]
        self.layer = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.norm = nn.ModuleList(_norm(shape.norm, size) for size in shape.hidden)
        self.input_norm = _norm("batch" if shape.norm == "batch" else "none", shape.n_inputs)
        self.output = nn.Linear(sizes[-1], shape.n_outputs)

    def forward(self, rows: Tensor, layout: QueryTable | None = None, rng: torch.Generator | None = None) -> Tensor:
        """Map (documents, features) to (documents, outputs); outputs of a document depend only on its own row."""
        del layout
        rows = self.input_norm(rows)
        for layer, norm in zip(self.layer, self.norm, strict=True):
            rows = _dropout(self.activate(norm(layer(rows))), self.shape.dropout, rng)
        outputs: Tensor = self.output(rows)
        return outputs


class AttentionBlock(nn.Module):
    """x + attention(norm(x)) over the documents of the query, then x + mlp(norm(x)) for each document."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        width = shape.width
        self.shape, self.activate = shape, ACTIVATIONS[shape.activation]
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.wider, self.narrower = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, rows: Tensor, layout: QueryTable, rng: torch.Generator | None) -> Tensor:
        """Transform rows, (documents, width)."""
        share = self.shape.dropout
        rows = rows + _dropout(self.mix(self._attend(self.attention_norm(rows), layout)), share, rng)
        inner = _dropout(self.activate(self.wider(self.mlp_norm(rows))), share, rng)
        return rows + _dropout(self.narrower(inner), share, rng)

    def _attend(self, rows: Tensor, layout: QueryTable) -> Tensor:
        table = layout.table(self.query_key_value(rows))
        queries, longest, _ = table.shape
        # (queries, longest, 3, heads, width of a head) -> three tables (queries, heads, longest, width of a head)
        parts = table.view(queries, longest, 3, self.shape.n_heads, -1).permute(2, 0, 3, 1, 4)
        mask = None if layout.full else layout.present
        mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], attn_mask=mask)
        return layout.rows(mixed.transpose(1, 2))


class SetAttention(nn.Module):
    """Self-attention over the documents of a query, without positional encoding.

    Permuting the documents of a query permutes their outputs and has no other effect; other queries have no effect.
    """

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.shape = shape
        self.input = nn.Linear(shape.n_inputs, shape.width)
        self.block = nn.ModuleList(AttentionBlock(shape) for _ in range(shape.n_layers))
        self.norm = nn.LayerNorm(shape.width)
        self.output = nn.Linear(shape.width, shape.n_outputs)

    def forward(self, rows: Tensor, layout: QueryTable | None = None, rng: torch.Generator | None = None) -> Tensor:
        """Map (documents, features) to (documents, outputs); without a layout, all documents form one query."""
        layout = QueryTable(np.array([len(rows)]), rows.device) if layout is None else layout
        rows = _dropout(self.input(rows), self.shape.dropout, rng)
        for block in self.block:
            rows = block(rows, layout, rng)
        outputs: Tensor = self.output(self.norm(rows))
        return outputs


def build(shape: Architecture) -> MLP | SetAttention:
    """Return the network without weights (on PyTorch's ``meta`` device); see `initialize`."""
    with torch.device("meta"):
        return MLP(shape) if shape.network == "mlp" else SetAttention(shape)


def initialize(network: nn.Module, rng: torch.Generator) -> None:
    """Initialize weights and biases uniformly in ±1/√(number of inputs), and norms to the identity."""
    network.to_empty(device="cpu")
    for part in network.modules():
        if isinstance(part, nn.Linear):
            bound = 1.0 / math.sqrt(max(part.in_features, 1))
            with torch.no_grad():
                part.weight.uniform_(-bound, bound, generator=rng)
                part.bias.uniform_(-bound, bound, generator=rng)
        elif isinstance(part, nn.LayerNorm | BatchNorm):
            part.reset_parameters()


def expected_gain(logits: Tensor, gains: Tensor) -> Tensor:
    """Return Σ_k G(k) softmax(logits)_k, (documents, grades) -> (documents,)."""
    return torch.softmax(logits, dim=1) @ gains
