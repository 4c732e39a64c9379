"""`toprank clicks train` and `evaluate`, against the library."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import toprank as tr
from toprank.cli.commands import app
from toprank.losses import Multicategory


@pytest.fixture
def files(tmp_path):
    data = tr.synthetic(n_queries=60, seed=0)
    tr.write(data, tmp_path / "train.txt")
    data = tr.read(tmp_path / "train.txt")
    theta = [1, 0.6, 0.4, 0.3]
    log = tr.clicks.simulate(data, data.X[:, 0], tr.clicks.PBM.from_parameters(theta), 3000, k=4, exploration=0.2)
    tr.clicks.write(log, tmp_path / "log.csv")
    np.savetxt(tmp_path / "new.scores", data.X[:, 1])
    return tmp_path, data, log, theta


def run(*arguments):
    return CliRunner().invoke(app, ["clicks", *map(str, arguments)])


def test_train_writes_what_the_library_trains_and_says_what_is_assumed(files):
    folder, data, log, theta = files
    options = ["--propensities", "1,0.6,0.4,0.3", "-o", folder / "m.toprank", "--naive", folder / "naive.toprank"]
    done = run("train", folder / "log.csv", folder / "train.txt", "--system", "ListNet", *options)
    assert done.exit_code == 0, done.output
    assert "The correction is valid if the probability of a click" in done.stdout
    assert "linear form" in done.stdout
    expected = tr.clicks.train(tr.systems.make("ListNet"), log, data, "affine", theta)
    assert expected.loss[0] == Multicategory(gain=None)
    for name, ranker in (("m", expected.ranker), ("naive", expected.naive)):
        np.testing.assert_allclose(tr.load(folder / f"{name}.toprank").predict(data), ranker.predict(data), rtol=1e-9)
    told = run("train", folder / "log.csv", folder / "train.txt", "--json", "--set", "l2=0.1", *options)
    facts = json.loads(told.stdout)
    assert facts["counts"] == expected.counts
    assert facts["dcg@10"] == {name: one.to_dict() for name, one in expected.estimates.items()}
    assert facts["gain"] == {"affine": expected.gains["affine"].to_dict()}
    assert (facts["choice"], facts["folds"]) == (expected.choice, 5)
    assert expected._verdict() in done.stdout


def test_propensities_that_the_log_contradicts_get_an_exit_status(files):
    folder, _, _, theta = files
    data = tr.read(folder / "train.txt")
    log = tr.clicks.simulate(data, data.X[:, 0], tr.clicks.PBM.from_parameters(theta), 8_000, k=4, exploration=0.5)
    tr.clicks.write(log, folder / "long.csv")
    given = ["train", folder / "long.csv", folder / "train.txt", "--system", "ListNet"]
    wrong = ["--propensities", ",".join(str(one**2) for one in theta)]
    found = run(*given, "-o", folder / "m.toprank", *wrong, "--json")
    assert found.exit_code == 5, found.output
    told = json.loads(found.stdout)
    assert told["choice"] == "naive"
    assert "contradict" in told["propensity_conflict"]
    assert (folder / "m.toprank").exists()
    right = ["--propensities", ",".join(map(str, theta))]
    assert run(*given, "-o", folder / "m.toprank", *right).exit_code == 0


def test_the_page_holds_naive_against_debiased_against_full_information(files):
    folder, data, log, theta = files
    options = [
        "--propensities",
        "1,0.6,0.4,0.3",
        "-o",
        folder / "m.toprank",
        "--full-information",
        "--valid",
        folder / "train.txt",
    ]
    done = run("train", folder / "log.csv", folder / "train.txt", *options, "--html", folder / "page.html")
    assert done.exit_code == 0, done.output
    page = (folder / "page.html").read_text()
    expected = tr.clicks.train(
        tr.systems.make("ListNet"), log, data, "affine", theta, full_information=True, valid=data
    )
    for worth in (expected.estimates, expected.metrics):
        assert list(worth) == ["affine", "naive", "full information"]
        for name, one in worth.items():
            assert f"{name}: {one.value:.4f}, {one.low:.4f} to {one.high:.4f}" in page
    gain = expected.gains["affine"]
    assert f"affine: {gain.value:.4f}, {gain.low:.4f} to {gain.high:.4f}" in page
    assert expected._verdict().replace("'", "&#x27;") in page or expected._verdict().replace("'", "&#39;") in page
    assert "Connections between positions" in page
    assert "The correction is valid if the probability of a click" in page
    for words in (done.stdout, page):
        assert f"{expected.metrics['full information'].value:.4f}" in words


def test_evaluate_prints_the_estimates(files):
    folder, data, log, theta = files
    arguments = [folder / "new.scores", folder / "log.csv", folder / "train.txt", "--metrics", "dcg@4,ctr@4"]
    told = run("evaluate", *arguments, "--propensities", "1,0.6,0.4,0.3", "--offsets", "0,0,0,0", "--json")
    assert told.exit_code == 0, told.output
    expected = tr.clicks.evaluate(data.X[:, 1], log, data, ["dcg@4", "ctr@4"], propensities=theta)
    assert json.loads(told.stdout)["mean"] == pytest.approx(expected.mean)
    words = run("evaluate", *arguments)
    assert "never shown" in words.stdout


def test_bad_input_leaves_nothing_behind(files):
    folder, *_ = files
    both = [folder / "log.csv", folder / "train.txt", "-o", folder / "m.toprank"]
    for options, status in (
        (["--system", "RankSVM"], 1),
        (["--correction", "magic"], 2),
        (["--propensities", "0,0,0,0"], 1),
        (["--propensities", "1,b2"], 2),
        (["--offsets", "1"], 2),
        (["--folds", "1"], 2),
    ):
        done = run("train", *both, *options)
        assert done.exit_code == status or isinstance(done.exception, tr.ToprankError), (options, done.output)
        assert not (folder / "m.toprank").exists()


def test_tables_need_no_labels(files):
    folder, data, _, _ = files
    frame = pd.DataFrame(data.X, columns=[f"f{k}" for k in range(data.n_features)])
    frame = frame.assign(qid=data.qids[data.queries.document_query], doc_id=np.arange(data.n_documents).astype(str))
    frame.to_parquet(folder / "bare.parquet")
    frame.assign(label=data.labels).to_parquet(folder / "judged.parquet")
    given = ["--propensities", "1,0.6,0.4,0.3", "-o", folder / "m.toprank", "--valid", folder / "judged.parquet"]
    told = {}
    for name in ("bare", "judged"):
        done = run("train", folder / "log.csv", folder / f"{name}.parquet", *given, "--json")
        assert done.exit_code == 0, done.output
        assert tr.load(folder / "m.toprank").n_features_in_ == data.n_features
        seen = run("evaluate", folder / "new.scores", folder / "log.csv", folder / f"{name}.parquet", "--json")
        assert seen.exit_code == 0, seen.output
        told[name] = json.loads(done.stdout), json.loads(seen.stdout)
    assert told["bare"] == told["judged"]
    done = run("train", folder / "log.csv", folder / "bare.parquet", *given, "--full-information")
    assert done.exit_code == 1
    assert "not all are judged" in str(done.exception)


def test_what_one_query_does_not_tell_is_null(files):
    folder, _, log, _ = files
    tr.clicks.write(log.select(log.session_query == log.session_query[0]), folder / "one.csv")
    given = ["--propensities", "1,0.6,0.4,0.3"]
    for command in (
        ["train", folder / "one.csv", folder / "train.txt", "-o", folder / "m.toprank", "--html", folder / "p.html"],
        ["evaluate", folder / "new.scores", folder / "one.csv", folder / "train.txt"],
    ):
        told = run(*command, *given, "--json")
        assert told.exit_code == 0, told.output
        facts = json.loads(told.stdout)
        if command[0] == "train":  # there are no others to learn from
            assert (facts["dcg@10"], facts["gain"], facts["choice"]) == (None, None, "naive")
        else:
            assert facts["intervals"]["dcg@10"] == [None, None]
        assert "inf" not in run(*command, *given, "--quiet").stdout
    assert "inf" not in re.sub(r"\w*inf\w+", "", (folder / "p.html").read_text())
