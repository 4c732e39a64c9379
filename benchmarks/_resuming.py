"""Runs that may end early: what was found is kept in a file, and is not made again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any


def kept(path: Path | None) -> dict[str, Any]:
    """What earlier runs found, by the text of the task."""
    if path is None or not path.exists():
        return {}
    return dict(json.loads(line) for line in path.read_text().splitlines())


def run(
    tasks: Sequence[tuple[Any, ...]],
    work: Callable[[Any], Any],
    *,
    keep: Path | None = None,
    processes: int = 2,
    minutes: float = float("inf"),
) -> dict[Any, Any]:
    """The results of the tasks, as many as there is time for; none is begun after the minutes.

    `work` gives plain values; NaN among them is kept.
    """
    before = kept(keep)
    found = {task: before[_key(task)] for task in tasks if _key(task) in before}
    missing, end = [task for task in tasks if task not in found], time.perf_counter() + 60 * minutes
    waiting: dict[Any, Any] = {}
    with ProcessPoolExecutor(processes) as pool:
        while waiting or (missing and time.perf_counter() < end):
            while missing and len(waiting) < processes and time.perf_counter() < end:
                task = missing.pop(0)
                waiting[pool.submit(work, task)] = task
            for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                task = waiting.pop(done)
                found[task] = done.result()
                print(*task, f"[{len(found)}/{len(tasks)}]", file=sys.stderr, flush=True)
                if keep is not None:
                    with keep.open("a") as file:
                        file.write(json.dumps([_key(task), found[task]]) + "\n")
    if missing:
        print(f"{len(missing)} of {len(tasks)} fits are missing; the same command with --keep goes on.")
    return found


def _key(task: tuple[Any, ...]) -> str:
    return json.dumps(list(task))


def arguments(parser: Any) -> None:
    """The options of a run that may end early."""
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="file of results, read and added to")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no fit after so many")
