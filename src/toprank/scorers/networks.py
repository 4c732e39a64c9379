"""Networks that score documents: a multi-layer perceptron, and self-attention over the documents of a query.

Documents come as flat rows, query after query; nothing is padded but the attention itself. Random numbers come from a
generator that is handed in: PyTorch's global one is never touched.
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
    "relu": torch.relu_,  # in place: neither a linear layer nor a norm asks for its output again
    "gelu": functional.gelu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}


@dataclass(frozen=True)
class Architecture:
    """The shape of a network; `n_outputs` is 1 (a score) or the number of grades, the others as in `NeuralRanker`."""

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
    """Where the documents of ragged queries stand in a table with a row for each query, as long as the longest.

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
        """(documents, width) -> (queries, longest, width), zeros where there is no document."""
        if not self.full:
            empty = rows.new_zeros(self.n_queries * self.longest, rows.shape[1])
            rows = empty.index_copy(0, self.slots, rows)
        return rows.view(self.n_queries, self.longest, -1)

    def rows(self, table: Tensor) -> Tensor:
        """(queries, longest, width) -> (documents, width)."""
        flat = table.reshape(self.n_queries * self.longest, -1)
        return flat if self.full else flat.index_select(0, self.slots)


class BatchNorm(nn.Module):
    """Batch normalization; a batch of a single document, which has no spread, is treated as in prediction.

    PyTorch's own refuses such a batch.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(width)), nn.Parameter(torch.empty(width))
        self.register_buffer("running_mean", torch.empty(width))
        self.register_buffer("running_var", torch.empty(width))

    def reset_parameters(self) -> None:
        """Start as the identity."""
        for part, value in ((self.weight, 1.0), (self.bias, 0.0), (self.running_mean, 0.0), (self.running_var, 1.0)):
            nn.init.constant_(part, value)

    def forward(self, rows: Tensor) -> Tensor:
        """(documents, width) -> the same."""
        of_batch = self.training and len(rows) > 1
        return functional.batch_norm(
            rows, self.running_mean, self.running_var, self.weight, self.bias, training=of_batch
        )


def _norm(kind: str, width: int) -> nn.Module:
    if kind == "none":
        return nn.Identity()
    return BatchNorm(width) if kind == "batch" else nn.LayerNorm(width)


def _dropout(rows: Tensor, share: float, rng: torch.Generator | None) -> Tensor:
    """Leave out a share of the numbers, and enlarge the others to make up for it; without `rng` leave none out."""
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
        """(documents, features) -> (documents, outputs); a document's outputs depend on its own row alone."""
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
        """(documents, width) -> the same."""
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
    """Self-attention over the documents of a query, without positions.

    Reordering the documents of a query reorders their outputs and changes nothing else; other queries do not matter.
    """

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.shape = shape
        self.input = nn.Linear(shape.n_inputs, shape.width)
        self.block = nn.ModuleList(AttentionBlock(shape) for _ in range(shape.n_layers))
        self.norm = nn.LayerNorm(shape.width)
        self.output = nn.Linear(shape.width, shape.n_outputs)

    def forward(self, rows: Tensor, layout: QueryTable | None = None, rng: torch.Generator | None = None) -> Tensor:
        """(documents, features) -> (documents, outputs); without a layout all documents are one query."""
        layout = QueryTable(np.array([len(rows)]), rows.device) if layout is None else layout
        rows = _dropout(self.input(rows), self.shape.dropout, rng)
        for block in self.block:
            rows = block(rows, layout, rng)
        outputs: Tensor = self.output(self.norm(rows))
        return outputs


def build(shape: Architecture) -> MLP | SetAttention:
    """The network without weights (on PyTorch's ``meta`` device); see `initialize`."""
    with torch.device("meta"):
        return MLP(shape) if shape.network == "mlp" else SetAttention(shape)


def initialize(network: nn.Module, rng: torch.Generator) -> None:
    """Weights and biases uniform within ±1/√(number of inputs); norms start as the identity."""
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
    """Σ_k G(k) softmax(logits)_k, (documents, grades) -> (documents,)."""
    return torch.softmax(logits, dim=1) @ gains
