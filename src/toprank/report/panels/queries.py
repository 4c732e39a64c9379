"""Single queries: the hardest queries, and the query explorer.

The data of the explorer are embedded as compact JSON within a byte limit. The hardest queries come first, then queries
with the largest differences between two systems. The page states how many queries were omitted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.queries import Queries
from toprank.display.svg import Markup, join, safe_json, shortened, tag
from toprank.evaluation import Comparison
from toprank.metrics.sorting import ranking
from toprank.report.content import JudgedDocuments, RankedCollection
from toprank.report.parts import Panel, scrolling
from toprank.significance.results import number
from toprank.significance.tests import ROUNDING

_N_HARDEST = 6
_N_TOP = 5  # documents shown for a hard query
_N_SYSTEMS = 2  # systems whose documents are shown for a hard query


def hardest(comparison: Comparison, solvable: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the queries with the worst mean over systems, among queries with a relevant document."""
    metric = comparison.metrics[0]
    sign = -1.0 if metric in comparison.lower_is_better else 1.0
    mean = sign * comparison.values.table[:, 0].mean(axis=0)
    mean = np.where(np.isnan(mean) | ~solvable, np.inf, mean)
    order = np.argsort(mean, kind="stable")[:_N_HARDEST]
    return tuple(order[np.isfinite(mean[order])].tolist())


def _hardest_shown(part: RankedCollection, key: str) -> Markup | None:
    """Show the hardest queries with the value of each system, and the top documents of the best systems."""
    if not part.hardest:
        return None
    metric = part.comparison.metrics[0]
    values = part.comparison.values
    order = part.ranked_systems
    cards = []
    for q in part.hardest:
        shown = [
            tag("li", f"{shortened(name, 30)} ", tag("b", _value(values.of(name, metric)[q]))) for name in order[:8]
        ]
        link = tag("a", "Open in the explorer", href=f"#{key}-explorer", data_open=q)
        cards.append(
            tag(
                "article",
                tag("h3", "Query ", tag("span", shortened(part.query_name(q), 60), cls="name")),
                tag("ul", *shown, cls="values"),
                _top_documents(part, q),
                link,
                cls="card",
            )
        )
    return tag("div", *cards, cls="cards")


def _value(value: float) -> str:
    return "–" if np.isnan(value) else number(float(value))


def _top_documents(part: RankedCollection, q: int) -> Markup | None:
    documents = part.documents
    if documents is None:
        return None
    start, stop = documents.queries.offsets[q : q + 2].tolist()
    query = Queries([0, stop - start])
    columns = []
    for name in part.ranked_systems[:_N_SYSTEMS]:
        scores = documents.scores[name]
        top = ranking(scores[start:stop], query, _N_TOP).order[:_N_TOP] + start
        top = top[scores[top] > -np.inf]
        items = [
            tag(
                "li",
                _chip(documents.labels[d], documents.top_grade),
                tag("span", shortened(documents.name_of(d), 60), cls="name"),
            )
            for d in top
        ]
        columns.append(tag("div", tag("h4", shortened(name, 30)), tag("ol", *items)))
    return tag("div", *columns, cls="sides")


def _chip(label: float, top: float) -> Markup:
    """Return a grade as a number on a shade by height."""
    name = grade_name(float(label))
    level = 0 if name == "?" or label <= 0 else 1 + int(3 * float(label) / top + 0.5)
    return tag("span", name, cls=f"grade g{level}", title=f"grade {name}")


def _hardest_remark(part: RankedCollection) -> str:
    return (
        f"Lowest mean {part.comparison.metrics[0]} over all systems, among queries with a relevant document. Numbers "
        "in boxes are grades."
    )


HARDEST = Panel("hard", "Hardest", "Hardest queries", _hardest_remark, _hardest_shown)


DEPTH = 10  # documents of each ranking in the explorer
_SCALE = 10_000  # values are embedded as integer ten-thousandths
_MAX_NAME_CHARACTERS = 80  # of an id and its text
_TABLE_SHARE = 0.4  # share of the byte limit for the table of queries


def explorer_panel(part: RankedCollection, budget: int) -> Panel:
    """Return the explorer panel with at most `budget` bytes of data."""
    explored = explorer(part, budget)
    remark = (
        f"All queries, with the top {DEPTH} documents of two systems side by side. {_left_out(part, explored)}".strip()
    )
    slash, up, down, escape = (tag("kbd", key) for key in ("/", "↑", "↓", "Esc"))
    words = [slash, " find, ", up, " ", down, " next query, ", escape, " clear. Click a heading to sort."]
    keys = tag("p", *words, cls="remark keys")

    def shown(of: RankedCollection, key: str) -> Markup:
        return join([keys, _frame(of, explored, key)])

    return Panel("explorer", "Explorer", "Query explorer", remark, shown)


def _left_out(part: RankedCollection, shown: Explorer) -> str:
    words = []
    if shown.listed < shown.queries:
        words.append(
            f"To keep this file small, only {shown.listed:,} of {shown.queries:,} queries are listed: the hardest, and "
            "the ones with the largest differences."
        )
    if part.documents is None:
        words.append("Documents are not available, only metric values.")
    elif shown.with_documents < shown.listed:
        words.append(
            f"Documents are embedded for {shown.with_documents:,} of them: the hardest, and the ones with the largest "
            "differences."
        )
    return " ".join(words)


class Explorer(NamedTuple):
    """JSON data of the explorer, with the numbers of queries listed, shown with documents, and in total."""

    json: Markup
    listed: int
    with_documents: int
    queries: int


def explorer(part: RankedCollection, budget: int) -> Explorer:
    """Return the data of the explorer within `budget` bytes, not counting the names of systems and metrics."""
    order = _by_interest(part)
    comparison = part.comparison
    rows = _rows(part)
    listed = _listed(rows, order, int(budget * _TABLE_SHARE))
    table = {name: [column[q] for q in listed.tolist()] for name, column in rows.items()}
    left = budget - _cost(table)
    documents = {} if part.documents is None else _documents(part.documents, order[np.isin(order, listed)], left)
    lower = [metric in comparison.lower_is_better for metric in comparison.metrics]
    content = {
        "systems": list(comparison.systems),
        "metrics": list(comparison.metrics),
        "lower": lower,
        "scale": _SCALE,
        "number": listed.tolist(),
        "top": 1.0 if part.documents is None else part.documents.top_grade,
        **table,
        "documents": documents,
    }
    return Explorer(safe_json(content), len(listed), len(documents), len(part.qids))


def _listed(rows: dict[str, list[Any]], order: IntArray, budget: int) -> IntArray:
    """Return the queries to list in data order: as many of `order` as fit into the budget, at least one."""
    costs = np.cumsum([_cost([column[q] for column in rows.values()]) + 8 for q in order.tolist()])
    room = int(np.searchsorted(costs, budget, side="right"))
    return np.sort(order[: max(1, room)])


def _cost(value: Any) -> int:
    return len(safe_json(value).encode())


def _by_interest(part: RankedCollection) -> IntArray:
    """Return all queries, hardest first, then by decreasing difference between systems."""
    first = part.comparison.differences[0]
    values = part.comparison.values
    gap = np.abs(values.of(first.a, first.metric) - values.of(first.b, first.metric))
    interest = np.where(np.isnan(gap), -1.0, gap)
    interest[list(part.hardest)] = np.inf
    return np.argsort(-interest, kind="stable")


def _rows(part: RankedCollection) -> dict[str, list[Any]]:
    """Return the columns of the query table."""
    columns: dict[str, list[Any]] = {
        "id": [shortened(part.query_name(q), _MAX_NAME_CHARACTERS) for q in range(len(part.qids))]
    }
    if part.documents is not None:
        columns["size"] = part.documents.queries.sizes.tolist()
        columns["relevant"] = part.documents.queries.sum((part.documents.labels > 0).astype(np.int64)).tolist()
    table = part.comparison.values.table
    columns["values"] = [
        [
            [None if np.isnan(v) else round(v, 3) if v % 1 else int(v) for v in of]
            for of in _rounded(table[:, :, q]).tolist()
        ]
        for q in range(len(part.qids))
    ]
    return columns


def _rounded(values: FloatArray) -> FloatArray:
    """Round the values of one query (systems in rows) to ten-thousandths while preserving order and ties.

    Different values that round to the same number are separated by one thousandth each, which is invisible but
    preserves the winner.

    >>> _rounded(np.array([[0.50001], [0.50002], [0.50001], [0.3]])).ravel().tolist()
    [5000.0, 5000.001, 5000.0, 3000.0]
    """
    result = np.full_like(values, np.nan)
    for m, column in enumerate(values.T):
        before, whole, step = -np.inf, -np.inf, 0
        for row in np.argsort(column, kind="stable").tolist():
            value = float(column[row])
            if np.isnan(value):
                break
            if value - before > ROUNDING * max(1.0, abs(value)):  # not a tie, as in `win_tie_loss`
                shown = float(np.round(value * _SCALE))
                step = step + 1 if shown == whole else 0
                before, whole = value, shown
            result[row, m] = whole + step / 1000
    return result


def _documents(documents: JudgedDocuments, order: IntArray, budget: int) -> dict[str, Any]:
    """Return names, grades and rankings of the top documents by query, for as many queries as fit."""
    ranked = {name: ranking(scores, documents.queries, DEPTH) for name, scores in documents.scores.items()}
    shown: dict[str, Any] = {}
    for q in order.tolist():
        tops = [lists.order[lists.starts[q] : lists.starts[q + 1]][:DEPTH] for lists in ranked.values()]
        tops = [top[of[top] > -np.inf] for top, of in zip(tops, documents.scores.values(), strict=True)]
        entry = _entry(documents, tops)
        budget -= _cost({str(q): entry})
        if budget < 0:
            break
        shown[str(q)] = entry
    return shown


def _entry(documents: JudgedDocuments, tops: list[IntArray]) -> dict[str, Any]:
    rows = np.unique(np.concatenate(tops))
    return {
        "d": [shortened(documents.name_of(row), _MAX_NAME_CHARACTERS) for row in rows.tolist()],
        "g": [grade_name(label) for label in documents.labels[rows].tolist()],
        "r": [np.searchsorted(rows, top).tolist() for top in tops],
        "s": [_scores_shown(scores[top]) for scores, top in zip(documents.scores.values(), tops, strict=True)],
    }


def _scores_shown(scores: FloatArray) -> list[str]:
    """Format the scores of a ranking; ties with the previous score are marked by " =".

    >>> _scores_shown(np.array([12.00004, 12.00001, 12.00001]))
    ['12', '12', '12 =']
    """
    above = [None, *scores.tolist()]
    return [
        f"{score:.4g}{' =' if score == before else ''}" for score, before in zip(scores.tolist(), above, strict=False)
    ]


def grade_name(label: float) -> str:
    """Format a grade; unjudged documents get "?".

    >>> grade_name(2.0), grade_name(float("nan")), grade_name(-1.0)
    ('2', '?', '?')
    """
    return "?" if label != label or label == -1 else f"{label:g}"


def _frame(part: RankedCollection, shown: Explorer, key: str) -> Markup:
    """Return the frame of the explorer, which the script fills."""
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
        tag("script", shown.json, type="application/json"),
        tag("noscript", tag("p", "The explorer needs JavaScript; all other sections work without it.")),
        _tools(part),
        tag("p", "", cls="count remark", role="status"),
        tag("div", *panes, cls="panes"),
        cls="explorer",
        data_part=key,
    )


def _sorting_head(name: str, words: str) -> Markup:
    kind = None if name == "id" else "n extra" if name in ("size", "relevant") else "n"
    return tag("th", tag("button", words, type="button", data_sort=name), scope="col", cls=kind)


def _tools(part: RankedCollection) -> Markup:
    """Return the controls: search field, systems, metric and filter."""
    comparison = part.comparison

    def choice(name: str, label: str, options: list[str], chosen: int = 0) -> Markup:
        items = [tag("option", o, value=i, selected=i == chosen) for i, o in enumerate(options)]
        return tag("label", tag("span", label), tag("select", *items, data_role=name))

    systems, order = list(comparison.systems), part.ranked_systems
    second = comparison.baseline if comparison.baseline not in (None, order[0]) else order[1]
    tools = [
        tag("label", tag("span", "Find a query"), tag("input", type="search", data_role="find", autocomplete="off",
            placeholder="part of its id" if part.query_texts is None else "part of its id or text",
            spellcheck="false"), cls="find"),
        choice("a", "A", systems, systems.index(order[0])),
        choice("b", "B", systems, systems.index(second or order[1])),
        choice("metric", "metric", list(comparison.metrics)),
        choice("filter", "show", ["all queries", "A is better", "B is better", "ties"]),
    ]  # fmt: skip
    return tag("form", *tools, cls="tools")
