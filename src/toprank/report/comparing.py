"""A report of `toprank.compare`: systems given by their scores; those given by runs are left to `report.runs`."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank import __version__
from toprank.comparison import Comparison
from toprank.comparison.runs import are_runs
from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.row_order import Order
from toprank.errors import DataError, UnknownNameError
from toprank.experiment.provenance import COMPUTING, versions
from toprank.metrics.evaluation import evaluate
from toprank.metrics.measure import Measure
from toprank.metrics.result import Evaluation
from toprank.report.content import (
    Content,
    DataSource,
    Fact,
    JudgedComparison,
    JudgedDocuments,
    RankedCollection,
    ScoreSpread,
)
from toprank.report.panels.curves import at_cutoffs, curves_of_rankers
from toprank.report.panels.explained import explained_ranker
from toprank.report.panels.features import weights_of_rankers
from toprank.report.panels.queries import hardest
from toprank.report.panels.scores import calibrations, spreads
from toprank.report.parts import PLOTTED, plotted
from toprank.significance import bootstrap_interval

_SAME = 1e-9  # means of the same numbers, summed in another order


def from_comparison(
    comparison: Comparison,
    data: Any,
    scores: Mapping[str, Any],
    *,
    rankers: Mapping[str, Any] | None = None,
    probabilities: Mapping[str, npt.ArrayLike] | None = None,
    name: str = "data",
    title: str | None = None,
    command: str | None = None,
    date: str | None = None,
    sources: Mapping[str, RankingData] | None = None,
    metrics: Any = None,
    order: Order | None = None,
    threads: int | None = None,
    **evaluate_options: Any,
) -> Content:
    """The content of a report about a comparison, with all that the data, scores and rankers can tell.

    Args:
        comparison: What `toprank.compare` answered.
        data: The data that were compared on, or the judgments of runs.
        scores: The scores that were compared: name → one per document; or the runs.
        rankers: Fitted rankers by the name of their system, as many as are known: weights, learning curves and, where
            they have `predict_proba`, calibration.
        probabilities: P(grade | x) by the name of a system, where it does not come from a ranker.
        name: What the data are called.
        title: Of the report.
        command: The command that makes this report.
        date: Shown in the report, where given.
        sources: Further data whose fingerprints belong to the report (training, validation).
        metrics: The metrics as they were given to `compare`, where they are functions of your own.
        order: How scores and probabilities stand, as it was given to `compare`.
        threads: Number of threads; the report does not depend on it.
        **evaluate_options: Those that `compare` was given (`max_grade`, `relevant_from`, `unjudged`, `complete` …).

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=20, seed=0)
    >>> scores = {"best": data.expected_gain(), "first feature": data.X[:, 0]}
    >>> content = from_comparison(tr.compare(scores, data), data, scores)
    >>> content.parts[0].ranked_systems
    ('best', 'first feature')
    """
    for system in comparison.systems:
        if system not in scores:
            raise UnknownNameError("system among the scores", system, scores)
    if are_runs(scores, data):
        if rankers or probabilities or sources:
            raise DataError("A report of runs knows no rankers, probabilities or features; leave them out.")
        from toprank.report.runs import part_of_runs

        part, data_sources, rules = part_of_runs(comparison, data, scores, name, metrics, threads, **evaluate_options)
    else:
        shared = {"convention": comparison.convention or "standard", "threads": threads, "order": "data"}
        tables = {system: data.aligned(table, order) for system, table in (probabilities or {}).items()}
        columns = {
            system: np.asarray(data.aligned(scores[system], order), dtype=np.float64).reshape(-1)
            for system in comparison.systems
        }
        part, rules = _part_of_scores(
            comparison, data, columns, name, rankers or {}, tables, metrics, evaluate_options | shared
        )
        data_sources = [source_of(*entry) for entry in {name: data, **(sources or {})}.items()]
    return Content(
        title=title or f"{len(comparison.systems)} systems on {name}",
        parts=(part,),
        sources=tuple(data_sources),
        conventions=(rules,),
        facts=(*facts_of(comparison), *_ranker_facts(rankers or {}), versions_fact()),
        command=command,
        date=date,
    )


def _part_of_scores(
    comparison: Comparison,
    data: RankingData,
    columns: Mapping[str, FloatArray],
    name: str,
    rankers: Mapping[str, Any],
    probabilities: Mapping[str, Any],
    metrics: Any,
    options: Mapping[str, Any],
) -> tuple[RankedCollection, str]:
    """The part about scores in the order of the data, and the rules of its convention in words."""
    for kind, names in (("ranker", rankers), ("system with probabilities", probabilities)):
        for system in names:
            if system not in comparison.systems:
                raise UnknownNameError(f"{kind} among those compared", system, comparison.systems)
    wanted = comparison.metrics if metrics is None else metrics
    evaluations = {system: evaluate(column, data, wanted, **options) for system, column in columns.items()}
    check_same(comparison, evaluations)
    first = next(iter(evaluations.values()))
    judged_data, kept_columns = _evaluated(data, columns, first.qids)
    styles = plotted(comparison)

    def means(system: str, measures: list[Measure]) -> Mapping[str, float]:
        return evaluate(kept_columns[system], judged_data, measures, **options).mean

    documents = JudgedDocuments(judged_data.labels, judged_data.queries, judged_data.row_names, kept_columns)
    drawn = spreads(kept_columns, judged_data, styles)
    part = part_of(name, comparison, evaluations, documents, drawn, means, options["threads"])
    predicted = {
        system: ranker.predict_proba(data)
        for system, ranker in rankers.items()
        if system not in probabilities and hasattr(ranker, "predict_proba")
    }
    part = replace(
        part,
        calibrations=calibrations({**probabilities, **predicted}, data, styles),
        learning=curves_of_rankers(rankers, styles),
        weights=weights_of_rankers(rankers, styles, data.feature_names),
    )
    if metrics is None:  # else they may be functions, which have no name to ask for them by
        part = replace(part, explained=explained_ranker(part, judged_data, rankers, options))
    return part, str(first.convention)


def check_same(comparison: Comparison, evaluations: Mapping[str, Evaluation]) -> None:
    """Refuse data, scores or options that give other means than the comparison has."""
    for system, evaluation in evaluations.items():
        for metric, mean in comparison.means[system].items():
            if not abs(evaluation.mean[metric] - mean) <= _SAME * max(1.0, abs(mean)):
                raise DataError(
                    f"{metric} of '{system}' is {evaluation.mean[metric]:.6f} on these data, but the comparison says "
                    f"{mean:.6f}; give the report the data, scores and options that were compared."
                )


def _evaluated(
    data: RankingData, columns: Mapping[str, FloatArray], qids: npt.NDArray[Any]
) -> tuple[RankingData, dict[str, FloatArray]]:
    """The queries that were evaluated, where some were dropped for unjudged documents."""
    if len(qids) == data.n_queries:
        return data, dict(columns)
    chosen = np.isin(data.qids, qids)
    rows = data.queries.spread(chosen)
    return data.select(chosen), {system: column[rows] for system, column in columns.items()}


def part_of(
    name: str,
    comparison: Comparison,
    evaluations: Mapping[str, Evaluation],
    documents: JudgedDocuments,
    drawn_spreads: tuple[ScoreSpread, ...],
    means: Callable[[str, list[Measure]], Mapping[str, float]],
    threads: int | None,
) -> RankedCollection:
    """What scores and runs have in common; `means` gives those of a system under further measures."""
    first = next(iter(evaluations.values()))
    judged = judged_comparison(
        comparison, {system: dict(evaluation.per_query) for system, evaluation in evaluations.items()}, threads
    )
    solvable = documents.queries.sum(documents.labels > 0) > 0
    longest = int(documents.queries.sizes.max())
    return RankedCollection(
        name=name,
        qids=first.qids,
        judgements=(judged,),
        at_k=at_cutoffs(means, longest, first.measures, plotted(comparison)),
        spreads=drawn_spreads,
        documents=documents,
        hardest=hardest(judged, solvable),
        caveats=notes_of(comparison, solvable),
    )


def notes_of(comparison: Comparison, solvable: npt.NDArray[np.bool_]) -> tuple[str, ...]:
    """What is to be said of the queries and plots of a comparison."""
    caveats = [*comparison.omissions, *nothing_to_gain(solvable)]
    if len(comparison.systems) > PLOTTED:
        caveats.append(f"Plots show {PLOTTED} of the {len(comparison.systems)} systems, the best; tables show all.")
    return tuple(caveats)


def judged_comparison(
    comparison: Comparison, per_query: Mapping[str, Mapping[str, FloatArray]], threads: int | None = None
) -> JudgedComparison:
    """The comparison with its numbers, and bootstrap intervals of the means with the options of the comparison."""
    options: dict[str, Any] = {"confidence": comparison.confidence, "resamples": comparison.resamples}
    intervals = {
        system: {
            metric: bootstrap_interval(values[~np.isnan(values)], seed=comparison.seed, threads=threads, **options)
            for metric, values in of.items()
        }
        for system, of in per_query.items()
    }
    return JudgedComparison(comparison, per_query, intervals)


def nothing_to_gain(solvable: npt.NDArray[np.bool_]) -> list[str]:
    """A note of the queries that have nothing relevant, where there are any."""
    blank, n = int((~solvable).sum()), len(solvable)
    return [f"{blank:,} of {n:,} queries have nothing relevant; no ranking can gain anything there."] if blank else []


def source_of(name: str, data: RankingData) -> DataSource:
    """The line of the small print about some data."""
    size = f"{data.n_queries:,} queries, {data.n_documents:,} documents, {data.n_features:,} features"
    return DataSource(name, data.fingerprint, size)


def facts_of(comparison: Comparison) -> list[Fact]:
    """How the comparison was made."""
    return [
        Fact("Test", f"paired {comparison.test} test, two-sided, correction: {comparison.correction}"),
        Fact("Seed of the comparison", str(comparison.seed)),
    ]


def _ranker_facts(rankers: Mapping[str, Any]) -> list[Fact]:
    facts = [Fact(f"Model {name}", " ".join(repr(ranker).split())) for name, ranker in rankers.items()]
    trained: dict[str, list[str]] = {}
    for name, ranker in rankers.items():
        fingerprint = getattr(ranker, "training_", {}).get("fingerprint")
        if fingerprint:
            trained.setdefault(fingerprint, []).append(name)
    return facts + [
        Fact("Training data", f"{fingerprint} ({', '.join(names)})") for fingerprint, names in trained.items()
    ]


def versions_fact() -> Fact:
    """Of toprank, Python and the libraries that numbers come from."""
    known = {"toprank": __version__, "Python": platform.python_version()}
    known |= {name: version for name, version in versions().items() if name in COMPUTING}
    return Fact("Versions", ", ".join(map(" ".join, known.items())))
