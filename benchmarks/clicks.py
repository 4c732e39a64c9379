"""Click logs and models at size: a log is made, written, read, checked, and models are fitted to it.

    python benchmarks/clicks.py [--impressions 10000000] [--models PBM,DBN] [--format parquet] [--folder DIR]

Lists of ten, ten thousand queries with forty documents each, asked for with Zipf's frequencies, two rankers and a tenth
of the sessions shuffled. Each measurement runs in a process of its own; seconds are of the clock and of all processors
together, peaks of resident memory. Other tools are not measured: PyClick and clax are not among what is installed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def make(path: Path, impressions: int) -> None:
    """Simulated sessions of dynamic Bayesian users, as a file."""
    import toprank as tr

    data = tr.synthetic(n_queries=10_000, n_documents=40, n_features=2, seed=0)
    data = data.replace(document_ids=[f"doc{row}" for row in range(data.n_documents)])
    scores = {"old": data.X[:, 0], "new": data.X[:, 1]}
    users = tr.clicks.DBN.known(0.85)
    enough = np.random.default_rng(0).beta(1, 1, data.n_documents)
    log = tr.clicks.simulate(
        data, scores, users, impressions // 10, k=10, exploration=0.1, popularity=0.7, satisfaction=enough
    )
    tr.clicks.write(log, path)


def measure(task: str, path: Path) -> dict[str, object]:
    """Seconds, processor seconds and peak of one task; that of the log, which must be read first, is told apart."""
    import toprank as tr

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    start, used = time.perf_counter(), spent()
    log = tr.clicks.read(path)
    said: dict[str, object] = {"task": task}
    if task != "read":
        start, used = time.perf_counter(), spent()
        if task == "check":
            tr.clicks.check(log, resamples=20)
        else:
            model = getattr(tr.clicks, task)().fit(log)
            said |= {"steps": model.steps_, "converged": model.converged_}
    said |= {"seconds": round(time.perf_counter() - start, 2), "processor": round(spent() - used, 2)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return said | {"impressions": log.n_impressions, "pairs": log.n_pairs, "peak MiB": round(peak)}


def main() -> None:
    """Print one line for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--impressions", type=int, default=10_000_000)
    parser.add_argument("--models", default="PBM,DBN")
    parser.add_argument("--format", default="parquet")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task == "make":
        make(given.log, given.impressions)
        return
    if given.task:
        print(json.dumps(measure(given.task, given.log)))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / f"log.{given.format}"
        again = [sys.executable, __file__, "--log", str(path), "--impressions", str(given.impressions), "--task"]
        subprocess.run([*again, "make"], check=True)
        for task in ("read", "check", *given.models.split(",")):
            print(subprocess.run([*again, task], check=True, capture_output=True, text=True).stdout.strip(), flush=True)


if __name__ == "__main__":
    main()
