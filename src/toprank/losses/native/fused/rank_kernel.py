"""Ranks of documents within their queries by counting, and means over the ranks that ties share."""

from __future__ import annotations

from toprank.losses.native.fused.triton_parts import constexpr, kernel, tensor, tl

__all__ = ["rank_pass"]


@kernel
def rank_pass(
    keys: tensor, offsets: tensor, table: tensor, out: tensor, n: tensor, ROWS: constexpr, COLUMNS: constexpr
) -> None:
    """Fill out (6, n): top, slope, below and tie (see `rank_steps`), begin and end of the group of equal keys.

    `table` (M + 1, 4) holds running sums over the ranks, in float64. A higher key is a better rank.
    """
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    first = start + tl.program_id(1) * ROWS
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    key = tl.load(keys + rows, mask=valid, other=0.0)
    better, same = tl.zeros((ROWS,), tl.int32), tl.zeros((ROWS,), tl.int32)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        other = tl.load(keys + columns, mask=inside, other=0.0)
        better += tl.sum((inside[None, :] & (other[None, :] > key[:, None])).to(tl.int32), 1)
        same += tl.sum((inside[None, :] & (other[None, :] == key[:, None])).to(tl.int32), 1)
    low, high = table + 4 * better, table + 4 * (better + same)
    size = same.to(tl.float64)
    tops, slopes = tl.load(low, mask=valid, other=0.0), tl.load(low + 1, mask=valid, other=0.0)
    belows = tl.load(high + 2, mask=valid, other=0.0) - tl.load(low + 2, mask=valid, other=0.0)
    steps = tl.load(high + 3, mask=valid, other=0.0) - tl.load(low + 3, mask=valid, other=0.0)
    tie = (steps - size * tops + slopes * belows) / tl.maximum(0.5 * size * (size - 1.0), 1.0)
    kind = out.dtype.element_ty
    size = tl.maximum(size, 1.0)
    tl.store(out + rows, ((tl.load(high, mask=valid, other=0.0) - tops) / size).to(kind), mask=valid)
    tl.store(out + n + rows, ((tl.load(high + 1, mask=valid, other=0.0) - slopes) / size).to(kind), mask=valid)
    tl.store(out + 2 * n + rows, (belows / size).to(kind), mask=valid)
    tl.store(out + 3 * n + rows, tie.to(kind), mask=valid)
    tl.store(out + 4 * n + rows, better.to(kind), mask=valid)
    tl.store(out + 5 * n + rows, (better + same).to(kind), mask=valid)
