"""Rankers from simulated clicks on MQ2008: naive, debiased and full information; and what training on clicks costs.

`TOPRANK_DATA=… python benchmarks/clicks_training.py` prints the tables of docs/learning-from-clicks.md; with ``costs``
as an argument the second alone, which needs no data.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import toprank as tr
from toprank.clicks.simulation import relevance_of
from toprank.data.concatenation import concatenate
from toprank.data.dataset import RankingData
from toprank.losses import LambdaLoss, Loss, Multicategory, QuerySquared, Squared
from toprank.rankers.base import Ranker

SESSIONS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
SEEDS = 3


def curves(root: Path) -> None:
    """NDCG@10 on queries that nobody trained on, by the number of sessions."""
    train = concatenate([tr.read(root / f"S{part}.txt") for part in (1, 2, 3)])
    test = tr.read(root / "S5.txt")
    shown = tr.LinearRanker("Squared").fit(train.select(np.arange(0, train.n_queries, 20)))
    looked_at = 1 / np.arange(1.0, train.queries.sizes.max() + 1)

    def ndcg(ranker: Ranker) -> float:
        return tr.evaluate(ranker.predict(test), test, "ndcg@10").mean["ndcg@10"]

    best = ndcg(tr.LinearRanker(Multicategory(gain=None)).fit(train.replace(labels=relevance_of(train))))
    sys.stdout.write(f"{train.n_queries} and {test.n_queries} queries; the ranker that is shown: {ndcg(shown):.3f}\n\n")
    sys.stdout.write("| sessions | naive | propensities known | found | found, `dr` | full information |\n")
    sys.stdout.write("|---:|---:|---:|---:|---:|---:|\n")
    for sessions in SESSIONS:
        rows = []
        for seed in range(SEEDS):
            log = tr.clicks.simulate(
                train, shown.predict(train), tr.clicks.PBM.from_parameters(looked_at), sessions, k=len(looked_at),
                exploration=0.1, seed=seed,
            )  # fmt: skip
            known = tr.clicks.train(tr.LinearRanker("ListNet"), log, train, propensities=looked_at)
            found = tr.clicks.train(tr.LinearRanker("ListNet"), log, train)
            robust = tr.clicks.train(tr.LinearRanker("ListNet"), log, train, "dr")
            rows.append([ndcg(one) for one in (known.naive, known.ranker, found.ranker, robust.ranker)])
        cells = " | ".join(f"{mean:.3f}" for mean in np.mean(rows, axis=0))
        sys.stdout.write(f"| {sessions:,} | {cells} | {best:.3f} |\n")
        sys.stdout.flush()


def costs() -> None:
    """Processor seconds of a fit on corrected clicks, and of the same loss on labels, the least of five each."""
    data = tr.synthetic(n_queries=1000, n_documents=(20, 60), n_features=30, seed=0)
    depth = int(data.queries.sizes.max())
    theta = 1 / np.arange(1.0, depth + 1)
    log = tr.clicks.simulate(data, data.X[:, 4], tr.clicks.PBM.from_parameters(theta), 20_000, k=depth, exploration=0.1)
    judged = data.replace(labels=relevance_of(data))
    losses: tuple[Loss, ...] = (Squared(), QuerySquared(), Multicategory(), LambdaLoss("arp1"))
    makers: tuple[Callable[[Loss], Ranker], ...] = (tr.LinearRanker, lambda loss: tr.TreeRanker(loss, n_trees=30))
    sys.stdout.write("\n| loss | ranker | on labels | on clicks | ratio |\n|---|---|---:|---:|---:|\n")
    for loss in losses:
        for make in makers:
            done = tr.clicks.train(make(loss), log, data, propensities=np.stack([0.8 * theta, 0.1 * theta]))
            taken = np.array([[_seconds(make(done.loss[0]), one) for one in (judged, done.data)] for _ in range(5)])
            labels, clicks = taken.min(axis=0)
            name = f"| {type(loss).__name__} | {type(done.ranker).__name__} "
            sys.stdout.write(f"{name}| {labels:.3f} | {clicks:.3f} | {clicks / labels:.2f} |\n")
            sys.stdout.flush()


def _seconds(ranker: Ranker, data: RankingData) -> float:
    began = time.process_time()
    ranker.fit(data)
    return time.process_time() - began


if __name__ == "__main__":
    if sys.argv[1:] != ["costs"]:
        curves(Path(os.environ["TOPRANK_DATA"]) / "letor" / "MQ2008")
    costs()
