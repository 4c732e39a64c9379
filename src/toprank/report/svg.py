"""The few things that every plot is made of: scales with round ticks, axes, markers.

Plots are drawn for a width of 360 pixels, so that a phone shows them at their own size; wide pages put several side by
side. Colours come from the style sheet, by classes: ``s0`` … ``s6`` for systems, which also differ by marker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toprank.report.markup import Markup, join, plain, tag

__all__ = ["COLOURS", "Box", "Scale", "axes", "figure", "marker", "path", "swatch", "ticks", "title"]

COLOURS = 7  # the colour-blind safe palette of Okabe and Ito, without its yellow, which white paper swallows
WIDTH = 360.0
_DASHES = (None, "6 3", "2 2.5", "8 3 2 3")


class Box(NamedTuple):
    """Where the curves are drawn, within the picture."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Scale:
    """From values to pixels, linear or logarithmic."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; beyond the ends it stays at the end."""
        low, high, at = (
            (math.log(v) for v in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        )
        share = 0.5 if high == low else (at - low) / (high - low)
        return self.start + min(max(share, 0.0), 1.0) * (self.stop - self.start)


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """About so many round numbers within a range.

    >>> ticks(0.0, 1.0), ticks(0.31, 0.34, 3)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.31, 0.32, 0.33, 0.34])
    """
    if not high > low:
        return [low]
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def figure(name: str, height: float, *content: Markup, width: float = WIDTH, role: str = "img") -> Markup:
    """A picture with a name for those who cannot see it; `role` "group" where parts of it can be chosen."""
    box = f"0 0 {plain(width)} {plain(height)}"
    return tag("svg", *content, cls="plot", viewBox=box, role=role, aria_label=name)


def title(words: str) -> Markup:
    """What a mark stands for, shown when it is pointed at."""
    return tag("title", words)


def path(points: Sequence[tuple[float, float]], close: bool = False) -> str:
    """The `d` of a path through points."""
    return "M" + "L".join(f"{plain(float(x))} {plain(float(y))}" for x, y in points) + ("Z" if close else "")


def axes(
    box: Box,
    x: Scale,
    y: Scale,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    x_label: str = "",
    y_label: str = "",
) -> Markup:
    """Grid lines with their numbers, and what the axes are."""
    parts = []
    for value, shown in y_ticks:
        at = y(value)
        parts.append(tag("line", x1=box.left, x2=box.right, y1=at, y2=at, cls="grid"))
        parts.append(tag("text", shown, x=box.left - 6, y=at + 3.5, cls="tick end"))
    for value, shown in x_ticks:
        parts.append(tag("text", shown, x=x(value), y=box.bottom + 15, cls="tick mid"))
    parts.append(tag("line", x1=box.left, x2=box.right, y1=box.bottom, y2=box.bottom, cls="axis"))
    if x_label:
        parts.append(tag("text", x_label, x=(box.left + box.right) / 2, y=box.bottom + 31, cls="label mid"))
    if y_label:
        parts.append(tag("text", y_label, x=box.left, y=box.top - 8, cls="label"))
    return join(parts)


def _polygon(x: float, y: float, corners: Sequence[tuple[float, float]]) -> str:
    return path([(x + dx, y + dy) for dx, dy in corners], close=True)


_CORNERS: tuple[Callable[[float], list[tuple[float, float]]] | None, ...] = (
    None,  # a circle
    lambda r: [(-r, -r), (r, -r), (r, r), (-r, r)],
    lambda r: [(0, -1.3 * r), (1.2 * r, 0.9 * r), (-1.2 * r, 0.9 * r)],
    lambda r: [(0, -1.4 * r), (1.4 * r, 0), (0, 1.4 * r), (-1.4 * r, 0)],
    lambda r: [(0, 1.3 * r), (1.2 * r, -0.9 * r), (-1.2 * r, -0.9 * r)],
    lambda r: [(-1.3 * r, 0), (0.9 * r, -1.2 * r), (0.9 * r, 1.2 * r)],
    lambda r: [(1.3 * r, 0), (-0.9 * r, -1.2 * r), (-0.9 * r, 1.2 * r)],
)


def colour(style: int) -> str:
    """The class that gives a system its colour."""
    return f"s{style % COLOURS}"


def dashes(style: int) -> str | None:
    """How the line of a system is broken: not before colours and markers have been used up."""
    return _DASHES[(style // COLOURS) % len(_DASHES)]


def marker(style: int, x: float, y: float, words: str | None = None, size: float = 3.6) -> Markup:
    """The mark of a system: shape and colour; hollow in the second round."""
    corners = _CORNERS[style % COLOURS]
    hollow = " hollow" if (style // COLOURS) % 2 else ""
    classes = f"mark {colour(style)}{hollow}"
    inside = None if words is None else title(words)
    if corners is None:
        return tag("circle", inside, cx=float(x), cy=float(y), r=size, cls=classes)
    return tag("path", inside, d=_polygon(x, y, corners(size * 0.92)), cls=classes)


def swatch(style: int) -> Markup:
    """Line and mark of a system, for a legend or a table."""
    line = tag("line", x1=1, x2=25, y1=7, y2=7, cls=f"curve {colour(style)}", stroke_dasharray=dashes(style))
    return tag("svg", line, marker(style, 13, 7), cls="swatch", viewBox="0 0 26 14", aria_hidden="true")
