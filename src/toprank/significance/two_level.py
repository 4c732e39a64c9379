"""Confidence intervals that account for the sampling of both queries and random seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.arguments import check_number
from toprank.errors import DataError
from toprank.significance.results import Interval


def crossed_random_effects_interval(parts: Sequence[npt.ArrayLike], *, confidence: float = 0.95) -> Interval:
    """Return the t interval of a mean over queries and seeds, as crossed random effects.

    The model of a value is μ + query effect + seed effect + residual. In each part (a fold, in which every seed trains
    its own model) with S seeds and m of the n queries, let s be the variance of the per-seed means and r the residual
    mean square, so that s − r/m estimates the variance due to seeds alone. Let Q be the variance of the per-query means
    over seeds. The interval is

        mean ± √(t²_{n−1} · Q/n + t²_f · Σ_parts (m/n)² (s − r/m)/S),

    The second sum is replaced by 0 if it is negative. f are Satterthwaite's degrees of freedom of Σ (m/n)² s/S, with
    S − 1 per part. A single quantile for both sums would make the interval too short if three seeds happen to agree.
    With one seed, the result is the t interval over queries.

    Args:
        parts: one array of shape (seeds, queries) per part; queries with NaN are left out.
        confidence: confidence level. Default 0.95.

    >>> low, high = crossed_random_effects_interval([[[0.2, 0.1, 0.3]]])
    >>> round(low, 3), round(high, 3)
    (-0.048, 0.448)
    """
    from scipy.special import stdtrit

    check_number("confidence", confidence, above=0, below=1)
    tables = [np.asarray(part, dtype=np.float64) for part in parts]
    if not tables or any(table.ndim != 2 for table in tables):
        raise DataError("parts must hold at least one array of shape (seeds, queries).")
    tables = [kept for table in tables if (kept := table[:, ~np.isnan(table).any(axis=0)]).shape[1]]
    if not tables:
        raise DataError("No query has a value for every seed.")
    means = np.concatenate([table.mean(axis=0) for table in tables])
    n, mean = len(means), float(means.mean())
    detail = f"t, {n:,} queries and {max(len(table) for table in tables)} seeds"
    if n == 1:
        return Interval(mean, -math.inf, math.inf, confidence, 1, "one query: its spread is unknown")
    of_queries = float(means.var(ddof=1)) / n
    of_seeds, seen, freedom = 0.0, 0.0, 0.0
    for table in tables:
        (seeds, m), share = table.shape, table.shape[1] / n
        if seeds < 2:
            continue
        own = share**2 * float(table.mean(axis=1).var(ddof=1)) / seeds
        of_seeds += own - share**2 * _residual_mean_square(table) / (seeds * m)
        seen, freedom = seen + own, freedom + own**2 / (seeds - 1)
    if of_queries == 0 and seen == 0:
        return Interval(mean, mean, mean, confidence, n, "all values are equal, so the interval has no width")
    level = (1 + confidence) / 2
    square = float(stdtrit(n - 1, level)) ** 2 * of_queries
    if of_seeds > 0:
        square += float(stdtrit(seen**2 / freedom, level)) ** 2 * of_seeds
    half = math.sqrt(square)
    return Interval(mean, mean - half, mean + half, confidence, n, detail)


def _residual_mean_square(table: FloatArray) -> float:
    """Return the residual mean square, which neither query nor seed effects explain."""
    seeds, m = table.shape
    if m < 2:
        return 0.0
    rest: FloatArray = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    return float((rest**2).sum() / ((seeds - 1) * (m - 1)))
