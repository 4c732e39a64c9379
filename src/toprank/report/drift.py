"""The HTML page of `toprank monitor`: alarms, distributions of the features with most drift, and all statistics."""

from __future__ import annotations

from toprank.display.svg import join, tag
from toprank.errors import count_of
from toprank.monitoring import Drift
from toprank.report.page import Section, sectioned_page
from toprank.report.parts import legend, panel, plain_table, sentences, side_by_side

_MAX_PLOTS = 12  # the table has all features


def drift_page(drift: Drift, name: str) -> str:
    """Return the page as HTML."""
    before, after = drift.queries
    lead = count_of(len(drift.alarms), "alarm") if drift.alarms else "No alarm"
    opening = [
        sentences(drift.alarms) if drift.alarms else None,
        tag("p", f"{before:,} queries before, {after:,} now, {len(drift.features):,} features.", cls="remark"),
    ]
    shown = [(drift.scores, drift.plot(named=False))]
    shown += [(feature, drift.plot(feature.name, named=False)) for feature in drift.features[: _MAX_PLOTS - 1]]
    figures = [panel(f"{feature.name}: PSI {feature.psi:.3f}", picture.figure()) for feature, picture in shown]
    remark = (
        "Each curve is a cumulative distribution function: the share of documents with at most this value. Without "
        "drift the curves coincide; PSI and KS measure their distance. Categories are shown as shares."
    )
    sections: list[Section] = [
        ("quality", "Forecast", "", join(tag("p", words) for words in drift.forecast)),
        ("shifts", "Distributions", remark, join([legend({"before": 0, "now": 1}), side_by_side(*figures)])),
        ("numbers", "All statistics", "", plain_table(drift.table(), "All statistics")),
    ]
    return sectioned_page(name, lead, opening, sections)
