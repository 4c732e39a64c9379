"""What several panels are made of: figures side by side, legends, tables, and charts of curves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from toprank.display.svg import Markup, swatch, tag
from toprank.display.tables import Table
from toprank.evaluation import Comparison
from toprank.report.content import RankedCollection, ranked_systems

PLOTTED = 12  # systems in the plots; the tables hold all


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


def sentences(lines: Iterable[str]) -> Markup:
    """Sentences as a list."""
    return tag("ul", *(tag("li", line) for line in lines), cls="verdicts")


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
