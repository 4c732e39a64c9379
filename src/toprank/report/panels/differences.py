"""Differences with their intervals, as a plot and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toprank.comparison import Difference
from toprank.drawing import WIDTH, Box, Markup, Scale, axes, figure, join, shortened, tag, ticks, title
from toprank.report.headline import turned_around
from toprank.report.parts import Panel, panel, plain_table, side_by_side, signed

if TYPE_CHECKING:
    from toprank.report.content import Part

__all__ = ["DIFFERENCES"]

_ALL_PAIRS = 15  # rows of an interval plot; with more pairs, those of the leader are shown
_PANELS = 4  # metrics with an interval plot; the table holds all
_ROW = 40.0
_WORDS = 19.0  # of a row, for the names above the interval
_NAME = 26


def _verdicts(part: Part) -> Markup:
    comparison = part.comparison
    items = tag("ul", *(tag("li", verdict) for verdict in comparison.verdicts), cls="verdicts")
    table = plain_table(comparison.differences_table(), "Differences")
    few = len(comparison.verdicts) <= 6
    return tag(
        "div",
        tag("details", tag("summary", "In words"), items, open=few),
        tag("details", tag("summary", "All differences as a table"), table),
    )


def _intervals(part: Part) -> Markup:
    """One panel for each metric."""
    comparison = part.comparison
    panels = []
    for metric in comparison.metrics[:_PANELS]:
        rows = _by_rank([d for d in comparison.differences if d.metric == metric], part)
        if len(rows) > _ALL_PAIRS and comparison.baseline is None:
            rows = [d for d in rows if part.ranked_systems[0] in (d.a, d.b)]
        rows = rows[: 2 * _ALL_PAIRS]
        panels.append(panel(metric, _interval_plot(rows, comparison.margin)))
    return side_by_side(*panels)


def _by_rank(rows: list[Difference], part: Part) -> list[Difference]:
    """In the order of the table; where all pairs are compared, or all with the leader, the higher system first."""
    place = {name: i for i, name in enumerate(part.ranked_systems)}
    if part.comparison.baseline is None or part.against_leader:
        rows = [d if place[d.a] < place[d.b] else turned_around(d) for d in rows]
    return sorted(rows, key=lambda d: (place[d.a], place[d.b]))


def _interval_plot(differences: Sequence[Difference], margin: float) -> Markup:
    """One row for each difference: the mean, its interval, zero, and the band of differences that do not matter."""
    ends = [e for d in differences for e in (*d.interval, d.difference) if math.isfinite(e)]
    reach = max([abs(e) for e in ends] + [margin]) * 1.08
    low, high = min([0.0, *ends]) - 0.06 * reach, max([0.0, *ends]) + 0.06 * reach
    bottom = 8 + _ROW * len(differences)
    box = Box(10, 8, WIDTH - 78, bottom)  # the numbers stand to the right of the plot
    x = Scale(low, high, box.left, box.right)
    behind = [_behind_row(margin, x, box.top + _ROW * i) for i in range(len(differences))]
    marked = [(value, f"{value:g}".replace("-", "−")) for value in ticks(low, high, 4)]
    frame = axes(box, x, Scale(0, 1, bottom, box.top), marked, [])
    rows = [_interval_row(d, x, box.top + _ROW * i) for i, d in enumerate(differences)]
    metric = differences[0].metric
    return figure(f"Differences in {metric} with their intervals", bottom + 22, *behind, frame, *rows)


def _behind_row(margin: float, x: Scale, top: float) -> Markup:
    """Zero and the band of one row, below its words: a line through words cannot be read, nor can they."""
    top, height = top + _WORDS, _ROW - _WORDS
    return join(
        [
            tag("rect", title(f"differences within ±{margin:g}"), x=x(-margin), y=top, cls="band",
                width=x(margin) - x(-margin), height=height),
            tag("line", x1=x(0.0), x2=x(0.0), y1=top, y2=top + height, cls="zero"),
        ]
    )  # fmt: skip


def _interval_row(d: Difference, x: Scale, top: float) -> Markup:
    low, high = d.interval
    y = top + 28
    verdict = "significant" if d.significant else "equivalent" if d.equivalent else "not significant"
    words = f"{d.a} − {d.b}: {signed(d.difference)} [{signed(low)}, {signed(high)}] {d.metric}, {verdict}"
    better = (d.difference > 0) != d.lower_is_better
    kind = ("win" if better else "loss") if d.significant else "flat"
    sign = {"win": " ▲", "loss": " ▼"}.get(kind, " ≈" if d.equivalent else "")
    pair = f"{shortened(d.a, _NAME)} − {shortened(d.b, _NAME)}"
    left, right = x(low), x(high)  # an infinite end stops at the edge
    return tag(
        "g",
        title(words),
        tag("rect", x=0, y=top, width=WIDTH, height=_ROW, cls="hit"),
        tag("text", pair, x=10, y=top + 14, cls="name"),
        tag("text", signed(d.difference) + sign, x=WIDTH - 4, y=y + 4, cls="name end"),
        tag("line", x1=left, x2=right, y1=y, y2=y, cls=f"whisker {kind}"),
        *(tag("line", x1=end, x2=end, y1=y - 4, y2=y + 4, cls=f"whisker {kind}") for end in (left, right)),
        tag("circle", cx=x(d.difference), cy=y, r=4.5, cls=f"dot {kind}"),
    )


def _shown(part: Part, _: str) -> Markup:
    beside = "beside" if len(part.comparison.metrics) == 1 else None  # a single plot leaves room for words at its side
    plots = tag("div", _intervals(part), _verdicts(part), cls=beside)
    return join([plots, tag("p", part.comparison.methods, cls="remark")])


def _remark(part: Part) -> str:
    return (
        "Each line is an interval of the mean difference over queries; one that stays clear of zero is not easily "
        f"chance. The shaded band is ±{part.comparison.margin:g}: differences within it do not matter."
    )


DIFFERENCES = Panel("differences", "Differences", "Differences and their intervals", _remark, _shown)
