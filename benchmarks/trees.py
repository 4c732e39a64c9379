"""Boosting under our losses against LightGBM's own objectives.

    python benchmarks/trees.py [--documents 200000] [--features 136] [--sizes 60 180] [--trees 20] [--repeats 4]
                               [--threads 2] [--cpu] [--lambdas]

--cpu counts processor time, for machines that others use too; threads of OpenMP that wait in a loop would count too,
so set OMP_WAIT_POLICY=passive. --lambdas leaves out the losses that are not LambdaRank.

Goals: our LambdaRank at most 1.05 times LightGBM's lambdarank, per tree of 63 leaves; softmax and regression losses at
most 1.25 times an objective that returns gradients computed beforehand. (Prediction: tree_prediction.py.)
Our times are those of `TreeRanker.fit`, with the metric on the training data after every tree. The gradients computed
beforehand are those of the same training, recorded: the same trees, for the price of the trees alone. Trainings take
turns and the faster quarter of the trees (but for the first five) decides, so that a busy machine does little harm.
What gradients and metric take of a round is timed alone, on one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np

import toprank as tr
from toprank.evaluation.scores import BoundMetric
from toprank.rankers.trees.objective import TreeObjective
from toprank.rankers.trees.ranker import TreeRanker

GRADES = [0.52, 0.75, 0.93, 0.98]
WARM_UP = 5
Seconds = list[float]
clock = time.perf_counter


def make_data(n: int, d: int, low: int, high: int) -> tr.RankingData:
    """Queries of `low` to `high` documents; every third feature has few values; the grades follow some of them."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(low, high + 1, n // low + 1)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), n)) + 1]
    sizes[-1] -= sizes.sum() - n
    X = rng.normal(size=(n, d)).astype(np.float32)
    X[:, ::3] = np.round(3 * X[:, ::3])
    truth = X[:, :10] @ rng.normal(size=10) * 0.3 + np.sin(2 * X[:, 10]) + rng.normal(size=n)
    labels = np.digitize(truth, np.quantile(truth, GRADES)).astype(np.float64)
    return tr.RankingData(X, labels, queries=tr.Queries.from_sizes(sizes[sizes > 0]))


def ours(data: tr.RankingData, loss: Any, trees: int, threads: int) -> Seconds:
    stamps: Seconds = []
    TreeRanker(loss, n_trees=trees, num_leaves=63, threads=threads, callbacks=[lambda now: stamps.append(clock())]).fit(
        data
    )
    return np.diff(stamps)[WARM_UP:].tolist()


def theirs(data: tr.RankingData, objective: Any, trees: int, threads: int, **options: Any) -> Seconds:
    stamps: Seconds = []
    parameters = {"num_leaves": 63, "num_threads": threads, "force_col_wise": True, "verbosity": -1, "metric": "None"}
    lightgbm.train(
        {**parameters, **options, "objective": objective},
        lightgbm.Dataset(data.X, data.labels, group=data.queries.sizes),
        num_boost_round=trees,
        callbacks=[lambda env: stamps.append(clock())],
    )
    return np.diff(stamps)[WARM_UP:].tolist()


def replay(data: tr.RankingData, name: str, trees: int, threads: int) -> Callable[[], Seconds]:
    """A training whose gradients cost nothing: those of an earlier one under the same loss, round by round."""
    recorded: list[tuple[np.ndarray, np.ndarray]] = []

    def record(objective: Any, raw: Any) -> Any:
        pair = inner(objective, raw)
        recorded.append((pair[0].copy(), pair[1].copy()))
        return pair

    inner, TreeObjective.__call__ = TreeObjective.__call__, record  # type: ignore[method-assign]
    ours(data, name, trees, threads)
    TreeObjective.__call__ = inner  # type: ignore[method-assign]

    def run() -> Seconds:
        rounds = iter(recorded)
        return theirs(data, lambda raw, dataset: next(rounds), trees, threads)

    return run


def quick(seconds: Seconds) -> float:
    return float(np.quantile(seconds, 0.25))


def compare(
    title: str, baseline: Callable[[], Seconds], others: dict[str, Callable[[], Seconds]], repeats: int
) -> None:
    times: dict[str, Seconds] = {"": [], **{name: [] for name in others}}
    for _ in range(repeats):
        times[""] += baseline()
        for name, run in others.items():
            times[name] += run()
    base = quick(times.pop(""))
    print(f"\n{title:<58}{1e3 * base:8.1f} ms a tree")
    for name, seconds in times.items():
        print(f"  {name:<56}{1e3 * quick(seconds):8.1f} ms a tree  {quick(seconds) / base:6.3f} times that")


def parts(data: tr.RankingData) -> None:
    """What a round of LambdaMART costs besides its tree, at scores that have learned something."""
    scores = data.labels + np.random.default_rng(1).normal(size=data.n_documents)
    bound = tr.losses.LambdaRank(truncation=30, norm=True).on(data.labels, data.queries)
    judge = BoundMetric(data, "ndcg@10", threads=1)
    for name, work in (
        ("gradients", lambda: bound.derivatives(scores, threads=1)),
        ("metric", lambda: judge(scores)),
    ):
        times = []
        for _ in range(100):
            start = clock()
            work()
            times.append(clock() - start)
        print(f"{name} alone, one thread: {1e3 * min(times):.2f} ms")


def training(data: tr.RankingData, trees: int, threads: int, repeats: int, others: tuple[str, ...]) -> None:
    def lambdarank(**options: Any) -> Callable[[], Seconds]:
        return lambda: theirs(data, "lambdarank", trees, threads, **options)

    def under(loss: Any) -> Callable[[], Seconds]:
        return lambda: ours(data, loss, trees, threads)

    rank = tr.losses.LambdaRank
    compare(
        "LightGBM lambdarank, its defaults (truncation 30, norm)",
        lambdarank(),
        {"LambdaRank(truncation=30, norm=True)": under(rank(truncation=30, norm=True))},
        repeats,
    )
    compare(
        "LightGBM lambdarank, truncation 30, no norm",
        lambdarank(lambdarank_norm=False),
        {"LambdaRank(truncation=30)": under(rank(truncation=30))},
        repeats,
    )
    compare(
        "LightGBM lambdarank, all pairs, no norm",
        lambdarank(lambdarank_norm=False, lambdarank_truncation_level=100_000),
        {"LambdaRank()": under(rank())},
        repeats,
    )
    for name in others:
        baseline = replay(data, name, trees, threads)
        compare(f"gradients of {name}, computed beforehand", baseline, {name: under(name)}, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("documents", 200_000), ("features", 136), ("trees", 20), ("repeats", 4), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--sizes", type=int, nargs=2, default=(60, 180))
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--lambdas", action="store_true")
    options = parser.parse_args()
    if options.cpu:
        global clock
        clock = time.process_time
    data = make_data(options.documents, options.features, *options.sizes)
    print(f"{data!r}, {options.threads} threads, 63 leaves, {'processor' if options.cpu else 'wall'} time")
    parts(data)
    others = () if options.lambdas else ("ListNet", "XENDCG", "ListMLE", "Squared", "QuerySquared")
    training(data, options.trees, options.threads, options.repeats, others)


if __name__ == "__main__":
    main()
