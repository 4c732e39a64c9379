"""HTML and SVG markup that is always escaped, and the elements of plots.

`tag` escapes strings except `Markup`. Plots are 360 pixels wide, so that phones show them unscaled and wide pages show
several side by side. Colors are set by the classes ``s0`` … ``s6`` of the style sheet, one per system; systems also
differ by marker.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_VOID = frozenset({"br", "hr", "input", "meta", "link"})
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")  # not allowed in HTML


class Markup(str):
    """String that is HTML or SVG markup and needs no escaping."""

    __slots__ = ()


def text(value: str) -> Markup:
    """Escape text for markup and replace characters that HTML does not allow."""
    return value if isinstance(value, Markup) else Markup(html.escape(_CONTROL.sub("\ufffd", value)))


def tag(name: str, /, *children: str | None, **attributes: Any) -> Markup:
    """Return an element; strings are escaped and None is left out. ``cls`` becomes class, ``_`` in names a hyphen.

    >>> tag("p", "1 < 2", tag("b", "!"), cls="note", id=None)
    '<p class="note">1 &lt; 2<b>!</b></p>'
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = "class" if key == "cls" else key.strip("_").replace("_", "-")
        parts.append(f" {attribute}" if value is True else f' {attribute}="{text(plain(value))}"')
    parts.append(">")
    if name not in _VOID:
        parts += [text(child) for child in children if child is not None]
        parts.append(f"</{name}>")
    return Markup("".join(parts))


def plain(value: Any) -> str:
    """Format a float with at most one decimal, the precision of pixel positions; return other values as text.

    >>> plain(12.04), plain(-0.01), plain(3), plain("a")
    ('12', '0', '3', 'a')
    """
    if not isinstance(value, float):
        return str(value)
    shown = f"{value:.1f}".removesuffix(".0")
    return "0" if shown == "-0" else shown


def join(parts: Iterable[str]) -> Markup:
    """Concatenate pieces of markup; strings are escaped."""
    return Markup("".join(text(part) for part in parts))


def safe_json(value: Any) -> Markup:
    r"""Return JSON that is safe inside a script element: ``<``, ``>`` and ``&`` are escaped.

    >>> safe_json({"qid": "</script>"})
    '{"qid":"\\u003c/script\\u003e"}'
    """
    written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return Markup(_CONTROL.sub("\ufffd", written))


def shortened(value: str, limit: int) -> str:
    """Shorten text to a maximum length.

    >>> shortened("abcdef", 4), shortened("abc", 4)
    ('abc…', 'abc')
    """
    return value if len(value) <= limit else value[: limit - 1] + "…"


# ---- plots ----


N_COLORS = 7  # color-blind safe palette of Okabe and Ito without yellow, which is invisible on white
WIDTH = 360.0
Ticks = Sequence[tuple[float, str]]
_DASHES = (None, "6 3", "2 2.5", "8 3 2 3")


class Box(NamedTuple):
    """Plot area within the picture, in pixels."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Scale:
    """Mapping of values to pixels, linear or logarithmic."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value; values outside the range are clipped to its ends."""
        points = (self.low, self.high, value)
        low, high, at = map(math.log, points) if self.log else points
        share = 0.5 if high == low else (at - low) / (high - low)
        return self.start + min(max(share, 0.0), 1.0) * (self.stop - self.start)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers within a range.

    >>> ticks(0.0, 1.0), ticks(0.31, 0.34, 3)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.31, 0.32, 0.33, 0.34])
    """
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def marked_ticks(low: float, high: float, count: int = 5) -> list[tuple[float, str]]:
    """Return ticks with their labels, using a typographic minus.

    >>> marked_ticks(-0.5, 0.5, 2)
    [(-0.5, '−0.5'), (0.0, '0'), (0.5, '0.5')]
    """
    return [(value, f"{value:g}".replace("-", "−")) for value in ticks(low, high, count)]


def figure(name: str, height: float, *content: Markup, width: float = WIDTH, role: str = "img") -> Markup:
    """A picture with a name for screen readers; `role` is "group" if parts of it can be selected."""
    box = f"0 0 {plain(width)} {plain(height)}"
    return tag("svg", *content, cls="plot", viewBox=box, role=role, aria_label=name)


def title(words: str) -> Markup:
    """Return a tooltip element."""
    return tag("title", words)


def path(points: Sequence[tuple[float, float]], close: bool = False) -> str:
    """Return the `d` attribute of a path through points."""
    return "M" + "L".join(f"{plain(float(x))} {plain(float(y))}" for x, y in points) + ("Z" if close else "")


def axes(box: Box, x: Scale, y: Scale, x_ticks: Ticks, y_ticks: Ticks, x_label: str = "", y_label: str = "") -> Markup:
    """Draw grid lines with tick labels, and the labels of the axes."""
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


_CORNERS: tuple[Callable[[float], list[tuple[float, float]]] | None, ...] = (
    None,  # a circle
    lambda r: [(-r, -r), (r, -r), (r, r), (-r, r)],
    lambda r: [(0, -1.3 * r), (1.2 * r, 0.9 * r), (-1.2 * r, 0.9 * r)],
    lambda r: [(0, -1.4 * r), (1.4 * r, 0), (0, 1.4 * r), (-1.4 * r, 0)],
    lambda r: [(0, 1.3 * r), (1.2 * r, -0.9 * r), (-1.2 * r, -0.9 * r)],
    lambda r: [(-1.3 * r, 0), (0.9 * r, -1.2 * r), (0.9 * r, 1.2 * r)],
    lambda r: [(1.3 * r, 0), (-0.9 * r, -1.2 * r), (-0.9 * r, 1.2 * r)],
)


def color(style: int) -> str:
    """Return the CSS class for the color of a system."""
    return f"s{style % N_COLORS}"


def dashes(style: int) -> str | None:
    """Return the dash pattern of a system; solid until all colors and markers are used."""
    return _DASHES[(style // N_COLORS) % len(_DASHES)]


def marker(style: int, x: float, y: float, words: str | None = None, size: float = 3.6) -> Markup:
    """Draw the marker of a system, by shape and color; hollow once all combinations are used."""
    corners = _CORNERS[style % N_COLORS]
    hollow = " hollow" if (style // N_COLORS) % 2 else ""
    classes = f"mark {color(style)}{hollow}"
    inside = None if words is None else title(words)
    if corners is None:
        return tag("circle", inside, cx=float(x), cy=float(y), r=size, cls=classes)
    outline = path([(x + dx, y + dy) for dx, dy in corners(size * 0.92)], close=True)
    return tag("path", inside, d=outline, cls=classes)


def swatch(style: int) -> Markup:
    """Draw line and marker of a system for a legend or a table."""
    line = tag("line", x1=1, x2=25, y1=7, y2=7, cls=f"curve {color(style)}", stroke_dasharray=dashes(style))
    return tag("svg", line, marker(style, 13, 7), cls="swatch", viewBox="0 0 26 14", aria_hidden="true")
