"""Text columns of queries and documents, and their storage.

Titles and descriptions are long and rarely repeat, so they are neither categories nor slices. A text column is an
object array of Python strings, because a NumPy string array would pad every text to the longest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from toprank.compute import Array
from toprank.data.arrays import check_utf8, is_missing
from toprank.errors import DataError

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData

_END = b"\xff"  # a byte that does not occur in UTF-8


class TextRoles(NamedTuple):
    """The text column of the query, and the text columns of the documents.

    >>> TextRoles.from_value({"query": "search_term", "document": ["title", "description"]})
    TextRoles(query='search_term', document=('title', 'description'), language='english')
    """

    query: str
    document: tuple[str, ...]
    language: str = "english"
    """Language of the stemmer, see `toprank.text.Analyzer`."""

    @classmethod
    def from_value(cls, roles: Any) -> Self:
        """Validate a mapping of text roles."""
        if isinstance(roles, cls):
            return roles
        fine = isinstance(roles, Mapping) and {"query", "document"} <= set(roles) <= {"query", "document", "language"}
        if not fine:
            raise DataError(
                "text must name the text columns of the query and of the documents, such as {'query': 'search_term', "
                f"'document': ['title', 'description']}}, not {roles!r:.200}."
            )
        query, document, language = roles["query"], roles["document"], roles.get("language", "english")
        fields = (document,) if isinstance(document, str) else tuple(document)
        names = (query, *fields)
        if not fields or not all(isinstance(name, str) and name.strip() for name in (*names, language)):
            raise DataError("text needs the name of one query column and of at least one document column.")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"text names the column '{twice}' twice; name each column once.")
        return cls(query, fields, language)

    @property
    def columns(self) -> tuple[str, ...]:
        """All text columns."""
        return (self.query, *self.document)

    def plain(self) -> dict[str, Any]:
        """Return a JSON-serializable mapping that `from_value` accepts."""
        other = {} if self.language == "english" else {"language": self.language}
        return {"query": self.query, "document": list(self.document)} | other


def text_column(cells: Any, name: str) -> Array:
    """Return values as an object array of strings; missing values become empty strings."""
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
    """Encode a text column as bytes: UTF-8 texts joined by a byte that does not occur in UTF-8."""
    return np.frombuffer(_END.join(text.encode() for text in column.tolist()), dtype=np.uint8)


def unpacked_texts(packed: Array) -> Array:
    """Decode the output of `packed_texts`; raise a ValueError if it is damaged."""
    column = [text.decode() for text in packed.tobytes().split(_END)]
    texts = np.empty(len(column), dtype=object)
    texts[:] = column
    return texts


def query_texts(data: RankingData) -> Array | None:
    """Return the text of each query, or None if the data have no texts, or several texts for a query."""
    if data.text is None:
        return None
    texts = data.metadata[data.text.query]
    return texts if len(texts) == data.n_queries else None


def document_titles(data: RankingData) -> Array | None:
    """Return the first text of each document, or None if the data have no texts."""
    if data.text is None:
        return None
    texts = data.metadata[data.text.document[0]]
    return texts if len(texts) == data.n_documents else data.queries.broadcast(texts)


def with_text(name: object, text: str | None) -> str:
    """Return an id followed by its text, on one line.

    >>> with_text(17, "red  shoes"), with_text("d3", ""), with_text("d3", None)
    ('17: red shoes', 'd3', 'd3')
    """
    words = " ".join((text or "").split())
    return f"{name}: {words}" if words else str(name)
