"""Under `standard` a metric is its mean over the orders of tied documents: checked by enumerating those orders."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain_metrics as plain
import toprank.evaluation as te
import toprank.metrics as tm
from strategies import lists, rankings
from toprank import kernels
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.metrics.sorting import rank_block

CASES = {
    "dcg": plain.dcg,
    "dcg@3": lambda y: plain.dcg(y, 3),
    "ndcg": plain.ndcg,
    "ndcg@1": lambda y: plain.ndcg(y, 1),
    "ndcg@3": lambda y: plain.ndcg(y, 3),
    "ndcg@3(gain=linear)": lambda y: plain.ndcg(y, 3, gain=lambda label: label),
    "ndcg@4(gain=[0,1,1,7,8])": lambda y: plain.ndcg(y, 4, gain=lambda label: [0, 1, 1, 7, 8][int(label)]),
    "dcg@4(discount=reciprocal)": lambda y: plain.dcg(y, 4, discount=lambda rank: rank),
    "dcg(discount=zipf(1.5))": lambda y: plain.dcg(y, discount=lambda rank: rank**1.5),
    "avgndcg": plain.average_ndcg,
    "avgndcg@3": lambda y: plain.average_ndcg(y, 3),
    "meanndcg": lambda y: plain.average_ndcg(y, None),
    "err": plain.err,
    "err@1": lambda y: plain.err(y, 1),
    "err@3": lambda y: plain.err(y, 3),
    "approxerr@3": lambda y: plain.approx_err(y, 3),
    "approxerr(beta=1.5)": lambda y: plain.approx_err(y, beta=1.5),
    "rbp": plain.rbp,
    "rbp(p=0.5,rel=2)": lambda y: plain.rbp([float(label >= 2) for label in y], p=0.5, max_grade=1.0),
    "ap": plain.ap,
    "ap@3": lambda y: plain.ap(y, 3),
    "ap@2(norm=hits)": lambda y: plain.ap(y, 2, "hits"),
    "ap@3(norm=hits)": lambda y: plain.ap(y, 3, "hits"),
    "ap@2(norm=min)": lambda y: plain.ap(y, 2, "min"),
    "ap(rel=2)": lambda y: plain.ap(y, rel=2),
    "rr": plain.rr,
    "rr@2": lambda y: plain.rr(y, 2),
    "p@2": lambda y: plain.precision(y, 2),
    "p@5": lambda y: plain.precision(y, 5),
    "p": lambda y: plain.precision(y, len(y)),
    "recall@2": lambda y: plain.recall(y, 2),
    "recall": plain.recall,
    "success@1": lambda y: plain.success(y, 1),
    "success@3": lambda y: plain.success(y, 3),
    "rprec": plain.r_precision,
    "t": plain.t_criterion,
}


@given(problem=rankings())
@settings(max_examples=150, deadline=None)
def test_metrics_equal_the_mean_over_tied_orders(problem):
    scores, data = problem
    result = te.evaluate(scores, data, list(CASES), max_grade=4)
    for name, metric in CASES.items():
        wanted = [plain.expected(metric, s, y) for s, y in lists(scores, data)]
        np.testing.assert_allclose(result.per_query[name], wanted, rtol=1e-12, atol=1e-13, err_msg=name)


@given(problem=rankings(max_documents=12), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_the_order_of_rows_never_leaks_into_a_number(problem, seed):
    scores, data = problem
    rng = np.random.default_rng(seed)
    shuffle = np.concatenate([rng.permutation(np.arange(rows.start, rows.stop)) for rows in data.queries])
    shuffled = RankingData(data.X, data.labels[shuffle], queries=data.queries)
    names = [*CASES, "pairacc", "tau", "rho", "owa", "owa(weights=top)"]
    here, there = te.evaluate(scores, data, names), te.evaluate(scores[shuffle], shuffled, names)
    for name in names:
        np.testing.assert_allclose(here.per_query[name], there.per_query[name], rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("m", [2, 7, 32, 33, 64, 65, 128, 129, 192, 193, 254, 255, 256, 257, 300, 2500])
@pytest.mark.parametrize(
    "spread",
    ["even", "normal", "heaped", "clustered", "tied", "infinite", "huge", "zeros", "neighbors", "below", "tiny"],
)
def test_long_lists_rank_like_a_stable_sort(m, spread):
    rng = np.random.default_rng(m)
    scores = {
        "even": rng.uniform(size=m),
        "normal": rng.normal(size=m),
        "heaped": rng.integers(0, max(m // 20, 1), m) + rng.integers(0, 30, m) * 1e-7,  # full buckets, some ties
        "clustered": np.append(rng.normal(size=m - 1) * 1e-9, 1e6),
        "tied": rng.integers(0, 3, m).astype(float),
        "infinite": np.where(rng.uniform(size=m) < 0.3, -np.inf, rng.normal(size=m)),
        "huge": rng.uniform(-1, 1, m) * 1.7e308,
        "zeros": rng.choice([0.0, -0.0, 1.0, -1.0], m),
        "neighbors": 1 + rng.integers(0, 1000, m) * 2.0**-52,  # apart in the last bits alone
        "below": -1 - rng.integers(0, 1000, m) * 2.0**-52,
        "tiny": rng.integers(-1000, 1000, m) * 2.0**-1074,
    }[spread]
    wanted = np.argsort(-scores, kind="stable")
    for depth in (None, 1, 5, 10, 20, 64, 65, 100):
        order = tm.ranking(scores, Queries([0, m]), depth).order
        np.testing.assert_array_equal(order, wanted[: len(order)])
        assert len(order) >= min(depth or m, m)


@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0, 2.5, -np.inf, np.inf]), min_size=1, max_size=90), st.integers(1, 70)
)
@settings(deadline=None)
def test_a_cut_ranking_holds_its_last_tied_group_whole(scores, depth):
    values, m = np.array(scores), len(scores)
    ranked = rank_block(values, np.array([0, m]), (0, 1), depth, keep_ties=True)
    wanted = np.argsort(-values, kind="stable")
    n = int((values >= values[wanted[min(depth, m) - 1]]).sum())
    assert ranked.starts.tolist() == [0, n]
    assert ranked.order[:n].tolist() == wanted[:n].tolist()
    in_order = values[wanted]
    assert ranked.ends[:n].tolist() == [i + 1 == n or in_order[i] != in_order[i + 1] for i in range(n)]


@pytest.mark.parametrize("depth", [None, 1, 10, 65])
@pytest.mark.parametrize("place", [0, 41, 499])
def test_a_score_that_is_no_number_is_named_wherever_it_stands(depth, place):
    scores = np.random.default_rng(3).normal(size=500)
    scores[place] = np.nan
    with pytest.raises(DataError, match=rf"document {place} \(from 0; query number {place // 100}\) is NaN"):
        tm.ranking(scores, Queries.from_sizes([100] * 5), depth)


@pytest.mark.parametrize("n_grades", [2, 5, 8, 9, 40])
def test_long_queries_are_counted_in_full(n_grades):
    rng = np.random.default_rng(n_grades)
    labels, scores = rng.integers(0, n_grades, 3000).astype(float), rng.normal(size=3000)
    found = te.evaluate(scores, labels, ["ndcg@1000(gain=linear)", "recall@700"], qid=np.zeros(3000)).mean
    by_score = labels[np.argsort(-scores)]
    discounts = np.log2(np.arange(2, 1002))
    ideal = (np.sort(labels)[::-1][:1000] / discounts).sum()
    assert found["ndcg@1000(gain=linear)"] == pytest.approx((by_score[:1000] / discounts).sum() / ideal, rel=1e-12)
    assert found["recall@700"] == pytest.approx((by_score[:700] >= 1).sum() / (labels >= 1).sum(), rel=1e-15)


def test_many_distinct_real_grades_use_the_same_formulas():
    rng = np.random.default_rng(0)
    labels, scores = rng.uniform(0, 3, 700), rng.integers(0, 5, 700).astype(float)
    result = te.evaluate(scores, labels, ["ndcg@5", "avgndcg", "err"], qid=np.repeat([0, 1], 350), max_grade=3)
    for q, rows in enumerate((slice(0, 350), slice(350, 700))):
        top = [labels[rows][scores[rows] == value] for value in range(4, -1, -1)]
        means = np.concatenate([np.full(len(group), np.mean(2**group - 1)) for group in top])
        ideal = np.sort(2 ** labels[rows] - 1)[::-1]
        discounts = np.log2(np.arange(2, 352))
        at = np.cumsum(means / discounts) / np.cumsum(ideal / discounts)
        assert result.per_query["ndcg@5"][q] == pytest.approx(at[4], rel=1e-12)
        assert result.per_query["avgndcg"][q] == pytest.approx(at[:10].mean(), rel=1e-12)


def test_err_of_a_large_tied_group_equals_its_sampled_mean():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 5, 60).astype(float)
    exact = te.evaluate(np.zeros(60), labels, "err", max_grade=4).mean["err"]
    sampled = np.array([plain.err(rng.permutation(labels).tolist()) for _ in range(4000)])
    assert abs(exact - sampled.mean()) < 5 * sampled.std() / math.sqrt(4000)


def test_results_are_the_same_bits_on_any_number_of_threads():
    rng = np.random.default_rng(2)
    queries = Queries.from_sizes(rng.integers(1, 900, 1500))
    data = RankingData(np.zeros((queries.n_documents, 0)), rng.integers(0, 5, queries.n_documents), queries=queries)
    scores = rng.integers(0, 200, queries.n_documents).astype(float)
    names = ["ndcg@10", "map", "err", "tau", "avgndcg"]
    one, two = (te.evaluate(scores, data, names, threads=threads) for threads in (1, 3))
    for name in names:
        assert one.per_query[name].tobytes() == two.per_query[name].tobytes()


def test_results_are_the_same_bits_with_every_set_of_instructions(monkeypatch):
    rng = np.random.default_rng(4)
    queries = Queries.from_sizes(rng.integers(1, 400, 120))
    n = queries.n_documents
    scores = {"distinct": rng.normal(size=n), "tied": rng.integers(0, 40, n).astype(float)}
    labels = {"few": rng.integers(0, 5, n), "many": rng.uniform(0, 4, n)}
    names = [*CASES, "tau", "rho", "pairacc", "owa", "owa(weights=exp)"]

    def values():
        for y in labels.values():
            data = RankingData(np.zeros((n, 0)), y, queries=queries)
            for s in scores.values():
                found = te.evaluate(s, data, [name for name in names if "gain=[" not in name], max_grade=4.0)
                yield from (found.per_query[name].tobytes() for name in found.names)

    best, library = list(values()), kernels.library()
    for variant in library.variants[: library.variants.index(library.machine) + 1]:
        other = kernels.KernelLibrary(Path(library.path), variant)
        for name in {kernel.name.split("__")[0] for kernel in other.kernels()}:
            monkeypatch.setattr(kernels, name, other.get(name), raising=False)
        assert list(values()) == best, variant


def test_a_constant_ranking_is_worth_its_random_order():
    labels = [2, 0, 0, 1]
    gains = [3, 0, 0, 1]
    discounts = [1 / math.log2(1 + j) for j in range(1, 5)]
    ideal = 3 * discounts[0] + 1 * discounts[1]
    wanted = sum(gains) / 4 * sum(discounts) / ideal
    assert te.evaluate(np.zeros(4), labels, "ndcg").mean["ndcg"] == pytest.approx(wanted, rel=1e-14)


def test_err_of_a_huge_tied_list_takes_no_time():
    labels = np.zeros(20_000)
    labels[7] = 2.0
    value = te.evaluate(np.zeros(20_000), labels, "err", qid=np.zeros(20_000), max_grade=2).mean["err"]
    stop = 3 / 4
    assert value == pytest.approx(stop * np.mean(1 / np.arange(1, 20_001)), rel=1e-12)


def test_scores_of_the_wrong_length_never_reach_a_kernel():
    with pytest.raises(DataError, match="5 scores for 60 documents"):
        tm.ranking(np.ones(5), Queries([0, 30, 60]))
    with pytest.raises(DataError, match="at least 1"):
        tm.ranking(np.ones(60), Queries([0, 30, 60]), 0)
