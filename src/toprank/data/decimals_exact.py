"""Decimal text to binary numbers without shortcuts, for the few that `toprank.data.decimals` cannot be sure of."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np

__all__ = ["exact_number"]


def exact_number(token: str, single: bool) -> float:
    """The nearest float64, or the nearest float32 as a float64; infinite where the number is too large for its type.

    >>> exact_number("0.1", single=True) == float(np.float32(0.1))
    True
    """
    value = float(token)
    if not single or value == 0 or value - value != 0:
        return value
    with np.errstate(over="ignore"):
        nearest = np.float32(value)
        if float(nearest) == value:
            return value
        other = np.nextafter(nearest, np.float32(np.sign(value - float(nearest)) * np.inf), dtype=np.float32)
    if value != (_finite(nearest) + _finite(other)) / 2:
        return float(nearest)
    text, border = Decimal(token), Decimal(value)
    if text == border:  # NumPy has rounded to the even neighbour, as it should
        return float(nearest)
    return float(max(nearest, other) if text > border else min(nearest, other))


def _finite(value: np.float32) -> float:
    """The value, with infinity as the 2^128 that rounding treats it as."""
    return math.copysign(2.0**128, value) if np.isinf(value) else float(value)
