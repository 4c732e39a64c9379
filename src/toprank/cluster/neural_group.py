"""Data-parallel training of one network: each process takes its share of the queries of every batch.

The loss of a batch is a sum over queries, so its gradient is the sum of the shares' gradients: one all-reduce per step
(PyTorch's gloo). Every process makes the same step, and without dropout the training equals that of a single process up
to rounding, for any number of processes.

``torchrun`` starts the processes, on one machine or many, monitors them, and ends all of them if one fails.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as gloo
from torch import nn

from toprank.data.arguments import check_number
from toprank.data.files import read
from toprank.errors import DataError
from toprank.rankers.neural.inputs import EpochPlan
from toprank.rankers.neural.objective import NotFinite
from toprank.rankers.neural.ranker import NeuralRanker

# Seconds, about three years: gloo counts timeouts in milliseconds, and a longer one would overflow.
_MAX_TIMEOUT = 1e8


def fit_distributed(ranker: NeuralRanker, data: Any, *, valid: Any = None, timeout: float = 600.0) -> NeuralRanker:
    """Train a `NeuralRanker` in the processes started by ``torchrun``; every process must make this call.

    Args:
        ranker: the ranker; it is fitted in place and returned. Dropout masks differ between the processes; batch
            normalization needs whole batches and raises an error.
        data: a `RankingData`, or the path of a stored copy, which all processes map without copying.
        valid: validation data of the same kind. Default: none.
        timeout: seconds that a process may keep the others waiting. Default 600.

    Raises:
        DataError: this process was not started by ``torchrun``, or the ranker does not support distributed training.
    """
    if not isinstance(ranker, NeuralRanker):
        raise DataError(f"fit_distributed trains a NeuralRanker, not a {type(ranker).__name__}.")
    if ranker.norm == "batch":
        raise DataError("norm='batch' needs whole batches, but each process has a part of each; use norm='layer'.")
    if ranker.callbacks:
        raise DataError("callbacks could end the training in one process only; leave them out.")
    check_number("timeout", timeout, above=0)
    if "RANK" not in os.environ:
        raise DataError(
            "fit_distributed must run in processes started by torchrun; put the call into a script, and start the "
            "script with torchrun."
        )
    train, held_out = (read(part) if isinstance(part, str | os.PathLike) else part for part in (data, valid))
    with _group(float(timeout)) as group:
        ranker._worker_group = group
        try:
            return ranker.fit(train, valid=held_out)
        finally:
            del ranker._worker_group


class GlooGroup:
    """This process's rank among the training processes; see `toprank.rankers.neural.training.WorkerGroup`."""

    def __init__(self, rank: int, size: int, place: int | None = None) -> None:
        self.rank, self.size = rank, size
        self.place = rank if place is None else place

    def share(self, plan: EpochPlan) -> EpochPlan:
        """Split every batch so that each process gets a similar number of documents."""
        offsets = plan.queries.offsets
        shares = []
        for first, last in plan.batches:
            marks = np.linspace(offsets[first], offsets[last], self.size + 1)[1:-1]
            cuts = [first, *np.searchsorted(offsets[first:last], marks) + first, last]
            shares.append((int(cuts[self.rank]), int(cuts[self.rank + 1])))
        return plan._replace(batches=shares)

    def add(self, network: nn.Module, loss: float) -> float:
        """Sum every gradient, and the loss, over all processes in one call. Gloo adds on the CPU."""
        weights = [weight for weight in network.parameters() if weight.requires_grad]
        grads = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
        finite = torch.tensor([loss if math.isfinite(loss) else math.nan])
        flat = torch.cat([*(grad.reshape(-1).cpu() for grad in grads), finite])
        gloo.all_reduce(flat)
        total = float(flat[-1])
        if not math.isfinite(total):
            raise NotFinite("A score or the loss is not finite.")
        parts = torch.split(flat[:-1], [weight.numel() for weight in weights])
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part.view_as(weight).to(weight.device)
        return total

    def agreed(self, metrics: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Evaluate on the first process, and broadcast the result."""
        shared: list[Any] = [None]
        if self.rank == 0:
            with suppress(NotFinite):  # reported to all processes below
                shared = [metrics()]
        gloo.broadcast_object_list(shared)
        if shared[0] is None:
            raise NotFinite("A score is not finite.")
        result: dict[str, float] = shared[0]
        return result


@contextmanager
def _group(timeout: float) -> Iterator[GlooGroup]:
    """Join the group of processes started by the launcher, and leave it at the end."""
    hook = sys.excepthook  # gloo replaces the hook and does not restore it
    gloo.init_process_group("gloo", timeout=timedelta(seconds=min(timeout, _MAX_TIMEOUT)))
    try:
        yield GlooGroup(gloo.get_rank(), gloo.get_world_size(), int(os.environ.get("LOCAL_RANK", gloo.get_rank())))
        gloo.barrier()  # no process leaves while another is still receiving
    finally:
        gloo.destroy_process_group()
        sys.excepthook = hook
