"""How much of the house a reader walks through to follow what is done most: counted in modules."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import toprank as tr
from toprank.errors import closest_match

SOURCE = Path(tr.__file__).parent

# The most modules of ours in which a function may run, imports left out.
READING = 10
EVALUATING = 15
FITTING_LINEARLY = 20
FITTING_TREES = 25
TRAINING = 45
FITTING_ON_A_CLUSTER = 19
LEARNING_FROM_CLICKS = 60
ANSWERING = 14
EXPORTING = 36


def modules_run(work) -> set[str]:
    """The modules of ours in which a function runs, in any thread; what an import runs is left out."""
    seen: set[str] = set()

    def look(frame, event, _):
        path = frame.f_code.co_filename
        if event != "call" or frame.f_code.co_name == "<module>" or not path.startswith(f"{SOURCE}/"):
            return
        while frame is not None:
            if frame.f_code.co_filename.startswith(("<frozen importlib", f"{SOURCE}/lazy_imports.py")):
                return
            frame = frame.f_back
        seen.add(str(Path(path).relative_to(SOURCE)))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paths")
    data = tr.synthetic(n_queries=40, seed=0)
    made = {"train": np.arange(30), "valid": np.arange(30, 40)}
    for name, queries in made.items():
        tr.write(data.select(queries), folder / f"{name}.txt")
    return [folder / f"{name}.txt" for name in made]


def test_calls_are_counted_but_not_those_of_an_import(tmp_path, monkeypatch):
    assert modules_run(lambda: closest_match("ncdg", ["ndcg"])) == {"errors.py"}
    (tmp_path / "asks_at_once.py").write_text("from toprank.errors import closest_match as c\nc('ncdg', ['ndcg'])\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert modules_run(lambda: import_module("asks_at_once")) == set()


def test_threads_are_counted():
    def apart():
        thread = threading.Thread(target=lambda: closest_match("ncdg", ["ndcg"]))
        thread.start()
        thread.join()

    assert modules_run(apart) == {"errors.py"}


def test_reading_letor_text(files):
    tr.read(files[0])  # what is done once in a process is not what is followed
    seen = modules_run(lambda: tr.read(files[0]))
    assert len(seen) <= READING, " ".join(sorted(seen))


def test_evaluating(files):
    data = tr.read(files[0])
    scores = np.random.default_rng(0).normal(size=data.n_documents)
    tr.evaluate(scores, data, "ndcg@10")
    seen = modules_run(lambda: tr.evaluate(scores, data, "ndcg@10"))  # each family of measures has a module of its own
    assert len(seen) <= EVALUATING, " ".join(sorted(seen))


def test_fitting_linearly(files):
    data, ranker = tr.read(files[0]), tr.LinearRanker("ListNet")
    ranker.fit(data)
    seen = modules_run(lambda: ranker.fit(data))
    assert "rankers/linear/ranker.py" in seen
    assert len(seen) <= FITTING_LINEARLY, " ".join(sorted(seen))


def test_fitting_trees_with_validation_data(files):
    train, valid = map(tr.read, files)
    ranker = tr.TreeRanker("LambdaRank", n_trees=3, threads=1)
    ranker.fit(train, valid=valid)
    seen = modules_run(lambda: ranker.fit(train, valid=valid))
    assert "rankers/trees/training.py" in seen
    assert len(seen) <= FITTING_TREES, " ".join(sorted(seen))


def command(*arguments) -> None:
    from toprank.cli.main import run

    sys.argv = ["toprank", *arguments]
    with suppress(SystemExit):
        run()


def modules_of_a_command(*arguments) -> list[str]:
    """In a process of its own: a command listens to signals for the rest of its process's life."""
    done = subprocess.run([sys.executable, __file__, *map(str, arguments)], capture_output=True, text=True, check=True)
    return done.stdout.split("modules: ")[1].split()


def test_training_from_the_command_line(files, tmp_path):
    model = tmp_path / "m.toprank"
    given = [files[0], "--system", "LambdaMART", "--valid", files[1], "-o", model, "--quiet"]
    seen = modules_of_a_command("train", *given)
    assert model.exists()
    assert "cli/main.py" in seen
    assert len(seen) <= TRAINING, " ".join(seen)


def test_exporting_with_a_check_from_the_command_line(files, tmp_path):
    """Trees for a search engine, which goes furthest: splits are rewritten, and the plug-in's rules read them back."""
    tr.TreeRanker("LambdaRank", n_trees=3, threads=1).fit(tr.read(files[0])).save(tmp_path / "m.toprank")
    file = tmp_path / "m.json"
    given = [tmp_path / "m.toprank", "--to", "elasticsearch", "-o", file, "--check", files[1], "--quiet"]
    seen = modules_of_a_command("export", *given)
    assert file.exists()
    assert "exporters/interpreters/elastic.py" in seen
    assert len(seen) <= EXPORTING, " ".join(seen)


def test_trees_on_a_cluster(files):
    pytest.importorskip("distributed")
    with tr.cluster.connect(workers=2) as cluster:
        parts = tr.cluster.read(files)
        cluster.fit(tr.TreeRanker("LambdaRank", n_trees=3), parts)
        seen = modules_run(lambda: cluster.fit(tr.TreeRanker("LambdaRank", n_trees=3), parts))
    assert len(seen) <= FITTING_ON_A_CLUSTER, " ".join(sorted(seen))


def test_learning_from_clicks_by_command(tmp_path):
    data = tr.synthetic(n_queries=40, seed=0)
    tr.write(data, tmp_path / "data.txt")
    users = tr.clicks.PBM.from_parameters([1, 0.5, 0.3])
    log = tr.clicks.simulate(data, data.X[:, 0], users, sessions=2_000, k=3, exploration=0.5, order="source")
    tr.clicks.write(log, tmp_path / "log.csv")
    given = ["clicks", "train", tmp_path / "log.csv", tmp_path / "data.txt", "-o", tmp_path / "m.toprank", "--quiet"]
    seen = modules_of_a_command(*given)
    assert (tmp_path / "m.toprank").exists()
    assert "clicks/training.py" in seen
    assert len(seen) <= LEARNING_FROM_CLICKS, " ".join(seen)


def test_answering_a_request(tmp_path):
    pytest.importorskip("msgspec")
    from toprank.serving.logs import Log

    data = tr.synthetic(n_queries=20, seed=0)
    tr.LinearRanker().fit(data).save(tmp_path / "m.toprank")
    service = tr.serving.application(tmp_path / "m.toprank", log=Log(requests=False))
    listed = [{"id": row, "values": data.X[row].tolist()} for row in range(3)]
    body = json.dumps({"documents": listed}).encode()
    scope = {"type": "http", "method": "POST", "path": "/v1/rank", "headers": [(b"content-type", b"application/json")]}

    def ask():
        answers = []

        async def receive():
            return {"type": "http.request", "body": body}

        async def send(message):
            answers.append(message)

        asyncio.run(service(scope, receive, send))
        assert answers[0]["status"] == 200

    ask()
    seen = modules_run(ask)
    assert "serving/service.py" in seen
    assert len(seen) <= ANSWERING, " ".join(sorted(seen))


def test_the_page_tells_these_limits():
    table = (SOURCE.parents[1] / "docs" / "architecture.md").read_text().split("modules at most")[1]
    limits = [int(number) for number in re.findall(r"^\| .* \| (\d+) \|$", table, re.MULTILINE)]
    fits = FITTING_LINEARLY, FITTING_TREES, TRAINING, FITTING_ON_A_CLUSTER
    assert limits == [READING, *fits, EVALUATING, ANSWERING, EXPORTING, LEARNING_FROM_CLICKS]


if __name__ == "__main__":
    given = sys.argv[1:]
    command(*given)  # what is done once in a process is not what is followed
    print("modules:", *sorted(modules_run(lambda: command(*given))))
