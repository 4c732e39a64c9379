"""The page of `toprank monitor`: the alarms, the farthest shifts drawn before and after, and all numbers."""

from __future__ import annotations

from toprank.display.svg import join, tag
from toprank.errors import count_of
from toprank.monitoring import Drift
from toprank.report.page import Section, sectioned_page
from toprank.report.parts import legend, panel, plain_table, sentences, side_by_side

_DRAWN = 12  # shifts that are drawn; the table holds all


def drift_page(drift: Drift, name: str) -> str:
    """The whole page as text."""
    before, after = drift.queries
    lead = count_of(len(drift.alarms), "alarm") if drift.alarms else "No alarm"
    opening = [
        sentences(drift.alarms) if drift.alarms else None,
        tag("p", f"{before:,} queries before, {after:,} now, {len(drift.features):,} features.", cls="remark"),
    ]
    shown = [(drift.scores, drift.plot(named=False))]
    shown += [(feature, drift.plot(feature.name, named=False)) for feature in drift.features[: _DRAWN - 1]]
    figures = [panel(f"{feature.name}: PSI {feature.psi:.3f}", picture.figure()) for feature, picture in shown]
    remark = (
        "Each curve is a distribution function: the share of documents with at most this value. Where the curves lie "
        "on each other nothing has moved; PSI and KS measure how far they are apart. Categories are drawn as shares."
    )
    sections: list[Section] = [
        ("quality", "What to expect", "", join(tag("p", words) for words in drift.forecast)),
        ("shifts", "What has moved", remark, join([legend({"before": 0, "now": 1}), side_by_side(*figures)])),
        ("numbers", "All numbers", "", plain_table(drift.table(), "All numbers")),
    ]
    return sectioned_page(name, lead, opening, sections)
