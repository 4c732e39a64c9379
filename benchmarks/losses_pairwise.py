"""Pairwise losses: nanoseconds a pair on ragged queries, seconds on one very long query, against padded tensors.

    python benchmarks/losses_pairwise.py [--queries 1700] [--long 100000]

Goals: logistic pairs with value and gradient under 1 ns a pair on one core, 10 times faster than padded torch at a
tenth of its memory; hinge and OWPC on one query of 100,000 documents under 0.2 s. torch is left out, and said to be,
where it is not installed; where it is, it may use float32 and every core, while ours stays with float64 and one.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from toprank.data.queries import Queries
from toprank.losses.base import Loss
from toprank.losses.hinges import OWPC, SVMmap
from toprank.losses.pairwise import Exponential, Hinge, Logistic, PairFrame, SquaredHinge

GRADE_CHANCES = [0.5, 0.25, 0.15, 0.07, 0.03]


def timed(call: Callable[[], Any], repeats: int = 5) -> float:
    """Seconds of the best of some runs, after one to warm up."""
    call()
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


def peak_memory(call: Callable[[], Any]) -> int:
    """Bytes that NumPy held at most during the call."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def padded(values: np.ndarray, queries: Queries, fill: float) -> np.ndarray:
    out = np.full((len(queries), int(queries.sizes.max())), fill)
    out[np.arange(out.shape[1]) < queries.sizes[:, None]] = values
    return out


def numpy_logistic(scores: np.ndarray, labels: np.ndarray, real: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean over queries of the mean over pairs, and its gradient, in chunks of padded queries."""
    value, grad = 0.0, np.zeros_like(scores)
    for rows in np.array_split(np.arange(len(scores)), max(1, len(scores) // 100)):
        better = (labels[rows, :, None] > labels[rows, None, :]) & real[rows, None, :] & real[rows, :, None]
        gap = scores[rows, None, :] - scores[rows, :, None]
        weight = better / np.maximum(better.sum(axis=(1, 2)), 1)[:, None, None] / len(scores)
        value += float(np.sum(weight * np.logaddexp(0, gap)))
        slope = weight / (1 + np.exp(-gap))
        grad[rows] = slope.sum(axis=1) - slope.sum(axis=2)
    return value, grad


def torch_logistic(scores: np.ndarray, labels: np.ndarray, real: np.ndarray) -> Callable[[], Any] | None:
    try:
        import torch
    except ImportError:
        return None
    s, y, mask = (torch.tensor(array) for array in (scores.astype(np.float32), labels, real))
    s.requires_grad_()
    better = (y[:, :, None] > y[:, None, :]) & mask[:, None, :] & mask[:, :, None]
    weight = (better / better.sum((1, 2)).clamp(min=1)[:, None, None] / len(scores)).float()

    def call() -> Any:
        s.grad = None
        value = (weight * torch.nn.functional.softplus(s[:, None, :] - s[:, :, None])).sum()
        value.backward()
        return value

    return call


def ragged(n_queries: int) -> None:
    rng = np.random.default_rng(0)
    queries = Queries.from_sizes(rng.integers(60, 181, n_queries))
    n = queries.n_documents
    labels, scores = rng.choice(5, n, p=GRADE_CHANCES).astype(np.float64), rng.standard_normal(n)
    pairs = PairFrame.of(labels, queries, np.ones(n)).pairs.sum()
    print(f"\n{n_queries} queries, {n} documents, {pairs / 1e6:.1f} M pairs, one thread; value and gradient")
    logistic = 0.0
    for loss in (Logistic(), Logistic(pair_weight="difference"), Exponential(), Hinge(), SquaredHinge(), OWPC()):
        bound = loss.on(labels, queries)
        seconds = timed(lambda bound=bound: bound.at(scores, threads=1))
        logistic = logistic or seconds
        print(f"  {name_of(loss):<24} {1e3 * seconds:8.1f} ms  {1e9 * seconds / pairs:6.2f} ns a pair")
    bound = Logistic().on(labels, queries)
    ours = peak_memory(lambda: bound.at(scores, threads=1))
    real = np.arange(int(queries.sizes.max())) < queries.sizes[:, None]
    tensors = (padded(scores, queries, 0.0), padded(labels, queries, 0.0), real)
    value, grad = numpy_logistic(*tensors)
    result = bound.at(scores)
    assert np.isclose(result.value, value)
    assert np.allclose(result.grad, grad[real])
    seconds = timed(lambda: numpy_logistic(*tensors), 1)
    print(f"  padded NumPy             {1e3 * seconds:8.1f} ms  {seconds / logistic:6.1f} times ours")
    call = torch_logistic(*tensors)
    if call is None:
        print("  padded torch             not installed, left out")
    else:
        seconds = timed(call, 2)
        print(f"  padded torch             {1e3 * seconds:8.1f} ms  {seconds / logistic:6.1f} times ours")
    table = 8 * len(queries) * int(queries.sizes.max()) ** 2
    print(f"  our memory {ours / 1e6:.1f} MB; one padded pair table {table / 1e6:.0f} MB")


def one_long_query(m: int) -> None:
    rng = np.random.default_rng(1)
    scores, queries = rng.standard_normal(m), Queries([0, m])
    print(f"\none query of {m} documents; value and gradient")
    for kind in ("5 grades", "all different"):
        labels = rng.choice(5, m, p=GRADE_CHANCES) if kind == "5 grades" else rng.permutation(m)
        for loss in (Hinge(), SquaredHinge(), Exponential(), OWPC(), OWPC(weights="exp")):
            if isinstance(loss, OWPC) and kind == "all different":
                continue  # a threshold for each document: O(m²) by definition
            bound = loss.on(labels, queries)
            print(f"  {kind:<14} {name_of(loss):<16} {timed(lambda bound=bound: bound.at(scores), 3):7.3f} s")
    few = min(m, 10_000)
    bound = SVMmap().on(rng.random(few) < 0.1, Queries([0, few]))
    print(f"  {'binary':<14} {'SVMmap':<16} {timed(lambda: bound.at(scores[:few]), 1):7.3f} s  ({few} documents)")


def name_of(loss: Loss) -> str:
    choice = getattr(loss, "pair_weight", getattr(loss, "weights", "one"))
    return type(loss).__name__ + ("" if choice == "one" else f" {choice}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queries", type=int, default=1700)
    parser.add_argument("--long", type=int, default=100_000)
    options = parser.parse_args()
    ragged(options.queries)
    one_long_query(options.long)


if __name__ == "__main__":
    main()
