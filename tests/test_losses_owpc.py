"""OWPC against plain formulas, its special cases, its majorizer, and SVM-map against all rankings."""

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
from toprank.losses.hinges import OWPC, SVMmap
from toprank.losses.pairwise import Hinge

SCORES = st.sampled_from([-2.5, -1.0, -0.25, 0.0, 0.25, 0.5, 1.0, 3.0])
GENERATORS = {
    "constant": lambda j, n, p: 1.0,
    "top": lambda j, n, p: float(j <= max(1, p * n / 100)),
    "1/j": lambda j, n, p: 1 / j,
    "exp": lambda j, n, p: 2 ** (-100 / p * j / n),
    "max": lambda j, n, p: float(j == 1),
}


def plain_owpc(scores, labels, weights, generator, p):
    """The definition: sort each relevant document's hinge losses, weigh, average; then average over thresholds."""
    per_threshold = []
    for threshold in sorted(set(labels))[1:]:
        relevant = [d for d, y in enumerate(labels) if y >= threshold]
        irrelevant = [d for d, y in enumerate(labels) if y < threshold]
        n = len(irrelevant)
        alpha = np.array([GENERATORS[generator](j, n, p) for j in range(1, n + 1)])
        alpha /= alpha.sum()
        total = 0.0
        for d in relevant:
            losses = sorted((max(0.0, 1 - (scores[d] - scores[e])) for e in irrelevant), reverse=True)
            total += weights[d] * float(np.dot(alpha, losses))
        per_threshold.append(total / len(relevant))
    return sum(per_threshold) / len(per_threshold) if per_threshold else 0.0


@given(problem=rankings(max_documents=9, distinct_scores=SCORES), p=st.sampled_from([5, 20, 60]))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("generator", GENERATORS)
def test_owpc_is_its_definition(generator, problem, p):
    scores, data = problem
    weights = np.resize([1.0, 2.0, 0.5], len(scores))
    bound = OWPC(weights=generator, p=p).on(data.labels, data.queries, document_weights=weights)
    expected = [
        plain_owpc(scores[rows], data.labels[rows].tolist(), weights[rows], generator, p) for rows in data.queries
    ]
    assert bound.at(scores).value == pytest.approx(np.mean(expected), rel=1e-10, abs=1e-12)


@given(problem=rankings(max_documents=9, max_grade=1, distinct_scores=SCORES))
@settings(max_examples=60, deadline=None)
def test_constant_weights_on_binary_labels_are_rank_svm(problem):
    scores, data = problem
    owpc, hinge = (loss.on(data.labels, data.queries).at(scores) for loss in (OWPC(weights="constant"), Hinge()))
    assert owpc.value == pytest.approx(hinge.value, rel=1e-12)
    np.testing.assert_allclose(owpc.grad, hinge.grad, rtol=1e-12, atol=1e-15)


@given(scores=st.lists(st.floats(-3, 3), min_size=2, max_size=8), right=st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_max_with_one_relevant_document_is_the_multiclass_svm(scores, right):
    right %= len(scores)
    labels = np.arange(len(scores)) == right
    rivals = [s for j, s in enumerate(scores) if j != right]
    value = OWPC(weights="max").on(labels, Queries([0, len(scores)])).at(scores).value
    assert value == pytest.approx(max(0.0, 1 + max(rivals) - scores[right]), rel=1e-12, abs=1e-12)


def test_many_grades_are_thresholds_averaged():
    """Real labels: each cut between neighbors in the ideal order is one threshold."""
    rng = np.random.default_rng(0)
    labels, scores = rng.standard_normal(12), rng.standard_normal(12)
    cuts = np.sort(labels)[1:]
    queries = Queries([0, 12])
    parts = [OWPC().on((labels >= cut).astype(float), queries).at(scores) for cut in cuts]
    whole = OWPC().on(labels, queries).at(scores)
    assert whole.value == pytest.approx(np.mean([part.value for part in parts]), rel=1e-12)
    np.testing.assert_allclose(whole.grad, np.mean([part.grad for part in parts], axis=0), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("generator", GENERATORS)
def test_ties_share_their_weights(generator):
    """At equal scores every irrelevant document gets the same subgradient, whatever its row."""
    grad = OWPC(weights=generator).on([0, 1, 0, 0], Queries([0, 4])).at(np.zeros(4)).grad
    np.testing.assert_allclose(grad, [1 / 3, -1, 1 / 3, 1 / 3], rtol=1e-12)


def test_a_steep_exponential_does_not_underflow():
    value = OWPC(weights="exp", p=0.01).on([1, 0, 0], Queries([0, 3])).at([0.0, 0.0, -5.0]).value
    assert value == pytest.approx(1.0, rel=1e-12)


def test_distant_clusters_do_not_cancel():
    """Two clusters 1e8 apart in the right order: only pairs inside a cluster count, and they count exactly."""
    eighths = np.arange(8) / 8
    scores, labels = np.r_[eighths, 1e8 + eighths], np.r_[[0, 1] * 4, [2, 3] * 4].astype(float)
    near = np.r_[eighths, 100 + eighths]
    for loss in (OWPC(), OWPC(weights="top", p=30), Hinge()):
        bound = loss.on(labels, Queries([0, 16]))
        assert bound.at(scores).value == pytest.approx(bound.at(near).value, rel=1e-13)


def slack(loss, labels, queries):
    """The constant of the stated majorizer, without document weights."""
    if isinstance(loss, SVMmap):
        return 1.0
    if isinstance(loss, Hinge):
        return 0.5
    bounds = []
    for rows in queries:
        part = labels[rows]
        for threshold in np.unique(part)[1:]:
            n = int((part < threshold).sum())
            alpha = np.array([GENERATORS[loss.weights](j, n, loss.p) for j in range(1, n + 1)])
            bounds.append(min(2.0, n * alpha[0] / alpha.sum()) / 2)
    return max(bounds)


@pytest.mark.parametrize("loss", [Hinge(), SVMmap(), *(OWPC(weights=g, p=20) for g in GENERATORS)], ids=str)
def test_the_majorizer_bounds_the_growth_as_stated(loss):
    rng, queries = np.random.default_rng(1), Queries([0, 5, 12])
    labels = np.array([0, 1, 2, 0, 1, 0, 0, 0, 1, 2, 2, 0], dtype=float)
    bound, constant = loss.on(labels, queries), slack(loss, labels, queries)
    tightest = math.inf
    for trial in range(600):
        scores = rng.standard_normal(12) * (0.0, 0.3, 3.0)[trial % 3]
        step = rng.standard_normal(12) * (0.1, 0.5, 2.0, 8.0)[trial % 4]
        here = bound.at(scores, curvature=True)
        limit = here.value + here.grad @ step + 0.5 * step @ (here.curvature @ step) + constant
        tightest = min(tightest, limit - bound.at(scores + step).value)
    assert tightest >= 0


# --- SVM-map -------------------------------------------------------------------------------------------------------


def average_precision(ranking, relevant):
    hits, total = 0, 0.0
    for rank, document in enumerate(ranking, start=1):
        if document in relevant:
            hits += 1
            total += hits / rank
    return total / len(relevant)


def plain_svm_map(scores, labels):
    relevant = {d for d, y in enumerate(labels) if y >= 1}
    others = set(range(len(labels))) - relevant
    if not relevant or not others:
        return 0.0
    best = -math.inf
    for ranking in itertools.permutations(range(len(labels))):
        place = {document: rank for rank, document in enumerate(ranking)}
        turned = sum(scores[j] - scores[i] for i in relevant for j in others if place[j] < place[i])
        best = max(best, 1 - average_precision(ranking, relevant) + 2 * turned / (len(relevant) * len(others)))
    return best


@given(problem=rankings(max_queries=2, max_documents=6, max_grade=2, distinct_scores=SCORES))
@settings(max_examples=60, deadline=None)
def test_svm_map_finds_the_worst_of_all_rankings(problem):
    scores, data = problem
    expected = [plain_svm_map(scores[rows], data.labels[rows]) for rows in data.queries]
    value = SVMmap().on(data.labels, data.queries).at(scores).value
    assert value == pytest.approx(np.mean(expected), rel=1e-12, abs=1e-12)


def test_svm_map_bounds_the_loss_in_average_precision():
    rng, labels = np.random.default_rng(2), np.array([1, 0, 0, 1, 0, 1, 0, 0], dtype=float)
    bound, relevant = SVMmap().on(labels, Queries([0, 8])), set(np.flatnonzero(labels))
    for _ in range(50):
        scores = rng.standard_normal(8)
        assert bound.at(scores).value >= 1 - average_precision(np.argsort(-scores), relevant) - 1e-12


# --- what is refused -----------------------------------------------------------------------------------------------


def test_refusals():
    with pytest.raises(UnknownNameError, match="did you mean 'constant'"):
        OWPC(weights="constants")
    for p in (0, 101, math.nan):
        with pytest.raises(DataError, match="a percentage, must be a number above 0 and at most 100"):
            OWPC(p=p)
    with pytest.raises(DataError, match="threshold must be a finite number"):
        SVMmap(threshold=math.nan)
    with pytest.raises(DataError, match="query_weights"):
        SVMmap().on([0, 1], Queries([0, 2]), document_weights=[1, 2])
