"""The HTML page of `toprank explain`: one section per explanation, with its plot if there is one."""

from __future__ import annotations

from collections.abc import Mapping

from toprank.display.svg import Markup, join, tag
from toprank.display.tables import DisplayMixin, Table
from toprank.errors import DataError
from toprank.report.page import Section, sectioned_page
from toprank.report.parts import panel, plain_table, sentences


def explanations_page(name: str, results: Mapping[str, DisplayMixin]) -> str:
    """Return the page as HTML, with one section per explanation."""
    sections: list[Section] = [
        (f"r{place}", heading, "", join([*_plots(heading, result), *_text_parts(heading, result)]))
        for place, (heading, result) in enumerate(results.items())
    ]
    return sectioned_page(name, name, [], sections)


def _plots(heading: str, result: DisplayMixin) -> list[Markup]:
    """Return the plot of a result, or an empty list if it has none."""
    if not hasattr(result, "plot"):
        return []
    try:
        return [panel(heading, result.plot().figure())]
    except DataError:
        return []


def _text_parts(heading: str, result: DisplayMixin) -> list[Markup]:
    parts = []
    for part in result._parts():
        if isinstance(part, Table):
            parts.append(plain_table(part, heading))
        elif isinstance(part, str):
            parts.append(tag("p", part))
        elif part:
            parts.append(sentences(part))
    return parts
