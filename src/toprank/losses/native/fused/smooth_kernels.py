"""Smooth ranks and what NDCG makes of them, and the way back: two passes over the pairs."""

from __future__ import annotations

from toprank.losses.native.fused.triton_parts import constexpr, ideal_of, kernel, sigmoid, tensor, tl

__all__ = ["flow_pass", "smooth_pass"]


@kernel
def smooth_pass(
    scores: tensor,
    gains: tensor,
    weights: tensor,
    factors: tensor,
    scale: tensor,
    offsets: tensor,
    slopes: tensor,
    losses: tensor,
    n: tensor,
    temperature: tensor,
    cut: tensor,
    IDEAL: constexpr,
    CUT: constexpr,
    WEIGHTED: constexpr,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """Losses (n,), whose sum is the value, and d value / d rank (n,).

    `factors` (6, n) are those of `rank_pass` on the gains: a query whose gains are all in one group says nothing.
    """
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    first = start + tl.program_id(1) * ROWS
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    s = tl.load(scores + rows, mask=valid, other=0.0) / temperature
    rank = tl.full((ROWS,), 1.0, s.dtype)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        z = tl.load(scores + columns, mask=columns < stop, other=0.0) / temperature
        counts = (columns < stop)[None, :] & (columns[None, :] != rows[:, None])
        rank += tl.sum(tl.where(counts, sigmoid(z[None, :] - s[:, None]), 0.0), 1)
    kind = s.dtype
    value = 1.0 / tl.log2(1.0 + rank)
    slope = -value * value / (0.6931471805599453 * (1.0 + rank))
    if CUT:
        t = tl.minimum(tl.maximum(rank - cut, 0.0), 1.0)
        step, fall = 1.0 - t * t * (3.0 - 2.0 * t), -6.0 * t * (1.0 - t)
        value, slope = value * step, slope * step + value * fall
    size = (stop - start).to(kind)
    speaking = (
        tl.load(factors + 5 * n + rows, mask=valid, other=0.0) - tl.load(factors + 4 * n + rows, mask=valid, other=0.0)
        < size
    )
    share = tl.where(speaking, tl.load(scale + query), 0.0)
    worth = tl.load(gains + rows, mask=valid, other=0.0) * share
    loss = tl.zeros_like(s)
    if IDEAL:
        best = ideal_of(gains, factors, n, start, stop, COLUMNS)
        worth = worth * tl.where(best > 0, 1.0 / best, 0.0)
        loss = share / size
    if WEIGHTED:
        worth = worth * tl.load(weights + rows, mask=valid, other=0.0)
    tl.store(losses + rows, (loss - worth * value).to(kind), mask=valid)
    tl.store(slopes + rows, (-worth * slope).to(kind), mask=valid)


@kernel
def flow_pass(
    scores: tensor,
    slopes: tensor,
    offsets: tensor,
    grad: tensor,
    temperature: tensor,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """d/ds from d/d rank."""
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    first = start + tl.program_id(1) * ROWS
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    s, u = tl.load(scores + rows, mask=valid, other=0.0) / temperature, tl.load(slopes + rows, mask=valid, other=0.0)
    flow = tl.zeros_like(s)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        z = tl.load(scores + columns, mask=inside, other=0.0) / temperature
        decay = tl.exp(-tl.abs(z[None, :] - s[:, None]))
        steep = decay / ((1.0 + decay) * (1.0 + decay))
        change = tl.load(slopes + columns, mask=inside, other=0.0)[None, :] - u[:, None]
        flow += tl.sum(tl.where(inside[None, :], steep * change, 0.0), 1)
    tl.store(grad + rows, (flow / temperature).to(s.dtype), mask=valid)
