"""`Collection`: documents in named fields, with the queries and judgments that came along, checked once."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from toprank.data.trec import Qrels
from toprank.errors import DataError, UnknownNameError

ALL = "all"
"""The name of judgments that are not divided into parts such as train and test."""
QUERY_NAMES = frozenset({"query", "query_id", "query-id", "queryid", "qid", "topic", "topic_id", "id", "_id"})
"""Headers of the column of query ids."""
_SURROGATES = re.compile("[\ud800-\udfff]")  # lone surrogates, which UTF-8 cannot hold
_TITLES = ("title", "name", "heading", "headline")


def whole_text(text: str) -> str:
    """Return text that UTF-8 can hold: a lone surrogate, as damaged JSON has it, becomes U+FFFD.

    >>> whole_text("a" + chr(0xD800))
    'a�'
    """
    return _SURROGATES.sub("\ufffd", text)


@dataclass(frozen=True)
class Topics:
    """Queries: an id and words for each.

    >>> Topics.from_source({"q1": "wing in a slipstream"}).texts
    ('wing in a slipstream',)
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.texts):
            raise DataError(f"There are {len(self.ids):,} ids for {len(self.texts):,} queries; give one for each.")
        if not self.ids:
            raise DataError("There are no queries; at least one is needed.")
        if (places := first_repeat(self.ids)) is not None:
            raise DataError(f"Two queries have the id '{self.ids[places[0]]}'; ids must be different.")

    @classmethod
    def from_source(cls, queries: Topics | Mapping[str, str] | str | os.PathLike[str]) -> Topics:
        """Make topics of ``{id: words}`` or a file (see `read_topics`)."""
        if isinstance(queries, Topics):
            return queries
        if isinstance(queries, str | os.PathLike):
            from toprank.search.collections.topics import read_topics

            return read_topics(queries)
        if not isinstance(queries, Mapping):
            raise DataError(f"Queries are {{id: words}} or the name of a file, not {type(queries).__name__}.")
        return cls(tuple(map(str, queries)), tuple(whole_text(str(text)) for text in queries.values()))

    def select(self, ids: Iterable[str]) -> Topics:
        """The queries of these ids, in the order of the topics."""
        wanted = set(ids)
        kept = [place for place, name in enumerate(self.ids) if name in wanted]
        return Topics(tuple(self.ids[place] for place in kept), tuple(self.texts[place] for place in kept))

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class SourceSignature:
    """What a source on disk looked like when it was read, to notice that it changed since.

    Attributes:
        names: The files, relative to `path`; none for a folder of texts, where every text counts.
    """

    path: str
    names: tuple[str, ...]
    digest: str

    @classmethod
    def from_files(cls, path: Path, files: Sequence[Path], whole_folder: bool = False) -> Self:
        """Hash names, sizes and modification times of files; `whole_folder`: they are all text files in a folder."""
        digest = hashlib.blake2b(digest_size=16)
        names = sorted((os.path.relpath(file, path), file) for file in files)
        for name, file in names:
            status = file.stat()
            digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
        return cls(str(path.resolve()), () if whole_folder else tuple(name for name, _ in names), digest.hexdigest())


@dataclass(frozen=True, eq=False, repr=False)
class Collection:
    """Documents, in fields of text; all fields have one text for each document.

    Args:
        name: what it is called.
        ids: one for each document, all different.
        fields: the texts, by the name of the field.
        topics: queries, if the collection has some.
        judgments: by part (``train``, ``test``; ``all`` if they are not divided).
        notes: what to know about the collection: how grades were mapped, what was left out.
        signature: the state of the source when it was read, if it is on disk.
    """

    name: str
    ids: Sequence[str]
    fields: Mapping[str, Sequence[str]]
    topics: Topics | None = None
    judgments: Mapping[str, Qrels] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    signature: SourceSignature | None = None

    def __post_init__(self) -> None:
        if not self.ids:
            raise DataError(f"{self.name} holds no documents; there must be at least one.")
        if not self.fields:
            raise DataError(f"The documents of {self.name} have no fields; name at least one text of each.")
        for name, texts in self.fields.items():
            if len(texts) != len(self.ids):
                raise DataError(f"Field '{name}' has {len(texts):,} texts for {len(self.ids):,} documents.")
        if (places := first_repeat(self.ids)) is not None:
            first, again = places
            raise DataError(
                f"Two documents of {self.name} have the id '{self.ids[again]}', number {first + 1:,} and number "
                f"{again + 1:,}; ids must be different. Remove one of the two, or rename it."
            )

    @property
    def title(self) -> str | None:
        """The field with the titles; None if there is none, or no other field."""
        named = next((name for name in self.fields if name.lower() in _TITLES), None)
        return named if len(self.fields) > 1 else None

    def only(self, fields: Sequence[str]) -> Collection:
        """The collection with some of its fields."""
        for name in fields:
            if name not in self.fields:
                raise UnknownNameError(f"field of {self.name}", name, self.fields)
        return replace(self, fields={name: self.fields[name] for name in fields})

    def qrels(self, *parts: str) -> Qrels | None:
        """The judgments of the first of these parts that there are, or else those that are not divided."""
        return next((self.judgments[part] for part in (*parts, ALL) if part in self.judgments), None)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        queries = "" if self.topics is None else f", {len(self.topics):,} queries"
        return f"Collection({self.name!r}, {len(self):,} documents{queries})"


def qrels_of_rows(rows: Sequence[tuple[str, str, float]]) -> Qrels:
    """Judgments from rows of query, document and grade."""
    queries, documents, grades = zip(*rows, strict=True)
    return Qrels(np.array(queries), np.array(documents), np.array(grades, dtype=np.float64))


def preview(names: Sequence[Any] | npt.NDArray[Any]) -> str:
    """The first names of many, for a sentence.

    >>> preview(["a", "b", "c", "d"])
    'a, b, c …'
    """
    return ", ".join(map(str, names[:3])) + (" …" if len(names) > 3 else "")


def first_repeat(ids: Sequence[str]) -> tuple[int, int] | None:
    """Return both places of the first id that stood at an earlier place; None if all differ."""
    places: dict[str, int] = {}
    for place, name in enumerate(ids):
        if places.setdefault(name, place) != place:
            return places[name], place
    return None
