"""Work in progress, reported on standard error in a form that suits its reader: terminal, notebook, file or pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock, Timer
from typing import Any

SILENCE = 2.0
"""Seconds after which a step reports what it does, in any form."""
NOW_AND_THEN = 10.0
"""Seconds between two lines that go to a file or a pipe."""
_BLINK = 0.2  # seconds for which a line stands at least before it is overwritten


def in_notebook() -> bool:
    """Whether standard error appears below a notebook's cell: it is no terminal, but a person watches."""
    return type(sys.stderr).__module__.startswith("ipykernel")


class ProgressLine:
    """Lines about one piece of work.

    In a notebook each line overwrites the one before, by the notebook's own means, so that only the last is kept. On a
    terminal this happens if `over` is set; otherwise, and in a file or a pipe, each line stays.

    Args:
        every: Least seconds between two lines that stay.
        over: Whether lines overwrite each other on a terminal, too.
        after: Seconds from now before which nothing is written: work that is over by then needs no words.
    """

    def __init__(self, every: float = 0.0, *, over: bool = False, after: float = 0.0) -> None:
        self._begin = time.monotonic() + after
        self._lock = Lock()  # a step that takes long writes from a thread of its own
        self.notebook = in_notebook()
        self.terminal = over and not self.notebook and sys.stderr.isatty()
        self._every = _BLINK if self.notebook or self.terminal else every
        self._time = float("-inf")
        self._shown: Any = None
        self._waiting: str | None = None

    @property
    def watched(self) -> bool:
        """Whether lines overwrite each other before a person's eyes."""
        return self.notebook or self.terminal

    def rest(self) -> None:
        """Count the time until the next line from now."""
        self._time = time.monotonic()

    def __call__(self, line: str, last: bool = False) -> None:
        """Write a line, unless one was written a moment ago; the last line is always written, and stays."""
        now = time.monotonic()
        if now < self._begin:
            return
        if not last and now - self._time < self._every:
            self._waiting = line
            return
        self.rest()
        self._waiting = None
        with self._lock:
            if self.notebook:
                self._display(line)
            elif self.terminal:
                sys.stderr.write(f"\r\033[K{line}" + ("\n" if last else ""))
            else:
                sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def end(self) -> None:
        """End the work: if lines overwrite each other, the one that still waits is written as the last."""
        if self.watched and self._waiting is not None:
            self(self._waiting, last=True)

    def clear(self) -> None:
        """Remove an unfinished line from a terminal."""
        if self.terminal:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def _display(self, line: str) -> None:
        if self._shown is None:
            from IPython.display import display

            show: Any = display  # it has no types
            self._shown = show({"text/plain": line}, raw=True, display_id=True)
        else:
            self._shown.update({"text/plain": line}, raw=True)


class _Step:
    """A step of the work; after `wait` its message is written once it has taken longer than `SILENCE`."""

    def __init__(self, message: str | None, tell: Callable[[str], None]) -> None:
        self.message, self._tell = message, tell
        self._timer: Timer | None = None

    def wait(self) -> None:
        if self.message is not None:
            self._timer = Timer(SILENCE, self._say)
            self._timer.daemon = True
            self._timer.start()

    def rest(self) -> None:
        """Write nothing from now on, and end the thread that would."""
        if self._timer is not None:
            self._timer.cancel()
            with suppress(RuntimeError):  # Ctrl-C came before the thread was started
                self._timer.join()

    def _say(self) -> None:
        if self.message is not None:
            self._tell(self.message)
            self.message = None


_AROUND: ContextVar[_Step | None] = ContextVar("the step that goes on", default=None)


@contextmanager
def step(message: str | None, quiet: bool, tell: Callable[[str], None] | None = None) -> Iterator[None]:
    """Write once what is done within this block if it takes long; a step around it is silent meanwhile.

    Args:
        message: the line to write; None if the work within writes lines of its own.
        quiet: whether to write nothing.
        tell: writes the line; by default to standard error.
    """
    now, around = _Step(None if quiet else message, tell or _on_standard_error), _AROUND.get()
    if around is not None:
        around.rest()
    before = _AROUND.set(now)
    try:
        now.wait()
        yield
    finally:
        now.rest()
        _AROUND.reset(before)
        if around is not None:
            around.wait()


def patience() -> float:
    """Return the seconds for which work within a step is silent: after these the step writes its own line."""
    around = _AROUND.get()
    return 0.0 if around is None or around.message is None else SILENCE


def _on_standard_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
