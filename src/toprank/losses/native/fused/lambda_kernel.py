"""Lambda-weighted pairs: each program reads some documents of a query against all others.

See `lambdas` for the formulas. `factors` (6, n) are those of `rank_pass` at the scores; here i is a row, j a column,
and either may be the one above.
"""

from __future__ import annotations

from toprank.losses.native.fused.triton_parts import constexpr, ideal_of, jit, kernel, sigmoid, softplus, tensor, tl

__all__ = ["lambda_pass"]


@jit
def _rank_change(factors: tensor, n: tensor, rows: tensor, columns: tensor, ends: tensor, gap: tensor) -> tensor:
    """Δ = top − slope·below, above minus below, or that of a tie."""
    valid, inside = rows < ends, columns < ends
    top_i, slope_i = tl.load(factors + rows, valid, 0.0), tl.load(factors + n + rows, valid, 0.0)
    below_i, tie_i = tl.load(factors + 2 * n + rows, valid, 0.0), tl.load(factors + 3 * n + rows, valid, 0.0)
    top_j, slope_j = tl.load(factors + columns, inside, 0.0), tl.load(factors + n + columns, inside, 0.0)
    below_j = tl.load(factors + 2 * n + columns, inside, 0.0)
    down = top_i[:, None] - slope_i[:, None] * below_j[None, :]
    up = top_j[None, :] - slope_j[None, :] * below_i[:, None]
    return tl.where(gap == 0, tie_i[:, None], tl.maximum(tl.where(gap > 0, down, up), 0.0))


@jit
def _distance_step(
    factors: tensor,
    n: tensor,
    steps: tensor,
    sums: tensor,
    within: tensor,
    rows: tensor,
    columns: tensor,
    ends: tensor,
    gap: tensor,
) -> tensor:
    """δ at the distance of the ranks; where documents are tied, its mean over their ranks (see `rank_steps`)."""
    low_i = tl.load(factors + 4 * n + rows, rows < ends, 0.0).to(tl.int32)[:, None]
    high_i = tl.load(factors + 5 * n + rows, rows < ends, 1.0).to(tl.int32)[:, None]
    low_j = tl.load(factors + 4 * n + columns, columns < ends, 0.0).to(tl.int32)[None, :]
    high_j = tl.load(factors + 5 * n + columns, columns < ends, 1.0).to(tl.int32)[None, :]
    step = tl.load(steps + tl.abs(low_i - low_j))
    pairs = (high_i - low_i) * (high_j - low_j)
    if tl.max(tl.max(pairs, 1), 0) > 1:
        inner = tl.maximum(tl.maximum(low_j - high_i, low_i - high_j), 0)
        outer = tl.maximum(high_j - low_i, high_i - low_j)
        total = tl.load(sums + tl.abs(low_i - low_j)) + tl.load(sums + tl.abs(high_i - high_j))
        total -= tl.load(sums + inner) + tl.load(sums + outer)
        step = tl.where(gap == 0, tl.load(within + (high_i - low_i)), total / pairs).to(step.dtype)
    return step


@kernel
def lambda_pass(
    scores: tensor,
    gains: tensor,
    weights: tensor,
    factors: tensor,
    by_gain: tensor,
    steps: tensor,
    sums: tensor,
    within: tensor,
    scale: tensor,
    offsets: tensor,
    grad: tensor,
    losses: tensor,
    moved: tensor,
    n: tensor,
    sigma: tensor,
    unit: tensor,
    mu: tensor,
    TWO_SIDED: constexpr,
    DISCOUNTED: constexpr,
    STEPS: constexpr,
    DISTANCES: constexpr,
    NORM: constexpr,
    IDEAL: constexpr,
    WEIGHTED: constexpr,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """Losses (n,), a pair's at its better document; d/ds; and Σ |d/ds| (n,) over each document's pairs.

    `by_gain` (6, n) are those of `rank_pass` on the gains, which the ideal DCG divides.
    """
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    first = start + tl.program_id(1) * ROWS
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    s, g = tl.load(scores + rows, valid, 0.0), tl.load(gains + rows, valid, 0.0)
    over = tl.full((), 1.0, s.dtype)
    if IDEAL:
        best = ideal_of(gains, by_gain, n, start, stop, COLUMNS)
        over = tl.where(best > 0, 1.0 / best, 0.0)
    g = g * over
    if DISCOUNTED:
        g = g * tl.load(factors + 2 * n + rows, valid, 0.0)
    loss, force, motion = tl.zeros_like(s), tl.zeros_like(s), tl.zeros_like(s)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        gap = s[:, None] - tl.load(scores + columns, inside, 0.0)[None, :]
        g_j = tl.load(gains + columns, inside, 0.0) * over
        if DISCOUNTED:
            g_j = g_j * tl.load(factors + 2 * n + columns, inside, 0.0)
        delta = tl.where(inside[None, :] & (columns[None, :] != rows[:, None]), 1.0, 0.0)
        if STEPS and DISTANCES:
            far = _distance_step(factors, n, steps, sums, within, rows, columns, stop, gap)
            delta *= _rank_change(factors, n, rows, columns, stop, gap) + mu * far
        elif STEPS:
            delta *= _rank_change(factors, n, rows, columns, stop, gap)
        elif DISTANCES:
            delta *= mu * _distance_step(factors, n, steps, sums, within, rows, columns, stop, gap)
        if NORM:
            size = tl.load(factors + 5 * n + rows, valid, 0.0) - tl.load(factors + 4 * n + rows, valid, 0.0)
            near = tl.where(size == (stop - start).to(s.dtype), 1.0, 0.01)
            delta = delta / (near[:, None] + tl.abs(gap))
        if WEIGHTED:
            delta *= tl.load(weights + rows, valid, 0.0)[:, None] * tl.load(weights + columns, inside, 0.0)[None, :]
        if TWO_SIDED:
            lose = sigmoid(-sigma * gap)
            loss += tl.sum(g[:, None] * delta * softplus(-sigma * gap), 1)
            force += tl.sum(delta * (g_j[None, :] * (1.0 - lose) - g[:, None] * lose), 1)
        else:
            better = g[:, None] > g_j[None, :]
            x = tl.where(better, -sigma * gap, sigma * gap)
            weight = tl.abs(g[:, None] - g_j[None, :]) * delta
            pull = weight * sigmoid(x)
            loss += tl.sum(tl.where(better, weight * softplus(x), 0.0), 1)
            force += tl.sum(tl.where(better, -pull, pull), 1)
            motion += tl.sum(pull, 1)
    share = tl.load(scale + query) * unit
    tl.store(losses + rows, loss * share, valid)
    tl.store(grad + rows, force * (share * sigma), valid)
    if NORM:
        tl.store(moved + rows, motion * sigma, valid)
