"""Features as a model sees them: standardized and with missing values imputed, without a copy of X.

Column j of the model's matrix Z is (x_j − center_j) / spread_j, and 0 if x_j is missing (NaN), which imputes the
center. A constant column is 0: nothing can be learned from it, and no solver changes its weight. The products Z·w and
Zᵀ·g are computed directly from X, row by row while a row is in the cache, and summed in double precision for any dtype
of X. Sparse features stay sparse: the contribution of their centers is subtracted from the products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray, blocks_of, each_block, row_parts, unshortened
from toprank.data.dataset import refuse_infinite

_CHUNK = 1 << 15  # rows processed at a time
_ENTRIES = 1 << 20  # stored values of a sparse matrix processed at a time
_MAX_CENTER = 1e4  # in units of the spread, for subtracting centers after the product
_CACHE = 1 << 21  # bytes of a core's share of the cache


@dataclass(frozen=True)
class Standardization:
    """Center and spread of each column, estimated on training data."""

    center: FloatArray
    spread: FloatArray
    complete: bool = False
    """Whether the training data have no missing values and no centers far from 0, relative to the spread."""
    constant: npt.NDArray[np.bool_] | None = None
    """The constant columns of the training data; None if unknown, as for a model read from a file."""

    @classmethod
    def from_data(cls, X: Any, names: tuple[str, ...] | None = None, threads: int | None = None) -> Standardization:
        """Compute mean and standard deviation of the values present; a column without spread stays unscaled.

        Infinite values are refused, by the name of their column.
        """
        return cls.from_moments(Moments.from_data(X, first_row(X), threads), names)

    @classmethod
    def from_moments(cls, moments: Moments, names: tuple[str, ...] | None = None) -> Standardization:
        """Compute the standardization from sums over the rows, which may be joined from parts of the data."""
        shift, count, total, squares = moments.shift, moments.present, moments.total, moments.squares
        refuse_infinite(~np.isfinite(total), names)
        present = np.maximum(count, 1)
        mean = total / present
        spread = np.sqrt(np.maximum(squares / present - mean**2, 0.0))
        # A column that varies only in its last digits varies by rounding, which scaling would amplify.
        constant = spread <= 1e-7 * np.maximum(np.abs(mean + shift), np.abs(mean))
        constant &= spread <= 1e-6
        constant |= moments.highest <= moments.lowest
        center, spread = np.where(count > 0, mean + shift, 0.0), np.where((spread == 0) | constant, 1.0, spread)
        # The fast products subtract centers last; centers much larger than the spread would cost digits.
        complete = (count == moments.rows).all() and (np.abs(center) <= _MAX_CENTER * spread).all()
        return cls(center, spread, bool(complete), constant)

    def without_constants(self, weights: FloatArray) -> FloatArray:
        """Return the weights, (…, features), with 0 for constant columns, whose weights solvers do not change."""
        return weights if self.constant is None else np.where(self.constant, 0.0, weights)


def first_row(X: Any) -> FloatArray:
    """Return the first row as a shift: sums of differences to it keep their digits for columns with large offsets."""
    row = X[0] if isinstance(X, np.ndarray) else X[[0]].toarray()[0]
    shift: FloatArray = np.nan_to_num(row.astype(np.float64), posinf=0.0, neginf=0.0)
    return shift


class Moments(NamedTuple):
    """Sums over the values present in each column, relative to a shift, for all rows or a part of them."""

    rows: int
    shift: FloatArray
    present: FloatArray
    total: FloatArray
    squares: FloatArray
    lowest: FloatArray
    """The minimum without the shift; larger than `highest` if no value is present."""
    highest: FloatArray

    @classmethod
    def from_data(cls, X: Any, shift: FloatArray, threads: int | None = None) -> Moments:
        """Compute the sums over the rows of X."""
        n, d = X.shape
        if not isinstance(X, np.ndarray):
            return cls._from_sparse(X, shift)
        rows = np.arange(0, n + _CHUNK, _CHUNK).clip(max=n)
        chunks = [(a, b) for a, b in pairwise(rows.tolist()) if b > a]

        shift = np.require(shift, np.float64, ["C", "A"])

        def moments(chunk: tuple[int, int]) -> Moments:
            sums = np.empty((5, d))
            kernels.features_moments(_plain(unshortened(X)[chunk[0] : chunk[1]]), shift, sums)
            return cls(chunk[1] - chunk[0], shift, *sums)

        return cls.joined(each_block(moments, chunks, threads))

    @classmethod
    def _from_sparse(cls, X: Any, shift: FloatArray) -> Moments:
        """Compute the sums from the stored values; values that are not stored are 0."""
        n, d = X.shape
        stored, missing, total, squares = np.zeros((4, d))
        lowest, highest = np.full(d, np.inf), np.full(d, -np.inf)
        for first in range(0, X.nnz, _ENTRIES):
            columns, values = X.indices[first : first + _ENTRIES], X.data[first : first + _ENTRIES].astype(np.float64)
            stored += np.bincount(columns, minlength=d)
            absent = np.isnan(values)
            missing += np.bincount(columns[absent], minlength=d)
            columns, values = columns[~absent], values[~absent]
            shifted = values - shift[columns]
            total += np.bincount(columns, shifted, d)
            squares += np.bincount(columns, shifted**2, d)
            np.minimum.at(lowest, columns, values)
            np.maximum.at(highest, columns, values)
        zeros = n - stored
        total -= zeros * shift
        squares += zeros * shift**2
        lowest = np.where(zeros > 0, np.minimum(lowest, 0.0), lowest)
        highest = np.where(zeros > 0, np.maximum(highest, 0.0), highest)
        return cls(n, shift, n - missing, total, squares, lowest, highest)

    @classmethod
    def joined(cls, parts: Sequence[Moments]) -> Moments:
        """Add the sums of several parts with the same shift, in their order."""
        present, total, squares = (
            np.sum([getattr(part, name) for part in parts], axis=0) for name in ("present", "total", "squares")
        )
        lowest = np.min([part.lowest for part in parts], axis=0)
        highest = np.max([part.highest for part in parts], axis=0)
        return cls(sum(part.rows for part in parts), parts[0].shift, present, total, squares, lowest, highest)


class Features:
    """X with a standardization; `complete` states that X has no missing values, which is faster."""

    def __init__(self, X: Any, standardization: Standardization, *, complete: bool = False) -> None:
        self.X, self.complete = X, complete
        # Arrays received over a network may be unaligned; kernels need aligned ones.
        self.center: FloatArray = np.require(standardization.center, np.float64, ["C", "A"])
        spread, constant = standardization.spread, standardization.constant
        # A column divided by infinity is exactly 0, and so is its gradient: no solver changes its weight.
        spread = spread if constant is None else np.where(constant, np.inf, spread)
        self.spread: FloatArray = np.require(spread, np.float64, ["C", "A"])
        self.sparse = not isinstance(X, np.ndarray)

    @property
    def n_columns(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    def times(self, rows: slice, weights: FloatArray) -> FloatArray:
        """Return Z[rows] · weights."""
        scaled = weights / self.spread
        if self.sparse:  # slicing a sparse matrix copies, so many rows are processed in several parts
            parts = [self._filled(part) @ scaled for part in row_parts(rows, _CHUNK)]
            product: FloatArray = np.concatenate(parts).astype(np.float64, copy=False)
            product -= self.center @ scaled
            return product
        out = np.empty(rows.stop - rows.start)
        kernels.features_times(_plain(unshortened(self.X)[rows]), self.center, scaled, self.complete, out)
        return out

    def transposed_times(self, rows: slice, values: FloatArray) -> FloatArray:
        """Return Z[rows]ᵀ · values."""
        if self.sparse:
            out = np.zeros(self.n_columns)
            for part in row_parts(rows, _CHUNK):
                out += self._filled(part).T @ values[part.start - rows.start : part.stop - rows.start]
            out -= self.center * values.sum()
            return out / self.spread
        out = np.empty(self.n_columns)
        kernels.features_transposed_times(
            _plain(unshortened(self.X)[rows]), self.center, np.ascontiguousarray(values), self.complete, out
        )
        return out / self.spread

    def cross_entropy(
        self,
        rows: slice,
        weights: FloatArray,
        targets: FloatArray,
        masses: FloatArray,
        scale: FloatArray,
        offsets: IntArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Return Σ_j t_j (−s_j + log Σ_k e^{s_k}) for each query in these rows at s = Z · weights, and the gradient of
        the sum.

        Has the same bits as `times`, the loss and `transposed_times` in sequence, in one pass over dense rows.
        """
        losses, out = np.empty(len(masses)), np.empty(self.n_columns)
        block, scaled = _plain(unshortened(self.X)[rows]), weights / self.spread
        of_labels = targets, masses, scale, offsets
        kernels.features_cross_entropy(block, self.center, scaled, self.complete, *of_labels, losses, out)
        out /= self.spread
        return losses, out

    def dense(self, rows: slice) -> FloatArray:
        """Return Z[rows] as a dense array in double precision."""
        if self.sparse:
            whole: FloatArray = np.asarray(self._filled(rows).toarray(), dtype=np.float64) - self.center
            return whole / self.spread
        out = np.empty((rows.stop - rows.start, self.n_columns))
        kernels.features_standardized(_plain(unshortened(self.X)[rows]), self.center, 1.0 / self.spread, out)
        return out

    def column(self, j: int) -> FloatArray:
        """Return one column of Z."""
        unshortened(self.X)
        raw = self.X[:, [j]].toarray()[:, 0] if self.sparse else self.X[:, j]
        column: FloatArray = np.nan_to_num((raw.astype(np.float64) - self.center[j]) / self.spread[j])
        return column

    def _filled(self, rows: slice) -> Any:
        """Return sparse rows with missing values replaced by the center."""
        block = self.X[rows]
        missing = np.isnan(block.data)
        if missing.any():
            block = block.astype(np.float64)
            block.data[missing] = self.center[block.indices[missing]]
        return block

    def blocks(self, offsets: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
        """Return ranges of whole queries whose rows fit a core's share of the cache and are worth the overhead of a
        call.
        """
        per_row = max(self.n_columns, 1) * self.X.dtype.itemsize
        return blocks_of(offsets, max(64, _CACHE // per_row))


def _plain(block: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return rows as the kernels require: float32 or float64 in C order. Rows in another layout are copied."""
    kept = block.dtype == np.float32 or block.dtype == np.float64
    if kept and block.flags.c_contiguous and block.flags.aligned:
        return block  # the usual case, and np.require takes as long as the rest of the call
    return np.require(block, block.dtype if kept else np.float64, ["C", "A"])


def row_blocks(X: Any, bytes_each: int = _CACHE) -> list[slice]:
    """Split the rows of X into blocks whose dense copies in double precision fit the cache (8192 rows at most)."""
    n, d = X.shape
    each = max(64, min(1 << 13, bytes_each // (8 * max(d, 1))))
    return row_parts(slice(0, n), each)
