"""The table of results: means with intervals and marks, further tables, and copies for papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from toprank.comparison import Comparison, Difference
from toprank.comparison.tables import latex_text, markdown_text
from toprank.drawing import Markup, join, swatch, tag
from toprank.report.headline import difference_between, turned_around
from toprank.report.parts import Panel, plain_table, scrolling, signed
from toprank.significance.results import number

if TYPE_CHECKING:
    from toprank.report.content import Judgement, Part

__all__ = ["RESULTS"]


def _shown(part: Part, _: str) -> Markup:
    main, styles = part.judgements[0], {system: i for i, system in enumerate(part.comparison.systems)}
    shown = [means_table(part, main, styles)]
    for one in part.judgements[1:]:
        shown += [tag("h3", f"Convention {one.comparison.convention}"), means_table(part, one, styles)]
    for further in part.tables:
        note = tag("p", further.note, cls="remark") if further.note else None
        table = plain_table(further.table, further.title)
        if further.folded:
            shown.append(tag("details", tag("summary", further.title), note, table))
        else:
            shown.append(join(filter(None, [tag("h3", further.title), note, table])))
    written = [("Markdown", _written(part, "markdown")), ("LaTeX", _written(part, "latex"))]
    copies = [
        tag("details", tag("summary", f"As {name}"), tag("div", tag("button", "Copy", type="button", cls="copy"),
            tag("pre", words, tabindex="0"), cls="copying"))
        for name, words in written
    ]  # fmt: skip
    return join([*shown, *copies])


def _written(part: Part, language: Literal["markdown", "latex"]) -> str:
    """The tables in another language, to be copied: the comparison, and what else is shown at once."""
    whole: str = getattr(part.comparison, f"to_{language}")()
    escape = markdown_text if language == "markdown" else latex_text
    further = [one for one in part.tables if not one.folded]
    return "\n".join([whole, *(f"{escape(one.title)}\n\n{getattr(one.table, language)()}\n" for one in further)])


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


def _remark(part: Part) -> str:
    convention = part.judgements[0].comparison.convention
    return f"Convention {convention}. Best first." if convention else "Best first."


RESULTS = Panel("table", "Table", "Results", _remark, _shown)
