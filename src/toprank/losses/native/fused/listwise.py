"""Softmax losses and likelihoods by kernels: what they prepare once for a batch, and what they launch."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from toprank.losses.listmle import CostSensitiveListMLE, ListMLE, PListMLE
from toprank.losses.native.frame import Frame, Judge
from toprank.losses.native.fused.likelihood_kernels import risk_pass, share_pass
from toprank.losses.native.fused.ranks import by_rank, groups_only, launch, launch_queries, pointer, rank_table
from toprank.losses.native.fused.softmax_kernels import cross_entropy, target_pass
from toprank.losses.native.gains import gains_of
from toprank.losses.softmax import XENDCG, ListNet
from toprank.metrics.gains import Discount

__all__ = ["likelihood", "listnet", "xendcg"]


def listnet(loss: ListNet, frame: Frame) -> Judge:
    """See `toprank.losses.native.softmax`."""
    wanted = frame.labels if loss.psi == "linear" else gains_of(frame, "exponential")
    return _cross_entropy(frame, wanted if loss.alpha == 1.0 else loss.alpha * wanted, softmax=True)


def xendcg(loss: XENDCG, frame: Frame) -> Judge:
    """See `toprank.losses.native.softmax`."""
    left: Tensor | float
    if loss.gamma == "uniform":
        left = frame.tensor(1.0 - np.random.default_rng(loss.seed).random(frame.n_documents))
    else:
        left = 1.0 - float(loss.gamma)
    return _cross_entropy(frame, gains_of(frame, "exponential") + left, softmax=False)


def _cross_entropy(frame: Frame, values: Tensor, softmax: bool) -> Judge:
    targets, weights = torch.empty_like(values), frame.document_weights
    given = values, pointer(weights, values), frame.scale, frame.offsets
    launch_queries(frame, target_pass, *given, targets, SOFTMAX=softmax, WEIGHTED=weights is not None)

    def judge(scores: Tensor) -> tuple[Tensor, Tensor]:
        scores = scores.contiguous()
        grad, losses = torch.empty_like(scores), torch.empty_like(frame.scale)
        launch_queries(frame, cross_entropy, scores, targets, frame.offsets, grad, losses)
        return losses.sum(), grad

    return judge


def likelihood(loss: ListMLE | PListMLE | CostSensitiveListMLE, frame: Frame) -> Judge | None:
    """See `toprank.losses.native.listmle`; only the treatments of ties that do not ask for the order of rows."""
    if loss.ties not in ("efron", "breslow"):
        return None
    table, cost, weights = groups_only(frame), 0.0, frame.document_weights
    if isinstance(loss, PListMLE):
        if loss.discount == "published" or Discount.of(loss.discount).function is not None:
            return None  # depends on the length of the query; a function may not like ranks beyond the longest one
        table = rank_table(frame, Discount.of(loss.discount))
    if isinstance(loss, CostSensitiveListMLE):
        cost = math.log2(loss.pcf)
    groups, n = by_rank(frame, frame.labels, table), frame.n_documents
    options = {
        "EFRON": loss.ties == "efron",
        "LOWEST": loss.lowest,
        "POSITIONS": isinstance(loss, PListMLE),
        "COSTS": isinstance(loss, CostSensitiveListMLE),
        "WEIGHTED": weights is not None,
    }

    def judge(scores: Tensor) -> tuple[Tensor, Tensor]:
        scores = scores.contiguous()
        grad, losses, terms = torch.empty_like(scores), torch.empty_like(scores), scores.new_empty(4, n)
        given = scores, frame.labels, pointer(weights, scores), groups, frame.scale, frame.offsets
        launch(frame, risk_pass, *given, terms, losses, n, cost, **options)
        launch(frame, share_pass, scores, frame.labels, terms, frame.offsets, grad, n)
        return losses.sum(), grad

    return judge
