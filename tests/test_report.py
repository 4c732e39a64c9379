"""The report: what it says is what was computed, whatever the names, and it needs nothing but itself."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import toprank as tr
from support import invoked
from toprank.cli import demonstrating
from toprank.cli.commands import app
from toprank.display.pictures import Chart, Line, curves
from toprank.display.svg import Scale, safe_json, tag, ticks
from toprank.errors import DataError, FileError, UnknownNameError
from toprank.evaluation import compare_values
from toprank.evaluation.cutoffs import values_at_cutoffs
from toprank.report.content import ComparisonReport, JudgedDocuments, RankedCollection
from toprank.report.headline import headline, reversed_difference
from toprank.report.page import page
from toprank.report.panels import PANELS
from toprank.report.panels.curves import charts_at_cutoffs, curves_of_rankers
from toprank.report.panels.queries import _rounded, explorer
from toprank.report.panels.scores import spreads
from toprank.significance.results import number

EVIL = "<script>alert(1)</script>"
VOID = {"meta", "input", "br", "hr", "link"}


class Read(HTMLParser):
    """A page taken apart: elements with their attributes, the text they show, scripts apart."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.shown, self.scripts, self.open, self.badly_nested = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name in ("script", "style"):
            self.scripts.append("")
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        if not self.open or self.open.pop() != name:
            self.badly_nested.append(name)

    def handle_data(self, data):
        if self.open and self.open[-1] in ("script", "style"):
            self.scripts[-1] += data
        else:
            self.shown.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.shown).split())

    def all(self, name):
        return [attributes for found, attributes in self.elements if found == name]

    def explorers(self):
        return [json.loads(script) for script in self.scripts if script.startswith('{"systems"')]


@pytest.fixture(scope="module")
def data():
    truth = tr.synthetic(n_queries=40, n_documents=(3, 15), n_features=6, seed=1)
    ids = [f"d{i}" for i in range(truth.n_documents)]
    return tr.RankingData(truth.X, truth.labels, queries=truth.queries, qids=truth.qids, document_ids=ids)


@pytest.fixture(scope="module")
def scores(data):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, data.n_documents))
    return {"good": data.labels + noise[0], "middling": data.labels + 3 * noise[1], "flat": np.zeros(data.n_documents)}


@pytest.fixture(scope="module")
def content(data, scores):
    comparison = tr.compare(scores, data, ["ndcg@10", "map"])
    return tr.report.from_comparison(comparison, data, scores, name="a set", command="toprank compare a b")


# What it says


def test_the_numbers_are_those_of_the_comparison(content, data, scores):
    shown = Read(page(content))
    compared = tr.compare(scores, data, ["ndcg@10", "map"])
    for means in compared.means.values():
        for mean in means.values():
            assert f"{mean:.4f}" in shown.text
    for d in compared.differences:
        assert compared.summary_of(d) in shown.text
    assert data.fingerprint in shown.text
    assert str(tr.metrics.CONVENTIONS["standard"]) in shown.text
    assert "toprank compare a b" in shown.text
    assert f"toprank {tr.__version__}" in shown.text
    assert compared.to_markdown() in "".join(shown.shown)
    assert compared.latex() in "".join(shown.shown)


def test_the_explorer_holds_every_query_and_its_rankings(content, data, scores):
    [found] = Read(page(content)).explorers()
    values = {name: tr.evaluate(column, data, ["ndcg@10", "map"]).per_query for name, column in scores.items()}
    assert found["systems"] == list(scores)
    assert found["id"] == [str(qid) for qid in data.qids]
    assert found["size"] == data.queries.sizes.tolist()
    for q in range(data.n_queries):
        start, stop = data.queries.offsets[q : q + 2]
        assert found["relevant"][q] == int((data.labels[start:stop] > 0).sum())
        documents = found["documents"][str(q)]
        for s, (name, column) in enumerate(scores.items()):
            rounded = [round(float(values[name][m][q]) * 10_000) for m in found["metrics"]]
            assert [round(value) for value in found["values"][q][s]] == rounded
            best = np.argsort(-column[start:stop], kind="stable")[:10] + start
            assert [documents["d"][i] for i in documents["r"][s]] == [f"d{row}" for row in best]
            assert [documents["g"][i] for i in documents["r"][s]] == [f"{data.labels[row]:g}" for row in best]


def test_the_explorer_calls_only_equal_scores_tied():
    """Scores that agree in the four digits shown are no tie."""
    part = many(1, 4, 2, "q").parts[0]
    scores = {
        "system 0": np.array([12.00004, 12.00001, 12.00001, -3.0]),
        "system 1": np.array([1.0, 1.0, 1.0, -np.inf]),
    }
    part = replace(part, documents=replace(part.documents, scores=scores), hardest=())
    [documents] = json.loads(explorer(part, 1_000_000).json)["documents"].values()
    assert documents["s"] == [["12", "12", "12 =", "-3"], ["1", "1 =", "1 ="]]


def test_the_explorer_knows_wins_as_the_comparison_does():
    """Differences far below what is shown, and none at all."""
    n = 30
    base = np.random.default_rng(0).uniform(0, 1, n)
    base[0], base[1] = 0.12345, 0.5  # the first lies where rounding decides
    shifts = np.tile([-1e-7, 0.0, 1e-7, 1e-14, -1e-14], n // 5)
    values = {"a": {"m": base}, "b": {"m": base + shifts}, "c": {"m": base[::-1] * 0.9}}
    compared = compare_values(values)
    shown = np.array([_rounded(np.array([[of["m"][q]] for of in values.values()])).ravel() for q in range(n)])
    for d in compared.differences:
        a, b = (shown[:, list(values).index(name)] for name in (d.a, d.b))
        assert ((a > b).sum(), (a == b).sum(), (a < b).sum()) == (d.wins, d.ties, d.losses)


def test_large_values_that_differ_by_rounding_are_level_everywhere():
    """Of a metric in the tens, 3e-11 is rounding: level in the table, in the bars and in the explorer."""
    a = np.array([50.0, 50.0, 60.0, 70.0])
    per_query = {"a": {"dcg": a}, "b": {"dcg": a + np.array([3e-11, 0.0, 1.0, 2.0])}}
    compared = compare_values(per_query)
    [d] = compared.differences
    assert (d.wins, d.ties, d.losses) == (0, 2, 2)
    assert (np.diff(_rounded(np.array([[50.0], [50.0 + 3e-11]])), axis=0) == 0).all()
    part = RankedCollection("set", np.arange(4), (compared,))
    shown = Read(page(ComparisonReport("report", (part,))))
    assert "better on 2" in shown.text
    assert "4 queries, 2 ties" in shown.text


def test_hardest_queries_are_the_worst_that_can_be_gained(content, data, scores):
    part = content.parts[0]
    mean = np.mean([tr.evaluate(c, data, "ndcg@10").per_query["ndcg@10"] for c in scores.values()], axis=0)
    solvable = data.queries.max(data.labels) > 0
    worst = sorted(np.flatnonzero(solvable).tolist(), key=lambda q: mean[q])[: len(part.hardest)]
    assert list(part.hardest) == worst


def test_metric_by_cutoff_ends_at_the_metric(data, scores):
    for metrics in ("ndcg@10,ndcg@3,map", "map"):
        inputs = tr.compare(scores, data, metrics).inputs
        [metric] = values_at_cutoffs([inputs], list(scores), int(data.queries.sizes.max()))
        assert metric.cutoffs == tuple(range(1, 11))
        for name in scores:
            for k in (1, 10):
                evaluation = tr.evaluate(scores[name], data, f"ndcg@{k}")
                np.testing.assert_array_equal(metric.values.of(name, f"ndcg@{k}"), evaluation.per_query[f"ndcg@{k}"])
                assert metric.means_of(name)[k - 1] == evaluation.mean[f"ndcg@{k}"]
        [chart] = charts_at_cutoffs([metric], {"good": 0})
        assert chart.title == "ndcg at k"
        assert chart.lines[0].y == metric.means_of("good")


def test_scores_by_grade_are_standardized_within_queries(data, scores):
    shifted = {"good": scores["good"] * 5 + 100 * data.queries.broadcast(np.arange(data.n_queries))}
    [plain], [moved] = spreads({"good": scores["good"]}, data, {"good": 0}), spreads(shifted, data, {"good": 0})
    np.testing.assert_allclose(moved.medians, plain.medians, atol=1e-9)
    assert list(plain.grades) == [f"{g:g}" for g in np.unique(data.labels)]
    assert plain.documents == tuple(np.unique(data.labels, return_counts=True)[1].tolist())
    assert (np.diff(plain.medians) > 0).all()


def test_infinite_and_huge_scores_are_reported(data, scores):
    """Infinite scores have no place among the others by grade; the rest is standardized without them."""
    infinite = scores["good"].copy()
    infinite[::7], infinite[3::7] = -np.inf, np.inf
    compared = {"infinite": infinite, "huge": scores["good"] * 1e300}
    part = tr.report.from_comparison(tr.compare(compared, data), data, compared).parts[0]
    by_system = {spread.system: spread for spread in part.spreads}
    left, huge = by_system["infinite"], by_system["huge"]
    assert sum(left.documents) == np.isfinite(infinite).sum()
    assert np.isfinite(left.medians).all()
    [plain] = spreads({"good": scores["good"]}, data, {"good": 0})
    np.testing.assert_allclose(huge.medians, plain.medians, atol=1e-9)


def wins(n, by, rng):
    base = rng.uniform(0.2, 0.6, n)
    return base + by + rng.normal(0, 0.01, n), base


@pytest.mark.parametrize(
    ("by", "options", "kind", "words"),
    [
        (0.1, {}, "shown", "a wins by"),
        (0.1, {"baseline": "b"}, "shown", "over b, the baseline"),
        (-0.1, {"baseline": "b"}, "shown", "b, the baseline, wins by"),
        (-0.1, {"lower_is_better": ["err"]}, "shown", "a wins by"),
        (0.0005, {"margin": 1e-6}, "noise", "which is not significant"),
        (0.0, {"margin": 0.1}, "equivalent", "are equivalent"),
    ],
)
def test_the_first_sentence_says_who_wins_and_whether_it_is_noise(by, options, kind, words):
    a, b = wins(40, by, np.random.default_rng(3))
    compared = compare_values({"a": {"err": a}, "b": {"err": b}}, **options)
    found = headline(compared)
    assert (found.kind, words in found.sentence) == (kind, True), found
    [d] = compared.differences
    assert f"{d.mean_a:.4f}" in found.support
    assert number(abs(d.difference)) in found.sentence
    against_b = replace(compared, statistics=replace(compared.statistics, baseline="b"))
    same = headline(against_b, against_leader=True)
    assert "baseline" not in same.sentence


def test_a_real_difference_that_is_too_small_to_matter_is_both():
    """Beside an interval without 0, nothing is called equal."""
    rng = np.random.default_rng(0)
    b = rng.random(1000)
    compared = compare_values({"a": {"ndcg@10": b + 0.002 + rng.normal(0, 0.002, 1000)}, "b": {"ndcg@10": b}})
    [d] = compared.differences
    assert d.significant
    assert d.equivalent
    assert d.interval.low > 0
    found = headline(compared)
    assert found.kind == "shown"
    assert "equal" not in found.sentence
    assert found.sentence.endswith("a significant difference, but within the equivalence margin of 0.01.")
    assert "equivalent within ±0.01" in found.verdict


def test_a_difference_turned_around_twice_is_itself():
    a, b = wins(20, 0.1, np.random.default_rng(0))
    [d] = compare_values({"a": {"m": a}, "b": {"m": b}}).differences
    turned = reversed_difference(d)
    assert (turned.a, turned.difference, turned.wins) == ("b", -d.difference, d.losses)
    assert turned.interval.low == -d.interval.high
    assert reversed_difference(turned) == d


# What is there only where it is known


def test_rankers_add_weights_learning_curves_and_calibration(data):
    train, valid = data.select(np.arange(20)), data.select(np.arange(20, 40))
    rankers = {
        "linear": tr.LinearRanker("ListNet", l2=[1.0, 0.1, 0.01]).fit(train, valid=valid),
        "trees": tr.TreeRanker(n_trees=5, min_data_in_leaf=2).fit(train, valid=valid),
        "grades": tr.ExpectedGainRanker(l2=0.1).fit(train),
    }
    scores = {name: ranker.predict(data) for name, ranker in rankers.items()}
    compared = tr.compare(scores, data)
    part = tr.report.from_comparison(compared, data, scores, rankers=rankers).parts[0]
    assert [one.system for one in part.weights] == ["linear", "trees", "grades"]
    linear = rankers["linear"]
    weights = linear.coef_ * linear.standardization_.spread
    strongest = int(np.argmax(np.abs(weights)))
    assert part.weights[0].names[0] == f"feature {strongest + 1}"
    assert part.weights[0].values[0] == pytest.approx(weights[strongest])
    assert [(one.title, one.x_label) for one in part.learning] == [("linear", "penalty l2"), ("trees", "round")]
    assert part.learning[1].lines[1].y == tuple(rankers["trees"].history_["valid"])
    [calibration] = part.calibrations
    assert calibration.error == pytest.approx(rankers["grades"].calibration_curve(data).error)
    everything = Read(page(tr.report.from_comparison(compared, data, scores, rankers=rankers)))
    for heading in ("Most important features", "Learning curves", "Calibration"):
        assert heading in everything.text
    bare = Read(page(tr.report.from_comparison(compared, data, scores)))
    for heading in ("Most important features", "Learning curves", "Calibration ("):
        assert heading not in bare.text


def test_histories_of_any_shape_become_curves():
    network = SimpleNamespace(
        metric="map", history_={"epoch": [1, 2, 3], "loss": [3.0, 2.0, 1.0], "valid": [0.1, 0.2, 0.3], "note": "x"}
    )
    short = SimpleNamespace(history_={"valid": [0.5]})
    found = curves_of_rankers({"net": network, "short": short}, {"net": 0, "short": 1})
    assert [(one.y_label, one.lines[0].x) for one in found] == [("map", (1.0, 2.0, 3.0)), ("loss", (1.0, 2.0, 3.0))]


# Names of every kind


def test_names_are_text_whatever_they_say():
    names = [EVIL, '"><img src=x onerror=alert(1)>', "</script><b>", "a & b 'c' \u2028 \x00 日本 \u202e"]
    rng = np.random.default_rng(0)
    n = 12
    data = tr.RankingData(
        rng.normal(size=(n, 2)),
        rng.integers(0, 3, n),
        qid=np.repeat([EVIL, "</script>x"], n // 2),
        document_ids=[f"{EVIL}{i}" for i in range(n)],
        feature_names=[EVIL, "ok"],
    )
    scores = {name: rng.normal(size=n) for name in names}
    ranker = tr.LinearRanker("Squared", l2=1.0).fit(data)
    compared = tr.compare(scores, data)
    made = tr.report.from_comparison(
        compared, data, scores, rankers={EVIL: ranker}, name=EVIL, title=EVIL, command=EVIL, date=EVIL
    )
    written = page(made)
    shown = Read(written)
    assert [attributes.get("type") for attributes in shown.all("script")] == ["application/json", None]
    assert not [a for _, a in shown.elements if any(name.startswith("on") for name in a)]
    assert not shown.all("img")
    assert "</script><b>" in shown.text
    assert shown.text.count(EVIL) > 10
    assert not shown.badly_nested
    [found] = shown.explorers()
    assert found["id"] == [EVIL, "</script>x"]
    assert "\x00" not in written


def test_json_keeps_its_meaning_and_no_markup():
    value = {"a": "</script><!--", "b": ["&", "\u2028", 1.5, None]}
    written = safe_json(value)
    assert json.loads(written) == value
    assert not set(written) & set("<>&\u2028")


def test_elements_escape_text_but_not_elements():
    assert tag("p", "a < b", tag("b", "c"), title='"&') == '<p title="&quot;&amp;">a &lt; b<b>c</b></p>'


# The file


def test_the_page_is_well_formed_and_points_nowhere_else(content):
    written = page(content)
    shown = Read(written)
    assert not shown.badly_nested
    ids = [attributes["id"] for _, attributes in shown.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in shown.all("a"):
        assert attributes["href"][0] == "#"
        assert attributes["href"][1:] in ids
    assert not re.search(r"https?:|url\(|@import|src=|\bnan\b|Infinity", written)
    assert all(a.get("aria-label") for a in shown.all("svg") if "plot" in a["class"])
    for name in ("link", "iframe", "img", "object"):
        assert not shown.all(name)


def test_the_same_input_gives_the_same_bytes(data, scores, tmp_path):
    for threads in (1, 2):
        compared = tr.compare(scores, data, threads=threads)
        made = tr.report.from_comparison(compared, data, scores, threads=threads)
        tr.report.write_html(tmp_path / f"{threads}.html", made)
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes()


def test_a_file_that_cannot_be_written_is_a_sentence(content, tmp_path):
    with pytest.raises(FileError, match="cannot be written"):
        tr.report.write_html(tmp_path / "none" / "report.html", content)
    assert list(tmp_path.iterdir()) == []


def many(n_queries, per_query, n_systems, name):
    """A content of the wanted size, without the cost of evaluating it."""
    rng = np.random.default_rng(0)
    systems = [f"system {i}" for i in range(n_systems)]
    values = {s: {"ndcg@10": rng.uniform(size=n_queries)} for s in systems}
    compared = compare_values(values, convention="standard", baseline=systems[0], n_permutations=10, n_resamples=10)
    n = n_queries * per_query
    documents = JudgedDocuments(
        rng.integers(0, 5, n).astype(float),
        tr.Queries.from_sizes(np.full(n_queries, per_query)),
        np.arange(n).astype(str),
        {s: rng.normal(size=n) for s in systems},
    )
    part = RankedCollection(
        name, np.array([f"{name} {q}" for q in range(n_queries)]), (compared,),
        documents=documents, hardest=(n_queries - 1, 7),
    )  # fmt: skip
    return ComparisonReport("many", (part,))


@pytest.mark.parametrize(
    ("n_queries", "name"), [(8000, "query"), (30_000, "<        ("l2 is", ("ListNet", "--set", "ListNet.l2=abc")),
        ("wrong type", ("LambdaMART", "--set", "LambdaMART.n_trees=abc")),
    ):
        assert words in str(CliRunner().invoke(app, [str(word) for word in (*start, *wrong)]).exception)


def test_compare_writes_a_report(data, scores, tmp_path):
    tr.write(data, tmp_path / "data.txt")
    for name, column in scores.items():
        tr.write_scores(column, tmp_path / f"{name}.scores")
    tr.LinearRanker("Squared", l2=1.0).fit(data).save(tmp_path / "good.toprank")
    files = [tmp_path / f"{name}.scores" for name in scores]
    out = tmp_path / "report.html"
    done = invoked(
        "compare", tmp_path / "data.txt", *files, "--html", out, *(2 * ["--model", tmp_path / "good.toprank"]), "--json"
    )
    assert json.loads(done.stdout)["systems"] == list(scores)
    shown = Read(out.read_text())
    assert "data.txt" in shown.text
    assert "Most important features" in shown.text
    invoked("compare", tmp_path / "data.txt", *files, "--model", tmp_path / "good.toprank", status=2)
    missing = CliRunner().invoke(app, ["compare", str(tmp_path / "data.txt"), *map(str, files), "--html", "no/r.html"])
    assert isinstance(missing.exception, FileError)


def test_headings_are_words_and_no_names_of_classes():
    for panel in PANELS:
        assert re.fullmatch("[A-Z][a-z, -]+", panel.heading), panel.heading
        assert re.fullmatch("[A-Z][a-z, -]+", panel.link), panel.link


def test_the_demo_ends_with_the_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demonstrating, "_SYSTEMS", ("ListNet",))
    printed = invoked("demo", "--synthetic").stdout
    assert [path.name for path in tmp_path.iterdir()] == ["toprank-demo.html"]
    assert printed.rstrip().endswith(str(tmp_path / "toprank-demo.html"))
    shown = Read((tmp_path / "toprank-demo.html").read_text())
    assert "Calibration" in shown.text
    assert "Bayes-optimal, the baseline, wins by" in shown.text


def test_scores_that_change_after_the_comparison_are_not_reported(data, scores):
    given = {name: values.copy() for name, values in scores.items()}
    compared = tr.compare(given, data)
    given["good"][:] = 0
    kept = tr.report.from_comparison(compared).parts[0].documents.scores["good"]
    assert np.array_equal(kept, scores["good"])
    with pytest.raises(DataError, match="differ from the comparison"):
        tr.report.from_comparison(compared, data, given)
