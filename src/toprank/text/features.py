"""Matching features of query-document pairs, such as BM25, language model scores and term coverage.

Features depend only on the two texts and the `Statistics`, not on other candidates of the query. They are 0 for empty
queries and texts, and never missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.errors import DataError
from toprank.text.bags import Bags, Tokens
from toprank.text.documents import K1, EncodedDocuments, EncodedQueries, Field
from toprank.text.statistics import Statistics

_ROWS_PER_BLOCK = 1 << 15  # block size for LSA similarities, chosen so that the vectors fit in the cache

FEATURE_DESCRIPTIONS = {
    "bm25": "BM25 (k1 = 1.2, b = 0.75)",
    "tf-idf": "cosine similarity of the tf-idf vectors, (1 + log tf) · idf",
    "language model": "sum over query words of the positive part of log(P(word | text)/P(word)), Dirichlet smoothed",
    "coverage": "share of the query's words that occur in the text",
    "idf coverage": "share of the query's words that occur in the text, weighted by idf",
    "largest idf": "the largest idf of a query word in the text",
    "prefixes": "share of the query's words that are a prefix of a word in the text",
    "phrase": "1 if the text contains the query as a phrase",
    "exact": "1 if the text equals the query",
    "length": "number of words, without stop words",
    "bm25f": "BM25F over all fields, each normalized by its own mean length",
    "lsa": "cosine similarity of the LSA vectors",
    "query words": "number of distinct words of the query",
    "query idf": "sum of the idf of the query's words",
    "query largest idf": "the largest idf of the query's words",
    "query mean idf": "mean idf of the query's words",
}
"""Description of each feature. Per-field features are named like ``title bm25``."""


@dataclass(frozen=True, eq=False)
class MatchFeatures:
    """Matching features of query-document pairs.

    >>> known = Statistics.fit({"title": ["red shoes", "red lamp", "running shoes"]})
    >>> features = MatchFeatures(known)
    >>> documents = known.encode({"title": ["red shoes", "blue shoes"]})
    >>> matrix = features.matrix(["red shoe"], documents, np.array([0, 1]), np.array([0, 2]))
    >>> matrix[:, features.names.index("coverage")].tolist()
    [1.0, 0.5]
    """

    statistics: Statistics

    field_features: ClassVar[tuple[str, ...]] = tuple(FEATURE_DESCRIPTIONS)[:10]
    overall_features: ClassVar[tuple[str, ...]] = tuple(FEATURE_DESCRIPTIONS)[10:]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Feature names: over all fields, then by field if there are several, then query-only features."""
        fields = self.statistics.fields if len(self.statistics.fields) > 1 else ()
        return (
            *self.field_features,
            *(f"{field} {name}" for field in fields for name in self.field_features),
            *self.overall_features,
        )

    @cached_property
    def descriptions(self) -> tuple[str, ...]:
        """Description of each feature, in the order of `names`."""
        fields = self.statistics.fields
        alone = fields if len(fields) > 1 else ()
        texts = " and ".join(fields)
        of_query = [name for name in self.overall_features if name.startswith("query ")]
        return (
            *(f"{FEATURE_DESCRIPTIONS[name]}, in {texts}" for name in self.field_features),
            *(f"{FEATURE_DESCRIPTIONS[name]}, in {field}" for field in alone for name in self.field_features),
            *(
                FEATURE_DESCRIPTIONS[name] + ("" if name in of_query else f", in {texts}")
                for name in self.overall_features
            ),
        )

    def matrix(
        self, queries: Sequence[str], documents: EncodedDocuments, rows: npt.ArrayLike, offsets: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        """Return the feature matrix, one row per pair and one column per name.

        Args:
            queries: query texts.
            documents: documents encoded by the same statistics.
            rows: document numbers; ``rows[offsets[q]:offsets[q + 1]]`` are the candidates of query q.
            offsets: start of each query in `rows`, and the end of the last.
        """
        if documents.statistics is not self.statistics:
            raise DataError(
                "The documents were encoded with other statistics. Encode them with the statistics of these features."
            )
        rows, offsets = _checked(rows, offsets, len(documents), len(queries))
        encoded = documents.queries(queries)
        query = np.repeat(np.arange(len(queries)), np.diff(offsets))
        wanted = range(1 if len(self.statistics.fields) == 1 else len(documents.fields))
        phrases = [_phrases(tokens, encoded, rows, offsets) for tokens in documents.tokens.values()]
        phrases = [np.max(phrases, axis=0), *phrases]
        columns: list[Any] = []
        for number in wanted:
            field = documents.fields[number]
            columns += self._of_field(number, field, encoded, rows, offsets, query)
            columns += [phrases[number] > 0, phrases[number] == kernels.Phrase.EQUAL, field.bags.lengths[rows]]
        columns += [self._bm25f(documents, encoded, rows, offsets), _cosines(documents, encoded, rows, query)]
        columns += [column[query] for column in self._of_queries(encoded)]
        out = np.empty((len(rows), len(self.names)), dtype=np.float32)
        for place, column in enumerate(columns):
            out[:, place] = column
        return out

    def _of_field(
        self, number: int, field: Field, queries: EncodedQueries, rows: IntArray, offsets: IntArray, query: IntArray
    ) -> list[FloatArray]:
        """Return the word matching columns of one field."""
        idf, importance = self.statistics.idf(queries.known, number), self.statistics.idf(queries.known)
        background = field.smoothing * self.statistics.background(queries.known, number)
        sums = _sums(field.bags, field.norms, field.penalties, queries, rows, offsets, idf, importance, background)
        match, n_words = kernels.Match, np.diff(queries.offsets)
        own = np.sqrt(queries.sums(((1.0 + np.log(queries.repeats)) * idf) ** 2))
        return [
            sums[:, match.BM25],
            _ratio(sums[:, match.COSINE], own[query] * field.cosine_norms[rows]),
            sums[:, match.DIRICHLET],
            _ratio(sums[:, match.WORDS], n_words[query]),
            _ratio(sums[:, match.IDF], queries.sums(importance)[query]),
            sums[:, match.LARGEST],
            _ratio(sums[:, match.PREFIXES], n_words[query]),
        ]

    def _bm25f(
        self, documents: EncodedDocuments, queries: EncodedQueries, rows: IntArray, offsets: IntArray
    ) -> FloatArray:
        idf, norms = self.statistics.idf(queries.known), np.full(len(documents), K1)
        sums = _sums(documents.weighted, norms, norms, queries, rows, offsets, idf, idf, np.ones_like(idf))
        column: FloatArray = sums[:, kernels.Match.BM25]
        return column

    def _of_queries(self, queries: EncodedQueries) -> list[FloatArray]:
        """Return the columns that depend only on the query."""
        idf, n_words = self.statistics.idf(queries.known), np.diff(queries.offsets).astype(np.float64)
        total, largest = queries.sums(idf), np.zeros(len(n_words))
        filled = np.flatnonzero(n_words)
        largest[filled] = np.maximum.reduceat(idf, queries.offsets[filled]) if len(filled) else 0.0
        return [n_words, total, largest, _ratio(total, n_words)]


def _checked(rows: Any, offsets: Any, n_documents: int, n_queries: int) -> tuple[IntArray, IntArray]:
    """Check that the pairs are valid indices, because the kernels do not check bounds."""
    rows, offsets = np.asarray(rows, dtype=np.int64), np.asarray(offsets, dtype=np.int64)
    if rows.ndim != 1 or offsets.shape != (n_queries + 1,):
        raise DataError("offsets must have one entry per query for its start, and one for the end of the last query.")
    if offsets[0] != 0 or offsets[-1] != len(rows) or (np.diff(offsets) < 0).any():
        raise DataError("offsets must increase from 0 to the number of rows.")
    if len(rows) and (rows.min() < 0 or rows.max() >= n_documents):
        raise DataError(f"rows must be between 0 and {n_documents - 1:,}, the numbers of the documents.")
    return np.ascontiguousarray(rows), np.ascontiguousarray(offsets)


def _sums(
    bags: Bags, norms: FloatArray, penalties: FloatArray, queries: EncodedQueries, rows: IntArray, offsets: IntArray,
    idf: FloatArray, importance: FloatArray, background: FloatArray,
) -> FloatArray:  # fmt: skip
    """Return sums over the words shared by query and document, one row per pair (native/text.c)."""
    out = np.zeros((len(rows), int(kernels.Match.LARGEST) + 1))
    kernels.text_matches(
        rows, offsets, queries.offsets, queries.words, queries.low, queries.high, queries.repeats,
        idf, importance, background, bags.starts, bags.terms, bags.counts, norms, penalties, K1, out,
    )  # fmt: skip
    return out


def _phrases(tokens: Tokens, queries: EncodedQueries, rows: IntArray, offsets: IntArray) -> npt.NDArray[np.uint8]:
    flags = np.zeros(len(rows), dtype=np.uint8)
    kernels.text_phrases(rows, offsets, queries.phrase_offsets, queries.phrase, tokens.starts, tokens.ids, flags)
    return flags


def _cosines(
    documents: EncodedDocuments, queries: EncodedQueries, rows: IntArray, query: IntArray
) -> npt.NDArray[np.float32]:
    """Return cosine similarities of LSA vectors."""
    out = np.zeros(len(rows), dtype=np.float32)
    if documents.statistics.basis.shape[1]:
        query_vectors, vectors = documents.query_vectors(queries), documents.vectors
        for start in range(0, len(rows), _ROWS_PER_BLOCK):
            part = slice(start, start + _ROWS_PER_BLOCK)
            out[part] = np.einsum("ij,ij->i", vectors[rows[part]], query_vectors[query[part]])
    return out


def _ratio(parts: Any, wholes: Any) -> FloatArray:
    """Return `parts / wholes`, and 0 if the divisor is 0."""
    wholes = np.asarray(wholes, dtype=np.float64)
    shares: FloatArray = np.divide(parts, wholes, out=np.zeros(len(wholes)), where=wholes > 0)
    return shares
