"""Several processes train one network: each takes its share of the queries of every batch.

The loss of a batch is a sum over queries, so its gradient is the sum of the shares' gradients: one all-reduce a step
(PyTorch's gloo). Every process makes the same step, and without dropout the training is the one that a single process
would make, up to rounding, whatever the number of processes.

``torchrun`` starts the processes, on one machine or many, watches them, and ends all if one fails.
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

# Seconds, about three years: gloo counts a timeout in milliseconds, and a longer one would overflow.
_MAX_TIMEOUT = 1e8


def fit_distributed(ranker: NeuralRanker, data: Any, *, valid: Any = None, patience: float = 600.0) -> NeuralRanker:
    """Train a `NeuralRanker` by the processes that ``torchrun`` started, each of which calls this function alike.

    Args:
        ranker: the ranker; it is fitted in place, and returned. Dropout draws differ between the processes; batch
            normalization, which looks at a whole batch at once, is refused.
        data: a `RankingData`, or the path of a stored copy, which all processes map and none copies.
        valid: data of the same kind to choose on.
        patience: seconds that a process may let the others wait.

    Raises:
        DataError: if this process was not started by ``torchrun``, or the ranker cannot be trained in parts.
    """
    if not isinstance(ranker, NeuralRanker):
        raise DataError(f"fit_distributed trains a NeuralRanker, not a {type(ranker).__name__}.")
    if ranker.norm == "batch":
        raise DataError("norm='batch' looks at a whole batch, but each process has a part of it; use norm='layer'.")
    if ranker.callbacks:
        raise DataError("callbacks could end the training in one process while the others go on; leave them out.")
    check_number("patience", patience, above=0)
    if "RANK" not in os.environ:
        raise DataError(
            "fit_distributed runs in processes that torchrun starts; put the call into a script, and let torchrun "
            "start it."
        )
    train, held_out = (read(part) if isinstance(part, str | os.PathLike) else part for part in (data, valid))
    with _group(float(patience)) as group:
        ranker._worker_group = group
        try:
            return ranker.fit(train, valid=held_out)
        finally:
            del ranker._worker_group


class GlooGroup:
    """This process's place among those that train one network; see `toprank.rankers.neural.training.WorkerGroup`."""

    def __init__(self, rank: int, size: int, place: int | None = None) -> None:
        self.rank, self.size = rank, size
        self.place = rank if place is None else place

    def share(self, plan: EpochPlan) -> EpochPlan:
        """Cut every batch where the documents before each process are about equal in number."""
        offsets = plan.queries.offsets
        shares = []
        for first, last in plan.batches:
            marks = np.linspace(offsets[first], offsets[last], self.size + 1)[1:-1]
            cuts = [first, *np.searchsorted(offsets[first:last], marks) + first, last]
            shares.append((int(cuts[self.rank]), int(cuts[self.rank + 1])))
        return plan._replace(batches=shares)

    def add(self, network: nn.Module, loss: float) -> float:
        """Sum every gradient, and behind them the loss, over all processes at once. Gloo adds on the CPU."""
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
        """Let the first process judge, and tell the others."""
        shared: list[Any] = [None]
        if self.rank == 0:
            with suppress(NotFinite):  # told to all below
                shared = [metrics()]
        gloo.broadcast_object_list(shared)
        if shared[0] is None:
            raise NotFinite("A score is not finite.")
        result: dict[str, float] = shared[0]
        return result


@contextmanager
def _group(patience: float) -> Iterator[GlooGroup]:
    """Join the processes that the launcher started with this one, and leave them at the end."""
    hook = sys.excepthook  # gloo replaces it, and leaves its own behind
    gloo.init_process_group("gloo", timeout=timedelta(seconds=min(patience, _MAX_TIMEOUT)))
    try:
        yield GlooGroup(gloo.get_rank(), gloo.get_world_size(), int(os.environ.get("LOCAL_RANK", gloo.get_rank())))
        gloo.barrier()  # nobody leaves while another still listens
    finally:
        gloo.destroy_process_group()
        sys.excepthook = hook
