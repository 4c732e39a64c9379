"""Rank correlations and the OWA error against SciPy and plain loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats

import toprank.evaluation as te
from strategies import lists, rankings


def plain_pairwise_accuracy(scores, labels):
    pairs = [(s - t, y - z) for (s, y), (t, z) in itertools.combinations(zip(scores, labels, strict=True), 2) if y != z]
    return sum(0.5 if ds == 0 else float(ds * dy > 0) for ds, dy in pairs) / len(pairs) if pairs else math.nan


def plain_owa(scores, labels, alpha):
    relevant = [s for s, y in zip(scores, labels, strict=True) if y >= 1]
    irrelevant = [s for s, y in zip(scores, labels, strict=True) if y < 1]
    if not relevant:
        return math.nan
    if not irrelevant:
        return 0.0
    n = len(irrelevant)
    weights = [alpha(j, n) for j in range(1, n + 1)]
    total = sum(weights)
    return sum(sum(weights[: sum(t >= s for t in irrelevant)]) / total for s in relevant) / len(relevant)


GENERATORS = {
    "owa(weights=constant)": lambda j, n: 1.0,
    "owa(weights=top,p=20)": lambda j, n: float(j <= max(1, 20 * n / 100)),
    "owa": lambda j, n: 1 / j,
    "owa(weights=exp,p=50)": lambda j, n: 2 ** (-2 * j / n),
    "owa(weights=exp,p=0.01)": lambda j, n: 2.0 ** (-10000 * (j - 1) / n),  # over the first, which is below all floats
}


@given(problem=rankings(max_documents=9))
@settings(max_examples=100, deadline=None)
@pytest.mark.parametrize("convention", ["standard", "letor4"])
def test_pair_measures(convention, problem):
    scores, data = problem
    names = ["pairacc", "tau", "rho", *GENERATORS]
    result = te.evaluate(scores, data, names, convention=convention)
    for q, (s, y) in enumerate(lists(scores, data)):
        wanted = {"pairacc": plain_pairwise_accuracy(s, y), "tau": math.nan, "rho": math.nan}
        if len(set(s)) > 1 and len(set(y)) > 1:
            wanted["tau"] = stats.kendalltau(s, y).statistic
            wanted["rho"] = stats.spearmanr(s, y).statistic
        wanted |= {name: plain_owa(s, y, alpha) for name, alpha in GENERATORS.items()}
        for name, value in wanted.items():
            np.testing.assert_allclose(result.per_query[name][q], value, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("grades", [2, 5])
def test_equal_and_opposite_orders_are_exactly_one(grades):
    """For lists of every length, with ties; a bound that rounding exceeds is no bound."""
    rng = np.random.default_rng(grades)
    for m in range(2, 60):
        labels = rng.integers(0, grades, m)
        labels[:2] = 0, 1
        for sign in (1, -1):
            found = te.evaluate(sign * labels, labels, ["tau", "rho", "pairacc", *GENERATORS], qid=np.zeros(m)).mean
            assert (found["tau"], found["rho"], found["pairacc"]) == (sign, sign, (1 + sign) / 2)
            assert all(0 <= found[name] <= 1 for name in GENERATORS)


def test_undefined_queries_are_left_out_and_counted():
    labels, qid = [1, 0, 1, 1, 2], [1, 1, 2, 2, 3]
    result = te.evaluate([2.0, 1.0, 1.0, 2.0, 1.0], labels, ["pairacc", "t"], qid=qid)
    for name in ("pairacc", "t"):
        assert result.n_evaluated[name] == 1
        assert result.mean[name] == 1.0
    assert "2 left out" in str(result)
