"""`QueryRuns`: the score and rank that each of several runs gives to every pair of a query and a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.trec import Run
from toprank.errors import DataError, FormatError


@dataclass(frozen=True, eq=False)
class QueryRuns:
    """Query q has the pairs ``offsets[q]:offsets[q + 1]``; tables have a row for each pair and a column for each run.

    Attributes:
        names: names of the runs.
        qids: ids of the queries that any run answers.
        offsets: where the pairs of each query begin, and where the last end.
        documents: the id of each pair's document.
        scores: NaN if the run does not have the document.
        ranks: from 1, as trec_eval ranks; 0 if the run does not have the document.
    """

    names: tuple[str, ...]
    qids: npt.NDArray[Any]
    offsets: IntArray
    documents: npt.NDArray[Any]
    scores: FloatArray
    ranks: IntArray

    @classmethod
    def from_runs(cls, runs: Mapping[str, Any], depth: int | None = None) -> Self:
        """Make query_runs of runs by name, from the best `depth` documents of each query and run."""
        checked = {str(name): _run(str(name), run) for name, run in runs.items()}
        if len(checked) < 2:
            raise DataError(f"Fusion needs at least two runs, not {len(checked)}.")
        ranks = [run.ranks() for run in checked.values()]
        kept = [rank <= (depth or len(rank)) for rank in ranks]
        tables = list(zip(checked.values(), ranks, kept, strict=True))
        qids, query = np.unique(np.concatenate([run.qids[keep] for run, _, keep in tables]), return_inverse=True)
        ids, document = np.unique(
            np.concatenate([run.document_ids[keep] for run, _, keep in tables]), return_inverse=True
        )
        pairs, place = np.unique(query.reshape(-1) * len(ids) + document.reshape(-1), return_inverse=True)
        scores = np.full((len(pairs), len(checked)), np.nan)
        positions = np.zeros((len(pairs), len(checked)), dtype=np.int64)
        start = 0
        for column, (run, rank, keep) in enumerate(tables):
            rows = place.reshape(-1)[start : start + int(keep.sum())]
            scores[rows, column], positions[rows, column] = run.scores[keep], rank[keep]
            start += len(rows)
        offsets = np.searchsorted(pairs // len(ids), np.arange(len(qids) + 1))
        return cls(tuple(checked), qids, offsets, ids[pairs % len(ids)], scores, positions)

    @property
    def query(self) -> IntArray:
        """The number of each pair's query."""
        return np.repeat(np.arange(len(self.qids)), np.diff(self.offsets))

    @property
    def is_retrieved(self) -> npt.NDArray[np.bool_]:
        """Whether each run has each document."""
        return self.ranks > 0

    def over_queries(self, reduced: np.ufunc, values: FloatArray) -> FloatArray:
        """A reduction over the pairs of each query, for every pair."""
        spread: FloatArray = np.repeat(
            reduced.reduceat(values, self.offsets[:-1], axis=0), np.diff(self.offsets), axis=0
        )
        return spread

    def run(self, scores: FloatArray, tag: str) -> Run:
        """A run with these scores of all pairs, best first."""
        # Equal scores as trec_eval ranks them, by id descending: the pairs of a query stand in ascending order.
        order = np.lexsort((-np.arange(len(scores)), -scores, self.query))
        return Run(self.qids[self.query[order]], self.documents[order], scores[order], tag)


def _run(name: str, given: Any) -> Run:
    """Return a run; an error names it, unless the error names its file already."""
    try:
        return Run.from_source(given)
    except FormatError:
        raise
    except DataError as problem:
        raise DataError(f"The run {name}:", remedy=problem.args[0]) from None
