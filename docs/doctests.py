"""A Griffe extension: what is laid out by spaces in docstrings becomes a code block.

Markdown would make quotations of examples (`>>>`), and running text of tables between rules of `===`.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

LAID_OUT = re.compile(r"^(>>> |==+ ).*\n?(?:.+\n?)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts fences around every paragraph that begins with `>>>` or `===`."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = LAID_OUT.sub(fenced, obj.docstring.value)


def fenced(found: re.Match[str]) -> str:
    language = "pycon" if found[1] == ">>> " else "text"
    return f"```{language}\n{found[0].rstrip()}\n```\n"
