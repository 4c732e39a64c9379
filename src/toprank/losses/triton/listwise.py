"""Softmax losses and likelihoods: preparation, launches and kernels.

Cross entropy between targets t and softmax(s) is Σ_j t_j (max s − s_j) + T·log Σ_k e^{s_k − max s}, T = Σ_j t_j; its
gradient is T·softmax(s) − t. Each program processes one query. Plackett–Luce likelihoods need no sorting: risk sums are
computed by comparing grades, in two passes over the pairs. Each sum is relative to its own largest score, so it cannot
overflow or lose precision by subtraction.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from toprank.losses.listmle import CostSensitiveListMLE, ListMLE, PListMLE
from toprank.losses.softmax import XENDCG, ListNet, Multicategory
from toprank.losses.triton.frame import BatchPart, Columns, Frame, PreparedLoss
from toprank.losses.triton.gains import LOG2, gains_of, has_gain, rank_table
from toprank.losses.triton.ranks import by_rank, launch, launch_queries
from toprank.losses.triton.triton_parts import constexpr, kernel, program_part, tensor, tl
from toprank.metrics.conventions import Discount


def has_listnet(loss: ListNet) -> bool:
    """Return whether the loss is the top-1 form, which is O(m)."""
    return loss.top_k == 1


def listnet(loss: ListNet, frame: Frame) -> PreparedLoss:
    """Prepare `ListNet`."""
    wanted = loss.alpha * (frame.labels if loss.psi == "linear" else gains_of(frame, "exponential"))
    return _cross_entropy(frame, frame.over_sum(torch.exp(wanted - frame.part.broadcast(frame.max(wanted)))))


def has_multicategory(loss: Multicategory) -> bool:
    """Return whether the gain is not a user-defined function."""
    return loss.gain is None or has_gain(loss.gain)


def multicategory(loss: Multicategory, frame: Frame) -> PreparedLoss:
    """Prepare `Multicategory`."""
    return _cross_entropy(frame, frame.labels if loss.gain is None else gains_of(frame, loss.gain))


def xendcg(loss: XENDCG, frame: Frame) -> PreparedLoss:
    """Prepare `XENDCG` with the random numbers of the reference."""
    left: Tensor | float
    if loss.gamma == "uniform":
        left = frame.tensor(1.0 - np.random.default_rng(loss.seed).random(frame.n_documents))
    else:
        left = 1.0 - float(loss.gamma)
    return _cross_entropy(frame, frame.over_sum(gains_of(frame, "exponential") + left))


def _cross_entropy(frame: Frame, targets: Tensor) -> PreparedLoss:
    def evaluate(scores: Tensor, part: BatchPart, columns: Columns) -> tuple[Tensor, Tensor]:
        grad, losses = torch.zeros_like(scores), torch.zeros_like(part.scale)
        launch_queries(part, cross_entropy, scores, *columns, part.scale, part.offsets, grad, losses)
        return losses.sum(), grad

    return PreparedLoss((frame.weighted(targets),), evaluate)


def has_likelihood(loss: ListMLE | PListMLE | CostSensitiveListMLE) -> bool:
    """Return whether ties do not depend on row order, and discounts not on the length of queries."""
    if isinstance(loss, PListMLE) and (
        loss.discount == "published" or Discount.from_spec(loss.discount).function is not None
    ):
        return False
    return loss.ties in ("efron", "breslow")


def likelihood(loss: ListMLE | PListMLE | CostSensitiveListMLE, frame: Frame) -> PreparedLoss:
    """Prepare a likelihood (`toprank.losses.listmle`): factor c of the risk sum, weight w, and mean weight w̄ of the
    group, for each document.
    """
    table = rank_table(frame, Discount.from_spec(loss.discount) if isinstance(loss, PListMLE) else LOG2)
    ranks = by_rank(frame.part, frame.labels, table)
    size = ranks[5] - ranks[4]
    length = frame.part.broadcast(frame.part.sum(torch.ones_like(size)))
    taking_part = (size < length) & ((ranks[5] < length) | loss.lowest)
    weights = taking_part.to(frame.dtype)
    if isinstance(loss, PListMLE):
        weights = weights * ranks[2]
    if isinstance(loss, CostSensitiveListMLE):
        weights = weights * torch.pow(float(loss.pcf), frame.labels) / size
    means = weights * _group_means(frame, ranks[4].long())
    share = ranks[6] / size if loss.ties == "efron" else torch.ones_like(size)

    def evaluate(scores: Tensor, part: BatchPart, columns: Columns) -> tuple[Tensor, Tensor]:
        labels, shares, weights, means = columns
        grad, losses, n = torch.zeros_like(scores), torch.zeros_like(scores), part.n_documents
        terms = scores.new_empty(2, n)
        queries = part.scale, part.offsets
        launch(part, risk_pass, scores, labels, shares, weights, means, *queries, terms, losses, n)
        launch(part, share_pass, scores, labels, shares, weights, terms, *queries, grad, n)
        return losses.sum(), grad

    return PreparedLoss((frame.labels, share, frame.weighted(weights), means), evaluate)


def _group_means(frame: Frame, begin: Tensor) -> Tensor:
    """Return (n,) the mean document weight of each document's group of equal labels."""
    if frame.document_weights is None:
        return torch.ones_like(frame.labels)
    groups = frame.part.broadcast(frame.part.offsets[:-1]) + begin
    _, group, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    ordered = frame.document_weights.index_select(0, torch.argsort(group, stable=True))
    sums: Tensor = torch.segment_reduce(ordered, "sum", lengths=counts, unsafe=True)
    means: Tensor = (sums / counts).index_select(0, group)
    return means


@kernel
def cross_entropy(
    scores: tensor,
    targets: tensor,
    scale: tensor,
    offsets: tensor,
    grad: tensor,
    losses: tensor,
    COLUMNS: constexpr,
) -> None:
    """Compute losses (Q,) and their gradient."""
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    if start >= stop:
        return
    share = tl.load(scale + query)
    kind = scores.dtype.element_ty
    tops, totals = tl.full((COLUMNS,), -float("inf"), kind), tl.zeros((COLUMNS,), kind)
    masses, gaps = tl.zeros((COLUMNS,), kind), tl.zeros((COLUMNS,), kind)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        tops = tl.maximum(tops, tl.load(scores + columns, mask=columns < stop, other=-float("inf")))
    top = tl.max(tops, 0)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        below = tl.where(columns < stop, top - tl.load(scores + columns, mask=columns < stop, other=0.0), 0.0)
        target = tl.load(targets + columns, mask=columns < stop, other=0.0)
        totals += tl.where(columns < stop, tl.exp(-below), 0.0)
        masses += target
        gaps += target * below
    total, mass = tl.sum(totals, 0), tl.sum(masses, 0)
    tl.store(losses + query, share * (tl.sum(gaps, 0) + mass * tl.log(total)))
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        score = tl.load(scores + columns, mask=columns < stop, other=0.0)
        target = tl.load(targets + columns, mask=columns < stop, other=0.0)
        exponential = tl.exp(tl.where(columns < stop, score - top, 0.0))
        tl.store(grad + columns, share * (exponential * (mass / total) - target), mask=columns < stop)


@kernel
def risk_pass(
    scores: tensor,
    labels: tensor,
    shares: tensor,
    weights: tensor,
    means: tensor,
    scale: tensor,
    offsets: tensor,
    terms: tensor,
    losses: tensor,
    n: tensor,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """Compute losses (n,), and terms (2, n): the largest score of the risk set, and w̄/Z, of each document.

    Z = Σ_{lower grades} e^s + c·Σ_{its own grade} e^s, relative to the largest score of the set.
    """
    start, stop, first = program_part(offsets, ROWS)
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    s, y = tl.load(scores + rows, mask=valid, other=0.0), tl.load(labels + rows, mask=valid, other=0.0)
    kind = s.dtype
    top = tl.full((ROWS,), -float("inf"), kind)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        risk = inside[None, :] & (tl.load(labels + columns, mask=inside, other=0.0)[None, :] <= y[:, None])
        z = tl.load(scores + columns, mask=inside, other=0.0)
        top = tl.maximum(top, tl.max(tl.where(risk, z[None, :], -float("inf")), 1))
    top = tl.where(valid, top, 0.0)
    below, tied = tl.zeros_like(s), tl.zeros_like(s)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        other = tl.load(labels + columns, mask=inside, other=0.0)[None, :]
        z = tl.load(scores + columns, mask=inside, other=0.0)
        both = valid[:, None] & inside[None, :]
        lower, same = both & (other < y[:, None]), both & (other == y[:, None])
        exponential = tl.exp(tl.where(lower | same, z[None, :] - top[:, None], 0.0))
        below += tl.sum(tl.where(lower, exponential, 0.0), 1)
        tied += tl.sum(tl.where(same, exponential, 0.0), 1)
    factor = tl.load(scale + tl.program_id(0))
    share, weight = tl.load(shares + rows, mask=valid, other=1.0), tl.load(weights + rows, mask=valid, other=0.0)
    mean = factor * tl.load(means + rows, mask=valid, other=0.0)
    risk = tl.where(valid, below + share * tied, 1.0)
    tl.store(losses + rows, (mean * tl.log(risk) + factor * weight * (top - s)).to(kind), mask=valid)
    tl.store(terms + rows, top, mask=valid)
    tl.store(terms + n + rows, (mean / risk).to(kind), mask=valid)


@kernel
def share_pass(
    scores: tensor,
    labels: tensor,
    shares: tensor,
    weights: tensor,
    terms: tensor,
    scale: tensor,
    offsets: tensor,
    grad: tensor,
    n: tensor,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """Compute d/ds: a document's share in every risk set that contains it, minus its own weight."""
    start, stop, first = program_part(offsets, ROWS)
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    s, y = tl.load(scores + rows, mask=valid, other=0.0), tl.load(labels + rows, mask=valid, other=0.0)
    total = tl.zeros_like(s)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        other = tl.load(labels + columns, mask=inside, other=0.0)[None, :]
        top = tl.load(terms + columns, mask=inside, other=0.0)
        ratio = tl.load(terms + n + columns, mask=inside, other=0.0)
        part = tl.load(shares + columns, mask=inside, other=0.0)
        holds = valid[:, None] & inside[None, :] & (other >= y[:, None])
        reach = tl.where(other > y[:, None], ratio[None, :], (ratio * part)[None, :])
        total += tl.sum(tl.where(holds, reach * tl.exp(tl.where(holds, s[:, None] - top[None, :], 0.0)), 0.0), 1)
    own = tl.load(scale + tl.program_id(0)) * tl.load(weights + rows, mask=valid, other=0.0)
    tl.store(grad + rows, total - own, mask=valid)
