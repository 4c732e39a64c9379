"""How often intervals of click models and propensities hold the truth, of users who are known.

`python benchmarks/click_intervals.py`; the tables of docs/clicks.md and docs/propensities.md. `--logs 10` is quicker.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import toprank as tr
from toprank.clicks import CCM, DBN, DCM, PBM, UBM, ClickLog

PLACES = np.arange(1, 5)
LOOKED = PLACES**-0.8
BROWSED = np.tril(0.9 * np.exp(-0.3 * (PLACES[:, None] - 1 - np.arange(5))))  # by the distance to the last click
BROWSED[0, 0] = 1.0
USERS: dict[str, Any] = {
    "PBM": PBM.from_parameters(LOOKED),
    "UBM": UBM.from_parameters(BROWSED),
    "DCM": DCM.from_parameters(0.9 * PLACES**-0.4),
    "DBN": DBN.from_parameters(0.8),
    "CCM": CCM.from_parameters([0.9, 0.6, 0.2]),
}
RIGHT, WRONG = np.array([0.95, 0.9, 0.85, 0.8]), np.array([0.4, 0.3, 0.2, 0.1])
LOGS = {"20 queries": (20, 4_000), "100 queries": (100, 8_000), "400 queries": (400, 8_000)}
METHODS = ("all-pairs", "pivot", "chain", "randomization", "regression-em", "dual", "trust")


def world(seed: int, n_queries: int, exponential: bool = False) -> tuple[tr.RankingData, Any]:
    """Documents, and how much users like each."""
    data = tr.synthetic(n_queries=n_queries, n_documents=(6, 8), n_features=3, n_grades=4, seed=seed)
    score = data.X @ [1.0, -0.7, 0.5]
    liked = np.exp(0.3 * (score - score.max())) if exponential else 1 / (1 + np.exp(0.5 - score))
    return data.replace(document_ids=np.arange(data.n_documents).astype(str)), liked


def clicked(data: tr.RankingData, liked: Any, sessions: int, seed: int, users: Any, **options: Any) -> ClickLog:
    """Three rankers take turns."""
    rankers = {name: data.X[:, place] for place, name in enumerate("abc")}
    options = {"relevance": liked, "noise": 0.0, "seed": seed, **options}
    return tr.clicks.simulate(data, rankers, users, sessions, k=4, **options)


def of_model(name: str, n_queries: int, sessions: int, seed: int, confidence: float) -> Iterator[bool]:
    """Whether the interval of each parameter that all documents share holds it."""
    data, liked = world(seed, n_queries)
    enough = np.random.default_rng(seed).beta(2, 2, data.n_documents)
    log = clicked(data, liked, sessions, seed, USERS[name], satisfaction=enough)
    kind = type(USERS[name])
    [found] = kind().intervals(log, confidence=confidence, seed=seed).values()
    truth = np.atleast_1d(getattr(USERS[name], f"{kind.shared[0]}_"))
    told = found.low < found.high
    if name == "DCM":
        told[-1] = False  # nothing comes after the last position
    yield from ((found.low <= truth) & (truth <= found.high))[told]


def of_method(method: str, n_queries: int, sessions: int, seed: int, confidence: float) -> Iterator[bool]:
    """Whether the interval of each propensity (under trust of each offset, too) holds it."""
    data, liked = world(seed, n_queries, method == "dual")
    options = {"randomization": {"exploration": 0.3}, "trust": {"trust": (RIGHT, WRONG)}}.get(method, {})
    log = clicked(data, liked, sessions * (5 if method == "trust" else 1), seed, USERS["PBM"], **options)
    learned = (data, tr.LinearRanker(l2=1e-6)) if method in ("regression-em", "dual") else ()
    found = tr.clicks.propensities(log, method, *learned, confidence=confidence, seed=seed)
    truth, (low, high) = LOOKED, found.intervals
    if method == "trust":
        truth, base = LOOKED * (RIGHT - WRONG) / (RIGHT - WRONG)[0], LOOKED * WRONG
        assert found.offset_intervals is not None
        offset, ends = base - truth * base[0], found.offset_intervals
        yield from ((ends[0] <= offset) & (offset <= ends[1]))[1:]
    yield from ((low <= truth) & (truth <= high))[1:]


def main() -> None:
    """Print the share of intervals that hold the truth, at 80 and 95 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=40)
    parser.add_argument("names", nargs="*", help="models and methods; default: all")
    asked = parser.parse_args()
    for name in asked.names or [*USERS, *METHODS]:
        held_of = of_model if name in USERS else of_method
        for size, (n_queries, sessions) in LOGS.items():
            shares = []
            for confidence in (0.8, 0.95):
                each = [
                    held for seed in range(asked.logs) for held in held_of(name, n_queries, sessions, seed, confidence)
                ]
                shares.append(f"{np.mean(each):.3f} of {confidence}")
            sys.stdout.write(f"{name:14} {size:12} {', '.join(shares)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
