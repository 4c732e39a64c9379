"""What the trees of LightGBM take in memory, and how much of it is left before the system ends the process.

Bins are made from a sample of rows, whose values LightGBM holds column by column, in double precision and with their
rows: for few columns that is most of what a training takes. A container or a machine without memory ends the process
without a word, so these are asked before; where a limit is of the process itself (ulimit), LightGBM says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toprank.errors import DataError

SAMPLED = 200_000  # LightGBM's bin_construct_sample_cnt
_LOOKED_AT = 1000  # rows that tell how many values are not 0: zeros are not held
_IN_SAMPLE = 12  # bytes of a value: itself, and its row
_ROOT = Path("/")


class Memory(NamedTuple):
    """Bytes that LightGBM takes, about."""

    sample: int
    """For rows from which it makes its bins; given back when these are made."""
    bins: int

    @classmethod
    def from_features(cls, X: Any, sampled: int = SAMPLED) -> Memory:
        """For trees on these features, whose bins are made from so many rows."""
        n, _ = X.shape
        part = X[:: max(1, n // _LOOKED_AT)]
        filled = part.getnnz(axis=0) if hasattr(part, "getnnz") else np.count_nonzero(part, axis=0)
        shares = filled / part.shape[0]
        # Lists of values double when they are full; near a border, the smaller size is taken.
        held = 2.0 ** np.ceil(np.log2(np.maximum(0.9 * min(n, sampled) * shares, 1)))
        return cls(int(_IN_SAMPLE * held.sum()), int(n * shares.sum()))


def check_memory(X: Any, sampled: int = SAMPLED) -> None:
    """Refuse features for whose trees the memory of the container or the machine does not suffice."""
    left = memory_left()
    if left is not None and max(Memory.from_features(X, sampled)) > left:
        raise too_little_memory(X, sampled, f", and {_mebibytes(left)} are left")


def too_little_memory(X: Any, sampled: int = SAMPLED, left: str = "") -> DataError:
    """The error about trees that do not fit into memory."""
    n, d = X.shape
    needed, rows = Memory.from_features(X, sampled), min(n, sampled)
    fewer = (
        f"Most of that are {rows:,} rows from which it makes its bins; fewer make them coarser, for example "
        f"lightgbm_params={{'bin_construct_sample_cnt': {max(1000, rows // 10)}}}. "
    )
    return DataError(
        f"There is too little memory to grow trees on {n:,} documents of {d:,} features: LightGBM takes about "
        f"{_mebibytes(max(needed))} beside them{left}. {fewer if needed.sample > needed.bins else ''}Train on fewer "
        "documents or features, or where there is more memory."
    )


def _mebibytes(count: int) -> str:
    return f"{max(count, 0) / 2**20:,.0f} MiB"


def memory_left() -> int | None:
    """Bytes until the system ends the process: by the container (cgroup), or by the machine; None where it is unknown.

    What files take of it counts as free: it is given back when it is needed.
    """
    limits = [*_of_containers()]
    machine = _numbers(_ROOT / "proc/meminfo")
    if "MemAvailable:" in machine:
        limits.append(1024 * (machine["MemAvailable:"] + machine.get("SwapFree:", 0)))
    return min(limits, default=None)


def _of_containers() -> Iterator[int]:
    """What is left under each limit of the groups that the process is in."""
    for folder, first in groups(_ROOT, "memory"):
        limit, usage = ("memory.limit_in_bytes", "memory.usage_in_bytes") if first else _SECOND
        most, used = _number(folder / limit), _number(folder / usage)
        if most is not None and used is not None:
            statistics = _numbers(folder / "memory.stat")
            before = "total_" if first else ""
            yield most - used + sum(statistics.get(f"{before}{kind}_file", 0) for kind in ("active", "inactive"))


def groups(root: Path, controller: str) -> Iterator[tuple[Path, bool]]:
    """Folders of the control groups that the process is in and of those around them, and whether of version 1.

    A container's limits of what the controller is in charge of stand in their files.
    """
    try:
        lines = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in lines:
        if controllers == "" or controller in controllers.split(","):
            mount = root / "sys/fs/cgroup" / controllers
            inside = mount / path.lstrip("/")
            for folder in (inside, *(above for above in inside.parents if above.is_relative_to(mount))):
                yield folder, bool(controllers)


_SECOND = ("memory.max", "memory.current")  # in the second version of such groups


def _number(path: Path) -> int | None:
    """The number in a file; None where there is none, such as "max"."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _numbers(path: Path) -> dict[str, int]:
    """The numbers of a file, by the words before them."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
