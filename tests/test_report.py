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
    ("n_queries", "name"), [(8000, "query"), (30_000, "<<<<<<<< a query with an id of some length, number")]
)
def test_thousands_of_queries_stay_under_three_megabytes(n_queries, name):
    made = many(n_queries, 8, 4, name)
    written = page(made)
    assert 2_000_000 < len(written.encode()) < 3_000_000
    shown = Read(written)
    [found] = shown.explorers()
    assert {n_queries - 1, 7} <= set(found["number"])
    assert str(n_queries - 1) in found["documents"]
    kept, listed = len(found["documents"]), len(found["id"])
    assert kept < listed <= n_queries
    assert f"Documents are embedded for {kept:,} of them" in shown.text
    assert (f"{listed:,} of {n_queries:,} queries are listed" in shown.text) == (listed < n_queries)
    gap = np.abs(np.subtract(*[made.parts[0].comparison.values.of(f"system {i}", "ndcg@10") for i in (1, 0)]))
    with_documents = [q for q in map(int, found["documents"]) if q not in (n_queries - 1, 7)]
    assert min(gap[with_documents]) >= np.sort(gap)[-kept - 3]


def test_a_small_budget_still_shows_a_query():
    part = many(50, 5, 2, "q").parts[0]
    small, large = explorer(part, 1), explorer(part, 1_000_000)
    assert (small.listed, small.with_documents) == (1, 0)
    assert (large.listed, large.with_documents, large.queries) == (50, 50, 50)


# Odd data


@pytest.mark.parametrize("convention", ["skip-blank", "letor4", "trec_eval", "lightgbm"])
def test_every_convention_can_be_reported(data, scores, convention):
    compared = tr.compare(scores, data, ["ndcg@5", "p@5"], convention=convention, baseline="flat")
    shown = Read(page(tr.report.from_comparison(compared, data, scores)))
    assert f"Convention {convention}." in shown.text


def test_odd_data_can_be_reported():
    labels = [0.0, 1.0, 2.0, -1.0, 0.0, 0.0, 1.5]
    data = tr.RankingData(np.zeros((7, 1)), labels, qid=["a", "a", "a", "b", "c", "c", "d"])
    scores = {"up": np.arange(7.0), "down": -np.arange(7.0), "level": np.ones(7)}
    for unjudged in ("condense", "drop", "irrelevant"):
        compared = tr.compare(scores, data, ["ndcg@10"], unjudged=unjudged)
        made = tr.report.from_comparison(compared, data, scores, unjudged=unjudged)
        [found] = Read(page(made)).explorers()
        assert ("b" in found["id"]) == (unjudged == "irrelevant")
    one = data.select([0])
    single = {name: column[:3] for name, column in scores.items()}
    assert "∞" in Read(page(tr.report.from_comparison(tr.compare(single, one), one, single))).text


def test_more_systems_than_colors_and_panels(data):
    rng = np.random.default_rng(0)
    scores = {f"system {i}": data.labels + rng.normal(0, 1 + i / 4, data.n_documents) for i in range(30)}
    compared = tr.compare(scores, data, ["ndcg@10"], n_permutations=100, n_resamples=100)
    made = tr.report.from_comparison(compared, data, scores)
    assert len(made.parts[0].spreads) == 12
    shown = Read(page(made))
    assert "12 of 30 systems" in shown.text
    assert all(f"system {i} " in shown.text for i in range(30))
    assert "hollow" in page(made)


def test_labels_that_are_not_grades(data, scores):
    fine = data.replace(labels=data.labels + np.random.default_rng(0).uniform(0, 0.9, data.n_documents))
    [spread] = spreads({"good": scores["good"]}, fine, {"good": 0})
    assert len(spread.grades) == 5
    assert sum(spread.documents) == data.n_documents


def test_what_does_not_belong_together_is_refused(data, scores):
    compared = tr.compare(scores, data)
    with pytest.raises(DataError, match="differ from the comparison"):
        tr.report.from_comparison(compared, data, {**scores, "good": scores["flat"]})
    with pytest.raises(DataError, match="differ from the comparison"):
        tr.report.from_comparison(compared, data.replace(labels=data.labels + 1))
    with pytest.raises(UnknownNameError, match="goood"):
        tr.report.from_comparison(compared, data, scores, rankers={"goood": None})
    with pytest.raises(UnknownNameError, match="middling"):
        tr.report.from_comparison(compared, data, {"good": scores["good"], "flat": scores["flat"]})
    with pytest.raises(DataError, match="for each"):
        tr.report.from_comparison(compared, data, scores, probabilities={"good": np.ones((3, 2))})
    with pytest.raises(DataError, match="at least one comparison"):
        ComparisonReport("nothing", ())


# Plots


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 8))
def test_ticks_are_round_and_within(low, width, wanted):
    found = ticks(low, low + width, wanted)
    assert len(found) <= 2 * wanted + 2
    assert found == sorted(found)
    assert all(low - 1e-6 * width - 1e-9 * abs(low) <= t <= low + width + 1e-6 * width + 1e-9 * abs(low) for t in found)


def test_scales_stop_at_their_ends():
    linear, log = Scale(0, 10, 100, 200), Scale(0.01, 100, 0, 4, log=True)
    assert [linear(v) for v in (-5, 0, 5, 10, float("inf"))] == [100, 100, 150, 200, 200]
    assert log(1.0) == pytest.approx(2.0)
    assert Scale(1, 1, 0, 10)(1) == 5


def test_charts_leave_out_what_is_not_known():
    line = Line("a", (1.0, 2.0, 3.0), (0.5, float("nan"), 0.7), 0)
    drawn = curves(Chart("t", "x", "y", (line, Line("b", (1.0,), (float("nan"),), 1)))).figure()
    drawn = drawn[: drawn.index("M44")]  # without the names below
    assert drawn.count("<circle") == 2
    assert "nan" not in drawn


# Experiments


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    data = tr.synthetic(n_queries=45, n_documents=(3, 10), seed=0)
    systems = {"least": "LeastSquares", "trees": tr.TreeRanker(n_trees=4, min_data_in_leaf=2), "net": ("ListNet", {})}
    folder = tmp_path_factory.mktemp("runs")
    experiment = tr.Experiment(
        {"one": data}, systems, metrics="ndcg@10,map", conventions=("standard", "letor4"), seeds=(0, 1), n_folds=3,
        cache_dir=folder, threads=1,
    )  # fmt: skip
    return experiment.run(verbose=False)


def test_an_experiment_becomes_a_report(results):
    made = tr.report.from_results(results, command="toprank cv …")
    [part] = made.parts
    assert part.against_leader
    assert part.comparison.means == {
        s: {m: results.pooled(m, "standard", "one")[s] for m in ("ndcg@10", "map")} for s in results.systems
    }
    for fold, at in zip(results.folds("one"), np.cumsum([0, *(15,) * 2]), strict=True):
        test = results.test("one", fold)
        assert part.qids[at : at + 15].tolist() == [str(qid) for qid in test.qids]
        values = results.values("ndcg@10", "standard", "one")["least"][fold]
        np.testing.assert_array_equal(part.comparison.values.of("least", "ndcg@10")[at : at + 15], values)
        scored = tr.evaluate(results.scores("one", fold, "least"), test, "ndcg@10").per_query["ndcg@10"]
        np.testing.assert_allclose(values, scored)
    assert {one.title for one in part.learning} == {"least", "trees", "net"}
    assert {one.system for one in part.weights} == {"least", "trees", "net"}
    shown = Read(page(made))
    for system, mean in results.fold_means("ndcg@10", "letor4", "one").items():
        assert f"{mean:.4f}" in shown.text, system
    for system, mean in results.pooled("map", "letor4", "one").items():  # what first sentences speak of, beside it
        assert f"{mean:.4f}" in shown.text, system
    assert "folds have different sizes" in shown.text
    assert "Convention letor4" in shown.text
    assert "means over 2 seeds" in shown.text
    assert results.cells[0].fingerprints["test"] in shown.text
    at_ten = {line.name: line.y[-1] for line in part.at_k[0].lines}
    assert at_ten["least"] == pytest.approx(part.comparison.means["least"]["ndcg@10"])


def test_curves_pass_through_the_metrics_of_the_table():
    """ERR depends on the highest grade of all, which each of these test parts may lack."""
    data = tr.synthetic(n_queries=30, n_documents=(4, 9), n_grades=3, seed=2)
    labels = data.labels.copy()
    query = tr.folds(data, 3)[0].valid.qids[0]
    labels[np.flatnonzero(data.qid == query)[0]] = 4.0
    folds = list(tr.folds(data.replace(labels=labels), 3))
    assert any(fold.test.labels.max() < 4 for fold in folds)
    metrics = ("err@5", "ndcg@10", "p@3")
    run = tr.Experiment(folds, ["LeastSquares", "ListNet"], metrics=metrics, threads=1).run()
    part = tr.report.from_results(run).parts[0]
    for metric in metrics:
        name, _, k = metric.partition("@")
        [curve] = [one for one in part.at_k if one.title == f"{name} at k"]
        for line in curve.lines:
            at = line.x.index(min(float(k), line.x[-1]))
            assert line.y[at] == pytest.approx(run.pooled(metric)[line.name], abs=1e-12)


def test_an_experiment_shows_calibration_and_signed_weights():
    data = tr.synthetic(n_queries=30, n_documents=(4, 9), n_grades=3, seed=2)
    systems = {"grades": tr.ExpectedGainRanker(l2=0.1), "linear": tr.LinearRanker("ListNet", l2=0.1)}
    run = tr.Experiment(data, systems, n_folds=3, threads=1).run()
    part = tr.report.from_results(run).parts[0]
    [calibration] = part.calibrations
    relevance, labels, weights = [], [], []
    for fold in tr.folds(data, 3):
        ranker = tr.ExpectedGainRanker(l2=0.1).fit(fold.train, valid=fold.valid)
        relevance.append(1 - ranker.predict_proba(fold.test)[:, 0])
        labels.append(fold.test.labels > 0)
        linear = tr.LinearRanker("ListNet", l2=0.1).fit(fold.train, valid=fold.valid)
        weights.append(linear.coef_ * linear.standardization_.spread)
    assert calibration.documents.sum() == data.n_documents
    total = np.dot(calibration.predicted, calibration.documents)
    assert total == pytest.approx(np.concatenate(relevance).sum())
    assert np.dot(calibration.observed, calibration.documents) == pytest.approx(np.concatenate(labels).sum())
    [shown] = [one for one in part.weights if one.system == "linear"]
    mean = np.mean(weights, axis=0)
    assert shown.values == pytest.approx(mean[np.argsort(-np.abs(mean))][: len(shown.values)])
    assert min(shown.values) < 0 < max(shown.values)
    assert "Calibration" in Read(page(tr.report.from_results(run))).text


def test_documents_without_ids_are_told_apart_over_folds(results):
    names = tr.report.from_results(results).parts[0].documents.names.tolist()
    assert len(set(names)) == len(names)
    assert names[0] == "Fold1 row 1"
    assert names[-1] == f"Fold3 row {results.test('one', 'Fold3').n_documents}"


def test_a_report_without_the_folder_has_numbers_only(results, tmp_path):
    results.save(tmp_path / "r.parquet")
    read = type(results).read(tmp_path / "r.parquet")
    read.cache_dir = None
    made = tr.report.from_results(read)
    assert made.parts[0].documents is None
    assert not made.parts[0].at_k
    shown = Read(page(made))
    [found] = shown.explorers()
    assert found["documents"] == {}
    assert "scores were not stored" in shown.text
    assert found["values"] == Read(page(tr.report.from_results(results))).explorers()[0]["values"]


@pytest.mark.parametrize("conventions", [("trec_eval", "standard"), ("standard", "trec_eval")])
def test_a_convention_that_does_not_apply_is_told_and_the_others_are_reported(conventions):
    data = tr.synthetic(n_queries=30, n_features=3, seed=0)
    results = tr.Experiment(data, ["LeastSquares", "ListNet"], n_folds=3, conventions=conventions, threads=1).run()
    made = tr.report.from_results(results)
    assert [one.convention for one in made.parts[0].comparisons] == ["standard"]
    assert len(made.parts[0].qids) == 30
    assert "trec_eval does not apply to data" in Read(page(made)).text


def test_an_experiment_with_one_system_cannot_be_compared():
    data = tr.synthetic(n_queries=30, seed=0)
    one = tr.Experiment(data, "LeastSquares", n_folds=3, threads=1).run(verbose=False)
    with pytest.raises(DataError, match="Add systems"):
        tr.report.from_results(one)


# The command line


def test_what_cv_cannot_report_is_refused_before_any_work(data, tmp_path, monkeypatch):
    monkeypatch.setattr("toprank.experiment.running.run", lambda *rest: pytest.fail("work was begun"))
    file = tmp_path / "data.txt"
    tr.write(data, file)
    start = ("cv", file, "--systems")
    assert "two or more" in invoked(*start, "ListNet", "--html", tmp_path / "r.html", status=2).stderr
    again = tmp_path / "." / ".." / tmp_path.name / "data.txt"
    assert "passed twice" in invoked("cv", file, again, "--systems", "ListNet", status=2).stderr
    for words, wrong in (
        ("is a folder", ("ListNet,RankSVM", "--html", tmp_path)),
        ("does not exist", ("ListNet,RankSVM", "--html", tmp_path / "none" / "r.html")),
        ("must be a number or a list", ("ListNet", "--set", "ListNet.l2=abc")),
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
