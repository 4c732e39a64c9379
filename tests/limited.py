"""Work on a stored copy under a limit on data memory; run by test_stored_training in a process of its own.

    python limited.py FOLDER linear | "expected gain" | trees | convert | "convert text" ...

What Python and the libraries take is not counted: the limit is set when they are loaded and kernels are compiled.
"""

from __future__ import annotations

import json
import resource
import sys
import warnings
from pathlib import Path

import numpy as np

import toprank as tr
from toprank.data.converting import convert
from toprank.data.store.writing import StoreWriter

DOCUMENTS, FEATURES, QUERY, ALLOWED = 240_000, 200, 120, 144 << 20
SUFFIXES = {"convert": ".parquet", "convert text": ".txt.gz"}
MAKERS = {
    "linear": lambda: tr.LinearRanker("ListNet", max_iterations=1),
    "expected gain": lambda: tr.ExpectedGainRanker("Multinomial", max_iterations=2),
    "trees of a whole sample": lambda: tr.TreeRanker("ListNet", n_trees=1),
    "trees": lambda: tr.TreeRanker(
        "ListNet", n_trees=1, max_bin=15, lightgbm_params={"bin_construct_sample_cnt": 5000}
    ),
}


def write_copy(path: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    with StoreWriter(path) as writer:
        writer.start("X", np.dtype(np.float32), (FEATURES,), n)
        writer.start("labels", np.dtype(np.float64), (), n)
        for first in range(0, n, 10_000):
            rows = min(10_000, n - first)
            X = np.zeros((rows, FEATURES), dtype=np.float32)
            X[:, :3] = rng.normal(size=(rows, 3))
            X[:, 3:] = np.arange(rows * (FEATURES - 3)).reshape(rows, -1) % 7
            writer.append("X", X)
            writer.append("labels", np.digitize(X[:, 0], [0.3, 1.2]).astype(np.float64))
        writer.put("offsets", np.arange(0, n + 1, QUERY))
        writer.put("qids", np.arange(n // QUERY))
        writer.finish((n, FEATURES), None)


def data_memory() -> int:
    return int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) * 1024


def ndcg(name: str, data: tr.RankingData) -> float:
    return tr.evaluate(MAKERS[name]().fit(data).predict(data), data, "ndcg@10").mean["ndcg@10"]


def main() -> None:
    warnings.simplefilter("ignore")
    folder, work = Path(sys.argv[1]), sys.argv[2:]
    write_copy(folder / "large.toprank-data", DOCUMENTS)
    write_copy(folder / "small.toprank-data", 10 * QUERY)
    data, small = tr.read(folder / "large.toprank-data"), tr.read(folder / "small.toprank-data")
    for name in set(work) & set(SUFFIXES):
        for size, some in (("large", data), ("small", small)):
            tr.write(some, folder / f"{size}{SUFFIXES[name]}")
        convert(folder / f"small{SUFFIXES[name]}", folder / "converted.toprank-data")
    for name in set(work) & set(MAKERS):
        ndcg(name, small)
    allowed = data_memory() + ALLOWED
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    found = {"allowed": ALLOWED, "features": data.X.nbytes, "documents": DOCUMENTS}
    try:
        np.array(data.X)
        found["copied"] = "no limit"
    except MemoryError:
        found["copied"] = "MemoryError"
    for name in work:
        if name in SUFFIXES:
            source = folder / f"large{SUFFIXES[name]}"
            found[name] = convert(source, folder / "converted.toprank-data").n_documents
        else:
            try:
                found[name] = ndcg(name, data)
            except tr.errors.DataError as problem:
                found[name] = str(problem)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
