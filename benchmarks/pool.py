"""Compare all default statistics of `tr.QueryContextFeatures` with none, at fixed settings.

    TOPRANK_DATA=... python benchmarks/pool.py [--sets MQ2008,OHSUMED,OHSUMED-null]

Trained on the training part of each LETOR fold and judged on its validation part; no test query is read. Takes some
minutes.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

import toprank as tr

RANKERS = {
    "linear, ListNet": tr.LinearRanker("ListNet", l2=0.01),
    "trees, LambdaRank": tr.TreeRanker("LambdaRank", n_trees=100, num_leaves=15, learning_rate=0.05),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="MQ2008,OHSUMED,OHSUMED-null")
    for name in parser.parse_args().sets.split(","):
        folds = list(tr.folds(Path(os.environ["TOPRANK_DATA"]) / "letor" / name))
        for kind, ranker in RANKERS.items():
            plain, pooled = [], []
            for fold in folds:
                pool = tr.QueryContextFeatures().fit(fold.train)
                with_pool = ranker.fit(pool.transform(fold.train)).predict(pool.transform(fold.valid))
                pooled.append(tr.evaluate(np.array(with_pool), fold.valid).per_query["ndcg@10"])
                plain.append(tr.evaluate(ranker.fit(fold.train).predict(fold.valid), fold.valid).per_query["ndcg@10"])
            a, b = np.concatenate(pooled), np.concatenate(plain)
            interval = tr.significance.bootstrap_interval(a, b)
            print(f"{name:<13}{kind:<18} without {b.mean():.4f}, with {a.mean():.4f}, difference", end=" ")
            print(f"{a.mean() - b.mean():+.4f} [{interval.low:+.4f}, {interval.high:+.4f}]", flush=True)


if __name__ == "__main__":
    main()
