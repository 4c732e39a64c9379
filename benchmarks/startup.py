"""Start-up: how long `import toprank` and a first command take, in fresh processes.

python benchmarks/startup.py

The command evaluates constant scores on OHSUMED where TOPRANK_DATA is set (else on data of the same size), with
kernels already compiled. Best of several runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import toprank as tr


def best(command: list[str], repeats: int = 7) -> float:
    """Seconds of the fastest of some runs, after one to warm the caches."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return min(times[1:])


def ohsumed(folder: Path) -> Path:
    """All five partitions of OHSUMED as one file, or synthetic data of its size."""
    path, root = folder / "data.txt", os.environ.get("TOPRANK_DATA")
    if root:
        parts = [Path(root, "letor", "OHSUMED", f"S{i}.txt").read_bytes() for i in range(1, 6)]
        path.write_bytes(b"".join(parts))
    else:
        tr.write(tr.synthetic(n_queries=106, n_documents=152, n_features=45, n_grades=3), path)
    return path


def main() -> None:
    empty = best([sys.executable, "-c", "pass"])
    bare = best([sys.executable, "-c", "import toprank"])
    print(f"python alone {empty * 1e3:.0f} ms; import toprank adds {(bare - empty) * 1e3:.0f} ms")
    with tempfile.TemporaryDirectory() as name:
        path = ohsumed(Path(name))
        scores = Path(name) / "zero.scores"
        tr.write_scores(np.zeros(tr.read(path).n_documents), scores)
        command = [sys.executable, "-m", "toprank", "evaluate", str(path), str(scores)]
        print(f"toprank evaluate, OHSUMED-sized, warm kernels: {best(command):.2f} s wall")


if __name__ == "__main__":
    main()
