"""Trainers without a cluster: meetings that end when nobody wants them, and what is said of trainers that failed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from toprank.cluster.allreduce import AllReduce, PeerLostError, free_port
from toprank.cluster.runner import LostError
from toprank.errors import ClusterError, DataError, FileError

pytest.importorskip("distributed")
pytest.importorskip("lightgbm")

from toprank.cluster import trees
from toprank.cluster.trees import Trainers, WorkerLostWarning, _Training, is_peer_loss

WAIT = 60
"""Seconds that no test needs, but that a busy machine may take."""


def here():
    (port,) = free_port()
    return "127.0.0.1", port


# ---- meetings ----


@pytest.mark.parametrize("frozen", [0, 1])
def test_who_never_answers_is_given_up_with_the_training(frozen):
    """A process that is stopped keeps its connections; the client sees it, and takes down what the others look at."""
    address, up = here(), threading.Event()
    up.set()
    with ThreadPoolExecutor(2) as pool:
        met = [pool.submit(AllReduce, rank, 2, address, b"secret", WAIT, up.is_set) for rank in range(2)]
        with met[0].result(WAIT) as first, met[1].result(WAIT) as second:
            waiting = pool.submit((second, first)[frozen].sum, np.ones(3))
            up.clear()
            with pytest.raises(PeerLostError, match="the training was given up"):
                waiting.result(WAIT)


@pytest.mark.parametrize("rank", [0, 1])
def test_who_never_comes_is_given_up_with_the_training(rank):
    with pytest.raises(PeerLostError, match="the training was given up"):
        AllReduce(rank, 2, here(), b"secret", 10.0 * WAIT, lambda: False)


def test_those_who_came_are_told_when_others_do_not_come():
    address, up = here(), threading.Event()
    up.set()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(AllReduce, 0, 3, address, b"secret", WAIT, up.is_set)
        with pool.submit(AllReduce, 1, 3, address, b"secret", WAIT).result(WAIT) as second:
            waiting = pool.submit(second.sum, np.ones(1))
            up.clear()
            with pytest.raises(PeerLostError, match="given up"):
                first.result(WAIT)
            with pytest.raises(PeerLostError, match="a trainer is gone"):
                waiting.result(WAIT)


def test_a_sum_comes_through_in_pieces():
    """Words that arrive byte by byte, with a pause longer than a look, are put together."""
    address, numbers, paused = here(), np.arange(3.0), threading.Event()

    def wanted():
        paused.set()
        return True

    with ThreadPoolExecutor(2) as pool:
        all_reduce = pool.submit(AllReduce, 0, 2, address, b"secret", WAIT, wanted)
        line = pool.submit(AllReduce, 1, 2, address, b"secret", WAIT).result(WAIT).peers[0]
        with all_reduce.result(WAIT) as first, line:
            total = pool.submit(first.sum, numbers)
            line.sendall(numbers.tobytes()[:5])
            paused.clear()
            assert paused.wait(WAIT)
            line.sendall(numbers.tobytes()[5:])
            np.testing.assert_array_equal(total.result(WAIT), 2 * numbers)


def test_one_trainer_needs_no_door():
    with AllReduce(0, 1, ("not an address", 0), b"secret") as all_reduce:
        np.testing.assert_array_equal(all_reduce.sum(np.arange(3.0)), np.arange(3.0))


# ---- trainers that fail ----


def test_whose_fault_it_was():
    assert is_peer_loss(PeerLostError("a trainer is gone"))
    for said in ("Socket recv error, Connection reset by peer (code: 104)", "Binding port 12345 failed"):
        assert is_peer_loss(DataError(f"LightGBM cannot train with these settings: {said}."))
    assert not is_peer_loss(DataError("LightGBM cannot train with these settings: bad categories."))
    assert not is_peer_loss(DataError("network/part.0.parquet lacks the column 'socket'."))
    assert not is_peer_loss(FileError("/network/data cannot be read."))


class Future:
    """A task that is pending until it is told to leave, and how it ends then."""

    def __init__(self, problem=None, status="error"):
        self.problem, self.status = problem, status

    def exception(self, timeout):
        return self.problem


class Attempt:
    """The sign on a scheduler; taking it down ends the tasks of those that have begun."""

    def __init__(self, begun, last_words=()):
        self.ranks, self.last_words, self.up = begun, last_words, True

    def begun(self, rank):
        return rank in self.ranks

    def close(self):
        self.up = False
        for future, problem in self.last_words:
            future.status, future.problem = "error", problem


class Runner:
    """A cluster that remembers what it was asked for."""

    def __init__(self, workers, timeout=1e9):
        self.timeout, self.canceled, self.restarted = timeout, [], []
        self.client = SimpleNamespace(status="running", restart_workers=self._restart)
        self.present = self.workers = lambda: workers

    def cancel(self, futures):
        self.canceled += futures
        for future in futures:
            if future.status == "pending":
                future.status = "cancelled"

    def _restart(self, addresses, **_):
        self.restarted += addresses


@pytest.fixture
def trainers(monkeypatch):
    """Trainers on "a", "b", "c", with their futures and those that have begun."""

    def made(futures, begun=(0, 1, 2), last_words=(), timeout=1e9):
        one = Trainers(Runner(["a", "b", "c"], timeout), "start", ["a", "b", "c"])
        one.futures = dict(zip("abc", futures, strict=True))
        one._attempt = Attempt(begun, last_words)
        return one

    monkeypatch.setattr("toprank.cluster.trees._POLL_SECONDS", 0.0)
    return made


def test_what_a_trainer_said_is_passed_on(trainers):
    alone = trainers([Future(PeerLostError("a trainer is gone: no route to host")), *[Future(status="pending")] * 2])
    with pytest.raises(LostError, match="a trainer is gone: no route to host"):
        alone.look()
    own = trainers([Future(PeerLostError("alone")), Future(FileError("The disk is full.")), Future(status="pending")])
    with pytest.raises(FileError, match="The disk is full"):
        own.look()


def test_the_reason_is_found_though_it_comes_last(trainers):
    """Those that are left may be heard of before the one that failed."""
    slow = Future(status="pending")
    some = trainers(
        [Future(PeerLostError("alone")), slow, Future(status="finished")], last_words=[(slow, DataError("odd"))]
    )
    with pytest.raises(LostError) as first:
        some.look()
    assert str(some.end(first.value)) == "odd"
    assert not some.runner.restarted


def test_only_workers_that_wait_for_a_trainer_are_restarted(trainers, monkeypatch):
    monkeypatch.setattr("toprank.cluster.trees._EXIT_SECONDS", 0.0)
    for problem, restarted in ((LostError("x"), ["b"]), (KeyboardInterrupt(), [])):
        stuck, queued = Future(status="pending"), Future(status="pending")
        some = trainers([Future(PeerLostError("alone")), stuck, queued], begun=(0, 1))
        assert some.end(problem) is problem
        assert some.runner.restarted == restarted
        assert some.runner.canceled[0] is queued
        assert not some._attempt.up


def test_a_worker_that_is_silent_or_gone_is_lost(trainers):
    some = trainers([Future(status="pending"), Future(status="pending"), Future(status="finished")])
    some.look()
    some.runner.present = lambda: ["a"]
    with pytest.raises(LostError, match="b exited"):
        some.look()


def test_who_does_not_begin_is_named(trainers):
    waiting = [Future(status="pending") for _ in range(3)]
    trainers(waiting, begun=(0, 2)).look()
    trainers(waiting, timeout=-1.0).look()
    with pytest.raises(ClusterError, match=r"within -1 s on b: busy with other tasks"):
        trainers(waiting, begun=(0, 2), timeout=-1.0).look()


def training(**parts):
    made = _Training.__new__(_Training)
    vars(made).update(parts)
    return made


def test_the_last_loss_is_quoted(monkeypatch):
    def lost(*_):
        raise LostError("a trainer is gone: no route to host")

    for name in ("_check_connection", "_redistribute"):
        monkeypatch.setattr(_Training, name, lambda _: None)
    monkeypatch.setattr(_Training, "_rounds", lost)
    monkeypatch.setattr(trees, "_MAX_ATTEMPTS", 2)
    made = training(checkpoints=SimpleNamespace(last=lambda: None))
    with (
        pytest.warns(
            WorkerLostWarning, match=r"\(a trainer is gone: no route to host\); training resumes from round 0"
        ),
        pytest.raises(ClusterError, match=r"lost 2 times .* \(a trainer is gone: no route to host\)"),
    ):
        made.run()


@pytest.mark.parametrize("status", ["closed", "closing"])
def test_a_connection_that_is_over_is_not_waited_for(status):
    runner = SimpleNamespace(client=SimpleNamespace(status=status), timeout=1e9)
    with pytest.raises(ClusterError, match="connection to the Dask scheduler is lost"):
        training(runner=runner)._look(None)


def test_addresses_that_lightgbm_cannot_use():
    addresses = [f"tcp://[fe80::{number}]:4000" for number in (1, 2)]
    with pytest.raises(ClusterError, match=r"worker tcp://\[fe80::1\]:4000 has an IPv6 address"):
        training()._addresses(addresses)
    runner = SimpleNamespace(submit=lambda function, count, **_: [1, 2][:count], results=list)
    hub, machines = training(runner=runner)._addresses(addresses[:1])  # one trainer has nobody to find
    assert hub[0] == "fe80::1"
    assert len(machines) == 1
