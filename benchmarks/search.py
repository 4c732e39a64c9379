"""Search: quality on judged collections, and how long indexing, a query and an evaluation take.

    python benchmarks/search.py            # Cranfield, CISI, MED (where TOPRANK_DATA is set), Python's documentation
    python benchmarks/search.py --speed    # times alone

The default system beside the baselines, by five folds on queries that it has not seen. How it was chosen, on validation
queries alone, is in benchmarks/search_blend.py. `--systems blend,LambdaMART` puts others beside it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from toprank import search
from toprank.search.evaluation import BASELINES

POOL = 200


def collections() -> dict[str, str]:
    root = Path(os.environ.get("TOPRANK_DATA", ""), "text")
    found = {name: str(root / name) for name in ("cran", "cisi", "med") if (root / name).is_dir()}
    return found | {"python": "python-docs"}


def quality(folder: Path, systems: list[str]) -> None:
    for name, source in collections().items():
        start = time.process_time()
        index = search.index(source, folder / name, n_candidates=POOL)
        found = index.evaluate(systems=[*BASELINES, *systems])
        print(f"\n== {name}: indexed and evaluated in {time.process_time() - start:.1f} s of CPU\n{found}")
        for system in systems:
            print(f"{system} in each fold: {'; '.join(map(str, found.choices[system]))}")


def speed(folder: Path) -> None:
    texts = search.python_docs(queries=300)
    ids = [f"{name}#{copy}" for copy in range(2) for name in texts.ids][:10_000]
    fields = {name: [*values, *values][:10_000] for name, values in texts.fields.items()}
    many = search.Collection("twice", ids, fields)
    start = time.perf_counter()
    search.index(many, folder / "many")
    print(f"index {len(ids):,} documents: {time.perf_counter() - start:.2f} s (goal 3 s)")
    index = search.index(texts, folder / "docs", n_candidates=1000)
    index.train(system="blend", threads=1)
    took = []
    for text in texts.topics.texts:
        words = " ".join(text.split()[:8])
        start = time.perf_counter()
        index.search(words)
        took.append(1000 * (time.perf_counter() - start))
    p50, p99 = np.percentile(took[5:], [50, 99])
    print(f"query of 8 words, up to 1,000 candidates: p50 {p50:.1f} ms (goal 15), p99 {p99:.1f} ms (goal 50)")
    code = "import sys; from toprank import search; search.open(sys.argv[1]).search('read a csv file')"
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, str(folder / "docs")], check=True)
    print(f"first search in a fresh process: {time.perf_counter() - start:.2f} s (goal 1 s)")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--speed", action="store_true", help="times alone")
    parser.add_argument("--systems", default="blend", help="learned systems, separated by commas; the last is compared")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not given.speed:
            quality(Path(folder), given.systems.split(","))
        speed(Path(folder))


if __name__ == "__main__":
    main()
