"""Losses of relaxed ranks against formulas written out in NumPy, their limits, and their bounds."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

import plain_metrics as plain
from toprank import kernels
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError
from toprank.evaluation import evaluate
from toprank.losses.base import Requested
from toprank.losses.checking import check_loss
from toprank.losses.smooth import ApproxMetric, ApproxMRR, ApproxNDCG, NeuralNDCG, SmoothDiscount, SoftRank
from toprank.metrics import DCG, NDCG, Discount

seeds = st.integers(0, 2**32 - 1)


def one_query(loss, labels, **weights):
    return loss.on(labels, Queries([0, len(labels)]), **weights)


def example(seed, m=6, binary=False):
    """Labels that are not all alike, generic scores, weights."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2 if binary else 5, m).astype(float)
    labels[:2] = 0.0, 1.0
    return labels, rng.standard_normal(m), rng.uniform(0.5, 2.0, m)


def wins(scores, temperature):
    """p[j, k]: how much k counts as standing above j; 0 on the diagonal."""
    with np.errstate(over="ignore"):
        p = 1 / (1 + np.exp((scores[:, None] - scores[None, :]) / temperature))
    np.fill_diagonal(p, 0.0)
    return p


def falling(rank, k):
    t = np.clip(rank - k, 0.0, 1.0)
    return 1 - t**2 * (3 - 2 * t)


# --- smooth ranks --------------------------------------------------------------------------------------------------


@given(seed=seeds, temperature=st.sampled_from([0.05, 0.5, 2.0]), far=st.sampled_from([0.0, 10.0, 1e4]))
@settings(deadline=None, max_examples=40)
def test_approx_losses_are_their_formulas(seed, temperature, far):
    labels, scores, weights = example(seed)
    scores[::2] += far  # beyond 600 temperatures every pair takes an exponential of its own
    tolerance = 1e-12 * max(1.0, far / temperature)  # scores are divided by T before they are compared
    p = wins(scores, temperature)
    rank, relevant, stop = 1 + p.sum(1), (labels >= 1) * 1.0, (2**labels - 1) / 16
    gain, ideal = 2**labels - 1, plain.dcg(sorted(labels, reverse=True))
    ideal3 = plain.dcg(sorted(labels, reverse=True), 3)
    first = (1 - p * relevant).prod(1)
    reached = (1 - p * stop).prod(1)
    terms = {
        ApproxNDCG(temperature): gain / np.log2(1 + rank) / ideal,
        ApproxNDCG(temperature, k=3): gain / np.log2(1 + rank) * falling(rank, 3) / ideal3,
        ApproxMRR(temperature): relevant / rank * first,
        ApproxMRR(temperature, k=2): relevant / rank * first * falling(rank, 2),
        ApproxMetric("map", temperature): relevant * (1 + p @ relevant) / rank / relevant.sum(),
        ApproxMetric("err(max_grade=4)", temperature): stop / rank * reached,
        ApproxMetric("ndcg(discount=reciprocal)", temperature, gain="linear"): labels
        / rank
        / plain.dcg(sorted(labels, reverse=True), gain=lambda y: y, discount=lambda r: r),
    }
    for loss, term in terms.items():
        assert one_query(loss, labels).at(scores).value == pytest.approx(1 - term.sum(), abs=tolerance)
        weighted = one_query(loss, labels, document_weights=weights).at(scores).value
        assert weighted == pytest.approx(1 - (weights * term).sum(), abs=tolerance)
    dcg = ApproxMetric("dcg(discount=zipf(2))", temperature)
    assert one_query(dcg, labels).at(scores).value == pytest.approx(-(gain / rank**2).sum(), abs=tolerance)


METRICS = ["ndcg", "ndcg@3", "dcg@2", "ndcg(discount=letor)", "ndcg@4(discount=[1,2,4,8,9])", "map", "map@3", "mrr"]
METRICS += ["mrr@2", "err", "err@3", "ap@2(norm=min)", "dcg(discount=none)", "ndcg(discount=zipf(1.5))"]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(5))
def test_approx_losses_tend_to_the_metric(metric, seed):
    rng, queries = np.random.default_rng(seed), Queries.from_sizes([7, 5, 6])
    labels, scores = rng.integers(0, 4, 18), rng.permutation(18) * 0.1
    labels[[0, 7, 12]], labels[[1, 8, 13]] = 0, 1
    data = RankingData(np.zeros((18, 0)), labels, queries=queries)
    expected = evaluate(scores, data, [metric]).mean[metric]
    value = ApproxMetric(metric, temperature=1e-3).on(labels, queries).at(scores).value
    assert value == pytest.approx((0.0 if metric.startswith("dcg") else 1.0) - expected, abs=1e-9)


def test_a_discount_of_your_own_is_interpolated():
    own = Discount.from_spec(lambda rank: 1 + np.sqrt(rank))
    labels, scores, _ = example(3)
    ranked = labels[np.argsort(-scores)]
    expected = sum((2**y - 1) / (1 + math.sqrt(r)) for r, y in enumerate(ranked, start=1))
    loss = ApproxMetric(DCG(discount=own), temperature=1e-4)
    assert one_query(loss, labels).at(scores).value == pytest.approx(-expected, abs=1e-9)
    value, slope = SmoothDiscount(own, None, 6)(np.linspace(1, 6, 41))
    assert (np.diff(value) < 0).all()
    assert (slope < 0).all()


@pytest.mark.parametrize("name", ["log2", "letor", "reciprocal", "none", "zipf(1.5)"])
@pytest.mark.parametrize("cut", [None, 3])
def test_slopes_of_discounts(name, cut):
    discount = SmoothDiscount(Discount.from_spec(name), cut, 8)
    rank, step = np.linspace(1.01, 7.99, 50), 1e-6
    numeric = (discount(rank + step)[0] - discount(rank - step)[0]) / (2 * step)
    np.testing.assert_allclose(discount(rank)[1], numeric, atol=1e-7)
    whole = np.arange(1.0, 9.0)
    expected = Discount.from_spec(name).weights(8) * (whole <= (cut or 8))
    np.testing.assert_allclose(discount(whole)[0], expected, atol=1e-15)


def hessian(bound, scores, step=1e-5):
    units = step * np.eye(len(scores))
    return np.array([(bound.at(scores + u).grad - bound.at(scores - u).grad) / (2 * step) for u in units])


@pytest.mark.parametrize("loss", [ApproxNDCG(0.5), ApproxMetric("dcg(discount=reciprocal)", temperature=1.0)])
def test_curvature_bounds_the_hessian(loss):
    for seed in range(20):
        labels, scores, weights = example(seed)
        bound = one_query(loss, labels, document_weights=weights)
        above = bound.at(scores, curvature=True).curvature @ np.eye(len(scores))
        assert np.linalg.eigvalsh(above - hessian(bound, scores)).min() > -1e-8


@pytest.mark.parametrize(
    "loss", [ApproxMRR(), ApproxMetric("map"), SoftRank(gain=[0, 1, 1, 1, 1]), NeuralNDCG(gain=[0, 1, 1, 1, 1])]
)
def test_queries_that_look_alike_to_the_metric_say_nothing(loss):
    for labels in ([2, 1, 3], [0, 0, 0], [1]):
        result = one_query(loss, labels).at(np.arange(len(labels)), curvature=True)
        assert result.value == 0.0
        assert not result.grad.any()
        assert not result.curvature.diagonal().any()


def test_approx_losses_refuse_in_a_sentence():
    for metric in ("p@5", "rbp", "tau", "avgndcg"):
        with pytest.raises(DataError, match="NDCG, DCG, MAP, ERR and MRR, not for"):
            ApproxMetric(metric)
    with pytest.raises(DataError, match="norm=all"):
        ApproxMetric("map@5(norm=hits)")
    with pytest.raises(UnknownNameError, match="gain"):
        ApproxNDCG(gain="exponentail")
    for loss in (ApproxNDCG, ApproxMRR, ApproxMetric, NeuralNDCG):
        with pytest.raises(DataError, match="temperature must be a positive number"):
            loss(temperature=0.0)
    for loss in (ApproxNDCG, ApproxMRR, SoftRank, NeuralNDCG):
        with pytest.raises(DataError, match="k must be a whole number of at least 1"):
            loss(k=0)
    with pytest.raises(DataError, match="gain 'exponential' of grade -1"):
        one_query(ApproxNDCG(), [-1, 1])


@pytest.mark.parametrize("loss", [ApproxNDCG(0.5), ApproxMetric("map", temperature=0.5), SoftRank(), NeuralNDCG()])
def test_a_block_knows_its_place_in_the_data(loss):
    rng, queries = np.random.default_rng(6), Queries([0, 4, 9, 15])
    labels, scores, weights = rng.integers(0, 4, 15), rng.standard_normal(15), rng.uniform(0.5, 2.0, 15)
    alone = loss.on(labels[4:], Queries([0, 5, 11]), document_weights=weights[4:]).at(scores[4:])
    together, grad = loss.on(labels, queries, document_weights=weights), np.empty(11)
    assert np.mean(together.evaluate_block(together.slice(1, 3), scores[4:], grad, Requested())[0]) == pytest.approx(
        alone.value, rel=1e-12
    )
    np.testing.assert_allclose(3 * grad, 2 * alone.grad, rtol=1e-11, atol=1e-14)


# --- SoftRank ------------------------------------------------------------------------------------------------------


def expected_discount(beaten, k):
    """E[1/log2(1 + rank)] where each competitor wins with its own probability, by enumeration of who wins."""
    total = 0.0
    for outcome in itertools.product([False, True], repeat=len(beaten)):
        rank = 1 + sum(outcome)
        chance = math.prod(p if won else 1 - p for p, won in zip(beaten, outcome, strict=True))
        total += chance / math.log2(1 + rank) if k is None or rank <= k else 0.0
    return total


@given(seed=seeds, noise=st.sampled_from([0.3, 1.0]), k=st.sampled_from([None, 2]))
@settings(deadline=None, max_examples=25)
def test_softrank_is_the_expectation_over_all_contests(seed, noise, k):
    labels, scores, weights = example(seed, m=5)
    ideal = plain.dcg(sorted(labels, reverse=True), k)
    terms = []
    for j in range(5):
        beaten = [norm.cdf((scores[i] - scores[j]) / (math.sqrt(2) * noise)) for i in range(5) if i != j]
        terms.append((2 ** labels[j] - 1) * expected_discount(beaten, k) / ideal)
    loss = SoftRank(noise=noise, k=k)
    assert one_query(loss, labels).at(scores).value == pytest.approx(1 - sum(terms), abs=1e-12)
    weighted = one_query(loss, labels, document_weights=weights).at(scores).value
    assert weighted == pytest.approx(1 - np.dot(weights, terms), abs=1e-12)


@pytest.mark.parametrize(
    "sharp", [SoftRank(noise=1e-3), SoftRank(noise=1e-3, k=4), NeuralNDCG(1e-3), NeuralNDCG(1e-3, k=4)]
)
def test_softrank_and_neuralndcg_tend_to_ndcg(sharp):
    rng, queries = np.random.default_rng(4), Queries.from_sizes([9, 5, 30])
    labels, scores = rng.integers(0, 4, 44), rng.permutation(44) * 0.1
    data = RankingData(np.zeros((44, 0)), labels, queries=queries)
    expected = evaluate(scores, data, [NDCG(sharp.k)]).mean[str(NDCG(sharp.k))]
    assert sharp.on(labels, queries).at(scores).value == pytest.approx(1 - expected, abs=1e-9)


@pytest.mark.parametrize("loss", [SoftRank(max_documents=4), NeuralNDCG(max_documents=4)])
def test_long_queries_are_refused(loss):
    loss.on(np.arange(6) % 3, Queries([0, 2, 6]))
    with pytest.raises(DataError, match=r"Query number 1 .* has 5 documents, .* max_documents=4.* use ApproxNDCG"):
        loss.on(np.arange(7) % 3, Queries([0, 2, 7]))


def test_softrank_and_neuralndcg_refuse_in_a_sentence():
    with pytest.raises(DataError, match="noise must be a positive number"):
        SoftRank(noise=-1.0)
    with pytest.raises(DataError, match="iterations must be a whole number of at least 0"):
        NeuralNDCG(iterations=-1)
    for loss in (SoftRank, NeuralNDCG):
        with pytest.raises(DataError, match="max_documents must be a whole number"):
            loss(max_documents=0)


# --- NeuralNDCG ----------------------------------------------------------------------------------------------------


def relaxed_sort(scores, temperature, rounds):
    m = len(scores)
    apart = np.abs(scores[:, None] - scores[None, :]).sum(1)
    logits = (np.outer(m + 1 - 2 * np.arange(1, m + 1), scores) - apart) / temperature
    X = np.exp(logits - logits.max(1, keepdims=True))
    X /= X.sum(1, keepdims=True)
    for _ in range(rounds):
        X /= X.sum(0, keepdims=True)
        X /= X.sum(1, keepdims=True)
    return X


@given(seed=seeds, temperature=st.sampled_from([0.3, 1.0, 5.0]), rounds=st.sampled_from([0, 1, 4, 50]))
@settings(deadline=None, max_examples=40)
def test_neuralndcg_is_its_formula(seed, temperature, rounds):
    labels, scores, weights = example(seed)
    discounts = 1 / np.log2(2 + np.arange(6))
    ideal = plain.dcg(sorted(labels, reverse=True))
    gains = (2**labels - 1) / ideal
    X = relaxed_sort(scores, temperature, rounds)
    loss = NeuralNDCG(temperature, iterations=rounds)
    assert one_query(loss, labels).at(scores).value == pytest.approx(1 - discounts @ X @ gains, abs=1e-11)
    weighted = one_query(loss, labels, document_weights=weights).at(scores).value
    assert weighted == pytest.approx(1 - discounts @ X @ (weights * gains), abs=1e-11)


# --- the compiled loops --------------------------------------------------------------------------------------------

LOSSES = [
    *(ApproxMetric(metric, temperature=0.5) for metric in ("ndcg@5", "map", "mrr", "err")),
    *(SoftRank(k=k) for k in (None, 3, 20)),
    *(NeuralNDCG(iterations=rounds) for rounds in (0, 3, 50)),
]
SIZES = [8, 1, 17, 9, 33, 16]  # on both sides of whole vectors of eight


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_rows_of_any_length(loss):
    rng, queries = np.random.default_rng(6), Queries.from_sizes(SIZES)
    assert check_loss(loss, rng.integers(0, 4, queries.n_documents), queries) == []


def answers(loss, spread):
    rng, queries = np.random.default_rng(7), Queries.from_sizes(SIZES)
    bound = loss.on(rng.integers(0, 4, queries.n_documents), queries)
    now = bound.at(spread * rng.standard_normal(queries.n_documents), curvature=True)
    step = rng.standard_normal(queries.n_documents)
    return [now.value, now.grad.tolist(), now.curvature.diagonal().tolist(), (now.curvature @ step).tolist()]


@pytest.mark.parametrize("spread", [0.0, 1.0, 1e4])
def test_every_set_of_instructions_gives_the_same_bits(monkeypatch, spread):
    used = kernels.library()
    names = ["smooth_ranks", "smooth_rank_push", "smooth_rank_flow", "expected_ndcg", "relaxed_ndcgs"]
    said = []
    for variant in used.variants[: used.variants.index(used.machine) + 1]:
        library = kernels.KernelLibrary(Path(used._library._name), variant)
        for name in names:
            monkeypatch.setattr(kernels, name, library.get(name), raising=False)
        said.append([answers(loss, spread) for loss in LOSSES])
    assert all(one == said[0] for one in said)


def test_the_complementary_error_function():
    x = np.concatenate([np.linspace(-7.0, 26.0, 3001), [0.0, -0.0, np.inf, -np.inf, np.nan]])
    ours = np.empty_like(x)
    kernels.complementary_errors(x, ours)
    np.testing.assert_allclose(ours, [math.erfc(one) for one in x], rtol=8 * np.finfo(float).eps)
