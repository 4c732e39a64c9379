"""What goes wrong on a cluster: a worker dies, nobody is left, the scheduler goes away, the keyboard interrupts."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

import toprank as tr
from toprank import cluster
from toprank.cluster.faults import LostError
from toprank.cluster.placed import ClusterObjective
from toprank.cluster.running import Runner
from toprank.cluster.spread import Placement, Root
from toprank.rankers.base import ConvergenceWarning

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def two():
    with cluster.connect(workers=2, patience=60) as connected:
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
    ranker = tr.LinearRanker("Logistic", l2=1e-2).fit(parts, cluster=two)
    assert len(calls) > 3
    assert killed[0] not in two.client.run(os.getpid).values()
    np.testing.assert_allclose(ranker.coef_, alone.coef_, rtol=1e-8)
    assert ranker.solution_.iterations == alone.solution_.iterations
    two.client.wait_for_workers(2, timeout=60)


def test_ctrl_c_keeps_the_best_so_far(two, data, alone, monkeypatch):
    in_call(monkeypatch, 3, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.warns(ConvergenceWarning, match="Interrupted after"):
        ranker = tr.LinearRanker("Logistic", l2=1e-2).fit(data, cluster=two)
    assert ranker.solution_.interrupted
    assert np.isfinite(ranker.coef_).all()
    monkeypatch.undo()
    again = tr.LinearRanker("Logistic", l2=1e-2).fit(data, cluster=two)  # the cluster is none the worse for it
    np.testing.assert_allclose(again.coef_, alone.coef_, rtol=1e-8)


def test_objects_that_are_lost_again_and_again(two):
    placed = []
    lost = Root(Runner(two.client, 10.0, 20), lambda: placed.append(1) or Placement([], []))

    def work():
        lost.placement()
        raise LostError

    with pytest.raises(cluster.ClusterError, match="Workers were lost 5 times during one pass"):
        lost.steadily(work)
    assert len(placed) == 5  # each time from the sources


@pytest.fixture
def small():
    """A cluster of its own, that a test may break."""
    with cluster.connect(workers=1, patience=2) as connected:
        yield connected


def test_a_partition_that_kills_its_workers(small, data):
    small.client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0))
    runner = Runner(small.client, 30.0, 20)
    with pytest.raises(cluster.ClusterError, match=r"workers that tried it died one after another"):
        runner.results([runner.submit(os._exit, 1)])


def test_nobody_is_left(small, data):
    placed = small.place(data)
    small.client.cluster.scale(0)
    began = time.monotonic()
    with pytest.raises(cluster.ClusterError, match="No worker has been there for 2 s"):
        tr.LinearRanker().fit(placed)
    assert time.monotonic() - began < 60


def test_the_scheduler_goes_away(data):
    own = cluster.connect(workers=1, patience=2)
    try:
        placed = own.place(data)
        own.client.cluster.close()
        with pytest.raises(cluster.ClusterError, match="connection to the Dask scheduler is lost"):
            tr.LinearRanker().fit(placed)
    finally:
        own.client.close(timeout=1)
