"""`Collection`: documents in named text fields, with optional queries and judgments."""

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
"""Name of judgments without train/test splits."""
QUERY_NAMES = frozenset({"query", "query_id", "query-id", "queryid", "qid", "topic", "topic_id", "id", "_id"})
"""Header names of the query id column."""
_SURROGATES = re.compile("[\ud800-\udfff]")  # lone surrogates, which UTF-8 cannot encode
_TITLES = ("title", "name", "heading", "headline")


def whole_text(text: str) -> str:
    """Replace lone surrogates, which damaged JSON may contain and UTF-8 cannot encode, by U+FFFD.

    >>> whole_text("a" + chr(0xD800))
    'a�'
    """
    return _SURROGATES.sub("\ufffd", text)


@dataclass(frozen=True)
class Topics:
    """Queries, each with an id and a text.

    >>> Topics.from_source({"q1": "wing in a slipstream"}).texts
    ('wing in a slipstream',)
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.texts):
            raise DataError(f"There are {len(self.ids):,} ids for {len(self.texts):,} queries. Pass one id per query.")
        if not self.ids:
            raise DataError("The queries are empty. Pass at least one.")
        if (places := first_repeat(self.ids)) is not None:
            raise DataError(f"Two queries have the id '{self.ids[places[0]]}'. Query ids must be unique.")

    @classmethod
    def from_source(cls, queries: Topics | Mapping[str, str] | str | os.PathLike[str]) -> Topics:
        """Create topics from ``{id: text}`` or a file (see `read_topics`)."""
        if isinstance(queries, Topics):
            return queries
        if isinstance(queries, str | os.PathLike):
            from toprank.search.collections.topics import read_topics

            return read_topics(queries)
        if not isinstance(queries, Mapping):
            raise DataError(f"Queries must be {{id: text}} or a file name, not {type(queries).__name__}.")
        return cls(tuple(map(str, queries)), tuple(whole_text(str(text)) for text in queries.values()))

    def select(self, ids: Iterable[str]) -> Topics:
        """Return the queries with these ids, in their original order."""
        wanted = set(ids)
        kept = [place for place, name in enumerate(self.ids) if name in wanted]
        return Topics(tuple(self.ids[place] for place in kept), tuple(self.texts[place] for place in kept))

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class SourceSignature:
    """The state of source files when they were read, to detect later changes.

    Attributes:
        path: Source folder.
        names: File names relative to `path`; empty if all text files below `path` belong to the source.
        digest: Hash of names, sizes and modification times.
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
    """Documents with one or several text fields.

    Args:
        name: name of the collection.
        ids: unique document ids.
        fields: one text per document, by field name.
        topics: queries. Default: none.
        judgments: judgments by split (``train``, ``test`` …, or ``all`` without splits). Default: none.
        notes: notes on the collection, such as how grades were mapped or which files were skipped.
        signature: state of the source files when they were read, if the source is on disk.
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
            raise DataError(f"{self.name} contains no documents. At least one is needed.")
        if not self.fields:
            raise DataError(f"The documents of {self.name} have no text fields. At least one is needed.")
        for name, texts in self.fields.items():
            if len(texts) != len(self.ids):
                raise DataError(
                    f"Field '{name}' has {len(texts):,} texts for {len(self.ids):,} documents. Pass one text per "
                    "document."
                )
        if (places := first_repeat(self.ids)) is not None:
            first, again = places
            raise DataError(
                f"Documents number {first + 1:,} and {again + 1:,} of {self.name} have the same id "
                f"'{self.ids[again]}'. Ids must be unique; remove one of the two documents, or rename it."
            )

    @property
    def title(self) -> str | None:
        """Name of the title field; None if there is none, or if it is the only field."""
        named = next((name for name in self.fields if name.lower() in _TITLES), None)
        return named if len(self.fields) > 1 else None

    def only(self, fields: Sequence[str]) -> Collection:
        """Return the collection with only these fields."""
        for name in fields:
            if name not in self.fields:
                raise UnknownNameError(f"field of {self.name}", name, self.fields)
        return replace(self, fields={name: self.fields[name] for name in fields})

    def qrels(self, *parts: str) -> Qrels | None:
        """Return the judgments of the first available split, or those without splits, or None."""
        return next((self.judgments[part] for part in (*parts, ALL) if part in self.judgments), None)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        queries = "" if self.topics is None else f", {len(self.topics):,} queries"
        return f"Collection({self.name!r}, {len(self):,} documents{queries})"


def qrels_of_rows(rows: Sequence[tuple[str, str, float]]) -> Qrels:
    """Create judgments from tuples of query, document and grade."""
    queries, documents, grades = zip(*rows, strict=True)
    return Qrels(np.array(queries), np.array(documents), np.array(grades, dtype=np.float64))


def preview(names: Sequence[Any] | npt.NDArray[Any]) -> str:
    """Return the first three names for a message.

    >>> preview(["a", "b", "c", "d"])
    'a, b, c …'
    """
    return ", ".join(map(str, names[:3])) + (" …" if len(names) > 3 else "")


def first_repeat(ids: Sequence[str]) -> tuple[int, int] | None:
    """Return both positions of the first repeated id, or None if all are unique."""
    places: dict[str, int] = {}
    for place, name in enumerate(ids):
        if places.setdefault(name, place) != place:
            return places[name], place
    return None
