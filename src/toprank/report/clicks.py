"""The HTML page of `toprank clicks`: findings, propensities with intervals, and compared models."""

from __future__ import annotations

import math

import numpy as np

from toprank.clicks.checking import LogReport
from toprank.clicks.context_propensities import ContextPropensities
from toprank.clicks.intervention_harvesting import Graph
from toprank.clicks.model_comparison import ComparedModels
from toprank.clicks.training_result import ClickTrainingResult
from toprank.display.pictures import Chart, Line, curves
from toprank.display.svg import WIDTH, Markup, color, figure, join, tag, title
from toprank.errors import count_of
from toprank.report.page import Section, sectioned_page
from toprank.report.parts import legend, panel, plain_table, sentences, side_by_side

_MAX_CONTEXTS = 10  # more curves in a plot cannot be distinguished


def clicks_page(report: LogReport, name: str, models: ComparedModels | None = None, *further: Section) -> str:
    """Return the page as HTML; `further` sections are appended."""
    problems = sum(finding.severity == "problem" for finding in report.findings)
    joined = int(report.graph.identified.sum())
    lead = f"{joined} of {report.graph.depth} positions can be compared with the first" if joined > 1 else (
        "Positions cannot be compared: the log shows one order"
    )  # fmt: skip
    sizes = ", ".join(f"{count:,} {what}" for what, count in report.sizes.items())
    opening = [tag("p", f"{sizes}; {count_of(problems, 'problem')}.", cls="remark")]
    findings = sentences(map(str, report.findings) if report.findings else ["No findings."])
    known = report.propensities is not None and np.isfinite(report.propensities.values).any()
    figures = [panel("Propensity of each position", report.plot().figure())] if known else []
    figures.append(panel("Connections between positions", _connections_plot(report.graph)))
    curve = (
        "Propensities are the probabilities that users examine a position, relative to the first. Bars are confidence "
        "intervals over queries. "
    )
    remark = (curve if known else "") + (
        "Connections: a cell marks two positions that showed the same document of a query; it is darker for more such "
        "documents. On the diagonal, positions without a connection to the first position have another color. Their "
        "propensities are not identified."
    )
    sections: list[Section] = [
        ("found", "Findings", "", findings),
        ("positions", "Positions", remark, join([side_by_side(*figures), plain_table(report.table(), "Positions")])),
    ]
    if report.contexts is not None:
        sections.append(("contexts", "Contexts", report.contexts.summary, _contexts(report.contexts)))
    if models is not None:
        words = (
            "Models are evaluated on held-out sessions. Perplexity is 2 to the mean log loss in bits per rank, "
            "averaged over ranks: 1 is perfect, 2 is a coin toss. A useful model beats the click rates."
        )
        sections.append(
            ("models", "Models", words, join([*_perplexity_plot(models), plain_table(models.table(), "Models")]))
        )
    return sectioned_page(name, lead, opening, [*sections, *further])


def _connections_plot(graph: Graph) -> Markup:
    """Plot a matrix of positions; cells are darker the more documents two positions share."""
    left, top, depth = 34.0, 26.0, graph.depth
    side = min((WIDTH - left - 10) / depth, 22.0)
    most = max((edge.pairs for edge in graph.edges), default=1)

    def cell(row: int, column: int, words: str, dark: float, style: int) -> Markup:
        place = {"x": left + side * (column - 1), "y": top + side * (row - 1), "width": side - 1, "height": side - 1}
        return tag("rect", title(words), cls=f"mark {color(style)}", opacity=f"{dark:.2f}", **place)

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
        words = f"position {k}: {'connected to the first' if joined else 'not connected to the first'}"
        drawn.append(cell(k, k, words, 1.0, 0 if joined else 1))
        if (k - 1) % every == 0:
            drawn.append(tag("text", str(k), x=left + side * (k - 0.5), y=top - 8, cls="tick mid"))
            drawn.append(tag("text", str(k), x=left - 6, y=top + side * (k - 0.5) + 4, cls="tick end"))
    return figure("Positions connected by shared documents", top + side * depth + 10, *drawn)


def _perplexity_plot(models: ComparedModels) -> list[Markup]:
    styles = {name: place for place, name in enumerate(models.finite)}
    if not styles:
        return []
    drawn = models.plot(named=False).figure()
    return [legend(styles), side_by_side(panel("Perplexity by rank", drawn))]


def rankers_section(done: ClickTrainingResult) -> Section:
    """Return the section that compares naive, debiased and full-information rankers, and shows the propensities."""
    outcome = sentences(part for part in done._parts() if isinstance(part, str))
    headings = {
        "dcg@10": f"DCG@10 by clicks {'of the latest sessions' if done.held_out else 'on held-out queries'}",
        "gain": "Gain over the naive ranker",
        "valid_ndcg@10": "NDCG@10 by labels of the validation queries",
    }
    figures = [panel(headings[name], done.plot(name).figure()) for name in done.compared_by if name in headings]
    if done.curves is not None:
        figures.append(panel("The propensities used for the correction", _propensities_plot(done)))
    table = done.table()
    shown = join([outcome, side_by_side(*figures), *([] if table is None else [plain_table(table, "Rankers")])])
    judged = "Rankers are cross-fitted over queries and evaluated by the clicks on held-out queries."
    if done.held_out:
        judged = f"The rankers are judged by the clicks of {done.held_out}, which no ranker was trained on."
    remark = (
        "The naive ranker is trained on raw clicks, the full-information ranker on labels. Bars are 95% intervals over "
        f"queries. {judged} Gains are paired by query; a gain whose interval includes 0 is not significant."
    )
    return "rankers", "Rankers", remark, shown


def _contexts(propensities: ContextPropensities) -> Markup:
    drawn = (
        [panel("Propensity by context", propensities.plot().figure())] if np.isfinite(propensities.values).any() else []
    )
    tables = [
        plain_table(propensities.sizes_table(), "Contexts"),
        plain_table(propensities.table(), "Propensities by context"),
    ]
    return join([side_by_side(*drawn), *tables])


def _propensities_plot(done: ClickTrainingResult) -> Markup:
    assert done.curves is not None
    slope, layout = done.curves.slope, done.curves.layout
    if layout is None:
        named = {"α, factor of relevance": slope, "β, offset": done.curves.offset}
    else:  # the first row is for unknown contexts
        named = dict(zip(layout.names, slope.reshape(-1, layout.depth)[1:][:_MAX_CONTEXTS], strict=False))
    places = tuple(float(k + 1) for k in range(done.curves.depth))
    shown = {name: values for name, values in named.items() if np.nan_to_num(values).any()}
    styles = {name: place for place, name in enumerate(shown)}
    lines = tuple(Line(name, places, tuple(values.tolist()), styles[name]) for name, values in shown.items())
    drawn = Chart(f"P(click), {done.curves.origin}", "position", "P(click)", lines)
    return join([legend(styles), curves(drawn, named=False).figure()])
