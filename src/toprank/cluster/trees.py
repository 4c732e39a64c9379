"""Distributed boosting: a trainer on every worker with partitions, checkpoints, and recovery after a loss.

LightGBM's trainers depend on each other: if one is lost, none can continue. They are restarted from the last checkpoint
on the remaining workers. However an attempt ends, none of its trainers keeps running.
"""

from __future__ import annotations

import pickle
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlparse

import numpy as np

from toprank.cluster import work
from toprank.cluster.allreduce import PeerLostError, free_port
from toprank.cluster.dataset import DistributedData, check_loss
from toprank.cluster.runner import LostError, Runner, gone
from toprank.cluster.scoring import max_label, valid_max_label
from toprank.cluster.work import GlobalFacts
from toprank.compute import FloatArray
from toprank.errors import ClusterError, DataError, require_extra, warn_user
from toprank.losses import Loss
from toprank.metrics.conventions import Convention
from toprank.rankers.early_stopping import Round, TrainingProgress
from toprank.rankers.trees.parameters import built_in, check_features
from toprank.rankers.trees.ranker import TreeRanker
from toprank.rankers.trees.training import (
    BoostingResult,
    InitialState,
    finished,
    first_intercept,
    loss_on_labels,
    train_trees,
)

# Seconds between two checks of a trainer whether it should continue.
_FLAG_SECONDS = 0.5
# Seconds between two progress reports.
_REPORT_SECONDS = 1.0
# Seconds for trainers to notice that they should exit, before their workers are restarted.
_EXIT_SECONDS = 10.0
# Seconds between two checks of the workers by the client.
_POLL_SECONDS = 0.5
# Words in LightGBM's messages about its connections.
_NETWORK = ("socket", "network", "binding port", "connecting to rank")
# Maximum number of attempts, each after a loss, before the training fails.
_MAX_ATTEMPTS = 5
# Seconds to wait for a restarted worker before training continues without it.
_RESTART_SECONDS = 10.0


class Checkpoint(NamedTuple):
    """The completed rounds, and the training state after them; at the end, the rounds to keep."""

    trees: str
    rounds: int
    valid: float | None
    history: dict[str, list[float]]
    best: int
    best_value: float | None
    stopped: str = ""
    interrupted: bool = False


class Checkpoints:
    """The last checkpoint, the progress report, and the client's stop request, stored on the scheduler."""

    def __init__(self, name: str, client: Any) -> None:
        distributed = require_extra("distributed", "cluster", "tr.cluster")
        self._note = distributed.Variable(f"{name}-checkpoint", client=client)
        self._round = distributed.Variable(f"{name}-round", client=client)
        self._stop = distributed.Event(f"{name}-stop", client=client)
        self._asked, self._wish, self._posted = 0.0, False, -_REPORT_SECONDS

    def post(self, checkpoint: Checkpoint) -> None:
        """Replace the last checkpoint."""
        self._note.set(zlib.compress(pickle.dumps(tuple(checkpoint)), 1))

    def last(self) -> Checkpoint | None:
        """Return the last checkpoint, if any."""
        try:
            return Checkpoint(*pickle.loads(zlib.decompress(self._note.get(timeout="2s"))))
        except TimeoutError:
            return None

    def report(self, now: Round) -> None:
        """Report progress, about once a second."""
        if now.seconds - self._posted >= _REPORT_SECONDS or now.number == now.last:
            self._posted = now.seconds
            self._round.set(now._replace(booster=None))

    def last_report(self) -> Round | None:
        """Return the last progress report, if any."""
        try:
            return Round(*self._round.get(timeout=_REPORT_SECONDS))
        except OSError:  # no report in time, or no scheduler, which the client detects elsewhere
            return None

    def request_stop(self) -> None:
        """Ask the trainers to stop after this round."""
        self._stop.set()

    def is_stop_requested(self) -> bool:
        """Return whether the client asked to stop; polled from time to time."""
        if time.monotonic() - self._asked > _FLAG_SECONDS:
            self._asked, self._wish = time.monotonic(), bool(self._stop.is_set())
        return self._wish

    def clear(self) -> None:
        """Delete everything from the scheduler."""
        self._note.delete()
        self._round.delete()
        self._stop.clear()


class RunFlag:
    """A flag on the scheduler that is set while the client wants one attempt of the trainers to continue.

    A trainer exits when it finds the flag cleared. So the client can end a trainer that it cannot reach, even one that
    is still queued, and nothing is left behind.
    """

    def __init__(self, name: str, client: Any) -> None:
        self._name, self._client = name, client
        self._sign = self._event("wanted")
        self._asked, self._up = float("-inf"), True

    def _event(self, name: str) -> Any:
        return require_extra("distributed", "cluster", "tr.cluster").Event(f"{self._name}-{name}", client=self._client)

    def open(self) -> None:
        """Set the flag."""
        self._sign.set()

    def close(self) -> None:
        """Clear the flag."""
        self._sign.clear()

    def wanted(self) -> bool:
        """Return whether the flag is set; polled from time to time."""
        if time.monotonic() - self._asked > _FLAG_SECONDS:
            self._asked = time.monotonic()
            try:
                self._up = bool(self._sign.is_set())
            except OSError:  # the scheduler is lost, so no model can be returned
                self._up = False
        return self._up

    def begin(self, rank: int) -> bool:
        """Report that a trainer has begun; return whether it is still wanted."""
        self._event(str(rank)).set()
        if self.wanted():
            return True
        self._event(str(rank)).clear()  # the client has cleaned up already, or is about to
        return False

    def begun(self, rank: int) -> bool:
        """Return whether a trainer has begun."""
        with suppress(OSError):  # no scheduler, which the client detects elsewhere
            return bool(self._event(str(rank)).is_set())
        return False

    def forget(self, size: int) -> None:
        """Delete everything from the scheduler."""
        self.close()
        for rank in range(size):
            self._event(str(rank)).clear()


class BoostingPlan(NamedTuple):
    """Parameters of the training; the same for all trainers.

    Attributes:
        ranker: Parameters of the ranker, which is not fitted.
        tops: Largest label of the evaluated data, "train" and "valid".
        checkpoint_every: Number of rounds between two checkpoints.
    """

    ranker: TreeRanker
    loss: Loss | None
    gains: FloatArray
    intercept: FloatArray
    whole: GlobalFacts
    n_queries: int
    tops: dict[str, float]
    checkpoint_every: int


class TrainerConfig(NamedTuple):
    """Settings of one trainer.

    Attributes:
        machines: LightGBM's addresses of all trainers, in rank order.
    """

    rank: int
    machines: tuple[str, ...]
    hub: tuple[str, int]
    token: bytes
    checkpoints: str
    attempt: str
    threads: int
    timeout: float


def is_peer_loss(problem: BaseException) -> bool:
    """Return whether a trainer failed because it lost another one, or the connection to it."""
    import lightgbm

    text = str(problem).lower()
    refusal = "lightgbm cannot train with these settings"  # see `toprank.rankers.trees.training`
    theirs = isinstance(problem, lightgbm.basic.LightGBMError) or text.startswith(refusal)
    return isinstance(problem, PeerLostError) or (theirs and any(word in text for word in _NETWORK))


class Trainers:
    """One attempt of trainers that depend on each other, one per worker, by rank; each attempt has a unique name."""

    def __init__(self, runner: Runner, name: str, addresses: Sequence[str]) -> None:
        self.runner, self.name, self.addresses = runner, name, addresses
        self.futures: dict[str, Any] = {}
        self._attempt = RunFlag(name, runner.client)
        self._late = dict(enumerate(addresses))
        self._began = self._looked = time.monotonic()

    def start(self, function: Callable[..., Any], args: Iterable[tuple[Any, ...]]) -> None:
        """Start all trainers; `args` contains the arguments of each."""
        self._attempt.open()
        for address, own in zip(self.addresses, args, strict=True):
            self.futures[address] = self.runner.submit(function, *own, workers=[address], allow_other_workers=False)
        self._began = time.monotonic()

    def finished(self) -> bool:
        """Return whether all are done."""
        return all(future.status == "finished" for future in self.futures.values())

    def look(self) -> None:
        """Raise the error of a trainer; detect trainers that are lost or do not begin.

        Raises:
            LostError: the trainers cannot continue, but new ones can resume from a checkpoint.
            ClusterError: all workers are gone, or a worker is busy with other tasks.
        """
        own, deserted = self._problems()
        if own:
            raise own[0]
        if deserted:
            raise LostError(str(deserted[0]).strip().partition("\n")[0][:300].rstrip("."))
        if any(future.status in ("cancelled", "lost") for future in self.futures.values()):
            raise LostError("the task of a trainer was canceled")
        if time.monotonic() - self._looked >= _POLL_SECONDS:
            self._looked = time.monotonic()
            self._check_workers()

    def _problems(self) -> tuple[list[BaseException], list[BaseException]]:
        """Return the trainers' own errors, and the errors caused by the loss of another trainer."""
        failed = [future for future in self.futures.values() if future.status == "error"]
        problems = [future.exception(timeout=self.runner.timeout) for future in failed]
        deserted = [
            problem for problem in problems if is_peer_loss(problem) or type(problem).__name__ == "KilledWorker"
        ]
        return [problem for problem in problems if problem not in deserted], deserted

    def _check_workers(self) -> None:
        # workers() waits, and raises an error if there is none
        present = self.runner.present() or self.runner.workers()
        absent = [a for a, future in self.futures.items() if future.status == "pending" and a not in present]
        if absent:
            raise LostError(f"{', '.join(absent)} exited or stopped responding")
        self._late = {rank: address for rank, address in self._late.items() if not self._attempt.begun(rank)}
        if self._late and time.monotonic() - self._began > self.runner.timeout:
            raise ClusterError(
                "Training trees needs all workers with partitions at the same time, but no trainer began within "
                f"{self.runner.timeout:g} s on {', '.join(self._late.values())}: busy with other tasks, or waiting "
                "for data. Train again when they are free, or pass a longer timeout= to toprank.cluster.connect."
            )

    def end(self, problem: BaseException) -> BaseException:
        """Ensure that no trainer continues after a failure; return the error to raise.

        A trainer that has not begun is canceled, and so never disturbs a worker that is busy with other tasks. Those
        that have begun exit when the flag is cleared; but LightGBM may wait forever for a lost trainer, so its worker
        must be restarted (except after Ctrl-C, when no trainer is lost).
        """
        if self.runner.client.status != "running":
            return problem
        with suppress(OSError):
            self._attempt.close()
        begun = [address for rank, address in enumerate(self.addresses) if self._attempt.begun(rank)]
        self.runner.cancel([future for address, future in self.futures.items() if address not in begun])
        stuck = self._stragglers(begun)
        trouble = self._restart(stuck) if stuck and not isinstance(problem, KeyboardInterrupt) else None
        own, _ = self._problems()
        self.runner.cancel(list(self.futures.values()))
        if not isinstance(problem, LostError):
            return problem
        # the error of a failed trainer may arrive after the errors of its peers
        return own[0] if own else trouble or problem

    def _stragglers(self, begun: Sequence[str]) -> list[str]:
        """Return the workers whose trainers do not exit in time."""
        deadline = time.monotonic() + _EXIT_SECONDS
        while True:
            pending = [address for address in begun if self.futures[address].status == "pending"]
            busy = sorted(set(pending) & set(self.runner.present())) if pending else []
            if not busy or time.monotonic() > deadline:
                return busy
            time.sleep(_POLL_SECONDS / 5)

    def _restart(self, stuck: list[str]) -> ClusterError | None:
        try:
            self.runner.client.restart_workers(stuck, timeout=self.runner.timeout, raise_for_error=False)
        except ValueError as problem:
            return ClusterError(
                f"A worker was lost during boosting, and the others ({', '.join(stuck)}) still wait for it and cannot "
                f"be restarted ({problem}). Restart them manually, and train again."
            )
        # The workers exited by themselves, or do not reply: the next attempt will detect it.
        except (OSError, KeyError):
            pass
        return None

    def forget(self) -> None:
        """Delete everything from the scheduler."""
        if self.runner.client.status == "running":
            with suppress(OSError):
                self._attempt.forget(len(self.addresses))


class WorkerLostWarning(UserWarning):
    """A worker was lost during boosting; training resumed from a checkpoint."""


@train_trees.register
def boost(data: DistributedData, ranker: TreeRanker, valid: Any) -> tuple[InitialState, BoostingResult]:
    """Train trees on the partitions' workers; see `toprank.rankers.trees.training.train_trees`."""
    check_features(ranker, data.n_features)
    if ranker.callbacks:
        raise DataError("callbacks run in this process, but the rounds run on the cluster; leave them out.")
    if ranker.min_data_in_leaf == 0:
        raise DataError(
            "On a cluster LightGBM estimates the number of documents in a leaf, and fails if the estimate is 0; "
            "min_data_in_leaf must be at least 1."
        )
    if valid is not None and not isinstance(valid, DistributedData):
        raise DataError("On a cluster the validation data must be distributed too; pass valid= to Cluster.fit.")
    plan = _plan(data, replace(ranker), valid)
    training = _Training(data, valid, plan)
    try:
        outcome = training.run()
    finally:
        training.forget()
    booster = finished(outcome.trees, outcome.rounds)
    names = ("", "") if valid is None else (str(ranker.metric), Convention.from_name(ranker.convention).name)
    result = (booster, outcome.rounds, outcome.valid, *names, outcome.history, outcome.stopped, outcome.interrupted)
    return InitialState(plan.gains, plan.intercept, None, None), BoostingResult(*result)


def _plan(data: DistributedData, ranker: TreeRanker, valid: DistributedData | None) -> BoostingPlan:
    by_grade = ranker.outputs == "grades" or built_in(ranker.loss) is not None
    grades, counts = data.grades() if by_grade else (np.zeros(0), np.zeros(0))
    loss, gains = loss_on_labels(ranker, grades)
    whole, intercept = data.global_facts(), np.zeros(1)
    if loss is not None:
        check_loss(loss, data.summaries)
        bound = data.rows.then(work.bound_rows, loss, whole)

        def value(constant: float) -> float:
            return float(bound.total(work.constant_value, constant)[0])

        intercept = first_intercept(ranker, loss, gains, grades, counts, value)
    tops = {}
    if ranker.boosting != "dart":
        largest = data.rows.each(valid_max_label, ranker.metric, ranker.convention)
        tops = {} if None in largest else {"train": max(largest)}
    if valid is not None:
        tops["valid"] = max(valid.rows.each(max_label, Convention.from_name(ranker.convention).unjudged))
        judge = valid.judge(ranker.metric, ranker.convention, None)
        judge.value(_zeros)  # fail now, not after the first tree
        if ranker.early_stopping is not None:
            judge.check()
    return BoostingPlan(
        ranker=ranker,
        loss=loss,
        gains=gains,
        intercept=intercept,
        whole=whole,
        n_queries=data.n_queries,
        tops=tops,
        checkpoint_every=data.runner.checkpoint_every,
    )


def _zeros(X: Any) -> Any:
    return np.zeros(X.shape[0])


class _Training:
    """Attempts of the trainers, which are started, monitored, and restarted."""

    def __init__(self, data: DistributedData, valid: DistributedData | None, plan: BoostingPlan) -> None:
        self.data, self.valid, self.plan, self.runner = data, valid, plan, data.runner
        self.name, self.trainers, self.starts = f"toprank-{secrets.token_hex(8)}", 1, 0
        self.checkpoints = Checkpoints(self.name, self.runner.client)
        self.progress = TrainingProgress(plan.ranker.metric) if plan.ranker.verbose else None

    def run(self) -> Checkpoint:
        """Train until all rounds are completed, and return them."""
        state: Checkpoint | None = None
        rounds_of_losses: list[int] = []
        for _ in range(_MAX_ATTEMPTS):
            try:
                outcome = self._rounds(state)
            except LostError as problem:
                reason = f" ({problem})" if str(problem) else ""
                self._check_connection()
                state = self.checkpoints.last() or state
                rounds = 0 if state is None else state.rounds
                rounds_of_losses.append(rounds)
                warn_user(
                    f"A worker was lost during boosting{reason}; training resumes from round {rounds}.",
                    WorkerLostWarning,
                )
                self._redistribute()
                continue
            losses = "".join(f" A worker was lost; training resumed from round {n}." for n in rounds_of_losses)
            return outcome._replace(stopped=outcome.stopped + losses)
        raise ClusterError(
            f"Workers were lost {_MAX_ATTEMPTS} times during boosting, the last time{reason}. Check the workers' "
            "logs; most often they lack memory."
        )

    def _redistribute(self) -> None:
        """Redistribute the partitions over the workers, after waiting a while for one that restarts."""
        deadline = time.monotonic() + min(_RESTART_SECONDS, self.runner.timeout)
        while len(self.runner.workers()) < self.trainers and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        for placed in (self.data, self.valid):
            if placed is not None:
                placed.redistribute()

    def forget(self) -> None:
        """Delete everything from the scheduler."""
        if self.runner.client.status == "running":
            self.checkpoints.clear()

    def _rounds(self, state: Checkpoint | None) -> Checkpoint:
        """Run the remaining rounds, with trainers on the workers that hold the rows."""
        self.data.rows.each(_load_rows)
        if self.valid is not None:
            self.valid.rows.each(_load_rows)
        shares = self._shares()
        addresses, self.trainers = list(shares), len(shares)
        hub, machines = self._addresses(addresses)
        token = secrets.token_bytes(16)
        threads = self.runner.threads()
        self.starts += 1
        from toprank.cluster.tree_worker import train_share  # which imports this module

        trainers = Trainers(self.runner, f"{self.name}-{self.starts}", addresses)
        args = []
        for rank, (address, (rows, held_out)) in enumerate(shares.items()):
            own = self.plan.ranker.threads or threads[address]
            place = TrainerConfig(
                rank=rank,
                machines=machines,
                hub=hub,
                token=token,
                checkpoints=self.name,
                attempt=trainers.name,
                threads=own,
                timeout=self.runner.timeout,
            )
            args.append((rows, held_out, self.plan, place, state))
        try:
            trainers.start(train_share, args)
            return self._wait(trainers)
        except BaseException as problem:  # noqa: BLE001 - after any failure no trainer may go on
            raise trainers.end(problem) from None
        finally:
            trainers.forget()

    def _addresses(self, addresses: list[str]) -> tuple[tuple[str, int], tuple[str, ...]]:
        """Return the address where the first trainer listens, and LightGBM's addresses; each machine is asked once."""
        hosts = [str(urlparse(address).hostname) for address in addresses]
        for host, address in zip(hosts, addresses, strict=True):
            if ":" in host and len(addresses) > 1:
                raise ClusterError(
                    f"The worker {address} has an IPv6 address, but LightGBM's trainers support only IPv4. Start the "
                    "workers with an IPv4 address as their host, or train on one worker."
                )
        workers = dict(zip(hosts, addresses, strict=True))
        free = self.runner.results([
            self.runner.submit(free_port, hosts.count(host) + 1, workers=[address]) for host, address in workers.items()
        ])  # fmt: skip
        ports = dict(zip(workers, free, strict=True))
        hub = (hosts[0], ports[hosts[0]].pop())
        return hub, tuple(f"{host}:{ports[host].pop()}" for host in hosts)

    def _shares(self) -> dict[str, tuple[list[Any], list[Any]]]:
        """Return the partitions of each worker, in order; validation partitions go to workers with a trainer."""
        shares: dict[str, tuple[list[Any], list[Any]]] = {}
        for future, home in zip(*self.data.rows.placement(), strict=True):
            shares.setdefault(home, ([], []))[0].append(future)
        if self.valid is not None:
            trainers = list(shares)
            for number, (future, home) in enumerate(zip(*self.valid.rows.placement(), strict=True)):
                shares[home if home in shares else trainers[number % len(trainers)]][1].append(future)
        return shares

    def _wait(self, trainers: Trainers) -> Checkpoint:
        """Wait for the trainers; the first Ctrl-C asks them to stop after the round."""
        stopping = False
        while True:
            try:
                self._look(trainers)
                if self.progress is not None and (now := self.checkpoints.last_report()) is not None:
                    self.progress(now)
                if trainers.finished():
                    outcome: Checkpoint = self.runner.results(list(trainers.futures.values()))[0]
                    return outcome
                time.sleep(_POLL_SECONDS / 5)
            except KeyboardInterrupt:
                if stopping:
                    raise
                stopping = True
                self.checkpoints.request_stop()

    def _look(self, trainers: Trainers) -> None:
        """Raise the error of a trainer, or an error if one is lost."""
        self._check_connection()
        trainers.look()

    def _check_connection(self) -> None:
        """Raise an error if the scheduler is lost; wait while Dask reconnects."""
        client, deadline = self.runner.client, time.monotonic() + self.runner.timeout
        while client.status == "connecting" and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if client.status != "running":
            raise gone()


def _load_rows(rows: work.WorkerRows) -> bool:
    """Load the rows; used only for this effect."""
    return rows.data is not None
