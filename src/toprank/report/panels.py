"""The plots of a part, in panels side by side; what has nothing to show is None."""

from __future__ import annotations

from toprank.comparison import Difference
from toprank.comparison.tables import Table
from toprank.report.content import Part
from toprank.report.curves import calibration_plot, chart, spread_plot, weights_plot
from toprank.report.headline import turned_around
from toprank.report.markup import Markup, join, shortened, tag
from toprank.report.plots import interval_plot, win_loss_plot
from toprank.report.svg import swatch
from toprank.report.tables import plain_table
from toprank.significance.results import number

__all__ = ["calibration", "curves", "intervals", "learning", "panel", "spread", "weights", "wins"]

_ALL_PAIRS = 15  # rows of an interval plot; with more pairs, those of the leader are shown
_PANELS = 4  # metrics with an interval plot; the table holds all


def panel(heading: str, *content: Markup) -> Markup:
    """A figure among others."""
    return tag("figure", tag("figcaption", heading), *content)


def legend(systems: dict[str, int]) -> Markup:
    """Names with line and mark; pointing at one makes the others step back."""
    items = [tag("li", tag("button", swatch(i), s, type="button", data_s=i)) for s, i in systems.items()]
    return tag("ul", *items, cls="legend")


def intervals(part: Part) -> Markup:
    """One panel for each metric."""
    comparison = part.comparison
    panels = []
    for metric in comparison.metrics[:_PANELS]:
        rows = _by_rank([d for d in comparison.differences if d.metric == metric], part)
        if len(rows) > _ALL_PAIRS and comparison.baseline is None:
            rows = [d for d in rows if part.ranked_systems[0] in (d.a, d.b)]
        rows = rows[: 2 * _ALL_PAIRS]
        panels.append(panel(metric, interval_plot(rows, comparison.margin)))
    return tag("div", *panels, cls="panels")


def _by_rank(rows: list[Difference], part: Part) -> list[Difference]:
    """In the order of the table; where all pairs are compared, or all with the leader, the higher system first."""
    place = {name: i for i, name in enumerate(part.ranked_systems)}
    if part.comparison.baseline is None or part.against_leader:
        rows = [d if place[d.a] < place[d.b] else turned_around(d) for d in rows]
    return sorted(rows, key=lambda d: (place[d.a], place[d.b]))


def wins(part: Part, styles: dict[str, int]) -> Markup:
    """The leader against each other plotted system, or each against the baseline."""
    comparison, per_query = part.comparison, part.judgements[0].per_query
    metric = comparison.metrics[0]
    lower = metric in comparison.lower_is_better
    reference = comparison.baseline or part.ranked_systems[0]
    baseline = comparison.baseline is not None and not part.against_leader
    panels = []
    for name in part.ranked_systems:
        if name == reference or name not in styles:
            continue
        a, b = (name, reference) if baseline else (reference, name)
        drawn = win_loss_plot(metric, (a, b), per_query[a][metric], per_query[b][metric], part.qids, lower)
        panels.append(panel(f"{shortened(a, 40)} against {shortened(b, 40)}", drawn))
    return tag("div", *panels, cls="panels")


def curves(part: Part, styles: dict[str, int]) -> Markup | None:
    """Metrics by cut-off, with the numbers to open below."""
    if not part.at_k:
        return None
    panels = [panel(one.title, chart(one)) for one in part.at_k]
    tables = []
    for one in part.at_k:
        rows = [(line.name, *(number(y) for y in line.y)) for line in one.lines]
        header = (one.title, *(f"{x:g}" for x in one.lines[0].x))
        tables.append(plain_table(Table(header, rows, names=1), one.title))
    numbers = tag("details", tag("summary", "The numbers"), *tables)
    return join([legend(styles), tag("div", *panels, cls="panels"), numbers])


def learning(part: Part) -> Markup | None:
    """One panel for each history; training and validation data differ by colour and mark."""
    if not part.learning:
        return None
    panels = []
    for one in part.learning:
        heading = f"{shortened(one.title, 40)}: {one.y_label}"
        if len(one.lines) == 1:
            panels.append(panel(f"{heading} on {one.lines[0].name}", chart(one)))
        else:
            panels.append(panel(heading, legend({line.name: line.style for line in one.lines}), chart(one)))
    return tag("div", *panels, cls="panels")


def spread(part: Part) -> Markup | None:
    """One panel for each system."""
    if not part.spreads:
        return None
    return tag("div", *(panel(shortened(one.system, 40), spread_plot(one)) for one in part.spreads), cls="panels")


def calibration(part: Part) -> Markup | None:
    """One panel for each system with probabilities."""
    if not part.calibrations:
        return None
    panels = [
        panel(f"{shortened(c.system, 40)}: off by {c.error:.3f} on average", calibration_plot(c))
        for c in part.calibrations
    ]
    return tag("div", *panels, cls="panels")


def weights(part: Part) -> Markup | None:
    """One panel for each ranker that can tell."""
    if not part.weights:
        return None
    panels = []
    for one in part.weights:
        left = one.features - len(one.names)
        more = tag(
            "p", f"{one.meaning}; {left:,} further features matter less." if left else f"{one.meaning}.", cls="remark"
        )
        panels.append(panel(shortened(one.system, 40), weights_plot(one), more))
    return tag("div", *panels, cls="panels")
