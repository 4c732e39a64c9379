"""How often 95 % intervals hold the true mean difference, by simulation: bootstrap methods and Student's t.

    python benchmarks/coverage.py [--samples 2000] [--queries 20 50 100 200] [--resamples 1000]

Samples of differences are drawn from distributions whose mean is known. The share of intervals that hold it should be
0.95; behind it stands the mean width, as a multiple of Student's. The standard error of a share is printed below.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np

from toprank.significance import Interval, bootstrap_interval, t_interval

METHODS = ("percentile", "bca", "t", "studentised")

# Differences of NDCG between two similar systems: most queries tie, a few swaps lose a little, fewer win a lot.
STEPS = np.array([0.0] * 12 + [-0.11, -0.05, -0.02, 0.02, 0.05, 0.08, 0.13, 0.37])

DISTRIBUTIONS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
    "normal": (lambda rng, n: rng.normal(0.0, 1.0, n), 0.0),
    "lognormal, skewed": (lambda rng, n: rng.lognormal(0.0, 1.0, n), math.exp(0.5)),
    "NDCG-like, 60 % zero": (lambda rng, n: rng.choice(STEPS, n), float(STEPS.mean())),
    "exponential": (lambda rng, n: rng.exponential(1.0, n), 1.0),
}


def interval(method: str, differences: np.ndarray, resamples: int, seed: int) -> Interval:
    if method == "t":
        return t_interval(differences)
    return bootstrap_interval(differences, method=method, resamples=resamples, seed=seed, threads=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2_000)
    parser.add_argument("--queries", type=int, nargs="+", default=[20, 50, 100, 200])
    parser.add_argument("--resamples", type=int, default=1_000)
    options = parser.parse_args()
    print(f"{'queries':>7}  {'differences':<20}  " + "  ".join(f"{method:>12}" for method in METHODS))
    for n in options.queries:
        for name, (draw, truth) in DISTRIBUTIONS.items():
            rng = np.random.default_rng([n, len(name)])
            holds, widths = dict.fromkeys(METHODS, 0), dict.fromkeys(METHODS, 0.0)
            for seed in range(options.samples):
                differences = draw(rng, n)
                for method in METHODS:
                    low, high = interval(method, differences, options.resamples, seed)
                    holds[method] += low <= truth <= high
                    widths[method] += high - low
            cells = [f"{holds[m] / options.samples:.3f} ({widths[m] / widths['t']:.2f})" for m in METHODS]
            print(f"{n:>7}  {name:<20}  " + "  ".join(f"{cell:>12}" for cell in cells), flush=True)
    error = math.sqrt(0.95 * 0.05 / options.samples)
    size = f"{options.samples:,} samples each, {options.resamples:,} resamples"
    print(f"{size}; standard error of a share of 0.95: {error:.4f}")


if __name__ == "__main__":
    main()
