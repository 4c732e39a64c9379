"""Decompression of gzip and zstd files in pieces."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from toprank.errors import FormatError

_BLOCK = 1 << 20  # maximum number of bytes per output block
_FIRST_STEP = 512  # bytes of the first input to a member of a gzip file
_ZEROS = re.compile(rb"\0*")


def gunzip(path: Path, stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of all members of a gzip file; zero bytes between and after them are padding.

    The input to a member grows from a few bytes, because unused input is copied, which is slow for files with many
    small members. The output is split into blocks of limited size.
    """
    member, step = None, _FIRST_STEP
    try:
        while block := memoryview(stream.read(_BLOCK)):
            at = 0
            while at < len(block):
                if member is None:
                    zeros = _ZEROS.match(block, at)
                    at = zeros.end() if zeros else at
                    member, step = (zlib.decompressobj(wbits=31) if at < len(block) else None), _FIRST_STEP
                    continue
                piece = block[at : at + step]
                at, step = at + len(piece), min(2 * step, _BLOCK)
                while True:
                    yield member.decompress(piece, _BLOCK)
                    piece = memoryview(member.unconsumed_tail)
                    if member.eof or not piece:
                        break
                if member.eof:
                    at, member = at - len(member.unused_data), None
    except zlib.error as problem:
        raise FormatError(
            f"The gzip data is damaged ({problem}); download or copy the file again.", path=path
        ) from None
    if member is not None:
        raise FormatError("The gzip data ends too early: the file is truncated; download or copy it again.", path=path)


def unzstd(path: Path, stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a zstd file."""
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd") as unpacked:
            while block := unpacked.read(_BLOCK):
                yield block
    except OSError as problem:
        raise FormatError(
            f"The zstd data is damaged or truncated ({problem}); copy the file again.", path=path
        ) from None
