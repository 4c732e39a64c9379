"""Features as a network sees them: mapped, standardised, missing values filled, in single precision.

Each feature is mapped by f, then standardised with the mean and spread that f(x) has on the training data; a missing
value (NaN) becomes the mean. f is the identity (``standard``), sign(x)·log(1 + |x|) (``log1p``), or the share of the
training documents with a smaller value (``quantile``; half of those with the same value count). ``none`` fills in
missing values and does no more. Sparse features are made dense batch by batch, and give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, each_block
from toprank.errors import DataError

__all__ = ["TRANSFORMS", "Inputs", "Single", "Transform"]

Single = npt.NDArray[np.float32]

Transform = Literal["standard", "log1p", "quantile", "none"]
TRANSFORMS: tuple[Transform, ...] = get_args(Transform)
_KNOTS = 1001
_SAMPLE = 1 << 16  # documents that quantiles are taken from, at most
_CHUNK = 1 << 13


@dataclass(frozen=True)
class Inputs:
    """A transform, learnt from training data.

    Args:
        kind: one of `TRANSFORMS`.
        centre: mean of each mapped feature.
        spread: its standard deviation; 1 where it does not vary.
        knots: for ``quantile``, values of each feature at even shares, (knots, features); else (0, features).
    """

    kind: Transform
    centre: FloatArray
    spread: FloatArray
    knots: FloatArray

    @classmethod
    def of(cls, kind: Transform, X: Any, names: tuple[str, ...] | None = None, threads: int | None = None) -> Inputs:
        """Learn the transform; infinite values are refused, by the name of their feature."""
        d = X.shape[1]
        knots = _knots(X, names, threads) if kind == "quantile" else np.zeros((0, d))
        mapped = cls(kind, np.zeros(d), np.ones(d), knots)
        centre, spread = _column_moments(X, mapped._map_column, names, threads)
        return cls(kind, centre, spread, knots)

    def rows(self, X: Any, threads: int | None = 1) -> Single:
        """The rows that the network sees, (documents, features); X is dense or sparse."""
        out = np.empty(X.shape, dtype=np.float32)

        def work(first: int) -> None:
            block = X[first : first + _CHUNK]
            block = block if isinstance(block, np.ndarray) else block.toarray()
            with np.errstate(over="ignore", invalid="ignore"):  # beyond single precision: told by the scores
                out[first : first + _CHUNK] = self._standardised(block.astype(np.float64))

        each_block(work, range(0, X.shape[0], _CHUNK), threads)
        return out

    def _standardised(self, block: FloatArray) -> FloatArray:
        """Changes its argument, a copy of some rows."""
        if self.kind in ("log1p", "quantile"):
            for column in range(block.shape[1]):
                block[:, column] = self._map_column(block[:, column], column)
        if self.kind == "none":
            return np.where(np.isnan(block), self.centre, block)
        block -= self.centre
        block /= self.spread
        block[np.isnan(block)] = 0.0
        return block

    def _map_column(self, values: FloatArray, column: int) -> FloatArray:
        if self.kind == "quantile":
            return _share_below(values, self.knots[:, column])
        return _signed_log(values) if self.kind == "log1p" else values


def _signed_log(values: FloatArray) -> FloatArray:
    mapped: FloatArray = np.copysign(np.log1p(np.abs(values)), values)
    return mapped


def _share_below(values: FloatArray, knots: FloatArray) -> FloatArray:
    """Where a value stands among the knots, from 0 to 1; in the middle of knots that equal it. NaN stays NaN."""
    shares = np.linspace(0.0, 1.0, len(knots))
    rising = np.interp(values, knots, shares)
    falling = 1.0 - np.interp(-values, -knots[::-1], shares)
    result: FloatArray = 0.5 * (rising + falling)
    return result


def _column(X: Any, column: int) -> FloatArray:
    values = X[:, column] if isinstance(X, np.ndarray) else X[:, [column]].toarray()[:, 0]
    return np.asarray(values, dtype=np.float64)


def _knots(X: Any, names: tuple[str, ...] | None, threads: int | None) -> FloatArray:
    step = -(-X.shape[0] // _SAMPLE)
    sample = X[::step] if isinstance(X, np.ndarray) else X[::step].tocsc()
    count = min(_KNOTS, sample.shape[0])

    def knots(column: int) -> FloatArray:
        values = _column(sample, column)
        values = values[~np.isnan(values)]
        _refuse_infinite(values, column, names)
        return np.quantile(values, np.linspace(0.0, 1.0, count)) if len(values) else np.zeros(count)

    return np.column_stack(each_block(knots, range(X.shape[1]), threads))


def _column_moments(
    X: Any, function: Callable[[FloatArray, int], FloatArray], names: tuple[str, ...] | None, threads: int | None
) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of each mapped column, without its missing values."""
    by_column = X if isinstance(X, np.ndarray) else X.tocsc()

    def moments(column: int) -> tuple[float, float]:
        values = _column(by_column, column)
        values = values[~np.isnan(values)]
        _refuse_infinite(values, column, names)
        if not len(values):
            return 0.0, 1.0
        values = function(values, column)
        mean, spread = float(values.mean()), float(values.std())
        flat = spread <= 1e-7 * abs(mean) or spread == 0.0
        return mean, 1.0 if flat else spread

    found = np.array(each_block(moments, range(X.shape[1]), threads))
    return found[:, 0], found[:, 1]


def _refuse_infinite(values: FloatArray, column: int, names: tuple[str, ...] | None) -> None:
    if not np.isfinite(values).all():
        called = f"'{names[column]}'" if names else f"number {column} (from 0)"
        raise DataError(f"Feature {called} holds infinite values; replace them, or make them NaN (missing).")
