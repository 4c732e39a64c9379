"""The SMART layout of Cranfield, CISI, MED and other collections, in which a line ``.I id`` starts a document.

Lines such as ``.T`` and ``.W`` start a field. Title (T) and text (W) are read; authors (A), sources (B), keywords (K)
and citations (X) are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from toprank.errors import FormatError
from toprank.search.collections.text_files import read_text

_ENTRY = re.compile(r"(?m)^\.I[ \t]+(\S+)[ \t\r]*$")
_FIELD = re.compile(r"(?m)^\.([A-Z])[ \t\r]*$")  # MED ends with a lone .I


def is_smart(head: bytes) -> bool:
    """Return whether a file starts in the SMART layout."""
    return re.match(rb"\s*\.I[ \t]+\S+[ \t\r]*\n", head) is not None


def _entries(path: Path) -> list[tuple[str, dict[str, str]]]:
    """Return id and fields of every entry."""
    text = read_text(path)
    marks = list(_ENTRY.finditer(text))
    if not marks:
        raise FormatError("No line '.I id' found, which starts a document in the SMART layout.", path=path)
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    entries = []
    for mark, end in zip(marks, ends, strict=True):
        pieces = _FIELD.split(text[mark.end() : end])
        fields: dict[str, str] = {}
        for letter, content in zip(pieces[1::2], pieces[2::2], strict=True):
            fields[letter] = f"{fields[letter]} {content.strip()}" if letter in fields else content.strip()
        entries.append((mark[1], fields))
    return entries


def smart_documents(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Return ids and fields: title and body, or only the body if the file has no titles.

    Cranfield repeats each title at the start of the body; it is removed there so that it does not count twice.
    """
    entries = _entries(path)
    titles = [" ".join(fields.get("T", "").split()) for _, fields in entries]
    bodies = [fields.get("W", "") for _, fields in entries]
    if not any(titles):
        return [name for name, _ in entries], {"body": bodies}
    rest = [_remove_title(title, body) for title, body in zip(titles, bodies, strict=True)]
    return [name for name, _ in entries], {"title": titles, "body": rest}


def _remove_title(title: str, body: str) -> str:
    """Remove the title from the start of the body."""
    words = title.split()
    begin = re.match(r"\s*" + r"\s+".join(map(re.escape, words)), body) if words else None
    return body[begin.end() :].strip() if begin else body


def smart_topics(path: Path) -> Iterator[tuple[str, str]]:
    """Yield id and text of each query; leading zeros of ids, as in Cranfield, are dropped."""
    for name, fields in _entries(path):
        yield name.lstrip("0") or "0", " ".join(f"{fields.get('T', '')} {fields.get('W', '')}".split())
