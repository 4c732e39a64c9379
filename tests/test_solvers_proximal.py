"""L1 penalties against enumeration of the signs and the conditions of optimality."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives import Gradient, Logistic, classification, random_quadratic
from toprank.errors import DataError, UnknownNameError
from toprank.solvers import Penalty, Proximal
from toprank.solvers.proximal import _grown


def lasso_by_enumeration(A, b, l1):
    """The minimizer of ½ wᵀAw - bᵀw + Σ l1|w|: the sign pattern whose solution satisfies the conditions."""
    d = len(b)
    for signs in itertools.product([-1, 0, 1], repeat=d):
        s = np.array(signs)
        on, w = s != 0, np.zeros(d)
        w[on] = np.linalg.solve(A[np.ix_(on, on)], b[on] - l1[on] * s[on])
        pull = b - A @ w
        if (w[on] * s[on] > 0).all() and (np.abs(pull[~on]) <= l1[~on] + 1e-12).all():
            return w
    raise AssertionError("a convex problem has a solution")


class TestProximal:
    both = pytest.mark.parametrize("method", ["newton", "fista"])

    @both
    @pytest.mark.parametrize("seed", range(6))
    def test_lasso_equals_enumeration(self, method, seed):
        objective = random_quadratic(seed, d=4, rows=8)
        penalty = Penalty(np.full(4, 0.5), np.array([2.0, 0.5, 3.0, 0.0]))  # the last weight is free of l1
        expected = lasso_by_enumeration(objective.A + 0.5 * np.eye(4), objective.b, penalty.l1)
        solution = Proximal(method=method).solve(objective, np.ones(4), penalty, tolerance=1e-9)
        assert solution.converged, solution.message
        np.testing.assert_allclose(solution.weights, expected, atol=1e-7)
        np.testing.assert_array_equal(solution.weights == 0, expected == 0)

    @both
    @given(st.integers(0, 10_000), st.sampled_from([0.003, 0.03, 0.1]), st.sampled_from([0.0, 0.1]))
    @settings(deadline=None, max_examples=20)
    def test_logistic_meets_the_conditions_of_optimality(self, method, seed, l1, l2):
        X, y = classification(seed, n=50, d=8, intercept=True)
        objective, penalty = Logistic(X, y), Penalty.uniform(9, l1=l1, l2=l2, free=[8])
        solution = Proximal(method=method).solve(objective, np.zeros(9), penalty, tolerance=1e-7)
        assert solution.converged, solution.message
        w = solution.weights
        pull = objective.value_and_grad(w)[1] + penalty.l2 * w
        on = w != 0
        np.testing.assert_allclose(pull[on], -(penalty.l1 * np.sign(w))[on], atol=1e-6)
        assert (np.abs(pull[~on]) <= penalty.l1[~on] + 1e-6).all()
        assert np.abs(pull[8]) <= 1e-6

    @both
    def test_a_large_penalty_gives_exact_zeros(self, method):
        X, y = classification(0)
        objective = Logistic(X, y)
        threshold = np.abs(objective.value_and_grad(np.zeros(4))[1]).max()
        for l1, zero in ((1.001 * threshold, True), (0.95 * threshold, False)):
            solution = Proximal(method=method).solve(objective, np.ones(4), Penalty.uniform(4, l1=l1), tolerance=1e-8)
            assert solution.converged
            assert (not solution.weights.any()) == zero

    @both
    def test_collinear_and_empty_features(self, method):
        X, y = classification(1)
        wide = np.hstack([X, X, np.zeros((60, 1))])
        narrow = Proximal(method=method).solve(Logistic(X, y), np.zeros(4), Penalty.uniform(4, l1=0.02))
        doubled = Proximal(method=method).solve(Logistic(wide, y), np.zeros(9), Penalty.uniform(9, l1=0.02))
        assert doubled.converged
        assert doubled.value == pytest.approx(narrow.value, rel=1e-8)
        assert doubled.weights[8] == 0.0

    def test_newton_needs_few_iterations_whatever_the_correlation(self):
        rng = np.random.default_rng(0)
        base = rng.normal(size=(200, 1))
        X = base + 0.01 * rng.normal(size=(200, 30))  # all features nearly the same
        y = np.where(X[:, 0] + rng.normal(size=200) > 0, 1.0, -1.0)
        solution = Proximal().solve(Logistic(X, y), np.zeros(30), Penalty.uniform(30, l1=1e-4))
        assert solution.converged
        assert solution.iterations <= 15

    def test_auto_takes_newton_where_it_can(self):
        X, y = classification(3)
        objective, penalty = Logistic(X, y), Penalty.uniform(4, l1=0.01)
        auto, newton, fista = (
            Proximal(method=method).solve(objective, np.zeros(4), penalty) for method in ("auto", "newton", "fista")
        )
        assert auto.iterations == newton.iterations <= 10
        for limit, taken in ((3, fista), (4, newton)):
            assert Proximal(newton_limit=limit).solve(objective, np.zeros(4), penalty).iterations == taken.iterations

    def test_says_what_it_needs(self):
        with pytest.raises(UnknownNameError, match="did you mean 'newton'"):
            Proximal(method="newtn")
        with pytest.raises(DataError, match="needs a Hessian"):
            Proximal(method="newton").solve(Gradient(random_quadratic(0)), np.zeros(6), Penalty.uniform(6, l1=1.0))


def test_the_momentum_grows_as_in_fista():
    """t' solves t'² − t' = t² (Beck and Teboulle 2009)."""
    momentum = 1.0
    for _ in range(5):
        before, momentum = momentum, _grown(momentum)
        assert momentum > before
        assert momentum**2 - momentum == pytest.approx(before**2, rel=1e-12)
