"""The layout of Cranfield, CISI, MED and other collections of the SMART system: lines ``.I id`` begin a document.

Lines ``.T``, ``.W`` … begin a field, down to the next such line: title (T) and text (W) are read, authors (A),
sources (B), keywords (K) and citations (X) are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from toprank.errors import FormatError
from toprank.search.collections.text_files import read_text

_ENTRY = re.compile(r"(?m)^\.I[ \t]+(\S+)[ \t\r]*$")
_FIELD = re.compile(r"(?m)^\.([A-Z])[ \t\r]*$")  # a lone .I, as MED ends with, begins nothing


def is_smart(head: bytes) -> bool:
    """Whether a file begins as this layout does."""
    return re.match(rb"\s*\.I[ \t]+\S+[ \t\r]*\n", head) is not None


def _entries(path: Path) -> list[tuple[str, dict[str, str]]]:
    """Id and fields of every entry."""
    text = read_text(path)
    marks = list(_ENTRY.finditer(text))
    if not marks:
        raise FormatError("There is no line '.I id', which begins a document in this layout.", path=path)
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
    """Ids and fields, title and body; a collection without titles has the body alone.

    Cranfield repeats each title as the first words of the body, where it is taken out: it would count twice.
    """
    entries = _entries(path)
    titles = [" ".join(fields.get("T", "").split()) for _, fields in entries]
    bodies = [fields.get("W", "") for _, fields in entries]
    if not any(titles):
        return [name for name, _ in entries], {"body": bodies}
    rest = [_without(title, body) for title, body in zip(titles, bodies, strict=True)]
    return [name for name, _ in entries], {"title": titles, "body": rest}


def _without(title: str, body: str) -> str:
    """The body without the title that it begins with."""
    words = title.split()
    begin = re.match(r"\s*" + r"\s+".join(map(re.escape, words)), body) if words else None
    return body[begin.end() :].strip() if begin else body


def smart_topics(path: Path) -> Iterator[tuple[str, str]]:
    """Yield ids and words of queries: title and text; leading zeros of ids, as Cranfield has them, are dropped."""
    for name, fields in _entries(path):
        yield name.lstrip("0") or "0", " ".join(f"{fields.get('T', '')} {fields.get('W', '')}".split())
