"""What goes wrong on a cluster: a worker dies, nobody is left, the scheduler goes away, the keyboard interrupts."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest

import toprank as tr
from toprank import cluster
from toprank.cluster import runner as running
from toprank.cluster.dataset import ClusterObjective
from toprank.cluster.runner import LostError, Placement, Runner, SourceObjects
from toprank.cluster.sources import DataPart
from toprank.rankers.base import ConvergenceWarning

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def two():
    with cluster.connect(workers=2, timeout=60) as connected:
        yield connected


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=60, seed=0)


@pytest.fixture(scope="module")
def alone(data):
    return tr.LinearRanker("Logistic", l2=1e-2).fit(data)


def in_call(monkeypatch, number, event):
    """Do something when the objective is asked for the n-th time, with the training in full course."""
    calls = []
    asked = ClusterObjective.value_and_grad

    def counting(self, weights):
        calls.append(1)
        if len(calls) == number:
            event()
        return asked(self, weights)

    monkeypatch.setattr(ClusterObjective, "value_and_grad", counting)
    return calls


@pytest.mark.parametrize("way", ["memory", "files"])
def test_a_worker_dies_and_training_goes_on(two, data, alone, tmp_path, monkeypatch, way):
    """Killed by the system in the middle of a training: what it held is made anew elsewhere."""
    parts = data
    if way == "files":
        tr.write(data, tmp_path / "d.toprank-data")
        parts = cluster.read(tmp_path / "d.toprank-data", partitions=5)
    killed = []

    def kill():
        pids = two.client.run(os.getpid)
        killed.append(sorted(pids.values())[0])
        os.kill(killed[0], signal.SIGKILL)

    calls = in_call(monkeypatch, 3, kill)
    ranker = two.fit(tr.LinearRanker("Logistic", l2=1e-2), parts)
    assert len(calls) > 3
    assert killed[0] not in two.client.run(os.getpid).values()
    np.testing.assert_allclose(ranker.coef_, alone.coef_, rtol=1e-8)
    assert ranker.solution_.iterations == alone.solution_.iterations
    two.client.wait_for_workers(2, timeout=300)


def test_ctrl_c_keeps_the_best_so_far(two, data, alone, monkeypatch):
    in_call(monkeypatch, 3, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.warns(ConvergenceWarning, match="Interrupted after"):
        ranker = two.fit(tr.LinearRanker("Logistic", l2=1e-2), data)
    assert ranker.solution_.interrupted
    assert np.isfinite(ranker.coef_).all()
    monkeypatch.undo()
    again = two.fit(tr.LinearRanker("Logistic", l2=1e-2), data)  # the cluster is none the worse for it
    np.testing.assert_allclose(again.coef_, alone.coef_, rtol=1e-8)


def test_objects_that_are_lost_again_and_again(two):
    placed = []
    lost = SourceObjects(Runner(two.client, 10.0, 20), lambda: placed.append(1) or Placement([], []))

    def work():
        lost.placement()
        raise LostError

    with pytest.raises(cluster.ClusterError, match="Workers were lost 5 times during one pass"):
        lost.retry_lost(work)
    assert len(placed) == 5  # each time from the sources


class Scheduler:
    """What a client of Dask's knows, without any cluster."""

    def __init__(self, status="running"):
        self.status, self.scheduler, self.last_seen = status, self, {}

    def identity(self):
        return {"workers": {address: {"last_seen": seen} for address, seen in self.last_seen.items()}}

    def ncores(self):
        raise OSError("cannot be reached")

    def sync(self, question, callback_timeout=None):
        return question()


@pytest.fixture
def clock(monkeypatch):
    """A clock for us alone, that stands still unless it is told, or we sleep."""
    now = [1000.0]
    ours = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(running, "time", ours)
    return now


def test_a_worker_that_stands_still_counts_as_lost(clock):
    client = Scheduler()
    runner = Runner(client, 40.0, 20)
    client.last_seen = {"a": 5.0, "b": 5.0}  # by another clock than ours
    assert runner.present() == ["a", "b"]
    for beat in range(3):
        clock[0] += 20
        client.last_seen["a"] = 6.0 + beat
        assert runner.present() == (["a", "b"] if beat < 2 else ["a"])
    assert runner.workers() == ["a"]
    client.last_seen["b"] = 66.0  # it was asleep, and is back
    assert runner.present() == ["a", "b"]


def test_short_patience_is_no_reason_to_give_up_a_busy_worker(clock):
    client = Scheduler()
    runner = Runner(client, 1.0, 20)
    client.last_seen = {"a": 5.0}
    assert runner.workers() == ["a"]
    clock[0] += 29
    assert runner.workers() == ["a"]
    clock[0] += 2
    with pytest.raises(cluster.ClusterError, match="There has been no worker for 1 s"):
        runner.workers()


@pytest.mark.parametrize(("status", "waited"), [("closed", 0), ("closing", 0), ("connecting", 50)])
def test_a_scheduler_that_is_gone_is_not_waited_for(clock, status, waited):
    """A connection that is only interrupted may come back, for as long as timeout lasts."""
    with pytest.raises(cluster.ClusterError, match="connection to the Dask scheduler is lost"):
        Runner(Scheduler(status), 50.0, 20).workers()
    assert waited <= clock[0] - 1000 <= waited + 2


def test_questions_that_nobody_answers():
    with pytest.raises(LostError):
        Runner(Scheduler(), 1.0, 20).threads()
    with pytest.raises(cluster.ClusterError, match="connection to the Dask scheduler is lost"):
        Runner(Scheduler("closed"), 1.0, 20).threads()


def test_what_is_sent_to_a_worker_that_is_gone(two):
    runner = Runner(two.client, 60.0, 20)
    assert runner.threads() == dict.fromkeys(runner.workers(), 1)
    with pytest.raises(LostError):
        runner.scatter(np.ones(3), ["tcp://127.0.0.1:1"])
    sent = runner.each(np.multiply, [1, 2], np.ones(1 << 18), homes=runner.workers())  # large: sent once, to these
    assert [part.sum() for part in runner.results(sent, runner.workers())] == [1 << 18, 2 << 18]


def test_those_who_gave_all_their_rows_are_needed_until_these_arrived(two, monkeypatch):
    """A partition that lies on one worker is made of rows from the other, whose own partition is empty then."""
    halves = [tr.RankingData(np.ones((2, 1)), [0, 1], qid=qid) for qid in ([1, 2], [2, 2])]
    waited, wait = [], Runner.wait

    def noting(self, futures, homes=()):
        waited.append(set(homes))
        wait(self, futures, homes)

    monkeypatch.setattr(Runner, "wait", noting)
    with pytest.warns(cluster.QueriesMovedWarning):
        placed = two.persist(cluster.Partitions([DataPart(half, f"part {n}") for n, half in enumerate(halves)]))
    assert set(placed.rows.placement().homes) < set(two._runner.workers())
    assert waited == [set(two._runner.workers())]


@pytest.mark.nightly
def test_a_frozen_worker_is_not_waited_for(two, data, alone, monkeypatch):
    """Stopped by the system: it holds its connection, and says nothing."""
    monkeypatch.setattr(running, "_SILENCE_SECONDS", 5.0)
    hasty = cluster.Cluster(two.client, timeout=5.0)
    placed = hasty.persist(data)
    pid = sorted(two.client.run(os.getpid).values())[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        ranker = hasty.fit(tr.LinearRanker("Logistic", l2=1e-2), placed)
    finally:
        os.kill(pid, signal.SIGCONT)
    np.testing.assert_allclose(ranker.coef_, alone.coef_, rtol=1e-8)
    two.client.wait_for_workers(2, timeout=300)


@pytest.fixture
def small():
    """A cluster of its own, that a test may break."""
    with cluster.connect(workers=1, timeout=2) as connected:
        yield connected


def test_a_partition_that_kills_its_workers(small, data):
    small.client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0))
    runner = Runner(small.client, 30.0, 20)
    with pytest.raises(cluster.ClusterError, match=r"workers that tried it died one after another"):
        runner.results([runner.submit(os._exit, 1)])


def test_nobody_is_left(small, data):
    placed = small.persist(data)
    small.client.cluster.scale(0)
    with pytest.raises(cluster.ClusterError, match="There has been no worker for 2 s"):
        small.fit(tr.LinearRanker(), placed)


def test_the_scheduler_goes_away(data):
    own = cluster.connect(workers=1, timeout=2)
    try:
        placed = own.persist(data)
        own.client.cluster.close()
        with pytest.raises(cluster.ClusterError, match="connection to the Dask scheduler is lost"):
            own.fit(tr.LinearRanker(), placed)
    finally:
        own.client.close(timeout=1)
