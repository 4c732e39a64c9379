"""Norms of discounts and errors with conjugate exponents: the two factors of Hölder's inequality.

All are scaled by the largest entry, so that large exponents neither over- nor underflow.
"""

from __future__ import annotations

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.data.queries import Queries
from toprank.errors import DataError

__all__ = ["conjugate", "doubled_norms", "joined", "norms"]


def conjugate(p: float, q: float | None = None) -> tuple[float, float]:
    """(p, q) with 1/p + 1/q = 1."""
    if not p >= 1:
        raise DataError(f"The exponent p must be at least 1 (math.inf is legal), not {p}.")
    partner = np.inf if p == 1 else 1.0 if p == np.inf else p / (p - 1)
    if q is not None and not np.isclose(1 / q if q else np.inf, 1 / partner, rtol=0, atol=1e-12):
        raise DataError(f"The exponents must satisfy 1/p + 1/q = 1; with p = {p:g}, q is {partner:g}, not {q:g}.")
    return float(p), float(partner)


def doubled_norms(c: FloatArray, sizes: IntArray, p: float) -> FloatArray:
    """(2 Σ_{i ≤ m} c_i^p)^{1/p} for each query; scaled by c_1, so that large p neither over- nor underflows."""
    if p == np.inf:
        return np.full(len(sizes), c[0])
    totals = np.cumsum((c / c[0]) ** p)[np.minimum(sizes, len(c)) - 1]
    return np.asarray(c[0] * (2 * totals) ** (1 / p))


def norms(errors: FloatArray, queries: Queries, q: float) -> FloatArray:
    """(Σ_j errors_j^q)^{1/q} for each query, scaled by the largest."""
    largest: FloatArray = queries.max(errors)
    if q == np.inf:
        return largest
    scaled = errors / queries.spread(np.where(largest > 0, largest, 1.0))
    return np.asarray(largest * queries.sum(scaled**q) ** (1 / q))


def joined(a: FloatArray, b: FloatArray, exponent: float) -> FloatArray:
    """(a^e + b^e)^{1/e}, element by element."""
    largest = np.maximum(a, b)
    if exponent == np.inf:
        return largest
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(largest * ((a / unit) ** exponent + (b / unit) ** exponent) ** (1 / exponent))
