"""Reports of `toprank.compare` for systems given by runs and qrels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.data.trec import Qrels, Run, data_of_qrels, data_of_run
from toprank.evaluation import Comparison
from toprank.evaluation.comparison import ComparedInputs
from toprank.report.comparing import part_of
from toprank.report.content import DataSource, JudgedDocuments, RankedCollection
from toprank.report.panels.scores import spreads
from toprank.report.parts import plotted


def part_of_runs(
    comparison: Comparison, inputs: ComparedInputs, name: str
) -> tuple[RankedCollection, list[DataSource]]:
    """Return the part for systems given by runs, and its data sources."""
    judgments, systems = inputs.data, inputs.systems
    data, names, scores = _pool(judgments, systems, comparison.values.units)
    documents = JudgedDocuments(data.labels, data.queries, names, scores)
    drawn = spreads(scores, data, plotted(comparison))
    return part_of(name, comparison, inputs, documents, drawn), _sources(name, judgments, systems)


def _pool(
    qrels: Qrels, runs: Mapping[str, Run], qids: npt.NDArray[Any]
) -> tuple[RankingData, npt.NDArray[Any], dict[str, FloatArray]]:
    """Return all judged or retrieved documents of these queries, their ids, and the scores of each run (or -inf).

    Rows of a query are sorted by descending document id, the order in which trec_eval breaks ties.
    """
    tables: list[Qrels | Run] = [qrels, *runs.values()]
    ids, document = np.unique(np.concatenate([table.document_ids for table in tables]), return_inverse=True)
    every = np.concatenate([table.qids for table in tables])
    place = np.minimum(np.searchsorted(qids, every), len(qids) - 1)
    known, width = qids[place] == every, len(ids)
    keys = place * width + (width - 1 - document.reshape(-1))
    rows = np.unique(keys[known])
    columns, start = [], 0
    for table in tables:
        values = table.grades if isinstance(table, Qrels) else table.scores
        part = slice(start, start := start + len(table))
        column = np.full(len(rows), np.nan if isinstance(table, Qrels) else -np.inf)
        column[np.searchsorted(rows, keys[part][known[part]])] = values[known[part]]
        columns.append(column)
    sizes = np.bincount(rows // width, minlength=len(qids))
    data = RankingData(np.empty((len(rows), 0)), columns[0], queries=Queries.from_sizes(sizes))
    return data, ids[width - 1 - rows % width], dict(zip(runs, columns[1:], strict=True))


def _sources(name: str, qrels: Qrels, runs: Mapping[str, Run]) -> list[DataSource]:
    judged = f"{len(np.unique(qrels.qids)):,} queries, {len(qrels):,} judgments"
    sources = [DataSource(name, data_of_qrels(qrels).fingerprint, judged)]
    for system, run in runs.items():
        size = f"{len(np.unique(run.qids)):,} queries, {len(run):,} documents"
        sources.append(DataSource(system, data_of_run(run).fingerprint, size))
    return sources
