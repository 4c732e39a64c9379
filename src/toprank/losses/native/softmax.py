"""Cross entropy between targets and softmax(s): `ListNet` (top 1), `Multicategory` and `XENDCG`.

loss_q = Σ_j t_j (max s − s_j) + T·log Σ_k e^{s_k − max s},  T = Σ_j t_j;  its gradient is T·softmax(s) − t.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from toprank.losses.native.frame import Frame, Judge
from toprank.losses.native.gains import gains_of, has_gain
from toprank.losses.softmax import XENDCG, ListNet, Multicategory

__all__ = ["has_listnet", "has_multicategory", "listnet", "multicategory", "xendcg"]


def has_listnet(loss: ListNet) -> bool:
    """Only the top-1 form is O(m)."""
    return loss.top_k == 1


def listnet(loss: ListNet, frame: Frame) -> Judge:
    """See `ListNet`."""
    wanted = loss.alpha * (frame.labels if loss.psi == "linear" else gains_of(frame, "exponential"))
    targets = torch.exp(wanted - frame.spread(frame.max(wanted)))
    return _cross_entropy(targets / frame.spread(frame.sum(targets)), frame)


def has_multicategory(loss: Multicategory) -> bool:
    """Any gain but a function of the user."""
    return has_gain(loss.gain)


def multicategory(loss: Multicategory, frame: Frame) -> Judge:
    """See `Multicategory`."""
    return _cross_entropy(gains_of(frame, loss.gain), frame)


def xendcg(loss: XENDCG, frame: Frame) -> Judge:
    """See `XENDCG`; the draws are the reference's own."""
    if loss.gamma == "uniform":
        left = frame.tensor(1.0 - np.random.default_rng(loss.seed).random(frame.n_documents))
    else:
        left = frame.full(frame.n_documents, 1.0 - float(loss.gamma))
    targets = gains_of(frame, "exponential") + left
    totals = frame.sum(targets)
    return _cross_entropy(targets / frame.spread(torch.where(totals > 0, totals, 1.0)), frame)


def _cross_entropy(targets: Tensor, frame: Frame) -> Judge:
    scaled = frame.weighted(targets) * frame.spread(frame.scale)
    masses = frame.sum(scaled)

    def judge(scores: Tensor) -> tuple[Tensor, Tensor]:
        below = frame.spread(frame.max(scores)) - scores
        exponentials = torch.exp(-below)
        totals = frame.sum(exponentials)
        value = torch.dot(scaled, below) + torch.dot(masses, totals.log())
        return value, exponentials * frame.spread(masses / totals) - scaled

    return judge
