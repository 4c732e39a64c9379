"""Several processes that train one network: the training of one process, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import numpy as np
import pytest

import toprank as tr
from toprank import cluster
from toprank.errors import DataError, FileError

pytest.importorskip("torch")
pytest.importorskip("cloudpickle")

from toprank.cluster import neural_group
from toprank.cluster.neural_group import GlooGroup
from toprank.rankers.neural.inputs import plan_epoch


@pytest.fixture(scope="module")
def train():
    made = tr.synthetic(n_queries=60, truth="nonlinear", seed=0)
    return made.replace(query_weights=np.random.default_rng(0).uniform(0.5, 2, made.n_queries))


@pytest.fixture(scope="module")
def valid():
    return tr.synthetic(n_queries=30, truth="nonlinear", seed=1)


def workers_of(pid, size=2):
    """The processes of a training, once all are there; they are known by what they run."""
    psutil = pytest.importorskip("psutil")
    parent, deadline = psutil.Process(pid), time.monotonic() + 300.0
    while time.monotonic() < deadline:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            found = [one for one in parent.children() if neural_group._WORKER in one.cmdline()]
            if len(found) == size:
                return sorted(found, key=lambda one: one.environ()["RANK"])
        time.sleep(0.02)
    raise AssertionError("The processes were not started.")


@pytest.fixture
def workers(monkeypatch):
    """The processes that were started, as `subprocess.Popen`; none is left at the end, and signals are as before."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    started, handlers = [], [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]

    class Recorded(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(self)

    monkeypatch.setattr(subprocess_handler, "Popen", Recorded)
    yield started
    for worker in started:
        worker.wait(timeout=60)  # those that the launcher had no list of yet end by themselves: their folder is gone
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == handlers


@contextmanager
def meanwhile(work):
    """Do something in a thread while the body runs."""
    with ThreadPoolExecutor() as pool:
        done = pool.submit(work)
        yield
        done.result()


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


def test_two_processes_train_what_one_does(train, valid, workers):
    """Full batches and no dropout: the same sums of gradients, so the same weights to single precision."""
    options = {"epochs": 4, "hidden": (8,), "dropout": 0.0, "batch_documents": 10**6, "seed": 3}
    alone = tr.NeuralRanker("ListNet", **options).fit(train, valid=valid)
    ranker = tr.NeuralRanker("ListNet", **options)
    assert cluster.fit_distributed(ranker, train, valid=valid, processes=2) is ranker
    assert len(workers) == 2
    for name, weights in alone.network_.state_dict().items():
        np.testing.assert_allclose(ranker.network_.state_dict()[name], weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ranker.predict(valid), alone.predict(valid), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ranker.history_["loss"], alone.history_["loss"], rtol=1e-6)
    assert ranker.training_["queries"] == train.n_queries
    assert ranker.threads is None


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options",
    [{"batch_documents": 200}, {"network": "attention", "width": 8, "n_heads": 2, "batch_documents": 300}],
    ids=["mini-batches", "attention"],
)
def test_small_batches_too(train, valid, tmp_path, options):
    """A batch of one query leaves a process with nothing to do; it still takes part in the sums."""
    options = {"epochs": 3, "hidden": (8,), "dropout": 0.0, "seed": 3, "max_grad_norm": 1.0} | options
    tr.write(train, tmp_path / "d.toprank-data")
    alone = tr.NeuralRanker("LambdaRank", **options).fit(train)
    ranker = tr.NeuralRanker("LambdaRank", **options)
    cluster.fit_distributed(ranker, tmp_path / "d.toprank-data", processes=2)
    np.testing.assert_allclose(ranker.predict(valid), alone.predict(valid), rtol=1e-3, atol=1e-4)


def test_a_process_that_dies_ends_all(train, workers):
    ranker, said = tr.NeuralRanker(epochs=10**6, threads=1), "Process 1 of the training was killed by signal 9"
    with meanwhile(lambda: workers_of(os.getpid())[1].kill()), pytest.raises(cluster.ClusterError, match=said):
        cluster.fit_distributed(ranker, train, processes=2)
    assert len(workers) == 2


def test_the_process_that_was_killed_is_named_not_the_one_that_missed_it(tmp_path):
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    failures = {
        rank: ProcessFailure(local_rank=rank, pid=-1, exitcode=status, error_file="")
        for rank, status in enumerate((-signal.SIGTERM, 1, -signal.SIGKILL))
    }
    assert "Process 2 of the training was killed by signal 9" in str(neural_group._reason(tmp_path, failures))
    failures[2].timestamp += 30  # by the launcher, which does not wait for ever
    assert "Process 0 of the training was killed by signal 15" in str(neural_group._reason(tmp_path, failures))
    (tmp_path / "log-1").write_text("Traceback\nValueError: no\n")
    assert str(neural_group._reason(tmp_path, {1: failures[1]})).endswith("kept. Its last words: ValueError: no")


def test_ctrl_c_ends_all(train, workers):
    def interrupt():
        deadline = time.monotonic() + 300.0
        while len(workers) < 2 and time.monotonic() < deadline:  # a process is there before its `Popen` is
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    ranker, said = tr.NeuralRanker(epochs=10**6, threads=1), "Training by 2 processes was interrupted"
    with meanwhile(interrupt), pytest.raises(KeyboardInterrupt, match=said):
        cluster.fit_distributed(ranker, train, processes=2)
    assert len(workers) == 2


@pytest.mark.nightly
def test_what_a_process_refuses_is_said_here(train):
    with pytest.raises(DataError, match="needs an output for each grade"):
        cluster.fit_distributed(tr.NeuralRanker("Multinomial"), train, processes=1)


def test_refusals(train):
    with pytest.raises(tr.ToprankError, match="fit_distributed trains a NeuralRanker, not a LinearRanker"):
        cluster.fit_distributed(tr.LinearRanker(), train)
    with pytest.raises(DataError, match="norm='batch' looks at a whole batch"):
        cluster.fit_distributed(tr.NeuralRanker(norm="batch"), train)
    with pytest.raises(DataError, match="callbacks run in this process"):
        cluster.fit_distributed(tr.NeuralRanker(callbacks=[print]), train)
    with pytest.raises(DataError, match="processes must be a whole number"):
        cluster.fit_distributed(tr.NeuralRanker(), train, processes=0)
    with pytest.raises(DataError, match="Give a RankingData, or the path"):
        cluster.fit_distributed(tr.NeuralRanker(), [1, 2])
    with pytest.raises(DataError, match="torchrun"):
        cluster.fit_distributed(tr.NeuralRanker(), train, processes=None)
    for patience in (-1, 0, float("inf"), float("nan"), "60", None, True):
        with pytest.raises(DataError, match="patience must be a positive number"):
            cluster.fit_distributed(tr.NeuralRanker(), train, patience=patience)


def test_what_cannot_be_read_is_said_as_the_reader_says_it(tmp_path, workers):
    missing = tmp_path / "d.toprank-data"
    with pytest.raises(FileError) as alone:
        tr.read(missing)
    for paths in ({"data": missing}, {"data": tr.synthetic(n_queries=5, seed=0), "valid": missing}):
        with pytest.raises(FileError) as found:
            cluster.fit_distributed(tr.NeuralRanker(), processes=1, **paths)
        assert str(found.value) == str(alone.value)
    assert not workers  # before any process is started
    (tmp_path / "problem-1").write_text("file\nIt cannot be read.")  # nor where only a process finds it out
    assert isinstance(neural_group._reason(tmp_path, {}), FileError)


def gone(pid, within=300.0):
    """Whether a process ends, though nobody waits for its status."""
    psutil = pytest.importorskip("psutil")
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the test holds a process up with a named pipe")
def test_a_process_ends_with_the_one_that_started_it(tmp_path):
    """Even where that one is killed; the temporary copy, which nobody else can remove, goes too."""
    folder = tmp_path / "toprank-abc"
    folder.mkdir()
    (folder / "train.toprank-data").write_text("a copy")
    os.mkfifo(folder / "spec")  # which it waits for
    start = (
        "import os, subprocess, sys, time\n"
        f"command = [sys.executable, '-c', {neural_group._WORKER!r}, {str(folder)!r}, str(os.getpid())]\n"
        "print(subprocess.Popen(command, env=os.environ | {'RANK': '0'}).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True) as parent:
        worker = int(parent.stdout.readline())
        parent.kill()
    assert gone(worker)
    assert not folder.exists()


@pytest.mark.nightly
def test_a_training_that_is_terminated_leaves_nothing(tmp_path):
    """SIGTERM, as a batch system sends it: to the process that was started, not to those that it started."""
    script = tmp_path / "train.py"
    script.write_text(
        "import toprank as tr\n"
        "data = tr.synthetic(n_queries=60, seed=0)\n"
        "tr.cluster.fit_distributed(tr.NeuralRanker(epochs=10**6, threads=1), data, processes=2)\n"
    )
    with subprocess.Popen([sys.executable, str(script)]) as parent:
        started = workers_of(parent.pid)
        folder = started[0].cmdline()[-2]
        assert os.path.exists(folder)
        parent.terminate()
        assert parent.wait(300) == -signal.SIGTERM
        assert all(gone(one.pid) for one in started)
        assert not os.path.exists(folder)


@pytest.mark.nightly
def test_under_torchrun(train, valid, tmp_path):
    """Processes that something else started: each calls the same function and gets the same model."""
    tr.write(train, tmp_path / "d.toprank-data")
    script = tmp_path / "train.py"
    script.write_text(
        "import os, toprank as tr, toprank.cluster as c\n"
        "r = tr.NeuralRanker('ListNet', epochs=2, hidden=(8,), dropout=0.0, threads=1)\n"
        f"c.fit_distributed(r, {str(tmp_path / 'd.toprank-data')!r}, processes=None)\n"
        f"r.save({str(tmp_path)!r} + '/m' + os.environ['RANK'] + '.toprank')\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    subprocess.run(command, check=True, timeout=600, capture_output=True)
    models = [tr.load(tmp_path / f"m{rank}.toprank") for rank in range(2)]
    alone = tr.NeuralRanker("ListNet", epochs=2, hidden=(8,), dropout=0.0, threads=1).fit(train)
    np.testing.assert_array_equal(models[0].predict(valid), models[1].predict(valid))
    np.testing.assert_allclose(models[0].predict(valid), alone.predict(valid), rtol=1e-4, atol=1e-5)
