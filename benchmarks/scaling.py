"""What a pass, a round of boosting or an epoch costs, by documents, by features and by documents of a query.

    python benchmarks/scaling.py [--large] [--features 100] [--per-query 100] [--repeats 3]

One thread throughout, in processor time, so that costs add up to those of any number of cores and a busy machine does
little harm. From 10^4 to 10^6 documents, with --large
to 10^7 (4 GB of features). Prints the Markdown tables of docs/scaling.md: nanoseconds a document at each size, and at
10^5 documents for other numbers of features and other lengths of queries. The fastest of several runs counts.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np

import toprank as tr
from toprank.compute import one_blas_thread
from toprank.rankers.source import InMemory
from toprank.scorers.expected_gain import Logits
from toprank.scorers.linear import LinearScorer

ROUNDS = 6
EPOCHS = 3


def make_data(n: int, d: int, per_query: int) -> tr.RankingData:
    rng = np.random.default_rng(0)
    X = np.empty((n, d), dtype=np.float32)
    for first in range(0, n, 1 << 16):
        X[first : first + (1 << 16)] = rng.normal(size=X[first : first + (1 << 16)].shape)
    truth = X[:, :10] @ rng.normal(size=10) * 0.3 + rng.normal(size=n)
    labels = np.digitize(truth, np.quantile(truth, [0.52, 0.75, 0.93, 0.98])).astype(float)
    sizes = np.full(n // per_query, per_query)
    return tr.RankingData(X, labels, queries=tr.Queries.from_sizes(sizes))


def best(function: Callable[[], object], repeats: int) -> float:
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def linear(loss: str, what: str = "value_and_grad") -> Callable[[tr.RankingData, int], float]:
    """A pass of a linear scorer."""

    def seconds(data: tr.RankingData, repeats: int) -> float:
        source = InMemory(data)
        objective = source.objective(LinearScorer(data.n_features), tr.losses.make(loss), source.standardization(1), 1)
        weights = np.full(data.n_features, 0.01)
        return best(lambda: getattr(objective, what)(weights), repeats)

    return seconds


def expected_gain(data: tr.RankingData, repeats: int) -> float:
    """A pass of the grade probabilities under their likelihood."""
    source, grades = InMemory(data), 5
    scorer = Logits(data.n_features, grades)
    objective = source.objective(scorer, tr.losses.Multinomial(n_grades=grades), source.standardization(1), 1)
    return best(lambda: objective.value_and_grad(np.zeros(scorer.n_weights)), repeats)


class Clock:
    """A callback that notes the processor time of every round or epoch; the first, which compiles, does not count."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, _: object) -> None:
        """Note the time."""
        self.times.append(time.process_time())

    def best(self) -> float:
        """The fastest."""
        return float(np.diff(self.times).min())


def trees(loss: str) -> Callable[[tr.RankingData, int], float]:
    """A round of boosting, 31 leaves."""

    def seconds(data: tr.RankingData, repeats: int) -> float:
        clock = Clock()
        tr.TreeRanker(loss, n_trees=ROUNDS, threads=1, callbacks=[clock]).fit(data)
        return clock.best()

    return seconds


def neural(data: tr.RankingData, repeats: int) -> float:
    """An epoch of an MLP with two hidden layers of 64."""
    clock = Clock()
    tr.NeuralRanker("ListNet", hidden=(64, 64), epochs=EPOCHS, threads=1, callbacks=[clock]).fit(data)
    return clock.best()


def predict_trees(data: tr.RankingData, repeats: int) -> float:
    """Scores by 100 trees."""
    ranker = tr.TreeRanker("ListNet", n_trees=100, threads=1).fit(data.select(np.arange(min(data.n_queries, 200))))
    return best(lambda: ranker.predict(data), repeats)


def evaluate(data: tr.RankingData, repeats: int) -> float:
    """NDCG@10 of given scores."""
    scores = np.random.default_rng(0).normal(size=data.n_documents)
    return best(lambda: tr.evaluate(scores, data, "ndcg@10", threads=1), repeats)


FAMILIES: dict[str, Callable[[tr.RankingData, int], float]] = {
    "linear, ListNet: value and gradient": linear("ListNet"),
    "linear, logistic pairs: value and gradient": linear("Logistic"),
    "linear, LambdaRank: value and gradient": linear("LambdaRank"),
    "linear, ListNet: curvature (Newton)": linear("ListNet", "hessian"),
    "expected gain, 5 grades: value and gradient": expected_gain,
    "trees, ListNet: a round of 31 leaves": trees("ListNet"),
    "trees, LambdaRank: a round of 31 leaves": trees("LambdaRank"),
    "network 64-64, ListNet: an epoch": neural,
    "prediction by 100 trees": predict_trees,
    "evaluation, NDCG@10": evaluate,
}


def table(heads: list[str], columns: list[dict[str, float]]) -> None:
    print("| nanoseconds a document | " + " | ".join(heads) + " |")
    print("|---|" + "---:|" * len(heads))
    for name in FAMILIES:
        print(f"| {name} | " + " | ".join(f"{column[name]:,.0f}" for column in columns) + " |")
    print()


def measured(n: int, d: int, per_query: int, repeats: int) -> dict[str, float]:
    data = make_data(n, d, per_query)
    with one_blas_thread():
        return {name: family(data, repeats) / data.n_documents * 1e9 for name, family in FAMILIES.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--large", action="store_true")
    arguments.add_argument("--features", type=int, default=100)
    arguments.add_argument("--per-query", type=int, default=100)
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    d, m, repeats = options.features, options.per_query, options.repeats
    sizes = [10**4, 10**5, 10**6, *([10**7] if options.large else [])]
    print(f"{d} features, {m} documents a query, float32, one thread\n")
    table([f"{n:,}" for n in sizes], [measured(n, d, m, repeats if n < 10**6 else 1) for n in sizes])
    widths = (d // 4, d, 4 * d)
    print(f"100,000 documents, {m} a query, by the number of features\n")
    table([str(width) for width in widths], [measured(10**5, width, m, repeats) for width in widths])
    lengths = (10, 100, 1000)
    print(f"100,000 documents, {d} features, by documents a query\n")
    table([str(length) for length in lengths], [measured(10**5, d, length, repeats) for length in lengths])


if __name__ == "__main__":
    main()
