"""Reader of Universal Binary JSON as XGBoost writes it; lengths are compared with the remaining bytes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from toprank.errors import DataError, refuse_if

_MAX_DEPTH = 64
_KINDS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
_SIZES = {"i": "b", "U": "B", "I": ">h", "l": ">i", "L": ">q", "d": ">f", "D": ">d"}
_WORDS = {"Z": None, "T": True, "F": False}
_DAMAGED = "its binary JSON is damaged"


def decode(content: bytes) -> Any:
    """Return the decoded value; lists of numbers of one type become arrays."""
    reader = _UbjReader(content)
    value = reader.value(reader.mark(), 0)
    refuse_if(reader.place != len(content), _DAMAGED)
    return value


class _UbjReader:
    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def take(self, count: int) -> bytes:
        refuse_if(not 0 <= count <= len(self.content) - self.place, _DAMAGED)
        self.place += count
        return self.content[self.place - count : self.place]

    def mark(self) -> str:
        """Return the type marker of the next value; no-ops are skipped."""
        while (mark := self.take(1)) == b"N":
            pass
        return mark.decode("latin-1")

    def number(self, kind: str) -> Any:
        form = _SIZES.get(kind)
        if form is None:
            raise DataError(_DAMAGED)
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def length(self) -> int:
        kind = self.mark()
        refuse_if(kind not in "iUIlL", _DAMAGED)
        return int(self.number(kind))

    def text(self) -> str:
        try:
            return self.take(self.length()).decode()
        except UnicodeDecodeError:
            raise DataError(_DAMAGED) from None

    def value(self, kind: str, depth: int) -> Any:
        refuse_if(depth > _MAX_DEPTH, f"its binary JSON is nested more than {_MAX_DEPTH} times")
        if kind in _WORDS:
            return _WORDS[kind]
        if kind == "S":
            return self.text()
        if kind == "C":
            return self.take(1).decode("latin-1")
        if kind == "{":
            return self.members(depth)
        if kind == "[":
            return self.items(depth)
        return self.number(kind)

    def members(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while True:
            if self.content[self.place : self.place + 1] == b"}":
                self.place += 1
                return values
            name = self.text()
            values[name] = self.value(self.mark(), depth + 1)

    def items(self, depth: int) -> Any:
        kind = self.mark()
        if kind == "$":
            kind = self.mark()
            refuse_if(self.mark() != "#" or kind not in _KINDS, _DAMAGED)
            count, form = self.length(), np.dtype(_KINDS[kind])
            return np.frombuffer(self.take(count * form.itemsize), form)
        if kind == "#":
            count = self.length()
            if not 0 <= count <= len(self.content) - self.place:  # each item takes at least one byte
                raise DataError(_DAMAGED)
            return [self.value(self.mark(), depth + 1) for _ in range(count)]
        values = []
        while kind != "]":
            values.append(self.value(kind, depth + 1))
            kind = self.mark()
        return values
