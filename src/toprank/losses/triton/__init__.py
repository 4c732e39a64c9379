"""The common losses on a GPU: the same values and gradients as the reference, as a few kernels in Triton.

`gpu_loss(loss)` gives its version for GPUs, or None if there is none with these hyper-parameters. It computes once, for
all data, what depends on the labels alone; a batch takes its part of that:

    prepared = gpu_loss(losses.ListNet())(Frame(labels, offsets))     # tensors on a GPU
    prepared.value(scores, part, prepared.take(rows)).backward()      # of the batch `part`, with the documents `rows`

Labels and weights must be ones that the loss takes: `loss.on(labels, queries)` checks that. Here nothing looks at them,
since that would make the host wait for the device.

A program of a kernel reads some documents of one query against all others, wherever the query ends, and writes only
their own gradients: there is no padding and no sorting; sums are always in the same order, so the same scores give the
same bits; and no shape depends on where queries end, so that a step can be recorded once and replayed for every batch
(`rankers.neural.resident`).

On a CPU Triton's interpreter runs the same kernels, for tests (TRITON_INTERPRET=1); the reference is the faster there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch

from toprank.errors import warn_user
from toprank.losses.base import Loss
from toprank.losses.lambdas import LambdaLoss, LambdaRank
from toprank.losses.listmle import CostSensitiveListMLE, ListMLE, PListMLE
from toprank.losses.ordinal import Multinomial
from toprank.losses.pairwise import Hinge, Logistic, SquaredHinge
from toprank.losses.pointwise import QuerySquared, Squared
from toprank.losses.smooth import ApproxMetric, ApproxNDCG
from toprank.losses.softmax import XENDCG, ListNet, Multicategory
from toprank.losses.triton.frame import BatchPart, Frame, PreparedLoss
from toprank.losses.triton.gains import rank_table
from toprank.losses.triton.listwise import (
    has_likelihood,
    has_listnet,
    has_multicategory,
    likelihood,
    listnet,
    multicategory,
    xendcg,
)
from toprank.losses.triton.pairwise import (
    has_lambdarank,
    has_pairs,
    has_smooth,
    lambdaloss,
    lambdarank,
    pairs,
    smooth,
)
from toprank.losses.triton.pointwise import has_targets, multinomial, query_squared, squared
from toprank.losses.triton.ranks import by_rank
from toprank.losses.triton.triton_parts import HAS_TRITON, interpreted

__all__ = ["BatchPart", "Frame", "PreparedLoss", "available", "gpu_loss", "gpu_loss_names"]


@dataclass(frozen=True)
class _Version:
    prepare: Callable[[Any, Frame], PreparedLoss]
    exists: Callable[[Any], bool] | None = None
    """None: for all hyper-parameters."""


_VERSIONS: dict[type[Loss], _Version] = {
    ListNet: _Version(listnet, has_listnet),
    Multicategory: _Version(multicategory, has_multicategory),
    XENDCG: _Version(xendcg),
    ListMLE: _Version(likelihood, has_likelihood),
    PListMLE: _Version(likelihood, has_likelihood),
    CostSensitiveListMLE: _Version(likelihood, has_likelihood),
    Logistic: _Version(pairs, has_pairs),
    Hinge: _Version(pairs, has_pairs),
    SquaredHinge: _Version(pairs, has_pairs),
    LambdaRank: _Version(lambdarank, has_lambdarank),
    LambdaLoss: _Version(lambdaloss),
    ApproxNDCG: _Version(smooth, has_smooth),
    ApproxMetric: _Version(smooth, has_smooth),
    Squared: _Version(squared, has_targets),
    QuerySquared: _Version(query_squared, has_targets),
    Multinomial: _Version(multinomial),
}


def gpu_loss(loss: Loss) -> Callable[[Frame], PreparedLoss] | None:
    """The version of a loss for GPUs, or None if there is none with exactly these hyper-parameters.

    >>> from toprank import losses
    >>> gpu_loss(losses.ListNet(top_k=2)) is None
    True
    """
    version = _VERSIONS.get(type(loss))  # a subclass of yours may be another loss
    if version is None or not (version.exists is None or version.exists(loss)):
        return None
    return partial(version.prepare, loss)


def gpu_loss_names() -> tuple[str, ...]:
    """The names of the losses with a version for GPUs, for some hyper-parameters at least."""
    return tuple(kind.__name__ for kind in _VERSIONS)


@lru_cache(maxsize=16)
def available(device: torch.device) -> bool:
    """Whether kernels can be built and run on the device; warns once of a Triton that fails."""
    if not HAS_TRITON or (device.type != "cuda" and not interpreted()):
        return False
    try:
        frame = Frame(torch.zeros(2, device=device), torch.tensor([0, 2]))
        by_rank(frame.part, frame.labels, rank_table(frame))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except Exception as problem:  # noqa: BLE001 - Triton fails in many ways: no C compiler, an old GPU, a broken cache
        warn_user(
            f"Triton is installed but does not work here ({type(problem).__name__}: {problem}); losses are computed on "
            "the CPU, with scores copied there and gradients back, which is slower.",
            RuntimeWarning,
        )
        return False
    return True
