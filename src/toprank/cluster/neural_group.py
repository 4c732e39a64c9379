"""Several processes train one network: each takes its share of the queries of every batch.

The loss of a batch is a sum over queries, so its gradient is the sum of the shares' gradients: one all-reduce a step
(PyTorch's gloo). Every process makes the same step, and without dropout the training is the one that a single process
would make, up to rounding, whatever the number of processes.

PyTorch's elastic launcher starts the processes on this machine, watches them, and ends all if one fails; on several
machines ``torchrun`` does, which is the same launcher.
"""

from __future__ import annotations

import math
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as gloo
from torch import nn
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from toprank.compute import available_threads
from toprank.data.checks import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.data.files import read
from toprank.data.store import write_store
from toprank.errors import ClusterError, DataError, FileError, ToprankError, needs, warn_user
from toprank.rankers.estimator import is_learnt
from toprank.rankers.neural.inputs import EpochPlan
from toprank.rankers.neural.objective import NotFinite
from toprank.rankers.neural.ranker import NeuralRanker

_LONGEST = 1e8
"""Seconds, about three years: more than anybody waits, and gloo can still count them in milliseconds."""
_LOOK = 0.05
"""Seconds between two looks at whether a process has ended."""
_PREFIX = "toprank-"
"""The beginning of the name of the folder that `fit_distributed` makes, and that a process may remove."""
_WORKER = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "from toprank.cluster.neural_group import work; work(*sys.argv[1:])"
)
"""The program of a process. The launcher passes Ctrl-C on, which ends the process at once, even while it imports."""
_KINDS: dict[str, type[ToprankError]] = {"data": DataError, "file": FileError}
"""The errors that a process may report, by their word in the file of its problem."""


def fit_distributed(
    ranker: NeuralRanker, data: Any, *, valid: Any = None, processes: int | None = 2, patience: float = 600.0
) -> NeuralRanker:
    """Train a `NeuralRanker` by several processes.

    Args:
        ranker: the ranker; it is fitted in place, and returned. Dropout draws differ between the processes; batch
            normalisation, which looks at a whole batch at once, is refused.
        data: a `RankingData`, or the path of a stored copy, which all processes map and none copies.
        valid: data of the same kind to choose on.
        processes: how many to start on this machine, which share its cores. None: this process is one of those that
            ``torchrun`` started, on one machine or many; all of them call this function alike.
        patience: seconds that a process may let the others wait.
    """
    if not isinstance(ranker, NeuralRanker):
        raise DataError(f"fit_distributed trains a NeuralRanker, not a {type(ranker).__name__}.")
    if ranker.norm == "batch":
        raise DataError("norm='batch' looks at a whole batch, but each process has a part of it; use norm='layer'.")
    if ranker.callbacks:
        raise DataError("callbacks run in this process, but the epochs are made by others; leave them out.")
    check_number("patience", patience, above=0)
    patience = float(patience)
    if processes is None:
        if "RANK" not in os.environ:
            raise DataError("processes=None is for processes that torchrun started; give a number of processes.")
        return _fit_in_group(ranker, data, valid, patience)
    check_whole("processes", processes, 1)
    draft = ranker.drafted()
    cloudpickle = needs("cloudpickle", "cluster", "fit_distributed")
    try:
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
            paths = [_stored(part, Path(folder), name) for name, part in (("train", data), ("valid", valid))]
            Path(folder, "spec").write_bytes(cloudpickle.dumps((ranker, *paths, patience)))
            _launch(Path(folder), processes)
            learnt, messages = pickle.loads(Path(folder, "fitted").read_bytes())
    except (KeyboardInterrupt, SignalException) as problem:
        raise _interruption(problem, processes) from None
    vars(draft).update(learnt)
    ranker.adopt(draft)
    for warning in messages:
        warn_user(warning)
    return ranker


def _stored(data: Any, folder: Path, name: str) -> str | None:
    """Return the path of a stored copy that all processes can map."""
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


# ---- launching ----


def _launch(folder: Path, size: int) -> None:
    """Have the processes started, and wait; if one fails, or a signal comes, the launcher ends all."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=size,
        run_id=folder.name,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        monitor_interval=_LOOK,
        logs_specs=DefaultLogsSpecs(log_dir=str(folder)),
    )
    with _signals_kept():
        try:
            elastic_launch(config, sys.executable)("-c", _WORKER, str(folder), str(os.getpid()))
        except ChildFailedError as problem:
            raise _reason(folder, problem.failures) from None


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the signal handlers that the launcher replaces in the main thread and does not give back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
    before = {getattr(signal, name): signal.getsignal(getattr(signal, name)) for name in names if hasattr(signal, name)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: one that was not installed from Python
                signal.signal(number, handler)


def _reason(folder: Path, failures: Mapping[int, ProcessFailure]) -> ToprankError:
    """Return the error of the first process that failed; the others may fail a moment later because it is gone."""
    for file in sorted(folder.glob("problem-*")):
        kind, _, text = file.read_text().partition("\n")
        if kind in _KINDS:
            return _KINDS[kind](text)
    # The launcher itself ends the others, by SIGTERM or, a while later, by SIGKILL. Among those that failed within the
    # same second or two, one that was killed by another signal did not fail because another was gone.
    began = min(int(failure.timestamp) for failure in failures.values())
    early = {rank: failure.exitcode for rank, failure in failures.items() if int(failure.timestamp) <= began + 1}
    killed = [rank for rank, status in early.items() if status < 0 and status != -signal.SIGTERM]
    rank = (killed or list(early))[0]
    status = early[rank]
    log = _log(folder, rank).read_text(errors="replace").strip().splitlines() if _log(folder, rank).exists() else []
    last_words = f" Its last words: {log[-1][:300]}" if log else ""
    end = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return ClusterError(
        f"Process {rank} of the training {end}; the others were ended, and no model is kept.{last_words}"
    )


def _log(folder: Path, rank: int) -> Path:
    """Return the file of a process's standard error."""
    return folder / f"log-{rank}"


def _interruption(problem: BaseException, size: int) -> BaseException:
    """Return the error for a signal, once all processes are ended; any signal but Ctrl-C's ends this process here."""
    message = f"Training by {size} processes was interrupted; they were ended, and no model is kept."
    if isinstance(problem, SignalException) and problem.sigval != signal.SIGINT:
        signal.raise_signal(problem.sigval)
        return ClusterError(message)
    return KeyboardInterrupt(message)


# ---- one process of the group ----


class GlooGroup:
    """This process's place among those that train one network; see `toprank.rankers.neural.training.Team`."""

    def __init__(self, rank: int, size: int, place: int | None = None) -> None:
        self.rank, self.size = rank, size
        self.place = rank if place is None else place

    def share(self, plan: EpochPlan) -> EpochPlan:
        """Cut every batch where the documents before each process are about equal in number."""
        offsets = plan.queries.offsets
        shares = []
        for first, last in plan.batches:
            marks = np.linspace(offsets[first], offsets[last], self.size + 1)[1:-1]
            cuts = [first, *np.searchsorted(offsets[first:last], marks) + first, last]
            shares.append((int(cuts[self.rank]), int(cuts[self.rank + 1])))
        return plan._replace(batches=shares)

    def add(self, network: nn.Module, loss: float) -> float:
        """Sum every gradient, and behind them the loss, over all processes at once. Gloo adds on the CPU."""
        weights = [weight for weight in network.parameters() if weight.requires_grad]
        grads = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
        finite = torch.tensor([loss if math.isfinite(loss) else math.nan])
        flat = torch.cat([*(grad.reshape(-1).cpu() for grad in grads), finite])
        gloo.all_reduce(flat)
        total = float(flat[-1])
        if not math.isfinite(total):
            raise NotFinite("A score or the loss is not finite.")
        parts = torch.split(flat[:-1], [weight.numel() for weight in weights])
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part.view_as(weight).to(weight.device)
        return total

    def agreed(self, metrics: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Let the first process judge, and tell the others."""
        shared: list[Any] = [None]
        if self.rank == 0:
            with suppress(NotFinite):  # told to all below
                shared = [metrics()]
        gloo.broadcast_object_list(shared)
        if shared[0] is None:
            raise NotFinite("A score is not finite.")
        result: dict[str, float] = shared[0]
        return result


@contextmanager
def _group(patience: float) -> Iterator[GlooGroup]:
    """Join the processes that the launcher started with this one, and leave them at the end."""
    gloo.init_process_group("gloo", timeout=timedelta(seconds=min(patience, _LONGEST)))
    try:
        yield GlooGroup(gloo.get_rank(), gloo.get_world_size(), int(os.environ.get("LOCAL_RANK", gloo.get_rank())))
        gloo.barrier()  # nobody leaves while another still listens
    finally:
        gloo.destroy_process_group()


def _fit_in_group(ranker: NeuralRanker, data: Any, valid: Any, patience: float) -> NeuralRanker:
    """Take part in a training that the launcher started."""
    parts = [read(part) if isinstance(part, str | os.PathLike) else part for part in (data, valid)]
    with _group(patience) as group:
        ranker._team = group
        try:
            return ranker.fit(parts[0], valid=parts[1])
        finally:
            del ranker._team


def work(folder: str, launcher: str) -> None:
    """Be one process of the training that `folder` specifies; `launcher` is the process that started it."""
    status, rank = 1, int(os.environ["RANK"])
    if not Path(folder).exists():  # interrupted as this process started, before the launcher knew of it
        os._exit(status)
    with _log(Path(folder), rank).open("wb") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
    if os.name == "posix":  # elsewhere a process is not told that its parent is gone
        threading.Thread(target=_end_with, args=(int(launcher), Path(folder)), daemon=True).start()
    try:
        status = _trained(Path(folder), rank)
    except Exception:  # noqa: BLE001 - the process that started this one reports the last words
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)  # gloo's threads may abort an orderly exit, though all work is done


def _trained(folder: Path, rank: int) -> int:
    """Train as the folder's specification says; the first process writes what was learnt."""
    ranker, data, valid, patience = pickle.loads((folder / "spec").read_bytes())
    if ranker.threads is None:
        ranker.threads = max(1, available_threads() // int(os.environ["LOCAL_WORLD_SIZE"]))
    try:
        with warnings.catch_warnings(record=True) as records:
            warnings.simplefilter("always", UserWarning)
            _fit_in_group(ranker, data, valid, patience)
    except ToprankError as problem:
        kind = "file" if isinstance(problem, FileError) else "data"
        (folder / f"problem-{rank}").write_text(f"{kind}\n{problem}")
        return 1
    if rank == 0:
        learnt = {name: value for name, value in vars(ranker.as_fitted).items() if is_learnt(name)}
        ours = [record.message for record in records if type(record.message).__module__.startswith("toprank.")]
        (folder / "fitted").write_bytes(pickle.dumps((learnt, ours)))
    return 0


def _end_with(launcher: int, folder: Path) -> None:
    """Wait until the launcher's process is gone, and end this one: nobody needs it any more.

    A launcher that was killed could not remove its temporary folder, so the folder is removed here.
    """
    while os.getppid() == launcher:
        time.sleep(_LOOK)
    if folder.name.startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)
