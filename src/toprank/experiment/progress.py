"""How far an experiment is, and how long the rest will take."""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict

__all__ = ["Progress", "duration"]

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """A line on standard error that is written over where a person watches, else one now and then.

    The time left is taken from the mean time of each system's cells so far; systems that have none yet count as the
    mean of all.
    """

    def __init__(self, planned: Counter[str], workers: int, verbose: bool | None) -> None:
        self._left = planned.copy()
        self._total = planned.total()
        self._workers = workers
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        self._cached = self._failed = 0
        self._terminal = sys.stderr.isatty()
        self._shown = self._terminal if verbose is None else verbose
        self._last = time.monotonic()
        self._what = ""

    def cached(self, system: str) -> None:
        """A cell was there already."""
        self._left[system] -= 1
        self._cached += 1

    def finished(self, system: str, place: str, seconds: float, failed: bool) -> None:
        """A cell was computed."""
        self._left[system] -= 1
        self._failed += failed
        self._seconds[system].append(seconds)
        self._what = place
        self.tick()

    def time_left(self) -> float | None:
        """Seconds that the rest will take; None before anything is known."""
        known = {system: sum(of) / len(of) for system, of in self._seconds.items()}
        if not known:
            return None
        usual = sum(map(sum, self._seconds.values())) / sum(map(len, self._seconds.values()))
        return sum(count * known.get(system, usual) for system, count in self._left.items()) / self._workers

    def tick(self) -> None:
        """Say how things stand, if it is time to."""
        now = time.monotonic()
        if not self._shown or (not self._terminal and now - self._last < _SECONDS_BETWEEN_LINES):
            return
        self._last = now
        sys.stderr.write(f"\r\033[K{self.line()}" if self._terminal else f"{self.line()}\n")
        sys.stderr.flush()

    def line(self) -> str:
        """The state in one line."""
        done = self._total - self._left.total()
        parts = [f"{done} of {self._total} cells"]
        parts += [f"{self._cached} from the folder"] if self._cached else []
        parts += [f"{self._failed} failed"] if self._failed else []
        left = self.time_left()
        parts += [f"about {duration(left)} left"] if left is not None and self._left.total() else []
        parts += [self._what] if self._what else []
        return ", ".join(parts)

    def close(self, ended: bool) -> None:
        """Clear the line; at the `ended` experiment, leave the sum."""
        if self._shown and self._terminal:
            sys.stderr.write("\r\033[K")
        if self._shown and ended:
            self._what = ""
            sys.stderr.write(f"{self.line()}.\n")
        sys.stderr.flush()


def duration(seconds: float) -> str:
    """A time that people can read.

    >>> duration(3), duration(75), duration(7300)
    ('3 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
