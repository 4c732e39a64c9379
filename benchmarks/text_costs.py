"""What the words of documents cost: learning their statistics, encoding them, and matching candidates of a query.

    python benchmarks/text_costs.py [--documents 100000] [--candidates 1000] [--repeats 20]

The documents are drawn, with a title of 8 words and a description of 40; queries have 8 words. One thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from toprank.text import MatchFeatures, Statistics

WORDS = np.array([f"word{i}" for i in range(30_000)])


def timed(what: str, call: Callable[[], Any]) -> Any:
    """Print the processor seconds of a call, and return what it returns."""
    start = time.process_time()
    answer = call()
    print(f"{what:42} {time.process_time() - start:8.4f} s", flush=True)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--candidates", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=20)
    asked = parser.parse_args()
    rng = np.random.default_rng(0)

    def text(length: int) -> str:
        """Words of which few are frequent."""
        return " ".join(WORDS[np.minimum((10 * rng.pareto(1.1, length)).astype(int), len(WORDS) - 1)])

    fields = {name: [text(length) for _ in range(asked.documents)] for name, length in (("title", 8), ("body", 40))}
    known = timed("learning the statistics", lambda: Statistics.fit(fields))
    documents = timed("encoding the documents", lambda: known.encode(fields))
    features = MatchFeatures(known)
    ends = np.array([0, asked.candidates])

    def match() -> None:
        features.matrix([text(8)], documents, rng.integers(0, asked.documents, asked.candidates), ends)

    timed("the first query, which counts all words", match)
    timed(f"{asked.repeats} more queries", lambda: [match() for _ in range(asked.repeats)])


if __name__ == "__main__":
    main()
