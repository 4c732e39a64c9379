"""Consistency by computation: population minimizers against E[G(y) | x], and DCG's optimum against NDCG's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses.listmle import ListMLE, PListMLE
from toprank.losses.pairwise import Exponential, Hinge, Logistic, SquaredHinge
from toprank.losses.pointwise import ImportanceWeightedSquared, ModifiedSquared, PowerRegression, QuerySquared, Squared
from toprank.losses.softmax import Multicategory
from toprank.theory import Population, optimal_order, order_agrees, population_minimizer

# A sure grade 1 against a grade 3 that comes with probability 0.4: E[G] = 1 and 2.8, but the first wins 6 times in 10.
SKEWED = Population([[1, 0], [1, 3]], [0.6, 0.4])


def gains(labels):
    return np.exp2(labels) - 1


def squared(labels, scores):
    return ((scores - gains(labels)) ** 2).sum(), 2 * (scores - gains(labels))


def query_squared(labels, scores):
    error = scores - gains(labels)
    error = error - error.mean()
    return (error**2).sum(), 2 * error


def power(labels, scores):
    return (scores**4 / 4 - scores * gains(labels)).sum(), scores**3 - gains(labels)


def modified_squared(labels, scores):
    t, over, under = gains(labels) / 7, np.maximum(scores, 0), np.maximum(1 - scores, 0)
    return ((1 - t) * over**2 + t * under**2).sum(), 2 * (1 - t) * over - 2 * t * under


def multicategory(labels, scores):
    t, odds = gains(labels), np.exp(scores - scores.max())
    log_total = np.log(odds.sum()) + scores.max()
    return (t * (log_total - scores)).sum(), t.sum() * odds / odds.sum() - t


def pairs(margin, slope):
    """Mean of margin(s_i − s_j) over the pairs with y_i > y_j, as a loss."""

    def loss(labels, scores):
        better, worse = np.nonzero(labels[:, None] > labels[None, :])
        grad = np.zeros(len(scores))
        if not len(better):
            return 0.0, grad
        difference = scores[better] - scores[worse]
        np.add.at(grad, better, slope(difference) / len(better))
        np.add.at(grad, worse, -slope(difference) / len(better))
        return margin(difference).mean(), grad

    return loss


hinge = pairs(lambda d: np.maximum(0, 1 - d), lambda d: np.where(d < 1, -1.0, 0.0))
logistic = pairs(lambda d: np.logaddexp(0, -d), lambda d: -1 / (1 + np.exp(d)))
exponential = pairs(lambda d: np.exp(-d), lambda d: -np.exp(-d))


def list_mle(labels, scores):
    """−log Plackett–Luce likelihood of the ideal order, for labels without ties."""
    order = np.argsort(-labels)
    value, grad = 0.0, np.zeros(len(scores))
    for place in range(len(order)):
        rest = order[place:]
        odds = np.exp(scores[rest])
        value += np.log(odds.sum()) - scores[order[place]]
        grad[rest] += odds / odds.sum()
        grad[order[place]] -= 1
    return value, grad


def random_population(rng, m, grades=4):
    """Dependent grades: a few outcomes, every document with some gain."""
    outcomes = rng.integers(0, grades, (rng.integers(m, 3 * m), m))
    outcomes[0] = np.maximum(outcomes[0], 1)
    return Population(outcomes, rng.dirichlet(np.ones(len(outcomes)) * 0.7))


# --- what each loss learns -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "optimum"),
    [
        (squared, lambda expected: expected),
        (query_squared, lambda expected: expected - expected.mean()),
        (power, np.cbrt),
        (modified_squared, lambda expected: expected / 7),
        (multicategory, lambda expected: np.log(expected) - np.log(expected).mean()),
    ],
    ids=["squared", "query-squared", "power", "modified-squared", "multicategory"],
)
def test_regression_losses_learn_a_rising_function_of_the_expected_gain(loss, optimum):
    rng = np.random.default_rng(30)
    for m in (2, 3, 5):
        population = random_population(rng, m)
        found = population_minimizer(loss, population)
        expected = population.expected_gains()
        np.testing.assert_allclose(found.scores, optimum(expected), atol=1e-7)
        assert found.gap < 1e-11  # Newton's last steps; line searches on the value stop some orders before
        assert order_agrees(found.scores, expected)


@pytest.mark.parametrize(
    ("loss", "difference"),
    [
        (hinge, 1.0),
        (logistic, math.log(0.6 / 0.4)),
        (exponential, math.log(0.6 / 0.4) / 2),
        (list_mle, math.log(0.6 / 0.4)),
    ],
    ids=["hinge", "logistic", "exponential", "list-mle"],
)
def test_pairs_and_list_mle_follow_the_majority_and_are_caught(loss, difference):
    found = population_minimizer(loss, SKEWED)
    assert found.gap < 1e-7
    assert found.scores[0] - found.scores[1] == pytest.approx(difference, abs=1e-6)
    assert not order_agrees(found.scores, SKEWED.expected_gains())
    # It is no quibble: the order that they learn loses DCG.
    learned, optimal = SKEWED.expected([found.scores, SKEWED.expected_gains()], "dcg@1")
    assert (learned, optimal) == (pytest.approx(1.0), pytest.approx(2.8))


def test_a_minimum_at_a_kink_is_certified():
    # E|s − y| is smallest at the medians, which for these three documents are no means.
    def absolute(labels, scores):
        return np.abs(scores - labels).sum(), np.sign(scores - labels)

    population = Population.independent([[0.6, 0.0, 0.4], [0.3, 0.7, 0.0], [0.1, 0.3, 0.6]])
    found = population_minimizer(absolute, population)
    np.testing.assert_allclose(found.scores, [0, 1, 2], atol=1e-6)
    medians = abs(population.outcomes - np.array([0, 1, 2])).sum(axis=1) @ population.probabilities
    assert found.value == pytest.approx(medians, abs=1e-7)
    assert 0 <= found.gap <= 1e-7


def test_scores_have_mean_zero_where_a_shift_changes_nothing():
    rng = np.random.default_rng(33)
    for m in (2, 3, 4, 5):  # cutting planes end in corners, which are no place to show
        found = population_minimizer(hinge, random_population(rng, m))
        assert found.scores.sum() == pytest.approx(0, abs=1e-9)


def test_a_loss_without_a_finite_minimizer_ends_at_the_border_with_the_right_order():
    sure = Population([[2, 1, 0]], [1.0])
    found = population_minimizer(logistic, sure, radius=5.0)
    assert order_agrees(found.scores, [2, 1, 0])
    assert np.abs(found.scores).max() == pytest.approx(5.0)


def test_a_loss_that_is_not_convex_is_minimized_from_several_starts_without_a_certificate():
    def two_wells(labels, scores):
        return ((scores**2 - 1) ** 2 - labels * scores).sum(), 4 * scores * (scores**2 - 1) - labels

    found = population_minimizer(two_wells, Population([[1, -1]], [1.0]), convex=False, radius=3.0)
    assert math.isnan(found.gap)
    root = max(np.roots([4, 0, -4, -1]).real)  # 4 s (s² − 1) = 1, in the deeper well
    np.testing.assert_allclose(found.scores, [root, -root], atol=1e-6)


def rooted(labels, scores):
    """√(|s − 1| + 0.001): a kink at its minimum, and not convex around it."""
    root = np.sqrt(np.abs(scores - 1) + 1e-3)
    return root.sum(), np.where(scores < 1, -0.5, 0.5) / root


class _Bound:
    def __init__(self, labels, queries, query_weights):
        self.labels, self.rows, self.chances = labels, list(queries), query_weights

    def at(self, scores):
        parts = [squared(self.labels[rows], scores[rows]) for rows in self.rows]
        value = float(np.dot(self.chances, [part[0] for part in parts]))
        grad = np.concatenate([chance * part[1] for chance, part in zip(self.chances, parts, strict=True)])
        return type("Eval", (), {"value": value, "grad": grad})


class _SquaredByQueries:
    """The protocol of toprank's losses, as little of it as needed."""

    def on(self, labels, queries, query_weights=None):
        assert isinstance(queries, Queries)
        return _Bound(labels, queries, query_weights)


def test_anything_with_on_and_at_is_a_loss():
    found = population_minimizer(_SquaredByQueries(), SKEWED)
    np.testing.assert_allclose(found.scores, SKEWED.expected_gains(), atol=1e-8)


# --- toprank's own losses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss",
    [Squared(), QuerySquared(), ModifiedSquared(), PowerRegression(), Multicategory()],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_that_claim_dcg_order_by_the_expected_gain(loss):
    rng = np.random.default_rng(32)
    assert "DCG" in loss.traits.consistent
    for m in (2, 3, 4, 5):
        population = random_population(rng, m)
        assert order_agrees(population_minimizer(loss, population).scores, population.expected_gains())


@pytest.mark.parametrize(
    "loss",
    [Hinge(), SquaredHinge(), Logistic(), Exponential(), ListMLE(), PListMLE()],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_that_follow_the_majority_claim_no_dcg(loss):
    assert "DCG" not in loss.traits.consistent
    assert not order_agrees(population_minimizer(loss, SKEWED).scores, SKEWED.expected_gains())


@pytest.mark.parametrize(("scheme", "agrees"), [("ones", True), ("grade", False), ("top", False)])
def test_importance_weights_that_depend_on_the_grade_are_outside_theorem_5(scheme, agrees):
    # Theorem 5 takes w(x, S). Weights that look at the grade see the rare 7 more often than the 0: E[wt]/E[w] > E[t].
    population = Population([[2, 0], [2, 3]], [0.6, 0.4])  # E[G] = 3 and 2.8
    found = population_minimizer(ImportanceWeightedSquared(scheme=scheme, top_k=1, delta=0.5), population)
    assert order_agrees(found.scores, population.expected_gains()) == agrees


# --- which order is best ---------------------------------------------------------------------------------------------


def test_a_sure_small_gain_beats_a_rare_large_one_under_ndcg_and_not_under_dcg():
    population = Population([[1, 0], [1, 3]], [0.8, 0.2])
    np.testing.assert_allclose(population.expected_gains(), [1.0, 0.2 * 7])
    order, value = optimal_order(population, "dcg@1")
    assert (order.tolist(), value) == ([1, 0], pytest.approx(1.4))
    order, value = optimal_order(population, "ndcg@1")
    assert (order.tolist(), value) == ([0, 1], pytest.approx(0.8 + 0.2 / 7))


def expected_shares(population, k):
    """E[G(y_j)/IDCG@k]: what NDCG's optimum orders by."""
    c = 1 / np.log2(1 + np.arange(1, k + 1))
    ideal = np.sort(gains(population.outcomes), axis=1)[:, ::-1][:, :k] @ c
    return population.probabilities @ (gains(population.outcomes) / np.where(ideal > 0, ideal, 1)[:, None])


def test_trying_all_orders_confirms_theorem_1_for_dcg_and_its_counterpart_for_ndcg():
    rng, differ = np.random.default_rng(31), 0
    for _ in range(15):
        population = random_population(rng, 4)
        best = {metric: optimal_order(population, metric)[0] for metric in ("dcg@4", "ndcg@4", "t")}
        for metric, target in (
            ("dcg@4", population.expected_gains()),
            ("ndcg@4", expected_shares(population, 4)),
        ):
            assert np.array_equal(best[metric], np.argsort(-target))
        differ += not np.array_equal(best["dcg@4"], best["ndcg@4"])
    assert differ > 0


def test_the_bayes_order_is_best_for_an_error_too():
    # The OWA error is better the lower it is: three sure grades, so the best order has none.
    order, value = optimal_order(Population([[0, 1, 0]], [1.0]), "owa")
    assert order[0] == 1
    assert value == 0


def test_the_expected_metric_leaves_undefined_outcomes_out():
    population = Population([[1, 1], [1, 0]], [0.5, 0.5])  # T says nothing about equal grades
    assert population.expected([2.0, 1.0], "t").tolist() == [1.0]


def test_independent_grades_have_product_probabilities():
    chances = np.array([[0.2, 0.8, 0.0], [0.5, 0.25, 0.25]])
    population = Population.independent(chances, grades=[0, 1, 4])
    assert len(population.outcomes) == 6
    np.testing.assert_allclose(population.expected_gains("linear"), chances @ [0, 1, 4])
    assert population.probabilities.sum() == pytest.approx(1)


def test_order_agreement_is_one_sided_and_has_a_tolerance():
    assert order_agrees([3, 2, 1], [1, 1, 0])
    assert not order_agrees([1, 1, 0], [3, 2, 1])
    assert order_agrees([0.0, 1e-9, 1.0], [1e-8, 0.0, 5.0])
    assert not order_agrees([0.0, 1e-9, 1.0], [1e-8, 0.0, 5.0], tolerance=0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Population([1, 2], [1.0]), "table of finite grades"),
        (lambda: Population([[1, np.nan]], [1.0]), "table of finite grades"),
        (lambda: Population([[1, 2]], [0.5, 0.5]), "2 probabilities for 1 outcomes"),
        (lambda: Population([[1, 2]], [0.5]), "sum to 1, not to 0.5"),
        (lambda: Population([[1], [2]], [1.5, -0.5]), "must be non-negative"),
        (lambda: Population.independent([0.5, 0.5]), "one row for each document"),
        (lambda: Population.independent([[0.5, 0.5]], grades=[1]), "1 grades for 2 columns"),
        (lambda: SKEWED.expected([1.0], "dcg"), "needs 2 scores, not 1"),
        (lambda: order_agrees([1, 2], [1]), "one length"),
        (lambda: optimal_order(Population([[0] * 11], [1.0]), "dcg"), "orders of 11 documents"),
        (lambda: population_minimizer("hinge", SKEWED), "loss must be"),
        (lambda: population_minimizer(squared, SKEWED, radius=0), "positive number"),
        (lambda: population_minimizer(rooted, SKEWED), "Check that it is convex"),
    ],
)
def test_bad_input_gets_a_sentence(call, message):
    with pytest.raises(DataError, match=message):
        call()
