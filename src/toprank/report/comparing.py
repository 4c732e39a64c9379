"""A report of `toprank.compare`: systems given by their scores; those given by runs are left to `report.runs`."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank import __version__
from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.row_order import Order
from toprank.data.trec import Qrels, Run
from toprank.errors import DataError, ToprankError, UnknownNameError
from toprank.evaluation import Comparison
from toprank.evaluation.compared_runs import qrels_from
from toprank.evaluation.comparison import ComparedInputs
from toprank.evaluation.cutoffs import values_at_cutoffs
from toprank.experiment.provenance import COMPUTING, versions
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse
from toprank.report.content import (
    ComparisonReport,
    DataSource,
    Fact,
    JudgedDocuments,
    RankedCollection,
    ScoreSpread,
    query_texts,
    titles_of,
)
from toprank.report.panels.curves import charts_at_cutoffs, curves_of_rankers
from toprank.report.panels.explained import explained_ranker
from toprank.report.panels.features import weights_of_rankers
from toprank.report.panels.queries import hardest
from toprank.report.panels.scores import calibrations, spreads
from toprank.report.parts import PLOTTED, plotted


def from_comparison(
    comparison: Comparison,
    data: Any = None,
    scores: Mapping[str, Any] | None = None,
    *,
    rankers: Mapping[str, Any] | None = None,
    probabilities: Mapping[str, npt.ArrayLike] | None = None,
    name: str = "data",
    title: str | None = None,
    command: str | None = None,
    date: str | None = None,
    sources: Mapping[str, RankingData] | None = None,
    order: Order | None = None,
    threads: int | None = None,
    **evaluate_options: Any,
) -> ComparisonReport:
    """Return the content of a report about a comparison, with all that its inputs and the rankers show.

    Args:
        comparison: Result of `toprank.compare`, which keeps its numbers, data and scores.
        data: The data that were compared on, if they are to be checked against the comparison's own.
        scores: The scores or runs that were compared, likewise.
        rankers: Fitted rankers by the name of their system, as many as are known: weights, learning curves and, if
            they have `predict_proba`, calibration.
        probabilities: P(grade | x) by the name of a system, if it does not come from a ranker.
        name: Name of the data.
        title: Title of the report.
        command: The command that makes this report.
        date: Date to show. Default: none.
        sources: Further data whose fingerprints belong to the report (training, validation).
        order: Order of `scores` and `probabilities`, as in `compare`.
        threads: Number of threads; the report does not depend on it.
        **evaluate_options: Options of `compare` to check against those of the comparison.

    Raises:
        DataError: if the comparison keeps no scores (`compare_values`), or others than those given.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=20, seed=0)
    >>> scores = {"best": data.expected_gain(), "first feature": data.X[:, 0]}
    >>> content = from_comparison(tr.compare(scores, data))
    >>> content.parts[0].ranked_systems
    ('best', 'first feature')
    """
    inputs = comparison.inputs
    if inputs is None:
        raise DataError("The comparison was made from values alone; compare scores or runs to report them.")
    _check_inputs(inputs, data, scores, order, evaluate_options)
    inputs = replace(inputs, options={**inputs.options, "threads": threads})
    if isinstance(inputs.data, Qrels):
        if rankers or probabilities or sources:
            raise DataError("A report of runs knows no rankers, probabilities or features; leave them out.")
        from toprank.report.runs import part_of_runs

        part, data_sources = part_of_runs(comparison, inputs, name)
    else:
        tables = {system: inputs.data.aligned(table, order) for system, table in (probabilities or {}).items()}
        part = _part_of_scores(comparison, inputs, name, rankers or {}, tables)
        data_sources = [source_of(*entry) for entry in {name: inputs.data, **(sources or {})}.items()]
    return ComparisonReport(
        title=title or f"{len(comparison.systems)} systems on {name}",
        parts=(part,),
        sources=tuple(data_sources),
        conventions=(str(inputs.convention),),
        facts=(*facts_of(comparison), *_ranker_facts(rankers or {}), versions_fact()),
        command=command,
        date=date,
    )


def _check_inputs(
    inputs: ComparedInputs, data: Any, scores: Mapping[str, Any] | None, order: Order | None, options: Mapping[str, Any]
) -> None:
    """Refuse data, scores or options that are not those of the comparison."""
    same = data is None or data is inputs.data or _is_same(inputs.data, data)
    for system, values in inputs.systems.items():
        if scores is None:
            break
        if system not in scores:
            raise UnknownNameError("system among the scores", system, scores)
        given = scores[system]
        if isinstance(inputs.data, Qrels):
            same &= _is_same(values, given)
        else:
            same &= np.array_equal(np.asarray(inputs.data.aligned(given, order), dtype=np.float64).reshape(-1), values)
    for name, value in options.items():
        same &= inputs.options.get(name) == value
    if not same:
        raise DataError("The report was given other data, scores or options than those that were compared.")


def _is_same(kept: Any, given: Any) -> bool:
    """Return whether data, judgments or runs hold the same rows."""
    if isinstance(kept, RankingData):
        return isinstance(given, RankingData) and kept.equals(given)
    mine, other = vars(kept), vars((qrels_from if isinstance(kept, Qrels) else Run.from_source)(given))
    return all(np.array_equal(mine[name], other[name]) for name in mine)


def _part_of_scores(
    comparison: Comparison,
    inputs: ComparedInputs,
    name: str,
    rankers: Mapping[str, Any],
    probabilities: Mapping[str, Any],
) -> RankedCollection:
    """Return the part about scores, in the order of the data."""
    for kind, names in (("ranker", rankers), ("system with probabilities", probabilities)):
        for system in names:
            if system not in comparison.systems:
                raise UnknownNameError(f"{kind} among those compared", system, comparison.systems)
    data = inputs.data
    judged_data, kept_columns = _evaluated(data, inputs.systems, comparison.values.units)
    styles = plotted(comparison)

    documents = JudgedDocuments(
        judged_data.labels, judged_data.queries, judged_data.row_names, kept_columns, titles_of(judged_data)
    )
    drawn = spreads(kept_columns, judged_data, styles)
    part = part_of(name, comparison, inputs, documents, drawn)
    predicted = {
        system: ranker.predict_proba(data)
        for system, ranker in rankers.items()
        if system not in probabilities and hasattr(ranker, "predict_proba")
    }
    part = replace(
        part,
        query_texts=query_texts(judged_data),
        calibrations=calibrations({**probabilities, **predicted}, data, styles),
        learning=curves_of_rankers(rankers, styles),
        weights=weights_of_rankers(rankers, styles, data.feature_names),
    )
    if all(_is_nameable(*pair) for pair in inputs.measures.items()):
        options = {**inputs.options, "convention": inputs.convention, "order": "data"}
        part = replace(part, explained=explained_ranker(part, judged_data, rankers, options))
    return part


def _is_nameable(name: str, measure: Measure) -> bool:
    """Return whether a metric is found by its name, as functions of the user's own are not."""
    try:
        return parse(name) == measure
    except ToprankError:
        return False


def _evaluated(
    data: RankingData, columns: Mapping[str, FloatArray], qids: npt.NDArray[Any]
) -> tuple[RankingData, dict[str, FloatArray]]:
    """The queries that were evaluated, where some were dropped for unjudged documents."""
    if len(qids) == data.n_queries:
        return data, dict(columns)
    chosen = np.isin(data.qids, qids)
    rows = data.queries.broadcast(chosen)
    return data.select(chosen), {system: column[rows] for system, column in columns.items()}


def part_of(
    name: str,
    comparison: Comparison,
    inputs: ComparedInputs,
    documents: JudgedDocuments,
    drawn_spreads: tuple[ScoreSpread, ...],
) -> RankedCollection:
    """Return what reports of scores and of runs have in common."""
    solvable = documents.queries.sum(documents.labels > 0) > 0
    styles, longest = plotted(comparison), int(documents.queries.sizes.max())
    return RankedCollection(
        name=name,
        qids=comparison.values.units,
        comparisons=(comparison,),
        at_k=charts_at_cutoffs(values_at_cutoffs([inputs], list(styles), longest), styles),
        spreads=drawn_spreads,
        documents=documents,
        hardest=hardest(comparison, solvable),
        caveats=notes_of(comparison, solvable),
    )


def notes_of(comparison: Comparison, solvable: npt.NDArray[np.bool_]) -> tuple[str, ...]:
    """What is to be said of the queries and plots of a comparison."""
    caveats = [*comparison.omissions, *nothing_to_gain(solvable)]
    if len(comparison.systems) > PLOTTED:
        caveats.append(f"Plots show {PLOTTED} of the {len(comparison.systems)} systems, the best; tables show all.")
    return tuple(caveats)


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
