"""Targets and cross entropy of softmax losses, one program for each query."""

from __future__ import annotations

from toprank.losses.native.fused.triton_parts import constexpr, kernel, tensor, tl

__all__ = ["cross_entropy", "target_pass"]


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
