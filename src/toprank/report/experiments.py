"""Reports of experiments: one part per data set, with the queries of all folds pooled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.data.texts import document_titles, query_texts
from toprank.display.pictures import Chart
from toprank.display.tables import Table
from toprank.errors import DataError, FileError, UnknownNameError
from toprank.evaluation import Comparison
from toprank.evaluation.comparison import ComparedInputs
from toprank.evaluation.cutoffs import values_at_cutoffs
from toprank.experiment import Results
from toprank.experiment.tables import around, comparison_of, number_or_dash, pooled_queries
from toprank.metrics.conventions import CONVENTIONS
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse
from toprank.report.comparing import facts_of, nothing_to_gain
from toprank.report.content import (
    ComparisonReport,
    DataSource,
    DrawnCalibration,
    Fact,
    JudgedDocuments,
    RankedCollection,
    TitledTable,
)
from toprank.report.panels.curves import charts_at_cutoffs, curves_of_cells
from toprank.report.panels.features import weights_of_cells
from toprank.report.panels.queries import hardest
from toprank.report.panels.scores import calibration, spreads
from toprank.report.parts import plotted

_FOLD_MEANS = (
    "Mean over the queries of each fold, then over folds, as in most papers. All tests, the other tables and the "
    'columns "pooled" use the pooled queries of all folds. The two differ if folds have different sizes.'
)


def from_results(
    results: Results,
    *,
    title: str | None = None,
    command: str | None = None,
    date: str | None = None,
) -> ComparisonReport:
    """Create a report of an experiment.

    Without the folder of the experiment, sections that need documents or scores are omitted.

    Args:
        results: Results from `Experiment.run` or `Results.read`.
        title: Title of the report. Default: number of systems and names of the data sets.
        command: Command to show in the report. Default: the command that ran the experiment.
        date: Date to show. Default: none.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=60, seed=0)
    >>> results = tr.Experiment(data, ["LeastSquares", "RankSVM"], n_folds=3, threads=1).run()
    >>> [part.name for part in from_results(results).parts]
    ['data']
    """
    parts = [part for dataset in results.datasets if (part := _part(results, dataset)) is not None]
    if not parts:
        raise DataError(
            "No data set has at least two systems with results on all folds. Add systems, or see Results.failures."
        )
    left = [name for name in results.datasets if name not in {part.name for part in parts}]
    caveats = [f"{name} is excluded: fewer than two systems have results on all of its folds." for name in left]
    provenance = results.provenance
    return ComparisonReport(
        title=title or f"{len(results.systems)} systems on {', '.join(results.datasets)}",
        parts=tuple(parts),
        sources=tuple(source for dataset in results.datasets for source in _sources(results, dataset)),
        conventions=tuple(provenance["conventions"].values()),
        facts=tuple(_facts(results, parts[0])),
        command=command or provenance.get("command"),
        date=date,
        caveats=(*caveats, *results.inapplicable),
    )


def _part(results: Results, dataset: str) -> RankedCollection | None:
    by_convention = [comparison_of(results, dataset, name) for name in results.conventions]
    comparisons = tuple(comparison for comparison in by_convention if comparison is not None)
    if not comparisons:
        return None
    main = comparisons[0]
    styles = plotted(main)
    qids, relevant = _queries(results, dataset)
    kept = _tests_and_scores(results, dataset, main.systems, qids)
    cells = [cell for cell in results.cells if cell.dataset == dataset]
    folds = results.provenance["datasets"][dataset]["folds"]
    part = RankedCollection(
        name=dataset,
        qids=qids,
        comparisons=comparisons,
        tables=tuple(_tables(results, dataset)),
        learning=curves_of_cells(cells, main.systems),
        weights=weights_of_cells(cells, styles, folds[0].get("feature_names")),
        hardest=hardest(main, relevant > 0),
        caveats=tuple(_notes(results, dataset, relevant, kept is not None)),
        against_leader=results.provenance["baseline"] != main.baseline,
    )
    if kept is None:
        return part
    tests, scores = kept
    documents = _documents(results.folds(dataset), tests, scores)
    pooled = _pooled_data(tests, documents)
    return replace(
        part,
        query_texts=_concatenate([query_texts(test) for test in tests]),
        documents=documents,
        at_k=_at_cutoffs(results, dataset, kept, main),
        spreads=spreads(scores, pooled, styles),
        calibrations=tuple(_calibrations(results, dataset, pooled, styles)),
    )


# ---- queries and documents ----


def _queries(results: Results, dataset: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return ids and numbers of relevant documents of the pooled queries, fold by fold."""
    rows = pooled_queries(results.per_query, dataset, results.folds(dataset))
    ids, relevant = (rows.column(name).to_pylist() for name in ("qid", "relevant"))
    return np.array(ids, dtype=object), np.array(relevant, dtype=np.int64)


def _tests_and_scores(
    results: Results, dataset: str, systems: tuple[str, ...], qids: npt.NDArray[Any]
) -> tuple[list[RankingData], dict[str, FloatArray]] | None:
    """Return test data without features, and the scores of each system with the first seed, fold by fold.

    Return None if they were not stored, or if the results are in another order, because documents could not be matched
    to queries then.
    """
    folds = results.folds(dataset)
    try:
        tests = [results.test(dataset, fold) for fold in folds]
        scores = {
            system: np.concatenate([results.scores(dataset, fold, system) for fold in folds]) for system in systems
        }
    except FileError:
        return None
    same_order = [str(qid) for test in tests for qid in test.qids.tolist()] == qids.tolist()
    return (tests, scores) if same_order else None


def _documents(folds: tuple[str, ...], tests: list[RankingData], scores: Mapping[str, FloatArray]) -> JudgedDocuments:
    labels = np.concatenate([test.labels for test in tests])
    queries = Queries.from_sizes(np.concatenate([test.queries.sizes for test in tests]))
    names = np.concatenate([_names(fold, test) for fold, test in zip(folds, tests, strict=True)])
    return JudgedDocuments(labels, queries, names, scores, _concatenate([document_titles(test) for test in tests]))


def _concatenate(texts: Sequence[npt.NDArray[Any] | None]) -> npt.NDArray[Any] | None:
    """Concatenate the texts of all folds, or return None if a fold has no texts."""
    known = [of for of in texts if of is not None]
    return np.concatenate(known) if len(known) == len(texts) else None


def _names(fold: str, test: RankingData) -> npt.NDArray[Any]:
    """Return document ids or, without ids, row numbers in the test data of the fold, from 1."""
    if test.document_ids is not None:
        return np.asarray(test.document_ids, dtype=object)
    return np.array([f"{fold} row {row + 1}" for row in test.row_names.tolist()], dtype=object)


def _pooled_data(tests: list[RankingData], documents: JudgedDocuments) -> RankingData:
    """Return the test documents of all folds as one data set, with ids if available for breaking ties."""
    known = all(test.document_ids is not None for test in tests)
    return RankingData(
        np.zeros((len(documents.labels), 0)),
        documents.labels,
        queries=documents.queries,
        document_ids=documents.names if known else None,
    )


def _at_cutoffs(
    results: Results, dataset: str, kept: tuple[list[RankingData], dict[str, FloatArray]], comparison: Comparison
) -> tuple[Chart, ...]:
    """Return metrics by cutoff; each fold is evaluated with its own maximum grade, then folds are pooled."""
    if comparison.convention not in CONVENTIONS:  # custom conventions cannot be recovered by name
        return ()
    tests, scores = kept
    measures: dict[str, Measure] = {}
    for name, of in results.provenance["metrics"].items():
        with contextlib.suppress(UnknownNameError):  # custom metrics cannot be recovered by name
            measures[name] = parse(of["measure"])
    ends = np.cumsum([test.n_documents for test in tests])[:-1]
    split = {system: np.split(columns, ends) for system, columns in scores.items()}
    parts = [
        ComparedInputs(
            systems={system: columns[number_of] for system, columns in split.items()},
            data=test,
            measures=measures,
            convention=CONVENTIONS[comparison.convention],
            options={"max_grade": fold.get("max_grade") or None},
        )
        for number_of, (test, fold) in enumerate(
            zip(tests, results.provenance["datasets"][dataset]["folds"], strict=True)
        )
    ]
    styles, longest = plotted(comparison), max(int(test.queries.sizes.max()) for test in tests)
    return charts_at_cutoffs(values_at_cutoffs(parts, list(styles), longest), styles)


def _calibrations(
    results: Results, dataset: str, pooled: RankingData, styles: Mapping[str, int]
) -> Iterator[DrawnCalibration]:
    for system, style in styles.items():
        of_folds = [results.relevance(dataset, fold, system) for fold in results.folds(dataset)]
        known = [relevance for relevance in of_folds if relevance is not None]
        if len(known) == len(of_folds):
            yield calibration(system, style, np.concatenate(known), pooled)


# ---- means by fold ----


def _tables(results: Results, dataset: str) -> list[TitledTable]:
    """Return tables of fold means by convention, of single folds, and of chosen hyperparameters."""
    systems, metrics = results.systems, results.metrics
    shown = []
    for number_of, convention in enumerate(results.conventions):
        means = {metric: results.fold_means(metric, convention, dataset) for metric in metrics}
        pooled = {metric: results.pooled(metric, convention, dataset) for metric in metrics}
        spread = {metric: results.seed_std(metric, convention, dataset) for metric in metrics}
        rows = [
            (
                s,
                *(
                    number_or_dash(of[metric].get(s)) + (around(spread[metric].get(s)) if of is means else "")
                    for metric in metrics
                    for of in (means, pooled)
                ),
            )
            for s in systems
        ]
        header = ("system", *(word for metric in metrics for word in (metric, "pooled")))
        shown.append(
            TitledTable(
                f"Mean of fold means, convention {convention}",
                Table(header, rows, names=1),
                _FOLD_MEANS if number_of == 0 else "",
            )
        )
    folds = results.folds(dataset)
    by_fold = results.by_fold(None, None, dataset)
    rows = [(s, *(number_or_dash(by_fold.get(s, {}).get(fold)) for fold in folds)) for s in systems]
    shown.append(TitledTable(f"{metrics[0]} by fold", Table(("system", *folds), rows, names=1), folded=True))
    shown.append(_choices(results, dataset))
    return shown


def _choices(results: Results, dataset: str) -> TitledTable:
    """Return the table of hyperparameters chosen by validation, one row per cell."""
    rows = []
    for cell in results.cells:
        if cell.dataset != dataset:
            continue
        options = ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in cell.options.items())
        seed = "" if cell.seed is None else str(cell.seed)
        rows.append((cell.system, cell.fold, seed, options, cell.metric or "", number_or_dash(cell.valid)))
    header = ("system", "fold", "seed", "hyperparameters", "metric", "validation value")
    return TitledTable("Hyperparameters chosen by validation", Table(header, rows, names=5), folded=True)


# ---- notes and provenance ----


def _notes(results: Results, dataset: str, relevant: npt.NDArray[Any], documents: bool) -> list[str]:
    folds, seeds = results.folds(dataset), results.n_seeds
    caveats = [f"The queries of {len(folds)} folds are pooled."]
    if seeds > 1:
        plots = " Rankings, scores and curves are those of the first seed." if documents else ""
        caveats.append(
            f"Per-query values of randomized systems are means over {seeds} seeds, ± is the standard deviation between "
            f"seeds, and intervals of differences account for queries and seeds.{plots}"
        )
    caveats += nothing_to_gain(relevant > 0)
    failed = {failure.system: failure.error for failure in results.failures if failure.dataset == dataset}
    caveats += [f"{system} failed and is excluded: {error}" for system, error in failed.items()]
    if not documents:
        caveats.append(
            "Sections about documents are omitted, because scores were not stored or results and test data differ in "
            "order."
        )
    return caveats


def _sources(results: Results, dataset: str) -> list[DataSource]:
    sources = []
    for fold in results.provenance["datasets"][dataset]["folds"]:
        for part, fingerprint in fold["fingerprints"].items():
            size = (
                f"{fold['queries'][part]:,} queries, {fold['documents'][part]:,} documents, {fold['features']} features"
            )
            sources.append(DataSource(f"{dataset} {fold['name']} {part}", fingerprint, size))
    return sources


def _facts(results: Results, part: RankedCollection) -> list[Fact]:
    provenance = results.provenance
    chosen = provenance["selection_metric"] or "each system's own metric"
    rule = f"{chosen}, convention {provenance['selection_convention']}, on validation data"
    versions = ", ".join(f"{name} {version}" for name, version in provenance["versions"].items())
    return [
        *facts_of(part.comparison),
        Fact("Seeds of the systems", ", ".join(map(str, results.seeds))),
        Fact("Seed of the folds", str(provenance["split_seed"])),
        Fact("Hyperparameters chosen by", rule),
        Fact("Versions", versions),
    ]
