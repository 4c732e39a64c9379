"""The content of gzip and zstd files, piece by piece."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from toprank.errors import FormatError

_BLOCK = 1 << 20  # bytes at a time, however many a piece of the file becomes
_FIRST_STEP = 512  # bytes that a member of a gzip file is given first
_ZEROS = re.compile(rb"\0*")


def gunzip(path: Path, stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of all members of a gzip file; zero bytes between and behind them are padding.

    A member is given a few bytes at first, then more and more: what it leaves over is copied, and a file of many small
    members would be copied once for each of them. What it makes of them comes in blocks, however much that is.
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
        raise FormatError(f"The gzip data is damaged ({problem}); get the file again.", path=path) from None
    if member is not None:
        raise FormatError("The gzip data ends too early: the file is cut off; get it again.", path=path)


def unzstd(path: Path, stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a zstd file."""
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd") as unpacked:
            while block := unpacked.read(_BLOCK):
                yield block
    except OSError as problem:
        raise FormatError(f"The zstd data is damaged or cut off ({problem}); get the file again.", path=path) from None
