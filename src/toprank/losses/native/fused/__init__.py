"""The native losses as single kernels for NVIDIA GPUs, in Triton: no padding, no sorting, a few launches a step.

On a GPU the PyTorch versions spend their time on launching dozens of small operations. Here a program reads some
documents of one query against all others, wherever the query ends, and writes only their own gradients: the sums
are always in the same order, so the same scores give the same bits.

Used for float32 on CUDA devices where Triton is installed and works; everything else goes by the PyTorch versions,
which give the same numbers more slowly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from toprank.losses.approx import ApproxMetric, ApproxNDCG
from toprank.losses.lambdas import LambdaLoss, LambdaRank
from toprank.losses.listmle import CostSensitiveListMLE, ListMLE, PListMLE
from toprank.losses.native.frame import Frame, Judge
from toprank.losses.native.fused.listwise import likelihood, listnet, xendcg
from toprank.losses.native.fused.pairwise import lambdaloss, lambdarank, pairs, smooth
from toprank.losses.native.fused.ranks import by_rank, groups_only
from toprank.losses.native.fused.triton_parts import HAS_TRITON
from toprank.losses.pairwise import Hinge, Logistic, SquaredHinge
from toprank.losses.softmax import XENDCG, ListNet

__all__ = ["available", "fused_judge"]

_FUSED: dict[type, Callable[[Any, Frame], Judge | None]] = {
    ListNet: listnet,
    XENDCG: xendcg,
    ListMLE: likelihood,
    PListMLE: likelihood,
    CostSensitiveListMLE: likelihood,
    Logistic: pairs,
    Hinge: pairs,
    SquaredHinge: pairs,
    LambdaRank: lambdarank,
    LambdaLoss: lambdaloss,
    ApproxNDCG: smooth,
    ApproxMetric: smooth,
}


def fused_judge(loss: object, frame: Frame) -> Judge | None:
    """The loss as kernels on this batch; None where the PyTorch version has to do it."""
    make = _FUSED.get(type(loss))
    if make is None or frame.dtype != torch.float32 or not available(frame.device):
        return None
    return make(loss, frame)


@lru_cache(maxsize=16)
def available(device: torch.device) -> bool:
    """Whether kernels can be built and run there; a Triton that fails is named in a warning, once.

    >>> available(torch.device("cpu"))
    False
    """
    if device.type != "cuda" or not HAS_TRITON:
        return False
    try:
        frame = Frame(torch.zeros(2, device=device), torch.tensor([0, 2]))
        by_rank(frame, frame.labels, groups_only(frame))
        torch.cuda.synchronize(device)
    except Exception as problem:  # noqa: BLE001 - Triton fails in many ways: no C compiler, an old GPU, a broken cache
        warnings.warn(
            f"Triton is installed but does not work here ({type(problem).__name__}: {problem}); losses on the GPU "
            "are computed by PyTorch operations, which is slower.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True
