"""Two-sided paired tests of "the two systems do not differ": randomization, Student's t, Wilcoxon."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, each_block, numbers
from toprank.data.arguments import check_whole
from toprank.data.query_values import by_query
from toprank.errors import DataError
from toprank.significance.results import TestResult

ROUNDING = 1e-12  # relative difference below which two values count as equal
_MAX_VALUE = 1e250  # sums of larger values could overflow


def differences(a: npt.ArrayLike, b: npt.ArrayLike | None = None) -> FloatArray:
    """Return ``a - b`` (or `a`) without NaN pairs; differences up to 1e-12 of the larger value become 0.

    Per-query values of evaluations are paired by query id, plain numbers by position.

    Raises:
        DataError: if values are not one-dimensional numbers or are infinite, if queries or lengths differ, or if no
            pair is left.
    """
    if b is not None:
        paired = by_query({"a": a, "b": b})
        a, b = paired["a"], paired["b"]
    values = column(a, "a")
    if b is not None:
        others = column(b, "b")
        if len(values) != len(others):
            raise DataError(
                f"a has {len(values)} values and b has {len(others)}. A paired test needs both on the same queries."
            )
        largest = np.maximum(np.abs(values), np.abs(others))
        values = values - others
        values[np.abs(values) <= ROUNDING * largest] = 0.0
    kept = values[~np.isnan(values)]
    if len(kept) == 0:
        raise DataError(
            "No query has a value for both systems, so they cannot be compared. Check that the metric is defined on "
            "these data."
        )
    return kept


def column(values: npt.ArrayLike, name: str) -> FloatArray:
    """Return one value per query as an array; NaN is allowed, infinite values are not."""
    array = numbers(values, name).astype(np.float64, copy=False)
    if array.ndim != 1:
        raise DataError(f"{name} has {array.ndim} dimensions, but must have one: one number per query.")
    too_large = np.abs(array) > _MAX_VALUE  # false for NaN
    if too_large.any():
        query = int(np.argmax(too_large))
        raise DataError(
            f"{name} is {array[query]} for query number {query} (from 0). Values must be finite and at most "
            f"{_MAX_VALUE:g} in absolute value, or NaN for a query that is left out."
        )
    return array


def rescaled(values: FloatArray) -> tuple[FloatArray, int]:
    """Scale values by a power of two so that the largest is in [½, 1), which is exact; return them and the exponent."""
    exponent = int(np.frexp(np.abs(values).max())[1])
    return np.ldexp(values, -exponent), exponent


def moments(values: FloatArray) -> tuple[float, float | None]:
    """Return mean and standard deviation (n - 1 in the denominator; None for one value, 0 if all are equal)."""
    scaled, exponent = rescaled(values)
    mean = float(np.ldexp(scaled.mean(), exponent))
    if len(values) == 1:
        return mean, None
    if scaled.max() - scaled.min() <= ROUNDING * np.abs(scaled).max():
        return float(values[0]), 0.0
    return mean, float(np.ldexp(scaled.std(ddof=1), exponent))


def stream_start(seed: int, purpose: int) -> np.uint64:
    """Return the start of the random stream for a seed; different purposes give independent streams."""
    check_whole("seed", seed, 0)
    sequence = np.random.SeedSequence(int(seed), spawn_key=(purpose,))
    return np.uint64(sequence.generate_state(1, np.uint64)[0])


_SIGN_STREAM = 1  # random stream for sign flips
_MAX_ENUMERATED = 20  # non-zero differences up to which all sign patterns are enumerated
_ALL_ZERO = "all differences are zero"


def randomization_test(
    a: npt.ArrayLike,
    b: npt.ArrayLike | None = None,
    *,
    n_permutations: int = 100_000,
    seed: int = 0,
    threads: int | None = None,
) -> TestResult:
    """Fisher's randomization test: the share of sign patterns whose sum of differences is at least as large.

    If the systems do not differ, the two values of a query could be swapped, so every pattern of signs of the
    differences is equally likely. Up to 20 non-zero differences all 2^n patterns are enumerated, ``p = hits / 2^n``.
    With more, `n_permutations` random patterns are drawn, ``p = (hits + 1) / (n_permutations + 1)``, which is never 0.
    Both are exact: P(p ≤ α) ≤ α under the null hypothesis. Sums that differ by rounding only (1e-12 of Σ|d|) count as
    equal.

    Args:
        a: values of the first system, one per query; or the differences if `b` is None.
        b: values of the second system on the same queries.
        n_permutations: number of random sign patterns. Default 100,000; fewer make p coarser.
        seed: seed of the random signs; the same seed gives the same p-value on any number of threads.
        threads: number of threads. Default: all cores.

    Returns:
        The test result. For one query, or if all differences are zero, p = 1.

    >>> randomization_test([0.2, 0.1, 0.3]).p  # 2 of 8 sign patterns: the observed one and its opposite
    0.25
    """
    check_whole("n_permutations", n_permutations, 1)
    start = stream_start(seed, _SIGN_STREAM)
    all_values = differences(a, b)
    mean, _ = moments(all_values)
    values = all_values[all_values != 0]
    if len(values) == 0:
        p, detail = 1.0, _ALL_ZERO
    elif len(values) <= _MAX_ENUMERATED:
        p, detail = _enumerated_p(rescaled(values)[0]), f"all {2 ** len(values):,} sign patterns"
    else:
        hits = _sampled_hits(rescaled(values)[0], n_permutations, start, threads)
        p, detail = (hits + 1) / (n_permutations + 1), f"{n_permutations:,} random sign flips, seed {seed}"
    return TestResult("randomization", p, mean, mean, len(all_values), detail)


def _threshold(observed: float, values: FloatArray) -> float:
    return abs(observed) - ROUNDING * float(np.abs(values).sum())


def _enumerated_p(values: FloatArray) -> float:
    """Return the share of sign patterns with an equally large sum. Symmetry allows fixing the first sign."""
    sums = values[:1]
    for value in values[1:]:
        sums = np.concatenate([sums - value, sums + value])
    return float(np.mean(np.abs(sums) >= _threshold(float(sums[-1]), values)))


def _sampled_hits(values: FloatArray, n_permutations: int, start: np.uint64, threads: int | None) -> int:
    padded = np.concatenate([values, np.zeros(-len(values) % kernels.Flips.GROUP)])
    threshold = _threshold(kernels.ordered_sum(padded), padded)
    each = kernels.Flips.FLIPS_PER_BLOCK

    def hits(block: int) -> int:
        return int(kernels.flip_hits(padded, threshold, start, block, min(each, n_permutations - block * each)))

    return sum(each_block(hits, range(-(-n_permutations // each)), threads))


def t_test(a: npt.ArrayLike, b: npt.ArrayLike | None = None) -> TestResult:
    """Student's paired t-test: ``t = mean(d) / (sd(d) / √n)`` with n - 1 degrees of freedom.

    For one query, or if all differences are zero, p = 1. If all differences are equal and not zero, t is infinite and
    p = 0, the limit of vanishing spread; prefer the randomization test in this case.

    >>> round(t_test([0.2, 0.1, 0.3]).p, 4)
    0.0742
    """
    from scipy.special import stdtr

    values = differences(a, b)
    n = len(values)
    mean, spread = moments(values)
    if spread is None:
        return TestResult("t", 1.0, None, mean, n, "a single query, whose spread is unknown")
    if spread == 0:
        if mean == 0:
            return TestResult("t", 1.0, 0.0, mean, n, _ALL_ZERO)
        return TestResult("t", 0.0, math.copysign(math.inf, mean), mean, n, "all differences are equal: t is infinite")
    t = mean / spread * math.sqrt(n)
    return TestResult("t", float(2 * stdtr(n - 1, -abs(t))), t, mean, n, f"t = {t:.3f}, {n - 1} degrees of freedom")


def wilcoxon(a: npt.ArrayLike, b: npt.ArrayLike | None = None) -> TestResult:
    """Wilcoxon's signed-rank test of differences that are symmetric about zero, computed by SciPy.

    Zero differences are dropped before ranking (Wilcoxon's rule), and ties get their mean rank. SciPy uses the exact
    distribution for few queries, otherwise the normal approximation without continuity correction. If all differences
    are zero, p = 1.

    >>> wilcoxon([0.2, 0.1, 0.3]).p
    0.25
    """
    values = differences(a, b)
    mean, _ = moments(values)
    nonzero = rescaled(values[values != 0])[0] if values.any() else values[:0]
    if len(nonzero) == 0:
        return TestResult("wilcoxon", 1.0, 0.0, mean, len(values), _ALL_ZERO)
    from scipy import stats

    result = stats.wilcoxon(nonzero)
    zeros = len(values) - len(nonzero)
    detail = f"W = {float(result.statistic):g}, {zeros:,} zero differences left out"
    return TestResult("wilcoxon", float(result.pvalue), float(result.statistic), mean, len(values), detail)
