"""Objectives for the tests of the solvers, in plain NumPy."""

from __future__ import annotations

import numpy as np


class Quadratic:
    """½ wᵀAw - bᵀw."""

    def __init__(self, A, b):
        self.A, self.b, self.n_weights = np.asarray(A, float), np.asarray(b, float), len(b)

    def value_and_grad(self, w):
        return 0.5 * w @ self.A @ w - self.b @ w, self.A @ w - self.b

    def hessian(self, w):
        return self.A

    def hessian_product(self, w):
        return lambda v: self.A @ v


class Logistic:
    """Mean of log(1 + exp(-y x·w))."""

    def __init__(self, X, y):
        self.X, self.y, self.n_weights = X, y, X.shape[1]

    def value_and_grad(self, w):
        margins = self.y * (self.X @ w)
        return np.logaddexp(0, -margins).mean(), -self.X.T @ (self.y / (1 + np.exp(margins))) / len(self.y)

    def bends(self, w):
        p = 1 / (1 + np.exp(-self.X @ w))
        return p * (1 - p) / len(self.y)

    def hessian(self, w):
        return self.X.T @ (self.bends(w)[:, None] * self.X)

    def hessian_product(self, w):
        bends = self.bends(w)
        return lambda v: self.X.T @ (bends * (self.X @ v))


class Hinge:
    """Mean of max(0, 1 - y x·w); a weighted one where weights of the rows are given."""

    def __init__(self, X, y, of_rows=1.0):
        self.signed, self.n_weights, self.of_rows = y[:, None] * X, X.shape[1], of_rows

    def value_and_grad(self, w):
        losses = 1 - self.signed @ w
        mean = (self.of_rows * np.maximum(losses, 0)).mean()
        return mean, -self.signed.T @ (self.of_rows * (losses > 0)) / len(losses)


class Barrier:
    """-log(1 - w), not a number beyond 1: steps that go too far must come back."""

    n_weights = 1

    def value_and_grad(self, w):
        return -np.log(1 - w[0]) - 3 * w[0], 1 / (1 - w) - 3

    def hessian(self, w):
        return np.diag(1 / (1 - w) ** 2)

    def hessian_product(self, w):
        return lambda v: v / (1 - w) ** 2


class Watched:
    """Another objective, which raises an exception at its n-th evaluation."""

    def __init__(self, inner, n, exception=KeyboardInterrupt):
        self.inner, self.n_weights, self.left, self.exception = inner, inner.n_weights, n, exception
        for method in {"hessian", "hessian_product"} & set(dir(inner)):
            setattr(self, method, getattr(inner, method))

    def value_and_grad(self, w):
        self.left -= 1
        if self.left == 0:
            raise self.exception
        return self.inner.value_and_grad(w)


class Gradient:
    """Another objective without its curvature."""

    def __init__(self, inner):
        self.n_weights, self.value_and_grad = inner.n_weights, inner.value_and_grad


def classification(seed, n=60, d=4, noise=1.0, intercept=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X @ rng.normal(size=d) + noise * rng.normal(size=n) > 0, 1.0, -1.0)
    if intercept:
        X = np.hstack([X, np.ones((n, 1))])
    return X, y


def random_quadratic(seed, d=6, rows=20):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(rows, d)), rng.normal(size=rows)
    return Quadratic(X.T @ X, X.T @ y)


def total(objective, penalty, weights):
    return objective.value_and_grad(weights)[0] + penalty.value(weights)
