"""The small installation: a service that scores with five packages, its commands, and the image made of it."""

from __future__ import annotations

import contextlib
import http.client
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

import toprank as tr
from services import documents, rows, save_mixed, save_models
from toprank.serving import __main__ as command
from toprank.serving.settings import Settings

ROOT = Path(__file__).parent.parent
PATIENCE = 300.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = save_models(tmp_path_factory.mktemp("models"))
    save_mixed(where)
    return where


def pinned():
    """The packages of the small installation, and their versions."""
    lines = (ROOT / "packaging" / "serving.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """An environment that has these packages and toprank, and nothing else."""
    where = tmp_path_factory.mktemp("site")
    for package in pinned():
        found = metadata.distribution(package)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (where / top).symlink_to(found.locate_file(top))
    (where / "toprank").symlink_to(Path(tr.__file__).parent)
    return where


def run(small, *arguments, **options):
    """Python with that environment alone: -S leaves out the one that we are in."""
    environment = {**os.environ, "PYTHONPATH": str(small), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, "-S", *map(str, arguments)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def test_the_versions_are_whole():
    """Every package that a pinned one needs is pinned, and each is one that we declare to work with."""
    pins, project = pinned(), tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {
        one.name: one
        for one in map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["serve"]])
    }
    assert {"numpy", "typing-extensions", "uvicorn", "msgspec", "prometheus-client"} <= set(pins)
    for package, version in pins.items():
        assert package not in wanted or wanted[package].specifier.contains(version)
        for text in metadata.requires(package) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert needed.name in pins, (package, text)
                assert needed.specifier.contains(pins[needed.name])


def test_five_packages_are_enough_to_serve(folder, small, tmp_path):
    """Rank, score, explain, interleave, tell: every endpoint, with models of numbers, categories and trees."""
    code = f"""
import asyncio, importlib.util, json
from pathlib import Path
from toprank.serving import application
from toprank.serving.settings import LogFiles
for package in ("scipy", "sklearn", "lightgbm", "pyarrow", "rich", "typer", "pandas", "torch", "loky", "threadpoolctl"):
    assert importlib.util.find_spec(package) is None, package
models = sorted(Path({str(folder)!r}).glob("*.toprank"))
files = LogFiles(Path({str(tmp_path)!r}))
service = application(models, interleave=("linear", "trees"), shadows=("trees",), files=files)
async def ask(path, body=None):
    async def receive(): return {{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}}
    async def send(message): answers.append(message)
    answers, headers = [], [(b"content-type", b"application/json")]
    method = "GET" if body is None else "POST"
    await service({{"type": "http", "method": method, "path": path, "headers": headers}}, receive, send)
    assert answers[0]["status"] == 200, (path, body, answers)
    return answers[1]["body"]
async def all_of_it():
    scores = {{}}
    for model in service.models:
        one = [1.0, "acme", 7, "2026-02-02"] if "mixed" in model.name else [1, True, 3][: model.columns.count]
        listed = [{{"id": 1, "values": one}}, {{"id": 2, "values": [None] * len(one)}}]
        given = {{"model": model.name, "documents": listed}}
        scores[model.name] = [one["score"] for one in json.loads(await ask("/v1/score", given))["scores"]]
        await ask("/v1/rank", given)
        await ask("/v1/explain", {{**given, "a": 1, "b": 2}})
    shown = json.loads(await ask("/v1/interleave", {{"documents": [{{"id": 1, "values": [1, 2, 3]}}]}}))
    click = {{"kind": "click", "document": 1}}
    await ask("/v1/events", {{"request": shown["impression"], "events": [click]}})
    for path in ("/v1/models", "/metrics", "/openapi.json", "/healthz", "/"):
        await ask(path)
    print(json.dumps(scores))
asyncio.run(all_of_it())
"""
    process = run(small, "-c", code)
    said, wrong = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, wrong
    scores = json.loads(said)
    assert {"linear", "trees", "mixed_linear", "mixed_trees"} <= set(scores)
    X = np.array([[1.0, 1.0, 3.0], [np.nan] * 3])
    for name in ("linear", "trees"):
        data = tr.RankingData(X, feature_names=("price", "age", "bm25"))
        assert scores[name] == tr.load(folder / f"{name}.toprank").predict(data).tolist()


def test_the_command_of_the_small_installation_serves(folder, small):
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(
            run(small, "-m", "toprank.serving", folder / "linear.toprank", "--port", "0", "--drain", "0")
        )
        stack.callback(process.kill)
        lines = iter(lambda: json.loads(process.stderr.readline()), None)  # JSON from the first byte
        ready = next(line for line in lines if line["event"] == "ready")
        connection = http.client.HTTPConnection("127.0.0.1", int(ready["url"].rpartition(":")[2]), timeout=PATIENCE)
        body = json.dumps({"documents": documents(rows(3))})
        with contextlib.closing(connection):
            connection.request("POST", "/v1/rank", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert (answer.status, len(json.loads(answer.read())["ranking"])) == (200, 3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert [line for line in process.stderr.read().splitlines() if not line.startswith("{")] == []


def test_what_the_small_installation_cannot_do_is_said(folder, small, tmp_path):
    missing = tmp_path / "none.toprank"
    process = run(small, "-m", "toprank.serving", missing, "--port", "0")
    assert process.communicate(timeout=PATIENCE)[1] == f"toprank: There is no file {missing}.\n"
    assert process.returncode == 1


def test_a_package_that_is_missing_is_named(folder, monkeypatch):
    from services import refused, serving

    def explained(*_):
        raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")

    monkeypatch.setattr("toprank.serving.answers.explain", explained)
    with serving(folder, "linear") as client:
        asked = {"documents": documents(rows(2)), "a": "d0", "b": "d1"}
        refused(client.post("/v1/explain", json=asked), 501, "needs pyarrow, which is not installed")


# ---- two commands, one list of options ----


def parsed(monkeypatch, *arguments):
    """What `python -m toprank.serving` is told."""
    taken = {}
    monkeypatch.setattr("toprank.serving.startup.start", lambda models, settings, **more: taken.update(locals()))
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert command.main(list(arguments)) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    return taken["models"], taken["settings"], taken["more"]


def test_both_commands_take_the_same_options(monkeypatch):
    from typer.main import get_command

    from toprank.cli.commands import app

    given = ["a=a.toprank", "b=b.toprank", "--host", "::1", "--port", "0", "--token-file", "t"]
    given += ["--shadow", "b", "--shadow", "c", "--interleave", "a", "b", "--secret-file", "s", "--max-documents", "1"]
    given += ["--max-body", "1024", "--timeout", "0.1", "--threads", "1", "--queue", "0", "--drain", "0", "--no-reload"]
    given += [
        "--log",
        "f",
        "--log-retention-days",
        "2",
        "--log-megabytes",
        "50",
        "--log-features",
        "--max-event-age-days",
        "3",
    ]
    given += ["--explore", "swap-neighbors:0.1", "--split", "b=5", "--split", "c=5", "--quiet"]
    models, settings, more = parsed(monkeypatch, *given)
    assert models == ["a=a.toprank", "b=b.toprank"]
    assert more == {"requests": False}
    assert settings == Settings(
        "::1", 0, Path("t"), ["b", "c"], ("a", "b"), Path("s"), Path("f"), 2.0, 50.0, True, 3.0, "swap-neighbors:0.1",
        ["b=5", "c=5"], 1, 1024, 0.1, 1, 0, 0.0, False,
    )  # fmt: skip
    taken = {}
    monkeypatch.setattr("toprank.serving.startup.start", lambda models, settings, **more: taken.update(locals()))
    get_command(app).main(["serve", *given], standalone_mode=False)
    assert (taken["models"], taken["settings"]) == (models, settings)
    assert taken["more"] == {"requests": False, "reference": None}
    assert parsed(monkeypatch, "m")[1:] == (Settings(), {"requests": True})


@pytest.mark.parametrize(
    "wrong",
    [
        (), ("m", "--port", "65536"), ("m", "--port", "-1"), ("m", "--queue", "-1"), ("m", "--threads", "0"),
        ("m", "--timeout", "0.09"), ("m", "--timeout", "x"), ("m", "--max-body", "1023"), ("m", "--interleave", "a"),
    ],
)  # fmt: skip
def test_wrong_usage_is_refused_by_both(wrong, monkeypatch, capsys):
    from typer.main import get_command

    from toprank.cli.commands import app

    with pytest.raises(SystemExit) as ended:
        parsed(monkeypatch, *wrong)
    assert ended.value.code == 2
    with pytest.raises(SystemExit) as ended:
        get_command(app).main(["serve", *(wrong or ("--port", "1"))])
    assert ended.value.code == 2


def test_every_setting_is_told_what_it_is():
    told = command._parser().format_help()
    for name in inspect.signature(Settings).parameters:
        assert f"--{name.replace('_', '-')}" in told


# ---- what the process is made of ----


def test_scoring_imports_neither_scikit_learn_nor_lightgbm(folder):
    code = f"""
import asyncio, json, sys
from toprank.serving import application
service = application([{str(folder / "linear.toprank")!r}, {str(folder / "trees.toprank")!r}])
async def ask(path, method, body=b""):
    async def receive(): return {{"type": "http.request", "body": body}}
    async def send(message): answers.append(message)
    answers = []
    headers = [(b"content-type", b"application/json")]
    await service({{"type": "http", "method": method, "path": path, "headers": headers}}, receive, send)
    assert answers[0]["status"] == 200, answers
for model in ("linear", "trees"):
    body = {{"model": model, "documents": [{{"id": 1, "values": [1, None, 3]}}]}}
    asyncio.run(ask("/v1/rank", "POST", json.dumps(body).encode()))
asyncio.run(ask("/v1/models", "GET"))
print([name for name in ("sklearn", "lightgbm", "scipy", "pandas", "pyarrow", "torch") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


# ---- the container ----


def test_the_dockerfile_copies_what_is_there_and_runs_a_command_that_exists():
    """As far as that goes without building it: sources exist, the build has all it reads, the command is understood."""
    root = ROOT
    text = re.sub(r"\\\n\s*", "", (root / "packaging" / "Dockerfile").read_text())
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    stages = [words.split()[-1] for step, words in steps if step == "FROM" and " AS " in words]
    assert {step for step, _ in steps} <= {
        "FROM", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD",
    }  # fmt: skip
    copied = set()
    for step, words in steps:
        if step == "COPY" and not words.startswith("--from"):
            *sources, _ = words.split()
            assert all((root / source).exists() for source in sources), words
            copied |= set(sources)
        elif step == "COPY":
            assert words.split()[0].removeprefix("--from=") in stages
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    built = {project["readme"], *project["license-files"], "pyproject.toml", "hatch_build.py", "src", "native"}
    assert copied == {*built, "packaging/serving.txt"}
    [install] = [words for step, words in steps if step == "RUN" and "pip install" in words]
    first, second = install.split(" && ")
    assert first.endswith(" -r packaging/serving.txt")
    assert second.endswith(" --no-deps .")
    commands = {step: json.loads(words) for step, words in steps if step in ("ENTRYPOINT", "CMD")}
    program, option, module, *arguments = commands["ENTRYPOINT"] + commands["CMD"]
    assert (program, option, module) == ("python", "-m", "toprank.serving")
    told = command._parser().parse_args(arguments)
    assert (told.host, told.models) == ("0.0.0.0", ["/models/model.toprank"])
    ports = [words for step, words in steps if step == "EXPOSE"]
    assert ports == [str(told.port)]
    [check] = [words for step, words in steps if step == "HEALTHCHECK"]
    assert f":{told.port}/readyz" in check


def test_a_missing_extra_is_one_sentence_before_anything_needs_it(monkeypatch, capsys):
    from toprank.errors import MissingExtraError
    from toprank.serving import __main__ as program

    def missing():
        raise MissingExtraError("The service needs msgspec: pip install 'toprank[serve]'.")

    monkeypatch.setattr(program, "check_installed", missing)
    monkeypatch.setitem(sys.modules, "toprank.serving.startup", None)  # its import fails, as without the extra
    assert program.main(["model.toprank"]) == 1
    assert "pip install 'toprank[serve]'" in capsys.readouterr().err
