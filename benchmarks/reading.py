"""Reading a dense LETOR text of about 250 MB, against the readers people use.

    python benchmarks/reading.py [--path FILE] [--rows 200000]

Each reader runs in its own process: imports and one small file first, then the best of three. Memory is the peak of
anonymous pages (file pages are the kernel's to drop) above what the process had before, relative to the dense float32
array that the text holds. Ratios are to toprank in the same run. `--path` keeps the text for the next time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

N_FEATURES = 136
REPEATS = 3
SLICE = 4_000  # rows for the readers that would take minutes


def make_text(path: Path, n_rows: int) -> None:
    """Write MSLR-like rows: counts, ratios and scores with six decimals."""
    rng = np.random.default_rng(0)
    kinds = rng.choice(3, N_FEATURES, p=[0.5, 0.35, 0.15])
    query, left = 0, 0
    with path.open("w") as text:
        for start in range(0, n_rows, 2_000):
            n = min(2_000, n_rows - start)
            columns = []
            for feature, kind in enumerate(kinds, 1):
                if kind == 0:
                    values = map(str, rng.poisson(rng.choice([0.2, 3, 400]), n).tolist())
                else:
                    values = (f"{v:.6f}" for v in (rng.random(n) if kind == 1 else rng.normal(0, 20, n)).tolist())
                columns.append([f"{feature}:{value}" for value in values])
            for features in zip(*columns, strict=True):
                query, left = (query + 1, int(rng.integers(60, 180))) if left == 0 else (query, left - 1)
                text.write(f"{rng.integers(0, 5)} qid:{query} {' '.join(features)}\n")


def first_rows(path: Path, n_rows: int) -> Path:
    """The first rows of a text, in a file beside it."""
    part = path.with_name(path.name + f".first{n_rows}")
    with path.open() as whole, part.open("w") as text:
        text.writelines(line for _, line in zip(range(n_rows), whole, strict=False))
    return part


def without_queries(path: Path) -> Path:
    """The text as LightGBM wants it: no qid, the sizes of the queries in a side file."""
    plain = path.with_name(path.name + ".noqid")
    sizes: dict[str, int] = {}
    with path.open() as whole, plain.open("w") as text:
        for line in whole:
            label, qid, rest = line.split(" ", 2)
            sizes[qid] = sizes.get(qid, 0) + 1
            text.write(f"{label} {rest}")
    Path(f"{plain}.query").write_text("\n".join(map(str, sizes.values())))
    return plain


# The readers: each imports what it needs and returns a function that reads a file.


def toprank() -> Callable[[Path], object]:
    from toprank.data.letor import read_letor

    return read_letor


def toprank_one_thread() -> Callable[[Path], object]:
    from toprank.data.letor import read_letor

    return lambda path: read_letor(path, threads=1)


def xgboost() -> Callable[[Path], object]:
    import xgboost

    warnings.simplefilter("ignore")
    return lambda path: xgboost.DMatrix(f"{path}?format=libsvm")


def lightgbm() -> Callable[[Path], object]:
    import lightgbm

    return lambda path: lightgbm.Dataset(str(path), params={"verbose": -1}).construct()


def catboost() -> Callable[[Path], object]:
    import catboost

    return lambda path: catboost.Pool(f"libsvm://{path}")


def polars() -> Callable[[Path], object]:
    import polars

    names = ["label", "qid", *(f"f{i}" for i in range(1, N_FEATURES + 1))]
    types = {"label": polars.Float32} | dict.fromkeys(names[1:], polars.String)
    value = [polars.col(f"f{i}").str.slice(len(str(i)) + 1).cast(polars.Float32) for i in range(1, N_FEATURES + 1)]

    def read(path: Path) -> object:
        table = polars.read_csv(path, separator=" ", has_header=False, new_columns=names, schema_overrides=types)
        return table.select(value).to_numpy(), table["label"].to_numpy(), table["qid"].to_numpy()

    return read


def sklearn() -> Callable[[Path], object]:
    from sklearn.datasets import load_svmlight_file

    return lambda path: load_svmlight_file(str(path), query_id=True, dtype=np.float32)


READERS = {
    function.__name__: function
    for function in (toprank, toprank_one_thread, xgboost, lightgbm, catboost, polars, sklearn)
}


def anonymous_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


def measure(reader: str, path: Path, small: Path) -> dict[str, float]:
    """Seconds (best of three) and the peak of anonymous memory above the start, in bytes; in this process."""
    read = READERS[reader]()
    read(small)
    before, seconds, peak = anonymous_bytes(), [], 0
    for _ in range(REPEATS):
        done = threading.Event()
        samples = [before]

        def watch(done: threading.Event = done, samples: list[int] = samples) -> None:
            while not done.wait(0.002):
                samples.append(anonymous_bytes())

        watcher = threading.Thread(target=watch)
        watcher.start()
        start = time.perf_counter()
        result = read(path)
        seconds.append(time.perf_counter() - start)
        samples.append(anonymous_bytes())
        done.set()
        watcher.join()
        peak = max(peak, max(samples) - before)
        del result
    return {"seconds": min(seconds), "peak": peak}


def in_fresh_process(reader: str, path: Path, small: Path) -> dict[str, float] | None:
    command = [sys.executable, __file__, "--measure", reader, "--path", str(path), "--small", str(small)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{reader:<20} left out: {done.stderr.strip().splitlines()[-1][:90]}", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def compare(path: Path, n_rows: int) -> None:
    small, part = first_rows(path, 200), first_rows(path, SLICE)
    files = {"lightgbm": (without_queries(path), without_queries(small)), "sklearn": (part, small)}
    array = n_rows * N_FEATURES * 4
    print(f"{path.stat().st_size / 1e6:.0f} MB of text, {n_rows:,} x {N_FEATURES}, an array of {array / 1e6:.0f} MB")
    print(f"{'reader':<20}{'seconds':>9}{'MB/s':>8}{'ratio':>8}{'peak memory / array':>22}")
    ours = None
    for reader in READERS:
        text, warm = files.get(reader, (path, small))
        found = in_fresh_process(reader, text, warm)
        if found is None:
            continue
        scale = path.stat().st_size / text.stat().st_size if reader == "sklearn" else 1.0
        seconds, peak = found["seconds"] * scale, found["peak"] * scale / array
        ours = ours or seconds
        note = f"   scaled from {SLICE:,} rows" if reader == "sklearn" else ""
        speed = path.stat().st_size / 1e6 / seconds
        print(f"{reader:<20}{seconds:>9.3f}{speed:>8.0f}{seconds / ours:>7.1f}x{peak:>21.2f}x{note}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--path", type=Path, help="where the text is, or is to be kept")
    arguments.add_argument("--rows", type=int, default=200_000)
    arguments.add_argument("--measure", choices=READERS, help=argparse.SUPPRESS)
    arguments.add_argument("--small", type=Path, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.measure:
        print(json.dumps(measure(chosen.measure, chosen.path, chosen.small)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "dense.txt")
        if chosen.path and chosen.path.exists():
            path.symlink_to(chosen.path.resolve())
        else:
            make_text(path, chosen.rows)
            if chosen.path:
                chosen.path.write_bytes(path.read_bytes())
        n_rows = sum(1 for _ in path.open("rb"))
        compare(path, n_rows)


if __name__ == "__main__":
    main()
