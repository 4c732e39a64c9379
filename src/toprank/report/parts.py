"""What several panels are made of: figures side by side, legends, tables, and charts of curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from toprank.comparison import Comparison
from toprank.drawing import (
    WIDTH,
    Box,
    Markup,
    Scale,
    axes,
    colour,
    dashes,
    figure,
    join,
    marker,
    path,
    swatch,
    tag,
    ticks,
    title,
)
from toprank.report.content import Chart, Line, RankedCollection, ranked_systems
from toprank.showing.tables import Table
from toprank.significance.results import number

__all__ = [
    "PLOTTED",
    "Panel",
    "chart",
    "curve",
    "legend",
    "panel",
    "plain_table",
    "plotted",
    "scrolling",
    "side_by_side",
]

PLOTTED = 12  # systems in the plots; the tables hold all
_POINTS = 200  # a curve of more is drawn at so many of its points


def plotted(comparison: Comparison) -> dict[str, int]:
    """The systems that are plotted, each with its number: all, or the best ones and the baseline."""
    ranked = ranked_systems(comparison)
    keep = set(ranked[:PLOTTED])
    if comparison.baseline is not None and comparison.baseline not in keep:
        keep = {*ranked[: PLOTTED - 1], comparison.baseline}
    return {system: comparison.systems.index(system) for system in ranked if system in keep}


class Panel(NamedTuple):
    """A section of the page: its anchor, its link in the menu, its heading, and a sentence that says how to read it.

    `show` gives what it shows of a part, given the key of the part's anchors; None where there is nothing to show.
    """

    name: str
    link: str
    heading: str
    remark: str | Callable[[RankedCollection], str]
    show: Callable[[RankedCollection, str], Markup | None]


def panel(heading: str, *content: Markup) -> Markup:
    """A figure among others."""
    return tag("figure", tag("figcaption", heading), *content)


def side_by_side(*panels: Markup) -> Markup:
    """Figures in a row, as many as the page is wide."""
    return tag("div", *panels, cls="panels")


def legend(systems: dict[str, int]) -> Markup:
    """Names with line and mark; pointing at one makes the others step back."""
    items = [tag("li", tag("button", swatch(i), s, type="button", data_s=i)) for s, i in systems.items()]
    return tag("ul", *items, cls="legend")


def scrolling(table: Markup, name: str) -> Markup:
    """A table that scrolls by itself where the page is narrow; reachable by keyboard, as it must be to be scrolled."""
    return tag("div", table, cls="scroll", tabindex="0", role="region", aria_label=name)


def copied(words: str) -> Markup:
    """Text with a button that copies it."""
    button = tag("button", "Copy", type="button", cls="copy")
    return tag("div", button, tag("pre", words, tabindex="0"), cls="copying")


def plain_table(table: Table, name: str) -> Markup:
    """A table of the comparison as HTML."""

    def cells(row: tuple[str, ...], kind: str) -> Markup:
        return tag("tr", *(tag(kind, c, cls=None if i < table.names else "n") for i, c in enumerate(row)))

    head = tag("thead", cells(table.header, "th"))
    return scrolling(tag("table", head, tag("tbody", *(cells(row, "td") for row in table.rows))), name)


def chart(what: Chart) -> Markup:
    """Curves with their markers."""
    xs = [v for line in what.lines for v in line.x]
    ys = [v for line in what.lines for v in line.y if math.isfinite(v)]
    low, high = min(ys), max(ys)
    room = (high - low) * 0.08 or 0.05
    box = Box(44, 10, WIDTH - 12, 190)
    log = what.scale == "log"
    x = Scale(min(xs), max(xs), box.left + 6, box.right - 6, log)
    y = Scale(low - room, high + room, box.bottom, box.top)
    frame = axes(box, x, y, _x_ticks(xs, log), [(v, f"{v:g}") for v in ticks(y.low, y.high, 5)], what.x_label)
    lines = join(_line(line, x, y, what) for line in what.lines)
    return figure(f"{what.title}: {what.y_label} by {what.x_label}", 230, frame, lines)


def _x_ticks(xs: list[float], log: bool) -> list[tuple[float, str]]:
    low, high = min(xs), max(xs)
    if log:
        powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
        step = max(1, math.ceil(len(powers) / 6))
        chosen = [10.0**power for power in powers[::step]] if len(powers) > 1 else [low, high]
    else:
        distinct = sorted(set(xs))
        chosen = distinct if len(distinct) <= 12 else ticks(low, high, 5)
    return [(value, f"{value:.3g}") for value in chosen]


def _line(line: Line, x: Scale, y: Scale, what: Chart) -> Markup:
    known = [(a, b) for a, b in zip(line.x, line.y, strict=True) if math.isfinite(b)]
    if not known:
        return Markup()
    points = [known[i] for i in np.unique(np.linspace(0, len(known) - 1, min(len(known), _POINTS)).astype(int))]
    marks = [
        marker(line.style, x(a), y(b), f"{line.name}, {what.x_label} {a:g}: {number(b)}")
        for a, b in (points if what.markers else points[-1:])
    ]
    drawn = curve(line.style, [(x(a), y(b)) for a, b in points], title(line.name))
    return tag("g", drawn, *marks, data_s=line.style)


def curve(style: int, points: Sequence[tuple[float, float]], *about: Markup) -> Markup:
    """The line of a system through points of the figure."""
    return tag("path", *about, d=path(points), cls=f"curve {colour(style)}", stroke_dasharray=dashes(style))
