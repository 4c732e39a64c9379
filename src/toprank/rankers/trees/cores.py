"""Number of idle cores for tree training, for processes that should leave busy cores to others.

LightGBM's threads synchronize hundreds of times per round, and all wait for a thread that shares its core with another
process: beside two busy processes on two cores, a round takes longer with two threads than with one. A process can only
measure the load, which changes over time. Therefore imported programs decide for themselves, while our commands, which
own their process, enable it by an environment variable. `AutoRanker` always does, because it keeps a time budget.
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

VARIABLE = "TOPRANK_LEAVE_BUSY_CORES"
"""The environment variable. Unset or empty: only `leaving_busy_cores` has this effect; 0: use every core that the
process may use.
"""
_N_SAMPLES, _INTERVAL = 5, 0.004  # of the load, with seconds in between, to ignore short tasks
_ROOT = Path("/")


class FreeCores(NamedTuple):
    """Number of threads that have an idle core."""

    threads: int
    """At least 1."""
    why: str
    """The reason for fewer threads than Python reports cores, as a sentence; else empty."""


_LEAVES_BUSY_CORES: ContextVar[bool] = ContextVar("toprank_leaves_busy_cores", default=False)


@contextmanager
def leaving_busy_cores() -> Iterator[None]:
    """Leave cores to other processes that use them, unless the variable is 0; for searches with a time budget."""
    token = _LEAVES_BUSY_CORES.set(True)
    try:
        yield
    finally:
        _LEAVES_BUSY_CORES.reset(token)


def leaves_busy_cores() -> bool:
    """Return whether this process should leave cores to other processes that use them."""
    asked = os.environ.get(VARIABLE, "")
    return asked != "0" if asked else _LEAVES_BUSY_CORES.get()


def free_cores() -> FreeCores:
    """Return how many threads have an idle core, within the limits of the container and the load of the machine."""
    seen = available_threads()
    allowed = min([seen, *_of_containers()])
    cores, others = _of_the_machine()
    threads = min(allowed, max(1, cores - others))
    if threads == seen:
        return FreeCores(threads, "")
    start = f"Trees are trained on {threads} thread{'s' if threads > 1 else ''}"
    if threads == allowed:
        return FreeCores(threads, f"{start}, the limit of the container, of {seen} cores.")
    return FreeCores(threads, f"{start}, because other processes use {min(others, cores)} of {cores} cores.")


def _of_the_machine() -> tuple[int, int]:
    """Return the number of cores and of other runnable threads (0 if the system does not report it)."""
    stat = _ROOT / "proc/stat"
    running = []
    for look in range(_N_SAMPLES):
        try:
            lines = [line.split() for line in stat.read_text().splitlines()]
        except OSError:
            break
        cores = sum(words[0][:3] == "cpu" and words[0][3:].isdigit() for words in lines if words)
        running += [int(words[1]) for words in lines if words[:1] == ["procs_running"]]
        if look + 1 < _N_SAMPLES:
            time.sleep(_INTERVAL)
    if running and cores:
        return cores, max(0, statistics.median_low(running) - 1)  # without this thread itself
    cores = os.cpu_count() or 1
    return cores, int(os.getloadavg()[0]) if hasattr(os, "getloadavg") else 0


def _of_containers() -> Iterator[int]:
    """Yield the number of threads that each processor time limit allows, rounded up."""
    for folder, first in groups(_ROOT, "cpu"):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if first else ("cpu.max",)
        try:
            quota, period = " ".join((folder / name).read_text() for name in names).split()
        except (OSError, ValueError):
            continue
        if quota.isdigit() and period.isdigit() and int(period):  # "max" and -1 mean no limit
            yield max(1, math.ceil(int(quota) / int(period)))
