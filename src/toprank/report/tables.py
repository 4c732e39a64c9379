"""Tables as HTML: means with intervals and marks, and plain ones."""

from __future__ import annotations

from toprank.comparison import Comparison, Difference
from toprank.comparison.tables import Table
from toprank.report.content import Judgement, Part
from toprank.report.headline import difference_between, turned_around
from toprank.report.markup import Markup, join, tag
from toprank.report.plots import signed
from toprank.report.svg import swatch
from toprank.significance.results import number

__all__ = ["means_table", "plain_table", "scrolling"]


def scrolling(table: Markup, name: str) -> Markup:
    """A table that scrolls by itself where the page is narrow; reachable by keyboard, as it must be to be scrolled."""
    return tag("div", table, cls="scroll", tabindex="0", role="region", aria_label=name)


def plain_table(table: Table, name: str) -> Markup:
    """A table of the comparison as HTML."""

    def cells(row: tuple[str, ...], kind: str) -> Markup:
        return tag("tr", *(tag(kind, c, cls=None if i < table.names else "n") for i, c in enumerate(row)))

    head = tag("thead", cells(table.header, "th"))
    return scrolling(tag("table", head, tag("tbody", *(cells(row, "td") for row in table.rows))), name)


def means_table(part: Part, judgement: Judgement, styles: dict[str, int]) -> Markup:
    """Systems, best first: means with intervals and marks, and the first metric's distance from the reference."""
    comparison = judgement.comparison
    metrics = comparison.metrics
    order = part.ranked_systems
    reference = comparison.baseline or order[0]
    letters = {name: chr(ord("a") + i) if i < 26 else str(i + 1) for i, name in enumerate(order)}
    pairs = comparison.baseline is None
    head = ["" if not pairs else None, "system", *metrics, f"difference from {reference}", "p", "win / tie / loss"]
    rows = []
    for name in order:
        d = difference_between(comparison, name, reference, metrics[0])
        cells = [_mean_cell(judgement, name, metric, letters) for metric in metrics]
        label = tag("th", tag("span", swatch(styles[name]), cls="key"), tag("span", name, cls="name"),
                    tag("small", letters[name], cls="letter") if pairs else None, scope="row")  # fmt: skip
        rows.append(tag("tr", label, *cells, *_reference_cells(comparison, d, name)))
    kinds = [tag("th", h, cls="n" if i else None, scope="col") for i, h in enumerate(h for h in head if h)]
    table = tag("table", tag("thead", tag("tr", *kinds)), tag("tbody", *rows), cls="means")
    return join([scrolling(table, "Means"), tag("p", _marks(comparison), cls="remark")])


def _mean_cell(judgement: Judgement, name: str, metric: str, letters: dict[str, str]) -> Markup:
    comparison = judgement.comparison
    interval = judgement.intervals[name][metric]
    best = max if metric not in comparison.lower_is_better else min
    value = comparison.means[name][metric]
    leading = value == best(means[metric] for means in comparison.means.values())
    shown = tag("b" if leading else "span", number(value))
    mark = _mark(comparison, name, metric, letters)
    return tag("td", shown, mark, tag("small", f"[{number(interval.low)}, {number(interval.high)}]"), cls="n")


def _mark(comparison: Comparison, name: str, metric: str, letters: dict[str, str]) -> Markup | None:
    """Against a baseline ▲ or ▼; else the letters of the systems that this one is significantly better than."""
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
    d = d if d.a == name else turned_around(d)
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
        else "Raised letters: the systems that this one is significantly better than."
    )
    lower = ", ".join(comparison.lower_is_better)
    less = f" Less is better in {lower}." if lower else ""
    return (
        f"Mean over queries with its {level} interval. {how} Difference, p (corrected) and wins are those of {first}; "
        f"* marks p ≤ {comparison.alpha:g}.{less}"
    )
