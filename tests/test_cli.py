"""The command line as a stranger meets it: output, exit status, and one sentence when something is wrong."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import toprank as tr
from support import nightly, shared_data, toprank
from toprank.cli.commands import app
from toprank.experiment import Results
from toprank.rankers.model_files import inspect


@pytest.fixture
def files(tmp_path):
    """data.txt, and scores of a good and a useless ranker."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 200)
    data = tr.RankingData(rng.normal(size=(200, 3)).astype(np.float32), labels, qid=np.repeat(np.arange(20), 10))
    tr.write(data, tmp_path / "data.txt")
    tr.write_scores(labels + rng.normal(size=200), tmp_path / "good.scores")
    tr.write_scores(rng.normal(size=200), tmp_path / "useless.scores")
    return tmp_path


def test_evaluate(files):
    data, scores = tr.read(files / "data.txt"), tr.read_scores(files / "good.scores", 200)
    done = toprank("evaluate", files / "data.txt", files / "good.scores", "-m", "ndcg@10,map", "--json")
    answer = json.loads(done.stdout)
    assert answer["mean"] == dict(tr.evaluate(scores, data, "ndcg@10,map").mean)
    assert answer["convention"] == "standard"
    assert answer["queries"] == 20
    table = toprank("evaluate", files / "data.txt", files / "good.scores", "-c", "letor4", "--per-query").stdout
    assert "convention letor4" in table
    assert len(table.splitlines()) == 1 + 20 + 1 + 2 + 1
    everything = toprank("evaluate", files / "data.txt", files / "good.scores", "-c", "all").stdout
    assert all(name in everything for name in tr.metrics.CONVENTIONS)
    assert "trec_eval      not applicable" in everything


def test_evaluate_a_run(tmp_path):
    (tmp_path / "q").write_text("1 0 a 1\n1 0 b 0\n2 0 a 1\n")
    (tmp_path / "r").write_text("1 Q0 b 1 2.0 t\n1 Q0 a 2 1.0 t\n")
    done = toprank("evaluate", "--qrels", tmp_path / "q", "--run", tmp_path / "r", "-m", "map,recip_rank", "--json")
    assert json.loads(done.stdout)["mean"] == {"map": 1 / 2, "recip_rank": 1 / 2}
    done = toprank("evaluate", "--qrels", tmp_path / "q", "--run", tmp_path / "r", "-m", "map", "--complete", "--json")
    assert json.loads(done.stdout)["mean"] == {"map": 1 / 4}


def test_compare(files):
    arguments = ("compare", files / "data.txt", files / "good.scores", files / "useless.scores")
    answer = json.loads(toprank(*arguments, "--baseline", "useless", "--json").stdout)
    [difference] = answer["differences"]
    assert (difference["a"], difference["b"]) == ("good", "useless")
    assert difference["difference"] > 0
    assert "good is better than useless" in toprank(*arguments).stdout
    assert "| system |" in toprank(*arguments, "--markdown").stdout
    assert r"\toprule" in toprank(*arguments, "--latex").stdout


def test_cv(files):
    arguments = (
        "cv",
        files / "data.txt",
        "--systems",
        "LeastSquares,listmle",
        "--folds",
        "4",
        "--cache-dir",
        files / "run",
    )
    done = toprank(*arguments, "--json", "-o", files / "r.parquet", "--html", files / "r.html", "--threads", "1")
    answer = json.loads(done.stdout)
    assert "8 of 8 cells" in done.stderr
    folds = tr.folds(tr.read(files / "data.txt"), 4)
    fold_means = [
        tr.evaluate(tr.grid_search("ListMLE", fold.train, fold.valid).ranker.predict(fold.test), fold.test, "map").mean[
            "map"
        ]
        for fold in folds
    ]
    found = answer["datasets"]["data"]["conventions"]["standard"]
    assert found["mean_of_fold_means"]["map"]["ListMLE"] == np.mean(fold_means)
    assert list(found["by_fold"]["map"]["ListMLE"].values()) == fold_means
    assert len(answer["cells"]) == 8
    assert (files / "r.html").read_text().startswith("<!")
    table = toprank(*arguments, "-m", "err@5", "-c", "letor4,standard", "--baseline", "ListMLE", "--markdown")
    assert "8 of 8 cells, 8 cached." in table.stderr
    assert table.stdout.count("| system | err@5 |") == 4
    assert "paired difference to ListMLE" in table.stdout
    results = Results.read(files / "r.parquet")
    assert results.fold_means("map")["ListMLE"] == np.mean(fold_means)
    assert "cv" in results.provenance["command"]


def test_a_report_that_fails_loses_no_results(files, monkeypatch):
    def fails(*_):
        raise RuntimeError("no report")

    monkeypatch.setattr(tr.report, "write_html", fails)
    systems = ["--systems", "LeastSquares,ListNet", "--folds", "3", "--threads", "1", "-q"]
    done = CliRunner().invoke(app, ["cv", str(files / "data.txt"), *systems, "--html", str(files / "r.html")])
    assert isinstance(done.exception, RuntimeError)
    place = files / "toprank-results.parquet"
    assert str(place) in done.stderr
    assert set(Results.read(place).fold_means("map")) == {"LeastSquares", "ListNet"}
    place.unlink()
    CliRunner().invoke(
        app, ["cv", str(files / "data.txt"), *systems, "--html", str(files / "r.html"), "-o", str(files / "o.parquet")]
    )
    assert not place.exists()  # they were written already
    assert (files / "o.parquet").exists()
    scores = [str(files / name) for name in ("good.scores", "useless.scores")]
    done = CliRunner().invoke(app, ["compare", str(files / "data.txt"), *scores, "--html", str(files / "r.html")])
    assert isinstance(done.exception, RuntimeError)
    assert "good is better than useless" in done.stdout


def test_cv_understands_groups_and_settings(files, monkeypatch):
    asked = {}

    class Asked:
        def __init__(self, datasets, systems, **options):
            asked.update(options, datasets=datasets, systems=systems)

        def run(self, verbose):
            raise KeyboardInterrupt("Stopped: 1 of 2 cells.")

    monkeypatch.setattr("toprank.experiment.Experiment", Asked)
    data = str(files / "data.txt")
    options = ["--set", "cs-rglist.pcf=2", "--seeds", "1,2", "-c", "all", "--selection-metric", "map", "--seed", "7"]
    done = CliRunner().invoke(app, ["cv", data, "--systems", "all-linear,LambdaMART", *options])
    assert done.exit_code == 130
    assert done.stderr.endswith("toprank: Stopped: 1 of 2 cells.\n")
    linear = {name for name, one in tr.systems.SYSTEMS.items() if one.ranker == "LinearRanker"} - {"Distilled"}
    assert set(asked["systems"]) == {*linear, "LambdaMART"}
    assert asked["systems"]["cs-RgList"] == ("cs-RgList", {"pcf": 2})
    assert (asked["seeds"], asked["split_seed"], asked["selection_metric"]) == ([1, 2], 7, "map")
    assert asked["conventions"] == list(tr.metrics.CONVENTIONS)
    assert len(asked["datasets"]["data"]) == 5
    for wrong, words in (
        (["--set", "pcf=2"], "SYSTEM.key=value"),
        (["--set", "RankSVM.l2=2"], "not one of the systems"),
        (["--json", "--latex"], "choose one"),
        (["--save-models"], "--cache-dir"),
    ):
        done = CliRunner().invoke(app, ["cv", data, "--systems", "ListMLE", *wrong])
        assert done.exit_code == 2
        assert words in done.stderr
    assert "passed twice" in CliRunner().invoke(app, ["cv", data, data, "--systems", "all-trees"]).stderr
    for group, ranker in (("all-trees", "TreeRanker"), ("all-networks", "NeuralRanker"), ("all", None)):
        CliRunner().invoke(app, ["cv", data, "--systems", group])
        named = {n for n, one in tr.systems.SYSTEMS.items() if ranker in (None, one.ranker)}
        assert set(asked["systems"]) == {n for n in named if not n.startswith("Distilled")}  # there is no teacher


def test_check_and_convert(files):
    done = toprank("check", files / "data.txt")
    assert done.stdout
    (files / "bad.txt").write_text("1 qid:1 1:1\n1 qid:1 1:1\n")
    assert toprank("check", files / "bad.txt", "--strict", status=1).stdout
    assert json.loads(toprank("check", files / "bad.txt", "--json").stdout)["findings"]
    data = tr.read(files / "data.txt")
    for name in ("data.parquet", "data.csv", "data.arrow", "data.toprank-data", "data.txt.gz", "data.txt.zst"):
        toprank("convert", files / "data.txt", files / name)
        back = tr.read(files / name)
        np.testing.assert_array_equal(back.X.astype(np.float32), data.X)  # CSV does not say which float it holds
        np.testing.assert_array_equal(back.labels, data.labels)
        assert back.qids.tolist() == data.qids.tolist()


def test_demo_and_version(tmp_path):
    shown = toprank("demo", "--synthetic", "-o", tmp_path / "demo").stdout
    assert "Bayes-optimal is better than LeastSquares" in shown
    assert re.search(r"The optimal ranking.* is closest with .* Significantly below the optimum: \w+", shown)
    for name in ("train.txt", "vali.txt", "test.txt", "cs-RgList.toprank", "cs-RgList.scores"):
        assert (tmp_path / "demo" / name).exists()
    assert toprank("--version").stdout == f"toprank {tr.__version__}\n"
    assert "standard" in toprank("conventions").stdout


def commands(group=None):
    """(its words, command) of all commands."""
    for word, command in (group or get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from (((word, *words), one) for words, one in commands(command))
        else:
            yield (word,), command


def sections(*words):
    """The help of a command, and its sections by name, each as one line."""
    text = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"}, terminal_width=200).stdout
    parts = re.split(r"^(\w[\w ]*):\n", text, flags=re.MULTILINE)
    return text, {name: " ".join(lines.split()) for name, lines in zip(parts[1::2], parts[2::2], strict=True)}


def test_help_lists_every_command_in_a_group_with_a_whole_sentence():
    _, shown = sections()
    groups = ["Start", "Data", "Train", "Judge", "Explain", "Ship", "Clicks", "Search"]
    assert list(shown) == ["Options", *groups]
    assert shown["Start"].startswith("demo ")
    for name, command in get_command(app).commands.items():
        sentence = " ".join(command.help.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
        assert [group for group in groups if f"{name} {sentence}." in shown[group]] == [command.rich_help_panel]


@pytest.mark.parametrize(
    ("words", "command"), [*commands()], ids=lambda one: " ".join(one) if type(one) is tuple else ""
)
def test_help_has_options_in_groups_and_words_that_sentences_use(words, command):
    text, shown = sections(*words)
    assert f"toprank {' '.join(words)}" in text.split("For example:", 1)[1]
    assert not re.search("<[a-z]", text)  # types of Python
    for one in command.params:
        if one.param_type_name == "argument":
            assert one.metavar == one.metavar.upper()
            assert one.metavar in shown["Arguments"]
            assert one.metavar in text.splitlines()[0]
        elif one.hidden:
            assert f"{one.opts[-1]} " not in text.split("For example:")[1].split("\n\n", 2)[2]
        else:
            assert one.opts[-1] in shown[one.rich_help_panel or "Options"]
    assert all(option not in shown.get("Options", "") for option in ("--label ", "--seed ", "--json"))


def test_options_that_do_nothing_are_taken_but_not_shown():
    assert "--seed" not in sections("systems")[0]
    assert "--seed" in sections("train")[0]
    for name in (
        "--shadow",
        "--interleave",
        "--split",
        "--max-documents",
    ):  # the search page ranks by no model of these
        assert name in sections("serve")[0]
        assert name not in sections("search", "serve")[0]
    run = CliRunner().invoke
    assert run(app, ["systems", "--seed", "1", "--threads", "1", "-q"]).stdout == run(app, ["systems"]).stdout != ""


def test_output_has_one_name():
    with_output = set()
    for words, command in commands():
        options = [one.opts for one in command.params if {"-o", "--output", "--out"} & {*one.opts}]
        assert all({"-o", "--output"} <= {*one} and "--out" not in one for one in options)
        with_output |= {words[-1]} if options else set()
    assert {"demo", "train", "tune", "predict", "split", "export", "cv"} <= with_output


@pytest.mark.parametrize(
    "words", [["--threads", "0"], ["--seed", "x"], ["--unjudged", "no"]], ids=lambda words: words[0]
)
def test_a_value_of_the_wrong_kind_is_refused_in_our_words(words):
    done = CliRunner().invoke(app, ["evaluate", "data.txt", "a.scores", *words])
    assert done.exit_code == 2
    assert f"Invalid value for '{words[0]}'" in done.output
    assert not re.search("Input should|Value error|unable to parse", done.output)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["evaluate", "none.txt", "none.scores"], 1, "none.txt"),
        (["evaluate", "data.txt"], 2, "SCORES"),
        (["evaluate", "data.txt", "good.scores", "-m", "ncdg@10"], 2, "did you mean 'ndcg@10'"),
        (["evaluate", "data.txt", "good.scores", "-c", "letr4"], 2, "letor4"),
        (["evaluate", "data.txt", "good.scores", "--mterics", "map"], 2, "--mterics"),
        (["evaluate", "data.txt", "short.scores"], 1, "200"),
        (["evaluate", "data.txt", "words.scores"], 1, "words.scores:2"),
        (["evaluate", "broken.txt", "good.scores"], 1, "broken.txt:2:"),
        (["evaluate", "empty.txt", "good.scores"], 1, "empty.txt"),
        (["evaluate", "split.txt", "good.scores"], 1, "split.txt:3"),
        (["compare", "data.txt", "good.scores", "useless.scores", "--baseline", "god"], 2, "good"),
        (["compare", "data.txt", "good.scores"], 2, "two"),
        (["convert", "data.txt", "out.xyz"], 2, "xyz"),
        (["convert", "broken.txt", "out.parquet"], 1, "broken.txt:2:"),
        (["cv", "none.txt", "--systems", "RankSVM"], 1, "none.txt"),
        (["cv", "data.txt", "--systems", "RankSMV"], 2, "RankSVM"),
        (["cv", "data.txt", "--systems", "RankSVM", "--seeds", "x"], 2, "whole numbers"),
        (["cv", "data.txt", "--systems", "RankSVM", "--folds", "30"], 1, "use fewer folds."),
        (["cv", "data.txt", "--systems", "RankSVM", "-o", "no/where.parquet"], 1, "no/where.parquet"),
        (
            ["cv", "data.txt", "--systems", "RankSVM", "--set", "RankSVM.l2=-1", "-q"],
            1,
            "All cells failed. The first error",
        ),
        (["check", "none.txt"], 1, "none.txt"),
        (["check", "data.txt", "--cutoffs", "x"], 2, "cutoffs"),
        (["clicks", "check", "data.txt"], 1, "This is LETOR text"),
        (
            ["clicks", "simulate", "data.txt", "good.scores", "-o", "x.csv", "--noise", "2"],
            1,
            "--noise must be a number",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_a_status(files, monkeypatch, arguments, status, words):
    monkeypatch.chdir(files)
    (files / "short.scores").write_text("1\n2\n")
    (files / "words.scores").write_text("1\ntwo\n" + "3\n" * 198)
    (files / "broken.txt").write_text("1 qid:1 1:1\n2 qid:1 one:1\n")
    (files / "empty.txt").write_text("")
    (files / "split.txt").write_text("1 qid:1 1:1\n1 qid:2 1:1\n1 qid:1 1:1\n")
    done = toprank(*arguments, status=status)
    assert words in done.stderr
    assert done.stdout == ""
    assert not (files / "out.parquet").exists()
    assert not list(files.glob("*.tmp"))


def test_evaluate_on_real_data(tmp_path):
    path = shared_data("letor", "OHSUMED", "S1.txt")
    data = tr.read(path)
    tr.write_scores(np.zeros(data.n_documents), tmp_path / "zero.scores")
    results = json.loads(toprank("evaluate", path, tmp_path / "zero.scores", "-c", "all", "--json").stdout)[
        "conventions"
    ]
    # Rows of OHSUMED lie in an order that is itself a ranker: file order must look far better than random order.
    assert results["letor-clipped"]["mean"]["ndcg@10"] > results["standard"]["mean"]["ndcg@10"] + 0.1


def test_train_without_choosing(files, monkeypatch):
    monkeypatch.chdir(files)
    arguments = ("train", "data.txt", "--system", "auto", "--time-budget", "1", "-o", "m.toprank")
    told = toprank(*arguments, "--no-blend").stdout
    assert "candidate" in told
    assert "were held out for the selection" in " ".join(told.split())
    answer = json.loads(toprank(*arguments, "--json", "--quiet").stdout)
    assert answer["system"] == "auto"
    assert answer["n_held_out"] == 5
    seconds = [trial["seconds"] for trial in answer["trials"] if trial["seconds"] is not None]
    assert seconds
    assert min(seconds) >= 0
    training = json.loads(toprank("inspect", "m.toprank", "--json").stdout)["training"]
    assert answer["summary"] == training["auto"]["summary"]
    toprank("predict", "m.toprank", "data.txt", "-o", "auto.scores")
    assert np.isfinite(tr.read_scores("auto.scores", 200)).all()
    assert toprank("systems").stdout.startswith("auto ")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["data.txt", "--system", "auto", "--set", "l2=1"], 2, "--set"),
        (["data.txt", "--system", "auto", "--time-budget", "nan"], 2, "above 0"),
        (["data.txt", "--time-budget", "5"], 2, "auto"),
        (["data.txt", "--system", "auto", "--valid", "equal.txt"], 1, "same label"),
    ],
)
def test_auto_on_impossible_data_or_options_is_a_sentence(files, monkeypatch, arguments, status, words):
    monkeypatch.chdir(files)
    (files / "equal.txt").write_text("".join(f"1 qid:{i // 2} 1:{i} 2:1 3:1\n" for i in range(40)))
    done = toprank("train", *arguments, "-o", "m.toprank", status=status)
    assert words in done.stderr
    assert not (files / "m.toprank").exists()


@pytest.mark.parametrize("setting", ["metric=map", "convention=letor4", "threads=1"])
def test_what_the_command_decides_is_not_set(files, monkeypatch, setting):
    monkeypatch.chdir(files)
    option = setting.partition("=")[0]
    arguments = ("train", "data.txt", "--valid", "data.txt", "--system", "ListNet", "-o", "no.toprank")
    done = toprank(*arguments, "--set", setting, status=2)
    assert f"use --{option}" in " ".join(done.stderr.replace("│", " ").split())
    assert not (files / "no.toprank").exists()


def test_scattered_rows_keep_their_scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.txt").write_text("1 qid:1 1:1\n0 qid:2 1:1\n0 qid:1 1:1\n1 qid:2 1:1\n")
    (tmp_path / "good.scores").write_text("9\n8\n1\n2\n")
    (tmp_path / "best.scores").write_text("9\n1\n1\n2\n")
    for extra in ([], ["--cache"], ["--cache"]):  # read, written to the cache, read from it
        arguments = ("evaluate", "d.txt", "good.scores", "--regroup", "-m", "rr", "--per-query", "--json", *extra)
        answer = json.loads(toprank(*arguments).stdout)
        assert answer["per_query"]["rr"] == {"1": 1.0, "2": 1 / 2}
    compared = toprank("compare", "d.txt", "good.scores", "best.scores", "--regroup", "-m", "rr", "--json").stdout
    assert json.loads(compared)["means"] == {"good": {"rr": 3 / 4}, "best": {"rr": 1.0}}
    (tmp_path / "d.qrels").write_text("1 0 a 1\n2 0 a 0\n1 0 b 0\n2 0 b 1\n")
    answer = json.loads(toprank("evaluate", "d.qrels", "good.scores", "-m", "rr", "--per-query", "--json").stdout)
    assert answer["per_query"]["rr"] == {"1": 1.0, "2": 1 / 2}


def test_data_from_a_pipe(files):
    script = (
        f"cat {files / 'data.txt'} | {sys.executable} -m toprank evaluate /dev/stdin {files / 'good.scores'} --json"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    direct = toprank("evaluate", files / "data.txt", files / "good.scores", "--json").stdout
    assert json.loads(done.stdout)["mean"] == json.loads(direct)["mean"]


def test_a_cache_is_verified_against_its_source(files):
    arguments = ("evaluate", files / "data.txt", files / "good.scores", "--cache", "--json")
    first = json.loads(toprank(*arguments).stdout)
    status = os.stat(files / "data.txt")
    text = (files / "data.txt").read_text()
    (files / "data.txt").write_text(("1" if text[0] != "1" else "0") + text[1:])  # same size, other content
    os.utime(files / "data.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert json.loads(toprank(*arguments).stdout)["mean"] == first["mean"]
    assert json.loads(toprank(*arguments, "--verify").stdout)["mean"] != first["mean"]


def test_a_run_from_scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.txt").write_text("1 qid:1 1:1 # docid = a\n0 qid:1 1:1 # docid = b\n")
    (tmp_path / "s").write_text("1\n2\n")
    toprank("convert", "d.txt", "d.run", "--scores", "s")
    assert tr.read_run("d.run").document_ids[np.argsort(-tr.read_run("d.run").scores)].tolist() == ["b", "a"]
    assert "--scores" in toprank("convert", "d.txt", "d.run", status=2).stderr
    assert toprank("evaluate", "--version").stdout == f"toprank {tr.__version__}\n"


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["-m", "ndcg@10(gain=[0,x])"], 1, "gain table"),
        (["-m", "ndcg@10(gain=5)"], 1, "is not a gain"),
        (["-m", "ndcg@10(no_relevant=foo)"], 2, "zero"),
        (["-m", "ndcg(k=inf)"], 1, "whole number"),
        (["-m", "ndcg(k=2.5)"], 1, "whole number"),
        (["--max-grade", "inf"], 1, "positive number"),
        (["-m", "rbp", "--max-grade", "1"], 1, "max_grade"),
    ],
)
def test_wrong_metrics_are_sentences(files, options, status, words):
    done = toprank("evaluate", files / "data.txt", files / "good.scores", *options, "--json", status=status)
    assert words in done.stderr


def test_tune(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train, valid = tr.split(tr.synthetic(n_queries=20, n_documents=(3, 8), n_features=3, seed=0), (0.5, 0.5))
    tr.write(train, "train.txt")
    tr.write(valid, "vali.txt")
    arguments = ("tune", "train.txt", "--valid", "vali.txt", "--system", "ListNet", "--storage", "s.db")
    space = ("--space", "l2=1e-3:1:log", "--space", "loss.alpha=0.5,1,2", "--set", "psi=exponential")
    done = toprank(*arguments, *space, "--n-trials", "3", "--plot", "s.svg", "-o", "m.toprank", "--json")
    answer = json.loads(done.stdout)
    assert answer["options"].keys() == {"l2", "loss.alpha"}
    assert answer["value"] == max(row["value"] for row in answer["trials"])
    model = tr.load("m.toprank")
    assert tr.evaluate(model.predict(valid), valid).mean["ndcg@10"] == pytest.approx(answer["value"])
    assert (model.loss.psi, model.loss.alpha) == ("exponential", answer["options"]["loss.alpha"])
    assert (tmp_path / "s.svg").exists()
    shown = toprank(*arguments, *space, "--n-trials", "4", "-o", "m.toprank").stdout
    assert "All 4 trials were completed." in shown
    assert "optimistic" in shown
    for options, status, words in (
        (["--metric", "map", *space], 1, "evaluated by ndcg@10"),
        (["--space", "l2=1:0"], 1, "is empty"),
        (["--space", "l3=1:2"], 2, "alpha, "),
    ):
        assert words in toprank(*arguments, *options, "-o", "no.toprank", status=status).stderr
    assert not (tmp_path / "no.toprank").exists()


# Signals

STUBBORN = """
import importlib, os, sys, time
from toprank.cli import main

main._PASS_ON, main._END = 0.1, 0.3
module, name, *sys.argv[1:] = sys.argv[1:]

def deaf(*args, **options):
    ready = [b"ready\\n"]
    while True:
        try:
            os.write(2, ready.pop() if ready else b"")
            time.sleep(600)
        except BaseException:  # as within the callback of a compiler
            pass

sys.argv[0] = "toprank"
setattr(importlib.import_module(module), name, deaf)
main.run()
"""

READING = ("toprank.data.letor.survey", "survey_chunks")


def signaled(script, number, *arguments):
    """What a command says, and its status, when it gets a signal as soon as it says that it is ready."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = iter(process.stderr.readline, "ready\n")
            before = "".join(itertools.takewhile(bool, said))
            process.send_signal(number)
            _, after = process.communicate(timeout=300)
        except BaseException:
            process.kill()
            raise
    assert "Traceback" not in before + after, before + after
    return process.returncode, before + after


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "data.txt", "good.scores"),
        ("compare", "data.txt", "good.scores", "useless.scores"),
        ("check", "data.txt"),
        ("convert", "data.txt", "data.parquet"),
        ("cv", "data.txt", "--systems", "ListNet,ListMLE"),
        ("train", "data.txt", "-o", "m.toprank"),
        ("tune", "data.txt", "-o", "m.toprank"),
        ("predict", "old.toprank", "data.txt", "-o", "out.txt"),
        ("rank", "old.toprank", "data.txt"),
        ("demo", "--synthetic", "-o", "demo"),
    ],
    ids=lambda arguments: arguments[0],
)
@pytest.mark.parametrize("number", [signal.SIGINT, *nightly(signal.SIGTERM)], ids=lambda number: number.name)
def test_signals_end_every_command(files, monkeypatch, arguments, number):
    """Also where something swallows every exception: within seconds, which are fewer here."""
    monkeypatch.chdir(files)
    tr.LinearRanker("ListNet").fit(tr.read("data.txt")).save("old.toprank")
    before = set(os.listdir())
    status, said = signaled(STUBBORN, number, *READING, *arguments)
    assert status == 128 + number
    assert "Ended without waiting for running computations; unsaved results are lost." in said
    assert ("toprank: Terminated." in said) == (number == signal.SIGTERM)
    assert set(os.listdir()) - before <= {"demo"}


@pytest.mark.parametrize("target", ["new.txt", "new.toprank-data"])
def test_a_command_that_must_be_ended_leaves_nothing_unfinished(files, monkeypatch, target):
    monkeypatch.chdir(files)
    before = sorted(os.listdir())
    place = ("toprank.data.letor.writing", "_lines") if target == "new.txt" else ("toprank.data.store.files", "Digest")
    status, _ = signaled(STUBBORN, signal.SIGINT, *place, "convert", "data.txt", target)
    assert status == 130
    assert sorted(os.listdir()) == before


BREAKING = """
import sys, time
from toprank.cli import main
from toprank.data.letor import survey

def broken(*args):
    try:
        sys.stderr.write("ready\\n")
        sys.stderr.flush()
        time.sleep(600)
    except BaseException:
        raise RuntimeError("no compiled object yet") from None

sys.argv[0] = "toprank"
survey.survey_chunks = broken
main.run()
"""


@pytest.mark.parametrize(("number", "words"), [(signal.SIGINT, "Interrupted."), (signal.SIGTERM, "Terminated.")])
def test_what_breaks_by_an_interrupt_is_no_news(files, number, words):
    status, said = signaled(BREAKING, number, "check", files / "data.txt")
    assert (status, said) == (128 + number, f"toprank: {words}\n")


INTERRUPTED = """
import os, signal, sys
from toprank.cli import main
from toprank.rankers.source import RankingObjective

value_and_grad, calls = RankingObjective.value_and_grad, []

def interrupting(self, weights):
    calls.append(0)
    if len(calls) == 4:
        os.kill(os.getpid(), signal.SIGINT)
    return value_and_grad(self, weights)

sys.argv[0] = "toprank"
RankingObjective.value_and_grad = interrupting
main.run()
"""


def test_an_interrupted_training_is_kept_and_does_not_pass_for_a_finished_one(files):
    model = files / "m.toprank"
    command = [sys.executable, "-c", INTERRUPTED, "train", str(files / "data.txt"), "-o", str(model), "-q"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert (
        f"toprank: Interrupted: {model} is the best so far, but the training is incomplete. Use it, or" in done.stderr
    )
    assert np.isfinite(tr.load(model).predict(tr.read(files / "data.txt"))).all()
    assert inspect(model)["training"]["interrupted"] is True


def test_inspect_is_one_screen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = [f"feature_{i}" for i in range(136)]
    data = tr.RankingData(
        rng.normal(size=(300, 136)), rng.integers(0, 5, 300), qid=np.repeat(range(30), 10), feature_names=names
    )
    train, valid = tr.split(data, (0.7, 0.3))
    for ranker in (
        tr.TreeRanker(n_trees=60, num_leaves=4),
        tr.NeuralRanker(epochs=2),
        tr.LinearRanker(l2=[1.0, 0.1]),
        tr.BlendRanker([tr.LinearRanker(), tr.TreeRanker(n_trees=2)]),
    ):
        ranker.fit(train, valid=valid).save("m.toprank")
        shown = CliRunner().invoke(app, ["inspect", "m.toprank"]).stdout.splitlines()
        assert len(shown) < 24  # the prompt takes a line, too
        assert max(map(len, shown)) <= 100
        assert f"kind: {type(ranker).__name__}" in shown
        whole = CliRunner().invoke(app, ["inspect", "m.toprank", "--all"]).stdout
        assert "feature_135" in whole
        assert len(whole.splitlines()) > len(shown)


def test_no_command_writes_onto_what_it_reads(tmp_path):
    data = tr.synthetic(n_queries=5, n_features=2, seed=0)
    tr.write(data, tmp_path / "d.txt")
    ranker = tr.LinearRanker().fit(data)
    ranker.save(tmp_path / "m.toprank")
    for name in ("s", "s2"):
        tr.write_scores(ranker.predict(data), tmp_path / name)
    (tmp_path / "link").symlink_to(tmp_path / "d.txt")
    names = ("d.txt", "m.toprank", "s", "s2", "link")
    d, m, s, s2, link = (str(tmp_path / name) for name in names)
    before = {name: (tmp_path / name).read_bytes() for name in names}
    commands = [
        ["predict", m, d, "-o", d],
        ["predict", m, d, "-o", m],
        ["predict", m, d, "-o", link],
        ["export", m, "--to", "json", "-o", m],
        ["export", m, "--to", "json", "-o", d, "--check", d],
        ["compare", d, s, m, "--html", d],
        ["compare", d, s, s2, "--model", m, "--html", m],
        ["train", d, "--system", "ListNet", "-o", d],
        ["convert", d, d],
    ]
    for words in commands:
        done = CliRunner().invoke(app, words)
        assert done.exit_code != 0, words
        said = f"{done.output} {done.exception}"
        assert "is an input of this command and would be overwritten" in said, (words, said)
    assert {name: (tmp_path / name).read_bytes() for name in names} == before
