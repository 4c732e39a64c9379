"""Files as bytes: plain, gzip and zstd, mapped into memory to read and written all or nothing.

A plain file is mapped, so its bytes cost no memory of ours. The content of a compressed file or of a pipe goes through
a nameless temporary file that is mapped in the same way: readers may then pass over the bytes as often as they like.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import mmap
import os
import stat
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import numpy as np

from toprank.data.decimals import Bytes
from toprank.errors import DataError, FileError, FormatError

__all__ = ["ByteSource", "check_size", "head_of", "open_bytes", "output", "plain_name"]

_BLOCK = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BOM = b"\xef\xbb\xbf"
_ALWAYS_ALLOWED = 256 << 20  # bytes of an array, whatever the size of its text
_ALLOWED_TIMES_TEXT = 20


@dataclass(frozen=True, eq=False)
class ByteSource:
    """The (decompressed) bytes of a file, as a read-only array and as a buffer with `find`."""

    path: Path
    buffer: mmap.mmap | bytes
    text: Bytes

    @property
    def start(self) -> int:
        """Where the text begins: behind a byte order mark, if there is one."""
        return len(_BOM) if self.buffer[: len(_BOM)] == _BOM else 0

    def line_and_column(self, position: int) -> tuple[int, int]:
        """Line and column, both from 1, of a byte."""
        blocks = range(0, position, _BLOCK)
        line = sum(int(np.count_nonzero(self.text[at : min(at + _BLOCK, position)] == 10)) for at in blocks)
        start = self.buffer.rfind(b"\n", 0, position) + 1 or min(self.start, position)
        return line + 1, len(self.buffer[start:position].decode("utf-8", "replace")) + 1

    def fault(self, problem: str, position: int) -> FormatError:
        """The error that says what is wrong at a byte."""
        line, column = self.line_and_column(position)
        return FormatError(problem, path=self.path, line=line, column=column)


def open_bytes(path: str | os.PathLike[str], spool: Path | None = None) -> ByteSource:
    """The bytes of a file; gzip and zstd are recognised by their first bytes, whatever the name.

    Args:
        path: the file.
        spool: where to unpack a compressed file. Default: the folder for temporary files.

    Raises:
        FileError: the file cannot be opened or read.
        FormatError: compressed data is damaged or ends too early.
    """
    path = Path(path)
    with _opened(path) as stream:
        blocks = _blocks(path, stream)
        if blocks is None:
            return _mapped(path, stream.fileno())
        with _no_room(path, spool), tempfile.TemporaryFile(prefix="toprank-", dir=spool) as unpacked:
            for block in blocks:
                unpacked.write(block)
            unpacked.flush()
            return _mapped(path, unpacked.fileno())


@contextlib.contextmanager
def _no_room(path: Path, spool: Path | None) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.ENOENT, errno.EROFS):
            raise
        if spool is not None:
            raise FileError(
                f"{path} cannot be unpacked beside the target: {problem.strerror}. Make room there."
            ) from None
        raise FileError(
            f"{path} cannot be unpacked to the folder for temporary files, {tempfile.gettempdir()}: "
            f"{problem.strerror}. Make room there, or name another folder in the variable TMPDIR."
        ) from None


def head_of(path: str | os.PathLike[str], size: int = 1 << 16) -> bytes:
    """The first bytes of a file, decompressed, to tell its format by.

    Raises:
        FileError: the file cannot be opened or read.
        FormatError: compressed data is damaged or ends too early.
    """
    path = Path(path)
    with _opened(path) as stream:
        head = b""
        for block in _blocks(path, stream) or iter(lambda: stream.read(size), b""):
            head += block
            if len(head) >= size:
                break
        return head[:size].removeprefix(_BOM)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        raise FileError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise FileError(f"{path} is a folder, not a file.") from None
    except (OSError, ValueError) as problem:
        raise FileError(f"{path} cannot be opened: {getattr(problem, 'strerror', None) or problem}.") from None
    with stream:
        try:
            yield stream
        except OSError as problem:
            if isinstance(problem, FileError):
                raise
            raise FileError(f"{path} cannot be read: {problem.strerror or problem}.") from None


def _blocks(path: Path, stream: BufferedReader) -> Iterator[bytes] | None:
    """The content of a compressed file or a pipe, piece by piece; None for a plain file."""
    magic = stream.peek(4)[:4]
    if magic.startswith(_GZIP):
        return _gunzip(path, stream)
    if magic == _ZSTD:
        return _unzstd(path, stream)
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return None
    return iter(lambda: stream.read(_BLOCK), b"")


def _gunzip(path: Path, stream: IO[bytes]) -> Iterator[bytes]:
    """The content of all members of a gzip file; zero bytes between and behind them are padding."""
    member = None
    try:
        while block := stream.read(_BLOCK):
            while block:
                if member is None:
                    block = block.lstrip(b"\0")
                    member = zlib.decompressobj(wbits=31) if block else None
                if member is not None:
                    yield member.decompress(block)
                    block = member.unused_data
                    member = None if member.eof else member
    except zlib.error as problem:
        raise FormatError(f"The gzip data is damaged ({problem}); get the file again.", path=path) from None
    if member is not None:
        raise FormatError("The gzip data ends too early: the file is cut off; get it again.", path=path)


def _unzstd(path: Path, stream: IO[bytes]) -> Iterator[bytes]:
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd") as unpacked:
            while block := unpacked.read(_BLOCK):
                yield block
    except OSError as problem:
        raise FormatError(f"The zstd data is damaged or cut off ({problem}); get the file again.", path=path) from None


def _mapped(path: Path, handle: int) -> ByteSource:
    if os.fstat(handle).st_size == 0:
        return ByteSource(path, b"", np.frombuffer(b"", dtype=np.uint8))
    buffer = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
    return ByteSource(path, buffer, np.frombuffer(buffer, dtype=np.uint8))


def check_size(n_bytes: int, text_bytes: int, what: str, remedy: str) -> None:
    """Refuse an array out of proportion to its text: a single odd number in a file must not eat the memory."""
    if n_bytes > max(_ALWAYS_ALLOWED, _ALLOWED_TIMES_TEXT * text_bytes):
        raise DataError(
            f"{what} would take {n_bytes / 2**20:,.0f} MiB for {text_bytes / 2**20:,.1f} MiB of text. {remedy}"
        )


def plain_name(path: str | os.PathLike[str]) -> Path:
    """The path without the suffix that says how it is compressed.

    >>> str(plain_name("train.txt.gz")), str(plain_name("train.txt"))
    ('train.txt', 'train.txt')
    """
    path = Path(path)
    return path.with_suffix("") if path.suffix in (".gz", ".zst") else path


@contextlib.contextmanager
def output(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Write a file all or nothing: to a temporary sibling that takes the name when everything is written.

    A name that ends in .gz or .zst is compressed. The same content gives the same bytes.

    Raises:
        FileError: the file cannot be written; what was there before stays.
    """
    path = Path(path)
    sibling = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        with sibling.open("xb") as raw, _compressing(raw, path.suffix) as stream:
            yield stream
        os.replace(sibling, path)
    except BaseException as problem:
        with contextlib.suppress(OSError):
            sibling.unlink()
        if isinstance(problem, OSError) and not isinstance(problem, FileError):
            raise FileError(f"{path} cannot be written: {problem.strerror or problem}.") from None
        raise


@contextlib.contextmanager
def _compressing(raw: IO[bytes], suffix: str) -> Iterator[Any]:
    if suffix == ".gz":
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as stream:
            yield stream
    elif suffix == ".zst":
        import pyarrow as pa

        with pa.CompressedOutputStream(pa.PythonFile(raw, "w"), "zstd") as stream:
            yield stream
    else:
        yield raw
