"""Metrics by cut-off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.comparison.tables import Table
from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.drawing import Markup, join, tag
from toprank.metrics import NDCG
from toprank.metrics.evaluation import evaluate
from toprank.metrics.measure import Measure
from toprank.report.parts import Chart, Line, Panel, chart, legend, panel, plain_table, plotted, side_by_side
from toprank.significance.results import number

if TYPE_CHECKING:
    from toprank.report.content import Part

__all__ = ["CUTOFFS", "at_cutoffs", "curves_at"]

_CUTOFFS = 20  # points of a curve over cut-offs, at most
_FAMILIES = 3


def at_cutoffs(
    scores: Mapping[str, FloatArray],
    data: RankingData,
    measures: Mapping[str, Measure],
    styles: Mapping[str, int],
    **options: Any,
) -> tuple[Chart, ...]:
    """Means by cut-off k = 1, 2 …, for each metric that has a cut-off; where none has, NDCG."""

    def means(name: str, asked: list[Measure]) -> Mapping[str, float]:
        return evaluate(scores[name], data, asked, **options).mean

    return curves_at(means, int(data.queries.sizes.max()), measures, styles)


def curves_at(
    means_of: Callable[[str, list[Measure]], Mapping[str, float]],
    longest: int,
    measures: Mapping[str, Measure],
    styles: Mapping[str, int],
) -> tuple[Chart, ...]:
    """`at_cutoffs`, with the means of a system's measures from a function; `longest`: size of the largest query."""
    families: dict[Measure, int] = {}
    for measure in measures.values():
        if any(field.name == "k" for field in fields(measure)) and measure.depth is not None:
            bare = replace(measure, k=None)  # type: ignore[call-arg]
            families[bare] = max(families.get(bare, 0), measure.depth)
    charts = []
    for bare, deepest in list((families or {NDCG(): 10}).items())[:_FAMILIES]:
        ks = _cutoffs(max(10, deepest), longest)
        asked = {k: replace(bare, k=k) for k in ks}  # type: ignore[call-arg]
        lines = []
        for name, style in styles.items():
            means = means_of(name, list(asked.values()))
            lines.append(Line(name, tuple(map(float, ks)), tuple(means[str(one)] for one in asked.values()), style))
        charts.append(Chart(f"{bare} at k", "k", f"mean {bare}@k", tuple(lines)))
    return tuple(charts)


def _cutoffs(deepest: int, longest: int) -> list[int]:
    """1, 2, … 10, then in growing steps as far as asked, but not beyond the longest list."""
    last = max(2, min(deepest, longest))
    if last <= _CUTOFFS:
        return list(range(1, last + 1))
    return [*range(1, 11), *np.unique(np.geomspace(11, last, _CUTOFFS - 10).round().astype(int)).tolist()]


def _shown(part: Part, _: str) -> Markup | None:
    """Metrics by cut-off, with the numbers to open below."""
    if not part.at_k:
        return None
    panels = [panel(one.title, chart(one)) for one in part.at_k]
    tables = []
    for one in part.at_k:
        rows = [(line.name, *(number(y) for y in line.y)) for line in one.lines]
        header = (one.title, *(f"{x:g}" for x in one.lines[0].x))
        tables.append(plain_table(Table(header, rows, names=1), one.title))
    numbers = tag("details", tag("summary", "The numbers"), *tables)
    return join([legend(plotted(part.comparison)), side_by_side(*panels), numbers])


CUTOFFS = Panel("curves", "Cut-offs", "Metric by cut-off", "How far down the list the differences reach.", _shown)
