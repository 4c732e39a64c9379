"""TREC text layouts: documents in ``<doc>`` tags, topics in ``<top>`` tags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from toprank.errors import FormatError
from toprank.search.collections.text_files import read_text, unmarked

_DOCUMENT = re.compile(r"<doc>(.*?)</doc>", re.DOTALL | re.IGNORECASE)
_ID = re.compile(r"<docno>\s*(.*?)\s*</docno>", re.DOTALL | re.IGNORECASE)
_PART = r"<({})>(.*?)</\1>"
_TITLE = re.compile(_PART.format("title|headline|hl|ti"), re.DOTALL | re.IGNORECASE)
_BODY = re.compile(_PART.format("text|body|abstract|content"), re.DOTALL | re.IGNORECASE)
_OTHER = re.compile(_PART.format("author|bib|date|docid|fileid|url"), re.DOTALL | re.IGNORECASE)
_TOPIC = re.compile(r"<top>(.*?)</top>", re.DOTALL | re.IGNORECASE)
# Topic tags are often not closed, so a part ends at the next tag.
_OF_TOPIC = r"<{}>\s*(?:{}:)?\s*([^<]*)"
_NUMBER = re.compile(_OF_TOPIC.format("num", "number"), re.IGNORECASE)
_WORDS = re.compile(_OF_TOPIC.format("title", "topic"), re.IGNORECASE)
_DESCRIPTION = re.compile(_OF_TOPIC.format("desc", "description"), re.IGNORECASE)
_PROLOGUE = (
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!DOCTYPE[^>]*>\s*)?(?:<[a-z][\w.-]*>\s*)?"  # the root element may have any name
)


def is_documents(head: bytes) -> bool:
    """Return whether a file starts with TREC documents."""
    return re.match(_PROLOGUE + rb"<doc>", head, re.IGNORECASE) is not None


def is_topics(head: bytes) -> bool:
    """Return whether a file starts with TREC topics."""
    return re.match(_PROLOGUE + rb"<top>", head, re.IGNORECASE) is not None


def trec_documents(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Return ids and fields (title and body); without a text element, the body is the whole document."""
    ids, titles, bodies = [], [], []
    text, end = read_text(path), 0
    for number, match in enumerate(_DOCUMENT.finditer(text), 1):
        content, end = match[1], match.end()
        own = _ID.search(content)
        if own is None:
            raise FormatError(f"Document number {number} has no <docno>.", path=path)
        title, body = _TITLE.search(content), _BODY.findall(content)
        rest = _OTHER.sub(" ", _TITLE.sub(" ", _ID.sub(" ", content)))
        ids.append(own[1])
        titles.append(" ".join(unmarked(title[2]).split()) if title else "")
        bodies.append(unmarked("\n".join(text for _, text in body) if body else rest).strip())
    if not ids:
        raise FormatError("The file contains no complete document (<doc> … </doc>).", path=path)
    if re.search("<doc>", text[end:], re.IGNORECASE):
        raise FormatError(f"Document number {len(ids) + 1} has no </doc>: the file is truncated.", path=path)
    return ids, {"title": titles, "body": bodies} if any(titles) else {"body": bodies}


def trec_topics(path: Path) -> Iterator[tuple[str, str]]:
    """Yield id and text of each topic; the text is its title, or its description if it has no title."""
    topics = _TOPIC.findall(read_text(path))
    if not topics:
        raise FormatError("The file contains no complete topic (<top> … </top>).", path=path)
    for number, topic in enumerate(topics, 1):
        own = _NUMBER.search(topic)
        words = [" ".join(part[1].split()) for part in (_WORDS.search(topic), _DESCRIPTION.search(topic)) if part]
        if own is None or not any(words):
            raise FormatError(f"Topic number {number} has no <num>, or neither <title> nor <desc>.", path=path)
        yield own[1].strip(), unmarked(next(filter(None, words)))
