"""The common losses in PyTorch, on any device: the same values and gradients as the reference, in the scores' dtype.

`native(loss)` gives the native version, or None where there is none with exactly these hyper-parameters. Bound to a
batch of whole queries it maps scores to the mean over queries:

>>> import torch
>>> from toprank import losses
>>> bound = native(losses.ListNet()).bind(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0, 3]))
>>> scores = torch.zeros(3, requires_grad=True)
>>> bound(scores).backward()
>>> bool(scores.grad.sum().abs() < 1e-6)
True

What depends on the labels alone is computed by `bind`, once for a batch. The labels must be ones that the loss takes:
`loss.on(labels, queries)` checks that, once for all data; here nothing looks at them, since that would make the host
wait for the device. Give `offsets` on the CPU to spare the one wait that is left.

O(m) losses work on segments. Losses of pairs work on padded grids of queries of similar length, in tiles of bounded
memory. Value and gradient are computed together in closed form, so a LambdaRank is no special case. On an NVIDIA GPU
with Triton, float32 losses run as a few kernels (`toprank.losses.native.fused`). On a CPU the reference's own kernels
are faster for all but the softmax and squared losses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from toprank.losses.approx import ApproxMetric, ApproxNDCG
from toprank.losses.base import Loss
from toprank.losses.lambdas import LambdaLoss, LambdaRank
from toprank.losses.listmle import CostSensitiveListMLE, ListMLE, PListMLE
from toprank.losses.native.frame import BoundNative, Frame, Judge
from toprank.losses.native.fused import fused_judge
from toprank.losses.native.lambdas import has_lambdarank, lambdaloss, lambdarank
from toprank.losses.native.listmle import likelihood
from toprank.losses.native.pairs import has_pairs, pairs
from toprank.losses.native.pointwise import has_targets, multinomial, query_squared, squared
from toprank.losses.native.smooth import has_smooth, smooth
from toprank.losses.native.softmax import has_listnet, has_multicategory, listnet, multicategory, xendcg
from toprank.losses.ordinal import Multinomial
from toprank.losses.pairwise import Hinge, Logistic, SquaredHinge
from toprank.losses.pointwise import QuerySquared, Squared
from toprank.losses.softmax import XENDCG, ListNet, Multicategory

__all__ = ["BoundNative", "Native", "native", "native_names"]


@dataclass(frozen=True)
class _Version:
    judge_of: Callable[[Any, Frame], Judge]
    exists: Callable[[Any], bool] | None = None
    """None: for all hyper-parameters."""


_VERSIONS: dict[type[Loss], _Version] = {
    ListNet: _Version(listnet, has_listnet),
    Multicategory: _Version(multicategory, has_multicategory),
    XENDCG: _Version(xendcg),
    ListMLE: _Version(likelihood),
    PListMLE: _Version(likelihood),
    CostSensitiveListMLE: _Version(likelihood),
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


@dataclass(frozen=True)
class Native:
    """A loss of ours in PyTorch; made by `native`."""

    loss: Loss

    def bind(
        self,
        labels: Tensor,
        offsets: Tensor,
        document_weights: Tensor | None = None,
        query_weights: Tensor | None = None,
        *,
        max_grade: float | None = None,
    ) -> BoundNative:
        """The loss on a batch of whole queries.

        Args:
            labels: (n,), finite and such as the loss takes; their dtype (at least float32) is that of the work.
            offsets: (Q + 1,) whole numbers, rising strictly from 0 to n; on the labels' device, or better on the CPU.
            document_weights: (n,) or None.
            query_weights: (Q,) or None; they are divided by their sum.
            max_grade: the largest label of all data, where this batch is a part of them; a loss may name its own.

        Returns:
            A callable from scores (n,), or (n, K) for `Multinomial`, to the scalar mean over queries.
        """
        frame = Frame(labels, offsets, document_weights, query_weights, max_grade)
        judge = fused_judge(self.loss, frame) or _VERSIONS[type(self.loss)].judge_of(self.loss, frame)
        return BoundNative(frame, judge)


def native(loss: Loss) -> Native | None:
    """The native version of a loss, or None where there is none with exactly these hyper-parameters.

    >>> from toprank import losses
    >>> native(losses.ListNet(top_k=2)) is None
    True
    """
    version = _VERSIONS.get(type(loss))  # a subclass of yours may be another loss
    if version is None or not (version.exists is None or version.exists(loss)):
        return None
    return Native(loss)


def native_names() -> tuple[str, ...]:
    """The names of the losses with a native version, for some hyper-parameters at least."""
    return tuple(kind.__name__ for kind in _VERSIONS)
