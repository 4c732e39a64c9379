"""Text of a stored copy, looked at before letters become strings.

NumPy makes a string of Python's from whatever four bytes it finds, and where they are no letter, Python fails in ways
that say nothing. Opening a copy cannot read all ids; whoever takes strings out of them gets those checked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from toprank.errors import FormatError

__all__ = ["StoredText", "check_letters"]

Array = npt.NDArray[Any]

_LAST_LETTER = 0x10FFFF
_PIECE = 1 << 20  # strings at a time


class StoredText(np.ndarray[Any, np.dtype[Any]]):
    """An array of strings over the map of a stored copy."""

    _folder: Path | None = None
    _name = ""

    @classmethod
    def of(cls, folder: Path, name: str, array: Array) -> Self:
        """The same array, whose letters nobody has looked at yet."""
        text = array.view(cls)
        text._folder, text._name = folder, name
        return text

    def __array_finalize__(self, source: Any) -> None:
        self._folder, self._name = getattr(source, "_folder", None), getattr(source, "_name", "")

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int | np.integer):
            self[int(key) : int(key) + 1 or None]._check()
        return super().__getitem__(key)

    def tolist(self) -> Any:
        """The strings, as a list."""
        self._check()
        return super().tolist()

    def _check(self) -> None:
        if self._folder is not None and self.dtype.kind == "U":
            check_letters(self._folder, self._name, np.asarray(self))


def check_letters(folder: Path, name: str, array: Array) -> None:
    """Refuse strings with something in them that is no letter of Unicode."""
    for start in range(0, len(array), _PIECE):
        letters = np.ascontiguousarray(array[start : start + _PIECE]).view(np.uint32)
        if letters.size and letters.max() > _LAST_LETTER:
            raise FormatError(
                f"The stored copy is damaged: {name}.npy holds what is no text. Make the copy again.", path=folder
            )
