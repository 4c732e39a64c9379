"""Collection statistics: document frequencies, document lengths and LSA."""

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
_MAX_LSA_DOCUMENTS = 20_000  # documents to fit LSA on; more take longer and hardly change it
_MAX_DIMENSIONS = 100  # of LSA, to bound the size of a model file
_MAX_LSA_WORDS = 20_000  # most frequent words used by LSA; each takes 400 bytes in a model file
_MIN_LSA_FREQUENCY = 2  # documents; a word in a single document connects it with no other


def idf_of(n: int, frequencies: Any) -> FloatArray:
    """Return the non-negative idf of BM25, log(1 + (n − f + ½)/(f + ½)), for words in f of n documents.

    Unseen words count as words of one document.
    """
    f = np.clip(np.asarray(frequencies, dtype=np.float64), min(1, n), n)
    result: FloatArray = np.log1p((n - f + 0.5) / (f + 0.5))
    return result


@dataclass(frozen=True, eq=False)
class Statistics:
    """Word statistics of a collection, by field and over all fields.

    They are fitted on documents alone, without queries or labels (`fit`). Encoding new documents (`encode`) does not
    change them.
    """

    analyzer: Analyzer
    fields: tuple[str, ...]
    n_documents: int
    vocabulary: Vocabulary
    document_frequencies: Counts
    """Number of documents with each word: one row for all fields together, then one row per field."""
    word_counts: Counts
    """Number of occurrences of each word, with the same rows."""
    mean_lengths: FloatArray
    """Mean document length in words without stop words, for the same rows."""
    basis: npt.NDArray[np.float32]
    """LSA basis: one row per word of `basis_words`, one column per dimension."""
    basis_words: npt.NDArray[np.int32]

    @classmethod
    def fit(
        cls, fields: Mapping[str, Sequence[str]], analyzer: Analyzer | None = None, lsa: int = 100, seed: int = 0
    ) -> Self:
        """Compute the statistics of distinct documents.

        Args:
            fields: one text per document, by field; None is an empty text.
            analyzer: text analyzer. Default: English.
            lsa: maximum number of LSA dimensions, at most 100. Default: 100. The actual number is smaller than the rank
                of the document-term matrix.
            seed: random seed of LSA. Default: 0.

        >>> known = Statistics.fit({"title": ["red shoes", "red lamp", "running shoes"]})
        >>> dict(zip(known.vocabulary.words, known.document_frequencies[0].tolist()))
        {'lamp': 1, 'red': 2, 'run': 1, 'shoe': 2}
        """
        return cls.fit_and_encode(fields, analyzer, lsa, seed)[0]

    @classmethod
    def fit_and_encode(
        cls, fields: Mapping[str, Sequence[str]], analyzer: Analyzer | None = None, lsa: int = 100, seed: int = 0
    ) -> tuple[Self, EncodedDocuments]:
        """Fit the statistics and encode the same documents in one pass."""
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
        basis, words = _lsa(whole, n, frequencies[0], min(lsa, _MAX_DIMENSIONS), seed)
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
        """Return the idf of words by number (−1 for unknown words); `field` 0 means all fields together."""
        return idf_of(self.n_documents, self._lookup(self.document_frequencies[field], numbers))

    def background(self, numbers: npt.NDArray[np.int32], field: int = 0) -> FloatArray:
        """Return the background probability of words; an unknown word counts as occurring once."""
        row = self.word_counts[field]
        return np.maximum(self._lookup(row, numbers), 1) / max(int(row.sum()), 1)

    def _lookup(self, row: Counts, numbers: npt.NDArray[np.int32]) -> Counts:
        if not len(row):
            return np.zeros(len(numbers), dtype=np.int64)
        return np.where(numbers >= 0, row[numbers], 0)

    def encode(self, fields: Mapping[str, Sequence[str]]) -> EncodedDocuments:
        """Encode documents with the same fields, to match queries with them.

        The documents need not be those of the fit. New words count as very rare.
        """
        if set(fields) != set(self.fields):
            raise DataError(
                f"The documents have the fields {', '.join(fields) or '(none)'}, but the statistics were fitted on "
                f"{', '.join(self.fields)}. Pass these fields."
            )
        vocabulary, tokens = tokens_of({name: fields[name] for name in self.fields}, self.analyzer)
        return EncodedDocuments(self, vocabulary, tokens)

    def plain(self) -> dict[str, Any]:
        """Return the JSON-compatible part; `arrays` returns the rest."""
        analyzer = {
            "language": self.analyzer.language, "stop": self.analyzer.stop_words, "stem": self.analyzer.stem,
        }  # fmt: skip
        return {"analyzer": analyzer, "fields": list(self.fields), "documents": self.n_documents}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the numeric arrays, and the words as UTF-8 bytes."""
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
        """Restore statistics from `plain` and `arrays`; the caller prefixes errors with "… is inconsistent: "."""
        try:
            given = plain["analyzer"]
            analyzer = Analyzer(str(given["language"]), given["stop"], given["stem"])
            fields, n = plain["fields"], plain["documents"]
            known = {name: arrays[name] for name in _SHAPES}
            written = arrays["vocabulary"]
        except (TypeError, KeyError, ValueError) as problem:
            raise DataError(f"the text statistics are damaged ({type(problem).__name__}: {problem})") from None
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
    """Check types, shapes and ranges of the arrays of a file."""
    for name, kind in _SHAPES.items():
        if not isinstance(known[name], np.ndarray) or known[name].dtype != kind:
            raise DataError(f"the array {name} does not contain {np.dtype(kind).name}")
    frequencies, counts, lengths, basis, words = known.values()
    if frequencies.shape != (rows, width) or counts.shape != (rows, width) or lengths.shape != (rows,):
        raise DataError("the counts do not match the words and fields")
    if basis.ndim != 2 or basis.shape[1] > _MAX_DIMENSIONS or words.shape != basis.shape[:1]:
        raise DataError("the LSA basis does not match its words")
    fine = (frequencies >= 0).all() and (frequencies <= n).all() and (counts >= frequencies).all()
    fine = fine and (counts < 1 << 53).all() and np.isfinite(lengths).all() and (lengths >= 0).all()
    fine = fine and np.isfinite(basis).all() and (np.abs(basis) <= 1.001).all()
    if not fine or (words < 0).any() or (words >= width).any() or (np.diff(words) <= 0).any():
        raise DataError("the word counts contain impossible numbers")
    return dict(known)


def _lsa(
    whole: Bags, n: int, frequencies: Counts, dimension: int, seed: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Return the LSA basis and the numbers of its words."""
    words = np.flatnonzero(frequencies >= _MIN_LSA_FREQUENCY)
    words = np.sort(words[np.argsort(-frequencies[words], kind="stable")[:_MAX_LSA_WORDS]])
    if not len(words) or dimension == 0:
        return np.zeros((0, 0), dtype=np.float32), np.zeros(0, dtype=np.int32)
    values, norms = cosine_values(whole, idf_of(n, frequencies))
    scaled = values / np.repeat(np.where(norms > 0, norms, 1.0), np.diff(whole.starts))
    matrix = whole.matrix(len(frequencies), scaled)[:, words]
    if n > _MAX_LSA_DOCUMENTS:
        matrix = matrix[np.sort(np.random.default_rng(seed).choice(n, _MAX_LSA_DOCUMENTS, replace=False))]
    basis = basis_of(matrix, dimension, seed)
    kept = words if basis.shape[1] else words[:0]
    return basis[: len(kept)], kept.astype(np.int32)
