"""Threads, blocks and time limits: run loops on all cores without competing thread pools.

Kernels (`toprank.kernels`) are serial and release the GIL; `each_block` runs them over blocks of whole queries on
ordinary threads. So we control the order of every sum, and results are bit-identical for any number of threads.

The threads belong to one persistent pool or, inside `on_threads_of`, to the OpenMP runtime loaded by another library:
OpenMP's threads spin for milliseconds after a parallel region, and our own pool would have to wait for their cores.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, lru_cache
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from toprank.errors import DataError, became_shorter, holder_of_warnings, holding_for

if TYPE_CHECKING:
    from threadpoolctl import LibController, ThreadpoolController


Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_MIN_THREAD_LIMIT = 8  # maximum threads on any machine, so that training on a larger one can be reproduced
T = TypeVar("T")
Block = TypeVar("Block")


def available_threads(threads: int | None = None) -> int:
    """Return the number of threads to use: `threads` if given (at least 1), else the number of cores of this process.

    More threads than cores (or than 8, if there are fewer cores) do not help, and very many would crash the process, so
    larger numbers are clipped.

    >>> available_threads(10**9) == max(os.cpu_count() or 1, 8)
    True
    """
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise DataError(f"threads must be a whole number of at least 1, or None for every core, not {threads!r}.")
    return min(int(threads), _max_threads())


@cache
def _max_threads() -> int:
    """Return the maximum number of threads; cached, since the system reads a file for it, as slow as a small kernel."""
    return max(os.cpu_count() or 1, _MIN_THREAD_LIMIT)


def offsets_of(sizes: npt.ArrayLike) -> IntArray:
    """Return the start of each list in their concatenation, and the end of the last one.

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def blocks_of(offsets: IntArray, size: int) -> list[tuple[int, int]]:
    """Return ranges of whole queries ``[first, last)`` with about `size` documents each; a larger query is a separate
    block.

    The ranges depend only on the data, never on the number of threads.

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


def row_parts(rows: slice, each: int) -> list[slice]:
    """Split a range of rows into consecutive ranges of at most `each` rows.

    >>> row_parts(slice(3, 8), 2)
    [slice(3, 5, None), slice(5, 7, None), slice(7, 8, None)]
    """
    starts = range(rows.start, max(rows.stop, rows.start + 1), each)
    return [slice(first, min(first + each, rows.stop)) for first in starts]


def each_block(function: Callable[[Block], T], blocks: Sequence[Block], threads: int | None = None) -> list[T]:
    """Return ``[function(block) for block in blocks]``, computed on several threads, in the order of the blocks.

    The calling thread works too, and threads take the next block when they finish one, which balances uneven blocks at
    the cost of one call per block.
    """
    workers = min(available_threads(threads), len(blocks))
    if workers <= 1:
        return [function(block) for block in blocks]
    results: dict[int, T] = {}
    failed: list[BaseException] = []
    holder = holder_of_warnings()  # of the caller: the other threads have separate contexts
    turn = itertools.count()  # next() is atomic, so no two threads get the same number

    def work() -> None:
        try:  # The try includes the loop, since an interrupt may occur between any two steps of it.
            with holding_for(holder):
                while (i := next(turn)) < len(blocks):
                    results[i] = function(blocks[i])
        except BaseException as problem:  # noqa: BLE001 - raised below, when no thread is at work any more
            failed.append(problem)
            for _ in zip(turn, blocks, strict=False):  # leave no blocks for the other threads
                pass

    borrowed = _BORROWED.get()
    if borrowed is None or not borrowed.run(work):
        _on_pool(work, workers - 1)
    if failed:
        raise failed[0]
    return [results[i] for i in range(len(blocks))]


class _Helpers:
    """Persistent threads that run tasks; they are started when first needed.

    Ctrl-C at the wrong moment leaves a lock of Python's own thread pool locked, and later users of the pool would wait
    forever. This pool has no locks: shared state is changed in atomic steps of the interpreter.
    """

    def __init__(self) -> None:
        self.process = os.getpid()  # a forked child inherits the object, but none of its threads
        self.tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.idle: list[None] = []
        self.size = 0

    def hand(self, task: Callable[[], None]) -> None:
        """Run the task on a thread; if all are busy and no other can be started, the next free thread runs it."""
        self.tasks.put(task)
        try:
            self.idle.pop()
        except IndexError:
            if self.size < _max_threads():
                # The system cannot start more threads (memory, limits); fewer give the same results.
                with suppress(RuntimeError):
                    threading.Thread(target=self._serve, name=f"toprank_{self.size}", daemon=True).start()
                    self.size += 1

    def _serve(self) -> None:
        while True:
            try:
                task = self.tasks.get_nowait()
            except Empty:
                self.idle.append(None)
                task = self.tasks.get()
            task()
            del task  # release the arrays that it references


_POOL: list[_Helpers] = []


def _on_pool(work: Callable[[], None], helpers: int) -> None:
    """Run `work` here and on some of the pool's threads, until all of them are finished."""
    begun: list[None] = []
    ended: list[None] = []
    over: list[None] = []
    news: SimpleQueue[None] = SimpleQueue()

    def help_out() -> None:
        begun.append(None)
        try:
            if not over:
                work()
        finally:
            ended.append(None)
            news.put(None)

    interrupt: BaseException | None = None
    try:
        if not _POOL or _POOL[0].process != os.getpid():
            _POOL[:] = [_Helpers()]  # two simultaneous callers may create two, and discard one
        for _ in range(helpers):
            _POOL[0].hand(help_out)
        work()
    except BaseException as problem:  # noqa: BLE001 - raised below; `work` itself raises nothing
        interrupt = problem
    # Do not wait for a task without a free thread: once it begins, it sees that the work is over. After an interrupt
    # still wait for the others: they write into arrays that belong to the caller again once this returns.
    waiting = True
    while waiting:
        try:
            over.append(None)
            while len(ended) < len(begun):
                news.get()
            waiting = False
        except BaseException as problem:  # noqa: BLE001 - raised below: Ctrl-C, or what a handler of SIGTERM raises
            interrupt = problem
    if interrupt is not None:
        raise interrupt


class _Borrowed:
    """The OpenMP runtime of a library, for the thread that calls into that library."""

    def __init__(self, parallel: Any, in_parallel: Any, threads: int) -> None:
        self.parallel, self.in_parallel, self.threads = parallel, in_parallel, threads
        self.process, self.thread = os.getpid(), threading.get_ident()

    def run(self, work: Callable[[], None]) -> bool:
        """Call `work` on every thread of the team; return False if this is impossible from the current thread.

        A forked child has no team, another thread has a separate team, and inside a parallel region there is only one
        thread. A team may have fewer threads than requested: `work` takes blocks until none are left.
        """
        if (os.getpid(), threading.get_ident()) != (self.process, self.thread) or self.in_parallel():
            return False
        whole = False

        def region(_: None) -> None:
            nonlocal whole
            work()
            if threading.get_ident() == self.thread:
                whole = True

        self.parallel(_REGION(region), None, self.threads, 0)
        if not whole:  # An interrupt on entry to or exit from `work` ends there: C has no exceptions.
            raise KeyboardInterrupt
        return True


_REGION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


_BORROWED: ContextVar[_Borrowed | None] = ContextVar("toprank_borrowed_threads", default=None)


_BORROW_LOCK = threading.Lock()


@contextmanager
def on_threads_of(library: ctypes.CDLL, threads: int | None = None) -> Iterator[str]:
    """Run this thread's blocks on the OpenMP threads of a library; yield a description of the threads used.

    Our own pool is used if the library has no GNU-compatible runtime (`GOMP_parallel`), or if another thread of this
    process is in this context: two teams on the same cores would spin against each other.

    Args:
        library: the handle of the library; another runtime may be loaded as well.
        threads: the number of threads of the library itself: for another number, OpenMP would create a new team.
    """
    try:
        parallel, in_parallel = library.GOMP_parallel, library.omp_in_parallel
    except AttributeError:
        yield "our own threads: LightGBM has no OpenMP runtime that we can call"
        return
    if not _BORROW_LOCK.acquire(blocking=False):
        yield "our own threads: another training run uses LightGBM's"
        return
    parallel.restype, parallel.argtypes = None, [_REGION, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    token = _BORROWED.set(_Borrowed(parallel, in_parallel, available_threads(threads)))
    try:
        yield "LightGBM's threads"
    finally:
        _BORROWED.reset(token)
        _BORROW_LOCK.release()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit matrix products to one thread each while we run several, since two thread pools would compete for the
    cores.

    Most libraries have one limit for the whole process, and several threads may be in this context at a time. So the
    first one to enter saves the numbers of threads, and the last one to leave restores them, in any order of leaving.
    """
    user = _BlasUser()
    try:
        _BLAS.limit_for(user)
        yield
    finally:
        interrupt: BaseException | None = None
        while not user.released:
            try:
                _BLAS.release(user)
            except BaseException as problem:  # noqa: BLE001 - raised below: Ctrl-C must not leave the limit in place
                interrupt = problem
        if interrupt is not None:
            raise interrupt


class _BlasUser:
    """A block of `one_blas_thread`, with the limits to restore for libraries with per-thread limits."""

    def __init__(self) -> None:
        self.own: list[tuple[LibController, int]] = []
        self.released = False


class _BlasLimit:
    """The limit of one BLAS thread, and the numbers of threads to restore when it is no longer needed."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.RLock()
        self.users: set[_BlasUser] = set()
        self.before: dict[str, tuple[LibController, int]] = {}

    def limit_for(self, user: _BlasUser) -> None:
        """Limit every loaded BLAS library, including those loaded since others entered."""
        if self.process != os.getpid():  # a forked child inherits users and a lock of threads that it does not have
            self.process, self.lock, self.users = os.getpid(), threading.RLock(), set()
        libraries = [
            library for library in _thread_pools(len(sys.modules)).lib_controllers if library.user_api == "blas"
        ]
        with self.lock:
            self.users.add(user)
            for library in libraries:
                if _has_limit_per_thread(library):
                    user.own.append((library, library.num_threads))
                elif library.filepath not in self.before:
                    self.before[library.filepath] = library, library.num_threads
                library.set_num_threads(1)

    def release(self, user: _BlasUser) -> None:
        """Restore the numbers of threads if the limit has no other users; safe to call again after an interrupt."""
        with self.lock:
            restored = list(user.own)
            if self.users <= {user}:
                restored += self.before.values()
            for library, n_threads in restored:
                library.set_num_threads(n_threads)
            if self.users <= {user}:
                self.before.clear()
            self.users.discard(user)
            # In threadpoolctl 3.8 only the first thread that sets a limit may set others until it gives up that right.
            for library in _thread_pools(len(sys.modules)).lib_controllers:
                if hasattr(library, "clear_controlling_thread"):
                    library.clear_controlling_thread()
            user.released = True


def _has_limit_per_thread(library: LibController) -> bool:
    """Return whether threadpoolctl limits each thread of a library separately: OpenBLAS on OpenMP, from 3.8 on."""
    return hasattr(library, "clear_controlling_thread") and getattr(library, "threading_layer", "") == "openmp"


_BLAS = _BlasLimit()


@lru_cache(maxsize=1)
def _thread_pools(n_modules: int) -> ThreadpoolController:
    """Return the loaded BLAS libraries; the search is repeated when a new module has been imported, which may load one.

    A search through all libraries of the process takes 4 ms, and 20 ms with PyTorch and LightGBM: more than a small
    fit.
    """
    from threadpoolctl import ThreadpoolController

    del n_modules
    return ThreadpoolController()


_LIMIT: ContextVar[TimeLimit | None] = ContextVar("toprank_time_limit", default=None)


class TimeLimit:
    """A context in which training ends after a number of seconds and keeps its progress.

    Rounds, solver steps and line searches check the limit. It applies to this thread only. A nested limit ends no later
    than the outer one.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.passed, self._end = seconds, False, math.inf

    def __enter__(self) -> Self:
        around, end = _LIMIT.get(), time.perf_counter() + self.seconds
        self._end = end if around is None else min(end, around._end)
        self._token = _LIMIT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _LIMIT.reset(self._token)

    def over(self) -> bool:
        """Return whether the time is over, and record it in `passed`: the caller then stops early."""
        self.passed = self.passed or time.perf_counter() >= self._end
        return self.passed


_SUSPENDED: ContextVar[dict[Any, Any] | None] = ContextVar("toprank_suspended_trainings", default=None)


class Resumable:
    """A context that keeps training runs stopped by a `TimeLimit`, so that the same fit within it resumes them.

    A ranker stopped by the limit is fitted as far as it got. If it is fitted again on the same data inside the same
    context, it continues, with bit-identical results to an uninterrupted fit. Rankers without support for this start
    over.
    """

    def __init__(self) -> None:
        self._trainings: dict[Any, Any] = {}

    def __enter__(self) -> Self:
        self._token = _SUSPENDED.set(self._trainings)
        return self

    def __exit__(self, *_: object) -> None:
        _SUSPENDED.reset(self._token)

    @property
    def is_suspended(self) -> bool:
        """True if there is a suspended training run."""
        return bool(self._trainings)


def suspended_trainings() -> dict[Any, Any] | None:
    """Return the mutable suspended runs of the `Resumable` that is open in this thread; None without one."""
    return _SUSPENDED.get()


def out_of_time() -> bool:
    """Return whether the `TimeLimit` of this thread, if any, is over."""
    limit = _LIMIT.get()
    return limit is not None and limit.over()


_PIECE_BYTES = (
    1 << 26
)  # bytes: with a mask and one or two copies of a piece, still small compared with data that need pieces
Matrix = TypeVar("Matrix")


def unshortened(X: Matrix) -> Matrix:
    """Return the array or sparse matrix; raise FileError if it is mapped and another program has truncated its file.

    Reading truncated mapped bytes crashes the process. So this is checked before each pass, and before each block of
    long passes; a file truncated between the check and the following loop still crashes the process.
    """
    array = getattr(X, "data", X) if hasattr(X, "tocsr") else X
    path: Any = "A stored copy"
    while isinstance(array, np.ndarray):
        path, array = getattr(array, "filename", None) or path, array.base
    if isinstance(array, mmap.mmap) and array.size() < len(array):
        raise became_shorter(path)
    return X


def in_pieces(array: Array) -> Iterator[Array]:
    """Yield the rows of an array in pieces small enough for temporary copies."""
    unshortened(array)
    rows = max(1, _PIECE_BYTES // max(1, array[:1].nbytes))
    return (array[first : first + rows] for first in range(0, len(array), rows))


def numbers(values: Any, name: str) -> Array:
    """Return `values` as an array of real numbers of any shape."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c":  # NumPy would drop the imaginary part with only a warning
            raise DataError(f"{name} must hold real numbers, not {array.dtype}.")
        return array if array.dtype.kind in "biuf" else array.astype(np.float64)
    except (TypeError, ValueError) as problem:
        raise DataError(f"{name} must hold numbers: {problem}. Encode text and categories as numbers first.") from None
