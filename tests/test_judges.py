"""Judges: agreement against scikit-learn and enumeration, intervals by simulation, orders of systems, shared judges."""

from __future__ import annotations

import itertools
import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

import toprank as tr
from support import toprank
from toprank.data.warnings import SameJudgeWarning
from toprank.errors import DataError, UnknownNameError
from toprank.evaluation.agreement import judge_of
from toprank.significance.agreement import coincidences, kappa, krippendorff


def qrels_of(query, grades):
    """{query: {document: grade}} of the documents that are judged; document i belongs to query[i]."""
    judged: dict[str, dict[str, float]] = {}
    for number, (q, grade) in enumerate(zip(query, grades, strict=True)):
        if not np.isnan(grade):
            judged.setdefault(f"q{q}", {})[f"d{number}"] = float(grade)
    return judged


def alpha_by_enumeration(table, level):
    """1 − mean cost of two judgments of one document / mean cost of any two judgments, pair by pair."""
    units = [[value for value in row if not np.isnan(value)] for row in table]
    units = [unit for unit in units if len(unit) >= 2]
    everything = [value for unit in units for value in unit]
    n = len(everything)

    def cost(a, b):
        if level == "nominal":
            return float(a != b)
        if level == "interval":
            return (a - b) ** 2
        low, high = min(a, b), max(a, b)
        between = sum(low <= value <= high for value in everything)
        return 0.0 if a == b else (between - (everything.count(a) + everything.count(b)) / 2) ** 2

    seen = sum(cost(a, b) / (len(unit) - 1) for unit in units for a, b in itertools.permutations(unit, 2)) / n
    chance = sum(cost(a, b) for a, b in itertools.permutations(everything, 2)) / (n * (n - 1))
    return 1 - seen / chance if chance > 0 else None


def drawn(seed, n=40, judges=3, grades=(0, 1, 2, 4), missing=0.2, right=0.6):
    """Grades of some judges, (documents, judges), who are often right and sometimes say nothing."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, len(grades), n)
    codes = np.where(rng.random((n, judges)) < right, truth[:, None], rng.integers(0, len(grades), (n, judges)))
    table = np.array(grades, dtype=float)[codes]
    table[rng.random((n, judges)) < missing] = np.nan
    return np.sort(rng.integers(0, 6, n)), table


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), level=st.sampled_from(["nominal", "ordinal", "interval"]))
def test_agreement_is_that_of_scikit_learn_and_of_the_definition(seed, level):
    query, table = drawn(seed)
    human, *others = (qrels_of(query, column) for column in table.T)
    for weights in ("linear", "quadratic"):
        found = tr.judge_agreement(human, {"a": others[0], "b": others[1]}, weights=weights, level=level)
        for one, column in zip(found.agreements, table.T[1:], strict=True):
            both = ~np.isnan(table[:, 0]) & ~np.isnan(column)
            pair = table[both, 0].astype(int), column[both].astype(int)
            assert one.documents == both.sum()
            assert one.same == pytest.approx(np.mean(pair[0] == pair[1]))
            assert one.kappa == pytest.approx(cohen_kappa_score(*pair), abs=1e-12)
            assert one.weighted_kappa == pytest.approx(cohen_kappa_score(*pair, weights=weights), abs=1e-12)
    assert found.alpha == pytest.approx(alpha_by_enumeration(table, level), abs=1e-12)


def test_alpha_of_the_example_in_krippendorffs_own_text():
    """Four observers, twelve units (Krippendorff 2011, "Computing Krippendorff's alpha-reliability", example C)."""
    rows = ("1 2 3 3 2 1 4 1 2 . . .", "1 2 3 3 2 2 4 1 2 5 . 3", ". 3 3 3 2 3 4 2 2 5 1 .", "1 2 3 3 2 4 4 1 2 5 1 .")
    table = np.array([[np.nan if word == "." else float(word) for word in row.split()] for row in rows]).T
    human, *others = (qrels_of(np.zeros(12, dtype=int), column) for column in table.T)
    known = {"nominal": 0.743, "ordinal": 0.815, "interval": 0.849}
    for level, value in known.items():
        found = tr.judge_agreement(human, dict(zip("bcd", others, strict=True)), level=level)
        assert round(found.alpha, 3) == value
        assert found.alpha_interval is None  # one query has no spread


def test_perfect_opposite_and_empty_agreement():
    query = np.repeat(np.arange(4), 5)
    grades = np.tile([0.0, 1.0, 0.0, 1.0, 1.0], 4)
    same = tr.judge_agreement(qrels_of(query, grades), {"twin": qrels_of(query, grades)})
    assert (same.agreements[0].kappa, same.alpha, same.agreements[0].same) == (1.0, 1.0, 1.0)
    assert list(same.agreements[0].kappa_interval) == [1.0, 1.0]
    assert tr.judge_agreement(qrels_of(query, grades), {"other": qrels_of(query, 1 - grades)}).agreements[0].kappa < 0
    dull = tr.judge_agreement(qrels_of(query, 0 * grades), {"dull": qrels_of(query, 0 * grades)})
    assert (dull.alpha, dull.agreements[0].kappa, dull.agreements[0].kappa_interval) == (None, None, None)
    assert "–" in str(dull)


@pytest.mark.parametrize(
    ("human", "others", "sentence"),
    [
        ({"q": {"a": 1}}, {"m": {"q": {"b": 1}}}, "reference and m have no judged document in common"),
        ({"q": {"a": 1}}, {"reference": {"q": {"a": 1}}}, "Two judges are called 'reference'"),
        ({"q": {"a": 1}}, {}, "others is empty"),
        ({"q": {f"d{i}": i / 7 for i in range(30)}}, {"m": {"q": {"d0": 1}}}, "have 30 distinct grades.*Round"),
    ],
)
def test_what_cannot_be_compared_is_refused(human, others, sentence):
    with pytest.raises(DataError, match=sentence):
        tr.judge_agreement(human, others)


def test_weights_and_levels_are_named():
    one = {"q": {"a": 1, "b": 0}}
    with pytest.raises(UnknownNameError, match="weights of kappa"):
        tr.judge_agreement(one, {"m": one}, weights="cubic")
    with pytest.raises(UnknownNameError, match="level of measurement"):
        tr.judge_agreement(one, {"m": one}, level="ratio")


@pytest.mark.nightly
def test_intervals_hold_the_agreement_of_all_queries():
    """Documents of a query are alike in how easy they are to judge; the truth is that of very many queries."""
    rng = np.random.default_rng(0)

    def judged(n_queries):
        query = np.repeat(np.arange(n_queries), 10)
        ease = rng.beta(2, 1, n_queries)[query]
        truth = rng.integers(0, 3, len(query))
        two = [np.where(rng.random(len(query)) < ease, truth, rng.integers(0, 3, len(query))) for _ in range(2)]
        return query, *two

    def measures(query, a, b):
        found = tr.judge_agreement(qrels_of(query, a.astype(float)), {"m": qrels_of(query, b.astype(float))})
        [one] = found.agreements
        return {"kappa": one.kappa_interval, "weighted": one.weighted_interval, "alpha": found.alpha_interval}

    _, a, b = judged(40_000)
    counts = np.zeros((3, 3))
    np.add.at(counts, (a, b), 1)
    table = coincidences(np.stack([a, b], axis=1), np.zeros(len(a), dtype=int), 1, 3)[0]
    truth = {
        "kappa": kappa(counts), "weighted": kappa(counts, "quadratic"), "alpha": krippendorff(table, [0, 1, 2]),
    }  # fmt: skip
    times, held = 300, dict.fromkeys(truth, 0)
    for _ in range(times):
        for name, interval in measures(*judged(40)).items():
            held[name] += interval.low <= truth[name] <= interval.high
    for name, count in held.items():
        assert abs(count / times - 0.95) < 4 * np.sqrt(0.95 * 0.05 / times), (name, count / times)


def collection(n_queries=60, seed=0):
    """Judgments, and runs of falling quality."""
    rng = np.random.default_rng(seed)
    grades = {f"q{q}": {f"d{d}": int(rng.integers(0, 3)) for d in range(12)} for q in range(n_queries)}
    runs = {
        name: {q: {d: g + noise * rng.normal() for d, g in of.items()} for q, of in grades.items()}
        for name, noise in (("good", 0.4), ("fair", 1.5), ("poor", 8.0))
    }
    return grades, runs


def test_orders_of_systems_survive_or_do_not():
    grades, runs = collection()
    upside_down = {q: {d: 2 - g for d, g in of.items()} for q, of in grades.items()}
    rng = np.random.default_rng(1)
    lots = {q: {d: int(rng.integers(0, 3)) for d in of} for q, of in grades.items()}
    found = tr.judge_agreement(
        grades, {"twin": grades, "contrary": upside_down, "lots": lots}, runs=runs, metrics="ndcg@5,map"
    )
    of = {(one.judge, one.metric): one for one in found.orders}
    assert len(of) == 6
    for metric in ("ndcg@5", "map"):
        twin, contrary, chance = (of[judge, metric] for judge in ("twin", "contrary", "lots"))
        assert (twin.tau, twin.significant, twin.kept, twin.lost, twin.flipped, twin.gained) == (1.0, 3, 3, 0, 0, 0)
        assert (contrary.tau, contrary.flipped) == (-1.0, 3)
        assert "contrary prefers poor to good" in " ".join(contrary.reversals)
        assert chance.kept + chance.lost + chance.flipped == chance.significant == 3
        assert chance.lost >= 2
        before, after = twin.means["good"]
        assert before == after == tr.evaluate_run(grades, runs["good"], metric).mean[metric]
    assert found.to_dict()["orders"][0]["means"].keys() == runs.keys()
    json.dumps(found.to_dict(), allow_nan=False)


def test_systems_are_ordered_on_the_queries_that_both_judged():
    grades, runs = collection()
    some = {q: of for q, of in grades.items() if int(q[1:]) % 2}
    [order] = tr.judge_agreement(grades, {"half": some}, runs=runs).orders
    assert order.queries == len(some)
    assert order.means["fair"][0] == order.means["fair"][1]
    with pytest.raises(DataError, match="no judged document in common"):
        tr.judge_agreement(grades, {"away": {"x1": {"d0": 1}}}, runs=runs)


def judged_by(name, seed=0):
    data = tr.synthetic(n_queries=30, n_documents=6, seed=seed)
    return data.replace(metadata={"judge": np.full(data.n_documents, name)})


def test_a_shared_judge_is_told():
    ranker = tr.LinearRanker("ListNet").fit(judged_by("gpt"))
    assert ranker.training_["judges"] == ["gpt"]
    with pytest.warns(SameJudgeWarning, match="labels come from gpt, whose labels the ranker was trained on"):
        ranker.score(judged_by("gpt", seed=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranker.score(judged_by("ann", seed=1))
        ranker.score(tr.synthetic(n_queries=9, seed=2))
    grades, runs = collection()
    told = tr.judge_agreement(grades, {"gpt": grades, "ann": grades}, runs=runs, trained={"good": ranker}).caveats
    assert len(told) == 1
    assert told[0].startswith("good was trained on labels of gpt, so an evaluation by gpt is biased in its favor.")
    assert tr.judge_agreement(grades, {"ann": grades}, runs=runs, trained={"good": ranker}).caveats == ()


def test_judges_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grades, runs = collection()
    for name in ("human", "gpt"):
        lines = [f"{q} 0 {d} {g}" for q, of in grades.items() for d, g in of.items()]
        (tmp_path / f"{name}.qrels").write_text("\n".join(lines) + "\n")
    for name, run in runs.items():
        tr.write_run(tr.data.trec.Run.from_source(run, name), f"{name}.run")
    judged_by("gpt").to_frame().to_parquet("train.parquet")
    toprank("train", "train.parquet", "--metadata", "judge", "--system", "ListNet", "-o", "good.toprank", "-q")
    words = ["agreement", "human.qrels", "gpt.qrels", "--runs", "good.run", "fair.run", "-m", "ndcg@5,map", "-q"]
    told = toprank(*words, "--model", "good.toprank").stdout
    assert "against human" in told
    assert "good was trained on labels of gpt" in told
    found = json.loads(toprank(*words, "--json").stdout)
    expected = tr.judge_agreement("human.qrels", {"gpt": "gpt.qrels"}, runs={n: runs[n] for n in ("good", "fair")},
                         metrics="ndcg@5,map")  # fmt: skip
    assert found == json.loads(json.dumps(expected.to_dict()))
    assert toprank("agreement", "human.qrels", "gpt.qrels", "-q").stdout.startswith("2 judges, 720 documents")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "good.run").write_bytes((tmp_path / "fair.run").read_bytes())
    alike = ["agreement", "human.qrels", "gpt.qrels", "--runs", "good.run"]
    several = json.loads(toprank(*alike, "old/good.run", "--json").stdout)
    assert [*several["orders"][0]["means"]] == ["good.run", "old/good.run"]
    assert "passed twice" in toprank(*alike, "./good.run", status=2).stderr
    assert "two runs" in toprank(*alike, status=2).stderr
    assert "passed twice" in toprank("agreement", "human.qrels", "human.qrels", status=2).stderr
    judged_by("gpt", seed=1).to_frame().to_parquet("test.parquet")
    warned = toprank("evaluate", "test.parquet", "good.toprank", "--metadata", "judge", "-m", "ndcg@5").stderr
    assert "labels come from gpt" in warned


def test_judges_are_called_after_their_files():
    assert [judge_of(name) for name in ("a/gpt-4o.qrels", "x.txt", "qrels.ann", "b.qrels.zst")] == [
        "gpt-4o", "x", "qrels.ann", "b",
    ]  # fmt: skip
