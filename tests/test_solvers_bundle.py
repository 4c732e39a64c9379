"""The bundle method and its small quadratic program, against independent solutions; the certificate above all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from objectives import Hinge, Logistic, Quadratic, Watched, classification
from toprank import kernels
from toprank.errors import DataError
from toprank.solvers import Bundle, Newton, Penalty


def svm_by_qp(objective, l2):
    """min ½ wᵀ diag(l2) w + mean(ξ) subject to ξ ≥ 0, ξ ≥ 1 - y x·w, as a general program in (w, ξ)."""
    n, d = objective.signed.shape
    weights, slacks = slice(0, d), slice(d, d + n)

    def value(z):
        return 0.5 * np.sum(l2 * z[weights] ** 2) + z[slacks].mean()

    def grad(z):
        return np.concatenate([l2 * z[weights], np.full(n, 1 / n)])

    rows = np.hstack([objective.signed, np.eye(n)])
    result = minimize(
        value,
        np.concatenate([np.zeros(d), np.ones(n)]),
        jac=grad,
        method="SLSQP",
        bounds=[(None, None)] * d + [(0, None)] * n,
        constraints={"type": "ineq", "fun": lambda z: rows @ z - 1, "jac": lambda z: rows},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert result.success
    return result.x[weights], result.fun


class TestCertificate:
    @pytest.mark.parametrize("seed", range(8))
    @pytest.mark.parametrize("l2", [1e-3, 0.1, 3.0])
    def test_equals_an_independent_program(self, seed, l2):
        X, y = classification(seed, n=15, d=3)
        objective, unequal = Hinge(X, y), l2 * np.array([1.0, 0.3, 2.0])
        weights, optimum = svm_by_qp(objective, unequal)
        solution = Bundle().solve(objective, np.zeros(3), Penalty(unequal, np.zeros(3)))
        assert solution.converged, solution.message
        assert solution.lower_bound <= optimum * (1 + 1e-9)
        assert solution.value >= optimum * (1 - 1e-9)
        assert solution.gap == pytest.approx(solution.value - solution.lower_bound)
        assert solution.gap <= 1e-6 * solution.value
        np.testing.assert_allclose(solution.weights, weights, atol=np.sqrt(2 * 1.1e-6 * solution.value / unequal.min()))
        assert not solution.zero_is_optimal
        assert "certified lower bound" in solution.message

    @given(st.integers(0, 10_000), st.floats(-4, 1), st.integers(1, 12))
    @settings(deadline=None, max_examples=40)
    def test_the_bound_holds_at_any_time(self, seed, exponent, iterations):
        X, y = classification(seed, n=30, d=5)
        objective, penalty = Hinge(X, y), Penalty.uniform(5, l2=10.0**exponent)
        final = Bundle().solve(objective, np.zeros(5), penalty, tolerance=1e-9)
        early = Bundle().solve(objective, np.ones(5), penalty, max_iterations=iterations)
        assert final.converged
        assert early.lower_bound <= final.value * (1 + 1e-12)
        assert early.value >= final.lower_bound * (1 - 1e-12)
        rng = np.random.default_rng(seed)  # and against points that no solver chose
        for _ in range(20):
            w = final.weights + rng.normal(size=5) * 10.0 ** rng.uniform(-6, 1)
            assert objective.value_and_grad(w)[0] + penalty.value(w) >= final.lower_bound * (1 - 1e-12)

    @pytest.mark.parametrize("start", [0.0, 7.0])
    def test_the_optimum_is_zero(self, start):
        """Every document has a twin of the other class: the hinge can gain nothing."""
        X, _ = classification(0, n=20, d=3)
        objective = Hinge(np.vstack([X, X]), np.repeat([1.0, -1.0], 20))
        solution = Bundle().solve(objective, np.full(3, start), Penalty.uniform(3, l2=0.01))
        assert solution.converged
        assert solution.zero_is_optimal
        assert solution.weights.tolist() == [0.0, 0.0, 0.0]
        assert "the optimum is w = 0" in solution.message
        assert solution.value == 1.0
        assert solution.lower_bound == pytest.approx(1.0, abs=1e-9)

    def test_the_optimum_is_zero_where_no_single_cut_shows_it(self):
        """A mean of cuts, none of which is flat: max(1 + w₁, 1 - w₁, 1 + w₂, 1 - w₂)."""

        class Pyramid:
            n_weights = 2

            def value_and_grad(self, w):
                i = int(np.argmax(np.abs(w)))
                grad = np.zeros(2)
                grad[i] = 1.0 if w[i] >= 0 else -1.0
                return 1 + abs(w[i]), grad

        solution = Bundle().solve(Pyramid(), [0.3, -0.7], Penalty.uniform(2, l2=1e-4))
        assert solution.zero_is_optimal
        assert "the optimum is w = 0" in solution.message
        assert not solution.weights.any()

    def test_tiny_weights_are_not_called_zero(self):
        """A huge penalty: f(0) is within the tolerance, but the weights still say which document is better."""
        X, y = classification(1, n=40, d=3)
        objective = Hinge(X, y)
        solution = Bundle().solve(objective, np.zeros(3), Penalty.uniform(3, l2=1e7))
        assert solution.converged
        assert solution.zero_is_optimal  # no weights are better by more than the tolerance
        assert "the optimum is w = 0" not in solution.message
        assert "hardly better than w = 0" in solution.message
        slope = objective.value_and_grad(np.zeros(3))[1]
        np.testing.assert_allclose(solution.weights, -slope / 1e7, rtol=0.11)  # 99 % of the gain is 90 % of the way

    @pytest.mark.parametrize("share", [1e-2, 1e-3])
    def test_a_gap_is_judged_by_what_there_is_to_gain_over_zero(self, share):
        """Nearly every document has a twin of the other class: little to gain, and the tolerance must not decide it."""
        X, y = classification(0, n=40, d=3)
        objective = Hinge(np.vstack([X, X]), np.r_[y, -y], np.repeat([1 + share, 1.0], 40))
        penalty = Penalty.uniform(3, l2=1e-5)
        zero = objective.value_and_grad(np.zeros(3))[0]
        exact = Bundle().solve(objective, np.zeros(3), penalty, tolerance=1e-12)
        to_gain = zero - exact.lower_bound
        assert not exact.near_zero_solution
        for tolerance in (1e-4, 1e-6):
            solution = Bundle().solve(objective, np.zeros(3), penalty, tolerance=tolerance)
            assert solution.converged
            assert solution.gap <= 0.01 * to_gain * 1.01
            assert solution.near_zero_solution == (to_gain <= 1e-4 * zero)
            assert ("hardly better than w = 0" in solution.message) == solution.near_zero_solution
            assert ("lower the tolerance" in solution.message) == solution.near_zero_solution

    def test_no_patience_left_is_still_within_the_tolerance(self):
        """The iterations may end while the method still looks for weights better than zero."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(40, 6))
        objective, penalty = Hinge(X, np.where(rng.random(40) < 0.5, 1.0, -1.0)), Penalty.uniform(6, l2=1e6)
        final = Bundle().solve(objective, np.zeros(6), penalty, tolerance=1e-6)
        first = Bundle().solve(objective, np.zeros(6), penalty, tolerance=1e-6, max_iterations=1)
        assert first.iterations < final.iterations
        assert first.gap <= 1e-6 * first.value
        assert first.converged

    def test_interrupted_with_what_is_known(self):
        X, y = classification(2)
        objective, penalty = Hinge(X, y), Penalty.uniform(4, l2=1e-3)
        final = Bundle().solve(objective, np.zeros(4), penalty)
        early = Bundle().solve(Watched(objective, 10), np.zeros(4), penalty)
        assert early.interrupted
        assert early.lower_bound <= final.value
        assert early.gap > 0
        assert "Interrupted after 8 iterations" in early.message


class TestMethod:
    def test_a_smooth_objective_equals_newton(self):
        X, y = classification(3)
        objective, penalty = Logistic(X, y), Penalty.uniform(4, l2=0.01)
        newton = Newton().solve(objective, np.zeros(4), penalty)
        bundle = Bundle().solve(objective, np.zeros(4), penalty, tolerance=1e-9)
        assert bundle.converged
        assert bundle.value == pytest.approx(newton.value, rel=2e-9)

    @pytest.mark.parametrize("idle", [1, 3, 1000])
    def test_dropping_cuts_is_safe(self, idle):
        X, y = classification(4, n=400, d=25, noise=3.0)
        objective, penalty = Hinge(X, y), Penalty.uniform(25, l2=1e-4)
        solution = Bundle(max_idle=idle).solve(objective, np.zeros(25), penalty)
        assert solution.converged, solution.message
        assert solution.iterations > 130  # more than the first room for cuts
        reference = Bundle(max_idle=1000).solve(objective, np.zeros(25), penalty, tolerance=1e-9)
        assert solution.lower_bound <= reference.value
        assert solution.value == pytest.approx(reference.value, rel=1e-6)

    def test_the_start_changes_nothing_but_the_work(self):
        X, y = classification(5)
        objective, penalty = Hinge(X, y), Penalty.uniform(4, l2=0.01)
        cold = Bundle().solve(objective, np.zeros(4), penalty)
        warm = Bundle().solve(objective, cold.weights, penalty)
        assert warm.value == pytest.approx(cold.value, rel=1e-6)
        assert Bundle().solve(objective, np.full(4, 1e6), penalty).value == pytest.approx(cold.value, rel=1e-6)

    def test_a_free_weight_that_does_nothing_stays(self):
        X, y = classification(6, d=3)
        objective = Hinge(np.hstack([X, np.zeros((60, 1))]), y)
        solution = Bundle().solve(objective, [0.0, 0.0, 0.0, 5.0], Penalty.uniform(4, l2=0.1, free=[3]))
        alone = Bundle().solve(Hinge(X, y), np.zeros(3), Penalty.uniform(3, l2=0.1))
        assert solution.converged
        assert solution.weights[3] == 5.0
        assert solution.value == pytest.approx(alone.value, rel=1e-6)

    def test_a_free_weight_that_matters_is_refused(self):
        X, y = classification(6, intercept=True)
        with pytest.raises(DataError, match="weight 4 has none"):
            Bundle().solve(Hinge(X, y), np.zeros(5), Penalty.uniform(5, l2=0.1, free=[4]))
        with pytest.raises(DataError, match="needs l2 > 0"):
            Bundle().solve(Hinge(X, y), np.zeros(5), Penalty.uniform(5))
        with pytest.raises(DataError, match="at least 1"):
            Bundle(max_idle=0)

    def test_a_loss_that_is_not_convex_is_found_out(self):
        objective = Quadratic(np.diag([-1.0, 1.0]), np.array([0.3, 0.1]))
        solution = Bundle().solve(objective, np.ones(2), Penalty.uniform(2, l2=2.0))
        assert not solution.converged
        assert "not convex" in solution.message

    def test_nothing_to_learn(self):
        class Constant:
            n_weights = 2

            def value_and_grad(self, w):
                return 0.0, np.zeros(2)

        solution = Bundle().solve(Constant(), np.ones(2), Penalty.uniform(2, l2=1.0))
        assert solution.converged
        assert solution.weights.tolist() == [0.0, 0.0]
        assert solution.lower_bound == 0.0


def programs():
    return st.tuples(st.integers(0, 100_000), st.integers(1, 30), st.integers(1, 8), st.floats(-3, 3), st.booleans())


class TestSimplex:
    @given(programs())
    @settings(deadline=None, max_examples=150)
    def test_conditions_of_optimality(self, drawn):
        seed, n, d, exponent, near_copies = drawn
        rng = np.random.default_rng(seed)
        A, b = rng.normal(size=(n, d)) * 10.0**exponent, rng.normal(size=n)
        if near_copies:
            A[n // 2 :] = A[: n - n // 2] + 1e-9 * rng.integers(0, 2) * rng.normal(size=(n - n // 2, d))
        G, alpha = A @ A.T, rng.dirichlet(np.ones(n))
        kernels.minimize_on_simplex(G, b, alpha, 1e-12)
        assert (alpha >= 0).all()
        assert alpha.sum() == pytest.approx(1, abs=1e-12)
        derivatives = G @ alpha - b
        # every cut in use has the lowest derivative; the scale is what rounding of G and b allows
        assert alpha @ derivatives - derivatives.min() <= 1e-9 * (np.abs(b).max() + 1e-2 * np.abs(G).max())

    def test_a_linear_program(self):
        alpha = np.array([0.0, 1.0, 0.0])
        kernels.minimize_on_simplex(np.zeros((3, 3)), np.array([1.0, 0.0, 3.0]), alpha, 0.0)
        assert alpha.tolist() == [0.0, 0.0, 1.0]

    def test_the_nearest_point_of_a_triangle(self):
        corners = np.array([[2.0, -1.0], [2.0, 1.0], [5.0, 0.0]])  # nearest to the origin: (2, 0)
        alpha = np.array([0.0, 0.0, 1.0])
        kernels.minimize_on_simplex(corners @ corners.T, np.zeros(3), alpha, 1e-15)
        np.testing.assert_allclose(alpha, [0.5, 0.5, 0.0], atol=1e-12)

    def test_every_set_of_instructions_gives_the_same_bits(self):
        rng, library = np.random.default_rng(0), kernels.library()
        path = Path(library._library._name)
        usable = library.variants[: library.variants.index(library.machine) + 1]
        A, b, start = rng.normal(size=(40, 9)), rng.normal(size=40), rng.dirichlet(np.ones(40))
        found = []
        for variant in usable:
            alpha = start.copy()  # many cuts leave the support, each by a chain of rotations
            kernels.KernelLibrary(path, variant).get("minimize_on_simplex")(A @ A.T, b, alpha, 1e-12)
            found.append(alpha)
        assert all((alpha == found[0]).all() for alpha in found)
