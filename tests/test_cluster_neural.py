"""Several processes that train one network make the training of one process."""

from __future__ import annotations

import socket
import subprocess
import sys

import numpy as np
import pytest

import toprank as tr
from toprank import cluster
from toprank.errors import DataError

pytest.importorskip("torch")

from toprank.cluster.neural_group import GlooGroup
from toprank.rankers.neural.inputs import plan_epoch


@pytest.fixture(scope="module")
def train():
    made = tr.synthetic(n_queries=60, truth="nonlinear", seed=0)
    return made.replace(query_weights=np.random.default_rng(0).uniform(0.5, 2, made.n_queries))


@pytest.fixture(scope="module")
def valid():
    return tr.synthetic(n_queries=30, truth="nonlinear", seed=1)


def trained_by_two(folder, options, train, valid=None):
    """Train by two processes that torchrun starts, and return their models."""
    for name, data in (("train", train), ("valid", valid)):
        if data is not None:
            tr.write(data, folder / f"{name}.toprank-data")
    held_out = "None" if valid is None else repr(str(folder / "valid.toprank-data"))
    (folder / "train.py").write_text(
        "import os, toprank as tr\n"
        f"ranker = tr.NeuralRanker(**{options | {'threads': 1}!r})\n"
        f"fitted = tr.cluster.fit_distributed(ranker, {str(folder / 'train.toprank-data')!r}, valid={held_out})\n"
        "assert fitted is ranker\n"
        f"ranker.save({str(folder)!r} + '/m' + os.environ['RANK'] + '.toprank')\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*command, str(folder / "train.py")], check=True, timeout=600, capture_output=True)
    return [tr.load(folder / f"m{rank}.toprank") for rank in range(2)]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("alike", [False, True])
def test_shares_make_up_every_batch(train, size, alike):
    plan = plan_epoch(train.queries, 150, np.random.default_rng(0), alike=alike)
    shares = [GlooGroup(rank, size).share(plan) for rank in range(size)]
    for place, (first, last) in enumerate(plan.batches):
        parts = [share.batches[place] for share in shares]
        assert [parts[0][0], *(part[1] for part in parts)] == [first, *(part[0] for part in parts[1:]), last]
        documents = [share.documents(part) for share, part in zip(shares, parts, strict=True)]
        longest = int(plan.queries.sizes[first:last].max())
        counts = [rows.stop - rows.start for rows in documents]
        assert max(counts) - min(counts) <= 2 * longest  # as even as whole queries allow


def test_two_processes_train_what_one_does(train, valid, tmp_path):
    """Full batches and no dropout: the same sums of gradients, so the same weights to single precision."""
    options = {"loss": "ListNet", "epochs": 4, "hidden": (8,), "dropout": 0.0, "batch_documents": 10**6, "seed": 3}
    alone = tr.NeuralRanker(**options).fit(train, valid=valid)
    first, second = trained_by_two(tmp_path, options, train, valid)
    for name, weights in alone.network_.state_dict().items():
        np.testing.assert_allclose(first.network_.state_dict()[name], weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(first.predict(valid), second.predict(valid))
    np.testing.assert_allclose(first.predict(valid), alone.predict(valid), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(first.history_["loss"], alone.history_["loss"], rtol=1e-6)
    assert first.training_["queries"] == train.n_queries


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options",
    [{"batch_documents": 200}, {"network": "attention", "width": 8, "n_heads": 2, "batch_documents": 300}],
    ids=["mini-batches", "attention"],
)
def test_small_batches_too(train, valid, tmp_path, options):
    """A batch of one query leaves a process with nothing to do; it still takes part in the sums."""
    options = {
        "loss": "LambdaRank",
        "epochs": 3,
        "hidden": (8,),
        "dropout": 0.0,
        "seed": 3,
        "max_grad_norm": 1.0,
    } | options
    alone = tr.NeuralRanker(**options).fit(train)
    together, _ = trained_by_two(tmp_path, options, train)
    np.testing.assert_allclose(together.predict(valid), alone.predict(valid), rtol=1e-3, atol=1e-4)


def test_one_process_of_a_group_trains_alone(train, monkeypatch):
    """What torchrun sets is in the environment; a group of one is a training by itself."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    options = {"epochs": 2, "hidden": (8,), "dropout": 0.0, "seed": 3}
    together = cluster.fit_distributed(tr.NeuralRanker("ListNet", **options), train)
    np.testing.assert_array_equal(
        together.predict(train), tr.NeuralRanker("ListNet", **options).fit(train).predict(train)
    )


def test_refusals(train):
    with pytest.raises(tr.ToprankError, match="fit_distributed trains a NeuralRanker, not a LinearRanker"):
        cluster.fit_distributed(tr.LinearRanker(), train)
    with pytest.raises(DataError, match="norm='batch' needs whole batches"):
        cluster.fit_distributed(tr.NeuralRanker(norm="batch"), train)
    with pytest.raises(DataError, match="callbacks could end the training"):
        cluster.fit_distributed(tr.NeuralRanker(callbacks=[print]), train)
    with pytest.raises(DataError, match="processes started by torchrun"):
        cluster.fit_distributed(tr.NeuralRanker(), train)
    for timeout in (-1, 0, float("inf"), float("nan"), "60", None, True):
        with pytest.raises(DataError, match="timeout must be a positive number"):
            cluster.fit_distributed(tr.NeuralRanker(), train, timeout=timeout)
