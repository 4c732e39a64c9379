"""Queries from SMART files, TREC topics, JSON lines as in BEIR, or tab-separated lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from toprank.data.bytesource import head_of, open_bytes
from toprank.errors import DataError, FormatError
from toprank.search.collections.collection import QUERY_NAMES, Topics, whole_text
from toprank.search.collections.folders import ID_NAMES, id_name, id_of, json_objects
from toprank.search.collections.smart import is_smart, smart_topics
from toprank.search.collections.trec_text import is_topics, trec_topics

_IDS = ("qid", "query_id", "query-id", "topic_id")  # keys of query ids, in addition to `ID_NAMES`
_TEXTS = ("text", "query", "title", "question", "words")


def read_topics(path: str | os.PathLike[str]) -> Topics:
    """Read queries from a file; the layout is detected by its first bytes. Also reads .gz and .zst files.

    | layout | query |
    |---|---|
    | SMART | ``.I id``, ``.T`` and ``.W`` |
    | TREC | ``<top> <num> … <title> …``; the description if there is no title |
    | JSON lines | ``{"_id": …, "text": …}`` |
    | lines | id, tab, text |
    """
    file = Path(path)
    head = head_of(file)
    if is_smart(head):
        read = smart_topics
    elif is_topics(head):
        read = trec_topics
    else:
        read = _json_topics if head.lstrip()[:1] == b"{" else _line_topics
    pairs = list(read(file))
    try:
        return Topics(tuple(name for name, _ in pairs), tuple(text for _, text in pairs))
    except DataError as problem:
        raise FormatError(problem.args[0], path=file) from None


def _json_topics(path: Path) -> Iterator[tuple[str, str]]:
    for line, value in json_objects(path):
        name = id_name(value, (*ID_NAMES, *_IDS))
        text = next((value[key] for key in _TEXTS if isinstance(value.get(key), str)), None)
        if name is None or text is None:
            raise FormatError(
                'Expected a query {"_id": …, "text": …}, but one of the two is missing.', path=path, line=line
            )
        yield id_of(value, path, line, name), whole_text(text)


def _line_topics(path: Path) -> Iterator[tuple[str, str]]:
    has_begun = False  # lines before the first query are a header
    for number, line in open_bytes(path).lines():
        if not line.strip():
            continue
        try:
            own, tab, words = line.decode("utf-8").rstrip("\r\n").partition("\t")
        except UnicodeDecodeError:
            raise FormatError("The query is not UTF-8 text.", path=path, line=number) from None
        if not tab or not own.strip() or "\0" in own:
            raise FormatError("Expected a query as one line with id, tab and text.", path=path, line=number)
        has_begun = has_begun or own.strip().lower() not in QUERY_NAMES
        if has_begun:
            yield own.strip(), words.strip()
