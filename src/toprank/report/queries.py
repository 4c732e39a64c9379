"""Single queries: the hardest with their top documents, and the frame of the explorer."""

from __future__ import annotations

import numpy as np

from toprank.data.queries import Queries
from toprank.metrics.ranking import ranking
from toprank.report.content import Part
from toprank.report.explorer import Explorer, grade_name
from toprank.report.markup import Markup, shortened, tag
from toprank.report.tables import scrolling
from toprank.significance.results import number

__all__ = ["exploring", "hard_queries"]

_TOP = 5  # documents of a hard query
_SIDES = 2  # systems whose documents are shown for a hard query


def hard_queries(part: Part, key: str) -> Markup | None:
    """The hardest queries: what each system gets there, and the top documents of the best systems."""
    if not part.hardest:
        return None
    metric = part.comparison.metrics[0]
    per_query = part.judgements[0].per_query
    order = part.ranked_systems
    cards = []
    for q in part.hardest:
        values = [
            tag("li", f"{shortened(name, 30)} ", tag("b", _value(per_query[name][metric][q]))) for name in order[:8]
        ]
        link = tag("a", "Open in the explorer", href=f"#{key}-explorer", data_open=q)
        cards.append(
            tag(
                "article",
                tag("h3", "Query ", tag("span", shortened(str(part.qids[q]), 60), cls="name")),
                tag("ul", *values, cls="values"),
                _top_documents(part, q),
                link,
                cls="card",
            )
        )
    return tag("div", *cards, cls="cards")


def _value(value: float) -> str:
    return "–" if np.isnan(value) else number(float(value))


def _top_documents(part: Part, q: int) -> Markup | None:
    documents = part.documents
    if documents is None:
        return None
    start, stop = documents.queries.offsets[q : q + 2].tolist()
    one = Queries([0, stop - start])
    columns = []
    for name in part.ranked_systems[:_SIDES]:
        top = ranking(documents.scores[name][start:stop], one, _TOP).order[:_TOP] + start
        items = [
            tag(
                "li",
                chip(documents.labels[d], documents.top_grade),
                tag("span", shortened(str(documents.names[d]), 40), cls="name"),
            )
            for d in top
        ]
        columns.append(tag("div", tag("h4", shortened(name, 30)), tag("ol", *items)))
    return tag("div", *columns, cls="sides")


def chip(label: float, top: float) -> Markup:
    """A grade: its number, and a shade that says how high it is."""
    name = grade_name(float(label))
    level = 0 if name == "?" or label <= 0 else 1 + int(3 * float(label) / top + 0.5)
    return tag("span", name, cls=f"grade g{level}", title=f"grade {name}")


def exploring(part: Part, found: Explorer, key: str) -> Markup:
    """The frame of the explorer; the script fills it."""
    columns = [("id", "query"), ("a", "A"), ("b", "B"), ("d", "A − B")]
    if part.documents is not None:
        columns[1:1] = [("size", "documents"), ("relevant", "relevant")]
    heads = [_sorting_head(name, words) for name, words in columns]
    listing = tag("table", tag("thead", tag("tr", *heads)), tag("tbody"), cls="queries")
    more = tag("button", "Show more", type="button", cls="more", hidden=True)
    hint = tag("p", "Choose a query to see both rankings.", cls="remark")
    panes = [
        tag("div", scrolling(listing, "Queries"), more, cls="list"),
        tag("div", hint, cls="detail", aria_live="polite"),
    ]
    return tag(
        "div",
        tag("script", found.json, type="application/json"),
        tag("noscript", tag("p", "The explorer needs JavaScript; everything else on this page does not.")),
        _tools(part),
        tag("p", "", cls="count remark", role="status"),
        tag("div", *panes, cls="panes"),
        cls="explorer",
        data_part=key,
    )


def _sorting_head(name: str, words: str) -> Markup:
    kind = None if name == "id" else "n extra" if name in ("size", "relevant") else "n"
    return tag("th", tag("button", words, type="button", data_sort=name), scope="col", cls=kind)


def _tools(part: Part) -> Markup:
    """What to find, which two systems, by which metric."""
    comparison = part.comparison

    def choice(name: str, label: str, options: list[str], chosen: int = 0) -> Markup:
        items = [tag("option", o, value=i, selected=i == chosen) for i, o in enumerate(options)]
        return tag("label", tag("span", label), tag("select", *items, data_role=name))

    systems, order = list(comparison.systems), part.ranked_systems
    second = comparison.baseline if comparison.baseline not in (None, order[0]) else order[1]
    tools = [
        tag("label", tag("span", "Find a query"), tag("input", type="search", data_role="find", autocomplete="off",
            placeholder="part of its id", spellcheck="false"), cls="find"),
        choice("a", "A", systems, systems.index(order[0])),
        choice("b", "B", systems, systems.index(second or order[1])),
        choice("metric", "metric", list(comparison.metrics)),
        choice("filter", "show", ["all queries", "A is better", "B is better", "level"]),
    ]  # fmt: skip
    return tag("form", *tools, cls="tools")
