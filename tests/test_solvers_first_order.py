"""L-BFGS and gradient descent: closed forms, and the ends that must be said."""

from __future__ import annotations

import numpy as np
import pytest

import toprank as tr
from objectives import Quadratic, Watched, random_quadratic
from toprank.errors import DataError, UnknownNameError
from toprank.solvers import LBFGS, GradientDescent, Penalty


class TestLBFGS:
    def test_rosenbrock(self):
        class Rosenbrock:
            n_weights = 2

            def value_and_grad(self, w):
                a, b = w
                return (1 - a) ** 2 + 100 * (b - a * a) ** 2, np.array(
                    [-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)]
                )

        solution = LBFGS().solve(Rosenbrock(), [-1.2, 1.0], Penalty.uniform(2), tolerance=1e-9)
        assert solution.converged
        assert solution.iterations < 60
        np.testing.assert_allclose(solution.weights, 1, atol=1e-6)

    def test_needs_few_evaluations(self):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(300, 100)) * np.logspace(0, 2, 100), rng.normal(size=300)
        objective = Quadratic(X.T @ X / 300, X.T @ y / 300)
        solution = LBFGS().solve(objective, np.zeros(100), Penalty.uniform(100, l2=1e-3))
        assert solution.converged
        assert solution.evaluations <= 1.5 * solution.iterations + 5

    def test_a_kink_is_reported_not_hidden(self):
        class Kink:
            n_weights = 2

            def value_and_grad(self, w):
                return abs(w[0]) + 5 * abs(w[1] - w[0]), np.array(
                    [np.sign(w[0]) - 5 * np.sign(w[1] - w[0]), 5 * np.sign(w[1] - w[0])]
                )

        solution = LBFGS().solve(Kink(), [3.0, 1.0], Penalty.uniform(2))
        assert not solution.converged
        assert "Bundle" in solution.message
        assert np.isfinite(solution.weights).all()

    def test_refuses_no_memory(self):
        with pytest.raises(DataError, match="at least 1"):
            LBFGS(memory=0)

    def test_one_step_is_memory_enough(self):
        objective = random_quadratic(0)
        penalty = Penalty.uniform(objective.n_weights, l2=0.1)
        one, ten = (LBFGS(memory=m).solve(objective, np.zeros(objective.n_weights), penalty) for m in (1, 10))
        assert one.converged
        assert one.iterations > ten.iterations  # and more of it helps
        np.testing.assert_allclose(one.weights, ten.weights, rtol=1e-4, atol=1e-6)


class TestGradientDescent:
    def test_follows_the_formula(self):
        rate, curvature, l2, start, steps = 0.1, np.array([1.0, 3.0]), 0.5, np.array([2.0, -1.0]), 7
        solution = GradientDescent(learning_rate=rate).solve(
            Quadratic(np.diag(curvature), np.zeros(2)),
            start,
            Penalty.uniform(2, l2=l2),
            tolerance=0,
            max_iterations=steps,
        )
        np.testing.assert_allclose(solution.weights, (1 - rate * (curvature + l2)) ** steps * start, rtol=1e-12)
        assert solution.iterations == steps
        assert not solution.converged
        assert "after 7 iterations the value changed by" in solution.message

    @pytest.mark.parametrize("stop", ["value", "gradient"])
    def test_stops_at_the_first_change_below_the_tolerance(self, stop):
        values, norms = [8.0], [4.0]  # ½ w² from 4 with rate ½: w halves
        w = 4.0
        while (abs(values[-1] - values[-2]) if stop == "value" and len(values) > 1 else norms[-1]) >= 1e-3:
            w /= 2
            values.append(0.5 * w * w)
            norms.append(w)
        solution = GradientDescent(learning_rate=0.5, stop=stop).solve(
            Quadratic(np.eye(1), np.zeros(1)), [4.0], Penalty.uniform(1), tolerance=1e-3
        )
        assert solution.converged
        assert solution.iterations == len(values) - 1
        assert solution.weights.tolist() == [w]

    @pytest.mark.parametrize("keep", ["best", "last"])
    def test_a_rate_too_large_is_said(self, keep):
        objective = Quadratic(np.eye(1), np.zeros(1))
        solution = GradientDescent(learning_rate=2.5, keep=keep).solve(
            objective, [1.0], Penalty.uniform(1), max_iterations=4
        )
        assert not solution.converged
        assert "lower the learning rate" in solution.message
        np.testing.assert_allclose(solution.weights, [1.0] if keep == "best" else [1.5**4])

    def test_keeps_the_last_weights_when_interrupted(self):
        solution = GradientDescent(learning_rate=2.5, keep="last").solve(
            Watched(Quadratic(np.eye(1), np.zeros(1)), 4), [1.0], Penalty.uniform(1)
        )
        assert solution.interrupted
        np.testing.assert_allclose(solution.weights, [2.25])

    def test_divergence_never_ends_in_nan(self):
        class Steep:
            n_weights = 1

            def value_and_grad(self, w):
                return float(np.exp(w[0] ** 2)), 2 * w * np.exp(w**2)

        solution = GradientDescent(learning_rate=10.0).solve(Steep(), [3.0], Penalty.uniform(1), max_iterations=50)
        assert np.isfinite(solution.weights).all()
        assert np.isfinite(solution.value)

    def test_refuses(self):
        with pytest.raises(DataError, match="learning_rate must be positive"):
            GradientDescent(learning_rate=0.0)
        with pytest.raises(UnknownNameError, match="criterion"):
            GradientDescent(stop="vale")
        with pytest.raises(UnknownNameError, match="keep"):
            GradientDescent(keep="lst")


@pytest.mark.parametrize(("l2", "within"), [(1e-3, True), (0.0, False)])
def test_a_small_gradient_is_the_optimum_where_there_is_a_penalty(l2, within):
    """As the page says: three columns nearly repeat others, along which only a penalty tells weights apart."""
    rng = np.random.default_rng(4)
    Z = rng.normal(size=(600, 6))
    X = np.column_stack([Z, Z[:, :3] + 1e-4 * rng.normal(size=(600, 3))])
    labels = np.clip(np.round(Z[:, 0] + rng.normal(size=600) + 1), 0, 4)
    data = tr.RankingData(X, labels, qid=np.repeat(np.arange(30), 20))
    newton, first = (tr.LinearRanker("ListNet", solver=name, l2=l2).fit(data).solution_ for name in ("newton", "lbfgs"))
    assert first.converged
    assert (first.value - newton.value <= 1e-9 * newton.value) == within
