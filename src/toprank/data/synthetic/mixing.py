"""Scrambled 64-bit words: hashes of content, and random numbers that depend on a seed and a place alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from toprank.compute import kernel

__all__ = ["Words", "mixed", "mixed_words"]

Words = npt.NDArray[np.uint64]


@kernel
def mixed(x: np.uint64) -> np.uint64:
    """A bijection of words in which every bit of the result depends on every bit of `x` (the finish of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def mixed_words(words: Words) -> Words:
    """`mixed` for each word of an array."""
    x = words.astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))
