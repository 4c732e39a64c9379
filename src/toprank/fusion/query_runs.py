"""`QueryRuns`: scores and ranks of all query-document pairs in several runs."""

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
    """Scores and ranks of several runs, one row per query-document pair and one column per run.

    Attributes:
        names: names of the runs.
        qids: ids of all queries in any run.
        offsets: query q has the pairs ``offsets[q]:offsets[q + 1]``.
        documents: document id of each pair.
        scores: scores; NaN if a run did not retrieve the document.
        ranks: ranks from 1 in trec_eval order; 0 if a run did not retrieve the document.
    """

    names: tuple[str, ...]
    qids: npt.NDArray[Any]
    offsets: IntArray
    documents: npt.NDArray[Any]
    scores: FloatArray
    ranks: IntArray

    @classmethod
    def from_runs(cls, runs: Mapping[str, Any], depth: int | None = None) -> Self:
        """Align runs by name, using the top `depth` documents of each query and run."""
        checked = {str(name): _run(str(name), run) for name, run in runs.items()}
        if len(checked) < 2:
            raise DataError(f"Fusion needs at least two runs, but {len(checked)} given.")
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
        """Query number of each pair."""
        return np.repeat(np.arange(len(self.qids)), np.diff(self.offsets))

    @property
    def is_retrieved(self) -> npt.NDArray[np.bool_]:
        """Mask of the pairs that each run retrieved."""
        return self.ranks > 0

    def over_queries(self, reduced: np.ufunc, values: FloatArray) -> FloatArray:
        """Reduce values over the pairs of each query, and repeat the result for every pair."""
        spread: FloatArray = np.repeat(
            reduced.reduceat(values, self.offsets[:-1], axis=0), np.diff(self.offsets), axis=0
        )
        return spread

    def run(self, scores: FloatArray, tag: str) -> Run:
        """Return a run with these scores for all pairs, sorted best first."""
        # trec_eval breaks ties by descending document id, and the pairs of a query are sorted by ascending id.
        order = np.lexsort((-np.arange(len(scores)), -scores, self.query))
        return Run(self.qids[self.query[order]], self.documents[order], scores[order], tag)


def _run(name: str, given: Any) -> Run:
    """Convert to a run; prefix errors with its name, unless they already name its file."""
    try:
        return Run.from_source(given)
    except FormatError:
        raise
    except DataError as problem:
        raise DataError(f"The run {name}:", remedy=problem.args[0]) from None
