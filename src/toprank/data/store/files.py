"""Array files of a stored copy that is being written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from toprank.compute import Array
from toprank.data.bytesource import check_size
from toprank.data.hashes import Digest, digest
from toprank.errors import FileError


class ArrayFile:
    """One `.npy` file, whose header is rewritten with the final shape."""

    def __init__(
        self,
        file: Path,
        dtype: np.dtype[Any],
        tail: tuple[int, ...],
        length: int | None,
        hashed: np.dtype[Any] | None = None,
    ) -> None:
        self._file, self._dtype, self._tail, self._rows, self._length = file, dtype, tail, 0, length
        self._digest = None if length is None else Digest(hashed or dtype, (length, *tail))
        self._row_bytes = dtype.itemsize * int(np.prod(tail, dtype=np.int64))
        self._stream = file.open("wb")
        self._write_header()

    @property
    def to_come(self) -> int:
        """Number of bytes still to be written; 0 if unknown."""
        return max(0, (self._length or 0) - self._rows) * self._row_bytes

    def append(self, block: Array) -> None:
        """Write further rows."""
        plain = np.ascontiguousarray(block, dtype=self._dtype)
        if plain.size:  # as bytes, since the buffer protocol does not support NumPy strings
            self._stream.write(plain.reshape(-1).view(np.uint8).data)
        self._rows += len(plain)
        if self._digest is not None:
            self._digest.update(plain)

    def close(self) -> dict[str, Any]:
        """Complete the file and return its description."""
        if self._length not in (None, self._rows):
            raise FileError(
                f"{self._file.name} got {self._rows} rows instead of {self._length}: the source changed while it was "
                "read. Convert it again when no other program writes to it."
            )
        self._stream.seek(0)
        self._write_header()
        self._stream.close()
        shape = [self._rows, *self._tail]
        whole = self._digest.hexdigest() if self._digest else digest(self._mapped())
        return {"dtype": self._dtype.str, "shape": shape, "hash": whole}

    def abandon(self) -> None:
        """Remove what was written."""
        self._stream.close()
        self._file.unlink(missing_ok=True)

    def _write_header(self) -> None:
        # NumPy pads headers so that the length can grow; all headers of a file have the same size.
        shape = (self._rows, *self._tail)
        described = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._stream, described)

    def _mapped(self) -> Array:
        empty = 0 in (self._rows, *self._tail)
        array: Array = np.load(self._file, mmap_mode=None if empty else "r", allow_pickle=False)
        return array


class TextFile:
    """Strings of unknown maximum length; blocks are kept in a temporary file until the maximum is known."""

    to_come = 0  # unknown

    def __init__(self, file: Path, check_room: Callable[[int], None]) -> None:
        self._file, self._check_room, self._spool = file, check_room, file.with_suffix(".spool")
        self._blocks, self._longest, self._letters = list[tuple[int, int]](), 1, 0
        self._stream = self._spool.open("w+b")

    def append(self, block: Array) -> None:
        """Add further strings."""
        plain = np.ascontiguousarray(block)
        self._stream.write(plain.view(np.uint8).data)
        self._blocks.append((len(plain), plain.dtype.itemsize // 4))
        lengths = np.char.str_len(plain)
        self._longest = max(self._longest, int(lengths.max(initial=1)))
        self._letters += int(lengths.sum())

    def close(self) -> dict[str, Any]:
        """Complete the file, and return its description."""
        widest = max((width for _, width in self._blocks), default=1)
        rows = sum(length for length, _ in self._blocks)
        what = f"The {self._file.stem.replace('_', ' ')}, padded to the longest one,"
        check_size(4 * widest * rows, self._letters, what, "Shorten the longest one.")
        self._check_room(4 * widest * rows)
        final = ArrayFile(self._file, np.dtype(f"<U{widest}"), (), rows, np.dtype(f"U{self._longest}"))
        self._stream.seek(0)
        for length, width in self._blocks:
            content = self._stream.read(4 * length * width)
            final.append(np.frombuffer(content, dtype=f"<U{width}"))
        self.abandon()
        return final.close()

    def abandon(self) -> None:
        """Remove what was written."""
        self._stream.close()
        self._spool.unlink(missing_ok=True)
