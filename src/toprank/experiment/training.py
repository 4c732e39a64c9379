"""Cells: choose on validation data, predict the test documents, write both down; here or in processes of their own.

Test labels do not come here: the test data of a `Task` have none, so no choice can depend on them.

loky starts processes afresh: a fork would inherit the threads of OpenMP in a state that they do not survive,
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
    """What the numbers mean, and one for each feature; None where the ranker has no coefficients."""
    coef = getattr(ranker, "coef_", None)
    spread = getattr(getattr(ranker, "standardization_", None), "spread", None)
    if coef is not None and np.ndim(coef) == 1:
        scale = np.ones(len(coef)) if spread is None else spread
        return "Weight of a standard deviation", np.asarray(coef * scale, dtype=np.float64)
    if coef is not None and np.ndim(coef) == 2:  # P(grade | x): one row per grade, or one row before thresholds
        rows = np.asarray(coef, dtype=np.float64)
        slope = rows[0] if len(rows) == 1 else rows[-1] - rows[0]
        return "Log-odds, highest against lowest grade, of a standard deviation", slope
    return None


_MOST_WARNINGS = 20  # sentences that a cell keeps: one that warns in every round must not swell its file


@dataclass(frozen=True)
class Task:
    """A cell to compute: everything that is needed, for this process or another.

    Attributes:
        data: the fold with its test labels taken out, or the folder with copies of its parts.
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
    """What became of a task."""

    seconds: float
    error: str | None


def blind(fold: Fold) -> Fold:
    """The fold without test labels."""
    return replace(fold, test=fold.test.replace(labels=np.full(fold.test.n_documents, np.nan)))


def write_copies(fold: Fold, folder: Path) -> None:
    """The fold as stored copies, which other processes map into memory instead of each holding its own."""
    folder.mkdir()
    for name, data in fold.parts.items():
        write_store(data, folder / f"{name}{SUFFIX}")


def compute(task: Task, interrupts: Interrupts | None = None) -> Outcome:
    """Compute a cell and write it to its folder; what goes wrong with the system is told, not raised.

    Ctrl-C, which solvers answer with the best so far, leaves no result.
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
        return Outcome(time.perf_counter() - start, "There was not enough memory for this.")
    except Exception as problem:  # noqa: BLE001 - one system's trouble must not end the others
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
    # A cell keeps a number for each feature; weights of the levels of categories differ between folds.
    meaning, weights = ("", []) if getattr(ranker, "columns_", None) is not None else signed_weights(ranker) or ("", [])
    return {
        "key": task.key,
        "options": to_json(chosen.options, repr),
        "metric": chosen.metric,
        "convention": chosen.convention,
        "valid": chosen.valid,
        "seconds": seconds,
        "message": getattr(solution, "message", None) or getattr(ranker, "stopped_", "") or "",
        "warnings": list(dict.fromkeys(warned))[:_MOST_WARNINGS],
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
    except (AttributeError, TypeError, ValueError):  # not every ranker can tell
        return []


_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_TICK = 0.5  # seconds between looks at the clock, and the longest that a worker outlives who asked


def compute_here(tasks: Iterable[Task], tick: Callable[[], None]) -> Generator[tuple[Task, Outcome], None, None]:
    """One task after another in this process."""
    for task in tasks:
        tick()
        with Interrupts() as interrupts, interrupts.interruptible():
            outcome = compute(task, interrupts)
        if interrupts.happened:
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
            self._pool = ProcessPoolExecutor(1, initializer=_initialize, initargs=beginning, env=environment)
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


def _epitaph(message: str) -> str:
    killed = re.search(r"\b(SIG[A-Z0-9]+)\(-\d+\)", message)  # how loky writes down what a process ended with
    if killed:
        return f"The process that computed this was ended by {killed[1]}; perhaps there was not enough memory."
    return f"The process that computed this ended without an answer; see its messages above. {message}"


# ---- in the other process ----


def _initialize(parent: int, scratch: str) -> None:
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
