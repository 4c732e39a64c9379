"""Each convention equals the tool it is named after, or a case computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

import plain_metrics as plain
import toprank.evaluation as te
import toprank.metrics as tm
from strategies import lists, rankings
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError


def random_problem(seed, n_queries=60, max_grade=4, ties=True, longest=30):
    """Scores that float32 holds exactly, since the other tools round to it."""
    rng = np.random.default_rng(seed)
    queries = Queries.from_sizes(rng.integers(1, longest, n_queries))
    labels = rng.integers(0, max_grade + 1, queries.n_documents) * (rng.uniform(size=queries.n_documents) < 0.4)
    scores = rng.integers(0, 12 if ties else 1 << 20, queries.n_documents) / 4.0
    return scores, RankingData(np.zeros((queries.n_documents, 1)), labels, queries=queries)


@pytest.mark.parametrize("k", [1, 3, 10, 100])
@pytest.mark.parametrize("seed", [0, 1])
def test_lightgbm_equals_lightgbm(k, seed):
    lightgbm = pytest.importorskip("lightgbm")
    scores, data = random_problem(seed)
    X = np.random.default_rng(seed).normal(size=(data.n_documents, 2))
    for metric, ours in (("ndcg", f"ndcg@{k}"), ("map", f"map@{k}")):
        train = lightgbm.Dataset(X, data.labels, group=data.queries.sizes, init_score=scores)
        options = {"objective": "lambdarank", "metric": metric, "eval_at": [k], "verbose": -1, "num_threads": 1}
        [(_, _, theirs, _)] = lightgbm.Booster(options, train).eval_train()
        mine = te.evaluate(scores, data, ours, convention="lightgbm").mean[ours]
        assert mine == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("name", ["ndcg@1", "ndcg@5", "ndcg@5-", "ndcg@100", "map@3", "map@10", "map@10-", "pre@5"])
@pytest.mark.parametrize("seed", [0, 1])
def test_xgboost_equals_xgboost(name, seed):
    xgboost = pytest.importorskip("xgboost")
    scores, data = random_problem(seed, max_grade=4 if name.startswith("ndcg") else 1)
    matrix = xgboost.DMatrix(np.zeros((data.n_documents, 1)), data.labels, base_margin=scores)
    matrix.set_group(data.queries.sizes)
    options = {"objective": "rank:ndcg" if "ndcg" in name else "rank:map", "eval_metric": name, "nthread": 1}
    booster = xgboost.Booster(options, [matrix])
    theirs = float(booster.eval(matrix).rsplit(":", 1)[1])
    mine = te.evaluate(scores, data, name, convention="xgboost").mean[name]
    assert mine == pytest.approx(theirs, abs=2e-6)


@given(problem=rankings(max_documents=8))
@settings(max_examples=50, deadline=None)
def test_sklearn_equals_ndcg_score(problem):
    sklearn = pytest.importorskip("sklearn.metrics")
    scores, data = problem
    for k in (1, 3, None):
        name = "ndcg" if k is None else f"ndcg@{k}"
        mine = te.evaluate(scores, data, name, convention="sklearn").per_query[name]
        for value, (s, y) in zip(mine, lists(scores, data), strict=True):
            if len(y) > 1:
                assert value == pytest.approx(sklearn.ndcg_score([y], [s], k=k), abs=1e-12)


def test_letor_scripts_by_hand():
    # Labels in file order 0 2 1 with scores that leave the order 2 1 0; discounts are 1, 1, log2 3.
    data = RankingData(np.zeros((3, 0)), [0, 2, 1], qid=[1, 1, 1])
    scores = [0.0, 2.0, 1.0]
    for name in ("letor3", "letor4", "letor-clipped"):
        result = te.evaluate(scores, data, ["dcg@3", "ndcg@3", "map"], convention=name)
        assert result.mean["dcg@3"] == pytest.approx(3 + 1 + 0)
        assert result.mean["ndcg@3"] == 1.0
        assert result.mean["map"] == 1.0
    worst = te.evaluate([2.0, 0.0, 1.0], data, "ndcg@3", convention="letor4").mean["ndcg@3"]
    assert worst == pytest.approx((0 + 1 + 3 / math.log2(3)) / (3 + 1))


def test_letor_beyond_the_list():
    data = RankingData(np.zeros((2, 0)), [1, 0], qid=[1, 1])
    names = ["ndcg@2", "ndcg@3", "p@2", "p@4", "map", "avgndcg", "meanndcg"]
    values = {c: te.evaluate([1.0, 0.0], data, names, convention=c).mean for c in ("letor3", "letor4", "letor-clipped")}
    for convention in values:
        assert values[convention]["ndcg@2"] == 1.0
        assert values[convention]["p@2"] == 0.5
        assert values[convention]["map"] == 1.0
        assert values[convention]["meanndcg"] == 1.0
    assert values["letor3"]["ndcg@3"] == values["letor4"]["ndcg@3"] == 0.0
    assert values["letor-clipped"]["ndcg@3"] == 1.0
    assert values["letor3"]["p@4"] == 0.0
    assert values["letor4"]["p@4"] == values["letor-clipped"]["p@4"] == 1 / 4
    assert values["letor4"]["avgndcg"] == pytest.approx(2 / 10)
    assert values["letor-clipped"]["avgndcg"] == 1.0


@given(problem=rankings(max_documents=8))
@settings(max_examples=50, deadline=None)
def test_file_order_conventions_take_ties_as_they_stand(problem):
    scores, data = problem
    result = te.evaluate(scores, data, ["ndcg@5", "map", "mrr"], convention="letor-clipped")
    for q, (s, y) in enumerate(lists(scores, data)):
        ordered = plain.in_file_order(s, y)
        wanted = plain.ndcg(ordered, 5, discount=plain.letor_discount)
        assert result.per_query["ndcg@5"][q] == pytest.approx(wanted, abs=1e-12)
        assert result.per_query["map"][q] == pytest.approx(plain.ap(ordered), abs=1e-12)
        assert result.per_query["mrr"][q] == pytest.approx(plain.rr(ordered), abs=1e-12)


def test_blank_queries_under_each_rule():
    data = RankingData(np.zeros((3, 0)), [0, 0, 1], qid=[1, 1, 2])
    names = ["ndcg@10", "map", "dcg", "mrr", "p@1", "recall@1", "err"]
    standard = te.evaluate(np.zeros(3), data, names).per_query
    one = te.evaluate(np.zeros(3), data, names, convention="lightgbm").per_query
    skip = te.evaluate(np.zeros(3), data, names, convention="skip-blank")
    for name in names:
        assert standard[name][0] == 0.0
        assert one[name][0] == (1.0 if name in ("ndcg@10", "map", "recall@1") else 0.0)
        assert math.isnan(skip.per_query[name][0])
        assert skip.n_evaluated[name] == 1
        assert skip.mean[name] == skip.per_query[name][1]


def test_conventions_by_name():
    assert tm.Convention.from_name("LETOR_CLIPPED").name == "letor-clipped"
    assert tm.Convention.from_name("trec-eval").name == tm.Convention.from_name("trec_eval").name == "trec_eval"
    assert tm.Convention.from_name("qin2021") == tm.Convention.from_name("skip_blank")
    with pytest.raises(UnknownNameError, match="did you mean 'letor4'"):
        tm.Convention.from_name("lettor4")


def test_unjudged_documents():
    data = RankingData(np.zeros((5, 0)), [-1, 1, 0, np.nan, 1], qid=[1, 1, 1, 2, 2])
    scores = [5.0, 4.0, 3.0, 2.0, 1.0]
    with pytest.raises(DataError, match="2 of 5 documents are not judged"):
        te.evaluate(scores, data, "mrr")
    with pytest.raises(UnknownNameError):
        te.evaluate(scores, data, "mrr", unjudged="condemn")
    assert te.evaluate(scores, data, "mrr", unjudged="irrelevant").per_query["mrr"].tolist() == [1 / 2, 1 / 2]
    assert te.evaluate(scores, data, "mrr", unjudged="condense").per_query["mrr"].tolist() == [1, 1]
    with pytest.raises(DataError, match="Every query has unjudged"):
        te.evaluate(scores, data, "mrr", unjudged="drop")
    whole = RankingData(np.zeros((3, 0)), [-1, 1, 1], qid=["a", "b", "b"])
    dropped = te.evaluate(scores[:3], whole, "mrr", unjudged="drop")
    assert dropped.qids.tolist() == ["b"]


def test_bad_input_is_a_sentence():
    data = RankingData(np.zeros((2, 0)), [0, 1], qid=[1, 1])
    with pytest.raises(DataError, match="3 scores for 2 documents"):
        te.evaluate([1, 2, 3], data)
    with pytest.raises(DataError, match=r"score of document 1 .*NaN"):
        te.evaluate([1.0, np.nan], data)
    with pytest.raises(DataError, match=r"score of document 1 .*NaN"):
        te.evaluate([1.0, np.nan], data, "ndcg@1")
    with pytest.raises(UnknownNameError, match="did you mean 'ndcg@10'"):
        te.evaluate([1.0, 2.0], data, "ncdg@10")
    with pytest.raises(DataError, match="ids"):
        te.evaluate([1.0, 2.0], data, convention="trec_eval")
    with pytest.raises(DataError, match="max_grade"):
        te.evaluate([1.0, 2.0], data, "err(max_grade=0.5)")
    with pytest.raises(DataError, match="negative"):
        te.evaluate([1.0, 2.0], RankingData(np.zeros((2, 0)), [-2, 1], qid=[1, 1]), "ndcg")
    with pytest.raises(
        DataError, match=r"no closed form for ties and a query has .* \(labels \[\d\. \d\.\] at one score\)"
    ):
        te.evaluate([1.0, 1.0], data, tm.Custom("own", max))


@pytest.mark.parametrize("convention", ["standard", "letor4"])
@pytest.mark.parametrize("k", [1, 5, 64, 65, None])
def test_custom_measures_look_at_ranked_documents_alone(convention, k):
    """Lists longer than the cut-off: what lies behind it was never ranked."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 200, 40)
    labels, scores = rng.integers(0, 3, sizes.sum()), rng.permutation(sizes.sum()).astype(float)
    data = RankingData(np.zeros((sizes.sum(), 0)), labels, qid=np.repeat(np.arange(40), sizes))
    own = tm.Custom("own", lambda labels: float(labels @ np.arange(1, len(labels) + 1)), k=k)
    found = te.evaluate(scores, data, [own], convention=convention).per_query[str(own)]
    starts = np.cumsum(sizes) - sizes
    for value, start, size in zip(found, starts, sizes, strict=True):
        of = slice(start, start + size)
        best = labels[of][np.argsort(-scores[of])][:k]
        assert value == best @ np.arange(1, len(best) + 1)


def test_a_tie_that_a_custom_measure_cannot_see_is_none():
    first = tm.Custom("first", lambda labels: float(labels[0]), k=1)
    labels, qid = [2, 0, 1, 1, 1, 0], [1, 1, 1, 2, 2, 2]
    data = RankingData(np.zeros((6, 0)), labels, qid=qid)
    alike_or_below = [3.0, 1.0, 1.0, 2.0, 2.0, 0.0]
    assert te.evaluate(alike_or_below, data, [first]).per_query["first@1"].tolist() == [2, 1]
    with pytest.raises(DataError, match=r"2 queries have .* \(labels \[2\. 1\.\] at one score\)"):
        te.evaluate([3.0, 1.0, 3.0, 2.0, 1.0, 2.0], data, [first])


def test_custom_measures_where_ties_are_ordered():
    data = RankingData(np.zeros((4, 0)), [0, 1, 1, 0], qid=[1, 1, 2, 2])
    top = tm.Custom("top", lambda labels: labels[0])
    result = te.evaluate([1.0, 1.0, 2.0, 1.0], data, [top], convention="letor4")
    assert result.per_query["top"].tolist() == [0.0, 1.0]


def test_a_custom_measure_says_none_to_leave_a_query_out():
    data = RankingData(np.zeros((4, 0)), [0, 1, 0, 0], qid=[1, 1, 2, 2])
    top = tm.Custom("top", lambda labels: labels[0] if labels.any() else None)
    result = te.evaluate([1.0, 2.0, 2.0, 1.0], data, [top], convention="letor4")
    assert result.mean["top"] == 1.0
    assert result.n_evaluated["top"] == 1


@pytest.mark.parametrize(("value", "shown"), [(float("nan"), "nan"), (float("inf"), "inf"), ("x", "'x'")])
def test_a_custom_measure_must_give_a_number(value, shown):
    data = RankingData(np.zeros((2, 0)), [0, 1], qid=[1, 1])
    with pytest.raises(DataError, match=rf"'own' returns {shown} for a query with the labels \[1\. 0\.\]"):
        te.evaluate([1.0, 2.0], data, [tm.Custom("own", lambda labels: value)], convention="letor4")


@pytest.mark.parametrize(("queries", "words"), [(1, "1 query)"), (2, "2 queries)")])
def test_an_evaluation_counts_its_queries(queries, words):
    assert repr(te.evaluate(np.zeros(queries), np.ones(queries), qid=np.arange(queries))).endswith(words)


def test_weighted_mean_and_scattered_rows():
    scores, labels = [2.0, 1.0, 1.0, 2.0], [1, 0, 1, 0]
    grouped = te.evaluate(scores, labels, "mrr", qid=[1, 1, 2, 2])
    scattered = te.evaluate([2.0, 1.0, 1.0, 2.0], [1, 1, 0, 0], "mrr", qid=[1, 2, 1, 2])
    assert grouped.per_query["mrr"].tolist() == scattered.per_query["mrr"].tolist() == [1.0, 0.5]
    data = RankingData(np.zeros((4, 0)), labels, qid=[1, 1, 2, 2], query_weights=[3, 1])
    assert te.evaluate(scores, data, "mrr", weighted=True).mean["mrr"] == (3 * 1.0 + 1 * 0.5) / 4


def test_every_convention_side_by_side():
    scores, data = random_problem(3)
    results = te.evaluate_all_conventions(scores, data, ["ndcg@10"])
    assert list(results) == list(tm.CONVENTIONS)
    assert isinstance(results["trec_eval"], str)  # no document ids: the reason instead of a number
    assert isinstance(results["standard"], te.Evaluation)
