"""The listwise losses by themselves: value and gradient, curvature, and what one call on a block costs.

    python benchmarks/losses_listwise.py [--documents 200000] [--queries 1700] [--features 136]

Ragged queries with five grades. Columns, in milliseconds unless said otherwise:

bind       labels to bound loss, once per data set
2 threads  value and gradient of all documents, `at(scores)`
1 thread   the same on one thread
ns/doc     the same per document, on one thread
judge µs   one call of `evaluate_block` on a block of one query with two documents: the overhead of a call
H·V        the curvature times a matrix with `--features` columns, for one block of about 4,000 documents

Goals: ListNet at most 3 ms on two threads for 200,000 documents, and an overhead of at most 10 µs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from toprank.compute import available_threads
from toprank.data.queries import Queries
from toprank.losses.base import Loss, Requested
from toprank.losses.boltzrank import BoltzRank
from toprank.losses.cosine import Cosine
from toprank.losses.listmle import CostSensitiveListMLE, ListMLE, PListMLE
from toprank.losses.softmax import XENDCG, ListNet, Multicategory

LOSSES: list[Loss] = [
    ListNet(),
    Multicategory(),
    XENDCG(),
    ListMLE(),
    ListMLE(ties="breslow"),
    ListMLE(ties="file"),
    PListMLE(),
    CostSensitiveListMLE(),
    Cosine(),
    ListNet(top_k=2),
    BoltzRank(samples=50),
]
GOAL_MS, GOAL_OVERHEAD_US = 3.0, 10.0


def best_of(call: Callable[[], Any], repeats: int, most: float = 1.5) -> float:
    """Seconds of the fastest of some calls; slow ones are not repeated for longer than `most` seconds."""
    best, begin = float("inf"), time.perf_counter()
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() - begin > most:
            break
    return best


def ragged(documents: int, queries: int, rng: np.random.Generator) -> Queries:
    """Query lengths as in web search data: none very short, some several times the mean."""
    shares = np.cumsum(rng.gamma(3.0, size=queries))
    return Queries(np.unique(np.concatenate([[0], np.round(documents * shares / shares[-1]).astype(np.int64)])))


def overhead(loss: Loss) -> float:
    """Seconds of one call of `evaluate_block` with next to no work in it."""
    bound, scores, grad = loss.on([1.0, 0.0], Queries([0, 2])), np.zeros(2), np.empty(2)
    block, requested = bound.slice(0, 1), Requested()
    bound.evaluate_block(block, scores, grad, requested)

    def many() -> None:
        for _ in range(1000):
            bound.evaluate_block(block, scores, grad, requested)

    return best_of(many, 5) / 1000


def measure(loss: Loss, labels: np.ndarray, queries: Queries, features: int, rng: np.random.Generator) -> list[float]:
    n = queries.n_documents
    small = Queries([0, 3])
    loss.on([2.0, 0.0, 1.0], small).at(np.zeros(3), curvature=True).curvature @ np.zeros((3, 1))  # compilation
    begin = time.perf_counter()
    bound = loss.on(labels, queries)
    bind, scores = time.perf_counter() - begin, rng.normal(size=n)
    two = best_of(lambda: bound.at(scores, threads=2), 30)
    one = best_of(lambda: bound.at(scores, threads=1), 20)
    block = bound.blocks(4096)[0]
    given, V = scores[block.rows], rng.normal(size=(block.n_documents, features))
    curvature = bound.evaluate_block(block, given, np.empty_like(given), Requested(curvature=True))[1]
    product = best_of(lambda: curvature @ V, 10)
    return [bind * 1e3, two * 1e3, one * 1e3, one / n * 1e9, overhead(loss) * 1e6, product * 1e3]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=1_700)
    parser.add_argument("--features", type=int, default=136)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    queries = ragged(options.documents, options.queries, rng)
    labels = rng.choice(5, options.documents, p=[0.5, 0.3, 0.12, 0.06, 0.02]).astype(float)
    print(f"{options.documents:,} documents in {options.queries:,} queries; {available_threads()} cores")
    print(f"{'loss':<28}{'bind':>9}{'2 threads':>11}{'1 thread':>10}{'ns/doc':>8}{'judge µs':>10}{'H·V':>9}")
    results = {}
    for loss in LOSSES:
        changed = [f"{k}={v}" for k, v in vars(loss).items() if v != vars(type(loss)()).get(k)]
        name = f"{type(loss).__name__} {' '.join(changed)}"
        results[name] = row = measure(loss, labels, queries, options.features, rng)
        print(
            f"{name:<28}{row[0]:9.1f}{row[1]:11.2f}{row[2]:10.2f}{row[3]:8.1f}{row[4]:10.2f}{row[5]:9.2f}", flush=True
        )
    listnet = next(iter(results.values()))
    worst = max(row[4] for row in results.values())
    print(f"ListNet on two threads {listnet[1]:.2f} ms, goal {GOAL_MS}: {'met' if listnet[1] <= GOAL_MS else 'MISSED'}")
    print(f"overhead {worst:.1f} µs, goal {GOAL_OVERHEAD_US}: {'met' if worst <= GOAL_OVERHEAD_US else 'MISSED'}")


if __name__ == "__main__":
    main()
