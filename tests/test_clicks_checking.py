"""The doctor of click logs, models compared on held-out sessions, the commands and their page."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import toprank as tr
from toprank.cli.commands import app
from toprank.cli.common import with_option_names
from toprank.clicks import CCM, DBN, DCM, PBM, SDBN, ClickLog, check, compare_models, read, simulate, write
from toprank.clicks.em import rate_prior
from toprank.clicks.findings import unlikely
from toprank.clicks.model_comparison import MODELS, model_named
from toprank.display.svg import tag
from toprank.errors import DataError, ToprankError, UnknownNameError
from toprank.report.clicks import clicks_page


@pytest.fixture(scope="module")
def data():
    data = tr.synthetic(n_queries=60, n_documents=(5, 20), seed=0)
    return data.replace(document_ids=[f"d{row}" for row in range(data.n_documents)])


@pytest.fixture(scope="module")
def log(data):
    scores = {"a": data.X[:, 0], "b": data.X[:, 1]}
    return simulate(
        data, scores, PBM.from_parameters(1 / np.arange(1, 6) ** 0.5), 12_000, k=5, exploration=0.5, noise=0.3
    )


def codes(report):
    return {one.code: one for one in report.findings}


def lists(*sessions, **columns):
    """A log from lists of (document, position, click), one query for all."""
    rows = [(number, *row) for number, rows in enumerate(sessions) for row in rows]
    session, document, position, click = zip(*rows, strict=True)
    return ClickLog.from_columns(["q"] * len(rows), document, position, click, session=session, **columns)


def test_a_good_log_has_notes_alone(log, data):
    report = check(log, data, n_resamples=20)
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
        (lambda: lists([("a", 1, 1), ("b", 1, 0)], [("a", 1, 0)]), "duplicate-positions", "problem", 1),
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
        (lambda: lists([("a", 1, 1), ("b", 2, 0)], dwell=[-3.0, 0.0]), "dwell", "warning", 1),
        (lambda: lists([("a", 1, 1), ("b", 2, 0)], [("b", 1, 0), ("a", 2, 0)]), "unclicked-positions", "warning", 1),
        (lambda: lists([("a", 1, 1), ("b", 2, 0)], [("b", 1, 0), ("a", 2, 1)]), "few-queries", "warning", 1),
        (lambda: lists([("a", 1, 1), ("b", 2000, 0)], [("b", 1, 0)]), "deep-positions", "warning", 1),
        (lambda: lists(*[[("a", 1, k % 2), ("b", 2, 1 - k % 2)] for k in range(99)]), "clicked-sessions-alone",
         "warning", 99),
        (lambda: lists(*[[("a", 1, 0), ("b", 2, 1)][k % 2 :] for k in range(20)], [("c", 1, 0)]), "cut-lists",
         "warning", 20),
        (lambda: lists([("a", 1, 1)], [("b", 1, 0)], [("b", 1, 0)], version=["x", "y", "x"]), "several-versions",
         "note", 2),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_and_counted(made, code, severity, count):
    found = codes(check(made(), n_resamples=5))
    assert code in found, list(found)
    assert (found[code].severity, found[code].count) == (severity, count)


def swapped(n, clicks, **columns):
    """n lists of two documents, of a query each, in either order; `clicks(list, place)` tells what was clicked."""
    rows = [(k, k, "ab"[(place + k // 2) % 2], place + 1, clicks(k, place)) for k in range(n) for place in range(2)]
    session, query, document, position, click = zip(*rows, strict=True)
    return ClickLog.from_columns(np.array(query) // 4, document, position, click, session=session, **columns)


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (lambda: lists([("a", 1, 1), ("b", 2, 0)], dwell=[3.0, 0.0]), "dwell"),
        (lambda: lists([("a", 1, 1), ("b", 2, 0)], dwell=[0.0, np.nan]), "dwell"),
        (lambda: lists([("a", 1, 1), ("b", 2, 0)], dwell=["-1", "-1"]), "dwell"),
        (lambda: lists([("a", 1, 1), ("b", 2, 0)], [("a", 1, 0)]), "gaps"),  # from one session to the next
        (lambda: lists([("a", 1, 1)], [("b", 3, 0)]), "gaps"),
        (lambda: lists([("a", 1, 1), ("b", 2, 0)], [("a", 1, 0)]), "late-start"),
        (lambda: lists([("a", 1, 1), ("b", 2, 0)], [("a", 1, 0), ("b", 2, 1)]), "repeated-documents"),
        (lambda: lists([("a", 1, 1), ("b", 2, 0)], [("b", 1, 0), ("a", 2, 1)]), "several-clicks"),
        (lambda: lists([("a", 1, 1), ("b", 2, 0)], [("b", 1, 0), ("a", 2, 1)]), "repeated-impressions"),
        # what was never shown was not clicked either, and nothing need join it
        (lambda: lists([("a", 1, 1), ("b", 4, 1)], [("b", 1, 0), ("a", 4, 0)]), "unclicked-positions"),
        (lambda: lists([("a", 1, 1), ("b", 4, 1)], [("b", 1, 0), ("a", 4, 0)]), "unjoined-positions"),
        (lambda: lists([("a", 1, 1)], [("b", 1, 0)]), "one-order"),  # one position: nothing to compare
        (lambda: swapped(40, lambda k, place: k % 2 == place), "few-queries"),
        (lambda: swapped(10, lambda k, place: k % 2 == place), "clicked-sessions-alone"),  # few enough for chance
        (lambda: swapped(99, lambda k, place: k % 2 == place and k > 0), "clicked-sessions-alone"),
        (lambda: lists(*[[("a", 1, 0), ("b", 2, 1)][k % 2 :] for k in range(19)], [("c", 1, 0)]), "cut-lists"),
        (lambda: lists(*[[("a", 1, 0), ("b", 2, 1)]] * 20, [("a", 1, 1), ("b", 2, 0)]), "cut-lists"),
        (lambda: lists(*[[("a", 1, k % 2)] for k in range(60)]), "cut-lists"),
        (lambda: lists([("a", 1, 1), ("b", 1_000, 0)], [("b", 1, 0), ("a", 1_000, 1)]), "deep-positions"),
        (lambda: lists([("a", 1, 1)], [("b", 1, 0)], [("b", 1, 0)], version=["x", "", "x"]), "several-versions"),
    ],
)
def test_what_is_right_is_not_found(made, code):
    assert code not in codes(check(made(), n_resamples=5))


def test_versions_are_told_with_how_many_lists_each_ranked_the_most_first():
    sessions = [[("a", 1, 1), ("b", 2, 0)], [("b", 1, 0)], [("b", 1, 0)]]
    found = codes(check(lists(*sessions, version=["x", "x", "y", "y"]), n_resamples=5))["several-versions"]
    assert found.examples == ("y: 2 sessions", "x: 1 session")


def test_few_queries_are_fewer_than_ten():
    for n, few in ((36, True), (40, False)):
        found = codes(check(swapped(n, lambda k, place: k % 3 == place), n_resamples=5))
        assert ("few-queries" in found) == few
    assert found["sessions-without-clicks"].count == sum(k % 3 == 2 for k in range(40))


def test_suspicion_needs_clicks_and_more_than_people_have():
    """Five clicks on five documents of a log where one in a hundred is clicked; four are too few to tell."""
    n = 4_000
    position, session = np.tile(np.arange(1, 6), n), np.repeat(np.arange(n), 5)
    clicks = np.arange(5 * n) % 100 == 37
    for count in (4, 5):
        some = clicks | ((session == 7) & (position <= count))
        log = ClickLog.from_columns(np.zeros(5 * n), position, position, some, session=session)
        assert np.flatnonzero(unlikely(log, log.session, n)).tolist() == ([7] if count == 5 else [])
    # A user who clicks far less than others is none of those, however sure that is.
    seldom = session < 2_000
    some = np.where(seldom, np.arange(5 * n) % 1_000 == 1, np.arange(5 * n) % 4 == 1)
    log = ClickLog.from_columns(np.zeros(5 * n), position, position, some, session=session)
    assert some[seldom].sum() >= 5
    assert not unlikely(log, seldom[log.offsets[:-1]][log.session].astype(np.int64), 2).any()


def test_clicks_on_what_no_list_showed_are_impossible(tmp_path):
    (tmp_path / "log.txt").write_text("1\t0\tQ\tq\t0\ta\tb\n1\t1\tC\tb\n1\t2\tC\tz\n1\t3\tC\ty\n")
    found = codes(check(read(tmp_path / "log.txt"), n_resamples=5))
    assert found["impossible-clicks"].count == 2
    assert "no earlier list showed: 2" in found["impossible-clicks"].summary


USERS = [
    PBM.from_parameters(1 / np.arange(1, 6) ** 0.5),
    PBM.from_parameters([0.9, 0.9, 0.8, 0.7, 0.7]),
    DBN.from_parameters(0.9),
    SDBN(),
    DCM.from_parameters([0.8] * 5),
    CCM.from_parameters([0.9, 0.7, 0.4]),
]


@pytest.mark.parametrize("seed", range(20))
def test_clean_logs_raise_no_alarm(data, seed):
    scores = {"a": data.X[:, 0], "b": data.X[:, 1]}
    users = USERS[seed % len(USERS)]
    log = simulate(data, scores, users, 12_000, k=5, exploration=0.5, noise=0.3, seed=seed)
    user = (np.random.default_rng(seed).permutation(log.n_sessions) % 700)[log.session]
    report = check(replace(log, columns={"user": user}), data, n_resamples=10, seed=seed)
    assert [str(one) for one in report.findings if one.severity != "note"] == []


def test_the_graph_is_told_whole():
    """Documents join 1 with 2 and 4 with 6; 3 and 5 stand alone."""
    rows = [("q", "a", 1), ("q", "a", 2), ("q", "a", 2), ("q", "b", 2), ("q", "b", 1), ("q", "c", 3), ("q", "d", 4),
            ("q", "d", 6), ("q", "d", 6), ("r", "d", 5)]  # fmt: skip
    query, document, position = zip(*rows, strict=True)
    log = ClickLog.from_columns(query, document, position, [1] + [0] * 9, session=range(10))
    report = check(log, n_resamples=5)
    told = report.to_dict()
    assert told["components"] == [[1, 2], [3], [4, 6], [5]]
    assert told["edges"] == [
        {"first": 1, "second": 2, "pairs": 2, "impressions": 5}, {"first": 4, "second": 6, "pairs": 1, "impressions": 3}
    ]  # fmt: skip
    text = " ".join(str(report).split())
    assert "4 groups that are not connected by documents: 1 to 2; 3; 4, 6; 5." in text
    assert "1 and 2 2 5 4 and 6 1 3" in text
    assert set(codes(report)["unjoined-positions"].examples) == {f"position {k}" for k in (3, 4, 5, 6)}


def test_many_edges_are_shown_in_part(data):
    log = simulate(data, data.X[:, 0], PBM.from_parameters([1] * 12), 4_000, k=12, exploration=1.0)
    report = check(log, n_resamples=2)
    assert len(report.graph.edges) == 12 * 11 / 2
    assert "Of 66 pairs, the table shows neighbors and pairs with the first position, down to position 10" in str(
        report
    )
    assert [row[0] for row in report.edges_table().rows] == [f"1 and {k}" for k in range(2, 11)] + [
        f"{k} and {k + 1}" for k in range(2, 10)
    ]


def test_a_deep_log_is_compared_at_the_top():
    shallow = lists([("a", 1, 1), ("b", 1_000, 0)], [("b", 1, 0), ("a", 1_000, 1)])
    deep = lists([("a", 1, 1), ("b", 1_000, 0), ("c", 1_001, 0)], [("b", 1, 0), ("a", 1_000, 1), ("d", 10_000, 0)])
    one, two = check(shallow, n_resamples=5), check(deep, n_resamples=5)
    assert two.sizes["positions"] == 10_000
    assert np.array_equal(two.propensities.values, one.propensities.values, equal_nan=True)
    assert two.graph.edges == one.graph.edges
    assert codes(two)["deep-positions"].count == 2
    with pytest.raises(DataError, match="The log shows nothing at the first 1,000 positions"):
        check(lists([("a", 5_000, 1), ("b", 5_001, 0)]))
    for deeply in (lambda log: tr.clicks.propensities(log, n_resamples=2), lambda log: tr.clicks.UBM().fit(log)):
        with pytest.raises(DataError, match=r"shows position 10,000, but at most 1,000 positions .* log\.top\(1000\)"):
            deeply(deep)
        deeply(deep.top(5))
    assert deep.top(1).n_sessions == 2
    assert lists([("a", 1, 1)], [("b", 2, 0)]).top(1).n_sessions == 1


def test_the_top_of_a_log_is_what_was_shown_there(log):
    kept = log.position <= 3
    top = log.top(3)
    assert (top.pair == log.pair[kept]).all()
    assert (top.clicks == log.clicks[kept]).all()
    assert (top.query == log.query[kept]).all()
    assert all((top.columns[name] == values[kept]).all() for name, values in log.columns.items())


def test_documents_without_features_are_counted(log, data):
    few = tr.RankingData(data.X[:50], data.labels[:50], qid=data.qid[:50], document_ids=data.document_ids[:50])
    found = codes(check(log, few, n_resamples=5))["no-features"]
    shown = np.unique(log.pair)
    assert found.count == (log.rows(few)[shown] < 0).sum()


def test_robots_are_suspected_and_people_are_not(log):
    assert not unlikely(log, log.session, log.n_sessions).any()
    clicks = log.clicks.copy()
    clicks[log.session < 40] = True
    user = np.where(log.session < 40, "robot", "person " + (log.session % 50).astype(str).astype(object)).astype(str)
    report = check(replace(log, clicks=clicks, columns={"user": user}), n_resamples=5)
    assert codes(report)["suspect-users"].examples == ("user robot",)


@pytest.mark.parametrize("nobody", ["", None, np.nan])
def test_rows_of_nobody_are_no_user(log, nobody):
    """However many clicks there are without a user."""
    clicks = log.clicks | (log.session < 400)
    user = (log.session % 50).astype(object)
    user[log.session < 400] = nobody
    for kind in (object, float) if nobody != "" else (object,):
        report = check(replace(log, clicks=clicks, columns={"user": user.astype(kind)}), n_resamples=5)
        assert "suspect-users" not in codes(report)


def test_the_bound_behind_suspicion_holds():
    """People who click independently are not suspected: not one of 20,000 sessions."""
    rng = np.random.default_rng(0)
    rate = np.array([0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.05])
    n = 20_000
    position = np.tile(np.arange(1, 9), n)
    clicks = rng.random(8 * n) < rate[position - 1]
    log = ClickLog.from_columns(
        np.zeros(8 * n), np.tile(np.arange(8), n), position, clicks, session=np.repeat(np.arange(n), 8)
    )
    assert not unlikely(log, log.session, n).any()


def test_wide_intervals_are_told(data):
    log = simulate(data, {"a": data.X[:, 0], "b": data.X[:, 1]}, PBM.from_parameters(1 / np.arange(1, 6)), 150, k=5)
    assert "wide-intervals" in codes(check(log, n_resamples=20))


# Models compared


def test_all_models_are_compared(data):
    enough = np.random.default_rng(0).beta(0.5, 0.5, data.n_documents)
    log = simulate(data, data.X[:, 0], DBN.from_parameters(0.7), 6_000, k=5, exploration=0.5, satisfaction=enough)
    found = compare_models(log, [model(prior=rate_prior(log)) for model in MODELS.values()], n_resamples=20, seed=1)
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
    log = simulate(data, scores, PBM.from_parameters(truth), 8_000, k=5, exploration=0.05)
    error = {
        prior: np.abs(PBM(prior=prior).fit(log).examination_ - truth).max() for prior in (rate_prior(log), (1.0, 1.0))
    }
    assert error[rate_prior(log)] < 0.1 < error[1.0, 1.0]


def test_the_prior_is_that_of_the_first_position_that_there_is():
    late = lists([("a", 2, 1), ("b", 3, 0)], [("b", 2, 0), ("a", 3, 0)], [("b", 2, 0), ("a", 3, 0)])
    early = lists([("a", 1, 1), ("b", 2, 0)], [("b", 1, 0), ("a", 2, 0)], [("b", 1, 0), ("a", 2, 0)])
    assert rate_prior(late) == rate_prior(early) == pytest.approx((0.75, 1.25))


def test_refusals(log):
    with pytest.raises(UnknownNameError, match="click model called 'PBN'; did you mean 'PBM'"):
        model_named("PBN")
    with pytest.raises(DataError, match="leaves none"):
        compare_models(log.select([0, 1]), [PBM()], holdout=0.1)
    with pytest.raises(DataError, match="ClickLog"):
        check([1, 2])
    with pytest.raises(DataError, match="'RankCTR' is the name of a click rate"):
        compare_models(log, {"RankCTR": PBM()})


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
    printed = run(
        "check", files / "log.parquet", "--data", files / "data.parquet", "--n-resamples", 9, "--strict", "-q"
    )
    assert printed.strip() == str(check(read(files / "log.parquet"), data, n_resamples=9))
    found = json.loads(run("check", files / "log.parquet", "--json", "--n-resamples", 9, "-q"))
    assert found == json.loads(json.dumps(check(read(files / "log.parquet"), n_resamples=9).to_dict()))


def test_data_need_ids_and_no_labels(files, data):
    tr.write(data.replace(labels=None), files / "bare.parquet")
    told = json.loads(run("check", files / "log.parquet", "--data", files / "bare.parquet", "--json", "-q"))
    assert "no-features" not in [one["code"] for one in told["findings"]]


def test_columns_are_named_on_the_command_line(tmp_path):
    """A robot is found by a column of users that has no usual name."""
    rng = np.random.default_rng(0)
    n = 3_000
    rows = {
        "search_id": np.repeat(np.arange(n), 3),
        "words": np.repeat(rng.integers(0, 30, n), 3),
        "place": [0, 1, 2] * n,
    }
    frame = pd.DataFrame({**rows, "page": rng.integers(0, 9, 3 * n), "visitor": rows["search_id"] % 100})
    frame["hit"] = (rng.random(3 * n) < 0.1) | (frame["visitor"] == 7)
    frame.to_csv(tmp_path / "log.csv", index=False)
    named = ["--query", "words", "--document", "page", "--position", "place", "--click", "hit", "--first-position", 0]
    told = json.loads(
        run("check", tmp_path / "log.csv", *named, "--user", "visitor", "--json", "-q", "--n-resamples", 2)
    )
    suspects = {one["code"]: one["examples"] for one in told["findings"]}
    assert suspects["suspect-users"] == ["user 7"]
    assert [row["position"] for row in told["positions"]] == [1, 2, 3]
    told = json.loads(run("check", tmp_path / "log.csv", *named, "--user", "", "--json", "-q", "--n-resamples", 2))
    assert "suspect-users" not in {one["code"] for one in told["findings"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "log.csv", "--html", "nowhere/page.html"], "the folder .*nowhere does not exist"),
        (["check", "log.csv", "--query", "document"], "No column looks like the document"),
        (["check", "log.csv", "--position", ""], "log.csv: No column looks like the position"),
        (["check", "nothing.csv"], "There is no file .*nothing.csv"),
        (["check", "empty"], "empty: The folder is empty"),
        (["check", "zero.csv"], "zero.csv: Row 1 .* the position 0.*read it with --first-position 0"),
        (["check", "mixed.csv"], "mixed.csv: Session 1 has several queries, .* --session ''"),
        (["fit", "log.csv", "--html", "nowhere/page.html"], "the folder .*nowhere does not exist"),
        (["simulate", "log.csv", "a.scores", "-o", "log.jsonl"], "log.jsonl: the suffix must be .parquet"),
    ],
)
def test_bad_input_is_a_sentence(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    head = "session,query,document,position,click\n1,a,x,1,1\n"
    for name, row in (("log.csv", ""), ("zero.csv", "2,a,x,0,0\n"), ("mixed.csv", "1,b,x,2,0\n")):
        (tmp_path / name).write_text(head + row)
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.iterdir())
    result = CliRunner().invoke(app, ["clicks", *arguments])
    assert isinstance(result.exception, ToprankError)
    with with_option_names(()), pytest.raises(ToprankError, match=message):
        raise result.exception
    assert sorted(tmp_path.iterdir()) == before


def test_strict_fails_on_problems_alone(tmp_path):
    write(ClickLog.from_columns(["q"] * 2, ["a", "b"], [1, 2], [1, 0]), tmp_path / "log.csv")
    run("check", tmp_path / "log.csv", "-q")
    run("check", tmp_path / "log.csv", "--strict", "-q", code=1)


def test_fit_prints_parameters_beside_the_rates(files, log):
    log = log.select(np.arange(2_000))
    write(log, files / "log.parquet")
    printed = run("fit", files / "log.parquet", "--jackknife-groups", 4, "-q")
    for word in ("PBM", "examination", "GlobalCTR", "RankCTR", "DocumentCTR", "95% interval"):
        assert word in printed
    found = json.loads(
        run(
            "fit",
            files / "log.parquet",
            "--click-model",
            "pbm",
            "--jackknife-groups",
            4,
            "--prior",
            "1,1",
            "--json",
            "-q",
        )
    )
    wanted = PBM(prior=(1, 1)).intervals(log, groups=4)["examination"]
    for side, end in wanted.to_dict().items():
        assert found["parameters"]["examination"][side] == pytest.approx(end)
    assert "UBM" in run(
        "fit", files / "log.parquet", "--compare", "--click-model", "UBM", "--jackknife-groups", 2, "-q"
    )
    bare = run("fit", files / "log.parquet", "--jackknife-groups", 0, "-q")
    assert "examination: 1.000" in bare
    alone = json.loads(run("fit", files / "log.parquet", "--jackknife-groups", 0, "--json", "-q"))
    assert alone["parameters"]["examination"] == {"value": pytest.approx(PBM().fit(log).examination_.tolist())}


def test_doubled_positions_are_refused_or_left_out(tmp_path):
    log = lists([("a", 1, 1), ("b", 1, 0)], [("a", 1, 0), ("b", 2, 1)], [("b", 1, 1), ("a", 2, 0)], [("b", 1, 0)])
    write(log, tmp_path / "log.csv")
    assert "toprank clicks fit --drop-duplicate-positions" in run("check", tmp_path / "log.csv", "-q")
    result = CliRunner().invoke(app, ["clicks", "fit", str(tmp_path / "log.csv")])
    assert isinstance(result.exception, DataError)
    assert "1 session has several documents" in str(result.exception)
    assert "--drop-duplicate-positions drops them" in str(result.exception)
    printed = run(
        "fit", tmp_path / "log.csv", "--drop-duplicate-positions", "--jackknife-groups", 2, "--holdout", 0.34, "-q"
    )
    assert "PBM of 3 sessions" in printed


@pytest.mark.parametrize(
    "users",
    [
        ["--click-model", "PBM", "--examination", "1,0.5,0.25", "--exploration-method", "swap"],
        ["--click-model", "DBN", "--continuation", "0.8"],
        ["--click-model", "DCM", "--continuation", "0.9,0.5,0.1"],
        ["--click-model", "CCM", "--continuation", "0.9,0.5,0.1"],
        ["--click-model", "sdbn"],
        ["--click-model", "Cascade"],
        [],
        ["--click-model", "UBM", "--examination", "1,0.5,0.25"],
        ["--trust", "0.5,0.3,0.2", "--exploration-method", "neighbors"],
    ],
)
def test_simulate_writes_a_log_that_reads(users, files):
    target = files / "made.parquet"
    made = [files / "data.parquet", files / "a.scores", files / "b.scores", "-o", target, "--k", 3]
    run("simulate", *made, "--sessions", 200, "--exploration", 0.2, "-q", *users)
    log = read(target)
    assert log.n_sessions == 200
    assert set(log.columns["ranker"]) == {"a", "b"}
    assert 0 < log.columns["explored"].mean() < 0.5


@pytest.mark.parametrize(
    ("users", "words"),
    [
        (["--click-model", "PBM", "--examination", "1,0.5"], "has 2 numbers"),
        (["--click-model", "DBN", "--examination", "1"], "belongs to PBM"),
        (["--click-model", "CCM"], "three numbers"),
        (["--click-model", "RankCTR"], "not RankCTR"),
        (["--trust", "0.4,0.3"], "has 2 numbers"),
        (["--click-model", "PBM", "--examination", "1,x,2"], "probabilities"),
        (["--click-model", "PBM", "--examination", "1,,0.5,0.2"], "probabilities"),
    ],
)
def test_users_who_make_no_sense_are_wrong_usage(users, words, files):
    made = ["simulate", files / "data.parquet", files / "a.scores", "-o", files / "made.parquet", "--k", 3, *users]
    result = CliRunner().invoke(app, ["clicks", *map(str, made)])
    assert result.exit_code == 2
    assert words in " ".join(result.output.replace("│", " ").split())
    assert not (files / "made.parquet").exists()


def test_the_page_shows_curve_graph_and_models(files, log):
    run("fit", files / "log.parquet", "--jackknife-groups", 4, "--html", files / "page.html", "-q")
    page = (files / "page.html").read_text()
    for edge in check(log, n_resamples=2).graph.edges:
        assert f"positions {edge.first} and {edge.second}: {edge.pairs:,} documents at both" in page
    assert "position 5:" in page
    assert "Perplexity by rank" in page
    assert "style=" not in page.partition("<body")[2]  # the page's own policy forbids it
    more = clicks_page(check(log, n_resamples=2), "log", None, ("more", "More", "", tag("p", "added")))
    assert "<p>added</p>" in more
    one = clicks_page(check(ClickLog.from_columns(["q"] * 2, ["a", "b"], [1, 2], [1, 0]), n_resamples=2), "log")
    assert "cannot be compared" in one
    assert "Propensities:" not in one  # there is no curve to explain


def test_positions_that_nothing_joins_to_the_first_have_another_color():
    log = ClickLog.from_columns(["q"] * 4 + ["r"], [*"abba", "c"], [1, 2, 1, 2, 3], [1, 0, 1, 0, 1])
    page = clicks_page(check(log, n_resamples=2), "log")
    found = re.findall(r"<rect([^>]*)><title>position (\d): (not connected|connected) to the first", page)
    colors = {place: re.search(r"\bs\d\b", marks)[0] for marks, place, _ in found}
    assert [joined for *_, joined in found] == ["connected", "connected", "not connected"]
    assert colors["1"] == colors["2"] != colors["3"]


@pytest.mark.parametrize("share", ["0", "1", "-0.5"])
def test_something_is_held_out_and_something_is_fitted(share, tmp_path):
    done = CliRunner().invoke(app, ["clicks", "fit", str(tmp_path / "log.csv"), "--holdout", share])
    assert done.exit_code == 2
    assert "--holdout must be between 0 and 1" in done.stderr


def test_thirty_positions_have_a_cell_for_each_two():
    """Every two positions can be told apart, however many are joined."""
    rng = np.random.default_rng(0)
    sessions, depth = 200, 30
    documents = np.concatenate([rng.permutation(depth) for _ in range(sessions)]).astype(str)
    positions = np.tile(np.arange(1, depth + 1), sessions)
    log = ClickLog.from_columns(["q"] * len(positions), documents, positions, rng.random(len(positions)) < 0.3)
    report = check(log, n_resamples=2)
    page = clicks_page(report, "log")
    rects = re.findall(r"<rect[^>]*>", page)
    cells = [tuple(re.search(rf' {name}="([^"]*)"', rect).group(1) for name in "xy") for rect in rects]
    assert len(set(cells)) >= depth + len(report.graph.edges)
    assert len(report.graph.edges) == depth * (depth - 1) / 2


@pytest.mark.parametrize("position", [1, 5])
def test_a_page_of_a_position_that_was_never_clicked(position, log):
    report = check(replace(log, clicks=log.clicks & (log.position != position)), n_resamples=5)
    assert codes(report)["unclicked-positions"].examples == (f"position {position}",)
    page = clicks_page(report, "log")
    assert ("Propensity of each position" in page) == (position != 1)
    assert "nan" not in page
    json.dumps(report.to_dict(), allow_nan=False)


def test_the_sessions_that_are_said_to_be_needed_make_intervals_about_as_narrow_as_asked():
    """Before exploring from rates of clicks alone, and while exploring from the intervals so far."""
    data = tr.synthetic(n_queries=300, n_documents=(4, 4), n_features=3, seed=0)
    users, width = tr.clicks.PBM.from_parameters([1, 0.6, 0.4, 0.3]), 0.5

    def logged(sessions, exploration, seed=0):
        liked = np.full(data.n_documents, 0.5)
        return tr.clicks.simulate(
            data, data.X[:, 0], users, sessions, k=4, relevance=liked, exploration=exploration,
            exploration_method="neighbors",
            seed=seed,
        )  # fmt: skip

    def widest(log):
        found = tr.clicks.propensities(log, n_resamples=50)
        return float(((found.intervals.high - found.intervals.low) / found.values).max())

    before = tr.clicks.check(logged(2_000, 0.0), target_width=width, n_resamples=2)
    assert any("sessions make intervals" in one.remedy for one in before.findings if one.code == "one-order")
    assert 0.5 * width < widest(logged(before.sessions_needed, 0.05)) < 2 * width
    while_exploring = tr.clicks.check(logged(5_000, 0.05), target_width=width, n_resamples=50)
    assert 0.5 * width < widest(logged(while_exploring.sessions_needed, 0.05, seed=1)) < 2 * width
    with pytest.raises(tr.ToprankError, match="target_width"):
        tr.clicks.check(logged(100, 0.0), target_width=0)


def test_the_summary_counts_findings_in_words_that_agree():
    report = check(ClickLog.from_columns(["q"] * 4, list("abab"), [1, 2, 1, 2], [0] * 4))
    assert report.summary.endswith("2 findings (2 problems).")
    assert replace(report, findings=report.findings[:1]).summary.endswith("1 finding (1 problem).")
    assert replace(report, findings=()).summary.endswith("No findings.")
