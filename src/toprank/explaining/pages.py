"""Explanations as one HTML file that needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from toprank.data.bytesource import output
from toprank.drawing import Markup, tag
from toprank.errors import DataError

__all__ = ["page", "write_page"]

_STYLE = """
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:64rem;padding:0 1rem}
h1{font-size:1.3rem}section{margin:2rem 0}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def page(title: str, results: Sequence[Any]) -> str:
    """Results one after the other, each with its plot where there is something to draw; ids are escaped."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content="toprank"),
        tag("title", title),
        tag("style", Markup(_STYLE.strip())),
    )
    sections = [tag("section", Markup(_drawn(one)), Markup(one._repr_html_())) for one in results]
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('h1', title), *sections), lang='en')}\n"


def _drawn(result: Any) -> str:
    """The plot of a result; none where it has none, or nothing to draw."""
    if not hasattr(result, "plot"):
        return ""
    try:
        return str(result.plot()._repr_html_())
    except DataError:
        return ""


def write_page(path: str | os.PathLike[str], title: str, results: Sequence[Any]) -> None:
    """Write explanations as one HTML file, wholly or not at all."""
    written = page(title, results).encode("utf-8")
    with output(path) as stream:
        stream.write(written)
