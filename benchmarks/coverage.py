"""What statistics claim, by simulation: how often 95 % intervals hold the truth, how often tests of level 5 % err.

    python benchmarks/coverage.py [--only differences] [--samples 2000] [--queries 20 50 100 200] [--n-resamples 1000]

differences: samples of differences are drawn from distributions whose mean is known. The share of intervals that hold
it should be 0.95; behind it stands the mean width, as a multiple of Student's.
weighted: values in [0, 1] and weights, drawn together from a population; "with it" says that heavy queries have larger
values. The share of intervals of the weighted mean that hold the population's, and the median effective sample.
equivalence: differences that are 0 but in a share of the queries, their mean being the margin of 0.01. How often they
are called equivalent all the same, which should be 0.05 at most: by ours, and by two one-sided t-tests. Computed, not
drawn.
importance: what a shuffled feature costs on some queries, with its interval, against its cost on 5,800.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
from scipy.stats import binom, t

import toprank as tr
from toprank.significance import (
    Interval,
    bootstrap_interval,
    effective_sample_size,
    equivalence_test,
    t_interval,
    weighted_interval,
)

METHODS = ("percentile", "bca", "t", "studentized")

# Differences of NDCG between two similar systems: most queries tie, a few swaps lose a little, fewer win a lot.
STEPS = np.array([0.0] * 12 + [-0.11, -0.05, -0.02, 0.02, 0.05, 0.08, 0.13, 0.37])

DISTRIBUTIONS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
    "normal": (lambda rng, n: rng.normal(0.0, 1.0, n), 0.0),
    "lognormal, skewed": (lambda rng, n: rng.lognormal(0.0, 1.0, n), math.exp(0.5)),
    "NDCG-like, 60 % zero": (lambda rng, n: rng.choice(STEPS, n), float(STEPS.mean())),
    "exponential": (lambda rng, n: rng.exponential(1.0, n), 1.0),
}


def interval(method: str, differences: np.ndarray, n_resamples: int, seed: int) -> Interval:
    if method == "t":
        return t_interval(differences)
    return bootstrap_interval(differences, method=method, n_resamples=n_resamples, seed=seed, threads=1)


def differences(options: argparse.Namespace) -> None:
    print(f"{'queries':>7}  {'differences':<20}  " + "  ".join(f"{method:>12}" for method in METHODS))
    for n in options.queries:
        for name, (draw, truth) in DISTRIBUTIONS.items():
            rng = np.random.default_rng([n, len(name)])
            holds, widths = dict.fromkeys(METHODS, 0), dict.fromkeys(METHODS, 0.0)
            for seed in range(options.samples):
                drawn = draw(rng, n)
                for method in METHODS:
                    low, high = interval(method, drawn, options.n_resamples, seed)
                    holds[method] += low <= truth <= high
                    widths[method] += high - low
            cells = [f"{holds[m] / options.samples:.3f} ({widths[m] / widths['t']:.2f})" for m in METHODS]
            print(f"{n:>7}  {name:<20}  " + "  ".join(f"{cell:>12}" for cell in cells), flush=True)
    told(options)


def weighted(options: argparse.Namespace) -> None:
    rng, size = np.random.default_rng(5), 10_000
    kinds = {
        "equal": np.ones(size),
        "exponential": rng.exponential(size=size),
        "lognormal, 1": rng.lognormal(0, 1, size),
        "lognormal, 1.5": rng.lognormal(0, 1.5, size),
        "Zipf": 1 / np.arange(1.0, size + 1),
    }
    print(f"{'queries':>7}  {'weights':<15}  {'effective':>9}  {'apart':>6}  {'with it':>7}")
    for n in options.queries:
        for name, weights in kinds.items():
            size_of = np.log(weights)
            height = (size_of - size_of.mean()) / (size_of.std() or 1.0)
            found, effective = [], []
            for values in (rng.beta(2, 2, size), 1 / (1 + np.exp(-height - rng.normal(size=size)))):
                truth, held = np.average(values, weights=weights), 0
                for seed in range(options.samples):
                    at = rng.integers(0, size, n)
                    low, high = weighted_interval(
                        values[at], weights[at], n_resamples=options.n_resamples, seed=seed, threads=1
                    )
                    held += low <= truth <= high
                    effective.append(effective_sample_size(weights[at]))
                found.append(held / options.samples)
            print(f"{n:>7}  {name:<15}  {np.median(effective):>9.1f}  {found[0]:>6.3f}  {found[1]:>7.3f}", flush=True)
    told(options)


def equivalence(options: argparse.Namespace) -> None:
    margin, shares = 0.01, (0.01, 0.02, 0.1)
    print(f"{'queries':>7}  " + "  ".join(f"{f'{share:.0%} ours':>9}" for share in shares), end="  ")
    print("  ".join(f"{f'{share:.0%} by t':>9}" for share in shares))
    for n in options.queries:
        rows = []
        for test in (ours, by_t):
            for share in shares:
                failures = (k for k in range(n + 1) if test(np.where(np.arange(n) < k, margin / share, 0.0), margin))
                rows.append(sum(binom.pmf(k, n, share) for k in failures if binom.sf(k - 1, n, share) > 1e-6))
        print(f"{n:>7}  " + "  ".join(f"{seen:>9.3f}" for seen in rows), flush=True)


def ours(values: np.ndarray, margin: float) -> bool:
    return abs(values.mean()) < margin and equivalence_test(values, margin=margin).equivalent


def by_t(values: np.ndarray, margin: float) -> bool:
    error = values.std(ddof=1) / math.sqrt(len(values))
    if error == 0:
        return abs(float(values.mean())) < margin
    return bool(t.cdf((abs(values.mean()) - margin) / error, len(values) - 1) <= 0.05)


def importance(options: argparse.Namespace) -> None:
    data = tr.synthetic(n_queries=6_000, n_documents=(8, 12), n_features=3, noise=0.5, seed=1)
    ranker = tr.LinearRanker("ListNet").fit(data.select(np.arange(200)))
    rest, rng = data.select(np.arange(200, data.n_queries)), np.random.default_rng(0)
    truth = tr.permutation_importance(ranker, rest, features=0, n_repeats=20).importances[0]
    print(f"{'queries':>7}  {'held':>6}")
    for n in options.queries:
        held = 0
        for seed in range(options.samples):
            part = rest.select(np.sort(rng.choice(rest.n_queries, n, replace=False)))
            found = tr.permutation_importance(ranker, part, features=0, seed=seed, threads=1)
            held += found.intervals.low[0] <= truth <= found.intervals.high[0]
        print(f"{n:>7}  {held / options.samples:>6.3f}", flush=True)
    told(options)


def told(options: argparse.Namespace) -> None:
    error = math.sqrt(0.95 * 0.05 / options.samples)
    size = f"{options.samples:,} samples each, {options.n_resamples:,} resamples"
    print(f"{size}; standard error of a share of 0.95: {error:.4f}\n")


TABLES = {"differences": differences, "weighted": weighted, "equivalence": equivalence, "importance": importance}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TABLES)
    parser.add_argument("--samples", type=int, default=2_000)
    parser.add_argument("--queries", type=int, nargs="+", default=[20, 50, 100, 200])
    parser.add_argument("--n-resamples", type=int, default=1_000)
    options = parser.parse_args()
    for table in TABLES if options.only is None else [options.only]:
        TABLES[table](options)


if __name__ == "__main__":
    main()
