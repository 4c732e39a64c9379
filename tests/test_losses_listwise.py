"""Listwise losses against plain formulas, enumerations and the facts that are known about them."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toprank import losses
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError
from toprank.losses.base import Judgments
from toprank.losses.boltzrank import BoltzRank
from toprank.losses.cosine import Cosine
from toprank.losses.listmle import CostSensitiveListMLE, ListMLE, PListMLE
from toprank.losses.softmax import MAX_PREFIXES, XENDCG, ListNet, Multicategory, TopKBound, count_prefixes

LABELS = [2.0, 0.0, 1.0, 0.0, 2.0]
SCORES = [0.3, -1.2, 0.7, 0.1, -0.4]
WEIGHTS = [0.5, 2.0, 1.5, 3.0, 0.25]


def value(loss, labels=LABELS, scores=SCORES, **weights):
    """The loss of one query."""
    return loss.on(labels, Queries([0, len(labels)]), **weights).at(scores).value


def log_softmax(scores):
    scores = np.asarray(scores, dtype=float)
    return scores - np.logaddexp.reduce(scores)


def close(actual, expected, tolerance=1e-12):
    return math.isclose(actual, expected, rel_tol=tolerance, abs_tol=tolerance)


# --- softmax -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("psi", ["linear", "exponential"])
def test_listnet_is_a_cross_entropy(psi, weights):
    wanted = 0.7 * np.array(LABELS if psi == "linear" else [2**y - 1 for y in LABELS])
    terms = -np.exp(log_softmax(wanted)) * log_softmax(SCORES)
    expected = float(np.sum(terms * (weights or np.ones(5))))
    assert close(value(ListNet(alpha=0.7, psi=psi), document_weights=weights), expected)


def test_listnet_takes_negative_labels_with_linear_psi_only():
    shifted = [y - 5 for y in LABELS]
    assert close(value(ListNet(), shifted), value(ListNet()))
    with pytest.raises(DataError, match="at least 0"):
        value(ListNet(psi="exponential"), shifted)


def top_k_cross_entropy(psi, scores, k, weights):
    """By its definition: over all ordered choices of k documents."""

    def steps(values, choice):
        left = list(range(len(values)))
        for j in choice:
            yield values[j] - np.logaddexp.reduce([values[i] for i in left])
            left.remove(j)

    total = 0.0
    for choice in permutations(range(len(psi)), k):
        probability = math.exp(sum(steps(psi, choice)))
        total -= probability * sum(weights[j] * step for j, step in zip(choice, steps(scores, choice), strict=True))
    return total


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_listnet_of_the_first_k_is_the_enumerated_cross_entropy(data):
    m = data.draw(st.integers(1, 5))
    numbers = st.lists(st.sampled_from([-30.0, -1.0, 0.0, 0.5, 2.0, 30.0]), min_size=m, max_size=m)
    labels, scores = data.draw(numbers), data.draw(numbers)
    weights = data.draw(st.lists(st.floats(0.25, 4), min_size=m, max_size=m))
    k = data.draw(st.integers(1, m))
    loss = ListNet(top_k=None if k == m and data.draw(st.booleans()) else k, alpha=0.5)
    expected = top_k_cross_entropy([0.5 * y for y in labels], scores, k, weights)
    assert close(value(loss, labels, scores, document_weights=weights), expected, 1e-11)


def test_listnet_of_the_first_one_is_the_same_by_both_ways():
    rng, queries = np.random.default_rng(0), Queries.from_sizes([4, 1, 9, 30])
    labels, scores = rng.integers(0, 5, 44).astype(float), rng.normal(size=44)
    weights = rng.uniform(0.5, 2, 44)
    fast = ListNet().on(labels, queries, document_weights=weights).at(scores, curvature=True)
    slow = TopKBound(labels, 1, Judgments(labels, queries, weights)).at(scores, curvature=True)
    assert close(fast.value, slow.value)
    np.testing.assert_allclose(slow.grad, fast.grad, rtol=0, atol=1e-15)
    V = rng.normal(size=(44, 3))
    np.testing.assert_allclose(slow.curvature @ V, fast.curvature @ V, rtol=0, atol=1e-15)


def test_listnet_of_the_first_k_is_stable_when_scores_lie_far_apart():
    # The target surely chooses 0 then 1; scores that agree cost nothing, opposite ones cost the gaps they are wrong by.
    labels = [2000.0, 1000.0, 0.0]
    assert value(ListNet(top_k=2), labels, [2e8, 1e8, 0.0]) == 0.0
    assert close(value(ListNet(top_k=2), labels, [0.0, 1e8, 2e8]), 2e8 + 1e8)


def test_long_lists_are_refused_for_more_than_one_place():
    queries = Queries.from_sizes([3, 120])
    labels = np.zeros(123)
    assert count_prefixes(120, 3) == 1 + 120 + 120 * 119
    assert count_prefixes(120, 4) > MAX_PREFIXES
    ListNet(top_k=3).on(labels, queries)
    with pytest.raises(DataError, match=r"1,699,441 .*query number 1 .*120 documents.*1,000,000.*top_k=3"):
        ListNet(top_k=4).on(labels, queries)
    with pytest.raises(DataError, match=r"about 10\^198 .*120 documents"):
        ListNet(top_k=None).on(labels, queries)
    # 2000!·(e − 2) has more digits than Python writes
    with pytest.raises(DataError, match=r"about 10\^5735 .*2,000 documents"):
        ListNet(top_k=None).on(np.zeros(2000), Queries([0, 2000]))


def test_listnet_tends_to_softmax_classification_and_multicategory():
    labels, scores = [0.0, 1.0, 0.0, 0.0], [0.4, -0.3, 1.1, 0.0]
    classification = -log_softmax(scores)[1]
    assert close(value(Multicategory(), labels, scores), classification)
    gaps = [abs(value(ListNet(alpha=alpha), labels, scores) - classification) for alpha in (2, 4, 8, 16, 40)]
    assert all(late < early / 2 for early, late in pairwise(gaps))
    assert gaps[-1] < 1e-15 * 40


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_multicategory_weighs_by_gains(weights):
    expected = -float(np.sum([2**y - 1 for y in LABELS] * log_softmax(SCORES) * (weights or np.ones(5))))
    assert close(value(Multicategory(), document_weights=weights), expected)
    assert close(value(Multicategory(gain=(0, 1, 3)), document_weights=weights), expected)


def test_multicategory_ignores_a_query_without_gain():
    result = Multicategory().on([0, 0, 1], Queries([0, 2, 3])).at([1.0, 2.0, 3.0], curvature=True)
    assert result.value == 0.0
    assert not result.grad.any()
    assert not result.curvature.diagonal().any()


def mean_gradient(loss, cases, scores):
    """The gradient of the expected loss of one query whose labels are random."""
    queries = Queries([0, len(scores)])
    return sum(p * loss.on(labels, queries).at(scores).grad for p, labels in cases)


def test_only_multicategory_is_minimized_by_expected_gains():
    # A sure small gain against a rare large one.
    cases = [(0.7, [1, 0, 0]), (0.2, [1, 4, 1]), (0.1, [2, 0, 0])]
    gains = sum(p * (np.exp2(labels) - 1) for p, labels in cases)
    minimizer = np.log(gains)
    np.testing.assert_allclose(mean_gradient(Multicategory(), cases, minimizer), 0, atol=1e-15)
    for other in (ListNet(), XENDCG(gamma=0.5), ListMLE(), Cosine()):
        assert np.abs(mean_gradient(other, cases, minimizer)).max() > 1e-3


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("gamma", ["uniform", 0.0, 0.25])
def test_xendcg_targets(gamma, weights):
    drawn = np.random.default_rng(3).random(5) if gamma == "uniform" else np.full(5, gamma)
    targets = [2**y - g for y, g in zip(LABELS, drawn, strict=True)]
    expected = -float(np.sum(targets * log_softmax(SCORES) * (weights or np.ones(5)))) / sum(targets)
    assert close(value(XENDCG(gamma, seed=3), document_weights=weights), expected)


def test_xendcg_draws_once_and_by_seed():
    bound = XENDCG(seed=1).on(LABELS, Queries([0, 5]))
    assert bound.at(SCORES).value == bound.at(SCORES).value == value(XENDCG(seed=1))
    assert value(XENDCG(seed=1)) != value(XENDCG(seed=2))


def test_xendcg_says_nothing_where_gamma_leaves_no_target():
    result = XENDCG(gamma=1).on([0, 0, 1], Queries([0, 2, 3])).at([1.0, 2.0, 3.0])
    assert result.value == 0.0
    assert not result.grad.any()


# --- likelihoods ---------------------------------------------------------------------------------------------------


def ordered(scores, weights=None):
    """−log Plackett–Luce probability of the documents in the order in which they come."""
    suffixes = np.logaddexp.accumulate(np.asarray(scores, dtype=float)[::-1])[::-1]
    return float(np.sum((suffixes - scores) * (np.ones(len(scores)) if weights is None else weights)))


def tied(labels, scores, weights, efron, lowest=True):
    """The formula of METHODS, grade by grade."""
    labels, scores, weights = (np.asarray(values, dtype=float) for values in (labels, scores, weights))
    total = 0.0
    for grade in np.unique(labels)[0 if lowest else 1 :]:
        group, risk = labels == grade, labels <= grade
        d, mean = int(group.sum()), weights[group].mean()
        for step in range(d):
            share = step / d if efron else 0.0
            total += mean * math.log(np.exp(scores[risk]).sum() - share * np.exp(scores[group]).sum())
        total -= float(np.sum(weights[group] * scores[group]))
    return total


def ideal_orders(labels):
    """Every order of the documents in which grades never rise."""
    for order in permutations(range(len(labels))):
        if all(labels[i] >= labels[j] for i, j in pairwise(order)):
            yield list(order)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("lowest", [True, False])
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_listmle_with_ties(ties, lowest, weights):
    expected = tied(LABELS, SCORES, weights or np.ones(5), ties == "efron", lowest)
    assert close(value(ListMLE(ties=ties, lowest=lowest), document_weights=weights), expected)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_listmle_in_the_order_of_the_file(weights):
    order = [0, 4, 2, 1, 3]
    scores = np.array(SCORES)[order]
    given_weights = None if weights is None else np.array(weights)[order]
    assert close(value(ListMLE(ties="file"), document_weights=weights), ordered(scores, given_weights))
    without = np.array([1, 1, 1, 0, 0]) * (1 if weights is None else given_weights)
    assert close(value(ListMLE(ties="file", lowest=False), document_weights=weights), ordered(scores, without))


@pytest.mark.parametrize("spread", [0.5, 40.0, 1e4])
@pytest.mark.parametrize("family", [ListMLE(), CostSensitiveListMLE(1.05), PListMLE()])
def test_listmle_without_ties_has_the_bits_that_it_has_beside_ties(family, spread):
    """Where nothing is tied, queries are computed together; a mean over 8 of them is exactly half of one over 4."""
    rng = np.random.default_rng(int(spread))
    sizes = [1, 23, 9, 40]
    labels = np.concatenate([rng.permutation(m) for m in sizes]).astype(float)
    scores = rng.normal(0, spread, len(labels))
    alone = family.on(labels, Queries.from_sizes(sizes)).at(scores)
    tied = Queries.from_sizes([*sizes, 3, 3, 3, 3])
    beside = family.on(np.append(labels, [1.0, 1.0, 0.0] * 4), tied).at(np.append(scores, np.zeros(12)))
    np.testing.assert_array_equal(alone.grad, 2 * beside.grad[: len(labels)])
    assert alone.grad.any()


def test_listmle_draws_every_order_of_ties():
    possible = sorted(ordered(np.array(SCORES)[order]) for order in ideal_orders(LABELS))
    drawn = {round(value(ListMLE(ties="random", seed=seed)), 9) for seed in range(40)}
    assert drawn == {round(number, 9) for number in possible}
    assert value(ListMLE(ties="random", seed=7)) == value(ListMLE(ties="random", seed=7))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(-4, 4)), min_size=2, max_size=6),
    st.sampled_from([ListMLE, CostSensitiveListMLE]),
)
def test_mean_over_tie_orders_is_below_efron_and_everything_below_breslow(documents, family):
    labels, scores = [float(y) for y, _ in documents], [s for _, s in documents]
    if len(set(labels)) == 1:
        assert value(family(), labels, scores) == 0.0
        return
    orders = []
    for order in ideal_orders(labels):
        arranged = [labels[i] for i in order], [scores[i] for i in order]
        orders.append(value(family(ties="file"), *arranged))
    efron, breslow = value(family(), labels, scores), value(family(ties="breslow"), labels, scores)
    slack = 1e-12 * max(1.0, breslow)
    assert np.mean(orders) <= efron + slack
    assert max(efron, *orders) <= breslow + slack


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 2), min_size=2, max_size=6), st.lists(st.floats(-4, 4), min_size=3, max_size=3))
def test_every_order_is_efron_where_tied_documents_have_equal_scores(labels, by_grade):
    scores = [by_grade[label] for label in labels]
    efron = value(ListMLE(), labels, scores)
    for seed in range(4):
        assert close(value(ListMLE(ties="random", seed=seed), labels, scores), efron)


def test_equal_scores_cost_the_number_of_orders():
    # All m! orders are alike, and Efron's terms multiply to the same number.
    assert close(value(ListMLE(), [1, 1, 0, 0, 0], np.zeros(5)), math.log(120))
    assert close(value(ListMLE(ties="breslow"), [1, 1, 0, 0, 0], np.zeros(5)), 2 * math.log(5) + 3 * math.log(3))


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_cost_sensitive_listmle(ties):
    counts = {0.0: 2, 1.0: 1, 2.0: 2}
    weights = [1.7**y / counts[y] for y in LABELS]
    assert close(value(CostSensitiveListMLE(1.7, ties=ties)), tied(LABELS, SCORES, weights, ties == "efron"))
    both = np.multiply(weights, WEIGHTS)
    expected = tied(LABELS, SCORES, both, ties == "efron")
    assert close(value(CostSensitiveListMLE(1.7, ties=ties), document_weights=WEIGHTS), expected)


@pytest.mark.parametrize("ties", ["efron", "breslow", "random", "file"])
def test_cost_sensitive_listmle_is_listmle_without_costs_and_ties(ties):
    labels = [3.0, 0.0, 1.5, 4.0, 2.0]
    expected = ordered(np.array(SCORES)[[3, 0, 4, 2, 1]])
    assert close(value(CostSensitiveListMLE(pcf=1, ties=ties), labels), expected)
    assert close(value(ListMLE(ties=ties), labels), expected)


def test_positions_weigh_terms():
    labels, order = [3.0, 0.0, 1.5, 4.0, 2.0], [3, 0, 4, 2, 1]
    scores = np.array(SCORES)[order]
    assert close(value(PListMLE(), labels), ordered(scores, [1 / math.log2(1 + i) for i in range(1, 6)]))
    assert close(value(PListMLE("reciprocal"), labels), ordered(scores, [1 / i for i in range(1, 6)]))
    published = [(2 ** (5 - i) - 1) / (2**4 - 1) for i in range(1, 6)]
    assert close(value(PListMLE("published"), labels), ordered(scores, published))


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_positions_are_averaged_over_ties(ties):
    positions = {2.0: [1, 2], 1.0: [3], 0.0: [4, 5]}
    mean = {y: np.mean([1 / math.log2(1 + i) for i in at]) for y, at in positions.items()}
    weights = [mean[y] for y in LABELS]
    assert close(value(PListMLE(ties=ties)), tied(LABELS, SCORES, weights, ties == "efron"))


def test_published_positions_of_long_lists():
    m = 2000
    scores = np.random.default_rng(0).normal(size=m)
    result = PListMLE("published").on(-np.arange(m), Queries([0, m])).at(scores, curvature=True)
    expected = ordered(scores, [max(2.0 ** (1 - i), 0) for i in range(1, m + 1)])  # 2^{1−m} is beyond rounding
    assert close(result.value, expected)
    assert np.isfinite(result.grad).all()
    assert np.isfinite(result.curvature.diagonal()).all()


def test_suffix_sums_keep_their_digits_when_scores_lie_far_apart():
    rng = np.random.default_rng(1)
    scores, labels = 1000 * rng.normal(size=50), np.arange(50.0)
    assert close(value(ListMLE(), labels, scores), ordered(scores[::-1]))
    # Risk sets that lie 10^8 below the rest still tell their own documents apart.
    result = ListMLE().on([3, 2, 1, 0], Queries([0, 4])).at([1e8, 1e8, -1e8, -1e8], curvature=True)
    np.testing.assert_allclose(result.grad, [-0.5, 0.5, -0.5, 0.5], rtol=1e-15)
    np.testing.assert_allclose(result.curvature.diagonal(), np.full(4, 0.25), rtol=1e-15)
    np.testing.assert_allclose(result.curvature @ np.array([1.0, 0, 0, 1]), [0.25, -0.25, -0.25, 0.25], rtol=1e-15)


@pytest.mark.parametrize("ties", ["efron", "file"])
def test_curvature_of_a_long_list(ties):
    # 40,000 documents: a matrix would take 12.8 GB.
    m, step = 40_000, 1e-4
    rng = np.random.default_rng(2)
    labels, scores, V = rng.integers(0, 5, m).astype(float), rng.normal(size=m), rng.normal(size=m)
    bound = CostSensitiveListMLE(ties=ties).on(labels, Queries([0, m]))
    expected = (bound.at(scores + step * V).grad - bound.at(scores - step * V).grad) / (2 * step)
    curvature = bound.at(scores, curvature=True).curvature
    np.testing.assert_allclose(curvature @ V, expected, rtol=1e-5, atol=1e-7 * np.abs(expected).max())
    np.testing.assert_allclose(curvature @ np.ones(m), 0, atol=1e-12)


# --- cosine --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("psi", ["linear", "exponential"])
def test_cosine_of_scores_and_labels(psi, weights):
    wanted = np.array(LABELS) if psi == "linear" else np.exp2(LABELS) - 1
    unit = wanted / np.linalg.norm(wanted)
    length = math.sqrt(np.dot(SCORES, SCORES) + 0.25)
    expected = float(np.sum(unit * (unit - np.array(SCORES) / length) * (weights or np.ones(5)))) / 2
    assert close(value(Cosine(psi, epsilon=0.5), document_weights=weights), expected)


def test_centered_cosine_is_a_correlation():
    correlation = np.corrcoef(np.exp2(LABELS) - 1, SCORES)[0, 1]
    assert close(value(Cosine(centered=True, epsilon=1e-9)), (1 - correlation) / 2)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_centring_the_targets_leaves_the_scores_alone(weights):
    wanted = np.exp2(LABELS) - 1
    unit = (wanted - wanted.mean()) / np.linalg.norm(wanted - wanted.mean())
    length = math.sqrt(np.dot(SCORES, SCORES) + 0.25)
    expected = float(np.sum(unit * (unit - np.array(SCORES) / length) * (weights or np.ones(5)))) / 2
    loss = Cosine(centered="targets", epsilon=0.5)
    assert close(value(loss, document_weights=weights), expected)
    assert not loss.traits.shift_invariant
    assert not close(value(loss, scores=np.array(SCORES) + 1), value(loss))


def test_centring_both_sides_has_two_names():
    assert Cosine(centered="both").traits.shift_invariant
    assert value(Cosine(centered="both"), document_weights=WEIGHTS) == value(
        Cosine(centered=True), document_weights=WEIGHTS
    )


@pytest.mark.parametrize("centered", [False, True])
def test_cosine_is_a_half_at_zero_and_lies_between_zero_and_one(centered):
    loss = Cosine(centered=centered)
    assert value(loss, scores=np.zeros(5)) == 0.5
    best = np.exp2(LABELS) - 1
    assert close(value(loss, scores=1e6 * best), 0.0)
    assert close(value(loss, scores=-1e6 * best), 1.0)
    assert close(value(loss, scores=1e6 * np.array(SCORES)), value(loss, scores=1e7 * np.array(SCORES)))


def test_cosine_ignores_queries_without_direction():
    flat = Cosine(centered=True).on([0.1, 0.1, 0.1, 1, 0], Queries([0, 3, 5])).at([3.0, 2, 1, 0, 0], curvature=True)
    blank = Cosine().on([0, 0, 0, 1, 0], Queries([0, 3, 5])).at([3.0, 2, 1, 0, 0], curvature=True)
    for result in (flat, blank):
        assert close(result.value, 0.25)  # the second query's ½, over two
        assert not result.grad[:3].any()
        assert not result.curvature.diagonal()[:3].any()


def test_cosine_does_not_overflow():
    assert close(value(Cosine(), [600, 599, 0], [2.0, 1.0, 0.0]), 0.0, 1e-6)
    with pytest.raises(DataError, match="gain"):
        value(Cosine(), [2000, 0], [1.0, 0.0])


def test_cosine_curvature_is_that_of_the_squared_distance_between_unit_vectors():
    epsilon, scores, n = 0.5, np.array(SCORES), 5
    norm = math.sqrt(scores @ scores + epsilon**2)
    jacobian = (np.eye(n) - np.outer(scores, scores) / norm**2) / norm
    actual = Cosine(epsilon=epsilon).on(LABELS, Queries([0, n])).at(scores, curvature=True).curvature @ np.eye(n)
    np.testing.assert_allclose(actual, jacobian.T @ jacobian / 2, rtol=1e-12, atol=1e-15)


# --- BoltzRank -----------------------------------------------------------------------------------------------------


def energies(values, coupling, weights):
    """Volkovs and Zemel's energy of every ranking, pair by pair."""
    m = len(values)
    for ranks in permutations(range(1, m + 1)):
        pairs = [(u, v) for u in range(m) for v in range(m) if ranks[u] < ranks[v]]
        terms = [weights[u] * weights[v] * coupling * (ranks[u] - ranks[v]) * (values[u] - values[v]) for u, v in pairs]
        yield 2 / (m * (m - 1)) * sum(terms)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_boltzrank_compares_boltzmann_distributions(weights):
    given_weights = weights or [1.0] * 5
    target = np.exp(log_softmax([-e for e in energies([0.5 * y for y in LABELS], 1.5, given_weights)]))
    model = log_softmax([-e for e in energies(SCORES, 1.5, given_weights)])
    loss = BoltzRank(alpha=0.5, coupling=1.5, samples=120)
    assert close(value(loss, document_weights=weights), -float(target @ model))


def test_boltzrank_draws_once_and_by_seed():
    labels, scores = np.arange(9.0), np.linspace(-1, 1, 9) ** 2
    first, again, other = (value(BoltzRank(samples=50, seed=seed), labels, scores) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_drawn_rankings_are_half_arbitrary_and_half_good():
    m, samples = 8, 4000
    bound = BoltzRank(alpha=2.0, samples=samples).on(np.arange(m), Queries([0, m]))
    ranks = bound.rankings.ranks.reshape(samples, m)
    assert np.array_equal(np.sort(ranks, axis=1), np.tile(np.arange(1, m + 1), (samples, 1)))
    first = (ranks == 1).mean(axis=0)  # how often each document comes first
    expected = (np.exp(log_softmax(2.0 * np.arange(m))) + 1 / m) / 2
    np.testing.assert_allclose(first, expected, atol=4 * math.sqrt(0.25 / samples))


def test_boltzrank_refuses_long_lists():
    with pytest.raises(
        DataError, match=r"Query number 1 .*11 documents.*max_documents=10.*rankings of every query.*use ListNet"
    ):
        BoltzRank(max_documents=10).on(np.zeros(13), Queries([0, 2, 13]))


# --- options and labels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ListNet(psi="linaer"), UnknownNameError, "did you mean 'linear'"),
        (lambda: ListNet(alpha=0), DataError, "alpha must be a positive number"),
        (lambda: ListNet(alpha=math.nan), DataError, "alpha must be a positive number"),
        (lambda: ListNet(top_k=0), DataError, "top_k must be a whole number of at least 1, not 0"),
        (lambda: ListNet(top_k=1.5), DataError, "whole number"),
        (lambda: Multicategory(gain="exponental"), UnknownNameError, "exponential"),
        (lambda: XENDCG(gamma=1.5), DataError, "of at least 0 and at most 1"),
        (lambda: XENDCG(gamma="normal"), DataError, "if not 'uniform', must be a number"),
        (lambda: XENDCG(seed=-1), DataError, "seed"),
        (lambda: ListMLE(ties="effron"), UnknownNameError, "did you mean 'efron'"),
        (lambda: ListMLE(ties="random", seed=0.5), DataError, "ListMLE's seed"),
        (lambda: PListMLE("logarithmic"), UnknownNameError, "discount"),
        (lambda: CostSensitiveListMLE(0.5), DataError, "at least 1"),
        (lambda: CostSensitiveListMLE(math.inf), DataError, "at least 1"),
        (lambda: Cosine(psi="cubic"), UnknownNameError, "psi"),
        (lambda: Cosine(centered="labels"), DataError, "'targets' .ψ alone., 'both'"),
        (lambda: Cosine(epsilon=0), DataError, "epsilon must be a positive number"),
        (lambda: BoltzRank(samples=1), DataError, "samples must be a whole number of at least 2"),
        (lambda: BoltzRank(coupling=-1), DataError, "coupling must be a positive number"),
        (lambda: BoltzRank(max_documents=0), DataError, "max_documents"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("loss", [Multicategory(), XENDCG(), Cosine(), ListNet(psi="exponential")])
def test_negative_labels_have_no_exponential_gain(loss):
    with pytest.raises(DataError, match="document 1 has -1"):
        value(loss, [0, -1], [0.0, 0.0])


@pytest.mark.parametrize(
    ("loss", "label", "words"),
    [
        (ListNet(alpha=1e300), 1e10, "overflows"),
        (CostSensitiveListMLE(), 1e4, r"pcf\^y overflows"),
        (XENDCG(), 5000, "gain"),
    ],
)
def test_labels_that_overflow_are_refused(loss, label, words):
    with pytest.raises(DataError, match=words):
        value(loss, [label, 0], [0.0, 0.0])


def test_weighted_softmax_is_another_name_of_multicategory():
    assert losses.WeightedSoftmax is losses.Multicategory
    assert losses.make("weighted-softmax", gain="linear") == losses.Multicategory(gain="linear")
    assert "WeightedSoftmax" not in losses.names()
