"""A process that computes cells: tasks come in on standard input, outcomes go out on standard output, both pickled.

When the input ends, the one who asked is done or dead; either way nobody waits for an answer, and the process ends at
once, even in the middle of a cell.
"""

from __future__ import annotations

import os
import pickle
import queue
import shutil
import sys
import threading
from typing import BinaryIO, NoReturn

from toprank.errors import FileError
from toprank.experiment.training import Outcome, compute

__all__ = ["main"]


def main(scratch: str) -> None:
    """Serve until the input ends; `scratch` is the folder with copies of data, removed then."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not mix with the answers
    tasks: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, tasks, scratch), daemon=True).start()
    while True:
        try:
            answer: Outcome | FileError = _answer(tasks.get())
        except OSError as problem:  # the folder cannot be written: that concerns all cells
            answer = FileError(str(problem))
        try:
            pickle.dump(answer, answers)
            answers.flush()
        except BrokenPipeError:  # the one who asked died in this very moment
            _leave(scratch)


def _receive(stream: BinaryIO, tasks: queue.Queue[bytes], scratch: str) -> None:
    while True:
        try:
            tasks.put(pickle.load(stream))
        except (EOFError, OSError, pickle.UnpicklingError):  # nothing more, or only half a task
            _leave(scratch)


def _leave(scratch: str) -> NoReturn:
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(0)


def _answer(packed: bytes) -> Outcome:
    try:
        task = pickle.loads(packed)
    except Exception as problem:  # noqa: BLE001 - importing someone's module may fail in any way
        why = f"{type(problem).__name__}: {problem}"
        remedy = "Put its class into a module that Python finds, or use threads=1."
        return Outcome(0.0, f"Another process cannot rebuild this system ({why}). {remedy}")
    return compute(task)
