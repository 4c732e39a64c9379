"""Term proximity features: how close the query words are to each other in a document."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, offsets_of
from toprank.data.queries import positions_within
from toprank.text import EncodedDocuments

PROXIMITY = {
    "bigrams": "share of the query's word pairs that occur next to each other, with at most one word between",
    "proximity": "number of query words in the document divided by the length of the shortest passage with all of "
    "them; 0 for fewer than two words",
}
_MAX_BIGRAM_DISTANCE = 2
_MAX_QUERY_WORDS = 16  # of a longer query, the rarest words are used
_MAX_TOKENS = 5_000  # only the start of a long document is used, to bound the time of a query
_FIELD_GAP = 16  # positions between two fields, so that words of different fields are never neighbors


class Positions(NamedTuple):
    """The word sequences of all documents, fields concatenated and separated by −1."""

    starts: IntArray
    ids: npt.NDArray[np.int32]

    @classmethod
    def from_documents(cls, documents: EncodedDocuments) -> Positions:
        """Concatenate the tokens of all fields, of a long field only the first ones."""
        fields = list(documents.tokens.values())
        sizes = [np.minimum(np.diff(field.starts), _MAX_TOKENS) for field in fields]
        lengths = np.sum(sizes, axis=0) + _FIELD_GAP * len(fields)
        starts = offsets_of(lengths)
        ids = np.full(int(starts[-1]), -1, dtype=np.int32)
        begin = starts[:-1].copy()
        for field, size in zip(fields, sizes, strict=True):
            ids[spans(begin, size)] = field.ids[spans(field.starts[:-1], size)]
            begin += size + _FIELD_GAP
        return cls(starts, ids)

    def features(self, sequence: IntArray, idf: FloatArray, rows: IntArray, numbers: IntArray) -> FloatArray:
        """Return the features `PROXIMITY` for the candidates of one query.

        Args:
            sequence: query words in order, without stop words.
            idf: inverse document frequency by word number.
            rows: row numbers of the candidates.
            numbers: scratch array with one entry per word, all −1 before and after the call.
        """
        out = np.zeros((len(rows), len(PROXIMITY)))
        words = np.array(list(dict.fromkeys(sequence[sequence >= 0].tolist())), dtype=np.int64)
        words = words[np.sort(np.argsort(-idf[words], kind="stable")[:_MAX_QUERY_WORDS])]
        if len(words) < 2 or len(rows) == 0:
            return out
        numbers[words] = np.arange(len(words))
        sizes = self.starts[rows + 1] - self.starts[rows]
        met = numbers[self.ids[spans(self.starts[rows], sizes)]]  # index −1 is the last entry, which is always −1
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
    """Return the concatenated index ranges ``starts[i]`` to ``starts[i] + sizes[i]``.

    >>> spans(np.array([5, 0]), np.array([2, 1])).tolist()
    [5, 6, 0]
    """
    places: IntArray = np.repeat(starts, sizes) + positions_within(sizes)
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
    near = (np.diff(place) <= _MAX_BIGRAM_DISTANCE) & (document[1:] == document[:-1]) & wanted[code]
    distinct = np.unique(document[:-1][near] * (width * width) + code[near])
    shares: FloatArray = np.bincount(distinct // (width * width), minlength=n) / len(pairs)
    return shares


def _windows(word: IntArray, place: IntArray, document: IntArray, borders: IntArray, width: int, n: int) -> FloatArray:
    """Return the number of matched words over the length of the shortest passage that contains them all."""
    out = np.zeros(n)
    if len(word) == 0:
        return out
    there = np.zeros((n, width), dtype=bool)
    there[document, word] = True
    last = np.full((len(word), width), -1, dtype=np.int64)
    last[np.arange(len(word)), word] = place
    np.maximum.accumulate(last, axis=0, out=last)  # last position of each word, possibly in an earlier document
    last[~there[document]] = np.iinfo(np.int64).max  # words missing from the document do not limit the window
    earliest = last.min(axis=1)
    length = np.where(earliest >= borders[document], place - earliest + 1, np.iinfo(np.int64).max)
    first = np.flatnonzero(np.append(True, document[1:] != document[:-1]))
    shortest, own = np.minimum.reduceat(length, first), document[first]
    count = there.sum(axis=1)
    out[own] = np.where(count[own] >= 2, count[own] / shortest, 0.0)
    return out
