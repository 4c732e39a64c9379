"""Conversion of SVG plots to PNG and PDF with matplotlib (the extra `plots`)."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

from toprank.errors import require_extra

FORMATS = ("png", "pdf")
_PIXELS_PER_INCH, _POINTS_PER_INCH = 96.0, 72.0
_DOTS_PER_INCH = 288  # resolution of PNG files: three dots per SVG pixel
_FONT, _FONT_SCALE = "DejaVu Sans", 0.9  # the font included in matplotlib, wider than browser fonts
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_SELECTOR = re.compile(r'(?P<tag>[a-z]+)?(?P<classes>(?:\.[\w-]+)*)(?:\[class\*="(?P<within>[^"]+)"\])?')
_NUMBERS = re.compile(r"-?[\d.]+")
_STEP = re.compile(r"([MLZ])([^MLZ]*)")
_WITHOUT_DATE: Mapping[str, dict[str, Any]] = {"png": {"Software": None}, "pdf": {"CreationDate": None}}
Style = dict[str, str]


def needs_matplotlib() -> None:
    """Raise an error if matplotlib is not installed."""
    require_extra("matplotlib", "plots", "Saving a plot as PNG or PDF")


def redrawn(svg: str, css: str, paper: Mapping[str, str], kind: str) -> bytes:
    """Convert an SVG plot to PNG or PDF and return the file content; the conversion is deterministic.

    Args:
        svg: output of `Picture.svg`: groups of texts, lines, rectangles, circles and straight paths.
        css: style sheet of its elements, by class.
        paper: ``background`` and ``color`` of the page.
        kind: file format, one of `FORMATS`.
    """
    needs_matplotlib()
    from matplotlib.figure import Figure

    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    figure = Figure(figsize=(width / _PIXELS_PER_INCH, height / _PIXELS_PER_INCH), facecolor=paper["background"])
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set(xlim=(0.0, width), ylim=(height, 0.0))
    rules = list(_rules(css))
    for place, element in enumerate(root.iter()):
        artist = _artist(element, _style_of(element, rules, paper["color"]))
        if artist is not None:
            artist.set(zorder=place, clip_on=False)
            axes.add_artist(artist)
    file = io.BytesIO()
    figure.savefig(file, format=kind, dpi=_DOTS_PER_INCH, metadata=_WITHOUT_DATE[kind])
    return file.getvalue()


def _rules(css: str) -> Iterator[tuple[tuple[int, int], re.Match[str], Style]]:
    """Yield the precedence (specificity, then order), selector and declarations of each rule."""
    for place, (selectors, body) in enumerate(_RULE.findall(css)):
        entries = (entry.partition(":") for entry in body.split(";") if entry.strip())
        style = {name.strip(): value.strip() for name, _, value in entries}
        for selector in selectors.split(","):
            match = _SELECTOR.fullmatch(selector.strip().removeprefix(".toprank "))
            if match is None:
                raise ValueError(f"The CSS selector {selector!r} is not supported.")
            yield (match[0].count(".") + match[0].count("["), place), match, style


def _style_of(element: Any, rules: list[tuple[tuple[int, int], re.Match[str], Style]], color: str) -> Style:
    """Return the style of an element with resolved colors."""
    written = element.attrib.get("class", "")
    classes = set(written.split())
    style = {"color": color, "fill": "currentColor" if _tag(element) == "text" else "#000", "stroke": "none"}
    for _, selector, values in sorted(rules, key=lambda rule: rule[0]):
        fits = selector["tag"] in (None, _tag(element)) and set(selector["classes"].split(".")) - {""} <= classes
        if fits and (selector["within"] or "") in written:
            style |= values
    for part in ("fill", "stroke"):
        if style[part] == "currentColor":
            style[part] = style["color"]
    return style


def _tag(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _artist(element: Any, style: Style) -> Any:
    """Return the matplotlib artist for an element; None for invisible elements."""
    from matplotlib import patches
    from matplotlib.path import Path
    from matplotlib.text import Text

    name, at = _tag(element), element.attrib
    if name == "text":
        return _text(element, style, Text)
    if name == "line":
        ends = [(float(at["x1"]), float(at["y1"])), (float(at["x2"]), float(at["y2"]))]
        return patches.PathPatch(Path(ends), **_paint({**style, "fill": "none"}, at))
    if name == "rect":
        corner = float(at["x"]), float(at["y"])
        return patches.Rectangle(corner, float(at["width"]), float(at["height"]), **_paint(style, at))
    if name == "circle":
        return patches.Circle((float(at["cx"]), float(at["cy"])), float(at["r"]), **_paint(style, at))
    if name == "path":
        return patches.PathPatch(_path(at["d"], Path), **_paint(style, at))
    return None


def _text(element: Any, style: Style, text: Any) -> Any:
    size = next(size for size in (style.get("font-size"), style.get("font"), "11px") if size)
    [pixels, *_] = _NUMBERS.findall(size)
    return text(
        float(element.attrib["x"]),
        float(element.attrib["y"]),
        "".join(part for part in (element.text, *(child.tail for child in element)) if part),
        color=style["fill"],
        alpha=float(style.get("opacity", 1.0)),
        family=_FONT,
        size=float(pixels) * _POINTS_PER_INCH / _PIXELS_PER_INCH * _FONT_SCALE,
        weight="bold" if "font-weight" in style else "normal",  # the font has only these weights
        horizontalalignment={"middle": "center", "end": "right"}.get(style.get("text-anchor", ""), "left"),
        verticalalignment="baseline",
        parse_math=False,
    )


def _path(data: str, path: Any) -> Any:
    points, codes = list[tuple[float, float]](), []
    for letter, numbers in _STEP.findall(data):
        x, y = map(float, _NUMBERS.findall(numbers)) if letter != "Z" else points[-1]
        points.append((x, y))
        codes.append({"M": path.MOVETO, "L": path.LINETO, "Z": path.CLOSEPOLY}[letter])
    return path(points, codes)


def _paint(style: Style, attributes: Mapping[str, str]) -> dict[str, Any]:
    """Return the matplotlib parameters for fill and stroke."""
    from matplotlib.colors import to_rgba

    whole = float(style.get("opacity", 1.0))
    points = _POINTS_PER_INCH / _PIXELS_PER_INCH
    dashes = [float(length) * points for length in _NUMBERS.findall(attributes.get("stroke-dasharray", ""))]
    width = float(style.get("stroke-width", "1").removesuffix("px")) * points
    colors = {part: to_rgba(style[part], whole * float(style.get(f"{part}-opacity", 1.0)))
              if style[part] != "none" else "none" for part in ("fill", "stroke")}  # fmt: skip
    unscaled = [length / width for length in dashes]  # matplotlib scales dashes by the line width
    return {
        "facecolor": colors["fill"],
        "edgecolor": colors["stroke"],
        "linewidth": width if style["stroke"] != "none" else 0.0,
        "linestyle": (0.0, unscaled) if unscaled else "solid",
    }
