"""HTML pages: sections in order, with embedded style sheet and script, without external resources."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from importlib import resources
from itertools import chain

from toprank.data.bytesource import output
from toprank.display.svg import Markup, join, tag
from toprank.report.content import ComparisonReport, RankedCollection
from toprank.report.headline import headline
from toprank.report.panels import PANELS
from toprank.report.panels.queries import explorer_panel
from toprank.report.parts import Panel, copied, scrolling

MAX_BYTES = 2_900_000  # size of a page that can be sent by mail
_MIN_EXPLORER_BYTES = 20_000
_RESERVED_BYTES = 60_000  # for style sheet and script (together 29,000), opening, and frames of the explorers


def write_html(path: str | os.PathLike[str], content: ComparisonReport) -> None:
    """Write a report as one self-contained HTML file, atomically.

    The same content always gives the same bytes. The file stays below 3 MB for any number of queries, because the
    explorer shows only as many queries as fit. Hundreds of systems or metrics may exceed this limit, since tables are
    never shortened.

    >>> import tempfile, pathlib, toprank as tr
    >>> data = tr.synthetic(n_queries=20, seed=0)
    >>> scores = {"best": data.expected_gain(), "first feature": data.X[:, 0]}
    >>> content = tr.report.from_comparison(tr.compare(scores, data), data, scores)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_html(f"{folder}/report.html", content)
    ...     pathlib.Path(folder, "report.html").read_text()[:15]
    '<!doctype html>'
    """
    write_page(path, page(content))


def write_page(path: str | os.PathLike[str], text: str) -> None:
    """Write a page to an HTML file, atomically."""
    with output(path) as stream:
        stream.write(text.encode("utf-8"))


def page(content: ComparisonReport) -> str:
    """Return the page of a report as HTML."""
    several = len(content.parts) > 1
    keys = [f"p{i + 1}" for i in range(len(content.parts))]
    fixed = [[_shown(panel, part, key) for panel in PANELS] for part, key in zip(content.parts, keys, strict=True)]
    tail = _provenance(content)
    used = _RESERVED_BYTES + sum(len(shown.encode("utf-8")) for shown in (tail, *chain(*fixed)))
    budget = max(_MIN_EXPLORER_BYTES, (MAX_BYTES - used) // len(content.parts))
    body, links = [], []
    for part, key, sections in zip(content.parts, keys, fixed, strict=True):
        last = explorer_panel(part, budget)
        sections.append(_shown(last, part, key))
        if several:
            body.append(tag("h2", part.name, cls="part", id=key))
            links.append((key, part.name))
        else:
            shown = zip((*PANELS, last), sections, strict=True)
            links += [(f"{key}-{panel.name}", panel.link) for panel, markup in shown if markup]
        body += sections
    links.append(("sources", "Provenance"))
    return document(content.title, join([_opening(content), *body, tail]), links)


def _shown(panel: Panel, part: RankedCollection, key: str) -> Markup:
    """Return a panel as a section; empty if it has no content."""
    content = panel.show(part, key)
    if content is None:
        return Markup()
    remark = panel.remark if isinstance(panel.remark, str) else panel.remark(part)
    return section(f"{key}-{panel.name}", panel.heading, remark, content)


def section(key: str, heading: str, remark: str, *content: Markup) -> Markup:
    """Return a section with anchor, heading and explanatory remark."""
    return tag(
        "section",
        tag("h2", heading, id=f"{key}-title"),
        tag("p", remark, cls="remark") if remark else None,
        *content,
        id=key,
        aria_labelledby=f"{key}-title",
    )


def _opening(content: ComparisonReport) -> Markup:
    """Return the opening: headline and verdict of each part."""
    leads = []
    for part in content.parts:
        judgment = headline(part.comparison, part.against_leader)
        icon = {"shown": "✓", "noise": "~", "equivalent": "≈"}[judgment.kind]
        chip = tag("span", tag("span", icon, aria_hidden="true"), " ", judgment.verdict, cls=f"verdict {judgment.kind}")
        name = tag("p", part.name, cls="kicker") if len(content.parts) > 1 else None
        kind = "h1" if len(content.parts) == 1 else "h2"
        leads.append(join(filter(None, [
            name,
            tag(kind, judgment.sentence, cls="lead"),
            tag("p", chip, " ", judgment.support, cls="support"),
            tag("p", f"{_heading(part)} {' '.join(part.caveats)}", cls="remark"),
        ])))  # fmt: skip
    title = tag("p" if len(content.parts) == 1 else "h1", content.title, cls="kicker")
    caveats = [tag("p", note, cls="remark") for note in content.caveats]
    date = tag("p", content.date, cls="remark") if content.date else None
    return tag("header", title, *leads, *caveats, date, cls="opening")


def _heading(part: RankedCollection) -> str:
    comparison = part.comparison
    if not part.against_leader:
        return comparison.heading
    against = f"each against {comparison.baseline}, the best by {comparison.metrics[0]}"
    return f"{comparison.heading.partition(';')[0]}; {against}."


def _provenance(content: ComparisonReport) -> Markup:
    """Return the provenance section: command, conventions, data, versions and seeds."""
    parts = []
    if content.command:
        parts += [tag("h3", "Command"), copied(content.command)]
    rules = tag("ul", *(tag("li", rule) for rule in content.conventions))
    parts += [tag("h3", "Conventions"), rules] if content.conventions else []
    if content.sources:
        head = tag("thead", tag("tr", *(tag("th", h) for h in ("data", "size", "fingerprint of the content"))))
        cells = [(source.name, source.size, tag("code", source.fingerprint)) for source in content.sources]
        rows = [tag("tr", *(tag("td", cell) for cell in row)) for row in cells]
        parts += [tag("h3", "Data"), scrolling(tag("table", head, tag("tbody", *rows)), "Data")]
    if content.facts:
        rows = [join([tag("dt", fact.name), tag("dd", fact.value)]) for fact in content.facts]
        parts += [tag("h3", "Versions and seeds"), tag("dl", *rows)]
    return section("sources", "Provenance", "", *parts)


Section = tuple[str, str, str, Markup]
"""A section of a page without panels: anchor, heading (and link text), remark, and content."""


def sectioned_page(name: str, lead: str, opening: Sequence[Markup | None], sections: Sequence[Section]) -> str:
    """Return a page with name, headline, opening and sections."""
    kicker = tag("p", name, cls="kicker") if lead != name else None
    header = tag("header", kicker, tag("h1", lead, cls="lead"), *opening, cls="opening")
    body = [header, *(section(*parts) for parts in sections)]
    return document(name, join(body), [(key, heading) for key, heading, _, _ in sections])


def document(name: str, body: Markup, links: list[tuple[str, str]]) -> str:
    """Return a self-contained HTML document; `links` are anchors and texts of its menu."""
    style, script = _style(), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    metadata = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content="toprank"),
        tag("title", name),
        tag("style", Markup(style)),
    ]
    menu = tag(
        "nav",
        tag("a", "toprank", href="#top", cls="brand"),
        tag("ul", *(tag("li", tag("a", words, href=f"#{key}")) for key, words in links)),
        tag("button", "Dark", type="button", cls="theme", hidden=True),
        aria_label="Sections",
    )
    page_body = tag(
        "body",
        tag("a", "Skip to the results", href="#main", cls="skip"),
        menu,
        tag("main", body, id="main", tabindex="-1"),
        tag("div", cls="tip", hidden=True, aria_hidden="true"),
        tag("script", Markup(script)),
        id="top",
    )
    return f"<!doctype html>\n{tag('html', tag('head', *metadata), page_body, lang='en')}\n"


def _style() -> str:
    """Return the style sheet; dark colors apply by system preference or by choice of the reader."""
    dark = _asset("dark.css")
    asked = f"@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme='light']) {{ {dark} }} }}"
    chosen = f"@media screen {{ :root[data-theme='dark'] {{ {dark} }} }}"
    return f"{_asset('report.css')}\n{asked}\n{chosen}\n"


def _asset(name: str) -> str:
    return (resources.files("toprank.report") / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode()}"
