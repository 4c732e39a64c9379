"""The trec_eval convention against trec_eval's own expected outputs, and against pytrec_eval on random runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

import toprank as tr
from support import shared_data
from toprank.errors import DataError

PLAIN = ["map", "Rprec", "recip_rank", "ndcg"]
CUTS = {
    "P": [5, 10, 15, 20, 30, 100, 200, 500, 1000],
    "recall": [5, 10, 15, 20, 30, 100, 200, 500, 1000],
    "ndcg_cut": [5, 10, 15, 20, 30, 100, 200, 500, 1000],
    "map_cut": [5, 10, 15, 20, 30, 100, 200, 500, 1000],
    "success": [1, 5, 10],
}
NAMES = PLAIN + [f"{name}_{k}" for name, cuts in CUTS.items() for k in cuts]


def expected_output(path):
    """{(query or 'all', measure): value} as trec_eval printed it."""
    rows = (line.split() for line in path.read_text().splitlines())
    return {(query, name): value for name, query, value in (row for row in rows if len(row) == 3) if name != "runid"}


@pytest.mark.parametrize(
    ("output", "qrels", "run", "options"),
    [
        ("out.test", "qrels.test", "results.test", {}),
        ("out.test.a", "qrels.test", "results.test", {}),
        ("out.test.aq", "qrels.test", "results.test", {}),
        ("out.test.aqc", "qrels.test", "results.trunc", {"complete": True}),
        ("out.test.aqcM", "qrels.test", "results.trunc", {"complete": True, "max_documents": 100}),
        ("out.test.aql", "qrels.rel_level", "results.test", {"min_relevance": 2}),
    ],
)
def test_trec_evals_own_expected_outputs(output, qrels, run, options):
    folder = shared_data("oracle", "trec_eval-test")
    wanted = expected_output(folder / output)
    result = tr.evaluate_run(tr.read_qrels(folder / qrels), tr.read_run(folder / run), NAMES, **options)
    checked = 0
    for name in NAMES:
        values = {"all": result.mean[name], **dict(zip(result.qids.tolist(), result.per_query[name], strict=True))}
        for query, value in values.items():
            if (query, name) in wanted:
                assert f"{value:.4f}" == wanted[query, name], (query, name)
                checked += 1
    assert checked >= (12 if output == "out.test" else 40)


def random_run(seed, n_queries=8):
    """Judgments with unretrieved and unjudged documents, and a run full of tied scores."""
    rng = np.random.default_rng(seed)
    qrels, run = {}, {}
    for q in range(n_queries):
        names = [f"d{i}" for i in rng.permutation(60)]
        judged = rng.choice(names, 30, replace=False)
        qrels[f"q{q}"] = {name: int(grade) for name, grade in zip(judged, rng.integers(-1, 4, 30), strict=True)}
        retrieved = rng.choice(names, int(rng.integers(1, 50)), replace=False)
        scores = rng.integers(0, 6, len(retrieved)) / 8 + rng.choice([0, 1e-9], len(retrieved))
        run[f"q{q}"] = {name: float(score) for name, score in zip(retrieved, scores, strict=True)}
    return qrels, run


@pytest.mark.parametrize("seed", range(12))
def test_pytrec_eval_on_random_runs_with_ties(seed):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    qrels, run = random_run(seed)
    wanted_names = {"map", "Rprec", "recip_rank", "ndcg", "P", "recall", "ndcg_cut", "map_cut", "success"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, wanted_names).evaluate(run)
    ours = tr.evaluate_run(qrels, run, NAMES)
    for q, qid in enumerate(ours.qids.tolist()):
        for name in NAMES:
            assert ours.per_query[name][q] == pytest.approx(theirs[qid][name], abs=1e-9), (qid, name)


def test_evaluate_with_document_ids_agrees_with_evaluate_run():
    qrels, run = random_run(99)
    everything = {q: {d: max(grade, 0) for d, grade in docs.items()} for q, docs in qrels.items()}
    scores = {q: {d: run[q].get(d, -1.0) for d in docs} for q, docs in everything.items()}
    names = ["ndcg@10", "map", "mrr"]
    by_run = tr.evaluate_run(everything, scores, names)
    rows = [(q, d, grade, scores[q][d]) for q in sorted(everything) for d, grade in everything[q].items()]
    qid, docs, labels, values = zip(*rows, strict=True)
    data = tr.RankingData(np.zeros((len(rows), 0)), labels, qid=qid, document_ids=docs)
    by_array = tr.evaluate(values, data, names, convention="trec_eval")
    for name in names:
        np.testing.assert_allclose(by_run.per_query[name], by_array.per_query[name], atol=1e-12)


def test_missing_queries_and_unjudged_documents():
    qrels = {"a": {"x": 1}, "b": {"y": 1}}
    run = {"a": {"u": 2.0, "x": 1.0}, "c": {"z": 1.0}}
    assert tr.evaluate_run(qrels, run, "rr").mean["rr"] == 1 / 2
    assert tr.evaluate_run(qrels, run, "rr", complete=True).mean["rr"] == (1 / 2 + 0) / 2
    assert tr.evaluate_run(qrels, run, "rr", condense=True).mean["rr"] == 1.0
    with pytest.raises(DataError, match="No query of the run has judgments"):
        tr.evaluate_run(qrels, {"c": {"z": 1.0}}, "rr")
    with pytest.raises(DataError, match="max_documents"):
        tr.evaluate_run(qrels, run, "rr", max_documents=0)


def test_a_run_under_the_other_conventions_counts_what_it_missed():
    qrels = {"a": {"x": 2, "y": 1, "z": 0}}
    run = {"a": {"y": 1.0, "z": 0.5}}
    ideal = 3 / math.log2(2) + 1 / math.log2(3)
    assert tr.evaluate_run(qrels, run, "ndcg", convention="standard").mean["ndcg"] == pytest.approx(1 / ideal)
    assert tr.evaluate_run(qrels, run, "recall", convention="standard").mean["recall"] == 1 / 2


def test_the_largest_grade_is_that_of_the_judgments_not_of_the_run():
    qrels = {"q1": {"a": 1, "b": 0}, "q2": {"c": 3}}
    alone = tr.evaluate_run(qrels, {"q1": {"a": 1.0, "b": 0.5}}, "err").per_query["err"][0]
    both = tr.evaluate_run(qrels, {"q1": {"a": 1.0, "b": 0.5}, "q2": {"c": 1.0}}, "err").per_query["err"][0]
    assert alone == both == (2**1 - 1) / 2**3


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"min_relevance": math.nan}, "min_relevance must be a finite number, not nan"),
        ({"max_grade": -1.0}, "max_grade must be a positive number, not -1"),
    ],
)
def test_grades_that_bound_nothing_are_refused_for_scores_and_for_runs(bounds, message):
    with pytest.raises(DataError, match=message):
        tr.evaluate_run({"q": {"a": 1}}, {"q": {"a": 1.0}}, "map", **bounds)
    with pytest.raises(DataError, match=message):
        tr.evaluate([1.0], [1], "map", qid=[7], **bounds)


def test_scores_beyond_single_precision_are_infinite_as_in_trec_eval():
    qrels = {"q": {"a": 1, "b": 0}}
    assert tr.evaluate_run(qrels, {"q": {"a": 1e39, "b": 1.0}}, "rr").mean["rr"] == 1.0
    assert tr.evaluate_run(qrels, {"q": {"a": 1e39, "b": 1e40}}, "rr").mean["rr"] == 0.5  # tied: b stands first


def test_grade_minus_one_is_not_judged_where_lists_are_condensed():
    qrels, run = {"q": {"a": -1, "b": 1, "c": 0}}, {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    assert tr.evaluate_run(qrels, run, "map").mean["map"] == 1 / 2
    assert tr.evaluate_run(qrels, run, "map", condense=True).mean["map"] == 1.0
