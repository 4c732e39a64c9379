"""SVG plots for notebooks and files, without a plotting library.

In a notebook, a plot uses the text color of the theme, and its other colors are visible on white and on black. An SVG
file has its own background, light or dark according to the reader's system.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from toprank.compute import FloatArray
from toprank.data.bytesource import output
from toprank.display.figure_files import FORMATS, needs_matplotlib, redrawn
from toprank.display.svg import (
    WIDTH,
    Box,
    Markup,
    Scale,
    axes,
    color,
    dashes,
    figure,
    join,
    marked_ticks,
    marker,
    path,
    shortened,
    tag,
    ticks,
    title,
)
from toprank.errors import DataError

_TEXT_STYLE = """
.toprank{line-height:1.45}.toprank p{margin:.5em 0;max-width:60em;white-space:pre-line}.toprank .note{opacity:.75}
.toprank .wide{overflow-x:auto}.toprank table{border-collapse:collapse;margin:.5em 0;font-variant-numeric:tabular-nums}
.toprank th,.toprank td{text-align:right;padding:.2em .7em;white-space:nowrap}.toprank thead{border-bottom:1px solid}
.toprank .w{text-align:left}
"""
_PLOT_STYLE = """
.toprank text{font:11px system-ui,sans-serif;fill:currentColor}.toprank .title{font-size:15px;font-weight:600}
.toprank .tick,.toprank .label,.toprank .muted{opacity:.75}
.toprank .mid{text-anchor:middle}.toprank .end{text-anchor:end}
.toprank .grid,.toprank .axis,.toprank .zero{stroke:currentColor;stroke-opacity:.2;fill:none}
.toprank .axis,.toprank .zero{stroke-opacity:.6}.toprank .band{fill:currentColor;fill-opacity:.1}
.toprank .bar,.toprank .dot,.toprank .mark{fill:#2a8fd0}.toprank .line,.toprank .win{stroke:#2a8fd0;stroke-width:2}
.toprank .line{fill:none}.toprank .loss{stroke:#d9681d;stroke-width:2}.toprank .dot.loss{fill:#d9681d}
.toprank .flat{stroke:#868c94;stroke-width:2}.toprank .rest,.toprank .dot.flat{fill:#868c94}
.toprank .faint{fill-opacity:.4}.toprank .hit{fill:none}
.toprank .s0{color:#0072b2}.toprank .s1{color:#d55e00}.toprank .s2{color:#009e73}.toprank .s3{color:#b8609a}
.toprank .s4{color:#b87e00}.toprank .s5{color:#3896cf}.toprank .s6{color:#868c94}
.toprank .curve{fill:none;stroke:currentColor;stroke-width:2}
.toprank .mark[class*=" s"]{fill:currentColor;stroke:currentColor}
.toprank .mark.hollow{fill:none}
"""
_LIGHT = {"background": "#fff", "color": "#1b1f24"}
_PAPER = """
svg{background:#fff;color:#1b1f24}@media (prefers-color-scheme:dark){svg{background:#14171a;color:#e6e9ec}}
"""


def framed(*content: Markup) -> str:
    """Return HTML for a notebook with a style sheet that applies only to this content."""
    return tag("div", tag("style", Markup(_TEXT_STYLE.strip())), *content, cls="toprank")


class Picture:
    """A plot, displayed by notebooks and written to a file by `save`.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=20, seed=0)
    >>> tr.evaluate(data.X[:, 0], data, "ndcg@10").plot()
    Picture(ndcg@10 of 20 queries)
    """

    def __init__(self, name: str, height: float, *content: Markup, width: float = WIDTH) -> None:
        self.name = name
        self._content, self._height, self._width = content, height, width

    def svg(self) -> str:
        """Return the plot as a self-contained SVG document for light and dark color schemes."""
        return self._svg(_PLOT_STYLE + _PAPER)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plot to an .svg, .png or .pdf file atomically; PNG and PDF need the extra `plots`."""
        kind = check_picture_path(path)
        encoded = self.svg().encode() if kind == "svg" else redrawn(self.svg(), _PLOT_STYLE, _LIGHT, kind)
        with output(path) as file:
            file.write(encoded)

    def figure(self, *first: Markup) -> Markup:
        """Return the plot as markup for a page that defines the style sheet."""
        return figure(self.name, self._height, *first, *self._content, width=self._width)

    def _svg(self, style: str) -> str:
        opening = f'class="toprank" xmlns="http://www.w3.org/2000/svg" width="{max(450, round(self._width))}"'
        drawn = self.figure(tag("style", Markup(style.strip())), title(self.name))
        return drawn.replace('class="plot"', f'{opening} style="max-width:100%;height:auto"', 1)

    def _repr_html_(self) -> str:
        return self._svg(_PLOT_STYLE)

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        return f"Picture({self.name})"


def check_picture_path(where: str | os.PathLike[str]) -> str:
    """Return the format given by the suffix of a path; raise an error if it is not supported."""
    kind = Path(where).suffix.lower().removeprefix(".")
    if kind not in ("svg", *FORMATS):
        raise DataError(
            f"{os.fspath(where)!r} is not a supported plot file. Use a name that ends in .svg, .png or .pdf."
        )
    if kind != "svg":
        needs_matplotlib()
    return kind


_N_BINS = 20
_ROW_HEIGHT = 21.0  # bar with its name
_MAX_POINTS = 200  # longer curves are thinned to this number of points
_KEY_HEIGHT = 16.0  # one line of the legend


def histogram(name: str, values: FloatArray, mean: float, label: str) -> Picture:
    """Draw a histogram of per-query values with a line at the mean."""
    seen = values[np.isfinite(values)]
    if not len(seen):
        raise DataError(f"There is nothing to plot: no query has a value under {label}.")
    low, high = min(0.0, float(seen.min())), max(1.0, float(seen.max()))
    counts, edges = np.histogram(seen, _N_BINS, (low, high))
    box = Box(44, 24, WIDTH - 12, 190)
    x, y = Scale(low, high, box.left, box.right), Scale(0, float(counts.max()), box.bottom, box.top)
    bars = [
        tag("rect", title(f"{left:.3g} to {right:.3g}: {count:,}"), cls="bar", x=x(left) + 0.5, y=y(count),
            width=x(right) - x(left) - 1, height=box.bottom - y(count))
        for count, left, right in zip(counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        if count
    ]  # fmt: skip
    whole = [(v, words) for v, words in marked_ticks(0, y.high, 4) if v == round(v)]
    frame = axes(box, x, y, marked_ticks(low, high), whole, label, "queries")
    at = tag("line", title(f"mean {mean:.4f}"), x1=x(mean), x2=x(mean), y1=box.top, y2=box.bottom, cls="loss")
    end = "end" if mean > (low + high) / 2 else None
    words = tag("text", f"mean {mean:.4f}", x=x(mean) + (-5 if end else 5), y=box.top - 6, cls=end)
    return Picture(name, 230, frame, *bars, at, words)


def strips(name: str, rows: Mapping[str, Sequence[float]], means: Mapping[str, float], label: str) -> Picture:
    """Draw a strip plot with one row per name: values as pale marks, their mean as a labeled mark."""
    seen = [value for values in rows.values() for value in values if np.isfinite(value)]
    if not seen:
        raise DataError(f"There is nothing to plot: no system has a value under {label}.")
    room = (max(seen) - min(seen)) * 0.06 or 0.01
    bottom = 8 + 34.0 * len(rows)
    box = Box(10, 8, WIDTH - 60, bottom)
    x, y = Scale(min(seen) - room, max(seen) + room, box.left, box.right), Scale(0, 1, bottom, 8)
    frame = axes(box, x, y, marked_ticks(x.low, x.high, 4), [], label)
    drawn = []
    for place, (row, values) in enumerate(rows.items()):
        at = 8 + 34.0 * place + 24
        drawn.append(tag("text", shortened(row, 40), x=10, y=at - 12))
        drawn.append(tag("line", x1=box.left, x2=box.right, y1=at, y2=at, cls="grid"))
        drawn += [tag("circle", title(f"{v:.4f}"), cx=x(v), cy=at, r=3, cls="mark faint") for v in values if v == v]
        if means[row] == means[row]:
            drawn.append(marker(3, x(means[row]), at, f"{row}: {means[row]:.4f}", 4.5))
            drawn.append(tag("text", f"{means[row]:.4f}", x=WIDTH - 4, y=at + 4, cls="end"))
    return Picture(name, bottom + 40, frame, *drawn)


def signed_bars(name: str, rows: Sequence[tuple[str, str, float, float, float]], label: str = "") -> Picture:
    """Draw a horizontal bar for each row (name, tooltip, value, low, high), to the right for positive values.

    If low is less than high, a whisker shows the interval; infinite bounds are clipped at the edge.
    """
    if not rows:
        raise DataError("There is nothing to plot: no feature has an effect.")
    ends = [end for _, _, *values in rows for end in values if np.isfinite(end)]
    reach = max(map(abs, ends)) or 1.0
    bottom = 6 + _ROW_HEIGHT * len(rows)
    box = Box(128, 6, WIDTH - 62, bottom)
    x = Scale(min(0.0, *ends) - 0.02 * reach, max(0.0, *ends) + 0.02 * reach, box.left, box.right)
    marked = marked_ticks(x.low, x.high, 4)
    drawn = [axes(box, x, Scale(0, 1, bottom, box.top), marked, [], label)]
    drawn.append(tag("line", x1=x(0.0), x2=x(0.0), y1=box.top, y2=bottom, cls="zero"))
    for place, (row, words, value, low, high) in enumerate(rows):
        at = box.top + _ROW_HEIGHT * place
        left, right = sorted((x(0.0), x(value)))
        bar = tag("rect", x=left, y=at + 4, width=max(right - left, 0.8), height=_ROW_HEIGHT - 8,
                  cls="dot win" if value >= 0 else "dot loss")  # fmt: skip
        middle = at + _ROW_HEIGHT / 2
        whisker = tag("line", x1=x(low), x2=x(high), y1=middle, y2=middle, cls="axis") if low < high else None
        shown = f"{value:+.3g}".replace("-", "−")
        drawn.append(tag(
            "g", title(words), tag("text", shortened(row, 22), x=122, y=at + 14.5, cls="name end"), bar, whisker,
            tag("text", shown, x=WIDTH - 4, y=at + 14.5, cls="tick end"),
        ))  # fmt: skip
    return Picture(name, bottom + (40 if label else 24), *drawn)


@dataclass(frozen=True)
class Line:
    """A curve; `style` is the index of its system, which determines color, marker and dashes."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: int


@dataclass(frozen=True)
class Chart:
    """Curves that share both axes."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    scale: Literal["linear", "log"] = "linear"
    markers: bool = True


def curves(chart: Chart, named: bool = True) -> Picture:
    """Draw curves with markers; `named` adds a legend below the plot."""
    xs = [v for line in chart.lines for v in line.x]
    ys = [v for line in chart.lines for v in line.y if math.isfinite(v)]
    low, high = min(ys), max(ys)
    room = (high - low) * 0.08 or 0.05
    box = Box(44, 10, WIDTH - 12, 190)
    log = chart.scale == "log"
    x = Scale(min(xs), max(xs), box.left + 6, box.right - 6, log)
    y = Scale(low - room, high + room, box.bottom, box.top)
    frame = axes(box, x, y, _x_ticks(xs, log), marked_ticks(y.low, y.high, 5), chart.x_label)
    lines = join(_line(line, x, y, chart) for line in chart.lines)
    styles = {line.name: line.style for line in chart.lines} if named and len(chart.lines) > 1 else {}
    height = 230 + _KEY_HEIGHT * len(styles)
    return Picture(f"{chart.title}: {chart.y_label} by {chart.x_label}", height, frame, lines, key(styles, 228))


def key(styles: Mapping[str, int], top: float) -> Markup:
    """Draw a legend: names with line and marker, one per line."""
    rows = []
    for place, (name, style) in enumerate(styles.items()):
        at = top + _KEY_HEIGHT * (place + 0.5)
        rows += [curve(style, [(44, at), (68, at)]), marker(style, 56, at)]
        rows.append(tag("text", shortened(name, 44), x=76, y=at + 4))
    return join(rows)


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


def _line(line: Line, x: Scale, y: Scale, chart: Chart) -> Markup:
    known = [(a, b) for a, b in zip(line.x, line.y, strict=True) if math.isfinite(b)]
    if not known:
        return Markup()
    points = [known[i] for i in np.unique(np.linspace(0, len(known) - 1, min(len(known), _MAX_POINTS)).astype(int))]
    marks = [
        marker(line.style, x(a), y(b), f"{line.name}, {chart.x_label} {a:g}: {b:.4g}")
        for a, b in (points if chart.markers else points[-1:])
    ]
    drawn = curve(line.style, [(x(a), y(b)) for a, b in points], title(line.name))
    return tag("g", drawn, *marks, data_s=line.style)


def curve(style: int, points: Sequence[tuple[float, float]], *about: Markup) -> Markup:
    """Draw the line of a system through the given points."""
    return tag("path", *about, d=path(points), cls=f"curve {color(style)}", stroke_dasharray=dashes(style))
