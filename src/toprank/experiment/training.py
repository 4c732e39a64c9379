"""Computation of cells, in this process or in worker processes: select on validation data, predict test documents.

The test data of a `Task` have no labels, so that model selection cannot depend on them.

Workers are started by loky: a fork would inherit OpenMP threads in a broken state, and `spawn` would run the user's
script a second time. Each worker has its own pool, so that a crash affects only its own cell.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.folds import Fold
from toprank.data.store import SUFFIX, open_store, write_store
from toprank.display.record import to_json
from toprank.errors import FileError, ToprankError
from toprank.experiment.provenance import versions
from toprank.experiment.spec import Chosen, Entry
from toprank.experiment.store import CellStore
from toprank.metrics.conventions import Convention
from toprank.model_selection.search import Interrupts
from toprank.rankers.base import Ranker


def signed_weights(ranker: Ranker) -> tuple[str, FloatArray] | None:
    """Return the meaning of the weights and one weight per feature; None if the ranker has no coefficients."""
    coef = getattr(ranker, "coef_", None)
    spread = getattr(getattr(ranker, "standardization_", None), "spread", None)
    if coef is not None and np.ndim(coef) == 1:
        scale = np.ones(len(coef)) if spread is None else spread
        return "Weight of a standard deviation", np.asarray(coef * scale, dtype=np.float64)
    if coef is not None and np.ndim(coef) == 2:  # P(grade | x): one row per grade, or a single row with thresholds
        rows = np.asarray(coef, dtype=np.float64)
        slope = rows[0] if len(rows) == 1 else rows[-1] - rows[0]
        return "Log-odds, highest against lowest grade, of a standard deviation", slope
    return None


_MAX_WARNINGS = 20  # per cell: a warning in every round must not inflate the file


@dataclass(frozen=True)
class Task:
    """A cell to compute, in this process or a worker.

    Attributes:
        data: the fold without test labels, or the folder with copies of its parts.
    """

    key: str
    entry: Entry
    seed: int | None
    metric: str | None
    convention: Convention
    threads: int
    keep_model: bool
    folder: Path
    data: Fold | Path


class Outcome(NamedTuple):
    """Outcome of a task: the time, and the error if it failed."""

    seconds: float
    error: str | None


def blind(fold: Fold) -> Fold:
    """Return the fold without test labels."""
    return replace(fold, test=fold.test.replace(labels=np.full(fold.test.n_documents, np.nan)))


def write_copies(fold: Fold, folder: Path) -> None:
    """Write the fold as stored copies, which workers memory-map instead of loading."""
    folder.mkdir()
    for name, data in fold.parts.items():
        write_store(data, folder / f"{name}{SUFFIX}")


def compute(task: Task, interrupts: Interrupts | None = None) -> Outcome:
    """Compute a cell and store it; errors of the system are returned, not raised.

    An interrupted cell is not stored, although solvers return their best solution on Ctrl-C.
    """
    start = time.perf_counter()
    try:
        fold = task.data
        if isinstance(fold, Path):
            fold = Fold("", *(open_store(fold / f"{part}{SUFFIX}") for part in ("train", "valid", "test")))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            chosen = task.entry.choose(fold, task.metric, task.convention, task.seed, task.threads)
            test, graded = fold.test, hasattr(chosen.ranker, "predict_proba")
            scores = np.asarray(chosen.ranker.predict(test), dtype=np.float64)
            relevance = chosen.ranker.predict_proba(test)[:, 1:].sum(axis=1) if graded else None  # P(grade ≥ 1)
    except ToprankError as problem:
        return Outcome(time.perf_counter() - start, problem.args[0])
    except MemoryError:
        return Outcome(time.perf_counter() - start, "Out of memory.")
    except Exception as problem:  # noqa: BLE001 - an error in one system must not stop the others
        return Outcome(time.perf_counter() - start, f"{type(problem).__name__}: {problem}")
    if interrupts is not None and interrupts.happened:
        raise KeyboardInterrupt
    seconds = time.perf_counter() - start
    record = _record(task, chosen, [str(warning.message) for warning in caught], seconds)
    CellStore(task.folder).write(task.key, record, scores, relevance, chosen.ranker if task.keep_model else None)
    return Outcome(seconds, None)


def _record(task: Task, chosen: Chosen, warned: list[str], seconds: float) -> dict[str, Any]:
    ranker = chosen.ranker
    solution = getattr(ranker, "solution_", None)
    # Cells store one number per feature; weights of categorical levels differ between folds.
    meaning, weights = ("", []) if getattr(ranker, "columns_", None) is not None else signed_weights(ranker) or ("", [])
    return {
        "key": task.key,
        "options": to_json(chosen.options, repr),
        "metric": chosen.metric,
        "convention": chosen.convention,
        "valid": chosen.valid,
        "seconds": seconds,
        "message": getattr(solution, "message", None) or getattr(ranker, "stopped_", "") or "",
        "warnings": list(dict.fromkeys(warned))[:_MAX_WARNINGS],
        "candidates": chosen.candidates,
        "history": getattr(ranker, "history_", {}) or {},
        "importances": _importances(ranker),
        "weights": weights,
        "meaning": meaning,
        "feature_names": [str(name) for name in getattr(ranker, "feature_names_in_", ())],
        "versions": versions(),
    }


def _importances(ranker: Ranker) -> list[float]:
    try:
        return [float(share) for share in ranker.feature_importances_]
    except (AttributeError, TypeError, ValueError):  # not every ranker has importances
        return []


_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_POLL_SECONDS = 0.5  # interval between progress updates, and until a worker notices that its parent has exited


def compute_here(tasks: Iterable[Task], tick: Callable[[], None]) -> Generator[tuple[Task, Outcome], None, None]:
    """Compute tasks one after another in this process."""
    for task in tasks:
        tick()
        with Interrupts() as interrupts, interrupts.interruptible():
            outcome = compute(task, interrupts)
        if interrupts.happened:
            raise KeyboardInterrupt
        yield task, outcome


def compute_in_workers(
    tasks: Iterable[Task], workers: int, scratch: Path, tick: Callable[[], None]
) -> Generator[tuple[Task, Outcome], None, None]:
    """Compute tasks in worker processes and yield them as they finish; tasks that cannot be pickled run here.

    Only a few tasks are prefetched, to limit the data on disk.
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
            done, _ = wait(busy, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
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
    """A worker process, restarted after a crash."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._pool: Any = None

    def begin(self, task: Task) -> Future[Outcome]:
        if self._pool is None:
            from loky import ProcessPoolExecutor

            environment = dict.fromkeys(_THREAD_VARIABLES, str(task.threads))
            beginning = (os.getpid(), str(self._scratch))
            self._pool = ProcessPoolExecutor(1, initializer=_initialize, initargs=beginning, env=environment)
        # Pass bytes, so that unpickling errors are reported for this cell instead of breaking the pool.
        future: Future[Outcome] = self._pool.submit(_compute_packed, pickle.dumps(task))
        return future

    def outcome(self, future: Future[Outcome]) -> Outcome:
        try:
            return future.result()
        except BrokenProcessPool as problem:
            self.end()
            return Outcome(0.0, _crash_message(str(problem)))

    def end(self) -> None:
        """Terminate the process."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, kill_workers=True)
            self._pool = None


def _crash_message(message: str) -> str:
    killed = re.search(r"\b(SIG[A-Z0-9]+)\(-\d+\)", message)  # format of loky's exit codes
    if killed:
        return f"The worker process was killed by {killed[1]}, possibly because of insufficient memory."
    return f"The worker process exited unexpectedly; see its messages above. {message}"


# ---- in the worker ----


def _initialize(parent: int, scratch: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and terminates this process
    os.dup2(2, 1)  # output of libraries must not mix with the output of a command
    threading.Thread(target=_exit_with, args=(parent, scratch), daemon=True).start()


def _exit_with(parent: int, scratch: str) -> None:
    """Exit as soon as the parent process has exited, even in the middle of a cell."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    shutil.rmtree(scratch, ignore_errors=True)  # the copies of data
    os._exit(0)


def _compute_packed(packed: bytes) -> Outcome:
    try:
        task = pickle.loads(packed)
    except Exception as problem:  # noqa: BLE001 - importing user code can raise any exception
        why = f"{type(problem).__name__}: {problem}"
        remedy = "Define its class in an importable module, or use threads=1."
        return Outcome(0.0, f"A worker process cannot unpickle this system ({why}). {remedy}")
    try:
        return compute(task)
    except OSError as problem:  # an unwritable folder affects all cells
        raise FileError(str(problem)) from None
