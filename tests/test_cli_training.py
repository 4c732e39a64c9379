"""What is typed behind --set, what train says while it works and when it is done, and what cv, compare, tune refuse."""

from __future__ import annotations

import json
import sys
import zipfile

import numpy as np
import pytest
from typer.testing import CliRunner

import toprank as tr
from support import invoked, toprank
from toprank.cli import common
from toprank.cli.commands import app
from toprank.cli.options import value_of
from toprank.display import progress
from toprank.errors import DataError
from toprank.experiment import Results
from toprank.model_selection import AUTO, grid
from toprank.model_selection.space import default_space
from toprank.systems import DEFAULT


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train, valid = tr.split(tr.synthetic(n_queries=24, n_documents=(3, 6), n_features=3, seed=0), (0.5, 0.5))
    tr.write(train, "train.txt")
    tr.write(valid, "vali.txt")
    return tmp_path


FEW = ("--system", "LambdaMART", "--set", "n_trees=4", "--set", "min_data_in_leaf=2", "--threads", "1")


# --set


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(8,4)", [8, 4]), ("8,4", [8, 4]), ("[8,4]", [8, 4]), ("8,", [8]), ("-1, 0,1", [-1, 0, 1]), (" 3 ", 3),
        ("1e-3", 1e-3), (".5", 0.5), ("True", True), ("null", None), ("None", None), ('{"0": 1}', {"0": 1}),
        ("{0: 1}", {0: 1}), ('["a","b"]', ["a", "b"]), ("a,b", "a,b"), ("rbp(p=0.8)", "rbp(p=0.8)"), ("", ""),
        ("2j", "2j"), ("{1,2}", "{1,2}"), ("[" * 5000, "[" * 5000),
    ],
)  # fmt: skip
def test_values(text, value):
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


@pytest.mark.parametrize("text", ["1,0,-1", "(1, 0, -1)", "[1,0,-1]"])
def test_lists_reach_the_ranker(folder, text):
    invoked("train", "train.txt", *FEW, "--set", f"monotone={text}", "-q", "-o", "m.toprank")
    assert tr.load("m.toprank").directions_ == [1, 0, -1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "l2=1", "--set", "l2=2"), "--set is passed twice for l2"),
        (("--set", "seed=3", "--seed", "4"), "use --seed, not --set seed="),
        (("--set", "seed=3"), "use --seed, not --set seed="),
        (("--system", "ListNet", "--set", "alpha=1", "--set", "loss.alpha=2"), "alpha and loss.alpha are the same"),
    ],
)
def test_an_option_is_fixed_once(folder, arguments, words):
    assert words in invoked("train", "train.txt", "-o", "no", *arguments, status=2).stderr
    assert not (folder / "no").exists()


def test_the_seed_reaches_ranker_and_loss(folder):
    invoked("train", "train.txt", *FEW, "--seed", "5", "-q", "-o", "m.toprank")
    assert tr.load("m.toprank").seed == 5
    drawing = ("--system", "ListMLE", "--set", "ties=random", "-q", "-o", "m.toprank")
    invoked("train", "train.txt", *drawing, "--seed", "5")
    assert tr.load("m.toprank").loss.seed == 5
    invoked("train", "train.txt", *drawing, "--seed", "5", "--set", "loss.seed=6")
    assert tr.load("m.toprank").loss.seed == 6


# What is said


@pytest.mark.parametrize("metric", ["map", "AP", "ndcg_cut_10"])
def test_a_metric_has_one_name_wherever_it_is_told(folder, metric):
    files = ("train", "train.txt", "--valid", "vali.txt", "-o", "m.toprank", "--metric", metric)
    told = invoked(*files, "--system", "RankSVM").stdout
    assert f"{metric} on training data" in told
    assert f"{metric} on validation data" in told
    training = json.loads(invoked(*files, "--system", "RankSVM", "--json", "-q").stdout)["training"]
    assert list(training["metrics"]) == [metric]
    assert set(training["valid"]) == {metric, "convention"}


def test_a_metric_that_is_blind_is_refused_by_train(folder):
    for name in ("train.txt", "vali.txt"):
        data = tr.read(name)
        tr.write(data.replace(labels=data.labels / 8), name)
    for system in ("RankSVM", "RankBoost"):
        refused = CliRunner().invoke(
            app, ["train", "train.txt", "--valid", "vali.txt", "-o", "m.toprank", "--system", system]
        )
        assert "map has the same value for the best and the worst order" in str(refused.exception)


def test_without_validation_data_train_says_that_nothing_was_chosen(folder):
    done = invoked("train", "train.txt", *FEW, "-o", "m.toprank")
    assert "Without --valid" in done.stderr
    assert "training data" in done.stderr
    assert "Without --valid" not in done.stdout
    assert "Without --valid" not in invoked("train", "train.txt", *FEW, "-o", "m.toprank", "-q").stderr
    assert "Without --valid" not in invoked("train", "train.txt", "--valid", "vali.txt", *FEW, "-o", "m.toprank").stderr


@pytest.mark.parametrize(
    ("queries", "more", "system"),
    [
        (29, (), DEFAULT),
        (30, (), AUTO),
        (29, ("--valid", "vali.txt"), AUTO),
        (30, ("--system", "LeastSquares"), "LeastSquares"),
    ],
)
def test_unasked_the_measured_one_is_trained(folder, queries, more, system):
    """Several where there is enough to choose by: validation data, or queries in which documents differ."""
    data = tr.synthetic(n_queries=40, n_features=3, n_grades=3, seed=0)
    told = data.replace(labels=np.where(data.queries.document_query < queries, data.labels, 1.0))
    assert (told.queries.max(told.labels) > told.queries.min(told.labels)).sum() == queries
    tr.write(told, "some.txt")
    tr.write(tr.synthetic(n_queries=12, n_features=3, n_grades=3, seed=1), "vali.txt")
    done = invoked("train", "some.txt", *more, "-o", "m.toprank", "--json", "--threads", "1")
    answer = json.loads(done.stdout)
    assert answer["system"] == system
    tried = [row["name"] for row in answer["trials"] if row["state"] == "complete" and row["name"] != "blend"]
    assert sorted(tried) == (["ListNet", "YetiRank"] if system == AUTO else [])
    assert ("Without --valid, the system's defaults are used" in done.stderr) is (system != AUTO)


def test_settings_are_those_of_a_system_that_is_named(folder):
    done = invoked("train", "train.txt", "--set", "l2=1", "-o", "m.toprank", status=2)
    assert "name it with --system" in " ".join(done.stderr.split())


@pytest.mark.parametrize("valid", [(), ("--valid", "vali.txt")])
def test_trees_tell_their_rounds_to_who_watches(folder, monkeypatch, valid):
    monkeypatch.setattr(common, "is_watched", lambda: not common.is_quiet())
    done = invoked("train", "train.txt", *FEW, *valid, "-o", "m.toprank", "--json")
    assert "round 4/4" in done.stderr
    assert " s left" in done.stderr
    assert ("valid ndcg@10 0." in done.stderr) == bool(valid)
    n = len(tr.systems.get("LambdaMART").candidates())
    assert (f"{n} candidates, with the progress of each" in done.stderr) == bool(valid)
    assert json.loads(done.stdout)["system"] == "LambdaMART"
    assert tr.load("m.toprank").verbose is False
    assert invoked("train", "train.txt", *FEW, *valid, "-o", "m.toprank", "-q").stderr == ""


def test_trees_tell_their_rounds_to_a_pipe_once_they_take_long(folder, monkeypatch):
    """A log of a long training says every ten seconds how far it is; a short one says nothing."""
    told = ("train", "train.txt", *FEW, "-o", "m.toprank")
    assert "round" not in invoked(*told).stderr
    monkeypatch.setattr(progress, "SILENCE", 0.0)
    assert "round 1/4" in invoked(*told).stderr
    assert "round 2/4" not in invoked(*told).stderr  # within ten seconds
    assert "round" not in invoked(*told, "-q").stderr
    assert tr.load("m.toprank").verbose is False


def test_networks_tell_their_epochs_to_who_watches(folder, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(common, "is_watched", lambda: not common.is_quiet())
    few = ("--system", "RankNet", "--set", "epochs=2", "--set", "hidden=(4,)", "--set", "device=cpu", "--threads", "1")
    done = invoked("train", "train.txt", *few, "-o", "m.toprank")
    assert "epoch 2/2" in done.stderr
    assert " s left" in done.stderr
    assert tr.load("m.toprank").hidden == (4,)


def test_threads_are_said_to_matter_where_they_do():
    for command in ("train", "tune", "cv"):
        said = " ".join(invoked(command, "--help").output.split())
        assert "Does not change results, except for rounding in networks" in said
        assert "Does not change results." not in said
    assert "Does not change results." in " ".join(invoked("evaluate", "--help").output.split())


# Refusals


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare", "train.txt", "a.scores", "./a.scores"), "passed twice"),
        (("cv", "train.txt", "--systems", "ListNet", "-o", "x.csv"), "name it x.parquet"),
        (
            ("cv", "train.txt", "--systems", "ListNet", "--set", "ListNet.l2=1", "--set", "listnet.l2=2"),
            "passed twice for ListNet.l2",
        ),
        (("cv", "train.txt", "--systems", "ListNet", "--set", "ListNet.threads=1"), "use --threads"),
        (("cv", "train.txt", "--systems", "ListNet", "--set", "ListNet.metric=map"), "use --selection-metric"),
        (
            ("cv", "train.txt", "--systems", "ListNet", "--set", "ListNet.convention=letor4"),
            "use --selection-convention",
        ),
    ],
)
def test_wrong_usage(folder, arguments, words):
    said = " ".join(invoked(*arguments, status=2).stderr.split())
    assert words in said


def test_auto_is_refused_in_a_sentence_where_one_system_is_meant(folder):
    data = tr.read("train.txt")
    for use in (
        lambda: tr.grid_search("auto", data, tr.read("vali.txt")),
        lambda: tr.systems.make("auto"),
    ):
        with pytest.raises(tr.errors.DataError, match=r"auto is not a system.*tr\.auto"):
            use()


def test_a_space_is_refused_before_anything_is_read(folder):
    pytest.importorskip("optuna")
    done = invoked("tune", "none.txt", "--system", "ListNet", "--space", "l2=foo", "-o", "no", status=1)
    assert "l2 must be one or several numbers of 0 or larger, not 'foo'" in str(done.exception)
    empty = next(name for name in tr.systems.names() if not default_space(name))
    done = invoked("tune", "none.txt", "--system", empty, "-o", "no", status=1)
    assert "for example --space max_rounds=100,300" in str(done.exception)
    several = ("--folds", "2", "--set", "l2=0.1,1", "--space", "alpha=1,2", "-o", "no")
    done = invoked("tune", "train.txt", "--system", "ListNet", *several, status=1)
    assert "Search for it: --space l2=A,B,..., or" in str(done.exception)


# Text of which a part never names the first feature


@pytest.fixture
def from_zero(folder):
    """Features 0, 1 and 2, of which short.txt never names the first and the last."""
    rng = np.random.default_rng(0)
    data = tr.RankingData(rng.integers(1, 9, (40, 3)), rng.integers(0, 3, 40), qid=np.repeat(np.arange(8), 5))
    tr.write(data, "long.txt", first_feature_id=0)
    lines = (folder / "long.txt").read_text().splitlines()
    (folder / "short.txt").write_text(
        "".join(f"{label} {qid} {middle}\n" for label, qid, _, middle, _ in map(str.split, lines))
    )
    return data.replace(X=np.where([False, True, False], data.X, np.nan))


def test_predict_reads_text_with_the_columns_of_the_training(from_zero):
    invoked("train", "long.txt", "--system", "LeastSquares", "--set", "l2=1", "-q", "-o", "m.toprank")
    invoked("predict", "m.toprank", "short.txt", "-o", "s", "-q")
    ranker = tr.load("m.toprank")
    np.testing.assert_array_equal(tr.read_scores("s"), ranker.predict(from_zero))
    tr.write(tr.read("long.txt"), "long.toprank-data")  # which remembers the first id
    invoked("train", "long.toprank-data", "--system", "LeastSquares", "--set", "l2=1", "-q", "-o", "c.toprank")
    invoked("predict", "c.toprank", "short.txt", "-o", "c", "-q")
    np.testing.assert_array_equal(tr.read_scores("c"), tr.read_scores("s"))
    with pytest.raises(DataError, match=r"feature 1 of their text.*feature 0.*first_feature_id=0 and n_features=3"):
        ranker.predict(tr.read("short.txt", n_features=3))
    right = tr.read("short.txt", n_features=3, first_feature_id=0)
    np.testing.assert_array_equal(ranker.predict(right), tr.read_scores("s"))


@pytest.mark.parametrize(("train", "valid"), [("long.txt", "short.txt"), ("short.txt", "long.txt")])
def test_training_and_validation_data_have_the_same_columns(from_zero, monkeypatch, train, valid):
    seen = []
    choose = grid.grid_search
    monkeypatch.setattr(grid, "grid_search", lambda *given, **more: seen.extend(given[1:3]) or choose(*given, **more))
    invoked("train", train, "--valid", valid, "--system", "LeastSquares", "--set", "l2=1", "-q", "-o", "m.toprank")
    whole = tr.read("long.txt").X
    for part, file in zip(seen, (train, valid), strict=True):
        np.testing.assert_array_equal(part.X, whole if file == "long.txt" else from_zero.X)
    assert tr.load("m.toprank").n_features_in_ == 3


def words(*arguments):
    return ["/opt/somewhere/bin/toprank", *(str(one) for one in arguments)]


def everything_in(path):
    """All bytes of a file or folder, what is packed in an archive unpacked."""
    if path.is_dir():
        return b"".join(everything_in(one) for one in sorted(path.rglob("*")) if one.is_file())
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return b"".join(archive.read(name) for name in archive.namelist())
    return path.read_bytes()


@pytest.mark.parametrize("place", ["train", "tune"])
def test_models_say_nothing_of_the_folders_of_the_machine(folder, monkeypatch, place):
    data, model = folder / "train.txt", folder / "m.toprank"
    more = ["--system", "LeastSquares"] if place == "train" else ["--system", "LeastSquares", "--n-trials", 1]
    arguments = [place, data, "-o", model, f"--valid={folder / 'vali.txt'}", "--cache", *more]
    monkeypatch.setattr(sys, "argv", words(*arguments))
    invoked(*arguments)
    told = tr.load(model).training_["command"]
    assert told.startswith(f"toprank {place} train.txt -o m.toprank --valid=vali.txt --cache")
    assert everything_in(folder / "train.txt.toprank-data")
    assert str(folder).encode() not in everything_in(model) + everything_in(folder / "train.txt.toprank-data")


def test_results_and_reports_say_nothing_of_the_folders_of_the_machine(folder, monkeypatch):
    arguments = [
        "cv",
        folder / "train.txt",
        "--systems",
        "LeastSquares,ListNet",
        "--folds",
        3,
        "-o",
        folder / "r.parquet",
    ]
    arguments += ["--html", folder / "r.html", "--cache-dir", folder / "runs"]
    monkeypatch.setattr(sys, "argv", words(*arguments))
    invoked(*arguments)
    for name in ("r.parquet", "r.html", "runs"):
        content = everything_in(folder / name)
        assert content
        assert str(folder).encode() not in content, name
    back = Results.read(folder / "r.parquet")
    assert back.cache_dir.resolve() == (folder / "runs").resolve()
    assert back.provenance["command"].startswith("toprank cv train.txt")


@pytest.mark.parametrize("command", ["predict", "rank"])
def test_threads_act_on_prediction(folder, monkeypatch, command):
    data = tr.read("train.txt")
    trees = tr.TreeRanker(n_trees=2, num_leaves=3, min_data_in_leaf=2)
    tr.BlendRanker([tr.LinearRanker(), tr.BlendRanker([trees])]).fit(data).save("m.toprank")
    used = []
    for kind in (tr.LinearRanker, tr.TreeRanker):

        def scores(self, X, plain=kind._scores):
            used.append(self.threads)
            return plain(self, X)

        monkeypatch.setattr(kind, "_scores", scores)
    alone = invoked(command, "m.toprank", "train.txt", "--threads", 1).output
    assert used == [1, 1]
    assert invoked(command, "m.toprank", "train.txt", "--threads", 1_000_000).output == alone


# No step is silent for long


class AtOnce:
    """A timer for which every step takes long."""

    def __init__(self, seconds, say):
        assert seconds == 2.0
        self.start = say

    def cancel(self):
        pass

    def join(self):
        pass


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        (("evaluate", "vali.txt", "vali.scores"), ["Reading vali.txt …", "Evaluating vali.scores …"]),
        (("compare", "vali.txt", "vali.scores", "other.scores"), ["Reading vali.txt …", "Comparing …"]),
        (("check", "train.txt", "vali.txt"), ["Examining train.txt …"]),
        (("convert", "train.txt", "copy.parquet"), ["Converting train.txt to copy.parquet …"]),
        (("train", "train.txt", *FEW, "-o", "m.toprank"), ["Reading train.txt …", "Training LambdaMART …"]),
        (
            ("train", "train.txt", "--system", "auto", "--time-budget", "1", "-o", "m.toprank"),
            ["Trying systems for about 1 s …"],
        ),
        (("predict", "least.toprank", "vali.txt"), ["Scoring vali.txt …"]),
        (("cv", "train.txt", "--systems", "LeastSquares", "--threads", "1"), ["Reading the folds, and training"]),
        (("clicks", "check", "log.csv"), ["toprank clicks check is running …"]),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_step_that_takes_long_says_what_it_does_into_a_pipe_too(folder, monkeypatch, arguments, steps):
    for name in ("vali.scores", "other.scores"):
        tr.write_scores(np.arange(tr.read("vali.txt").n_documents), name)
    tr.LinearRanker("Squared").fit(tr.read("train.txt")).save("least.toprank")
    tr.clicks.write(tr.clicks.ClickLog.from_columns(["q"] * 2, ["a", "b"], [1, 2], [0, 1]), "log.csv")
    monkeypatch.setattr(progress, "Timer", AtOnce)
    said = toprank(*arguments).stderr.splitlines()
    assert said[0] == f"toprank {' '.join(arguments[: 1 + (arguments[0] == 'clicks')])} is running …"
    for step in steps:
        assert sum(line.startswith(step) for line in said) == 1, said
    if arguments[0] in ("evaluate", "train"):
        assert toprank(*arguments, "-q").stderr == ""


def test_tune_tells_its_trials_into_a_pipe_too(folder):
    pytest.importorskip("optuna")
    search = ("tune", "train.txt", "--valid", "vali.txt", "--system", "LeastSquares", "--n-trials", "2")
    said = invoked(*search, "-o", "m.toprank").stderr
    assert "1/2 trials" in said
    assert "2/2 trials" in said


def test_a_step_within_another_speaks_for_both(monkeypatch, capsys):
    waiting = []

    class Later:
        def __init__(self, seconds, say):
            self.say = say

        def start(self):
            waiting.append(self.say)

        def cancel(self):
            if self.say in waiting:
                waiting.remove(self.say)

        def join(self):
            pass

    def two_seconds_pass():
        for say in waiting[:]:
            say()

    monkeypatch.setattr(progress, "Timer", Later)
    with common.step("outside", quiet=False):
        with common.step("inside", quiet=False):
            two_seconds_pass()
            two_seconds_pass()
        assert capsys.readouterr().err == "inside\n"
        with common.step("quick", quiet=False):
            pass
        two_seconds_pass()
        with common.step(None, quiet=False):
            two_seconds_pass()
        two_seconds_pass()
    two_seconds_pass()
    assert capsys.readouterr().err == "outside\n"


def test_tune_searches_the_recommended_system_by_default(folder):
    pytest.importorskip("optuna")
    few = ("--n-trials", "1", "--set", "n_trees=2", "--threads", "1")
    done = invoked("tune", "train.txt", "--valid", "vali.txt", *few, "-o", "m.toprank", "--json")
    assert json.loads(done.stdout)["system"] == tr.systems.RECOMMENDED == "YetiRank"
    page = " ".join(invoked("tune", "--help").stdout.split())
    assert f"Default: {tr.systems.RECOMMENDED}" in page
