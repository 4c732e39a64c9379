"""How near the words of a query stand to each other in its candidates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, offsets_of
from toprank.data.queries import places_within
from toprank.text import EncodedDocuments

PROXIMITY = {
    "bigrams": "share of the query's neighboring words that stand side by side, at most one word between",
    "proximity": "how many of the query's words the document has, divided by the length of the shortest passage that "
    "has them all; 0 for fewer than two",
}
_BETWEEN = 2  # distance of neighbors
_MOST_WORDS = 16  # of a query: the rarest, where it has more
_MOST_TOKENS = 5_000  # of a document that are looked at, so that one long document does not hold up a query
_GAP = 16  # places between two fields, and so between words that are no neighbors


class Positions(NamedTuple):
    """The words of all documents in their order, all fields one after the other; −1 between them."""

    starts: IntArray
    ids: npt.NDArray[np.int32]

    @classmethod
    def of(cls, documents: EncodedDocuments) -> Positions:
        """From the words of each field; of a long document the first."""
        fields = list(documents.tokens.values())
        sizes = [np.minimum(np.diff(field.starts), _MOST_TOKENS) for field in fields]
        lengths = np.sum(sizes, axis=0) + _GAP * len(fields)
        starts = offsets_of(lengths)
        ids = np.full(int(starts[-1]), -1, dtype=np.int32)
        begin = starts[:-1].copy()
        for field, size in zip(fields, sizes, strict=True):
            ids[spans(begin, size)] = field.ids[spans(field.starts[:-1], size)]
            begin += size + _GAP
        return cls(starts, ids)

    def features(self, sequence: IntArray, idf: FloatArray, rows: IntArray, numbers: IntArray) -> FloatArray:
        """The columns of `PROXIMITY` for the candidates of one query.

        Args:
            sequence: the words of the query in their order, function words left out.
            idf: by number of word.
            rows: the candidates.
            numbers: room for a number for each word of the documents, all −1; left so.
        """
        out = np.zeros((len(rows), len(PROXIMITY)))
        words = np.array(list(dict.fromkeys(sequence[sequence >= 0].tolist())), dtype=np.int64)
        words = words[np.sort(np.argsort(-idf[words], kind="stable")[:_MOST_WORDS])]
        if len(words) < 2 or len(rows) == 0:
            return out
        numbers[words] = np.arange(len(words))
        sizes = self.starts[rows + 1] - self.starts[rows]
        met = numbers[self.ids[spans(self.starts[rows], sizes)]]  # −1 looks up the last room, which is kept at −1
        phrase = numbers[sequence]
        numbers[words] = -1
        place = np.flatnonzero(met >= 0)
        word = met[place]
        borders = offsets_of(sizes)
        document = np.searchsorted(borders, place, side="right") - 1
        out[:, 0] = _bigrams(phrase, word, place, document, len(words), len(rows))
        out[:, 1] = _windows(word, place, document, borders, len(words), len(rows))
        return out


def spans(starts: IntArray, sizes: IntArray) -> IntArray:
    """Return the places ``starts[i]`` to ``starts[i] + sizes[i]`` of all i, end to end.

    >>> spans(np.array([5, 0]), np.array([2, 1])).tolist()
    [5, 6, 0]
    """
    places: IntArray = np.repeat(starts, sizes) + places_within(sizes)
    return places


def _bigrams(phrase: IntArray, word: IntArray, place: IntArray, document: IntArray, width: int, n: int) -> FloatArray:
    pairs = {
        (a, b) for a, b in zip(phrase[:-1].tolist(), phrase[1:].tolist(), strict=True) if a >= 0 and b >= 0 and a != b
    }
    if not pairs or len(word) < 2:
        return np.zeros(n)
    wanted = np.zeros(width * width, dtype=bool)
    wanted[[a * width + b for a, b in pairs]] = True
    code = word[:-1].astype(np.int64) * width + word[1:]
    near = (np.diff(place) <= _BETWEEN) & (document[1:] == document[:-1]) & wanted[code]
    distinct = np.unique(document[:-1][near] * (width * width) + code[near])
    shares: FloatArray = np.bincount(distinct // (width * width), minlength=n) / len(pairs)
    return shares


def _windows(word: IntArray, place: IntArray, document: IntArray, borders: IntArray, width: int, n: int) -> FloatArray:
    """Words that are there, over the length of the shortest passage with all of them."""
    out = np.zeros(n)
    if len(word) == 0:
        return out
    there = np.zeros((n, width), dtype=bool)
    there[document, word] = True
    last = np.full((len(word), width), -1, dtype=np.int64)
    last[np.arange(len(word)), word] = place
    np.maximum.accumulate(last, axis=0, out=last)  # where each word stood last; maybe in an earlier document
    last[~there[document]] = np.iinfo(np.int64).max  # words that the document does not have hold up nothing
    earliest = last.min(axis=1)
    length = np.where(earliest >= borders[document], place - earliest + 1, np.iinfo(np.int64).max)
    first = np.flatnonzero(np.append(True, document[1:] != document[:-1]))
    shortest, own = np.minimum.reduceat(length, first), document[first]
    count = there.sum(axis=1)
    out[own] = np.where(count[own] >= 2, count[own] / shortest, 0.0)
    return out
