"""The page of `toprank clicks`: what was found, propensities with intervals, what joins positions, what is compared."""

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

_CONTEXTS = 10  # curves in a picture: more cannot be told apart


def clicks_page(report: LogReport, name: str, models: ComparedModels | None = None, *further: Section) -> str:
    """The whole page as text; `further` sections stand behind the others."""
    problems = sum(finding.severity == "problem" for finding in report.findings)
    joined = int(report.graph.identified.sum())
    lead = f"{joined} of {report.graph.depth} positions can be compared with the first" if joined > 1 else (
        "Positions cannot be compared: the log shows one order"
    )  # fmt: skip
    sizes = ", ".join(f"{count:,} {what}" for what, count in report.sizes.items())
    opening = [tag("p", f"{sizes}; {count_of(problems, 'problem')}.", cls="remark")]
    findings = sentences(map(str, report.findings) if report.findings else ["Nothing was found."])
    known = report.propensities is not None and np.isfinite(report.propensities.values).any()
    figures = [panel("Propensity of each position", report.plot().figure())] if known else []
    figures.append(panel("What joins positions", _drawn(report.graph)))
    curve = (
        "Propensities: how likely users look at a position, relative to the first; bars are intervals over queries. "
    )
    remark = (curve if known else "") + (
        "What connects positions: each cell stands for two positions that showed the same document of a query, darker "
        "for more such documents. On the diagonal, positions that nothing connects to the first have another color: "
        "they cannot be compared with it."
    )
    sections: list[Section] = [
        ("found", "Findings", "", findings),
        ("positions", "Positions", remark, join([side_by_side(*figures), plain_table(report.table(), "Positions")])),
    ]
    if report.contexts is not None:
        sections.append(("contexts", "Contexts", report.contexts.summary, _of_contexts(report.contexts)))
    if models is not None:
        words = (
            "On sessions that no model was fitted on; a model must beat the click rates. Perplexity: 2 to the mean "
            "surprise at a rank in bits, over the sessions that have it, averaged over ranks; 1 is perfect, 2 a coin."
        )
        sections.append(("models", "Models", words, join([*_surprise(models), plain_table(models.table(), "Models")])))
    return sectioned_page(name, lead, opening, [*sections, *further])


def _drawn(graph: Graph) -> Markup:
    """A matrix of positions: a cell where two share documents, the darker the more, and each on the diagonal."""
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
    return figure("Positions connected by documents that both showed", top + side * depth + 10, *drawn)


def _surprise(models: ComparedModels) -> list[Markup]:
    styles = {name: place for place, name in enumerate(models.finite)}
    if not styles:
        return []
    drawn = models.plot(named=False).figure()
    return [legend(styles), side_by_side(panel("Perplexity by rank", drawn))]


def rankers_section(done: ClickTrainingResult) -> Section:
    """Naive against debiased against full information, and what the clicks were corrected by."""
    outcome = sentences(part for part in done._parts() if isinstance(part, str))
    headings = {
        "dcg@10": f"DCG@10 by clicks {'of the latest sessions' if done.held_out else 'on held-out queries'}",
        "gain": "and its gain over the naive ranker",
        "valid_ndcg@10": "NDCG@10 by the labels of other queries",
    }
    figures = [panel(headings[name], done.plot(name).figure()) for name in done.compared_by if name in headings]
    if done.curves is not None:
        figures.append(panel("The propensities used for the correction", _corrected_by(done)))
    table = done.table()
    shown = join([outcome, side_by_side(*figures), *([] if table is None else [plain_table(table, "Rankers")])])
    judged = (
        "The queries are cut into parts, and each part is ranked by rankers trained on the others; the clicks on that "
        "part judge these rankings."
    )
    if done.held_out:
        judged = f"The rankers are judged by the clicks of {done.held_out}, which no ranker was trained on."
    remark = (
        "The naive ranker is trained on raw clicks; full information is the same ranker trained on labels. Bars are "
        f"95% intervals over queries. {judged} Gains are paired by query; a gain whose bar includes 0 has not been "
        "shown."
    )
    return "rankers", "Rankers", remark, shown


def _of_contexts(propensities: ContextPropensities) -> Markup:
    drawn = (
        [panel("Propensity by context", propensities.plot().figure())] if np.isfinite(propensities.values).any() else []
    )
    tables = [
        plain_table(propensities.sizes_table(), "Contexts"),
        plain_table(propensities.table(), "Propensities by context"),
    ]
    return join([side_by_side(*drawn), *tables])


def _corrected_by(done: ClickTrainingResult) -> Markup:
    assert done.curves is not None
    slope, layout = done.curves.slope, done.curves.layout
    if layout is None:
        named = {"α, times what a document is worth": slope, "β, besides": done.curves.offset}
    else:  # the first row is for contexts that nothing is known of
        named = dict(zip(layout.names, slope.reshape(-1, layout.depth)[1:][:_CONTEXTS], strict=False))
    places = tuple(float(k + 1) for k in range(done.curves.depth))
    shown = {name: values for name, values in named.items() if np.nan_to_num(values).any()}
    styles = {name: place for place, name in enumerate(shown)}
    lines = tuple(Line(name, places, tuple(values.tolist()), styles[name]) for name, values in shown.items())
    drawn = Chart(f"P(click), {done.curves.origin}", "position", "P(click)", lines)
    return join([legend(styles), curves(drawn, named=False).figure()])
