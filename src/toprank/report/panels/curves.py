"""Curves: metrics by cutoff, and learning curves by round or penalty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from toprank.display.pictures import Chart, Line, curves
from toprank.display.svg import Markup, join, shortened, tag
from toprank.display.tables import Table
from toprank.evaluation.cutoffs import ValuesAtCutoffs
from toprank.experiment import Cell
from toprank.metrics.parsing import parse
from toprank.report.content import RankedCollection
from toprank.report.parts import Panel, legend, panel, plain_table, plotted, side_by_side
from toprank.significance.results import number


def charts_at_cutoffs(metrics: Sequence[ValuesAtCutoffs], styles: Mapping[str, int]) -> tuple[Chart, ...]:
    """Return one chart per metric: means of the systems by cutoff."""
    charts = []
    for metric in metrics:
        ks = tuple(map(float, metric.cutoffs))
        lines = tuple(Line(system, ks, metric.means_of(system), style) for system, style in styles.items())
        charts.append(Chart(f"{metric.measure} at k", "k", f"mean {metric.measure}@k", lines))
    return tuple(charts)


def _cutoffs_shown(part: RankedCollection, _: str) -> Markup | None:
    """Show metrics by cutoff, with collapsed tables of the numbers."""
    if not part.at_k:
        return None
    panels = [panel(picture.title, curves(picture, named=False).figure()) for picture in part.at_k]
    tables = []
    for picture in part.at_k:
        rows = [(line.name, *(number(y) for y in line.y)) for line in picture.lines]
        header = (picture.title, *(f"{x:g}" for x in picture.lines[0].x))
        tables.append(plain_table(Table(header, rows, names=1), picture.title))
    numbers = tag("details", tag("summary", "The numbers"), *tables)
    return join([legend(plotted(part.comparison)), side_by_side(*panels), numbers])


CUTOFFS = Panel(
    "curves",
    "Cutoffs",
    "Metric by cutoff",
    "Do the systems differ only at the top of the list, or also further down?",
    _cutoffs_shown,
)


_MAX_FOLDS = 7  # curves in one panel


def curves_of_rankers(rankers: Mapping[str, Any], styles: Mapping[str, int]) -> tuple[Chart, ...]:
    """Return learning curves of rankers with a training history, and metrics by penalty for regularization paths."""
    charts: list[Chart] = []
    for name, ranker in rankers.items():
        metric = str(getattr(ranker, "metric", "metric"))
        charts += _history_charts(name, getattr(ranker, "history_", None) or {}, metric)
        charts += _path_charts(name, getattr(ranker, "path_", None) or [], metric, styles.get(name, 0))
    return tuple(charts)


def _history_charts(name: str, history: Mapping[str, Sequence[float]], metric: str) -> list[Chart]:
    step = next((key for key in ("round", "epoch", "iteration") if key in history), None)
    columns = {key: list(values) for key, values in history.items() if key != step and _numbers(values)}
    judged: dict[str, list[float]] = {key: columns.pop(key) for key in ("train", "valid") if key in columns}
    groups = [(metric, judged)] if judged else []
    groups += [(key.replace("_", " "), {key: values}) for key, values in columns.items() if "second" not in key]
    charts = []
    for label, lines in groups:
        length = max(map(len, lines.values()))
        if length < 2:
            continue
        xs = [float(x) for x in history[step]] if step is not None else []
        drawn = []
        for i, (key, values) in enumerate(lines.items()):
            x = xs[-len(values) :] if len(xs) >= len(values) else [float(j + 1) for j in range(len(values))]
            shown = {"train": "training data", "valid": "validation data"}.get(key, key.replace("_", " "))
            drawn.append(Line(shown, tuple(x), tuple(map(float, values)), i))
        charts.append(Chart(name, step or "step", label, tuple(drawn), markers=False))
    return charts


def _numbers(values: Any) -> bool:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return array.ndim == 1 and bool(np.isfinite(array).any())


def _path_charts(name: str, path: Sequence[Mapping[str, Any]], metric: str, style: int) -> list[Chart]:
    tried = sorted((float(row["l2"]), float(row["valid"])) for row in path if row.get("l2", 0) > 0 and "valid" in row)
    if len({l2 for l2, _ in tried}) < 2:
        return []
    xs, ys = zip(*tried, strict=True)
    line = Line("validation data", xs, ys, style)
    return [Chart(name, "penalty l2", metric, (line,), scale="log")]


def curves_of_cells(cells: Sequence[Cell], systems: Sequence[str]) -> tuple[Chart, ...]:
    """Return one chart per system with one curve per fold: validation metric by round or penalty."""
    charts = []
    for system in systems:
        own = [cell for cell in cells if cell.system == system]
        own = [cell for cell in own if cell.seed == own[0].seed][:_MAX_FOLDS]
        metric = next((cell.metric for cell in own if cell.metric), "metric")
        rounds = [_rounds(cell, i) for i, cell in enumerate(own)]
        lines = tuple(line for line in rounds if line is not None)
        if lines:
            step = next((key for key in ("round", "epoch") if key in own[0].history), "step")
            charts.append(Chart(system, step, f"{metric} on validation data", lines, markers=False))
        paths = [_penalties(cell, i) for i, cell in enumerate(own)]
        walked = tuple(line for line in paths if line is not None)
        if walked:
            charts.append(Chart(system, "penalty l2", f"{metric} on validation data", walked, scale="log"))
    return tuple(charts)


def _rounds(cell: Cell, style: int) -> Line | None:
    values = [math.nan if v is None else float(v) for v in cell.history.get("valid", [])]
    if len(values) < 2 or not any(map(math.isfinite, values)):
        return None
    steps = next((cell.history[key] for key in ("round", "epoch") if key in cell.history), [])
    x = steps if len(steps) == len(values) else range(1, len(values) + 1)
    return Line(cell.fold, tuple(map(float, x)), tuple(values), style)


def _penalties(cell: Cell, style: int) -> Line | None:
    """Return the best value for each penalty over all other hyperparameters."""
    higher = cell.metric is None or parse(cell.metric).higher_is_better
    best: dict[float, float] = {}
    for row in cell.candidates:
        l2, valid = row.get("l2"), row.get("valid")
        if l2 is None or valid is None or not l2 > 0:
            continue
        kept = best.get(float(l2))
        best[float(l2)] = float(valid) if kept is None else (max if higher else min)(kept, float(valid))
    if len(best) < 2:
        return None
    return Line(cell.fold, tuple(sorted(best)), tuple(best[l2] for l2 in sorted(best)), style)


def _learning_shown(part: RankedCollection, _: str) -> Markup | None:
    """Show one panel per chart; training and validation data differ by color and marker."""
    if not part.learning:
        return None
    panels = []
    for picture in part.learning:
        heading = f"{shortened(picture.title, 40)}: {picture.y_label}"
        drawn = curves(picture, named=False).figure()
        if len(picture.lines) == 1:
            panels.append(panel(f"{heading} on {picture.lines[0].name}", drawn))
        else:
            panels.append(panel(heading, legend({line.name: line.style for line in picture.lines}), drawn))
    return side_by_side(*panels)


_LEARNING = f"Metric by training round or by penalty. Experiments show the first seed and at most {_MAX_FOLDS} folds."
LEARNING = Panel("learning", "Learning", "Learning curves", _LEARNING, _learning_shown)
