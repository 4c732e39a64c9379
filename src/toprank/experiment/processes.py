"""Cells on all cores: one process each, one thread (or an equal share of the cores) in it.

loky starts processes afresh: a fork would inherit the threads of OpenMP and Numba in a state that they do not survive,
and Python's own `spawn` would run the user's script a second time. Each process is a pool of its own, so that one that
dies takes only its cell with it.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toprank.errors import FileError
from toprank.experiment.training import Outcome, Task, compute

__all__ = ["compute_apart", "compute_here"]

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_TICK = 0.5  # seconds between looks at the clock


def compute_here(tasks: Iterable[Task], tick: Callable[[], None]) -> Generator[tuple[Task, Outcome], None, None]:
    """One task after another in this process."""
    for task in tasks:
        tick()
        with _interrupt_noticed() as stopped:
            outcome = compute(task, stopped)
        if stopped():
            raise KeyboardInterrupt
        yield task, outcome


def compute_apart(
    tasks: Iterable[Task], workers: int, scratch: Path, tick: Callable[[], None]
) -> Generator[tuple[Task, Outcome], None, None]:
    """Tasks in other processes, in the order in which they finish; those that cannot leave this process, here.

    Only a few tasks are taken ahead, so that what comes later is not prepared long before its time.
    """
    ahead = iter(tasks)
    crew = [_Worker(scratch) for _ in range(workers)]
    idle, ready, busy = crew.copy(), deque[Task](), dict[Future[Outcome], tuple[_Worker, Task]]()
    try:
        while True:
            while len(ready) + len(busy) < 2 * workers and (task := next(ahead, None)) is not None:
                if task.entry.portable:
                    ready.append(task)
                else:
                    yield from compute_here([task], tick)
                while idle and ready:
                    worker, task = idle.pop(), ready.popleft()
                    busy[worker.begin(task)] = worker, task
            if not busy:
                return
            done, _ = wait(busy, timeout=_TICK, return_when=FIRST_COMPLETED)
            tick()
            for future in done:
                worker, task = busy.pop(future)
                outcome = worker.outcome(future)
                if ready:
                    begun = ready.popleft()
                    busy[worker.begin(begun)] = worker, begun
                else:
                    idle.append(worker)
                yield task, outcome
    finally:
        for worker in crew:
            worker.end()


class _Worker:
    """A process that computes one cell after another; a new one takes the place of one that died."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._pool: Any = None

    def begin(self, task: Task) -> Future[Outcome]:
        if self._pool is None:
            from loky import ProcessPoolExecutor

            environment = dict.fromkeys(_THREAD_VARIABLES, str(task.threads))
            beginning = (os.getpid(), str(self._scratch))
            self._pool = ProcessPoolExecutor(1, initializer=_initialise, initargs=beginning, env=environment)
        # As bytes: what cannot be rebuilt there is then said of this cell, not of the pool.
        future: Future[Outcome] = self._pool.submit(_answer, pickle.dumps(task))
        return future

    def outcome(self, future: Future[Outcome]) -> Outcome:
        try:
            return future.result()
        except BrokenProcessPool as problem:
            self.end()
            return Outcome(0.0, _epitaph(str(problem)))

    def end(self) -> None:
        """End the process, whatever it is doing."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, kill_workers=True)
            self._pool = None


def _epitaph(told: str) -> str:
    killed = re.search(r"\b(SIG[A-Z0-9]+)\(-\d+\)", told)  # how loky writes down what a process ended with
    if killed:
        return f"The process that computed this was ended by {killed[1]}; perhaps there was not enough memory."
    return f"The process that computed this ended without an answer; see its messages above. {told}"


# ---- in the other process ----


def _initialise(parent: int, scratch: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asked, who then ends us
    os.dup2(2, 1)  # whatever a library prints must not mix with the output of a command
    threading.Thread(target=_leave_with, args=(parent, scratch), daemon=True).start()


def _leave_with(parent: int, scratch: str) -> None:
    """When the one who asked is dead, nobody waits for an answer: end at once, even in the middle of a cell."""
    while os.getppid() == parent:
        time.sleep(_TICK)
    shutil.rmtree(scratch, ignore_errors=True)  # the copies of data
    os._exit(0)


def _answer(packed: bytes) -> Outcome:
    try:
        task = pickle.loads(packed)
    except Exception as problem:  # noqa: BLE001 - importing someone's module may fail in any way
        why = f"{type(problem).__name__}: {problem}"
        remedy = "Put its class into a module that Python finds, or use threads=1."
        return Outcome(0.0, f"Another process cannot rebuild this system ({why}). {remedy}")
    try:
        return compute(task)
    except OSError as problem:  # the folder cannot be written: that concerns all cells
        raise FileError(str(problem)) from None


# ---- here ----


@contextmanager
def _interrupt_noticed() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed within the block: solvers catch it and return the best so far."""
    seen = threading.Event()
    before: Any = None
    if threading.current_thread() is threading.main_thread():
        before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        yield seen.is_set
        return

    def note(number: int, frame: Any) -> None:
        seen.set()
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield seen.is_set
    finally:
        signal.signal(signal.SIGINT, before)
