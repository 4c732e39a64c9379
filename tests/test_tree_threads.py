"""Threads of trees: the same bits on any number of them, and as many as find a core where a process asks for that."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toprank as tr
from toprank.cli import main
from toprank.rankers.trees import cores, objective, parameters
from toprank.rankers.trees.cores import FreeCores, free_cores
from toprank.rankers.trees.objective import put_on_grid

# ---- the same bits on any number of threads ----


@given(st.integers(1, 3000), st.floats(0, 12), st.integers(-60, 60), st.integers(0, 2**32 - 1), st.booleans())
def test_sums_on_the_grid_are_exact_in_any_order(n, wide, size, seed, above):
    rng = np.random.default_rng(seed)
    numbers = (rng.normal(size=n) * np.exp(wide * rng.normal(size=n)) * 2.0**size).astype(np.float32)
    numbers = np.abs(numbers) if above else numbers
    numbers[rng.random(n) < 0.1] = 0
    before, largest = numbers.copy(), float(np.abs(numbers).max())
    put_on_grid(numbers, above=above)
    exact = math.fsum(numbers.tolist())
    shuffled = rng.permutation(numbers)
    for order in (numbers, numbers[::-1], shuffled):
        assert float(np.cumsum(order, dtype=np.float64)[-1]) == exact
    step = largest * 2.0 ** (2 + max(2, math.ceil(math.log2(n))) - 53)
    assert (np.abs(numbers.astype(float) - before) <= step).all()
    assert ((numbers > 0) == (before > 0)).all() or not above
    assert not numbers[before == 0].any()


def test_sums_of_other_numbers_are_not_exact():
    rng = np.random.default_rng(0)
    numbers = (rng.normal(size=3000) * np.exp(12 * rng.normal(size=3000))).astype(np.float32)
    assert float(np.cumsum(numbers, dtype=np.float64)[-1]) != float(np.cumsum(np.sort(numbers), dtype=np.float64)[-1])


def wide_data(n_features: int, filled: float, queries: int) -> tr.RankingData:
    """Queries whose weights differ by many orders of magnitude, so that sums depend on their order."""
    rng, size = np.random.default_rng(0), 20
    shape = queries * size, n_features
    X = (rng.normal(size=shape) * (rng.random(shape) < filled)).astype(np.float32)
    weights = np.exp(6 * rng.normal(size=queries))
    labels, qid = rng.integers(0, 4, queries * size).astype(float), np.repeat(np.arange(queries), size)
    return tr.RankingData(X, labels, qid=qid, query_weights=weights)


def trees(data: tr.RankingData, threads: int, **options) -> str:
    booster = tr.TreeRanker(n_trees=5, threads=threads, **options).fit(data).booster_
    return booster.model_to_string().split("end of trees")[0]


FEW, ZEROS = wide_data(5, 1.0, 300), wide_data(60, 0.1, 1000)  # histograms by rows; several sparse features in one


@pytest.mark.parametrize("data", [FEW, ZEROS], ids=["few features", "mostly zeros"])
@pytest.mark.parametrize(
    "options",
    [{"loss": "LambdaRank"}, {"loss": "Multinomial", "outputs": "grades"}, {"loss": "ListNet", "query_fraction": 0.5}],
    ids=["LambdaRank", "Multinomial", "ListNet"],
)
def test_trees_are_the_same_bits_on_any_number_of_threads(data, options):
    once = trees(data, 1, **options)
    assert trees(data, 2, **options) == once
    assert trees(data, 3, **options) == once


@pytest.mark.parametrize("data", [FEW, ZEROS], ids=["few features", "mostly zeros"])
def test_without_the_grid_they_are_not(data, monkeypatch):
    monkeypatch.setattr(objective, "put_on_grid", lambda *_, **__: None)
    assert trees(data, 3, loss="LambdaRank") != trees(data, 1, loss="LambdaRank")


# ---- as many as find a core ----


def machine(tmp_path, monkeypatch, *, seen: int, of: int | None, running: int = 1, group: dict[str, str] | None = None):
    """A machine of so many cores, of which the process may use those seen, as its files tell."""
    monkeypatch.setattr(cores, "_ROOT", tmp_path)
    monkeypatch.setattr(cores, "_INTERVAL", 0.0)
    monkeypatch.setattr(cores, "available_threads", lambda: seen)
    (tmp_path / "proc/self").mkdir(parents=True)
    if of is not None:
        lines = ["cpu  9 9", *(f"cpu{core} 1 1" for core in range(of)), "ctxt 5", f"procs_running {running}"]
        (tmp_path / "proc/stat").write_text("\n".join(lines) + "\n")
    for name, content in (group or {}).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@pytest.mark.parametrize(
    ("seen", "of", "running", "threads"),
    [
        (2, 2, 1, 2),  # this process alone
        (2, 2, 2, 1),
        (2, 2, 3, 1),
        (2, 2, 40, 1),
        (8, 8, 4, 5),
        (2, 64, 41, 2),  # two cores of a machine that has others free
        (2, 64, 64, 1),
    ],
)
def test_threads_are_those_that_find_a_core(tmp_path, monkeypatch, seen, of, running, threads):
    machine(tmp_path, monkeypatch, seen=seen, of=of, running=running)
    found = free_cores()
    assert found.threads == threads
    if threads == seen:
        assert found.why == ""
    else:
        busy = min(running - 1, of)
        assert found.why.endswith(f", because other processes use {busy} of {of} cores.")


SECOND = {"proc/self/cgroup": "0::/box\n"}
FIRST = {"proc/self/cgroup": "5:memory:/\n4:cpu,cpuacct:/\n"}
FOLDER = "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_"


@pytest.mark.parametrize(
    ("group", "threads"),
    [
        (SECOND | {"sys/fs/cgroup/box/cpu.max": "200000 100000\n"}, 2),
        (SECOND | {"sys/fs/cgroup/box/cpu.max": "150000 100000\n"}, 2),
        (SECOND | {"sys/fs/cgroup/box/cpu.max": "50000 100000\n"}, 1),
        (SECOND | {"sys/fs/cgroup/box/cpu.max": "max 100000\n"}, 8),
        (SECOND | {"sys/fs/cgroup/box/cpu.max": "max 100000\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),
        (SECOND | {"sys/fs/cgroup/box/cpu.max": "\n"}, 8),
        (FIRST | {f"{FOLDER}quota_us": "400000\n", f"{FOLDER}period_us": "100000\n"}, 4),
        (FIRST | {f"{FOLDER}quota_us": "-1\n", f"{FOLDER}period_us": "100000\n"}, 8),
        ({}, 8),
    ],
)
def test_threads_are_within_the_limits_of_a_container(tmp_path, monkeypatch, group, threads):
    machine(tmp_path, monkeypatch, seen=8, of=8, group=group)
    found = free_cores()
    assert found.threads == threads
    assert ("the limit of the container" in found.why) == (threads < 8)


def test_a_moment_does_not_count(tmp_path, monkeypatch):
    """Of five looks the middle one: a process that runs for two of them is none that a training meets."""
    machine(tmp_path, monkeypatch, seen=2, of=2)
    stat, turns = tmp_path / "proc/stat", iter([9, 1, 9, 1, 1])

    def look(_):
        stat.write_text(f"cpu0 1\ncpu1 1\nprocs_running {next(turns, 1)}\n")

    look(None)
    monkeypatch.setattr(cores.time, "sleep", look)
    assert free_cores() == FreeCores(2, "")


@pytest.mark.parametrize(("load", "threads"), [(0.4, 4), (1.9, 3), (4.2, 1), (90.0, 1)])
def test_the_load_where_the_system_does_not_tell_who_runs(tmp_path, monkeypatch, load, threads):
    machine(tmp_path, monkeypatch, seen=4, of=None)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    assert free_cores().threads == threads


@pytest.fixture
def busy(monkeypatch):
    """Four cores, one of them free, and data with enough to do for all."""
    monkeypatch.setattr(parameters, "available_threads", lambda asked=None: 4 if asked is None else asked)
    monkeypatch.setattr(parameters, "free_cores", lambda: FreeCores(1, "Trees grow on 1 thread: so be it."))
    monkeypatch.setattr(parameters, "_CELLS_PER_THREAD", 10)


def test_only_a_process_that_is_asked_to_leaves_cores_to_others(busy, monkeypatch):
    data = tr.synthetic(n_queries=20, seed=0)
    monkeypatch.delenv(cores.VARIABLE, raising=False)
    assert parameters.training_threads(None, data).threads == 4
    monkeypatch.setenv(cores.VARIABLE, "0")
    assert parameters.training_threads(None, data).threads == 4
    monkeypatch.setenv(cores.VARIABLE, "1")
    assert parameters.training_threads(None, data).threads == 1
    assert parameters.training_threads(3, data) == FreeCores(3, "")


def test_small_data_are_not_asked_for(busy, monkeypatch):
    def never():
        raise AssertionError("one thread finds a core anyway")

    monkeypatch.setenv(cores.VARIABLE, "1")
    monkeypatch.setattr(parameters, "free_cores", never)
    monkeypatch.setattr(parameters, "_CELLS_PER_THREAD", 1 << 30)
    assert parameters.training_threads(None, tr.synthetic(n_queries=20, seed=0)).threads == 1


def test_a_training_that_is_followed_says_so_and_its_model_is_the_same(busy, monkeypatch, capfd, tmp_path):
    data = tr.synthetic(n_queries=60, seed=0)
    options = {"n_trees": 3, "min_data_in_leaf": 5}
    monkeypatch.delenv(cores.VARIABLE, raising=False)
    tr.TreeRanker(**options).fit(data).save(tmp_path / "all.toprank")
    monkeypatch.setenv(cores.VARIABLE, "1")
    tr.TreeRanker(**options).fit(data).save(tmp_path / "one.toprank")
    assert capfd.readouterr().err == ""
    assert (tmp_path / "all.toprank").read_bytes() == (tmp_path / "one.toprank").read_bytes()
    tr.TreeRanker(**options, verbose=True).fit(data)
    assert capfd.readouterr().err.startswith("Trees grow on 1 thread: so be it.\n")


@pytest.mark.parametrize("before", [None, "0"])
def test_commands_leave_busy_cores_unless_the_user_decided(before, monkeypatch, run_command):
    if before is not None:
        monkeypatch.setenv(cores.VARIABLE, before)
    monkeypatch.setattr(main, "_run", lambda: None)
    run_command()
    assert os.environ[cores.VARIABLE] == (before or "1")
