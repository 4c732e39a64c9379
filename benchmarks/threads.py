"""Rounds of boosted trees on one and two threads, quiet and beside busy processes, against LightGBM's own LambdaRank.

python benchmarks/threads.py [--busy 2] [--large]

A number is the median time of a round by the clock, each setting in a process of its own: OpenMP reads its settings
when it is loaded. Blocks of queries run on LightGBM's own threads while it trains; "our pool" is the same on threads
beside. "As a command" is what `toprank train` does: 1,000 spins, and no more threads than find a free core. A run ends
after some seconds, so that the whole takes a few minutes on a busy machine, too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import numpy as np

from toprank.rankers.trees.cores import VARIABLE

SPINS = {"default": None, "0": "0", "1,000": "1000"}
AS_A_COMMAND = "as a command"
SECONDS = 12.0
TURNS = 5  # who shares a core with whom is luck, and different in each process


class Enough(Exception):  # noqa: N818 - nothing went wrong
    """So many rounds tell how long one takes."""


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
        if times[-1] - times[0] > SECONDS and len(times) > 3:
            raise Enough

    if kind == "LightGBM":
        import lightgbm

        train = lightgbm.Dataset(X, label=labels, group=np.bincount(qid))
        words = {"objective": "lambdarank", "num_leaves": leaves, "num_threads": threads, "verbose": -1}
        words |= {"force_col_wise": True, "deterministic": True}
        with suppress(Enough):
            lightgbm.train(words, train, num_boost_round=rounds, callbacks=[look])
    else:
        import toprank as tr
        from toprank.rankers.trees import training

        if kind == "our pool":

            @contextmanager
            def pool(*_):
                yield "our pool"

            training.on_threads_of = pool
        options = {"n_trees": rounds, "num_leaves": leaves, "callbacks": [look]}
        options |= {"threads": None if kind == AS_A_COMMAND else threads}
        with suppress(Enough):
            tr.TreeRanker("LambdaRank", **options).fit(tr.RankingData(X, labels, qid=qid))
    return float(np.median(np.diff(times)) * 1e3)


def measured(kind: str, threads: int, spins: str | None, large: bool) -> float:
    decided = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", VARIABLE)
    environment = {name: value for name, value in os.environ.items() if name not in decided}
    environment |= {} if spins is None else {"GOMP_SPINCOUNT": spins}
    environment |= {VARIABLE: "1"} if kind == AS_A_COMMAND else {}
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
            turns = [
                (measured(AS_A_COMMAND, 2, SPINS["1,000"], given.large), measured("toprank", 1, None, given.large))
                for _ in range(TURNS)
            ]
            command, ratio = np.median([turn[0] for turn in turns]), np.median([one / other for one, other in turns])
            print(f"  {AS_A_COMMAND}   toprank {command:.1f}  of one thread {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
