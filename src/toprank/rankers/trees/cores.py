"""How many cores the machine has free for the threads of trees, for a process that is to leave busy ones to others.

LightGBM's threads wait for each other hundreds of times a round, and whichever shares its core with another process is
waited for by all: beside two busy processes on two cores, a round on two threads takes longer than on one. A process
knows that only where it looks, and what it finds changes; so a program that is imported decides by itself, while the
commands, whose process is their own, ask for it by a variable of the environment. `AutoRanker` always does: it promises
to keep to a time.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from toprank.compute import available_threads
from toprank.rankers.trees.memory import groups

ASKED = "TOPRANK_LEAVE_BUSY_CORES"
"""The variable; unset or empty: only `leaving_busy_cores` does so; 0: every core that the process may use is used."""
_LOOKS, _BETWEEN = 5, 0.004  # and seconds between them: what runs for a moment only is not what a training meets
_ROOT = Path("/")


class FreeCores(NamedTuple):
    """How many threads find a core."""

    threads: int
    """At least 1."""
    why: str
    """Why they are fewer than the cores that Python sees, as a sentence; empty where they are not."""


_LEAVES_BUSY_CORES: ContextVar[bool] = ContextVar("toprank_leaves_busy_cores", default=False)


@contextmanager
def leaving_busy_cores() -> Iterator[None]:
    """Leave cores to others that use them, unless the variable is 0: for a search that must keep to its time."""
    token = _LEAVES_BUSY_CORES.set(True)
    try:
        yield
    finally:
        _LEAVES_BUSY_CORES.reset(token)


def leaves_busy_cores() -> bool:
    """Whether this process is to leave cores to others that use them."""
    asked = os.environ.get(ASKED, "")
    return asked != "0" if asked else _LEAVES_BUSY_CORES.get()


def free_cores() -> FreeCores:
    """How many threads find a core: within the container's limits, and beside what else runs on the machine."""
    seen = available_threads()
    allowed = min([seen, *_of_containers()])
    cores, others = _of_the_machine()
    threads = min(allowed, max(1, cores - others))
    if threads == seen:
        return FreeCores(threads, "")
    grow = f"Trees grow on {threads} thread{'s' if threads > 1 else ''}"
    if threads == allowed:
        return FreeCores(threads, f"{grow}, as much as the container may use of {seen} cores.")
    return FreeCores(threads, f"{grow}: other work keeps {min(others, cores)} of {cores} cores busy.")


def _of_the_machine() -> tuple[int, int]:
    """Its cores, and how many threads of others want one; where the system does not say that, they are 0."""
    stat = _ROOT / "proc/stat"
    running = []
    for look in range(_LOOKS):
        try:
            lines = [line.split() for line in stat.read_text().splitlines()]
        except OSError:
            break
        cores = sum(words[0][:3] == "cpu" and words[0][3:].isdigit() for words in lines if words)
        running += [int(words[1]) for words in lines if words[:1] == ["procs_running"]]
        if look + 1 < _LOOKS:
            time.sleep(_BETWEEN)
    if running and cores:
        return cores, max(0, statistics.median_low(running) - 1)  # this thread runs, or it could not look
    cores = os.cpu_count() or 1
    return cores, int(os.getloadavg()[0]) if hasattr(os, "getloadavg") else 0


def _of_containers() -> Iterator[int]:
    """As many threads as each limit of processor time keeps busy; a part of a core counts as one."""
    for folder, first in groups(_ROOT, "cpu"):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if first else ("cpu.max",)
        try:
            quota, period = " ".join((folder / name).read_text() for name in names).split()
        except (OSError, ValueError):
            continue
        if quota.isdigit() and period.isdigit() and int(period):  # "max" and -1: no limit
            yield max(1, math.ceil(int(quota) / int(period)))
