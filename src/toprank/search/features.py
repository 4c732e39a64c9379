"""Features of candidates: everything that the second stage knows about a document that the first stage found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.pool_statistics import statistics_in
from toprank.errors import DataError
from toprank.search.documents import Documents
from toprank.search.feedback import FEEDBACK, Neighbors
from toprank.search.first_stage import RunPool
from toprank.search.proximity import PROXIMITY, Positions
from toprank.text import EncodedDocuments, MatchFeatures

_FIRST = {"first stage score": "score of the first stage", "first stage rank": "place in the first stage's list"}
# Features whose rank and z-score within the pool are features, too.
_POOLED = ("first stage score", "bm25", "lsa", *FEEDBACK)
_STATISTICS = {
    "rank": "place among the candidates, the largest first, by",
    "zscore": "standard deviations above the mean of the candidates, of",
}


class Candidates(NamedTuple):
    """The candidates of one query, best first, as users' functions see them."""

    ids: Sequence[str]
    rows: IntArray
    documents: Documents

    def texts(self, field: str) -> list[str]:
        """Their texts in a field."""
        return [self.documents.text(int(row), field) for row in self.rows]


Function = Callable[[str, Candidates], npt.ArrayLike]
"""A feature of a user: from the words of a query and its candidates, a number for each."""


class Pool(NamedTuple):
    """The candidates of queries: query q has ``rows[offsets[q]:offsets[q + 1]]``, best first.

    Attributes:
        scores: Of the first stage.
    """

    qids: Sequence[str]
    texts: Sequence[str]
    offsets: IntArray
    rows: IntArray
    scores: FloatArray

    def of(self, query: int) -> slice:
        """The places of a query's candidates."""
        return slice(int(self.offsets[query]), int(self.offsets[query + 1]))


@dataclass(frozen=True, eq=False)
class CandidateFeatures:
    """The features of a learned order, by name.

    Args:
        documents: ids and texts.
        encoded: their words.
        runs: the runs that made the pool, where runs did.
        vectors: of documents, by the name of the model that made them; rows of length 1.
        functions: features of users, by name.
    """

    documents: Documents
    encoded: EncodedDocuments
    runs: RunPool | None = None
    vectors: Mapping[str, npt.NDArray[np.float32]] | None = None
    functions: Mapping[str, Function] | None = None

    @cached_property
    def match(self) -> MatchFeatures:
        """The features of words."""
        return MatchFeatures(self.encoded.statistics)

    @cached_property
    def neighbors(self) -> Neighbors:
        """The documents as vectors, for feedback."""
        return Neighbors(self.encoded)

    @cached_property
    def positions(self) -> Positions:
        """The words of documents in their order."""
        return Positions.of(self.encoded)

    @cached_property
    def own(self) -> tuple[str, ...]:
        """The features of a candidate by itself."""
        runs = [f"{run} {what}" for run in self.runs.names for what in ("score", "rank")] if self.runs else []
        vectors = [f"{name} similarity" for name in self.vectors or ()]
        return (*self.match.names, *_FIRST, *FEEDBACK, *PROXIMITY, *runs, *vectors, *(self.functions or ()))

    @cached_property
    def pooled(self) -> tuple[str, ...]:
        """The features whose place within the pool is a feature, too."""
        runs = [f"{run} score" for run in self.runs.names] if self.runs else []
        return (*_POOLED, *runs, *(f"{name} similarity" for name in self.vectors or ()))

    @cached_property
    def orders(self) -> tuple[str, ...]:
        """Features that order candidates without training: those of words (or of each run), of LSA and of vectors."""
        words = [f"{run} score" for run in self.runs.names] if self.runs else ["bm25"]
        similar = [f"{name} similarity" for name in self.vectors or ()]
        return tuple(f"{name} zscore in pool" for name in (*words, "lsa", *similar))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All features, in the order of the columns."""
        return (*self.own, *(f"{name} {what} in pool" for name in self.pooled for what in _STATISTICS))

    @cached_property
    def meanings(self) -> dict[str, str]:
        """What each feature is, by name."""
        own = {**dict(zip(self.match.names, self.match.meanings, strict=True)), **_FIRST, **FEEDBACK, **PROXIMITY}
        for run in self.runs.names if self.runs else ():
            own |= {f"{run} score": f"score in the run {run}", f"{run} rank": f"place in the run {run}"}
        own |= {
            f"{name} similarity": f"cosine of the vectors of query and document, of {name}"
            for name in self.vectors or ()
        }
        own |= dict.fromkeys(self.functions or (), "a feature of your own")
        statistics = [(name, what) for name in self.pooled for what in _STATISTICS]
        return own | {f"{name} {what} in pool": f"{_STATISTICS[what]}: {own[name]}" for name, what in statistics}

    def matrix(
        self, pool: Pool, vectors: Mapping[str, npt.NDArray[np.float32]] | None = None
    ) -> npt.NDArray[np.float32]:
        """A row for each candidate.

        Args:
            pool: the candidates.
            vectors: of the queries, by the name of the model, rows of length 1; a model that is not there gives NaN.
        """
        columns = {name: place for place, name in enumerate(self.own)}
        out = np.empty((len(pool.rows), len(self.names)), dtype=np.float32)
        matched = len(self.match.names)
        out[:, :matched] = self.match.matrix(pool.texts, self.encoded, pool.rows, pool.offsets)
        queries = self.encoded.queries(pool.texts)
        idf = self.encoded.statistics.idf(self.encoded.known)
        numbers = np.full(len(self.encoded.vocabulary) + 1, -1, dtype=np.int64)
        counted = np.append(self.encoded.counted, False)
        out[:, columns["first stage score"]] = pool.scores
        for query, text in enumerate(pool.texts):
            places = pool.of(query)
            rows = pool.rows[places]
            phrase = slice(*queries.phrase_offsets[query : query + 2])
            sequence = queries.phrase[phrase].astype(np.int64)
            at = matched + 1
            out[places, at] = np.arange(1, len(rows) + 1)
            out[places, at + 1 : at + 3] = self.neighbors.features(rows)
            out[places, at + 3 : at + 5] = self.positions.features(sequence[counted[sequence]], idf, rows, numbers)
            at += 5
            if self.runs is not None:
                out[places, at : at + 2 * len(self.runs.names)] = self.runs.columns(pool.qids[query], rows)
                at += 2 * len(self.runs.names)
            for name, known in (self.vectors or {}).items():
                of_queries = (vectors or {}).get(name)
                out[places, at] = np.nan if of_queries is None else known[rows] @ of_queries[query]
                at += 1
            for name, function in (self.functions or {}).items():
                out[places, at] = self._called(name, function, text, rows)
                at += 1
        chosen = out[:, [columns[name] for name in self.pooled]].T.astype(np.float64)
        out[:, len(self.own) :] = statistics_in(chosen, pool.offsets, tuple(_STATISTICS))
        return out

    def _called(self, name: str, function: Function, text: str, rows: IntArray) -> Any:
        """The values of a user's feature, checked."""
        returned = function(text, Candidates([self.documents.id(int(row)) for row in rows], rows, self.documents))
        try:
            values = np.asarray(returned, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"The feature '{name}' must be a number for each candidate.") from None
        if values.shape != (len(rows),) or np.isinf(values).any():
            raise DataError(
                f"The feature '{name}' must be a finite number or NaN for each of the {len(rows):,} candidates; its "
                f"function returned an array of shape {values.shape}."
            )
        return values
