"""Comparing systems: what is tested, how the family is corrected, and how it is written down."""

from __future__ import annotations

import json
import pickle
import re
from itertools import combinations

import numpy as np
import pytest

from toprank import significance as sig
from toprank.data.dataset import RankingData
from toprank.display.tables import Table
from toprank.errors import DataError, UnknownNameError
from toprank.evaluation import compare, compare_values
from toprank.evaluation.runs import evaluate_run
from toprank.evaluation.scores import evaluate

FAST = {"n_permutations": 2000, "n_resamples": 500}


def values(n=60, **shifts):
    """Per-query values of two metrics for systems that differ from a common ground by the given shifts."""
    rng = np.random.default_rng(0)
    ground = rng.random((2, n))
    return {
        name: {m: ground[k] + shift + rng.normal(0, 0.1, n) for k, m in enumerate(("ndcg@10", "map"))}
        for name, shift in shifts.items()
    }


@pytest.fixture(scope="module")
def ranking():
    """Data of 40 queries, and the scores of a good, a fair and a blind system."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 4, 40 * 12)
    noise = rng.normal(size=len(labels))
    data = RankingData(noise[:, None], labels, qid=np.repeat(np.arange(40), 12))
    return data, {"good": labels + noise, "fair": 0.3 * labels + noise, "blind": noise}


class TestNumbers:
    @pytest.mark.parametrize("test", ["randomization", "t", "wilcoxon"])
    @pytest.mark.parametrize("correction", ["holm", "bonferroni", "none"])
    def test_all_pairs(self, test, correction):
        given = values(a=0.0, b=0.01, c=0.2)
        found = compare_values(given, test=test, correction=correction, seed=3, **FAST)
        family = [(x, y, m) for x, y in combinations("abc", 2) for m in ("ndcg@10", "map")]
        assert [(d.a, d.b, d.metric) for d in found.differences] == family
        assert found.n_tests == 6
        function = {"randomization": sig.randomization_test, "t": sig.t_test, "wilcoxon": sig.wilcoxon}[test]
        options = {"n_permutations": 2000, "seed": 3} if test == "randomization" else {}
        p = [function(given[x][m], given[y][m], **options).p for x, y, m in family]
        adjust = {"holm": sig.holm, "bonferroni": sig.bonferroni, "none": np.array}[correction]
        assert [d.p for d in found.differences] == p
        assert [d.p_adjusted for d in found.differences] == adjust(p).tolist()
        assert [d.significant for d in found.differences] == (adjust(p) <= 0.05).tolist()
        assert any(d.significant for d in found.differences)
        assert not all(d.significant for d in found.differences)

    def test_every_field_of_a_difference(self):
        given = values(new=0.05, old=0.0)
        found = compare_values(given, baseline="old", confidence=0.9, margin=0.08, power=0.9, **FAST)
        a, b = given["new"]["map"], given["old"]["map"]
        (d,) = [d for d in found.differences if d.metric == "map"]
        assert (d.a, d.b, d.n, d.test) == ("new", "old", 60, "randomization")
        assert (d.mean_a, d.mean_b) == (pytest.approx(a.mean()), pytest.approx(b.mean()))
        assert d.difference == pytest.approx(a.mean() - b.mean())
        assert d.interval == sig.bootstrap_interval(a, b, confidence=0.9, n_resamples=500)
        assert d.effect_size == sig.effect_size(a, b).d
        assert (d.wins, d.ties, d.losses) == sig.win_tie_loss(a, b)
        assert d.queries_needed == sig.queries_needed(a, b, power=0.9, alpha=0.1 / 2)
        raw = [sig.equivalence_test(given["new"][m], given["old"][m], margin=0.08).p for m in ("ndcg@10", "map")]
        assert d.equivalence_p == sig.holm(raw)[1]
        assert d.equivalent == (d.equivalence_p <= 0.1)
        assert found.means["new"]["map"] == pytest.approx(a.mean())

    def test_without_correction_the_level_is_not_divided(self):
        given = values(a=0.05, b=0.0)
        found = compare_values(given, correction="none", **FAST)
        for d in found.differences:
            assert d.queries_needed == sig.queries_needed(given["a"][d.metric], given["b"][d.metric])

    def test_baseline(self):
        found = compare_values(values(a=0.0, b=0.05, c=0.2), baseline="b", **FAST)
        assert [(d.a, d.b) for d in found.differences] == [("a", "b")] * 2 + [("c", "b")] * 2
        assert found.baseline == "b"

    def test_queries_that_do_not_count_for_both_are_dropped(self):
        given = values(a=0.0, b=0.1)
        given["a"]["map"][:5] = np.nan
        given["b"]["map"][3:9] = np.nan
        found = compare_values(given, **FAST).differences
        assert [d.n for d in found] == [60, 51]
        assert found[1].mean_a == pytest.approx(given["a"]["map"][9:].mean())

    def test_same_bits_on_any_number_of_threads(self):
        given = values(a=0.0, b=0.02, c=0.1, n=400)
        results = [compare_values(given, threads=threads, **FAST).to_dict() for threads in (1, 2, 3)]
        assert results[0] == results[1] == results[2]

    def test_an_error_is_better_when_lower(self):
        given = values(a=0.0, b=0.2)
        up, down = (compare_values(given, lower_is_better=names, **FAST) for names in ((), ("map",)))
        assert up.differences[1].winner == "b"
        assert down.differences[1].winner == "a"
        assert down.differences[0].winner == "b"
        assert (down.differences[1].wins, down.differences[1].losses) == (
            up.differences[1].losses,
            up.differences[1].wins,
        )
        assert down.differences[1].difference == up.differences[1].difference
        assert down.summary.splitlines()[1].startswith("a is better than b by")
        assert "lower is better" in down.summary.splitlines()[1]


class TestWithEvaluation:
    def test_per_query_values_are_those_of_evaluate(self, ranking):
        data, scores = ranking
        metrics = ["ndcg@10", "map", "owa"]
        found = compare(scores, data, metrics, convention="skip-blank", **FAST)
        by_hand = {
            name: dict(evaluate(s, data, metrics, convention="skip-blank").per_query) for name, s in scores.items()
        }
        assert (
            found.to_dict()
            == compare_values(by_hand, convention="skip-blank", lower_is_better=("owa",), **FAST).to_dict()
        )
        assert found.convention == "skip-blank"
        assert all(d.winner == "good" for d in found.differences if d.a == "good")

    def test_equal_systems(self, ranking):
        data, scores = ranking
        found = compare({"x": scores["good"], "y": 2 * scores["good"] + 1}, data, margin=0.1)
        (d,) = found.differences
        assert (d.p, d.difference, d.winner, d.ties, d.queries_needed) == (1.0, 0.0, None, 40, None)
        assert d.equivalence_p == pytest.approx(0.9**40)  # that no query of ten differs, and none of forty was met
        assert found.summary.splitlines()[0].startswith("x and y are equivalent within ±0.1 in ndcg@10")
        same = compare({"x": scores["good"], "y": scores["good"]}, data)
        assert not same.differences[0].equivalent  # a query in a hundred may fail unseen on forty
        assert same.summary.splitlines()[0].startswith("No difference between x and y can be shown")

    def test_plain_labels(self, ranking):
        data, scores = ranking
        assert (
            compare(scores, data.labels, ["map"], qid=data.qid, **FAST).to_dict()
            == compare(scores, data, ["map"], **FAST).to_dict()
        )

    def test_wrong_length_names_the_system(self, ranking):
        data, scores = ranking
        with pytest.raises(DataError, match=r"System 'short' has 479 scores for 480 documents"):
            compare(scores | {"short": scores["good"][1:]}, data)
        with pytest.raises(DataError, match="'ragged' must be a one-dimensional list"):
            compare(scores | {"ragged": [[1.0], [1.0, 2.0]]}, data)

    def test_weighted_means_are_refused(self, ranking):
        data, scores = ranking
        with pytest.raises(DataError, match="unweighted means"):
            compare(scores, data, weighted=True)

    def test_unknown_metric(self, ranking):
        data, scores = ranking
        with pytest.raises(UnknownNameError, match="ndcg"):
            compare(scores, data, ["ndgc@10"])


class TestPairing:
    """Per-query values of two evaluations are paired by the ids of their queries, never by their place."""

    @pytest.fixture
    def run(self):
        rng = np.random.default_rng(5)
        qrels = {f"q{i}": {f"d{j}": int(rng.integers(0, 3)) for j in range(6)} | {"d9": 1} for i in range(20)}
        return qrels, {q: {d: float(rng.normal()) for d in of} for q, of in qrels.items()}

    def without(self, run, *missing):
        return {query: of for query, of in run.items() if query not in missing}

    def test_one_query_missing_on_each_side_is_refused(self, run):
        qrels, whole = run
        a = evaluate_run(qrels, self.without(whole, "q3"), "map")
        b = evaluate_run(qrels, self.without(whole, "q12"), "map")
        for call in (
            lambda: sig.win_tie_loss(a.per_query["map"], b.per_query["map"]),
            lambda: compare_values({"a": a, "b": b}, **FAST),
            lambda: compare_values({"a": a.per_query, "b": b.per_query}, **FAST),
            lambda: compare_values({"a": dict(a.per_query), "b": dict(b.per_query)}, **FAST),
            lambda: compare_values({"a": a.to_dict(True)["per_query"], "b": b.to_dict(True)["per_query"]}, **FAST),
        ):
            with pytest.raises(DataError, match=r"b lacks query q12; a lacks query q3\. .*complete=True"):
                call()

    def test_queries_that_count_0_where_they_are_missing(self, run):
        qrels, whole = run
        a, b = (evaluate_run(qrels, self.without(whole, q), "map", complete=True) for q in ("q3", "q12"))
        found = sig.win_tie_loss(a.per_query["map"], b.per_query["map"])
        assert found == (1, len(qrels) - 2, 1)
        assert compare_values({"a": a, "b": b}, **FAST).differences[0].ties == len(qrels) - 2

    def test_another_order_is_no_difference(self, ranking):
        data, scores = ranking
        turned = np.arange(data.n_documents).reshape(40, 12)[::-1].reshape(-1)
        other = RankingData(data.X[turned], data.labels[turned], qid=np.asarray(data.qid)[turned])
        one = evaluate(scores["fair"], data, ["ndcg@10", "owa"])
        two = evaluate(scores["fair"][turned], other, ["ndcg@10", "owa"])
        assert one.qids.tolist() != two.qids.tolist()
        assert sig.win_tie_loss(one.per_query["ndcg@10"], two.per_query["ndcg@10"]) == (0, 40, 0)
        found = compare_values({"one": one, "two": two}, **FAST)
        assert [d.difference for d in found.differences] == [0, 0]
        assert found.convention == "standard"
        assert set(found.lower_is_better) == {"owa"}

    def test_another_convention_is_refused(self, ranking):
        data, scores = ranking
        one, two = (evaluate(scores["fair"], data, "ndcg@10", convention=c) for c in ("standard", "letor4"))
        with pytest.raises(DataError, match="'a' was evaluated under standard, system 'b' under letor4"):
            compare_values({"a": one, "b": two})

    def test_values_remember_their_queries_and_nothing_made_of_them_does(self, ranking):
        data, scores = ranking
        found = evaluate(scores["fair"], data, "ndcg@10").per_query["ndcg@10"]
        assert pickle.loads(pickle.dumps(found)).qids.tolist() == data.qids.tolist()
        assert repr(found) == repr(np.asarray(found))
        for made in (found[:3], found + 1, np.sort(found), found.copy()):
            assert getattr(made, "qids", None) is None
        assert type(found.mean()) is type(np.float64(0))


class TestVerdicts:
    def test_better(self):
        d = np.full(12, 0.1) + np.linspace(-0.05, 0.05, 12)
        zero = np.zeros(12)
        sentence = r"^new is better than old by 0\.1000 \[0\.\d{4}, 0\.\d{4}\] map, p = 0\.000488 \(Holm, 1 test\)\.$"
        for given in ({"old": {"map": zero}, "new": {"map": d}}, {"new": {"map": d}, "old": {"map": zero}}):
            assert re.match(sentence, compare_values(given).summary.splitlines()[0])

    def test_not_shown(self):
        """Of the 32 sign patterns, 14 give a sum of 0.6 or more in size: 7 sets of flips of 0.3 or less, twice."""
        given = {"a": {"map": [0.3, -0.2, 0.4, -0.1, 0.2]}, "b": {"map": np.zeros(5)}}
        found = compare_values(given)
        needed = found.differences[0].queries_needed
        assert found.summary.splitlines()[0] == (
            f"No difference between a and b can be shown in map on 5 queries, p = {14 / 32:.3g} (Holm, 1 test); "
            f"about {needed:,} queries would be needed to see a difference of this size."
        )

    def test_too_few_queries_for_the_test(self):
        found = compare_values({"a": {"map": [0.2, 0.21, 0.2]}, "b": {"map": np.zeros(3)}})
        assert found.differences[0].queries_needed <= 3
        assert found.summary.splitlines()[0].endswith("on 3 queries, p = 0.25 (Holm, 1 test).")

    def test_significant_yet_equivalent(self):
        d = np.full(500, 0.001) + np.linspace(-0.0005, 0.0005, 500)
        verdict = compare_values({"a": {"map": d}, "b": {"map": np.zeros(500)}}).summary.splitlines()[0]
        assert verdict.startswith("a is better than b by 0.0010")
        assert verdict.endswith("equivalent within ±0.01.")

    def test_wilcoxon_may_differ_from_the_mean(self):
        d = np.concatenate([np.arange(1, 20) / 100, [-1.9]])  # many small wins, one loss that undoes them
        found = compare_values({"a": {"map": 0.5 + d}, "b": {"map": np.full(20, 0.5)}}, test="wilcoxon")
        assert found.differences[0].winner is None
        assert re.match(
            r"a and b differ in map, p = .*, although their means are equal\.", found.summary.splitlines()[0]
        )

    def test_one_query(self):
        found = compare_values({"a": {"map": [0.5]}, "b": {"map": [0.2]}})
        assert found.differences[0].p == 1
        assert "[-∞, ∞]" in str(found)
        assert "nan" not in str(found).lower()
        plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert plain["differences"][0]["interval"] == [None, None]
        assert plain["differences"][0]["effect_size"] is None


class TestWriting:
    names = ("a_b", "50%", "x|y", "*[1]*", "$&#{}~^\\<>")

    @pytest.fixture
    def found(self):
        given = values(**{name: 0.05 * k for k, name in enumerate(self.names)})
        return compare_values(given, baseline="a_b", convention="standard", **FAST)

    def test_text(self, found):
        text = str(found)
        assert "5 systems on 60 queries, convention standard; each against the baseline a_b." in text
        assert "Holm over 8 tests (4 × 2, pairs × metrics)" in text
        for verdict in found.summary.splitlines():
            assert verdict in text
        for name, of in found.means.items():
            assert re.search(rf"^{re.escape(name)} +{of['ndcg@10']:.4f} +{of['map']:.4f}$", text, re.MULTILINE)

    def test_one_test_is_one_test(self):
        found = compare_values({"a": {"map": [0.1, 0.2, 0.4]}, "b": {"map": [0.2, 0.1, 0.3]}}, **FAST)
        assert "Holm over 1 test (1 × 1, pairs × metrics)" in str(found)
        assert "(Holm, 1 test)" in found.summary.splitlines()[0]

    def test_columns_are_aligned(self):
        lines = Table(("name", "value"), [("x", "1.0"), ("longer", "-10.0")], names=1).text().splitlines()
        assert lines == ["name    value", "------  -----", "x         1.0", "longer  -10.0"]

    def test_markdown(self, found):
        """Unescaped pipes separate cells: every row of a table has as many as its rule."""
        tables = [block for block in found.to_markdown().split("\n\n") if block.startswith("|")]
        assert len(tables) == 2
        for table, columns in zip(tables, (3, 12), strict=True):
            rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()]
            assert {len(row) for row in rows} == {columns}
        first = [re.split(r"(?<!\\)\|", line)[1].strip() for line in tables[0].splitlines()[2:]]
        assert tuple(re.sub(r"\\(.)", r"\1", cell) for cell in first) == self.names

    def test_latex(self, found):
        latex = found.latex()
        assert found.to_latex().endswith(latex)
        assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == latex.count(r"\bottomrule") == 2
        for table, columns in zip(re.findall(r"\\toprule(.*?)\\bottomrule", latex, re.DOTALL), (3, 12), strict=True):
            rows = [row for row in re.split(r"\\\\\n", table.replace(r"\midrule", "")) if row.strip()]
            assert {len(re.split(r"(?<!\\)&", row)) for row in rows} == {columns}
        assert r"a\_b & " in latex
        assert r"50\% & " in latex
        assert r"{*}{[}1{]}{*} & " in latex
        escaped = r"\$\&\#\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}\textless{}\textgreater{} & "
        assert escaped in latex
        assert not re.search(r"(?<!\\)[%#]", latex.partition("\n")[2])  # the first line is a comment
        assert latex.isascii()

    def test_names_on_several_lines(self):
        found = compare_values({"a\nb": {"map": [0.1, 0.2]}, "c": {"map": [0.3, 0.5]}})
        for text in (found.means_table().text(), found.means_table().markdown()):
            assert len(text.splitlines()) == 4

    def test_dict_is_json(self, found):
        plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert plain["systems"] == list(self.names)
        assert plain["n_tests"] == len(plain["differences"]) == 8
        assert (plain["convention"], plain["correction"], plain["seed"]) == ("standard", "holm", 0)
        for one, d in zip(plain["differences"], found.differences, strict=True):
            assert one["p_adjusted"] == d.p_adjusted
            assert one["interval"] == list(d.interval)
            assert one["verdict"] == found.summary_of(d)


class TestRefusals:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({}, "at least two systems, but 0 was given"),
            ({"a": {"map": [1.0]}}, "at least two systems, but 1 was given"),
            ([("a", {"map": [1.0]}), ("a", {"map": [1.0]})], "Two systems are called 'a'"),
            ({1: {"map": [1.0]}, "b": {"map": [1.0]}}, "is not a valid system name"),
            ({" ": {"map": [1.0]}, "b": {"map": [1.0]}}, "is not a valid system name"),
            ({"a": {}, "b": {}}, "No metric was given"),
            (
                {"a": {"map": [1.0]}, "b": {"mrr": [1.0]}},
                "'a' and 'b' were evaluated with different metrics: map and mrr",
            ),
            ({"a": {"map": [1.0, 2.0]}, "b": {"map": [1.0]}}, "same queries"),
            ({"a": {"map": [1.0]}, "b": {"map": [np.inf]}}, "map of system 'b' is inf"),
            ({"a": {"map": ["x"]}, "b": {"map": [1.0]}}, "map of system 'a' must hold numbers"),
            ({"a": {"map": []}, "b": {"map": []}}, "undefined on every query"),
            ({"a": {"map": [np.nan]}, "b": {"map": [1.0]}}, "undefined on every query for system 'a'"),
            ({"a": {"map": [np.nan, 1]}, "b": {"map": [1, np.nan]}}, "undefined for a or b on every query"),
        ],
    )
    def test_systems(self, given, message):
        with pytest.raises(DataError, match=re.escape(message)):
            compare_values(given)

    @pytest.mark.parametrize(
        "option",
        [{"baseline": "z"}, {"test": "randomisation"}, {"correction": "hulm"}, {"lower_is_better": ["mapp"]}],
    )
    def test_unknown_names(self, option):
        with pytest.raises(
            UnknownNameError, match=next(str(v[0] if isinstance(v, list) else v) for v in option.values())
        ):
            compare_values(values(a=0.0, b=0.1), **option)

    @pytest.mark.parametrize(
        "option",
        [{"confidence": 95}, {"confidence": 0.4}, {"margin": 0}, {"power": 1}, {"power": 0.01}, {"n_permutations": 0},
         {"n_resamples": -1}, {"seed": -1}, {"seed": 0.5}],
    )  # fmt: skip
    def test_options_before_any_work(self, option, ranking):
        data, scores = ranking
        with pytest.raises(DataError, match=next(iter(option))):
            compare(scores, data, ["no such metric"], **option)

    def test_baseline_before_any_work(self, ranking):
        data, scores = ranking
        with pytest.raises(UnknownNameError, match="did you mean 'good'"):
            compare(scores, data, ["no such metric"], baseline="goood")
