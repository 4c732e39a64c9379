"""Sums over the rankings of a query, for `toprank.losses.boltzrank`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, kernel

__all__ = ["Rankings", "boltzmann", "boltzmann_covariance", "boltzmann_variance"]


class Rankings(NamedTuple):
    """Some rankings of every query; a ranking lists the ranks of the query's documents, from 1.

    The coefficient of document j is c_j(π) = step·w_j·(weighted mean rank of π − π_j).
    """

    ranks: npt.NDArray[np.int32]  # query by query, ranking by ranking
    entries: IntArray  # where each query's ranks begin
    starts: IntArray  # where each query's rankings begin, counted in rankings
    means: FloatArray  # weighted mean rank of each ranking
    steps: FloatArray  # of each query
    weights: FloatArray  # of each document


@kernel
def _coefficients(rankings: Rankings, q: int, r: int, start: int, m: int, out: FloatArray) -> None:
    """c(π) of ranking number r of query q, into out[:m]; `start` is the query's first document."""
    entry = rankings.entries[q] + r * m
    mean, step = rankings.means[rankings.starts[q] + r], rankings.steps[q]
    for j in range(m):
        out[j] = step * rankings.weights[start + j] * (mean - rankings.ranks[entry + j])


@kernel
def boltzmann(
    scores: FloatArray,
    rankings: Rankings,
    target: FloatArray,
    expected: FloatArray,
    scale: FloatArray,
    offsets: IntArray,
    first: int,
    last: int,
    model: FloatArray,
    grad: FloatArray,
    losses: FloatArray,
) -> None:
    """P(π) into `model`, scale·(Σ_π P(π) c(π) − expected) into `grad`, −Σ_π target(π) log P(π) into `losses`."""
    base, base_ranking = offsets[first], rankings.starts[first]
    coefficients = np.empty(len(scores))
    for q in range(first, last):
        start, m, begin = offsets[q], offsets[q + 1] - offsets[q], rankings.starts[q]
        n = rankings.starts[q + 1] - begin
        own = model[begin - base_ranking : begin - base_ranking + n]
        top = -np.inf
        for r in range(n):
            _coefficients(rankings, q, r, start, m, coefficients)
            own[r] = 0.0
            for j in range(m):
                own[r] += coefficients[j] * scores[start - base + j]
            top = max(top, own[r])
        total, gap = 0.0, 0.0
        for r in range(n):
            below = top - own[r]
            gap += target[begin + r] * below
            own[r] = np.exp(-below)
            total += own[r]
        losses[q - first] = gap + np.log(total)
        own_grad = grad[start - base : start - base + m]
        own_grad[:] = 0.0
        for r in range(n):
            own[r] /= total
            _coefficients(rankings, q, r, start, m, coefficients)
            for j in range(m):
                own_grad[j] += own[r] * coefficients[j]
        for j in range(m):
            own_grad[j] = scale[q] * (own_grad[j] - expected[start + j])


@kernel
def boltzmann_covariance(
    rankings: Rankings,
    model: FloatArray,
    scale: FloatArray,
    offsets: IntArray,
    first: int,
    last: int,
    V: FloatArray,
    product: FloatArray,
) -> None:
    """scale·Σ_π P(π) c_j(π)·(c(π)·V − Σ P c·V), added to `product`."""
    base, width = offsets[first], V.shape[1]
    coefficients, mean = np.empty(len(V)), np.empty(width)
    for q in range(first, last):
        start, m, n = offsets[q], offsets[q + 1] - offsets[q], rankings.starts[q + 1] - rankings.starts[q]
        own = model[rankings.starts[q] - rankings.starts[first] :]
        projected = np.zeros((n, width))
        mean[:] = 0.0
        for r in range(n):
            _coefficients(rankings, q, r, start, m, coefficients)
            for j in range(m):
                for c in range(width):
                    projected[r, c] += coefficients[j] * V[start - base + j, c]
            for c in range(width):
                mean[c] += own[r] * projected[r, c]
        for r in range(n):
            _coefficients(rankings, q, r, start, m, coefficients)
            for j in range(m):
                factor = scale[q] * own[r] * coefficients[j]
                for c in range(width):
                    product[start - base + j, c] += factor * (projected[r, c] - mean[c])


@kernel
def boltzmann_variance(
    rankings: Rankings, model: FloatArray, scale: FloatArray, offsets: IntArray, first: int, last: int
) -> FloatArray:
    """scale·Var_P[c_j(π)] of each document."""
    base = offsets[first]
    n_documents = offsets[last] - base
    variance, mean, coefficients = np.zeros(n_documents), np.zeros(n_documents), np.empty(n_documents)
    for q in range(first, last):
        start, m, n = offsets[q], offsets[q + 1] - offsets[q], rankings.starts[q + 1] - rankings.starts[q]
        own = model[rankings.starts[q] - rankings.starts[first] :]
        for r in range(n):
            _coefficients(rankings, q, r, start, m, coefficients)
            for j in range(m):
                mean[start - base + j] += own[r] * coefficients[j]
        for r in range(n):
            _coefficients(rankings, q, r, start, m, coefficients)
            for j in range(m):
                variance[start - base + j] += scale[q] * own[r] * (coefficients[j] - mean[start - base + j]) ** 2
    return variance
