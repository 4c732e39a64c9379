"""Reports of `toprank.compare` for systems given by scores; `report.runs` handles systems given by runs."""

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
from toprank.data.texts import document_titles, query_texts
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
    """Create a report of a comparison, with further sections derived from its inputs and the rankers.

    Args:
        comparison: Result of `toprank.compare`, which keeps its numbers, data and scores.
        data: Data of the comparison, to check that they are unchanged. Default: no check.
        scores: Scores or runs of the comparison, to check that they are unchanged. Default: no check.
        rankers: Fitted rankers by system name, as far as available. They add feature weights, learning curves and, if
            they have `predict_proba`, calibration plots.
        probabilities: P(grade | x) by system name, for systems without a ranker.
        name: Name of the data. Default: ``"data"``.
        title: Title of the report. Default: number of systems and name of the data.
        command: Command that created the report, to be shown in it.
        date: Date to show. Default: none.
        sources: Further data to list with their fingerprints, such as training data.
        order: Order of `scores` and `probabilities`, as in `compare`.
        threads: Number of threads. It does not affect the report.
        **evaluate_options: Options of `compare`, to check that they are unchanged.

    Raises:
        DataError: if the comparison has no scores (`compare_values`), or if the checks fail.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=20, seed=0)
    >>> scores = {"best": data.expected_gain(), "first feature": data.X[:, 0]}
    >>> content = from_comparison(tr.compare(scores, data))
    >>> content.parts[0].ranked_systems
    ('best', 'first feature')
    """
    inputs = comparison.inputs
    if inputs is None:
        raise DataError("The comparison contains only metric values. Create it from scores or runs to report it.")
    _check_inputs(inputs, data, scores, order, evaluate_options)
    inputs = replace(inputs, options={**inputs.options, "threads": threads})
    if isinstance(inputs.data, Qrels):
        if rankers or probabilities or sources:
            raise DataError("A report of runs takes no rankers, probabilities or sources. Leave them out.")
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
    """Raise an error if data, scores or options differ from the comparison."""
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
        raise DataError("Data, scores or options differ from the comparison. Pass the same, or leave them out.")


def _is_same(kept: Any, given: Any) -> bool:
    """Return whether data, judgments or runs have the same rows."""
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
    """Return the part for systems given by scores, in data order."""
    for kind, names in (("ranker", rankers), ("system with probabilities", probabilities)):
        for system in names:
            if system not in comparison.systems:
                raise UnknownNameError(f"{kind} among those compared", system, comparison.systems)
    data = inputs.data
    judged_data, kept_columns = _evaluated(data, inputs.systems, comparison.values.units)
    styles = plotted(comparison)

    documents = JudgedDocuments(
        judged_data.labels, judged_data.queries, judged_data.row_names, kept_columns, document_titles(judged_data)
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
    """Return whether a metric can be recovered from its name; custom functions cannot."""
    try:
        return parse(name) == measure
    except ToprankError:
        return False


def _evaluated(
    data: RankingData, columns: Mapping[str, FloatArray], qids: npt.NDArray[Any]
) -> tuple[RankingData, dict[str, FloatArray]]:
    """Select the evaluated queries, because queries with unjudged documents may have been dropped."""
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
    """Return the part with the sections shared by reports of scores and of runs."""
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
    """Return notes on the queries and plots of a comparison."""
    caveats = [*comparison.omissions, *nothing_to_gain(solvable)]
    if len(comparison.systems) > PLOTTED:
        caveats.append(f"Plots show the best {PLOTTED} of {len(comparison.systems)} systems; tables show all.")
    return tuple(caveats)


def nothing_to_gain(solvable: npt.NDArray[np.bool_]) -> list[str]:
    """Return a note on queries without relevant documents, if there are any."""
    blank, n = int((~solvable).sum()), len(solvable)
    return [f"{blank:,} of {n:,} queries have no relevant document, so all rankings are equal there."] if blank else []


def source_of(name: str, data: RankingData) -> DataSource:
    """Return name, size and fingerprint of data."""
    size = f"{data.n_queries:,} queries, {data.n_documents:,} documents, {data.n_features:,} features"
    return DataSource(name, data.fingerprint, size)


def facts_of(comparison: Comparison) -> list[Fact]:
    """Return test, correction and seed of the comparison."""
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
    """Return the versions of toprank, Python and the numeric libraries."""
    known = {"toprank": __version__, "Python": platform.python_version()}
    known |= {name: version for name, version in versions().items() if name in COMPUTING}
    return Fact("Versions", ", ".join(map(" ".join, known.items())))
