"""Comparison of systems: means, differences with intervals, and wins and losses by query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from toprank.compute import FloatArray
from toprank.display.svg import (
    WIDTH,
    Box,
    Markup,
    Scale,
    axes,
    figure,
    join,
    marked_ticks,
    path,
    shortened,
    swatch,
    tag,
    title,
)
from toprank.display.tables import latex_text, markdown_text, with_packages
from toprank.evaluation import Comparison, Difference
from toprank.evaluation.plots import intervals
from toprank.report.content import RankedCollection
from toprank.report.headline import difference_between, reversed_difference
from toprank.report.parts import Panel, copied, panel, plain_table, plotted, scrolling, sentences, side_by_side
from toprank.significance.results import bounds, number, signed
from toprank.significance.tests import ROUNDING, differences


def _results(part: RankedCollection, _: str) -> Markup:
    styles = {system: i for i, system in enumerate(part.comparison.systems)}
    shown = [means_table(part, part.comparison, styles)]
    for comparison in part.comparisons[1:]:
        shown += [tag("h3", f"Convention {comparison.convention}"), means_table(part, comparison, styles)]
    for further in part.tables:
        note = tag("p", further.note, cls="remark") if further.note else None
        table = plain_table(further.table, further.title)
        if further.folded:
            shown.append(tag("details", tag("summary", further.title), note, table))
        else:
            shown.append(join(filter(None, [tag("h3", further.title), note, table])))
    written = [("Markdown", _written(part, "markdown")), ("LaTeX", _written(part, "latex"))]
    copies = [tag("details", tag("summary", f"As {name}"), copied(words)) for name, words in written]
    return join([*shown, *copies])


def _written(part: RankedCollection, language: Literal["markdown", "latex"]) -> str:
    """Return the visible tables as Markdown or LaTeX, for copying."""
    comparison, further = part.comparison, [table for table in part.tables if not table.folded]
    if language == "markdown":
        pieces = [f"{markdown_text(table.title)}\n\n{table.table.markdown()}\n" for table in further]
        return "\n".join([comparison.to_markdown(), *pieces])
    pieces = [f"{latex_text(table.title)}\n\n{table.table.latex()}\n" for table in further]
    return with_packages("\n".join([comparison.latex(), *pieces]))


def means_table(part: RankedCollection, comparison: Comparison, styles: dict[str, int]) -> Markup:
    """Return the table of means with intervals, significance marks and differences from the reference."""
    metrics = comparison.metrics
    order = part.ranked_systems
    reference = comparison.baseline or order[0]
    letters = {name: chr(ord("a") + i) if i < 26 else str(i + 1) for i, name in enumerate(order)}
    pairs = comparison.baseline is None
    head = ["system", *metrics, f"difference from {reference}", "p", "win / tie / loss"]
    rows = []
    for name in order:
        d = difference_between(comparison, name, reference, metrics[0])
        cells = [_mean_cell(comparison, name, metric, letters) for metric in metrics]
        label = tag("th", tag("span", swatch(styles[name]), cls="key"), tag("span", name, cls="name"),
                    tag("small", letters[name], cls="letter") if pairs else None, scope="row")  # fmt: skip
        rows.append(tag("tr", label, *cells, *_reference_cells(comparison, d, name)))
    kinds = [tag("th", h, cls="n" if i else None, scope="col") for i, h in enumerate(head)]
    table = tag("table", tag("thead", tag("tr", *kinds)), tag("tbody", *rows), cls="means")
    return join([scrolling(table, "Means"), tag("p", _marks(comparison), cls="remark")])


def _mean_cell(comparison: Comparison, name: str, metric: str, letters: dict[str, str]) -> Markup:
    interval = comparison.mean_intervals[name][metric]
    best = max if metric not in comparison.lower_is_better else min
    value = comparison.means[name][metric]
    leading = value == best(means[metric] for means in comparison.means.values())
    shown = tag("b" if leading else "span", number(value))
    mark = _mark(comparison, name, metric, letters)
    return tag("td", shown, mark, tag("small", bounds(*interval)), cls="n")


def _mark(comparison: Comparison, name: str, metric: str, letters: dict[str, str]) -> Markup | None:
    """Return ▲ or ▼ against a baseline, else the letters of systems that this one beats significantly."""
    if comparison.baseline is not None:
        d = difference_between(comparison, name, comparison.baseline, metric)
        if d is None or not d.significant or d.winner is None:
            return None
        better = d.winner == name
        spoken = "significantly better than the baseline" if better else "significantly worse than the baseline"
        return tag("abbr", "▲" if better else "▼", cls="win" if better else "loss", title=spoken)
    won = [d for d in comparison.differences if d.metric == metric and d.significant and d.winner == name]
    beaten = sorted(letters[d.b if d.a == name else d.a] for d in won)
    return tag("sup", " ".join(beaten)) if beaten else None


def _reference_cells(comparison: Comparison, d: Difference | None, name: str) -> list[Markup]:
    if d is None:
        return [tag("td", "—", cls="n muted"), tag("td", "", cls="n"), tag("td", "", cls="n")]
    d = d if d.a == name else reversed_difference(d)
    low, high = d.interval
    star = tag("abbr", "*", title=f"significant at level {comparison.alpha:g}") if d.significant else None
    return [
        tag("td", signed(d.difference), tag("small", f"[{signed(low)}, {signed(high)}]"), cls="n"),
        tag("td", f"{d.p_adjusted:.3g}", star, cls="n"),
        tag("td", f"{d.wins:,} / {d.ties:,} / {d.losses:,}", cls="n"),
    ]


def _marks(comparison: Comparison) -> str:
    level = f"{100 * comparison.confidence:g} %"
    first = comparison.metrics[0]
    how = (
        f"▲ and ▼: significantly better and worse than {comparison.baseline}."
        if comparison.baseline is not None
        else "Superscripts: systems that this one beats significantly."
    )
    lower = ", ".join(comparison.lower_is_better)
    less = f" Lower is better for {lower}." if lower else ""
    return (
        f"Mean over queries with its {level} interval. {how} Difference, p (corrected) and wins are for {first}; "
        f"* marks p ≤ {comparison.alpha:g}.{less}"
    )


def _convention(part: RankedCollection) -> str:
    convention = part.comparison.convention
    return f"Convention {convention}. Best first." if convention else "Best first."


RESULTS = Panel("table", "Table", "Results", _convention, _results)


_MAX_PAIRS = 15  # rows of an interval plot; with more pairs, only pairs with the leader are shown
_MAX_PANELS = 4  # metrics with an interval plot; the table has all


def _verdicts(part: RankedCollection) -> Markup:
    comparison = part.comparison
    items = sentences(map(comparison.summary_of, comparison.differences))
    table = plain_table(comparison.differences_table(), "Differences")
    few = len(comparison.differences) <= 6
    return tag(
        "div",
        tag("details", tag("summary", "In words"), items, open=few),
        tag("details", tag("summary", "All differences as a table"), table),
    )


def _intervals(part: RankedCollection) -> Markup:
    """Show one interval plot per metric."""
    comparison = part.comparison
    panels = []
    for metric in comparison.metrics[:_MAX_PANELS]:
        rows = _by_rank([d for d in comparison.differences if d.metric == metric], part)
        if len(rows) > _MAX_PAIRS and comparison.baseline is None:
            rows = [d for d in rows if part.ranked_systems[0] in (d.a, d.b)]
        rows = rows[: 2 * _MAX_PAIRS]
        panels.append(panel(metric, intervals(rows, comparison.margin).figure()))
    return side_by_side(*panels)


def _by_rank(rows: list[Difference], part: RankedCollection) -> list[Difference]:
    """Sort differences as in the table; without a chosen baseline, the better system comes first."""
    place = {name: i for i, name in enumerate(part.ranked_systems)}
    if part.comparison.baseline is None or part.against_leader:
        rows = [d if place[d.a] < place[d.b] else reversed_difference(d) for d in rows]
    return sorted(rows, key=lambda d: (place[d.a], place[d.b]))


def _differences(part: RankedCollection, _: str) -> Markup:
    beside = "beside" if len(part.comparison.metrics) == 1 else None  # next to a single plot there is room for text
    plots = tag("div", _intervals(part), _verdicts(part), cls=beside)
    return join([plots, tag("p", part.comparison.methods, cls="remark")])


def _differences_remark(part: RankedCollection) -> str:
    return (
        "Each line is the confidence interval of a mean difference over queries. A line that excludes zero indicates a "
        f"real difference. The shaded band is the equivalence margin ±{part.comparison.margin:g}."
    )


DIFFERENCES = Panel("differences", "Differences", "Differences and their intervals", _differences_remark, _differences)


_MAX_BARS = 240  # more queries are drawn as one outline


def _wins(part: RankedCollection, _: str) -> Markup:
    """Show the leader against each other plotted system, or each system against the baseline."""
    comparison, styles = part.comparison, plotted(part.comparison)
    values = comparison.values
    metric = comparison.metrics[0]
    lower = metric in comparison.lower_is_better
    reference = comparison.baseline or part.ranked_systems[0]
    baseline = comparison.baseline is not None and not part.against_leader
    panels = []
    for name in part.ranked_systems:
        if name == reference or name not in styles:
            continue
        a, b = (name, reference) if baseline else (reference, name)
        drawn = _win_loss_plot(metric, (a, b), values.of(a, metric), values.of(b, metric), part.query_name, lower)
        panels.append(panel(f"{shortened(a, 40)} against {shortened(b, 40)}", drawn))
    return side_by_side(*panels)


def _win_loss_plot(
    name: str, pair: tuple[str, str], a: FloatArray, b: FloatArray, query_name: Callable[[int], str], lower: bool
) -> Markup:
    """Plot per-query differences sorted by win of `a`; upwards is better for `a` for all metrics."""
    both = np.flatnonzero(~(np.isnan(a) | np.isnan(b)))
    gains = differences(b[both], a[both]) if lower else differences(a[both], b[both])
    gains = np.where(np.abs(gains) <= ROUNDING, 0.0, gains)  # a tie, as in `win_tie_loss`
    order = np.argsort(-gains, kind="stable")
    gains, both = gains[order], both[order]
    reach = float(np.abs(gains).max(initial=0.0)) or 1.0
    box = Box(40, 12, WIDTH - 8, 150)
    y = Scale(-reach, reach, box.bottom, box.top)
    x = Scale(0, len(gains), box.left, box.right)
    marked = marked_ticks(-reach, reach, 6)
    frame = axes(box, x, y, [], marked)
    if len(gains) <= _MAX_BARS:
        words = [f"query {shortened(query_name(q), 60)}: {number(a[q])} against {number(b[q])}" for q in both.tolist()]
        drawn = join(_bar(i, x, y, gains[i], q, words[i]) for i, q in enumerate(both.tolist()))
    else:
        drawn = _outline(gains, x, y)
    zero = tag("line", x1=box.left, x2=box.right, y1=y(0.0), y2=y(0.0), cls="zero")
    wins, losses = int((gains > 0).sum()), int((gains < 0).sum())
    counts = [
        tag("text", f"▲ better on {wins:,}", x=box.right, y=box.top + 8, cls="name end"),
        tag("text", f"▼ worse on {losses:,}", x=box.left + 4, y=box.bottom - 5, cls="name"),
        tag("text", f"{len(gains):,} queries, {len(gains) - wins - losses:,} ties", x=(box.left + box.right) / 2,
            y=box.bottom + 16, cls="label mid"),
    ]  # fmt: skip
    spoken = f"{name} of {pair[0]} against {pair[1]}: better on {wins}, worse on {losses} of {len(gains)} queries"
    role = "group" if len(gains) <= _MAX_BARS else "img"  # elements of an image cannot get the focus
    return figure(spoken, 172, frame, drawn, zero, *counts, role=role)


def _bar(i: int, x: Scale, y: Scale, gain: float, query: int, words: str) -> Markup:
    top, bottom = sorted((y(gain), y(0.0)))
    kind = "win" if gain > 0 else "loss" if gain < 0 else "flat"
    width = max(x(i + 1) - x(i) - 0.4, 0.5)
    place = {"x": x(i), "y": top, "width": width, "height": max(bottom - top, 1.0)}
    # Tab reaches one bar; arrow keys reach the others.
    return tag(
        "rect", title(words), **place, cls=f"bar {kind}", data_q=query, role="button", tabindex="0" if i == 0 else "-1"
    )


def _outline(gains: FloatArray, x: Scale, y: Scale) -> Markup:
    """Draw wins and losses as two areas, one point per pixel."""
    at = np.unique(np.linspace(0, len(gains) - 1, int(x.stop - x.start)).astype(int))
    parts = []
    for kind, side in (("win", np.maximum(gains, 0.0)), ("loss", np.minimum(gains, 0.0))):
        points = [(x(i + 0.5), y(side[i])) for i in at.tolist()]
        outline = [(x(0), y(0.0)), *points, (x(len(gains)), y(0.0))]
        parts.append(tag("path", d=path(outline, close=True), cls=f"bar {kind}"))
    return join(parts)


_WINS = (
    "One bar per query, sorted by difference: above the line the first system is better, below it the second. A mean "
    "hides whether many queries gain a little or a few gain a lot."
)
WINS = Panel("wins", "Queries", "Wins and losses by query", _WINS, _wins)
