"""Softmax losses and likelihoods by kernels: what they prepare once for a batch, what they launch, and the kernels.

Softmax losses run one program for each query. Plackett–Luce likelihoods need no sorting: risk sums come from comparing
grades, in two passes over the pairs. Each of them is relative to its own largest score, so nothing overflows and
nothing is subtracted.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from toprank.losses.listmle import CostSensitiveListMLE, ListMLE, PListMLE
from toprank.losses.native.frame import Frame, Judge
from toprank.losses.native.fused.ranks import by_rank, groups_only, launch, launch_queries, pointer, rank_table
from toprank.losses.native.fused.triton_parts import constexpr, kernel, tensor, tl
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


@kernel
def target_pass(
    values: tensor,
    weights: tensor,
    scale: tensor,
    offsets: tensor,
    out: tensor,
    SOFTMAX: constexpr,
    WEIGHTED: constexpr,
    COLUMNS: constexpr,
) -> None:
    """Targets: scale · weight · (softmax(values), or values over their sum) in each query."""
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    kind = values.dtype.element_ty
    tops, totals = tl.full((COLUMNS,), -float("inf"), kind), tl.zeros((COLUMNS,), kind)
    if SOFTMAX:
        for at in range(start, stop, COLUMNS):
            columns = at + tl.arange(0, COLUMNS)
            tops = tl.maximum(tops, tl.load(values + columns, mask=columns < stop, other=-float("inf")))
    top = tl.max(tops, 0)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        value = tl.load(values + columns, mask=columns < stop, other=0.0)
        if SOFTMAX:
            value = tl.exp(value - top)
        totals += tl.where(columns < stop, value, 0.0)
    total = tl.sum(totals, 0)
    factor = tl.load(scale + query) / tl.where(total > 0, total, 1.0)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        value = tl.load(values + columns, mask=columns < stop, other=0.0)
        if SOFTMAX:
            value = tl.exp(value - top)
        value = value * factor
        if WEIGHTED:
            value = value * tl.load(weights + columns, mask=columns < stop, other=0.0)
        tl.store(out + columns, value, mask=columns < stop)


@kernel
def cross_entropy(
    scores: tensor, targets: tensor, offsets: tensor, grad: tensor, losses: tensor, COLUMNS: constexpr
) -> None:
    """Losses (Q,) of scaled targets, and their gradient."""
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    kind = scores.dtype.element_ty
    tops, totals = tl.full((COLUMNS,), -float("inf"), kind), tl.zeros((COLUMNS,), kind)
    masses, gaps = tl.zeros((COLUMNS,), kind), tl.zeros((COLUMNS,), kind)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        tops = tl.maximum(tops, tl.load(scores + columns, mask=columns < stop, other=-float("inf")))
    top = tl.max(tops, 0)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        below = top - tl.load(scores + columns, mask=columns < stop, other=0.0)
        target = tl.load(targets + columns, mask=columns < stop, other=0.0)
        totals += tl.where(columns < stop, tl.exp(-below), 0.0)
        masses += target
        gaps += target * below
    total, mass = tl.sum(totals, 0), tl.sum(masses, 0)
    tl.store(losses + query, tl.sum(gaps, 0) + mass * tl.log(total))
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        score = tl.load(scores + columns, mask=columns < stop, other=0.0)
        target = tl.load(targets + columns, mask=columns < stop, other=0.0)
        tl.store(grad + columns, tl.exp(score - top) * (mass / total) - target, mask=columns < stop)


@kernel
def risk_pass(
    scores: tensor,
    labels: tensor,
    weights: tensor,
    factors: tensor,
    scale: tensor,
    offsets: tensor,
    terms: tensor,
    losses: tensor,
    n: tensor,
    cost: tensor,
    EFRON: constexpr,
    LOWEST: constexpr,
    POSITIONS: constexpr,
    COSTS: constexpr,
    WEIGHTED: constexpr,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """Losses (n,), and terms (4, n): the largest score of the risk set, w̄/Z, c and w of each document.

    `factors` (6, n) are those of `rank_pass` on the labels; `cost` is log2 of CostSensitiveListMLE's pcf.
    """
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    first = start + tl.program_id(1) * ROWS
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
    below, tied, place, mass = tl.zeros_like(s), tl.zeros_like(s), tl.zeros_like(s), tl.zeros_like(s)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        other = tl.load(labels + columns, mask=inside, other=0.0)[None, :]
        z = tl.load(scores + columns, mask=inside, other=0.0)
        lower, same = inside[None, :] & (other < y[:, None]), inside[None, :] & (other == y[:, None])
        exponential = tl.exp(tl.where(lower | same, z[None, :] - top[:, None], 0.0))
        below += tl.sum(tl.where(lower, exponential, 0.0), 1)
        tied += tl.sum(tl.where(same, exponential, 0.0), 1)
        place += tl.sum(tl.where(same & (columns[None, :] <= rows[:, None]), 1.0, 0.0).to(kind), 1)
        if WEIGHTED:
            w = tl.load(weights + columns, mask=inside, other=0.0)
            mass += tl.sum(tl.where(same, w[None, :], 0.0), 1)
    begin = tl.load(factors + 4 * n + rows, mask=valid, other=0.0)
    end = tl.load(factors + 5 * n + rows, mask=valid, other=1.0)
    size = end - begin
    taking_part = valid & (size < (stop - start).to(kind))
    if not LOWEST:
        taking_part = taking_part & (end < (stop - start).to(kind))
    weight = tl.where(taking_part, tl.load(scale + query), 0.0)
    if POSITIONS:
        weight = weight * tl.load(factors + 2 * n + rows, mask=valid, other=0.0)
    if COSTS:
        weight = weight * tl.exp2(cost * y) / size
    mean = weight
    if WEIGHTED:
        mean = weight * mass / size
        weight = weight * tl.load(weights + rows, mask=valid, other=0.0)
    share = tl.full((ROWS,), 1.0, kind)
    if EFRON:
        share = place / size
    risk = tl.where(valid, below + share * tied, 1.0)
    tl.store(losses + rows, (mean * tl.log(risk) + weight * (top - s)).to(kind), mask=valid)
    tl.store(terms + rows, top, mask=valid)
    tl.store(terms + n + rows, (mean / risk).to(kind), mask=valid)
    tl.store(terms + 2 * n + rows, share.to(kind), mask=valid)
    tl.store(terms + 3 * n + rows, weight.to(kind), mask=valid)


@kernel
def share_pass(
    scores: tensor,
    labels: tensor,
    terms: tensor,
    offsets: tensor,
    grad: tensor,
    n: tensor,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """d/ds: a document's share in every risk set that holds it, less its own weight."""
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    first = start + tl.program_id(1) * ROWS
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
        part = tl.load(terms + 2 * n + columns, mask=inside, other=0.0)
        holds = inside[None, :] & (other >= y[:, None])
        reach = tl.where(other > y[:, None], ratio[None, :], (ratio * part)[None, :])
        total += tl.sum(tl.where(holds, reach * tl.exp(tl.where(holds, s[:, None] - top[None, :], 0.0)), 0.0), 1)
    tl.store(grad + rows, total - tl.load(terms + 3 * n + rows, mask=valid, other=0.0), mask=valid)
