"""What searching a system's grid is worth on few queries: the best, the best if clearly better, or the default.

    TOPRANK_DATA=... python benchmarks/searching.py [--sets OHSUMED,MQ2008] [--systems ListNet,LambdaMART] [--seeds 1]

Inside the training part of each LETOR fold: fitted on three quarters of its queries, drawn by each seed, chosen by
NDCG@10 on the others, judged on the fold's validation part; no test query is read. Takes some minutes.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import toprank as tr

FAMILIES = {
    "linear and expected-gain": [
        *("LeastSquares", "QueryLeastSquares", "ModifiedLeastSquares", "MaxEnt", "RankSVM", "RankNet-linear"),
        *("RankBoost-linear", "OWPC-constant", "ListNet", "ListMLE", "p-ListMLE", "RankCosine"),
        *("ExpectedGain-cosine", "PlugIn"),
    ],
    "trees": ["LambdaMART", "MART"],
}
KEPT: Mapping[str, Any] = {"the best": {}, "the best if better by one standard error": {"se_rule": 1.0}}
FIXED = {"LeastSquares": (10.0, 1000.0), "PlugIn": (0.1, 100.0)}


def judged(ranker: Any, data: tr.RankingData) -> float:
    return tr.evaluate(ranker.predict(data), data, "ndcg@10").mean["ndcg@10"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="OHSUMED,MQ2008")
    parser.add_argument("--systems", help="only these")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # a penalty of the grid may leave nothing to learn
    for name in given.sets.split(","):
        folds = list(tr.folds(Path(os.environ["TOPRANK_DATA"]) / "letor" / name))
        seeds = range(given.seeds)
        parts = [(*tr.split(fold.train, (0.75, 0.25), seed=seed), fold.valid) for fold in folds for seed in seeds]
        for family, members in FAMILIES.items():
            systems = [one for one in members if given.systems is None or one in given.systems.split(",")]
            kept: dict[str, list[float]] = {rule: [] for rule in (*KEPT, "the default")}
            for system in systems:
                for train, valid, judge in parts:
                    for rule, options in KEPT.items():
                        chosen = tr.grid_search(system, train, valid, metric="ndcg@10", **options)
                        kept[rule].append(judged(chosen.ranker, judge))
                    kept["the default"].append(judged(tr.systems.make(system).fit(train), judge))
            for rule, values in kept.items() if systems else ():
                print(f"{name:<9}{len(systems):>3} {family:<26}{rule:<42}{np.mean(values):.4f}", flush=True)
        for system, penalties in FIXED.items():
            for l2 in penalties:
                values = [judged(tr.systems.make(system, l2=l2).fit(train), judge) for train, _, judge in parts]
                print(f"{name:<9}{system} with l2={l2:g}: {np.mean(values):.4f}", flush=True)


if __name__ == "__main__":
    main()
