"""Rankers from simulated clicks on MQ2008: naive, debiased and full information; and what the correction costs.

`TOPRANK_DATA=… python benchmarks/clicks_training.py`; the table of docs/learning-from-clicks.md.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

import toprank as tr
from toprank.clicks.simulation import relevance_of
from toprank.data.dataset import concatenate
from toprank.rankers.base import Ranker


def main() -> None:
    """Print one line for each number of sessions."""
    root = Path(os.environ["TOPRANK_DATA"]) / "letor" / "MQ2008"
    train = concatenate([tr.read(root / f"S{part}.txt") for part in (1, 2, 3)])
    test = tr.read(root / "S5.txt")

    def ndcg(ranker: Ranker) -> float:
        return tr.evaluate(ranker.predict(test), test, "ndcg@10").mean["ndcg@10"]

    shown = tr.LinearRanker("Squared").fit(train.select(np.arange(0, train.n_queries, 20)))
    looked_at = 1 / np.arange(1.0, train.queries.sizes.max() + 1)
    full = train.replace(labels=relevance_of(train))
    began = time.perf_counter()
    best = tr.LinearRanker(tr.losses.Multicategory(gain=None)).fit(full)
    alone = time.perf_counter() - began
    sys.stdout.write(f"shown {ndcg(shown):.3f}, full information {ndcg(best):.3f} in {alone:.3f} s\n")
    for sessions in (3_000, 30_000, 300_000):
        users = tr.clicks.PBM.known(looked_at)
        log = tr.clicks.simulate(train, shown.predict(train), users, sessions, k=len(looked_at))
        done = tr.clicks.train(tr.LinearRanker("ListNet"), log, train, propensities=looked_at)
        began = time.perf_counter()
        tr.LinearRanker(done.loss[0]).fit(done.data)
        fit = time.perf_counter() - began
        sys.stdout.write(
            f"{sessions:7,} sessions: naive {ndcg(done.naive):.3f}, debiased {ndcg(done.ranker):.3f}; "
            f"a fit on corrected clicks takes {fit:.3f} s\n"
        )


if __name__ == "__main__":
    main()
