"""Scores of boosted trees against LightGBM's own `predict`, for one query and in batch, with each set of instructions.

    python benchmarks/tree_prediction.py [--trees 500] [--leaves 64] [--features 136] [--rows 5000] [--repeats 100]

Goals for 100 documents, 500 trees of 64 leaves, one core: 0.15 of LightGBM's time with AVX-512, 0.3 with AVX2. Calls
take turns on rows that neither has seen just before; every time is that of the processor, not of the wall, and the
faster quarter decides, so that a busy machine does little harm. "again": the same rows a second time, with the trees
still in the cache.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from toprank import kernels
from toprank.rankers.trees.text import read_trees
from toprank.rankers.trees.training import only_trees


def make(folder: Path, trees: int, leaves: int, d: int, n: int) -> None:
    """A model and rows, written down: every variant of the kernels has a process of its own."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    X[:, ::3] = np.round(3 * X[:, ::3])
    y = X[:, :10] @ rng.normal(size=10) * 0.3 + np.sin(2 * X[:, 10]) + rng.normal(size=n)
    words = {"num_leaves": leaves, "min_data_in_leaf": 5, "verbosity": -1, "feature_fraction": 0.3}
    booster = lightgbm.train({**words, "objective": "regression"}, lightgbm.Dataset(X, y), trees)
    text = only_trees(booster.model_to_string()).replace("\nobjective=regression", "")
    (folder / "trees.txt").write_text(text)
    np.save(folder / "rows.npy", X)


def seconds(call: Callable[[], Any]) -> float:
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def measure(folder: Path, repeats: int) -> None:
    """Print a table for the kernels of this process."""
    text, X = (folder / "trees.txt").read_text(), np.load(folder / "rows.npy")
    begin = time.thread_time()
    forest = read_trees(text)
    built = time.thread_time() - begin
    booster = lightgbm.Booster(model_str=text)
    print(f"\n{kernels.library().variant}: {len(forest.n_leaves)} trees, read and built in {1e3 * built:.0f} ms")
    print(f"{'documents':>10}{'LightGBM':>14}{'ours':>12}{'again':>12}{'ours / LightGBM':>18}{'again':>9}")
    for kind in (np.float32, np.float64):
        for n in (1, 10, 100, 1000):
            times = []
            for i in range(max(repeats * 100 // max(n, 100), 5)):
                rows = np.take(X.astype(kind), range(i * n, i * n + n), axis=0, mode="wrap")
                theirs = seconds(lambda rows=rows: booster.predict(rows, num_threads=1))
                ours = seconds(lambda rows=rows: forest.predict(rows, threads=1))
                times.append((theirs, ours, seconds(lambda rows=rows: forest.predict(rows, threads=1))))
                assert np.array_equal(forest.predict(rows), booster.predict(rows))
            theirs, ours, again = 1e3 * np.quantile(times, 0.25, axis=0)
            told = f"{theirs:11.3f} ms{ours:9.3f} ms{again:9.3f} ms{ours / theirs:18.3f}{again / theirs:9.3f}"
            print(f"{n:>10}{told}  {kind.__name__}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("trees", 500), ("leaves", 64), ("features", 136), ("rows", 5000), ("repeats", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        measure(options.folder, options.repeats)
        return
    library = kernels.library()
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), options.trees, options.leaves, options.features, options.rows)
        for variant in reversed(library.variants[: library.variants.index(library.machine) + 1]):
            command = [sys.executable, __file__, "--folder", folder, "--repeats", str(options.repeats)]
            subprocess.run(command, env=os.environ | {"TOPRANK_KERNELS": variant}, check=True)


if __name__ == "__main__":
    main()
