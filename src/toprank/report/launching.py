"""The page of `toprank launch`: the decision, what it goes by, what changes for users, and what else is known."""

from __future__ import annotations

import os

from toprank.clicks import Launch
from toprank.clicks.reordering import AffectedQuery
from toprank.drawing import Markup, join, tag
from toprank.report.page import document, section, write_page
from toprank.report.parts import panel, plain_table, side_by_side

__all__ = ["launch_page", "write_launch"]

_HEADINGS = {"launch": "Launch", "do not launch": "Do not launch", "cannot be told": "Cannot be told"}


def write_launch(path: str | os.PathLike[str], found: Launch, name: str) -> None:
    """Write the page as one HTML file, wholly or not at all."""
    write_page(path, launch_page(found, name))


def launch_page(found: Launch, name: str) -> str:
    """The whole page as text."""
    opening = tag(
        "header",
        tag("p", name, cls="kicker"),
        tag("h1", _HEADINGS[found.decision], cls="lead"),
        tag("p", found.summary, cls="remark"),
        cls="opening",
    )
    remark = (
        "Both models are judged by the same clicks. Bars are intervals of the difference over queries: it is a launch "
        "where the interval that decides lies above 0, whatever documents are worth that were never shown."
    )
    grounds = tag("ul", *(tag("li", one) for one in found.grounds), cls="verdicts")
    drawn = [] if found.untold else [side_by_side(panel("New less current", found.plot().figure()))]
    parts = [("difference", "Difference", remark, join([*drawn, plain_table(found.table(), "Difference"), grounds]))]
    if found.slices:
        words = (
            "Propensities are taken for right here, and slices are not corrected for their number: look, not decide."
        )
        parts.append(("slices", "Slices", words, plain_table(found.slices_table(), "Slices")))
    lists = join([_side_by_side(one) for one in found.reordered.affected])
    parts.append(("users", "What changes for users", str(found.reordered), lists))
    if found.offline is not None:
        parts.append(("labels", "By labels", "", tag("p", found.offline.summary)))
    if found.drift is not None:
        table = plain_table(found.drift.table(), "Drift")
        parts.append(("drift", "Drift", "", join([tag("p", found.drift.summary), table])))
    parts.append(("costs", "Size and time", "", plain_table(found.costs_table(), "Size and time")))
    body = [opening, *(section(key, heading, words, shown) for key, heading, words, shown in parts)]
    return document(name, join(body), [(key, heading) for key, heading, _, _ in parts])


def _side_by_side(one: AffectedQuery) -> Markup:
    heading = f"Query {one.query}, {one.sessions:,} sessions"
    why = tag("p", f"Why: {one.why}.", cls="remark") if one.why else None
    return join([tag("h3", heading), plain_table(one.table(), heading), *([] if why is None else [why])])
