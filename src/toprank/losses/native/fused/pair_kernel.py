"""Pairs of different grades: each program reads some documents of a query against all others."""

from __future__ import annotations

from toprank.losses.native.fused.triton_parts import constexpr, kernel, sigmoid, softplus, tensor, tl

__all__ = ["pair_pass"]


@kernel
def pair_pass(
    scores: tensor,
    labels: tensor,
    margins: tensor,
    weights: tensor,
    ranks: tensor,
    scale: tensor,
    offsets: tensor,
    grad: tensor,
    losses: tensor,
    n: tensor,
    KIND: constexpr,
    DIFFERENCE: constexpr,
    MARGIN: constexpr,
    WEIGHTED: constexpr,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """Losses (n,), a pair's at its better document, and d/ds; KIND 0 logistic, 1 hinge, 2 squared hinge.

    `ranks` (6, n) are those of `rank_pass` on the labels: who stands after a document's grade is worse than it.
    """
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    first = start + tl.program_id(1) * ROWS
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    s, y = tl.load(scores + rows, mask=valid, other=0.0), tl.load(labels + rows, mask=valid, other=0.0)
    loss, force, worse = tl.zeros_like(s), tl.zeros_like(s), tl.zeros((COLUMNS,), tl.int64)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        after = stop - start - tl.load(ranks + 5 * n + columns, inside, 0.0).to(tl.int64)
        worse += tl.where(inside, after, 0)
        difference = y[:, None] - tl.load(labels + columns, mask=inside, other=0.0)[None, :]
        gap = s[:, None] - tl.load(scores + columns, mask=inside, other=0.0)[None, :]
        if MARGIN:
            t = tl.load(margins + rows, mask=valid, other=0.0)
            gap -= t[:, None] - tl.load(margins + columns, mask=inside, other=0.0)[None, :]
        better = difference > 0
        x = tl.where(better, -gap, gap)
        if KIND == 0:
            value, slope = softplus(x), sigmoid(x)
        elif KIND == 1:
            value, slope = tl.maximum(1.0 + x, 0.0), tl.where(x > -1.0, 1.0, 0.0).to(x.dtype)
        else:
            short = tl.maximum(1.0 + x, 0.0)
            value, slope = short * short, 2.0 * short
        factor = tl.where(inside[None, :] & (difference != 0), 1.0, 0.0).to(x.dtype)
        if DIFFERENCE:
            factor *= tl.abs(difference)
        if WEIGHTED:
            own = tl.load(weights + rows, mask=valid, other=0.0)
            factor *= own[:, None] * tl.load(weights + columns, mask=inside, other=0.0)[None, :]
        loss += tl.sum(tl.where(better, factor * value, 0.0), 1)
        force += tl.sum(tl.where(better, -factor * slope, factor * slope), 1)
    n_pairs = tl.sum(worse, 0).to(s.dtype)
    share = tl.where(n_pairs > 0, tl.load(scale + query) / tl.maximum(n_pairs, 1.0), 0.0)
    tl.store(losses + rows, loss * share, mask=valid)
    tl.store(grad + rows, force * share, mask=valid)
