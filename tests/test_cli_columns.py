"""Tables whose columns have names of their own, on the command line; and refusals that speak of options."""

from __future__ import annotations

import inspect
import json
import pickle
import re
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import toprank as tr
from support import invoked
from toprank.cli import comparing, evaluating, experimenting, predicting, preparing, training, tuning
from toprank.cli.common import with_option_names, with_options
from toprank.cli.options import expanded, keywords_of, only
from toprank.cli.reading import COLUMNS, ReadOptions
from toprank.data.options import Option
from toprank.errors import FileError, FormatError, Remedy, ToprankError, UnknownNameError

COMMANDS = [
    training.train, tuning.tune, predicting.predict, predicting.rank, experimenting.cv, comparing.compare,
    evaluating.evaluate, preparing.check, preparing.convert,
]  # fmt: skip
OWN = ("--label", "rating", "--qid", "session", "--features", "bm25,age", "--document-id", "page")
FEW = ("--system", "LeastSquares", "--set", "l2=1", "-q")


def refused(*arguments, kind=ToprankError):
    result = invoked(*arguments, status=1)
    assert isinstance(result.exception, kind)
    return str(result.exception)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """data.txt, and the same documents as a table with other names, a text column, and a number that is no feature."""
    monkeypatch.chdir(tmp_path)
    data = tr.synthetic(n_queries=12, n_documents=(3, 6), n_features=2, seed=0)
    tr.write(data, "data.txt")
    (tmp_path / "data.txt.names").unlink()  # text as others write it
    sessions = np.repeat([f"s{q}" for q in range(data.n_queries)], data.queries.sizes)
    lines, bare, plain = ["year,age,bm25,title,session,page,rating"], ["age,title,bm25,session,page"], ["a,b,qid"]
    for row, (x, label, qid) in enumerate(zip(data.X.tolist(), data.labels.tolist(), sessions, strict=True)):
        lines.append(f"1999,{x[1]!r},{x[0]!r},a title,{qid},p{row},{label}")
        bare.append(f"{x[1]!r},a title,{x[0]!r},{qid},p{row}")
        plain.append(f"{x[0]!r},{x[1]!r},{qid}")
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "bare.csv").write_text("\n".join(bare) + "\n")
    (tmp_path / "plain.csv").write_text("\n".join(plain) + "\n")
    tr.write_scores(data.X[:, 0], "first.scores")
    tr.write_scores(data.X[:, 1], "second.scores")
    return tmp_path


def trained():
    data = tr.read("table.csv", label="rating", qid="session", features=["bm25", "age"], document_id="page")
    return data, tr.systems.make("LeastSquares", l2=1).fit(data)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_every_command_that_reads_data_asks_for_columns(command):
    shown = invoked(command.__name__, "--help").output
    assert all(f"{option} " in shown for option in ("--label", "--qid", "--features", "--document-id"))


def test_a_table_with_names_of_its_own_goes_all_the_way(folder):
    data, ranker = trained()
    expected = ranker.predict(data)
    invoked("train", "table.csv", *OWN, *FEW, "-o", "m.toprank")
    model = tr.load("m.toprank")
    assert list(model.feature_names_in_) == ["bm25", "age"]
    np.testing.assert_array_equal(model.predict(data), expected)
    invoked("predict", "m.toprank", "table.csv", *OWN, "-o", "m.scores", "-q")
    np.testing.assert_array_equal(tr.read_scores("m.scores", data.n_documents), expected)
    answer = json.loads(invoked("evaluate", "table.csv", "m.scores", *OWN, "-c", "trec_eval", "--json").stdout)
    assert answer["mean"] == dict(tr.evaluate(expected, data, "ndcg@10,map", convention="trec_eval").mean)
    compared = json.loads(invoked("compare", "table.csv", "m.scores", "first.scores", *OWN, "--json").stdout)
    assert compared["means"]["m"] == dict(tr.evaluate(expected, data, "ndcg@10").mean)
    found = json.loads(invoked("check", "table.csv", *OWN, "--json").stdout)["data"]
    assert [one["features"] for one in found] == [2]
    one = ("--systems", "LeastSquares", "--set", "LeastSquares.l2=1", "-q", "--json")
    crossed = invoked("cv", "table.csv", *OWN, *one)
    assert len(json.loads(crossed.stdout)["cells"]) == 5
    pytest.importorskip("optuna")
    tuned = ("--system", "LeastSquares", "--space", "l2=0.1,1", "--n-trials", "1", "-q", "-o", "t.toprank")
    invoked("tune", "table.csv", *OWN, *tuned)
    assert list(tr.load("t.toprank").feature_names_in_) == ["bm25", "age"]


@pytest.mark.parametrize(
    ("qid", "page", "options", "words"),
    [
        ("a b", "x", ("--trec",), "'a b' cannot be a column of a TREC run: it must be a word without whitespace"),
        ("a", "x\ty", ("--trec",), "cannot be a column of a TREC run"),
        ("a", "x\ty", (), "contains a tab or a line break, which separate ids; use --json"),
        ("a\nb", "x", (), "contains a tab or a line break"),
    ],
)
def test_lists_that_nobody_could_read_are_not_printed(folder, qid, page, options, words):
    ranker = tr.systems.make("LeastSquares", l2=1).fit(tr.read("data.txt"))
    ranker.save("m.toprank")
    width = ranker.n_features_in_
    odd = tr.RankingData(np.zeros((2, width)), qid=["0", qid], document_ids=["w", page])
    tr.write(odd, "odd.parquet")
    assert words in refused("rank", "m.toprank", "odd.parquet", "-q", *options)
    assert invoked("rank", "m.toprank", "odd.parquet", "-q", "--json").exit_code == 0
    assert invoked("rank", "m.toprank", "odd.parquet", "-q", *options, status=1).stdout == ""


def test_documents_without_labels_are_scored(folder):
    data, ranker = trained()
    ranker.save("named.toprank")
    # The model knows its features: columns in another order, a title, and no labels are nothing to it.
    invoked("predict", "named.toprank", "bare.csv", "--qid", "session", "-o", "bare.scores", "-q")
    np.testing.assert_array_equal(tr.read_scores("bare.scores", data.n_documents), ranker.predict(data))
    lists = invoked("rank", "named.toprank", "bare.csv", "--qid", "session", "--document-id", "page", "--top", "1")
    best = [data.document_ids[part[np.argmax(ranker.predict(data)[part])]] for part in rows_of(data)]
    assert [line.split("\t")[1] for line in lists.stdout.splitlines()] == best
    # A model without names takes the columns as they come; a label must not be taken for a feature.
    tr.systems.make("LeastSquares", l2=1).fit(tr.read("data.txt")).save("m.toprank")
    invoked("predict", "m.toprank", "data.txt", "-o", "text.scores", "-q")
    invoked("predict", "m.toprank", "plain.csv", "-o", "plain.scores", "-q")
    head, *rows = (folder / "plain.csv").read_text().split()
    (folder / "labeled.csv").write_text("\n".join([f"label,{head}", *(f"0,{row}" for row in rows)]) + "\n")
    invoked("predict", "m.toprank", "labeled.csv", "-o", "labeled.scores", "-q")
    expected = tr.read_scores("text.scores", data.n_documents)
    for name in ("plain.scores", "labeled.scores"):
        np.testing.assert_allclose(tr.read_scores(name, data.n_documents), expected, rtol=1e-6)


def test_validation_data_have_the_features_of_the_training_data(folder):
    (folder / "train.csv").write_text("label,qid,u,v\n1,1,1,5\n0,1,2,4\n1,2,3,1\n0,2,9,2\n")
    (folder / "vali.csv").write_text("v,year,u,title,label,qid\n5,1999,2,x,1,3\n4,1999,8,y,0,3\n")
    arguments = ("--valid", "vali.csv", *FEW, "--json", "-o", "m.toprank")
    done = json.loads(invoked("train", "train.csv", *arguments).stdout)
    valid = tr.RankingData([[2.0, 5.0], [8.0, 4.0]], [1, 0], qid=[3, 3], feature_names=["u", "v"])
    assert done["trials"][0]["value"] == tr.evaluate(tr.load("m.toprank").predict(valid), valid).mean["ndcg@10"]


def rows_of(data):
    offsets = data.queries.offsets
    return [np.arange(offsets[q], offsets[q + 1]) for q in range(data.n_queries)]


def test_a_compressed_table_is_no_text(folder):
    """Its name ends like that of compressed text, and a table has no n_features."""
    import gzip

    _, ranker = trained()
    ranker.save("m.toprank")
    (folder / "bare.csv.gz").write_bytes(gzip.compress((folder / "bare.csv").read_bytes()))
    invoked("predict", "m.toprank", "bare.csv.gz", "--qid", "session", "-q")


def test_no_column_is_an_answer(folder):
    """'' says that there is none."""
    (folder / "one.csv").write_text("label,x,id\n1,1,a\n0,2,b\n")
    assert "--qid COLUMN, or --qid '' if all rows" in refused("check", "one.csv", "--document-id", "id")
    found = json.loads(invoked("check", "one.csv", "--qid", "", "--document-id", "id", "--json").stdout)["data"]
    assert [(one["queries"], one["features"]) for one in found] == [(1, 1)]
    assert "separated by commas" in invoked("check", "one.csv", "--features", ",", status=2).stderr


def test_a_command_whose_option_has_another_name_says_that_one(folder):
    """`explain --qid` is a query, not a column; `serve` has no such option at all."""
    ranker = trained()[1]
    del ranker.training_["columns"]  # as in an old model file
    ranker.save("m.toprank")
    assert "Give --qid COLUMN, or --qid ''" in refused("rank", "m.toprank", "table.csv")
    assert "Give --qid-column COLUMN, or --qid-column ''" in refused("explain", "m.toprank", "table.csv", "--qid", "s1")
    assert refused("serve", "m.toprank", "--reference", "bare.csv", "--port", "0").endswith("Call it 'qid'.")
    one = ("--qid-column", "", "--document-id", "page", "--docs", "p0", "p1")
    assert "p0" in invoked("explain", "m.toprank", "bare.csv", *one).stdout


def test_refusals_speak_of_options(folder):
    (folder / "scattered.txt").write_text("1 qid:1 1:1\n1 qid:2 1:1\n0 qid:1 1:1\n")
    (folder / "wide.txt").write_text("1 qid:1 1:1 3:5\n0 qid:1 1:2\n")
    (folder / "huge.txt").write_text("1 qid:1 1:1e300\n0 qid:1 1:2\n")
    (folder / "what.foo").write_text("what is this\n")
    (folder / "clock.csv").write_text("session,rating,at\n1,0,12:30:00\n")
    (folder / "empty").mkdir()
    invoked("train", "data.txt", *FEW, "-o", "m.toprank")
    for arguments, words in (
        (("train", "table.csv", "-o", "no"), "Give --label COLUMN, or --label '' for unjudged"),
        (("train", "clock.csv", *OWN[:4], "-o", "no"), "leave it out with --features A,B,..."),
        (("train", "scattered.txt", "-o", "no"), "--regroup"),
        (("evaluate", "scattered.txt", "first.scores"), "--regroup"),
        (("predict", "m.toprank", "wide.txt"), "wide.txt:1:13: The id in '3:5' is beyond the 2 features of"),
        (("evaluate", "huge.txt", "first.scores"), "toprank convert --dtype float64"),
        (("evaluate", "what.foo", "first.scores"), "name it .txt, .csv … or use toprank convert --from."),
        (("evaluate", "empty", "first.scores"), "toprank cv"),
        (("evaluate", "data.txt", "first.scores", "--verify"), "use --cache"),
        (("evaluate", "data.txt", "first.scores", "-c", "trec_eval"), "--document-id"),
        (("cv", "data.txt", "--systems", "ListNet", "--folds", "30"), "use fewer folds."),
    ):
        said = refused(*arguments)
        assert words in said
        assert not re.search(r"\b(regroup|label|features|n_features|cache|format)=", said)
    remedies = [one["remedy"] for one in json.loads(invoked("check", "scattered.txt", "--json").stdout)["findings"]]
    assert any("read with --regroup" in remedy for remedy in remedies)
    assert "regroup=True" not in invoked("check", "scattered.txt").stdout
    shown = invoked("evaluate", "data.txt", "first.scores", "-c", "all").stdout
    assert "--document-id" in shown
    assert "document_ids" not in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "data.txt", "--label", "y", "-o", "no"), "--label names a column of a table"),
        (("check", "data.txt", "--document-id", "y"), "--document-id names a column of a table"),
        (("check", "table.csv", *OWN, "--missing", "zero"), "--missing is for other formats"),
    ],
)
def test_an_option_that_a_format_does_not_have(folder, arguments, words):
    said = refused(*arguments, kind=UnknownNameError)
    assert said.startswith(words)
    assert said.endswith("leave it out.")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--label", "x"), "--label applies to columns of DATA, not to a run."),
        (("--document-id", "x"), "--document-id applies to columns of DATA, not to a run."),
        (("--missing", "zero"), "--missing applies to DATA, not to a run."),
        (("--regroup",), "--regroup applies to DATA, not to a run."),
        (("--cache",), "--cache applies to DATA, not to a run."),
        (("--verify",), "--verify applies to DATA, not to a run."),
    ],
)
def test_what_a_run_does_not_have_is_refused(folder, option, words):
    """An option that would do nothing is not taken in silence."""
    assert words in " ".join(invoked("evaluate", "--qrels", "q", "--run", "r", *option, status=2).stderr.split())


def test_nothing_is_rewritten_but_advice(folder):
    """What looks like a keyword in a name or a value is left as it is: remedies are data, not patterns."""
    odd = folder / "seed=3" / "label=False regroup=True"
    odd.mkdir(parents=True)
    (odd / "x.txt").write_text("1 qid:1 1:1\n1 qid:2 1:1\n0 qid:1 1:1\n")
    said = refused("train", odd / "x.txt", "-o", "no")
    assert said.startswith(f"{odd / 'x.txt'}:3:7: Query 1 starts again here")
    assert said.endswith("Sort the lines by query, or read with --regroup.")


@pytest.mark.parametrize(
    ("text", "ours", "theirs", "python"),
    [
        (
            "1 qid:1 1:1 3:5\n0 qid:1 1:2\n",
            "is beyond the 2 features requested; increase --n-features.",
            "is beyond the 2 features of the training data.",
            "is beyond the 2 features requested; increase n_features=.",
        ),
        (
            "1 qid:1 1:1e300\n0 qid:1 1:2\n",
            "is too large for float32; read with --dtype float64.",
            "is too large for float32; bring it into a stored copy with toprank convert --dtype float64.",
            "is too large for float32; read with dtype='float64'.",
        ),
    ],
)
def test_a_command_may_have_the_option_that_others_lack(folder, text, ours, theirs, python):
    (folder / "odd.txt").write_text(text)
    invoked("train", "data.txt", *FEW, "-o", "m.toprank")
    assert refused("convert", "odd.txt", "out.csv", "--n-features", 2).endswith(ours)
    assert refused("predict", "m.toprank", "odd.txt").endswith(theirs)
    with pytest.raises(FormatError) as raised:
        tr.read("odd.txt", n_features=2)
    assert str(raised.value).endswith(python)


def test_what_is_not_judged_is_told_by_the_options_of_the_command(folder):
    (folder / "some.txt").write_text("1 qid:1 1:1\n-1 qid:1 1:2\n0 qid:2 1:2\n1 qid:2 1:2\n")
    for name in ("a.scores", "b.scores"):
        (folder / name).write_text("1\n2\n3\n4\n")
    assert "--unjudged irrelevant, condense (" in refused("evaluate", "some.txt", "a.scores")
    assert "--unjudged irrelevant, condense (" in refused("compare", "some.txt", "a.scores", "b.scores")


def test_errors_keep_both_remedies_on_their_way_between_processes():
    remedy = Remedy("lower {k}.", "lower {folds}.", k=..., folds=...)
    for error in (
        ToprankError("Too few;", remedy=remedy),
        FormatError("Too few;", path="a.txt", line=3, remedy=remedy),
        FileError("Too few;", remedy=remedy),
    ):
        again = pickle.loads(pickle.dumps(error))
        place = "a.txt:3: " if isinstance(error, FormatError) else ""
        assert str(again) == str(error) == f"{place}Too few; lower k=."
        assert with_options(again.args[0]) == f"{place}Too few; lower --folds."
        with with_option_names(["--k"]):
            assert with_options(again.args[0]) == f"{place}Too few; lower --k."


def test_widths_that_differ_are_told_without_keywords(folder):
    pytest.importorskip("optuna")
    tr.write(tr.synthetic(n_queries=4, n_features=3, seed=1), "wide.toprank-data")
    said = refused("tune", "data.txt", "--valid", "wide.toprank-data", "--system", "ListNet", "-o", "no")
    assert (
        said == "The validation data have 3 features, but the training data have 2. They must have the same features."
    )


@dataclass(frozen=True)
class Depth:
    k: Annotated[int, typer.Option("-k", min=1, help="Number of documents.")] = 10
    rule: Annotated[Literal["first", "last"], Option("Which of them.")] = "first"
    hidden: str = "no option"


@dataclass(frozen=True, kw_only=True)
class Cut:
    depth: Annotated[Depth, only("rule", "k")]
    strict: Annotated[bool, typer.Option("--strict", help="Refuse shorter lists.")] = False


def test_a_group_becomes_options_and_comes_back_as_one_value():
    came = []

    def command(a: Annotated[int, typer.Argument()], cut: Cut, read: Annotated[ReadOptions, only(*COLUMNS)]):
        came.append((a, cut, keywords_of(read)))

    made = expanded(command)
    assert list(inspect.signature(made).parameters) == ["a", "rule", "k", "strict", *COLUMNS]
    app = typer.Typer(rich_markup_mode=None)
    app.command()(made)
    assert CliRunner().invoke(app, ["7", "--qid", "", "-k", "3"]).exit_code == 0
    assert came == [(7, Cut(depth=Depth(3, "first")), {"qid": False})]
    assert type(came[0][1].depth.rule) is str
    refused = CliRunner().invoke(app, ["7", "--rule", "middle"])
    assert refused.exit_code == 2
    assert "'middle' is not one of 'first', 'last'" in refused.stderr


# ---- documents without a judgment ----

CHOOSE = "choose a rule for them: --unjudged irrelevant, condense (remove them from the lists) or drop"


@pytest.fixture
def holes(folder):
    """train.txt and valid.txt, in which some documents are not judged."""
    for seed, name in enumerate(("train.txt", "valid.txt")):
        data = tr.synthetic(n_queries=20, n_documents=(4, 6), n_features=2, seed=seed)
        marked = data.replace(labels=np.where(np.arange(len(data)) % 9 == 4, -1.0, data.labels))
        tr.write(marked, name)
    return folder


def test_commands_that_train_say_what_to_do_about_unjudged_documents(holes):
    one = ("--system", "LeastSquares", "-o", "m.toprank", "-q")
    for arguments in (
        ("train", "train.txt", *one),
        ("train", "data.txt", "--valid", "valid.txt", *one),
        ("train", "train.txt", "--system", "auto", "--time-budget", "1", "-o", "m.toprank", "-q"),
        ("cv", "train.txt", "--systems", "LeastSquares", "-q"),
        ("evaluate", "train.txt", "ones.scores"),
        ("compare", "train.txt", "ones.scores", "twos.scores"),
    ):
        n = tr.read("train.txt").n_documents
        tr.write_scores(np.ones(n), "ones.scores")
        tr.write_scores(np.arange(n) + 2.0, "twos.scores")
        assert CHOOSE in refused(*arguments)
    with pytest.raises(ToprankError, match=r"data\.filter\(data\.judged\).*np\.where\(data\.judged, data\.labels, 0\)"):
        tr.LinearRanker().fit(tr.read("train.txt"))


@pytest.mark.parametrize("rule", ["irrelevant", "condense", "drop"])
def test_training_under_a_rule_for_unjudged_documents(holes, rule):
    def under(name):
        data = tr.read(name)
        if rule == "irrelevant":
            return data.replace(labels=np.where(data.judged, data.labels, 0))
        return data.filter(data.judged) if rule == "condense" else data.select(data.queries.min(data.judged))

    train, valid = under("train.txt"), under("valid.txt")
    expected = tr.grid_search("LeastSquares", train, valid).ranker
    invoked("train", "train.txt", "--valid", "valid.txt", "--system", "LeastSquares", "--unjudged", rule,
            "-o", "m.toprank", "-q")  # fmt: skip
    assert tr.load("m.toprank").predict(train).tolist() == expected.predict(train).tolist()
    crossed = invoked(
        "cv", "train.txt", "--systems", "LeastSquares", "--unjudged", rule, "--folds", "3", "-q", "--json"
    )
    assert len(json.loads(crossed.stdout)["cells"]) == 3
    tr.write_scores(np.arange(tr.read("train.txt").n_documents), "a.scores")
    tr.write_scores(-np.arange(tr.read("train.txt").n_documents), "b.scores")
    found = json.loads(invoked("compare", "train.txt", "a.scores", "b.scores", "--unjudged", rule, "--json").stdout)
    assert found["queries"] == train.n_queries
    invoked("compare", "train.txt", "a.scores", "b.scores", "--unjudged", rule, "--html", "r.html", "-q")


def test_a_rule_that_leaves_nothing_is_refused(folder):
    tr.write(tr.RankingData(np.eye(4), [-1, -1, -1, -1], qid=[1, 1, 2, 2]), "none.txt")
    one = ("train", "none.txt", "--system", "LeastSquares", "-o", "m.toprank", "-q")
    assert "--unjudged condense leaves none; use irrelevant." in refused(*one, "--unjudged", "condense")
    assert "--unjudged drop leaves none; use condense." in refused(*one, "--unjudged", "drop")
