"""The documents of an index: one memory-mapped file of concatenated texts per field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import IntArray, offsets_of
from toprank.search.storage import IndexFolder, write_array

_IDS = "ids"


class _Texts:
    """Concatenated texts: text i is the bytes ``starts[i]:starts[i + 1]``."""

    def __init__(self, folder: IndexFolder, name: str) -> None:
        self._bytes, self._starts = folder.array(f"{name}.text", "u"), folder.array(f"{name}.starts", "i")
        starts = self._starts
        fine = self._bytes.dtype == np.uint8 and self._bytes.ndim == starts.ndim == 1 and len(starts) > 0
        if not fine or starts[0] != 0 or starts[-1] != len(self._bytes) or (np.diff(starts) < 0).any():
            raise folder.fault(f"This index is damaged: the offsets of {name} do not match its texts.")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, row: int) -> str:
        return self._bytes[int(self._starts[row]) : int(self._starts[row + 1])].tobytes().decode("utf-8", "replace")

    def start(self, row: int, letters: int) -> str:
        """Return the first `letters` characters of a text without reading the rest."""
        first, last = int(self._starts[row]), int(self._starts[row + 1])
        cut = min(last, first + 4 * letters)  # a UTF-8 character has at most four bytes
        return self._bytes[first:cut].tobytes().decode("utf-8", "ignore" if cut < last else "replace")[:letters]

    def all(self) -> list[str]:
        content, starts = self._bytes.tobytes(), self._starts.tolist()
        return [content[first:last].decode("utf-8", "replace") for first, last in pairwise(starts)]


class Documents:
    """Document ids and texts of an index, by row."""

    def __init__(self, folder: IndexFolder) -> None:
        fields = folder.entry("fields", list)
        self._ids = _Texts(folder, _IDS)
        self._fields = {str(name): _Texts(folder, f"field_{place}") for place, name in enumerate(fields)}
        title = folder.meta.get("title")
        self.title: str | None = title if title in self._fields else None
        if {len(texts) for texts in self._fields.values()} != {len(self._ids)} or len(self._ids) == 0:
            raise folder.fault("This index is damaged: its fields have different numbers of documents.")

    @property
    def fields(self) -> tuple[str, ...]:
        """Field names."""
        return tuple(self._fields)

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, row: int) -> str:
        """Return the id of a document."""
        return self._ids[row]

    def text(self, row: int, field: str) -> str:
        """Return the text of one field of a document."""
        return self._fields[field][row]

    def start(self, row: int, field: str, letters: int) -> str:
        """Return the first `letters` characters of one field of a document, without reading the rest."""
        return self._fields[field].start(row, letters)

    def fields_of(self, row: int) -> dict[str, str]:
        """Return the texts of a document by field."""
        return {name: texts[row] for name, texts in self._fields.items()}

    @cached_property
    def ids(self) -> npt.NDArray[Any]:
        """The ids of all documents."""
        return np.array(self._ids.all(), dtype=object)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids.tolist())}

    def rows(self, ids: Sequence[str]) -> IntArray:
        """Return the rows of documents with these ids; −1 for unknown ids."""
        return np.array([self._rows.get(name, -1) for name in ids], dtype=np.int64)


def write_documents(folder: Path, ids: Sequence[str], fields: Mapping[str, Sequence[str]]) -> None:
    """Write documents to an index folder."""
    _write_texts(folder, _IDS, ids)
    for place, texts in enumerate(fields.values()):
        _write_texts(folder, f"field_{place}", texts)


def _write_texts(folder: Path, name: str, texts: Sequence[str]) -> None:
    encoded = [text.encode() for text in texts]
    write_array(folder, f"{name}.text", np.frombuffer(b"".join(encoded), dtype=np.uint8))
    write_array(folder, f"{name}.starts", offsets_of([len(text) for text in encoded]))
