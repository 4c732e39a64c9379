"""Labels as codes: each document points into the short list of distinct grades.

Everything a metric or a loss wants to know about a label (its gain, whether it counts as relevant, its stopping
probability) is then a table with one entry per grade, looked up instead of computed per document.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray


class Grades(NamedTuple):
    """Grades in rising order, and for each document the index of its own.

    Small whole numbers have themselves as codes, so `values` is then 0, 1 … up to the largest label, whether each
    occurs or not; otherwise `values` are the distinct labels. A NaN label (an unjudged document) has the last code,
    with the value NaN.

    >>> Grades.of(np.array([0.0, 2.0, 1.0, 2.0])).codes.tolist()
    [0, 2, 1, 2]
    >>> Grades.of(np.array([0.5, -1.0, 0.5])).values.tolist()
    [-1.0, 0.5]
    """

    values: FloatArray
    codes: npt.NDArray[Any]

    @property
    def some_unjudged(self) -> bool:
        """Whether there are documents without a judgment: labels of NaN or -1."""
        return bool((np.isnan(self.values) | (self.values == -1)).any())

    @classmethod
    def of(cls, labels: FloatArray) -> Grades:
        """Code the labels: small whole numbers in one pass, anything else by sorting."""
        codes = np.empty(len(labels), dtype=np.uint8)
        largest = kernels.small_grades(labels, codes)
        if largest >= 0:
            return cls(np.arange(largest + 1, dtype=np.float64), codes)
        values, inverse = np.unique(labels, return_inverse=True)
        return cls(values, inverse.reshape(-1).astype(np.uint8 if len(values) <= 256 else np.int32))
