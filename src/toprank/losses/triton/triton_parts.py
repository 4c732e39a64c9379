"""Triton, where it is installed (it comes with PyTorch for CUDA on Linux), and pieces that kernels share.

Triton looks at the annotations of kernels and knows no `Any`: arguments are annotated as its own `tensor`, whatever
they are. Without Triton the modules of kernels can still be imported, and `toprank.losses.triton.available` says no.
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
            """A kernel, compiled once for all numbers of documents (else those divisible by 16 get their own)."""
            return jit(do_not_specialize=["n"])(function)

    except ImportError:
        HAS_TRITON, tl, constexpr, tensor = False, None, int, object

        def jit(function):
            """The function itself: nobody calls it."""
            return function

        kernel = jit


def interpreted() -> bool:
    """Whether Triton was told to interpret its kernels, on any device."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


@jit
def program_part(offsets: tensor, ROWS: constexpr) -> tuple[tensor, tensor, tensor]:
    """Where the documents of the program's query begin and end, and the first of the `ROWS` that are its own."""
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    return start, stop, start + tl.program_id(1) * ROWS


@jit
def softplus(x: tensor) -> tensor:
    """log(1 + e^x), for any x."""
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@jit
def sigmoid(x: tensor) -> tensor:
    """1/(1 + e^−x), exact to the last digits for either sign."""
    decay = tl.exp(-tl.abs(x))
    return tl.where(x > 0, 1.0, decay) / (1.0 + decay)
