"""What is learned from texts alone: how many documents have a word, how long they are, what goes with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.arguments import check_whole
from toprank.errors import DataError
from toprank.text.bags import Bags, Vocabulary, merged, tokens_of
from toprank.text.documents import EncodedDocuments, cosine_values, counted_words
from toprank.text.lsa import basis_of
from toprank.text.words import Analyzer

Counts = npt.NDArray[np.int64]
_LARGEST_SAMPLE = 20_000  # documents that LSA is learned from: more take longer and turn its directions little
_DIRECTIONS = 100  # of LSA at most, which bounds the size of a model file
_WORDS = 20_000  # of LSA: the most frequent ones; each costs 400 bytes in a model file
_SPARSE = 2  # documents that a word of LSA is in: what one document alone has connects it with no other


def idf_of(n: int, frequencies: Any) -> FloatArray:
    """log(1 + (n − f + ½)/(f + ½)) for words in f of n documents: BM25's, which is never negative.

    A word that no document had counts as one that a single document had: it is there when it is asked for.
    """
    f = np.clip(np.asarray(frequencies, dtype=np.float64), min(1, n), n)
    result: FloatArray = np.log1p((n - f + 0.5) / (f + 0.5))
    return result


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics of the words of a collection, field by field and over all fields.

    They are learned from documents alone, without queries or labels (`learned`). New documents are encoded with them
    (`encode`), and change nothing in them.
    """

    analyzer: Analyzer
    fields: tuple[str, ...]
    n_documents: int
    vocabulary: Vocabulary
    document_frequencies: Counts
    """How many documents have each word: a row for all fields together, then one for each field."""
    word_counts: Counts
    """How often each word stands in them, likewise."""
    mean_lengths: FloatArray
    """Words of a document, on average, likewise; function words are left out."""
    basis: npt.NDArray[np.float32]
    """Directions of LSA: a row for each word of `basis_words`, a column for each direction."""
    basis_words: npt.NDArray[np.int32]

    @classmethod
    def fit(
        cls, fields: Mapping[str, Sequence[str]], analyzer: Analyzer | None = None, lsa: int = 100, seed: int = 0
    ) -> Self:
        """From the texts of distinct documents, a list for each field; None is an empty text.

        Args:
            fields: the texts by field.
            analyzer: how texts become words. Default: English.
            lsa: at most so many directions of LSA, and never more than 100; there are always fewer than the rank of the
                texts.
            seed: of LSA.

        >>> known = Statistics.fit({"title": ["red shoes", "red lamp", "running shoes"]})
        >>> dict(zip(known.vocabulary.words, known.document_frequencies[0].tolist()))
        {'lamp': 1, 'red': 2, 'run': 1, 'shoe': 2}
        """
        return cls.fit_and_encode(fields, analyzer, lsa, seed)[0]

    @classmethod
    def fit_and_encode(
        cls, fields: Mapping[str, Sequence[str]], analyzer: Analyzer | None = None, lsa: int = 100, seed: int = 0
    ) -> tuple[Self, EncodedDocuments]:
        """`learned`, and the same documents encoded: their texts are read once."""
        check_whole("lsa", lsa, least=0)
        analyzer = Analyzer() if analyzer is None else analyzer
        vocabulary, tokens = tokens_of(fields, analyzer)
        counted = counted_words(vocabulary, analyzer)
        bags = [field.bags(counted) for field in tokens.values()]
        n, width = len(bags[0].lengths), len(vocabulary)
        whole = merged(bags)
        every = [whole, *bags]
        frequencies = np.array([np.bincount(bag.terms, minlength=width) for bag in every], dtype=np.int64)
        counts = np.array([np.bincount(bag.terms, bag.counts, minlength=width) for bag in every])
        basis, words = _lsa(whole, n, frequencies[0], min(lsa, _DIRECTIONS), seed)
        known = cls(
            analyzer=analyzer,
            fields=tuple(tokens),
            n_documents=n,
            vocabulary=vocabulary,
            document_frequencies=frequencies.reshape(len(every), width),
            word_counts=np.rint(counts).astype(np.int64).reshape(len(every), width),
            mean_lengths=np.array([float(bag.lengths.mean()) if n else 0.0 for bag in every]),
            basis=basis,
            basis_words=words,
        )
        return known, EncodedDocuments(known, vocabulary, tokens)

    def idf(self, numbers: npt.NDArray[np.int32], field: int = 0) -> FloatArray:
        """Return the idf of words by their numbers (−1: unknown words); `field` 0 is all fields together."""
        return idf_of(self.n_documents, self._looked_up(self.document_frequencies[field], numbers))

    def background(self, numbers: npt.NDArray[np.int32], field: int = 0) -> FloatArray:
        """Return the share of words among all words; an unknown word counts as one that occurs once."""
        row = self.word_counts[field]
        return np.maximum(self._looked_up(row, numbers), 1) / max(int(row.sum()), 1)

    def _looked_up(self, row: Counts, numbers: npt.NDArray[np.int32]) -> Counts:
        if not len(row):
            return np.zeros(len(numbers), dtype=np.int64)
        return np.where(numbers >= 0, row[numbers], 0)

    def encode(self, fields: Mapping[str, Sequence[str]]) -> EncodedDocuments:
        """Encode documents, to match queries with them; the same fields, one text for each document.

        They may be the documents that this was learned from, or others: words that are new here count as very rare.
        """
        if set(fields) != set(self.fields):
            raise DataError(
                f"The documents have the fields {', '.join(fields) or '(none)'}, and were learned from "
                f"{', '.join(self.fields)}; give these."
            )
        vocabulary, tokens = tokens_of({name: fields[name] for name in self.fields}, self.analyzer)
        return EncodedDocuments(self, vocabulary, tokens)

    def plain(self) -> dict[str, Any]:
        """What JSON can hold of it; the rest is in `arrays`."""
        analyzer = {
            "language": self.analyzer.language, "stop": self.analyzer.stop_words, "stem": self.analyzer.stem,
        }  # fmt: skip
        return {"analyzer": analyzer, "fields": list(self.fields), "documents": self.n_documents}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Its numbers, and the words as UTF-8."""
        return {
            "vocabulary": self.vocabulary.array(),
            "document_frequencies": self.document_frequencies,
            "word_counts": self.word_counts,
            "mean_lengths": self.mean_lengths,
            "basis": self.basis,
            "basis_words": self.basis_words,
        }

    @classmethod
    def restore(cls, plain: Any, arrays: Mapping[str, Any]) -> Self:
        """What `plain` and `arrays` wrote, which may be damaged; a refusal ends "… is inconsistent: …"."""
        try:
            given = plain["analyzer"]
            analyzer = Analyzer(str(given["language"]), given["stop"], given["stem"])
            fields, n = plain["fields"], plain["documents"]
            known = {name: arrays[name] for name in _SHAPES}
            written = arrays["vocabulary"]
        except (TypeError, KeyError, ValueError) as problem:
            raise DataError(f"what is known of the texts is damaged ({type(problem).__name__}: {problem})") from None
        fine = isinstance(fields, list) and fields and all(isinstance(name, str) and name for name in fields)
        if not fine or len(set(fields)) < len(fields) or type(n) is not int or not 0 <= n < 1 << 53:
            raise DataError("the fields or the number of documents are damaged")
        vocabulary = Vocabulary.restore(written)
        checked = _checked(known, len(fields) + 1, len(vocabulary), n)
        return cls(analyzer, tuple(fields), n, vocabulary, **checked)


_SHAPES = {
    "document_frequencies": np.int64, "word_counts": np.int64, "mean_lengths": np.float64,
    "basis": np.float32, "basis_words": np.int32,
}  # fmt: skip


def _checked(known: Mapping[str, Any], rows: int, width: int, n: int) -> dict[str, Any]:
    """Arrays of a file in the shapes and ranges that they must have."""
    for name, kind in _SHAPES.items():
        if not isinstance(known[name], np.ndarray) or known[name].dtype != kind:
            raise DataError(f"the array {name} does not hold {np.dtype(kind).name}")
    frequencies, counts, lengths, basis, words = known.values()
    if frequencies.shape != (rows, width) or counts.shape != (rows, width) or lengths.shape != (rows,):
        raise DataError("the counts do not fit the words and fields")
    if basis.ndim != 2 or basis.shape[1] > _DIRECTIONS or words.shape != basis.shape[:1]:
        raise DataError("the directions of LSA do not fit their words")
    fine = (frequencies >= 0).all() and (frequencies <= n).all() and (counts >= frequencies).all()
    fine = fine and (counts < 1 << 53).all() and np.isfinite(lengths).all() and (lengths >= 0).all()
    fine = fine and np.isfinite(basis).all() and (np.abs(basis) <= 1.001).all()
    if not fine or (words < 0).any() or (words >= width).any() or (np.diff(words) <= 0).any():
        raise DataError("the counts of words hold impossible numbers")
    return dict(known)


def _lsa(
    whole: Bags, n: int, frequencies: Counts, dimension: int, seed: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """The directions, and the words that they are of."""
    words = np.flatnonzero(frequencies >= _SPARSE)
    words = np.sort(words[np.argsort(-frequencies[words], kind="stable")[:_WORDS]])
    if not len(words) or dimension == 0:
        return np.zeros((0, 0), dtype=np.float32), np.zeros(0, dtype=np.int32)
    values, norms = cosine_values(whole, idf_of(n, frequencies))
    scaled = values / np.repeat(np.where(norms > 0, norms, 1.0), np.diff(whole.starts))
    matrix = whole.matrix(len(frequencies), scaled)[:, words]
    if n > _LARGEST_SAMPLE:
        matrix = matrix[np.sort(np.random.default_rng(seed).choice(n, _LARGEST_SAMPLE, replace=False))]
    basis = basis_of(matrix, dimension, seed)
    kept = words if basis.shape[1] else words[:0]
    return basis[: len(kept)], kept.astype(np.int32)
