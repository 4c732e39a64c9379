"""Parts of kernels.

A kernel uses vector registers where documents are numbered by unsigned integers, which cannot mean "counted from the
end", and where a loop does not call out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

__all__ = ["row_kernel"]

P = ParamSpec("P")
T = TypeVar("T")


def row_kernel(function: Callable[P, T]) -> Callable[P, T]:
    """A part of a `summing_kernel`, written into its callers: rows are short, and a call costs as much as 20 pairs."""
    relaxed = {"reassoc", "contract", "nsz"}  # as `summing_kernel`
    compiled = numba.njit(inline="always", nogil=True, error_model="numpy", fastmath=relaxed)(function)
    return cast(Callable[P, T], compiled)
