"""Building blocks of panels: figures side by side, legends and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from toprank.display.svg import Markup, swatch, tag
from toprank.display.tables import Table
from toprank.evaluation import Comparison
from toprank.report.content import RankedCollection, ranked_systems

PLOTTED = 12  # maximum number of systems in plots; tables show all


def plotted(comparison: Comparison) -> dict[str, int]:
    """Return the systems to plot with their style numbers: the best ones and the baseline."""
    ranked = ranked_systems(comparison)
    keep = set(ranked[:PLOTTED])
    if comparison.baseline is not None and comparison.baseline not in keep:
        keep = {*ranked[: PLOTTED - 1], comparison.baseline}
    return {system: comparison.systems.index(system) for system in ranked if system in keep}


class Panel(NamedTuple):
    """A section of the page: anchor, menu link, heading and explanatory remark.

    `show` returns the content for a part, given the prefix of its anchors, or None if there is none.
    """

    name: str
    link: str
    heading: str
    remark: str | Callable[[RankedCollection], str]
    show: Callable[[RankedCollection, str], Markup | None]


def panel(heading: str, *content: Markup) -> Markup:
    """Return a figure with a heading."""
    return tag("figure", tag("figcaption", heading), *content)


def side_by_side(*panels: Markup) -> Markup:
    """Arrange figures in rows that fit the page width."""
    return tag("div", *panels, cls="panels")


def legend(systems: dict[str, int]) -> Markup:
    """Return a legend; hovering over a name highlights it."""
    items = [tag("li", tag("button", swatch(i), s, type="button", data_s=i)) for s, i in systems.items()]
    return tag("ul", *items, cls="legend")


def scrolling(table: Markup, name: str) -> Markup:
    """Wrap a table so that it scrolls horizontally on narrow pages, also by keyboard."""
    return tag("div", table, cls="scroll", tabindex="0", role="region", aria_label=name)


def sentences(lines: Iterable[str]) -> Markup:
    """Return sentences as a list."""
    return tag("ul", *(tag("li", line) for line in lines), cls="verdicts")


def copied(words: str) -> Markup:
    """Return text with a copy button."""
    button = tag("button", "Copy", type="button", cls="copy")
    return tag("div", button, tag("pre", words, tabindex="0"), cls="copying")


def plain_table(table: Table, name: str) -> Markup:
    """Return a table as HTML."""

    def cells(row: tuple[str, ...], kind: str) -> Markup:
        return tag("tr", *(tag(kind, c, cls=None if i < table.names else "n") for i, c in enumerate(row)))

    head = tag("thead", cells(table.header, "th"))
    return scrolling(tag("table", head, tag("tbody", *(cells(row, "td") for row in table.rows))), name)
