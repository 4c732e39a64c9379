"""Tokenized documents and queries, with the quantities that matching needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, offsets_of
from toprank.errors import DataError
from toprank.text.bags import Bags, Terms, Tokens, Vocabulary, merged, sums_of
from toprank.text.words import Analyzer, WordTable, texts_of

if TYPE_CHECKING:
    from toprank.text.statistics import Statistics

K1, B = 1.2, 0.75  # BM25 parameters of Robertson & Zaragoza (2009); tuning them does not help trained rankers
_MIN_PREFIX_CHARACTERS = 3  # shorter prefixes match too many words


def cosine_values(bags: Bags, idf: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (1 + log tf)·idf for each entry, and the vector length of each text; `idf` is indexed by word number."""
    values = (1.0 + np.log(bags.counts.astype(np.float64))) * idf[bags.terms]
    return values, np.sqrt(sums_of(bags.starts, values * values))


class Field(NamedTuple):
    """One field of all documents, or all fields together."""

    bags: Bags
    norms: FloatArray
    """Length normalization of BM25, k₁(1 − b + b·length/mean length), for each document."""
    cosine_norms: FloatArray
    smoothing: float
    """Dirichlet parameter μ of the language model: three times the mean length."""
    penalties: FloatArray
    """Length penalty of the language model, log((length + μ)/μ), for each document."""


class EncodedQueries(NamedTuple):
    """Tokenized queries: query q has the distinct words ``offsets[q]:offsets[q + 1]``, without stop words."""

    offsets: IntArray
    known: Terms
    """Word numbers in the statistics; −1 for unknown words."""
    words: Terms
    """Word numbers in the vocabulary of the documents; −1 for missing words."""
    low: Terms
    high: Terms
    """End of the range of document words with each word as prefix; `low` is its start."""
    repeats: FloatArray
    """Number of occurrences of each word in its query."""
    phrase_offsets: IntArray
    phrase: Terms
    """Word sequence of each query, including stop words."""

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum a value per word over each query."""
        return sums_of(self.offsets, values)


@dataclass(frozen=True, eq=False)
class EncodedDocuments:
    """Tokenized documents, created by `Statistics.encode` and reusable for any number of queries."""

    statistics: Statistics
    vocabulary: Vocabulary
    """Vocabulary of these documents."""
    tokens: Mapping[str, Tokens]

    def __len__(self) -> int:
        return len(next(iter(self.tokens.values())).starts) - 1

    @cached_property
    def known(self) -> Terms:
        """Number of each word in the statistics; −1 for new words."""
        return self.statistics.vocabulary.numbers(self.vocabulary.words)

    @cached_property
    def counted(self) -> npt.NDArray[np.bool_]:
        """Mask of words that are not stop words."""
        return counted_words(self.vocabulary, self.statistics.analyzer)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """All fields together, followed by each field."""
        bags = [tokens.bags(self.counted) for tokens in self.tokens.values()]
        return tuple(self._field(number, bag) for number, bag in enumerate([merged(bags), *bags]))

    def _field(self, number: int, bags: Bags) -> Field:
        mean = float(self.statistics.mean_lengths[number])
        norms = K1 * (1.0 - B + B * bags.lengths / mean) if mean > 0 else np.full(len(bags.lengths), K1)
        _, lengths = cosine_values(bags, self.statistics.idf(self.known, number))
        smoothing = max(3.0 * mean, 1.0)
        return Field(bags, norms, lengths, smoothing, np.log1p(bags.lengths / smoothing))

    @cached_property
    def weighted(self) -> Bags:
        """Bags over all fields with length-normalized counts (BM25F): tf / (1 − b + b·length/mean length)."""
        fields = self.fields[1:]
        return merged([field.bags for field in fields], [K1 / field.norms for field in fields])

    @cached_property
    def vectors(self) -> npt.NDArray[np.float32]:
        """LSA vectors of the documents, of unit length, or zero if a document has no LSA word."""
        bags, (weights, _) = self.fields[0].bags, cosine_values(self.fields[0].bags, self.statistics.idf(self.known))
        return lsa_vectors(self.statistics, bags.starts, self.known[bags.terms], weights)

    def queries(self, texts: Sequence[str]) -> EncodedQueries:
        """Tokenize queries, which may be empty."""
        table = WordTable(self.statistics.analyzer)
        numbers = [table.numbers(text) for text in texts_of(texts, "A query")]
        stems = list(table.stems)
        function_words = self.statistics.analyzer.stop_word_stems
        own = self.vocabulary.numbers(stems)
        known = self.statistics.vocabulary.numbers(stems)
        ranges = np.array([self._range(word, int(number)) for word, number in zip(stems, own, strict=True)])
        ranges = ranges.reshape(len(stems), 2).astype(np.int32)
        counted = np.array([word not in function_words for word in stems], dtype=bool)
        bags = [Counter(word for word in sequence if counted[word]) for sequence in numbers]
        words = np.array([word for bag in bags for word in bag], dtype=np.int64)
        repeats = np.array([count for bag in bags for count in bag.values()], dtype=np.float64)
        phrase = np.array([word for sequence in numbers for word in sequence], dtype=np.int64)
        return EncodedQueries(
            offsets=offsets_of([len(bag) for bag in bags]),
            known=known[words],
            words=own[words],
            low=ranges[words, 0],
            high=ranges[words, 1],
            repeats=repeats,
            phrase_offsets=offsets_of([len(sequence) for sequence in numbers]),
            phrase=own[phrase],
        )

    def _range(self, word: str, number: int) -> tuple[int, int]:
        """Return the range of document words with this prefix; a short word matches only itself."""
        if len(word) < _MIN_PREFIX_CHARACTERS:
            return (number, number + 1) if number >= 0 else (0, 0)
        return self.vocabulary.range(word)

    def query_vectors(self, queries: EncodedQueries) -> npt.NDArray[np.float32]:
        """Return the LSA vectors of queries, of unit length or zero."""
        weights = (1.0 + np.log(queries.repeats)) * self.statistics.idf(queries.known)
        return lsa_vectors(self.statistics, queries.offsets, queries.known, weights)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays to store: the vocabulary, and the word sequences of each field."""
        written: dict[str, npt.NDArray[Any]] = {"words": self.vocabulary.array()}
        for place, tokens in enumerate(self.tokens.values()):
            written |= {f"starts_{place}": tokens.starts, f"ids_{place}": tokens.ids}
        return written

    @classmethod
    def restore(cls, statistics: Statistics, arrays: Mapping[str, Any]) -> Self:
        """Restore documents from `arrays`; the caller prefixes errors with "… is inconsistent: "."""
        if "words" not in arrays:
            raise DataError("the words of the documents are missing")
        vocabulary = Vocabulary.restore(arrays["words"])
        tokens = {}
        for place, name in enumerate(statistics.fields):
            starts = _checked_integers(arrays.get(f"starts_{place}"), np.int64, name)
            ids = _checked_integers(arrays.get(f"ids_{place}"), np.int32, name)
            fits = len(starts) > 0 and starts[0] == 0 and starts[-1] == len(ids) and (np.diff(starts) >= 0).all()
            if not fits or (ids < 0).any() or (ids >= len(vocabulary)).any():
                raise DataError(f"the words of the field '{name}' are damaged")
            tokens[name] = Tokens(starts, ids)
        if len({len(field.starts) for field in tokens.values()}) > 1:
            raise DataError("the fields have different numbers of documents")
        return cls(statistics, vocabulary, tokens)


def _checked_integers(array: Any, kind: Any, name: str) -> npt.NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != kind:
        raise DataError(f"the words of the field '{name}' are missing or not integers")
    return array


def counted_words(vocabulary: Vocabulary, analyzer: Analyzer) -> npt.NDArray[np.bool_]:
    """Return a mask of the words of a vocabulary that are not stop words."""
    counted = np.ones(len(vocabulary), dtype=bool)
    places = vocabulary.numbers(sorted(analyzer.stop_word_stems))
    counted[places[places >= 0]] = False
    return counted


def lsa_vectors(statistics: Statistics, starts: IntArray, known: Terms, weights: FloatArray) -> npt.NDArray[np.float32]:
    """Return LSA vectors of texts, with unit length or zero."""
    from scipy import sparse

    n, (width, dimension) = len(starts) - 1, statistics.basis.shape
    if not width:
        return np.zeros((n, dimension), dtype=np.float32)
    places = np.searchsorted(statistics.basis_words, known)
    places[places == width] = 0
    there = statistics.basis_words[places] == known
    ends = offsets_of(there)[starts]
    matrix = sparse.csr_matrix((weights[there].astype(np.float32), places[there], ends), shape=(n, width))
    vectors = np.asarray(matrix @ statistics.basis)
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    result: npt.NDArray[np.float32] = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return result
