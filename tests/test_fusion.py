"""Fusion of runs: against ranx where conventions agree, against slow obvious computations, and without a leak."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toprank as tr
from toprank.data.trec import Qrels, Run
from toprank.errors import DataError, UnknownNameError
from toprank.fusion import METHODS, NORMALIZATIONS, fuse
from toprank.fusion.learning import FusionLearning, learned_weights
from toprank.fusion.normalization import normalize
from toprank.fusion.query_runs import QueryRuns


def some_runs(seed, n_runs=3, n_queries=6, n_documents=12):
    """Runs with distinct scores, which every tool ranks alike; each has some of the documents."""
    rng = np.random.default_rng(seed)
    runs = {}
    for run in range(n_runs):
        answers = {}
        for query in range(n_queries):
            kept = rng.permutation(n_documents)[: rng.integers(2, n_documents)]
            scores = rng.permutation(50)[: len(kept)] * rng.choice([0.5, 3.0]) + 0.25
            answers[f"q{query}"] = {f"d{document}": float(s) for document, s in zip(kept, scores, strict=True)}
        runs[f"run{run}"] = answers
    return runs


def as_dict(run):
    found = {}
    for qid, document, score in zip(run.qids.tolist(), run.document_ids.tolist(), run.scores.tolist(), strict=True):
        found.setdefault(qid, {})[document] = score
    return found


RANX = [
    ("rrf", None, "rrf", {"k": 60}),
    ("borda", None, "bordafuse", {}),
    *((m, n, r, {}) for m, r in (("combsum", "sum"), ("combmnz", "mnz"), ("combmax", "max"), ("combmin", "min"))
      for n in ("none", "min-max", "max", "sum", "z-score", "rank")),
    *(("weighted", n, "wsum", {"weights": (0.5, 0.2, 0.3)}) for n in ("min-max", "z-score")),
]  # fmt: skip
NAMES = {"none": None, "z-score": "zmuv"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("method", "normalization", "theirs", "parameters"), RANX)
def test_equal_to_ranx(method, normalization, theirs, parameters):
    ranx = pytest.importorskip("ranx", reason="ranx comes with the extra bench")
    for seed in range(3):
        runs = some_runs(seed)
        weights = parameters.get("weights")
        ours = as_dict(fuse(runs, method, normalization=normalization, weights=weights))
        their_runs = [ranx.Run(run, name=name) for name, run in runs.items()]
        fused = ranx.fuse(
            their_runs, norm=NAMES.get(normalization, normalization), method=theirs, params=parameters or None
        )
        expected = {q: dict(d) for q, d in fused.to_dict().items()}
        assert ours.keys() == expected.keys()
        for qid, scores in expected.items():
            assert ours[qid] == pytest.approx(scores, rel=1e-9, abs=1e-9)


def test_condorcet_is_the_order_of_majorities_where_there_is_one():
    """Against all pairs counted one by one; where one document beats every other, it comes first."""
    for seed in range(20):
        runs = some_runs(seed, n_queries=2, n_documents=6)
        fused = as_dict(fuse(runs, "condorcet"))
        for qid, scores in fused.items():
            ranks = [Run.from_source({qid: run[qid]}) for run in runs.values()]
            place = [dict(zip(r.document_ids.tolist(), r.ranks().tolist(), strict=True)) for r in ranks]
            wins = dict.fromkeys(scores, 0.0)
            for a, b in itertools.permutations(scores, 2):
                votes = sum(int(np.sign(p.get(b, 99) - p.get(a, 99))) for p in place)
                wins[a] += 1.0 if votes > 0 else 0.5 if votes == 0 else 0.0
            assert scores == wins
            champion = [a for a in scores if wins[a] == len(scores) - 1]
            if champion:
                assert max(scores, key=scores.get) == champion[0]


@given(st.integers(0, 10_000), st.sampled_from([m for m in METHODS if m not in ("learned", "weighted")]))
def test_the_order_of_the_runs_does_not_matter(seed, method):
    runs = some_runs(seed, n_queries=2)
    one, other = fuse(runs, method), fuse(dict(reversed(runs.items())), method)
    a, b = as_dict(one), as_dict(other)
    assert a.keys() == b.keys()
    for qid, scores in a.items():
        assert scores == pytest.approx(b[qid])


@given(st.integers(0, 10_000), st.floats(0.1, 50), st.floats(-20, 20))
def test_normalized_scores_do_not_see_scale_or_shift(seed, scale, shift):
    runs = some_runs(seed, n_runs=2, n_queries=2)
    moved = {n: {q: {d: scale * s + shift for d, s in of.items()} for q, of in run.items()} for n, run in runs.items()}
    for name in ("min-max", "sum", "z-score"):
        assert normalize(QueryRuns.from_runs(runs), name) == pytest.approx(
            normalize(QueryRuns.from_runs(moved), name), abs=1e-6
        )


def test_a_run_that_does_not_answer_a_query_has_no_say():
    runs = {"a": {"q1": {"x": 2.0, "y": 1.0}, "q2": {"x": 1.0}}, "b": {"q1": {"y": 5.0}}}
    for method in ("rrf", "combsum", "borda", "condorcet", "combmnz", "combmax", "combmin"):
        assert as_dict(fuse(runs, method))["q2"].keys() == {"x"}
    assert as_dict(fuse(runs))["q1"] == pytest.approx({"x": 1 / 61, "y": 1 / 62 + 1 / 61})
    assert fuse(runs, depth=1).document_ids.tolist() == ["y", "x", "x"]


def judged(seed, n_queries=60, n=20):
    """Two runs: one knows what is relevant, one is noise."""
    rng = np.random.default_rng(seed)
    qrels, good, bad = {}, {}, {}
    for query in range(n_queries):
        labels = rng.random(n) < 0.2
        labels[0] = True
        documents = [f"d{i}" for i in range(n)]
        qrels[f"q{query:02}"] = {d: int(label) for d, label in zip(documents, labels, strict=True)}
        good[f"q{query:02}"] = dict(zip(documents, (labels + rng.normal(0, 0.7, n)).tolist(), strict=True))
        bad[f"q{query:02}"] = dict(zip(documents, rng.normal(0, 1, n).tolist(), strict=True))
    return qrels, {"good": good, "bad": bad}


def test_weights_are_chosen_on_other_queries():
    qrels, runs = judged(0)
    fused = fuse(runs, "weighted", qrels=qrels)
    assert len(fused.weights) == 5
    assert all(weights[0] >= 0.8 for weights in fused.weights)
    # Judgments turned over in one fold change what the others are scored by, and not their own scores.
    query_runs, judgments = QueryRuns.from_runs(runs), Qrels.from_source(qrels)
    learning = FusionLearning("LambdaMART", "ndcg@10", 5)
    before = learned_weights(query_runs, judgments, "min-max", learning)
    data = tr.RankingData(np.zeros((len(query_runs.qids), 1)), qid=query_runs.qids)
    fold = next(iter(tr.folds(data, 5, seed=0)))
    mine = set(fold.test.qids.tolist())
    lied = {q: ({d: 1 - g for d, g in of.items()} if q in mine else of) for q, of in qrels.items()}
    after = learned_weights(query_runs, Qrels.from_source(lied), "min-max", learning)
    own = np.isin(query_runs.qids[query_runs.query], list(mine))
    assert np.array_equal(before.scores[own], after.scores[own])


def test_a_learned_fusion_is_scored_by_other_folds():
    qrels, runs = judged(1)
    fused = fuse(runs, "learned", qrels=qrels, ranker="LeastSquares")
    value = tr.evaluate_run(qrels, fused, "ndcg@10").mean["ndcg@10"]
    assert value > tr.evaluate_run(qrels, fuse(runs), "ndcg@10").mean["ndcg@10"]
    # Labels that mean nothing cannot be learned: whoever saw his own would be far above chance.
    rng = np.random.default_rng(5)
    shuffled = {q: dict(zip(of, rng.permutation(list(of.values())).tolist(), strict=True)) for q, of in qrels.items()}
    blind = tr.evaluate_run(shuffled, fuse(runs, "learned", qrels=shuffled, ranker="LambdaMART"), "ndcg@10")
    chance = tr.evaluate_run(shuffled, Run.from_source(runs["bad"]), "ndcg@10").mean["ndcg@10"]
    assert abs(blind.mean["ndcg@10"] - chance) < 0.12


def test_queries_without_judgments_are_answered_too():
    qrels, runs = judged(2)
    some = {qid: of for qid, of in qrels.items() if qid < "q40"}
    for method in ("weighted", "learned"):
        fused = fuse(runs, method, qrels=some, ranker="LeastSquares")
        assert len(np.unique(fused.qids)) == 60
        assert np.isfinite(fused.scores).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"method": "rff"}, "did you mean 'rrf'"),
        ({"method": "combsum", "normalization": "minmax"}, "did you mean 'min-max'"),
        ({"method": "rrf", "normalization": "max"}, "takes no normalization"),
        ({"method": "rrf", "weights": [1, 2, 3]}, "takes no weights"),
        ({"method": "weighted"}, "qrels="),
        ({"method": "learned"}, "qrels="),
        ({"method": "weighted", "qrels": {f"q{query}": {"d0": 0} for query in range(6)}}, "cannot distinguish rankers"),
        ({"method": "weighted", "qrels": {"q0": {"d0": 1}}, "folds": 5}, "in 5 folds needs at least 5"),
        ({"method": "rrf", "qrels": {"q": {"d": 1}}}, "'rrf' does not use judgments. Leave out qrels="),
        ({"method": "weighted", "weights": [1, 2, 3], "qrels": {"q": {"d": 1}}}, "Leave out qrels= or weights="),
        ({"method": "weighted", "weights": [1.0]}, "3 runs"),
        ({"method": "weighted", "weights": ["much", 1.0, 1.0]}, "3 runs"),
        ({"method": "weighted", "weights": 1.0}, "3 runs"),
        ({"method": "weighted", "weights": {"run9": 1.0}}, "run"),
        ({"method": "rrf", "rrf_k": 0}, "rrf_k"),
        ({"method": "rrf", "depth": 0}, "depth"),
    ],
)
def test_refusals(arguments, said):
    with pytest.raises((DataError, UnknownNameError), match=said):
        fuse(some_runs(0), **arguments)


def test_scores_below_0_have_no_largest_to_divide_by():
    """-5 / 1e-9 would outvote every other run."""
    below, above = {"p": {"x": 1.0, "y": -1.0}, "q": {"x": -5.0, "y": -6.0}}, {"q": {"x": 0.0, "y": 2.0}}
    with pytest.raises(DataError, match=r"run low has none for query q\. Use 'min-max'"):
        fuse({"high": above, "low": below}, "combsum", normalization="max")
    zeros = fuse({"high": above, "low": {"q": {"z": 0.0}}}, "combsum", normalization="max")
    assert as_dict(zeros) == {"q": {"x": 0.0, "y": 1.0, "z": 0.0}}


@pytest.mark.parametrize(
    ("run", "said"),
    [({}, "no scores"), ({"q": {"x": float("nan")}}, "is nan"), ([1], "not list")],
)
def test_a_run_that_is_none_is_named(run, said):
    with pytest.raises(DataError, match=f"The run dense: .*{said}"):
        fuse({"bm25": {"q": {"x": 1.0}}, "dense": run})


def test_one_run_is_no_fusion_and_names_are_listed():
    with pytest.raises(DataError, match="at least two"):
        fuse({"a": {"q": {"x": 1.0}}})
    assert set(NORMALIZATIONS) == {"none", "min-max", "max", "sum", "z-score", "rank"}
    assert tr.fuse is fuse
