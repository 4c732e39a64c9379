"""The LETOR protocol for every linear system: 5 folds, hyper-parameters chosen on validation data, mean of test folds.

    TOPRANK_DATA=... python benchmarks/protocol.py [--sets MQ2008,OHSUMED] [--systems RankSVM,ListNet]
                                                   [--set max_consecutive=500 loss.ties=file]

One process per core. Prints, per system, the test AvgNDCG, NDCG@10 and MAP (convention `standard`) and the seconds of
processor time; the slow searches (OWPC chosen on validation, SVM-map, coordinate ascent) come last, summed apart.
"""

from __future__ import annotations

import argparse
import ast
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import toprank as tr

APART = ("OWPC", "SVM-map", "CoordinateAscent")
METRICS = ("avgndcg", "ndcg@10", "map")


def work(task: tuple[str, str, int, dict[str, Any]]) -> tuple[dict[str, float], float]:
    """One system on one fold, with other options than its own: test metrics, and seconds of processor time."""
    name, system, number, others = task
    warnings.simplefilter("ignore")
    fold = tr.folds(Path(os.environ["TOPRANK_DATA"], "letor", name))[number]
    start = time.process_time()
    chosen = tr.grid_search(system, fold.train, fold.valid, threads=1, **others)
    seconds = time.process_time() - start
    return dict(tr.evaluate(chosen.ranker.predict(fold.test), fold.test, METRICS).mean), seconds


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):  # a name
        return text


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sets", default="MQ2008,OHSUMED")
    arguments.add_argument(
        "--systems", default=",".join(name for name, one in tr.systems.SYSTEMS.items() if not one.learns_from_teacher)
    )
    arguments.add_argument("--set", nargs="+", default=[], metavar="OPTION=VALUE", help="options of the systems")
    options = arguments.parse_args()
    others = {name: _value(text) for name, _, text in (one.partition("=") for one in options.set)}
    names = [tr.systems.get(name).name for name in options.systems.split(",")]
    names.sort(key=lambda name: name in APART)
    wall = {False: 0.0, True: 0.0}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(
            pool.map(work, [(s, "LeastSquares", 0, {}) for s in options.sets.split(",")])
        )  # start-up is not the protocol's
        print(f"{'system':<26}{'set':<9}" + "".join(f"{metric:>9}" for metric in METRICS) + f"{'cpu s':>8}")
        for system in names:
            start = time.perf_counter()
            tasks = [(name, system, fold, others) for name in options.sets.split(",") for fold in range(5)]
            results = list(pool.map(work, tasks))
            wall[system in APART] += time.perf_counter() - start
            for i, name in enumerate(options.sets.split(",")):
                part = results[5 * i : 5 * i + 5]
                means = [np.mean([values[metric] for values, _ in part]) for metric in METRICS]
                seconds = sum(seconds for _, seconds in part)
                print(f"{system:<26}{name:<9}" + "".join(f"{m:>9.4f}" for m in means) + f"{seconds:>8.1f}", flush=True)
    print(f"wall time {wall[False]:.0f} s; apart ({', '.join(APART)}) {wall[True]:.0f} s")


if __name__ == "__main__":
    main()
