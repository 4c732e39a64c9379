"""How right DCG without labels is: bias of its mean, and how often its 95 % intervals hold, on held-out test queries.

    TOPRANK_DATA=... python benchmarks/label_free.py [--sets synthetic,MQ2008,OHSUMED] [--losses Cosine,ListNet]

For every set, loss and fold: train on the training part, `calibrate` on the validation part, and forecast DCG@10 of the
ranker's own order on the test part, whose labels then judge the forecast. Test queries of the folds are pooled. Losses
run with l2 = 1e-3 and 200 iterations at most, nothing is chosen. "trees" are expected-gain trees under ListNet.
Synthetic data: five draws of 1,000 queries, whose grades are independent given the features.
Prints, per set and loss: test queries, judged mean DCG@10, the bias of its forecast before and after calibration, the
share of queries within mean ± 1.96 deviations of independent grades (with calibrated probabilities) and within the
95 % interval, the mean of `shared`, and in how many folds the interval of the mean holds.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import toprank as tr
from toprank.metrics.conventions import Discount
from toprank.rankers.expected_dcg import expected_dcg, rank_weights

METRIC, K = "dcg@10", 10
LOSSES = ("Multinomial", "Cosine", "ListNet", "Squared", "LambdaRank", "trees")


def folds_of(name: str) -> Iterator[tuple[Any, Any, Any]]:
    """Training, validation and test parts."""
    if name == "synthetic":
        for seed in range(5):
            train, valid, test = tr.split(tr.synthetic(n_queries=1000, n_features=8, n_grades=4, seed=seed))
            yield train, valid, test
    else:
        for fold in tr.folds(Path(os.environ["TOPRANK_DATA"], "letor", name)):
            yield fold.train, fold.valid, fold.test


def ranker_of(loss: str) -> Any:
    if loss == "trees":
        return tr.TreeRanker("ListNet", outputs="grades", n_trees=60, num_leaves=7, threads=1)
    return tr.ExpectedGainRanker(loss, l2=1e-3, max_iterations=200, threads=1)


def independent(ranker: Any, test: Any) -> Any:
    """The forecast that takes grades as independent and probabilities as they are, calibrated or not."""
    weights = rank_weights(ranker.predict(test), test.queries, K, Discount.from_spec("log2"))
    return expected_dcg(weights, ranker.predict_proba(test), ranker.gains_, test.queries)


def one_fold(loss: str, train: Any, valid: Any, test: Any) -> dict[str, Any]:
    """Per test query: judged, forecast before and after, covered or not; and the interval of the mean."""
    ranker = ranker_of(loss).fit(train)
    before = independent(ranker, test).mean
    naive, value = independent(ranker.calibrate(valid), test), ranker.expected_dcg(test, k=K)
    judged = tr.evaluate(ranker.predict(test), test, METRIC).per_query[METRIC]
    (low, high), (least, most) = value.interval(), value.overall_interval()
    return {
        "judged": judged,
        "before": before,
        "after": value.mean,
        "alone": np.abs(judged - naive.mean) <= 1.96 * naive.deviation,
        "inside": (judged >= low - 1e-9) & (judged <= high + 1e-9),
        "shared": ranker.calibration_.shared,
        "holds": least <= judged.mean() <= most,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sets", default="synthetic,MQ2008,OHSUMED")
    arguments.add_argument("--losses", default=",".join(LOSSES))
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'set':<11}{'loss':<12}{'queries':>8}{'judged':>8}{'before':>9}{'after':>8}", end="")
    print(f"{'alone':>8}{'interval':>10}{'shared':>8}{'means':>7}")
    for name in options.sets.split(","):
        parts = list(folds_of(name))
        for loss in options.losses.split(","):
            found = [one_fold(loss, *part) for part in parts]
            joined = {key: np.hstack([fold[key] for fold in found]) for key in found[0]}
            mean = joined["judged"].mean()
            print(f"{name:<11}{loss:<12}{len(joined['judged']):>8}{mean:>8.3f}", end="")
            print(f"{joined['before'].mean() / mean - 1:>+9.1%}{joined['after'].mean() / mean - 1:>+8.1%}", end="")
            print(
                f"{joined['alone'].mean():>8.3f}{joined['inside'].mean():>10.3f}{joined['shared'].mean():>8.2f}", end=""
            )
            print(f"{int(joined['holds'].sum()):>5}/{len(found)}", flush=True)


if __name__ == "__main__":
    main()
