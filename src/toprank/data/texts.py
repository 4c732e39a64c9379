"""Which metadata columns are text that queries are matched with, and how such a column is held.

A title or a description is no category and no word of a slice: texts are long, and hardly two are alike. Each is a
Python string of its own length (an array of NumPy's strings would give every text the room of the longest).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from toprank.compute import Array
from toprank.data.arrays import check_utf8, is_missing
from toprank.errors import DataError

_END = b"\xff"  # a byte that UTF-8 never has


class TextRoles(NamedTuple):
    """The column with the words of the query, and the fields of the documents.

    >>> TextRoles.from_value({"query": "search_term", "document": ["title", "description"]})
    TextRoles(query='search_term', document=('title', 'description'), language='english')
    """

    query: str
    document: tuple[str, ...]
    language: str = "english"
    """Of the stems, see `toprank.text.Analyzer`."""

    @classmethod
    def from_value(cls, roles: Any) -> Self:
        """Check the roles that a caller gives, as a mapping."""
        if isinstance(roles, cls):
            return roles
        fine = isinstance(roles, Mapping) and {"query", "document"} <= set(roles) <= {"query", "document", "language"}
        if not fine:
            raise DataError(
                "text must name the column of the query's words and those of the documents, such as {'query': "
                f"'search_term', 'document': ['title', 'description']}}, not {roles!r:.200}."
            )
        query, document, language = roles["query"], roles["document"], roles.get("language", "english")
        fields = (document,) if isinstance(document, str) else tuple(document)
        names = (query, *fields)
        if not fields or not all(isinstance(name, str) and name.strip() for name in (*names, language)):
            raise DataError("text needs one column for the query, and at least one for the documents, by their names.")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"text names the column '{twice}' twice.")
        return cls(query, fields, language)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that hold text."""
        return (self.query, *self.document)

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it, and `of` takes it."""
        other = {} if self.language == "english" else {"language": self.language}
        return {"query": self.query, "document": list(self.document)} | other


def text_column(cells: Any, name: str) -> Array:
    """Values as texts; what is missing is empty."""
    values = cells.tolist() if hasattr(cells, "tolist") else list(cells)
    column = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                check_utf8(value, f"text in the column '{name}'")
            column[row] = value
        elif is_missing(value):
            column[row] = ""
        else:
            raise DataError(
                f"The column '{name}' must hold text, but row {row} (counted from 0) holds a "
                f"{type(value).__name__}: {value!r:.50}."
            )
    return column


def packed_texts(column: Array) -> Array:
    """A column of texts as bytes: UTF-8, with a byte between two texts that no text has."""
    return np.frombuffer(_END.join(text.encode() for text in column.tolist()), dtype=np.uint8)


def unpacked_texts(packed: Array) -> Array:
    """What `packed_texts` made; a ValueError where it is damaged."""
    column = [text.decode() for text in packed.tobytes().split(_END)]
    texts = np.empty(len(column), dtype=object)
    texts[:] = column
    return texts
