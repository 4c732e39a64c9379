"""Click logs and models at size: a log is made, written, read, checked, and models are fitted to it; clax beside them.

    python benchmarks/clicks.py [--impressions 10000000] [--models PBM,DBN] [--format parquet] [--folder DIR]
                                [--peers PYTHON]

Lists of ten, ten thousand queries with forty documents each, asked for with Zipf's frequencies, two rankers and a tenth
of the sessions shuffled. Each measurement runs in a process of its own; seconds are of the clock and of all processors
together, peaks of resident memory.

Then PBM and DBN are fitted to nine tenths of the sessions, and so are those of clax, where the interpreter PYTHON can
import it (docs/benchmarks.md has the versions that work together). It goes through the log epoch by epoch; told is when
it was as likely as ours on the other tenth, give or take `NEAR` an impression, and when it was at its best.
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
from typing import Any

import numpy as np

NEAR = 0.001
"""A log-likelihood of an impression, natural: what is less apart is as likely."""
AGREED = 1e-6
"""How near two computations of one log-likelihood must be, of which one has single precision."""
OURS = (1e-9, 1e-5)
"""The tolerance of ours: as it comes, then stopped where a step gains no more than a hundredth of `NEAR`."""
SETTINGS = ((512, 0.003), (2048, 0.03))
"""Sessions of a batch and rate of learning: those that clax shows, and the fastest of some that were tried."""


def make(path: Path, impressions: int) -> None:
    """Simulated sessions of dynamic Bayesian users, as a file."""
    import toprank as tr

    data = tr.synthetic(n_queries=10_000, n_documents=40, n_features=2, seed=0)
    data = data.replace(document_ids=[f"doc{row}" for row in range(data.n_documents)])
    scores = {"old": data.X[:, 0], "new": data.X[:, 1]}
    users = tr.clicks.DBN.from_parameters(0.85)
    enough = np.random.default_rng(0).beta(1, 1, data.n_documents)
    log = tr.clicks.simulate(
        data, scores, users, impressions // 10, k=10, exploration=0.1, zipf_exponent=0.7, satisfaction=enough
    )
    tr.clicks.write(log, path)


def spent() -> float:
    """Processor seconds of this process, all threads together."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(task: str, path: Path) -> dict[str, object]:
    """Seconds, processor seconds and peak of one task; that of the log, which must be read first, is told apart."""
    import toprank as tr

    start, used = time.perf_counter(), spent()
    log = tr.clicks.read(path)
    said: dict[str, object] = {"task": task}
    if task != "read":
        start, used = time.perf_counter(), spent()
        if task == "check":
            tr.clicks.check(log, n_resamples=20)
        else:
            model = getattr(tr.clicks, task)().fit(log)
            said |= {"steps": model.n_iter_, "converged": model.converged_}
    said |= {"seconds": round(time.perf_counter() - start, 2), "processor": round(spent() - used, 2)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return said | {"impressions": log.n_impressions, "pairs": log.n_pairs, "peak MiB": round(peak)}


def fit_ours(path: Path, out: Path, name: str, tolerance: float) -> dict[str, Any]:
    """Our model of nine tenths of the sessions; `out` is for clax: the sessions, and what was learned."""
    import toprank as tr

    log = tr.clicks.read(path)
    depth, held_out = log.depth, np.zeros(log.n_sessions, dtype=bool)
    held_out[np.random.default_rng(1).permutation(log.n_sessions)[: log.n_sessions // 10]] = True
    old, new = log.select(~held_out), log.select(held_out)
    start, used = time.perf_counter(), spent()
    model = getattr(tr.clicks, name)(tolerance=tolerance).fit(old)
    said = {"seconds": time.perf_counter() - start, "processor": spent() - used, "steps": model.n_iter_}
    said["peak MiB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    shared = {key: values for key, values in model.parameters_.items() if key in ("examination", "continuation")}
    pairs = {"attraction": model.attraction_} | ({"satisfaction": model.satisfaction_} if name == "DBN" else {})
    lists = {"pair": log.pair.reshape(-1, depth).astype(np.int32), "clicks": log.clicks.reshape(-1, depth)}
    np.savez(out, n_pairs=log.n_pairs, held_out=held_out, **lists, **pairs, **shared)
    if name == "DBN":
        said["continuation"] = model.continuation_
    return said | {"log-likelihood": model.log_likelihood(new) / depth}


def rounded(said: dict[str, Any]) -> str:
    """A line of JSON with as many digits as are worth reading."""
    digits = {"log-likelihood": 5, "continuation": 4, "seconds": 2, "processor": 2, "compiling": 2}
    return json.dumps({key: round(value, digits[key]) if key in digits else value for key, value in said.items()})


def compare(name: str, again: list[str], sessions: Path, python: str, version: str) -> None:
    """Print what our model takes, and when clax is as likely."""
    ours = {}
    for tolerance in OURS:
        words = [*again, f"ours:{name}:{tolerance}", "--sessions", str(sessions)]
        own = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        told = f"tolerance {tolerance:g}"
        ours[told] = own
        print(rounded({"model": name, "tool": f"toprank, {told}"} | own), flush=True)
    for size, rate in SETTINGS:
        words = [python, str(Path(__file__).with_name("_clax.py")), str(sessions), name, str(size), str(rate)]
        run = subprocess.run(words, capture_output=True, text=True)
        if run.returncode != 0:
            print(f"{version} fails on {name}: {' '.join(run.stderr.strip().splitlines()[-1:])}", flush=True)
            return
        theirs = json.loads(run.stdout)
        apart = theirs["log-likelihood of our parameters"] - own["log-likelihood"]
        if abs(apart) > AGREED:
            sys.exit(f"With the same parameters the log-likelihoods of {name} are {apart:g} apart.")
        tool = {"model": name, "tool": f"{version}, batch {size}, rate {rate:g}"}
        best = {"at its best after epochs": theirs["best"] + 1} | theirs["epochs"][theirs["best"]]
        others = {"compiling": theirs["compiling"], "peak MiB": theirs["peak MiB"]}
        print(rounded(tool | best | others | {"of the same parameters": f"{apart:.0e} apart"}), flush=True)
        for told, one in ours.items():
            print(rounded(tool | {"as likely as": told} | reached(theirs, one)), flush=True)


def reached(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """When clax was as likely as our model, and how that compares; `epochs` is None where it never was."""
    near = ours["log-likelihood"] - NEAR
    for number, epoch in enumerate(theirs["epochs"], 1):
        if epoch["log-likelihood"] >= near:
            ratios = [(epoch["processor"] + more) / ours["processor"] for more in (0, theirs["compiling"])]
            told = {"epochs": number, "seconds": epoch["seconds"], "processor": epoch["processor"]}
            return told | {"ratio": round(ratios[0], 2), "ratio with compiling": round(ratios[1], 2)}
    return {"epochs": None}


def version_of_clax(python: str) -> str | None:
    """What is installed for an interpreter; None where clax cannot be imported."""
    asked = "import clax, importlib.metadata as m; print('clax', m.version('clax-models'))"
    run = subprocess.run([python, "-c", asked], capture_output=True, text=True)
    return run.stdout.strip() if run.returncode == 0 else None


def main() -> None:
    """Print one line for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--impressions", type=int, default=10_000_000)
    parser.add_argument("--models", default="PBM,DBN")
    parser.add_argument("--format", default="parquet")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="an interpreter that has clax")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sessions", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task == "make":
        make(given.log, given.impressions)
        return
    if given.task:
        _, _, ours = given.task.partition("ours:")
        name, _, tolerance = ours.partition(":")
        if ours:
            print(json.dumps(fit_ours(given.log, given.sessions, name, float(tolerance))))
        else:
            print(json.dumps(measure(given.task, given.log)))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / f"log.{given.format}"
        again = [sys.executable, __file__, "--log", str(path), "--impressions", str(given.impressions), "--task"]
        subprocess.run([*again, "make"], check=True)
        for task in ("read", "check", *given.models.split(",")):
            print(subprocess.run([*again, task], check=True, capture_output=True, text=True).stdout.strip(), flush=True)
        version = version_of_clax(given.peers)
        if version is None:
            print(f"clax is not compared: {given.peers} cannot import it; --peers PYTHON names one that can.")
            return
        for name in (name for name in given.models.split(",") if name in ("PBM", "DBN")):
            compare(name, again, Path(folder) / "sessions.npz", given.peers, version)


if __name__ == "__main__":
    main()
