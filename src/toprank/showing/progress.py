"""Work in progress, told on standard error as it suits whoever reads there."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock, Timer
from typing import Any

SILENCE = 2.0
"""Seconds after which a step says what it does, whoever reads standard error."""
NOW_AND_THEN = 10.0
"""Seconds between two lines that go to a file or a pipe."""
_BLINK = 0.2  # seconds for which a line that is written over stands at least


def in_notebook() -> bool:
    """Whether standard error is shown below a notebook's cell: it is no terminal, but a person watches."""
    return type(sys.stderr).__module__.startswith("ipykernel")


class ProgressLine:
    """Lines about one piece of work.

    In a notebook they are one line that is written over, by the notebook's own means, so that nothing but the last is
    kept. On a terminal that is so where `over` is set; else, and in a file or a pipe, each is a line of its own.

    Args:
        every: Least seconds between two lines that are not written over.
        over: Whether a terminal shows one line, too.
        after: Seconds from now before which nothing is told: what is over by then needs no words.
    """

    def __init__(self, every: float = 0.0, *, over: bool = False, after: float = 0.0) -> None:
        self._begin = time.monotonic() + after
        self._lock = Lock()  # a step that takes long speaks from a thread of its own
        self.notebook = in_notebook()
        self.terminal = over and not self.notebook and sys.stderr.isatty()
        self._every = _BLINK if self.notebook or self.terminal else every
        self._time = float("-inf")
        self._shown: Any = None
        self._waiting: str | None = None

    @property
    def watched(self) -> bool:
        """Whether there is one line, which a person watches."""
        return self.notebook or self.terminal

    def rest(self) -> None:
        """Count the time until the next line from now."""
        self._time = time.monotonic()

    def __call__(self, line: str, last: bool = False) -> None:
        """Tell, unless that was done a moment ago; the last line is told in any case, and stays."""
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
        """The work is over: a line that is written over ends with what was said last."""
        if self.watched and self._waiting is not None:
            self(self._waiting, last=True)

    def clear(self) -> None:
        """Take an unfinished line off a terminal."""
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
    """Something that goes on; `wait` lets it be said once that has taken longer than `SILENCE`."""

    def __init__(self, message: str | None, tell: Callable[[str], None]) -> None:
        self.message, self._tell = message, tell
        self._timer: Timer | None = None

    def wait(self) -> None:
        if self.message is not None:
            self._timer = Timer(SILENCE, self._say)
            self._timer.daemon = True
            self._timer.start()

    def rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _say(self) -> None:
        if self.message is not None:
            self._tell(self.message)
            self.message = None


_AROUND: ContextVar[_Step | None] = ContextVar("the step that goes on", default=None)


@contextmanager
def step(message: str | None, quiet: bool, tell: Callable[[str], None] | None = None) -> Iterator[None]:
    """Say what is done within this block, once, if it takes long; a step around it is silent meanwhile.

    Args:
        message: a line; None: what happens within speaks for itself.
        quiet: whether to say nothing.
        tell: says the line; by default on standard error.
    """
    now, around = _Step(None if quiet else message, tell or _on_standard_error), _AROUND.get()
    if around is not None:
        around.rest()
    before = _AROUND.set(now)
    now.wait()
    try:
        yield
    finally:
        now.rest()
        _AROUND.reset(before)
        if around is not None:
            around.wait()


def patience() -> float:
    """Seconds for which work within a step may be silent: a command has a line of its own for what takes longer."""
    around = _AROUND.get()
    return 0.0 if around is None or around.message is None else SILENCE


def _on_standard_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
