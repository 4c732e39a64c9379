"""Loops over TREC files: lines of words separated by any blanks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.decimals import BAD, HARD, NUMBER, Bytes, read_number
from toprank.data.letor.kernels import line_end

__all__ = ["COLUMNS", "FINE", "FINITE", "VALUE", "copy_words", "count_lines", "hash_pairs", "read_table"]

# What is wrong with a line.
FINE, COLUMNS, VALUE, FINITE = range(4)


@kernel
def count_lines(text: Bytes) -> int:
    """An upper bound on the number of lines that hold something."""
    lines, at = 0, 0
    while at < len(text):
        at = line_end(text, at, len(text)) + 1
        lines += 1
    return lines


@kernel
def read_table(
    text: Bytes, at: int, n_columns: int, rest: bool, value_column: int, spans: IntArray, values: FloatArray
) -> tuple[int, int, int]:
    """Read lines whose columns 0 and 2 are ids and whose `value_column` is a number.

    Args:
        text: the bytes of the file.
        at: where to start.
        n_columns: how many words each line must have.
        rest: whether more words may follow, which do not count.
        value_column: which of them is the number.
        spans: for each line, start and end of both ids.
        values: for each line, the number; NaN where the caller must convert it.

    Returns:
        The number of lines read, what is wrong, and where.
    """
    rows, size = 0, len(text)
    while at < size:
        words, value_at, value_end, stop = 0, at, at, at
        while True:
            start = _skip(text, stop, size)
            if start == size or text[start] == 10:
                break
            stop = _word_end(text, start, size)
            if words == 0 or words == 2:
                spans[rows, words], spans[rows, words + 1] = start, stop
            elif words == value_column:
                value_at, value_end = start, stop
            words += 1
        if words == 0:
            at = start + 1
            continue
        if words < n_columns or (words > n_columns and not rest):
            return rows, COLUMNS, _skip(text, at, size)
        value, after, found = read_number(text, value_at, value_end, False)
        if found == BAD or after != value_end:
            return rows, VALUE, value_at
        if found not in (NUMBER, HARD):
            return rows, FINITE, value_at
        values[rows] = np.nan if found == HARD else value
        rows += 1
        at = start + 1
    return rows, FINE, size


@kernel
def _skip(text: Bytes, at: int, end: int) -> int:
    """The next byte that is no blank within a line: no space, tab, carriage return, vertical tab or form feed."""
    while at < end and (text[at] == 32 or text[at] == 9 or 11 <= text[at] <= 13):
        at += 1
    return at


@kernel
def _word_end(text: Bytes, at: int, end: int) -> int:
    while at < end and text[at] != 32 and not 9 <= text[at] <= 13:
        at += 1
    return at


@kernel
def copy_words(text: Bytes, spans: IntArray, first: int, letters: npt.NDArray[np.uint32]) -> bool:
    """Copy the words at ``spans[:, first:first + 2]`` byte by byte into rows of letters; whether one is not ASCII."""
    foreign = False
    for row in range(len(letters)):
        start, stop = spans[row, first], spans[row, first + 1]
        for k in range(letters.shape[1]):
            letter = text[start + k] if start + k < stop else 0
            foreign |= letter > 127
            letters[row, k] = letter
    return foreign


@kernel
def hash_pairs(one: npt.NDArray[np.uint32], other: npt.NDArray[np.uint32], hashes: npt.NDArray[np.uint64]) -> None:
    """A number for each pair of words (rows of letters, zeros behind them): equal pairs have equal numbers (FNV-1a)."""
    prime = np.uint64(1099511628211)
    for row in range(len(hashes)):
        code = np.uint64(14695981039346656037)
        for k in range(one.shape[1]):
            if one[row, k] == 0:
                break
            code = (code ^ np.uint64(one[row, k])) * prime
        code = (code ^ np.uint64(1 << 32)) * prime  # no letter: keeps ("ab", "c") and ("a", "bc") apart
        for k in range(other.shape[1]):
            if other[row, k] == 0:
                break
            code = (code ^ np.uint64(other[row, k])) * prime
        hashes[row] = code
