"""Statistics of columns within each query, as arrays: the computation behind `QueryContextFeatures`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import IntArray

PER_COLUMN = ("mean", "std", "min", "max", "rank", "zscore")
"""The statistics of a column in a query; in capitals they are the kernel's `ColumnStatistic`."""


def statistic_codes(names: Sequence[str]) -> IntArray:
    """Statistics of columns as the kernel takes them."""
    return np.array([vars(kernels.ColumnStatistic)[name.upper()] for name in names], dtype=np.int64)


def statistics_in(values: npt.NDArray[Any], offsets: IntArray, names: Sequence[str]) -> npt.NDArray[np.float32]:
    """Statistics of columns in their queries.

    Args:
        values: float64, a row for each column.
        offsets: of the queries.
        names: which of `PER_COLUMN`.

    Returns:
        float32, a row for each document; the statistics of one column side by side.
    """
    out = np.empty((values.shape[1], len(values) * len(names)), dtype=np.float32)
    kernels.fill_statistics(np.ascontiguousarray(values), offsets, statistic_codes(names), 0, out)
    return out
