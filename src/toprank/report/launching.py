"""The page of `toprank launch`: the decision, what it goes by, what changes for users, and what else is known."""

from __future__ import annotations

import os

from toprank.clicks import Launch
from toprank.clicks.reordering import AffectedQuery
from toprank.drawing import Markup, join, tag
from toprank.report.page import document, section, write_page
from toprank.report.parts import panel, plain_table, side_by_side

_HEADINGS = {"launch": "Launch", "do not launch": "Do not launch", "cannot be told": "Cannot be told"}


def write_launch(path: str | os.PathLike[str], launch: Launch, name: str) -> None:
    """Write the page as one HTML file, wholly or not at all."""
    write_page(path, launch_page(launch, name))


def launch_page(launch: Launch, name: str) -> str:
    """The whole page as text."""
    opening = tag(
        "header",
        tag("p", name, cls="kicker"),
        tag("h1", _HEADINGS[launch.decision], cls="lead"),
        tag("p", launch.summary, cls="remark"),
        cls="opening",
    )
    remark = (
        "Both models are judged by the same clicks. Bars are intervals of the difference over queries. The decision is "
        "to launch if the deciding interval lies above 0, whatever documents that were never shown are worth."
    )
    grounds = tag("ul", *(tag("li", ground) for ground in launch.grounds), cls="verdicts")
    drawn = [] if launch.no_answer else [side_by_side(panel("New less current", launch.plot().figure()))]
    parts = [("difference", "Difference", remark, join([*drawn, plain_table(launch.table(), "Difference"), grounds]))]
    if launch.slices:
        words = (
            "Here propensities are assumed to be right, and intervals are not corrected for the number of slices: look "
            "at these, but do not decide by them."
        )
        parts.append(("slices", "Slices", words, plain_table(launch.slices_table(), "Slices")))
    lists = join([_side_by_side(affected) for affected in launch.reordered.affected])
    parts.append(("users", "What changes for users", str(launch.reordered), lists))
    if launch.offline is not None:
        parts.append(("labels", "By labels", "", tag("p", launch.offline.summary)))
    if launch.drift is not None:
        table = plain_table(launch.drift.table(), "Drift")
        parts.append(("drift", "Drift", "", join([tag("p", launch.drift.summary), table])))
    parts.append(("costs", "Size and time", "", plain_table(launch.costs_table(), "Size and time")))
    body = [opening, *(section(key, heading, words, shown) for key, heading, words, shown in parts)]
    return document(name, join(body), [(key, heading) for key, heading, _, _ in parts])


def _side_by_side(affected: AffectedQuery) -> Markup:
    heading = f"Query {affected.query}, {affected.sessions:,} sessions"
    why = tag("p", f"Why: {affected.why}.", cls="remark") if affected.why else None
    return join([tag("h3", heading), plain_table(affected.table(), heading), *([] if why is None else [why])])
