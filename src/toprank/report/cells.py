"""What the cells of an experiment tell: means fold by fold, what was chosen, learning curves, importances."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from toprank.comparison.tables import Table
from toprank.experiment import Cell, Results
from toprank.metrics.parsing import parse
from toprank.report import measuring
from toprank.report.content import Chart, Line, Titled, Weights
from toprank.significance.results import number

__all__ = ["importances", "learning", "tables"]

_FOLDS = 7  # curves in one panel
_FOLD_MEANS = (
    "As the tables of papers have it: the mean over the queries of each fold, then over the folds. What stands above "
    "is over the pooled queries of all folds, as the tests are."
)


def tables(results: Results, dataset: str) -> list[Titled]:
    """Means of fold means under each convention, the folds one by one, and what was chosen on them."""
    systems, metrics = results.systems, results.metrics
    shown = []
    for number_of, convention in enumerate(results.conventions):
        means = {metric: results.fold_means(metric, convention, dataset) for metric in metrics}
        rows = [(s, *(_shown(means[metric].get(s)) for metric in metrics)) for s in systems]
        shown.append(
            Titled(
                f"Mean of fold means, convention {convention}",
                Table(("system", *metrics), rows, names=1),
                _FOLD_MEANS if number_of == 0 else "",
            )
        )
    folds = results.folds(dataset)
    by_fold = results.by_fold(None, None, dataset)
    rows = [(s, *(_shown(by_fold.get(s, {}).get(fold)) for fold in folds)) for s in systems]
    shown.append(Titled(f"{metrics[0]} fold by fold", Table(("system", *folds), rows, names=1), folded=True))
    shown.append(_choices(results, dataset))
    return shown


def _shown(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else number(value)


def _choices(results: Results, dataset: str) -> Titled:
    """What validation data chose, cell by cell."""
    rows = []
    for cell in _cells(results, dataset):
        options = ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in cell.options.items())
        seed = "" if cell.seed is None else str(cell.seed)
        rows.append((cell.system, cell.fold, seed, options, cell.metric or "", _shown(cell.valid)))
    header = ("system", "fold", "seed", "chosen", "by", "on validation data")
    return Titled("What validation data chose", Table(header, rows, names=5), folded=True)


def _cells(results: Results, dataset: str) -> list[Cell]:
    return [cell for cell in results.cells if cell.dataset == dataset]


def learning(results: Results, dataset: str, systems: tuple[str, ...]) -> list[Chart]:
    """For each system one panel, with a curve for each fold: validation metric by round, or by penalty."""
    charts = []
    for system in systems:
        cells = [cell for cell in _cells(results, dataset) if cell.system == system]
        first = cells[0].seed if cells else None
        cells = [cell for cell in cells if cell.seed == first][:_FOLDS]
        metric = next((cell.metric for cell in cells if cell.metric), "metric")
        rounds = [_line(cell, i) for i, cell in enumerate(cells)]
        lines = tuple(line for line in rounds if line is not None)
        if lines:
            step = next((key for key in ("round", "epoch") if key in cells[0].history), "step")
            charts.append(Chart(system, step, f"{metric} on validation data", lines, markers=False))
        paths = [_penalties(cell, i) for i, cell in enumerate(cells)]
        walked = tuple(line for line in paths if line is not None)
        if walked:
            charts.append(Chart(system, "penalty l2", f"{metric} on validation data", walked, scale="log"))
    return charts


def _line(cell: Cell, style: int) -> Line | None:
    values = [math.nan if v is None else float(v) for v in cell.history.get("valid", [])]
    if len(values) < 2 or not any(map(math.isfinite, values)):
        return None
    steps = next((cell.history[key] for key in ("round", "epoch") if key in cell.history), [])
    x = steps if len(steps) == len(values) else range(1, len(values) + 1)
    return Line(cell.fold, tuple(map(float, x)), tuple(values), style)


def _penalties(cell: Cell, style: int) -> Line | None:
    """The best that each penalty reached, whatever the other hyper-parameters were."""
    higher = cell.metric is None or parse(cell.metric).higher_is_better
    best: dict[float, float] = {}
    for row in cell.tried:
        l2, valid = row.get("l2"), row.get("valid")
        if l2 is None or valid is None or not l2 > 0:
            continue
        kept = best.get(float(l2))
        best[float(l2)] = float(valid) if kept is None else (max if higher else min)(kept, float(valid))
    if len(best) < 2:
        return None
    return Line(cell.fold, tuple(sorted(best)), tuple(best[l2] for l2 in sorted(best)), style)


def importances(results: Results, dataset: str, styles: Mapping[str, int]) -> list[Weights]:
    """Weights with their sign where a system has them, else importances, as the mean over folds and seeds."""
    names = results.provenance["datasets"][dataset]["folds"][0].get("feature_names")
    found = []
    for system, style in styles.items():
        cells = [cell for cell in _cells(results, dataset) if cell.system == system]
        signed = bool(cells) and all(cell.weights for cell in cells)
        told = [cell.weights if signed else cell.importances for cell in cells]
        if told and len({len(of) for of in told}) == 1 and told[0]:
            meaning = cells[0].meaning if signed else "Share of importance"
            mean = np.mean(np.array(told, dtype=np.float64), axis=0)
            found.append(measuring.most_important(system, style, f"{meaning}, mean over folds", mean, names))
    return found
