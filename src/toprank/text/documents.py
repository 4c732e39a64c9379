"""Documents and queries as arrays of words, with what the statistics know of these."""

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

K1, B = 1.2, 0.75  # of BM25, as in Robertson & Zaragoza (2009); tuning them gains a learned order nothing
_SHORTEST = 3  # letters that begin a longer word: shorter ones begin too many


def cosine_values(bags: Bags, idf: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(1 + log tf)·idf for each entry, and the length of each text's vector; `idf` by number of word."""
    values = (1.0 + np.log(bags.counts.astype(np.float64))) * idf[bags.terms]
    return values, np.sqrt(sums_of(bags.starts, values * values))


class Field(NamedTuple):
    """One field of documents, or all of them together."""

    bags: Bags
    norms: FloatArray
    """k₁(1 − b + b·length/mean length) of BM25, for each document."""
    cosine_norms: FloatArray
    smoothing: float
    """μ of the language model: three mean lengths, about what is customary for abstracts."""
    penalties: FloatArray
    """log((length + μ)/μ) of the language model, for each document."""


class EncodedQueries(NamedTuple):
    """Queries as arrays: query q has the distinct words ``offsets[q]:offsets[q + 1]``, function words left out."""

    offsets: IntArray
    known: Terms
    """Their numbers in the statistics; −1 for unknown words."""
    words: Terms
    """Their numbers among the documents' words; −1 where no document has them."""
    low: Terms
    high: Terms
    """The range of the documents' words that begin with each of them."""
    repeats: FloatArray
    """How often each stands in its query."""
    phrase_offsets: IntArray
    phrase: Terms
    """All words of each query in their order."""

    def sums(self, values: FloatArray) -> FloatArray:
        """The sum of a value for each word over each query."""
        return sums_of(self.offsets, values)


@dataclass(frozen=True, eq=False)
class EncodedDocuments:
    """The words of documents as arrays: made once by `Statistics.encode`, matched with any number of queries."""

    statistics: Statistics
    vocabulary: Vocabulary
    """The words of these documents, which number them here."""
    tokens: Mapping[str, Tokens]

    def __len__(self) -> int:
        return len(next(iter(self.tokens.values())).starts) - 1

    @cached_property
    def known(self) -> Terms:
        """The number of each word in the statistics; −1 if it is new."""
        return self.statistics.vocabulary.numbers(self.vocabulary.words)

    @cached_property
    def counted(self) -> npt.NDArray[np.bool_]:
        """Which words count: all but the function words."""
        return counted_words(self.vocabulary, self.statistics.analyzer)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """All fields together, then each field."""
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
        """All fields in one bag, each count less in a long field (BM25F): tf / (1 − b + b·length/mean length)."""
        fields = self.fields[1:]
        return merged([field.bags for field in fields], [K1 / field.norms for field in fields])

    @cached_property
    def vectors(self) -> npt.NDArray[np.float32]:
        """Each document in the directions of LSA, of length 1 (or 0, where it has none of its words)."""
        bags, (weights, _) = self.fields[0].bags, cosine_values(self.fields[0].bags, self.statistics.idf(self.known))
        return folded(self.statistics, bags.starts, self.known[bags.terms], weights)

    def queries(self, texts: Sequence[str]) -> EncodedQueries:
        """Queries as arrays; a query may be empty."""
        table = WordTable(self.statistics.analyzer)
        numbers = [table.numbers(text) for text in texts_of(texts, "A query")]
        stems = list(table.stems)
        function_words = self.statistics.analyzer.function_words
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
        """The documents' words that begin with a word; a short word begins itself alone."""
        if len(word) < _SHORTEST:
            return (number, number + 1) if number >= 0 else (0, 0)
        return self.vocabulary.range(word)

    def query_vectors(self, queries: EncodedQueries) -> npt.NDArray[np.float32]:
        """Each query in the directions of LSA, of length 1 or 0."""
        weights = (1.0 + np.log(queries.repeats)) * self.statistics.idf(queries.known)
        return folded(self.statistics, queries.offsets, queries.known, weights)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What a file needs to hold: the words, and their order in each field."""
        written: dict[str, npt.NDArray[Any]] = {"words": self.vocabulary.array()}
        for place, tokens in enumerate(self.tokens.values()):
            written |= {f"starts_{place}": tokens.starts, f"ids_{place}": tokens.ids}
        return written

    @classmethod
    def restore(cls, statistics: Statistics, arrays: Mapping[str, Any]) -> Self:
        """What `arrays` wrote, which may be damaged; a refusal ends "… is inconsistent: …"."""
        if "words" not in arrays:
            raise DataError("the words of the documents are missing")
        vocabulary = Vocabulary.restore(arrays["words"])
        tokens = {}
        for place, name in enumerate(statistics.fields):
            starts = _whole(arrays.get(f"starts_{place}"), np.int64, name)
            ids = _whole(arrays.get(f"ids_{place}"), np.int32, name)
            fits = len(starts) > 0 and starts[0] == 0 and starts[-1] == len(ids) and (np.diff(starts) >= 0).all()
            if not fits or (ids < 0).any() or (ids >= len(vocabulary)).any():
                raise DataError(f"the words of the field '{name}' are damaged")
            tokens[name] = Tokens(starts, ids)
        if len({len(field.starts) for field in tokens.values()}) > 1:
            raise DataError("the fields have different numbers of documents")
        return cls(statistics, vocabulary, tokens)


def _whole(array: Any, kind: Any, name: str) -> npt.NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != kind:
        raise DataError(f"the words of the field '{name}' are missing or no whole numbers")
    return array


def counted_words(vocabulary: Vocabulary, analyzer: Analyzer) -> npt.NDArray[np.bool_]:
    """Which words of a vocabulary count: all but the function words."""
    counted = np.ones(len(vocabulary), dtype=bool)
    places = vocabulary.numbers(sorted(analyzer.function_words))
    counted[places[places >= 0]] = False
    return counted


def folded(statistics: Statistics, starts: IntArray, known: Terms, weights: FloatArray) -> npt.NDArray[np.float32]:
    """Texts in the directions of LSA: rows of unit length, or of zeros."""
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
