"""Memory needed by LightGBM's trees, and memory available before the system terminates the process.

LightGBM builds bins from a sample of rows, whose values it stores by column in double precision with row indices; for
few columns that is most of the memory of a training. Containers and machines terminate a process without a message when
memory runs out, so both are checked in advance. If the process itself has a limit (ulimit), LightGBM reports an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toprank.errors import DataError

SAMPLED = 200_000  # LightGBM's bin_construct_sample_cnt
_N_PROBED = 1000  # rows for estimating the fraction of non-zero values; zeros are not stored
_BYTES_PER_VALUE = 12  # of the sample: the value and its row
_ROOT = Path("/")


class Memory(NamedTuple):
    """Approximate memory of LightGBM in bytes."""

    sample: int
    """For the sample of rows, which is freed once the bins are built."""
    bins: int

    @classmethod
    def from_features(cls, X: Any, sampled: int = SAMPLED) -> Memory:
        """Estimate the memory for trees on these features, with bins from `sampled` rows."""
        n, _ = X.shape
        part = X[:: max(1, n // _N_PROBED)]
        filled = part.getnnz(axis=0) if hasattr(part, "getnnz") else np.count_nonzero(part, axis=0)
        shares = filled / part.shape[0]
        # Lists double their capacity when full; near a power of two, assume the smaller size.
        held = 2.0 ** np.ceil(np.log2(np.maximum(0.9 * min(n, sampled) * shares, 1)))
        return cls(int(_BYTES_PER_VALUE * held.sum()), int(n * shares.sum()))


def check_memory(X: Any, sampled: int = SAMPLED) -> None:
    """Refuse features whose trees exceed the memory of the container or the machine."""
    left = memory_left()
    if left is not None and max(Memory.from_features(X, sampled)) > left:
        raise too_little_memory(X, sampled, f", and {_mebibytes(left)} are available")


def too_little_memory(X: Any, sampled: int = SAMPLED, left: str = "") -> DataError:
    """Return the error for trees that do not fit into memory."""
    n, d = X.shape
    needed, rows = Memory.from_features(X, sampled), min(n, sampled)
    fewer = (
        f"Most of it is for a sample of {rows:,} rows that determines the bins. Use a smaller sample, for example "
        f"lightgbm_params={{'bin_construct_sample_cnt': {max(1000, rows // 10)}}}. "
    )
    return DataError(
        f"There is too little memory to train trees on {n:,} documents with {d:,} features: LightGBM needs about "
        f"{_mebibytes(max(needed))} in addition to the data{left}. {fewer if needed.sample > needed.bins else ''}"
        "Train on fewer documents or features, or on a machine with more memory."
    )


def _mebibytes(count: int) -> str:
    return f"{max(count, 0) / 2**20:,.0f} MiB"


def memory_left() -> int | None:
    """Return the bytes available in the container (cgroup) or the machine; None if unknown.

    File caches count as available, because the system releases them on demand.
    """
    limits = [*_of_containers()]
    machine = _numbers(_ROOT / "proc/meminfo")
    if "MemAvailable:" in machine:
        limits.append(1024 * (machine["MemAvailable:"] + machine.get("SwapFree:", 0)))
    return min(limits, default=None)


def _of_containers() -> Iterator[int]:
    """Yield the available memory under each limit of the control groups of the process."""
    for folder, first in groups(_ROOT, "memory"):
        limit, usage = ("memory.limit_in_bytes", "memory.usage_in_bytes") if first else _FILES_V2
        most, used = _number(folder / limit), _number(folder / usage)
        if most is not None and used is not None:
            statistics = _numbers(folder / "memory.stat")
            before = "total_" if first else ""
            yield most - used + sum(statistics.get(f"{before}{kind}_file", 0) for kind in ("active", "inactive"))


def groups(root: Path, controller: str) -> Iterator[tuple[Path, bool]]:
    """Yield the folders of the control groups of the process and of their parents, and whether they are version 1.

    The files in them contain the limits of a container.
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


_FILES_V2 = ("memory.max", "memory.current")  # in cgroup version 2


def _number(path: Path) -> int | None:
    """Return the number in a file; None if there is none, such as "max"."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _numbers(path: Path) -> dict[str, int]:
    """Return the numbers in a file, by the preceding word."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
