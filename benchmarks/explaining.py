"""How long an explanation takes: a pair, a query and its changes, for trees, a linear ranker and an estimated one.

    python benchmarks/explaining.py [--trees 300] [--leaves 31] [--features 136] [--documents 100] [--repeats 50]

The faster quarter of the repeats decides, so that a busy machine does little harm.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import toprank as tr
from toprank.explanations.explained_query import ExplainedQuery


def fastest(call: Callable[[], Any], repeats: int) -> float:
    """Milliseconds of the faster quarter."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1000 * float(np.mean(sorted(times)[: max(1, repeats // 4)]))


def measure(name: str, ranker: Any, data: tr.RankingData, repeats: int) -> None:
    """One line of the table."""
    qid = data.qids[0]
    asked = ExplainedQuery(ranker, data, qid)
    first, second = (np.array([row]) for row in asked.order[:2])
    every = np.arange(len(asked.order))
    few = max(1, repeats // 10) if ranker.explains_exactly else 1
    times = [
        fastest(lambda: ranker.contributions(asked.part, first, second), repeats),
        fastest(lambda: ranker.explain(data, qid), repeats),
        fastest(lambda: ranker.contributions(asked.part, every, every), few) if ranker.explains_exactly else np.nan,
        fastest(lambda: tr.explanations.counterfactuals(ranker, data, qid), few),
    ]
    print(f"{name:<16}" + "".join(f"{ms:>22.2f}" for ms in times))


def main() -> None:
    """Train, explain, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option, default in (("trees", 300), ("leaves", 31), ("features", 136), ("documents", 100), ("repeats", 50)):
        parser.add_argument(f"--{option}", type=int, default=default)
    asked = parser.parse_args()
    sizes = {"n_queries": 200, "n_documents": asked.documents, "n_features": asked.features}
    data = tr.synthetic(**sizes, truth="nonlinear", seed=0)
    print(f"{data}, milliseconds, one thread")
    print(f"{'':<16}" + "".join(f"{word:>22}" for word in ("contributions, pair", "explain", "query", "changes")))
    trees = tr.TreeRanker(n_trees=asked.trees, num_leaves=asked.leaves, early_stopping=None, threads=1).fit(data)
    measure(f"{trees.forest_.n_trees} × {asked.leaves}", trees, data, asked.repeats)
    measure("linear", tr.LinearRanker("ListNet", threads=1).fit(data), data, asked.repeats)
    gain = tr.ExpectedGainRanker("Multinomial", threads=1, max_iterations=20)
    measure("expected gain", gain.fit(data), data, max(2, asked.repeats // 10))


if __name__ == "__main__":
    main()
