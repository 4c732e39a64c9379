"""The doctor of click logs, models compared on held-out sessions, the commands and their page."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import toprank as tr
from toprank.cli.main import app
from toprank.clicks import DBN, PBM, ClickLog, check, compare_models, read, simulate, write
from toprank.clicks.findings import unlikely
from toprank.clicks.named import MODELS, model_named, rate_prior
from toprank.drawing import tag
from toprank.errors import DataError, UnknownNameError
from toprank.report.clicks import clicks_page


@pytest.fixture(scope="module")
def data():
    data = tr.synthetic(n_queries=60, n_documents=(5, 20), seed=0)
    return data.replace(document_ids=[f"d{row}" for row in range(data.n_documents)])


@pytest.fixture(scope="module")
def log(data):
    scores = {"a": data.X[:, 0], "b": data.X[:, 1]}
    return simulate(data, scores, PBM.known(1 / np.arange(1, 6) ** 0.5), 12_000, k=5, exploration=0.5, noise=0.3)


def codes(report):
    return {one.code: one for one in report.findings}


def lists(*sessions, **columns):
    """A log from lists of (document, position, click), one query for all."""
    rows = [(number, *row) for number, rows in enumerate(sessions) for row in rows]
    session, document, position, click = zip(*rows, strict=True)
    return ClickLog.of(["q"] * len(rows), document, position, click, session=session, **columns)


def test_a_good_log_has_notes_alone(log, data):
    report = check(log, data, resamples=20)
    assert {one.severity for one in report.findings} == {"note"}
    empty = (np.add.reduceat(log.clicks.astype(int), log.offsets[:-1]) == 0).sum()
    assert codes(report)["sessions-without-clicks"].count == empty
    assert report.propensities.identified.all()
    assert report.to_frame()["clicks"].sum() == log.clicks.sum()
    json.dumps(report.to_dict(), allow_nan=False)
    assert "Nothing" not in str(report)


@pytest.mark.parametrize(
    ("made", "code", "severity", "count"),
    [
        (lambda: lists([("a", 1, 0), ("b", 2, 0)]), "no-clicks", "problem", 2),
        (lambda: lists([("a", 1, 1), ("b", 2, 1)]), "only-clicks", "problem", 2),
        (lambda: lists([("a", 1, 1), ("b", 1, 0)], [("a", 1, 0)]), "doubled-positions", "problem", 1),
        (lambda: lists([("a", 1, 1), ("b", 3, 0)], [("a", 1, 0)]), "gaps", "warning", 1),
        (lambda: lists([("a", 2, 1), ("b", 3, 0)], [("a", 1, 0)]), "late-start", "warning", 1),
        (lambda: lists([("a", 1, 1), ("a", 2, 0)], [("b", 1, 0)]), "repeated-documents", "warning", 1),
        (lambda: lists([("a", 1, 1), ("b", 2, 0)], [("a", 1, 0)]), "one-order", "problem", 2),
        (lambda: lists([("a", 1, 1), ("a", 1, 0), ("b", 2, 0)], [("b", 1, 0)]), "repeated-impressions", "warning", 1),
        (lambda: lists([("a", 1, 1), ("b", 2, 1)], [("b", 1, 0)]), "several-clicks", "note", 1),
        (
            lambda: lists([("a", 1, 1), ("b", 2, 0), ("c", 3, 0)], [("b", 1, 0), ("a", 2, 0), ("c", 3, 0)]),
            "unjoined-positions", "warning", 1,
        ),
        (lambda: lists([("a", 1, 1), ("b", 2, 0)], dwell=[3.0, 2.0]), "dwell", "warning", 1),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_and_counted(made, code, severity, count):
    found = codes(check(made(), resamples=5))
    assert code in found, list(found)
    assert (found[code].severity, found[code].count) == (severity, count)


def test_documents_without_features_are_counted(log, data):
    few = tr.RankingData(data.X[:50], data.labels[:50], qid=data.qid[:50], document_ids=data.document_ids[:50])
    found = codes(check(log, few, resamples=5))["no-features"]
    shown = np.unique(log.pair)
    assert found.count == (log.rows(few)[shown] < 0).sum()


def test_robots_are_suspected_and_people_are_not(log):
    assert not unlikely(log, log.session, log.n_sessions).any()
    clicks = log.clicks.copy()
    clicks[log.session < 40] = True
    user = np.where(log.session < 40, "robot", "person " + (log.session % 50).astype(str).astype(object)).astype(str)
    report = check(replace(log, clicks=clicks, columns={"user": user}), resamples=5)
    assert codes(report)["suspect-users"].examples == ("user robot",)


def test_the_bound_behind_suspicion_holds():
    """People who click independently are not suspected: not one of 20,000 sessions."""
    rng = np.random.default_rng(0)
    rate = np.array([0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.05])
    n = 20_000
    position = np.tile(np.arange(1, 9), n)
    clicks = rng.random(8 * n) < rate[position - 1]
    log = ClickLog.of(np.zeros(8 * n), np.tile(np.arange(8), n), position, clicks, session=np.repeat(np.arange(n), 8))
    assert not unlikely(log, log.session, n).any()


def test_wide_intervals_are_told(data):
    log = simulate(data, {"a": data.X[:, 0], "b": data.X[:, 1]}, PBM.known(1 / np.arange(1, 6)), 150, k=5)
    assert "wide-intervals" in codes(check(log, resamples=20))


# Models compared


def test_all_models_are_compared(data):
    enough = np.random.default_rng(0).beta(0.5, 0.5, data.n_documents)
    log = simulate(data, data.X[:, 0], DBN.known(0.7), 6_000, k=5, exploration=0.5, satisfaction=enough)
    found = compare_models(log, [model(prior=rate_prior(log)) for model in MODELS.values()], resamples=20, seed=1)
    assert found.names[0] == "DBN"
    assert set(found.names) == set(MODELS)
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["models"][-1] | {"by_rank": None, "perplexity": None} == {
        "model": "Cascade", "log_likelihood": None, "gain": None, "low": None, "high": None, "by_rank": None,
        "perplexity": None,
    }  # fmt: skip
    for perplexity, by_rank in zip(found.perplexities, found.by_rank, strict=True):
        assert perplexity == pytest.approx(np.mean(by_rank))


def test_a_prior_at_the_rate_of_the_log_leaves_positions_where_they_are(data):
    """Many documents are shown rarely: the mean of the prior is theirs, and with 0.5 the lower positions would pay."""
    truth = 1 / np.arange(1, 6) ** 0.7
    scores = {"a": data.X[:, 0], "b": data.X[:, 1]}
    log = simulate(data, scores, PBM.known(truth), 8_000, k=5, exploration=0.05)
    error = {
        prior: np.abs(PBM(prior=prior).fit(log).examination_ - truth).max() for prior in (rate_prior(log), (1.0, 1.0))
    }
    assert error[rate_prior(log)] < 0.1 < error[1.0, 1.0]


def test_refusals(log):
    with pytest.raises(UnknownNameError, match="click model called 'PBN'; did you mean 'PBM'"):
        model_named("PBN")
    with pytest.raises(DataError, match="leaves nothing"):
        compare_models(log.select([0, 1]), [PBM()], share=0.1)
    with pytest.raises(DataError, match="ClickLog"):
        check([1, 2])


# Commands


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["clicks", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


@pytest.fixture
def files(tmp_path, data, log):
    write(log, tmp_path / "log.parquet")
    tr.write(data, tmp_path / "data.parquet")
    tr.write_scores(data.X[:, 0], tmp_path / "a.scores")
    tr.write_scores(data.X[:, 1], tmp_path / "b.scores")
    return tmp_path


def test_check_prints_what_python_says(files, data):
    printed = run("check", files / "log.parquet", "--data", files / "data.parquet", "--resamples", 9, "--strict", "-q")
    assert printed.strip() == str(check(read(files / "log.parquet"), data, resamples=9))
    found = json.loads(run("check", files / "log.parquet", "--json", "--resamples", 9, "-q"))
    assert found == json.loads(json.dumps(check(read(files / "log.parquet"), resamples=9).to_dict()))


def test_strict_fails_on_problems_alone(tmp_path):
    write(ClickLog.of(["q"] * 2, ["a", "b"], [1, 2], [1, 0]), tmp_path / "log.csv")
    run("check", tmp_path / "log.csv", "-q")
    run("check", tmp_path / "log.csv", "--strict", "-q", code=1)


def test_fit_prints_parameters_beside_the_rates(files, log):
    printed = run("fit", files / "log.parquet", "--resamples", 4, "-q")
    for word in ("PBM", "examination", "GlobalCTR", "RankCTR", "DocumentCTR", "95% interval"):
        assert word in printed
    found = json.loads(
        run("fit", files / "log.parquet", "--model", "dbn", "--resamples", 4, "--prior", "1,1", "--json", "-q")
    )
    assert found["parameters"]["continuation"]["value"] == pytest.approx([DBN().fit(log).continuation_])
    low, high = DBN().intervals(log, resamples=4)["continuation"]
    assert found["parameters"]["continuation"]["low"] == pytest.approx(low.tolist())
    assert found["parameters"]["continuation"]["high"] == pytest.approx(high.tolist())
    assert "UBM" in run("fit", files / "log.parquet", "--compare", "--model", "UBM", "--resamples", 2, "-q")


def test_doubled_positions_are_refused_or_left_out(tmp_path):
    log = lists([("a", 1, 1), ("b", 1, 0)], [("a", 1, 0), ("b", 2, 1)], [("b", 1, 1), ("a", 2, 0)], [("b", 1, 0)])
    write(log, tmp_path / "log.csv")
    assert "toprank clicks fit --skip-doubled" in run("check", tmp_path / "log.csv", "-q")
    result = CliRunner().invoke(app, ["clicks", "fit", str(tmp_path / "log.csv")])
    assert isinstance(result.exception, DataError)
    assert "1 session has several documents" in str(result.exception)
    assert "--skip-doubled leaves them out" in str(result.exception)
    printed = run("fit", tmp_path / "log.csv", "--skip-doubled", "--resamples", 2, "--holdout", 0.34, "-q")
    assert "PBM of 3 sessions" in printed


@pytest.mark.parametrize(
    "users",
    [["--model", "PBM", "--examination", "1,0.5,0.25"], ["--model", "DBN", "--continuation", "0.8"],
     ["--model", "DCM", "--continuation", "0.9,0.5,0.1"], ["--model", "CCM", "--continuation", "0.9,0.5,0.1"],
     ["--model", "sdbn"], ["--model", "Cascade"], []],
)  # fmt: skip
def test_simulate_writes_a_log_that_reads(users, files):
    target = files / "made.parquet"
    made = [files / "data.parquet", files / "a.scores", files / "b.scores", "-o", target, "--k", 3]
    run("simulate", *made, "--sessions", 200, "--exploration", 0.2, "--swap", "-q", *users)
    log = read(target)
    assert log.n_sessions == 200
    assert set(log.columns["ranker"]) == {"a", "b"}
    assert 0 < log.columns["explored"].mean() < 0.5


@pytest.mark.parametrize(
    ("users", "words"),
    [
        (["--model", "PBM", "--examination", "1,0.5"], "gives 2 positions"),
        (["--model", "DBN", "--examination", "1"], "belongs to PBM"),
        (["--model", "CCM"], "three numbers"),
        (["--model", "UBM"], "not UBM"),
        (["--model", "PBM", "--examination", "1,x,2"], "probabilities"),
    ],
)
def test_users_who_make_no_sense_are_wrong_usage(users, words, files):
    made = ["simulate", files / "data.parquet", files / "a.scores", "-o", files / "made.parquet", "--k", 3, *users]
    result = CliRunner().invoke(app, ["clicks", *map(str, made)])
    assert result.exit_code == 2
    assert words in " ".join(result.output.replace("│", " ").split())
    assert not (files / "made.parquet").exists()


def test_the_page_shows_curve_graph_and_models(files, log):
    run("fit", files / "log.parquet", "--resamples", 4, "--html", files / "page.html", "-q")
    page = (files / "page.html").read_text()
    for edge in check(log, resamples=2).graph.edges:
        assert f"positions {edge.first} and {edge.second}: {edge.pairs:,} documents at both" in page
    assert "position 5:" in page
    assert "Perplexity by rank" in page
    assert "style=" not in page.partition("<body")[2]  # the page's own policy forbids it
    more = clicks_page(check(log, resamples=2), "log", None, ("more", "More", "", tag("p", "added")))
    assert "<p>added</p>" in more
    one = clicks_page(check(ClickLog.of(["q"] * 2, ["a", "b"], [1, 2], [1, 0]), resamples=2), "log")
    assert "cannot be compared" in one
