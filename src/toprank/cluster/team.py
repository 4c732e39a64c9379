"""A process's place in a team that trains one network (PyTorch's gloo); imports torch."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as gloo
from torch import nn

from toprank.rankers.neural_batches import EpochPlan
from toprank.rankers.neural_bridge import NotFinite

__all__ = ["GlooTeam", "meet", "team"]

_LONGEST = 1e8
"""Seconds, about three years: more than anybody waits, and not too many milliseconds for gloo."""


class GlooTeam:
    """See `toprank.rankers.neural_training.Team`."""

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
        """One sum over all processes: every gradient, and the loss behind them. Gloo adds on the CPU."""
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
        """The first process judges, and tells the others."""
        told: list[Any] = [None]
        if self.rank == 0:
            with suppress(NotFinite):  # told to all below
                told = [metrics()]
        gloo.broadcast_object_list(told)
        if told[0] is None:
            raise NotFinite("A score is not finite.")
        result: dict[str, float] = told[0]
        return result


def meet(patience: float, **where: Any) -> GlooTeam:
    """Meet the other processes."""
    gloo.init_process_group("gloo", timeout=timedelta(seconds=min(patience, _LONGEST)), **where)
    told = os.environ.get("LOCAL_RANK")  # by torchrun; without it all processes are on one machine
    return GlooTeam(gloo.get_rank(), gloo.get_world_size(), None if told is None else int(told))


@contextmanager
def team(patience: float) -> Iterator[GlooTeam]:
    """Meet the processes that torchrun started with this one, and part from them."""
    members = meet(patience)
    try:
        yield members
        gloo.barrier()  # nobody leaves while another still listens
    finally:
        gloo.destroy_process_group()
