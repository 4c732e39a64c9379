"""The results as tables: for a terminal, for Markdown, for LaTeX, and as plain values.

Every table says which mean it shows: of fold means, as in papers, or of the pooled queries, which the tests are about.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from toprank.comparison import Comparison, Difference
from toprank.comparison.tables import Table, latex_text, markdown_text
from toprank.experiment.store import plain
from toprank.significance.results import number

if TYPE_CHECKING:
    from toprank.experiment.results import Results

__all__ = ["dictionary", "latex", "markdown", "reference_of", "text"]

_DASH = "–"


def text(results: Results) -> str:
    """For a terminal."""
    return _written(results, str, Table.text)


def markdown(results: Results) -> str:
    """As Markdown."""
    return _written(results, markdown_text, Table.markdown) + "\n"


def latex(results: Results) -> str:
    """For LaTeX with the booktabs package."""
    return _written(results, latex_text, Table.latex) + "\n"


def dictionary(results: Results) -> dict[str, Any]:
    """Plain values that JSON can hold."""
    datasets = {
        dataset: {
            **results.provenance["datasets"][dataset],
            "conventions": {convention: _numbers(results, dataset, convention) for convention in results.conventions},
        }
        for dataset in results.datasets
    }
    provenance = {name: value for name, value in results.provenance.items() if name != "datasets"}
    return {
        "datasets": plain(datasets),
        "cells": [cell.to_dict() for cell in results.cells],
        "failures": [asdict(failure) for failure in results.failures],
        "provenance": plain(provenance),
    }


def _numbers(results: Results, dataset: str, convention: str) -> dict[str, Any]:
    def each(function: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        return {metric: function(metric, convention, dataset) for metric in results.metrics}

    compared = comparison_of(results, dataset, convention)
    return {
        "mean_of_fold_means": each(results.fold_means),
        "by_fold": each(results.by_fold),
        "pooled_mean": each(results.pooled),
        "pooled_comparison": None if compared is None else compared.to_dict(),
    }


def reference_of(results: Results, dataset: str, convention: str) -> str | None:
    """The system that the others are compared with: the baseline, or the best by the first metric."""
    means = {name: value for name, value in results.pooled(None, convention, dataset).items() if not math.isnan(value)}
    baseline = results.provenance["baseline"]
    if baseline in means:
        return str(baseline)
    higher = results.provenance["metrics"][results.metrics[0]]["higher_is_better"]
    return (max if higher else min)(means, key=lambda name: means[name]) if means else None


def comparison_of(results: Results, dataset: str, convention: str) -> Comparison | None:
    """All systems against the reference; None where there are not two to compare, or a metric is never defined."""
    reference = reference_of(results, dataset, convention)
    means = [results.pooled(metric, convention, dataset) for metric in results.metrics]
    if reference is None or len(means[0]) < 2 or any(math.isnan(value) for of in means for value in of.values()):
        return None
    return results.compare(dataset, baseline=reference, convention=convention)


def _written(results: Results, paragraph: Callable[[str], str], table: Callable[[Table], str]) -> str:
    parts = [part for dataset in results.datasets for part in _dataset(results, dataset)]
    parts += [f"{note}" for note in results.notes] + _warned(results)
    return "\n\n".join(table(part) if isinstance(part, Table) else paragraph(part) for part in parts)


def _dataset(results: Results, dataset: str) -> list[str | Table]:
    parts: list[str | Table] = []
    for convention in results.conventions:
        parts += _under(results, dataset, convention)
    failed: dict[tuple[str, str], list[str]] = {}
    for one in results.failures:
        if one.dataset == dataset:
            failed.setdefault((one.system, one.error), []).append(one.fold)
    parts += [
        f"{_DASH} {system} failed on {', '.join(dict.fromkeys(folds))}: {error}"
        for (system, error), folds in failed.items()
    ]
    return parts


def _under(results: Results, dataset: str, convention: str) -> list[str | Table]:
    folds = results.provenance["datasets"][dataset]["folds"]
    queries = sum(fold["queries"]["test"] for fold in folds)
    seeds = f", systems that draw: mean over {results.repeats} seeds" if results.repeats > 1 else ""
    size = f"{_count(len(folds), 'fold')}, {_count(queries, 'test query', 'test queries')}"
    heading = f"{dataset}: {size}, convention {convention}{seeds}."
    compared = comparison_of(results, dataset, convention)
    means = _means_table(results, dataset, convention, compared)
    if compared is None:
        return [heading, "Mean of fold means:", means]
    why = "the baseline" if compared.baseline == results.provenance["baseline"] else f"the best by {results.metrics[0]}"
    return [
        heading,
        f"Mean of fold means; * differs from {compared.baseline}, {why}:",
        means,
        f"Pooled queries: mean, and paired difference to {compared.baseline} with {_level(compared)} interval:",
        _pooled_table(results, compared),
        _methods(compared),
    ]


def _methods(compared: Comparison) -> str:
    """How the marks and intervals were found."""
    correction = "uncorrected" if compared.correction == "none" else f"{compared.correction.capitalize()} over"
    systems, metrics = len(compared.systems) - 1, len(compared.metrics)
    family = f"{correction} {compared.tests} ({_count(systems, 'system')} × {_count(metrics, 'metric')})"
    return (
        f"*: p ≤ {compared.alpha:g}, paired {compared.test} test on the pooled queries, two-sided, {family}. "
        f"Intervals: studentised bootstrap, {compared.resamples:,} resamples, each for itself. Seed {compared.seed}."
    )


def _count(number: int, singular: str, plural: str = "") -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def _level(compared: Comparison) -> str:
    return f"{100 * compared.confidence:g} %"


def _means_table(results: Results, dataset: str, convention: str, compared: Comparison | None) -> Table:
    means = {metric: results.fold_means(metric, convention, dataset) for metric in results.metrics}
    stars = {(d.a, d.metric) for d in compared.differences if d.significant} if compared is not None else set()

    def cell(system: str, metric: str) -> str:
        value = means[metric].get(system, math.nan)
        return _DASH if math.isnan(value) else number(value) + ("*" if (system, metric) in stars else "")

    rows = [(system, *(cell(system, metric) for metric in results.metrics)) for system in results.systems]
    return Table(("system", *results.metrics), rows, names=1)


def _pooled_table(results: Results, compared: Comparison) -> Table:
    differences = {(d.a, d.metric): d for d in compared.differences}
    header = ["system"]
    for metric in compared.metrics:
        header += [metric, "difference"]
    rows = []
    for system in compared.systems:
        row = [system]
        for metric in compared.metrics:
            one = differences.get((system, metric))
            row += [number(compared.means[system][metric]), "" if one is None else _difference(one)]
        rows.append(tuple(row))
    rows += [(system, *([_DASH] * (len(header) - 1))) for system in results.systems if system not in compared.systems]
    return Table(tuple(header), rows, names=1)


def _difference(one: Difference) -> str:
    interval = f"[{number(one.interval.low)}, {number(one.interval.high)}]"
    return f"{number(one.difference)} {interval}{'*' if one.significant else ''}"


def _warned(results: Results) -> list[str]:
    warned = [cell for cell in results.cells if cell.warnings]
    if not warned:
        return []
    cells = "1 cell" if len(warned) == 1 else f"{len(warned)} cells"
    example = warned[0]
    return [
        f"{cells} warned; the first, {example.system} on {example.dataset} {example.fold}: {example.warnings[0]} "
        "All are in Results.cells."
    ]
