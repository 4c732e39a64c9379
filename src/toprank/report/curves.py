"""The plots of the systems: curves, scores by grade, calibration, weights."""

from __future__ import annotations

import math

import numpy as np

from toprank.report.content import Calibration, Chart, Line, Spread, Weights
from toprank.report.markup import Markup, join, shortened, tag
from toprank.report.svg import WIDTH, Box, Scale, axes, colour, dashes, figure, marker, path, ticks, title
from toprank.significance.results import number

__all__ = ["calibration_plot", "chart", "spread_plot", "weights_plot"]

_POINTS = 200  # a curve of more is drawn at so many of its points
_NAME = 24


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
    drawn = path([(x(a), y(b)) for a, b in points])
    marks = [
        marker(line.style, x(a), y(b), f"{line.name}, {what.x_label} {a:g}: {number(b)}")
        for a, b in (points if what.markers else points[-1:])
    ]
    curve = tag(
        "path", title(line.name), d=drawn, cls=f"curve {colour(line.style)}", stroke_dasharray=dashes(line.style)
    )
    return tag("g", curve, *marks, data_s=line.style)


def spread_plot(what: Spread) -> Markup:
    """One ridge for each grade, the highest on top, with its median."""
    row = 34.0
    top = 26.0
    box = Box(44, top, WIDTH - 10, top + row * len(what.grades))
    x = Scale(float(what.edges[0]), float(what.edges[-1]), box.left, box.right)
    marked = [(v, f"{v:g}".replace("-", "−")) for v in ticks(x.low, x.high, 6)]
    frame = axes(box, x, Scale(0, 1, box.bottom, box.top), marked, [], "score within the query, in standard deviations")
    middles = (what.edges[:-1] + what.edges[1:]) / 2
    tallest = float(what.shares.max()) or 1.0
    ridges = []
    for i in reversed(range(len(what.grades))):
        base = box.bottom - row * i - 1
        heights = what.shares[i] / tallest * row * 1.25
        outline = [(x(m), base - h) for m, h in zip(middles.tolist(), heights.tolist(), strict=True)]
        outline = [(x.start, base), *outline, (x.stop, base)]
        middle = x(float(what.medians[i]))
        words = f"grade {what.grades[i]}: {what.documents[i]:,} documents, median {what.medians[i]:+.2f}"
        ridges.append(
            tag(
                "g",
                title(words.replace("-", "−")),
                tag("path", d=path(outline, close=True), cls=f"ridge {colour(what.style)}"),
                tag("line", x1=middle, x2=middle, y1=base, y2=base - row * 0.55, cls="median"),
                tag("text", what.grades[i], x=box.left - 8, y=base - 4, cls="name end"),
            )
        )
    label = tag("text", "grade", x=box.left - 8, y=12, cls="label end")
    return figure(f"Scores of {what.system} by grade", box.bottom + 38, frame, *ridges, label)


def calibration_plot(what: Calibration) -> Markup:
    """Observed shares over predicted probabilities; on the diagonal the prediction can be taken at its word."""
    box = Box(44, 24, WIDTH - 62, 278)
    x, y = Scale(0, 1, box.left, box.right), Scale(0, 1, box.bottom, box.top)
    marks = [(v / 4, f"{v / 4:g}") for v in range(5)]
    frame = axes(box, x, y, marks, marks, "predicted P(grade ≥ 1)", "observed share")
    diagonal = tag("line", x1=x(0), y1=y(0), x2=x(1), y2=y(1), cls="zero dashed")
    bins = list(zip(what.predicted.tolist(), what.observed.tolist(), what.documents.tolist(), strict=True))
    drawn = path([(x(p), y(o)) for p, o, _ in bins])
    curve = tag("path", d=drawn, cls=f"curve {colour(what.style)}", stroke_dasharray=dashes(what.style))
    dots = [
        marker(what.style, x(p), y(o), f"predicted {p:.3f}, observed {o:.3f}, {n:,.0f} documents", size=4.2)
        for p, o, n in bins
    ]
    return figure(f"Calibration of {what.system}", 318, frame, diagonal, curve, *dots)


def weights_plot(what: Weights) -> Markup:
    """A bar for each feature, to the right where more is better, to the left where less is."""
    row, top = 19.0, 4.0
    reach = max((abs(v) for v in what.values), default=0.0) or 1.0
    two_sided = min(what.values, default=0.0) < 0
    box = Box(132, top, WIDTH - 58, top + row * len(what.values))
    x = Scale(-reach if two_sided else 0.0, reach, box.left, box.right)
    parts = []
    for i, (name, value) in enumerate(zip(what.names, what.values, strict=True)):
        y = top + row * i
        left, right = sorted((x(0.0), x(value)))
        shown = f"{value:.3g}".replace("-", "−")
        parts.append(
            tag(
                "g",
                title(f"{name}: {shown}"),
                tag("text", shortened(name, _NAME), x=126, y=y + 13, cls="name end"),
                tag("rect", x=left, y=y + 3, width=max(right - left, 0.8), height=row - 6,
                    cls=f"weight {colour(what.style)}{' minus' if value < 0 else ''}"),
                tag("text", shown, x=WIDTH - 4, y=y + 13, cls="tick end"),
            )
        )  # fmt: skip
    zero = tag("line", x1=x(0.0), x2=x(0.0), y1=box.top, y2=box.bottom, cls="zero")
    return figure(f"{what.meaning} of {what.system}", box.bottom + 6, *parts, zero)
