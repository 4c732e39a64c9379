"""Passes over data on a Dask cluster, against bare processes that do the same passes in the same run.

    python benchmarks/cluster.py [--documents 4000000] [--features 136] [--passes 4] [--repeats 12]

A pass is the value and gradient of ListNet for a linear scorer: what a solver asks for again and again. The data are a
stored copy in the page cache; every worker and every process maps its half. Goal: two workers with one thread each
reach 80 % of what two bare processes reach, which neither wait for each other nor send anything.

Strong scaling: the same data on 1 and 2 workers. Weak scaling: half the data on 1 worker, all of it on 2. Bytes: what
crosses the loopback interface during the passes, Dask's own messages and those of anybody else included.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

import toprank as tr
from toprank import cluster
from toprank.rankers.source import InMemory
from toprank.scorers.features import Standardization
from toprank.scorers.linear import LinearScorer

PER_QUERY = 118


def write_data(path: Path, n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    X = np.empty((n, d), dtype=np.float32)
    for first in range(0, n, 1 << 16):
        X[first : first + (1 << 16)] = rng.normal(size=X[first : first + (1 << 16)].shape)
    labels = rng.choice(5, n, p=[0.52, 0.23, 0.18, 0.05, 0.02]).astype(float)
    sizes = np.diff(np.append(np.arange(0, n, PER_QUERY), n))
    tr.write(tr.RankingData(X, labels, queries=tr.Queries.from_sizes(sizes)), path)


def bare(path: str, first: int, last: int, passes: int) -> None:
    """One process: says when it is ready, and runs when it is told to, as often as it is told."""
    data = tr.read(path).select(np.arange(first, last))
    objective = InMemory(data).objective(LinearScorer(data.n_features), tr.losses.ListNet(), plain(data.n_features), 1)
    weights = np.zeros(data.n_features)
    objective.value_and_grad(weights)
    print("ready", flush=True)
    for _ in sys.stdin:
        for _ in range(passes):
            objective.value_and_grad(weights)
        print("done", flush=True)


def plain(d: int) -> Standardization:
    """No missing values, and nothing to subtract."""
    return Standardization(np.zeros(d), np.ones(d), complete=True)


class Bare:
    """Processes that work side by side without knowing of each other."""

    def __init__(self, path: Path, ranges: list[tuple[int, int]], passes: int) -> None:
        command = [sys.executable, __file__, "--bare", str(path)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.processes = [
            subprocess.Popen([*command, str(a), str(b), "--passes", str(passes)], **pipes) for a, b in ranges
        ]
        for process in self.processes:
            assert process.stdout.readline() == "ready\n"

    def seconds(self) -> float:
        """Until the last of them is done with its passes."""
        start = time.perf_counter()
        for process in self.processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in self.processes:
            process.stdout.readline()
        return time.perf_counter() - start

    def end(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.stdin.close()
            process.wait()


class Workers:
    """Dask workers that have their ranges mapped and their losses bound."""

    def __init__(self, path: Path, count: int, queries: int, passes: int) -> None:
        self.cluster, self.passes = cluster.connect(workers=count, memory_limit=0), passes
        parts = cluster.read(path, partitions=1)
        part = parts.sources[0]
        edges = np.linspace(0, queries, count + 1).astype(int)
        ranges = [type(part)(part.path, int(a), int(b)) for a, b in pairwise(edges)]
        self.placed = self.cluster.persist(cluster.Partitions(ranges))
        d = self.placed.n_features
        self.objective = self.placed.objective(LinearScorer(d), tr.losses.ListNet(), plain(d), None)
        self.weights = np.zeros(d)
        self.objective.value_and_grad(self.weights)

    def seconds(self) -> float:
        """For all passes, one after another."""
        start = time.perf_counter()
        for _ in range(self.passes):
            self.objective.value_and_grad(self.weights)
        return time.perf_counter() - start

    def end(self) -> None:
        """End the workers."""
        del self.objective, self.placed
        self.cluster.close()


def over_the_wire() -> int:
    """Bytes that the loopback interface has received so far."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[0])
    return 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--documents", type=int, default=4_000_000)
    arguments.add_argument("--features", type=int, default=136)
    arguments.add_argument("--passes", type=int, default=4)
    arguments.add_argument("--repeats", type=int, default=12)
    arguments.add_argument("--bare", nargs=3, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.bare:
        bare(options.bare[0], int(options.bare[1]), int(options.bare[2]), options.passes)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "d.toprank-data")
        write_data(path, options.documents, options.features)
        compare(path, options)


def compare(path: Path, options: argparse.Namespace) -> None:
    queries, passes = tr.read(path).n_queries, options.passes
    half = queries // 2
    contestants = {
        "1 bare process, all data": lambda: Bare(path, [(0, queries)], passes),
        "2 bare processes, half each": lambda: Bare(path, [(0, half), (half, queries)], passes),
        "1 worker, half of the data": lambda: Workers(path, 1, half, passes),
        "1 worker, all data": lambda: Workers(path, 1, queries, passes),
        "2 workers, half each": lambda: Workers(path, 2, queries, passes),
    }
    ready = {name: make() for name, make in contestants.items()}
    best = dict.fromkeys(ready, np.inf)
    for _ in range(options.repeats):  # in turns, so that a busy machine is busy for all
        for name, contestant in ready.items():
            best[name] = min(best[name], contestant.seconds() / passes)
    before = over_the_wire()
    ready["2 workers, half each"].seconds()
    sent = (over_the_wire() - before) / passes
    size = options.documents * options.features * 4 / 1e9
    print(
        f"{options.documents:,} × {options.features} float32 ({size:.2f} GB), {passes} passes, {options.repeats} times"
    )
    print("| | ms a pass | GB/s |\n|---|---:|---:|")
    for name, seconds in best.items():
        share = 0.5 if "half of" in name else 1.0
        print(f"| {name} | {seconds * 1e3:.1f} | {share * size / seconds:.1f} |")
    bare_two, two = best["2 bare processes, half each"], best["2 workers, half each"]
    print(f"\n2 workers reach {bare_two / two:.0%} of 2 bare processes (goal: 80 %).")
    print(f"Strong scaling, 1 to 2 workers: {best['1 worker, all data'] / two:.2f} of 2.")
    print(f"The same for bare processes: {best['1 bare process, all data'] / bare_two:.2f} of 2.")
    print(f"Weak scaling, 1 worker with half to 2 with all: {best['1 worker, half of the data'] / two:.0%} of 100 %.")
    numbers = 4 * 8 * options.features / 1e3
    print(f"Over the wire: {sent / 1e3:.1f} kB a pass, of which {numbers:.1f} kB are weights and gradients.")
    logging.disable(logging.INFO)  # Dask tells of every connection that it closes
    for contestant in ready.values():
        contestant.end()


if __name__ == "__main__":
    main()
