"""The page: sections in order, style sheet and script inside, nothing from anywhere else."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from importlib import resources
from typing import Literal, NamedTuple

from toprank.comparison.tables import latex_text, markdown_text
from toprank.data.bytesource import output
from toprank.report import panels
from toprank.report.comparing import plotted
from toprank.report.content import Content, Part
from toprank.report.explorer import DEPTH, Explorer, explorer
from toprank.report.headline import headline
from toprank.report.markup import Markup, join, tag
from toprank.report.queries import exploring, hard_queries
from toprank.report.tables import means_table, plain_table, scrolling

__all__ = ["LIMIT", "page", "write_html"]

LIMIT = 2_900_000  # bytes of a page: a mail still carries it
_LEAST = 20_000  # bytes that each explorer gets in any case


class _Block(NamedTuple):
    key: str
    link: str
    content: Markup


def write_html(path: str | os.PathLike[str], content: Content) -> None:
    """Write a report as one HTML file that needs nothing else, wholly or not at all.

    The same content gives the same bytes. The file stays under 3 MB: where there are more queries than fit, the
    explorer shows fewer of them, and says so.

    >>> import tempfile, pathlib, toprank as tr
    >>> data = tr.synthetic(n_queries=20, seed=0)
    >>> scores = {"best": data.expected_gain(), "first feature": data.X[:, 0]}
    >>> content = tr.report.from_comparison(tr.compare(scores, data), data, scores)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_html(f"{folder}/report.html", content)
    ...     pathlib.Path(folder, "report.html").read_text()[:15]
    '<!doctype html>'
    """
    written = page(content).encode("utf-8")
    with output(path) as stream:
        stream.write(written)


def page(content: Content) -> str:
    """The whole page as text."""
    several = len(content.parts) > 1
    keys = [f"p{i + 1}" for i in range(len(content.parts))]
    fixed = [list(_fixed(part, key)) for part, key in zip(content.parts, keys, strict=True)]
    tail = _small_print(content)
    used = sum(len(s.content.encode("utf-8")) for part in fixed for s in part) + len(tail.encode("utf-8")) + 60_000
    budget = max(_LEAST, (LIMIT - used) // len(content.parts))
    body, links = [], []
    for part, key, found in zip(content.parts, keys, fixed, strict=True):
        found.append(_exploring(part, key, budget))
        if several:
            body.append(tag("h2", part.name, cls="part", id=key))
            links.append((key, part.name))
        else:
            links += [(s.key, s.link) for s in found]
        body += [s.content for s in found]
    links.append(("sources", "Sources"))
    return _document(content, join([_opening(content), *body, tail]), links)


def _section(key: str, heading: str, remark: str, *content: Markup) -> Markup:
    """A section with an anchor, a heading, and a sentence that says how to read it."""
    return tag(
        "section",
        tag("h2", heading, id=f"{key}-title"),
        tag("p", remark, cls="remark") if remark else None,
        *content,
        id=key,
        aria_labelledby=f"{key}-title",
    )


def _opening(content: Content) -> Markup:
    """The first screen: for each part one sentence, and whether it is noise."""
    leads = []
    for part in content.parts:
        found = headline(part.comparison, part.against_leader)
        icon = {"shown": "✓", "noise": "~", "equivalent": "≈"}[found.kind]
        chip = tag("span", tag("span", icon, aria_hidden="true"), " ", found.verdict, cls=f"verdict {found.kind}")
        name = tag("p", part.name, cls="kicker") if len(content.parts) > 1 else None
        kind = "h1" if len(content.parts) == 1 else "h2"
        leads.append(join(filter(None, [
            name,
            tag(kind, found.sentence, cls="lead"),
            tag("p", chip, " ", found.support, cls="support"),
            tag("p", f"{_heading(part)} {' '.join(part.notes)}", cls="remark"),
        ])))  # fmt: skip
    title = tag("p" if len(content.parts) == 1 else "h1", content.title, cls="kicker")
    notes = [tag("p", note, cls="remark") for note in content.notes]
    date = tag("p", content.date, cls="remark") if content.date else None
    return tag("header", title, *leads, *notes, date, cls="opening")


def _heading(part: Part) -> str:
    comparison = part.comparison
    if not part.against_leader:
        return comparison.heading
    against = f"each against {comparison.baseline}, the best by {comparison.metrics[0]}"
    return f"{comparison.heading.partition(';')[0]}; {against}."


def _fixed(part: Part, key: str) -> Iterator[_Block]:
    """All sections of a part but the explorer, which takes the room that is left."""
    styles = {system: i for i, system in enumerate(part.comparison.systems)}
    seen = plotted(part.comparison)
    yield _Block(f"{key}-table", "Table", _tables(part, key, styles))
    yield _Block(
        f"{key}-differences",
        "Differences",
        _section(
            f"{key}-differences",
            "Differences and their intervals",
            "Each line is an interval of the mean difference over queries; one that stays clear of zero is not easily "
            f"chance. The shaded band is ±{part.comparison.margin:g}: differences within it do not matter.",
            tag("div", panels.intervals(part), _verdicts(part), cls=_beside(part)),
            tag("p", part.comparison.methods, cls="remark"),
        ),
    )
    optional = [
        ("wins", "Queries", "Wins and losses, query by query", "One bar for each query, sorted: above the line "
         "the first system is better, below it the second. A mean hides whether many queries gain a little or few a "
         "lot.", panels.wins(part, seen)),
        ("curves", "Cut-offs", "Metric by cut-off", "How far down the list the differences reach.",
         panels.curves(part, seen)),
        ("spread", "Scores", "Scores by grade", "Scores within each query, standardised; the further the ridges of "
         "the grades lie apart, the better the system tells them apart. The tick is the median.",
         panels.spread(part)),
        ("calibration", "Calibration", "Calibration", "Documents in ten groups by predicted probability of being "
         "relevant, against the share that is. On the dashed diagonal a prediction can be taken at its word.",
         panels.calibration(part)),
        ("learning", "Learning", "Learning curves", "The metric after each round, or for each penalty tried.",
         panels.learning(part)),
        ("weights", "Features", "Features that matter", "Weights on standardised features, or shares of importance.",
         panels.weights(part)),
        ("hard", "Hardest", "Hardest queries", f"Worst {part.comparison.metrics[0]} on average over the systems, "
         "among queries that have something relevant; numbers in boxes are grades.",
         hard_queries(part, key)),
    ]  # fmt: skip
    for name, link, heading, remark, shown in optional:
        if shown is not None:
            yield _Block(f"{key}-{name}", link, _section(f"{key}-{name}", heading, remark, shown))


def _tables(part: Part, key: str, styles: dict[str, int]) -> Markup:
    main = part.judgements[0]
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
    under = f"Convention {main.comparison.convention}. " if main.comparison.convention else ""
    return _section(f"{key}-table", "Results", f"{under}Best first.", *shown, *copies)


def _written(part: Part, language: Literal["markdown", "latex"]) -> str:
    """The tables in another language, to be copied: the comparison, and what else is shown at once."""
    whole: str = getattr(part.comparison, f"to_{language}")()
    escape = markdown_text if language == "markdown" else latex_text
    further = [one for one in part.tables if not one.folded]
    return "\n".join([whole, *(f"{escape(one.title)}\n\n{getattr(one.table, language)()}\n" for one in further)])


def _beside(part: Part) -> str | None:
    """A single plot leaves room for the words at its side."""
    return "beside" if len(part.comparison.metrics) == 1 else None


def _verdicts(part: Part) -> Markup:
    comparison = part.comparison
    items = tag("ul", *(tag("li", verdict) for verdict in comparison.verdicts), cls="verdicts")
    table = plain_table(comparison.differences_table(), "Differences")
    few = len(comparison.verdicts) <= 6
    return tag(
        "div",
        tag("details", tag("summary", "In words"), items, open=few),
        tag("details", tag("summary", "All differences as a table"), table),
    )


def _exploring(part: Part, key: str, budget: int) -> _Block:
    found = explorer(part, budget)
    remark = f"Every query, and the top {DEPTH} documents of two systems side by side. {_left_out(part, found)}"
    keys = tag(
        "p",
        tag("kbd", "/"), " find, ", tag("kbd", "↑"), " ", tag("kbd", "↓"), " next query, ",
        tag("kbd", "Esc"), " clear. Headings sort.",
        cls="remark keys",
    )  # fmt: skip
    shown = exploring(part, found, key)
    name = f"{key}-explorer"
    return _Block(name, "Explorer", _section(name, "Query explorer", remark.strip(), keys, shown))


def _left_out(part: Part, found: Explorer) -> str:
    words = []
    if found.listed < found.queries:
        words.append(
            f"To keep this file small, {found.listed:,} of {found.queries:,} queries are listed: the hardest, and "
            "those with the largest differences."
        )
    if part.documents is None:
        words.append("The documents are not known here, only the numbers.")
    elif found.with_documents < found.listed:
        words.append(
            f"Documents are embedded for {found.with_documents:,} of them: the hardest, and those with the largest "
            "differences; the others would make this file too large."
        )
    return " ".join(words)


def _small_print(content: Content) -> Markup:
    """Where everything comes from."""
    parts = []
    if content.command:
        parts += [
            tag("h3", "Command"),
            tag("div", tag("button", "Copy", type="button", cls="copy"), tag("pre", content.command, tabindex="0"),
                cls="copying"),
        ]  # fmt: skip
    rules = tag("ul", *(tag("li", rule) for rule in content.conventions))
    parts += [tag("h3", "Conventions"), rules] if content.conventions else []
    if content.sources:
        head = tag("thead", tag("tr", *(tag("th", h) for h in ("data", "size", "fingerprint of the content"))))
        rows = [
            tag("tr", tag("td", s.name), tag("td", s.size), tag("td", tag("code", s.fingerprint)))
            for s in content.sources
        ]
        table = tag("table", head, tag("tbody", *rows))
        parts += [tag("h3", "Data"), scrolling(table, "Data")]
    if content.facts:
        rows = [join([tag("dt", fact.name), tag("dd", fact.value)]) for fact in content.facts]
        parts += [tag("h3", "Versions and seeds"), tag("dl", *rows)]
    return _section("sources", "Where this comes from", "", *parts)


def _document(content: Content, body: Markup, links: list[tuple[str, str]]) -> str:
    style, script = _style(), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content="toprank"),
        tag("title", content.title),
        tag("style", Markup(style)),
    )
    menu = tag(
        "nav",
        tag("a", "toprank", href="#top", cls="brand"),
        tag("ul", *(tag("li", tag("a", words, href=f"#{key}")) for key, words in links)),
        tag("button", "Dark", type="button", cls="theme", hidden=True),
        aria_label="Sections",
    )
    skip = tag("a", "Skip to the results", href="#main", cls="skip")
    parts = [
        skip,
        menu,
        tag("main", body, id="main", tabindex="-1"),
        tag("div", cls="tip", hidden=True, aria_hidden="true"),
    ]
    page_body = tag("body", *parts, tag("script", Markup(script)), id="top")
    return f"<!doctype html>\n{tag('html', head, page_body, lang='en')}\n"


def _style() -> str:
    """The style sheet; the dark colours serve twice: where the system asks for them, and where the reader does."""
    dark = _asset("dark.css")
    asked = f"@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme='light']) {{ {dark} }} }}"
    chosen = f"@media screen {{ :root[data-theme='dark'] {{ {dark} }} }}"
    return f"{_asset('report.css')}\n{asked}\n{chosen}\n"


def _asset(name: str) -> str:
    return (resources.files("toprank.report") / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode()}"
