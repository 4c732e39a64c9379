"""Markup that cannot forget to escape: `tag` writes plain text as text, and only `Markup` as markup."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from typing import Any

__all__ = ["Markup", "join", "safe_json", "shortened", "tag"]

_VOID = frozenset({"br", "hr", "input", "meta", "link"})
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")  # no place in a page


class Markup(str):
    """Text that is HTML or SVG already."""

    __slots__ = ()


def text(value: str) -> Markup:
    """Plain text as markup: what has a meaning in HTML is escaped, what has no place there is replaced."""
    return value if isinstance(value, Markup) else Markup(html.escape(_CONTROL.sub("\ufffd", value)))


def tag(name: str, /, *children: str | None, **attributes: Any) -> Markup:
    """An element; plain text is escaped, None is left out. ``cls`` is class, ``_`` in names is a hyphen.

    >>> tag("p", "1 < 2", tag("b", "!"), cls="note", id=None)
    '<p class="note">1 &lt; 2<b>!</b></p>'
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = "class" if key == "cls" else key.strip("_").replace("_", "-")
        parts.append(f" {attribute}" if value is True else f' {attribute}="{text(plain(value))}"')
    parts.append(">")
    if name not in _VOID:
        parts += [text(child) for child in children if child is not None]
        parts.append(f"</{name}>")
    return Markup("".join(parts))


def plain(value: Any) -> str:
    """A number in as few characters as a tenth of a pixel needs; anything else as it is.

    >>> plain(12.04), plain(-0.01), plain(3), plain("a")
    ('12', '0', '3', 'a')
    """
    if not isinstance(value, float):
        return str(value)
    shown = f"{value:.1f}".removesuffix(".0")
    return "0" if shown == "-0" else shown


def join(parts: Iterable[str]) -> Markup:
    """Pieces one after the other; plain text is escaped."""
    return Markup("".join(text(part) for part in parts))


def safe_json(value: Any) -> Markup:
    r"""JSON that may stand inside a script element: no ``<``, ``>`` or ``&`` is left in it.

    >>> safe_json({"qid": "</script>"})
    '{"qid":"\\u003c/script\\u003e"}'
    """
    written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return Markup(_CONTROL.sub("\ufffd", written))


def shortened(value: str, limit: int) -> str:
    """The text, cut where it is longer.

    >>> shortened("abcdef", 4), shortened("abc", 4)
    ('abc…', 'abc')
    """
    return value if len(value) <= limit else value[: limit - 1] + "…"
