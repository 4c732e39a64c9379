"""Rounds of boosted trees on one and two threads, quiet and beside busy processes, against LightGBM's own LambdaRank.

python benchmarks/threads.py [--busy 2] [--large]

A number is the median time of a round by the clock, each setting in a process of its own: OpenMP reads its settings
when it is loaded. Blocks of queries run on LightGBM's own threads while it trains; "our pool" is the same on threads
beside.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np

SPINS = {"default": None, "0": "0", "300": "300", "1,000": "1000", "3,000": "3000"}


def data_of(large: bool):
    n, d = (200_000, 136) if large else (42_000, 46)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    truth = X @ (rng.normal(size=d) * (rng.random(d) < 0.2)) + rng.normal(size=n) * 3
    labels = np.digitize(truth, np.quantile(truth, [0.5, 0.7, 0.85, 0.95])).astype(float)
    return X, labels, np.repeat(np.arange(n // 120 + 1), 120)[:n], 63 if large else 31


def one_run(kind: str, threads: int, large: bool) -> float:
    """The median milliseconds of a round."""
    X, labels, qid, leaves = data_of(large)
    times: list[float] = []
    rounds = 15 if large else 50

    def look(_):
        times.append(time.perf_counter())

    if kind == "LightGBM":
        import lightgbm

        train = lightgbm.Dataset(X, label=labels, group=np.bincount(qid))
        words = {"objective": "lambdarank", "num_leaves": leaves, "num_threads": threads, "verbose": -1}
        words |= {"force_col_wise": True, "deterministic": True}
        lightgbm.train(words, train, num_boost_round=rounds, callbacks=[look])
    else:
        import toprank as tr
        from toprank.rankers.trees import training

        if kind == "our pool":

            @contextmanager
            def pool(*_):
                yield "our pool"

            training.on_threads_of = pool
        options = {"n_trees": rounds, "num_leaves": leaves, "threads": threads, "callbacks": [look]}
        tr.TreeRanker("LambdaRank", **options).fit(tr.RankingData(X, labels, qid=qid))
    return float(np.median(np.diff(times)) * 1e3)


def measured(kind: str, threads: int, spins: str | None, large: bool) -> float:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    environment |= {} if spins is None else {"GOMP_SPINCOUNT": spins}
    command = [sys.executable, __file__, "--one", kind, str(threads), *(["--large"] if large else [])]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


@contextmanager
def beside(busy: int):
    """So many processes that do nothing but count."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--busy", type=int, default=2)
    asked.add_argument("--large", action="store_true")
    asked.add_argument("--one", nargs=2)
    given = asked.parse_args()
    if given.one:
        print(one_run(given.one[0], int(given.one[1]), given.large))
        return
    for busy in (0, given.busy):
        with beside(busy):
            where = f"beside {busy} busy processes" if busy else "quiet"
            print(f"{where}: ms a round (load {os.getloadavg()[0]:.1f})")
            alone = {kind: measured(kind, 1, None, given.large) for kind in ("LightGBM", "toprank")}
            print("  one thread     " + "  ".join(f"{kind} {value:.1f}" for kind, value in alone.items()))
            for name, spins in SPINS.items():
                two = {kind: measured(kind, 2, spins, given.large) for kind in ("LightGBM", "toprank", "our pool")}
                line = "  ".join(f"{kind} {value:.1f}" for kind, value in two.items())
                print(f"  two, spins {name:8}{line}  ratio {two['toprank'] / two['LightGBM']:.2f}", flush=True)


if __name__ == "__main__":
    main()
