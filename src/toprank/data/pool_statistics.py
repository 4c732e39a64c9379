"""The arithmetic of `PoolFeatures`: what the documents of a query have in common, column by column.

The present values of a column are sorted first. That gives the ranks, and every sum then runs from the smallest value
up, so that the result is the same bits whatever the order of the rows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, blocks_of, each_block, kernel
from toprank.data.queries import Queries

__all__ = ["PER_COLUMN", "Unusable", "add_statistics"]

Array = npt.NDArray[Any]

_MEAN, _STD, _MIN, _MAX, _RANK, _ZSCORE = range(6)
PER_COLUMN = {"mean": _MEAN, "std": _STD, "min": _MIN, "max": _MAX, "rank": _RANK, "zscore": _ZSCORE}
"""The statistics of a column in a query, and their numbers in the kernel."""
_BLOCK = 1 << 16  # values of a block: half a megabyte, which stays in the cache


class Unusable(NamedTuple):
    """The first place where statistics are not finite."""

    query: int
    column: int


def add_statistics(
    X: Array,
    queries: Queries,
    columns: IntArray,
    statistics: tuple[str, ...],
    out: Array,
    base: int,
    threads: int | None = None,
) -> Unusable | None:
    """Fill columns of `out`: for each of `columns` its statistics, in their order, side by side.

    Args:
        X: features, documents × columns.
        queries: which documents belong together.
        columns: the columns to look at.
        statistics: names of `PER_COLUMN`.
        out: the result, C order, float32 or float64.
        base: its first column to fill.
        threads: number of threads; the result is the same bits on any.

    Returns:
        A query and a column (a number of X) with infinite or enormous values, where there are any.
    """
    codes = np.array([PER_COLUMN[name] for name in statistics], dtype=np.int64)
    offsets = queries.offsets

    def fill(block: tuple[int, int]) -> int:
        first, last = block
        start, stop = offsets[first], offsets[last]
        values = np.array(X[start:stop, columns], dtype=np.float64, order="F")
        return int(_fill(values, offsets[first : last + 1] - start, codes, out[start:stop], base))

    blocks = blocks_of(offsets, max(1, _BLOCK // max(1, len(columns))))
    for (first, _), place in zip(blocks, each_block(fill, blocks, threads), strict=True):
        if place >= 0:
            return Unusable(first + place // len(columns), int(columns[place % len(columns)]))
    return None


@kernel
def _fill(values: FloatArray, offsets: IntArray, codes: IntArray, out: Array, base: int) -> int:
    """The statistics of some queries; the number of the first (query, column) that is not finite, or −1."""
    n_columns = values.shape[1]
    present, rows = np.empty(len(values)), np.empty(len(values), dtype=np.int64)
    for q in range(len(offsets) - 1):
        start, stop = offsets[q], offsets[q + 1]
        for c in range(n_columns):
            m = 0
            for row in range(start, stop):
                if not np.isnan(values[row, c]):
                    present[m] = values[row, c] + 0.0  # −0 becomes 0: they are the same value
                    rows[m] = row
                    m += 1
            first = base + c * len(codes)
            if m == 0:
                out[start:stop, first : first + len(codes)] = np.nan
                continue
            order = np.argsort(present[:m])
            mean, std = _moments(present, order)
            if not (np.isfinite(mean) and np.isfinite(std)):
                return int(q * n_columns + c)
            summary = (mean, std, present[order[0]], present[order[m - 1]])
            for s in range(len(codes)):
                if codes[s] == _RANK:
                    out[start:stop, first + s] = np.nan
                    _ranks(present, order, rows, out[:, first + s])
                elif codes[s] == _ZSCORE:
                    for row in range(start, stop):
                        distance = values[row, c] - mean  # NaN stays NaN
                        out[row, first + s] = distance / std if std > 0.0 else 0.0 * distance
                else:
                    out[start:stop, first + s] = summary[codes[s]]
    return -1


@kernel
def _moments(present: FloatArray, order: IntArray) -> tuple[float, float]:
    """Mean and standard deviation (divided by m); equal values have exactly that mean, and no deviation."""
    m = len(order)
    low, high = present[order[0]], present[order[m - 1]]
    if low == high:
        return low, 0.0
    total = 0.0
    for i in order:
        total += present[i]
    if not np.isfinite(total):
        return np.inf, np.inf
    mean = min(max(total / m, low), high)
    # In units of about high − low, whose squares neither vanish nor overflow; a power of two rounds nothing.
    unit = math.ldexp(1.0, math.frexp(high - low)[1] - 1)
    squares = 0.0
    for i in order:
        squares += ((present[i] - mean) / unit) ** 2
    return mean, unit * np.sqrt(squares / m)


@kernel
def _ranks(present: FloatArray, order: IntArray, rows: IntArray, out: Array) -> None:
    """1 for the largest value; equal values share the mean of their ranks."""
    m = len(order)
    end = m
    while end > 0:
        start = end - 1
        while start > 0 and present[order[start - 1]] == present[order[end - 1]]:
            start -= 1
        for i in range(start, end):
            out[rows[order[i]]] = m - 0.5 * (start + end - 1)
        end = start
