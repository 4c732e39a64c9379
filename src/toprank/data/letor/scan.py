"""Where the pieces of a LETOR line lie: blanks, tokens, the query, the comment and the document id in it.

Bytes of interest: 9 tab, 10 newline, 13 carriage return, 32 space, 35 #, 58 colon, 61 equals sign.
All functions take the text as bytes and a range ``[at, end)``, and never look at or behind `end`.
"""

from __future__ import annotations

import numpy as np

from toprank.compute import kernel
from toprank.data.decimals import Bytes, inlined

__all__ = [
    "comment_or_line_end",
    "document_id",
    "line_end",
    "lone_return",
    "query_token",
    "skip_blanks",
    "token_end",
    "whole_number",
]

_RETURNS = 4096  # bytes looked through at once for carriage returns
_BLOCK = 64  # bytes tested at once; a loop without early exit is what the compiler can turn into vector instructions


@inlined
def is_blank(byte: int) -> bool:
    """Space, tab or carriage return: what may stand between tokens and at the end of a line."""
    return byte == 32 or byte == 9 or byte == 13


@inlined
def skip_blanks(text: Bytes, at: int, end: int) -> int:
    """The next byte that is not blank, or `end`."""
    while at < end and is_blank(text[at]):
        at += 1
    return at


@kernel
def token_end(text: Bytes, at: int, end: int) -> int:
    """The next blank, newline or # from `at` on, or `end`."""
    while at < end and not (is_blank(text[at]) or text[at] == 10 or text[at] == 35):
        at += 1
    return at


@kernel
def line_end(text: Bytes, at: int, end: int) -> int:
    """The next newline from `at` on, or `end`."""
    return _find(text, at, end, 10)


@kernel
def comment_or_line_end(text: Bytes, at: int, end: int) -> int:
    """The next # or newline from `at` on, or `end`."""
    return _find(text, at, end, 35)


@kernel
def _find(text: Bytes, at: int, end: int, wanted: int) -> int:
    """The next newline or `wanted` byte from `at` on, or `end`."""
    while at + _BLOCK <= end:
        found = 0
        start = np.uintp(at)
        for k in range(np.uintp(_BLOCK)):
            byte = text[start + k]
            found |= (byte == 10) | (byte == wanted)
        if found:
            break
        at += _BLOCK
    while at < end and text[at] != 10 and text[at] != wanted:
        at += 1
    return at


@kernel
def lone_return(text: Bytes, at: int, end: int) -> int:
    """The next carriage return with something else than a line's end behind it, from `at` on, or -1."""
    while at < end:
        stop = min(at + _RETURNS, end)
        found = 0
        start = np.uintp(at)
        for k in range(np.uintp(stop - at)):
            found |= text[start + k] == 13
        if found:
            for i in range(at, stop):
                if text[i] == 13 and i + 1 < end and text[i + 1] != 10 and text[i + 1] != 13:
                    return i
        at = stop
    return -1


@kernel
def query_token(text: Bytes, at: int, end: int) -> tuple[int, int]:
    """Where the id behind ``qid:`` starts and ends, given the place after the label; start < 0 where there is none."""
    at = skip_blanks(text, at, end)
    if at + 4 > end or text[at] != 113 or text[at + 1] != 105 or text[at + 2] != 100 or text[at + 3] != 58:
        return -1, at
    return at + 4, token_end(text, at + 4, end)


@kernel
def same_bytes(text: Bytes, start: int, stop: int, other: int, other_stop: int) -> bool:
    """Whether two ranges of the text hold the same bytes."""
    if stop - start != other_stop - other:
        return False
    for k in range(stop - start):  # noqa: SIM110 - kernels have no generators
        if text[start + k] != text[other + k]:
            return False
    return True


@kernel
def whole_number(text: Bytes, start: int, stop: int) -> tuple[int, bool]:
    """The integer that a token spells, and whether it spells it the one usual way (no +, no leading zeros, no -0).

    Integers of more than 18 digits count as words: they may not fit in 64 bits.
    """
    negative = start < stop and text[start] == 45
    first = start + negative
    n_digits = stop - first
    if n_digits < 1 or n_digits > 18 or (text[first] == 48 and (n_digits > 1 or negative)):
        return 0, False
    value = 0
    for i in range(first, stop):
        if text[i] < 48 or text[i] > 57:
            return 0, False
        value = value * 10 + (text[i] - 48)
    return (-value if negative else value), True


@kernel
def document_id(text: Bytes, at: int, end: int) -> tuple[int, int]:
    """Where the document id in the comment ``[at, end)`` (behind its #) starts and ends; start = end where none is.

    It is the word behind ``docid =`` (with or without blanks around the sign), or else the only word of the comment.
    """
    words, only, only_stop = 0, at, at
    while True:
        start = skip_blanks(text, at, end)
        if start == end:
            break
        stop = _word_end(text, start, end)
        if stop - start >= 5 and _is_docid(text, start):
            found = skip_blanks(text, start + 5, end)
            if found < end and text[found] == 61:
                found = skip_blanks(text, found + 1, end)
                return found, _word_end(text, found, end)
        words, only, only_stop = words + 1, start, stop
        at = stop
    return (only, only_stop) if words == 1 else (at, at)


@kernel
def _word_end(text: Bytes, at: int, end: int) -> int:
    while at < end and not is_blank(text[at]):
        at += 1
    return at


@kernel
def _is_docid(text: Bytes, at: int) -> bool:
    start = text[at] == 100 and text[at + 1] == 111 and text[at + 2] == 99
    return bool(start and text[at + 3] == 105 and text[at + 4] == 100)
