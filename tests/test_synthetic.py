"""Data of known truth: the probabilities are those of the grades, and the optimal scores are optimal."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragged  # noqa: F401  no deadlines: kernels compile on first use
from toprank.data.folds import split
from toprank.data.queries import Queries
from toprank.data.synthetic import SyntheticData, synthetic
from toprank.errors import DataError, UnknownNameError

GAINS = 2.0 ** np.arange(8) - 1


def ideal_dcg(gains, k, discount=lambda rank: np.log2(1 + rank)):
    return sum(gain / discount(rank) for rank, gain in enumerate(sorted(gains, reverse=True)[:k], 1))


def exact_ratios(probabilities, k, gains=GAINS, discount=lambda rank: np.log2(1 + rank)):
    """E[G(y_j) / IDCG@k(y)] of one query, by summing over all label vectors."""
    m, n_grades = probabilities.shape
    expected = np.zeros(m)
    for grades in itertools.product(range(n_grades), repeat=m):
        chance = np.prod(probabilities[range(m), grades])
        gained = gains[list(grades)]
        ideal = ideal_dcg(gained, k, discount)
        if ideal > 0:
            expected += chance * gained / ideal
    return expected


def one_query(probabilities, seed=0):
    table = np.asarray(probabilities, dtype=float)
    return SyntheticData.from_probabilities(np.zeros((len(table), 1)), table, Queries([0, len(table)]), seed)


# The truth


@settings(max_examples=40)
@given(
    st.integers(1, 5),
    st.sampled_from([1, 3, (1, 4), (30, 60)]),
    st.integers(2, 6),
    st.sampled_from(["linear", "nonlinear"]),
    st.sampled_from([0.0, 1.0, 3.0]),
    st.sampled_from([0.0, 0.01, 0.5, 10.0]),
    st.integers(0, 2),
    st.sampled_from([0.0, 1.0]),
)
def test_any_setting_gives_distributions_and_grades(queries, documents, grades, truth, skew, noise, irrelevant, effect):
    data = synthetic(
        queries, documents, 5, n_grades=grades, truth=truth, skew=skew, noise=noise, n_irrelevant=irrelevant,
        query_effect=effect,
    )  # fmt: skip
    smallest, largest = (documents, documents) if isinstance(documents, int) else documents
    assert data.n_queries == queries
    assert data.queries.sizes.min() >= smallest
    assert data.queries.sizes.max() <= largest
    assert data.probabilities.shape == (data.n_documents, grades)
    assert (data.probabilities >= 0).all()
    np.testing.assert_allclose(data.probabilities.sum(axis=1), 1, rtol=1e-12)
    assert set(data.labels) <= set(range(grades))
    assert len(data.feature_names) == 5
    chosen = data.probabilities[range(data.n_documents), data.labels.astype(int)]
    assert (chosen > 0).all()


@pytest.mark.parametrize("truth", ["linear", "nonlinear"])
@pytest.mark.parametrize("skew", [0.0, 1.5])
def test_grade_frequencies_agree_with_probabilities_and_with_the_skew(truth, skew):
    data = synthetic(400, 25, truth=truth, skew=skew, seed=3)
    expected = data.probabilities.sum(axis=0)
    deviation = np.sqrt((data.probabilities * (1 - data.probabilities)).sum(axis=0))
    counts = np.bincount(data.labels.astype(int), minlength=5)
    assert (np.abs(counts - expected) < 4.5 * deviation).all()
    shares = np.exp(-skew * np.arange(5))
    np.testing.assert_allclose(expected / data.n_documents, shares / shares.sum(), atol=1e-6)


def test_grades_are_drawn_independently_with_their_own_probabilities():
    data = one_query([[0.5, 0.5], [0.9, 0.1]])
    n = 4000
    labels = np.array([data.resample(seed).labels for seed in range(n)])
    for column, p in ((labels[:, 0], 0.5), (labels[:, 1], 0.1), (labels[:, 0] * labels[:, 1], 0.05)):
        assert abs(column.mean() - p) < 4.5 * np.sqrt(p * (1 - p) / n)


def test_linear_truth_is_linear_and_nonlinear_truth_is_not():
    def explained(truth):
        data = synthetic(300, 20, 6, truth=truth, skew=0, noise=0.5, dtype=np.float64)
        scores = np.log(data.probabilities[:, 1:].sum(axis=1) / data.probabilities[:, 0])  # the log odds are s / noise
        design = np.column_stack([data.X, np.ones(len(data))])
        rest = scores - design @ np.linalg.lstsq(design, scores)[0]
        return 1 - rest.var() / scores.var()

    assert explained("linear") == pytest.approx(1, abs=1e-9)
    assert explained("nonlinear") < 0.6


def test_irrelevant_features_and_query_features_are_what_they_are_called():
    data = synthetic(200, 20, 6, n_irrelevant=3, query_effect=2.0, dtype=np.float64)
    assert data.feature_names == ("effective_1", "effective_2", "query", "irrelevant_1", "irrelevant_2", "irrelevant_3")
    odds = np.log(data.probabilities[:, 1:].sum(axis=1) / data.probabilities[:, 0])
    slopes = np.linalg.lstsq(np.column_stack([data.X, np.ones(len(data))]), odds)[0][:6]
    np.testing.assert_allclose(slopes[3:], 0, atol=1e-8)
    assert slopes[2] == pytest.approx(2.0 / 0.5)  # query_effect / noise
    assert np.linalg.norm(slopes[:2]) == pytest.approx(1 / 0.5)
    assert (data.queries.max(data.X[:, 2]) == data.queries.min(data.X[:, 2])).all()
    assert (data.queries.max(data.X[:, 0]) > data.queries.min(data.X[:, 0])).all()


def test_noise_is_a_temperature():
    def surprise(noise):
        p = synthetic(50, noise=noise).probabilities
        return -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=1).mean()

    assert surprise(0) == 0
    assert 0 < surprise(0.1) < surprise(0.5) < surprise(2)


def test_a_seed_decides_everything():
    first, again, other = (synthetic(seed=seed) for seed in (1, 1, 2))
    assert first.equals(again)
    np.testing.assert_array_equal(first.probabilities, again.probabilities)
    assert not np.array_equal(first.X[:10], other.X[:10])
    redrawn = first.resample(5)
    assert redrawn.equals(first.resample(5))
    assert not redrawn.equals(first)
    np.testing.assert_array_equal(redrawn.X, first.X)


def test_parts_keep_their_probabilities():
    data = synthetic(30, seed=2)
    parts = split(data)
    assert [type(part) for part in parts] == [SyntheticData] * 3
    for part in parts:
        for qid, rows in zip(part.qids, part.queries, strict=True):
            whole = slice(*data.queries.offsets[[qid, qid + 1]])
            np.testing.assert_array_equal(part.probabilities[rows], data.probabilities[whole])
    kept = data.filter(data.labels > 0)
    np.testing.assert_array_equal(kept.probabilities, data.probabilities[data.labels > 0])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(data)).probabilities, data.probabilities)
    with pytest.raises(ValueError, match="read-only"):
        parts[0].probabilities[0, 0] = 1


# The optimal scores


def test_expected_gain_is_the_mean_gain():
    data = one_query([[0.5, 0.25, 0.25], [0, 0, 1]])
    assert data.expected_gain().tolist() == [0.5 * 0 + 0.25 * 1 + 0.25 * 3, 3]
    assert data.expected_gain([0, 1, 2]).tolist() == [0.25 * 1 + 0.25 * 2, 2]


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 5), st.integers(0, 2**32), st.booleans())
def test_ndcg_optimal_agrees_with_enumeration(m, n_grades, k, seed, reciprocal):
    table = np.random.default_rng(seed).dirichlet(np.ones(n_grades), m)
    discount = (lambda rank: rank) if reciprocal else (lambda rank: np.log2(1 + rank))
    expected = exact_ratios(table, k, GAINS[:n_grades], discount)
    discounts = np.arange(1, 10) if reciprocal else None
    scores, errors = one_query(table).ndcg_optimal(discounts=discounts, k=k, samples=4000, seed=seed)
    # Ratios lie between 0 and 1/(1/F(1)) = 1, so a document whose draws were all alike may still be off by a little.
    assert (np.abs(scores - expected) <= 5 * errors + 10 / 4000).all()


def test_the_stated_error_is_the_spread_of_the_estimate():
    data = one_query(np.random.default_rng(0).dirichlet(np.ones(4), 6))
    runs = [data.ndcg_optimal(samples=200, seed=seed) for seed in range(400)]
    scores, errors = (np.array(values) for values in zip(*runs, strict=True))
    np.testing.assert_allclose(scores.std(axis=0), errors.mean(axis=0), rtol=0.2)


def test_a_sure_small_gain_against_a_rare_large_one():
    sure, rare = [0, 1, 0, 0, 0], [0.9, 0, 0, 0, 0.1]
    data = one_query([sure, rare])
    by_gain = data.expected_gain()
    assert by_gain.tolist() == pytest.approx([1, 0.1 * 15])
    scores, errors = data.ndcg_optimal(k=1, samples=20_000)
    # When the large gain comes (1 in 10), the small one is divided by 15; otherwise it is the ideal itself.
    exact = np.array([0.9 + 0.1 / 15, 0.1])
    assert (np.abs(scores - exact) < 5 * errors).all()
    assert by_gain.argmax() == 1
    assert scores.argmax() == 0


@settings(max_examples=20)
@given(st.integers(2, 4), st.integers(1, 4), st.integers(0, 2**32))
def test_no_order_beats_the_optimal_one(m, k, seed):
    table = np.random.default_rng(seed).dirichlet([2.0, 0.5, 0.5], m)
    ratios = exact_ratios(table, k, GAINS[:3])
    scores, errors = one_query(table).ndcg_optimal(k=k, samples=4000, seed=seed)

    def expected_ndcg(order):  # linear in the ratios, whatever the dependence of IDCG on the labels
        return sum(ratios[document] / np.log2(1 + rank) for rank, document in enumerate(order[:k], 1))

    best = max(expected_ndcg(order) for order in itertools.permutations(range(m)))
    assert expected_ndcg(np.argsort(-scores)) >= best - 10 * errors.max()


def test_blank_lists_contribute_nothing():
    scores, errors = one_query([[1.0, 0.0], [1.0, 0.0]]).ndcg_optimal()
    assert scores.tolist() == errors.tolist() == [0, 0]


def test_the_same_bits_on_any_number_of_threads():
    data = synthetic(150, seed=1)
    one, two, three = (data.ndcg_optimal(samples=50, threads=threads) for threads in (1, 2, 3))
    for values in zip(one, two, three, strict=True):
        assert values[0].tobytes() == values[1].tobytes() == values[2].tobytes()
    assert not np.array_equal(data.ndcg_optimal(samples=50, seed=1)[0], one[0])


def test_the_whole_list_and_its_length_agree():
    data = synthetic(20, (3, 7), seed=1)
    for whole, cut in zip(data.ndcg_optimal(k=None, samples=50), data.ndcg_optimal(k=7, samples=50), strict=True):
        np.testing.assert_array_equal(whole, cut)


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_queries": 0}, "n_queries must be at least 1"),
        ({"n_grades": 1}, "n_grades at least 2"),
        ({"noise": -1}, "noise"),
        ({"skew": float("nan")}, "skew"),
        ({"n_documents": 0}, "n_documents"),
        ({"n_documents": (5, 4)}, "n_documents"),
        ({"n_irrelevant": 10}, "10 irrelevant: none is left"),
        ({"n_irrelevant": 9, "query_effect": 1}, "9 irrelevant and one for the query effect: none is left"),
        ({"n_irrelevant": -1}, "-1 irrelevant"),
        ({"dtype": int}, "float32 or float64"),
    ],
)
def test_impossible_wishes_are_refused(options, message):
    with pytest.raises(DataError, match=message):
        synthetic(**options)


def test_unknown_truths_and_bad_tables_are_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'linear'"):
        synthetic(truth="liner")
    with pytest.raises(DataError, match="row 1 are not a distribution"):
        one_query([[0.5, 0.5], [0.5, 0.6]])
    with pytest.raises(DataError, match="row 0 are not a distribution"):
        one_query([[-0.5, 1.5]])
    data = one_query([[0.5, 0.5], [1, 0]])
    with pytest.raises(DataError, match="one row for each of 2 documents"):
        SyntheticData(data.X, data.labels, probabilities=[[1.0]])
    with pytest.raises(DataError, match="regroup"):
        SyntheticData(data.X, data.labels, probabilities=data.probabilities, regroup=True)
    for gains in ([1], [0, np.inf]):
        with pytest.raises(DataError, match="2 finite numbers"):
            data.expected_gain(gains)
    with pytest.raises(DataError, match="must not be negative"):
        data.ndcg_optimal(gains=[-1, 1])
    with pytest.raises(DataError, match="samples must be at least 2"):
        data.ndcg_optimal(samples=1)
    with pytest.raises(DataError, match="k must be at least 1"):
        data.ndcg_optimal(k=0)
    with pytest.raises(DataError, match="at least 2 positive numbers"):
        data.ndcg_optimal(discounts=[1.0])


@pytest.mark.parametrize("truth", ["linear", "nonlinear"])
@pytest.mark.parametrize("query_effect", [0.0, 0.6])
def test_data_of_one_truth_seed_have_one_truth_whatever_their_seed_and_size(truth, query_effect):
    """The log-odds of P(y >= k) are (s(x) - t_k) / noise: a regression tells s and t to rounding."""

    def known(seed, n_queries, truth_seed):
        kind = {"n_features": 5, "n_irrelevant": 1, "truth": truth, "query_effect": query_effect, "dtype": np.float64}
        data = synthetic(n_queries, **kind, seed=seed, truth_seed=truth_seed)
        effective = 3 if query_effect else 4
        x, besides = data.X[:, :effective], data.X[:, effective : effective + (query_effect > 0)]
        x = x if truth == "linear" else np.sin(2 * x) + x * np.roll(x, -1, axis=1)
        above = 1 - np.cumsum(data.probabilities, axis=1)[:, :-1]
        told = np.column_stack([x, besides, np.ones(len(x))])
        return np.linalg.lstsq(told, np.log(above / (1 - above)), rcond=None)[0]

    one = known(0, 200, truth_seed=7)
    np.testing.assert_allclose(known(1, 40, truth_seed=7), one, rtol=1e-6)
    assert not np.allclose(known(0, 200, truth_seed=8), one, rtol=0.01)
    assert not np.allclose(known(7, 200, truth_seed=None), known(1, 200, truth_seed=None), rtol=0.01)
    first, second = (synthetic(30, seed=seed, truth_seed=7) for seed in (0, 1))
    assert first.X.shape != second.X.shape
    shares = np.exp(-np.arange(5.0)) / np.exp(-np.arange(5.0)).sum()
    many = synthetic(2_000, truth=truth, query_effect=query_effect, truth_seed=7).probabilities.mean(axis=0)
    np.testing.assert_allclose(many, shares, atol=0.02)
