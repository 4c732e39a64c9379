"""The documents of an index: texts end to end in one file for each field, which is mapped, not read."""

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
    """Texts end to end: text i is the bytes ``starts[i]:starts[i + 1]``."""

    def __init__(self, folder: IndexFolder, name: str) -> None:
        self._bytes, self._starts = folder.array(f"{name}.text", "u"), folder.array(f"{name}.starts", "i")
        starts = self._starts
        fine = self._bytes.dtype == np.uint8 and self._bytes.ndim == starts.ndim == 1 and len(starts) > 0
        if not fine or starts[0] != 0 or starts[-1] != len(self._bytes) or (np.diff(starts) < 0).any():
            raise folder.fault(f"This index is damaged: the texts of {name} do not fit.")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, row: int) -> str:
        return self._bytes[int(self._starts[row]) : int(self._starts[row + 1])].tobytes().decode("utf-8", "replace")

    def start(self, row: int, letters: int) -> str:
        """So many letters of a text from its beginning, without reading the rest."""
        first, last = int(self._starts[row]), int(self._starts[row + 1])
        cut = min(last, first + 4 * letters)  # a letter has four bytes at most
        return self._bytes[first:cut].tobytes().decode("utf-8", "ignore" if cut < last else "replace")[:letters]

    def all(self) -> list[str]:
        content, starts = self._bytes.tobytes(), self._starts.tolist()
        return [content[first:last].decode("utf-8", "replace") for first, last in pairwise(starts)]


class Documents:
    """Ids and fields of an index's documents, by row."""

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
        """The names of the fields."""
        return tuple(self._fields)

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, row: int) -> str:
        """The id of a document."""
        return self._ids[row]

    def text(self, row: int, field: str) -> str:
        """The text of a document in a field."""
        return self._fields[field][row]

    def start(self, row: int, field: str, letters: int) -> str:
        """The beginning of the text of a document in a field; of one of many megabytes nothing else is read."""
        return self._fields[field].start(row, letters)

    def fields_of(self, row: int) -> dict[str, str]:
        """All texts of a document."""
        return {name: texts[row] for name, texts in self._fields.items()}

    @cached_property
    def ids(self) -> npt.NDArray[Any]:
        """All ids."""
        return np.array(self._ids.all(), dtype=object)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids.tolist())}

    def rows(self, ids: Sequence[str]) -> IntArray:
        """The rows of documents by their ids; −1 where there is none."""
        return np.array([self._rows.get(name, -1) for name in ids], dtype=np.int64)


def write_documents(folder: Path, ids: Sequence[str], fields: Mapping[str, Sequence[str]]) -> None:
    """Write the documents into the folder of an index."""
    _write_texts(folder, _IDS, ids)
    for place, texts in enumerate(fields.values()):
        _write_texts(folder, f"field_{place}", texts)


def _write_texts(folder: Path, name: str, texts: Sequence[str]) -> None:
    encoded = [text.encode() for text in texts]
    write_array(folder, f"{name}.text", np.frombuffer(b"".join(encoded), dtype=np.uint8))
    write_array(folder, f"{name}.starts", offsets_of([len(text) for text in encoded]))
