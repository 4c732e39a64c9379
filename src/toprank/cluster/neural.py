"""Several processes that train one network: each takes its share of the queries of every batch.

The loss of a batch is a sum over queries, so its gradient is the sum of the shares' gradients: one all-reduce a step
(PyTorch's gloo). Every process makes the same step, and without dropout the training is the one that a single process
would make, up to rounding, whatever the number of processes.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any

from toprank.cluster.member import PREFIX
from toprank.data.dataset import RankingData
from toprank.data.files import read
from toprank.data.store import write_store
from toprank.errors import ClusterError, DataError, FileError, needs

__all__ = ["fit_distributed"]

_LOOK = 0.05
_GRACE = 5.0
_KINDS: dict[str, type[Exception]] = {"data": DataError, "file": FileError}
"""What a process may find wrong, by what `toprank.cluster.member` calls it."""


def fit_distributed(
    ranker: Any, data: Any, *, valid: Any = None, processes: int | None = 2, patience: float = 600.0
) -> Any:
    """Train a `NeuralRanker` by several processes.

    Args:
        ranker: the ranker; it is fitted in place, and returned. Dropout draws differ between the processes; batch
            normalisation, which looks at a whole batch at once, is refused.
        data: a `RankingData`, or the path of a stored copy, which all processes map and none copies.
        valid: the same, to choose on.
        processes: how many to start on this machine; the cores are shared out among them. None: this process is one
            of those that ``torchrun`` started, on one machine or many; all of them call this function alike.
        patience: seconds that a process may let the others wait.
    """
    from toprank.rankers.neural import NeuralRanker

    needs("torch", "neural", "fit_distributed")
    if not isinstance(ranker, NeuralRanker):
        raise DataError(f"fit_distributed trains a NeuralRanker, not a {type(ranker).__name__}.")
    if ranker.norm == "batch":
        raise DataError("norm='batch' looks at a whole batch, but each process has a part of it; use norm='layer'.")
    if ranker.callbacks:
        raise DataError("callbacks run in this process, but the epochs are made by others; leave them out.")
    patience = _seconds(patience)
    if processes is None:
        return _joined(ranker, data, valid, patience)
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise DataError(f"processes must be a whole number of at least 1, not {processes!r}.")
    cloudpickle = needs("cloudpickle", "cluster", "fit_distributed")
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        paths = {name: _stored(part, Path(folder), name) for name, part in (("train", data), ("valid", valid))}
        spec = {"ranker": ranker, "size": processes, "patience": patience, "paths": paths}
        Path(folder, "spec").write_bytes(cloudpickle.dumps(spec))
        _run(Path(folder), processes)
        learnt, said = pickle.loads(Path(folder, "fitted").read_bytes())
    ranker.__dict__.update(learnt)
    for warning in said:
        warnings.warn(warning, stacklevel=3)
    return ranker


def _seconds(patience: Any) -> float:
    number = isinstance(patience, Real) and not isinstance(patience, bool)
    if not number or not 0 < float(patience) < float("inf"):
        raise DataError(f"patience must be a positive number of seconds, not {patience!r}.")
    return float(patience)


def _stored(data: Any, folder: Path, name: str) -> str | None:
    """The path of a stored copy that all processes can map."""
    if data is None:
        return None
    if isinstance(data, RankingData):
        path = folder / f"{name}.toprank-data"
        write_store(data, path)
        return str(path)
    if isinstance(data, str | os.PathLike):
        if not os.path.exists(data):
            read(data)  # says what is wrong, before any process is started
        return os.path.abspath(data)
    raise DataError(f"Give a RankingData, or the path of a stored copy, not a {type(data).__name__}.")


def _run(folder: Path, size: int) -> None:
    """Start the processes and wait; where one fails, or the keyboard interrupts, all are ended.

    A pipe to each of them, on which nothing is ever said, breaks where this process is killed: then they end
    themselves.
    """
    command = [sys.executable, "-m", "toprank.cluster.member", str(folder)]
    members: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(size):
            with Path(folder, f"log-{rank}").open("wb") as log:
                members.append(
                    subprocess.Popen([*command, str(rank)], stdin=subprocess.PIPE, stderr=log, start_new_session=True)
                )
        while any(member.poll() is None for member in members) and not _failed(members):
            time.sleep(_LOOK)
        failed = _failed(members)
        if failed:
            _end(members)
            raise _reason(folder, failed[0], members[failed[0]].returncode)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Training by {size} processes was interrupted; they were ended, and no model is kept."
        ) from None
    finally:
        _end(members)


def _failed(members: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    return [rank for rank, member in enumerate(members) if member.poll() not in (None, 0)]


def _reason(folder: Path, rank: int, status: int) -> Exception:
    """What the first process that failed said."""
    for problem in sorted(folder.glob("problem-*")):  # the others may fail a moment later, for want of the first
        kind, _, text = problem.read_text().partition("\n")
        if kind in _KINDS:
            return _KINDS[kind](text)
    log = Path(folder, f"log-{rank}").read_text(errors="replace").strip().splitlines()
    said = f" Its last words: {log[-1][:300]}" if log else ""
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return ClusterError(f"Process {rank} of the training {how}; the others were ended, and no model is kept.{said}")


def _end(members: Sequence[subprocess.Popen[bytes]]) -> None:
    """Terminate what still runs, and see that it is gone."""
    for member in members:
        if member.poll() is None:
            member.terminate()
    deadline = time.monotonic() + _GRACE
    for member in members:
        try:
            member.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            member.kill()
            member.wait()
        if member.stdin is not None:
            with suppress(OSError):
                member.stdin.close()


def _joined(ranker: Any, data: Any, valid: Any, patience: float) -> Any:
    """Take part in a training that torchrun started."""
    from toprank.cluster.team import team

    if "RANK" not in os.environ:
        raise DataError("processes=None is for processes that torchrun started; give a number of processes.")
    parts = [read(part) if isinstance(part, str | os.PathLike) else part for part in (data, valid)]
    with team(patience) as members:
        ranker._team = members
        try:
            return ranker.fit(parts[0], valid=parts[1])
        finally:
            del ranker._team
