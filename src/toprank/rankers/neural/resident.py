"""Training steps with all data on the device, without transfers from the host.

A step consists of about a hundred small operations, and launching them one by one takes ten times as long as running
them. Therefore everything that a step needs is on the device: the rows, the label terms of the loss, the order of the
epoch, the learning rates, and the step number. All steps are then the same operations on tensors of the same shapes
(batches with fewer documents or queries than the largest are padded), which are recorded once as a CUDA graph and
replayed. Without CUDA the same steps run one by one, for tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toprank.compute import FloatArray, IntArray, blocks_of, offsets_of
from toprank.losses.triton import BatchPart
from toprank.rankers.neural.objective import NetworkObjective

_N_WARMUP_STEPS = 3  # before recording, for compiling kernels and allocating workspaces
_QUERY_MULTIPLE = 32  # capacities of recorded steps are rounded up to this multiple, to avoid new recordings


class ResidentSteps:
    """The training steps on one device.

    Args:
        objective: the loss on the training data; it must have a GPU implementation.
        rows: network inputs, (documents, features), on the device.
        network: a network that scores each row independently.
        optimizer: on a GPU, its learning rates are tensors.
        rng: generator for dropout.
        budget: number of documents per batch.
        max_grad_norm: maximum norm of the gradient; None for no limit.
    """

    def __init__(
        self,
        objective: NetworkObjective,
        rows: Tensor,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        rng: torch.Generator,
        *,
        budget: int,
        max_grad_norm: float | None,
    ) -> None:
        self._objective, self._features, self._network, self._optimizer = objective, rows, network, optimizer
        self._prepared, self._queries, device = objective.prepared, objective.data.queries, rows.device
        self._rng, self._budget, self._max_grad_norm = rng, budget, max_grad_norm
        self._weights = [weight for weight in network.parameters() if weight.requires_grad]
        n, n_queries, self._longest = len(rows), len(self._queries), int(self._queries.sizes.max())
        self._places = torch.arange(min(n, max(budget, self._longest)), device=device)
        self._query_sizes = torch.from_numpy(self._queries.sizes.copy()).to(device)
        self._query_starts = torch.from_numpy(self._queries.offsets[:-1].copy()).to(device)
        self._query_weights = objective.query_scale
        self._rows = torch.zeros(n + len(self._places), dtype=torch.int64, device=device)
        self._offsets = torch.zeros(n_queries + 1, dtype=torch.int64, device=device)
        self._firsts = torch.zeros(n_queries + 1, dtype=torch.int64, device=device)
        self._scale = torch.zeros(n_queries, device=device)
        self._rates = torch.zeros(n_queries, device=device)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._total = torch.zeros((), dtype=torch.float64, device=device)
        self._slots = torch.zeros(0, dtype=torch.int64, device=device)
        self._graph: Any = None
        self._stream: Any = None
        if device.type == "cuda":  # to replay steps as a CUDA graph
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._taken = 0

    def batches(self, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Return an order of the queries, and the index of the first query of each batch, with their number at the
        end.
        """
        order = rng.permutation(len(self._queries))
        offsets = offsets_of(self._queries.sizes[order])
        return order, np.array([first for first, _ in blocks_of(offsets, self._budget)] + [len(order)])

    def epoch(self, objective: NetworkObjective, order: IntArray, firsts: IntArray, rates: FloatArray) -> float:
        """Run the steps of an epoch with these learning rates; return the mean loss of the batches."""
        count = len(firsts) - 1
        self._plan(order, firsts, rates)
        if objective is not self._objective:  # a stochastic loss has new draws
            for kept, drawn in zip(self._prepared.columns, objective.prepared.columns, strict=True):
                if kept is not None:
                    kept.copy_(drawn)
        if self._stream is None:
            for _ in range(count):
                self._take_step()
        else:
            self._stream.wait_stream(torch.cuda.current_stream(self._rows.device))
            with torch.cuda.stream(self._stream):
                for _ in range(count):
                    self._replay()
            torch.cuda.current_stream(self._rows.device).wait_stream(self._stream)
        return float(self._total) / count

    def _plan(self, order: IntArray, firsts: IntArray, rates: FloatArray) -> None:
        """Copy the order of the epoch to the device; only query indices are transferred, and rows are computed
        there.
        """
        device, n = self._rows.device, self._queries.n_documents
        chosen = torch.from_numpy(order).to(device)
        sizes = self._query_sizes.index_select(0, chosen)
        self._offsets[1:] = sizes.cumsum(0)
        shifts = self._query_starts.index_select(0, chosen) - self._offsets[:-1]
        self._rows[:n] = torch.arange(n, device=device) + shifts.repeat_interleave(sizes, output_size=n)
        self._firsts[: len(firsts)] = torch.from_numpy(firsts).to(device)
        self._rates[: len(rates)] = torch.from_numpy(rates).to(device)
        torch.mul(self._query_weights.index_select(0, chosen), float(len(firsts) - 1), out=self._scale)
        self._step.zero_()
        self._total.zero_()
        most = int(np.diff(firsts).max())
        if most >= len(self._slots):
            room = min(-(-most // _QUERY_MULTIPLE) * _QUERY_MULTIPLE, len(self._scale))
            self._slots = torch.arange(room + 1, device=device)
            self._graph, self._taken = None, 0

    def _replay(self) -> None:
        """Run a step: the first ones directly, later ones by the recorded graph."""
        if self._graph is None and self._taken < _N_WARMUP_STEPS:
            self._take_step()
            self._taken += 1
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            self._graph.register_generator_state(self._rng)
            with torch.cuda.graph(self._graph, stream=self._stream):
                self._take_step()
        self._graph.replay()

    def _take_step(self) -> None:
        rows, part = self._batch()
        outputs = self._network(self._features.index_select(0, rows), None, self._rng)
        loss = self._prepared.value(self._objective.judged(outputs), part, self._prepared.take(rows))
        for weight in self._weights:
            weight.grad = None
        loss.backward()
        if self._max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self._weights, self._max_grad_norm)
        rate = self._rates.index_select(0, self._step)[0]
        for group in self._optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].copy_(rate)
            else:
                group["lr"] = float(rate)
        self._optimizer.step()
        self._total += loss.detach()
        self._step += 1

    def _batch(self) -> tuple[Tensor, BatchPart]:
        """Return the rows of the current batch, and its queries."""
        first, last = self._firsts.index_select(0, self._step), self._firsts.index_select(0, self._step + 1)
        start, slots = self._offsets.index_select(0, first), first + self._slots
        offsets = self._offsets.index_select(0, torch.minimum(slots, last)) - start
        used = slots[:-1]
        scale = self._scale.index_select(0, used.clamp_max(len(self._scale) - 1))
        scale = torch.where(used < last, scale, 0.0)
        rows = self._rows.index_select(0, start + self._places)
        return rows, BatchPart(offsets, scale, len(self._places), self._longest)
