"""The page of `toprank clicks`: what was found, propensities with intervals, what joins positions, what is compared."""

from __future__ import annotations

import math
import os

import numpy as np

from toprank.clicks.checking import LogReport
from toprank.clicks.harvests import Graph
from toprank.clicks.held_out import ComparedModels
from toprank.clicks.intervals import in_words
from toprank.clicks.training import Trained
from toprank.drawing import WIDTH, Box, Markup, Scale, axes, colour, figure, join, marker, path, tag, ticks, title
from toprank.report.content import Chart, Line
from toprank.report.page import document, section, write_page
from toprank.report.parts import chart, legend, panel, plain_table, side_by_side
from toprank.significance import Interval

__all__ = ["Extra", "clicks_page", "rankers_section", "write_clicks"]

Extra = tuple[str, str, str, Markup]
"""A further section: its anchor, its heading (and link), how to read it, and what it shows."""


def write_clicks(
    path: str | os.PathLike[str],
    report: LogReport,
    name: str,
    models: ComparedModels | None = None,
    *further: Extra,
) -> None:
    """Write the page as one HTML file, wholly or not at all."""
    write_page(path, clicks_page(report, name, models, *further))


def clicks_page(report: LogReport, name: str, models: ComparedModels | None = None, *further: Extra) -> str:
    """The whole page as text; `further` sections stand behind the others."""
    problems = sum(one.severity == "problem" for one in report.findings)
    told = int(report.graph.identified.sum())
    lead = f"{told} of {report.graph.depth} positions can be compared with the first" if told > 1 else (
        "Positions cannot be compared: the log shows one order"
    )  # fmt: skip
    said = ", ".join(f"{count:,} {what}" for what, count in report.sizes.items())
    opening = tag(
        "header",
        tag("p", name, cls="kicker"),
        tag("h1", lead, cls="lead"),
        tag("p", f"{said}; {problems} {'problem' if problems == 1 else 'problems'}.", cls="remark"),
        cls="opening",
    )
    found = [tag("li", str(one)) for one in report.findings] or [tag("li", "Nothing was found.")]
    known = report.propensities is not None and np.isfinite(report.propensities.values).any()
    figures = [panel("Propensity of each position", _curve(report))] if known else []
    figures.append(panel("What joins positions", _drawn(report.graph)))
    curve = "Propensities: how likely a position is looked at, relative to the first; bars are intervals over queries. "
    remark = (curve if known else "") + (
        "What joins positions: a cell for each two that showed the same document of a query, the darker the more such "
        "documents; on the diagonal, positions that nothing joins to the first have another colour: nobody can compare "
        "them with it."
    )
    sections = [
        ("found", "Findings", "", tag("ul", *found, cls="verdicts")),
        ("positions", "Positions", remark, join([side_by_side(*figures), plain_table(report.table(), "Positions")])),
    ]
    if models is not None:
        words = (
            "On sessions that no model was fitted to; the rates are what a model must beat. Perplexity: 2 to the mean "
            "surprise of a rank in bits, over the sessions that have it, mean over ranks; 1 is perfect, 2 a coin."
        )
        sections.append(("models", "Models", words, join([_surprise(models), plain_table(models.table(), "Models")])))
    sections += further
    body = [opening, *(section(key, heading, words, shown) for key, heading, words, shown in sections)]
    return document(name, join(body), [(key, heading) for key, heading, _, _ in sections])


def _curve(report: LogReport) -> Markup:
    """Propensities as marks with bars."""
    known = report.propensities
    assert known is not None
    (low, high), places = known.intervals, np.flatnonzero(known.identified & np.isfinite(known.values))
    box = Box(44, 10, WIDTH - 12, 190)
    x = Scale(1, max(2, report.graph.depth), box.left + 8, box.right - 8)
    most = 1.5 * float(np.nanmax(known.values[places]))  # bars beyond it, or without an end, end there
    y = Scale(0, max(1.0, min(most, float(np.nanmax(high[places], initial=0.0)))), box.bottom, box.top)
    y_ticks = [(v, f"{v:g}") for v in ticks(0, y.high, 5)]
    x_ticks = [(v, f"{v:g}") for v in ticks(1, x.high, min(10, report.graph.depth)) if v == int(v)]
    drawn = [axes(box, x, y, x_ticks, y_ticks, "position")]
    points = [(x(float(k + 1)), y(float(known.values[k]))) for k in places]
    drawn.append(tag("path", d=path(points), cls=f"curve {colour(0)}"))
    for k, (at, height) in zip(places, points, strict=True):
        words = f"position {k + 1}: {known.values[k]:.3f} {in_words(low[k], high[k])}"
        if not np.isnan(high[k]):
            top, bottom = y(min(float(high[k]), y.high)), y(float(low[k]))
            drawn.append(tag("line", x1=at, x2=at, y1=bottom, y2=top, cls=f"curve {colour(0)}"))
        drawn.append(marker(0, at, height, words))
    return figure("Propensity by position, with intervals", 230, *drawn)


def _drawn(graph: Graph) -> Markup:
    """A matrix of positions: a cell where two share documents, the darker the more, and each on the diagonal."""
    left, top, depth = 34.0, 26.0, graph.depth
    side = min((WIDTH - left - 10) / depth, 22.0)
    most = max((edge.pairs for edge in graph.edges), default=1)

    def cell(row: int, column: int, words: str, dark: float, style: int) -> Markup:
        place = {"x": left + side * (column - 1), "y": top + side * (row - 1), "width": side - 1, "height": side - 1}
        return tag("rect", title(words), cls=f"mark {colour(style)}", opacity=f"{dark:.2f}", **place)

    drawn = []
    for edge in graph.edges:
        words = (
            f"positions {edge.first} and {edge.second}: {edge.pairs:,} documents at both, {edge.impressions:,} "
            "impressions of them"
        )
        drawn.append(cell(edge.second, edge.first, words, 0.15 + 0.85 * math.sqrt(edge.pairs / most), 0))
    every = max(1, math.ceil(depth / 12))
    for k in range(1, depth + 1):
        joined = bool(graph.identified[k - 1])
        words = f"position {k}: {'joined to the first' if joined else 'not joined to the first'}"
        drawn.append(cell(k, k, words, 1.0, 0 if joined else 1))
        if (k - 1) % every == 0:
            drawn.append(tag("text", str(k), x=left + side * (k - 0.5), y=top - 8, cls="tick mid"))
            drawn.append(tag("text", str(k), x=left - 6, y=top + side * (k - 0.5) + 4, cls="tick end"))
    return figure("Positions joined by documents that both showed", top + side * depth + 10, *drawn)


def _surprise(models: ComparedModels) -> Markup:
    """Perplexity by rank, a curve for each model whose perplexity is finite everywhere."""
    shown = [(name, one) for name, one in zip(models.names, models.by_rank, strict=True) if np.isfinite(one).all()]
    if not shown:
        return Markup()
    styles = {name: place for place, (name, _) in enumerate(shown)}
    lines = tuple(
        Line(name, tuple(float(k + 1) for k in range(len(one))), tuple(one.tolist()), styles[name])
        for name, one in shown
    )
    drawn = Chart("Perplexity by rank", "rank", "perplexity", lines)
    return join([legend(styles), side_by_side(panel("Perplexity by rank", chart(drawn)))])


def rankers_section(done: Trained) -> Extra:
    """Naive against debiased against full information, and what the clicks were corrected by."""
    said = tag("ul", *(tag("li", part) for part in done._parts() if isinstance(part, str)), cls="verdicts")
    compared = {
        "DCG@10 by clicks on held-out queries": done.estimates,
        "and its gain over the naive ranker": done.gains,
        "NDCG@10 by the labels of other queries": done.metrics,
    }
    figures = [panel(heading, _worths(heading, worth)) for heading, worth in compared.items() if worth]
    if done.curves is not None:
        figures.append(panel("What clicks were corrected by", _corrected_by(done)))
    table = done.table()
    shown = join([said, side_by_side(*figures), *([] if table is None else [plain_table(table, "Rankers")])])
    remark = (
        "The naive ranker takes clicks as they are; full information is the same ranker trained on labels. Bars are "
        "95% intervals over queries. Clicks judge rankings of queries whose sessions trained none of the rankers that "
        "made them: each part of the queries is ranked by rankers that were trained on the others. A gain is paired by "
        "query; one whose bar holds 0 is not shown."
    )
    return "rankers", "Rankers", remark, shown


def _worths(name: str, worth: dict[str, Interval]) -> Markup:
    """A mark with a bar for each ranker, one below the other."""
    bounds = [end for one in worth.values() for end in (one.value, *one) if math.isfinite(end)]
    low, high = min(bounds), max(bounds)
    room = (high - low) * 0.08 or 0.05
    box = Box(120, 10, WIDTH - 12, 20 + 34 * len(worth))
    x = Scale(low - room, high + room, box.left, box.right)
    y = Scale(0, len(worth), box.top, box.bottom)
    drawn = [axes(box, x, y, [(v, f"{v:g}") for v in ticks(x.low, x.high, 5)], [])]
    for place, (ranker, one) in enumerate(worth.items()):
        at, style = y(place + 0.5), 7 if ranker == "naive" else place
        ends = [x(min(max(end, x.low), x.high)) for end in (one.low, one.high)]
        known = math.isfinite(one.low) and math.isfinite(one.high)
        words = f"{ranker}: {one.value:.4f}" + (f", {one.low:.4f} to {one.high:.4f}" if known else "")
        drawn += [
            tag("text", ranker, x=box.left - 10, y=at + 4, cls="tick end"),
            tag("line", x1=ends[0], x2=ends[1], y1=at, y2=at, cls=f"curve {colour(style)}"),
            marker(style, x(one.value), at, words),
        ]
    return figure(name, box.bottom + 34, *drawn)


def _corrected_by(done: Trained) -> Markup:
    assert done.curves is not None
    places = tuple(float(k + 1) for k in range(len(done.curves.slope)))
    named = {"α, times what a document is worth": done.curves.slope, "β, besides": done.curves.offset}
    shown = {name: values for name, values in named.items() if np.nan_to_num(values).any()}
    styles = {name: place for place, name in enumerate(shown)}
    lines = tuple(Line(name, places, tuple(values.tolist()), styles[name]) for name, values in shown.items())
    return join([legend(styles), chart(Chart(f"P(click), {done.curves.told}", "position", "P(click)", lines))])
