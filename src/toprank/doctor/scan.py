"""Statistics and hashes of features in one pass.

The 64-bit hashes of rows and columns are sums over non-zero values, so dense and sparse data have the same hashes, and
threads can scan different rows. Equal hashes are treated as equal content; the probability of a collision among ten
million rows is about 1 in 400,000.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray, available_threads, each_block
from toprank.data.dataset import RankingData
from toprank.data.synthetic import Words, mixed_words

Mask = npt.NDArray[np.bool_]
_BLOCK_ROWS = 4096  # rows per block, which limits the size of a copy if X is not contiguous


@dataclass(frozen=True)
class Scan:
    """Statistics by column (smallest and largest finite value, numbers of NaN and infinities, hash) and row hashes."""

    smallest: FloatArray
    largest: FloatArray
    missing: IntArray
    infinite: IntArray
    column_hash: Words
    row_hash: Words


def scan(data: RankingData, threads: int | None = None) -> Scan:
    """Compute statistics and hashes of X in one pass."""
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
        for first in range(*strip, _BLOCK_ROWS):
            last = min(first + _BLOCK_ROWS, strip[1])
            if data.is_sparse:
                starts = data.X.indptr[first : last + 1].astype(np.int64)
                stored = slice(starts[0], starts[-1])
                columns = data.X.indices[stored].astype(np.int32, copy=False)
                values = (data.X.data[stored], columns, starts - starts[0])
                kernels.scan_sparse(*values, first, column_keys, row_hash[first:last], *result)
            else:
                rows = np.ascontiguousarray(data.X[first:last])
                kernels.scan_dense(rows, first, column_keys, row_hash[first:last], *result[:-1])
        return result

    strips = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    smallest, largest, missing, infinite, column_hash, stored = zip(*each_block(run, strips, threads), strict=True)
    low, high = np.min(smallest, axis=0), np.max(largest, axis=0)
    if data.is_sparse:
        has_zeros = np.sum(stored, axis=0) < n
        low, high = np.where(has_zeros, np.minimum(low, 0), low), np.where(has_zeros, np.maximum(high, 0), high)
    return Scan(low, high, np.sum(missing, axis=0), np.sum(infinite, axis=0), np.sum(column_hash, axis=0), row_hash)


@dataclass(frozen=True)
class ScannedData:
    """Data with the scan of their features."""

    data: RankingData
    scan: Scan

    def feature(self, column: np.signedinteger[Any]) -> str:
        """Return the name of a column, or its number from 1."""
        names = self.data.feature_names
        return names[column] if names else str(column + 1)
