"""Pointwise and class-space losses against plain formulas; what they refuse; the facts they claim."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import rankings
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError
from toprank.losses.labels import targets_of
from toprank.losses.ordinal import Multinomial, Ordinal
from toprank.losses.pointwise import (
    CrossEntropy,
    ImportanceWeightedSquared,
    ModifiedSquared,
    PowerRegression,
    QuerySquared,
    Squared,
)

SCORES = st.floats(-3, 3, allow_nan=False)
WEIGHTS = (1.5, 0.5, 2.0, 1.0)


def per_query(data):
    return [range(rows.start, rows.stop) for rows in data.queries]


def exp_gain(label):
    return 2.0**label - 1


def query_shifted(s, t, w):
    total = sum(w)
    shift = sum(wi * (ti - si) for si, ti, wi in zip(s, t, w, strict=True)) / total
    return sum(wi * (si + shift - ti) ** 2 for si, ti, wi in zip(s, t, w, strict=True))


def modified(s, t):
    return (1 - t) * max(0.0, s) ** 2 + t * max(0.0, 1 - s) ** 2


@given(problem=rankings(distinct_scores=SCORES), per_document=st.booleans(), weighted=st.booleans())
@settings(max_examples=60, deadline=None)
def test_formulas(problem, per_document, weighted):
    scores, data = problem
    labels, n = data.labels, len(scores)
    weights = np.resize(WEIGHTS, n) if weighted else np.ones(n)
    top = exp_gain(max(labels)) or 1.0

    def mean(query_loss):
        return sum(query_loss(rows) / (len(rows) if per_document else 1) for rows in per_query(data)) / len(
            data.queries
        )

    expected = {
        Squared(per_document=per_document): mean(
            lambda rows: sum(weights[j] * (scores[j] - exp_gain(labels[j])) ** 2 for j in rows)
        ),
        QuerySquared(gain="linear", per_document=per_document): mean(
            lambda rows: query_shifted(scores[rows], labels[rows], weights[rows])
        ),
        ModifiedSquared(per_document=per_document): mean(
            lambda rows: sum(weights[j] * modified(scores[j], exp_gain(labels[j]) / top) for j in rows)
        ),
        PowerRegression(power=3, per_document=per_document): mean(
            lambda rows: sum(
                weights[j] * (abs(scores[j]) ** 3 / 3 - scores[j] * exp_gain(labels[j]) / top) for j in rows
            )
        ),
        CrossEntropy(per_document=per_document): mean(
            lambda rows: sum(
                weights[j] * (np.logaddexp(0, scores[j]) - scores[j] * exp_gain(labels[j]) / top) for j in rows
            )
        ),
    }
    for loss, value in expected.items():
        bound = loss.on(labels, data.queries, document_weights=weights if weighted else None)
        assert bound.at(scores).value == pytest.approx(value, rel=1e-10, abs=1e-10), loss


@given(problem=rankings(distinct_scores=SCORES), delta=st.sampled_from([-0.5, 0.0, 0.5, 2.0]))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("scheme", ["ones", "grade", "top", "frequency"])
def test_importance_weighted_formula(scheme, problem, delta):
    scores, data = problem
    loss = ImportanceWeightedSquared(scheme=scheme, delta=delta, u=3.0, top_k=2)
    w = loss.importance(data.labels, data.queries)
    document_weights = np.resize(WEIGHTS, len(scores))
    total = 0.0
    for rows in per_query(data):
        total += sum(document_weights[j] * w[j] * (scores[j] - exp_gain(data.labels[j])) ** 2 for j in rows)
        offenders = [document_weights[j] * max(0.0, scores[j] - delta) ** 2 for j in rows if w[j] < 1]
        total += 3.0 * max(offenders, default=0.0)
    value = loss.on(data.labels, data.queries, document_weights=document_weights).at(scores).value
    assert value == pytest.approx(total / len(data.queries), rel=1e-10)
    targets = np.array([exp_gain(label) for label in data.labels])
    assert (w[targets > delta] >= 1).all()  # Theorem 5 of Cossock & Zhang 2008
    assert (w >= 0).all()


def chance_to_be_on_top(targets, k):
    """How often each document is among the first k when all orders of ties are equally likely, by enumeration."""
    counts, orders = np.zeros(len(targets)), 0
    for order in itertools.permutations(range(len(targets))):
        if all(targets[a] >= targets[b] for a, b in itertools.pairwise(order)):
            orders += 1
            counts[list(order[:k])] += 1
    return counts / orders


@pytest.mark.parametrize("k", [1, 2, 3, 4, 9])
def test_the_scheme_top_is_a_chance_over_tie_orders(k):
    labels = [1.0, 0.0, 2.0, 1.0, 1.0, 0.0]
    loss = ImportanceWeightedSquared(scheme="top", top_k=k, delta=100.0)
    actual = loss.importance(labels, Queries([0, 6]))
    np.testing.assert_allclose(actual, chance_to_be_on_top(labels, k), rtol=1e-12)


def test_the_schemes_by_grade_and_by_frequency():
    labels, queries = [0, 1, 2, 0, 0, 2, 1, 1], Queries([0, 5, 8])
    by_grade = ImportanceWeightedSquared(scheme="grade", delta=0.5).importance(labels, queries)
    np.testing.assert_allclose(by_grade, [0, 1, 3, 0, 0, 3, 1, 1])
    by_grade = ImportanceWeightedSquared(scheme="grade", delta=1.0).importance(labels, queries)
    np.testing.assert_allclose(by_grade, np.array([0, 1, 3, 0, 0, 3, 1, 1]) / 3)
    frequency = ImportanceWeightedSquared(scheme="frequency", delta=0.5).importance(labels, queries)
    np.testing.assert_allclose(frequency, [1 / 3, 1, 1, 1 / 3, 1 / 3, 2, 1, 1])
    nothing_high = ImportanceWeightedSquared(scheme="frequency", delta=9).importance(labels, queries)
    np.testing.assert_allclose(nothing_high, [1 / 3, 1, 1, 1 / 3, 1 / 3, 1, 0.5, 0.5])


def test_refinement_ends_with_nobody_ignored_above_delta():
    """The loop of Cossock & Zhang 2008 §VI with a linear scorer: each round only adds, and at the end the sup term is
    zero."""
    rng = np.random.default_rng(0)
    n = 400
    X = np.column_stack([rng.standard_normal((n, 3)), np.ones(n)])
    labels = (X @ [1.0, 0.5, 0.0, -1.5] + rng.standard_normal(n) > 0).astype(float)
    queries = Queries.from_sizes([100] * 4)
    loss = ImportanceWeightedSquared(scheme="top", top_k=3, delta=0.3, u=1.0)
    important = loss.importance(labels, queries) >= 1
    active = loss.first_active(labels, queries, contrast=20)
    assert active[important].all()
    assert queries.sum((active & ~important).astype(int)).tolist() == [20] * 4
    for _ in range(50):
        weights = loss.active_weights(labels, queries, active)
        assert (weights[active] >= 1).all()
        assert not weights[~active].any()
        root = np.sqrt(weights)
        scores = X @ np.linalg.lstsq(X * root[:, None], labels * root, rcond=None)[0]
        grown = loss.now_active(active, scores)
        assert (grown >= active).all()
        if (grown == active).all():
            break
        active = grown
    else:
        pytest.fail("refinement did not end")
    assert not (scores[~active] > loss.delta).any()
    assert not active.all()


@pytest.mark.parametrize(
    ("loss", "optimum"),
    [
        (Squared(gain=None), lambda mean: mean),
        (ModifiedSquared(gain=None), lambda mean: mean),
        (PowerRegression(gain=None), lambda mean: mean ** (1 / 3)),
        (PowerRegression(gain=None, power=2), lambda mean: mean),
        (CrossEntropy(gain=None), lambda mean: np.log(mean / (1 - mean))),
    ],
)
def test_population_minimizers_order_by_the_expected_target(loss, optimum):
    """Labels 0, ½, 1 with known chances, as document weights: the slopes cancel at the stated optimum."""
    for chances in ([0.2, 0.5, 0.3], [0.9, 0.05, 0.05], [0.1, 0.1, 0.8]):
        labels = np.array([0.0, 0.5, 1.0])
        bound = loss.on(labels, Queries([0, 3]), document_weights=chances)
        best = optimum(float(np.dot(chances, labels)))
        assert bound.at(np.full(3, best)).grad.sum() == pytest.approx(0.0, abs=1e-12)


@given(problem=rankings(max_grade=3), seed=st.integers(0, 99), per_document=st.booleans())
@settings(max_examples=40, deadline=None)
def test_multinomial_formula(problem, seed, per_document):
    _, data = problem
    scores = np.random.default_rng(seed).standard_normal((len(data.labels), 4))
    total = 0.0
    for rows in per_query(data):
        terms = [math.log(sum(math.exp(s) for s in scores[j])) - scores[j, int(data.labels[j])] for j in rows]
        total += sum(terms) / (len(rows) if per_document else 1)
    bound = Multinomial(n_grades=4, per_document=per_document).on(data.labels, data.queries)
    assert bound.at(scores).value == pytest.approx(total / len(data.queries), rel=1e-12)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def grade_chances(logits):
    """P(0), P(1) … from falling cumulative logits."""
    cumulative = [1.0, *(sigmoid(c) for c in logits), 0.0]
    return [a - b for a, b in itertools.pairwise(cumulative)]


@given(problem=rankings(max_grade=3), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_ordinal_formula(problem, seed):
    _, data = problem
    rng = np.random.default_rng(seed)
    thresholds = np.cumsum(rng.uniform(0.1, 2.0, 3))
    logits = rng.standard_normal((len(data.labels), 1)) * 2 - thresholds
    total = sum(-math.log(grade_chances(row)[int(label)]) for row, label in zip(logits, data.labels, strict=True))
    bound = Ordinal(n_grades=4).on(data.labels, data.queries)
    assert bound.at(logits).value == pytest.approx(total / len(data.queries), rel=1e-10)


def test_ordinal_with_two_grades_is_logistic_regression():
    logits, labels = np.array([[0.3], [-1.0], [2.0]]), [1, 0, 0]
    expected = sum(math.log1p(math.exp(-c if y else c)) for c, y in zip(logits[:, 0], labels, strict=True))
    assert Ordinal().on(labels, Queries([0, 3])).at(logits).value == pytest.approx(expected, rel=1e-14)


def test_ordinal_goes_on_smoothly_where_logits_meet_and_cross():
    """At a gap of 1e-6 value, slope and curvature join; below it the loss is a parabola, above it the likelihood."""
    bound = Ordinal(n_grades=3).on([1], Queries([0, 1]))

    def at(gap):
        return bound.at([[gap / 2, -gap / 2]], curvature=True)

    above, below = at(1e-6 * (1 + 1e-9)), at(1e-6 * (1 - 1e-9))
    assert above.value == pytest.approx(below.value, rel=1e-9)
    np.testing.assert_allclose(above.grad, below.grad, rtol=1e-7)
    np.testing.assert_allclose(above.curvature.diagonal(), below.curvature.diagonal(), rtol=1e-7)
    crossed = [at(gap).grad[0, 0] for gap in (-1.0, -2.0, -3.0)]
    # The step of one in the gap moves the parabola's slope by 1e12; the two sigmoids move by less than 1.
    np.testing.assert_allclose(np.diff(crossed), [-1e12] * 2, rtol=1e-5)


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Squared(gain="cubic"), "gain called 'cubic'"),
        (lambda: ImportanceWeightedSquared(scheme="grades"), "did you mean 'grade'"),
    ],
)
def test_unknown_names_offer_the_nearest(make, message):
    with pytest.raises(UnknownNameError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Squared(max_grade=math.inf), "max_grade must be a finite number"),
        (lambda: PowerRegression(power=1.5), "power must be a number of at least 2 and at most 32"),
        (lambda: PowerRegression(power=64), "power must be a number of at least 2 and at most 32"),
        (lambda: ImportanceWeightedSquared(delta=math.nan), "delta must be a finite number"),
        (lambda: ImportanceWeightedSquared(u=-1), "u must be a number of at least 0"),
        (lambda: ImportanceWeightedSquared(top_k=0), "top_k must be a whole number of at least 1"),
        (lambda: Multinomial(n_grades=1), "n_grades must be a whole number of at least 2"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(DataError, match=message):
        make()


@pytest.mark.parametrize(
    ("loss", "labels", "message"),
    [
        (Squared(), [0, -1], "Gains must be between 0 and"),
        (Squared(), [0, 5000], "Gains must be between"),
        (Squared(max_grade=1), [0, 2], "max_grade is 1, but the labels go up to 2"),
        (ModifiedSquared(gain=None), [0, 2], "must lie between 0 and 1"),
        (ModifiedSquared(gain=[3, 1]), [0, 1], "decreases with the grade"),
        (Multinomial(), [0, 0.5], "whole grades .* document 1 has the label 0.5"),
        (Ordinal(), [-1, 1], "whole grades .* document 0 has the label -1"),
        (Multinomial(n_grades=2), [0, 2], "n_grades=2 .* go up to 2"),
    ],
)
def test_labels_that_a_loss_cannot_take(loss, labels, message):
    with pytest.raises(DataError, match=message):
        loss.on(labels, Queries([0, 2]))


def test_negative_labels_are_fine_where_they_are_the_targets():
    assert Squared(gain=None).on([-1, 2], Queries([0, 2])).at([-1.0, 2.0]).value == 0.0


def test_targets_of_worthless_data_are_zero():
    assert targets_of(np.zeros(3), "exponential", 0.0, unit=True).tolist() == [0, 0, 0]


@pytest.mark.parametrize("scores", [[0.0, 0.0], [[0.0], [0.0]], [[0.0] * 3] * 2])
def test_class_losses_want_their_columns(scores):
    with pytest.raises(DataError, match="needs scores with 2 columns"):
        Multinomial().on([0, 1], Queries([0, 2])).at(scores)
