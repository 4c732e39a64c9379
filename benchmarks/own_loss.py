"""What a loss of your own costs: a loop over queries in NumPy, the whole block at once, a compiled loop, and ours.

    python benchmarks/own_loss.py

One loss in several ways: −log Σ_{j relevant} P_j, P = softmax(s), the one of docs/your-own-loss.md; and ListNet of
toprank, which does as much. Printed: milliseconds for value, gradient and diagonal on one thread, the best of several.
The compiled loop is timed where Numba is installed.
"""

from __future__ import annotations

import importlib.util
import time

import numpy as np

import toprank as tr
from toprank.losses import ListNet

QUERIES, DOCUMENTS = 1000, 100


def by_query(scores, relevant, offsets, grad):
    """A loop over queries, NumPy within each."""
    losses = np.zeros(len(offsets) - 1)
    for q in range(len(losses)):
        rows = slice(offsets[q], offsets[q + 1])
        E, good = np.exp(scores[rows] - scores[rows].max()), relevant[rows]
        losses[q] = np.log(E.sum()) - np.log(E[good].sum())
        grad[rows] = E / E.sum() - E * good / E[good].sum()
    return losses


def by_block(scores, relevant, offsets, grad):
    """All queries of the block at once: sums and maxima over slices."""
    starts, sizes = offsets[:-1], np.diff(offsets)
    E = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), sizes))
    good = E * relevant
    total, total_good = np.add.reduceat(E, starts), np.add.reduceat(good, starts)
    grad[:] = E / np.repeat(total, sizes) - good / np.repeat(total_good, sizes)
    return np.log(total) - np.log(total_good)


def by_element(scores, relevant, offsets, grad):
    """A loop over documents, to be compiled."""
    losses = np.zeros(len(offsets) - 1)
    for q in range(len(losses)):
        high, total, good = -np.inf, 0.0, 0.0
        for j in range(offsets[q], offsets[q + 1]):
            high = max(high, scores[j])
        for j in range(offsets[q], offsets[q + 1]):
            grad[j] = np.exp(scores[j] - high)
            total += grad[j]
            good += grad[j] * relevant[j]
        for j in range(offsets[q], offsets[q + 1]):
            grad[j] = grad[j] / total - grad[j] * relevant[j] / good
        losses[q] = np.log(total) - np.log(good)
    return losses


def milliseconds(work, repeats=30):
    """The best of several calls, in processor time."""
    best = np.inf
    for _ in range(repeats):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return 1e3 * best


def main() -> None:
    """Time every way, and see that they agree."""
    rng = np.random.default_rng(0)
    queries = tr.Queries.from_sizes([DOCUMENTS] * QUERIES)
    scores, labels = rng.standard_normal(queries.n_documents), rng.integers(0, 2, queries.n_documents)
    labels[queries.offsets[:-1]] = 1
    ways = {"NumPy, query by query": by_query, "NumPy, block at once": by_block}
    if importlib.util.find_spec("numba") is not None:
        import numba

        ways["your own Numba loop"] = numba.njit(nogil=True)(by_element)
    expected = None
    print(f"{QUERIES} queries of {DOCUMENTS} documents, one thread")
    for name, way in ways.items():
        grad = np.empty_like(scores)
        given = scores, labels > 0, queries.offsets, grad
        losses = way(*given)
        expected = losses if expected is None else expected
        np.testing.assert_allclose(losses, expected, rtol=1e-10)
        print(f"{name:<22} {milliseconds(lambda way=way, given=given: way(*given)):6.1f} ms")
    bound = ListNet().on(labels, queries)
    print(f"{'ListNet of toprank':<22} {milliseconds(lambda: bound.at(scores, threads=1)):6.1f} ms")


if __name__ == "__main__":
    main()
