"""Commands given models of other libraries, and bad input for them: a sentence, status 1, nothing half-written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import foreign_models as other
import toprank as tr
from support import toprank
from toprank.cli.commands import app

MODELS = ("lightgbm.txt", "xgboost.json", "onnx.onnx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("xgboost")
    place = tmp_path_factory.mktemp("foreign")
    tr.write(tr.RankingData(other.X, other.Y, qid=other.QID), place / "test.txt")
    tr.write(tr.RankingData(other.X + 0.7, other.Y, qid=other.QID), place / "now.txt")
    other.lightgbm_model().save_model(place / MODELS[0])
    other.xgboost_model().get_booster().save_model(place / MODELS[1])
    tr.export(tr.load(place / MODELS[0]), "onnx", place / MODELS[2])
    return place


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def told(*arguments: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, [*arguments, "--quiet"])
    assert done.exit_code == status, f"{done.output} {done.exception!r}"
    return done.stdout


def scores(model: str) -> np.ndarray:
    return tr.load(model).predict(tr.read("test.txt"))


@pytest.mark.parametrize("model", MODELS)
def test_each_command_takes_each_model(model: str, tmp_path: Path) -> None:
    expected = tr.evaluate(scores(model), tr.read("test.txt"), "ndcg@10").mean["ndcg@10"]
    evaluated = json.loads(told("evaluate", "test.txt", model, "-m", "ndcg@10", "--json"))
    assert repr(float(expected)) in json.dumps(evaluated)
    second = MODELS[1] if model != MODELS[1] else MODELS[0]
    compared = told("compare", "test.txt", model, second)
    assert Path(model).stem in compared
    assert f"{expected:.4f}" in compared
    first, last = np.argsort(-scores(model)[:20], kind="stable")[[0, -1]].tolist()
    pair = told("explain", model, "test.txt", "--qid", "0", "--docs", str(first), str(last))
    assert f"{first} (rank 1" in pair
    assert "feature" in told("explain", model, "test.txt", "--qid", "0")
    assert "matters most" in told("explain", model, "test.txt", "--n-repeats", "1")
    drift = told("monitor", model, "test.txt", "now.txt", status=3)
    assert "Feature 1 has drifted" in drift
    if model != "onnx.onnx":
        parity = json.loads(
            told("export", model, "--to", "python", "-o", f"{tmp_path}/m.py", "--check", "test.txt", "--json")
        )
        assert parity["n_mismatches"] == 0


def test_a_model_is_told_from_scores_by_its_content(tmp_path: Path) -> None:
    """Whatever it is called; and a ranker of ours is one, too."""
    tr.LinearRanker().fit(tr.read("test.txt")).save(tmp_path / "scores.txt")
    (tmp_path / "model.toprank").write_text("\n".join("0" for _ in other.QID))
    ranker = tr.load(tmp_path / "scores.txt")
    mean = tr.evaluate(ranker.predict(tr.read("test.txt")), tr.read("test.txt"), "ndcg@10").mean["ndcg@10"]
    assert f"{mean:.4f}" in told("evaluate", "test.txt", f"{tmp_path}/scores.txt")
    constant = tr.evaluate(np.zeros(len(other.QID)), tr.read("test.txt"), "ndcg@10").mean["ndcg@10"]
    assert f"{constant:.4f}" in told("evaluate", "test.txt", f"{tmp_path}/model.toprank")


# ---- bad input ----

BAD = {
    "a pickle": (["export", "pickle.pkl", "--to", "c", "-o", "OUT"], "reading a pickle executes its code"),
    "a file that is no model": (["export", "test.txt", "--to", "c", "-o", "OUT"], "test.txt"),
    "no file": (["explain", "none.json", "test.txt"], "none.json"),
    "a folder": (["evaluate", "test.txt", "."], "folder"),
    "CatBoost's binary": (["evaluate", "test.txt", "model.cbm"], "save_model(path, format='json')"),
    "other columns": (["monitor", "named.json", "other.csv", "other.csv", "--html", "OUT"], "price"),
    "other columns to explain": (["explain", "named.json", "other.csv", "--html", "OUT"], "price"),
    "other columns to check": (["export", "named.json", "--to", "c", "-o", "OUT", "--check", "other.csv"], "price"),
    "an unknown query": (["explain", "xgboost.json", "test.txt", "--qid", "77", "--html", "OUT"], "77"),
    "an unknown document": (["explain", "xgboost.json", "test.txt", "--qid", "0", "--docs", "1", "zz"], "zz"),
    "an unknown feature": (["explain", "xgboost.json", "test.txt", "--feature", "zz", "--html", "OUT"], "zz"),
    "a format without words": (["export", "xgboost.json", "--to", "json", "-o", "OUT"], "Export it to onnx, c"),
    "a format that is none": (["export", "xgboost.json", "--to", "pmml", "-o", "OUT"], "pmml"),
    "another kind of model": (["export", "onnx.onnx", "--to", "c", "-o", "OUT"], "Use the ONNX file itself"),
    "a server's version": (["export", "xgboost.json", "--to", "elasticsearch", "-o", "OUT"], "State its version"),
    "a shadow of other features": (
        ["monitor", "xgboost.json", "test.txt", "now.txt", "--shadow", "two.txt"],
        "feature",
    ),
    "a model of other features": (["evaluate", "test.txt", "two.txt"], "feature"),
}

MISTYPED = {"an unknown feature", "a format that is none"}  # names that are typed are part of the usage


@pytest.fixture(scope="module")
def more(folder: Path) -> Path:
    import lightgbm
    import xgboost

    (folder / "pickle.pkl").write_bytes(b"\x80\x04\x95rest")
    (folder / "model.cbm").write_bytes(b"CBM1rest")
    frame = {"qid": [1, 1, 2, 2], "label": [0, 1, 0, 1], "size": [1.0, 2.0, 3.0, 4.0], "color": [1, 2, 3, 4]}
    rows = ["qid,label,size,color", *(",".join(map(str, row)) for row in zip(*frame.values(), strict=True))]
    (folder / "other.csv").write_text("\n".join(rows) + "\n")
    named = xgboost.DMatrix(other.X[:, :2], other.Y, qid=other.QID, feature_names=["price", "size"])
    xgboost.train({"objective": "rank:ndcg", "nthread": 1}, named, 2).save_model(folder / "named.json")
    two = lightgbm.Dataset(other.X[:, :2], other.Y, group=other.SIZES)
    lightgbm.train({"objective": "lambdarank", "verbose": -1, "num_threads": 1}, two, 2).save_model(folder / "two.txt")
    return folder


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_a_sentence_and_nothing_is_written(what: str, more: Path) -> None:
    arguments, word = BAD[what]
    before = sorted(path.name for path in more.iterdir())
    done = toprank(*("out.file" if one == "OUT" else one for one in arguments), status=2 if what in MISTYPED else 1)
    assert done.stdout == ""
    assert done.stderr.startswith("toprank: ")
    assert done.stderr.rstrip().endswith((".", "?"))
    assert word in done.stderr
    assert sorted(path.name for path in more.iterdir()) == before


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("missing", ["nan", "zero"])
def test_a_model_of_ranklib_scores_piped_text_that_lacks_its_last_features(tmp_path, layout, missing):
    """A pipe can be read only once, so the missing columns are added to what was read."""
    (tmp_path / "model.txt").write_text("## Linear Regression\n## Lambda = 0.0\n0:0.5 1:1.0 2:-2.0 4:3.0")
    text = "2 qid:1 1:0.5 2:3\n0 qid:1 1:2\n1 qid:2 2:1\n"
    (tmp_path / "file.txt").write_text(text)
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text(text), daemon=True)
    writer.start()
    options = ("--layout", layout, "--missing", missing)
    # In a process of its own: a second read of the pipe would wait for ever.
    command = [sys.executable, "-m", "toprank", "predict", str(tmp_path / "model.txt")]
    piped = subprocess.run([*command, str(tmp_path / "pipe"), *options], capture_output=True, text=True, timeout=60)
    assert piped.returncode == 0, piped.stderr
    assert [float(line) for line in piped.stdout.split()] == [-5.0, 2.5, -1.5]
    assert piped.stdout == told("predict", str(tmp_path / "model.txt"), str(tmp_path / "file.txt"), *options)
