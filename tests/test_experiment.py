"""Experiments: test data judged once and last, nothing computed twice, and a killed run goes on where it was."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.base import BaseEstimator

import toprank as tr
from support import nightly, shared_data
from toprank import systems
from toprank.data.folds import Fold
from toprank.errors import DataError, FileError, FormatError, UnknownNameError
from toprank.experiment import Experiment, Results, running, training
from toprank.experiment import provenance as content
from toprank.experiment import training as processes
from toprank.experiment.provenance import described, key_of
from toprank.experiment.running import Progress
from toprank.experiment.spec import entries_of
from toprank.experiment.store import CellStore
from toprank.significance import crossed_random_effects_interval

DATA = tr.synthetic(n_queries=45, n_documents=(2, 12), n_features=4, n_grades=3, seed=1)
PAIR = ["LeastSquares", "RankNet-linear"]
METRICS = ("ndcg@10", "map")
OWN = replace(tr.metrics.CONVENTIONS["letor4"], name="standard")


def experiment(systems=PAIR, data=DATA, **options):
    return Experiment(data, systems, **{"n_folds": 3, "threads": 1, "metrics": METRICS, **options})


@pytest.fixture(scope="module")
def results():
    return experiment(conventions=("standard", "skip-blank")).run()


@pytest.fixture
def computed(monkeypatch):
    """The keys that are computed from now on."""
    keys = []
    original = training.compute

    def noting(task, *rest):
        keys.append(task.key)
        return original(task, *rest)

    monkeypatch.setattr(processes, "compute", noting)
    return keys


class Column(BaseEstimator):
    """Ranks by one feature; fails on request, and is random where it has a seed."""

    def __init__(self, column=0, fails=None, seed=0):
        self.column, self.fails, self.seed = column, fails, seed

    def fit(self, train, valid=None):
        if self.fails is not None and self.fails in train.qids:
            raise DataError("This ranker does not like one of the queries.")
        self.noise_ = np.random.default_rng(self.seed).normal()
        return self

    def predict(self, data):
        return data.X[:, self.column] * self.noise_


class Plain(BaseEstimator):
    """Ranks by one feature; nothing about it is random."""

    def __init__(self, column=0):
        self.column = column

    def fit(self, train, valid=None):
        return self

    def predict(self, data):
        return data.X[:, self.column].astype(np.float64)


# What is computed


def test_a_cell_is_what_select_chooses(results):
    for fold in tr.folds(DATA, 3):
        for system in PAIR:
            chosen = tr.grid_search(system, fold.train, fold.valid, threads=1)
            cell = results.cell("data", fold.name, system)
            assert cell.options == chosen.options
            assert (cell.valid, cell.metric) == (chosen.value, chosen.metric)
            assert [row["valid"] for row in cell.candidates] == [row["value"] for row in chosen.trials]
            assert cell.fingerprints == {part: getattr(fold, part).fingerprint for part in ("train", "valid", "test")}
            np.testing.assert_array_equal(results.scores("data", fold.name, system), chosen.ranker.predict(fold.test))


def test_values_are_those_of_evaluate(results):
    for convention in ("standard", "skip-blank"):
        for metric in METRICS:
            values = results.values(metric, convention)
            for fold in tr.folds(DATA, 3):
                scores = results.scores(None, fold.name, "LeastSquares")
                expected = tr.evaluate(scores, fold.test, metric, convention=convention).per_query[metric]
                np.testing.assert_array_equal(values["LeastSquares"][fold.name], expected)


@pytest.mark.parametrize("threads", [1, *nightly(2)])
def test_poisoned_test_labels_change_no_choice_and_no_score(threads):
    """Test labels turned upside down: what is learned and chosen must be the same, to the bit."""
    honest = list(tr.folds(DATA, 3))
    poisoned = [replace(fold, test=fold.test.replace(labels=2.0 - fold.test.labels)) for fold in honest]
    names = [*PAIR, "AdaRank-NDCG", "LambdaMART"]
    options = {"LambdaMART": ("LambdaMART", {"n_trees": 5, "min_data_in_leaf": 2})}
    asked = {name: options.get(name, name) for name in names}
    clean, dirty = (experiment(asked, data, threads=threads).run() for data in (honest, poisoned))
    for one, other in zip(clean.cells, dirty.cells, strict=True):
        assert (one.options, one.valid, one.candidates) == (other.options, other.valid, other.candidates)
        assert one.key != other.key  # nothing came from a cache
        np.testing.assert_array_equal(
            clean.scores(None, one.fold, one.system), dirty.scores(None, other.fold, other.system)
        )
    assert clean.pooled() != dirty.pooled()


def test_training_never_sees_test_labels(monkeypatch):
    seen = []
    original = training.compute
    monkeypatch.setattr(processes, "compute", lambda task, *rest: (seen.append(task.data), original(task, *rest))[1])
    experiment(["LeastSquares"]).run()
    assert len(seen) == 3
    assert all(np.isnan(fold.test.labels).all() for fold in seen)


def test_other_processes_are_given_no_test_labels(monkeypatch):
    """What they can see of a fold are the stored copies, and nothing else of it travels with a task."""
    seen = []
    original = running.compute_in_workers

    def noting(tasks, *rest):
        def each():
            for task in tasks:
                assert isinstance(task.data, Path)
                parts = {part: tr.read(task.data / f"{part}.toprank-data") for part in ("train", "valid", "test")}
                seen.append({part: np.isnan(data.labels).mean() for part, data in parts.items()})
                yield task

        return original(each(), *rest)

    monkeypatch.setattr(running, "compute_in_workers", noting)
    experiment(["LeastSquares"], threads=2).run()
    assert seen == [{"train": 0.0, "valid": 0.0, "test": 1.0}] * 3


def test_fractional_labels_above_zero_are_relevant():
    data = DATA.replace(labels=DATA.labels / 4)
    results = experiment(["LeastSquares"], data, metrics="map").run()
    relevant = dict(zip(map(str, data.qids), data.queries.sum(data.labels > 0), strict=True))
    assert all(row["relevant"] == relevant[row["qid"]] for row in results.per_query.to_pylist())


def test_processes_and_threads_give_the_same_bits(tmp_path):
    asked = {"LeastSquares": "LeastSquares", "trees": ("LambdaMART", {"n_trees": 5, "row_fraction": 0.5})}
    alone = experiment(asked, threads=1).run()
    together = experiment(asked, threads=2, cache_dir=tmp_path).run()
    assert alone.per_query.equals(together.per_query)
    assert [cell.key for cell in alone.cells] == [cell.key for cell in together.cells]


def test_a_ranker_is_fitted_as_it_is():
    path = tr.LinearRanker("ListNet", l2=[1.0, 0.1], metric="map")
    results = experiment({"path": path, "one": tr.LinearRanker("ListNet", l2=0.1)}).run()
    fold = tr.folds(DATA, 3)[0]
    fitted = tr.LinearRanker("ListNet", l2=[1.0, 0.1], metric="map", threads=1).fit(fold.train, valid=fold.valid)
    cell = results.cell(None, "Fold1", "path")
    assert cell.options == {"l2": fitted.l2_}
    assert (cell.metric, cell.valid) == ("map", fitted.training_["valid"]["map"])
    assert cell.importances == tuple(fitted.feature_importances_)
    np.testing.assert_array_equal(results.scores(None, "Fold1", "path"), fitted.predict(fold.test))
    assert results.cell(None, "Fold1", "one").options == {}


def test_what_is_chosen_by():
    results = experiment(["LeastSquares"], selection_metric="map", selection_convention="letor4").run()
    fold = tr.folds(DATA, 3)[0]
    chosen = tr.grid_search("LeastSquares", fold.train, fold.valid, metric="map", convention="letor4")
    cell = results.cells[0]
    assert (cell.metric, cell.convention) == ("map", "letor4")
    assert (cell.options, cell.valid) == (chosen.options, chosen.value)


def test_select_by_leaves_given_rankers_alone(tmp_path, computed):
    path = tr.LinearRanker("ListNet", l2=[1.0, 0.1], metric="map", convention="letor4")
    results = experiment({"path": path}, selection_metric="ndcg@3", cache_dir=tmp_path).run()
    fold = tr.folds(DATA, 3)[0]
    fitted = tr.LinearRanker("ListNet", l2=[1.0, 0.1], metric="map", convention="letor4").fit(
        fold.train, valid=fold.valid
    )
    cell = results.cells[0]
    assert (cell.metric, cell.convention, cell.valid) == ("map", "letor4", fitted.training_["valid"]["map"])
    experiment({"path": path}, cache_dir=tmp_path).run()
    assert len(computed) == 3


def test_a_given_ranker_keeps_its_seed_unless_seeds_are_asked_for():
    options = {"n_trees": 5, "row_fraction": 0.5, "min_data_in_leaf": 2, "threads": 1}
    given = {f"s{seed}": tr.TreeRanker(seed=seed, **options) for seed in (7, 8)}
    given["loss"] = tr.LinearRanker(tr.losses.make("XENDCG", seed=9))
    results = experiment({**given, "by name": ("LambdaMART", options)}).run()
    fold = tr.folds(DATA, 3)[0]
    for name, ranker in given.items():
        direct = ranker.fit(fold.train, valid=fold.valid).predict(fold.test)
        np.testing.assert_array_equal(results.scores(None, "Fold1", name), direct)
    assert (results.scores(None, "Fold1", "s7") != results.scores(None, "Fold1", "s8")).any()
    seeds = {cell.system: cell.seed for cell in results.cells}
    assert seeds == {"s7": 7, "s8": 8, "loss": 9, "by name": 0}
    assert results.seeds == (7, 8, 9, 0)
    assert results.n_seeds == 1
    assert "seeds" not in str(results)
    assert len(results.pooled()) == 4
    asked = experiment({name: given[name] for name in ("s7", "s8")}, seeds=3).run()
    assert {cell.seed for cell in asked.cells} == {3}
    assert asked.pooled()["s7"] == asked.pooled()["s8"]


def test_a_convention_of_ones_own_to_choose_by(tmp_path, computed):
    own = replace(tr.metrics.CONVENTIONS["letor4"], name="mine", no_relevant="skip")
    for selection_convention, fits in ((own, 3), (own, 0), (replace(own, no_relevant="one"), 3)):
        del computed[:]
        results = experiment(
            ["LeastSquares"], cache_dir=tmp_path, selection_metric="ndcg@5", selection_convention=selection_convention
        )
        cell = results.run().cells[0]
        assert len(computed) == fits
        fold = tr.folds(DATA, 3)[0]
        chosen = tr.grid_search(
            "LeastSquares", fold.train, fold.valid, metric="ndcg@5", convention=selection_convention
        )
        assert (cell.convention, cell.valid, cell.options) == ("mine", chosen.value, chosen.options)
    together = experiment(["LeastSquares"], selection_metric="ndcg@5", selection_convention=own, threads=2).run()
    assert together.cells[0].convention == "mine"


def test_seeds_go_to_those_that_draw():
    fixed = ("LambdaMART", {"seed": 3, "n_trees": 2})
    results = experiment({"random": Column(), "plain": Plain(), "fixed": fixed}, seeds=(0, 5)).run()
    seeds = Counter((cell.system, cell.seed) for cell in results.cells)
    assert seeds == {("random", 0): 3, ("random", 5): 3, ("plain", None): 3, ("fixed", None): 3}
    fold = tr.folds(DATA, 3)[0]
    for seed in (0, 5):
        scores = Column(seed=seed).fit(fold.train).predict(fold.test)
        np.testing.assert_array_equal(results.scores(None, "Fold1", "random", seed), scores)
        np.testing.assert_array_equal(results.scores(None, "Fold1", "plain", seed), fold.test.X[:, 0])
    of_seeds = [
        tr.evaluate(results.scores(None, "Fold1", "random", seed), fold.test).per_query["ndcg@10"] for seed in (0, 5)
    ]
    np.testing.assert_array_equal(results.values()["random"]["Fold1"], (of_seeds[0] + of_seeds[1]) / 2)
    assert "mean over 2 seeds ± their standard deviation" in str(results)
    rows = results.seed_values()["random"]
    assert {fold: of.shape[0] for fold, of in rows.items()} == dict.fromkeys(rows, 2)
    means = [np.mean([of[seed].mean() for of in rows.values()]) for seed in (0, 1)]
    assert results.seed_std() == {"random": pytest.approx(np.std(means, ddof=1)), "plain": None, "fixed": None}
    assert f" ± {np.std(means, ddof=1):.4f}" in str(results)
    plain = results.seed_values()["plain"]
    [with_seeds, without] = [
        next(d for d in results.compare(baseline="plain").differences if d.a == name) for name in ("random", "fixed")
    ]
    expected = crossed_random_effects_interval([rows[fold] - plain[fold] for fold in rows])
    assert with_seeds.interval == expected
    assert "bootstrap" in without.interval.detail or without.interval.detail != expected.detail


def test_intervals_in_slices_and_their_description_cover_the_seeds():
    results = experiment({"random": Column(), "plain": Plain()}, seeds=(0, 5)).run()
    rows, plain = results.seed_values()["random"], results.seed_values()["plain"]
    halves = np.arange(sum(of.shape[1] for of in rows.values())) % 2
    compared = results.compare(metrics="ndcg@10", baseline="plain", slice_by=halves, min_queries=2)
    ends = np.cumsum([of.shape[1] for of in rows.values()])[:-1]
    for name, chosen in (("0", halves == 0), ("1", halves == 1)):
        [row] = compared.slices[name]
        parts = zip(rows, np.split(chosen, ends), strict=True)
        tables = [(rows[fold] - plain[fold])[:, part] for fold, part in parts]
        assert row.tested.interval == crossed_random_effects_interval(tables)
    for words in (compared.methods, str(results)):
        assert "t intervals over queries and seeds (crossed random effects, 2 seeds)" in words
    once = experiment({"random": Column(), "plain": Plain()}, seeds=(0,)).run().compare()
    assert "Intervals: studentized bootstrap, 10,000 resamples, each for itself." in once.methods


@pytest.mark.parametrize(
    ("system", "draws"),
    [
        ("LeastSquares", False),
        ("ListMLE", False),
        (("ListMLE", {"ties": "random"}), True),
        ("LambdaMART", True),
        ("CoordinateAscent", True),
        (tr.LinearRanker("XENDCG"), True),
        (tr.LinearRanker("ListNet"), False),
    ],
)
def test_who_draws(system, draws):
    [entry] = entries_of({"one": system})
    assert entry.random is draws
    if draws:
        fold = tr.folds(DATA, 3)[0]
        for seed in (3, 4):
            chosen = entry.choose(fold, None, "standard", seed, threads=1)
            given = chosen.ranker.get_params(deep=False)
            assert given.get("seed", getattr(given.get("loss"), "seed", None)) == seed


# What is not computed


def test_a_finished_experiment_costs_no_training(tmp_path, computed):
    first = experiment(cache_dir=tmp_path).run()
    assert len(computed) == 6
    again = experiment(cache_dir=tmp_path).run()
    other = experiment(cache_dir=tmp_path, metrics=("err@5", "rr"), conventions=("letor4", "sklearn")).run()
    assert len(computed) == 6
    assert again.per_query.equals(first.per_query)
    assert other.metrics == ("err@5", "rr")
    more = experiment([*PAIR, "RankCosine"], cache_dir=tmp_path).run()
    assert len(computed) == 9
    assert more.pooled()["LeastSquares"] == first.pooled()["LeastSquares"]


def test_a_cell_depends_on_everything_that_its_scores_depend_on(tmp_path, computed):
    def fits(*arguments, **options):
        del computed[:]
        experiment(*arguments, cache_dir=tmp_path, **options).run()
        return len(computed)

    system = replace(systems.get("LambdaMART"), options={"n_trees": 2})
    assert fits([system]) == 3
    assert fits([system]) == 0
    assert fits([system], selection_metric="map") == 3
    assert fits([system], selection_convention="letor4") == 3
    assert fits([system], seeds=(1,)) == 3
    assert fits({"another name": (system, {})}) == 0
    assert fits([replace(system, idea="the same in other words")]) == 0
    assert fits({"a": (system, {"num_leaves": 15})}) == 3
    assert fits({"a": (system, {"n_trees": 3})}) == 3
    assert fits({"a": replace(system, grid={"num_leaves": (15, 7)})}) == 3
    assert fits({"a": replace(system, metric="map")}) == 3
    labels = DATA.labels.copy()
    query = tr.folds(DATA, 3)[0].test.qids[0]
    rows = np.flatnonzero(DATA.qid == query)
    labels[rows[0]] = 2.0 - labels[rows[0]] if labels[rows[0]] != 1 else 2.0
    assert fits([system], DATA.replace(labels=labels)) == 3  # it lies in a part of every fold
    X = DATA.X.copy()
    X[rows[0], 0] += 1
    assert fits([system], DATA.replace(X=X)) == 3


def test_counts_of_one_are_singular(results):
    assert "Holm over 2 tests (1 system × 2 metrics)." in str(results)
    whole = Fold("all", *tr.split(DATA))
    assert repr(experiment(data=[whole])).startswith("Experiment(data (1 fold); ")
    assert repr(experiment()).startswith("Experiment(data (3 folds); ")


def test_one_thing_under_two_names_is_computed_once(computed):
    results = experiment({"a": "LeastSquares", "b": ("LeastSquares", {})}).run()
    assert len(computed) == 3
    assert results.pooled()["a"] == results.pooled()["b"]
    assert len(results.cells) == 6


def test_a_damaged_cell_is_computed_again(tmp_path, computed):
    first = experiment(cache_dir=tmp_path).run()
    keys = [cell.key for cell in first.cells]
    (tmp_path / "cells" / f"{keys[0]}.json").write_text("{")
    (tmp_path / "cells" / f"{keys[1]}.npy").write_bytes(b"")
    CellStore(tmp_path)._file(keys[2], ".npy").unlink()
    np.save(tmp_path / "cells" / f"{keys[3]}.npy", np.zeros(3))
    del computed[:]
    again = experiment(cache_dir=tmp_path).run()
    assert sorted(computed) == sorted(keys[:4])
    assert again.per_query.equals(first.per_query)


def test_a_class_of_your_own_is_trained_again_when_its_source_changes(tmp_path, monkeypatch):
    text = "from sklearn.base import BaseEstimator\nclass Mine(BaseEstimator):\n    number = {}\n"
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    for number in (1, 1, 2):
        seen.append(described(written_again(tmp_path, "mine_for_keys", text.format(number)).Mine()))
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize(
    "member",
    [
        "def fit(self): return {}",
        "number = {}",
        "numbers = [{}]",
        "@property\n    def number(self): return {}",
        "@staticmethod\n    def number(): return {}",
        "@classmethod\n    def number(cls): return {}",
        "number = lambda self, of={}: of",
        "def fit(self): return super().fit({})",
    ],
)
@pytest.mark.parametrize("inherited", [False, True])
def test_a_class_typed_at_a_prompt_is_told_by_its_code(member, inherited):
    def mine(number):
        names = {"__name__": "typed"}
        exec(f"class Mine:\n    def get_params(self, deep): return {{}}\n    {member.format(number)}", names)
        exec("class Heir(Mine): pass", names)
        return described(names["Heir" if inherited else "Mine"]())

    assert mine(1) == mine(1) != mine(2)


def written_again(folder, name, text):
    """A module with this source, imported afresh."""
    import linecache

    (folder / f"{name}.py").write_text(text)
    sys.modules.pop(name, None)
    linecache.checkcache()
    return __import__(name)


def test_functions_are_told_by_their_code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)

    def typed(text, **names):
        exec(text, names)
        return described(Plain(names["f"]))

    def closed(number):
        return described(Plain(lambda x: x + number))

    for one in (
        lambda n: typed(f"f = lambda x: x + {n}"),
        lambda n: typed(f"f = lambda x, y={n}: x + y"),
        lambda n: typed(f"def f(x):\n    def g(y): return {n}\n    return g"),
        lambda n: typed(f"from functools import partial\ndef g(x, y): return x\nf = partial(g, {n})"),
        closed,
        lambda n: described(Plain(written_again(tmp_path, "own_function", f"k = {n}\ndef f(x): return k").f)),
    ):
        assert one(1) == one(1) != one(2)
    assert described(tr.synthetic) != described(tr.split)


def test_a_key_depends_on_the_source_of_every_room_that_fits_and_chooses():
    """A room that is renamed or added must not fall out of the keys."""
    script = (
        "import sys\n"
        "import toprank as tr\n"
        "parts = tr.split(tr.synthetic(n_queries=40, seed=0), (0.5, 0.5))\n"
        "tr.auto(*parts, time_budget=None, max_trials=2, threads=1, verbose=False)\n"
        "print(*{name.split('.')[1] for name in sys.modules if name.startswith('toprank.')})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    rooms = {room.removesuffix(".py") for room in content._ROOMS}
    home = Path(tr.__file__).parent
    assert all((home / room).exists() for room in content._ROOMS)
    assert set(done.stdout.split()) - rooms <= {"display", "errors", "kernels", "lazy_imports"}


def test_a_set_in_a_function_is_the_same_in_every_process():
    script = (
        "from toprank.experiment.provenance import described\n"
        "f = lambda x: x in {'a', 'b', 'c', 'd'}\n"
        "print(described(f))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, env={**os.environ, "PYTHONHASHSEED": s}
        ).stdout
        for s in ("1", "2", "3")
    }
    assert len(seen) == 1
    assert b"function" in seen.pop()


def test_a_class_is_told_by_those_it_inherits_from(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)

    def heir(number):
        written_again(tmp_path, "base_for_keys", f"class Base:\n    number = {number}\n")
        text = "from sklearn.base import BaseEstimator\nfrom base_for_keys import Base\n"
        module = written_again(tmp_path, "heir_for_keys", text + "class Heir(Base, BaseEstimator): pass\n")
        return described(module.Heir())

    assert heir(1) == heir(1) != heir(2)


def test_a_key_tells_versions_apart(monkeypatch):
    def key(system, **changed):
        monkeypatch.setattr(content, "versions", lambda: {**content_versions, **changed})
        return key_of({"train": "x"}, system, None, None, "standard")

    content_versions = dict(content.versions())
    trees, network = (
        systems.get("LambdaMART"),
        next(one for one in systems.SYSTEMS.values() if one.ranker == "NeuralRanker"),
    )
    plain, deep = (entries_of([one])[0].describe() for one in (trees, network))
    own = described(Plain())
    for package in ("numpy", "scipy", "scikit-learn", "lightgbm"):
        assert key(plain) != key(plain, **{package: "0.0.0"})
    assert key(plain) == key(plain, torch="0.0.0") == key(plain, pyarrow="0.0.0")
    assert key(deep) != key(deep, torch="0.0.0")
    assert key(own) != key(own, torch="0.0.0")


class Bent(tr.LinearRanker):
    """A ranker of somebody's own, with a parameter that its parent does not know."""

    def __init__(self, bend=1.0):
        super().__init__()
        self.bend = bend


def test_descriptions_tell_values_apart():
    values = [1, 2, 0.5, "a", None, True, np.arange(3), np.arange(4), [1, 2], {"a": 1}]
    values += [tr.losses.ListNet(), tr.losses.ListNet(alpha=2.0), tr.losses.Squared()]
    values += [tr.LinearRanker(), tr.LinearRanker(l2=1.0), Bent(), Bent(2.0)]
    texts = [json.dumps(described(value)) for value in values]
    assert len(set(texts)) == len(values)
    assert described(np.float64(0.5)) == 0.5
    keys = {key_of({"train": "x"}, text, None, None, "standard") for text in texts}
    assert len(keys) == len(values)
    with pytest.raises(DataError, match="cannot be pickled"):
        described(threading.Lock())


# Killed, interrupted, failing

SLOW = """
import os, time
from sklearn.base import BaseEstimator

class Slow(BaseEstimator):
    def __init__(self, column=0):
        self.column = column

    def fit(self, train, valid=None):
        with open(os.environ["SLOW_LOG"], "a") as log:
            log.write(f"{train.fingerprint} {os.getpid()}\\n")
        time.sleep(float(os.environ["SLOW_SECONDS"]))
        return self

    def predict(self, data):
        return data.X[:, self.column].astype("f8")

class Deadly(Slow):
    def predict(self, data):
        os.kill(os.getpid(), 9)
"""


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A module with slow rankers, which other processes can import, too."""
    (tmp_path / "slow_rankers.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SLOW_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("SLOW_SECONDS", "0")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "log").touch()
    import slow_rankers

    yield slow_rankers
    del sys.modules["slow_rankers"]


def fits(folder):
    return [line.split() for line in (folder / "log").read_text().splitlines()]


def finished(folder):
    return list((folder / "run" / "cells").glob("*.json")) if (folder / "run" / "cells").is_dir() else []


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_a_killed_run_goes_on_where_it_was(tmp_path, slow, monkeypatch):
    tr.write(DATA, tmp_path / "data.toprank-data")
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import toprank as tr
        from slow_rankers import Slow
        from toprank.experiment import Experiment
        data = {str(tmp_path / "data.toprank-data")!r}
        systems = {{"a": Slow(0), "b": Slow(1)}}
        Experiment(data, systems, n_folds=5, threads=2, cache_dir={str(tmp_path / "run")!r}).run()
    """)  # no `if __name__ == "__main__"`: nobody runs the script a second time
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "SLOW_SECONDS": "1"})
    try:
        wait_for(lambda: len(finished(tmp_path)) >= 2, "two cells")
    finally:
        process.kill()
        process.wait()
    workers = {int(pid) for _, pid in fits(tmp_path)}
    assert len(workers) == 2
    assert process.pid not in workers
    if Path("/proc/self/stat").exists():
        wait_for(lambda: not any(map(alive, workers)), "the workers to notice")
        wait_for(lambda: not list((tmp_path / "tmp").glob("toprank-folds-*")), "copies of the data to go")
    done = {path.stem: path.stat().st_mtime_ns for path in finished(tmp_path)}
    assert 2 <= len(done) < 10
    (tmp_path / "log").write_text("")
    again = experiment(
        {"a": slow.Slow(0), "b": slow.Slow(1)}, tmp_path / "data.toprank-data", n_folds=5, cache_dir=tmp_path / "run"
    ).run()
    assert len(fits(tmp_path)) == 10 - len(done)
    assert all((tmp_path / "run" / "cells" / f"{key}.json").stat().st_mtime_ns == time for key, time in done.items())
    whole = experiment({"a": slow.Slow(0), "b": slow.Slow(1)}, {"data": DATA}, n_folds=5).run()
    assert again.per_query.equals(whole.per_query)


def test_ctrl_c_ends_the_workers_and_says_how_to_go_on(tmp_path, slow, monkeypatch):
    monkeypatch.setenv("SLOW_SECONDS", "60")
    asked = {"quick": "LeastSquares", "slow": slow.Slow()}

    def press():
        wait_for(lambda: finished(tmp_path) and fits(tmp_path), "a cell")
        wait_for(lambda: list((tmp_path / "tmp").glob("*/2/test.toprank-data")), "the last copy to be written")
        os.kill(os.getpid(), signal.SIGINT)

    finger = threading.Thread(target=press)
    finger.start()
    with pytest.raises(
        KeyboardInterrupt, match=r"Stopped: \d of 6 cells.* are in .*run\. Run the same experiment again to resume"
    ):
        experiment(asked, threads=2, cache_dir=tmp_path / "run").run()
    finger.join()
    assert not any(alive(int(pid)) for _, pid in fits(tmp_path))
    assert not list((tmp_path / "tmp").iterdir())
    monkeypatch.setenv("SLOW_SECONDS", "0")
    assert len(experiment(asked, cache_dir=tmp_path / "run").run().cells) == 6


class Stubborn(Plain):
    """Catches Ctrl-C and returns what it has, as our solvers do."""

    def fit(self, train, valid=None):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return self


def test_what_a_solver_saves_from_ctrl_c_is_no_result(tmp_path):
    with pytest.raises(KeyboardInterrupt, match="again to resume"):
        experiment({"stubborn": Stubborn()}, cache_dir=tmp_path).run()
    assert not list((tmp_path / "cells").iterdir())
    with pytest.raises(KeyboardInterrupt, match="Nothing was kept"):
        experiment({"stubborn": Stubborn()}).run()


def test_a_system_that_fails_does_not_end_the_others(tmp_path):
    unlucky = tr.folds(DATA, 3)[0].test.qids[0]
    results = experiment({"bad": Column(fails=unlucky), "good": Plain()}, cache_dir=tmp_path).run()
    folds = [fold.name for fold in tr.folds(DATA, 3) if unlucky in fold.train.qids]
    assert 0 < len(folds) < 3
    assert [(one.system, one.fold) for one in results.failures] == [("bad", fold) for fold in folds]
    assert list(results.pooled()) == ["good"]
    for shown in (str(results), str(Results.read(tmp_path))):
        assert re.search(r"^bad +– +–$", shown, re.MULTILINE)
        assert f"bad failed on {', '.join(folds)}: This ranker does not like one of the queries." in shown
    with pytest.raises(DataError, match="does not like"):
        results.cell(None, folds[0], "bad")
    with pytest.raises(DataError, match="at least two"):
        results.compare()
    assert results.to_dict()["failures"][0]["error"].startswith("This ranker")


def test_all_fail():
    results = experiment({"bad": Plain(column=99), "worse": tr.LinearRanker(l2=-1.0)}).run()
    assert results.cells == []
    assert results.per_query.num_rows == 0
    assert results.fold_means() == {}
    errors = {one.error for one in results.failures}
    assert any(error.startswith("IndexError") for error in errors)
    assert any(error.startswith("l2 must be") for error in errors)
    assert "bad failed on Fold1, Fold2, Fold3" in str(results)


def test_a_process_that_dies_or_cannot_rebuild_a_system_is_told(slow, monkeypatch):
    monkeypatch.setitem(sys.modules, "nowhere_on_disk", types.ModuleType("nowhere_on_disk"))
    monkeypatch.setattr(slow.Slow, "__module__", "nowhere_on_disk")
    monkeypatch.setattr("nowhere_on_disk.Slow", slow.Slow, raising=False)
    asked = {"deadly": slow.Deadly(), "lost": slow.Slow(), "good": "LeastSquares"}
    results = experiment(asked, [tr.folds(DATA, 3)[0]], threads=2).run()
    errors = {one.system: one.error for one in results.failures}
    assert errors.keys() == {"deadly", "lost"}
    assert errors["deadly"].startswith("The worker process was killed by SIGKILL")
    assert "No module named 'nowhere_on_disk'" in errors["lost"]
    assert list(results.pooled()) == ["good"]


def test_systems_defined_in_a_script_stay_in_its_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import numpy as np
        import toprank as tr
        from sklearn.base import BaseEstimator
        from toprank.experiment import Experiment

        class Mine(BaseEstimator):
            def fit(self, train, valid=None):
                return self
            def predict(self, data):
                return data.X[:, 0]

        data = tr.synthetic(n_queries=9, seed=0)
        fold = tr.folds(data, 3)[0]
        results = Experiment([fold], {"mine": Mine(), "theirs": "LeastSquares"}, threads=2).run()
        print(len(results.cells), results.failures)
    """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("2 []\n", "")


# What comes out


def test_per_query_rows_add_up_to_the_printed_means(tmp_path):
    """Both aggregations, recomputed from nothing but the Parquet file, to the last bit."""
    results = experiment(conventions=("standard", "skip-blank")).run()
    results.save(tmp_path / "r.parquet")
    rows = pq.read_table(tmp_path / "r.parquet").to_pylist()
    shown = str(results)
    for convention in ("standard", "skip-blank"):
        for metric in METRICS:
            for system in PAIR:
                of = {}
                for row in rows:
                    if (row["convention"], row["metric"], row["system"]) == (convention, metric, system):
                        of.setdefault(row["fold"], []).append(row["value"])
                counted = [[value for value in values if value is not None] for values in of.values()]
                fold_means = np.mean([np.mean(values) for values in counted])
                pooled = np.mean([value for values in counted for value in values])
                assert results.fold_means(metric, convention)[system] == fold_means
                assert results.pooled(metric, convention)[system] == pooled
                assert results.compare(convention=convention).means[system][metric] == pooled
                assert f"{fold_means:.4f}" in shown
                assert f"{pooled:.4f}" in shown
    assert shown.count("Mean of fold means") == shown.count("Pooled queries") == 2
    sizes = {str(qid): size for qid, size in zip(DATA.qids, DATA.queries.sizes, strict=True)}
    relevant = {str(q): n for q, n in zip(DATA.qids, DATA.queries.sum(DATA.labels >= 1), strict=True)}
    assert all(row["documents"] == sizes[row["qid"]] and row["relevant"] == relevant[row["qid"]] for row in rows)


def test_everything_is_rebuilt_from_the_file(tmp_path, results):
    results.save(tmp_path / "r.parquet")
    back = Results.read(tmp_path / "r.parquet")
    assert str(back) == str(results)
    assert back.to_dict() == json.loads(json.dumps(results.to_dict()))
    assert back.to_markdown() == results.to_markdown()
    assert back.to_latex() == results.to_latex()
    assert back.cells == [type(cell).from_dict(cell.to_dict()) for cell in results.cells]
    assert back.compare("data", ["map"]).to_dict() == results.compare("data", ["map"]).to_dict()
    assert {"toprank", "numpy", "python"} <= set(back.provenance["versions"])
    assert back.provenance["command"]
    assert back.provenance["machine"]["cores"] == os.cpu_count()
    assert back.provenance["conventions"]["standard"].startswith("standard: gain")


def test_rows_in_any_order_give_the_same_numbers(results):
    order = np.random.default_rng(0).permutation(results.per_query.num_rows)
    mixed = Results(results.per_query.take(order), results.cells, [], results.provenance)
    for system, value in results.fold_means("map").items():
        assert mixed.fold_means("map")[system] == pytest.approx(value, abs=1e-15)
    for one, other in zip(results.compare().differences, mixed.compare().differences, strict=True):
        assert (one.wins, one.ties, one.losses) == (other.wins, other.ties, other.losses)


def test_a_query_that_one_system_lacks_is_told(results):
    rest = Results(results.per_query.slice(1), results.cells, [], results.provenance)
    with pytest.raises(DataError, match="lacks rows for queries"):
        rest.compare()


def test_a_folder_is_enough_to_go_on(tmp_path):
    experiment(cache_dir=tmp_path / "run", save_models=True).run()
    os.rename(tmp_path / "run", tmp_path / "moved")
    back = Results.read(tmp_path / "moved")
    fold = tr.folds(DATA, 3)[1]
    test = back.test("data", fold.name)
    np.testing.assert_array_equal(test.labels, fold.test.labels)
    assert test.qids.tolist() == fold.test.qids.tolist()
    assert test.n_features == 0
    for system in PAIR:
        ranker = back.ranker("data", fold.name, system)
        np.testing.assert_array_equal(ranker.predict(fold.test), back.scores("data", fold.name, system))


def test_experiments_in_one_folder_keep_their_results(tmp_path):
    first = experiment(["LeastSquares"], cache_dir=tmp_path).run()
    second = experiment(["RankNet-linear"], cache_dir=tmp_path, metrics="map").run()
    experiment(["RankNet-linear"], cache_dir=tmp_path, metrics="map").run()  # the same again: no further file
    assert str(Results.read(tmp_path)) == str(second)
    files = sorted(tmp_path.glob("results-*.parquet"))
    assert {str(Results.read(file)) for file in files} == {str(first), str(second)}
    assert len(files) == 2
    for file in files:
        back = Results.read(file)
        assert len(back.scores(None, "Fold1", back.systems[0])) > 0


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("/opt/venv/bin/toprank", "toprank"),
        ("/opt/site-packages/toprank/__main__.py", "toprank"),
        ("other/__main__.py", "other/__main__.py"),
        ("script.py", "script.py"),
    ],
)
def test_the_command_is_what_was_typed(program, shown, monkeypatch):
    monkeypatch.setattr(sys, "argv", [program, "cv", "a b.txt"])
    assert experiment(["LeastSquares"]).run().provenance["command"] == f"{shown} cv 'a b.txt'"


def test_probabilities_and_weights_are_kept(tmp_path):
    grades = tr.ExpectedGainRanker(l2=0.1)
    given = {"grades": grades, "linear": tr.LinearRanker("ListNet", l2=0.1), "trees": tr.TreeRanker(n_trees=3)}
    results = experiment(given, cache_dir=tmp_path).run()
    fold = tr.folds(DATA, 3)[0]
    fitted = grades.fit(fold.train, valid=fold.valid)
    relevance = results.relevance(None, "Fold1", "grades")
    np.testing.assert_array_equal(relevance, fitted.predict_proba(fold.test)[:, 1:].sum(axis=1))
    assert results.relevance(None, "Fold1", "linear") is None
    linear = given["linear"].fit(fold.train, valid=fold.valid)
    cell = results.cell(None, "Fold1", "linear")
    assert cell.weights == tuple(linear.coef_ * linear.standardization_.spread)
    assert results.cell(None, "Fold1", "trees").weights == ()
    key = results.cell(None, "Fold1", "grades").key
    (tmp_path / "cells" / f"{key}.relevance.npy").write_bytes(b"")
    assert CellStore(tmp_path).read(key, False) is None  # damaged: to be computed again


def test_models_are_kept_when_asked_for(tmp_path, computed):
    results = experiment(["LeastSquares"], cache_dir=tmp_path).run()
    with pytest.raises(FileError, match="save_models=True"):
        results.ranker(None, "Fold1", "LeastSquares")
    experiment(["LeastSquares"], cache_dir=tmp_path, save_models=True).run()
    experiment(["LeastSquares"], cache_dir=tmp_path, save_models=True).run()
    experiment(["LeastSquares"], cache_dir=tmp_path).run()
    assert len(computed) == 6  # once without, once with
    foreign = experiment({"foreign": Plain()}, cache_dir=tmp_path, save_models=True)
    assert len(foreign.run().cells) == 3  # cannot be saved, and says so
    assert "not kept" in json.loads((tmp_path / "cells" / f"{foreign.run().cells[0].key}.json").read_text())["model"]
    assert len(computed) == 9


def test_without_a_folder_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(running.tempfile, "tempdir", str(tmp_path))
    results = experiment(["LeastSquares"]).run()
    assert len(results.scores(None, "Fold1", "LeastSquares")) == tr.folds(DATA, 3)[0].test.n_documents
    assert len(list(tmp_path.iterdir())) == 1
    del results
    assert list(tmp_path.iterdir()) == []


def test_a_convention_that_does_not_apply_is_told():
    results = experiment(conventions=("standard", "trec_eval")).run()
    [note] = results.inapplicable
    assert note.startswith("trec_eval does not apply to data: This convention orders tied documents by id")
    assert note in str(results)
    assert results.fold_means("map", "trec_eval") == {}
    assert len(results.fold_means("map", "standard")) == 2


def test_nothing_is_computed_that_no_convention_can_judge(computed):
    results = experiment(conventions=("trec_eval",)).run()
    assert computed == []
    assert len(results.failures) == 3 * len(PAIR)
    assert "applies. trec_eval: This convention orders tied documents" in results.failures[0].error
    assert results.failures[0].error in str(results)


def test_unjudged_documents_under_a_convention_that_knows_them():
    documents = [str(i) for i in range(DATA.n_documents)]
    labels = np.where(np.arange(DATA.n_documents) % 7 == 0, np.nan, DATA.labels)
    unjudged = [
        Fold(fold.name, fold.train, fold.valid, test.select(np.isin(test.qids, fold.test.qids)))
        for fold in tr.folds(DATA, 3)
        for test in [DATA.replace(labels=labels, document_ids=documents)]
    ]
    results = experiment(["LeastSquares"], unjudged, conventions=("standard", "trec_eval")).run()
    assert results.fold_means("map", "trec_eval")["LeastSquares"] > 0
    assert "not judged" in results.inapplicable[0]


def test_a_metric_that_is_an_error_prefers_the_lowest():
    better, worse = Plain(int(np.argmax(np.abs(np.corrcoef(DATA.X.T, DATA.labels)[-1, :-1])))), Plain(1)
    results = experiment({"one": better, "other": worse}, metrics=("owa",)).run()
    means = results.pooled()
    best = min(means, key=means.get)
    assert f"differs from {best}, the best by owa" in str(results)
    assert set(results.compare().lower_is_better) == {"owa"}


def test_the_baseline_is_the_reference(results):
    of = experiment(baseline="RankNet-linear").run()
    assert "paired difference to RankNet-linear" in str(of)
    [markdown, latex] = of.to_markdown(), of.to_latex()
    assert "| system | ndcg@10 | map |" in markdown
    assert latex.count(r"\begin{tabular}") == 2
    assert latex.isascii()
    assert latex.count(r"\textbf{0.") >= 4  # the best of each metric, in both tables
    differences = of.to_dict()["datasets"]["data"]["conventions"]["standard"]["pooled_comparison"]["differences"]
    assert {(d["a"], d["b"]) for d in differences} == {("LeastSquares", "RankNet-linear")}


def test_a_system_alone_has_a_table(results):
    alone = experiment(["LeastSquares"], metrics=["ndcg@10"]).run()
    assert f"LeastSquares   {alone.fold_means()['LeastSquares']:.4f}" in str(alone)
    assert alone.to_dict()["datasets"]["data"]["conventions"]["standard"]["pooled_comparison"] is None


def test_warnings_and_messages_are_kept():
    results = experiment({"short": tr.LinearRanker("ListNet", l2=1e-6, max_iterations=1)}).run()
    assert all("Not converged" in cell.warnings[0] for cell in results.cells)
    assert all(cell.message for cell in results.cells)
    assert "3 cells warned" in str(results)
    trees = experiment({"trees": ("LambdaMART", {"n_trees": 3, "num_leaves": 3, "min_data_in_leaf": 2})}).run()
    assert len(trees.cells[0].history["valid"]) == 3
    assert trees.cells[0].message


def test_time_left(capsys):
    progress = Progress(Counter(fast=4, slow=4, unknown=1), workers=2, verbose=True)
    assert progress.time_left() is None
    progress.cached("fast")
    progress.finished("fast", "fast on data Fold1", 1.0, failed=False)
    progress.finished("slow", "slow on data Fold1", 9.0, failed=True)
    assert progress.time_left() == (2 * 1.0 + 3 * 9.0 + 1 * 5.0) / 2
    line = "3 of 9 cells, 1 cached, 1 failed, about 17 s left, slow on data Fold1"
    assert progress.line() == line
    progress.finished("slow", "slow on data Fold2", 3.0, failed=False)  # the first one was a worker's start, too
    assert progress.time_left() == (2 * 1.0 + 2 * 3.0 + 1 * 2.0) / 2
    progress.close(ended=False)
    assert capsys.readouterr().err == ""  # no one watches, and no time has passed


def test_progress_is_shown_where_asked_for(capsys):
    experiment(["LeastSquares"]).run(verbose=True)
    assert capsys.readouterr().err == "3 of 3 cells.\n"
    experiment(["LeastSquares"]).run()
    assert capsys.readouterr().err == ""


# What is asked for


def test_datasets_of_every_kind(tmp_path):
    for number in range(1, 4):
        folder = tmp_path / "letor" / f"Fold{number}"
        folder.mkdir(parents=True)
        for name, part in zip(("train", "vali", "test"), tr.split(DATA, seed=number), strict=True):
            tr.write(part, folder / f"{name}.txt")
    tr.write(DATA, tmp_path / "file.txt")
    given = {
        "folder": tmp_path / "letor",
        "file": str(tmp_path / "file.txt"),
        "list": list(tr.folds(DATA, 4)),
        "data": DATA,
    }
    asked = experiment(["LeastSquares"], given)
    assert [(one.name, len(one.fold_names)) for one in asked.datasets] == [
        ("folder", 3), ("file", 3), ("list", 4), ("data", 3),
    ]  # fmt: skip
    results = asked.run()
    assert len(results.cells) == 13
    assert results.folds("list") == ("Fold1", "Fold2", "Fold3", "Fold4")
    with pytest.raises(DataError, match="several datasets"):
        results.pooled()
    named = experiment(["LeastSquares"], [tmp_path / "letor", tmp_path / "file.txt"])
    assert [one.name for one in named.datasets] == ["letor", "file"]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((DATA, []), {}, DataError, "systems is empty"),
        ((DATA, ["RankSMV"]), {}, UnknownNameError, "RankSVM"),
        ((DATA, ["RankSVM", "ranksvm"]), {}, DataError, "Two systems"),
        ((DATA, {"a": 3}), {}, DataError, "not a system"),
        ((DATA, {"a": tr.LinearRanker}), {}, DataError, "not a system"),
        ((DATA, {"a": ("RankSVM", {"depth": 3})}), {}, UnknownNameError, "depth"),
        ((DATA, {"a": (tr.LinearRanker(), {"l2": 3})}), {}, DataError, "options are accepted only for named systems"),
        ((DATA, 3), {}, DataError, "must be names"),
        ((3, ["RankSVM"]), {}, DataError, "not a dataset"),
        (({}, ["RankSVM"]), {}, DataError, "datasets is empty"),
        ((list(tr.folds(DATA, 3)) * 2, ["RankSVM"]), {}, DataError, "same name"),
        (("nowhere.txt", ["RankSVM"]), {}, FileError, "nowhere.txt"),
        ((DATA, ["RankSVM"]), {"metrics": "ncdg@10"}, UnknownNameError, "ndcg@10"),
        ((DATA, ["RankSVM"]), {"conventions": "letr4"}, UnknownNameError, "letor4"),
        ((DATA, ["RankSVM"]), {"conventions": ()}, DataError, "conventions is empty"),
        ((DATA, ["RankSVM"]), {"conventions": ("standard", OWN)}, DataError, "name of a built-in convention"),
        ((DATA, {"a": ("RankSVM", {"l2": "abc"})}), {}, DataError, "l2 is 'abc', but must be a number"),
        ((DATA, {"a": ("LambdaMART", {"n_trees": "abc"})}), {}, DataError, "wrong type"),
        ((DATA, ["RankSVM"]), {"seeds": ()}, DataError, "seeds"),
        ((DATA, ["RankSVM"]), {"seeds": (1, 1)}, DataError, "duplicates"),
        ((DATA, ["RankSVM"]), {"seeds": (-1,)}, DataError, "non-negative integers"),
        ((DATA, ["RankSVM"]), {"selection_metric": "ncdg"}, UnknownNameError, "ndcg"),
        ((DATA, ["RankSVM"]), {"baseline": "RankSMV"}, UnknownNameError, "RankSVM"),
        ((DATA, ["RankSVM"]), {"cache_dir": __file__}, FileError, "is a file"),
        ((DATA, ["RankSVM"]), {"threads": 0}, DataError, "threads"),
    ],
)
def test_bad_questions_are_refused_before_any_work(arguments, options, error, words):
    with pytest.raises(error, match=words):
        Experiment(*arguments, **options)


def test_unknown_names_in_results(results):
    for ask in (
        lambda: results.pooled("err"),
        lambda: results.pooled("map", "letor4"),
        lambda: results.pooled("map", "standard", "other"),
        lambda: results.scores(None, "Fold9", "LeastSquares"),
        lambda: results.scores(None, "Fold1", "RankSVM"),
        lambda: results.scores(None, "Fold1", "LeastSquares", 7),
    ):
        with pytest.raises(UnknownNameError, match="in these results"):
            ask()
    assert results.pooled("MAP") == results.pooled("map")


def test_files_that_are_not_results(tmp_path, results):
    with pytest.raises(FileError, match="File not found"):
        Results.read(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("text")
    with pytest.raises(FormatError, match="not a readable Parquet file"):
        Results.read(tmp_path / "text.parquet")
    tr.write(DATA, tmp_path / "data.parquet")
    with pytest.raises(FormatError, match="does not contain the results"):
        Results.read(tmp_path / "data.parquet")
    bare = Results(results.per_query, results.cells, [], results.provenance)
    with pytest.raises(FileError, match="cache_dir="):
        bare.scores(None, "Fold1", "LeastSquares")
    bare.cache_dir = tmp_path
    with pytest.raises(FileError, match="run the experiment again"):
        bare.scores(None, "Fold1", "LeastSquares")
    with pytest.raises(FileError, match="run the experiment again"):
        bare.test(None, "Fold1")


def test_the_letor_protocol_on_a_real_collection():
    path = shared_data("letor", "OHSUMED")
    results = Experiment(path, ["LeastSquares"], metrics=("avgndcg", "map"), threads=1).run()
    means = []
    for fold in tr.folds(path):
        ranker = tr.grid_search("LeastSquares", fold.train, fold.valid, threads=1).ranker
        means.append(tr.evaluate(ranker.predict(fold.test), fold.test, "avgndcg").mean["avgndcg"])
    assert results.datasets == ("OHSUMED",)
    assert results.fold_means("avgndcg")["LeastSquares"] == np.mean(means)
