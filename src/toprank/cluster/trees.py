"""Boosting on a cluster: a trainer on every worker that has partitions, checkpoints, and going on after a loss.

LightGBM's trainers depend on each other: if one is lost, none can go on. They are started again from the last
checkpoint, on the workers that are left. However a start ends, none of its trainers goes on.
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
from toprank.cluster.allreduce import LeftAloneError, free_port
from toprank.cluster.dataset import Placed, check_loss
from toprank.cluster.runner import LostError, Runner, gone
from toprank.cluster.scoring import judged_top, settled_top
from toprank.cluster.work import Whole
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

# Seconds between two looks of a trainer at what the client wants.
_ASK = 0.5
# Seconds between two reports of where the training stands.
_TELL = 1.0
# Seconds that trainers get to notice that they are no longer wanted, before their workers are restarted.
_FAREWELL = 10.0
# Seconds between two looks of the client at the workers.
_LOOK = 0.5
# Words in LightGBM's messages about its connections.
_NETWORK = ("socket", "network", "binding port", "connecting to rank")
# Starts of the trainers, each after a loss, before the training fails.
_RESTARTS = 5
# Seconds that a restarted worker gets to come back, before training goes on without it.
_RETURN = 10.0


class Checkpoint(NamedTuple):
    """The rounds made so far, and what is known after them; at the end, the rounds to keep."""

    trees: str
    rounds: int
    valid: float | None
    history: dict[str, list[float]]
    best: int
    best_value: float | None
    stopped: str = ""
    interrupted: bool = False


class Checkpoints:
    """The last checkpoint, and the client's wish to stop."""

    def __init__(self, name: str, client: Any) -> None:
        distributed = require_extra("distributed", "cluster", "tr.cluster")
        self._note = distributed.Variable(f"{name}-checkpoint", client=client)
        self._round = distributed.Variable(f"{name}-round", client=client)
        self._stop = distributed.Event(f"{name}-stop", client=client)
        self._asked, self._wish, self._posted = 0.0, False, -_TELL

    def post(self, checkpoint: Checkpoint) -> None:
        """Replace the last checkpoint."""
        self._note.set(zlib.compress(pickle.dumps(tuple(checkpoint)), 1))

    def last(self) -> Checkpoint | None:
        """Return the last checkpoint, if any."""
        try:
            return Checkpoint(*pickle.loads(zlib.decompress(self._note.get(timeout="2s"))))
        except TimeoutError:
            return None

    def tell(self, now: Round) -> None:
        """Report where the training stands, about once a second."""
        if now.seconds - self._posted >= _TELL or now.number == now.last:
            self._posted = now.seconds
            self._round.set(now._replace(booster=None))

    def standing(self) -> Round | None:
        """Return where the training stands, if a trainer reported it."""
        try:
            return Round(*self._round.get(timeout=_TELL))
        except OSError:  # no report in time, or no scheduler, which the client notices elsewhere
            return None

    def ask_to_stop(self) -> None:
        """Tell the trainers to end after this round."""
        self._stop.set()

    def stop_wanted(self) -> bool:
        """Whether the client wants to stop; looked up now and then."""
        if time.monotonic() - self._asked > _ASK:
            self._asked, self._wish = time.monotonic(), bool(self._stop.is_set())
        return self._wish

    def clear(self) -> None:
        """Forget everything."""
        self._note.delete()
        self._round.delete()
        self._stop.clear()


class StartSign:
    """One start of the trainers: a sign on the scheduler that stays up as long as the client wants them to go on.

    A trainer that finds it down leaves. So the client can end a trainer without reaching it, even one that is still in
    a queue, and nothing is left behind.
    """

    def __init__(self, name: str, client: Any) -> None:
        self._name, self._client = name, client
        self._sign = self._event("wanted")
        self._asked, self._up = float("-inf"), True

    def _event(self, name: str) -> Any:
        return require_extra("distributed", "cluster", "tr.cluster").Event(f"{self._name}-{name}", client=self._client)

    def open(self) -> None:
        """Put the sign up."""
        self._sign.set()

    def close(self) -> None:
        """Take the sign down."""
        self._sign.clear()

    def wanted(self) -> bool:
        """Whether the sign is up; looked up now and then."""
        if time.monotonic() - self._asked > _ASK:
            self._asked = time.monotonic()
            try:
                self._up = bool(self._sign.is_set())
            except OSError:  # the scheduler is lost, and nobody can receive a model
                self._up = False
        return self._up

    def begin(self, rank: int) -> bool:
        """Report that a trainer has begun; return whether it is still wanted."""
        self._event(str(rank)).set()
        if self.wanted():
            return True
        self._event(str(rank)).clear()  # the client has tidied up already, or is about to
        return False

    def begun(self, rank: int) -> bool:
        """Whether a trainer has begun."""
        with suppress(OSError):  # no scheduler, which the client notices elsewhere
            return bool(self._event(str(rank)).is_set())
        return False

    def forget(self, size: int) -> None:
        """Leave nothing behind on the scheduler."""
        self.close()
        for rank in range(size):
            self._event(str(rank)).clear()


class BoostingPlan(NamedTuple):
    """What is trained; the same for all trainers.

    Attributes:
        ranker: The parameters; it has learned nothing yet.
        tops: The largest labels of the data that are judged, "train" and "valid".
        every: Rounds between two checkpoints.
    """

    ranker: TreeRanker
    loss: Loss | None
    gains: FloatArray
    intercept: FloatArray
    whole: Whole
    n_queries: int
    tops: dict[str, float]
    every: int


class Place(NamedTuple):
    """A trainer's place among the others.

    Attributes:
        machines: LightGBM's addresses of all trainers, in the order of their ranks.
    """

    rank: int
    machines: tuple[str, ...]
    hub: tuple[str, int]
    token: bytes
    checkpoints: str
    attempt: str
    threads: int
    patience: float


def is_desertion(problem: BaseException) -> bool:
    """Whether a trainer failed because it lost the others, or the connection to them."""
    import lightgbm

    text = str(problem).lower()
    theirs = isinstance(problem, lightgbm.basic.LightGBMError) or text.startswith("lightgbm cannot train like this")
    return isinstance(problem, LeftAloneError) or (theirs and any(word in text for word in _NETWORK))


class Trainers:
    """One start of trainers that need each other, each on a worker of its own, by rank; no other start has its name."""

    def __init__(self, runner: Runner, name: str, addresses: Sequence[str]) -> None:
        self.runner, self.name, self.addresses = runner, name, addresses
        self.futures: dict[str, Any] = {}
        self._attempt = StartSign(name, runner.client)
        self._late = dict(enumerate(addresses))
        self._began = self._looked = time.monotonic()

    def start(self, function: Callable[..., Any], args: Iterable[tuple[Any, ...]]) -> None:
        """Start all trainers; `args`: the arguments of each."""
        self._attempt.open()
        for address, own in zip(self.addresses, args, strict=True):
            self.futures[address] = self.runner.submit(function, *own, workers=[address], allow_other_workers=False)
        self._began = time.monotonic()

    def finished(self) -> bool:
        """Whether all are done."""
        return all(future.status == "finished" for future in self.futures.values())

    def look(self) -> None:
        """Raise what a trainer raised; notice one that is gone, or does not begin.

        Raises:
            LostError: the trainers cannot go on, but others may from a checkpoint.
            ClusterError: nobody is there, or a worker is busy with something else.
        """
        own, deserted = self._problems()
        if own:
            raise own[0]
        if deserted:
            raise LostError(str(deserted[0]).strip().partition("\n")[0][:300].rstrip("."))
        if any(future.status in ("cancelled", "lost") for future in self.futures.values()):
            raise LostError("the task of a trainer was canceled")
        if time.monotonic() - self._looked >= _LOOK:
            self._looked = time.monotonic()
            self._check_workers()

    def _problems(self) -> tuple[list[BaseException], list[BaseException]]:
        """Return what trainers raised: problems of their own, and those of losing another trainer."""
        failed = [future for future in self.futures.values() if future.status == "error"]
        problems = [future.exception(timeout=self.runner.patience) for future in failed]
        deserted = [
            problem for problem in problems if is_desertion(problem) or type(problem).__name__ == "KilledWorker"
        ]
        return [problem for problem in problems if problem not in deserted], deserted

    def _check_workers(self) -> None:
        present = self.runner.present() or self.runner.workers()  # workers() waits, and raises if nobody comes
        absent = [a for a, future in self.futures.items() if future.status == "pending" and a not in present]
        if absent:
            raise LostError(f"{', '.join(absent)} went away or fell silent")
        self._late = {rank: address for rank, address in self._late.items() if not self._attempt.begun(rank)}
        if self._late and time.monotonic() - self._began > self.runner.patience:
            raise ClusterError(
                "Trees need all workers that have partitions at the same time, but nothing was begun within "
                f"{self.runner.patience:g} s on {', '.join(self._late.values())}: busy with other tasks, or still "
                "waiting for data. Train again when they are free, or give a longer patience= to "
                "toprank.cluster.connect."
            )

    def end(self, problem: BaseException) -> BaseException:
        """See to it that no trainer goes on, whatever went wrong; return what to raise in the end.

        A trainer that has not begun is canceled, and so never disturbs a worker that is busy with something else.
        Those that have begun leave when they see that nobody wants them; but LightGBM may wait for ever for a trainer
        that is gone, so that its worker must be restarted. (Not after Ctrl-C: then nobody is gone.)
        """
        if self.runner.client.status != "running":
            return problem
        with suppress(OSError):
            self._attempt.close()
        begun = [address for rank, address in enumerate(self.addresses) if self._attempt.begun(rank)]
        self.runner.cancel([future for address, future in self.futures.items() if address not in begun])
        stuck = self._after_farewell(begun)
        trouble = self._restart(stuck) if stuck and not isinstance(problem, KeyboardInterrupt) else None
        own, _ = self._problems()
        self.runner.cancel(list(self.futures.values()))
        if not isinstance(problem, LostError):
            return problem
        return own[0] if own else trouble or problem  # a failed trainer may be heard of after those that lost it

    def _after_farewell(self, begun: Sequence[str]) -> list[str]:
        """Return the workers whose trainers do not leave in time."""
        deadline = time.monotonic() + _FAREWELL
        while True:
            pending = [address for address in begun if self.futures[address].status == "pending"]
            busy = sorted(set(pending) & set(self.runner.present())) if pending else []
            if not busy or time.monotonic() > deadline:
                return busy
            time.sleep(_LOOK / 5)

    def _restart(self, stuck: list[str]) -> ClusterError | None:
        try:
            self.runner.client.restart_workers(stuck, timeout=self.runner.patience, raise_for_error=False)
        except ValueError as problem:
            return ClusterError(
                f"A worker was lost while trees were trained, and the others ({', '.join(stuck)}) still wait for it "
                f"and cannot be restarted ({problem}). Restart them by hand, and train again."
            )
        except (OSError, KeyError):  # they went away by themselves, or nobody answers: the next start will notice
            pass
        return None

    def forget(self) -> None:
        """Leave nothing behind on the scheduler."""
        if self.runner.client.status == "running":
            with suppress(OSError):
                self._attempt.forget(len(self.addresses))


class WorkerLostWarning(UserWarning):
    """A worker was lost while trees were trained; training went on from a checkpoint."""


@train_trees.register
def boost(data: Placed, ranker: TreeRanker, valid: Any) -> tuple[InitialState, BoostingResult]:
    """Train trees on the partitions' workers; see `toprank.rankers.trees.training.train_trees`."""
    check_features(ranker, data.n_features)
    if ranker.callbacks:
        raise DataError(
            "callbacks run in this process, but on a cluster the rounds are made elsewhere; leave them out."
        )
    if ranker.min_data_in_leaf == 0:
        raise DataError(
            "On a cluster LightGBM only estimates how many documents a leaf has, and fails where that is none; "
            "min_data_in_leaf must be at least 1."
        )
    if valid is not None and not isinstance(valid, Placed):
        raise DataError("On a cluster the validation data must be there too; give valid= to Cluster.fit.")
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


def _plan(data: Placed, ranker: TreeRanker, valid: Placed | None) -> BoostingPlan:
    by_grade = ranker.outputs == "grades" or built_in(ranker.loss) is not None
    grades, counts = data.grades() if by_grade else (np.zeros(0), np.zeros(0))
    loss, gains = loss_on_labels(ranker, grades)
    whole, intercept = data.whole(), np.zeros(1)
    if loss is not None:
        check_loss(loss, data.facts)
        bound = data.rows.then(work.bound_rows, loss, whole)

        def value(constant: float) -> float:
            return float(bound.total(work.constant_value, constant)[0])

        intercept = first_intercept(ranker, loss, gains, grades, counts, value)
    tops = {}
    if ranker.boosting != "dart":
        largest = data.rows.each(judged_top, ranker.metric, ranker.convention)
        tops = {} if None in largest else {"train": max(largest)}
    if valid is not None:
        tops["valid"] = max(valid.rows.each(settled_top, Convention.from_name(ranker.convention).unjudged))
        judge = valid.judge(ranker.metric, ranker.convention, None)
        judge.value(_zeros)  # refuse now, not after the first tree
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
        every=data.runner.checkpoint,
    )


def _zeros(X: Any) -> Any:
    return np.zeros(X.shape[0])


class _Training:
    """Trainers started, watched, and started again."""

    def __init__(self, data: Placed, valid: Placed | None, plan: BoostingPlan) -> None:
        self.data, self.valid, self.plan, self.runner = data, valid, plan, data.runner
        self.name, self.trainers, self.starts = f"toprank-{secrets.token_hex(8)}", 1, 0
        self.checkpoints = Checkpoints(self.name, self.runner.client)
        self.progress = TrainingProgress(plan.ranker.metric) if plan.ranker.verbose else None

    def run(self) -> Checkpoint:
        """Train until all rounds are made, and return them."""
        state: Checkpoint | None = None
        rounds_of_losses: list[int] = []
        for _ in range(_RESTARTS):
            try:
                outcome = self._rounds(state)
            except LostError as problem:
                reason = f" ({problem})" if str(problem) else ""
                self._check_connection()
                state = self.checkpoints.last() or state
                rounds = 0 if state is None else state.rounds
                rounds_of_losses.append(rounds)
                warn_user(
                    f"A worker was lost while trees were trained{reason}; training goes on from round {rounds}.",
                    WorkerLostWarning,
                )
                self._place_anew()
                continue
            losses = "".join(f" A worker was lost; training went on from round {n}." for n in rounds_of_losses)
            return outcome._replace(stopped=outcome.stopped + losses)
        raise ClusterError(
            f"Workers were lost {_RESTARTS} times while trees were trained, the last time so{reason}. Look at the "
            "workers' logs; most often they lack memory."
        )

    def _place_anew(self) -> None:
        """Spread the partitions over the workers, after waiting a while for one that is being restarted."""
        deadline = time.monotonic() + min(_RETURN, self.runner.patience)
        while len(self.runner.workers()) < self.trainers and time.monotonic() < deadline:
            time.sleep(_LOOK)
        for placed in (self.data, self.valid):
            if placed is not None:
                placed.place_evenly()

    def forget(self) -> None:
        """Leave nothing behind on the scheduler."""
        if self.runner.client.status == "running":
            self.checkpoints.clear()

    def _rounds(self, state: Checkpoint | None) -> Checkpoint:
        """Make all rounds that are left, by trainers on the workers that have the rows now."""
        self.data.rows.each(_here)
        if self.valid is not None:
            self.valid.rows.each(_here)
        shares = self._shares()
        addresses, self.trainers = list(shares), len(shares)
        hub, machines = self._doors(addresses)
        token = secrets.token_bytes(16)
        threads = self.runner.threads()
        self.starts += 1
        from toprank.cluster.tree_worker import train_share  # which imports this module

        trainers = Trainers(self.runner, f"{self.name}-{self.starts}", addresses)
        args = []
        for rank, (address, (rows, held_out)) in enumerate(shares.items()):
            own = self.plan.ranker.threads or threads[address]
            place = Place(
                rank=rank,
                machines=machines,
                hub=hub,
                token=token,
                checkpoints=self.name,
                attempt=trainers.name,
                threads=own,
                patience=self.runner.patience,
            )
            args.append((rows, held_out, self.plan, place, state))
        try:
            trainers.start(train_share, args)
            return self._watched(trainers)
        except BaseException as problem:  # noqa: BLE001 - after any failure no trainer may go on
            raise trainers.end(problem) from None
        finally:
            trainers.forget()

    def _doors(self, addresses: list[str]) -> tuple[tuple[str, int], tuple[str, ...]]:
        """Return where the first trainer listens for the others, and LightGBM on each; each machine is asked once."""
        hosts = [str(urlparse(address).hostname) for address in addresses]
        for host, address in zip(hosts, addresses, strict=True):
            if ":" in host and len(addresses) > 1:
                raise ClusterError(
                    f"The worker {address} has an IPv6 address, but LightGBM's trainers find each other by IPv4 only. "
                    "Start the workers with an IPv4 address as their host, or train on one worker."
                )
        workers = dict(zip(hosts, addresses, strict=True))
        free = self.runner.results([
            self.runner.submit(free_port, hosts.count(host) + 1, workers=[address]) for host, address in workers.items()
        ])  # fmt: skip
        ports = dict(zip(workers, free, strict=True))
        hub = (hosts[0], ports[hosts[0]].pop())
        return hub, tuple(f"{host}:{ports[host].pop()}" for host in hosts)

    def _shares(self) -> dict[str, tuple[list[Any], list[Any]]]:
        """Return the partitions of each worker, in order; validation partitions go where a trainer is."""
        shares: dict[str, tuple[list[Any], list[Any]]] = {}
        for future, home in zip(*self.data.rows.placement(), strict=True):
            shares.setdefault(home, ([], []))[0].append(future)
        if self.valid is not None:
            trainers = list(shares)
            for number, (future, home) in enumerate(zip(*self.valid.rows.placement(), strict=True)):
                shares[home if home in shares else trainers[number % len(trainers)]][1].append(future)
        return shares

    def _watched(self, trainers: Trainers) -> Checkpoint:
        """Wait for the trainers; the first Ctrl-C asks them to stop after the round."""
        stopping = False
        while True:
            try:
                self._look(trainers)
                if self.progress is not None and (now := self.checkpoints.standing()) is not None:
                    self.progress(now)
                if trainers.finished():
                    outcome: Checkpoint = self.runner.results(list(trainers.futures.values()))[0]
                    return outcome
                time.sleep(_LOOK / 5)
            except KeyboardInterrupt:
                if stopping:
                    raise
                stopping = True
                self.checkpoints.ask_to_stop()

    def _look(self, trainers: Trainers) -> None:
        """Raise what a trainer raised; notice one that is gone."""
        self._check_connection()
        trainers.look()

    def _check_connection(self) -> None:
        """Raise if the scheduler is gone; while Dask reconnects, wait."""
        client, deadline = self.runner.client, time.monotonic() + self.runner.patience
        while client.status == "connecting" and time.monotonic() < deadline:
            time.sleep(_LOOK)
        if client.status != "running":
            raise gone()


def _here(rows: work.WorkerRows) -> bool:
    """Do nothing but have the rows made."""
    return rows.data is not None
