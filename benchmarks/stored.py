"""Data larger than memory: a stored copy is written, opened, trained on, and made from text and tables.

    python benchmarks/stored.py [--scale 1.0] [--folder DIR] [--limit MIB]

At scale 1 the copy holds 5 GB of features and training may use 1 GiB of data memory (RLIMIT_DATA: everything private
and writable, libraries included), a quarter each of 20 GB and 4 GB. Each measurement runs in a process of its own.
Peaks are of anonymous memory: pages of the mapped copy are the kernel's to drop. Everything written is removed.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

N_FEATURES, QUERY, ROWS = 136, 118, 1 << 16
FULL = 5_000_000_000 // (4 * N_FEATURES)  # documents
MIB = 1 << 20
SLACK = 128  # MiB beyond what Python and the libraries take, at least


def status(field: str) -> int:
    """A line of /proc/self/status, in bytes."""
    return int(Path("/proc/self/status").read_text().partition(f"{field}:")[2].split()[0]) * 1024


def measured(function: Callable[[], Any]) -> tuple[Any, float, float, float]:
    """Result, seconds, and the peaks of resident anonymous and of all data memory meanwhile, in MiB."""
    done, anonymous, data = threading.Event(), [status("RssAnon")], [status("VmData")]

    def watch() -> None:
        while not done.wait(0.005):
            anonymous.append(status("RssAnon"))
            data.append(status("VmData"))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start = time.perf_counter()
    try:
        result = function()
    finally:
        seconds = time.perf_counter() - start
        done.set()
        watcher.join()
    return result, seconds, max(*anonymous, status("RssAnon")) / MIB, max(*data, status("VmData")) / MIB


def best(function: Callable[[], Any], repeats: int = 3) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def write_copy(path: Path, n: int) -> None:
    """A stored copy of `n` documents, written block by block; labels follow some features, with noise."""
    from toprank.data.store.writing import StoreWriter

    rng = np.random.default_rng(0)
    direction = rng.normal(size=N_FEATURES).astype(np.float32)
    with StoreWriter(path) as writer:
        writer.start("X", np.dtype(np.float32), (N_FEATURES,), n)
        writer.start("labels", np.dtype(np.float64), (), n)
        for first in range(0, n, ROWS):
            X = rng.standard_normal((min(ROWS, n - first), N_FEATURES), dtype=np.float32)
            noisy = X @ direction / 12 + rng.standard_normal(len(X), dtype=np.float32)
            writer.append("X", X)
            writer.append("labels", np.digitize(noisy, [0.1, 0.8, 1.6, 2.4]).astype(np.float64))
        offsets = np.append(np.arange(0, n, QUERY), n)
        writer.put("offsets", offsets)
        writer.put("qids", np.arange(len(offsets) - 1))
        writer.finish((n, N_FEATURES), None)


# What runs in a process of its own; each returns what is to be printed.


def train(path: Path, limit: int) -> dict[str, Any]:
    """Fit, predict and evaluate under a limit on data memory."""
    import toprank as tr

    warnings.simplefilter("ignore")
    small = tr.synthetic(n_queries=50, n_features=8, seed=0)
    small = small.replace(X=np.asarray(small.X, dtype=np.float32))
    makers = {
        "LinearRanker (ListNet, Newton)": lambda: tr.LinearRanker("ListNet", max_iterations=3),
        "ExpectedGainRanker (Multinomial, L-BFGS)": lambda: tr.ExpectedGainRanker("Multinomial", max_iterations=5),
    }
    for make in makers.values():  # imports and compiled kernels
        tr.evaluate(make().fit(small).predict(small), small, "ndcg@10")
    before = status("VmData")
    allowed = max(limit * MIB, before + SLACK * MIB)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    rows: list[dict[str, Any]] = []
    opened = best(lambda: tr.read(path), 5)
    data = tr.read(path)

    def note(what: str, function: Callable[[], Any], passes: Callable[[Any], float] = lambda _: 1.0) -> Any:
        result, seconds, anonymous, held = measured(function)
        rows.append({"what": what, "seconds": seconds, "passes": passes(result), "anonymous": anonymous, "data": held})
        return result

    for name, make in makers.items():
        ranker = note(f"{name}: fit", lambda make=make: make().fit(data), lambda one: one.solution_.evaluations)
        scores = note("    predict", lambda ranker=ranker: ranker.predict(data))
        note("    evaluate", lambda scores=scores: tr.evaluate(scores, data, "ndcg@10").mean["ndcg@10"])
    return {"before": before / MIB, "allowed": allowed / MIB, "opened": opened, "rows": rows}


def passes(path: Path, limit: int) -> dict[str, Any]:
    """Value and gradient of ListNet from the map, against reading the file from cache."""
    del limit
    import toprank as tr
    from toprank.compute import available_threads, each_block, one_blas_thread
    from toprank.rankers.source import RankingObjective
    from toprank.scorers.features import Features, Standardization
    from toprank.scorers.linear import LinearScorer

    data = tr.read(path)
    file, buffer = path / "X.npy", bytearray(4 << 20)
    standard = Standardization.from_data(data.X)
    bound = tr.losses.ListNet().on(data.labels, data.queries)
    features = Features(data.X, standard, complete=standard.complete)
    objective, weights = RankingObjective(LinearScorer(N_FEATURES), features, bound), np.full(N_FEATURES, 0.01)

    def sequential() -> None:
        with file.open("rb", buffering=0) as stream:
            while stream.readinto(buffer):
                pass

    def mapped() -> None:
        starts = range(0, data.n_documents, ROWS)
        each_block(lambda first: data.X[first : first + ROWS].sum(dtype=np.float32), starts)

    runs = {"read": sequential, "mapped": mapped, "pass": lambda: objective.value_and_grad(weights)}
    found = dict.fromkeys(runs, np.inf)
    with one_blas_thread():
        for _ in range(5):  # in turns: other work on the machine then slows all alike
            found = {name: min(found[name], best(run, 1)) for name, run in runs.items()}
    return found | {"bytes": file.stat().st_size, "threads": available_threads()}


def trees(path: Path, limit: int) -> dict[str, Any]:
    """LightGBM's bins of a part of the copy, straight from the map."""
    del limit
    import toprank as tr

    warnings.simplefilter("ignore")
    data = tr.read(path)
    some = data.select(np.arange(min(data.n_queries, 3000)))
    lightgbm_params = {"bin_construct_sample_cnt": 20_000}  # LightGBM's sample does not grow with the data
    tr.TreeRanker(n_trees=1, lightgbm_params=lightgbm_params).fit(some.select(np.arange(5)))
    before = status("RssAnon") / MIB
    _, seconds, anonymous, _ = measured(lambda: tr.TreeRanker(n_trees=2, lightgbm_params=lightgbm_params).fit(some))
    return {"seconds": seconds, "values": some.X.size, "peak": anonymous - before}


def converting(path: Path, limit: int) -> dict[str, Any]:
    """Into a stored copy, and with the reader of the format into memory, in turns."""
    del limit
    import toprank as tr
    from toprank.data.converting import convert

    target = path.with_name(f"from-{path.name}.toprank-data")
    runs = {"read": lambda: tr.read(path), "made": lambda: convert(path, target)}
    found = {name: {"seconds": best(run, 1), "peak": 0.0} for name, run in runs.items()}
    for _ in range(4):
        for name, run in runs.items():
            before, (_, seconds, anonymous, _) = status("RssAnon") / MIB, measured(run)
            found[name]["seconds"] = min(found[name]["seconds"], seconds)
            found[name]["peak"] = max(found[name]["peak"], anonymous - before)
    return found


WORK = {function.__name__: function for function in (train, passes, trees, converting)}


def in_fresh_process(work: str, path: Path, limit: int = 0) -> dict[str, Any]:
    command = [sys.executable, __file__, "--work", work, "--path", str(path), "--limit", str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{work} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def report_training(path: Path, limit: int) -> None:
    found = in_fresh_process("train", path, limit)
    size = (path / "X.npy").stat().st_size
    print(f"opened in {found['opened'] * 1e3:.1f} ms (goal: 50)")
    allowed, before = found["allowed"], found["before"]
    print(f"data memory limited to {allowed:,.0f} MiB, of which Python and the libraries took {before:,.0f} MiB before")
    print(f"{'':<46}{'seconds':>9}{'passes':>8}{'GB/s a pass':>13}{'peak anonymous':>17}{'peak data':>12}")
    for row in found["rows"]:
        rate = "" if "evaluate" in row["what"] else f"{size * row['passes'] / row['seconds'] / 1e9:.2f}"
        peaks = f"{row['anonymous']:>13,.0f} MiB{row['data']:>8,.0f} MiB"
        print(f"{row['what']:<46}{row['seconds']:>9.2f}{row['passes']:>8.0f}{rate:>13}{peaks}", flush=True)


def report_passes(path: Path) -> None:
    found = in_fresh_process("passes", path)
    rates = {name: found["bytes"] / found[name] / 1e9 for name in ("read", "mapped", "pass")}
    print(f"reading the file from cache {rates['read']:.2f} GB/s; summing the map {rates['mapped']:.2f} GB/s")
    share = rates["pass"] / rates["read"]
    print(
        f"value and gradient of ListNet {rates['pass']:.2f} GB/s on {found['threads']} threads: {share:.0%} of reading "
        f"(goal: 70 %), {rates['pass'] / rates['mapped']:.0%} of summing",
        flush=True,
    )


def report_conversion(path: Path, folder: Path, n: int) -> None:
    import toprank as tr

    data = tr.read(path)
    some = data.select(np.arange(max(10, n // QUERY)))
    tr.write(some, folder / "some.txt")
    (folder / "parts").mkdir()
    for number, queries in enumerate(np.array_split(np.arange(some.n_queries), 4)):
        tr.write(some.select(queries), folder / "parts" / f"part-{number}.parquet")
    array = some.X.nbytes
    for source, what in ((folder / "some.txt", "LETOR text"), (folder / "parts", "a folder of Parquet files")):
        size = sum(file.stat().st_size for file in ([source] if source.is_file() else source.iterdir()))
        found = in_fresh_process("converting", source)
        read, made = found["read"], found["made"]
        rates = [size / one["seconds"] / 1e6 for one in (read, made)]
        print(
            f"{what}, {size / 1e6:,.0f} MB for an array of {array / 1e6:,.0f} MB: read {rates[0]:,.0f} MB/s, converted "
            f"{rates[1]:,.0f} MB/s ({rates[1] / rates[0]:.0%}; goal: 50 %); peak memory {read['peak']:,.0f} and "
            f"{made['peak']:,.0f} MiB",
            flush=True,
        )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--scale", type=float, default=1.0)
    arguments.add_argument(
        "--folder", type=Path, help="where to put the files; default: the folder for temporary files"
    )
    arguments.add_argument("--limit", type=int, help="MiB of data memory for training; default: 1024 times the scale")
    arguments.add_argument("--work", choices=WORK, help=argparse.SUPPRESS)
    arguments.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.work:
        print(json.dumps(WORK[chosen.work](chosen.path, chosen.limit)))
        return
    folder = Path(tempfile.mkdtemp(prefix="toprank-stored-", dir=chosen.folder))
    try:
        path, n = folder / "large.toprank-data", int(FULL * chosen.scale)
        start = time.perf_counter()
        write_copy(path, n)
        print(f"{n:,} × {N_FEATURES} float32, {n * N_FEATURES * 4 / 1e9:.2f} GB, written in blocks, ", end="")
        print(f"{time.perf_counter() - start:.0f} s with making the numbers", flush=True)
        report_training(path, chosen.limit if chosen.limit is not None else int(1024 * chosen.scale))
        report_passes(path)
        found = in_fresh_process("trees", path)
        values, peak = found["values"], found["peak"]
        print(
            f"TreeRanker on {values / 1e6:,.0f} M values of the map: {found['seconds']:.1f} s for 2 trees, peak "
            f"{peak:,.0f} MiB: {peak * MIB / values:.2f} bytes a value",
            flush=True,
        )
        report_conversion(path, folder, min(n, 200_000))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
