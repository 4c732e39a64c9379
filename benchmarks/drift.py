"""How often `monitor` raises an alarm where nothing has moved, and how often its intervals hold, by simulation.

    python benchmarks/drift.py [--runs 400] [--queries 20 50 100 200 1000] [--n-resamples 199]

First: numbers that nothing has moved, alike within a query ("query"), drawn anew for each document ("document") or half
of each, and a mean over queries beside them, as the expected DCG is one; the share of runs in which any p is 0.05 or
less, and the share in which that raises an alarm (PSI ≥ 0.1, or a mean that moved by 5 %), for one number and for
twelve together. Then: the share of 95 % intervals of PSI and KS that hold their truth,
for normal numbers of which a half is the query's own, moved by so many standard deviations.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from toprank.monitoring.feature_drift import CellCounts, Resamples, adjusted_p_values, count_cells, measure_drift


def numbers(kind: str, n_queries: int, width: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The query of each document, and numbers of variance 1."""
    of_query = np.repeat(np.arange(n_queries), rng.integers(5, 15, n_queries))
    by_query, own = rng.standard_normal((n_queries, width))[of_query], rng.standard_normal((len(of_query), width))
    return of_query, {"query": by_query, "document": own, "half": (by_query + own) / np.sqrt(2)}[kind]


def counted(
    sides: list[tuple[np.ndarray, np.ndarray]], n_resamples: int, seed: int
) -> tuple[list[CellCounts], Resamples]:
    (of_a, a), (of_b, b) = sides
    draws = Resamples(of_a.max() + 1, of_b.max() + 1, n_resamples, np.random.default_rng(seed))
    blocks = draws.block_of[0][of_a], draws.block_of[1][of_b]
    return [count_cells(x, y, blocks, draws.blocks) for x, y in zip(a.T, b.T, strict=True)], draws


def level(kind: str, n_queries: int, width: int, runs: int, n_resamples: int) -> tuple[float, float]:
    """The share of runs with p ≤ 0.05, and the share of runs with an alarm."""
    rng, significant, alarms = np.random.default_rng([n_queries, len(kind), width]), 0, 0
    for run in range(runs):
        cells, draws = counted([numbers(kind, n_queries, width, rng) for _ in range(2)], n_resamples, run)
        values = [rng.lognormal(size=n_queries) for _ in range(2)]
        tests = [measure_drift(part, draws, confidence=0.95) for part in cells]
        p = np.array(
            adjusted_p_values(
                [draws.squared_mean_difference(values), *((test.observed, test.permuted) for test in tests)]
            )
        )
        before, after = (each.mean() for each in values)
        large = [abs(after - before) >= 0.05 * before, *(test.psi.value >= 0.1 for test in tests)]
        significant += p.min() <= 0.05
        alarms += bool(((p <= 0.05) & np.array(large)).any())
    return significant / runs, alarms / runs


def truth(shift: float) -> tuple[float, float]:
    """PSI in the bins of both sides together, and KS."""
    levels = [0.01, *np.linspace(0.1, 0.9, 9), 0.99]

    def mixed(x: float) -> float:
        return float(norm.cdf(x) + norm.cdf(x - shift)) / 2

    edges = np.r_[-np.inf, [brentq(lambda x, to=to: mixed(x) - to, -9, 9) for to in levels], np.inf]
    p, q = np.diff(norm.cdf(edges)), np.diff(norm.cdf(edges - shift))
    return float(((q - p) * np.log(q / p)).sum()), float(2 * norm.cdf(shift / 2) - 1)


def coverage(shift: float, n_queries: int, runs: int, n_resamples: int) -> tuple[float, float]:
    rng, inside, right = np.random.default_rng(n_queries), np.zeros(2), truth(shift)
    for run in range(runs):
        before, (of_query, after) = (numbers("half", n_queries, 1, rng) for _ in range(2))
        [cells], draws = counted([before, (of_query, after + shift)], n_resamples, run)
        test = measure_drift(cells, draws, 0.95)
        inside += [low <= value <= high for (_, low, high), value in zip((test.psi, test.ks), right, strict=True)]
    return tuple(inside / runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--queries", type=int, nargs="+", default=[20, 50, 100, 200, 1000])
    parser.add_argument("--n-resamples", type=int, default=199)
    options = parser.parse_args()
    print(f"{'p, alarms':<10}{'numbers':>8}" + "".join(f"{n:>16}" for n in options.queries), flush=True)
    for kind in ("query", "document", "half"):
        for width in (1, 12):
            found = [level(kind, n, width, options.runs, options.n_resamples) for n in options.queries]
            print(f"{kind:<10}{width:>8}" + "".join(f"{p:>8.3f},{alarm:>7.3f}" for p, alarm in found), flush=True)
    print(f"\n{'intervals':<10}{'moved by':>8}" + "".join(f"{n:>16}" for n in options.queries), flush=True)
    for shift in (0.0, 0.25, 0.5, 1.0):
        found = [coverage(shift, n, options.runs, options.n_resamples) for n in options.queries]
        print(f"{'PSI, KS':<10}{shift:>8}" + "".join(f"{psi:>8.3f},{ks:>7.3f}" for psi, ks in found), flush=True)
    error = np.sqrt(0.05 * 0.95 / options.runs)
    print(f"\n{options.runs:,} runs each; standard error of a share of 0.05 or 0.95: {error:.4f}")


if __name__ == "__main__":
    main()
