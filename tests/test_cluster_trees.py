"""Boosting on a cluster: the trees of one machine where bins and counts allow it, LightGBM's own where losses agree."""

from __future__ import annotations

import os
import signal
import warnings

import numpy as np
import pytest

import toprank as tr
from toprank import cluster
from toprank.cluster.sources import DataPart
from toprank.cluster.trees import WorkerLostWarning, _Training
from toprank.errors import DataError
from toprank.rankers.base import ConvergenceWarning

pytest.importorskip("distributed")

FEW = {"n_trees": 6, "num_leaves": 5, "early_stopping": None, "threads": 1}
"""Trees so small that LightGBM's estimate of a leaf's documents, which is all it has on a cluster, decides nothing."""


@pytest.fixture(scope="module")
def two():
    with cluster.connect(workers=2, patience=60, checkpoint=4) as connected:
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
    there = tr.TreeRanker(loss, **FEW, **options).fit(train, valid=valid, cluster=two)
    np.testing.assert_allclose(there.intercept_, alone.intercept_, rtol=1e-6)
    ours, theirs = there.predict(valid), alone.predict(valid)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * theirs.std())
    for name in ("train", "valid"):
        np.testing.assert_allclose(there.history_[name], alone.history_[name], atol=1e-12)
    assert there.stopped_ == alone.stopped_


def test_quality_within_noise_however_divided(two, tmp_path):
    """Real-valued features have other bins on a cluster, so the trees differ; what they are worth does not."""
    train, test = (tr.synthetic(n_queries=n, truth="nonlinear", seed=seed) for n, seed in ((200, 0), (200, 1)))
    tr.write(train, tmp_path / "d.toprank-data")
    options = {"n_trees": 25, "num_leaves": 7, "learning_rate": 0.1, "threads": 1}
    alone = tr.TreeRanker("LambdaRank", **options).fit(train)
    expected = tr.evaluate(alone.predict(test), test, "ndcg@10").per_query["ndcg@10"]
    for partitions in (2, 3):
        parts = cluster.read(tmp_path / "d.toprank-data", partitions=partitions)
        there = tr.TreeRanker("LambdaRank", **options).fit(parts, cluster=two)
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
    placed = two.place(cluster.Parts(halves))  # one on each worker, so that no task has a reason to go elsewhere
    options = {"n_trees": 8, "num_leaves": 15, "min_data_in_leaf": 5, "seed": 1}
    orders = [placed, two.place(cluster.Parts(halves[::-1]))]  # which worker comes first is up to LightGBM
    ours = [tr.TreeRanker("lightgbm:lambdarank", **options).fit(order) for order in orders]

    def chunks(field, width=None):
        parts = []
        for rows, facts in zip(placed.rows.placement().futures, placed.facts, strict=True):
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
    there = tr.TreeRanker("ListNet", **options).fit(train, valid=valid.select(np.arange(80)), cluster=two)
    assert there.best_iteration_ == alone.best_iteration_ < 40
    assert there.stopped_ == alone.stopped_
    assert there.training_["valid"] == pytest.approx(alone.training_["valid"], abs=1e-12)
    more = FEW | {"n_trees": 4, "early_stopping": 50}
    goes_on = [tr.TreeRanker("ListNet", **more, init_model=alone) for _ in range(2)]
    goes_on[0].fit(train, valid=valid)
    goes_on[1].fit(train, valid=valid, cluster=two)
    assert goes_on[1].history_["round"] == goes_on[0].history_["round"]
    np.testing.assert_allclose(goes_on[1].history_["valid"], goes_on[0].history_["valid"], atol=1e-12)
    assert goes_on[1].best_iteration_ == goes_on[0].best_iteration_


def test_sampling_and_dart_run(two, train):
    sampled = tr.TreeRanker("ListNet", **FEW, query_fraction=0.5, row_fraction=0.8, feature_fraction=0.5)
    assert sampled.fit(train, cluster=two).best_iteration_ == 6
    dart = tr.TreeRanker("Squared", **FEW, boosting="dart").fit(train, cluster=two)
    assert dart.best_iteration_ == 6
    assert "train" not in dart.history_


def test_progress_is_told_here(two, train, valid, capsys):
    tr.TreeRanker("ListNet", **(FEW | {"n_trees": 30}), verbose=True).fit(train, valid=valid, cluster=two)
    assert "round 30/30" in capsys.readouterr().err


def test_refusals(two, train):
    with pytest.raises(DataError, match="callbacks run in this process"):
        tr.TreeRanker(**FEW, callbacks=[print]).fit(train, cluster=two)
    odd = train.replace(labels=np.where(train.labels == 4, 31, train.labels))
    with pytest.raises(DataError, match="takes whole labels from 0 to 30, but a document has 31"):
        tr.TreeRanker("lightgbm:lambdarank", **FEW).fit(odd, cluster=two)
    with pytest.raises(DataError, match="min_data_in_leaf must be at least 1"):
        tr.TreeRanker("ListNet", **FEW, min_data_in_leaf=0).fit(train, cluster=two)
    with pytest.raises(DataError, match="is categorical but holds"):
        tr.TreeRanker("ListNet", **FEW, categorical=[0]).fit(train, cluster=two)
    with pytest.raises(DataError, match="learning_rate must be a positive"):
        tr.TreeRanker("ListNet", **(FEW | {"learning_rate": -1})).fit(train, cluster=two)


def test_ctrl_c_keeps_the_rounds_so_far(two, train, monkeypatch):
    look, looks = _Training._look, []

    def interrupt_once(self, futures):
        looks.append(1)
        if len(looks) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        look(self, futures)

    monkeypatch.setattr(_Training, "_look", interrupt_once)
    with pytest.warns(ConvergenceWarning, match="Interrupted after"):
        ranker = tr.TreeRanker("LambdaRank", **(FEW | {"n_trees": 20000})).fit(train, cluster=two)
    assert 0 < ranker.best_iteration_ < 20000
    assert tr.TreeRanker("ListNet", **FEW).fit(train, cluster=two).best_iteration_ == 6  # nothing is left behind


@pytest.mark.nightly
@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_dies_and_training_goes_on_from_a_checkpoint(two, train, valid, rank, monkeypatch):
    """Killed by the system once there is a checkpoint; the first trainer (which posts them), or another."""
    look, killed = _Training._look, []

    def kill_after_a_checkpoint(self, futures):
        if not killed and self.board.last() is not None:
            pids = two.client.run(os.getpid)
            killed.append(pids[list(futures)[rank]])
            os.kill(killed[0], signal.SIGKILL)
        look(self, futures)

    monkeypatch.setattr(_Training, "_look", kill_after_a_checkpoint)
    with pytest.warns(WorkerLostWarning, match=r"training goes on from round [1-9]\d*\."):
        ranker = tr.TreeRanker("LambdaRank", **(FEW | {"n_trees": 600})).fit(train, valid=valid, cluster=two)
    assert ranker.best_iteration_ == 600
    assert ranker.history_["round"] == list(range(1, 601))
    assert "A worker was lost; training went on from round" in ranker.stopped_
    two.client.wait_for_workers(2, timeout=60)
