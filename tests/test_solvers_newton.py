"""Newton's method: few iterations, bad curvature, and the bare recursion of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives import Gradient, Logistic, Quadratic, classification, random_quadratic
from toprank.errors import DataError
from toprank.solvers import Newton, Penalty, Proximal


class TestNewton:
    @given(st.integers(0, 10_000), st.sampled_from([1e-4, 1e-2, 1.0]), st.floats(0.1, 100))
    @settings(deadline=None, max_examples=40)
    def test_ten_iterations_are_enough(self, seed, l2, unit):
        X, y = classification(seed, n=80, d=5)
        solution = Newton().solve(Logistic(unit * X, y), np.zeros(5), Penalty.uniform(5, l2=l2 * unit**2))
        assert solution.converged
        assert solution.iterations <= 10

    def test_a_quadratic_takes_one_step(self):
        assert Newton().solve(random_quadratic(0), np.ones(6), Penalty.uniform(6, l2=1.0)).iterations == 1

    @pytest.mark.parametrize("limit", [0, 500], ids=["products", "cholesky"])
    def test_singular_hessian(self, limit):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(30, 3)), rng.normal(size=30)
        X = np.hstack([X, X[:, :1], np.zeros((30, 1))])  # a copied and an empty feature
        objective = Quadratic(X.T @ X, X.T @ y)
        solution = Newton(cholesky_limit=limit).solve(objective, np.zeros(5), Penalty.uniform(5))
        best = np.linalg.lstsq(X, y, rcond=None)[0]
        assert solution.converged
        assert solution.value == pytest.approx(objective.value_and_grad(best)[0], rel=1e-10)
        assert np.abs(solution.weights).max() < 1e3

    @pytest.mark.parametrize("curvatures", [[1e14, 1.0], [1e-14, 1.0], [1e12, 1e12], [1e-12, 1e-12]])
    def test_huge_and_tiny_curvature(self, curvatures):
        objective = Quadratic(np.diag(curvatures), np.array(curvatures) * 3)
        solution = Newton().solve(objective, np.zeros(2), Penalty.uniform(2))
        assert solution.converged
        np.testing.assert_allclose(solution.weights, 3, rtol=1e-6)

    def test_no_curvature_at_all_goes_downhill(self):
        class Line:
            n_weights = 2

            def value_and_grad(self, w):
                return float(w[0] - 2 * w[1]), np.array([1.0, -2.0])

            def hessian(self, w):
                return np.zeros((2, 2))

        solution = Newton().solve(Line(), np.zeros(2), Penalty.uniform(2), max_iterations=5)
        assert not solution.converged
        assert solution.value < 0
        assert np.isfinite(solution.weights).all()
        assert "Not converged: after 5 iterations" in solution.message

    @pytest.mark.parametrize("factor", [0.05, 30.0])
    @pytest.mark.parametrize("limit", [0, 500], ids=["products", "cholesky"])
    def test_curvature_that_is_only_a_stand_in(self, factor, limit):
        X, y = classification(4)

        class Distorted(Logistic):
            def bends(self, w):
                return factor * super().bends(w)

        exact = Newton().solve(Logistic(X, y), np.zeros(4), Penalty.uniform(4, l2=0.01))
        other = Newton(cholesky_limit=limit).solve(
            Distorted(X, y), np.zeros(4), Penalty.uniform(4, l2=0.01), max_iterations=2000
        )
        assert other.converged, other.message
        np.testing.assert_allclose(other.weights, exact.weights, atol=1e-6)

    @pytest.mark.parametrize("limit", [0, 500], ids=["products", "cholesky"])
    def test_indefinite_curvature(self, limit):
        class Valley:  # (1 - a²)²/4 + b²/2: a maximum along a between two minima at a = ±1
            n_weights = 2

            def value_and_grad(self, w):
                a, b = w
                return 0.25 * (1 - a * a) ** 2 + 0.5 * b * b, np.array([a**3 - a, b])

            def hessian(self, w):
                return np.diag([3 * w[0] ** 2 - 1, 1.0])

            def hessian_product(self, w):
                return lambda v: self.hessian(w) @ v

        solution = Newton(cholesky_limit=limit).solve(Valley(), [0.1, 2.0], Penalty.uniform(2))
        assert solution.converged, solution.message
        np.testing.assert_allclose(solution.weights, [1.0, 0.0], atol=1e-6)

    def test_plain_is_the_bare_recursion(self):
        X, y = classification(5)
        objective, l2, w = Logistic(X, y), 0.1, np.full(4, 1 / 60)
        solution = Newton(full_steps=True).solve(objective, w, Penalty.uniform(4, l2=l2))
        steps = 0
        while True:
            step = np.linalg.solve(objective.hessian(w) + l2 * np.eye(4), -(objective.value_and_grad(w)[1] + l2 * w))
            w, steps = w + step, steps + 1
            if np.abs(step).sum() < 1e-4:
                break
        assert solution.converged
        assert solution.iterations == steps <= 5
        assert solution.evaluations == steps + 1
        np.testing.assert_allclose(solution.weights, w, atol=1e-12)

    @pytest.mark.parametrize("limit", [0, 500], ids=["products", "cholesky"])
    def test_plain_at_the_optimum(self, limit):
        solution = Newton(full_steps=True, cholesky_limit=limit).solve(
            Quadratic(np.eye(2), np.zeros(2)), np.zeros(2), Penalty.uniform(2)
        )
        assert solution.converged
        assert solution.weights.tolist() == [0.0, 0.0]

    def test_plain_does_not_hide_that_it_runs_away(self):
        class Flattening:  # √(1 + w²): full Newton steps are w ← -w³
            n_weights = 1

            def value_and_grad(self, w):
                return float(np.hypot(1, w[0])), w / np.hypot(1, w)

            def hessian(self, w):
                return np.diag(np.hypot(1, w) ** -3)

        plain = Newton(full_steps=True).solve(Flattening(), [2.0], Penalty.uniform(1))
        assert not plain.converged
        assert "Not converged" in plain.message
        assert plain.weights.tolist() == [2.0]  # all that came after was worse
        searched = Newton().solve(Flattening(), [2.0], Penalty.uniform(1))
        assert searched.converged
        assert searched.weights == pytest.approx([0.0], abs=1e-7)

    def test_curvature_that_is_not_a_number(self):
        class Broken(Quadratic):
            def hessian(self, w):
                return np.full((2, 2), np.nan)

        for solver in (Newton(), Newton(full_steps=True), Proximal(method="newton")):
            solution = solver.solve(Broken(np.eye(2), np.ones(2)), np.zeros(2), Penalty.uniform(2))
            assert not solution.converged
            assert "Hessian is not finite" in solution.message
            assert solution.weights.tolist() == [0.0, 0.0]

    def test_says_what_it_needs(self):
        objective = random_quadratic(0)
        with pytest.raises(DataError, match="needs a Hessian, but the objective has none; use LBFGS"):
            Newton().solve(Gradient(objective), np.zeros(6), Penalty.uniform(6))

        class MatrixOnly(Quadratic):
            hessian_product = None

        with pytest.raises(DataError, match="cholesky_limit = 3"):
            Newton(cholesky_limit=3).solve(MatrixOnly(objective.A, objective.b), np.zeros(6), Penalty.uniform(6))


def test_steps_that_succeed_are_those_of_newton_undamped():
    """w − (H + l2)⁻¹ (g + l2 w), computed here."""
    objective, l2, weights = Logistic(*classification(0)), 1e-3, np.zeros(4)
    for steps in range(1, 5):
        _, grad = objective.value_and_grad(weights)
        weights = weights - np.linalg.solve(objective.hessian(weights) + l2 * np.eye(4), grad + l2 * weights)
        solution = Newton().solve(objective, np.zeros(4), Penalty.uniform(4, l2=l2), max_iterations=steps)
        np.testing.assert_allclose(solution.weights, weights, rtol=1e-6)
