"""The HTML page of `toprank launch-report`: decision, off-policy estimates, changed rankings, drift and costs."""

from __future__ import annotations

from toprank.clicks import LaunchReport
from toprank.clicks.launch_result import SLICES_REMARK
from toprank.clicks.ranking_changes import AffectedQuery
from toprank.display.svg import Markup, join, tag
from toprank.report.page import Section, sectioned_page
from toprank.report.parts import panel, plain_table, sentences, side_by_side


def launch_page(launch: LaunchReport, name: str) -> str:
    """Return the page as HTML."""
    remark = (
        "Both models are evaluated on the same clicks. Bars are confidence intervals of the difference over queries. "
        "The decision is to launch if the decision interval is above 0 for any relevance of documents never shown."
    )
    rationale = sentences(launch.rationale)
    drawn = [] if launch.undecided_reason else [side_by_side(panel("New minus current", launch.plot().figure()))]
    sections: list[Section] = [
        ("difference", "Difference", remark, join([*drawn, plain_table(launch.table(), "Difference"), rationale]))
    ]
    if len(launch.candidates) > 1:
        words = "This page covers the new ranker with the largest difference. The intervals are simultaneous."
        sections.append(("candidates", "New rankers", words, plain_table(launch.candidates_table(), "New rankers")))
    if launch.slices:
        sections.append(("slices", "Slices", SLICES_REMARK, plain_table(launch.slices_table(), "Slices")))
    lists = join([_side_by_side(affected) for affected in launch.ranking_changes.affected])
    sections.append(("users", "Changed rankings", str(launch.ranking_changes), lists))
    if launch.offline is not None:
        sections.append(("labels", "By labels", "", tag("p", launch.offline.summary)))
    if launch.drift is not None:
        table = plain_table(launch.drift.table(), "Drift")
        sections.append(("drift", "Drift", "", join([tag("p", launch.drift.summary), table])))
    sections.append(("costs", "Size and time", "", plain_table(launch.costs_table(), "Size and time")))
    opening = [tag("p", launch.summary, cls="remark")]
    return sectioned_page(name, launch.decision.capitalize(), opening, sections)


def _side_by_side(affected: AffectedQuery) -> Markup:
    heading = f"Query {affected.query}, {affected.sessions:,} sessions"
    why = [tag("p", f"Why: {affected.why}.", cls="remark")] if affected.why else []
    return join([tag("h3", heading), plain_table(affected.table(), heading), *why])
