"""Features of first-stage candidates, the input of the reranking model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.query_statistics import statistics_in
from toprank.errors import DataError
from toprank.search.documents import Documents
from toprank.search.feedback import FEEDBACK, Neighbors
from toprank.search.first_stage import FusedRuns
from toprank.search.proximity import PROXIMITY, Positions
from toprank.text import EncodedDocuments, MatchFeatures

_FIRST = {"first stage score": "score of the first stage", "first stage rank": "rank in the first stage"}
# Features whose rank and z-score among the candidates of a query are features as well.
_COMPARED = ("first stage score", "bm25", "lsa", *FEEDBACK)
_STATISTICS = {
    "rank": "rank among the candidates, largest first, by",
    "zscore": "z-score among the candidates, of",
}


class Candidates(NamedTuple):
    """The candidates of one query, best first, as passed to custom feature functions."""

    ids: Sequence[str]
    rows: IntArray
    documents: Documents

    def texts(self, field: str) -> list[str]:
        """Return the texts of the candidates in one field."""
        return [self.documents.text(int(row), field) for row in self.rows]


FeatureFunction = Callable[[str, Candidates], npt.ArrayLike]
"""A custom feature: maps a query text and its candidates to one number per candidate."""


class CandidateLists(NamedTuple):
    """The candidates of several queries: query q owns ``rows[offsets[q]:offsets[q + 1]]``, best first.

    Attributes:
        qids: Query ids.
        texts: Query texts.
        offsets: Start of each query in `rows`, and the end of the last.
        rows: Row numbers of the candidates in the index.
        scores: First-stage scores.
    """

    qids: Sequence[str]
    texts: Sequence[str]
    offsets: IntArray
    rows: IntArray
    scores: FloatArray

    def of(self, query: int) -> slice:
        """Return the slice of a query's candidates."""
        return slice(int(self.offsets[query]), int(self.offsets[query + 1]))


@dataclass(frozen=True, eq=False)
class CandidateFeatures:
    """Named features of candidates.

    Args:
        documents: document ids and texts.
        encoded: tokenized documents.
        runs: the runs used as first stage, if any.
        vectors: document vectors by name of the embedding model, as unit-length rows.
        functions: custom features by name.
    """

    documents: Documents
    encoded: EncodedDocuments
    runs: FusedRuns | None = None
    vectors: Mapping[str, npt.NDArray[np.float32]] | None = None
    functions: Mapping[str, FeatureFunction] | None = None

    @cached_property
    def match(self) -> MatchFeatures:
        """Text matching features."""
        return MatchFeatures(self.encoded.statistics)

    @cached_property
    def neighbors(self) -> Neighbors:
        """Document vectors for pseudo-relevance feedback."""
        return Neighbors(self.encoded)

    @cached_property
    def positions(self) -> Positions:
        """The words of the documents in text order, for proximity features."""
        return Positions.from_documents(self.encoded)

    @cached_property
    def own(self) -> tuple[str, ...]:
        """Names of features that do not depend on the other candidates' scores."""
        runs = [f"{run} {what}" for run in self.runs.names for what in ("score", "rank")] if self.runs else []
        vectors = [f"{name} similarity" for name in self.vectors or ()]
        return (*self.match.names, *_FIRST, *FEEDBACK, *PROXIMITY, *runs, *vectors, *(self.functions or ()))

    @cached_property
    def compared(self) -> tuple[str, ...]:
        """Names of features whose rank and z-score among the candidates are features as well."""
        runs = [f"{run} score" for run in self.runs.names] if self.runs else []
        return (*_COMPARED, *runs, *(f"{name} similarity" for name in self.vectors or ()))

    @cached_property
    def orders(self) -> tuple[str, ...]:
        """Names of features that rank candidates without training: BM25 (or each run), LSA and vector similarities."""
        words = [f"{run} score" for run in self.runs.names] if self.runs else ["bm25"]
        similar = [f"{name} similarity" for name in self.vectors or ()]
        return tuple(f"{name} zscore in pool" for name in (*words, "lsa", *similar))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all features, in column order."""
        return (*self.own, *(f"{name} {what} in pool" for name in self.compared for what in _STATISTICS))

    @cached_property
    def descriptions(self) -> dict[str, str]:
        """Description of each feature, by name."""
        own = {**dict(zip(self.match.names, self.match.descriptions, strict=True)), **_FIRST, **FEEDBACK, **PROXIMITY}
        for run in self.runs.names if self.runs else ():
            own |= {f"{run} score": f"score in the run {run}", f"{run} rank": f"rank in the run {run}"}
        own |= {
            f"{name} similarity": f"cosine similarity of the {name} vectors of query and document"
            for name in self.vectors or ()
        }
        own |= dict.fromkeys(self.functions or (), "custom feature")
        statistics = [(name, what) for name in self.compared for what in _STATISTICS]
        return own | {f"{name} {what} in pool": f"{_STATISTICS[what]}: {own[name]}" for name, what in statistics}

    def matrix(
        self, lists: CandidateLists, vectors: Mapping[str, npt.NDArray[np.float32]] | None = None
    ) -> npt.NDArray[np.float32]:
        """Return the feature matrix, one row per candidate.

        Args:
            lists: candidates of the queries.
            vectors: query vectors by name of the embedding model, as unit-length rows. Similarities of missing models
                are NaN.
        """
        columns = {name: place for place, name in enumerate(self.own)}
        out = np.empty((len(lists.rows), len(self.names)), dtype=np.float32)
        matched = len(self.match.names)
        out[:, :matched] = self.match.matrix(lists.texts, self.encoded, lists.rows, lists.offsets)
        queries = self.encoded.queries(lists.texts)
        idf = self.encoded.statistics.idf(self.encoded.known)
        numbers = np.full(len(self.encoded.vocabulary) + 1, -1, dtype=np.int64)
        counted = np.append(self.encoded.counted, False)
        out[:, columns["first stage score"]] = lists.scores
        for query, text in enumerate(lists.texts):
            places = lists.of(query)
            rows = lists.rows[places]
            phrase = slice(*queries.phrase_offsets[query : query + 2])
            sequence = queries.phrase[phrase].astype(np.int64)
            at = matched + 1
            out[places, at] = np.arange(1, len(rows) + 1)
            out[places, at + 1 : at + 3] = self.neighbors.features(rows)
            out[places, at + 3 : at + 5] = self.positions.features(sequence[counted[sequence]], idf, rows, numbers)
            at += 5
            if self.runs is not None:
                out[places, at : at + 2 * len(self.runs.names)] = self.runs.columns(lists.qids[query], rows)
                at += 2 * len(self.runs.names)
            for name, known in (self.vectors or {}).items():
                of_queries = (vectors or {}).get(name)
                out[places, at] = np.nan if of_queries is None else known[rows] @ of_queries[query]
                at += 1
            for name, function in (self.functions or {}).items():
                out[places, at] = self._called(name, function, text, rows)
                at += 1
        chosen = out[:, [columns[name] for name in self.compared]].T.astype(np.float64)
        out[:, len(self.own) :] = statistics_in(chosen, lists.offsets, tuple(_STATISTICS))
        return out

    def _called(self, name: str, function: FeatureFunction, text: str, rows: IntArray) -> Any:
        """Return the values of a custom feature after checking them."""
        returned = function(text, Candidates([self.documents.id(int(row)) for row in rows], rows, self.documents))
        try:
            values = np.asarray(returned, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"The function of feature '{name}' must return one number per candidate.") from None
        if values.shape != (len(rows),) or np.isinf(values).any():
            raise DataError(
                f"The function of feature '{name}' must return a finite number or NaN for each of the {len(rows):,} "
                f"candidates; it returned an array of shape {values.shape}."
            )
        return values
