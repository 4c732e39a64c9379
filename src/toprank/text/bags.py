"""Tokenized texts as flat arrays: word counts and word sequences."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, offsets_of
from toprank.errors import DataError
from toprank.text.words import Analyzer, WordTable, texts_of

Terms = npt.NDArray[np.int32]
_LAST = chr(0x10FFFF)


class Vocabulary:
    """A sorted list of words, each numbered by its position.

    >>> Vocabulary(["book", "bookcase", "lamp"]).range("book")
    (0, 2)
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def numbers(self, words: Sequence[str]) -> Terms:
        """Return the numbers of words; −1 for unknown words."""
        get = self._numbers.get
        return np.fromiter((get(word, -1) for word in words), dtype=np.int32, count=len(words))

    def range(self, start: str) -> tuple[int, int]:
        """Return the range of words with this prefix, as start and end number."""
        low = bisect_left(self.words, start)
        return low, bisect_left(self.words, start + _LAST, lo=low)

    def array(self) -> npt.NDArray[np.uint8]:
        """Serialize the words as UTF-8 bytes, one word per line."""
        return np.frombuffer("\n".join(self.words).encode(), dtype=np.uint8).copy()

    @classmethod
    def restore(cls, written: Any) -> Self:
        """Restore a vocabulary from `array`, checking for damage."""
        if not isinstance(written, np.ndarray) or written.ndim != 1 or written.dtype != np.uint8:
            raise DataError("the vocabulary is not text")
        try:
            words = written.tobytes().decode().split("\n") if len(written) else []
        except UnicodeDecodeError:
            raise DataError("the vocabulary is not text") from None
        if any(a >= b for a, b in pairwise(words)) or not all(words):
            raise DataError("the words of the vocabulary are not sorted")
        return cls(words)


class Bags(NamedTuple):
    """Bags of words of one field: text i has the words ``terms[starts[i]:starts[i + 1]]`` in ascending order."""

    starts: IntArray
    terms: Terms
    counts: npt.NDArray[np.float32]
    lengths: FloatArray
    """Number of words of each text, without stop words."""

    @classmethod
    def of(cls, matrix: Any, lengths: FloatArray) -> Self:
        """Create bags from a sparse matrix with one row per text and one column per word."""
        matrix.sort_indices()
        counts = matrix.data.astype(np.float32)
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), counts, lengths)

    def matrix(self, width: int, values: npt.NDArray[Any]) -> Any:
        """Return a sparse matrix with one row per text and the given value for each entry."""
        from scipy import sparse

        return sparse.csr_matrix((values, self.terms, self.starts), shape=(len(self.starts) - 1, width))


def sums_of(starts: IntArray, values: FloatArray) -> FloatArray:
    """Sum the values of each segment sequentially, so that the result does not depend on other segments."""
    n = len(starts) - 1
    owner: Any = np.repeat(np.arange(n), np.diff(starts))
    summed: FloatArray = np.bincount(owner, values, minlength=n).astype(np.float64)
    return summed


class Tokens(NamedTuple):
    """Word sequences of all texts, including stop words: text i has ``ids[starts[i]:starts[i + 1]]``."""

    starts: IntArray
    ids: Terms

    def bags(self, counted: npt.NDArray[np.bool_]) -> Bags:
        """Count the words of each text; `counted` is a mask of the words to count."""
        from scipy import sparse

        takes = counted[self.ids]
        starts = offsets_of(takes)[self.starts]
        ones, shape = np.ones(int(starts[-1]), dtype=np.float32), (len(self.starts) - 1, max(len(counted), 1))
        matrix = sparse.csr_matrix((ones, self.ids[takes], starts), shape=shape)
        matrix.sum_duplicates()
        return Bags.of(matrix, np.diff(starts).astype(np.float64))


def merged(bags: Sequence[Bags], weights: Sequence[FloatArray] | None = None) -> Bags:
    """Merge the bags of all fields; `weights`, if given, has one factor per field and text for its counts."""
    if len(bags) == 1 and weights is None:
        return bags[0]
    width, total = 1 + max((int(bag.terms.max()) for bag in bags if len(bag.terms)), default=0), None
    for place, bag in enumerate(bags):
        counts = bag.counts.astype(np.float64)
        if weights is not None:
            counts *= np.repeat(weights[place], np.diff(bag.starts))
        matrix = bag.matrix(width, counts)
        total = matrix if total is None else total + matrix
    return Bags.of(total, np.sum([bag.lengths for bag in bags], axis=0))


def tokens_of(fields: Mapping[str, Any], analyzer: Analyzer) -> tuple[Vocabulary, dict[str, Tokens]]:
    """Tokenize the texts of all fields; return the vocabulary and the tokens by field."""
    if not fields:
        raise DataError("No text field is given. Name at least one field of the documents.")
    table = WordTable(analyzer)
    read: dict[str, tuple[IntArray, Any]] = {}
    for name, given in fields.items():
        texts = texts_of(given, f"The field '{name}'")
        ids, ends = array("i"), np.zeros(len(texts) + 1, dtype=np.int64)
        for place, text in enumerate(texts):
            ids.extend(table.numbers(text))
            ends[place + 1] = len(ids)
        read[name] = (ends, ids)
    if len({len(ends) for ends, _ in read.values()}) > 1:
        sizes = ", ".join(f"'{name}' {len(ends) - 1:,}" for name, (ends, _) in read.items())
        raise DataError(f"Every field needs one text per document, but the numbers of texts differ: {sizes}.")
    words = sorted(table.stems)
    rank = np.empty(len(words) + 1, dtype=np.int32)
    rank[np.fromiter(map(table.stems.__getitem__, words), dtype=np.int64, count=len(words))] = np.arange(len(words))
    tokens = {name: Tokens(ends, rank[np.frombuffer(ids, dtype=np.int32)]) for name, (ends, ids) in read.items()}
    return Vocabulary(words), tokens
