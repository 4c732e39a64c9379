"""Statistics of columns within each query, as arrays: the computation behind `QueryContextFeatures`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import IntArray

PER_COLUMN = ("mean", "std", "min", "max", "rank", "zscore")
"""Statistics of a column within a query; in upper case, the names of the kernel's `ColumnStatistic`."""


def statistic_codes(names: Sequence[str]) -> IntArray:
    """Return the kernel codes of statistics."""
    return np.array([vars(kernels.ColumnStatistic)[name.upper()] for name in names], dtype=np.int64)


def statistics_in(values: npt.NDArray[Any], offsets: IntArray, names: Sequence[str]) -> npt.NDArray[np.float32]:
    """Compute statistics of columns within each query.

    Args:
        values: float64 array with one row for each column.
        offsets: offsets of the queries.
        names: statistics, out of `PER_COLUMN`.

    Returns:
        float32 array with one row for each document and the statistics of a column next to each other.
    """
    out = np.empty((values.shape[1], len(values) * len(names)), dtype=np.float32)
    kernels.fill_statistics(np.ascontiguousarray(values), offsets, statistic_codes(names), 0, out)
    return out
