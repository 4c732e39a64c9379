"""Snippets: the passage of a document with the most distinct query words."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from toprank.text import Analyzer

_SNIPPET_CHARACTERS, _WORD_BOUNDARY_CHARACTERS = 220, 12  # length, and search range for a word boundary
MAX_CHARACTERS = 20_000  # of a document; longer ones would slow down the result page
_WORD = re.compile(r"[^\W_]+")


class Snippet(NamedTuple):
    """A passage with the character ranges of query words."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()

    def pieces(self) -> list[str]:
        """Split the text at the marks; every second piece is a marked one."""
        pieces, at = [], 0
        for start, end in self.marks:
            pieces += [self.text[at:start], self.text[start:end]]
            at = end
        return [*pieces, self.text[at:]]


def snippet(text: str, words: Sequence[str], analyzer: Analyzer, letters: int = _SNIPPET_CHARACTERS) -> Snippet:
    """Return the passage of about `letters` characters with the most distinct query words.

    `words` are analyzed words, as returned by `analyzer`.

    >>> piece = snippet("A wing. In the slipstream of a propeller, wings stall.", ["wing", "stall"], Analyzer(), 30)
    >>> piece.text, [piece.text[a:b] for a, b in piece.marks]
    ('…slipstream of a propeller, wings stall.', ['wings', 'stall'])
    """
    flat = " ".join(text[:MAX_CHARACTERS].split())
    wanted, known = set(words), dict[str, frozenset[str]]()
    hits = []
    for match in _WORD.finditer(flat):
        word = match[0]
        if word not in known:
            known[word] = frozenset(analyzer.words(word)) & wanted
        if known[word]:
            hits.append((match.start(), match.end(), known[word]))
    start = _best(hits, letters) if hits else 0
    start = max(0, min(start, len(flat) - letters))
    end = min(start + letters, len(flat))
    # Move to a word boundary if one is near; scripts without spaces have none.
    if start:
        start = flat.rfind(" ", max(start - _WORD_BOUNDARY_CHARACTERS, 0), start) + 1 or start
    if end < len(flat):
        blank = flat.rfind(" ", end - _WORD_BOUNDARY_CHARACTERS, end + 1)
        end = blank if blank > start else end
    head, tail = "…" if start else "", "…" if end < len(flat) else ""
    shift = len(head) - start
    marks = tuple((a + shift, b + shift) for a, b, _ in hits if a >= start and b <= end)
    return Snippet(f"{head}{flat[start:end]}{tail}", marks)


def _best(hits: Sequence[tuple[int, int, frozenset[str]]], letters: int) -> int:
    """Return the start of the passage with the most distinct words, the first one in case of ties."""
    starts = [start for start, _, _ in hits]
    best, place = 0, 0
    for number, start in enumerate(starts):
        last = bisect_left(starts, start + letters)
        count = len(frozenset().union(*(words for _, _, words in hits[number:last])))
        if count > best:
            best, place = count, max(0, start - letters // 8)
    return place
