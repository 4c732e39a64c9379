"""The randomization test against SciPy and ranx: 100,000 sign flips, by the same process, ratios printed.

    python benchmarks/significance.py [--queries 30000] [--flips 100000] [--peer-flips 5000]

The peers are timed on fewer flips and scaled (their time is proportional to the flips); ranx is left out, and said to
be, where it is not installed. The goal is a factor of 50 at 30,000 queries.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from toprank.compute import available_threads
from toprank.significance import bootstrap_interval, randomization_test

GOAL = 50


def timed(call: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Seconds of the best of some runs, and the result."""
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - begin)
    return best, result


def scipy_test(a: np.ndarray, b: np.ndarray, flips: int) -> float:
    from scipy import stats

    def difference(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        return np.mean(x, axis=axis) - np.mean(y, axis=axis)

    batch = max(1, 4_000_000 // len(a))  # a few hundred MB at most; larger batches are no faster
    return stats.permutation_test(
        (a, b), difference, permutation_type="samples", n_resamples=flips, batch=batch, vectorized=True, rng=0
    ).pvalue


def ranx_test() -> Callable[[np.ndarray, np.ndarray, int], float] | None:
    try:
        from ranx.statistical_tests.fisher_randomization_test import fisher_randomization_test
    except ImportError:
        return None
    return lambda a, b, flips: fisher_randomization_test(a, b, n_permutations=flips)[0]


def measure(n: int, flips: int, peer_flips: int) -> None:
    rng = np.random.default_rng(0)
    a = rng.random(n)
    b = a + rng.normal(0.3 / np.sqrt(n), 0.2, n)
    ours = partial(randomization_test, a, b, n_permutations=flips)
    ours()  # compilation
    fast, result = timed(ours, repeats=5)
    slower, _ = timed(partial(ours, threads=1), repeats=3)
    print(f"\n{n:,} queries")
    print(f"  toprank             {fast:9.4f} s             p = {result.p:.4f}")
    print(f"  toprank, 1 thread   {slower:9.4f} s")
    for name, peer in (("scipy", scipy_test), ("ranx", ranx_test())):
        if peer is None:
            print(f"  {name:<19} not installed")
            continue
        peer(a, b, 10)  # imports and compilation
        part, p = timed(partial(peer, a, b, peer_flips))
        slow = part * flips / peer_flips
        goal = "" if n < 30_000 else f"  goal {GOAL}x: {'met' if slow / fast >= GOAL else 'MISSED'}"
        print(f"  {name:<19} {slow:9.4f} s  {slow / fast:8.0f}x  p = {p:.4f}{goal}")
    interval = partial(bootstrap_interval, a, b)
    interval()
    print(f"  bootstrap, 10,000   {timed(interval, repeats=3)[0]:9.4f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, nargs="+", default=[150, 30_000])
    parser.add_argument("--flips", type=int, default=100_000)
    parser.add_argument("--peer-flips", type=int, default=5_000)
    options = parser.parse_args()
    print(f"{options.flips:,} sign flips on {available_threads()} threads; peers on {options.peer_flips:,}, scaled")
    for n in options.queries:
        measure(n, options.flips, options.peer_flips)


if __name__ == "__main__":
    main()
