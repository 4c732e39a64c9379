"""LambdaRank and LambdaLoss against formulas written pair by pair, recomputed metrics, and LightGBM itself."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain_metrics as plain
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError
from toprank.losses.base import Requested
from toprank.losses.lambdas import LambdaLoss, LambdaRank

METRICS = {
    "ndcg": plain.ndcg,
    "ndcg@3": lambda labels: plain.ndcg(labels, 3),
    "dcg(gain=linear)": lambda labels: plain.dcg(labels, gain=lambda y: y),
    "ndcg(discount=letor)": lambda labels: plain.ndcg(labels, discount=plain.letor_discount),
    "map": plain.ap,
    "map@3": lambda labels: plain.ap(labels, 3),
    "map@2(norm=min,rel=2)": lambda labels: plain.ap(labels, 2, "min", rel=2),
    "mrr": plain.rr,
    "mrr@2": lambda labels: plain.rr(labels, 2),
    "err(max_grade=4)": plain.err,
    "err@3(max_grade=4)": lambda labels: plain.err(labels, 3),
}
TIED_ORDERS = ("ndcg", "ndcg@3", "dcg(gain=linear)", "ndcg(discount=letor)")

grades = st.lists(st.integers(0, 4), min_size=2, max_size=7)
seeds = st.integers(0, 2**32 - 1)


def orders_of(scores):
    """Every ranking that sorts the scores downwards."""
    groups = [[i for i, s in enumerate(scores) if s == value] for value in sorted(set(scores), reverse=True)]
    for parts in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield [i for part in parts for i in part]


def swapped(order, i, j):
    return [{i: j, j: i}.get(document, document) for document in order]


def deltas_of(metric, labels, order, truncation=None):
    """|ΔZ| of every pair with different labels, by exchanging the two and computing the metric again."""
    rank = {document: r for r, document in enumerate(order, start=1)}
    before = metric([labels[i] for i in order])
    return {
        (i, j): abs(metric([labels[k] for k in swapped(order, i, j)]) - before)
        for i, j in itertools.permutations(range(len(labels)), 2)
        if labels[i] > labels[j] and min(rank[i], rank[j]) <= (truncation or len(labels))
    }


def mean_deltas(metric, labels, orders, truncation=None):
    orders, total = list(orders), {}
    for order in orders:
        for pair, delta in deltas_of(metric, labels, order, truncation).items():
            total[pair] = total.get(pair, 0.0) + delta / len(orders)
    return total


def pair_sums(scores, weights, sigma=1.0):
    """Value, gradient and curvature matrix of Σ weight·log(1 + e^{−σ(s_i − s_j)}) over the pairs (i, j)."""
    value, grad, matrix = 0.0, np.zeros(len(scores)), np.zeros((len(scores), len(scores)))
    for (i, j), weight in weights.items():
        z = sigma * (scores[i] - scores[j])
        rho = math.exp(-np.logaddexp(0.0, z))
        value += weight * np.logaddexp(0.0, -z)
        grad[i] -= sigma * weight * rho
        grad[j] += sigma * weight * rho
        curve = sigma**2 * weight * rho * math.exp(-np.logaddexp(0.0, -z))
        matrix[np.ix_([i, j], [i, j])] += curve * np.array([[1, -1], [-1, 1]])
    return value, grad, matrix


def check(bound, scores, expected):
    value, grad, matrix = expected
    actual = bound.at(scores, curvature=True)
    size = max(1.0, np.abs(grad).max(), abs(value))
    np.testing.assert_allclose(actual.value, value, rtol=1e-11, atol=1e-13 * size)
    np.testing.assert_allclose(actual.grad, grad, rtol=1e-10, atol=1e-13 * size)
    np.testing.assert_allclose(actual.curvature @ np.eye(len(scores)), matrix, rtol=1e-10, atol=1e-13 * size)
    np.testing.assert_allclose(actual.curvature.diagonal(), np.diag(matrix), rtol=1e-10, atol=1e-13 * size)


def one_query(loss, labels, **weights):
    return loss.on(labels, Queries([0, len(labels)]), **weights)


# --- LambdaRank ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METRICS)
@given(labels=grades, seed=seeds, sigma=st.sampled_from([0.5, 1.0, 2.0]))
@settings(deadline=None, max_examples=30)
def test_pairs_weigh_what_their_swap_changes(name, labels, seed, sigma):
    scores = 0.3 * np.random.default_rng(seed).permutation(len(labels))
    order = np.argsort(-scores).tolist()
    expected = pair_sums(scores, deltas_of(METRICS[name], labels, order), sigma)
    check(one_query(LambdaRank(name, sigma=sigma), labels), scores, expected)


@pytest.mark.parametrize("size", [15, 16, 17, 41])
@pytest.mark.parametrize("name", ["ndcg", "map", "err(max_grade=4)"])
def test_rows_of_any_length(name, size):
    """Pairs are read many at a time, and those of two documents of the lowest grade are not read."""
    rng = np.random.default_rng(size)
    labels, scores = rng.integers(0, 4, size).tolist(), 0.3 * rng.permutation(size)
    weights = rng.uniform(0.5, 2.0, size)
    deltas = deltas_of(METRICS[name], labels, np.argsort(-scores).tolist())
    check(one_query(LambdaRank(name), labels), scores, pair_sums(scores, deltas))
    weighted = {(i, j): weights[i] * weights[j] * delta for (i, j), delta in deltas.items()}
    check(one_query(LambdaRank(name), labels, document_weights=weights), scores, pair_sums(scores, weighted))


def test_blocks_go_by_pairs():
    """What a query costs is its pairs: a long one stands alone, and with a truncation it has company."""
    sizes = [30] * 200 + [1000] + [30] * 200
    queries = Queries.from_sizes(sizes)
    labels = np.zeros(queries.n_documents)
    for truncation, alone in ((None, True), (1, False)):
        blocks = LambdaRank(truncation=truncation).on(labels, queries).blocks(1 << 14)
        assert [block.first for block in blocks[1:]] == [block.last for block in blocks[:-1]]
        assert blocks[0].first == 0
        assert blocks[-1].last == len(queries)
        assert ((200, 201) in {(block.first, block.last) for block in blocks}) is alone


@pytest.mark.parametrize("name", ["dcg(gain=linear)", "map", "mrr@2", "err@3(max_grade=4)"])
@given(labels=grades, seed=seeds, truncation=st.integers(1, 8))
@settings(deadline=None, max_examples=25)
def test_truncation_keeps_pairs_whose_better_rank_is_within(name, labels, seed, truncation):
    scores = 0.3 * np.random.default_rng(seed).permutation(len(labels))
    order = np.argsort(-scores).tolist()
    expected = pair_sums(scores, deltas_of(METRICS[name], labels, order, truncation))
    check(one_query(LambdaRank(name, truncation=truncation), labels), scores, expected)


def test_truncation_is_also_the_cut_off_of_the_ideal():
    labels, scores = [0, 3, 1, 2], np.array([4.0, 1.0, 3.0, 2.0])
    ideal = plain.dcg(sorted(labels, reverse=True), 2)
    deltas = deltas_of(plain.dcg, labels, [0, 2, 3, 1], 2)
    expected = pair_sums(scores, {pair: delta / ideal for pair, delta in deltas.items()})
    check(one_query(LambdaRank(truncation=2), labels), scores, expected)


@pytest.mark.parametrize("name", TIED_ORDERS)
@given(labels=st.lists(st.integers(0, 3), min_size=2, max_size=6), seed=seeds, truncation=st.sampled_from([None, 1, 3]))
@settings(deadline=None, max_examples=25)
def test_dcg_takes_the_expectation_over_tied_orders(name, labels, seed, truncation):
    metric = METRICS[name]
    if truncation and name.startswith("ndcg("):
        ideal = plain.dcg(sorted(labels, reverse=True), truncation, discount=plain.letor_discount)

        def metric(order):
            return plain.dcg(order, discount=plain.letor_discount) / ideal if ideal else 0.0
    elif truncation and name == "ndcg":
        ideal = plain.dcg(sorted(labels, reverse=True), truncation)

        def metric(order):
            return plain.dcg(order) / ideal if ideal else 0.0

    scores = np.random.default_rng(seed).choice([0.0, 0.5, 2.0], len(labels))
    expected = pair_sums(scores, mean_deltas(metric, labels, orders_of(scores.tolist()), truncation))
    check(one_query(LambdaRank(name, truncation=truncation), labels), scores, expected)


@pytest.mark.parametrize("name", ["map", "map@3", "mrr", "mrr@2", "err(max_grade=4)", "err@3(max_grade=4)"])
@given(labels=st.lists(st.integers(0, 3), min_size=2, max_size=6), seed=seeds, truncation=st.sampled_from([None, 2]))
@settings(deadline=None, max_examples=25)
def test_other_metrics_rank_tied_documents_worst_first(name, labels, seed, truncation):
    scores = np.random.default_rng(seed).choice([0.0, 0.5, 2.0], len(labels))
    gains = [float(y >= 1) for y in labels] if not name.startswith("err") else labels
    orders = [
        order
        for order in orders_of(scores.tolist())
        if all(scores[a] > scores[b] or gains[a] <= gains[b] for a, b in itertools.pairwise(order))
    ]
    expected = pair_sums(scores, mean_deltas(METRICS[name], labels, orders, truncation))
    check(one_query(LambdaRank(name, truncation=truncation), labels), scores, expected)


@given(labels=grades, seed=seeds)
@settings(deadline=None, max_examples=25)
def test_document_weights_multiply_pairs(labels, seed):
    rng = np.random.default_rng(seed)
    scores, weights = 0.3 * rng.permutation(len(labels)), rng.uniform(0.0, 2.0, len(labels)) + 0.1
    deltas = deltas_of(plain.ndcg, labels, np.argsort(-scores).tolist())
    weighted = {(i, j): weights[i] * weights[j] * delta for (i, j), delta in deltas.items()}
    bound = one_query(LambdaRank(), labels, document_weights=weights)
    check(bound, scores, pair_sums(scores, weighted))


@pytest.mark.parametrize("far", [0.0, 100.0, 1e4])  # one exponential a document, then one a pair
def test_scores_far_apart_lose_nothing(far):
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 5, 12).tolist()
    scores = rng.standard_normal(12) + far * rng.integers(0, 3, 12)  # some pairs stay close
    deltas = deltas_of(plain.ndcg, labels, np.argsort(-scores).tolist())
    check(one_query(LambdaRank(), labels), scores, pair_sums(scores, deltas))


@pytest.mark.parametrize("loss", [LambdaRank("err", truncation=4), LambdaLoss("ndcg1")])
def test_a_block_knows_its_place_in_the_data(loss):
    rng, queries = np.random.default_rng(6), Queries([0, 4, 9, 15])
    labels, scores, weights = rng.integers(0, 4, 15), rng.standard_normal(15), rng.uniform(0.5, 2.0, 15)
    alone = loss.on(labels[4:], Queries([0, 5, 11]), document_weights=weights[4:]).at(scores[4:])
    together, grad = loss.on(labels, queries, document_weights=weights), np.empty(11)
    assert np.mean(together.evaluate_block(together.slice(1, 3), scores[4:], grad, Requested())[0]) == pytest.approx(
        alone.value, rel=1e-12
    )
    np.testing.assert_allclose(3 * grad, 2 * alone.grad, rtol=1e-11, atol=1e-14)


def test_equal_scores_still_say_who_should_rise():
    labels = np.array([0, 2, 1, 0, 3])
    for metric in ("ndcg", "map(rel=2)", "err", "mrr(rel=3)"):
        grad = one_query(LambdaRank(metric), labels).at(np.zeros(5)).grad
        assert grad[4] < 0 < grad[0]
        assert grad[0] == pytest.approx(grad[3])


def test_boosting_gets_the_same_without_the_value():
    rng, queries = np.random.default_rng(3), Queries.from_sizes([40] * 30)
    bound = LambdaRank(truncation=5).on(rng.integers(0, 5, 1200), queries)
    scores = rng.standard_normal(1200)
    whole = bound.at(scores, curvature=True)
    for threads in (1, 2):
        grad, diagonal = bound.derivatives(scores, threads=threads)
        np.testing.assert_array_equal(grad, whole.grad)
        np.testing.assert_array_equal(diagonal, whole.curvature.diagonal())
    with pytest.raises(DataError, match="3 scores for 1200 documents"):
        bound.derivatives([1.0, 2.0, 3.0])


@pytest.mark.parametrize("gap", [0.0, 1e-300, 1e-9, 0.1, 0.5, 1.0, 5.0, 30.0, 500.0, 700.0])
def test_the_logarithm_is_right_to_rounding(gap):
    """arp2 of one pair in the right order is log2(1 + e^−gap), also where the range is too wide for one exponential."""
    value = one_query(LambdaLoss("arp2"), [1, 0]).at([gap, 0.0]).value
    assert value == pytest.approx(np.log1p(np.exp(-gap)) / np.log(2.0), rel=4e-15, abs=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"metric": "p@5"}, "NDCG, DCG, MAP, ERR and MRR, not for 'p@5'"),
        ({"metric": "map@5(norm=hits)"}, "norm=all"),
        ({"truncation": 0}, "at least 1, not 0"),
        ({"truncation": 2.5}, "whole number"),
        ({"sigma": 0.0}, "sigma must be a positive number"),
    ],
)
def test_lambdarank_refuses_in_a_sentence(wrong, message):
    with pytest.raises(DataError, match=message):
        LambdaRank(**wrong)


def test_lambdarank_refuses_labels_it_cannot_read():
    with pytest.raises(UnknownNameError, match="ndcg@10"):
        LambdaRank("ncdg@10")
    with pytest.raises(DataError, match="gain 'exponential' of grade -1"):
        one_query(LambdaRank(), [-1, 2])
    with pytest.raises(DataError, match="max_grade ≥ every label"):
        one_query(LambdaRank("err(max_grade=1)"), [0, 2])
    with pytest.raises(DataError, match="not finite"):
        one_query(LambdaRank(), [0, 2]).at([0.0, np.nan])


# --- LightGBM ------------------------------------------------------------------------------------------------------


def lightgbm_gradients(scores, labels, sizes, **params):
    """LightGBM's own gradients and hessians: a tree with one leaf for each document is refitted under `lambdarank`.

    A leaf then holds −g/(h + l2); two values of l2 give g and h.
    """
    lightgbm = pytest.importorskip("lightgbm")
    n = len(labels)
    rows = np.arange(n, dtype=float)[:, None]
    shape = {"num_leaves": n, "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0, "max_bin": n + 2}
    shape |= {"min_data_in_bin": 1, "learning_rate": 1.0, "boost_from_average": False, "feature_pre_filter": False}
    shape |= {"verbose": -1, "num_threads": 1}
    tree = lightgbm.train(
        {"objective": "regression", **shape}, lightgbm.Dataset(rows, 1 + rows[:, 0], params=shape), num_boost_round=1
    )
    assert len(set(tree.predict(rows, pred_leaf=True).ravel())) == n
    steps = []
    for l2 in (1.0, 2.0):
        tree.params = {"objective": "lambdarank", "lambda_l2": l2, **shape, **params}
        refitted = tree.refit(rows, labels, decay_rate=0.0, group=sizes, init_score=scores)
        steps.append(refitted.predict(rows, raw_score=True))
    one, two = steps
    hessian = np.divide(2 * two - one, one - two, out=np.zeros(n), where=one != two)
    return -one * (hessian + 1), hessian


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {"lambdarank_truncation_level": 1000, "lambdarank_norm": False}),
        ({"truncation": 3}, {"lambdarank_truncation_level": 3, "lambdarank_norm": False}),
        ({"norm": True}, {"lambdarank_truncation_level": 1000, "lambdarank_norm": True}),
        (
            {"norm": True, "truncation": 4, "sigma": 2.0},
            {"lambdarank_truncation_level": 4, "lambdarank_norm": True, "sigmoid": 2.0},
        ),
        (
            {"gain": "linear"},
            {"lambdarank_truncation_level": 1000, "lambdarank_norm": False, "label_gain": list(range(31))},
        ),
    ],
    ids=["plain", "truncated", "norm", "norm-truncated-sigma", "linear"],
)
def test_equals_lightgbm_where_settings_coincide(ours, theirs):
    rng, sizes = np.random.default_rng(1), [7, 12, 5, 1, 9]
    labels, scores = rng.integers(0, 5, sum(sizes)), rng.standard_normal(sum(sizes))
    grad, hessian = lightgbm_gradients(scores, labels.astype(float), sizes, **theirs)
    bound = LambdaRank(**ours).on(labels, Queries.from_sizes(sizes))
    our_grad, our_diagonal = (part * len(sizes) for part in bound.derivatives(scores))
    # Its sigmoid is a table, so pairs agree to 1e-4; a document's gradient is a difference of such pairs.
    np.testing.assert_allclose(our_grad, grad, rtol=0, atol=1e-4 * np.abs(grad).max())
    np.testing.assert_allclose(our_diagonal, hessian, rtol=1e-4, atol=1e-9)


# --- LambdaLoss ----------------------------------------------------------------------------------------------------


def scheme_weights(scheme, labels, order, mu):
    """The weight of every ordered pair (i, j), as METHODS writes it."""
    n = len(labels)
    rank = {document: r for r, document in enumerate(order, start=1)}
    ideal = plain.dcg(sorted(labels, reverse=True)) or 1.0
    G = [plain.exponential(y) / ideal for y in labels]

    discount = {document: 1 / plain.log2_discount(r) for document, r in rank.items()}

    def step(i, j):
        apart = abs(rank[i] - rank[j])
        return 1 / plain.log2_discount(apart) - 1 / plain.log2_discount(apart + 1)

    weights = {
        "arp1": lambda i, j: labels[i],
        "arp2": lambda i, j: labels[i] - labels[j],
        "ndcg1": lambda i, j: G[i] * discount[i],
        "ndcg2": lambda i, j: step(i, j) * (G[i] - G[j]),
        "ndcg2++": lambda i, j: (abs(discount[i] - discount[j]) + mu * step(i, j)) * (G[i] - G[j]),
    }
    everyone = scheme in ("arp1", "ndcg1")
    return {
        (i, j): weights[scheme](i, j)
        for i, j in itertools.permutations(range(n), 2)
        if everyone or labels[i] > labels[j]
    }


def scheme_sums(scheme, scores, labels, orders, sigma=1.0, mu=10.0):
    """The mean over several rankings of the loss in bits."""
    sums = [pair_sums(scores, scheme_weights(scheme, labels, order, mu), sigma) for order in orders]
    return tuple(sum(parts) / len(sums) / math.log(2) for parts in zip(*sums, strict=True))


SCHEMES = ("arp1", "arp2", "ndcg1", "ndcg2", "ndcg2++")


@pytest.mark.parametrize("scheme", SCHEMES)
@given(labels=grades, seed=seeds, sigma=st.sampled_from([0.5, 2.0]))
@settings(deadline=None, max_examples=25)
def test_lambdaloss_is_its_formula(scheme, labels, seed, sigma):
    scores = 0.3 * np.random.default_rng(seed).permutation(len(labels))
    expected = scheme_sums(scheme, scores, labels, [np.argsort(-scores).tolist()], sigma, mu=7.0)
    check(one_query(LambdaLoss(scheme, sigma=sigma, mu=7.0), labels), scores, expected)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(labels=st.lists(st.integers(0, 3), min_size=2, max_size=6), seed=seeds)
@settings(deadline=None, max_examples=25)
def test_lambdaloss_takes_the_expectation_over_tied_orders(scheme, labels, seed):
    scores = np.random.default_rng(seed).choice([0.0, 0.5, 2.0], len(labels))
    expected = scheme_sums(scheme, scores, labels, list(orders_of(scores.tolist())))
    check(one_query(LambdaLoss(scheme), labels), scores, expected)


@given(labels=grades, seed=seeds, sigma=st.sampled_from([0.3, 1.0, 5.0]))
@settings(deadline=None, max_examples=60)
def test_lambdaloss_bounds_what_it_says_it_bounds(labels, seed, sigma):
    scores = np.random.default_rng(seed).permutation(len(labels)) * 0.7
    order = np.argsort(-scores).tolist()
    ranked = [labels[i] for i in order]
    ideal = plain.dcg(sorted(labels, reverse=True)) or 1.0
    gain = [plain.exponential(y) / ideal for y in ranked]
    lost = sum(gain) - plain.ndcg(ranked)
    positions = sum(y * r for r, y in enumerate(ranked))
    best = sum(y * r for r, y in enumerate(sorted(ranked, reverse=True)))
    unavoidable = sum(
        (1 / math.log2(1 + b - a) - 1 / math.log2(2 + b - a)) * min(gain[a], gain[b])
        for a, b in itertools.combinations(range(len(gain)), 2)
    )
    for scheme, bounded in {
        "arp1": positions,
        "arp2": positions - best,
        "ndcg1": lost,
        "ndcg2": lost - unavoidable,
    }.items():
        assert one_query(LambdaLoss(scheme, sigma=sigma), labels).at(scores).value >= bounded - 1e-12
    # The bound of ndcg2 is the loss with every logarithm replaced by 0 or 1.
    weights = scheme_weights("ndcg2", ranked, range(len(ranked)), 0.0)
    wrong = sum(weight for (i, j), weight in weights.items() if i > j)
    assert wrong == pytest.approx(lost - unavoidable, abs=1e-12)


def test_lambdaloss_refuses_in_a_sentence():
    with pytest.raises(UnknownNameError, match="did you mean 'ndcg2\\+\\+'"):
        LambdaLoss("ndcg2+")
    for wrong in ({"sigma": -1.0}, {"mu": math.inf}):
        with pytest.raises(DataError, match="must be a positive number"):
            LambdaLoss(**wrong)
    for scheme in ("ndcg1", "ndcg2"):
        with pytest.raises(DataError, match="labels of at least 0"):
            one_query(LambdaLoss(scheme), [-1, 2])
