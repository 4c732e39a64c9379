"""A report of `toprank.compare` for systems given by their runs, judged against qrels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.comparison import Comparison
from toprank.comparison.runs import judged_runs, qrels_from
from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.data.trec import Qrels, Run, data_of_qrels, data_of_run
from toprank.metrics.measure import Measure
from toprank.metrics.runs import evaluate_run
from toprank.report.comparing import check_same, facts_of, judged_intervals, notes_of, versions_fact
from toprank.report.content import Content, DataSource, JudgedComparison, JudgedDocuments, RankedCollection, ScoreSpread
from toprank.report.panels.curves import curves_at
from toprank.report.panels.queries import hardest
from toprank.report.panels.scores import spreads
from toprank.report.parts import plotted


def content_of_runs(
    comparison: Comparison,
    qrels: Any,
    runs: Mapping[str, Any],
    *,
    name: str,
    title: str | None,
    command: str | None,
    date: str | None,
    metrics: Any,
    threads: int | None,
    **options: Any,
) -> Content:
    """The content of a report about runs; `options` are those of `evaluate_run` that were compared with."""
    judgments = qrels_from(qrels)
    systems = {system: Run.of(runs[system]) for system in comparison.systems}
    options |= {"convention": comparison.convention or "trec_eval", "threads": threads}
    asked = comparison.metrics if metrics is None else metrics
    evaluations = judged_runs(systems, judgments, asked, (), **options).evaluations
    check_same(comparison, evaluations)
    first = next(iter(evaluations.values()))
    data, names, scores = _pool(judgments, systems, first.qids)
    styles = plotted(comparison)

    def means(system: str, wanted: list[Measure]) -> Mapping[str, float]:
        return evaluate_run(judgments, systems[system], wanted, **options).mean

    per_query = {system: dict(evaluation.per_query) for system, evaluation in evaluations.items()}
    metric = comparison.metrics[0]
    solvable = data.queries.max(np.where(data.judged, data.labels, 0.0)) > 0
    firsts = {system: of[metric] for system, of in per_query.items()}
    part = RankedCollection(
        name=name,
        qids=first.qids,
        judgements=(JudgedComparison(comparison, per_query, judged_intervals(comparison, per_query, threads)),),
        at_k=curves_at(means, int(data.queries.sizes.max()), first.measures, styles),
        spreads=_spreads(scores, data, styles),
        documents=JudgedDocuments(data.labels, data.queries, names, scores),
        hardest=hardest(firsts, metric in comparison.lower_is_better, solvable),
        caveats=notes_of(comparison, solvable),
    )
    return Content(
        title=title or f"{len(comparison.systems)} systems on {name}",
        parts=(part,),
        sources=tuple(_sources(name, judgments, systems)),
        conventions=(str(first.convention),),
        facts=(*facts_of(comparison), versions_fact()),
        command=command,
        date=date,
    )


def _pool(
    qrels: Qrels, runs: Mapping[str, Run], qids: npt.NDArray[Any]
) -> tuple[RankingData, npt.NDArray[Any], dict[str, FloatArray]]:
    """All documents of these queries that are judged or retrieved, their ids, and each run's scores, -inf without one.

    Rows of a query are by document id, descending: the order of ties in trec_eval.
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


def _spreads(scores: Mapping[str, FloatArray], data: RankingData, styles: Mapping[str, int]) -> tuple[ScoreSpread, ...]:
    """Of each system on what it retrieved."""
    shown: list[ScoreSpread] = []
    for system, style in styles.items():
        retrieved = scores[system] > -np.inf
        shown += spreads({system: scores[system][retrieved]}, data.keep(retrieved), {system: style})
    return tuple(shown)


def _sources(name: str, qrels: Qrels, runs: Mapping[str, Run]) -> list[DataSource]:
    judged = f"{len(np.unique(qrels.qids)):,} queries, {len(qrels):,} judgments"
    sources = [DataSource(name, data_of_qrels(qrels).fingerprint, judged)]
    for system, run in runs.items():
        size = f"{len(np.unique(run.qids)):,} queries, {len(run):,} documents"
        sources.append(DataSource(system, data_of_run(run).fingerprint, size))
    return sources
