"""The two loops that resample: sign flips and the bootstrap.

Randomness is a counter, not a state: word `i` of a stream is a hash (splitmix64) of ``start + i·γ``. Every flip and
every resample therefore knows its own random words, wherever and whenever it runs, and the results are the same bits
on any number of threads.
"""

from __future__ import annotations

import numpy as np

from toprank.compute import FloatArray, kernel

__all__ = ["FLIPS_PER_BLOCK", "GROUP", "flip_hits", "ordered_sum", "resampled_moments"]

FLIPS_PER_BLOCK = 2048  # 16 KB of running sums: they stay in the first-level cache beside the 2 KB table
GROUP = 8  # differences whose 256 signed sums are tabulated together; one byte of randomness picks one

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LOW_BYTE, _LOW_HALF, _HALF = np.uint64(0xFF), np.uint64(0xFFFFFFFF), np.uint64(32)


@kernel
def _word(start: np.uint64, i: np.uint64) -> np.uint64:
    """Random word number `i` of the stream that begins at `start`."""
    z = start + i * _GAMMA
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@kernel
def _signed_sums(differences: FloatArray, first: int, table: FloatArray) -> None:
    """table[m] = Σ_j ±differences[first + j], the sign of j being bit j of m; added in the order of j."""
    table[0] = 0.0
    filled = 1
    for j in range(GROUP):
        for m in range(filled):
            table[m + filled] = table[m] + differences[first + j]
            table[m] -= differences[first + j]
        filled *= 2


@kernel
def ordered_sum(differences: FloatArray) -> float:
    """The sum of the differences in the order in which `flip_hits` adds them."""
    table, total = np.empty(1 << GROUP), 0.0
    for first in range(0, len(differences), GROUP):
        _signed_sums(differences, first, table)
        total += table[-1]
    return total


@kernel
def flip_hits(differences: FloatArray, threshold: float, start: np.uint64, block: int, flips: int) -> int:
    """How many of the first `flips` random sign flips of a block give a sum of at least `threshold` in size.

    The number of differences must be a multiple of `GROUP` (pad with zeros).
    """
    totals, table = np.zeros(FLIPS_PER_BLOCK), np.empty(1 << GROUP)
    words = FLIPS_PER_BLOCK // 8
    position = np.uint64(block * (len(differences) // GROUP) * words)
    for first in range(0, len(differences), GROUP):
        _signed_sums(differences, first, table)
        for w in range(words):
            bits = _word(start, position + np.uint64(w))
            for byte in range(8):
                totals[8 * w + byte] += table[(bits >> np.uint64(8 * byte)) & _LOW_BYTE]
        position += np.uint64(words)
    hits = 0
    for flip in range(flips):
        hits += abs(totals[flip]) >= threshold
    return hits


@kernel
def resampled_moments(
    values: FloatArray, start: np.uint64, first: int, means: FloatArray, variances: FloatArray
) -> None:
    """Fill in mean and variance (n - 1 in the denominator) of the bootstrap samples number `first`, `first` + 1, …

    One word draws two values: the product of n and 32 random bits, without its low half, is a number below n whose
    bias is under n / 2³². Values should lie about 0: the variance is taken from the sum of squares.
    """
    n = len(values)
    n_word, words = np.uint64(n), (n + 1) // 2
    for r in range(len(means)):
        position = np.uint64((first + r) * words)
        even, odd, even_squares, odd_squares = 0.0, 0.0, 0.0, 0.0
        for w in range(n // 2):
            bits = _word(start, position + np.uint64(w))
            one = values[((bits & _LOW_HALF) * n_word) >> _HALF]
            two = values[((bits >> _HALF) * n_word) >> _HALF]
            even += one
            odd += two
            even_squares += one * one
            odd_squares += two * two
        if n % 2 == 1:
            bits = _word(start, position + np.uint64(words - 1))
            one = values[((bits & _LOW_HALF) * n_word) >> _HALF]
            even += one
            even_squares += one * one
        mean = (even + odd) / n
        means[r] = mean
        variances[r] = max(0.0, (even_squares + odd_squares - n * mean * mean) / (n - 1))
