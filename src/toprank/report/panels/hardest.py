"""The queries that all systems rank worst."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.queries import Queries
from toprank.drawing import Markup, shortened, tag
from toprank.metrics.ranking import ranking
from toprank.report.panels.explorer import grade_name
from toprank.report.parts import Panel
from toprank.significance.results import number

if TYPE_CHECKING:
    from toprank.report.content import Part

__all__ = ["HARDEST", "hardest"]

_HARDEST = 6
_TOP = 5  # documents of a hard query
_SIDES = 2  # systems whose documents are shown for a hard query


def hardest(per_query: Mapping[str, FloatArray], lower_is_better: bool, solvable: Any | None) -> tuple[int, ...]:
    """The queries that all systems together rank worst, among those where something can be gained."""
    table = np.array(list(per_query.values()))
    mean = table.mean(axis=0) * (-1.0 if lower_is_better else 1.0)
    mean = np.where(np.isnan(mean), np.inf, mean)
    if solvable is not None:
        mean = np.where(solvable, mean, np.inf)
    order = np.argsort(mean, kind="stable")[:_HARDEST]
    return tuple(order[np.isfinite(mean[order])].tolist())


def _shown(part: Part, key: str) -> Markup | None:
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
                _chip(documents.labels[d], documents.top_grade),
                tag("span", shortened(str(documents.names[d]), 40), cls="name"),
            )
            for d in top
        ]
        columns.append(tag("div", tag("h4", shortened(name, 30)), tag("ol", *items)))
    return tag("div", *columns, cls="sides")


def _chip(label: float, top: float) -> Markup:
    """A grade: its number, and a shade that says how high it is."""
    name = grade_name(float(label))
    level = 0 if name == "?" or label <= 0 else 1 + int(3 * float(label) / top + 0.5)
    return tag("span", name, cls=f"grade g{level}", title=f"grade {name}")


def _remark(part: Part) -> str:
    return (
        f"Worst {part.comparison.metrics[0]} on average over the systems, among queries that have something relevant; "
        "numbers in boxes are grades."
    )


HARDEST = Panel("hard", "Hardest", "Hardest queries", _remark, _shown)
