"""Penalties, what all solvers for smooth objectives find, and what every solver promises."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize

from objectives import Barrier, Logistic, Quadratic, Watched, classification, random_quadratic, total
from toprank import compute
from toprank.errors import DataError
from toprank.solvers import (
    LBFGS,
    AveragedStochastic,
    Bundle,
    GradientDescent,
    Newton,
    Penalty,
    Proximal,
    StopOptimization,
)

SMOOTH = {
    "newton": Newton(),
    "newton-cg": Newton(cholesky_limit=0),
    "lbfgs": LBFGS(),
    "proximal-newton": Proximal(method="newton"),
    "fista": Proximal(method="fista"),
    "descent": GradientDescent(learning_rate=1.0, stop="gradient", backtracking=True),
}
ALL = {**SMOOTH, "plain": Newton(full_steps=True), "bundle": Bundle(), "papers": GradientDescent(learning_rate=0.01)}
smooth = pytest.mark.parametrize("solver", SMOOTH.values(), ids=SMOOTH)
every = pytest.mark.parametrize("solver", ALL.values(), ids=ALL)


class TestPenalty:
    def test_value_and_subgradient(self):
        penalty = Penalty(np.array([1.0, 0.0, 4.0]), np.array([0.0, 3.0, 1.0]))
        weights = np.array([2.0, -1.0, 0.0])
        assert penalty.value(weights) == 0.5 * 1 * 4 + 3 * 1
        # not zero: the derivative; at zero: what is left of the pull when l1 has resisted
        assert penalty.subgradient(weights, np.array([5.0, 5.0, -2.5])).tolist() == [5.0, 2.0, -1.5]
        assert penalty.subgradient(weights, np.array([0.0, 3.0, 0.9])).tolist() == [0.0, 0.0, 0.0]

    def test_free_weights(self):
        assert Penalty.uniform(3, l2=2.0, l1=1.0, free=slice(2, 3)).l1.tolist() == [1.0, 1.0, 0.0]

    @pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
    def test_refuses(self, bad):
        with pytest.raises(DataError, match="l2 must be finite and 0 or larger"):
            Penalty.uniform(2, l2=bad)
        with pytest.raises(DataError, match="l1 must be finite and 0 or larger"):
            Penalty(np.zeros(2), np.array([0.0, bad]))

    def test_refuses_shapes(self):
        with pytest.raises(DataError, match=r"\(2,\) and \(3,\)"):
            Penalty(np.zeros(2), np.zeros(3))


class TestSmooth:
    @smooth
    @pytest.mark.parametrize("seed", range(3))
    def test_ridge_equals_the_linear_system(self, solver, seed):
        objective, penalty = random_quadratic(seed), Penalty.uniform(6, l2=0.7, free=[1])
        expected = np.linalg.solve(objective.A + np.diag(penalty.l2), objective.b)
        solution = solver.solve(objective, np.ones(6), penalty, tolerance=1e-10)
        assert solution.converged, solution.message
        assert "Converged" in solution.message
        np.testing.assert_allclose(solution.weights, expected, atol=1e-7)
        assert solution.value == pytest.approx(total(objective, penalty, expected), rel=1e-12)
        grad = objective.value_and_grad(solution.weights)[1] + penalty.l2 * solution.weights
        assert solution.gradient_norm == pytest.approx(np.linalg.norm(grad), abs=1e-12)

    @smooth
    @pytest.mark.parametrize("l2", [1e-3, 1.0])
    def test_logistic_with_a_free_intercept_equals_scipy(self, solver, l2):
        X, y = classification(1, intercept=True)
        y[:25] = 1.0  # the classes are not balanced, so the intercept matters
        objective, penalty = Logistic(X, y), Penalty.uniform(5, l2=l2, free=[4])

        def both(w):
            value, grad = objective.value_and_grad(w)
            return value + penalty.value(w), grad + penalty.l2 * w

        peer = minimize(both, np.zeros(5), jac=True, method="BFGS", options={"gtol": 1e-9})
        solution = solver.solve(objective, np.zeros(5), penalty, tolerance=1e-8)
        assert solution.converged, solution.message
        assert solution.value == pytest.approx(peer.fun, rel=1e-9)
        np.testing.assert_allclose(solution.weights, peer.x, atol=1e-4)
        assert abs(solution.weights[4]) > 0.05

    @smooth
    def test_steps_back_from_values_that_are_not_finite(self, solver):
        solution = solver.solve(Barrier(), [-40.0], Penalty.uniform(1), tolerance=1e-9)
        assert solution.converged, solution.message
        np.testing.assert_allclose(solution.weights, [2 / 3], atol=1e-6)  # 1 / (1 - w) = 3

    @smooth
    def test_starts_at_the_optimum(self, solver):
        solution = solver.solve(Quadratic(np.eye(2), np.zeros(2)), np.zeros(2), Penalty.uniform(2, l2=1.0))
        assert solution.converged
        assert solution.iterations == 0
        assert solution.weights.tolist() == [0.0, 0.0]

    @smooth
    @pytest.mark.parametrize("scale", [1e-9, 1e9])
    def test_units_do_not_matter(self, solver, scale):
        """The same problem in other units of the value: relative criteria must not notice."""
        if isinstance(solver, GradientDescent):
            pytest.skip("its criterion is absolute, as in the papers")
        objective = random_quadratic(3)
        other = Quadratic(scale * objective.A, scale * objective.b)
        one = solver.solve(objective, np.zeros(6), Penalty.uniform(6, l2=0.1), tolerance=1e-9)
        two = solver.solve(other, np.zeros(6), Penalty.uniform(6, l2=0.1 * scale), tolerance=1e-9)
        assert two.converged
        np.testing.assert_allclose(two.weights, one.weights, atol=1e-6)

    @pytest.mark.parametrize("name", ["newton", "newton-cg", "lbfgs", "proximal-newton", "fista"])
    def test_tolerance_zero_ends_at_the_accuracy_of_the_arithmetic(self, name):
        X, y = classification(2)
        solution = SMOOTH[name].solve(
            Logistic(X, y), np.zeros(4), Penalty.uniform(4, l2=0.1), tolerance=0.0, max_iterations=500
        )
        assert solution.gradient_norm < 1e-7
        if name != "fista":
            assert solution.converged, solution.message


class TestManners:
    """What every solver promises."""

    @every
    @pytest.mark.parametrize("n", [1, 2, 4])
    def test_ctrl_c_returns_the_best_so_far(self, solver, n):
        X, y = classification(0)
        objective, penalty, seen = Logistic(X, y), Penalty.uniform(4, l2=0.1), []

        class Noting(Logistic):
            def value_and_grad(self, w):
                seen.append(total(objective, penalty, w))
                return super().value_and_grad(w)

        start = np.full(4, 2.0)
        solution = solver.solve(Watched(Noting(X, y), n), start, penalty)
        assert solution.interrupted
        assert not solution.converged
        assert "Interrupted" in solution.message
        if n == 1:
            np.testing.assert_array_equal(solution.weights, start)
        else:
            assert solution.value == total(objective, penalty, solution.weights)
            assert solution.value <= seen[0]
            assert solution.value in seen

    @every
    def test_callback_sees_and_stops(self, solver):
        X, y = classification(0)
        objective, penalty, calls = Logistic(X, y), Penalty.uniform(4, l2=0.1), []

        def callback(iteration, weights, value, message):
            calls.append((iteration, value, message))
            assert value == pytest.approx(total(objective, penalty, weights), rel=1e-12)
            weights[:] = np.nan  # it is a copy: nothing can be spoilt
            if iteration == 2:
                raise StopOptimization("enough of it")

        solution = solver.solve(objective, np.full(4, 2.0), penalty, callback=callback)
        assert [iteration for iteration, _, _ in calls] == [1, 2]
        assert all(any(c.isdigit() for c in message) for _, _, message in calls)
        assert not solution.converged
        assert not solution.interrupted
        assert solution.iterations == 2
        assert solution.message == "Stopped by the callback after 2 iterations: enough of it."
        assert solution.value <= min(value for _, value, _ in calls)

    @every
    def test_other_exceptions_pass(self, solver):
        with pytest.raises(ZeroDivisionError):
            solver.solve(Watched(random_quadratic(0), 2, ZeroDivisionError), np.ones(6), Penalty.uniform(6, l2=1.0))

    @every
    def test_non_convergence_is_said(self, solver):
        X, y = classification(0)
        solution = solver.solve(
            Logistic(X, y), np.full(4, 5.0), Penalty.uniform(4, l2=0.01), tolerance=1e-12, max_iterations=1
        )
        assert not solution.converged
        assert solution.message.startswith("Not converged: after 1 iteration ")
        assert "tolerance 1.0e-12" in solution.message
        assert solution.iterations == 1

    @every
    def test_not_finite_at_the_start(self, solver):
        class Nan(Quadratic):
            def value_and_grad(self, w):
                return np.nan, np.full(2, np.nan)

        with pytest.raises(DataError, match="not finite at the start"):
            solver.solve(Nan(np.eye(2), np.ones(2)), np.zeros(2), Penalty.uniform(2, l2=1.0))

    @every
    def test_a_bad_start_gives_way_to_zero(self, solver):
        solution = solver.solve(Barrier(), [1.5], Penalty.uniform(1, l2=1e-3), max_iterations=5000)
        assert np.isfinite(solution.weights).all()
        assert solution.value <= 0.0  # the value at zero

    @every
    def test_nan_appears_midway(self, solver):
        """Finite at the start only: nothing can be done, and that is said."""

        class Island(Quadratic):
            def value_and_grad(self, w):
                value, grad = super().value_and_grad(w)
                return (value, grad) if not w.any() else (np.nan, grad)

        solution = solver.solve(Island(np.eye(2), np.ones(2)), np.zeros(2), Penalty.uniform(2, l2=1.0))
        assert not solution.converged
        assert "Not converged" in solution.message
        assert solution.weights.tolist() == [0.0, 0.0]

    @every
    def test_refuses(self, solver):
        objective, penalty = random_quadratic(0), Penalty.uniform(6, l2=1.0)
        with pytest.raises(DataError, match="tolerance must be"):
            solver.solve(objective, np.zeros(6), penalty, tolerance=-1.0)
        with pytest.raises(DataError, match="max_iterations must be at least 1"):
            solver.solve(objective, np.zeros(6), penalty, max_iterations=0)
        with pytest.raises(DataError, match="The objective has 6 weights"):
            solver.solve(objective, np.zeros(5), penalty)
        with pytest.raises(DataError, match="must be finite"):
            solver.solve(objective, np.full(6, np.inf), penalty)
        if not solver.supports_l1:
            with pytest.raises(DataError, match="does not support an L1 penalty; use Proximal"):
                solver.solve(objective, np.zeros(6), Penalty.uniform(6, l1=1.0))

    def test_refuses_a_gradient_of_the_wrong_shape(self):
        class Wrong:
            n_weights = 2

            def value_and_grad(self, w):
                return 0.0, np.zeros(1)

        with pytest.raises(DataError, match="gradient has shape"):
            LBFGS().solve(Wrong(), np.zeros(2), Penalty.uniform(2))

    @every
    def test_the_start_is_left_alone(self, solver):
        start = np.ones(6)
        solver.solve(random_quadratic(0), start, Penalty.uniform(6, l2=1.0), max_iterations=3)
        assert start.tolist() == [1.0] * 6

    def test_settings_are_values(self):
        assert Newton(full_steps=True) == Newton(full_steps=True) != Newton()
        assert repr(Bundle(max_idle=3)) == "Bundle(max_idle=3)"


@pytest.mark.parametrize("solver", [Newton(), Newton(cholesky_limit=0), LBFGS(), Proximal("newton"), Proximal("fista")])
def test_a_loss_that_falls_for_ever_does_not_converge(solver):
    """Labels that a plane separates have no optimum without a penalty, however small the gradient becomes."""
    X, y = classification(0, noise=0.0)
    found = solver.solve(Logistic(X, y), np.zeros(4), Penalty.uniform(4), max_iterations=3000)
    assert not found.converged
    assert "Set l2 above 0" in found.message or "Raise max_iterations" in found.message
    assert solver.solve(Logistic(X, y), np.zeros(4), Penalty.uniform(4, l2=1e-3)).converged
    X, y = classification(0, noise=3.0)
    assert (y * (X @ np.linalg.lstsq(X, y, rcond=None)[0])).min() < 0
    assert solver.solve(Logistic(X, y), np.zeros(4), Penalty.uniform(4)).converged


def test_newton_says_so_where_the_gradient_vanishes_without_an_optimum():
    X, y = classification(0, noise=0.0)
    found = Newton().solve(Logistic(X, y), np.zeros(4), Penalty.uniform(4))
    assert "doubling the weights lowers the value" in found.message
    assert found.gradient_norm < 1e-7


@pytest.mark.parametrize(
    ("solver", "tolerance", "limit"),
    [
        (Newton(), "default 1e-8", "At most 100 iterations"),
        (LBFGS(), "default 1e-6", "At most 1,000 iterations"),
        (Proximal(), "default 1e-6", "At most 10,000 iterations"),
        (GradientDescent(), "default 1e-4", "At most 10,000 iterations"),
        (Bundle(), "default 1e-6", "at most 5,000 iterations"),
        (Newton(full_steps=True), "1e-4 by default", "at most 20 iterations"),
    ],
)
def test_solvers_stop_when_their_texts_say(solver, tolerance, limit):
    text = " ".join(type(solver).__doc__.split())
    assert tolerance in text
    assert limit in text
    said = float(tolerance.replace("default", "").replace("by", "")), int("".join(filter(str.isdigit, limit)))
    assert solver.defaults == said


@every
def test_when_the_time_is_over_the_next_evaluation_is_not_made(solver, monkeypatch):
    """The clock stands still but for evaluations, so that what is made after the end would show."""
    clock, made = SimpleNamespace(now=0.0), []
    monkeypatch.setattr(compute, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    X, y = classification(1)
    objective = Logistic(X, y)
    real = objective.value_and_grad

    def timed(weights):
        clock.now += 1.0
        made.append(clock.now)
        return real(weights)

    objective.value_and_grad = timed
    with compute.TimeLimit(2.5) as limit:
        solution = solver.solve(objective, np.zeros(X.shape[1]), Penalty.uniform(X.shape[1], l2=0.1), tolerance=0.0)
    assert limit.passed
    assert made == [1.0, 2.0, 3.0]  # the third was begun in time
    assert not solution.converged
    assert not solution.interrupted
    assert "the time limit was reached" in solution.message
    assert np.isfinite(solution.weights).all()
    assert compute.out_of_time() is False


def test_when_the_time_is_over_no_further_product_is_made(monkeypatch):
    """Each product with the curvature is a pass over the data, and a direction may ask for a thousand."""
    clock, made = SimpleNamespace(now=0.0), []
    monkeypatch.setattr(compute, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    objective = Quadratic(np.diag(np.logspace(0, 6, 12)), np.ones(12))  # for whose steps a few products are not enough
    real = objective.hessian_product

    def timed(weights):
        def times(vector):
            clock.now += 1.0
            made.append(clock.now)
            return real(weights)(vector)

        return times

    objective.hessian_product = timed
    with compute.TimeLimit(2.5) as limit:
        solution = Newton(cholesky_limit=0).solve(objective, np.ones(12), Penalty.uniform(12), tolerance=0.0)
    assert limit.passed
    assert made == [1.0, 2.0, 3.0]  # the third was begun in time
    assert "the time limit was reached" in solution.message


class Wandering:
    """(w − t)²/2 with t = 8, 0, 4, 2 … at the draws 0, 1, 2, 3 …; Newton is at t after a step."""

    n_weights = 1

    def __init__(self, at=0.0):
        self.at = at

    def value_and_grad(self, weights):
        return 0.5 * float((weights[0] - self.at) ** 2), weights - self.at

    def hessian(self, _):
        return np.eye(1)

    def resampled(self, draw, _):
        return Wandering([8.0, 0.0, 4.0, 2.0, 7.0, 9.0][draw])


@pytest.mark.parametrize("end", [StopOptimization("enough"), KeyboardInterrupt()], ids=["callback", "keyboard"])
def test_whoever_ends_drawing_early_is_given_the_mean_so_far(end):
    seen = []

    def callback(iteration, weights, *_):
        seen.append(float(weights[0]))
        if iteration == 4:
            raise end

    solution = AveragedStochastic().solve(Wandering(), np.zeros(1), Penalty.uniform(1), callback=callback)
    assert seen == [8.0, 0.0, 2.0, 3.0]
    assert solution.weights.tolist() == [3.0]  # of 4 and 2, the later half; the last step alone was at 2
    assert solution.interrupted == isinstance(end, KeyboardInterrupt)
    whole = AveragedStochastic().solve(Wandering(), np.zeros(1), Penalty.uniform(1), max_iterations=6)
    assert whole.weights.tolist() == [6.0]


def test_a_limit_within_another_ends_no_later():
    with compute.TimeLimit(0.0), compute.TimeLimit(1e9):
        assert compute.out_of_time()
    with compute.TimeLimit(1e9) as outer:
        with compute.TimeLimit(0.0) as inner:
            assert compute.out_of_time()
        assert not compute.out_of_time()
    assert (outer.passed, inner.passed) == (False, True)


def test_ctrl_c_within_a_draw_ends_the_drawing():
    class Interrupted(Wandering):
        def value_and_grad(self, weights):
            raise KeyboardInterrupt

    class Ends(Wandering):
        def resampled(self, draw, _):
            return (Interrupted if draw == 2 else Wandering)([8.0, 0.0, 4.0][draw])

    solution = AveragedStochastic().solve(Ends(), np.zeros(1), Penalty.uniform(1), max_iterations=3)
    assert solution.interrupted
    assert solution.weights.tolist() == [0.0]  # of 8 and 0, the later half
