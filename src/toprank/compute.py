"""How loops run on both cores without a second pool of threads.

Kernels (`toprank.kernels`) are serial and let go of the interpreter's lock; `each_block` runs them over blocks of whole
queries on ordinary threads. That leaves the order of every sum to us, so results are the same bits on any number of
threads.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from toprank.errors import DataError

__all__ = [
    "FloatArray",
    "IntArray",
    "available_threads",
    "blocks_of",
    "each_block",
    "one_blas_thread",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_ALWAYS = 8  # threads that may be asked for on any machine, so that a model of a larger one can be made again

T = TypeVar("T")
Block = TypeVar("Block")


def available_threads(threads: int | None = None) -> int:
    """The number of threads to use: `threads` where given (at least 1), else every core this process may use.

    More than the machine has cores (or 8, where it has fewer) are of no use, and very many would end the process: a
    larger number counts as that.

    >>> available_threads(10**9) == max(os.cpu_count() or 1, 8)
    True
    """
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise DataError(f"threads must be a whole number of at least 1, or None for every core, not {threads!r}.")
    return min(int(threads), max(os.cpu_count() or 1, _ALWAYS))


def blocks_of(offsets: IntArray, size: int) -> list[tuple[int, int]]:
    """Ranges of whole queries ``[first, last)`` with about `size` documents each; a larger query is its own block.

    The ranges depend on the data alone, never on the number of threads.

    >>> blocks_of(np.array([0, 3, 5, 9, 10]), 5)
    [(0, 2), (2, 4)]
    """
    blocks, first, n_queries = [], 0, len(offsets) - 1
    while first < n_queries:
        last = int(np.searchsorted(offsets, offsets[first] + size, side="right")) - 1
        last = min(max(last, first + 1), n_queries)
        blocks.append((first, last))
        first = last
    return blocks


def each_block(function: Callable[[Block], T], blocks: Sequence[Block], threads: int | None = None) -> list[T]:
    """``[function(block) for block in blocks]``, on several threads; results come back in the order of the blocks.

    The caller's thread works too, and threads take the next block when they are done with one, so that uneven blocks
    even out and a block costs no more than a call.
    """
    workers = min(available_threads(threads), len(blocks))
    if workers <= 1:
        return [function(block) for block in blocks]
    results: dict[int, T] = {}
    failed: list[BaseException] = []
    turn = itertools.count()  # next() on it is one step of the interpreter, so no two threads get the same number

    def work() -> None:
        while (i := next(turn)) < len(blocks):
            try:
                results[i] = function(blocks[i])
            except BaseException as problem:  # noqa: BLE001 - raised below, when no thread is at work any more
                failed.append(problem)
                for _ in zip(turn, blocks, strict=False):  # nothing is left for the other threads
                    pass

    with ThreadPoolExecutor(workers - 1, thread_name_prefix="toprank") as pool:
        for _ in range(workers - 1):
            try:
                pool.submit(work)
            except RuntimeError:  # the system starts no more of them (memory, limits); fewer do the same work
                break
        work()
    if failed:
        raise failed[0]
    return [results[i] for i in range(len(blocks))]


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Matrix products on one thread each while we run several: two pools of threads on the same cores only compete."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        yield
