"""Kernels whose sums fit vector registers.

Sums are regrouped (in an order that is the compiler's, and the same in every run), and a product that is added to a sum
is not rounded on its own; nothing else is relaxed. To get vector registers at all, number documents by unsigned
integers, which cannot mean "counted from the end".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba

__all__ = ["fast_kernel", "row_kernel"]

P = ParamSpec("P")
T = TypeVar("T")

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}


def fast_kernel(function: Callable[P, T]) -> Callable[P, T]:
    """`toprank.compute.kernel` with sums in vector registers."""
    return cast(Callable[P, T], numba.njit(cache=True, **_OPTIONS)(function))


def row_kernel(function: Callable[P, T]) -> Callable[P, T]:
    """A part of a fast kernel, written into its callers: rows are short, and a call costs as much as twenty pairs."""
    return cast(Callable[P, T], numba.njit(inline="always", **_OPTIONS)(function))
