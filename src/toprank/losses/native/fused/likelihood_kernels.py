"""Plackett–Luce likelihoods without sorting: risk sums by comparing grades, in two passes over the pairs.

Each risk sum is relative to its own largest score, so nothing overflows and nothing is subtracted.
"""

from __future__ import annotations

from toprank.losses.native.fused.triton_parts import constexpr, kernel, tensor, tl

__all__ = ["risk_pass", "share_pass"]


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
