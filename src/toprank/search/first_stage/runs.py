"""Runs of other engines as the first stage; several runs are fused by reciprocal rank."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.data.trec import Run, write_run
from toprank.errors import DataError
from toprank.fusion.combination import RRF_K
from toprank.search.collections.collection import preview
from toprank.search.documents import Documents
from toprank.search.first_stage.engines import Hits


class FusedRuns:
    """Candidates from one or several runs, ranked by reciprocal rank fusion.

    Documents that are not in the index are dropped.
    """

    def __init__(self, runs: Mapping[str, Any], documents: Documents) -> None:
        self.names = tuple(runs)
        self._of: dict[str, list[tuple[IntArray, FloatArray]]] = {}
        for place, run in enumerate(map(Run.from_source, runs.values())):
            rows = documents.rows(run.document_ids.tolist())
            order = np.lexsort((run.ranks(), run.qids))
            order = order[rows[order] >= 0]
            borders = np.flatnonzero(run.qids[order][1:] != run.qids[order][:-1]) + 1
            for part in np.split(order, borders):
                lists = self._of.setdefault(str(run.qids[part[0]]), [])
                lists += [(np.empty(0, np.int64), np.empty(0))] * (place - len(lists))
                lists.append((rows[part], run.scores[part]))

    @property
    def queries(self) -> tuple[str, ...]:
        """Ids of the queries in the runs."""
        return tuple(self._of)

    def find(self, qid: str, k: int) -> Hits:
        """Return the top k candidates of a query by reciprocal rank fusion."""
        lists = self._of.get(qid, [])
        gains: dict[int, float] = {}
        for rows, _ in lists:
            for rank, row in enumerate(rows.tolist(), 1):
                gains[row] = gains.get(row, 0.0) + 1.0 / (RRF_K + rank)
        best = sorted(gains, key=lambda row: (-gains[row], row))[:k]
        return Hits(np.array(best, dtype=np.int64), np.array([gains[row] for row in best]))

    def columns(self, qid: str, rows: IntArray) -> FloatArray:
        """Return score and rank of documents in each run, two columns per run; NaN if not retrieved."""
        table = np.full((len(rows), 2 * len(self.names)), np.nan)
        for place, (retrieved, scores) in enumerate(self._of.get(qid, [])):
            own = {row: number for number, row in enumerate(retrieved.tolist())}
            for at, row in enumerate(rows.tolist()):
                if row in own:
                    table[at, 2 * place : 2 * place + 2] = scores[own[row]], own[row] + 1
        return table


def check_documents(runs: Mapping[str, Run], ids: Sequence[str]) -> None:
    """Raise an error if a run contains none of the documents with these ids."""
    known = set(ids)
    for name, run in runs.items():
        if known.isdisjoint(run.document_ids.tolist()):
            raise DataError(
                f"No document of run '{name}' is in the collection. The run contains {preview(run.document_ids)}, the "
                f"collection {preview(ids)}. Check that both use the same ids."
            )


def checked_runs(runs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Run]:
    """Return runs by name, or by tag if no names are given; raise an error if there are none."""
    if isinstance(runs, Mapping | Sequence) and not runs:
        raise DataError("first_stage is empty. Pass at least one run by name, such as {'bm25': 'bm25.run'}.")
    if isinstance(runs, Mapping):
        return {str(name): Run.from_source(run) for name, run in runs.items()}
    by_tag: dict[str, Run] = {}
    for run in map(Run.from_source, [runs] if isinstance(runs, str | os.PathLike | Run) else runs):
        if run.tag in by_tag:
            raise DataError(f"Two runs have the tag '{run.tag}'. Pass them by name: {{'first': 'a.run', 'second': …}}.")
        by_tag[run.tag] = run
    return by_tag


def write_runs(folder: Path, runs: Mapping[str, Run]) -> None:
    """Write runs to an index folder, numbered in order."""
    (folder / "runs").mkdir()
    for place, run in enumerate(runs.values()):
        write_run(run, folder / "runs" / f"{place}.run")
