"""Cells on all cores: one process each, one thread (or an equal share of the cores) in it.

Processes are started afresh and know nothing of ours but the search path. A fork would inherit the threads of OpenMP
and Numba in a state that they do not survive, and Python's own `spawn` would run the user's script a second time.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from toprank.experiment.training import Outcome, Task, compute

__all__ = ["compute_apart", "compute_here"]

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from toprank.experiment.worker import main; main(sys.argv[2])"
)
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
    crew = _Crew(workers, scratch)
    pending: dict[Future[Outcome], Task] = {}
    try:
        while True:
            while len(pending) < 2 * workers and (task := next(ahead, None)) is not None:
                if task.entry.portable:
                    pending[crew.submit(task)] = task
                else:
                    yield from compute_here([task], tick)
            if not pending:
                return
            done, _ = wait(pending, timeout=_TICK, return_when=FIRST_COMPLETED)
            tick()
            for future in done:
                yield pending.pop(future), future.result()
    finally:
        crew.dismiss()


class _Crew:
    """Worker processes, each served by a thread of ours that waits for its answers."""

    def __init__(self, workers: int, scratch: Path) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="toprank-cell")
        self._mine = threading.local()
        self._scratch = scratch
        self._processes: list[subprocess.Popen[bytes]] = []
        self._dismissed = False

    def submit(self, task: Task) -> Future[Outcome]:
        return self._threads.submit(self._serve, task)

    def _serve(self, task: Task) -> Outcome:
        process = getattr(self._mine, "process", None) or self._start(task.threads)
        self._mine.process = process
        try:
            questions, answers = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
            pickle.dump(pickle.dumps(task), questions)  # as bytes: a task that cannot be rebuilt is still read whole
            questions.flush()
            answer = pickle.load(answers)
        except (EOFError, OSError, pickle.UnpicklingError):
            self._mine.process = None
            return Outcome(0.0, _epitaph(process.wait()))
        if isinstance(answer, Exception):
            raise answer
        outcome: Outcome = answer
        return outcome

    def _start(self, threads: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}
        process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path), str(self._scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for us; we tell them
        )
        self._processes.append(process)
        if self._dismissed:
            process.kill()
        return process

    def dismiss(self) -> None:
        """End all processes, whatever they are doing."""
        self._dismissed = True
        for process in self._processes:
            process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):  # what was not sent yet cannot be sent any more
                    cast(BinaryIO, stream).close()


def _epitaph(status: int) -> str:
    if status < 0:
        name = signal.Signals(-status).name
        return f"The process that computed this was ended by {name}; perhaps there was not enough memory."
    return f"The process that computed this ended with status {status} and no answer; see its messages above."


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
