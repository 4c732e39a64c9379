"""Boosting on a cluster: the trees of one machine where bins and counts allow it, LightGBM's own where losses agree."""

from __future__ import annotations

import os
import signal
import warnings

import numpy as np
import pytest

import toprank as tr
from toprank import cluster
from toprank.cluster import tree_worker as tree_share
from toprank.cluster.sources import DataPart
from toprank.cluster.trees import Checkpoints, WorkerLostWarning, _Training
from toprank.errors import DataError
from toprank.rankers.base import ConvergenceWarning

distributed = pytest.importorskip("distributed")

FEW = {"n_trees": 6, "num_leaves": 5, "early_stopping": None, "threads": 1}
"""Trees so small that LightGBM's estimate of a leaf's documents, which is all it has on a cluster, decides nothing."""


@pytest.fixture(scope="module")
def two():
    with cluster.connect(workers=2, timeout=60, checkpoint_every=4) as connected:
        yield connected


def coarse(n_queries, seed, weighted=True):
    """Features with few values, so that every trainer finds the same bins; the top grade lies in one query."""
    made = tr.synthetic(n_queries=n_queries, truth="nonlinear", n_grades=4, seed=seed)
    rng = np.random.default_rng(seed)
    labels = np.array(made.labels)
    labels[-1] = 4.0
    data = made.replace(X=np.round(2 * made.X).clip(-6, 6), labels=labels)
    if not weighted:
        return data
    weights = {"query_weights": rng.uniform(0.5, 2, data.n_queries)}
    return data.replace(document_weights=rng.uniform(0.5, 2, data.n_documents), **weights)


@pytest.fixture(scope="module")
def train():
    return coarse(160, 0)


@pytest.fixture(scope="module")
def valid():
    return coarse(80, 1)


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("LambdaRank", {}),
        (tr.losses.LambdaRank(metric="err"), {}),  # needs the top grade of all data
        ("Squared", {}),  # has an intercept
        ("Hinge", {}),  # has rows without curvature: the floor counts
        ("Multinomial", {"outputs": "grades"}),
        ("ListNet", {"outputs": "grades"}),
        ("lightgbm:lambdarank", {}),
    ],
    ids=["lambdarank", "err", "squared", "hinge", "mcrank", "expected-gain", "built-in"],
)
def test_the_trees_of_one_machine(two, train, valid, loss, options):
    if loss == "Multinomial":  # rare grades have leaves of few documents
        train, valid = (data.replace(labels=np.minimum(data.labels, 1.0)) for data in (train, valid))
    alone = tr.TreeRanker(loss, **FEW, **options).fit(train, valid=valid)
    there = two.fit(tr.TreeRanker(loss, **FEW, **options), train, valid=valid)
    np.testing.assert_allclose(there.intercept_, alone.intercept_, rtol=1e-6)
    ours, theirs = there.predict(valid), alone.predict(valid)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * theirs.std())
    for name in ("train", "valid"):
        np.testing.assert_allclose(there.history_[name], alone.history_[name], atol=1e-12)
    assert there.stopped_ == alone.stopped_


def test_quality_within_noise_however_divided(two, tmp_path):
    """Real-valued features have other bins on a cluster, so the trees differ; what they are worth does not."""
    # Of one truth: another seed would draw another one, about which these trees know nothing.
    train, test = tr.split(tr.synthetic(n_queries=400, truth="nonlinear", seed=0), (0.5, 0.5))
    tr.write(train, tmp_path / "d.toprank-data")
    options = {"n_trees": 25, "num_leaves": 7, "learning_rate": 0.1, "threads": 1}
    alone = tr.TreeRanker("LambdaRank", **options).fit(train)
    expected = tr.evaluate(alone.predict(test), test, "ndcg@10").per_query["ndcg@10"]
    for partitions in (2, 3):
        parts = cluster.read(tmp_path / "d.toprank-data", partitions=partitions)
        there = two.fit(tr.TreeRanker("LambdaRank", **options), parts)
        found = tr.evaluate(there.predict(test), test, "ndcg@10").per_query["ndcg@10"]
        difference = found - expected
        assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(len(difference))
        assert there.score(train) > np.mean(expected)  # it did learn


def test_lightgbm_itself_makes_the_same_trees(two):
    """LightGBM's Dask training on the same rows of the same workers, under its own objective."""
    import dask
    import dask.array
    import lightgbm

    data = tr.synthetic(n_queries=120, seed=3)
    halves = [DataPart(data.select(part), f"half {n}") for n, part in enumerate((np.arange(60), np.arange(60, 120)))]
    placed = two.persist(cluster.Partitions(halves))  # one on each worker, so that no task has a reason to go elsewhere
    options = {"n_trees": 8, "num_leaves": 15, "min_data_in_leaf": 5, "seed": 1}
    orders = [placed, two.persist(cluster.Partitions(halves[::-1]))]  # which worker comes first is up to LightGBM
    ours = [two.fit(tr.TreeRanker("lightgbm:lambdarank", **options), order) for order in orders]

    def chunks(field, width=None):
        parts = []
        for rows, facts in zip(placed.rows.placement().futures, placed.summaries, strict=True):
            made = dask.delayed(lambda part, field=field: field(part.data))(rows)
            length = facts.n_documents if width is not None or field is labels else len(facts.qids)
            shape = (length,) if width is None else (length, width)
            parts.append(dask.array.from_delayed(made, shape, dtype=np.float64))
        return dask.array.concatenate(parts)

    def labels(part):
        return part.labels

    peer = lightgbm.DaskLGBMRanker(
        client=two.client, n_estimators=8, num_leaves=15, min_child_samples=5, random_state=1, verbosity=-1,
        deterministic=True, force_col_wise=True,
    )  # fmt: skip
    X = chunks(lambda part: np.asarray(part.X, dtype=np.float64), data.n_features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it tells which of its parameters it ignores
        peer.fit(X, chunks(labels), group=chunks(lambda part: part.queries.sizes))
    theirs = peer.booster_.predict(np.asarray(data.X, dtype=np.float64), raw_score=True)
    assert peer.booster_.num_trees() == 8
    assert any(np.array_equal(ranker.predict(data), theirs) for ranker in ours)


def test_stopping_and_going_on(two, train, valid):
    """All trainers stop after the same round, by the metric of all validation queries; and go on from a model."""
    options = FEW | {"n_trees": 40, "early_stopping": 3, "learning_rate": 0.5}
    alone = tr.TreeRanker("ListNet", **options).fit(train, valid=valid)
    there = two.fit(tr.TreeRanker("ListNet", **options), train, valid=valid.select(np.arange(80)))
    assert there.best_iteration_ == alone.best_iteration_ < 40
    assert there.stopped_ == alone.stopped_
    assert there.training_["valid"] == pytest.approx(alone.training_["valid"], abs=1e-12)
    more = FEW | {"n_trees": 4, "early_stopping": 50}
    goes_on = [tr.TreeRanker("ListNet", **more, init_model=alone) for _ in range(2)]
    goes_on[0].fit(train, valid=valid)
    two.fit(goes_on[1], train, valid=valid)
    assert goes_on[1].history_["round"] == goes_on[0].history_["round"]
    np.testing.assert_allclose(goes_on[1].history_["valid"], goes_on[0].history_["valid"], atol=1e-12)
    assert goes_on[1].best_iteration_ == goes_on[0].best_iteration_


def test_trainers_without_validation_queries_stop_with_the_others(two, train, valid):
    """A metric whose small values are good, judged by one trainer only: the others must know that all the same."""
    options = FEW | {"n_trees": 25, "early_stopping": 3, "boosting": "dart", "metric": "owa"}
    one = valid.select(np.arange(1))
    ranker = two.fit(tr.TreeRanker("ListNet", **options), train, valid=one)
    history = ranker.history_["valid"]
    assert ranker.best_iteration_ == 1 + int(np.argmin(history))
    assert len(history) in (25, ranker.best_iteration_ + 3)


def test_sampling_and_dart_run(two, train):
    sampled = tr.TreeRanker("ListNet", **FEW, query_fraction=0.5, row_fraction=0.8, feature_fraction=0.5)
    assert two.fit(sampled, train).best_iteration_ == 6
    dart = two.fit(tr.TreeRanker("Squared", **FEW, boosting="dart"), train)
    assert dart.best_iteration_ == 6
    assert "train" not in dart.history_


def test_progress_is_told_here(two, train, valid, capsys):
    two.fit(tr.TreeRanker("ListNet", **(FEW | {"n_trees": 30}), verbose=True), train, valid=valid)
    assert "round 30/30" in capsys.readouterr().err


def test_refusals(two, train):
    with pytest.raises(DataError, match="callbacks run in this process"):
        two.fit(tr.TreeRanker(**FEW, callbacks=[print]), train)
    odd = train.replace(labels=np.where(train.labels == 4, 31, train.labels))
    with pytest.raises(DataError, match="needs integer labels from 0 to 30, but a document has 31"):
        two.fit(tr.TreeRanker("lightgbm:lambdarank", **FEW), odd)
    with pytest.raises(DataError, match="min_data_in_leaf must be at least 1"):
        two.fit(tr.TreeRanker("ListNet", **FEW, min_data_in_leaf=0), train)
    with pytest.raises(DataError, match="is categorical but contains"):
        two.fit(tr.TreeRanker("ListNet", **FEW, categorical=[0]), train)
    with pytest.raises(DataError, match="learning_rate must be a positive"):
        two.fit(tr.TreeRanker("ListNet", **(FEW | {"learning_rate": -1})), train)


def test_ctrl_c_keeps_the_rounds_so_far(two, train, monkeypatch):
    look, looks = _Training._look, []

    def interrupt_once(self, trainers):
        looks.append(1)
        if len(looks) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        look(self, trainers)

    monkeypatch.setattr(_Training, "_look", interrupt_once)
    with pytest.warns(ConvergenceWarning, match="Interrupted after"):
        ranker = two.fit(tr.TreeRanker("LambdaRank", **(FEW | {"n_trees": 3000})), train)
    assert 0 < ranker.best_iteration_ < 3000
    assert two.fit(tr.TreeRanker("ListNet", **FEW), train).best_iteration_ == 6  # nothing is left behind


def left_behind(client):
    """What a training has left on the scheduler."""

    def names(dask_scheduler):
        extensions = dask_scheduler.extensions
        kept = [*extensions["events"]._events, *extensions["variables"].variables]
        return [str(name) for name in kept if "toprank" in str(name)]

    return client.run_on_scheduler(names)


def test_a_second_ctrl_c_ends_the_trainers(two, train, monkeypatch):
    """Even where it comes before they were asked to stop; the workers are free again, and nothing is left behind."""
    look = _Training._look

    def interrupt(self, trainers):
        look(self, trainers)
        if self.checkpoints.last() is not None:  # in the middle of the rounds
            raise KeyboardInterrupt

    def interrupted(_):
        raise KeyboardInterrupt

    pids = two.client.run(os.getpid)
    monkeypatch.setattr(_Training, "_look", interrupt)
    monkeypatch.setattr(Checkpoints, "request_stop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        two.fit(tr.TreeRanker("LambdaRank", **(FEW | {"n_trees": 10**6})), train)
    for address in pids:
        assert two.client.submit(abs, -1, workers=[address], pure=False).result(timeout=300) == 1
    assert two.client.run(os.getpid) == pids
    assert left_behind(two.client) == []


def test_a_worker_that_is_busy_is_left_in_peace(two, train, monkeypatch):
    """Somebody else's task takes a worker the moment before the trainers start; it is neither lost nor restarted."""
    pids = two.client.run(os.getpid)
    begun, done = (distributed.Event(f"another-{name}", client=two.client) for name in ("begun", "done"))
    doors, tasks = _Training._addresses, []

    def another():
        distributed.Event("another-begun").set()
        return distributed.Event("another-done").wait(timeout="600s")

    def taken(self, addresses):
        found = doors(self, addresses)
        tasks.append(two.client.submit(another, workers=[sorted(addresses)[-1]], pure=False))
        assert begun.wait(timeout="300s")
        patch.setattr(self.runner, "timeout", 3.0)  # not before: a busy machine needs some
        return found

    with monkeypatch.context() as patch:
        patch.setattr(_Training, "_addresses", taken)
        with pytest.raises(cluster.ClusterError, match=r"no trainer began within 3 s on .*: busy") as told:
            two.fit(tr.TreeRanker("ListNet", **FEW), train)
    done.set()
    assert sorted(pids)[-1] in str(told.value)
    assert len(tasks) == 1
    assert tasks[0].result(timeout=300)
    assert two.client.run(os.getpid) == pids
    begun.clear()
    done.clear()
    assert left_behind(two.client) == []
    assert two.fit(tr.TreeRanker("ListNet", **FEW), train).best_iteration_ == 6


def test_the_scheduler_goes_away(train, monkeypatch):
    """Which is said at once, however patient we are."""
    own = cluster.connect(workers=1, timeout=10**6)
    look = _Training._look

    def close(self, trainers):
        own.client.cluster.close()
        look(self, trainers)

    monkeypatch.setattr(_Training, "_look", close)
    try:
        with pytest.raises(cluster.ClusterError, match="connection to the Dask scheduler is lost"):
            own.fit(tr.TreeRanker("ListNet", **(FEW | {"n_trees": 10**6})), train)
    finally:
        own.client.close(timeout=1)


@pytest.mark.nightly
def test_a_training_that_fails_leaves_no_network_and_the_logger_of_the_process(train, monkeypatch, capfd):
    """LightGBM's connections belong to the worker's thread; here that is one of this process, as its logger is.

    A booster that knows of them would end those of a later training, whenever it is collected.
    """
    import lightgbm

    psutil = pytest.importorskip("psutil")
    kept, met, ports, logger = [], [], set(), lightgbm.basic._LOGGER

    def established(ports):
        return [
            line
            for line in psutil.Process().net_connections()
            if line.status == psutil.CONN_ESTABLISHED and line.laddr.port in ports
        ]

    def fails(ranker, parameters, sets, *_):
        kept.append(lightgbm.Booster(parameters, sets["train"]))
        met.append(len(established(ports)))
        raise DataError("It cannot be trained.")

    monkeypatch.setattr(tree_share, "make_rounds", fails)
    doors = _Training._addresses

    def noted(self, addresses):
        hub, machines = doors(self, addresses)
        ports.update(int(machine.rpartition(":")[2]) for machine in machines)
        return hub, machines

    monkeypatch.setattr(_Training, "_addresses", noted)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as local, distributed.Client(local) as client:
        with pytest.raises(DataError, match="It cannot be trained"):
            tr.cluster.Cluster(client).fit(tr.TreeRanker("ListNet", **FEW), train)
        assert len(kept) == len(ports) == 2
        assert max(met) > 0
        assert not any(booster._network for booster in kept)
        assert not established(ports)
    assert lightgbm.basic._LOGGER is logger
    told = [line for line in "".join(capfd.readouterr()).splitlines() if "LightGBM" in line]
    assert told == 2 * ["[LightGBM] [Info] Listening..."]  # by a thread of its own, which no setting reaches


@pytest.mark.nightly
@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_dies_and_training_goes_on_from_a_checkpoint(two, train, valid, rank, monkeypatch):
    """Killed by the system once there is a checkpoint; the first trainer (which posts them), or another."""
    look, killed = _Training._look, []

    def kill_after_a_checkpoint(self, trainers):
        if not killed and self.checkpoints.last() is not None:
            pids = two.client.run(os.getpid)
            killed.append(pids[trainers.addresses[rank]])
            os.kill(killed[0], signal.SIGKILL)
        look(self, trainers)

    monkeypatch.setattr(_Training, "_look", kill_after_a_checkpoint)
    with pytest.warns(WorkerLostWarning, match=r"training resumes from round [1-9]\d*\."):
        ranker = two.fit(tr.TreeRanker("LambdaRank", **(FEW | {"n_trees": 600})), train, valid=valid)
    assert ranker.best_iteration_ == 600
    assert ranker.history_["round"] == list(range(1, 601))
    assert "A worker was lost; training resumed from round" in ranker.stopped_
    assert left_behind(two.client) == []
    two.client.wait_for_workers(2, timeout=300)
