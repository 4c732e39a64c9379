"""GPU versions of the common losses: values and gradients of the reference, as Triton kernels.

`gpu_loss(loss)` returns the GPU version of a loss, or None if there is none for these hyper-parameters. It computes
everything that depends on labels alone once for all data, and a batch uses its part:

    prepared = gpu_loss(losses.ListNet())(Frame(labels, offsets))     # tensors on a GPU
    prepared.value(scores, part, prepared.take(rows)).backward()      # of the batch `part`, with the documents `rows`

Labels and weights must be valid for the loss, which `loss.on(labels, queries)` checks. They are not checked here,
because the host would have to wait for the device.

A program of a kernel compares some documents of one query with all others of it, and writes only their gradients. There
is no padding and no sorting. Sums have a fixed order, so equal scores give identical bits. No shape depends on the
query boundaries, so a step can be recorded once and replayed for every batch (`rankers.neural.resident`).

On a CPU, Triton's interpreter runs the same kernels for tests (TRITON_INTERPRET=1); the reference is faster there.
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
    """Condition on the hyper-parameters; None for all."""


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
    """Return the GPU version of a loss, or None if there is none for these hyper-parameters.

    >>> from toprank import losses
    >>> gpu_loss(losses.ListNet(top_k=2)) is None
    True
    """
    version = _VERSIONS.get(type(loss))  # subclasses may be other losses
    if version is None or not (version.exists is None or version.exists(loss)):
        return None
    return partial(version.prepare, loss)


def gpu_loss_names() -> tuple[str, ...]:
    """Return the names of the losses with a GPU version for at least some hyper-parameters."""
    return tuple(kind.__name__ for kind in _VERSIONS)


@lru_cache(maxsize=16)
def available(device: torch.device) -> bool:
    """Return whether kernels can be built and run on the device; warn once if Triton fails."""
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
