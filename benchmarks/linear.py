"""Value and gradient of a loss for a linear scorer, against the two BLAS passes X·w and Xᵀ·g alone.

    python benchmarks/linear.py [--documents 200000] [--features 136] [--cpu]

X is float32; the model standardizes it and sums in double precision, reading X once. Ratios are to the two passes,
which BLAS runs on all cores in single precision. With --cpu everything runs on one thread and processor time counts,
for machines that others use too.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

import toprank as tr
from toprank.compute import one_blas_thread
from toprank.rankers.source import RankingObjective
from toprank.scorers.features import Features, Standardization
from toprank.scorers.linear import LinearScorer


def best(function: Callable[[], object], cpu: bool) -> float:
    clock, repeats = (time.process_time, 60) if cpu else (time.perf_counter, 15)
    function()
    times = []
    for _ in range(repeats):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--documents", type=int, default=200_000)
    arguments.add_argument("--features", type=int, default=136)
    arguments.add_argument("--cpu", action="store_true")
    options = arguments.parse_args()
    n, d = options.documents, options.features
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    labels = rng.choice(5, n, p=[0.52, 0.23, 0.18, 0.05, 0.02])
    queries = tr.Queries.from_sizes(np.diff(np.append(np.arange(0, n, 118), n)))
    w, g = rng.normal(size=d).astype(np.float32), rng.normal(size=n).astype(np.float32)
    with one_blas_thread() if options.cpu else nullcontext():
        first, second = best(lambda: X @ w, options.cpu), best(lambda: X.T @ g, options.cpu)
    passes = first + second
    print(f"{n:,} × {d} float32: X·w {first * 1e3:.1f} ms, Xᵀ·g {second * 1e3:.1f} ms, together {passes * 1e3:.1f} ms")
    features = Features(X, Standardization.from_data(X), complete=True)
    for name in ("ListNet", "ListMLE", "CostSensitiveListMLE", "Squared", "Logistic", "Hinge"):
        bound = tr.losses.make(name).on(labels, queries)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for threads in (1,) if options.cpu else (None, 1):
            objective = RankingObjective(LinearScorer(d), features, bound, threads)
            with one_blas_thread():
                seconds = best(lambda one=objective: one.value_and_grad(w.astype(np.float64)), options.cpu)
            ratio = f"{seconds / passes:.2f}x the two passes"
            print(f"{name:<22}{'1 thread' if threads else 'all cores':<10}{seconds * 1e3:>7.1f} ms  {ratio}")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"{'':<22}memory beyond X and what was held before: {grown:.0f} MB")


if __name__ == "__main__":
    main()
