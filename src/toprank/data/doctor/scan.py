"""One pass over the features that tells everything the data doctor asks about them.

Rows and columns get 64-bit hashes that add up over their non-zero values, so dense and sparse data agree, and strips
of rows can be scanned by different threads. Equal hashes are taken for equal content: among ten million rows a chance
agreement has a probability of about 1 in 400,000.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from toprank.compute import FloatArray, IntArray, available_threads, each_block, kernel
from toprank.data.dataset import RankingData
from toprank.data.synthetic import Words, mixed, mixed_words

__all__ = ["Scan", "scan"]


@dataclass(frozen=True)
class Scan:
    """What is known of each column and each row.

    Attributes:
        smallest: least finite value by column; inf where there is none.
        largest: greatest finite value by column; -inf where there is none.
        missing: number of NaN by column.
        infinite: number of infinities by column.
        column_hash: equal for equal columns.
        row_hash: equal for equal rows.
    """

    smallest: FloatArray
    largest: FloatArray
    missing: IntArray
    infinite: IntArray
    column_hash: Words
    row_hash: Words


def scan(data: RankingData, threads: int | None = None) -> Scan:
    """Look at every value of X once."""
    n, width = data.X.shape
    edges = np.linspace(0, n, min(n, available_threads(threads)) + 1).astype(np.int64)
    row_hash = np.zeros(n, dtype=np.uint64)
    column_keys = mixed_words(np.arange(width, dtype=np.uint64) + np.uint64(1))

    def run(strip: tuple[int, int]) -> tuple[FloatArray, FloatArray, IntArray, IntArray, Words, IntArray]:
        result = (
            np.full(width, np.inf),
            np.full(width, -np.inf),
            np.zeros(width, dtype=np.int64),
            np.zeros(width, dtype=np.int64),
            np.zeros(width, dtype=np.uint64),
            np.zeros(width, dtype=np.int64),
        )
        if data.is_sparse:
            _scan_sparse(data.X.data, data.X.indices, data.X.indptr, *strip, column_keys, row_hash, *result)
        else:
            _scan_dense(data.X, *strip, column_keys, row_hash, *result[:-1])
        return result

    strips = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    smallest, largest, missing, infinite, column_hash, stored = zip(*each_block(run, strips, threads), strict=True)
    low, high = np.min(smallest, axis=0), np.max(largest, axis=0)
    if data.is_sparse:
        has_zeros = np.sum(stored, axis=0) < n
        low, high = np.where(has_zeros, np.minimum(low, 0), low), np.where(has_zeros, np.maximum(high, 0), high)
    return Scan(low, high, np.sum(missing, axis=0), np.sum(infinite, axis=0), np.sum(column_hash, axis=0), row_hash)


@kernel
def _scan_dense(
    X: Any,
    first: int,
    last: int,
    column_keys: Words,
    row_hash: Words,
    smallest: FloatArray,
    largest: FloatArray,
    missing: IntArray,
    infinite: IntArray,
    column_hash: Words,
) -> None:
    # Without branches, on a copy of the row in float64: so the compiler vectorises the inner loop.
    width = X.shape[1]
    row = np.empty(width, dtype=np.float64)
    bits = row.view(np.uint64)
    nothing, everything, one_nan = np.uint64(0), ~np.uint64(0), np.uint64(0x7FF8000000000000)
    for i in range(first, last):
        for c in range(width):
            row[c] = X[i, c]
        row_key = mixed(np.uint64(i + 1) << np.uint64(32))
        total = np.uint64(0)
        for c in range(width):
            x = row[c]
            finite = abs(x) < np.inf
            smallest[c] = min(smallest[c], x) if finite else smallest[c]
            largest[c] = max(largest[c], x) if finite else largest[c]
            missing[c] += x != x
            infinite[c] += abs(x) == np.inf
            word = bits[c] if x == x else one_nan
            present = nothing if x == 0.0 else everything  # 0.0 and -0.0 are alike, and as good as absent
            total += mixed(word ^ column_keys[c]) & present
            column_hash[c] += mixed(word ^ row_key) & present
        row_hash[i] = total


@kernel
def _scan_sparse(
    values: Any,
    indices: Any,
    starts: Any,
    first: int,
    last: int,
    column_keys: Words,
    row_hash: Words,
    smallest: FloatArray,
    largest: FloatArray,
    missing: IntArray,
    infinite: IntArray,
    column_hash: Words,
    stored: IntArray,
) -> None:
    value = np.empty(1, dtype=np.float64)
    bits = value.view(np.uint64)
    one_nan = np.uint64(0x7FF8000000000000)
    for i in range(first, last):
        row_key = mixed(np.uint64(i + 1) << np.uint64(32))
        total = np.uint64(0)
        for place in range(starts[i], starts[i + 1]):
            c, x = indices[place], float(values[place])
            stored[c] += 1
            if abs(x) < np.inf:
                smallest[c] = min(smallest[c], x)
                largest[c] = max(largest[c], x)
            missing[c] += x != x
            infinite[c] += abs(x) == np.inf
            if x != 0.0:
                value[0] = x
                word = bits[0] if x == x else one_nan
                total += mixed(word ^ column_keys[c])
                column_hash[c] += mixed(word ^ row_key)
        row_hash[i] = total
