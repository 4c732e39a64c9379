"""Progress messages on standard error, in the form suited to a terminal, notebook, file or pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock, Timer
from typing import Any

SILENCE = 2.0
"""Seconds before the first message of a step."""
FILE_INTERVAL = 10.0
"""Seconds between two lines in a file or a pipe."""
_MIN_DISPLAY_SECONDS = 0.2  # minimum time for which a line is visible before it is overwritten


def in_notebook() -> bool:
    """Return whether standard error is shown in a notebook cell."""
    return type(sys.stderr).__module__.startswith("ipykernel")


class ProgressLine:
    """Progress lines of one task.

    In a notebook each line replaces the previous one. On a terminal this happens if `over` is set; otherwise, and in a
    file or a pipe, all lines are kept.

    Args:
        every: Minimum number of seconds between two lines that are kept. Default 0.
        over: Replace the previous line on a terminal, too. Default False.
        after: Delay in seconds before the first line, which keeps short tasks silent. Default 0.
    """

    def __init__(self, every: float = 0.0, *, over: bool = False, after: float = 0.0) -> None:
        self._begin = time.monotonic() + after
        self._lock = Lock()  # long steps write from another thread
        self.notebook = in_notebook()
        self.terminal = over and not self.notebook and sys.stderr.isatty()
        self._every = _MIN_DISPLAY_SECONDS if self.notebook or self.terminal else every
        self._time = float("-inf")
        self._shown: Any = None
        self._waiting: str | None = None

    @property
    def watched(self) -> bool:
        """True if lines replace each other, in a notebook or on a terminal."""
        return self.notebook or self.terminal

    def rest(self) -> None:
        """Restart the interval until the next line."""
        self._time = time.monotonic()

    def __call__(self, line: str, last: bool = False) -> None:
        """Write a line unless the previous one is too recent; the last line is always written and kept."""
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
        """End the task: write a line that was held back, if lines replace each other."""
        if self.watched and self._waiting is not None:
            self(self._waiting, last=True)

    def clear(self) -> None:
        """Clear an unfinished line on a terminal."""
        if self.terminal:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def _display(self, line: str) -> None:
        if self._shown is None:
            from IPython.display import display

            show: Any = display  # untyped
            self._shown = show({"text/plain": line}, raw=True, display_id=True)
        else:
            self._shown.update({"text/plain": line}, raw=True)


class _Step:
    """A step of a task; after `wait`, its message is written if the step takes longer than `SILENCE`."""

    def __init__(self, message: str | None, tell: Callable[[str], None]) -> None:
        self.message, self._tell = message, tell
        self._timer: Timer | None = None

    def wait(self) -> None:
        if self.message is not None:
            self._timer = Timer(SILENCE, self._say)
            self._timer.daemon = True
            self._timer.start()

    def rest(self) -> None:
        """Cancel the message and end its timer thread."""
        if self._timer is not None:
            self._timer.cancel()
            with suppress(RuntimeError):  # interrupted before the thread was started
                self._timer.join()

    def _say(self) -> None:
        if self.message is not None:
            self._tell(self.message)
            self.message = None


_CURRENT: ContextVar[_Step | None] = ContextVar("current step", default=None)


@contextmanager
def step(message: str | None, quiet: bool, tell: Callable[[str], None] | None = None) -> Iterator[None]:
    """Write a message once if this block takes long; an enclosing step is silent during the block.

    Args:
        message: the line to write; None if the block writes its own lines.
        quiet: write nothing.
        tell: function that writes the line. Default: write to standard error.
    """
    inner, outer = _Step(None if quiet else message, tell or _on_standard_error), _CURRENT.get()
    if outer is not None:
        outer.rest()
    before = _CURRENT.set(inner)
    try:
        inner.wait()
        yield
    finally:
        inner.rest()
        _CURRENT.reset(before)
        if outer is not None:
            outer.wait()


def patience() -> float:
    """Return the number of seconds for which nested progress lines are silent: until the step writes its message."""
    current = _CURRENT.get()
    return 0.0 if current is None or current.message is None else SILENCE


def _on_standard_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
