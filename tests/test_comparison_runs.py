"""Runs at the front door: compared against qrels, query by query; written as trec_eval reads them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toprank as tr
from support import invoked
from toprank.data.trec import Qrels, Run, qrels_of, write_qrels
from toprank.errors import DataError, FormatError, ToprankError
from toprank.evaluation import compare_values
from toprank.report.page import page

FAST = {"n_permutations": 200, "n_resamples": 200}
QRELS = {f"q{i}": {f"d{j}": (i * j) % 3 for j in range(1, 8)} for i in range(1, 13)}


def run_of(seed, without=(), more=()):
    rng = np.random.default_rng(seed)
    return {q: {f"d{j}": float(rng.normal()) for j in range(9)} for q in [*QRELS, *more] if q not in without}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """qrels.txt, and runs whose tags tell them apart."""
    monkeypatch.chdir(tmp_path)
    write_qrels(Qrels.from_source(QRELS), "qrels.txt")
    tr.write_run(Run.from_source(run_of(1), tag="bm25"), "a.run")
    tr.write_run(Run.from_source(run_of(2, without=("q3", "q4")), tag="dense"), "b.run")
    return tmp_path


def test_runs_are_compared_as_their_evaluations_are():
    runs = {"one": run_of(1), "two": run_of(2)}
    found = tr.compare(runs, QRELS, ["ndcg@10", "map"], **FAST)
    alone = {name: tr.evaluate_run(QRELS, run, ["ndcg@10", "map"]) for name, run in runs.items()}
    expected = compare_values(alone, **FAST)
    assert found == expected
    assert (found.convention, found.queries, found.unanswered, found.omissions) == ("trec_eval", len(QRELS), {}, ())


def test_whatever_holds_runs_and_judgments_is_taken(folder):
    def frame(table, number):
        rows = [(q, d, value) for q, of in table.items() for d, value in of.items()]
        return pd.DataFrame(rows, columns=["query_id", "doc_id", number])

    a, b = run_of(1), run_of(2, without=("q3", "q4"))
    expected = tr.compare({"a": a, "b": b}, QRELS, "map", **FAST)
    documents = [(q, d, grade) for q, of in QRELS.items() for d, grade in of.items()]
    qid, ids, labels = zip(*documents, strict=True)
    data = tr.RankingData(np.zeros((len(documents), 1)), labels, qid=qid, document_ids=ids)
    for runs, qrels in (
        ({"a": "a.run", "b": Path("b.run")}, "qrels.txt"),
        ({"a": tr.read_run("a.run"), "b": tr.read_run("b.run")}, tr.read_qrels(Path("qrels.txt"))),
        ({"a": frame(a, "score"), "b": frame(b, "score")}, frame(QRELS, "relevance")),
        ([("a", Run.from_source(a)), ("b", "b.run")], data),
    ):
        assert tr.compare(runs, qrels, "map", **FAST) == expected


@settings(max_examples=25, deadline=None)
@given(st.sets(st.sampled_from(sorted(QRELS)), max_size=8), st.sets(st.sampled_from(sorted(QRELS)), max_size=8))
def test_missing_queries_follow_the_rule(first, second):
    runs = {"one": run_of(1, without=first), "two": run_of(2, without=second)}
    common = set(QRELS) - first - second
    if common:
        found = tr.compare(runs, QRELS, "map", **FAST)
        assert found.differences[0].n == len(common)
        for name, run in runs.items():
            assert found.means[name]["map"] == pytest.approx(tr.evaluate_run(QRELS, run, "map").mean["map"])
    for options in ({"complete": True}, {"convention": "standard"}):
        found = tr.compare(runs, QRELS, "map", **options, **FAST)
        assert found.differences[0].n == found.queries == len(QRELS)
        for name, run in runs.items():
            assert found.means[name]["map"] == pytest.approx(tr.evaluate_run(QRELS, run, "map", **options).mean["map"])
        assert found.unanswered == {name: tuple(sorted(of)) for name, of in (("one", first), ("two", second)) if of}


def test_the_rule_is_the_conventions():
    runs = {"one": run_of(1, without=("q3", "q4")), "two": run_of(2, more=("q99",))}
    left_out = tr.compare(runs, QRELS, "map", **FAST)
    assert left_out.omissions == (
        "one lacks 2 queries (q3, q4) of 12 judged; left out (the option complete counts 0).",
        "two answers query q99 without judgments; left out.",
    )
    assert left_out.unanswered == {"one": ("q3", "q4")}
    assert left_out.to_dict()["unanswered"] == {"one": ["q3", "q4"]}
    for text in (str(left_out), left_out.to_markdown(), left_out.to_latex()):
        assert "one lacks 2 queries" in text
    zero = tr.compare(runs, QRELS, "map", convention="standard", **FAST)
    assert zero.omissions[0] == "one lacks 2 queries (q3, q4) of 12 judged; counted 0."
    whole = tr.compare(runs, QRELS, "map", convention="standard", complete=False, **FAST)
    assert zero.means["one"]["map"] == pytest.approx(whole.means["one"]["map"] * 10 / 12)
    assert zero.means["two"] == whole.means["two"]
    error = tr.compare(runs, QRELS, "owa", convention="standard", **FAST)
    assert error.lower_is_better == {"owa"}


def test_a_long_list_of_missing_queries_is_cut_and_systems_alike_share_a_sentence():
    gone = [f"q{i}" for i in range(1, 8)]
    found = tr.compare({"x": run_of(1, gone), "y": run_of(2, gone), "z": run_of(3)}, QRELS, "map", **FAST)
    assert found.omissions[0].startswith("x and y lack 7 queries (q1, q2, q3, q4, q5 …) of 12 judged")


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ({"a": run_of(1), "b": {"301": {"d1": 1.0}}}, r"Run 'b': No query of the run has judgments: .*query 301.*q1"),
        ({"a": {"q1": {"d1": 1}}, "b": {"q2": {"d1": 1}}}, "no judged query in common: a answers query q1, b query q2"),
        ({"a": run_of(1), "b": {"q1": ["d1", "d2"]}}, "Run 'b': Query q1 has a list instead of {document: score}"),
        ({"a": run_of(1), "b": [0.5, 0.25]}, "Run 'b': Expected {query: {document: score}}, a data frame or the name"),
        ({"a": run_of(1), "b": {}}, "Run 'b': There are no scores"),
        ({"a": run_of(1), "b": {"q1": {"d1": float("nan")}}}, "Run 'b': The score of row 0 is nan"),
        ({"a": run_of(1)}, "at least two systems"),
    ],
)
def test_runs_that_cannot_be_compared(runs, words):
    with pytest.raises(DataError, match=words):
        tr.compare(runs, QRELS, "map", **FAST)


def test_a_document_twice_is_named(folder):
    Path("twice.run").write_text("q1 Q0 d1 1 2.0 t\nq1 Q0 d2 2 1.0 t\nq1 Q0 d1 3 0.5 t\n")
    with pytest.raises(FormatError, match=r"twice.run:3:7: Document d1 appears twice for query q1; remove one"):
        tr.compare({"a": "a.run", "b": "twice.run"}, "qrels.txt")
    frame = pd.DataFrame({"qid": ["q1", "q1"], "docno": ["d1", "d1"], "score": [1.0, 2.0]})
    with pytest.raises(DataError, match="Run 'b': Row 1: Document d1 appears twice for query q1"):
        tr.compare({"a": "a.run", "b": frame}, QRELS)


@pytest.mark.parametrize("options", [{}, {"complete": True}, {"convention": "standard"}, {"condense": True}])
def test_a_report_of_runs(options):
    qrels = {**QRELS, "q50": {"d1": 1}}
    runs = {"one": run_of(1, without=("q3",)), "two": run_of(2, more=("q99",))}
    runs["two"]["q7"] = {"d5": 0.5, "d6": 0.5, "new": 0.5}
    comparison = tr.compare(runs, qrels, ["ndcg@5", "map"], **options, **FAST)
    rest = {name: value for name, value in options.items() if name != "convention"}
    content = tr.report.from_comparison(comparison, qrels, runs, name="judged", **rest)
    [part] = content.parts
    assert len(part.qids) == comparison.queries
    q = part.qids.tolist().index("q7")
    start, stop = part.documents.queries.offsets[q : q + 2]
    names, scores = part.documents.names[start:stop].tolist(), part.documents.scores["two"][start:stop]
    assert names == sorted({*qrels["q7"], *runs["one"]["q7"], "new"}, reverse=True)
    assert [name for name, score in zip(names, scores, strict=True) if score > -np.inf] == ["new", "d6", "d5"]
    for chart, metric in zip(part.at_k, comparison.metrics, strict=False):
        for line in chart.lines:
            assert line.y[line.x.index(5)] == pytest.approx(comparison.means[line.name][metric])
    text = page(content)
    assert "one lacks" in text
    assert "inf" not in text.split('type="application/json">')[1].split("</script>")[0]


def test_a_report_of_other_options_is_refused():
    runs = {"one": run_of(1, without=("q3",)), "two": run_of(2)}
    comparison = tr.compare(runs, QRELS, complete=True, **FAST)
    for options in ({}, {"complete": True}):
        page = tr.report.from_comparison(comparison, QRELS, runs, **options)
        assert page.parts[0].comparison.unanswered == {"one": ("q3",)}
    with pytest.raises(DataError, match="Data, scores or options differ"):
        tr.report.from_comparison(comparison, QRELS, runs, complete=False)
    for other in ({**runs, "two": run_of(3)}, runs):
        judged = QRELS if other is not runs else {**QRELS, "q1": {"d1": 1}}
        with pytest.raises(DataError, match="Data, scores or options differ"):
            tr.report.from_comparison(comparison, judged, other)
    with pytest.raises(DataError, match="A report of runs takes no rankers"):
        tr.report.from_comparison(comparison, QRELS, runs, complete=True, rankers={"one": None})


def test_the_command(folder):
    found = json.loads(invoked("compare", "--qrels", "qrels.txt", "a.run", "b.run", "--metric", "map", "--json").stdout)
    runs = {"bm25": "a.run", "dense": "b.run"}
    assert found == json.loads(json.dumps(tr.compare(runs, "qrels.txt", "map").to_dict()))
    complete = invoked("compare", "--qrels", "qrels.txt", "a.run", "b.run", "--complete", "--html", "r.html", "-q")
    assert "dense lacks 2 queries (q3, q4) of 12 judged; counted 0." in complete.stdout
    assert "dense lacks 2 queries" in Path("r.html").read_text()
    tr.write_run(Run.from_source(run_of(3), tag="bm25"), "c.run")
    named = json.loads(invoked("compare", "--qrels", "qrels.txt", "a.run", "c.run", "--json").stdout)
    assert named["systems"] == ["a", "c"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--qrels", "qrels.txt", "a.run"), 2, "pass at least two runs"),
        (("--qrels", "qrels.txt", "a.run", "./a.run"), 2, "is passed twice"),
        (("--qrels", "qrels.txt", "a.run", "b.run", "--label", "x"), 2, "applies to columns of DATA, not to a run"),
        (("--qrels", "qrels.txt", "a.run", "b.run", "--html", "r", "--model", "m"), 2, "a run has no features"),
        (("a.run", "b.run", "a.run", "--complete"), 2, "--complete needs --qrels"),
        (("--qrels", "qrels.txt", "a.run", "other.run"), 1, "Run 'x': No query of the run has judgments"),
        (("--qrels", "qrels.txt", "left.run", "right.run"), 1, "With --complete unanswered queries"),
    ],
)
def test_the_command_refuses(folder, arguments, status, words):
    Path("other.run").write_text("x Q0 d 1 1 x\n")
    Path("left.run").write_text("q1 Q0 d1 1 1 left\n")
    Path("right.run").write_text("q2 Q0 d1 1 1 right\n")
    result = invoked("compare", *arguments, status=status)
    assert words in (str(result.exception) if status == 1 else " ".join(result.output.split()))


@pytest.mark.parametrize("name", ["my.run", "my.run.gz"])
def test_a_written_run_is_read_back_in_the_same_order(tmp_path, name):
    rng = np.random.default_rng(0)
    ids = [f"d{i}" for i in rng.permutation(60)]
    data = tr.RankingData(np.zeros((60, 1)), rng.integers(0, 3, 60), qid=np.repeat([7, 3, 5], 20), document_ids=ids)
    scores = rng.integers(0, 6, 60) + np.where(rng.random(60) < 0.5, 0.0, 1e-12)  # ties, some of them in float32 only
    tr.write_run(data, scores, tmp_path / name, tag="mine")
    run = tr.read_run(tmp_path / name)
    assert run.tag == "mine"
    given = dict(zip(zip(data.qid.astype(str), ids, strict=True), scores.tolist(), strict=True))
    assert dict(zip(zip(run.qids, run.document_ids, strict=True), run.scores.tolist(), strict=True)) == given
    for qid in ("7", "3", "5"):
        mine = run.qids == qid
        rows = list(zip(run.scores[mine].astype(np.float32), run.document_ids[mine], strict=True))
        assert rows == sorted(rows, reverse=True)
        assert run.ranks()[mine].tolist() == list(range(1, 21))
    table = tr.evaluate_run(qrels_of(data), tmp_path / name, ["map", "ndcg@10"])
    assert dict(table.mean) == pytest.approx(
        dict(tr.evaluate(scores, data, ["map", "ndcg@10"], convention="trec_eval").mean)
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"qid": ["q 1", "q2"]},
            "The query id 'q 1' cannot be a column of r.run: .*without whitespace, for example 'q_1'",
        ),
        ({"document_ids": ["a\tb", "c"]}, r"The document id 'a\\tb' cannot .* for example 'a_b'"),
        ({"tag": "my system"}, "The tag 'my system' cannot .* for example 'my_system'"),
        ({"document_ids": None}, "no document ids, which TREC files need; pass document_ids="),
        ({"scores": [0.5]}, "1 scores for 2 documents"),
        ({"scores": [0.5, np.inf]}, "row 1 is inf; it must be finite"),
    ],
)
def test_runs_that_cannot_be_written_leave_the_file_alone(tmp_path, change, words):
    target = tmp_path / "r.run"
    target.write_text("before")
    given = {"qid": ["q1", "q2"], "document_ids": ["a", "b"], "tag": "t", "scores": [1.0, 2.0]} | change
    data = tr.RankingData(np.zeros((2, 1)), qid=given["qid"], document_ids=given["document_ids"])
    with pytest.raises(DataError, match=words):
        tr.write_run(data, given["scores"], target, tag=given["tag"])
    assert target.read_text() == "before"
    with pytest.raises(ToprankError, match=r"write_run\(data, scores, path\)"):
        tr.write_run(data, target)


def test_runs_are_compared_in_slices_by_the_ids_of_their_queries():
    runs = {"one": run_of(1), "two": run_of(2, without=("q3",))}
    language = {q: "de" if int(q[1:]) % 2 else "en" for q in reversed(QRELS)}
    found = tr.compare(runs, QRELS, "ndcg@10", slice_by=language, min_queries=2, **FAST)
    for name in ("de", "en"):
        part = {q: of for q, of in QRELS.items() if language[q] == name}
        alone = tr.compare(runs, part, "ndcg@10", **FAST)
        [row] = found.slices[name]
        assert (row.n, row.difference) == (alone.differences[0].n, pytest.approx(alone.differences[0].difference))
    assert found.unanswered == {"two": ("q3",)}
    with pytest.raises(DataError, match=r"value to slice by is missing for query q7; give one for each"):
        tr.compare(runs, QRELS, slice_by={q: word for q, word in language.items() if q != "q7"}, **FAST)
    for by in ("language", list(language.values())):
        with pytest.raises(DataError, match=r"slice_by=\{query id: value\}"):
            tr.compare(runs, QRELS, slice_by=by, **FAST)
    values = {name: {"map": [0.1, 0.2, 0.3 + place]} for place, name in enumerate("ab")}
    with pytest.raises(DataError, match="have no ids"):
        compare_values(values, slice_by={"q1": "de"}, **FAST)


def test_runs_have_no_columns_to_slice_by(folder):
    assert (
        "--slice-by needs DATA"
        in invoked("compare", "--qrels", "qrels.txt", "a.run", "b.run", "--slice-by", "x", status=2).stderr
    )


@pytest.mark.parametrize("name", ["unjudged", "weighted"])
def test_rules_that_runs_do_not_follow_are_refused(name):
    runs = {"one": run_of(1), "two": run_of(2)}
    with pytest.raises(DataError, match=f"{name}="):
        tr.compare(runs, QRELS, "map", **({"unjudged": "condense"} if name == "unjudged" else {"weighted": True}))
