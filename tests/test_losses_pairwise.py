"""Pairwise losses against plain double loops; the fast ways against the slow one; numbers at the edge."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import rankings
from toprank import kernels
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError
from toprank.losses.pairwise import (
    MAX_PAIRS_PER_DOCUMENT,
    Exponential,
    Hinge,
    Logistic,
    PairFrame,
    SquaredHinge,
)

# (value, slope) of each margin function; the slope of a hinge at its kink is 0 by choice.
MARGINS = {
    Hinge: lambda z: (max(0.0, 1 - z), -1.0 if z < 1 else 0.0),
    SquaredHinge: lambda z: (max(0.0, 1 - z) ** 2, -2 * max(0.0, 1 - z)),
    Logistic: lambda z: (float(np.logaddexp(0, -z)), -math.exp(-float(np.logaddexp(0, z)))),
    Exponential: lambda z: (math.exp(-z), -math.exp(-z)),
}
PAIR_WEIGHTS = ("one", "difference", "margin")


def plain_pairs(family, pair_weight, scores, labels, weights):
    """Mean over the pairs of one query, and its gradient."""
    total, grad, n_pairs = 0.0, np.zeros(len(scores)), 0
    for i, better in enumerate(labels):
        for j, worse in enumerate(labels):
            if better <= worse:
                continue
            n_pairs += 1
            margin = scores[i] - scores[j] - (better - worse if pair_weight == "margin" else 0.0)
            factor = weights[i] * weights[j] * (better - worse if pair_weight == "difference" else 1.0)
            value, slope = MARGINS[family](margin)
            total += factor * value
            grad[i] += factor * slope
            grad[j] -= factor * slope
    return total / max(n_pairs, 1), grad / max(n_pairs, 1)


def compare_with_plain(family, pair_weight, scores, labels, queries, weights):
    bound = family(pair_weight=pair_weight, gain="linear").on(labels, queries, document_weights=weights)
    used = np.ones(len(scores)) if weights is None else weights
    parts = [plain_pairs(family, pair_weight, scores[rows], labels[rows], used[rows]) for rows in queries]
    result = bound.at(scores)
    assert result.value == pytest.approx(np.mean([value for value, _ in parts]), rel=1e-11, abs=1e-14)
    expected = np.concatenate([grad for _, grad in parts]) / len(queries)
    np.testing.assert_allclose(result.grad, expected, rtol=1e-10, atol=1e-13 * max(1.0, np.abs(expected).max()))


SCORES = st.sampled_from([-7.0, -1.5, -0.5, 0.0, 0.25, 0.5, 1.0, 1.25, 6.0])


@given(problem=rankings(max_documents=9, distinct_scores=SCORES), weighted=st.booleans())
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("pair_weight", PAIR_WEIGHTS)
@pytest.mark.parametrize("family", MARGINS)
def test_pairs_are_their_definition(family, pair_weight, problem, weighted):
    scores, data = problem
    weights = np.resize([1.0, 2.0, 0.5, 0.0], len(scores)) if weighted else None
    if weights is not None and not weights.any():
        weights = None
    compare_with_plain(family, pair_weight, scores, data.labels, data.queries, weights)


@pytest.mark.parametrize("kind", ["few grades", "all different"])
@pytest.mark.parametrize("pair_weight", PAIR_WEIGHTS)
@pytest.mark.parametrize("family", MARGINS)
def test_long_queries(family, pair_weight, kind):
    """Long enough for sweeps with several levels of the tree over grades, and several chunks of the products."""
    rng = np.random.default_rng(0)
    queries = Queries.from_sizes([70, 1, 210])
    n = queries.n_documents
    labels = (
        rng.integers(0, 5, n).astype(float) if kind == "few grades" else rng.permutation(n) / 64.0
    )  # exact, also at kinks
    assert (
        PairFrame.from_labels(labels, queries, np.ones(n)).pairs >= MAX_PAIRS_PER_DOCUMENT * queries.sizes
    ).tolist() == [
        False,
        False,
        True,
    ]
    compare_with_plain(family, pair_weight, 2 * rng.standard_normal(n), labels, queries, None)
    compare_with_plain(family, pair_weight, np.round(rng.standard_normal(n)), labels, queries, rng.uniform(0, 2, n))


@pytest.mark.parametrize("pair_weight", PAIR_WEIGHTS)
@pytest.mark.parametrize("spread", [30.0, 250.0, 298.0, 301.0, 2e4])
def test_logistic_over_any_range_of_scores(spread, pair_weight):
    """Up to a range of 299 exponentials are per document (in shorter and shorter products), beyond it per pair."""
    rng = np.random.default_rng(1)
    scores, labels = rng.uniform(0, spread, 40), rng.integers(0, 4, 40).astype(float)
    scores[:2] = 0.0, spread
    compare_with_plain(Logistic, pair_weight, scores, labels, Queries([0, 40]), None)


@pytest.mark.parametrize("pair_weight", ["one", "difference"])
def test_exponential_of_well_ordered_scores_over_a_huge_range(pair_weight):
    """No pair is steep, yet e^s of single documents would overflow: shifts by grade keep the sums exact."""
    labels = np.array([2.0, 0.0, 1.0, 1.0, 2.0, 0.0])
    scores = 1000 * labels + np.array([0.0, 0.5, -0.5, 0.25, 1.0, 2.0])
    bound = Exponential(pair_weight=pair_weight).on(labels, Queries([0, 6]))
    assert bound.at(scores).value < 1e-300
    compare_with_plain(Exponential, pair_weight, scores / 4, labels, Queries([0, 6]), None)


def test_exponential_goes_on_as_its_tangent():
    bound = Exponential().on([1, 0], Queries([0, 2]))
    at_edge, beyond = bound.at([0.0, 600.0]), bound.at([0.0, 650.0], curvature=True)
    assert at_edge.value == pytest.approx(math.exp(600), rel=1e-12)
    assert beyond.value == pytest.approx(math.exp(600) * 51, rel=1e-12)
    np.testing.assert_allclose(beyond.grad, at_edge.grad, rtol=1e-12)
    assert not beyond.curvature.diagonal().any()


def sweep_and_plain(kind, scores, labels, weights, by_difference):
    """(mean over pairs, slopes) of one query by the sweep and by the loop over pairs."""
    frame = PairFrame.from_labels(labels, Queries([0, len(labels)]), weights)
    s, results = scores[frame.order], []
    of_labels = np.array([0, len(s)]), frame.begin, frame.end, frame.labels, frame.weights, frame.pairs
    for many_pairs in (0.0, math.inf):
        loss, slopes, falling = np.empty(1), np.empty(len(s)), np.argsort(-s, kind="stable")
        options = vars(kernels.Margin)[kind], True, by_difference, many_pairs, np.ones(1)
        kernels.pair_losses(s, falling, *of_labels, *options, loss, slopes)
        results.append((loss[0], slopes))
    return results


@given(problem=rankings(max_queries=1, max_documents=12, distinct_scores=SCORES), by_difference=st.booleans())
@settings(max_examples=100, deadline=None)
@pytest.mark.parametrize("kind", ["HINGE", "SQUARED_HINGE"])
def test_the_sweep_is_the_sum_over_pairs(kind, problem, by_difference):
    scores, data = problem
    weights = np.resize([1.0, 2.0, 0.5], len(scores))
    (value, slopes), (expected, expected_slopes) = sweep_and_plain(kind, scores, data.labels, weights, by_difference)
    assert value == pytest.approx(expected, rel=1e-12, abs=1e-13)
    np.testing.assert_allclose(slopes, expected_slopes, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("by_difference", [False, True])
@pytest.mark.parametrize("kind", ["HINGE", "SQUARED_HINGE"])
def test_the_sweep_does_not_cancel(kind, by_difference):
    """Two clusters 1e8 apart in the right order: only pairs inside a cluster count, and they keep all their digits."""
    eighths, ones = np.arange(8) / 8, np.ones(16)
    labels = np.r_[[0, 1] * 4, [2, 3] * 4].astype(float)
    for apart in (1e8, 100.0):
        (value, slopes), (expected, expected_slopes) = sweep_and_plain(
            kind, np.r_[eighths, apart + eighths], labels, ones, by_difference
        )
        assert value == pytest.approx(expected, rel=1e-13)
        np.testing.assert_allclose(slopes, expected_slopes, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("family", [Hinge, SquaredHinge, Logistic])
def test_one_bad_pair_far_apart(family):
    value = family().on([1, 0], Queries([0, 2])).at([-1e8, 1e8]).value
    assert value == pytest.approx({Hinge: 2e8 + 1, SquaredHinge: (2e8 + 1) ** 2, Logistic: 2e8}[family], rel=1e-15)


def test_constant_directions_are_flat():
    """Shift invariance of the curvature, exactly: columns of ones give zeros, not rounding errors."""
    rng = np.random.default_rng(2)
    for family in (SquaredHinge, Logistic, Exponential):
        bound = family().on(rng.integers(0, 4, 30), Queries([0, 30]))
        curvature = bound.at(rng.standard_normal(30), curvature=True).curvature
        assert not (curvature @ np.ones((30, 2))).any()


def test_refusals():
    with pytest.raises(UnknownNameError, match="did you mean 'difference'"):
        Hinge(pair_weight="diference")
    with pytest.raises(UnknownNameError, match="gain called 'cubic'"):
        Logistic(gain="cubic")
    with pytest.raises(DataError, match="max_grade must be a finite number"):
        Logistic(max_grade=math.nan)
    with pytest.raises(DataError, match="Gains must be between 0 and"):
        Hinge(pair_weight="margin").on([-1, 1], Queries([0, 2]))
    # Where targets are not needed, labels may be anything that has an order.
    assert Hinge().on([-1, 1], Queries([0, 2])).at([0.0, 1.0]).value == 0.0
