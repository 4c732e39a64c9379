"""Triton, if it is installed (it comes with PyTorch for CUDA on Linux), and functions that kernels share.

Triton reads the annotations of kernels and does not support `Any`, so arguments are annotated as its `tensor`. Without
Triton the kernel modules can still be imported, and `toprank.losses.triton.available` returns False.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

BLOCK_ROWS, BLOCK_COLUMNS = 32, 64

if TYPE_CHECKING:
    HAS_TRITON: bool
    tl: Any
    constexpr = int
    tensor = Any

    def jit(function: Callable[..., Any]) -> Any: ...  # noqa: D103

    def kernel(function: Callable[..., Any]) -> Any: ...  # noqa: D103

else:
    try:
        from triton import jit
        from triton import language as tl
        from triton.language import constexpr, tensor

        HAS_TRITON = True

        def kernel(function):
            """Mark a kernel, compiled once for all numbers of documents (by default, multiples of 16 are compiled
            separately).
            """
            return jit(do_not_specialize=["n"])(function)

    except ImportError:
        HAS_TRITON, tl, constexpr, tensor = False, None, int, object

        def jit(function):
            """Return the function unchanged, without Triton."""
            return function

        kernel = jit


def interpreted() -> bool:
    """Return whether Triton interprets its kernels."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


@jit
def program_part(offsets: tensor, ROWS: constexpr) -> tuple[tensor, tensor, tensor]:
    """Return the first and last document of the program's query, and the first of its `ROWS` documents."""
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    return start, stop, start + tl.program_id(1) * ROWS


@jit
def softplus(x: tensor) -> tensor:
    """Return log(1 + e^x) for any x."""
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@jit
def sigmoid(x: tensor) -> tensor:
    """Return 1/(1 + e^−x), accurate for either sign."""
    decay = tl.exp(-tl.abs(x))
    return tl.where(x > 0, 1.0, decay) / (1.0 + decay)
