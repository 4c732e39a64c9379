"""How loops run on all cores without pools of threads that compete.

Kernels (`toprank.kernels`) are serial and let go of the interpreter's lock; `each_block` runs them over blocks of whole
queries on ordinary threads. That leaves the order of every sum to us, so results are the same bits on any number of
threads.

The threads are those of one lasting pool, or, inside `on_threads_of`, those of the OpenMP runtime that another library
has loaded: OpenMP's threads spin for milliseconds after a parallel region in the hope of the next one, and a pool of
our own would wait for the cores that they spin on.
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
_ALWAYS = 8  # threads that any machine starts if told to, so that a training on a larger one can be repeated
T = TypeVar("T")
Block = TypeVar("Block")


def available_threads(threads: int | None = None) -> int:
    """Return the number of threads to use: `threads` if given (at least 1), else every core this process may use.

    More threads than cores (or than 8, if there are fewer cores) are of no use, and very many would end the process, so
    a larger number is cut to that.

    >>> available_threads(10**9) == max(os.cpu_count() or 1, 8)
    True
    """
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise DataError(f"threads must be a whole number of at least 1, or None for every core, not {threads!r}.")
    return min(int(threads), _most_threads())


@cache
def _most_threads() -> int:
    """The largest number of threads; cached, since the system reads a file for it, as slow as a small kernel."""
    return max(os.cpu_count() or 1, _ALWAYS)


def offsets_of(sizes: npt.ArrayLike) -> IntArray:
    """Return where each of several lists begins if they follow one another, and where the last one ends.

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


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


def row_parts(rows: slice, each: int) -> list[slice]:
    """A range of rows as neighboring ranges of `each` rows at most.

    >>> row_parts(slice(3, 8), 2)
    [slice(3, 5, None), slice(5, 7, None), slice(7, 8, None)]
    """
    starts = range(rows.start, max(rows.stop, rows.start + 1), each)
    return [slice(first, min(first + each, rows.stop)) for first in starts]


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
    holder = holder_of_warnings()  # the caller's: the other threads have contexts of their own
    turn = itertools.count()  # next() on it is one step of the interpreter, so no two threads get the same number

    def work() -> None:
        try:  # around the loop as well: an interrupt comes between any two steps of it
            with holding_for(holder):
                while (i := next(turn)) < len(blocks):
                    results[i] = function(blocks[i])
        except BaseException as problem:  # noqa: BLE001 - raised below, when no thread is at work any more
            failed.append(problem)
            for _ in zip(turn, blocks, strict=False):  # nothing is left for the other threads
                pass

    borrowed = _BORROWED.get()
    if borrowed is None or not borrowed.run(work):
        _on_pool(work, workers - 1)
    if failed:
        raise failed[0]
    return [results[i] for i in range(len(blocks))]


class _Helpers:
    """Threads that run tasks; they start when they are first needed, and stay.

    Ctrl-C at the wrong moment leaves a lock of Python's own thread pool locked, and whoever uses the pool afterwards
    waits for ever. There is no lock here: what threads share is changed in one step of the interpreter.
    """

    def __init__(self) -> None:
        self.process = os.getpid()  # a forked child inherits the object, but none of its threads
        self.tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.idle: list[None] = []
        self.size = 0

    def hand(self, task: Callable[[], None]) -> None:
        """Let a thread run the task; if all are busy and no other can be started, the first that is done runs it."""
        self.tasks.put(task)
        try:
            self.idle.pop()
        except IndexError:
            if self.size < _most_threads():
                with suppress(RuntimeError):  # the system starts no more of them (memory, limits); fewer do the same
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
            del task  # and the arrays that it holds


_POOL: list[_Helpers] = []


def _on_pool(work: Callable[[], None], helpers: int) -> None:
    """Call `work` here and on some of the pool's threads, until all of them have nothing left to do."""
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
            _POOL[:] = [_Helpers()]  # two callers at once may make two, of which one is lost
        for _ in range(helpers):
            _POOL[0].hand(help_out)
        work()
    except BaseException as problem:  # noqa: BLE001 - raised below; `work` itself raises nothing
        interrupt = problem
    # A task that no thread was free for is not waited for: once begun, it sees that all is over. After an interrupt the
    # others are waited for all the same: they write into arrays that belong to the caller again once this returns.
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
        """Call `work` on every thread of the team, and on no other; False where that cannot be done from here.

        A forked child has no team, another thread has a team of its own, and inside a parallel region there is but one
        thread. A team may be granted fewer threads than it is asked for: `work` takes blocks as long as there are any.
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
        if not whole:  # an interrupt that comes on the way into `work` or out of it ends there: C has no exceptions
            raise KeyboardInterrupt
        return True


_REGION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


_BORROWED: ContextVar[_Borrowed | None] = ContextVar("toprank_borrowed_threads", default=None)


_ONE_AT_A_TIME = threading.Lock()


@contextmanager
def on_threads_of(library: ctypes.CDLL, threads: int | None = None) -> Iterator[str]:
    """Run this thread's blocks on the OpenMP threads of a library; yields in words whose threads they are.

    They run on our own pool if the library brings no runtime that GNU's programs can call (`GOMP_parallel`), or if
    another thread of this process is in here: two teams on the same cores would spin against each other.

    Args:
        library: the handle of the library; another runtime may be loaded beside its own.
        threads: the number that the library uses itself: for another number OpenMP makes its team anew.
    """
    try:
        parallel, in_parallel = library.GOMP_parallel, library.omp_in_parallel
    except AttributeError:
        yield "our own threads: LightGBM brings no OpenMP runtime that we can call"
        return
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        yield "our own threads: another training has LightGBM's"
        return
    parallel.restype, parallel.argtypes = None, [_REGION, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    token = _BORROWED.set(_Borrowed(parallel, in_parallel, available_threads(threads)))
    try:
        yield "LightGBM's threads"
    finally:
        _BORROWED.reset(token)
        _ONE_AT_A_TIME.release()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep matrix products to one thread each while we run several: two thread pools on the same cores only compete.

    Most libraries have one limit for the whole process, and several threads may be in here at a time. So the first one
    to enter saves the numbers of threads, and the last one to leave restores them, in whatever order they leave.
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
    """A block of `one_blas_thread`, with the limits to restore of libraries that have one for each thread."""

    def __init__(self) -> None:
        self.own: list[tuple[LibController, int]] = []
        self.released = False


class _BlasLimit:
    """The limit of one BLAS thread, and the numbers of threads to restore once nobody needs it any more."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.RLock()
        self.users: set[_BlasUser] = set()
        self.before: dict[str, tuple[LibController, int]] = {}

    def limit_for(self, user: _BlasUser) -> None:
        """Limit every BLAS library that is loaded, among them those that were loaded since others entered."""
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
        """Restore the numbers of threads if nobody else needs the limit; safe to call again after an interrupt."""
        with self.lock:
            restored = list(user.own)
            if self.users <= {user}:
                restored += self.before.values()
            for library, n_threads in restored:
                library.set_num_threads(n_threads)
            if self.users <= {user}:
                self.before.clear()
            self.users.discard(user)
            # threadpoolctl 3.8 lets the first thread that sets a limit set others until it gives that right back.
            for library in _thread_pools(len(sys.modules)).lib_controllers:
                if hasattr(library, "clear_controlling_thread"):
                    library.clear_controlling_thread()
            user.released = True


def _has_limit_per_thread(library: LibController) -> bool:
    """Return whether threadpoolctl limits each thread of a library by itself: OpenBLAS on OpenMP, from 3.8 on."""
    return hasattr(library, "clear_controlling_thread") and getattr(library, "threading_layer", "") == "openmp"


_BLAS = _BlasLimit()


@lru_cache(maxsize=1)
def _thread_pools(n_modules: int) -> ThreadpoolController:
    """The libraries of matrix products that are loaded: looked for anew once a module more is, which may bring one.

    To look through all libraries of the process takes 4 ms, and 20 where PyTorch and LightGBM are loaded: more than
    many a small fit.
    """
    from threadpoolctl import ThreadpoolController

    del n_modules
    return ThreadpoolController()


_LIMIT: ContextVar[TimeLimit | None] = ContextVar("toprank_time_limit", default=None)


class TimeLimit:
    """A context in which trainings end after so many seconds, and keep what they have learned.

    Rounds, a solver's steps and its line searches ask whether the time is over. The limit holds for this thread alone.
    A limit within another ends no later than the outer one.
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
        """Return whether the time is over, and note it in `passed`: whoever asks then stops early."""
        self.passed = self.passed or time.perf_counter() >= self._end
        return self.passed


_SUSPENDED: ContextVar[dict[Any, Any] | None] = ContextVar("toprank_suspended_trainings", default=None)


class Resumable:
    """A context that keeps the trainings which a `TimeLimit` ends, so that the same fit within it goes on with them.

    A ranker that is cut by the limit is fitted as far as it came. Fit it again on the same data inside the same context
    and it continues, with the bits of a fit that was never cut. Rankers that do not support this begin anew.
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
        """True if there is a training to go on with."""
        return bool(self._trainings)


def suspended_trainings() -> dict[Any, Any] | None:
    """Return the unfinished trainings of the `Resumable` that is open in this thread, to change; None without one."""
    return _SUSPENDED.get()


def out_of_time() -> bool:
    """Return whether the `TimeLimit` of this thread, if there is one, is over."""
    limit = _LIMIT.get()
    return limit is not None and limit.over()


_PIECE = 1 << 26  # bytes: with a mask and a copy or two of a piece, still small beside data that need pieces
Matrix = TypeVar("Matrix")


def unshortened(X: Matrix) -> Matrix:
    """Return the array or sparse matrix; FileError if it is mapped and another program has cut off its file.

    Reading mapped bytes that are gone ends the process. So this is checked before each pass, and before each block of
    long passes; a file that is cut off between the check and the loop behind it still ends the process.
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
    rows = max(1, _PIECE // max(1, array[:1].nbytes))
    return (array[first : first + rows] for first in range(0, len(array), rows))


def numbers(values: Any, name: str) -> Array:
    """`values` as an array of real numbers, whatever its shape."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c":  # NumPy would drop the imaginary part with no more than a warning
            raise DataError(f"{name} must hold real numbers, not {array.dtype}.")
        return array if array.dtype.kind in "biuf" else array.astype(np.float64)
    except (TypeError, ValueError) as problem:
        raise DataError(f"{name} must hold numbers: {problem}. Encode text and categories as numbers first.") from None
