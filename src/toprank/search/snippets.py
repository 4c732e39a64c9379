"""The passage of a document that a result shows: the one with most of the query's words."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from toprank.text import Analyzer

_LETTERS, _NEAR = 220, 12
LOOKED_AT = 20_000  # characters of a document: a longer one would hold up the page
_WORD = re.compile(r"[^\W_]+")


class Snippet(NamedTuple):
    """A passage, and where in it words of the query stand."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()

    def pieces(self) -> list[str]:
        """The text cut at the marks: every other piece, from the second on, is a marked one."""
        pieces, at = [], 0
        for start, end in self.marks:
            pieces += [self.text[at:start], self.text[start:end]]
            at = end
        return [*pieces, self.text[at:]]


def snippet(text: str, words: Sequence[str], analyzer: Analyzer, letters: int = _LETTERS) -> Snippet:
    """The passage of about so many letters with most of the different words (as the analyzer makes them).

    >>> piece = snippet("A wing. In the slipstream of a propeller, wings stall.", ["wing", "stall"], Analyzer(), 30)
    >>> piece.text, [piece.text[a:b] for a, b in piece.marks]
    ('…slipstream of a propeller, wings stall.', ['wings', 'stall'])
    """
    flat = " ".join(text[:LOOKED_AT].split())
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
    # To whole words where a blank is near; scripts without blanks are cut where they are.
    if start:
        start = flat.rfind(" ", max(start - _NEAR, 0), start) + 1 or start
    if end < len(flat):
        blank = flat.rfind(" ", end - _NEAR, end + 1)
        end = blank if blank > start else end
    head, tail = "…" if start else "", "…" if end < len(flat) else ""
    shift = len(head) - start
    marks = tuple((a + shift, b + shift) for a, b, _ in hits if a >= start and b <= end)
    return Snippet(f"{head}{flat[start:end]}{tail}", marks)


def _best(hits: Sequence[tuple[int, int, frozenset[str]]], letters: int) -> int:
    """Where the passage with most different words begins, the first of equals."""
    starts = [start for start, _, _ in hits]
    best, place = 0, 0
    for number, start in enumerate(starts):
        last = bisect_left(starts, start + letters)
        count = len(frozenset().union(*(words for _, _, words in hits[number:last])))
        if count > best:
            best, place = count, max(0, start - letters // 8)
    return place
