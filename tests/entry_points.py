"""A minimal call of every public entry point: every exported function, class with behavior, and command.

`CALLS` maps the qualified name to a function of a `World`. Families of classes (losses, measures, click models,
solvers, rankers) share one call, and the other functions run the examples of their docstrings.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import shutil
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import toprank as tr
from toprank import (
    cluster,
    doctor,
    evaluation,
    experiment,
    exporters,
    losses,
    metrics,
    rankers,
    reproduce,
    solvers,
    theory,
)
from toprank.clicks.models import ClickModel
from toprank.losses.base import Loss
from toprank.metrics.measure import Measure
from toprank.rankers.base import Ranker

Call = Callable[["World"], Any]

ROOMS = (
    *(
        "model_selection",
        "clicks",
        "cluster",
        "evaluation",
        "doctor",
        "errors",
        "experiment",
        "explanations",
        "exporters",
    ),
    *("fusion", "losses", "metrics", "monitoring", "rankers", "report", "reproduce", "search", "serving", "display"),
    *("significance", "solvers", "systems", "text", "theory"),
)
TREES = {"n_trees": 3, "num_leaves": 4, "threads": 2}
TEXTS = {
    f"d{number}": f"{first} of the {second} in {third}"
    for number, (first, second, third) in enumerate(
        (first, second, third)
        for first in ("wings", "plates", "noise")
        for second in ("propeller", "boundary", "slipstream")
        for third in ("air", "heat")
    )
}
QUERIES = {
    "q1": "wings air",
    "q2": "plates heat",
    "q3": "noise propeller",
    "q4": "boundary heat",
    "q5": "slipstream air",
}


class World:
    """Small data, files, models and logs that calls read; every call writes into its own folder."""

    def __init__(self, folder: Path) -> None:
        self.root = self.folder = folder
        self.data = tr.synthetic(n_queries=20, n_documents=8, n_features=4, n_grades=3, seed=0)
        self.other = tr.synthetic(n_queries=20, n_documents=8, n_features=4, n_grades=3, seed=1)
        self.scores = np.asarray(self.data.X[:, 0], dtype=np.float64)
        self.ranker = tr.LinearRanker(threads=2).fit(self.data)
        self.trees = tr.TreeRanker("LambdaRank", **TREES).fit(self.data)
        self.model = folder / "model.toprank"
        self.ranker.save(self.model)
        self.trees.save(folder / "trees.toprank")
        self.text = folder / "data.txt"
        tr.write(self.data, self.text)
        tr.write(self.other, folder / "other.txt")
        tr.write_scores(self.scores, folder / "a.scores")
        tr.write_scores(-self.scores, folder / "b.scores")
        shown = [self.scores, np.asarray(self.data.X[:, 1], dtype=np.float64)]
        users = tr.clicks.PBM.from_parameters(np.array([1.0, 0.6, 0.4]))
        self.log = tr.clicks.simulate(self.data, shown, users, 2_000, k=3, seed=0)
        self.log_file = folder / "log.parquet"
        tr.clicks.write(self.log, self.log_file)
        self.values = np.random.default_rng(0).normal(size=30)
        self.qrels = {qid: {f"d{(5 * n + i) % 18}": i % 3 for i in range(9)} for n, qid in enumerate(QUERIES)}
        self.run = {qid: {f"d{i}": 18.0 - i for i in range(12)} for qid in QUERIES}
        self.other_run = {qid: {f"d{i}": float(i) for i in range(12)} for qid in QUERIES}
        self._write_trec()
        self.index_folder = folder / "texts.index"
        tr.search.index(TEXTS, self.index_folder)
        self.index = tr.search.open(self.index_folder)
        self.comparison = tr.compare({"a": self.scores, "b": -self.scores}, self.data)

    def _write_trec(self) -> None:
        lines = [f"{qid} 0 {doc} {grade}" for qid, of in self.qrels.items() for doc, grade in of.items()]
        self.path("j.qrels").write_text("\n".join(lines) + "\n")
        for name, run in (("a", self.run), ("b", self.other_run)):
            lines = [
                f"{qid} Q0 {doc} {rank} {score} {name}"
                for qid, of in run.items()
                for rank, (doc, score) in enumerate(sorted(of.items(), key=lambda pair: -pair[1]), 1)
            ]
            self.path(f"{name}.run").write_text("\n".join(lines) + "\n")
        self.path("topics.tsv").write_text("".join(f"{qid}\t{words}\n" for qid, words in QUERIES.items()))

    def path(self, name: str) -> Path:
        """A file of the world."""
        return self.root / name

    def new(self, name: str) -> Path:
        """A file of this call."""
        return self.folder / name


def public() -> dict[str, Any]:
    """Return every entry point by name: exported functions, and exported classes that do more than hold values."""
    found: dict[str, Any] = {}
    for room in ("toprank", *(f"toprank.{room}" for room in ROOMS)):
        module = importlib.import_module(room)
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value) and not inspect.ismodule(value) and not _holds_values(value):
                found.setdefault(f"{value.__module__}.{value.__qualname__}", value)
    return found


def _holds_values(value: Any) -> bool:
    """Whether it is an exception, an abstract class, a protocol, an alias of a type, or a record of values."""
    if not isinstance(value, type):
        return not inspect.isroutine(value)
    if issubclass(value, Loss | Measure | Ranker | ClickModel | solvers.Solver):
        return inspect.isabstract(value)
    record = "__dataclass_params__" in vars(value) or issubclass(value, tuple)
    return issubclass(value, BaseException | str) or record or inspect.isabstract(value) or _is_protocol(value)


def _is_protocol(value: type) -> bool:
    return bool(getattr(value, "_is_protocol", False))


def commands() -> list[str]:
    """Return the words that name each command."""
    from toprank.cli.commands import app

    names = [str(command.name) for command in app.registered_commands]
    for group in app.registered_groups:
        names += [f"{group.name} {command.name}" for command in group.typer_instance.registered_commands]
    return names


# ---- calls ----

CALLS: dict[str, Call] = {}


def entry(value: Any) -> Callable[[Call], Call]:
    """Register the call of an entry point."""

    def registered(call: Call) -> Call:
        CALLS[name_of(value)] = call
        return call

    return registered


def name_of(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def call_of(name: str, value: Any) -> Call | None:
    """Return the minimal call of an entry point: the table's, that of its family, or the examples of its docstring."""
    if name in CALLS:
        return CALLS[name]
    for family, call in FAMILIES.items():
        if isinstance(value, type) and issubclass(value, family):
            return partial(call, value)
    return partial(_examples, name, value) if ">>>" in (value.__doc__ or "") else None


def _examples(name: str, value: Any, world: World) -> Any:
    del world
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    names = vars(sys.modules[value.__module__]).copy()
    for test in doctest.DocTestFinder(recurse=False).find(value, name, globs=names):
        runner.run(test)


def _loss(kind: type[Loss], world: World) -> Any:
    teacher = world.scores if kind.__name__ in ("MarginMSE", "SoftLogistic", "SoftmaxKL", "Mix") else None
    judgments = losses.Judgments(world.data.labels, world.data.queries, teacher=teacher)
    scores = world.scores
    if (width := {"Multinomial": 3, "Ordinal": 2}.get(kind.__name__)) is not None:
        scores = np.repeat(scores[:, None], width, axis=1)
    return kind().bound_to(judgments).at(scores)


def _measure(kind: type[Measure], world: World) -> Any:
    measure = kind("best", lambda labels: float(labels[0])) if kind is metrics.Custom else kind()
    return tr.evaluate(world.scores, world.data, measure)


def _solver(kind: type[solvers.Solver], world: World) -> Any:
    loss, solver = "Logistic", kind()
    if kind is solvers.AveragedStochastic:
        loss, solver = tr.losses.XENDCG(), kind(solvers.LBFGS())
    return tr.LinearRanker(loss, solver=solver, max_iterations=5, threads=2).fit(world.data)


FAMILIES: dict[type, Callable[[Any, World], Any]] = {
    Loss: _loss,
    Measure: _measure,
    solvers.Solver: _solver,
    ClickModel: lambda kind, world: kind().fit(world.log),
    Ranker: lambda kind, world: kind(**OPTIONS.get(kind.__name__, {})).fit(world.data).predict(world.other),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "TreeRanker": TREES,
    "NeuralRanker": {"epochs": 1, "width": 4, "threads": 2},
    "AutoRanker": {"time_budget": 1.0, "max_trials": 2, "threads": 2},
    "BlendRanker": {"rankers": (tr.LinearRanker(), tr.AdaRank())},
}
"""Options that make a small model of each kind of ranker."""


@entry(tr.concatenate)
def _(world: World) -> Any:
    return tr.concatenate([world.data, world.other.replace(qids=np.arange(100, 120))])


@entry(tr.read)
def _(world: World) -> Any:
    return tr.read(world.text, threads=2), tr.read(world.text, cache=True)


@entry(tr.write)
def _(world: World) -> Any:
    for name in ("a.txt", "a.parquet", "a.csv", "a.txt.gz", "a.toprank-data"):
        tr.write(world.data, world.new(name))
        tr.read(world.new(name))


@entry(tr.read_scores)
def _(world: World) -> Any:
    return tr.read_scores(world.path("a.scores"))


@entry(tr.write_scores)
def _(world: World) -> Any:
    tr.write_scores(world.scores, world.new("c.scores"))


@entry(tr.read_qrels)
def _(world: World) -> Any:
    return tr.read_qrels(world.path("j.qrels"))


@entry(tr.read_run)
def _(world: World) -> Any:
    return tr.read_run(world.path("a.run"))


@entry(tr.grid_search)
def _(world: World) -> Any:
    return tr.grid_search("ListNet", world.data, world.other, threads=2)


@entry(tr.tune)
def _(world: World) -> Any:
    return tr.tune("RankNet-linear", world.data, world.other, n_trials=2, threads=2, storage=world.new("s.db"))


@entry(tr.auto)
def _(world: World) -> Any:
    return tr.auto(world.data, world.other, time_budget=1.0, max_trials=2, threads=2)


@entry(tr.compare)
def _(world: World) -> Any:
    return tr.compare({"a": world.scores, "b": -world.scores}, world.data, threads=2)


@entry(tr.export)
def _(world: World) -> Any:
    for kind in exporters.names():
        if exporters.unsupported_reasons(world.trees)[kind] is None:
            exporters.export(world.trees, kind, world.new(f"trees.{kind}"), check=world.data)


@entry(tr.load)
def _(world: World) -> Any:
    exporters.export(world.trees, "xgboost", world.new("x.json"))
    return tr.load(world.model), tr.load(world.path("trees.toprank")), tr.load(world.new("x.json"))


def _read_from_elsewhere(world: World) -> Any:
    for name, ranker, kind in (
        ("x.json", world.trees, "xgboost"),
        ("x.onnx", world.trees, "onnx"),
        ("w.txt", None, ""),
    ):
        if ranker is None:
            world.new(name).write_text("## Coordinate Ascent\n1:0.5 2:0.25 3:0.25 4:0.0")
        else:
            exporters.export(ranker, kind, world.new(name))
        tr.load(world.new(name)).predict(world.data)


for _kind in (rankers.ForestRanker, rankers.ImportedLinearRanker, rankers.OnnxRanker):
    entry(_kind)(_read_from_elsewhere)


@entry(tr.Experiment)
def _(world: World) -> Any:
    return experiment.Experiment(
        world.data, ["ListNet", "RankNet-linear"], n_folds=3, threads=1, metrics="ndcg@10"
    ).run()


@entry(experiment.Results)
def _(world: World) -> Any:
    results = CALLS[name_of(tr.Experiment)](world)
    return str(results), results.to_frame()


@entry(tr.report.from_results)
def _(world: World) -> Any:
    return tr.report.from_results(CALLS[name_of(tr.Experiment)](world))


@entry(tr.clicks.Perplexity)
def _(world: World) -> Any:
    return tr.clicks.PBM().fit(world.log).perplexity(world.log)


@entry(tr.clicks.interleaving_test)
def _(world: World) -> Any:
    shown = tr.clicks.interleave(world.scores, -world.scores, world.data, 200, k=3)
    return tr.clicks.analyze_interleaving(shown)


@entry(tr.clicks.launch_report)
def _(world: World) -> Any:
    return tr.clicks.launch_report(world.log, world.data, world.data.X[:, 1], world.data.X[:, 0], k=3)


@entry(tr.clicks.train)
def _(world: World) -> Any:
    return tr.clicks.train(tr.LinearRanker("ListNet"), world.log, world.data, "affine")


@entry(tr.clicks.compare_models)
def _(world: World) -> Any:
    return tr.clicks.compare_models(world.log, [tr.clicks.PBM(), tr.clicks.DCM()], n_resamples=20)


@entry(tr.clicks.evaluate)
def _(world: World) -> Any:
    return tr.clicks.evaluate(world.scores, world.log, world.data, "dcg@3")


@entry(tr.clicks.read)
def _(world: World) -> Any:
    return tr.clicks.read(world.log_file)


def _on_a_cluster(world: World) -> Any:
    with tr.cluster.connect(workers=2, processes=False, timeout=60) as connected:
        parts = tr.cluster.read(world.text)
        ranker = connected.fit(tr.LinearRanker("ListNet"), parts)
        return connected.evaluate(ranker, parts, ["ndcg@10"])


for _part in (cluster.connect, cluster.Cluster, cluster.Partitions, cluster.DistributedData, cluster.read):
    entry(_part)(_on_a_cluster)


@entry(cluster.fit_distributed)
def _(world: World) -> Any:
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    group = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}  # as torchrun sets
    with mock.patch.dict(os.environ, group):
        return tr.cluster.fit_distributed(tr.NeuralRanker("ListNet", epochs=1, width=4), world.data)


@entry(doctor.check_file)
def _(world: World) -> Any:
    return doctor.check_file(world.text, threads=2)


@entry(tr.errors.held_warnings)
def _(world: World) -> Any:
    with tr.errors.held_warnings(UserWarning) as held:
        tr.errors.warn_user("A sentence.")
    assert [str(warning.message) for warning in held] == ["A sentence."]


CALLS[name_of(tr.errors.warn_user)] = CALLS[name_of(tr.errors.held_warnings)]


@entry(tr.errors.refuse_if)
def _(world: World) -> Any:
    tr.errors.refuse_if(world is None, "There is no world.")


@entry(tr.explanations.find_feature)
def _(world: World) -> Any:
    return tr.explanations.find_feature(world.ranker, world.data, "1")


@entry(exporters.names)
def _(world: World) -> Any:
    return exporters.names(), tr.systems.names(), tr.systems.get("ListNet")


CALLS[name_of(tr.systems.names)] = CALLS[name_of(tr.systems.get)] = CALLS[name_of(exporters.names)]


@entry(losses.to_spec)
def _(world: World) -> Any:
    return [losses.from_spec(losses.to_spec(losses.make(name))) for name in losses.names()]


CALLS[name_of(losses.from_spec)] = CALLS[name_of(losses.names)] = CALLS[name_of(losses.to_spec)]


@entry(evaluation.evaluate_all_conventions)
def _(world: World) -> Any:
    return evaluation.evaluate_all_conventions(world.scores, world.data, "ndcg@10,map")


@entry(reproduce.reproduce)
def _(world: World) -> Any:
    folder = world.new("MQ2008")
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(tr.split(world.data, (0.2,) * 5), 1):
        tr.write(part, folder / f"S{number}.txt")
    reproduce.find_sets(world.folder)
    return reproduce.reproduce("bayes-optimal", world.folder, ["MQ2008"])


CALLS[name_of(reproduce.find_sets)] = CALLS[name_of(reproduce.Reproduction)] = CALLS[name_of(reproduce.reproduce)]


@entry(tr.search.index)
def _(world: World) -> Any:
    for engine in ("sqlite", "tantivy"):
        tr.search.index(TEXTS, world.new(f"{engine}.index"), first_stage=engine).search("wings")


@entry(tr.search.open)
def _(world: World) -> Any:
    return tr.search.open(world.index_folder).search("wings in air")


@entry(tr.search.Index)
def _(world: World) -> Any:
    index = tr.search.open(shutil.copytree(world.index_folder, world.new("own.index")))
    index.train(QUERIES, world.qrels, "ListNet", threads=2)
    return index.search("wings"), _evaluated(world)


def _evaluated(world: World) -> Any:
    """Folds are fitted in several threads at a time."""
    return world.index.evaluate(QUERIES, world.qrels, ["bm25", "ListNet"], folds=5, threads=4)


@entry(tr.search.python_docs)
def _(world: World) -> Any:
    return tr.search.python_docs()


@entry(tr.search.read_judgments)
def _(world: World) -> Any:
    return tr.search.read_judgments(world.path("j.qrels")), tr.search.read_topics(world.path("topics.tsv"))


CALLS[name_of(tr.search.read_topics)] = CALLS[name_of(tr.search.read_judgments)]


@entry(tr.serving.application)
def _(world: World) -> Any:
    service = tr.serving.application(world.model)
    service.close()


@entry(tr.serving.check_installed)
def _(world: World) -> Any:
    tr.serving.check_installed()


@entry(tr.significance.leave_one_out_means)
def _(world: World) -> Any:
    return tr.significance.leave_one_out_means(world.values, np.ones((30, 30)) - np.eye(30))


@entry(theory.cossock_zhang_equation11)
def _(world: World) -> Any:
    return theory.cossock_zhang_equation11([1.0, 2.0], [0.5, 0.25], K=[True, True], gamma=0.5, u=1.0)


# ---- commands ----

CalledWith = Callable[[World], list[object]]
_SHORT = ["--threads", 2]
COMMANDS: dict[str, CalledWith] = {
    "check": lambda w: [w.text],
    "convert": lambda w: [w.text, w.new("c.parquet")],
    "split": lambda w: [w.text, "-o", w.new("parts")],
    "train": lambda w: [w.text, "--valid", w.path("other.txt"), "--system", "ListNet", "-o", w.new("m.toprank")],
    "tune": lambda w: [
        *(w.text, "--valid", w.path("other.txt"), "--system", "ListNet", "--n-trials", 2, "-o", w.new("m.toprank"))
    ],
    "systems": lambda w: [],
    "evaluate": lambda w: [w.text, w.path("a.scores")],
    "compare": lambda w: [w.text, w.path("a.scores"), w.path("b.scores"), "--html", w.new("c.html")],
    "agreement": lambda w: [w.path("j.qrels"), w.path("j.qrels")],
    "cv": lambda w: [w.text, "--systems", "ListNet,RankNet-linear", "--cache-dir", w.new("runs")],
    "conventions": lambda w: [],
    "launch-report": lambda w: [w.log_file, w.text, "--new", w.model, "--current", w.path("trees.toprank"), "--k", 3],
    "fuse": lambda w: [w.path("a.run"), w.path("b.run"), "-o", w.new("f.run")],
    "reproduce": lambda w: ["bayes-optimal", "--data", w.root, "--sets", "MQ2008"],
    "explain": lambda w: [w.model, w.text],
    "inspect": lambda w: [w.model],
    "predict": lambda w: [w.model, w.text],
    "rank": lambda w: [w.model, w.text, "--top", 3],
    "export": lambda w: [w.model, "--to", "python", "-o", w.new("m.py"), "--check", w.text],
    "monitor": lambda w: [w.model, w.text, w.path("other.txt"), "--html", w.new("m.html")],
    "clicks check": lambda w: [w.log_file],
    "clicks fit": lambda w: [w.log_file, "--click-model", "DCM"],
    "clicks simulate": lambda w: [
        *(w.text, w.path("a.scores"), "-o", w.new("l.parquet"), "--examination", "1,0.5,0.3", "--k", 3),
        *("--sessions", 50),
    ],
    "clicks train": lambda w: [w.log_file, w.text, "--system", "ListNet", "-o", w.new("m.toprank")],
    "clicks evaluate": lambda w: [w.path("a.scores"), w.log_file, w.text, "--metrics", "dcg@3"],
    "clicks interleaving": lambda w: [w.log_file],
    "clicks ab-test": lambda w: [w.log_file],
    "search index": lambda w: [w.new("docs"), "-o", w.new("docs.index")],
    "search train": lambda w: [
        *(w.new("own.index"), "--queries", w.path("topics.tsv"), "--qrels", w.path("j.qrels"), "--system", "ListNet")
    ],
    "search evaluate": lambda w: [
        *(w.index_folder, "--queries", w.path("topics.tsv"), "--qrels", w.path("j.qrels")),
        *("--systems", "bm25,ListNet", "--threads", 4),
    ],
    "search query": lambda w: [w.index_folder, "wings"],
}
"""What a command is called with. It may end with any status, since what it refuses must leave no trace either."""

ENDLESS = {"serve", "search serve", "demo"}
"""Commands that serve until a signal, or try everything; `tests/test_serving_process.py` and `test_cli.py` run them."""
