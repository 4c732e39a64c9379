"""TREC's layouts of text: documents between ``<doc>`` tags, topics between ``<top>`` tags."""

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
# Tags of topics are often not closed: a part ends at the next tag.
_OF_TOPIC = r"<{}>\s*(?:{}:)?\s*([^<]*)"
_NUMBER = re.compile(_OF_TOPIC.format("num", "number"), re.IGNORECASE)
_WORDS = re.compile(_OF_TOPIC.format("title", "topic"), re.IGNORECASE)
_DESCRIPTION = re.compile(_OF_TOPIC.format("desc", "description"), re.IGNORECASE)
_PROLOGUE = rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!DOCTYPE[^>]*>\s*)?(?:<[a-z][\w.-]*>\s*)?"  # a root may have any name


def is_documents(head: bytes) -> bool:
    """Whether a file begins as documents do."""
    return re.match(_PROLOGUE + rb"<doc>", head, re.IGNORECASE) is not None


def is_topics(head: bytes) -> bool:
    """Whether a file begins as topics do."""
    return re.match(_PROLOGUE + rb"<top>", head, re.IGNORECASE) is not None


def trec_documents(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Ids and fields, title and body; where documents have no part that is the text, all their words are."""
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
        raise FormatError("There is no whole document, from <doc> to </doc>.", path=path)
    if re.search("<doc>", text[end:], re.IGNORECASE):
        raise FormatError(f"No </doc> ends document number {len(ids) + 1}: the file is cut off.", path=path)
    return ids, {"title": titles, "body": bodies} if any(titles) else {"body": bodies}


def trec_topics(path: Path) -> Iterator[tuple[str, str]]:
    """Yield ids and words of topics: their titles, or their descriptions where they have none."""
    topics = _TOPIC.findall(read_text(path))
    if not topics:
        raise FormatError("There is no whole topic, from <top> to </top>.", path=path)
    for number, topic in enumerate(topics, 1):
        own = _NUMBER.search(topic)
        words = [" ".join(part[1].split()) for part in (_WORDS.search(topic), _DESCRIPTION.search(topic)) if part]
        if own is None or not any(words):
            raise FormatError(f"Topic number {number} has no <num>, or neither <title> nor <desc>.", path=path)
        yield own[1].strip(), unmarked(next(filter(None, words)))
