"""The page of `toprank monitor`: the alarms, the farthest shifts drawn before and after, and all numbers."""

from __future__ import annotations

import os

import numpy as np

from toprank.drawing import WIDTH, Box, Markup, Scale, axes, figure, join, tag, ticks
from toprank.monitoring import Drift
from toprank.monitoring.shifts import CellCounts
from toprank.report.page import document, section, write_page
from toprank.report.parts import curve, legend, panel, plain_table, side_by_side

__all__ = ["drift_page", "write_drift"]

_DRAWN = 12  # shifts that are drawn; the table holds all


def write_drift(path: str | os.PathLike[str], drift: Drift, name: str) -> None:
    """Write the page as one HTML file, wholly or not at all."""
    write_page(path, drift_page(drift, name))


def drift_page(drift: Drift, name: str) -> str:
    """The whole page as text."""
    before, after = drift.queries
    lead = f"{len(drift.alarms)} {'alarm' if len(drift.alarms) == 1 else 'alarms'}" if drift.alarms else "No alarm"
    opening = tag(
        "header",
        tag("p", name, cls="kicker"),
        tag("h1", lead, cls="lead"),
        tag("ul", *(tag("li", alarm) for alarm in drift.alarms), cls="verdicts") if drift.alarms else None,
        tag("p", f"{before:,} queries before, {after:,} now, {len(drift.features):,} features.", cls="remark"),
        cls="opening",
    )
    shown = list(zip([drift.scores, *drift.features], drift.cells, strict=True))[:_DRAWN]
    figures = [panel(f"{one.name}: PSI {one.psi:.3f}", _before_and_after(cells)) for one, cells in shown]
    remark = (
        "Each curve is a distribution function: the share of documents with at most this value. Where the curves lie "
        "on each other nothing has moved; PSI and KS measure how far they are apart. Categories are drawn as shares."
    )
    body = [
        opening,
        section("quality", "What to expect", "", *(tag("p", words) for words in drift.outlook)),
        section("shifts", "What has moved", remark, legend({"before": 0, "now": 1}), side_by_side(*figures)),
        section("numbers", "All numbers", "", plain_table(drift.table(), "All numbers")),
    ]
    links = [("quality", "Quality"), ("shifts", "Shifts"), ("numbers", "Numbers")]
    return document(name, join(body), links)


def _before_and_after(cells: CellCounts) -> Markup:
    box = Box(44, 10, WIDTH - 12, 170)
    y = Scale(0, 1, box.bottom, box.top)
    shares = [np.asarray(share, dtype=np.float64) for share in cells.shares()]
    y_ticks = [(v, f"{v:g}") for v in (0.0, 0.5, 1.0)]
    ends = np.flatnonzero(np.isfinite(cells.edges))  # infinite ones have no place on a page
    if len(ends) > 1:
        x = Scale(float(cells.edges[ends[0]]), float(cells.edges[ends[-1]]), box.left, box.right)
        x_ticks = [(v, f"{v:g}") for v in ticks(x.low, x.high, 4)]
        curves = [
            (np.cumsum(share[: cells.ordered]) / max(share[: cells.ordered].sum(), 1e-300))[ends] for share in shares
        ]
        at = [x(float(edge)) for edge in cells.edges[ends]]
    else:
        x = Scale(0, len(shares[0]), box.left, box.right)
        x_ticks, curves, at = [], shares, [x(place + 0.5) for place in range(len(shares[0]))]
    lines = [
        tag("g", curve(side, [(a, y(float(v))) for a, v in zip(at, shown, strict=True)]), data_s=side)
        for side, shown in enumerate(curves)
    ]
    return figure("Distribution before and now", 210, axes(box, x, y, x_ticks, y_ticks), *lines)
